//! What to look for in the ledger, and looking for it, newest first.
//!
//! A question is answered segment by segment. What the index has of the narrowest conditions is opened and compared; a
//! question without a condition that is indexed is answered by reading backwards. Every page costs a bounded amount of
//! work: where that is used up, a page ends early, and says where the next one begins.

use std::sync::Arc;
use std::time::Instant;

use credence_delegation::chain_digest;
use credence_wire::v1;
use credence_wire::v1::entry::Entry as Kind;

use prost::Message as _;

use crate::index::{IndexError, IndexKey, RUN_PLACES};
use crate::reader::{LedgerReader, ReadError};
use crate::record::{LedgerRecord, RecordBody};
use crate::segment::{Segment, SegmentError, SegmentIndex};

/// What to look for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// Only records before this index; all of them if absent.
    pub before: Option<u64>,
    /// How many records to return at most.
    pub limit: usize,
    /// Conditions, all of which have to hold.
    pub filter: Filter,
    /// If present, only what is known to be about these issuers' principals: nothing that is about no principal.
    pub issuers: Option<Vec<String>>,
    /// When to stop looking and say how far it went.
    pub deadline: Option<Instant>,
}

/// Conditions on records. One on a field that a kind of record does not have leaves out all records of that kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The principal's issuer.
    pub principal_issuer: Option<String>,
    /// The principal's name at the issuer.
    pub principal_subject: Option<String>,
    /// The id of any token in the chain.
    pub delegation_id: Option<String>,
    /// The tool that was called.
    pub tool: Option<String>,
    /// What was decided.
    pub decision: Option<v1::Decision>,
    /// The thumbprint that was proven.
    pub agent: Option<String>,
    /// The reason code.
    pub reason: Option<String>,
    /// The configured rule.
    pub rule: Option<String>,
    /// The W3C trace id.
    pub trace_id: Option<String>,
    /// What a chain is known by: finds the record that holds the chain.
    pub chain_digest: Option<Vec<u8>>,
    /// Of which kind. Chains are found only if they are asked for, by their kind or their digest.
    pub kind: Option<RecordKind>,
    /// About this instant or later ones, in nanoseconds since the Unix epoch.
    pub from_unix_nano: Option<u64>,
    /// About instants before this one.
    pub until_unix_nano: Option<u64>,
}

/// The kinds of records. Numbers are part of the index's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "RecordBody says what they are")]
pub enum RecordKind {
    Decision = 0,
    Aggregate = 1,
    Gap = 2,
    Chain = 3,
    Source = 4,
    Note = 5,
    Erased = 6,
    Unknown = 7,
    Unreadable = 8,
}

/// Part of the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// What was found.
    pub records: Vec<LedgerRecord>,
    /// The `before` of the next page; absent if the ledger's beginning was reached.
    pub next: Option<u64>,
}

/// What questions are asked of.
pub trait Evidence {
    /// A segment of it.
    type Segment: Searchable;
    /// Why records can not be read.
    type Error: From<IndexError>;

    /// Every segment that is held, newest first.
    fn segments(&self) -> Vec<Self::Segment>;

    /// The records of `from..until`, in order. Those that are not there (not yet, or not any more) are left out.
    fn records(&self, from: u64, until: u64) -> Result<Vec<LedgerRecord>, Self::Error>;

    /// The records of these places of a segment, in the order of the places.
    fn records_at(&self, segment: &Self::Segment, places: &[u32]) -> Result<Vec<LedgerRecord>, Self::Error>;
}

/// A run of records, and where in it what is asked for can be found.
pub trait Searchable {
    /// Index of its first record.
    fn first(&self) -> u64;

    /// Index behind its last record that may be shown.
    fn until(&self) -> u64;

    /// The places of all records that may have the key, newest first; none if there is no index, and everything has to be
    /// looked at.
    fn lookup(&self, key: &IndexKey<'_>) -> Result<Option<Vec<u32>>, IndexError>;

    /// The earliest and the latest instant that it is about; none if nobody knows.
    fn times(&self) -> Option<(u64, u64)>;

    /// The same of each run of [`RUN_PLACES`] places; fewer than there are, if nobody knows.
    fn run_times(&self) -> Result<Vec<(u64, u64)>, IndexError>;

    /// Whether it was pruned, with everything older: what of it can not be read is no damage then.
    fn is_removed(&self) -> bool {
        false
    }
}

/// Reads a page. Blocks on the disk.
pub fn read<E: Evidence>(evidence: &E, query: &Query) -> Result<Page, E::Error> {
    let mut search = Search {
        evidence,
        query,
        keys: query.filter.keys(),
        found: Vec::new(),
        found_bytes: 0,
        looked_at: 0,
        before: query.before.unwrap_or(u64::MAX),
    };
    for segment in evidence.segments() {
        if segment.first() >= search.before || segment.first() >= segment.until() {
            continue;
        }
        let ended = match search.segment(&segment) {
            Ok(ended) => ended,
            // Everything older was removed with it: here the ledger begins now.
            Err(_) if segment.is_removed() => break,
            Err(error) => return Err(error),
        };
        search.looked_at += 1;
        if ended == Search::<E>::ENOUGH {
            let next = (search.before > 0).then_some(search.before);
            return Ok(Page {
                records: search.found,
                next,
            });
        }
        search.before = segment.first();
    }
    Ok(Page {
        records: search.found,
        next: None,
    })
}

/// Whether a record is one of those that are looked for, wherever it is and however many were found.
pub fn admits(query: &Query, record: &LedgerRecord) -> bool {
    query.admits(record)
}

// === impl LedgerReader ===

impl Evidence for LedgerReader {
    type Segment = Arc<Segment>;
    type Error = ReadError;

    fn segments(&self) -> Vec<Arc<Segment>> {
        Self::segments(self)
    }

    fn records(&self, from: u64, until: u64) -> Result<Vec<LedgerRecord>, ReadError> {
        loop {
            let held = self.first();
            let (from, until) = (from.max(held), until.min(self.size()));
            match Self::records(self, from.min(until)..until) {
                // It was removed while we were on our way to it, but what comes after it may be there.
                Err(ReadError::Pruned { .. }) if self.first() > held => {}
                Err(ReadError::Pruned { .. }) => return Ok(Vec::new()),
                records => return records,
            }
        }
    }

    fn records_at(&self, segment: &Arc<Segment>, places: &[u32]) -> Result<Vec<LedgerRecord>, ReadError> {
        match Self::records_at(self, segment, places) {
            Err(_) if segment.first() < self.first() => Ok(Vec::new()),
            records => records,
        }
    }
}

impl From<IndexError> for ReadError {
    fn from(error: IndexError) -> Self {
        Self::Segment(SegmentError::Index(error))
    }
}

impl Searchable for Arc<Segment> {
    fn first(&self) -> u64 {
        Segment::first(self)
    }

    fn until(&self) -> u64 {
        self.end()
    }

    fn lookup(&self, key: &IndexKey<'_>) -> Result<Option<Vec<u32>>, IndexError> {
        match Segment::lookup(self, key) {
            // Without a list, everything is looked at.
            Err(IndexError::Damaged { .. }) => Ok(None),
            places => places.map(Some),
        }
    }

    fn times(&self) -> Option<(u64, u64)> {
        Segment::times(self)
    }

    fn run_times(&self) -> Result<Vec<(u64, u64)>, IndexError> {
        match &*self.index() {
            SegmentIndex::Growing(builder) => Ok(builder.run_times().to_vec()),
            SegmentIndex::File(file) => match file.run_times() {
                Err(IndexError::Damaged { .. }) => Ok(Vec::new()),
                times => times,
            },
        }
    }

    fn is_removed(&self) -> bool {
        Segment::is_removed(self)
    }
}

/// The work of one page.
struct Search<'a, E> {
    evidence: &'a E,
    query: &'a Query,
    /// The narrowest first.
    keys: Vec<IndexKey<'a>>,
    found: Vec<LedgerRecord>,
    /// How large the entries are that were found.
    found_bytes: usize,
    looked_at: usize,
    /// Everything from here on has been looked at.
    before: u64,
}

// === impl Search ===

impl<E: Evidence> Search<'_, E> {
    const ENOUGH: bool = true;
    const MORE: bool = false;

    /// Looks through one segment; says whether the page ends here.
    fn segment(&mut self, segment: &E::Segment) -> Result<bool, E::Error> {
        if self.is_late() {
            return Ok(Self::ENOUGH);
        }
        let filter = &self.query.filter;
        let times = segment.times();
        if times.is_some_and(|times| !filter.overlaps(times)) {
            return Ok(Self::MORE);
        }
        let places = self.places(segment)?;
        // Only where the index can not say that the whole segment is about the time that is asked for.
        let run_times = match times {
            Some(times) if !filter.encloses(times) => segment.run_times()?,
            _ => Vec::new(),
        };
        let timely = |run: u32| run_times.get(run as usize).is_none_or(|times| filter.overlaps(*times));
        let first = segment.first();
        let until = self.before.min(segment.until());
        match places {
            Some(mut places) => {
                places.retain(|place| first + u64::from(*place) < until && timely(place / RUN_PLACES));
                self.look_at_places(segment, &places)
            }
            None => {
                let run_places = u64::from(RUN_PLACES);
                let mut until = until;
                while until > first {
                    let run = (until - 1 - first) / run_places;
                    let from = first + run * run_places;
                    if u32::try_from(run).is_ok_and(timely) {
                        let records = self.evidence.records(from, until)?;
                        self.looked_at += records.len();
                        if self.take(records.into_iter().rev()) || self.is_spent(from) {
                            return Ok(Self::ENOUGH);
                        }
                    }
                    until = from;
                }
                Ok(Self::MORE)
            }
        }
    }

    fn look_at_places(&mut self, segment: &E::Segment, mut places: &[u32]) -> Result<bool, E::Error> {
        loop {
            let wanted = self.query.limit.saturating_sub(self.found.len());
            let Some((now, later)) = places.split_at_checked(wanted.clamp(1, PLACES_AT_A_TIME).min(places.len()))
            else {
                return Ok(Self::MORE);
            };
            let Some(last) = now.last() else {
                return Ok(Self::MORE);
            };
            let records = self.evidence.records_at(segment, now)?;
            self.looked_at += now.len();
            if self.take(records.into_iter()) || self.is_spent(segment.first() + u64::from(*last)) {
                return Ok(Self::ENOUGH);
            }
            places = later;
        }
    }

    /// The places in the segment that have to be looked at, newest first; none if that is all of them.
    fn places(&self, segment: &E::Segment) -> Result<Option<Vec<u32>>, IndexError> {
        let mut places: Option<Vec<u32>> = None;
        for key in &self.keys {
            // To open a few records costs less than to read another list.
            if places.as_ref().is_some_and(|places| places.len() <= FEW_PLACES) {
                break;
            }
            let Some(list) = segment.lookup(key)? else {
                return Ok(None);
            };
            places = Some(match places {
                None => list,
                Some(known) => intersection(&known, &list),
            });
        }
        if places.is_none()
            && let Some(issuers) = &self.query.issuers
        {
            let mut union = Vec::new();
            for issuer in issuers {
                let Some(list) = segment.lookup(&IndexKey::Issuer(issuer))? else {
                    return Ok(None);
                };
                union.extend(list);
            }
            union.sort_unstable_by(|one, other| other.cmp(one));
            union.dedup();
            places = Some(union);
        }
        Ok(places)
    }

    /// Compares records, newest first; says whether the page is full.
    fn take(&mut self, records: impl Iterator<Item = LedgerRecord>) -> bool {
        for record in records {
            self.before = record.index;
            if self.query.admits(&record) {
                if let RecordBody::Entry { entry, .. } = &record.body {
                    self.found_bytes += entry.encoded_len();
                }
                self.found.push(record);
                if self.found.len() >= self.query.limit || self.found_bytes >= MAX_FOUND_BYTES {
                    return Self::ENOUGH;
                }
            }
        }
        Self::MORE
    }

    /// Everything from this index on has been looked at: whether that is work enough for one page.
    fn is_spent(&mut self, looked_at_from: u64) -> bool {
        self.before = looked_at_from;
        self.looked_at >= MAX_LOOKED_AT || self.is_late()
    }

    /// The first look is always taken, so that every page gets further.
    fn is_late(&self) -> bool {
        self.looked_at > 0 && self.query.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

// === impl Query ===

impl Query {
    fn admits(&self, record: &LedgerRecord) -> bool {
        self.issuers.as_ref().is_none_or(|issuers| {
            issuer_of(&record.body).is_some_and(|issuer| issuers.iter().any(|known| known == issuer))
        }) && self.filter.admits(record)
    }
}

/// Whose principal it is that the record is about. Aggregates, gaps, notes and sources are about no principal.
fn issuer_of(body: &RecordBody) -> Option<&str> {
    principal_of(body).map(|principal| principal.issuer.as_str())
}

fn principal_of(body: &RecordBody) -> Option<&v1::Principal> {
    let RecordBody::Entry { entry, .. } = body else {
        return None;
    };
    match entry.entry.as_ref()? {
        Kind::Event(event) => event.principal.as_ref(),
        Kind::Chain(chain) => chain.principal.as_ref(),
        Kind::Aggregate(aggregate) => aggregate.principal.as_ref(),
        Kind::Gap(_) => None,
    }
}

// === impl RecordKind ===

impl RecordKind {
    /// The kind of a record.
    pub fn of(body: &RecordBody) -> Self {
        match body {
            RecordBody::Entry { entry, .. } => match entry.entry {
                Some(Kind::Event(_)) => Self::Decision,
                Some(Kind::Aggregate(_)) => Self::Aggregate,
                Some(Kind::Gap(_)) => Self::Gap,
                Some(Kind::Chain(_)) => Self::Chain,
                None => Self::Unknown,
            },
            RecordBody::Source(_) => Self::Source,
            RecordBody::Note(_) => Self::Note,
            RecordBody::Erased => Self::Erased,
            RecordBody::Unreadable => Self::Unreadable,
        }
    }
}

// === impl Filter ===

impl Filter {
    /// What the index can be asked for, the narrowest first.
    fn keys(&self) -> Vec<IndexKey<'_>> {
        // A record that is erased or cannot be read was indexed by what it was, and as nothing else.
        let kind = self
            .kind
            .filter(|kind| !matches!(kind, RecordKind::Decision | RecordKind::Erased | RecordKind::Unreadable));
        let decision = self.decision.map(i32::from);
        [
            self.trace_id.as_deref().map(IndexKey::Trace),
            self.chain_digest.as_deref().map(IndexKey::Chain),
            self.delegation_id.as_deref().map(IndexKey::Delegation),
            self.principal_subject.as_deref().map(IndexKey::Subject),
            self.agent.as_deref().map(IndexKey::Agent),
            kind.map(|kind| IndexKey::Kind(kind as u8)),
            self.reason.as_deref().map(IndexKey::Reason),
            self.tool.as_deref().map(IndexKey::Tool),
            self.rule.as_deref().map(IndexKey::Rule),
            decision.map(IndexKey::Decision),
            self.principal_issuer.as_deref().map(IndexKey::Issuer),
        ]
        .into_iter()
        .flatten()
        .filter(IndexKey::is_indexed)
        .collect()
    }

    fn admits(&self, record: &LedgerRecord) -> bool {
        let kind = RecordKind::of(&record.body);
        // What cannot be read may be what is asked for: it is shown as what it is, and never left out without a word.
        if kind == RecordKind::Unreadable {
            return true;
        }
        let kind_fits = match self.kind {
            Some(wanted) => kind == wanted,
            None => kind != RecordKind::Chain || self.chain_digest.is_some(),
        };
        kind_fits && self.overlaps(span(record)) && self.fields_admit(&record.body)
    }

    fn fields_admit(&self, body: &RecordBody) -> bool {
        let principal = principal_of(body);
        let issuer = principal.map(|principal| principal.issuer.as_str());
        let subject = principal.and_then(|principal| principal.subject.as_deref());
        let entry = match body {
            RecordBody::Entry { entry, .. } => entry.entry.as_ref(),
            RecordBody::Source(_) | RecordBody::Note(_) | RecordBody::Erased | RecordBody::Unreadable => None,
        };
        let event = match entry {
            Some(Kind::Event(event)) => Some(event),
            _ => None,
        };
        let counted = match entry {
            Some(Kind::Aggregate(aggregate)) => Some(aggregate),
            _ => None,
        };
        let of_event = |field: fn(&v1::Event) -> &str| event.map(field);
        let of_both = |field: fn(&v1::Event) -> &str, other: fn(&v1::Aggregate) -> &str| {
            event.map(field).or_else(|| counted.map(other))
        };
        let decision = event.map(v1::Event::decision).or_else(|| counted.map(decision_of));
        is(&self.principal_issuer, issuer)
            && is(&self.principal_subject, subject)
            && is(&self.tool, of_event(|event| &event.tool))
            && is(&self.agent, of_event(|event| &event.agent))
            && is(&self.trace_id, of_event(|event| &event.trace_id))
            && is(&self.reason, of_both(|event| &event.reason, |counted| &counted.reason))
            && is(&self.rule, of_both(|event| &event.rule, |counted| &counted.rule))
            && self.decision.is_none_or(|wanted| decision == Some(wanted))
            && self
                .delegation_id
                .as_ref()
                .is_none_or(|wanted| event.is_some_and(|event| event.delegation_ids.contains(wanted)))
            && self.chain_digest.as_ref().is_none_or(|wanted| match entry {
                Some(Kind::Chain(chain)) => chain_digest(&chain.chain).as_slice() == wanted.as_slice(),
                _ => false,
            })
    }

    /// Whether some of these instants are asked for.
    fn overlaps(&self, (earliest, latest): (u64, u64)) -> bool {
        self.from_unix_nano.is_none_or(|from| latest >= from)
            && self.until_unix_nano.is_none_or(|until| earliest < until)
    }

    /// Whether all of these instants are asked for.
    fn encloses(&self, (earliest, latest): (u64, u64)) -> bool {
        self.from_unix_nano.is_none_or(|from| earliest >= from)
            && self.until_unix_nano.is_none_or(|until| latest < until)
    }
}

/// The earliest and the latest instant that the record is about: of a decision when it was made, of counts their second,
/// of a gap when it began and when it ended, of all else when it was written down.
fn span(record: &LedgerRecord) -> (u64, u64) {
    if let RecordBody::Entry { entry, .. } = &record.body {
        match &entry.entry {
            Some(Kind::Event(event)) => return (event.time_unix_nano, event.time_unix_nano),
            Some(Kind::Aggregate(aggregate)) => {
                let begin = u64::try_from(aggregate.second)
                    .unwrap_or_default()
                    .saturating_mul(SECOND);
                return (begin, begin.saturating_add(SECOND - 1));
            }
            Some(Kind::Gap(gap)) => return (gap.first_time_unix_nano, gap.last_time_unix_nano),
            Some(Kind::Chain(_)) | None => {}
        }
    }
    (record.received_unix_nano, record.received_unix_nano)
}

/// Clients of an older version count denials only, and do not say so.
fn decision_of(aggregate: &v1::Aggregate) -> v1::Decision {
    match aggregate.decision() {
        v1::Decision::Unspecified => v1::Decision::Deny,
        said => said,
    }
}

fn is(wanted: &Option<String>, found: Option<&str>) -> bool {
    wanted.is_none() || wanted.as_deref() == found
}

/// What is in both, newest first as they are.
fn intersection(one: &[u32], other: &[u32]) -> Vec<u32> {
    let mut other = other.iter().peekable();
    one.iter()
        .copied()
        .filter(|place| {
            while other.next_if(|next| **next > *place).is_some() {}
            other.next_if(|next| **next == *place).is_some()
        })
        .collect()
}

/// Records looked at for one page: about a tenth of a second of one core.
const MAX_LOOKED_AT: usize = 50_000;
/// Bytes of entries after which a page is full, however few they are: a thousand chains may have sixty times as many.
const MAX_FOUND_BYTES: usize = 1 << 20;
/// Records that are found by the index and opened in one go.
const PLACES_AT_A_TIME: usize = 64;
/// Records that are opened rather than looked for by another condition.
const FEW_PLACES: usize = 64;
/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use prost::Message as _;

    use super::*;
    use crate::index::{IndexBuilder, IndexFile, IndexSecret};
    use crate::record::{SourceChange, StoredSourceChange};
    use crate::rows::Row;
    use crate::view::EntryView;
    use crate::{Ledger, LedgerBounds, LedgerOptions, NewItem, Retention, SourceName};

    fn event(subject: &str, tool: &str, decision: v1::Decision) -> Kind {
        let principal = v1::Principal {
            issuer: "https://id".to_owned(),
            subject: Some(subject.to_owned()),
        };
        Kind::Event(v1::Event {
            principal: Some(principal),
            tool: tool.to_owned(),
            decision: decision.into(),
            delegation_ids: vec![format!("root-{subject}"), "leaf".to_owned()],
            ..Default::default()
        })
    }

    /// Index 0 is a source's start, 1 to 3 events, 4 an aggregate, 5 a gap.
    fn ledger() -> (tempfile::TempDir, LedgerReader) {
        let folder = tempfile::tempdir().unwrap();
        let options = LedgerOptions {
            origin: "log.example".to_owned(),
            bounds: LedgerBounds {
                total: 1 << 30,
                segment: 1 << 30,
                keys: 100,
            },
            retention: Retention::default(),
            published: None,
        };
        let (mut ledger, _) = Ledger::open(folder.path(), options).unwrap();
        let source = SourceName([7; 16]);
        let started = StoredSourceChange {
            change: SourceChange::Started.into(),
            ..Default::default()
        };
        let kinds = [
            event("alice", "pay", v1::Decision::Allow),
            event("bob", "pay", v1::Decision::Deny),
            event("alice", "read", v1::Decision::Allow),
            Kind::Aggregate(v1::Aggregate {
                count: 9,
                ..Default::default()
            }),
            Kind::Gap(v1::Gap {
                shed: 1,
                ..Default::default()
            }),
        ];
        let entries = kinds.map(|kind| v1::Entry { entry: Some(kind) }).to_vec();
        let batch = v1::Batch {
            first_sequence: 1,
            entries,
        };
        let entries = NewItem::Entries {
            source,
            batch: batch.encode_to_vec().into(),
            skip: 0,
            first_sequence: 1,
        };
        let change = NewItem::Change {
            source,
            change: started,
        };
        ledger.append(&[change]).unwrap();
        ledger.append(&[entries]).unwrap();
        (folder, ledger.reader())
    }

    fn found(filter: Filter) -> Vec<u64> {
        let (_folder, reader) = ledger();
        let page = read(
            &reader,
            &Query {
                limit: 100,
                filter,
                ..Query::default()
            },
        )
        .unwrap();
        assert_eq!(page.next, None);
        page.records.iter().map(|record| record.index).collect()
    }

    #[test]
    fn without_a_filter_everything_is_found_newest_first() {
        assert_eq!(found(Filter::default()), [5, 4, 3, 2, 1, 0]);
    }

    #[test]
    fn every_condition_has_to_hold() {
        let text = |text: &str| Some(text.to_owned());
        let cases = [
            (
                Filter {
                    principal_subject: text("alice"),
                    ..Filter::default()
                },
                vec![3, 1],
            ),
            (
                Filter {
                    principal_issuer: text("https://id"),
                    tool: text("pay"),
                    ..Filter::default()
                },
                vec![2, 1],
            ),
            (
                Filter {
                    delegation_id: text("root-bob"),
                    ..Filter::default()
                },
                vec![2],
            ),
            (
                Filter {
                    decision: Some(v1::Decision::Allow),
                    ..Filter::default()
                },
                vec![3, 1],
            ),
            (
                Filter {
                    decision: Some(v1::Decision::Deny),
                    ..Filter::default()
                },
                vec![4, 2],
            ),
            (
                Filter {
                    decision: Some(v1::Decision::Deny),
                    tool: text("read"),
                    ..Filter::default()
                },
                vec![],
            ),
        ];
        for (filter, expected) in cases {
            assert_eq!(found(filter.clone()), expected, "{filter:?}");
        }
    }

    #[test]
    fn pages_follow_one_another_without_overlap_or_gap() {
        let (_folder, reader) = ledger();
        let mut indexes = Vec::new();
        let mut before = None;
        loop {
            let page = read(
                &reader,
                &Query {
                    before,
                    limit: 4,
                    ..Query::default()
                },
            )
            .unwrap();
            indexes.push(page.records.iter().map(|record| record.index).collect::<Vec<_>>());
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(indexes, [vec![5, 4, 3, 2], vec![1, 0]]);
    }

    #[derive(Clone)]
    struct TestSegment {
        first: u64,
        until: u64,
        index: TestIndex,
    }

    #[derive(Clone)]
    enum TestIndex {
        Growing(Arc<IndexBuilder>),
        Full(Arc<IndexFile>),
        Missing,
    }

    impl Searchable for TestSegment {
        fn first(&self) -> u64 {
            self.first
        }

        fn until(&self) -> u64 {
            self.until
        }

        fn lookup(&self, key: &IndexKey<'_>) -> Result<Option<Vec<u32>>, IndexError> {
            match &self.index {
                TestIndex::Growing(builder) => Ok(Some(builder.lookup(key))),
                TestIndex::Full(file) => file.lookup(key).map(Some),
                TestIndex::Missing => Ok(None),
            }
        }

        fn times(&self) -> Option<(u64, u64)> {
            match &self.index {
                TestIndex::Growing(builder) => builder.times(),
                TestIndex::Full(file) => file.times(),
                TestIndex::Missing => None,
            }
        }

        fn run_times(&self) -> Result<Vec<(u64, u64)>, IndexError> {
            match &self.index {
                TestIndex::Growing(builder) => Ok(builder.run_times().to_vec()),
                TestIndex::Full(file) => file.run_times(),
                TestIndex::Missing => Ok(Vec::new()),
            }
        }
    }

    /// Segments in memory, some of whose indexes are files.
    struct Indexed {
        records: Vec<LedgerRecord>,
        segments: Vec<TestSegment>,
        opened: Cell<usize>,
    }

    impl Evidence for Indexed {
        type Segment = TestSegment;
        type Error = IndexError;

        fn segments(&self) -> Vec<TestSegment> {
            self.segments.clone()
        }

        fn records(&self, from: u64, until: u64) -> Result<Vec<LedgerRecord>, IndexError> {
            self.opened.set(self.opened.get() + (until - from) as usize);
            Ok(self.records[from as usize..until as usize].to_vec())
        }

        fn records_at(&self, segment: &TestSegment, places: &[u32]) -> Result<Vec<LedgerRecord>, IndexError> {
            self.opened.set(self.opened.get() + places.len());
            let index = |place: &u32| segment.first as usize + *place as usize;
            Ok(places.iter().map(|place| self.records[index(place)].clone()).collect())
        }
    }

    const SEGMENT: usize = 1_000;

    /// 3,500 records, a second apart.
    fn indexed(folder: &std::path::Path) -> Indexed {
        let records: Vec<LedgerRecord> = (0..3_500_u64).map(record).collect();
        let secret = IndexSecret([3; 32]);
        let mut segments = Vec::new();
        for (number, records) in records.chunks(SEGMENT).enumerate() {
            let first = records[0].index;
            let mut builder = IndexBuilder::new(&secret, first);
            for record in records {
                let RecordBody::Entry { entry, .. } = &record.body else {
                    panic!("{record:?} is no entry")
                };
                let encoded = entry.encode_to_vec();
                let row = Row::Entry(EntryView::parse(&encoded).unwrap());
                row.add(&mut builder, 0, record.received_unix_nano).unwrap();
            }
            let index = match number {
                0 => TestIndex::Full(builder.finish(&folder.join("0")).unwrap().into()),
                1 => TestIndex::Missing,
                2 => TestIndex::Full(builder.finish(&folder.join("2")).unwrap().into()),
                _ => TestIndex::Growing(Arc::new(builder)),
            };
            let until = first + records.len() as u64;
            segments.insert(0, TestSegment { first, until, index });
        }
        Indexed {
            records,
            segments,
            opened: Cell::new(0),
        }
    }

    fn record(index: u64) -> LedgerRecord {
        let time_unix_nano = index * SECOND;
        let principal = v1::Principal {
            issuer: format!("https://id{}", index % 2),
            subject: Some(format!("user-{}", index % 37)),
        };
        let kind = match index % 50 {
            7 => Kind::Aggregate(v1::Aggregate {
                second: index as i64,
                reason: "invalid".to_owned(),
                rule: "all".to_owned(),
                count: 2,
                ..Default::default()
            }),
            8 => Kind::Gap(v1::Gap {
                shed: 1,
                first_time_unix_nano: time_unix_nano - 3 * SECOND,
                last_time_unix_nano: time_unix_nano,
                ..Default::default()
            }),
            9 => Kind::Chain(v1::PresentedChain {
                chain: format!("root~{index}").into_bytes(),
                principal: Some(principal),
            }),
            _ => Kind::Event(v1::Event {
                time_unix_nano,
                principal: Some(principal),
                agent: format!("agent-{}", index % 11),
                tool: format!("tool-{}", index % 5),
                reason: if index.is_multiple_of(10) { "denied" } else { "ok" }.to_owned(),
                decision: if index.is_multiple_of(10) {
                    v1::Decision::Deny.into()
                } else {
                    v1::Decision::Allow.into()
                },
                rule: "all".to_owned(),
                trace_id: format!("{index:032x}"),
                delegation_ids: vec![format!("root-{}", index % 37), format!("leaf-{}", index % 400)],
                ..Default::default()
            }),
        };
        LedgerRecord {
            index,
            received_unix_nano: time_unix_nano + SECOND / 2,
            source: "s".to_owned(),
            body: RecordBody::Entry {
                sequence: index + 1,
                entry: v1::Entry { entry: Some(kind) },
                known_chain: Vec::new(),
            },
        }
    }

    fn questions() -> Vec<Filter> {
        let text = |text: &str| Some(text.to_owned());
        let any = Filter::default;
        vec![
            any(),
            Filter {
                principal_subject: text("user-5"),
                ..any()
            },
            Filter {
                principal_subject: text("user-5"),
                principal_issuer: text("https://id1"),
                ..any()
            },
            Filter {
                principal_issuer: text("https://id1"),
                ..any()
            },
            Filter {
                principal_subject: text("nobody"),
                ..any()
            },
            Filter {
                agent: text("agent-3"),
                tool: text("tool-2"),
                ..any()
            },
            Filter {
                delegation_id: text("leaf-17"),
                ..any()
            },
            Filter {
                decision: Some(v1::Decision::Deny),
                ..any()
            },
            Filter {
                decision: Some(v1::Decision::Allow),
                tool: text("tool-1"),
                ..any()
            },
            Filter {
                reason: text("invalid"),
                ..any()
            },
            Filter {
                reason: text("invalid"),
                decision: Some(v1::Decision::Deny),
                rule: text("all"),
                ..any()
            },
            Filter {
                trace_id: text("00000000000000000000000000000abc"),
                ..any()
            },
            Filter {
                trace_id: text(""),
                ..any()
            },
            Filter {
                kind: Some(RecordKind::Gap),
                ..any()
            },
            Filter {
                kind: Some(RecordKind::Chain),
                principal_subject: text("user-9"),
                ..any()
            },
            Filter {
                kind: Some(RecordKind::Decision),
                ..any()
            },
            Filter {
                from_unix_nano: Some(1_900 * SECOND),
                until_unix_nano: Some(2_100 * SECOND),
                ..any()
            },
            Filter {
                principal_subject: text("user-5"),
                from_unix_nano: Some(3_000 * SECOND),
                ..any()
            },
            Filter {
                kind: Some(RecordKind::Gap),
                from_unix_nano: Some(2_006 * SECOND),
                until_unix_nano: Some(2_007 * SECOND),
                ..any()
            },
        ]
    }

    #[test]
    fn the_index_changes_what_is_opened_and_never_what_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let evidence = indexed(folder.path());
        for issuers in [None, Some(vec!["https://id0".to_owned()])] {
            for filter in questions() {
                let query = Query {
                    limit: 7,
                    filter,
                    issuers: issuers.clone(),
                    ..Query::default()
                };
                let expected: Vec<u64> = evidence
                    .records
                    .iter()
                    .rev()
                    .filter(|record| query.admits(record))
                    .map(|record| record.index)
                    .collect();
                let mut found = Vec::new();
                let mut before = None;
                loop {
                    let page = read(
                        &evidence,
                        &Query {
                            before,
                            ..query.clone()
                        },
                    )
                    .unwrap();
                    found.extend(page.records.iter().map(|record| record.index));
                    before = page.next;
                    if before.is_none() {
                        break;
                    }
                }
                assert_eq!(found, expected, "{query:?}");
            }
        }
    }

    #[test]
    fn a_narrow_question_opens_little_more_than_it_finds() {
        let folder = tempfile::tempdir().unwrap();
        let mut evidence = indexed(folder.path());
        evidence
            .segments
            .retain(|segment| !matches!(segment.index, TestIndex::Missing));
        let filter = Filter {
            principal_subject: Some("user-5".to_owned()),
            from_unix_nano: Some(2_500 * SECOND),
            ..Filter::default()
        };
        let page = read(
            &evidence,
            &Query {
                limit: 100,
                filter,
                ..Query::default()
            },
        )
        .unwrap();
        assert_eq!((page.records.len(), page.next), (25, None));
        assert!(evidence.opened.get() < 40, "{}", evidence.opened.get());
    }

    #[test]
    fn a_page_whose_time_is_up_says_where_to_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let evidence = indexed(folder.path());
        let filter = Filter {
            trace_id: Some("none".to_owned()),
            ..Filter::default()
        };
        let deadline = Some(Instant::now());
        let (mut before, mut pages) = (None, 0);
        loop {
            let page = read(
                &evidence,
                &Query {
                    before,
                    limit: 1,
                    filter: filter.clone(),
                    deadline,
                    ..Query::default()
                },
            );
            pages += 1;
            let next = page.unwrap().next;
            assert!(next.is_none_or(|next| before.is_none_or(|before| next < before)));
            before = next;
            if before.is_none() {
                break;
            }
        }
        assert!(pages > 3, "{pages}");
    }

    #[test]
    fn a_page_of_large_records_ends_early_and_the_next_one_goes_on() {
        let chain = |index: u64| LedgerRecord {
            index,
            received_unix_nano: SECOND,
            source: "s".to_owned(),
            body: RecordBody::Entry {
                sequence: index + 1,
                entry: v1::Entry {
                    entry: Some(Kind::Chain(v1::PresentedChain {
                        chain: vec![b'a'; 60_000],
                        principal: None,
                    })),
                },
                known_chain: Vec::new(),
            },
        };
        let evidence = Indexed {
            records: (0..100).map(chain).collect(),
            segments: vec![TestSegment {
                first: 0,
                until: 100,
                index: TestIndex::Missing,
            }],
            opened: Cell::new(0),
        };
        let mut found = Vec::new();
        let mut before = None;
        loop {
            let filter = Filter {
                kind: Some(RecordKind::Chain),
                ..Filter::default()
            };
            let query = Query {
                before,
                limit: 1_000,
                filter,
                ..Query::default()
            };
            let page = read(&evidence, &query).unwrap();
            assert!(
                page.records.len() * 60_000 < 2 * MAX_FOUND_BYTES,
                "{}",
                page.records.len()
            );
            found.extend(page.records.iter().map(|record| record.index));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(found, (0..100).rev().collect::<Vec<u64>>());
    }

    #[test]
    fn a_chain_is_found_by_its_digest() {
        let folder = tempfile::tempdir().unwrap();
        let evidence = indexed(folder.path());
        for chain in [9, 1_009, 2_009, 3_009] {
            let filter = Filter {
                chain_digest: Some(chain_digest(format!("root~{chain}").as_bytes()).to_vec()),
                ..Filter::default()
            };
            let page = read(
                &evidence,
                &Query {
                    limit: 10,
                    filter,
                    ..Query::default()
                },
            )
            .unwrap();
            assert_eq!(
                page.records.iter().map(|record| record.index).collect::<Vec<_>>(),
                [chain]
            );
        }
    }
}
