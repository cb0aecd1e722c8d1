//! Requests answered before their bodies have been read.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::harness::{Place, Server, TOKEN};

/// A client that sends the whole request before it reads, as simple ones do.
struct Client(TcpStream);

// === impl Client ===

impl Client {
    /// With a small send buffer, so that it cannot finish sending before the server has read.
    async fn connect(server: &Server) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(64 << 10).unwrap();
        Self(socket.connect(server.running.http_address()).await.unwrap())
    }

    async fn send(&mut self, text: &str) {
        let sent = tokio::time::timeout(PATIENCE, self.0.write_all(text.as_bytes()));
        sent.await.expect("the server does not read").unwrap();
    }

    /// Waits until there is an answer, without reading it.
    async fn wait_for_answer(&mut self) {
        let mut first = [0];
        let answered = tokio::time::timeout(PATIENCE, self.0.peek(&mut first));
        assert_eq!(answered.await.expect("there is no answer").unwrap(), 1);
    }

    /// The status line and headers of the next answer, in lower case; skips its body.
    async fn answer(&mut self) -> String {
        let reading = async {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(self.0.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap().to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
            self.0.read_exact(&mut body).await.unwrap();
            head
        };
        tokio::time::timeout(PATIENCE, reading)
            .await
            .expect("there is no answer")
    }
}

#[tokio::test]
async fn a_client_that_sends_too_much_reads_the_refusal_and_can_go_on() {
    let place = Place::new();
    let server = place.start().await;
    let operator = format!("authorization: Bearer {TOKEN}\r\n");
    let chunked = format!("{operator}transfer-encoding: chunked\r\n");
    for (request, headers, status) in [
        ("POST /v1/revocations", operator.as_str(), "413"),
        ("POST /v1/delegations/status", &operator, "413"),
        ("POST /scim/v2/Users", &operator, "403"),
        ("POST /v1/revocations/statements", "", "413"),
        ("POST /v1/revocations", "", "401"),
        ("PUT /v1/revocations", &operator, "405"),
        ("POST /nowhere", &operator, "404"),
        ("GET /v1/log", "", "200"),
        ("POST /v1/revocations", &chunked, "413"),
    ] {
        let mut client = Client::connect(&server).await;
        let (begin, end, length) = if headers.contains("chunked") {
            (format!("{LARGE:x}\r\n"), "\r\n0\r\n\r\n", String::new())
        } else {
            (String::new(), "", format!("content-length: {LARGE}\r\n"))
        };
        client
            .send(&format!(
                "{request} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{headers}{length}\r\n{begin}"
            ))
            .await;
        client.send(&" ".repeat(MORE_THAN_ANY_BODY)).await;
        client.wait_for_answer().await;
        client.send(&" ".repeat(LARGE - MORE_THAN_ANY_BODY)).await;
        client.send(end).await;
        let answer = client.answer().await;
        assert!(
            answer.starts_with(&format!("http/1.1 {status} ")),
            "{request} {headers}: {answer}"
        );
        client.send("GET /v1/log HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!(
            client.answer().await.starts_with("http/1.1 200 "),
            "{request} {headers}"
        );
    }
}

#[tokio::test]
async fn a_client_that_asks_before_sending_a_body_is_refused_without_it() {
    let place = Place::new();
    let server = place.start().await;
    let mut client = Client::connect(&server).await;
    client
        .send(&format!(
            "POST /v1/revocations HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {LARGE}\r\n\r\n"
        ))
        .await;
    let answer = client.answer().await;
    assert!(answer.starts_with("http/1.1 401 "), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
}

#[tokio::test]
async fn a_body_without_an_end_is_cut_off() {
    let place = Place::new();
    let server = place.start().await;
    let kind = format!("content-length: {}", u64::MAX / 2);
    for (kind, announced) in [(kind.as_str(), true), ("transfer-encoding: chunked", false)] {
        let mut client = Client::connect(&server).await;
        client
            .send(&format!("POST /v1/revocations HTTP/1.1\r\nhost: x\r\n{kind}\r\n\r\n"))
            .await;
        let answer = client.answer().await;
        assert!(answer.starts_with("http/1.1 401 "), "{answer}");
        assert_eq!(answer.contains("\r\nconnection: close\r\n"), announced, "{answer}");
        // One chunk of 64 KiB, or as many bytes of a body that is not chunked.
        let piece = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
        let mut sent = 0;
        let sending = async {
            while client.0.write_all(piece.as_bytes()).await.is_ok() {
                sent += piece.len()
            }
        };
        tokio::time::timeout(PATIENCE, sending)
            .await
            .expect("it was not cut off");
        // The server drops 4 MiB; the kernel may have buffered some more.
        assert!((4 << 20..32 << 20).contains(&sent), "{sent}");
    }
}

#[tokio::test]
async fn a_body_that_does_not_come_is_waited_for_as_long_as_a_request_may_take() {
    let place = Place::new();
    let server = place
        .start_with(|config| config.limits.request_timeout = Duration::from_millis(200))
        .await;
    let mut client = Client::connect(&server).await;
    client
        .send("POST /v1/revocations HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n ")
        .await;
    let answer = client.answer().await;
    assert!(answer.starts_with("http/1.1 401 "), "{answer}");
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(PATIENCE, client.0.read_to_end(&mut rest)).await;
    closed.expect("the connection was kept").unwrap();
    assert!(rest.is_empty(), "{rest:?}");
}

/// A body that is too large for every route, but is still read to its end.
const LARGE: usize = 2 << 20;
/// More than the largest limit, that of a batch of status checks. The server counts received bytes, not the announced
/// length.
const MORE_THAN_ANY_BODY: usize = (1 << 20) + 1;
const PATIENCE: Duration = Duration::from_secs(20);
