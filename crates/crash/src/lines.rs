//! Persistent memory that keeps order within a cache line: x86-64 with total store order.
//!
//! A line reaches the medium as a whole at some moment, so what survives of it is what its stores
//! had made of it at that moment: a prefix of them. Lines reach the medium in any order. This is
//! the model that structures with a commit word in the same line as its data rely on.

use crate::memory::ByteMemory;
pub use crate::memory::LINE_BYTES;

/// A region whose unit of order is the cache line of 64 bytes.
pub type LineMemory = ByteMemory<LINE_BYTES>;
