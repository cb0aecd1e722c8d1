//! The smallest filter that Envoy calls once per request: one callback, no host call, no state.
//!
//! It uses the proxy-wasm ABI directly, so that no SDK's work is measured.

/// Tells the host the ABI version of this module; never called.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_abi_version_0_2_1() {}

/// Would allocate memory for data from the host. The ABI requires it; the host does not use it here.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_memory_allocate(size: usize) -> *mut u8 {
    Vec::with_capacity(size).leak().as_mut_ptr()
}

/// The one call per request. The answer 0 is `Action::Continue`.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_request_headers(_context: u32, _headers: usize, _end_of_stream: u32) -> u32 {
    0
}
