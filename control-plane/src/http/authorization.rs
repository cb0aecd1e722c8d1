//! Requires a valid credential with the permission for a route.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::HttpBody as _;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Router};

use super::answers;
use super::api::{Api, UNIT_BYTES};
use super::problem::Problem;
use super::sse::RETRY_WHEN_FULL;
use crate::access::{Permission, Refusal, Session};
use credence_evidence::Reporter;
use credence_runtime::client_limits::{Client, NoPlace, Place};
use credence_server::{Peer, Port};

/// Requires the permission for every route of `routes`. Handlers find the [`Caller`](credence_runtime::caller::Caller),
/// in an [`Arc`], their [`Client`] and their [`Session`] among the request's extensions.
pub(crate) fn requiring(permission: Permission, api: &Arc<Api>, routes: Router<Arc<Api>>) -> Router<Arc<Api>> {
    let api = Arc::clone(api);
    routes.route_layer(middleware::from_fn_with_state(
        api,
        move |state: State<Arc<Api>>, peer: Extension<Peer>, request: Request, next: Next| {
            require(permission, state, peer, request, next)
        },
    ))
}

async fn require(
    permission: Permission,
    State(api): State<Arc<Api>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    match Session::open(&api.access, (Port::Http, permission), request.headers(), &peer) {
        Ok(session) => match enter(&api, session, &mut request) {
            Ok(_until_answered) => {
                let client = request.extensions().get::<Client>().cloned().unwrap_or_default();
                answers::limit(&api, &peer, &client, next.run(request).await).await
            }
            Err(problem) => problem.into_response(),
        },
        Err(refusal) => {
            // `/metrics` counts each of them. An unauthenticated client can cause any number of refusals, so not every
            // one is logged.
            if let Some(refused) = api.refusals.count(Instant::now()) {
                tracing::warn!(
                    refused,
                    last = %refusal,
                    "requests without a valid credential were refused since the last such line"
                );
            }
            match api.limit_address(peer.address.ip()) {
                Ok(()) => problem(&refusal).into_response(),
                Err(problem) => problem.into_response(),
            }
        }
    }
}

/// Takes the request's places in shared limits for the client, and keeps them in the request's extensions until it is
/// answered.
fn enter(api: &Api, session: Session, request: &mut Request) -> Result<[Place; 2], Problem> {
    // Over HTTP every caller has both.
    let (Some(caller), Some(peer)) = (session.caller.clone(), session.peer_name()) else {
        return Err(problem(&Refusal::Unknown));
    };
    api.limit_credential(&caller.name)?;
    let address = Some(session.peer.address.ip());
    if let Err(refused) = session.peer.accept(Some(&peer.0)) {
        return Err(Problem::unavailable(refused.to_string(), RETRY_WHEN_FULL).closing());
    }
    let client = Client::new(Some(&peer.0), address);
    let refuse = |refused: NoPlace| Problem::unavailable(refused.to_string(), Duration::from_secs(1));
    let call = api.calls.take(&client).map_err(refuse)?;
    let body = api
        .bodies
        .take_many(&client, body_units(api, request))
        .map_err(refuse)?;
    let reporter = Reporter {
        peer,
        caller: Some(Arc::clone(&caller)),
        address,
    };
    let extensions = request.extensions_mut();
    extensions.insert(client);
    extensions.insert(reporter);
    extensions.insert(caller);
    extensions.insert(session);
    Ok([call, body])
}

/// The memory for the request's body. The routes refuse longer bodies.
fn body_units(api: &Api, request: &Request) -> usize {
    let largest = api.limits.max_evidence_body as u64;
    let hint = request.body().size_hint();
    let bytes = hint.upper().unwrap_or(largest).min(largest);
    usize::try_from(bytes).unwrap_or(usize::MAX).div_ceil(UNIT_BYTES)
}

/// RFC 6750 section 3.1.
fn problem(refusal: &Refusal) -> Problem {
    match refusal {
        Refusal::Unknown => Problem::new(StatusCode::UNAUTHORIZED, refusal.to_string()).challenge("Bearer"),
        Refusal::Expired { .. } => {
            Problem::new(StatusCode::UNAUTHORIZED, refusal.to_string()).challenge("Bearer error=\"invalid_token\"")
        }
        _ => Problem::new(StatusCode::FORBIDDEN, refusal.to_string()).insufficient_scope(),
    }
}
