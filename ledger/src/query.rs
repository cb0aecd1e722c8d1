//! Queries of the ledger, newest records first.
//!
//! A query goes through the segments one by one. It opens the records that the index finds for the narrowest
//! conditions, and compares all conditions. A query without an indexed condition reads backwards. Each page is limited
//! in work: at the limit it ends early, and tells where the next one begins.

use std::sync::Arc;
use std::time::Instant;

use credence_wire::v1;

use crate::disk_error::DiskError;
use crate::index::{IndexKey, RUN_PLACES};
use crate::index_rows::Row;
use crate::reader::{LedgerReader, ReadError};
use crate::record::{LedgerRecord, RecordBody, RecordKind};
use crate::segment::Segment;

/// A query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// Only records before this index; all if absent.
    pub before: Option<u64>,
    /// The largest number of returned records.
    pub limit: usize,
    /// The conditions. All must hold.
    pub filter: Filter,
    /// If present, only records known to be about principals of these issuers; no records without a principal.
    pub issuers: Option<Vec<String>>,
    /// When to stop and return the position reached.
    pub deadline: Option<Instant>,
}

/// Conditions on records. A condition on a field excludes all records of kinds without that field.
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
    /// The decision.
    pub decision: Option<v1::Decision>,
    /// The proven agent's thumbprint.
    pub agent: Option<String>,
    /// The reason code.
    pub reason: Option<String>,
    /// The configured rule.
    pub rule: Option<String>,
    /// The W3C trace id.
    pub trace_id: Option<String>,
    /// The digest of a chain. Finds the record that holds it.
    pub chain_digest: Option<[u8; 32]>,
    /// The record's kind. Chains are found only by their kind or their digest.
    pub kind: Option<RecordKind>,
    /// Records about this instant or later ones, in nanoseconds since the Unix epoch.
    pub from_unix_nano: Option<u64>,
    /// Records about instants before this one.
    pub until_unix_nano: Option<u64>,
}

/// A page of results.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The found records.
    pub records: Vec<LedgerRecord>,
    /// The `before` of the next page; absent if the ledger's beginning was reached.
    pub next: Option<u64>,
}

/// Reads a page. Blocks on the disk.
pub fn read(reader: &LedgerReader, query: &Query) -> Result<Page, ReadError> {
    let mut search = Search::new(reader, query);
    let is_cut_short = search.run(reader.segments())?;
    let next = (is_cut_short && search.before > 0).then_some(search.before);
    Ok(Page {
        records: search.found,
        next,
    })
}

/// The work of one page.
struct Search<'a> {
    reader: &'a LedgerReader,
    query: &'a Query,
    /// The narrowest key first.
    keys: Vec<IndexKey<'a>>,
    found: Vec<LedgerRecord>,
    /// The size of the found entries.
    found_bytes: usize,
    looked_at: usize,
    /// Every record from this index on has been checked.
    before: u64,
}

// === impl Search ===

impl Search<'_> {
    const ENOUGH: bool = true;
    const MORE: bool = false;

    fn new<'a>(reader: &'a LedgerReader, query: &'a Query) -> Search<'a> {
        Search {
            reader,
            query,
            keys: query.filter.keys(),
            found: Vec::new(),
            found_bytes: 0,
            looked_at: 0,
            before: query.before.unwrap_or(u64::MAX),
        }
    }

    /// Searches segments, newest first. Returns whether the page ends before the ledger's beginning.
    fn run(&mut self, segments: Vec<Arc<Segment>>) -> Result<bool, ReadError> {
        for segment in segments {
            if segment.first() >= self.before || segment.first() >= segment.end() {
                continue;
            }
            let ended = match self.segment(&segment) {
                Ok(ended) => ended,
                // Everything older was removed too: the ledger now begins here.
                Err(_) if segment.is_removed() => break,
                Err(error) => return Err(error),
            };
            self.looked_at += 1;
            if ended == Self::ENOUGH {
                return Ok(true);
            }
            self.before = segment.first();
        }
        Ok(false)
    }

    /// Searches one segment. Returns whether the page ends here.
    fn segment(&mut self, segment: &Segment) -> Result<bool, ReadError> {
        if self.is_late() {
            return Ok(Self::ENOUGH);
        }
        let filter = &self.query.filter;
        let times = segment.index().times();
        if times.is_some_and(|times| !filter.overlaps(times)) {
            return Ok(Self::MORE);
        }
        let places = if_whole(self.places(segment))?;
        // Needed only if the segment's times are partly outside the wanted ones.
        let run_times = match times {
            Some(times) if !filter.encloses(times) => if_whole(segment.index().run_times())?.unwrap_or_default(),
            _ => Vec::new(),
        };
        let timely = |run: u32| run_times.get(run as usize).is_none_or(|times| filter.overlaps(*times));
        let first = segment.first();
        let until = self.before.min(segment.end());
        match places.flatten() {
            Some(mut places) => {
                places.retain(|place| first + u64::from(*place) < until && timely(place / RUN_PLACES));
                self.look_at_places(segment, &places)
            }
            None => self.look_at_runs(first, until, timely),
        }
    }

    /// Reads backwards.
    fn look_at_runs(&mut self, first: u64, mut until: u64, timely: impl Fn(u32) -> bool) -> Result<bool, ReadError> {
        let run_places = u64::from(RUN_PLACES);
        while until > first {
            let run = (until - 1 - first) / run_places;
            let from = first + run * run_places;
            if u32::try_from(run).is_ok_and(&timely) {
                let records = self.reader.held_records(from..until)?;
                self.looked_at += records.len();
                if self.take(records.into_iter().rev()) || self.is_spent(from) {
                    return Ok(Self::ENOUGH);
                }
            }
            until = from;
        }
        Ok(Self::MORE)
    }

    fn look_at_places(&mut self, segment: &Segment, mut places: &[u32]) -> Result<bool, ReadError> {
        loop {
            let wanted = self.query.limit.saturating_sub(self.found.len());
            let (now, later) = places.split_at(wanted.clamp(1, PLACES_AT_A_TIME).min(places.len()));
            let Some(last) = now.last() else {
                return Ok(Self::MORE);
            };
            let records = match self.reader.records_at(segment, now) {
                Err(_) if segment.first() < self.reader.first() => Vec::new(),
                records => records?,
            };
            self.looked_at += now.len();
            if self.take(records.into_iter()) || self.is_spent(segment.first() + u64::from(*last)) {
                return Ok(Self::ENOUGH);
            }
            places = later;
        }
    }

    /// The places to check in the segment, newest first; none if all places must be checked.
    fn places(&self, segment: &Segment) -> Result<Option<Vec<u32>>, DiskError> {
        let mut places: Option<Vec<u32>> = None;
        for key in &self.keys {
            // Opening a few records costs less than reading another list.
            if places.as_ref().is_some_and(|places| places.len() <= FEW_PLACES) {
                break;
            }
            let list = segment.lookup(key)?;
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
                union.extend(segment.lookup(&IndexKey::Issuer(issuer))?);
            }
            union.sort_unstable_by(|one, other| other.cmp(one));
            union.dedup();
            places = Some(union);
        }
        Ok(places)
    }

    /// Compares records, newest first. Returns whether the page is full.
    fn take(&mut self, records: impl Iterator<Item = LedgerRecord>) -> bool {
        for record in records {
            self.before = record.index;
            if self.query.admits(&record) {
                if let RecordBody::Entry(stored) = &record.body {
                    self.found_bytes += stored.entry.len();
                }
                self.found.push(record);
                if self.found.len() >= self.query.limit || self.found_bytes >= MAX_FOUND_BYTES {
                    return Self::ENOUGH;
                }
            }
        }
        Self::MORE
    }

    /// Notes that every record from this index on has been checked. Returns whether this is enough work for one page.
    fn is_spent(&mut self, looked_at_from: u64) -> bool {
        self.before = looked_at_from;
        self.looked_at >= MAX_LOOKED_AT || self.is_late()
    }

    /// The first check always runs, so that every page makes progress.
    fn is_late(&self) -> bool {
        self.looked_at > 0 && self.query.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

// === impl Query ===

impl Query {
    /// Whether a record matches the conditions, regardless of its index and of the limit.
    pub fn admits(&self, record: &LedgerRecord) -> bool {
        let kind = RecordKind::of(&record.body);
        let row = Row::of(&record.body);
        // An unreadable record may match: it is shown as unreadable instead of being left out silently.
        let is_unreadable = kind == RecordKind::Unreadable;
        let about = row.span(record.received_unix_nano);
        if !is_unreadable && (!self.filter.admits(kind) || !self.filter.overlaps(about)) {
            return false;
        }
        let keys = row.keys();
        let is_of = |issuer: &String| keys.contains(&IndexKey::Issuer(issuer));
        self.issuers.as_ref().is_none_or(|issuers| issuers.iter().any(is_of))
            && (is_unreadable || self.filter.conditions().all(|condition| keys.contains(&condition)))
    }
}

/// If a part of the index is damaged, everything is checked.
fn if_whole<T>(read: Result<T, DiskError>) -> Result<Option<T>, DiskError> {
    match read {
        Err(DiskError::Damaged { .. }) => Ok(None),
        read => read.map(Some),
    }
}

// === impl Filter ===

impl Filter {
    /// The indexed conditions, the narrowest first.
    fn keys(&self) -> Vec<IndexKey<'_>> {
        self.conditions().filter(IndexKey::is_indexed).collect()
    }

    fn conditions(&self) -> impl Iterator<Item = IndexKey<'_>> {
        // A record that is erased or unreadable was indexed by its former contents only.
        use RecordKind::{Decision, Erased, Unknown, Unreadable};
        let kind = self
            .kind
            .filter(|kind| !matches!(kind, Decision | Erased | Unknown | Unreadable));
        let decision = self.decision.map(i32::from);
        [
            self.trace_id.as_deref().map(IndexKey::Trace),
            self.chain_digest.map(IndexKey::Chain),
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
    }

    fn admits(&self, kind: RecordKind) -> bool {
        match self.kind {
            Some(wanted) => kind == wanted,
            None => kind != RecordKind::Chain || self.chain_digest.is_some(),
        }
    }

    /// Whether some of these instants are wanted.
    fn overlaps(&self, (earliest, latest): (u64, u64)) -> bool {
        self.from_unix_nano.is_none_or(|from| latest >= from)
            && self.until_unix_nano.is_none_or(|until| earliest < until)
    }

    /// Whether all of these instants are wanted.
    fn encloses(&self, (earliest, latest): (u64, u64)) -> bool {
        self.from_unix_nano.is_none_or(|from| earliest >= from)
            && self.until_unix_nano.is_none_or(|until| latest < until)
    }
}

/// The elements of both, newest first like the inputs.
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

/// Records checked for one page: about a tenth of a second of one core.
const MAX_LOOKED_AT: usize = 50_000;
/// Bytes of entries at which a page is full, even with few records: a thousand chains may have sixty times as many.
const MAX_FOUND_BYTES: usize = 1 << 20;
/// Records found by the index that are opened at once.
const PLACES_AT_A_TIME: usize = 64;
/// With this many places left, the records are opened instead of checking another condition.
const FEW_PLACES: usize = 64;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use credence_delegation::chain_digest;
    use credence_wire::v1::entry::Entry as Kind;
    use prost::Message as _;

    use super::*;
    use crate::record::{SourceChange, StoredSourceChange};
    use crate::{Ledger, LedgerBounds, LedgerOptions, NewItem, Retention, SourceName};

    const SOURCE: SourceName = SourceName([0xab; 16]);
    /// Nanoseconds.
    const SECOND: u64 = 1_000_000_000;

    fn open(folder: &Path, segment: u64) -> Ledger {
        let options = LedgerOptions {
            origin: "log.example".to_owned(),
            bounds: LedgerBounds {
                total: 1 << 30,
                segment,
                keys: 100,
            },
            retention: Retention::default(),
            published: None,
        };
        Ledger::open(folder, options).unwrap().0
    }

    fn entries(kinds: impl IntoIterator<Item = Kind>) -> NewItem {
        let batch = v1::Batch {
            first_sequence: 1,
            entries: kinds.into_iter().map(|kind| v1::Entry { entry: Some(kind) }).collect(),
        };
        NewItem::Entries {
            source: SOURCE,
            batch: batch.encode_to_vec().into(),
            skip: 0,
            first_sequence: 1,
        }
    }

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

    /// Index 0 is a source's start, 1 to 3 are events, 4 is an aggregate, 5 a gap.
    fn ledger() -> (tempfile::TempDir, LedgerReader) {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = open(folder.path(), 1 << 30);
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
                decision: v1::Decision::Deny.into(),
                ..Default::default()
            }),
            Kind::Gap(v1::Gap {
                shed: 1,
                ..Default::default()
            }),
        ];
        let change = NewItem::Change {
            source: SOURCE,
            change: started,
        };
        ledger.append(&[change]).unwrap();
        ledger.append(&[entries(kinds)]).unwrap();
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
        let query = Query {
            limit: 4,
            ..Query::default()
        };
        let pages = all_pages(&reader, &query);
        let of_pages: Vec<_> = pages.chunks(1).map(indexes).collect();
        assert_eq!(of_pages, [vec![5, 4, 3, 2], vec![1, 0]]);
    }

    /// 3,500 records, about a second apart, in several segments. If `damaged`, a part of the second segment's index is
    /// unreadable.
    fn indexed(folder: &Path, damaged: bool) -> LedgerReader {
        let mut ledger = open(folder, 100_000);
        for first in (0..3_500).step_by(100) {
            ledger.append(&[entries((first..first + 100).map(kind))]).unwrap();
        }
        let segments = ledger.reader().segments();
        assert!(segments.len() > 3, "{}", segments.len());
        let second = segments[segments.len() - 2].first();
        // Every index is written by then.
        drop(ledger);
        if damaged {
            let index = folder.join(format!("index/{second:020}"));
            let mut bytes = std::fs::read(&index).unwrap();
            bytes[128..].fill(0);
            std::fs::write(index, bytes).unwrap();
        }
        open(folder, 100_000).reader()
    }

    fn kind(index: u64) -> Kind {
        let time_unix_nano = index * SECOND;
        let principal = v1::Principal {
            issuer: format!("https://id{}", index % 2),
            subject: Some(format!("user-{}", index % 37)),
        };
        match index % 50 {
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
                principal_subject: text("unknown"),
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

    /// The records of this query's pages, in order.
    fn all_pages(reader: &LedgerReader, query: &Query) -> Vec<Page> {
        let mut pages: Vec<Page> = Vec::new();
        let mut before = None;
        loop {
            let query = Query {
                before,
                ..query.clone()
            };
            let page = read(reader, &query).unwrap();
            assert!(page.next.is_none_or(|next| before.is_none_or(|before| next < before)));
            before = page.next;
            pages.push(page);
            if before.is_none() {
                return pages;
            }
        }
    }

    fn indexes(pages: &[Page]) -> Vec<u64> {
        let records = pages.iter().flat_map(|page| &page.records);
        records.map(|record| record.index).collect()
    }

    #[test]
    fn the_index_changes_what_is_opened_and_never_what_is_found() {
        for damaged in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let reader = indexed(folder.path(), damaged);
            let records = reader.records(0..reader.size()).unwrap();
            for issuers in [None, Some(vec!["https://id0".to_owned()])] {
                for filter in questions() {
                    let query = Query {
                        limit: 7,
                        filter,
                        issuers: issuers.clone(),
                        ..Query::default()
                    };
                    let admitted = records.iter().rev().filter(|record| query.admits(record));
                    let expected: Vec<u64> = admitted.map(|record| record.index).collect();
                    assert_eq!(indexes(&all_pages(&reader, &query)), expected, "{query:?}");
                }
            }
        }
    }

    #[test]
    fn a_narrow_question_opens_little_more_than_it_finds() {
        let folder = tempfile::tempdir().unwrap();
        let reader = indexed(folder.path(), false);
        let query = Query {
            limit: 100,
            filter: Filter {
                principal_subject: Some("user-5".to_owned()),
                until_unix_nano: Some(1_000 * SECOND),
                ..Filter::default()
            },
            ..Query::default()
        };
        let mut search = Search::new(&reader, &query);
        assert!(!search.run(reader.segments()).unwrap());
        let records = reader.records(0..reader.size()).unwrap();
        assert_eq!(
            search.found.len(),
            records.iter().filter(|record| query.admits(record)).count()
        );
        assert!(search.looked_at < search.found.len() + 20, "{}", search.looked_at);
    }

    #[test]
    fn a_question_that_meets_a_removal_is_answered_with_what_is_held() {
        let folder = tempfile::tempdir().unwrap();
        drop(indexed(folder.path(), false));
        let mut ledger = open(folder.path(), 100_000);
        let reader = ledger.reader();
        let segments = reader.segments();
        let oldest = segments.last().unwrap();
        let pruned = ledger.prune(1_500, None).unwrap();
        let gone = reader.records_at(oldest, &[0]);
        assert!(matches!(gone, Err(ReadError::Pruned { index: 0, .. })), "{gone:?}");
        let of_issuer = Filter {
            principal_issuer: Some("https://id0".to_owned()),
            ..Filter::default()
        };
        let since = Filter {
            from_unix_nano: Some(1),
            ..of_issuer.clone()
        };
        for filter in [Filter::default(), of_issuer, since] {
            let query = Query {
                limit: 10_000,
                filter,
                ..Query::default()
            };
            let mut search = Search::new(&reader, &query);
            assert!(!search.run(segments.clone()).unwrap());
            assert_eq!(search.found.last().unwrap().index, pruned.first, "{query:?}");
        }
    }

    #[test]
    fn a_page_whose_time_is_up_says_where_to_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let reader = indexed(folder.path(), true);
        let filter = Filter {
            trace_id: Some("none".to_owned()),
            ..Filter::default()
        };
        let query = Query {
            limit: 1,
            filter,
            deadline: Some(Instant::now()),
            ..Query::default()
        };
        let pages = all_pages(&reader, &query);
        assert!(pages.len() > 3, "{}", pages.len());
    }

    #[test]
    fn a_page_of_large_records_ends_early_and_the_next_one_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = open(folder.path(), 1 << 30);
        let chain = |index: u64| {
            Kind::Chain(v1::PresentedChain {
                chain: format!("{index:060000}").into_bytes(),
                principal: None,
            })
        };
        ledger.append(&[entries((0..100).map(chain))]).unwrap();
        let filter = Filter {
            kind: Some(RecordKind::Chain),
            ..Filter::default()
        };
        let query = Query {
            limit: 1_000,
            filter,
            ..Query::default()
        };
        let pages = all_pages(&ledger.reader(), &query);
        for page in &pages {
            let count = page.records.len();
            assert!(count * 60_000 < 2 * MAX_FOUND_BYTES, "{count}");
        }
        assert_eq!(indexes(&pages), (0..100).rev().collect::<Vec<u64>>());
    }

    #[test]
    fn a_chain_is_found_by_its_digest() {
        let folder = tempfile::tempdir().unwrap();
        let reader = indexed(folder.path(), true);
        for chain in [9, 1_009, 2_009, 3_009] {
            let filter = Filter {
                chain_digest: Some(chain_digest(format!("root~{chain}"))),
                ..Filter::default()
            };
            let query = Query {
                limit: 10,
                filter,
                ..Query::default()
            };
            assert_eq!(indexes(&[read(&reader, &query).unwrap()]), [chain]);
        }
    }
}
