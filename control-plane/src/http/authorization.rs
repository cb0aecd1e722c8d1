//! Lets a request through that comes with a credential which is good for it.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};

use super::Api;
use super::problem::Problem;
use crate::access::{PeerCertificate, Permission, Refusal};
use crate::revocation::log::unix_seconds;

/// Puts the permission in front of every route of `routes`. Handlers find the [`Caller`](crate::access::Caller), in an
/// [`Arc`], among the request's extensions.
pub(crate) fn requiring(permission: Permission, api: &Arc<Api>, routes: Router<Arc<Api>>) -> Router<Arc<Api>> {
    let api = Arc::clone(api);
    routes.route_layer(middleware::from_fn_with_state(
        api,
        move |state: State<Arc<Api>>, request: Request, next: Next| require(permission, state, request, next),
    ))
}

async fn require(permission: Permission, State(api): State<Arc<Api>>, mut request: Request, next: Next) -> Response {
    let certificate = request.extensions().get::<Arc<PeerCertificate>>().cloned();
    let authorized = token(request.headers()).and_then(|token| {
        api.access
            .authorize(token, certificate.as_deref(), permission, unix_seconds())
    });
    match authorized {
        Ok(caller) => {
            if let Err(problem) = api.limit_credential(&caller.name) {
                return problem.into_response();
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

/// The bearer token, if there is one. Two of them, or another scheme, are as good as a wrong token.
fn token(headers: &HeaderMap) -> Result<Option<&[u8]>, Refusal> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => bearer(value.as_bytes()).map(Some).ok_or(Refusal::Unknown),
        (Some(_), Some(_)) => Err(Refusal::Unknown),
    }
}

/// The token of a `Bearer` credential; the scheme's case does not matter (RFC 9110 section 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_is_bearer_in_any_case_and_nothing_else() {
        assert_eq!(bearer(b"bearer abc"), Some(b"abc".as_slice()));
        assert_eq!(bearer(b"Basic abc"), None);
        assert_eq!(bearer(b"Bearer"), None);
    }
}
