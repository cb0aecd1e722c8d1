//! The HTTP API.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::harness::{ISSUER, Place, TOKEN, delegation, raise};

const THUMBPRINT: &str = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs";

#[tokio::test]
async fn only_the_operators_token_opens_the_operators_routes() {
    let place = Place::new();
    let server = place.start().await;
    let right = format!("Bearer {TOKEN}");
    let wrong = format!("Bearer {TOKEN}x");
    let basic = format!("Basic {TOKEN}");
    let attempts: [&[&str]; 5] = [&[], &[&wrong], &[&basic], &[TOKEN], &[&right, &right]];
    for authorization in attempts {
        let refused = server
            .post("/v1/revocations", raise("alice").to_string(), authorization)
            .await;
        assert_eq!(refused.status, 401, "{authorization:?}");
        assert_eq!(
            server.get("/v1/audit/events", authorization).await.status,
            401,
            "{authorization:?}"
        );
    }
    assert_eq!(
        server.get("/v1/log", &[]).await.json(),
        json!({"log_id": server.log_id(), "seq": 0, "max_token_lifetime_s": 90 * 24 * 60 * 60})
    );
    assert_eq!(server.get("/v1/audit/events", &[&right]).await.status, 200);
}

#[tokio::test]
async fn each_kind_of_subject_can_be_revoked_and_repeating_it_changes_nothing() {
    let place = Place::new();
    let server = place.start().await;
    let disable = json!({"principal": {"issuer": ISSUER}, "action": "disable"});
    let bodies = [
        disable,
        json!({"key": {"thumbprint": THUMBPRINT}}),
        json!({"issuer": {"issuer": ISSUER, "issued_up_to": 1_700_000_000}}),
        delegation("one"),
    ];
    for (body, seq) in bodies.iter().zip(1..) {
        let first = server.revoke(body.clone()).await;
        assert_eq!(
            (&first["log_id"], &first["seq"]),
            (&json!(server.log_id()), &json!(seq))
        );
        assert_eq!(first["changed"], true);
        assert_eq!(first.get("epoch").is_some(), seq == 1);
    }
    for (body, seq) in bodies.iter().zip(1..) {
        let again = server.revoke(body.clone()).await;
        assert_eq!((&again["seq"], &again["changed"]), (&json!(seq), &json!(false)));
    }
}

#[tokio::test]
async fn a_raise_always_raises_by_a_step_that_is_not_always_the_same() {
    let place = Place::new();
    let server = place.start().await;
    let mut epochs = vec![0];
    for _ in 0..5 {
        epochs.push(server.revoke(raise("alice")).await["epoch"].as_u64().unwrap());
    }
    let steps: Vec<u64> = epochs.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(steps.iter().all(|step| (1..=1 << 32).contains(step)), "{steps:?}");
    assert!(steps.iter().any(|step| *step != steps[0]), "{steps:?}");
}

#[tokio::test]
async fn a_disabled_principal_is_enabled_under_a_new_epoch() {
    let place = Place::new();
    let server = place.start().await;
    let body = |action: &str| json!({"principal": {"issuer": ISSUER, "subject": "alice"}, "action": action});
    assert_eq!(server.try_revoke(body("enable")).await.status, 409);
    let disabled = server.revoke(body("disable")).await["epoch"].as_u64();
    let enabled = server.revoke(body("enable")).await["epoch"].as_u64();
    assert!(enabled > disabled && disabled > Some(0));
    assert_eq!(server.revoke(body("enable")).await["changed"], false);
}

#[tokio::test]
async fn an_invalid_body_is_refused_with_the_reason() {
    let place = Place::new();
    let server = place.start().await;
    let principal = json!({"issuer": ISSUER});
    let cases: [(Value, &str); 19] = [
        (json!({}), "exactly one"),
        (
            json!({"principal": principal, "key": {"thumbprint": THUMBPRINT}}),
            "exactly one",
        ),
        (json!({"principal": principal, "comment": "x"}), "at comment"),
        (json!({"principal": principal, "reason": "x".repeat(513)}), "at reason"),
        (json!({"principal": {"issuer": ISSUER, "sub": "x"}}), "at principal"),
        (
            json!({"principal": {"issuer": ISSUER, "subject": null}}),
            "at principal.subject",
        ),
        (json!({"principal": [ISSUER, "alice"]}), "at principal"),
        (json!({"principal": principal, "key": null}), "at key"),
        (json!([principal]), "in the body"),
        (json!({"principal": {"issuer": ""}}), "an issuer has"),
        (
            json!({"principal": {"issuer": ISSUER, "subject": ""}}),
            "a subject, if there is one",
        ),
        (json!({"principal": principal, "action": "revoke"}), "at action"),
        (
            json!({"key": {"thumbprint": THUMBPRINT}, "action": "raise"}),
            "action goes with a principal",
        ),
        (json!({"key": {"thumbprint": "x"}}), "RFC 7638"),
        (
            json!({"delegation": {"issuer": ISSUER, "id": "leaf", "under": ["root", ""]}}),
            "1 to 256 bytes",
        ),
        (
            json!({"delegation": {"issuer": ISSUER, "id": "leaf", "under": vec!["root"; 9]}}),
            "at most 8",
        ),
        (
            json!({"delegation": {"issuer": ISSUER, "id": "leaf", "under": "root"}}),
            "at delegation.under",
        ),
        (
            json!({"issuer": {"issuer": ISSUER, "issued_up_to": -1}}),
            "at issuer.issued_up_to",
        ),
        (
            json!({"issuer": {"issuer": ISSUER, "issued_up_to": u32::MAX}}),
            "in the future",
        ),
    ];
    for (body, reason) in cases {
        let refused = server.try_revoke(body.clone()).await;
        assert_eq!(refused.status, 400, "{body}");
        assert_eq!(refused.content_type, "application/problem+json", "{body}");
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(reason), "{body}: {detail}");
    }
    for text in ["", "{", "{}{}", r#"{"principal":{"issuer":"a","issuer":"b"}}"#] {
        let refused = server
            .post("/v1/revocations", text.to_owned(), &[&format!("Bearer {TOKEN}")])
            .await;
        assert_eq!(refused.status, 400, "{text}");
    }
    assert_eq!(server.get("/v1/log", &[]).await.json()["seq"], 0);
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused() {
    let place = Place::new();
    let server = place.start_with(|config| config.limits.max_request_body = 1000).await;
    let refused = server.try_revoke(delegation(&"x".repeat(1000))).await;
    assert_eq!(
        (refused.status, refused.content_type.as_str()),
        (413, "application/problem+json")
    );
}

#[tokio::test]
async fn it_is_ready_only_once_it_has_been_announced() {
    let place = Place::new();
    let server = place.start_unannounced().await;
    let early = server.get("/readyz", &[]).await;
    assert_eq!(early.status, 503);
    assert!(early.text.contains("starting"), "{}", early.text);
    server.running.announce_ready();
    assert_eq!(server.get("/readyz", &[]).await.status, 200);
}

#[tokio::test]
async fn a_grpc_connection_that_sends_nothing_or_too_little_is_closed() {
    let place = Place::new();
    let hello_timeout = Duration::from_millis(100);
    let server = place.start_with(|config| config.timeouts.hello = hello_timeout).await;
    for said in ["", "PRI * HTTP/2.0"] {
        let mut stream = tokio::net::TcpStream::connect(server.running.grpc_address())
            .await
            .unwrap();
        stream.write_all(said.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "{said:?}");
    }
}

/// The client answers pings, so that they do not close it.
#[tokio::test]
async fn a_grpc_connection_that_opens_no_stream_is_closed() {
    let place = Place::new();
    let hello_timeout = Duration::from_millis(100);
    let server = place.start_with(|config| config.timeouts.hello = hello_timeout).await;
    let stream = tokio::net::TcpStream::connect(server.running.grpc_address())
        .await
        .unwrap();
    let (_requests, connection) = h2::client::handshake(stream).await.unwrap();
    let closed = tokio::time::timeout(Duration::from_secs(5), connection).await;
    assert!(closed.is_ok());
}

#[tokio::test]
async fn connections_to_the_grpc_port_leave_the_http_port_its_places() {
    let place = Place::new();
    let server = place.start_with(|config| config.limits.max_connections = 2).await;
    let mut idle = Vec::new();
    for _ in 0..8 {
        idle.push(
            tokio::net::TcpStream::connect(server.running.grpc_address())
                .await
                .unwrap(),
        );
    }
    server.revoke(raise("alice")).await;
}

#[tokio::test]
async fn idle_connections_from_one_address_leave_the_others_theirs() {
    let place = Place::new();
    let server = place.start_with(|config| config.limits.max_connections = 4).await;
    let mut idle = Vec::new();
    for _ in 0..8 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        idle.push(socket.connect(server.running.http_address()).await.unwrap());
    }
    let revoked = tokio::time::timeout(Duration::from_secs(20), server.revoke(raise("alice"))).await;
    assert!(revoked.is_ok(), "the stranger has kept the operator out");
}

#[tokio::test]
async fn a_log_full_of_delegations_takes_the_measures_that_it_recommends() {
    let place = Place::new();
    let server = place.start_with(|config| config.log.max_subjects = 10).await;
    for id in 0..9 {
        server.revoke(delegation(&id.to_string())).await;
    }
    let refused = server.try_revoke(delegation("9")).await;
    assert_eq!(refused.status, 507);
    assert!(refused.text.contains("--max-subjects"), "{}", refused.text);
    server.revoke(raise("alice")).await;
    assert_eq!(server.try_revoke(raise("bob")).await.status, 507);
    server
        .revoke(json!({"issuer": {"issuer": ISSUER, "issued_up_to": 1}}))
        .await;
}

#[tokio::test]
async fn wrong_parameters_of_a_query_are_refused() {
    let place = Place::new();
    let server = place.start().await;
    for query in [
        "limit=0",
        "limit=1001",
        "limit=x",
        "before=-1",
        "decision=maybe",
        "decision=unspecified",
        "colour=red",
    ] {
        let refused = server
            .get(&format!("/v1/audit/events?{query}"), &[&format!("Bearer {TOKEN}")])
            .await;
        assert_eq!(refused.status, 400, "{query}: {}", refused.text);
    }
}

#[tokio::test]
async fn errors_of_the_router_are_problems_too() {
    let place = Place::new();
    let server = place.start().await;
    for (answer, status) in [
        (server.get("/nowhere", &[]).await, 404),
        (server.post("/v1/log", String::new(), &[]).await, 405),
    ] {
        assert_eq!(
            (answer.status, answer.content_type.as_str()),
            (status, "application/problem+json")
        );
    }
}

#[tokio::test]
async fn health_and_metrics_are_open() {
    let place = Place::new();
    let server = place.start().await;
    let (_watcher, _, _) = server.watch_from_snapshot().await;
    server.revoke(raise("alice")).await;
    assert_eq!(server.get("/healthz", &[]).await.status, 200);
    assert_eq!(server.get("/readyz", &[]).await.status, 200);
    let metrics = server.get("/metrics", &[]).await;
    assert!(metrics.content_type.starts_with("application/openmetrics-text"));
    for line in [
        "credence_revocation_subscribers 1",
        "credence_revocation_log_seq 1",
        "credence_revocation_requests_total{operation=\"raise\",source=\"operator\",outcome=\"changed\"} 1",
        "credence_revocation_log_sync_seconds_count 1",
        "credence_ledger_writable 1",
        "credence_http_requests_total{route=\"/v1/revocations\",status=\"200\"} 1",
    ] {
        assert!(
            metrics.text.lines().any(|found| found == line),
            "{line} is not in\n{}",
            metrics.text
        );
    }
    assert!(metrics.text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn every_metric_that_is_shown_is_documented_with_its_kind() {
    let place = Place::new();
    let server = place.start().await;
    server.revoke(raise("alice")).await;
    let guide = include_str!("../../../docs/reference/metrics.md");
    let metrics = server.get("/metrics", &[]).await.text;
    let mut seen = 0;
    for (name, kind) in metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
    {
        let suffix = if kind == "counter" { "_total" } else { "" };
        let row = format!("| `{name}{suffix}` | {kind} |");
        assert!(
            guide.contains(&row),
            "docs/reference/metrics.md should have the row {row}"
        );
        seen += 1;
    }
    assert!(seen > 20, "{metrics}");
}
