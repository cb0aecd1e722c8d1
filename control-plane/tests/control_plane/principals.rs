//! `GET /v1/principals`: a principal's state and history.

use serde_json::{Value, json};

use super::harness::{ISSUER, Place, Server, TOKEN, raise};

/// base64url of `["https://id.example.com","alice"]`.
const ALICE: &str = "WyJodHRwczovL2lkLmV4YW1wbGUuY29tIiwiYWxpY2UiXQ";

async fn principal(server: &Server, path: &str) -> Value {
    let answer = server.get(path, &[&format!("Bearer {TOKEN}")]).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

fn act(action: &str, reason: &str) -> Value {
    json!({"principal": {"issuer": ISSUER, "subject": "alice"}, "action": action, "reason": reason})
}

#[tokio::test]
async fn acknowledged_changes_are_shown_at_once_newest_first() {
    let server = Place::new().start().await;
    let raised = server.revoke(act("raise", "laptop lost")).await;
    let disabled = server.revoke(act("disable", "left")).await;
    let alice = principal(&server, &format!("/v1/principals/{ALICE}")).await;
    assert_eq!(
        (&alice["id"], &alice["issuer"], &alice["subject"]),
        (&json!(ALICE), &json!(ISSUER), &json!("alice"))
    );
    assert_eq!((&alice["epoch"], &alice["seq"]), (&disabled["epoch"], &disabled["seq"]));
    assert_eq!(
        (&alice["disabled"], &alice["disabled_by"]),
        (&json!(true), &json!(["operator"]))
    );
    let history = alice["history"].as_array().unwrap();
    assert_eq!(history.len(), 2);
    assert_eq!(history[0]["at"], alice["raised_at"]);
    for (entry, done, operation, reason) in [
        (&history[0], &disabled, "disable", "left"),
        (&history[1], &raised, "raise", "laptop lost"),
    ] {
        assert_eq!((&entry["seq"], &entry["epoch"]), (&done["seq"], &done["epoch"]));
        assert_eq!(
            (&entry["operation"], &entry["reason"]),
            (&json!(operation), &json!(reason))
        );
        assert_eq!(
            (&entry["source"], &entry["by"]),
            (&json!("operator"), &json!("operator"))
        );
    }
    let by_name = principal(&server, &format!("/v1/principals?issuer={ISSUER}&subject=alice")).await;
    assert_eq!(by_name, alice);
}

#[tokio::test]
async fn a_principal_that_was_never_raised_is_at_epoch_0() {
    let server = Place::new().start().await;
    server.revoke(raise("alice")).await;
    let issuer = principal(&server, &format!("/v1/principals?issuer={ISSUER}")).await;
    let expected = json!({
        "id": "WyJodHRwczovL2lkLmV4YW1wbGUuY29tIl0", "issuer": ISSUER, "epoch": 0, "disabled": false,
        "disabled_by": [], "history": [], "live_delegations": [],
    });
    assert_eq!(issuer, expected);
}

#[tokio::test]
async fn a_history_survives_a_restart_and_is_rebuilt_if_its_index_is_lost() {
    let place = Place::new();
    let server = place.start().await;
    server.revoke(act("raise", "one")).await;
    server.revoke(act("raise", "two")).await;
    let path = format!("/v1/principals/{ALICE}");
    let before = principal(&server, &path).await;
    drop(server);
    let server = place.start().await;
    assert_eq!(principal(&server, &path).await, before);
    drop(server);
    std::fs::remove_file(place.path("log/histories.redb")).unwrap();
    let server = place.start().await;
    assert_eq!(principal(&server, &path).await, before);
}

#[tokio::test]
async fn a_damaged_index_of_histories_is_set_aside_and_stops_nothing() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 4] = [
        ("too short", |file| file.truncate(14)),
        ("cut", |file| file.truncate(20_000)),
        ("another kind of file", |file| file.fill(b'x')),
        ("zeros where its pages were", |file| file[4_096..].fill(0)),
    ];
    for (what, damage) in damages {
        let place = Place::new();
        let server = place.start().await;
        server.revoke(act("raise", "one")).await;
        principal(&server, &format!("/v1/principals/{ALICE}")).await;
        server.running.shutdown().await;
        let path = place.path("log/histories.redb");
        let mut file = std::fs::read(&path).unwrap();
        damage(&mut file);
        std::fs::write(&path, file).unwrap();
        let server = place.start().await;
        server.revoke(act("raise", "two")).await;
        let alice = principal(&server, &format!("/v1/principals/{ALICE}")).await;
        assert_eq!(alice["history"].as_array().unwrap().len(), 2, "{what}");
        assert!(place.path("log/histories.set-aside").exists(), "{what}");
    }
}

#[tokio::test]
async fn the_history_of_another_copy_of_the_log_is_not_taken_for_this_ones() {
    let (place, other) = (Place::new(), Place::new());
    for (place, reason) in [(&place, "ours"), (&other, "theirs")] {
        let server = place.start().await;
        server.revoke(act("raise", reason)).await;
    }
    std::fs::copy(other.path("log/histories.redb"), place.path("log/histories.redb")).unwrap();
    let server = place.start().await;
    let alice = principal(&server, &format!("/v1/principals/{ALICE}")).await;
    assert_eq!(alice["history"][0]["reason"], "ours");
    assert_eq!(alice["history"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn no_more_is_kept_than_is_configured() {
    let server = Place::new().start_with(|config| config.log.history_kept = 3).await;
    for number in 0..5 {
        server.revoke(act("raise", &format!("number {number}"))).await;
    }
    let alice = principal(&server, &format!("/v1/principals/{ALICE}")).await;
    let reasons: Vec<_> = alice["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["reason"])
        .collect();
    assert_eq!(reasons, ["number 4", "number 3", "number 2"]);
}

#[tokio::test]
async fn another_spelling_of_an_id_and_other_parameters_are_refused() {
    let server = Place::new().start().await;
    for path in [
        "/v1/principals/alice",
        &format!("/v1/principals/{ALICE}="),
        "/v1/principals",
        "/v1/principals?issuer=",
        "/v1/principals?issuer=a&issuer=b",
        "/v1/principals?issuer=a&name=b",
    ] {
        let answer = server.get(path, &[&format!("Bearer {TOKEN}")]).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text);
    }
    assert_eq!(server.get(&format!("/v1/principals/{ALICE}"), &[]).await.status, 401);
}
