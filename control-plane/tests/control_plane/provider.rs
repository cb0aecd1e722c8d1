//! An identity provider: a SCIM client that also signs security events.

use credence_control_plane::Settings;
use credence_wire::v1;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::harness::{ISSUER, Place, Server, Watcher};

pub(crate) const PROVISIONER: &str = "the-token-that-users-are-provisioned-with";
pub(crate) const OTHER_PROVISIONER: &str = "the-token-of-another-realm-altogether";
pub(crate) const TRANSMITTER: &str = "the-token-that-events-are-pushed-with";

/// An HTTP answer with the headers that identity providers read.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) text: String,
    headers: ureq::http::HeaderMap,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }
}

/// Settings with a credential for each role, and these further ones.
pub(crate) fn settings(rest: Value) -> Settings {
    let token = |name: &str, token: &str, role: &str| {
        let digest: String = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
        json!({"name": name, "sha256": digest, "roles": [role]})
    };
    let mut settings = json!({"access": {"tokens": [
        token("entra", PROVISIONER, "provisioner"),
        token("other", OTHER_PROVISIONER, "provisioner"),
        token("okta", TRANSMITTER, "transmitter"),
        token("siem", "another transmitter", "transmitter"),
    ]}});
    settings
        .as_object_mut()
        .unwrap()
        .extend(rest.as_object().unwrap().clone());
    serde_json::from_value(settings).unwrap()
}

/// A realm whose users are the principals of [`ISSUER`] by this attribute.
pub(crate) fn realm(subject: &str) -> Value {
    json!({"scim": [{"name": "staff", "credentials": ["entra"], "issuer": ISSUER, "subject": subject}]})
}

/// A control plane with one realm, whose users are named by `userName`.
pub(crate) async fn start(place: &Place) -> Server {
    place
        .start_with(|config| config.settings = settings(realm("userName")))
        .await
}

pub(crate) async fn request(
    server: &Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: String,
) -> Reply {
    let mut request = ureq::http::Request::builder().method(method).uri(server.url(path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(body).unwrap();
    tokio::task::spawn_blocking(move || {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .build()
            .into();
        let mut response = agent.run(request).unwrap();
        Reply {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            text: response.body_mut().read_to_string().unwrap(),
        }
    })
    .await
    .unwrap()
}

pub(crate) async fn scim_as(server: &Server, token: &str, method: &str, path: &str, body: Option<Value>) -> Reply {
    let authorization = format!("Bearer {token}");
    let mut headers = vec![("authorization", authorization.as_str())];
    if body.is_some() {
        headers.push(("content-type", "application/scim+json"));
    }
    let body = body.map_or_else(String::new, |body| body.to_string());
    request(server, method, &format!("/scim/v2{path}"), &headers, body).await
}

pub(crate) async fn scim(server: &Server, method: &str, path: &str, body: Option<Value>) -> Reply {
    scim_as(server, PROVISIONER, method, path, body).await
}

/// Creates an active user; returns the user's id.
pub(crate) async fn create(server: &Server, name: &str) -> String {
    let user = json!({
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"],
        "userName": name,
        "externalId": format!("ext-{name}"),
        "active": true,
        "emails": [{"value": format!("{name}@example.com"), "type": "work", "primary": true}],
    });
    let created = scim(server, "POST", "/Users", Some(user)).await.expect(201);
    created.json()["id"].as_str().unwrap().to_owned()
}

pub(crate) async fn patch(server: &Server, id: &str, operation: Value) -> Reply {
    let body = json!({
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
        "Operations": [operation],
    });
    scim(server, "PATCH", &format!("/Users/{id}"), Some(body)).await
}

pub(crate) fn set_active(active: bool) -> Value {
    json!({"op": "replace", "value": {"active": active}})
}

/// The log's state of a principal of [`ISSUER`], as a new filter gets it.
pub(crate) async fn principal(server: &Server, subject: &str) -> Option<v1::PrincipalState> {
    let (mut watcher, _, mut records) = server.watch_from_snapshot().await;
    // Streams that start at about the same time share a snapshot; later records follow it.
    let (updates, _) = watcher.ping(1).await;
    records.extend(updates.into_iter().filter_map(|update| update.record));
    find(&records, subject)
}

/// The principal's state in the updates before the next pong.
pub(crate) async fn updated(watcher: &mut Watcher, subject: &str) -> Option<v1::PrincipalState> {
    let (updates, _) = watcher.ping(1).await;
    let records: Vec<_> = updates.into_iter().filter_map(|update| update.record).collect();
    find(&records, subject)
}

fn find(records: &[v1::Record], subject: &str) -> Option<v1::PrincipalState> {
    let states = records.iter().filter_map(|record| match &record.subject {
        Some(v1::record::Subject::Principal(state)) => Some(state),
        _ => None,
    });
    let is_wanted = |state: &&v1::PrincipalState| {
        let principal = state.principal.as_ref().unwrap();
        principal.issuer == ISSUER && principal.subject.as_deref() == Some(subject)
    };
    states.rev().find(is_wanted).cloned()
}
