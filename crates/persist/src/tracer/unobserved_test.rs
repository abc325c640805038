//! What was loaded and not observed is told, in traces that are the same either way.

use super::super::{TraceSettings, Traced, record_with_unobserved};
use super::*;
use crate::memory::{Direct, Memory, Place, VolatileWords};
use crate::trace::Trace;
use tierstone_base::Result;
use tierstone_media::region::{MappedRegion, RegionSettings};

/// The first thread's word, the second's, and another word in the line of the first.
const FIRST: u64 = 0;
const SECOND: u64 = 64;
const BESIDE: u64 = 8;

/// One thread stores a word, `first` does more, and another is told; the other loads the word by `load` and makes its own
/// durable behind it.
fn relayed(
    first: impl Fn(&Traced<'_, Direct<'_, MappedRegion>>) -> Result<()> + Sync,
    load: impl Fn(&Traced<'_, Direct<'_, MappedRegion>>) + Sync,
) -> (Trace, Vec<Unobserved>) {
    let region = MappedRegion::anonymous(4096, &RegionSettings::default()).unwrap();
    let words = VolatileWords::new(64);
    let told = Place::Volatile(0);
    record_with_unobserved(
        &TraceSettings::seeded(2, 5),
        |thread| Direct::new(&region, &words, thread),
        |memory| {
            if memory.thread() == 0 {
                memory.store(Place::Persistent(FIRST), 1);
                first(memory)?;
                memory.store(told, 1);
                return Ok(());
            }
            memory.wait_until(told, |word| word == 1)?;
            load(memory);
            memory.barrier()?;
            memory.store(Place::Persistent(SECOND), 1);
            memory.sync()
        },
    )
    .unwrap()
}

fn loads(memory: &Traced<'_, Direct<'_, MappedRegion>>) {
    assert_eq!(memory.load(Place::Persistent(FIRST)), 1);
}

#[test]
fn a_load_in_place_of_an_observe_is_told_and_changes_no_trace() {
    let (loaded, found) = relayed(|_| Ok(()), loads);
    let (observed, none) = relayed(|_| Ok(()), |memory| assert_eq!(memory.observe(FIRST), 1));
    assert_eq!((&loaded, none), (&observed, Vec::new()));
    let [only] = found[..] else { panic!("{found:?}") };
    let kinds = [only.store, only.load, only.barrier].map(|step| loaded.events()[step].kind);
    assert_eq!(kinds, [Kind::Store, Kind::Load, Kind::Barrier]);
    assert_eq!(loaded.events()[only.load].address, FIRST);
}

#[test]
fn other_ways_to_look_are_loads_too() {
    let ways: [fn(&Traced<'_, Direct<'_, MappedRegion>>); 3] = [
        |memory| memory.load_bytes(FIRST, &mut [0; 8]),
        |memory| assert!(memory.wait_until(Place::Persistent(FIRST), |word| word == 1).is_ok()),
        |memory| assert!(memory.compare_exchange(Place::Persistent(FIRST), 7, 8).is_err()),
    ];
    for look in ways {
        assert_eq!(relayed(|_| Ok(()), look).1.len(), 1);
    }
}

#[test]
fn what_is_durable_before_it_is_loaded_or_with_the_line_is_not_told() {
    assert_eq!(relayed(|memory| memory.barrier(), loads).1, []);
    let stores_beside = |memory: &Traced<'_, Direct<'_, MappedRegion>>| {
        loads(memory);
        memory.store(Place::Persistent(BESIDE), 1);
    };
    assert_eq!(relayed(|_| Ok(()), stores_beside).1, []);
}
