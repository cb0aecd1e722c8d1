//! What operators ask a server: metrics and probes.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

type Readiness = dyn Fn() -> Result<(), String> + Send + Sync;

struct Operators {
    registry: Registry,
    is_ready: Box<Readiness>,
}

impl fmt::Debug for Operators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operators").finish_non_exhaustive()
    }
}

/// `GET /metrics`, `/healthz` and `/readyz`, for a port of its own. `is_ready` says why the server cannot work.
pub fn operators(registry: Registry, is_ready: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Router {
    let is_ready = Box::new(is_ready);
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .with_state(Arc::new(Operators { registry, is_ready }))
}

/// OpenMetrics text.
async fn metrics(State(operators): State<Arc<Operators>>) -> Response {
    let mut text = String::new();
    if encode(&mut text, &operators.registry).is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}

async fn ready(State(operators): State<Arc<Operators>>) -> Response {
    match (operators.is_ready)() {
        Ok(()) => "ready\n".into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}
