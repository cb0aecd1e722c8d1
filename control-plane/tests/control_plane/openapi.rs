//! The API's description has exactly the routes that exist.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::harness::{ISSUER, Place, TOKEN};
use super::provider::{PROVISIONER, TRANSMITTER, create, realm, settings};
use super::security_events::beside;

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

#[test]
fn the_routes_of_the_sources_are_those_of_the_description() {
    let mut routed = BTreeSet::new();
    routes_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut routed);
    let document: Value = serde_json::from_str(include_str!("../../openapi/openapi.json")).unwrap();
    let described: BTreeSet<_> = document["paths"].as_object().unwrap().keys().cloned().collect();
    // In the description, a wildcard is a parameter like any other.
    let routed: BTreeSet<_> = routed.iter().map(|route| route.replace("{*", "{")).collect();
    assert_eq!(routed, described);
}

#[tokio::test]
async fn each_route_knows_exactly_the_methods_that_are_described() {
    let place = Place::new();
    let transmitter = json!({"security_events": [{
        "name": "okta", "credentials": ["okta"], "issuer": "https://okta.example.com",
        "audience": "https://credence.example.com", "principal_issuer": ISSUER, "jwks": {"file": beside(&place, "jwks.json")},
    }]});
    std::fs::write(beside(&place, "jwks.json"), JWKS).unwrap();
    let mut both = realm("userName");
    both.as_object_mut()
        .unwrap()
        .extend(transmitter.as_object().unwrap().clone());
    let server = place.start_with(|config| config.settings = settings(both)).await;
    let answer = server.get("/openapi.json", &[]).await;
    assert_eq!((answer.status, answer.content_type.as_str()), (200, "application/json"));
    let document = answer.json();
    assert_eq!(document["openapi"], "3.1.0");
    for (path, operations) in document["paths"].as_object().unwrap() {
        // A user and a resource type that exist.
        let resource = match path.as_str() {
            "/scim/v2/Users/{id}" => path.replace("{id}", &create(&server, "alice").await),
            "/scim/v2/ResourceTypes/{id}" => path.replace("{id}", "User"),
            "/scim/v2/Schemas/{id}" => path.replace("{id}", "urn:ietf:params:scim:schemas:core:2.0:User"),
            _ if path.contains("{ticket}") => {
                let begun = server
                    .post("/v1/audit/sources", "{}".to_owned(), &[&format!("Bearer {TOKEN}")])
                    .await;
                path.replace("{ticket}", begun.json()["ticket"].as_str().unwrap())
            }
            _ => path.clone(),
        };
        let token = match path.as_str() {
            path if path.starts_with("/scim/") => PROVISIONER,
            "/v1/security-events" => TRANSMITTER,
            _ => TOKEN,
        };
        for method in METHODS {
            let status = server.any(method, &format!("{resource}?from=nowhere"), token).await;
            match operations.get(method) {
                None => assert_eq!(status, 405, "{method} {path}"),
                Some(operation) => {
                    let responses = &operation["responses"];
                    assert!(
                        !responses[status.to_string()].is_null(),
                        "{method} {path} answers {status}"
                    );
                    // The credential is valid for each of these routes.
                    assert!(![401, 403, 404].contains(&status), "{method} {path} answers {status}");
                }
            }
        }
        for operation in operations.as_object().unwrap().values() {
            let is_open = operation["security"].as_array().unwrap().is_empty();
            assert_eq!(operation["responses"].get("401").is_none(), is_open, "{path}");
        }
    }
}

/// Each `.route("…"` of the sources.
fn routes_below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            routes_below(&path, found);
            continue;
        }
        let source = std::fs::read_to_string(&path).unwrap();
        for after in source.split(".route(").skip(1) {
            if let Some(literal) = after.trim_start().strip_prefix('"') {
                found.insert(literal.split('"').next().unwrap().to_owned());
            }
        }
    }
}

const JWKS: &str =
    r#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
