//! The crash explorer: every legal state of the media after the loss of power at any point.
//!
//! A scenario is an ordinary function that runs the real code and asks [`Choices`] wherever the
//! world could go one way or another: which request completes next, whether power is lost here,
//! which sectors survive. [`explore`] runs it again and again, each time with other answers, until
//! all are tried (small cases) or a budget is used up (large ones, sampled from a seed).
//!
//! Invariants:
//! 1. The answers alone decide what a run does, so a recorded [`Path`] replays it exactly. A
//!    scenario that asks other questions on the same answers is reported as a violation.
//! 2. Every state that the models ([`sectors`], [`lines`], [`words`]) produce is legal for the
//!    medium that they describe. Exhaustive mode leaves none out unless it says so
//!    ([`Report::exhausted`], [`SurvivorSettings::exhaustive_limit`]).
//! 3. Nothing here does input or output, reads a clock or starts a thread.
//!
//! The guide is `docs/design/crash-explorer.md`.

pub mod choices;
pub mod explore;
pub mod image;
pub mod lines;
mod memory;
mod minimise;
pub mod mutation;
pub mod oracle;
mod order;
pub mod path;
mod sampling;
pub mod sectors;
pub mod survivors;
pub mod violation;
pub mod words;

pub use choices::{Choices, Decision, Style};
pub use explore::{ExploreSettings, Found, Mode, Report, explore, replay};
pub use image::Image;
pub use lines::LineMemory;
pub use memory::{ByteMemory, FenceScope};
pub use mutation::{Mutations, assert_all_caught, assert_caught};
pub use oracle::{BatchId, DurableOrder, Oracle};
pub use path::Path;
pub use sampling::{sampled_runs, sampled_seed};
pub use sectors::{SECTOR_BYTES, SectorMedia, WriteNumber};
pub use survivors::SurvivorSettings;
pub use violation::Violation;
pub use words::WordMemory;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/design/crash-explorer.md")]
struct Guide;
