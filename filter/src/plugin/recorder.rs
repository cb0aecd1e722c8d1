//! Counts and records decisions, and reports them to the control plane.

use credence_decision::audit::events::kind;
use credence_decision::audit::{Kind, NO_RULE, RingError, Source};
use credence_decision::clock::{Began, Monotonic, UnixNanos, WallClock};
use credence_decision::config::{Policy, RecordedDecisions};
use credence_decision::decision::{Denial, Reason};
use credence_decision::engine::Verdict;
use credence_decision::metrics::{DecisionFigures, VmMetrics};
use credence_decision::request::Request;
use credence_decision::revocation::Watch;
use credence_decision::stream::StreamHandler as _;

use credence_wire::v1::{self, ReportHello};

use super::control_stream::ControlStream;
use super::request_world::RequestWorld;
use crate::host::{Host, HostError, RootId, StreamId};

/// What one configuration records about its decisions, and its stream to the control plane.
pub(super) struct Recorder<H> {
    host: H,
    figures: DecisionFigures,
    /// The evidence; `None` if the configuration records none.
    pub(super) source: Option<Source<StreamId>>,
    pub(super) stream: ControlStream<H>,
    wall_clock: WallClock,
}

impl<H: Host> Recorder<H> {
    pub(super) fn new(
        host: H,
        id: RootId,
        policy: &Policy,
        hello: ReportHello,
        metrics: &VmMetrics,
    ) -> Result<Self, StartError> {
        let cluster = &policy.control_plane.cluster;
        let mut stream = ControlStream::new(host.clone(), cluster, "credence.v1.AuditService", "Report");
        stream.root = Some(id);
        Ok(Self {
            figures: DecisionFigures::new(policy, metrics),
            source: match policy.audit.record {
                RecordedDecisions::All => Some(Source::new(&policy.audit, hello, host.random()?)?),
                RecordedDecisions::None => None,
            },
            stream,
            wall_clock: WallClock::default(),
            host,
        })
    }

    // === What a request brings ===

    /// The present time.
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
        Ok(Began::new(monotonic, wall))
    }

    /// The engine's inputs for a decision.
    pub(super) fn world<'w>(&'w self, began: Began, watch: &'w Watch) -> RequestWorld<'w, H> {
        RequestWorld {
            host: self.host.clone(),
            now: began.wall,
            freshness: watch.freshness(began.monotonic),
            watch,
            must_record_in: self.source.as_ref().and_then(Source::ring_that_denies),
        }
    }

    /// Counts and records a decision, exactly once. Errors here do not fail the request.
    pub(super) fn record(&mut self, verdict: &Verdict<'_>, request: &Request<'_>, stream: StreamId, began: Began) {
        let findings = &verdict.findings;
        self.figures.count(&kind(verdict), verdict.rule_index);
        self.figures.count_mcp(verdict);
        let is_timed = self.figures.is_timed(findings, self.source.is_some());
        let end = if is_timed { self.host.monotonic().ok() } else { None };
        let decision_ns = end.and_then(|now| u64::try_from(began.took(now).as_nanos()).ok());
        self.figures.observe(findings, decision_ns);
        if let Some(source) = &mut self.source {
            source.record(verdict, request, stream, (began.monotonic, began.wall), decision_ns);
        }
    }

    /// Sends full batches without waiting for the tick.
    pub(super) fn flush_if_due(&mut self, now: Monotonic) {
        if let Some(source) = &mut self.source {
            let actions = source.reporter.flush_full(now);
            self.stream.carry_out(&mut source.reporter, actions, now, 0);
        }
    }

    /// Records a request whose headers cannot be read.
    pub(super) fn record_unreadable(&mut self, denial: &Denial, began: Began) {
        self.count_denials(denial.reason, 1, began.wall);
    }

    /// Records that a request could not be decided.
    pub(super) fn record_failure(&mut self, error: &HostError) {
        self.host.log_error(format_args!("a request was refused: {error}"));
        self.record_undecided(1);
    }

    /// Records requests that were refused without a decision.
    pub(super) fn record_undecided(&mut self, requests: u64) {
        // Without a clock they are counted in the ledger's first second, instead of being lost.
        let wall = self.host.unix_time().unwrap_or_default();
        self.count_denials(Reason::HostFailure, requests, wall);
    }

    /// Counts requests that were denied before a rule matched.
    fn count_denials(&mut self, reason: Reason, requests: u64, wall: UnixNanos) {
        let kind = Kind {
            rule: NO_RULE,
            reason: reason.code(),
            decision: v1::Decision::Deny,
            mode: v1::Mode::Enforce,
        };
        for _ in 0..requests {
            self.figures.count(&kind, None);
        }
        if let Some(source) = &mut self.source {
            source.count(&kind, requests, wall);
        }
    }

    /// A request has ended. If its event waits for the answer, records it with the answer's status.
    pub(super) fn on_stream_end(&mut self, stream: StreamId) {
        if let Some(source) = &mut self.source
            && source.is_pending(stream)
        {
            // An end that waited for another call is reported in that call's context. 0 if the request is gone by then.
            let status = self.host.in_stream(stream, || response_status(&self.host));
            source.complete(stream, status.unwrap_or(0), self.wall_clock.latest());
        }
    }

    // === What time and the control plane bring ===

    /// Time has passed. Returns `true` once drained evidence is delivered.
    pub(super) fn on_tick(&mut self, now: Monotonic, wall: UnixNanos, random: u64) -> bool {
        self.wall_clock.set(now, wall);
        let Some(source) = &mut self.source else {
            return true;
        };
        for request in source.asked_after(now) {
            match self.host.in_stream(request, || response_status(&self.host)) {
                Ok(0) => {}
                Ok(status) => source.complete(request, status, wall),
                // The end of the request was not reported.
                Err(_) => source.complete(request, 0, wall),
            }
        }
        let actions = source.reporter.on_tick(now, wall, random);
        self.stream.carry_out(&mut source.reporter, actions, now, random);
        source.reporter.is_finished()
    }

    pub(super) fn on_message(&mut self, message: &[u8], now: Monotonic, random: u64) {
        if let Some(source) = &mut self.source {
            let actions = source.reporter.on_message(now, message, random);
            self.stream.carry_out(&mut source.reporter, actions, now, random);
        }
    }

    pub(super) fn on_close(&mut self, status: u32, now: Monotonic, random: u64) {
        if let Some(source) = &mut self.source {
            self.stream.on_close(&mut source.reporter, now, status, random);
        }
    }

    /// Stops recording. Sends the remaining evidence, until `deadline`.
    pub(super) fn drain(&mut self, deadline: Monotonic) {
        if let Some(source) = &mut self.source {
            source.drain(deadline, self.wall_clock.latest());
        }
    }
}

/// The status of the answer to the present request; 0 if there is none yet.
fn response_status(host: &impl Host) -> u32 {
    let status = host.number_property(&["response", "code"]);
    status.map_or(0, |status| u32::try_from(status).unwrap_or(0))
}

/// Why a valid configuration cannot be served.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Ring(#[from] RingError),
    #[error("another plugin uses the memory of used proofs in Envoy's shared data: give this plugin its own vm_id")]
    ReplayMemory,
}
