//! One seed gives one run: two runs of the same work ask the device for the same things, byte for
//! byte, and get the same answers.

use crate::common::lives::{Mix, Plan};
use tierstone_crash::Choices;

/// The trace of a run with batches, cleaning, expiry, loss of power and recovery.
fn run(seed: u64, shards: &[u16]) -> (u64, String) {
    let mix = Mix {
        operations: 200,
        keys: 30,
        value_bytes_max: 3_000,
        batches: 20,
        expiring: 5,
        settle_one_in: 15,
        ..Mix::default()
    };
    let mut plan = Plan::new(32 << 10, 24).cut_one_in(300).groups_in_flight(2);
    plan.shards = shards.to_vec();
    plan.sim.trace_limit_lines = 100_000;
    let choices = Choices::random(seed);
    let machine = plan.machine(&choices);
    if let Err(violation) =
        plan.run_on(&machine, &choices, &|world, life, choices| mix.work(world, life, choices))
    {
        panic!("seed {seed}: {violation}");
    }
    (machine.trace_digest(), machine.trace())
}

#[test]
fn the_same_seed_gives_the_same_requests_byte_for_byte() {
    for shards in [&[1][..], &[2, 3, 1]] {
        for seed in 0..4 {
            let (first, second) = (run(seed, shards), run(seed, shards));
            assert!(first.1.lines().count() > 500, "seed {seed}: hardly anything happened");
            assert_eq!(first, second, "seed {seed}, shards {shards:?}");
        }
        assert_ne!(run(1, shards).0, run(2, shards).0, "another seed gives another run");
    }
}
