//! Messages to an MCP server: their tools and arguments are those of the delegation.

#![allow(clippy::disallowed_types, reason = "reads back what the filter wrote")]

use std::fs;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use credence_e2e::artefacts::Artefacts;
use credence_e2e::audit::Kind;
use credence_e2e::{Client, ISSUER, Reply, Request, Stack, StackOptions, waiting};
use serde_json::json;

/// Rules before those of envoy-config/envoy.yaml.
const RULES: &str = r#"rules:
                              - name: mcp
                                match: {path: /mcp}
                                proof: none
                                mcp:
                                  versions: ["2025-11-25", "2026-07-28"]
                                  tools: {prefix: "shop."}
                                  hide_ungranted: true
                                  methods:
                                    tools/list: {open: true}
                                    initialize: {open: true}
                                    GET: {open: true}
                              - name: in-meta
                                match: {path: /in-meta}
                                proof: none
                                mcp: {delegation_in_meta: true, tools: {prefix: "shop."}}
                              - name: short
                                match: {path: /short}
                                proof: none
                                mcp: {max_stream: 1s, methods: {tools/list: {open: true}}}
"#;

const ORDER: &str = r#"shop.order={"item":{"constraint_type":"one_of","values":["shoes","socks"]},
    "count":{"constraint_type":"range","max":3}}"#;

/// Shared by all tests; it stops with the process.
fn stack() -> &'static Stack {
    static STACK: LazyLock<Stack> = LazyLock::new(|| {
        let options = StackOptions {
            filter: Some(fs::read(Artefacts::from_environment().unwrap().filter_of_answers().unwrap()).unwrap()),
            ..StackOptions::quick()
        };
        Stack::start(&options.replacing("rules:\n", RULES)).unwrap()
    });
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
}

/// A message of 2025-11-25.
fn older(chain: &str, message: &str) -> Request {
    Request::new("POST", "/mcp")
        .delegation(chain)
        .header("mcp-protocol-version", "2025-11-25")
        .json(message)
}

const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;

#[test]
fn a_session_and_its_events_are_their_owners() {
    const BEGUN: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nmcp-session-id: s1\r\n\
        transfer-encoding: chunked\r\n\r\n4\r\nid: \r\n14\r\n7\ndata: {\"id\":1}\n\nid\r\n4\r\n: 8\n\r\n0\r\n\r\n";
    let ours = delegation("fred");
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
    let begun = stack().send(&older(&ours, initialize).answered_with(BEGUN)).unwrap();
    let session = begun.header("mcp-session-id").expect("a session").to_owned();
    assert!(session.starts_with("s1.") && session.len() > 40, "{session}");
    let text = begun.text();
    let lines: Vec<_> = text.lines().collect();
    let [event, "data: {\"id\":1}", "", last] = lines[..] else {
        panic!("{text}")
    };
    assert!(last.starts_with("id: 8."), "{text}");
    let event = event.strip_prefix("id: ").expect("an id");
    assert!(event.starts_with("7."), "{text}");

    let resumed = |chain: &str, session: &str, event: &str| {
        let headers = [("mcp-session-id", session), ("last-event-id", event)];
        let stream = Request::get("/mcp")
            .delegation(chain)
            .header("mcp-protocol-version", "2025-11-25");
        let stream = headers
            .into_iter()
            .fold(stream, |stream, (name, value)| stream.header(name, value));
        stack().send(&stream).unwrap()
    };
    let received = resumed(&ours, &session, event)
        .received()
        .expect("the service's answer");
    assert_eq!(received.header("mcp-session-id"), Some("s1"));
    assert_eq!(received.header("last-event-id"), Some("7"));
    for (chain, session, event) in [
        (&delegation("greta"), &*session, event),
        (&ours, "s1", event),
        (&ours, &session, "7"),
        (&ours, event, &session),
    ] {
        let reply = resumed(chain, session, event);
        assert_eq!((reply.status, &error(&reply)["error"]["code"]), (404, &json!(-32_001)));
    }
}

#[test]
fn a_list_shows_only_granted_tools() {
    const TOOLS: &str = r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"order"},{"name":"refund"}]}}"#;
    const SHOWN: &str = r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"order"}]}}"#;
    let answer = |media_type: &str, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\ncontent-length: {length}\r\n\r\n{body}")
    };
    let list = |media_type: &str, body: &str| {
        let request = older(&delegation("hugo"), LIST).answered_with(&answer(media_type, body));
        stack().send(&request).unwrap().text()
    };
    assert_eq!(list("application/json", TOOLS), SHOWN);
    assert_eq!(
        list("text/event-stream", &format!("data: {TOOLS}\n\n")),
        format!("data: {SHOWN}\n\n")
    );
    let padded = TOOLS.replacen(',', &format!(",{}", " ".repeat(30_000)), 1);
    assert_eq!(list("application/json", &padded), SHOWN);
    assert!(list("application/json", "not JSON").contains("-32603"));
}

/// An event stream that does not end.
const ENDLESS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n\
    9\r\ndata: {}\n\r\n";

/// How long a client waits until its stream is reset.
fn until_reset(request: Request) -> std::thread::JoinHandle<Duration> {
    std::thread::spawn(move || {
        let begun = Instant::now();
        let mut client = Client::connect(stack().envoy.ingress()).unwrap();
        client.send(&request).expect_err("the stream does not end by itself");
        begun.elapsed()
    })
}

#[test]
fn a_revocation_ends_a_stream() {
    let chain = delegation("ida");
    let stream = until_reset(older(&chain, LIST).answered_with(ENDLESS));
    let other = until_reset(older(&delegation("jan"), LIST).answered_with(ENDLESS));
    waiting::until("both streams", || Ok((open_exchanges() >= 2).then_some(()))).unwrap();
    let begun = Instant::now();
    stack()
        .revoke(&["principal", "--issuer", ISSUER, "--subject", "ida"])
        .unwrap();
    stream.join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(!other.is_finished(), "the stream of another principal goes on");
    stack()
        .revoke(&["principal", "--issuer", ISSUER, "--subject", "jan"])
        .unwrap();
    other.join().unwrap();
}

#[test]
fn a_stream_has_a_longest_time() {
    let message = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list",
        "params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let request = Request::new("POST", "/short")
        .delegation(delegation("karl"))
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/list")
        .json(message)
        .answered_with(ENDLESS);
    let lasted = until_reset(request).join().unwrap();
    let seconds = lasted.as_secs_f32();
    assert!((1.0..5.0).contains(&seconds), "{seconds} s");
}

fn open_exchanges() -> u64 {
    stack().envoy.stat("wasmcustom.credence_mcp_exchanges").unwrap()
}

#[test]
fn a_message_may_present_the_delegation() {
    let chain = delegation("olga");
    let call = |count: u32, padding: usize| {
        let padding = " ".repeat(padding);
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{{"name":"order",{padding}
                "arguments":{{"item":"socks","count":{count}}},
                "_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","aat_chain":["{chain}"]}}}}}}"#
        );
        Request::new("POST", "/in-meta")
            .json(message)
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", "order")
    };
    for padding in [0, 40_000] {
        let received = stack()
            .send(&call(1, padding))
            .unwrap()
            .received()
            .expect("the service's answer");
        let expected = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        assert!(received.body.ends_with(expected), "{}", received.body);
        assert_eq!(
            received.header("content-length"),
            Some(&*received.body.len().to_string())
        );
        assert_eq!(received.header("x-delegation-subject"), Some("olga"));
    }
    assert_eq!(stack().send(&call(4, 0)).unwrap().status, 403);
    assert_eq!(stack().send(&call(1, 65_536)).unwrap().status, 413);
}

#[test]
fn one_address_does_not_take_all_places_of_messages_without_credentials() {
    let begin = || {
        let mut client = Client::connect(stack().envoy.ingress()).unwrap();
        let head = "POST /in-meta HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
        client.send_part(head.as_bytes()).unwrap();
        client
    };
    // Of 256 places in each of two workers, one address has at most half.
    let mut waiting: Vec<_> = (0..600).map(|_| begin()).collect();
    let replies = waiting
        .iter_mut()
        .map(|client| client.send_raw(b"       }").unwrap().status);
    let replies: Vec<_> = replies.collect();
    let count = |status| replies.iter().filter(|found| **found == status).count();
    let (read, turned_away) = (count(400), count(503));
    assert_eq!(read + turned_away, 600);
    assert!(
        (200..300).contains(&read),
        "{read} are read, and {turned_away} turned away"
    );
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
