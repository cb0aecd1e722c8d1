//! A client of `RevocationService.Watch` that is not a filter: for many streams, and for misbehaving ones.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use http::Request;
use tokio::net::TcpSocket;

use crate::Failure;
use crate::client::grpc_frame;
use crate::grpc::{self, Messages};
use crate::http2::{RUNTIME, in_time};

/// A stream on its own connection, as each filter VM has one.
#[derive(Debug)]
pub struct Subscriber {
    to_server: SendStream<Bytes>,
    messages: Messages,
}

/// The client of a stream.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The address that it connects from.
    pub address: IpAddr,
    /// Its bearer token.
    pub token: Option<String>,
}

/// A position in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The sequence number of the last entry up to here.
    pub seq: u64,
    /// The digest of all entries up to here.
    pub digest: Vec<u8>,
}

/// A message of the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// A new entry.
    Update(Position),
    /// The echo of a ping, and the log's end at that time.
    Pong(u64),
    /// Another message.
    Other,
}

// === impl Subscriber ===

impl Subscriber {
    /// Opens a stream that continues after `applied`, or from a snapshot, whose chunks it pulls.
    ///
    /// # Errors
    /// If the control plane does not welcome it.
    pub async fn open(server: SocketAddr, log_id: &str, applied: Option<&Position>) -> Result<Self, Failure> {
        Self::begin(server, &Caller::default(), &hello(log_id, applied)).await
    }

    /// The same from a snapshot, as this caller.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_as(server: SocketAddr, caller: &Caller, log_id: &str) -> Result<Self, Failure> {
        Self::begin(server, caller, &hello(log_id, None)).await
    }

    /// The same from a snapshot, as a client that confirms what it [applies](Self::apply). Once the control plane has
    /// echoed a ping, confirmations wait for this client.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_confirming(server: SocketAddr, caller: &Caller, log_id: &str) -> Result<Self, Failure> {
        let confirms = grpc::number_field(6, 1);
        Self::begin(server, caller, &[hello(log_id, None), confirms].concat()).await
    }

    async fn begin(server: SocketAddr, caller: &Caller, hello: &[u8]) -> Result<Self, Failure> {
        let attempt = || format!("subscribing to revocations at {server}");
        in_time(async {
            let socket = TcpSocket::new_v4().map_err(Failure::of(attempt()))?;
            let address = SocketAddr::new(caller.address, 0);
            socket.bind(address).map_err(Failure::of(attempt()))?;
            let stream = socket.connect(server).await.map_err(Failure::of(attempt()))?;
            stream.set_nodelay(true).map_err(Failure::of(attempt()))?;
            let (sender, connection) = h2::client::handshake(stream).await.map_err(Failure::of(attempt()))?;
            // The stream reports its end.
            tokio::spawn(connection);
            let request = Request::post(format!("http://{server}/credence.v1.RevocationService/Watch"))
                .header("content-type", "application/grpc")
                .header("te", "trailers");
            let request = match &caller.token {
                Some(token) => request.header("authorization", format!("Bearer {token}")),
                None => request,
            };
            let request = request.body(()).map_err(Failure::of(attempt()))?;
            let mut sender = sender.ready().await.map_err(Failure::of(attempt()))?;
            let (response, mut to_server) = sender.send_request(request, false).map_err(Failure::of(attempt()))?;
            send(&mut to_server, 1, hello)?;
            let response = response.await.map_err(Failure::of(attempt()))?;
            if let Some(status) = response.headers().get("grpc-status") {
                return Err(Failure::new(format!("{}: gRPC status {status:?}", attempt())));
            }
            let mut this = Self {
                to_server,
                messages: Messages::of(response.into_body()),
            };
            let welcome = this.message().await?;
            let welcome = welcome.as_deref().and_then(|message| grpc::find_bytes(message, 1));
            let welcome = welcome.ok_or_else(|| Failure::new(format!("{}: no welcome came", attempt())))?;
            let snapshot = grpc::find_bytes(welcome, 3);
            let chunks = snapshot
                .and_then(|snapshot| grpc::find_number(snapshot, 2))
                .unwrap_or(0);
            for index in 0..chunks {
                send(&mut this.to_server, 2, &grpc::number_field(1, index))?;
                this.message().await?;
            }
            Ok(this)
        })
        .await
    }

    /// The same for synchronous callers.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_and_wait(server: SocketAddr, log_id: &str, applied: Option<&Position>) -> Result<Self, Failure> {
        RUNTIME.block_on(Self::open(server, log_id, applied))
    }

    /// Opens a stream as [`open`](Self::open) does, from wherever the control plane can be reached.
    ///
    /// # Errors
    /// If the control plane does not welcome it within `limit`.
    pub fn open_within(limit: Duration, server: SocketAddr, log_id: &str) -> Result<Self, Failure> {
        let caller = Caller {
            address: Ipv4Addr::UNSPECIFIED.into(),
            token: None,
        };
        let hello = hello(log_id, None);
        RUNTIME.block_on(within(limit, Self::begin(server, &caller, &hello)))
    }

    /// The next message; `None` when the stream has ended.
    ///
    /// # Errors
    /// If the stream broke, or no message comes within `limit`.
    pub fn wait_within(&mut self, limit: Duration) -> Result<Option<Said>, Failure> {
        RUNTIME.block_on(within(limit, self.next()))
    }

    /// The next message; `None` when the stream has ended.
    ///
    /// # Errors
    /// If the stream broke, or no message comes in 20 seconds.
    pub async fn next(&mut self) -> Result<Option<Said>, Failure> {
        let message = in_time(self.message()).await?;
        Ok(message.map(|message| match grpc::first_field(&message) {
            Some(3) => said_update(&message).map_or(Said::Other, Said::Update),
            Some(4) => {
                let head = grpc::find_bytes(&message, 4).and_then(|pong| grpc::find_number(pong, 2));
                Said::Pong(head.unwrap_or_default())
            }
            _ => Said::Other,
        }))
    }

    /// Sends a ping.
    ///
    /// # Errors
    /// If the stream has ended.
    pub fn ping(&mut self, id: u64) -> Result<(), Failure> {
        send(&mut self.to_server, 3, &grpc::number_field(1, id))
    }

    /// Reports that it has applied everything up to this entry.
    ///
    /// # Errors
    /// If the stream has ended.
    pub fn apply(&mut self, seq: u64) -> Result<(), Failure> {
        send(&mut self.to_server, 5, &grpc::number_field(1, seq))
    }

    /// The next message, for synchronous callers.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn wait(&mut self) -> Result<Option<Said>, Failure> {
        RUNTIME.block_on(self.next())
    }

    async fn message(&mut self) -> Result<Option<Bytes>, Failure> {
        self.messages
            .next()
            .await
            .map_err(Failure::of("reading a stream of revocations"))
    }
}

impl Default for Caller {
    /// A client on this machine, without a token.
    fn default() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST.into(),
            token: None,
        }
    }
}

async fn within<T>(limit: Duration, attempt: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let outcome = tokio::time::timeout(limit, attempt).await;
    outcome.map_err(|_| Failure::new(format!("nothing came in {} s", limit.as_secs_f32())))?
}

fn said_update(message: &[u8]) -> Option<Position> {
    let position = grpc::find_bytes(grpc::find_bytes(message, 3)?, 1)?;
    Some(Position {
        seq: grpc::find_number(position, 1)?,
        digest: grpc::find_bytes(position, 2)?.to_vec(),
    })
}

fn hello(log_id: &str, applied: Option<&Position>) -> Vec<u8> {
    let mut hello = grpc::bytes_field(1, log_id.as_bytes());
    if let Some(Position { seq, digest }) = applied {
        let position = [grpc::number_field(1, *seq), grpc::bytes_field(2, digest)].concat();
        hello.extend(grpc::bytes_field(2, &position));
    }
    hello.extend(grpc::bytes_field(3, b"e2e"));
    hello
}

/// Sends the `WatchRequest` message of this field number.
fn send(to_server: &mut SendStream<Bytes>, number: u8, content: &[u8]) -> Result<(), Failure> {
    let message = grpc::bytes_field(number, content);
    to_server
        .send_data(grpc_frame(&message).into(), false)
        .map_err(Failure::of("writing to a stream of revocations"))
}
