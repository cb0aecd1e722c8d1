//! Headers that repeat parts of a message.
//!
//! Proxies and servers may each believe another one of the two, so that both must say the same. From 2026-07-28 on, the
//! headers are required; before, they mean nothing to servers, and are compared if they are there.

use std::borrow::Cow;
use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use credence_delegation::json::Json;
use credence_delegation::{Number, Value};

use super::message::{Kind, Message, invalid};
use super::version::Version;
use crate::arguments::about;
use crate::decision::{Denial, Reason};
use crate::request::{Header, Request};

/// The version of a request. An `initialize` without the header has none: server and client agree on one only then.
///
/// # Errors
/// Header and body differ, or there is no such version.
pub(super) fn version(request: &Request<'_>, message: Option<&Message<'_>>) -> Result<Option<Version>, Denial> {
    let in_body = message.and_then(|message| message.meta(VERSION_IN_META));
    let version = match (request.header(VERSION_HEADER), message) {
        (Header::Repeated, _) => return Err(mismatch(VERSION_HEADER)),
        (Header::Once(name), _) => named(name)?,
        (Header::Absent, Some(Message { method: INITIALIZE, .. })) if in_body.is_none() => return Ok(None),
        // As the versions with the header tell servers to read it.
        (Header::Absent, _) => Version::V2025_03_26,
    };
    let agrees = match (in_body, message) {
        (Some(named), _) => version.is_stateless() && named.as_str() == Some(version.name()),
        (
            None,
            Some(Message {
                kind: Kind::Request, ..
            }),
        ) if version.is_stateless() => {
            return Err(invalid(VERSION_PLACE));
        }
        (None, _) => true,
    };
    match agrees {
        true => Ok(Some(version)),
        false => Err(mismatch(VERSION_HEADER)),
    }
}

/// Whether the header names a version without sessions.
pub fn is_stateless(request: &Request<'_>) -> bool {
    match request.header(VERSION_HEADER) {
        Header::Once(name) => named(name).is_ok_and(Version::is_stateless),
        Header::Absent | Header::Repeated => false,
    }
}

fn named(name: &[u8]) -> Result<Version, Denial> {
    let name = String::from_utf8_lossy(name);
    Version::named(&name).ok_or_else(|| about(Reason::McpVersionNotAllowed, &name))
}

/// Whether the headers agree with the message.
///
/// # Errors
/// [`Reason::McpHeaderMismatch`], with the header's name.
pub(super) fn check(request: &Request<'_>, message: &Message<'_>, is_stateless: bool) -> Result<(), Denial> {
    let is_required = is_stateless && message.kind == Kind::Request;
    let method = (message.kind != Kind::Response).then_some(message.method);
    let source = match message.method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        _ => None,
    };
    let name = source.and_then(|source| message.params?.text(source));
    for (header, value) in [(METHOD_HEADER, method), (NAME_HEADER, name)] {
        let agrees = match (request.header(header), value) {
            (Header::Absent, value) => !is_required || value.is_none(),
            (Header::Once(text), Some(value)) => shown(text).is_some_and(|shown| shown == value),
            (Header::Once(_), None) | (Header::Repeated, _) => false,
        };
        if !agrees {
            return Err(mismatch(header));
        }
    }
    let arguments = message.params.and_then(|params| params.member("arguments"));
    match arguments.filter(|_| message.method == "tools/call") {
        Some(arguments) => check_parameters(request, arguments),
        None => Ok(()),
    }
}

/// The method that the headers name.
pub(super) fn method<'r>(request: &Request<'r>) -> Result<Cow<'r, str>, Denial> {
    required(request, METHOD_HEADER)
}

/// The name that they give what is called.
pub(super) fn name<'r>(request: &Request<'r>) -> Result<Cow<'r, str>, Denial> {
    required(request, NAME_HEADER)
}

fn required<'r>(request: &Request<'r>, header: &str) -> Result<Cow<'r, str>, Denial> {
    match request.header(header) {
        Header::Once(text) => shown(text).ok_or_else(|| mismatch(header)),
        Header::Absent | Header::Repeated => Err(mismatch(header)),
    }
}

/// Whether each header that repeats an argument has the value of one. Which one is in the tool's schema, which only
/// client and server know.
fn check_parameters(request: &Request<'_>, arguments: &Json<'_>) -> Result<(), Denial> {
    let mut headers = request.headers_beginning(PARAMETER_HEADERS).peekable();
    if headers.peek().is_none() {
        return Ok(());
    }
    // Once: a walk for each header would take a worker's time.
    let mut values = Values::default();
    values.add(arguments);
    for (name, value) in headers {
        if !shown(value).is_some_and(|text| values.have(&text)) {
            return Err(mismatch(&String::from_utf8_lossy(name)));
        }
    }
    Ok(())
}

/// The values that headers can repeat: of members at any depth, but not in arrays.
#[derive(Default)]
struct Values<'j> {
    texts: BTreeSet<&'j str>,
    /// In canonical form: 42 and 42.0 are equal.
    numbers: BTreeSet<String>,
}

impl<'j> Values<'j> {
    fn add(&mut self, json: &'j Json<'_>) {
        match json {
            Json::String(text) => _ = self.texts.insert(text),
            Json::Bool(true) => _ = self.texts.insert("true"),
            Json::Bool(false) => _ = self.texts.insert("false"),
            Json::Number(number) => self.numbers.extend(canonical(*number)),
            Json::Object(object) => object.iter().for_each(|(_, value)| self.add(value)),
            Json::Array(_) | Json::Null => {}
        }
    }

    fn have(&self, text: &str) -> bool {
        let number = || Number::parse(text).and_then(canonical);
        self.texts.contains(text) || number().is_some_and(|number| self.numbers.contains(&number))
    }
}

fn canonical(number: Number<'_>) -> Option<String> {
    Value::from_number(number).ok().map(|value| value.canonical())
}

/// The text that a header stands for: itself, unless it is encoded.
fn shown(value: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(value).ok()?;
    match text.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok().map(Cow::Owned),
        None => Some(Cow::Borrowed(text)),
    }
}

fn mismatch(header: &str) -> Denial {
    about(Reason::McpHeaderMismatch, header)
}

const INITIALIZE: &str = "initialize";
const VERSION_HEADER: &str = "mcp-protocol-version";
const METHOD_HEADER: &str = "mcp-method";
const NAME_HEADER: &str = "mcp-name";
const PARAMETER_HEADERS: &str = "mcp-param-";
const VERSION_IN_META: &str = "io.modelcontextprotocol/protocolVersion";
const VERSION_PLACE: &str = "/params/_meta/io.modelcontextprotocol~1protocolVersion";
