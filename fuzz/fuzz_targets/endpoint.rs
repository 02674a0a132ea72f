#![no_main]

#[path = "../../crates/homa-proto/tests/fuzz/programs/mod.rs"]
mod programs;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| programs::endpoint::run(bytes));
