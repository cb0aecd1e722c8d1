//! One holder uses up the resources that a worker shares: places for bodies, the ring, the ledger and the caches.
//! Another principal's requests are answered as before, and each is in the evidence.
//!
//! Each test sends the same requests of a bystander twice, alone and during the flood, and prints both results.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use credence_e2e::audit::{Decision, Kind, Record};
use credence_e2e::forge::{Claims, Forger};
use credence_e2e::{AUDIENCE, Client, Http2, ISSUER, Request, Stack, StackOptions, waiting};

/// Rules that hold a request until its body has arrived.
const ORDERS: &str = r#"rules:
                              - name: orders
                                match: {methods: [POST], path: /v1/orders}
                                tool: orders.create
                                args: {amount: {body: /amount, type: number}}
                                proof: none
                              - name: signed-orders
                                match: {methods: [POST], path: /v1/signed-orders}
                                tool: orders.create
                                args: {amount: {body: /amount, type: number}}
                                proof: pop
"#;

const TOOLS: &str = r#"{"catalog.read": {"item": {"constraint_type": "wildcard"}},
                        "orders.create": {"amount": {"constraint_type": "wildcard"}}}"#;

/// The bystander's requests in each part of a test, and its rate per second.
const OFFERED: u32 = 200;
const PER_SECOND: u32 = 100;

/// One worker, so that the bystander and the flood meet there.
fn stack(audit: &str) -> Stack {
    let options = StackOptions {
        workers: Some(1),
        ..StackOptions::default()
    };
    let rules = format!("audit: {audit}\n                            {ORDERS}");
    let options = options
        .replacing("rules:\n", &rules)
        .patient()
        .replacing("max_concurrent_streams: 100", "max_concurrent_streams: 2000");
    Stack::start(&options).unwrap()
}

/// A holder who derives any number of leaves from one root.
struct Holder {
    key: Forger,
    claims: Claims,
    root: String,
}

impl Holder {
    fn new(stack: &Stack, subject: &str, id: &str) -> Self {
        let key = Forger::from_file(&stack.agent.file).unwrap();
        let issuer = Forger::from_file(&stack.issuer.file).unwrap();
        let mut claims = Claims::root(ISSUER, subject, &key, TOOLS).unwrap();
        claims.jti = id.to_owned();
        let root = issuer.token(&claims).unwrap();
        Self { key, claims, root }
    }

    /// A new chain for a new key, `padding` bytes longer than necessary. It grants only `tool`.
    fn fresh(&self, number: u64, tool: &str, padding: usize) -> String {
        let mut seed = [7; 32];
        seed[..8].copy_from_slice(&number.to_le_bytes());
        let argument = if tool == "orders.create" { "amount" } else { "item" };
        let tools = format!(
            r#"{{"{tool}": {{"{argument}": {{"constraint_type": "not_one_of", "excluded": ["{}"]}}}}}}"#,
            "x".repeat(padding)
        );
        let leaf = Claims::derived((&self.root, &self.claims), &self.key, &Forger::from_seed(seed), &tools).unwrap();
        format!("{}~{}", self.root, self.key.token(&leaf).unwrap())
    }
}

/// The results of the bystander's requests.
#[derive(Debug)]
struct Served {
    allowed: u32,
    per_second: f64,
}

/// Sends the bystander's requests. The time of each is fixed in advance.
fn offer(stack: &Stack, request: &Request) -> Served {
    let mut client = Client::connect(stack.envoy.ingress()).unwrap();
    let begin = Instant::now();
    let mut allowed = 0;
    for number in 0..OFFERED {
        let due = begin + Duration::from_secs(1) * number / PER_SECOND;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        allowed += u32::from(client.send(request).unwrap().status == 200);
    }
    Served {
        allowed,
        per_second: f64::from(allowed) / begin.elapsed().as_secs_f64(),
    }
}

/// Sends the bystander's requests alone, then while `flood` runs until it is told to stop. Returns the result of
/// `flood`: a number of requests.
fn compare(kind: &str, stack: &Stack, request: &Request, flood: impl FnOnce(&AtomicBool) -> u64 + Send) -> u64 {
    let alone = offer(stack, request);
    let stop = AtomicBool::new(false);
    let (during, flooded) = thread::scope(|scope| {
        let flood = scope.spawn(|| flood(&stop));
        // The flood stops even if the bystander fails.
        let _stop = Stop(&stop);
        // The flood starts before the bystander's first request.
        thread::sleep(Duration::from_millis(300));
        let during = offer(stack, request);
        stop.store(true, Ordering::Relaxed);
        (during, flood.join().unwrap())
    });
    eprintln!(
        r#"{{"flood": "{kind}", "of": {flooded}, "alone_per_second": {:.1}, "during_per_second": {:.1}, "ratio": {:.3}}}"#,
        alone.per_second,
        during.per_second,
        during.per_second / alone.per_second,
    );
    assert_eq!((alone.allowed, during.allowed), (OFFERED, OFFERED), "{kind}");
    assert!(
        during.per_second >= 0.8 * alone.per_second,
        "{kind}: {during:?} beside {alone:?}"
    );
    flooded
}

struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends requests with new chains until told to stop, and returns how many.
fn flood_with(stack: &Stack, stop: &AtomicBool, chain: impl Fn(u64) -> String) -> u64 {
    let mut client = Client::connect(stack.envoy.ingress()).unwrap();
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        client.send(&book(&chain(sent))).unwrap();
        sent += 1;
    }
    sent
}

fn book(chain: &str) -> Request {
    Request::get("/v1/catalog/book").delegation(chain)
}

fn order(chain: &str) -> Request {
    Request::new("POST", "/v1/orders").delegation(chain)
}

/// The decisions about a principal's delegations.
fn about<'r>(subject: &str, records: &'r [Record]) -> Vec<&'r Decision> {
    let decisions = records.iter().filter_map(Record::decision);
    decisions
        .filter(|decision| decision.principal.subject.as_deref() == Some(subject))
        .collect()
}

fn chains(records: &[Record]) -> usize {
    let is_chain = |record: &&Record| matches!(record.kind, Kind::Chain);
    records.iter().filter(is_chain).count()
}

fn shed(records: &[Record]) -> u64 {
    let gaps = records.iter().map(|record| match record.kind {
        Kind::Gap { shed, .. } => shed,
        _ => 0,
    });
    gaps.sum()
}

#[track_caller]
fn assert_all_recorded(subject: &str, records: &[Record]) {
    let events = about(subject, records);
    assert_eq!(events.len(), 2 * OFFERED as usize, "events of {subject}");
}

#[test]
fn a_valid_holder_with_ever_new_leaves_does_not_slow_a_bystander() {
    let stack = stack("{}");
    let mallory = Holder::new(&stack, "mallory", "mallory-root");
    let bystander = Holder::new(&stack, "bob", "bob-root").root;
    let sent = compare("fresh leaves, alive", &stack, &book(&bystander), |stop| {
        flood_with(&stack, stop, |number| mallory.fresh(number, "catalog.read", 9_000))
    });
    let records = stack.until_all_is_accounted_for().unwrap();
    assert_all_recorded("bob", &records);
    // An allowed request is always an event, or a gap of the ring.
    let events = about("mallory", &records).len() as u64;
    assert_eq!(events + shed(&records), sent);
}

#[test]
fn a_revoked_holder_with_ever_new_leaves_writes_no_chains_and_few_events() {
    let stack = stack("{}");
    let mallory = Holder::new(&stack, "mallory", "mallory-root");
    let bystander = Holder::new(&stack, "bob", "bob-root").root;
    stack
        .revoke(&["principal", "--issuer", ISSUER, "--subject", "mallory"])
        .unwrap();
    let begin = Instant::now();
    let sent = compare("fresh leaves, revoked", &stack, &book(&bystander), |stop| {
        flood_with(&stack, stop, |number| mallory.fresh(number, "catalog.read", 9_000))
    });
    let seconds = begin.elapsed().as_secs() + 1;
    let records = stack.until_all_is_accounted_for().unwrap();
    assert_all_recorded("bob", &records);
    let events = about("mallory", &records).len() as u64;
    assert!(events >= 1, "the attempts are recorded");
    assert!(
        events <= 10 * seconds,
        "{events} events in {seconds} s of {sent} requests"
    );
    assert_eq!(chains(&records), 1, "only the bystander's chain");
}

#[test]
fn a_holder_whose_requests_are_denied_writes_few_chains_and_events() {
    let stack = stack("{denials_per_second: 20}");
    let mallory = Holder::new(&stack, "mallory", "mallory-root");
    let bystander = Holder::new(&stack, "bob", "bob-root").root;
    let begin = Instant::now();
    let sent = compare("denied requests", &stack, &book(&bystander), |stop| {
        // Each leaf is for a new key, and grants another tool.
        flood_with(&stack, stop, |number| mallory.fresh(number, "orders.create", 9_000))
    });
    let seconds = begin.elapsed().as_secs() + 1;
    let records = stack.until_all_is_accounted_for().unwrap();
    assert_all_recorded("bob", &records);
    let events = about("mallory", &records).len() as u64;
    assert!(events >= 20, "some are events: {events}");
    assert!(
        events <= 4 * 20 * seconds,
        "{events} events in {seconds} s of {sent} requests"
    );
    // 64 KiB of chains a second, of 13 KB each.
    let chains = chains(&records) as u64;
    assert!(chains <= 1 + 5 * seconds, "{chains} chains in {seconds} s");
}

#[test]
fn a_holder_who_fills_its_part_of_the_ring_sheds_only_its_own_evidence() {
    let stack = stack("{ring_entries: 4096}");
    let mallory = Holder::new(&stack, "mallory", "mallory-root").root;
    let bystander = Holder::new(&stack, "bob", "bob-root").root;
    // The ring is never emptied.
    stack.control_plane.suspend().unwrap();
    let sent = compare("a ring that does not empty", &stack, &book(&bystander), |stop| {
        let mut client = Client::connect(stack.envoy.ingress()).unwrap();
        let mut sent = 0;
        while sent < 3_000 || !stop.load(Ordering::Relaxed) {
            assert_eq!(client.send(&book(&mallory)).unwrap().status, 200);
            sent += 1;
        }
        sent
    });
    stack.control_plane.resume().unwrap();
    let records = stack.until_all_is_accounted_for().unwrap();
    assert_all_recorded("bob", &records);
    let events = about("mallory", &records).len() as u64;
    assert_eq!(events + shed(&records), sent);
    assert!(shed(&records) > 0, "the flood was larger than its part");
}

#[test]
fn with_deny_on_overflow_only_the_flood_is_denied() {
    let stack = stack("{ring_entries: 4096, on_overflow: deny}");
    let mallory = Holder::new(&stack, "mallory", "mallory-root").root;
    let bystander = Holder::new(&stack, "bob", "bob-root").root;
    stack.control_plane.suspend().unwrap();
    let denied = compare("a ring that does not empty, deny", &stack, &book(&bystander), |stop| {
        let mut client = Client::connect(stack.envoy.ingress()).unwrap();
        let (mut sent, mut denied) = (0, 0);
        while sent < 3_000 || !stop.load(Ordering::Relaxed) {
            let reply = client.send(&book(&mallory)).unwrap();
            denied += u64::from(reply.reason().as_deref() == Some("audit_full"));
            sent += 1;
        }
        denied
    });
    stack.control_plane.resume().unwrap();
    let records = stack.until_all_is_accounted_for().unwrap();
    assert_all_recorded("bob", &records);
    assert_eq!(shed(&records), 0);
    assert!(denied > 0, "the flood was larger than its part");
}

/// Requests of one holder whose bodies never arrive, over this many connections.
fn hold(stack: &Stack, request: &Request, requests: usize, connections: usize) -> Vec<credence_e2e::http2::Exchange> {
    let clients: Vec<_> = (0..connections)
        .map(|_| Http2::connect(stack.envoy.ingress()).unwrap())
        .collect();
    let request = request.clone().header("content-type", "application/json");
    (0..requests)
        .map(|number| clients[number % connections].open(&request).unwrap())
        .collect()
}

#[test]
fn a_holder_whose_bodies_never_come_leaves_places_for_others() {
    let stack = stack("{}");
    let mallory = Holder::new(&stack, "mallory", "mallory-root").root;
    let bystander = Holder::new(&stack, "bob", "bob-root").root;
    let request = order(&bystander).json(r#"{"amount": 5}"#);
    compare("held bodies", &stack, &request, |stop| {
        let held = hold(&stack, &order(&mallory), 1_100, 4);
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
        held.len() as u64
    });
    let records = stack.until_all_is_accounted_for().unwrap();
    assert_all_recorded("bob", &records);
}

#[test]
fn one_connection_leaves_places_for_others_for_any_holder() {
    let stack = stack("{}");
    let bystander = Holder::new(&stack, "bob", "bob-root").root;
    let request = order(&bystander).json(r#"{"amount": 5}"#);
    let holders: Vec<String> = (0..100)
        .map(|number| Holder::new(&stack, &format!("agent-{number}"), &format!("root-{number}")).root)
        .collect();
    compare("held bodies of many principals", &stack, &request, |stop| {
        let client = Http2::connect(stack.envoy.ingress()).unwrap();
        let held: Vec<_> = (0..1_100)
            .map(|number| {
                let request = order(&holders[number % holders.len()]).header("content-type", "application/json");
                client.open(&request).unwrap()
            })
            .collect();
        waiting::until("as many to be held as one connection may hold", || {
            Ok((stack.envoy.stat("wasmcustom.credence_held")? >= 512).then_some(()))
        })
        .unwrap();
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
        held.len() as u64
    });
}

#[test]
fn bodies_that_never_end_take_at_most_half_of_the_memory_for_bodies() {
    let stack = stack("{}\n                            limits: {held_bytes: 4194304, body_bytes: 120000}");
    let mallory = Holder::new(&stack, "mallory", "mallory-root").root;
    let bystander = Holder::new(&stack, "bob", "bob-root").root;
    let mut held = hold(&stack, &order(&mallory), 40, 40);
    for exchange in &mut held {
        exchange.send_part(&[b' '; 60_000], false).unwrap();
        exchange.send_part(&[b' '; 40_000], false).unwrap();
    }
    let refused = "wasmcustom.credence_decision.rule.orders.decision.deny.reason.too_many_held";
    waiting::until("bodies to be refused", || {
        // 40 of 100,000 bytes; 2 MiB is half of the limit.
        Ok((stack.envoy.stat(refused)? >= 18).then_some(()))
    })
    .unwrap();
    for _ in 0..20 {
        let reply = stack.send(&order(&bystander).json(r#"{"amount": 5}"#)).unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    drop(held);
    waiting::until("nothing to be held", || {
        Ok((stack.envoy.stat("wasmcustom.credence_held")? == 0).then_some(()))
    })
    .unwrap();
    let reply = stack.send(&order(&mallory).json(r#"{"amount": 5}"#)).unwrap();
    assert_eq!(reply.status, 200, "the memory is free again: {}", reply.text());
}

#[test]
fn a_proof_is_not_held_twice() {
    let stack = stack("{}");
    stack.wait_until_proofs_count().unwrap();
    let tool = r#"orders.create={"amount":{"constraint_type":"wildcard"}}"#;
    let chain = stack.mint("alice", &["--tool", tool]).unwrap();
    let prove = || {
        let key = stack.agent.path();
        let invocation = ["--tool", "orders.create", "--arg-json", "amount=5"];
        let proof = ["prove", "--chain", &chain, "--key", key, "--audience", AUDIENCE];
        stack.credence.run(proof.iter().chain(&invocation)).unwrap()
    };
    let signed = |proof: &str| {
        Request::new("POST", "/v1/signed-orders")
            .delegation(&chain)
            .proof(proof)
            .header("content-type", "application/json")
    };
    let (proof, another) = (prove(), prove());
    let client = Http2::connect(stack.envoy.ingress()).unwrap();
    let mut first = client.open(&signed(&proof)).unwrap();
    waiting::until("the first to be held", || {
        Ok((stack.envoy.stat("wasmcustom.credence_held")? == 1).then_some(()))
    })
    .unwrap();
    let second = client.open(&signed(&proof)).unwrap().finish().unwrap();
    assert_eq!(
        (second.status, second.reason().as_deref()),
        (401, Some("proof_replayed"))
    );
    // A new proof is held beside the first.
    let mut third = client.open(&signed(&another)).unwrap();
    for exchange in [&mut first, &mut third] {
        exchange.send_part(br#"{"amount": 5}"#, true).unwrap();
    }
    for exchange in [first, third] {
        let reply = exchange.finish().unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}
