//! A trace must replay: every load sees the last store. With the bank of locks off it must not.

use super::*;
use crate::memory::{Direct, VolatileWords};
use crate::trace::Trace;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use tierstone_base::ErrorKind;
use tierstone_media::region::{MappedRegion, RegionSettings};

const COUNTER: Place = Place::Volatile(0);

/// Every thread adds to one counter and counts the even values that it saw, as the publication's self-test does.
/// Returns the trace and the counts.
fn fetch_adds(settings: &TraceSettings, each: u64) -> (Trace, Vec<u64>) {
    let region = MappedRegion::anonymous(4096, &RegionSettings::default()).unwrap();
    let words = VolatileWords::new(64);
    let seen: Vec<AtomicU64> = (0..settings.threads).map(|_| AtomicU64::new(0)).collect();
    let trace = record(
        settings,
        |thread| Direct::new(&region, &words, thread),
        |memory| {
            for _ in 0..each {
                if memory.fetch_add(COUNTER, 1).is_multiple_of(2) {
                    seen[memory.thread()].fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(())
        },
    )
    .unwrap();
    (trace, seen.into_iter().map(AtomicU64::into_inner).collect())
}

/// The even values that each thread would have seen if the trace were what happened.
fn replayed(trace: &Trace, threads: usize) -> Vec<u64> {
    let (mut counter, mut seen) = (0u64, vec![0; threads]);
    for event in trace.events() {
        match event.kind {
            Kind::Load => seen[usize::from(event.thread)] += u64::from(counter.is_multiple_of(2)),
            _ => counter += 1,
        }
    }
    seen
}

#[test]
fn a_trace_replays_to_what_the_threads_saw() {
    for seed in 0..4 {
        let settings = TraceSettings::seeded(4, seed);
        let (trace, seen) = fetch_adds(&settings, 100);
        assert_eq!(replayed(&trace, 4), seen, "seed {seed}");
    }
    let free = TraceSettings { schedule: Schedule::Free, ..TraceSettings::seeded(4, 0) };
    let (trace, seen) = fetch_adds(&free, 2_000);
    assert_eq!(replayed(&trace, 4), seen, "threads that run freely");
}

#[test]
fn without_the_bank_of_locks_the_trace_does_not_replay() {
    let settings = TraceSettings { locking: false, ..TraceSettings::seeded(4, 1) };
    let (trace, seen) = fetch_adds(&settings, 100);
    assert_ne!(replayed(&trace, 4), seen);
}

#[test]
fn one_seed_gives_one_trace() {
    let trace = |seed| fetch_adds(&TraceSettings::seeded(3, seed), 50).0;
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5), trace(6));
}

/// Whether every load of a trace has the bytes of the last store there.
fn loads_see_the_last_store(trace: &Trace) -> bool {
    let mut bytes: BTreeMap<(Space, u64), u8> = BTreeMap::new();
    trace.events().iter().all(|event| {
        (0..u64::from(event.len)).all(|at| {
            let (place, value) = ((event.space, event.address + at), event.bytes()[at as usize]);
            match event.kind {
                Kind::Store => {
                    bytes.insert(place, value);
                    true
                }
                _ => bytes.get(&place).copied().unwrap_or(0) == value,
            }
        })
    })
}

#[test]
fn loads_of_every_kind_see_the_last_store() {
    for schedule in
        [Schedule::Free, Schedule::Seeded { seed: 9, one_in: 1 }, Schedule::Seeded { seed: 9, one_in: 5 }]
    {
        let region = MappedRegion::anonymous(4096, &RegionSettings::default()).unwrap();
        let words = VolatileWords::new(64);
        let settings = TraceSettings { schedule, locks: 3, ..TraceSettings::seeded(4, 0) };
        let trace = record(
            &settings,
            |thread| Direct::new(&region, &words, thread),
            |memory| {
                let me = memory.thread() as u64;
                for round in 0..40 {
                    memory.store_bytes(me * 3 + round, &[me as u8; 21]);
                    memory.load_bytes(round, &mut [0; 30]);
                    memory.swap(Place::Persistent(8 * (round % 4)), me);
                    let _ = memory.compare_exchange(Place::Volatile(8), me, me + 1);
                    memory.observe(16);
                    memory.barrier()?;
                }
                memory.sync()
            },
        )
        .unwrap();
        assert!(loads_see_the_last_store(&trace), "{schedule:?}");
        assert_eq!(trace.threads(), 4);
        let syncs = trace.events().iter().filter(|event| event.kind == Kind::Sync).count();
        assert_eq!(syncs, 4);
    }
}

#[test]
fn a_deadlock_of_the_program_is_told() {
    let region = MappedRegion::anonymous(4096, &RegionSettings::default()).unwrap();
    let words = VolatileWords::new(64);
    let error = record(
        &TraceSettings::seeded(3, 2),
        |thread| Direct::new(&region, &words, thread),
        |memory| memory.wait_until(COUNTER, |value| value == 7).map(|_| ()),
    )
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.message().contains("deadlock"), "{error}");
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let region = MappedRegion::anonymous(4096, &RegionSettings::default()).unwrap();
    let words = VolatileWords::new(64);
    let recorded = |settings: &TraceSettings| {
        record(settings, |thread| Direct::new(&region, &words, thread), |_| Ok(()))
    };
    for settings in [TraceSettings::seeded(0, 1), TraceSettings { locks: 0, ..TraceSettings::seeded(1, 1) }] {
        assert!(recorded(&settings).is_err());
    }
    for (block_bytes, is_fine) in [(0, false), (1, false), (4, false), (12, false), (8, true), (24, true)] {
        let result = recorded(&TraceSettings { block_bytes, ..TraceSettings::seeded(1, 1) });
        assert_eq!(result.is_ok(), is_fine, "{block_bytes}");
        if let Err(error) = result {
            assert!(error.message().contains("take a multiple of 8"), "{error}");
        }
    }
}

/// Whether its turn was drawn or not: the others go on, and the panic comes out.
#[test]
fn a_view_that_cannot_be_made_keeps_no_thread_waiting() {
    let region = MappedRegion::anonymous(4096, &RegionSettings::default()).unwrap();
    let words = VolatileWords::new(64);
    for number in 0..3 {
        for seed in 0..8 {
            let recorded = std::panic::catch_unwind(AssertUnwindSafe(|| {
                record(
                    &TraceSettings::seeded(3, seed),
                    |thread| {
                        assert_ne!(thread, number, "no view for this thread");
                        Direct::new(&region, &words, thread)
                    },
                    |memory| {
                        (0..5).for_each(|_| _ = memory.fetch_add(COUNTER, 1));
                        Ok(())
                    },
                )
            }));
            assert!(recorded.is_err(), "thread {number}, seed {seed}");
        }
    }
}

/// Though the first ones were started and wait for what the others do.
#[test]
fn threads_that_the_system_does_not_give_are_an_error() {
    let region = MappedRegion::anonymous(4096, &RegionSettings::default()).unwrap();
    let words = VolatileWords::new(64);
    for schedule in [Schedule::Free, Schedule::Seeded { seed: 3, one_in: 1 }] {
        let settings = TraceSettings { schedule, ..TraceSettings::seeded(4, 0) };
        let stack_bytes = |number: usize| if number == 2 { 1 << 46 } else { 1 << 18 };
        let error = threads::record_on(
            &settings,
            &stack_bytes,
            |thread| Direct::new(&region, &words, thread),
            |memory| match memory.thread() {
                3 => {
                    memory.store(COUNTER, 1);
                    Ok(())
                }
                _ => memory.wait_until(COUNTER, |value| value == 1).map(|_| ()),
            },
        );
        let error = error.unwrap_err();
        assert!(error.message().contains("cannot start 4 threads; trace fewer"), "{error}");
    }
    let many =
        record(&TraceSettings::seeded(4_097, 1), |thread| Direct::new(&region, &words, thread), |_| Ok(()));
    assert!(many.unwrap_err().message().contains("at most 4,096 threads"));
}
