//! A gRPC service with one bidirectional method and its own message types. A message that was encoded once is sent as
//! it is, and a large message is checked before it is decoded.

use std::sync::Arc;

use prost::Message;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, StdError, http};
use tonic::server::{Grpc, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::outbox::Responses;

/// The handler of a service's streams.
pub trait StreamMethod: Send + Sync + 'static {
    /// The service's full name.
    const SERVICE: &'static str;
    /// The name of the method.
    const METHOD: &'static str;
    type Incoming: Message + Default + Send + 'static;
    type Outgoing: Message + Send + 'static;

    /// Accepts a new stream, or refuses it with a status.
    fn open(&self, request: Request<Streaming<Self::Incoming>>) -> Result<Response<Responses<Self::Outgoing>>, Status>;
}

/// Serves a stream. Incoming messages may have at most this many bytes.
pub async fn serve_stream<M: StreamMethod, B>(
    method: Arc<M>,
    max_message_bytes: usize,
    request: http::Request<B>,
) -> http::Response<Body>
where
    B: tonic::codegen::Body + Send + 'static,
    B::Error: Into<StdError> + Send,
{
    let mut grpc = Grpc::new(ProstCodec::default()).max_decoding_message_size(max_message_bytes);
    grpc.streaming(Called(method), request).await
}

/// The method, as tonic calls it.
struct Called<M>(Arc<M>);

impl<M: StreamMethod> StreamingService<M::Incoming> for Called<M> {
    type Response = M::Outgoing;
    type ResponseStream = Responses<M::Outgoing>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<Streaming<M::Incoming>>) -> Self::Future {
        let opened = self.0.open(request);
        Box::pin(async move { opened })
    }
}
