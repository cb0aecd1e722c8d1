//! Whether a constraint accepts a value (draft section 3.4).

use std::cell::OnceCell;

use super::{Constraint, Range};
use crate::number::Double;
use crate::sort::sort;
use crate::value::Value;

impl Constraint {
    /// Whether `value` satisfies the constraint. Takes time proportional to the sizes of both, times the logarithm of
    /// the greater one. It never takes time proportional to their product, which a holder could make large.
    #[must_use]
    pub fn check(&self, value: &Value) -> bool {
        self.accepts(&Argument {
            value,
            elements: OnceCell::new(),
        })
    }

    fn accepts(&self, argument: &Argument<'_>) -> bool {
        let value = argument.value;
        match self {
            Self::Exact(expected) => value == expected,
            Self::Range(range) => matches!(value, Value::Number(number) if range.accepts(*number)),
            Self::OneOf(values) => values.contains(value),
            Self::NotOneOf(excluded) => !excluded.contains(value),
            Self::Contains(required) => argument.elements().is_some_and(|elements| {
                required
                    .values
                    .iter()
                    .all(|value| elements.binary_search(&value).is_ok())
            }),
            // The lengths first: otherwise a long argument would be searched for in each of many short sets.
            Self::Subset(allowed) => argument.elements().is_some_and(|elements| {
                elements.len() <= allowed.values.len() && elements.iter().all(|element| allowed.contains(element))
            }),
            Self::Wildcard => true,
            Self::All(clauses) => clauses.iter().all(|clause| clause.accepts(argument)),
            Self::Any(clauses) => clauses.iter().any(|clause| clause.accepts(argument)),
        }
    }
}

/// An argument, and its elements as a set, sorted once for all clauses.
struct Argument<'a> {
    value: &'a Value,
    elements: OnceCell<Vec<&'a Value>>,
}

impl Argument<'_> {
    /// The distinct elements in order, if this is an array.
    fn elements(&self) -> Option<&[&Value]> {
        let Value::Array(elements) = self.value else {
            return None;
        };
        Some(self.elements.get_or_init(|| {
            let mut sorted: Vec<_> = elements.iter().collect();
            sort(&mut sorted);
            sorted.dedup();
            sorted
        }))
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
    fn accepts_exactly_the_values_of_the_draft() {
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
