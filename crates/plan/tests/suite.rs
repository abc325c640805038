//! All tests of this crate in one program: what they share is compiled and linked once.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and prints what it counts")]

mod common;

mod forms;
mod mutated_descriptions;
mod published;
