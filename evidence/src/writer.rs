//! The ledger's only writer, and its handle for the streams.
//!
//! Reports of all streams queue for one thread. It takes a group of them, checks each against its source's last durable
//! sequence number, writes the group as one frame, syncs it, and only then answers. Only this thread knows the sources,
//! so no race between two streams of one source can store an entry twice.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use credence_ledger::checkpoint::{Checkpoint, SignedCheckpoint};
use credence_ledger::entry::PrincipalView;
use credence_ledger::sources::{MAX_KNOWN_SOURCES, SourceState};
use credence_ledger::{
    Erased, Ledger, LedgerError, NewItem, Pruned, SourceChange, SourceName, StoredNote, StoredSourceChange,
};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::handover::{Appended, Handover};
use super::ingest::BoundedBatch;
use super::seen::{Seen, Sightings};
use crate::metrics::Metrics;
use credence_revocation::PrincipalName;
use credence_runtime::supervision::{Alarm, Failure, unplanned_end};
use credence_runtime::threads::Threads;
use credence_runtime::turns::Turn;
use credence_storage::folder_lock::FolderWatch;

/// The ledger for the streams. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LedgerHandle {
    shared: Arc<Shared>,
    reports: mpsc::Sender<Message>,
}

/// A request of a stream to the ledger.
#[derive(Debug)]
pub(crate) enum Report {
    /// Name a new source.
    Open {
        node: String,
        plugin: String,
        peer: String,
        anchors_digest: Vec<u8>,
    },
    /// Resume a source on a new stream.
    Resume {
        source: String,
        anchors_digest: Vec<u8>,
        /// Present if the source may have reported to another replica meanwhile.
        arriving: Option<Arriving>,
    },
    /// Store a batch.
    Store {
        source: String,
        generation: u64,
        batch: BoundedBatch,
        /// Its part of the memory for evidence, freed once the batch is on disk or refused.
        room: Option<Turn>,
    },
    /// The source said Bye.
    Close { source: String, generation: u64 },
    /// The source did not return in time.
    Lose { source: String, generation: u64 },
    /// The source reports to another replica, whose ledger has this origin.
    Move { source: String, ledger: String },
}

/// What a source says that another replica may have told it.
#[derive(Debug)]
pub(crate) struct Arriving {
    /// At most 2^63.
    pub(crate) acknowledged: u64,
    pub(crate) node: String,
    pub(crate) plugin: String,
    pub(crate) peer: String,
}

/// The durable state at the time of the acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    pub source: String,
    /// Counts the source's streams. Reports of earlier streams are refused.
    pub(crate) generation: u64,
    /// The source's last stored sequence number.
    pub last_sequence: u64,
    /// Other replicas do not know yet that the source reports here.
    pub(crate) has_arrived: bool,
}

/// Why a report was refused. If a part of it was stored, the source's last sequence number shows it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReportError {
    #[error("the control plane is stopping; reconnect and resume")]
    Stopping,
    #[error("the writer of the ledger has ended; reconnect and resume when the control plane is back")]
    Died,
    #[error("the ledger is damaged, nothing is accepted: {0}")]
    Damaged(Arc<str>),
    #[error("the ledger cannot be written, nothing was acknowledged; send it again later. {0}")]
    Storage(Arc<LedgerError>),
    #[error("no randomness to name a source: {0}")]
    Random(String),
    #[error("this ledger no longer has such a source; open a new one")]
    UnknownSource,
    #[error("a newer stream of this source has taken over")]
    Superseded,
    #[error("a batch begins with sequence number {first}, but the next one is {expected}: entries would be missing")]
    SequenceGap { first: u64, expected: u64 },
    #[error("a batch has at least one entry, and sequence numbers from 1 to 2^63")]
    Malformed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Known {
    state: SourceState,
    generation: u64,
}

#[derive(Debug, Default)]
struct Shared {
    fault: Mutex<Option<String>>,
    stopping: AtomicBool,
    /// Why the ledger could not be opened, if so.
    damaged: Option<Arc<str>>,
}

type Answer = oneshot::Sender<Result<Receipt, ReportError>>;

#[derive(Debug)]
enum Message {
    Report(Report, Answer),
    /// Notes of the control plane itself.
    Notes(Vec<StoredNote>, oneshot::Sender<Result<(), ReportError>>),
    Erase(Erase, oneshot::Sender<Result<Option<Erased>, ReportError>>),
    /// Remove a part of the records beyond the retention that this checkpoint covers. Answers whether there were any.
    Retain(Arc<SignedCheckpoint>, oneshot::Sender<bool>),
    /// Wakes the writer, so that it notices the stop.
    Stop,
}

/// The principal whose evidence to erase.
#[derive(Debug)]
pub struct Erase {
    pub principal: PrincipalName,
    /// The requester and the reason, for the note in the ledger.
    pub by: String,
    pub reason: String,
}

/// Replaces the writer if the ledger is damaged: every request is refused for this reason.
pub(crate) fn damaged(reason: &str, metrics: &Metrics) -> LedgerHandle {
    metrics.ledger_writable.set(0);
    let (reports, _) = mpsc::channel(1);
    LedgerHandle {
        shared: Arc::new(Shared {
            fault: Mutex::new(Some(format!("the ledger is damaged: {reason}"))),
            damaged: Some(reason.into()),
            ..Shared::default()
        }),
        reports,
    }
}

/// Starts the writer thread for an opened ledger. Its records are handed over to the reverification.
pub(crate) fn start(
    ledger: Ledger,
    folder: FolderWatch,
    seen: Arc<Seen>,
    handover: Option<Arc<Handover>>,
    metrics: Arc<Metrics>,
    alarm: &Alarm,
) -> std::io::Result<(LedgerHandle, Threads)> {
    let (reports, queue) = mpsc::channel(QUEUE);
    let shared = Arc::<Shared>::default();
    let handle = LedgerHandle {
        shared: Arc::clone(&shared),
        reports,
    };
    metrics.ledger_writable.set(1);
    note_size(&ledger, &metrics);
    let mut writing = Writing {
        ledger,
        folder,
        alarm: alarm.clone(),
        generations: HashMap::new(),
        seen,
        handover,
        shared,
        metrics,
    };
    let thread = std::thread::Builder::new().name("ledger".to_owned()).spawn(move || {
        if let Some(failure) = unplanned_end("the ledger's writer", || writing.run(queue)) {
            writing.shared.fault.lock().get_or_insert_with(|| failure.to_string());
            writing.metrics.ledger_writable.set(0);
            writing.alarm.raise(failure);
        }
    })?;
    let told = handle.clone();
    Ok((handle, Threads::new(vec![thread], move || told.stop())))
}

// === impl LedgerHandle ===

impl LedgerHandle {
    /// From now on nothing is accepted. Writes in progress are finished and answered; queued reports are refused.
    fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        // If the queue is full, the writer is awake, and checks the flag before each group.
        let _ = self.reports.try_send(Message::Stop);
    }

    /// Queues a report. The answer arrives when it is durable, in the order of queueing.
    pub(crate) async fn submit(
        &self,
        report: Report,
    ) -> Result<oneshot::Receiver<Result<Receipt, ReportError>>, ReportError> {
        let (answer, answered) = oneshot::channel();
        self.send(Message::Report(report, answer)).await?;
        Ok(answered)
    }

    /// Stores notes of the control plane itself. Blocks, so only for separate threads.
    pub(crate) fn note(&self, notes: Vec<StoredNote>) -> Result<(), ReportError> {
        let (answer, answered) = oneshot::channel();
        let sent = self.reports.blocking_send(Message::Notes(notes, answer));
        sent.map_err(|_| self.gone())?;
        answered.blocking_recv().unwrap_or_else(|_| Err(self.gone()))
    }

    /// Erases a principal's evidence, if there is any.
    pub async fn erase(&self, erase: Erase) -> Result<Option<Erased>, ReportError> {
        self.ask(|answer| Message::Erase(erase, answer)).await?
    }

    /// Removes published records beyond the retention, now and periodically, for as long as it is polled. It removes
    /// them in parts, so that reports are handled in between.
    pub async fn keep_retention(self, every: Duration, published: watch::Receiver<Option<Arc<SignedCheckpoint>>>) {
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(latest) = published.borrow().clone() else {
                continue;
            };
            let mut is_more = true;
            // This loop ends, because its own notes are beyond this checkpoint.
            while is_more {
                let retain = |answer| Message::Retain(Arc::clone(&latest), answer);
                // An unanswered request is repeated at the next tick.
                is_more = self.ask(retain).await.unwrap_or(false);
            }
        }
    }

    /// Queues a message and waits for its answer.
    async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Message) -> Result<T, ReportError> {
        let (answer, answered) = oneshot::channel();
        self.send(message(answer)).await?;
        answered.await.map_err(|_| self.gone())
    }

    async fn send(&self, message: Message) -> Result<(), ReportError> {
        self.reports.send(message).await.map_err(|_| self.gone())
    }

    /// Queues a report and waits until it is durable.
    pub(crate) async fn perform(&self, report: Report) -> Result<Receipt, ReportError> {
        self.ask(|answer| Message::Report(report, answer)).await?
    }

    /// Why there is no writer, or no longer one.
    pub(crate) fn gone(&self) -> ReportError {
        if let Some(damaged) = &self.shared.damaged {
            ReportError::Damaged(Arc::clone(damaged))
        } else if self.shared.stopping.load(Ordering::Acquire) {
            ReportError::Stopping
        } else {
            ReportError::Died
        }
    }

    /// Why evidence is refused now, if it is.
    pub fn fault(&self) -> Option<String> {
        self.shared.fault.lock().clone()
    }
}

/// The state of the writer thread.
#[derive(Debug)]
struct Writing {
    ledger: Ledger,
    folder: FolderWatch,
    alarm: Alarm,
    /// The number of streams of each source since the start, if any. Reports of earlier streams are refused.
    generations: HashMap<SourceName, u64>,
    seen: Arc<Seen>,
    handover: Option<Arc<Handover>>,
    shared: Arc<Shared>,
    metrics: Arc<Metrics>,
}

/// Items that become durable together, and the resulting states of the sources.
#[derive(Debug, Default)]
struct Group {
    items: Vec<NewItem>,
    bytes: u64,
    entries: u64,
    batches: u64,
    lost: u64,
    sightings: Sightings,
    /// The sources that the group changes; `None` for a source that ends.
    sources: HashMap<SourceName, Option<Known>>,
    /// The sources that have returned, with their trust anchors.
    returned: Vec<(SourceName, Vec<u8>)>,
    answers: Vec<(Answer, Receipt)>,
    duplicates: u64,
    /// Held until the group is on disk or refused.
    rooms: Vec<Turn>,
}

// === impl Writing ===

impl Writing {
    /// Returns whether it ended as planned.
    fn run(&mut self, mut queue: mpsc::Receiver<Message>) -> bool {
        while let Some(message) = queue.blocking_recv()
            && !self.shared.stopping.load(Ordering::Acquire)
        {
            if self.ledger.has_lost_its_indexer() {
                return false;
            }
            let (begun, counted) = (Instant::now(), self.ledger.counted());
            let mut group = Group::default();
            let mut alone = None;
            let mut next = Some(message);
            while let Some(message) = next.take() {
                match message {
                    Message::Report(report, answer) => match group.add(self, report) {
                        Ok(receipt) => group.answers.push((answer, receipt)),
                        Err(error) => {
                            // The stream may have gone; then there is no receiver.
                            let _ = answer.send(Err(error));
                        }
                    },
                    // Messages other than reports wait for the group before them.
                    other => {
                        alone = Some(other);
                        break;
                    }
                }
                if group.bytes < GROUP_BYTES && group.answers.len() < GROUP_REPORTS {
                    next = queue.try_recv().ok();
                }
            }
            self.commit(group);
            // The request to stop may have been the last in the queue.
            if self.shared.stopping.load(Ordering::Acquire) {
                break;
            }
            match alone {
                Some(Message::Notes(notes, answer)) => {
                    let notes = notes.into_iter().map(NewItem::Note).collect();
                    let _ = answer.send(self.append(notes));
                }
                Some(Message::Erase(erase, answer)) => {
                    let _ = answer.send(self.erase(&erase));
                }
                Some(Message::Retain(published, answer)) => {
                    let _ = answer.send(self.retain(published.checkpoint()));
                }
                Some(Message::Stop | Message::Report(..)) | None => {}
            }
            // Each write has its own counts: reports that arrive meanwhile are counted together.
            if self.ledger.counted() > counted {
                std::thread::sleep(COUNTING_INTERVAL.saturating_sub(begun.elapsed()));
            }
        }
        true
    }

    fn commit(&mut self, group: Group) {
        if let Some(handover) = &self.handover {
            for (source, anchors_digest) in group.returned {
                handover.has_returned(source, anchors_digest);
            }
        }
        let is_new = !group.items.is_empty();
        let stored = match is_new {
            true => {
                let begun = Instant::now();
                let appended = self.append(group.items);
                self.metrics.ledger_sync_seconds.observe(begun.elapsed().as_secs_f64());
                appended
            }
            // Entries that are already stored are acknowledged again.
            false => self.check_folder(),
        };
        if let Err(error) = stored {
            for (answer, _) in group.answers {
                let _ = answer.send(Err(error.clone()));
            }
            return;
        }
        if is_new {
            self.seen.note(group.sightings);
            self.metrics.ledger_entries.inc_by(group.entries);
            self.metrics.ledger_batches.inc_by(group.batches);
            self.metrics.ledger_lost_sources.inc_by(group.lost);
        }
        self.metrics.ledger_duplicates.inc_by(group.duplicates);
        for (source, known) in group.sources {
            match known {
                Some(known) => self.generations.insert(source, known.generation),
                None => self.generations.remove(&source),
            };
        }
        if self.generations.len() > MAX_KNOWN_SOURCES {
            let ledger = &self.ledger;
            self.generations.retain(|source, _| ledger.source(source).is_some());
        }
        for (answer, receipt) in group.answers {
            let _ = answer.send(Ok(receipt));
        }
    }

    fn append(&mut self, items: Vec<NewItem>) -> Result<(), ReportError> {
        self.check_folder()?;
        let first = self.ledger.reader().size();
        let counted = self.ledger.counted();
        let appended = self.ledger.append(&items);
        self.metrics.ledger_counted.inc_by(self.ledger.counted() - counted);
        self.settle(appended)?;
        if let Some(handover) = &self.handover {
            let end = self.ledger.reader().size();
            handover.offer(Appended { first, end, items });
        }
        Ok(())
    }

    fn erase(&mut self, erase: &Erase) -> Result<Option<Erased>, ReportError> {
        let principal = erase.principal.to_wire();
        let view = PrincipalView {
            issuer: &principal.issuer,
            subject: principal.subject.as_deref(),
        };
        self.check_folder()?;
        let erased = match self.ledger.erase(view, &erase.by, &erase.reason) {
            // Nothing was written, so it is unknown whether writing works.
            Ok(None) => None,
            erased => self.settle(erased)?,
        };
        self.seen.forget(&erase.principal);
        self.metrics.ledger_erasures.inc_by(u64::from(erased.is_some()));
        Ok(erased)
    }

    /// Returns whether anything was removed.
    fn retain(&mut self, published: &Checkpoint) -> bool {
        if self.check_folder().is_err() {
            return false;
        }
        let retained = match self.ledger.retain(Some((published.size, published.root))) {
            // Nothing was written, so it is unknown whether writing works. Other programs may change the free space
            // too.
            Ok(None) => {
                note_size(&self.ledger, &self.metrics);
                return false;
            }
            retained => self.settle(retained),
        };
        let Ok(Some(Pruned {
            first,
            segments,
            keys,
            chains,
        })) = retained
        else {
            return false;
        };
        self.metrics.ledger_pruned_segments.inc_by(segments as u64);
        tracing::info!(
            first,
            segments,
            keys,
            chains,
            "the oldest evidence was removed by the retention"
        );
        segments > 0
    }

    /// Reports the ledger's state after an operation.
    fn settle<T>(&self, done: Result<T, LedgerError>) -> Result<T, ReportError> {
        note_size(&self.ledger, &self.metrics);
        match done {
            Ok(done) => {
                self.check_folder()?;
                self.metrics.ledger_writable.set(1);
                *self.shared.fault.lock() = None;
                Ok(done)
            }
            Err(error) => Err(self.refuse(error)),
        }
    }

    /// Nothing may be acknowledged that the next start might not find.
    fn check_folder(&self) -> Result<(), ReportError> {
        self.folder.check().map_err(|lost| {
            *self.shared.fault.lock() = Some(lost.to_string());
            self.metrics.ledger_writable.set(0);
            self.alarm.raise(Failure::FolderLost(lost));
            ReportError::Died
        })
    }

    fn refuse(&self, error: LedgerError) -> ReportError {
        let text = error.to_string();
        let known = self.shared.fault.lock().replace(text.clone());
        self.metrics.ledger_writable.set(0);
        if known.as_ref() != Some(&text) {
            tracing::error!(%error, "evidence was NOT acknowledged because the ledger cannot be written; filters keep it while they can");
        }
        ReportError::Storage(Arc::new(error))
    }

    fn known(&self, source: &SourceName) -> Option<Known> {
        Some(Known {
            state: self.ledger.source(source)?,
            generation: self.generations.get(source).copied().unwrap_or(0),
        })
    }
}

// === impl Group ===

impl Group {
    /// Adds the items of a report. The receipt is valid once the group is durable.
    fn add(&mut self, writing: &Writing, report: Report) -> Result<Receipt, ReportError> {
        match report {
            Report::Open {
                node,
                plugin,
                peer,
                anchors_digest,
            } => {
                let mut name = [0; 16];
                getrandom::fill(&mut name).map_err(|error| ReportError::Random(error.to_string()))?;
                let known = Known {
                    state: SourceState::default(),
                    generation: 1,
                };
                let change = StoredSourceChange {
                    node,
                    plugin,
                    peer,
                    anchors_digest,
                    ..known.change(SourceChange::Started)
                };
                self.push_change(SourceName(name), change);
                Ok(self.settle(SourceName(name), known))
            }
            Report::Resume {
                source,
                anchors_digest,
                arriving,
            } => {
                let (source, mut known) = match (self.known(writing, &source), arriving) {
                    (Ok((name, known)), Some(arriving)) if known.state.last_sequence < arriving.acknowledged => {
                        return Ok(self.arrive(name, known, arriving, anchors_digest));
                    }
                    (Err(ReportError::UnknownSource), Some(arriving)) => {
                        let name = SourceName::parse(&source).ok_or(ReportError::UnknownSource)?;
                        return Ok(self.arrive(name, Known::default(), arriving, anchors_digest));
                    }
                    (known, _) => known?,
                };
                self.returned.push((source, anchors_digest.clone()));
                let has_arrived = known.state.lost;
                if known.state.lost {
                    let change = StoredSourceChange {
                        anchors_digest,
                        ..known.change(SourceChange::Returned)
                    };
                    self.push_change(source, change);
                }
                known.state.lost = false;
                known.generation += 1;
                let receipt = self.settle(source, known);
                Ok(Receipt { has_arrived, ..receipt })
            }
            Report::Store {
                source,
                generation,
                batch,
                room,
            } => {
                self.rooms.extend(room);
                let (source, mut known) = self.current(writing, &source, generation)?;
                let (skip, fresh) = known.continue_with(&batch)?;
                self.duplicates += skip;
                if fresh > 0 {
                    self.sightings.append(batch.sightings);
                    self.entries += fresh;
                    self.batches += 1;
                    self.push(NewItem::Entries {
                        source,
                        batch: batch.encoded,
                        skip: skip as usize,
                        first_sequence: known.state.last_sequence + 1,
                    });
                    known.state.last_sequence += fresh;
                }
                Ok(self.settle(source, known))
            }
            Report::Close { source, generation } => {
                let (source, known) = self.current(writing, &source, generation)?;
                self.push_change(source, known.change(SourceChange::Ended));
                self.sources.insert(source, None);
                Ok(known.receipt(source))
            }
            Report::Lose { source, generation } => {
                let (source, mut known) = self.current(writing, &source, generation)?;
                if !known.state.lost {
                    self.push_change(source, known.change(SourceChange::Lost));
                    self.lost += 1;
                }
                known.state.lost = true;
                Ok(self.settle(source, known))
            }
            Report::Move { source, ledger } => {
                let (source, mut known) = self.known(writing, &source)?;
                if !known.state.lost {
                    let change = StoredSourceChange {
                        ledger,
                        ..known.change(SourceChange::Moved)
                    };
                    self.push_change(source, change);
                }
                known.state.lost = true;
                known.generation += 1;
                Ok(self.settle(source, known))
            }
        }
    }

    /// The source goes on here after what another replica has acknowledged.
    fn arrive(&mut self, source: SourceName, mut known: Known, from: Arriving, anchors_digest: Vec<u8>) -> Receipt {
        let was_here = known.generation > 0 && !known.state.lost;
        if was_here {
            // It left and has come back before the other replica said so.
            self.push_change(source, known.change(SourceChange::Moved));
        }
        known.state = SourceState {
            last_sequence: from.acknowledged,
            lost: false,
        };
        known.generation += 1;
        self.returned.push((source, anchors_digest.clone()));
        let change = StoredSourceChange {
            node: from.node,
            plugin: from.plugin,
            peer: from.peer,
            anchors_digest,
            ..known.change(SourceChange::Arrived)
        };
        self.push_change(source, change);
        let receipt = self.settle(source, known);
        Receipt {
            has_arrived: true,
            ..receipt
        }
    }

    fn known(&self, writing: &Writing, source: &str) -> Result<(SourceName, Known), ReportError> {
        let name = SourceName::parse(source).ok_or(ReportError::UnknownSource)?;
        let known = match self.sources.get(&name) {
            Some(changed) => *changed,
            None => writing.known(&name),
        };
        Ok((name, known.ok_or(ReportError::UnknownSource)?))
    }

    /// The source, if the report is from its newest stream.
    fn current(&self, writing: &Writing, source: &str, generation: u64) -> Result<(SourceName, Known), ReportError> {
        let (name, known) = self.known(writing, source)?;
        if known.generation == generation {
            Ok((name, known))
        } else {
            Err(ReportError::Superseded)
        }
    }

    fn push_change(&mut self, source: SourceName, change: StoredSourceChange) {
        self.entries += 1;
        self.push(NewItem::Change { source, change });
    }

    fn push(&mut self, item: NewItem) {
        self.bytes += item.bytes();
        self.items.push(item);
    }

    fn settle(&mut self, source: SourceName, known: Known) -> Receipt {
        self.sources.insert(source, Some(known));
        known.receipt(source)
    }
}

// === impl Known ===

impl Known {
    /// How many of the batch's entries are already stored, and how many are not.
    fn continue_with(&self, batch: &BoundedBatch) -> Result<(u64, u64), ReportError> {
        let (first, count) = (batch.first_sequence, batch.entries as u64);
        let plausible = first > 0 && first <= 1 << 63 && count > 0;
        if !plausible {
            return Err(ReportError::Malformed);
        }
        let expected = self.state.last_sequence + 1;
        let stored = expected
            .checked_sub(first)
            .ok_or(ReportError::SequenceGap { first, expected })?
            .min(count);
        Ok((stored, count - stored))
    }

    fn change(&self, change: SourceChange) -> StoredSourceChange {
        StoredSourceChange {
            change: change.into(),
            last_sequence: self.state.last_sequence,
            ..Default::default()
        }
    }

    fn receipt(&self, source: SourceName) -> Receipt {
        Receipt {
            source: source.to_string(),
            generation: self.generation,
            last_sequence: self.state.last_sequence,
            has_arrived: false,
        }
    }
}

/// Reports the ledger's size and its free space.
fn note_size(ledger: &Ledger, metrics: &Metrics) {
    metrics.ledger_bytes.set(ledger.bytes() as i64);
    metrics.ledger_keys.set(ledger.data_keys() as i64);
    if let Some(room) = ledger.room() {
        metrics.ledger_disk_free.set(room.free as i64);
        metrics.ledger_disk_reserve.set(room.reserve as i64);
    }
}

/// The number of reports that may wait for the disk. Beyond it, the streams wait, and with them their clients.
const QUEUE: usize = 1024;
/// A group is closed at this size.
const GROUP_BYTES: u64 = 4 << 20;
const GROUP_REPORTS: usize = 512;
/// The time between two groups while a principal beyond its share is counted. Filters report as often.
const COUNTING_INTERVAL: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use credence_wire::v1::entry::Entry as Kind;

    use credence_ledger::note::NoteSigner;
    use credence_ledger::{LedgerBounds, LedgerOptions, LedgerReader, RecordBody, Retention};
    use credence_wire::v1;
    use prost::Message as _;

    use super::*;
    use crate::ingest::BatchBounds;

    struct Running {
        handle: LedgerHandle,
        reader: LedgerReader,
        awaited: Vec<String>,
        writer: Threads,
    }

    fn run(folder: &Path) -> Running {
        run_with(
            folder,
            LedgerBounds {
                total: 1 << 30,
                segment: 1 << 30,
                keys: 100,
            },
        )
    }

    fn run_with(folder: &Path, bounds: LedgerBounds) -> Running {
        run_keeping(folder, bounds, Retention::default())
    }

    fn run_keeping(folder: &Path, bounds: LedgerBounds, retention: Retention) -> Running {
        let options = LedgerOptions {
            origin: "log.example".to_owned(),
            bounds,
            retention,
            published: None,
        };
        let (mut ledger, _) = Ledger::open(folder, options).unwrap();
        ledger.limit_shares(1);
        let awaited = ledger.awaited().iter().map(SourceName::to_string).collect();
        let reader = ledger.reader();
        let (handle, writer) = start(
            ledger,
            FolderWatch::of_nothing(),
            Arc::new(Seen::new(1, 1)),
            None,
            Arc::new(Metrics::new(&mut prometheus_client::registry::Registry::default())),
            &Alarm::default(),
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

        /// A checkpoint of everything stored.
        fn published(&self) -> Arc<SignedCheckpoint> {
            let size = self.reader.size();
            let checkpoint = Checkpoint {
                origin: "log.example".parse().unwrap(),
                size,
                root: self.reader.root(size).unwrap(),
            };
            let signer = NoteSigner::new(checkpoint.origin.clone(), &[1; 32]);
            Arc::new(checkpoint.sign(&signer).unwrap())
        }

        /// The sequence numbers of all stored entries, oldest first, and the names of source changes.
        fn contents(&self) -> Vec<String> {
            let records = self.reader.records(0..self.reader.size()).unwrap();
            records
                .into_iter()
                .map(|record| match record.body {
                    RecordBody::Entry(stored) => stored.sequence.to_string(),
                    RecordBody::Source(change) => format!("{:?}", change.change()),
                    other => format!("{other:?}"),
                })
                .collect()
        }
    }

    /// Entries with their own sequence number as the count.
    fn batch(first_sequence: u64, count: u64) -> BoundedBatch {
        let entry = |count| v1::Entry {
            entry: Some(Kind::Aggregate(v1::Aggregate {
                count,
                ..Default::default()
            })),
        };
        let batch = v1::Batch {
            first_sequence,
            entries: (0..count)
                .map(|place| entry(first_sequence.wrapping_add(place)))
                .collect(),
        };
        checked(&batch)
    }

    fn checked(batch: &v1::Batch) -> BoundedBatch {
        let bounds = BatchBounds {
            entries: 1000,
            bytes: 1 << 20,
        };
        BoundedBatch::check(batch.encode_to_vec().into(), bounds).unwrap()
    }

    #[tokio::test]
    async fn the_anchors_of_a_source_are_stored_with_its_start() {
        let folder = tempfile::tempdir().unwrap();
        let running = run(folder.path());
        running.open().await;
        let records = running.reader.records(0..running.reader.size()).unwrap();
        assert!(matches!(&records[0].body, RecordBody::Source(change) if change.anchors_digest == [7; 32]));
    }

    #[tokio::test]
    async fn erased_evidence_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let running = run(folder.path());
        let source = running.open().await;
        let alice = PrincipalName::parse("https://id".to_owned(), Some("alice".to_owned())).unwrap();
        let event = v1::Entry {
            entry: Some(Kind::Event(v1::Event {
                principal: Some(alice.to_wire()),
                ..Default::default()
            })),
        };
        let batch = v1::Batch {
            first_sequence: 1,
            entries: vec![event],
        };
        let report = Report::Store {
            source: source.source.clone(),
            generation: source.generation,
            batch: checked(&batch),
            room: None,
        };
        running.handle.perform(report).await.unwrap();
        let erase = || Erase {
            principal: alice.clone(),
            by: "dpo".to_owned(),
            reason: "request".to_owned(),
        };
        assert!(running.handle.erase(erase()).await.unwrap().is_some());
        assert_eq!(running.handle.erase(erase()).await.unwrap(), None);
        let contents = running.contents();
        assert_eq!(contents[..2], ["Started", "Erased"]);
        assert!(
            contents[2].contains("Erasure") && !contents[2].contains("alice"),
            "{contents:?}"
        );
    }

    #[tokio::test]
    async fn while_a_principal_is_counted_there_are_at_most_20_writes_a_second() {
        let folder = tempfile::tempdir().unwrap();
        let bounds = LedgerBounds {
            total: 20_000,
            segment: 20_000,
            keys: 100,
        };
        let running = run_with(folder.path(), bounds);
        let source = running.open().await;
        let event = v1::Entry {
            entry: Some(Kind::Event(v1::Event {
                principal: Some(v1::Principal {
                    issuer: "https://id".to_owned(),
                    subject: Some("flooding".to_owned()),
                }),
                ..Default::default()
            })),
        };
        let store = |first_sequence, entries| Report::Store {
            source: source.source.clone(),
            generation: source.generation,
            batch: checked(&v1::Batch {
                first_sequence,
                entries,
            }),
            room: None,
        };
        running
            .handle
            .perform(store(1, vec![event.clone(); 140]))
            .await
            .unwrap();
        let begun = Instant::now();
        for sequence in 141..=145 {
            running
                .handle
                .perform(store(sequence, vec![event.clone()]))
                .await
                .unwrap();
        }
        assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
        assert!(running.contents().iter().filter(|entry| *entry == "0").count() >= 5);
    }

    #[tokio::test]
    async fn a_damaged_ledger_refuses_everything_and_says_why() {
        let metrics = Metrics::new(&mut prometheus_client::registry::Registry::default());
        let handle = damaged("segment 3 is missing", &metrics);
        let report = Report::Open {
            node: String::new(),
            plugin: String::new(),
            peer: String::new(),
            anchors_digest: Vec::new(),
        };
        let refused = handle.perform(report).await.unwrap_err().to_string();
        assert!(refused.contains("segment 3 is missing"), "{refused}");
        assert!(handle.fault().unwrap().contains("segment 3 is missing"));
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
                arriving: None,
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
                arriving: None,
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
                arriving: None,
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
                arriving: None,
            })
            .await;
        assert!(matches!(gone, Err(ReportError::UnknownSource)));
        assert_eq!(running.contents(), ["Started", "1", "Lost", "Returned", "Ended"]);
    }

    fn resume(source: &str, acknowledged: u64) -> Report {
        Report::Resume {
            source: source.to_owned(),
            anchors_digest: Vec::new(),
            arriving: Some(Arriving {
                acknowledged,
                node: "node".to_owned(),
                plugin: "plugin".to_owned(),
                peer: "peer".to_owned(),
            }),
        }
    }

    #[tokio::test]
    async fn a_source_from_another_replica_goes_on_after_what_that_one_has() {
        let folder = tempfile::tempdir().unwrap();
        let running = run(folder.path());
        let source = SourceName([7; 16]).to_string();
        let here = running.handle.perform(resume(&source, 5)).await.unwrap();
        assert!(here.has_arrived && here.last_sequence == 5);
        let gap = running.store(&here, 7, 1).await;
        assert!(matches!(gap, Err(ReportError::SequenceGap { expected: 6, .. })));
        assert_eq!(running.store(&here, 6, 2).await.unwrap(), 7);
        // What this ledger has, although its acknowledgement did not arrive, is not stored again.
        let again = running.handle.perform(resume(&source, 6)).await.unwrap();
        assert!(!again.has_arrived && again.last_sequence == 7);
        assert_eq!(running.contents(), ["Arrived", "6", "7"]);
    }

    #[tokio::test]
    async fn a_source_that_moved_is_not_awaited_and_may_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let running = run(folder.path());
        let old = running.open().await;
        running.store(&old, 1, 2).await.unwrap();
        let moved = || Report::Move {
            source: old.source.clone(),
            ledger: "other".to_owned(),
        };
        running.handle.perform(moved()).await.unwrap();
        assert!(matches!(running.store(&old, 3, 1).await, Err(ReportError::Superseded)));
        running.handle.perform(moved()).await.unwrap();
        running.writer.stop().await;
        let running = run(folder.path());
        assert!(running.awaited.is_empty());
        let back = running.handle.perform(resume(&old.source, 9)).await.unwrap();
        assert!(back.has_arrived);
        assert_eq!(running.store(&back, 10, 1).await.unwrap(), 10);
        let unheard_of = running.handle.perform(resume(&old.source, 12)).await.unwrap();
        assert_eq!(unheard_of.last_sequence, 12);
        let expected = ["Started", "1", "2", "Moved", "Arrived", "10", "Moved", "Arrived"];
        assert_eq!(running.contents(), expected);
    }

    #[tokio::test]
    async fn a_full_ledger_refuses_names_the_reason_and_forgets_the_attempt() {
        let folder = tempfile::tempdir().unwrap();
        let running = run_with(
            folder.path(),
            LedgerBounds {
                total: 4000,
                segment: 4000,
                keys: 100,
            },
        );
        let source = running.open().await;
        let refused = running.store(&source, 1, 300).await;
        assert!(matches!(refused, Err(ReportError::Storage(_))));
        assert!(running.handle.fault().unwrap().contains("--ledger-bytes"));
        // The retention does not help either, because there is nothing to remove.
        let (answer, answered) = oneshot::channel();
        let retain = Message::Retain(running.published(), answer);
        running.handle.send(retain).await.unwrap();
        assert!(!answered.await.unwrap());
        assert!(running.handle.fault().is_some());
        assert_eq!(running.store(&source, 1, 1).await.unwrap(), 1);
        assert_eq!(running.handle.fault(), None);
    }

    #[tokio::test]
    async fn everything_beyond_the_retention_is_removed_part_by_part() {
        let folder = tempfile::tempdir().unwrap();
        let bounds = LedgerBounds {
            total: 1 << 30,
            segment: 1,
            keys: 100,
        };
        let retention = Retention {
            bytes: Some(1),
            age: None,
        };
        let running = run_keeping(folder.path(), bounds, retention);
        let source = running.open().await;
        running.store(&source, 1, 1000).await.unwrap();
        let (_publisher, published) = watch::channel(Some(running.published()));
        let keeping = running
            .handle
            .clone()
            .keep_retention(Duration::from_secs(3600), published);
        let removed = async {
            while running.reader.first() < 768 {
                tokio::task::yield_now().await;
            }
        };
        let within = Duration::from_secs(20);
        tokio::select! {
            () = keeping => panic!("it ended"),
            removed = tokio::time::timeout(within, removed) => removed.unwrap(),
        }
        assert_eq!(running.store(&source, 1001, 1).await.unwrap(), 1001);
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
