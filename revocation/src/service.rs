//! `RevocationService.Watch`: one stream for each enforcement-point VM.
//!
//! One task writes each stream, so that messages go out in the order of this code: a pong is written only after every
//! update up to the head that it names.
//!
//! [`Leases`](crate::leases) tracks what a stream owes to callers that wait for a revocation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use credence_wire::v1;
use credence_wire::v1::revocation_service_server::SERVICE_NAME;
use credence_wire::v1::watch_request::Message as Incoming;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::answer::{Outgoing, WatchAnswer};
use crate::cache_keys::CacheKeys;
use crate::digest_history::ForeignPosition;
use crate::leases::{Echo, SecretDigest, StreamLease, StreamStart};
use crate::log::RevocationLog;
use crate::log_view::{FellBehind, Start};
use crate::metrics::Metrics;
use crate::quorum::{NoQuorum, QuorumRead, Ticket};
use crate::snapshot::Snapshot;
use credence_runtime::caller::PeerName;
use credence_runtime::client_limits::{Client, Places};
use credence_runtime::lifecycle::{Phase, PhaseWatch};
use credence_runtime::metrics::{Counted, code_name};
use credence_runtime::outbox::{Ended, Outbox, Responses, outbox};
use credence_runtime::settings::Timeouts;
use credence_runtime::stream_server::StreamMethod;
use credence_runtime::text::shorten;
use credence_runtime::throttle::Throttle;

/// Serves revocation streams from one log.
#[derive(Debug)]
pub struct WatchService {
    pub(crate) log: RevocationLog,
    pub(crate) cache_keys: CacheKeys,
    /// The limit on the number of streams.
    pub(crate) places: Places,
    pub(crate) timeouts: Timeouts,
    pub(crate) phase: PhaseWatch,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) foreign: Arc<ForeignPositions>,
}

// === impl WatchService ===

impl StreamMethod for WatchService {
    const SERVICE: &'static str = SERVICE_NAME;
    const METHOD: &'static str = "Watch";
    type Incoming = v1::WatchRequest;
    /// Messages that were encoded once go to each stream unchanged.
    type Outgoing = WatchAnswer;

    fn open(&self, request: Request<Streaming<v1::WatchRequest>>) -> Result<Response<Responses<WatchAnswer>>, Status> {
        if self.phase.current() != Phase::Running {
            return Err(Status::unavailable(
                "the control plane is stopping; reconnect to its successor",
            ));
        }
        if self.log.quorum().reads().borrow().is_lost {
            self.metrics.count_watch_ended(Code::Unavailable);
            return Err(no_quorum());
        }
        let peer = request.remote_addr();
        let name = request.extensions().get::<PeerName>().map(|name| name.0.clone());
        let client = Client::new(name.as_deref(), peer.map(|peer| peer.ip()));
        let place = match self.log.leases().refused(&client, Instant::now()) {
            Some(left) => Err(holds_others_up(left)),
            None => {
                let place = self.places.take(&client);
                place.map_err(|refused| Status::resource_exhausted(refused.to_string()))
            }
        };
        let place = place.inspect_err(|status| self.metrics.count_watch_ended(status.code()))?;
        let (outbox, responses) = outbox(self.phase.clone(), self.timeouts.send);
        let mut stream = WatchStream {
            head: self.log.watch_head(),
            reads: self.log.quorum().reads(),
            log: self.log.clone(),
            rotations: self.cache_keys.rotations(),
            cache_keys: self.cache_keys.clone(),
            node: String::new(),
            client,
            silence_timeout: self.timeouts.silence,
            lease: None,
            inbound: request.into_inner(),
            outbox,
            phase: self.phase.clone(),
            metrics: Arc::clone(&self.metrics),
            foreign: Arc::clone(&self.foreign),
        };
        let hello_timeout = self.timeouts.hello;
        let metrics = Arc::clone(&self.metrics);
        tokio::spawn(async move {
            let _place = place;
            let _counted = Counted::new(&metrics.subscribers);
            let ended = stream.run(hello_timeout).await;
            let (code, reason) = match &ended {
                Ended::With(status) => (status.code(), status.message()),
                Ended::Quietly => (Code::Ok, "closed"),
            };
            let node = shorten(std::mem::take(&mut stream.node));
            tracing::info!(?peer, node, code = code_name(code), reason, "revocation stream ended");
            metrics.count_watch_ended(code);
            stream.outbox.finish(ended);
        });
        Ok(Response::new(responses))
    }
}

struct WatchStream {
    log: RevocationLog,
    head: watch::Receiver<u64>,
    reads: watch::Receiver<QuorumRead>,
    cache_keys: CacheKeys,
    rotations: watch::Receiver<i64>,
    /// The client's node name; empty before its hello.
    node: String,
    /// The client, as far as it is authenticated.
    client: Client,
    silence_timeout: Duration,
    /// The lease of a client that confirms what it has applied.
    lease: Option<StreamLease>,
    inbound: Streaming<v1::WatchRequest>,
    outbox: Outbox<WatchAnswer>,
    phase: PhaseWatch,
    metrics: Arc<Metrics>,
    foreign: Arc<ForeignPositions>,
}

/// Limits log lines about claims, and keeps claims without a proof from hiding the others.
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

/// The part of a snapshot that the client must still pull before it receives updates.
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
                .map_err(|_| Ended::With(Status::deadline_exceeded("no hello arrived in time")))??;
            self.node.clone_from(&hello.node);
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

    /// Answers the hello. Returns the snapshot to be pulled, and the sequence number that the client will then have
    /// reached.
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
                let snapshot = self.log.snapshot().await;
                let snapshot = snapshot
                    .map_err(|error| Ended::With(Status::internal(format!("no snapshot could be made: {error}"))))?;
                let seq = snapshot.seq;
                (Some(Pulling { snapshot, next: 0 }), seq)
            }
        };
        if hello.confirms {
            let applied = match pulling {
                Some(_) => 0,
                None => sent,
            };
            self.lease = Some(self.log.leases().begin(&self.client, stream_start(hello, applied)?));
        }
        let max_staleness = self.log.leases().max_staleness();
        let welcome = v1::Welcome {
            log_id: self.log.log_id().to_string(),
            head: self.log.head(),
            snapshot: pulling.as_ref().map(|pulling| pulling.snapshot.announcement()),
            cache_keys: Some(self.present_keys()),
            max_token_lifetime_s: self.log.max_token_lifetime(),
            max_staleness_ms: max_staleness.as_millis().try_into().unwrap_or(u64::MAX),
        };
        self.send(Outgoing::Welcome(welcome)).await?;
        Ok((pulling.filter(|pulling| pulling.snapshot.len() > 0), sent))
    }

    /// A client that knows more of this log than the log itself may be the only witness of a restored backup. It is one
    /// if it proves that this log gave out the position; any client with access can claim a position. Neither has an
    /// effect here: both are counted and logged.
    fn refuse(&self, foreign: &ForeignPosition, applied: Option<&v1::Position>) -> Ended {
        if !matches!(foreign, ForeignPosition::TooOld { .. }) {
            let proven = applied.is_some_and(|applied| self.log.gave_out(applied));
            self.metrics.count_foreign_position(proven);
            if let Some(clients) = self.foreign.count(proven, Instant::now()) {
                let node = shorten(self.node.clone());
                let (credential, address) = (&self.client.credential, self.client.network);
                if proven {
                    tracing::error!(
                        attempts = clients,
                        node,
                        credential,
                        ?address,
                        found = %foreign,
                        "clients have positions that this log gave out and no longer knows: the data folder was \
                         restored from a backup, or two control planes use copies of it, and revocations are \
                         forgotten; restart with --restored {} (docs/operate/backup.md#restore)",
                        self.log.log_id()
                    );
                } else {
                    tracing::warn!(
                        attempts = clients,
                        node,
                        credential,
                        ?address,
                        found = %foreign,
                        "clients claim positions that this log does not know, without a proof that it gave them out"
                    );
                }
            }
        }
        Ended::With(Status::failed_precondition(foreign.to_string()))
    }

    async fn serve(&mut self, mut pulling: Option<Pulling>, mut sent: u64) -> Result<std::convert::Infallible, Ended> {
        let mut has_echoed = false;
        // The latest ping that is answered only after the client has caught up.
        let mut withheld = None;
        let mut silent_at = tokio::time::Instant::now() + self.silence_timeout;
        loop {
            if pulling.is_none() {
                sent = self.catch_up(sent).await?;
            }
            let read = *self.reads.borrow_and_update();
            if read.is_lost {
                return Err(Ended::With(no_quorum()));
            }
            if let Some((ping, ticket)) = withheld.take() {
                match self.echo(read, ticket, sent) {
                    Echo::Granted => {
                        has_echoed = true;
                        self.pong(ping, sent).await?;
                    }
                    Echo::Behind => {
                        withheld = Some((ping, ticket));
                        continue;
                    }
                    Echo::Withheld => withheld = Some((ping, ticket)),
                }
            }
            tokio::select! {
                // A message that has arrived is a sign of life, even if this loop sees it late.
                biased;
                promise = self.phase.draining() => {
                    let Some(promise) = promise else { return Err(Ended::Quietly) };
                    if pulling.is_none() {
                        self.catch_up(sent).await?;
                    }
                    let promise = if has_echoed { promise } else { Duration::ZERO };
                    let promise_ms = promise.as_millis().try_into().unwrap_or(0);
                    self.send(Outgoing::Drain(v1::Drain { promise_ms })).await?;
                    return Err(Ended::Quietly);
                }
                () = refused(self.lease.as_ref()) => {
                    let left = self.log.leases().refused(&self.client, Instant::now());
                    return Err(Ended::With(holds_others_up(left.unwrap_or_default())));
                }
                message = self.inbound.message() => {
                    silent_at = tokio::time::Instant::now() + self.silence_timeout;
                    let Ok(Some(v1::WatchRequest { message })) = message else { return Err(Ended::Quietly) };
                    match (message, &self.lease) {
                        (Some(Incoming::Ping(ping)), _) => match pulling {
                            Some(_) => self.pong(ping.id, self.log.head()).await?,
                            None => withheld = Some((ping.id, self.log.quorum().ask())),
                        },
                        (Some(Incoming::Pull(pull)), _) => pulling = self.give_chunk(pulling, pull).await?,
                        (Some(Incoming::Applied(applied)), Some(lease)) if applied.seq <= sent => {
                            lease.apply(applied.seq);
                        }
                        (Some(Incoming::Leaving(_)), Some(lease)) => {
                            lease.leave();
                            withheld = None;
                        }
                        _ => {
                            return Err(out_of_order(
                                "after hello, send pings and pulls and, from a client that confirms, what it has \
                                 applied of what it was sent",
                            ));
                        }
                    }
                }
                changed = self.head.changed() => {
                    changed.map_err(|_| Ended::Quietly)?;
                    // A snapshot is kept only as long as the updates after it are in memory. Otherwise each client that
                    // never finishes would hold another one in memory.
                    if let Some(pulling) = &pulling && !self.log.covers(pulling.snapshot.seq) {
                        return Err(fell_behind());
                    }
                }
                // Of thousands of streams, few wait for each read. The others see a lost quorum at their next ping.
                read = self.reads.changed(), if withheld.is_some() => read.map_err(|_| Ended::Quietly)?,
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

    /// Whether a ping is answered now, after the updates up to `sent`: a read that began after the ping must cover them.
    fn echo(&self, read: QuorumRead, ticket: Ticket, sent: u64) -> Echo {
        if !read.covers(ticket, sent) {
            return Echo::Withheld;
        }
        let lease = self.lease.as_ref();
        lease.map_or(Echo::Granted, |lease| lease.echo(sent, Instant::now()))
    }

    async fn pong(&mut self, id: u64, head: u64) -> Result<(), Ended> {
        self.send(Outgoing::Pong(v1::Pong { id, head })).await
    }

    /// Writes every update after `sent`, and returns the last sequence number.
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
            return Err(out_of_order("pull chunks one after the other, from 0"));
        }
        let Some(chunk) = pulling.snapshot.chunk(pull.index) else {
            return Err(out_of_order("the snapshot has no such chunk"));
        };
        self.send(Outgoing::Chunk(chunk.clone())).await?;
        pulling.next += 1;
        let more = pulling.next < pulling.snapshot.len();
        Ok(more.then_some(pulling))
    }

    /// The present keys of the client's node.
    fn present_keys(&mut self) -> v1::CacheKeys {
        let period = *self.rotations.borrow_and_update();
        self.cache_keys.of(&self.node, period)
    }

    async fn send(&mut self, message: Outgoing) -> Result<(), Ended> {
        self.outbox.send(WatchAnswer { message: Some(message) }).await
    }
}

/// The client's data at the start; `applied` is where it continues.
fn stream_start(hello: &v1::WatchHello, applied: u64) -> Result<StreamStart, Ended> {
    if hello.earlier_secrets.len() > MAX_EARLIER_SECRETS {
        return Err(out_of_order("a hello has at most 8 secrets of earlier streams"));
    }
    let digest_of = |secret: &Vec<u8>| Sha256::digest(secret).into();
    Ok(StreamStart {
        applied,
        digest: SecretDigest::try_from(hello.secret_digest.as_slice()).ok(),
        earlier: hello.earlier_secrets.iter().map(digest_of).collect(),
        node: shorten(hello.node.clone()),
    })
}

/// Resolves once the client is refused because it delays others.
async fn refused(lease: Option<&StreamLease>) {
    match lease {
        Some(lease) => lease.refused().await,
        None => std::future::pending().await,
    }
}

fn holds_others_up(left: Duration) -> Status {
    Status::resource_exhausted(format!(
        "filters of this credential and address have delayed revocations repeatedly, by leaving updates unapplied; \
         they are refused for {} s more",
        left.as_secs().max(1)
    ))
}

fn no_quorum() -> Status {
    Status::unavailable(NoQuorum.to_string())
}

fn fell_behind() -> Ended {
    Ended::With(Status::resource_exhausted(
        "you fell further behind than the history kept in memory; reconnect and resume",
    ))
}

fn silent(limit: Duration) -> Ended {
    Ended::With(Status::deadline_exceeded(format!(
        "no ping and no pull arrived for {} s, so the stream is ended; connect again, and ping at least once a \
         second",
        limit.as_secs_f32()
    )))
}

fn out_of_order(expected: &str) -> Ended {
    Ended::With(Status::invalid_argument(format!("message out of order: {expected}")))
}

/// Updates read from the history under one lock.
const UPDATES_AT_A_TIME: usize = 64;
/// The largest number of earlier streams in one hello.
const MAX_EARLIER_SECRETS: usize = 8;
