//! One request of a client: from its arrival to the service's answer.
//!
//! What the rules need of it is decided with the filter's own code. What the delegation does not grant is not sent.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use credence_agent::service::{HeldToken, Once, Possession, Service};
use credence_agent::terminal::{printable, shortened};
use credence_decision::agents::{Invocation, Needed, Refusal as Refused};
use credence_decision::answer::Answer;
use credence_decision::decision::{Denial, Reason};
use credence_decision::mcp::MessageId;
use credence_decision::request::{Request as Read, serialize_headers};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::{Body as _, Incoming};
use uuid::Uuid;

use crate::clients::Client;
use crate::clock::now;
use crate::credential::{Authority, Held};
use crate::outbound::{Body, BodyError};
use crate::refusal::{ANSWERED_BY, Refusal};
use crate::request::{Addressed, without_hop_by_hop};
use crate::rpc_error::with_id;
use crate::upstream::Upstream;

/// Sends a request on, with what proves it.
pub(crate) async fn exchange(
    client: &Client,
    request: Addressed,
    body: Body,
    answer_limit: Duration,
) -> Result<Exchanged, Refusal> {
    let upstream = Arc::clone(&request.upstream);
    let service = upstream.service().await.map_err(|error| {
        let title = "The service's rules are not known, so nothing can be proven.";
        let detail = printable(&shortened(&error.to_string()));
        tracing::warn!(
            service = upstream.origin.as_str(),
            error = detail,
            "a service has no rules"
        );
        Refusal::with_detail(StatusCode::BAD_GATEWAY, "rules_unavailable", title, Some(&detail))
    })?;
    let serialized = serialized(&request, &upstream);
    let has_body = !body.is_end_stream();
    let read = Read::parse(&serialized, &service.rules().headers, has_body)
        .map_err(|error| Refusal::of(Reason::RequestMalformed.code(), Answer::for_denial(&error.into(), None)))?;
    check_presents_nothing(&request, &service)?;
    let reads_body = service.reads_body(&read).map_err(|refused| refusal(&refused, &read))?;
    let mut body = match (has_body, reads_body) {
        (false, _) => Sent::Known(Bytes::new()),
        (true, true) => Sent::Known(collect(body, &service, &read).await?),
        (true, false) => Sent::Once(Some(body)),
    };
    let mut attempts = 0u32;
    loop {
        attempts += 1;
        let nonce = upstream.nonce();
        let known = body.known();
        let mut headers = request.headers.clone();
        let presented = present(
            client,
            &service,
            (&request, &read),
            known,
            nonce.as_deref(),
            &mut headers,
        )
        .await?;
        let (may_repeat, sent) = (body.may_repeat(), body.next());
        let response = send(&upstream, &request, headers, sent, answer_limit).await?;
        let is_denied = response.status() == StatusCode::UNAUTHORIZED;
        let new = NONCES
            .iter()
            .find_map(|name| response.headers().get(*name)?.to_str().ok());
        if let Some(new) = new.filter(|_| is_denied && presented.needs_nonce) {
            upstream.remember_nonce(new);
            if attempts == 1 && may_repeat {
                continue;
            }
        }
        if is_denied && presented.is_something {
            client.credential.doubt();
        }
        let response = response.map(|body| body.map_err(BodyError::from).boxed());
        let response = match &presented.id {
            Some(id) => answer(with_id(response, id).await),
            None => answer(response),
        };
        return Ok(Exchanged {
            response,
            has_retried: attempts > 1,
        });
    }
}

/// An answer of the service.
#[derive(Debug)]
pub(crate) struct Exchanged {
    pub(crate) response: Response<Body>,
    pub(crate) has_retried: bool,
}

/// What a request has presented.
#[derive(Debug, Default)]
struct Presented {
    is_something: bool,
    /// Whether its proof needs a nonce of the service.
    needs_nonce: bool,
    /// The id of its MCP message.
    id: Option<MessageId>,
}

/// A body on its way to the service.
#[derive(Debug)]
enum Sent {
    /// All of it.
    Known(Bytes),
    /// It can be sent once.
    Once(Option<Body>),
}

impl Sent {
    fn known(&self) -> Option<&[u8]> {
        match self {
            Self::Known(bytes) => Some(bytes),
            Self::Once(_) => None,
        }
    }

    fn may_repeat(&self) -> bool {
        matches!(self, Self::Known(_))
    }

    fn next(&mut self) -> Body {
        match self {
            Self::Once(body) => match body.take() {
                Some(body) => body,
                None => Empty::new().map_err(|never| match never {}).boxed(),
            },
            Self::Known(bytes) if bytes.is_empty() => Empty::new().map_err(|never| match never {}).boxed(),
            Self::Known(bytes) => Full::new(bytes.clone()).map_err(|never| match never {}).boxed(),
        }
    }
}

/// Adds what proves the request to its headers.
async fn present(
    client: &Client,
    service: &Service,
    (request, read): (&Addressed, &Read<'_>),
    body: Option<&[u8]>,
    nonce: Option<&str>,
    headers: &mut HeaderMap,
) -> Result<Presented, Refusal> {
    let call = match service.needed(read, body).map_err(|refused| refusal(&refused, read))? {
        Needed::Nothing => return Ok(Presented::default()),
        Needed::Credential(call) => call,
    };
    let denied = |denial: Denial| {
        let refused = Refused {
            denial,
            requirement: Some(call.requirement),
            id: call.id.clone(),
        };
        refusal(&refused, read)
    };
    check_client(client, &call).map_err(denied)?;
    let held = held(client).await?;
    let id = Uuid::now_v7().to_string();
    let once = Once {
        id: &id,
        now: now(),
        nonce: nonce.filter(|_| call.requirement.nonce),
    };
    let names = &service.rules().headers;
    let (possession, name, value) = match &held.authority {
        Authority::Delegation(chain) => {
            let possession = service.possession(&call, chain, once).map_err(denied)?;
            (possession, names.delegation.as_str(), chain.joined().to_owned())
        }
        Authority::AccessToken { text, expires_at } => {
            if *expires_at <= once.now {
                return Err(denied(Reason::Expired.into()));
            }
            let key = held.signer.public();
            let token = HeldToken { text, key: Some(&key) };
            let path = (request.method.as_str(), request.target.as_str());
            let possession = service.token_possession(&call, token, path, once).map_err(denied)?;
            let scheme = if matches!(possession, Possession::Signed { .. }) {
                "DPoP"
            } else {
                "Bearer"
            };
            (possession, header::AUTHORIZATION.as_str(), format!("{scheme} {text}"))
        }
    };
    if let Possession::Signed { header, proof } = &possession {
        let proof = held.signer.sign(proof).await.map_err(|error| {
            tracing::error!(client = client.name, %error, "a proof cannot be signed");
            Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "key_unavailable",
                "The key cannot sign now.",
            )
        })?;
        insert(headers, header, &proof)?;
    }
    insert(headers, name, &value)?;
    Ok(Presented {
        is_something: true,
        needs_nonce: call.requirement.nonce,
        id: call.id.clone(),
    })
}

/// Whether the client itself may do this, whatever the delegation grants.
fn check_client(client: &Client, call: &Invocation<'_>) -> Result<(), Denial> {
    let Some(tools) = &client.tools else {
        return Ok(());
    };
    let Some(tool) = &call.tool else {
        return Ok(());
    };
    let not_granted = || Denial::about(Reason::ToolNotGranted, tool);
    let granted = tools.tool(tool).ok_or_else(not_granted)?;
    if call.hides_arguments {
        return Err(not_granted());
    }
    granted.permits(&call.arguments).map_err(|cause| {
        let step = credence_delegation::Step::S6b;
        credence_delegation::Denial { step, cause }.into()
    })
}

/// The delegation that the client's requests present.
async fn held(client: &Client) -> Result<Arc<Held>, Refusal> {
    let held = client.credential.state().map_err(|error| {
        let detail = error.to_string();
        let title = "The proxy holds no delegation.";
        Refusal::with_detail(StatusCode::UNAUTHORIZED, "no_delegation", title, Some(&detail))
    })?;
    if held.expires_at() <= now() {
        client.credential.doubt();
    }
    Ok(match &client.derived {
        Some(derived) => derived.from(&held).await,
        None => held,
    })
}

/// Clients do not present anything: the proxy does.
fn check_presents_nothing(request: &Addressed, service: &Service) -> Result<(), Refusal> {
    let names = &service.rules().headers;
    let presents = |name: &HeaderName| names.matches(name.as_str()) || name == "dpop";
    match request.headers.keys().find(|name| presents(name)) {
        None => Ok(()),
        Some(name) => Err(Refusal::with_detail(
            StatusCode::BAD_REQUEST,
            "credential_presented",
            "The proxy presents the delegation. Remove this header.",
            Some(name.as_str()),
        )),
    }
}

async fn collect(body: Body, service: &Service, read: &Read<'_>) -> Result<Bytes, Refusal> {
    let limit = service.rules().body_bytes;
    let collected = tokio::time::timeout(BODY_TIME, Limited::new(body, limit).collect()).await;
    match collected {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let refused = Refused {
                denial: Reason::BodyTooLarge.into(),
                requirement: None,
                id: None,
            };
            Err(refusal(&refused, read))
        }
        Ok(Err(_)) | Err(_) => {
            let title = "The body did not arrive.";
            Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "body_missing", title))
        }
    }
}

async fn send(
    upstream: &Upstream,
    request: &Addressed,
    headers: HeaderMap,
    body: Body,
    limit: Duration,
) -> Result<Response<Incoming>, Refusal> {
    let uri: Result<Uri, _> = format!("{}{}", upstream.origin.as_str(), request.target).parse();
    let uri = uri.map_err(|_| Refusal::new(StatusCode::BAD_REQUEST, "request_malformed", "The URL cannot be read."))?;
    let mut outgoing = Request::new(body);
    *outgoing.method_mut() = request.method.clone();
    *outgoing.uri_mut() = uri;
    *outgoing.headers_mut() = headers;
    let answered = tokio::time::timeout(limit, upstream.connections.request(outgoing)).await;
    match answered {
        Ok(Ok(response)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            let title = "The service left HTTP, which was not asked of it.";
            Err(Refusal::new(StatusCode::BAD_GATEWAY, "service_unreachable", title))
        }
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => {
            let origin = upstream.origin.as_str();
            let cause = cause(&error);
            tracing::warn!(service = origin, error = cause, "a service does not answer");
            let title = "The service does not answer.";
            Err(Refusal::with_detail(
                StatusCode::BAD_GATEWAY,
                "service_unreachable",
                title,
                Some(&cause),
            ))
        }
        Err(_) => {
            let title = "The service did not answer in time.";
            Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT, "service_slow", title))
        }
    }
}

/// The innermost cause, which says what to do.
fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// The service's answer as the client gets it.
fn answer(mut response: Response<Body>) -> Response<Body> {
    *response.version_mut() = http::Version::HTTP_11;
    let headers = response.headers_mut();
    *headers = without_hop_by_hop(std::mem::take(headers));
    for name in NONCES.iter().chain(&[ANSWERED_BY]) {
        headers.remove(*name);
    }
    response
}

/// The headers as the service's filter gets them.
fn serialized(request: &Addressed, upstream: &Upstream) -> Vec<u8> {
    let (scheme, authority) = upstream.origin.as_str().split_once("://").unwrap_or_default();
    let own: [(&str, &[u8]); 4] = [
        (":method", request.method.as_str().as_bytes()),
        (":scheme", scheme.as_bytes()),
        (":authority", authority.as_bytes()),
        (":path", request.target.as_bytes()),
    ];
    let others = request
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes()));
    serialize_headers(&own.into_iter().chain(others).collect::<Vec<_>>())
}

fn refusal(refused: &Refused<'_>, read: &Read<'_>) -> Refusal {
    Refusal::of(refused.denial.reason.code(), Answer::for_refusal(refused, read))
}

fn insert(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), Refusal> {
    let unusable = || {
        Refusal::new(
            StatusCode::BAD_GATEWAY,
            "rules_unavailable",
            "The rules name no usable header.",
        )
    };
    let name = HeaderName::try_from(name).map_err(|_| unusable())?;
    let mut value = HeaderValue::try_from(value).map_err(|_| unusable())?;
    value.set_sensitive(name != header::HOST);
    headers.insert(name, value);
    Ok(())
}

/// Headers of a denial with the nonce for the next proof.
const NONCES: [&str; 2] = ["delegation-nonce", "dpop-nonce"];
/// How long a body that is read may take.
const BODY_TIME: Duration = Duration::from_secs(30);
