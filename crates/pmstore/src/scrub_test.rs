use super::*;
use crate::verify::verify_test::{HASHED, ORDERED, Store};
use tierstone_crash::Mutations;
use tierstone_engine::Engine;

const RATE: u64 = 4 << 20;
/// The longest step: 16 entries, of which some hold 70,000 bytes.
const STEP_BYTES: u64 = 16 * 71_000;

fn scrubbed(store: &Store) -> ScrubStatistics {
    store.shard.statistics().scrub
}

/// Steps through `seconds`, whenever the shard wants one; false when more was read than the rate allows.
fn pass_seconds(store: &mut Store, seconds: u64) -> bool {
    let (began_us, before) = (store.now.monotonic_us, scrubbed(store).bytes);
    let until_us = began_us + seconds * 1_000_000;
    let mut is_in_rate = true;
    while store.now.monotonic_us < until_us {
        let next_us = store.shard.next_step_at_us().unwrap_or(until_us);
        store.now.monotonic_us = next_us.clamp(store.now.monotonic_us, until_us);
        store.now.wall_ms = store.now.monotonic_us / 1_000;
        store.step();
        let passed_us = store.now.monotonic_us - began_us;
        is_in_rate &= scrubbed(store).bytes - before <= RATE * passed_us / 1_000_000 + STEP_BYTES;
    }
    is_in_rate
}

#[test]
fn a_pass_begins_after_a_minute_and_keeps_its_rate() {
    let mut store = Store::filled_with(Mutations::default(), RATE);
    assert!(pass_seconds(&mut store, 50) && scrubbed(&store).bytes == 0);
    assert!(pass_seconds(&mut store, 20));
    let found = scrubbed(&store);
    assert_eq!(
        (found.passes, found.progress_ppm, found.rate, found.damage),
        (1, 0, RATE, ScrubDamage::default())
    );
    assert!(found.last_pass_bytes > 16 * 70_000 && found.last_pass_ms >= 100, "{found:?}");
    assert_eq!(found.bytes, found.last_pass_bytes);
    // The next one begins a day later.
    assert!(pass_seconds(&mut store, 80_000) && scrubbed(&store).passes == 1);
    assert!(pass_seconds(&mut store, 7_000) && scrubbed(&store).passes == 2);
}

#[test]
fn the_rate_is_what_holds_it_back() {
    let mut store = Store::filled_with(Mutations::one("scrub_unpaced"), RATE / 64);
    store.now.monotonic_us += 61_000_000;
    let before_us = store.now.monotonic_us;
    while scrubbed(&store).passes == 0 {
        store.step();
    }
    let passed_us = store.now.monotonic_us - before_us;
    let allowed = RATE / 64 * passed_us / 1_000_000 + STEP_BYTES;
    assert!(scrubbed(&store).bytes > allowed, "{} bytes in {passed_us} us", scrubbed(&store).bytes);
}

#[test]
fn rot_is_told_once_a_pass_and_counted() {
    let mut store = Store::filled();
    store.flip(store.place(HASHED, 20), false);
    store.flip(store.place(ORDERED, 43), true);
    store.step();
    // Not just being opened: at once.
    store.shard.set_scrub_rate(RATE);
    assert!(pass_seconds(&mut store, 10));
    let found = scrubbed(&store);
    assert_eq!((found.passes, found.damage), (1, ScrubDamage { records: 2, ..ScrubDamage::default() }));
    assert!(found.last_pass_at_ms > 0);
    let told = store.shard.take_scrub_findings();
    assert!(told.len() == 2 && told.iter().all(|finding| finding.contains("byte ")), "{told:?}");
    assert!(store.shard.take_scrub_findings().is_empty());
    pass_seconds(&mut store, 86_500);
    assert_eq!((scrubbed(&store).passes, store.shard.take_scrub_findings().len()), (2, 2));
    // Off: nothing more, and what was found stays.
    store.shard.set_scrub_rate(0);
    pass_seconds(&mut store, 200_000);
    assert_eq!((scrubbed(&store).passes, scrubbed(&store).damage), (2, found.damage));
}
