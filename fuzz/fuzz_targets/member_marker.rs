//! The marker of a store's directory: bytes from any file.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierstone_media::file::check_marker(data));
