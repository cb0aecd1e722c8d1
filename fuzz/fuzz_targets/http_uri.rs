#![no_main]

use credence_fuzz::targets::{self, Effort};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    targets::http_uri::run(input, Effort::One);
});
