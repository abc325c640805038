//! All tests of this crate in one program: what they share is compiled and linked once.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and prints what it counts"
)]

mod common;

mod absorb;
mod backup;
mod backup_crash;
mod backup_since;
mod batches;
mod checkpoint;
mod crash;
mod determinism;
mod evict;
mod exhaustive;
mod expired;
mod faults;
mod formats;
mod full;
mod inventory;
mod keyspaces;
mod load;
mod many_segments;
mod memory;
mod model;
mod mutations;
mod older_copies;
mod pace;
mod past;
mod range_snapshots;
mod ranges;
mod redo;
mod redo_snapshots;
mod redo_trust;
mod refresh;
mod reservations;
mod retire;
mod scrub;
mod snapshots;
mod space;
mod steps;
mod tombstones;
mod touches;
mod transfer;
mod verify;
mod volume;
