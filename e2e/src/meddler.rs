//! A proxy between Envoy and the control plane that repeats, reorders and drops the control plane's messages.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::Request;
use tokio::net::{TcpListener, TcpStream};

use crate::Failure;
use crate::client::grpc_frame;
use crate::grpc::{self, Messages};
use crate::http2::RUNTIME;

/// Stays until the process ends.
#[derive(Debug)]
pub struct Meddler {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// One message of `RevocationService.Watch` on its way to a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// What it is.
    pub kind: Kind,
    bytes: Bytes,
}

/// The messages of a `WatchResponse`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "revocation.proto explains them")]
pub enum Kind {
    Welcome,
    Chunk,
    Update,
    Pong,
    Drain,
    CacheKeys,
    Unknown,
}

/// Maps a message to those that the filter gets instead.
type Meddling = Box<dyn FnMut(Message) -> Vec<Message> + Send>;

struct Shared {
    server: Mutex<Option<SocketAddr>>,
    /// Makes one for each stream, so that a message held back on one stream never gets into another.
    meddling: Mutex<Arc<dyn Fn() -> Meddling + Send + Sync>>,
}

// === impl Meddler ===

impl Meddler {
    /// A proxy that passes all messages on, without a target yet.
    ///
    /// # Errors
    /// If there is no free port.
    pub fn new() -> Result<Self, Failure> {
        let failed = "opening a port for a meddler";
        let listener = RUNTIME.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = listener.map_err(Failure::of(failed))?;
        let address = listener.local_addr().map_err(Failure::of(failed))?;
        let shared = Arc::new(Shared {
            server: Mutex::default(),
            meddling: Mutex::new(Arc::new(honest)),
        });
        let seen = Arc::clone(&shared);
        RUNTIME.spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                // If a connection breaks, its two ends notice.
                tokio::spawn(Arc::clone(&seen).pass(connection));
            }
        });
        Ok(Self { address, shared })
    }

    /// The port that filters connect to.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sets the target of new connections.
    pub fn lead_to(&self, server: SocketAddr) {
        *self.shared.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
    }

    /// Applies this to each stream's messages from now on, open streams included. `start` is called once for each
    /// stream.
    pub fn meddle<M>(&self, start: impl Fn() -> M + Send + Sync + 'static)
    where
        M: FnMut(Message) -> Vec<Message> + Send + 'static,
    {
        let start = move || -> Meddling { Box::new(start()) };
        *self.shared.meddling.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(start);
    }

    /// Passes all messages on unchanged from now on.
    pub fn be_honest(&self) {
        *self.shared.meddling.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(honest);
    }
}

fn honest() -> Meddling {
    Box::new(|message| vec![message])
}

// === impl Shared ===

impl Shared {
    async fn pass(self: Arc<Self>, connection: TcpStream) -> Option<()> {
        connection.set_nodelay(true).ok()?;
        let mut incoming = h2::server::handshake(connection).await.ok()?;
        let server = (*self.server.lock().unwrap_or_else(PoisonError::into_inner))?;
        let server = TcpStream::connect(server).await.ok()?;
        server.set_nodelay(true).ok()?;
        let (outgoing, connection) = h2::client::handshake(server).await.ok()?;
        let outgoing_ended = tokio::spawn(connection);
        while let Some(Ok((request, respond))) = incoming.accept().await {
            let this = Arc::clone(&self);
            let outgoing = outgoing.clone();
            tokio::spawn(async move { this.pass_stream(request, respond, outgoing).await.is_ok() });
        }
        outgoing_ended.abort();
        Some(())
    }

    async fn pass_stream(
        &self,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        outgoing: SendRequest<Bytes>,
    ) -> Result<(), h2::Error> {
        let is_watch = request.uri().path().ends_with("/Watch");
        let (head, body) = request.into_parts();
        let mut outgoing = outgoing.ready().await?;
        let (response, to_server) = outgoing.send_request(Request::from_parts(head, ()), false)?;
        tokio::spawn(async move { pass_messages(Messages::of(body), to_server).await.is_ok() });
        let (head, body) = response.await?.into_parts();
        let mut to_filter = respond.send_response(http::Response::from_parts(head, ()), false)?;
        let mut messages = Messages::of(body);
        let (mut present, mut meddling) = (self.start(), honest());
        let mut has_begun = false;
        loop {
            let message = tokio::select! {
                message = messages.next() => message?,
                // The filter has reset the stream. Dropping ours resets it too.
                _ = std::future::poll_fn(|context| to_filter.poll_reset(context)) => return Ok(()),
            };
            let Some(bytes) = message else { break };
            let start = self.start();
            if !has_begun || !Arc::ptr_eq(&start, &present) {
                (meddling, has_begun) = (start(), true);
                present = start;
            }
            let passed = if is_watch {
                meddling(Message::of(bytes))
            } else {
                vec![Message::of(bytes)]
            };
            for message in passed {
                to_filter.send_data(grpc_frame(&message.bytes).into(), false)?;
            }
        }
        to_filter.send_trailers(messages.trailers().await?.unwrap_or_default())
    }

    fn start(&self) -> Arc<dyn Fn() -> Meddling + Send + Sync> {
        Arc::clone(&self.meddling.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Shared").finish_non_exhaustive()
    }
}

async fn pass_messages(mut messages: Messages, mut to: SendStream<Bytes>) -> Result<(), h2::Error> {
    while let Some(message) = messages.next().await? {
        to.send_data(grpc_frame(&message).into(), false)?;
    }
    to.send_data(Bytes::new(), true)
}

// === impl Message ===

impl Message {
    fn of(bytes: Bytes) -> Self {
        let kind = match grpc::first_field(&bytes) {
            Some(1) => Kind::Welcome,
            Some(2) => Kind::Chunk,
            Some(3) => Kind::Update,
            Some(4) => Kind::Pong,
            Some(5) => Kind::Drain,
            Some(6) => Kind::CacheKeys,
            _ => Kind::Unknown,
        };
        Self { kind, bytes }
    }
}
