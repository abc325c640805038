//! Requests of any words: each is answered, by replies that can be read.
#![no_main]
#![expect(clippy::unwrap_used, reason = "the support of the tests fails by panicking")]

#[path = "../../crates/redis/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|data: &[u8]| support::sequences::check_any(data));
