//! The verbs over a region that loses power.

use super::*;
use tierstone_crash::{Choices, SurvivorSettings};
use tierstone_media::region::WordRegion;

#[test]
fn a_barrier_makes_everything_stored_or_observed_durable() {
    let region = WordRegion::new(1 << 16);
    let words = VolatileWords::new(64);
    let memory = Direct::new(&region, &words, 0);
    // More ranges than are kept, so that some are written back early.
    for number in 0..40u64 {
        memory.store(Place::Persistent(number * 512), number + 1);
        memory.store_bytes(number * 512 + 100, &[7; 90]);
    }
    region.store_word(30_000, 9); // Another thread's store.
    assert_eq!(memory.observe(30_000), 9);
    memory.barrier().unwrap();
    memory.store(Place::Persistent(40_000), 1);
    // The quiet answer keeps nothing that need not survive.
    region.lose_power(&Choices::quiet(), &SurvivorSettings::default());
    for number in 0..40u64 {
        assert_eq!(region.load_word(number * 512), number + 1);
        let mut bytes = [0; 90];
        memory.load_bytes(number * 512 + 100, &mut bytes);
        assert_eq!(bytes, [7; 90]);
    }
    assert_eq!((region.load_word(30_000), region.load_word(40_000)), (9, 0));
}

#[test]
fn words_of_both_memories_are_changed_atomically() {
    let region = WordRegion::new(64);
    let words = VolatileWords::new(64);
    let memory = Direct::new(&region, &words, 3);
    for place in [Place::Volatile(8), Place::Persistent(8)] {
        assert_eq!(memory.fetch_add(place, 5), 0);
        assert_eq!(memory.swap(place, 7), 5);
        assert_eq!(memory.compare_exchange(place, 1, 2), Err(7));
        assert_eq!(memory.compare_exchange(place, 7, 8), Ok(7));
        assert_eq!(memory.wait_until(place, |value| value == 8).unwrap(), 8);
    }
    assert_eq!(memory.thread(), 3);
}
