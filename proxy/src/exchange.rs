//! One request of a client: from its arrival to the service's answer.
//!
//! What the rules need of it is decided with the filter's own code. What the delegation does not grant is not sent.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use credence_agent::service::{Credential, Once, Possession, Presentation, Service};
use credence_decision::agents::{Invocation, Needed, Refusal as Refused};
use credence_decision::answer::Answer;
use credence_decision::decision::{Denial, Reason};
use credence_decision::mcp::MessageId;
use credence_decision::request::Request as Read;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as _, Incoming};
use uuid::Uuid;

use crate::clients::Client;
use crate::clock::now;
use crate::credential::{Authority, Held};
use crate::outbound::{Body, BodyError, cause, whole};
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
) -> Result<Response<Body>, Refusal> {
    let upstream = Arc::clone(&request.upstream);
    let service = upstream.rules.current().await.map_err(|error| {
        let title = "The service's rules are not known, so nothing can be proven.";
        Refusal::with_detail(StatusCode::BAD_GATEWAY, "rules_unavailable", title, Some(&error))
    })?;
    let headers = request.headers.iter();
    let headers = headers.map(|(name, value)| (name.as_str(), value.as_bytes()));
    let origin = &upstream.origin;
    let serialized = origin.serialized(request.method.as_str(), &request.target, headers);
    let has_body = !body.is_end_stream();
    let read = Read::parse(&serialized, &service.rules().headers, has_body)
        .map_err(|error| Refusal::of(Reason::RequestMalformed.code(), Answer::for_denial(&error.into(), None)))?;
    check_presents_nothing(&request, &service)?;
    let reads_body = service
        .rules()
        .reads_body(&read)
        .map_err(|refused| refusal(&refused, &read))?;
    // What is known can be sent twice, anything else once.
    let (known, mut streamed) = match (has_body, reads_body) {
        (false, _) => (Some(Bytes::new()), None),
        (true, true) => (Some(collect(body, &service, &read).await?), None),
        (true, false) => (None, Some(body)),
    };
    let mut attempts = 0u32;
    loop {
        attempts += 1;
        let nonce = upstream.nonce();
        let mut headers = request.headers.clone();
        let presented = present(
            client,
            &service,
            (&request, &read),
            known.as_deref(),
            nonce.as_deref(),
            &mut headers,
        )
        .await?;
        let sent = streamed
            .take()
            .unwrap_or_else(|| whole(known.clone().unwrap_or_default()));
        let response = send(&upstream, &request, headers, sent, answer_limit).await?;
        let is_denied = response.status() == StatusCode::UNAUTHORIZED;
        let new = NONCES
            .iter()
            .find_map(|name| response.headers().get(*name)?.to_str().ok());
        if let Some(new) = new.filter(|new| is_denied && presented.needs_nonce && new.len() <= MAX_NONCE_BYTES) {
            upstream.remember_nonce(new);
            if attempts == 1 && known.is_some() {
                continue;
            }
        }
        if is_denied && presented.is_something {
            client.credential.doubt();
        }
        let response = response.map(|body| body.map_err(BodyError::from).boxed());
        let mut response = match &presented.id {
            Some(id) => answer(with_id(response, id, answer_limit).await),
            None => answer(response),
        };
        if attempts > 1 {
            response.extensions_mut().insert(SentAgain);
        }
        return Ok(response);
    }
}

/// An extension of the answer to a request that was sent again, with a nonce.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentAgain;

/// What a request has presented.
#[derive(Debug, Default)]
struct Presented {
    is_something: bool,
    /// Whether its proof needs a nonce of the service.
    needs_nonce: bool,
    /// The id of its MCP message.
    id: Option<MessageId>,
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
    let call = match service
        .rules()
        .needed(read, body)
        .map_err(|refused| refusal(&refused, read))?
    {
        Needed::Nothing => return Ok(Presented::default()),
        Needed::Credential(call) => call,
    };
    let denied = |denial: Denial| refusal(&call.refused(denial), read);
    check_client(client, &call).map_err(denied)?;
    let held = held(client).await?;
    let id = Uuid::now_v7().to_string();
    let once = Once {
        id: &id,
        now: now(),
        nonce: nonce.filter(|_| call.requirement.nonce),
    };
    if held.expires_at() <= once.now {
        return Err(denied(Reason::Expired.into()));
    }
    let key;
    let credential = match &held.authority {
        Authority::Delegation(chain) => Credential::Delegation(chain),
        Authority::AccessToken { text, audience, .. } => {
            // A delegation's own audience is checked with it.
            if !audience.iter().any(|name| service.is_own_name(name)) {
                return Err(denied(Reason::AudienceMismatch.into()));
            }
            key = held.signer.public();
            Credential::AccessToken(text, Some(&key))
        }
    };
    let path = (request.method.as_str(), request.target.as_str());
    let presentation = service.presentation(&call, credential, path, once);
    let Presentation { header, possession } = presentation.map_err(denied)?;
    if let Possession::Signed { header, proof } = &possession {
        let proof = held.signer.sign(proof).await.map_err(|error| {
            tracing::error!(client = client.name, %error, "a proof cannot be signed");
            let title = "The key cannot sign now.";
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "key_unavailable", title)
        })?;
        insert(headers, header, &proof)?;
    }
    insert(headers, &header.0, &header.1)?;
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

fn refusal(refused: &Refused<'_>, read: &Read<'_>) -> Refusal {
    Refusal::of(refused.denial.reason.code(), Answer::for_refusal(refused, read))
}

fn insert(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), Refusal> {
    let name = HeaderName::try_from(name).ok();
    let (name, mut value) = name.zip(HeaderValue::try_from(value).ok()).ok_or_else(|| {
        let title = "The rules name no usable header.";
        Refusal::new(StatusCode::BAD_GATEWAY, "rules_unavailable", title)
    })?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

/// Headers of a denial with the nonce for the next proof.
const NONCES: [&str; 2] = ["delegation-nonce", "dpop-nonce"];
/// A longer one would make a proof that services refuse.
const MAX_NONCE_BYTES: usize = 256;
/// How long a body that is read may take.
const BODY_TIME: Duration = Duration::from_secs(30);
