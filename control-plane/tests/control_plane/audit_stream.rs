//! The event stream of the evidence.

use credence_control_plane::{Role, TokenSettings};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::harness::{ISSUER, Place, Server, TOKEN, events};
use super::stream::Stream;

const EVENTS: &str = "/v1/audit/stream";

async fn open(server: &Server, query: &str, last_event_id: Option<&str>) -> Stream {
    let (status, stream) = Stream::try_open_at(server, TOKEN, &format!("{EVENTS}{query}"), last_event_id).await;
    assert_eq!(status, "HTTP/1.0 200 OK");
    stream
}

#[tokio::test]
async fn a_new_stream_shows_what_is_recorded_from_then_on() {
    let place = Place::new();
    let server = place.start().await;
    let (mut reporter, _) = server.report(None).await.unwrap();
    reporter.batch(1, events(&["before"])).await;
    reporter.acknowledged().await;
    let mut stream = open(&server, "", None).await;
    let alive = stream.named("alive").await;
    assert_eq!((alive.id.as_deref(), &alive.data["next"]), (Some("1"), &json!(2)));
    reporter.batch(2, events(&["pay", "read"])).await;
    for (index, tool) in [(2, "pay"), (3, "read")] {
        let record = stream.record().await;
        assert_eq!(record.id, Some(index.to_string()));
        assert_eq!(
            (&record.data["index"], &record.data["tool"]),
            (&json!(index), &json!(tool))
        );
    }
}

#[tokio::test]
async fn a_stream_goes_on_behind_the_last_event_and_shows_only_what_was_asked_for() {
    let place = Place::new();
    let server = place.start().await;
    let (mut reporter, _) = server.report(None).await.unwrap();
    // More than one read returns.
    for batch in 0..4 {
        reporter.batch(batch * 500 + 1, events(&["read"; 500])).await;
        reporter.acknowledged().await;
    }
    reporter.batch(2_001, events(&["pay", "read"])).await;
    reporter.acknowledged().await;
    let mut whole = open(&server, "", Some("0")).await;
    for index in 1..=2_002 {
        assert_eq!(whole.record().await.id, Some(index.to_string()));
    }
    let mut narrow = open(&server, "?tool=pay&last_event_id=0", None).await;
    assert_eq!(narrow.record().await.id.as_deref(), Some("2001"));
    // So that a client need not read the same records again.
    assert_eq!(narrow.named("alive").await.id.as_deref(), Some("2002"));
}

#[tokio::test]
async fn a_position_of_another_ledger_is_refused() {
    let place = Place::new();
    let server = place.start().await;
    for (id, status) in [("1", "409 Conflict"), ("log:1", "400 Bad Request")] {
        let (answer, _) = Stream::try_open_at(&server, TOKEN, EVENTS, Some(id)).await;
        assert_eq!(answer, format!("HTTP/1.0 {status}"));
    }
}

#[tokio::test]
async fn a_stream_ends_with_the_credential_that_opened_it_and_shows_its_issuers_only() {
    let place = Place::new();
    let auditor = |name: &str, issuer: &str| TokenSettings {
        name: name.to_owned(),
        sha256: Sha256::digest(name).into(),
        roles: vec![Role::Auditor],
        issuers: Some(vec![issuer.to_owned()]),
        expires: None,
    };
    let server = place
        .start_with(|config| {
            config.settings.access.tokens = vec![auditor("ours", ISSUER), auditor("theirs", "https://other.example")];
        })
        .await;
    let open = async |token: &str| Stream::try_open_at(&server, token, EVENTS, None).await;
    let ((_, mut ours), (_, mut theirs)) = (open("ours").await, open("theirs").await);
    for stream in [&mut ours, &mut theirs] {
        stream.named("alive").await;
    }
    let (mut reporter, _) = server.report(None).await.unwrap();
    reporter.batch(1, events(&["pay"])).await;
    reporter.acknowledged().await;
    assert_eq!(ours.record().await.data["tool"], "pay");
    let mut settings = place.config().settings;
    settings.access.tokens = Vec::new();
    server.running.reload(settings).await.unwrap();
    assert!(theirs.ends_without_a_record().await);
    assert!(ours.ends_without_a_record().await);
}

#[tokio::test]
async fn a_planned_stop_shows_what_was_recorded_and_says_so() {
    let place = Place::new();
    let server = place.start().await;
    let (mut reporter, _) = server.report(None).await.unwrap();
    let mut stream = open(&server, "", None).await;
    stream.named("alive").await;
    reporter.batch(1, events(&["pay"])).await;
    reporter.acknowledged().await;
    let stopping = tokio::spawn(server.running.shutdown());
    assert_eq!(stream.record().await.data["tool"], "pay");
    stream.named("drain").await;
    assert!(stream.ends().await);
    stopping.await.unwrap();
}

#[tokio::test]
async fn streams_beyond_the_limit_are_refused() {
    let place = Place::new();
    let server = place.start_with(|config| config.limits.max_audit_subscribers = 1).await;
    let mut stream = open(&server, "", None).await;
    stream.named("alive").await;
    let refused = server.get(EVENTS, &[&format!("Bearer {TOKEN}")]).await;
    assert_eq!((refused.status, refused.retry_after), (503, Some(10)));
}
