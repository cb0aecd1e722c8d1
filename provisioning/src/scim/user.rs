//! One user, as stored and as shown.

use credence_delegation::json::{Json, Object};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::error::ScimError;
use super::path::Target;
use super::schema::{ENTERPRISE_URN, USER_URN, read_members};
use super::value::{Members, Value, is_true, text};

/// A user of a realm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Assigned here, never used twice.
    pub(crate) id: String,
    /// Increases with every change.
    pub(crate) version: u64,
    /// RFC 3339.
    pub(crate) created: String,
    /// RFC 3339.
    pub(crate) modified: String,
    /// The principal's subject that was last revoked or enabled for this user. It is stored, because the configuration
    /// may name another attribute at the next change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<String>,
    pub(crate) attributes: Members,
}

// === impl User ===

impl User {
    pub(crate) fn new(id: String, attributes: Members, subject: Option<String>) -> Self {
        let now = now();
        Self {
            id,
            version: 1,
            created: now.clone(),
            modified: now,
            subject,
            attributes,
        }
    }

    pub(crate) fn changed(&self, attributes: Members, subject: Option<String>) -> Self {
        Self {
            version: self.version + 1,
            modified: now(),
            subject,
            attributes,
            ..self.clone()
        }
    }

    pub(crate) fn user_name(&self) -> &str {
        text(&self.attributes, "userName").unwrap_or_default()
    }

    /// The entity tag. Weak, because the shown resource depends on the requested attributes.
    pub fn etag(&self) -> String {
        format!("W/\"{}\"", self.version)
    }

    pub fn location(&self) -> String {
        format!("{USERS}/{}", self.id)
    }

    /// The resource for clients.
    pub fn resource(&self) -> Members {
        let mut schemas = vec![Value::text(USER_URN)];
        if self.attributes.contains_key(ENTERPRISE_URN) {
            schemas.push(Value::text(ENTERPRISE_URN));
        }
        let meta = [
            ("resourceType", Value::text("User")),
            ("created", Value::text(&self.created)),
            ("lastModified", Value::text(&self.modified)),
            ("location", Value::text(self.location())),
            ("version", Value::text(self.etag())),
        ];
        let meta = meta.map(|(name, value)| (name.to_owned(), value)).into();
        let mut resource = self.attributes.clone();
        for (name, value) in [
            ("schemas", Value::List(schemas)),
            ("id", Value::text(&self.id)),
            ("meta", Value::Complex(meta)),
        ] {
            resource.insert(name.to_owned(), value);
        }
        resource
    }
}

/// Whether authority may be exercised in the user's name: only if `active` is true.
pub(crate) fn is_active(attributes: &Members) -> bool {
    is_true(attributes, "active")
}

/// Parses the attributes in the body of a POST or PUT. Ignores attributes that the server sets (RFC 7644 section
/// 3.5.1), and unknown ones.
pub(crate) fn read_attributes(body: &Object<'_>) -> Result<Members, ScimError> {
    let attributes = read_members(body, |name| match Target::parse(name).ok()? {
        Target::Attribute(path) if path.values.is_none() && path.name.path.len() == 1 => Some(path.name.last),
        Target::Attribute(_) | Target::Foreign => None,
    })?;
    if let Some(schemas) = body.member("schemas") {
        let named = |id: &str| {
            schemas
                .as_array()
                .unwrap_or_default()
                .iter()
                .filter_map(Json::as_str)
                .any(|named| named.eq_ignore_ascii_case(id))
        };
        if !named(USER_URN) {
            return Err(ScimError::invalid_value(format!("schemas must name {USER_URN}")));
        }
    }
    Ok(attributes)
}

fn now() -> String {
    let now = OffsetDateTime::now_utc();
    // In whole milliseconds, which every client can parse.
    let now = now.replace_millisecond(now.millisecond()).unwrap_or(now);
    now.format(&Rfc3339).unwrap_or_default()
}

/// The path of users.
const USERS: &str = "/scim/v2/Users";
