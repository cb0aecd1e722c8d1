//! Configurations other than enforcing: shadow mode, stale data, and telling Envoy the identity.

use credence_e2e::assertions::assert_denied;
use credence_e2e::grants::{CHARGE, READ};
use credence_e2e::{AUDIENCE, Client, Request, Stack, StackOptions, waiting};

fn book() -> Request {
    Request::get("/v1/catalog/book")
}

mod in_shadow {
    use super::*;

    /// Rules before those of envoy-config/envoy.yaml.
    const WATCHED: &str = r#"mode: shadow
                            rules:
                              - name: watched
                                match: {methods: [GET], path: "/v1/watched/{item}"}
                                tool: catalog.read
                                args: {item: {path: item}}
                                proof: none
"#;

    #[test]
    fn every_request_passes_unchanged_and_its_decision_is_on_record() {
        // One rule is enforced, which shows the stack when the filter is synced.
        let options = StackOptions::quick().replacing("rules:\n", WATCHED).replacing(
            "- name: catalog\n",
            "- name: catalog\n                                mode: enforce\n",
        );
        let stack = Stack::start(&options).unwrap();
        let chain = stack
            .mint(
                "alice",
                &[
                    "--tool",
                    r#"catalog.read={"item":{"constraint_type":"exact","value":"pen"}}"#,
                ],
            )
            .unwrap();
        let book = || Request::get("/v1/watched/book");
        let requests = [
            book(),
            book().delegation("no.thing.atall"),
            book().delegation(&chain),
            Request::get("/v1/watched/pen").delegation(&chain),
            Request::get("/nowhere"),
            Request::get("/v1/watched/a%2F..%2Fb"),
        ];
        for (number, request) in requests.iter().enumerate() {
            let forged = request.clone().header("x-delegation-subject", "root");
            let reply = stack.send(&forged).unwrap();
            // Envoy itself refuses the last one.
            if number + 1 == requests.len() {
                assert_eq!(reply.status, 400);
                continue;
            }
            let received = reply.received().unwrap_or_else(|| panic!("{}", reply.text()));
            assert_eq!(
                received.identity_headers(),
                [""; 0],
                "headers that only the filter may set are removed"
            );
        }
        let received = stack.send(&book().delegation(&chain)).unwrap().received().unwrap();
        assert_eq!(
            received.header("delegation"),
            Some(chain.as_str()),
            "and other headers stay"
        );

        for (rule, decision, reason, count) in [
            ("watched", "deny", "delegation_missing", 1),
            ("watched", "deny", "delegation_malformed", 1),
            ("watched", "deny", "argument_not_allowed", 2),
            ("watched", "allow", "delegated", 1),
        ] {
            let name = format!("wasmcustom.credence_shadow_decision.rule.{rule}.decision.{decision}.reason.{reason}");
            waiting::until(&name, || Ok((stack.envoy.stat(&name)? == count).then_some(()))).unwrap();
        }
        waiting::until("the records", || {
            let records = stack.records()?;
            let decisions: Vec<_> = records.iter().filter_map(|record| record.decision()).collect();
            if decisions.len() < 3 {
                return Ok(None);
            }
            assert!(decisions.iter().all(|decision| decision.mode == "shadow"));
            let mut reasons: Vec<_> = decisions.iter().map(|decision| decision.reason.as_str()).collect();
            reasons.sort_unstable();
            assert_eq!(reasons, ["argument_not_allowed", "argument_not_allowed", "delegated"]);
            Ok(Some(()))
        })
        .unwrap();
    }

    #[test]
    fn a_rule_may_be_in_shadow_while_the_others_are_enforced() {
        let options = StackOptions::quick().replacing(
            "- name: catalog\n",
            "- name: catalog\n                                mode: shadow\n",
        );
        let stack = Stack::start(&options).unwrap();
        assert!(stack.send(&book()).unwrap().received().is_some());
        let charge = Request::post("/v1/accounts/a1/charges?amount=1");
        assert_denied(&stack.send(&charge).unwrap(), 401, "delegation_missing");
        assert_denied(&stack.send(&Request::get("/nowhere")).unwrap(), 403, "no_route");
    }
}

#[test]
fn a_rule_may_use_stale_state_for_cached_delegations() {
    let options = StackOptions::quick().replacing(
        "- name: catalog\n",
        "- name: catalog\n                                on_stale: {allow_cached_for: 5m}\n",
    );
    let mut stack = Stack::start(&options).unwrap();
    let known = stack.mint("alice", &["--tool", READ]).unwrap();
    let unknown = stack.mint("bob", &["--tool", READ]).unwrap();
    let mut workers = stack.envoy.connection_to_every_worker().unwrap();
    for worker in &mut workers {
        assert!(worker.send(&book().delegation(&known)).unwrap().received().is_some());
    }
    stack.control_plane.kill().unwrap();
    stack.wait_until_stale().unwrap();
    for worker in &mut workers {
        assert!(worker.send(&book().delegation(&known)).unwrap().received().is_some());
        assert_denied(&worker.send(&book().delegation(&unknown)).unwrap(), 503, "stale");
    }
    // Another rule denies it.
    let proof = stack.prove_charge(&known, &stack.agent, "a1", "1").unwrap();
    let charge = Request::post("/v1/accounts/a1/charges?amount=1")
        .delegation(&known)
        .proof(&proof);
    assert_denied(&stack.send(&charge).unwrap(), 503, "stale");

    // Such decisions are on record.
    stack.control_plane.restart().unwrap();
    waiting::until("the records of decisions by old knowledge", || {
        let records = stack.records()?;
        let stale = records
            .iter()
            .filter_map(|record| record.decision()?.stale_ms)
            .filter(|age| *age > 2_000);
        Ok((stale.count() == workers.len()).then_some(()))
    })
    .unwrap();
}

#[test]
fn a_rule_may_ask_for_a_nonce_that_only_this_envoy_has_handed_out() {
    let options = StackOptions::quick().replacing(
        "proof: pop\n",
        "proof: pop\n                                nonce: true\n",
    );
    let mut stack = Stack::start(&options).unwrap();
    let chain = stack.mint("alice", &["--tool", CHARGE]).unwrap();
    let charge = |stack: &Stack, nonce: &[&str]| {
        let prove = [
            "prove",
            "--chain",
            &chain,
            "--key",
            stack.agent.path(),
            "--tool",
            "payments.charge",
        ];
        let what = ["--arg", "account=a1", "--arg-json", "amount=5", "--audience", AUDIENCE];
        let proof = stack.credence.run([&prove[..], &what, nonce].concat()).unwrap();
        let request = Request::post("/v1/accounts/a1/charges?amount=5")
            .delegation(&chain)
            .proof(&proof);
        stack.send(&request).unwrap()
    };
    let refused = charge(&stack, &[]);
    assert_denied(&refused, 401, "nonce_required");
    let nonce = refused
        .header("delegation-nonce")
        .expect("a nonce for the next proof")
        .to_owned();
    let allowed = waiting::until("proofs to count after the start", || {
        let reply = charge(&stack, &["--nonce", &nonce]);
        Ok((reply.reason().as_deref() != Some("proof_predates_memory")).then_some(reply))
    })
    .unwrap();
    assert!(allowed.received().is_some(), "{}", allowed.text());
    assert_eq!(allowed.header("delegation-nonce"), None);
    // Every worker of this process recognises the nonce, and no other process does.
    for _ in 0..8 {
        assert!(charge(&stack, &["--nonce", &nonce]).received().is_some());
    }
    stack.restart_envoy().unwrap();
    assert_denied(&charge(&stack, &["--nonce", &nonce]), 401, "nonce_required");
}

#[test]
fn the_filter_state_tells_envoy_who_is_asking() {
    let options = StackOptions::quick()
        .replacing(
            "rules:\n",
            "identity: {filter_state: [subject, tool, proof, agent]}\n                            rules:\n",
        )
        .replacing(
            r"%REQUEST_HEADER(X-REQUEST-ID)%\n",
            r"subject=%FILTER_STATE(wasm.credence_subject:PLAIN)% tool=%FILTER_STATE(wasm.credence_tool:PLAIN)% proof=%FILTER_STATE(wasm.credence_proof:PLAIN)% agent=%FILTER_STATE(wasm.credence_agent:PLAIN)% id=%FILTER_STATE(wasm.credence_id:PLAIN)%\n",
        );
    let stack = Stack::start(&options).unwrap();
    let chain = stack.mint("ünï", &["--tool", READ]).unwrap();
    let mut client = Client::connect(stack.envoy.ingress()).unwrap();
    assert!(client.send(&book().delegation(&chain)).unwrap().received().is_some());
    let denied = Request::get("/v1/catalog/book");
    assert_denied(&client.send(&denied).unwrap(), 401, "delegation_missing");
    for line in [
        "subject=%C3%BCn%C3%AF tool=catalog.read proof=none agent=- id=-",
        "subject=- tool=- proof=- agent=- id=-",
    ] {
        waiting::until(format_args!("{line} in the access log"), || {
            Ok(stack.envoy.log().contains(line).then_some(()))
        })
        .unwrap();
    }
}

#[test]
fn the_filter_state_tells_other_filters_who_is_asking() {
    // Envoy's own RBAC filter behind ours: only alice may pass.
    const RBAC: &str = r#"                  - name: rbac
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC
                      rules:
                        action: ALLOW
                        policies:
                          alice:
                            permissions: [{any: true}]
                            principals: [{filter_state: {key: wasm.credence_subject, string_match: {exact: alice}}}]
                  - name: envoy.filters.http.router
"#;
    let options = StackOptions {
        // RBAC denies requests without a subject, which the stack's readiness probes are.
        unsynced: true,
        ..StackOptions::quick()
            .replacing(
                "rules:\n",
                "identity: {filter_state: [subject]}\n                            rules:\n",
            )
            .replacing("                  - name: envoy.filters.http.router\n", RBAC)
    };
    let stack = Stack::start(&options).unwrap();
    let [alice, bob] = ["alice", "bob"].map(|subject| stack.mint(subject, &["--tool", READ]).unwrap());
    let reply = waiting::until("the filter to decide", || {
        let reply = stack.send(&book().delegation(&alice))?;
        Ok((reply.reason().as_deref() != Some("not_ready")).then_some(reply))
    })
    .unwrap();
    assert!(reply.received().is_some(), "{}", reply.text());
    let reply = waiting::until("the other worker to decide", || {
        let reply = stack.send(&book().delegation(&bob))?;
        Ok((reply.reason().as_deref() != Some("not_ready")).then_some(reply))
    })
    .unwrap();
    assert_eq!((reply.status, reply.text().as_str()), (403, "RBAC: access denied"));
    let forged = Request::get("/healthz").header("x-delegation-subject", "alice");
    assert_eq!(stack.send(&forged).unwrap().text(), "RBAC: access denied");
}
