//! What can be asked of Envoy, in types that can not be misused. Bytes in, bytes out: nothing a client sent is taken
//! for text here.

use std::cell::Cell;

use super::abi::{self, Answer};
use super::format;
use super::{GrpcToken, RootId, StreamId};
use credence_decision::clock::{Monotonic, UnixNanos};
use credence_decision::metrics::{MetricKind, MetricSink};

/// Envoy refused a call, or answered what it should not. Whoever asked on behalf of a request denies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Envoy answered {call} with status {status} ({}); expected 0", status_name(*status))]
pub(crate) struct HostError {
    /// The function of the proxy-wasm ABI.
    pub(crate) call: &'static str,
    /// The host's status.
    pub(crate) status: u32,
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
pub(crate) enum MapType {
    /// The request's headers.
    RequestHeaders = 0,
    /// The request's trailers.
    RequestTrailers = 1,
}

/// Which buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferType {
    /// What has arrived of the request's body.
    RequestBody = 0,
    /// The gRPC message being delivered.
    GrpcMessage = 5,
    /// The plugin's configuration, while it is configured.
    PluginConfiguration = 7,
}

/// An answer given instead of the upstream's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalResponse<'a> {
    /// The HTTP status.
    pub(crate) status: u32,
    /// For Envoy's access log (`%RESPONSE_CODE_DETAILS%`); without blanks.
    pub(crate) details: &'a str,
    /// Header names, in lower case, and values.
    pub(crate) headers: &'a [(&'a [u8], &'a [u8])],
    /// The body.
    pub(crate) body: &'a [u8],
    /// The gRPC status, if the request is a gRPC one.
    pub(crate) grpc_status: Option<u8>,
}

/// A value of the data shared by all VMs of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedData {
    /// The value; may be empty.
    pub(crate) value: Vec<u8>,
    /// Its version, for `set_shared_data`.
    pub(crate) cas: u32,
}

/// What became of a write to shared data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is stored.
    Stored,
    /// Somebody else wrote first: read again.
    Lost,
}

/// Hands metrics to Envoy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostMetrics;

/// Host statuses that are told apart, and those an operator may meet in a message.
mod status {
    pub(super) const OK: u32 = 0;
    pub(super) const NOT_FOUND: u32 = 1;
    pub(super) const CAS_MISMATCH: u32 = 8;
    /// Not of the host: it wrote an answer elsewhere than it was told to.
    pub(super) const MISPLACED_ANSWER: u32 = u32::MAX;
}

/// The version with which a write succeeds only if the key does not exist.
pub(crate) const INSERT_IF_ABSENT: u32 = u32::MAX;

// Time, randomness, log

/// The monotonic clock. Costs a host call.
pub(crate) fn monotonic() -> Result<Monotonic, HostError> {
    let mut nanos = 0;
    check("clock_time_get", abi::monotonic_time(&mut nanos))?;
    Ok(Monotonic::from_nanos(nanos))
}

/// The wall clock. Costs a host call.
pub(crate) fn unix_time() -> Result<UnixNanos, HostError> {
    let mut nanos = 0;
    check("proxy_get_current_time_nanoseconds", abi::current_time(&mut nanos))?;
    Ok(UnixNanos::from_nanos(nanos))
}

/// Random bytes, fit for keys.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], HostError> {
    let mut bytes = [0; N];
    check("random_get", abi::random(&mut bytes))?;
    Ok(bytes)
}

/// Writes to Envoy's log. A line that is refused is lost: there is nowhere else to say so.
pub(crate) fn log(level: LogLevel, message: &str) {
    abi::log(level as u32, message);
}

/// What the VM has been given of memory so far; it never gives any back.
pub(crate) fn memory_bytes() -> u64 {
    const PAGE_BYTES: u64 = 65_536;
    (core::arch::wasm32::memory_size::<0>() as u64).saturating_mul(PAGE_BYTES)
}

/// Asks for a tick of the current root context every so many milliseconds.
pub(crate) fn set_tick_period(milliseconds: u32) -> Result<(), HostError> {
    check("proxy_set_tick_period_milliseconds", abi::set_tick_period(milliseconds))
}

// The request

/// All headers in one piece, as the host serialises them: the number of pairs, the lengths of each name and value, then
/// each name and value, closed by a zero byte; numbers are 32-bit little-endian. Empty if there are none.
///
/// Give the memory back with `recycle` when done: the next request then needs no new one.
pub(crate) fn header_map_bytes(map: MapType) -> Result<Vec<u8>, HostError> {
    answer("proxy_get_header_map_pairs", |answer| {
        abi::header_map_pairs(map as u32, answer)
    })
}

/// Sets a header, in place of all fields of that name.
pub(crate) fn set_header(map: MapType, name: &[u8], value: &[u8]) -> Result<(), HostError> {
    let status = abi::replace_header(map as u32, name, value);
    check("proxy_replace_header_map_value", status)
}

/// Removes all fields of that name.
pub(crate) fn remove_header(map: MapType, name: &[u8]) -> Result<(), HostError> {
    check("proxy_remove_header_map_value", abi::remove_header(map as u32, name))
}

/// Up to `max_size` bytes of a buffer.
pub(crate) fn buffer_bytes(buffer: BufferType, max_size: usize) -> Result<Vec<u8>, HostError> {
    answer("proxy_get_buffer_bytes", |answer| {
        abi::buffer_bytes(buffer as u32, 0, max_size, answer)
    })
}

/// Answers the current request here. The callback returns `Flow::Pause` afterwards, whether or not this succeeded: a
/// request that could not be answered must not pass either.
pub(crate) fn send_local_response(response: &LocalResponse<'_>) -> Result<(), HostError> {
    const NO_GRPC_STATUS: i32 = -1;
    let status = abi::send_local_response(
        response.status,
        response.details,
        response.body,
        &format::serialize_pairs(response.headers),
        response.grpc_status.map_or(NO_GRPC_STATUS, i32::from),
    );
    check("proxy_send_local_response", status)
}

/// Lets the current request go on that a callback held with `Flow::Hold`, as soon as the present callback returns.
pub(crate) fn continue_request() -> Result<(), HostError> {
    const REQUEST: u32 = 0;
    check("proxy_continue_stream", abi::continue_stream(REQUEST))
}

/// The value of an Envoy attribute; `None` if it has none here.
pub(crate) fn property(path: &[&str]) -> Result<Option<Vec<u8>>, HostError> {
    let path = format::property_path(path);
    present(answer("proxy_get_property", |answer| abi::property(&path, answer)))
}

/// Puts a value into the request's filter state, where it is called `wasm.` and this name.
pub(crate) fn set_filter_state(name: &str, value: &[u8]) -> Result<(), HostError> {
    check("proxy_set_property", abi::set_property(name.as_bytes(), value))
}

/// Keeps the memory of an answer that is no longer needed.
pub(crate) fn recycle(answer: Vec<u8>) {
    abi::recycle(answer);
}

// Shared data

/// Reads shared data; `None` if the key does not exist. Costs a process-wide lock.
pub(crate) fn shared_data(key: &[u8]) -> Result<Option<SharedData>, HostError> {
    let mut cas = 0;
    let value = answer("proxy_get_shared_data", |answer| {
        abi::shared_data(key, answer, &mut cas)
    });
    Ok(present(value)?.map(|value| SharedData { value, cas }))
}

/// Writes shared data if it still has the version `cas`; 0 writes in any case. A key that does not exist is always
/// written, so that `INSERT_IF_ABSENT` writes exactly then.
pub(crate) fn set_shared_data(key: &[u8], value: &[u8], cas: u32) -> Result<Written, HostError> {
    match abi::set_shared_data(key, value, cas) {
        status::CAS_MISMATCH => Ok(Written::Lost),
        status => check("proxy_set_shared_data", status).map(|()| Written::Stored),
    }
}

// gRPC

/// Opens a stream that belongs to the current root context: all other calls about it must be made from there. A stream
/// that fails at once may report its close before, or instead of, giving a token.
pub(crate) fn grpc_stream(cluster: &str, service_name: &str, method_name: &str) -> Result<GrpcToken, HostError> {
    let mut token = 0;
    let status = abi::grpc_stream(
        &format::grpc_service(cluster),
        service_name,
        method_name,
        &format::serialize_pairs(&[]),
        &mut token,
    );
    check("proxy_grpc_stream", status)?;
    Ok(GrpcToken(token))
}

/// Sends a message on a stream of the current root context. Nothing limits how much is under way: the caller must.
pub(crate) fn grpc_send(token: GrpcToken, message: &[u8]) -> Result<(), HostError> {
    check("proxy_grpc_send", abi::grpc_send(token.0, message, false))
}

/// Resets a stream of the current root context. No close follows.
pub(crate) fn grpc_cancel(token: GrpcToken) -> Result<(), HostError> {
    check("proxy_grpc_cancel", abi::grpc_cancel(token.0))
}

/// Closes our side of a stream of the current root context.
pub(crate) fn grpc_close(token: GrpcToken) -> Result<(), HostError> {
    check("proxy_grpc_close", abi::grpc_close(token.0))
}

// Contexts

/// A drained root context may go.
pub(crate) fn done(root: RootId) -> Result<(), HostError> {
    in_context(root.0, || check("proxy_done", abi::done()))?
}

/// Makes calls on behalf of a root context other than the current one.
pub(crate) fn in_root<R>(root: RootId, calls: impl FnOnce() -> R) -> Result<R, HostError> {
    in_context(root.0, calls)
}

/// Makes calls on behalf of a request other than the current one.
pub(crate) fn in_stream<R>(stream: StreamId, calls: impl FnOnce() -> R) -> Result<R, HostError> {
    in_context(stream.0, calls)
}

/// Envoy calls on behalf of this context from here on.
pub(super) fn enter(context: u32) {
    CURRENT.set(context);
}

thread_local! {
    /// The context the host's calls concern.
    static CURRENT: Cell<u32> = const { Cell::new(0) };
}

fn in_context<R>(context: u32, calls: impl FnOnce() -> R) -> Result<R, HostError> {
    let previous = CURRENT.get();
    if context == previous {
        return Ok(calls());
    }
    check("proxy_set_effective_context", abi::set_effective_context(context))?;
    CURRENT.set(context);
    let outcome = calls();
    CURRENT.set(previous);
    // The previous context may have ended by what was just done; Envoy then goes back to it by itself.
    abi::set_effective_context(previous);
    Ok(outcome)
}

// === impl HostMetrics ===

impl MetricSink for HostMetrics {
    type Error = HostError;

    fn define(&mut self, kind: MetricKind, name: &str) -> Result<u32, HostError> {
        let kind = match kind {
            MetricKind::Counter => 0,
            MetricKind::Gauge | MetricKind::Level => 1,
            MetricKind::Histogram => 2,
        };
        let mut id = 0;
        check("proxy_define_metric", abi::define_metric(kind, name, &mut id))?;
        Ok(id)
    }

    fn increment(&mut self, id: u32, by: i64) -> Result<(), HostError> {
        check("proxy_increment_metric", abi::increment_metric(id, by))
    }

    fn record(&mut self, id: u32, value: u64) -> Result<(), HostError> {
        check("proxy_record_metric", abi::record_metric(id, value))
    }
}

fn check(call: &'static str, status: u32) -> Result<(), HostError> {
    if status == status::OK {
        Ok(())
    } else {
        Err(HostError { call, status })
    }
}

fn answer(call: &'static str, ask: impl FnOnce(&mut Answer) -> u32) -> Result<Vec<u8>, HostError> {
    let mut answer = Answer::default();
    check(call, ask(&mut answer))?;
    abi::take_answer(answer).ok_or(HostError {
        call,
        status: status::MISPLACED_ANSWER,
    })
}

/// What does not exist is no error.
fn present<T>(outcome: Result<T, HostError>) -> Result<Option<T>, HostError> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(HostError {
            status: status::NOT_FOUND,
            ..
        }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn status_name(status: u32) -> &'static str {
    match status {
        status::OK => "ok",
        status::NOT_FOUND => "not found",
        2 => "bad argument",
        3 => "serialization failure",
        4 => "parse failure",
        5 => "bad expression",
        6 => "invalid memory access",
        7 => "empty",
        status::CAS_MISMATCH => "written by somebody else",
        9 => "result mismatch",
        10 => "internal failure",
        11 => "broken connection",
        12 => "unimplemented",
        status::MISPLACED_ANSWER => "its answer is not where it should be",
        _ => "unknown",
    }
}
