use super::*;
use proptest::prelude::*;

/// One thing that happens to a queue.
#[derive(Clone, Debug)]
enum Act {
    Push { gate: Seq, len: usize },
    TakeBack { len: usize },
    Reserve,
    ReserveSoon,
    NotSoon { choice: usize },
    Fill { choice: usize, gate: Seq, len: usize },
    Extend { choice: usize, gate: Seq, len: usize },
    FillLast { choice: usize, gate: Seq, len: usize },
    Release { by: Seq },
    Take,
    Shrink,
}

fn act() -> impl Strategy<Value = Act> {
    let len = prop_oneof![4 => 0usize..40, 1 => 1000usize..6000];
    let gate = prop_oneof![2 => Just(0), 3 => 0u64..60];
    prop_oneof![
        6 => (gate.clone(), len.clone()).prop_map(|(gate, len)| Act::Push { gate, len }),
        1 => len.clone().prop_map(|len| Act::TakeBack { len }),
        3 => Just(Act::Reserve),
        2 => Just(Act::ReserveSoon),
        1 => any::<usize>().prop_map(|choice| Act::NotSoon { choice }),
        3 => (any::<usize>(), gate.clone(), len.clone())
            .prop_map(|(choice, gate, len)| Act::Fill { choice, gate, len }),
        2 => (any::<usize>(), gate.clone(), len.clone())
            .prop_map(|(choice, gate, len)| Act::Extend { choice, gate, len }),
        1 => (any::<usize>(), gate, len)
            .prop_map(|(choice, gate, len)| Act::FillLast { choice, gate, len }),
        2 => (0u64..10).prop_map(|by| Act::Release { by }),
        4 => Just(Act::Take),
        1 => Just(Act::Shrink),
    ]
}

/// A reply of the model.
struct ModelReply {
    bytes: Vec<u8>,
    gate: Seq,
    is_open: bool,
    is_soon: bool,
}

/// The naive queue: a list of replies, of which the front ones may leave.
#[derive(Default)]
struct Model {
    replies: Vec<ModelReply>,
    durable: Seq,
}

impl Model {
    fn take(&mut self) -> Vec<u8> {
        let mut taken = Vec::new();
        while let Some(first) = self.replies.first_mut() {
            if first.gate > self.durable {
                break;
            }
            taken.append(&mut first.bytes);
            if first.is_open {
                break;
            }
            self.replies.remove(0);
        }
        taken
    }
}

struct Pair {
    queue: ReplyQueue,
    model: Model,
    slots: Vec<(SlotId, usize)>,
    made: usize,
    has_last: bool,
    written: u8,
}

impl Pair {
    fn new() -> Self {
        let (queue, model) = (ReplyQueue::new(usize::MAX), Model::default());
        Pair { queue, model, slots: Vec::new(), made: 0, has_last: false, written: 0 }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        self.written = self.written.wrapping_add(37);
        (0..len).map(|at| self.written.wrapping_add(at as u8)).collect()
    }

    /// The model's reply number `number`, counted from the first ever.
    fn reply(&mut self, number: usize) -> &mut ModelReply {
        let gone = self.made - self.model.replies.len();
        &mut self.model.replies[number - gone]
    }

    fn write_slot(&mut self, choice: usize, gate: Seq, len: usize, stays_open: bool) {
        if self.slots.is_empty() {
            return;
        }
        let at = choice % self.slots.len();
        let (slot, number) = self.slots[at];
        let bytes = self.bytes(len);
        let written = if stays_open {
            self.queue.extend_with(slot, gate, |out| out.extend_from_slice(&bytes))
        } else {
            self.slots.remove(at);
            self.queue.fill(slot, gate, &bytes)
        };
        assert!(written);
        let reply = self.reply(number);
        reply.bytes.extend_from_slice(&bytes);
        reply.gate = reply.gate.max(gate);
        (reply.is_open, reply.is_soon) = (stays_open, false);
        if !stays_open {
            assert!(!self.queue.fill(slot, 0, b"again"), "a filled place takes nothing more");
        }
    }

    fn apply(&mut self, act: Act) {
        match act {
            Act::Push { gate, len } => {
                let bytes = self.bytes(len);
                self.queue.push(gate, &bytes);
                if self.has_last {
                    return;
                }
                self.model.replies.push(ModelReply { bytes, gate, is_open: false, is_soon: false });
                self.made += 1;
            }
            Act::TakeBack { len } => {
                let bytes = self.bytes(len);
                self.queue.push_gated(|reply| reply.extend_from_slice(&bytes), |()| None);
            }
            Act::Reserve => self.reserve(false),
            Act::ReserveSoon => self.reserve(true),
            Act::NotSoon { .. } if self.slots.is_empty() => {}
            Act::NotSoon { choice } => {
                let (slot, number) = self.slots[choice % self.slots.len()];
                self.queue.not_soon(slot);
                self.reply(number).is_soon = false;
            }
            Act::Fill { choice, gate, len } => self.write_slot(choice, gate, len, false),
            Act::Extend { choice, gate, len } => self.write_slot(choice, gate, len, true),
            Act::FillLast { choice, gate, len } => self.fill_last(choice, gate, len),
            Act::Release { by } => {
                self.model.durable += by;
                self.queue.release(self.model.durable);
            }
            Act::Take => self.take(),
            Act::Shrink => self.queue.shrink(true),
        }
        let held: usize = self.model.replies.iter().map(|reply| reply.bytes.len()).sum();
        assert_eq!(self.queue.len(), held);
        let has_soon = self.model.replies.iter().any(|reply| reply.is_soon);
        assert_eq!(self.queue.has_soon(), has_soon);
    }

    /// Nothing comes behind this one: what does is taken and never seen.
    fn fill_last(&mut self, choice: usize, gate: Seq, len: usize) {
        if self.slots.is_empty() {
            return;
        }
        let (slot, number) = self.slots[choice % self.slots.len()];
        let bytes = self.bytes(len);
        assert!(self.queue.fill_last(slot, gate, &bytes));
        let gone = self.made - self.model.replies.len();
        let reply = self.reply(number);
        reply.bytes.extend_from_slice(&bytes);
        (reply.gate, reply.is_open, reply.is_soon) = (reply.gate.max(gate), false, false);
        self.model.replies.truncate(number - gone + 1);
        (self.made, self.has_last) = (number + 1, true);
        for (slot, other) in std::mem::take(&mut self.slots) {
            if other < number {
                self.slots.push((slot, other));
            } else {
                assert!(!self.queue.fill(slot, 0, b"behind the last"));
            }
        }
    }

    fn reserve(&mut self, is_soon: bool) {
        let slot = if is_soon { self.queue.reserve_soon() } else { self.queue.reserve() };
        if self.has_last {
            return assert!(!self.queue.fill(slot, 0, b"behind the last"));
        }
        self.slots.push((slot, self.made));
        self.model.replies.push(ModelReply { bytes: Vec::new(), gate: 0, is_open: true, is_soon });
        self.made += 1;
    }

    fn take(&mut self) {
        let mut taken = b"before".to_vec();
        if self.written.is_multiple_of(2) {
            taken.clear();
        }
        let before = taken.clone();
        // What is pushed with a gate that is durable by now may be known only after a release.
        let has_sendable = self.queue.release(self.model.durable);
        self.queue.take(&mut taken);
        let expected = self.model.take();
        assert!(has_sendable || expected.is_empty());
        assert_eq!(taken, [before, expected].concat());
        let waits = self.model.replies.first().is_some_and(|reply| reply.gate > self.model.durable);
        assert_eq!(self.queue.waits_for_durable(), waits);
        assert_eq!(self.queue.is_empty(), self.model.replies.is_empty());
    }
}

proptest! {
    #[test]
    fn the_client_sees_replies_in_order_and_none_above_the_durable_sequence(
        acts in proptest::collection::vec(act(), 1..120)
    ) {
        let mut pair = Pair::new();
        for act in acts {
            pair.apply(act);
        }
        while !pair.slots.is_empty() {
            pair.write_slot(0, 0, 3, false);
        }
        pair.apply(Act::Release { by: 1_000 });
        pair.take();
        prop_assert!(pair.queue.is_empty() && pair.queue.is_empty());
    }
}

#[test]
fn the_mutation_that_opens_the_gate_is_seen() {
    let mut queue = ReplyQueue::new(100);
    queue.ungate();
    queue.push(7, b"+OK\r\n");
    assert!(queue.has_sendable(), "with the mutation a reply leaves before it is durable");
    let mut honest = ReplyQueue::new(100);
    honest.push(7, b"+OK\r\n");
    assert!(!honest.has_sendable());
    assert!(!honest.release(6));
    assert!(honest.release(7));
}

#[test]
fn ready_replies_cost_no_allocation_when_warm() {
    let mut queue = ReplyQueue::new(1 << 20);
    let mut out = Vec::with_capacity(256);
    queue.push(0, &[1; 200]);
    queue.take(&mut out);
    let (first, second) = (queue.memory_bytes(), out.capacity());
    for round in 0..1000u64 {
        out.clear();
        queue.push(round + 1, &[2; 100]);
        queue.push(round + 1, &[3; 100]);
        assert!(queue.release(round + 1));
        queue.take(&mut out);
        assert_eq!(out.len(), 200);
    }
    let pieces = 4 * size_of::<Piece>();
    assert!(queue.memory_bytes() + out.capacity() <= first + second + pieces);
}

#[test]
fn a_reservation_that_never_ends_does_not_keep_what_was_sent() {
    let mut queue = ReplyQueue::new(1 << 20);
    let slot = queue.reserve();
    let mut out = Vec::new();
    for round in 0..1000 {
        assert!(queue.extend_with(slot, 0, |bytes| bytes.extend_from_slice(&[round as u8; 4096])));
        if round % 10 == 0 {
            queue.push(0, b"behind");
        }
        out.clear();
        queue.take(&mut out);
        assert_eq!(out, [round as u8; 4096]);
    }
    assert!(queue.memory_bytes() < 64 << 10, "{}", queue.memory_bytes());
}
