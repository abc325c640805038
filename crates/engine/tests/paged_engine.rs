//! An engine that updates pages in place passes the suite too, model and losses of power included.
#![expect(clippy::expect_used, clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

mod paged;

use paged::format::{BLOCK, Layout};
use paged::{PagedEngine, PagedSettings, open::open};
use tierstone_base::{KeyHasher, KeyspaceId, SeededRandom};
use tierstone_crash::{Choices, ExploreSettings, Mutations, Report, assert_caught};
use tierstone_engine::conformance::crashes::{CrashSettings, acknowledged_writes_survive_crashes};
use tierstone_engine::conformance::faults::FaultSettings;
use tierstone_engine::conformance::{self, ModelSettings};
use tierstone_engine::harness::Harness;
use tierstone_engine::{Engine, IndexKind};
use tierstone_media::sim::{CutPoints, PowerCut, SimDevice, SimMedium, SimSettings};
use tierstone_media::{DurableWriteScope, Geometry, Wait};

type Store = Harness<PagedEngine, SimDevice>;

/// Engines side by side on one device.
fn settings(engines: usize, pages: u64, page_blocks: u64) -> Vec<PagedSettings> {
    let mut all = Vec::new();
    let mut base = 0;
    for _ in 0..engines {
        let layout = Layout { base, journal_bytes: 24 * BLOCK, page_bytes: page_blocks * BLOCK, pages };
        base = layout.end();
        let kinds = [IndexKind::Ordered, IndexKind::Hash, IndexKind::Hash];
        all.push(PagedSettings {
            layout,
            resident_pages: 3,
            keyspaces: (1..).map(KeyspaceId).zip(kinds).collect(),
            mutations: Mutations::none(),
        });
    }
    all
}

fn geometry(settings: &[PagedSettings]) -> Geometry {
    let end = settings.last().map_or(0, |own| own.layout.end());
    Geometry { meta_bytes: 0, segment_bytes: end, segment_limit: 1 }
}

fn medium(settings: &[PagedSettings]) -> SimMedium {
    SimMedium::new(SimSettings::new(geometry(settings)), &Choices::quiet())
}

fn hasher() -> KeyHasher {
    KeyHasher::new([1, 2])
}

fn stores(settings: &[PagedSettings]) -> Vec<Store> {
    let medium = medium(settings);
    let engines = open(&mut medium.device(), settings).unwrap();
    engines.into_iter().map(|engine| Harness::new(engine, medium.device(), hasher())).collect()
}

/// One engine with room for everything that the checks write.
fn store() -> Store {
    stores(&settings(1, 24, 8)).pop().expect("one engine")
}

#[test]
fn the_paged_engine_passes_the_model() {
    let mut seeds = SeededRandom::new(31);
    for _ in 0..4 {
        conformance::model(seeds.next_u64(), ModelSettings::default(), store(), |store| store);
    }
}

#[test]
fn the_paged_engine_passes_the_model_in_little_space_and_over_reopenings() {
    let settings = settings(1, 16, 3);
    let mut seeds = SeededRandom::new(32);
    for _ in 0..4 {
        let medium = medium(&settings);
        let engine = open(&mut medium.device(), &settings).unwrap().pop().unwrap();
        let model = ModelSettings { reopen_every: 150, ..ModelSettings::default() };
        let store = Harness::new(engine, medium.device(), hasher());
        conformance::model(seeds.next_u64(), model, store, |mut store| {
            store.engine.shut();
            for _ in 0..1_000 {
                if store.engine.is_shut() {
                    break;
                }
                store.turn(Wait::One);
            }
            assert!(store.engine.is_shut(), "the engine did not come to an end");
            let engine = open(&mut medium.kill_process(), &settings).unwrap().pop().unwrap();
            Harness::new(engine, medium.device(), hasher())
        });
    }
}

#[test]
fn the_paged_engine_passes_the_single_checks() {
    conformance::dropping_a_keyspace_empties_only_it(store());
    conformance::a_snapshot_outlives_the_drop_of_its_keyspaces(store());
    conformance::pages_of_a_range_join(store());
    conformance::a_range_of_a_snapshot_shows_the_keys_of_the_cut(store());
    conformance::writes_are_visible_before_they_are_durable(store());
    conformance::a_switch_of_modes_keeps_what_was_promised(store());
    conformance::a_relaxed_write_is_durable_within_its_bound(store());
    conformance::a_relaxed_write_waits_for_a_device_that_is_behind(store());
    conformance::completions_tell_their_cost(store(), false);
}

#[test]
fn the_paged_engine_passes_the_suite_of_faults() {
    let own = settings(1, 16, 3);
    let faults = FaultSettings {
        sim: SimSettings::new(geometry(&own)),
        keys: 60,
        value_bytes: 300,
        // Its pages are verified; a damaged group of its journal ends recovery as a torn one does.
        notices_rot: false,
        // It has its space from the beginning.
        takes_space: false,
    };
    conformance::faults::all(&faults, &|mut device, medium| {
        let engine = open(&mut device, &own)?.pop().expect("one engine");
        Ok(Harness::new(engine, medium.device(), hasher()))
    });
}

#[test]
fn the_paged_engine_decides_batches_over_several() {
    let mut both = stores(&settings(2, 8, 4)).into_iter();
    let (first, second) = (both.next().unwrap(), both.next().unwrap());
    conformance::a_batch_over_two_engines_is_decided_when_both_parts_are_durable(first, second);
    conformance::a_part_of_a_refused_batch_is_taken_back(store());
}

/// Explores losses of power on so many engines.
fn explored(engines: usize, scope: DurableWriteScope, mutations: &Mutations, runs: u64) -> Report {
    let mut own = settings(engines, 4, 4);
    own.iter_mut().for_each(|settings| settings.mutations = mutations.clone());
    let sim = SimSettings {
        cut_limit: 3,
        end_cuts: 1,
        trace_limit_lines: 24,
        durable_write_scope: scope,
        power_cut: PowerCut::Anywhere { points: CutPoints::Every, one_in: 60 },
        ..SimSettings::exploring(geometry(&own))
    };
    let mut settings = CrashSettings::new(sim);
    settings.operations = 45;
    let exploring =
        ExploreSettings { max_minimise_runs: 20, ..ExploreSettings::sampled(77, runs, mutations) };
    acknowledged_writes_survive_crashes(&settings, exploring, &|mut device, medium| {
        let engines = open(&mut device, &own)?;
        Ok(engines.into_iter().map(|engine| Harness::new(engine, medium.device(), hasher())).collect())
    })
}

#[test]
fn acknowledged_writes_of_paged_engines_survive_crashes() {
    for engines in 1..=2 {
        for scope in [DurableWriteScope::OwnSectors, DurableWriteScope::WholeDevice] {
            let report = explored(engines, scope, &Mutations::none(), 120).assert_clean();
            println!("{engines} paged engines, {scope:?}: {report}");
        }
    }
}

#[test]
fn every_rule_of_the_paged_engine_is_needed() {
    let mutations = [("pages_without_shadow", 1), ("root_beside_pages", 1), ("undecided_parts_kept", 2)];
    for (name, engines) in mutations {
        let scope = DurableWriteScope::OwnSectors;
        assert_caught(name, || explored(engines, scope, &Mutations::one(name), 3_000));
    }
}
