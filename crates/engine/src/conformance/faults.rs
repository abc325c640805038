//! The suite over faults of the device: a failed flush, a failed read, rot, want of space.
//!
//! What an engine cannot have is a stated capability ([`FaultSettings`]): one that lives in memory has no device
//! to fail, one that takes all its space when it is made is never refused more.

use crate::contract::{Engine, Health};
use crate::harness::Harness;
use tierstone_base::{ErrorKind, KeyspaceId, Result};
use tierstone_crash::Choices;
use tierstone_media::Wait;
use tierstone_media::sim::{Fault, FaultEffect, FaultTarget, FaultWhen, SimDevice, SimMedium, SimSettings};

/// What a check runs on, and what the engine has. Plain data.
#[derive(Clone, Debug)]
pub struct FaultSettings {
    /// The device.
    pub sim: SimSettings,
    /// Keys that fill more than the engine keeps in memory.
    pub keys: u32,
    /// The length of their values in bytes.
    pub value_bytes: usize,
    /// Each piece that reads return is verified, and what is damaged is counted.
    pub notices_rot: bool,
    /// The space that it takes on the device follows what it holds.
    pub takes_space: bool,
}

/// Opens the engine on what a medium holds.
pub type OpenOne<'a, E> = &'a dyn Fn(SimDevice, &SimMedium) -> Result<Harness<E, SimDevice>>;

type Store<E> = Harness<E, SimDevice>;

const KEYSPACE: KeyspaceId = KeyspaceId(2);
/// Reads that fail, one after the other; some may be the engine's own.
const READ_FAULTS: u64 = 6;

fn name(key: u32) -> Vec<u8> {
    format!("key {key}").into_bytes()
}

/// Bytes of which any eight say whose they are.
fn value(key: u32, len: usize) -> Vec<u8> {
    let word = |at: usize| (u64::from(key) << 32 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..len).map(|at| word(at / 8).to_le_bytes()[at % 8]).collect()
}

fn opened<E: Engine>(device: SimDevice, medium: &SimMedium, open: OpenOne<'_, E>) -> Store<E> {
    match open(device, medium) {
        Ok(store) => store,
        Err(error) => panic!("the engine does not open: {error}"),
    }
}

#[track_caller]
fn well<T>(result: Result<T>, what: &str) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// A medium on which the keys are, durably, and the engine that has just been opened on it.
fn filled<E: Engine>(settings: &FaultSettings, open: OpenOne<'_, E>) -> (SimMedium, Store<E>) {
    let medium = SimMedium::new(settings.sim.clone(), &Choices::quiet());
    let mut store = opened(medium.device(), &medium, open);
    for key in 0..settings.keys {
        well(store.put(KEYSPACE, &name(key), &value(key, settings.value_bytes)), "a put");
        well(store.sync(), "a sync");
    }
    store.settle(1_000);
    drop(store);
    let store = opened(medium.power_on_after_loss(), &medium, open);
    (medium, store)
}

fn get<E: Engine>(store: &mut Store<E>, key: u32) -> Result<Option<Vec<u8>>> {
    store.get(KEYSPACE, &name(key)).map(|found| found.map(|(_, value)| value))
}

/// Gets every key; gives those whose get is an error. No answer may be wrong.
fn unreadable<E: Engine>(settings: &FaultSettings, store: &mut Store<E>) -> Vec<(u32, ErrorKind)> {
    let mut errors = Vec::new();
    for key in 0..settings.keys {
        match get(store, key) {
            Ok(found) => {
                let expected = Some(value(key, settings.value_bytes));
                assert!(found == expected, "key {key} has another value than was written, or none");
            }
            Err(error) => errors.push((key, error.kind())),
        }
    }
    errors
}

fn assert_alive<E: Engine>(store: &mut Store<E>) {
    assert!(
        matches!(store.engine.health(), Health::Good),
        "the engine has failed: {:?}",
        store.engine.health()
    );
}

/// A write or flush that fails is told to who waits for it; nothing above the durable sequence is durable ever
/// after, though the device is well again; reads go on; an opening has what was acknowledged.
pub fn a_failed_flush_ends_what_is_acknowledged<E: Engine>(settings: &FaultSettings, open: OpenOne<'_, E>) {
    let (medium, mut store) = filled(settings, open);
    let before = store.engine.durable_seq();
    medium.inject(Fault::new(FaultTarget::Durability, FaultEffect::Fail).when(FaultWhen::Nth(0)));
    well(store.put(KEYSPACE, b"lost", b"1"), "a put before the fault is met");
    let told = store.sync();
    assert!(told.is_err(), "a sync over a failed flush says that all is well");
    assert!(matches!(store.engine.health(), Health::Failed(_)), "the engine does not say that it has failed");
    medium.clear_faults();
    for _ in 0..3 {
        // Refused, or taken and never durable.
        let _ = store.put(KEYSPACE, b"after", b"2");
        store.settle(50);
        assert_eq!(store.engine.durable_seq(), before, "something became durable after a failed flush");
    }
    assert!(store.sync().is_err());
    assert!(get(&mut store, 0).is_ok(), "reads do not go on after a failed flush");
    drop(store);
    let mut store = opened(medium.power_on_after_loss(), &medium, open);
    assert_eq!(unreadable(settings, &mut store), [], "what was acknowledged");
    well(store.put(KEYSPACE, b"after", b"3"), "a put after an opening");
    well(store.sync(), "a sync after an opening");
}

/// A read that fails is an error of who asked; nobody gets a wrong answer, others are served, and so are writes.
pub fn a_failed_read_is_the_error_of_that_read<E: Engine>(settings: &FaultSettings, open: OpenOne<'_, E>) {
    let (medium, mut store) = filled(settings, open);
    let mut errors = Vec::new();
    for number in 0..READ_FAULTS {
        medium.inject(Fault::new(FaultTarget::Read, FaultEffect::Fail).when(FaultWhen::Nth(number)));
        let met = unreadable(settings, &mut store);
        assert!(met.len() < settings.keys as usize / 2, "{met:?}");
        assert_alive(&mut store);
        errors.extend(met);
        medium.clear_faults();
    }
    assert!(!errors.is_empty(), "no read met a fault: the check shows nothing");
    let healthy = (0..settings.keys).find(|key| errors.iter().all(|(bad, _)| bad != key)).unwrap_or(0);
    well(store.put(KEYSPACE, &name(healthy), &value(healthy, settings.value_bytes)), "a put beside it");
    well(store.sync(), "a sync beside it");
    drop(store);
    let mut store = opened(medium.power_on_after_loss(), &medium, open);
    assert_eq!(unreadable(settings, &mut store), [], "after an opening");
}

/// Where a device gives other bytes than were written, the read says so, it is counted, and the rest is served.
pub fn rot_is_an_error_and_is_counted<E: Engine>(settings: &FaultSettings, open: OpenOne<'_, E>) {
    if !settings.notices_rot {
        return;
    }
    let (medium, store) = filled(settings, open);
    drop(store);
    let rotten = settings.keys / 2;
    let needle = value(rotten, settings.value_bytes);
    let needle = &needle[..needle.len().min(64)];
    let bytes = medium.peek(0, settings.sim.geometry.end() as usize);
    let places: Vec<usize> =
        bytes.windows(needle.len()).enumerate().filter(|(_, at)| *at == needle).map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "the value is not on the device as it is");
    places.iter().for_each(|place| medium.flip_bit(*place as u64 + 5, 2));
    let mut store = opened(medium.power_on_after_loss(), &medium, open);
    let counted = store.engine.statistics().corrupt_reads;
    let errors = unreadable(settings, &mut store);
    assert!(errors.contains(&(rotten, ErrorKind::Corrupt)), "{errors:?}");
    assert!(errors.len() < settings.keys as usize / 2, "{errors:?}");
    assert!(store.engine.statistics().corrupt_reads > counted, "rot was not counted");
    assert_alive(&mut store);
}

/// A full device refuses writes with the cause; reads and deletes go on; what they give back is taken again.
pub fn a_full_device_refuses_writes_until_there_is_space<E: Engine>(
    settings: &FaultSettings,
    open: OpenOne<'_, E>,
) {
    if !settings.takes_space {
        return;
    }
    let medium = SimMedium::new(settings.sim.clone(), &Choices::quiet());
    let mut store = opened(medium.device(), &medium, open);
    let mut count = 0;
    let refused = loop {
        match store.put(KEYSPACE, &name(count), &value(count, settings.value_bytes)) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
        if count % 4 == 0 {
            well(store.sync(), "a sync");
        }
        assert!(count < 1_000_000, "the device is never full");
    };
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    assert!(refused.to_string().contains("full") || refused.to_string().contains("space"), "{refused}");
    assert_alive(&mut store);
    well(store.sync(), "a sync of a full store");
    let filled = FaultSettings { keys: count, ..settings.clone() };
    assert_eq!(unreadable(&filled, &mut store), [], "a full store");
    for key in 0..count / 2 {
        well(store.delete(KEYSPACE, &name(key)), "a delete in a full store");
        if key % 4 == 0 {
            well(store.sync(), "a sync between deletes");
        }
    }
    well(store.sync(), "a sync of deletes");
    store.settle(2_000);
    for key in 0..count / 8 {
        well(store.put(KEYSPACE, &name(key), &value(key, settings.value_bytes)), "a put after deletes");
        store.turn(Wait::Poll);
    }
    well(store.sync(), "a sync after deletes");
    drop(store);
    let mut store = opened(medium.power_on_after_loss(), &medium, open);
    for key in 0..count {
        let is_there = key < count / 8 || key >= count / 2;
        let expected = is_there.then(|| value(key, settings.value_bytes));
        assert!(well(get(&mut store, key), "a get") == expected, "key {key}, expected there: {is_there}");
    }
}

/// All of them.
pub fn all<E: Engine>(settings: &FaultSettings, open: OpenOne<'_, E>) {
    a_failed_flush_ends_what_is_acknowledged(settings, open);
    a_failed_read_is_the_error_of_that_read(settings, open);
    rot_is_an_error_and_is_counted(settings, open);
    a_full_device_refuses_writes_until_there_is_space(settings, open);
}
