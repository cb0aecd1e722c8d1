//! Challenges to OAuth clients (RFC 6750, section 3; RFC 9449, section 7.1).

use std::collections::BTreeMap;

use credence_delegation::{Algorithm, Algorithms, Arguments, TrustAnchors};
use serde::Serialize;

use super::resource_url::ResourceUrl;
use crate::decision::{Class, Reason};

/// What an access token needs for a request: any one of these.
#[derive(Clone, Debug, Serialize)]
pub struct Needed {
    /// A scope of the issuer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Authorization details (RFC 9396).
    pub authorization_details: Vec<NeededDetails>,
}

/// An entry of `authorization_details`: what it has besides these members depends on its type.
#[derive(Clone, Debug, Serialize)]
pub struct NeededDetails {
    #[serde(rename = "type")]
    name: String,
    /// With an empty map of constraints for each tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<BTreeMap<String, BTreeMap<(), ()>>>,
}

/// The unchanging part of a rule's challenges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Challenge {
    /// A scope that grants the rule's tool.
    pub scope: Option<String>,
    /// The algorithms of DPoP proofs, separated by spaces. Without them, the scheme is `Bearer`.
    pub algorithms: Option<String>,
    /// The URL of the resource's metadata.
    pub resource_metadata: Option<String>,
}

// === impl Needed ===

impl Needed {
    /// What would permit the tool, with these arguments if they are known: for tokens of this issuer, or of any.
    /// `None` if it has no access tokens.
    pub fn find(
        anchors: &TrustAnchors,
        issuer: Option<&str>,
        tool: &str,
        arguments: Option<&Arguments>,
    ) -> Option<Self> {
        let mut all = anchors.access_tokens();
        all.retain(|(name, _)| issuer.is_none_or(|issuer| *name == issuer));
        let granting = all
            .iter()
            .find(|(_, tokens)| tokens.scope_for(tool, arguments).is_some());
        let (_, tokens) = granting.or(all.first())?;
        let own = NeededDetails {
            name: "attenuating_agent_token".to_owned(),
            tools: Some(BTreeMap::from([(tool.to_owned(), BTreeMap::new())])),
        };
        let details = tokens.details_of_tool(tool).map(|name| NeededDetails {
            name: name.to_owned(),
            tools: None,
        });
        Some(Self {
            scope: tokens.scope_for(tool, arguments).map(str::to_owned),
            authorization_details: details.chain([own]).collect(),
        })
    }
}

// === impl Challenge ===

impl Challenge {
    /// The challenge of a rule, for `tool` if all its requests call one; `algorithms` are those of DPoP proofs, if it requires them.
    pub fn new(
        anchors: &TrustAnchors,
        tool: Option<&str>,
        algorithms: Option<&Algorithms>,
        resource: Option<&ResourceUrl>,
    ) -> Self {
        let needed = tool.and_then(|tool| Needed::find(anchors, None, tool, None));
        Self {
            scope: needed.and_then(|needed| needed.scope),
            algorithms: algorithms.map(|algorithms| dpop_algorithms(algorithms).join(" ")),
            resource_metadata: resource.map(ResourceUrl::metadata_url),
        }
    }

    /// The value of `WWW-Authenticate`; `None` if no other access token, and no other proof, would help. `is_presented`
    /// says whether the request had an access token: without one, there is no error (RFC 6750, section 3.1).
    pub fn header(&self, reason: Reason, needed: Option<&Needed>, is_presented: bool) -> Option<String> {
        let error = match reason.class() {
            Class::Missing => None,
            Class::Delegation => Some("invalid_token"),
            Class::Proof => Some(match reason {
                Reason::NonceRequired | Reason::ProofPredatesMemory => "use_dpop_nonce",
                Reason::CertificateMissing | Reason::CertificateMismatch => "invalid_token",
                _ if self.algorithms.is_none() => "invalid_token",
                _ => "invalid_dpop_proof",
            }),
            Class::Scope => {
                needed?;
                Some("insufficient_scope")
            }
            Class::Request | Class::TooLarge | Class::Closed | Class::Method | Class::NotFound | Class::Unavailable => {
                return None;
            }
        };
        let scope = match needed {
            Some(needed) => needed.scope.as_ref(),
            None => self.scope.as_ref(),
        };
        let error = error.filter(|_| is_presented);
        let description = error.map(|_| reason.shown().title().replace("delegation", "access token"));
        let parameters = [
            ("error", error),
            ("error_description", description.as_deref()),
            ("algs", self.algorithms.as_deref()),
            ("scope", scope.map(String::as_str)),
            ("resource_metadata", self.resource_metadata.as_deref()),
        ];
        let mut header = if self.algorithms.is_some() { "DPoP" } else { "Bearer" }.to_owned();
        let mut separator = " ";
        for (name, value) in parameters {
            let Some(value) = value else { continue };
            header.extend([separator, name, "=\"", value, "\""]);
            separator = ", ";
        }
        Some(header)
    }
}

/// RFC 9449 asks for names that clients know: `EdDSA` is the one that most of them write for Ed25519.
pub(super) fn dpop_algorithms(allowed: &Algorithms) -> Vec<&'static str> {
    let registered = allowed.iter().filter(|algorithm| *algorithm != Algorithm::Es256k);
    registered.map(Algorithm::name).collect()
}
