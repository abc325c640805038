//! Replies of the Redis protocol: bytes from any server.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierstone_wire::resp::invariants::check_replies(data));
