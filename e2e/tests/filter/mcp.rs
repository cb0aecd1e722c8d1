//! Messages to an MCP server: their tools and arguments are those of the delegation.

#![allow(clippy::disallowed_types, reason = "reads back what the filter wrote")]

use std::sync::LazyLock;

use credence_e2e::audit::Kind;
use credence_e2e::{Reply, Request, Stack, StackOptions, waiting};
use serde_json::json;

/// Rules before those of envoy-config/envoy.yaml.
const RULES: &str = r#"rules:
                              - name: mcp
                                match: {path: /mcp}
                                proof: none
                                mcp:
                                  versions: ["2025-11-25", "2026-07-28"]
                                  tools: {prefix: "shop."}
                                  methods:
                                    tools/list: {open: true}
                                    GET: {open: true}
"#;

const ORDER: &str = r#"shop.order={"item":{"constraint_type":"one_of","values":["shoes","socks"]},
    "count":{"constraint_type":"range","max":3}}"#;

/// Shared by all tests; it stops with the process.
fn stack() -> &'static Stack {
    static STACK: LazyLock<Stack> =
        LazyLock::new(|| Stack::start(&StackOptions::quick().replacing("rules:\n", RULES)).unwrap());
    &STACK
}

fn delegation(subject: &str) -> String {
    stack().mint(subject, &["--tool", ORDER]).unwrap()
}

/// A call of 2026-07-28.
fn call(chain: &str, tool: &str, arguments: &str) -> Request {
    let message = format!(
        r#"{{"jsonrpc":"2.0","id":"c1","method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},
            "_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}}}}"#
    );
    Request::new("POST", "/mcp")
        .delegation(chain)
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", tool)
        .json(message)
}

fn error(reply: &Reply) -> serde_json::Value {
    serde_json::from_slice(&reply.body).unwrap()
}

#[test]
fn a_call_within_the_delegation_reaches_the_server_untouched() {
    let request = call(&delegation("alice"), "order", r#"{"item":"shoes","count":2}"#);
    let reply = stack().send(&request).unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    let received = reply.received().expect("the service's answer");
    assert!(received.body.contains(r#""arguments":{"item":"shoes","count":2}"#));
    assert_eq!(received.header("mcp-name"), Some("order"));
    assert_eq!(received.header("x-delegation-tool"), Some("shop.order"));
    assert_eq!(received.header("delegation"), None);
}

#[test]
fn a_server_sees_no_session_in_a_version_without_sessions() {
    let request = call(&delegation("erin"), "order", r#"{"item":"shoes","count":1}"#);
    let request = ["mcp-session-id", "last-event-id", "mcp_session_id"]
        .into_iter()
        .fold(request, |request, name| request.header(name, "of-another"));
    let reply = stack().send(&request).unwrap();
    let received = reply.received().expect("the service's answer");
    assert!(!reply.text().contains("of-another"), "{received:?}");
    let older = Request::new("POST", "/mcp")
        .delegation(delegation("erin"))
        .header("mcp-protocol-version", "2025-11-25")
        .header("mcp-session-id", "its-own")
        .json(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#);
    let received = stack().send(&older).unwrap().received().expect("the service's answer");
    assert_eq!(received.header("mcp-session-id"), Some("its-own"));
}

#[test]
fn a_denied_client_gets_a_json_rpc_error() {
    let chain = delegation("bob");
    let reply = stack()
        .send(&call(&chain, "order", r#"{"item":"shoes","count":9}"#))
        .unwrap();
    assert_eq!(reply.status, 403);
    let found = error(&reply);
    assert_eq!(
        (&found["jsonrpc"], &found["id"], &found["error"]["code"]),
        (&json!("2.0"), &json!("c1"), &json!(403))
    );
    assert_eq!(found["error"]["data"]["argument"], "count");
    let lying = call(&chain, "order", r#"{"item":"shoes","count":2}"#).header("mcp-param-item", "socks");
    let reply = stack().send(&lying).unwrap();
    assert_eq!((reply.status, &error(&reply)["error"]["code"]), (400, &json!(-32_020)));
    // With sessions, 404 would mean that the session has ended.
    let list = Request::new("POST", "/mcp")
        .delegation(&chain)
        .header("mcp-protocol-version", "2025-11-25")
        .json(r#"{"jsonrpc":"2.0","id":2,"method":"resources/list"}"#);
    let reply = stack().send(&list).unwrap();
    assert_eq!((reply.status, &error(&reply)["error"]["code"]), (403, &json!(-32_601)));
    let without = Request::new("POST", "/mcp").json(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#);
    let reply = stack().send(&without).unwrap();
    assert_eq!((reply.status, &error(&reply)["error"]["code"]), (401, &json!(401)));
}

#[test]
fn streams_of_older_versions_need_a_delegation_too() {
    let stream = Request::get("/mcp").header("mcp-protocol-version", "2025-11-25");
    assert_eq!(stack().send(&stream).unwrap().status, 401);
    let stream = stream.delegation(delegation("carol"));
    assert_eq!(stack().send(&stream).unwrap().status, 200);
}

#[test]
fn evidence_names_the_method_and_the_tool() {
    let reply = stack()
        .send(&call(&delegation("dora"), "order", r#"{"item":"socks","count":1}"#))
        .unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    let list = Request::new("POST", "/mcp")
        .delegation(delegation("dora"))
        .header("mcp-protocol-version", "2025-11-25")
        .json(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#);
    assert_eq!(stack().send(&list).unwrap().status, 200);
    let mut named = waiting::until("both decisions in the ledger", || {
        let decisions = stack().records()?.into_iter().filter_map(|record| match record.kind {
            Kind::Decision(decision) => Some(decision),
            _ => None,
        });
        let found: Vec<_> = decisions
            .filter(|decision| decision.principal.subject.as_deref() == Some("dora"))
            .map(|decision| (decision.mcp_method, decision.tool))
            .collect();
        Ok((found.len() == 2).then_some(found))
    })
    .unwrap();
    named.sort();
    let named: Vec<_> = named.iter().map(|(method, tool)| (&**method, &**tool)).collect();
    assert_eq!(named, [("tools/call", "shop.order"), ("tools/list", "")]);
}
