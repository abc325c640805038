//! What survives on a machine: hand-written sets against all that the simulation produces.

use super::super::set_processor;
use super::*;
use crate::region::Region;
use crate::sim::device_test::{filled, first_byte, geometry, run_one};
use crate::{BLOCK_BYTES, BlockDevice, IoRequest, Wait};
use std::collections::BTreeSet;
use tierstone_crash::{ExploreSettings, explore};

fn settings(persistency: SimPersistency) -> SimMachineSettings {
    let mut settings = SimMachineSettings::exploring(192, geometry());
    // Whole blocks as sectors, so that sets can be written by hand.
    settings.devices[0] = SimSettings { sector_bytes: BLOCK_BYTES, ..SimSettings::new(geometry()) };
    SimMachineSettings { persistency, power_cut: PowerCut::Never, ..settings }
}

/// Words 0, 1 and 8 of the region (two in one line) and the first byte of block 0, over all survivors of `run`.
fn survivors<const UNIT: usize>(
    settings: &SimMachineSettings,
    run: impl Fn(&SimRegion<UNIT>, &mut SimDevice),
) -> BTreeSet<[u64; 4]> {
    let mut seen = BTreeSet::new();
    explore(ExploreSettings::exhaustive(), |choices| {
        let machine = SimMachine::<UNIT>::new(settings, choices);
        let mut life = machine.this_life();
        run(&life.region, &mut life.devices[0]);
        let mut next = machine.power_on_after_loss();
        let block = u64::from(first_byte(&mut next.devices[0], 0));
        seen.insert([next.region.load_word(0), next.region.load_word(8), next.region.load_word(64), block]);
        Ok(())
    })
    .assert_exhausted();
    seen
}

fn stores<const UNIT: usize>(region: &SimRegion<UNIT>) {
    for (offset, value) in [(0, 1), (64, 2), (8, 3)] {
        region.store_word(offset, value);
    }
}

#[test]
fn the_persistency_says_which_stores_survive_beside_which_sectors() {
    let sets = |persistency, unit: usize| {
        let run = |region: &dyn Region, device: &mut SimDevice| {
            for (offset, value) in [(0, 1), (64, 2), (8, 3)] {
                region.store_word(offset, value);
            }
            assert_eq!(run_one(device, IoRequest::write(0, 0, filled(7))).result, Ok(()));
        };
        match unit {
            64 => survivors::<64>(&settings(persistency), |region, device| run(region, device)),
            _ => survivors::<8>(&settings(persistency), |region, device| run(region, device)),
        }
    };
    let with_block = |words: &[[u64; 3]]| -> BTreeSet<[u64; 4]> {
        words.iter().flat_map(|[a, b, c]| [[*a, *b, *c, 0], [*a, *b, *c, 7]]).collect()
    };
    let lines = [[0, 0, 0], [1, 0, 0], [1, 3, 0], [0, 0, 2], [1, 0, 2], [1, 3, 2]];
    assert_eq!(sets(SimPersistency::Hardware, 64), with_block(&lines));
    assert_eq!(sets(SimPersistency::Epoch, 64), with_block(&lines));
    let words = [&lines[..], &[[0, 3, 0], [0, 3, 2]]].concat();
    assert_eq!(sets(SimPersistency::Hardware, 8), with_block(&words));
    assert_eq!(sets(SimPersistency::Strict, 8), with_block(&[[1, 3, 2]]));
    let prefixes = [[0, 0, 0], [1, 0, 0], [1, 0, 2], [1, 3, 2]];
    assert_eq!(sets(SimPersistency::BufferedStrict, 8), with_block(&prefixes));
}

#[test]
fn a_fence_covers_what_was_written_back_or_everything_as_the_persistency_says() {
    for (persistency, written_back, states) in [
        (SimPersistency::Hardware, true, 3),
        (SimPersistency::Hardware, false, 6),
        (SimPersistency::Epoch, false, 1),
        (SimPersistency::BufferedStrict, false, 1),
    ] {
        let seen = survivors::<64>(&settings(persistency), |region, _| {
            stores(region);
            if written_back {
                region.write_back(64, 8);
            }
            region.fence().expect("power is on");
        });
        assert_eq!(seen.len(), states, "{persistency:?} {written_back}: {seen:?}");
    }
}

/// What is left of a word that processor 1 stored and one that processor 2 did, where both answer after the fence of
/// the second, and the first one's own `fenced`.
fn left_of_two_processors(persistency: SimPersistency, fenced: bool) -> BTreeSet<[u64; 4]> {
    let seen = survivors::<64>(&settings(persistency), |region, _| {
        for (processor, offset) in [(1, 0), (2, 64)] {
            set_processor(processor);
            region.store_word(offset, u64::from(processor));
            region.write_back(offset, 8);
            if processor == 2 || fenced {
                region.fence().expect("power is on");
            }
        }
        set_processor(0);
    });
    set_processor(0);
    seen
}

#[test]
fn a_fence_that_another_processor_lacks_is_found_in_every_mode_in_which_stores_wait_for_one() {
    for persistency in [SimPersistency::Hardware, SimPersistency::Epoch, SimPersistency::BufferedStrict] {
        let missing = BTreeSet::from([[0, 0, 2, 0], [1, 0, 2, 0]]);
        assert_eq!(left_of_two_processors(persistency, false), missing, "{persistency:?}");
        let whole = BTreeSet::from([[1, 0, 2, 0]]);
        assert_eq!(left_of_two_processors(persistency, true), whole, "{persistency:?}");
    }
    // Where each word is durable as it is stored nothing is missing.
    assert_eq!(left_of_two_processors(SimPersistency::Strict, false), BTreeSet::from([[1, 0, 2, 0]]));
}

#[test]
fn a_processor_that_loads_what_another_stored_covers_it_by_the_models_and_not_on_hardware() {
    for (persistency, states) in
        [(SimPersistency::Hardware, 2), (SimPersistency::Epoch, 1), (SimPersistency::BufferedStrict, 1)]
    {
        let seen = survivors::<8>(&settings(persistency), |region, _| {
            region.store_word(0, 1);
            set_processor(1);
            assert_eq!(region.load_word(0), 1);
            region.fence().expect("power is on");
            set_processor(0);
        });
        assert_eq!(seen.len(), states, "{persistency:?}: {seen:?}");
    }
}

#[test]
fn power_lost_in_one_part_is_lost_in_all_and_only_once() {
    let mut cuts_seen = BTreeSet::new();
    let report = explore(ExploreSettings::exhaustive(), |choices| {
        let every = PowerCut::Anywhere { points: CutPoints::Every, one_in: 8 };
        let settings =
            SimMachineSettings { power_cut: every, cut_limit: 1, ..settings(SimPersistency::Hardware) };
        let machine = LineMachine::new(&settings, choices);
        let mut life = machine.this_life();
        life.region.store_word(0, 1);
        let written = run_one(&mut life.devices[0], IoRequest::write(0, 0, filled(7))).result;
        let fenced = life.region.fence();
        let is_off = machine.power_is_off();
        assert_eq!((life.devices[0].is_dead(), fenced.is_err()), (is_off, is_off));
        assert!(written.is_ok() || is_off);
        let cuts = machine.media()[0].counters().planned_cuts;
        cuts_seen.insert(cuts);
        // An old handle changes nothing any more.
        let next = machine.power_on_after_loss();
        life.region.store_word(128, 9);
        assert!(life.region.fence().is_err() && life.devices[0].is_dead());
        assert_eq!(next.region.load_word(128), 0);
        next.region.store_word(128, 5);
        assert!(next.region.fence().is_ok() || cuts == 0, "the limit of cuts was reached");
        Ok(())
    });
    report.assert_clean();
    assert_eq!(cuts_seen, BTreeSet::from([0, 1]));
}

#[test]
fn a_write_in_flight_when_the_region_loses_power_may_have_landed() {
    let seen = survivors::<64>(&settings(SimPersistency::Hardware), |region, device| {
        device.submit(&mut vec![IoRequest::write_durable(0, 0, filled(7))]);
        region.store_word(0, 1);
        region.write_back(0, 8);
        region.fence().expect("power is on");
    });
    assert_eq!(seen, BTreeSet::from([[1, 0, 0, 0], [1, 0, 0, 7]]));
}

#[test]
fn a_store_is_cut_between_words_where_each_is_durable_by_itself() {
    let mut seen = BTreeSet::new();
    explore(ExploreSettings::exhaustive(), |choices| {
        let every = PowerCut::Anywhere { points: CutPoints::BeforeDurable, one_in: 8 };
        let settings = SimMachineSettings { power_cut: every, ..settings(SimPersistency::Strict) };
        let machine = LineMachine::new(&settings, choices);
        machine.region().store(4, &[1; 16]);
        let life = machine.power_on_after_loss();
        seen.insert([0, 8, 16].map(|at| life.region.load_word(at) != 0));
        Ok(())
    })
    .assert_exhausted();
    let prefixes = [[false, false, false], [true, false, false], [true, true, false], [true, true, true]];
    assert_eq!(seen, BTreeSet::from(prefixes));
}

#[test]
fn a_copy_is_what_a_cut_now_could_leave_and_the_machine_runs_on() {
    let mut seen = BTreeSet::new();
    explore(ExploreSettings::exhaustive(), |choices| {
        let machine = LineMachine::new(&settings(SimPersistency::Hardware), &Choices::quiet());
        let mut life = machine.this_life();
        life.region.store_word(0, 1);
        assert_eq!(run_one(&mut life.devices[0], IoRequest::write(0, 0, filled(7))).result, Ok(()));
        let copy = machine.crashed_copy(choices);
        seen.insert((copy.region().load_word(0), first_byte(&mut copy.this_life().devices[0], 0)));
        copy.region().store_word(0, 9);
        assert_eq!((life.region.load_word(0), first_byte(&mut life.devices[0], 0)), (1, 7));
        Ok(())
    })
    .assert_exhausted();
    assert_eq!(seen, BTreeSet::from([(0, 0), (0, 7), (1, 0), (1, 7)]));
}

#[test]
fn the_end_of_a_process_loses_nothing_of_the_region() {
    let machine = LineMachine::new(&settings(SimPersistency::Hardware), &Choices::quiet());
    let mut life = machine.this_life();
    life.region.store_word(0, 1);
    let next = machine.kill_process();
    life.region.store_word(0, 2);
    assert_eq!(next.region.load_word(0), 1);
    life.devices[0].submit(&mut vec![IoRequest::write(0, 0, filled(7))]);
    let mut completions = Vec::new();
    life.devices[0].complete(Wait::All, &mut completions);
    assert!(completions.iter().all(|done| done.result.is_err()) && next.number == 1);
    // Never written back: the quiet choices let it go when power is lost.
    assert_eq!(machine.power_on_after_loss().region.load_word(0), 0);
}

#[test]
#[should_panic(expected = "stands in a machine")]
fn a_part_of_a_machine_does_not_come_back_alone() {
    let machine = LineMachine::new(&settings(SimPersistency::Hardware), &Choices::quiet());
    let _ = machine.media()[0].power_on_after_loss();
}

#[test]
fn memory_that_is_lost_is_zeros_and_the_devices_are_as_they_were() {
    let machine = LineMachine::new(&settings(SimPersistency::Hardware), &Choices::quiet());
    let mut life = machine.this_life();
    assert_eq!(run_one(&mut life.devices[0], IoRequest::write_durable(0, 0, filled(7))).result, Ok(()));
    life.region.store_word(0, 1);
    life.region.write_back(0, 8);
    life.region.fence().expect("power is on");
    life.region.store_word(8, 2);
    let mut next = machine.power_on_after_loss();
    assert_eq!((next.region.load_word(0), first_byte(&mut next.devices[0], 0)), (1, 7));
    next.region.store_word(8, 2);
    machine.replace_region();
    // What had not been written back is gone with it.
    let mut last = machine.power_on_after_loss();
    assert_eq!(last.region.image(), [0; 192]);
    assert_eq!(first_byte(&mut last.devices[0], 0), 7);
}

#[test]
fn a_plan_of_the_next_life_cuts_within_its_points_and_not_after() {
    let mut seen = BTreeSet::new();
    explore(ExploreSettings::exhaustive(), |choices| {
        let machine = LineMachine::new(&settings(SimPersistency::Hardware), choices);
        machine.set_power_cut(PowerCut::Within { points: CutPoints::Every, last: 2 });
        let region = machine.region();
        (0..3).for_each(|word| region.store_word(word * 8, 1));
        seen.insert([0, 8, 16].map(|at| region.load_word(at)));
        Ok(())
    })
    .assert_exhausted();
    assert_eq!(seen, BTreeSet::from([[0, 0, 0], [1, 0, 0], [1, 1, 1]]));
}

#[test]
fn a_machine_without_memory_has_no_states_of_it() {
    let report = explore(ExploreSettings::exhaustive(), |choices| {
        let none = SimMachineSettings { region_bytes: 0, ..settings(SimPersistency::Hardware) };
        let machine = WordMachine::new(&none, choices);
        assert_eq!(machine.region().bytes(), 0);
        machine.power_on_after_loss();
        Ok(())
    });
    assert_eq!((report.runs, report.states), (1, 1), "{report}");
}

#[test]
fn parts_and_machines_go_to_other_threads() {
    fn goes<T: Send + Sync>(_: Option<T>) -> bool {
        true
    }
    assert!(goes(None::<WordMachine>) && goes(None::<SimRegion<64>>) && goes(None::<SimMedium>));
    fn moves<T: Send>(_: Option<T>) -> bool {
        true
    }
    assert!(moves(None::<SimDevice>));
}
