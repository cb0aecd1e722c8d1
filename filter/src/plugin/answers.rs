//! Answers of MCP servers, on their way to clients.

use std::fmt::Display;

use credence_decision::mcp::{Change, Piece};
use credence_decision::revocation::Watch;

use super::root::Root;
use crate::host::{Flow, HeaderMap, Host, StreamId};

impl<H: Host> Root<H> {
    /// An answer's headers have arrived. One that cannot be rewritten does not pass.
    pub(super) fn on_response_headers(&mut self, stream: StreamId, watch: &Watch) {
        if self.held.has_only_headers_gone(stream) {
            return self.reset("a service answered before it had the request's body, which is not decided yet");
        }
        let rewriting = self.exchanges.rewriting(stream);
        let Some((_, rewriting)) = rewriting else { return };
        let map = HeaderMap::ResponseHeaders;
        let rewritten = self
            .host
            .header_map(map)
            .map_err(|error| error.to_string())
            .and_then(|serialized| {
                let changes = rewriting.on_headers(&serialized, watch.session_keys());
                let mut changes = changes.map_err(|error| error.to_string())?.into_iter();
                let made = changes.try_for_each(|change| match change {
                    Change::Remove(name) => self.host.remove_header(map, name.as_bytes()),
                    Change::Set(name, value) => self.host.set_header(map, name, &value),
                });
                made.map_err(|error| error.to_string())
            });
        if let Err(error) = rewritten {
            self.reset(format_args!("an answer could not be rewritten: {error}"));
        }
    }

    /// An answer's trailers have arrived.
    pub(super) fn on_response_trailers(&mut self, stream: StreamId, watch: &Watch) -> Flow {
        match self.exchanges.rewriting(stream) {
            Some((_, rewriting)) if rewriting.waits() => self.on_response_body(stream, usize::MAX, true, watch),
            _ => Flow::Continue,
        }
    }

    /// A piece of an answer's body has arrived, or its end.
    pub(super) fn on_response_body(&mut self, stream: StreamId, size: usize, is_last: bool, watch: &Watch) -> Flow {
        let Some((rule_index, rewriting)) = self.exchanges.rewriting(stream) else {
            return Flow::Continue;
        };
        let Some(endpoint) = self.engine.endpoint(rule_index) else {
            return Flow::Continue;
        };
        let present = match rewriting.reads(size, is_last) {
            true => self.host.response_body(size),
            false => Ok(Vec::new()),
        };
        let passed =
            present.and_then(
                |present| match rewriting.on_body(&present, is_last, endpoint, watch.session_keys()) {
                    Piece::Passes => Ok(Flow::Continue),
                    Piece::Waits => Ok(Flow::Wait),
                    Piece::Resets => {
                        let sent = self
                            .host
                            .replace_response_body(b"")
                            .and_then(|()| self.host.reset_request());
                        sent.map(|()| Flow::Continue)
                    }
                    Piece::Becomes(body) => self.host.replace_response_body(&body).map(|()| Flow::Continue),
                },
            );
        passed.unwrap_or_else(|error| {
            self.reset(format_args!("an answer could not be rewritten: {error}"));
            Flow::Stop
        })
    }

    fn reset(&self, why: impl Display) {
        self.host.log_error(why);
        if let Err(error) = self.host.reset_request() {
            self.host
                .log_error(format_args!("and the request could not be reset: {error}"));
        }
    }
}
