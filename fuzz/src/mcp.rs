//! A request to an MCP server. An input is the HTTP method, then headers, one on each line, then an empty line, then the
//! body.
//!
//! The reference is serde_json's reading of the body: what an allowed request calls is what it says there.

use std::collections::BTreeMap;

use credence_decision::mcp::{Access, Call, Endpoint, Source, Tools, Version};
use credence_decision::request::{HeaderNames, Request, serialize_headers};
use serde_json::Value;

/// Reads the request under several rules. Returns whether one of them allows it, if the delegation grants the tool.
pub fn run(input: &[u8]) -> bool {
    let (head, body) = split(input);
    let Ok(head) = std::str::from_utf8(head) else {
        return false;
    };
    let mut lines = head.split('\n');
    let method = lines.next().unwrap_or_default();
    let headers: Vec<_> = lines.filter_map(|line| line.split_once(": ")).collect();
    let all = [&[(":method", method), (":path", "/mcp")], &headers[..]].concat();
    let serialized = serialize_headers(&all);
    let Ok(request) = Request::parse(&serialized, &HeaderNames::default(), !body.is_empty()) else {
        return false;
    };
    let mut is_allowed = false;
    for endpoint in endpoints() {
        let (mut id, mut again) = (None, None);
        let body = (!body.is_empty()).then_some(body);
        let read = endpoint.call(&request, body, &mut id);
        let repeated = endpoint.call(&request, body, &mut again);
        assert_eq!(read.is_ok(), repeated.is_ok(), "the same each time");
        if let Some(id) = &id
            && let Some(message) = message(body.unwrap_or_default())
        {
            assert_eq!(
                serde_json::from_str::<Value>(id.json()).ok().as_ref(),
                message.get("id")
            );
        }
        let Ok(call) = read else { continue };
        is_allowed = true;
        match method {
            "POST" => check_message(&endpoint, &call, &headers, body.unwrap_or_default()),
            _ => assert!(body.is_none() || !call.method.contains('/'), "{method} has no message"),
        }
    }
    is_allowed
}

fn check_message(endpoint: &Endpoint, call: &Call, headers: &[(&str, &str)], body: &[u8]) {
    let Some(message) = message(body) else { return };
    let members = message.as_object().expect("one message, not a batch");
    assert_eq!(members["jsonrpc"], "2.0");
    let known = ["jsonrpc", "id", "method", "params", "result", "error"];
    assert!(members.keys().all(|name| known.contains(&name.as_str())));
    let method = members.get("method").and_then(Value::as_str);
    assert_eq!(method.unwrap_or("responses"), &*call.method);
    let is_notification = method.is_some_and(|method| method.starts_with("notifications/"));
    assert_eq!(members.contains_key("id"), !is_notification);

    let none = Value::Object(serde_json::Map::new());
    let params = members.get("params").unwrap_or(&none).as_object().expect("an object");
    let version = params
        .get("_meta")
        .and_then(|meta| meta.get("io.modelcontextprotocol/protocolVersion"));
    let header = |name: &str| {
        let mut named = headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| *value)
    };
    if let Some(version) = version {
        assert_eq!(version.as_str(), header("mcp-protocol-version"));
        let is_served = |served: &Version| version == served.name();
        assert!(endpoint.versions.iter().any(is_served));
        if !is_notification {
            assert_eq!(header("mcp-method"), method);
        }
    }
    let arguments: Value = serde_json::from_str(&call.arguments.canonical()).expect("JSON");
    let arguments = arguments.as_object().expect("an object");
    if method != Some("tools/call") {
        for (name, value) in arguments {
            assert!(is_same(&params[name], value), "{name}");
        }
        let left_out = params.keys().filter(|name| !arguments.contains_key(*name));
        assert!(
            left_out
                .into_iter()
                .all(|name| name == "_meta" || endpoint.ignored.contains(name))
        );
        return;
    }
    let name = params["name"].as_str().expect("a name");
    let tool = match &endpoint.tools {
        Tools::Prefixed(prefix) => format!("{prefix}{name}"),
        Tools::Named(tools) => tools[name].clone(),
    };
    assert_eq!(call.tool.as_deref(), Some(tool.as_str()));
    let said = params.get("arguments").unwrap_or(&none);
    assert_eq!(said.as_object().expect("an object").len(), arguments.len());
    assert!(is_same(said, &Value::Object(arguments.clone())));
    let known = ["name", "arguments", "_meta"];
    assert!(
        params
            .keys()
            .all(|name| known.contains(&name.as_str()) || endpoint.ignored.contains(name))
    );
}

/// Nothing if a number that no delegation constrains is out of a double's range.
fn message(body: &[u8]) -> Option<Value> {
    match serde_json::from_slice(body) {
        Ok(message) => Some(message),
        Err(error) => {
            assert!(error.to_string().starts_with("number out of range"), "{error}");
            None
        }
    }
}

/// Whether two values are the same, with numbers as doubles. Of a number with an exponent, serde_json reads one of the
/// nearest doubles.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => match (one.as_f64(), other.as_f64()) {
            (Some(one), Some(other)) => one == other || (one - other).abs() <= one.abs() * 1e-15 + f64::MIN_POSITIVE,
            _ => false,
        },
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let found = |(name, value): (&String, &Value)| other.get(name).is_some_and(|other| is_same(value, other));
            one.len() == other.len() && one.iter().all(found)
        }
        _ => one == other,
    }
}

fn endpoints() -> [Endpoint; 2] {
    let open = [
        "initialize",
        "tools/list",
        "GET",
        "responses",
        "notifications/initialized",
    ];
    let open = open.map(|method| (method.to_owned(), Access::Open));
    let read = ("resources/read".to_owned(), Access::Tool("files.read".to_owned()));
    let every = Endpoint {
        versions: Version::ALL.to_vec(),
        tools: Tools::Prefixed("shop.".to_owned()),
        methods: open.into_iter().chain([read]).collect(),
        ignored: vec!["requestState".to_owned()],
        ignored_meta: vec!["com.example/trace".to_owned()],
        ignores_meta: false,
        source: Source::Body,
        hides_ungranted: true,
        delegation_in_meta: true,
        max_stream: std::time::Duration::from_secs(60),
    };
    let strict = Endpoint {
        versions: vec![Version::V2026_07_28],
        tools: Tools::Named(BTreeMap::from([("buy".to_owned(), "shop.buy".to_owned())])),
        methods: BTreeMap::new(),
        ignored: Vec::new(),
        ignored_meta: Vec::new(),
        ignores_meta: true,
        source: Source::Body,
        hides_ungranted: true,
        delegation_in_meta: true,
        max_stream: std::time::Duration::from_secs(60),
    };
    [every, strict]
}

fn split(input: &[u8]) -> (&[u8], &[u8]) {
    let end = input.windows(2).position(|two| two == b"\n\n");
    end.map_or((input, &[][..]), |end| (&input[..end], &input[end + 2..]))
}
