//! Listening with a bound on the connections.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::connections::{Connection, Connections, Evicted};
use crate::tls::{Cut, Peer};
use credence_runtime::client_limits::Network;

/// A listener with a bound on its connections.
#[derive(Debug)]
pub(crate) struct BoundedListener {
    listener: TcpListener,
    connections: Connections,
    /// How long what was sent may stay without an acknowledgement.
    unacknowledged: Duration,
}

/// A connection that holds its place until it is dropped.
#[derive(Debug)]
pub(crate) struct BoundedStream {
    transport: Transport,
    peer: Peer,
    greeting: Option<Greeting>,
    cut: Option<Cut>,
    /// Absent once the connection is accepted.
    evicted: Option<Evicted>,
    connection: Connection,
}

#[derive(Debug)]
enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

trait Io: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Io for T {}

/// The first bytes of a connection, for which its place is held only so long.
#[derive(Debug)]
struct Greeting {
    missing: usize,
    deadline: Pin<Box<Sleep>>,
}

// === impl BoundedListener ===

impl BoundedListener {
    pub(crate) async fn bind(
        address: SocketAddr,
        connections: Connections,
        unacknowledged: Duration,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self {
            listener,
            connections,
            unacknowledged,
        })
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next connection that finds a place; the others are closed. Errors of single connections are skipped; when the
    /// process is out of file descriptors, it waits for some to be closed.
    pub(crate) async fn accept(&self) -> BoundedStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let Some((connection, evicted)) = self.connections.admit(Network::of(address.ip())).await else {
                        continue;
                    };
                    // Only a delay is at stake.
                    let _ = stream.set_nodelay(true);
                    // So that a client which is gone without a word does not keep its place until the kernel gives up.
                    let unacknowledged = u32::try_from(self.unacknowledged.as_millis()).unwrap_or(u32::MAX);
                    if let Err(error) = rustix::net::sockopt::set_tcp_user_timeout(&stream, unacknowledged) {
                        tracing::debug!(%error, "a connection has no TCP_USER_TIMEOUT");
                    }
                    return BoundedStream {
                        peer: Peer::unknown(stream.peer_addr().ok()).over(connection.acceptance()),
                        transport: Transport::Plain(stream),
                        greeting: None,
                        cut: None,
                        evicted: Some(evicted),
                        connection,
                    };
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

// === impl BoundedStream ===

impl BoundedStream {
    /// Who is at the other end.
    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Has the peer begin TLS. `known` says who it is, from its address and its certificates, and when the connection
    /// has to end for that.
    pub(crate) async fn secured(
        self,
        acceptor: TlsAcceptor,
        known: impl FnOnce(Option<SocketAddr>, Option<Vec<CertificateDer<'static>>>) -> (Peer, Option<Cut>),
    ) -> io::Result<Self> {
        let Transport::Plain(stream) = self.transport else {
            return Ok(self);
        };
        let stream = acceptor.accept(stream).await?;
        let chain = stream.get_ref().1.peer_certificates();
        let chain = chain.map(|chain| chain.iter().cloned().map(CertificateDer::into_owned).collect());
        let (peer, cut) = known(self.peer.address, chain);
        let peer = peer.over(self.connection.acceptance());
        Ok(Self {
            transport: Transport::Tls(Box::new(stream)),
            peer,
            cut,
            ..self
        })
    }

    /// Says when the connection has to make room for another one, until it is [`put_back`](Self::put_back).
    pub(crate) fn take_eviction(&mut self) -> Option<Evicted> {
        self.evicted.take()
    }

    pub(crate) fn put_back(&mut self, evicted: Option<Evicted>) {
        self.evicted = evicted;
    }

    /// Ends the connection with an error unless its first `bytes` arrive within `limit`.
    pub(crate) fn expecting(self, bytes: usize, limit: Duration) -> Self {
        let greeting = Greeting {
            missing: bytes,
            deadline: Box::pin(tokio::time::sleep(limit)),
        };
        Self {
            greeting: Some(greeting),
            ..self
        }
    }

    /// An error where nothing can be done and the connection has to end in favour of another one: when it writes too, since
    /// HTTP/2 does not read while it cannot write.
    fn unless_evicted<T>(&mut self, done: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if done.is_pending()
            && let Some(evicted) = &mut self.evicted
            && let Poll::Ready(outcome) = Pin::new(evicted).poll(context)
        {
            self.evicted = None;
            if outcome.is_err() {
                let error = io::Error::new(
                    io::ErrorKind::ConnectionAborted,
                    "the connection made room for another one",
                );
                return Poll::Ready(Err(error));
            }
        }
        done
    }
}

impl Connected for BoundedStream {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = self.transport.io().poll_read(context, buffer);
        if let Some(cut) = &mut self.cut
            && read.is_pending()
            && Pin::new(cut).poll(context).is_ready()
        {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the peer's certificate no longer counts",
            )));
        }
        let read = self.unless_evicted(read, context);
        if let Some(greeting) = &mut self.greeting {
            greeting.missing = greeting.missing.saturating_sub(buffer.filled().len() - before);
            if greeting.missing == 0 {
                self.greeting = None;
            } else if read.is_pending() && greeting.deadline.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the connection said nothing in time",
                )));
            }
        }
        read
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.transport.io().poll_write(context, bytes);
        self.unless_evicted(written, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.transport.io().poll_flush(context);
        self.unless_evicted(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.transport.io().poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.transport.io().poll_write_vectored(context, slices);
        self.unless_evicted(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }
}

// === impl Transport ===

impl Transport {
    fn io(&mut self) -> Pin<&mut dyn Io> {
        match self {
            Self::Plain(stream) => Pin::new(stream),
            Self::Tls(stream) => Pin::new(stream),
        }
    }
}
