//! The host's functions (proxy-wasm ABI 0.2.1), as Rust calls. Errors are the host's statuses.
#![allow(unsafe_code, reason = "the host's functions take addresses")]

use std::alloc::Layout;
use std::ptr::null_mut;

use credence_decision::answer::Answer;
use credence_decision::metrics::MetricKind;

use crate::host::{HeaderMap, LogLevel};

mod import {
    #[link(wasm_import_module = "env")]
    unsafe extern "C" {
        pub(super) fn proxy_log(level: u32, text: *const u8, text_size: usize) -> u32;
        pub(super) fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
        pub(super) fn proxy_get_current_time_nanoseconds(time: *mut u64) -> u32;
        pub(super) fn proxy_set_effective_context(context: u32) -> u32;
        pub(super) fn proxy_done() -> u32;
        pub(super) fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, size: *mut usize) -> u32;
        pub(super) fn proxy_replace_header_map_value(
            map: u32,
            name: *const u8,
            name_size: usize,
            value: *const u8,
            value_size: usize,
        ) -> u32;
        pub(super) fn proxy_remove_header_map_value(map: u32, name: *const u8, name_size: usize) -> u32;
        pub(super) fn proxy_get_buffer_bytes(
            buffer: u32,
            start: usize,
            max_size: usize,
            data: *mut *mut u8,
            size: *mut usize,
        ) -> u32;
        pub(super) fn proxy_set_buffer_bytes(
            buffer: u32,
            start: usize,
            replaced: usize,
            data: *const u8,
            size: usize,
        ) -> u32;
        pub(super) fn proxy_get_property(
            path: *const u8,
            path_size: usize,
            data: *mut *mut u8,
            size: *mut usize,
        ) -> u32;
        pub(super) fn proxy_set_property(path: *const u8, path_size: usize, value: *const u8, value_size: usize)
        -> u32;
        pub(super) fn proxy_send_local_response(
            status: u32,
            details: *const u8,
            details_size: usize,
            body: *const u8,
            body_size: usize,
            headers: *const u8,
            headers_size: usize,
            grpc_status: i32,
        ) -> u32;
        pub(super) fn proxy_continue_stream(stream: u32) -> u32;
        pub(super) fn proxy_close_stream(stream: u32) -> u32;
        pub(super) fn proxy_grpc_stream(
            service: *const u8,
            service_size: usize,
            name: *const u8,
            name_size: usize,
            method: *const u8,
            method_size: usize,
            metadata: *const u8,
            metadata_size: usize,
            token: *mut u32,
        ) -> u32;
        pub(super) fn proxy_grpc_send(token: u32, message: *const u8, message_size: usize, end_of_stream: u32) -> u32;
        pub(super) fn proxy_grpc_cancel(token: u32) -> u32;
        pub(super) fn proxy_grpc_close(token: u32) -> u32;
        pub(super) fn proxy_get_shared_data(
            key: *const u8,
            key_size: usize,
            data: *mut *mut u8,
            size: *mut usize,
            version: *mut u32,
        ) -> u32;
        pub(super) fn proxy_set_shared_data(
            key: *const u8,
            key_size: usize,
            value: *const u8,
            value_size: usize,
            version: u32,
        ) -> u32;
        pub(super) fn proxy_define_metric(kind: u32, name: *const u8, name_size: usize, id: *mut u32) -> u32;
        pub(super) fn proxy_increment_metric(id: u32, by: i64) -> u32;
        pub(super) fn proxy_record_metric(id: u32, value: u64) -> u32;
    }

    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    unsafe extern "C" {
        pub(super) fn random_get(bytes: *mut u8, size: usize) -> u32;
        pub(super) fn clock_time_get(id: u32, precision: u64, time: *mut u64) -> u32;
    }
}

/// A buffer of the host.
#[derive(Clone, Copy, Debug)]
pub(super) enum Buffer {
    RequestBody = 0,
    #[cfg(feature = "answers")]
    ResponseBody = 1,
    GrpcMessage = 5,
    PluginConfiguration = 7,
}

/// Envoy allocates memory for the result of a call. Null if there is none: that fails the call, and not the whole VM.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_memory_allocate(size: usize) -> *mut u8 {
    match Layout::array::<u8>(size) {
        // SAFETY: the size is not zero.
        Ok(layout) if size > 0 => unsafe { std::alloc::alloc_zeroed(layout) },
        Ok(_) | Err(_) => null_mut(),
    }
}

// SAFETY, for every call below: an address passed to the host belongs to a reference that lives until the call returns,
// is passed with the length of what it points to, and is not kept by the host.

pub(super) fn log(level: LogLevel, text: &str) -> Result<(), u32> {
    // SAFETY: see above.
    check(unsafe { import::proxy_log(level as u32, text.as_ptr(), text.len()) })
}

pub(super) fn set_tick_period(milliseconds: u32) -> Result<(), u32> {
    // SAFETY: see above.
    check(unsafe { import::proxy_set_tick_period_milliseconds(milliseconds) })
}

/// Nanoseconds since the Unix epoch.
pub(super) fn unix_time() -> Result<u64, u32> {
    let mut nanos = 0;
    // SAFETY: see above.
    check(unsafe { import::proxy_get_current_time_nanoseconds(&mut nanos) })?;
    Ok(nanos)
}

pub(super) fn monotonic_time() -> Result<u64, u32> {
    const MONOTONIC: u32 = 1;
    let mut nanos = 0;
    // SAFETY: see above.
    check(unsafe { import::clock_time_get(MONOTONIC, 1, &mut nanos) })?;
    Ok(nanos)
}

pub(super) fn random(bytes: &mut [u8]) -> Result<(), u32> {
    // SAFETY: see above.
    check(unsafe { import::random_get(bytes.as_mut_ptr(), bytes.len()) })
}

pub(super) fn set_effective_context(context: u32) -> Result<(), u32> {
    // SAFETY: see above.
    check(unsafe { import::proxy_set_effective_context(context) })
}

pub(super) fn done() -> Result<(), u32> {
    // SAFETY: see above.
    check(unsafe { import::proxy_done() })
}

pub(super) fn header_map(map: HeaderMap) -> Result<Vec<u8>, u32> {
    // SAFETY: see above.
    allocated(|data, size| unsafe { import::proxy_get_header_map_pairs(map as u32, data, size) })
}

pub(super) fn set_header(map: HeaderMap, name: &str, value: &str) -> Result<(), u32> {
    // SAFETY: see above.
    check(unsafe {
        import::proxy_replace_header_map_value(map as u32, name.as_ptr(), name.len(), value.as_ptr(), value.len())
    })
}

pub(super) fn remove_header(map: HeaderMap, name: &[u8]) -> Result<(), u32> {
    // SAFETY: see above.
    check(unsafe { import::proxy_remove_header_map_value(map as u32, name.as_ptr(), name.len()) })
}

pub(super) fn buffer(buffer: Buffer, max_size: usize) -> Result<Vec<u8>, u32> {
    // SAFETY: see above.
    allocated(|data, size| unsafe { import::proxy_get_buffer_bytes(buffer as u32, 0, max_size, data, size) })
}

/// Replaces all of a buffer.
pub(super) fn replace_buffer(buffer: Buffer, data: &[u8]) -> Result<(), u32> {
    const ALL: usize = u32::MAX as usize;
    // SAFETY: see above.
    check(unsafe { import::proxy_set_buffer_bytes(buffer as u32, 0, ALL, data.as_ptr(), data.len()) })
}

/// An attribute; `None` if it has no value, or an empty one.
pub(super) fn property(path: &[&str]) -> Result<Option<Vec<u8>>, u32> {
    let path = path.join("\0");
    // SAFETY: see above.
    let found = allocated(|data, size| unsafe { import::proxy_get_property(path.as_ptr(), path.len(), data, size) });
    Ok(found_or_none(found)?.filter(|value| !value.is_empty()))
}

pub(super) fn set_property(name: &str, value: &[u8]) -> Result<(), u32> {
    // SAFETY: see above.
    check(unsafe { import::proxy_set_property(name.as_ptr(), name.len(), value.as_ptr(), value.len()) })
}

pub(super) fn send_local_response(answer: &Answer, details: &str, headers: &[u8]) -> Result<(), u32> {
    const NO_GRPC_STATUS: i32 = -1;
    let grpc_status = answer.grpc_status.and_then(|status| i32::try_from(status).ok());
    // SAFETY: see above.
    check(unsafe {
        import::proxy_send_local_response(
            answer.status.into(),
            details.as_ptr(),
            details.len(),
            answer.body.as_ptr(),
            answer.body.len(),
            headers.as_ptr(),
            headers.len(),
            grpc_status.unwrap_or(NO_GRPC_STATUS),
        )
    })
}

pub(super) fn continue_request() -> Result<(), u32> {
    const HTTP_REQUEST: u32 = 0;
    // SAFETY: see above.
    check(unsafe { import::proxy_continue_stream(HTTP_REQUEST) })
}

/// Ends it once the present callback has returned.
pub(super) fn close_request() -> Result<(), u32> {
    const HTTP_REQUEST: u32 = 0;
    // SAFETY: see above.
    check(unsafe { import::proxy_close_stream(HTTP_REQUEST) })
}

/// Opens a gRPC stream to an encoded `GrpcService`, without metadata.
pub(super) fn open_stream(service: &[u8], name: &str, method: &str) -> Result<u32, u32> {
    const NO_METADATA: [u8; 4] = 0u32.to_le_bytes();
    let mut token = 0;
    // SAFETY: see above.
    check(unsafe {
        import::proxy_grpc_stream(
            service.as_ptr(),
            service.len(),
            name.as_ptr(),
            name.len(),
            method.as_ptr(),
            method.len(),
            NO_METADATA.as_ptr(),
            NO_METADATA.len(),
            &mut token,
        )
    })?;
    Ok(token)
}

pub(super) fn send(token: u32, message: &[u8]) -> Result<(), u32> {
    const GOES_ON: u32 = 0;
    // SAFETY: see above.
    check(unsafe { import::proxy_grpc_send(token, message.as_ptr(), message.len(), GOES_ON) })
}

pub(super) fn cancel(token: u32) -> Result<(), u32> {
    // SAFETY: see above.
    check(unsafe { import::proxy_grpc_cancel(token) })
}

pub(super) fn close(token: u32) -> Result<(), u32> {
    // SAFETY: see above.
    check(unsafe { import::proxy_grpc_close(token) })
}

/// A value that all VMs share, and its version; `None` if there is none.
pub(super) fn shared_data(key: &str) -> Result<Option<(Vec<u8>, u32)>, u32> {
    let mut version = 0;
    // SAFETY: see above.
    let found = allocated(|data, size| unsafe {
        import::proxy_get_shared_data(key.as_ptr(), key.len(), data, size, &mut version)
    });
    Ok(found_or_none(found)?.map(|value| (value, version)))
}

/// Returns false if the key has another version.
pub(super) fn set_shared_data(key: &str, value: &[u8], version: u32) -> Result<bool, u32> {
    const OTHER_VERSION: u32 = 8;
    // SAFETY: see above.
    let set =
        check(unsafe { import::proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), version) });
    match set {
        Ok(()) => Ok(true),
        Err(OTHER_VERSION) => Ok(false),
        Err(status) => Err(status),
    }
}

pub(super) fn define_metric(kind: MetricKind, name: &str) -> Result<u32, u32> {
    let kind = match kind {
        MetricKind::Counter => 0,
        MetricKind::Gauge | MetricKind::Level => 1,
        MetricKind::Histogram => 2,
    };
    let mut id = 0;
    // SAFETY: see above.
    check(unsafe { import::proxy_define_metric(kind, name.as_ptr(), name.len(), &mut id) })?;
    Ok(id)
}

pub(super) fn increment_metric(id: u32, by: i64) -> Result<(), u32> {
    // SAFETY: see above.
    check(unsafe { import::proxy_increment_metric(id, by) })
}

pub(super) fn record_metric(id: u32, value: u64) -> Result<(), u32> {
    // SAFETY: see above.
    check(unsafe { import::proxy_record_metric(id, value) })
}

fn allocated(call: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> Result<Vec<u8>, u32> {
    let (mut data, mut size) = (null_mut(), 0);
    check(call(&mut data, &mut size))?;
    if data.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: the host has asked `proxy_on_memory_allocate` for exactly as much as it then wrote.
    Ok(unsafe { Vec::from_raw_parts(data, size, size) })
}

fn found_or_none<T>(found: Result<T, u32>) -> Result<Option<T>, u32> {
    const NOT_FOUND: u32 = 1;
    match found {
        Ok(found) => Ok(Some(found)),
        Err(NOT_FOUND) => Ok(None),
        Err(status) => Err(status),
    }
}

fn check(status: u32) -> Result<(), u32> {
    if status == 0 { Ok(()) } else { Err(status) }
}
