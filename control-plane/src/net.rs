//! Listening with a bound on the connections.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use crate::connections::{Connection, Connections};
use crate::tls::Peer;
use credence_runtime::client_limits::Network;

/// A listener with a bound on its connections.
#[derive(Debug)]
pub(crate) struct BoundedListener {
    listener: TcpListener,
    /// Where it listens: the port that the system chose, if that was left to it.
    pub(crate) address: SocketAddr,
    connections: Connections,
    /// How long what was sent may stay without an acknowledgement.
    unacknowledged: Duration,
}

/// Resolves once a token is cancelled.
type Signal = Pin<Box<WaitForCancellationFutureOwned>>;

/// A connection that holds its place until it is dropped.
#[derive(Debug)]
pub(crate) struct BoundedStream {
    transport: Either<TcpStream, Box<TlsStream<TcpStream>>>,
    peer: Peer,
    greeting: Option<Greeting>,
    cut: Option<Signal>,
    evicted: Signal,
    connection: Arc<Connection>,
}

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
            address: listener.local_addr()?,
            listener,
            connections,
            unacknowledged,
        })
    }

    /// The next connection that finds a place; the others are closed. Errors of single connections are skipped; when the
    /// process is out of file descriptors, it waits for some to be closed.
    pub(crate) async fn accept(&self) -> BoundedStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let Some(connection) = self.connections.admit(Network::of(address.ip())).await else {
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
                        peer: Peer::unknown(stream.peer_addr().ok()).over(&connection),
                        transport: Either::Left(stream),
                        greeting: None,
                        cut: None,
                        evicted: Box::pin(connection.evicted().cancelled_owned()),
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
        known: impl FnOnce(Option<SocketAddr>, Option<Vec<CertificateDer<'static>>>) -> (Peer, Option<CancellationToken>),
    ) -> io::Result<Self> {
        let Either::Left(stream) = self.transport else {
            return Ok(self);
        };
        let stream = acceptor.accept(stream).await?;
        let chain = stream.get_ref().1.peer_certificates();
        let chain = chain.map(|chain| chain.iter().cloned().map(CertificateDer::into_owned).collect());
        let (peer, cut) = known(self.peer.address, chain);
        let peer = peer.over(&self.connection);
        Ok(Self {
            transport: Either::Right(Box::new(stream)),
            peer,
            cut: cut.map(|cut| Box::pin(cut.cancelled_owned())),
            ..self
        })
    }

    /// Cancelled once the connection has to make room for another one.
    pub(crate) fn evicted(&self) -> CancellationToken {
        self.connection.evicted()
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
        if done.is_pending() && self.evicted.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the connection made room for another one",
            )));
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
        let read = Pin::new(&mut self.transport).poll_read(context, buffer);
        if let Some(cut) = &mut self.cut
            && read.is_pending()
            && cut.as_mut().poll(context).is_ready()
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
        let written = Pin::new(&mut self.transport).poll_write(context, bytes);
        self.unless_evicted(written, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.transport).poll_flush(context);
        self.unless_evicted(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.transport).poll_write_vectored(context, slices);
        self.unless_evicted(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }
}
