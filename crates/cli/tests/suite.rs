//! All tests of this crate in one program: what they share is compiled and linked once.
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and prints what it counts"
)]

mod common;
mod disk;
#[path = "../../media/tests/support/filter.rs"]
mod filter;
mod group;
#[path = "../../tierstone/tests/support/images.rs"]
mod images;
mod load;

mod access;
mod backup;
mod check;
mod client_eviction;
mod client_matrix;
mod clients;
mod clock;
mod damage;
mod deploy;
mod energy;
mod evict;
mod faults;
mod full;
mod kill;
mod lab;
mod large;
mod limits;
mod nvm;
mod operators;
mod persist;
mod plan;
mod pressure;
mod promises;
mod redo;
mod repair;
mod settings;
mod soak;
mod tls;
mod tls_tools;
mod told;
mod tools;
mod unix_tools;
mod upgrade;
mod volume;
mod volume_devices;
mod workload;
