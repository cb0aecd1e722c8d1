//! HTTP/2 without encryption and by prior knowledge, to and behind Envoy.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::ext::Protocol;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use tokio::runtime::Runtime;

use crate::client::grpc_frame;
use crate::received::{Marks, Received};
use crate::{Failure, Reply, Request};

/// A connection for any number of concurrent requests.
#[derive(Debug)]
pub struct Http2 {
    sender: SendRequest<Bytes>,
}

/// A request that is under way.
#[derive(Debug)]
pub struct Exchange {
    response: ResponseFuture,
    body: SendStream<Bytes>,
    begin: Instant,
}

// === impl Http2 ===

impl Http2 {
    /// Opens a connection.
    ///
    /// # Errors
    /// If no server listens there, or it does not speak HTTP/2.
    pub fn connect(address: SocketAddr) -> Result<Self, Failure> {
        let attempt = || format!("connecting to {address} in HTTP/2");
        RUNTIME.block_on(in_time(async {
            let stream = tokio::net::TcpStream::connect(address)
                .await
                .map_err(Failure::of(attempt()))?;
            stream.set_nodelay(true).map_err(Failure::of(attempt()))?;
            let (sender, connection) = h2::client::handshake(stream).await.map_err(Failure::of(attempt()))?;
            // The requests report its end.
            tokio::spawn(connection);
            Ok(Self { sender })
        }))
    }

    /// Sends a request and waits for the whole reply.
    ///
    /// `host` becomes `:authority`. Connection headers, which HTTP/2 does not have, must not be there.
    ///
    /// # Errors
    /// If there is no whole reply within 20 seconds.
    pub fn send(&self, request: &Request) -> Result<Reply, Failure> {
        self.start(request)?.finish()
    }

    /// Whether the request can be written in HTTP/2: this client refuses some targets, hosts and headers.
    pub fn can_send(request: &Request) -> bool {
        head(request, None).is_ok()
    }

    /// Starts a request and does not wait.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn start(&self, request: &Request) -> Result<Exchange, Failure> {
        let is_all = request.body.is_empty();
        let mut exchange = self.begin(request, None, is_all)?;
        if !is_all {
            // The server may have answered after the headers and ended the stream. The reply tells.
            let _ = exchange.send_part(&request.body, true);
        }
        Ok(exchange)
    }

    /// Sends a request with trailers after the body, and waits for the whole reply.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_with_trailers(&self, request: &Request, trailers: &[(&str, &str)]) -> Result<Reply, Failure> {
        let mut exchange = self.begin(request, None, false)?;
        exchange.send_part(&request.body, false)?;
        exchange.send_trailers(trailers)?;
        exchange.finish()
    }

    /// Starts a request whose body may follow. The body of `request` is not sent.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn open(&self, request: &Request) -> Result<Exchange, Failure> {
        self.begin(request, None, false)
    }

    /// Starts an extended CONNECT (RFC 8441), with which HTTP/2 asks for an upgrade to `protocol`.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn connect_to(&self, request: &Request, protocol: &str) -> Result<Exchange, Failure> {
        self.begin(request, Some(protocol), false)
    }

    fn begin(&self, request: &Request, protocol: Option<&str>, is_all: bool) -> Result<Exchange, Failure> {
        let attempt = || format!("{} {} in HTTP/2", request.method, request.target);
        let head = head(request, protocol).map_err(Failure::of(attempt()))?;
        RUNTIME.block_on(in_time(async {
            let mut sender = self.sender.clone().ready().await.map_err(Failure::of(attempt()))?;
            let begin = Instant::now();
            let (response, body) = sender.send_request(head, is_all).map_err(Failure::of(attempt()))?;
            Ok(Exchange { response, body, begin })
        }))
    }
}

// === impl Exchange ===

impl Exchange {
    /// Sends a part of the body.
    ///
    /// # Errors
    /// If the request has ended.
    pub fn send_part(&mut self, part: &[u8], is_last: bool) -> Result<(), Failure> {
        let _guard = RUNTIME.enter();
        self.body
            .send_data(Bytes::copy_from_slice(part), is_last)
            .map_err(Failure::of("sending a part of a body in HTTP/2"))
    }

    /// Ends the request with trailers.
    ///
    /// # Errors
    /// If it has ended.
    pub fn send_trailers(&mut self, trailers: &[(&str, &str)]) -> Result<(), Failure> {
        let attempt = "sending trailers in HTTP/2";
        let mut map = HeaderMap::new();
        for (name, value) in trailers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(Failure::of(attempt))?;
            map.append(name, HeaderValue::from_str(value).map_err(Failure::of(attempt))?);
        }
        self.body.send_trailers(map).map_err(Failure::of(attempt))
    }

    /// Waits for the whole reply.
    ///
    /// # Errors
    /// If there is none within 20 seconds, or the other side resets the stream.
    pub fn finish(self) -> Result<Reply, Failure> {
        let Self { response, begin, .. } = self;
        let attempt = "waiting for a reply in HTTP/2";
        RUNTIME.block_on(in_time(async {
            let (head, body) = response.await.map_err(Failure::of(attempt))?.into_parts();
            let (body, trailers) = read(body).await.map_err(Failure::of(attempt))?;
            Ok(Reply {
                status: head.status.as_u16(),
                headers: pairs(&head.headers),
                body,
                trailers,
                latency: begin.elapsed(),
            })
        }))
    }
}

/// Serves a connection until it ends, as described in [`crate::upstream`].
pub(crate) fn serve(connection: TcpStream, marks: &Marks) -> io::Result<()> {
    connection.set_nonblocking(true)?;
    RUNTIME.block_on(async {
        let connection = tokio::net::TcpStream::from_std(connection)?;
        let mut connection = h2::server::Builder::new()
            .enable_connect_protocol()
            .handshake(connection)
            .await
            .map_err(io::Error::other)?;
        while let Some(request) = connection.accept().await {
            let (request, respond) = request.map_err(io::Error::other)?;
            let marks = marks.clone();
            // Envoy reports a broken stream.
            tokio::spawn(async move { answer(request, respond, &marks).await.is_ok() });
        }
        Ok(())
    })
}

async fn answer(
    request: http::Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    marks: &Marks,
) -> Result<(), h2::Error> {
    let (head, body) = request.into_parts();
    let (body, trailers) = read(body).await?;
    let mut headers = pairs(&head.headers);
    if let Some(authority) = head.uri.authority() {
        headers.insert(0, ("host".to_owned(), authority.to_string()));
    }
    let received = Received {
        method: head.method.to_string(),
        target: head.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        headers,
        trailers,
        body: String::from_utf8_lossy(&body).into_owned(),
    };
    marks.note(&received);
    let answer = serde_json::to_vec(&received).unwrap_or_default();
    let is_grpc = received.header("content-type") == Some("application/grpc");
    let mut response = Response::new(());
    let kind = if is_grpc {
        "application/grpc"
    } else {
        "application/json"
    };
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let mut stream = respond.send_response(response, false)?;
    if is_grpc {
        stream.send_data(grpc_frame(&answer).into(), false)?;
        let status = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
        stream.send_trailers([status].into_iter().collect())
    } else {
        stream.send_data(answer.into(), true)
    }
}

fn head(request: &Request, protocol: Option<&str>) -> Result<http::Request<()>, http::Error> {
    let mut authority = String::new();
    let mut head = http::Request::new(());
    for (name, value) in &request.headers {
        if name.eq_ignore_ascii_case(b"host") {
            authority = String::from_utf8_lossy(value).into_owned();
        } else {
            let name = HeaderName::from_bytes(name)?;
            head.headers_mut().append(name, HeaderValue::from_bytes(value)?);
        }
    }
    *head.method_mut() = request.method.parse()?;
    *head.uri_mut() = format!("http://{authority}{}", request.target).parse()?;
    if let Some(protocol) = protocol {
        head.extensions_mut().insert(Protocol::from(protocol));
    }
    Ok(head)
}

async fn read(mut body: RecvStream) -> Result<(Vec<u8>, Vec<(String, String)>), h2::Error> {
    let mut bytes = Vec::new();
    while let Some(part) = body.data().await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        bytes.extend(part);
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    Ok((bytes, pairs(&trailers)))
}

/// Bytes beyond ASCII become U+FFFD.
fn pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect()
}

pub(crate) async fn in_time<T>(attempt: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(TIMEOUT, attempt)
        .await
        .map_err(|_| Failure::new(format!("nothing came of an HTTP/2 request in {} s", TIMEOUT.as_secs())))?
}

const TIMEOUT: Duration = Duration::from_secs(20);

/// Connections make progress even if no thread waits for one.
pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    runtime.unwrap_or_else(|error| panic!("starting the threads for HTTP/2: {error}"))
});
