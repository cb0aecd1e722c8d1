//! One configuration in one VM: decides its requests, and holds those that must wait.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use credence_decision::audit::Source;
use credence_decision::clock::{Monotonic, UnixNanos};
use credence_decision::config::{Mode, Policy};
use credence_decision::decision::Reason;
use credence_decision::engine::{Engine, Outcome};
use credence_decision::exchanges::{Exchange, Exchanges};
use credence_decision::held::{Awaited, Client, HeldRequest, HeldRequests, Piece};
use credence_decision::metrics::{Gauges, Observed, VmMetrics};
use credence_decision::proofs::ReplayMemory;
use credence_decision::request::Request;
use credence_decision::revocation::{Freshness, View, Watch};
use credence_delegation::UnixTime;
use credence_wire::v1::ReportHello;

use super::effects::Effects;
use super::recorder::{Recorder, StartError};
use crate::host::{Flow, HeaderMap, Host, HostError, RootId, StreamId};

/// A root context.
pub(super) struct Root<H> {
    pub(super) host: H,
    pub(super) engine: Engine,
    pub(super) effects: Effects<H>,
    pub(super) gauges: Gauges,
    pub(super) held: HeldRequests<StreamId>,
    pub(super) exchanges: Exchanges<StreamId>,
    /// Since when a replaced configuration waits for its held requests.
    draining_since: Option<Monotonic>,
}

impl<H: Host> Root<H> {
    #[inline(never)]
    pub(super) fn new(
        host: H,
        id: RootId,
        policy: Policy,
        hello: ReportHello,
        metrics: &VmMetrics,
    ) -> Result<Self, StartError> {
        let now = UnixTime(host.unix_time()?.second());
        let replay = ReplayMemory::join(&mut host.clone(), host.random()?, now, policy.limits.proof_clock_skew)
            .map_err(|_| StartError::ReplayMemory)?;
        let policy = Rc::new(policy);
        Ok(Self {
            effects: Effects {
                host: host.clone(),
                recorder: Recorder::new(host.clone(), id, &policy, hello, metrics)?,
                policy: Rc::clone(&policy),
            },
            gauges: Gauges::new(metrics),
            held: HeldRequests::new(&policy, [host.random()?, host.random()?, host.random()?]),
            exchanges: Exchanges::new(),
            engine: Engine::new(policy, host.random()?, replay),
            draining_since: None,
            host,
        })
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining_since.is_some()
    }

    pub(super) fn holds_none(&self) -> bool {
        self.held.is_empty() && self.exchanges.is_empty()
    }

    // === A request's headers ===

    /// Decides a request, or holds it.
    pub(super) fn on_request_headers(&mut self, stream: StreamId, has_body: bool, watch: &Watch) -> Flow {
        let flow = self
            .decide(stream, has_body, watch)
            .unwrap_or_else(|error| self.effects.refuse(&error));
        if flow == Flow::Stop {
            self.held.close(stream);
        }
        flow
    }

    fn decide(&mut self, stream: StreamId, has_body: bool, watch: &Watch) -> Result<Flow, HostError> {
        let began = self.effects.recorder.begin()?;
        let serialized = self.host.header_map(HeaderMap::RequestHeaders)?;
        let request = match Request::parse(&serialized, &self.effects.policy.headers, has_body) {
            Ok(request) => request,
            Err(error) => return Ok(self.effects.refuse_unreadable(&error.into(), began)),
        };
        // First, in every case: only this filter may set these headers.
        let stripped = self.effects.strip(&request);
        let mut world = self.effects.recorder.world(began, watch);
        let connection = || self.host.number_property(&["connection", "id"]);
        let verdict = match self.engine.decide(&request, &mut world) {
            Outcome::Decided(verdict) => verdict,
            // If the headers could not be removed, the request is not held either.
            Outcome::NeedsBody(_) if stripped.is_err() => return stripped.map(|()| Flow::Stop),
            Outcome::NeedsBody(held) => {
                let address = match held.is_presented() {
                    true => None,
                    false => self.host.property(&["source", "address"])?.as_deref().map(network),
                };
                let client = Client {
                    connection: connection(),
                    address: address.as_deref(),
                };
                match self.held.body_place(&held, &serialized, client) {
                    Ok(place) => {
                        let headers = self.engine.let_headers_on(&held, &request, &mut world);
                        let headers_wait = headers.is_none();
                        let headers_are_gone = headers.as_ref().is_some_and(|verdict| verdict.mode == Mode::Enforce);
                        if let Some(verdict) = headers
                            && let Some(flow) = self.effects.let_headers_on(verdict, &request, stream, began)
                        {
                            self.held.give_back(place);
                            return Ok(flow);
                        }
                        let waits = HeldRequest {
                            awaits: Awaited::Body(held),
                            // One more host call, only for requests that wait.
                            began: self.host.monotonic().map_or(began, |now| began.paused(now)),
                            serialized,
                            has_body,
                            headers_are_gone,
                        };
                        self.held.hold(stream, waits, place);
                        return Ok(if headers_wait { Flow::Wait } else { Flow::Continue });
                    }
                    Err(reason) => self.engine.turn_away(held, reason),
                }
            }
        };
        let may_wait = self.held.waits_for_snapshot() && Engine::is_unready(&verdict, has_body);
        if let Some(rule_index) = verdict.rule_index.filter(|_| may_wait && stripped.is_ok())
            && let Some(place) = self.held.snapshot_place(&serialized, connection())
        {
            let waits = HeldRequest {
                awaits: Awaited::Snapshot(rule_index),
                began,
                serialized,
                has_body,
                headers_are_gone: false,
            };
            self.held.hold(stream, waits, place);
            return Ok(Flow::Wait);
        }
        let exchange = Exchange::of(&verdict, began.monotonic);
        let flow = self.effects.conclude(verdict, &request, stream, began, stripped);
        self.exchanges.begin_if(flow == Flow::Continue, stream, exchange);
        Ok(flow)
    }

    // === A request's body and trailers ===

    /// A part of a request's body has arrived; `size` bytes of it are present.
    pub(super) fn on_request_body(&mut self, stream: StreamId, size: usize, is_complete: bool, watch: &Watch) -> Flow {
        let piece = self.held.on_body(stream, size, is_complete);
        self.on_piece(stream, piece, watch)
    }

    /// A request's trailers have arrived.
    pub(super) fn on_request_trailers(&mut self, stream: StreamId, watch: &Watch) -> Flow {
        if let Err(error) = self.effects.strip_trailers() {
            self.host
                .log_error(format_args!("a request was held for its trailers: {error}"));
            return Flow::Stop;
        }
        let piece = self.held.on_trailers(stream);
        self.on_piece(stream, piece, watch)
    }

    fn on_piece(&mut self, stream: StreamId, piece: Piece, watch: &Watch) -> Flow {
        match piece {
            Piece::PassesOn => Flow::Continue,
            Piece::Waits => Flow::Wait,
            Piece::Stays => Flow::Stop,
            Piece::Decides(waits, refusal) => self.settle(stream, *waits, refusal, watch),
        }
    }

    /// Decides a held request, which does not wait any longer.
    fn settle(&mut self, stream: StreamId, waits: HeldRequest, refusal: Option<Reason>, watch: &Watch) -> Flow {
        let flow = self
            .decide_held(stream, waits, refusal, watch)
            .unwrap_or_else(|error| self.effects.refuse(&error));
        if flow == Flow::Continue {
            self.held.release(stream);
        }
        flow
    }

    fn decide_held(
        &mut self,
        stream: StreamId,
        waits: HeldRequest,
        refusal: Option<Reason>,
        watch: &Watch,
    ) -> Result<Flow, HostError> {
        // The wait is not the filter's time, and the state may have changed during it.
        let mut now = self.effects.recorder.begin()?;
        if let Awaited::Body(_) = waits.awaits {
            now = now.after(waits.began);
        }
        let request = match Request::parse(&waits.serialized, &self.effects.policy.headers, waits.has_body) {
            Ok(request) => request,
            Err(error) => return Ok(self.effects.refuse_unreadable(&error.into(), now)),
        };
        let mut world = self.effects.recorder.world(now, watch);
        let verdict = match (waits.awaits, refusal) {
            (Awaited::Body(held), Some(reason)) => self.engine.turn_away(held, reason),
            (Awaited::Body(held), None) => {
                // One byte more than the limit distinguishes a larger body from one of exactly that size.
                let limit = self.engine.policy().limits.body_bytes;
                let body = self.host.request_body(limit.saturating_add(1))?;
                self.engine.resume(held, &request, &body, &mut world)
            }
            (Awaited::Snapshot(_), _) => match self.engine.decide(&request, &mut world) {
                Outcome::Decided(verdict) => verdict,
                // A rule that reads the body holds a request in another way.
                Outcome::NeedsBody(held) => self.engine.turn_away(held, Reason::HostFailure),
            },
        };
        let exchange = Exchange::of(&verdict, now.monotonic);
        let flow = match waits.headers_are_gone {
            true => self.effects.conclude_body(verdict, &request, stream, now),
            false => self.effects.conclude(verdict, &request, stream, now, Ok(())),
        };
        self.exchanges.begin_if(flow == Flow::Continue, stream, exchange);
        Ok(flow)
    }

    // === Exchanges with MCP servers ===

    /// Ends what goes on although its delegation does not count any more, or its time is over.
    #[inline(never)]
    pub(super) fn end_exchanges(&mut self, now: Monotonic, watch: &Watch) {
        if self.exchanges.is_empty() {
            return;
        }
        let Ok(began) = self.effects.recorder.begin() else {
            return;
        };
        let world = self.effects.recorder.world(began, watch);
        let engine = &self.engine;
        let revision = watch.view().map(View::revision);
        let overdue = match self.draining_since {
            // Nothing will rewrite their answers.
            Some(since) if now.since(since) >= HELD_LIMIT => self.exchanges.give_up(),
            _ => self
                .exchanges
                .overdue(now, revision, |chain| engine.still_counts(chain, &world)),
        };
        for stream in overdue {
            let ended = self.host.in_stream(stream, || self.host.reset_request());
            if let Err(error) | Ok(Err(error)) = ended {
                self.host
                    .log_error(format_args!("a stream could not be ended: {error}"));
            }
        }
    }

    // === Requests that wait for the first snapshot ===

    /// Decides requests that wait for the VM's first snapshot, if it has arrived, and requests whose wait is over: a
    /// limited number in this callback (counted in `settled`), the rest at the next ticks.
    #[inline(never)]
    pub(super) fn settle_unready(&mut self, now: Monotonic, watch: &Watch, settled: &mut usize) {
        if self.held.is_empty() {
            return;
        }
        let is_ready = watch.freshness(now) != Freshness::NeverSynced;
        let host = self.host.clone();
        while *settled < MAX_SETTLED {
            let Some((stream, waits)) = self.held.next_settled(is_ready, now) else {
                return;
            };
            *settled = settled.saturating_add(1);
            let outcome = host.in_stream(stream, || match self.settle(stream, waits, None, watch) {
                Flow::Continue => host.continue_request(),
                Flow::Wait | Flow::Stop => Ok(()),
            });
            match outcome {
                Ok(Ok(())) => {}
                // The request is held, and ends with its timeout.
                Ok(Err(error)) => host.log_error(format_args!("a held request could not continue: {error}")),
                // The request was not decided, and is recorded as that.
                Err(error) => self.effects.recorder.record_failure(&error),
            }
        }
    }

    // === The end of a request ===

    /// A request has ended. If it was still held, records that it never passed.
    pub(super) fn on_stream_end(&mut self, stream: StreamId) {
        if let Some(waits) = self.held.end(stream) {
            self.give_up(stream, waits);
        }
        self.exchanges.end(stream);
        self.effects.recorder.on_stream_end(stream);
    }

    /// Records a held request that can no longer be answered.
    fn give_up(&mut self, stream: StreamId, waits: HeldRequest) {
        let (verdict, began) = match waits.awaits {
            Awaited::Body(held) => {
                let resumed = |now| waits.began.resumed(now);
                let began = self.host.monotonic().map_or(waits.began, resumed);
                (self.engine.turn_away(held, Reason::BodyIncomplete), began)
            }
            Awaited::Snapshot(rule_index) => (self.engine.give_up_unready(rule_index), waits.began),
        };
        self.effects
            .record_given_up(verdict, &waits.serialized, waits.has_body, stream, began);
    }

    // === Time ===

    /// Time has passed. Returns `true` once a drained configuration is finished.
    #[inline(never)]
    pub(super) fn on_tick(&mut self, now: Monotonic, wall: UnixNanos, random: u64) -> bool {
        if let Some(since) = self.draining_since {
            let is_late = now.since(since) >= HELD_LIMIT;
            if is_late {
                for (stream, waits) in self.held.give_up() {
                    self.give_up(stream, waits);
                }
            }
            if self.holds_none()
                && (is_late || self.effects.recorder.source.as_ref().map_or(0, Source::unanswered) == 0)
            {
                self.effects.recorder.drain(now.plus(DRAIN_LIMIT));
            }
        }
        self.engine.on_tick();
        self.effects.recorder.on_tick(now, wall, random) && self.is_draining() && self.holds_none()
    }

    /// Whether it should have finished long ago. Envoy ends a replaced configuration without a word if an equal one is
    /// replaced while the first still drains; its ticks then stop.
    pub(super) fn is_overdue(&self, now: Monotonic) -> bool {
        self.draining_since
            .is_some_and(|since| now.since(since) >= HELD_LIMIT.saturating_add(DRAIN_LIMIT.saturating_mul(2)))
    }

    /// The configuration was replaced. Its held requests are still decided, and its evidence is still sent.
    pub(super) fn drain(&mut self, now: Monotonic) {
        self.draining_since.get_or_insert(now);
    }

    /// Shares the chains that were verified here with the other workers.
    #[inline(never)]
    pub(super) fn share_chains(&mut self, watch: &Watch, wall: UnixNanos) {
        let now = UnixTime(wall.second());
        self.engine
            .share_chains(now, &mut self.host.clone(), watch.cache_keys());
    }

    #[inline(never)]
    pub(super) fn report_gauges(&mut self, now: Monotonic) {
        let observed = Observed {
            engine: &self.engine,
            source: self.effects.recorder.source.as_ref().map(|source| source.figures(now)),
            held: self.held.len(),
            exchanges: (self.exchanges.len(), self.exchanges.cut),
            memory_bytes: self.host.memory_bytes(),
        };
        self.gauges.report(&observed);
    }
}

/// The network of one client in an address of Envoy's, `192.0.2.7:49152` or `[2001:db8::7]:49152`: with IPv6, a client
/// has 64 bits for itself.
fn network(address: &[u8]) -> Vec<u8> {
    let parsed = std::str::from_utf8(address)
        .ok()
        .and_then(|text| text.parse::<SocketAddr>().ok());
    match parsed.map(|parsed| parsed.ip().to_canonical()) {
        Some(IpAddr::V4(ip)) => ip.octets().to_vec(),
        Some(IpAddr::V6(ip)) => ip.octets().into_iter().take(8).collect(),
        None => address.to_vec(),
    }
}

/// How long a replaced configuration may take to deliver its evidence.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// How long requests that wait for their bodies, and exchanges with MCP servers, keep a replaced configuration.
const HELD_LIMIT: Duration = Duration::from_secs(30);

/// Held requests to settle in one callback, of all configurations together. Envoy answers them at the end of the callback, each one nested in the end
/// of the previous one. About 300 at once exhausted the VM's stack (Envoy 1.40), which ends the VM and leaves the rest
/// held.
const MAX_SETTLED: usize = 64;
