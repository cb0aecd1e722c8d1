//! Strict JSON (RFC 8259) for text that somebody else wrote.
//!
//! Differs from the usual parse in what it refuses and in what it keeps: a duplicate member is an error at every
//! depth (parsers disagree about which one counts), nesting is bounded, lone surrogates are refused (RFC 8785 has no
//! form for them), and numbers keep the text they were written with. One pass over the text, because some of it is
//! read before any signature has verified: visitors of serde_json that keep numbers as written have to read each
//! level's text anew, and made a request of 31 KB cost 5 ms.

use std::borrow::Cow;

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
        let text = std::str::from_utf8(text).map_err(|_| JsonError::Syntax("not UTF-8".into()))?;
        let mut parser = Parser { text, position: 0 };
        let json = parser.value(JSON_DEPTH)?;
        parser.skip_space();
        if parser.position < text.len() {
            Err(parser.unexpected("the end"))
        } else {
            Ok(json)
        }
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

struct Parser<'a> {
    text: &'a str,
    /// Always at a character boundary.
    position: usize,
}

impl<'a> Parser<'a> {
    fn value(&mut self, depth: u32) -> Result<Json<'a>, JsonError> {
        self.skip_space();
        match self.peek() {
            Some(b'n') => self.literal("null", Json::Null),
            Some(b't') => self.literal("true", Json::Bool(true)),
            Some(b'f') => self.literal("false", Json::Bool(false)),
            Some(b'"') => self.string().map(Json::String),
            Some(b'[') => self.array(depth.checked_sub(1).ok_or(JsonError::TooDeep)?),
            Some(b'{') => self.object(depth.checked_sub(1).ok_or(JsonError::TooDeep)?),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn array(&mut self, depth: u32) -> Result<Json<'a>, JsonError> {
        self.advance(1);
        let mut elements = Vec::new();
        if self.takes(b']') {
            return Ok(Json::Array(elements));
        }
        loop {
            elements.push(self.value(depth)?);
            if self.takes(b']') {
                return Ok(Json::Array(elements));
            }
            if !self.takes(b',') {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
    }

    fn object(&mut self, depth: u32) -> Result<Json<'a>, JsonError> {
        self.advance(1);
        let mut members: Vec<(Cow<'a, str>, Json<'a>)> = Vec::new();
        if self.takes(b'}') {
            return Ok(Json::Object(Object { members }));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a member's name"));
            }
            let name = self.string()?;
            if !self.takes(b':') {
                return Err(self.unexpected("`:`"));
            }
            members.push((name, self.value(depth)?));
            if self.takes(b'}') {
                break;
            }
            if !self.takes(b',') {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
        let mut names: Vec<&str> = members.iter().map(|(name, _)| name.as_ref()).collect();
        names.sort_unstable();
        match names.array_windows().find(|[a, b]| a == b) {
            Some([name, _]) => Err(JsonError::DuplicateMember((*name).to_owned())),
            None => Ok(Json::Object(Object { members })),
        }
    }

    /// A string, borrowed unless it has escapes; those are serde_json's to undo.
    fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        let rest = self.rest();
        let mut escaped = false;
        let mut length = None;
        let mut bytes = rest.bytes().enumerate().skip(1);
        while let Some((index, byte)) = bytes.next() {
            match byte {
                b'"' => {
                    length = Some(index);
                    break;
                }
                b'\\' => {
                    escaped = true;
                    bytes.next();
                }
                0..=0x1f => return Err(JsonError::Syntax("a control character in a string".into())),
                _ => {}
            }
        }
        let inner = length.and_then(|end| rest.get(1..end));
        let (Some(length), Some(inner)) = (length, inner) else {
            return Err(self.unexpected("a closing quote"));
        };
        let quoted = rest.get(..=length).unwrap_or_default();
        self.advance(quoted.len());
        if !escaped {
            return Ok(Cow::Borrowed(inner));
        }
        serde_json::from_str(quoted)
            .map(Cow::Owned)
            .map_err(|error| JsonError::Syntax(error.to_string()))
    }

    fn number(&mut self) -> Result<Json<'a>, JsonError> {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E'))
            .unwrap_or(rest.len());
        let text = rest.get(..end).unwrap_or_default();
        let number = Number::parse(text).ok_or_else(|| self.unexpected("a number"))?;
        self.advance(end);
        Ok(Json::Number(number))
    }

    fn literal(&mut self, word: &str, json: Json<'a>) -> Result<Json<'a>, JsonError> {
        if self.rest().starts_with(word) {
            self.advance(word.len());
            Ok(json)
        } else {
            Err(self.unexpected("a value"))
        }
    }

    /// Whether the next character other than white space is this one, which is then behind us.
    fn takes(&mut self, wanted: u8) -> bool {
        self.skip_space();
        let found = self.peek() == Some(wanted);
        if found {
            self.advance(1);
        }
        found
    }

    fn skip_space(&mut self) {
        let space = self
            .rest()
            .bytes()
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
            .count();
        self.advance(space);
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }

    fn advance(&mut self, bytes: usize) {
        self.position = self.position.saturating_add(bytes);
    }

    fn unexpected(&self, expected: &str) -> JsonError {
        JsonError::Syntax(format!("expected {expected} at byte {}", self.position))
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
    #[allow(clippy::disallowed_methods)] // the time is what is tested
    fn takes_time_in_proportion_to_the_text_however_deep_it_nests() {
        let text = |depth: usize, length: usize| {
            format!("{}{}1{}", "[".repeat(depth), "1,".repeat(length / 2), "]".repeat(depth))
        };
        let time = |text: &str| {
            let rounds = (0..20).map(|_| {
                let started = std::time::Instant::now();
                parse(text).unwrap();
                started.elapsed()
            });
            rounds.min().unwrap()
        };
        let (flat, deep) = (text(1, 200_000), text(80, 200_000));
        assert!(time(&deep) < 5 * time(&flat), "{:?} {:?}", time(&deep), time(&flat));
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
