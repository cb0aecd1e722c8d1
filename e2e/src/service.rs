//! A server of this process, on a free port of this machine.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::Failure;

/// A running server; stops listening when dropped.
#[derive(Debug)]
pub(crate) struct Service {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
}

impl Service {
    /// Serves each connection on a thread of its own.
    pub(crate) fn start(name: &str, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Result<Self, Failure> {
        let failed = || Failure::of(format!("starting {name}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed())?;
        let address = listener.local_addr().map_err(failed())?;
        let stopping = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stopping);
        let serve = Arc::new(serve);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                if seen.load(Ordering::Relaxed) {
                    return;
                }
                let serve = Arc::clone(&serve);
                thread::spawn(move || serve(connection));
            }
        });
        Ok(Self { address, stopping })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        // Wakes the listener, which then sees the flag.
        let _ = TcpStream::connect(self.address);
    }
}
