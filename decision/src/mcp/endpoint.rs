//! What a rule says about an MCP server, and what a request to it calls.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use credence_delegation::Arguments;
use credence_delegation::json::{Json, Object};

use super::message::{Kind, Message, MessageId, RESPONSES, invalid};
use super::mirrors;
use super::presentation;
use super::version::Version;
use crate::arguments::{about, escaped, unmapped};
use crate::decision::{Denial, Reason};
use crate::request::Request;

/// An MCP server under a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The served versions; at least one.
    pub versions: Vec<Version>,
    /// The tools of delegations that its tools are.
    pub tools: Tools,
    /// The other methods that are open, by name. `GET` and `DELETE` are the streams and the ends of sessions.
    pub methods: BTreeMap<String, Access>,
    /// Members of `params` that no delegation constrains.
    pub ignored: Vec<String>,
    /// The same for members of `params._meta`, besides those of the protocol.
    pub ignored_meta: Vec<String>,
    /// Whether this holds for all its members.
    pub ignores_meta: bool,
    /// Where a request says what it calls.
    pub source: Source,
    /// Whether lists of tools show only those that the delegation grants.
    pub hides_ungranted: bool,
    /// Whether a message may present the delegation in its metadata.
    pub delegation_in_meta: bool,
    /// How long an exchange may take, with its stream.
    pub max_stream: Duration,
}

/// The tool of a delegation for each tool of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tools {
    /// This text, then the name.
    Prefixed(String),
    /// Only these, by their names at the server.
    Named(BTreeMap<String, String>),
}

/// What a method other than `tools/call` needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Any valid delegation.
    Open,
    /// This tool, whose arguments are the method's parameters.
    Tool(String),
}

/// Where a request says what it calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// In its message, which its headers must repeat.
    #[default]
    Body,
    /// In its headers, which the server compares with the message.
    Headers,
}

/// What a request calls.
#[derive(Debug)]
pub struct Call {
    /// The JSON-RPC method, or the HTTP method of a request without a message.
    pub method: Rc<str>,
    /// The tool that a delegation must grant; any valid delegation if there is none.
    pub tool: Option<Rc<str>>,
    /// The arguments.
    pub arguments: Arguments,
    /// What it has to do with sessions.
    pub session: SessionUse,
    /// Whether the message presents a delegation or a proof.
    pub presents: bool,
}

/// What a request has to do with sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionUse {
    /// Its version has none.
    None,
    /// It may be in one, or begin one.
    Possible,
    /// It answers a request of the server, which only makes sense in one.
    Required,
}

impl Endpoint {
    /// What a request calls. `id` becomes that of its message as soon as it is known.
    ///
    /// # Errors
    /// The request is to be denied.
    pub fn call(&self, request: &Request<'_>, body: Option<&[u8]>, id: &mut Option<MessageId>) -> Result<Call, Denial> {
        match request.method {
            b"POST" => {}
            b"GET" => return self.without_message(request, body, "GET"),
            b"DELETE" => return self.without_message(request, body, "DELETE"),
            _ => return Err(Reason::McpHttpMethod.into()),
        }
        let json = Json::parse(body.unwrap_or_default()).map_err(|_| Reason::BodyMalformed)?;
        let message = Message::read(&json, id)?;
        let is_stateless = self.is_stateless(mirrors::version(request, Some(&message))?)?;
        mirrors::check(request, &message, is_stateless)?;
        if message.kind == Kind::Response && is_stateless {
            return Err(invalid(""));
        }
        let session = match message.kind {
            _ if is_stateless => SessionUse::None,
            Kind::Response => SessionUse::Required,
            Kind::Request | Kind::Notification => SessionUse::Possible,
        };
        let call = match message.method {
            "tools/call" => self.tool_call(&message, session)?,
            method => {
                let is_its_own = message.kind == Kind::Response || !NO_METHODS.contains(&method);
                let access = self.methods.get(method).filter(|_| is_its_own);
                let access = access.ok_or_else(|| about(Reason::McpMethodNotAllowed, method))?;
                let arguments = self.arguments(message.params)?;
                Call::new(method, access.tool(), arguments, session)
            }
        };
        Ok(Call {
            presents: presentation::is_in(&message),
            ..call
        })
    }

    /// What a request calls by its headers. They do not show the arguments.
    ///
    /// # Errors
    /// The request is to be denied.
    pub fn call_in_headers(&self, request: &Request<'_>) -> Result<Call, Denial> {
        if request.method != b"POST" {
            return Err(Reason::McpHttpMethod.into());
        }
        self.is_stateless(mirrors::version(request, None)?)?;
        let method = mirrors::method(request)?;
        let tool = match &*method {
            "tools/call" => {
                let name = mirrors::name(request)?;
                let tool = self.tools.of(&name);
                Some(tool.ok_or_else(|| about(Reason::McpToolNotMapped, &name))?)
            }
            method => {
                let access = self.methods.get(method);
                let access = access.ok_or_else(|| about(Reason::McpMethodNotAllowed, method))?;
                access.tool().map(Rc::from)
            }
        };
        Ok(Call::new(&method, tool.as_deref(), Arguments::new(), SessionUse::None))
    }

    /// The tools that its other methods need.
    pub fn tools_of_methods(&self) -> Vec<&str> {
        self.methods.values().filter_map(Access::tool).collect()
    }

    fn without_message(&self, request: &Request<'_>, body: Option<&[u8]>, method: &str) -> Result<Call, Denial> {
        let access = self.methods.get(method).ok_or(Reason::McpHttpMethod)?;
        if body.is_some() {
            return Err(Reason::BodyUnmapped.into());
        }
        match self.is_stateless(mirrors::version(request, None)?)? {
            true => Err(Reason::McpHttpMethod.into()),
            false => Ok(Call::new(method, access.tool(), Arguments::new(), SessionUse::Possible)),
        }
    }

    /// Whether the version is one without sessions. None is that of any session.
    ///
    /// # Errors
    /// The version is not served.
    fn is_stateless(&self, version: Option<Version>) -> Result<bool, Denial> {
        match version {
            Some(version) if self.versions.contains(&version) => Ok(version.is_stateless()),
            Some(version) => Err(Denial::about(Reason::McpVersionNotAllowed, version.name())),
            None if self.versions.iter().all(|version| version.is_stateless()) => {
                Err(Reason::McpVersionNotAllowed.into())
            }
            None => Ok(false),
        }
    }

    /// The HTTP methods that clients may use.
    pub fn http_methods(&self) -> String {
        let others = ["GET", "DELETE"].into_iter();
        let others = others.filter(|method| self.methods.contains_key(*method));
        ["POST"].into_iter().chain(others).collect::<Vec<_>>().join(", ")
    }

    /// Whether answers to some of its requests are rewritten.
    pub fn rewrites_answers(&self) -> bool {
        self.hides_ungranted || self.versions.iter().any(|version| !version.is_stateless())
    }

    fn tool_call(&self, message: &Message<'_>, session: SessionUse) -> Result<Call, Denial> {
        let params = message.params.ok_or_else(|| invalid("/params"))?;
        let name = params.text("name").filter(|name| name.len() <= MAX_TOOL_BYTES);
        let name = name.ok_or_else(|| invalid("/params/name"))?;
        let tool = self
            .tools
            .of(name)
            .ok_or_else(|| about(Reason::McpToolNotMapped, name))?;
        for (member, value) in params.iter() {
            match member {
                "name" => {}
                "arguments" if value.as_object().is_some() => {}
                "arguments" => return Err(invalid("/params/arguments")),
                _ if self.is_unread(member, value)? => {}
                _ => return Err(unmapped(&place(member))),
            }
        }
        let arguments = match params.object("arguments") {
            // Servers in JavaScript lose it, so they would call something else than what was decided.
            Some(arguments) if arguments.member(PROTOTYPE).is_some() => {
                return Err(about(Reason::ArgumentAmbiguous, PROTOTYPE));
            }
            Some(arguments) => Arguments::from_json(arguments).map_err(|_| malformed("arguments"))?,
            None => Arguments::new(),
        };
        Ok(Call::new(message.method, Some(&tool), arguments, session))
    }

    /// The parameters of another method.
    fn arguments(&self, params: Option<&Object<'_>>) -> Result<Arguments, Denial> {
        let mut read = Vec::new();
        for (name, value) in params.iter().flat_map(|params| params.iter()) {
            if name == PROTOTYPE {
                return Err(about(Reason::ArgumentAmbiguous, PROTOTYPE));
            }
            if !self.is_unread(name, value)? {
                read.push((name.to_owned(), value.clone()));
            }
        }
        // All at once: inserting one by one would take quadratic time.
        Arguments::from_json(&read.into_iter().collect()).map_err(|_| malformed("params"))
    }

    /// Whether a member of the parameters is none of the arguments: it is ignored, or the metadata.
    fn is_unread(&self, name: &str, value: &Json<'_>) -> Result<bool, Denial> {
        if name != "_meta" {
            return Ok(self.ignored.iter().any(|ignored| ignored == name));
        }
        let meta = value.as_object().ok_or_else(|| invalid("/params/_meta"))?;
        let is_known = |name: &str| {
            self.ignores_meta
                || name.starts_with(OWN_META)
                || META.contains(&name)
                || (self.delegation_in_meta && presentation::MEMBERS.contains(&name))
                || self.ignored_meta.iter().any(|ignored| ignored == name)
        };
        match meta.iter().find(|(name, _)| !is_known(name)) {
            Some((unknown, _)) => Err(unmapped(&[&place("_meta"), "/", &*escaped(unknown)].concat())),
            None => Ok(true),
        }
    }
}

impl Tools {
    /// The tool of a delegation for the server's tool with this name.
    pub fn of(&self, name: &str) -> Option<Rc<str>> {
        match self {
            Self::Prefixed(prefix) => Some([prefix, name].concat().into()),
            Self::Named(tools) => tools.get(name).map(|tool| tool.as_str().into()),
        }
    }
}

impl Access {
    fn tool(&self) -> Option<&str> {
        match self {
            Self::Open => None,
            Self::Tool(tool) => Some(tool),
        }
    }
}

impl Call {
    fn new(method: &str, tool: Option<&str>, arguments: Arguments, session: SessionUse) -> Self {
        Self {
            method: method.into(),
            tool: tool.map(Rc::from),
            arguments,
            session,
            presents: false,
        }
    }

    /// The tool of its proof: the method where no tool is needed.
    pub fn proven_tool(&self) -> &str {
        self.tool.as_deref().unwrap_or(&self.method)
    }
}

fn place(member: &str) -> String {
    format!("/params/{}", escaped(member))
}

fn malformed(argument: &str) -> Denial {
    about(Reason::ArgumentMalformed, argument)
}

/// Assigning to a member of this name sets no member.
const PROTOTYPE: &str = "__proto__";

/// What `methods` names besides methods of JSON-RPC: all of sessions.
pub(crate) const NO_METHODS: [&str; 3] = ["GET", "DELETE", RESPONSES];

/// Of a tool's name. MCP recommends at most 128 characters.
const MAX_TOOL_BYTES: usize = 256;

/// Members of `_meta` with this prefix are the protocol's own.
const OWN_META: &str = "io.modelcontextprotocol/";
/// Its members without it: progress, and W3C's trace context.
const META: [&str; 4] = ["progressToken", "traceparent", "tracestate", "baggage"];
