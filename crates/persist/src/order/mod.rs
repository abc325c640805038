//! Which persists must come before which: the persistency models.
//!
//! The order is the transitive closure of two rules over a trace, which is a total order V of accesses:
//!
//! | rule | strict, buffered strict | epoch, BPFS | strand |
//! |---|---|---|---|
//! | program order | every pair on a thread | pairs on a thread with a barrier between them | pairs on a strand with a barrier between them |
//! | conflict | accesses to one block, a store among them, volatile or persistent, as in V | the same; BPFS: persistent lines only, and not a load before a store | the same |
//!
//! Source: Pelley 2014, chapters VI and VII. Departures: accesses to one aligned word of 8 bytes conflict even
//! where their bytes do not overlap, because the word persists whole. A sync is a barrier that covers
//! what its thread stored and loaded on every strand. BPFS's order is kept access by access; the cycles of whole epochs, on which its cache
//! would wait for ever, are told by [`bpfs_deadlock`].

mod graph;
mod race;

pub use graph::OrderGraph;
pub use race::bpfs_deadlock;

use crate::trace::WORD;

/// A persistency model over sequential consistency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Model {
    /// Persists happen with their stores: the recovery observer is one more processor.
    Strict,
    /// The order of strict persistency, but the observer may lag.
    BufferedStrict,
    /// Persist barriers divide a thread into epochs.
    Epoch,
    /// Strands forget what the thread did before; barriers order within a strand.
    Strand,
    /// Epochs whose conflicts are found in persistent cache lines only, as BPFS's cache finds them.
    Bpfs,
}

impl Model {
    /// All of them.
    pub const ALL: [Model; 5] =
        [Model::Strict, Model::BufferedStrict, Model::Epoch, Model::Strand, Model::Bpfs];

    /// Its name in litmus files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Model::Strict => "strict",
            Model::BufferedStrict => "buffered",
            Model::Epoch => "epoch",
            Model::Strand => "strand",
            Model::Bpfs => "bpfs",
        }
    }

    /// The model of this name.
    pub fn named(name: &str) -> Option<Model> {
        Model::ALL.into_iter().find(|model| model.name() == name)
    }

    /// Whether every access of a thread is ordered after the one before.
    pub fn follows_program_order(self) -> bool {
        matches!(self, Model::Strict | Model::BufferedStrict)
    }

    /// How conflicts are found.
    pub fn conflicts(self) -> Conflicts {
        match self {
            Model::Bpfs => Conflicts { volatile: false, load_before_store: false, block_bytes: 64 },
            _ => Conflicts { volatile: true, load_before_store: true, block_bytes: WORD },
        }
    }
}

/// How conflicts between accesses are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflicts {
    /// Whether accesses to volatile memory count.
    pub volatile: bool,
    /// Whether a store after a load of the same block counts (SC); TSO and BPFS miss it.
    pub load_before_store: bool,
    /// The tracking granularity in bytes: accesses to one block conflict.
    pub block_bytes: u64,
}

#[cfg(test)]
#[path = "order_test.rs"]
mod order_test;
