//! Envoy as the plugin's host.

use std::cell::Cell;
use std::time::{Duration, UNIX_EPOCH};

use credence_decision::answer::Answer;
use credence_decision::clock::{Monotonic, UnixNanos};
use credence_decision::metrics::{MetricKind, MetricSink};
use credence_decision::request::serialize_headers;
use credence_decision::shared_store::{SharedStore, StoreFailure, Version};
use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, MapType, MetricType, Status};

use super::raw;
use crate::grpc_service;
use crate::host::{GrpcToken, HeaderMap, Host, HostError, LogLevel, RootId, StreamId};

/// Envoy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envoy;

impl Host for Envoy {
    fn monotonic(&self) -> Result<Monotonic, HostError> {
        let nanos = raw::monotonic_time().map_err(failed("clock_time_get"))?;
        Ok(Monotonic(nanos))
    }

    fn unix_time(&self) -> Result<UnixNanos, HostError> {
        let now = said("proxy_get_current_time_nanoseconds", hostcalls::get_current_time())?;
        let nanos = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Ok(UnixNanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    fn random<const N: usize>(&self) -> Result<[u8; N], HostError> {
        let mut bytes = [0; N];
        raw::random(&mut bytes).map_err(failed("random_get"))?;
        Ok(bytes)
    }

    fn log(&self, level: LogLevel, message: &str) {
        let level = match level {
            LogLevel::Warn => proxy_wasm::types::LogLevel::Warn,
            LogLevel::Error => proxy_wasm::types::LogLevel::Error,
        };
        let _ = hostcalls::log(level, message);
    }

    fn memory_bytes(&self) -> u64 {
        const PAGE_BYTES: u64 = 65_536;
        (core::arch::wasm32::memory_size::<0>() as u64).saturating_mul(PAGE_BYTES)
    }

    fn set_tick_period(&self, milliseconds: u32) -> Result<(), HostError> {
        let period = Duration::from_millis(milliseconds.into());
        said("proxy_set_tick_period_milliseconds", hostcalls::set_tick_period(period))
    }

    fn header_map(&self, map: HeaderMap) -> Result<Vec<u8>, HostError> {
        raw::header_map(map).map_err(failed("proxy_get_header_map_pairs"))
    }

    fn set_header(&self, name: &str, value: &str) -> Result<(), HostError> {
        let set = hostcalls::set_map_value(MapType::HttpRequestHeaders, name, Some(value));
        said("proxy_replace_header_map_value", set)
    }

    fn remove_header(&self, map: HeaderMap, name: &[u8]) -> Result<(), HostError> {
        let map = match map {
            HeaderMap::RequestHeaders => MapType::HttpRequestHeaders,
            HeaderMap::RequestTrailers => MapType::HttpRequestTrailers,
        };
        // Envoy accepts only header names that are text.
        let name = std::str::from_utf8(name).map_err(|_| Status::BadArgument);
        said(
            "proxy_remove_header_map_value",
            name.and_then(|name| hostcalls::remove_map_value(map, name)),
        )
    }

    fn request_body(&self, max_size: usize) -> Result<Vec<u8>, HostError> {
        buffer(BufferType::HttpRequestBody, max_size)
    }

    fn property(&self, path: &[&str]) -> Result<Option<Vec<u8>>, HostError> {
        said("proxy_get_property", hostcalls::get_property(path.to_vec()))
    }

    fn set_filter_state(&self, name: &str, value: &str) -> Result<(), HostError> {
        said(
            "proxy_set_property",
            hostcalls::set_property(vec![name], Some(value.as_bytes())),
        )
    }

    fn answer(&self, answer: &Answer, details: &str) -> Result<(), HostError> {
        let headers = serialize_headers(&answer.headers);
        raw::send_local_response(answer, details, &headers).map_err(failed("proxy_send_local_response"))
    }

    fn continue_request(&self) -> Result<(), HostError> {
        said("proxy_continue_stream", hostcalls::resume_http_request())
    }

    fn open_stream(&self, cluster: &str, service: &str, method: &str) -> Result<GrpcToken, HostError> {
        let envoy_grpc = grpc_service::encode(cluster);
        // SAFETY: the SDK only passes the address and the length on.
        #[allow(unsafe_code)]
        let envoy_grpc = unsafe { std::str::from_utf8_unchecked(&envoy_grpc) };
        let opened = hostcalls::open_grpc_stream(envoy_grpc, service, method, Vec::new());
        said("proxy_grpc_stream", opened).map(GrpcToken)
    }

    fn send(&self, token: GrpcToken, message: &[u8]) -> Result<(), HostError> {
        said(
            "proxy_grpc_send",
            hostcalls::send_grpc_stream_message(token.0, Some(message), false),
        )
    }

    fn cancel(&self, token: GrpcToken) -> Result<(), HostError> {
        said("proxy_grpc_cancel", hostcalls::cancel_grpc_stream(token.0))
    }

    fn close(&self, token: GrpcToken) -> Result<(), HostError> {
        said("proxy_grpc_close", hostcalls::close_grpc_stream(token.0))
    }

    fn done(&self, root: RootId) -> Result<(), HostError> {
        in_context(root.0, || said("proxy_done", hostcalls::done()))?
    }

    fn in_root<R>(&self, root: RootId, calls: impl FnOnce() -> R) -> Result<R, HostError> {
        in_context(root.0, calls)
    }

    fn in_stream<R>(&self, stream: StreamId, calls: impl FnOnce() -> R) -> Result<R, HostError> {
        in_context(stream.0, calls)
    }
}

/// One map for all VMs of the process with the same `vm_id`. Each read and write costs a process-wide lock.
impl SharedStore for Envoy {
    fn read(&mut self, key: &str) -> Result<Option<(Vec<u8>, Version)>, StoreFailure> {
        let (value, cas) = hostcalls::get_shared_data(key).map_err(|_| StoreFailure)?;
        Ok(cas.map(|cas| (value.unwrap_or_default(), Version(cas))))
    }

    fn write(&mut self, key: &str, value: &[u8], expected: Option<Version>) -> Result<bool, StoreFailure> {
        // The store always writes a key that does not exist. A version that no key has therefore writes only in that
        // case.
        const INSERT_IF_ABSENT: u32 = u32::MAX;
        let cas = expected.map_or(INSERT_IF_ABSENT, |version| version.0);
        match hostcalls::set_shared_data(key, Some(value), Some(cas)) {
            Ok(()) => Ok(true),
            Err(Status::CasMismatch) => Ok(false),
            Err(_) => Err(StoreFailure),
        }
    }
}

impl MetricSink for Envoy {
    type Error = HostError;

    fn define(&mut self, kind: MetricKind, name: &str) -> Result<u32, HostError> {
        let kind = match kind {
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Gauge | MetricKind::Level => MetricType::Gauge,
            MetricKind::Histogram => MetricType::Histogram,
        };
        said("proxy_define_metric", hostcalls::define_metric(kind, name))
    }

    fn increment(&mut self, id: u32, by: i64) -> Result<(), HostError> {
        said("proxy_increment_metric", hostcalls::increment_metric(id, by))
    }

    fn record(&mut self, id: u32, value: u64) -> Result<(), HostError> {
        said("proxy_record_metric", hostcalls::record_metric(id, value))
    }
}

/// Up to `max_size` bytes of a buffer.
pub(super) fn buffer(buffer: BufferType, max_size: usize) -> Result<Vec<u8>, HostError> {
    raw::buffer(buffer, max_size).map_err(failed("proxy_get_buffer_bytes"))
}

/// Sets the context of the following calls.
pub(super) fn enter(context: u32) {
    CURRENT.set(context);
}

thread_local! {
    /// The context of the host's calls.
    static CURRENT: Cell<u32> = const { Cell::new(0) };
}

fn in_context<R>(context: u32, calls: impl FnOnce() -> R) -> Result<R, HostError> {
    let previous = CURRENT.get();
    if context == previous {
        return Ok(calls());
    }
    said("proxy_set_effective_context", hostcalls::set_effective_context(context))?;
    CURRENT.set(context);
    let outcome = calls();
    CURRENT.set(previous);
    // The previous context may have ended during the calls. Envoy then returns to it by itself.
    let _ = hostcalls::set_effective_context(previous);
    Ok(outcome)
}

/// The result of a call, from the SDK's.
fn said<T>(call: &'static str, outcome: Result<T, Status>) -> Result<T, HostError> {
    outcome.map_err(|status| failed(call)(status as u32))
}

fn failed(call: &'static str) -> impl FnOnce(u32) -> HostError {
    move |status| HostError { call, status }
}
