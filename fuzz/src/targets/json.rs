//! The strict JSON reader, compared with serde_json's, and the canonical form. An input is a JSON text.

use std::collections::BTreeSet;
use std::fmt;

use credence_delegation::constraint::Constraint;
use credence_delegation::json::{Json, JsonError};
use credence_delegation::{Arguments, Number, Value, canonicalize};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Effort, Outcome};

/// Reads the text.
pub fn run(input: &[u8], _: Effort) -> Outcome {
    let parsed = Json::parse(input);
    compare_with_serde_json(input, &parsed);
    let Ok(json) = parsed else {
        return Outcome::Refused;
    };

    let written = written(&json);
    assert_eq!(
        Json::parse(written.as_bytes()).as_ref(),
        Ok(&json),
        "written and read again: {written}"
    );
    let spaced = [b" \t\r\n", input, b"\n\r\t "].concat();
    assert_eq!(
        Json::parse(&spaced).as_ref(),
        Ok(&json),
        "white space around it changes nothing"
    );
    check_numbers(&json);
    check_canonical_form(&json);
    check_value(&json);
    // These must not panic. The targets that sign check what they accept.
    let _ = Constraint::parse_entry(&json);
    if let Some(Ok(arguments)) = json.as_object().map(Arguments::from_json) {
        assert_eq!(
            Some(arguments.canonical()),
            canonicalize(&json),
            "arguments are the object"
        );
    }
    Outcome::Accepted
}

/// Text that we accept, serde_json accepts too and reads alike. Text that only serde_json accepts has one of the faults
/// that the strict reader exists for.
fn compare_with_serde_json(input: &[u8], ours: &Result<Json<'_>, JsonError>) {
    let theirs = Reference::read(input);
    match (ours, &theirs) {
        (Ok(ours), Ok(theirs)) => assert!(theirs.is(ours), "{ours:?} is not {theirs:?}"),
        (Ok(_), Err(error)) => panic!("serde_json refuses what we accept: {error}"),
        (Err(_), Err(_)) => {}
        // serde_json's own limit is 128 levels.
        (Err(JsonError::TooDeep), Ok(_)) => {}
        (Err(error), Ok(_)) => panic!("serde_json accepts what we refuse: {error}"),
    }
}

/// A number is accepted exactly if its canonical form has the same value. The test compares texts: an integer of so few
/// digits has only one (RFC 8785, section 3.2.2.3).
fn check_numbers(json: &Json<'_>) {
    match json {
        Json::Number(number) => {
            let digits = number.text().trim_start_matches('-');
            if digits.len() <= 21 && digits != "0" && digits.bytes().all(|digit| digit.is_ascii_digit()) {
                let double = number.double().expect("far below the greatest double");
                let keeps_its_digits = Value::Number(double).canonical() == number.text();
                assert_eq!(number.admissible().is_some(), keeps_its_digits, "{}", number.text());
            }
        }
        Json::Array(elements) => elements.iter().for_each(check_numbers),
        Json::Object(object) => object.iter().for_each(|(_, value)| check_numbers(value)),
        Json::Null | Json::Bool(_) | Json::String(_) => {}
    }
}

fn check_canonical_form(json: &Json<'_>) {
    let Some(canonical) = canonicalize(json) else {
        assert!(
            has_a_number_beyond_a_double(json),
            "everything else has a canonical form"
        );
        return;
    };
    let again = Json::parse(canonical.as_bytes()).expect("the canonical form is JSON");
    assert_eq!(
        canonicalize(&again),
        Some(canonical.clone()),
        "the canonical form of itself"
    );
    assert!(is_in_canonical_order(&again), "RFC 8785, section 3.2.3: {canonical}");
    let value = Value::from_json(&again).expect("numbers in canonical form are admissible");
    assert_eq!(value.canonical(), canonical);
}

fn check_value(json: &Json<'_>) {
    let Ok(value) = Value::from_json(json) else {
        return;
    };
    let canonical = value.canonical();
    assert_eq!(
        canonicalize(json),
        Some(canonical.clone()),
        "one canonical form, by either way"
    );
    let again = Json::parse(canonical.as_bytes()).expect("the canonical form is JSON");
    assert_eq!(
        Value::from_json(&again),
        Ok(value),
        "parse(canonical(x)) is x: {canonical}"
    );
}

/// A JSON text of exactly the same value, with numbers as written.
fn written(json: &Json<'_>) -> String {
    let mut out = String::new();
    write(json, &mut out);
    out
}

fn write(json: &Json<'_>, out: &mut String) {
    match json {
        Json::Null => out.push_str("null"),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Number(number) => out.push_str(number.text()),
        Json::String(text) => write_string(text, out),
        Json::Array(elements) => {
            out.push('[');
            for (index, element) in elements.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                write(element, out);
            }
            out.push(']');
        }
        Json::Object(object) => {
            out.push('{');
            for (index, (name, value)) in object.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                write_string(name, out);
                out.push(':');
                write(value, out);
            }
            out.push('}');
        }
    }
}

/// Escapes every character: the hardest text for the reader.
fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for unit in text.encode_utf16() {
        out.push_str("\\u");
        for shift in [12, 8, 4, 0] {
            out.extend(char::from_digit(u32::from(unit) >> shift & 15, 16));
        }
    }
    out.push('"');
}

fn has_a_number_beyond_a_double(json: &Json<'_>) -> bool {
    match json {
        Json::Number(number) => number.double().is_none(),
        Json::Array(elements) => elements.iter().any(has_a_number_beyond_a_double),
        Json::Object(object) => object.iter().any(|(_, value)| has_a_number_beyond_a_double(value)),
        Json::Null | Json::Bool(_) | Json::String(_) => false,
    }
}

fn is_in_canonical_order(json: &Json<'_>) -> bool {
    match json {
        Json::Array(elements) => elements.iter().all(is_in_canonical_order),
        Json::Object(object) => {
            let names: Vec<Vec<u16>> = object.iter().map(|(name, _)| name.encode_utf16().collect()).collect();
            names.is_sorted() && object.iter().all(|(_, value)| is_in_canonical_order(value))
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => true,
    }
}

/// serde_json's reading of a text, level by level, with numbers as written.
#[derive(Debug)]
enum Reference<'a> {
    Literal(Option<bool>),
    Number(&'a str),
    String(String),
    Array(Vec<Reference<'a>>),
    Object(Vec<(String, Reference<'a>)>),
}

impl<'a> Reference<'a> {
    fn read(text: &'a [u8]) -> Result<Self, serde_json::Error> {
        Self::of(serde_json::from_slice(text)?, 0)
    }

    fn of(raw: &'a RawValue, depth: usize) -> Result<Self, serde_json::Error> {
        let text = raw.get();
        // Far deeper than we accept, far less than overflows the stack.
        if depth > 100 {
            return Err(Error::custom("too deep"));
        }
        let inside = |raw| Self::of(raw, depth + 1);
        Ok(match text.as_bytes().first() {
            Some(b'[') => Self::Array(
                serde_json::from_str::<Vec<&RawValue>>(text)?
                    .into_iter()
                    .map(inside)
                    .collect::<Result<_, _>>()?,
            ),
            Some(b'{') => Self::Object(
                serde_json::from_str::<Members<'_>>(text)?
                    .0
                    .into_iter()
                    .map(|(name, raw)| Ok((name, inside(raw)?)))
                    .collect::<Result<_, serde_json::Error>>()?,
            ),
            Some(b'"') => Self::String(serde_json::from_str(text)?),
            Some(b'-' | b'0'..=b'9') => Self::Number(text),
            _ => Self::Literal(serde_json::from_str(text)?),
        })
    }

    fn is(&self, ours: &Json<'_>) -> bool {
        match (self, ours) {
            (Self::Literal(None), Json::Null) => true,
            (Self::Literal(Some(theirs)), Json::Bool(ours)) => theirs == ours,
            (Self::Number(theirs), Json::Number(ours)) => {
                *theirs == ours.text() && Number::parse(theirs) == Some(*ours)
            }
            (Self::String(theirs), Json::String(ours)) => theirs == ours,
            (Self::Array(theirs), Json::Array(ours)) => {
                theirs.len() == ours.len() && theirs.iter().zip(ours).all(|(theirs, ours)| theirs.is(ours))
            }
            (Self::Object(theirs), Json::Object(ours)) => {
                theirs.len() == ours.iter().count()
                    && theirs
                        .iter()
                        .zip(ours.iter())
                        .all(|((name, theirs), (our_name, ours))| name == our_name && theirs.is(ours))
            }
            _ => false,
        }
    }
}

/// An object's members, with unique names.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let (mut members, mut names) = (Vec::new(), BTreeSet::new());
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    if !names.insert(name.clone()) {
                        return Err(Error::custom("a duplicate member"));
                    }
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}
