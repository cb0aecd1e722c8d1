//! HTTP/1.1 connections, each bounded in the size and the arrival time of its heads.

use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;

use super::rates::ClientAddress;
use super::unread::{self, Returned};
use crate::net::BoundedStream;
use credence_runtime::lifecycle::PhaseWatch;
use credence_runtime::settings::Timeouts;

/// Serves until the drain begins, then lets running requests finish. Dropping the future ends all connections. So does
/// a client that reads nothing for the `send` timeout end its own.
pub(crate) async fn serve(
    mut incoming: mpsc::Receiver<BoundedStream>,
    router: Router,
    request_timeout: Duration,
    timeouts: Timeouts,
    mut phase: PhaseWatch,
) {
    let first_head = timeouts.hello;
    let mut connections = JoinSet::new();
    let graceful = GracefulShutdown::new();
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES);
    loop {
        tokio::select! {
            stream = incoming.recv() => {
                let Some(stream) = stream else {
                    tracing::error!("the HTTP port takes no more connections");
                    break;
                };
                let peer = stream.peer().clone();
                let address = peer.address.map(|address| ClientAddress(address.ip()));
                let routes = TowerToHyperService::new(router.clone());
                let (leftovers, dropping) = unread::leftovers(request_timeout);
                let (begun, beginning) = oneshot::channel::<()>();
                let begun = Mutex::new(Some(begun));
                let service = service_fn(move |request: hyper::Request<Incoming>| {
                    // Says that a head has arrived; then there is nothing to say any more.
                    drop(begun.lock().unwrap_or_else(PoisonError::into_inner).take());
                    let (mut parts, body) = request.into_parts();
                    parts.extensions.insert(peer.clone());
                    if let Some(address) = address {
                        parts.extensions.insert(address);
                    }
                    let (body, unread) = Returned::new(body, &parts.headers);
                    parts.extensions.insert(body.arrived.clone());
                    let answering = routes.call(hyper::Request::from_parts(parts, body));
                    let leftovers = leftovers.clone();
                    async move {
                        let mut answer = answering.await?;
                        leftovers.answered(unread, answer.headers_mut());
                        Ok::<_, Infallible>(answer)
                    }
                });
                // While a request is being answered the connection is not read, so eviction is polled separately.
                let evicted = stream.evicted();
                // hyper waits without end for a client that does not read.
                let mut stream = TimeoutStream::new(stream);
                stream.set_write_timeout(Some(timeouts.send));
                let connection = graceful.watch(builder.serve_connection(TokioIo::new(Box::pin(stream)), service));
                let connection = async move {
                    if let Err(error) = connection.await {
                        tracing::debug!(%error, "an HTTP connection ended early");
                    }
                };
                let overdue = async move {
                    if tokio::time::timeout(first_head, beginning).await.is_ok() {
                        std::future::pending().await
                    }
                };
                connections.spawn(async move {
                    tokio::select! {
                        _ = async { tokio::join!(connection, dropping) } => {}
                        () = evicted.cancelled() => tracing::debug!("an HTTP connection made room for another one"),
                        () = overdue => tracing::debug!("an HTTP connection sent no request in time"),
                    }
                });
            }
            Some(_) = connections.join_next() => {}
            _ = phase.draining() => break,
        }
    }
    drop(incoming);
    graceful.shutdown().await;
}

/// Bytes of a request's line and headers together.
const MAX_HEAD_BYTES: usize = 32 << 10;
const MAX_HEADERS: usize = 64;
/// How long a request's head may take, idle time between two requests included.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
