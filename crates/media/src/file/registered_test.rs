use super::*;
use crate::BLOCK_BYTES;
use crate::file::uring_refusal;
use io_uring::IoUring;

/// A use whose entry enters the kernel at once.
fn used(registered: &mut RegisteredBuffers, ring: &IoUring, buffer: &mut IoBuffer) -> Option<u16> {
    let slot = registered.slot_of(buffer);
    registered.register(&ring.submitter());
    registered.all_moved();
    registered.all_entered();
    slot
}

fn ring() -> Option<IoUring> {
    match uring_refusal() {
        Some(reason) => {
            println!("SKIP: tests of files through io_uring (the kernel refuses it: {reason})");
            None
        }
        None => Some(IoUring::new(8).expect("a ring is made")),
    }
}

#[test]
fn a_long_buffer_that_comes_again_gets_a_slot_and_another_at_its_address_does_not() {
    let Some(ring) = ring() else { return };
    let mut registered = RegisteredBuffers::new();
    let mut buffer = IoBuffer::zeroed(SHORTEST);
    assert_eq!(used(&mut registered, &ring, &mut buffer), None);
    assert_eq!(used(&mut registered, &ring, &mut buffer), None, "asked for now");
    assert_eq!(used(&mut registered, &ring, &mut buffer), Some(0));
    assert_eq!(registered.transfers(), 1);
    drop(buffer);
    for _ in 0..100 {
        let mut other = IoBuffer::zeroed(SHORTEST);
        assert_eq!(used(&mut registered, &ring, &mut other), None, "whatever its address is");
    }
    assert!(registered.once.len() <= REMEMBERED);
}

#[test]
fn short_buffers_get_no_slot() {
    let mut registered = RegisteredBuffers::new();
    let mut short = IoBuffer::zeroed(SHORTEST - BLOCK_BYTES);
    for _ in 0..5 {
        assert_eq!(registered.slot_of(&mut short), None);
    }
    assert_eq!((registered.uses, registered.wanted.len()), (0, 0));
}

#[test]
fn a_slot_changes_hands_only_when_its_buffer_stays_away() {
    let Some(ring) = ring() else { return };
    let mut registered = RegisteredBuffers::new();
    let mut buffers: Vec<IoBuffer> = (0..SLOTS + 1).map(|_| IoBuffer::zeroed(SHORTEST)).collect();
    for _ in 0..20 {
        for buffer in &mut buffers {
            used(&mut registered, &ring, buffer);
        }
    }
    let holders: Vec<_> = buffers.iter_mut().map(|buffer| used(&mut registered, &ring, buffer)).collect();
    assert_eq!(holders, [Some(0), Some(1), Some(2), Some(3), None]);
    for _ in 0..=IDLE_USES {
        for buffer in &mut buffers[1..] {
            used(&mut registered, &ring, buffer);
        }
    }
    assert_eq!(used(&mut registered, &ring, &mut buffers[SLOTS]), Some(0));
    assert_eq!(used(&mut registered, &ring, &mut buffers[0]), None);
    registered.forget();
    assert_eq!(used(&mut registered, &ring, &mut buffers[1]), None, "the ring is another");
}

#[test]
fn a_slot_that_an_entry_on_its_way_names_does_not_change_hands() {
    let Some(ring) = ring() else { return };
    let mut registered = RegisteredBuffers::new();
    let mut holders: Vec<IoBuffer> = (0..SLOTS).map(|_| IoBuffer::zeroed(SHORTEST)).collect();
    for _ in 0..3 {
        for buffer in &mut holders {
            used(&mut registered, &ring, buffer);
        }
    }
    // All are idle for long; another one wants the first slot, and before it gets it the holder comes back.
    let mut others: Vec<IoBuffer> = (0..IDLE_USES + 1).map(|_| IoBuffer::zeroed(SHORTEST)).collect();
    for other in &mut others {
        used(&mut registered, &ring, other);
    }
    let mut newcomer = IoBuffer::zeroed(SHORTEST);
    assert_eq!(used(&mut registered, &ring, &mut newcomer), None);
    assert_eq!(registered.slot_of(&mut newcomer), None, "it asks for the slot of the first");
    assert_eq!(registered.slot_of(&mut holders[0]), Some(0), "whose entry names it");
    registered.register(&ring.submitter());
    assert_eq!(registered.slot_of(&mut holders[0]), Some(0), "it is still its own");

    // Nor does one whose entry has waited since before it was idle.
    for other in &mut others {
        assert_eq!(registered.slot_of(other), None);
        registered.register(&ring.submitter());
    }
    registered.slot_of(&mut newcomer);
    registered.slot_of(&mut newcomer);
    registered.register(&ring.submitter());
    assert_eq!(registered.slots[0].identity, holders[0].identity());

    // When the kernel has taken it, it does.
    registered.all_moved();
    registered.all_entered();
    for other in &mut others {
        used(&mut registered, &ring, other);
    }
    for _ in 0..3 {
        used(&mut registered, &ring, &mut newcomer);
    }
    assert!(registered.slots.iter().any(|slot| slot.identity == newcomer.identity()));
}
