//! A filter that traps lets no request through, and decides the next one again.
//!
//! The module is the built one, with a trap inserted into one of its functions ([`credence_e2e::module`]).

use std::fs;
use std::time::Duration;

use credence_e2e::artefacts::Artefacts;
use credence_e2e::audit::{Kind, Record};
use credence_e2e::grants::READ;
use credence_e2e::received::MARK;
use credence_e2e::{Http2, Reply, Request, Stack, StackOptions, module, waiting};

/// A stack whose filter traps at the start of `export`, under the condition in `instructions`.
fn trapping(export: &str, instructions: &[u8], options: StackOptions) -> Stack {
    let built = fs::read(Artefacts::from_environment().unwrap().filter).unwrap();
    let filter = Some(module::with_instructions(&built, export, instructions).unwrap());
    Stack::start(&StackOptions { filter, ..options }).unwrap()
}

fn book(chain: &str) -> Request {
    Request::get("/v1/catalog/book").delegation(chain)
}

/// Asserts that Envoy answered for the trapped filter, and that the service got no request.
#[track_caller]
fn assert_trapped(stack: &Stack, reply: &Reply, mark: &str) {
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert_eq!(reply.reason(), None, "the filter itself answered");
    assert!(!stack.upstream.has_seen(mark), "the service has seen the request");
}

/// Repeats the request until there is a new VM with its first snapshot. Envoy starts at most one a second. Until then,
/// no request passes.
fn until_decided(client: &Http2, request: &Request) -> Reply {
    waiting::until("the new VM to decide", || {
        let reply = client.send(request)?;
        let is_waiting = reply.status == 503 && matches!(reply.reason().as_deref(), None | Some("not_ready"));
        Ok((!is_waiting).then_some(reply))
    })
    .unwrap()
}

/// How often a source of evidence had this change.
fn changes(records: &[Record], wanted: &str) -> usize {
    let is_wanted = |record: &&Record| matches!(&record.kind, Kind::Source { change, .. } if change == wanted);
    records.iter().filter(is_wanted).count()
}

#[test]
fn a_request_that_traps_the_filter_is_denied_and_the_next_is_decided_as_usual() {
    // Every request with a body traps, on any path.
    let stack = trapping(
        "proxy_on_request_headers",
        module::TRAP_IF_THIRD_IS_ZERO,
        StackOptions::quick(),
    );
    let chain = stack.mint("alice", &["--id", "leaf", "--tool", READ]).unwrap();
    // One connection is one worker's, and stays open after an early answer.
    let worker = Http2::connect(stack.envoy.ingress()).unwrap();
    assert_eq!(worker.send(&book(&chain)).unwrap().status, 200);

    for (round, trapped) in [book(&chain), Request::get("/healthz")].into_iter().enumerate() {
        let mark = format!("trapped-{round}");
        let reply = worker.send(&trapped.header(MARK, &mark).json("{}")).unwrap();
        assert_trapped(&stack, &reply, &mark);
        let reply = until_decided(&worker, &book(&chain));
        assert!(reply.received().is_some(), "{} {}", reply.status, reply.text());
        assert_eq!(worker.send(&book("no token")).unwrap().status, 401);
    }
    // Each VM reports as its own source: two workers, the main thread, and the two new ones.
    waiting::until("the new VMs to report", || {
        Ok((changes(&stack.records()?, "started") == 5).then_some(()))
    })
    .unwrap();
}

#[test]
fn a_chain_verified_before_a_trap_costs_the_next_vm_no_signature() {
    let stack = trapping(
        "proxy_on_request_headers",
        module::TRAP_IF_THIRD_IS_ZERO,
        StackOptions::quick(),
    );
    let chain = stack.mint("alice", &["--id", "leaf", "--tool", READ]).unwrap();
    let worker = Http2::connect(stack.envoy.ingress()).unwrap();
    assert_eq!(worker.send(&book(&chain)).unwrap().status, 200);
    assert_eq!(until_known(&stack, 1), ["none"], "it was verified");
    waiting::until("the chain to be shared", || {
        let stored = stack.envoy.stat("wasmcustom.credence_shared_cache_stored")?;
        Ok((stored >= 1).then_some(()))
    })
    .unwrap();

    let trapped = worker.send(&Request::get("/healthz").json("{}")).unwrap();
    assert_trapped(&stack, &trapped, "none");
    assert_eq!(until_decided(&worker, &book(&chain)).status, 200);
    assert_eq!(until_known(&stack, 2), ["none", "l2"]);
}

/// Where the chain was found in each decision on it, once this many are recorded.
fn until_known(stack: &Stack, decisions: usize) -> Vec<String> {
    waiting::until(format_args!("{decisions} decisions to be recorded"), || {
        let records = stack.records()?;
        let known = records.iter().filter_map(|record| {
            let decision = record.decision()?;
            let is_on_chain = decision.delegation_ids.last().is_some_and(|id| id == "leaf");
            is_on_chain.then(|| decision.cache.clone())
        });
        let known: Vec<String> = known.collect();
        Ok((known.len() >= decisions).then_some(known))
    })
    .unwrap()
}

#[test]
#[ignore = "takes 65 s: the control plane waits that long for a source to reconnect"]
fn evidence_that_a_trap_may_have_lost_is_on_record() {
    let stack = trapping(
        "proxy_on_request_headers",
        module::TRAP_IF_THIRD_IS_ZERO,
        StackOptions::quick(),
    );
    let worker = Http2::connect(stack.envoy.ingress()).unwrap();
    let trapped = worker.send(&Request::get("/healthz").json("{}")).unwrap();
    assert_trapped(&stack, &trapped, "none");
    // The next request makes Envoy restart the filter, which closes the old one's streams.
    until_decided(&worker, &Request::get("/healthz"));
    waiting::until_at_most(
        Duration::from_secs(90),
        "the ledger to say that evidence may be missing",
        || Ok((changes(&stack.records()?, "ended, tail unknown") == 1).then_some(())),
    )
    .unwrap();
}

#[test]
fn a_request_that_is_held_for_its_body_never_passes_if_the_filter_traps_meanwhile() {
    // The filter's body callback traps when a part of the body arrives.
    const ORDERS: &str = r#"rules:
                              - name: orders
                                match: {methods: [POST], path: "/v1/orders/{item}"}
                                tool: catalog.read
                                args: {item: {path: item}, amount: {body: /amount, type: number}}
                                proof: none
"#;
    let options = StackOptions::quick().replacing("rules:\n", ORDERS);
    let stack = trapping("proxy_on_request_body", module::TRAP, options);
    let chain = stack.mint("alice", &["--tool", ORDER]).unwrap();
    let order = |mark: &str| {
        Request::new("POST", "/v1/orders/book")
            .header(MARK, mark)
            .delegation(&chain)
    };

    // Two requests on one worker, both held; a part of the first traps their VM.
    let client = Http2::connect(stack.envoy.ingress()).unwrap();
    let open = |mark| {
        client
            .open(&order(mark).header("content-type", "application/json"))
            .unwrap()
    };
    let (mut first, mut second) = (open("first"), open("second"));
    first.send_part(br#"{"amount":"#, false).unwrap();
    assert_trapped(&stack, &first.finish().unwrap(), "first");
    // The other one belongs to a VM that is gone. Envoy may answer anything, but must not forward it.
    let rest = second
        .send_part(br#"{"amount": 5}"#, true)
        .and_then(|()| second.finish());
    if let Ok(reply) = rest {
        assert_trapped(&stack, &reply, "second");
    }
    assert!(!stack.upstream.has_seen("second"));

    // The next request is decided, as long as no request waits for a body.
    let chain = stack.mint("alice", &["--tool", READ]).unwrap();
    assert!(until_decided(&client, &book(&chain)).received().is_some());
}

const ORDER: &str = r#"catalog.read={"item":{"constraint_type":"wildcard"},"amount":{"constraint_type":"wildcard"}}"#;

#[test]
fn the_module_exports_what_envoy_needs_and_no_way_to_trap_it() {
    let built = fs::read(Artefacts::from_environment().unwrap().filter).unwrap();
    // Each callback costs a call into the VM, even if it does nothing.
    let needed = [
        "_initialize",
        "memory",
        "proxy_abi_version_0_2_1",
        "proxy_on_configure",
        "proxy_on_context_create",
        "proxy_on_done",
        "proxy_on_grpc_close",
        "proxy_on_grpc_receive",
        "proxy_on_memory_allocate",
        "proxy_on_request_body",
        "proxy_on_request_headers",
        "proxy_on_request_trailers",
        "proxy_on_tick",
        "proxy_on_vm_start",
    ];
    let mut exports = module::exports(&built).unwrap();
    // The linker's memory symbols are not functions.
    exports.retain(|name| !name.starts_with("__"));
    assert_eq!(exports, needed);
}
