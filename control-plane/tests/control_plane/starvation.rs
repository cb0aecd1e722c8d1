//! For each limit that clients share: one credential, from two addresses, uses all that it can get. Another credential
//! and a probe are still served.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use credence_control_plane::{Config, PortTls, Role, TokenSettings};
use credence_wire::v1;
use credence_wire::v1::watch_response::Message as WatchAnswer;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tonic::Code;
use tonic::transport::Channel;

use super::certificates::{Authority, Certificate};
use super::harness::{Place, Reporter, Server, TOKEN, Watcher, raise};

/// The addresses that use all they can get.
const GREEDY: [[u8; 4]; 2] = [[127, 0, 0, 2], [127, 0, 0, 3]];
/// The address of another client.
const ELSEWHERE: [u8; 4] = [127, 0, 0, 4];
/// The size of the limit under test.
const PLACES: usize = 8;

async fn start(place: &Place, change: impl FnOnce(&mut Config)) -> Server {
    place
        .start_with(|config| {
            config.settings.access.tokens = ["weak", "other"].map(everything).to_vec();
            config.probe_address = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
            change(config);
        })
        .await
}

fn everything(name: &str) -> TokenSettings {
    TokenSettings {
        name: name.to_owned(),
        sha256: Sha256::digest(name).into(),
        roles: vec![
            Role::Filter,
            Role::Watcher,
            Role::Auditor,
            Role::Reporter,
            Role::Revoker,
        ],
        issuers: None,
        expires: None,
    }
}

#[tokio::test]
async fn watch_streams() {
    let place = Place::new();
    let server = start(&place, |config| config.log.max_subscribers = PLACES).await;
    let mut held = Vec::new();
    for address in GREEDY {
        let channel = channel_from(&server, address).await;
        for _ in 0..PLACES {
            held.extend(watch(&server, channel.clone(), "weak").await);
        }
    }
    assert!(!held.is_empty());
    let channel = channel_from(&server, ELSEWHERE).await;
    assert!(
        watch(&server, channel, "other").await.is_some(),
        "{} are taken",
        held.len()
    );
    assert_probed(&server).await;
}

/// The client's flow control windows for answers stay closed.
#[tokio::test]
async fn watch_streams_of_a_client_that_reads_nothing() {
    let place = Place::new();
    let server = start(&place, |config| config.log.max_subscribers = PLACES).await;
    let watch_url = format!(
        "http://{}/credence.v1.RevocationService/Watch",
        server.running.grpc_address()
    );
    let mut held = Vec::new();
    for address in GREEDY {
        let stream = connect(server.running.grpc_address(), address).await.unwrap();
        let mut client = h2::client::Builder::new();
        let handshake = client.initial_window_size(0).handshake::<_, Bytes>(stream);
        let (mut client, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        for _ in 0..PLACES {
            let request = http::Request::post(&watch_url)
                .header("content-type", "application/grpc")
                .header("authorization", "Bearer weak");
            held.push(client.send_request(request.body(()).unwrap(), false).unwrap());
        }
    }
    server
        .wait_for(&format!(
            "credence_shared_limit_held{{limit=\"watch_streams\"}} {}",
            PLACES / 2
        ))
        .await;
    let channel = channel_from(&server, ELSEWHERE).await;
    assert!(watch(&server, channel, "other").await.is_some());
    assert_probed(&server).await;
}

#[tokio::test]
async fn audit_sources() {
    let place = Place::new();
    let server = start(&place, |config| config.evidence.max_sources = PLACES).await;
    let mut held = Vec::new();
    for address in GREEDY {
        let channel = channel_from(&server, address).await;
        for _ in 0..PLACES {
            held.extend(report(&server, channel.clone(), "weak").await);
        }
    }
    assert!(!held.is_empty());
    let channel = channel_from(&server, ELSEWHERE).await;
    assert!(
        report(&server, channel, "other").await.is_some(),
        "{} are taken",
        held.len()
    );
    assert_probed(&server).await;
}

#[tokio::test]
async fn audit_sources_over_http() {
    let place = Place::new();
    let server = start(&place, |config| config.evidence.max_sources = PLACES).await;
    for address in GREEDY {
        for _ in 0..PLACES {
            begin_source(&server, address, "weak").await;
        }
    }
    assert_eq!(begin_source(&server, ELSEWHERE, "other").await, 201);
    assert_probed(&server).await;
}

#[tokio::test]
async fn event_streams() {
    follows(
        |config| config.limits.max_http_subscribers = PLACES,
        "/v1/revocations/stream",
    )
    .await;
}

#[tokio::test]
async fn evidence_streams() {
    follows(
        |config| config.limits.max_audit_subscribers = PLACES,
        "/v1/audit/stream",
    )
    .await;
}

async fn follows(change: impl FnOnce(&mut Config), path: &str) {
    let place = Place::new();
    let server = start(&place, change).await;
    let mut held = Vec::new();
    for address in GREEDY {
        for _ in 0..PLACES {
            held.push(get(&server, address, "weak", path).await);
        }
    }
    let (status, _other) = get(&server, ELSEWHERE, "other", path).await;
    assert_eq!(status, 200);
    assert_probed(&server).await;
}

#[tokio::test]
async fn http_connections_of_strangers() {
    let place = Place::new();
    let server = start(&place, |config| config.limits.max_connections = PLACES).await;
    let mut held = Vec::new();
    for address in GREEDY {
        for _ in 0..PLACES {
            held.extend(half_a_request(&server, address, "").await);
        }
    }
    let (status, _) = get(&server, ELSEWHERE, "other", "/v1/audit/events").await;
    assert_eq!(status, 200);
    assert_probed(&server).await;
}

#[tokio::test]
async fn http_connections_of_one_credential() {
    let place = Place::new();
    let server = start(&place, |config| config.limits.max_connections = PLACES).await;
    let mut held = Vec::new();
    for address in GREEDY {
        for _ in 0..PLACES {
            held.push(get(&server, address, "weak", "/v1/audit/events").await);
        }
    }
    let (status, _) = get(&server, ELSEWHERE, "other", "/v1/audit/events").await;
    assert_eq!(status, 200);
    assert_probed(&server).await;
}

#[tokio::test]
async fn grpc_connections() {
    let place = Place::new();
    let server = start(&place, |config| config.limits.max_connections = PLACES).await;
    let mut held = Vec::new();
    for address in GREEDY {
        for _ in 0..PLACES {
            if let Some(mut stream) = connect(server.running.grpc_address(), address).await {
                let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
                held.push(stream);
            }
        }
    }
    let channel = channel_from(&server, ELSEWHERE).await;
    assert!(watch(&server, channel, "other").await.is_some());
    assert_probed(&server).await;
}

/// While it has pongs to write, the control plane does not read from the connection.
#[tokio::test]
async fn grpc_connections_that_read_nothing() {
    let place = Place::new();
    let server = start(&place, |config| config.limits.max_connections = PLACES / 2).await;
    let mut held = Vec::new();
    for last in 10..10 + PLACES as u8 / 2 {
        held.push(stall(&server, [127, 0, 0, last]).await);
    }
    let channel = channel_from(&server, ELSEWHERE).await;
    assert!(watch(&server, channel, "other").await.is_some());
    let evicted = held.iter().filter(|stream| stream.take_error().unwrap().is_some());
    assert_ne!(evicted.count(), 0);
    assert_probed(&server).await;
}

#[tokio::test]
async fn grpc_connections_of_a_token_that_was_withdrawn() {
    let place = Place::new();
    let mut settings = None;
    let server = start(&place, |config| {
        config.limits.max_connections = PLACES;
        config.settings.limits.credential_share_percent = 100;
        settings = Some(config.settings.clone());
    })
    .await;
    let mut held = Vec::new();
    for last in 10..10 + PLACES as u8 {
        let channel = channel_from(&server, [127, 0, 0, last]).await;
        held.push(watch(&server, channel, "weak").await.unwrap());
    }
    let mut settings = settings.unwrap();
    settings.access.tokens.retain(|token| token.name != "weak");
    server.running.reload(settings).await.unwrap();
    for watcher in &mut held {
        assert_eq!(watcher.refusal().await.0, Code::Unauthenticated);
    }
    // Their connections are open and answer pings.
    let channel = channel_from(&server, ELSEWHERE).await;
    assert!(watch(&server, channel, "other").await.is_some());
    assert_probed(&server).await;
}

/// A connection on which an HTTP/2 client pings without reading the pongs, until neither side can send.
async fn stall(server: &Server, address: [u8; 4]) -> TcpStream {
    let mut stream = connect(server.running.grpc_address(), address).await.unwrap();
    let preface_and_settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(preface_and_settings).await.unwrap();
    let pings = b"\0\0\x08\x06\0\0\0\0\0any data".repeat(4096);
    while let Ok(written) = tokio::time::timeout(Duration::from_millis(500), stream.write_all(&pings)).await {
        written.unwrap();
    }
    stream
}

#[tokio::test]
async fn http_connections_of_more_strangers_than_there_are_places() {
    let place = Place::new();
    let server = start(&place, |config| config.limits.max_connections = PLACES).await;
    let mut held = Vec::new();
    for last in 10..10 + 3 * PLACES as u8 {
        held.extend(half_a_request(&server, [127, 0, 0, last], "").await);
    }
    let (status, _) = get(&server, ELSEWHERE, "other", "/v1/audit/events").await;
    assert_eq!(status, 200);
    assert_probed(&server).await;
}

#[tokio::test]
async fn a_connection_with_a_credential_makes_no_room_for_strangers() {
    let place = Place::new();
    let server = start(&place, |config| config.limits.max_connections = PLACES).await;
    let (status, mut proven) = get(&server, ELSEWHERE, "other", "/v1/audit/events").await;
    assert_eq!(status, 200);
    let mut held = Vec::new();
    for last in 10..10 + 3 * PLACES as u8 {
        held.extend(half_a_request(&server, [127, 0, 0, last], "").await);
    }
    let stream = proven.as_mut().unwrap();
    let again = b"GET /v1/audit/events?limit=0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer other\r\n\r\n";
    stream.write_all(again).await.unwrap();
    let mut answers = Vec::new();
    let read = async {
        // The second answer follows the first answer's body: the request has an invalid limit.
        while !String::from_utf8_lossy(&answers).contains("HTTP/1.1 400") {
            assert!(stream.read_buf(&mut answers).await.unwrap() > 0, "it was closed");
        }
    };
    in_time(read).await.unwrap();
}

#[tokio::test]
async fn a_stranger_who_sends_no_whole_request_in_time_is_closed() {
    let place = Place::new();
    let server = start(&place, |config| config.timeouts.hello = Duration::from_millis(300)).await;
    let mut stream = half_a_request(&server, ELSEWHERE, "").await.unwrap();
    let mut rest = Vec::new();
    assert!(in_time(stream.read_to_end(&mut rest)).await.is_some());
    assert_probed(&server).await;
}

#[tokio::test]
async fn request_bodies() {
    const UNIT: usize = 1024;
    unfinished_bodies(
        "request_bodies",
        |config| config.limits.body_bytes = PLACES * UNIT,
        UNIT,
    )
    .await;
}

/// Tiles are public. These clients ask for the largest ones, and read nothing.
#[tokio::test]
async fn answers() {
    const TILE: &str = "/ledger/tile/entries/000";
    let place = Place::new();
    let server = start(&place, |config| config.limits.answer_bytes = PLACES * BUNDLE_BYTES).await;
    fill_bundle(&server).await;
    let mut held = Vec::new();
    for (address, places) in GREEDY.into_iter().zip([PLACES / 4, PLACES / 2]) {
        for nth in 0..PLACES {
            let (status, stream) = get(&server, address, "none", TILE).await;
            assert_eq!(status, if nth < PLACES / 4 { 200 } else { 503 }, "{address:?} {nth}");
            held.push(stream);
        }
        let bytes = held_answers(&server).await << 10;
        assert!(
            (places * (BUNDLE_BYTES - (256 << 10))..=places * BUNDLE_BYTES).contains(&bytes),
            "{bytes}"
        );
        if address == GREEDY[0] {
            let (status, other) = get(&server, ELSEWHERE, "none", TILE).await;
            assert_eq!(status, 200, "another stranger reads");
            let mut bundle = Vec::new();
            let mut stream = other.unwrap();
            while bundle.len() < BUNDLE_BYTES - (256 << 10) {
                assert!(in_time(stream.read_buf(&mut bundle)).await.unwrap().unwrap() > 0);
            }
        }
    }
    // More than fits into a page that counts as small.
    let (status, _) = get(&server, ELSEWHERE, "other", "/v1/audit/events?limit=200").await;
    assert_eq!(status, 200);
    assert_probed(&server).await;
    drop(held);
    server.wait_for("credence_shared_limit_held{limit=\"answers\"} 0").await;
}

/// The bytes of a whole bundle with entries of about the largest size.
const BUNDLE_BYTES: usize = 256 * (15 << 10);

async fn fill_bundle(server: &Server) {
    let channel = channel_from(server, ELSEWHERE).await;
    let (mut reporter, _) = report(server, channel, "other").await.unwrap();
    for batch in 0..8 {
        let chain = |nth: u64| v1::PresentedChain {
            chain: format!("{:x>1$}", batch * 32 + nth, BUNDLE_BYTES / 256 - 512).into_bytes(),
            ..Default::default()
        };
        let entries = (0..32).map(|nth| v1::Entry {
            entry: Some(v1::entry::Entry::Chain(chain(nth))),
        });
        reporter.batch(1 + batch * 32, entries.collect()).await;
        assert_eq!(reporter.acknowledged().await, 32 + batch * 32);
    }
    let published = async {
        while get(server, ELSEWHERE, "none", "/ledger/tile/0/000").await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    in_time(published).await.unwrap();
}

/// In KiB.
async fn held_answers(server: &Server) -> usize {
    let metrics = server.get("/metrics", &[]).await.text;
    let mut lines = metrics.lines();
    let held = lines.find_map(|line| line.strip_prefix("credence_shared_limit_held{limit=\"answers\"} "));
    held.unwrap().parse().unwrap()
}

#[tokio::test]
async fn calls() {
    unfinished_bodies("calls", |config| config.limits.max_calls = PLACES, 1).await;
}

#[tokio::test]
async fn confirmations() {
    let place = Place::new();
    // A quarter of the calls may wait for filters.
    let server = start(&place, |config| config.limits.max_calls = 4 * PLACES).await;
    let mut filter = server
        .filter_as(Some("Bearer other"), v1::WatchHello::default())
        .await
        .unwrap();
    let request = |token| {
        let body = raise("alice").to_string();
        format!(
            "POST /v1/revocations HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: \
             application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let mut held = Vec::new();
    for address in GREEDY {
        for _ in 0..PLACES {
            let mut stream = connect(server.running.http_address(), address).await.unwrap();
            stream.write_all(request("weak").as_bytes()).await.unwrap();
            held.push(stream);
        }
    }
    let waiting = |calls| format!("credence_shared_limit_held{{limit=\"confirmations\"}} {calls}");
    server.wait_for(&waiting(PLACES / 2)).await;
    // Another client's call may still wait.
    let confirm = async {
        server.wait_for(&waiting(PLACES / 2 + 1)).await;
        for _ in 0..held.len() + 1 {
            filter.update().await;
        }
        filter.apply(held.len() as u64 + 1).await;
    };
    let request = request("other");
    let ((status, _), ()) = tokio::join!(exchange(&server, ELSEWHERE, &request), confirm);
    assert_eq!(status, 200);
}

/// The clients send the heads of requests, and never the bodies.
async fn unfinished_bodies(limit: &str, change: impl FnOnce(&mut Config), bytes: usize) {
    let place = Place::new();
    let server = start(&place, change).await;
    let mut held = Vec::new();
    for address in GREEDY {
        for _ in 0..PLACES {
            let mut stream = connect(server.running.http_address(), address).await.unwrap();
            let head = format!(
                "POST /v1/revocations HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer weak\r\nContent-Type: \
                 application/json\r\nContent-Length: {bytes}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            held.push(stream);
        }
    }
    // Each address has used its share, and the credential has none left.
    server
        .wait_for(&format!(
            "credence_shared_limit_held{{limit=\"{limit}\"}} {}",
            PLACES / 2
        ))
        .await;
    let body = format!("{:1$}", raise("alice").to_string(), bytes);
    let request = format!(
        "POST /v1/revocations HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer other\r\nContent-Type: \
         application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(exchange(&server, ELSEWHERE, &request).await.0, 200);
    assert_probed(&server).await;
}

#[tokio::test]
async fn tls_handshakes() {
    let place = Place::new();
    let authority = Authority::new("control planes");
    let Certificate { certificate, key } = authority.issue("DNS:localhost");
    let server = start(&place, |config| {
        config.limits.max_connections = PLACES;
        config.settings.tls.http = Some(PortTls {
            certificate,
            key,
            client_ca: None,
        });
    })
    .await;
    let mut held = Vec::new();
    for address in GREEDY {
        for _ in 0..PLACES {
            if let Some(mut stream) = connect(server.running.http_address(), address).await {
                // The start of a ClientHello.
                let _ = stream.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00]).await;
                held.push(stream);
            }
        }
    }
    let mut stream = connect(server.running.http_address(), ELSEWHERE).await.unwrap();
    let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await;
    // Its handshake is answered, by an alert: the client does not send TLS.
    let mut alert = [0; 1];
    assert!(
        in_time(stream.read_exact(&mut alert))
            .await
            .is_some_and(|read| read.is_ok())
    );
    assert_eq!(probe(&server).await, 200);
}

#[tokio::test]
async fn every_limit_that_clients_share_is_tried_here() {
    let place = Place::new();
    let server = start(&place, |_| {}).await;
    let metrics = server.get("/metrics", &[]).await.text;
    let mut limits: Vec<_> = metrics
        .lines()
        .filter_map(|line| {
            line.strip_prefix("credence_shared_limit_size{limit=\"")?
                .split_once('"')
        })
        .map(|(limit, _)| limit)
        .collect();
    limits.sort_unstable();
    // The limits for probes: these tests use none of them, and none is used up.
    let tried = [
        "answers",
        "audit_sources",
        "calls",
        "confirmations",
        "event_streams",
        "evidence_streams",
        "grpc_connections",
        "http_connections",
        "probe_connections",
        "request_bodies",
        "watch_streams",
    ];
    assert_eq!(limits, tried);
}

/// Both ports answer a probe.
async fn assert_probed(server: &Server) {
    assert_eq!(probe(server).await, 200, "on the port for probes");
    let (status, _) = get(server, ELSEWHERE, TOKEN, "/healthz").await;
    assert_eq!(status, 200, "on the port of the HTTP API");
}

async fn probe(server: &Server) -> u16 {
    let request = "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n";
    exchange_at(server.running.probe_address().unwrap(), ELSEWHERE, request)
        .await
        .0
}

async fn watch(server: &Server, channel: Channel, token: &str) -> Option<Watcher> {
    let opened = in_time(server.watch_on(channel, Some(&format!("Bearer {token}")))).await?;
    let mut watcher = opened.ok()?;
    watcher.hello(&server.log_id(), None).await;
    match watcher.next().await {
        Ok(WatchAnswer::Welcome(_)) => Some(watcher),
        _ => None,
    }
}

async fn report(server: &Server, channel: Channel, token: &str) -> Option<(Reporter, v1::ReportWelcome)> {
    in_time(server.report_on(channel, Some(&format!("Bearer {token}")), None))
        .await?
        .ok()
}

async fn channel_from(server: &Server, address: [u8; 4]) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{}", server.running.grpc_address())).unwrap();
    let endpoint = endpoint.local_address(Some(IpAddr::from(address)));
    in_time(endpoint.connect())
        .await
        .expect("no connection in time")
        .unwrap()
}

async fn begin_source(server: &Server, address: [u8; 4], token: &str) -> u16 {
    let request = format!(
        "POST /v1/audit/sources HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: \
         application/json\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    exchange(server, address, &request).await.0
}

/// The status, and the connection on which the answer may continue.
async fn get(server: &Server, address: [u8; 4], token: &str, path: &str) -> (u16, Option<TcpStream>) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n");
    exchange(server, address, &request).await
}

/// The status is 0 if there is no answer in time.
async fn exchange(server: &Server, address: [u8; 4], request: &str) -> (u16, Option<TcpStream>) {
    exchange_at(server.running.http_address(), address, request).await
}

async fn exchange_at(to: SocketAddr, address: [u8; 4], request: &str) -> (u16, Option<TcpStream>) {
    let exchanged = async {
        let mut stream = connect(to, address).await?;
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.ok()?;
        let status = std::str::from_utf8(&head)
            .ok()?
            .strip_prefix("HTTP/1.1 ")?
            .parse()
            .ok()?;
        Some((status, Some(stream)))
    };
    in_time(exchanged).await.flatten().unwrap_or((0, None))
}

/// A request whose head never ends.
async fn half_a_request(server: &Server, address: [u8; 4], headers: &str) -> Option<TcpStream> {
    let mut stream = connect(server.running.http_address(), address).await?;
    let begun = format!("GET /healthz HTTP/1.1\r\nHost: x\r\n{headers}X-Slow: ");
    stream.write_all(begun.as_bytes()).await.ok()?;
    Some(stream)
}

async fn connect(to: SocketAddr, from: [u8; 4]) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    // So that an unread answer stays with the server.
    socket.set_recv_buffer_size(16 << 10).unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    socket.connect(to).await.ok()
}

async fn in_time<T>(work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(Duration::from_secs(5), work).await.ok()
}
