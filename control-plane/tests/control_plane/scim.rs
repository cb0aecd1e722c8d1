//! SCIM: a user whom the identity provider deactivates loses the authority of all delegations.

use std::time::Duration;

use serde_json::{Value, json};

use super::harness::{ISSUER, Place, Server, TOKEN};
use super::provider::{
    OTHER_PROVISIONER, PROVISIONER, TRANSMITTER, create, patch, principal, realm, request, scim, scim_as, set_active,
    settings, start, updated,
};

/// The bit of `disabled_by` for provisioning.
const PROVISIONING: u32 = 4;

#[tokio::test]
async fn every_spelling_of_a_deactivation_is_in_force_at_every_filter_when_it_is_answered() {
    let place = Place::new();
    let server = start(&place).await;
    let (mut watcher, ..) = server.watch_from_snapshot().await;
    for (index, operation) in [
        json!({"op": "replace", "path": "active", "value": false}),
        json!({"op": "Replace", "path": "active", "value": "False"}),
        json!({"op": "replace", "value": {"active": false}}),
        json!({"op": "Replace", "value": {"active": "False", "displayName": "Gone"}}),
        json!({"op": "Add", "path": "active", "value": "false"}),
        json!({"op": "replace", "path": "urn:ietf:params:scim:schemas:core:2.0:User:active", "value": false}),
        json!({"op": "replace", "value": {"urn:ietf:params:scim:schemas:core:2.0:User:active": false}}),
        json!({"op": "remove", "path": "active"}),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("user{index}");
        let id = create(&server, &name).await;
        let patched = patch(&server, &id, operation.clone()).await.expect(200);
        assert_ne!(patched.json()["active"], true, "{operation}");
        let state = updated(&mut watcher, &name)
            .await
            .unwrap_or_else(|| panic!("{operation}"));
        assert_eq!(state.disabled_by, PROVISIONING, "{operation}");
        assert_ne!(state.epoch, 0, "{operation}");
    }
}

#[tokio::test]
async fn replacing_and_deleting_a_user_revoke_the_users_authority_too() {
    let place = Place::new();
    let server = start(&place).await;
    let alice = create(&server, "alice").await;
    let gone = json!({"userName": "alice", "active": false});
    scim(&server, "PUT", &format!("/Users/{alice}"), Some(gone))
        .await
        .expect(200);
    assert_eq!(principal(&server, "alice").await.unwrap().disabled_by, PROVISIONING);

    let bob = create(&server, "bob").await;
    scim(&server, "DELETE", &format!("/Users/{bob}"), None)
        .await
        .expect(204);
    assert_eq!(principal(&server, "bob").await.unwrap().disabled_by, PROVISIONING);
    for method in ["DELETE", "GET"] {
        let missing = scim(&server, method, &format!("/Users/{bob}"), None).await.expect(404);
        assert_eq!(
            missing.json()["schemas"][0],
            "urn:ietf:params:scim:api:messages:2.0:Error"
        );
    }

    let carol = json!({"userName": "carol", "active": "False"});
    scim(&server, "POST", "/Users", Some(carol)).await.expect(201);
    assert_eq!(principal(&server, "carol").await.unwrap().disabled_by, PROVISIONING);
}

#[tokio::test]
async fn a_new_user_does_not_count_as_a_refused_revocation() {
    let place = Place::new();
    let server = start(&place).await;
    create(&server, "alice").await;
    let metrics = server.get("/metrics", &[]).await.text;
    assert!(!metrics.contains("outcome=\"refused\""), "{metrics}");
    // One that is refused is counted.
    server
        .try_revoke(json!({"principal": {"issuer": ISSUER, "subject": "bob"}, "action": "enable"}))
        .await;
    let metrics = server.get("/metrics", &[]).await.text;
    assert!(
        metrics.contains("operation=\"enable\",source=\"operator\",outcome=\"refused\"} 1"),
        "{metrics}"
    );
}

#[tokio::test]
async fn a_returning_user_has_a_new_epoch_so_that_old_delegations_stay_revoked() {
    let place = Place::new();
    let server = start(&place).await;
    let id = create(&server, "alice").await;
    assert_eq!(principal(&server, "alice").await, None);
    patch(&server, &id, set_active(false)).await.expect(200);
    let disabled = principal(&server, "alice").await.unwrap();
    patch(&server, &id, set_active(true)).await.expect(200);
    let enabled = principal(&server, "alice").await.unwrap();
    assert!(!enabled.disabled);
    assert!(enabled.epoch > disabled.epoch && disabled.epoch > 0);

    // So has a user who was deleted and is created again.
    scim(&server, "DELETE", &format!("/Users/{id}"), None).await.expect(204);
    create(&server, "alice").await;
    let again = principal(&server, "alice").await.unwrap();
    assert!(!again.disabled && again.epoch > enabled.epoch);
}

#[tokio::test]
async fn a_provider_does_not_enable_what_an_operator_disabled() {
    let place = Place::new();
    let server = start(&place).await;
    let id = create(&server, "alice").await;
    let disable = json!({"principal": {"issuer": ISSUER, "subject": "alice"}, "action": "disable"});
    server.revoke(disable).await;
    patch(&server, &id, set_active(false)).await.expect(200);
    patch(&server, &id, set_active(true)).await.expect(200);
    assert!(principal(&server, "alice").await.unwrap().disabled);
}

#[tokio::test]
async fn a_new_name_revokes_the_authority_of_the_old_one() {
    let place = Place::new();
    let server = start(&place).await;
    let id = create(&server, "alice").await;
    let rename = |name: &str| json!({"op": "Replace", "path": "userName", "value": name});
    patch(&server, &id, rename("Alice")).await.expect(200);
    assert!(principal(&server, "alice").await.unwrap().disabled);
    assert_eq!(principal(&server, "Alice").await, None);
    // A name of an earlier user that was taken away comes back with its next holder.
    patch(&server, &id, rename("alice")).await.expect(200);
    assert!(!principal(&server, "alice").await.unwrap().disabled);
    assert!(principal(&server, "Alice").await.unwrap().disabled);
}

#[tokio::test]
async fn the_attribute_that_the_realm_names_is_the_principals_name() {
    for (attribute, subject) in [
        ("externalId", "ext-alice"),
        ("emails.primary", "alice@example.com"),
        ("id", ""),
    ] {
        let place = Place::new();
        let server = place
            .start_with(|config| config.settings = settings(realm(attribute)))
            .await;
        let id = create(&server, "alice").await;
        let subject = if subject.is_empty() { &id } else { subject };
        patch(&server, &id, set_active(false)).await.expect(200);
        assert!(principal(&server, subject).await.unwrap().disabled, "{attribute}");
    }
}

#[tokio::test]
async fn a_user_without_a_principal_of_its_own_cannot_be_active() {
    let place = Place::new();
    let server = place
        .start_with(|config| config.settings = settings(realm("emails.primary")))
        .await;
    let nameless = json!({"userName": "alice", "active": true});
    let refused = scim(&server, "POST", "/Users", Some(nameless)).await.expect(400);
    assert_eq!(refused.json()["scimType"], "invalidValue");

    let id = create(&server, "alice").await;
    let remove = json!({"op": "remove", "path": "emails"});
    patch(&server, &id, remove.clone()).await.expect(400);
    assert_eq!(principal(&server, "alice@example.com").await, None);
    // Names are not shared: a change of one user would affect the other.
    let namesake = json!({"userName": "alice2", "emails": [{"value": "alice@example.com"}]});
    let refused = scim(&server, "POST", "/Users", Some(namesake)).await.expect(409);
    assert_eq!(refused.json()["scimType"], "uniqueness");

    patch(&server, &id, set_active(false)).await.expect(200);
    patch(&server, &id, remove).await.expect(200);
    patch(&server, &id, set_active(true)).await.expect(400);
    assert!(principal(&server, "alice@example.com").await.unwrap().disabled);
}

#[tokio::test]
async fn a_put_without_active_changes_no_authority() {
    let place = Place::new();
    let server = start(&place).await;
    let id = create(&server, "alice").await;
    patch(&server, &id, set_active(false)).await.expect(200);
    let replaced = json!({"userName": "alice", "displayName": "Alice"});
    let replaced = scim(&server, "PUT", &format!("/Users/{id}"), Some(replaced))
        .await
        .expect(200);
    assert_eq!(replaced.json()["active"], false);
    assert!(principal(&server, "alice").await.unwrap().disabled);
}

#[tokio::test]
async fn a_user_whose_revocation_is_refused_stays_unchanged_and_the_retry_works() {
    let place = Place::new();
    let server = start(&place).await;
    let id = create(&server, "alice").await;

    // While the folder is elsewhere, nothing is acknowledged.
    let aside = place.path("").with_file_name("aside");
    std::fs::rename(place.path(""), &aside).unwrap();
    let path = format!("/Users/{id}");
    for (method, body) in [
        ("PATCH", Some(json!({"Operations": [set_active(false)]}))),
        ("PUT", Some(json!({"userName": "alice", "active": false}))),
        ("DELETE", None),
    ] {
        let refused = scim(&server, method, &path, body).await.expect(503);
        assert_eq!(refused.header("content-type"), "application/scim+json");
        assert_eq!(refused.json()["status"], "503");
        let user = scim(&server, "GET", &path, None).await.expect(200).json();
        assert_eq!(
            (&user["active"], &user["meta"]["version"]),
            (&json!(true), &json!("W/\"1\""))
        );
    }
    drop(server);
    std::fs::rename(&aside, place.path("")).unwrap();
    let server = start(&place).await;
    assert!(!principal(&server, "alice").await.is_some_and(|alice| alice.disabled));
    patch(&server, &id, set_active(false)).await.expect(200);
    assert!(principal(&server, "alice").await.unwrap().disabled);
}

#[tokio::test]
async fn a_deactivation_is_answered_though_a_filter_applies_nothing() {
    let place = Place::new();
    let server = start(&place).await;
    let id = create(&server, "alice").await;
    let filter = server.filter().await;
    let answered = tokio::time::timeout(Duration::from_secs(2), patch(&server, &id, set_active(false))).await;
    answered.expect("it waits for the filter").expect(200);
    let path = "/v1/revocations/1?wait=committed";
    assert_eq!(server.get_with(path, &[]).await.status, 202);
    drop(filter);
}

#[tokio::test]
async fn repeating_a_deactivation_is_harmless_and_makes_sure() {
    let place = Place::new();
    let server = start(&place).await;
    let id = create(&server, "alice").await;
    patch(&server, &id, set_active(false)).await.expect(200);
    let once = principal(&server, "alice").await.unwrap();
    patch(&server, &id, set_active(false)).await.expect(200);
    assert_eq!(principal(&server, "alice").await.unwrap(), once);
    // An operator has enabled the user meanwhile. The provider's deactivation counts again.
    let enable = json!({"principal": {"issuer": ISSUER, "subject": "alice"}, "action": "enable"});
    server.revoke(enable).await;
    patch(&server, &id, set_active(false)).await.expect(200);
    assert!(principal(&server, "alice").await.unwrap().disabled);
}

#[tokio::test]
async fn users_survive_a_crash_and_a_lost_or_older_file_of_users_takes_nothing_back() {
    let place = Place::new();
    let server = start(&place).await;
    let id = create(&server, "alice").await;
    server.running.shutdown().await;
    let older = std::fs::read(place.path("identity/users")).unwrap();

    let server = start(&place).await;
    patch(&server, &id, set_active(false)).await.expect(200);
    drop(server);
    let server = start(&place).await;
    let user = scim(&server, "GET", &format!("/Users/{id}"), None).await.expect(200);
    assert_eq!(user.json()["active"], false);
    server.running.shutdown().await;

    std::fs::write(place.path("identity/users"), older).unwrap();
    let server = start(&place).await;
    assert!(principal(&server, "alice").await.unwrap().disabled);
    // The record says otherwise, and a change of another attribute does not change that.
    let rename = json!({"op": "replace", "path": "displayName", "value": "Alice"});
    patch(&server, &id, rename).await.expect(200);
    assert!(principal(&server, "alice").await.unwrap().disabled);
    server.running.shutdown().await;

    std::fs::remove_file(place.path("identity/users")).unwrap();
    let server = start(&place).await;
    assert!(principal(&server, "alice").await.unwrap().disabled);
    scim(&server, "GET", &format!("/Users/{id}"), None).await.expect(404);
}

#[tokio::test]
async fn realms_do_not_see_each_others_users() {
    let place = Place::new();
    let two = json!({"scim": [
        {"name": "staff", "credentials": ["entra"], "issuer": ISSUER},
        {"name": "guests", "credentials": ["other"], "issuer": "https://guests.example.com"},
    ]});
    let server = place.start_with(|config| config.settings = settings(two)).await;
    let id = create(&server, "alice").await;
    let path = format!("/Users/{id}");
    for method in ["GET", "DELETE"] {
        scim_as(&server, OTHER_PROVISIONER, method, &path, None)
            .await
            .expect(404);
    }
    let listed = scim_as(&server, OTHER_PROVISIONER, "GET", "/Users", None)
        .await
        .expect(200);
    assert_eq!(listed.json()["totalResults"], 0);
    // In that realm, the same name is another user's.
    let namesake = Some(json!({"userName": "alice", "active": false}));
    scim_as(&server, OTHER_PROVISIONER, "POST", "/Users", namesake)
        .await
        .expect(201);
    assert_eq!(principal(&server, "alice").await, None);
}

#[tokio::test]
async fn only_a_realms_own_credentials_open_it() {
    let place = Place::new();
    let server = start(&place).await;
    for (token, status) in [
        ("unknown", 401),
        (TRANSMITTER, 403),
        (OTHER_PROVISIONER, 403),
        (TOKEN, 403),
        (PROVISIONER, 200),
    ] {
        let reply = scim_as(&server, token, "GET", "/Users", None).await.expect(status);
        assert_eq!(reply.header("content-type"), "application/scim+json", "{token}");
        assert_eq!(
            reply.header("www-authenticate").is_empty(),
            status != 401 && token != TRANSMITTER
        );
    }
    let provisioner = format!("Bearer {PROVISIONER}");
    let answer = server.post("/v1/revocations", "{}".to_owned(), &[&provisioner]).await;
    assert_eq!(answer.status, 403);
}

#[tokio::test]
async fn users_are_found_page_by_page_and_by_filters() {
    let place = Place::new();
    let server = start(&place).await;
    for name in ["alice", "bob", "carol"] {
        create(&server, name).await;
    }
    let list = async |query: &str| {
        let listed = scim(&server, "GET", &format!("/Users{query}"), None)
            .await
            .expect(200)
            .json();
        let resources = listed["Resources"].as_array().unwrap();
        let names: Vec<_> = resources
            .iter()
            .map(|user| user["userName"].as_str().unwrap_or("-").to_owned())
            .collect();
        (listed["totalResults"].as_u64().unwrap(), names.join(" "))
    };
    for (query, total, names) in [
        ("", 3, "alice bob carol"),
        ("?startIndex=2&count=1", 3, "bob"),
        ("?startIndex=4", 3, ""),
        ("?startIndex=0&count=-1", 3, ""),
        ("?count=0", 3, ""),
        ("?filter=userName%20eq%20%22BOB%22", 1, "bob"),
        ("?filter=externalId+eq+%22ext-bob%22", 1, "bob"),
        ("?filter=userName%20eq%20%22unknown%22", 0, ""),
        ("?filter=userName%20ne%20%22bob%22&startIndex=2", 2, "carol"),
        ("?filter=emails%5Bvalue%20sw%20%22carol%22%5D", 1, "carol"),
        ("?attributes=displayName", 3, "- - -"),
        ("?excludedAttributes=emails,name&count=1", 3, "alice"),
    ] {
        assert_eq!(list(query).await, (total, names.to_owned()), "{query}");
    }
    let search = json!({
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:SearchRequest"],
        "filter": "userName sw \"b\"", "attributes": ["userName"], "count": 10,
    });
    let found = scim(&server, "POST", "/Users/.search", Some(search))
        .await
        .expect(200)
        .json();
    assert_eq!(found["Resources"][0]["userName"], "bob");
    assert!(found["Resources"][0].get("emails").is_none());
}

#[tokio::test]
async fn a_version_prevents_overwriting_unseen_changes() {
    let place = Place::new();
    let server = start(&place).await;
    let id = create(&server, "alice").await;
    let path = format!("/scim/v2/Users/{id}");
    let authorization = format!("Bearer {PROVISIONER}");
    let send = async |method: &str, name: &str, tag: &str, body: Value| {
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", "application/json"),
            (name, tag),
        ];
        request(&server, method, &path, &headers, body.to_string()).await
    };
    let first = send("GET", "if-none-match", "\"0\"", json!(null)).await.expect(200);
    assert_eq!(first.header("etag"), "W/\"1\"");
    send("GET", "if-none-match", "W/\"1\"", json!(null)).await.expect(304);
    let title = |title: &str| json!({"Operations": [{"op": "replace", "path": "title", "value": title}]});
    let changed = send("PATCH", "if-match", "W/\"1\"", title("A")).await.expect(200);
    assert_eq!(changed.header("etag"), "W/\"2\"");
    let stale = send("PATCH", "if-match", "W/\"1\"", title("B")).await.expect(412);
    assert_eq!(stale.json()["status"], "412");
    send(
        "PUT",
        "if-match",
        "W/\"1\"",
        json!({"userName": "alice", "active": false}),
    )
    .await
    .expect(412);
    send("DELETE", "if-match", "W/\"1\"", json!(null)).await.expect(412);
    assert_eq!(principal(&server, "alice").await, None);
    send("DELETE", "if-match", "*", json!(null)).await.expect(204);
}

#[tokio::test]
async fn errors_are_answered_in_scims_format() {
    let place = Place::new();
    let server = place
        .start_with(|config| {
            config.settings = settings(realm("userName"));
            config.identity.users = 2;
        })
        .await;
    let id = create(&server, "alice").await;
    let one = format!("/Users/{id}");
    create(&server, "bob").await;
    let long = "x".repeat(40_000);
    for (method, path, body, status, kind) in [
        ("POST", "/Users", Some(json!({"userName": "ALICE"})), 409, "uniqueness"),
        ("PUT", &one, Some(json!({"userName": "bob"})), 409, "uniqueness"),
        ("POST", "/Users", Some(json!({"userName": "carol"})), 507, ""),
        (
            "POST",
            "/Users",
            Some(json!({"displayName": "Other"})),
            400,
            "invalidValue",
        ),
        ("POST", "/Users", Some(json!({"userName": " "})), 400, "invalidValue"),
        (
            "POST",
            "/Users",
            Some(json!({"userName": "x", "active": "perhaps"})),
            400,
            "invalidValue",
        ),
        (
            "POST",
            "/Users",
            Some(json!({"userName": "x", "USERNAME": "y"})),
            400,
            "invalidSyntax",
        ),
        (
            "POST",
            "/Users",
            Some(json!({"schemas": ["urn:x"], "userName": "x"})),
            400,
            "invalidValue",
        ),
        ("POST", "/Users", Some(json!([])), 400, "invalidSyntax"),
        (
            "POST",
            "/Users",
            Some(json!({"userName": "x".repeat(300)})),
            400,
            "invalidValue",
        ),
        ("PUT", &one, Some(json!({"userName": "alice", "title": long})), 413, ""),
        (
            "PUT",
            &one,
            Some(json!({"userName": "alice", "title": "x".repeat(70_000)})),
            413,
            "",
        ),
        ("PATCH", &one, Some(json!({"Operations": []})), 400, "invalidSyntax"),
        ("GET", "/Users?filter=userName", None, 400, "invalidFilter"),
        ("GET", "/Users?count=many", None, 400, "invalidValue"),
        (
            "GET",
            "/Users?attributes=a&excludedAttributes=b",
            None,
            400,
            "invalidValue",
        ),
        ("GET", "/Users/0", None, 404, ""),
        ("GET", "/Nothing", None, 404, ""),
        ("GET", "/Schemas/urn:x", None, 404, ""),
        ("GET", "/Schemas?filter=id+pr", None, 403, ""),
        ("POST", "/ServiceProviderConfig", None, 405, ""),
        ("GET", "/Me", None, 501, ""),
        ("POST", "/Groups", Some(json!({"displayName": "g"})), 501, ""),
        ("POST", "/Bulk", Some(json!({})), 501, ""),
    ] {
        let refused = scim(&server, method, path, body).await.expect(status);
        let error = refused.json();
        assert_eq!(
            error["schemas"][0], "urn:ietf:params:scim:api:messages:2.0:Error",
            "{method} {path}"
        );
        assert_eq!(error["status"], status.to_string(), "{method} {path}");
        assert_eq!(
            error["scimType"].as_str().unwrap_or_default(),
            kind,
            "{method} {path}: {error}"
        );
        assert!(
            error["detail"].as_str().is_some_and(|detail| detail.len() > 10),
            "{error}"
        );
    }
    let authorization = format!("Bearer {PROVISIONER}");
    for (content_type, body, status) in [
        ("text/plain", r#"{"userName": "x"}"#, 415),
        ("application/json", r#"{"userName": "x", "userName": "y"}"#, 400),
        ("application/json; charset=utf-8", "{", 400),
    ] {
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", content_type),
        ];
        request(&server, "POST", "/scim/v2/Users", &headers, body.to_owned())
            .await
            .expect(status);
    }
    // None of these has changed a principal.
    assert_eq!(principal(&server, "alice").await, None);
}

#[tokio::test]
async fn the_resources_that_providers_read_first_exist() {
    let place = Place::new();
    let server = start(&place).await;
    let config = scim(&server, "GET", "/ServiceProviderConfig", None)
        .await
        .expect(200)
        .json();
    assert_eq!(
        [&config["patch"], &config["filter"], &config["bulk"], &config["etag"]]
            .map(|feature| feature["supported"].clone()),
        [json!(true), json!(true), json!(false), json!(true)]
    );
    let types = scim(&server, "GET", "/ResourceTypes", None).await.expect(200).json();
    assert_eq!(
        (types["totalResults"].clone(), types["Resources"][0]["endpoint"].clone()),
        (json!(1), json!("/Users"))
    );
    let schemas = scim(&server, "GET", "/Schemas", None).await.expect(200).json();
    assert_eq!(schemas["totalResults"], 2);
    // Okta looks for groups to import, even if it only pushes users.
    let groups = scim(&server, "GET", "/Groups?startIndex=1&count=100", None)
        .await
        .expect(200)
        .json();
    assert_eq!(groups["totalResults"], 0);
}

#[tokio::test]
async fn changes_by_identity_providers_are_in_the_metrics() {
    let place = Place::new();
    let server = start(&place).await;
    let id = create(&server, "alice").await;
    patch(&server, &id, set_active(false)).await.expect(200);
    scim(&server, "DELETE", &format!("/Users/{id}"), None).await.expect(204);
    create(&server, "bob").await;
    let metrics = server.get("/metrics", &[]).await.text;
    for line in [
        r#"credence_scim_users{realm="staff"} 1"#,
        r#"credence_scim_changes_total{realm="staff",change="created"} 2"#,
        r#"credence_scim_changes_total{realm="staff",change="updated"} 1"#,
        r#"credence_scim_changes_total{realm="staff",change="deleted"} 1"#,
        r#"credence_revocation_requests_total{operation="disable",source="provisioning",outcome="changed"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}

/// Sends many changes of one user at once. In any order, the log and the record agree in the end.
#[tokio::test]
async fn changes_that_arrive_together_leave_record_and_log_in_agreement() {
    let place = Place::new();
    let server = start(&place).await;
    let id = create(&server, "alice").await;
    let server: &Server = &server;
    let id = &id;
    let changes = (0..8).map(|index| async move { patch(server, id, set_active(index % 2 == 0)).await.expect(200) });
    let mut changes: Vec<_> = changes.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        changes.retain_mut(|change| change.as_mut().poll(context).is_pending());
        match changes.is_empty() {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    let user = scim(server, "GET", &format!("/Users/{id}"), None)
        .await
        .expect(200)
        .json();
    let disabled = principal(server, "alice").await.is_some_and(|state| state.disabled);
    assert_eq!(user["active"], !disabled);
}

#[tokio::test]
async fn a_request_of_the_wrong_type_is_refused_in_scims_format() {
    let place = Place::new();
    let server = start(&place).await;
    for (method, path, body) in [
        ("GET", "/Users/%ff", None),
        ("DELETE", "/Users/%ff", None),
        ("GET", "/Schemas/%ff", None),
        ("POST", "/.search", Some(json!({"attributes": 5}))),
        (
            "POST",
            "/.search",
            Some(json!({"excludedAttributes": ["userName", null]})),
        ),
        (
            "POST",
            "/Users",
            Some(json!({"userName": "alice", "schemas": "urn:ietf:params:scim:schemas:core:2.0:User"})),
        ),
    ] {
        let refused = scim(&server, method, path, body).await.expect(400).json();
        assert_eq!(refused["scimType"], "invalidValue", "{method} {path}: {refused}");
    }
}

/// After a change of the configured attribute, tokens have the new name, whether or not the user has changed since.
#[tokio::test]
async fn a_deleted_user_is_disabled_by_the_realms_present_and_previous_name() {
    let place = Place::new();
    let server = start(&place).await;
    let user = json!({"userName": "alice", "externalId": "ext-alice"});
    let created = scim(&server, "POST", "/Users", Some(user)).await.expect(201);
    let id = created.json()["id"].as_str().unwrap().to_owned();
    server.running.shutdown().await;
    let server = place
        .start_with(|config| config.settings = settings(realm("externalId")))
        .await;
    scim(&server, "DELETE", &format!("/Users/{id}"), None).await.expect(204);
    for name in ["alice", "ext-alice"] {
        assert!(
            principal(&server, name).await.is_some_and(|state| state.disabled),
            "{name}"
        );
    }
}
