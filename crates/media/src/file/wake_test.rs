//! The wake descriptor, and handles that move between threads.

use super::fixture::{backends, fixture};
use super::*;
use crate::{IoBuffer, IoKind};
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::BorrowedFd;

fn block(byte: u8) -> IoBuffer {
    let mut buffer = IoBuffer::zeroed(4096);
    buffer.fill(byte);
    buffer
}

fn is_readable(device: &FileDevice, wait: bool) -> bool {
    let descriptor = device.wake_descriptor().expect("the kernel makes one");
    // SAFETY: the device that owns the descriptor is borrowed.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let mut entries = [PollFd::new(&descriptor, PollFlags::IN)];
    let timeout = (!wait).then(rustix::event::Timespec::default);
    poll(&mut entries, timeout.as_ref()).expect("polling works") > 0
}

#[test]
fn the_wake_descriptor_tells_of_every_completion() {
    for backend in backends() {
        println!("back-end {backend:?}");
        let fixture = fixture("wake", backend);
        let mut device = fixture.store.device(DurableMethod::DurableWrite).expect("a handle is made");
        let geometry = device.geometry();
        let first = device.wake_descriptor();
        assert!(!is_readable(&device, false), "{backend:?}: nothing is in flight");
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
            // An event loop: sleeps on the descriptor only, polls the device only when woken.
            while device.in_flight() > 0 {
                assert!(is_readable(&device, true));
                device.complete(Wait::Poll, &mut completions);
            }
            assert_eq!(completions.len(), 3, "{backend:?}, round {round}");
            assert!(completions.drain(..).all(|done| done.result.is_ok()));
        }
        assert_eq!(device.wake_descriptor(), first, "there is one only");
        device.complete(Wait::Poll, &mut completions);
        assert!(!is_readable(&device, false), "{backend:?}: all has been handed back");
    }
}

#[test]
fn an_idle_device_works_on_another_thread_and_comes_back() {
    for backend in backends() {
        let fixture = fixture("moved", backend);
        let mut device = fixture.store.device(DurableMethod::DurableWrite).expect("a handle is made");
        let offset = device.geometry().segment_offset(1);
        assert!(!is_readable(&device, false));
        let write = |device: &mut FileDevice, byte| {
            let mut completions = Vec::new();
            device.submit(&mut vec![IoRequest::write_durable(1, offset, block(byte))]);
            assert!(is_readable(device, true), "{backend:?}: it wakes on every thread");
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
