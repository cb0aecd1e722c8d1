//! What the plugin needs from its host, and the events that the host reports. Everything is bytes: client data is not
//! assumed to be text.

use std::fmt::Display;

use credence_decision::answer::Answer;
use credence_decision::clock::{Monotonic, UnixNanos};
use credence_decision::metrics::MetricSink;
use credence_decision::shared_store::SharedStore;

/// Calls to the host. Calls about a request or a gRPC stream apply to the current context, or to the one that
/// [`Host::in_root`] or [`Host::in_stream`] names.
pub(crate) trait Host: Clone + SharedStore + MetricSink<Error = HostError> {
    /// The monotonic clock. Costs a host call.
    fn monotonic(&self) -> Result<Monotonic, HostError>;

    /// The wall clock. Costs a host call.
    fn unix_time(&self) -> Result<UnixNanos, HostError>;

    /// Random bytes that are good enough for keys.
    fn random<const N: usize>(&self) -> Result<[u8; N], HostError>;

    /// Writes to the host's log. If the host refuses a line, the line is lost.
    fn log(&self, level: LogLevel, message: &str);

    /// Logs an error for the operator.
    fn log_error(&self, error: impl Display) {
        self.log(LogLevel::Error, &format!("credence: {error}"));
    }

    /// The VM's memory so far; it never shrinks.
    fn memory_bytes(&self) -> u64;

    /// Requests a tick of the current root context at this interval.
    fn set_tick_period(&self, milliseconds: u32) -> Result<(), HostError>;

    /// All headers in one piece, as the host serialises them: the number of pairs, the lengths of each name and value,
    /// then each name and value, each followed by a zero byte. Numbers are 32-bit little-endian. Empty if there are no
    /// headers.
    fn header_map(&self, map: HeaderMap) -> Result<Vec<u8>, HostError>;

    /// Sets a header, which replaces all fields of that name.
    fn set_header(&self, map: HeaderMap, name: &str, value: &str) -> Result<(), HostError>;

    /// Removes all fields of that name.
    fn remove_header(&self, map: HeaderMap, name: &[u8]) -> Result<(), HostError>;

    /// Up to `max_size` bytes of the request's body.
    fn request_body(&self, max_size: usize) -> Result<Vec<u8>, HostError>;

    /// Replaces the request's body, which is held.
    fn replace_request_body(&self, body: &[u8]) -> Result<(), HostError>;

    /// The present piece of the response's body, with what waits of it.
    #[cfg(any(feature = "answers", test))]
    fn response_body(&self, size: usize) -> Result<Vec<u8>, HostError>;

    /// Replaces the present piece of the response's body, with what waits of it.
    #[cfg(any(feature = "answers", test))]
    fn replace_response_body(&self, body: &[u8]) -> Result<(), HostError>;

    /// Resets the current request, with its response.
    fn reset_request(&self) -> Result<(), HostError>;

    /// The value of an Envoy attribute; `None` if it has no value here.
    fn property(&self, path: &[&str]) -> Result<Option<Vec<u8>>, HostError>;

    /// An attribute that is a text; empty if it has no value here.
    fn text_property(&self, path: &[&str]) -> Result<String, HostError> {
        let value = self.property(path)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&value).into_owned())
    }

    /// An attribute that is a number: eight bytes, little-endian.
    fn number_property(&self, path: &[&str]) -> Option<u64> {
        let bytes = self.property(path).ok().flatten()?;
        <[u8; 8]>::try_from(bytes).ok().map(u64::from_le_bytes)
    }

    /// Sets a value in the request's filter state, under the name `wasm.` plus `name`.
    fn set_filter_state(&self, name: &str, value: &str) -> Result<(), HostError>;

    /// Answers the current request. `details`, without blanks, appear in Envoy's access log. The callback must then
    /// return [`Flow::Stop`], also on an error: a request that could not be answered must not pass.
    fn answer(&self, answer: &Answer, details: &str) -> Result<(), HostError>;

    /// Continues the current request, which a callback held with [`Flow::Wait`], when the present callback returns.
    fn continue_request(&self) -> Result<(), HostError>;

    /// Opens a stream in the current root context. All other calls about it must come from that context. A stream that
    /// fails at once may report its close before, or instead of, returning a token.
    fn open_stream(&self, cluster: &str, service: &str, method: &str) -> Result<GrpcToken, HostError>;

    /// Sends a message on a stream. The caller must limit how much is in flight.
    fn send(&self, token: GrpcToken, message: &[u8]) -> Result<(), HostError>;

    /// Resets a stream. No close follows.
    fn cancel(&self, token: GrpcToken) -> Result<(), HostError>;

    /// Closes the filter's side of a stream.
    fn close(&self, token: GrpcToken) -> Result<(), HostError>;

    /// Lets a drained root context end.
    fn done(&self, root: RootId) -> Result<(), HostError>;

    /// Makes calls on behalf of a root context other than the current one.
    fn in_root<R>(&self, root: RootId, calls: impl FnOnce() -> R) -> Result<R, HostError>;

    /// Makes calls on behalf of a request other than the current one.
    fn in_stream<R>(&self, stream: StreamId, calls: impl FnOnce() -> R) -> Result<R, HostError>;
}

/// Receives the host's calls. One value serves all contexts of a VM.
///
/// Methods never run concurrently or nested: events during a call follow after it.
pub(crate) trait Plugin {
    /// A plugin configuration has arrived. `false` refuses it, and Envoy does not serve with it.
    fn on_configure(&mut self, root: RootId, configuration: &[u8]) -> bool;

    /// The tick period of this root context has passed. `undecided` requests were refused since the last tick, because
    /// the plugin was in use or did not know them.
    fn on_tick(&mut self, root: RootId, undecided: u64);

    /// A request's headers are complete.
    fn on_request_headers(&mut self, root: RootId, stream: StreamId, end_of_stream: bool) -> Flow;

    /// A part of a request's body has arrived; `size` bytes of it are present.
    fn on_request_body(&mut self, root: RootId, stream: StreamId, size: usize, end_of_stream: bool) -> Flow;

    /// A request's trailers are complete.
    fn on_request_trailers(&mut self, root: RootId, stream: StreamId) -> Flow;

    /// A response's headers are complete. Only modules with the feature `answers` are told, here and below.
    #[cfg(any(feature = "answers", test))]
    fn on_response_headers(&mut self, root: RootId, stream: StreamId);

    /// A part of a response's body has arrived, or its end; `size` bytes of it are present.
    #[cfg(any(feature = "answers", test))]
    fn on_response_body(&mut self, root: RootId, stream: StreamId, size: usize, end_of_stream: bool) -> Flow;

    /// A response's trailers have arrived.
    #[cfg(any(feature = "answers", test))]
    fn on_response_trailers(&mut self, root: RootId, stream: StreamId) -> Flow;

    /// A message has arrived on a gRPC stream.
    fn on_grpc_message(&mut self, token: GrpcToken, message: &[u8]);

    /// The peer ended a gRPC stream, or it could not be opened. Call [`Host::close`] exactly once, here.
    fn on_grpc_close(&mut self, token: GrpcToken, status: u32);

    /// A request has ended, for any reason.
    fn on_stream_end(&mut self, root: RootId, stream: StreamId);

    /// A root context is about to end: its configuration was replaced, or Envoy stops. `true` lets it end at once.
    /// After `false` it lives, and ticks, until [`Host::done`] is called for it.
    fn on_drain(&mut self, root: RootId) -> bool;
}

/// A root context: one plugin configuration in one VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RootId(pub(crate) u32);

/// A stream context: one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StreamId(pub(crate) u32);

/// A gRPC stream. Envoy may reuse the number after the stream is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GrpcToken(pub(crate) u32);

/// What happens to a request after a callback. While a request waits or is stopped, the plugin is called for each
/// further piece of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The request continues to the next filter.
    Continue,
    /// The request is held until it is decided: by the callback for a further piece, or by [`Host::answer`] or
    /// [`Host::continue_request`] in another callback.
    Wait,
    /// The request was answered, and stops here.
    Stop,
}

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogLevel {
    /// The operator should look at it.
    Warn = 3,
    /// The operator must look at it.
    Error = 4,
}

/// Which header map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderMap {
    /// The request's headers.
    RequestHeaders = 0,
    /// The request's trailers.
    RequestTrailers = 1,
    /// The response's headers.
    #[cfg(any(feature = "answers", test))]
    ResponseHeaders = 2,
}

/// The host refused a call, or gave an invalid result. A failed call for a request denies the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Envoy answered {call} with status {status} ({}); expected 0", status_name(*status))]
pub(crate) struct HostError {
    /// The function of the proxy-wasm ABI.
    pub(crate) call: &'static str,
    /// The host's status.
    pub(crate) status: u32,
}

/// The status's name, for error messages.
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
