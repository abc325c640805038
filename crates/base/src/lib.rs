//! What every other crate of Tierstone stands on: ids, positions, units, error kinds, checksums,
//! codecs, clock and randomness traits, histograms, labels of numbers.
//!
//! Invariants:
//! 1. Nothing here does input or output, starts a thread, or reads a clock except
//!    [`clock::SystemClock`], the one place where real time enters the system.
//! 2. Everything is a pure function of its arguments, so that one seed gives one run.

pub mod checksum;
pub mod clock;
pub mod codec;
pub mod collections;
pub mod error;
pub mod histogram;
pub mod ids;
pub mod label;
pub mod position;
pub mod prefetch;
pub mod random;
pub mod units;

pub use clock::{Clock, CountingClock, CpuClock, Now, SystemClock};
pub use error::{Error, ErrorKind, Result};
pub use ids::{KeyspaceId, Seq, ShardId, Token};
pub use label::Label;
pub use position::{KeyHasher, Position};
pub use random::SeededRandom;
