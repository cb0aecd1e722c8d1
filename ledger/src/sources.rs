//! The sources of evidence that have not ended, and how far each has come.

use std::collections::{BTreeMap, HashMap};

use prost::Message;

use crate::leaf::SourceName;
use crate::record::SourceChange;

/// What the ledger knows of the sources that have not ended.
#[derive(Debug, Default)]
pub(crate) struct KnownSources {
    by_name: HashMap<SourceName, (SourceState, Age)>,
    /// The same sources, those first that can be forgotten first: lost ones, then the oldest.
    by_age: BTreeMap<Age, SourceName>,
    next: u64,
}

/// A source that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SourceState {
    /// The last sequence number that is stored.
    pub last_sequence: u64,
    /// Whether it was given up.
    pub lost: bool,
}

/// What a source is after the group.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SourceMark {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) name: Vec<u8>,
    /// The last sequence number that is stored.
    #[prost(uint64, tag = "2")]
    pub(crate) last_sequence: u64,
    /// What happened to it, unspecified if only its number moved.
    #[prost(enumeration = "SourceChange", tag = "3")]
    pub(crate) change: i32,
}

/// In the order in which sources are forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Age {
    awaited: bool,
    born: u64,
}

// === impl KnownSources ===

impl KnownSources {
    pub(crate) fn get(&self, source: &SourceName) -> Option<SourceState> {
        self.by_name.get(source).map(|(state, _)| *state)
    }

    /// The sources that may still come back and have not been given up.
    pub(crate) fn awaited(&self) -> Vec<SourceName> {
        let awaited = self.by_name.iter().filter(|(_, (state, _))| !state.lost);
        awaited.map(|(source, _)| *source).collect()
    }

    /// Takes in what a group says.
    pub(crate) fn apply(&mut self, mark: &SourceMark) {
        let Some(source) = mark.name() else { return };
        let known = self.get(&source).unwrap_or_default();
        let lost = match mark.change() {
            SourceChange::Ended => return self.remove(&source),
            SourceChange::Started | SourceChange::Returned => false,
            SourceChange::Lost => true,
            SourceChange::Unspecified => known.lost,
        };
        let last_sequence = mark.last_sequence;
        // Nearly every mark moves a number only.
        match self.by_name.get_mut(&source) {
            Some((state, _)) if state.lost == lost => state.last_sequence = last_sequence,
            _ => self.set(source, SourceState { last_sequence, lost }),
        }
    }

    /// As marks, so that applying them all to nothing gives the same again.
    pub(crate) fn marks(&self) -> Vec<SourceMark> {
        let mut by_birth: Vec<_> = self.by_name.iter().collect();
        by_birth.sort_unstable_by_key(|(_, (_, age))| age.born);
        let mark = |(source, (state, _)): (&SourceName, &(SourceState, Age))| SourceMark {
            name: source.0.to_vec(),
            last_sequence: state.last_sequence,
            change: if state.lost {
                SourceChange::Lost
            } else {
                SourceChange::Started
            }
            .into(),
        };
        by_birth.into_iter().map(mark).collect()
    }

    /// Bounds what is remembered: one that is forgotten and does come back is told to open a new source.
    fn set(&mut self, source: SourceName, state: SourceState) {
        let born = match self.by_name.get(&source) {
            Some((_, age)) => age.born,
            None => {
                self.next += 1;
                self.next
            }
        };
        self.remove(&source);
        let age = Age {
            awaited: !state.lost,
            born,
        };
        self.by_age.insert(age, source);
        self.by_name.insert(source, (state, age));
        if self.by_name.len() > MAX_KNOWN_SOURCES
            && let Some((_, forgotten)) = self.by_age.pop_first()
        {
            self.by_name.remove(&forgotten);
        }
    }

    fn remove(&mut self, source: &SourceName) {
        if let Some((_, age)) = self.by_name.remove(source) {
            self.by_age.remove(&age);
        }
    }
}

// === impl SourceMark ===

impl SourceMark {
    pub(crate) fn name(&self) -> Option<SourceName> {
        Some(SourceName(self.name.as_slice().try_into().ok()?))
    }
}

/// Sources that are remembered, at about 100 bytes each, and at about 30 in every segment.
pub const MAX_KNOWN_SOURCES: usize = 200_000;

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
    fn what_a_segment_begins_with_gives_the_same_sources() {
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
        assert_eq!(
            again.by_age.values().collect::<Vec<_>>(),
            sources.by_age.values().collect::<Vec<_>>()
        );
    }
}
