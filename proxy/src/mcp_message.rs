//! Messages of MCP as far as a transport must know them, and the headers that repeat parts of them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;

/// One JSON-RPC message.
#[derive(Debug, Deserialize)]
pub(crate) struct Message<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
struct Params<'a> {
    name: Option<String>,
    uri: Option<String>,
    #[serde(borrow, rename = "requestId")]
    request_id: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(rename = "_meta")]
    meta: Option<Meta>,
}

#[derive(Debug, Deserialize)]
struct Meta {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<String>,
}

/// The headers for arguments of tools, as the tools' schemas name them.
#[derive(Debug, Default)]
pub(crate) struct ParameterHeaders(BTreeMap<String, Vec<ParameterHeader>>);

#[derive(Debug)]
struct ParameterHeader {
    header: String,
    /// The member, from the arguments down.
    path: Vec<String>,
}

// === impl Message ===

impl<'a> Message<'a> {
    /// `None` if it is no JSON object.
    pub(crate) fn read(json: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(json).ok()?;
        // A list would be read as the members in their order.
        serde_json::from_str(text)
            .ok()
            .filter(|_| text.trim_start().starts_with('{'))
    }

    /// The id of a request, as it is written.
    pub(crate) fn id(&self) -> Option<String> {
        let id = self.id.filter(|_| self.method.is_some());
        id.map(|id| id.get().to_owned())
    }

    pub(crate) fn raw_id(&self) -> Option<&'a RawValue> {
        self.id
    }

    /// Whether this is the answer to that request.
    pub(crate) fn answers(&self, request: &Message<'_>) -> bool {
        let id = |message: &Message<'_>| message.id.map(|id| id.get().to_owned());
        self.method.is_none() && id(self).is_some() && id(self) == id(request)
    }

    pub(crate) fn is(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method)
    }

    /// The request that it cancels.
    pub(crate) fn cancels(&self) -> Option<String> {
        let id = self.params().request_id.filter(|_| self.is("notifications/cancelled"));
        id.map(|id| id.get().to_owned())
    }

    /// The version that a request names, if its version has no sessions.
    pub(crate) fn version(&self) -> Option<String> {
        self.params().meta.and_then(|meta| meta.version)
    }

    /// The version in the answer to `initialize`.
    pub(crate) fn agreed_version(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Initialized {
            #[serde(rename = "protocolVersion")]
            version: String,
        }
        let result = serde_json::from_str::<Initialized>(self.result?.get());
        result.ok().map(|result| result.version)
    }

    /// Headers that repeat the method and what it is about.
    pub(crate) fn mirrored(&self) -> Vec<(String, String)> {
        let Some(method) = &self.method else {
            return Vec::new();
        };
        let params = self.params();
        let name = match &**method {
            "tools/call" | "prompts/get" => params.name,
            "resources/read" => params.uri,
            _ => None,
        };
        let name = name.map(|name| ("mcp-name".to_owned(), name));
        [("mcp-method".to_owned(), method.to_string())]
            .into_iter()
            .chain(name)
            .collect()
    }

    fn params(&self) -> Params<'a> {
        let params = self.params.and_then(|params| serde_json::from_str(params.get()).ok());
        params.unwrap_or_default()
    }
}

// === impl ParameterHeaders ===

impl ParameterHeaders {
    /// Learns from the answer to `tools/list`.
    pub(crate) fn learn(&mut self, answer: &[u8]) {
        #[derive(Deserialize)]
        struct Listed {
            tools: Vec<Tool>,
        }
        #[derive(Deserialize)]
        struct Tool {
            name: String,
            #[serde(rename = "inputSchema", default)]
            schema: Schema,
        }
        let result = Message::read(answer).and_then(|said| said.result);
        let listed = result.and_then(|result| serde_json::from_str::<Listed>(result.get()).ok());
        for tool in listed.into_iter().flat_map(|listed| listed.tools) {
            let mut headers = Vec::new();
            tool.schema.collect(&mut Vec::new(), &mut headers);
            if !headers.is_empty() && tool.name.len() <= MAX_NAME_BYTES && self.0.len() < MAX_TOOLS {
                self.0.insert(tool.name, headers);
            }
        }
    }

    /// The headers of a call, and their values.
    pub(crate) fn of(&self, message: &Message<'_>) -> Vec<(String, String)> {
        let params = message.params();
        let (Some(name), Some(arguments), true) = (params.name, params.arguments, message.is("tools/call")) else {
            return Vec::new();
        };
        let headers = self.0.get(&name).into_iter().flatten();
        let present = headers.filter_map(|ParameterHeader { header, path }| {
            Some((format!("mcp-param-{header}"), value(arguments, path)?))
        });
        present.collect()
    }
}

#[derive(Debug, Default, Deserialize)]
struct Schema {
    #[serde(rename = "x-mcp-header")]
    header: Option<String>,
    #[serde(default)]
    properties: BTreeMap<String, Schema>,
}

impl Schema {
    fn collect(&self, path: &mut Vec<String>, headers: &mut Vec<ParameterHeader>) {
        let is_long = |name: &String| name.len() > MAX_NAME_BYTES;
        if path.len() > MAX_DEPTH || headers.len() >= MAX_HEADERS || path.last().is_some_and(is_long) {
            return;
        }
        if let Some(header) = self.header.as_ref().filter(|header| !is_long(header)) {
            headers.push(ParameterHeader {
                header: header.to_ascii_lowercase(),
                path: path.clone(),
            });
        }
        for (name, schema) in &self.properties {
            path.push(name.clone());
            schema.collect(path, headers);
            path.pop();
        }
    }
}

/// The text of a scalar argument.
fn value(arguments: &RawValue, path: &[String]) -> Option<String> {
    let mut found = arguments;
    for name in path {
        let members: BTreeMap<String, &RawValue> = serde_json::from_str(found.get()).ok()?;
        found = members.get(name)?;
    }
    let text = found.get();
    match text.as_bytes().first()? {
        b'"' => serde_json::from_str(text).ok(),
        b'{' | b'[' | b'n' => None,
        _ => Some(text.to_owned()),
    }
}

/// The text in a header: encoded unless every server reads it as it is.
pub(crate) fn header_text(text: &str) -> Cow<'_, str> {
    let is_plain = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    match is_plain && text.trim() == text && !text.starts_with("=?base64?") {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format!("=?base64?{}?=", STANDARD.encode(text))),
    }
}

/// The error of a request. `data` is JSON.
pub(crate) fn request_failed(id: Option<&RawValue>, code: i32, message: &str, data: &str) -> Vec<u8> {
    let id = id.map_or("null", RawValue::get);
    let message = serde_json::json!(message);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message},"data":{data}}}}}"#).into()
}

/// Tools whose headers are known.
const MAX_TOOLS: usize = 1_024;
const MAX_DEPTH: usize = 8;
/// Of one tool.
const MAX_HEADERS: usize = 16;
/// Of a header, and of a member that it repeats.
const MAX_NAME_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_repeat_what_a_call_is_about() {
        let mut known = ParameterHeaders::default();
        known.learn(
            br#"{"id":1,"result":{"tools":[{"name":"t","inputSchema":{"type":"object","properties":{
                "region":{"type":"string","x-mcp-header":"Region"},
                "deep":{"properties":{"n":{"x-mcp-header":"N"}}}, "other":{}}}}]}}"#,
        );
        let call =
            br#"{"id":2,"method":"tools/call","params":{"name":"t","arguments":{"region":"a b","deep":{"n":1.50}},
            "_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        let call = Message::read(call).unwrap();
        let expected = [("mcp-param-n", "1.50"), ("mcp-param-region", "a b")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(known.of(&call), expected);
        assert_eq!(call.version().as_deref(), Some("2026-07-28"));
        let mirrored = [("mcp-method", "tools/call"), ("mcp-name", "t")];
        assert_eq!(
            call.mirrored(),
            mirrored.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn only_the_answer_with_its_id_answers_a_request() {
        let read = |text: &'static str| Message::read(text.as_bytes()).unwrap();
        let request = read(r#"{"id":"1","method":"ping"}"#);
        assert!(read(r#"{"id":"1","result":{}}"#).answers(&request));
        for other in [
            r#"{"id":1,"result":{}}"#,
            r#"{"id":"1","method":"ping"}"#,
            r#"{"method":"a"}"#,
            r#"{"result":{}}"#,
        ] {
            assert!(!read(other).answers(&request), "{other}");
        }
    }

    #[test]
    fn a_header_has_text_that_every_server_reads_alike() {
        assert_eq!(header_text("get weather"), "get weather");
        assert_eq!(header_text("é"), "=?base64?w6k=?=");
        assert_eq!(header_text(" a"), "=?base64?IGE=?=");
        assert_eq!(header_text("=?base64?"), "=?base64?PT9iYXNlNjQ/?=");
    }
}
