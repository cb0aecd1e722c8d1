//! Refuses requests beyond a rate: 429 (RFC 6585 section 4), with `Retry-After`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use credence_runtime::client_limits::{Client, Network};
use credence_runtime::metrics::count;
use credence_server::Peer;

use super::answers;
use super::api::Api;
use super::problem::Problem;

/// For open routes: counts the request against the client's address.
pub(crate) async fn limit_anonymous(
    State(api): State<Arc<Api>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let address = peer.address.ip();
    request.extensions_mut().insert(Client::new(None, Some(address)));
    match api.limit_address(address) {
        Ok(()) => {
            let client = Client::anonymous(Some(address));
            answers::limit(&api, &peer, &client, next.run(request).await).await
        }
        Err(problem) => problem.into_response(),
    }
}

// === impl Api ===

impl Api {
    /// Counts a request against its address.
    pub(crate) fn limit_address(&self, address: IpAddr) -> Result<(), Problem> {
        self.rates
            .anonymous
            .take(&Network::of(address), Instant::now())
            .map_err(|wait| self.too_many(ADDRESS, wait))
    }

    /// Counts a request against its credential.
    pub(crate) fn limit_credential(&self, name: &str) -> Result<(), Problem> {
        self.rates
            .credentials
            .take(name, Instant::now())
            .map_err(|wait| self.too_many(CREDENTIAL, wait))
    }

    /// Counts a revocation statement.
    pub(crate) fn limit_statement(&self, address: IpAddr) -> Result<(), Problem> {
        self.rates
            .statement(address, Instant::now())
            .map_err(|wait| self.too_many(STATEMENTS, wait))
    }

    fn too_many(&self, (by, detail): (&str, &str), wait: Duration) -> Problem {
        count(&self.metrics.rate_limited, [("by", by)]);
        Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).retry_after(wait)
    }
}

/// The exceeded limit's name in metrics, and the fix.
const CREDENTIAL: (&str, &str) = (
    "credential",
    "this credential sends more requests than limits.requests_per_second allows; send fewer",
);
const ADDRESS: (&str, &str) = (
    "address",
    "this address sends more requests without a credential than limits.unauthenticated_requests_per_second allows; \
     send fewer",
);
const STATEMENTS: (&str, &str) = (
    "statements",
    "more revocation statements arrive than limits.statements_per_second, or for one address \
     limits.statements_per_second_per_address, allows; send it again",
);
