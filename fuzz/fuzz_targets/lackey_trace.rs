//! Traces of Valgrind's lackey and maps of addresses: files from any tool.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierstone_persist::invariants::check_lackey(data));
