//! A test plugin beside the filter. Its clients may read and write the data that Envoy's plugins with the same `vm_id`
//! share.
//!
//! The plugin answers a request with `x-neighbour-key` (hexadecimal) itself: 200 and the value in hexadecimal, or 404
//! if the key was never set. With `x-neighbour-value` (hexadecimal), it first stores that value without a version
//! check. A request without `x-neighbour-key` passes.

#![allow(unsafe_code)]

use std::ptr;

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_get_header_map_value(
        map: u32,
        name: *const u8,
        name_size: usize,
        value: *mut *mut u8,
        value_size: *mut usize,
    ) -> u32;
    fn proxy_get_shared_data(
        key: *const u8,
        key_size: usize,
        value: *mut *mut u8,
        value_size: *mut usize,
        version: *mut u32,
    ) -> u32;
    fn proxy_set_shared_data(key: *const u8, key_size: usize, value: *const u8, value_size: usize, version: u32)
    -> u32;
    fn proxy_send_local_response(
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

/// Tells the host the ABI version of this module; never called.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_abi_version_0_2_1() {}

/// Allocates memory for data that the host passes to the module.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_memory_allocate(size: usize) -> *mut u8 {
    Vec::with_capacity(size).leak().as_mut_ptr()
}

/// Answers a request for this plugin.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_request_headers(_context: u32, _headers: usize, _end_of_stream: u32) -> u32 {
    let Some(key) = header("x-neighbour-key") else {
        return CONTINUE;
    };
    let key = from_hex(&key);
    if let Some(value) = header("x-neighbour-value") {
        let value = from_hex(&value);
        // SAFETY: the pointers and lengths are of valid slices. Version 0 stores without a version check.
        unsafe { proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), 0) };
    }
    let (status, body) = match shared_data(&key) {
        Some(value) => (200, to_hex(&value)),
        None => (404, Vec::new()),
    };
    // An encoded header map without headers.
    let headers = 0u32.to_le_bytes();
    // SAFETY: the pointers and lengths are of valid slices.
    unsafe {
        proxy_send_local_response(
            status,
            ptr::null(),
            0,
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            -1,
        )
    };
    PAUSE
}

fn header(name: &str) -> Option<Vec<u8>> {
    const REQUEST_HEADERS: u32 = 0;
    // SAFETY: the pointer and length are of a valid slice.
    answer(|value, size| unsafe { proxy_get_header_map_value(REQUEST_HEADERS, name.as_ptr(), name.len(), value, size) })
}

fn shared_data(key: &[u8]) -> Option<Vec<u8>> {
    let mut version = 0;
    // SAFETY: the pointer and length are of a valid slice.
    answer(|value, size| unsafe { proxy_get_shared_data(key.as_ptr(), key.len(), value, size, &mut version) })
}

fn answer(ask: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> Option<Vec<u8>> {
    const OK: u32 = 0;
    let (mut value, mut size) = (ptr::null_mut::<u8>(), 0);
    if ask(&mut value, &mut size) != OK {
        return None;
    }
    if value.is_null() {
        return Some(Vec::new());
    }
    // SAFETY: the host wrote `size` bytes to memory that `proxy_on_memory_allocate` returned, and keeps no pointer to
    // it.
    Some(unsafe { Vec::from_raw_parts(value, size, size) })
}

fn from_hex(text: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or(0) as u8;
    text.chunks_exact(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

fn to_hex(bytes: &[u8]) -> Vec<u8> {
    bytes
        .iter()
        .flat_map(|byte| format!("{byte:02x}").into_bytes())
        .collect()
}

const CONTINUE: u32 = 0;
const PAUSE: u32 = 1;
