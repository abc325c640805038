use super::*;
use tierstone_base::SeededRandom;

/// Shards take and give at random; the most that all parts ever were together.
fn most_bytes(ledger: &MemoryLedger, seed: u64) -> u64 {
    let mut random = SeededRandom::new(seed);
    let step = ledger.step_bytes();
    let mut most = 0;
    for _ in 0..2_000 {
        let shard = random.below(4) as ShardId;
        if random.chance(0.5) {
            ledger.take(shard, random.below(5 * step));
        } else if ledger.part_bytes(shard) >= 3 * step {
            ledger.give(shard, step * (1 + random.below(2)));
        }
        most = most.max(ledger.parts_bytes());
    }
    most
}

#[test]
fn all_parts_are_never_more_than_the_budget() {
    for seed in 0..20 {
        let ledger = MemoryLedger::new(4, 1 << 20, false);
        assert_eq!(most_bytes(&ledger, seed), 4 << 20, "seed {seed}");
        assert_eq!(ledger.parts_bytes() + ledger.free_bytes(), 4 << 20, "seed {seed}");
    }
}

#[test]
fn what_is_given_and_kept_is_noticed() {
    let ledger = MemoryLedger::new(4, 1 << 20, true);
    assert!(most_bytes(&ledger, 1) > 4 << 20, "the test above sees a ledger that gives what a shard keeps");
}

#[test]
fn all_parts_are_never_more_than_the_budget_with_threads() {
    let ledger = MemoryLedger::new(4, 1 << 20, false);
    std::thread::scope(|scope| {
        for shard in 0..4 {
            let ledger = &ledger;
            scope.spawn(move || {
                let mut random = SeededRandom::new(u64::from(shard));
                let step = ledger.step_bytes();
                for _ in 0..20_000 {
                    if random.chance(0.5) {
                        ledger.take(shard, random.below(5 * step));
                    } else if ledger.part_bytes(shard) > step {
                        ledger.give(shard, step);
                    }
                }
            });
        }
    });
    assert_eq!(ledger.parts_bytes() + ledger.free_bytes(), 4 << 20);
}

#[test]
fn who_could_give_is_woken_when_more_is_wanted() {
    let ledger = MemoryLedger::new(3, 1 << 20, false);
    let woken: Vec<Arc<AtomicU64>> = (0..3).map(|_| Arc::default()).collect();
    for (shard, count) in (0..3).zip(&woken) {
        let count = Arc::clone(count);
        let wake = move || {
            count.fetch_add(1, Ordering::Relaxed);
        };
        ledger.set_waker(shard, Arc::new(wake));
    }
    ledger.declare(1, 0, 1 << 18);
    ledger.declare(0, 1 << 16, 0);
    ledger.declare(0, 1 << 16, 0);
    let counts: Vec<u64> = woken.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    assert_eq!(counts, [0, 1, 0]);
    assert_eq!((ledger.asked_of(1), ledger.asked_of(0)), (1 << 16, 0));
    assert!(ledger.could_gain(0));
    ledger.give(1, ledger.step_bytes());
    assert_eq!(ledger.asked_of(1), 0, "what is free is not asked for");
    assert_eq!(ledger.take(0, 1), ledger.step_bytes());
    ledger.declare(0, 0, 0);
    assert!(!ledger.is_wanted_by_others(1));
}
