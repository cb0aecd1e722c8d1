//! Strict JSON (RFC 8259) for untrusted text.
//!
//! Stricter than usual parsers: a duplicate member is an error at every depth (parsers disagree about which one
//! counts), nesting is bounded, lone surrogates are refused (RFC 8785 has no form for them), and numbers keep their
//! text.
//!
//! It makes one pass over the text, because some of it is read before any signature is verified. serde_json's visitors
//! that keep numbers as written read the text of each level again: a request of 31 KB cost 5 ms.

use std::borrow::Cow;

use crate::limits::JSON_DEPTH;
use crate::number::Number;
use crate::sort::sort;

/// A JSON text, borrowed where possible.
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

/// The members of an object in their written order; no two have the same name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Object<'a> {
    members: Vec<(Cow<'a, str>, Json<'a>)>,
}

/// Why a text is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Invalid JSON, or a string that is not Unicode.
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
    pub fn as_object(&self) -> Option<&Object<'a>> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The elements, if this is an array.
    pub fn as_array(&self) -> Option<&[Json<'a>]> {
        match self {
            Self::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// The text, if this is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The value, if this is a number written without fraction and exponent.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Number(number) => number.integer(),
            _ => None,
        }
    }

    /// The truth value, if this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }
}

impl<'a> Object<'a> {
    /// The member of that name.
    pub fn member(&self, name: &str) -> Option<&Json<'a>> {
        self.members.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    /// The member at this path of names, from object to object.
    pub fn at(&self, names: &[&str]) -> Option<&Json<'a>> {
        match names {
            [] => None,
            [name] => self.member(name),
            [name, rest @ ..] => self.object(name)?.at(rest),
        }
    }

    /// The member of that name, if it is an object.
    pub fn object(&self, name: &str) -> Option<&Object<'a>> {
        self.member(name)?.as_object()
    }

    /// The member of that name, if it is a string.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.member(name)?.as_str()
    }

    /// The member of that name, if it is an array.
    pub fn array(&self, name: &str) -> Option<&[Json<'a>]> {
        self.member(name)?.as_array()
    }

    /// The member of that name, if it is a number written without fraction and exponent.
    pub fn integer(&self, name: &str) -> Option<i64> {
        self.member(name)?.as_integer()
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

impl<'a> FromIterator<(String, Json<'a>)> for Object<'a> {
    /// The names must differ.
    fn from_iter<I: IntoIterator<Item = (String, Json<'a>)>>(members: I) -> Self {
        Self {
            members: members
                .into_iter()
                .map(|(name, json)| (Cow::Owned(name), json))
                .collect(),
        }
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
        match repeated(&members) {
            Some(name) => Err(JsonError::DuplicateMember(name.to_owned())),
            None => Ok(Json::Object(Object { members })),
        }
    }

    /// A string, borrowed unless it has escapes, which serde_json decodes.
    fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        let rest = self.rest();
        let mut escaped = false;
        // After the opening quote.
        let mut end = 1usize;
        loop {
            end = end.saturating_add(plain_bytes(rest.as_bytes().get(end..).unwrap_or_default()));
            match rest.as_bytes().get(end) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    end = end.saturating_add(2);
                }
                Some(_) => return Err(JsonError::Syntax("a control character in a string".into())),
                None => return Err(self.unexpected("a closing quote")),
            }
        }
        let (Some(quoted), Some(inner)) = (rest.get(..=end), rest.get(1..end)) else {
            return Err(self.unexpected("a closing quote"));
        };
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
            .bytes()
            .position(|byte| !matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
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

    /// Whether the next character other than white space is this one. If so, it is consumed.
    fn takes(&mut self, wanted: u8) -> bool {
        self.skip_space();
        let found = self.peek() == Some(wanted);
        if found {
            self.advance(1);
        }
        found
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.advance(1);
        }
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

/// A name that several members have, if any.
fn repeated<'m>(members: &'m [(Cow<'_, str>, Json<'_>)]) -> Option<&'m str> {
    if members.len() <= FEW {
        let mut others = members.iter();
        while let Some((name, _)) = others.next_back() {
            if others.clone().any(|(other, _)| other == name) {
                return Some(name);
            }
        }
        return None;
    }
    let mut names: Vec<&str> = members.iter().map(|(name, _)| name.as_ref()).collect();
    sort(&mut names);
    let twice = names.array_windows().find(|[one, other]| one == other);
    twice.map(|[name, _]| *name)
}

/// How many of these bytes come before the first quote, backslash or control character.
pub(crate) fn plain_bytes(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut length = 0usize;
    for word in words {
        let special = special_bytes(u64::from_le_bytes(*word));
        if special != 0 {
            return length.saturating_add(special.trailing_zeros() as usize / 8);
        }
        length = length.saturating_add(8);
    }
    let special = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f));
    length.saturating_add(special.unwrap_or(rest.len()))
}

/// The highest bit of each byte that is one of those, up to the lowest of them: a byte above it may be marked too.
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHEST: u64 = ONES << 7;
    const QUOTES: u64 = ONES * b'"' as u64;
    const BACKSLASHES: u64 = ONES * b'\\' as u64;
    const SPACES: u64 = ONES * b' ' as u64;
    // A byte below 0x80 that is less than the subtrahend borrows from its own highest bit, which is not set in it.
    let less = |word: u64, than: u64| word.wrapping_sub(than) & !word;
    let is = |bytes: u64| less(word ^ bytes, ONES);
    (is(QUOTES) | is(BACKSLASHES) | less(word, SPACES)) & HIGHEST
}

/// Up to this many members, names are compared pairwise, which needs no memory.
const FEW: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_ends_at_its_closing_quote_at_every_length() {
        for before in 0..20 {
            for (special, expected) in [
                ("\"", Some("")),
                ("\\n\"", Some("\n")),
                ("\\\\\"", Some("\\")),
                ("\\\"\"", Some("\"")),
                ("\u{1f}\"", None),
                ("\u{0}\"", None),
                ("\\", None),
                ("", None),
            ] {
                for plain in [
                    "a",
                    " ",
                    "\u{7f}",
                    "!",
                    "#",
                    "[",
                    "]",
                    "\u{80}",
                    "\u{a2}",
                    "\u{dc}",
                    "\u{10ffff}",
                ] {
                    let text = plain.repeat(before);
                    let json = format!(
                        "[\"{text}{special}{plain}]",
                        plain = if expected.is_some() { "" } else { plain }
                    );
                    match (expected, parse(&json)) {
                        (Some(end), Ok(Json::Array(found))) => {
                            assert_eq!(found, [Json::String(Cow::Owned(text + end))], "{json:?}");
                        }
                        (None, Err(_)) => {}
                        (_, other) => panic!("{json:?}: {other:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn refuses_duplicate_members_among_many() {
        for members in [2usize, FEW, FEW + 1, 100] {
            for twice in [0, members / 2, members - 1] {
                let text = |name: &dyn Fn(usize) -> usize| {
                    let members: Vec<String> = (0..=members).map(|place| format!("\"{}\":1", name(place))).collect();
                    format!("{{{}}}", members.join(","))
                };
                assert!(parse(&text(&|place| place)).is_ok());
                let repeated = text(&|place| if place == members { twice } else { place });
                assert_eq!(
                    parse(&repeated),
                    Err(JsonError::DuplicateMember(twice.to_string())),
                    "{repeated}"
                );
            }
        }
    }

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
    fn an_object_that_looks_like_serde_json_s_private_number_stays_an_object() {
        let text = r#"{"$serde_json::private::Number":"5"}"#;
        assert!(parse(text).unwrap().as_object().is_some());
        let text = r#"{"$serde_json::private::RawValue":"5"}"#;
        assert!(parse(text).unwrap().as_object().is_some());
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // the time is what is tested
    fn takes_time_proportional_to_the_text_at_every_depth() {
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
    fn refuses_invalid_json() {
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
