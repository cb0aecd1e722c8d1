//! Which arguments a constraint accepts, beyond the examples beside the code (draft section 3.4).

use crate::text::{
    DEPTH, all, any, constraint, contains, exact, nested, not_one_of, one_of, range, subset, value, wildcard,
};

#[test]
fn arguments_are_compared_by_canonical_form() {
    let table: [(String, &[&str], &[&str]); 9] = [
        (
            exact("0"),
            &["0", "-0", "0.0", "-0e7", "0e99"],
            &["5e-324", "false", "null", "\"0\"", "[]", "[0]", "\"\""],
        ),
        (
            exact("9007199254740992"),
            &["9007199254740992", "9007199254740992.0", "9.007199254740992e15"],
            &["9007199254740991", "9007199254740994", "\"9007199254740992\""],
        ),
        (
            exact("\"é\""),
            &["\"é\"", r#""\u00e9""#],
            &["\"e\u{301}\"", "\"É\"", "\"é \""],
        ),
        (exact("\"\""), &["\"\""], &["null", "[]", "\" \"", r#""\u0000""#]),
        (exact("null"), &["null"], &["0", "false", "\"null\"", "[]", "{}"]),
        (
            one_of(r#"[{"a":1,"b":[2]},[1,[2]]]"#),
            &[r#"{"b":[2.0],"a":1}"#, "[1e0,[2]]"],
            &[r#"{"a":1}"#, r#"{"a":1,"b":[2],"c":3}"#, "[[2],1]", "[1,2]", "1"],
        ),
        (
            not_one_of(r#"["é",{"a":1,"b":2},1]"#),
            &["\"e\u{301}\"", r#"{"a":1}"#, "[1]", "2"],
            &[r#""\u00e9""#, r#"{"b":2,"a":1}"#, "1e0"],
        ),
        (
            contains(r#"[1,1,[2]]"#),
            &["[1,[2]]", "[[2.0],0,1.0]", "[1,1,1,[2],[2]]"],
            &["[1,2]", "[[1,[2]]]", "[1]", "1", r#"{"0":1,"1":[2]}"#, "\"1[2]\""],
        ),
        (
            subset(r#"[1,"a",[]]"#),
            &["[]", "[1,1,1,1,1]", "[[],\"a\",1.0]"],
            &["[[1]]", "[1,null]", "1", "\"a\"", "{}", "null"],
        ),
    ];
    for (text, accepted, rejected) in table {
        decides(&text, accepted, rejected);
    }
}

#[test]
fn a_range_accepts_up_to_its_bounds() {
    let table: [(&str, &[&str], &[&str]); 6] = [
        (
            "[1,3]",
            &["1", "3", "3.0", "2.5"],
            &["0.9999999999999999", "3.0000000000000004", "-2"],
        ),
        (
            "(1,3)",
            &["1.0000000000000002", "2.9999999999999996"],
            &["1", "3", "1e0"],
        ),
        ("[-0,0]", &["0", "-0"], &["5e-324", "-5e-324"]),
        ("(1,1)", &[], &["1", "0", "2"]),
        (
            "[,9007199254740992)",
            &["9007199254740991", "-1e308"],
            &["9007199254740992", "1e308"],
        ),
        (
            "[,]",
            &["0", "-1.7976931348623157e308"],
            &["null", "false", "\"0\"", "[0]", "{}"],
        ),
    ];
    for (interval, accepted, rejected) in table {
        decides(&range(interval), accepted, rejected);
    }
}

#[test]
fn an_empty_set_requires_nothing_excludes_nothing_and_allows_nothing() {
    decides(&not_one_of("[]"), &["null", "0", "[]", "{}"], &[]);
    decides(&contains("[]"), &["[]", "[1]"], &["{}", "null", "\"\""]);
    decides(&subset("[]"), &["[]"], &["[1]", "[[]]", "{}", "null"]);
}

#[test]
fn clauses_are_joined_by_and_or_at_every_depth() {
    let small_or_text = any(&[
        all(&[range("[0,]"), range("[,9]"), not_one_of("[7]")]),
        all(&[one_of("[\"a\",\"b\"]"), not_one_of("[\"b\"]")]),
    ]);
    decides(
        &small_or_text,
        &["0", "9", "\"a\""],
        &["7", "10", "-1", "\"b\"", "null"],
    );
    decides(&all(&[exact("1"), exact("2")]), &[], &["1", "2"]);
    for kind in ["all", "any"] {
        decides(&nested(kind, DEPTH, exact("5")), &["5", "5.0"], &["6", "[5]"]);
    }
    decides(&any(&[exact("1"), wildcard()]), &["2", "null"], &[]);
}

#[test]
fn long_arrays_are_sets_too() {
    let numbers = |range: std::ops::Range<u32>| range.map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    let thousand = format!("[{}]", numbers(0..1000));
    let backwards = format!(
        "[{}]",
        (0..1000)
            .rev()
            .map(|i| format!("{i}.0,{i}"))
            .collect::<Vec<_>>()
            .join(",")
    );
    let lacking = format!("[{}]", numbers(1..1000));
    decides(&contains(&thousand), &[&thousand, &backwards], &[&lacking]);
    decides(&subset(&lacking), &[&lacking], &[&thousand, &backwards]);
    decides(&subset(&thousand), &[&thousand, &backwards, &lacking], &["[1000]"]);
}

#[track_caller]
fn decides(text: &str, accepted: &[&str], rejected: &[&str]) {
    let constraint = constraint(text);
    for argument in accepted {
        assert!(constraint.check(&value(argument)), "{text} should accept {argument}");
    }
    for argument in rejected {
        assert!(!constraint.check(&value(argument)), "{text} should reject {argument}");
    }
}
