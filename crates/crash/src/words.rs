//! Persistent memory that keeps no order but that of the stores to one aligned word of 8 bytes.
//!
//! Weaker than [`crate::lines`]: what a compiler, a weakly ordered CPU or a memory behind a link
//! may leave. A structure that survives here survives there; write-backs still cover whole lines.

use crate::memory::ByteMemory;
pub use crate::memory::WORD_BYTES;

/// A region whose unit of order is the aligned word of 8 bytes.
pub type WordMemory = ByteMemory<WORD_BYTES>;
