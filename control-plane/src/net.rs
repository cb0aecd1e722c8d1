//! Listening with a bound on the connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use crate::connections::{Connection, Connections};
use crate::unusable::Unusable;
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

// === impl BoundedListener ===

impl BoundedListener {
    pub(crate) async fn bind(
        address: SocketAddr,
        what: &str,
        connections: Connections,
        unacknowledged: Duration,
    ) -> Result<Self, Unusable> {
        let unusable = |error| {
            Unusable(format!(
                "cannot listen on {address} for {what}: {error}. Free the address or configure another one"
            ))
        };
        let listener = TcpListener::bind(address).await.map_err(unusable)?;
        Ok(Self {
            address: listener.local_addr().map_err(unusable)?,
            listener,
            connections,
            unacknowledged,
        })
    }

    /// The next connection that finds a place; the others are closed. Errors of single connections are skipped; when the
    /// process is out of file descriptors, it waits for some to be closed.
    pub(crate) async fn accept(&self) -> (TcpStream, SocketAddr, Arc<Connection>) {
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
                    return (stream, address, connection);
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}
