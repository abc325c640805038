//! All tests of this crate in one program: what they share is compiled and linked once.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and prints what it counts"
)]

mod common;

mod backup;
mod backup_crash;
mod barriers;
mod checkpoints;
mod contract;
mod crash;
mod evict;
mod expiry;
mod full;
mod killed;
mod long_lengths;
mod lost;
mod lost_keys;
mod model;
mod numbers;
mod snapshots;
mod trust;
mod twins;
