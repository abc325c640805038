//! What completions say of their cost: nothing is missing, and nothing is counted twice.

use crate::contract::{
    Commit, Cost, Durability, Engine, EngineStatistics, Event, IndexKind, RangeRequest, ScanRequest, Write,
    WriteKind,
};
use crate::harness::Harness;
use std::ops::Bound;
use tierstone_base::{CountingClock, ErrorKind, KeyspaceId, Position, Token};
use tierstone_media::{BlockDevice, Wait};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
const KEYS: u64 = 400;
/// Turns after which nothing of what went before is left to be done.
const TURNS: u32 = 2_000;

/// Receipts name the guarantee of their mode and the bytes of their records. Answers of reads name the device's
/// reads made for them: together they are all that the device was asked for. Processor time is counted from the
/// moment there is a clock, and what answers, receipts and the background were told is all there was. The
/// keyspace is to have an order; `holds_all`: the engine never has to read.
pub fn completions_tell_their_cost<E: Engine, D: BlockDevice>(mut harness: Harness<E, D>, holds_all: bool) {
    harness.engine.create_keyspace(KEYSPACE, IndexKind::Ordered);
    assert_eq!(write(&mut harness, 0).0.cpu_ns, 0, "there is no clock");
    harness.engine.set_cpu_clock(Box::new(CountingClock::new(4 * KEYS)));
    let before = harness.engine.statistics();
    let mut told = Cost::default();
    for (mode, commit) in [
        (Durability::Relaxed, Commit::Relaxed),
        (Durability::Group { interval_ms: 5 }, Commit::Grouped),
        (Durability::Sync, Commit::Durable),
    ] {
        harness.engine.set_durability(harness.now, mode);
        let (cost, given) = write(&mut harness, 1);
        assert_eq!(given, commit, "{mode:?}");
        assert!(cost.cpu_ns > 0 && (cost.reads, cost.writes) == (0, 0), "{mode:?}: {cost:?}");
        told += cost;
    }
    for number in 0..KEYS {
        told += write(&mut harness, number).0;
    }
    assert!(harness.sync().is_ok());
    harness.settle(TURNS);
    let written = harness.engine.statistics();
    assert_eq!(told.bytes_written, written.record_bytes_written - before.record_bytes_written);
    // What a refused write has read is no receipt's.
    assert_time_told(&before, &written, told);
    reads_tell(&mut harness, holds_all);
}

/// What the answers of all kinds of reads say is what the engine says.
fn reads_tell<E: Engine, D: BlockDevice>(harness: &mut Harness<E, D>, holds_all: bool) {
    let before = harness.engine.statistics();
    let mut told = Cost::default();
    let names: Vec<[u8; 8]> = (0..KEYS).map(u64::to_be_bytes).collect();
    // Each key twice: only one of the two pays for a read of the device.
    let keys: Vec<_> =
        names.iter().chain(&names).map(|name| (harness.token(), harness.key(KEYSPACE, name))).collect();
    harness.engine.fetch(harness.now, &keys);
    for &(token, _) in &keys {
        told += answer(harness, token);
        harness.engine.release(token);
    }
    let fetched = harness.engine.statistics();
    assert_all_told(&before, &fetched, told);
    let read = fetched.device - before.device;
    assert_eq!(read.reads == 0, holds_all, "{read:?}: the engine holds more than it should for this check");
    let Ok(snapshot) = harness.engine.snapshot(harness.now) else { panic!("no snapshot") };
    for shown in [None, Some(snapshot)] {
        let token = harness.token();
        let (cursor, count) = (Position(0), KEYS as u32);
        harness
            .engine
            .scan(harness.now, ScanRequest { token, keyspace: KEYSPACE, cursor, count, snapshot: shown });
        told += answer(harness, token);
        let token = harness.token();
        let request = RangeRequest {
            token,
            keyspace: KEYSPACE,
            from: Bound::Unbounded,
            to: Bound::Unbounded,
            limit: KEYS as u32,
            direction: Default::default(),
            snapshot: shown,
        };
        harness.engine.range(harness.now, request);
        told += answer(harness, token);
    }
    let keys: Vec<_> = names.iter().map(|name| (harness.token(), harness.key(KEYSPACE, name))).collect();
    harness.engine.read_at(harness.now, snapshot, &keys);
    for &(token, _) in &keys {
        told += answer(harness, token);
    }
    assert_all_told(&before, &harness.engine.statistics(), told);
}

/// That answers and receipts (`told`) and the background make up all processor time.
fn assert_time_told(before: &EngineStatistics, after: &EngineStatistics, told: Cost) {
    let spent = after.device - before.device;
    let background_ns = after.background_cpu_ns - before.background_cpu_ns;
    assert_eq!(told.cpu_ns + background_ns, spent.cpu_ns, "{told:?}, {spent:?}");
}

/// The same, and all reads.
fn assert_all_told(before: &EngineStatistics, after: &EngineStatistics, told: Cost) {
    assert_time_told(before, after, told);
    let spent = after.device - before.device;
    assert_eq!((told.reads, told.bytes_read), (spent.reads, spent.bytes_read), "{told:?}, {spent:?}");
}

/// The cost of the answer to `token`.
fn answer<E: Engine, D: BlockDevice>(harness: &mut Harness<E, D>, token: Token) -> Cost {
    let Ok(mut event) = harness.wait_event(token) else { panic!("no answer to {token}") };
    if let Event::Scanned { error: Some(error), .. } | Event::Ranged { error: Some(error), .. } = &event {
        panic!("{error}");
    }
    let (_, cost) = event.cost_mut();
    assert!(cost.cpu_ns > 0 && (cost.writes, cost.bytes_written) == (0, 0), "{cost:?}");
    *cost
}

/// Writes one key; what that cost, and what was promised.
fn write<E: Engine, D: BlockDevice>(harness: &mut Harness<E, D>, number: u64) -> (Cost, Commit) {
    let (name, value) = (number.to_be_bytes(), [7; 300]);
    let kind = WriteKind::Put { value: &value, expiry_ms: 0, kind: Default::default() };
    let write = Write { key: harness.key(KEYSPACE, &name), kind };
    for _ in 0..TURNS {
        match harness.engine.write(harness.now, &[write]) {
            Ok(receipt) => return (receipt.cost, receipt.commit),
            Err(error) if error.kind() == ErrorKind::Retry => harness.turn(Wait::All),
            Err(error) => panic!("write: {error}"),
        }
    }
    panic!("the engine stayed throttled");
}
