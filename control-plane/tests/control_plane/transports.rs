//! One rule for both transports: what a credential may read and report about an issuer is the same over HTTP and gRPC.
//! The cases are the table of roles, with every kind of binding.

use credence_control_plane::{GrpcAccess, Role, TokenSettings};
use credence_wire::v1;
use credence_wire::v1::record::Subject;
use serde_json::json;
use sha2::{Digest, Sha256};
use tonic::Code;

use super::access::ROLES;
use super::harness::{ISSUER, Place, Server, event, raise};
use super::stream::Stream;

const OTHER: &str = "https://other.example.com";

/// The issuers that a credential is bound to; `None`: not bound.
const BINDINGS: [(&str, Option<&str>); 3] = [("any", None), ("ours", Some(ISSUER)), ("others", Some(OTHER))];

/// A token for each role and binding.
fn tokens() -> Vec<TokenSettings> {
    let token = |role: Role, (binding, issuer): (&str, Option<&str>)| TokenSettings {
        name: name(role, binding),
        sha256: Sha256::digest(name(role, binding)).into(),
        roles: vec![role],
        issuers: issuer.map(|issuer| vec![issuer.to_owned()]),
        expires: None,
    };
    ROLES
        .into_iter()
        .flat_map(|role| BINDINGS.map(|binding| token(role, binding)))
        .collect()
}

fn name(role: Role, binding: &str) -> String {
    format!("{}-{binding}", role.name())
}

async fn start(place: &Place) -> Server {
    place
        .start_with(|config| {
            config.settings.access.tokens = tokens();
            config.settings.access.grpc = Some(GrpcAccess::Required);
        })
        .await
}

#[tokio::test]
async fn no_transport_shows_a_credential_what_the_other_hides() {
    let place = Place::new();
    let server = start(&place).await;
    server.revoke(raise("alice")).await;
    server
        .revoke(json!({"principal": {"issuer": OTHER, "subject": "bob"}}))
        .await;
    for role in ROLES {
        for (binding, issuer) in BINDINGS {
            let name = name(role, binding);
            let may_watch = matches!(role, Role::Admin | Role::Revoker | Role::Watcher | Role::Filter);
            let over_http = seen_over_http(&server, &name).await;
            let expected = match (may_watch, issuer) {
                (false, _) => None,
                (true, None) => Some(vec![ISSUER.to_owned(), OTHER.to_owned()]),
                (true, Some(issuer)) => Some(vec![issuer.to_owned()]),
            };
            assert_eq!(over_http, expected, "{name} over HTTP");
            // A filter needs the whole log, so only HTTP shows a part of it.
            let expected = expected.filter(|_| issuer.is_none());
            assert_eq!(seen_over_grpc(&server, &name).await, expected, "{name} over gRPC");
        }
    }
}

#[tokio::test]
async fn no_transport_takes_from_a_credential_what_the_other_refuses() {
    let place = Place::new();
    let server = start(&place).await;
    for role in ROLES {
        for (binding, issuer) in BINDINGS {
            let name = name(role, binding);
            for about in [ISSUER, OTHER] {
                let covered = issuer.is_none_or(|issuer| issuer == about);
                let over_http = matches!(role, Role::Admin | Role::Reporter).then_some(covered);
                assert_eq!(
                    reported_over_http(&server, &name, about).await,
                    over_http,
                    "{name} over HTTP"
                );
                let over_grpc = matches!(role, Role::Admin | Role::Filter).then_some(covered);
                assert_eq!(
                    reported_over_grpc(&server, &name, about).await,
                    over_grpc,
                    "{name} over gRPC"
                );
            }
        }
    }
    let stored = server.events("?kind=decision").await.len();
    // Two roles on each transport. Each may report about both issuers, about ours, or about the other one.
    assert_eq!(stored, 4 * 4);
}

#[tokio::test]
async fn a_bound_watcher_is_told_where_it_may_watch() {
    let place = Place::new();
    let server = start(&place).await;
    let refused = server.watch_as(Some("Bearer filter-ours")).await.err().unwrap();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("/v1/revocations/stream"), "{refused}");
    server.watch_as(Some("Bearer filter-any")).await.unwrap();
}

#[tokio::test]
async fn of_a_batch_with_one_entry_about_another_issuer_nothing_is_stored() {
    let place = Place::new();
    let server = start(&place).await;
    let (mut reporter, _) = server.report_as(Some("Bearer filter-ours"), None).await.unwrap();
    reporter.batch(1, vec![about(ISSUER), about(OTHER)]).await;
    let (code, text) = reporter.refusal().await;
    assert_eq!(code, Code::PermissionDenied);
    assert!(text.contains("entry 2") && text.contains("bound to issuers"), "{text}");
    assert_eq!(server.events("?kind=decision").await.len(), 0);
}

/// A count has no principal, except for those that the ledger makes: they would use up that principal's share.
#[tokio::test]
async fn a_count_that_names_a_principal_is_taken_from_no_one() {
    let place = Place::new();
    let server = start(&place).await;
    for name in ["filter-ours", "filter-any"] {
        for (principal, is_taken) in [(None, true), (principal_of(about(OTHER)), false)] {
            let count = v1::Aggregate {
                second: 1,
                reason: "public".to_owned(),
                count: 1_000_000,
                decision: v1::Decision::Allow.into(),
                mode: v1::Mode::Enforce.into(),
                principal,
                ..v1::Aggregate::default()
            };
            let entry = v1::Entry {
                entry: Some(v1::entry::Entry::Aggregate(count)),
            };
            let (mut reporter, _) = server.report_as(Some(&format!("Bearer {name}")), None).await.unwrap();
            reporter.batch(1, vec![entry]).await;
            let refused = reporter.next().await.err();
            assert_eq!(refused.is_none(), is_taken, "{name}: {refused:?}");
            if let Some(refused) = refused {
                assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
                assert!(refused.message().contains("leave `principal` out"), "{refused}");
            }
        }
    }
}

#[tokio::test]
async fn a_stream_ends_when_its_credential_is_bound_to_other_issuers() {
    let place = Place::new();
    let server = start(&place).await;
    let mut watcher = server.watch_as(Some("Bearer filter-any")).await.unwrap();
    watcher.hello(&server.log_id(), None).await;
    watcher.welcome().await;
    let (mut reporter, _) = server.report_as(Some("Bearer filter-any"), None).await.unwrap();
    let (mut same, _) = server.report_as(Some("Bearer filter-ours"), None).await.unwrap();
    let mut settings = place.config().settings;
    settings.access.tokens = tokens();
    for token in &mut settings.access.tokens {
        if token.name == "filter-any" {
            token.issuers = Some(vec![ISSUER.to_owned()]);
        }
    }
    // At least one client must be able to follow.
    settings.access.grpc = Some(GrpcAccess::Required);
    server.running.reload(settings).await.unwrap();
    assert_eq!(watcher.refusal().await.0, Code::PermissionDenied);
    assert_eq!(reporter.refusal().await.0, Code::PermissionDenied);
    same.batch(1, vec![about(ISSUER)]).await;
    assert_eq!(same.acknowledged().await, 1);
}

/// The issuers of the visible principals, in alphabetical order; `None` if the answer is a refusal.
async fn seen_over_http(server: &Server, token: &str) -> Option<Vec<String>> {
    let (status, mut stream) = Stream::try_open_at(server, token, "/v1/revocations/stream", None).await;
    if !status.ends_with("200 OK") {
        return None;
    }
    let mut issuers = Vec::new();
    loop {
        let event = stream.next().await;
        match event.name.as_str() {
            "record" => issuers.push(event.data["principal"]["issuer"].as_str().unwrap().to_owned()),
            "snapshot_end" => break,
            _ => {}
        }
    }
    issuers.sort();
    Some(issuers)
}

async fn seen_over_grpc(server: &Server, token: &str) -> Option<Vec<String>> {
    let mut watcher = server.watch_as(Some(&format!("Bearer {token}"))).await.ok()?;
    watcher.hello(&server.log_id(), None).await;
    let mut issuers = Vec::new();
    for index in 0..watcher.welcome().await.snapshot.unwrap().chunks {
        for record in watcher.pull(index).await.records {
            let Some(Subject::Principal(state)) = record.subject else {
                panic!("{record:?}")
            };
            issuers.push(state.principal.unwrap().issuer);
        }
    }
    issuers.sort();
    Some(issuers)
}

/// Whether a decision about a principal of this issuer is stored; `None` if the credential may not report at all.
async fn reported_over_http(server: &Server, token: &str, issuer: &str) -> Option<bool> {
    let authorization = format!("Bearer {token}");
    let begun = server
        .post("/v1/audit/sources", "{}".to_owned(), &[&authorization])
        .await;
    if begun.status != 201 {
        return None;
    }
    let ticket = begun.json()["ticket"].as_str().unwrap().to_owned();
    let decision = json!({"kind": "decision", "time": "2027-01-15T08:00:00Z", "decision": "allow", "reason": "ok",
        "tool": "pay", "principal": {"issuer": issuer, "subject": "alice"}});
    let batch = json!({"first_sequence": 1, "entries": [decision]});
    let path = format!("/v1/audit/sources/{ticket}/batches");
    let stored = server.post(&path, batch.to_string(), &[&authorization]).await;
    assert!(matches!(stored.status, 200 | 403), "{}", stored.text);
    Some(stored.status == 200)
}

async fn reported_over_grpc(server: &Server, token: &str, issuer: &str) -> Option<bool> {
    let authorization = format!("Bearer {token}");
    let (mut reporter, _) = server.report_as(Some(&authorization), None).await.ok()?;
    reporter.batch(1, vec![about(issuer)]).await;
    match reporter.next().await {
        Ok(_) => Some(true),
        Err(status) if status.code() == Code::PermissionDenied => Some(false),
        Err(status) => panic!("{status}"),
    }
}

fn principal_of(entry: v1::Entry) -> Option<v1::Principal> {
    match entry.entry {
        Some(v1::entry::Entry::Event(event)) => event.principal,
        _ => None,
    }
}

fn about(issuer: &str) -> v1::Entry {
    let mut entry = event("pay");
    if let Some(v1::entry::Entry::Event(event)) = &mut entry.entry {
        event.principal = Some(v1::Principal {
            issuer: issuer.to_owned(),
            subject: Some("alice".to_owned()),
        });
    }
    entry
}
