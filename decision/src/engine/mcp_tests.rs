//! Requests to MCP servers: what their messages call, and what a denied client learns.

#![allow(clippy::disallowed_types, reason = "reads back what the filter wrote")]

use serde_json::Value as Parsed;

use super::*;
use crate::answer::Answer;
use crate::mcp::session::{Named, Owner};

fn engine(world: &mut TestWorld) -> Engine {
    let configuration = format!(
        r#"{{
            "audience": ["{AUDIENCE}"],
            "trust_anchors": [{{"issuer": "{ISSUER}", "jwk": {}, "asserts_subjects": true, "delegations": true,
                "access_tokens": {{"scopes": {{"weather": {{"weather.get": {{}}}}}}}}}}],
            "control_plane": {{"cluster": "credence", "log_id": "0123456789abcdef0123456789abcdef"}},
            "rules": [
                {{"name": "mcp", "match": {{"path": "/mcp"}}, "proof": "none", "authorization": {{"proof": "none"}},
                  "ignore_members": ["/params/requestState", "/params/_meta/com.example~1trace"],
                  "mcp": {{"versions": ["2025-03-26", "2025-11-25", "2026-07-28"], "tools": {{"prefix": "weather."}},
                    "methods": {{"tools/list": {{"open": true}}, "initialize": {{"open": true}}, "GET": {{"open": true}},
                                 "responses": {{"open": true}}, "notifications/initialized": {{"open": true}},
                                 "resources/read": {{"tool": "files.read"}}}}}}}},
                {{"name": "meta", "match": {{"path": "/meta"}}, "proof": "none",
                  "mcp": {{"versions": ["2025-11-25"], "tools": {{"prefix": "weather."}}, "delegation_in_meta": true,
                    "methods": {{"GET": {{"open": true}}}}}}}},
                {{"name": "proven", "match": {{"path": "/proven"}},
                  "mcp": {{"versions": ["2025-11-25"], "tools": {{"prefix": "weather."}}, "delegation_in_meta": true}}}},
                {{"name": "headers", "match": {{"path": "/headers"}}, "proof": "none",
                  "mcp": {{"source": "headers", "server_checks_headers": true, "tools": {{"prefix": "weather."}},
                    "methods": {{"tools/list": {{"open": true}}}}}}}},
                {{"name": "named", "match": {{"path": "/named"}},
                  "mcp": {{"tools": {{"names": {{"forecast": "weather.get"}}}}, "methods": {{"tools/list": {{"open": true}}}}}}}}
            ]
        }}"#,
        key(1).public().to_jwk()
    );
    let policy = Policy::parse(configuration.as_bytes()).unwrap();
    let replay = ReplayMemory::join(world, [5; 16], UnixTime(NOW - 1000), 5).unwrap();
    Engine::new(policy.into(), [6; 16], replay)
}

fn delegation() -> String {
    root(grant(
        "r1",
        2,
        r#"{"weather.get":{"city":{"constraint_type":"one_of","values":["Oslo","Bergen"]},
            "days":{"constraint_type":"range","max":3,"optional":true}},
            "files.read":{"uri":{"constraint_type":"exact","value":"file:///a"}}}"#,
    ))
}

/// Names and values.
type Headers<'a> = &'a [(&'a str, &'a str)];

struct Server {
    engine: Engine,
    world: TestWorld,
    delegation: String,
}

/// The outcome of a request: the reason, what a denial is about, the JSON-RPC code, and the findings.
struct Found {
    code: &'static str,
    about: String,
    answer: Parsed,
    method: String,
    tool: String,
    /// The body for the server, if it is another.
    body: Option<String>,
}

impl Server {
    fn new() -> Self {
        let mut world = TestWorld::default();
        Self {
            engine: engine(&mut world),
            world,
            delegation: delegation(),
        }
    }

    fn ask(&mut self, method: &str, path: &str, headers: Headers<'_>, body: Option<&str>) -> Found {
        let mut all = vec![(":method", method), (":authority", "payments.example"), (":path", path)];
        if body.is_some() {
            all.push(("content-type", "application/json"));
        }
        if !self.delegation.is_empty() {
            all.push(("delegation", &self.delegation));
        }
        all.extend(headers);
        let serialized = serialize(&all);
        let request = Request::parse(&serialized, &HeaderNames::default(), body.is_some()).unwrap();
        let verdict = match self.engine.decide(&request, &mut self.world) {
            Outcome::Decided(verdict) => verdict,
            Outcome::NeedsBody(held) => {
                let body = body.unwrap_or_default().as_bytes();
                self.engine.resume(held, &request, body, &mut self.world)
            }
        };
        let mcp = verdict.findings.mcp.as_deref();
        let text = |text: Option<&Rc<str>>| text.map(|text| text.to_string()).unwrap_or_default();
        let (about, answer) = match &verdict.decision {
            Decision::Allow(_) => (String::new(), Parsed::Null),
            Decision::Deny(denial) => {
                let answer = Answer::for_verdict(&verdict, denial, &request);
                assert!(
                    answer
                        .headers
                        .contains(&("content-type", "application/json".to_owned()))
                );
                let answer = serde_json::from_slice::<Parsed>(&answer.body).unwrap();
                (denial.argument.clone().unwrap_or_default(), answer)
            }
        };
        Found {
            code: code(&verdict),
            about,
            answer,
            method: text(mcp.and_then(|mcp| mcp.method.as_ref())),
            tool: text(mcp.and_then(|mcp| mcp.tool.as_ref())),
            body: mcp.and_then(|mcp| mcp.body.clone()),
        }
    }

    /// A message of 2025-11-25.
    fn older(&mut self, message: &str) -> Found {
        self.ask("POST", "/mcp", &[("mcp-protocol-version", "2025-11-25")], Some(message))
    }

    /// A message of 2026-07-28 with these headers besides the version, its metadata in place of `META`.
    fn newer(&mut self, headers: &[(&str, &str)], message: &str) -> Found {
        let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        let all = [&[("mcp-protocol-version", "2026-07-28")], headers].concat();
        self.ask("POST", "/mcp", &all, Some(&message.replace("META", meta)))
    }
}

fn call(params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#)
}

#[test]
fn a_tools_name_and_arguments_are_those_of_the_delegation() {
    let server = &mut Server::new();
    let found = server.older(&call(r#"{"name":"get","arguments":{"city":"Oslo","days":2}}"#));
    assert_eq!(
        (found.code, &*found.method, &*found.tool),
        ("allow", "tools/call", "weather.get")
    );
    for (params, reason, about) in [
        (
            r#"{"name":"get","arguments":{"city":"Rome"}}"#,
            "argument_not_allowed",
            "city",
        ),
        (
            r#"{"name":"get","arguments":{"city":"Oslo","days":4}}"#,
            "argument_not_allowed",
            "days",
        ),
        (
            r#"{"name":"get","arguments":{"city":["Oslo"]}}"#,
            "argument_not_allowed",
            "city",
        ),
        (
            r#"{"name":"get","arguments":{"city":"Oslo","units":"F"}}"#,
            "argument_not_granted",
            "units",
        ),
        (
            r#"{"name":"get","arguments":{"city":"Oslo","City":"Rome"}}"#,
            "argument_not_granted",
            "City",
        ),
        (
            r#"{"name":"get","arguments":{"city":"Oslo","days":1e400}}"#,
            "argument_malformed",
            "arguments",
        ),
        (r#"{"name":"get"}"#, "argument_missing", "city"),
        (r#"{"name":"get","arguments":{}}"#, "argument_missing", "city"),
        (
            r#"{"name":"Get","arguments":{"city":"Oslo"}}"#,
            "tool_not_granted",
            "weather.Get",
        ),
        (
            r#"{"name":"get ","arguments":{"city":"Oslo"}}"#,
            "tool_not_granted",
            "weather.get ",
        ),
        (
            r#"{"name":"get","arguments":null}"#,
            "mcp_message_invalid",
            "/params/arguments",
        ),
        (
            r#"{"name":"get","arguments":["Oslo"]}"#,
            "mcp_message_invalid",
            "/params/arguments",
        ),
        (
            r#"{"name":7,"arguments":{"city":"Oslo"}}"#,
            "mcp_message_invalid",
            "/params/name",
        ),
        (
            r#"{"arguments":{"city":"Oslo"}}"#,
            "mcp_message_invalid",
            "/params/name",
        ),
        (
            r#"{"name":"get","arguments":{"city":"Oslo"},"task":{}}"#,
            "argument_unknown",
            "/params/task",
        ),
        (
            r#"{"name":"get","arguments":{"city":"Oslo"},"_meta":{"com.example/other":1}}"#,
            "argument_unknown",
            "/params/_meta/com.example~1other",
        ),
        (
            r#"{"name":"get","arguments":{"city":"Oslo"},"_meta":7}"#,
            "mcp_message_invalid",
            "/params/_meta",
        ),
        (
            r#"{"name":"get","name":"set","arguments":{"city":"Oslo"}}"#,
            "body_malformed",
            "",
        ),
    ] {
        let found = server.older(&call(params));
        assert_eq!((found.code, &*found.about), (reason, about), "{params}");
    }
    let ignored = r#"{"name":"get","arguments":{"city":"Oslo"},"requestState":"x",
        "_meta":{"progressToken":1,"com.example/trace":"y","io.modelcontextprotocol/related-task":{}}}"#;
    assert_eq!(server.older(&call(ignored)).code, "allow");
}

#[test]
fn methods_are_open_or_need_their_tool_or_are_denied() {
    let server = &mut Server::new();
    let mut ask = |text: &str| {
        let found = server.older(text);
        (found.code, found.method, found.tool)
    };
    let is = |code, method: &str, tool: &str| (code, method.to_owned(), tool.to_owned());
    let request =
        |method: &str, params: &str| format!(r#"{{"jsonrpc":"2.0","id":"a","method":"{method}","params":{params}}}"#);
    assert_eq!(
        ask(&request("tools/list", r#"{"cursor":"x"}"#)),
        is("allow", "tools/list", "")
    );
    assert_eq!(
        ask(&request(
            "resources/read",
            r#"{"uri":"file:///a","_meta":{"progressToken":1}}"#
        )),
        is("allow", "resources/read", "files.read")
    );
    assert_eq!(
        ask(&request("resources/read", r#"{"uri":"file:///b"}"#)).0,
        "argument_not_allowed"
    );
    for unnamed in [
        "resources/list",
        "Tools/List",
        "tools/list ",
        "tools/call2",
        "GET",
        "responses",
        "ping",
    ] {
        assert_eq!(ask(&request(unnamed, "{}")).0, "mcp_method_not_allowed", "{unnamed}");
    }
    assert_eq!(
        ask(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
        is("allow", "notifications/initialized", "")
    );
    assert_eq!(
        ask(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#).0,
        "mcp_method_not_allowed"
    );
    assert_eq!(
        ask(r#"[{"jsonrpc":"2.0","id":3,"method":"tools/list"}]"#).0,
        "mcp_message_invalid"
    );
}

#[test]
fn a_session_is_its_owners_under_its_rule() {
    let keys = SealKeys::parse(&[9; 32], &[]).unwrap();
    let server = &mut Server::new();
    server.world.session_keys = Some(SealKeys::parse(&[9; 32], &[]).unwrap());
    let chain = |token: &str| crate::samples::verified(token);
    let sealed = |token: &str, rule: &str, named| {
        let owner = Owner::new(rule, &chain(token));
        owner.seal(&keys, named, "s1").unwrap()
    };
    let other_holder = root(grant("r2", 3, r#"{"weather.get":{}}"#));
    let ours = server.delegation.clone();
    let sessions = [
        (sealed(&ours, "mcp", Named::Session), "allow"),
        (sealed(&ours, "other", Named::Session), "mcp_session_invalid"),
        (sealed(&ours, "mcp", Named::Event), "mcp_session_invalid"),
        (sealed(&other_holder, "mcp", Named::Session), "mcp_session_invalid"),
        ("s1".to_owned(), "mcp_session_invalid"),
        (String::new(), "mcp_session_invalid"),
    ];
    let version = ("mcp-protocol-version", "2025-11-25");
    let messages = [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":3,"result":{}}"#,
    ];
    for (session, expected) in &sessions {
        for message in messages {
            let found = server.ask("POST", "/mcp", &[version, ("mcp-session-id", session)], Some(message));
            assert_eq!(found.code, *expected, "{session} {message}");
        }
        let found = server.ask("GET", "/mcp", &[version, ("mcp-session-id", session)], None);
        assert_eq!(found.code, *expected, "{session}");
    }
    let event = sealed(&ours, "mcp", Named::Event);
    for (headers, expected) in [
        (&[version, ("last-event-id", &*event)][..], "allow"),
        (&[version, ("last-event-id", "7")], "mcp_session_invalid"),
        (
            &[version, ("last-event-id", &event), ("last-event-id", &event)],
            "mcp_session_invalid",
        ),
        (&[version, ("Mcp_Session_Id", "s1")], "mcp_session_invalid"),
    ] {
        assert_eq!(server.ask("GET", "/mcp", headers, None).code, expected, "{headers:?}");
    }
}

#[test]
fn a_message_may_present_the_delegation_and_the_server_does_not_see_it() {
    let server = &mut Server::new();
    let delegation = std::mem::take(&mut server.delegation);
    let call = |meta: &str, arguments: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{{"name":"get","arguments":{arguments},"_meta":{{{meta}}}}}}}"#
        )
    };
    let present = format!(r#""progressToken":1,"aat_chain":["{delegation}"]"#);
    let oslo = r#"{"city":"Oslo"}"#;
    let version = ("mcp-protocol-version", "2025-11-25");
    let mut ask = |headers: &[(&str, &str)], message: &str| {
        server.ask("POST", "/meta", &[&[version], headers].concat(), Some(message))
    };
    let found = ask(&[], &call(&present, oslo));
    assert_eq!((found.code, found.tool.as_str()), ("allow", "weather.get"));
    assert_eq!(found.body, Some(call(r#""progressToken":1"#, oslo)));
    let found = ask(&[], &call(&present, r#"{"city":"Rome"}"#));
    assert_eq!(
        (found.code, found.body, &found.answer["id"]),
        ("argument_not_allowed", None, &Parsed::from(5))
    );
    let found = ask(&[], &call("", oslo));
    assert_eq!(
        (found.code, &found.answer["id"]),
        ("delegation_missing", &Parsed::from(5))
    );
    assert_eq!(
        ask(&[], &call(r#""aat_chain":["a.b.c"]"#, oslo)).code,
        "delegation_malformed"
    );
    assert_eq!(
        ask(&[("delegation", &delegation)], &call(&present, oslo)).code,
        "credentials_ambiguous"
    );
    assert_eq!(
        ask(&[("delegation", &delegation)], &call(r#""aat_pop":"p""#, oslo)).code,
        "credentials_ambiguous"
    );
    assert_eq!(
        ask(&[("delegation-proof", "p")], &call(&present, oslo)).code,
        "delegation_missing"
    );
    let padded = call(&format!(r#"{present},"progressToken2":"{}""#, " ".repeat(65_536)), oslo);
    assert_eq!(ask(&[], &padded).code, "body_too_large");
    assert_eq!(
        server.ask("POST", "/mcp", &[version], Some(&call(&present, oslo))).code,
        "delegation_missing"
    );
    assert_eq!(server.ask("GET", "/meta", &[version], None).code, "delegation_missing");
}

#[test]
fn a_proof_in_the_message_is_for_the_call() {
    let server = &mut Server::new();
    let delegation = std::mem::take(&mut server.delegation);
    let proof = crate::samples::proof(&delegation, 2, "p1", "weather.get", r#"{"city":"Oslo"}"#, NOW);
    let mut ask = |city: &str| {
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{{"name":"get","arguments":{{"city":"{city}"}},
                "_meta":{{"aat_chain":["{delegation}"],"aat_pop":"{proof}"}}}}}}"#
        );
        server
            .ask(
                "POST",
                "/proven",
                &[("mcp-protocol-version", "2025-11-25")],
                Some(&message),
            )
            .code
    };
    assert_eq!(
        [ask("Bergen"), ask("Oslo"), ask("Oslo")],
        ["proof_mismatch", "allow", "proof_replayed"]
    );
}

#[test]
fn headers_alone_decide_where_the_server_checks_them() {
    let server = &mut Server::new();
    server.delegation = root(grant(
        "r3",
        2,
        r#"{"weather.get":{"city":{"constraint_type":"one_of","values":["Oslo"]},"*":{"constraint_type":"wildcard"}},
            "weather.free":{},"weather.closed":{"city":{"constraint_type":"wildcard"}},
            "weather.hidden":{"days":{"constraint_type":"range","max":3,"optional":true},"*":{"constraint_type":"wildcard"}}}"#,
    ));
    let mut ask = |headers: &[(&str, &str)]| {
        let version = ("mcp-protocol-version", "2026-07-28");
        let found = server.ask("POST", "/headers", &[&[version], headers].concat(), Some("not read"));
        (found.code, found.about, found.tool)
    };
    let call = ("mcp-method", "tools/call");
    let get = ("mcp-name", "get");
    let is = |code, about: &str, tool: &str| (code, about.to_owned(), tool.to_owned());
    let city = [call, get, ("mcp-param-city", "Oslo")];
    assert_eq!(ask(&city), is("argument_missing", "city", "weather.get"));
    assert_eq!(ask(&[call, ("mcp-name", "free")]).0, "allow");
    assert_eq!(ask(&[call, ("mcp-name", "=?base64?ZnJlZQ==?=")]).0, "allow");
    assert_eq!(
        ask(&[call, ("mcp-name", "closed")]),
        is("argument_missing", "city", "weather.closed")
    );
    assert_eq!(
        ask(&[call, ("mcp-name", "hidden")]),
        is("argument_missing", "days", "weather.hidden")
    );
    assert_eq!(ask(&[call, ("mcp-name", "other")]).0, "tool_not_granted");
    assert_eq!(ask(&[("mcp-method", "tools/list")]), is("allow", "", ""));
    assert_eq!(ask(&[("mcp-method", "ping")]).0, "mcp_method_not_allowed");
    for missing in [&[call][..], &[get], &[call, get, get]] {
        assert_eq!(ask(missing).0, "mcp_header_mismatch", "{missing:?}");
    }
    let older = [("mcp-protocol-version", "2025-11-25"), call, get];
    assert_eq!(
        server.ask("POST", "/headers", &older, Some("{}")).code,
        "mcp_version_not_allowed"
    );
    assert_eq!(
        server
            .ask(
                "GET",
                "/headers",
                &[("mcp-protocol-version", "2026-07-28"), call, get],
                None
            )
            .code,
        "mcp_http_method"
    );
}

#[test]
fn an_argument_that_servers_in_javascript_lose_is_denied() {
    let server = &mut Server::new();
    server.delegation = root(grant("r4", 2, r#"{"weather.free":{}}"#));
    let mut ask = |arguments: &str| {
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"free","arguments":{arguments}}}}}"#
        );
        let found = server.older(&message);
        (found.code, found.about)
    };
    for arguments in [r#"{"__proto__":{}}"#, r#"{"a":1,"__pr\u006fto__":7}"#] {
        assert_eq!(ask(arguments), ("argument_ambiguous", "__proto__".to_owned()));
    }
    assert_eq!(ask(r#"{"proto":1}"#).0, "allow");
}

#[test]
fn only_sessions_have_answers_to_the_servers_requests() {
    let server = &mut Server::new();
    let found = server.older(r#"{"jsonrpc":"2.0","id":3,"result":{}}"#);
    assert_eq!(
        (found.code, found.method.as_str()),
        ("mcp_session_invalid", "responses")
    );
    assert_eq!(found.answer["error"]["code"], -32_001);
}

#[test]
fn without_keys_no_session_is_opened() {
    let server = &mut Server::new();
    let headers = [("mcp-protocol-version", "2025-11-25"), ("mcp-session-id", "s1")];
    let found = server.ask(
        "POST",
        "/mcp",
        &headers,
        Some(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#),
    );
    assert_eq!(found.code, "not_ready");
}

#[test]
fn a_denial_is_a_json_rpc_error_with_the_requests_id() {
    let server = &mut Server::new();
    let found = server.older(&call(r#"{"name":"get","arguments":{"city":"Rome"}}"#));
    assert_eq!(found.answer["jsonrpc"], "2.0");
    assert_eq!(found.answer["id"], 7);
    assert_eq!(found.answer["error"]["code"], 403);
    assert_eq!(found.answer["error"]["data"]["reason"], "argument_not_allowed");
    assert_eq!(found.answer["error"]["data"]["argument"], "city");
    for (text, code) in [
        ("{", -32_700),
        ("[]", -32_600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"nothing"}"#, -32_601),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#, -32_600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}"#, -32_602),
    ] {
        assert_eq!(server.older(text).answer["error"]["code"], code, "{text}");
    }
    let unknown = server.ask(
        "POST",
        "/mcp",
        &[("mcp-protocol-version", "1900-01-01")],
        Some(r#"{"jsonrpc":"2.0","id":"v","method":"tools/list"}"#),
    );
    assert_eq!(unknown.code, "mcp_version_not_allowed");
    let data = &unknown.answer["error"]["data"];
    assert_eq!(unknown.answer["error"]["code"], -32_022);
    assert_eq!(data["requested"], "1900-01-01");
    assert_eq!(
        data["supported"],
        serde_json::json!(["2025-03-26", "2025-11-25", "2026-07-28"])
    );
    assert_eq!(unknown.answer["id"], "v");
}

#[test]
fn the_version_is_that_of_header_and_body() {
    let server = &mut Server::new();
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let stateless = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let initialize = |version: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{version}"}}}}"#)
    };
    let method = ("mcp-method", "tools/list");
    let cases: [(Headers<'_>, &str, &str); 12] = [
        // The oldest version has no header.
        (&[], list, "allow"),
        (&[("mcp-protocol-version", "2025-11-25")], list, "allow"),
        (
            &[("mcp-protocol-version", "2025-06-18")],
            list,
            "mcp_version_not_allowed",
        ),
        (&[("mcp-protocol-version", "2026-07-28"), method], stateless, "allow"),
        (
            &[("mcp-protocol-version", "2026-07-28"), method],
            list,
            "mcp_message_invalid",
        ),
        (
            &[("mcp-protocol-version", "2025-11-25")],
            stateless,
            "mcp_header_mismatch",
        ),
        (&[], stateless, "mcp_header_mismatch"),
        (
            &[
                ("mcp-protocol-version", "2025-11-25"),
                ("mcp-protocol-version", "2026-07-28"),
            ],
            list,
            "mcp_header_mismatch",
        ),
        (&[("mcp_protocol_version", "2025-11-25")], list, "mcp_header_mismatch"),
        (&[], &initialize("2025-11-25"), "allow"),
        // The server may answer with another one.
        (&[], &initialize("2099-01-01"), "allow"),
        (
            &[("mcp-protocol-version", "2025-06-18")],
            &initialize("2025-06-18"),
            "mcp_version_not_allowed",
        ),
    ];
    for (headers, body, reason) in cases {
        assert_eq!(
            server.ask("POST", "/mcp", headers, Some(body)).code,
            reason,
            "{headers:?} {body}"
        );
    }
}

#[test]
fn headers_say_what_the_body_says() {
    let server = &mut Server::new();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get","arguments":{"city":"Oslo","days":2},META}}"#;
    let cases: [(Headers<'_>, &str); 15] = [
        (&[("mcp-method", "tools/call"), ("mcp-name", "get")], ""),
        (&[("mcp-method", "tools/call"), ("mcp-name", "=?base64?Z2V0?=")], ""),
        (
            &[("mcp-method", "tools/call"), ("mcp-name", "=?base64?Z2V?=")],
            "mcp-name",
        ),
        (
            &[("mcp-method", "tools/call"), ("mcp-name", "=?Base64?Z2V0?=")],
            "mcp-name",
        ),
        (&[("mcp-method", "tools/call"), ("mcp-name", "Get")], "mcp-name"),
        (&[("mcp-method", "tools/call")], "mcp-name"),
        (&[("mcp-name", "get")], "mcp-method"),
        (&[("mcp-method", "tools/list"), ("mcp-name", "get")], "mcp-method"),
        (
            &[
                ("mcp-method", "tools/call"),
                ("mcp-method", "tools/call"),
                ("mcp-name", "get"),
            ],
            "mcp-method",
        ),
        (
            &[("mcp-method", "tools/call"), ("mcp-name", "get"), ("mcp.name", "get")],
            "mcp-name",
        ),
        (
            &[
                ("mcp-method", "tools/call"),
                ("mcp-name", "get"),
                ("mcp-param-city", "Oslo"),
            ],
            "",
        ),
        (
            &[
                ("mcp-method", "tools/call"),
                ("mcp-name", "get"),
                ("mcp-param-days", "2.0"),
            ],
            "",
        ),
        (
            &[
                ("mcp-method", "tools/call"),
                ("mcp-name", "get"),
                ("mcp-param-city", "=?base64?T3Nsbw==?="),
            ],
            "",
        ),
        (
            &[
                ("mcp-method", "tools/call"),
                ("mcp-name", "get"),
                ("mcp-param-city", "Rome"),
            ],
            "mcp-param-city",
        ),
        (
            &[
                ("mcp-method", "tools/call"),
                ("mcp-name", "get"),
                ("mcp_param_city", "Rome"),
            ],
            "mcp_param_city",
        ),
    ];
    for (headers, about) in cases {
        let found = server.newer(headers, call);
        let reason = if about.is_empty() {
            "allow"
        } else {
            "mcp_header_mismatch"
        };
        assert_eq!((found.code, &*found.about), (reason, about), "{headers:?}");
    }
    // Before, no header is needed, but none may lie.
    let older = call.replace(",META", "");
    for (headers, reason) in [
        (("mcp-method", "tools/call"), "allow"),
        (("mcp-method", "tools/list"), "mcp_header_mismatch"),
        (("mcp-name", "get"), "allow"),
        (("mcp-name", "set"), "mcp_header_mismatch"),
    ] {
        let all = [("mcp-protocol-version", "2025-11-25"), headers];
        assert_eq!(
            server.ask("POST", "/mcp", &all, Some(&older)).code,
            reason,
            "{headers:?}"
        );
    }
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{META}}"#;
    assert_eq!(server.newer(&[("mcp-method", "tools/list")], list).code, "allow");
    let named = [("mcp-method", "tools/list"), ("mcp-name", "get")];
    assert_eq!(
        server.newer(&named, list).code,
        "mcp_header_mismatch",
        "it repeats nothing"
    );
}

#[test]
fn only_streams_of_older_versions_have_another_http_method() {
    let server = &mut Server::new();
    let mut ask = |method: &str, version: &str| server.ask(method, "/mcp", &[("mcp-protocol-version", version)], None);
    let found = ask("GET", "2025-11-25");
    assert_eq!((found.code, &*found.method), ("allow", "GET"));
    for (method, version) in [
        ("GET", "2026-07-28"),
        ("DELETE", "2025-11-25"),
        ("PUT", "2025-11-25"),
        ("HEAD", "2025-11-25"),
    ] {
        let found = ask(method, version);
        assert_eq!(found.code, "mcp_http_method", "{method}");
        assert_eq!(found.answer["error"]["code"], 405);
    }
    assert_eq!(ask("POST", "2025-11-25").code, "body_malformed", "without a body");
}

#[test]
fn a_stream_has_no_body() {
    let server = &mut Server::new();
    let headers = [("mcp-protocol-version", "2025-11-25")];
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete"}}"#;
    assert_eq!(server.ask("GET", "/mcp", &headers, Some(body)).code, "body_unmapped");
}

/// As many members and headers as a request may have. One walk of the body for each would take seconds.
#[test]
#[allow(clippy::disallowed_methods, reason = "a test has a clock")]
fn many_members_and_headers_take_time_in_proportion() {
    let server = &mut Server::new();
    let members: Vec<_> = (0..5_500)
        .rev()
        .map(|number| format!(r#""{number}":{number}"#))
        .collect();
    let members = members.join(",");
    let began = std::time::Instant::now();
    let list = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{members}}}}}"#);
    assert!(list.len() > 60_000 && list.len() < 65_536, "{}", list.len());
    assert_eq!(server.older(&list).code, "allow");
    let call = call(&format!(r#"{{"name":"get","arguments":{{{members}}}}}"#));
    let names: Vec<_> = (0..900).map(|number| format!("mcp-param-{number}")).collect();
    let mut headers: Vec<_> = names.iter().map(|name| (name.as_str(), "5499.0")).collect();
    headers.push(("mcp-protocol-version", "2025-11-25"));
    assert_ne!(
        server.ask("POST", "/mcp", &headers, Some(&call)).code,
        "mcp_header_mismatch"
    );
    assert!(
        began.elapsed() < std::time::Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn stateless_servers_get_no_answers() {
    let server = &mut Server::new();
    let found = server.newer(&[], r#"{"jsonrpc":"2.0","id":3,"result":{}}"#);
    assert_eq!(found.code, "mcp_message_invalid");
}

#[test]
fn a_proof_is_for_the_call() {
    let server = &mut Server::new();
    let chain = server.delegation.clone();
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
    let version = ("mcp-protocol-version", "2026-07-28");
    let mut ids = 0..;
    let mut ask = |tool: &str, arguments: &str, headers: &[(&str, &str)], message: &str| {
        let id = format!("p{}", ids.next().map(|id: u32| id).unwrap());
        let proof = proof(&chain, 2, &id, tool, arguments, NOW);
        let all = [&[version, ("delegation-proof", &*proof)], headers].concat();
        server.ask("POST", "/named", &all, Some(message)).code
    };
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"forecast","arguments":{{"city":"Oslo"}},{meta}}}}}"#
    );
    let headers = [("mcp-method", "tools/call"), ("mcp-name", "forecast")];
    assert_eq!(ask("weather.get", r#"{"city":"Oslo"}"#, &headers, &call), "allow");
    assert_eq!(
        ask("weather.get", r#"{"city":"Bergen"}"#, &headers, &call),
        "proof_mismatch"
    );
    assert_eq!(ask("forecast", r#"{"city":"Oslo"}"#, &headers, &call), "proof_mismatch");
    // Where no tool is needed, it is for the method.
    let list = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"cursor":"c",{meta}}}}}"#);
    let headers = [("mcp-method", "tools/list")];
    assert_eq!(ask("tools/list", r#"{"cursor":"c"}"#, &headers, &list), "allow");
    assert_eq!(ask("tools/list", "{}", &headers, &list), "proof_mismatch");
    let other = call.replace("forecast", "snow");
    assert_eq!(
        ask(
            "weather.get",
            r#"{"city":"Oslo"}"#,
            &[("mcp-method", "tools/call"), ("mcp-name", "snow")],
            &other
        ),
        "mcp_tool_not_mapped"
    );
}

#[test]
fn calls_of_one_delegation_name_their_own_tool() {
    let server = &mut Server::new();
    let read = r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///a"}}"#;
    let get = call(r#"{"name":"get","arguments":{"city":"Oslo"}}"#);
    for _ in 0..3 {
        for (message, tool) in [(read, Some("files.read")), (&get, Some("weather.get"))] {
            let serialized = serialize(&[
                (":method", "POST"),
                (":authority", "payments.example"),
                (":path", "/mcp"),
                ("content-type", "application/json"),
                ("mcp-protocol-version", "2025-11-25"),
                ("delegation", &server.delegation),
            ]);
            let request = Request::parse(&serialized, &HeaderNames::default(), true).unwrap();
            let Outcome::NeedsBody(held) = server.engine.decide(&request, &mut server.world) else {
                panic!("it reads the body")
            };
            let verdict = server
                .engine
                .resume(held, &request, message.as_bytes(), &mut server.world);
            let Decision::Allow(Allowance::Delegated(grant)) = &verdict.decision else {
                panic!("{verdict:?}")
            };
            let named = grant.identity.parts.iter().find(|(part, _)| *part == Part::Tool);
            assert_eq!(named.map(|(_, value)| value.as_str()), tool);
        }
    }
}

#[test]
fn a_client_learns_which_scope_a_tool_needs() {
    let server = &mut Server::new();
    let engine = &mut server.engine;
    let serialized = serialize(&[
        (":method", "POST"),
        (":authority", "payments.example"),
        (":path", "/mcp"),
        ("content-type", "application/json"),
        ("authorization", "Bearer none"),
    ]);
    let request = Request::parse(&serialized, &HeaderNames::default(), true).unwrap();
    let verdict = decided(engine.decide(&request, &mut server.world));
    let Decision::Deny(denial) = &verdict.decision else {
        panic!("{verdict:?}")
    };
    let answer = Answer::for_verdict(&verdict, denial, &request);
    assert_eq!(answer.status, 401);
    let challenge = answer
        .headers
        .iter()
        .find(|(name, _)| *name == "www-authenticate")
        .unwrap();
    assert!(
        challenge.1.starts_with("Bearer error=\"invalid_token\""),
        "{}",
        challenge.1
    );
    let document = &engine.policy().resources[0].document;
    assert!(document.contains(r#""scopes_supported":["weather"]"#), "{document}");
}
