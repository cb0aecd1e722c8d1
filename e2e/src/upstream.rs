//! The service behind Envoy: it answers every request with what it received, in HTTP/1.1 or HTTP/2, whichever it is
//! spoken to in.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde::{Deserialize, Serialize};

use crate::message::Message;
use crate::{Failure, http2};

/// A running service; stops listening when dropped.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    marks: Marks,
}

/// The requests that have arrived at a service with a header named [`MARK`], by its value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Marks(Arc<Mutex<BTreeMap<String, Received>>>);

/// A header by which a test knows its request again at the service, answered or not.
pub const MARK: &str = "x-mark";

/// A request as the service saw it: the body of its answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Received {
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    /// What followed the body, likewise.
    #[serde(default)]
    pub trailers: Vec<(String, String)>,
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
        let marks = Marks::default();
        let found = marks.clone();
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                if seen.load(Ordering::Relaxed) {
                    return;
                }
                // A connection that breaks off is Envoy's to report.
                let marks = found.clone();
                thread::spawn(move || serve(connection, &marks));
            }
        });
        Ok(Self {
            address,
            stopping,
            marks,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The request with this [`MARK`], if it has arrived; the last if there were several.
    pub fn seen(&self, mark: &str) -> Option<Received> {
        self.marks.find(mark)
    }

    /// Whether a request with this [`MARK`] has arrived.
    pub fn has_seen(&self, mark: &str) -> bool {
        self.seen(mark).is_some()
    }
}

impl Marks {
    /// Remembers the request, if it has a mark.
    pub(crate) fn note(&self, received: &Received) {
        if let Some(mark) = received.header(MARK) {
            let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            marks.insert(mark.to_owned(), received.clone());
        }
    }

    fn find(&self, mark: &str) -> Option<Received> {
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marks.get(mark).cloned()
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
        let fold = |name: &str| name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let is_identity = |name: &str| fold(name).starts_with("x-delegation-");
        self.headers
            .iter()
            .chain(&self.trailers)
            .map(|(name, _)| name.as_str())
            .filter(|name| is_identity(name))
            .collect()
    }
}

fn serve(mut connection: TcpStream, marks: &Marks) -> io::Result<()> {
    connection.set_nodelay(true)?;
    if speaks_http2(&connection)? {
        return http2::serve(connection, marks);
    }
    let mut reader = BufReader::new(connection.try_clone()?);
    while let Some(request) = Message::read_request(&mut reader)? {
        let mut start = request.start.split(' ').map(str::to_owned);
        let received = Received {
            method: start.next().unwrap_or_default(),
            target: start.next().unwrap_or_default(),
            headers: in_lower_case(request.headers),
            trailers: in_lower_case(request.trailers),
            body: String::from_utf8_lossy(&request.body).into_owned(),
        };
        marks.note(&received);
        let body = serde_json::to_vec(&received)?;
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        connection.write_all(&[head.as_bytes(), &body].concat())?;
    }
    Ok(())
}

fn in_lower_case(fields: Vec<(String, String)>) -> Vec<(String, String)> {
    fields
        .into_iter()
        .map(|(name, value)| (name.to_lowercase(), value))
        .collect()
}

/// Whether the connection begins with HTTP/2's preface (RFC 9113, section 3.4), which no HTTP/1.1 request does and which
/// Envoy sends in one piece.
fn speaks_http2(connection: &TcpStream) -> io::Result<bool> {
    let mut first = [0; PREFACE.len()];
    let length = connection.peek(&mut first)?;
    Ok(length == first.len() && first == *PREFACE)
}

const PREFACE: &[u8; 4] = b"PRI ";
