//! Which constraint may follow which in a chain: all 81 ordered pairs of types (draft section 4.5).
//!
//! The draft's table is closed: "Every other pair is invalid and MUST be rejected". So each pair has rows with a child
//! within the parent, or a marker that there is none; and rows with a child beyond it, or a marker that there is none.

use credence_delegation::constraint::Constraint;

use crate::text::{
    DEPTH, TYPES, all, any, constraint, contains, exact, nested, not_one_of, one_of, range, subset, type_of, wildcard,
};

#[test]
fn every_row_is_decided_as_the_draft_says() {
    for row in rows() {
        assert_eq!(
            constraint(&row.parent).subsumes(&constraint(&row.child)),
            row.within,
            "section {}\nparent {}\nchild  {}",
            row.rule,
            row.parent,
            row.child
        );
    }
}

#[test]
fn every_pair_of_types_has_its_rows_or_its_marker() {
    let rows = rows();
    for parent in TYPES {
        for child in TYPES {
            let of_pair = || {
                rows.iter()
                    .filter(|row| type_of(&row.parent) == parent && type_of(&row.child) == child)
            };
            let (within, beyond) = (of_pair().any(|row| row.within), of_pair().any(|row| !row.within));
            assert!(
                within != is_never_within(parent, child),
                "{parent} over {child} needs either a row that is within or a marker in NEVER_WITHIN"
            );
            assert!(
                beyond != is_always_within(parent, child),
                "{parent} over {child} needs either a row that is beyond or a marker in ALWAYS_WITHIN"
            );
        }
    }
}

#[test]
fn a_marked_pair_is_decided_by_its_types_for_any_values() {
    let pool: Vec<(&str, String, Constraint)> = rows()
        .into_iter()
        .flat_map(|row| [row.parent, row.child])
        .map(|text| (type_of(&text), constraint(&text), text))
        .map(|(kind, constraint, text)| (kind, text, constraint))
        .collect();
    for (parent_type, parent_text, parent) in &pool {
        for (child_type, child_text, child) in &pool {
            let decided = match (
                is_never_within(parent_type, child_type),
                is_always_within(parent_type, child_type),
            ) {
                (true, _) => false,
                (_, true) => true,
                (false, false) => continue,
            };
            assert_eq!(
                parent.subsumes(child),
                decided,
                "parent {parent_text}\nchild  {child_text}"
            );
        }
    }
}

#[test]
fn a_constraint_is_within_itself() {
    for row in rows() {
        for text in [row.parent, row.child] {
            assert!(constraint(&text).subsumes(&constraint(&text)), "{text}");
        }
    }
}

#[test]
fn a_pair_that_costs_too_much_to_compare_is_refused() {
    let distinct = |n: usize| (0..n).map(|i| exact(&i.to_string())).collect::<Vec<_>>();
    let reversed = |n: usize| distinct(n).into_iter().rev().collect::<Vec<_>>();
    assert!(constraint(&any(&distinct(200))).subsumes(&constraint(&any(&reversed(200)))));
    assert!(!constraint(&any(&distinct(2000))).subsumes(&constraint(&any(&reversed(2000)))));
}

#[test]
fn many_clauses_with_many_values_each_cost_too_much() {
    let numbers = |n: usize| (0..n).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    let shared = numbers(100);
    // No clause except the last is within any of the parent's; only the last value of each shows it.
    let wide = |clauses: usize| vec![one_of(&format!("[{shared},1000]")); clauses];
    let child = |clauses: usize| all(&[wide(clauses), vec![exact("0")]].concat());
    let parent = |clauses: usize| all(&vec![one_of(&format!("[{shared}]")); clauses]);
    assert!(constraint(&parent(10)).subsumes(&constraint(&child(10))));
    assert!(!constraint(&parent(100)).subsumes(&constraint(&child(100))));
}

#[test]
fn the_largest_plain_set_of_a_token_is_not_too_costly() {
    // 84,889 bytes of claims; a token of the default size holds 49,152.
    let set = one_of(&format!(
        "[{}]",
        (0..16_000).map(|i| i.to_string()).collect::<Vec<_>>().join(",")
    ));
    assert!(constraint(&set).subsumes(&constraint(&set)));
}

/// A child under a parent, and the rule of the draft that decides it.
struct Row {
    /// The draft's section, and its rule in our words.
    rule: &'static str,
    parent: String,
    child: String,
    within: bool,
}

#[derive(Default)]
struct Table(Vec<Row>);

impl Table {
    fn within<const N: usize>(&mut self, rule: &'static str, parent: &str, children: [String; N]) {
        self.add(rule, parent, children, true);
    }

    fn beyond<const N: usize>(&mut self, rule: &'static str, parent: &str, children: [String; N]) {
        self.add(rule, parent, children, false);
    }

    fn add<const N: usize>(&mut self, rule: &'static str, parent: &str, children: [String; N], within: bool) {
        self.0.extend(children.into_iter().map(|child| Row {
            rule,
            parent: parent.to_owned(),
            child,
            within,
        }));
    }
}

fn rows() -> Vec<Row> {
    let mut table = Table::default();
    for part in [
        under_exact,
        under_range,
        under_one_of,
        under_not_one_of,
        under_contains,
        under_subset,
        under_wildcard,
        under_all,
        under_any,
    ] {
        part(&mut table);
    }
    table.0
}

fn under_exact(table: &mut Table) {
    const SAME: &str = "4.5, exact: the same value; 3.4: compared by JCS";
    const OTHER: &str = "4.5, exact: another value";
    table.within(
        SAME,
        &exact("1"),
        [exact("1"), exact("1.0"), exact("1e0"), exact("10e-1")],
    );
    table.within(SAME, &exact("0"), [exact("-0"), exact("0.0"), exact("-0e5")]);
    table.within(SAME, &exact("-0.0"), [exact("0")]);
    table.within(SAME, &exact("9007199254740992"), [exact("9007199254740992.0")]);
    table.within(SAME, &exact("1e21"), [exact("1000000000000000000000")]);
    table.within(SAME, &exact("\"é\""), [exact(r#""\u00e9""#)]);
    table.within(SAME, &exact("\"😀\""), [exact(r#""\ud83d\ude00""#)]);
    table.within(SAME, &exact("\"a/b\""), [exact(r#""a\/b""#)]);
    table.within(SAME, &exact("null"), [exact("null")]);
    table.within(SAME, &exact("true"), [exact("true")]);

    table.beyond(
        OTHER,
        &exact("1"),
        [exact("2"), exact("-1"), exact("1.0000000000000002")],
    );
    table.beyond(OTHER, &exact("1"), [exact("\"1\""), exact("true")]);
    table.beyond(
        OTHER,
        &exact("0"),
        [exact("false"), exact("null"), exact("\"\""), exact("5e-324")],
    );
    table.beyond(
        OTHER,
        &exact("9007199254740992"),
        [exact("9007199254740991"), exact("9007199254740994")],
    );
    table.beyond(OTHER, &exact("null"), [exact("false"), exact("\"null\"")]);
    table.beyond(OTHER, &exact("\"a\""), [exact("\"A\""), exact("\"a \""), exact("\"\"")]);
    table.beyond(
        "3.4: JCS does not normalise Unicode",
        &exact("\"é\""),
        [exact("\"e\u{301}\""), exact("\"É\"")],
    );

    table.beyond(
        UNLISTED,
        &exact("5"),
        [
            range("[5,5]"),
            range("(5,5)"),
            one_of("[5]"),
            not_one_of("[]"),
            contains("[5]"),
            subset("[]"),
            wildcard(),
            all(&[exact("5")]),
            any(&[exact("5")]),
        ],
    );
}

fn under_range(table: &mut Table) {
    const TIGHTER: &str = "4.5, range: bounds at least as tight";
    const WIDER: &str = "4.5, range: a bound is wider";
    const MISSING: &str = "4.5, range: a bound of the parent is missing in the child";
    const INCLUSIVITY: &str = "4.5, range: inclusivity may only become tighter";
    const ACCEPTED: &str = "4.5, range: exact with a number that the range accepts";
    const NOT_ACCEPTED: &str = "4.5, range: exact with a value that the range does not accept";

    table.within(
        TIGHTER,
        &range("[0,10]"),
        [range("[0,10]"), range("[1,9]"), range("[5,5]"), range("[0.0,1e1]")],
    );
    table.within(
        TIGHTER,
        &range("[0,10]"),
        [range("[-0,10]"), range("[5e-324,9.999999999999998]")],
    );
    table.within(
        TIGHTER,
        &range("[,10]"),
        [range("[,10]"), range("[,9]"), range("[1,9]"), range("[-1e308,10]")],
    );
    table.within(
        TIGHTER,
        &range("[0,]"),
        [range("[0,]"), range("[1,]"), range("[1,9]"), range("[0,1e308]")],
    );
    table.within(
        "4.5, range: a missing bound of the parent is no bound",
        &range("[,]"),
        [range("[,]"), range("[,5]"), range("[5,]"), range("(5,5)")],
    );
    table.within(
        "4.5, range: by its bounds, though the child accepts nothing",
        &range("[5,5]"),
        [range("(5,5)"), range("[5,5)")],
    );
    table.within(
        INCLUSIVITY,
        &range("[0,10]"),
        [range("(0,10]"), range("[0,10)"), range("(0,10)")],
    );
    table.within(
        INCLUSIVITY,
        &range("(0,10)"),
        [range("(0,10)"), range("[1,9]"), range("[5e-324,9.5]")],
    );
    table.within(
        "3.4: inclusivity is true by default",
        r#"{"constraint_type":"range","min":0,"max":10}"#,
        [r#"{"constraint_type":"range","min":0,"max":10,"min_inclusive":true,"max_inclusive":true}"#.to_owned()],
    );
    table.within(
        TIGHTER,
        &range("[,9007199254740992]"),
        [range("[,9007199254740991]"), range("[,9007199254740992.0]")],
    );

    table.beyond(
        WIDER,
        &range("[0,10]"),
        [
            range("[-1,10]"),
            range("[0,11]"),
            range("[-5e-324,10]"),
            range("[0,10.5]"),
        ],
    );
    table.beyond(
        WIDER,
        &range("[0,10]"),
        [range("[20,30]"), range("[-30,-20]"), range("[5,20]")],
    );
    table.beyond(WIDER, &range("[,9007199254740992]"), [range("[,9007199254740994]")]);
    table.beyond(
        "4.5, range: by its bounds, though the child accepts nothing",
        &range("[0,10]"),
        [range("(11,11)")],
    );
    table.beyond(MISSING, &range("[0,10]"), [range("[,10]"), range("[0,]"), range("[,]")]);
    table.beyond(MISSING, &range("[0,]"), [range("[,]"), range("[,0]"), range("[,5]")]);
    table.beyond(MISSING, &range("[,10]"), [range("[,]"), range("[10,]"), range("[5,]")]);
    table.beyond(INCLUSIVITY, &range("(0,10]"), [range("[0,10]"), range("[-0,5]")]);
    table.beyond(INCLUSIVITY, &range("[0,10)"), [range("[0,10]"), range("[5,10]")]);
    table.beyond(
        INCLUSIVITY,
        &range("(5,5)"),
        [range("[5,5]"), range("(5,5]"), range("[5,5)")],
    );

    table.within(
        ACCEPTED,
        &range("[0,10]"),
        [exact("0"), exact("-0"), exact("10"), exact("1e1"), exact("0.1")],
    );
    table.within(
        ACCEPTED,
        &range("(0,10)"),
        [exact("5e-324"), exact("9.999999999999998")],
    );
    table.within(ACCEPTED, &range("[,]"), [exact("-1e308"), exact("9007199254740992")]);
    table.within(
        ACCEPTED,
        &range("[9007199254740991,9007199254740992]"),
        [exact("9007199254740991")],
    );
    table.beyond(
        NOT_ACCEPTED,
        &range("[0,10]"),
        [exact("-1"), exact("11"), exact("10.000000000000002")],
    );
    table.beyond(NOT_ACCEPTED, &range("(0,10)"), [exact("0"), exact("-0"), exact("10")]);
    table.beyond(NOT_ACCEPTED, &range("(5,5]"), [exact("5")]);
    table.beyond(NOT_ACCEPTED, &range("[,9007199254740992)"), [exact("9007199254740992")]);
    table.beyond(
        NOT_ACCEPTED,
        &range("[,]"),
        [exact("\"5\""), exact("null"), exact("true"), exact("\"\"")],
    );

    table.beyond(
        UNLISTED,
        &range("[0,10]"),
        [
            one_of("[5]"),
            not_one_of("[\"x\"]"),
            contains("[5]"),
            subset("[]"),
            wildcard(),
            all(&[range("[0,10]")]),
            any(&[range("[0,10]")]),
        ],
    );
    table.beyond(
        UNLISTED,
        &range("[,]"),
        [wildcard(), all(&[exact("5"), range("[,]")]), any(&[exact("5")])],
    );
}

fn under_one_of(table: &mut Table) {
    const FEWER: &str = "4.5, one_of: a subset of the values";
    const MORE: &str = "4.5, one_of: a value that the parent does not list";
    const MEMBER: &str = "4.5, one_of: exact with one of the values";
    const NO_MEMBER: &str = "4.5, one_of: exact with a value that the parent does not list";

    table.within(
        FEWER,
        &one_of("[1,2,3]"),
        [one_of("[1,2,3]"), one_of("[3,1]"), one_of("[2]"), one_of("[2.0,1e0]")],
    );
    table.within(
        "3.4: compared as sets by JCS, however often a value is repeated",
        &one_of("[1,2,1]"),
        [one_of("[1,1,1,1]"), one_of("[2,1.0,1]")],
    );
    table.within(
        "3.4: arrays and objects by JCS",
        &one_of(r#"[[1,2],{"a":1,"b":2}]"#),
        [one_of(r#"[{"b":2,"a":1.0}]"#), one_of("[[1.0,2e0]]")],
    );
    table.within(
        FEWER,
        &one_of(r#"["é","😀",null,true]"#),
        [one_of(r#"["\u00e9",null]"#), one_of("[true]")],
    );

    table.beyond(
        MORE,
        &one_of("[1,2]"),
        [one_of("[3]"), one_of("[1,3]"), one_of("[1,2,3]"), one_of("[\"1\"]")],
    );
    table.beyond(
        MORE,
        &one_of("[[1,2]]"),
        [one_of("[[2,1]]"), one_of("[[1]]"), one_of("[[]]"), one_of("[1]")],
    );
    table.beyond(
        MORE,
        &one_of(r#"[{"a":1}]"#),
        [one_of(r#"[{"a":1,"b":1}]"#), one_of("[{}]")],
    );
    table.beyond(
        MORE,
        &one_of("[\"é\"]"),
        [one_of("[\"e\u{301}\"]"), one_of("[\"é\",\"e\u{301}\"]")],
    );
    table.beyond(
        MORE,
        &one_of("[9007199254740992]"),
        [one_of("[9007199254740991]"), one_of("[9007199254740994]")],
    );

    table.within(
        MEMBER,
        &one_of("[1,\"a\",null]"),
        [exact("1.0"), exact("\"a\""), exact("null")],
    );
    table.within(MEMBER, &one_of("[0]"), [exact("-0")]);
    table.beyond(
        NO_MEMBER,
        &one_of("[1,\"a\",null]"),
        [exact("2"), exact("\"1\""), exact("\"A\""), exact("false")],
    );
    table.beyond(NO_MEMBER, &one_of("[[1]]"), [exact("1")]);

    table.beyond(
        "4.5: a not_one_of under a one_of accepts values outside the parent's set",
        &one_of("[1,2]"),
        [
            not_one_of("[]"),
            not_one_of("[3]"),
            not_one_of("[1,2]"),
            not_one_of("[1]"),
        ],
    );
    table.beyond(
        UNLISTED,
        &one_of("[1,[]]"),
        [
            range("[1,1]"),
            range("(1,1)"),
            contains("[]"),
            subset("[]"),
            wildcard(),
            all(&[one_of("[1]")]),
            any(&[one_of("[1]")]),
            any(&[exact("1")]),
        ],
    );
}

fn under_not_one_of(table: &mut Table) {
    const MORE: &str = "4.5, not_one_of: a superset of the excluded values";
    const FEWER: &str = "4.5, not_one_of: an excluded value is missing";

    table.within(
        MORE,
        &not_one_of("[1,2]"),
        [not_one_of("[1,2]"), not_one_of("[2,3,1]"), not_one_of("[1.0,2e0]")],
    );
    table.within(MORE, &not_one_of("[1,1]"), [not_one_of("[1]")]);
    table.within(
        MORE,
        &not_one_of("[]"),
        [not_one_of("[]"), not_one_of("[1]"), not_one_of("[null]")],
    );
    table.within(
        MORE,
        &not_one_of(r#"[{"a":1,"b":[]}]"#),
        [not_one_of(r#"[0,{"b":[],"a":1}]"#)],
    );

    table.beyond(
        FEWER,
        &not_one_of("[1,2]"),
        [not_one_of("[1]"), not_one_of("[]"), not_one_of("[1,3,4]")],
    );
    table.beyond(
        FEWER,
        &not_one_of("[1]"),
        [not_one_of("[\"1\"]"), not_one_of("[[1]]"), not_one_of("[true]")],
    );
    table.beyond(FEWER, &not_one_of("[\"é\"]"), [not_one_of("[\"e\u{301}\"]")]);

    table.beyond(
        UNLISTED,
        &not_one_of("[7]"),
        [
            exact("5"),
            range("[0,5]"),
            one_of("[5,6]"),
            contains("[5]"),
            subset("[5]"),
            wildcard(),
            all(&[not_one_of("[7]")]),
            any(&[not_one_of("[7]")]),
        ],
    );
    table.beyond(UNLISTED, &not_one_of("[]"), [wildcard(), exact("5"), one_of("[5]")]);
}

fn under_contains(table: &mut Table) {
    const MORE: &str = "4.5, contains: a superset of the required elements";
    const FEWER: &str = "4.5, contains: a required element is missing";

    table.within(
        MORE,
        &contains("[1,2]"),
        [contains("[1,2]"), contains("[3,2,1]"), contains("[2e0,1.0]")],
    );
    table.within(MORE, &contains("[1,1]"), [contains("[1]"), contains("[1,1,1]")]);
    table.within(
        MORE,
        &contains("[]"),
        [contains("[]"), contains("[1]"), contains("[[]]")],
    );
    table.within(MORE, &contains("[[1,[2]]]"), [contains("[[1,[2.0]],0]")]);

    table.beyond(
        FEWER,
        &contains("[1,2]"),
        [contains("[1]"), contains("[]"), contains("[1,3]"), contains("[[1,2]]")],
    );
    table.beyond(FEWER, &contains("[1]"), [contains("[\"1\"]"), contains("[[1]]")]);
    table.beyond(FEWER, &contains("[[]]"), [contains("[]")]);

    table.beyond(
        UNLISTED,
        &contains("[5]"),
        [
            exact("5"),
            range("(5,5)"),
            one_of("[[5]]"),
            not_one_of("[[]]"),
            subset("[5]"),
            wildcard(),
            all(&[contains("[5]")]),
            any(&[contains("[5]")]),
        ],
    );
    table.beyond(UNLISTED, &contains("[]"), [subset("[5]"), subset("[]"), one_of("[[]]")]);
}

fn under_subset(table: &mut Table) {
    const FEWER: &str = "4.5, subset: a subset of the allowed elements";
    const MORE: &str = "4.5, subset: an element that the parent does not allow";

    table.within(
        FEWER,
        &subset("[1,2]"),
        [subset("[1,2]"), subset("[2]"), subset("[]"), subset("[2.0,2,1]")],
    );
    table.within(FEWER, &subset("[]"), [subset("[]")]);
    table.within(
        FEWER,
        &subset(r#"[[],{"a":null}]"#),
        [subset(r#"[{"a":null}]"#), subset("[[]]")],
    );

    table.beyond(
        MORE,
        &subset("[1,2]"),
        [subset("[3]"), subset("[1,2,3]"), subset("[\"1\"]"), subset("[[1]]")],
    );
    table.beyond(MORE, &subset("[]"), [subset("[1]"), subset("[[]]"), subset("[null]")]);

    table.beyond(
        UNLISTED,
        &subset("[5,6]"),
        [
            exact("5"),
            range("(5,5)"),
            one_of("[[5]]"),
            not_one_of("[7]"),
            contains("[5]"),
            wildcard(),
            all(&[subset("[5]")]),
            any(&[subset("[5]")]),
        ],
    );
    table.beyond(UNLISTED, &subset("[]"), [one_of("[[]]"), contains("[]")]);
}

fn under_wildcard(table: &mut Table) {
    const ANYTHING: &str = "4.5, wildcard: any constraint";
    table.within(
        ANYTHING,
        &wildcard(),
        [
            exact("5"),
            range("[,]"),
            range("(5,5)"),
            one_of("[5]"),
            not_one_of("[]"),
            contains("[]"),
            subset("[]"),
            wildcard(),
            all(&[wildcard()]),
            any(&[wildcard(), exact("5")]),
            nested("any", DEPTH, wildcard()),
        ],
    );
}

fn under_all(table: &mut Table) {
    const COVERED: &str = "4.5, all: every parent clause subsumes a child clause";
    const UNCOVERED: &str = "4.5, all: a parent clause subsumes no child clause";
    let not_7 = || not_one_of("[7]");
    let range_and_not_7 = all(&[range("[0,10]"), not_7()]);

    table.within(
        COVERED,
        &range_and_not_7,
        [
            all(&[range("[0,10]"), not_7()]),
            all(&[not_7(), range("[0,10]")]),
            all(&[range("[1,9]"), not_one_of("[7,8]")]),
            all(&[exact("5"), not_7()]),
            all(&[range("[0,10]"), not_7(), contains("[1]")]),
            all(&[range("[0,10]"), range("[0,99]"), not_7()]),
        ],
    );
    table.within(
        "4.5, all: one child clause may satisfy several parent clauses",
        &all(&[range("[0,]"), range("[,10]"), one_of("[5,6]"), wildcard()]),
        [all(&[exact("5")]), all(&[exact("6"), exact("6")])],
    );
    table.within(
        "4.5, all: two wildcards over one exact",
        &all(&[wildcard(), wildcard()]),
        [all(&[exact("5")])],
    );
    table.within(
        "4.5, all: clauses compare by the same rules at every level",
        &all(&[all(&[range("[0,10]")]), any(&[exact("1"), exact("2")])]),
        [
            all(&[any(&[exact("2")]), all(&[range("[1,2]"), not_7()])]),
            all(&[all(&[exact("3")]), any(&[exact("1")])]),
        ],
    );
    table.within(
        "3.4: as deep as the limit",
        &nested("all", DEPTH, range("[0,10]")),
        [nested("all", DEPTH, range("[0,10]")), nested("all", DEPTH, exact("5"))],
    );

    table.beyond(
        UNCOVERED,
        &range_and_not_7,
        [
            all(&[range("[0,10]")]),
            all(&[not_7()]),
            all(&[exact("5")]),
            all(&[range("[0,11]"), not_7()]),
            all(&[range("[0,10]"), not_one_of("[8]")]),
            all(&[wildcard()]),
            all(&[all(&[range("[0,10]"), not_7()])]),
            all(&[any(&[range("[0,10]")]), not_7()]),
        ],
    );
    table.beyond(
        "4.5, all: clauses are not combined, though together they would be tight enough",
        &all(&[range("[0,10]")]),
        [all(&[range("[0,]"), range("[,10]")])],
    );
    table.beyond(
        "4.5, all: one nesting more is another pair of types",
        &nested("all", DEPTH, exact("5")),
        [nested("all", DEPTH - 1, exact("5")), nested("all", DEPTH, exact("6"))],
    );

    let five = all(&[exact("5")]);
    table.beyond(
        UNLISTED,
        &five,
        [
            exact("5"),
            range("[5,5]"),
            one_of("[5]"),
            not_one_of("[]"),
            contains("[]"),
            subset("[]"),
            wildcard(),
            any(&[exact("5")]),
            any(&[all(&[exact("5")])]),
        ],
    );
    table.beyond(
        UNLISTED,
        &all(&[wildcard()]),
        [exact("5"), wildcard(), contains("[1]"), subset("[]"), not_one_of("[1]")],
    );
}

fn under_any(table: &mut Table) {
    const COVERED: &str = "4.5, any: every child clause is subsumed by a parent clause";
    const UNCOVERED: &str = "4.5, any: a child clause that no parent clause subsumes";
    let formats = any(&[exact("\"pdf\""), exact("\"csv\""), exact("\"xlsx\"")]);

    table.within(
        COVERED,
        &formats,
        [
            any(&[exact("\"pdf\""), exact("\"csv\"")]),
            any(&[exact("\"xlsx\""), exact("\"csv\""), exact("\"pdf\"")]),
            any(&[exact("\"csv\""), exact("\"csv\""), exact("\"csv\""), exact("\"csv\"")]),
        ],
    );
    table.within(
        "4.5, any: clauses of another type, by the same rules",
        &any(&[one_of("[\"pdf\",\"csv\"]"), range("[0,10]"), subset("[1,2]")]),
        [
            any(&[exact("\"pdf\"")]),
            any(&[exact("5"), exact("\"csv\""), range("(0,1)"), subset("[]")]),
            any(&[one_of("[\"csv\"]"), exact("0"), exact("10")]),
        ],
    );
    table.within(
        "4.5, any: clauses compare by the same rules at every level",
        &any(&[all(&[range("[0,10]")]), any(&[exact("1"), exact("2")])]),
        [
            any(&[any(&[exact("2")])]),
            any(&[all(&[exact("3"), not_one_of("[7]")])]),
        ],
    );
    table.within(
        COVERED,
        &any(&[wildcard()]),
        [any(&[exact("5"), not_one_of("[]"), wildcard()])],
    );
    table.within(
        "3.4: as deep as the limit",
        &nested("any", DEPTH, range("[0,10]")),
        [nested("any", DEPTH, range("[0,10]")), nested("any", DEPTH, exact("5"))],
    );

    table.beyond(
        UNCOVERED,
        &formats,
        [
            any(&[exact("\"pdf\""), exact("\"docx\"")]),
            any(&[exact("\"PDF\"")]),
            any(&[one_of("[\"pdf\"]")]),
            any(&[exact("\"pdf\""), wildcard()]),
            any(&[any(&[exact("\"pdf\"")])]),
            any(&[all(&[exact("\"pdf\"")])]),
        ],
    );
    table.beyond(
        "4.5, any: clauses are not combined, though together they would be wide enough",
        &any(&[range("[0,5]"), range("[5,10]")]),
        [any(&[range("[0,10]")]), any(&[range("[4,6]")])],
    );
    table.beyond(
        "4.5, any: one nesting more is another pair of types",
        &nested("any", DEPTH, exact("5")),
        [nested("any", DEPTH - 1, exact("5")), nested("any", DEPTH, exact("6"))],
    );

    table.beyond(
        "4.1: conservative, an exact under an any is rejected",
        &any(&[exact("5"), exact("6")]),
        [exact("5"), exact("7")],
    );
    table.beyond(
        UNLISTED,
        &any(&[exact("5"), exact("6")]),
        [
            range("[5,5]"),
            one_of("[5,6]"),
            not_one_of("[]"),
            contains("[]"),
            subset("[]"),
            wildcard(),
            all(&[exact("5")]),
            all(&[any(&[exact("5"), exact("6")])]),
        ],
    );
    table.beyond(
        UNLISTED,
        &any(&[wildcard()]),
        [exact("5"), wildcard(), contains("[1]"), subset("[]"), not_one_of("[1]")],
    );
}

const UNLISTED: &str = "4.5: every pair that the table does not list is invalid, even where the sets nest";

/// By parent: the child types that section 4.5 does not list. No child of them is within.
const NEVER_WITHIN: [(&str, &[&str]); 8] = [
    (
        "exact",
        &[
            "range",
            "one_of",
            "not_one_of",
            "contains",
            "subset",
            "wildcard",
            "all",
            "any",
        ],
    ),
    (
        "range",
        &["one_of", "not_one_of", "contains", "subset", "wildcard", "all", "any"],
    ),
    (
        "one_of",
        &["range", "not_one_of", "contains", "subset", "wildcard", "all", "any"],
    ),
    (
        "not_one_of",
        &[
            "exact", "range", "one_of", "contains", "subset", "wildcard", "all", "any",
        ],
    ),
    (
        "contains",
        &[
            "exact",
            "range",
            "one_of",
            "not_one_of",
            "subset",
            "wildcard",
            "all",
            "any",
        ],
    ),
    (
        "subset",
        &[
            "exact",
            "range",
            "one_of",
            "not_one_of",
            "contains",
            "wildcard",
            "all",
            "any",
        ],
    ),
    (
        "all",
        &[
            "exact",
            "range",
            "one_of",
            "not_one_of",
            "contains",
            "subset",
            "wildcard",
            "any",
        ],
    ),
    (
        "any",
        &[
            "exact",
            "range",
            "one_of",
            "not_one_of",
            "contains",
            "subset",
            "wildcard",
            "all",
        ],
    ),
];

/// By parent: the child types that section 4.5 lists without a condition. No child of them is beyond.
const ALWAYS_WITHIN: [(&str, &[&str]); 1] = [("wildcard", &TYPES)];

fn is_never_within(parent: &str, child: &str) -> bool {
    is_marked(&NEVER_WITHIN, parent, child)
}

fn is_always_within(parent: &str, child: &str) -> bool {
    is_marked(&ALWAYS_WITHIN, parent, child)
}

fn is_marked(markers: &[(&str, &[&str])], parent: &str, child: &str) -> bool {
    markers
        .iter()
        .any(|(marked, children)| *marked == parent && children.contains(&child))
}
