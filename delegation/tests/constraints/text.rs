//! Short notations for constraints and values as JSON texts.

use credence_delegation::constraint::{Constraint, Fault};
use credence_delegation::json::Json;
use credence_delegation::{InadmissibleNumber, Value};

/// The nine core types, in the order of the draft's table (section 3.4).
pub(crate) const TYPES: [&str; 9] = [
    "exact",
    "range",
    "one_of",
    "not_one_of",
    "contains",
    "subset",
    "wildcard",
    "all",
    "any",
];

/// MAX_CONSTRAINT_DEPTH, as the draft recommends it (section 3.4).
pub(crate) const DEPTH: usize = 32;

/// Reads a well-formed constraint.
#[track_caller]
pub(crate) fn constraint(text: &str) -> Constraint {
    read(text).unwrap_or_else(|fault| panic!("{text}: {fault}")).0
}

/// Reads an entry of a constraint map.
#[track_caller]
pub(crate) fn read(text: &str) -> Result<(Constraint, bool), Fault> {
    Constraint::parse_entry(&json(text))
}

/// Reads an admissible argument.
#[track_caller]
pub(crate) fn value(text: &str) -> Value {
    argument(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Reads an argument.
#[track_caller]
pub(crate) fn argument(text: &str) -> Result<Value, InadmissibleNumber> {
    Value::from_json(&json(text))
}

#[track_caller]
fn json(text: &str) -> Json<'_> {
    Json::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The `constraint_type` of a text that one of the functions below wrote.
pub(crate) fn type_of(text: &str) -> &'static str {
    TYPES
        .into_iter()
        .find(|kind| text.starts_with(&format!(r#"{{"constraint_type":"{kind}""#)))
        .unwrap_or_else(|| panic!("no type: {text}"))
}

pub(crate) fn exact(value: &str) -> String {
    with("exact", "value", value)
}

pub(crate) fn one_of(values: &str) -> String {
    with("one_of", "values", values)
}

pub(crate) fn not_one_of(excluded: &str) -> String {
    with("not_one_of", "excluded", excluded)
}

pub(crate) fn contains(required: &str) -> String {
    with("contains", "required", required)
}

pub(crate) fn subset(allowed: &str) -> String {
    with("subset", "allowed", allowed)
}

pub(crate) fn wildcard() -> String {
    r#"{"constraint_type":"wildcard"}"#.to_owned()
}

pub(crate) fn all(clauses: &[String]) -> String {
    with("all", "constraints", &format!("[{}]", clauses.join(",")))
}

pub(crate) fn any(clauses: &[String]) -> String {
    with("any", "constraints", &format!("[{}]", clauses.join(",")))
}

/// A range in the notation of intervals: `[1,5)` is from 1 to 5 without 5, `[1,]` has no upper bound.
pub(crate) fn range(interval: &str) -> String {
    let inner = &interval[1..interval.len() - 1];
    let (min, max) = inner.split_once(',').expect("two bounds");
    let bound = |name: &str, value: &str, exclusive: bool| match (value, exclusive) {
        ("", _) => String::new(),
        (value, false) => format!(r#","{name}":{value}"#),
        (value, true) => format!(r#","{name}":{value},"{name}_inclusive":false"#),
    };
    format!(
        r#"{{"constraint_type":"range"{}{}}}"#,
        bound("min", min, interval.starts_with('(')),
        bound("max", max, interval.ends_with(')')),
    )
}

/// `leaf` inside so many levels of `all` or `any` that the depth is `depth`, counted as in section 3.4.
pub(crate) fn nested(kind: &str, depth: usize, leaf: String) -> String {
    (1..depth).fold(leaf, |inner, _| with(kind, "constraints", &format!("[{inner}]")))
}

fn with(kind: &str, member: &str, json: &str) -> String {
    format!(r#"{{"constraint_type":"{kind}","{member}":{json}}}"#)
}
