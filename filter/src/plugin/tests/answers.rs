//! What clients get of the answers of MCP servers, and when those end.

use super::*;

const VERSION: (&str, &str) = ("mcp-protocol-version", "2025-11-25");
const JSON: (&str, &str) = ("content-type", "application/json");
const EVENTS: (&str, &str) = ("content-type", "text/event-stream; charset=utf-8");
const LISTED: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"pay"},{"name":"steal"}]}}"#;
const SHOWN: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"pay"}]}}"#;
const UNREADABLE: &str = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"The proxy cannot read the server's answer, so it does not pass it on."}}"#;

impl Scene {
    /// With keys for sessions.
    fn with_sessions() -> Self {
        let mut scene = Self::new("");
        let watch = scene.connect();
        let keys = v1::CacheKeys {
            current: vec![1; 32],
            session_current: vec![2; 32],
            ..v1::CacheKeys::default()
        };
        scene.hear(watch, watch_response::Message::CacheKeys(keys));
        scene.host.effects();
        scene
    }

    /// An allowed message to the MCP server.
    fn post(&mut self, method: &str, more: &[(&str, &str)]) -> (StreamId, Vec<Effect>) {
        let delegation = delegation();
        let usual = [("delegation", delegation.as_str()), JSON, VERSION];
        let (stream, flow) = self.request("/mcp", &[&usual, more].concat(), false);
        assert_eq!(flow, Flow::Wait);
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
        self.host.set_body(stream, body.as_bytes());
        self.vm.on_request_body(ROOT, stream, body.len(), true);
        (stream, self.effects())
    }

    /// The effects of an answer's headers.
    fn answer_headers(&mut self, stream: StreamId, headers: &[(&str, &str)]) -> Vec<Effect> {
        self.host.set_response(stream, headers, b"");
        self.host.enter(stream.0);
        self.vm.on_response_headers(ROOT, stream);
        self.effects()
    }

    /// The body in place of a piece; None while it waits.
    fn answer_body(&mut self, stream: StreamId, piece: &str, is_last: bool) -> Option<String> {
        self.host.set_response(stream, &[], piece.as_bytes());
        let flow = self.vm.on_response_body(ROOT, stream, piece.len(), is_last);
        let effects = self.effects();
        match (flow, &effects[..]) {
            (Flow::Continue, []) => Some(piece.to_owned()),
            (Flow::Continue, [Effect::Set(_, body)]) => Some(body.clone()),
            (Flow::Wait, []) => None,
            (flow, effects) => panic!("{flow:?} {effects:?}"),
        }
    }
}

#[test]
fn a_session_has_another_id_for_the_client_than_for_the_server() {
    let mut scene = Scene::with_sessions();
    let (stream, _) = scene.post("initialize", &[]);
    let effects = scene.answer_headers(stream, &[JSON, ("mcp-session-id", "s.1")]);
    let Some(Effect::Set(name, sealed)) = effects.first() else {
        panic!("{effects:?}")
    };
    assert_eq!(name, "mcp-session-id");
    assert!(sealed.starts_with("s.1.") && sealed.len() == 4 + 43, "{sealed}");

    let (_, effects) = scene.post("tools/list", &[("mcp-session-id", sealed)]);
    assert!(effects.contains(&set("mcp-session-id", "s.1")), "{effects:?}");
    let (_, effects) = scene.post("tools/list", &[("mcp-session-id", "s.1")]);
    assert_eq!(answers(&effects), [&answered(404, "mcp_session_invalid")]);
}

#[test]
fn a_session_id_that_cannot_be_sealed_does_not_pass() {
    let mut scene = Scene::with_sessions();
    let long = "x".repeat(3_000);
    for sessions in [&["a b\u{7f}"][..], &[&long], &["a", "b"]] {
        let (stream, _) = scene.post("initialize", &[]);
        let headers = sessions.iter().map(|session| ("mcp-session-id", *session));
        let headers: Vec<_> = headers.chain([JSON]).collect();
        let effects = scene.answer_headers(stream, &headers);
        assert!(effects.contains(&removed("mcp-session-id")), "{effects:?}");
    }
    let mut without_keys = Scene::ready("");
    let (stream, _) = without_keys.post("initialize", &[]);
    let effects = without_keys.answer_headers(stream, &[JSON, ("mcp-session-id", "a")]);
    assert!(effects.contains(&removed("mcp-session-id")), "{effects:?}");
    let (_, effects) = without_keys.post("tools/list", &[("mcp-session-id", "a")]);
    assert_eq!(answers(&effects), [&answered(503, "not_ready")]);
}

#[test]
fn a_stream_goes_on_only_for_its_owner() {
    let mut scene = Scene::with_sessions();
    let (stream, effects) = scene.post("initialize", &[("accept-encoding", "gzip")]);
    assert!(effects.contains(&removed("accept-encoding")));
    assert_eq!(scene.answer_headers(stream, &[EVENTS]), read());
    let passed = scene.answer_body(stream, "id: 7\ndata: {}\n\nid", false).unwrap();
    let sealed = passed
        .strip_prefix("id: ")
        .and_then(|rest| rest.strip_suffix("\ndata: {}\n\n"));
    let sealed = sealed.unwrap_or_else(|| panic!("{passed}"));
    assert!(sealed.starts_with("7."));
    assert_eq!(
        scene.answer_body(stream, "", true).as_deref(),
        Some(""),
        "an event that never ends"
    );

    let (_, effects) = scene.post("tools/list", &[("last-event-id", sealed)]);
    assert!(effects.contains(&set("last-event-id", "7")), "{effects:?}");
    for other in ["7", "8.AAAA", ""] {
        let (_, effects) = scene.post("tools/list", &[("last-event-id", other)]);
        assert_eq!(answers(&effects), [&answered(404, "mcp_session_invalid")], "{other}");
    }
}

#[test]
fn a_list_shows_only_granted_tools() {
    let mut scene = Scene::with_sessions();
    let (stream, _) = scene.post("tools/list", &[]);
    assert_eq!(scene.answer_headers(stream, &[JSON]), read());
    assert_eq!(scene.answer_body(stream, &LISTED[..9], false), None);
    assert_eq!(scene.answer_body(stream, LISTED, true).as_deref(), Some(SHOWN));

    let (stream, _) = scene.post("tools/list", &[]);
    scene.answer_headers(stream, &[EVENTS]);
    let passed = scene.answer_body(stream, &format!("event: message\ndata: {LISTED}\n\n"), true);
    assert_eq!(passed, Some(format!("event: message\ndata: {SHOWN}\n\n")));

    // A server may take it for the answer to another request with the same id.
    let (stream, _) = scene.post("initialize", &[]);
    assert_eq!(scene.answer_headers(stream, &[JSON]), read());
    assert_eq!(scene.answer_body(stream, LISTED, true).as_deref(), Some(SHOWN));
}

#[test]
fn an_answer_that_is_no_list_may_be_long_or_odd() {
    let mut scene = Scene::with_sessions();
    let long = format!(r#"{{"result":"{}"}}"#, "x".repeat(1 << 20));
    for text in [&*long, "{", r#"{"a":1,"a":2}"#] {
        let (stream, _) = scene.post("initialize", &[]);
        scene.answer_headers(stream, &[JSON]);
        assert_eq!(scene.answer_body(stream, text, true).as_deref(), Some(text));
        let (stream, _) = scene.post("initialize", &[]);
        scene.answer_headers(stream, &[EVENTS]);
        let event = format!("data: {text}\n\n");
        assert_eq!(scene.answer_body(stream, &event, true), Some(event));
    }
    for text in [
        r#"{"result":{"tools":1},"a":1,"a":2}"#,
        r#"{"\u0072esult":1,"a":1,"a":2}"#,
    ] {
        let (stream, _) = scene.post("initialize", &[]);
        scene.answer_headers(stream, &[EVENTS]);
        let event = format!("data: {text}\n\n");
        assert_eq!(
            scene.answer_body(stream, &event, true),
            Some(format!("data: {UNREADABLE}\n\n"))
        );
    }
}

#[test]
fn a_list_of_another_media_type_does_not_pass() {
    let mut scene = Scene::with_sessions();
    for media_type in ["", "text/plain", "application/jso"] {
        let (stream, _) = scene.post("tools/list", &[]);
        scene.answer_headers(stream, &[("content-type", media_type)]);
        assert_eq!(
            scene.answer_body(stream, LISTED, true).as_deref(),
            Some(UNREADABLE),
            "{media_type}"
        );
    }
    for media_type in [
        "application/json-rpc",
        "Application/JSON; a=b",
        "application/json,application/json",
    ] {
        let (stream, _) = scene.post("tools/list", &[]);
        scene.answer_headers(stream, &[("content-type", media_type)]);
        assert_eq!(
            scene.answer_body(stream, LISTED, true).as_deref(),
            Some(SHOWN),
            "{media_type}"
        );
    }
}

#[test]
fn trailers_end_a_body_that_waits_and_no_other() {
    let mut scene = Scene::with_sessions();
    let (stream, _) = scene.post("tools/list", &[]);
    scene.answer_headers(stream, &[JSON]);
    assert_eq!(scene.answer_body(stream, LISTED, false), None);
    scene.host.set_response(stream, &[], LISTED.as_bytes());
    assert_eq!(scene.vm.on_response_trailers(ROOT, stream), Flow::Continue);
    assert_eq!(scene.effects(), [set("body", SHOWN)]);
    for media_type in [EVENTS, ("content-type", "text/plain")] {
        let (stream, _) = scene.post("initialize", &[]);
        scene.answer_headers(stream, &[media_type]);
        scene.answer_body(stream, "data: {}\n\n", false);
        assert_eq!(scene.vm.on_response_trailers(ROOT, stream), Flow::Continue);
        assert_eq!(scene.effects(), []);
    }
}

/// The headers that do not fit an answer that is read.
fn read() -> Vec<Effect> {
    ["content-length", "content-digest", "etag"].map(removed).to_vec()
}

#[test]
fn a_list_that_cannot_be_read_does_not_pass() {
    let mut scene = Scene::with_sessions();
    for text in ["{", "[7,", r#"{"result":{"tools":7}}"#, &" ".repeat((1 << 20) + 1)] {
        let (stream, _) = scene.post("tools/list", &[]);
        scene.answer_headers(stream, &[JSON]);
        assert_eq!(scene.answer_body(stream, text, true).as_deref(), Some(UNREADABLE));
    }
    let (stream, _) = scene.post("tools/list", &[]);
    let effects = scene.answer_headers(stream, &[JSON, ("content-encoding", "gzip")]);
    let replaced = [removed("content-encoding"), set("content-type", "application/json")];
    assert_eq!(effects, [&read()[..], &replaced].concat());
    assert_eq!(scene.answer_body(stream, "gz", false).as_deref(), Some(UNREADABLE));
    assert_eq!(scene.answer_body(stream, "ip", true).as_deref(), Some(""));

    let (stream, _) = scene.post("tools/list", &[]);
    scene.answer_headers(stream, &[EVENTS]);
    let long = format!("data: {}", " ".repeat(1 << 20));
    scene.host.set_response(stream, &[], long.as_bytes());
    scene.vm.on_response_body(ROOT, stream, long.len(), false);
    assert_eq!(scene.effects(), [set("body", ""), Effect::Reset]);
    assert_eq!(scene.answer_body(stream, "data: {}\n\n", true).as_deref(), Some(""));
}

#[test]
fn an_answer_that_cannot_be_rewritten_is_reset() {
    for call in ["header_map", "remove_header"] {
        let mut scene = Scene::with_sessions();
        let (stream, _) = scene.post("tools/list", &[]);
        scene.host.refuse(call);
        assert!(scene.answer_headers(stream, &[JSON]).contains(&Effect::Reset), "{call}");
    }
    for call in ["response_body", "replace_response_body"] {
        let mut scene = Scene::with_sessions();
        let (stream, _) = scene.post("tools/list", &[]);
        scene.answer_headers(stream, &[JSON]);
        scene.host.refuse(call);
        scene.host.set_response(stream, &[], LISTED.as_bytes());
        let flow = scene.vm.on_response_body(ROOT, stream, LISTED.len(), true);
        assert_eq!(flow, Flow::Stop, "{call}");
        assert!(scene.effects().contains(&Effect::Reset), "{call}");
    }
}

#[test]
fn an_exchange_ends_with_its_delegation_or_its_time() {
    for wait in [601, 3601] {
        let mut scene = Scene::with_sessions();
        let (stream, _) = scene.post("tools/list", &[]);
        scene.tick();
        assert_eq!(scene.effects(), [], "it goes on");
        scene.host.wait(Duration::from_secs(wait));
        scene.tick();
        assert_eq!(scene.effects(), [Effect::Reset], "after {wait} s");
        scene.vm.on_stream_end(ROOT, stream);
        scene.tick();
        assert_eq!(scene.host.counted("credence_mcp_exchanges_cut"), 1);
    }
}

#[test]
fn a_revocation_ends_an_exchange() {
    let mut scene = Scene::new("");
    let watch = scene.connect();
    let (ended, _) = scene.post("tools/list", &[]);
    let (ada, _) = scene.post("tools/list", &[]);
    scene.vm.on_stream_end(ROOT, ended);
    scene.host.effects();
    scene.hear(watch, floor());
    scene.tick();
    let reset: Vec<_> = scene
        .host
        .effects()
        .into_iter()
        .filter(|(_, effect)| *effect == Effect::Reset)
        .collect();
    assert_eq!(reset, [(ada.0, Effect::Reset)]);
}

#[test]
fn a_replaced_configuration_does_not_leave_its_answers_unread() {
    let mut scene = Scene::with_sessions();
    let (stream, _) = scene.post("tools/list", &[]);
    assert!(!scene.vm.on_drain(ROOT), "it stays for its exchanges");
    scene.tick();
    assert_eq!(scene.effects(), []);
    scene.host.wait(Duration::from_secs(30));
    scene.tick();
    assert_eq!(scene.effects(), [Effect::Reset]);
    scene.answer_headers(stream, &[JSON]);
}

/// The first entry of the log: it revokes all that was signed until now.
fn floor() -> watch_response::Message {
    let floor = v1::record::Subject::LogFloor(v1::LogFloor { issued_up_to: START });
    let record = v1::Record { subject: Some(floor) };
    let start: [u8; 32] = Sha256::digest(LOG).into();
    let position = v1::Position {
        seq: 1,
        digest: Sha256::new()
            .chain_update(start)
            .chain_update(record.encode_to_vec())
            .finalize()
            .to_vec(),
        proof: Vec::new(),
    };
    watch_response::Message::Update(v1::Update {
        position: Some(position),
        record: Some(record),
    })
}

#[test]
fn an_answer_to_headers_whose_body_is_not_decided_does_not_pass() {
    let mut scene = Scene::with_sessions();
    let delegation = delegation();
    let headers = [("delegation", delegation.as_str()), JSON, VERSION];
    let (stream, flow) = scene.request("/early", &headers, false);
    assert_eq!(flow, Flow::Continue, "only the body waits");
    scene.effects();
    assert_eq!(scene.vm.on_request_body(ROOT, stream, 1, false), Flow::Wait);
    assert!(scene.answer_headers(stream, &[JSON]).contains(&Effect::Reset));
    // Envoy itself answers requests that are too large or too slow.
    let (stream, flow) = scene.request("/mcp", &headers, false);
    assert_eq!(flow, Flow::Wait);
    scene.effects();
    assert_eq!(scene.answer_headers(stream, &[]), []);
    let (stream, flow) = scene.request("/early-shadow", &headers, false);
    assert_eq!((flow, scene.effects()), (Flow::Continue, vec![]));
    assert_eq!(
        scene.answer_headers(stream, &[]),
        [],
        "a shadow decision changes nothing"
    );
}
