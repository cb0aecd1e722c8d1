//! The service behind Envoy: it answers every request with what it received.

use std::io::{self, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::message::Message;

/// A running service; stops listening when dropped.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
}

/// A request as the service saw it: the body of its answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Received {
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    /// The body; what is not UTF-8 in it became U+FFFD.
    pub body: String,
}

impl Upstream {
    /// Starts it on a free port.
    ///
    /// # Errors
    /// If there is none.
    pub fn start() -> Result<Self, Failure> {
        let failed = "starting the service behind Envoy";
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Failure::of(failed))?;
        let address = listener.local_addr().map_err(Failure::of(failed))?;
        let stopping = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stopping);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                if seen.load(Ordering::Relaxed) {
                    return;
                }
                // A connection that breaks off is Envoy's to report.
                thread::spawn(|| serve(connection));
            }
        });
        Ok(Self { address, stopping })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        // Wakes the listener up to see it.
        let _ = TcpStream::connect(self.address);
    }
}

impl Received {
    /// The values of every header of that name (in lower case).
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers
            .iter()
            .filter(move |(other, _)| other == name)
            .map(|(_, value)| value.as_str())
    }

    /// The value of the one header of that name; `None` if there is none, or more than one.
    pub fn header<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        let mut values = self.values(name);
        values.next().filter(|_| values.next().is_none())
    }

    /// Every header that claims to say who is asking, in whatever spelling.
    pub fn identity_headers(&self) -> Vec<&str> {
        let is_identity = |name: &str| name.replace('_', "-").starts_with("x-delegation-");
        self.headers
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| is_identity(name))
            .collect()
    }
}

fn serve(mut connection: TcpStream) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut reader = BufReader::new(connection.try_clone()?);
    while let Some(request) = Message::read_request(&mut reader)? {
        let mut start = request.start.split(' ').map(str::to_owned);
        let received = Received {
            method: start.next().unwrap_or_default(),
            target: start.next().unwrap_or_default(),
            headers: request
                .headers
                .into_iter()
                .map(|(name, value)| (name.to_lowercase(), value))
                .collect(),
            body: String::from_utf8_lossy(&request.body).into_owned(),
        };
        let body = serde_json::to_vec(&received)?;
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        connection.write_all(&[head.as_bytes(), &body].concat())?;
    }
    Ok(())
}
