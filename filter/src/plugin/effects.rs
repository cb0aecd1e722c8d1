//! Carries out decisions: changes or answers the request, and records the decision.

use std::rc::Rc;

use credence_decision::answer::Answer;
use credence_decision::changes::{self, Change};
use credence_decision::clock::Began;
use credence_decision::config::{Mode, Policy};
use credence_decision::decision::{Allowance, Decision, Denial, Reason};
use credence_decision::engine::Verdict;
use credence_decision::request::{HeaderMapError, Request};

use super::recorder::Recorder;
use crate::host::{Flow, HeaderMap, Host, HostError, StreamId};

/// Carries out the decisions of one configuration on the current request.
pub(super) struct Effects<H> {
    pub(super) host: H,
    pub(super) recorder: Recorder<H>,
    pub(super) policy: Rc<Policy>,
}

impl<H: Host> Effects<H> {
    /// Applies the decision to the request, or answers a denied one, and records the decision. `stripped` says whether
    /// the headers that only this filter may set were removed.
    pub(super) fn conclude(
        &mut self,
        mut verdict: Verdict<'_>,
        request: &Request<'_>,
        stream: StreamId,
        began: Began,
        stripped: Result<(), HostError>,
    ) -> Flow {
        let applied = stripped.and_then(|()| self.apply(&verdict, request));
        self.fail_if(applied, &mut verdict);
        self.conclude_body(verdict, request, stream, began)
    }

    /// The headers of a request go on before its body is read. Returns what happens to the request if they do not.
    pub(super) fn let_headers_on(
        &mut self,
        mut verdict: Verdict<'_>,
        request: &Request<'_>,
        stream: StreamId,
        began: Began,
    ) -> Option<Flow> {
        let applied = self.apply(&verdict, request);
        self.fail_if(applied, &mut verdict);
        match (&verdict.decision, verdict.mode) {
            (Decision::Allow(_), _) | (Decision::Deny(_), Mode::Shadow) => None,
            (Decision::Deny(_), Mode::Enforce) => Some(self.conclude_body(verdict, request, stream, began)),
        }
    }

    fn fail_if(&self, applied: Result<(), HostError>, verdict: &mut Verdict<'_>) {
        if let Err(error) = applied {
            // The request must not pass unchanged, and the record must say so.
            self.host.log_error(format_args!("a request was refused: {error}"));
            verdict.decision = Decision::Deny(Reason::HostFailure.into());
            verdict.mode = Mode::Enforce;
        }
    }

    /// Answers a denied request, and records the decision. If it is allowed, its headers have been changed.
    pub(super) fn conclude_body(
        &mut self,
        verdict: Verdict<'_>,
        request: &Request<'_>,
        stream: StreamId,
        began: Began,
    ) -> Flow {
        self.recorder.record(&verdict, request, stream, began);
        let flow = match (&verdict.decision, verdict.mode) {
            (Decision::Allow(Allowance::ResourceMetadata(document)), _) => {
                let answer = Answer::with_metadata(document, request);
                answer_with(&self.host, &answer, "credence_resource_metadata")
            }
            (Decision::Allow(_), _) | (Decision::Deny(_), Mode::Shadow) => Flow::Continue,
            (Decision::Deny(denial), Mode::Enforce) => {
                let answer = Answer::for_verdict(&verdict, denial, request);
                deny(&self.host, denial, &answer)
            }
        };
        self.recorder.flush_if_due(began.monotonic);
        flow
    }

    /// Records a held request that ended early; `verdict` has the reason.
    pub(super) fn record_given_up(
        &mut self,
        verdict: Verdict<'_>,
        serialized: &[u8],
        has_body: bool,
        stream: StreamId,
        began: Began,
    ) {
        match Request::parse(serialized, &self.policy.headers, has_body) {
            Ok(request) => self.recorder.record(&verdict, &request, stream, began),
            // The headers were readable before, so this does not happen. It is counted anyway.
            Err(error) => self.recorder.record_unreadable(&error.into(), began),
        }
    }

    /// Refuses a request whose headers cannot be read.
    pub(super) fn refuse_unreadable(&mut self, denial: &Denial, began: Began) -> Flow {
        self.recorder.record_unreadable(denial, began);
        deny(&self.host, denial, &Answer::for_denial(denial, None))
    }

    /// Refuses a request after a failed call to the host.
    pub(super) fn refuse(&mut self, error: &HostError) -> Flow {
        self.recorder.record_failure(error);
        refuse(&self.host)
    }

    /// Removes every header that only this filter may set.
    pub(super) fn strip(&self, request: &Request<'_>) -> Result<(), HostError> {
        let mut forged = request.forged.iter();
        forged.try_for_each(|name| self.host.remove_header(HeaderMap::RequestHeaders, name))
    }

    /// Removes the trailers that a service could take for a header that the decision depends on.
    pub(super) fn strip_trailers(&self) -> Result<(), TrailerError> {
        let serialized = self.host.header_map(HeaderMap::RequestTrailers)?;
        for name in self.policy.removed_trailers.find(&serialized)? {
            self.host.remove_header(HeaderMap::RequestTrailers, name)?;
        }
        Ok(())
    }

    /// Applies an allowed decision: the headers that the service receives.
    fn apply(&self, verdict: &Verdict<'_>, request: &Request<'_>) -> Result<(), HostError> {
        if verdict.mode == Mode::Shadow {
            return Ok(());
        }
        changes::make(&self.policy, verdict, request, |change| match change {
            Change::Remove(name) => self.host.remove_header(HeaderMap::RequestHeaders, name),
            Change::Set(name, value) => self.host.set_header(HeaderMap::RequestHeaders, name, value),
            Change::Body(body) => self.host.replace_request_body(body.as_bytes()),
            Change::FilterState(name, value) => self.host.set_filter_state(name, value),
        })
    }
}

/// Refuses a request that cannot be decided.
pub(crate) fn refuse(host: &impl Host) -> Flow {
    let denial = Reason::HostFailure.into();
    deny(host, &denial, &Answer::for_denial(&denial, None))
}

fn deny(host: &impl Host, denial: &Denial, answer: &Answer) -> Flow {
    answer_with(host, answer, &format!("credence_{}", denial.reason.code()))
}

/// Answers a request. If that fails, the request is held until its timeout: it does not pass.
fn answer_with(host: &impl Host, answer: &Answer, details: &str) -> Flow {
    if let Err(error) = host.answer(answer, details) {
        host.log_error(format_args!("a request could not be answered, and is held: {error}"));
    }
    Flow::Stop
}

/// Why a request's trailers cannot be made safe.
#[derive(Debug, thiserror::Error)]
pub(super) enum TrailerError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Map(#[from] HeaderMapError),
}
