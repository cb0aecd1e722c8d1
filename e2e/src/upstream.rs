//! The service behind Envoy. It answers every request with what it received, in HTTP/1.1 or HTTP/2, whichever the
//! client uses; over HTTP/1.1, with the answer in the request's header [`ANSWER`] if there is one.

use std::io::{self, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::message::Message;
use crate::names::ANSWER;
use crate::received::{Marks, Received};
use crate::service::Service;
use crate::{Failure, http2};

/// A running service; stops listening when dropped.
#[derive(Debug)]
pub struct Upstream {
    service: Service,
    marks: Marks,
}

impl Upstream {
    /// Starts it on a free port.
    ///
    /// # Errors
    /// If there is none.
    pub fn start() -> Result<Self, Failure> {
        let marks = Marks::default();
        let found = marks.clone();
        let service = Service::start("the service behind Envoy", move |connection| {
            // Envoy reports a broken connection.
            let _ = serve(connection, &found);
        })?;
        Ok(Self { service, marks })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.service.address()
    }

    /// The request with this [`MARK`](crate::received::MARK), if it has arrived; the last if there were several.
    pub fn seen(&self, mark: &str) -> Option<Received> {
        self.marks.find(mark)
    }

    /// Whether a request with this [`MARK`](crate::received::MARK) has arrived.
    pub fn has_seen(&self, mark: &str) -> bool {
        self.seen(mark).is_some()
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
        if let Some(answer) = received.header(ANSWER) {
            let answer = STANDARD.decode(answer).map_err(io::Error::other)?;
            connection.write_all(&answer)?;
            continue;
        }
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

/// Whether the connection starts with HTTP/2's preface (RFC 9113, section 3.4). No HTTP/1.1 request does, and Envoy
/// sends it in one piece.
fn speaks_http2(connection: &TcpStream) -> io::Result<bool> {
    let mut first = [0; PREFACE.len()];
    let length = connection.peek(&mut first)?;
    Ok(length == first.len() && first == *PREFACE)
}

const PREFACE: &[u8; 4] = b"PRI ";
