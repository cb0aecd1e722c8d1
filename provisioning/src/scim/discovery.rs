//! What clients can ask about the service itself (RFC 7644 section 4; RFC 7643 sections 5 to 7).

use serde_json::json;

use super::schema::{Attribute, ENTERPRISE, Kind, Mutability, Schema, USER};

/// JSON of our own making.
#[allow(clippy::disallowed_types, reason = "written here, never read from anybody")]
pub type Output = serde_json::Value;

/// What is supported, and how much of it.
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

/// Users are all there is.
pub fn resource_types() -> Vec<Output> {
    vec![json!({
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:ResourceType"],
        "id": "User",
        "name": "User",
        "endpoint": "/Users",
        "description": USER.description,
        "schema": USER.id,
        "schemaExtensions": [{"schema": ENTERPRISE.id, "required": false}],
        "meta": {"resourceType": "ResourceType", "location": "/scim/v2/ResourceTypes/User"},
    })]
}

pub fn schemas() -> Vec<Output> {
    [&USER, &ENTERPRISE].into_iter().map(describe).collect()
}

fn describe(schema: &Schema) -> Output {
    json!({
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:Schema"],
        "id": schema.id,
        "name": schema.name,
        "description": schema.description,
        "attributes": schema.attributes.iter().map(describe_attribute).collect::<Vec<_>>(),
        "meta": {"resourceType": "Schema", "location": format!("/scim/v2/Schemas/{}", schema.id)},
    })
}

fn describe_attribute(attribute: &Attribute) -> Output {
    let (mutability, returned) = match attribute.mutability {
        Mutability::ReadOnly => ("readOnly", "default"),
        Mutability::ReadWrite => ("readWrite", "default"),
        Mutability::WriteOnly => ("writeOnly", "never"),
    };
    let mut described = json!({
        "name": attribute.name,
        "type": match attribute.kind {
            Kind::Text => "string",
            Kind::Boolean => "boolean",
            Kind::DateTime => "dateTime",
            Kind::Binary => "binary",
            Kind::Reference(_) => "reference",
            Kind::Complex(_) => "complex",
        },
        "multiValued": attribute.multi_valued,
        "description": attribute.description,
        "required": attribute.required,
        "mutability": mutability,
        "returned": returned,
        "uniqueness": if attribute.unique { "server" } else { "none" },
    });
    match attribute.kind {
        Kind::Text | Kind::Binary => described["caseExact"] = attribute.case_exact.into(),
        Kind::Reference(types) => {
            described["caseExact"] = attribute.case_exact.into();
            described["referenceTypes"] = types.into();
        }
        Kind::Complex(parts) => {
            described["subAttributes"] = parts.iter().map(describe_attribute).collect::<Vec<_>>().into();
        }
        Kind::Boolean | Kind::DateTime => {}
    }
    if !attribute.canonical_values.is_empty() {
        described["canonicalValues"] = attribute.canonical_values.into();
    }
    described
}
