//! Files of users, and rules of `ACL SETUSER`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierstone_redis::invariants::check_users_file(data));
