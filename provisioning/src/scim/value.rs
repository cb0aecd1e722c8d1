//! What attributes hold. An attribute without a value is absent: SCIM makes no difference between absent, null and an
//! empty list (RFC 7643 section 2.5).

use credence_delegation::json::Json;
use serde::ser::{Serialize, SerializeMap as _, Serializer};

/// The value of an attribute of a user, none of which is a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Bool(bool),
    Text(String),
    List(Vec<Value>),
    Complex(Members),
}

/// Attributes, or sub-attributes, by their names, whose case does not matter (RFC 7643 section 2.1).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members(Vec<(String, Value)>);

// === impl Value ===

impl Value {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
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

    /// Reads back what [`Serialize`] wrote.
    pub(crate) fn from_stored(json: &Json<'_>) -> Option<Self> {
        match json {
            Json::Bool(value) => Some(Self::Bool(*value)),
            Json::String(text) => Some(Self::Text(text.clone().into_owned())),
            Json::Array(values) => values
                .iter()
                .map(Self::from_stored)
                .collect::<Option<_>>()
                .map(Self::List),
            Json::Object(object) => object
                .iter()
                .map(|(name, value)| Some((name.to_owned(), Self::from_stored(value)?)))
                .collect::<Option<_>>()
                .map(|members| Self::Complex(Members(members))),
            Json::Null | Json::Number(_) => None,
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(values) => values.serialize(serializer),
            Self::Complex(members) => members.serialize(serializer),
        }
    }
}

// === impl Members ===

impl Members {
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_text)
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Puts the value in the place of the one that is there, if one is.
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        match self.0.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            Some((_, held)) => *held = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        let index = self.0.iter().position(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(self.0.remove(index).1)
    }

    /// Sets all that `other` has.
    pub(crate) fn merge(&mut self, other: Self) {
        for (name, value) in other.0 {
            self.set(&name, value);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&str, &mut Value) -> bool) {
        self.0.retain_mut(|(name, value)| keep(name, value));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<const N: usize> From<[(&str, Value); N]> for Members {
    fn from(members: [(&str, Value); N]) -> Self {
        Self(
            members
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        )
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
