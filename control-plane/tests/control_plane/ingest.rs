//! `/v1/audit/sources`: evidence over HTTP, with the guarantees of the gRPC stream.

use std::time::Duration;

use credence_control_plane::{Role, TokenSettings};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::harness::{Answer, ISSUER, Place, Server, TOKEN};

/// A source of the token's holder.
struct Source<'a> {
    server: &'a Server,
    authorization: String,
    path: String,
    name: String,
}

impl<'a> Source<'a> {
    async fn begin(server: &'a Server, token: &str) -> Self {
        let authorization = format!("Bearer {token}");
        let body = json!({"node": "gateway-1", "plugin": "nginx"}).to_string();
        let begun = server.post("/v1/audit/sources", body, &[&authorization]).await;
        assert_eq!(begun.status, 201, "{}", begun.text);
        let begun = begun.json();
        assert_eq!(begun["acknowledged"], 0);
        let path = format!("/v1/audit/sources/{}", begun["ticket"].as_str().unwrap());
        let name = begun["source"].as_str().unwrap().to_owned();
        Self {
            server,
            authorization,
            path,
            name,
        }
    }

    async fn send(&self, first_sequence: u64, entries: &[Value]) -> Answer {
        let body = json!({"first_sequence": first_sequence, "entries": entries});
        self.send_text(body.to_string()).await
    }

    async fn send_text(&self, body: String) -> Answer {
        self.server
            .post(&format!("{}/batches", self.path), body, &[&self.authorization])
            .await
    }

    /// Sends entries and expects them to be durable up to this number.
    async fn store(&self, first_sequence: u64, entries: &[Value], acknowledged: u64) {
        let answer = self.send(first_sequence, entries).await;
        assert_eq!(
            (answer.status, &answer.json()),
            (200, &json!({"acknowledged": acknowledged}))
        );
    }

    async fn position(&self) -> Answer {
        self.server.get(&self.path, &[&self.authorization]).await
    }

    async fn end(&self) -> u16 {
        let token = self.authorization.strip_prefix("Bearer ").unwrap();
        self.server.any("delete", &self.path, token).await
    }

    /// The numbers of its entries in the ledger, and its changes, oldest first.
    async fn recorded(&self) -> Vec<String> {
        let events = self.server.events("").await;
        let of_source = events
            .iter()
            .rev()
            .filter(|event| event["source"] == self.name.as_str());
        of_source
            .map(|event| match event["sequence"].as_u64() {
                Some(sequence) => sequence.to_string(),
                None => event["change"].as_str().unwrap().to_owned(),
            })
            .collect()
    }
}

fn decision(tool: &str) -> Value {
    json!({
        "kind": "decision", "time": "2027-01-15T08:00:00Z", "decision": "allow", "reason": "ok", "tool": tool,
        "principal": {"issuer": ISSUER, "subject": "alice"},
    })
}

fn reporter(name: &str, issuers: Option<&[&str]>) -> TokenSettings {
    TokenSettings {
        name: name.to_owned(),
        sha256: Sha256::digest(name).into(),
        roles: vec![Role::Reporter],
        issuers: issuers.map(|issuers| issuers.iter().map(|issuer| (*issuer).to_owned()).collect()),
        expires: None,
    }
}

#[tokio::test]
async fn reported_entries_are_read_back_unchanged() {
    let place = Place::new();
    let server = place.start().await;
    let source = Source::begin(&server, TOKEN).await;
    let sent = [
        json!({
            "kind": "decision", "time": "2027-01-15T08:00:00.123456789Z", "decision": "deny", "reason": "expired",
            "rule": "pay", "tool": "payments.send", "mode": "shadow",
            "principal": {"issuer": ISSUER, "subject": "alice"}, "agent": "thumbprint", "proof": "pop",
            "delegation_ids": ["root", "leaf"], "arguments_hash": "0a".repeat(48), "method": "POST",
            "authority": "shop.example.com", "path_template": "/pay/{id}", "request_id": "r-1",
            "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "cache": "l2", "decision_ns": 18_446_744_073_709_551_615u64,
            "stale_ms": 70, "expires_at": "2027-01-15T08:01:00Z", "chain_digest": "0b".repeat(32), "response_status": 401,
        }),
        json!({
            "kind": "decision", "time": "2027-01-15T08:00:00Z", "decision": "allow", "reason": "ok", "rule": "",
            "tool": "", "mode": "enforce", "principal": {"issuer": "did:key:z6Mk", "subject": null}, "agent": "",
            "proof": "none", "delegation_ids": [], "arguments_hash": "", "method": "", "authority": "",
            "path_template": "", "request_id": "", "trace_id": "", "cache": "none", "decision_ns": 0,
            "arguments": "{\"amount\":\"5\"}",
        }),
        json!({
            "kind": "aggregate", "time": "2027-01-15T08:00:01Z", "rule": "pay", "reason": "no_delegation", "count": 7,
            "decision": "deny", "mode": "enforce",
        }),
        json!({
            "kind": "gap", "shed": 3, "first_time": "2027-01-15T08:00:00.5Z", "last_time": "2027-01-15T08:00:02Z",
            "shed_counts": 2, "shed_chains": 1,
        }),
    ];
    source.store(1, &sent, 4).await;
    let mut read = server.events("").await;
    read.reverse();
    let started = read.remove(0);
    assert_eq!(
        (started["node"].as_str(), started["plugin"].as_str()),
        (Some("gateway-1"), Some("nginx"))
    );
    let peer = started["peer"].as_str().unwrap();
    assert!(
        peer.contains("operator") && peer.contains("127.0.0.1") && peer.contains("HTTP"),
        "{peer}"
    );
    for (index, (mut read, sent)) in read.into_iter().zip(sent).enumerate() {
        let members = read.as_object_mut().unwrap();
        assert_eq!(members.remove("source"), Some(json!(source.name)));
        assert_eq!(members.remove("sequence"), Some(json!(index + 1)));
        members.remove("index").unwrap();
        members.remove("received").unwrap();
        if sent["kind"] == "gap" {
            // The same instant, with as many digits as it needs.
            assert_eq!(members["first_time"], "2027-01-15T08:00:00.500Z");
            members.insert("first_time".to_owned(), sent["first_time"].clone());
        }
        assert_eq!(read, sent);
    }
}

#[tokio::test]
async fn entries_of_one_ledger_can_be_reported_to_another() {
    let (here, there) = (Place::new(), Place::new());
    let (here, there) = (here.start().await, there.start().await);
    let (chain, arguments) = ("t".repeat(29_999) + "~" + &"u".repeat(30_000), "a".repeat(4096));
    let mut whole = decision("payments.send");
    whole["arguments"] = json!(arguments);
    whole["expires_at"] = json!("2027-01-15T08:01:00Z");
    let entries = [
        json!({"kind": "chain", "chain": chain, "principal": {"issuer": ISSUER, "subject": "alice"}}),
        whole,
        json!({"kind": "aggregate", "time": "2027-01-15T08:00:01Z", "reason": "no_delegation", "count": 7}),
        json!({"kind": "gap", "shed": 3, "first_time": "2027-01-15T08:00:00.5Z", "last_time": "2027-01-15T08:00:02Z"}),
    ];
    Source::begin(&here, TOKEN).await.store(1, &entries, 4).await;
    let shown = shown(&here).await;
    assert_eq!(shown[0]["arguments"].as_str().map(str::len), Some(4096));
    let presented = shown.last().unwrap();
    assert_eq!(presented["chain"].as_str().map(str::len), Some(60_000));
    let digest = presented["chain_digest"].as_str().unwrap();
    assert_eq!(here.events(&format!("?chain_digest={digest}")).await.len(), 1);
    let source = Source::begin(&there, TOKEN).await;
    source.store(1, &shown, 4).await;
    assert_eq!(self::shown(&there).await, shown);

    let mut another = presented.clone();
    another["chain_digest"] = json!("0b".repeat(32));
    let refused = source.send(5, &[another]).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text.contains("entries[0].chain_digest"), "{}", refused.text);
}

/// The entries of a ledger, chains last, without the fields that it adds itself.
async fn shown(server: &Server) -> Vec<Value> {
    let mut records = server.events("").await;
    records.reverse();
    records.retain(|record| record["kind"] != "source");
    records.extend(server.events("?kind=chain").await);
    for record in &mut records {
        for added in ["index", "source", "sequence", "received"] {
            record.as_object_mut().unwrap().remove(added);
        }
    }
    records
}

#[tokio::test]
async fn only_the_next_entries_are_stored_and_repetitions_are_harmless() {
    let place = Place::new();
    let server = place.start().await;
    let source = Source::begin(&server, TOKEN).await;
    source.store(1, &[decision("a"), decision("b")], 2).await;
    source.store(1, &[decision("a"), decision("b")], 2).await;
    source.store(2, &[decision("b"), decision("c")], 3).await;
    let refused = source.send(5, &[decision("e")]).await;
    assert_eq!((refused.status, refused.json()["expected"].as_u64()), (409, Some(4)));
    source.store(4, &[], 3).await;
    assert_eq!(source.send(5, &[]).await.status, 409);
    assert_eq!(source.recorded().await, ["started", "1", "2", "3"]);
    assert_eq!(
        source.position().await.json(),
        json!({"source": source.name, "acknowledged": 3})
    );
}

#[tokio::test]
async fn acknowledged_evidence_and_its_source_survive_a_crash() {
    let place = Place::new();
    let server = place.start().await;
    let source = Source::begin(&server, TOKEN).await;
    source.store(1, &[decision("a")], 1).await;
    let (path, name, authorization) = (source.path, source.name, source.authorization);
    drop(server);
    let server = place.start().await;
    let source = Source {
        server: &server,
        authorization,
        path,
        name,
    };
    source.store(1, &[decision("a"), decision("b")], 2).await;
    assert_eq!(source.recorded().await, ["started", "1", "2"]);
}

#[tokio::test]
async fn a_source_that_ends_is_gone() {
    let place = Place::new();
    let server = place.start().await;
    let source = Source::begin(&server, TOKEN).await;
    source.store(1, &[decision("a")], 1).await;
    assert_eq!(source.end().await, 204);
    assert_eq!(source.recorded().await, ["started", "1", "ended"]);
    assert_eq!(source.end().await, 404);
    assert_eq!(source.position().await.status, 404);
    let refused = source.send(2, &[decision("b")]).await;
    assert_eq!(refused.status, 404);
    assert!(refused.text.contains("POST /v1/audit/sources"), "{}", refused.text);
}

#[tokio::test]
async fn a_source_that_falls_silent_is_recorded_and_may_come_back() {
    let place = Place::new();
    let server = place
        .start_with(|config| config.evidence.source_grace = Duration::from_secs(1))
        .await;
    let source = Source::begin(&server, TOKEN).await;
    source.store(1, &[decision("a")], 1).await;
    server.wait_for("credence_ledger_lost_sources_total 1").await;
    source.store(2, &[decision("b")], 2).await;
    let recorded = source.recorded().await;
    assert_eq!(recorded[..5], ["started", "1", "ended, tail unknown", "returned", "2"]);
}

#[tokio::test]
async fn a_source_belongs_to_the_credential_that_began_it() {
    let place = Place::new();
    let server = place
        .start_with(|config| config.settings.access.tokens = vec![reporter("a", None), reporter("b", None)])
        .await;
    let source = Source::begin(&server, "a").await;
    let thief = Source {
        server: &server,
        authorization: "Bearer b".to_owned(),
        path: source.path.clone(),
        name: source.name.clone(),
    };
    assert_eq!(thief.send(1, &[decision("a")]).await.status, 404);
    assert_eq!((thief.position().await.status, thief.end().await), (404, 404));
    source.store(1, &[decision("a")], 1).await;
    for ticket in ["nothing", "a.b", &format!("{}.", source.name), "%ff"] {
        let answer = server.get(&format!("/v1/audit/sources/{ticket}"), &["Bearer a"]).await;
        assert_eq!(answer.status, 404, "{ticket}");
    }
}

#[tokio::test]
async fn a_credential_bound_to_issuers_reports_about_their_principals_only() {
    let place = Place::new();
    let server = place
        .start_with(|config| config.settings.access.tokens = vec![reporter("a", Some(&[ISSUER]))])
        .await;
    let source = Source::begin(&server, "a").await;
    let mut stranger = decision("a");
    stranger["principal"]["issuer"] = json!("https://other.example.com");
    let mut without_principal = decision("a");
    without_principal["principal"] = Value::Null;
    for refused in [stranger, without_principal] {
        let answer = source.send(1, &[decision("a"), refused]).await;
        assert_eq!(answer.status, 403, "{}", answer.text);
        assert!(answer.text.contains("entries[1]"), "{}", answer.text);
    }
    let count = json!({"kind": "aggregate", "time": "2027-01-15T08:00:01Z", "reason": "malformed", "count": 7});
    source.store(1, &[decision("a"), count], 2).await;
    assert_eq!(source.recorded().await, ["started", "1", "2"]);
}

#[tokio::test]
async fn a_batch_is_stored_whole_or_refused_with_the_entry_and_the_member() {
    let place = Place::new();
    let server = place.start().await;
    let source = Source::begin(&server, TOKEN).await;
    let with = |member: &str, value: Value| {
        let mut entry = decision("a");
        entry[member] = value;
        json!({"first_sequence": 1, "entries": [decision("a"), entry]}).to_string()
    };
    let many = json!({"first_sequence": 1, "entries": vec![decision("a"); 1001]}).to_string();
    for (body, status, expected) in [
        (with("colour", json!("red")), 400, "at entries[1].colour: unknown field"),
        (
            with("time", json!("yesterday")),
            400,
            "at entries[1].time: write a time",
        ),
        (with("tool", json!("t".repeat(1025))), 400, "entry 2 of the batch"),
        (with("delegation_ids", json!(vec!["i"; 10])), 400, "more than 9"),
        (
            r#"{"first_sequence": 0, "entries": []}"#.to_owned(),
            400,
            "at first_sequence",
        ),
        (r#"{"first_sequence": 1}"#.to_owned(), 400, "missing field `entries`"),
        (
            r#"{"first_sequence": 1, "entries": [], "more": 1}"#.to_owned(),
            400,
            "unknown field",
        ),
        ("[]".to_owned(), 400, "in the body"),
        (many, 413, "at most 1000 entries"),
        (" ".repeat((4 << 20) + 1), 413, "4194304 bytes"),
    ] {
        let answer = source.send_text(body).await;
        assert_eq!(answer.status, status, "{expected}: {}", answer.text);
        assert!(answer.text.contains(expected), "{expected}: {}", answer.text);
    }
    assert_eq!(source.recorded().await, ["started"]);
}

#[tokio::test]
async fn a_full_ledger_says_when_to_send_again_and_keeps_what_it_has() {
    let place = Place::new();
    let server = place.start_with(|config| config.evidence.ledger.total = 64 << 10).await;
    let source = Source::begin(&server, TOKEN).await;
    let mut next = 1;
    let refused = loop {
        let answer = source.send(next, &vec![decision(&"t".repeat(1000)); 10]).await;
        if answer.status != 200 {
            break answer;
        }
        next += 10;
    };
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert!(
        refused.retry_after.is_some() && refused.text.contains("send it again"),
        "{}",
        refused.text
    );
    assert_eq!(source.position().await.json()["acknowledged"], next - 1);
}

#[tokio::test]
async fn sources_beyond_the_limit_are_told_to_wait() {
    let place = Place::new();
    let server = place.start_with(|config| config.evidence.max_sources = 1).await;
    let source = Source::begin(&server, TOKEN).await;
    let refused = server
        .post("/v1/audit/sources", "{}".to_owned(), &[&source.authorization])
        .await;
    assert_eq!((refused.status, refused.retry_after), (503, Some(10)));
    assert_eq!(source.end().await, 204);
    Source::begin(&server, TOKEN).await;
}
