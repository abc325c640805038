//! Parts of batches over several shards.
//!
//! Invariants:
//! 1. A part counts as durable after the fence behind its frame.
//! 2. When the batch is decided, the part's own frame says so, durably; then the part is marked. Until all parts
//!    are marked, no shard truncates its frame: recovery may have to count it.
//! 3. A part that was taken back is settled when what takes it back is durable.

use crate::log::FramePlace;
use crate::serial;
use std::collections::VecDeque;
use std::sync::Arc;
use tierstone_base::Seq;
use tierstone_engine::BatchTicket;

/// A part of which something remains to be known.
#[derive(Debug)]
struct Part {
    first: Seq,
    last: Seq,
    ticket: Arc<BatchTicket>,
    place: FramePlace,
    /// The logical log segment in which it begins.
    begins: u32,
    is_durable: bool,
    is_marked: bool,
    /// What takes it back ends here.
    undone: Option<Seq>,
}

impl Part {
    fn is_settled(&self, durable: Seq) -> bool {
        self.is_durable && (self.ticket.is_decided() || self.undone.is_some_and(|undone| undone <= durable))
    }

    fn is_done(&self, durable: Seq) -> bool {
        self.is_marked && self.ticket.is_marked() || self.undone.is_some_and(|undone| undone <= durable)
    }
}

/// The parts of a shard, in the order of their sequences.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    parts: VecDeque<Part>,
}

impl Parts {
    pub fn add(
        &mut self,
        (first, last): (Seq, Seq),
        begins: u32,
        place: FramePlace,
        ticket: &Arc<BatchTicket>,
    ) {
        let ticket = Arc::clone(ticket);
        let (is_durable, is_marked, undone) = (false, false, None);
        self.parts.push_back(Part { first, last, ticket, place, begins, is_durable, is_marked, undone });
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether a part is durable and its batch is not known to be decided.
    pub fn waits(&self, durable: Seq) -> bool {
        self.parts.iter().any(|part| !part.is_settled(durable))
    }

    /// The batch's part is taken back by writes up to `last`.
    pub fn undo(&mut self, ticket: &Arc<BatchTicket>, last: Seq) {
        let own = self.parts.iter_mut().filter(|part| Arc::ptr_eq(&part.ticket, ticket));
        own.for_each(|part| part.undone = Some(last));
    }

    /// Everything up to `durable` is durable.
    pub fn note_durable(&mut self, durable: Seq) {
        for part in self.parts.iter_mut().filter(|part| !part.is_durable && part.last <= durable) {
            part.is_durable = true;
            part.ticket.note_durable();
        }
    }

    /// Up to where everything is decided.
    pub fn decided(&self, durable: Seq) -> Seq {
        let open = self.parts.iter().find(|part| !part.is_settled(durable));
        open.map_or(durable, |part| durable.min(part.first - 1))
    }

    /// Parts whose frames have to be marked now.
    pub fn to_mark(&self) -> impl Iterator<Item = FramePlace> {
        let due = |part: &&Part| {
            part.is_durable && !part.is_marked && part.undone.is_none() && part.ticket.is_decided()
        };
        self.parts.iter().filter(due).map(|part| part.place)
    }

    /// The marks of these frames are durable.
    pub fn marked(&mut self, verdicts: &[u64]) {
        for part in self.parts.iter_mut().filter(|part| verdicts.contains(&part.place.verdict)) {
            part.is_marked = true;
            part.ticket.note_marked();
        }
    }

    /// Forgets parts of which nothing remains to be known.
    pub fn settle(&mut self, durable: Seq) {
        self.parts.retain(|part| !part.is_done(durable));
    }

    /// The first logical log segment that must stay, if one must.
    pub fn needed_from(&self) -> Option<u32> {
        let begins = self.parts.iter().map(|part| part.begins);
        begins.reduce(|one, other| if serial::is_at_or_after(one, other) { one } else { other })
    }

    /// Nothing more becomes known here.
    pub fn abandon(&self) {
        self.parts.iter().for_each(|part| part.ticket.abandon());
    }
}
