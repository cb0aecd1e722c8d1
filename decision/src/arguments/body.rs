//! Reads arguments from a JSON body.
//!
//! Closed world: a member that no argument reads and that is not listed as ignored denies, because the service would
//! read it and no delegation constrains it. The protocol's own strict parser reads the body. It refuses duplicate
//! members, lone surrogates and anything after the value, since parsers disagree about them. Names are compared
//! exactly: if a service accepts `Amount` for `amount`, the unmapped spelling denies.

use std::collections::BTreeMap;

use credence_delegation::json::Json;
use credence_delegation::{Arguments, Value};
use thiserror::Error;

use super::pointer::{Pointer, escaped};
use super::source::{ArgumentKind, ArgumentSource, unmapped};
use crate::decision::{Denial, Reason};
use crate::request::{Header, Request};

/// Which parts of a body arguments read, and which parts are ignored. Empty if the rule reads no body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyMapping {
    root: Option<Part>,
}

/// How a part of the body is handled.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// The value of the argument with this index in the rule.
    Argument(usize),
    /// Ignored.
    Ignored,
    /// Some of its own parts are mapped; any other is refused.
    Inside(BTreeMap<String, Part>),
}

/// Two places that are equal, or one of which is within the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the place overlaps another one; each part of the body is read once or ignored")]
pub struct Overlap;

impl BodyMapping {
    /// Maps this place to the argument with this index.
    ///
    /// # Errors
    /// The place overlaps another one.
    pub fn map(&mut self, place: &Pointer, argument: usize) -> Result<(), Overlap> {
        self.add(place, Part::Argument(argument))
    }

    /// Ignores the value at this place.
    ///
    /// # Errors
    /// The place overlaps another one.
    pub fn ignore(&mut self, place: &Pointer) -> Result<(), Overlap> {
        self.add(place, Part::Ignored)
    }

    /// Whether no body is read.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    fn add(&mut self, place: &Pointer, part: Part) -> Result<(), Overlap> {
        let Some((last, inner)) = place.tokens.split_last() else {
            return match self.root.replace(part) {
                None => Ok(()),
                Some(_) => Err(Overlap),
            };
        };
        let mut parts = self.root.get_or_insert_with(Part::inside).parts()?;
        for token in inner {
            parts = parts.entry(token.clone()).or_insert_with(Part::inside).parts()?;
        }
        match parts.insert(last.clone(), part) {
            None => Ok(()),
            Some(_) => Err(Overlap),
        }
    }

    /// Reads the arguments from a body. `sources` are those of the rule, by index.
    ///
    /// # Errors
    /// The request is to be denied.
    pub fn read(&self, body: &[u8], sources: &[ArgumentSource], arguments: &mut Arguments) -> Result<(), Denial> {
        let Some(root) = &self.root else { return Ok(()) };
        let json = Json::parse(body).map_err(|_| Reason::BodyMalformed)?;
        let mut reader = Reader {
            sources,
            arguments,
            place: String::new(),
        };
        reader.read(root, &json)
    }
}

impl Part {
    fn inside() -> Self {
        Self::Inside(BTreeMap::new())
    }

    fn parts(&mut self) -> Result<&mut BTreeMap<String, Part>, Overlap> {
        match self {
            Self::Inside(parts) => Ok(parts),
            Self::Argument(_) | Self::Ignored => Err(Overlap),
        }
    }
}

/// Walks a body together with its mapping, no deeper than the mapping.
struct Reader<'a> {
    sources: &'a [ArgumentSource],
    arguments: &'a mut Arguments,
    /// The current place, as a pointer.
    place: String,
}

impl Reader<'_> {
    fn read(&mut self, part: &Part, json: &Json<'_>) -> Result<(), Denial> {
        match part {
            Part::Ignored => Ok(()),
            Part::Argument(number) => match self.sources.get(*number) {
                Some(source) => put(source, json, self.arguments),
                None => Ok(()),
            },
            Part::Inside(parts) => match json {
                Json::Object(object) => object
                    .iter()
                    .try_for_each(|(name, value)| self.read_part(parts, name, value)),
                Json::Array(elements) => elements
                    .iter()
                    .enumerate()
                    .try_for_each(|(index, value)| self.read_part(parts, &index.to_string(), value)),
                Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => Err(unmapped(&self.place)),
            },
        }
    }

    fn read_part(&mut self, parts: &BTreeMap<String, Part>, name: &str, value: &Json<'_>) -> Result<(), Denial> {
        let length = self.place.len();
        self.place.push('/');
        self.place.push_str(&escaped(name));
        match parts.get(name) {
            Some(part) => self.read(part, value)?,
            None => return Err(unmapped(&self.place)),
        }
        self.place.truncate(length);
        Ok(())
    }
}

fn put(source: &ArgumentSource, json: &Json<'_>, arguments: &mut Arguments) -> Result<(), Denial> {
    let malformed = || source.denied(Reason::ArgumentMalformed);
    let is_of_its_kind = match source.kind {
        ArgumentKind::String => matches!(json, Json::String(_)),
        ArgumentKind::Number => matches!(json, Json::Number(_)),
        ArgumentKind::Integer => json.as_integer().is_some(),
        ArgumentKind::Boolean => matches!(json, Json::Bool(_)),
        ArgumentKind::Json => true,
    };
    if !is_of_its_kind {
        return Err(malformed());
    }
    let value = Value::from_json(json).map_err(|_| malformed())?;
    source.insert(value, arguments)
}

/// Checks the headers of a body of at most `limit` bytes that is to be read.
///
/// # Errors
/// Its type is wrong, or its announced length.
pub fn check_headers(request: &Request<'_>, limit: usize) -> Result<(), Denial> {
    check_media_type(request)?;
    let announced = match request.header("content-length") {
        Header::Once(length) => std::str::from_utf8(length).ok().and_then(|length| length.parse().ok()),
        Header::Absent | Header::Repeated => None,
    };
    match announced.is_some_and(|length: usize| length > limit) {
        true => Err(Reason::BodyTooLarge.into()),
        false => Ok(()),
    }
}

/// Checks the body's media type: exactly one `content-type: application/json`, in UTF-8, without a content encoding.
///
/// # Errors
/// [`Reason::BodyMediaType`].
fn check_media_type(request: &Request<'_>) -> Result<(), Denial> {
    let is_json = match request.header("content-type") {
        Header::Once(value) => is_plain_json(value),
        Header::Absent | Header::Repeated => false,
    };
    if is_json && request.header("content-encoding") == Header::Absent {
        Ok(())
    } else {
        Err(Reason::BodyMediaType.into())
    }
}

/// `application/json`, with no parameter except the redundant `charset=utf-8`.
fn is_plain_json(media_type: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(media_type) else {
        return false;
    };
    let (media_type, parameter) = text.split_once(';').unwrap_or((text, "charset=utf-8"));
    let is_charset = |known: &&str| parameter.trim().eq_ignore_ascii_case(known);
    media_type.trim().eq_ignore_ascii_case("application/json")
        && ["charset=utf-8", "charset=\"utf-8\""].iter().any(is_charset)
}

#[cfg(test)]
mod tests {
    use super::super::pointer::PointerError;
    use super::super::source::Source;
    use super::*;

    #[test]
    fn arguments_come_from_the_places_of_their_pointers() {
        let body =
            r#"{"amount": 12.50, "to": {"iban": "DE02", "a/b": true}, "lines": [{"id": 7}], "tags": ["x", null]}"#;
        let found = read(
            &[
                ("amount", "/amount", ArgumentKind::Number),
                ("iban", "/to/iban", ArgumentKind::String),
                ("flag", "/to/a~1b", ArgumentKind::Boolean),
                ("line", "/lines/0/id", ArgumentKind::Integer),
                ("tags", "/tags", ArgumentKind::Json),
            ],
            &[],
            body,
        );
        let expected = r#"{"amount":12.5,"flag":true,"iban":"DE02","line":7,"tags":["x",null]}"#;
        assert_eq!(found.unwrap(), expected);
    }

    #[test]
    fn a_whole_body_may_be_an_argument() {
        let whole = [("order", "", ArgumentKind::Json)];
        assert_eq!(
            read(&whole, &[], r#" {"b": 1, "a": [2]} "#).unwrap(),
            r#"{"order":{"a":[2],"b":1}}"#
        );
        assert_eq!(read(&whole, &[], "7").unwrap(), r#"{"order":7}"#);
    }

    #[test]
    fn an_unmapped_member_is_refused_and_named() {
        let amount = [("amount", "/amount", ArgumentKind::Number)];
        for (body, place) in [
            (r#"{"amount": 1, "currency": "EUR"}"#, "/currency"),
            (r#"{"amount": 1, "Amount": 5000}"#, "/Amount"),
            (r#"{"amount": 1, "": {}}"#, "/"),
            (r#"{"amount": 1, "a/b~c": 1}"#, "/a~1b~0c"),
            (r#"[1]"#, "/0"),
            (r#"7"#, ""),
            (r#"null"#, ""),
        ] {
            assert_eq!(
                read(&amount, &[], body),
                Err(Denial::about(Reason::ArgumentUnknown, place)),
                "{body}"
            );
        }
        let inner = [("iban", "/to/iban", ArgumentKind::String)];
        for (body, place) in [
            (r#"{"to": {"iban": "DE02", "bic": "X"}}"#, "/to/bic"),
            (r#"{"to": "DE02"}"#, "/to"),
            (r#"{"to": ["DE02"]}"#, "/to/0"),
        ] {
            assert_eq!(
                read(&inner, &[], body),
                Err(Denial::about(Reason::ArgumentUnknown, place)),
                "{body}"
            );
        }
    }

    #[test]
    fn an_ignored_member_may_have_any_value() {
        let amount = [("amount", "/a/amount", ArgumentKind::Number)];
        let ignored = ["/note", "/a/memo"];
        for body in [
            r#"{"a": {"amount": 1}}"#,
            r#"{"a": {"amount": 1, "memo": {"x": [1e400]}}, "note": null}"#,
        ] {
            assert_eq!(read(&amount, &ignored, body).unwrap(), r#"{"amount":1}"#, "{body}");
        }
    }

    #[test]
    fn a_value_of_another_type_is_refused() {
        let malformed = |kind, body| {
            let error = read(&[("x", "/x", kind)], &[], &format!(r#"{{"x": {body}}}"#)).unwrap_err();
            assert_eq!(error, Denial::about(Reason::ArgumentMalformed, "x"), "{body}");
        };
        for body in ["1", "null", "true", "[]", "{}"] {
            malformed(ArgumentKind::String, body);
        }
        for body in ["\"1\"", "null", "9007199254740993", "1e400"] {
            malformed(ArgumentKind::Number, body);
        }
        for body in ["1.0", "1e2", "\"1\"", "9223372036854775808", "9007199254740993"] {
            malformed(ArgumentKind::Integer, body);
        }
        for body in ["\"true\"", "1", "null"] {
            malformed(ArgumentKind::Boolean, body);
        }
        malformed(ArgumentKind::Json, "[9007199254740993]");
    }

    #[test]
    fn ambiguous_json_is_refused() {
        let x = [("x", "/x", ArgumentKind::Json)];
        for body in [
            "",
            " ",
            "{",
            r#"{"x": 1, "x": 2}"#,
            r#"{"x": {"y": 1, "\u0079": 2}}"#,
            r#"{"x": 1} {"x": 2}"#,
            r#"{"x": 1,}"#,
            r#"{x: 1}"#,
            r#"{"x": NaN}"#,
            r#"{"x": 01}"#,
            r#"{"x": "\ud800"}"#,
            "\u{feff}{\"x\": 1}",
        ] {
            assert_eq!(read(&x, &[], body), Err(Reason::BodyMalformed.into()), "{body}");
        }
        let deep = format!("{{\"x\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(read(&x, &[], &deep), Err(Reason::BodyMalformed.into()));
        let latin_1 = read_bytes(&x, &[], b"{\"x\": \"\xe4\"}");
        assert_eq!(latin_1, Err(Reason::BodyMalformed.into()));
    }

    #[test]
    fn places_do_not_overlap() {
        let overlap = |first: &str, second: &str| {
            let mut mapping = BodyMapping::default();
            mapping.map(&pointer(first), 0).unwrap();
            mapping.ignore(&pointer(second))
        };
        for (first, second) in [
            ("/a", "/a"),
            ("/a", "/a/b"),
            ("/a/b", "/a"),
            ("", "/a"),
            ("/a", ""),
            ("", ""),
        ] {
            assert_eq!(overlap(first, second), Err(Overlap), "{first} {second}");
        }
        for (first, second) in [("/a", "/b"), ("/a/b", "/a/c"), ("/a", "/ab")] {
            assert_eq!(overlap(first, second), Ok(()), "{first} {second}");
        }
    }

    #[test]
    fn pointers_are_those_of_rfc_6901() {
        // The examples of its section 5.
        for (source, tokens) in [
            ("", &[][..]),
            ("/foo", &["foo"]),
            ("/foo/0", &["foo", "0"]),
            ("/", &[""]),
            ("/a~1b", &["a/b"]),
            ("/m~0n", &["m~n"]),
            ("/ ", &[" "]),
            ("/~01", &["~1"]),
        ] {
            assert_eq!(pointer(source).tokens, tokens, "{source}");
            assert_eq!(pointer(source).to_string(), source);
        }
        assert_eq!(Pointer::parse("a"), Err(PointerError::NotAbsolute));
        assert_eq!(Pointer::parse("#/a"), Err(PointerError::NotAbsolute));
        for source in ["/~", "/~2", "/a~"] {
            assert_eq!(Pointer::parse(source), Err(PointerError::Escape), "{source}");
        }
        assert_eq!(Pointer::parse(&"/a".repeat(17)), Err(PointerError::TooLong));
        assert_eq!(
            Pointer::parse(&format!("/{}", "a".repeat(256))),
            Err(PointerError::TooLong)
        );
    }

    #[test]
    fn only_plain_json_is_read() {
        for good in [
            "application/json",
            "Application/JSON",
            "application/json; charset=utf-8",
            "application/json;charset=UTF-8",
            "application/json; charset=\"utf-8\"",
        ] {
            assert!(is_plain_json(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            "text/json",
            "application/json; charset=utf-16",
            "application/json; charset=latin1",
            "application/json; charset=utf-8; charset=utf-7",
            "application/json; boundary=x",
            "application/json, text/plain",
            "application/merge-patch+json",
            "application/x-www-form-urlencoded",
        ] {
            assert!(!is_plain_json(bad.as_bytes()), "{bad}");
        }
        assert!(!is_plain_json(b"application/json\xff"));
    }

    fn pointer(source: &str) -> Pointer {
        Pointer::parse(source).unwrap()
    }

    fn read(arguments: &[(&str, &str, ArgumentKind)], ignored: &[&str], body: &str) -> Result<String, Denial> {
        read_bytes(arguments, ignored, body.as_bytes())
    }

    fn read_bytes(wanted: &[(&str, &str, ArgumentKind)], ignored: &[&str], body: &[u8]) -> Result<String, Denial> {
        let mut mapping = BodyMapping::default();
        let mut sources = Vec::new();
        for (number, (name, place, kind)) in wanted.iter().enumerate() {
            mapping.map(&pointer(place), number).unwrap();
            sources.push(ArgumentSource {
                name: (*name).to_owned(),
                source: Source::Body(pointer(place)),
                kind: *kind,
                optional: false,
            });
        }
        for place in ignored {
            mapping.ignore(&pointer(place)).unwrap();
        }
        let mut arguments = Arguments::new();
        mapping
            .read(body, &sources, &mut arguments)
            .map(|()| arguments.canonical())
    }
}
