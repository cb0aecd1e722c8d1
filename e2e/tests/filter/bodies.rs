//! Arguments from JSON bodies: the filter reads the whole body, in any pieces, before the service gets a byte.

use std::sync::LazyLock;

use credence_e2e::received::MARK;
use credence_e2e::{Client, Http2, Reply, Request, Stack, StackOptions, waiting};

/// Rules before those of envoy-config/envoy.yaml.
const RULES: &str = r#"rules:
                              - name: orders
                                match: {methods: [POST], path: "/v1/orders/{account}"}
                                tool: orders.create
                                args:
                                  account: {path: account}
                                  amount: {body: /amount, type: number}
                                  items: {body: /items, type: json, optional: true}
                                ignore_members: [/note]
                                proof: none
                              - name: watched
                                match: {methods: [POST], path: "/v1/watched/{account}"}
                                mode: shadow
                                tool: orders.create
                                args:
                                  account: {path: account}
                                  amount: {body: /amount, type: number}
                                ignore_members: [/note]
                                proof: none
                              - name: uploads
                                match: {methods: [POST], path: /v1/uploads}
                                tool: orders.create
                                args:
                                  account: {query: account}
                                  amount: {query: amount, type: number}
                                ignore_body: true
                                proof: none
"#;

const ORDER: &str = r#"orders.create={"account":{"constraint_type":"exact","value":"a1"},
    "amount":{"constraint_type":"range","max":100},
    "items":{"constraint_type":"subset","allowed":["shoes","socks"],"optional":true}}"#;

const BODY: &str = r#"{"amount": 50, "items": ["socks"], "note": {"gift": true}}"#;

/// Shared by all tests; it stops with the process.
fn stack() -> &'static Stack {
    static STACK: LazyLock<Stack> =
        LazyLock::new(|| Stack::start(&StackOptions::quick().replacing("rules:\n", RULES)).unwrap());
    &STACK
}

fn delegation(subject: &str) -> String {
    stack().mint(subject, &["--tool", ORDER]).unwrap()
}

fn order(chain: &str) -> Request {
    Request::new("POST", "/v1/orders/a1").delegation(chain)
}

fn chunked(request: Request, chunks: &[&str], trailers: &str) -> Request {
    let chunks: String = chunks
        .iter()
        .map(|chunk| format!("{:x}\r\n{chunk}\r\n", chunk.len()))
        .collect();
    request
        .header("content-type", "application/json")
        .header("transfer-encoding", "chunked")
        .trailing(format!("{chunks}0\r\n{trailers}\r\n"))
}

#[track_caller]
fn assert_received(reply: &Reply, body: &str) {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let received = reply.received().expect("the service's answer");
    assert_eq!(received.body, body);
    assert_eq!(received.header("x-delegation-tool"), Some("orders.create"));
    assert_eq!(received.header("delegation"), None);
}

#[track_caller]
fn assert_denied(reply: &Reply, status: u16, reason: &str, argument: Option<&str>) {
    assert_eq!(
        (reply.status, reply.reason().as_deref(), reply.argument().as_deref()),
        (status, Some(reason), argument),
        "{}",
        reply.text()
    );
}

#[test]
fn a_body_within_the_delegation_reaches_the_service_untouched() {
    let chain = delegation("alice");
    let mut client = Client::connect(stack().envoy.ingress()).unwrap();
    for _ in 0..3 {
        assert_received(&client.send(&order(&chain).json(BODY)).unwrap(), BODY);
    }
}

#[test]
fn a_body_may_come_in_pieces() {
    let chain = delegation("bob");
    let pieces = [r#"{"amo"#, r#"unt": "#, "50}"];
    assert_received(
        &stack().send(&chunked(order(&chain), &pieces, "")).unwrap(),
        &pieces.concat(),
    );

    let mut client = Client::connect(stack().envoy.ingress()).unwrap();
    let whole = order(&chain).json(BODY).encode();
    let (head, rest) = whole.split_at(whole.len() - 20);
    client.send_part(head).unwrap();
    // The next bytes must be another piece for Envoy and the filter: there is no answer yet.
    let (middle, end) = rest.split_at(10);
    client.send_part(middle).unwrap();
    let reply = client.send_raw(end).unwrap();
    assert_received(&reply, BODY);
}

#[test]
fn a_body_that_ends_in_trailers_is_read_too() {
    let chain = delegation("carol");
    let allowed = chunked(order(&chain), &[r#"{"amount": 50}"#], "x-checksum: 1\r\n");
    assert_received(&stack().send(&allowed).unwrap(), r#"{"amount": 50}"#);
    let denied = chunked(order(&chain), &[r#"{"amount": 5000}"#], "x-checksum: 1\r\n");
    assert_denied(
        &stack().send(&denied).unwrap(),
        403,
        "argument_not_allowed",
        Some("amount"),
    );
}

#[test]
fn an_argument_beyond_the_delegation_or_the_rule_is_denied_by_name() {
    let chain = delegation("dave");
    for (body, status, reason, argument) in [
        (r#"{"amount": 101}"#, 403, "argument_not_allowed", Some("amount")),
        (
            r#"{"amount": 5, "items": ["gold"]}"#,
            403,
            "argument_not_allowed",
            Some("items"),
        ),
        ("{}", 403, "argument_missing", Some("amount")),
        (r#"{"amount": "50"}"#, 403, "argument_malformed", Some("amount")),
        (
            r#"{"amount": 9007199254740993}"#,
            403,
            "argument_malformed",
            Some("amount"),
        ),
        (
            r#"{"amount": 50, "currency": "EUR"}"#,
            403,
            "argument_unknown",
            Some("/currency"),
        ),
        // Go's encoding/json would accept this as `amount`.
        (
            r#"{"amount": 50, "Amount": 5000}"#,
            403,
            "argument_unknown",
            Some("/Amount"),
        ),
        (r#"{"amount": 50, "amount": 5000}"#, 400, "body_malformed", None),
        (r#"{"amount": 50, "am\u006funt": 5000}"#, 400, "body_malformed", None),
        (r#"{"amount": 50"#, 400, "body_malformed", None),
        (r#"{"amount": 50}{"amount": 5000}"#, 400, "body_malformed", None),
        (r#"{"amount": 50, "note": "\ud800"}"#, 400, "body_malformed", None),
        ("\u{feff}{\"amount\": 50}", 400, "body_malformed", None),
    ] {
        // One connection each: Envoy closes a connection if it answers before it has forwarded the whole request.
        let reply = stack().send(&order(&chain).json(body)).unwrap();
        assert_denied(&reply, status, reason, argument);
    }
}

#[test]
fn a_body_of_another_kind_is_refused_before_it_arrives() {
    let chain = delegation("erin");
    let with = |headers: &[(&str, &str)]| {
        let mut request = order(&chain)
            .header("content-length", "14")
            .trailing(r#"{"amount": 50}"#);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        stack().send(&request).unwrap()
    };
    for headers in [
        &[][..],
        &[("content-type", "text/plain")],
        &[("content-type", "application/x-www-form-urlencoded")],
        &[("content-type", "application/json; charset=utf-16")],
        &[
            ("content-type", "application/json"),
            ("content-type", "application/xml"),
        ],
        &[("content-type", "application/json"), ("content-encoding", "gzip")],
    ] {
        assert_denied(&with(headers), 400, "body_media_type", None);
    }
    let large = order(&chain)
        .header("content-type", "application/json")
        .header("content-length", "70000");
    assert_denied(&stack().send(&large).unwrap(), 413, "body_too_large", None);
}

#[test]
fn a_body_that_grows_beyond_the_limit_is_answered_413() {
    let chain = delegation("frank");
    let filler = "x".repeat(70_000);
    let body = format!(r#"{{"amount": 50, "note": "{filler}"}}"#);
    let reply = stack().send(&chunked(order(&chain), &[&body], "")).unwrap();
    assert_denied(&reply, 413, "body_too_large", None);
}

#[test]
fn a_body_may_be_as_large_as_the_limit_and_not_a_byte_larger() {
    let chain = delegation("judy");
    let sized = |bytes: usize| {
        let frame = r#"{"amount": 50, "note": ""}"#;
        frame.replace(r#""""#, &format!("\"{}\"", "x".repeat(bytes - frame.len())))
    };
    let client = Http2::connect(stack().envoy.ingress()).unwrap();
    let json = |body: &str| order(&chain).header("content-type", "application/json").trailing(body);
    let (fits, too_large) = (sized(65_536), sized(65_537));
    for reply in [
        stack().send(&order(&chain).json(fits.as_str())).unwrap(),
        stack()
            .send(&chunked(order(&chain), &[&fits[..60_000], &fits[60_000..]], ""))
            .unwrap(),
        client.send(&json(&fits)).unwrap(),
    ] {
        assert_received(&reply, &fits);
    }
    for reply in [
        stack().send(&order(&chain).json(too_large.as_str())).unwrap(),
        stack().send(&chunked(order(&chain), &[&too_large], "")).unwrap(),
        client.send(&json(&too_large)).unwrap(),
    ] {
        assert_denied(&reply, 413, "body_too_large", None);
    }
}

#[test]
fn a_body_in_invalid_chunks_never_reaches_the_service() {
    let chain = delegation("ken");
    for (number, chunks) in [
        "zz\r\n{\"amount\": 50}\r\n0\r\n\r\n",
        "-5\r\n{\"amount\": 50}\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\n{\"amount\": 50}\r\n0\r\n\r\n",
        "3\r\n{\"amount\": 50}\r\n0\r\n\r\n",
    ]
    .into_iter()
    .enumerate()
    {
        let mark = format!("chunks-{number}");
        let request = order(&chain)
            .header(MARK, &mark)
            .header("content-type", "application/json")
            .header("transfer-encoding", "chunked")
            .trailing(chunks);
        let reply = stack().send(&request).unwrap();
        assert_eq!(reply.status, 400, "{chunks:?}: {}", reply.text());
        assert!(!stack().upstream.has_seen(&mark), "{chunks:?}");
    }
}

#[test]
fn a_body_that_is_cut_off_in_http_2_is_recorded_and_never_reaches_the_service() {
    let chain = delegation("leo");
    let client = Http2::connect(stack().envoy.ingress()).unwrap();
    let request = order(&chain)
        .header(MARK, "cut-off")
        .header("content-type", "application/json");
    let mut exchange = client.open(&request).unwrap();
    exchange.send_part(br#"{"amount": 50"#, false).unwrap();
    // Resets the stream.
    drop(exchange);
    waiting::until("the record", || {
        let records = stack().records()?;
        let of_leo = records
            .iter()
            .filter_map(|record| record.decision())
            .find(|decision| decision.principal.subject.as_deref() == Some("leo"));
        Ok(of_leo.map(|decision| assert_eq!(decision.reason, "body_incomplete")))
    })
    .unwrap();
    assert!(!stack().upstream.has_seen("cut-off"));
}

#[test]
fn a_body_passes_unchanged_in_shadow_mode() {
    let chain = delegation("mia");
    let watched = || Request::new("POST", "/v1/watched/a1").delegation(&chain);
    let large = format!(r#"{{"amount": 50, "note": "{}"}}"#, "x".repeat(200_000));
    let client = Http2::connect(stack().envoy.ingress()).unwrap();
    for (body, reason) in [
        (r#"{"amount": 50}"#, "delegated"),
        (r#"{"amount": 5000}"#, "argument_not_allowed"),
        (r#"{"amount": 50"#, "body_malformed"),
        (large.as_str(), "body_too_large"),
    ] {
        let json = watched().header("content-type", "application/json").trailing(body);
        for reply in [
            stack().send(&watched().json(body)).unwrap(),
            stack().send(&chunked(watched(), &[body], "")).unwrap(),
            client.send(&json).unwrap(),
        ] {
            let received = reply.received().unwrap_or_else(|| panic!("{reason}: {}", reply.text()));
            assert_eq!(received.body.len(), body.len(), "{reason}");
            assert_eq!(received.identity_headers(), [""; 0]);
        }
        let way = if reason == "delegated" { "allow" } else { "deny" };
        let counter = format!("wasmcustom.credence_shadow_decision.rule.watched.decision.{way}.reason.{reason}");
        waiting::until(&counter, || Ok((stack().envoy.stat(&counter)? == 3).then_some(()))).unwrap();
    }
}

#[test]
fn a_revocation_that_arrives_before_the_end_of_the_body_counts() {
    let chain = delegation("grace");
    let mut client = Client::connect(stack().envoy.ingress()).unwrap();
    let whole = order(&chain).json(BODY).encode();
    let (head, rest) = whole.split_at(whole.len() - 5);
    client.send_part(head).unwrap();
    stack()
        .revoke(&["principal", "--issuer", credence_e2e::ISSUER, "--subject", "grace"])
        .unwrap();
    // Once another request is denied, this worker has the revocation.
    waiting::until("the revocation has arrived", || {
        let reply = stack().send(&order(&chain).json(BODY))?;
        Ok((reply.status == 401).then_some(()))
    })
    .unwrap();
    assert_denied(&client.send_raw(rest).unwrap(), 401, "revoked_principal", None);
}

#[test]
fn a_request_that_breaks_off_while_it_is_held_is_recorded() {
    let chain = delegation("heidi");
    let mut client = Client::connect(stack().envoy.ingress()).unwrap();
    let whole = order(&chain).json(BODY).encode();
    client.send_part(&whole[..whole.len() - 5]).unwrap();
    drop(client);
    waiting::until("the record", || {
        let records = stack().records()?;
        let of_heidi = records
            .iter()
            .filter_map(|record| record.decision())
            .find(|decision| decision.principal.subject.as_deref() == Some("heidi"));
        Ok(of_heidi.map(|decision| {
            let said = [&decision.decision, &decision.rule, &decision.reason].map(String::as_str);
            assert_eq!(said, ["deny", "orders", "body_incomplete"]);
        }))
    })
    .unwrap();
}

#[test]
fn an_ignored_body_is_let_through_unread() {
    let chain = delegation("ivan");
    let request = Request::new("POST", "/v1/uploads?account=a1&amount=5").delegation(&chain);
    let body = "y".repeat(200_000);
    let reply = stack()
        .send(&request.header("content-length", "200000").trailing(body.clone()))
        .unwrap();
    assert_received(&reply, &body);
}
