//! The durable records: those that the writer has just handed over, and the files for all others.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use credence_ledger::entry::{BatchView, EntryKind, EntryView};
use credence_ledger::index::IndexKey;
use credence_ledger::segment::Segment;
use credence_ledger::{LedgerReader, LedgerRecord, NewItem, ReadError, RecordBody};

use super::checker::{Evidence, Seen, Unreadable};
use crate::handover::{Appended, Handover};

/// The durable records.
#[derive(Debug)]
pub(crate) struct Recorded {
    reader: LedgerReader,
    handover: Arc<Handover>,
    /// The time spent reading files since the last call of `take_reading`.
    reading: Cell<Duration>,
    /// Whether failed chain lookups were already logged.
    is_unreadable: Cell<bool>,
}

// === impl Recorded ===

impl Recorded {
    pub(crate) fn new(reader: LedgerReader, handover: Arc<Handover>) -> Self {
        Self {
            reader,
            handover,
            reading: Cell::default(),
            is_unreadable: Cell::default(),
        }
    }

    /// The time spent reading files since the last call. Zero while all records are handed over.
    pub(crate) fn take_reading(&self) -> Duration {
        self.reading.take()
    }

    fn read_files(&self, from: u64, until: u64, look: &mut dyn FnMut(&[Seen<'_>])) -> Result<u64, ReadError> {
        let begun = Instant::now();
        let stored = self.stored(from, until)?;
        let through = from + stored.len() as u64;
        let mut seen = Vec::with_capacity(stored.len());
        for LedgerRecord { source, body, .. } in &stored {
            match body {
                // A known chain has only its digest here.
                RecordBody::Entry(stored) if stored.known_chain.is_empty() => {
                    seen.extend(stored.view().map(|entry| Seen::Entry { source, entry }));
                }
                RecordBody::Source(change) => seen.push(Seen::Source { source, change }),
                RecordBody::Entry(_) | RecordBody::Note(_) | RecordBody::Erased | RecordBody::Unreadable => {}
            }
        }
        look(&seen);
        self.reading.set(self.reading.get() + begun.elapsed());
        Ok(through)
    }

    /// Records from index `from` on, of any kind, as many as fit a block. Unreadable records do not delay the others.
    fn stored(&self, from: u64, until: u64) -> Result<Vec<LedgerRecord>, ReadError> {
        let mut stored: Vec<LedgerRecord> = Vec::new();
        let mut bytes = 0;
        while bytes < BLOCK_BYTES {
            let next = from + stored.len() as u64;
            match self.reader.records(next..until.min(next + RUN)) {
                Ok(run) if run.is_empty() => break,
                Ok(run) => {
                    bytes += run.iter().map(entry_bytes).sum::<usize>();
                    stored.extend(run);
                }
                Err(_) if !stored.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(stored)
    }

    fn chain_in(&self, segment: &Segment, digest: &[u8; 32]) -> Result<Option<String>, ReadError> {
        let mut places = segment.lookup(&IndexKey::Chain(*digest))?;
        places.truncate(LOOKED_AT);
        if places.is_empty() {
            return Ok(None);
        }
        let records = self.reader.records_at(segment, &places)?;
        Ok(records.iter().find_map(|record| chain_of(record, digest)))
    }
}

impl Evidence for Recorded {
    fn size(&self) -> u64 {
        self.reader.size()
    }

    fn first(&self) -> u64 {
        self.reader.first()
    }

    fn read(&self, from: u64, look: &mut dyn FnMut(&[Seen<'_>])) -> Result<u64, ReadError> {
        let handed = self.handover.take(from, AT_ONCE);
        let Some(last) = handed.last() else {
            let next = self.handover.first().filter(|first| *first > from).unwrap_or(u64::MAX);
            return self.read_files(from, next.min(from + AT_ONCE).min(self.size()), look);
        };
        let sources: Vec<String> = items(&handed).map(source_of).collect();
        let mut seen = Vec::with_capacity((last.end - from) as usize);
        for (item, source) in items(&handed).zip(&sources) {
            match item {
                NewItem::Entries { batch, skip, .. } => {
                    let entries = BatchView::of(batch).entries().skip(*skip);
                    let entries = entries.filter_map(|encoded| EntryView::parse(encoded.ok()?).ok());
                    seen.extend(entries.map(|entry| Seen::Entry { source, entry }));
                }
                NewItem::Change { change, .. } => seen.push(Seen::Source { source, change }),
                NewItem::Note(_) | NewItem::Chain(_) => {}
            }
        }
        look(&seen);
        Ok(last.end)
    }

    fn chain(&self, digest: &[u8; 32]) -> Result<Option<String>, Unreadable> {
        let begun = Instant::now();
        let mut found = Ok(None);
        for segment in self.reader.segments() {
            match self.chain_in(&segment, digest) {
                Ok(None) => {}
                Ok(Some(chain)) => {
                    found = Ok(Some(chain));
                    break;
                }
                // Another record may have it: an unexpired chain is stored again before its segment is pruned.
                Err(error) => {
                    if !self.is_unreadable.replace(true) {
                        tracing::error!(%error, "delegations cannot be looked up to verify them again; requests \
                            allowed under them count as unchecked");
                    }
                    found = Err(Unreadable);
                }
            }
        }
        if found == Ok(None) {
            self.is_unreadable.set(false);
        }
        self.reading.set(self.reading.get() + begun.elapsed());
        found
    }
}

/// The chain in a record, if it has this digest.
fn chain_of(record: &LedgerRecord, digest: &[u8; 32]) -> Option<String> {
    let RecordBody::Entry(stored) = &record.body else {
        return None;
    };
    match stored.view()?.kind {
        EntryKind::Chain(chain) if chain.digest() == *digest => String::from_utf8(chain.chain.to_vec()).ok(),
        _ => None,
    }
}

fn entry_bytes(record: &LedgerRecord) -> usize {
    match &record.body {
        RecordBody::Entry(stored) => stored.entry.len(),
        _ => 0,
    }
}

fn items(handed: &[Appended]) -> impl Iterator<Item = &NewItem> {
    handed.iter().flat_map(|appended| &appended.items)
}

fn source_of(item: &NewItem) -> String {
    match item {
        NewItem::Entries { source, .. } | NewItem::Change { source, .. } => source.to_string(),
        NewItem::Note(_) | NewItem::Chain(_) => String::new(),
    }
}

/// About how many records are checked together: enough for large batches of chains.
const AT_ONCE: u64 = 4096;
/// Records that are read from a file together: at most 16 MiB.
const RUN: u64 = 256;
/// The size of the entries in memory at a time, besides a run's.
const BLOCK_BYTES: usize = 8 << 20;
/// The number of wrong index hits after which a chain counts as unknown.
const LOOKED_AT: usize = 16;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use credence_delegation::chain_digest;
    use credence_ledger::{Ledger, LedgerBounds, LedgerOptions, Retention, SourceName, StoredNote};
    use credence_wire::v1;
    use credence_wire::v1::entry::Entry;
    use prost::Message as _;

    use super::*;

    const SOURCE: SourceName = SourceName([7; 16]);

    /// A ledger whose writer hands over its records.
    struct Followed {
        ledger: Ledger,
        handover: Arc<Handover>,
        evidence: Recorded,
        sequence: u64,
    }

    impl Followed {
        fn new(folder: &Path, segment: u64, handover: Handover) -> Self {
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
            let (ledger, _) = Ledger::open(folder, options).unwrap();
            let handover = Arc::new(handover);
            Self {
                evidence: Recorded::new(ledger.reader(), Arc::clone(&handover)),
                ledger,
                handover,
                sequence: 0,
            }
        }

        fn append(&mut self, entries: Vec<Entry>) -> u64 {
            let batch = v1::Batch {
                first_sequence: self.sequence + 1,
                entries: entries
                    .into_iter()
                    .map(|entry| v1::Entry { entry: Some(entry) })
                    .collect(),
            };
            let first_sequence = self.sequence + 1;
            self.sequence += batch.entries.len() as u64;
            let items = vec![NewItem::Entries {
                source: SOURCE,
                batch: batch.encode_to_vec().into(),
                skip: 0,
                first_sequence,
            }];
            let first = self.evidence.size();
            self.ledger.append(&items).unwrap();
            let appended = Appended {
                first,
                end: self.evidence.size(),
                items,
            };
            let bytes = appended.items.iter().map(NewItem::bytes).sum();
            self.handover.offer(appended);
            bytes
        }

        /// The counts from this index on, as a follower reads them, and the index after the last.
        fn counts_from(&self, mut from: u64) -> (Vec<u64>, u64) {
            let mut counts = Vec::new();
            while from < self.evidence.size() {
                let read = self.evidence.read(from, &mut |records| {
                    counts.extend(records.iter().filter_map(|record| match record {
                        Seen::Entry { entry, .. } => match entry.kind {
                            EntryKind::Aggregate(aggregate) => Some(aggregate.count),
                            _ => None,
                        },
                        Seen::Source { .. } => None,
                    }));
                });
                from = read.unwrap();
            }
            (counts, from)
        }
    }

    fn count(count: u64) -> Entry {
        Entry::Aggregate(v1::Aggregate {
            count,
            ..Default::default()
        })
    }

    fn chain(text: &str) -> Entry {
        Entry::Chain(v1::PresentedChain {
            chain: text.as_bytes().to_vec(),
            principal: None,
        })
    }

    #[test]
    fn records_without_room_in_the_handover_are_read_once_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let of_a_batch = Followed::new(folder.path(), 1 << 30, Handover::default()).append(vec![count(1); 10]);
        let folder = tempfile::tempdir().unwrap();
        let mut followed = Followed::new(folder.path(), 1 << 30, Handover::within(of_a_batch));
        let mut numbers = (1..).map(count);
        for _ in 0..4 {
            followed.append(numbers.by_ref().take(10).collect());
        }
        let (counts, end) = followed.counts_from(0);
        assert_eq!(counts, (1..=40).collect::<Vec<u64>>());
        assert!(
            followed.evidence.take_reading() > Duration::ZERO,
            "three of four were read"
        );
        // Records that are not handed over, such as the note of an erasure, leave a hole too.
        let note = NewItem::Note(StoredNote::default());
        followed.ledger.append(&[note]).unwrap();
        followed.append(numbers.by_ref().take(10).collect());
        let (counts, end) = followed.counts_from(end);
        assert_eq!((counts, end), ((41..=50).collect(), 51));
    }

    #[test]
    fn only_records_that_are_not_handed_over_cost_time_on_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let mut followed = Followed::new(folder.path(), 1 << 30, Handover::default());
        followed.append(vec![count(1)]);
        let (_, end) = followed.counts_from(0);
        assert_eq!(followed.evidence.take_reading(), Duration::ZERO);
        followed.counts_from(0);
        assert!(
            followed.evidence.take_reading() > Duration::ZERO,
            "it is no longer in memory"
        );
        assert_eq!(followed.evidence.take_reading(), Duration::ZERO, "and causes one pause");
        assert_eq!(followed.evidence.chain(&[0; 32]), Ok(None));
        assert!(followed.evidence.take_reading() > Duration::ZERO, "an index lookup");
        assert_eq!(end, 1);
    }

    #[test]
    fn the_number_of_long_chains_in_memory_is_limited() {
        let folder = tempfile::tempdir().unwrap();
        let mut followed = Followed::new(folder.path(), 1 << 30, Handover::within(0));
        for tens in 0..60 {
            followed.append(
                (0..10)
                    .map(|ones| chain(&format!("{tens}.{ones}{}", "x".repeat(59_000))))
                    .collect(),
            );
        }
        let mut bytes = 0;
        let through = followed.evidence.read(0, &mut |records| {
            bytes = records
                .iter()
                .map(|record| match record {
                    Seen::Entry { entry, .. } => entry.encoded.len(),
                    Seen::Source { .. } => 0,
                })
                .sum();
        });
        assert_eq!(through.unwrap(), RUN);
        assert!(bytes <= BLOCK_BYTES + (16 << 20), "{bytes}");
    }

    #[test]
    fn a_chain_in_an_unreadable_segment_does_not_count_as_unknown() {
        let folder = tempfile::tempdir().unwrap();
        // A segment is full with its 256th record.
        let mut followed = Followed::new(folder.path(), 1, Handover::default());
        followed.append(vec![chain("in.the.first")]);
        followed.append(vec![count(1); 300]);
        followed.append(vec![chain("in.the.second")]);
        let [newer, older] = [("in.the.second"), ("in.the.first")].map(chain_digest);
        assert_eq!(followed.evidence.chain(&older), Ok(Some("in.the.first".to_owned())));
        let segment = folder.path().join("segments").join(format!("{:020}", 0));
        let aside = folder.path().join("aside");
        std::fs::rename(&segment, &aside).unwrap();
        assert_eq!(followed.evidence.chain(&older), Err(Unreadable));
        assert_eq!(followed.evidence.chain(&newer), Ok(Some("in.the.second".to_owned())));
        std::fs::rename(&aside, &segment).unwrap();
        assert_eq!(followed.evidence.chain(&older), Ok(Some("in.the.first".to_owned())));
    }
}
