//! All tests of this crate in one program: what they share is compiled and linked once.
#![expect(clippy::expect_used, reason = "a test fails by panicking, and prints what it counts")]

mod common;

mod discards;
mod lost_members;
mod partial;
mod partial_crash;
mod raid;
mod raid_crash;
mod sleeping;
mod sleeping_crash;
mod staging_crash;
mod versions;
