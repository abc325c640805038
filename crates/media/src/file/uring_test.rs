use super::*;
use crate::file::{FileStoreSettings, uring_refusal};
use io_uring::IoUring;

fn block(byte: u8) -> IoBuffer {
    let mut buffer = IoBuffer::zeroed(BLOCK_BYTES);
    buffer.fill(byte);
    buffer
}

#[test]
fn a_server_shares_one_ring_between_files_and_others() {
    if let Some(reason) = uring_refusal() {
        println!("SKIP: tests of files through io_uring (the kernel refuses it: {reason})");
        return;
    }
    const OTHERS: u64 = 9 << 56;
    let path = std::env::temp_dir().join(format!("tierstone-shared-ring-{}", std::process::id()));
    let settings = FileStoreSettings {
        segment_bytes: 128 << 10,
        segment_limit: 16,
        ..FileStoreSettings::new(vec![path.clone()])
    };
    let store = FileStore::open(&settings).expect("it opens");
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
        let (submitter, mut queue, _) = ring.split();
        files.push(&submitter, &mut queue);
        drop(queue);
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
    drop((files, store));
    std::fs::remove_dir_all(&path).expect("it goes");
}

#[test]
fn registered_buffers_carry_what_is_in_them_at_each_write() {
    if let Some(reason) = uring_refusal() {
        println!("SKIP: tests of files through io_uring (the kernel refuses it: {reason})");
        return;
    }
    const BYTES: usize = 64 << 10;
    let path = std::env::temp_dir().join(format!("tierstone-registered-{}", std::process::id()));
    let settings = FileStoreSettings {
        segment_bytes: 256 << 10,
        segment_limit: 8,
        ..FileStoreSettings::new(vec![path.clone()])
    };
    let store = FileStore::open(&settings).expect("it opens");
    let geometry = store.geometry();
    let mut ring = IoUring::new(8).expect("a ring is made");
    for method in [DurableMethod::DurableWrite, DurableMethod::WriteThenFlush] {
        let mut files = UringFiles::new(&store, method, 7).expect("it is made");
        let mut once = |files: &mut UringFiles, request: IoRequest| -> IoBuffer {
            files.submit(&mut vec![request]);
            let mut completions = Vec::new();
            while files.in_flight() > 0 {
                let (submitter, mut queue, _) = ring.split();
                files.push(&submitter, &mut queue);
                drop(queue);
                ring.submit_and_wait(1).expect("the ring works");
                ring.completion().for_each(|entry| files.completed(&entry));
                files.take(&mut completions);
            }
            let done = completions.pop().expect("one was asked for");
            done.result.expect("it is done");
            done.buffer.expect("it comes back")
        };
        let (mut written, mut read) = (IoBuffer::zeroed(BYTES), IoBuffer::zeroed(BYTES));
        for byte in 1..=20u8 {
            // The range of one request lies in two segments, so it is written from the buffer's middle.
            let offset = geometry.segment_offset(1) - (BYTES / 2) as u64;
            written.fill(byte);
            written = once(&mut files, IoRequest::write_durable(1, offset, written));
            read.fill(0);
            read = once(&mut files, IoRequest::read(2, offset, read));
            assert!(read.iter().all(|&found| found == byte), "{method:?}: {byte}");
        }
        assert!(files.registered_transfers() >= 60, "{}", files.registered_transfers());
        ring = IoUring::new(8).expect("a ring is made");
    }
    drop(store);
    std::fs::remove_dir_all(&path).expect("it goes");
}
