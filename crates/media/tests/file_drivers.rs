//! What drivers build on: wake descriptors, moving between threads, a ring shared with others.

#![expect(clippy::expect_used, reason = "a step that fails fails its test")]

mod support;

use io_uring::{IoUring, opcode};
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::{BorrowedFd, RawFd};
use support::{TemporaryDirectory, backends, settings};
use tierstone_media::file::{DurableMethod, FileBackend, FileDevice, FileStore, UringFiles, uring_refusal};
use tierstone_media::{BlockDevice, IoBuffer, IoKind, IoRequest, Wait};

fn block(byte: u8) -> IoBuffer {
    let mut buffer = IoBuffer::zeroed(4096);
    buffer.fill(byte);
    buffer
}

fn opened(directory: &TemporaryDirectory, backend: FileBackend) -> (FileStore, FileDevice) {
    let store = FileStore::open(&settings(directory.join("store"), backend)).expect("a new store opens");
    let device = store.device(DurableMethod::DurableWrite).expect("a handle is made");
    (store, device)
}

fn is_readable(descriptor: RawFd, wait: bool) -> bool {
    // SAFETY: the device that owns the descriptor lives in the caller.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let mut entries = [PollFd::new(&borrowed, PollFlags::IN)];
    let timeout = (!wait).then(rustix::event::Timespec::default);
    poll(&mut entries, timeout.as_ref()).expect("polling works") > 0
}

#[test]
fn the_wake_descriptor_tells_of_every_completion() {
    for backend in backends() {
        println!("back-end {backend:?}");
        let directory = TemporaryDirectory::new();
        let (_store, mut device) = opened(&directory, backend);
        let geometry = device.geometry();
        let descriptor = device.wake_descriptor().expect("the kernel makes one");
        assert_eq!(device.wake_descriptor(), Some(descriptor), "there is one only");
        assert!(!is_readable(descriptor, false), "{backend:?}: nothing is in flight");
        let mut completions = Vec::new();
        for round in 0..20u32 {
            let offset = geometry.segment_offset(round % 3);
            let mut requests = vec![
                IoRequest::write_durable(1, offset, block(1)),
                IoRequest::write(2, offset + 8192, block(2)),
                IoRequest {
                    token: 3,
                    kind: IoKind::Prepare { len: 4096 },
                    offset: offset + 4096,
                    buffer: None,
                },
            ];
            device.submit(&mut requests);
            println!("round {round}");
            // An event loop: sleeps on the descriptor only, polls the device only when woken.
            while device.in_flight() > 0 {
                assert!(is_readable(descriptor, true));
                device.complete(Wait::Poll, &mut completions);
            }
            assert_eq!(completions.len(), 3, "{backend:?}, round {round}");
            assert!(completions.drain(..).all(|done| done.result.is_ok()));
        }
        device.complete(Wait::Poll, &mut completions);
        assert!(!is_readable(descriptor, false), "{backend:?}: all has been handed back");
    }
}

#[test]
fn an_idle_device_works_on_another_thread_and_comes_back() {
    for backend in backends() {
        let directory = TemporaryDirectory::new();
        let (_store, mut device) = opened(&directory, backend);
        let offset = device.geometry().segment_offset(1);
        let descriptor = device.wake_descriptor().expect("the kernel makes one");
        let write = |device: &mut FileDevice, byte| {
            let mut completions = Vec::new();
            device.submit(&mut vec![IoRequest::write_durable(1, offset, block(byte))]);
            assert!(is_readable(descriptor, true), "{backend:?}: it wakes on every thread");
            while device.in_flight() > 0 {
                device.complete(Wait::One, &mut completions);
            }
            assert!(completions[0].result.is_ok());
        };
        write(&mut device, 1);
        std::thread::scope(|scope| {
            scope.spawn(|| write(&mut device, 2));
        });
        write(&mut device, 3);
        let mut completions = Vec::new();
        device.submit(&mut vec![IoRequest::read(1, offset, block(0))]);
        device.complete(Wait::All, &mut completions);
        assert_eq!(completions[0].buffer.as_deref(), Some(&*block(3)));
    }
}

#[test]
fn shards_on_their_own_threads_share_one_store() {
    for backend in backends() {
        let directory = TemporaryDirectory::new();
        let (store, device) = opened(&directory, backend);
        let geometry = device.geometry();
        std::thread::scope(|scope| {
            for shard in 0..4u32 {
                let store = &store;
                scope.spawn(move || {
                    let mut device = store.device(DurableMethod::DurableWrite).expect("a handle is made");
                    let mut completions = Vec::new();
                    for round in 0..16u64 {
                        // All shards make the same new segments, each writes its own blocks.
                        let segment = geometry.segment_offset(round as u32 % 8);
                        let offset = segment + (u64::from(shard) + 4 * (round / 8)) * 4096;
                        let mut requests = vec![
                            IoRequest::write(round, offset, block(shard as u8 + 1)),
                            IoRequest::flush(100 + round),
                        ];
                        device.submit(&mut requests);
                    }
                    device.complete(Wait::All, &mut completions);
                    assert!(completions.iter().all(|done| done.result.is_ok()), "{completions:?}");
                });
            }
        });
        let mut device = device;
        let mut completions = Vec::new();
        for n in 0..64u64 {
            let offset = geometry.segment_offset(n as u32 % 8) + n / 8 * 4096;
            device.submit(&mut vec![IoRequest::read(n, offset, block(0))]);
        }
        device.complete(Wait::All, &mut completions);
        for done in completions {
            let shard = (done.token / 8 % 4) as u8;
            assert_eq!(done.buffer.as_deref(), Some(&*block(shard + 1)), "place {}", done.token);
        }
        assert_eq!(store.existing_segments().len(), 8);
    }
}

#[test]
fn a_server_shares_one_ring_between_files_and_others() {
    if let Some(reason) = uring_refusal() {
        println!("SKIPPED: the kernel refuses io_uring: {reason}");
        return;
    }
    const OTHERS: u64 = 9 << 56;
    let directory = TemporaryDirectory::new();
    let store = FileStore::open(&settings(directory.join("store"), FileBackend::Auto)).expect("it opens");
    let geometry = store.geometry();
    let mut ring = IoUring::new(8).expect("a ring is made");
    let mut files = UringFiles::new(&store, DurableMethod::WriteThenFlush, 7).expect("it is made");
    let mut requests: Vec<_> = (0..40u64)
        .map(|n| {
            IoRequest::write_durable(n, geometry.segment_offset(n as u32 % 4) + n * 4096 % 65536, block(5))
        })
        .collect();
    files.submit(&mut requests);
    let (mut completions, mut of_others) = (Vec::new(), 0);
    while files.in_flight() > 0 || of_others == 0 {
        let nop = opcode::Nop::new().build().user_data(OTHERS);
        // SAFETY: a no-operation names no memory.
        let _ = unsafe { ring.submission().push(&nop) };
        files.push(&mut ring.submission());
        ring.submit_and_wait(1).expect("the ring works");
        for entry in ring.completion() {
            if files.owns(entry.user_data()) {
                files.completed(&entry);
                // A completion that comes twice (a mistake of the owner) must not count again.
                files.completed(&entry);
            } else {
                assert_eq!(entry.user_data(), OTHERS);
                of_others += 1;
            }
        }
        files.take(&mut completions);
    }
    assert_eq!((completions.len(), files.expected()), (40, 0));
    assert!(completions.iter().all(|done| done.result.is_ok()));
}
