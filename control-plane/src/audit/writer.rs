//! The ledger's one writer, and the handle that the streams have.
//!
//! Reports of all streams queue to a thread that takes a group of them, checks each against its source's last durable
//! sequence number, writes the group as one frame, syncs it, and only then answers. Since this thread alone knows the
//! sources, no race between two streams of one source can store an entry twice.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use credence_wire::v1;
use prost::Message as _;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::seen::{Seen, Sightings};
use crate::data_folder::random_hex;
use crate::metrics::Metrics;
use crate::supervision::{Alarm, Guard};
use credence_ledger::group::{StoredBody, StoredItem};
use credence_ledger::ledger::{Ledger, LedgerAppendError};
use credence_ledger::record::{SourceChange, StoredSourceChange};

/// The ledger as the streams see it. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct LedgerHandle {
    shared: Arc<Shared>,
    reports: mpsc::Sender<Message>,
}

/// What a stream asks of the ledger.
#[derive(Debug)]
pub(crate) enum Report {
    /// Name a new source.
    Open {
        node: String,
        plugin: String,
        peer: String,
        /// What it trusts, 32 bytes; empty if it did not say.
        anchors_digest: Vec<u8>,
    },
    /// Let a source continue, on a new stream.
    Resume { source: String, anchors_digest: Vec<u8> },
    /// Store a batch.
    Store {
        source: String,
        generation: u64,
        batch: v1::Batch,
        /// Its share of the memory for evidence, freed once the batch is on disk or refused.
        room: Option<OwnedSemaphorePermit>,
    },
    /// The source said Bye.
    Close { source: String, generation: u64 },
    /// The source did not come back.
    Lose { source: String, generation: u64 },
}

/// What is so, durably, once a report is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) source: String,
    /// Counts the source's streams; reports of an earlier one are refused.
    pub(crate) generation: u64,
    /// The source's last stored sequence number.
    pub(crate) last_sequence: u64,
}

/// Why a report was refused. Nothing of it is stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportError {
    #[error("the control plane is stopping; reconnect and resume")]
    Stopping,
    #[error("the part that writes the ledger has ended; reconnect and resume once the control plane is back")]
    Died,
    #[error("the ledger can not be written, nothing was acknowledged; send it again later. {0}")]
    Storage(Arc<LedgerAppendError>),
    #[error("no randomness to name a source: {0}")]
    Random(std::io::Error),
    #[error("this ledger has no such source any more; open a new one")]
    UnknownSource,
    #[error("a newer stream of this source has taken over")]
    Superseded,
    #[error("a batch begins with sequence number {first}, but the next one is {expected}: entries would be missing")]
    SequenceGap { first: u64, expected: u64 },
    #[error("a batch has at least one entry, and sequence numbers from 1 to 2^63")]
    Malformed,
}

/// Stops the writer when told to, or when dropped.
#[derive(Debug)]
pub(crate) struct LedgerWriter {
    handle: LedgerHandle,
    thread: Option<JoinHandle<()>>,
}

/// What the ledger knows of the sources that have not ended.
#[derive(Debug, Default)]
pub(crate) struct KnownSources {
    by_name: HashMap<String, (Known, Age)>,
    /// The same sources, those first that can be forgotten first: lost ones, then the oldest.
    by_age: BTreeMap<Age, String>,
    next: u64,
}

/// In the order in which sources are forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Age {
    awaited: bool,
    born: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    last_sequence: u64,
    lost: bool,
    generation: u64,
}

#[derive(Debug)]
struct Shared {
    fault: Mutex<Option<String>>,
    stopping: AtomicBool,
}

type Answer = oneshot::Sender<Result<Receipt, ReportError>>;

#[derive(Debug)]
enum Message {
    Report(Report, Answer),
    /// Wakes the writer up so that it sees that it is to stop.
    Stop,
}

/// Starts the writer thread over an opened ledger.
pub(crate) fn start(
    ledger: Ledger,
    sources: KnownSources,
    seen: Arc<Seen>,
    metrics: Arc<Metrics>,
    alarm: &Alarm,
) -> std::io::Result<(LedgerHandle, LedgerWriter)> {
    let (reports, queue) = mpsc::channel(QUEUE);
    let shared = Arc::new(Shared {
        fault: Mutex::new(None),
        stopping: AtomicBool::new(false),
    });
    let handle = LedgerHandle {
        shared: Arc::clone(&shared),
        reports,
    };
    metrics.ledger_writable.set(1);
    metrics.ledger_bytes.set(ledger.bytes() as i64);
    let mut ending = Ending {
        shared: Arc::clone(&shared),
        metrics: Arc::clone(&metrics),
        guard: alarm.guard("the ledger's writer"),
    };
    let mut writing = Writing {
        ledger,
        sources,
        seen,
        shared,
        metrics,
    };
    let thread = std::thread::Builder::new().name("ledger".to_owned()).spawn(move || {
        writing.run(queue);
        ending.guard.planned();
    })?;
    Ok((
        handle.clone(),
        LedgerWriter {
            handle,
            thread: Some(thread),
        },
    ))
}

// === impl KnownSources ===

impl KnownSources {
    /// Takes in what the ledger holds, oldest first.
    pub(crate) fn replay(&mut self, item: &StoredItem) {
        match &item.body {
            Some(StoredBody::Batch(batch)) => {
                let known = self.get(&item.source).unwrap_or(Known::new());
                let last_sequence = batch.first_sequence + (batch.entries.len() as u64).saturating_sub(1);
                self.set(&item.source, Known { last_sequence, ..known });
            }
            Some(StoredBody::Change(change)) => match change.change() {
                SourceChange::Started => {
                    self.set(&item.source, Known::new());
                }
                SourceChange::Ended => {
                    self.remove(&item.source);
                }
                SourceChange::Lost => self.set_lost(&item.source, true),
                SourceChange::Returned => self.set_lost(&item.source, false),
                SourceChange::Unspecified => {}
            },
            None => {}
        }
    }

    /// The sources that may still come back and have not been given up.
    pub(crate) fn awaited(&self) -> Vec<String> {
        self.by_name
            .iter()
            .filter(|(_, (known, _))| !known.lost)
            .map(|(source, _)| source.clone())
            .collect()
    }

    fn set_lost(&mut self, source: &str, lost: bool) {
        if let Some(known) = self.get(source) {
            self.set(source, Known { lost, ..known });
        }
    }

    fn get(&self, source: &str) -> Option<Known> {
        self.by_name.get(source).map(|(known, _)| *known)
    }

    /// Bounds what is remembered: one that is forgotten and does come back is told to open a new source.
    fn set(&mut self, source: &str, known: Known) {
        let born = match self.by_name.get(source) {
            Some((_, age)) => age.born,
            None => {
                self.next += 1;
                self.next
            }
        };
        self.remove(source);
        let age = Age {
            awaited: !known.lost,
            born,
        };
        self.by_age.insert(age, source.to_owned());
        self.by_name.insert(source.to_owned(), (known, age));
        if self.by_name.len() > MAX_KNOWN_SOURCES
            && let Some((_, forgotten)) = self.by_age.pop_first()
        {
            self.by_name.remove(&forgotten);
        }
    }

    fn remove(&mut self, source: &str) {
        if let Some((_, age)) = self.by_name.remove(source) {
            self.by_age.remove(&age);
        }
    }
}

// === impl LedgerHandle ===

impl LedgerHandle {
    /// Queues a report. The answer comes when it is durable, in the order of queueing.
    pub(crate) async fn submit(
        &self,
        report: Report,
    ) -> Result<oneshot::Receiver<Result<Receipt, ReportError>>, ReportError> {
        if self.shared.stopping.load(Ordering::Acquire) {
            return Err(ReportError::Stopping);
        }
        let (answer, answered) = oneshot::channel();
        self.reports
            .send(Message::Report(report, answer))
            .await
            .map_err(|_| self.gone())?;
        Ok(answered)
    }

    /// Queues a report and waits until it is durable.
    pub(crate) async fn perform(&self, report: Report) -> Result<Receipt, ReportError> {
        self.submit(report).await?.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// Why there is no writer any more.
    fn gone(&self) -> ReportError {
        if self.shared.stopping.load(Ordering::Acquire) {
            ReportError::Stopping
        } else {
            ReportError::Died
        }
    }

    /// Why evidence is refused at the moment, if it is.
    pub(crate) fn fault(&self) -> Option<String> {
        lock(&self.shared.fault).clone()
    }
}

// === impl LedgerWriter ===

impl LedgerWriter {
    /// Returns when what was being written is durable and answered. What still queued is answered as refused.
    pub(crate) async fn stop(mut self) {
        self.signal();
        if let Some(thread) = self.thread.take() {
            // The thread ends by itself; an error would be its panic, which it has reported.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }

    fn signal(&self) {
        self.handle.shared.stopping.store(true, Ordering::Release);
        // A full queue keeps the writer awake, and it looks at the flag before each group.
        let _ = self.handle.reports.try_send(Message::Stop);
    }
}

impl Drop for LedgerWriter {
    fn drop(&mut self) {
        self.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Says so, loudly, when the thread ends without having been told to.
#[derive(Debug)]
struct Ending {
    shared: Arc<Shared>,
    metrics: Arc<Metrics>,
    guard: Guard,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(failure) = self.guard.failure() {
            lock(&self.shared.fault).get_or_insert_with(|| failure.to_string());
            self.metrics.ledger_writable.set(0);
        }
    }
}

/// What the writer thread owns.
#[derive(Debug)]
struct Writing {
    ledger: Ledger,
    sources: KnownSources,
    seen: Arc<Seen>,
    shared: Arc<Shared>,
    metrics: Arc<Metrics>,
}

/// What will become durable together, and what the sources will then be.
#[derive(Debug, Default)]
struct Group {
    items: Vec<StoredItem>,
    bytes: usize,
    /// The sources that the group changes; `None` for one that ends.
    sources: HashMap<String, Option<Known>>,
    answers: Vec<(Answer, Receipt)>,
    duplicates: u64,
    /// Held until the group is on disk or refused.
    rooms: Vec<OwnedSemaphorePermit>,
}

// === impl Writing ===

impl Writing {
    fn run(&mut self, mut queue: mpsc::Receiver<Message>) {
        while let Some(message) = queue.blocking_recv()
            && !self.shared.stopping.load(Ordering::Acquire)
        {
            let mut group = Group::default();
            let mut next = Some(message);
            while let Some(message) = next.take() {
                match message {
                    Message::Stop => break,
                    Message::Report(report, answer) => match group.add(&self.sources, report) {
                        Ok(receipt) => group.answers.push((answer, receipt)),
                        Err(error) => {
                            // The stream may have gone; it is told nothing then.
                            let _ = answer.send(Err(error));
                        }
                    },
                }
                if group.bytes < GROUP_BYTES && group.answers.len() < GROUP_REPORTS {
                    next = queue.try_recv().ok();
                }
            }
            self.commit(group);
            // The request to stop may have been the last thing in the queue.
            if self.shared.stopping.load(Ordering::Acquire) {
                return;
            }
        }
    }

    fn commit(&mut self, group: Group) {
        if !group.items.is_empty() {
            let entries: u64 = group.items.iter().map(StoredItem::records).sum();
            let is_batch = |item: &&StoredItem| matches!(item.body, Some(StoredBody::Batch(_)));
            let batches = group.items.iter().filter(is_batch).count();
            let lost = group.items.iter().filter(|item| is_loss(item)).count();
            let sightings = Sightings::in_items(&group.items);
            let begun = Instant::now();
            let appended = self.ledger.append(group.items);
            self.metrics.ledger_sync_seconds.observe(begun.elapsed().as_secs_f64());
            if let Err(error) = appended {
                self.refuse(group.answers, error);
                return;
            }
            self.seen.note(sightings);
            self.metrics.ledger_entries.inc_by(entries);
            self.metrics.ledger_batches.inc_by(batches as u64);
            self.metrics.ledger_lost_sources.inc_by(lost as u64);
            self.metrics.ledger_bytes.set(self.ledger.bytes() as i64);
            self.metrics.ledger_writable.set(1);
            *lock(&self.shared.fault) = None;
        }
        self.metrics.ledger_duplicates.inc_by(group.duplicates);
        for (source, known) in group.sources {
            match known {
                Some(known) => self.sources.set(&source, known),
                None => self.sources.remove(&source),
            }
        }
        for (answer, receipt) in group.answers {
            let _ = answer.send(Ok(receipt));
        }
    }

    fn refuse(&self, answers: Vec<(Answer, Receipt)>, error: LedgerAppendError) {
        let text = error.to_string();
        let known = lock(&self.shared.fault).replace(text.clone());
        self.metrics.ledger_writable.set(0);
        let error = Arc::new(error);
        for (answer, _) in answers {
            let _ = answer.send(Err(ReportError::Storage(Arc::clone(&error))));
        }
        if known.as_ref() != Some(&text) {
            tracing::error!(%error, "evidence was NOT acknowledged because the ledger can not be written; filters keep it while they can");
        }
    }
}

// === impl Group ===

impl Group {
    /// Adds what a report comes to. The receipt holds once the group is durable.
    fn add(&mut self, sources: &KnownSources, report: Report) -> Result<Receipt, ReportError> {
        match report {
            Report::Open {
                node,
                plugin,
                peer,
                anchors_digest,
            } => {
                let source = random_hex().map_err(ReportError::Random)?;
                let known = Known {
                    generation: 1,
                    ..Known::new()
                };
                let change = StoredSourceChange {
                    node,
                    plugin,
                    peer,
                    anchors_digest,
                    ..Known::new().change(SourceChange::Started)
                };
                self.push(&source, StoredBody::Change(change));
                Ok(self.settle(source, known))
            }
            Report::Resume { source, anchors_digest } => {
                let known = self.known(sources, &source).ok_or(ReportError::UnknownSource)?;
                if known.lost {
                    let change = StoredSourceChange {
                        anchors_digest,
                        ..known.change(SourceChange::Returned)
                    };
                    self.push(&source, StoredBody::Change(change));
                }
                let known = Known {
                    lost: false,
                    generation: known.generation + 1,
                    ..known
                };
                Ok(self.settle(source, known))
            }
            Report::Store {
                source,
                generation,
                batch,
                room,
            } => {
                self.rooms.extend(room);
                let known = self.current(sources, &source, generation)?;
                let (fresh, known) = known.continue_with(batch, &mut self.duplicates)?;
                if let Some(fresh) = fresh {
                    self.push(&source, StoredBody::Batch(fresh));
                }
                Ok(self.settle(source, known))
            }
            Report::Close { source, generation } => {
                let known = self.current(sources, &source, generation)?;
                self.push(&source, StoredBody::Change(known.change(SourceChange::Ended)));
                let receipt = known.receipt(source.clone());
                self.sources.insert(source, None);
                Ok(receipt)
            }
            Report::Lose { source, generation } => {
                let known = self.current(sources, &source, generation)?;
                if !known.lost {
                    self.push(&source, StoredBody::Change(known.change(SourceChange::Lost)));
                }
                Ok(self.settle(source, Known { lost: true, ..known }))
            }
        }
    }

    fn known(&self, sources: &KnownSources, source: &str) -> Option<Known> {
        match self.sources.get(source) {
            Some(changed) => *changed,
            None => sources.get(source),
        }
    }

    /// The source, if the report comes from its newest stream.
    fn current(&self, sources: &KnownSources, source: &str, generation: u64) -> Result<Known, ReportError> {
        let known = self.known(sources, source).ok_or(ReportError::UnknownSource)?;
        if known.generation == generation {
            Ok(known)
        } else {
            Err(ReportError::Superseded)
        }
    }

    fn push(&mut self, source: &str, body: StoredBody) {
        let item = StoredItem {
            source: source.to_owned(),
            body: Some(body),
        };
        self.bytes += item.encoded_len();
        self.items.push(item);
    }

    fn settle(&mut self, source: String, known: Known) -> Receipt {
        self.sources.insert(source.clone(), Some(known));
        known.receipt(source)
    }
}

// === impl Known ===

impl Known {
    fn new() -> Self {
        Self {
            last_sequence: 0,
            lost: false,
            generation: 0,
        }
    }

    /// What of the batch is not stored yet, and the source once it is.
    fn continue_with(
        self,
        mut batch: v1::Batch,
        duplicates: &mut u64,
    ) -> Result<(Option<v1::Batch>, Self), ReportError> {
        let count = batch.entries.len() as u64;
        let plausible = batch.first_sequence > 0 && batch.first_sequence <= 1 << 63 && count > 0;
        if !plausible {
            return Err(ReportError::Malformed);
        }
        let expected = self.last_sequence + 1;
        let Some(stored) = expected.checked_sub(batch.first_sequence) else {
            return Err(ReportError::SequenceGap {
                first: batch.first_sequence,
                expected,
            });
        };
        *duplicates += stored.min(count);
        if stored >= count {
            return Ok((None, self));
        }
        batch.entries.drain(..stored as usize);
        batch.first_sequence = expected;
        let last_sequence = self.last_sequence + count - stored;
        Ok((Some(batch), Self { last_sequence, ..self }))
    }

    fn change(self, change: SourceChange) -> StoredSourceChange {
        StoredSourceChange {
            change: change.into(),
            last_sequence: self.last_sequence,
            ..Default::default()
        }
    }

    fn receipt(self, source: String) -> Receipt {
        Receipt {
            source,
            generation: self.generation,
            last_sequence: self.last_sequence,
        }
    }
}

fn is_loss(item: &StoredItem) -> bool {
    matches!(&item.body, Some(StoredBody::Change(change)) if change.change() == SourceChange::Lost)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports that may wait for the disk; then the streams wait, and with them their clients.
const QUEUE: usize = 1024;
/// A group is closed once it has as much as this; with the largest batch it still fits one frame.
const GROUP_BYTES: usize = 2 << 20;
const GROUP_REPORTS: usize = 512;
/// Sources that are remembered, at about 100 bytes each.
const MAX_KNOWN_SOURCES: usize = 200_000;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use credence_wire::v1::entry::Entry as Kind;

    use super::*;
    use credence_ledger::ledger::{LedgerBounds, LedgerReader};
    use credence_ledger::record::RecordBody;

    struct Running {
        handle: LedgerHandle,
        reader: LedgerReader,
        awaited: Vec<String>,
        writer: LedgerWriter,
    }

    fn run(folder: &Path) -> Running {
        run_with(
            folder,
            LedgerBounds {
                total: 1 << 30,
                segment: 1 << 30,
            },
        )
    }

    fn run_with(folder: &Path, bounds: LedgerBounds) -> Running {
        let mut sources = KnownSources::default();
        let (ledger, _) = Ledger::open(folder, bounds, |item| sources.replay(item)).unwrap();
        let (reader, awaited) = (ledger.reader(), sources.awaited());
        let (handle, writer) = start(
            ledger,
            sources,
            Arc::new(Seen::new(1, 1)),
            Arc::new(Metrics::new()),
            &Alarm::new(),
        )
        .unwrap();
        Running {
            handle,
            reader,
            awaited,
            writer,
        }
    }

    impl Running {
        async fn open(&self) -> Receipt {
            let report = Report::Open {
                node: "node".to_owned(),
                plugin: "plugin".to_owned(),
                peer: "peer".to_owned(),
                anchors_digest: vec![7; 32],
            };
            self.handle.perform(report).await.unwrap()
        }

        async fn store(&self, source: &Receipt, first_sequence: u64, count: u64) -> Result<u64, ReportError> {
            let (source, generation) = (source.source.clone(), source.generation);
            let report = Report::Store {
                source,
                generation,
                batch: batch(first_sequence, count),
                room: None,
            };
            Ok(self.handle.perform(report).await?.last_sequence)
        }

        /// The sequence numbers of all stored entries, oldest first, and the names of source changes.
        fn contents(&self) -> Vec<String> {
            let records = self.reader.block_before(u64::MAX).unwrap();
            records
                .into_iter()
                .map(|record| match record.body {
                    RecordBody::Entry { sequence, .. } => sequence.to_string(),
                    RecordBody::Source(change) => format!("{:?}", change.change()),
                    other => format!("{other:?}"),
                })
                .collect()
        }
    }

    /// Entries that carry their own sequence number as a count.
    fn batch(first_sequence: u64, count: u64) -> v1::Batch {
        let entry = |count| v1::Entry {
            entry: Some(Kind::Aggregate(v1::Aggregate {
                count,
                ..Default::default()
            })),
        };
        v1::Batch {
            first_sequence,
            entries: (first_sequence..first_sequence + count).map(entry).collect(),
        }
    }

    #[test]
    fn lost_sources_are_forgotten_first_then_the_oldest() {
        let mut sources = KnownSources::default();
        for source in 0..MAX_KNOWN_SOURCES {
            sources.set(&source.to_string(), Known::new());
        }
        sources.set_lost("7", true);
        sources.set("one more", Known::new());
        assert_eq!((sources.get("7"), sources.by_name.len()), (None, MAX_KNOWN_SOURCES));
        sources.set("another", Known::new());
        assert_eq!((sources.get("0"), sources.by_age.len()), (None, MAX_KNOWN_SOURCES));
        assert!(sources.get("another").is_some());
    }

    #[tokio::test]
    async fn exactly_the_next_sequence_numbers_are_stored() {
        let folder = tempfile::tempdir().unwrap();
        let running = run(folder.path());
        let source = running.open().await;
        assert_eq!(running.store(&source, 1, 3).await.unwrap(), 3);
        assert_eq!(running.store(&source, 4, 1).await.unwrap(), 4);
        assert_eq!(running.contents(), ["Started", "1", "2", "3", "4"]);
    }

    #[tokio::test]
    async fn what_a_source_trusts_is_stored_with_its_start() {
        let folder = tempfile::tempdir().unwrap();
        let running = run(folder.path());
        running.open().await;
        let records = running.reader.block_before(u64::MAX).unwrap();
        assert!(matches!(&records[0].body, RecordBody::Source(change) if change.anchors_digest == [7; 32]));
    }

    #[tokio::test]
    async fn what_is_sent_again_is_stored_once() {
        let folder = tempfile::tempdir().unwrap();
        let running = run(folder.path());
        let source = running.open().await;
        running.store(&source, 1, 3).await.unwrap();
        assert_eq!(running.store(&source, 1, 3).await.unwrap(), 3);
        assert_eq!(running.store(&source, 2, 4).await.unwrap(), 5);
        assert_eq!(running.contents(), ["Started", "1", "2", "3", "4", "5"]);
    }

    #[tokio::test]
    async fn a_gap_is_refused_and_stores_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let running = run(folder.path());
        let source = running.open().await;
        let refused = running.store(&source, 2, 1).await;
        assert!(matches!(
            refused,
            Err(ReportError::SequenceGap { first: 2, expected: 1 })
        ));
        assert_eq!(running.contents(), ["Started"]);
    }

    #[tokio::test]
    async fn impossible_sequence_numbers_and_empty_batches_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let running = run(folder.path());
        let source = running.open().await;
        for (first_sequence, count) in [(0, 1), (u64::MAX - 1, 1), (1, 0)] {
            assert!(matches!(
                running.store(&source, first_sequence, count).await,
                Err(ReportError::Malformed)
            ));
        }
    }

    #[tokio::test]
    async fn the_last_sequence_number_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let running = run(folder.path());
        let source = running.open().await;
        running.store(&source, 1, 3).await.unwrap();
        running.writer.stop().await;
        let running = run(folder.path());
        assert_eq!(running.awaited, std::slice::from_ref(&source.source));
        let resumed = running
            .handle
            .perform(Report::Resume {
                source: source.source,
                anchors_digest: Vec::new(),
            })
            .await
            .unwrap();
        assert_eq!(resumed.last_sequence, 3);
        assert_eq!(running.store(&resumed, 3, 2).await.unwrap(), 4);
        assert_eq!(running.contents(), ["Started", "1", "2", "3", "4"]);
    }

    #[tokio::test]
    async fn a_resumed_source_supersedes_its_older_stream() {
        let folder = tempfile::tempdir().unwrap();
        let running = run(folder.path());
        let old = running.open().await;
        let new = running
            .handle
            .perform(Report::Resume {
                source: old.source.clone(),
                anchors_digest: Vec::new(),
            })
            .await
            .unwrap();
        assert!(matches!(running.store(&old, 1, 1).await, Err(ReportError::Superseded)));
        assert_eq!(running.store(&new, 1, 1).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn an_ended_source_is_forgotten_and_a_lost_one_may_return() {
        let folder = tempfile::tempdir().unwrap();
        let running = run(folder.path());
        let source = running.open().await;
        running.store(&source, 1, 1).await.unwrap();
        let lose = Report::Lose {
            source: source.source.clone(),
            generation: source.generation,
        };
        running.handle.perform(lose).await.unwrap();
        running.writer.stop().await;
        let running = run(folder.path());
        assert!(running.awaited.is_empty());
        let back = running
            .handle
            .perform(Report::Resume {
                source: source.source.clone(),
                anchors_digest: Vec::new(),
            })
            .await
            .unwrap();
        assert_eq!(back.last_sequence, 1);
        let close = Report::Close {
            source: back.source.clone(),
            generation: back.generation,
        };
        running.handle.perform(close).await.unwrap();
        let gone = running
            .handle
            .perform(Report::Resume {
                source: source.source,
                anchors_digest: Vec::new(),
            })
            .await;
        assert!(matches!(gone, Err(ReportError::UnknownSource)));
        assert_eq!(running.contents(), ["Started", "1", "Lost", "Returned", "Ended"]);
    }

    #[tokio::test]
    async fn a_full_ledger_refuses_names_the_reason_and_forgets_the_attempt() {
        let folder = tempfile::tempdir().unwrap();
        let running = run_with(
            folder.path(),
            LedgerBounds {
                total: 600,
                segment: 600,
            },
        );
        let source = running.open().await;
        let refused = running.store(&source, 1, 300).await;
        assert!(matches!(refused, Err(ReportError::Storage(_))));
        assert!(running.handle.fault().unwrap().contains("--ledger-bytes"));
        assert_eq!(running.store(&source, 1, 1).await.unwrap(), 1);
        assert_eq!(running.handle.fault(), None);
    }

    #[tokio::test]
    async fn reports_of_many_sources_at_once_are_all_stored() {
        let folder = tempfile::tempdir().unwrap();
        let running = Arc::new(run(folder.path()));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let running = Arc::clone(&running);
            tasks.spawn(async move {
                let source = running.open().await;
                for sequence in 1..=20 {
                    assert_eq!(running.store(&source, sequence, 1).await.unwrap(), sequence);
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        assert_eq!(running.contents().len(), 8 * 21);
    }
}
