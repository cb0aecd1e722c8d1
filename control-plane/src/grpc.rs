//! The gRPC server: HTTP/2 connections, each bounded in what it may open and how long it may say nothing.

use std::io;

use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

use crate::access::Gate;
use crate::net::BoundedStream;
use credence_evidence::ReportService;
use credence_revocation::WatchService;
use credence_runtime::lifecycle::PhaseWatch;
use credence_runtime::settings::Timeouts;
use credence_runtime::stream_server::StreamServer;

/// Serves until the drain begins, then lets the streams finish.
pub(crate) async fn serve(
    incoming: mpsc::Receiver<BoundedStream>,
    watch: Gate<StreamServer<WatchService>>,
    report: Gate<StreamServer<ReportService>>,
    timeouts: Timeouts,
    mut phase: PhaseWatch,
) {
    let hello_timeout = timeouts.hello;
    let incoming = ReceiverStream::new(incoming).map(move |stream| {
        let stream = stream.expecting(PREFACE_BYTES, hello_timeout);
        io::Result::Ok(stream)
    });
    let served = Server::builder()
        .http2_keepalive_interval(Some(timeouts.hello * 2))
        .http2_keepalive_timeout(Some(timeouts.hello))
        .http2_max_header_list_size(MAX_HEADER_LIST_BYTES)
        .max_concurrent_streams(MAX_STREAMS_PER_CONNECTION)
        .add_service(watch)
        .add_service(report)
        .serve_with_incoming_shutdown(incoming, async move {
            phase.draining().await;
        })
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "the gRPC server ended");
    }
}

/// What every HTTP/2 client says first (RFC 9113 section 3.4). Behind it, pings find whoever is not there any more.
const PREFACE_BYTES: usize = 24;
const MAX_HEADER_LIST_BYTES: u32 = 32 << 10;
/// An Envoy worker multiplexes one watch stream and one audit stream for each plugin configuration.
const MAX_STREAMS_PER_CONNECTION: u32 = 1024;
