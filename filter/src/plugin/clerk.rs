//! Carries out what was decided about a request, counts it and writes it down.

use std::time::Duration;

use credence_wire::v1;

use super::line::{Deed, Line, Speaker};
use super::world::RequestWorld;
use crate::host::calls::{self, HostError, LocalResponse, LogLevel, MapType};
use crate::host::{Flow, GrpcToken, StreamId};
use credence_decision::answer::Answer;
use credence_decision::audit::events::{Record, Recorder};
use credence_decision::audit::{self, Kind, Pending, Pushed, Reporter, Ring};
use credence_decision::chains::{CachedChain, Reported};
use credence_decision::clock::{Monotonic, UnixNanos, WallClock};
use credence_decision::config::{Access, Mode};
use credence_decision::decision::{Allowance, Decision, Denial, Reason};
use credence_decision::engine::{Findings, Lookup, Verdict};
use credence_decision::identity_headers::Part;
use credence_decision::metrics::{self, Counter, DecisionCounters, Histogram, Metrics};
use credence_decision::request::RemovedTrailers;
use credence_decision::request::{Field, HeaderMapError, HeaderNames, Request};
use credence_decision::revocation::Watch;

/// Whoever does what was decided.
pub(super) struct Clerk {
    /// What is recorded; `None` if nothing is to be.
    pub(super) books: Option<Books>,
    pub(super) headers: HeaderNames,
    /// Whether decisions depend on the host.
    pub(super) host_counts: bool,
    /// What of the identity goes into the filter state too.
    pub(super) filter_state: Vec<Part>,
    /// One for each rule, and one for requests that no rule covers.
    pub(super) decisions: Vec<DecisionCounters>,
    pub(super) cache_hits: Counter,
    pub(super) cache_beginnings: Counter,
    pub(super) cache_misses: Counter,
    pub(super) cache_refusals: Counter,
    pub(super) verification_us: Histogram,
    pub(super) cached_decision_us: Histogram,
    pub(super) wall_clock: WallClock,
    /// Decisions on remembered chains, which are too many to time them all.
    pub(super) hits: u64,
}

/// Everything about the record of decisions.
pub(super) struct Books {
    pub(super) recorder: Recorder,
    pub(super) evidence: Evidence,
    /// The audit stream.
    pub(super) line: Line,
    /// Events that wait for the answer to their request; `None` if none is to.
    pub(super) pending: Option<Pending<StreamId>>,
}

/// When the decision of a request was begun.
#[derive(Clone, Copy)]
pub(super) struct Began {
    wall: UnixNanos,
    pub(super) monotonic: Monotonic,
    /// What it took before the request had to wait, if it had to.
    spent: Duration,
}

/// What waits for the control plane, and who sends it.
pub(super) struct Evidence {
    pub(super) ring: Ring,
    pub(super) reporter: Reporter,
}

impl Clerk {
    /// Now.
    pub(super) fn begin(&mut self) -> Result<Began, HostError> {
        let monotonic = calls::monotonic()?;
        let wall = match self.wall_clock.at(monotonic) {
            Some(wall) => wall,
            None => {
                let wall = calls::unix_time()?;
                self.wall_clock.set(monotonic, wall);
                wall
            }
        };
        Ok(Began {
            wall,
            monotonic,
            spent: Duration::ZERO,
        })
    }

    /// What a decision needs of the world.
    pub(super) fn world<'w>(&'w self, began: Began, watch: &'w Watch) -> RequestWorld<'w> {
        let ring = self.books.as_ref().map(|books| &books.evidence.ring);
        RequestWorld {
            now: began.wall,
            freshness: watch.freshness(began.monotonic),
            watch,
            must_record_in: ring.filter(|ring| ring.overflow() == audit::Overflow::Deny),
        }
    }

    /// Makes the request what was decided, answers it if it is denied, and records the decision. `stripped` says whether
    /// what only we may say is gone from it.
    pub(super) fn conclude(
        &mut self,
        mut verdict: Verdict<'_>,
        request: &Request<'_>,
        stream: StreamId,
        began: Began,
        stripped: Result<(), HostError>,
        metrics: &mut Metrics,
    ) -> Flow {
        let applied = stripped.and_then(|()| match verdict.mode {
            Mode::Enforce => self.apply(&verdict, request),
            Mode::Shadow => Ok(()),
        });
        if let Err(error) = applied {
            // The request must not go on as it is, and the record must say so.
            calls::log(LogLevel::Error, &format!("credence: a request was refused: {error}"));
            verdict.decision = Decision::Deny(Reason::HostFailure.into());
            verdict.mode = Mode::Enforce;
        }
        self.record(&verdict, request, stream, began, metrics);
        let flow = match (&verdict.decision, verdict.mode) {
            (Decision::Allow(_), _) | (Decision::Deny(_), Mode::Shadow) => Flow::Continue,
            (Decision::Deny(denial), Mode::Enforce) => {
                answer_or_hold(denial, verdict.nonce.as_deref(), request.is_grpc());
                Flow::Pause
            }
        };
        self.flush_if_due(began.monotonic);
        flow
    }

    /// Makes the request what its decision says the service behind us shall see.
    fn apply(&self, verdict: &Verdict<'_>, request: &Request<'_>) -> Result<(), HostError> {
        let names = &self.headers;
        let remove = |name: &[u8]| calls::remove_header(MapType::RequestHeaders, name);
        let Decision::Allow(allowance) = &verdict.decision else {
            return Ok(());
        };
        // Where nothing is asked for least of all: what is open to all must not turn into what is not.
        request.overrides.iter().try_for_each(|name| remove(name))?;
        if self.host_counts {
            request.host_overrides.iter().try_for_each(|name| remove(name))?;
        }
        let Some(access) = verdict.rule.map(|rule| &rule.access) else {
            return Ok(());
        };
        if request.proof != Field::Absent {
            // Nobody behind us gets to spend it.
            remove(names.proof.as_bytes())?;
        }
        let forwards = match access {
            Access::Delegated(requirement) => requirement.forward,
            Access::Public => false,
        };
        if !forwards && request.delegation != Field::Absent {
            remove(names.delegation.as_bytes())?;
        }
        let Allowance::Delegated(grant) = allowance else {
            return Ok(());
        };
        for (name, value) in grant.identity().headers() {
            calls::set_header(MapType::RequestHeaders, name.as_bytes(), value.as_bytes())?;
        }
        for (part, value) in &grant.identity().parts {
            if self.filter_state.contains(part) {
                calls::set_filter_state(part.filter_state(), value.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Counts and records a decision, exactly once. Nothing here fails the request.
    pub(super) fn record(
        &mut self,
        verdict: &Verdict<'_>,
        request: &Request<'_>,
        stream: StreamId,
        began: Began,
        metrics: &mut Metrics,
    ) {
        let (way, reason) = match &verdict.decision {
            Decision::Allow(allowance) => (metrics::Verdict::Allow, allowance.code()),
            Decision::Deny(denial) => (metrics::Verdict::Deny, denial.reason.code()),
        };
        self.count(verdict.rule_index, verdict.mode, way, reason, metrics);
        match verdict.findings.lookup {
            Some(Lookup::Hit) => metrics.add(self.cache_hits, 1),
            Some(Lookup::Beginning) => metrics.add(self.cache_beginnings, 1),
            Some(Lookup::Miss) => metrics.add(self.cache_misses, 1),
            Some(Lookup::Refused) => metrics.add(self.cache_refusals, 1),
            // The engine counts its looks at what the workers share.
            Some(Lookup::Shared) | None => {}
        }
        let decision_ns = self.decision_ns(&verdict.findings, began);
        if let (true, Some(nanos)) = (verdict.findings.verified, decision_ns) {
            metrics.observe(self.verification_us, nanos.div_ceil(1_000));
        }
        let is_cached = verdict.findings.lookup == Some(Lookup::Hit) && !verdict.findings.verified;
        if let (true, Some(nanos)) = (is_cached && self.hits.is_multiple_of(SHOWN_HITS), decision_ns) {
            metrics.observe(self.cached_decision_us, nanos.div_ceil(1_000));
        }
        if let Some(books) = &mut self.books {
            books.record(verdict, request, stream, began, decision_ns);
        }
    }

    /// How long a decision took, if that is measured. To ask for the time costs more than to remember a chain, so that
    /// of the decisions on remembered chains for which no proof was verified either only one in `TIMED_HITS` is timed.
    fn decision_ns(&mut self, findings: &Findings, began: Began) -> Option<u64> {
        if self.books.is_none() && !findings.verified {
            return None;
        }
        if findings.lookup == Some(Lookup::Hit) && !findings.verified {
            self.hits = self.hits.wrapping_add(1);
            if !self.hits.is_multiple_of(TIMED_HITS) {
                return None;
            }
        }
        let end = calls::monotonic().ok()?;
        let took = end.since(began.monotonic).saturating_add(began.spent);
        u64::try_from(took.as_nanos()).ok()
    }

    /// Refuses a request whose headers can not be read.
    pub(super) fn refuse_unread(&mut self, denial: &Denial, began: Began, metrics: &mut Metrics) -> Flow {
        self.note_unread(denial, began, metrics);
        answer_or_hold(denial, None, false);
        Flow::Pause
    }

    /// Records a request whose headers can not be read.
    pub(super) fn note_unread(&mut self, denial: &Denial, began: Began, metrics: &mut Metrics) {
        self.count_denials(denial.reason, 1, began.wall, metrics);
    }

    /// Refuses a request that the host has left us without the means to decide.
    pub(super) fn refuse(&mut self, error: &HostError, metrics: &mut Metrics) -> Flow {
        self.note_failure(error, metrics);
        refuse()
    }

    /// Records that a request could not be decided.
    pub(super) fn note_failure(&mut self, error: &HostError, metrics: &mut Metrics) {
        calls::log(LogLevel::Error, &format!("credence: a request was refused: {error}"));
        self.note_undecided(1, metrics);
    }

    /// Records requests that were answered without anybody's being able to decide about them.
    pub(super) fn note_undecided(&mut self, requests: u64, metrics: &mut Metrics) {
        // Without a clock they go into the ledger's first second of all, but they do go there.
        let wall = calls::unix_time().unwrap_or_default();
        self.count_denials(Reason::HostFailure, requests, wall, metrics);
    }

    /// Counts requests that were denied before it was known which rule covers them.
    fn count_denials(&mut self, reason: Reason, requests: u64, wall: UnixNanos, metrics: &mut Metrics) {
        let reason = reason.code();
        for _ in 0..requests {
            self.count(None, Mode::Enforce, metrics::Verdict::Deny, reason, metrics);
        }
        if let Some(books) = &mut self.books {
            let kind = Kind {
                rule: NO_RULE,
                reason,
                decision: v1::Decision::Deny,
                mode: v1::Mode::Enforce,
            };
            books.evidence.ring.count_several(&kind, requests, wall);
        }
    }

    fn count(
        &mut self,
        rule: Option<usize>,
        mode: Mode,
        way: metrics::Verdict,
        reason: &'static str,
        metrics: &mut Metrics,
    ) {
        // The last is for requests that no rule covers.
        let index = rule.unwrap_or(self.decisions.len().saturating_sub(1));
        if let Some(counters) = self.decisions.get_mut(index) {
            metrics.count_decision(counters, mode, way, reason);
        }
    }

    fn flush_if_due(&mut self, now: Monotonic) {
        if let Some(books) = &mut self.books {
            books.flush_if_due(now);
        }
    }

    /// Time has passed. `true` once drained evidence has been handed over.
    pub(super) fn on_tick(&mut self, now: Monotonic, wall: UnixNanos, random: u64) -> bool {
        self.wall_clock.set(now, wall);
        self.books.as_mut().is_none_or(|books| books.on_tick(now, wall, random))
    }

    /// A request has ended: if its event waits for that, it is recorded with what the client was answered.
    pub(super) fn on_stream_end(&mut self, stream: StreamId) {
        if let Some(books) = &mut self.books {
            books.on_stream_end(stream, self.wall_clock.latest());
        }
    }

    /// Events that wait for the answer to their request.
    pub(super) fn unanswered(&self) -> usize {
        let pending = self.books.as_ref().and_then(|books| books.pending.as_ref());
        pending.map_or(0, Pending::len)
    }

    /// Whether this is the audit stream.
    pub(super) fn is_line(&self, token: GrpcToken) -> bool {
        self.books.as_ref().is_some_and(|books| books.line.is(token))
    }

    pub(super) fn on_message(&mut self, message: &[u8], now: Monotonic, random: u64) {
        if let Some(books) = &mut self.books {
            books.on_message(message, now, random);
        }
    }

    pub(super) fn on_close(&mut self, status: u32, now: Monotonic, random: u64) {
        if let Some(books) = &mut self.books {
            books.on_close(status, now, random);
        }
    }

    /// Nothing more is recorded: what is there is still sent, until `deadline`.
    pub(super) fn drain(&mut self, deadline: Monotonic) {
        if let Some(books) = &mut self.books {
            books.drain(deadline, self.wall_clock.latest());
        }
    }
}

impl Began {
    /// The request has to wait, and that is none of the filter's time. One more call to the host, for those alone.
    pub(super) fn paused(self) -> Self {
        calls::monotonic().map_or(self, |now| Self {
            spent: now.since(self.monotonic).saturating_add(self.spent),
            ..self
        })
    }

    /// It waits no longer, and is about what it was about.
    pub(super) fn resumed(self) -> Self {
        calls::monotonic().map_or(self, |monotonic| Self { monotonic, ..self })
    }

    /// Goes on with what was paused, as of now.
    pub(super) fn after(self, paused: Self) -> Self {
        Self {
            spent: paused.spent,
            ..self
        }
    }
}

impl Books {
    fn record(
        &mut self,
        verdict: &Verdict<'_>,
        request: &Request<'_>,
        stream: StreamId,
        began: Began,
        decision_ns: Option<u64>,
    ) {
        let ring = &mut self.evidence.ring;
        match self.recorder.record(verdict, request, began.wall, decision_ns) {
            Record::Event {
                event,
                owner,
                with_chain,
            } => {
                if with_chain
                    && let Some(chain) = &verdict.findings.chain
                    && chain.reported.get() != Reported::Sent
                    && let Field::Once(presented) = request.delegation
                {
                    report_chain(ring, chain, presented, began.wall);
                }
                match &mut self.pending {
                    Some(pending) => pending.hold(stream, event, owner, ring, began.monotonic, began.wall),
                    None => {
                        ring.push(event, owner, began.wall);
                    }
                }
            }
            Record::Count => ring.count(&kind(verdict), began.wall),
        }
    }

    fn flush_if_due(&mut self, now: Monotonic) {
        let Evidence { ring, reporter } = &mut self.evidence;
        if reporter.is_flush_due(ring) {
            let actions = reporter.flush_full(ring, now);
            self.line.carry_out(&mut self.evidence, actions, now, 0);
        }
    }

    fn on_stream_end(&mut self, stream: StreamId, wall: UnixNanos) {
        let Some(pending) = &mut self.pending else { return };
        if pending.is_waiting(stream) {
            pending.complete(stream, response_status(), &mut self.evidence.ring, wall);
        }
    }

    /// Events of requests that go on after they were answered, such as streams, are not kept until their end.
    fn ask_after_answers(&mut self, now: Monotonic, wall: UnixNanos) {
        let Some(pending) = &mut self.pending else { return };
        for stream in pending.asked_after(now, MAX_ASKED_AFTER) {
            match calls::in_stream(stream, response_status) {
                Ok(0) => {}
                Ok(status) => pending.complete(stream, status, &mut self.evidence.ring, wall),
                // Its end was not seen.
                Err(_) => pending.complete(stream, 0, &mut self.evidence.ring, wall),
            }
        }
    }

    fn on_tick(&mut self, now: Monotonic, wall: UnixNanos, random: u64) -> bool {
        self.ask_after_answers(now, wall);
        let Evidence { ring, reporter } = &mut self.evidence;
        let actions = reporter.on_tick(ring, now, wall, random);
        self.line.carry_out(&mut self.evidence, actions, now, random);
        self.evidence.reporter.is_finished()
    }

    fn on_message(&mut self, message: &[u8], now: Monotonic, random: u64) {
        let Evidence { ring, reporter } = &mut self.evidence;
        let actions = reporter.on_message(ring, now, message, random);
        self.line.carry_out(&mut self.evidence, actions, now, random);
    }

    fn on_close(&mut self, status: u32, now: Monotonic, random: u64) {
        self.line.forget();
        let deeds = Speaker::on_close(&mut self.evidence, now, status, random);
        self.line.carry_out(&mut self.evidence, deeds, now, random);
    }

    fn drain(&mut self, deadline: Monotonic, wall: UnixNanos) {
        if let Some(pending) = &mut self.pending {
            pending.complete_all(&mut self.evidence.ring, wall);
        }
        self.evidence.ring.close();
        self.evidence.reporter.drain(deadline);
    }
}

impl Speaker for Evidence {
    fn on_open(&mut self, now: Monotonic) -> Vec<Deed> {
        self.reporter.on_open(now).into_iter().map(Into::into).collect()
    }

    fn on_close(&mut self, now: Monotonic, status: u32, random: u64) -> Vec<Deed> {
        self.reporter
            .on_close(&self.ring, now, status, random)
            .into_iter()
            .map(Into::into)
            .collect()
    }
}

impl From<audit::Action> for Deed {
    fn from(action: audit::Action) -> Self {
        match action {
            audit::Action::Open => Self::Open,
            audit::Action::Send(message) => Self::Send(message),
            audit::Action::Cancel => Self::Cancel,
            audit::Action::Report(notice) => Self::Report(notice.to_string()),
        }
    }
}

/// Puts a chain before the first event that names it. One that finds no room is counted as missing, once, and goes before a
/// later event.
fn report_chain(ring: &mut Ring, chain: &CachedChain, presented: &[u8], wall: UnixNanos) {
    let share = Some(chain.sharers.principal);
    let reported = if chain.reported.get() == Reported::Shed && !ring.has_room_for_chain(presented.len(), share) {
        Pushed::Shed
    } else {
        ring.push_chain(&Recorder::presented(chain, presented), presented.len(), share, wall)
    };
    chain.reported.set(match reported {
        Pushed::Stored => Reported::Sent,
        Pushed::Shed => Reported::Shed,
    });
}

/// What a decision is counted as.
fn kind<'v>(verdict: &Verdict<'v>) -> Kind<'v> {
    let (decision, reason) = match &verdict.decision {
        Decision::Allow(allowance) => (v1::Decision::Allow, allowance.code()),
        Decision::Deny(denial) => (v1::Decision::Deny, denial.reason.code()),
    };
    Kind {
        rule: verdict.rule.map_or(NO_RULE, |rule| &rule.name),
        reason,
        decision,
        mode: match verdict.mode {
            Mode::Enforce => v1::Mode::Enforce,
            Mode::Shadow => v1::Mode::Shadow,
        },
    }
}

/// What the client of the present request was answered; 0 if it was not, or not yet.
fn response_status() -> u32 {
    let status = calls::property(&["response", "code"]).ok().flatten();
    // A number of eight bytes, the least significant first.
    let status = status.and_then(|status| <[u8; 8]>::try_from(status).ok());
    status.map_or(0, |status| u32::try_from(u64::from_le_bytes(status)).unwrap_or(0))
}

/// Refuses a request that nothing more can be done for.
pub(super) fn refuse() -> Flow {
    answer_or_hold(&Reason::HostFailure.into(), None, false);
    Flow::Pause
}

/// Removes every header that only this filter may set.
pub(super) fn strip(request: &Request<'_>) -> Result<(), HostError> {
    request
        .forged
        .iter()
        .try_for_each(|name| calls::remove_header(MapType::RequestHeaders, name))
}

/// Removes from a request's trailers what some service could take for one of the headers that were decided upon.
pub(super) fn strip_trailers(removed: &RemovedTrailers) -> Result<(), TrailerError> {
    let serialized = calls::header_map_bytes(MapType::RequestTrailers)?;
    for name in removed.find(&serialized)? {
        calls::remove_header(MapType::RequestTrailers, name)?;
    }
    Ok(())
}

/// Why a request's trailers can not be made safe.
#[derive(Debug, thiserror::Error)]
pub(super) enum TrailerError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Map(#[from] HeaderMapError),
}

/// Answers a denied request. If even that fails it stays where it is, and ends with its timeout: it does not pass.
fn answer_or_hold(denial: &Denial, nonce: Option<&str>, is_grpc: bool) {
    if let Err(error) = answer(denial, nonce, is_grpc) {
        calls::log(
            LogLevel::Error,
            &format!("credence: a denied request was not answered, and is held: {error}"),
        );
    }
}

fn answer(denial: &Denial, nonce: Option<&str>, is_grpc: bool) -> Result<(), HostError> {
    let answer = Answer::for_denial(denial, nonce, is_grpc);
    let headers: Vec<_> = answer
        .headers
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
        .collect();
    calls::send_local_response(&LocalResponse {
        status: answer.status.into(),
        details: &format!("credence_{}", denial.reason.code()),
        headers: &headers,
        body: &answer.body,
        grpc_status: answer.grpc_status.and_then(|status| u8::try_from(status).ok()),
    })
}

/// Requests that have gone on for a while, of which one tick asks whether they were answered.
const MAX_ASKED_AFTER: usize = 256;

/// One in this many decisions for which nothing had to be verified is timed.
const TIMED_HITS: u64 = 16;

/// Of those, one in so many decisions is in the metrics: each costs a call to the host, and a hundredth of them tells as much. A
/// multiple of [`TIMED_HITS`].
const SHOWN_HITS: u64 = 256;

/// The rule's name in aggregates where no rule covers the request. No rule can have it: names are not empty.
const NO_RULE: &str = "";
