//! Whether one constraint is at least as tight as another (draft section 4.5).

use super::budget::Budget;
use super::{Bound, Constraint, Range};
use crate::number::Double;
use crate::value::Value;

impl Constraint {
    /// Whether this constraint, as the parent's, subsumes `child`: no value passes the child and fails the parent. The
    /// rules are the draft's table. Every pair that it does not list is refused, even if the sets happen to nest.
    ///
    /// The answer is also no if finding it would cost more than 32,768 comparisons of values, as is possible with `all`
    /// or `any` of hundreds of clauses: pairs that are too costly to compare are denied. Without such clauses, no pair
    /// of constraints in tokens of the default size costs that much.
    #[must_use]
    pub fn subsumes(&self, child: &Self) -> bool {
        let mut budget = Budget::PER_TOKEN;
        self.subsumes_within(child, &mut budget)
    }

    /// The same for one constraint of a token, whose constraints share one budget.
    pub(crate) fn subsumes_within(&self, child: &Self, budget: &mut Budget) -> bool {
        if !budget.spend(self.cost(child)) {
            return false;
        }
        match (self, child) {
            (Self::Wildcard, _) => true,
            (Self::Exact(parent), Self::Exact(child)) => parent == child,
            (Self::Range(parent), Self::Range(child)) => parent.contains(child),
            (Self::Range(parent), Self::Exact(Value::Number(number))) => parent.accepts(*number),
            (Self::OneOf(parent), Self::OneOf(child)) => parent.contains_all(child),
            (Self::OneOf(parent), Self::Exact(value)) => parent.contains(value),
            (Self::NotOneOf(parent), Self::NotOneOf(child)) => child.contains_all(parent),
            (Self::Contains(parent), Self::Contains(child)) => child.contains_all(parent),
            (Self::Subset(parent), Self::Subset(child)) => parent.contains_all(child),
            (Self::All(parent), Self::All(child)) => parent
                .iter()
                .all(|clause| child.iter().any(|narrower| clause.subsumes_within(narrower, budget))),
            (Self::Any(parent), Self::Any(child)) => child
                .iter()
                .all(|clause| parent.iter().any(|wider| wider.subsumes_within(clause, budget))),
            _ => false,
        }
    }

    /// The cost of comparing these two; clauses are charged separately. Looking up each value of one set in the other
    /// stops at the first missing one, so no set is charged more than the smaller one's weight.
    fn cost(&self, child: &Self) -> usize {
        match (self, child) {
            (Self::OneOf(parent), Self::OneOf(child))
            | (Self::NotOneOf(parent), Self::NotOneOf(child))
            | (Self::Contains(parent), Self::Contains(child))
            | (Self::Subset(parent), Self::Subset(child)) => parent.weight.min(child.weight).saturating_add(1),
            _ => 1,
        }
    }
}

impl Range {
    fn contains(&self, child: &Self) -> bool {
        tighter(self.min, child.min, |child, parent| child > parent)
            && tighter(self.max, child.max, |child, parent| child < parent)
    }
}

/// Whether a child's bound is at least as tight as the parent's on the same side.
fn tighter(parent: Option<Bound>, child: Option<Bound>, inside: impl Fn(Double, Double) -> bool) -> bool {
    match (parent, child) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(parent), Some(child)) => {
            inside(child.value, parent.value) || (child.value == parent.value && (parent.inclusive || !child.inclusive))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;

    fn constraint(text: &str) -> Constraint {
        Constraint::parse_entry(&Json::parse(text.as_bytes()).unwrap())
            .unwrap()
            .0
    }

    /// One instance of each type. All of them accept a common value if possible, so that no pair is refused only
    /// because of its values.
    const EXACT: &str = r#"{"constraint_type":"exact","value":5}"#;
    const RANGE: &str = r#"{"constraint_type":"range","min":0,"max":10}"#;
    const ONE_OF: &str = r#"{"constraint_type":"one_of","values":[5,6]}"#;
    const NOT_ONE_OF: &str = r#"{"constraint_type":"not_one_of","excluded":[7]}"#;
    const CONTAINS: &str = r#"{"constraint_type":"contains","required":[5]}"#;
    const SUBSET: &str = r#"{"constraint_type":"subset","allowed":[5]}"#;
    const WILDCARD: &str = r#"{"constraint_type":"wildcard"}"#;
    const ALL: &str = r#"{"constraint_type":"all","constraints":[{"constraint_type":"exact","value":5}]}"#;
    const ANY: &str = r#"{"constraint_type":"any","constraints":[{"constraint_type":"exact","value":5}]}"#;

    #[test]
    fn only_the_pairs_of_the_drafts_table_attenuate() {
        let types = [EXACT, RANGE, ONE_OF, NOT_ONE_OF, CONTAINS, SUBSET, WILDCARD, ALL, ANY];
        for parent in types {
            for child in types {
                let listed =
                    parent == WILDCARD || parent == child || ((parent == RANGE || parent == ONE_OF) && child == EXACT);
                assert_eq!(
                    constraint(parent).subsumes(&constraint(child)),
                    listed,
                    "{parent} over {child}"
                );
            }
        }
    }

    #[test]
    fn each_listed_pair_has_its_condition() {
        let one_of = |values: &str| format!(r#"{{"constraint_type":"one_of","values":{values}}}"#);
        let not_one_of = |values: &str| format!(r#"{{"constraint_type":"not_one_of","excluded":{values}}}"#);
        let contains = |values: &str| format!(r#"{{"constraint_type":"contains","required":{values}}}"#);
        let subset = |values: &str| format!(r#"{{"constraint_type":"subset","allowed":{values}}}"#);
        let exact = |value: &str| format!(r#"{{"constraint_type":"exact","value":{value}}}"#);
        let range = |bounds: &str| format!(r#"{{"constraint_type":"range"{bounds}}}"#);
        for (parent, child, valid) in [
            (exact("5"), exact("5.0"), true),
            (exact("5"), exact("6"), false),
            (range(r#","min":1"#), range(r#","min":2"#), true),
            (range(r#","min":1"#), range(r#","max":2"#), false),
            (range(r#","min":1"#), range(""), false),
            (range(""), range(r#","min":1,"max":2"#), true),
            (range(r#","min":1"#), range(r#","min":1,"min_inclusive":false"#), true),
            (range(r#","min":1,"min_inclusive":false"#), range(r#","min":1"#), false),
            (range(r#","max":9,"max_inclusive":false"#), range(r#","max":9"#), false),
            (
                range(r#","max":9,"max_inclusive":false"#),
                range(r#","max":9,"max_inclusive":false"#),
                true,
            ),
            (range(r#","max":9,"max_inclusive":false"#), exact("9"), false),
            (range(r#","max":9"#), exact("9"), true),
            (range(""), exact("\"9\""), false),
            (one_of("[1,2]"), one_of("[2]"), true),
            (one_of("[1,2]"), one_of("[2,3]"), false),
            (one_of("[1,2]"), exact("3"), false),
            (one_of("[1,2]"), not_one_of("[3]"), false),
            (not_one_of("[1]"), not_one_of("[1,2]"), true),
            (not_one_of("[1,2]"), not_one_of("[1]"), false),
            (contains("[1]"), contains("[2,1]"), true),
            (contains("[1,2]"), contains("[1]"), false),
            (subset("[1,2]"), subset("[]"), true),
            (subset("[1]"), subset("[1,2]"), false),
        ] {
            assert_eq!(
                constraint(&parent).subsumes(&constraint(&child)),
                valid,
                "{parent} over {child}"
            );
        }
    }

    #[test]
    fn all_and_any_match_clause_by_clause() {
        let group = |kind: &str, clauses: &[&str]| {
            constraint(&format!(
                r#"{{"constraint_type":"{kind}","constraints":[{}]}}"#,
                clauses.join(",")
            ))
        };
        assert!(group("all", &[WILDCARD, WILDCARD]).subsumes(&group("all", &[EXACT])));
        assert!(group("all", &[RANGE]).subsumes(&group("all", &[EXACT, NOT_ONE_OF])));
        assert!(!group("all", &[RANGE, NOT_ONE_OF]).subsumes(&group("all", &[EXACT])));
        assert!(group("any", &[ONE_OF, RANGE]).subsumes(&group("any", &[EXACT])));
        assert!(!group("any", &[ONE_OF]).subsumes(&group("any", &[EXACT, SUBSET])));
        assert!(
            !group("any", &[EXACT]).subsumes(&constraint(EXACT)),
            "conservative, as the draft says"
        );
        assert!(!group("all", &[EXACT]).subsumes(&group("any", &[EXACT])));
    }
}
