//! The agent's side of a delegation as a Wasm module, without imports.
//!
//! A caller asks for room with `credence_input`, writes an operation and the bytes beside it there, and calls
//! `credence_answer`. The answer stays where that says until the next call of either.

#![allow(
    unsafe_code,
    reason = "exported names are unsafe attributes; nothing else here is unsafe"
)]

use std::cell::RefCell;

use credence_agent::operations::Operations;

#[derive(Default)]
struct Module {
    operations: Operations,
    input: Vec<u8>,
    answer: String,
}

thread_local! {
    static MODULE: RefCell<Module> = RefCell::default();
}

/// Room for an operation and the bytes beside it.
#[unsafe(no_mangle)]
pub extern "C" fn credence_input(bytes: usize) -> *mut u8 {
    MODULE.with_borrow_mut(|module| {
        module.input.clear();
        module.input.resize(bytes, 0);
        module.input.as_mut_ptr()
    })
}

/// Carries out the operation in the first bytes of the input. Returns where the answer is.
#[unsafe(no_mangle)]
pub extern "C" fn credence_answer(operation_bytes: usize) -> *const u8 {
    MODULE.with_borrow_mut(|module| {
        let input = std::mem::take(&mut module.input);
        let (operation, bytes) = input.split_at_checked(operation_bytes).unwrap_or((&input, &[]));
        module.answer = module.operations.answer(operation, bytes);
        module.answer.as_ptr()
    })
}

/// The size of the answer, in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn credence_answer_bytes() -> usize {
    MODULE.with_borrow(|module| module.answer.len())
}
