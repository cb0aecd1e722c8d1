//! The schema of users: the core schema of RFC 7643 section 4.1 and the enterprise extension of section 4.3.
//!
//! Both are JSON documents in the form of RFC 7643 section 7, as clients get them from `/scim/v2/Schemas`. The
//! extension is one more attribute of the user: a complex one with the extension's URN as its name.

use std::sync::LazyLock;

use credence_delegation::json::{Json, Object};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::ScimError;
use super::value::{Members, Value, is_true};

/// An attribute or sub-attribute (RFC 7643 section 7).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Attribute {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: Kind,
    pub(crate) multi_valued: bool,
    pub(crate) required: bool,
    #[serde(default)]
    pub(crate) case_exact: bool,
    pub(crate) mutability: Mutability,
    #[serde(default)]
    sub_attributes: Vec<Attribute>,
}

/// The type of an attribute's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    String,
    Boolean,
    DateTime,
    Binary,
    Reference,
    Complex,
}

/// Who may write it, and whether it is ever returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Mutability {
    ReadOnly,
    ReadWrite,
    /// Written and never returned. Nothing here needs it, so it is not stored.
    WriteOnly,
}

// === impl Attribute ===

impl Attribute {
    pub(crate) fn sub_attribute(&self, name: &str) -> Option<&Self> {
        self.sub_attributes
            .iter()
            .find(|attribute| attribute.name.eq_ignore_ascii_case(name))
    }

    pub(crate) fn is_complex(&self) -> bool {
        self.kind == Kind::Complex
    }

    /// Parses a client's value. `None` leaves the attribute without a value.
    pub(crate) fn read(&self, json: &Json<'_>) -> Result<Option<Value>, ScimError> {
        if self.mutability == Mutability::WriteOnly {
            return Ok(None);
        }
        if !self.multi_valued {
            return match json {
                // Azure AD sends a manager like this.
                Json::Array(values) if values.len() == 1 => {
                    values.first().map_or(Ok(None), |value| self.read_one(value))
                }
                one => self.read_one(one),
            };
        }
        let mut values = Vec::new();
        let elements = json.as_array().unwrap_or(std::slice::from_ref(json));
        for element in elements {
            if let Some(value) = self.read_one(element)? {
                values.push(value);
            }
        }
        let primaries = values.iter().filter(|value| is_primary(value)).count();
        if primaries > 1 {
            return Err(ScimError::invalid_value(format!(
                "{primaries} values of {} are primary; at most one may be (RFC 7643 section 2.4)",
                self.name
            )));
        }
        Ok((!values.is_empty()).then_some(Value::List(values)))
    }

    fn read_one(&self, json: &Json<'_>) -> Result<Option<Value>, ScimError> {
        let wrong = |expected: &str| {
            Err(ScimError::invalid_value(format!(
                "the attribute {} must be {expected}",
                self.name
            )))
        };
        match (self.kind, json) {
            (_, Json::Null) => Ok(None),
            (Kind::Boolean, Json::Bool(value)) => Ok(Some(Value::Bool(*value))),
            // Entra ID writes booleans as strings, unless its flag aadOptscim062020 is set.
            (Kind::Boolean, Json::String(text)) if text.eq_ignore_ascii_case("true") => Ok(Some(Value::Bool(true))),
            (Kind::Boolean, Json::String(text)) if text.eq_ignore_ascii_case("false") => Ok(Some(Value::Bool(false))),
            (Kind::Boolean, _) => wrong("true or false"),
            (Kind::Complex, Json::Object(object)) => {
                let members = read_members(object, |name| self.sub_attribute(name))?;
                Ok((!members.is_empty()).then_some(Value::Complex(members)))
            }
            // Entra ID sends only the identifying part of a manager.
            (Kind::Complex, Json::String(text)) if self.sub_attribute("value").is_some() => Ok(Some(Value::Complex(
                [("value".to_owned(), Value::text(text.as_ref()))].into(),
            ))),
            (Kind::Complex, _) => wrong("an object of its sub-attributes"),
            (_, Json::String(text)) => Ok(Some(Value::text(text.as_ref()))),
            _ => wrong("a string"),
        }
    }
}

/// Parses the members of an object that are attributes. Ignores other members, and those that clients may not set.
pub(crate) fn read_members<'a>(
    object: &Object<'_>,
    attribute: impl Fn(&str) -> Option<&'a Attribute>,
) -> Result<Members, ScimError> {
    let mut members = Members::default();
    for (name, json) in object.iter() {
        let Some(attribute) = attribute(name).filter(|attribute| attribute.mutability != Mutability::ReadOnly) else {
            continue;
        };
        if let Some(value) = attribute.read(json)?
            && members.insert(attribute.name.clone(), value).is_some()
        {
            return Err(twice(name));
        }
    }
    Ok(members)
}

/// Whether this is the preferred one of several values.
pub(crate) fn is_primary(value: &Value) -> bool {
    value.as_complex().is_some_and(|members| is_true(members, "primary"))
}

/// The error for two spellings of one name.
pub(crate) fn twice(name: &str) -> ScimError {
    ScimError::invalid_syntax(format!(
        "the attribute {name} occurs twice; the case of names does not matter (RFC 7643 section 2.1)"
    ))
}

/// A user: an object with the attributes of both schemas, and with those of every resource.
pub(crate) static USER: LazyLock<Attribute> = LazyLock::new(|| {
    let [user, enterprise] = SCHEMAS.map(document::<Schema>);
    let mut attributes = user.attributes;
    attributes.extend(document::<Vec<Attribute>>(COMMON_ATTRIBUTES));
    attributes.push(complex(ENTERPRISE_URN, enterprise.attributes));
    complex("User", attributes)
});

#[derive(Deserialize)]
struct Schema {
    attributes: Vec<Attribute>,
}

fn complex(name: &str, sub_attributes: Vec<Attribute>) -> Attribute {
    Attribute {
        name: name.to_owned(),
        kind: Kind::Complex,
        multi_valued: false,
        required: false,
        case_exact: false,
        mutability: Mutability::ReadWrite,
        sub_attributes,
    }
}

/// Parses one of the documents below.
#[expect(clippy::expect_used, reason = "these documents are part of the program")]
pub(crate) fn document<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).expect("a document of this folder is JSON")
}

pub(crate) const USER_URN: &str = "urn:ietf:params:scim:schemas:core:2.0:User";
pub(crate) const ENTERPRISE_URN: &str = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User";
/// The documents of the two schemas.
pub(crate) const SCHEMAS: [&str; 2] = [
    include_str!("../../scim/user.json"),
    include_str!("../../scim/enterprise-user.json"),
];
/// Attributes that a client may name in a path or a filter, although no schema has them (RFC 7643 section 3.1).
const COMMON_ATTRIBUTES: &str = include_str!("../../scim/common-attributes.json");
