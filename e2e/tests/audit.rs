//! Every decision is accounted for, once, whatever happens to the control plane.

use std::collections::BTreeMap;

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

/// Waits until that many decisions on the leaf are in the ledger, and returns all records.
fn until_recorded(stack: &Stack, leaf: &str, count: usize) -> Vec<Record> {
    waiting::until(format_args!("{count} decisions on {leaf} to be recorded"), || {
        let records = stack.records()?;
        Ok((on(leaf, &records).len() >= count).then_some(records))
    })
    .unwrap()
}

/// Each source's records are numbered from 1 without a gap or a double.
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
fn what_is_recorded_adds_up_to_the_requests_that_were_answered() {
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
    waiting::until("everything else to be recorded", || {
        let records = stack.records()?;
        let recorded: u64 = records.iter().map(Record::decisions).sum();
        // Public paths are not recorded, only counted.
        let public = stack
            .envoy
            .stat("wasmcustom.credence_decision.rule.health.decision.allow.reason.public")?;
        Ok((recorded + public == stack.envoy.stat("http.ingress.downstream_rq_completed")?).then_some(()))
    })
    .unwrap();
    assert_numbered(&records);
    assert_eq!(on("leaf", &records).len(), 100);
    let records = stack.records().unwrap();
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
    // 16 bytes of salt and 32 of digest; the arguments themselves nowhere.
    assert_eq!(decision.arguments_hash.len(), 96);
    assert!(!format!("{records:?}").contains("very-secret-account"));
}

#[test]
fn what_was_acknowledged_survives_a_crash_and_what_was_not_is_sent_again_once() {
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
fn a_crash_in_the_middle_of_a_stream_of_decisions_costs_and_doubles_none() {
    let mut stack = Stack::start(&StackOptions::quick()).unwrap();
    let chain = stack.mint("alice", &["--id", "leaf", "--tool", READ]).unwrap();
    let mut client = Client::connect(stack.envoy.ingress()).unwrap();
    let mut allowed = 0;
    for round in 0..3 {
        for _ in 0..400 {
            allowed += usize::from(client.send(&book().delegation(&chain)).unwrap().status == 200);
        }
        // While batches are on their way.
        stack.control_plane.kill().unwrap();
        stack.control_plane.restart().unwrap();
        assert!(allowed > round * 400);
        stack.wait_until_synced().unwrap();
    }
    let records = until_recorded(&stack, "leaf", allowed);
    assert_eq!(on("leaf", &records).len(), allowed);
    assert_numbered(&records);
}
