//! `RevocationService` on the wire. The generated server would encode every chunk and update anew for each stream; this
//! one hands on what was encoded once.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use credence_wire::v1;
use credence_wire::v1::revocation_service_server::SERVICE_NAME;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::service::WatchService;
use credence_runtime::outbox::Responses;

/// Routes `Watch` to its service.
#[derive(Debug, Clone)]
pub struct WatchServer {
    service: Arc<WatchService>,
    max_message_bytes: usize,
}

/// `credence.v1.WatchResponse` with chunks and updates left encoded: on the wire a message and bytes are the same.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WatchAnswer {
    #[prost(oneof = "Outgoing", tags = "1, 2, 3, 4, 5, 6")]
    pub(crate) message: Option<Outgoing>,
}

/// What a stream is told.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Outgoing {
    #[prost(message, tag = "1")]
    Welcome(v1::Welcome),
    /// An encoded `credence.v1.SnapshotChunk`.
    #[prost(bytes = "bytes", tag = "2")]
    Chunk(Bytes),
    /// An encoded `credence.v1.Update`.
    #[prost(bytes = "bytes", tag = "3")]
    Update(Bytes),
    #[prost(message, tag = "4")]
    Pong(v1::Pong),
    #[prost(message, tag = "5")]
    Drain(v1::Drain),
    #[prost(message, tag = "6")]
    CacheKeys(v1::CacheKeys),
}

// === impl WatchServer ===

impl WatchServer {
    pub fn new(service: WatchService, max_message_bytes: usize) -> Self {
        Self {
            service: Arc::new(service),
            max_message_bytes,
        }
    }
}

impl NamedService for WatchServer {
    const NAME: &'static str = SERVICE_NAME;
}

impl Service<http::Request<Body>> for WatchServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() != WATCH {
            return Box::pin(async { Ok(Status::unimplemented("RevocationService has only Watch").into_http()) });
        }
        let method = Watch(Arc::clone(&self.service));
        let mut grpc = Grpc::new(ProstCodec::default()).max_decoding_message_size(self.max_message_bytes);
        Box::pin(async move { Ok(grpc.streaming(method, request).await) })
    }
}

struct Watch(Arc<WatchService>);

impl StreamingService<v1::WatchRequest> for Watch {
    type Response = WatchAnswer;
    type ResponseStream = Responses<WatchAnswer>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<Streaming<v1::WatchRequest>>) -> Self::Future {
        let answered = self.0.watch(request);
        Box::pin(async move { answered })
    }
}

const WATCH: &str = "/credence.v1.RevocationService/Watch";

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn every_answer_is_one_of_the_contract() {
        use v1::watch_response::Message;
        let chunk = v1::SnapshotChunk {
            index: 3,
            records: vec![v1::Record::default()],
        };
        let update = v1::Update {
            position: Some(v1::Position::default()),
            record: Some(v1::Record::default()),
        };
        for (ours, theirs) in [
            (Outgoing::Chunk(chunk.encode_to_vec().into()), Message::Chunk(chunk)),
            (Outgoing::Update(update.encode_to_vec().into()), Message::Update(update)),
            (
                Outgoing::Pong(v1::Pong { id: 1, head: 2 }),
                Message::Pong(v1::Pong { id: 1, head: 2 }),
            ),
        ] {
            let encoded = WatchAnswer { message: Some(ours) }.encode_to_vec();
            let decoded = v1::WatchResponse::decode(encoded.as_slice()).unwrap();
            assert_eq!(decoded.message, Some(theirs));
        }
    }
}
