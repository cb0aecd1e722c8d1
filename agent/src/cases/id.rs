//! The name of a case: any JSON scalar, returned unchanged.

use std::fmt;

use credence_delegation::json::Json;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON scalar.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(transparent)]
pub(super) struct CaseId(Box<RawValue>);

impl CaseId {
    /// The name of a case that has no readable name: `null`.
    pub(super) fn unknown() -> Self {
        Self(RawValue::NULL.to_owned())
    }

    /// Takes a scalar; `None` for an array or object.
    pub(super) fn from_json(json: &Json<'_>) -> Option<Self> {
        let text = match json {
            Json::Number(number) => number.text().to_owned(),
            Json::Array(_) | Json::Object(_) => return None,
            // Canonical JSON escapes no more than JSON must.
            scalar => credence_delegation::canonicalize(scalar)?,
        };
        RawValue::from_string(text).ok().map(Self)
    }

    /// Finds the name in an invalid line, so that its answer can be told from the others. The line may be cut short or
    /// invalid in other ways. A name counts if there is exactly one and it is valid JSON.
    pub(super) fn of_unreadable(line: &[u8]) -> Self {
        let mut found = Vec::new();
        // Whether parsing succeeds or not, `found` has the names up to there.
        let _ = serde_json::Deserializer::from_slice(line).deserialize_map(TopLevel { found: &mut found });
        let [Some(text)] = found[..] else {
            return Self::unknown();
        };
        let id = Json::parse(text.get().as_bytes());
        id.ok()
            .and_then(|id| Self::from_json(&id))
            .unwrap_or_else(Self::unknown)
    }
}

/// Visits the members of a line's object and reads only `id`.
struct TopLevel<'f, 'de> {
    /// The values of `id`; `None` if one is cut short.
    found: &'f mut Vec<Option<&'de RawValue>>,
}

impl<'de> Visitor<'de> for TopLevel<'_, 'de> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a case")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            if name != "id" {
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            self.found.push(None);
            let text = members.next_value()?;
            self.found.pop();
            self.found.push(Some(text));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_any_scalar_as_it_was_written() {
        for text in [
            "1",
            "1.50",
            "-0",
            "1e400",
            "9007199254740993",
            "true",
            "null",
            r#""a\"b""#,
        ] {
            let json = Json::parse(text.as_bytes()).unwrap();
            assert_eq!(CaseId::from_json(&json).unwrap().0.get(), text);
        }
        for text in ["[]", "{}"] {
            assert!(CaseId::from_json(&Json::parse(text.as_bytes()).unwrap()).is_none());
        }
    }

    #[test]
    fn a_line_that_is_no_case_has_the_name_that_can_be_read() {
        for (line, id) in [
            (r#"{"id":"a","args":{"b":1,"b":2}}"#, r#""a""#),
            (r#"{"id":7,"#, "7"),
            (r#"{"args":{"b":"\ud800"},"id":7}"#, "7"),
            (r#"{"id":"a","id":"b"}"#, "null"),
            (r#"{"id":{"b":1,"b":2}}"#, "null"),
            (r#"{"id":"\ud800"}"#, "null"),
            (r#"{"id":"a"#, "null"),
            (r#"["id"]"#, "null"),
            ("hello", "null"),
            ("", "null"),
        ] {
            assert_eq!(CaseId::of_unreadable(line.as_bytes()).0.get(), id, "{line}");
        }
        let deep = format!(r#"{{"args":{}{},"id":1}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(CaseId::of_unreadable(deep.as_bytes()).0.get(), "1");
    }
}
