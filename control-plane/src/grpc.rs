//! The routes of the gRPC port. A stream needs a valid credential, and ends once the credential becomes invalid.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::post;
use axum::{Extension, Router};
use tonic::transport::server::TcpConnectInfo;
use tonic::{Code, Status};

use crate::access::{AccessControl, Permission, Refusal, Session, Supervised};
use crate::metrics::Metrics;
use credence_runtime::metrics::{code_name, count};
use credence_runtime::stream_server::{StreamMethod, serve_stream};
use credence_runtime::throttle::Throttle;
use credence_server::{Peer, Port};

/// The checks before every stream.
#[derive(Debug)]
struct Gate {
    access: AccessControl,
    metrics: Arc<Metrics>,
    refusals: Throttle,
}

/// Keeps its connection accepted until it is dropped.
struct AcceptedStream(Peer);

impl Drop for AcceptedStream {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// The services of the gRPC port.
pub(crate) fn router(
    access: &AccessControl,
    metrics: &Arc<Metrics>,
    watch: impl StreamMethod,
    report: impl StreamMethod,
    max_batch_bytes: usize,
) -> Router {
    let gate = Arc::new(Gate {
        access: access.clone(),
        metrics: Arc::clone(metrics),
        refusals: Throttle::default(),
    });
    // Batches slightly over the announced limit get our own error instead of tonic's.
    let batch_bytes = max_batch_bytes + SMALL_MESSAGE_BYTES;
    route(&gate, Permission::Watch, watch, SMALL_MESSAGE_BYTES)
        .merge(route(&gate, Permission::Report, report, batch_bytes))
        .fallback(no_such_method)
}

/// The route of a method that requires this permission, with messages of at most this many bytes. The method finds the
/// [`Caller`](credence_runtime::caller::Caller), if there is one, and the
/// [`PeerName`](credence_runtime::caller::PeerName) among the request's extensions.
fn route<M: StreamMethod>(gate: &Arc<Gate>, permission: Permission, method: M, max_message_bytes: usize) -> Router {
    let (gate, method) = (Arc::clone(gate), Arc::new(method));
    let serve = async move |Extension(peer): Extension<Peer>, mut request: Request| -> Response {
        let session = match gate.enter(permission, &peer, &mut request) {
            Ok(session) => session,
            Err(status) => return status.into_http(),
        };
        let accepted = AcceptedStream(peer);
        let answer = serve_stream(method, max_message_bytes, request).await;
        let end = Box::pin(async move {
            let _accepted = accepted;
            gate.end_status(permission, &session.ended().await)
        });
        answer.map(|body| Body::new(Supervised { body, end: Some(end) }))
    };
    Router::new().route(&format!("/{}/{}", M::SERVICE, M::METHOD), post(serve))
}

// === impl Gate ===

impl Gate {
    /// Authorizes the request.
    fn enter(&self, permission: Permission, peer: &Peer, request: &mut Request) -> Result<Session, Status> {
        let session = Session::open(&self.access, (Port::Grpc, permission), request.headers(), peer);
        let session = session.map_err(|refusal| {
            // An unauthenticated client can cause any number of refusals, so not every one is logged.
            if let Some(refused) = self.refusals.count(Instant::now()) {
                tracing::warn!(
                    refused,
                    last = %refusal,
                    peer = %peer.address,
                    "gRPC streams without a valid credential were refused since the last such line"
                );
            }
            self.refuse(status(permission, &refusal))
        })?;
        let name = session.peer_name();
        let accepted = peer.accept(name.as_ref().map(|name| name.0.as_str()));
        accepted.map_err(|refused| self.refuse(Status::resource_exhausted(refused.to_string())))?;
        let extensions = request.extensions_mut();
        // The extension that tonic reads.
        extensions.insert(TcpConnectInfo {
            local_addr: None,
            remote_addr: Some(peer.address),
        });
        if let Some(name) = name {
            extensions.insert(name);
        }
        if let Some(caller) = &session.caller {
            extensions.insert(Arc::clone(caller));
        }
        Ok(session)
    }

    /// The status for a stream that must end.
    fn end_status(&self, permission: Permission, refusal: &Refusal) -> Status {
        let status = status(permission, refusal);
        match refusal {
            // Renewed certificates are normal. These streams are counted with the connections that end for the same
            // reason (`withdrawn_connections`), not with the refused ones.
            Refusal::CertificateWithdrawn => status,
            _ => self.refuse(status),
        }
    }

    /// Counts a refusal.
    fn refuse(&self, status: Status) -> Status {
        count(&self.metrics.grpc_refusals, [("code", code_name(status.code()))]);
        status
    }
}

fn status(permission: Permission, refusal: &Refusal) -> Status {
    let code = match (permission, refusal) {
        // Not for reports: for them, UNAUTHENTICATED tells a filter that its source is unknown, and it would open
        // another one.
        (Permission::Watch, Refusal::Unknown | Refusal::Expired { .. }) => Code::Unauthenticated,
        _ => Code::PermissionDenied,
    };
    Status::new(code, refusal.to_string())
}

/// The answer to a call of an unknown method.
async fn no_such_method() -> Response {
    Status::unimplemented("this port has credence.v1.RevocationService/Watch and credence.v1.AuditService/Report only")
        .into_http()
}

/// The size of hellos, pings, pulls and other small messages.
const SMALL_MESSAGE_BYTES: usize = 64 << 10;
