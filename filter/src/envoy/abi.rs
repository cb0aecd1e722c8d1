//! The functions Envoy offers, and the memory it writes its answers into.
//!
//! The functions here are safe to call but speak in numbers; `calls` gives them types. Every one returns the host's
//! status, 0 for success.
#![allow(unsafe_code, reason = "the host's functions take addresses")]

use std::cell::Cell;

/// The host's functions take the address and the length of what they read, and the address of what they write.
mod import {
    #[link(wasm_import_module = "env")]
    unsafe extern "C" {
        pub(in crate::envoy) safe fn proxy_set_tick_period_milliseconds(milliseconds: u32) -> u32;
        pub(in crate::envoy) safe fn proxy_increment_metric(id: u32, by: i64) -> u32;
        pub(in crate::envoy) safe fn proxy_record_metric(id: u32, value: u64) -> u32;
        pub(in crate::envoy) safe fn proxy_grpc_cancel(token: u32) -> u32;
        pub(in crate::envoy) safe fn proxy_grpc_close(token: u32) -> u32;
        pub(in crate::envoy) safe fn proxy_set_effective_context(context: u32) -> u32;
        pub(in crate::envoy) safe fn proxy_done() -> u32;
        pub(in crate::envoy) safe fn proxy_continue_stream(stream_type: u32) -> u32;
        pub(super) fn proxy_log(level: u32, message: *const u8, message_size: usize) -> u32;
        pub(super) fn proxy_get_current_time_nanoseconds(time: *mut u64) -> u32;
        pub(super) fn proxy_get_buffer_bytes(
            buffer_type: u32,
            start: usize,
            max_size: usize,
            data: *mut usize,
            size: *mut usize,
        ) -> u32;
        pub(super) fn proxy_get_header_map_pairs(map_type: u32, data: *mut usize, size: *mut usize) -> u32;
        pub(super) fn proxy_replace_header_map_value(
            map_type: u32,
            name: *const u8,
            name_size: usize,
            value: *const u8,
            value_size: usize,
        ) -> u32;
        pub(super) fn proxy_remove_header_map_value(map_type: u32, name: *const u8, name_size: usize) -> u32;
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
        pub(super) fn proxy_get_property(path: *const u8, path_size: usize, data: *mut usize, size: *mut usize) -> u32;
        pub(super) fn proxy_set_property(path: *const u8, path_size: usize, value: *const u8, value_size: usize)
        -> u32;
        pub(super) fn proxy_get_shared_data(
            key: *const u8,
            key_size: usize,
            data: *mut usize,
            size: *mut usize,
            cas: *mut u32,
        ) -> u32;
        pub(super) fn proxy_set_shared_data(
            key: *const u8,
            key_size: usize,
            value: *const u8,
            value_size: usize,
            cas: u32,
        ) -> u32;
        pub(super) fn proxy_define_metric(kind: u32, name: *const u8, name_size: usize, id: *mut u32) -> u32;
        pub(super) fn proxy_grpc_stream(
            service: *const u8,
            service_size: usize,
            service_name: *const u8,
            service_name_size: usize,
            method_name: *const u8,
            method_name_size: usize,
            initial_metadata: *const u8,
            initial_metadata_size: usize,
            token: *mut u32,
        ) -> u32;
        pub(super) fn proxy_grpc_send(token: u32, message: *const u8, message_size: usize, end_of_stream: u32) -> u32;
    }

    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    unsafe extern "C" {
        pub(super) fn random_get(bytes: *mut u8, size: usize) -> u32;
        pub(super) fn clock_time_get(id: u32, precision: u64, time: *mut u64) -> u32;
    }
}

pub(super) use import::{
    proxy_continue_stream as continue_stream, proxy_done as done, proxy_grpc_cancel as grpc_cancel,
    proxy_grpc_close as grpc_close, proxy_increment_metric as increment_metric, proxy_record_metric as record_metric,
    proxy_set_effective_context as set_effective_context, proxy_set_tick_period_milliseconds as set_tick_period,
};

/// An answer of the host: where it was written, and its length. Redeemed by `take_answer`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answer {
    address: usize,
    size: usize,
}

thread_local! {
    /// Where the host writes its next answer, or has written the last one. A call has at most one.
    static EXCHANGE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Memory for an answer of the host, which is asking for it from within one of the calls below. Null if there is none.
///
/// The memory is an initialised vector that this module keeps owning: whatever the host says afterwards about address
/// and size is compared with it, so that no answer can make us read, or free, anything else.
pub(super) fn allocate_answer(size: usize) -> *mut u8 {
    let mut exchange = EXCHANGE.take();
    exchange.clear();
    let address = match exchange.try_reserve_exact(size) {
        Ok(()) => {
            exchange.resize(size, 0);
            exchange.as_mut_ptr()
        }
        Err(_) => std::ptr::null_mut(),
    };
    EXCHANGE.set(exchange);
    address
}

/// The answer's bytes, exactly once; `None` if the host did not write them where it was told to.
pub(super) fn take_answer(answer: Answer) -> Option<Vec<u8>> {
    if answer.size == 0 {
        return Some(Vec::new());
    }
    let mut exchange = EXCHANGE.take();
    if exchange.as_ptr().addr() != answer.address || answer.size > exchange.len() {
        return None;
    }
    exchange.truncate(answer.size);
    Some(exchange)
}

/// Keeps the memory of an answer that is no longer needed for the next one.
pub(super) fn recycle(answer: Vec<u8>) {
    if answer.capacity() <= MAX_RECYCLED_BYTES {
        EXCHANGE.set(answer);
    }
}

/// More than Envoy's default limit for all headers of a request.
const MAX_RECYCLED_BYTES: usize = 64 * 1024;

// SAFETY, for every call below: an address passed to the host belongs to a reference that lives until the call
// returns, is passed with the length of what it points to, and is not kept by the host, which copies what it reads
// before it returns. Answers are written into memory from `allocate_answer`.

pub(super) fn log(level: u32, message: &str) -> u32 {
    // SAFETY: see above.
    unsafe { import::proxy_log(level, message.as_ptr(), message.len()) }
}

pub(super) fn current_time(nanos: &mut u64) -> u32 {
    // SAFETY: see above.
    unsafe { import::proxy_get_current_time_nanoseconds(nanos) }
}

pub(super) fn monotonic_time(nanos: &mut u64) -> u32 {
    const MONOTONIC: u32 = 1;
    // SAFETY: see above.
    unsafe { import::clock_time_get(MONOTONIC, 1, nanos) }
}

pub(super) fn random(bytes: &mut [u8]) -> u32 {
    // SAFETY: see above.
    unsafe { import::random_get(bytes.as_mut_ptr(), bytes.len()) }
}

pub(super) fn buffer_bytes(buffer_type: u32, start: usize, max_size: usize, answer: &mut Answer) -> u32 {
    // SAFETY: see above.
    unsafe { import::proxy_get_buffer_bytes(buffer_type, start, max_size, &mut answer.address, &mut answer.size) }
}

pub(super) fn header_map_pairs(map_type: u32, answer: &mut Answer) -> u32 {
    // SAFETY: see above.
    unsafe { import::proxy_get_header_map_pairs(map_type, &mut answer.address, &mut answer.size) }
}

pub(super) fn replace_header(map_type: u32, name: &[u8], value: &[u8]) -> u32 {
    // SAFETY: see above.
    unsafe { import::proxy_replace_header_map_value(map_type, name.as_ptr(), name.len(), value.as_ptr(), value.len()) }
}

pub(super) fn remove_header(map_type: u32, name: &[u8]) -> u32 {
    // SAFETY: see above.
    unsafe { import::proxy_remove_header_map_value(map_type, name.as_ptr(), name.len()) }
}

pub(super) fn send_local_response(status: u32, details: &str, body: &[u8], headers: &[u8], grpc_status: i32) -> u32 {
    // SAFETY: see above.
    unsafe {
        import::proxy_send_local_response(
            status,
            details.as_ptr(),
            details.len(),
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            grpc_status,
        )
    }
}

pub(super) fn property(path: &[u8], answer: &mut Answer) -> u32 {
    // SAFETY: see above.
    unsafe { import::proxy_get_property(path.as_ptr(), path.len(), &mut answer.address, &mut answer.size) }
}

pub(super) fn set_property(path: &[u8], value: &[u8]) -> u32 {
    // SAFETY: see above.
    unsafe { import::proxy_set_property(path.as_ptr(), path.len(), value.as_ptr(), value.len()) }
}

pub(super) fn shared_data(key: &[u8], answer: &mut Answer, cas: &mut u32) -> u32 {
    // SAFETY: see above.
    unsafe { import::proxy_get_shared_data(key.as_ptr(), key.len(), &mut answer.address, &mut answer.size, cas) }
}

pub(super) fn set_shared_data(key: &[u8], value: &[u8], cas: u32) -> u32 {
    // SAFETY: see above.
    unsafe { import::proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), cas) }
}

pub(super) fn define_metric(kind: u32, name: &str, id: &mut u32) -> u32 {
    // SAFETY: see above.
    unsafe { import::proxy_define_metric(kind, name.as_ptr(), name.len(), id) }
}

pub(super) fn grpc_stream(
    service: &[u8],
    service_name: &str,
    method_name: &str,
    initial_metadata: &[u8],
    token: &mut u32,
) -> u32 {
    // SAFETY: see above.
    unsafe {
        import::proxy_grpc_stream(
            service.as_ptr(),
            service.len(),
            service_name.as_ptr(),
            service_name.len(),
            method_name.as_ptr(),
            method_name.len(),
            initial_metadata.as_ptr(),
            initial_metadata.len(),
            token,
        )
    }
}

pub(super) fn grpc_send(token: u32, message: &[u8], end_of_stream: bool) -> u32 {
    // SAFETY: see above.
    unsafe { import::proxy_grpc_send(token, message.as_ptr(), message.len(), u32::from(end_of_stream)) }
}
