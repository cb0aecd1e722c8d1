//! A user whom the identity provider disables is denied at the next request, in every worker.

// Answers and tokens are JSON whose structure this test knows.
#![allow(clippy::disallowed_types)]

use std::fs;
use std::sync::LazyLock;

use credence_e2e::assertions::assert_denied;
use credence_e2e::forge::{self, Forger};
use credence_e2e::grants::READ;
use credence_e2e::{Client, Failure, ISSUER, Reply, Request, Stack, StackOptions, waiting};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

const PROVISIONER: &str = "the-token-that-users-are-provisioned-with";
const TRANSMITTER: &str = "the-token-that-events-are-pushed-with";
const PROVIDER: &str = "https://idp.example.com";

/// Shared by all tests, with the folder of its configuration.
static STACK: LazyLock<(Stack, TempDir)> = LazyLock::new(|| start().unwrap());

fn stack() -> &'static Stack {
    &STACK.0
}

/// The provider's key for signing events.
fn signer() -> Forger {
    Forger::from_seed([7; 32])
}

fn start() -> Result<(Stack, TempDir), Failure> {
    let folder = tempfile::tempdir().map_err(Failure::of("making a folder"))?;
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, text).map_err(Failure::of("writing a file"))?;
        Ok::<_, Failure>(file.display().to_string())
    };
    let keys = write("jwks.json", &json!({"keys": [signer().jwk()]}).to_string())?;
    let token = |name: &str, token: &str, role: &str| {
        let digest: String = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
        json!({"name": name, "sha256": digest, "roles": [role]})
    };
    // JSON is valid YAML.
    let settings = json!({
        "access": {"tokens": [token("users", PROVISIONER, "provisioner"), token("events", TRANSMITTER, "transmitter")]},
        "scim": [{"name": "staff", "credentials": ["users"], "issuer": ISSUER}],
        "security_events": [{
            "name": "idp", "credentials": ["events"], "issuer": PROVIDER, "audience": "credence",
            "principal_issuer": ISSUER, "jwks": {"file": keys},
        }],
    });
    let file = write("credence.yaml", &settings.to_string())?;
    let options = StackOptions {
        serve_options: vec!["--config".to_owned(), file],
        ..StackOptions::default()
    };
    Ok((Stack::start(&options)?, folder))
}

fn ask(token: &str, content_type: &str, method: &str, path: &str, body: String) -> Reply {
    let request = Request::new(method, path)
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", content_type)
        .header("content-length", body.len().to_string())
        .trailing(body);
    Client::connect(stack().control_plane.http())
        .and_then(|mut client| client.send(&request))
        .unwrap()
}

/// Creates a user; returns the user's path.
fn provision(name: &str) -> String {
    let user = json!({
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": name, "active": true,
    });
    let created = ask(
        PROVISIONER,
        "application/scim+json",
        "POST",
        "/scim/v2/Users",
        user.to_string(),
    );
    assert_eq!(created.status, 201, "{}", created.text());
    let user: Value = serde_json::from_str(&created.text()).unwrap();
    user["meta"]["location"].as_str().unwrap().to_owned()
}

fn book(chain: &str) -> Request {
    Request::get("/v1/catalog/book").delegation(chain)
}

/// Makes every worker cache this subject's delegation, runs `action`, and checks that every worker denies.
#[track_caller]
fn assert_denied_everywhere_after(name: &str, reason: &str, action: impl FnOnce()) {
    let chain = stack().mint(name, &["--tool", READ]).unwrap();
    let mut workers = stack().envoy.connection_to_every_worker().unwrap();
    for client in &mut workers {
        let reply = client.send(&book(&chain)).unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    action();
    for client in &mut workers {
        let denied = waiting::until("the earlier delegation to be denied", || {
            let reply = client.send(&book(&chain))?;
            Ok((reply.status != 200).then_some(reply))
        });
        assert_denied(&denied.unwrap(), 401, reason);
    }
}

fn deprovision(user: &str, operations: &Value) {
    let body = json!({
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"], "Operations": operations,
    });
    let patched = ask(PROVISIONER, "application/scim+json", "PATCH", user, body.to_string());
    assert_eq!(patched.status, 200, "{}", patched.text());
}

#[test]
fn a_user_deprovisioned_as_entra_id_does_it_is_denied_everywhere() {
    let user = provision("eve@example.com");
    assert_denied_everywhere_after("eve@example.com", "disabled_principal", || {
        deprovision(&user, &json!([{"op": "Replace", "path": "active", "value": "False"}]));
    });
}

#[test]
fn a_user_deprovisioned_as_okta_does_it_is_denied_everywhere() {
    let user = provision("oscar@example.com");
    assert_denied_everywhere_after("oscar@example.com", "disabled_principal", || {
        deprovision(&user, &json!([{"op": "replace", "value": {"active": false}}]));
    });
}

#[test]
fn a_session_that_the_provider_revokes_revokes_earlier_delegations_only() {
    assert_denied_everywhere_after("sam@example.com", "revoked_principal", || {
        let claims = json!({
            "iss": PROVIDER, "aud": "credence", "jti": "session-1", "iat": forge::now(),
            "sub_id": {"format": "iss_sub", "iss": PROVIDER, "sub": "sam@example.com"},
            "events": {"https://schemas.openid.net/secevent/caep/event-type/session-revoked": {}},
        });
        let token = signer().sign("secevent+jwt", &claims).unwrap();
        let taken = ask(
            TRANSMITTER,
            "application/secevent+jwt",
            "POST",
            "/v1/security-events",
            token,
        );
        assert_eq!(taken.status, 202, "{}", taken.text());
    });
}
