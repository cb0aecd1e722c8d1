//! Listens for clients, and lets in only programs of the listed users of this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{PROXY_AUTHENTICATE, WWW_AUTHENTICATE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::clients::{Client, identify};
use crate::exchange::{SentAgain, exchange};
use crate::metrics::Metrics;
use crate::outbound::{Body, BodyError};
use crate::peer::peer_uid;
use crate::refusal::Refusal;
use crate::request::address;
use crate::settings::{LimitSettings, Listen};
use crate::upstream::Upstream;
use credence_runtime::metrics::{Counted, count};
use credence_runtime::throttle::Throttle;

/// A place where clients connect.
#[derive(Debug)]
pub(crate) struct Front {
    socket: Socket,
    shared: Arc<Shared>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// What all its connections share.
#[derive(Debug)]
struct Shared {
    clients: Vec<Arc<Client>>,
    /// Of each user whose programs may connect, so that none takes the places of another.
    places: BTreeMap<u32, Arc<Semaphore>>,
    services: Vec<Arc<Upstream>>,
    limits: LimitSettings,
    port: Option<u16>,
    metrics: Arc<Metrics>,
    strangers: Throttle,
}

// === impl Front ===

impl Front {
    pub(crate) async fn listen(
        listen: &Listen,
        clients: Vec<Arc<Client>>,
        services: Vec<Arc<Upstream>>,
        limits: LimitSettings,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        let socket = match listen {
            Listen::Tcp(address) => Socket::Tcp(TcpListener::bind(address).await?),
            Listen::Unix(path) => Socket::Unix(bind(path)?),
        };
        let port = match &socket {
            Socket::Tcp(listener) => Some(listener.local_addr()?.port()),
            Socket::Unix(_) => None,
        };
        let uids: BTreeSet<u32> = clients.iter().flat_map(|client| client.uids.clone()).collect();
        let share = limits.connections.div_ceil(uids.len().max(1));
        let shared = Arc::new(Shared {
            clients,
            services,
            places: uids
                .into_iter()
                .map(|uid| (uid, Arc::new(Semaphore::new(share))))
                .collect(),
            limits,
            port,
            metrics,
            strangers: Throttle::default(),
        });
        Ok(Self { socket, shared })
    }

    /// Its address, with the port that the system chose if none was given.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix(_) => None,
        }
    }

    /// Serves until the token is cancelled. Then running requests may end.
    pub(crate) async fn serve(self, stopping: CancellationToken) {
        let graceful = GracefulShutdown::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.accept() => accepted,
                () = stopping.cancelled() => break,
            };
            if let Err(error) = accepted.map(|connection| connection.serve(&self.shared, &graceful)) {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        drop(self);
        let _ = tokio::time::timeout(DRAIN_TIME, graceful.shutdown()).await;
    }

    async fn accept(&self) -> io::Result<Connection> {
        let (uid, stream): (_, Box<dyn Stream>) = match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                let own = stream.local_addr()?;
                let _ = stream.set_nodelay(true);
                (peer_uid(&stream, peer, own), Box::new(stream))
            }
            Socket::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let uid = stream.peer_cred().ok().map(|credentials| credentials.uid());
                (uid, Box::new(stream))
            }
        };
        Ok(Connection { uid, stream })
    }
}

/// A new connection, and the user whose program has made it.
struct Connection {
    uid: Option<u32>,
    stream: Box<dyn Stream>,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Connection {
    fn serve(self, shared: &Arc<Shared>, graceful: &GracefulShutdown) {
        let refused = |reason| count(&shared.metrics.connections_refused, [("reason", reason)]);
        let Some(places) = self.uid.and_then(|uid| shared.places.get(&uid)) else {
            if let Some(attempts) = shared.strangers.count(Instant::now()) {
                tracing::warn!(
                    uid = self.uid,
                    attempts,
                    "a program of another user tried to connect; see `uids`"
                );
            }
            return refused("user");
        };
        let Ok(place) = Arc::clone(places).try_acquire_owned() else {
            return refused("limit");
        };
        let uid = self.uid;
        let activity = Arc::new(Activity::default());
        let service = {
            let (shared, activity) = (Arc::clone(shared), Arc::clone(&activity));
            service_fn(move |request| {
                let (shared, running) = (Arc::clone(&shared), activity.begin());
                async move {
                    let response = shared.answer(request, uid).await;
                    Ok::<_, Infallible>(crate::stream::holding(response, running))
                }
            })
        };
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_HEAD_BYTES as usize);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(HEAD_TIME)
            .max_header_list_size(MAX_HEAD_BYTES)
            .max_concurrent_streams(MAX_STREAMS);
        let counted = Counted::new(&shared.metrics.connections);
        let watcher = graceful.watcher();
        tokio::spawn(async move {
            let _held = (place, counted);
            let connection = builder.serve_connection(TokioIo::new(self.stream), service);
            tokio::select! {
                served = watcher.watch(connection.into_owned()) => if let Err(error) = served {
                    tracing::debug!(error, "a connection ended early");
                },
                // Also before its first bytes, and over HTTP/2, whose pings hyper answers by itself.
                () = activity.idle() => tracing::debug!("a connection was idle"),
            }
        });
    }
}

// === impl Shared ===

impl Shared {
    async fn answer(&self, request: Request<Incoming>, uid: Option<u32>) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let client = identify(&self.clients, &mut parts.headers);
        // Clients of one place may be programs of different users.
        let client = client.filter(|client| uid.is_some_and(|uid| client.uids.contains(&uid)));
        let Some(client) = client else {
            count(&self.metrics.refusals, [("client", ""), ("reason", "client_unknown")]);
            tracing::info!(uid, reason = "client_unknown", "a request was not sent");
            let title = "This proxy does not know the client. Send its secret: `Authorization: Bearer SECRET`, or to a forward proxy `Proxy-Authorization`.";
            let (status, header) = match self.clients.iter().any(|client| client.service.is_none()) {
                true => (StatusCode::PROXY_AUTHENTICATION_REQUIRED, PROXY_AUTHENTICATE),
                false => (StatusCode::UNAUTHORIZED, WWW_AUTHENTICATE),
            };
            let mut response = *Refusal::new(status, "client_unknown", title).response;
            let challenge = HeaderValue::from_static("Basic realm=\"credence-proxy\"");
            response.headers_mut().insert(header, challenge);
            return response;
        };
        match self.exchange(client, parts, body).await {
            Ok(response) => {
                let status = response.status();
                let labels = [("client", client.name.as_str()), ("status", status.as_str())];
                count(&self.metrics.requests, labels);
                if response.extensions().get::<SentAgain>().is_some() {
                    count(&self.metrics.retries, [("client", client.name.as_str())]);
                }
                response
            }
            Err(Refusal { reason, response }) => {
                tracing::info!(client = client.name, reason, "a request was not sent");
                count(&self.metrics.refusals, [("client", &client.name), ("reason", reason)]);
                *response
            }
        }
    }

    async fn exchange(
        &self,
        client: &Arc<Client>,
        parts: http::request::Parts,
        body: Incoming,
    ) -> Result<Response<Body>, Refusal> {
        let Ok(place) = Arc::clone(&client.places).try_acquire_owned() else {
            let title = "This client has too many requests at once.";
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", title));
        };
        let request = address(parts, client, &self.services, self.port)?;
        let body = body.map_err(BodyError::from).boxed();
        let response = exchange(client, request, body, self.limits.answer()).await?;
        Ok(crate::stream::limited(response, self.limits.stream(), place))
    }
}

/// Makes the socket. A stale one is replaced.
fn bind(path: &Path) -> io::Result<UnixListener> {
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
        && std::os::unix::net::UnixStream::connect(path).is_err()
    {
        std::fs::remove_file(path)?;
    }
    // By the mask, not afterwards: by then, the path may lead to another file. Whether a program may connect is decided by its
    // user, when it does.
    let mask = rustix::process::umask(0o111.into());
    let listener = UnixListener::bind(path);
    rustix::process::umask(mask);
    listener
}

const HEAD_TIME: Duration = Duration::from_secs(30);
const DRAIN_TIME: Duration = Duration::from_secs(10);
/// Of a request.
const MAX_HEAD_BYTES: u32 = 64 << 10;
const MAX_HEADERS: usize = 128;
/// Of one connection over HTTP/2.
const MAX_STREAMS: u32 = 128;
