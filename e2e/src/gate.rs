//! A gate in front of a server: connections wait there until it is opened.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use crate::Failure;

/// A shut gate. It stays until the process ends.
#[derive(Debug)]
pub struct Gate {
    address: SocketAddr,
    beyond: Arc<(Mutex<Option<SocketAddr>>, Condvar)>,
}

impl Gate {
    /// A shut gate on a free port.
    ///
    /// # Errors
    /// If there is none.
    pub fn shut() -> Result<Self, Failure> {
        let failed = "opening a port for a gate";
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Failure::of(failed))?;
        let address = listener.local_addr().map_err(Failure::of(failed))?;
        let beyond: Arc<(Mutex<Option<SocketAddr>>, Condvar)> = Arc::default();
        let seen = Arc::clone(&beyond);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let seen = Arc::clone(&seen);
                // If a connection breaks, its two ends notice.
                thread::spawn(move || pass(connection, &seen));
            }
        });
        Ok(Self { address, beyond })
    }

    /// The port it is on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Lets all waiting and all new connections through to this server.
    pub fn open(&self, server: SocketAddr) {
        let (beyond, opened) = &*self.beyond;
        *beyond.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        opened.notify_all();
    }
}

fn pass(client: TcpStream, (beyond, opened): &(Mutex<Option<SocketAddr>>, Condvar)) -> io::Result<()> {
    let server = {
        let beyond = beyond.lock().unwrap_or_else(PoisonError::into_inner);
        let beyond = opened
            .wait_while(beyond, |beyond| beyond.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        beyond.ok_or(io::ErrorKind::NotConnected)?
    };
    let server = TcpStream::connect(server)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || io::copy(&mut from, &mut to));
    io::copy(&mut &server, &mut &client).map(|_| ())
}
