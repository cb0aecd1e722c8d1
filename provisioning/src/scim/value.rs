//! The values of attributes. An attribute without a value is absent: SCIM does not distinguish absent, null and an
//! empty list (RFC 7643 section 2.5).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The value of a user's attribute. There are no numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Bool(bool),
    Text(String),
    List(Vec<Value>),
    Complex(Members),
}

/// Attributes, or sub-attributes, by their names in the schema.
pub type Members = BTreeMap<String, Value>;

// === impl Value ===

impl Value {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn as_complex(&self) -> Option<&Members> {
        match self {
            Self::Complex(members) => Some(members),
            _ => None,
        }
    }

    /// Whether it is an empty list or object.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Complex(members) => members.is_empty(),
            Self::List(values) => values.is_empty(),
            Self::Bool(_) | Self::Text(_) => false,
        }
    }

    /// The values of a list, or the only one.
    pub(crate) fn each(&self) -> &[Value] {
        match self {
            Self::List(values) => values,
            one => std::slice::from_ref(one),
        }
    }
}

/// The value of a text attribute.
pub(crate) fn text<'a>(members: &'a Members, name: &str) -> Option<&'a str> {
    match members.get(name) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    }
}

/// Whether an attribute is present and true.
pub(crate) fn is_true(members: &Members, name: &str) -> bool {
    members.get(name) == Some(&Value::Bool(true))
}
