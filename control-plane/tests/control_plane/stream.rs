//! The event stream of revocations.

use std::time::Duration;

use credence_control_plane::{Role, TokenSettings};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::harness::{ISSUER, LOG_FILE, Place, Server, TOKEN, delegation, raise};

const REVOCATIONS: &str = "/v1/revocations/stream";
const OTHER_ISSUER: &str = "https://other.example.com";

#[tokio::test]
async fn a_new_stream_begins_with_the_whole_state_and_goes_on_with_what_happens() {
    let place = Place::new();
    let server = place.start().await;
    server.revoke(raise("alice")).await;
    server.revoke(raise("alice")).await;
    server.revoke(delegation("one")).await;
    let mut stream = Stream::open(&server, "", None).await;
    let log_id = server.log_id();
    let begin = stream.next().await;
    assert_eq!(begin.name, "snapshot_begin");
    assert_eq!(begin.data, json!({"log_id": log_id, "seq": 3, "records": 2}));
    // In any order.
    let mut missing = vec!["principal", "delegation"];
    while !missing.is_empty() {
        let record = stream.next().await;
        assert_eq!((record.name.as_str(), &record.id), ("record", &None));
        assert_eq!(record.data["seq"], 3);
        let before = missing.len();
        missing.retain(|member| !record.data[member].is_object());
        assert_eq!(missing.len(), before - 1);
    }
    let end = stream.next().await;
    assert_eq!(
        (end.name.as_str(), end.position()),
        ("snapshot_end", format!("{log_id}:3"))
    );
    server.revoke(delegation("two")).await;
    let record = stream.record().await;
    assert_eq!(record.position(), format!("{log_id}:4"));
    let expected = json!({"issuer": ISSUER, "subject": "alice", "id": "two"});
    for (member, value) in expected.as_object().unwrap() {
        assert_eq!(&record.data["delegation"][member], value);
    }
}

#[tokio::test]
async fn a_position_within_the_history_is_resumed_with_exactly_what_was_missed() {
    let place = Place::new();
    let server = place.start().await;
    let mut stream = Stream::open(&server, "?from=now", None).await;
    for id in 0..150 {
        server.revoke(delegation(&id.to_string())).await;
    }
    let mut id = String::new();
    for _ in 1..=20 {
        id = stream.record().await.id.unwrap();
    }
    let mut by_header = Stream::open(&server, "", Some(&id)).await;
    let mut by_query = Stream::open(&server, &format!("?last_event_id={id}"), None).await;
    for stream in [&mut by_header, &mut by_query] {
        for seq in 21..=150 {
            let record = stream.next().await;
            assert_eq!(record.position(), format!("{}:{seq}", server.log_id()));
        }
        let alive = stream.next().await;
        assert_eq!((alive.name.as_str(), &alive.data["seq"]), ("alive", &json!(150)));
    }
}

#[tokio::test]
async fn a_position_behind_the_history_is_resumed_with_a_snapshot() {
    let place = Place::new();
    let server = place.start_with(|config| config.log.updates.entries = 2).await;
    let mut stream = Stream::open(&server, "?from=now", None).await;
    let id = stream.next().await.id.unwrap();
    for id in 0..5 {
        server.revoke(delegation(&id.to_string())).await;
    }
    let mut stream = Stream::open(&server, "", Some(&id)).await;
    assert_eq!(stream.next().await.data["records"], 5);
}

#[tokio::test]
async fn a_position_that_names_no_history_is_resumed_with_a_snapshot() {
    let place = Place::new();
    let server = place.start().await;
    for id in 0..5 {
        server.revoke(delegation(&id.to_string())).await;
    }
    let mut stream = Stream::open(&server, "", Some(&format!("{}:4", server.log_id()))).await;
    let begin = stream.next().await;
    assert_eq!(
        (begin.name.as_str(), &begin.data["records"]),
        ("snapshot_begin", &json!(5))
    );
}

#[tokio::test]
async fn from_now_on_has_a_position_to_resume_from_at_once() {
    let place = Place::new();
    let server = place.start().await;
    server.revoke(raise("alice")).await;
    let mut stream = Stream::open(&server, "?from=now", None).await;
    let position = stream.next().await;
    assert_eq!(
        (position.name.as_str(), position.position()),
        ("position", format!("{}:1", server.log_id()))
    );
    server.revoke(raise("bob")).await;
    assert_eq!(stream.record().await.data["principal"]["subject"], "bob");
}

#[tokio::test]
async fn a_position_of_another_log_is_refused_with_the_cure() {
    let place = Place::new();
    let server = place.start().await;
    for (id, cure) in [
        (format!("{}:1", server.log_id()), "restore the newest"),
        ("another-log:0".to_owned(), "discard your state"),
    ] {
        let refused = server
            .get(
                &format!("/v1/revocations/stream?last_event_id={id}"),
                &[&format!("Bearer {TOKEN}")],
            )
            .await;
        assert_eq!(
            (refused.status, refused.content_type.as_str()),
            (409, "application/problem+json")
        );
        assert!(refused.text.contains(cure), "{}", refused.text);
    }
}

#[tokio::test]
async fn after_an_undeclared_restore_a_follower_is_told_to_start_again() {
    let place = Place::new();
    let server = place.start().await;
    server.revoke(raise("alice")).await;
    server.running.shutdown().await;
    let old = std::fs::read(place.path(LOG_FILE)).unwrap();
    let server = place.start().await;
    let mut stream = Stream::open(&server, "?from=now", None).await;
    let before = stream.next().await.id.unwrap();
    server.revoke(raise("bob")).await;
    let seen = stream.record().await.id.unwrap();
    server.running.shutdown().await;
    std::fs::write(place.path(LOG_FILE), old).unwrap();

    let server = place.start().await;
    server.revoke(raise("carol")).await;
    server.revoke(raise("dave")).await;
    let (status, _) = Stream::try_open(&server, TOKEN, "", Some(&seen)).await;
    assert!(
        status.ends_with("409 Conflict"),
        "{status}: carol's revocation would be missed"
    );
    // The common part of both histories can be resumed.
    let mut stream = Stream::open(&server, "", Some(&before)).await;
    for subject in ["carol", "dave"] {
        assert_eq!(stream.record().await.data["principal"]["subject"], subject);
    }
}

/// An EventSource does not reconnect after a refusal.
#[tokio::test]
async fn after_the_key_of_the_proofs_was_replaced_a_follower_gets_a_snapshot() {
    let place = Place::new();
    let server = place.start().await;
    let mut stream = Stream::open(&server, "?from=now", None).await;
    server.revoke(raise("alice")).await;
    let seen = stream.record().await.id.unwrap();
    drop(server);
    std::fs::write(place.path("log/audit-source-key"), [7; 32]).unwrap();

    let server = place.start().await;
    let mut stream = Stream::open(&server, "", Some(&seen)).await;
    let begin = stream.next().await;
    assert_eq!(
        (begin.name.as_str(), &begin.data["records"]),
        ("snapshot_begin", &json!(1))
    );
    let ahead = seen.replacen(":1:", ":2:", 1);
    let (status, _) = Stream::try_open(&server, TOKEN, "", Some(&ahead)).await;
    assert!(status.ends_with("409 Conflict"), "{status}");
}

#[tokio::test]
async fn a_live_stream_reports_every_second_that_it_is_complete() {
    let place = Place::new();
    let server = place
        .start_with(|config| config.limits.request_timeout = Duration::from_millis(500))
        .await;
    let mut stream = Stream::open(&server, "?from=now", None).await;
    for _ in 0..3 {
        let alive = stream.named("alive").await;
        assert_eq!((&alive.id, &alive.data["seq"]), (&None, &json!(0)));
    }
}

#[tokio::test]
async fn a_credential_bound_to_issuers_sees_theirs_and_still_moves_on() {
    let place = Place::new();
    let server = place
        .start_with(|config| config.settings.access.tokens = vec![bound("watcher-token", ISSUER)])
        .await;
    let other = |subject: &str| json!({"principal": {"issuer": OTHER_ISSUER, "subject": subject}});
    let key = json!({"key": {"thumbprint": "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"}});
    server.revoke(other("mallory")).await;
    server.revoke(raise("alice")).await;
    let mut stream = Stream::open_as(&server, "watcher-token", "", None).await;
    assert_eq!(stream.next().await.data["records"], 1);
    assert_eq!(stream.record().await.data["principal"]["subject"], "alice");
    server.revoke(other("mallory")).await;
    let moved = stream.named("position").await;
    assert_eq!(moved.position(), format!("{}:3", server.log_id()));
    server.revoke(key).await;
    assert!(stream.record().await.data["key"].is_object());
}

#[tokio::test]
async fn a_stream_ends_once_its_credential_could_not_open_it_any_more() {
    let place = Place::new();
    let tokens = ["out", "role", "issuers", "wider", "same"].map(|name| bound(name, ISSUER));
    let server = place
        .start_with(|config| config.settings.access.tokens = tokens.to_vec())
        .await;
    let mut same = Stream::open_as(&server, "same", "?from=now", None).await;
    let mut operators = Stream::open(&server, "?from=now", None).await;
    let mut ending = Vec::new();
    for name in ["out", "role", "issuers", "wider"] {
        let mut stream = Stream::open_as(&server, name, "?from=now", None).await;
        stream.named("alive").await;
        ending.push((name, stream));
    }

    let mut settings = place.config().settings;
    let [_, mut role, issuers, mut wider, unchanged] = tokens;
    role.roles = vec![Role::Auditor];
    wider.issuers = None;
    let issuers = TokenSettings {
        issuers: Some(vec![OTHER_ISSUER.to_owned()]),
        ..issuers
    };
    settings.access.tokens = vec![role, issuers, wider, unchanged];
    server.running.reload(settings).await.unwrap();
    server.revoke(raise("alice")).await;

    for (name, stream) in &mut ending {
        assert!(stream.ends_without_a_record().await, "{name}");
    }
    // Credentials that are still valid are not affected.
    for stream in [&mut same, &mut operators] {
        assert_eq!(stream.record().await.data["principal"]["subject"], "alice");
    }
    server
        .wait_for("credence_http_streams_ended_total{outcome=\"withdrawn\"} 4")
        .await;
}

#[tokio::test]
async fn a_stream_ends_when_its_token_expires() {
    let place = Place::new();
    let expires = time::OffsetDateTime::now_utc().unix_timestamp() + 2;
    let brief = TokenSettings {
        expires: Some(expires),
        ..bound("brief", ISSUER)
    };
    let server = place
        .start_with(|config| config.settings.access.tokens = vec![brief])
        .await;
    let mut stream = Stream::open_as(&server, "brief", "?from=now", None).await;
    assert!(stream.ends_without_a_record().await);
    assert!(time::OffsetDateTime::now_utc().unix_timestamp() >= expires);
    server
        .wait_for("credence_http_streams_ended_total{outcome=\"expired\"} 1")
        .await;
}

#[tokio::test]
async fn a_client_that_does_not_read_loses_the_stream_with_its_credential_all_the_same() {
    let place = Place::new();
    let server = place
        .start_with(|config| {
            config.settings.access.tokens = vec![TokenSettings {
                issuers: None,
                ..bound("idle", ISSUER)
            }];
            // Neither the server nor the kernel ends the connection before the credential does.
            config.timeouts.send = Duration::from_secs(3600);
            config.timeouts.silence = Duration::from_secs(3600);
        })
        .await;
    let _idle = Stream::open_as(&server, "idle", "", None).await;
    // More than the kernel's buffers on both sides hold.
    let issuer = format!("{ISSUER}/{}", "\u{1}".repeat(2000));
    for id in 0..1_000 {
        server
            .revoke(json!({"delegation": {"issuer": issuer, "id": id.to_string()}}))
            .await;
    }
    server.running.reload(place.config().settings).await.unwrap();
    server
        .wait_for("credence_http_streams_ended_total{outcome=\"withdrawn\"} 1")
        .await;
}

#[tokio::test]
async fn a_planned_stop_is_announced_and_does_not_wait_for_the_streams() {
    let place = Place::new();
    let server = place
        .start_with(|config| config.log.drain_promise = Duration::from_secs(7))
        .await;
    let mut stream = Stream::open(&server, "?from=now", None).await;
    stream.named("alive").await;
    let stopped = tokio::time::timeout(Duration::from_secs(4), server.running.shutdown()).await;
    stopped.expect("the stop waited for the stream");
    assert_eq!(
        stream.named("drain").await.data,
        json!({"promise_ms": 0}),
        "the server's stop does not wait for the stream"
    );
    assert!(stream.ends().await);
}

#[tokio::test]
async fn streams_beyond_the_limit_are_refused() {
    let place = Place::new();
    let server = place.start_with(|config| config.limits.max_http_subscribers = 1).await;
    let authorization = format!("Bearer {TOKEN}");
    let mut stream = Stream::open(&server, "", None).await;
    stream.named("alive").await;
    let refused = server.get("/v1/revocations/stream", &[&authorization]).await;
    assert_eq!((refused.status, refused.retry_after), (503, Some(10)));
    drop(stream);
    // Once the server has seen the connection end.
    let mut again = Stream::open_when_free(&server).await;
    again.named("alive").await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let place = Place::new();
    let server = place
        .start_with(|config| config.timeouts.send = Duration::from_millis(200))
        .await;
    // Until the data fills the kernel's buffers on both sides.
    let issuer = format!("https://id.example.com/{}", "\u{1}".repeat(2000));
    let mut idle = Stream::open(&server, "", None).await;
    idle.named("alive").await;
    for id in 0.. {
        server
            .revoke(json!({"delegation": {"issuer": issuer, "id": id.to_string()}}))
            .await;
        if id % 100 == 0
            && server
                .get("/metrics", &[])
                .await
                .text
                .contains("credence_http_subscribers 0")
        {
            return;
        }
    }
}

fn bound(token: &str, issuer: &str) -> TokenSettings {
    TokenSettings {
        name: token.to_owned(),
        sha256: Sha256::digest(token).into(),
        roles: vec![Role::Watcher],
        issuers: Some(vec![issuer.to_owned()]),
        expires: None,
    }
}

#[derive(Debug, Default)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) data: Value,
}

impl Event {
    /// The id without its proof.
    fn position(&self) -> String {
        let id = self.id.as_deref().expect("an event without an id");
        id.rsplit_once(':').expect("an id without a proof").0.to_owned()
    }
}

/// A client of the stream, over HTTP/1.0: the body is then just the following bytes.
pub(crate) struct Stream(tokio::io::Lines<BufReader<Box<dyn Connection>>>);

/// Plain or TLS.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<C: AsyncRead + AsyncWrite + Send + Unpin> Connection for C {}

impl Stream {
    pub(crate) async fn open(server: &Server, query: &str, last_event_id: Option<&str>) -> Self {
        Self::open_as(server, TOKEN, query, last_event_id).await
    }

    async fn open_as(server: &Server, token: &str, query: &str, last_event_id: Option<&str>) -> Self {
        let (status, stream) = Self::try_open(server, token, query, last_event_id).await;
        assert_eq!(status, "HTTP/1.0 200 OK");
        stream
    }

    async fn open_when_free(server: &Server) -> Self {
        loop {
            let (status, stream) = Self::try_open(server, TOKEN, "", None).await;
            if status.ends_with("200 OK") {
                return stream;
            }
        }
    }

    async fn try_open(server: &Server, token: &str, query: &str, last_event_id: Option<&str>) -> (String, Self) {
        Self::try_open_at(server, token, &format!("{REVOCATIONS}{query}"), last_event_id).await
    }

    /// For any resource.
    pub(crate) async fn try_open_at(
        server: &Server,
        token: &str,
        resource: &str,
        last_event_id: Option<&str>,
    ) -> (String, Self) {
        let stream = TcpStream::connect(server.running.http_address()).await.unwrap();
        let id = last_event_id.map_or_else(String::new, |id| format!("Last-Event-ID: {id}\r\n"));
        let headers = format!("Authorization: Bearer {token}\r\n{id}");
        Self::ask_on(Box::new(stream), resource, &headers).await
    }

    /// On the caller's connection, with these headers. Returns the status line and the stream.
    pub(crate) async fn open_on(stream: Box<dyn Connection>, query: &str, headers: &str) -> (String, Self) {
        Self::ask_on(stream, &format!("{REVOCATIONS}{query}"), headers).await
    }

    async fn ask_on(mut stream: Box<dyn Connection>, resource: &str, headers: &str) -> (String, Self) {
        let request = format!("GET {resource} HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut lines = BufReader::new(stream).lines();
        let status = lines.next_line().await.unwrap().unwrap();
        while lines.next_line().await.unwrap().unwrap() != "" {}
        (status, Self(lines))
    }

    async fn line(&mut self) -> Option<String> {
        let line = tokio::time::timeout(Duration::from_secs(5), self.0.next_line()).await;
        line.expect("the server said nothing for 5 s").unwrap()
    }

    /// The next event, parsed as the specification says.
    pub(crate) async fn next(&mut self) -> Event {
        let mut event = Event::default();
        loop {
            let line = self.line().await.expect("the stream ended");
            match line.split_once(": ") {
                Some(("id", id)) => event.id = Some(id.to_owned()),
                Some(("event", name)) => event.name = name.to_owned(),
                Some(("data", data)) => event.data = serde_json::from_str(data).unwrap(),
                Some(("retry", milliseconds)) => assert_eq!(milliseconds, "1000"),
                None if line.is_empty() && !event.name.is_empty() => return event,
                None if line.is_empty() => {}
                other => panic!("{other:?}: {line}"),
            }
        }
    }

    pub(crate) async fn named(&mut self, name: &str) -> Event {
        loop {
            let event = self.next().await;
            if event.name == name {
                return event;
            }
        }
    }

    pub(crate) async fn record(&mut self) -> Event {
        self.named("record").await
    }

    pub(crate) async fn ends(&mut self) -> bool {
        self.line().await.is_none()
    }

    /// Whether only heartbeats come until the end.
    pub(crate) async fn ends_without_a_record(&mut self) -> bool {
        while let Some(line) = self.line().await {
            if line == "event: record" {
                return false;
            }
        }
        true
    }
}
