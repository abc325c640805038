//! The checks of the engine contract that need a device: losses of power and faults. The engine lies in a region that a
//! device plays.

use crate::common::medium::{MediumRegion, geometry};
use crate::common::{Store, device, small_settings};
use std::sync::Arc;
use tierstone_base::Result;
use tierstone_crash::{ExploreSettings, Mutations, Report, assert_caught, sampled_runs, sampled_seed};
use tierstone_engine::conformance::crashes::{CrashSettings, acknowledged_writes_survive_crashes};
use tierstone_engine::conformance::faults::{self, FaultSettings};
use tierstone_engine::harness::Harness;
use tierstone_media::region::Region;
use tierstone_media::sim::{CutPoints, PowerCut, SimDevice, SimSettings};
use tierstone_pmstore::OpenSettings;

const BYTES: u64 = 256 << 10;

fn open(medium: SimDevice, settings: &OpenSettings) -> Result<Vec<Store>> {
    let region = MediumRegion::new(medium)?;
    let opened = tierstone_pmstore::open(region as Arc<dyn Region + Send + Sync>, settings)?;
    let plans = opened.plans.into_iter();
    plans.map(|plan| Ok(Harness::new(plan.build()?.0, device(), opened.hasher))).collect()
}

fn explored(shards: u16, mutations: &Mutations, runs: u64) -> Report {
    let settings = OpenSettings { shard_count: shards, mutations: mutations.clone(), ..small_settings() };
    let sim = SimSettings {
        cut_limit: 3,
        end_cuts: 1,
        trace_limit_lines: 24,
        power_cut: PowerCut::Anywhere { points: CutPoints::Every, one_in: 60 },
        ..SimSettings::exploring(geometry(BYTES))
    };
    let seed = sampled_seed(1_300 + u64::from(shards));
    let exploring = ExploreSettings { max_minimise_runs: 20, ..ExploreSettings::random(seed, runs) };
    acknowledged_writes_survive_crashes(&CrashSettings::new(sim), exploring, &|medium, _| {
        open(medium, &settings)
    })
}

#[test]
#[expect(clippy::print_stdout, reason = "the counts belong in the output of the test")]
fn the_store_passes_the_suite_over_crashes() {
    for shards in 1..=2 {
        let report = explored(shards, &Mutations::none(), sampled_runs(60)).assert_clean();
        println!("the suite, {shards} shards: {report}");
    }
}

#[test]
fn the_suite_over_crashes_sees_an_answer_before_its_fence() {
    assert_caught("answered_before_fence", || explored(1, &Mutations::one("answered_before_fence"), 200));
}

/// Without the checks of failed reads, which memory does not have, and of rot, which in a log that is still needed is
/// no error of a get: `tests/full.rs` and `tests/snapshots.rs` have rot of records.
#[test]
fn the_store_passes_the_suite_of_faults() {
    let faults = FaultSettings {
        sim: SimSettings::new(geometry(BYTES)),
        keys: 60,
        value_bytes: 700,
        notices_rot: false,
        takes_space: true,
    };
    let open_one = |medium: SimDevice, _: &_| {
        open(medium, &small_settings()).map(|mut stores| stores.pop().expect("one shard"))
    };
    faults::a_failed_flush_ends_what_is_acknowledged(&faults, &open_one);
    faults::a_full_device_refuses_writes_until_there_is_space(&faults, &open_one);
}
