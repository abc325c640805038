//! What every [`BlockDevice`] must do, as checks that run against any of them.
//!
//! Each check gets a medium of its own, fresh and empty, with at least four segments of at least
//! 64 KiB and a superblock area of at least two blocks. A failed check panics; its name is printed
//! first. Only what the trait promises is checked: timing, order and what unwritten bytes are after
//! Prepare or Discard are the device's choice.

use crate::{
    BLOCK_BYTES, BlockDevice, DeviceError, DeviceErrorKind, Geometry, IoBuffer, IoCompletion, IoKind,
    IoRequest, Wait,
};
use std::collections::BTreeMap;

/// A medium under test, with all that the checks need from outside the trait.
pub trait ConformanceMedium {
    /// The device under test.
    type Device: BlockDevice;

    /// Another handle on the medium.
    fn device(&mut self) -> Self::Device;

    /// Closes the medium and opens it again, as a new process would; all handles are gone.
    fn reopen(&mut self);
}

/// A check and its name.
type Check<M> = (&'static str, fn(&mut M));

/// Runs all checks, each on a medium made by `make` for the check of that name.
pub fn run<M: ConformanceMedium>(mut make: impl FnMut(&str) -> M) {
    let checks: [Check<M>; 12] = [
        ("written blocks are read back", written_blocks_are_read_back),
        ("unwritten space reads as zeros", unwritten_space_reads_as_zeros),
        ("a batch is one submission", a_batch_is_one_submission),
        ("wrong requests complete as out of bounds", wrong_requests_complete_as_out_of_bounds),
        ("waits keep their word", waits_keep_their_word),
        ("256 requests in flight complete once each", many_requests_complete_once_each),
        ("a request over a segment's end is whole", a_request_over_a_segments_end_is_whole),
        ("a prepared segment takes durable writes", a_prepared_segment_takes_durable_writes),
        ("a discarded segment keeps its neighbours", a_discarded_segment_keeps_its_neighbours),
        ("flushed and durable writes survive reopening", durable_bytes_survive_reopening),
        ("two handles see one medium", two_handles_see_one_medium),
        ("random requests match a plain map", random_requests_match_a_plain_map),
    ];
    for (name, check) in checks {
        println!("conformance: {name}");
        check(&mut make(name));
    }
}

fn block(tag: u64) -> IoBuffer {
    blocks(tag, 1)
}

/// Blocks whose every word depends on `tag` and its place.
fn blocks(tag: u64, count: usize) -> IoBuffer {
    let mut buffer = IoBuffer::zeroed(count * BLOCK_BYTES);
    for (index, word) in buffer.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(tag << 32 | index as u64).to_le_bytes());
    }
    buffer
}

/// Submits, waits for all, and hands completions back by token.
fn perform(device: &mut impl BlockDevice, mut requests: Vec<IoRequest>) -> BTreeMap<u64, IoCompletion> {
    let count = requests.len();
    device.submit(&mut requests);
    assert!(requests.is_empty(), "submit leaves the vector empty");
    let mut completions = Vec::new();
    let returned = device.complete(Wait::All, &mut completions);
    assert_eq!(returned, completions.len(), "complete counts what it appends");
    assert_eq!((completions.len(), device.in_flight()), (count, 0), "all requests complete, once");
    let by_token: BTreeMap<_, _> = completions.into_iter().map(|done| (done.token, done)).collect();
    assert_eq!(by_token.len(), count, "each token comes back once");
    by_token
}

fn one(device: &mut impl BlockDevice, request: IoRequest) -> IoCompletion {
    let (token, kind, offset) = (request.token, request.kind, request.offset);
    match perform(device, vec![request]).remove(&token) {
        Some(done) => {
            assert_eq!((done.kind, done.offset), (kind, offset), "a completion names its request");
            done
        }
        None => panic!("the completion of {token} carries another token"),
    }
}

fn good(done: IoCompletion) -> Option<IoBuffer> {
    match done.result {
        Ok(()) => done.buffer,
        Err(error) => panic!("{:?} at {} failed: {error}", done.kind, done.offset),
    }
}

fn read(device: &mut impl BlockDevice, offset: u64, count: usize) -> IoBuffer {
    // Bytes that are not zero before, so that a read that does nothing is seen.
    let mut dirty = IoBuffer::zeroed(count * BLOCK_BYTES);
    dirty.fill(0xa5);
    match good(one(device, IoRequest::read(7, offset, dirty))) {
        Some(buffer) => buffer,
        None => panic!("the read at {offset} lost its buffer"),
    }
}

fn range(device: &mut impl BlockDevice, kind: IoKind, offset: u64) -> Result<(), DeviceError> {
    one(device, IoRequest { token: 3, kind, offset, buffer: None }).result
}

fn written_blocks_are_read_back<M: ConformanceMedium>(medium: &mut M) {
    let mut device = medium.device();
    let geometry = device.geometry();
    let places = [0, geometry.meta_bytes - 4096, geometry.segment_offset(0), geometry.end() - 4096];
    for (tag, &place) in (1..).zip(&places) {
        let returned = good(one(&mut device, IoRequest::write(tag, place, block(tag))));
        assert_eq!(returned.as_deref(), Some(&*block(tag)), "a write hands its buffer back unchanged");
    }
    for (tag, &place) in (1..).zip(&places) {
        assert_eq!(&*read(&mut device, place, 1), &*block(tag), "at {place}");
    }
    good(one(&mut device, IoRequest::write_durable(9, places[2], block(9))));
    assert_eq!(&*read(&mut device, places[2], 1), &*block(9), "an overwrite wins");
}

fn unwritten_space_reads_as_zeros<M: ConformanceMedium>(medium: &mut M) {
    let mut device = medium.device();
    let geometry = device.geometry();
    for offset in [0, geometry.segment_offset(1), geometry.end() - 8192] {
        assert!(read(&mut device, offset, 2).iter().all(|&byte| byte == 0), "at {offset}");
    }
}

fn a_batch_is_one_submission<M: ConformanceMedium>(medium: &mut M) {
    let mut device = medium.device();
    let base = device.geometry().segment_offset(1);
    let requests = (0..16).map(|n| IoRequest::write(n, base + n * 4096, block(n))).collect();
    perform(&mut device, requests).into_values().for_each(|done| drop(good(done)));
    let requests = (0..16).map(|n| IoRequest::read(n, base + n * 4096, block(99))).collect();
    for (token, done) in perform(&mut device, requests) {
        assert_eq!(good(done).as_deref(), Some(&*block(token)));
    }
    assert!(perform(&mut device, Vec::new()).is_empty());
    for flush in perform(&mut device, vec![IoRequest::flush(1), IoRequest::flush(2)]).into_values() {
        assert_eq!(flush.result, Ok(()));
    }
}

fn wrong_requests_complete_as_out_of_bounds<M: ConformanceMedium>(medium: &mut M) {
    let mut device = medium.device();
    let Geometry { meta_bytes, .. } = device.geometry();
    let end = device.geometry().end();
    let request = |token, kind, offset, buffer| IoRequest { token, kind, offset, buffer };
    let requests = vec![
        request(0, IoKind::Read, 512, Some(block(1))),
        request(1, IoKind::Write, meta_bytes + 1, Some(block(1))),
        request(2, IoKind::WriteDurable, end, Some(block(1))),
        request(3, IoKind::Read, end - 4096, Some(blocks(1, 2))),
        request(4, IoKind::Read, u64::MAX - 4095, Some(blocks(1, 2))),
        request(5, IoKind::Read, 0, None),
        request(6, IoKind::Write, 0, None),
        request(7, IoKind::Prepare { len: u64::MAX - 4095 }, meta_bytes, None),
        request(8, IoKind::Discard { len: 4096 }, 0, None),
        request(9, IoKind::Discard { len: 100 }, meta_bytes, None),
        request(10, IoKind::Write, 0, Some(block(10))),
    ];
    let had_buffer: Vec<bool> = requests.iter().map(|request| request.buffer.is_some()).collect();
    for (token, done) in perform(&mut device, requests) {
        assert_eq!(done.buffer.is_some(), had_buffer[token as usize], "request {token} gets its buffer back");
        let kind = done.result.map_err(|error| error.kind);
        let expected = if token == 10 { Ok(()) } else { Err(DeviceErrorKind::OutOfBounds) };
        assert_eq!(kind, expected, "request {token}");
    }
    assert_eq!(&*read(&mut device, 0, 1), &*block(10), "a good request beside wrong ones is done");
}

fn waits_keep_their_word<M: ConformanceMedium>(medium: &mut M) {
    let mut device = medium.device();
    let base = device.geometry().segment_offset(0);
    let mut completions = Vec::new();
    for wait in [Wait::Poll, Wait::One, Wait::All] {
        assert_eq!(device.complete(wait, &mut completions), 0, "{wait:?} with nothing in flight returns");
    }
    let mut requests: Vec<_> = (0..8).map(|n| IoRequest::write(n, base + n * 4096, block(n))).collect();
    device.submit(&mut requests);
    assert_eq!(device.in_flight(), 8);
    let first = device.complete(Wait::One, &mut completions);
    assert!(first >= 1, "Wait::One brings one at least");
    assert_eq!(device.in_flight() + first, 8);
    // Polling brings the rest in the end; how often is the device's business.
    let mut polls = 0u64;
    while device.in_flight() > 0 {
        device.complete(Wait::Poll, &mut completions);
        polls += 1;
        std::hint::spin_loop();
    }
    assert_eq!(completions.len(), 8, "after {polls} polls");
}

fn many_requests_complete_once_each<M: ConformanceMedium>(medium: &mut M) {
    let mut device = medium.device();
    let geometry = device.geometry();
    let place = |n: u64| geometry.segment_offset((n % 4) as u32) + n / 4 % 16 * 4096;
    // 64 writes, and 192 reads of the same places beside them.
    let mut requests: Vec<_> = (0..64).map(|n| IoRequest::write_durable(n, place(n), block(n))).collect();
    device.submit(&mut requests);
    requests.extend((64..256).map(|n| IoRequest::read(n, place(n), block(1))));
    device.submit(&mut requests);
    assert_eq!(device.in_flight(), 256);
    let mut seen = BTreeMap::new();
    let mut completions = Vec::new();
    while device.in_flight() > 0 {
        device.complete(Wait::One, &mut completions);
        for done in completions.drain(..) {
            assert!(seen.insert(done.token, done.result.is_ok()).is_none(), "{} came twice", done.token);
        }
    }
    assert!(seen.len() == 256 && seen.values().all(|&good| good));
    for n in 0..64 {
        assert_eq!(&*read(&mut device, place(n), 1), &*block(n));
    }
}

fn a_request_over_a_segments_end_is_whole<M: ConformanceMedium>(medium: &mut M) {
    let mut device = medium.device();
    let geometry = device.geometry();
    for (tag, edge) in
        (1..).zip([geometry.meta_bytes, geometry.segment_offset(1), geometry.segment_offset(3)])
    {
        good(one(&mut device, IoRequest::write_durable(tag, edge - 4096, blocks(tag, 3))));
        assert_eq!(&*read(&mut device, edge - 4096, 3), &*blocks(tag, 3));
    }
    // The part beyond the edge exists, the part before it does not.
    let edge = geometry.segment_offset(3);
    let both = read(&mut device, edge - 8192, 2);
    assert!(both[..4096].iter().all(|&byte| byte == 0));
    assert_eq!(&both[4096..], &blocks(3, 3)[..4096]);
}

fn a_prepared_segment_takes_durable_writes<M: ConformanceMedium>(medium: &mut M) {
    let mut device = medium.device();
    let Geometry { segment_bytes, .. } = device.geometry();
    let base = device.geometry().segment_offset(2);
    // Beside the preparation other requests go on.
    let mut requests = vec![
        IoRequest { token: 1, kind: IoKind::Prepare { len: 2 * segment_bytes }, offset: base, buffer: None },
        IoRequest::write_durable(2, 0, block(2)),
    ];
    device.submit(&mut requests);
    let mut completions = Vec::new();
    device.complete(Wait::All, &mut completions);
    assert!(completions.len() == 2 && completions.iter().all(|done| done.result.is_ok()), "{completions:?}");
    assert!(read(&mut device, base + segment_bytes, 2).iter().all(|&byte| byte == 0), "never written before");
    good(one(&mut device, IoRequest::write_durable(4, base + 4096, block(4))));
    good(one(&mut device, IoRequest::write_durable(5, base + segment_bytes, block(5))));
    assert_eq!(&*read(&mut device, base + 4096, 1), &*block(4));
    assert_eq!(&*read(&mut device, base + segment_bytes, 1), &*block(5));
    assert_eq!(range(&mut device, IoKind::Prepare { len: 4096 }, base), Ok(()), "a part of a segment too");
    assert_eq!(&*read(&mut device, base + 4096, 1), &*block(4), "its neighbours stay");
}

fn a_discarded_segment_keeps_its_neighbours<M: ConformanceMedium>(medium: &mut M) {
    let mut device = medium.device();
    let Geometry { segment_bytes, .. } = device.geometry();
    let offset = |segment| device_offset(segment_bytes, segment);
    let base = device.geometry().segment_offset(0);
    for segment in 0..4 {
        good(one(&mut device, IoRequest::write(segment, base + offset(segment), block(segment))));
    }
    assert_eq!(range(&mut device, IoKind::Discard { len: segment_bytes }, base + offset(1)), Ok(()));
    assert_eq!(range(&mut device, IoKind::Discard { len: 4096 }, base + offset(2)), Ok(()));
    for segment in [1, 2] {
        let now = read(&mut device, base + offset(segment), 1);
        assert!(now.iter().all(|&byte| byte == 0) || *now == *block(segment), "zeros or what it was");
    }
    for segment in [0, 3] {
        assert_eq!(&*read(&mut device, base + offset(segment), 1), &*block(segment));
    }
    for segment in [1, 2] {
        good(one(&mut device, IoRequest::write_durable(1, base + offset(segment), block(50 + segment))));
        assert_eq!(&*read(&mut device, base + offset(segment), 1), &*block(50 + segment), "used again");
    }
    let twice = range(&mut device, IoKind::Discard { len: segment_bytes }, base + offset(1));
    assert_eq!(
        twice.and(range(&mut device, IoKind::Discard { len: segment_bytes }, base + offset(1))),
        Ok(())
    );
}

fn device_offset(segment_bytes: u64, segment: u64) -> u64 {
    segment_bytes * segment
}

fn durable_bytes_survive_reopening<M: ConformanceMedium>(medium: &mut M) {
    let mut device = medium.device();
    let geometry = device.geometry();
    good(one(&mut device, IoRequest::write(1, 0, block(1))));
    good(one(&mut device, IoRequest::write(2, geometry.segment_offset(2), block(2))));
    good(one(&mut device, IoRequest::flush(3)));
    good(one(&mut device, IoRequest::write_durable(4, geometry.segment_offset(3), block(4))));
    drop(device);
    medium.reopen();
    let mut device = medium.device();
    assert_eq!(device.geometry(), geometry);
    assert_eq!(&*read(&mut device, 0, 1), &*block(1));
    assert_eq!(&*read(&mut device, geometry.segment_offset(2), 1), &*block(2));
    assert_eq!(&*read(&mut device, geometry.segment_offset(3), 1), &*block(4));
    assert!(read(&mut device, geometry.segment_offset(1), 1).iter().all(|&byte| byte == 0));
    good(one(&mut device, IoRequest::flush(5)));
}

fn two_handles_see_one_medium<M: ConformanceMedium>(medium: &mut M) {
    let (mut first, mut second) = (medium.device(), medium.device());
    let Geometry { segment_bytes, .. } = first.geometry();
    let base = first.geometry().segment_offset(1);
    good(one(&mut first, IoRequest::write(1, base, block(1))));
    assert_eq!(&*read(&mut second, base, 1), &*block(1));
    good(one(&mut second, IoRequest::flush(2)));
    assert_eq!(range(&mut second, IoKind::Discard { len: segment_bytes }, base), Ok(()));
    good(one(&mut second, IoRequest::write(3, base, block(3))));
    // The first handle must not hold on to what the second has given back.
    assert_eq!(&*read(&mut first, base, 1), &*block(3));
    good(one(&mut first, IoRequest::write(4, base + 4096, block(4))));
    assert_eq!(&*read(&mut second, base + 4096, 1), &*block(4));
}

fn random_requests_match_a_plain_map<M: ConformanceMedium>(medium: &mut M) {
    const SEED: u64 = 0x7157;
    let mut random = tierstone_base::SeededRandom::new(SEED);
    let mut device = medium.device();
    let geometry = device.geometry();
    let spans: Vec<u64> = std::iter::once(0).chain((0..4).map(|n| geometry.segment_offset(n))).collect();
    let mut model: BTreeMap<u64, u64> = BTreeMap::new();
    for round in 0..40 {
        // Places of one round differ, because requests in flight have no order.
        let mut places: Vec<u64> = spans
            .iter()
            .flat_map(|&span| (0..if span == 0 { 2 } else { 16 }).map(move |n| span + n * 4096))
            .filter(|_| random.chance(0.4))
            .collect();
        places.sort_by_cached_key(|_| random.next_u64());
        let mut requests = Vec::new();
        for &place in &places {
            let tag = 1 + random.below(1 << 20);
            match random.below(4) {
                0 => requests.push(IoRequest::write(place, place, block(tag))),
                1 => requests.push(IoRequest::write_durable(place, place, block(tag))),
                _ => requests.push(IoRequest::read(place, place, block(0))),
            }
            if requests.last().is_some_and(|request| request.kind != IoKind::Read) {
                model.insert(place, tag);
            }
        }
        for (place, done) in perform(&mut device, requests) {
            let read = done.kind == IoKind::Read;
            let buffer = good(done);
            if read {
                let expected = model.get(&place).map_or_else(|| IoBuffer::zeroed(1), |&tag| block(tag));
                assert_eq!(buffer.as_deref(), Some(&*expected), "seed {SEED}, round {round}, at {place}");
            }
        }
    }
}
