//! The effects of decisions, as seen by a client, a service, an operator or the control plane.

use std::collections::BTreeMap;
use std::time::Duration;

use credence_delegation::json::Json;
use credence_delegation::mint::{self, RootGrant};
use credence_delegation::{Limits, SigningKey, UnixTime, Value};
use credence_wire::v1::{self, watch_request, watch_response};
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::Vm;
use super::fake_host::{Effect, FakeHost, START};
use super::meter::{self, Work};
use crate::host::{Flow, GrpcToken, LogLevel, Plugin as _, RootId, StreamId};

const ROOT: RootId = RootId(1);
const ISSUER: &str = "https://id.example.com";
const LOG: &str = "0123456789abcdef0123456789abcdef";

/// A plugin with one configuration, in its own host.
struct Scene {
    host: FakeHost,
    vm: Vm<FakeHost>,
    streams: u32,
}

impl Scene {
    /// Configured, but not connected to the control plane yet.
    fn new(more: &str) -> Self {
        let host = FakeHost::new();
        let mut scene = Self {
            vm: Vm::new(host.clone()),
            host,
            streams: 1_000,
        };
        assert!(scene.configure(ROOT, more));
        scene.host.effects();
        scene
    }

    /// Configured, with the first snapshot of the revocations.
    fn ready(more: &str) -> Self {
        let mut scene = Self::new(more);
        scene.connect();
        scene.host.effects();
        scene
    }

    fn configure(&mut self, root: RootId, more: &str) -> bool {
        let jwk = key(1).public().to_jwk();
        let configuration = format!(
            r#"{{
                "audience": ["https://payments.example"],
                "trust_anchors": [{{"issuer": "{ISSUER}", "jwk": {jwk}, "asserts_subjects": true}}],
                "control_plane": {{"cluster": "credence", "log_id": "{LOG}"}},
                "identity": {{"filter_state": ["subject"]}},
                "rules": [
                    {{"name": "health", "match": {{"path": "/health"}}, "public": true}},
                    {{"name": "pay", "match": {{"path": "/pay"}}, "tool": "pay", "proof": "none"}},
                    {{"name": "upload", "match": {{"path": "/upload"}}, "tool": "pay", "proof": "none", "ignore_body": true}},
                    {{"name": "vault", "match": {{"path": "/vault"}}, "tool": "pay", "proof": "mtls"}},
                    {{"name": "try", "match": {{"path": "/try"}}, "tool": "pay", "proof": "none", "mode": "shadow"}},
                    {{"name": "order", "match": {{"path": "/order"}}, "tool": "order", "proof": "none",
                      "args": {{"amount": {{"body": "/amount", "type": "number"}}}}}},
                    {{"name": "held-body", "match": {{"path": "/held-body"}}, "tool": "order", "proof": "none", "hold": "body",
                      "args": {{"amount": {{"body": "/amount", "type": "number"}}}}}},
                    {{"name": "held-path", "match": {{"path": "/held-path/{{item}}"}}, "tool": "order", "proof": "none", "hold": "body",
                      "args": {{"amount": {{"body": "/amount", "type": "number"}}, "item": {{"path": "item"}}}}}},
                    {{"name": "early-shadow", "match": {{"path": "/early-shadow"}}, "proof": "none", "hold": "body", "mode": "shadow",
                      "mcp": {{"versions": ["2025-11-25"], "methods": {{"tools/list": {{"open": true}}}}}}}},
                    {{"name": "early", "match": {{"path": "/early"}}, "proof": "none", "hold": "body",
                      "mcp": {{"versions": ["2025-11-25"], "methods": {{"tools/list": {{"open": true}}}}}}}},
                    {{"name": "mcp", "match": {{"path": "/mcp"}}, "proof": "none",
                      "mcp": {{"versions": ["2025-11-25", "2026-07-28"], "hide_ungranted": true, "max_stream": "10m",
                               "methods": {{"tools/list": {{"open": true}}, "initialize": {{"open": true}},
                                            "GET": {{"open": true}}}}}}}}
                ]{more}
            }}"#
        );
        self.host.enter(root.0);
        self.vm.on_configure(root, configuration.as_bytes())
    }

    fn tick(&mut self) {
        self.tick_of(ROOT);
    }

    fn tick_of(&mut self, root: RootId) {
        self.host.wait(Duration::from_millis(50));
        self.host.enter(root.0);
        self.vm.on_tick(root, 0);
    }

    /// The control plane welcomes the revocation stream with an empty log.
    fn connect(&mut self) -> GrpcToken {
        let watch = self.open_watch();
        let position = v1::Position {
            seq: 0,
            digest: Sha256::digest(LOG).to_vec(),
            proof: Vec::new(),
        };
        let snapshot = v1::Snapshot {
            position: Some(position),
            chunks: 1,
            subjects: 0,
        };
        self.hear(
            watch,
            watch_response::Message::Welcome(v1::Welcome {
                log_id: LOG.to_owned(),
                snapshot: Some(snapshot),
                ..v1::Welcome::default()
            }),
        );
        self.hear(watch, watch_response::Message::Chunk(v1::SnapshotChunk::default()));
        let ping = self.host.sent().into_iter().rev().find_map(|(token, message)| {
            let request = v1::WatchRequest::decode(&*message).ok().filter(|_| token == watch)?;
            match request.message {
                Some(watch_request::Message::Ping(ping)) => Some(ping.id),
                _ => None,
            }
        });
        let id = ping.unwrap_or_else(|| panic!("a complete snapshot is followed by a ping: {:?}", self.host.effects()));
        self.hear(watch, watch_response::Message::Pong(v1::Pong { id, head: 0 }));
        watch
    }

    /// A tick opens the revocation stream.
    fn open_watch(&mut self) -> GrpcToken {
        self.tick();
        let opened = self
            .host
            .effects()
            .into_iter()
            .find_map(|(context, effect)| match effect {
                Effect::Opened("Watch", token) => Some((context, token)),
                _ => None,
            });
        let (context, token) = opened.expect("a tick opens the stream");
        assert_eq!(context, ROOT.0, "streams belong to root contexts");
        token
    }

    fn hear(&mut self, token: GrpcToken, message: watch_response::Message) {
        let response = v1::WatchResponse { message: Some(message) };
        self.host.enter(ROOT.0);
        self.vm.on_grpc_message(token, &response.encode_to_vec());
    }

    /// A request without a body.
    fn get(&mut self, path: &str, more: &[(&str, &str)]) -> Flow {
        self.request(path, more, true).1
    }

    fn request(&mut self, path: &str, more: &[(&str, &str)], end_of_stream: bool) -> (StreamId, Flow) {
        self.request_to(ROOT, path, more, end_of_stream)
    }

    fn request_to(&mut self, root: RootId, path: &str, more: &[(&str, &str)], end_of_stream: bool) -> (StreamId, Flow) {
        self.streams += 1;
        let stream = StreamId(self.streams);
        let usual = [(":method", "POST"), (":authority", "payments.example"), (":path", path)];
        self.host.set_headers(stream, &[&usual, more].concat());
        self.host.enter(stream.0);
        let flow = self.vm.on_request_headers(root, stream, end_of_stream);
        (stream, flow)
    }

    /// The effects on the last request.
    fn effects(&self) -> Vec<Effect> {
        let effects = self.host.effects().into_iter();
        effects
            .filter(|(context, _)| *context == self.streams)
            .map(|(_, effect)| effect)
            .collect()
    }
}

fn key(number: u8) -> SigningKey {
    SigningKey::from_seed(&[number; 32])
}

/// A delegation of ada's, whose holder has key 2 and a certificate.
fn delegation() -> String {
    let tools = r#"{"pay": {}, "order": {"amount": {"constraint_type": "range", "max": 100}}}"#;
    let root = RootGrant {
        grant: mint::Grant {
            id: "root".into(),
            issued_at: UnixTime(START - 60),
            expires_at: UnixTime(START + 3600),
            holder: key(2).public(),
            holder_certificate: Some([0xab; 32]),
            holder_spiffe_id: None,
            audience: vec!["https://payments.example".into()],
            max_depth: 3,
            tools: Value::from_json(&Json::parse(tools.as_bytes()).unwrap()).unwrap(),
        },
        issuer: ISSUER.into(),
        subject: Some("ada".into()),
        epoch: Some(0),
        agent_name: None,
    };
    mint::root(&root, &key(1), &Limits::default()).unwrap()
}

fn answered(status: u32, reason: &str) -> Effect {
    Effect::Answered {
        status,
        details: format!("credence_{reason}"),
        grpc_status: None,
    }
}

fn removed(name: &str) -> Effect {
    Effect::Removed(name.to_owned())
}

fn set(name: &str, value: &str) -> Effect {
    Effect::Set(name.to_owned(), value.to_owned())
}

fn answers(effects: &[Effect]) -> Vec<&Effect> {
    effects
        .iter()
        .filter(|effect| matches!(effect, Effect::Answered { .. }))
        .collect()
}

mod answers;

// === A decision on headers ===

#[test]
fn a_public_request_goes_on_without_what_its_client_forged() {
    let mut scene = Scene::ready("");
    let flow = scene.get(
        "/health",
        &[
            ("x-delegation-subject", "eve"),
            ("X_Delegation_Tool", "all"),
            ("x-other", "1"),
        ],
    );
    assert_eq!(flow, Flow::Continue);
    assert_eq!(
        scene.effects(),
        [removed("x-delegation-subject"), removed("X_Delegation_Tool")]
    );
}

#[test]
fn an_allowed_request_carries_the_identity_but_not_the_token() {
    let mut scene = Scene::ready("");
    let delegation = delegation();
    let headers = [
        ("delegation", delegation.as_str()),
        ("delegation-proof", "spent"),
        ("x-delegation-issuer", "eve"),
    ];
    assert_eq!(scene.get("/pay", &headers), Flow::Continue);
    let expected = [
        removed("x-delegation-issuer"),
        removed("delegation-proof"),
        removed("delegation"),
        set("x-delegation-issuer", "https://id.example.com"),
        set("x-delegation-subject", "ada"),
        set("x-delegation-proof", "none"),
        set("x-delegation-tool", "pay"),
        set("x-delegation-id", "root"),
        Effect::FilterState("credence_subject".to_owned(), "ada".to_owned()),
    ];
    assert_eq!(scene.effects(), expected);
}

#[test]
fn a_denied_request_is_answered_and_goes_no_further() {
    let mut scene = Scene::ready("");
    assert_eq!(scene.get("/pay", &[]), Flow::Stop);
    assert_eq!(scene.effects(), [answered(401, "delegation_missing")]);
    assert_eq!(scene.get("/nowhere", &[("x-delegation-tool", "all")]), Flow::Stop);
    assert_eq!(
        scene.effects(),
        [removed("x-delegation-tool"), answered(403, "no_route")]
    );
}

#[test]
fn a_grpc_client_is_answered_with_a_grpc_status() {
    let mut scene = Scene::ready("");
    assert_eq!(scene.get("/pay", &[("content-type", "application/grpc")]), Flow::Stop);
    let [Effect::Answered { grpc_status, .. }] = scene.effects()[..] else {
        panic!("a denied request has one answer");
    };
    assert_eq!(grpc_status, Some(16));
}

#[test]
fn a_client_is_identified_by_its_certificate() {
    let mut scene = Scene::ready("");
    let delegation = delegation();
    let headers = [("delegation", delegation.as_str())];
    assert_eq!(scene.get("/vault", &headers), Flow::Stop);
    assert_eq!(scene.effects(), [answered(401, "certificate_missing")]);
    let path = ["connection", "sha256_peer_certificate_digest"];
    scene.host.set_property(&path, "ab".repeat(32).as_bytes());
    assert_eq!(scene.get("/vault", &headers), Flow::Continue);
    assert!(scene.effects().contains(&set("x-delegation-agent", &"ab".repeat(32))));
}

#[test]
fn a_shadow_decision_only_removes_forged_headers() {
    let mut scene = Scene::ready("");
    assert_eq!(scene.get("/try", &[("x-delegation-tool", "all")]), Flow::Continue);
    assert_eq!(scene.effects(), [removed("x-delegation-tool")]);
    assert_eq!(scene.get("/try", &[("delegation", &delegation())]), Flow::Continue);
    assert_eq!(scene.effects(), []);
}

#[test]
fn where_only_the_body_waits_the_headers_go_on_with_the_identity() {
    let mut scene = Scene::ready("");
    let delegation = delegation();
    let json = ("content-type", "application/json");
    for (body, expected) in [(r#"{"amount":100}"#, Flow::Continue), (r#"{"amount":101}"#, Flow::Stop)] {
        let headers = [("delegation", delegation.as_str()), json];
        let (stream, flow) = scene.request("/held-body", &headers, false);
        assert_eq!(flow, Flow::Continue);
        let effects = scene.effects();
        assert!(effects.contains(&removed("delegation")) && effects.contains(&set("x-delegation-tool", "order")));
        scene.host.set_body(stream, body.as_bytes());
        assert_eq!(scene.vm.on_request_body(ROOT, stream, 5, false), Flow::Wait);
        assert_eq!(
            scene.vm.on_request_body(ROOT, stream, body.len(), true),
            expected,
            "{body}"
        );
        let denied = [answered(403, "argument_not_allowed")];
        let expected = if expected == Flow::Stop { &denied[..] } else { &[] };
        assert_eq!(scene.effects(), expected, "no header is changed now");
    }
    let (_, flow) = scene.request("/held-path/hat", &[("delegation", &delegation), json], false);
    assert_eq!(
        (flow, scene.effects()),
        (Flow::Stop, vec![answered(403, "argument_not_granted")]),
        "headers go on only as far as they are granted"
    );
    let (_, flow) = scene.request("/held-body", &[json], false);
    assert_eq!(
        (flow, scene.effects()),
        (Flow::Stop, vec![answered(401, "delegation_missing")])
    );
    scene.host.refuse("set_header");
    let (_, flow) = scene.request("/held-body", &[("delegation", &delegation), json], false);
    assert_eq!(flow, Flow::Stop);
    assert_eq!(answers(&scene.effects()), [&answered(503, "host_failure")]);
}

// === A host that fails ===

#[test]
fn a_request_is_refused_if_the_decision_cannot_be_applied() {
    for call in ["remove_header", "set_header", "set_filter_state"] {
        let mut scene = Scene::ready("");
        scene.host.refuse(call);
        assert_eq!(
            scene.get("/pay", &[("delegation", &delegation())]),
            Flow::Stop,
            "{call}"
        );
        assert_eq!(answers(&scene.effects()), [&answered(503, "host_failure")], "{call}");
        scene.tick();
        let metric = "credence_decision.rule.pay.decision.deny.reason.host_failure";
        assert_eq!(scene.host.counted(metric), 1, "{call}");
    }
}

#[test]
fn a_request_without_clock_or_headers_is_refused() {
    for call in ["monotonic", "unix_time", "header_map"] {
        let mut scene = Scene::ready("");
        scene.host.wait(Duration::from_secs(1));
        scene.host.refuse(call);
        assert_eq!(scene.get("/health", &[]), Flow::Stop, "{call}");
        assert_eq!(answers(&scene.effects()), [&answered(503, "host_failure")], "{call}");
    }
}

#[test]
fn a_denied_request_that_cannot_be_answered_is_held() {
    let mut scene = Scene::ready("");
    scene.host.refuse("answer");
    assert_eq!(scene.get("/pay", &[]), Flow::Stop);
    assert!(matches!(&scene.effects()[..], [Effect::Logged(LogLevel::Error, _)]));
}

#[test]
fn nothing_of_a_denied_request_goes_on_even_if_it_was_not_answered() {
    let mut scene = Scene::ready("");
    scene.host.refuse("answer");
    let (stream, flow) = scene.request("/pay", &[], false);
    assert_eq!(flow, Flow::Stop);
    assert_eq!(scene.vm.on_request_body(ROOT, stream, 5, false), Flow::Stop);
    assert_eq!(scene.vm.on_request_body(ROOT, stream, 9, true), Flow::Stop);
    assert_eq!(scene.vm.on_request_trailers(ROOT, stream), Flow::Stop);
}

#[test]
fn a_request_of_no_known_configuration_is_refused_and_counted() {
    let mut scene = Scene::ready("");
    let stream = StreamId(7);
    scene.host.enter(stream.0);
    assert_eq!(scene.vm.on_request_headers(RootId(9), stream, true), Flow::Stop);
    assert_eq!(scene.vm.on_request_body(RootId(9), stream, 1, true), Flow::Stop);
    assert_eq!(scene.vm.on_request_trailers(RootId(9), stream), Flow::Stop);
    let refused = (stream.0, answered(503, "host_failure"));
    assert_eq!(scene.host.effects(), [refused.clone(), refused.clone(), refused]);
    scene.tick();
    let metric = "credence_decision.rule.(none).decision.deny.reason.host_failure";
    assert_eq!(scene.host.counted(metric), 1);
}

#[test]
fn a_configuration_with_errors_is_refused_with_their_places() {
    let mut scene = Scene::ready("");
    assert!(!scene.configure(RootId(2), r#", "pop_window": "1h""#));
    let effects = scene.host.effects();
    assert!(
        matches!(&effects[..], [(2, Effect::Logged(LogLevel::Error, text))] if text.contains("pop_window")),
        "{effects:?}"
    );
}

#[test]
fn a_host_without_randomness_gets_no_plugin() {
    let host = FakeHost::new();
    host.refuse("random");
    let mut scene = Scene {
        vm: Vm::new(host.clone()),
        host,
        streams: 0,
    };
    assert!(!scene.configure(ROOT, ""));
}

// === Requests that are held ===

#[test]
fn a_request_waits_for_the_first_snapshot_and_goes_on_in_its_own_context() {
    let mut scene = Scene::new("");
    let (stream, flow) = scene.request("/pay", &[("delegation", &delegation())], true);
    assert_eq!(flow, Flow::Wait);
    assert_eq!(scene.effects(), []);
    scene.connect();
    let effects = scene.effects();
    assert_eq!(scene.streams, stream.0);
    assert_eq!(effects.last(), Some(&Effect::Continued));
    assert!(effects.contains(&set("x-delegation-subject", "ada")));
}

/// Each answer is nested in the one before it, so too many exhaust the VM's stack.
#[test]
fn one_callback_settles_a_limited_number_of_requests_of_all_configurations() {
    let mut scene = Scene::new("");
    let roots = [ROOT, RootId(2), RootId(3)];
    assert!(roots.iter().skip(1).all(|root| scene.configure(*root, "")));
    for number in 0..150_u32 {
        scene
            .host
            .set_property(&["connection", "id"], &u64::from(number).to_le_bytes());
        let root = roots[number as usize % roots.len()];
        let (_, flow) = scene.request_to(root, "/pay", &[("delegation", &delegation())], true);
        assert_eq!(flow, Flow::Wait);
    }
    let continued = |scene: &Scene| {
        let effects = scene.host.effects().into_iter();
        effects.filter(|(_, effect)| *effect == Effect::Continued).count()
    };
    scene.connect();
    assert_eq!(continued(&scene), 64);
    let later: Vec<usize> = roots
        .into_iter()
        .map(|root| {
            scene.tick_of(root);
            continued(&scene)
        })
        .collect();
    assert_eq!(later, [0, 36, 50]);
}

#[test]
fn a_request_does_not_wait_for_the_first_snapshot_for_ever() {
    let mut scene = Scene::new("");
    assert_eq!(scene.get("/pay", &[("delegation", &delegation())]), Flow::Wait);
    scene.host.wait(Duration::from_secs(1));
    scene.tick();
    assert_eq!(scene.effects(), [answered(503, "not_ready")]);
}

#[test]
fn further_pieces_of_a_request_that_waits_for_the_first_snapshot_wait_too() {
    let mut scene = Scene::new("");
    let (stream, flow) = scene.request("/pay", &[("delegation", &delegation()), ("content-length", "0")], true);
    assert_eq!(flow, Flow::Wait);
    scene.host.set_trailers(stream, &[("x-delegation-subject", "eve")]);
    assert_eq!(scene.vm.on_request_trailers(ROOT, stream), Flow::Wait);
    assert_eq!(
        scene.effects(),
        [Effect::RemovedTrailer("x-delegation-subject".to_owned())]
    );
    scene.host.wait(Duration::from_secs(1));
    scene.host.refuse("answer");
    scene.tick();
    assert_eq!(
        scene.vm.on_request_body(ROOT, stream, 5, true),
        Flow::Stop,
        "and no piece of a denied request passes"
    );
    assert_eq!(scene.vm.on_request_trailers(ROOT, stream), Flow::Stop);
}

#[test]
fn a_body_that_grows_beyond_the_limit_does_not_wait_for_the_first_snapshot() {
    let mut scene = Scene::new(r#", "limits": {"body_bytes": 10}"#);
    let (stream, flow) = scene.request("/upload", &[("delegation", &delegation())], false);
    assert_eq!((flow, scene.effects()), (Flow::Wait, vec![]));
    assert_eq!(scene.vm.on_request_body(ROOT, stream, 10, false), Flow::Wait);
    assert_eq!(scene.vm.on_request_body(ROOT, stream, 11, false), Flow::Stop);
    assert_eq!(scene.effects(), [answered(503, "not_ready")]);
    assert_eq!(scene.vm.on_request_body(ROOT, stream, 12, true), Flow::Stop);
}

#[test]
fn a_request_is_decided_once_its_body_is_there() {
    let mut scene = Scene::ready("");
    let delegation = delegation();
    let headers = [
        ("delegation", delegation.as_str()),
        ("content-type", "application/json"),
    ];
    for (body, flow, last) in [
        (
            &br#"{"amount": 50}"#[..],
            Flow::Continue,
            set("x-delegation-id", "root"),
        ),
        (
            &br#"{"amount": 500}"#[..],
            Flow::Stop,
            answered(403, "argument_not_allowed"),
        ),
    ] {
        let (stream, held) = scene.request("/order", &headers, false);
        assert_eq!((held, scene.effects()), (Flow::Wait, vec![]));
        assert_eq!(scene.vm.on_request_body(ROOT, stream, 5, false), Flow::Wait);
        scene.host.set_body(stream, body);
        assert_eq!(scene.vm.on_request_body(ROOT, stream, body.len(), true), flow);
        let effects = scene.effects();
        assert!(effects.contains(&last), "{effects:?}");
    }
}

#[test]
fn a_body_beyond_the_limit_is_answered_before_it_is_complete() {
    let mut scene = Scene::ready(r#", "limits": {"body_bytes": 10}"#);
    let headers = [("delegation", &*delegation()), ("content-type", "application/json")];
    let (stream, _) = scene.request("/order", &headers, false);
    scene.host.set_body(stream, &[b' '; 11]);
    assert_eq!(scene.vm.on_request_body(ROOT, stream, 11, false), Flow::Stop);
    assert_eq!(scene.effects(), [answered(413, "body_too_large")]);
    assert_eq!(
        scene.vm.on_request_body(ROOT, stream, 12, true),
        Flow::Stop,
        "and nothing of it passes"
    );
}

#[test]
fn trailers_lose_what_could_be_taken_for_a_header() {
    let mut scene = Scene::ready("");
    let (stream, flow) = scene.request("/health", &[], false);
    assert_eq!(flow, Flow::Continue);
    scene
        .host
        .set_trailers(stream, &[("x-delegation-subject", "eve"), ("checksum", "1")]);
    assert_eq!(scene.vm.on_request_trailers(ROOT, stream), Flow::Continue);
    assert_eq!(
        scene.effects(),
        [Effect::RemovedTrailer("x-delegation-subject".to_owned())]
    );
    scene.host.refuse("remove_header");
    assert_eq!(scene.vm.on_request_trailers(ROOT, stream), Flow::Stop, "or stay");
}

// === The record, and the streams to the control plane ===

#[test]
fn decisions_are_counted_by_rule_and_reason() {
    let mut scene = Scene::ready("");
    scene.get("/pay", &[]);
    scene.get("/pay", &[("delegation", &delegation())]);
    scene.tick();
    for metric in [
        "credence_decision.rule.pay.decision.deny.reason.delegation_missing",
        "credence_decision.rule.pay.decision.allow.reason.delegated",
    ] {
        assert_eq!(scene.host.counted(metric), 1, "{metric}");
    }
}

#[test]
fn a_stream_that_cannot_be_opened_is_retried() {
    let mut scene = Scene::new("");
    scene.host.refuse("open_stream");
    scene.tick();
    let logged = scene.host.effects();
    assert!(
        matches!(&logged[0], (1, Effect::Logged(LogLevel::Warn, text)) if text.contains("is there a cluster of this name?")),
        "{logged:?}"
    );
    scene.host.accept("open_stream");
    scene.host.wait(Duration::from_secs(10));
    scene.open_watch();
}

#[test]
fn a_stream_that_ends_is_closed_once_and_opened_again() {
    let mut scene = Scene::new("");
    let token = scene.open_watch();
    scene.vm.on_grpc_close(token, 14);
    let closed: Vec<_> = scene
        .host
        .effects()
        .into_iter()
        .filter(|(_, effect)| *effect == Effect::Closed(token))
        .collect();
    assert_eq!(closed.len(), 1);
    scene.host.wait(Duration::from_secs(10));
    assert_ne!(scene.open_watch(), token);
}

#[test]
fn a_stream_that_accepts_no_message_is_reset() {
    let mut scene = Scene::new("");
    scene.host.refuse("send");
    scene.tick();
    let effects = scene.host.effects();
    let watch = GrpcToken(1);
    assert!(effects.contains(&(ROOT.0, Effect::Opened("Watch", watch))));
    assert!(effects.contains(&(ROOT.0, Effect::Cancelled(watch))));
}

#[test]
fn a_replaced_configuration_ends_once_it_holds_nothing() {
    let mut scene = Scene::ready(r#", "audit": {"record": "none"}"#);
    let headers = [("delegation", &*delegation()), ("content-type", "application/json")];
    let (stream, flow) = scene.request("/order", &headers, false);
    assert_eq!(flow, Flow::Wait);
    scene.host.enter(ROOT.0);
    assert!(!scene.vm.on_drain(ROOT), "a request is held");
    scene.tick();
    assert!(
        !scene
            .host
            .effects()
            .iter()
            .any(|(_, effect)| matches!(effect, Effect::Done(_)))
    );
    scene.host.enter(stream.0);
    scene.host.set_body(stream, br#"{"amount": 5}"#);
    assert_eq!(scene.vm.on_request_body(ROOT, stream, 13, true), Flow::Continue);
    scene.tick();
    let effects = scene.host.effects();
    assert!(effects.contains(&(ROOT.0, Effect::Done(ROOT))));
    assert!(
        effects.contains(&(ROOT.0, Effect::TickPeriod(0))),
        "it is not woken again"
    );
    assert!(scene.vm.on_drain(ROOT), "the request has ended");
}

#[test]
fn the_next_configuration_takes_over_the_revocation_stream_at_once() {
    let mut scene = Scene::ready("");
    let next = RootId(2);
    assert!(scene.configure(next, ""));
    scene.host.effects();
    scene.host.enter(ROOT.0);
    scene.vm.on_drain(ROOT);
    let effects = scene.host.effects();
    let opened = |(context, effect): &(u32, Effect)| *context == next.0 && matches!(effect, Effect::Opened("Watch", _));
    assert!(effects.iter().any(opened), "{effects:?}");
    assert!(
        effects.contains(&(ROOT.0, Effect::Cancelled(GrpcToken(1)))),
        "{effects:?}"
    );
}

#[test]
fn a_replaced_configuration_whose_ticks_stop_is_ended_by_the_next_one() {
    let mut scene = Scene::ready("");
    let headers = [("delegation", &*delegation()), ("content-type", "application/json")];
    assert_eq!(scene.request("/order", &headers, false).1, Flow::Wait);
    scene.host.enter(ROOT.0);
    assert!(!scene.vm.on_drain(ROOT), "a request is held");
    let next = RootId(2);
    assert!(scene.configure(next, ""));
    scene.tick_of(next);
    scene.tick_of(next);
    assert_eq!(scene.host.counted("credence_held"), 1);
    scene.host.wait(Duration::from_secs(60));
    // Its evidence has to be given up as well.
    for _ in 0..2 {
        scene.tick_of(next);
        scene.host.wait(Duration::from_secs(60));
    }
    scene.tick_of(next);
    assert_eq!(scene.host.counted("credence_held"), 0);
    scene.host.enter(ROOT.0);
    assert!(scene.vm.on_drain(ROOT), "it has ended");
}

#[test]
fn a_root_context_gets_one_configuration() {
    let mut scene = Scene::ready("");
    assert!(!scene.configure(ROOT, ""));
    assert_eq!(scene.get("/pay", &[("delegation", &delegation())]), Flow::Continue);
}

#[test]
fn configurations_that_share_a_view_count_its_streams_once() {
    let mut scene = Scene::new("");
    let token = scene.open_watch();
    scene.vm.on_grpc_close(token, 14);
    scene.host.wait(Duration::from_secs(10));
    scene.open_watch();
    for root in [RootId(2), RootId(3)] {
        assert!(scene.configure(root, ""));
        scene.tick_of(root);
    }
    scene.tick();
    assert_eq!(scene.host.counted("credence_revocation_streams"), 2);
}

/// What a request costs, from its headers to its end. `make lint-footprint` and `make bench BENCH=instructions` check the
/// rest of the file.
#[derive(serde::Deserialize)]
struct Footprint {
    requests: BTreeMap<String, Work>,
}

#[test]
fn a_request_costs_its_footprint() {
    let known = delegation();
    let delegation: &[(&str, &str)] = &[("delegation", &known)];
    let always_decides = r#", "limits": {"repeat_entries": 0}"#;
    let cases = [
        ("public", "", "/health", &[][..]),
        ("repeat", "", "/pay", delegation),
        ("hot", always_decides, "/pay", delegation),
        ("denied", "", "/pay", &[]),
    ];
    let mut found = BTreeMap::new();
    for (name, more, path, headers) in cases {
        let mut scene = Scene::ready(more);
        let mut request = || {
            scene.streams += 1;
            let stream = StreamId(scene.streams);
            let usual = [(":method", "POST"), (":authority", "payments.example"), (":path", path)];
            scene.host.set_headers(stream, &[&usual, headers].concat());
            scene.host.enter(stream.0);
            meter::measure(|| {
                scene.vm.on_request_headers(ROOT, stream, true);
                scene.vm.on_stream_end(ROOT, stream);
            })
        };
        // The first ones fill caches.
        for _ in 0..10 {
            request();
        }
        found.insert(name.to_owned(), request());
    }
    let Footprint { requests: committed } = serde_json::from_str(include_str!("../../footprint.json")).unwrap();
    assert_eq!(
        found, committed,
        "if this is less, lower filter/footprint.json; if not, find what grew"
    );
}
