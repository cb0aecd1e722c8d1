//! `AuditService.Report`: one stream for each source.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use credence_wire::v1;
use credence_wire::v1::audit_service_server::AuditService;
use credence_wire::v1::report_request::Message as Incoming;
use credence_wire::v1::report_response::Message as Outgoing;
use prost::Message as _;
use tokio::sync::oneshot;
use tonic::{Code, Request, Response, Status, Streaming};

use super::sources::{Sources, TooManySources};
use super::ticket::TicketKey;
use super::writer::{LedgerHandle, Receipt, Report, ReportError};
use crate::lifecycle::{Phase, PhaseWatch};
use crate::metrics::{Counted, Metrics, Outcome, code_name};
use crate::outbox::{Ended, Outbox, Responses, outbox};

/// Takes evidence in.
#[derive(Debug)]
pub(crate) struct ReportService {
    ledger: LedgerHandle,
    sources: Arc<Sources>,
    tickets: TicketKey,
    options: ReportOptions,
    phase: PhaseWatch,
    metrics: Arc<Metrics>,
}

/// The bounds of an audit stream; see [`Limits`](crate::Limits).
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReportOptions {
    pub(crate) max_batch_entries: u32,
    pub(crate) max_batch_bytes: u32,
    pub(crate) hello_timeout: Duration,
    pub(crate) send_timeout: Duration,
}

/// Largest encoded entry, in bytes: sealed, it has to fit a leaf of less than 65,535.
pub(crate) const MAX_ENTRY_BYTES: usize = 64_000;

// === impl ReportService ===

impl ReportService {
    pub(crate) fn new(
        ledger: LedgerHandle,
        sources: Arc<Sources>,
        tickets: TicketKey,
        options: ReportOptions,
        phase: PhaseWatch,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            ledger,
            sources,
            tickets,
            options,
            phase,
            metrics,
        }
    }
}

#[tonic::async_trait]
impl AuditService for ReportService {
    type ReportStream = Responses<v1::ReportResponse>;

    async fn report(
        &self,
        request: Request<Streaming<v1::ReportRequest>>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        if self.phase.current() != Phase::Running {
            return Err(Status::unavailable(
                "the control plane is stopping; reconnect to its successor",
            ));
        }
        let peer = request.remote_addr().map(|peer| peer.to_string()).unwrap_or_default();
        let (outbox, responses) = outbox(self.phase.clone(), self.options.send_timeout);
        let mut stream = ReportStream {
            ledger: self.ledger.clone(),
            sources: Arc::clone(&self.sources),
            tickets: self.tickets.clone(),
            options: self.options,
            phase: self.phase.clone(),
            inbound: request.into_inner(),
            outbox,
        };
        let metrics = Arc::clone(&self.metrics);
        tokio::spawn(async move {
            let _counted = Counted::new(&metrics.report_streams);
            let ended = stream.run(&peer).await;
            let (code, reason) = match &ended {
                Ended::With(status) => (status.code(), status.message()),
                Ended::Quietly => (Code::Ok, "closed"),
            };
            tracing::info!(peer, code = code_name(code), reason, "audit stream ended");
            metrics
                .report_ended
                .get_or_create(&Outcome { code: code_name(code) })
                .inc();
            stream.outbox.finish(ended);
        });
        Ok(Response::new(responses))
    }
}

/// Gives up the sources that stay away too long, for as long as it is polled.
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
                        "an audit source ended without Bye; its tail is unknown"
                    );
                    sources.remove(&source, generation);
                }
                Err(ReportError::Superseded | ReportError::UnknownSource) => sources.remove(&source, generation),
                // It will be tried again at the next tick; the ledger has reported its trouble.
                Err(_) => break,
            }
        }
    }
}

struct ReportStream {
    ledger: LedgerHandle,
    sources: Arc<Sources>,
    tickets: TicketKey,
    options: ReportOptions,
    phase: PhaseWatch,
    inbound: Streaming<v1::ReportRequest>,
    outbox: Outbox<v1::ReportResponse>,
}

/// Batches that are on their way to the disk, oldest first.
#[derive(Debug, Default)]
struct InFlight(VecDeque<oneshot::Receiver<Result<Receipt, ReportError>>>);

// === impl ReportStream ===

impl ReportStream {
    async fn run(&mut self, peer: &str) -> Ended {
        let source = match self.begin(peer).await {
            Ok(source) => source,
            Err(ended) => return ended,
        };
        let superseded = self.sources.connected(&source.source, source.generation);
        let ended = match self.welcome(&source).await {
            Ok(()) => self.serve(&source, superseded).await,
            Err(ended) => ended,
        };
        // After a Bye the source is no longer there, and this does nothing.
        self.sources
            .disconnected(&source.source, source.generation, Instant::now());
        ended
    }

    /// Takes the hello and names the source, durably.
    async fn begin(&mut self, peer: &str) -> Result<Receipt, Ended> {
        let message = tokio::time::timeout(self.options.hello_timeout, self.inbound.message())
            .await
            .map_err(|_| Ended::With(Status::deadline_exceeded("no hello came")))?;
        let hello = match message {
            Ok(Some(v1::ReportRequest {
                message: Some(Incoming::Hello(hello)),
            })) => hello,
            Ok(Some(_)) => return Err(invalid("message out of order: the first message of a stream is hello")),
            Ok(None) | Err(_) => return Err(Ended::Quietly),
        };
        if let Some(ticket) = &hello.resume
            && !self.tickets.accepts(ticket)
        {
            return Err(Ended::With(Status::unauthenticated(
                "the resume ticket is not one that this server gave out",
            )));
        }
        let returning = hello.resume.as_ref().map(|ticket| ticket.source.as_str());
        self.sources.check_room(returning).map_err(|TooManySources| {
            Ended::With(Status::resource_exhausted(
                "there are as many audit sources as max_sources allows",
            ))
        })?;
        let report = match hello.resume {
            Some(ticket) => Report::Resume { source: ticket.source },
            None => Report::Open {
                node: shorten(hello.node),
                plugin: shorten(hello.plugin),
                peer: peer.to_owned(),
            },
        };
        self.ledger.perform(report).await.map_err(Ended::from)
    }

    async fn welcome(&mut self, source: &Receipt) -> Result<(), Ended> {
        self.send(Outgoing::Welcome(v1::ReportWelcome {
            ticket: Some(self.tickets.ticket(&source.source)),
            acknowledged: source.last_sequence,
            max_batch_entries: self.options.max_batch_entries,
            max_batch_bytes: self.options.max_batch_bytes,
        }))
        .await
    }

    async fn serve(&mut self, source: &Receipt, mut superseded: oneshot::Receiver<()>) -> Ended {
        let mut in_flight = InFlight::default();
        loop {
            let step = tokio::select! {
                _ = &mut superseded => Err(Ended::from(ReportError::Superseded)),
                promise = self.phase.draining() => Err(match promise {
                    Some(_) => self.settle(&mut in_flight).await.err().unwrap_or(ReportError::Stopping.into()),
                    None => ReportError::Stopping.into(),
                }),
                answer = in_flight.next() => self.acknowledge(answer).await,
                message = self.inbound.message(), if in_flight.has_room() => match message {
                    Ok(Some(message)) => self.take(source, message, &mut in_flight).await,
                    Ok(None) => Err(self.settle(&mut in_flight).await.err().unwrap_or(Ended::Quietly)),
                    // What tonic says of a message beyond the decoding limit.
                    Err(status) if status.code() == Code::OutOfRange => Err(self.too_large()),
                    Err(_) => Err(Ended::Quietly),
                },
                () = self.outbox.closed() => Err(Ended::Quietly),
            };
            if let Err(ended) = step {
                return ended;
            }
        }
    }

    async fn take(
        &mut self,
        source: &Receipt,
        message: v1::ReportRequest,
        in_flight: &mut InFlight,
    ) -> Result<(), Ended> {
        let (name, generation) = (source.source.clone(), source.generation);
        match message.message {
            Some(Incoming::Batch(batch)) => {
                self.check(&batch)?;
                let report = Report::Store {
                    source: name,
                    generation,
                    batch,
                };
                in_flight.0.push_back(self.ledger.submit(report).await?);
                Ok(())
            }
            Some(Incoming::Bye(v1::Bye {})) => {
                self.settle(in_flight).await?;
                self.ledger
                    .perform(Report::Close {
                        source: name,
                        generation,
                    })
                    .await?;
                self.sources.remove(&source.source, generation);
                Err(Ended::Quietly)
            }
            Some(Incoming::Hello(_)) | None => Err(invalid("message out of order: after hello come batches, then bye")),
        }
    }

    fn check(&self, batch: &v1::Batch) -> Result<(), Ended> {
        if batch.entries.len() > self.options.max_batch_entries as usize
            || batch.encoded_len() > self.options.max_batch_bytes as usize
        {
            return Err(self.too_large());
        }
        for (sequence, entry) in (batch.first_sequence..).zip(&batch.entries) {
            if entry.entry.is_none() {
                return Err(invalid(&format!(
                    "entry {sequence} is of a kind that this control plane does not know; upgrade it before the filters"
                )));
            }
            if entry.encoded_len() > MAX_ENTRY_BYTES {
                return Err(invalid(&format!(
                    "entry {sequence} is larger than {MAX_ENTRY_BYTES} bytes"
                )));
            }
        }
        Ok(())
    }

    fn too_large(&self) -> Ended {
        Ended::With(Status::resource_exhausted(format!(
            "a batch has at most {} entries and {} bytes",
            self.options.max_batch_entries, self.options.max_batch_bytes
        )))
    }

    /// Waits until everything in flight is on disk, and acknowledges it.
    async fn settle(&mut self, in_flight: &mut InFlight) -> Result<(), Ended> {
        while !in_flight.0.is_empty() {
            let answer = in_flight.next().await;
            self.acknowledge(answer).await?;
        }
        Ok(())
    }

    async fn acknowledge(&mut self, answer: Result<Receipt, ReportError>) -> Result<(), Ended> {
        let through = answer?.last_sequence;
        self.send(Outgoing::Acknowledgement(v1::Acknowledgement { through }))
            .await
    }

    async fn send(&mut self, message: Outgoing) -> Result<(), Ended> {
        self.outbox.send(v1::ReportResponse { message: Some(message) }).await
    }
}

// === impl InFlight ===

impl InFlight {
    fn has_room(&self) -> bool {
        self.0.len() < MAX_IN_FLIGHT
    }

    /// The oldest batch's answer; never, if there is no batch. Dropping the future loses nothing.
    async fn next(&mut self) -> Result<Receipt, ReportError> {
        match self.0.front_mut() {
            Some(oldest) => {
                let answer = oldest.await.unwrap_or(Err(ReportError::Stopping));
                self.0.pop_front();
                answer
            }
            None => std::future::pending().await,
        }
    }
}

impl From<ReportError> for Ended {
    fn from(error: ReportError) -> Self {
        let text = error.to_string();
        Self::With(match error {
            ReportError::Stopping | ReportError::Storage(_) | ReportError::Random(_) => Status::unavailable(text),
            ReportError::UnknownSource => Status::unauthenticated(text),
            ReportError::Superseded => Status::aborted(text),
            ReportError::SequenceGap { .. } | ReportError::Malformed => Status::invalid_argument(text),
        })
    }
}

fn invalid(reason: &str) -> Ended {
    Ended::With(Status::invalid_argument(reason))
}

/// Names from clients are for the operator's eyes; longer ones are cut.
fn shorten(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(MAX_NAME_BYTES));
    name
}

/// Batches of one stream that may be on their way to the disk. A client sends at most as many unacknowledged; one
/// that sends more waits.
const MAX_IN_FLIGHT: usize = 4;
const MAX_NAME_BYTES: usize = 256;
