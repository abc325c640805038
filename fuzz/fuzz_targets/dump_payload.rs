//! The payload of `RESTORE`: bytes from any client.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierstone_wire::rdb::invariants::check_payload(data));
