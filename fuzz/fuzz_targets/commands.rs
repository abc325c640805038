//! Sequences of Redis commands over several shards that must fetch, beside a model of what Redis's documentation says.
#![no_main]
#![expect(clippy::unwrap_used, reason = "the support of the tests fails by panicking")]

#[path = "../../crates/redis/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|data: &[u8]| support::sequences::check(data));
