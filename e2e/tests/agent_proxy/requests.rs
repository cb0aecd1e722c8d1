//! What the proxy does with ordinary requests.

use credence_e2e::agent_proxy::AgentProxy;
use credence_e2e::{Request, waiting};

use super::{charge, delegation, reverse, stack};

#[test]
fn requests_are_proven_and_their_proofs_do_not_reach_the_service() {
    let stack = stack();
    let proxy = AgentProxy::start(stack, &delegation(stack), &reverse(stack)).unwrap();
    for _ in 0..3 {
        let reply = proxy.send(charge("25")).unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
        let received = reply.received().unwrap();
        assert_eq!(received.header("x-delegation-tool"), Some("payments.charge"));
        assert_eq!(received.header("delegation-proof"), None);
    }
    let reply = proxy.send(Request::get("/v1/catalog/42")).unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    let reply = proxy.send(Request::get("/healthz")).unwrap();
    assert_eq!(reply.status, 200);
}

#[test]
fn a_body_is_read_where_the_rules_read_it_and_streamed_where_not() {
    let stack = stack();
    let proxy = AgentProxy::start(stack, &delegation(stack), &reverse(stack)).unwrap();
    let reply = proxy
        .send(Request::new("POST", "/v1/notes").json(r#"{"text":"hello"}"#))
        .unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.received().unwrap().body, r#"{"text":"hello"}"#);
    let large = vec![b'x'; 500_000];
    let request = Request::new("PUT", "/v1/files/7").header("content-length", large.len().to_string());
    let reply = proxy.send(request.trailing(large)).unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    let too_large = format!(r#"{{"text":"{}"}}"#, "x".repeat(70_000));
    let reply = proxy.send(Request::new("POST", "/v1/notes").json(too_large)).unwrap();
    assert_eq!((reply.status, reply.reason().as_deref()), (413, Some("body_too_large")));
}

#[test]
fn what_is_not_granted_is_not_sent_and_has_the_filter_s_reason() {
    let stack = stack();
    let limited = r#"payments.charge={"account":{"constraint_type":"exact","value":"acme"},"amount":{"constraint_type":"range","max":100}}"#;
    let chain = stack.mint("ada", &["--tool", limited]).unwrap();
    let proxy = AgentProxy::start(stack, &chain, &reverse(stack)).unwrap();
    let marked = |request: Request, mark: &str| request.header("x-mark", mark);
    for (mark, request, status, reason) in [
        ("beyond", charge("500"), 403, "argument_not_allowed"),
        ("tool", Request::get("/v1/catalog/42"), 403, "tool_not_granted"),
        ("route", Request::get("/other"), 403, "no_route"),
        (
            "argument",
            Request::post("/v1/accounts/acme/charges"),
            403,
            "argument_missing",
        ),
        ("ambiguous", charge("25&amount=5"), 403, "argument_repeated"),
    ] {
        let own = proxy.send(marked(request.clone(), mark)).unwrap();
        assert_eq!((own.status, own.reason().as_deref()), (status, Some(reason)), "{mark}");
        assert_eq!(own.header("x-answered-by"), Some("credence-proxy"));
        let proof = stack.prove_charge(&chain, &stack.agent, "acme", "500").unwrap();
        let filter = stack.send(&request.delegation(&chain).proof(proof)).unwrap();
        if mark != "tool" && mark != "beyond" {
            assert_eq!((filter.status, filter.reason()), (own.status, own.reason()), "{mark}");
        }
        assert!(!stack.upstream.has_seen(mark));
    }
}

#[test]
fn a_client_gets_less_than_the_delegation_by_one_of_its_own() {
    let stack = stack();
    let narrower = r#", tools: {payments.charge: {account: {constraint_type: exact, value: acme}, amount: {constraint_type: range, max: 20}}}"#;
    let proxy = AgentProxy::start(stack, &delegation(stack), &(reverse(stack) + narrower)).unwrap();
    let reply = proxy.send(charge("15")).unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    let records = stack.until_all_is_accounted_for();
    drop(records);
    for (request, reason) in [
        (charge("25"), "argument_not_allowed"),
        (Request::get("/v1/catalog/42"), "tool_not_granted"),
    ] {
        let reply = proxy.send(request).unwrap();
        assert_eq!((reply.status, reply.reason().as_deref()), (403, Some(reason)));
    }
}

#[test]
fn a_nonce_is_answered_once_and_kept() {
    let stack = stack();
    let proxy = AgentProxy::start(stack, &delegation(stack), &reverse(stack)).unwrap();
    let fresh = || proxy.send(Request::post("/v1/fresh/acme?amount=5")).unwrap();
    for _ in 0..2 {
        let reply = fresh();
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.header("delegation-nonce"), None);
    }
    let metrics = metrics(&proxy);
    assert!(
        metrics.contains("credence_proxy_retries_total{client=\"agent\"} 1"),
        "{metrics}"
    );
}

#[test]
fn a_forward_proxy_serves_the_services_that_are_listed() {
    let stack = stack();
    let proxy = AgentProxy::start(stack, &delegation(stack), r#"listen: "127.0.0.1:0""#).unwrap();
    let reply = proxy
        .send(Request::post(&format!(
            "{}/v1/accounts/acme/charges?amount=5",
            stack.origin()
        )))
        .unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    let reply = proxy.send(Request::get("http://127.0.0.1:1/v1/catalog/42")).unwrap();
    assert_eq!(
        (reply.status, reply.reason().as_deref()),
        (403, Some("service_unknown"))
    );
    let reply = proxy.send(charge("5")).unwrap();
    assert_eq!((reply.status, reply.reason().as_deref()), (400, Some("no_service")));
    let reply = proxy.send(Request::new("CONNECT", "payments.example:443")).unwrap();
    assert_eq!((reply.status, reply.reason().as_deref()), (405, Some("tunnel")));
}

#[test]
fn clients_of_one_port_are_told_apart_by_their_secrets() {
    let stack = stack();
    let mut proxy = AgentProxy::prepare(stack).unwrap();
    let settings = proxy
        .settings_for(
            stack,
            &delegation(stack),
            &format!("{}, secret_file: \"{}\"", reverse(stack), proxy.file("one").display()),
        )
        .unwrap();
    let other = format!(
        "  - {{name: reader, {}, secret_file: \"{}\", tools: {{catalog.read: {{item: {{constraint_type: wildcard}}}}}}}}\n",
        reverse(stack),
        proxy.file("two").display()
    );
    proxy.write("one", "a secret of the first").unwrap();
    proxy.write("two", "a secret of the other").unwrap();
    proxy.serve(&(settings + &other)).unwrap();
    let with = |request: Request, secret: &str| {
        proxy
            .send(request.header("authorization", format!("Bearer {secret}")))
            .unwrap()
    };
    let reply = with(charge("5"), "a secret of the first");
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.received().unwrap().header("authorization"), None);
    assert_eq!(
        with(Request::get("/v1/catalog/42"), "a secret of the other").status,
        200
    );
    let reply = with(charge("5"), "a secret of the other");
    assert_eq!(
        (reply.status, reply.reason().as_deref()),
        (403, Some("tool_not_granted"))
    );
    for reply in [
        with(charge("5"), "another secret of none"),
        proxy.send(charge("5")).unwrap(),
    ] {
        assert_eq!((reply.status, reply.reason().as_deref()), (401, Some("client_unknown")));
    }
}

#[test]
fn two_clients_of_one_port_need_two_secrets() {
    let stack = stack();
    let mut proxy = AgentProxy::prepare(stack).unwrap();
    proxy.write("one", "a secret of both of them").unwrap();
    let client = format!("{}, secret_file: \"{}\"", reverse(stack), proxy.file("one").display());
    let settings = proxy.settings_for(stack, &delegation(stack), &client).unwrap();
    let error = proxy
        .serve(&format!("{settings}  - {{name: other, {client}}}\n"))
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("at clients[1].secret_file: another client there has this secret"),
        "{error}"
    );
}

#[test]
fn a_new_delegation_in_the_file_is_used_without_a_restart() {
    let stack = stack();
    let chain = stack
        .mint(
            "ada",
            &["--tool", r#"catalog.read={"item":{"constraint_type":"wildcard"}}"#],
        )
        .unwrap();
    let proxy = AgentProxy::start(stack, &chain, &reverse(stack)).unwrap();
    assert_eq!(proxy.send(charge("5")).unwrap().status, 403);
    proxy.write("delegation", &delegation(stack)).unwrap();
    waiting::until("the new delegation to be used", || {
        Ok((proxy.send(charge("5"))?.status == 200).then_some(()))
    })
    .unwrap();
    // A wrong file changes nothing.
    proxy.write("delegation", "no delegation").unwrap();
    waiting::until("the wrong file to be noticed", || {
        Ok(proxy.output().contains("the known one stays").then_some(()))
    })
    .unwrap();
    assert_eq!(proxy.send(charge("5")).unwrap().status, 200);
    // Without the file, nothing is proven.
    std::fs::remove_file(proxy.file("delegation")).unwrap();
    waiting::until("the delegation to be gone", || {
        let reply = proxy.send(charge("5"))?;
        Ok((reply.reason().as_deref() == Some("no_delegation")).then_some(()))
    })
    .unwrap();
}

pub(super) fn metrics(proxy: &AgentProxy) -> String {
    let mut client = credence_e2e::Client::connect(proxy.admin().unwrap()).unwrap();
    client.send(&Request::get("/metrics")).unwrap().text()
}
