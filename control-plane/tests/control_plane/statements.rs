//! Revocation by a signed statement, without a credential.

use std::time::{SystemTime, UNIX_EPOCH};

use credence_control_plane::{Config, TrustAnchorSettings};
use credence_delegation::mint::{self, RevocationOrder};
use credence_delegation::{Limits, Revocation, SigningKey, UnixTime};
use serde_json::json;

use super::harness::{Answer, ISSUER, Place, Server, raise};

const AUDIENCE: &str = "https://revocation.example.com";
const PATH: &str = "/v1/revocations/statements";

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32])
}

fn trusting(config: &mut Config) {
    let anchor = |issuer: &str, seed: u8, asserts_subjects: bool| -> TrustAnchorSettings {
        let jwk = key(seed).public().to_jwk();
        let json = format!(r#"{{"issuer": "{issuer}", "jwk": {jwk}, "asserts_subjects": {asserts_subjects}}}"#);
        serde_json::from_str(&json).unwrap()
    };
    config.settings.audience = vec![AUDIENCE.to_owned()];
    config.settings.trust_anchors = vec![anchor(ISSUER, 1, true), anchor("https://alone.example.com", 2, false)];
}

fn now() -> UnixTime {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    UnixTime(i64::try_from(now).unwrap())
}

fn order(revocation: Revocation) -> RevocationOrder {
    RevocationOrder {
        id: "statement-1".to_owned(),
        issuer: ISSUER.to_owned(),
        subject: Some("alice".to_owned()),
        audience: vec![AUDIENCE.to_owned()],
        issued_at: now(),
        expires_at: now().plus(300),
        revocation,
    }
}

fn signed(order: &RevocationOrder, seed: u8) -> String {
    mint::revocation(order, &key(seed), &Limits::default()).unwrap()
}

fn leaf() -> Revocation {
    Revocation::Delegation {
        under: vec!["root".to_owned()],
        id: "leaf".to_owned(),
    }
}

async fn state(server: &Server, statement: &str) -> Answer {
    server.send(PATH, "application/revocation+jwt", statement).await
}

#[tokio::test]
async fn each_kind_of_statement_is_carried_out() {
    let place = Place::new();
    let server = place.start_with(trusting).await;
    let without_subject = |revocation| RevocationOrder {
        subject: None,
        ..order(revocation)
    };
    for (order, seq) in [
        (order(Revocation::Epoch(0)), 1),
        (order(leaf()), 2),
        (without_subject(Revocation::IssuedUntil(now())), 3),
        (without_subject(Revocation::Key(key(1).public().thumbprint())), 4),
    ] {
        let answer = state(&server, &signed(&order, 1)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let answer = answer.json();
        assert_eq!((&answer["seq"], &answer["changed"]), (&json!(seq), &json!(true)));
        assert_eq!(answer.get("epoch").is_some(), seq == 1);
    }
}

#[tokio::test]
async fn a_captured_statement_does_nothing_twice() {
    let place = Place::new();
    let server = place.start_with(trusting).await;
    let statement = signed(&order(Revocation::Epoch(0)), 1);
    let first = state(&server, &statement).await.json();
    server.revoke(raise("alice")).await;
    let again = state(&server, &statement).await;
    assert_eq!(
        (again.status, &again.json()["changed"]),
        (200, &json!(false)),
        "{first}"
    );
    assert_eq!(server.get("/v1/log", &[]).await.json()["seq"], 2);
    let ahead = state(&server, &signed(&order(Revocation::Epoch(7)), 1)).await;
    assert_eq!(ahead.status, 200, "an epoch behind the present one: {}", ahead.text);
    let ahead = state(&server, &signed(&order(Revocation::Epoch((1 << 53) - 1)), 1)).await;
    assert_eq!(ahead.status, 409, "{}", ahead.text);
}

#[tokio::test]
async fn a_revoked_key_revokes_nothing_but_itself_again() {
    let place = Place::new();
    let server = place.start_with(trusting).await;
    let own_key = key(1).public().thumbprint();
    let of_issuer = |revocation| RevocationOrder {
        subject: None,
        ..order(revocation)
    };
    let itself = signed(&of_issuer(Revocation::Key(own_key)), 1);
    assert_eq!(state(&server, &itself).await.json()["changed"], json!(true));
    for order in [
        order(Revocation::Epoch(0)),
        order(leaf()),
        of_issuer(Revocation::IssuedUntil(now())),
    ] {
        let refused = state(&server, &signed(&order, 1)).await;
        assert_eq!(refused.status, 403, "{}", refused.text);
        assert!(refused.text.contains("is revoked"), "{}", refused.text);
    }
    let again = state(&server, &itself).await;
    assert_eq!((again.status, &again.json()["changed"]), (200, &json!(false)));
    assert_eq!(server.get("/v1/log", &[]).await.json()["seq"], 1);
}

#[tokio::test]
async fn an_invalid_statement_is_refused_by_the_name_of_its_claim() {
    let place = Place::new();
    let server = place.start_with(trusting).await;
    let good = || order(Revocation::Epoch(0));
    let with = |change: &dyn Fn(&mut RevocationOrder)| {
        let mut order = good();
        change(&mut order);
        order
    };
    let expired = with(&|order| {
        order.issued_at = UnixTime(1_700_000_000);
        order.expires_at = UnixTime(1_700_000_300);
    });
    let elsewhere = with(&|order| order.audience = vec!["https://elsewhere.example".to_owned()]);
    let unknown = with(&|order| order.issuer = "https://unknown.example".to_owned());
    let speaks_for_another = with(&|order| order.issuer = "https://alone.example.com".to_owned());
    let foreign_key = RevocationOrder {
        subject: None,
        ..order(Revocation::Key(key(2).public().thumbprint()))
    };
    let forged = signed(&good(), 9);
    for (statement, status, claim) in [
        (signed(&expired, 1), 400, json!("exp")),
        (signed(&elsewhere, 1), 400, json!("aud")),
        (signed(&unknown, 1), 403, json!("iss")),
        (signed(&speaks_for_another, 2), 400, json!("sub")),
        (signed(&foreign_key, 1), 403, json!("revoke.key")),
        (forged, 403, json!(null)),
        ("a.b.c".to_owned(), 400, json!(null)),
        (String::new(), 400, json!(null)),
        ("x".repeat(8_193), 413, json!(null)),
        ("x".repeat(100_000), 413, json!(null)),
    ] {
        let refused = state(&server, &statement).await;
        assert_eq!(refused.content_type, "application/problem+json");
        let problem = refused.json();
        assert_eq!((refused.status, &problem["claim"]), (status, &claim), "{problem}");
    }
    let as_json = server.send(PATH, "application/json", &signed(&good(), 1)).await;
    assert_eq!(as_json.status, 415);
    assert_eq!(server.get("/v1/log", &[]).await.json()["seq"], 0);
}

#[tokio::test]
async fn without_trust_anchors_no_statement_is_accepted() {
    let place = Place::new();
    let server = place.start().await;
    let refused = state(&server, &signed(&order(Revocation::Epoch(0)), 1)).await;
    assert_eq!(refused.status, 404);
    assert!(refused.text.contains("trust_anchors"), "{}", refused.text);
}

#[tokio::test]
async fn clients_with_and_without_a_credential_have_separate_rates() {
    let place = Place::new();
    let server = place
        .start_with(|config| {
            trusting(config);
            let limits = &mut config.settings.limits;
            limits.statements_per_second_per_address = 1;
            (limits.unauthenticated_requests_per_second, limits.unauthenticated_burst) = (1, 20);
            (limits.requests_per_second, limits.burst) = (1, 3);
        })
        .await;
    let mut stated = Vec::new();
    for _ in 0..3 {
        stated.push(state(&server, "a.b.c").await);
    }
    assert!(stated.iter().any(|answer| answer.status == 400));
    let limited = stated.iter().find(|answer| answer.status == 429).unwrap();
    assert_eq!(limited.retry_after, Some(1));
    let mut revoked = Vec::new();
    for _ in 0..5 {
        revoked.push(server.try_revoke(raise("alice")).await.status);
    }
    assert_eq!((revoked.first(), revoked.last()), (Some(&200), Some(&429)));
    let mut guessed = Vec::new();
    for _ in 0..25 {
        guessed.push(server.get("/v1/audit/events", &["Bearer guess"]).await.status);
    }
    assert_eq!((guessed.first(), guessed.last()), (Some(&401), Some(&429)));
    assert_eq!(server.get("/v1/log", &[]).await.status, 429);
}
