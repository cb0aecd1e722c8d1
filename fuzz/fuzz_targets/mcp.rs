#![no_main]

use credence_fuzz::{mcp, mutate};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|input: &[u8]| {
    mcp::run(input);
});

fuzz_mutator!(|input: &mut [u8], length: usize, room: usize, seed: u32| {
    mutate::json(input, length, room, seed, libfuzzer_sys::fuzzer_mutate)
});
