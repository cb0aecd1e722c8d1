//! What attributes hold. An attribute without a value is absent: SCIM makes no difference between absent, null and an
//! empty list (RFC 7643 section 2.5).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The value of an attribute of a user, none of which is a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Bool(bool),
    Text(String),
    List(Vec<Value>),
    Complex(Members),
}

/// Attributes, or sub-attributes, by their names as the schema spells them.
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

    /// Whether it is a list or an object with nothing in it.
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

/// The value of an attribute that is a text.
pub(crate) fn text<'a>(members: &'a Members, name: &str) -> Option<&'a str> {
    match members.get(name) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    }
}

/// Whether an attribute is there and true.
pub(crate) fn is_true(members: &Members, name: &str) -> bool {
    members.get(name) == Some(&Value::Bool(true))
}
