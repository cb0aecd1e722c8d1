//! Listening with a bound on the connections.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::shares::{Share, Shares};
use crate::throttle::Throttle;
use crate::tls::{Cut, Peer};

/// A listener with at most so many connections; further ones wait in the kernel's backlog.
#[derive(Debug)]
pub(crate) struct BoundedListener {
    listener: TcpListener,
    places: Arc<Semaphore>,
    shares: Shares,
    max_connections: usize,
    turned_away: Throttle,
}

/// A connection that holds its place until it is dropped.
#[derive(Debug)]
pub(crate) struct BoundedStream {
    transport: Transport,
    peer: Peer,
    greeting: Option<Greeting>,
    cut: Option<Cut>,
    _place: OwnedSemaphorePermit,
    _share: Share,
}

#[derive(Debug)]
enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// The first bytes of a connection, for which its place is held only so long.
#[derive(Debug)]
struct Greeting {
    missing: usize,
    deadline: Pin<Box<Sleep>>,
}

// === impl BoundedListener ===

impl BoundedListener {
    pub(crate) async fn bind(address: SocketAddr, max_connections: usize) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self {
            listener,
            places: Arc::new(Semaphore::new(max_connections)),
            shares: Shares::half_of(max_connections),
            turned_away: Throttle::default(),
            max_connections,
        })
    }

    pub(crate) fn max_connections(&self) -> usize {
        self.max_connections
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next connection; those of a client that has half of the places already are closed. Errors of single connections are skipped; when the process is out of file descriptors,
    /// it waits for some to be closed.
    pub(crate) async fn accept(&self) -> BoundedStream {
        loop {
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else {
                // The semaphore is never closed.
                std::future::pending::<()>().await;
                continue;
            };
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let Some(share) = self.shares.take(Some(address.ip())) else {
                        if let Some(closed) = self.turned_away.count(Instant::now()) {
                            tracing::warn!(
                                closed,
                                last = %address,
                                "connections were closed since the last such line, because one address has half of the \
                                 port's connections already; find out what it is at"
                            );
                        }
                        continue;
                    };
                    // Only a delay is at stake.
                    let _ = stream.set_nodelay(true);
                    return BoundedStream {
                        peer: Peer::unknown(stream.peer_addr().ok()),
                        transport: Transport::Plain(stream),
                        greeting: None,
                        cut: None,
                        _place: place,
                        _share: share,
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
        Ok(Self {
            transport: Transport::Tls(Box::new(stream)),
            peer,
            cut,
            ..self
        })
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
        let read = match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Transport::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        if let Some(cut) = &mut self.cut
            && read.is_pending()
            && Pin::new(cut).poll(context).is_ready()
        {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the peer's certificate no longer counts",
            )));
        }
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
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Transport::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(context),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Transport::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
