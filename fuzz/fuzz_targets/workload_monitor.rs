//! The text of `MONITOR`: bytes from any server, or any file.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierstone_workload::trace::invariants::check_monitor(data));
