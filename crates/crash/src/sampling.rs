//! Which samples of a scenario are explored: those that a test names, or others, to search for what they miss.
//!
//! `TIERSTONE_CRASH_SEED=N` gives every sampled test a seed of its own for each N, and `TIERSTONE_CRASH_RUNS` how many runs
//! it tries; `bench/explorer --states` sets both for one N after the other.

/// Far apart, so that tests whose seeds are neighbours have none in common.
const SEEDS_APART: u64 = 1_000_003;

/// The seed of a sampled test: `default`, or the one that `TIERSTONE_CRASH_SEED` gives it.
pub fn sampled_seed(default: u64) -> u64 {
    default.wrapping_add(environment("TIERSTONE_CRASH_SEED").unwrap_or(0).wrapping_mul(SEEDS_APART))
}

/// Runs that a sampled test tries: `default`, or what `TIERSTONE_CRASH_RUNS` says.
pub fn sampled_runs(default: u64) -> u64 {
    environment("TIERSTONE_CRASH_RUNS").unwrap_or(default)
}

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}
