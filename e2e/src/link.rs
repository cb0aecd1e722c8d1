//! The network path from Envoy to the control plane. A test can cut it silently, slow it down, and restore it.
//!
//! Data sent over a cut path is delayed, not lost, as in TCP: it arrives once the path is restored, unless an end has
//! closed the connection. Neither end sees the cut: there is no reset and no end of stream.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;

/// A path without a target yet. It stays until the process ends.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    condition: Arc<Condition>,
}

#[derive(Debug, Default)]
struct Condition {
    now: Mutex<Now>,
    changed: Condvar,
    /// Both ends of every connection so far.
    ends: Mutex<Vec<TcpStream>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Now {
    /// The target of new connections.
    server: Option<SocketAddr>,
    is_cut: bool,
    delay: Duration,
}

// === impl Link ===

impl Link {
    /// A path that starts at a free port.
    ///
    /// # Errors
    /// If there is none.
    pub fn new() -> Result<Self, Failure> {
        let failed = "opening a port for a path";
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Failure::of(failed))?;
        let address = listener.local_addr().map_err(Failure::of(failed))?;
        let condition = Arc::new(Condition::default());
        let seen = Arc::clone(&condition);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let condition = Arc::clone(&seen);
                // If a connection breaks, its two ends notice.
                thread::spawn(move || condition.connect(connection));
            }
        });
        Ok(Self { address, condition })
    }

    /// The port where it starts.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sets the target of new connections. Existing ones stay.
    pub fn lead_to(&self, server: SocketAddr) {
        self.change(|now| now.server = Some(server));
    }

    /// From now on no data arrives, in either direction.
    pub fn cut(&self) {
        self.change(|now| now.is_cut = true);
    }

    /// All delayed data arrives, and new data too.
    pub fn mend(&self) {
        self.change(|now| now.is_cut = false);
    }

    /// Delays all data by this much in each direction.
    pub fn delay(&self, delay: Duration) {
        self.change(|now| now.delay = delay);
    }

    /// Closes every connection. New ones are accepted.
    pub fn reset(&self) {
        for end in self.condition.ends().drain(..) {
            // It may have ended before.
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    fn change(&self, change: impl FnOnce(&mut Now)) {
        change(&mut self.condition.lock());
        self.condition.changed.notify_all();
    }
}

// === impl Condition ===

impl Condition {
    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(self: Arc<Self>, client: TcpStream) -> io::Result<()> {
        let server = {
            let now = self
                .changed
                .wait_while(self.lock(), |now| now.server.is_none() || now.is_cut);
            now.unwrap_or_else(PoisonError::into_inner)
                .server
                .ok_or(io::ErrorKind::NotConnected)?
        };
        let server = TcpStream::connect(server)?;
        self.ends().extend([client.try_clone()?, server.try_clone()?]);
        for (from, to) in [(&client, &server), (&server, &client)] {
            from.set_nodelay(true)?;
            let (from, to) = (from.try_clone()?, to.try_clone()?);
            let (sender, receiver) = mpsc::channel();
            thread::spawn(move || take(from, &sender));
            let condition = Arc::clone(&self);
            thread::spawn(move || condition.deliver(&receiver, to));
        }
        Ok(())
    }

    fn deliver(&self, parts: &Receiver<(Instant, Vec<u8>)>, mut to: TcpStream) {
        for (sent, part) in parts {
            self.wait_until_arrival(sent);
            if to.write_all(&part).is_err() {
                break;
            }
        }
        self.wait_until_arrival(Instant::now());
        let _ = to.shutdown(Shutdown::Both);
    }

    /// Waits until data that was sent at this instant may arrive.
    fn wait_until_arrival(&self, sent: Instant) {
        let mut now = self.lock();
        loop {
            let left = (sent + now.delay).saturating_duration_since(Instant::now());
            now = if now.is_cut {
                self.changed.wait(now).unwrap_or_else(PoisonError::into_inner)
            } else if left.is_zero() {
                return;
            } else {
                let waited = self.changed.wait_timeout(now, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }
}

/// Reads data until the end of the stream.
fn take(mut from: TcpStream, parts: &Sender<(Instant, Vec<u8>)>) {
    let mut part = vec![0; PART_BYTES];
    while let Ok(length @ 1..) = from.read(&mut part) {
        let taken = part.iter().take(length).copied().collect();
        if parts.send((Instant::now(), taken)).is_err() {
            return;
        }
    }
}

const PART_BYTES: usize = 16 << 10;
