//! The replies of one connection, in the order of its requests, held back until they may be seen.
//!
//! A reply is either ready, with a gate (the sequence that must be durable before the client may see
//! it), or reserved: a place in the order that is filled later, because the answer needs a device read
//! or another shard. What comes from another shard was gated there; fill it with gate 0.
//!
//! Invariants:
//! 1. The stream of bytes that [`ReplyQueue::take`] gives is the concatenation of the replies in the
//!    order in which they were pushed or reserved.
//! 2. No byte is given whose gate is above the last durable sequence that the queue was told.
//! 3. When every reply is ready and free, pushing is an append to one vector, and taking swaps it out.
//!    Otherwise each byte is copied once more, and once again at most for compaction.
//! 4. Behind the last reply ([`ReplyQueue::fill_last`]) nothing is given.
//!
//! The connection owns its queue; a crash leaves nothing, which is the point.

use std::collections::VecDeque;
use tierstone_base::Seq;

/// Bytes of dead space that are always tolerated.
const GARBAGE_BYTES: usize = 4096;
/// An empty queue keeps no more memory than this.
const KEPT_BYTES: usize = 16 << 10;
/// An empty queue keeps no more pieces than this.
const KEPT_PIECES: usize = 1024;

/// A place that was reserved in one [`ReplyQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(u64);

impl SlotId {
    /// The slot as a number, for tokens.
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// The slot that [`SlotId::to_u64`] gave `number` for.
    pub fn from_u64(number: u64) -> Self {
        SlotId(number)
    }
}

/// A run of replies that lie together and share a gate, or a reserved place.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    start: usize,
    len: usize,
    gate: Seq,
    is_open: bool,
    /// Whether parts of it were given while it is open.
    is_stream: bool,
    /// Whether it is open and will be filled soon.
    is_soon: bool,
}

/// The replies of one connection that were not handed to its socket.
#[derive(Debug)]
pub struct ReplyQueue {
    bytes: Vec<u8>,
    /// `bytes[head..clear]` may be sent, before all pieces.
    head: usize,
    clear: usize,
    pieces: VecDeque<Piece>,
    /// The slot number of the first piece.
    first_piece: u64,
    /// Sum of the pieces' lengths.
    pieces_bytes: usize,
    durable: Seq,
    full_bytes: usize,
    is_gated: bool,
    /// How many places will be filled soon.
    soon: usize,
    /// Nothing more is taken: the last reply is there.
    has_last: bool,
}

impl ReplyQueue {
    /// An empty queue that calls itself full from `full_bytes` on.
    pub fn new(full_bytes: usize) -> Self {
        ReplyQueue {
            bytes: Vec::new(),
            head: 0,
            clear: 0,
            pieces: VecDeque::new(),
            first_piece: 0,
            pieces_bytes: 0,
            durable: 0,
            full_bytes,
            is_gated: true,
            soon: 0,
            has_last: false,
        }
    }

    /// Breaks invariant 2 from now on (the mutation `UngatedReplies`): replies leave before what they
    /// tell is durable, and the kill tests must notice.
    #[cfg(any(test, feature = "mutations"))]
    pub fn ungate(&mut self) {
        self.is_gated = false;
    }

    /// Appends a reply that the client may see when `gate` is durable; 0 for at once.
    #[inline]
    pub fn push(&mut self, gate: Seq, reply: &[u8]) {
        self.push_with(gate, |bytes| bytes.extend_from_slice(reply));
    }

    /// Appends the reply that `encode` appends to the vector it gets; it must only append. What it
    /// appends may be several replies. Cost beside `encode`: a few nanoseconds, no allocation when warm.
    #[inline]
    pub fn push_with<R>(&mut self, gate: Seq, encode: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        self.push_gated(encode, |_| Some(gate))
    }

    /// The same where only what `encode` gives tells the gate, or that what it has appended, if anything, is no reply.
    ///
    /// A reply that is made elsewhere and copied here costs more than the copy: short ones are written in pieces, and reading
    /// such back as a whole waits until the processor has written everything before them (docs/benchmarks/redo.md).
    #[inline]
    pub fn push_gated<R>(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>) -> R,
        gate_of: impl FnOnce(&R) -> Option<Seq>,
    ) -> R {
        if self.has_last {
            return encode(&mut Vec::new());
        }
        let start = self.bytes.len();
        let result = encode(&mut self.bytes);
        debug_assert!(self.bytes.len() >= start, "an encoder removed bytes");
        match gate_of(&result) {
            None => self.bytes.truncate(start),
            Some(gate) if self.pieces.is_empty() && (gate <= self.durable || !self.is_gated) => {
                self.clear = self.bytes.len();
            }
            Some(gate) => self.append_piece(start, gate),
        }
        result
    }

    fn append_piece(&mut self, start: usize, gate: Seq) {
        let len = self.bytes.len() - start;
        let gate = if self.is_gated { gate } else { 0 };
        self.pieces_bytes += len;
        match self.pieces.back_mut() {
            // A lower gate behind a higher one waits for the higher one anyway.
            Some(last) if !last.is_open && gate <= last.gate && last.start + last.len == start => {
                last.len += len;
            }
            _ => self.pieces.push_back(Piece { start, len, gate, ..Piece::default() }),
        }
    }

    /// Takes the next place in the order for a reply that comes later; everything pushed from now on
    /// waits behind it.
    pub fn reserve(&mut self) -> SlotId {
        if self.has_last {
            // A place that is never found.
            return SlotId(u64::MAX);
        }
        let slot = SlotId(self.first_piece + self.pieces.len() as u64);
        let start = self.bytes.len();
        self.pieces.push_back(Piece { start, is_open: true, ..Piece::default() });
        slot
    }

    /// The same for a reply that comes soon, by which is meant: those before it may be sent together with it.
    pub fn reserve_soon(&mut self) -> SlotId {
        let slot = self.reserve();
        if let Some(piece) = self.pieces.back_mut().filter(|_| !self.has_last) {
            piece.is_soon = true;
            self.soon += 1;
        }
        slot
    }

    /// What was to come soon in a reserved place comes later. Does nothing if it has come.
    pub fn not_soon(&mut self, slot: SlotId) {
        let index = slot.0.wrapping_sub(self.first_piece);
        let piece = usize::try_from(index).ok().and_then(|index| self.pieces.get_mut(index));
        if let Some(piece) = piece.filter(|piece| piece.is_soon) {
            piece.is_soon = false;
            self.soon -= 1;
        }
    }

    /// Whether a reserved place will be filled soon.
    #[inline]
    pub fn has_soon(&self) -> bool {
        self.soon > 0
    }

    /// Completes a reserved place with `reply` (after what [`ReplyQueue::extend_with`] gave). Returns
    /// whether the place was open; if not, nothing happens.
    pub fn fill(&mut self, slot: SlotId, gate: Seq, reply: &[u8]) -> bool {
        self.fill_with(slot, gate, |bytes| bytes.extend_from_slice(reply))
    }

    /// As [`ReplyQueue::fill`] for the last reply of all: what stands behind it, and what comes, is never given. So who was
    /// told the length of a reply that then broke off takes nothing else for a part of it.
    pub fn fill_last(&mut self, slot: SlotId, gate: Seq, reply: &[u8]) -> bool {
        if !self.fill(slot, gate, reply) {
            return false;
        }
        let index = (slot.0 - self.first_piece) as usize;
        for piece in self.pieces.drain(index + 1..) {
            self.pieces_bytes -= piece.len;
            self.soon -= usize::from(piece.is_soon);
        }
        self.has_last = true;
        true
    }

    /// Like [`ReplyQueue::fill`], with the bytes that `encode` appends; it is not called when the
    /// place is not open.
    pub fn fill_with(&mut self, slot: SlotId, gate: Seq, encode: impl FnOnce(&mut Vec<u8>)) -> bool {
        self.write_slot(slot, gate, encode, false)
    }

    /// Gives a part of the reply of a reserved place and leaves the place open, so that a large value
    /// can be streamed. The part may be sent as soon as it is first in the order.
    pub fn extend_with(&mut self, slot: SlotId, gate: Seq, encode: impl FnOnce(&mut Vec<u8>)) -> bool {
        self.write_slot(slot, gate, encode, true)
    }

    fn write_slot(
        &mut self,
        slot: SlotId,
        gate: Seq,
        encode: impl FnOnce(&mut Vec<u8>),
        stays_open: bool,
    ) -> bool {
        let index = slot.0.wrapping_sub(self.first_piece);
        let piece = usize::try_from(index).ok().and_then(|index| self.pieces.get_mut(index));
        let Some(piece) = piece.filter(|piece| piece.is_open) else { return false };
        if piece.len == 0 {
            piece.start = self.bytes.len();
        } else if piece.start + piece.len != self.bytes.len() {
            // Others appended meanwhile: the part moves behind them so that it stays in one run.
            let held = piece.start..piece.start + piece.len;
            piece.start = self.bytes.len();
            self.bytes.extend_from_within(held);
        }
        let before = self.bytes.len();
        encode(&mut self.bytes);
        debug_assert!(self.bytes.len() >= before, "an encoder removed bytes");
        self.pieces_bytes += self.bytes.len() - before;
        piece.len = self.bytes.len() - piece.start;
        piece.gate = if self.is_gated { piece.gate.max(gate) } else { 0 };
        piece.is_open = stays_open;
        piece.is_stream |= stays_open;
        self.soon -= usize::from(std::mem::take(&mut piece.is_soon));
        true
    }

    /// Tells the queue that everything up to `durable` is durable. Returns whether
    /// [`ReplyQueue::take`] would give something.
    pub fn release(&mut self, durable: Seq) -> bool {
        self.durable = self.durable.max(durable);
        while let Some(piece) = self.pieces.front() {
            if piece.is_open || piece.gate > self.durable || piece.start != self.clear {
                break;
            }
            self.clear += piece.len;
            self.pop_piece();
        }
        if self.pieces.is_empty() && self.clear != self.bytes.len() {
            // What lies beyond was moved elsewhere by a slot that grew.
            self.bytes.truncate(self.clear);
        }
        self.has_sendable()
    }

    fn pop_piece(&mut self) {
        if let Some(piece) = self.pieces.pop_front() {
            self.pieces_bytes -= piece.len;
            self.first_piece += 1;
        }
    }

    /// Whether [`ReplyQueue::take`] would give something.
    #[inline]
    pub fn has_sendable(&self) -> bool {
        self.head < self.clear
            || self.pieces.front().is_some_and(|piece| {
                piece.gate <= self.durable && if piece.is_open { piece.len > 0 } else { true }
            })
    }

    /// Whether the first reply is ready but not durable: it goes when the durable sequence rises.
    #[inline]
    pub fn waits_for_durable(&self) -> bool {
        self.pieces.front().is_some_and(|piece| piece.gate > self.durable)
    }

    /// Whether the first reply is given in parts and all of those so far were taken: the next is wanted.
    #[inline]
    pub fn wants_part(&self) -> bool {
        self.pieces.front().is_some_and(|piece| piece.is_stream && piece.is_open && piece.len == 0)
    }

    /// Whether it is `slot` whose next part is wanted.
    pub fn wants_part_of(&self, slot: SlotId) -> bool {
        slot.0 == self.first_piece && self.wants_part()
    }

    /// Appends everything that may be sent to `out` and forgets it. When all is free and `out` is
    /// empty, the vectors are swapped instead, so hand in one that has some capacity.
    pub fn take(&mut self, out: &mut Vec<u8>) {
        if self.pieces.is_empty() {
            if self.head == 0 && out.is_empty() {
                std::mem::swap(&mut self.bytes, out);
            } else {
                out.extend_from_slice(&self.bytes[self.head..]);
            }
            self.bytes.clear();
            self.head = 0;
            self.clear = 0;
            return;
        }
        out.extend_from_slice(&self.bytes[self.head..self.clear]);
        self.head = self.clear;
        while let Some(piece) = self.pieces.front_mut() {
            if piece.gate > self.durable {
                break;
            }
            out.extend_from_slice(&self.bytes[piece.start..piece.start + piece.len]);
            if piece.is_open {
                self.pieces_bytes -= piece.len;
                piece.start += piece.len;
                piece.len = 0;
                break;
            }
            self.pop_piece();
        }
        self.tidy();
    }

    /// Gives dead space back, at a cost that the bytes which died have paid for.
    fn tidy(&mut self) {
        if self.pieces_bytes == 0 {
            self.bytes.clear();
            for piece in &mut self.pieces {
                piece.start = 0;
            }
        } else if self.bytes.len() > GARBAGE_BYTES + 2 * self.pieces_bytes {
            let mut compact = Vec::with_capacity(2 * self.pieces_bytes);
            for piece in &mut self.pieces {
                let start = compact.len();
                compact.extend_from_slice(&self.bytes[piece.start..piece.start + piece.len]);
                piece.start = start;
            }
            self.bytes = compact;
        } else {
            return;
        }
        self.head = 0;
        self.clear = 0;
    }

    /// Bytes that are held, sendable or not.
    pub fn len(&self) -> usize {
        self.clear - self.head + self.pieces_bytes
    }

    /// Whether nothing is held and nothing is reserved.
    pub fn is_empty(&self) -> bool {
        self.head == self.clear && self.pieces.is_empty()
    }

    /// From how many bytes on it calls itself full.
    pub(crate) fn set_full_bytes(&mut self, full_bytes: usize) {
        self.full_bytes = full_bytes;
    }

    /// Whether the service should take no more requests of this connection for now.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len() >= self.full_bytes
    }

    /// Bytes of memory that the queue holds.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.pieces.capacity() * size_of::<Piece>()
    }

    /// Gives back memory that a burst needed; all of it if `is_idle`. Does nothing unless empty.
    pub fn shrink(&mut self, is_idle: bool) {
        if !self.is_empty() {
            return;
        }
        if is_idle || self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
            self.head = 0;
            self.clear = 0;
        }
        if is_idle || self.pieces.capacity() > KEPT_PIECES {
            self.pieces = VecDeque::new();
        }
    }
}

#[cfg(test)]
#[path = "gate_test.rs"]
mod gate_test;
