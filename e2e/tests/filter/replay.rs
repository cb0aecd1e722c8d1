//! A proof counts once in the whole Envoy process, with any number of workers and under races.

use std::sync::{Barrier, LazyLock};
use std::thread;

use credence_e2e::grants::CHARGE;
use credence_e2e::{AUDIENCE, Client, Request, Stack, StackOptions, forge};

/// Shared by all tests; it stops with the process.
fn stack() -> &'static Stack {
    static STACK: LazyLock<Stack> = LazyLock::new(|| {
        let stack = Stack::start(&StackOptions::quick()).unwrap();
        stack.wait_until_proofs_count().unwrap();
        stack
    });
    &STACK
}

fn charge() -> Request {
    Request::post("/v1/accounts/acme/charges?amount=1")
}

#[test]
fn of_twenty_concurrent_uses_of_a_proof_on_both_workers_one_succeeds() {
    let connections = || (0..10).flat_map(|_| stack().envoy.connection_to_every_worker().unwrap());
    let mut clients: Vec<Client> = connections().collect();
    assert_eq!(clients.len(), 20);
    for _ in 0..5 {
        let chain = stack().mint("alice", &["--tool", CHARGE]).unwrap();
        let proof = stack().prove_charge(&chain, &stack().agent, "acme", "1").unwrap();
        let request = charge().delegation(chain).proof(proof);
        let all_ready = Barrier::new(clients.len());
        let replies: Vec<_> = thread::scope(|scope| {
            let send = |client| {
                let (request, all_ready) = (&request, &all_ready);
                scope.spawn(move || {
                    all_ready.wait();
                    Client::send(client, request).unwrap()
                })
            };
            let threads: Vec<_> = clients.iter_mut().map(send).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let allowed = replies.iter().filter(|reply| reply.status == 200).count();
        let replayed = replies
            .iter()
            .filter(|reply| reply.reason().as_deref() == Some("proof_replayed"))
            .count();
        assert_eq!((allowed, replayed), (1, 19));
    }
}

#[test]
fn every_new_proof_is_a_new_use() {
    let chain = stack().mint("alice", &["--tool", CHARGE]).unwrap();
    for _ in 0..5 {
        let proof = stack().prove_charge(&chain, &stack().agent, "acme", "1").unwrap();
        let reply = stack().send(&charge().delegation(&chain).proof(proof)).unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}

#[test]
fn two_holders_may_choose_the_same_id() {
    let helper = stack().credence.keygen("helper").unwrap();
    let root = stack().mint("alice", &["--tool", CHARGE, "--max-depth", "1"]).unwrap();
    let chain = stack().derive(&root, &helper, &["--same-tools"]).unwrap();
    for (chain, holder) in [(&root, &stack().agent), (&chain, &helper)] {
        let proof = stack().credence.run([
            "prove",
            "--chain",
            chain,
            "--key",
            holder.path(),
            "--audience",
            AUDIENCE,
            "--tool",
            "payments.charge",
            "--arg",
            "account=acme",
            "--arg-json",
            "amount=1",
            "--id",
            "one",
        ]);
        let reply = stack().send(&charge().delegation(chain).proof(proof.unwrap())).unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}

#[test]
fn a_proof_from_before_envoys_start_may_have_been_used_then() {
    let before_the_start = forge::now();
    let stack = Stack::start(&StackOptions::quick()).unwrap();
    let chain = stack
        .mint(
            "alice",
            &["--tool", CHARGE, "--issued-at", &(before_the_start - 1).to_string()],
        )
        .unwrap();
    let proof = stack.credence.run([
        "prove",
        "--chain",
        &chain,
        "--key",
        stack.agent.path(),
        "--audience",
        AUDIENCE,
        "--tool",
        "payments.charge",
        "--arg",
        "account=acme",
        "--arg-json",
        "amount=1",
        "--issued-at",
        &before_the_start.to_string(),
    ]);
    let reply = stack.send(&charge().delegation(chain).proof(proof.unwrap())).unwrap();
    assert_eq!(
        (reply.status, reply.reason().as_deref()),
        (401, Some("proof_predates_memory")),
        "{}",
        reply.text()
    );
}
