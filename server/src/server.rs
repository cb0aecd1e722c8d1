//! Serves a port: HTTP/1.1 for an API and for probes, HTTP/2 for gRPC streams. Each connection has limits for bytes,
//! streams and silence.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;
use tokio_util::either::Either;

use crate::body_drain::{Leftovers, leftovers};
use crate::connections::Connection;
use crate::listener::BoundedListener;
use crate::tls::{self, Peer, Port, TlsPort};
use credence_runtime::lifecycle::PhaseWatch;
use credence_runtime::settings::Timeouts;

/// The service of a port, and its timeouts. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Server {
    /// What the port serves.
    pub port: Port,
    /// If absent, the port is plaintext.
    pub tls: Option<TlsPort>,
    /// The service.
    pub router: Router,
    /// How long the rest of a request's body may take after an early answer. The router limits requests itself.
    pub request_timeout: Duration,
    /// How long connections may be silent.
    pub timeouts: Timeouts,
    /// Tells when the drain begins.
    pub phase: PhaseWatch,
}

// === impl Server ===

impl Server {
    /// Serves until the drain begins, then lets running requests and streams finish. Dropping the future ends all
    /// connections.
    pub async fn serve(mut self, listener: BoundedListener) {
        let mut connections = JoinSet::new();
        let graceful = GracefulShutdown::new();
        loop {
            let (stream, address, connection) = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = self.phase.draining() => break,
            };
            // Not in the `select!`, which would drop a connection that waits for its place.
            while connections.try_join_next().is_some() {}
            let peer = Peer::new(address, &connection);
            let serving = self
                .clone()
                .serve_connection(stream, peer, connection, graceful.watcher());
            connections.spawn(serving);
        }
        drop(listener);
        graceful.shutdown().await;
    }

    async fn serve_connection(
        mut self,
        stream: TcpStream,
        mut peer: Peer,
        connection: Arc<Connection>,
        watcher: Watcher,
    ) {
        let closing = &connection.closing;
        let stream = match &self.tls {
            None => Either::Left(stream),
            Some(tls) => {
                let begun = tokio::select! {
                    begun = tls::accept(stream, tls, &mut peer, closing, self.timeouts.hello) => begun,
                    _ = self.phase.draining() => None,
                };
                let Some(stream) = begun else { return };
                Either::Right(stream)
            }
        };
        let mut stream = TimeoutStream::new(stream);
        if self.port == Port::Http {
            // hyper waits without a limit for a client that does not read. Over HTTP/2, pings detect it.
            stream.set_write_timeout(Some(self.timeouts.send));
        }
        let port = self.port.name();
        let (leftovers, dropping) = leftovers(self.request_timeout);
        let (begun, beginning) = oneshot::channel::<()>();
        let begun = Mutex::new(Some(begun));
        let (server, peer) = (&self, &peer);
        let service = service_fn(move |request: Request<Incoming>| {
            // Notes that a head has arrived. This happens once.
            drop(begun.lock().unwrap_or_else(PoisonError::into_inner).take());
            server.answer(request, peer, leftovers.clone())
        });
        let builder = self.builder();
        let served = watcher.watch(builder.serve_connection(TokioIo::new(Box::pin(stream)), service));
        let served = async move {
            if let Err(error) = served.await {
                tracing::debug!(port, error, "a connection ended early");
            }
        };
        let overdue = async {
            if tokio::time::timeout(self.timeouts.hello, beginning).await.is_ok() {
                std::future::pending().await
            }
        };
        tokio::select! {
            _ = async { tokio::join!(served, dropping) } => {}
            // The connection is not read while a request is being answered, so hyper would not notice.
            () = closing.cancelled() => {
                tracing::debug!(port, "a connection made room for another one, read an answer too slowly, or its \
                    certificate no longer counts");
            }
            () = overdue => tracing::debug!(port, "a connection sent no request in time"),
        }
    }

    fn answer(
        &self,
        request: Request<Incoming>,
        peer: &Peer,
        leftovers: Leftovers,
    ) -> impl Future<Output = Result<Response<Body>, Infallible>> + Send + use<> {
        let (port, routes) = (self.port, TowerToHyperService::new(self.router.clone()));
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(peer.clone());
        async move {
            match port {
                Port::Http => leftovers.answer(parts, body, routes).await,
                Port::Grpc => routes.call(Request::from_parts(parts, body)).await,
            }
        }
    }

    fn builder(&self) -> auto::Builder<TokioExecutor> {
        let builder = auto::Builder::new(TokioExecutor::new());
        match self.port {
            Port::Http => {
                let mut builder = builder.http1_only();
                builder
                    .http1()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIMEOUT)
                    .max_headers(MAX_HEADERS)
                    .max_buf_size(MAX_HEAD_BYTES);
                builder
            }
            Port::Grpc => {
                let mut builder = builder.http2_only();
                builder
                    .http2()
                    .timer(TokioTimer::new())
                    .keep_alive_interval(self.timeouts.hello * 2)
                    .keep_alive_timeout(self.timeouts.hello)
                    .max_header_list_size(MAX_HEAD_BYTES as u32)
                    .max_concurrent_streams(MAX_STREAMS_PER_CONNECTION);
                builder
            }
        }
    }
}

/// The size of a request's line and headers.
const MAX_HEAD_BYTES: usize = 32 << 10;
const MAX_HEADERS: usize = 64;
/// How long a request's head may take, with the idle time before it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// An Envoy worker multiplexes one revocation stream and one audit stream for each plugin configuration.
const MAX_STREAMS_PER_CONNECTION: u32 = 1024;
