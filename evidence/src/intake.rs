//! Evidence that arrives without a stream, one batch per request. The rules are those of streams: only the next
//! sequence numbers are accepted, repetitions are harmless, and nothing is acknowledged before it is durable.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_wire::v1;
use prost::bytes::Bytes;

use super::arrivals::Arrivals;
use super::ingest::{BatchBounds, BoundedBatch, IngestError};
use super::seen::SeenOfLate;
use super::sources::{Reserved, Sources};
use super::ticket::TicketKey;
use super::writer::{Arriving, LedgerHandle, Receipt, Report, ReportError};
use credence_runtime::caller::{Caller, PeerName};
use credence_runtime::client_limits::{Client, NoPlace};
use credence_runtime::lifecycle::{Phase, PhaseWatch};
use credence_runtime::text::shorten;
use credence_runtime::turns::{Turn, Turns};

/// Accepts evidence of sources without a stream. Clones share the same state.
#[derive(Debug, Clone)]
pub struct Intake {
    pub ledger: LedgerHandle,
    pub sources: Arc<Sources>,
    pub tickets: TicketKey,
    /// Memory for evidence that is not on disk yet, shared by all clients, in units of 1 KiB.
    pub memory: Turns,
    /// The limits of one encoded batch.
    pub bounds: BatchBounds,
    /// How long a batch may wait for memory.
    pub send_timeout: Duration,
    pub phase: PhaseWatch,
    /// Present if there are other replicas.
    pub arrivals: Option<Arrivals>,
}

/// The client that reports.
#[derive(Debug, Clone)]
pub struct Reporter {
    pub peer: PeerName,
    /// Absent only in tests.
    pub caller: Option<Arc<Caller>>,
    pub address: Option<IpAddr>,
}

/// What a source shows with every request, besides its credential: `<source>.<secret in base64url>`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub struct TicketText(pub String);

/// Why nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    #[error("this credential has no such source; open one with POST /v1/audit/sources")]
    NoSuchSource,
    #[error("{0}")]
    TooManySources(NoPlace),
    #[error("too much evidence is waiting for the disk already; nothing was stored, send it again")]
    NoRoom,
    #[error(transparent)]
    Batch(#[from] IngestError),
    #[error(transparent)]
    Report(ReportError),
}

// === impl Intake ===

impl Intake {
    /// Names a new source, durably. The source chose `node` and `plugin`.
    pub async fn open(
        &self,
        node: String,
        plugin: String,
        reporter: &Reporter,
    ) -> Result<(TicketText, Receipt), NotTaken> {
        self.check_phase()?;
        let place = self.sources.reserve(None, &reporter.client(), Instant::now())?;
        let address = reporter
            .address
            .map_or_else(|| "address unknown".to_owned(), |address| address.to_string());
        let report = Report::Open {
            node: shorten(node),
            plugin: shorten(plugin),
            anchors_digest: Vec::new(),
            peer: format!("{} ({address}, HTTP)", shorten(reporter.peer.0.clone())),
        };
        let receipt = self.attach(place, report).await?;
        let ticket = self.tickets.ticket(&receipt.source, Some(&reporter.peer.0));
        Ok((TicketText::of(&ticket), receipt))
    }

    /// The last stored sequence number of the source. The request counts as a sign of life.
    pub async fn position(&self, ticket: &TicketText, reporter: &Reporter) -> Result<Receipt, NotTaken> {
        let source = self.source(ticket, reporter)?;
        self.resume(&source, reporter, None).await
    }

    /// Stores a batch, an encoded [`v1::Batch`].
    pub async fn store(&self, ticket: &TicketText, reporter: &Reporter, batch: Bytes) -> Result<Receipt, NotTaken> {
        let source = self.source(ticket, reporter)?;
        let batch = BoundedBatch::check_seen(
            batch,
            self.bounds,
            reporter.caller.as_deref(),
            &mut SeenOfLate::default(),
        )?;
        let room = tokio::time::timeout(self.send_timeout, self.room(&reporter.client(), &batch))
            .await
            .map_err(|_| NotTaken::NoRoom)?;
        let acknowledged = batch.first_sequence.checked_sub(1).map(|last| last.min(1 << 63));
        let generation = self.present(&source, reporter, acknowledged).await?;
        let report = Report::Store {
            source: source.clone(),
            generation,
            batch,
            room: Some(room),
        };
        let receipt = self.ledger.perform(report).await?;
        // A slow write was not the source's silence. If the source has ended meanwhile, nothing changes.
        drop(self.sources.reserve(Some(&source), &reporter.client(), Instant::now()));
        Ok(receipt)
    }

    /// Ends the source: it has no unacknowledged entries.
    pub async fn close(&self, ticket: &TicketText, reporter: &Reporter) -> Result<(), NotTaken> {
        let source = self.source(ticket, reporter)?;
        let generation = self.present(&source, reporter, None).await?;
        Ok(self.end(source, generation).await?)
    }

    /// Ends a source that said Bye on this stream.
    pub(crate) async fn end(&self, source: String, generation: u64) -> Result<(), ReportError> {
        let ended = self.ledger.perform(Report::Close { source, generation }).await?;
        self.sources.remove(&ended.source, generation);
        if let Some(arrivals) = &self.arrivals {
            arrivals.told(std::slice::from_ref(&ended.source));
        }
        Ok(())
    }

    /// Waits for memory. A batch that is larger than the client's share takes the whole share. The returned turn goes
    /// with the evidence to the ledger's writer, which frees it. So no stream can hold memory that another waits for.
    pub(crate) async fn room(&self, client: &Client, batch: &BoundedBatch) -> Turn {
        let units = u32::try_from(batch.cost().div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        self.memory.take(client, units).await
    }

    /// The source that the ticket names, if the ticket was issued to this peer.
    fn source(&self, ticket: &TicketText, reporter: &Reporter) -> Result<String, NotTaken> {
        self.check_phase()?;
        let ticket = ticket
            .parse()
            .filter(|ticket| self.tickets.is_of(ticket, Some(&reporter.peer.0)));
        ticket.map(|ticket| ticket.source).ok_or(NotTaken::NoSuchSource)
    }

    /// The source's generation. Resumes the source first, if it was given up, or comes from an earlier run or from
    /// another replica, which has `acknowledged` so much of it.
    async fn present(&self, source: &str, reporter: &Reporter, acknowledged: Option<u64>) -> Result<u64, NotTaken> {
        let _place = self.sources.reserve(Some(source), &reporter.client(), Instant::now())?;
        match self.sources.generation(source) {
            Some(generation) => Ok(generation),
            None => Ok(self.resume(source, reporter, acknowledged).await?.generation),
        }
    }

    async fn resume(&self, source: &str, reporter: &Reporter, acknowledged: Option<u64>) -> Result<Receipt, NotTaken> {
        let place = self.sources.reserve(Some(source), &reporter.client(), Instant::now())?;
        let arriving = |acknowledged| Arriving {
            acknowledged,
            node: String::new(),
            plugin: String::new(),
            peer: shorten(reporter.peer.0.clone()),
        };
        let report = Report::Resume {
            source: source.to_owned(),
            anchors_digest: Vec::new(),
            arriving: acknowledged.filter(|_| self.arrivals.is_some()).map(arriving),
        };
        let receipt = self.attach(place, report).await?;
        self.note_arrival(&receipt);
        Ok(receipt)
    }

    /// The source goes on in the ledger of another replica, which has this origin. If it is unknown here, nothing
    /// happens.
    pub async fn depart(&self, source: &str, ledger: &str) {
        loop {
            let report = Report::Move {
                source: source.to_owned(),
                ledger: ledger.to_owned(),
            };
            match self.ledger.perform(report).await {
                Ok(_) => {
                    tracing::info!(source, ledger, "an audit source went to another replica");
                    break;
                }
                Err(ReportError::Storage(_)) => tokio::time::sleep(DEPART_AGAIN).await,
                Err(_) => break,
            }
        }
        self.sources.depart(source);
    }

    /// The other replicas are told of a source that has come.
    pub(crate) fn note_arrival(&self, receipt: &Receipt) {
        if let Some(arrivals) = self.arrivals.as_ref().filter(|_| receipt.has_arrived) {
            arrivals.add(receipt.source.clone());
        }
    }

    /// Makes the ledger name or resume a source, and notes that the source is present. This happens completely or not
    /// at all. Otherwise, if the request is abandoned in between, the ledger would know a generation under which no
    /// client reports.
    async fn attach(&self, place: Reserved, report: Report) -> Result<Receipt, NotTaken> {
        let answered = self.ledger.submit(report).await?;
        let (ledger, sources) = (self.ledger.clone(), Arc::clone(&self.sources));
        let attached = tokio::spawn(async move {
            let receipt = answered.await.unwrap_or_else(|_| Err(ledger.gone()))?;
            sources.attached(place, &receipt.source, receipt.generation, Instant::now());
            Ok(receipt)
        });
        Ok(attached.await.unwrap_or(Err(ReportError::Died))?)
    }

    fn check_phase(&self) -> Result<(), NotTaken> {
        match self.phase.current() {
            Phase::Running => Ok(()),
            _ => Err(ReportError::Stopping.into()),
        }
    }
}

// === impl Reporter ===

impl Reporter {
    fn client(&self) -> Client {
        Client::new(Some(&self.peer.0), self.address)
    }
}

// === impl TicketText ===

impl TicketText {
    fn of(ticket: &v1::SourceTicket) -> Self {
        let secret = URL_SAFE_NO_PAD.encode(&ticket.secret);
        Self(format!("{}.{secret}", ticket.source))
    }

    fn parse(&self) -> Option<v1::SourceTicket> {
        let (source, secret) = self.0.split_once('.')?;
        Some(v1::SourceTicket {
            source: source.to_owned(),
            secret: URL_SAFE_NO_PAD.decode(secret).ok()?,
        })
    }
}

// === impl NotTaken ===

impl From<NoPlace> for NotTaken {
    fn from(refused: NoPlace) -> Self {
        Self::TooManySources(refused)
    }
}

impl From<ReportError> for NotTaken {
    fn from(error: ReportError) -> Self {
        match error {
            ReportError::UnknownSource => Self::NoSuchSource,
            other => Self::Report(other),
        }
    }
}

/// The unit of memory for evidence.
pub(crate) const UNIT_BYTES: usize = 1 << 10;

/// Until the ledger is told again that a source has left.
const DEPART_AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::path::Path;
    use std::task::{Context, Waker};

    use credence_ledger::{Ledger, LedgerBounds, LedgerOptions, Retention};
    use credence_wire::v1::entry::Entry;
    use prost::Message as _;

    use super::*;
    use crate::metrics::Metrics;
    use crate::seen::Seen;
    use crate::writer;
    use credence_runtime::client_limits::{Bounds, Places, ShareMetrics, SharedLimit, Shares};
    use credence_runtime::lifecycle::Lifecycle;
    use credence_runtime::supervision::Alarm;
    use credence_storage::folder_lock::FolderWatch;

    struct Running {
        intake: Intake,
        reporter: Reporter,
        _writer: credence_runtime::threads::Threads,
        _lifecycle: Lifecycle,
    }

    impl Running {
        fn new(folder: &Path) -> Self {
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
            let (ledger, _) = Ledger::open(folder, options).unwrap();
            let seen = Arc::new(Seen::new(1, 1));
            let (ledger, writer) = writer::start(
                ledger,
                FolderWatch::of_nothing(),
                seen,
                None,
                Arc::new(Metrics::new(&mut prometheus_client::registry::Registry::default())),
                &Alarm::default(),
            )
            .unwrap();
            let lifecycle = Lifecycle::default();
            let bounds = Bounds::new(
                10,
                Shares {
                    credential_percent: 50,
                    address_percent: 25,
                },
            );
            let places = Places::new(
                SharedLimit::AuditSources,
                bounds,
                &ShareMetrics::new(&mut prometheus_client::registry::Registry::default()),
            );
            Self {
                intake: Intake {
                    ledger,
                    sources: Arc::new(Sources::new(places, [], Instant::now())),
                    tickets: TicketKey::new([7; 32]),
                    memory: Turns::new(1 << 10, 50),
                    bounds: BatchBounds {
                        entries: 10,
                        bytes: 1 << 16,
                    },
                    send_timeout: Duration::from_secs(10),
                    phase: lifecycle.watch(),
                    arrivals: None,
                },
                reporter: Reporter {
                    peer: PeerName("reporter".to_owned()),
                    caller: None,
                    address: None,
                },
                _writer: writer,
                _lifecycle: lifecycle,
            }
        }

        async fn store(&self, ticket: &TicketText, first_sequence: u64) -> Result<u64, NotTaken> {
            let count = Entry::Aggregate(v1::Aggregate {
                count: 1,
                ..Default::default()
            });
            let batch = v1::Batch {
                first_sequence,
                entries: vec![v1::Entry { entry: Some(count) }],
            };
            let stored = self.intake.store(ticket, &self.reporter, batch.encode_to_vec().into());
            Ok(stored.await?.last_sequence)
        }
    }

    /// Drops the request, as a server does if its client goes away or a timeout ends it.
    fn give_up<F: Future>(request: F) {
        let mut request = Box::pin(request);
        _ = request.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }

    #[tokio::test]
    async fn a_source_whose_request_was_abandoned_can_continue() {
        let folder = tempfile::tempdir().unwrap();
        let running = Running::new(folder.path());
        let opened = running.intake.open(String::new(), String::new(), &running.reporter);
        let (ticket, _) = opened.await.unwrap();
        assert_eq!(running.store(&ticket, 1).await.unwrap(), 1);
        give_up(running.intake.position(&ticket, &running.reporter));
        // The client sends it again, as it is told.
        let stored = async {
            loop {
                match running.store(&ticket, 2).await {
                    Err(NotTaken::Report(ReportError::Superseded)) => tokio::task::yield_now().await,
                    other => return other,
                }
            }
        };
        let stored = tokio::time::timeout(Duration::from_secs(10), stored).await;
        assert_eq!(stored.unwrap().unwrap(), 2);
    }

    #[tokio::test]
    async fn a_source_that_was_opened_but_not_used_is_given_up_like_any_other() {
        let folder = tempfile::tempdir().unwrap();
        let running = Running::new(folder.path());
        give_up(running.intake.open(String::new(), String::new(), &running.reporter));
        let opened = running.intake.open(String::new(), String::new(), &running.reporter);
        opened.await.unwrap();
        let overdue = running.intake.sources.overdue(Duration::ZERO, Instant::now());
        assert_eq!(overdue.len(), 2, "the ledger has named two");
    }
}
