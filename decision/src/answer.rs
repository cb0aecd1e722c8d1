//! The answer to a denied request.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::agents::Refusal;
use crate::config::{Authorization, Requirement};
use crate::decision::{Class, Denial, Reason};
use crate::engine::Verdict;
use crate::mcp::{self, MessageId};
use crate::oauth::Needed;
use crate::request::{Header, Request};

/// A complete response, for the host to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status. The host turns it into 200 for a gRPC client, as gRPC requires.
    pub status: u16,
    /// Header names, in lower case, and values.
    pub headers: Vec<(&'static str, String)>,
    /// RFC 9457 problem JSON. For a client of MCP it is in a JSON-RPC error. For a gRPC client, the text of
    /// `grpc-message`.
    pub body: Vec<u8>,
    /// The `grpc-status`, for a gRPC client only.
    pub grpc_status: Option<u32>,
}

impl Answer {
    /// The answer to a request that was denied without a rule's requirement. Without `request`, its headers could not be
    /// read.
    pub fn for_denial(denial: &Denial, request: Option<&Request<'_>>) -> Self {
        Self::with_challenge(denial, request, &Invitation::default())
    }

    /// The answer to a denied request with this verdict.
    pub fn for_verdict(verdict: &Verdict<'_>, denial: &Denial, request: &Request<'_>) -> Self {
        let requirement = verdict.rule.and_then(|rule| rule.requirement.as_ref());
        let id = verdict.findings.mcp.as_ref().and_then(|mcp| mcp.id.as_ref());
        let invitation = Invitation {
            nonce: verdict.nonce.as_deref(),
            authorization: requirement.and_then(|requirement| requirement.authorization.as_ref()),
            needed: verdict.findings.needed.as_ref(),
            mcp: McpRequest::of(requirement, id, request),
        };
        Self::with_challenge(denial, Some(request), &invitation)
    }

    /// The answer to a request that its agent does not send, because it would be denied.
    pub fn for_refusal(refusal: &Refusal<'_>, request: &Request<'_>) -> Self {
        let invitation = Invitation {
            mcp: McpRequest::of(refusal.requirement, refusal.id.as_ref(), request),
            ..Invitation::default()
        };
        Self::with_challenge(&refusal.denial, Some(request), &invitation)
    }

    /// The answer with the metadata of a protected resource. Any web page may read it, as clients in browsers must.
    pub fn with_metadata(document: &str, request: &Request<'_>) -> Self {
        let is_preflight = request.method == b"OPTIONS";
        let mut headers = vec![
            ("access-control-allow-origin", "*".to_owned()),
            ("cache-control", format!("max-age={METADATA_AGE_SECONDS}")),
        ];
        if is_preflight {
            headers.push(("access-control-allow-methods", "GET".to_owned()));
            headers.push(("access-control-allow-headers", "*".to_owned()));
        } else {
            headers.push(("content-type", "application/json".to_owned()));
        }
        Self {
            status: if is_preflight { 204 } else { 200 },
            headers,
            body: if is_preflight { Vec::new() } else { document.into() },
            grpc_status: None,
        }
    }

    fn with_challenge(denial: &Denial, request: Option<&Request<'_>>, invitation: &Invitation<'_>) -> Self {
        let is_grpc = request.is_some_and(Request::is_grpc);
        let request_id = request.and_then(|request| request.request_id).and_then(readable_id);
        let shown = denial.reason.shown();
        let class = shown.class();
        let status = match &invitation.mcp {
            // With sessions, 404 means that the client's has ended.
            Some(mcp) if denial.reason == Reason::McpMethodNotAllowed && !mcp.is_stateless => Class::Closed.status(),
            _ => class.status(),
        };
        let mut headers = vec![("cache-control", "no-store".to_owned())];
        let presents_token = invitation.presents_token(request);
        if let Some(authorization) = invitation.authorization
            && !invitation.presents_delegation(request)
            && let Some(challenge) = authorization
                .challenge
                .header(denial.reason, invitation.needed, presents_token)
        {
            headers.push(("www-authenticate", challenge));
        }
        if let Some(error) = class.challenge().filter(|_| !presents_token) {
            let challenge = format!(r#"Delegation error="{error}", error_description="{}""#, shown.title());
            headers.push(("www-authenticate", challenge));
        }
        if let (Class::Method, Some(mcp)) = (class, &invitation.mcp) {
            headers.push(("allow", mcp.http_methods.clone()));
        }
        if class == Class::Unavailable {
            headers.push(("retry-after", RETRY_AFTER_SECONDS.to_string()));
        }
        if let Some(nonce) = invitation.nonce {
            let name = if presents_token {
                "dpop-nonce"
            } else {
                "delegation-nonce"
            };
            headers.push((name, nonce.to_owned()));
        }
        let body = if is_grpc {
            let argument = denial.argument.as_ref().map(|argument| format!(" ({argument})"));
            let argument = argument.unwrap_or_default();
            let request = request_id.map(|id| format!(" (request {id})")).unwrap_or_default();
            let message = format!("{}: {}{argument}{request}", shown.code(), shown.title());
            message.into_bytes()
        } else {
            let problem = Problem {
                kind: format!("urn:credence:reason:{}", shown.code()),
                title: shown.title(),
                status,
                reason: shown.code(),
                argument: denial.argument.as_deref(),
                needed: invitation.needed,
                request_id,
                supported: None,
                requested: None,
            };
            let (media_type, body) = match &invitation.mcp {
                None => ("application/problem+json", serde_json::to_vec(&problem)),
                Some(mcp) => ("application/json", mcp.error(denial, problem)),
            };
            headers.push(("content-type", media_type.to_owned()));
            // Strings and numbers always serialise. An empty body would still be a denial.
            body.unwrap_or_default()
        };
        Self {
            status,
            headers,
            body,
            grpc_status: is_grpc.then(|| class.grpc_status()),
        }
    }
}

/// What a denied client learns about better credentials.
#[derive(Default)]
struct Invitation<'a> {
    nonce: Option<&'a str>,
    authorization: Option<&'a Authorization>,
    needed: Option<&'a Needed>,
    mcp: Option<McpRequest<'a>>,
}

/// A request to an MCP server.
struct McpRequest<'a> {
    /// The allowed versions.
    versions: Vec<&'static str>,
    http_methods: String,
    /// Whether its version has no sessions.
    is_stateless: bool,
    /// The id of its message, if it was read.
    id: Option<&'a MessageId>,
}

/// A JSON-RPC error.
#[derive(Serialize)]
struct RpcResponse<'a> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    error: RpcError<'a>,
}

#[derive(Serialize)]
struct RpcError<'a> {
    code: i32,
    message: &'static str,
    data: Problem<'a>,
}

impl<'a> McpRequest<'a> {
    fn of(requirement: Option<&Requirement>, id: Option<&'a MessageId>, request: &Request<'_>) -> Option<Self> {
        let endpoint = requirement.and_then(Requirement::mcp)?;
        Some(Self {
            versions: endpoint.versions.iter().map(|version| version.name()).collect(),
            http_methods: endpoint.http_methods(),
            is_stateless: mcp::is_stateless(request),
            id,
        })
    }

    /// The denial as the JSON-RPC error that the protocol has for it. Without one, the code is the HTTP status.
    fn error<'p>(&'p self, denial: &'p Denial, mut problem: Problem<'p>) -> serde_json::Result<Vec<u8>> {
        let code = match denial.reason {
            Reason::BodyMalformed => -32_700,
            Reason::McpMessageInvalid => match denial.argument.as_deref() {
                Some(place) if place.starts_with("/params/") => -32_602,
                _ => -32_600,
            },
            Reason::McpMethodNotAllowed => -32_601,
            Reason::McpSessionInvalid => -32_001,
            Reason::McpToolNotMapped | Reason::ArgumentUnknown | Reason::ArgumentMalformed => -32_602,
            Reason::McpHeaderMismatch => -32_020,
            Reason::McpVersionNotAllowed => {
                problem.supported = Some(&self.versions);
                problem.requested = denial.argument.as_deref();
                -32_022
            }
            _ => problem.status.into(),
        };
        let id = self.id.and_then(|id| serde_json::from_str(id.json()).ok());
        serde_json::to_vec(&RpcResponse {
            jsonrpc: "2.0",
            id,
            error: RpcError {
                code,
                message: problem.title,
                data: problem,
            },
        })
    }
}

impl Invitation<'_> {
    /// Whether the request has an access token that its rule reads.
    fn presents_token(&self, request: Option<&Request<'_>>) -> bool {
        let has_one = |request: &Request<'_>| request.authorization != Header::Absent;
        self.authorization.is_some() && request.is_some_and(has_one) && !self.presents_delegation(request)
    }

    fn presents_delegation(&self, request: Option<&Request<'_>>) -> bool {
        request.is_some_and(|request| request.delegation != Header::Absent)
    }
}

/// The id by which the request is found in Envoy's access log. A caller may have chosen it: one that is long, or no
/// visible ASCII, is left out.
fn readable_id(id: &[u8]) -> Option<&str> {
    let is_readable = id.len() <= MAX_REQUEST_ID_BYTES && id.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(id).ok().filter(|_| is_readable)
}

/// A problem document (RFC 9457) with additional members.
#[derive(Serialize)]
struct Problem<'a> {
    /// Identifies the kind of problem; not a URL to fetch.
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    argument: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    needed: Option<&'a Needed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    /// The versions of MCP that are allowed, and the one that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    supported: Option<&'a [&'static str]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requested: Option<&'a str>,
}

/// Envoy's own ids have 36 bytes.
const MAX_REQUEST_ID_BYTES: usize = 128;

/// How long a client may keep a resource's metadata.
const METADATA_AGE_SECONDS: u32 = 300;

/// Seconds until a retry after a 503. The missing state usually arrives within a second.
const RETRY_AFTER_SECONDS: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Reason;
    use crate::request::{HeaderNames, serialize_headers};

    #[test]
    fn a_denial_is_a_problem_document() {
        let answer = Answer::for_denial(&Reason::Expired.into(), None);
        assert_eq!(answer.status, 401);
        assert_eq!(answer.grpc_status, None);
        assert_eq!(header(&answer, "content-type"), Some("application/problem+json"));
        assert_eq!(header(&answer, "cache-control"), Some("no-store"));
        assert_eq!(
            header(&answer, "www-authenticate"),
            Some(r#"Delegation error="invalid_token", error_description="The delegation has expired.""#)
        );
        assert_eq!(
            body(&answer),
            r#"{"type":"urn:credence:reason:expired","title":"The delegation has expired.","status":401,"reason":"expired"}"#
        );
    }

    #[test]
    fn a_denied_argument_is_named_and_cannot_break_out_of_the_json() {
        let argument = Some("a\"}\n".to_owned());
        let answer = Answer::for_denial(
            &Denial {
                reason: Reason::ArgumentUnknown,
                argument,
                step: None,
            },
            None,
        );
        assert!(
            body(&answer).ends_with(r#""reason":"argument_unknown","argument":"a\"}\n"}"#),
            "{}",
            body(&answer)
        );
        assert!(answer.headers.iter().all(|(_, value)| !value.contains('\n')));
    }

    #[test]
    fn every_signature_failure_looks_the_same_to_the_client() {
        let answers = [Reason::SignatureInvalid, Reason::IssuerUnknown, Reason::LinkageInvalid]
            .map(|reason| Answer::for_denial(&reason.into(), None));
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
        assert!(body(&answers[0]).contains(r#""reason":"delegation_invalid""#));
    }

    #[test]
    fn only_a_503_has_retry_after_and_no_challenge() {
        let unavailable = Answer::for_denial(&Reason::Stale.into(), None);
        assert_eq!(unavailable.status, 503);
        assert_eq!(header(&unavailable, "retry-after"), Some("1"));
        assert_eq!(header(&unavailable, "www-authenticate"), None);
        let forbidden = Answer::for_denial(&Reason::ToolNotGranted.into(), None);
        assert_eq!(header(&forbidden, "retry-after"), None);
    }

    #[test]
    fn a_grpc_client_gets_a_status_and_a_message() {
        let denial = Denial {
            reason: Reason::ArgumentNotAllowed,
            argument: Some("amount".to_owned()),
            step: None,
        };
        let headers = [("content-type", "application/grpc"), ("x-request-id", "7f")];
        let answer = answer_to(&headers, &denial);
        assert_eq!(answer.grpc_status, Some(7));
        assert_eq!(header(&answer, "content-type"), None);
        assert_eq!(
            body(&answer),
            "argument_not_allowed: The delegation does not allow this value of the argument. (amount) (request 7f)"
        );
    }

    #[test]
    fn a_denial_names_its_request_if_the_id_is_readable() {
        let long = "x".repeat(MAX_REQUEST_ID_BYTES + 1);
        let shown = |id: &str| body(&answer_to(&[("x-request-id", id)], &Reason::Expired.into())).to_owned();
        assert!(shown(r#"7f"}"#).ends_with(r#""reason":"expired","request_id":"7f\"}"}"#));
        for unreadable in [&*long, "7 f", "7f\r", "é"] {
            assert!(shown(unreadable).ends_with(r#""reason":"expired"}"#), "{unreadable}");
        }
    }

    fn answer_to(headers: &[(&str, &str)], denial: &Denial) -> Answer {
        let names = HeaderNames {
            delegation: "delegation".to_owned(),
            proof: "delegation-proof".to_owned(),
        };
        let serialized = serialize_headers(headers);
        let request = Request::parse(&serialized, &names, false).unwrap();
        Answer::for_denial(denial, Some(&request))
    }

    fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
        answer
            .headers
            .iter()
            .find(|(candidate, _)| *candidate == name)
            .map(|(_, value)| value.as_str())
    }

    fn body(answer: &Answer) -> &str {
        std::str::from_utf8(&answer.body).unwrap()
    }
}
