//! Liveness, readiness and metrics.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;

use super::api::Api;
use super::problem::Problem;
use credence_runtime::lifecycle::Phase;

/// `GET /healthz`: the process answers. The disk does not matter here, because a restart does not fix a disk.
pub(crate) async fn alive() -> Response {
    Json(serde_json::json!({ "status": "up" })).into_response()
}

/// `GET /readyz`: the start is complete and announced, and revocations and evidence can be made durable. Otherwise 503
/// with every reason.
pub(crate) async fn ready(State(api): State<Arc<Api>>) -> Response {
    let mut reasons = Vec::new();
    if !api.announced.load(Ordering::Acquire) {
        reasons.push("the control plane is starting".to_owned());
    }
    if api.phase.current() != Phase::Running {
        reasons.push("the control plane is stopping".to_owned());
    }
    if let Some(fault) = api.log.fault() {
        reasons.push(format!("revocations are refused: {fault}"));
    }
    if api.log.has_no_quorum() {
        reasons.push(credence_revocation::NoQuorum.to_string());
    }
    if let Some(fault) = api.ledger.fault() {
        reasons.push(format!("evidence is refused (revocations are not affected): {fault}"));
    }
    if let Some(fault) = api.publisher.fault().filter(|_| api.ledger.fault().is_none()) {
        reasons.push(format!("the ledger is damaged (revocations are not affected): {fault}"));
    }
    if reasons.is_empty() {
        return Json(serde_json::json!({ "status": "ready" })).into_response();
    }
    let body = Json(serde_json::json!({ "status": "not ready", "reasons": reasons }));
    (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
}

/// `GET /metrics`: OpenMetrics text.
pub(crate) async fn metrics(State(api): State<Arc<Api>>) -> Response {
    let mut text = String::new();
    match encode(&mut text, &api.metrics.registry) {
        Ok(()) => {
            let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, content_type)], text).into_response()
        }
        Err(error) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
