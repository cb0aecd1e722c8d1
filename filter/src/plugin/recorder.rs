//! Counts and records what was decided.

use std::time::Duration;

use credence_decision::audit::counts::NO_RULE;
use credence_decision::audit::events::kind;
use credence_decision::audit::{Kind, RingError, Settings, Source};
use credence_decision::clock::{Monotonic, UnixNanos, WallClock};
use credence_decision::config::{Policy, RecordedDecisions};
use credence_decision::decision::{Denial, Reason};
use credence_decision::engine::{Findings, Verdict};
use credence_decision::metrics::{DecisionFigures, Metrics};
use credence_decision::request::Request;
use credence_decision::revocation::Watch;
use credence_decision::stream::StreamHandler as _;
use credence_wire::v1;

use super::control_stream::ControlStream;
use super::request_world::RequestWorld;
use crate::host::{GrpcToken, Host, HostError, LogLevel, RootId, StreamId};

/// The figures of one configuration's decisions, and the record of them.
pub(super) struct Recorder<H> {
    host: H,
    figures: DecisionFigures,
    /// What is recorded, and its way to the control plane; `None` if nothing is to be.
    audited: Option<Audited<H>>,
    wall_clock: WallClock,
}

struct Audited<H> {
    source: Source<StreamId>,
    stream: ControlStream<H>,
}

/// When the decision of a request was begun.
#[derive(Clone, Copy)]
pub(super) struct Began {
    wall: UnixNanos,
    pub(super) monotonic: Monotonic,
    /// What it took before the request had to wait, if it had to.
    spent: Duration,
}

impl<H: Host> Recorder<H> {
    pub(super) fn new(
        host: H,
        id: RootId,
        policy: &Policy,
        settings: Settings,
        metrics: &mut Metrics,
    ) -> Result<Self, RecorderError> {
        let audited = match policy.audit.record {
            RecordedDecisions::All => {
                let cluster = &policy.control_plane.cluster;
                let mut stream = ControlStream::new(host.clone(), cluster, "credence.v1.AuditService", "Report");
                stream.belongs_to(id);
                let source = Source::new(&policy.audit, settings, host.random()?)?;
                Some(Audited { source, stream })
            }
            RecordedDecisions::None => None,
        };
        Ok(Self {
            host,
            figures: DecisionFigures::new(policy, metrics),
            audited,
            wall_clock: WallClock::default(),
        })
    }

    // === What a request brings ===

    /// Now.
    pub(super) fn begin(&mut self) -> Result<Began, HostError> {
        let monotonic = self.host.monotonic()?;
        let wall = match self.wall_clock.at(monotonic) {
            Some(wall) => wall,
            None => {
                let wall = self.host.unix_time()?;
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
    pub(super) fn world<'w>(&'w self, began: Began, watch: &'w Watch) -> RequestWorld<'w, H> {
        RequestWorld {
            host: self.host.clone(),
            now: began.wall,
            freshness: watch.freshness(began.monotonic),
            watch,
            must_record_in: self.source().and_then(Source::ring_that_denies),
        }
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
        self.figures.count(&kind(verdict), verdict.rule_index, metrics);
        let decision_ns = self.decision_ns(&verdict.findings, began);
        self.figures.observe(&verdict.findings, decision_ns, metrics);
        if let Some(Audited { source, .. }) = &mut self.audited {
            source.record(verdict, request, stream, (began.monotonic, began.wall), decision_ns);
        }
    }

    /// How long a decision took, if that is measured.
    fn decision_ns(&mut self, findings: &Findings, began: Began) -> Option<u64> {
        if !self.figures.is_timed(findings, self.audited.is_some()) {
            return None;
        }
        let took = self.host.monotonic().ok()?.since(began.monotonic);
        u64::try_from(took.saturating_add(began.spent).as_nanos()).ok()
    }

    /// Sends what fills a batch, without waiting for the tick.
    pub(super) fn flush_if_due(&mut self, now: Monotonic) {
        if let Some(Audited { source, stream }) = &mut self.audited {
            let actions = source.flush_if_due(now);
            stream.carry_out(source, actions, now, 0);
        }
    }

    /// Records a request whose headers can not be read.
    pub(super) fn record_unread(&mut self, denial: &Denial, began: Began, metrics: &mut Metrics) {
        self.count_denials(denial.reason, 1, began.wall, metrics);
    }

    /// Records that a request could not be decided.
    pub(super) fn record_failure(&mut self, error: &HostError, metrics: &mut Metrics) {
        self.host
            .log(LogLevel::Error, &format!("credence: a request was refused: {error}"));
        self.record_undecided(1, metrics);
    }

    /// Records requests that were answered without a decision.
    pub(super) fn record_undecided(&mut self, requests: u64, metrics: &mut Metrics) {
        // Without a clock they go into the ledger's first second of all, but they do go there.
        let wall = self.host.unix_time().unwrap_or_default();
        self.count_denials(Reason::HostFailure, requests, wall, metrics);
    }

    /// Counts requests that were denied before it was known which rule covers them.
    fn count_denials(&mut self, reason: Reason, requests: u64, wall: UnixNanos, metrics: &mut Metrics) {
        let kind = Kind {
            rule: NO_RULE,
            reason: reason.code(),
            decision: v1::Decision::Deny,
            mode: v1::Mode::Enforce,
        };
        for _ in 0..requests {
            self.figures.count(&kind, None, metrics);
        }
        if let Some(Audited { source, .. }) = &mut self.audited {
            source.count(&kind, requests, wall);
        }
    }

    /// A request has ended: if its event waits for that, it is recorded with what the client was answered.
    pub(super) fn on_stream_end(&mut self, stream: StreamId) {
        if let Some(Audited { source, .. }) = &mut self.audited
            && source.is_pending(stream)
        {
            source.complete(stream, response_status(&self.host), self.wall_clock.latest());
        }
    }

    // === What time and the control plane bring ===

    /// Time has passed. `true` once drained evidence has been handed over.
    pub(super) fn on_tick(&mut self, now: Monotonic, wall: UnixNanos, random: u64) -> bool {
        self.wall_clock.set(now, wall);
        let Some(Audited { source, stream }) = &mut self.audited else {
            return true;
        };
        for request in source.asked_after(now) {
            match self.host.in_stream(request, || response_status(&self.host)) {
                Ok(0) => {}
                Ok(status) => source.complete(request, status, wall),
                // Its end was not seen.
                Err(_) => source.complete(request, 0, wall),
            }
        }
        let actions = source.on_tick(now, wall, random);
        stream.carry_out(source, actions, now, random);
        source.is_finished()
    }

    /// Whether this is the audit stream.
    pub(super) fn is_stream(&self, token: GrpcToken) -> bool {
        self.audited.as_ref().is_some_and(|audited| audited.stream.is(token))
    }

    pub(super) fn on_message(&mut self, message: &[u8], now: Monotonic, random: u64) {
        if let Some(Audited { source, stream }) = &mut self.audited {
            let actions = source.on_message(now, message, random);
            stream.carry_out(source, actions, now, random);
        }
    }

    pub(super) fn on_close(&mut self, status: u32, now: Monotonic, random: u64) {
        if let Some(Audited { source, stream }) = &mut self.audited {
            stream.on_close(source, now, status, random);
        }
    }

    /// Nothing more is recorded: what is there is still sent, until `deadline`.
    pub(super) fn drain(&mut self, deadline: Monotonic) {
        if let Some(Audited { source, .. }) = &mut self.audited {
            source.drain(deadline, self.wall_clock.latest());
        }
    }

    pub(super) fn source(&self) -> Option<&Source<StreamId>> {
        self.audited.as_ref().map(|audited| &audited.source)
    }

    /// Events that wait for the answer to their request.
    pub(super) fn unanswered(&self) -> usize {
        self.source().map_or(0, Source::unanswered)
    }
}

impl Began {
    /// The request has to wait, and that is none of the filter's time. One more call to the host, for those alone.
    pub(super) fn paused(self, host: &impl Host) -> Self {
        host.monotonic().map_or(self, |now| Self {
            spent: now.since(self.monotonic).saturating_add(self.spent),
            ..self
        })
    }

    /// It waits no longer, and is about what it was about.
    pub(super) fn resumed(self, host: &impl Host) -> Self {
        host.monotonic().map_or(self, |monotonic| Self { monotonic, ..self })
    }

    /// Goes on with what was paused, as of now.
    pub(super) fn after(self, paused: Self) -> Self {
        Self {
            spent: paused.spent,
            ..self
        }
    }
}

/// What the client of the present request was answered; 0 if it was not, or not yet.
fn response_status(host: &impl Host) -> u32 {
    let status = host.property(&["response", "code"]).ok().flatten();
    // A number of eight bytes, the least significant first.
    let status = status.and_then(|status| <[u8; 8]>::try_from(status).ok());
    status.map_or(0, |status| u32::try_from(u64::from_le_bytes(status)).unwrap_or(0))
}

/// Why decisions can not be recorded.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecorderError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Ring(#[from] RingError),
}
