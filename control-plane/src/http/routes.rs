//! Every route, and the layers that all of them share.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use credence_evidence::TileAccess;
use credence_runtime::metrics::count;
use credence_server::Arrived;

use super::api::Api;
use super::authorization::requiring;
use super::problem::Problem;
use super::{
    audit, confirmation, health, ingest, openapi, principals, rate_limits, revocation_stream, revocations, scim,
    security_events, statements, status, tiles,
};
use crate::access::Permission;

/// The routes of the port for probes.
pub(crate) fn probe_router(api: Arc<Api>) -> Router {
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .fallback(no_such_probe)
        .layer(middleware::from_fn_with_state(Arc::clone(&api), bound_and_count))
        .with_state(api)
}

async fn no_such_probe() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "this port has only /healthz and /readyz; everything else is on the port of the HTTP API",
    )
}

/// Every route, with limits, metrics and problem answers.
pub(crate) fn router(api: Arc<Api>) -> Router {
    let revoking = Router::new()
        .route("/v1/revocations", post(revocations::revoke))
        .route("/v1/revocations/{seq}", get(confirmation::show));
    let reading_audit = Router::new()
        .route("/v1/audit/events", get(audit::events))
        .route("/v1/audit/events/{index}", get(audit::event))
        .route("/v1/audit/stream", get(audit::follow));
    let erasing_audit = Router::new().route("/v1/audit/erasures", post(audit::erase));
    let asking = get(status::one).merge(post(status::several).layer(DefaultBodyLimit::max(api.limits.max_status_body)));
    let watching = Router::new()
        .route("/v1/revocations/stream", get(revocation_stream::follow))
        .route("/v1/delegations/status", asking);
    let reading_principals = Router::new()
        .route("/v1/principals", get(principals::by_name))
        .route("/v1/principals/{id}", get(principals::by_id));
    let stating = post(statements::state).layer(DefaultBodyLimit::max(statements::max_body()));
    let open = Router::new()
        .route("/v1/revocations/statements", stating)
        .route("/v1/log", get(log))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(openapi::describe));
    let (open, reading_audit) = match api.tiles {
        TileAccess::Public => (open.merge(tiles::routes()), reading_audit),
        TileAccess::Private => (open, reading_audit.merge(tiles::routes())),
    };
    let open = open.route_layer(middleware::from_fn_with_state(
        Arc::clone(&api),
        rate_limits::limit_anonymous,
    ));
    Router::new()
        .merge(requiring(Permission::Watch, &api, watching))
        .merge(requiring(Permission::Revoke, &api, revoking))
        .merge(requiring(Permission::ReadPrincipals, &api, reading_principals))
        .merge(requiring(Permission::ReadAudit, &api, reading_audit))
        .merge(requiring(
            Permission::WriteAudit,
            &api,
            ingest::routes(api.limits.max_evidence_body),
        ))
        .merge(requiring(Permission::EraseAudit, &api, erasing_audit))
        .merge(requiring(Permission::Provision, &api, scim::routes()))
        .merge(requiring(Permission::Transmit, &api, security_events::routes()))
        .merge(open)
        .fallback(no_such_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(api.limits.max_request_body))
        .layer(middleware::from_fn_with_state(Arc::clone(&api), bound_and_count))
        .layer(middleware::from_fn(scim::errors_as_scim))
        .with_state(api)
}

async fn log(State(api): State<Arc<Api>>) -> Response {
    let answer = serde_json::json!({
        "log_id": api.log.log_id().as_str(),
        "seq": api.log.head(),
        "max_token_lifetime_s": api.log.max_token_lifetime(),
    });
    Json(answer).into_response()
}

async fn no_such_route() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "no such resource; the API has /v1/revocations, /v1/principals, /v1/audit/events and /v1/log",
    )
}

async fn wrong_method() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this resource does not support that method; see the Allow header",
    )
}

/// Ends requests that take too long, and counts all requests.
async fn bound_and_count(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let arrived = request.extensions().get::<Arrived>().cloned().unwrap_or_default();
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or_else(|| "none".to_owned(), |path| path.as_str().to_owned());
    let mut response = match tokio::time::timeout(api.limits.request_timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => timed_out(&arrived).into_response(),
    };
    response
        .headers_mut()
        .entry(header::CACHE_CONTROL)
        .or_insert(header::HeaderValue::from_static("no-store"));
    let status = response.status();
    count(
        &api.metrics.http_requests,
        [("route", &route), ("status", status.as_str())],
    );
    response
}

/// The answer to a request that took too long.
fn timed_out(arrived: &Arrived) -> Problem {
    if arrived.is_noted() {
        Problem::new(
            StatusCode::GATEWAY_TIMEOUT,
            "this took too long and the outcome is unknown; send it again (repeating is harmless)",
        )
    } else {
        Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "the request did not arrive completely in time; nothing was done",
        )
    }
}
