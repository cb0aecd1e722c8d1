//! The rule that a request matches.

use std::rc::Rc;

use credence_delegation::UnixTime;

use super::verdict::{Findings, Verdict};
use super::world::World;
use crate::config::{Matching, Rule, Unmatched};
use crate::decision::{Allowance, Decision, Denial, Reason};
use crate::grant::Grant;
use crate::proofs::Nonces;
use crate::request::Request;
use crate::request::target::{self, Host, Target};
use crate::route::{Captures, Unclear};

/// A request with its matching rule.
pub(crate) struct Routed<'p, 'r> {
    pub(crate) rule: &'p Rule,
    pub(crate) index: usize,
    pub(crate) host: Host<'r>,
    pub(crate) target: Target<'r>,
    pub(crate) captures: Captures<'r>,
}

impl<'p> Routed<'p, '_> {
    pub(super) fn verdict(
        &self,
        decision: Decision<Rc<Grant>>,
        findings: Findings,
        nonces: &Nonces,
        world: &impl World,
    ) -> Verdict<'p> {
        let mut verdict = Verdict::under(self.rule, self.index, decision, findings);
        if verdict.asks_for_nonce() {
            verdict.nonce = Some(nonces.make(UnixTime(world.now().second())));
        }
        verdict
    }
}

/// Whether Envoy sends the request to a cluster of its rule, if the rule names clusters. Envoy's routes may read a
/// request differently from the rules: `prefix: /admin` also matches `/adminx`.
pub(super) fn goes_where_expected(rule: &Rule, world: &impl World) -> bool {
    rule.clusters.is_empty()
        || world
            .cluster()
            .is_some_and(|found| rule.clusters.iter().any(|cluster| cluster.as_bytes() == found))
}

/// The rule that the request matches, if any.
pub(crate) fn route<'p, 'r>(policy: Matching<'p>, request: &Request<'r>) -> Result<Option<Routed<'p, 'r>>, Denial> {
    if target::is_ambiguous_method(request.method) {
        return Err(Reason::MethodAmbiguous.into());
    }
    let target = Target::parse(request.path, policy.paths).map_err(|_| match request.leaves_http {
        // A CONNECT has no path or an invalid one: name the problem of the request, not of its path.
        true => Reason::UpgradeDenied,
        false => Reason::PathAmbiguous,
    })?;
    let host = Host::parse(request.authority).ok_or(Reason::HostMalformed)?;
    let found = match policy.routes.find(host, request, &target) {
        // Without a rule, the request is denied anyway, and this reason is clearer.
        Err(Unclear::Spelling) if policy.unmatched == Unmatched::Deny => None,
        found => found?,
    };
    if host.is_ambiguous(policy.hosts) && found.as_ref().is_some_and(|found| found.leads_to.host_counts) {
        return Err(Reason::HostAmbiguous.into());
    }
    Ok(found.map(|found| Routed {
        rule: found.leads_to,
        index: found.index,
        host,
        target,
        captures: found.captures,
    }))
}

pub(crate) fn unmatched(policy: Matching<'_>, request: &Request<'_>) -> Decision<Rc<Grant>> {
    match policy.unmatched {
        _ if request.leaves_http => Decision::Deny(Reason::UpgradeDenied.into()),
        Unmatched::Deny => Decision::Deny(Reason::NoRoute.into()),
        Unmatched::Allow => Decision::Allow(Allowance::Unmatched),
    }
}
