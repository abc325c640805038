//! What drivers build on: shards on their own threads that share a store.

#![expect(clippy::expect_used, reason = "a step that fails fails its test")]

mod support;

use support::{TemporaryDirectory, backends, settings};
use tierstone_media::file::{CallingThread, DurableMethod, FileBackend, FileDevice, FileStore};
use tierstone_media::{BlockDevice, DeviceErrorKind, IoBuffer, IoKind, IoRequest, Wait};

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
fn the_thread_that_waits_does_a_lone_request_itself_beside_the_device() {
    for backend in backends() {
        let directory = TemporaryDirectory::new();
        let (store, mut device) = opened(&directory, backend);
        let place = device.geometry().segment_offset(2);
        let mut completions = Vec::new();
        // The first write makes the segment.
        let written =
            device.carry_out(&mut vec![IoRequest::write_durable(1, place, block(7))], &mut completions);
        assert_eq!((written, device.in_flight()), (1, 0));
        assert!(completions.pop().expect("it is done").result.is_ok());
        let calling = CallingThread::new(&store, DurableMethod::DurableWrite);
        let read = calling.carry_out(IoRequest::read(2, place, block(0)));
        assert_eq!((read.token, read.buffer.as_deref()), (2, Some(&*block(7))));
        // With others under way, it is submitted with them.
        device.submit(&mut vec![IoRequest::read(3, place, block(0))]);
        let mut some = device.carry_out(&mut vec![IoRequest::read(4, place, block(0))], &mut completions);
        some += device.complete(Wait::All, &mut completions);
        assert_eq!((some, completions.len()), (2, 2));
        assert!(completions.iter().all(|done| done.buffer.as_deref() == Some(&*block(7))));
        // What it does not do, and what lies outside.
        let prepare =
            IoRequest { token: 5, kind: IoKind::Prepare { len: 4096 }, offset: place, buffer: None };
        assert!(!CallingThread::does(prepare.kind));
        let end = device.geometry().end();
        for wrong in [prepare, IoRequest::read(6, end, block(0)), IoRequest::read(7, place + 1, block(0))] {
            let refused = calling.carry_out(wrong).result.expect_err("it is refused");
            assert_eq!(refused.kind, DeviceErrorKind::OutOfBounds);
        }
    }
}
