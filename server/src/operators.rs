//! What operators ask a server, on a port of its own: metrics and probes.

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::connections::Connections;
use crate::listener::BoundedListener;
use crate::server::Server;
use crate::tls::Port;
use crate::unusable::Unusable;
use credence_runtime::client_limits::{Bounds, Places, ShareMetrics, SharedLimit, Shares};
use credence_runtime::lifecycle::PhaseWatch;
use credence_runtime::settings::Timeouts;

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

/// Serves `GET /metrics`, `/healthz` and `/readyz` in plaintext at this address. `is_ready` says why the server cannot work.
///
/// Returns the address that it is bound to, and the work.
///
/// # Errors
/// The address cannot be used.
pub async fn operators(
    address: SocketAddr,
    registry: Registry,
    is_ready: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    phase: PhaseWatch,
    shares: &ShareMetrics,
) -> Result<(SocketAddr, Pin<Box<dyn Future<Output = ()> + Send>>), Unusable> {
    let is_ready = Box::new(is_ready);
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .with_state(Arc::new(Operators { registry, is_ready }));
    let all = Shares {
        credential_percent: 100,
        address_percent: 100,
    };
    let places = Places::new(SharedLimit::ProbeConnections, Bounds::new(MAX_CONNECTIONS, all), shares);
    let timeouts = Timeouts::default();
    let listener = BoundedListener::bind(address, "HTTP", Connections::new(places), timeouts.silence).await?;
    let server = Server {
        port: Port::Http,
        tls: None,
        router,
        request_timeout: timeouts.send,
        timeouts,
        phase,
    };
    Ok((listener.address, Box::pin(server.serve(listener))))
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

const MAX_CONNECTIONS: usize = 64;
