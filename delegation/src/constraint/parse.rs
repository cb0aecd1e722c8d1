//! Reads constraints: exactly the well-formed ones of draft section 3.4.

use super::{Bound, Constraint, Fault, Range, Set};
use crate::json::{Json, Object};
use crate::limits::CONSTRAINT_DEPTH;
use crate::value::{Value, admissible};

impl Constraint {
    /// Reads an entry of a constraint map: the constraint, and whether its argument is optional (`optional`, draft
    /// section 3.3).
    ///
    /// # Errors
    /// The first fault.
    pub fn parse_entry(json: &Json<'_>) -> Result<(Self, bool), Fault> {
        let object = json.as_object().ok_or(Fault::NotAnObject)?;
        let optional = flag(object, "optional")?;
        let constraint = parse(object, Position::Entry, CONSTRAINT_DEPTH)?;
        Ok((constraint, optional.unwrap_or(false)))
    }
}

/// The position of a constraint: only the entries of a constraint map may have `optional`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Entry,
    Clause,
}

fn parse(object: &Object<'_>, position: Position, depth: u32) -> Result<Constraint, Fault> {
    let depth = depth.checked_sub(1).ok_or(Fault::TooDeep)?;
    let kind = object.text("constraint_type").ok_or(Fault::Untyped)?;
    let members: &[&str] = match kind {
        "exact" => &["value"],
        "range" => &["min", "max", "min_inclusive", "max_inclusive"],
        "one_of" => &["values"],
        "not_one_of" => &["excluded"],
        "contains" => &["required"],
        "subset" => &["allowed"],
        "wildcard" => &[],
        "all" | "any" => &["constraints"],
        unknown => return Err(Fault::UnknownType(unknown.to_owned())),
    };
    for (name, _) in object.iter() {
        let known =
            name == "constraint_type" || (name == "optional" && position == Position::Entry) || members.contains(&name);
        if !known {
            return Err(Fault::UnknownMember(name.to_owned()));
        }
    }
    Ok(match kind {
        "exact" => Constraint::Exact(scalar(object)?),
        "range" => Constraint::Range(range(object)?),
        "one_of" => {
            let values = set(object, "values")?;
            if values.values.is_empty() {
                return Err(wrong("values", "an array that is not empty"));
            }
            Constraint::OneOf(values)
        }
        "not_one_of" => Constraint::NotOneOf(set(object, "excluded")?),
        "contains" => Constraint::Contains(set(object, "required")?),
        "subset" => Constraint::Subset(set(object, "allowed")?),
        "all" => Constraint::All(clauses(object, depth)?),
        "any" => Constraint::Any(clauses(object, depth)?),
        // The names were checked against the list above.
        _ => Constraint::Wildcard,
    })
}

fn scalar(object: &Object<'_>) -> Result<Value, Fault> {
    match object.member("value") {
        Some(json @ (Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_))) => Ok(Value::from_json(json)?),
        Some(Json::Array(_) | Json::Object(_)) | None => Err(wrong("value", "a string, a number, a boolean or null")),
    }
}

fn range(object: &Object<'_>) -> Result<Range, Fault> {
    let range = Range {
        min: bound(object, "min", "min_inclusive")?,
        max: bound(object, "max", "max_inclusive")?,
    };
    match (range.min, range.max) {
        (Some(min), Some(max)) if min.value > max.value => Err(Fault::EmptyRange),
        _ => Ok(range),
    }
}

fn bound(object: &Object<'_>, member: &'static str, inclusive: &'static str) -> Result<Option<Bound>, Fault> {
    let inclusivity = flag(object, inclusive)?;
    let Some(json) = object.member(member) else {
        return match inclusivity {
            None => Ok(None),
            Some(_) => Err(Fault::UnknownMember(inclusive.to_owned())),
        };
    };
    let Json::Number(number) = json else {
        return Err(wrong(member, "a number"));
    };
    Ok(Some(Bound {
        value: admissible(*number)?,
        inclusive: inclusivity.unwrap_or(true),
    }))
}

fn set(object: &Object<'_>, member: &'static str) -> Result<Set, Fault> {
    let elements = object.array(member).ok_or_else(|| wrong(member, "an array"))?;
    let values = elements.iter().map(Value::from_json).collect::<Result<_, _>>()?;
    Ok(Set::new(values))
}

fn clauses(object: &Object<'_>, depth: u32) -> Result<Vec<Constraint>, Fault> {
    let elements = object.array("constraints").filter(|elements| !elements.is_empty());
    let elements = elements.ok_or_else(|| wrong("constraints", "an array that is not empty"))?;
    elements
        .iter()
        .map(|element| parse(element.as_object().ok_or(Fault::NotAnObject)?, Position::Clause, depth))
        .collect()
}

fn flag(object: &Object<'_>, member: &'static str) -> Result<Option<bool>, Fault> {
    let flag = |json: &Json<'_>| json.as_bool().ok_or_else(|| wrong(member, "true or false"));
    object.member(member).map(flag).transpose()
}

fn wrong(member: &'static str, expected: &'static str) -> Fault {
    Fault::Member { member, expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> Result<(Constraint, bool), Fault> {
        Constraint::parse_entry(&Json::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn reads_every_core_type() {
        for text in [
            r#"{"constraint_type":"exact","value":null}"#,
            r#"{"constraint_type":"exact","value":"a","optional":true}"#,
            r#"{"constraint_type":"range"}"#,
            r#"{"constraint_type":"range","min":1,"max":1,"max_inclusive":false}"#,
            r#"{"constraint_type":"one_of","values":[1,"a",[2],{"b":3}]}"#,
            r#"{"constraint_type":"not_one_of","excluded":[]}"#,
            r#"{"constraint_type":"contains","required":[]}"#,
            r#"{"constraint_type":"subset","allowed":[]}"#,
            r#"{"constraint_type":"wildcard","optional":false}"#,
            r#"{"constraint_type":"all","constraints":[{"constraint_type":"wildcard"}]}"#,
            r#"{"constraint_type":"any","constraints":[{"constraint_type":"exact","value":1}]}"#,
        ] {
            assert!(entry(text).is_ok(), "{text}: {:?}", entry(text));
        }
    }

    #[test]
    fn refuses_malformed_constraints() {
        for (text, fault) in [
            (r#"[]"#, "a constraint is a JSON object"),
            (r#"{}"#, "\"constraint_type\" must be a string"),
            (
                r#"{"constraint_type":"regex"}"#,
                "unknown constraint_type \"regex\"; the types are exact, range, one_of, not_one_of, contains, subset, \
                 wildcard, all and any",
            ),
            (
                r#"{"constraint_type":"wildcard","value":1}"#,
                "\"value\" does not belong here",
            ),
            (
                r#"{"constraint_type":"exact"}"#,
                "\"value\" must be a string, a number, a boolean or null",
            ),
            (
                r#"{"constraint_type":"exact","value":[]}"#,
                "\"value\" must be a string, a number, a boolean or null",
            ),
            (
                r#"{"constraint_type":"exact","value":1,"optional":1}"#,
                "\"optional\" must be true or false",
            ),
            (
                r#"{"constraint_type":"one_of","values":[]}"#,
                "\"values\" must be an array that is not empty",
            ),
            (r#"{"constraint_type":"one_of"}"#, "\"values\" must be an array"),
            (
                r#"{"constraint_type":"subset","allowed":{}}"#,
                "\"allowed\" must be an array",
            ),
            (r#"{"constraint_type":"range","min":"1"}"#, "\"min\" must be a number"),
            (
                r#"{"constraint_type":"range","min":2,"max":1}"#,
                "\"min\" is greater than \"max\"",
            ),
            (
                r#"{"constraint_type":"range","min_inclusive":true}"#,
                "\"min_inclusive\" does not belong here",
            ),
            (
                r#"{"constraint_type":"range","max":1,"max_inclusive":0}"#,
                "\"max_inclusive\" must be true or false",
            ),
            (
                r#"{"constraint_type":"range","min":9007199254740993}"#,
                "the number 9007199254740993 loses digits in canonical form (RFC 8785); write it as a string",
            ),
            (
                r#"{"constraint_type":"all","constraints":[]}"#,
                "\"constraints\" must be an array that is not empty",
            ),
            (
                r#"{"constraint_type":"any","constraints":[1]}"#,
                "a constraint is a JSON object",
            ),
            (
                r#"{"constraint_type":"any","constraints":[{"constraint_type":"wildcard","optional":true}]}"#,
                "\"optional\" does not belong here",
            ),
        ] {
            assert_eq!(entry(text).unwrap_err().to_string(), fault, "{text}");
        }
    }

    #[test]
    fn bounds_the_nesting_of_clauses() {
        let nested = |n: usize| {
            let leaf = r#"{"constraint_type":"wildcard"}"#.to_owned();
            (1..n).fold(leaf, |inner, _| {
                format!(r#"{{"constraint_type":"all","constraints":[{inner}]}}"#)
            })
        };
        assert!(entry(&nested(32)).is_ok());
        assert_eq!(entry(&nested(33)), Err(Fault::TooDeep));
    }
}
