//! What a decision leads to: the request is changed or answered, and the decision recorded.

use credence_decision::answer::Answer;
use credence_decision::audit::Settings;
use credence_decision::config::{Access, Mode, Policy};
use credence_decision::decision::{Allowance, Decision, Denial, Reason};
use credence_decision::engine::Verdict;
use credence_decision::identity_headers::Part;
use credence_decision::metrics::Metrics;
use credence_decision::request::{Field, HeaderMapError, HeaderNames, RemovedTrailers, Request};

use super::recorder::{Began, Recorder, RecorderError};
use crate::host::{Flow, HeaderMap, Host, HostError, LocalResponse, LogLevel, RootId, StreamId};

/// Carries out the decisions of one configuration on the request that the host has called for.
pub(super) struct Effects<H> {
    host: H,
    pub(super) recorder: Recorder<H>,
    pub(super) headers: HeaderNames,
    /// Whether decisions depend on the host.
    host_counts: bool,
    /// What of the identity goes into the filter state too.
    filter_state: Vec<Part>,
}

impl<H: Host> Effects<H> {
    pub(super) fn new(
        host: H,
        id: RootId,
        policy: &Policy,
        settings: Settings,
        metrics: &mut Metrics,
    ) -> Result<Self, RecorderError> {
        Ok(Self {
            recorder: Recorder::new(host.clone(), id, policy, settings, metrics)?,
            host,
            headers: policy.headers.clone(),
            host_counts: policy.host_counts,
            filter_state: policy.filter_state.clone(),
        })
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
            self.host
                .log(LogLevel::Error, &format!("credence: a request was refused: {error}"));
            verdict.decision = Decision::Deny(Reason::HostFailure.into());
            verdict.mode = Mode::Enforce;
        }
        self.recorder.record(&verdict, request, stream, began, metrics);
        let flow = match (&verdict.decision, verdict.mode) {
            (Decision::Allow(_), _) | (Decision::Deny(_), Mode::Shadow) => Flow::Continue,
            (Decision::Deny(denial), Mode::Enforce) => {
                deny(&self.host, denial, verdict.nonce.as_deref(), request.is_grpc())
            }
        };
        self.recorder.flush_if_due(began.monotonic);
        flow
    }

    /// Refuses a request whose headers can not be read.
    pub(super) fn refuse_unread(&mut self, denial: &Denial, began: Began, metrics: &mut Metrics) -> Flow {
        self.recorder.record_unread(denial, began, metrics);
        deny(&self.host, denial, None, false)
    }

    /// Refuses a request that the host has left us without the means to decide.
    pub(super) fn refuse(&mut self, error: &HostError, metrics: &mut Metrics) -> Flow {
        self.recorder.record_failure(error, metrics);
        refuse(&self.host)
    }

    /// Removes every header that only this filter may set.
    pub(super) fn strip(&self, request: &Request<'_>) -> Result<(), HostError> {
        self.remove(&request.forged)
    }

    /// Removes from a request's trailers what some service could take for one of the headers that were decided upon.
    pub(super) fn strip_trailers(&self, removed: &RemovedTrailers) -> Result<(), TrailerError> {
        let serialized = self.host.header_map(HeaderMap::RequestTrailers)?;
        for name in removed.find(&serialized)? {
            self.host.remove_header(HeaderMap::RequestTrailers, name)?;
        }
        Ok(())
    }

    /// Makes an allowed request what the service behind us shall see.
    fn apply(&self, verdict: &Verdict<'_>, request: &Request<'_>) -> Result<(), HostError> {
        let Decision::Allow(allowance) = &verdict.decision else {
            return Ok(());
        };
        // Where nothing is asked for least of all: what is open to all must not turn into what is not.
        self.remove(&request.overrides)?;
        if self.host_counts {
            self.remove(&request.host_overrides)?;
        }
        let Some(access) = verdict.rule.map(|rule| &rule.access) else {
            return Ok(());
        };
        if request.proof != Field::Absent {
            // Nobody behind us gets to spend it.
            self.remove(&[self.headers.proof.as_bytes()])?;
        }
        let forwards = match access {
            Access::Delegated(requirement) => requirement.forward,
            Access::Public => false,
        };
        if !forwards && request.delegation != Field::Absent {
            self.remove(&[self.headers.delegation.as_bytes()])?;
        }
        let Allowance::Delegated(grant) = allowance else {
            return Ok(());
        };
        for (name, value) in grant.identity().headers() {
            self.host.set_header(name, value)?;
        }
        for (part, value) in &grant.identity().parts {
            if self.filter_state.contains(part) {
                self.host.set_filter_state(part.filter_state(), value)?;
            }
        }
        Ok(())
    }

    fn remove(&self, names: &[&[u8]]) -> Result<(), HostError> {
        names
            .iter()
            .try_for_each(|name| self.host.remove_header(HeaderMap::RequestHeaders, name))
    }
}

/// Refuses a request that nothing more can be done for.
pub(crate) fn refuse(host: &impl Host) -> Flow {
    deny(host, &Reason::HostFailure.into(), None, false)
}

/// Answers a denied request. If even that fails it stays where it is, and ends with its timeout: it does not pass.
pub(super) fn deny(host: &impl Host, denial: &Denial, nonce: Option<&str>, is_grpc: bool) -> Flow {
    let answer = Answer::for_denial(denial, nonce, is_grpc);
    let headers: Vec<_> = answer
        .headers
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let answered = host.answer(&LocalResponse {
        status: answer.status.into(),
        details: &format!("credence_{}", denial.reason.code()),
        headers: &headers,
        body: &answer.body,
        grpc_status: answer.grpc_status.and_then(|status| u8::try_from(status).ok()),
    });
    if let Err(error) = answered {
        host.log(
            LogLevel::Error,
            &format!("credence: a denied request was not answered, and is held: {error}"),
        );
    }
    Flow::Stop
}

/// Why a request's trailers can not be made safe.
#[derive(Debug, thiserror::Error)]
pub(super) enum TrailerError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Map(#[from] HeaderMapError),
}
