//! A recorded workload: bytes from any file.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierstone_workload::trace::invariants::check_file(data));
