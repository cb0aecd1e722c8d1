//! Counts and records what was decided, and reports it to the control plane.

use credence_decision::audit::{RingError, Source};
use credence_decision::clock::{Began, Monotonic, UnixNanos, WallClock};
use credence_decision::config::Policy;
use credence_decision::decision::{Denial, Reason};
use credence_decision::engine::Verdict;
use credence_decision::metrics::VmMetrics;
use credence_decision::recorder;
use credence_decision::request::Request;
use credence_decision::revocation::Watch;
use credence_decision::stream::StreamHandler as _;

use credence_wire::v1::ReportHello;

use super::control_stream::ControlStream;
use super::request_world::RequestWorld;
use crate::host::{GrpcToken, Host, HostError, LogLevel, RootId, StreamId};

/// What one configuration records of its decisions, and its stream to the control plane.
pub(super) struct Recorder<H> {
    host: H,
    decisions: recorder::Recorder<StreamId>,
    stream: ControlStream<H>,
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
        stream.belongs_to(id);
        Ok(Self {
            decisions: recorder::Recorder::new(policy, hello, host.random()?, metrics)?,
            stream,
            wall_clock: WallClock::default(),
            host,
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
        Ok(Began::new(monotonic, wall))
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

    /// Counts and records a decision, exactly once.
    pub(super) fn record(&mut self, verdict: &Verdict<'_>, request: &Request<'_>, stream: StreamId, began: Began) {
        let now = || self.host.monotonic().ok();
        self.decisions.record(verdict, request, stream, began, now);
    }

    /// Sends what fills a batch, without waiting for the tick.
    pub(super) fn flush_if_due(&mut self, now: Monotonic) {
        if let Some(source) = &mut self.decisions.source {
            let actions = source.flush_if_due(now);
            self.stream.carry_out(source, actions, now, 0);
        }
    }

    /// Records a request whose headers cannot be read.
    pub(super) fn record_unread(&mut self, denial: &Denial, began: Began) {
        self.decisions.count_denials(denial.reason, 1, began.wall);
    }

    /// Records that a request could not be decided.
    pub(super) fn record_failure(&mut self, error: &HostError) {
        self.host
            .log(LogLevel::Error, &format!("credence: a request was refused: {error}"));
        self.record_undecided(1);
    }

    /// Records requests that were answered without a decision.
    pub(super) fn record_undecided(&mut self, requests: u64) {
        // Without a clock they go into the ledger's first second of all, but they do go there.
        let wall = self.host.unix_time().unwrap_or_default();
        self.decisions.count_denials(Reason::HostFailure, requests, wall);
    }

    /// A request has ended: if its event waits for that, it is recorded with what the client was answered.
    pub(super) fn on_stream_end(&mut self, stream: StreamId) {
        if let Some(source) = &mut self.decisions.source
            && source.is_pending(stream)
        {
            source.complete(stream, response_status(&self.host), self.wall_clock.latest());
        }
    }

    // === What time and the control plane bring ===

    /// Time has passed. `true` once drained evidence has been handed over.
    pub(super) fn on_tick(&mut self, now: Monotonic, wall: UnixNanos, random: u64) -> bool {
        self.wall_clock.set(now, wall);
        let Some(source) = &mut self.decisions.source else {
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
        self.stream.carry_out(source, actions, now, random);
        source.is_finished()
    }

    /// Whether this is the audit stream.
    pub(super) fn is_stream(&self, token: GrpcToken) -> bool {
        self.stream.is(token)
    }

    pub(super) fn on_message(&mut self, message: &[u8], now: Monotonic, random: u64) {
        if let Some(source) = &mut self.decisions.source {
            let actions = source.on_message(now, message, random);
            self.stream.carry_out(source, actions, now, random);
        }
    }

    pub(super) fn on_close(&mut self, status: u32, now: Monotonic, random: u64) {
        if let Some(source) = &mut self.decisions.source {
            self.stream.on_close(source, now, status, random);
        }
    }

    /// Nothing more is recorded: what is there is still sent, until `deadline`.
    pub(super) fn drain(&mut self, deadline: Monotonic) {
        if let Some(source) = &mut self.decisions.source {
            source.drain(deadline, self.wall_clock.latest());
        }
    }

    pub(super) fn source(&self) -> Option<&Source<StreamId>> {
        self.decisions.source.as_ref()
    }
}

/// What the client of the present request was answered; 0 if it was not, or not yet.
fn response_status(host: &impl Host) -> u32 {
    let status = host.number_property(&["response", "code"]);
    status.map_or(0, |status| u32::try_from(status).unwrap_or(0))
}

/// Why a configuration without errors cannot be served.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Ring(#[from] RingError),
    #[error("the memory of used proofs in Envoy's shared data is not ours: give this plugin a vm_id of its own")]
    ReplayMemory,
}
