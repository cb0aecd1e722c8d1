//! A stand-in for the control plane, for tests that need a large revocation log, or one that behaves as no real one
//! does. It serves only snapshots, and keeps no evidence.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::client::grpc_frame;
use crate::protobuf::{Fields, Message};
use crate::{Failure, ISSUER};

/// A server of `credence.v1.RevocationService`. It serves until it is dropped.
#[derive(Debug)]
pub struct StandIn {
    address: SocketAddr,
    log: watch::Sender<Arc<Log>>,
    /// How many chunks of a snapshot it sends; it holds the others back.
    given: watch::Sender<usize>,
    seen: Arc<Seen>,
}

/// What the filters have done.
#[derive(Debug, Default)]
struct Seen {
    loads: Mutex<Vec<Load>>,
    /// The number of streams that wait for a chunk.
    held: AtomicUsize,
}

/// A revocation log at one position, as a snapshot.
#[derive(Debug)]
pub struct Log {
    seq: u64,
    subjects: u64,
    chunks: Vec<Bytes>,
    max_token_lifetime: Duration,
}

/// A snapshot that a client has loaded.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// The client's new position.
    pub seq: u64,
    /// From its hello to the ping that reports it.
    pub took: Duration,
}

// === impl Log ===

impl Log {
    /// A log at position `seq`, in which this many principals of [`ISSUER`], from `user-0` on, are in epoch 1.
    #[must_use]
    pub fn of_principals(seq: u64, subjects: u64) -> Self {
        let mut chunks = Vec::new();
        let mut records = Vec::new();
        for number in 0..subjects {
            let record = raised(&format!("user-{number}"));
            if records.len() + record.len() > CHUNK_BYTES {
                chunks.push(chunk(chunks.len(), &std::mem::take(&mut records)));
            }
            records.extend_from_slice(Message::new().message(2, &record).encoded());
        }
        if !records.is_empty() {
            chunks.push(chunk(chunks.len(), &records));
        }
        Self {
            seq,
            subjects,
            chunks,
            max_token_lifetime: Duration::ZERO,
        }
    }

    /// Sets the token lifetime for which the log keeps revoked delegations.
    #[must_use]
    pub fn remembering(mut self, max_token_lifetime: Duration) -> Self {
        self.max_token_lifetime = max_token_lifetime;
        self
    }

    /// The number of the snapshot's chunks.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    fn welcome(&self) -> Message {
        let position = Message::new().number(1, self.seq).bytes(2, &[7; 32]);
        let snapshot = Message::new()
            .message(1, &position)
            .number(2, self.chunks.len() as u64)
            .number(3, self.subjects);
        Message::new()
            .bytes(1, StandIn::LOG_ID.as_bytes())
            .number(2, self.seq)
            .message(3, &snapshot)
            .number(5, self.max_token_lifetime.as_secs())
    }
}

/// A `Record` with a `PrincipalState`.
fn raised(subject: &str) -> Message {
    let principal = Message::new().bytes(1, ISSUER.as_bytes()).bytes(2, subject.as_bytes());
    let state = Message::new()
        .message(1, &principal)
        .number(2, 1)
        .number(4, 1_700_000_000);
    Message::new().message(1, &state)
}

/// A `WatchResponse` with a `SnapshotChunk`, encoded for sending.
fn chunk(index: usize, records: &[u8]) -> Bytes {
    let chunk = Message::new().number(1, index as u64).and_encoded(records);
    response(&Message::new().message(2, &chunk))
}

fn response(message: &Message) -> Bytes {
    grpc_frame(message.encoded()).into()
}

// === impl StandIn ===

impl StandIn {
    /// The log that filters must pin.
    pub const LOG_ID: &str = "5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e";

    /// Serves this log on a free port.
    ///
    /// # Errors
    /// If there is none.
    pub fn serve(log: Log) -> Result<Self, Failure> {
        let failed = "opening a port for the control plane's stand-in";
        let listener = RUNTIME
            .block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .map_err(Failure::of(failed))?;
        let address = listener.local_addr().map_err(Failure::of(failed))?;
        let this = Self {
            address,
            log: watch::Sender::new(Arc::new(log)),
            given: watch::Sender::new(usize::MAX),
            seen: Arc::default(),
        };
        let (log, given, seen) = (this.log.subscribe(), this.given.subscribe(), Arc::clone(&this.seen));
        RUNTIME.spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (log, given, seen) = (log.clone(), given.clone(), Arc::clone(&seen));
                tokio::spawn(async move {
                    connection.set_nodelay(true).ok()?;
                    let mut connection = h2::server::handshake(connection).await.ok()?;
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        let (log, given, seen) = (log.clone(), given.clone(), Arc::clone(&seen));
                        // The filter notices a broken stream.
                        tokio::spawn(async move { answer(request, respond, log, given, &seen).await.is_ok() });
                    }
                    Some(())
                });
            }
        });
        Ok(this)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Ends all streams. Filters that reconnect get a snapshot of this log, at any position.
    pub fn replace(&self, log: Log) {
        self.log.send_replace(Arc::new(log));
    }

    /// Sends only this many chunks of a snapshot, until told to send more.
    pub fn give(&self, chunks: usize) {
        self.given.send_replace(chunks);
    }

    /// The number of filters that wait for a chunk that is held back.
    pub fn held(&self) -> usize {
        self.seen.held.load(Ordering::Relaxed)
    }

    /// The snapshots loaded so far.
    pub fn loads(&self) -> Vec<Load> {
        self.seen.loads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    mut log: watch::Receiver<Arc<Log>>,
    mut given: watch::Receiver<usize>,
    seen: &Seen,
) -> Result<(), Failure> {
    let is_watch = request.uri().path().ends_with("RevocationService/Watch");
    let mut head = Response::new(());
    head.headers_mut()
        .insert("content-type", HeaderValue::from_static("application/grpc"));
    let broken = || Failure::of("answering a filter");
    let mut out = respond.send_response(head, false).map_err(broken())?;
    if !is_watch {
        return end(&mut out, UNIMPLEMENTED);
    }
    let log_now = Arc::clone(&log.borrow_and_update());
    let mut inbound = Inbound::new(request.into_body());
    let mut hello = Instant::now();
    let mut is_done = false;
    loop {
        let message = tokio::select! {
            message = inbound.next() => message?,
            _ = log.changed() => return end(&mut out, UNAVAILABLE),
        };
        let Some(message) = message else {
            return end(&mut out, 0);
        };
        let fields = Fields::of(&message);
        let reply = if fields.bytes(1).is_some() {
            hello = Instant::now();
            response(&Message::new().message(1, &log_now.welcome()))
        } else if let Some(pull) = fields.bytes(2) {
            let index = Fields::of(pull).number(1) as usize;
            seen.held.fetch_add(1, Ordering::Relaxed);
            let is_replaced = tokio::select! {
                _ = given.wait_for(|given| *given > index) => false,
                _ = log.changed() => true,
            };
            seen.held.fetch_sub(1, Ordering::Relaxed);
            if is_replaced {
                return end(&mut out, UNAVAILABLE);
            }
            log_now.chunks.get(index).cloned().unwrap_or_default()
        } else {
            let id = fields.bytes(3).map_or(0, |ping| Fields::of(ping).number(1));
            if !std::mem::replace(&mut is_done, true) {
                let load = Load {
                    seq: log_now.seq,
                    took: hello.elapsed(),
                };
                seen.loads.lock().unwrap_or_else(PoisonError::into_inner).push(load);
            }
            let pong = Message::new().number(1, id).number(2, log_now.seq);
            response(&Message::new().message(4, &pong))
        };
        out.send_data(reply, false).map_err(broken())?;
    }
}

fn end(out: &mut SendStream<Bytes>, status: u32) -> Result<(), Failure> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(status));
    out.send_trailers(trailers)
        .map_err(Failure::of("ending a filter's stream"))
}

/// The messages of a gRPC stream.
struct Inbound {
    body: RecvStream,
    received: BytesMut,
}

impl Inbound {
    fn new(body: RecvStream) -> Self {
        Self {
            body,
            received: BytesMut::new(),
        }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            if let Some(message) = self.take() {
                return Ok(Some(message));
            }
            let Some(part) = self.body.data().await else {
                return Ok(None);
            };
            let part = part.map_err(Failure::of("reading from a filter"))?;
            let _ = self.body.flow_control().release_capacity(part.len());
            self.received.extend_from_slice(&part);
        }
    }

    fn take(&mut self) -> Option<Bytes> {
        let length = self.received.get(1..PREFIX_BYTES)?.get_u32() as usize;
        if self.received.len() < PREFIX_BYTES + length {
            return None;
        }
        self.received.advance(PREFIX_BYTES);
        Some(self.received.split_to(length).freeze())
    }
}

/// A gRPC message's flag and length.
const PREFIX_BYTES: usize = 5;

/// The records of a chunk. With the framing, it is less than the chunk's limit of 64 KiB.
const CHUNK_BYTES: usize = 65_000;

const UNIMPLEMENTED: u32 = 12;
const UNAVAILABLE: u32 = 14;

/// Its own thread, so that tests do not delay it.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    runtime.unwrap_or_else(|error| panic!("starting a thread for the control plane's stand-in: {error}"))
});
