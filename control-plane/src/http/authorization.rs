//! Lets a request through that comes with a credential which is good for it.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};

use super::Api;
use super::problem::Problem;
use crate::access::{PeerName, Permission, Refusal, bearer_token};
use crate::revocation::log::unix_seconds;
use crate::tls::Peer;

/// Puts the permission in front of every route of `routes`. Handlers find the [`Caller`](crate::access::Caller), in an
/// [`Arc`], and the [`PeerName`] among the request's extensions.
pub(crate) fn requiring(permission: Permission, api: &Arc<Api>, routes: Router<Arc<Api>>) -> Router<Arc<Api>> {
    let api = Arc::clone(api);
    routes.route_layer(middleware::from_fn_with_state(
        api,
        move |state: State<Arc<Api>>, request: Request, next: Next| require(permission, state, request, next),
    ))
}

async fn require(permission: Permission, State(api): State<Arc<Api>>, mut request: Request, next: Next) -> Response {
    // It may have stopped counting since the last request of its connection.
    let certificate = request.extensions().get::<Peer>().and_then(Peer::certificate).cloned();
    let shows_token = matches!(bearer_token(request.headers()), Ok(Some(_)));
    let authorized = bearer_token(request.headers()).and_then(|token| {
        api.access
            .authorize(token, certificate.as_deref(), permission, unix_seconds())
    });
    match authorized {
        Ok(caller) => {
            if let Err(problem) = api.limit_credential(&caller.name) {
                return problem.into_response();
            }
            if let Some(name) = PeerName::of(certificate.as_deref().filter(|_| !shows_token), Some(&caller)) {
                request.extensions_mut().insert(name);
            }
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(refusal) => {
            // `/metrics` counts each of them. They cost a stranger nothing, so they must not cost us a line each.
            if let Some(refused) = api.refusals.count(Instant::now()) {
                tracing::warn!(
                    refused,
                    last = %refusal,
                    "requests without a credential that is good for them were refused since the last such line"
                );
            }
            match api.limit_address(&request) {
                Ok(()) => problem(&refusal).into_response(),
                Err(problem) => problem.into_response(),
            }
        }
    }
}

/// RFC 6750 section 3.1.
fn problem(refusal: &Refusal) -> Problem {
    match refusal {
        Refusal::Unknown => Problem::new(StatusCode::UNAUTHORIZED, refusal.to_string()).challenge("Bearer"),
        Refusal::Expired { .. } => {
            Problem::new(StatusCode::UNAUTHORIZED, refusal.to_string()).challenge("Bearer error=\"invalid_token\"")
        }
        Refusal::Forbidden { .. } => {
            Problem::new(StatusCode::FORBIDDEN, refusal.to_string()).challenge("Bearer error=\"insufficient_scope\"")
        }
    }
}
