//! What the plugin needs of its host, and what its host tells it. Bytes in, bytes out: nothing a client sent is taken for
//! text here.

use std::fmt::Display;

use credence_decision::answer::Answer;
use credence_decision::clock::{Monotonic, UnixNanos};
use credence_decision::metrics::MetricSink;
use credence_decision::shared_store::SharedStore;

/// What can be asked of the host. Calls about a request or a gRPC stream concern the context that the host has called for,
/// or the one that [`Host::in_root`] or [`Host::in_stream`] names.
pub(crate) trait Host: Clone + SharedStore + MetricSink<Error = HostError> {
    /// The monotonic clock. Costs a host call.
    fn monotonic(&self) -> Result<Monotonic, HostError>;

    /// The wall clock. Costs a host call.
    fn unix_time(&self) -> Result<UnixNanos, HostError>;

    /// Random bytes, fit for keys.
    fn random<const N: usize>(&self) -> Result<[u8; N], HostError>;

    /// Writes to the host's log. A line that is refused is lost: there is nowhere else to say so.
    fn log(&self, level: LogLevel, message: &str);

    /// Tells the operator of an error.
    fn log_error(&self, error: impl Display) {
        self.log(LogLevel::Error, &format!("credence: {error}"));
    }

    /// What the VM has been given of memory so far; it never gives any back.
    fn memory_bytes(&self) -> u64;

    /// Asks for a tick of the current root context every so many milliseconds.
    fn set_tick_period(&self, milliseconds: u32) -> Result<(), HostError>;

    /// All headers in one piece, as the host serialises them: the number of pairs, the lengths of each name and value,
    /// then each name and value, closed by a zero byte; numbers are 32-bit little-endian. Empty if there are none.
    fn header_map(&self, map: HeaderMap) -> Result<Vec<u8>, HostError>;

    /// Sets a request header, in place of all fields of that name.
    fn set_header(&self, name: &str, value: &str) -> Result<(), HostError>;

    /// Removes all fields of that name.
    fn remove_header(&self, map: HeaderMap, name: &[u8]) -> Result<(), HostError>;

    /// Up to `max_size` bytes of the request's body.
    fn request_body(&self, max_size: usize) -> Result<Vec<u8>, HostError>;

    /// The value of an attribute of Envoy; `None` if it has none here.
    fn property(&self, path: &[&str]) -> Result<Option<Vec<u8>>, HostError>;

    /// An attribute that is a text; empty if it has none here.
    fn text_property(&self, path: &[&str]) -> Result<String, HostError> {
        let value = self.property(path)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&value).into_owned())
    }

    /// An attribute that is a number: eight bytes, the least significant first.
    fn number_property(&self, path: &[&str]) -> Option<u64> {
        let bytes = self.property(path).ok().flatten()?;
        <[u8; 8]>::try_from(bytes).ok().map(u64::from_le_bytes)
    }

    /// Puts a value into the request's filter state, where it is called `wasm.` and this name.
    fn set_filter_state(&self, name: &str, value: &str) -> Result<(), HostError>;

    /// Answers the current request. `details`, without blanks, go into Envoy's access log. The callback then returns
    /// [`Flow::Stop`], also on an error: a request that could not be answered must not pass either.
    fn answer(&self, answer: &Answer, details: &str) -> Result<(), HostError>;

    /// Lets the current request go on that a callback held with [`Flow::Wait`], as soon as the present callback returns.
    fn continue_request(&self) -> Result<(), HostError>;

    /// Opens a stream that belongs to the current root context: all other calls about it must be made from there. A stream
    /// that fails at once may report its close before, or instead of, giving a token.
    fn open_stream(&self, cluster: &str, service: &str, method: &str) -> Result<GrpcToken, HostError>;

    /// Sends a message on a stream. Nothing limits how much is under way: the caller must.
    fn send(&self, token: GrpcToken, message: &[u8]) -> Result<(), HostError>;

    /// Resets a stream. No close follows.
    fn cancel(&self, token: GrpcToken) -> Result<(), HostError>;

    /// Closes our side of a stream.
    fn close(&self, token: GrpcToken) -> Result<(), HostError>;

    /// A drained root context may go.
    fn done(&self, root: RootId) -> Result<(), HostError>;

    /// Makes calls on behalf of a root context other than the current one.
    fn in_root<R>(&self, root: RootId, calls: impl FnOnce() -> R) -> Result<R, HostError>;

    /// Makes calls on behalf of a request other than the current one.
    fn in_stream<R>(&self, stream: StreamId, calls: impl FnOnce() -> R) -> Result<R, HostError>;
}

/// What the host's calls are turned into. One value serves all contexts of a VM.
///
/// No method is called while another one runs: what the host has to say meanwhile follows right after.
pub(crate) trait Plugin {
    /// A plugin configuration has arrived; `false` refuses it, and Envoy will not serve with it.
    fn on_configure(&mut self, root: RootId, configuration: &[u8]) -> bool;

    /// The tick period of this root context has passed. Meanwhile so many requests were refused because the plugin was
    /// busy, or did not know them.
    fn on_tick(&mut self, root: RootId, undecided: u64);

    /// A request's headers are complete.
    fn on_request_headers(&mut self, root: RootId, stream: StreamId, end_of_stream: bool) -> Flow;

    /// A part of a request's body has arrived: `size` bytes are there by now.
    fn on_request_body(&mut self, root: RootId, stream: StreamId, size: usize, end_of_stream: bool) -> Flow;

    /// A request's trailers are complete.
    fn on_request_trailers(&mut self, root: RootId, stream: StreamId) -> Flow;

    /// A message has arrived on a gRPC stream.
    fn on_grpc_message(&mut self, token: GrpcToken, message: &[u8]);

    /// A gRPC stream was ended by the other side, or could not be opened. Close our side with [`Host::close`] exactly
    /// once, here.
    fn on_grpc_close(&mut self, token: GrpcToken, status: u32);

    /// A request has ended, whichever way.
    fn on_stream_end(&mut self, root: RootId, stream: StreamId);

    /// A root context is to end: its configuration was replaced, or Envoy stops. `true` lets it go at once; after
    /// `false` it lives, and ticks, until [`Host::done`] is called for it.
    fn on_drain(&mut self, root: RootId) -> bool;
}

/// A root context: one plugin configuration in one VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RootId(pub(crate) u32);

/// A stream context: one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StreamId(pub(crate) u32);

/// A gRPC stream. Envoy may give the same number out again, but not while the stream is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GrpcToken(pub(crate) u32);

/// What becomes of a request after a callback. Of one that waits or was stopped, the plugin is asked about each further
/// piece that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It goes on to the next filter.
    Continue,
    /// It stays here until it is decided: with a further piece of it, or by [`Host::answer`] or [`Host::continue_request`]
    /// in another callback.
    Wait,
    /// It stays here for good: it was answered.
    Stop,
}

/// How loud a log line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogLevel {
    /// Should be looked at.
    Warn = 3,
    /// Must be looked at.
    Error = 4,
}

/// Which header map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderMap {
    /// The request's headers.
    RequestHeaders = 0,
    /// The request's trailers.
    RequestTrailers = 1,
}

/// The host refused a call, or answered what it should not. A call on behalf of a request then denies the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Envoy answered {call} with status {status} ({}); expected 0", status_name(*status))]
pub(crate) struct HostError {
    /// The function of the proxy-wasm ABI.
    pub(crate) call: &'static str,
    /// The host's status.
    pub(crate) status: u32,
}

/// For an operator who meets one in a message.
fn status_name(status: u32) -> &'static str {
    match status {
        1 => "not found",
        2 => "bad argument",
        3 => "serialization failure",
        4 => "parse failure",
        6 => "invalid memory access",
        10 => "internal failure",
        _ => "unknown",
    }
}
