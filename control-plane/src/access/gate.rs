//! Lets a gRPC stream through to its service that comes with a credential which is good for it, and ends it once the
//! credential no longer is.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::transport::server::TcpConnectInfo;
use tonic::{Code, Status};

use super::session::{Session, SessionEnd};
use super::supervised::Supervised;
use super::{AccessControl, Permission, Refusal};
use crate::metrics::Metrics;
use crate::tls::{Peer, Port};
use credence_runtime::metrics::{code_name, labels};
use credence_runtime::throttle::Throttle;

/// A service of which every method asks for one permission. Methods find the [`Caller`](credence_runtime::caller::Caller), if there
/// is one, and the [`PeerName`](credence_runtime::caller::PeerName) among the request's extensions.
#[derive(Debug, Clone)]
pub(crate) struct Gate<S> {
    service: S,
    permission: Permission,
    access: AccessControl,
    refusals: Arc<Throttle>,
    metrics: Arc<Metrics>,
}

// === impl Gate ===

impl<S> Gate<S> {
    pub(crate) fn new(permission: Permission, access: AccessControl, metrics: Arc<Metrics>, service: S) -> Self {
        Self {
            service,
            permission,
            access,
            refusals: Arc::default(),
            metrics,
        }
    }

    /// Lets the request in, or says why not.
    fn enter(&self, request: &mut http::Request<Body>) -> Result<Session, Status> {
        let peer = request.extensions().get::<Peer>().cloned();
        let peer = peer.ok_or_else(|| Status::internal("the connection has no peer"))?;
        let address = peer.address;
        let session = Session::open(&self.access, (Port::Grpc, self.permission), request.headers(), &peer);
        let session = session.map_err(|refusal| {
            let status = status(self.permission, &refusal);
            count(&self.metrics, &status);
            // They cost a stranger nothing, so they must not cost us a line each.
            if let Some(refused) = self.refusals.count(Instant::now()) {
                tracing::warn!(
                    refused,
                    last = %refusal,
                    peer = %address,
                    "gRPC streams without a credential that is good for them were refused since the last such line"
                );
            }
            status
        })?;
        let name = session.peer_name();
        let accepted = session.peer.accept(name.as_ref().map(|name| name.0.as_str()));
        accepted.map_err(|refused| {
            let status = Status::resource_exhausted(refused.to_string());
            count(&self.metrics, &status);
            status
        })?;
        let extensions = request.extensions_mut();
        // What tonic itself looks for.
        extensions.insert(TcpConnectInfo {
            local_addr: None,
            remote_addr: Some(address),
        });
        if let Some(name) = name {
            extensions.insert(name);
        }
        if let Some(caller) = &session.caller {
            extensions.insert(Arc::clone(caller));
        }
        Ok(session)
    }
}

impl<S: NamedService> NamedService for Gate<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Gate<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let session = match self.enter(&mut request) {
            Ok(session) => session,
            Err(status) => return Box::pin(async move { Ok(status.into_http()) }),
        };
        let (metrics, permission) = (Arc::clone(&self.metrics), self.permission);
        let answering = self.service.call(request);
        Box::pin(async move {
            let response = answering.await?;
            let end = async move { end_status(&metrics, permission, &session.ended().await) };
            Ok(response.map(|body| Body::new(Supervised::new(body, end))))
        })
    }
}

/// What the client of a stream is told that cannot go on.
fn end_status(metrics: &Metrics, permission: Permission, end: &SessionEnd) -> Status {
    match end {
        SessionEnd::Refused(refusal) => {
            let status = status(permission, refusal);
            count(metrics, &status);
            status
        }
        // Renewed certificates are ordinary: these streams are counted with the connections that end for it
        // (`withdrawn_connections`), and not with those that are refused.
        SessionEnd::CertificateWithdrawn => Status::permission_denied(
            "the client certificate that this connection was opened with has ended, or its authority is no longer in \
             client_ca; connect again with a new one",
        ),
    }
}

fn count(metrics: &Metrics, status: &Status) {
    let code = code_name(status.code());
    metrics.grpc_refusals.get_or_create(&labels([("code", code)])).inc();
}

fn status(permission: Permission, refusal: &Refusal) -> Status {
    let code = match (permission, refusal) {
        // A filter that reports takes UNAUTHENTICATED to mean that its source is unknown, and would begin another.
        (Permission::Report, _)
        | (_, Refusal::Forbidden { .. } | Refusal::PartOfLog { .. } | Refusal::OtherIssuers { .. }) => {
            Code::PermissionDenied
        }
        (_, Refusal::Unknown | Refusal::Expired { .. }) => Code::Unauthenticated,
    };
    Status::new(code, refusal.to_string())
}
