//! Limits each principal's share of the ledger, so that no principal pushes out the evidence of others.
//!
//! While the ledger is short of space, a principal that holds more than its share is recorded in full only at the rate
//! of one share in each retention period. Further entries become counts. Exception: if the oldest evidence is removed
//! to make room, and one principal holds everything, it pushes out only its own evidence, and is not counted.
//!
//! Principals are identified by the names of their keys. The first frame of each segment lists the principals that hold
//! at least a 256th of the previous segment, at most 256 of them. So less than a 256th of a principal's evidence is
//! missed.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use credence_wire::v1;
use prost::Message as _;

use crate::entry::{EntryKind, EntryView, PrincipalView};
use crate::group::KeyShare;
use crate::options::Retention;

/// The size of each principal's evidence.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// For each full segment, the oldest first: its first index, and its largest principals.
    full: VecDeque<(u64, Vec<KeyShare>)>,
    /// The sums over full segments.
    of_full: HashMap<u32, u64>,
    /// Bytes in the segment that is being appended to.
    growing: HashMap<u32, u64>,
    /// What principals beyond their share may still add. There are few, because shares are not small.
    allowances: HashMap<u32, Allowance>,
    /// None if a principal may hold everything.
    rule: Option<Rule>,
}

/// The share of a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    /// Bytes of evidence that the ledger may hold.
    space: u64,
    /// Bytes of these that one principal may hold.
    share: u64,
    /// The time in which a principal beyond its share may add another share.
    period: Duration,
    /// Whether the oldest evidence is removed to make room.
    makes_room: bool,
}

/// What a principal beyond its share may still add.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    bytes: u64,
    /// When it last grew, nanoseconds since the Unix epoch.
    at: u64,
}

/// The counted entries of one write, of principals beyond their share.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// Aggregates without their counts, by principal, and the counts.
    principals: HashMap<v1::Principal, HashMap<v1::Aggregate, u64>>,
    chains: u64,
    /// The number of entries in all of them.
    entries: u64,
}

// === impl Shares ===

impl Shares {
    /// From now on, limits each principal to this percentage of the ledger's space.
    pub(crate) fn limit_shares(&mut self, percent: u8, total: u64, retention: Retention) {
        let space = retention.bytes.map_or(total, |bytes| bytes.min(total));
        self.rule = (percent < 100).then(|| Rule {
            space,
            share: space / 100 * u64::from(percent),
            period: retention.age.unwrap_or(PERIOD),
            makes_room: retention.bytes.is_some(),
        });
    }

    /// Whether a principal can be beyond its share while the ledger holds `held` bytes of evidence.
    pub(crate) fn is_short(&self, held: u64) -> bool {
        self.rule.is_some_and(|rule| held >= rule.space / 2)
    }

    /// Whether these `bytes` of the key's principal are only counted while the ledger holds `held` bytes of evidence.
    pub(crate) fn counts(&mut self, key: u32, bytes: u64, held: u64, now: u64) -> bool {
        let Some(rule) = self.rule.filter(|_| self.is_short(held)) else {
            return false;
        };
        let own = self.of(key);
        let is_alone = self.of(ALL) <= own;
        if own.saturating_add(bytes) <= rule.share || (is_alone && rule.makes_room) {
            self.allowances.remove(&key);
            return false;
        }
        let full = rule.burst();
        let allowance = self.allowances.entry(key).or_insert(Allowance { bytes: full, at: now });
        allowance.refill(rule, now);
        if allowance.bytes < bytes {
            return true;
        }
        allowance.bytes -= bytes;
        false
    }

    /// The size of the evidence of the key's principal.
    pub(crate) fn of(&self, key: u32) -> u64 {
        let of = |sums: &HashMap<u32, u64>| sums.get(&key).copied().unwrap_or(0);
        of(&self.of_full) + of(&self.growing)
    }

    /// Adds a leaf of this size.
    pub(crate) fn add(&mut self, key: u32, bytes: u64) {
        if key != NO_PRINCIPAL {
            *self.growing.entry(key).or_default() += bytes;
            *self.growing.entry(ALL).or_default() += bytes;
        }
    }

    /// The sizes to remember of the segment that is being appended to: its largest principals, and all of them
    /// together.
    pub(crate) fn largest(&self) -> Vec<KeyShare> {
        let least = self.growing.get(&ALL).copied().unwrap_or(0) / LARGEST;
        let largest = self.growing.iter().filter(|(_, bytes)| **bytes > least);
        let largest = largest.map(|(key, bytes)| KeyShare {
            key: *key,
            bytes: *bytes,
        });
        largest.collect()
    }

    /// Notes that the segment with this first index is full, and what the next one remembers of it.
    pub(crate) fn segment_is_full(&mut self, first: u64, largest: Vec<KeyShare>) {
        self.growing.clear();
        self.remember(first, largest);
    }

    /// Takes in the sizes that the next segment remembers of the segment with this first index.
    pub(crate) fn remember(&mut self, first: u64, shares: Vec<KeyShare>) {
        for share in &shares {
            *self.of_full.entry(share.key).or_default() += share.bytes;
        }
        self.full.push_back((first, shares));
    }

    /// Drops the sizes of removed segments: those below this index.
    pub(crate) fn forget_before(&mut self, first: u64) {
        while let Some((_, shares)) = self.full.pop_front_if(|(begins, _)| *begins < first) {
            for share in shares {
                if let Some(sum) = self.of_full.get_mut(&share.key) {
                    *sum = sum.saturating_sub(share.bytes);
                    if *sum == 0 {
                        self.of_full.remove(&share.key);
                    }
                }
            }
        }
    }
}

// === impl Rule ===

impl Rule {
    /// The amount that a principal may add at once: its allowance for a hundredth of the period.
    fn burst(self) -> u64 {
        self.share / 100
    }
}

// === impl Allowance ===

impl Allowance {
    fn refill(&mut self, rule: Rule, now: u64) {
        let passed = u128::from(now.saturating_sub(self.at));
        let more = passed * u128::from(rule.share) / rule.period.as_nanos().max(1);
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        // A fraction of a byte is added later.
        if more > 0 {
            self.bytes = self.bytes.saturating_add(more).min(rule.burst());
            self.at = now;
        }
    }
}

// === impl Counted ===

impl Counted {
    /// Counts an entry about a principal, received at `received` (seconds since the Unix epoch).
    pub(crate) fn add(&mut self, principal: PrincipalView<'_>, entry: &EntryView<'_>, received: i64) {
        self.entries += 1;
        let aggregate = |second, rule: &str, reason: &str, decision, mode| v1::Aggregate {
            second,
            rule: rule.to_owned(),
            reason: reason.to_owned(),
            decision,
            mode,
            ..Default::default()
        };
        let (key, count) = match &entry.kind {
            EntryKind::Event(event) => {
                let second = (event.time_unix_nano / NANOS) as i64;
                (
                    aggregate(second, event.rule, event.reason, event.decision, event.mode),
                    1,
                )
            }
            EntryKind::Aggregate(counted) => {
                let (second, decision, mode) = (counted.second, counted.decision, counted.mode);
                (
                    aggregate(second, counted.rule, counted.reason, decision, mode),
                    counted.count,
                )
            }
            EntryKind::Chain(_) | EntryKind::Gap(_) => {
                self.chains += 1;
                return;
            }
        };
        let counts = self.principals.entry(principal.to_wire()).or_default();
        let key = match counts.len() < MAX_COUNTS || counts.contains_key(&key) {
            true => key,
            false => aggregate(received, OTHER, OTHER, key.decision().into(), key.mode().into()),
        };
        let sum = counts.entry(key).or_default();
        *sum = sum.saturating_add(count);
    }

    /// The number of counted entries, and the encoded entries that replace them.
    pub(crate) fn take(&mut self) -> (u64, Vec<Vec<u8>>) {
        let counted = std::mem::take(self);
        let mut encoded = Vec::new();
        let mut encode = |entry| encoded.push(v1::Entry { entry: Some(entry) }.encode_to_vec());
        for (principal, counts) in counted.principals {
            for (aggregate, count) in counts {
                encode(v1::entry::Entry::Aggregate(v1::Aggregate {
                    count,
                    principal: Some(principal.clone()),
                    ..aggregate
                }));
            }
        }
        // A chain that is not stored counts as shed: events that refer to it cannot be verified again.
        if counted.chains > 0 {
            encode(v1::entry::Entry::Gap(v1::Gap {
                shed_chains: counted.chains,
                ..Default::default()
            }));
        }
        (counted.entries, encoded)
    }
}

/// The name of the key for records without a principal.
const NO_PRINCIPAL: u32 = 0;
/// Stands for all principals together: no principal's key has this name.
const ALL: u32 = NO_PRINCIPAL;
/// A principal is remembered if it has at least this fraction of a segment.
const LARGEST: u64 = 256;
/// The most counts of one principal in one write, apart from those with [`OTHER`].
const MAX_COUNTS: usize = 8;
/// The rule and the reason of further counts. No rule can have this name.
const OTHER: &str = "(other)";
/// The period without a retention by age.
const PERIOD: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const NANOS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 60 * 60 * NANOS;

    /// 10,000 bytes in ten days, a quarter for each principal.
    fn shares() -> Shares {
        let mut shares = Shares::default();
        let retention = Retention {
            age: Some(Duration::from_nanos(10 * DAY)),
            bytes: Some(10_000),
        };
        shares.limit_shares(25, 1 << 40, retention);
        shares
    }

    #[test]
    fn a_principal_beyond_its_share_is_counted_while_the_ledger_is_short_of_space() {
        let mut shares = shares();
        shares.add(1, 2_500);
        shares.add(2, 2_400);
        // No other principal needs the space yet.
        assert!(!shares.counts(1, 1_000, 4_999, 0));
        assert!(shares.counts(1, 100, 5_000, 0));
        assert!(!shares.counts(2, 100, 5_000, 0));
        assert!(shares.counts(2, 101, 5_000, 0));
    }

    #[test]
    fn beyond_it_there_is_another_share_in_each_period() {
        let mut shares = shares();
        shares.add(1, 2_500);
        shares.add(2, 1);
        // A hundredth at once.
        assert!(!shares.counts(1, 25, 9_000, DAY));
        assert!(shares.counts(1, 25, 9_000, DAY));
        // An hour is a 240th of the period.
        let mut brought = 0;
        for hour in 1..=240 {
            while !shares.counts(1, 1, 9_000, DAY + hour * DAY / 24) {
                brought += 1;
            }
        }
        assert!((2_300..=2_500).contains(&brought), "{brought}");
    }

    #[test]
    fn removed_segments_do_not_count_and_a_restart_remembers_the_same() {
        let mut shares = shares();
        for segment in 0..4 {
            shares.add(1, 1_000);
            shares.add(2, 3);
            let mut largest = shares.largest();
            largest.sort_by_key(|share| share.key);
            assert_eq!(
                largest,
                [(ALL, 1_003), (1, 1_000)].map(|(key, bytes)| KeyShare { key, bytes })
            );
            shares.segment_is_full(segment * 256, largest);
        }
        assert_eq!(shares.of(1), 4_000);
        shares.forget_before(512);
        assert_eq!(shares.of(1), 2_000);
        let mut again = self::shares();
        let remembered = [(ALL, 1_003), (1, 1_000)].map(|(key, bytes)| KeyShare { key, bytes });
        again.remember(512, remembered.to_vec());
        again.remember(768, remembered.to_vec());
        assert_eq!((again.of(1), again.of(ALL)), (2_000, 2_006));
        shares.forget_before(1 << 40);
        assert!(shares.of_full.is_empty());
    }

    #[test]
    fn a_principal_that_is_alone_is_not_counted_where_the_oldest_evidence_makes_room() {
        let mut shares = shares();
        shares.add(1, 9_000);
        assert!(!shares.counts(1, 1_000, 9_000, 0));
        shares.segment_is_full(0, shares.largest());
        shares.add(2, 1);
        assert!(shares.counts(1, 1_000, 9_001, 0));
        shares.segment_is_full(256, shares.largest());
        shares.add(1, 9_000);
        // The last of the other principal's evidence is removed.
        shares.forget_before(512);
        assert!(!shares.counts(1, 1_000, 9_000, 0));
        // If nothing is removed, the remaining space is for future principals.
        shares.limit_shares(25, 10_000, Retention::default());
        assert!(shares.counts(1, 1_000, 9_000, 0));
    }

    #[test]
    fn without_a_rule_a_principal_may_hold_everything() {
        let mut shares = shares();
        shares.limit_shares(100, 10_000, Retention::default());
        shares.add(1, 9_000);
        assert!(!shares.counts(1, 1_000, 9_999, 0));
    }
}
