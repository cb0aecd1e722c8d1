//! Evidence that arrives without a stream, one batch a request, under the same rules as on a stream: exactly the next
//! sequence number is taken, what is known already is harmless, and nothing is acknowledged before it is durable.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_wire::v1;
use prost::bytes::Bytes;

use super::budget::Budget;
use super::ingest::{BatchBounds, BoundedBatch, IngestError};
use super::seen::SeenOfLate;
use super::sources::{Place, Sources, TooManySources};
use super::ticket::TicketKey;
use super::writer::{LedgerHandle, Receipt, Report, ReportError};
use crate::access::PeerName;
use crate::lifecycle::{Phase, PhaseWatch};
use crate::text::shorten;

/// Takes evidence in for sources without a stream.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) ledger: LedgerHandle,
    pub(crate) sources: Arc<Sources>,
    pub(crate) tickets: TicketKey,
    pub(crate) budget: Budget,
    /// What one batch may hold once it is encoded.
    pub(crate) bounds: BatchBounds,
    /// How long a batch may wait for room in memory.
    pub(crate) patience: Duration,
    pub(crate) phase: PhaseWatch,
}

/// What a source has to show with every request, beside its credential: `<source>.<secret in base64url>`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub(crate) struct TicketText(pub(crate) String);

/// Why nothing was taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotTaken {
    #[error("there is no such source of this credential; begin one with POST /v1/audit/sources")]
    NoSuchSource,
    #[error("there are as many audit sources as this control plane takes; try again when some have ended")]
    TooManySources,
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
    pub(crate) async fn open(
        &self,
        node: String,
        plugin: String,
        peer: &PeerName,
        address: Option<IpAddr>,
    ) -> Result<(TicketText, Receipt), NotTaken> {
        self.check_phase()?;
        let place = Sources::reserve(&self.sources, None, Instant::now())?;
        let address = address.map_or_else(|| "address unknown".to_owned(), |address| address.to_string());
        let report = Report::Open {
            node: shorten(node),
            plugin: shorten(plugin),
            anchors_digest: Vec::new(),
            peer: format!("{} ({address}, HTTP)", shorten(peer.0.clone())),
        };
        let receipt = self.ledger.perform(report).await?;
        self.attach(place, &receipt);
        let ticket = self.tickets.ticket(&receipt.source, Some(&peer.0));
        Ok((TicketText::of(&ticket), receipt))
    }

    /// How far the source is known. Asking is a sign of life.
    pub(crate) async fn position(&self, ticket: &TicketText, peer: &PeerName) -> Result<Receipt, NotTaken> {
        let source = self.source(ticket, peer)?;
        self.resume(&source).await
    }

    /// Stores a batch, an encoded [`v1::Batch`].
    pub(crate) async fn store(&self, ticket: &TicketText, peer: &PeerName, batch: Bytes) -> Result<Receipt, NotTaken> {
        let source = self.source(ticket, peer)?;
        let batch = BoundedBatch::check_seen(batch, self.bounds, &mut SeenOfLate::default())?;
        let room = tokio::time::timeout(self.patience, self.budget.take(batch.cost()))
            .await
            .map_err(|_| NotTaken::NoRoom)??;
        let generation = self.present(&source).await?;
        let report = Report::Store {
            source: source.clone(),
            generation,
            batch,
            room: Some(room),
        };
        let receipt = self.ledger.perform(report).await?;
        // What took long to store was no silence of the source's. If it has ended meanwhile, that is that.
        drop(Sources::reserve(&self.sources, Some(&source), Instant::now()));
        Ok(receipt)
    }

    /// Ends the source: nothing is outstanding.
    pub(crate) async fn close(&self, ticket: &TicketText, peer: &PeerName) -> Result<(), NotTaken> {
        let source = self.source(ticket, peer)?;
        let generation = self.present(&source).await?;
        let report = Report::Close {
            source: source.clone(),
            generation,
        };
        self.ledger.perform(report).await?;
        self.sources.remove(&source, generation);
        Ok(())
    }

    /// The source that the ticket names, if it was given to this peer.
    fn source(&self, ticket: &TicketText, peer: &PeerName) -> Result<String, NotTaken> {
        self.check_phase()?;
        let ticket = ticket.parse().filter(|ticket| self.tickets.is_of(ticket, &peer.0));
        ticket.map(|ticket| ticket.source).ok_or(NotTaken::NoSuchSource)
    }

    /// The source's generation, after it was resumed if it had been given up or another run knew it.
    async fn present(&self, source: &str) -> Result<u64, NotTaken> {
        let _place = Sources::reserve(&self.sources, Some(source), Instant::now())?;
        match self.sources.generation(source) {
            Some(generation) => Ok(generation),
            None => Ok(self.resume(source).await?.generation),
        }
    }

    async fn resume(&self, source: &str) -> Result<Receipt, NotTaken> {
        let place = Sources::reserve(&self.sources, Some(source), Instant::now())?;
        let report = Report::Resume {
            source: source.to_owned(),
            anchors_digest: Vec::new(),
        };
        let receipt = self.ledger.perform(report).await?;
        self.attach(place, &receipt);
        Ok(receipt)
    }

    fn attach(&self, place: Place, receipt: &Receipt) {
        self.sources
            .attached(place, &receipt.source, receipt.generation, Instant::now());
    }

    fn check_phase(&self) -> Result<(), NotTaken> {
        match self.phase.current() {
            Phase::Running => Ok(()),
            _ => Err(ReportError::Stopping.into()),
        }
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

impl From<TooManySources> for NotTaken {
    fn from(_: TooManySources) -> Self {
        Self::TooManySources
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
