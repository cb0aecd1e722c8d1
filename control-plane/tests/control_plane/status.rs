//! The revocation status of a delegation, for relying parties other than Envoy.

use std::time::{SystemTime, UNIX_EPOCH};

use credence_control_plane::{Role, TokenSettings, TrustAnchorSettings};
use credence_delegation::mint::{self, Grant, RootGrant};
use credence_delegation::{Limits, SigningKey, UnixTime, Value as Json};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::harness::{Answer, ISSUER, Place, Server, TOKEN, delegation, raise};

const KEY: &str = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs";
const OTHER_KEY: &str = "MzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs";

fn url(more: &str) -> String {
    format!("/v1/delegations/status?issuer={ISSUER}&subject=alice&key={KEY}&key={OTHER_KEY}&id=root&id=leaf{more}")
}

async fn ask(server: &Server, more: &str) -> Answer {
    let answer = server.get_with(&url(more), &[]).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer
}

async fn reason(server: &Server, more: &str) -> Option<String> {
    let answer = ask(server, more).await.json();
    assert_eq!(answer["log_id"], server.log_id());
    match answer["status"].as_str() {
        Some("active") => None,
        Some("revoked") => Some(answer["reason"].as_str().unwrap().to_owned()),
        _ => panic!("{answer}"),
    }
}

#[tokio::test]
async fn each_kind_of_revocation_counts_as_in_the_filters() {
    let floor = json!({"issuer": {"issuer": ISSUER, "issued_up_to": 1_700_000_000}});
    let disable = json!({"principal": {"issuer": ISSUER, "subject": "alice"}, "action": "disable"});
    for (order, expected) in [
        (raise("alice"), "revoked_principal"),
        (disable, "disabled_principal"),
        (floor, "revoked_issuer"),
        (json!({"key": {"thumbprint": OTHER_KEY}}), "revoked_key"),
        (delegation("leaf"), "revoked_delegation"),
    ] {
        let place = Place::new();
        let server = place.start().await;
        let facts = "&epoch=0&issued_at=1700000000";
        assert_eq!(reason(&server, facts).await, None);
        server.revoke(raise("bob")).await;
        server.revoke(delegation("another")).await;
        assert_eq!(reason(&server, facts).await, None);
        server.revoke(order).await;
        assert_eq!(reason(&server, facts).await.as_deref(), Some(expected));
    }
}

#[tokio::test]
async fn a_missing_parameter_counts_as_the_worst_case() {
    let place = Place::new();
    let server = place.start().await;
    server
        .revoke(json!({"issuer": {"issuer": ISSUER, "issued_up_to": 1_700_000_000}}))
        .await;
    // Including the allowed skew, as for a raise.
    for issued_at in ["&issued_at=1700000000", "&issued_at=1700000030"] {
        assert_eq!(reason(&server, issued_at).await.as_deref(), Some("revoked_issuer"));
    }
    assert_eq!(reason(&server, "&issued_at=1700000031").await, None);
    assert_eq!(reason(&server, "").await.as_deref(), Some("revoked_issuer"));
    let epoch = server.revoke(raise("alice")).await["epoch"].as_u64().unwrap();
    let later = "&issued_at=4000000000";
    assert_eq!(reason(&server, &format!("&epoch={epoch}{later}")).await, None);
    assert_eq!(reason(&server, &format!("&asserts_subjects=true{later}")).await, None);
    for unknown in [later, "&issued_at=1700000031&asserts_subjects=true"] {
        assert_eq!(reason(&server, unknown).await.as_deref(), Some("revoked_principal"));
    }
}

/// A holder chooses the ids of the tokens that it derives, and may reuse that of another root.
#[tokio::test]
async fn a_delegation_named_with_the_ids_above_it_is_revoked_only_there() {
    let place = Place::new();
    let server = place.start().await;
    let under =
        |under: Value| json!({"delegation": {"issuer": ISSUER, "subject": "alice", "id": "two", "under": under}});
    let first = server.revoke(under(json!(["one"]))).await;
    assert_eq!(first["changed"], json!(true));
    assert_eq!(server.revoke(under(json!(["one"]))).await["changed"], json!(false));
    let facts = |ids: Value| json!({"issuer": ISSUER, "subject": "alice", "keys": [KEY], "ids": ids});
    let paths = [
        json!(["one", "two"]),
        json!(["one", "two", "leaf"]),
        json!(["two"]),
        json!(["two", "leaf"]),
    ];
    let answer = batch(&server, json!(paths.clone().map(facts))).await.json();
    let statuses = |answer: &Value| -> Vec<String> {
        let results = answer["results"].as_array().unwrap().iter();
        results
            .map(|result| result["status"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(statuses(&answer), ["revoked", "revoked", "active", "active"]);
    // Revoked by its id alone, it is revoked in every chain.
    assert_eq!(server.revoke(delegation("two")).await["changed"], json!(true));
    let answer = batch(&server, json!(paths.map(facts))).await.json();
    assert_eq!(statuses(&answer), ["revoked"; 4]);
}

#[tokio::test]
async fn an_answer_that_has_not_changed_is_not_sent_again() {
    let place = Place::new();
    let server = place.start_with(|config| config.settings.status.max_age = 5).await;
    let first = ask(&server, "&epoch=0&issued_at=1").await;
    let tag = first.etag.unwrap();
    assert_eq!(first.cache_control.as_deref(), Some("private, max-age=5"));
    let again = async || {
        server
            .get_with(&url("&epoch=0&issued_at=1"), &[("if-none-match", &tag)])
            .await
    };
    server.revoke(raise("bob")).await;
    let unchanged = again().await;
    assert_eq!((unchanged.status, unchanged.text.as_str()), (304, ""));
    assert_eq!(unchanged.etag.as_ref(), Some(&tag));
    server.revoke(raise("alice")).await;
    let changed = again().await;
    assert_eq!(
        (changed.status, changed.json()["reason"].as_str()),
        (200, Some("revoked_principal"))
    );
    assert_ne!(changed.etag.as_ref(), Some(&tag));
}

#[tokio::test]
async fn a_question_that_could_be_answered_wrongly_is_refused() {
    let place = Place::new();
    let server = place.start().await;
    let good = format!("issuer={ISSUER}&key={KEY}&id=a");
    for (query, reason) in [
        (format!("key={KEY}&id=a"), "issuer is missing"),
        (format!("issuer={ISSUER}&id=a"), "key is missing"),
        (format!("issuer={ISSUER}&key={KEY}"), "id is missing"),
        (format!("{good}&issuer=x"), "twice"),
        (format!("{good}&subject=%ff"), "not UTF-8"),
        (format!("{good}&subject="), "a subject, if there is one"),
        (format!("{good}&key=x"), "43 characters"),
        (format!("{good}&epoch=-1"), "whole number"),
        (format!("{good}&epoch=9007199254740992"), "2^53"),
        (format!("{good}&issued_at=now"), "whole number"),
        (format!("{good}&asserts_subjects=yes"), "true or false"),
        (format!("{good}&sub=alice"), "the query has"),
        (format!("{good}{}", "&id=a".repeat(32)), "at most 32"),
    ] {
        let refused = server.get_with(&format!("/v1/delegations/status?{query}"), &[]).await;
        assert_eq!(refused.status, 400, "{query}");
        assert!(refused.text.contains(reason), "{query}: {}", refused.text);
    }
}

#[tokio::test]
async fn a_batch_has_an_answer_for_each_at_one_position() {
    let place = Place::new();
    let server = place.start().await;
    server.revoke(delegation("leaf")).await;
    let facts = |id: &str| json!({"issuer": ISSUER, "subject": "alice", "keys": [KEY], "ids": [id]});
    let answer = batch(&server, json!([facts("root"), facts("leaf")])).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(
        answer.json(),
        json!({"log_id": server.log_id(), "seq": 1, "results": [
            {"status": "active"},
            {"status": "revoked", "reason": "revoked_delegation"},
        ]})
    );
    let most: Vec<_> = (0..1000).map(|id| facts(&id.to_string())).collect();
    assert_eq!(
        batch(&server, json!(most)).await.json()["results"]
            .as_array()
            .unwrap()
            .len(),
        1000
    );
    let too_many: Vec<_> = (0..1001).map(|id| facts(&id.to_string())).collect();
    for (delegations, reason) in [
        (json!([]), "1 to 1000"),
        (json!(too_many), "1 to 1000"),
        (
            json!([facts("a"), {"issuer": ISSUER}]),
            "at delegations[1]: key is missing",
        ),
        (json!([["a"]]), "at delegations[0]"),
        (
            json!([{"chain": "x", "issuer": ISSUER}]),
            "write either chain or the facts",
        ),
        (json!([{"chain": "a.b.c"}]), "at delegations[0]: at chain"),
        (json!([{"chain": null}]), "at delegations[0].chain"),
    ] {
        let refused = batch(&server, delegations).await;
        assert_eq!(refused.status, 400);
        assert!(refused.text.contains(reason), "{}", refused.text);
    }
    let large = json!([facts(&"x".repeat(2 << 20))]);
    assert_eq!(batch(&server, large).await.status, 413);
}

#[tokio::test]
async fn a_chain_is_asked_about_as_it_is_presented() {
    let (issuer, holder) = (key(1), key(2));
    let anchor: TrustAnchorSettings = serde_json::from_str(&format!(
        r#"{{"issuer": "{ISSUER}", "jwk": {}, "asserts_subjects": true}}"#,
        issuer.public().to_jwk()
    ))
    .unwrap();
    let place = Place::new();
    let server = place
        .start_with(|config| config.settings.trust_anchors = vec![anchor])
        .await;
    let chain = root(&issuer, &holder);
    let asked = json!([{"chain": chain}]);
    assert_eq!(
        batch(&server, asked.clone()).await.json()["results"][0]["status"],
        "active"
    );
    server
        .revoke(json!({"key": {"thumbprint": holder.public().thumbprint().to_string()}}))
        .await;
    assert_eq!(
        batch(&server, asked.clone()).await.json()["results"][0]["reason"],
        "revoked_key"
    );
    server.revoke(raise("alice")).await;
    assert_eq!(
        batch(&server, asked).await.json()["results"][0]["reason"],
        "revoked_principal"
    );
}

#[tokio::test]
async fn a_credential_bound_to_issuers_asks_about_theirs() {
    let watcher = TokenSettings {
        name: "watcher".to_owned(),
        sha256: Sha256::digest("watcher-token").into(),
        roles: vec![Role::Watcher],
        issuers: Some(vec!["https://other.example.com".to_owned()]),
        expires: None,
    };
    let place = Place::new();
    let server = place
        .start_with(|config| config.settings.access.tokens = vec![watcher])
        .await;
    let refused = server.get(&url(""), &["Bearer watcher-token"]).await;
    assert_eq!(refused.status, 403);
    let other = url("").replace(ISSUER, "https://other.example.com");
    assert_eq!(server.get(&other, &["Bearer watcher-token"]).await.status, 200);
    assert_eq!(server.get(&other, &[]).await.status, 401);
}

async fn batch(server: &Server, delegations: Value) -> Answer {
    let body = json!({ "delegations": delegations }).to_string();
    server
        .post("/v1/delegations/status", body, &[&format!("Bearer {TOKEN}")])
        .await
}

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32])
}

fn root(issuer: &SigningKey, holder: &SigningKey) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let now = UnixTime(i64::try_from(now).unwrap());
    let grant = RootGrant {
        issuer: ISSUER.to_owned(),
        subject: Some("alice".to_owned()),
        epoch: Some(0),
        agent_name: None,
        grant: Grant {
            id: "root".to_owned(),
            issued_at: now,
            expires_at: now.plus(60),
            holder: holder.public(),
            holder_certificate: None,
            holder_spiffe_id: None,
            max_depth: 1,
            tools: Json::object([("read".to_owned(), Json::object([]))]),
            audience: Vec::new(),
        },
    };
    mint::root(&grant, issuer, &Limits::default()).unwrap()
}
