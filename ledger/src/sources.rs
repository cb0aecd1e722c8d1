//! The sources of evidence that have not ended, and the last sequence number of each.

use std::collections::HashMap;

use prost::Message;

use crate::leaf::SourceName;
use crate::record::SourceChange;

/// The sources that have not ended.
#[derive(Debug, Default)]
pub(crate) struct KnownSources {
    /// With the position of each in the order of their starts.
    by_name: HashMap<SourceName, (SourceState, u64)>,
    next: u64,
}

/// A source that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SourceState {
    /// The last sequence number that is stored.
    pub last_sequence: u64,
    /// Whether the source was given up, or reports to another replica.
    pub lost: bool,
}

/// The state of a source after the group.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SourceMark {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) name: Vec<u8>,
    /// The last sequence number that is stored.
    #[prost(uint64, tag = "2")]
    pub(crate) last_sequence: u64,
    /// The change; unspecified if only the sequence number changed.
    #[prost(enumeration = "SourceChange", tag = "3")]
    pub(crate) change: i32,
}

// === impl KnownSources ===

impl KnownSources {
    pub(crate) fn get(&self, source: &SourceName) -> Option<SourceState> {
        self.by_name.get(source).map(|(state, _)| *state)
    }

    /// The sources that may still return, and are not given up.
    pub(crate) fn awaited(&self) -> Vec<SourceName> {
        let awaited = self.by_name.iter().filter(|(_, (state, _))| !state.lost);
        awaited.map(|(source, _)| *source).collect()
    }

    /// Takes in the mark of a group.
    pub(crate) fn apply(&mut self, mark: &SourceMark) {
        let Some(source) = mark.name() else { return };
        if mark.change() == SourceChange::Ended {
            self.by_name.remove(&source);
            return;
        }
        let (state, _) = self.by_name.entry(source).or_insert_with(|| {
            self.next += 1;
            (SourceState::default(), self.next)
        });
        state.last_sequence = mark.last_sequence;
        match mark.change() {
            SourceChange::Started | SourceChange::Returned | SourceChange::Arrived => state.lost = false,
            SourceChange::Lost | SourceChange::Moved => state.lost = true,
            SourceChange::Unspecified | SourceChange::Ended => {}
        }
        if self.by_name.len() > MAX_KNOWN_SOURCES {
            self.forget_some();
        }
    }

    /// The sources as marks. Applying them to an empty set gives the same sources.
    pub(crate) fn marks(&self) -> Vec<SourceMark> {
        let mut by_birth: Vec<_> = self.by_name.iter().collect();
        by_birth.sort_unstable_by_key(|(_, (_, born))| *born);
        let mark = |(source, (state, _)): (&SourceName, &(SourceState, u64))| {
            let change = match state.lost {
                true => SourceChange::Lost,
                false => SourceChange::Started,
            };
            SourceMark::new(*source, state.last_sequence, change)
        };
        by_birth.into_iter().map(mark).collect()
    }

    /// Limits the number of remembered sources. A forgotten source that returns is told to open a new one. Lost sources
    /// are forgotten first, then the oldest. Many are forgotten at once, because each time all are checked.
    fn forget_some(&mut self) {
        let known = self.by_name.iter();
        let mut by_age: Vec<_> = known
            .map(|(source, (state, born))| (!state.lost, *born, *source))
            .collect();
        by_age.select_nth_unstable(FORGOTTEN_AT_ONCE);
        for (.., source) in by_age.iter().take(FORGOTTEN_AT_ONCE) {
            self.by_name.remove(source);
        }
    }
}

// === impl SourceMark ===

impl SourceMark {
    pub(crate) fn new(source: SourceName, last_sequence: u64, change: SourceChange) -> Self {
        Self {
            name: source.0.to_vec(),
            last_sequence,
            change: change.into(),
        }
    }

    pub(crate) fn name(&self) -> Option<SourceName> {
        Some(SourceName(self.name.as_slice().try_into().ok()?))
    }
}

/// The number of remembered sources, at about 100 bytes each, and at about 30 in every segment.
pub const MAX_KNOWN_SOURCES: usize = 200_000;
const FORGOTTEN_AT_ONCE: usize = MAX_KNOWN_SOURCES / 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(source: u8, last_sequence: u64, change: SourceChange) -> SourceMark {
        SourceMark {
            name: vec![source; 16],
            last_sequence,
            change: change.into(),
        }
    }

    fn known(marks: &[SourceMark]) -> KnownSources {
        let mut sources = KnownSources::default();
        marks.iter().for_each(|mark| sources.apply(mark));
        sources
    }

    #[test]
    fn a_source_is_awaited_until_it_ends_or_is_given_up() {
        let sources = known(&[
            mark(1, 0, SourceChange::Started),
            mark(2, 0, SourceChange::Started),
            mark(3, 0, SourceChange::Started),
            mark(1, 7, SourceChange::Unspecified),
            mark(2, 0, SourceChange::Ended),
            mark(3, 0, SourceChange::Lost),
        ]);
        assert_eq!(sources.awaited(), [SourceName([1; 16])]);
        assert_eq!(sources.get(&SourceName([1; 16])).unwrap().last_sequence, 7);
        assert_eq!(sources.get(&SourceName([2; 16])), None);
        assert!(sources.get(&SourceName([3; 16])).unwrap().lost);
    }

    #[test]
    fn the_marks_at_a_segments_beginning_give_the_same_sources() {
        let sources = known(&[
            mark(1, 0, SourceChange::Started),
            mark(2, 5, SourceChange::Started),
            mark(1, 9, SourceChange::Lost),
        ]);
        let again = known(&sources.marks());
        for source in [1, 2] {
            let name = SourceName([source; 16]);
            assert_eq!(again.get(&name), sources.get(&name));
        }
        assert_eq!(again.marks(), sources.marks());
    }

    #[test]
    fn lost_sources_are_forgotten_first_then_the_oldest() {
        let name = |source: u32| [[0; 12].as_slice(), &source.to_be_bytes()].concat();
        let mut sources = KnownSources::default();
        let mut apply = |source, change: SourceChange| {
            sources.apply(&SourceMark {
                name: name(source),
                last_sequence: 0,
                change: change.into(),
            });
        };
        let count = MAX_KNOWN_SOURCES as u32;
        (0..count).for_each(|source| apply(source, SourceChange::Started));
        apply(count - 1, SourceChange::Lost);
        apply(count, SourceChange::Started);
        let is_known = |source| sources.get(&SourceName(name(source).try_into().unwrap())).is_some();
        let forgotten = FORGOTTEN_AT_ONCE as u32 - 1;
        assert!(!is_known(0) && !is_known(forgotten - 1) && is_known(forgotten) && is_known(count));
        assert!(!is_known(count - 1), "it was lost");
    }
}
