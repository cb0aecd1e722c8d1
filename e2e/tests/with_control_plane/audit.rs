//! Every decision is accounted for once, under any fault of the control plane.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use credence_e2e::audit::{Decision, Kind, Record};
use credence_e2e::grants::{CHARGE, READ};
use credence_e2e::{Client, ISSUER, Request, Stack, StackOptions, waiting};

fn book() -> Request {
    Request::get("/v1/catalog/book")
}

fn on(leaf: &str, records: &[Record]) -> Vec<Decision> {
    let is_on = |decision: &&Decision| decision.delegation_ids.last().is_some_and(|id| id == leaf);
    records
        .iter()
        .filter_map(Record::decision)
        .filter(is_on)
        .cloned()
        .collect()
}

/// Waits until this many decisions on the leaf are in the ledger, and returns all records.
fn until_recorded(stack: &Stack, leaf: &str, count: usize) -> Vec<Record> {
    waiting::until(format_args!("{count} decisions on {leaf} to be recorded"), || {
        let records = stack.records()?;
        Ok((on(leaf, &records).len() >= count).then_some(records))
    })
    .unwrap()
}

/// Asserts that each source's records are numbered from 1 without a gap or a duplicate.
fn assert_numbered(records: &[Record]) {
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    for record in records {
        if let Some(sequence) = record.sequence {
            let last = last.entry(&record.source).or_default();
            assert_eq!(sequence, *last + 1, "{record:?}");
            *last = sequence;
        }
    }
}

#[test]
fn records_add_up_to_the_answered_requests() {
    let stack = Stack::start(&StackOptions::quick()).unwrap();
    let chain = stack.mint("alice", &["--id", "leaf", "--tool", READ]).unwrap();
    let charges = stack.mint("alice", &["--id", "charges", "--tool", CHARGE]).unwrap();
    let mut workers = stack.envoy.connection_to_every_worker().unwrap();
    for client in &mut workers {
        for _ in 0..50 {
            assert_eq!(client.send(&book().delegation(&chain)).unwrap().status, 200);
            assert_eq!(client.send(&book().delegation(&charges)).unwrap().status, 403);
            assert_eq!(client.send(&book().delegation("garbage")).unwrap().status, 401);
            assert_eq!(client.send(&book()).unwrap().status, 401);
            assert_eq!(client.send(&Request::get("/nowhere")).unwrap().status, 403);
        }
    }
    let records = until_recorded(&stack, "leaf", 100);
    let records_of_all = stack.until_all_is_accounted_for().unwrap();
    assert_numbered(&records);
    assert_eq!(on("leaf", &records).len(), 100);
    let records = records_of_all;
    assert!(
        on("charges", &records)
            .iter()
            .all(|decision| decision.reason == "tool_not_granted")
    );
    assert_eq!(on("charges", &records).len(), 100);
    for (rule, reason) in [("catalog", "delegation_missing"), ("", "no_route")] {
        let counts = records.iter().filter_map(|record| match &record.kind {
            Kind::Aggregate {
                rule: found,
                reason: why,
                count,
                ..
            } if found == rule && why == reason => Some(count),
            _ => None,
        });
        assert_eq!(counts.sum::<u64>(), 100, "{rule} {reason}");
    }
}

/// Rules before those of envoy-config/envoy.yaml.
const MORE_RULES: &str = r#"rules:
                              - name: orders
                                match: {methods: [POST], path: "/v1/orders/{item}"}
                                tool: catalog.read
                                args:
                                  item: {path: item}
                                  amount: {body: /amount, type: number, optional: true}
                                proof: none
                              - name: uploads
                                match: {methods: [POST], path: "/v1/uploads/{item}"}
                                tool: catalog.read
                                args:
                                  item: {path: item}
                                ignore_body: true
                                proof: none
                              - name: watched
                                match: {path: "/v1/watched/{item}"}
                                mode: shadow
                                tool: catalog.read
                                args:
                                  item: {path: item}
                                proof: none
"#;

fn with_more_rules(audit: &str) -> StackOptions {
    let audit = format!("audit: {audit}\n                            rules:\n");
    StackOptions::quick()
        .replacing("rules:\n", MORE_RULES)
        .replacing("rules:\n", &audit)
        .replacing("default: deny", "default: allow")
}

/// Decisions by record kind, rule, reason, decision and mode.
fn tally(records: &[Record]) -> BTreeMap<(&str, &str, &str, &str, &str), u64> {
    let mut tally = BTreeMap::new();
    for record in records {
        let (key, count) = match &record.kind {
            Kind::Decision(event) => (
                ("event", &*event.rule, &*event.reason, &*event.decision, &*event.mode),
                1,
            ),
            Kind::Aggregate {
                rule,
                reason,
                decision,
                mode,
                count,
                ..
            } => (("count", &**rule, &**reason, &**decision, &**mode), *count),
            Kind::Gap { .. } | Kind::Chain | Kind::Source { .. } => continue,
        };
        *tally.entry(key).or_default() += count;
    }
    tally
}

/// Starts requests on connections, and closes these once Envoy has the requests.
fn cut_off(stack: &Stack, request: &Request, times: u64) {
    let active = || stack.envoy.stat("http.ingress.downstream_rq_active");
    let before = active().unwrap();
    let clients: Vec<Client> = (0..times)
        .map(|_| {
            let mut client = Client::connect(stack.envoy.ingress()).unwrap();
            client.send_part(&request.encode()).unwrap();
            client
        })
        .collect();
    waiting::until("the requests to arrive", || {
        Ok((active()? == before + times).then_some(()))
    })
    .unwrap();
    drop(clients);
    waiting::until("the requests to end", || Ok((active()? == before).then_some(()))).unwrap();
}

#[test]
fn every_request_is_an_event_or_a_count_and_never_both() {
    let stack = Stack::start(&with_more_rules("{}")).unwrap();
    let chain = stack.mint("alice", &["--tool", READ]).unwrap();
    let charges = stack.mint("alice", &["--tool", CHARGE]).unwrap();
    let post = |path| Request::new("POST", path).delegation(&chain);
    let unfinished = |path| {
        post(path)
            .header("content-type", "application/json")
            .header("content-length", "100")
    };
    let requests = [
        (book().delegation(&chain), 200),
        (book().delegation(&charges), 403),
        (book().delegation("garbage"), 401),
        (book(), 401),
        (Request::get("/healthz"), 200),
        (Request::get("/nowhere"), 200),
        (Request::get("/v1/watched/book").delegation(&charges), 200),
        (Request::get("/v1/watched/book"), 200),
        (post("/v1/orders/book").json(r#"{"amount":1}"#), 403),
    ];
    let rounds = 20;
    for client in &mut stack.envoy.connection_to_every_worker().unwrap() {
        for _ in 0..rounds {
            for (request, status) in &requests {
                let reply = client.send(request).unwrap();
                assert_eq!(reply.status, *status, "{request:?}: {}", reply.text());
            }
        }
    }
    cut_off(&stack, &unfinished("/v1/orders/book"), 5);
    cut_off(&stack, &unfinished("/v1/uploads/book"), 5);
    let records = stack.until_all_is_accounted_for().unwrap();
    assert_numbered(&records);
    let tally = tally(&records);
    let expected = [
        ("event", "catalog", "delegated", "allow", "enforce", 2 * rounds),
        ("event", "catalog", "tool_not_granted", "deny", "enforce", 2 * rounds),
        ("count", "catalog", "delegation_missing", "deny", "enforce", 2 * rounds),
        ("count", "", "unmatched", "allow", "enforce", 2 * rounds),
        ("event", "watched", "tool_not_granted", "deny", "shadow", 2 * rounds),
        ("count", "watched", "delegation_missing", "deny", "shadow", 2 * rounds),
        ("event", "orders", "body_incomplete", "deny", "enforce", 5),
        ("event", "uploads", "delegated", "allow", "enforce", 5),
    ];
    // There are more of them: the harness uses this path to find a connection to each worker.
    let public = tally[&("count", "health", "public", "allow", "enforce")];
    assert!(public >= 2 * rounds, "{public}");
    for (form, rule, reason, decision, mode, count) in expected {
        let found = tally.get(&(form, rule, reason, decision, mode));
        assert_eq!(found, Some(&count), "{form} {rule} {reason}: {tally:#?}");
        let other = if form == "event" { "count" } else { "event" };
        assert_eq!(
            tally.get(&(other, rule, reason, decision, mode)),
            None,
            "{rule} {reason}"
        );
    }
}

#[test]
fn a_chain_is_sent_once_for_each_time_that_it_is_verified_and_before_its_events() {
    let mut stack = Stack::start(&StackOptions {
        workers: Some(1),
        ..StackOptions::quick()
    })
    .unwrap();
    let chain = stack.mint("alice", &["--id", "leaf", "--tool", READ]).unwrap();
    let other = stack.mint("bob", &["--id", "other", "--tool", READ]).unwrap();
    let send = |stack: &Stack, times| {
        for _ in 0..times {
            for chain in [&chain, &other] {
                assert_eq!(stack.send(&book().delegation(chain)).unwrap().status, 200);
            }
        }
    };
    let chains = |records: &[Record]| -> Vec<u64> {
        let is_chain = |record: &&Record| matches!(record.kind, Kind::Chain);
        records.iter().filter(is_chain).map(|record| record.index).collect()
    };
    send(&stack, 30);
    let records = until_recorded(&stack, "other", 30);
    let found = chains(&records);
    assert_eq!(found.len(), 2);
    let first = records.iter().find(|record| record.decision().is_some()).unwrap();
    assert!(found[0] < first.index, "{records:?}");
    let digests: Vec<_> = on("leaf", &records)
        .iter()
        .map(|event| event.chain_digest.clone())
        .collect();
    assert_eq!(digests[0].len(), 64);
    assert!(digests.iter().all(|digest| *digest == digests[0]));
    assert_ne!(on("other", &records)[0].chain_digest, digests[0]);

    // A newly started worker has verified no chain yet.
    stack.restart_envoy().unwrap();
    send(&stack, 10);
    assert_eq!(chains(&until_recorded(&stack, "other", 40)).len(), 4);
}

#[test]
fn events_have_the_response_and_the_arguments_if_configured() {
    let options = with_more_rules("{arguments: full, response_status: true}");
    let stack = Stack::start(&options).unwrap();
    let mint = |id, tool| stack.mint("alice", &["--id", id, "--tool", tool]).unwrap();
    let (good, poor, cut) = (mint("good", READ), mint("poor", CHARGE), mint("cut", READ));
    assert_eq!(stack.send(&book().delegation(&good)).unwrap().status, 200);
    assert_eq!(stack.send(&book().delegation(&poor)).unwrap().status, 403);
    let upload = Request::new("POST", "/v1/uploads/book").header("content-length", "100");
    cut_off(&stack, &upload.delegation(&cut), 1);
    let records = stack.until_all_is_accounted_for().unwrap();
    for (leaf, status) in [("good", 200), ("poor", 403), ("cut", 0)] {
        let events = on(leaf, &records);
        let [event] = events.as_slice() else {
            panic!("{leaf}: {events:?}")
        };
        assert_eq!(event.response_status, status, "{leaf}");
    }
    let event = &on("good", &records)[0];
    assert_eq!(
        (event.arguments.as_str(), event.arguments_hash.as_str()),
        (r#"{"item":"book"}"#, "")
    );
}

#[test]
fn an_event_does_not_wait_for_the_end_of_a_long_answer() {
    let stack = Stack::start(&with_more_rules("{response_status: true}")).unwrap();
    let chain = stack.mint("alice", &["--id", "leaf", "--tool", READ]).unwrap();
    // The service echoes the body: more than fits between Envoy and a client that does not read.
    let upload = Request::new("POST", "/v1/uploads/book").trailing(vec![b'x'; 20_000_000]);
    let upload = upload.header("content-length", "20000000").delegation(&chain);
    let mut client = Client::connect(stack.envoy.ingress()).unwrap();
    client.send_part(&upload.encode()).unwrap();
    let records = until_recorded(&stack, "leaf", 1);
    assert_eq!(on("leaf", &records)[0].response_status, 200);
    assert_eq!(stack.envoy.stat("http.ingress.downstream_rq_active").unwrap(), 1);
    drop(client);
    stack.until_all_is_accounted_for().unwrap();
}

#[test]
fn each_denial_of_a_flood_on_one_chain_is_accounted_for_and_few_are_events() {
    let stack = Stack::start(&with_more_rules("{denials_per_second: 2}")).unwrap();
    let chain = stack.mint("alice", &["--id", "leaf", "--tool", CHARGE]).unwrap();
    let mut client = Client::connect(stack.envoy.ingress()).unwrap();
    let began = Instant::now();
    for _ in 0..200 {
        assert_eq!(client.send(&book().delegation(&chain)).unwrap().status, 403);
    }
    // At most this many seconds of the clock.
    let seconds = began.elapsed().as_secs() + 2;
    let records = stack.until_all_is_accounted_for().unwrap();
    let events = on("leaf", &records).len() as u64;
    assert!((2..=2 * seconds).contains(&events), "{events} in {seconds} s");
    let counted = tally(&records)[&("count", "catalog", "tool_not_granted", "deny", "enforce")];
    assert_eq!(events + counted, 200);
}

#[test]
fn nothing_is_recorded_with_record_none() {
    let stack = Stack::start(&with_more_rules("{record: none}")).unwrap();
    let chain = stack.mint("alice", &["--tool", READ]).unwrap();
    assert_eq!(stack.send(&book().delegation(&chain)).unwrap().status, 200);
    waiting::until("the decision to be counted in the metrics", || {
        let name = "wasmcustom.credence_decision.rule.catalog.decision.allow.reason.delegated";
        Ok((stack.envoy.stat(name)? == 1).then_some(()))
    })
    .unwrap();
    assert_eq!(stack.envoy.stat("wasmcustom.credence_audit_streams").unwrap(), 0);
    assert!(stack.records().unwrap().is_empty());
}

#[test]
fn a_control_plane_that_does_not_answer_delays_no_request_and_costs_no_evidence() {
    let options = StackOptions::default().patient();
    let stack = Stack::start(&options).unwrap();
    let chain = stack.mint("alice", &["--id", "leaf", "--tool", READ]).unwrap();
    assert_eq!(stack.send(&book().delegation(&chain)).unwrap().status, 200);
    stack.control_plane.suspend().unwrap();
    let mut slowest = Duration::ZERO;
    for client in &mut stack.envoy.connection_to_every_worker().unwrap() {
        // More than may be in flight.
        for _ in 0..3_000 {
            let began = Instant::now();
            assert_eq!(client.send(&book().delegation(&chain)).unwrap().status, 200);
            slowest = slowest.max(began.elapsed());
        }
    }
    stack.control_plane.resume().unwrap();
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    let records = stack.until_all_is_accounted_for().unwrap();
    assert_numbered(&records);
    assert_eq!(on("leaf", &records).len(), 6_001);
    assert!(!records.iter().any(|record| matches!(record.kind, Kind::Gap { .. })));
}

#[test]
fn a_record_says_who_did_what_for_whom() {
    let stack = Stack::start(&StackOptions::quick()).unwrap();
    stack.wait_until_proofs_count().unwrap();
    let helper = stack.credence.keygen("helper").unwrap();
    let root = stack
        .mint("alice", &["--id", "the-root", "--tool", CHARGE, "--max-depth", "1"])
        .unwrap();
    let chain = stack
        .derive(&root, &helper, &["--id", "the-leaf", "--same-tools"])
        .unwrap();
    let proof = stack.prove_charge(&chain, &helper, "very-secret-account", "7").unwrap();
    let request = Request::post("/v1/accounts/very-secret-account/charges?amount=7")
        .delegation(chain)
        .proof(proof);
    let reply = stack.send(&request).unwrap();
    let received = reply.received().unwrap();

    let records = until_recorded(&stack, "the-leaf", 1);
    let decisions = on("the-leaf", &records);
    let [decision] = decisions.as_slice() else {
        panic!("{decisions:?}")
    };
    assert_eq!(
        (decision.decision.as_str(), decision.reason.as_str()),
        ("allow", "delegated")
    );
    assert_eq!(
        (decision.rule.as_str(), decision.tool.as_str()),
        ("charge", "payments.charge")
    );
    assert_eq!(
        (
            decision.principal.issuer.as_str(),
            decision.principal.subject.as_deref()
        ),
        (ISSUER, Some("alice"))
    );
    assert_eq!(decision.delegation_ids, ["the-root", "the-leaf"]);
    assert_eq!(decision.proof, "pop");
    assert_eq!(Some(decision.agent.as_str()), received.header("x-delegation-agent"));
    assert_eq!(Some(decision.request_id.as_str()), received.header("x-request-id"));
    assert_eq!(
        (decision.method.as_str(), decision.path_template.as_str()),
        ("POST", "/v1/accounts/{account}/charges")
    );
    // 16 bytes of salt and 32 of digest. The arguments themselves are in no record.
    assert_eq!(decision.arguments_hash.len(), 96);
    assert!(!format!("{records:?}").contains("very-secret-account"));
}

#[test]
fn acknowledged_evidence_survives_a_crash_and_the_rest_is_sent_again_once() {
    let mut stack = Stack::start(&StackOptions::quick()).unwrap();
    let chain = |id| stack.mint("alice", &["--id", id, "--tool", READ]).unwrap();
    let (before, meanwhile) = (chain("before"), chain("meanwhile"));
    let send = |stack: &Stack, chain: &str| {
        for client in &mut stack.envoy.connection_to_every_worker().unwrap() {
            for _ in 0..25 {
                assert_eq!(client.send(&book().delegation(chain)).unwrap().status, 200);
            }
        }
    };
    send(&stack, &before);
    let recorded = until_recorded(&stack, "before", 50);

    stack.control_plane.kill().unwrap();
    send(&stack, &meanwhile);
    stack.control_plane.restart().unwrap();
    let kept = stack.records().unwrap();
    assert_eq!(on("before", &kept).len(), 50);
    for record in &recorded {
        assert!(
            kept.iter()
                .any(|other| other.index == record.index && other.sequence == record.sequence),
            "{record:?}"
        );
    }

    let records = until_recorded(&stack, "meanwhile", 50);
    assert_eq!(
        (on("before", &records).len(), on("meanwhile", &records).len()),
        (50, 50)
    );
    assert_numbered(&records);
}

#[test]
fn a_crash_in_the_middle_of_a_stream_of_decisions_loses_and_duplicates_none() {
    let mut stack = Stack::start(&StackOptions::quick()).unwrap();
    let chain = stack.mint("alice", &["--id", "leaf", "--tool", READ]).unwrap();
    let mut client = Client::connect(stack.envoy.ingress()).unwrap();
    let mut allowed = 0;
    for round in 0..3 {
        for _ in 0..400 {
            allowed += usize::from(client.send(&book().delegation(&chain)).unwrap().status == 200);
        }
        // While batches are in flight.
        stack.control_plane.kill().unwrap();
        stack.control_plane.restart().unwrap();
        assert!(allowed > round * 400);
        stack.wait_until_synced().unwrap();
    }
    let records = until_recorded(&stack, "leaf", allowed);
    assert_eq!(on("leaf", &records).len(), allowed);
    assert_numbered(&records);
}
