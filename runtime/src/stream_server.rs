//! A gRPC service of one bidirectional method, whose messages need not be those that the contract's types decode to: what was
//! encoded once is sent as it is, and what is large is looked at before it is decoded.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use prost::Message;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::outbox::Responses;

/// What a service does with a stream.
pub trait StreamMethod: Send + Sync + 'static {
    /// The service's full name.
    const SERVICE: &'static str;
    /// The name of its method.
    const METHOD: &'static str;
    type Incoming: Message + Default + Send + 'static;
    type Outgoing: Message + Send + 'static;

    /// Takes a new stream, or says why not.
    fn open(&self, request: Request<Streaming<Self::Incoming>>) -> Result<Response<Responses<Self::Outgoing>>, Status>;
}

/// Routes requests to a method. Cheap to clone.
#[derive(Debug)]
pub struct StreamServer<M> {
    method: Arc<M>,
    max_message_bytes: usize,
}

/// The method as tonic calls it.
struct Called<M>(Arc<M>);

// === impl StreamServer ===

impl<M: StreamMethod> StreamServer<M> {
    /// Incoming messages may have so many bytes.
    pub fn new(method: M, max_message_bytes: usize) -> Self {
        let method = Arc::new(method);
        Self {
            method,
            max_message_bytes,
        }
    }
}

impl<M> Clone for StreamServer<M> {
    fn clone(&self) -> Self {
        Self {
            method: Arc::clone(&self.method),
            ..*self
        }
    }
}

impl<M: StreamMethod> NamedService for StreamServer<M> {
    const NAME: &'static str = M::SERVICE;
}

impl<M: StreamMethod> Service<http::Request<Body>> for StreamServer<M> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next();
        if method != Some(M::METHOD) {
            let status = Status::unimplemented(format!("{} has only {}", M::SERVICE, M::METHOD));
            return Box::pin(async { Ok(status.into_http()) });
        }
        let called = Called(Arc::clone(&self.method));
        let mut grpc = Grpc::new(ProstCodec::default()).max_decoding_message_size(self.max_message_bytes);
        Box::pin(async move { Ok(grpc.streaming(called, request).await) })
    }
}

impl<M: StreamMethod> StreamingService<M::Incoming> for Called<M> {
    type Response = M::Outgoing;
    type ResponseStream = Responses<M::Outgoing>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<Streaming<M::Incoming>>) -> Self::Future {
        let opened = self.0.open(request);
        Box::pin(async move { opened })
    }
}
