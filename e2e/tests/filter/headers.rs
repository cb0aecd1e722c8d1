//! Many, large or non-UTF-8 headers: the filter decides as usual, up to Envoy's own limits.

use std::sync::LazyLock;

use credence_e2e::assertions::assert_denied;
use credence_e2e::grants::READ;
use credence_e2e::received::MARK;
use credence_e2e::{Http2, Request, Stack, StackOptions};

/// Shared by all tests, with Envoy's limits of envoy-config/envoy.yaml; it stops with the process.
fn stack() -> &'static Stack {
    static STACK: LazyLock<Stack> =
        LazyLock::new(|| Stack::start(&StackOptions::quick().in_either_protocol()).unwrap());
    &STACK
}

fn alice() -> String {
    stack().mint("alice", &["--tool", READ]).unwrap()
}

fn book() -> Request {
    Request::get("/v1/catalog/book")
}

/// The request, filled up with headers until they have this size: names, values and, for each, the four bytes around
/// them in HTTP/1.1.
fn filled_up(request: Request, bytes: usize) -> Request {
    let size = |request: &Request| request.encode().len();
    let mut request = request;
    while size(&request) + 2_100 < bytes {
        let name = format!("x-filler-{}", size(&request));
        request = request.header(name, "x".repeat(2_000));
    }
    let left = bytes.saturating_sub(size(&request) + "x-filler: \r\n".len());
    request.header("x-filler", "x".repeat(left))
}

/// Just under max_request_headers_kb: 60.
const NEARLY_ALL: usize = 60 * 1_024 - 600;

#[test]
fn sixty_kibibytes_of_headers_are_decided_as_usual() {
    let chain = alice();
    let forged = |request: Request| request.header("x-delegation-subject", "mallory");
    let large = |request: Request| filled_up(forged(request), NEARLY_ALL);
    let client = Http2::connect(stack().envoy.ingress()).unwrap();
    for (request, status, reason) in [
        (large(book().delegation(&chain)), 200, None),
        (large(book()), 401, Some("delegation_missing")),
        (
            large(book().delegation(&chain).delegation("x")),
            401,
            Some("delegation_repeated"),
        ),
        (
            large(Request::get("/v1/catalog/book?x=1").delegation(&chain)),
            403,
            Some("argument_unknown"),
        ),
        (large(Request::get("/healthz")), 200, None),
    ] {
        assert!(request.encode().len() > 59 * 1_024);
        let sent = String::from_utf8_lossy(&request.encode()).matches("x-filler").count();
        for reply in [stack().send(&request).unwrap(), client.send(&request).unwrap()] {
            assert_eq!(
                (reply.status, reply.reason().as_deref()),
                (status, reason),
                "{}",
                reply.text().len()
            );
            if let Some(received) = reply.received() {
                assert!(!received.values("x-delegation-subject").any(|value| value == "mallory"));
                let arrived = received.headers.iter().filter(|(name, _)| name.starts_with("x-filler"));
                assert_eq!(arrived.count(), sent);
            }
        }
    }
}

#[test]
fn more_headers_than_envoy_takes_are_refused() {
    let large = filled_up(book().delegation(alice()), 62 * 1_024).header(MARK, "large");
    assert_eq!(stack().send(&large).unwrap().status, 431);
    assert!(!stack().upstream.has_seen("large"));
}

#[test]
fn the_most_headers_that_envoy_takes_are_decided_as_usual() {
    let chain = alice();
    // Some of the 100 that Envoy takes are its own.
    let many = |count: usize, last: Request| {
        (0..count).fold(last, |request, number| request.header(format!("h{number}"), "1"))
    };
    let allowed = stack().send(&many(80, book().delegation(&chain))).unwrap();
    assert!(allowed.received().is_some(), "{} {}", allowed.status, allowed.text());
    let forged = (0..80).fold(book().delegation(&chain), |request, number| {
        request.header(format!("X_Delegation-{number}"), "mallory")
    });
    let received = stack().send(&forged).unwrap().received().unwrap();
    assert_eq!(received.identity_headers().len(), 5, "{received:?}");
    let repeated = (0..80).fold(book(), |request, _| request.delegation(&chain));
    let refused = stack().send(&repeated).unwrap();
    // 80 delegations exceed 60 KiB only if they are long.
    assert!(matches!(refused.status, 401 | 431), "{}", refused.text());
    let too_many = many(120, book().delegation(&chain)).header(MARK, "many");
    assert_eq!(stack().send(&too_many).unwrap().status, 431);
    assert!(!stack().upstream.has_seen("many"));
}

#[test]
fn headers_that_are_not_utf_8_pass_where_no_rule_reads_them() {
    let chain = alice();
    let client = Http2::connect(stack().envoy.ingress()).unwrap();
    let odd = |request: Request| {
        request
            .header("x-odd", b"\xff\xfe\x80")
            .header("x-request-id", b"\xc3\x28")
            .header("user-agent", b"\xf0\x28\x8c\xbc")
            .header("x-delegation-subject", b"m\xe4llory")
            .header("traceparent", b"\xff")
    };
    for request in [odd(book().delegation(&chain)), odd(Request::get("/healthz"))] {
        for reply in [stack().send(&request).unwrap(), client.send(&request).unwrap()] {
            let received = reply.received().unwrap_or_else(|| panic!("{reply:?}"));
            assert_eq!(received.header("x-odd"), Some("\u{fffd}\u{fffd}\u{fffd}"));
            assert!(
                !received
                    .values("x-delegation-subject")
                    .any(|value| value.contains("llory"))
            );
        }
    }
    // The VM still works.
    assert_denied(&stack().send(&odd(book())).unwrap(), 401, "delegation_missing");
}

#[test]
fn headers_that_are_not_utf_8_are_denied_where_a_rule_reads_them() {
    let client = Http2::connect(stack().envoy.ingress()).unwrap();
    let chain = alice().into_bytes();
    for value in [
        vec![0xff],
        [&chain[..], b"\xff"].concat(),
        [b"\xc3\x28~", &chain[..]].concat(),
    ] {
        let request = book().delegation(value);
        for reply in [stack().send(&request).unwrap(), client.send(&request).unwrap()] {
            assert_denied(&reply, 401, "delegation_malformed");
        }
    }
    let charge = Request::post("/v1/accounts/a1/charges?amount=5").delegation(&chain);
    assert_denied(
        &stack().send(&charge.proof(b"\xe2\x28\xa1")).unwrap(),
        401,
        "proof_malformed",
    );
    for (name, value) in [
        ("content-type", &b"application/grpc\xff"[..]),
        ("content-type", b"\xff"),
    ] {
        assert_denied(
            &stack().send(&book().header(name, value)).unwrap(),
            401,
            "delegation_missing",
        );
    }
}

#[test]
fn two_delegation_headers_are_denied_in_any_spelling() {
    let chain = alice();
    let other = stack().mint("bob", &["--tool", READ]).unwrap();
    let client = Http2::connect(stack().envoy.ingress()).unwrap();
    for (name, request) in [
        ("twice", book().delegation(&chain).delegation(&other)),
        ("alike", book().delegation(&chain).delegation(&chain)),
        ("comma", book().delegation(format!("{chain},{other}"))),
        ("list", book().delegation(format!("{chain} , {other}"))),
        ("empty", book().delegation("").delegation(&chain)),
        ("empty element", book().delegation(format!(",{chain}"))),
        ("in capitals", book().delegation(&chain).header("DELEGATION", &other)),
    ] {
        let request = request.header(MARK, name);
        for reply in [stack().send(&request).unwrap(), client.send(&request).unwrap()] {
            assert_denied(&reply, 401, "delegation_repeated");
        }
        assert!(!stack().upstream.has_seen(name), "{name}");
    }
    // A proof's header may be spelt in two ways, too.
    let charge = || Request::post("/v1/accounts/a1/charges?amount=5").delegation(&chain);
    for request in [
        charge().header("delegation_proof", "x"),
        charge().header("delegation-proof", "x").header("Delegation_Proof", "x"),
    ] {
        assert_denied(&stack().send(&request).unwrap(), 401, "proof_repeated");
    }
}
