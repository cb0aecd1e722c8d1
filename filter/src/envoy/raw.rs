//! Host functions that the SDK lacks, or offers only in a form that copies or panics. Errors are the host's statuses.
#![allow(unsafe_code, reason = "the host's functions take addresses")]

use std::alloc::Layout;
use std::ptr::null_mut;

use credence_decision::answer::Answer;
use proxy_wasm::types::BufferType;

use crate::host::HeaderMap;

mod import {
    #[link(wasm_import_module = "env")]
    unsafe extern "C" {
        pub(super) fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, size: *mut usize) -> u32;
        pub(super) fn proxy_get_buffer_bytes(
            buffer: u32,
            start: usize,
            max_size: usize,
            data: *mut *mut u8,
            size: *mut usize,
        ) -> u32;
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
    }

    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    unsafe extern "C" {
        pub(super) fn random_get(bytes: *mut u8, size: usize) -> u32;
        pub(super) fn clock_time_get(id: u32, precision: u64, time: *mut u64) -> u32;
    }
}

/// Envoy allocates memory for the result of a call. This replaces the SDK's `malloc`, which ends the VM if there is
/// none.
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

pub(super) fn header_map(map: HeaderMap) -> Result<Vec<u8>, u32> {
    // SAFETY: see above.
    answer(|data, size| unsafe { import::proxy_get_header_map_pairs(map as u32, data, size) })
}

pub(super) fn buffer(buffer: BufferType, max_size: usize) -> Result<Vec<u8>, u32> {
    // SAFETY: see above.
    answer(|data, size| unsafe { import::proxy_get_buffer_bytes(buffer as u32, 0, max_size, data, size) })
}

/// The SDK's version has no response code details.
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

fn answer(ask: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> Result<Vec<u8>, u32> {
    let (mut data, mut size) = (null_mut(), 0);
    check(ask(&mut data, &mut size))?;
    if data.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: the host has asked `proxy_on_memory_allocate` for exactly as much as it then wrote.
    Ok(unsafe { Vec::from_raw_parts(data, size, size) })
}

fn check(status: u32) -> Result<(), u32> {
    if status == 0 { Ok(()) } else { Err(status) }
}
