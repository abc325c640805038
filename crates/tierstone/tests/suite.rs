//! All tests of this crate in one program: what they share is compiled and linked once.
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and prints what it counts"
)]

#[path = "support/changes.rs"]
mod changes;
#[path = "support/images.rs"]
mod images;
mod support;

mod across;
mod backup;
mod backup_chain;
mod batches;
mod bulk;
mod concurrent;
mod errors;
mod features;
mod named;
mod range_snapshots;
mod reshard;
mod scrub;
mod shared_moves;
mod snapshots;
mod upgrade;
mod verify;
