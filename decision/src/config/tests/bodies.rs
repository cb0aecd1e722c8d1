//! Arguments from bodies, hosts and methods.

use super::*;

/// The errors of a rule with these arguments and further fields.
fn errors(arguments: &str, more: &str) -> Vec<(String, String)> {
    let rule = format!(
        r#"{{"name": "order", "match": {{"path": "/orders"}}, "tool": "order", "args": {{{arguments}}}{more}}}"#
    );
    let configuration = with(&[(r#""rules": ["#, &format!(r#""rules": [{rule}, "#))]);
    match Policy::parse(configuration.as_bytes()) {
        Ok(_) => Vec::new(),
        Err(error) => error
            .problems
            .iter()
            .map(|problem| (problem.path.clone(), problem.message.clone()))
            .collect(),
    }
}

#[test]
fn arguments_may_come_from_the_body_the_host_and_the_method() {
    let arguments = r#""amount": {"body": "/amount", "type": "number"}, "all": {"body": "/items", "type": "json", "optional": true},
        "host": {"host": true}, "method": {"method": true}"#;
    assert_eq!(errors(arguments, r#", "ignore_members": ["/note", "/meta/trace"]"#), []);
    assert_eq!(errors(r#""order": {"body": "", "type": "json"}"#, ""), []);
}

#[test]
fn an_error_about_a_body_is_reported_with_its_place_and_cure() {
    let amount = r#""amount": {"body": "/amount"}"#;
    for (arguments, more, path, message) in [
        (r#""a": {"body": "amount"}"#, "", "args.a.body", "starts with `/`"),
        (r#""a": {"body": "/a~"}"#, "", "args.a.body", "`~` is written `~0`"),
        (
            r#""a": {"body": "/a"}, "b": {"body": "/a"}"#,
            "",
            "args.b",
            "taken from the same place",
        ),
        (
            r#""a": {"body": "/a/b"}, "b": {"body": "/a"}"#,
            "",
            "args.b.body",
            "overlaps another one",
        ),
        (
            amount,
            r#", "ignore_members": ["/amount/cents"]"#,
            "ignore_members[0]",
            "overlaps another one",
        ),
        (
            amount,
            r#", "ignore_members": ["note"]"#,
            "ignore_members[0]",
            "starts with `/`",
        ),
        (
            amount,
            r#", "ignore_body": true"#,
            "ignore_body",
            "remove `ignore_body`",
        ),
        (amount, r#", "upgrade": true"#, "upgrade", "remove one of the two"),
        (
            "",
            r#", "ignore_members": ["/note"]"#,
            "ignore_members",
            "write `ignore_body: true`",
        ),
        (
            r#""q": {"query": "q", "type": "json"}"#,
            "",
            "args.q.type",
            "only a body has values",
        ),
        (
            r#""h": {"host": true, "type": "number"}"#,
            "",
            "args.h.type",
            "always a string",
        ),
        (
            r#""h": {"host": true, "optional": true}"#,
            "",
            "args.h.optional",
            "every request has it",
        ),
        (
            r#""m": {"method": true, "host": true}"#,
            "",
            "args.m",
            "more than one source",
        ),
        (r#""m": {"method": false}"#, "", "args.m", "no source"),
    ] {
        let found = errors(arguments, more);
        let expected = format!("rules[0].{path}");
        assert!(
            found
                .iter()
                .any(|(place, text)| *place == expected && text.contains(message)),
            "{arguments}{more}: {found:?}"
        );
    }
}
