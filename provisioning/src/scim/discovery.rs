//! Answers about the service itself (RFC 7644 section 4; RFC 7643 sections 5 to 7).

use serde_json::json;

use super::schema::{ENTERPRISE_URN, SCHEMAS, USER_URN, document};

/// JSON that is made here.
#[allow(clippy::disallowed_types, reason = "made here, never read from a client")]
pub type Output = serde_json::Value;

/// The supported features and their limits.
pub fn service_provider_config(max_page: usize) -> Output {
    json!({
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"],
        "patch": {"supported": true},
        "bulk": {"supported": false, "maxOperations": 0, "maxPayloadSize": 0},
        "filter": {"supported": true, "maxResults": max_page},
        "changePassword": {"supported": false},
        "sort": {"supported": false},
        "etag": {"supported": true},
        "authenticationSchemes": [{
            "type": "oauthbearertoken",
            "name": "Bearer token",
            "description": "A token of a credential with the role provisioner (RFC 6750)",
            "specUri": "https://www.rfc-editor.org/rfc/rfc6750",
            "primary": true,
        }],
        "meta": {
            "resourceType": "ServiceProviderConfig",
            "location": "/scim/v2/ServiceProviderConfig",
        },
    })
}

/// Users are the only resources.
pub fn resource_types() -> Vec<Output> {
    vec![json!({
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:ResourceType"],
        "id": "User",
        "name": "User",
        "endpoint": "/Users",
        "description": "User Account",
        "schema": USER_URN,
        "schemaExtensions": [{"schema": ENTERPRISE_URN, "required": false}],
        "meta": {"resourceType": "ResourceType", "location": "/scim/v2/ResourceTypes/User"},
    })]
}

/// The schemas of users.
pub fn schemas() -> Vec<Output> {
    SCHEMAS.map(document).into()
}
