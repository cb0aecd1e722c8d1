//! One configuration in one VM: decides its requests, and holds those that have to wait.

use std::time::Duration;

use credence_decision::audit;
use credence_decision::clock::{Monotonic, UnixNanos};
use credence_decision::config::Policy;
use credence_decision::decision::Reason;
use credence_decision::engine::{Engine, Held, Outcome};
use credence_decision::held::{AwaitingBody, AwaitingSnapshot, Claim, NoPlace, Piece, Place, PlaceLimits, Places};
use credence_decision::metrics::{Gauges, Metrics, Observed};
use credence_decision::proofs::ReplayMemory;
use credence_decision::request::Request;
use credence_decision::revocation::{Freshness, Watch};
use credence_delegation::UnixTime;

use super::effects::Effects;
use super::recorder::{Began, RecorderError};
use crate::host::{Flow, HeaderMap, Host, HostError, LogLevel, RootId, StreamId};

/// A root context.
pub(super) struct Root<H> {
    host: H,
    engine: Engine,
    pub(super) effects: Effects<H>,
    pub(super) gauges: Gauges,
    /// Requests that wait for their bodies.
    held: AwaitingBody<StreamId, Waiting>,
    held_places: Places,
    /// Requests that wait for the VM's first snapshot.
    unready: AwaitingSnapshot<StreamId, Unready>,
    unready_places: Places,
    /// How long they may.
    snapshot_wait: Duration,
    /// Since when a replaced configuration has been waiting for the requests that it holds.
    draining_since: Option<Monotonic>,
}

/// A request that waits for its body. Nothing of it changes meanwhile: it stands here, and nobody else gets to see it.
struct Waiting {
    held: Held,
    place: Place,
    began: Began,
    /// Its headers, as the host handed them over.
    serialized: Vec<u8>,
}

/// A request that waits for the VM's first snapshot. Its headers stand here too, and its body waits in Envoy.
struct Unready {
    rule_index: usize,
    place: Place,
    began: Began,
    /// Its headers, as the host handed them over.
    serialized: Vec<u8>,
    has_body: bool,
}

impl<H: Host> Root<H> {
    pub(super) fn new(
        host: H,
        id: RootId,
        policy: Policy,
        settings: audit::Settings,
        metrics: &mut Metrics,
    ) -> Result<Self, RootError> {
        let now = UnixTime(host.unix_time()?.second());
        let replay = ReplayMemory::join(&mut host.clone(), host.random()?, now, policy.limits.proof_clock_skew)
            .map_err(|_| RootError::ReplayMemory)?;
        Ok(Self {
            effects: Effects::new(host.clone(), id, &policy, settings, metrics)?,
            gauges: Gauges::new(metrics),
            held: AwaitingBody::new(),
            held_places: Places::new(host.random()?, policy.limits.held),
            unready: AwaitingSnapshot::new(),
            unready_places: Places::new(host.random()?, unready_limits(policy.limits.held)),
            snapshot_wait: policy.wait_for_snapshot,
            engine: Engine::new(policy, host.random()?, replay),
            draining_since: None,
            host,
        })
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining_since.is_some()
    }

    pub(super) fn holds_none(&self) -> bool {
        self.held.is_empty() && self.unready.is_empty()
    }

    // === A request's headers ===

    /// Decides a request, or holds it.
    pub(super) fn on_request_headers(
        &mut self,
        stream: StreamId,
        has_body: bool,
        watch: &Watch,
        metrics: &mut Metrics,
    ) -> Flow {
        let flow = self
            .decide(stream, has_body, watch, metrics)
            .unwrap_or_else(|error| self.effects.refuse(&error, metrics));
        if flow == Flow::Stop {
            self.held.close(stream);
        }
        flow
    }

    fn decide(
        &mut self,
        stream: StreamId,
        has_body: bool,
        watch: &Watch,
        metrics: &mut Metrics,
    ) -> Result<Flow, HostError> {
        let began = self.effects.recorder.begin()?;
        let serialized = self.host.header_map(HeaderMap::RequestHeaders)?;
        let request = match Request::parse(&serialized, &self.effects.headers, has_body) {
            Ok(request) => request,
            Err(error) => return Ok(self.effects.refuse_unread(&error.into(), began, metrics)),
        };
        // First, on every path: what only we may say, nobody else has said.
        let stripped = self.effects.strip(&request);
        let mut world = self.effects.recorder.world(began, watch);
        let verdict = match self.engine.decide(&request, &mut world) {
            Outcome::Decided(verdict) => verdict,
            Outcome::NeedsBody(held) => match self.take_body_place(&held, &serialized) {
                Ok(place) => {
                    let waiting = Waiting {
                        held,
                        place,
                        began,
                        serialized,
                    };
                    return self.hold_for_body(stream, waiting, stripped);
                }
                Err(reason) => self.engine.turn_away(held, reason),
            },
        };
        let may_wait = !self.snapshot_wait.is_zero() && Engine::is_unready(&verdict, has_body);
        if let Some(rule_index) = verdict.rule_index.filter(|_| may_wait)
            && let Ok(place) = self.unready_places.take(&claim(&self.host, &serialized))
        {
            let unready = Unready {
                rule_index,
                place,
                began,
                serialized,
                has_body,
            };
            return self.hold_for_snapshot(stream, unready, stripped);
        }
        Ok(self
            .effects
            .conclude(verdict, &request, stream, began, stripped, metrics))
    }

    /// A place for a request whose body is to be read, or the reason why it gets none.
    fn take_body_place(&mut self, held: &Held, serialized: &[u8]) -> Result<Place, Reason> {
        let proof = held.proof();
        let claim = Claim {
            sharers: Some(held.sharers()),
            proof: proof.as_ref().map(|(holder, id)| (holder, *id)),
            ..claim(&self.host, serialized)
        };
        self.held_places.take(&claim).map_err(|no_place| match no_place {
            NoPlace::Taken => Reason::TooManyHeld,
            NoPlace::ProofHeld => Reason::ProofReplayed,
        })
    }

    fn hold_for_body(
        &mut self,
        stream: StreamId,
        waiting: Waiting,
        stripped: Result<(), HostError>,
    ) -> Result<Flow, HostError> {
        if let Err(error) = stripped {
            self.held_places.release(waiting.place);
            return Err(error);
        }
        let began = waiting.began.paused(&self.host);
        self.held.hold(stream, Waiting { began, ..waiting });
        Ok(Flow::Wait)
    }

    fn hold_for_snapshot(
        &mut self,
        stream: StreamId,
        unready: Unready,
        stripped: Result<(), HostError>,
    ) -> Result<Flow, HostError> {
        if let Err(error) = stripped {
            self.unready_places.release(unready.place);
            return Err(error);
        }
        let deadline = unready.began.monotonic.plus(self.snapshot_wait);
        self.unready.hold(stream, deadline, unready);
        Ok(Flow::Wait)
    }

    // === A request's body and trailers ===

    /// Some of a request's body has arrived, `size` bytes of it by now.
    pub(super) fn on_request_body(
        &mut self,
        stream: StreamId,
        size: usize,
        is_complete: bool,
        watch: &Watch,
        metrics: &mut Metrics,
    ) -> Flow {
        if let Some(Unready { place, serialized, .. }) = self.unready.waiting(stream) {
            let bytes = held_bytes(serialized).saturating_add(size);
            // Envoy keeps the body until then, and answers 413 by itself beyond its own limit.
            if size <= self.engine.policy().limits.body_bytes && self.unready_places.grow(place, bytes) {
                return Flow::Wait;
            }
        }
        if let Some(unready) = self.unready.end(stream) {
            return self.settle(stream, unready, watch, metrics);
        }
        let is_too_large = size > self.engine.policy().limits.body_bytes;
        let Self { held, held_places, .. } = self;
        // What is decided now is held no longer.
        let is_enough = is_complete || is_too_large;
        if !is_enough
            && let Some(Waiting { place, serialized, .. }) = held.waiting(stream)
            && !held_places.grow(place, held_bytes(serialized).saturating_add(size))
        {
            return match held.piece(stream, true) {
                Piece::Decides(waiting) => self.finish_held(stream, waiting, Some(Reason::TooManyHeld), watch, metrics),
                Piece::PassesOn | Piece::Waits | Piece::Stays => Flow::Stop,
            };
        }
        self.on_piece(stream, is_enough, watch, metrics)
    }

    /// A request's trailers have arrived: its body ends before them.
    pub(super) fn on_request_trailers(&mut self, stream: StreamId, watch: &Watch, metrics: &mut Metrics) -> Flow {
        if let Err(error) = self.effects.strip_trailers(&self.engine.policy().removed_trailers) {
            self.host.log(
                LogLevel::Error,
                &format!("credence: a request was held for its trailers: {error}"),
            );
            return Flow::Stop;
        }
        match self.unready.waiting(stream) {
            Some(_) => Flow::Wait,
            None => self.on_piece(stream, true, watch, metrics),
        }
    }

    /// Decides a request that was held, by what of its body is there; `is_enough` if that need not wait for more.
    fn on_piece(&mut self, stream: StreamId, is_enough: bool, watch: &Watch, metrics: &mut Metrics) -> Flow {
        match self.held.piece(stream, is_enough) {
            Piece::PassesOn => Flow::Continue,
            Piece::Waits => Flow::Wait,
            Piece::Stays => Flow::Stop,
            Piece::Decides(waiting) => self.finish_held(stream, waiting, None, watch, metrics),
        }
    }

    /// Decides a request that was held, or denies it for `refusal`. It is held no longer.
    fn finish_held(
        &mut self,
        stream: StreamId,
        waiting: Waiting,
        refusal: Option<Reason>,
        watch: &Watch,
        metrics: &mut Metrics,
    ) -> Flow {
        let flow = self
            .decide_held(stream, waiting, refusal, watch, metrics)
            .unwrap_or_else(|error| self.effects.refuse(&error, metrics));
        if flow == Flow::Continue {
            self.held.release(stream);
        }
        flow
    }

    fn decide_held(
        &mut self,
        stream: StreamId,
        waiting: Waiting,
        refusal: Option<Reason>,
        watch: &Watch,
        metrics: &mut Metrics,
    ) -> Result<Flow, HostError> {
        let Waiting {
            held,
            place,
            began,
            serialized,
        } = waiting;
        self.held_places.release(place);
        // The wait was none of the filter's time, but things may have changed in it.
        let now = self.effects.recorder.begin()?.after(began);
        let request = match Request::parse(&serialized, &self.effects.headers, true) {
            Ok(request) => request,
            Err(error) => return Ok(self.effects.refuse_unread(&error.into(), now, metrics)),
        };
        let verdict = if let Some(reason) = refusal {
            self.engine.turn_away(held, reason)
        } else {
            // One byte more than is read tells a body of just that size from a larger one.
            let limit = self.engine.policy().limits.body_bytes;
            let body = self.host.request_body(limit.saturating_add(1))?;
            let mut world = self.effects.recorder.world(now, watch);
            self.engine.resume(held, &request, &body, &mut world)
        };
        Ok(self.effects.conclude(verdict, &request, stream, now, Ok(()), metrics))
    }

    // === Requests that wait for the first snapshot ===

    /// Decides the requests that wait for the VM's first snapshot, if it is there, and those that can wait no longer: some of
    /// them, and the next tick the next.
    pub(super) fn settle_unready(&mut self, now: Monotonic, watch: &Watch, metrics: &mut Metrics) {
        if self.unready.is_empty() {
            return;
        }
        let is_ready = watch.freshness(now) != Freshness::NeverSynced;
        let host = self.host.clone();
        for _ in 0..MAX_SETTLED {
            let Some((stream, unready)) = self.unready.next(is_ready, now) else {
                return;
            };
            let settled = host.in_stream(stream, || match self.settle(stream, unready, watch, metrics) {
                Flow::Continue => host.continue_request(),
                Flow::Wait | Flow::Stop => Ok(()),
            });
            match settled {
                Ok(Ok(())) => {}
                // It stays where it is, and ends with its timeout.
                Ok(Err(error)) => host.log(
                    LogLevel::Error,
                    &format!("credence: a held request stays held: {error}"),
                ),
                // It was not decided, and the record says so.
                Err(error) => self.effects.recorder.record_failure(&error, metrics),
            }
        }
    }

    /// Decides a request that waited for the VM's first snapshot, and waits no longer.
    fn settle(&mut self, stream: StreamId, unready: Unready, watch: &Watch, metrics: &mut Metrics) -> Flow {
        let flow = self
            .decide_unready(stream, unready, watch, metrics)
            .unwrap_or_else(|error| self.effects.refuse(&error, metrics));
        if flow == Flow::Stop {
            self.held.close(stream);
        }
        flow
    }

    fn decide_unready(
        &mut self,
        stream: StreamId,
        unready: Unready,
        watch: &Watch,
        metrics: &mut Metrics,
    ) -> Result<Flow, HostError> {
        let Unready {
            serialized,
            has_body,
            place,
            ..
        } = unready;
        self.unready_places.release(place);
        // The wait was none of the filter's time.
        let began = self.effects.recorder.begin()?;
        let request = match Request::parse(&serialized, &self.effects.headers, has_body) {
            Ok(request) => request,
            Err(error) => return Ok(self.effects.refuse_unread(&error.into(), began, metrics)),
        };
        let mut world = self.effects.recorder.world(began, watch);
        let verdict = match self.engine.decide(&request, &mut world) {
            Outcome::Decided(verdict) => verdict,
            // A rule that reads the body does not hold a request this way.
            Outcome::NeedsBody(held) => self.engine.turn_away(held, Reason::HostFailure),
        };
        Ok(self.effects.conclude(verdict, &request, stream, began, Ok(()), metrics))
    }

    // === The end of a request ===

    /// A request has ended. If it was still held, it never got further, and the record says so.
    pub(super) fn on_stream_end(&mut self, stream: StreamId, metrics: &mut Metrics) {
        if let Some(waiting) = self.held.end(stream) {
            self.give_up(stream, waiting, metrics);
        }
        if let Some(unready) = self.unready.end(stream) {
            self.give_up_unready(stream, unready, metrics);
        }
        self.effects.recorder.on_stream_end(stream);
    }

    /// Records a held request that can not be answered any more.
    fn give_up(&mut self, stream: StreamId, waiting: Waiting, metrics: &mut Metrics) {
        let Waiting {
            held,
            place,
            began,
            serialized,
        } = waiting;
        self.held_places.release(place);
        let recorder = &mut self.effects.recorder;
        match Request::parse(&serialized, &self.effects.headers, true) {
            Ok(request) => {
                let verdict = self.engine.turn_away(held, Reason::BodyIncomplete);
                recorder.record(&verdict, &request, stream, began.resumed(&self.host), metrics);
            }
            Err(error) => recorder.record_unread(&error.into(), began, metrics),
        }
    }

    /// Records a request that went away while it waited for the first snapshot.
    fn give_up_unready(&mut self, stream: StreamId, unready: Unready, metrics: &mut Metrics) {
        self.unready_places.release(unready.place);
        let recorder = &mut self.effects.recorder;
        match Request::parse(&unready.serialized, &self.effects.headers, unready.has_body) {
            Ok(request) => {
                let verdict = self.engine.give_up_unready(unready.rule_index);
                recorder.record(&verdict, &request, stream, unready.began, metrics);
            }
            // It has been read before; whatever this is, it is counted.
            Err(error) => recorder.record_unread(&error.into(), unready.began, metrics),
        }
    }

    // === Time ===

    /// Time has passed. `true` once a drained configuration has nothing left to do.
    pub(super) fn on_tick(&mut self, now: Monotonic, wall: UnixNanos, random: u64, metrics: &mut Metrics) -> bool {
        if let Some(since) = self.draining_since {
            let is_late = now.since(since) >= HELD_LIMIT;
            if is_late {
                for (stream, waiting) in self.held.give_up() {
                    self.give_up(stream, waiting, metrics);
                }
            }
            if self.holds_none() && (is_late || self.effects.recorder.unanswered() == 0) {
                self.effects.recorder.drain(now.plus(DRAIN_LIMIT));
            }
        }
        self.engine.on_tick();
        self.effects.recorder.on_tick(now, wall, random) && self.is_draining() && self.holds_none()
    }

    /// The configuration was replaced: the requests that it holds are still decided, and what it has recorded is sent.
    pub(super) fn drain(&mut self, now: Monotonic) {
        self.draining_since.get_or_insert(now);
    }

    /// Shows the other workers the chains that were verified here.
    pub(super) fn share_chains(&mut self, watch: &Watch, wall: UnixNanos) {
        let now = UnixTime(wall.second());
        self.engine
            .share_chains(now, &mut self.host.clone(), watch.cache_keys());
    }

    pub(super) fn report_gauges(&mut self, watch: &Watch, now: Monotonic, metrics: &mut Metrics) {
        let observed = Observed {
            engine: &self.engine,
            source: self.effects.recorder.source(),
            watch,
            held: self.held.len().saturating_add(self.unready.len()),
            memory_bytes: self.host.memory_bytes(),
        };
        self.gauges.report(&observed, now, metrics);
    }
}

/// Why a configuration without errors can not be served.
#[derive(Debug, thiserror::Error)]
pub(super) enum RootError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Recorder(#[from] RecorderError),
    #[error("the memory of used proofs in Envoy's shared data is not ours: give this plugin a vm_id of its own")]
    ReplayMemory,
}

/// A request that asks for a place, by what is known of each.
fn claim(host: &impl Host, serialized: &[u8]) -> Claim<'static> {
    // A number of eight bytes, the least significant first.
    let connection = host.property(&["connection", "id"]).ok().flatten();
    let connection = connection.and_then(|id| <[u8; 8]>::try_from(id).ok());
    Claim {
        connection: connection.map(u64::from_le_bytes),
        bytes: held_bytes(serialized),
        ..Claim::default()
    }
}

/// What the headers of a held request take: they are here, and in Envoy.
fn held_bytes(serialized: &[u8]) -> usize {
    serialized.len().saturating_mul(2)
}

/// Requests that wait for the first snapshot have a quarter as many places beside the others, and no more of them than are
/// settled within four ticks.
fn unready_limits(held: PlaceLimits) -> PlaceLimits {
    PlaceLimits {
        requests: held.requests.div_ceil(4).min(MAX_UNREADY),
        bytes: held.bytes.div_ceil(4),
    }
}

/// How long a replaced configuration may take to hand its evidence over.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// How long requests that are held for their bodies keep a replaced configuration.
const HELD_LIMIT: Duration = Duration::from_secs(30);

/// Requests that wait for the first snapshot at most.
const MAX_UNREADY: usize = 256;

/// Held requests that are settled in one callback. Envoy answers them when it ends, the next from within the end of the one
/// before: some 300 at once were found to exhaust the VM's stack (Envoy 1.40), which kills it and leaves the rest held.
const MAX_SETTLED: usize = 64;
