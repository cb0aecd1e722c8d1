//! `mcp` of a rule.

use super::*;
use crate::mcp::{Access, Tools, Version};

/// The errors of a rule with this `mcp` and further fields.
fn errors(mcp: &str, more: &str) -> Vec<(String, String)> {
    match Policy::parse(configuration(mcp, more).as_bytes()) {
        Ok(_) => Vec::new(),
        Err(error) => error
            .problems
            .iter()
            .map(|problem| (problem.path.clone(), problem.message.clone()))
            .collect(),
    }
}

const HEADERS: &str = r#"{"source": "headers", "server_checks_headers": true}"#;

fn configuration(mcp: &str, more: &str) -> String {
    let rule = format!(r#"{{"name": "server", "match": {{"path": "/mcp"}}, "mcp": {mcp}{more}}}"#);
    with(&[(r#""rules": ["#, &format!(r#""rules": [{rule}, "#))])
}

#[test]
fn a_server_has_versions_tools_and_methods() {
    let mcp = r#"{"versions": ["2025-11-25"], "tools": {"names": {"get": "weather.get"}},
        "methods": {"tools/list": {"open": true}, "resources/read": {"tool": "files.read"}}}"#;
    let more = r#", "ignore_members": ["/params/requestState", "/params/_meta/com.example~1trace"]"#;
    let policy = Policy::parse(configuration(mcp, more).as_bytes()).unwrap();
    let rule = policy.routes.iter().find(|rule| rule.name == "server").unwrap();
    let endpoint = rule.requirement.as_ref().unwrap().mcp().unwrap();
    assert_eq!(endpoint.versions, [Version::V2025_11_25]);
    assert_eq!(
        endpoint.tools,
        Tools::Named([("get".to_owned(), "weather.get".to_owned())].into())
    );
    assert_eq!(endpoint.methods["tools/list"], Access::Open);
    assert_eq!(
        endpoint.methods["resources/read"],
        Access::Tool("files.read".to_owned())
    );
    assert_eq!(endpoint.ignored, ["requestState"]);
    assert_eq!(endpoint.ignored_meta, ["com.example/trace"]);
}

#[test]
fn the_defaults_are_the_newest_version_and_the_servers_names() {
    let policy = Policy::parse(configuration("{}", "").as_bytes()).unwrap();
    let rule = policy.routes.iter().find(|rule| rule.name == "server").unwrap();
    let endpoint = rule.requirement.as_ref().unwrap().mcp().unwrap();
    assert_eq!(endpoint.versions, [Version::V2026_07_28]);
    assert_eq!(endpoint.tools, Tools::Prefixed(String::new()));
    assert!(endpoint.methods.is_empty() && endpoint.ignored.is_empty());
}

#[test]
fn an_error_is_reported_with_its_place_and_cure() {
    for (mcp, more, path, message) in [
        (r#"{"versions": []}"#, "", "mcp.versions", "list one"),
        (
            r#"{"versions": ["2024-11-05"]}"#,
            "",
            "mcp.versions[0]",
            "write one of: 2025-03-26",
        ),
        (
            r#"{"versions": ["2025-11-25", "2025-11-25"]}"#,
            "",
            "mcp.versions[1]",
            "listed twice",
        ),
        (
            r#"{"tools": {"prefix": "a.", "names": {"x": "y"}}}"#,
            "",
            "mcp.tools",
            "keep one",
        ),
        (r#"{"tools": {"names": {}}}"#, "", "mcp.tools.names", "add one"),
        (r#"{"tools": {"names": {"x": "a b"}}}"#, "", "mcp.tools.names.x", ""),
        (r#"{"tools": {"prefix": "a b"}}"#, "", "mcp.tools.prefix", ""),
        (
            r#"{"methods": {"tools/call": {"open": true}}}"#,
            "",
            "mcp.methods.tools/call",
            "see `tools`",
        ),
        (
            r#"{"methods": {"ping": {}}}"#,
            "",
            "mcp.methods.ping",
            "write `open: true`",
        ),
        (
            r#"{"methods": {"ping": {"open": false}}}"#,
            "",
            "mcp.methods.ping",
            "write `open: true`",
        ),
        (
            r#"{"methods": {"ping": {"open": true, "tool": "x"}}}"#,
            "",
            "mcp.methods.ping",
            "write `open: true`",
        ),
        (
            r#"{"methods": {"ping": true}}"#,
            "",
            "mcp.methods.ping",
            "invalid type: boolean `true`, expected a mapping",
        ),
        (r#"{"tools": ["get"]}"#, "", "mcp.tools", "expected a mapping"),
        (
            r#"{"methods": {"GET": {"open": true}}}"#,
            "",
            "mcp.methods.GET",
            "add an older version",
        ),
        (
            r#"{"hide_ungranted": true}"#,
            "",
            "mcp.hide_ungranted",
            "add `tools/list`",
        ),
        ("{}", r#", "tool": "x""#, "tool", "has no effect"),
        ("{}", r#", "args": {}"#, "args", "has no effect"),
        ("{}", r#", "ignore_body": true"#, "ignore_body", "has no effect"),
        ("{}", r#", "upgrade": true"#, "upgrade", "has no effect"),
        (
            "{}",
            r#", "ignore_members": ["/params/name"]"#,
            "ignore_members[0]",
            "write `/params/<name>`",
        ),
        (
            "{}",
            r#", "ignore_members": ["/params/arguments/x"]"#,
            "ignore_members[0]",
            "write `/params/<name>`",
        ),
        (
            "{}",
            r#", "ignore_members": ["/params"]"#,
            "ignore_members[0]",
            "write `/params/<name>`",
        ),
        (r#"{"max_stream": "2d"}"#, "", "mcp.max_stream", "write 1s to 1d"),
        (
            r#"{"delegation_in_meta": true}"#,
            r#", "hold": "body""#,
            "hold",
            "write `hold: request`",
        ),
        (
            r#"{"source": "headers"}"#,
            r#", "proof": "none""#,
            "mcp.source",
            "write `server_checks_headers: true`",
        ),
        (HEADERS, "", "proof", "write `mtls` or `none`"),
        (HEADERS, r#", "hold": "body""#, "hold", "remove `hold`"),
        (
            HEADERS,
            r#", "ignore_members": ["/params/x"]"#,
            "mcp.source",
            "remove `ignore_members`",
        ),
        (
            r#"{"source": "headers", "server_checks_headers": true, "versions": ["2025-11-25"]}"#,
            "",
            "mcp.versions",
            "not in 2025-11-25",
        ),
        (
            r#"{"source": "headers", "server_checks_headers": true, "delegation_in_meta": true}"#,
            "",
            "mcp.source",
            "remove `delegation_in_meta`",
        ),
    ] {
        let found = errors(mcp, more);
        let place = format!("rules[0].{path}");
        assert!(
            found
                .iter()
                .any(|(path, text)| *path == place && text.contains(message)),
            "{mcp} {more}: {found:?}"
        );
    }
    let both = errors("{}", r#", "public": true"#);
    assert!(both.iter().any(|(path, _)| path == "rules[0].mcp"), "{both:?}");
}
