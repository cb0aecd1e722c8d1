//! `POST /v1/audit/erasures`, and who may read published tiles.

use std::time::{SystemTime, UNIX_EPOCH};

use credence_control_plane::{Role, TileAccess, TokenSettings};
use credence_wire::v1;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::access::ROLES;
use super::harness::{Answer, ISSUER, Place, Server, TOKEN, event, events};

const ERASURES: &str = "/v1/audit/erasures";

async fn erase(server: &Server, token: &str, body: Value) -> Answer {
    let authorization = format!("Bearer {token}");
    server.post(ERASURES, body.to_string(), &[&authorization]).await
}

fn request_17(subject: &str) -> Value {
    json!({"principal": {"issuer": ISSUER, "subject": subject}, "reason": "request 17"})
}

/// A token with its role's name.
fn token(role: Role, issuer: Option<&str>) -> TokenSettings {
    TokenSettings {
        name: role.name().to_owned(),
        sha256: Sha256::digest(role.name()).into(),
        roles: vec![role],
        issuers: issuer.map(|issuer| vec![issuer.to_owned()]),
        expires: None,
    }
}

/// An event whose delegation is valid for another hour.
fn living_event() -> v1::Entry {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut entry = event("a");
    let Some(v1::entry::Entry::Event(event)) = &mut entry.entry else {
        panic!("no event")
    };
    event.time_unix_nano = now.as_nanos() as u64;
    event.expires_at = now.as_secs() as i64 + 3600;
    entry
}

async fn live_delegations(server: &Server) -> usize {
    let authorization = format!("Bearer {TOKEN}");
    let path = format!("/v1/principals?issuer={ISSUER}&subject=alice");
    let answer = server.get(&path, &[&authorization]).await;
    answer.json()["live_delegations"].as_array().map_or(0, Vec::len)
}

#[tokio::test]
async fn an_erasure_removes_a_principals_data_and_records_who_and_why_but_not_whose() {
    let place = Place::new();
    let server = place.start().await;
    let (mut reporter, _) = server.report(None).await.unwrap();
    reporter.batch(1, vec![living_event()]).await;
    reporter.acknowledged().await;
    assert_eq!(live_delegations(&server).await, 1);

    let erased = erase(&server, TOKEN, request_17("alice")).await;
    assert_eq!(erased.status, 200, "{}", erased.text);
    let index = erased.json()["index"].as_u64().unwrap();
    assert_eq!(erased.json(), json!({"erased": true, "index": index}));
    assert_eq!(live_delegations(&server).await, 0);
    assert_eq!(server.events("?principal_subject=alice").await, Vec::<Value>::new());
    assert_eq!(server.events("?kind=erased").await.len(), 1);
    let note = server.events("?kind=note").await.remove(0);
    assert_eq!((&note["index"], &note["by"]), (&json!(index), &json!("operator")));
    assert_eq!(note["reason"], "request 17");
    assert!(!note.to_string().contains("alice"), "{note}");

    let again = erase(&server, TOKEN, request_17("alice")).await;
    assert_eq!((again.status, again.json()), (200, json!({"erased": false})));
    server.wait_for("credence_ledger_erasures_total 1").await;

    drop((reporter, server));
    let server = place.start().await;
    assert_eq!(live_delegations(&server).await, 0);
    assert_eq!(server.events("?principal_subject=alice").await, Vec::<Value>::new());
}

#[tokio::test]
async fn only_admins_erase_and_those_bound_to_issuers_only_theirs() {
    let place = Place::new();
    for (issuer, expected) in [(None, 200), (Some(ISSUER), 200), (Some("https://other.example"), 403)] {
        let server = place
            .start_with(|config| {
                config.settings.access.tokens = ROLES.iter().map(|role| token(*role, issuer)).collect();
            })
            .await;
        for role in ROLES {
            let answer = erase(&server, role.name(), request_17("alice")).await;
            let expected = if role == Role::Admin { expected } else { 403 };
            assert_eq!(answer.status, expected, "{role:?} of {issuer:?}: {}", answer.text);
        }
        let stranger = server.post(ERASURES, request_17("alice").to_string(), &[]).await;
        assert_eq!(stranger.status, 401);
    }
}

#[tokio::test]
async fn an_incomplete_request_erases_nothing_and_says_what_is_missing() {
    let place = Place::new();
    let server = place.start().await;
    let (mut reporter, _) = server.report(None).await.unwrap();
    reporter.batch(1, events(&["a"])).await;
    reporter.acknowledged().await;
    let principal = json!({"issuer": ISSUER, "subject": "alice"});
    for (body, said) in [
        (json!({"principal": principal}), "at reason"),
        (json!({"principal": principal, "reason": ""}), "at reason"),
        (json!({"principal": principal, "reason": "x".repeat(513)}), "at reason"),
        (json!({"reason": "request 17"}), "at principal"),
        (json!({"principal": {"subject": "alice"}, "reason": "r"}), "issuer"),
        (json!({"principal": principal, "reason": "r", "all": true}), "all"),
    ] {
        let answer = erase(&server, TOKEN, body).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.text.contains(said), "{said:?} is not in {}", answer.text);
    }
    assert_eq!(server.events("?principal_subject=alice").await.len(), 1);
}

#[tokio::test]
async fn private_tiles_need_a_credential_that_may_read_evidence() {
    let place = Place::new();
    for (tiles, stranger, watcher) in [(TileAccess::Public, 200, 200), (TileAccess::Private, 401, 403)] {
        let server = place
            .start_with(|config| {
                config.settings.ledger.tiles = tiles;
                config.settings.access.tokens = ROLES.iter().map(|role| token(*role, None)).collect();
            })
            .await;
        let (mut reporter, _) = server.report(None).await.unwrap();
        reporter.batch(1, events(&["a"])).await;
        reporter.acknowledged().await;
        // All records so far are published.
        server.running.shutdown().await;
        let server = place
            .start_with(|config| {
                config.settings.ledger.tiles = tiles;
                config.settings.access.tokens = ROLES.iter().map(|role| token(*role, None)).collect();
            })
            .await;
        for path in [
            "/ledger/checkpoint",
            "/ledger/checkpoint/witnessed",
            "/ledger/key",
            "/ledger/proof/0",
        ] {
            let status = async |authorization: &[&str]| server.get(path, authorization).await.status;
            assert_eq!(status(&[]).await, stranger, "{path}");
            assert_eq!(status(&["Bearer watcher"]).await, watcher, "{path}");
            assert_eq!(status(&["Bearer auditor"]).await, 200, "{path}");
        }
        if tiles == TileAccess::Private {
            for path in ["/ledger/tile/0/000.p/1", "/ledger/tile/entries/000.p/1"] {
                assert_eq!(server.get(path, &[]).await.status, stranger, "{path}");
                assert_eq!(server.get(path, &["Bearer watcher"]).await.status, watcher, "{path}");
            }
        }
    }
}
