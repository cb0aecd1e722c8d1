//! Evidence between a decision and the control plane's acknowledgement.

use std::collections::VecDeque;

use credence_wire::v1;
use prost::Message as _;
use prost::encoding::{encode_varint, encoded_len_varint};

use super::counts::{Counts, Kind};
use super::pages::Pages;
use crate::clock::UnixNanos;
use crate::config::Overflow;
use crate::usage_sketch::{Amount, Shares, UsageSketch, UserKey};

/// A bounded queue of audit entries, oldest first.
///
/// Entries are stored in their wire encoding, one after the other: a push encodes its event once and does not allocate,
/// and a batch is a copy of adjacent bytes. Entries have no sequence numbers here; the reporter counts them from the
/// oldest.
///
/// A principal may use at most as much room as stays free: if all entries wait for the control plane, one principal has
/// at most half of the ring, two have a third each, and the next one still finds room. A principal loses its own
/// evidence first.
///
/// The sums match: stored events, plus the counts of aggregates, plus the `shed` and `shed_counts` of gaps, are the
/// recorded requests.
#[derive(Debug)]
pub struct Ring {
    limit: Amount,
    /// What happens to a request if its evidence does not fit.
    pub(crate) overflow: Overflow,
    /// Every entry as a field of `Batch`: the tag of `entries`, its length, the encoded `Entry`.
    bytes: Pages,
    /// Buffer for the bytes before an entry's own ones.
    framing: Vec<u8>,
    /// Each entry in `bytes`.
    stored: VecDeque<Stored>,
    /// The usage of each principal, including reserved room.
    owned: Shares,
    /// The part of these that are chains.
    chains: Amount,
    /// The chain bytes of each principal.
    owned_chains: UsageSketch,
    /// Room reserved for events that are completed later.
    reserved: Amount,
    counts: Counts,
    gap: Option<v1::Gap>,
    /// What was shed since the ring was created.
    pub(crate) shed: Shed,
}

/// The owner of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Whether the event is based on a verified signature.
    pub trust: Trust,
    /// The principal that loses evidence first if there is too much. `None` for entries of the filter itself.
    pub share: Option<UserKey>,
}

/// Whether an event is based on a verified signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// A decision on a verified chain. It may use the whole ring.
    Verified,
    /// Anything else. Any client can cause these, so they cannot use a quarter of the ring.
    Unverified,
}

/// What was shed since the ring was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shed {
    /// Events.
    pub events: u64,
    /// Decisions that could not be counted by kind.
    pub counts: u64,
    /// Chains.
    pub chains: u64,
}

/// One entry.
#[derive(Clone, Copy, Debug)]
struct Stored {
    /// Its length; with [`CHAIN`] set if it is a chain.
    marked: u32,
    share: Option<UserKey>,
}

/// Why the ring could not be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// Too small for the largest entry.
    #[error("the audit ring has {max_bytes} bytes; expected at least {MIN_BYTES}")]
    TooSmall {
        /// The configured limit.
        max_bytes: usize,
    },
    /// The VM has no memory left.
    #[error("there is no memory for an audit ring of {max_bytes} bytes: lower its limit")]
    OutOfMemory {
        /// The configured limit.
        max_bytes: usize,
    },
}

/// The most bytes of an entry other than a chain, framing included. A larger event is shed, so all parts of an event
/// must be bounded well below this.
pub const MAX_ENTRY_BYTES: usize = 16 * 1024;

/// The most bytes of a presented chain, the limit of `PresentedChain` in audit.proto. A larger chain is shed.
pub const MAX_CHAIN_BYTES: usize = 60_000;

/// The most bytes of an entry with a chain, including framing and the principal's name.
pub const MAX_CHAIN_ENTRY_BYTES: usize = 62 * 1024;

/// The smallest ring: the quarter for verified decisions holds the largest event.
pub const MIN_BYTES: usize = 4 * MAX_ENTRY_BYTES;

/// The largest encoding of a gap entry with its framing: five numbers.
const GAP: Amount = Amount::one(64);

/// Marks the length of a chain. No entry is that long.
const CHAIN: u32 = 1 << 31;

/// Field `entries` of `Batch`, length-delimited.
const BATCH_ENTRIES_TAG: u8 = 2 << 3 | 2;

/// Field `event` of `Entry`, length-delimited.
const ENTRY_EVENT_TAG: u8 = 1 << 3 | 2;

/// Field `aggregate` of `Entry`, length-delimited.
const ENTRY_AGGREGATE_TAG: u8 = 2 << 3 | 2;

/// Field `gap` of `Entry`, length-delimited.
const ENTRY_GAP_TAG: u8 = 3 << 3 | 2;

/// Field `chain` of `Entry`, length-delimited.
const ENTRY_CHAIN_TAG: u8 = 4 << 3 | 2;

// === impl Ring ===

impl Ring {
    /// An empty ring. Its memory is allocated at once, so that no request waits for allocation.
    pub fn new(limit: Amount, overflow: Overflow) -> Result<Self, RingError> {
        let max_bytes = limit.bytes;
        if max_bytes < MIN_BYTES {
            return Err(RingError::TooSmall { max_bytes });
        }
        let mut stored: VecDeque<Stored> = VecDeque::new();
        let bytes = Pages::with_room_for(max_bytes)
            .and_then(|bytes| stored.try_reserve_exact(limit.entries).map(|()| bytes))
            .map_err(|_| RingError::OutOfMemory { max_bytes })?;
        Ok(Self {
            limit,
            overflow,
            bytes,
            framing: Vec::new(),
            stored,
            owned: Shares::default(),
            chains: Amount::default(),
            owned_chains: UsageSketch::default(),
            reserved: Amount::default(),
            counts: Counts::default(),
            gap: None,
            shed: Shed::default(),
        })
    }

    /// Adds the event of one decision, an encoded `v1::Event`. `false` if it did not fit; the next gap entry, dated
    /// `now`, counts it.
    pub fn push(&mut self, event: &[u8], owner: Owner, now: UnixNanos) -> bool {
        let is_stored = self.leaves_enough(owner.share, framed(framed(event.len())))
            && self.store_gap_before(event, owner.trust)
            && self.store(ENTRY_EVENT_TAG, event, owner);
        if !is_stored {
            self.shed_event(now);
        }
        is_stored
    }

    /// Adds a principal's chain, an encoded `v1::PresentedChain` of `presented_bytes` presented bytes, before the first
    /// event that names it.
    ///
    /// Chains use at most a quarter of the ring, and only its first half: events do not lose their room to them. In
    /// that quarter, too, a principal may use at most as much as stays free. A chain that the control plane would
    /// refuse is not added: it would refuse the whole batch, and no later entry would ever leave the ring. `false` if
    /// the chain was not added; the next gap entry counts it.
    pub fn push_chain(&mut self, chain: &[u8], presented_bytes: usize, share: Option<UserKey>, now: UnixNanos) -> bool {
        let length = framed(framed(chain.len()));
        let is_accepted = presented_bytes <= MAX_CHAIN_BYTES && length <= MAX_CHAIN_ENTRY_BYTES;
        if is_accepted && self.fits_as_chain(length, share) && self.append(ENTRY_CHAIN_TAG, chain, CHAIN, share) {
            self.chains = self.chains.plus(Amount::one(length));
            if let Some(share) = share {
                self.owned_chains.add(share, length);
            }
            return true;
        }
        self.shed.chains = self.shed.chains.saturating_add(1);
        let gap = self.open_gap(now);
        gap.shed_chains = gap.shed_chains.saturating_add(1);
        false
    }

    /// Whether a principal's chain of `presented_bytes` presented bytes may fit now. `false` is certain.
    pub fn has_room_for_chain(&self, presented_bytes: usize, share: Option<UserKey>) -> bool {
        presented_bytes <= MAX_CHAIN_BYTES && self.fits_as_chain(presented_bytes, share)
    }

    /// Reserves room for an event of at most `event_bytes`, an encoded `v1::Event` that is completed later. `true` if
    /// there is room, which [`Ring::push_reserved`] then uses.
    pub fn reserve(&mut self, event_bytes: usize, owner: Owner) -> bool {
        let length = framed(framed(event_bytes));
        let has_room = length <= MAX_ENTRY_BYTES
            && self.has_room(GAP.plus(Amount::one(length)), owner.trust)
            && self.leaves_enough(owner.share, length);
        if has_room {
            self.reserved = self.reserved.plus(Amount::one(length));
            self.owned.add(owner.share, Amount::one(length));
        }
        has_room
    }

    /// Adds an event with reserved room of `reserved_bytes`. If it is larger, the next gap entry counts it.
    pub fn push_reserved(&mut self, event: &[u8], reserved_bytes: usize, share: Option<UserKey>, now: UnixNanos) {
        let reserved = framed(framed(reserved_bytes));
        self.reserved = self.reserved.minus(Amount::one(reserved));
        self.owned.remove(share, Amount::one(reserved));
        let owner = Owner {
            trust: Trust::Verified,
            share,
        };
        // An open gap that does not fit waits for the next event. This event has its own room.
        self.store_gap_before(event, owner.trust);
        if event.len() > reserved_bytes || !self.store(ENTRY_EVENT_TAG, event, owner) {
            self.shed_event(now);
        }
    }

    /// An event did not fit: the next gap entry counts it.
    pub fn shed_event(&mut self, now: UnixNanos) {
        self.shed.events = self.shed.events.saturating_add(1);
        let gap = self.open_gap(now);
        gap.shed = gap.shed.saturating_add(1);
    }

    /// Counts decisions of one kind and second that are not events.
    pub fn count(&mut self, kind: &Kind<'_>, count: u64, now: UnixNanos) {
        if !self.counts.add(kind, now.second(), count) {
            self.shed.counts = self.shed.counts.saturating_add(count);
            let gap = self.open_gap(now);
            gap.shed_counts = gap.shed_counts.saturating_add(count);
        }
    }

    /// Time has passed: converts the counts of past seconds, and a gap, to entries, as far as they fit.
    pub fn on_tick(&mut self, now: UnixNanos) {
        self.close_counts(|second| second < now.second());
        self.store_gap(Trust::Unverified);
    }

    /// The source ends: converts all open counts and gaps to entries, as far as they fit. True if none is left open.
    pub fn close(&mut self) -> bool {
        self.close_counts(|_| true);
        self.store_gap(Trust::Verified);
        self.counts.is_empty() && self.gap.is_none()
    }

    /// Whether an event of the maximum size about a verified decision of this principal would fit now; without a
    /// principal, of one that has no entries yet. With `Overflow::Deny`, a request is denied without this.
    pub fn has_room_for_event(&self, share: Option<UserKey>) -> bool {
        let with_gap = GAP.plus(Amount::one(MAX_ENTRY_BYTES));
        self.has_room(with_gap, Trust::Verified) && self.leaves_enough(share, MAX_ENTRY_BYTES)
    }

    /// The number of waiting entries.
    pub fn len(&self) -> usize {
        self.stored.len()
    }

    /// Whether no entry waits; a count or a gap may still be open.
    pub fn is_empty(&self) -> bool {
        self.stored.is_empty()
    }

    /// The number of waiting bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the bytes of the entries after the oldest `skip` to `batch`, as fields of a `Batch`. `bytes` comes from
    /// [`Ring::measure`].
    pub(super) fn copy(&self, skip: Amount, bytes: usize, batch: &mut Vec<u8>) {
        self.bytes.copy(skip.bytes, bytes, batch);
    }

    /// How many of the entries after the oldest `skip` fit into both limits, and their bytes.
    pub(super) fn measure(&self, skip: Amount, max_entries: usize, max_bytes: usize) -> Amount {
        let mut found = Amount::default();
        for stored in self.stored.iter().skip(skip.entries).take(max_entries) {
            let extended = found.plus(Amount::one(stored.length()));
            if extended.bytes > max_bytes {
                break;
            }
            found = extended;
        }
        found
    }

    /// The oldest `count` entries are on the control plane's disk. Returns their number of bytes.
    pub(super) fn drop_oldest(&mut self, count: usize) -> usize {
        let count = count.min(self.stored.len());
        let mut bytes = 0_usize;
        for stored in self.stored.drain(..count) {
            let length = stored.length();
            bytes = bytes.saturating_add(length);
            self.owned.remove(stored.share, Amount::one(length));
            if stored.is_chain() {
                self.chains = self.chains.minus(Amount::one(length));
                if let Some(share) = stored.share {
                    self.owned_chains.remove(share, length);
                }
            }
        }
        self.bytes.drop_oldest(bytes)
    }

    fn fits_as_chain(&self, bytes: usize, share: Option<UserKey>) -> bool {
        let chain = Amount::one(bytes);
        let (chains, of_chains) = (self.chains.plus(chain), self.limit.part(CHAINS_SHARE));
        let with_chain = self.used().plus(chain);
        // The event that names the chain comes next, and must not lose its room to the chain.
        let free = self.limit.minus(with_chain.plus(Amount::one(MAX_ENTRY_BYTES)));
        let leaves_enough = share.is_none_or(|share| {
            self.owned_chains.of(share) <= of_chains.minus(chains).bytes && self.owned.of(share).plus(chain).fits(free)
        });
        chains.fits(of_chains) && with_chain.fits(self.limit.part(CHAINS_CEILING)) && leaves_enough
    }

    /// Whether, after an entry of this size, at least as much stays free as its principal already uses.
    fn leaves_enough(&self, share: Option<UserKey>, bytes: usize) -> bool {
        let free = || self.limit.minus(self.used().plus(Amount::one(bytes)));
        share.is_none_or(|share| self.owned.of(share).fits(free()))
    }

    fn close_counts(&mut self, is_over: impl Fn(i64) -> bool) {
        let mut counts = std::mem::take(&mut self.counts);
        counts.close(is_over, |aggregate| {
            self.store(
                ENTRY_AGGREGATE_TAG,
                &aggregate.encode_to_vec(),
                Owner::none(Trust::Unverified),
            )
        });
        self.counts = counts;
    }

    fn open_gap(&mut self, now: UnixNanos) -> &mut v1::Gap {
        let gap = self.gap.get_or_insert(v1::Gap {
            first_time_unix_nano: now.0,
            last_time_unix_nano: now.0,
            ..Default::default()
        });
        gap.last_time_unix_nano = gap.last_time_unix_nano.max(now.0);
        gap
    }

    /// Stores a gap before the event that ends it, and only together with it: separate gaps would let a shed flood fill
    /// the ring with gaps. True if no gap is open any more.
    fn store_gap_before(&mut self, event: &[u8], trust: Trust) -> bool {
        if self.gap.is_none() {
            return true;
        }
        let length = framed(framed(event.len()));
        length <= MAX_ENTRY_BYTES && self.has_room(GAP.plus(Amount::one(length)), trust) && self.store_gap(trust)
    }

    /// True if no gap is open any more.
    fn store_gap(&mut self, trust: Trust) -> bool {
        if let Some(gap) = self.gap.take()
            && !self.store(ENTRY_GAP_TAG, &gap.encode_to_vec(), Owner::none(trust))
        {
            self.gap = Some(gap);
        }
        self.gap.is_none()
    }

    fn store(&mut self, tag: u8, message: &[u8], owner: Owner) -> bool {
        let length = framed(framed(message.len()));
        length <= MAX_ENTRY_BYTES
            && self.has_room(Amount::one(length), owner.trust)
            && self.append(tag, message, 0, owner.share)
    }

    fn append(&mut self, tag: u8, message: &[u8], mark: u32, share: Option<UserKey>) -> bool {
        let entry_length = framed(message.len());
        let Ok(stored_length) = u32::try_from(framed(entry_length)) else {
            return false;
        };
        self.framing.clear();
        for (tag, length) in [(BATCH_ENTRIES_TAG, entry_length), (tag, message.len())] {
            self.framing.push(tag);
            encode_varint(length as u64, &mut self.framing);
        }
        // Room for both was checked before. Storing only one of them would corrupt the numbering.
        if !self.bytes.append(&self.framing, message) {
            return false;
        }
        let stored = Stored {
            marked: stored_length | mark,
            share,
        };
        self.owned.add(share, Amount::one(stored.length()));
        self.stored.push_back(stored);
        true
    }

    fn has_room(&self, more: Amount, trust: Trust) -> bool {
        let open = match trust {
            Trust::Verified => self.limit,
            Trust::Unverified => self.limit.minus(self.limit.part(RESERVED_SHARE)),
        };
        self.used().plus(more).fits(open)
    }

    /// Used and reserved room.
    fn used(&self) -> Amount {
        let stored = Amount {
            entries: self.stored.len(),
            bytes: self.bytes.len(),
        };
        stored.plus(self.reserved)
    }
}

// === impl Owner ===

impl Owner {
    /// An entry of the filter itself.
    const fn none(trust: Trust) -> Self {
        Self { trust, share: None }
    }
}

// === impl Stored ===

impl Stored {
    fn length(self) -> usize {
        (self.marked & !CHAIN) as usize
    }

    fn is_chain(self) -> bool {
        self.marked & CHAIN != 0
    }
}

/// One part in this many is reserved for verified decisions.
const RESERVED_SHARE: usize = 4;

/// Chains use at most one part in this many.
const CHAINS_SHARE: usize = 4;

/// No chain is stored beyond one part in this many of the ring.
const CHAINS_CEILING: usize = 2;

/// The length of a length-delimited field with a one-byte tag.
pub(super) fn framed(length: usize) -> usize {
    length
        .saturating_add(encoded_len_varint(length as u64))
        .saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::counts::{MAX_OPEN_BY_REASON, MAX_OPEN_BY_RULE};

    const VERIFIED: Owner = Owner::none(Trust::Verified);
    const UNVERIFIED: Owner = Owner::none(Trust::Unverified);
    const NOW: UnixNanos = UnixNanos(5_000_000_001);

    fn ring(max_entries: usize) -> Ring {
        Ring::new(
            Amount {
                entries: max_entries,
                bytes: MIN_BYTES,
            },
            Overflow::Shed,
        )
        .unwrap()
    }

    fn encoded(request_id: &str) -> Vec<u8> {
        event(request_id).encode_to_vec()
    }

    fn event(request_id: &str) -> v1::Event {
        v1::Event {
            request_id: request_id.to_owned(),
            ..Default::default()
        }
    }

    fn waiting(ring: &Ring) -> Vec<v1::entry::Entry> {
        let (entries, bytes) = peek(ring, Amount::default(), usize::MAX, usize::MAX);
        let batch = v1::Batch::decode(bytes.as_slice()).unwrap();
        assert_eq!(batch.entries.len(), entries);
        batch.entries.into_iter().map(|entry| entry.entry.unwrap()).collect()
    }

    fn peek(ring: &Ring, skip: Amount, max_entries: usize, max_bytes: usize) -> (usize, Vec<u8>) {
        let found = ring.measure(skip, max_entries, max_bytes);
        let mut bytes = Vec::new();
        ring.copy(skip, found.bytes, &mut bytes);
        assert_eq!(bytes.len(), found.bytes);
        (found.entries, bytes)
    }

    fn denied<'a>(rule: &'a str, reason: &'static str) -> Kind<'a> {
        Kind {
            rule,
            reason,
            decision: v1::Decision::Deny,
            mode: v1::Mode::Enforce,
        }
    }

    fn event_entry(request_id: &str) -> v1::entry::Entry {
        v1::entry::Entry::Event(event(request_id))
    }

    fn full_event() -> v1::Event {
        v1::Event {
            time_unix_nano: 1_700_000_000_000_000_000,
            request_id: "4f5d1b7a-7a3b-4c0e-8f0a-6b1d2c3e4f5a".to_owned(),
            trace_id: "0af7651916cd43dd8448eb211c80319c".to_owned(),
            rule: "charge".to_owned(),
            tool: "payments.charge".to_owned(),
            decision: v1::Decision::Allow.into(),
            reason: "allowed".to_owned(),
            mode: v1::Mode::Enforce.into(),
            principal: Some(v1::Principal {
                issuer: "https://id.example.com".to_owned(),
                subject: Some("ana".to_owned()),
            }),
            agent: "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs".to_owned(),
            proof: v1::ProofKind::Pop.into(),
            delegation_ids: vec!["8a1d6c0e".to_owned(), "9b2e7d1f".to_owned()],
            arguments_hash: vec![7; 32],
            method: "POST".to_owned(),
            authority: "payments.example".to_owned(),
            path_template: "/v1/accounts/{account}/charges".to_owned(),
            cache: v1::CacheLevel::L1.into(),
            decision_ns: 12_345,
            ..Default::default()
        }
    }

    #[test]
    fn stored_entries_decode_as_entries_of_the_protocol() {
        let mut ring = ring(10);
        let event = full_event();
        assert!(ring.push(&event.encode_to_vec(), VERIFIED, NOW));
        ring.push(&[], VERIFIED, NOW);
        let expected = [event, v1::Event::default()].map(v1::entry::Entry::Event);
        assert_eq!(waiting(&ring), expected);
    }

    #[test]
    fn acknowledged_entries_make_room_around_the_rings_end() {
        let mut ring = ring(10);
        for round in 0..2_000 {
            let names = [format!("{round}-a"), format!("{round}-b{}", "x".repeat(100))];
            for name in &names {
                assert!(ring.push(&encoded(name), VERIFIED, NOW));
            }
            assert_eq!(waiting(&ring), names.map(|name| event_entry(&name)));
            ring.drop_oldest(2);
        }
        assert!(ring.is_empty());
        assert_eq!(ring.bytes(), 0);
    }

    #[test]
    fn a_peek_keeps_both_limits_and_skips_sent_entries() {
        let mut ring = ring(10);
        for name in ["a", "b", "c", "d"] {
            ring.push(&encoded(name), VERIFIED, NOW);
        }
        let (entries, bytes) = peek(&ring, Amount::default(), 1, usize::MAX);
        assert_eq!(entries, 1);
        let size = bytes.len();
        let skip = Amount {
            entries: 1,
            bytes: size,
        };
        let (entries, bytes) = peek(&ring, skip, usize::MAX, size * 3 - 1);
        assert_eq!(entries, 2);
        let batch = v1::Batch::decode(bytes.as_slice()).unwrap();
        let entries: Vec<_> = batch.entries.into_iter().filter_map(|entry| entry.entry).collect();
        assert_eq!(entries, ["b", "c"].map(event_entry));
    }

    #[test]
    fn events_that_do_not_fit_are_counted_in_a_gap_before_the_next_entry() {
        let mut ring = ring(2);
        for name in ["a", "b"] {
            ring.push(&encoded(name), VERIFIED, NOW);
        }
        assert!(!ring.push(&encoded("c"), VERIFIED, UnixNanos(10)));
        assert!(!ring.push(&encoded("d"), VERIFIED, UnixNanos(20)));
        ring.drop_oldest(2);
        assert!(ring.push(&encoded("e"), VERIFIED, NOW));
        let gap = v1::entry::Entry::Gap(v1::Gap {
            shed: 2,
            first_time_unix_nano: 10,
            last_time_unix_nano: 20,
            ..Default::default()
        });
        assert_eq!(waiting(&ring), [gap, event_entry("e")]);
        assert_eq!(ring.shed.events, 2);
    }

    #[test]
    fn a_gap_is_recorded_by_the_next_tick_even_if_no_event_follows() {
        let mut ring = ring(1);
        ring.push(&encoded("a"), VERIFIED, NOW);
        ring.push(&encoded("b"), VERIFIED, NOW);
        ring.drop_oldest(1);
        ring.on_tick(NOW);
        assert!(matches!(waiting(&ring)[..], [v1::entry::Entry::Gap(_)]));
    }

    #[test]
    fn an_oversized_event_is_shed() {
        let mut ring = ring(10);
        let oversized = event(&"x".repeat(MAX_ENTRY_BYTES));
        assert!(!ring.push(&oversized.encode_to_vec(), VERIFIED, NOW));
    }

    #[test]
    fn unverified_entries_cannot_fill_the_share_of_verified_ones() {
        let mut ring = ring(8);
        let stored = (0..8).filter(|_| ring.push(&encoded("u"), UNVERIFIED, NOW)).count();
        assert_eq!(stored, 6);
        ring.on_tick(NOW);
        assert_eq!(ring.len(), 6, "nor with the gaps they leave");
        ring.drop_oldest(1);
        assert!(ring.push(&encoded("v"), VERIFIED, NOW));
    }

    #[test]
    fn a_ring_without_room_for_the_next_event_reports_that_in_advance() {
        let mut ring = ring(100);
        assert!(ring.has_room_for_event(None));
        let large = event(&"x".repeat(MAX_ENTRY_BYTES - 100));
        while ring.has_room_for_event(None) {
            assert!(ring.push(&large.encode_to_vec(), VERIFIED, NOW));
        }
        assert_eq!(ring.len(), 4);
    }

    #[test]
    fn denials_are_counted_per_rule_reason_and_second() {
        let mut ring = ring(10);
        let later = UnixNanos(6_000_000_000);
        for (rule, reason, now) in [
            ("charge", "no_delegation", NOW),
            ("charge", "no_delegation", NOW),
            ("charge", "malformed", NOW),
            ("refund", "no_delegation", NOW),
            ("charge", "no_delegation", later),
        ] {
            ring.count(&denied(rule, reason), 1, now);
        }
        ring.on_tick(NOW);
        assert!(ring.is_empty(), "the second is not over");
        ring.on_tick(later);
        let aggregate = |rule: &str, reason: &str, count| {
            v1::entry::Entry::Aggregate(v1::Aggregate {
                second: 5,
                rule: rule.to_owned(),
                reason: reason.to_owned(),
                count,
                decision: v1::Decision::Deny.into(),
                mode: v1::Mode::Enforce.into(),
                principal: None,
            })
        };
        let expected = [
            aggregate("charge", "no_delegation", 2),
            aggregate("charge", "malformed", 1),
            aggregate("refund", "no_delegation", 1),
        ];
        assert_eq!(waiting(&ring), expected);
        assert!(ring.close());
        assert_eq!(ring.len(), 4);
    }

    #[test]
    fn aggregates_wait_while_there_is_no_room_and_lose_no_count() {
        let mut ring = ring(1);
        ring.push(&encoded("a"), VERIFIED, NOW);
        ring.count(&denied("charge", "malformed"), 1, NOW);
        assert!(!ring.close());
        ring.drop_oldest(1);
        assert!(ring.close());
        assert!(matches!(waiting(&ring)[..], [v1::entry::Entry::Aggregate(_)]));
    }

    #[test]
    fn the_sums_match_when_everything_overflows() {
        let mut ring = ring(2);
        let mut requests = 0;
        for second in 0..(MAX_OPEN_BY_RULE + MAX_OPEN_BY_REASON) as u64 + 10 {
            let now = UnixNanos(second * 1_000_000_000);
            ring.count(&denied("charge", "malformed"), 1, now);
            ring.push(&encoded("e"), VERIFIED, now);
            requests += 2;
        }
        let mut recorded = 0;
        while !(ring.close() && ring.is_empty()) {
            for entry in waiting(&ring) {
                recorded += match entry {
                    v1::entry::Entry::Event(_) => 1,
                    v1::entry::Entry::Aggregate(aggregate) => aggregate.count,
                    v1::entry::Entry::Gap(gap) => gap.shed + gap.shed_counts,
                    v1::entry::Entry::Chain(_) => 0,
                };
            }
            ring.drop_oldest(usize::MAX);
        }
        assert_eq!(recorded, requests);
    }

    fn chain(bytes: usize) -> Vec<u8> {
        v1::PresentedChain {
            chain: vec![b'a'; bytes],
            principal: None,
        }
        .encode_to_vec()
    }

    fn roomy() -> Ring {
        Ring::new(
            Amount {
                entries: 1_000,
                bytes: 1 << 20,
            },
            Overflow::Shed,
        )
        .unwrap()
    }

    #[test]
    fn the_longest_chain_goes_before_the_event_that_names_it() {
        let mut ring = roomy();
        assert!(ring.push_chain(&chain(MAX_CHAIN_BYTES), MAX_CHAIN_BYTES, None, NOW));
        ring.push(&encoded("a"), VERIFIED, NOW);
        let [v1::entry::Entry::Chain(stored), event] = &waiting(&ring)[..] else {
            panic!("a chain and an event")
        };
        assert_eq!((stored.chain.len(), event), (MAX_CHAIN_BYTES, &event_entry("a")));
    }

    #[test]
    fn a_chain_that_the_control_plane_refuses_stays_out_and_is_counted_once() {
        let mut ring = roomy();
        let bytes = MAX_CHAIN_BYTES + 1;
        assert!(!ring.push_chain(&chain(bytes), bytes, None, NOW));
        assert!(ring.is_empty(), "its batch would never be acknowledged");
        assert_eq!(ring.shed.chains, 1);
        assert!(!ring.has_room_for_chain(bytes, None), "no retry is needed");
    }

    #[test]
    fn chains_have_a_quarter_of_the_ring_and_the_excess_is_counted() {
        let mut ring = roomy();
        let stored = |ring: &mut Ring| {
            (0..10)
                .filter(|_| ring.push_chain(&chain(50_000), 50_000, None, NOW))
                .count()
        };
        assert_eq!(stored(&mut ring), 5, "of 1 MiB, 256 KiB");
        ring.drop_oldest(5);
        ring.on_tick(NOW);
        let gap = v1::entry::Entry::Gap(v1::Gap {
            shed_chains: 5,
            first_time_unix_nano: NOW.0,
            last_time_unix_nano: NOW.0,
            ..Default::default()
        });
        assert_eq!(waiting(&ring), [gap]);
        assert_eq!(stored(&mut ring), 5, "durable entries free their room");
        assert_eq!(ring.shed.chains, 10);
    }

    #[test]
    fn chains_stay_out_of_the_half_of_the_ring_that_fills_last() {
        let mut ring = roomy();
        for _ in 0..500 {
            ring.push(&encoded("a"), VERIFIED, NOW);
        }
        assert!(!ring.push_chain(&chain(1_000), 1_000, None, NOW));
        assert!(ring.push(&encoded("b"), VERIFIED, NOW));
    }

    #[test]
    fn reserved_room_is_there_when_the_ring_is_full() {
        let mut ring = ring(10);
        let event = encoded("later");
        assert!(ring.reserve(event.len(), VERIFIED));
        while ring.push(&encoded("a"), VERIFIED, NOW) {}
        assert_eq!((ring.len(), ring.shed.events), (9, 1));
        assert!(!ring.reserve(event.len(), VERIFIED));
        // Even though the gap does not fit.
        ring.push_reserved(&event, event.len(), None, NOW);
        assert_eq!(waiting(&ring).last(), Some(&event_entry("later")));
    }

    fn owner(number: u64) -> Owner {
        Owner {
            trust: Trust::Verified,
            share: Some(UserKey::new(number << 1)),
        }
    }

    #[test]
    fn a_principal_uses_at_most_as_much_room_as_stays_free() {
        let mut ring = ring(100);
        let mut stored = |owner| (0..200).filter(|_| ring.push(&encoded("a"), owner, NOW)).count();
        assert_eq!(stored(owner(1)), 50);
        assert_eq!(stored(owner(2)), 25);
        assert_eq!(stored(owner(3)), 12);
        assert_eq!(stored(owner(1)), 0);
        ring.drop_oldest(40);
        assert!(
            ring.has_room_for_event(owner(1).share),
            "durable entries free their room"
        );
    }

    #[test]
    fn only_the_principal_that_has_used_its_room_is_refused() {
        let mut ring = ring(100);
        while ring.has_room_for_event(owner(1).share) {
            assert!(ring.push(&encoded("a"), owner(1), NOW));
        }
        assert!(ring.has_room_for_event(owner(2).share) && ring.has_room_for_event(None));
        assert!(ring.push(&encoded("b"), owner(2), NOW));
        assert_eq!(ring.shed.events, 0);
    }

    #[test]
    fn reserved_room_counts_for_its_principal() {
        let mut ring = ring(100);
        let event = encoded("later");
        let kept = (0..200).filter(|_| ring.reserve(event.len(), owner(1))).count();
        assert_eq!(kept, 50);
        assert!(!ring.push(&event, owner(1), NOW));
        for _ in 0..kept {
            ring.push_reserved(&event, event.len(), owner(1).share, NOW);
        }
        assert_eq!(ring.len(), kept + 1, "with the gap of the event that was shed");
        assert_eq!(ring.shed.events, 1);
        assert!(ring.push(&event, owner(2), NOW));
        ring.drop_oldest(usize::MAX);
        assert_eq!(ring.owned.of(UserKey::new(2)).entries, 0);
    }

    #[test]
    fn chains_of_one_principal_leave_room_for_anothers() {
        let mut ring = roomy();
        let mut stored = |owner: Owner| {
            (0..100)
                .filter(|_| ring.push_chain(&chain(10_000), 10_000, owner.share, NOW))
                .count()
        };
        let (one, other) = (stored(owner(1)), stored(owner(2)));
        assert!((12..=13).contains(&one), "half of the chains' quarter: {one}");
        assert!(other >= 5, "{other}");
    }

    #[test]
    fn a_chain_does_not_take_the_room_of_the_event_that_names_it() {
        for events in (0..600).step_by(3) {
            let mut ring = roomy();
            for _ in 0..events {
                ring.push(&encoded(&"x".repeat(1_000)), owner(1), NOW);
            }
            let had_room = ring.has_room_for_event(owner(1).share);
            ring.push_chain(&chain(30_000), 30_000, owner(1).share, NOW);
            assert_eq!(
                ring.has_room_for_event(owner(1).share),
                had_room,
                "behind {events} events"
            );
        }
    }

    #[test]
    fn a_ring_too_small_for_one_entry_is_refused() {
        let limit = Amount {
            entries: 10,
            bytes: MIN_BYTES - 1,
        };
        assert_eq!(
            Ring::new(limit, Overflow::Shed).err(),
            Some(RingError::TooSmall {
                max_bytes: MIN_BYTES - 1
            })
        );
    }

    /// `cargo test --release -p credence-filter push_cost -- --ignored --nocapture` prints nanoseconds per push.
    #[test]
    #[ignore = "a measurement"]
    #[allow(clippy::disallowed_methods, reason = "measured natively")]
    fn push_cost() {
        let mut ring = Ring::new(
            Amount {
                entries: 16_384,
                bytes: 16 << 20,
            },
            Overflow::Shed,
        )
        .unwrap();
        let event = full_event().encode_to_vec();
        let rounds = 2_000_000;
        let start = std::time::Instant::now();
        for _ in 0..rounds {
            if !ring.push(std::hint::black_box(&event), VERIFIED, NOW) {
                ring.drop_oldest(usize::MAX);
            }
        }
        eprintln!("{} ns per push", start.elapsed().as_nanos() / rounds);
    }
}
