//! Envoy accepts requests before the filter has the revocations: they wait for it, but not for long.

use std::thread;
use std::time::Duration;

use credence_e2e::assertions::assert_denied;
use credence_e2e::audit::Kind;
use credence_e2e::gate::Gate;
use credence_e2e::grants::{CHARGE, READ};

use credence_e2e::{Client, Http2, Reply, Request, Stack, StackOptions, waiting};

/// The default setting.
const LIMIT: Duration = Duration::from_millis(500);

/// A stack whose filter cannot reach the control plane until the gate is opened.
struct Starting {
    stack: Stack,
    gate: Gate,
}

impl Starting {
    fn with(change: impl FnOnce(StackOptions) -> StackOptions) -> Self {
        let gate = Gate::shut().unwrap();
        let options = StackOptions {
            control_plane_port: Some(gate.port()),
            unsynced: true,
            ..StackOptions::default()
        };
        // Envoy must not close a silent connection behind the gate.
        let patient = options.replacing("{interval: 1s, timeout: 1s}", "{interval: 60s, timeout: 60s}");
        let stack = Stack::start(&change(patient)).unwrap();
        Self { stack, gate }
    }

    fn open(&self) {
        self.gate.open(self.stack.control_plane.grpc());
    }

    /// Waits until Envoy has this many open requests.
    fn wait_until_active(&self, requests: u64) {
        waiting::until(format_args!("{requests} unanswered requests"), || {
            let active = self.stack.envoy.stat("http.ingress.downstream_rq_active")?;
            Ok((active == requests).then_some(()))
        })
        .unwrap();
    }

    fn mint(&self) -> String {
        self.stack.mint("alice", &["--tool", READ, "--tool", CHARGE]).unwrap()
    }
}

/// Sends all requests at once, calls `meanwhile` once Envoy has them all, and returns the replies in order.
fn replies(starting: &Starting, requests: &[Request], meanwhile: impl FnOnce()) -> Vec<Reply> {
    thread::scope(|scope| {
        let send = |request| scope.spawn(move || starting.stack.send(request).unwrap());
        let threads: Vec<_> = requests.iter().map(send).collect();
        starting.wait_until_active(requests.len() as u64);
        meanwhile();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn book() -> Request {
    Request::get("/v1/catalog/book")
}

/// A rule that ignores the body, before those of envoy-config/envoy.yaml.
const BODIES: &str = r#"rules:
                              - {name: upload, match: {path: "/v1/uploads/{item}"}, tool: catalog.read, args: {item: {path: item}}, proof: none, ignore_body: true}
"#;

#[test]
fn requests_wait_for_the_revocations_and_are_then_decided_in_full() {
    let starting = Starting::with(|options| options.replacing("rules:\n", BODIES));
    let chain = starting.mint();
    let (signed, _) = chain.rsplit_once('.').unwrap();
    let upload = "0123456789".repeat(5_000);
    let requests = [
        book().delegation(&chain).header("x-delegation-subject", "mallory"),
        book().delegation(starting.stack.mint("alice", &["--tool", CHARGE]).unwrap()),
        book().delegation(format!("{signed}.{}", "A".repeat(86))),
        Request::new("PUT", "/v1/uploads/photo")
            .delegation(&chain)
            .header("content-length", upload.len().to_string())
            .trailing(upload.as_str()),
    ];
    let replies = replies(&starting, &requests, || starting.open());
    let received = |reply: &Reply| reply.received().unwrap_or_else(|| panic!("{}", reply.text()));
    let allowed = received(&replies[0]);
    assert_eq!(allowed.values("x-delegation-subject").collect::<Vec<_>>(), ["alice"]);
    assert_eq!(allowed.header("delegation"), None, "{allowed:?}");
    assert_denied(&replies[1], 403, "tool_not_granted");
    assert_denied(&replies[2], 401, "delegation_invalid");
    let uploaded = received(&replies[3]);
    assert_eq!((uploaded.method.as_str(), uploaded.body), ("PUT", upload));
}

#[test]
fn a_request_waits_no_longer_than_is_configured() {
    let starting = Starting::with(|options| options);
    let request = book().delegation(starting.mint());
    let replies = replies(&starting, &[request.clone(), request], || ());
    for reply in &replies {
        assert_denied(reply, 503, "not_ready");
        assert!(reply.header("retry-after").is_some(), "{reply:?}");
        assert!(reply.latency >= LIMIT, "{:?}", reply.latency);
    }
}

#[test]
fn requests_that_cannot_or_need_not_wait_do_not() {
    const SHADOW: &str = r#"rules:
                              - {name: watched, match: {path: /v1/watched}, tool: catalog.read, proof: none, mode: shadow}
                              - {name: order, match: {path: /v1/orders}, tool: catalog.read, args: {item: {body: /item}}, proof: none}
"#;
    let starting = Starting::with(|options| options.replacing("rules:\n", SHADOW));
    let chain = starting.mint();
    let order = Request::new("POST", "/v1/orders").delegation(&chain);
    for (request, status, reason) in [
        (Request::get("/healthz"), 200, None),
        (book(), 401, Some("delegation_missing")),
        (Request::get("/v1/watched").delegation(&chain), 200, None),
        (order.json(r#"{"item":"book"}"#), 503, Some("not_ready")),
    ] {
        let reply = starting.stack.send(&request).unwrap();
        assert_eq!(
            (reply.status, reply.reason().as_deref()),
            (status, reason),
            "{}",
            reply.text()
        );
        assert!(reply.latency < LIMIT, "{request:?}: {:?}", reply.latency);
    }
}

#[test]
fn waiting_can_be_turned_off() {
    let starting = Starting::with(|options| {
        options.replacing(
            "cluster: credence\n",
            "cluster: credence\n                              wait_for_snapshot: 0ms\n",
        )
    });
    let reply = starting.stack.send(&book().delegation(starting.mint())).unwrap();
    assert_denied(&reply, 503, "not_ready");
    assert!(reply.latency < LIMIT, "{:?}", reply.latency);
}

#[test]
fn a_request_that_goes_away_while_it_waits_is_on_record_once() {
    let starting = Starting::with(|options| options);
    let stack = &starting.stack;
    let chain = starting.mint();
    let mut client = Client::connect(stack.envoy.ingress()).unwrap();
    client.send_part(&book().delegation(&chain).encode()).unwrap();
    starting.wait_until_active(1);
    drop(client);
    starting.wait_until_active(0);
    starting.open();
    stack.wait_until_synced().unwrap();
    let reply = stack.send(&book().delegation(&chain)).unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    let unready: u64 = waiting::until("the record of both", || {
        let records = stack.records()?;
        let is_allowed = |kind: &Kind| matches!(kind, Kind::Decision(decision) if decision.decision == "allow");
        if !records.iter().any(|record| is_allowed(&record.kind)) {
            return Ok(None);
        }
        let counted = records.iter().map(|record| match &record.kind {
            Kind::Aggregate {
                rule, reason, count, ..
            } if (rule.as_str(), reason.as_str()) == ("catalog", "not_ready") => *count,
            _ => 0,
        });
        Ok(Some(counted.sum()).filter(|count| *count > 0))
    })
    .unwrap();
    assert_eq!(unready, 1);
    let counter = "wasmcustom.credence_decision.rule.catalog.decision.deny.reason.not_ready";
    assert_eq!(stack.envoy.stat(counter).unwrap(), 1);
}

#[test]
fn requests_that_share_a_connection_wait_and_are_answered_one_by_one() {
    let starting = Starting::with(|options| options);
    let book_only = r#"catalog.read={"item":{"constraint_type":"exact","value":"book"}}"#;
    let chain = starting.stack.mint("alice", &["--tool", book_only]).unwrap();
    let connection = Http2::connect(starting.stack.envoy.ingress()).unwrap();
    let ask = || {
        ["book", "pen", "book"].map(|item| {
            let request = Request::get(&format!("/v1/catalog/{item}")).delegation(&chain);
            connection.start(&request).unwrap()
        })
    };
    let early = ask();
    starting.wait_until_active(3);
    for exchange in early {
        let reply = exchange.finish().unwrap();
        assert_eq!(
            (reply.status, reply.reason().as_deref()),
            (503, Some("not_ready")),
            "{reply:?}"
        );
    }

    let [book, pen, cancelled] = ask();
    starting.wait_until_active(3);
    drop(cancelled);
    starting.wait_until_active(2);
    starting.open();
    let book = book.finish().unwrap();
    assert!(book.text().contains(r#""x-delegation-subject","alice""#), "{book:?}");
    let pen = pen.finish().unwrap();
    assert_eq!(
        (pen.status, pen.reason().as_deref()),
        (403, Some("argument_not_allowed")),
        "{pen:?}"
    );
}

/// This many connections, each with an open request.
fn crowd(starting: &Starting, size: usize) -> Vec<Client> {
    let request = book().delegation(starting.mint()).encode();
    let connect = |_| Client::connect(starting.stack.envoy.ingress()).unwrap();
    let mut clients: Vec<Client> = (0..size).map(connect).collect();
    for client in &mut clients {
        client.send_part(&request).unwrap();
    }
    clients
}

#[test]
fn all_waiting_requests_are_decided_at_once() {
    let starting = Starting::with(|options| options);
    let mut clients = crowd(&starting, 150);
    starting.wait_until_active(150);
    starting.open();
    for client in &mut clients {
        let reply = client.send_raw(&[]).unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}

/// Envoy resumes each of them from within the previous one. Too many at once would exhaust the stack of the worker's
/// VM, and the others would wait forever.
#[test]
fn all_requests_of_a_crowd_are_answered_at_the_limit() {
    let starting = Starting::with(|options| options);
    let machines = "wasm.envoy.wasm.runtime.v8.created";
    let before = starting.stack.envoy.stat(machines).unwrap();
    for client in &mut crowd(&starting, 1_000) {
        assert_denied(&client.send_raw(&[]).unwrap(), 503, "not_ready");
    }
    assert_eq!(
        starting.stack.envoy.stat(machines).unwrap(),
        before,
        "a VM was restarted"
    );
}
