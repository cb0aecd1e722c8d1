//! The smallest filter that Envoy calls once per request: one callback, no host call, no state.
//!
//! It is written against the proxy-wasm ABI itself, so that no SDK's bookkeeping is measured with it.

/// Tells the host which ABI this module speaks; never called.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_abi_version_0_2_1() {}

/// Where the host would put what it hands to the module. The ABI asks for it; nothing here makes the host use it.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_memory_allocate(size: usize) -> *mut u8 {
    Vec::with_capacity(size).leak().as_mut_ptr()
}

/// The one call per request. The answer 0 is `Action::Continue`.
#[unsafe(no_mangle)]
pub extern "C" fn proxy_on_request_headers(_context: u32, _headers: usize, _end_of_stream: u32) -> u32 {
    0
}
