//! One configuration in one VM: decides its requests and reports on them.

use std::time::Duration;

use credence_delegation::UnixTime;

use super::clerk::{Began, Books, Clerk, Evidence, strip, strip_trailers};
use super::line::Line;
use super::world::HostStore;
use super::{StartError, WatchId};
use crate::host::calls::{self, BufferType, HostError, LogLevel, MapType};
use crate::host::{Flow, RootId, StreamId};
use credence_decision::audit::events::Recorder;
use credence_decision::audit::{self, Limits, Pending, Reporter, Ring};
use credence_decision::clock::{Monotonic, UnixNanos, WallClock};
use credence_decision::config::{Overflow, Policy, RecordedDecisions};
use credence_decision::decision::Reason;
use credence_decision::engine::{Engine, Held, Outcome};
use credence_decision::held::AwaitingSnapshot;
use credence_decision::held::{AwaitingBody, Piece};
use credence_decision::held::{Claim, NoPlace, Place, PlaceLimits, Places};
use credence_decision::metrics::{Counter, DecisionCounters, Gauge, Histogram, Level, Metrics};
use credence_decision::proofs::ReplayMemory;
use credence_decision::request::Request;
use credence_decision::revocation::{Freshness, Watch};

/// A root context.
pub(super) struct Root {
    engine: Engine,
    /// Requests that wait for their bodies.
    held: AwaitingBody<StreamId, Waiting>,
    held_places: Places,
    /// Requests that wait for the VM's first snapshot.
    unready: AwaitingSnapshot<StreamId, Unready>,
    unready_places: Places,
    /// Which of the VM's watches this configuration relies on.
    pub(super) watch: WatchId,
    pub(super) clerk: Clerk,
    figures: Figures,
    /// Since when a replaced configuration has been waiting for the requests that it holds.
    draining_since: Option<Monotonic>,
    /// How long a request may wait for the VM's first snapshot.
    snapshot_wait: Duration,
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

/// The metrics of a configuration, other than its decisions.
struct Figures {
    cache_evictions: Total,
    cached_chains: Part,
    cached_bytes: Part,
    memory_bytes: Gauge,
    held: Part,
    shared_cache_hits: Total,
    shared_cache_beginnings: Total,
    shared_cache_misses: Total,
    shared_cache_stored: Total,
    shared_cache_dropped: Total,
    audit_shed: Total,
    audit_shed_counts: Total,
    audit_shed_chains: Total,
    audit_acknowledged: Total,
    audit_streams: Total,
    audit_waiting: Part,
    audit_ring_bytes: Part,
    audit_unanswered: Part,
    audit_lag_ms: Gauge,
    revocation_round_trip_us: Histogram,
    revocation_streams: Total,
    revocation_violations: Total,
    revocation_forgotten: Total,
    revocation_revision: Gauge,
    revocation_subjects: Gauge,
    lease_age_ms: Gauge,
}

/// A counter that follows a total which is counted elsewhere.
struct Total {
    counter: Counter,
    reported: u64,
}

/// This configuration's part, in this VM, of what the whole process has.
struct Part {
    level: Level,
    reported: u64,
}

impl Root {
    pub(super) fn new(
        id: RootId,
        policy: Policy,
        watch: WatchId,
        settings: audit::Settings,
        metrics: &mut Metrics,
    ) -> Result<Self, StartError> {
        let now = UnixTime(calls::unix_time()?.second());
        let replay = ReplayMemory::join(&mut HostStore, calls::random()?, now, policy.limits.proof_clock_skew)
            .map_err(|_| StartError::ReplayMemory)?;
        let books = match policy.audit.record {
            RecordedDecisions::All => Some(books(id, &policy, settings)?),
            RecordedDecisions::None => None,
        };
        let rules = policy.routes.iter().map(|rule| DecisionCounters::new(&rule.name));
        Ok(Self {
            clerk: Clerk {
                decisions: rules.chain([DecisionCounters::without_rule()]).collect(),
                books,
                headers: policy.headers.clone(),
                host_counts: policy.host_counts,
                filter_state: policy.filter_state.clone(),
                cache_hits: metrics.counter("credence_cache_hits"),
                cache_beginnings: metrics.counter("credence_cache_beginnings"),
                cache_misses: metrics.counter("credence_cache_misses"),
                cache_refusals: metrics.counter("credence_cache_refusals"),
                verification_us: metrics.histogram("credence_verification_us"),
                cached_decision_us: metrics.histogram("credence_cached_decision_us"),
                wall_clock: WallClock::default(),
                hits: 0,
            },
            snapshot_wait: policy.wait_for_snapshot,
            held_places: Places::new(calls::random()?, policy.limits.held),
            unready_places: Places::new(calls::random()?, unready_limits(policy.limits.held)),
            engine: Engine::new(policy, calls::random()?, replay),
            held: AwaitingBody::new(),
            unready: AwaitingSnapshot::new(),
            watch,
            figures: Figures::new(metrics),
            draining_since: None,
        })
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining_since.is_some()
    }

    pub(super) fn holds_none(&self) -> bool {
        self.held.is_empty() && self.unready.is_empty()
    }

    /// Decides a request, or holds it for its body.
    pub(super) fn on_request_headers(
        &mut self,
        stream: StreamId,
        has_body: bool,
        watch: &Watch,
        metrics: &mut Metrics,
    ) -> Flow {
        match self.decide(stream, has_body, watch, metrics) {
            Ok(flow) => flow,
            Err(error) => self.clerk.refuse(&error, metrics),
        }
    }

    /// Some of a request's body has arrived, `size` bytes of it by now.
    pub(super) fn on_request_body(
        &mut self,
        stream: StreamId,
        size: usize,
        is_complete: bool,
        watch: &Watch,
        metrics: &mut Metrics,
    ) -> Flow {
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
                Piece::PassesOn | Piece::Waits | Piece::Stays => Flow::Pause,
            };
        }
        self.on_piece(stream, is_enough, watch, metrics)
    }

    /// A request's trailers have arrived: its body ends before them.
    pub(super) fn on_request_trailers(&mut self, stream: StreamId, watch: &Watch, metrics: &mut Metrics) -> Flow {
        if let Err(error) = strip_trailers(&self.engine.policy().removed_trailers) {
            calls::log(
                LogLevel::Error,
                &format!("credence: a request was held for its trailers: {error}"),
            );
            return Flow::Pause;
        }
        self.on_piece(stream, true, watch, metrics)
    }

    /// Decides a request that was held, by what of its body is there; `is_enough` if that need not wait for more.
    fn on_piece(&mut self, stream: StreamId, is_enough: bool, watch: &Watch, metrics: &mut Metrics) -> Flow {
        let waiting = match self.held.piece(stream, is_enough) {
            Piece::PassesOn => return Flow::Continue,
            Piece::Waits => return Flow::AwaitBody,
            Piece::Stays => return Flow::Pause,
            Piece::Decides(waiting) => waiting,
        };
        self.finish_held(stream, waiting, None, watch, metrics)
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
            .unwrap_or_else(|error| self.clerk.refuse(&error, metrics));
        if flow == Flow::Continue {
            self.held.release(stream);
        }
        flow
    }

    /// A request has ended. If it was still held, it never got further, and the record says so.
    pub(super) fn on_stream_end(&mut self, stream: StreamId, metrics: &mut Metrics) {
        if let Some(waiting) = self.held.end(stream) {
            self.give_up(stream, waiting, metrics);
        }
        if let Some(unready) = self.unready.end(stream) {
            self.give_up_unready(stream, unready, metrics);
        }
        self.clerk.on_stream_end(stream);
    }

    /// Decides the requests that wait for the VM's first snapshot, if it is there, and those that can wait no longer: some of
    /// them, and the next tick the next.
    pub(super) fn settle_unready(&mut self, now: Monotonic, watch: &Watch, metrics: &mut Metrics) {
        if self.unready.is_empty() {
            return;
        }
        let is_ready = watch.freshness(now) != Freshness::NeverSynced;
        for _ in 0..MAX_SETTLED {
            let Some((stream, unready)) = self.unready.next(is_ready, now) else {
                return;
            };
            let settled = calls::in_stream(stream, || {
                let flow = self
                    .decide_unready(stream, unready, watch, metrics)
                    .unwrap_or_else(|error| self.clerk.refuse(&error, metrics));
                match flow {
                    Flow::Continue => calls::continue_request(),
                    Flow::Pause | Flow::AwaitBody | Flow::Hold => Ok(()),
                }
            });
            // It stays where it is, and ends with its timeout.
            match settled {
                Ok(Ok(())) => {}
                Ok(Err(error)) => calls::log(
                    LogLevel::Error,
                    &format!("credence: a held request stays held: {error}"),
                ),
                // Nobody has decided about it, and the record says so.
                Err(error) => self.clerk.note_failure(&error, metrics),
            }
        }
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
        let began = self.clerk.begin()?;
        let request = match Request::parse(&serialized, &self.clerk.headers, has_body) {
            Ok(request) => request,
            Err(error) => return Ok(self.clerk.refuse_unread(&error.into(), began, metrics)),
        };
        let mut world = self.clerk.world(began, watch);
        let verdict = match self.engine.decide(&request, &mut world) {
            Outcome::Decided(verdict) => verdict,
            // A rule that reads the body does not hold a request this way.
            Outcome::NeedsBody(held) => self.engine.turn_away(held, Reason::HostFailure),
        };
        Ok(self.clerk.conclude(verdict, &request, stream, began, Ok(()), metrics))
    }

    /// Records a request that went away while it waited for the first snapshot.
    fn give_up_unready(&mut self, stream: StreamId, unready: Unready, metrics: &mut Metrics) {
        self.unready_places.release(unready.place);
        match Request::parse(&unready.serialized, &self.clerk.headers, unready.has_body) {
            Ok(request) => {
                let verdict = self.engine.give_up_unready(unready.rule_index);
                self.clerk.record(&verdict, &request, stream, unready.began, metrics);
            }
            // It has been read before; whatever this is, it is counted.
            Err(error) => self.clerk.note_unread(&error.into(), unready.began, metrics),
        }
    }

    /// Records a held request that nobody can be answered for any more.
    fn give_up(&mut self, stream: StreamId, waiting: Waiting, metrics: &mut Metrics) {
        let Waiting {
            held,
            place,
            began,
            serialized,
        } = waiting;
        self.held_places.release(place);
        match Request::parse(&serialized, &self.clerk.headers, true) {
            Ok(request) => {
                let verdict = self.engine.turn_away(held, Reason::BodyIncomplete);
                self.clerk.record(&verdict, &request, stream, began.resumed(), metrics);
            }
            Err(error) => self.clerk.note_unread(&error.into(), began, metrics),
        }
    }

    fn decide(
        &mut self,
        stream: StreamId,
        has_body: bool,
        watch: &Watch,
        metrics: &mut Metrics,
    ) -> Result<Flow, HostError> {
        let began = self.clerk.begin()?;
        let serialized = calls::header_map_bytes(MapType::RequestHeaders)?;
        let request = match Request::parse(&serialized, &self.clerk.headers, has_body) {
            Ok(request) => request,
            Err(error) => return Ok(self.clerk.refuse_unread(&error.into(), began, metrics)),
        };
        // First, on every path: what only we may say, nobody else has said.
        let stripped = strip(&request);
        let mut world = self.clerk.world(began, watch);
        match self.engine.decide(&request, &mut world) {
            Outcome::Decided(verdict) => {
                let may_wait = !self.snapshot_wait.is_zero() && Engine::is_unready(&verdict, has_body);
                let rule_index = verdict.rule_index.filter(|_| may_wait);
                let waiting = rule_index.and_then(|rule_index| {
                    let place = self.unready_places.take(&claim(&serialized)).ok()?;
                    Some((rule_index, place))
                });
                let Some((rule_index, place)) = waiting else {
                    let flow = self.clerk.conclude(verdict, &request, stream, began, stripped, metrics);
                    calls::recycle(serialized);
                    return Ok(flow);
                };
                if let Err(error) = stripped {
                    self.unready_places.release(place);
                    return Err(error);
                }
                let unready = Unready {
                    rule_index,
                    place,
                    began,
                    serialized,
                    has_body,
                };
                self.unready
                    .hold(stream, began.monotonic.plus(self.snapshot_wait), unready);
                Ok(Flow::Hold)
            }
            Outcome::NeedsBody(held) => {
                let proof = held.proof();
                let taken = self.held_places.take(&Claim {
                    sharers: Some(held.sharers()),
                    proof: proof.as_ref().map(|(holder, id)| (holder, *id)),
                    ..claim(&serialized)
                });
                let place = match taken {
                    Ok(place) => place,
                    Err(no_place) => {
                        let verdict = self.engine.turn_away(held, reason_of(no_place));
                        return Ok(self.clerk.conclude(verdict, &request, stream, began, stripped, metrics));
                    }
                };
                if let Err(error) = stripped {
                    self.held_places.release(place);
                    return Err(error);
                }
                let waiting = Waiting {
                    held,
                    place,
                    began: began.paused(),
                    serialized,
                };
                self.held.hold(stream, waiting);
                Ok(Flow::AwaitBody)
            }
        }
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
        let now = self.clerk.begin()?.after(began);
        let request = match Request::parse(&serialized, &self.clerk.headers, true) {
            Ok(request) => request,
            Err(error) => return Ok(self.clerk.refuse_unread(&error.into(), now, metrics)),
        };
        let verdict = if let Some(reason) = refusal {
            self.engine.turn_away(held, reason)
        } else {
            // One byte more than is read tells a body of just that size from a larger one.
            let limit = self.engine.policy().limits.body_bytes;
            let body = calls::buffer_bytes(BufferType::RequestBody, limit.saturating_add(1))?;
            let mut world = self.clerk.world(now, watch);
            self.engine.resume(held, &request, &body, &mut world)
        };
        let flow = self.clerk.conclude(verdict, &request, stream, now, Ok(()), metrics);
        calls::recycle(serialized);
        Ok(flow)
    }

    /// Time has passed. `true` once a drained configuration has nothing left to do.
    pub(super) fn on_tick(&mut self, now: Monotonic, wall: UnixNanos, random: u64, metrics: &mut Metrics) -> bool {
        if let Some(since) = self.draining_since {
            if now.since(since) >= HELD_LIMIT {
                for (stream, waiting) in self.held.give_up() {
                    self.give_up(stream, waiting, metrics);
                }
            }
            let is_over = self.clerk.unanswered() == 0 || now.since(since) >= HELD_LIMIT;
            if self.holds_none() && is_over {
                self.clerk.drain(now.plus(DRAIN_LIMIT));
            }
        }
        self.engine.on_tick();
        self.clerk.on_tick(now, wall, random) && self.is_draining()
    }

    /// The configuration was replaced: the requests that it holds are still decided, and what it has recorded is sent.
    pub(super) fn drain(&mut self, now: Monotonic) {
        self.draining_since.get_or_insert(now);
    }

    /// How long an echo took that has come behind every revocation before it.
    pub(super) fn note_round_trip(&self, took: Duration, metrics: &mut Metrics) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        metrics.observe(self.figures.revocation_round_trip_us, micros);
    }

    /// Shows the other workers the chains that were verified here.
    pub(super) fn share_chains(&mut self, watch: &Watch, wall: UnixNanos) {
        let now = UnixTime(wall.second());
        self.engine.share_chains(now, &mut HostStore, watch.cache_keys());
    }

    /// The configuration has ended: it has no part any more in what the process has.
    pub(super) fn withdraw_figures(&mut self, metrics: &mut Metrics) {
        let Figures {
            cached_chains,
            cached_bytes,
            held,
            audit_waiting,
            audit_ring_bytes,
            audit_unanswered,
            ..
        } = &mut self.figures;
        for part in [
            cached_chains,
            cached_bytes,
            held,
            audit_waiting,
            audit_ring_bytes,
            audit_unanswered,
        ] {
            part.is_now(0, metrics);
        }
        // Of a VM that ends nobody would ever say otherwise.
        metrics.set(self.figures.audit_lag_ms, 0);
    }

    pub(super) fn report_figures(&mut self, watch: &Watch, now: Monotonic, metrics: &mut Metrics) {
        let Self {
            figures,
            clerk,
            engine,
            held,
            unready,
            ..
        } = self;
        figures
            .held
            .is_now(held.len().saturating_add(unready.len()) as u64, metrics);
        figures.cache_evictions.follow(engine.cache().evictions(), metrics);
        figures.cached_chains.is_now(engine.cache().len() as u64, metrics);
        figures.cached_bytes.is_now(engine.cache().bytes() as u64, metrics);
        metrics.set(figures.memory_bytes, calls::memory_bytes());
        let shared = engine.shared_cache();
        figures.shared_cache_hits.follow(shared.hits, metrics);
        figures.shared_cache_beginnings.follow(shared.beginnings, metrics);
        figures.shared_cache_misses.follow(shared.misses, metrics);
        figures.shared_cache_stored.follow(shared.stored, metrics);
        figures.shared_cache_dropped.follow(shared.dropped, metrics);
        figures.audit_unanswered.is_now(clerk.unanswered() as u64, metrics);
        if let Some(books) = &clerk.books {
            let Evidence { ring, reporter } = &books.evidence;
            figures.audit_shed.follow(ring.shed().events, metrics);
            figures.audit_shed_counts.follow(ring.shed().counts, metrics);
            figures.audit_shed_chains.follow(ring.shed().chains, metrics);
            figures
                .audit_acknowledged
                .follow(reporter.counters().acknowledged, metrics);
            figures.audit_streams.follow(reporter.counters().opened, metrics);
            figures.audit_waiting.is_now(ring.len() as u64, metrics);
            figures.audit_ring_bytes.is_now(ring.bytes() as u64, metrics);
            let lag = u64::try_from(reporter.lag(now).as_millis()).unwrap_or(u64::MAX);
            metrics.set(figures.audit_lag_ms, lag);
        }
        figures.revocation_streams.follow(watch.counters().opened, metrics);
        figures
            .revocation_violations
            .follow(watch.counters().violations, metrics);
        figures.revocation_forgotten.follow(watch.counters().forgotten, metrics);
        if let Some(view) = watch.view() {
            metrics.set(figures.revocation_revision, view.revision());
            metrics.set(figures.revocation_subjects, view.len() as u64);
        }
        let age = watch
            .lease_age(now)
            .map_or(u64::MAX, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        metrics.set(figures.lease_age_ms, age);
    }
}

/// What a configuration records its decisions with.
fn books(id: RootId, policy: &Policy, settings: audit::Settings) -> Result<Books, StartError> {
    let ring = Ring::new(Limits {
        max_entries: policy.audit.ring_entries,
        max_bytes: policy.audit.ring_bytes,
        overflow: match policy.audit.on_overflow {
            Overflow::Shed => audit::Overflow::Shed,
            Overflow::Deny => audit::Overflow::Deny,
        },
    })?;
    let mut line = Line::new(&policy.control_plane.cluster, "credence.v1.AuditService", "Report");
    line.belongs_to(id);
    Ok(Books {
        recorder: Recorder::new(&policy.audit, calls::random()?),
        evidence: Evidence {
            ring,
            reporter: Reporter::new(settings),
        },
        line,
        pending: policy.audit.response_status.then(Pending::new),
    })
}

impl Figures {
    fn new(metrics: &mut Metrics) -> Self {
        let revocation_round_trip_us = metrics.histogram("credence_revocation_round_trip_us");
        let mut total = |name| Total {
            counter: metrics.counter(name),
            reported: 0,
        };
        Self {
            cache_evictions: total("credence_cache_evictions"),
            shared_cache_hits: total("credence_shared_cache_hits"),
            shared_cache_beginnings: total("credence_shared_cache_beginnings"),
            shared_cache_misses: total("credence_shared_cache_misses"),
            shared_cache_stored: total("credence_shared_cache_stored"),
            shared_cache_dropped: total("credence_shared_cache_dropped"),
            audit_shed: total("credence_audit_shed"),
            audit_shed_counts: total("credence_audit_shed_counts"),
            audit_shed_chains: total("credence_audit_shed_chains"),
            audit_acknowledged: total("credence_audit_acknowledged"),
            audit_streams: total("credence_audit_streams"),
            revocation_round_trip_us,
            revocation_streams: total("credence_revocation_streams"),
            revocation_violations: total("credence_revocation_violations"),
            revocation_forgotten: total("credence_revocation_forgotten"),
            cached_chains: Part::new(metrics, "credence_cached_chains"),
            cached_bytes: Part::new(metrics, "credence_cached_bytes"),
            memory_bytes: metrics.gauge("credence_memory_bytes"),
            held: Part::new(metrics, "credence_held"),
            audit_waiting: Part::new(metrics, "credence_audit_waiting"),
            audit_ring_bytes: Part::new(metrics, "credence_audit_ring_bytes"),
            audit_unanswered: Part::new(metrics, "credence_audit_unanswered"),
            audit_lag_ms: metrics.gauge("credence_audit_lag_ms"),
            revocation_revision: metrics.gauge("credence_revocation_revision"),
            revocation_subjects: metrics.gauge("credence_revocation_subjects"),
            lease_age_ms: metrics.gauge("credence_lease_age_ms"),
        }
    }
}

impl Part {
    fn new(metrics: &mut Metrics, name: &str) -> Self {
        Self {
            level: metrics.level(name),
            reported: 0,
        }
    }

    fn is_now(&mut self, value: u64, metrics: &mut Metrics) {
        metrics.bring_to(self.level, value, &mut self.reported);
    }
}

impl Total {
    fn follow(&mut self, total: u64, metrics: &mut Metrics) {
        metrics.add_up_to(self.counter, total, &mut self.reported);
    }
}

/// How long a replaced configuration may take to hand its evidence over.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// How long requests that are held for their bodies keep a replaced configuration.
const HELD_LIMIT: Duration = Duration::from_secs(30);

/// A request that asks for a place, by what is known of each.
fn claim(serialized: &[u8]) -> Claim<'static> {
    // A number of eight bytes, the least significant first.
    let connection = calls::property(&["connection", "id"]).ok().flatten();
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

fn reason_of(no_place: NoPlace) -> Reason {
    match no_place {
        NoPlace::Taken => Reason::TooManyHeld,
        NoPlace::ProofHeld => Reason::ProofReplayed,
    }
}

/// Requests that wait for the first snapshot have a quarter as many places beside the others, and no more of them than are
/// settled within four ticks.
fn unready_limits(held: PlaceLimits) -> PlaceLimits {
    PlaceLimits {
        requests: held.requests.div_ceil(4).min(MAX_UNREADY),
        bytes: held.bytes.div_ceil(4),
    }
}

/// Requests that wait for the first snapshot at most.
const MAX_UNREADY: usize = 256;

/// Held requests that are settled in one callback. Envoy answers them when it ends, the next from within the end of the one
/// before: some 300 at once were found to exhaust the VM's stack (Envoy 1.40), which kills it and leaves the rest held.
const MAX_SETTLED: usize = 64;
