//! Which rule a request matches, and its effect: each field of a rule once.

use std::sync::LazyLock;

use credence_e2e::{Request, Stack, StackOptions};

/// Rules before those of envoy-config/envoy.yaml.
const RULES: &str = r#"paths: {allow: [encoded_slash, path_parameter, empty_segment]}
                            rules:
                              - name: exact-host
                                match: {hosts: [admin.example], path: "/v1/**"}
                                tool: admin
                                args: {host: {host: true}}
                                proof: none
                              - name: any-host-under
                                match: {hosts: ["*.tenants.example"], path: "/v1/**"}
                                tool: tenant
                                args: {host: {host: true}}
                                proof: none
                              - name: number
                                match: {methods: [GET], path: "/v1/users/{id:integer}"}
                                tool: user
                                args: {id: {path: id, type: integer}}
                                proof: none
                              - name: named
                                match: {methods: [GET, HEAD], path: "/v1/users/{name}"}
                                tool: named
                                args: {name: {path: name}}
                                proof: none
                              - name: written
                                match: {path: "/v1/users/{name}"}
                                tool: written
                                args: {name: {path: name}, method: {method: true}}
                                ignore_body: true
                                proof: none
                              - name: beta
                                match: {path: "/v1/flows", headers: {x-stage: {prefix: beta-}, x-old: {absent: true}}}
                                tool: beta
                                args: {stage: {header: x-stage}}
                                proof: none
                              - name: purge
                                match: {path: "/v1/flows", query: {purge: {present: true}}}
                                tool: purge
                                args: {purge: {query: purge, type: boolean}}
                                proof: none
                              - name: flows
                                match: {path: "/v1/flows"}
                                tool: flows
                                args: {limit: {query: limit, type: integer, optional: true}}
                                ignore_query: [page]
                                proof: none
                              - name: files
                                match: {path: "/v1/files/{folder}/{file}"}
                                tool: file
                                args: {folder: {path: folder}, file: {path: file}}
                                proof: none
                              - name: assets
                                match: {path: "/v1/assets/**"}
                                public: true
"#;

/// All of them, each with any argument: the tests see which tool is missing.
const TOOLS: &[&str] = &[
    "admin", "tenant", "user", "named", "written", "beta", "purge", "flows", "file",
];

/// Shared by all tests; it stops with the process.
fn stack() -> &'static Stack {
    static STACK: LazyLock<Stack> = LazyLock::new(|| {
        let options = StackOptions::quick()
            .replacing("rules:\n", RULES)
            .replacing("merge_slashes: true", "merge_slashes: false")
            .replacing("action: REJECT_REQUEST", "action: KEEP_UNCHANGED");
        Stack::start(&options).unwrap()
    });
    &STACK
}

/// The tool of this request's rule, as the service is told; or the reason of a denial.
fn tool(request: Request) -> String {
    static CHAIN: LazyLock<String> = LazyLock::new(|| {
        let tools: Vec<String> = TOOLS.iter().map(|tool| format!("{tool}={{}}")).collect();
        let options: Vec<&str> = tools.iter().flat_map(|tool| ["--tool", tool]).collect();
        stack().mint("alice", &options).unwrap()
    });
    let reply = stack().send(&request.delegation(&*CHAIN)).unwrap();
    let told = reply.received().map(|received| {
        let tool = received.header("x-delegation-tool").unwrap_or("(public)");
        tool.to_owned()
    });
    told.or_else(|| reply.reason())
        .unwrap_or_else(|| reply.status.to_string())
}

fn at(host: &str) -> Request {
    Request::get("/v1/users/ada").without("host").header("host", host)
}

#[test]
fn a_host_is_one_or_any_under_another() {
    for (host, expected) in [
        ("admin.example", "admin"),
        ("ADMIN.example.:8443", "admin"),
        ("a.tenants.example", "tenant"),
        ("a.b.tenants.example", "tenant"),
        ("tenants.example", "named"),
        ("eviltenants.example", "named"),
        ("payments.example", "named"),
    ] {
        assert_eq!(tool(at(host)), expected, "{host}");
    }
}

#[test]
fn a_capture_may_be_for_numbers_only_and_the_first_rule_that_matches_decides() {
    for (path, expected) in [
        ("/v1/users/42", "user"),
        ("/v1/users/-7", "user"),
        ("/v1/users/ada", "named"),
        ("/v1/users/4a", "named"),
        ("/v1/users/042", "path_ambiguous"),
        ("/v1/users/4.0", "path_ambiguous"),
        ("/v1/users/", "no_route"),
        ("/v1/users/ada/pets", "no_route"),
    ] {
        assert_eq!(tool(Request::get(path)), expected, "{path}");
    }
}

#[test]
fn a_method_is_one_of_a_list() {
    assert_eq!(tool(Request::new("PUT", "/v1/users/ada").json("{}")), "written");
    assert_eq!(tool(Request::new("DELETE", "/v1/users/42")), "written");
    assert_eq!(tool(Request::new("GET", "/v1/users/ada")), "named");
}

#[test]
fn headers_and_query_tell_rules_of_one_path_apart() {
    let flows = |query: &str| Request::get(&format!("/v1/flows{query}"));
    for (request, expected) in [
        (flows("").header("x-stage", "beta-2"), "beta"),
        (flows("").header("x-stage", "beta-2").header("x-old", "1"), "flows"),
        (flows("").header("x-stage", "Beta-2"), "flows"),
        (flows("?purge=true"), "purge"),
        (flows("?purge=yes"), "argument_malformed"),
        (flows(""), "flows"),
        (flows("?limit=5&page=2"), "flows"),
        (flows("?limit=5.5"), "argument_malformed"),
        (flows("?depth=5"), "argument_unknown"),
        (
            flows("").header("x-stage", "beta-1").header("x-stage", "live"),
            "condition_ambiguous",
        ),
    ] {
        assert_eq!(tool(request.clone()), expected, "{request:?}");
    }
}

#[test]
fn two_asterisks_take_any_rest() {
    for path in ["/v1/assets", "/v1/assets/", "/v1/assets/a/b/c.css", "/v1/assets/a%20b"] {
        assert_eq!(tool(Request::get(path)), "(public)", "{path}");
    }
    assert_eq!(tool(Request::get("/v1/assetsx")), "no_route");
}

#[test]
fn ambiguous_paths_pass_where_the_configuration_allows_them() {
    for (path, expected) in [
        ("/v1/files/a/b%2Fc", "file"),
        ("/v1/files/a/b;v=1", "file"),
        ("/v1/assets/a//b", "(public)"),
        // Not where it would make a difference.
        ("/v1/files/a//b", "path_ambiguous"),
        ("/v1/assets;v=1/a", "path_ambiguous"),
        ("/v1/files/a/b%2F..%2Fc", "path_ambiguous"),
        ("/v1/files/a/b%5Cc", "path_ambiguous"),
        ("//v1/assets/a", "path_ambiguous"),
    ] {
        assert_eq!(tool(Request::get(path)), expected, "{path}");
    }
}
