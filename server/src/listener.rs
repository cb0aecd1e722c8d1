//! A listener with a limited number of connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use crate::connections::{Connection, Connections};
use crate::unusable::Unusable;
use credence_runtime::client_limits::Network;

/// A listener with a limited number of connections.
#[derive(Debug)]
pub struct BoundedListener {
    listener: TcpListener,
    /// Its address, with the port that the system chose if none was given.
    pub address: SocketAddr,
    connections: Connections,
    /// How long sent data may stay unacknowledged.
    unacknowledged: Duration,
}

// === impl BoundedListener ===

impl BoundedListener {
    /// Listens on an address for `what`, which errors name. A connection is closed if sent data stays unacknowledged for
    /// longer than `unacknowledged`.
    ///
    /// # Errors
    /// The system refuses the address.
    pub async fn bind(
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

    /// The next connection that gets a place; others are closed. Errors of single connections are skipped. If the
    /// process is out of file descriptors, it waits for connections to close.
    pub(crate) async fn accept(&self) -> (TcpStream, SocketAddr, Arc<Connection>) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let Some(connection) = self.connections.admit(Network::of(address.ip())).await else {
                        continue;
                    };
                    // Without it, only a delay is possible.
                    let _ = stream.set_nodelay(true);
                    // A client that disappears silently then loses its place before the kernel gives up.
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
