//! The calls between Envoy and a filter for a request on Credence's hot path (the case `hot` of BENCH=filter), without any
//! other work: they show the platform's part of the cost.
//!
//! Envoy calls the filter three times (start of a context, headers, end of the context), and once more for memory. The
//! filter calls Envoy four times: all headers, the clock, one header removed, one set.

use std::cell::UnsafeCell;

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_get_header_map_pairs(map: u32, data: *mut usize, size: *mut usize) -> u32;
    fn proxy_remove_header_map_value(map: u32, name: *const u8, name_size: usize) -> u32;
    fn proxy_replace_header_map_value(
        map: u32,
        name: *const u8,
        name_size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn clock_time_get(id: u32, precision: u64, time: *mut u64) -> u32;
}

/// Memory for data from the host: more than Envoy's limit for all headers.
struct Exchange(UnsafeCell<[u8; 1 << 17]>);

// SAFETY: a Wasm module has one thread.
unsafe impl Sync for Exchange {}

static EXCHANGE: Exchange = Exchange(UnsafeCell::new([0; 1 << 17]));

/// Tells the host the ABI version of this module; never called.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_abi_version_0_2_1() {}

#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_memory_allocate(_size: usize) -> *mut u8 {
    EXCHANGE.0.get().cast()
}

#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_context_create(_context: u32, _parent: u32) {}

/// The answer 0 is `Action::Continue`.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_request_headers(_context: u32, _headers: usize, _end_of_stream: u32) -> u32 {
    const REQUEST_HEADERS: u32 = 0;
    const MONOTONIC: u32 = 1;
    let (mut data, mut size, mut time) = (0, 0, 0);
    // SAFETY: the host reads and writes only the given memory, and only until it returns.
    unsafe {
        proxy_get_header_map_pairs(REQUEST_HEADERS, &mut data, &mut size);
        clock_time_get(MONOTONIC, 1, &mut time);
        proxy_remove_header_map_value(REQUEST_HEADERS, REMOVED.as_ptr(), REMOVED.len());
        proxy_replace_header_map_value(REQUEST_HEADERS, NAME.as_ptr(), NAME.len(), VALUE.as_ptr(), VALUE.len());
    }
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_done(_context: u32) -> u32 {
    1
}

const REMOVED: &[u8] = b"delegation";
const NAME: &[u8] = b"x-delegation-identity";
const VALUE: &[u8] = b"issuer=\"https://id.example.com\", subject=\"alice\", proof=none, tool=\"catalog.read\", \
    id=\"0199f0a2-6f0e-7c1e-9d3c-0123456789ab\"";
