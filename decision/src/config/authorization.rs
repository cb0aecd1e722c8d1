//! `authorization` of a rule, and the protected resources that the rules with it make up.

use credence_delegation::{Algorithms, HttpUri, Location, TrustAnchors};

use super::checks::elements;
use super::file::{self, Mode, ProofKind, TokenProof};
use super::policy::{Authorization, Calls, Origin, Requirement, Rule};
use crate::mcp::Tools;
use crate::oauth::{Binding, Challenge, Resource, ResourceUrl, ToolOfResource};
use crate::route::Routes;

/// What the access tokens of a configuration have in common.
pub(super) struct AccessTokenRules<'a> {
    pub(super) anchors: &'a TrustAnchors,
    /// The algorithms of proofs.
    pub(super) algorithms: &'a Algorithms,
    /// Whether the rules are for agents, who know no trust anchors.
    pub(super) is_for_agents: bool,
}

impl AccessTokenRules<'_> {
    /// Compiles the field of a rule, for `tool` if all its requests call one.
    #[inline(never)]
    pub(super) fn compile(
        &self,
        at: &Location<'_>,
        written: &file::Authorization,
        tool: Option<&str>,
        audience: &[String],
    ) -> Authorization {
        if self.anchors.access_tokens().is_empty() && !self.is_for_agents {
            at.report(
                "no trust anchor has `access_tokens`, so none would ever be valid; add it to the issuer's anchor",
            );
        }
        let mut origins = Vec::new();
        let place = at.field("origins");
        let listed = written.origins.iter();
        for (at, origin) in listed.flat_map(|list| elements(&place, MAX_ORIGINS, list)) {
            match origin_of(origin) {
                Some(origin) => origins.push(origin),
                None => at.report(format!(
                    "`{origin}` is not an origin; write scheme and host without a path, such as `https://api.example`"
                )),
            }
        }
        let proof = match written.proof {
            TokenProof::Dpop => ProofKind::Dpop,
            TokenProof::Mtls => ProofKind::Mtls,
            TokenProof::None => ProofKind::None,
        };
        if written.origins.is_some() && proof != ProofKind::Dpop {
            at.field("origins")
                .report("only a DPoP proof names its URI; write `proof: dpop`, or remove `origins`");
        }
        let resource = ResourceUrl::of(audience);
        if resource.is_none() {
            at.note(
                "no audience is an https URL, so clients are not told where to get a token (RFC 9728); add the URL of \
                 this service to `audience`",
            );
        }
        let algorithms = Some(self.algorithms).filter(|_| proof == ProofKind::Dpop);
        Authorization {
            proof,
            origins,
            challenge: Challenge::new(self.anchors, tool, algorithms, resource.as_ref()),
        }
    }

    /// The resources of these rules: of each that reads `Authorization`, the first of its audiences that identifies one.
    #[inline(never)]
    pub(super) fn resources(&self, routes: &Routes<Rule>) -> Vec<Resource> {
        let mut resources: Vec<(ResourceUrl, Vec<ToolOfResource<'_>>)> = Vec::new();
        for rule in routes.iter() {
            let Some(requirement) = &rule.requirement else { continue };
            let Some(authorization) = &requirement.authorization else {
                continue;
            };
            let Some(url) = ResourceUrl::of(&requirement.audience) else {
                continue;
            };
            let binding = match authorization.proof {
                ProofKind::Dpop => Binding::Dpop,
                ProofKind::Mtls => Binding::Certificate,
                ProofKind::Pop | ProofKind::None => Binding::None,
            };
            let of_rule = self.tools(requirement).into_iter().map(|tool| ToolOfResource {
                tool,
                binding,
                is_enforced: rule.mode == Mode::Enforce,
            });
            match resources.iter_mut().find(|(earlier, _)| *earlier == url) {
                Some((_, tools)) => tools.extend(of_rule),
                None => resources.push((url, of_rule.collect())),
            }
        }
        let resources = resources.iter();
        resources
            .map(|(url, tools)| Resource::new(url, tools, self.anchors, self.algorithms))
            .collect()
    }
}

impl AccessTokenRules<'_> {
    /// The tools that requests of a rule may call. Those of an MCP server without a list are the ones in scopes.
    fn tools<'r>(&'r self, requirement: &'r Requirement) -> Vec<&'r str> {
        let endpoint = match &requirement.calls {
            Calls::Tool(tool) => return vec![tool],
            Calls::Mcp(endpoint) => endpoint,
        };
        let mut tools = endpoint.tools_of_methods();
        match &endpoint.tools {
            Tools::Named(names) => tools.extend(names.values().map(String::as_str)),
            Tools::Prefixed(prefix) => {
                let all = self.anchors.access_tokens();
                let of_scopes = all.iter().flat_map(|(_, tokens)| tokens.tools_of_scopes());
                tools.extend(of_scopes.filter(|tool| tool.starts_with(prefix)));
            }
        }
        if tools.is_empty() {
            tools.push("");
        }
        tools
    }
}

fn origin_of(text: &str) -> Option<Origin> {
    let (scheme, authority) = text.split_once("://")?;
    // Otherwise a part of the authority would be read as path or query.
    if authority.contains(['/', '?', '#']) {
        return None;
    }
    HttpUri::new(scheme, authority, "/")?;
    Some(Origin {
        scheme: scheme.to_owned(),
        authority: authority.to_owned(),
    })
}

/// Origins of one rule.
const MAX_ORIGINS: usize = 16;
