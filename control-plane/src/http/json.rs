//! Parses request bodies strictly. serde alone accepts `[1, 2]` for a struct and `null` for an absent member; a
//! revocation could then differ from what its author meant.

use std::fmt;
use std::marker::PhantomData;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use super::problem::Problem;

/// For an optional member of another type that must not be `null`.
pub(crate) use credence_runtime::settings::present;

/// An object only, not a list of its members.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

/// Parses a body that is one object.
pub(crate) fn parse<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let Object(parsed) = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| explain(&error.path().to_string(), error.inner()))?;
    deserializer
        .end()
        .map_err(|_| "the body must be one JSON object with nothing after it".to_owned())?;
    Ok(parsed)
}

/// Parses a part of a body that is known to be JSON, at this place in the body.
pub(crate) fn part<'de, T: Deserialize<'de>>(
    part: impl Deserializer<'de, Error = serde_json::Error>,
    place: &str,
) -> Result<T, String> {
    serde_path_to_error::deserialize(part).map_err(|error| explain_part(place, error.path(), error.inner()))
}

/// Describes an error at this path of a part.
pub(crate) fn explain_part(place: &str, path: &serde_path_to_error::Path, error: &serde_json::Error) -> String {
    match path.to_string().as_str() {
        "." => format!("at {place}: {}", reason(error)),
        path => format!("at {place}.{path}: {}", reason(error)),
    }
}

/// Without the line and column, which would be relative to the part.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    text.get(..end).unwrap_or_default().to_owned()
}

/// For an optional member that is an object, and must not be `null`.
pub(crate) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Object::deserialize(deserializer).map(|Object(value)| Some(value))
}

/// A body that arrived completely and has at most `limit` bytes. If it is too large, `cure` is the fix. If it broke
/// off, `what` is to be sent again.
pub(crate) fn received(
    body: Result<Bytes, BytesRejection>,
    limit: usize,
    cure: &str,
    what: &str,
) -> Result<Bytes, Problem> {
    body.map_err(|rejection| {
        let detail = match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => format!("the body has more than {limit} bytes{cure}"),
            _ => format!("the body did not arrive completely; send {what} again"),
        };
        Problem::new(rejection.status(), detail)
    })
}

/// Refuses a body of another media type.
pub(crate) fn check_media_type(headers: &HeaderMap, expected: &str) -> Result<(), Problem> {
    if media_type(headers).eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    let found = content_type(headers).unwrap_or("none");
    let detail = format!("the Content-Type must be {expected}, not {found}");
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
}

/// The media type of a body without its parameters; empty if there is none.
pub(crate) fn media_type(headers: &HeaderMap) -> &str {
    let content_type = content_type(headers).unwrap_or_default();
    content_type.split(';').next().unwrap_or_default().trim()
}

fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::CONTENT_TYPE)?.to_str().ok()
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData)).map(Self)
    }
}

/// Visits an object only, not a list of its members.
struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members))
    }
}

/// Whole seconds since the Unix epoch, before the year 2106.
pub(crate) fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let refused = "write whole seconds since the Unix epoch, such as 1800000000, as a number";
    let seconds = u32::deserialize(deserializer).map_err(|_| D::Error::custom(refused))?;
    Ok(seconds.into())
}

/// Describes an error with the names of the request's members.
fn explain(path: &str, error: &serde_json::Error) -> String {
    match error.classify() {
        serde_json::error::Category::Data if path == "." => format!("in the body: {error}"),
        serde_json::error::Category::Data => format!("at {path}: {error}"),
        _ => format!(
            "the body is not JSON, from line {}, column {} on; write an object such as {{\"principal\": {{\"issuer\": \
             \"https://id.example.com\", \"subject\": \"alice\"}}}}",
            error.line(),
            error.column()
        ),
    }
}

impl From<String> for Problem {
    fn from(detail: String) -> Self {
        Self::bad_request(detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[serde(default, deserialize_with = "present")]
        name: Option<String>,
        #[serde(default, deserialize_with = "object")]
        inner: Option<Inner>,
    }

    #[derive(Debug, serde::Deserialize)]
    struct Inner {
        #[serde(deserialize_with = "seconds")]
        at: i64,
    }

    #[test]
    fn objects_with_or_without_their_optional_members_are_read() {
        let sample: Sample = parse(br#"{"name": "n", "inner": {"at": 7}}"#).unwrap();
        assert_eq!(
            (sample.name.as_deref(), sample.inner.map(|i| i.at)),
            (Some("n"), Some(7))
        );
        let sample: Sample = parse(b"{}").unwrap();
        assert!(sample.name.is_none() && sample.inner.is_none());
    }

    #[test]
    fn null_and_arrays_are_not_read_as_something_else() {
        for (body, place) in [
            (r#"{"name": null}"#, "at name"),
            (r#"{"inner": null}"#, "at inner"),
            (r#"{"inner": [7]}"#, "at inner"),
            (r#"["n", {"at": 7}]"#, "in the body"),
            ("null", "in the body"),
        ] {
            let refused = parse::<Sample>(body.as_bytes()).unwrap_err();
            assert!(refused.contains(place), "{body}: {refused}");
        }
    }

    #[test]
    fn the_messages_are_written_for_operators() {
        let refused = parse::<Sample>(br#"{"inner": {"at": -1}}"#).unwrap_err();
        assert!(
            refused.contains("at inner.at") && refused.contains("whole seconds"),
            "{refused}"
        );
        let refused = parse::<Sample>(b"{").unwrap_err();
        assert!(refused.contains("not JSON"), "{refused}");
    }
}
