//! Constraints in words.

use crate::json::{Json, Object};

/// Says which values an unverified constraint allows. It may be any JSON. `value` writes a value for those who read it.
pub fn in_words(json: &Json<'_>, value: &dyn Fn(&Json<'_>) -> String) -> String {
    let Some(object) = json.as_object() else {
        return not_a_constraint(json, value);
    };
    let member = |name: &str| object.member(name);
    let known = match object.text("constraint_type") {
        Some("exact") => member("value").map(|exact| format!("is exactly {}", value(exact))),
        Some("range") => Some(range(object, value)),
        Some("one_of") => match member("values").and_then(Json::as_array) {
            Some([only]) => Some(format!("is exactly {}", value(only))),
            _ => list(member("values"), value).map(|values| format!("is one of {values}")),
        },
        Some("not_one_of") => list(member("excluded"), value).map(|values| format!("is anything but {values}")),
        Some("contains") => list(member("required"), value).map(|values| format!("is a list that has {values}")),
        Some("subset") => list(member("allowed"), value).map(|values| format!("is a list of only {values}")),
        Some("wildcard") => Some("is anything".to_owned()),
        Some("all") => clauses(member("constraints"), " and ", value),
        Some("any") => clauses(member("constraints"), " or ", value),
        Some(_) | None => None,
    };
    known.unwrap_or_else(|| not_a_constraint(json, value))
}

fn range(object: &Object<'_>, value: &dyn Fn(&Json<'_>) -> String) -> String {
    let bound = |name: &str, inclusive: &str, words: (&str, &str)| {
        let exclusive = object.member(inclusive).and_then(Json::as_bool) == Some(false);
        object
            .member(name)
            .map(|bound| format!("{} {}", if exclusive { words.1 } else { words.0 }, value(bound)))
    };
    let min = bound("min", "min_inclusive", ("at least", "more than"));
    let max = bound("max", "max_inclusive", ("at most", "less than"));
    match (min, max) {
        (Some(min), Some(max)) => format!("is a number, {min} and {max}"),
        (Some(one), None) | (None, Some(one)) => format!("is a number, {one}"),
        (None, None) => "is a number".to_owned(),
    }
}

fn list(values: Option<&Json<'_>>, value: &dyn Fn(&Json<'_>) -> String) -> Option<String> {
    let values: Vec<_> = values?.as_array()?.iter().map(value).collect();
    Some(if values.is_empty() {
        "nothing".to_owned()
    } else {
        values.join(", ")
    })
}

fn clauses(clauses: Option<&Json<'_>>, word: &str, value: &dyn Fn(&Json<'_>) -> String) -> Option<String> {
    let clauses: Vec<_> = clauses?
        .as_array()?
        .iter()
        .map(|clause| in_words(clause, value))
        .collect();
    Some(if clauses.len() == 1 {
        clauses.join(word)
    } else {
        format!("({})", clauses.join(word))
    })
}

fn not_a_constraint(json: &Json<'_>, value: &dyn Fn(&Json<'_>) -> String) -> String {
    format!(
        "has a constraint that verifiers do not know, so they deny the token: {}",
        value(json)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        let canonical = |json: &Json<'_>| crate::canonicalize(json).unwrap();
        in_words(&Json::parse(text.as_bytes()).unwrap(), &canonical)
    }

    #[test]
    fn every_constraint_has_a_text() {
        for (text, expected) in [
            (r#"{"constraint_type":"exact","value":"pdf"}"#, r#"is exactly "pdf""#),
            (
                r#"{"constraint_type":"range","min":1,"max":9,"max_inclusive":false}"#,
                "is a number, at least 1 and less than 9",
            ),
            (r#"{"constraint_type":"range","max":20}"#, "is a number, at most 20"),
            (r#"{"constraint_type":"range"}"#, "is a number"),
            (
                r#"{"constraint_type":"one_of","values":["a",2]}"#,
                r#"is one of "a", 2"#,
            ),
            (r#"{"constraint_type":"one_of","values":["a"]}"#, r#"is exactly "a""#),
            (
                r#"{"constraint_type":"not_one_of","excluded":["a"]}"#,
                r#"is anything but "a""#,
            ),
            (
                r#"{"constraint_type":"contains","required":["a"]}"#,
                r#"is a list that has "a""#,
            ),
            (
                r#"{"constraint_type":"subset","allowed":["a"]}"#,
                r#"is a list of only "a""#,
            ),
            (r#"{"constraint_type":"wildcard","optional":true}"#, "is anything"),
            (
                r#"{"constraint_type":"all","constraints":[{"constraint_type":"wildcard"},
                    {"constraint_type":"any","constraints":[{"constraint_type":"exact","value":1},
                    {"constraint_type":"exact","value":2}]}]}"#,
                "(is anything and (is exactly 1 or is exactly 2))",
            ),
        ] {
            assert_eq!(words(text), expected);
        }
    }

    #[test]
    fn an_unknown_constraint_is_described_as_denied() {
        for text in [
            "7",
            "{}",
            r#"{"constraint_type":"regex","pattern":".*"}"#,
            r#"{"constraint_type":"one_of"}"#,
        ] {
            assert!(words(text).contains("so they deny the token"), "{text}");
        }
    }
}
