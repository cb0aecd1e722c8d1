//! The identity that the filter tells the service: only what was proven, never what a client claims.

use std::sync::LazyLock;

use credence_e2e::grants::{CHARGE, READ};
use credence_e2e::received::Received;
use credence_e2e::{ISSUER, Request, Stack, StackOptions};

/// Shared by all tests; it stops with the process.
fn stack() -> &'static Stack {
    static STACK: LazyLock<Stack> = LazyLock::new(|| Stack::start(&StackOptions::quick()).unwrap());
    &STACK
}

/// A request that claims an identity in every known way.
fn impostor(target: &str) -> Request {
    [
        "x-delegation-subject",
        "X-Delegation-Subject",
        "x_delegation_subject",
        "x-delegation_issuer",
        "X_DELEGATION-AGENT",
        "x-delegation-proof",
        "x-delegation-anything",
        "x-delegation-",
        "x-delegation-subject",
        "x.delegation.subject",
        "X!Delegation~Issuer",
    ]
    .into_iter()
    .fold(Request::get(target), |request, name| request.header(name, "mallory"))
}

#[track_caller]
fn received(stack: &Stack, request: &Request) -> Received {
    let reply = stack.send(request).unwrap();
    reply
        .received()
        .unwrap_or_else(|| panic!("{} {}", reply.status, reply.text()))
}

#[test]
fn a_public_path_gets_no_identity() {
    let received = received(stack(), &impostor("/healthz"));
    assert_eq!(received.identity_headers(), Vec::<&str>::new(), "{received:?}");
    assert!(
        !received.headers.iter().any(|(_, value)| value.contains("mallory")),
        "{received:?}"
    );
}

#[test]
fn a_service_behind_the_filter_gets_no_proof() {
    let received = received(stack(), &Request::get("/healthz").proof("a-proof-for-somewhere-else"));
    assert_eq!(received.header("delegation-proof"), None, "{received:?}");
}

#[test]
fn override_headers_are_removed_from_an_allowed_request() {
    let chain = stack().mint("alice", &["--tool", READ]).unwrap();
    let request = Request::get("/v1/catalog/book")
        .delegation(chain)
        .header("x-http-method-override", "DELETE")
        .header("x.http.method.override", "DELETE")
        .header("X_Original_URL", "/v1/accounts/a1/charges")
        .header("x-forwarded-uri", "/v1/accounts/a1/charges");
    let received = received(stack(), &request);
    for name in [
        "x-http-method-override",
        "x.http.method.override",
        "x_original_url",
        "x-forwarded-uri",
    ] {
        assert_eq!(received.header(name), None, "{received:?}");
    }
}

#[test]
fn an_allowed_request_has_only_the_principals_identity() {
    let chain = stack().mint("alice", &["--id", "the-leaf", "--tool", READ]).unwrap();
    let received = received(stack(), &impostor("/v1/catalog/book").delegation(chain));
    for (name, value) in [
        ("x-delegation-issuer", ISSUER),
        ("x-delegation-subject", "alice"),
        ("x-delegation-tool", "catalog.read"),
        ("x-delegation-id", "the-leaf"),
        ("x-delegation-proof", "none"),
    ] {
        assert_eq!(received.header(name), Some(value), "{received:?}");
    }
    // A bearer has proven nothing about itself.
    assert_eq!(received.identity_headers().len(), 5, "{received:?}");
}

#[test]
fn the_agent_is_the_key_that_signed_the_proof() {
    stack().wait_until_proofs_count().unwrap();
    let chain = stack().mint("alice", &["--tool", CHARGE]).unwrap();
    let proof = stack().prove_charge(&chain, &stack().agent, "acme", "1").unwrap();
    let request = Request::post("/v1/accounts/acme/charges?amount=1")
        .delegation(&chain)
        .proof(proof);
    let received = received(stack(), &request);
    assert_eq!(received.header("x-delegation-proof"), Some("pop"));
    let agent = credence_e2e::forge::Forger::from_file(&stack().agent.file).unwrap();
    let thumbprint = agent.thumbprint_uri();
    assert!(
        thumbprint.ends_with(received.header("x-delegation-agent").unwrap()),
        "{received:?}"
    );
}

#[test]
fn a_name_cannot_break_out_of_its_header() {
    let name = "zoë\r\nx-admin: yes, \"%41\"";
    let chain = stack().mint(name, &["--tool", READ]).unwrap();
    let received = received(stack(), &Request::get("/v1/catalog/book").delegation(chain));
    let encoded = "zo%C3%AB%0D%0Ax-admin:%20yes%2C%20%22%2541%22";
    assert_eq!(received.header("x-delegation-subject"), Some(encoded), "{received:?}");
    assert_eq!(received.header("x-admin"), None);
}

#[test]
fn headers_that_only_look_alike_are_left_alone() {
    let request = Request::get("/healthz")
        .header("x-delegations", "1")
        .header("my-x-delegation-a", "2")
        .header("x.trace", "3");
    let received = received(stack(), &request);
    for (name, value) in [("x-delegations", "1"), ("my-x-delegation-a", "2"), ("x.trace", "3")] {
        assert_eq!(received.header(name), Some(value), "{received:?}");
    }
}

#[test]
fn neither_delegation_nor_proof_reaches_the_service() {
    let chain = stack().mint("alice", &["--tool", READ]).unwrap();
    let received = received(
        stack(),
        &Request::get("/v1/catalog/book").delegation(chain).proof("any"),
    );
    assert_eq!(
        (received.header("delegation"), received.header("delegation-proof")),
        (None, None)
    );
}

#[test]
fn a_rule_may_forward_the_delegation_but_never_the_proof() {
    let options = StackOptions::quick().replacing(
        "                                proof: none\n",
        "                                proof: none\n                                forward: true\n",
    );
    let stack = Stack::start(&options).unwrap();
    let chain = stack.mint("alice", &["--tool", READ]).unwrap();
    let received = received(
        &stack,
        &Request::get("/v1/catalog/book").delegation(&chain).proof("any"),
    );
    assert_eq!(
        (received.header("delegation"), received.header("delegation-proof")),
        (Some(chain.as_str()), None)
    );
}
