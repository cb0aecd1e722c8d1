//! The answer of a server, as the client gets it: ids of sessions and events with their seals, and no tools that the
//! delegation does not grant.

use std::rc::Rc;

use super::endpoint::Endpoint;
use super::events::{EventStream, Rewrite, TooLong};
use super::listing::{self, Unreadable};
use super::message::MessageId;
use super::session::{Named, Owner};
use crate::chains::CachedChain;
use crate::request::{HeaderMapError, header_pairs};
use crate::revocation::SealKeys;

/// How an answer is rewritten.
#[derive(Debug)]
pub struct Rewriting {
    /// Who owns the ids in it, if it may have some.
    pub owner: Option<Owner>,
    /// Whose grant decides which tools it lists, if that counts.
    pub lists_for: Option<Rc<CachedChain>>,
    /// Whether it answers `tools/list`: then nothing of it passes unread.
    pub is_list: bool,
    /// The id of the request.
    pub id: Option<MessageId>,
    body: Body,
}

/// What happens to the body.
#[derive(Debug, Default)]
enum Body {
    #[default]
    Passes,
    /// JSON, which is read when it is complete.
    Whole,
    Events(Box<EventStream>),
    /// It is replaced by an error.
    Refused,
    /// The rest of it is dropped.
    Dropped,
}

/// What the client gets in place of a header or a piece of the body.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    /// Not this header.
    Remove(&'static str),
    /// This value.
    Set(&'static str, String),
}

/// What happens to a piece of the body.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// It passes.
    Passes,
    /// It waits for the rest.
    Waits,
    /// The client gets this, in place of all that waits and the piece.
    Becomes(Vec<u8>),
    /// The exchange is to be reset: the client cannot be told otherwise.
    Resets,
}

impl Rewriting {
    /// How the answer to a request is rewritten. None if it is not.
    pub fn new(
        owner: Option<Owner>,
        lists_for: Option<Rc<CachedChain>>,
        is_list: bool,
        id: Option<MessageId>,
    ) -> Option<Self> {
        (owner.is_some() || lists_for.is_some()).then_some(Self {
            owner,
            lists_for,
            is_list,
            id,
            body: Body::Passes,
        })
    }

    /// The headers have arrived.
    ///
    /// # Errors
    /// The host's form of them is invalid.
    pub fn on_headers(&mut self, serialized: &[u8], keys: Option<&SealKeys>) -> Result<Vec<Change>, HeaderMapError> {
        let mut changes = Vec::new();
        let mut sessions = Vec::new();
        let (mut is_json, mut is_stream, mut is_coded) = (false, false, false);
        for (name, value) in header_pairs(serialized)? {
            match name {
                b"content-type" => {
                    // Some clients look at the beginning only, of one of several.
                    is_json |= begins_with(value, b"application/json");
                    is_stream |= begins_with(value, b"text/event-stream");
                }
                b"content-encoding" => is_coded |= !value.eq_ignore_ascii_case(b"identity"),
                b"mcp-session-id" => sessions.push(value),
                _ => {}
            }
        }
        if let Some(owner) = &self.owner
            && let [session] = *sessions
        {
            let session = std::str::from_utf8(session).ok();
            let sealed = session
                .zip(keys)
                .and_then(|(id, keys)| owner.seal(keys, Named::Session, id));
            changes.push(match sealed {
                Some(sealed) => Change::Set("mcp-session-id", sealed),
                None => Change::Remove("mcp-session-id"),
            });
        } else if self.owner.is_some() && !sessions.is_empty() {
            changes.push(Change::Remove("mcp-session-id"));
        }
        self.body = match (is_json, is_stream) {
            (true, true) => Body::Refused,
            (_, true) => Body::Events(Box::default()),
            (true, _) if self.lists_for.is_some() => Body::Whole,
            // What no client should read as a list.
            (false, false) if self.is_list => Body::Refused,
            _ => Body::Passes,
        };
        if is_coded && !matches!(self.body, Body::Passes) {
            self.body = Body::Refused;
        }
        if !matches!(self.body, Body::Passes) {
            changes.extend(["content-length", "content-digest", "etag"].map(Change::Remove));
        }
        if matches!(self.body, Body::Refused) {
            changes.push(Change::Remove("content-encoding"));
            changes.push(Change::Set("content-type", "application/json".to_owned()));
        }
        Ok(changes)
    }

    /// A piece of the body has arrived. `present` is all of it that is there: with what waits, if something does.
    pub fn on_body(&mut self, present: &[u8], is_last: bool, endpoint: &Endpoint, keys: Option<&SealKeys>) -> Piece {
        match &mut self.body {
            Body::Passes => Piece::Passes,
            Body::Dropped => Piece::Becomes(Vec::new()),
            Body::Refused => self.refuse(),
            Body::Whole if present.len() > MAX_READ_BYTES => match self.is_list {
                true => self.refuse(),
                false => {
                    self.body = Body::Passes;
                    Piece::Passes
                }
            },
            Body::Whole if !is_last => Piece::Waits,
            Body::Whole if present.is_empty() => Piece::Passes,
            Body::Whole => match self.granted(present, endpoint) {
                Ok(None) => Piece::Passes,
                Ok(Some(granted)) => Piece::Becomes(granted.into()),
                Err(Unreadable) if self.is_list || may_list(present) => self.refuse(),
                Err(Unreadable) => Piece::Passes,
            },
            Body::Events(events) => {
                let mut events = std::mem::take(events);
                let mut to = Events {
                    rewriting: self,
                    endpoint,
                    keys,
                };
                let passed = events.pass(present, MAX_READ_BYTES, &mut to);
                match passed {
                    Ok(passed) => {
                        self.body = Body::Events(events);
                        Piece::Becomes(passed)
                    }
                    Err(TooLong) => {
                        self.body = Body::Dropped;
                        Piece::Resets
                    }
                }
            }
        }
    }

    /// Whether this piece of the body is read. One that waits for the rest is not: copying it again and again would take
    /// quadratic time.
    pub fn reads(&self, size: usize, is_last: bool) -> bool {
        match self.body {
            Body::Whole => is_last || size > MAX_READ_BYTES,
            Body::Events(_) => true,
            Body::Passes | Body::Refused | Body::Dropped => false,
        }
    }

    /// Whether the end of the body is still to come, although its last piece was there.
    pub fn waits(&self) -> bool {
        matches!(self.body, Body::Whole)
    }

    /// Nothing else of it passes.
    pub fn drop_rest(&mut self) {
        self.body = Body::Dropped;
    }

    fn granted(&self, text: &[u8], endpoint: &Endpoint) -> Result<Option<String>, Unreadable> {
        let Some(chain) = &self.lists_for else { return Ok(None) };
        listing::granted(text, &|name| {
            let tool = endpoint.tools.of(name);
            tool.is_some_and(|tool| chain.chain.grants(&tool).is_ok())
        })
    }

    fn refuse(&mut self) -> Piece {
        self.body = Body::Dropped;
        Piece::Becomes(self.unreadable())
    }

    fn unreadable(&self) -> Vec<u8> {
        let id = self.id.as_ref().map_or("null", MessageId::json);
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{UNREADABLE}}}"#).into()
    }
}

/// A stream of one answer.
struct Events<'a> {
    rewriting: &'a Rewriting,
    endpoint: &'a Endpoint,
    keys: Option<&'a SealKeys>,
}

impl Rewrite for Events<'_> {
    fn id(&mut self, id: &str) -> Option<String> {
        match &self.rewriting.owner {
            Some(owner) => owner.seal(self.keys?, Named::Event, id),
            None => Some(id.to_owned()),
        }
    }

    fn reads_messages(&self) -> bool {
        self.rewriting.lists_for.is_some()
    }

    fn passes_unread(&self) -> bool {
        !self.rewriting.is_list
    }

    fn message(&mut self, message: Vec<u8>) -> Vec<u8> {
        // It has an id for the client, but no message.
        if message.is_empty() {
            return message;
        }
        match self.rewriting.granted(&message, self.endpoint) {
            Ok(None) => message,
            Ok(Some(granted)) => granted.into(),
            Err(Unreadable) if self.passes_unread() && !may_list(&message) => message,
            Err(Unreadable) => self.rewriting.unreadable(),
        }
    }
}

fn begins_with(value: &[u8], media_type: &[u8]) -> bool {
    let begin = value.trim_ascii_start().get(..media_type.len());
    begin.is_some_and(|begin| begin.eq_ignore_ascii_case(media_type))
}

/// Whether some parser could find a list of tools in a text that is not strict JSON.
fn may_list(text: &[u8]) -> bool {
    let has = |part: &[u8]| text.windows(part.len()).any(|window| window == part);
    has(b"tools") || has(b"\\u")
}

/// The error in place of an answer from which no tools could be removed: it is compressed, too large, or not strict JSON.
const UNREADABLE: &str =
    r#"{"code":-32603,"message":"The proxy cannot read the server's answer, so it does not pass it on."}"#;

/// Of an answer, or an event, that is read.
const MAX_READ_BYTES: usize = 1 << 20;
