//! `RevocationService.Watch`: one stream for each enforcement-point VM.
//!
//! Each stream has one task that does all its writing, so that the order on the wire is the order of these lines: a
//! pong is written only after every update up to the head that it names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use credence_wire::v1;
use credence_wire::v1::watch_request::Message as Incoming;
use tokio::sync::watch;
use tonic::{Code, Request, Response, Status, Streaming};

use super::cache_keys::CacheKeys;
use super::log::RevocationLog;
use super::promise::{Inherited, Issued, Office, Pledge};
use super::server::{Outgoing, WatchAnswer};
use super::snapshot::Snapshot;
use super::view::{FellBehind, ForeignPosition, Start};
use crate::access::PeerName;
use crate::client_limits::{Client, Places};
use crate::lifecycle::{Phase, PhaseWatch};
use crate::metrics::{Counted, Metrics, Outcome, code_name};
use crate::outbox::{Ended, Outbox, Responses, outbox};
use crate::text::shorten;
use crate::throttle::Throttle;

/// Serves watch streams from one log.
#[derive(Debug)]
pub(crate) struct WatchService {
    log: RevocationLog,
    cache_keys: CacheKeys,
    inherited: Arc<Inherited>,
    office: Office,
    options: WatchOptions,
    phase: PhaseWatch,
    metrics: Arc<Metrics>,
    foreign: Arc<ForeignPositions>,
}

/// The bounds of a watch stream; see [`Limits`](crate::Limits).
#[derive(Debug)]
pub(crate) struct WatchOptions {
    pub(crate) places: Places,
    pub(crate) hello_timeout: Duration,
    /// How long a client may give no sign of life.
    pub(crate) silence_timeout: Duration,
    pub(crate) send_timeout: Duration,
}

// === impl WatchService ===

impl WatchService {
    pub(crate) fn new(
        log: RevocationLog,
        cache_keys: CacheKeys,
        inherited: Arc<Inherited>,
        office: Office,
        options: WatchOptions,
        phase: PhaseWatch,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            log,
            cache_keys,
            inherited,
            office,
            options,
            phase,
            metrics,
            foreign: Arc::default(),
        }
    }

    /// Serves one stream.
    pub(crate) fn watch(
        &self,
        request: Request<Streaming<v1::WatchRequest>>,
    ) -> Result<Response<Responses<WatchAnswer>>, Status> {
        if self.phase.current() != Phase::Running {
            return Err(Status::unavailable(
                "the control plane is stopping; reconnect to its successor",
            ));
        }
        let peer = request.remote_addr();
        let name = request.extensions().get::<PeerName>().map(|name| name.0.clone());
        let client = Client::new(name.as_deref(), peer.map(|peer| peer.ip()));
        let place = self.options.places.take(&client).map_err(|refused| {
            self.metrics
                .watch_ended
                .get_or_create(&Outcome {
                    code: code_name(Code::ResourceExhausted),
                })
                .inc();
            Status::resource_exhausted(refused.to_string())
        })?;
        let (outbox, responses) = outbox(self.phase.clone(), self.options.send_timeout);
        let mut stream = WatchStream {
            head: self.log.watch_head(),
            log: self.log.clone(),
            rotations: self.cache_keys.rotations(),
            cache_keys: self.cache_keys.clone(),
            node: String::new(),
            client,
            silence_timeout: self.options.silence_timeout,
            inherited: Arc::clone(&self.inherited),
            office: self.office.clone(),
            pledge: None,
            issued: None,
            inbound: request.into_inner(),
            outbox,
            phase: self.phase.clone(),
            metrics: Arc::clone(&self.metrics),
            foreign: Arc::clone(&self.foreign),
        };
        let hello_timeout = self.options.hello_timeout;
        let metrics = Arc::clone(&self.metrics);
        tokio::spawn(async move {
            let _place = place;
            let _counted = Counted::new(&metrics.subscribers);
            let ended = stream.run(hello_timeout).await;
            let code = match &ended {
                Ended::With(status) => status.code(),
                Ended::Quietly => Code::Ok,
            };
            let reason = match &ended {
                Ended::With(status) => status.message(),
                Ended::Quietly => "closed",
            };
            let node = shorten(std::mem::take(&mut stream.node));
            tracing::info!(?peer, node, code = code_name(code), reason, "watch stream ended");
            metrics
                .watch_ended
                .get_or_create(&Outcome { code: code_name(code) })
                .inc();
            stream.outbox.finish(ended);
        });
        Ok(Response::new(responses))
    }
}

struct WatchStream {
    log: RevocationLog,
    head: watch::Receiver<u64>,
    cache_keys: CacheKeys,
    rotations: watch::Receiver<i64>,
    /// What the client calls its node; empty before its hello.
    node: String,
    /// Who the client is, as far as it has shown that.
    client: Client,
    silence_timeout: Duration,
    inherited: Arc<Inherited>,
    office: Office,
    /// What the client's hello said of how it will hand a ticket back; nothing from those that know no tickets.
    pledge: Option<Pledge>,
    /// Since its first ping: without echoes a client has no lease, and nothing to be promised.
    issued: Option<Issued>,
    inbound: Streaming<v1::WatchRequest>,
    outbox: Outbox<WatchAnswer>,
    phase: PhaseWatch,
    metrics: Arc<Metrics>,
    foreign: Arc<ForeignPositions>,
}

/// Keeps claims from filling the log, and those without a proof from hiding the others.
#[derive(Debug, Default)]
pub(crate) struct ForeignPositions {
    proven: Throttle,
    claimed: Throttle,
}

impl ForeignPositions {
    fn count(&self, proven: bool, now: Instant) -> Option<u64> {
        match proven {
            true => self.proven.count(now),
            false => self.claimed.count(now),
        }
    }
}

/// What the client still has to be given before it lives on updates.
struct Pulling {
    snapshot: Arc<Snapshot>,
    next: u32,
}

// === impl WatchStream ===

impl WatchStream {
    async fn run(&mut self, hello_timeout: Duration) -> Ended {
        let watched = async {
            let hello = tokio::time::timeout(hello_timeout, self.hello())
                .await
                .map_err(|_| Ended::With(Status::deadline_exceeded("no hello came")))??;
            self.node.clone_from(&hello.node);
            self.pledge = Pledge::try_from(hello.pledge.as_slice()).ok();
            let (pulling, sent) = self.welcome(&hello).await?;
            self.serve(pulling, sent).await
        };
        match watched.await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn hello(&mut self) -> Result<v1::WatchHello, Ended> {
        match self.inbound.message().await {
            Ok(Some(v1::WatchRequest {
                message: Some(Incoming::Hello(hello)),
            })) => Ok(hello),
            Ok(Some(_)) => Err(out_of_order("the first message of a stream is hello")),
            Ok(None) | Err(_) => Err(Ended::Quietly),
        }
    }

    /// Answers the hello. Returns the snapshot to be pulled and the sequence number the client will then be at.
    async fn welcome(&mut self, hello: &v1::WatchHello) -> Result<(Option<Pulling>, u64), Ended> {
        let log_id = self.log.log_id().as_str();
        if hello.log_id != log_id {
            return Err(Ended::With(Status::failed_precondition(format!(
                "you are configured for log {:?}, but this control plane has log {log_id}; point the client at the \
                 right control plane, or set control_plane.log_id to {log_id} if the old log is gone for good",
                hello.log_id
            ))));
        }
        let start = self
            .log
            .resume(hello.applied.as_ref())
            .map_err(|foreign| self.refuse(&foreign, hello.applied.as_ref()))?;
        let (pulling, sent) = match start {
            Start::After(seq) => (None, seq),
            Start::Snapshot => {
                let snapshot =
                    self.log.snapshot().await.map_err(|error| {
                        Ended::With(Status::internal(format!("no snapshot could be made: {error}")))
                    })?;
                let seq = snapshot.seq;
                (Some(Pulling { snapshot, next: 0 }), seq)
            }
        };
        let welcome = v1::Welcome {
            log_id: self.log.log_id().to_string(),
            head: self.log.head(),
            snapshot: pulling.as_ref().map(|pulling| pulling.snapshot.announcement()),
            cache_keys: Some(self.present_keys()),
            max_token_lifetime_s: self.log.max_token_lifetime(),
            awaits_tickets: self.inherited.awaits_tickets(Instant::now()),
        };
        self.send(Outgoing::Welcome(welcome)).await?;
        Ok((pulling.filter(|pulling| pulling.snapshot.len() > 0), sent))
    }

    /// A client that knows more of this log than it does itself may be the only witness of a backup that was put in its
    /// place. It is one if it can prove that the position was given out by this log; what it only claims, every client
    /// that may watch can claim. Neither changes anything here: both are counted and written down.
    fn refuse(&self, foreign: &ForeignPosition, applied: Option<&v1::Position>) -> Ended {
        if !matches!(foreign, ForeignPosition::TooOld { .. }) {
            let proven = applied.is_some_and(|applied| self.log.gave_out(applied));
            self.metrics.note_foreign_position(proven);
            if let Some(clients) = self.foreign.count(proven, Instant::now()) {
                let node = shorten(self.node.clone());
                let (credential, address) = (&self.client.credential, self.client.network);
                if proven {
                    tracing::error!(
                        clients,
                        node,
                        credential,
                        ?address,
                        found = %foreign,
                        "clients have positions that this log gave out and does not know any more: the data folder was \
                         restored from a backup, or two control planes use copies of it, and revocations are forgotten; \
                         restart with --restored {} (docs/revocation.md)",
                        self.log.log_id()
                    );
                } else {
                    tracing::warn!(
                        clients,
                        node,
                        credential,
                        ?address,
                        found = %foreign,
                        "clients claim positions that this log does not know, without a proof that it gave them out: a \
                         client of an older version after a restore of the data folder, or a client that makes them up"
                    );
                }
            }
        }
        Ended::With(Status::failed_precondition(foreign.to_string()))
    }

    async fn serve(&mut self, mut pulling: Option<Pulling>, mut sent: u64) -> Result<std::convert::Infallible, Ended> {
        let mut has_echoed = false;
        let mut silent_at = tokio::time::Instant::now() + self.silence_timeout;
        loop {
            if pulling.is_none() {
                sent = self.catch_up(sent).await?;
            }
            tokio::select! {
                // A message that has arrived is a sign of life, however late this looks.
                biased;
                promise = self.phase.draining() => {
                    let Some(promise) = promise else { return Err(Ended::Quietly) };
                    if pulling.is_none() {
                        self.catch_up(sent).await?;
                    }
                    let drain = self.goodbye(promise);
                    self.send(Outgoing::Drain(drain)).await?;
                    return Err(Ended::Quietly);
                }
                message = self.inbound.message() => {
                    silent_at = tokio::time::Instant::now() + self.silence_timeout;
                    match message {
                    Ok(Some(v1::WatchRequest { message: Some(Incoming::Ping(ping)) })) => {
                        let head = match pulling {
                            Some(_) => self.log.head(),
                            None => {
                                sent = self.catch_up(sent).await?;
                                self.issued = self.issued.take().or_else(|| self.office.issue(self.pledge.as_ref()));
                                has_echoed = true;
                                sent
                            }
                        };
                        self.send(Outgoing::Pong(v1::Pong { id: ping.id, head })).await?;
                    }
                    Ok(Some(v1::WatchRequest { message: Some(Incoming::Pull(pull)) })) => {
                        pulling = self.give_chunk(pulling, pull).await?;
                    }
                    Ok(Some(v1::WatchRequest { message: Some(Incoming::Returned(returned)) })) if has_echoed => {
                        self.take_back(&returned)?;
                    }
                    Ok(Some(_)) => {
                        return Err(out_of_order("after hello come pings and pulls, and tickets only behind an echo"));
                    }
                    Ok(None) | Err(_) => return Err(Ended::Quietly),
                    }
                }
                changed = self.head.changed() => {
                    changed.map_err(|_| Ended::Quietly)?;
                    // A snapshot lasts no longer than the updates that lead on from it: otherwise clients that never
                    // come to an end would each hold another one in memory.
                    if let Some(pulling) = &pulling && !self.log.covers(pulling.snapshot.seq) {
                        return Err(fell_behind());
                    }
                }
                rotated = self.rotations.changed() => {
                    rotated.map_err(|_| Ended::Quietly)?;
                    let keys = self.present_keys();
                    self.send(Outgoing::CacheKeys(keys)).await?;
                }
                () = self.outbox.closed() => return Err(Ended::Quietly),
                () = tokio::time::sleep_until(silent_at) => return Err(silent(self.silence_timeout)),
            }
        }
    }

    /// Promises only whose stub is on disk.
    fn goodbye(&self, promise: Duration) -> v1::Drain {
        match &self.issued {
            Some(issued) if !promise.is_zero() => v1::Drain {
                promise_ms: promise.as_millis().try_into().unwrap_or(0),
                ticket: issued.ticket().to_vec(),
            },
            Some(_) | None => v1::Drain::default(),
        }
    }

    fn take_back(&self, returned: &v1::Returned) -> Result<(), Ended> {
        if returned.tickets.len() > MAX_RETURNED {
            return Err(out_of_order("at most 16 tickets are handed back at a time"));
        }
        for returned in &returned.tickets {
            let Some((ticket, secret)) = returned
                .split_first_chunk()
                .filter(|(_, secret)| secret.len() == SECRET)
            else {
                return Err(out_of_order(
                    "a ticket that is handed back has 16 bytes, and its secret 32",
                ));
            };
            self.inherited.hand_back(ticket, secret, Instant::now());
        }
        Ok(())
    }

    /// Writes every update after `sent` and returns the head they reach.
    async fn catch_up(&mut self, mut sent: u64) -> Result<u64, Ended> {
        loop {
            let (updates, head) = self
                .log
                .encoded_updates_after(sent, UPDATES_AT_A_TIME)
                .map_err(|FellBehind| fell_behind())?;
            for update in updates {
                self.send(Outgoing::Update(update)).await?;
                sent += 1;
            }
            if sent == head {
                return Ok(sent);
            }
        }
    }

    async fn give_chunk(&mut self, pulling: Option<Pulling>, pull: v1::PullChunk) -> Result<Option<Pulling>, Ended> {
        let Some(mut pulling) = pulling else {
            return Err(out_of_order("no snapshot is being pulled"));
        };
        if pull.index != pulling.next {
            return Err(out_of_order("chunks are pulled one after the other, from 0"));
        }
        let Some(chunk) = pulling.snapshot.chunk(pull.index) else {
            return Err(out_of_order("the snapshot has no such chunk"));
        };
        self.send(Outgoing::Chunk(chunk.clone())).await?;
        pulling.next += 1;
        let more = pulling.next < pulling.snapshot.len();
        Ok(more.then_some(pulling))
    }

    /// The keys of the client's node as they are now.
    fn present_keys(&mut self) -> v1::CacheKeys {
        let period = *self.rotations.borrow_and_update();
        self.cache_keys.of(&self.node, period)
    }

    async fn send(&mut self, message: Outgoing) -> Result<(), Ended> {
        self.outbox.send(WatchAnswer { message: Some(message) }).await
    }
}

fn fell_behind() -> Ended {
    Ended::With(Status::resource_exhausted(
        "you fell further behind than the history kept in memory; reconnect and resume",
    ))
}

fn silent(limit: Duration) -> Ended {
    Ended::With(Status::deadline_exceeded(format!(
        "no ping and no pull came for {} s, so that the place is given to others; connect again, and ping at least once a \
         second",
        limit.as_secs_f32()
    )))
}

fn out_of_order(expected: &str) -> Ended {
    Ended::With(Status::invalid_argument(format!("message out of order: {expected}")))
}

/// Updates read from the history under one lock.
const UPDATES_AT_A_TIME: usize = 64;
/// Bytes of what a client hands back behind a ticket.
const SECRET: usize = 32;
/// Tickets in one message.
const MAX_RETURNED: usize = 16;
