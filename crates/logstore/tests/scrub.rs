//! Scrubbing: all that is sealed is read at the rate that was given, and what has rotted is found and told; what was
//! freed, torn or replaced is not blamed.

use crate::common::{
    Store, flip_bit, fresh, geometry, mutated, read, reopen, reopen_after_kill, small_settings, write,
};
use tierstone_base::{KeyspaceId, SeededRandom};
use tierstone_engine::backup::PieceKind;
use tierstone_engine::{BackupStep, Engine, ScrubDamage, ScrubStatistics};
use tierstone_logstore::OpenSettings;
use tierstone_logstore::format::superblock::SLOT_BYTES;
use tierstone_media::sim::SimMedium;
use tierstone_media::{BLOCK_BYTES, Wait};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
const SEGMENT_BYTES: u64 = 64 << 10;
const SEGMENTS: u32 = 40;
/// No read is longer here: a superblock's two slots, and a piece.
const READ_BYTES_MAX: u64 = 128 << 10;
const RATE: u64 = 1 << 20;

fn key(number: u64) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

fn filled(store: &mut Store, keys: u64) {
    for number in 0..keys {
        store.put(KEYSPACE, &key(number), &[number as u8; 700]).unwrap();
    }
    for number in (0..keys).step_by(5) {
        store.put(KEYSPACE, &key(number), &[1; 300]).unwrap();
    }
    for number in (0..keys).step_by(7) {
        store.delete(KEYSPACE, &key(number)).unwrap();
    }
    store.sync().unwrap();
}

fn scrub(store: &Store) -> ScrubStatistics {
    store.engine.statistics().scrub
}

/// A store that was closed in good order and opened: everything in it is sealed.
fn sealed(settings: &OpenSettings) -> (SimMedium, Store) {
    let (medium, mut store) = fresh(SEGMENT_BYTES, SEGMENTS, settings);
    filled(&mut store, 200);
    let mut store = reopen(store, &medium, settings);
    store.turn(Wait::Poll);
    (medium, store)
}

/// Turns until a pass more has come to its end; `between` comes before each turn. Where nothing else is to be done, time
/// goes on to the next step.
fn pass(store: &mut Store, mut between: impl FnMut(&mut Store)) -> (ScrubStatistics, Vec<String>) {
    let passes = scrub(store).passes;
    store.engine.set_scrub_rate(0);
    store.engine.set_scrub_rate(RATE);
    let mut told = Vec::new();
    for _ in 0..200_000 {
        between(store);
        store.turn(Wait::One);
        told.append(&mut store.engine.take_scrub_findings());
        if scrub(store).passes > passes {
            return (scrub(store), told);
        }
        if let Some(at_us) = store.engine.next_step_at_us() {
            store.now.monotonic_us = store.now.monotonic_us.max(at_us);
        }
    }
    panic!("the pass does not end: {:?}", scrub(store));
}

fn nothing(_: &mut Store) {}

/// Where on the device a value lies, whose bytes are found once.
fn place_of(medium: &SimMedium, value: &[u8]) -> u64 {
    let bytes = read(&mut medium.device(), 0, geometry(SEGMENT_BYTES, SEGMENTS).end() as usize);
    let mut places = bytes.windows(value.len()).enumerate().filter(|(_, window)| *window == value);
    let place = places.next().unwrap().0 as u64;
    assert!(places.next().is_none(), "the value is there twice");
    place
}

#[test]
fn a_whole_store_is_found_whole_and_each_segment_is_read_once() {
    let (_medium, mut store) = sealed(&small_settings());
    let verified = {
        store.engine.begin_verification().unwrap();
        while store.engine.verification().unwrap().is_running {
            store.turn(Wait::One);
        }
        store.engine.verification().unwrap().clone()
    };
    let (first, told) = pass(&mut store, nothing);
    assert_eq!(first.damage, ScrubDamage::default());
    assert!(told.is_empty(), "{told:?}");
    assert!(verified.segments > 3);
    assert_eq!(first.last_pass_segments, verified.segments);
    assert!(first.last_pass_bytes >= verified.bytes, "{first:?}, {verified:?}");
    assert!(
        first.last_pass_bytes
            <= verified.bytes + (verified.segments + 3) * 5 * BLOCK_BYTES as u64 + READ_BYTES_MAX
    );
    assert_eq!(first.last_pass_at_ms, store.now.wall_ms);
    let (second, _) = pass(&mut store, nothing);
    assert_eq!((second.passes, second.last_pass_segments), (2, first.last_pass_segments));
}

#[test]
fn a_segment_that_is_read_twice_is_seen_by_the_count() {
    let (_medium, mut store) = sealed(&mutated("scrub_reads_twice"));
    let (counted, _) = pass(&mut store, nothing);
    let (_medium, mut store) = sealed(&small_settings());
    assert_ne!(counted.last_pass_segments, pass(&mut store, nothing).0.last_pass_segments);
}

/// Bytes that were read beyond what the rate allows, at worst, in a second.
fn excess(settings: &OpenSettings) -> u64 {
    let (_medium, mut store) = sealed(settings);
    store.engine.set_scrub_rate(RATE / 4);
    let from_us = store.now.monotonic_us;
    let mut worst = 0;
    while store.now.monotonic_us < from_us + 1_000_000 {
        store.turn(Wait::One);
        let elapsed_us = store.now.monotonic_us - from_us;
        worst = worst.max(scrub(&store).bytes.saturating_sub(elapsed_us * (RATE / 4) / 1_000_000));
    }
    assert!(scrub(&store).bytes > RATE / 5);
    worst
}

#[test]
fn no_more_is_read_than_the_rate_allows_and_one_read() {
    let excess = excess(&small_settings());
    assert!(excess <= READ_BYTES_MAX, "{excess} bytes too many");
}

#[test]
fn a_rate_that_nobody_keeps_is_seen() {
    assert!(excess(&mutated("scrub_unpaced")) > READ_BYTES_MAX);
}

#[test]
fn the_rate_can_be_changed_and_nothing_is_read_without_one() {
    let (_medium, mut store) = sealed(&small_settings());
    for _ in 0..100 {
        store.now.monotonic_us += 3_600_000_000;
        store.turn(Wait::Poll);
    }
    assert_eq!(scrub(&store), ScrubStatistics::default());
    store.engine.set_scrub_rate(1_000);
    store.turn(Wait::One);
    store.turn(Wait::One);
    let slow = store.engine.next_step_at_us().unwrap() - store.now.monotonic_us;
    assert!(slow > 3_900_000, "4 KiB at 1,000 bytes a second take four seconds, not {slow} µs");
    let before = scrub(&store);
    assert!(before.bytes > 0 && before.rate == 1_000);
    store.engine.set_scrub_rate(1_000_000);
    let quick = store.engine.next_step_at_us().unwrap().saturating_sub(store.now.monotonic_us);
    assert!(quick < 5_000, "{quick} µs");
    store.engine.set_scrub_rate(0);
    for _ in 0..10 {
        store.now.monotonic_us += 3_600_000_000;
        store.turn(Wait::Poll);
    }
    assert_eq!(scrub(&store).bytes, before.bytes);
}

#[test]
fn passes_begin_a_minute_after_the_opening_and_once_a_day() {
    let (_medium, mut store) = fresh(SEGMENT_BYTES, SEGMENTS, &small_settings());
    store.engine.set_scrub_rate(RATE);
    store.turn(Wait::Poll);
    let opened_us = store.now.monotonic_us;
    let wait = |store: &mut Store, passes: u64| {
        for _ in 0..100_000 {
            store.turn(Wait::One);
            if scrub(store).passes == passes {
                return store.now.monotonic_us;
            }
            let at_us = store.engine.next_step_at_us().unwrap_or(0);
            store.now.monotonic_us = store.now.monotonic_us.max(at_us);
        }
        panic!("no pass: {:?}", scrub(store));
    };
    let first_us = wait(&mut store, 1);
    assert!((60_000_000..70_000_000).contains(&(first_us - opened_us)));
    let second_us = wait(&mut store, 2);
    assert!((86_390_000_000..86_410_000_000).contains(&(second_us - first_us)), "{}", second_us - first_us);
}

#[test]
fn rot_is_found_where_it_lies_and_told_with_the_key() {
    let (medium, mut store) = sealed(&small_settings());
    // Key 3 counts.
    let place = place_of(&medium, &[3; 700]);
    flip_bit(&mut medium.device(), place + 350, 3);
    let (found, told) = pass(&mut store, nothing);
    assert_eq!(found.damage, ScrubDamage { records: 1, ..ScrubDamage::default() });
    let segment = (place - geometry(SEGMENT_BYTES, SEGMENTS).meta_bytes) / SEGMENT_BYTES;
    assert!(told[0].starts_with(&format!("segment {segment}, unit ")), "{told:?}");
    assert!(told[0].contains("keyspace 1, key \"key:3\"") && told[0].contains("check --repair"), "{told:?}");
    assert_eq!(told.len(), 1);
    // Nothing was done about it: who reads the key gets an error.
    assert!(store.get(KEYSPACE, &key(3)).is_err());
    assert_eq!(store.get(KEYSPACE, &key(4)).unwrap().unwrap().1, [4; 700]);
    // It counts once, however often it is found, and no more when the key was written again.
    assert_eq!(pass(&mut store, nothing).0.damage.records, 1);
    store.put(KEYSPACE, &key(3), &[9; 700]).unwrap();
    store.sync().unwrap();
    let (again, _) = pass(&mut store, nothing);
    assert_eq!((again.damage.records, again.damage.old_records), (0, 1));
}

/// What is found when a record rots that was replaced since.
fn of_old_record(settings: &OpenSettings) -> ScrubDamage {
    let (medium, mut store) = sealed(settings);
    flip_bit(&mut medium.device(), place_of(&medium, &[5; 700]) + 1, 0);
    pass(&mut store, nothing).0.damage
}

#[test]
fn rot_in_an_old_version_is_told_apart() {
    let found = of_old_record(&small_settings());
    assert_eq!(found, ScrubDamage { old_records: 1, ..ScrubDamage::default() });
    let blamed = of_old_record(&mutated("scrub_blames_old_records"));
    assert_eq!(blamed, ScrubDamage { records: 1, ..ScrubDamage::default() });
}

#[test]
fn rot_in_padding_is_no_damage() {
    let (medium, mut store) = sealed(&small_settings());
    let geometry = geometry(SEGMENT_BYTES, SEGMENTS);
    // The gap before the summary of the first segment: what lies behind the last group.
    let mut device = medium.device();
    let bytes = read(&mut device, geometry.segment_offset(0), SEGMENT_BYTES as usize);
    let run = bytes.windows(64).rposition(|window| window.iter().all(|byte| *byte == 0)).unwrap();
    let gap = (0..run).rev().find(|&at| bytes[at..at + 64].iter().any(|byte| *byte != 0)).unwrap() + 100;
    flip_bit(&mut device, geometry.segment_offset(0) + gap as u64, 0);
    assert_eq!(pass(&mut store, nothing).0.damage, ScrubDamage::default());
}

#[test]
fn header_footer_and_summary_are_read() {
    let geometry = geometry(SEGMENT_BYTES, SEGMENTS);
    let footer = SEGMENT_BYTES - BLOCK_BYTES as u64;
    for (offset, what) in
        [(16, "header"), (footer + 30, "footer"), (footer - BLOCK_BYTES as u64 + 4, "summary")]
    {
        let (medium, mut store) = sealed(&small_settings());
        flip_bit(&mut medium.device(), geometry.segment_offset(0) + offset, 1);
        let (found, told) = pass(&mut store, nothing);
        assert_eq!(found.damage, ScrubDamage { structures: 1, ..ScrubDamage::default() }, "{what}");
        assert!(told[0].starts_with(&format!("segment 0: the {what} is damaged")), "{told:?}");
    }
}

#[test]
fn summaries_that_are_longer_than_a_read_are_gone_through() {
    let settings = small_settings();
    let (medium, mut store) = fresh(4 << 20, 12, &settings);
    for number in 0..60_000u64 {
        store.put(KEYSPACE, &number.to_le_bytes(), b"").unwrap();
    }
    store.sync().unwrap();
    let mut store = reopen(store, &medium, &settings);
    store.turn(Wait::Poll);
    let last = 20_000u64.to_le_bytes();
    let bytes = read(&mut medium.device(), 0, geometry(4 << 20, 12).end() as usize);
    // The record, not the summary, which has no keys: key and header are next to each other.
    let place = bytes.windows(8).position(|window| window == last).unwrap();
    flip_bit(&mut medium.device(), place as u64, 0);
    let (found, told) = pass(&mut store, nothing);
    assert_eq!(found.damage, ScrubDamage { records: 1, ..ScrubDamage::default() }, "{told:?}");
    assert!(found.last_pass_segments >= 1);
}

/// Whether a slot of the superblock that is torn while it is looked at, and whole afterwards, is blamed.
fn torn_slot_is_blamed(settings: &OpenSettings, is_healed: bool) -> bool {
    let (medium, mut store) = sealed(settings);
    let whole = read(&mut medium.device(), SLOT_BYTES as u64, BLOCK_BYTES);
    flip_bit(&mut medium.device(), SLOT_BYTES as u64 + 50, 1);
    let mut reads = 0;
    let (found, _) = pass(&mut store, |store| {
        let (bytes, device) = (scrub(store).bytes, &mut medium.device());
        if bytes > reads && bytes - reads == 2 * SLOT_BYTES as u64 && is_healed {
            // It has been sent: what is written now is seen by the next look.
            store.turn(Wait::All);
            write(device, SLOT_BYTES as u64, &whole);
        }
        reads = bytes;
    });
    found.damage.structures == 1
}

#[test]
fn a_superblock_is_damaged_when_it_is_so_twice() {
    assert!(torn_slot_is_blamed(&small_settings(), false));
    assert!(!torn_slot_is_blamed(&small_settings(), true));
    assert!(torn_slot_is_blamed(&mutated("scrub_believes_one_look"), true));
}

/// Passes beside writes, cleaning, snapshots and backups; gives what they blame, and segments that went meanwhile.
fn beside_others(seed: u64, settings: &OpenSettings) -> (ScrubDamage, u64) {
    let mut random = SeededRandom::new(seed);
    let (_medium, mut store) = fresh(SEGMENT_BYTES, 12, settings);
    filled(&mut store, 200);
    store.turn(Wait::Poll);
    let mut damage = ScrubDamage::default();
    let mut snapshots = Vec::new();
    for _ in 0..4 {
        store.engine.begin_backup(store.now, None).unwrap();
        let (found, told) = pass(&mut store, |store| {
            for _ in 0..random.below(12) {
                let number = random.below(260);
                match random.below(3) {
                    0 => drop(store.delete(KEYSPACE, &key(number)).unwrap()),
                    _ => drop(store.put(KEYSPACE, &key(number), &[2; 900]).unwrap()),
                }
            }
            match (random.below(40), snapshots.pop()) {
                (0..4, Some(id)) => store.engine.release_snapshot(id),
                (4, None) => snapshots.push(store.engine.snapshot(store.now).unwrap()),
                (_, kept) => snapshots.extend(kept),
            }
            drop(store.engine.take_backup());
        });
        damage = damage.max(found.damage);
        assert_eq!(told.is_empty(), found.damage == ScrubDamage::default(), "{told:?}");
        store.engine.end_backup();
    }
    (damage, scrub(&store).abandoned_segments)
}

#[test]
fn what_goes_on_beside_it_is_no_damage() {
    let mut seeds = SeededRandom::new(5);
    let mut abandoned = 0;
    for _ in 0..12 {
        let seed = seeds.next_u64();
        let (damage, freed) = beside_others(seed, &small_settings());
        assert_eq!(damage, ScrubDamage::default(), "seed {seed}");
        abandoned += freed;
    }
    println!("{abandoned} segments were freed while they were read");
    assert!(abandoned > 0, "no segment was freed while it was read: the test shows little");
}

#[test]
fn a_segment_that_was_freed_while_it_was_read_would_be_blamed() {
    let mut seeds = SeededRandom::new(5);
    let settings = mutated("scrub_trusts_freed");
    let is_caught = (0..12).any(|_| {
        let seed = seeds.next_u64();
        let run = std::panic::catch_unwind(|| beside_others(seed, &settings));
        !matches!(run, Ok((damage, _)) if damage == ScrubDamage::default())
    });
    assert!(is_caught);
}

#[test]
fn what_a_crash_leaves_is_no_damage() {
    let mut seeds = SeededRandom::new(9);
    for _ in 0..10 {
        let seed = seeds.next_u64();
        let mut random = SeededRandom::new(seed);
        let settings = small_settings();
        let (medium, mut store) = fresh(SEGMENT_BYTES, SEGMENTS, &settings);
        filled(&mut store, 60 + random.below(100));
        for number in 0..random.below(40) {
            // Nobody waits for these.
            let value = [number as u8; 500];
            let kind =
                tierstone_engine::WriteKind::Put { value: &value, expiry_ms: 0, kind: Default::default() };
            let write = tierstone_engine::Write { key: store.key(KEYSPACE, b"late"), kind };
            drop(store.engine.write(store.now, &[write]));
            if random.chance(0.3) {
                store.turn(Wait::Poll);
            }
        }
        let mut store = reopen_after_kill(store, &medium, &settings);
        store.turn(Wait::Poll);
        let (found, told) = pass(&mut store, nothing);
        assert_eq!(found.damage, ScrubDamage::default(), "seed {seed}: {told:?}");
        assert!(found.last_pass_segments > 0);
    }
}

#[test]
fn a_check_and_a_backup_beside_it_are_whole_and_closing_ends_it() {
    let (medium, mut store) = sealed(&small_settings());
    store.engine.begin_verification().unwrap();
    store.engine.begin_backup(store.now, None).unwrap();
    let mut records = 0;
    let (found, _) = pass(&mut store, |store| {
        if let Ok(BackupStep::Piece(piece)) = store.engine.take_backup() {
            records += if piece.kind == PieceKind::Records { piece.records } else { 0 };
        }
    });
    assert_eq!(found.damage, ScrubDamage::default());
    assert_eq!(records, store.engine.len(KEYSPACE));
    assert!(!store.engine.verification().unwrap().is_damaged());
    store.engine.end_backup();
    store.engine.set_scrub_rate(0);
    store.engine.set_scrub_rate(RATE);
    store.turn(Wait::Poll);
    // A read is under way.
    reopen(store, &medium, &small_settings());
}
