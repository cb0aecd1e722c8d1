//! The fields of `match` and `paths`.

use super::*;
use crate::arguments::ArgumentMapping;
use crate::request::target::Tolerated;
use crate::route::Unclear;

#[test]
fn a_rule_may_ask_about_headers_and_query() {
    let policy = Policy::parse(
        with(&[(
            r#""methods": ["GET"], "path": "/v1/catalog/{item}""#,
            r#""path": "/v1/catalog/{item:integer}",
               "headers": {"x-stage": {"exact": "beta"}, "x-client": {"prefix": "shop-"}, "x-kind": {"suffix": "+json"},
                           "x-tenant": {"present": true}, "x-debug": {"absent": true}},
               "query": {"version": {"exact": "2"}, "draft": {"absent": true}}"#,
        )])
        .as_bytes(),
    )
    .unwrap();
    let fitting: [(&str, &str); 4] = [
        ("x-stage", "beta"),
        ("x-client", "shop-7"),
        ("x-kind", "order+json"),
        ("x-tenant", "north"),
    ];
    assert_eq!(route(&policy, "/v1/catalog/7?version=2", &fitting), Ok(Some("catalog")));
    for (path, headers) in [
        ("/v1/catalog/seven?version=2", &fitting[..]),
        ("/v1/catalog/7?version=3", &fitting[..]),
        ("/v1/catalog/7?version=2&draft", &fitting[..]),
        ("/v1/catalog/7?version=2", &fitting[1..]),
        ("/v1/catalog/7?version=2", &fitting[..3]),
        (
            "/v1/catalog/7?version=2",
            &[&fitting[..], &[("x-debug", "1")]].concat()[..],
        ),
    ] {
        assert_eq!(route(&policy, path, headers), Ok(None), "{path} {headers:?}");
    }
    let repeated = [&fitting[..], &[("x-tenant", "south")]].concat();
    assert_eq!(
        route(&policy, "/v1/catalog/7?version=2", &repeated),
        Err(Unclear::Header("x-tenant"))
    );
}

#[test]
fn a_query_member_that_the_match_fixes_needs_no_argument() {
    let policy = Policy::parse(
        with(&[(
            r#""path": "/v1/catalog/{item}""#,
            r#""path": "/v1/catalog/{item}", "query": {"version": {"exact": "2"}}"#,
        )])
        .as_bytes(),
    )
    .unwrap();
    assert_eq!(arguments_of(&policy, 1).ignored_query, ["version"]);

    // Query members that the match leaves open must be arguments, or be ignored explicitly.
    let present = r#""path": "/v1/catalog/{item}", "query": {"lang": {"present": true}}"#;
    let path = r#""path": "/v1/catalog/{item}""#;
    for (found, written) in [
        (r#""proof": "none""#, r#""ignore_query": ["lang"]"#),
        (
            r#""item": {"path": "item"}"#,
            r#""item": {"path": "item"}, "lang": {"query": "lang"}"#,
        ),
    ] {
        Policy::parse(with(&[(path, present), (found, written)]).as_bytes()).unwrap();
    }
}

#[test]
fn paths_are_read_as_strictly_as_configured() {
    let strict = Policy::parse(complete().as_bytes()).unwrap();
    assert_eq!(strict.paths, Tolerated::default());
    let tolerant = r#""default": "deny", "paths": {"allow": ["encoded_slash", "path_parameter", "empty_segment"]}"#;
    let tolerant = Policy::parse(with(&[(r#""default": "deny""#, tolerant)]).as_bytes()).unwrap();
    for path in ["/v1/catalog/a%2Fb", "/v1/catalog/a;b", "/v1//healthz"] {
        assert!(Target::parse(path.as_bytes(), strict.paths).is_err(), "{path}");
        assert!(Target::parse(path.as_bytes(), tolerant.paths).is_ok(), "{path}");
    }
    for path in ["/v1/..", "/v1/%2e%2e%2Fa", "/v1/..;/a"] {
        assert!(Target::parse(path.as_bytes(), tolerant.paths).is_err(), "{path}");
    }
}

#[test]
fn an_error_in_a_match_is_reported_with_its_place_and_cure() {
    let headers = |test: &str| format!(r#""methods": ["GET"], "headers": {{{test}}}"#);
    let query = |test: &str| format!(r#""methods": ["GET"], "query": {{{test}}}"#);
    let many = (0..17).map(|number| format!(r#""x-{number}": {{"absent": true}}"#));
    let many = many.collect::<Vec<_>>().join(",");
    let cases = [
        (
            headers(r#""x-a": {}"#),
            "headers.x-a",
            "write exactly one of `exact`, `prefix`",
        ),
        (
            headers(r#""x-a": {"exact": "a", "present": true}"#),
            "headers.x-a",
            "write exactly one of",
        ),
        (
            headers(r#""x-a": {"present": false}"#),
            "headers.x-a.present",
            "only `true` is valid",
        ),
        (
            headers(r#""x-a": {"prefix": ""}"#),
            "headers.x-a.prefix",
            "write `present: true`",
        ),
        (
            headers(r#""x-a": {"exact": " a"}"#),
            "headers.x-a.exact",
            "cannot be a value",
        ),
        (
            headers(r#""X-A": {"present": true}"#),
            "headers.X-A",
            "is not a header name in lower case",
        ),
        (
            headers(r#"":path": {"present": true}"#),
            "headers.:path",
            "is a pseudo-header",
        ),
        (
            headers(r#""x-delegation-tool": {"present": true}"#),
            "headers.x-delegation-tool",
            "removed from every request",
        ),
        (
            headers(r#""delegation": {"present": true}"#),
            "headers.delegation",
            "carries the delegation",
        ),
        (
            headers(r#""x-a": {"present": true}, "x_a": {"present": true}"#),
            "headers.x_a",
            "cannot tell `x_a` from `x-a`",
        ),
        (
            headers(r#""x-a": {"present": true}, "x.a": {"absent": true}"#),
            "headers.x.a",
            "cannot tell `x.a` from `x-a`",
        ),
        (
            query(r#""a": {"absent": true}, "A": {"absent": true}"#),
            "query.A",
            "cannot tell `A` from `a`",
        ),
        (
            query(r#""a[b][c][d][e][f][g][h][i]": {"absent": true}"#),
            "query.a[b][c][d][e][f][g][h][i]",
            "has more than 8 parts",
        ),
        (
            headers(r#""x-a": {"regex": "."}"#),
            "headers.x-a.regex",
            "unknown field `regex`",
        ),
        (
            headers(r#""x-a": {"exact": null}"#),
            "headers.x-a.exact",
            "invalid type: null",
        ),
        (
            headers(r#""x-a": {"present": true}, "x-a": {"absent": true}"#),
            "headers.x-a",
            "duplicate field `x-a`",
        ),
        (headers(&many), "headers", "17 entries; at most 16"),
        (query(r#""": {"absent": true}"#), "query.", "cannot name a query member"),
        (
            query(r#""q": {"prefix": "a"}"#),
            "query.q.prefix",
            "unknown field `prefix`",
        ),
        (
            query(r#""q": {"present": true}"#),
            "query.q",
            "no argument reads query member `q`",
        ),
    ];
    for (written, place, message) in cases {
        assert_one_error(
            &[(r#""methods": ["GET"]"#, &written)],
            &format!("rules[1].match.{place}"),
            message,
        );
    }
    let path = r#""path": "/healthz""#;
    assert_one_error(
        &[(path, r#""path": "/{id:uuid}""#)],
        "rules[2].match.path",
        "`uuid` is no type of a capture",
    );
    assert_one_error(&[(path, r#""path": "/a%2Fb""#)], "rules[2].match.path", "encoded slash");
    let deny = r#""default": "deny""#;
    assert_one_error(
        &[(deny, r#""paths": {"allow": ["dot_segment"]}"#)],
        "paths.allow[0]",
        "unknown variant `dot_segment`, expected one of `encoded_slash`, `path_parameter`, `empty_segment`, \
         `letter_case`, `trailing_slash`, `format_suffix`",
    );
    assert_one_error(
        &[(deny, r#""paths": {"allow": ["empty_segment", "empty_segment"]}"#)],
        "paths.allow[1]",
        "listed twice",
    );
    assert_one_error(
        &[(deny, r#""hosts": {"allow": ["port", "trailing_dot", "port"]}"#)],
        "hosts.allow[2]",
        "listed twice",
    );
    assert_one_error(
        &[(deny, r#""hosts": {"allow": ["any"]}"#)],
        "hosts.allow[0]",
        "unknown variant `any`, expected `port` or `trailing_dot`",
    );
    let proof = r#""proof": "none""#;
    assert_one_error(
        &[(proof, r#""proof": "none", "clusters": []"#)],
        "rules[1].clusters",
        "an empty list matches nothing",
    );
    assert_one_error(
        &[(proof, r#""proof": "none", "clusters": ["a b"]"#)],
        "rules[1].clusters[0]",
        "`a b` is not usable",
    );
}

#[test]
fn ten_thousand_rules_load_and_no_more() {
    let policy = Policy::parse(with_rules(10_000).as_bytes()).unwrap();
    assert_eq!(policy.routes.iter().count(), 10_000);
    assert_eq!(route(&policy, "/v1/resource-9999/7", &[]), Ok(Some("rule-9999")));
    assert_eq!(route(&policy, "/v1/resource-10000/7", &[]), Ok(None));
    let error = Policy::parse(with_rules(10_001).as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "rules: 10001 entries; at most 10000 are accepted");
}

/// `cargo test --release -p credence-filter loading -- --ignored --nocapture`
#[test]
#[ignore = "a measurement, to be run in release"]
#[allow(clippy::disallowed_methods)] // a clock, natively
fn measure_loading() {
    for count in [10, 1_000, 10_000] {
        let json = with_rules(count);
        let started = std::time::Instant::now();
        Policy::parse(json.as_bytes()).unwrap();
        println!("{count} rules, {} bytes: {:?}", json.len(), started.elapsed());
    }
}

fn with_rules(count: usize) -> String {
    let rule = |number| {
        format!(
            r#"{{"name": "rule-{number}", "match": {{"methods": ["GET"], "path": "/v1/resource-{number}/{{id}}"}},
                 "tool": "resource-{number}.read", "args": {{"id": {{"path": "id"}}}}, "proof": "none"}}"#
        )
    };
    let rules = (0..count).map(rule).collect::<Vec<_>>().join(",");
    let json = complete();
    let (front, _) = json.split_once(r#""rules": ["#).unwrap();
    format!(r#"{front}"rules": [{rules}]}}"#)
}

fn route<'p>(policy: &'p Policy, path: &str, headers: &[(&str, &str)]) -> Result<Option<&'p str>, Unclear<'p>> {
    let buffer = serialize(&[&[(":method", "GET")], headers].concat());
    let request = Request::parse(&buffer, &policy.headers, false).unwrap();
    let target = Target::parse(path.as_bytes(), policy.paths).unwrap();
    let found = policy
        .routes
        .find(Host::parse(b"payments.example").unwrap(), &request, &target)?;
    Ok(found.map(|found| found.leads_to.name.as_str()))
}

fn arguments_of(policy: &Policy, rule: usize) -> &ArgumentMapping {
    let requirement = &policy.routes.iter().nth(rule).unwrap().requirement;
    &requirement.as_ref().expect("the rule is not public").arguments
}

fn assert_one_error(replacements: &[(&str, &str)], path: &str, message: &str) {
    let error = Policy::parse(with(replacements).as_bytes()).expect_err(path);
    let [problem] = &error.problems[..] else {
        panic!("{path}: expected one error, found\n{error}")
    };
    assert_eq!(problem.path, path, "{problem}");
    assert!(problem.message.contains(message), "{problem}");
}

#[test]
fn the_entries_of_a_list_that_is_too_long_are_not_checked() {
    let names = vec![r#""""#; 33].join(",");
    assert_one_error(
        &[(r#"["https://payments.example"]"#, &format!("[{names}]"))],
        "audience",
        "33 entries; at most 32",
    );
}

#[test]
fn similar_names_are_allowed_together() {
    let path = r#""path": "/v1/catalog/{item}""#;
    let item = r#""item": {"path": "item"}"#;
    for (found, written) in [
        (
            item,
            r#""item": {"path": "item"}, "a": {"query": "page[size]"}, "b": {"query": "page[number]"}, "c": {"query": "size"}"#,
        ),
        (
            item,
            r#""item": {"path": "item"}, "a": {"header": "x-tenant"}, "b": {"header": "x-tenants"}"#,
        ),
        (
            path,
            r#""path": "/v1/catalog/{item}", "query": {"user_id": {"absent": true}, "id": {"absent": true}}"#,
        ),
        (r#""proof": "none""#, r#""ignore_query": ["a", "A", "a[]"]"#),
    ] {
        Policy::parse(with(&[(found, written)]).as_bytes()).unwrap_or_else(|error| panic!("{written}: {error}"));
    }
}

#[test]
fn trailers_lose_what_rules_read_of_headers_unless_nothing_is_enforced() {
    let buffer = serialize(&[
        ("x.tenant", "a"),
        ("x_stage", "b"),
        ("x-trace", "c"),
        ("x-delegation-tool", "d"),
    ]);
    let read = [
        (
            r#""path": "/v1/catalog/{item}""#,
            r#""path": "/v1/catalog/{item}", "headers": {"x-stage": {"absent": true}}"#,
        ),
        (
            r#""item": {"path": "item"}"#,
            r#""item": {"path": "item"}, "tenant": {"header": "x-tenant"}"#,
        ),
    ];
    let enforced = Policy::parse(with(&read).as_bytes()).unwrap();
    let shadow = (r#""default": "deny""#, r#""default": "deny", "mode": "shadow""#);
    let in_shadow = Policy::parse(with(&[read[0], read[1], shadow]).as_bytes()).unwrap();
    for (policy, expected) in [
        (enforced, &["x.tenant", "x_stage", "x-delegation-tool"][..]),
        (in_shadow, &["x-delegation-tool"]),
    ] {
        let removed = policy.removed_trailers.find(&buffer).unwrap();
        assert_eq!(removed, expected.iter().map(|name| name.as_bytes()).collect::<Vec<_>>());
    }
}

#[test]
fn the_host_counts_once_a_rule_tells_hosts_apart_or_takes_the_host_as_an_argument() {
    let path = r#""path": "/v1/catalog/{item}""#;
    let item = r#""item": {"path": "item"}"#;
    for (found, written, expected) in [
        (path, path, false),
        (path, r#""hosts": ["*.example"], "path": "/v1/catalog/{item}""#, true),
        (item, r#""item": {"path": "item"}, "host": {"host": true}"#, true),
    ] {
        let policy = Policy::parse(with(&[(found, written)]).as_bytes()).unwrap();
        assert_eq!(policy.host_counts, expected, "{written}");
    }
}
