//! An HTTP client that sends exactly the given bytes, invalid ones too.

use std::io::{self, BufRead, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use url::Url;

use crate::message::Message;
use crate::names::ANSWER;
use crate::received::Received;
use crate::{AUDIENCE, Failure};

/// A connection that is kept open from request to request.
#[derive(Debug)]
pub struct Client {
    connection: BufReader<TcpStream>,
}

/// A request, byte for byte: nothing is escaped, sorted or made unique.
#[derive(Debug, Clone)]
pub struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    version: String,
    pub(crate) headers: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

/// A reply.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// In the order they came.
    pub headers: Vec<(String, String)>,
    /// The body's bytes.
    pub body: Vec<u8>,
    /// The trailers. Only HTTP/2 replies have them here.
    pub trailers: Vec<(String, String)>,
    /// From the first byte sent to the last received.
    pub latency: Duration,
}

// === impl Client ===

impl Client {
    /// Opens a connection.
    ///
    /// # Errors
    /// If no server listens there.
    pub fn connect(address: SocketAddr) -> Result<Self, Failure> {
        Self::connect_for(address, TIMEOUT)
    }

    /// The same, and waits no longer than this for anything.
    ///
    /// # Errors
    /// If no server listens there.
    pub fn connect_for(address: SocketAddr, timeout: Duration) -> Result<Self, Failure> {
        let connect = || {
            let stream = TcpStream::connect_timeout(&address, timeout)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            stream.set_nodelay(true)?;
            io::Result::Ok(stream)
        };
        let stream = connect().map_err(Failure::of(format_args!("connecting to {address}")))?;
        Ok(Self {
            connection: BufReader::new(stream),
        })
    }

    /// Sends these bytes, and nothing else.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn send_part(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.connection
            .get_mut()
            .write_all(bytes)
            .map_err(Failure::of("sending a part of a request"))
    }

    /// Sends a request and waits for the whole reply.
    ///
    /// # Errors
    /// If there is no whole reply within 20 seconds.
    pub fn send(&mut self, request: &Request) -> Result<Reply, Failure> {
        self.exchange(&request.encode(), &format!("{} {}", request.method, request.target))
    }

    /// Sends the last bytes of a request, and waits for the whole reply.
    ///
    /// # Errors
    /// If there is no whole reply within 20 seconds.
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<Reply, Failure> {
        self.exchange(bytes, "the rest of a request")
    }

    fn exchange(&mut self, bytes: &[u8], what: &str) -> Result<Reply, Failure> {
        let attempt = || what.to_owned();
        let begin = Instant::now();
        self.connection
            .get_mut()
            .write_all(bytes)
            .map_err(Failure::of(attempt()))?;
        Reply::read(&mut self.connection, begin).map_err(Failure::of(attempt()))
    }
}

const TIMEOUT: Duration = Duration::from_secs(20);

// === impl Request ===

impl Request {
    /// A request for the host of [`AUDIENCE`].
    pub fn new(method: &str, target: &str) -> Self {
        let host = AUDIENCE.trim_start_matches("https://");
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            version: "HTTP/1.1".to_owned(),
            headers: vec![(b"host".to_vec(), host.into())],
            body: Vec::new(),
        }
    }

    /// A GET.
    pub fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    /// A POST without a body.
    pub fn post(target: &str) -> Self {
        Self::new("POST", target).header("content-length", "0")
    }

    /// A gRPC call of this method, with a message of these bytes.
    pub fn grpc(method: &str, message: &[u8]) -> Self {
        Self::new("POST", method)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .trailing(grpc_frame(message))
    }

    /// Adds a header, whether or not there is one of that name.
    #[must_use]
    pub fn header(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.as_ref().to_vec(), value.as_ref().to_vec()));
        self
    }

    /// Removes all headers of that name.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(other, _)| other != name.as_bytes());
        self
    }

    /// Sets the protocol version, such as `HTTP/1.0`.
    #[must_use]
    pub fn version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self
    }

    /// Appends these bytes after the headers, without adding headers such as `content-length`.
    #[must_use]
    pub fn trailing(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// The bytes after the headers.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// With a JSON body.
    #[must_use]
    pub fn json(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        let length = self.body.len().to_string();
        self.header("content-type", "application/json")
            .header("content-length", length)
    }

    /// With the fields of a form, already encoded.
    #[must_use]
    pub fn form(mut self, fields: impl Into<Vec<u8>>) -> Self {
        self.body = fields.into();
        let length = self.body.len().to_string();
        self.header("content-type", "application/x-www-form-urlencoded")
            .header("content-length", length)
    }

    /// For the host of this URL instead.
    #[must_use]
    pub fn to(self, url: &Url) -> Self {
        self.without("host").header("host", url.authority())
    }

    /// Has the service answer with these bytes of HTTP/1.1, which need not end.
    #[must_use]
    pub fn answered_with(self, response: &str) -> Self {
        self.header(ANSWER, STANDARD.encode(response))
    }

    /// With a delegation.
    #[must_use]
    pub fn delegation(self, chain: impl AsRef<[u8]>) -> Self {
        self.header("delegation", chain)
    }

    /// With a proof.
    #[must_use]
    pub fn proof(self, proof: impl AsRef<[u8]>) -> Self {
        self.header("delegation-proof", proof)
    }

    /// The request's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} {}\r\n", self.method, self.target, self.version).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend([name, &b": "[..], value, b"\r\n"].concat());
        }
        bytes.extend(b"\r\n");
        bytes.extend(&self.body);
        bytes
    }
}

// === impl Reply ===

impl Reply {
    /// Reads the reply to a request that was sent at `begin`.
    pub(crate) fn read(reader: &mut impl BufRead, begin: Instant) -> io::Result<Self> {
        let message = Message::read_response(reader)?;
        let status = message.start.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok(Self {
            status: status.ok_or_else(|| io::Error::other(format!("no status in {:?}", message.start)))?,
            headers: message.headers,
            body: message.body,
            trailers: Vec::new(),
            latency: begin.elapsed(),
        })
    }

    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The `reason` of the filter's problem document; `None` if the body is not one.
    pub fn reason(&self) -> Option<String> {
        Some(self.problem()?.reason)
    }

    /// The `argument` that the filter's problem document blames.
    pub fn argument(&self) -> Option<String> {
        self.problem()?.argument
    }

    /// The `request_id` of the filter's problem document.
    pub fn request_id(&self) -> Option<String> {
        self.problem()?.request_id
    }

    /// What the service behind Envoy received; `None` if another program answered.
    pub fn received(&self) -> Option<Received> {
        let is_grpc = self.header("content-type") == Some("application/grpc");
        let message = self.body.get(GRPC_PREFIX_BYTES..).filter(|_| is_grpc);
        serde_json::from_slice(message.unwrap_or(&self.body))
            .ok()
            .filter(|_| self.status == 200)
    }

    /// The `grpc-status` and `grpc-message` of a reply without a body, which is how gRPC reports a call that did not
    /// reach a service; `None` for any other reply.
    pub fn grpc_refusal(&self) -> Option<(&str, &str)> {
        let is_alone = self.status == 200 && self.body.is_empty() && self.trailers.is_empty();
        let refusal = (self.header("grpc-status")?, self.header("grpc-message")?);
        is_alone.then_some(refusal)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn problem(&self) -> Option<Problem> {
        match self.header("content-type")? {
            "application/problem+json" => serde_json::from_slice(&self.body).ok(),
            "application/json" => {
                let answer: RpcAnswer = serde_json::from_slice(&self.body).ok()?;
                Some(answer.error.data)
            }
            _ => None,
        }
    }
}

/// A gRPC message frame: not compressed, the length, the message.
pub(crate) fn grpc_frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0], &length.to_be_bytes()[..], message].concat()
}

const GRPC_PREFIX_BYTES: usize = 5;

/// A client of MCP gets the problem in a JSON-RPC error.
#[derive(Deserialize)]
struct RpcAnswer {
    error: RpcError,
}

#[derive(Deserialize)]
struct RpcError {
    data: Problem,
}

#[derive(Deserialize)]
struct Problem {
    reason: String,
    argument: Option<String>,
    request_id: Option<String>,
}
