//! Rules that hold only the body, where Envoy cannot hold headers: as installed by an Istio WasmPlugin or an
//! EnvoyExtensionPolicy.

#![allow(clippy::disallowed_types, reason = "reads back what the filter wrote")]

use std::fs;
use std::sync::LazyLock;
use std::time::Duration;

use credence_e2e::artefacts::Artefacts;
use credence_e2e::received::MARK;
use credence_e2e::{Client, Reply, Request, Stack, StackOptions, waiting};
use serde_json::json;

const RULES: &str = r#"rules:
                              - name: mcp-body
                                match: {path: /mcp}
                                proof: none
                                hold: body
                                mcp:
                                  versions: ["2025-11-25", "2026-07-28"]
                                  hide_ungranted: true
                                  methods: {tools/list: {open: true}, initialize: {open: true}}
                              - name: order-body
                                match: {path: /order}
                                proof: none
                                hold: body
                                tool: order
                                args: {count: {body: /count, type: integer}}
                              - name: order-request
                                match: {path: /held}
                                proof: none
                                tool: order
                                args: {count: {body: /count, type: integer}}
"#;

const ORDER: &str = r#"order={"count":{"constraint_type":"range","max":3}}"#;

/// Shared by all tests; it stops with the process.
fn stack() -> &'static Stack {
    static STACK: LazyLock<Stack> = LazyLock::new(|| {
        let options = StackOptions {
            filter: Some(fs::read(Artefacts::from_environment().unwrap().filter_of_answers().unwrap()).unwrap()),
            ..StackOptions::quick()
        };
        let options = options.replacing("rules:\n", RULES).replacing(
            "allow_on_headers_stop_iteration: true",
            "allow_on_headers_stop_iteration: false",
        );
        Stack::start(&options).unwrap()
    });
    &STACK
}

fn delegation(subject: &str) -> String {
    stack().mint(subject, &["--tool", ORDER]).unwrap()
}

fn call(count: u32) -> Request {
    let message = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"order","arguments":{{"count":{count}}}}}}}"#
    );
    Request::new("POST", "/mcp")
        .delegation(delegation("lena"))
        .header("mcp-protocol-version", "2025-11-25")
        .json(message)
}

fn error(reply: &Reply) -> serde_json::Value {
    serde_json::from_slice(&reply.body).unwrap()
}

#[test]
fn an_allowed_request_arrives_whole_with_its_identity() {
    let request = call(2).header("x-delegation-subject", "eve");
    let reply = stack().send(&request).unwrap();
    let received = reply.received().unwrap_or_else(|| panic!("{}", reply.text()));
    assert!(received.body.contains(r#""count":2"#));
    assert_eq!(received.header("x-delegation-subject"), Some("lena"));
    assert_eq!(received.header("delegation"), None);
    let order = Request::new("POST", "/order")
        .delegation(delegation("lena"))
        .json(r#"{"count":3}"#);
    let reply = stack().send(&order).unwrap();
    let received = reply.received().unwrap_or_else(|| panic!("{}", reply.text()));
    assert_eq!(
        (received.header("x-delegation-tool"), &*received.body),
        (Some("order"), r#"{"count":3}"#)
    );
}

#[test]
fn of_a_denied_request_no_service_has_the_body() {
    let reply = stack().send(&call(4).header(MARK, "denied-body")).unwrap();
    assert_eq!(
        (reply.status, &error(&reply)["error"]["data"]["argument"]),
        (403, &json!("count"))
    );
    let order = Request::new("POST", "/order")
        .delegation(delegation("lena"))
        .json(r#"{"count":9}"#)
        .header(MARK, "denied-order");
    let reply = stack().send(&order).unwrap();
    assert_eq!(reply.reason().as_deref(), Some("argument_not_allowed"));
    let without = Request::new("POST", "/order")
        .json(r#"{"count":1}"#)
        .header(MARK, "denied-headers");
    assert_eq!(stack().send(&without).unwrap().status, 401);
    // The same connections serve others, so a body that was sent would have arrived by now.
    assert_eq!(stack().send(&call(1)).unwrap().status, 200);
    for mark in ["denied-body", "denied-order", "denied-headers"] {
        assert!(!stack().upstream.has_seen(mark), "{mark}");
    }
}

#[test]
fn a_body_in_pieces_waits_for_the_last() {
    let whole = call(2).header(MARK, "in-pieces").encode();
    let (first, last) = whole.split_at(whole.len() - 3);
    let mut client = Client::connect(stack().envoy.ingress()).unwrap();
    client.send_part(first).unwrap();
    waiting::until("the request to be held", || {
        let held = stack().envoy.stat("wasmcustom.credence_held")?;
        Ok((held > 0).then_some(()))
    })
    .unwrap();
    assert!(!stack().upstream.has_seen("in-pieces"));
    assert_eq!(client.send_raw(last).unwrap().status, 200);
}

#[test]
fn sessions_and_lists_work_there_too() {
    const BEGUN: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: s1\r\n\
        content-length: 2\r\n\r\n{}";
    const LISTED: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 65\r\n\r\n\
        {\"id\":1,\"result\":{\"tools\":[{\"name\":\"refund\"},{\"name\":\"order\"}]}} ";
    let ask = |method: &str| {
        let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
        let request = Request::new("POST", "/mcp").header("mcp-protocol-version", "2025-11-25");
        request.delegation(delegation("mara")).json(message)
    };
    let begun = stack().send(&ask("initialize").answered_with(BEGUN)).unwrap();
    let session = begun.header("mcp-session-id").expect("a session");
    let list = ask("tools/list").header("mcp-session-id", session);
    let received = stack().send(&list).unwrap().received().expect("the service's answer");
    assert_eq!(received.header("mcp-session-id"), Some("s1"));
    let listed = stack().send(&list.answered_with(LISTED)).unwrap();
    assert_eq!(listed.text(), r#"{"id":1,"result":{"tools":[{"name":"order"}]}}"#);
    let other = ask("tools/list")
        .header("mcp-session-id", "s1")
        .header(MARK, "other-session");
    assert_eq!(stack().send(&other).unwrap().status, 404);
    assert!(!stack().upstream.has_seen("other-session"));
}

#[test]
fn a_rule_that_holds_the_request_gets_no_body_there() {
    let order = Request::new("POST", "/held")
        .delegation(delegation("nora"))
        .json(r#"{"count":1}"#);
    let mut client = Client::connect_for(stack().envoy.ingress(), Duration::from_secs(1)).unwrap();
    assert!(client.send(&order).is_err(), "it waits for its timeout");
}
