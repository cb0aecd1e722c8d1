//! Strict JSON (RFC 8259) for text that somebody else wrote.
//!
//! Differs from the usual parse in what it refuses and in what it keeps: a duplicate member is an error at every
//! depth (parsers disagree about which one counts), nesting is bounded, lone surrogates are refused (RFC 8785 has no
//! form for them), and numbers keep the text they were written with. Tokenising is serde_json's, through
//! [`serde_json::value::RawValue`]; its `Value` is never used, because it reads some objects as numbers.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::limits::JSON_DEPTH;
use crate::number::Number;

/// A JSON text, borrowed where it can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Json<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as written.
    Number(Number<'a>),
    /// A string, unescaped.
    String(Cow<'a, str>),
    /// An array.
    Array(Vec<Json<'a>>),
    /// An object.
    Object(Object<'a>),
}

/// The members of an object in the order they were written; no two have the same name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Object<'a> {
    members: Vec<(Cow<'a, str>, Json<'a>)>,
}

/// Why a text is not JSON that we accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not JSON at all, or with a string that is not Unicode.
    #[error("not valid JSON: {0}")]
    Syntax(String),
    /// Two members of one object have the same name.
    #[error("the member \"{0}\" occurs twice in one object")]
    DuplicateMember(String),
    /// Arrays and objects nest deeper than the limit.
    #[error("nested deeper than {JSON_DEPTH} levels")]
    TooDeep,
}

impl<'a> Json<'a> {
    /// Reads one JSON text; nothing but white space may surround it. At most 80 levels deep.
    ///
    /// # Errors
    /// See [`JsonError`].
    pub fn parse(text: &'a [u8]) -> Result<Self, JsonError> {
        let raw: &RawValue = serde_json::from_slice(text).map_err(|e| JsonError::Syntax(e.to_string()))?;
        read(raw, JSON_DEPTH)
    }

    /// The members, if this is an object.
    #[must_use]
    pub fn as_object(&self) -> Option<&Object<'a>> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The elements, if this is an array.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Json<'a>]> {
        match self {
            Self::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// The text, if this is a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The value, if this is a number written without fraction and exponent.
    #[must_use]
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Number(number) => number.integer(),
            _ => None,
        }
    }

    /// The truth value, if this is one.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }
}

impl<'a> Object<'a> {
    /// The member of that name.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Json<'a>> {
        self.members.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    /// The members, in the order they were written.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json<'a>)> {
        self.members.iter().map(|(name, value)| (name.as_ref(), value))
    }

    /// Whether there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

/// Reads `raw`, whose syntax is already known to be right.
fn read(raw: &RawValue, depth: u32) -> Result<Json<'_>, JsonError> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'n') => Ok(Json::Null),
        Some(b't') => Ok(Json::Bool(true)),
        Some(b'f') => Ok(Json::Bool(false)),
        Some(b'"') => {
            let Text(string) = part(text)?;
            Ok(Json::String(string))
        }
        Some(b'[') => {
            let depth = depth.checked_sub(1).ok_or(JsonError::TooDeep)?;
            let elements: Vec<&RawValue> = part(text)?;
            elements
                .into_iter()
                .map(|e| read(e, depth))
                .collect::<Result<_, _>>()
                .map(Json::Array)
        }
        Some(b'{') => {
            let depth = depth.checked_sub(1).ok_or(JsonError::TooDeep)?;
            let Members(raw_members) = part(text)?;
            let mut names: Vec<&str> = raw_members.iter().map(|(name, _)| name.as_ref()).collect();
            names.sort_unstable();
            if let Some(&[name, _]) = names.array_windows().find(|[a, b]| a == b) {
                return Err(JsonError::DuplicateMember(name.to_owned()));
            }
            let mut members = Vec::with_capacity(raw_members.len());
            for (name, value) in raw_members {
                members.push((name, read(value, depth)?));
            }
            Ok(Json::Object(Object { members }))
        }
        _ => Number::parse(text)
            .map(Json::Number)
            .ok_or_else(|| JsonError::Syntax(format!("unexpected {text}"))),
    }
}

fn part<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, JsonError> {
    serde_json::from_str(text).map_err(|e| JsonError::Syntax(e.to_string()))
}

/// A string, borrowed unless it has escapes.
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// The members of one object with their values unread.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((Text(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Json<'_>, JsonError> {
        Json::parse(text.as_bytes())
    }

    #[test]
    fn keeps_numbers_as_written() {
        let json = parse(r#" {"a": 1.00000000000000001, "b": [9007199254740993]} "#).unwrap();
        let object = json.as_object().unwrap();
        assert_eq!(
            object.member("a"),
            Some(&Json::Number(Number::parse("1.00000000000000001").unwrap()))
        );
        assert_eq!(
            object.member("b").unwrap().as_array().unwrap()[0].as_integer(),
            Some(9_007_199_254_740_993)
        );
    }

    #[test]
    fn refuses_duplicate_members_at_every_depth() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"x":[{"a":1,"b":2,"a":3}]}"#,
            r#"{"\u0061":1,"a":2}"#,
        ] {
            assert_eq!(parse(text), Err(JsonError::DuplicateMember("a".into())), "{text}");
        }
    }

    #[test]
    fn an_object_dressed_as_serde_json_s_private_number_stays_an_object() {
        let text = r#"{"$serde_json::private::Number":"5"}"#;
        assert!(parse(text).unwrap().as_object().is_some());
        let text = r#"{"$serde_json::private::RawValue":"5"}"#;
        assert!(parse(text).unwrap().as_object().is_some());
    }

    #[test]
    fn bounds_nesting() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(parse(&nested(80)).is_ok());
        assert_eq!(parse(&nested(81)), Err(JsonError::TooDeep));
        assert!(parse(&nested(100_000)).is_err());
    }

    #[test]
    fn refuses_what_is_not_json() {
        for text in [
            "",
            "{",
            "{\"a\":1}x",
            "01",
            "+1",
            "NaN",
            "'a'",
            "{a:1}",
            "[1,]",
            "\"\\ud800\"",
            "\u{feff}1",
            "tru",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(Json::parse(b"\"\xff\"").is_err());
    }
}
