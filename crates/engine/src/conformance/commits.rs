//! When writes become durable: visible before, whole over several engines, over changes of the mode.

use crate::batch::BatchTicket;
use crate::contract::{Commit, Durability, Engine, Write, WriteKind, WriteReceipt};
use crate::harness::Harness;
use std::sync::Arc;
use tierstone_base::{ErrorKind, KeyspaceId, Seq};
use tierstone_media::{BlockDevice, Wait};

/// An interval in which nobody waits for a group.
const ENDLESS: Durability = Durability::Group { interval_ms: 3_600_000 };
/// Turns in which a device that is not held up does everything; 10 ms by the harness's clock.
const TURNS: u32 = 200;

/// A switch of modes names the newest write before it, and what that write was promised is kept: what was
/// acknowledged early becomes durable without waiting for the new mode's interval, and what was not goes on
/// waiting.
pub fn a_switch_of_modes_keeps_what_was_promised<E: Engine, D: BlockDevice>(mut harness: Harness<E, D>) {
    switch(&mut harness, Durability::Relaxed);
    for (mode, commit) in [
        (ENDLESS, Commit::Grouped),
        (Durability::Sync, Commit::Durable),
        (Durability::Relaxed, Commit::Relaxed),
    ] {
        let early = write(&mut harness, 1);
        assert_eq!(early.commit, Commit::Relaxed);
        let switched = switch(&mut harness, mode);
        assert!(switched >= early.seq, "{mode:?}: the switch names {switched}, not {early:?}");
        assert_eq!(write(&mut harness, 2).commit, commit, "{mode:?}");
        if mode != Durability::Relaxed {
            turns(&mut harness, 0);
            let durable = harness.engine.decided_seq();
            assert!(durable >= switched, "{mode:?}: {durable} is durable, acknowledged was {switched}");
        }
        switch(&mut harness, Durability::Relaxed);
    }
    switch(&mut harness, ENDLESS);
    let waiting = write(&mut harness, 3);
    switch(&mut harness, Durability::Relaxed);
    assert!(harness.engine.durable_seq() < waiting.seq, "a switch makes nothing durable by itself");
    assert!(harness.sync().is_ok() && harness.engine.decided_seq() >= waiting.seq);
}

/// What was acknowledged early is durable within the bound that [`Durability::Relaxed`] states.
pub fn a_relaxed_write_is_durable_within_its_bound<E: Engine, D: BlockDevice>(mut harness: Harness<E, D>) {
    switch(&mut harness, Durability::Relaxed);
    let early = write(&mut harness, 1);
    turns(&mut harness, 900_000 / u64::from(TURNS));
    assert!(harness.engine.decided_seq() >= early.seq, "not durable after 0.9 s");
}

/// While the device is further behind than the bound, no write is acknowledged before it is durable.
pub fn a_relaxed_write_waits_for_a_device_that_is_behind<E: Engine, D: BlockDevice>(
    mut harness: Harness<E, D>,
) {
    switch(&mut harness, Durability::Relaxed);
    let early = write(&mut harness, 1);
    for number in 2..20 {
        // The engine goes on; the device does nothing.
        harness.now.monotonic_us += Durability::RELAXED_BOUND_MS * 1_000 / 10;
        harness.engine.step(harness.now, &mut Vec::new(), &mut Vec::new());
        let commit = write(&mut harness, number).commit;
        // Near the bound either is right.
        if !(10..=12).contains(&number) {
            let is_behind = number > 12 && harness.engine.durable_seq() < early.seq;
            assert_eq!(commit == Commit::Relaxed, !is_behind, "{number}: {commit:?}");
        }
    }
    turns(&mut harness, 0);
    assert_eq!(write(&mut harness, 20).commit, Commit::Relaxed, "the device has caught up");
}

fn switch<E: Engine, D: BlockDevice>(harness: &mut Harness<E, D>, mode: Durability) -> u64 {
    harness.engine.set_durability(harness.now, mode)
}

/// Turns that take `each_us` longer than the harness's own time.
fn turns<E: Engine, D: BlockDevice>(harness: &mut Harness<E, D>, each_us: u64) {
    for _ in 0..TURNS {
        harness.now.monotonic_us += each_us;
        harness.turn(Wait::All);
    }
}

/// A write that asks the engine for nothing but its receipt.
fn write<E: Engine, D: BlockDevice>(harness: &mut Harness<E, D>, number: u8) -> WriteReceipt {
    let kind = WriteKind::Put { value: &[number; 20], expiry_ms: 0, kind: Default::default() };
    let name = [number];
    let write = Write { key: harness.key(KeyspaceId(1), &name), kind };
    for _ in 0..TURNS {
        match harness.engine.write(harness.now, &[write]) {
            Ok(receipt) => return receipt,
            Err(error) if error.kind() == ErrorKind::Retry => harness.turn(Wait::All),
            Err(error) => panic!("write: {error}"),
        }
    }
    panic!("the engine stayed throttled");
}

/// A write is visible at once and durable only later, and the sequence says which.
pub fn writes_are_visible_before_they_are_durable<E: Engine, D: BlockDevice>(mut harness: Harness<E, D>) {
    let Ok(seq) = harness.put(KeyspaceId(1), b"key", b"value") else { panic!("put failed") };
    assert!(harness.engine.durable_seq() < seq, "durable before any step");
    assert!(matches!(harness.get(KeyspaceId(1), b"key"), Ok(Some(_))));
    if let Err(error) = harness.sync() {
        panic!("sync: {error}");
    }
    assert!(harness.engine.durable_seq() >= seq);
}

/// A batch over two engines (of one store, where it matters) is decided when both parts are durable, and
/// nothing that follows the part on either engine is decided before it.
pub fn a_batch_over_two_engines_is_decided_when_both_parts_are_durable<E: Engine, D: BlockDevice>(
    mut first: Harness<E, D>,
    mut second: Harness<E, D>,
) {
    let batch = BatchTicket::new(1, 2);
    let put = |value: &'static [u8]| WriteKind::Put { value, expiry_ms: 0, kind: Default::default() };
    let parts = [&mut first, &mut second].map(|harness| {
        let key = harness.key(KeyspaceId(1), b"key");
        let absent = harness.key(KeyspaceId(1), b"absent");
        let writes = [Write { key: absent, kind: WriteKind::Delete }, Write { key, kind: put(b"value") }];
        write_part(harness, &writes, &batch)
    });
    assert!(first.write_part(&[], &batch).is_err(), "a part without writes is refused");
    let Ok(later) = first.put(KeyspaceId(1), b"later", b"value") else { panic!("put failed") };
    if let Err(error) = first.sync() {
        panic!("sync: {error}");
    }
    assert!(first.engine.durable_seq() >= later && !batch.is_decided());
    assert!(first.engine.decided_seq() < parts[0], "decided although a part is missing");
    assert!(matches!(first.get(KeyspaceId(1), b"key"), Ok(Some(_))), "a part is visible at once");
    if let Err(error) = second.sync() {
        panic!("sync: {error}");
    }
    assert!(batch.is_decided() && second.engine.decided_seq() >= parts[1]);
    assert!(first.engine.decided_seq() >= later, "what follows a decided part is decided with it");
}

/// A batch that one engine refused is taken back on the other, and what follows is decided.
pub fn a_part_of_a_refused_batch_is_taken_back<E: Engine, D: BlockDevice>(mut harness: Harness<E, D>) {
    let batch = BatchTicket::new(7, 2);
    let key = harness.key(KeyspaceId(1), b"key");
    let kind = WriteKind::Put { value: b"value", expiry_ms: 0, kind: Default::default() };
    let part = write_part(&mut harness, &[Write { key, kind }], &batch);
    if let Err(error) = harness.sync() {
        panic!("sync: {error}");
    }
    assert!(harness.engine.decided_seq() < part);
    let undo = [Write { key, kind: WriteKind::Delete }];
    if let Err(error) = harness.engine.undo_part(harness.now, &undo, &batch) {
        panic!("undo_part: {error}");
    }
    if let Err(error) = harness.sync() {
        panic!("sync: {error}");
    }
    assert_eq!(harness.engine.decided_seq(), harness.engine.applied_seq());
    assert!(matches!(harness.get(KeyspaceId(1), b"key"), Ok(None)));
}

/// A part, when the engine would take it: it may have to read first what it changes.
fn write_part<E: Engine, D: BlockDevice>(
    harness: &mut Harness<E, D>,
    writes: &[Write<'_>],
    batch: &Arc<BatchTicket>,
) -> Seq {
    for _ in 0..TURNS {
        match harness.engine.admit(harness.now, writes) {
            Ok(()) => break,
            Err(error) if error.kind() == ErrorKind::Retry => harness.turn(Wait::All),
            Err(error) => panic!("admit: {error}"),
        }
    }
    match harness.write_part(writes, batch) {
        Ok(seq) => seq,
        Err(error) => panic!("write_part of what was admitted: {error}"),
    }
}
