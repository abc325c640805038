//! Maps and ledger entries of large values: bytes from any device.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierstone_store::invariants::check_large_values(data));
