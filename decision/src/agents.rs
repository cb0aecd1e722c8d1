//! What a request needs, as its agent finds out: by the rules of the service, which it publishes, and by the code that its
//! filter decides with.

use credence_delegation::Arguments;

use crate::arguments::body;
pub use crate::config::AgentRules;
use crate::config::{Calls, Requirement, Rule};
use crate::decision::{Allowance, Decision, Denial, Reason};
use crate::engine::{Called, Routed, route, unmatched};
use crate::mcp::MessageId;
use crate::request::Request;

/// What a request needs.
#[derive(Debug)]
pub enum Needed<'r> {
    /// Nothing: it is public.
    Nothing,
    /// A credential that grants this.
    Credential(Box<Invocation<'r>>),
}

/// A call that a credential must grant.
#[derive(Debug)]
pub struct Invocation<'r> {
    /// The rule.
    pub rule: &'r Rule,
    /// What the rule asks.
    pub requirement: &'r Requirement,
    /// The tool that the credential must grant; any valid one suffices if there is none.
    pub tool: Option<String>,
    /// The tool that a proof names.
    pub proven: String,
    /// The arguments, of the tool and in a proof.
    pub arguments: Arguments,
    /// The id of its MCP message, if it has one.
    pub id: Option<MessageId>,
    /// Whether the arguments are unknown, so that the credential must grant all.
    pub hides_arguments: bool,
}

/// Why a request would be denied, whatever it presents.
#[derive(Debug)]
pub struct Refusal<'r> {
    /// The denial that the filter would give.
    pub denial: Denial,
    /// The requirement of the rule, if one matches.
    pub requirement: Option<&'r Requirement>,
    /// The id of its MCP message, if it has one.
    pub id: Option<MessageId>,
}

impl AgentRules {
    /// Whether the body of this request must be read before [`AgentRules::needed`] can tell. The body is at most
    /// `body_bytes` long then.
    ///
    /// # Errors
    /// The request would be denied.
    pub fn reads_body(&self, request: &Request<'_>) -> Result<bool, Refusal<'_>> {
        let routed = self.routed(request)?;
        let Some(requirement) = routed.as_ref().and_then(|routed| routed.rule.requirement.as_ref()) else {
            return Ok(false);
        };
        if !request.has_body || !requirement.reads_body() {
            return Ok(false);
        }
        body::check_headers(request, self.body_bytes).map_err(|denial| Refusal::under(requirement, denial))?;
        Ok(true)
    }

    /// What this request needs. `body` is all of its body, if [`AgentRules::reads_body`] asks for it.
    ///
    /// # Errors
    /// The request would be denied.
    pub fn needed<'s>(&'s self, request: &Request<'_>, body: Option<&[u8]>) -> Result<Needed<'s>, Refusal<'s>> {
        let Some(routed) = self.routed(request)? else {
            return match unmatched(self.matching(), request) {
                Decision::Allow(Allowance::Unmatched) => Ok(Needed::Nothing),
                Decision::Deny(denial) => Err(denial.into()),
                Decision::Allow(_) => Err(Denial::from(Reason::HostFailure).into()),
            };
        };
        let rule = routed.rule;
        if request.leaves_http && (!rule.allows_upgrade || request.drops_headers) {
            return Err(Denial::from(Reason::UpgradeDenied).into());
        }
        let Some(requirement) = &rule.requirement else {
            return Ok(Needed::Nothing);
        };
        let takes_a_body = requirement.ignore_body || requirement.reads_body() || request.leaves_http;
        if request.has_body && !takes_a_body {
            return Err(Refusal::under(requirement, Reason::BodyUnmapped.into()));
        }
        let body = body.filter(|body| !body.is_empty());
        if body.is_some_and(|body| body.len() > self.body_bytes) {
            return Err(Refusal::under(requirement, Reason::BodyTooLarge.into()));
        }
        let mut id = None;
        let called = Called::read(requirement, &routed, request, body, &mut id);
        let called = match called {
            Ok(called) => called,
            Err(denial) => {
                return Err(Refusal {
                    id,
                    ..Refusal::under(requirement, denial)
                });
            }
        };
        Ok(Needed::Credential(Box::new(Invocation {
            rule,
            requirement,
            tool: called.needed().map(str::to_owned),
            proven: called.proven().to_owned(),
            id,
            hides_arguments: matches!(&requirement.calls, Calls::Mcp(_)) && !requirement.reads_body(),
            arguments: called.into_arguments(),
        })))
    }

    fn routed<'s, 'r>(&'s self, request: &Request<'r>) -> Result<Option<Routed<'s, 'r>>, Refusal<'s>> {
        route(self.matching(), request).map_err(Refusal::from)
    }
}

impl<'r> Invocation<'r> {
    /// The refusal of this call for a credential that does not grant it.
    pub fn refused(&self, denial: Denial) -> Refusal<'r> {
        Refusal {
            id: self.id.clone(),
            ..Refusal::under(self.requirement, denial)
        }
    }
}

impl<'r> Refusal<'r> {
    fn under(requirement: &'r Requirement, denial: Denial) -> Self {
        Self {
            denial,
            requirement: Some(requirement),
            id: None,
        }
    }
}

impl From<Denial> for Refusal<'_> {
    fn from(denial: Denial) -> Self {
        Self {
            denial,
            requirement: None,
            id: None,
        }
    }
}
