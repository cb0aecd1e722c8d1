//! The path from Envoy to the control plane, which can be cut without a word, or made slow, and mended.
//!
//! What is sent over a cut path is not lost but late, as TCP has it: it arrives when the path is whole again, however old
//! it is by then, unless an end has given the connection up. Nobody is told of the cut: no reset, no end.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;

/// A path that leads nowhere yet. It stays until the process ends.
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
    /// Where new connections lead.
    server: Option<SocketAddr>,
    is_cut: bool,
    delay: Duration,
}

// === impl Link ===

impl Link {
    /// A path from a free port.
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
                // A connection that breaks off is for its two ends to notice.
                thread::spawn(move || condition.connect(connection));
            }
        });
        Ok(Self { address, condition })
    }

    /// The port where it begins.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Has it lead there. Connections that lead elsewhere stay.
    pub fn lead_to(&self, server: SocketAddr) {
        self.change(|now| now.server = Some(server));
    }

    /// From now on nothing arrives, in either direction.
    pub fn cut(&self) {
        self.change(|now| now.is_cut = true);
    }

    /// All that was sent meanwhile arrives, and what is sent from now on.
    pub fn mend(&self) {
        self.change(|now| now.is_cut = false);
    }

    /// Everything under way, and everything sent from now on, takes so long in each direction.
    pub fn delay(&self, delay: Duration) {
        self.change(|now| now.delay = delay);
    }

    /// Ends every connection. New ones lead on.
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

    /// Of what was sent at that instant.
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

/// Takes what is sent, until its end.
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
