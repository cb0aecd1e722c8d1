//! Evidence that arrives without a stream, one batch a request, under the same rules as on a stream: exactly the next
//! sequence number is taken, what is known already is harmless, and nothing is acknowledged before it is durable.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_wire::v1;
use prost::bytes::Bytes;

use super::ingest::{BatchBounds, BoundedBatch, IngestError};
use super::seen::SeenOfLate;
use super::sources::{Reserved, Sources};
use super::ticket::TicketKey;
use super::writer::{LedgerHandle, Receipt, Report, ReportError};
use credence_runtime::caller::{Caller, PeerName};
use credence_runtime::client_limits::{Client, NoPlace};
use credence_runtime::lifecycle::{Phase, PhaseWatch};
use credence_runtime::text::shorten;
use credence_runtime::turns::{Turn, Turns};

/// Takes evidence in for sources without a stream.
/// Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Intake {
    pub ledger: LedgerHandle,
    pub sources: Arc<Sources>,
    pub tickets: TicketKey,
    /// Memory for evidence that is not on disk yet, shared by all who report, in units of 1 KiB.
    pub memory: Turns,
    /// What one batch may hold once it is encoded.
    pub bounds: BatchBounds,
    /// How long a batch may wait for room in memory.
    pub patience: Duration,
    pub phase: PhaseWatch,
}

/// Who reports.
#[derive(Debug, Clone)]
pub struct Reporter {
    pub peer: PeerName,
    /// Absent only in tests.
    pub caller: Option<Arc<Caller>>,
    pub address: Option<IpAddr>,
}

/// What a source has to show with every request, beside its credential: `<source>.<secret in base64url>`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub struct TicketText(pub String);

/// Why nothing was taken.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    #[error("there is no such source of this credential; begin one with POST /v1/audit/sources")]
    NoSuchSource,
    #[error("{0}")]
    TooManySources(NoPlace),
    #[error("too much evidence is on its way to the disk already; nothing was stored, send it again")]
    NoRoom,
    #[error(transparent)]
    Batch(#[from] IngestError),
    #[error(transparent)]
    Report(ReportError),
}

// === impl Intake ===

impl Intake {
    /// Names a new source, durably. `node` and `plugin` are what it says of itself.
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

    /// How far the source is known. Asking is a sign of life.
    pub async fn position(&self, ticket: &TicketText, reporter: &Reporter) -> Result<Receipt, NotTaken> {
        let source = self.source(ticket, reporter)?;
        self.resume(&source, reporter).await
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
        let room = tokio::time::timeout(self.patience, self.room(&reporter.client(), &batch))
            .await
            .map_err(|_| NotTaken::NoRoom)?;
        let generation = self.present(&source, reporter).await?;
        let report = Report::Store {
            source: source.clone(),
            generation,
            batch,
            room: Some(room),
        };
        let receipt = self.ledger.perform(report).await?;
        // What took long to store was no silence of the source's. If it has ended meanwhile, that is that.
        drop(self.sources.reserve(Some(&source), &reporter.client(), Instant::now()));
        Ok(receipt)
    }

    /// Ends the source: nothing is outstanding.
    pub async fn close(&self, ticket: &TicketText, reporter: &Reporter) -> Result<(), NotTaken> {
        let source = self.source(ticket, reporter)?;
        let generation = self.present(&source, reporter).await?;
        Ok(self.end(source, generation).await?)
    }

    /// The source has said Bye on this stream of it.
    pub(crate) async fn end(&self, source: String, generation: u64) -> Result<(), ReportError> {
        let ended = self.ledger.perform(Report::Close { source, generation }).await?;
        self.sources.remove(&ended.source, generation);
        Ok(())
    }

    /// Waits for room. A batch that is larger than the client's share takes all of the share. What is returned goes with the
    /// evidence to the ledger's writer, which frees it, so that no stream can hold what another waits for.
    pub(crate) async fn room(&self, client: &Client, batch: &BoundedBatch) -> Turn {
        let units = u32::try_from(batch.cost().div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        self.memory.take(client, units).await
    }

    /// The source that the ticket names, if it was given to this peer.
    fn source(&self, ticket: &TicketText, reporter: &Reporter) -> Result<String, NotTaken> {
        self.check_phase()?;
        let ticket = ticket
            .parse()
            .filter(|ticket| self.tickets.is_of(ticket, Some(&reporter.peer.0)));
        ticket.map(|ticket| ticket.source).ok_or(NotTaken::NoSuchSource)
    }

    /// The source's generation, after it was resumed if it had been given up or another run knew it.
    async fn present(&self, source: &str, reporter: &Reporter) -> Result<u64, NotTaken> {
        let _place = self.sources.reserve(Some(source), &reporter.client(), Instant::now())?;
        match self.sources.generation(source) {
            Some(generation) => Ok(generation),
            None => Ok(self.resume(source, reporter).await?.generation),
        }
    }

    async fn resume(&self, source: &str, reporter: &Reporter) -> Result<Receipt, NotTaken> {
        let place = self.sources.reserve(Some(source), &reporter.client(), Instant::now())?;
        let report = Report::Resume {
            source: source.to_owned(),
            anchors_digest: Vec::new(),
        };
        self.attach(place, report).await
    }

    /// Has the ledger name a source, or take it back, and notes that it is there. Both or neither: the request may be given
    /// up in between, and the ledger would then know a generation that no client reports under.
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

/// What memory for evidence is counted in.
pub(crate) const UNIT_BYTES: usize = 1 << 10;

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
                    patience: Duration::from_secs(10),
                    phase: lifecycle.watch(),
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

    /// As a server does whose client goes away, or has waited for long enough.
    fn give_up<F: Future>(request: F) {
        let mut request = Box::pin(request);
        _ = request.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }

    #[tokio::test]
    async fn a_source_whose_request_was_given_up_can_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let running = Running::new(folder.path());
        let opened = running.intake.open(String::new(), String::new(), &running.reporter);
        let (ticket, _) = opened.await.unwrap();
        assert_eq!(running.store(&ticket, 1).await.unwrap(), 1);
        give_up(running.intake.position(&ticket, &running.reporter));
        // As it is told to: "send this one again".
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
    async fn a_source_that_was_opened_in_vain_is_given_up_like_any_other() {
        let folder = tempfile::tempdir().unwrap();
        let running = Running::new(folder.path());
        give_up(running.intake.open(String::new(), String::new(), &running.reporter));
        let opened = running.intake.open(String::new(), String::new(), &running.reporter);
        opened.await.unwrap();
        let overdue = running.intake.sources.overdue(Duration::ZERO, Instant::now());
        assert_eq!(overdue.len(), 2, "the ledger has named two");
    }
}
