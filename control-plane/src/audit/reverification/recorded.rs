//! The ledger as it is followed: what the writer has just handed over, and the files for everything else.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use credence_delegation::chain_digest;
use credence_ledger::index::IndexKey;
use credence_ledger::leaf::{StoredBody, StoredRecord};
use credence_ledger::segment::Segment;
use credence_ledger::view::{BatchView, EntryView};
use credence_ledger::{LedgerReader, NewItem, ReadError, RecordBody};
use credence_wire::v1::entry::Entry;

use super::checker::{Chains, Seen};
use super::follower::Evidence;
use crate::audit::handover::{Appended, Handover};

/// What is durable.
#[derive(Debug)]
pub(crate) struct Recorded {
    reader: LedgerReader,
    handover: Arc<Handover>,
    /// How long reading the files has taken since it was last asked for.
    reading: Cell<Duration>,
}

// === impl Recorded ===

impl Recorded {
    pub(crate) fn new(reader: LedgerReader, handover: Arc<Handover>) -> Self {
        Self {
            reader,
            handover,
            reading: Cell::default(),
        }
    }

    /// How long reading the files has taken since the last time: nothing while all is handed over.
    pub(crate) fn take_reading(&self) -> Duration {
        self.reading.take()
    }

    fn read_files(&self, from: u64, until: u64, look: &mut dyn FnMut(&[Seen<'_>])) -> Result<u64, ReadError> {
        let begun = Instant::now();
        let stored = self.reader.stored(from..until)?;
        let name = |record: &StoredRecord| record.source_name().map_or_else(String::new, |name| name.to_string());
        let sources: Vec<String> = stored.iter().map(name).collect();
        let mut seen = Vec::with_capacity(stored.len());
        for (record, source) in stored.iter().zip(&sources) {
            match &record.body {
                // Of a known chain there is only the digest.
                Some(StoredBody::Entry(stored)) if stored.known_chain.is_empty() => {
                    seen.extend(EntryView::parse(&stored.entry).map(|entry| Seen::Entry { source, entry }));
                }
                Some(StoredBody::Change(change)) => seen.push(Seen::Source { source, change }),
                Some(StoredBody::Entry(_) | StoredBody::Note(_)) | None => {}
            }
        }
        look(&seen);
        self.reading.set(self.reading.get() + begun.elapsed());
        Ok(until)
    }

    fn chain_in(&self, segment: &Segment, digest: &[u8; 32]) -> Result<Option<String>, ReadError> {
        let mut places = segment
            .lookup(&IndexKey::Chain(digest))
            .map_err(|error| ReadError::Segment(error.into()))?;
        places.truncate(LOOKED_AT);
        if places.is_empty() {
            return Ok(None);
        }
        let chains = self.reader.records_at(segment, &places)?.into_iter();
        let mut chains = chains.filter_map(|record| match record.body {
            RecordBody::Entry { entry, .. } => match entry.entry {
                Some(Entry::Chain(presented)) => String::from_utf8(presented.chain).ok(),
                _ => None,
            },
            _ => None,
        });
        Ok(chains.find(|chain| chain_digest(chain) == *digest))
    }
}

impl Evidence for Recorded {
    type Error = ReadError;

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
}

impl Chains for Recorded {
    fn chain(&self, digest: &[u8; 32]) -> Option<String> {
        let begun = Instant::now();
        let segments = self.reader.segments();
        // A segment that can not be read has others' evidence too, of which the query says so.
        let found = segments
            .iter()
            .find_map(|segment| self.chain_in(segment, digest).ok().flatten());
        self.reading.set(self.reading.get() + begun.elapsed());
        found
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

/// Records that are checked together, about: so many that the chains among them make batches.
const AT_ONCE: u64 = 4096;
/// Records that the index may name wrongly before a chain counts as unknown.
const LOOKED_AT: usize = 16;
