//! Envoy as the plugin's host: the functions of `abi`, with types that can not be misused.

use std::cell::Cell;

use credence_decision::clock::{Monotonic, UnixNanos};
use credence_decision::metrics::{MetricKind, MetricSink};
use credence_decision::shared_store::{SharedStore, StoreFailure, Version};

use super::abi::{self, Answer};
use super::format;
use crate::host::{GrpcToken, HeaderMap, Host, HostError, LocalResponse, LogLevel, RootId, StreamId, status};

/// Envoy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envoy;

/// Which buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BufferType {
    /// What has arrived of the request's body.
    RequestBody = 0,
    /// The gRPC message being delivered.
    GrpcMessage = 5,
    /// The plugin's configuration, while it is configured.
    PluginConfiguration = 7,
}

impl Host for Envoy {
    fn monotonic(&self) -> Result<Monotonic, HostError> {
        let mut nanos = 0;
        check("clock_time_get", abi::monotonic_time(&mut nanos))?;
        Ok(Monotonic::from_nanos(nanos))
    }

    fn unix_time(&self) -> Result<UnixNanos, HostError> {
        let mut nanos = 0;
        check("proxy_get_current_time_nanoseconds", abi::current_time(&mut nanos))?;
        Ok(UnixNanos::from_nanos(nanos))
    }

    fn random<const N: usize>(&self) -> Result<[u8; N], HostError> {
        let mut bytes = [0; N];
        check("random_get", abi::random(&mut bytes))?;
        Ok(bytes)
    }

    fn log(&self, level: LogLevel, message: &str) {
        abi::log(level as u32, message);
    }

    fn memory_bytes(&self) -> u64 {
        const PAGE_BYTES: u64 = 65_536;
        (core::arch::wasm32::memory_size::<0>() as u64).saturating_mul(PAGE_BYTES)
    }

    fn set_tick_period(&self, milliseconds: u32) -> Result<(), HostError> {
        check("proxy_set_tick_period_milliseconds", abi::set_tick_period(milliseconds))
    }

    fn header_map(&self, map: HeaderMap) -> Result<Vec<u8>, HostError> {
        answer("proxy_get_header_map_pairs", |answer| {
            abi::header_map_pairs(map as u32, answer)
        })
    }

    fn recycle(&self, header_map: Vec<u8>) {
        abi::recycle(header_map);
    }

    fn set_header(&self, name: &str, value: &str) -> Result<(), HostError> {
        let map = HeaderMap::RequestHeaders as u32;
        let status = abi::replace_header(map, name.as_bytes(), value.as_bytes());
        check("proxy_replace_header_map_value", status)
    }

    fn remove_header(&self, map: HeaderMap, name: &[u8]) -> Result<(), HostError> {
        check("proxy_remove_header_map_value", abi::remove_header(map as u32, name))
    }

    fn request_body(&self, max_size: usize) -> Result<Vec<u8>, HostError> {
        buffer_bytes(BufferType::RequestBody, max_size)
    }

    fn property(&self, path: &[&str]) -> Result<Option<Vec<u8>>, HostError> {
        let path = format::property_path(path);
        present(answer("proxy_get_property", |answer| abi::property(&path, answer)))
    }

    fn set_filter_state(&self, name: &str, value: &str) -> Result<(), HostError> {
        let status = abi::set_property(name.as_bytes(), value.as_bytes());
        check("proxy_set_property", status)
    }

    fn answer(&self, response: &LocalResponse<'_>) -> Result<(), HostError> {
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

    fn continue_request(&self) -> Result<(), HostError> {
        const REQUEST: u32 = 0;
        check("proxy_continue_stream", abi::continue_stream(REQUEST))
    }

    fn open_stream(&self, cluster: &str, service: &str, method: &str) -> Result<GrpcToken, HostError> {
        let mut token = 0;
        let status = abi::grpc_stream(
            &format::grpc_service(cluster),
            service,
            method,
            &format::serialize_pairs(&[]),
            &mut token,
        );
        check("proxy_grpc_stream", status)?;
        Ok(GrpcToken(token))
    }

    fn send(&self, token: GrpcToken, message: &[u8]) -> Result<(), HostError> {
        check("proxy_grpc_send", abi::grpc_send(token.0, message, false))
    }

    fn cancel(&self, token: GrpcToken) -> Result<(), HostError> {
        check("proxy_grpc_cancel", abi::grpc_cancel(token.0))
    }

    fn close(&self, token: GrpcToken) -> Result<(), HostError> {
        check("proxy_grpc_close", abi::grpc_close(token.0))
    }

    fn done(&self, root: RootId) -> Result<(), HostError> {
        in_context(root.0, || check("proxy_done", abi::done()))?
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
    fn read(&mut self, key: &[u8]) -> Result<Option<(Vec<u8>, Version)>, StoreFailure> {
        let mut cas = 0;
        let value = answer("proxy_get_shared_data", |answer| {
            abi::shared_data(key, answer, &mut cas)
        });
        let value = present(value).map_err(|_| StoreFailure)?;
        Ok(value.map(|value| (value, Version(cas))))
    }

    fn write(&mut self, key: &[u8], value: &[u8], expected: Option<Version>) -> Result<bool, StoreFailure> {
        // A key that does not exist is always written, so that a version which none has writes exactly then.
        const INSERT_IF_ABSENT: u32 = u32::MAX;
        let cas = expected.map_or(INSERT_IF_ABSENT, |version| version.0);
        match abi::set_shared_data(key, value, cas) {
            status::OK => Ok(true),
            status::CAS_MISMATCH => Ok(false),
            _ => Err(StoreFailure),
        }
    }
}

impl MetricSink for Envoy {
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

/// Up to `max_size` bytes of a buffer.
pub(super) fn buffer_bytes(buffer: BufferType, max_size: usize) -> Result<Vec<u8>, HostError> {
    answer("proxy_get_buffer_bytes", |answer| {
        abi::buffer_bytes(buffer as u32, 0, max_size, answer)
    })
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
