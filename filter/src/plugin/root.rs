//! One configuration in one VM: decides its requests and reports on them.

use std::time::Duration;

use credence_delegation::UnixTime;

use super::line::{Deed, Line, Speaker};
use super::world::{HostStore, RequestWorld};
use super::{StartError, WatchId};
use crate::answer::Answer;
use crate::audit::{self, Limits, Reporter, Ring};
use crate::clock::{Monotonic, UnixNanos};
use crate::config::{Access, Overflow, Policy};
use crate::decision::{Allowance, Decision, Denial, Reason};
use crate::engine::{Engine, Lookup, Verdict};
use crate::evidence::{Record, Recorder};
use crate::host::calls::{self, HostError, LocalResponse, LogLevel, MapType};
use crate::host::{Flow, RootId};
use crate::metrics::{self, Counter, DecisionCounters, Gauge, Metrics};
use crate::replay::ReplayMemory;
use crate::request::{Field, HeaderMapError, HeaderNames, Request, forged_names};
use crate::revocation::Watch;

/// A root context.
pub(super) struct Root {
    engine: Engine,
    recorder: Recorder,
    evidence: Evidence,
    /// Which of the VM's watches this configuration relies on.
    pub(super) watch: WatchId,
    /// The audit stream.
    pub(super) line: Line,
    headers: HeaderNames,
    /// One for each rule, and one for requests that no rule covers.
    decisions: Vec<DecisionCounters>,
    figures: Figures,
    is_draining: bool,
}

/// What waits for the control plane, and who sends it.
struct Evidence {
    ring: Ring,
    reporter: Reporter,
}

/// The metrics of a configuration, other than its decisions.
struct Figures {
    cache_hits: Counter,
    cache_misses: Counter,
    cache_evictions: Total,
    cached_chains: Gauge,
    audit_shed: Total,
    audit_acknowledged: Total,
    audit_streams: Total,
    audit_waiting: Gauge,
    revocation_streams: Total,
    revocation_violations: Total,
    revocation_revision: Gauge,
    revocation_subjects: Gauge,
    lease_age_ms: Gauge,
}

/// A counter that follows a total which is counted elsewhere.
struct Total {
    counter: Counter,
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
        let rules = policy.routes.iter().map(|rule| DecisionCounters::new(&rule.name));
        Ok(Self {
            decisions: rules.chain([DecisionCounters::new(NO_RULE)]).collect(),
            recorder: Recorder::new(policy.audit.arguments, calls::random()?),
            evidence: Evidence {
                ring,
                reporter: Reporter::new(settings),
            },
            headers: policy.headers.clone(),
            engine: Engine::new(policy, calls::random()?, replay),
            watch,
            line,
            figures: Figures::new(metrics),
            is_draining: false,
        })
    }

    pub(super) fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Decides a request, and does what was decided.
    pub(super) fn on_request_headers(&mut self, has_body: bool, watch: &Watch, metrics: &mut Metrics) -> Flow {
        match self.decide(has_body, watch, metrics) {
            Ok(flow) => flow,
            Err(error) => {
                calls::log(LogLevel::Error, &format!("credence: a request was refused: {error}"));
                let reason = Reason::HostFailure.code();
                count_decision(&mut self.decisions, metrics, None, metrics::Verdict::Deny, reason);
                // Without a clock it goes into the ledger's first second of all, but it does go there.
                let began = calls::unix_time().unwrap_or_default();
                self.evidence.ring.count(NO_RULE, reason, began);
                refuse()
            }
        }
    }

    fn decide(&mut self, has_body: bool, watch: &Watch, metrics: &mut Metrics) -> Result<Flow, HostError> {
        let began = calls::unix_time()?;
        let now = calls::monotonic()?;
        let serialized = calls::header_map_bytes(MapType::RequestHeaders)?;
        let request = match Request::parse(&serialized, &self.headers, has_body) {
            Ok(request) => request,
            Err(error) => {
                let denial = Denial::from(error);
                count_decision(
                    &mut self.decisions,
                    metrics,
                    None,
                    metrics::Verdict::Deny,
                    denial.reason.code(),
                );
                self.evidence.ring.count(NO_RULE, denial.reason.code(), began);
                answer_or_hold(&denial, false);
                return Ok(Flow::Pause);
            }
        };
        // First, on every path: what only we may say, nobody else has said.
        let stripped = strip(&request);

        let ring = &self.evidence.ring;
        let mut world = RequestWorld {
            now: began,
            freshness: watch.freshness(now),
            watch,
            can_record: ring.overflow() == audit::Overflow::Shed || ring.has_room_for_event(),
        };
        let mut verdict = self.engine.decide(&request, &mut world);
        let applied = stripped.and_then(|()| apply(&verdict, &request, &self.headers));
        if let Err(error) = applied {
            // The request must not go on as it is, and the record must say so.
            calls::log(LogLevel::Error, &format!("credence: a request was refused: {error}"));
            verdict.decision = Decision::Deny(Reason::HostFailure.into());
        }

        let (flow, way, reason) = match &verdict.decision {
            Decision::Allow(allowance) => (Flow::Continue, metrics::Verdict::Allow, allowance.code()),
            Decision::Deny(denial) => (Flow::Pause, metrics::Verdict::Deny, denial.reason.code()),
        };
        count_decision(&mut self.decisions, metrics, verdict.rule_index, way, reason);
        match verdict.findings.lookup {
            Some(Lookup::Hit) => metrics.add(self.figures.cache_hits, 1),
            Some(Lookup::Miss) => metrics.add(self.figures.cache_misses, 1),
            None => {}
        }
        // From here on nothing fails the request: what is decided is counted and recorded exactly once.
        let decision_ns = calls::monotonic().map_or(0, |end| end.since(now).as_nanos());
        let decision_ns = u64::try_from(decision_ns).unwrap_or(u64::MAX);
        let Evidence { ring, reporter } = &mut self.evidence;
        match self.recorder.record(&verdict, &request, began, decision_ns) {
            Record::Event(event, standing) => {
                ring.push(&event, standing, began);
            }
            Record::Count => ring.count(verdict.rule.map_or(NO_RULE, |rule| &rule.name), reason, began),
            Record::Nothing => {}
        }
        if let Decision::Deny(denial) = &verdict.decision {
            answer_or_hold(denial, request.is_grpc());
        }
        if reporter.is_flush_due(ring) {
            let actions = reporter.flush(ring, now);
            self.line.carry_out(&mut self.evidence, actions, now, 0);
        }
        calls::recycle(serialized);
        Ok(flow)
    }

    /// Time has passed. `true` once a drained configuration has nothing left to do.
    pub(super) fn on_tick(&mut self, now: Monotonic, wall: UnixNanos, random: u64) -> bool {
        let Evidence { ring, reporter } = &mut self.evidence;
        let actions = reporter.on_tick(ring, now, wall, random);
        self.line.carry_out(&mut self.evidence, actions, now, random);
        self.is_draining && self.evidence.reporter.is_finished()
    }

    pub(super) fn on_message(&mut self, message: &[u8], now: Monotonic, random: u64) {
        let Evidence { ring, reporter } = &mut self.evidence;
        let actions = reporter.on_message(ring, now, message, random);
        self.line.carry_out(&mut self.evidence, actions, now, random);
    }

    pub(super) fn on_close(&mut self, status: u32, now: Monotonic, random: u64) {
        self.line.forget();
        let deeds = Speaker::on_close(&mut self.evidence, now, status, random);
        self.line.carry_out(&mut self.evidence, deeds, now, random);
    }

    /// The configuration was replaced: what it has recorded is still sent.
    pub(super) fn drain(&mut self, now: Monotonic) {
        self.is_draining = true;
        self.evidence.ring.close();
        self.evidence.reporter.drain(now.plus(DRAIN_LIMIT));
    }

    pub(super) fn report_figures(&mut self, watch: &Watch, now: Monotonic, metrics: &mut Metrics) {
        let Self {
            figures,
            evidence: Evidence { ring, reporter },
            engine,
            ..
        } = self;
        figures.cache_evictions.follow(engine.cache().evictions(), metrics);
        metrics.set(figures.cached_chains, engine.cache().len() as u64);
        figures.audit_shed.follow(ring.shed(), metrics);
        figures
            .audit_acknowledged
            .follow(reporter.counters().acknowledged, metrics);
        figures.audit_streams.follow(reporter.counters().opened, metrics);
        metrics.set(figures.audit_waiting, ring.len() as u64);
        figures.revocation_streams.follow(watch.counters().opened, metrics);
        figures
            .revocation_violations
            .follow(watch.counters().violations, metrics);
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

impl Figures {
    fn new(metrics: &mut Metrics) -> Self {
        let mut total = |name| Total {
            counter: metrics.counter(name),
            reported: 0,
        };
        Self {
            cache_evictions: total("credence_cache_evictions"),
            audit_shed: total("credence_audit_shed"),
            audit_acknowledged: total("credence_audit_acknowledged"),
            audit_streams: total("credence_audit_streams"),
            revocation_streams: total("credence_revocation_streams"),
            revocation_violations: total("credence_revocation_violations"),
            cache_hits: metrics.counter("credence_cache_hits"),
            cache_misses: metrics.counter("credence_cache_misses"),
            cached_chains: metrics.gauge("credence_cached_chains"),
            audit_waiting: metrics.gauge("credence_audit_waiting"),
            revocation_revision: metrics.gauge("credence_revocation_revision"),
            revocation_subjects: metrics.gauge("credence_revocation_subjects"),
            lease_age_ms: metrics.gauge("credence_lease_age_ms"),
        }
    }
}

impl Total {
    fn follow(&mut self, total: u64, metrics: &mut Metrics) {
        metrics.add_up_to(self.counter, total, &mut self.reported);
    }
}

/// Refuses a request that nothing more can be done for.
pub(super) fn refuse() -> Flow {
    answer_or_hold(&Reason::HostFailure.into(), false);
    Flow::Pause
}

/// Removes every header that only this filter may set.
fn strip(request: &Request<'_>) -> Result<(), HostError> {
    request
        .forged
        .iter()
        .try_for_each(|name| calls::remove_header(MapType::RequestHeaders, name))
}

/// Makes the request what its decision says the service behind us shall see.
fn apply(verdict: &Verdict<'_>, request: &Request<'_>, names: &HeaderNames) -> Result<(), HostError> {
    let remove = |name: &[u8]| calls::remove_header(MapType::RequestHeaders, name);
    let (allowance, access) = match (&verdict.decision, verdict.rule) {
        (Decision::Allow(allowance), Some(rule)) => (allowance, &rule.access),
        (Decision::Allow(_), None) | (Decision::Deny(_), _) => return Ok(()),
    };
    if request.proof != Field::Absent {
        // Nobody behind us gets to spend it.
        remove(names.proof.as_bytes())?;
    }
    let Allowance::Delegated(identity) = allowance else {
        return Ok(());
    };
    request.overrides.iter().try_for_each(|name| remove(name))?;
    for (name, value) in &identity.headers {
        calls::set_header(MapType::RequestHeaders, name.as_bytes(), value.as_bytes())?;
    }
    match access {
        Access::Delegated(requirement) if requirement.forward => Ok(()),
        Access::Delegated(_) | Access::Public => remove(names.delegation.as_bytes()),
    }
}

/// Removes what only this filter may set from a request's trailers, which somebody further on may merge into its headers.
pub(super) fn strip_trailers() -> Result<(), TrailerError> {
    let serialized = calls::header_map_bytes(MapType::RequestTrailers)?;
    for name in forged_names(&serialized)? {
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
fn answer_or_hold(denial: &Denial, is_grpc: bool) {
    if let Err(error) = answer(denial, is_grpc) {
        calls::log(
            LogLevel::Error,
            &format!("credence: a denied request was not answered, and is held: {error}"),
        );
    }
}

fn answer(denial: &Denial, is_grpc: bool) -> Result<(), HostError> {
    let answer = Answer::for_denial(denial, is_grpc);
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

fn count_decision(
    decisions: &mut [DecisionCounters],
    metrics: &mut Metrics,
    rule: Option<usize>,
    way: metrics::Verdict,
    reason: &'static str,
) {
    // The last is for requests that no rule covers.
    let index = rule.unwrap_or(decisions.len().saturating_sub(1));
    if let Some(counters) = decisions.get_mut(index) {
        metrics.count_decision(counters, way, reason);
    }
}

/// How long a replaced configuration may take to hand its evidence over.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// The rule's name in figures and aggregates where no rule covers the request. No rule can have it: names are not empty.
const NO_RULE: &str = "";
