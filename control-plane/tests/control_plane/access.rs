//! Roles: which token may do what.

use credence_control_plane::{GrpcAccess, Role, TokenSettings};
use serde_json::json;
use sha2::{Digest, Sha256};
use tonic::Code;

use super::harness::{Answer, ISSUER, Place, Server, TOKEN, events, raise};

pub(super) const ROLES: [Role; 8] = [
    Role::Admin,
    Role::Revoker,
    Role::Watcher,
    Role::Auditor,
    Role::Filter,
    Role::Reporter,
    Role::Provisioner,
    Role::Transmitter,
];

fn token(name: &str, role: Role) -> TokenSettings {
    TokenSettings {
        name: name.to_owned(),
        sha256: Sha256::digest(name).into(),
        roles: vec![role],
        issuers: None,
        expires: None,
    }
}

/// A control plane whose tokens are the names of their roles.
async fn start(place: &Place, change: impl FnOnce(&mut Vec<TokenSettings>)) -> Server {
    place
        .start_with(|config| {
            config.settings.access.tokens = ROLES.iter().map(|role| token(role.name(), *role)).collect();
            config.settings.access.grpc = Some(GrpcAccess::Required);
            change(&mut config.settings.access.tokens);
        })
        .await
}

#[tokio::test]
async fn each_role_does_what_the_documented_table_says_and_nothing_else() {
    let place = Place::new();
    let server = start(&place, |_| {}).await;
    for role in ROLES {
        let authorization = format!("Bearer {}", role.name());
        let status = |may: bool| if may { 200 } else { 403 };
        let revoked = server
            .post("/v1/revocations", raise("alice").to_string(), &[&authorization])
            .await;
        let may_revoke = matches!(role, Role::Admin | Role::Revoker);
        assert_eq!(revoked.status, status(may_revoke), "{role:?}: {}", revoked.text);
        let read = server.get("/v1/audit/events", &[&authorization]).await;
        let may_read = matches!(role, Role::Admin | Role::Auditor);
        assert_eq!(read.status, status(may_read), "{role:?}: {}", read.text);
        let begun = server
            .post("/v1/audit/sources", "{}".to_owned(), &[&authorization])
            .await;
        let expected = match role {
            Role::Admin | Role::Reporter => 201,
            _ => 403,
        };
        assert_eq!(begun.status, expected, "{role:?}: {}", begun.text);

        let watched = server.watch_as(Some(&authorization)).await;
        let may_watch = matches!(role, Role::Admin | Role::Revoker | Role::Watcher | Role::Filter);
        assert_eq!(
            watched.err().map(|status| status.code()),
            refusal(may_watch),
            "{role:?}"
        );
        let reported = server.report_as(Some(&authorization), None).await;
        let may_report = matches!(role, Role::Admin | Role::Filter);
        assert_eq!(
            reported.err().map(|status| status.code()),
            refusal(may_report),
            "{role:?}"
        );
    }
}

fn refusal(may: bool) -> Option<Code> {
    (!may).then_some(Code::PermissionDenied)
}

#[tokio::test]
async fn without_a_credential_a_stream_is_refused_with_the_cure() {
    let place = Place::new();
    let server = start(&place, |_| {}).await;
    for authorization in [None, Some("Bearer guess"), Some("Basic admin")] {
        let refused = server.watch_as(authorization).await.err().unwrap();
        assert_eq!(refused.code(), Code::Unauthenticated, "{authorization:?}");
        assert!(refused.message().contains("Authorization: Bearer"), "{refused}");
        // UNAUTHENTICATED would tell a reporting filter that its source is unknown.
        let refused = server.report_as(authorization, None).await.err().unwrap();
        assert_eq!(refused.code(), Code::PermissionDenied, "{authorization:?}");
    }
    let metrics = server.get("/metrics", &[]).await.text;
    assert!(
        metrics.contains("credence_grpc_refusals_total{code=\"UNAUTHENTICATED\"} 3"),
        "{metrics}"
    );
}

#[tokio::test]
async fn an_open_port_accepts_any_client_but_no_wrong_token() {
    let place = Place::new();
    let server = place.start().await;
    server.watch_as(None).await.unwrap();
    let refused = server.watch_as(Some("Bearer guess")).await.err().unwrap();
    assert_eq!(refused.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn a_token_bound_to_issuers_revokes_their_principals_only() {
    let place = Place::new();
    let server = start(&place, |tokens| {
        // Filters follow the whole log. A configuration without one of them would be refused.
        for token in tokens.iter_mut().filter(|token| token.name == "revoker") {
            token.issuers = Some(vec![ISSUER.to_owned()]);
        }
    })
    .await;
    let revoke = async |issuer: &str| {
        let body = json!({"principal": {"issuer": issuer, "subject": "alice"}});
        let answer = server
            .post("/v1/revocations", body.to_string(), &["Bearer revoker"])
            .await;
        answer.status
    };
    assert_eq!(revoke(ISSUER).await, 200);
    assert_eq!(revoke("https://other.example").await, 403);
}

#[tokio::test]
async fn a_token_bound_to_issuers_reads_about_their_principals_only() {
    let place = Place::new();
    let server = start(&place, |tokens| {
        tokens.push(TokenSettings {
            issuers: Some(vec![ISSUER.to_owned()]),
            ..token("ours", Role::Auditor)
        });
        tokens.push(TokenSettings {
            issuers: Some(vec!["https://other.example".to_owned()]),
            ..token("theirs", Role::Auditor)
        });
    })
    .await;
    let (mut reporter, _) = server.report_as(Some("Bearer filter"), None).await.unwrap();
    reporter.batch(1, events(&["pay"])).await;
    reporter.acknowledged().await;
    let read = async |name: &str, query: &str| {
        let path = format!("/v1/audit/events{query}");
        server.get(&path, &[&format!("Bearer {name}")]).await
    };
    let kinds = |answer: Answer| -> Vec<String> {
        let events = answer.json()["events"].as_array().unwrap().clone();
        events
            .iter()
            .map(|event| event["kind"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(kinds(read("auditor", "").await), ["decision", "source"]);
    assert_eq!(kinds(read("ours", "").await), ["decision"]);
    assert_eq!(kinds(read("theirs", "").await), Vec::<String>::new());
    assert_eq!(kinds(read("theirs", "?delegation_id=leaf").await), Vec::<String>::new());
    let refused = read("theirs", &format!("?principal_issuer={ISSUER}")).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
}

#[tokio::test]
async fn an_expired_token_is_refused_by_that_name() {
    let place = Place::new();
    let server = start(&place, |tokens| tokens[0].expires = Some(1_700_000_000)).await;
    let refused = server.get("/v1/audit/events", &["Bearer admin"]).await;
    assert_eq!(refused.status, 401);
    assert!(refused.text.contains("has expired"), "{}", refused.text);
}

#[tokio::test]
async fn a_token_that_is_taken_out_stops_working_without_a_restart() {
    let place = Place::new();
    let server = start(&place, |_| {}).await;
    let mut watcher = server.watch_as(Some("Bearer watcher")).await.unwrap();
    let mut filter = server.watch_as(Some("Bearer filter")).await.unwrap();
    for stream in [&mut watcher, &mut filter] {
        stream.hello(&server.log_id(), None).await;
        stream.welcome().await;
    }

    let mut settings = place.config().settings;
    settings.access.tokens = vec![token("filter", Role::Filter), token("new", Role::Revoker)];
    settings.access.grpc = Some(GrpcAccess::Required);
    server.running.reload(settings).await.unwrap();

    assert_eq!(server.get("/v1/audit/events", &["Bearer auditor"]).await.status, 401);
    let revoke = async |authorization: &str| {
        let body = raise("alice").to_string();
        server.post("/v1/revocations", body, &[authorization]).await.status
    };
    assert_eq!(revoke("Bearer revoker").await, 401);
    assert_eq!(revoke("Bearer new").await, 200);
    let (code, message) = watcher.refusal().await;
    assert_eq!(code, Code::Unauthenticated, "{message}");
    // A credential that is still valid is not affected.
    assert_eq!(filter.update().await.position.unwrap().seq, 1);
    assert_eq!(
        server
            .get("/v1/audit/events", &[&format!("Bearer {TOKEN}")])
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn settings_that_cannot_be_used_change_nothing() {
    let place = Place::new();
    let server = start(&place, |_| {}).await;
    let mut settings = place.config().settings;
    settings.access.tokens = vec![token("same", Role::Admin), token("same", Role::Admin)];
    let refused = server.running.reload(settings).await.unwrap_err();
    assert!(refused.to_string().contains("access.tokens[1].name"), "{refused}");
    assert_eq!(server.get("/v1/audit/events", &["Bearer auditor"]).await.status, 200);
    let metrics = server.get("/metrics", &[]).await.text;
    assert!(
        metrics.contains("credence_configuration_reloads_total{outcome=\"failure\"} 1"),
        "{metrics}"
    );
}

#[tokio::test]
async fn a_configuration_in_which_no_filter_could_follow_is_refused() {
    let place = Place::new();
    let refused = place
        .try_start(|config| {
            config.settings.access.tokens = vec![token("t", Role::Watcher)];
            config.settings.access.grpc = Some(GrpcAccess::Required);
        })
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(refused.contains("role filter"), "{refused}");
    let bound = TokenSettings {
        issuers: Some(vec![ISSUER.to_owned()]),
        ..token("t", Role::Filter)
    };
    let refused = place
        .try_start(|config| {
            config.settings.access.tokens = vec![bound];
            config.settings.access.grpc = Some(GrpcAccess::Required);
        })
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(refused.contains("without issuers"), "{refused}");
}
