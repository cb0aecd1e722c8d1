//! The boundary to Envoy: proxy-wasm ABI 0.2.1, spoken directly.
//!
//! The usual SDK is not used, because it panics on host statuses it does not expect and on header values that are not
//! UTF-8, exports callbacks that cost a VM call each per request, and copies every header into strings of its own.
//!
//! | file | its one job |
//! |---|---|
//! | `abi` | the imported functions, and the memory the host writes into; the only `unsafe` code |
//! | `calls` | the same functions with types that can not be misused, and errors |
//! | `exports` | the functions Envoy calls |
//! | `dispatch` | whose turn it is when Envoy calls, even from within a call to Envoy |
//! | `format` | the byte formats that cross the boundary |

#[cfg(target_arch = "wasm32")]
mod abi;
#[cfg(target_arch = "wasm32")]
pub(crate) mod calls;
mod dispatch;
#[cfg(target_arch = "wasm32")]
mod exports;
mod format;

#[cfg(target_arch = "wasm32")]
pub(crate) use dispatch::take_undecided;

/// What Envoy's calls are turned into. One value serves all contexts of a VM.
///
/// No method is called while another one runs: what Envoy has to say meanwhile follows right after.
pub(crate) trait Plugin {
    /// A plugin configuration has arrived; `false` refuses it, and Envoy will not serve with it.
    fn on_configure(&mut self, root: RootId, configuration: &[u8]) -> bool;

    /// The tick period of this root context has passed.
    fn on_tick(&mut self, root: RootId);

    /// A request's headers are complete.
    fn on_request_headers(&mut self, root: RootId, stream: StreamId, end_of_stream: bool) -> Flow;

    /// A part of a request's body has arrived: `size` bytes are there by now.
    fn on_request_body(&mut self, root: RootId, stream: StreamId, size: usize, end_of_stream: bool) -> Flow;

    /// A request's trailers are complete.
    fn on_request_trailers(&mut self, root: RootId, stream: StreamId) -> Flow;

    /// A message has arrived on a gRPC stream.
    fn on_grpc_message(&mut self, token: GrpcToken, message: &[u8]);

    /// A gRPC stream was ended by the other side, or could not be opened. Close our side with
    /// `calls::grpc_close` exactly once, here.
    fn on_grpc_close(&mut self, token: GrpcToken, status: u32);

    /// A request has ended, whichever way.
    fn on_stream_end(&mut self, root: RootId, stream: StreamId);

    /// A root context is to end: its configuration was replaced, or Envoy stops. `true` lets it go at once; after
    /// `false` it lives, and ticks, until `calls::done` is called for it.
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

/// What becomes of a request after a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It goes on to the next filter.
    Continue,
    /// It stays here, for good: it was answered.
    Pause,
    /// It stays here until its body has arrived.
    AwaitBody,
    /// It stays here, body and all, until it is answered or `calls::continue_request` lets it go on. Only from its
    /// headers.
    Hold,
}
