//! The HTTP API: routes and what all of them share.
//!
//! | route | who | what |
//! |---|---|---|
//! | `POST /v1/revocations` | [`Permission::Revoke`] | [`revocations`] |
//! | `GET /v1/revocations/{seq}` | [`Permission::Revoke`] | [`confirmation`] |
//! | `GET /v1/revocations/stream` | [`Permission::Watch`] | [`revocation_stream`] |
//! | `GET /v1/principals/{id}`, `/v1/principals` | [`Permission::ReadPrincipals`] | [`principals`] |
//! | `GET`, `POST /v1/delegations/status` | [`Permission::Watch`] | [`status`] |
//! | `POST /v1/revocations/statements` | anybody | [`statements`] |
//! | `GET /v1/audit/events`, `/v1/audit/events/{index}`, `/v1/audit/stream` | [`Permission::ReadAudit`] | [`audit`] |
//! | `POST /v1/audit/erasures` | [`Permission::EraseAudit`] | [`audit`] |
//! | `GET /ledger/…` | anybody, or [`Permission::ReadAudit`] | [`tiles`] |
//! | `/v1/audit/sources…` | [`Permission::WriteAudit`] | [`ingest`] |
//! | `/scim/v2/…` | [`Permission::Provision`] | [`scim`] |
//! | `POST /v1/security-events` | [`Permission::Transmit`] | [`security_events`] |
//! | `GET /v1/log` | anybody | the log's id, which filters pin, and its last sequence number |
//! | `GET /healthz`, `/readyz`, `/metrics` | anybody | [`health`] |
//! | `GET /openapi.json` | anybody | [`openapi`] |

mod audit;
mod authorization;
mod confirmation;
mod health;
mod impatient;
mod ingest;
mod json;
mod openapi;
mod principals;
mod problem;
mod query;
mod rates;
mod record;
mod revocation_stream;
mod revocations;
mod scim;
mod security_events;
mod server;
mod sse;
mod standing;
mod statements;
mod status;
mod tiles;
mod unread;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use credence_delegation::TrustAnchors;
use tokio::sync::{Semaphore, watch};

use self::authorization::requiring;
use self::problem::Problem;
use crate::access::{AccessControl, Permission};
use crate::config::Limits;
use crate::metrics::Metrics;
use crate::settings::StatusSettings;
use credence_evidence::TileAccess;
use credence_evidence::{Intake, LedgerHandle, Publisher, Seen};
use credence_ledger::LedgerReader;
use credence_provisioning::scim::Provisioning;
use credence_provisioning::security_events::Receiver;
use credence_revocation::RevocationLog;
use credence_runtime::client_limits::Places;
use credence_runtime::lifecycle::PhaseWatch;
use credence_runtime::metrics::labels;
use credence_runtime::throttle::Throttle;
use credence_runtime::turns::Turns;

pub(crate) use self::rates::Rates;
pub(crate) use self::server::serve;
pub(crate) use self::statements::SIGNATURE_PLACES;

/// What the handlers work on.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) log: RevocationLog,
    pub(crate) ledger: LedgerHandle,
    pub(crate) seen: Arc<Seen>,
    pub(crate) reader: LedgerReader,
    /// Changes whenever the ledger has grown.
    pub(crate) ledger_growth: watch::Receiver<u64>,
    pub(crate) publisher: Arc<Publisher<LedgerReader>>,
    /// Who may read what is published.
    pub(crate) tiles: TileAccess,
    pub(crate) intake: Intake,
    pub(crate) access: AccessControl,
    /// SCIM, if there is a realm.
    pub(crate) provisioning: Option<Arc<Provisioning>>,
    /// Security events, if there is a transmitter.
    pub(crate) receiver: Option<Arc<Receiver>>,
    pub(crate) phase: PhaseWatch,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) limits: Limits,
    pub(crate) anchors: TrustAnchors,
    /// The names under which statements address this control plane.
    pub(crate) audience: Vec<String>,
    pub(crate) status: StatusSettings,
    pub(crate) rates: Rates,
    /// Statements whose signatures may be looked at, at a time.
    pub(crate) signature_places: Semaphore,
    /// Event streams that may be open at a time.
    pub(crate) stream_places: Places,
    /// The same of the evidence.
    pub(crate) audit_stream_places: Places,
    /// Bodies of requests with a credential, in units of [`BODY_UNIT_BYTES`].
    pub(crate) bodies: Places,
    /// Requests with a credential, and statements, that are being carried out.
    pub(crate) calls: Places,
    /// Those of them that may wait until the filters have applied a revocation.
    pub(crate) confirmations: Places,
    /// Queries that may read the ledger at a time.
    pub(crate) query_turns: Turns,
    /// Requests refused for want of a credential.
    pub(crate) refusals: Throttle,
    /// Set once whoever started the control plane has told its users where it is.
    pub(crate) announced: Arc<AtomicBool>,
}

/// Queries of the ledger at a time; the next one waits, within the request's timeout.
pub(crate) const MAX_QUERIES: u32 = 4;

/// What bodies are counted in.
pub(crate) const BODY_UNIT_BYTES: usize = 1 << 10;

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
        "this port has /healthz and /readyz only; everything else is on the port of the HTTP API",
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
    let open = open.route_layer(middleware::from_fn_with_state(Arc::clone(&api), rates::limit_strangers));
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
        "this resource does not know that method; see the Allow header",
    )
}

/// Notes that a request has been read whole and is being carried out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Begun(Arc<AtomicBool>);

// === impl Begun ===

impl Begun {
    pub(crate) fn note(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// The answer to a request that took too long.
    fn timed_out(&self) -> Problem {
        if self.0.load(Ordering::Acquire) {
            Problem::new(
                StatusCode::GATEWAY_TIMEOUT,
                "this took too long and the outcome is unknown; send it again (repeating is harmless)",
            )
        } else {
            Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                "the request did not arrive whole in time; nothing was done",
            )
        }
    }
}

/// Ends requests that take too long, and counts all of them.
async fn bound_and_count(State(api): State<Arc<Api>>, mut request: Request, next: Next) -> Response {
    let begun = Begun::default();
    request.extensions_mut().insert(begun.clone());
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or_else(|| "none".to_owned(), |path| path.as_str().to_owned());
    let mut response = match tokio::time::timeout(api.limits.request_timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => begun.timed_out().into_response(),
    };
    response
        .headers_mut()
        .entry(header::CACHE_CONTROL)
        .or_insert(header::HeaderValue::from_static("no-store"));
    api.metrics
        .http_requests
        .get_or_create(&labels([("route", &route), ("status", response.status().as_str())]))
        .inc();
    response
}
