//! A new configuration is applied while requests arrive. No request is dropped. Each is decided by the old or the new
//! one, and none by the old one after the new one has decided. The old one's records are not lost.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use credence_e2e::audit::{Kind, Record};
use credence_e2e::configuration::{Replacement, Watching};
use credence_e2e::grants::READ;
use credence_e2e::{Client, Failure, Http2, Request, Stack, StackOptions, process, waiting};

/// The rule for the catalogue asks for another tool, a denied path is open, and the open path is gone.
fn other_rules() -> Vec<Replacement> {
    vec![
        Replacement::once("tool: catalog.read", "tool: catalog.browse"),
        Replacement::once("match: {path: /healthz}", "match: {path: /livez}"),
    ]
}

/// A request, and its status before and after.
struct Probe {
    request: Request,
    before: u16,
    after: u16,
}

fn probes(stack: &Stack) -> Vec<Probe> {
    let reader = stack.mint("alice", &["--tool", READ]).unwrap();
    let browser = stack.mint("bob", &["--tool", BROWSE]).unwrap();
    let book = || Request::get("/v1/catalog/book");
    let probe = |request, before, after| Probe { request, before, after };
    vec![
        probe(book().delegation(reader), 200, 403),
        probe(book().delegation(browser), 403, 200),
        probe(book(), 401, 401),
        probe(book().delegation("no token"), 401, 401),
        probe(Request::get("/healthz"), 200, 403),
        probe(Request::get("/livez"), 403, 200),
        probe(Request::get("/elsewhere"), 403, 403),
    ]
}

const BROWSE: &str = r#"catalog.browse={"item":{"constraint_type":"wildcard"}}"#;

fn reconfigurable(watching: Watching) -> Stack {
    let options = StackOptions {
        watching: Some(watching),
        ..StackOptions::quick()
    };
    Stack::start(&options).unwrap()
}

/// Sends the probes in turn until told to stop, and checks every status. `is_over` gets the number of answers by the
/// new configuration so far, and returns whether the old one may no longer answer. `asked` counts requests. Returns how
/// many requests only the old and only the new configuration can have answered.
fn load(
    mut send: impl FnMut(&Request) -> Result<u16, Failure>,
    probes: &[Probe],
    is_over: impl Fn(usize) -> bool,
    done: &AtomicBool,
    asked: &AtomicUsize,
) -> Result<[usize; 2], Failure> {
    let (mut by_old, mut by_new) = (0, 0);
    for Probe { request, before, after } in probes.iter().cycle() {
        if done.load(Ordering::Relaxed) {
            break;
        }
        let is_over = is_over(by_new);
        let status = send(request)?;
        asked.fetch_add(1, Ordering::Relaxed);
        if status == *after && status == *before {
            continue;
        }
        if status == *after {
            by_new += 1;
        } else if status == *before && !is_over {
            by_old += 1;
        } else {
            let what = format!("{request:?} got {status}, neither {before} before nor {after} after; new: {by_new}");
            return Err(Failure::new(what));
        }
    }
    Ok([by_old, by_new])
}

/// Waits for this many more requests.
fn until_asked(asked: &AtomicUsize, more: usize) {
    let already = asked.load(Ordering::Relaxed);
    waiting::until(format_args!("{more} requests more"), || {
        Ok((asked.load(Ordering::Relaxed) >= already + more).then_some(()))
    })
    .unwrap();
}

/// Ends the load when dropped, also after a failure.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn each_request_is_decided_by_one_configuration_and_no_evidence_is_lost() {
    let stack = reconfigurable(Watching::Filter);
    let probes = probes(&stack);
    let (done, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut clients = stack.envoy.connection_to_every_worker().unwrap();
    let by_2 = Http2::connect(stack.envoy.ingress()).unwrap();
    thread::scope(|scope| {
        let stop = Stop(&done);
        let mut loads: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                let send = |request: &Request| Ok(client.send(request)?.status);
                scope.spawn(|| load(send, &probes, |by_new| by_new > 0, &done, &asked))
            })
            .collect();
        loads.push(scope.spawn(|| {
            let send = |request: &Request| Ok(by_2.send(request)?.status);
            load(send, &probes, |by_new| by_new > 0, &done, &asked)
        }));
        until_asked(&asked, 300);
        stack.reconfigure(&other_rules()).unwrap();
        let mut witness = Client::connect(stack.envoy.ingress()).unwrap();
        waiting::until("the new configuration to decide", || {
            Ok((witness.send(&Request::get("/livez"))?.status == 200).then_some(()))
        })
        .unwrap();
        until_asked(&asked, 600);
        drop(stop);
        for load in loads {
            let [by_old, by_new] = load.join().unwrap().unwrap();
            assert!(
                by_old > 0 && by_new > 0,
                "{by_old} by the old one, {by_new} by the new one"
            );
        }
    });

    assert_all_is_on_record(&stack);
}

#[test]
fn each_request_is_decided_by_one_configuration_when_the_listener_is_replaced() {
    let stack = reconfigurable(Watching::Listener);
    let probes = probes(&stack);
    let (done, asked, is_over) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let stop = Stop(&done);
        let loads: Vec<_> = (0..3)
            .map(|_| {
                let mut client = None;
                let (ingress, is_over) = (stack.envoy.ingress(), &is_over);
                let send = move |request: &Request| {
                    let mut connected = match client.take() {
                        Some(connected) => connected,
                        None => Client::connect(ingress)?,
                    };
                    let reply = connected.send(request)?;
                    // The old listener closes its connections with an answer.
                    client = (reply.header("connection") != Some("close")).then_some(connected);
                    Ok(reply.status)
                };
                let is_over = move |_| is_over.load(Ordering::Relaxed);
                let (probes, done, asked) = (&probes, &done, &asked);
                scope.spawn(move || load(send, probes, is_over, done, asked))
            })
            .collect();
        until_asked(&asked, 300);
        stack.reconfigure(&other_rules()).unwrap();
        waiting::until("the old listener to have ended", || {
            let has_ended = stack.envoy.stat("listener_manager.listener_in_place_updated")? == 1
                && stack.envoy.stat("listener_manager.total_filter_chains_draining")? == 0;
            Ok(has_ended.then_some(()))
        })
        .unwrap();
        is_over.store(true, Ordering::Relaxed);
        until_asked(&asked, 300);
        drop(stop);
        for load in loads {
            let [by_old, by_new] = load.join().unwrap().unwrap();
            assert!(
                by_old > 0 && by_new > 0,
                "{by_old} by the old one, {by_new} by the new one"
            );
        }
    });
    assert_all_is_on_record(&stack);
}

/// Each one in a root context of its own, whose memory, streams and timers have to go with it.
#[test]
#[ignore = "takes minutes"]
fn a_thousand_reconfigurations_leave_nothing_behind() {
    let stack = reconfigurable(Watching::Filter);
    let reader = stack.mint("alice", &["--tool", READ]).unwrap();
    let mut clients = stack.envoy.connection_to_every_worker().unwrap();
    let mut replace = |times: usize| {
        for number in 0..times {
            let path = format!("/alive-{number}");
            let health = format!("match: {{path: {path}}}");
            let change = Replacement::once("match: {path: /healthz}", &health);
            stack.reconfigure(&[change]).unwrap();
            for client in &mut clients {
                waiting::until(format_args!("{path} to be open"), || {
                    Ok((client.send(&Request::get(&path))?.status == 200).then_some(()))
                })
                .unwrap();
                let book = Request::get("/v1/catalog/book").delegation(&reader);
                assert_eq!(client.send(&book).unwrap().status, 200);
            }
            // The view stays fresh as long as a configuration lives for one answer of the control plane.
            thread::sleep(Duration::from_millis(50));
        }
        // The last one that was replaced delivers its evidence.
        thread::sleep(Duration::from_secs(2));
        let cpu = process::cpu_time(stack.envoy.id()).unwrap();
        thread::sleep(Duration::from_secs(2));
        let at_rest = process::cpu_time(stack.envoy.id()).unwrap() - cpu;
        let held_by_vms = stack.envoy.stat("wasmcustom.credence_memory_bytes").unwrap() / MIB;
        (held_by_vms, process::resident_mib(stack.envoy.id()).unwrap(), at_rest)
    };
    let few = replace(100);
    let many = replace(1_000);
    eprintln!("VM MiB, resident MiB, CPU in 2 s at rest: {few:?}, {many:?}");
    assert!(many.0 <= few.0 + 1, "{few:?} {many:?}");
    assert!(many.1 <= few.1 + 8.0, "{few:?} {many:?}");
    assert!(many.2 <= few.2 * 2, "{few:?} {many:?}");
}

const MIB: u64 = 1 << 20;

/// Events and counts of both configurations add up to the requests, and the old one has said bye.
#[track_caller]
fn assert_all_is_on_record(stack: &Stack) {
    waiting::until("everything to be recorded", || {
        let records = stack.records()?;
        let recorded: u64 = records.iter().map(Record::decisions).sum();
        let requests = stack.envoy.stat("http.ingress.downstream_rq_completed")?;
        let is_end = |record: &&Record| matches!(&record.kind, Kind::Source { change, .. } if change == "ended");
        let ended = records.iter().filter(is_end).count();
        Ok((recorded == requests && ended >= 3).then_some(()))
    })
    .unwrap();
    let records = stack.records().unwrap();
    assert!(!records.iter().any(|record| matches!(record.kind, Kind::Gap { .. })));
}

#[test]
fn a_configuration_with_an_error_leaves_the_previous_one_in_force() {
    let stack = reconfigurable(Watching::Filter);
    stack
        .reconfigure(&[Replacement::once("default: deny", "defautl: allow")])
        .unwrap();
    waiting::until("Envoy to refuse the configuration", || {
        Ok(stack.envoy.log().contains("defautl").then_some(()))
    })
    .unwrap();
    for Probe { request, before, .. } in probes(&stack) {
        assert_eq!(stack.send(&request).unwrap().status, before, "{request:?}");
    }
    // And the next valid one is applied.
    stack.reconfigure(&other_rules()).unwrap();
    let probes = probes(&stack);
    for client in &mut stack.envoy.connection_to_every_worker().unwrap() {
        waiting::until("the new configuration to decide", || {
            Ok((client.send(&Request::get("/livez"))?.status == 200).then_some(()))
        })
        .unwrap();
        for Probe { request, after, .. } in &probes {
            assert_eq!(client.send(request).unwrap().status, *after, "{request:?}");
        }
    }
}

#[test]
fn a_request_that_is_held_for_its_body_is_decided_by_the_configuration_that_began_it() {
    const ORDERS: &str = r#"rules:
                              - name: orders
                                match: {methods: [POST], path: "/v1/orders/{item}"}
                                tool: catalog.read
                                args: {item: {path: item}, amount: {body: /amount, type: number}}
                                proof: none
"#;
    let options = StackOptions {
        watching: Some(Watching::Filter),
        ..StackOptions::quick().replacing("rules:\n", ORDERS)
    };
    let stack = Stack::start(&options).unwrap();
    let tool = r#"catalog.read={"item":{"constraint_type":"wildcard"},"amount":{"constraint_type":"range","max":100}}"#;
    let chain = stack.mint("alice", &["--tool", tool]).unwrap();
    let client = Http2::connect(stack.envoy.ingress()).unwrap();
    let order = Request::new("POST", "/v1/orders/book")
        .header("content-type", "application/json")
        .delegation(&chain);
    let mut held = client.open(&order).unwrap();
    let mut refused = client.open(&order).unwrap();
    for exchange in [&mut held, &mut refused] {
        exchange.send_part(br#"{"amount":"#, false).unwrap();
    }
    stack
        .reconfigure(&[Replacement::once(
            "path: \"/v1/orders/{item}\"",
            "path: \"/v2/orders/{item}\"",
        )])
        .unwrap();
    waiting::until("the new configuration to decide", || {
        Ok((client.send(&order)?.reason().as_deref() == Some("no_route")).then_some(()))
    })
    .unwrap();
    held.send_part(b"5}", true).unwrap();
    refused.send_part(b"500}", true).unwrap();
    let (held, refused) = (held.finish().unwrap(), refused.finish().unwrap());
    assert_eq!(
        held.received().map(|received| received.body).as_deref(),
        Some(r#"{"amount":5}"#),
        "{held:?}"
    );
    assert_eq!(
        (refused.status, refused.reason().as_deref()),
        (403, Some("argument_not_allowed"))
    );
    waiting::until("both to be recorded", || {
        let records = stack.records()?;
        let on_orders = records
            .iter()
            .filter_map(Record::decision)
            .filter(|decision| decision.rule == "orders");
        let mut reasons: Vec<&str> = on_orders.map(|decision| decision.reason.as_str()).collect();
        // Without the probes for the new configuration, which had no body.
        reasons.retain(|reason| *reason != "argument_missing");
        reasons.sort_unstable();
        Ok((reasons == ["argument_not_allowed", "delegated"]).then_some(()))
    })
    .unwrap();
}
