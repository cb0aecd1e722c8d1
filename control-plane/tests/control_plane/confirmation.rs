//! A revocation is confirmed once every filter that may be fresh has applied it.

use std::time::{Duration, Instant};

use credence_control_plane::{Config, Role, TokenSettings};
use credence_wire::v1;
use credence_wire::v1::watch_request::Message as WatchMessage;
use credence_wire::v1::watch_response::Message as WatchAnswer;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tonic::Code;

use super::harness::{Answer, Place, Server, TOKEN, raise};
use super::stream::Stream;

/// For filters whose leases end in these tests; the others' last longer.
const MAX_STALENESS: Duration = Duration::from_secs(3);

/// An immediate answer takes less, even on a busy machine. No lease ends before that.
const SOON: Duration = Duration::from_secs(2);

/// A call that waits for a lease takes longer.
const A_WHILE: Duration = Duration::from_millis(300);

const SECRET: [u8; 32] = [5; 32];

#[tokio::test]
async fn a_revocation_returns_once_every_filter_has_applied_it_and_tells_how_many_have() {
    let place = Place::new();
    let server = place.start().await;
    let (mut one, mut other) = (server.filter().await, server.filter().await);
    let mut revoked = Revoked::begin(&server);
    let seq = one.update().await.position.unwrap().seq;
    assert_eq!(other.update().await.position.unwrap().seq, seq);
    one.apply(seq).await;
    revoked.still_waits().await;
    let filters = wait_for_applied(&server, seq, 1).await;
    assert_eq!(filters["unknown"], 1);
    assert!((1..=5_050).contains(&filters["left_ms"].as_u64().unwrap()), "{filters}");
    other.apply(seq).await;
    let answer = revoked.soon().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let confirmed = json!({"applied": 2, "unknown": 0, "left_ms": 0});
    assert_eq!(
        (&answer.json()["seq"], &answer.json()["filters"]),
        (&json!(seq), &confirmed)
    );
    server.wait_for("credence_revocation_wait_seconds_count 1").await;
}

#[tokio::test]
async fn one_that_wants_no_confirmation_is_answered_at_once_and_can_ask_for_it_later() {
    let place = Place::new();
    let server = place.start().await;
    let filter = server.filter().await;
    let begun = Instant::now();
    let committed = server.try_revoke(raise("alice")).await;
    assert_eq!(committed.status, 202, "{committed:?}");
    assert!(begun.elapsed() < SOON);
    assert_eq!(committed.json()["filters"]["unknown"], 1);
    assert_eq!(position(&server, "1?wait=committed").await.status, 202);
    filter.apply(1).await;
    let confirmed = position(&server, "1").await;
    assert_eq!(confirmed.status, 200, "{confirmed:?}");
    let filters = json!({"applied": 1, "unknown": 0, "left_ms": 0});
    assert_eq!(
        confirmed.json(),
        json!({"log_id": server.log_id(), "seq": 1, "filters": filters})
    );
    assert_eq!(position(&server, "1?wait=committed").await.status, 200);
}

#[tokio::test]
async fn an_unknown_position_is_404_and_an_invalid_query_400() {
    let place = Place::new();
    let server = place.start().await;
    server.revoke(raise("alice")).await;
    for (path, status) in [("1", 200), ("0", 200), ("2", 404), ("18446744073709551615", 404)] {
        assert_eq!(position(&server, path).await.status, status, "{path}");
    }
    for path in [
        "x",
        "-1",
        "1?wait=forever",
        "1?wait=applied&wait=applied",
        "1?until=applied",
    ] {
        let refused = position(&server, path).await;
        assert_eq!(refused.status, 400, "{path}: {refused:?}");
        assert_eq!(refused.content_type, "application/problem+json", "{path}");
    }
    let authorization = format!("Bearer {TOKEN}");
    for query in ["wait=forever", "wait", "until=applied"] {
        let refused = server
            .post(
                &format!("/v1/revocations?{query}"),
                raise("alice").to_string(),
                &[&authorization],
            )
            .await;
        assert_eq!(refused.status, 400, "{query}: {refused:?}");
    }
    assert_eq!(server.get("/v1/log", &[]).await.json()["seq"], 1, "nothing was revoked");
}

#[tokio::test]
async fn a_filter_that_applies_nothing_is_waited_for_once_and_then_not_echoed() {
    let place = Place::new();
    let server = place.start_with(short_leases).await;
    let mut filter = server.filter().await;
    let echoed = Instant::now();
    let mut first = Revoked::begin(&server);
    filter.update().await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    filter.say(WatchMessage::Ping(v1::Ping { id: 7 })).await;
    first.still_waits().await;
    assert_eq!(first.within(2 * MAX_STALENESS).await.status, 200);
    assert!(echoed.elapsed() >= MAX_STALENESS, "{:?}", echoed.elapsed());
    server.wait_for("credence_revocation_stalls_total 1").await;

    // It is not fresh any more: no revocation waits for it, however often it pings.
    filter.say(WatchMessage::Ping(v1::Ping { id: 8 })).await;
    assert_eq!(Revoked::begin(&server).soon().await.status, 200);
    let seq = filter.update().await.position.unwrap().seq;
    filter.apply(seq).await;
    match filter.next().await.unwrap() {
        WatchAnswer::Pong(pong) => assert_eq!((pong.id, pong.head), (8, seq)),
        other => panic!("{other:?}"),
    }
    // From here on it may be fresh.
    Revoked::begin(&server).still_waits().await;
}

#[tokio::test]
async fn a_filter_that_leaves_is_not_waited_for() {
    let place = Place::new();
    let server = place.start().await;
    let mut filter = server.filter().await;
    let mut revoked = Revoked::begin(&server);
    filter.update().await;
    revoked.still_waits().await;
    filter.say(WatchMessage::Leaving(v1::Leaving {})).await;
    let answer = revoked.soon().await;
    assert_eq!((answer.status, &answer.json()["filters"]["applied"]), (200, &json!(0)));
}

#[tokio::test]
async fn a_filter_whose_stream_has_ended_is_waited_for_until_its_lease_is_over() {
    let place = Place::new();
    let server = place.start_with(short_leases).await;
    let filter = server.filter().await;
    let echoed = Instant::now();
    drop(filter);
    server.wait_for("credence_revocation_subscribers 0").await;
    let answer = Revoked::begin(&server).within(2 * MAX_STALENESS).await;
    assert_eq!(answer.status, 200);
    assert!(echoed.elapsed() >= MAX_STALENESS, "{:?}", echoed.elapsed());
}

#[tokio::test]
async fn a_filter_that_returns_with_its_secret_is_waited_for_until_it_has_applied_what_it_missed() {
    let place = Place::new();
    let server = place.start().await;
    let digest = |secret: [u8; 32]| Sha256::digest(secret).to_vec();
    let hello = v1::WatchHello {
        secret_digest: digest(SECRET),
        ..v1::WatchHello::default()
    };
    let mut filter = server.filter_as(None, hello).await.unwrap();
    let mut revoked = Revoked::begin(&server);
    let applied = filter.update().await.position;
    drop(filter);
    server.wait_for("credence_revocation_subscribers 0").await;

    // Values that an eavesdropper can see are not the secret.
    for secret in [vec![6; 32], digest(SECRET)] {
        let stranger = v1::WatchHello {
            earlier_secrets: vec![secret],
            applied: applied.clone(),
            ..v1::WatchHello::default()
        };
        drop(server.filter_as(None, stranger).await.unwrap());
    }
    revoked.still_waits().await;
    let returned = v1::WatchHello {
        earlier_secrets: vec![vec![7; 32], SECRET.to_vec()],
        applied,
        ..v1::WatchHello::default()
    };
    let _filter = server.filter_as(None, returned).await.unwrap();
    assert_eq!(revoked.soon().await.status, 200);
}

#[tokio::test]
async fn followers_and_clients_that_confirm_nothing_are_not_waited_for() {
    let place = Place::new();
    let server = place.start().await;
    let mut follower = server.watch_in_step().await;
    let mut stream = Stream::open(&server, "?from=now", None).await;
    stream.named("alive").await;
    let answer = Revoked::begin(&server).soon().await;
    let filters = json!({"applied": 0, "unknown": 0, "left_ms": 0});
    assert_eq!((answer.status, &answer.json()["filters"]), (200, &filters));
    assert_eq!(follower.ping(2).await.0.len(), 1);
}

#[tokio::test]
async fn many_revocations_wait_for_a_filter_together() {
    let place = Place::new();
    let server = place.start().await;
    let mut filter = server.filter().await;
    let mut revoked: Vec<_> = (0..50).map(|_| Revoked::begin(&server)).collect();
    for _ in &revoked {
        filter.update().await;
    }
    revoked[0].still_waits().await;
    assert!(revoked.iter().all(|revoked| !revoked.0.is_finished()));
    filter.apply(50).await;
    let applied = Instant::now();
    for revoked in revoked {
        assert_eq!(revoked.soon().await.status, 200);
    }
    assert!(applied.elapsed() < SOON, "{:?}", applied.elapsed());
}

#[tokio::test]
async fn calls_beyond_those_that_may_wait_are_answered_at_once() {
    let place = Place::new();
    let server = place
        .start_with(|config| {
            // A quarter of them may wait, and one address gets a quarter of that.
            config.limits.max_calls = 16;
        })
        .await;
    let mut filter = server.filter().await;
    let mut waiting = Revoked::begin(&server);
    filter.update().await;
    waiting.still_waits().await;
    let answer = Revoked::begin(&server).soon().await;
    assert_eq!((answer.status, &answer.json()["seq"]), (202, &json!(2)), "{answer:?}");
    filter.update().await;
    filter.apply(2).await;
    assert_eq!(waiting.soon().await.status, 200);
    let refused = r#"credence_shared_limit_refused_total{limit="confirmations""#;
    let metrics = server.get("/metrics", &[]).await.text;
    assert!(metrics.contains(refused), "{metrics}");
}

#[tokio::test]
async fn a_planned_stop_answers_the_calls_that_wait() {
    let place = Place::new();
    let server = place.start().await;
    let mut filter = server.filter().await;
    let mut revoked = Revoked::begin(&server);
    filter.update().await;
    revoked.still_waits().await;
    let stopping = tokio::spawn(server.running.shutdown());
    let answer = revoked.soon().await;
    assert_eq!((answer.status, &answer.json()["filters"]["unknown"]), (202, &json!(1)));
    stopping.await.unwrap();
}

#[tokio::test]
async fn a_client_that_holds_revocations_up_again_and_again_is_refused_and_no_other() {
    let place = Place::new();
    let server = place
        .start_with(|config| {
            config.log.max_staleness = Duration::from_secs(2);
            config.settings.access.tokens = ["steady", "stalling"].map(filter_token).to_vec();
        })
        .await;
    let stalling = || server.filter_as(Some("Bearer stalling"), v1::WatchHello::default());
    let mut steady = server
        .filter_as(Some("Bearer steady"), v1::WatchHello::default())
        .await
        .unwrap();
    for times in 1..=4 {
        // A new stream each time.
        let mut stream = stalling().await.unwrap();
        server.revoke(raise("alice")).await;
        steady.update().await;
        steady.apply(times).await;
        stream.update().await;
        server
            .wait_for(&format!("credence_revocation_stalls_total {times}"))
            .await;
        if times < 4 {
            stream.say(WatchMessage::Leaving(v1::Leaving {})).await;
            // Delays within half of the longest lease count once.
            tokio::time::sleep(Duration::from_millis(1_100)).await;
            steady.ping(times + 1).await;
        } else {
            let (code, text) = stream.refusal().await;
            assert_eq!(code, Code::ResourceExhausted);
            assert!(text.contains("delayed revocations"), "{text}");
        }
    }
    let refused = stalling().await.err().unwrap();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let again = server.filter_as(Some("Bearer steady"), v1::WatchHello::default()).await;
    assert!(again.is_ok());
    steady.ping(9).await;
}

#[tokio::test]
async fn a_message_that_a_client_may_not_send_ends_its_stream() {
    let place = Place::new();
    let server = place.start().await;
    let beyond = server.filter().await;
    beyond.apply(1).await;
    let unasked = server.watch_in_step().await;
    unasked.apply(0).await;
    let leaving = server.watch_in_step().await;
    leaving.say(WatchMessage::Leaving(v1::Leaving {})).await;
    for mut stream in [beyond, unasked, leaving] {
        assert_eq!(stream.refusal().await.0, Code::InvalidArgument);
    }
    let secrets = |count| v1::WatchHello {
        earlier_secrets: vec![vec![1; 32]; count],
        ..v1::WatchHello::default()
    };
    assert!(server.filter_as(None, secrets(8)).await.is_ok());
    let hello = v1::WatchHello {
        log_id: server.log_id(),
        confirms: true,
        ..secrets(9)
    };
    let mut stream = server.open_watch().await.unwrap();
    stream.say(WatchMessage::Hello(hello)).await;
    assert_eq!(stream.refusal().await.0, Code::InvalidArgument);
}

fn short_leases(config: &mut Config) {
    config.log.max_staleness = MAX_STALENESS;
}

/// A credential that may follow the log. Its token is its name.
fn filter_token(name: &str) -> TokenSettings {
    TokenSettings {
        name: name.to_owned(),
        sha256: Sha256::digest(name).into(),
        roles: vec![Role::Filter],
        issuers: None,
        expires: None,
    }
}

/// Asks for the confirmation state of a revocation.
async fn position(server: &Server, path_and_query: &str) -> Answer {
    let path = format!("/v1/revocations/{path_and_query}");
    server.get(&path, &[&format!("Bearer {TOKEN}")]).await
}

/// Waits until this many filters have applied it. Returns the answer about them.
async fn wait_for_applied(server: &Server, seq: u64, applied: u64) -> Value {
    let begun = Instant::now();
    loop {
        let answer = position(server, &format!("{seq}?wait=committed")).await;
        let filters = answer.json()["filters"].clone();
        if filters["applied"] == applied {
            assert_eq!(answer.status, 202);
            return filters;
        }
        assert!(begun.elapsed() < SOON, "{filters}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A revocation that waits for the filters.
struct Revoked(tokio::task::JoinHandle<Answer>);

impl Revoked {
    fn begin(server: &Server) -> Self {
        Self(tokio::spawn(server.revoke_in_background(raise("alice"))))
    }

    async fn still_waits(&mut self) {
        let answered = tokio::time::timeout(A_WHILE, &mut self.0).await;
        assert!(answered.is_err(), "{answered:?}");
    }

    async fn soon(self) -> Answer {
        self.within(SOON).await
    }

    async fn within(self, limit: Duration) -> Answer {
        let answered = tokio::time::timeout(limit, self.0).await;
        answered.expect("it still waits").unwrap()
    }
}
