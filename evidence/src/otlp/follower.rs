//! Goes through the ledger in order and remembers, durably, how far it came.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use credence_storage::folder_lock::FolderWatch;
use credence_storage::small_file::{Contents, SmallFileError};
use credence_storage::{durable, small_file};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use prost::Message as _;

use super::mapping::{Origin, log_record};
use super::metrics::Metrics;
use super::records::FollowedLedger;
use super::sender::{OtlpError, Outcome, Sender};

/// Sends every record of a ledger to a collector, in order, each at least once.
#[derive(Debug)]
pub(crate) struct Follower {
    ledger: FollowedLedger,
    sender: Sender,
    cursor: Cursor,
    origin: Origin,
    metrics: Arc<Metrics>,
    /// Records that a request may have; fewer for a while after one was too large.
    at_once: usize,
    /// Read and mapped, and not yet sent; the first is the cursor's.
    pending: Vec<LogRecord>,
}

/// Where the next record's index is kept.
#[derive(Debug, Clone)]
pub(crate) struct CursorFile {
    folder: PathBuf,
    watch: FolderWatch,
}

/// The index of the next record to send.
#[derive(Debug)]
struct Cursor {
    file: CursorFile,
    next: u64,
    written: u64,
    written_at: Instant,
}

// === impl Follower ===

impl Follower {
    pub(crate) fn open(
        ledger: FollowedLedger,
        sender: Sender,
        file: CursorFile,
        instance: String,
        metrics: Arc<Metrics>,
    ) -> Result<Self, OtlpError> {
        let next = file.read()?;
        Ok(Self {
            ledger,
            sender,
            cursor: Cursor {
                file,
                next,
                written: next,
                written_at: Instant::now(),
            },
            origin: Origin { instance },
            metrics,
            at_once: MAX_RECORDS,
            pending: Vec::new(),
        })
    }

    /// Sends for as long as it is polled. It can be dropped at any time: what was taken since the cursor was written is
    /// sent again then.
    pub(crate) async fn follow(mut self) {
        let mut wait = Backoff::default();
        loop {
            match self.step().await {
                Ok(Step::Sent) => wait = Backoff::default(),
                Ok(Step::NothingNew(size)) => {
                    self.cursor.write().await;
                    self.ledger.grown(size).await;
                }
                Err(Delay { after, message }) => {
                    self.metrics.failures.inc();
                    let pause = wait.next(after);
                    tracing::warn!(
                        message,
                        next = self.cursor.next,
                        seconds = pause.as_secs_f64(),
                        "the OpenTelemetry collector did not take evidence; it will be sent again (the ledger is not affected)"
                    );
                    self.cursor.write().await;
                    self.note_waiting();
                    // Read again then: what is erased while the collector is away must not be sent afterwards.
                    self.pending = Vec::new();
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    async fn step(&mut self) -> Result<Step, Delay> {
        if self.pending.is_empty()
            && let Some(size) = self.read().await?
        {
            return Ok(Step::NothingNew(size));
        }
        let count = self.fitting();
        let request = ExportLogsServiceRequest {
            resource_logs: vec![self.origin.logs(self.pending.iter().take(count).cloned().collect())],
        };
        let sent = count as u64;
        match self.sender.send(request).await {
            Outcome::Taken { refused, message } => {
                let refused = refused.min(sent);
                if refused > 0 || !message.is_empty() {
                    tracing::warn!(
                        refused,
                        message,
                        "the OpenTelemetry collector took evidence and complained"
                    );
                }
                self.metrics.sent.inc_by(sent - refused);
                self.metrics.refused.inc_by(refused);
            }
            Outcome::TooLarge { .. } if count > 1 => {
                self.at_once = count / 2;
                return Ok(Step::Sent);
            }
            Outcome::TooLarge { message } | Outcome::Refused { message } => {
                tracing::error!(
                    message,
                    first = self.cursor.next,
                    records = sent,
                    "the OpenTelemetry collector refuses records for good; they are in the ledger only"
                );
                self.metrics.refused.inc_by(sent);
            }
            Outcome::Later { after, message } => return Err(Delay { after, message }),
        }
        self.at_once = (self.at_once * 2).min(MAX_RECORDS);
        self.pending.drain(..count);
        self.cursor.advance(self.cursor.next.saturating_add(sent)).await;
        self.metrics.waiting.dec_by(i64::try_from(sent).unwrap_or_default());
        Ok(Step::Sent)
    }

    /// Reads what comes next; the ledger's size, if there is nothing.
    async fn read(&mut self) -> Result<Option<u64>, Delay> {
        let (ledger, next) = (self.ledger.clone(), self.cursor.next);
        let reading = tokio::task::spawn_blocking(move || {
            let held = ledger.held()?;
            // Records that are gone can not be sent; and a ledger that was restored may be shorter than it was.
            let from = next.clamp(held.start, held.end);
            let mapped = match from < held.end {
                true => ledger
                    .read(from..held.end, MAX_RECORDS)?
                    .iter()
                    .map(log_record)
                    .collect(),
                false => Vec::new(),
            };
            Ok((held, from, mapped))
        });
        let failed = |message| Delay { after: None, message };
        let (held, from, mapped): (_, _, Vec<LogRecord>) = reading
            .await
            .map_err(|error| failed(error.to_string()))?
            .map_err(|error: String| failed(format!("the ledger can not be read: {error}")))?;
        if from > next {
            let missed = from - next;
            self.metrics.missed.inc_by(missed);
            tracing::error!(
                missed,
                "evidence was removed from the ledger before the OpenTelemetry collector took it"
            );
        } else if from < next {
            tracing::warn!(
                next,
                size = held.end,
                "the ledger is shorter than it was; going on at its end"
            );
        }
        self.cursor.advance(from).await;
        self.metrics
            .waiting
            .set(i64::try_from(held.end.saturating_sub(from)).unwrap_or(i64::MAX));
        if from < held.end && mapped.is_empty() {
            return Err(failed(format!("the ledger has no record {from}, which it should have")));
        }
        self.pending = mapped;
        Ok(self.pending.is_empty().then_some(held.end))
    }

    /// While nothing is taken, what waits grows.
    fn note_waiting(&self) {
        if let Ok(held) = self.ledger.held() {
            let waiting = held.end.saturating_sub(self.cursor.next);
            self.metrics.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        }
    }

    /// How many of the pending records make one request; at least one.
    fn fitting(&self) -> usize {
        let mut bytes = 0;
        let fitting = self.pending.iter().take(self.at_once).take_while(|record| {
            bytes += record.encoded_len() + RECORD_OVERHEAD;
            bytes <= MAX_BYTES
        });
        fitting.count().max(1)
    }
}

enum Step {
    Sent,
    /// The ledger has so many records, and all of them were sent.
    NothingNew(u64),
}

/// It has to be tried again.
struct Delay {
    after: Option<Duration>,
    message: String,
}

/// Longer and longer, and never the same for two control planes.
#[derive(Debug, Default)]
struct Backoff {
    failures: u32,
}

// === impl Backoff ===

impl Backoff {
    /// `after` is what the collector asked for.
    fn next(&mut self, after: Option<Duration>) -> Duration {
        let longest = FIRST_PAUSE
            .saturating_mul(1 << self.failures.min(16))
            .min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        let mut random = [0; 4];
        // Without randomness it is the longest.
        let share = match getrandom::fill(&mut random) {
            Ok(()) => f64::from(u32::from_le_bytes(random)) / f64::from(u32::MAX),
            Err(_) => 1.0,
        };
        let pause = longest.mul_f64(0.5 + share / 2.0);
        pause.max(after.unwrap_or_default().min(LONGEST_PAUSE_ASKED_FOR))
    }
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
        let (file, next) = (self.file.clone(), self.next);
        let writing = tokio::task::spawn_blocking(move || file.write(next));
        match writing.await.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(()) => self.written = next,
            Err(error) => {
                tracing::warn!(%error, "how far evidence was sent could not be written; more of it is sent again after a restart");
            }
        }
    }
}

// === impl CursorFile ===

impl CursorFile {
    /// In this folder, which is made if it is not there.
    pub(crate) fn open(folder: &Path, watch: FolderWatch) -> Result<Self, OtlpError> {
        let failed = |error| OtlpError::Cursor {
            path: folder.to_owned(),
            error,
        };
        match durable::create_folder(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        Ok(Self {
            folder: folder.to_owned(),
            watch,
        })
    }

    fn read(&self) -> Result<u64, OtlpError> {
        let path = self.folder.join(CURSOR);
        let failed = |error| OtlpError::Cursor {
            path: path.clone(),
            error,
        };
        let unreadable = || {
            failed(io::Error::other(
                "it is not the index of a record; write the index to go on with, or remove it to send everything",
            ))
        };
        match small_file::read(&self.folder, CURSOR, 64) {
            Ok(Some(Contents::Checked(text) | Contents::Plain(text))) => std::str::from_utf8(&text)
                .ok()
                .and_then(|text| text.trim().parse().ok())
                .ok_or_else(unreadable),
            Ok(None) => Ok(0),
            Err(SmallFileError::Damaged) => Err(unreadable()),
            Err(SmallFileError::Io(error)) => Err(failed(error)),
        }
    }

    fn write(&self, next: u64) -> io::Result<()> {
        self.watch.check_before_writing()?;
        small_file::write(&self.folder, CURSOR, format!("{next}\n").as_bytes())
    }
}

const CURSOR: &str = "cursor";
/// Records of one request.
const MAX_RECORDS: usize = 1_000;
/// Bytes of one request: collectors take 4 MiB unless told otherwise.
const MAX_BYTES: usize = 1 << 20;
/// The tag and length before each record.
const RECORD_OVERHEAD: usize = 8;
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const LONGEST_PAUSE_ASKED_FOR: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_are_never_shorter_than_asked() {
        let mut backoff = Backoff::default();
        let first = backoff.next(None);
        assert!(first >= FIRST_PAUSE / 2 && first <= FIRST_PAUSE);
        for _ in 0..100 {
            assert!(backoff.next(None) <= LONGEST_PAUSE);
        }
        assert!(backoff.next(None) >= LONGEST_PAUSE / 2);
        assert_eq!(backoff.next(Some(Duration::from_secs(60))), Duration::from_secs(60));
        assert_eq!(backoff.next(Some(Duration::MAX)), LONGEST_PAUSE_ASKED_FOR);
    }

    #[test]
    fn a_cursor_that_can_not_be_read_is_refused_with_the_cure() {
        let folder = tempfile::tempdir().unwrap();
        let open = || CursorFile::open(&folder.path().join("otlp"), FolderWatch::of_nothing()).unwrap();
        let file = open();
        assert_eq!(file.read().unwrap(), 0);
        file.write(7).unwrap();
        assert_eq!(open().read().unwrap(), 7);
        std::fs::write(folder.path().join("otlp/cursor"), "seven").unwrap();
        assert!(file.read().unwrap_err().to_string().contains("write the index"));
    }
}
