//! Envoy as the plugin's host.

use std::cell::Cell;

use credence_decision::answer::Answer;
use credence_decision::clock::{Monotonic, UnixNanos};
use credence_decision::metrics::{MetricKind, MetricSink};
use credence_decision::request::serialize_headers;
use credence_decision::shared_store::{SharedStore, StoreFailure, Version};

use super::raw::{self, Buffer};
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
        let nanos = raw::unix_time().map_err(failed("proxy_get_current_time_nanoseconds"))?;
        Ok(UnixNanos(nanos))
    }

    fn random<const N: usize>(&self) -> Result<[u8; N], HostError> {
        let mut bytes = [0; N];
        raw::random(&mut bytes).map_err(failed("random_get"))?;
        Ok(bytes)
    }

    fn log(&self, level: LogLevel, message: &str) {
        let _ = raw::log(level, message);
    }

    fn memory_bytes(&self) -> u64 {
        const PAGE_BYTES: u64 = 65_536;
        (core::arch::wasm32::memory_size::<0>() as u64).saturating_mul(PAGE_BYTES)
    }

    fn set_tick_period(&self, milliseconds: u32) -> Result<(), HostError> {
        raw::set_tick_period(milliseconds).map_err(failed("proxy_set_tick_period_milliseconds"))
    }

    fn header_map(&self, map: HeaderMap) -> Result<Vec<u8>, HostError> {
        raw::header_map(map).map_err(failed("proxy_get_header_map_pairs"))
    }

    fn set_header(&self, map: HeaderMap, name: &str, value: &str) -> Result<(), HostError> {
        let set = raw::set_header(map, name, value);
        set.map_err(failed("proxy_replace_header_map_value"))
    }

    fn remove_header(&self, map: HeaderMap, name: &[u8]) -> Result<(), HostError> {
        raw::remove_header(map, name).map_err(failed("proxy_remove_header_map_value"))
    }

    fn request_body(&self, max_size: usize) -> Result<Vec<u8>, HostError> {
        buffer(Buffer::RequestBody, max_size)
    }

    fn replace_request_body(&self, body: &[u8]) -> Result<(), HostError> {
        raw::replace_buffer(Buffer::RequestBody, body).map_err(failed("proxy_set_buffer_bytes"))
    }

    #[cfg(feature = "answers")]
    fn response_body(&self, size: usize) -> Result<Vec<u8>, HostError> {
        buffer(Buffer::ResponseBody, size)
    }

    #[cfg(feature = "answers")]
    fn replace_response_body(&self, body: &[u8]) -> Result<(), HostError> {
        raw::replace_buffer(Buffer::ResponseBody, body).map_err(failed("proxy_set_buffer_bytes"))
    }

    fn reset_request(&self) -> Result<(), HostError> {
        raw::close_request().map_err(failed("proxy_close_stream"))
    }

    fn property(&self, path: &[&str]) -> Result<Option<Vec<u8>>, HostError> {
        raw::property(path).map_err(failed("proxy_get_property"))
    }

    fn set_filter_state(&self, name: &str, value: &str) -> Result<(), HostError> {
        raw::set_property(name, value.as_bytes()).map_err(failed("proxy_set_property"))
    }

    fn answer(&self, answer: &Answer, details: &str) -> Result<(), HostError> {
        let headers = serialize_headers(&answer.headers);
        raw::send_local_response(answer, details, &headers).map_err(failed("proxy_send_local_response"))
    }

    fn continue_request(&self) -> Result<(), HostError> {
        raw::continue_request().map_err(failed("proxy_continue_stream"))
    }

    fn open_stream(&self, cluster: &str, service: &str, method: &str) -> Result<GrpcToken, HostError> {
        let opened = raw::open_stream(&grpc_service::encode(cluster), service, method);
        opened.map(GrpcToken).map_err(failed("proxy_grpc_stream"))
    }

    fn send(&self, token: GrpcToken, message: &[u8]) -> Result<(), HostError> {
        raw::send(token.0, message).map_err(failed("proxy_grpc_send"))
    }

    fn cancel(&self, token: GrpcToken) -> Result<(), HostError> {
        raw::cancel(token.0).map_err(failed("proxy_grpc_cancel"))
    }

    fn close(&self, token: GrpcToken) -> Result<(), HostError> {
        raw::close(token.0).map_err(failed("proxy_grpc_close"))
    }

    fn done(&self, root: RootId) -> Result<(), HostError> {
        in_context(root.0, || raw::done().map_err(failed("proxy_done")))?
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
        let found = raw::shared_data(key).map_err(|_| StoreFailure)?;
        Ok(found.map(|(value, version)| (value, Version(version))))
    }

    fn write(&mut self, key: &str, value: &[u8], expected: Option<Version>) -> Result<bool, StoreFailure> {
        // The store always writes a key that does not exist. A version that no key has therefore writes only in that
        // case.
        const INSERT_IF_ABSENT: u32 = u32::MAX;
        let version = expected.map_or(INSERT_IF_ABSENT, |version| version.0);
        raw::set_shared_data(key, value, version).map_err(|_| StoreFailure)
    }
}

impl MetricSink for Envoy {
    type Error = HostError;

    fn define(&mut self, kind: MetricKind, name: &str) -> Result<u32, HostError> {
        raw::define_metric(kind, name).map_err(failed("proxy_define_metric"))
    }

    fn increment(&mut self, id: u32, by: i64) -> Result<(), HostError> {
        raw::increment_metric(id, by).map_err(failed("proxy_increment_metric"))
    }

    fn record(&mut self, id: u32, value: u64) -> Result<(), HostError> {
        raw::record_metric(id, value).map_err(failed("proxy_record_metric"))
    }
}

/// Up to `max_size` bytes of a buffer.
pub(super) fn buffer(buffer: Buffer, max_size: usize) -> Result<Vec<u8>, HostError> {
    raw::buffer(buffer, max_size).map_err(failed("proxy_get_buffer_bytes"))
}

/// A callback's context, which the host's calls concern until this is dropped. A callback may come during another one.
pub(super) struct Entered {
    previous: u32,
}

pub(super) fn enter(context: u32) -> Entered {
    Entered {
        previous: CURRENT.replace(context),
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.previous);
    }
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
    raw::set_effective_context(context).map_err(failed("proxy_set_effective_context"))?;
    CURRENT.set(context);
    let outcome = calls();
    CURRENT.set(previous);
    // The previous context may have ended during the calls. Envoy then returns to it by itself.
    let _ = raw::set_effective_context(previous);
    Ok(outcome)
}

fn failed(call: &'static str) -> impl FnOnce(u32) -> HostError {
    move |status| HostError { call, status }
}
