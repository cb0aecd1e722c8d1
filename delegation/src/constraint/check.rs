//! Whether a constraint accepts a value (draft section 3.4).

use super::{Constraint, Range};
use crate::number::Double;
use crate::value::Value;

impl Constraint {
    /// Whether `value` satisfies the constraint. Takes time proportional to the constraint's size times the
    /// logarithm of the value's.
    #[must_use]
    pub fn check(&self, value: &Value) -> bool {
        match self {
            Self::Exact(expected) => value == expected,
            Self::Range(range) => matches!(value, Value::Number(number) if range.accepts(*number)),
            Self::OneOf(values) => values.contains(value),
            Self::NotOneOf(excluded) => !excluded.contains(value),
            Self::Contains(required) => match value {
                Value::Array(elements) => required.values.iter().all(|needed| elements.contains(needed)),
                _ => false,
            },
            Self::Subset(allowed) => match value {
                Value::Array(elements) => elements.iter().all(|element| allowed.contains(element)),
                _ => false,
            },
            Self::Wildcard => true,
            Self::All(clauses) => clauses.iter().all(|clause| clause.check(value)),
            Self::Any(clauses) => clauses.iter().any(|clause| clause.check(value)),
        }
    }
}

impl Range {
    pub(super) fn accepts(&self, number: Double) -> bool {
        let above = self
            .min
            .is_none_or(|min| number > min.value || (min.inclusive && number == min.value));
        let below = self
            .max
            .is_none_or(|max| number < max.value || (max.inclusive && number == max.value));
        above && below
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;

    #[test]
    fn accepts_exactly_what_the_draft_says() {
        for (constraint, accepted, rejected) in [
            (
                r#"{"constraint_type":"exact","value":5}"#,
                vec!["5", "5.0"],
                vec!["\"5\"", "6", "null"],
            ),
            (
                r#"{"constraint_type":"range","min":1,"max":3,"max_inclusive":false}"#,
                vec!["1", "2.999"],
                vec!["3", "0.999", "\"2\"", "null"],
            ),
            (
                r#"{"constraint_type":"range"}"#,
                vec!["-1e300"],
                vec!["\"1\"", "true", "[1]"],
            ),
            (
                r#"{"constraint_type":"one_of","values":["a",[1,2]]}"#,
                vec!["\"a\"", "[1,2]"],
                vec!["\"b\"", "[2,1]"],
            ),
            (
                r#"{"constraint_type":"not_one_of","excluded":["a",1]}"#,
                vec!["\"b\"", "\"1\""],
                vec!["\"a\"", "1.0"],
            ),
            (
                r#"{"constraint_type":"contains","required":["a","b"]}"#,
                vec![r#"["b","c","a"]"#],
                vec![r#"["a"]"#, "\"ab\"", "{}"],
            ),
            (
                r#"{"constraint_type":"subset","allowed":["a","b"]}"#,
                vec!["[]", r#"["a","a"]"#],
                vec![r#"["a","c"]"#, "\"a\""],
            ),
            (r#"{"constraint_type":"wildcard"}"#, vec!["null", "{}", "1"], vec![]),
            (
                r#"{"constraint_type":"all","constraints":[
                    {"constraint_type":"range","min":1},{"constraint_type":"not_one_of","excluded":[2]}]}"#,
                vec!["1", "3"],
                vec!["2", "0", "\"x\""],
            ),
            (
                r#"{"constraint_type":"any","constraints":[
                    {"constraint_type":"exact","value":"x"},{"constraint_type":"range","max":0}]}"#,
                vec!["\"x\"", "0"],
                vec!["1", "\"y\""],
            ),
        ] {
            let (parsed, _) = Constraint::parse_entry(&Json::parse(constraint.as_bytes()).unwrap()).unwrap();
            let check = |text: &str| parsed.check(&Value::from_json(&Json::parse(text.as_bytes()).unwrap()).unwrap());
            for text in accepted {
                assert!(check(text), "{constraint} should accept {text}");
            }
            for text in rejected {
                assert!(!check(text), "{constraint} should reject {text}");
            }
        }
    }
}
