//! HTTP/1.1, HTTP/2 and gRPC: the same decisions, each answered in the protocol's own way.

use std::sync::LazyLock;

use credence_e2e::grants::{CHARGE, READ};
use credence_e2e::received::MARK;
use credence_e2e::{Client, Http2, Reply, Request, Stack, StackOptions};

/// A rule for a gRPC method, before those of envoy-config/envoy.yaml.
const RULES: &str = r#"rules:
                              - name: grpc-charge
                                match: {methods: [POST], path: /payments.v1.Payments/Charge}
                                tool: payments.charge
                                args: {account: {header: x-account}, amount: {header: x-amount, type: number}}
                                ignore_body: true
                                proof: none
                              - name: orders
                                match: {methods: [POST], path: "/v1/orders/{account}"}
                                tool: payments.charge
                                args: {account: {path: account}, amount: {body: /amount, type: number}}
                                proof: none
"#;

/// The agent may charge `a1` up to 100.
const CHARGE_A1: &str = r#"payments.charge={"account":{"constraint_type":"exact","value":"a1"},
    "amount":{"constraint_type":"range","max":100}}"#;

/// Shared by all tests; it stops with the process.
fn stack() -> &'static Stack {
    static STACK: LazyLock<Stack> = LazyLock::new(|| {
        let options = StackOptions::quick()
            .in_either_protocol()
            .replacing("rules:\n", RULES)
            .replacing(
                "use_remote_address: true",
                "upgrade_configs: [{upgrade_type: websocket}]",
            );
        Stack::start(&options).unwrap()
    });
    &STACK
}

fn http2() -> Http2 {
    Http2::connect(stack().envoy.ingress()).unwrap()
}

fn call(account: &str, amount: &str) -> Request {
    Request::grpc("/payments.v1.Payments/Charge", b"a message")
        .header("x-account", account)
        .header("x-amount", amount)
}

#[track_caller]
fn assert_refused(reply: &Reply, status: &str, reason: &str) {
    let (told, message) = reply.grpc_refusal().unwrap_or_else(|| panic!("{reply:?}"));
    assert_eq!(told, status, "{message}");
    assert!(message.contains(reason), "{message}");
}

#[test]
fn http_2_is_decided_like_http_1_1() {
    let chain = stack().mint("alice", &["--tool", READ, "--tool", CHARGE_A1]).unwrap();
    let book = || Request::get("/v1/catalog/book");
    let order = |body: &str| Request::new("POST", "/v1/orders/a1").delegation(&chain).json(body);
    for (request, status, reason) in [
        (book().delegation(&chain), 200, None),
        (Request::get("/healthz"), 200, None),
        (order(r#"{"amount":5}"#), 200, None),
        (book(), 401, Some("delegation_missing")),
        (
            book().delegation(&chain).delegation(&chain),
            401,
            Some("delegation_repeated"),
        ),
        (book().delegation("no token"), 401, Some("delegation_malformed")),
        (
            Request::post("/v1/accounts/a1/charges?amount=5").delegation(&chain),
            401,
            Some("proof_missing"),
        ),
        (Request::get("/elsewhere"), 403, Some("no_route")),
        (order(r#"{"amount":500}"#), 403, Some("argument_not_allowed")),
        (order("{"), 400, Some("body_malformed")),
        (Request::get("/v1/catalog/a;b"), 400, Some("path_ambiguous")),
    ] {
        let by_1 = stack().send(&request).unwrap();
        let by_2 = http2().send(&request).unwrap();
        for reply in [&by_1, &by_2] {
            let told = (reply.status, reply.reason());
            assert_eq!(
                told,
                (status, reason.map(str::to_owned)),
                "{request:?}: {}",
                reply.text()
            );
        }
        let challenges = [&by_1, &by_2].map(|reply| reply.header("www-authenticate"));
        assert_eq!(challenges[0], challenges[1]);
        if let [Some(by_1), Some(by_2)] = [by_1.received(), by_2.received()] {
            assert_eq!((by_1.target, by_1.body), (by_2.target, by_2.body));
            for name in ["x-delegation-subject", "x-delegation-tool", "delegation"] {
                let values = [&by_1.headers, &by_2.headers]
                    .map(|headers| headers.iter().find(|(other, _)| other == name).map(|(_, value)| value));
                assert_eq!(values[0], values[1], "{name}");
            }
        }
    }
}

#[test]
fn one_connection_of_http_2_carries_requests_that_are_decided_one_by_one() {
    let chain = stack().mint("alice", &["--tool", READ]).unwrap();
    let client = http2();
    let exchanges: Vec<_> = (0..60)
        .map(|number| {
            let request = Request::get("/v1/catalog/book");
            client.start(&if number % 3 == 0 {
                request
            } else {
                request.delegation(&chain)
            })
        })
        .collect();
    for (number, exchange) in exchanges.into_iter().enumerate() {
        let status = exchange.unwrap().finish().unwrap().status;
        assert_eq!(status, if number % 3 == 0 { 401 } else { 200 });
    }
}

#[test]
fn a_grpc_call_within_the_delegation_reaches_its_method() {
    let chain = stack().mint("alice", &["--tool", CHARGE_A1]).unwrap();
    let reply = http2().send(&call("a1", "99.5").delegation(&chain)).unwrap();
    assert_eq!(
        reply.trailers,
        [("grpc-status".to_owned(), "0".to_owned())],
        "{reply:?}"
    );
    let received = reply.received().unwrap();
    assert_eq!(received.target, "/payments.v1.Payments/Charge");
    assert_eq!(received.header("x-delegation-subject"), Some("alice"));
    assert!(received.body.ends_with("a message"), "{received:?}");
}

#[test]
fn a_grpc_call_is_refused_in_headers_alone() {
    let alice = stack().mint("alice", &["--tool", CHARGE_A1]).unwrap();
    let reader = stack().mint("alice", &["--tool", READ]).unwrap();
    let client = http2();
    for (request, status, reason) in [
        (call("a1", "5"), "16", "delegation_missing"),
        (call("a1", "5").delegation("no token"), "16", "delegation_malformed"),
        (call("a1", "5").delegation(&reader), "7", "tool_not_granted"),
        (call("a2", "5").delegation(&alice), "7", "argument_not_allowed"),
        (call("a1", "five").delegation(&alice), "7", "argument_malformed"),
        (
            Request::grpc("/payments.v1.Payments/Refund", b"").delegation(&alice),
            "7",
            "no_route",
        ),
        (
            Request::grpc("/payments.v1.Payments/Charge;v=1", b""),
            "3",
            "path_ambiguous",
        ),
    ] {
        let reply = client.send(&request.header(MARK, reason)).unwrap();
        assert_refused(&reply, status, reason);
        assert!(!stack().upstream.has_seen(reason), "{reason}");
    }
}

#[test]
fn a_grpc_client_is_told_to_retry_while_the_filter_cannot_decide() {
    let options = StackOptions {
        log_id: Some("f".repeat(32)),
        unsynced: true,
        ..StackOptions::quick().replacing("rules:\n", RULES)
    };
    let stack = Stack::start(&options).unwrap();
    let chain = stack.mint("alice", &["--tool", CHARGE]).unwrap();
    let client = Http2::connect(stack.envoy.ingress()).unwrap();
    let reply = client.send(&call("a1", "5").delegation(&chain)).unwrap();
    assert_refused(&reply, "14", "not_ready");
}

#[test]
fn extended_connect_is_denied_like_any_upgrade() {
    let chain = stack().mint("alice", &["--tool", READ]).unwrap();
    let client = http2();
    for target in ["/healthz", "/v1/catalog/book", "/elsewhere"] {
        let request = Request::new("CONNECT", target).delegation(&chain);
        let reply = client.connect_to(&request, "websocket").unwrap().finish().unwrap();
        assert_eq!(
            (reply.status, reply.reason().as_deref()),
            (403, Some("upgrade_denied")),
            "{target}: {}",
            reply.text()
        );
    }
}

#[test]
fn a_client_that_asks_first_is_answered_before_it_sends_its_body() {
    let chain = stack().mint("alice", &["--tool", CHARGE_A1]).unwrap();
    let ask = |chain: Option<&str>| {
        let request = Request::new("POST", "/v1/orders/a1")
            .header("content-type", "application/json")
            .header("content-length", "12")
            .header("expect", "100-continue");
        let mut client = Client::connect(stack().envoy.ingress()).unwrap();
        let request = chain.map_or_else(|| request.clone(), |chain| request.clone().delegation(chain));
        // Envoy answers that by itself, before any decision.
        assert_eq!(client.send(&request).unwrap().status, 100);
        client
    };
    // A denial needs no body.
    let reply = ask(None).send_raw(b"").unwrap();
    assert_eq!(
        (reply.status, reply.reason().as_deref()),
        (401, Some("delegation_missing"))
    );
    for (body, status) in [(r#"{"amount":5}"#, 200), (r#"{"amount":5 "#, 400)] {
        let reply = ask(Some(&chain)).send_raw(body.as_bytes()).unwrap();
        assert_eq!(reply.status, status, "{}", reply.text());
    }
}
