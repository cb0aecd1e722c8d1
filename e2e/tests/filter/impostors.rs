//! Identity claims in a request's headers or trailers are never passed on, on any kind of path: the service gets the
//! identity from the filter, or none.

use std::sync::LazyLock;

use credence_e2e::grants::READ;
use credence_e2e::received::{MARK, Received};
use credence_e2e::{Client, Http2, Reply, Request, Stack, StackOptions};

/// Rules before those of envoy-config/envoy.yaml: one of each kind.
const RULES: &str = r#"rules:
                              - name: watched
                                match: {path: "/v1/watched/{item}"}
                                mode: shadow
                                tool: catalog.read
                                args: {item: {path: item}}
                                ignore_body: true
                                proof: none
                              - name: socket
                                match: {path: "/v1/sockets/{item}"}
                                tool: catalog.read
                                args: {item: {path: item}}
                                proof: none
                                upgrade: true
                              - name: open-socket
                                match: {path: /v1/open-socket}
                                public: true
                                upgrade: true
                              - name: form
                                match: {methods: [POST], path: /v1/items}
                                tool: catalog.read
                                args: {item: {body: /item}}
                                proof: none
                              - name: upload
                                match: {methods: [POST], path: "/v1/uploads/{item}"}
                                tool: catalog.read
                                args: {item: {path: item}}
                                ignore_body: true
                                proof: none
                              - name: tenant
                                match: {methods: [POST], path: /v1/tenant, headers: {x-stage: {absent: true}}}
                                tool: catalog.read
                                args: {item: {header: x-tenant}}
                                ignore_body: true
                                proof: none
                              - name: old
                                match: {path: "/v1/old/{item}"}
                                tool: catalog.read
                                args: {item: {path: item}}
                                proof: none
                                on_stale: {allow_cached_for: 5m}
"#;

/// Spellings that some service reads as one of our headers.
const NAMES: &[&str] = &[
    "x-delegation-subject",
    "x-delegation-issuer",
    "x-delegation-agent",
    "x-delegation-proof",
    "x-delegation-tool",
    "x-delegation-id",
    "x-delegation-",
    "x-delegation-admin",
    "x_delegation_subject",
    "x-delegation_subject",
    "x_delegation-subject",
    "x-delegation-subject",
    "x.delegation.subject",
    "x-delegation.issuer",
    "x!delegation~tool",
    "x^delegation|agent",
    "x$delegation`id",
];

/// The same in mixed case, which HTTP/1.1 allows.
const MIXED: &[&str] = &[
    "X-Delegation-Subject",
    "X-DELEGATION-ISSUER",
    "X_Delegation_Tool",
    "X.Delegation*Subject",
];

fn options() -> StackOptions {
    StackOptions::quick()
        .in_either_protocol()
        .replacing("rules:\n", RULES)
        .replacing("default: deny", "default: allow")
        .replacing(
            "use_remote_address: true",
            "upgrade_configs: [{upgrade_type: websocket}]",
        )
}

/// Shared by all tests that leave the control plane alone; it stops with the process.
fn stack() -> &'static Stack {
    static STACK: LazyLock<Stack> = LazyLock::new(|| Stack::start(&options()).unwrap());
    &STACK
}

fn alice() -> String {
    stack().mint("alice", &["--id", "leaf", "--tool", READ]).unwrap()
}

fn forged(request: Request) -> Request {
    NAMES
        .iter()
        .fold(request, |request, name| request.header(name, "mallory"))
}

fn trailers() -> Vec<(&'static str, &'static str)> {
    NAMES.iter().map(|name| (*name, "mallory")).collect()
}

/// In both protocols, with every forged name.
#[track_caller]
fn received_by_either(stack: &Stack, request: &Request) -> [Received; 2] {
    let by_1 = MIXED
        .iter()
        .fold(forged(request.clone()), |request, name| request.header(name, "mallory"));
    let client = Http2::connect(stack.envoy.ingress()).unwrap();
    [
        received(&stack.send(&by_1).unwrap()),
        received(&client.send(&forged(request.clone())).unwrap()),
    ]
}

#[track_caller]
fn received(reply: &Reply) -> Received {
    reply.received().unwrap_or_else(|| panic!("{reply:?}"))
}

#[track_caller]
fn assert_gets_no_identity(received: &Received) {
    assert_eq!(received.identity_headers(), [""; 0], "{received:?}");
    assert!(!format!("{received:?}").contains("mallory"), "{received:?}");
}

#[track_caller]
fn assert_hears_of_alice(received: &Received) {
    assert_eq!(received.header("x-delegation-subject"), Some("alice"), "{received:?}");
    assert_eq!(received.header("x-delegation-tool"), Some("catalog.read"));
    // Issuer, subject, proof, tool and id.
    assert_eq!(received.identity_headers().len(), 5, "{received:?}");
    assert!(!format!("{received:?}").contains("mallory"), "{received:?}");
}

#[test]
fn an_allowed_path_gets_only_the_principals_identity() {
    for received in received_by_either(stack(), &Request::get("/v1/catalog/book").delegation(alice())) {
        assert_hears_of_alice(&received);
    }
}

#[test]
fn a_public_path_gets_no_identity() {
    for received in received_by_either(stack(), &Request::get("/healthz")) {
        assert_gets_no_identity(&received);
    }
}

#[test]
fn a_path_that_no_rule_covers_gets_no_identity() {
    for received in received_by_either(stack(), &Request::get("/elsewhere").delegation(alice())) {
        assert_gets_no_identity(&received);
    }
}

#[test]
fn a_path_in_shadow_gets_no_identity_whether_or_not_it_would_be_allowed() {
    let book = || Request::get("/v1/watched/book");
    for request in [book(), book().delegation("no token"), book().delegation(alice())] {
        for received in received_by_either(stack(), &request) {
            assert_gets_no_identity(&received);
        }
    }
}

#[test]
fn a_denied_request_does_not_reach_the_service() {
    let denied = [
        (Request::get("/v1/catalog/book"), 401),
        (Request::get("/v1/catalog/book").delegation("no token"), 401),
        (Request::get("/v1/catalog/book?x=1").delegation(alice()), 403),
        (Request::get("/v1/catalog/a;b").delegation(alice()), 400),
    ];
    for (number, (request, status)) in denied.into_iter().enumerate() {
        let mark = format!("denied-{number}");
        let reply = stack().send(&forged(request).header(MARK, &mark)).unwrap();
        assert_eq!(reply.status, status, "{}", reply.text());
        assert!(!stack().upstream.has_seen(&mark), "{mark}");
    }
}

/// RFC 9110, section 7.6.1: an intermediary between the filter and the service drops the headers that `connection`
/// names.
#[test]
fn an_upgrade_cannot_drop_the_identity_headers() {
    let request = Request::get("/v1/sockets/book")
        .delegation(alice())
        .header("connection", "upgrade, x-delegation-subject")
        .header("upgrade", "websocket");
    let reply = stack().send(&request).unwrap();
    assert_eq!(
        (reply.status, reply.reason().as_deref()),
        (403, Some("upgrade_denied")),
        "{reply:?}"
    );
}

#[test]
fn a_service_behind_a_public_path_gets_no_delegation() {
    let mark = "public-delegation";
    let request = Request::get("/healthz")
        .delegation(alice())
        .proof("a.b.c")
        .header(MARK, mark);
    assert_eq!(stack().send(&request).unwrap().status, 200);
    let seen = stack().upstream.seen(mark).expect("a public request is allowed");
    assert_eq!(
        (seen.header("delegation"), seen.header("delegation-proof")),
        (None, None),
        "{seen:?}"
    );
}

#[test]
fn an_upgrade_gets_the_principals_identity_or_none() {
    let upgrade = |target| {
        Request::get(target)
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
    };
    // No server answers a WebSocket; the service has seen the identity in the request.
    let seen = |request: Request, mark: &str| {
        stack().send(&forged(request).header(MARK, mark)).unwrap();
        stack().upstream.seen(mark).expect("the upgrade was allowed")
    };
    let delegated = seen(upgrade("/v1/sockets/book").delegation(alice()), "delegated");
    assert_eq!(delegated.header("upgrade"), Some("websocket"), "{delegated:?}");
    assert_hears_of_alice(&delegated);
    let public = seen(upgrade("/v1/open-socket"), "public");
    assert_eq!(public.header("upgrade"), Some("websocket"), "{public:?}");
    assert_gets_no_identity(&public);
}

#[test]
fn trailers_carry_no_identity() {
    let client = Http2::connect(stack().envoy.ingress()).unwrap();
    let body = r#"{"item":"book"}"#;
    let form = Request::new("POST", "/v1/items").delegation(alice()).json(body);
    let upload = Request::new("POST", "/v1/uploads/book").delegation(alice()).json(body);
    let watched = Request::new("POST", "/v1/watched/book").json(body);
    let public = Request::new("POST", "/healthz").json(body);
    let unmatched = Request::new("POST", "/elsewhere").json(body);
    for (request, is_delegated) in [
        (form, true),
        (upload, true),
        (watched, false),
        (public, false),
        (unmatched, false),
    ] {
        let good = [("x-checksum", "1")];
        let all = [&good[..], &trailers()].concat();
        let reply = client.send_with_trailers(&forged(request.clone()), &all).unwrap();
        let by_2 = received(&reply);
        assert_eq!(by_2.trailers, [("x-checksum".to_owned(), "1".to_owned())], "{by_2:?}");
        assert_eq!(by_2.body, body);

        let request = request.without("content-length").header("transfer-encoding", "chunked");
        let fields: String = all
            .iter()
            .chain(&[("X-Delegation-Subject", "mallory")])
            .fold(String::new(), |fields, (name, value)| {
                fields + &format!("{name}: {value}\r\n")
            });
        let size = body.len();
        let request = forged(request).trailing(format!("{size:x}\r\n{body}\r\n0\r\n{fields}\r\n"));
        let by_1 = received(&stack().send(&request).unwrap());
        assert_eq!((&by_1.trailers, &by_1.body), (&by_2.trailers, &by_2.body));
        for received in [by_1, by_2] {
            if is_delegated {
                assert_hears_of_alice(&received);
            } else {
                assert_gets_no_identity(&received);
            }
        }
    }
}

/// Some services merge trailers into the headers, after the filter has decided.
#[test]
fn trailers_cannot_change_the_decided_request() {
    let client = Http2::connect(stack().envoy.ingress()).unwrap();
    let request = Request::new("POST", "/v1/tenant")
        .header("x-tenant", "book")
        .header("x.trace", "1")
        .delegation(alice())
        .json("{}");
    let changing = [
        "x-tenant",
        "x.tenant",
        "x-stage",
        "x~stage",
        "delegation",
        "delegation.proof",
        "x-http-method-override",
        "x.original.url",
        "x-forwarded-host",
        "x-forwarded-server",
        "content-type",
        "content.length",
    ];
    let harmless = [("x-checksum", "1"), ("x.trace", "2")];
    let trailers: Vec<_> = changing.iter().map(|&name| (name, "mallory")).chain(harmless).collect();
    let by_2 = received(&client.send_with_trailers(&request, &trailers).unwrap());
    let fields: String = trailers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let request = request
        .without("content-length")
        .header("transfer-encoding", "chunked")
        .trailing(format!("2\r\n{{}}\r\n0\r\n{fields}\r\n"));
    let by_1 = received(&stack().send(&request).unwrap());
    for received in [by_1, by_2] {
        let harmless = harmless.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(received.trailers, harmless, "{received:?}");
        assert_eq!(received.header("x.trace"), Some("1"));
        assert_hears_of_alice(&received);
    }
}

#[test]
fn a_path_decided_on_stale_state_gets_only_the_principals_identity() {
    let mut stack = Stack::start(&options()).unwrap();
    let alice = stack.mint("alice", &["--id", "leaf", "--tool", READ]).unwrap();
    let old = forged(Request::get("/v1/old/book").delegation(&alice));
    let mut workers = stack.envoy.connection_to_every_worker().unwrap();
    let ask = |client: &mut Client| assert_hears_of_alice(&received(&client.send(&old).unwrap()));
    workers.iter_mut().for_each(ask);
    stack.control_plane.kill().unwrap();
    stack.wait_until_stale().unwrap();
    workers.iter_mut().for_each(ask);
}
