//! The metadata of protected resources (RFC 9728).

use std::rc::Rc;

use credence_delegation::{Algorithms, TrustAnchors};
use serde::Serialize;

use super::challenge::dpop_algorithms;
use super::resource_url::ResourceUrl;
use crate::request::Request;

/// A protected resource, whose metadata the filter serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    url: ResourceUrl,
    /// The metadata, as JSON.
    pub document: Rc<str>,
    /// Whether the filter answers: if one of its rules is enforced.
    pub is_enforced: bool,
}

/// A rule of a resource.
#[derive(Clone, Copy, Debug)]
pub struct ToolOfResource<'a> {
    /// Its tool.
    pub tool: &'a str,
    /// What binds its access tokens.
    pub binding: Binding,
    /// Whether it is enforced.
    pub is_enforced: bool,
}

/// What binds an access token to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// A DPoP proof (RFC 9449).
    Dpop,
    /// A client certificate (RFC 8705).
    Certificate,
    /// Nothing (RFC 6750).
    None,
}

/// Metadata of a protected resource (RFC 9728, section 2).
#[derive(Serialize)]
struct Metadata<'a> {
    resource: &'a str,
    authorization_servers: Vec<&'a str>,
    scopes_supported: Vec<&'a str>,
    bearer_methods_supported: [&'static str; 1],
    authorization_details_types_supported: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dpop_signing_alg_values_supported: Vec<&'static str>,
    dpop_bound_access_tokens_required: bool,
    tls_client_certificate_bound_access_tokens: bool,
}

// === impl Resource ===

impl Resource {
    /// A resource with these rules.
    pub fn new(
        url: &ResourceUrl,
        tools: &[ToolOfResource<'_>],
        anchors: &TrustAnchors,
        algorithms: &Algorithms,
    ) -> Self {
        Self {
            document: Metadata::new(url, tools, anchors, algorithms).json(),
            is_enforced: tools.iter().any(|tool| tool.is_enforced),
            url: url.clone(),
        }
    }

    /// The URL of its metadata.
    pub fn metadata_url(&self) -> String {
        self.url.metadata_url()
    }

    /// Whether the request is for its metadata.
    pub fn is_asked_for(&self, request: &Request<'_>) -> bool {
        self.url.is_asked_for(request)
    }
}

// === impl Metadata ===

impl<'a> Metadata<'a> {
    fn new(
        url: &'a ResourceUrl,
        tools: &[ToolOfResource<'_>],
        anchors: &'a TrustAnchors,
        algorithms: &Algorithms,
    ) -> Self {
        let binds = |binding| tools.iter().any(|tool| tool.binding == binding);
        let mut metadata = Self {
            resource: url.identifier(),
            authorization_servers: Vec::new(),
            scopes_supported: Vec::new(),
            bearer_methods_supported: ["header"],
            authorization_details_types_supported: vec!["attenuating_agent_token"],
            dpop_signing_alg_values_supported: Vec::new(),
            dpop_bound_access_tokens_required: tools.iter().all(|tool| tool.binding == Binding::Dpop),
            tls_client_certificate_bound_access_tokens: binds(Binding::Certificate),
        };
        if binds(Binding::Dpop) {
            metadata.dpop_signing_alg_values_supported = dpop_algorithms(algorithms);
        }
        for (issuer, tokens) in anchors.access_tokens() {
            for tool in tools {
                for scope in tokens.scopes_of_tool(tool.tool) {
                    add_once(&mut metadata.authorization_servers, issuer);
                    add_once(&mut metadata.scopes_supported, scope);
                }
                for name in tokens.details_of_tool(tool.tool) {
                    add_once(&mut metadata.authorization_servers, issuer);
                    add_once(&mut metadata.authorization_details_types_supported, name);
                }
            }
        }
        // Without a mapping, only details of the draft's own type grant anything.
        if metadata.authorization_servers.is_empty() {
            for (issuer, _) in anchors.access_tokens() {
                add_once(&mut metadata.authorization_servers, issuer);
            }
        }
        metadata
    }

    fn json(&self) -> Rc<str> {
        // Texts and flags always serialise.
        serde_json::to_string(self).unwrap_or_default().into()
    }
}

fn add_once<'a>(list: &mut Vec<&'a str>, name: &'a str) {
    if !list.contains(&name) {
        list.push(name);
    }
}
