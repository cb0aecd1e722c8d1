//! Follows the ledger in order, and stores its progress durably.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use credence_ledger::LedgerReader;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use prost::Message as _;

use super::mapping::{log_record, resource_logs};
use super::metrics::Metrics;
use super::sender::{Outcome, Sender};
use crate::cursors::Cursors;

/// Sends every record of a ledger to a collector, in order, each at least once.
#[derive(Debug)]
pub(crate) struct Follower {
    reader: LedgerReader,
    sender: Sender,
    cursor: Cursor,
    /// The `log_id`.
    instance: String,
    metrics: Arc<Metrics>,
    /// The number of records in a request; smaller for a while after a request was too large.
    at_once: usize,
    /// Records that were read and mapped, but not yet sent. The first one is at the cursor.
    pending: Vec<LogRecord>,
}

/// The index of the next record to send.
#[derive(Debug)]
struct Cursor {
    cursors: Arc<Cursors>,
    next: u64,
    written: u64,
    written_at: Instant,
}

// === impl Follower ===

impl Follower {
    pub(crate) fn open(
        reader: LedgerReader,
        sender: Sender,
        cursors: Arc<Cursors>,
        instance: String,
        metrics: Arc<Metrics>,
    ) -> Result<Self, redb::Error> {
        let next = cursors.otlp()?;
        Ok(Self {
            reader,
            sender,
            cursor: Cursor {
                cursors,
                next,
                written: next,
                written_at: Instant::now(),
            },
            instance,
            metrics,
            at_once: MAX_RECORDS,
            pending: Vec::new(),
        })
    }

    /// Sends for as long as it is polled. It can be dropped at any time: records that were sent since the cursor was
    /// last written are then sent again.
    pub(crate) async fn follow(mut self) {
        let mut growth = self.reader.growth();
        let mut pauses = PAUSES.build();
        loop {
            let step = self.step().await;
            self.note_waiting();
            match step {
                Ok(None) => pauses = PAUSES.build(),
                Ok(Some(size)) => {
                    self.cursor.write().await;
                    if growth.wait_for(|now| *now > size).await.is_err() {
                        // The ledger will not grow any more.
                        std::future::pending().await
                    }
                }
                Err(Delay { after, message }) => {
                    self.metrics.failures.inc();
                    let pause = pauses.next().unwrap_or(LONGEST_PAUSE);
                    let pause = pause.max(after.unwrap_or_default().min(LONGEST_PAUSE_ASKED_FOR));
                    tracing::warn!(
                        message,
                        next = self.cursor.next,
                        seconds = pause.as_secs_f64(),
                        "the OpenTelemetry collector did not accept evidence; it will be sent again (the ledger is not \
                         affected)"
                    );
                    self.cursor.write().await;
                    // They are read again later: records that are erased while the collector is unavailable must not be
                    // sent.
                    self.pending = Vec::new();
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Sends the next records. Returns the ledger's size if all were sent.
    async fn step(&mut self) -> Result<Option<u64>, Delay> {
        if self.pending.is_empty()
            && let Some(size) = self.read().await?
        {
            return Ok(Some(size));
        }
        let count = self.fitting();
        let request = ExportLogsServiceRequest {
            resource_logs: vec![resource_logs(
                &self.instance,
                self.pending.iter().take(count).cloned().collect(),
            )],
        };
        let sent = count as u64;
        match self.sender.send(request).await {
            Outcome::Taken { refused, message } => {
                let refused = refused.min(sent);
                if refused > 0 || !message.is_empty() {
                    tracing::warn!(
                        refused,
                        message,
                        "the OpenTelemetry collector accepted evidence with a warning"
                    );
                }
                self.metrics.sent.inc_by(sent - refused);
                self.metrics.refused.inc_by(refused);
            }
            Outcome::TooLarge { .. } if count > 1 => {
                self.at_once = count / 2;
                return Ok(None);
            }
            Outcome::TooLarge { message } | Outcome::Refused { message } => {
                tracing::error!(
                    message,
                    first = self.cursor.next,
                    records = sent,
                    "the OpenTelemetry collector refuses records permanently; they are in the ledger only"
                );
                self.metrics.refused.inc_by(sent);
            }
            Outcome::Later { after, message } => return Err(Delay { after, message }),
        }
        self.at_once = (self.at_once * 2).min(MAX_RECORDS);
        self.pending.drain(..count);
        self.cursor.advance(self.cursor.next.saturating_add(sent)).await;
        Ok(None)
    }

    /// Reads the next records. Returns the ledger's size if there are none.
    async fn read(&mut self) -> Result<Option<u64>, Delay> {
        let (reader, next) = (self.reader.clone(), self.cursor.next);
        let reading = tokio::task::spawn_blocking(move || {
            let held = held(&reader)?;
            // Removed records cannot be sent. A restored ledger may be shorter than before.
            let from = next.clamp(held.start, held.end);
            let records = reader.records(from..held.end.min(from.saturating_add(MAX_RECORDS as u64)));
            let mapped = records
                .map_err(|error| error.to_string())?
                .iter()
                .map(log_record)
                .collect();
            Ok((held, from, mapped))
        });
        let failed = |message| Delay { after: None, message };
        let (held, from, mapped): (_, _, Vec<LogRecord>) = reading
            .await
            .map_err(|error| failed(error.to_string()))?
            .map_err(|error: String| failed(format!("the ledger cannot be read: {error}")))?;
        if from > next {
            let missed = from - next;
            self.metrics.missed.inc_by(missed);
            tracing::error!(
                missed,
                "evidence was removed from the ledger before the OpenTelemetry collector accepted it"
            );
        } else if from < next {
            tracing::warn!(
                next,
                size = held.end,
                "the ledger is shorter than it was; the export continues at its end"
            );
        }
        self.cursor.advance(from).await;
        if from < held.end && mapped.is_empty() {
            return Err(failed(format!("the ledger lacks record {from}")));
        }
        self.pending = mapped;
        Ok(self.pending.is_empty().then_some(held.end))
    }

    /// Called while nothing is accepted, too, because the backlog grows.
    fn note_waiting(&self) {
        if let Ok(held) = held(&self.reader) {
            let waiting = held.end.saturating_sub(self.cursor.next);
            self.metrics.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        }
    }

    /// The number of pending records that fit one request; at least one.
    fn fitting(&self) -> usize {
        let mut bytes = 0;
        let fitting = self.pending.iter().take(self.at_once).take_while(|record| {
            bytes += record.encoded_len() + RECORD_OVERHEAD;
            bytes <= MAX_BYTES
        });
        fitting.count().max(1)
    }
}

/// The readable indexes. If the ledger could not be opened, they are unknown, not empty.
fn held(reader: &LedgerReader) -> Result<Range<u64>, String> {
    reader.records(0..0).map_err(|error| error.to_string())?;
    let first = reader.first();
    Ok(first..reader.size().max(first))
}

/// The step must be tried again.
struct Delay {
    after: Option<Duration>,
    message: String,
}

// === impl Cursor ===

impl Cursor {
    async fn advance(&mut self, next: u64) {
        self.next = next;
        if self.written_at.elapsed() >= WRITE_INTERVAL {
            self.write().await;
        }
    }

    async fn write(&mut self) {
        if self.next == self.written {
            return;
        }
        self.written_at = Instant::now();
        let (cursors, next) = (Arc::clone(&self.cursors), self.next);
        let writing = tokio::task::spawn_blocking(move || cursors.set_otlp(next).map_err(|error| error.to_string()));
        match writing.await.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(()) => self.written = next,
            Err(error) => {
                tracing::warn!(
                    error,
                    "the progress of the export could not be saved; after a restart, more evidence is sent again"
                );
            }
        }
    }
}

/// Records in one request.
const MAX_RECORDS: usize = 1_000;
/// Bytes in one request: collectors accept 4 MiB by default.
const MAX_BYTES: usize = 1 << 20;
/// The tag and length before each record.
const RECORD_OVERHEAD: usize = 8;
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// Before jitter, which adds up to as much again.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(250))
    .with_max_delay(LONGEST_PAUSE)
    .without_max_times()
    .with_jitter();
const LONGEST_PAUSE_ASKED_FOR: Duration = Duration::from_secs(300);
