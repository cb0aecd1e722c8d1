//! `AuditService.Report`: one stream for each source.

use std::sync::Arc;
use std::time::{Duration, Instant};

use credence_wire::v1;
use credence_wire::v1::audit_service_server::SERVICE_NAME;
use credence_wire::v1::report_response::Message as Outgoing;
use futures_util::stream::FuturesOrdered;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;
use tokio_stream::StreamExt as _;
use tonic::{Code, Request, Response, Status, Streaming};

use super::ingest::{BoundedBatch, Incoming, IngestError, IngestRequest};
use super::intake::Intake;
use super::seen::SeenOfLate;
use super::sources::{Reserved, Sources};
use super::writer::{Arriving, LedgerHandle, Receipt, Report, ReportError};
use crate::metrics::{Metrics, count};
use credence_runtime::caller::{Caller, PeerName};
use credence_runtime::client_limits::Client;
use credence_runtime::lifecycle::Phase;
use credence_runtime::metrics::{Counted, code_name};
use credence_runtime::outbox::{Ended, Outbox, Responses, outbox};
use credence_runtime::stream_server::StreamMethod;
use credence_runtime::text::shorten;

/// Accepts evidence from streams.
#[derive(Debug)]
pub struct ReportService {
    pub(crate) intake: Intake,
    pub(crate) hello_timeout: Duration,
    pub(crate) metrics: Arc<Metrics>,
}

// === impl ReportService ===

impl StreamMethod for ReportService {
    const SERVICE: &'static str = SERVICE_NAME;
    const METHOD: &'static str = "Report";
    /// Batches stay encoded: their limits are checked on the bytes, which the ledger keeps.
    type Incoming = IngestRequest;
    type Outgoing = v1::ReportResponse;

    fn open(
        &self,
        request: Request<Streaming<IngestRequest>>,
    ) -> Result<Response<Responses<v1::ReportResponse>>, Status> {
        if self.intake.phase.current() != Phase::Running {
            return Err(Status::unavailable(
                "the control plane is stopping; reconnect to its successor",
            ));
        }
        let address = request.remote_addr().map(|peer| peer.to_string()).unwrap_or_default();
        let name = request.extensions().get::<PeerName>().map(|name| name.0.clone());
        let (outbox, responses) = outbox(self.intake.phase.clone(), self.intake.send_timeout);
        let mut stream = ReportStream {
            intake: self.intake.clone(),
            hello_timeout: self.hello_timeout,
            caller: request.extensions().get::<Arc<Caller>>().cloned(),
            client: Client::new(name.as_deref(), request.remote_addr().map(|peer| peer.ip())),
            inbound: request.into_inner(),
            outbox,
            seen: SeenOfLate::default(),
        };
        let metrics = Arc::clone(&self.metrics);
        tokio::spawn(async move {
            let _counted = Counted::new(&metrics.report_streams);
            let peer = match &name {
                Some(name) => format!("{} ({address})", shorten(name.clone())),
                None => address,
            };
            let ended = stream.run(&peer, name.as_deref()).await;
            let (code, reason) = match &ended {
                Ended::With(status) => (status.code(), status.message()),
                Ended::Quietly => (Code::Ok, "closed"),
            };
            tracing::info!(peer, code = code_name(code), reason, "audit stream ended");
            count(&metrics.report_ended, [("code", code_name(code))], 1);
            stream.outbox.finish(ended);
        });
        Ok(Response::new(responses))
    }
}

/// Gives up sources that stay away too long, for as long as it is polled.
pub(crate) async fn give_up_lost_sources(ledger: LedgerHandle, sources: Arc<Sources>, grace: Duration) {
    let mut ticks = tokio::time::interval((grace / 4).clamp(Duration::from_millis(20), Duration::from_secs(1)));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for (source, generation) in sources.overdue(grace, Instant::now()) {
            let lose = Report::Lose {
                source: source.clone(),
                generation,
            };
            match ledger.perform(lose).await {
                Ok(receipt) => {
                    let last_sequence = receipt.last_sequence;
                    tracing::warn!(
                        source,
                        last_sequence,
                        "an audit source ended without Bye; its last entries are unknown"
                    );
                    sources.remove(&source, generation);
                }
                Err(ReportError::Superseded | ReportError::UnknownSource) => sources.remove(&source, generation),
                // It is tried again at the next tick. The ledger has reported its error.
                Err(_) => break,
            }
        }
    }
}

struct ReportStream {
    intake: Intake,
    hello_timeout: Duration,
    /// The caller, if a credential is required.
    caller: Option<Arc<Caller>>,
    /// The client whose shares the stream counts against.
    client: Client,
    inbound: Streaming<IngestRequest>,
    outbox: Outbox<v1::ReportResponse>,
    seen: SeenOfLate,
}

/// Batches that wait for the disk, oldest first.
type InFlight = FuturesOrdered<oneshot::Receiver<Answer>>;
type Answer = Result<Receipt, ReportError>;

// === impl ReportStream ===

impl ReportStream {
    /// `peer` is the client's name and address, `name` its proven name.
    async fn run(&mut self, peer: &str, name: Option<&str>) -> Ended {
        let (source, place) = match self.begin(peer, name).await {
            Ok(begun) => begun,
            Err(ended) => return ended,
        };
        let superseded = self.intake.sources.connected(place, &source.source, source.generation);
        let ended = match self.welcome(&source, name).await {
            Ok(()) => self.serve(&source, superseded).await,
            Err(ended) => ended,
        };
        // After a Bye the source no longer exists, and this has no effect.
        self.intake
            .sources
            .disconnected(&source.source, source.generation, Instant::now());
        ended
    }

    /// Handles the hello, and names the source durably.
    async fn begin(&mut self, peer: &str, name: Option<&str>) -> Result<(Receipt, Reserved), Ended> {
        let message = tokio::time::timeout(self.hello_timeout, self.inbound.message())
            .await
            .map_err(|_| Ended::With(Status::deadline_exceeded("no hello arrived in time")))?;
        let hello = match message {
            Ok(Some(IngestRequest {
                message: Some(Incoming::Hello(hello)),
            })) => hello,
            Ok(Some(_)) => return Err(invalid("message out of order: the first message of a stream is hello")),
            Ok(None) | Err(_) => return Err(Ended::Quietly),
        };
        if let Some(ticket) = &hello.resume
            && !self.intake.tickets.accepts(ticket, name)
        {
            return Err(Ended::With(Status::unauthenticated(
                "the resume ticket is not one that this server gave out to this peer",
            )));
        }
        let returning = hello.resume.as_ref().map(|ticket| ticket.source.as_str());
        let reserved = self.intake.sources.reserve(returning, &self.client, Instant::now());
        let place = reserved.map_err(|refused| Ended::With(Status::resource_exhausted(refused.to_string())))?;
        // A digest of another length counts as absent.
        let anchors_digest = Some(hello.anchors_digest)
            .filter(|digest| digest.len() == 32)
            .unwrap_or_default();
        let report = match hello.resume {
            Some(ticket) => Report::Resume {
                source: ticket.source,
                anchors_digest,
                arriving: self.intake.arrivals.as_ref().map(|_| Arriving {
                    acknowledged: hello.acknowledged.min(1 << 63),
                    node: shorten(hello.node),
                    plugin: shorten(hello.plugin),
                    peer: peer.to_owned(),
                }),
            },
            None => Report::Open {
                node: shorten(hello.node),
                plugin: shorten(hello.plugin),
                peer: peer.to_owned(),
                anchors_digest,
            },
        };
        let receipt = self.intake.ledger.perform(report).await?;
        self.intake.note_arrival(&receipt);
        Ok((receipt, place))
    }

    async fn welcome(&mut self, source: &Receipt, name: Option<&str>) -> Result<(), Ended> {
        self.send(Outgoing::Welcome(v1::ReportWelcome {
            ticket: Some(self.intake.tickets.ticket(&source.source, name)),
            acknowledged: source.last_sequence,
            max_batch_entries: u32::try_from(self.intake.bounds.entries).unwrap_or(u32::MAX),
            max_batch_bytes: u32::try_from(self.intake.bounds.bytes).unwrap_or(u32::MAX),
            arrived: source.has_arrived,
        }))
        .await
    }

    async fn serve(&mut self, source: &Receipt, mut superseded: oneshot::Receiver<()>) -> Ended {
        let mut in_flight = InFlight::default();
        loop {
            let step = tokio::select! {
                _ = &mut superseded => Err(Ended::from(ReportError::Superseded)),
                promise = self.intake.phase.draining() => Err(match promise {
                    Some(_) => self.settle(&mut in_flight).await.err().unwrap_or(ReportError::Stopping.into()),
                    None => ReportError::Stopping.into(),
                }),
                Some(answer) = in_flight.next() => self.acknowledge(answer).await,
                message = self.inbound.message(), if in_flight.len() < MAX_IN_FLIGHT => match message {
                    Ok(Some(message)) => self.take(source, message, &mut in_flight).await,
                    Ok(None) => Err(self.settle(&mut in_flight).await.err().unwrap_or(Ended::Quietly)),
                    // Tonic's status for a message beyond the decoding limit.
                    Err(status) if status.code() == Code::OutOfRange => Err(self.intake.bounds.too_large().into()),
                    Err(_) => Err(Ended::Quietly),
                },
                () = self.outbox.closed() => Err(Ended::Quietly),
            };
            if let Err(ended) = step {
                return ended;
            }
        }
    }

    async fn take(&mut self, source: &Receipt, message: IngestRequest, in_flight: &mut InFlight) -> Result<(), Ended> {
        let (name, generation) = (source.source.clone(), source.generation);
        match message.message {
            Some(Incoming::Batch(encoded)) => {
                let (bounds, caller) = (self.intake.bounds, self.caller.as_deref());
                let batch = BoundedBatch::check_seen(encoded, bounds, caller, &mut self.seen)?;
                let room = self.intake.room(&self.client, &batch).await;
                let report = Report::Store {
                    source: name,
                    generation,
                    batch,
                    room: Some(room),
                };
                in_flight.push_back(self.intake.ledger.submit(report).await?);
                Ok(())
            }
            Some(Incoming::Bye(v1::Bye {})) => {
                self.settle(in_flight).await?;
                self.intake.end(name, generation).await?;
                Err(Ended::Quietly)
            }
            Some(Incoming::Hello(_)) | None => {
                Err(invalid("message out of order: after hello, send batches, then bye"))
            }
        }
    }

    /// Waits until everything in flight is on disk, and acknowledges it.
    async fn settle(&mut self, in_flight: &mut InFlight) -> Result<(), Ended> {
        while let Some(answer) = in_flight.next().await {
            self.acknowledge(answer).await?;
        }
        Ok(())
    }

    async fn acknowledge(&mut self, answer: Result<Answer, RecvError>) -> Result<(), Ended> {
        let answer = answer.unwrap_or_else(|_| Err(self.intake.ledger.gone()));
        let through = answer?.last_sequence;
        self.send(Outgoing::Acknowledgement(v1::Acknowledgement { through }))
            .await
    }

    async fn send(&mut self, message: Outgoing) -> Result<(), Ended> {
        self.outbox.send(v1::ReportResponse { message: Some(message) }).await
    }
}

impl From<IngestError> for Ended {
    fn from(error: IngestError) -> Self {
        let text = error.to_string();
        Self::With(match error {
            IngestError::TooLarge { .. } => Status::resource_exhausted(text),
            IngestError::OtherIssuer { .. } => Status::permission_denied(text),
            IngestError::Entry { .. } | IngestError::Malformed => Status::invalid_argument(text),
        })
    }
}

impl From<ReportError> for Ended {
    fn from(error: ReportError) -> Self {
        let text = error.to_string();
        Self::With(match error {
            ReportError::Stopping
            | ReportError::Died
            | ReportError::Damaged(_)
            | ReportError::Storage(_)
            | ReportError::Random(_) => Status::unavailable(text),
            ReportError::UnknownSource => Status::unauthenticated(text),
            ReportError::Superseded => Status::aborted(text),
            ReportError::SequenceGap { .. } | ReportError::Malformed => Status::invalid_argument(text),
        })
    }
}

fn invalid(reason: &str) -> Ended {
    Ended::With(Status::invalid_argument(reason))
}

/// The number of batches of one stream that may wait for the disk. A client may send as many without an
/// acknowledgement; then it waits.
const MAX_IN_FLIGHT: usize = 4;
