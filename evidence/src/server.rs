//! `AuditService` on the wire. The generated server would decode whole batches before anybody could look at them; this
//! one hands them on encoded.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use credence_wire::v1;
use credence_wire::v1::audit_service_server::SERVICE_NAME;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::ingest::IngestRequest;
use super::service::ReportService;
use credence_runtime::outbox::Responses;

/// Routes `Report` to its service.
#[derive(Debug, Clone)]
pub struct ReportServer {
    service: Arc<ReportService>,
    max_message_bytes: usize,
}

// === impl ReportServer ===

impl ReportServer {
    pub fn new(service: ReportService, max_message_bytes: usize) -> Self {
        Self {
            service: Arc::new(service),
            max_message_bytes,
        }
    }
}

impl NamedService for ReportServer {
    const NAME: &'static str = SERVICE_NAME;
}

impl Service<http::Request<Body>> for ReportServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() != REPORT {
            return Box::pin(async { Ok(Status::unimplemented("AuditService has only Report").into_http()) });
        }
        let method = Report(Arc::clone(&self.service));
        let mut grpc = Grpc::new(ProstCodec::default()).max_decoding_message_size(self.max_message_bytes);
        Box::pin(async move { Ok(grpc.streaming(method, request).await) })
    }
}

struct Report(Arc<ReportService>);

impl StreamingService<IngestRequest> for Report {
    type Response = v1::ReportResponse;
    type ResponseStream = Responses<v1::ReportResponse>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<Streaming<IngestRequest>>) -> Self::Future {
        let answered = self.0.report(request);
        Box::pin(async move { answered })
    }
}

const REPORT: &str = "/credence.v1.AuditService/Report";
