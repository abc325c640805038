//! A batch over several engines: what its parts know of each other while the process lives.
//!
//! Each participant writes its part with [`crate::Engine::write_part`] and holds the same
//! [`BatchTicket`]. There is no second phase: the batch is **decided** at the moment when the last part
//! becomes durable, and recovery finds the same by counting parts.
//!
//! Invariants:
//! 1. Counts only grow; a part is counted once for being kept, once for being durable and once for being marked.
//! 2. An engine counts its part as *marked* only when its own medium says, durably, that the batch is
//!    decided. Until all are marked, recovery may still have to count parts, so that none of them may be
//!    moved or forgotten ([`BatchTicket::is_marked`]).
//! 3. A part is *kept* when a crash leaves it as long as the engine's other memory, where it has one, is not lost: a
//!    batch all of whose parts are kept may be answered for. What is written for good, says that the batch is
//!    decided, or relies on it waits until all of them are durable on the engines' own media.
//!
//! The engines share the ticket; nothing of it is durable. A crash leaves parts, and recovery decides.

use crate::durability::WriteReceipt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tierstone_base::Result;

/// A part of a batch over several engines that an engine takes: writes it.
pub type PreparedPart<'e> = Box<dyn FnOnce(&Arc<BatchTicket>) -> Result<WriteReceipt> + 'e>;

/// What the parts of one batch know of each other.
#[derive(Debug)]
pub struct BatchTicket {
    id: u64,
    parts: u16,
    kept: AtomicU32,
    durable: AtomicU32,
    marked: AtomicU32,
    is_waited_for: AtomicBool,
    is_abandoned: AtomicBool,
}

impl BatchTicket {
    /// The ticket of a batch of `parts` parts, each on another engine. `id` is never used twice between
    /// two openings of the store.
    pub fn new(id: u64, parts: u16) -> Arc<BatchTicket> {
        Arc::new(BatchTicket {
            id,
            parts,
            kept: AtomicU32::new(0),
            durable: AtomicU32::new(0),
            marked: AtomicU32::new(0),
            is_waited_for: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
        })
    }

    /// The batch's number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How many engines have a part.
    pub fn parts(&self) -> u16 {
        self.parts
    }

    /// An engine's part is kept: in memory that outlives a crash, or on its medium.
    pub fn note_kept(&self) {
        self.kept.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether all parts are kept: the batch may be answered for.
    pub fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Acquire) >= u32::from(self.parts) || self.is_decided()
    }

    /// An engine's part has become durable on its medium.
    pub fn note_durable(&self) {
        self.durable.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether all parts are durable: the batch is committed, whatever happens now.
    pub fn is_decided(&self) -> bool {
        self.durable.load(Ordering::Acquire) >= u32::from(self.parts)
    }

    /// An engine's medium says durably that the batch is decided.
    pub fn note_marked(&self) {
        self.marked.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether the media of all participants say that the batch is decided: nobody will count its parts.
    pub fn is_marked(&self) -> bool {
        self.marked.load(Ordering::Acquire) >= u32::from(self.parts)
    }

    /// Asks the participants to mark soon.
    pub fn wait_for_marks(&self) {
        self.is_waited_for.store(true, Ordering::Release);
    }

    /// Whether somebody waits for the marks.
    pub fn is_waited_for(&self) -> bool {
        self.is_waited_for.load(Ordering::Acquire)
    }

    /// An engine that has a part has failed or gone before it marked: nothing more becomes known.
    pub fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Release);
    }

    /// Whether a participant has gone.
    pub fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Acquire)
    }
}
