use super::*;
use crate::simulated::{KEYSPACE, lane, medium};
use tierstone_base::Position;
use tierstone_engine::{Durability, ValueKind, WriteKind};
use tierstone_media::SimDevice;
use tierstone_media::sim::{Fault, FaultEffect, FaultTarget, FaultWhen};

fn key<'k>(lane: &Lane<SimDevice>, bytes: &'k [u8]) -> Key<'k> {
    Key { keyspace: KEYSPACE, position: lane.engine.hasher().position(bytes), bytes }
}

fn put(lane: &mut Lane<SimDevice>, bytes: &[u8], value: &[u8]) -> Result<()> {
    let key = key(lane, bytes);
    let kind = WriteKind::Put { value, expiry_ms: 0, kind: ValueKind::STRING };
    let receipt = lane.write(&[Write { key, kind }])?;
    lane.commit(receipt)
}

fn get(lane: &mut Lane<SimDevice>, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
    let key = key(lane, bytes);
    lane.get_with(key, <[u8]>::to_vec)
}

#[test]
fn a_lone_durable_put_is_one_device_write_and_no_read() {
    let medium = medium(32);
    let mut lane = lane(&medium, 1 << 20, Durability::Sync);
    put(&mut lane, b"first", b"opens the segment").unwrap();
    let before = lane.engine.statistics().device;
    for number in 0..10u8 {
        put(&mut lane, &[number], b"value").unwrap();
    }
    let after = lane.engine.statistics().device;
    assert_eq!((after.writes - before.writes, after.reads - before.reads), (10, 0));
    assert_eq!(lane.engine.durable_seq(), lane.engine.applied_seq());
}

#[test]
fn a_put_does_not_wait_for_company_that_cannot_come() {
    let medium = medium(32);
    let mut lane = lane(&medium, 1 << 20, Durability::Group { interval_ms: 3_600_000 });
    put(&mut lane, b"key", b"value").unwrap();
    assert_eq!(lane.engine.durable_seq(), lane.engine.applied_seq());
}

#[test]
fn that_a_key_has_expired_is_durable_before_it_is_told() {
    let medium = medium(32);
    let mut lane = lane(&medium, 1 << 20, Durability::Sync);
    for (number, name) in (1u64..).zip([&b"asked"[..], b"asked with others", b"walked", b"deleted"]) {
        let key = key(&lane, name);
        let kind = WriteKind::Put { value: b"value", expiry_ms: number, kind: ValueKind::STRING };
        let receipt = lane.write(&[Write { key, kind }]).unwrap();
        lane.commit(receipt).unwrap();
    }
    let mut told = 0;
    let mut is_durable = |lane: &mut Lane<SimDevice>| {
        let seq = lane.engine.past_gate();
        assert!(seq > told && lane.engine.durable_seq() >= seq, "{seq} after {told}");
        told = seq;
    };
    assert_eq!(get(&mut lane, b"asked").unwrap(), None);
    is_durable(&mut lane);
    let keys = [key(&lane, b"asked with others")];
    let mut take = |_: usize, _: Result<&[u8]>| panic!("it has expired");
    let fetching = lane.begin_many(keys.into_iter().enumerate(), &mut take).unwrap();
    lane.finish_many(fetching, &mut take).unwrap();
    is_durable(&mut lane);
    let late = key(&lane, b"deleted");
    assert!(lane.delete(late).unwrap().is_none());
    is_durable(&mut lane);
    assert!(lane.scan_page(KEYSPACE, Position(0), 10, None).unwrap().entries.is_empty());
    assert_eq!(lane.engine.past_gate(), told, "nothing new was told");
}

#[test]
fn after_a_failed_write_every_call_says_so() {
    let medium = medium(32);
    let mut lane = lane(&medium, 1 << 20, Durability::Sync);
    put(&mut lane, b"kept", b"1").unwrap();
    medium
        .inject(Fault { when: FaultWhen::Nth(0), ..Fault::new(FaultTarget::Durability, FaultEffect::Fail) });
    assert_eq!(put(&mut lane, b"lost", b"2").unwrap_err().kind(), ErrorKind::DeviceFailed);
    medium.clear_faults();
    let failed = |result: Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::DeviceFailed);
    failed(put(&mut lane, b"kept", b"3"));
    failed(get(&mut lane, b"kept").map(drop));
    let kept = key(&lane, b"kept");
    failed(lane.delete(kept).map(drop));
    failed(lane.begin_many(std::iter::once((0, kept)), &mut |_, _| {}).map(drop));
    failed(lane.scan_page(KEYSPACE, Position(0), 10, None).map(drop));
    failed(lane.start_sync().map(drop));
    failed(lane.shut());
    drop(lane);
    let mut lane = crate::simulated::lane(&medium, 1 << 20, Durability::Sync);
    assert_eq!(get(&mut lane, b"kept").unwrap().unwrap(), b"1");
}

#[test]
fn many_records_are_fetched_by_one_submission() {
    let medium = medium(32);
    let mut lane = lane(&medium, 1 << 20, Durability::Sync);
    let names: Vec<String> = (0..40).map(|number| format!("key:{number}")).collect();
    for name in &names {
        put(&mut lane, name.as_bytes(), &[7; 100]).unwrap();
    }
    lane.shut().unwrap();
    drop(lane);
    let mut lane = crate::simulated::lane(&medium, 1 << 20, Durability::Sync);
    let hasher = lane.engine.hasher();
    let keys = names
        .iter()
        .chain([&"missing".to_string()])
        .map(|name| name.clone().into_bytes())
        .collect::<Vec<_>>();
    let keys = keys
        .iter()
        .map(|bytes| Key { keyspace: KEYSPACE, position: hasher.position(bytes), bytes })
        .enumerate();
    let mut found = Vec::new();
    let mut take = |place: usize, value: Result<&[u8]>| {
        assert_eq!(value.unwrap(), [7; 100]);
        found.push(place);
    };
    let fetching = lane.begin_many(keys, &mut take).unwrap();
    assert_eq!(lane.device.in_flight(), 40, "all reads are under way before the first is waited for");
    lane.finish_many(fetching, &mut take).unwrap();
    found.sort_unstable();
    assert_eq!(found, (0..40).collect::<Vec<_>>());
}

#[test]
fn a_damaged_record_is_an_error_for_its_key_only() {
    let medium = medium(32);
    let mut lane = lane(&medium, 1 << 20, Durability::Sync);
    put(&mut lane, b"damaged", &[0xab; 900]).unwrap();
    put(&mut lane, b"whole", b"value").unwrap();
    lane.shut().unwrap();
    let end = medium.settings().geometry.end() as usize;
    let bytes = medium.peek(0, end);
    let place = bytes.windows(900).position(|window| window == [0xab; 900]).unwrap();
    medium.flip_bit(place as u64 + 450, 3);
    drop(lane);
    let mut lane = crate::simulated::lane(&medium, 1 << 20, Durability::Sync);
    assert_eq!(get(&mut lane, b"damaged").unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(get(&mut lane, b"whole").unwrap().unwrap(), b"value");
    put(&mut lane, b"damaged", b"again").unwrap();
    assert_eq!(get(&mut lane, b"damaged").unwrap().unwrap(), b"again");
}

#[test]
fn a_device_without_space_is_told_after_some_time_and_writes_resume_when_there_is_some() {
    let medium = medium(32);
    let mut lane = lane(&medium, 1 << 20, Durability::Sync);
    put(&mut lane, b"before", b"1").unwrap();
    medium.set_capacity_segments(medium.taken_segments() as u32);
    let mut refused = None;
    let mut put_last = 0;
    for number in 0..200u8 {
        if let Err(error) = put(&mut lane, &[number], &[number; 8_000]) {
            refused = Some(error);
            put_last = number;
            break;
        }
    }
    assert_eq!(refused.unwrap().kind(), ErrorKind::NoSpace);
    assert_eq!(get(&mut lane, b"before").unwrap().unwrap(), b"1");
    medium.set_capacity_segments(32);
    let target = lane.start_sync().unwrap();
    lane.make_durable(target).unwrap();
    put(&mut lane, b"after", b"2").unwrap();
    assert_eq!(get(&mut lane, &[put_last]).unwrap().unwrap(), [put_last; 8_000]);
}

#[test]
fn large_values_of_the_server_are_neither_read_nor_written() {
    let medium = medium(32);
    let mut lane = lane(&medium, 1 << 20, Durability::Sync);
    let owner = key(&lane, b"large");
    let chunk = Key { keyspace: KEYSPACE.chunks(), ..key(&lane, b"{xx}chunk") };
    let value = |kind| WriteKind::Put { value: b"bytes", expiry_ms: 0, kind };
    let writes = [
        Write { key: chunk, kind: value(ValueKind::STRING) },
        Write { key: owner, kind: value(ValueKind::CHUNKED) },
    ];
    let receipt = lane.write(&writes).unwrap();
    lane.commit(receipt).unwrap();
    assert_eq!(get(&mut lane, b"large").unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(put(&mut lane, b"large", b"small").unwrap_err().kind(), ErrorKind::Unsupported);
    let delete = Write { key: owner, kind: WriteKind::Delete };
    assert_eq!(lane.write(&[delete]).unwrap_err().kind(), ErrorKind::Unsupported);
    put(&mut lane, b"other", b"small").unwrap();
    assert_eq!(get(&mut lane, b"other").unwrap().unwrap(), b"small");
}

#[test]
fn a_record_is_let_go_where_its_reader_panics() {
    let medium = medium(32);
    let mut one = lane(&medium, 1 << 20, Durability::Sync);
    for number in 0..200u8 {
        put(&mut one, &[number], &[number; 8_000]).unwrap();
    }
    one.shut().unwrap();
    drop(one);
    let mut lane = crate::simulated::lane(&medium, 1 << 20, Durability::Sync);
    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let key = key(&lane, &[7]);
        lane.get_with(key, |_| panic!("whoever reads it"))
    }));
    assert!(read.is_err());
    // Others take its place in the cache.
    for number in (0..200u8).chain(100..200) {
        if number != 7 {
            assert_eq!(get(&mut lane, &[number]).unwrap().unwrap(), [number; 8_000]);
        }
    }
    let before = lane.engine.statistics().device.reads;
    assert_eq!(get(&mut lane, &[7]).unwrap().unwrap(), [7; 8_000]);
    assert_eq!(lane.engine.statistics().device.reads, before + 1, "it was held still");
}
