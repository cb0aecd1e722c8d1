//! Well-formed constraints, beyond the examples beside the parser: each type with each member wrong (draft section
//! 3.4).

use crate::text::{
    DEPTH, TYPES, argument, constraint, exact, nested, not_one_of, one_of, range, read, value, wildcard,
};

#[test]
fn each_type_needs_its_own_member_in_the_right_shape() {
    const NOT_ARRAYS: [&str; 6] = ["null", "true", "1", "\"a\"", "{}", r#"{"0":1}"#];
    const NOT_NUMBERS: [&str; 5] = ["null", "true", "\"1\"", "[1]", "{}"];
    const NOT_SCALARS: [&str; 3] = ["[]", "[1]", "{}"];
    const NOT_BOOLEANS: [&str; 5] = ["null", "0", "1", "\"true\"", "[true]"];
    let wrong: [(&str, &str, &str, &[&str]); 11] = [
        ("exact", "", "value", &NOT_SCALARS),
        ("range", "", "min", &NOT_NUMBERS),
        ("range", "", "max", &NOT_NUMBERS),
        ("range", r#","min":1"#, "min_inclusive", &NOT_BOOLEANS),
        ("range", r#","max":1"#, "max_inclusive", &NOT_BOOLEANS),
        ("one_of", "", "values", &NOT_ARRAYS),
        ("not_one_of", "", "excluded", &NOT_ARRAYS),
        ("contains", "", "required", &NOT_ARRAYS),
        ("subset", "", "allowed", &NOT_ARRAYS),
        ("all", "", "constraints", &NOT_ARRAYS),
        ("any", "", "constraints", &NOT_ARRAYS),
    ];
    for (kind, others, member, shapes) in wrong {
        for shape in shapes {
            refused(&format!(r#"{{"constraint_type":"{kind}"{others},"{member}":{shape}}}"#));
        }
    }
    for kind in TYPES.into_iter().filter(|kind| !["range", "wildcard"].contains(kind)) {
        refused(&format!(r#"{{"constraint_type":"{kind}"}}"#));
    }
}

#[test]
fn no_type_takes_a_member_of_another() {
    let well_formed = [
        exact("1"),
        range("[,]"),
        one_of("[1]"),
        not_one_of("[]"),
        r#"{"constraint_type":"contains","required":[]}"#.to_owned(),
        r#"{"constraint_type":"subset","allowed":[]}"#.to_owned(),
        wildcard(),
        nested("all", 2, wildcard()),
        nested("any", 2, wildcard()),
    ];
    let members = [
        ("exact", r#""value":1"#),
        ("range", r#""min":1"#),
        ("range", r#""max":1"#),
        ("one_of", r#""values":[1]"#),
        ("not_one_of", r#""excluded":[1]"#),
        ("contains", r#""required":[1]"#),
        ("subset", r#""allowed":[1]"#),
        ("all any", r#""constraints":[{"constraint_type":"wildcard"}]"#),
        ("", r#""comment":"harmless""#),
        ("", r#""Optional":true"#),
        ("", r#""":null"#),
    ];
    for (text, kind) in well_formed.iter().zip(TYPES) {
        assert!(read(text).is_ok(), "{text}");
        for (owners, member) in members {
            if !owners.split(' ').any(|owner| owner == kind) {
                refused(&format!("{},{member}}}", text.strip_suffix('}').unwrap()));
            }
        }
    }
}

#[test]
fn only_the_nine_types_are_known_and_by_their_exact_name() {
    for kind in [
        "regex",
        "Exact",
        "EXACT",
        "",
        " exact",
        "exact\\u0000",
        "oneOf",
        "cel",
        "not",
        "pattern",
    ] {
        refused(&format!(r#"{{"constraint_type":"{kind}","value":1}}"#));
        refused(&format!(r#"{{"constraint_type":"{kind}"}}"#));
        // An unknown clause restricts too, both with other clauses and in an alternative (section 3.4: fail closed).
        for composite in ["all", "any"] {
            refused(&format!(
                r#"{{"constraint_type":"{composite}","constraints":[{},{{"constraint_type":"{kind}"}}]}}"#,
                wildcard()
            ));
        }
    }
    for kind in ["null", "1", "true", "[\"exact\"]", "{}"] {
        refused(&format!(r#"{{"constraint_type":{kind},"value":1}}"#));
    }
}

#[test]
fn a_range_may_be_a_point_or_accept_nothing_but_not_run_backwards() {
    for interval in [
        "[1,1]",
        "[1,1)",
        "(1,1]",
        "(1,1)",
        "[-0,0]",
        "[0,-0]",
        "[1e0,1.0]",
        "[5e-324,5e-324]",
    ] {
        assert!(read(&range(interval)).is_ok(), "{interval}");
    }
    for interval in [
        "[2,1]",
        "[1,-1]",
        "[5e-324,0]",
        "[9007199254740992,9007199254740991]",
        "(1.5,1)",
    ] {
        refused(&range(interval));
    }
}

#[test]
fn inclusivity_needs_its_own_bound() {
    for members in [
        r#""max_inclusive":true"#,
        r#""min":1,"max_inclusive":false"#,
        r#""max":1,"min_inclusive":true"#,
        r#""min_inclusive":false,"max_inclusive":false"#,
    ] {
        refused(&format!(r#"{{"constraint_type":"range",{members}}}"#));
    }
}

#[test]
fn every_number_must_be_admissible_in_any_position() {
    for number in [
        "9007199254740993",
        "1.00000000000000001",
        "1e400",
        "-9007199254740993",
        "1e-400",
    ] {
        refused(&exact(number));
        refused(&range(&format!("[{number},]")));
        refused(&range(&format!("[,{number}]")));
        for (kind, member) in [
            ("one_of", "values"),
            ("not_one_of", "excluded"),
            ("contains", "required"),
            ("subset", "allowed"),
        ] {
            for values in [format!("[1,{number}]"), format!(r#"[[{{"a":[{number}]}}]]"#)] {
                refused(&format!(r#"{{"constraint_type":"{kind}","{member}":{values}}}"#));
            }
        }
        refused(&nested("any", 3, exact(number)));
        assert!(argument(number).is_err(), "argument {number}");
        assert!(
            argument(&format!(r#"[{{"a":{number}}}]"#)).is_err(),
            "argument with {number}"
        );
    }
    for number in [
        "9007199254740991",
        "9007199254740992",
        "9007199254740994",
        "0.1",
        "1e20",
        "5e-324",
        "-0",
        "0e99",
    ] {
        assert!(read(&exact(number)).is_ok(), "{number}");
        assert!(argument(number).is_ok(), "argument {number}");
    }
}

#[test]
fn depth_counts_all_and_any_alike() {
    let mixed = |depth: usize| {
        (1..depth).fold(wildcard(), |inner, level| {
            nested(if level % 2 == 0 { "all" } else { "any" }, 2, inner)
        })
    };
    assert!(read(&mixed(DEPTH)).is_ok());
    refused(&mixed(DEPTH + 1));
    // The deepest clause counts, in any position.
    let beside = |deep: String| {
        format!(
            r#"{{"constraint_type":"any","constraints":[{},{deep},{}]}}"#,
            wildcard(),
            exact("1")
        )
    };
    assert!(read(&beside(mixed(DEPTH - 1))).is_ok());
    refused(&beside(mixed(DEPTH)));
}

#[test]
fn optional_is_read_from_an_entry_of_any_type_and_from_no_clause() {
    for text in [
        exact("1"),
        range("[,]"),
        one_of("[1]"),
        wildcard(),
        nested("all", 2, wildcard()),
    ] {
        let with = |optional: &str| format!(r#"{},"optional":{optional}}}"#, text.strip_suffix('}').unwrap());
        assert_eq!(read(&text).unwrap(), (constraint(&text), false));
        assert_eq!(read(&with("true")).unwrap(), (constraint(&text), true));
        assert_eq!(read(&with("false")).unwrap(), (constraint(&text), false));
        refused(&with("null"));
        for optional in ["true", "false"] {
            refused(&nested("all", 2, with(optional)));
            refused(&nested("any", 3, with(optional)));
        }
    }
}

#[test]
fn a_set_is_the_same_in_any_notation() {
    assert_eq!(constraint(&one_of("[1,2,2,1.0]")), constraint(&one_of("[2e0,1]")));
    assert_eq!(value(r#"{"b":1,"a":-0}"#), value(r#"{"a":0,"b":1.0}"#));
}

#[track_caller]
fn refused(text: &str) {
    assert!(read(text).is_err(), "well-formed: {text}");
}
