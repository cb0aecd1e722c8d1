//! The operator's port: metrics and probes. It is not for people and clients.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use credence_runtime::lifecycle::{Phase, PhaseWatch};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::store::Store;

#[derive(Debug)]
struct Admin {
    registry: Registry,
    store: Store,
    phase: PhaseWatch,
}

pub(crate) fn router(registry: Registry, store: Store, phase: PhaseWatch) -> Router {
    let admin = Admin { registry, store, phase };
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .with_state(Arc::new(admin))
}

/// `GET /metrics`: OpenMetrics text.
async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    let mut text = String::new();
    if encode(&mut text, &admin.registry).is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}

/// `GET /readyz`: grants can be stored. What people sign in at and the control plane may be away: they are asked again
/// for each request.
async fn ready(State(admin): State<Arc<Admin>>) -> Response {
    let reason = match admin.phase.current() {
        Phase::Running => admin.store.fault().map(|fault| fault.to_string()),
        _ => Some("the issuer is stopping".to_owned()),
    };
    match reason {
        None => "ready\n".into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}
