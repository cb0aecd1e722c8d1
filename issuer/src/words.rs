//! A grant in words, for the person who grants it.

use std::collections::BTreeMap;

use credence_delegation::constraint::in_words;
use credence_delegation::inspect::printable;
use credence_delegation::json::Json;
use credence_delegation::{Value, canonicalize};
use schemars::JsonSchema;
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// What tools do, in the operator's words, by tool.
pub(crate) type Descriptions = BTreeMap<String, Description>;

/// What a tool does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// What it does, such as `charge an account`.
    #[schemars(length(min = 1, max = 200))]
    pub title: String,
    /// Its arguments, such as `amount: amount in euros`.
    #[serde(default)]
    pub arguments: BTreeMap<String, String>,
}

/// What the tool does: the operator's words, or its name.
pub(crate) fn title(tool: &str, descriptions: &Descriptions) -> String {
    match descriptions.get(tool) {
        Some(description) => description.title.clone(),
        None => format!("use {}", name(tool)),
    }
}

/// The name of an argument: the operator's, or its own.
pub(crate) fn argument(tool: &str, name: &str, descriptions: &Descriptions) -> String {
    let described = descriptions.get(tool).and_then(|tool| tool.arguments.get(name));
    described.cloned().unwrap_or_else(|| self::name(name))
}

/// A foreign name, in quotes unless it is an identifier: it must not read as words of this page.
fn name(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'/' | b':');
    match text.bytes().all(is_plain) {
        true => text.to_owned(),
        false => printable(&Value::from(text).canonical()),
    }
}

/// What the constraint on an argument allows, to be read after the argument's name.
pub(crate) fn constraint(constraint: &Value) -> String {
    let text = constraint.canonical();
    let words = Json::parse(text.as_bytes()).map(|json| in_words(&json, &value));
    let is_optional =
        matches!(constraint, Value::Object(members) if members.argument("optional") == Some(&Value::Bool(true)));
    let optional = if is_optional { ", or is left out" } else { "" };
    // It was parsed from JSON before.
    words.unwrap_or_default() + optional
}

/// A value as JSON writes it: text has quotes, so that it never reads as words of this page.
fn value(json: &Json<'_>) -> String {
    canonicalize(json).map_or_else(|| "a number".to_owned(), |text| printable(&text))
}

/// A length of time in the largest unit that divides it.
pub(crate) fn duration(seconds: u32) -> String {
    let units = [(86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")];
    let (size, unit) = units
        .into_iter()
        .find(|(size, _)| seconds.is_multiple_of(*size))
        .unwrap_or((1, "second"));
    match seconds / size {
        1 => format!("1 {unit}"),
        count => format!("{count} {unit}s"),
    }
}

/// A time, given in seconds since the Unix epoch.
pub(crate) fn date(seconds: u64) -> String {
    rfc3339(seconds).replace('T', " ").replace('Z', " UTC")
}

pub(crate) fn rfc3339(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok();
    let time = time.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_default()
}

/// How often something may be handed on.
pub(crate) fn depth(depth: u32) -> String {
    match depth {
        0 => "use it itself only".to_owned(),
        1 => "hand it on once".to_owned(),
        more => format!("hand it on {more} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(json: &str) -> String {
        constraint(&Value::from_json(&Json::parse(json.as_bytes()).unwrap()).unwrap())
    }

    #[test]
    fn a_constraint_reads_as_a_person_would_say_it() {
        for (json, expected) in [
            (r#"{"constraint_type": "exact", "value": "a1"}"#, "is exactly \"a1\""),
            (
                r#"{"constraint_type": "range", "max": 100}"#,
                "is a number, at most 100",
            ),
            (
                r#"{"constraint_type": "one_of", "values": ["Oslo", 7], "optional": true}"#,
                "is one of \"Oslo\", 7, or is left out",
            ),
            (
                r#"{"constraint_type": "exact", "value": "a\u202eb"}"#,
                r#"is exactly "a\u{202e}b""#,
            ),
        ] {
            assert_eq!(words(json), expected);
        }
    }

    #[test]
    fn a_tool_without_a_description_has_its_name() {
        let described = Descriptions::from([(
            "pay".to_owned(),
            Description {
                title: "charge an account".to_owned(),
                arguments: [("n".to_owned(), "amount in euros".to_owned())].into(),
            },
        )]);
        assert_eq!(title("pay", &described), "charge an account");
        assert_eq!(title("p\u{202e}y", &described), r#"use "p\u{202e}y""#);
        assert_eq!(argument("pay", "n", &described), "amount in euros");
        assert_eq!(argument("pay", "m", &described), "m");
        assert_eq!(argument("pay", "everything else", &described), "\"everything else\"");
    }

    #[test]
    fn times_have_the_largest_unit() {
        for (seconds, expected) in [
            (1, "1 second"),
            (90, "90 seconds"),
            (3_600, "1 hour"),
            (5_400, "90 minutes"),
            (604_800, "7 days"),
        ] {
            assert_eq!(duration(seconds), expected);
        }
    }
}
