use super::*;
use crate::BLOCK_BYTES;
use crate::file::uring_refusal;
use io_uring::IoUring;

fn used(registered: &mut RegisteredBuffers, ring: &IoUring, buffer: &mut IoBuffer) -> Option<u16> {
    let slot = registered.slot_of(buffer);
    registered.register(&ring.submitter());
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
