//! What survives: hand-written sets against all that the simulation produces.

use super::device_test::{filled, first_byte, geometry, run_one};
use super::*;
use crate::{BLOCK_BYTES, BlockDevice, DurableWriteScope, IoRequest, Wait};
use std::collections::BTreeSet;
use tierstone_crash::{Choices, ExploreSettings, SECTOR_BYTES, Violation, explore};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Whole blocks as sectors, so that sets can be written by hand.
fn settings(scope: DurableWriteScope) -> SimSettings {
    SimSettings { durable_write_scope: scope, sector_bytes: BLOCK_BYTES, ..SimSettings::new(geometry()) }
}

/// The first bytes of blocks 0, 1, 2 over all survivors of `run` and a cut after it.
fn survivors(settings: &SimSettings, run: impl Fn(&mut SimDevice)) -> BTreeSet<[u8; 3]> {
    let mut seen = BTreeSet::new();
    explore(ExploreSettings::exhaustive(), |choices| {
        let medium = SimMedium::new(settings.clone(), choices);
        run(&mut medium.device());
        medium.power_on_after_loss();
        seen.insert([0, 1, 2].map(|block| medium.peek(block * BLOCK, 1)[0]));
        Ok(())
    })
    .assert_exhausted();
    seen
}

fn write(device: &mut SimDevice, block: u64, fill: u8) {
    assert_eq!(run_one(device, IoRequest::write(0, block * BLOCK, filled(fill))).result, Ok(()));
}

fn write_durable(device: &mut SimDevice, block: u64, fill: u8) {
    assert_eq!(run_one(device, IoRequest::write_durable(0, block * BLOCK, filled(fill))).result, Ok(()));
}

#[test]
fn any_sectors_of_completed_unflushed_writes_survive() {
    let seen = survivors(&settings(DurableWriteScope::OwnSectors), |device| {
        (0..3).for_each(|block| write(device, block, block as u8 + 1));
    });
    let all = [[0, 0, 0], [1, 0, 0], [0, 2, 0], [0, 0, 3], [1, 2, 0], [1, 0, 3], [0, 2, 3], [1, 2, 3]];
    assert_eq!(seen, BTreeSet::from(all));
}

#[test]
fn a_write_in_flight_reaches_none_some_or_all_of_its_sectors() {
    let mut seen = BTreeSet::new();
    explore(ExploreSettings::exhaustive(), |choices| {
        let medium = SimMedium::new(SimSettings::new(geometry()), choices);
        medium.device().submit(&mut vec![IoRequest::write_durable(0, 0, filled(1))]);
        medium.power_on_after_loss();
        let bytes = medium.peek_durable(0, BLOCK_BYTES);
        seen.insert(bytes.chunks(SECTOR_BYTES).map(|sector| sector[0]).collect::<Vec<_>>());
        Ok(())
    })
    .assert_exhausted();
    assert_eq!(seen.len(), 256);
}

#[test]
fn a_flush_covers_what_completed_before_it_was_submitted() {
    let seen = survivors(&settings(DurableWriteScope::OwnSectors), |device| {
        write(device, 0, 1);
        device.submit(&mut vec![IoRequest::write(0, BLOCK, filled(2))]);
        device.submit(&mut vec![IoRequest::flush(1)]);
        device.complete(Wait::All, &mut Vec::new());
        write(device, 2, 3);
    });
    // Block 1 was in flight when the flush was submitted, block 2 came after it.
    assert_eq!(seen, BTreeSet::from([[1, 0, 0], [1, 2, 0], [1, 0, 3], [1, 2, 3]]));
}

#[test]
fn a_durable_write_covers_its_own_sectors_or_the_device_as_its_scope_says() {
    let run = |device: &mut SimDevice| {
        write(device, 0, 1);
        write_durable(device, 1, 2);
        write(device, 2, 3);
    };
    let own = survivors(&settings(DurableWriteScope::OwnSectors), run);
    assert_eq!(own, BTreeSet::from([[0, 2, 0], [1, 2, 0], [0, 2, 3], [1, 2, 3]]));
    let whole = survivors(&settings(DurableWriteScope::WholeDevice), run);
    assert_eq!(whole, BTreeSet::from([[1, 2, 0], [1, 2, 3]]));
}

#[test]
fn a_cut_inside_a_flush_leaves_any_of_what_it_was_to_cover() {
    let base = settings(DurableWriteScope::OwnSectors);
    // Events: submit, complete, submit, complete: the fourth is the completion of the flush.
    let cut = |event| SimSettings { power_cut: PowerCut::AtEvent(event), ..base.clone() };
    let run = |device: &mut SimDevice| {
        run_one(device, IoRequest::write(0, 0, filled(1)));
        run_one(device, IoRequest::flush(1));
    };
    assert_eq!(survivors(&cut(0), run), BTreeSet::from([[0, 0, 0]]), "the write was never submitted");
    for event in 1..4 {
        assert_eq!(survivors(&cut(event), run), BTreeSet::from([[0, 0, 0], [1, 0, 0]]), "event {event}");
    }
    assert_eq!(survivors(&cut(4), run), BTreeSet::from([[1, 0, 0]]), "the flush was done");
}

#[test]
fn the_end_of_a_process_keeps_what_completed_and_leaves_the_rest_open() {
    let mut seen = BTreeSet::new();
    explore(ExploreSettings::exhaustive(), |choices| {
        let medium = SimMedium::new(settings(DurableWriteScope::OwnSectors), choices);
        let mut device = medium.device();
        write(&mut device, 0, 1);
        device.submit(&mut vec![IoRequest::write(0, BLOCK, filled(2))]);
        let mut next = medium.kill_process();
        assert!(device.is_dead());
        seen.insert([0, 1].map(|block| first_byte(&mut next, block * BLOCK)));
        Ok(())
    })
    .assert_exhausted();
    assert_eq!(seen, BTreeSet::from([[1, 0], [1, 2]]));
}

/// All states that some cut leaves, with the number of durable writes that were told by then.
fn states_with_told(points: CutPoints) -> BTreeSet<(u32, [u8; 3])> {
    let mut seen = BTreeSet::new();
    explore(ExploreSettings::exhaustive(), |choices| {
        let power_cut = PowerCut::Anywhere { points, one_in: 4 };
        let base = settings(DurableWriteScope::OwnSectors);
        let medium =
            SimMedium::new(SimSettings { power_cut, order: CompletionOrder::Chosen, ..base }, choices);
        let (mut told, mut completions) = (0, Vec::new());
        medium.run_lives(|mut device, life| {
            if life > 0 {
                let bytes = [0, 1, 2].map(|block| medium.peek(block * BLOCK, 1)[0]);
                seen.insert((told, bytes));
                return Ok(());
            }
            let batches = [
                vec![IoRequest::write(0, 0, filled(1)), IoRequest::write_durable(9, BLOCK, filled(2))],
                vec![IoRequest::flush(9)],
                vec![IoRequest::write(0, 0, filled(4)), IoRequest::write_durable(9, 2 * BLOCK, filled(3))],
            ];
            for mut batch in batches {
                device.submit(&mut batch);
                device.complete(Wait::All, &mut completions);
                told += completions.drain(..).filter(|done| done.token == 9 && done.result.is_ok()).count()
                    as u32;
            }
            Ok(())
        })
    })
    .assert_exhausted();
    seen
}

#[test]
fn cuts_before_durable_completions_alone_reach_every_state_that_matters() {
    let (every, few) = (states_with_told(CutPoints::Every), states_with_told(CutPoints::BeforeDurable));
    assert!(few.is_subset(&every) && few.len() > 10);
    // A state that only the other points reach is reached here with at least as much told, which
    // is the stricter check.
    for (told, state) in every {
        assert!(few.iter().any(|(more, same)| *same == state && *more >= told), "{told} {state:?}");
    }
}

#[test]
fn power_is_lost_again_inside_recovery_when_the_limit_allows() {
    let mut lives_seen = BTreeSet::new();
    for cut_limit in [1, 2] {
        lives_seen.clear();
        explore(ExploreSettings::exhaustive(), |choices| {
            let settings = SimSettings { cut_limit, ..SimSettings::exploring(geometry()) };
            let settings = SimSettings { sector_bytes: BLOCK_BYTES, ..settings };
            let medium = SimMedium::new(settings, choices);
            let mut lives = 0;
            medium.run_lives(|mut device, life| {
                lives = life + 1;
                run_one(&mut device, IoRequest::write_durable(0, 0, filled(life as u8 + 1))).result?;
                Ok(())
            })?;
            lives_seen.insert((lives, medium.counters().planned_cuts));
            Ok(())
        })
        .assert_exhausted();
        let expected = (0..=cut_limit).map(|cuts| (2 + cuts, cuts)).collect();
        assert_eq!(lives_seen, expected);
    }
}

#[test]
fn an_error_counts_unless_power_was_lost_and_a_broken_promise_always_counts() {
    let medium = |power_cut| {
        SimMedium::new(SimSettings { power_cut, ..SimSettings::new(geometry()) }, &Choices::quiet())
    };
    let life = |mut device: SimDevice, number: u32| -> Result<(), Violation> {
        if number == 0 {
            run_one(&mut device, IoRequest::write(0, 0, filled(1))).result?;
        }
        Ok(())
    };
    assert!(medium(PowerCut::AtEvent(1)).run_lives(life).is_ok());
    let failing = medium(PowerCut::Never);
    failing.inject(Fault::new(FaultTarget::Write, FaultEffect::Fail));
    let violation = failing.run_lives(life).expect_err("an error with power on");
    assert!(violation.message().contains("life 0") && violation.message().contains("write failed"));
    let broken = medium(PowerCut::AtEvent(1)).run_lives(|device, number| {
        _ = life(device, number);
        Err("broken".into())
    });
    assert!(broken.is_err());
}

#[test]
fn one_question_a_life_can_place_the_cut() {
    let mut seen = BTreeSet::new();
    explore(ExploreSettings::exhaustive(), |choices| {
        let power_cut = PowerCut::Within { points: CutPoints::Every, last: 6 };
        let settings = SimSettings { power_cut, ..settings(DurableWriteScope::OwnSectors) };
        let medium = SimMedium::new(settings, choices);
        medium.run_lives(|mut device, life| {
            for block in 0..3 {
                run_one(&mut device, IoRequest::write_durable(0, block * BLOCK, filled(1))).result?;
            }
            if life == 1 {
                seen.insert(medium.counters().events);
            }
            Ok(())
        })
    })
    .assert_exhausted();
    // Life 0 sees 0 to 6 events, plus the one that power was lost in; life 1 six more.
    assert_eq!(seen, (7..=12).collect::<BTreeSet<u64>>());
}

#[test]
fn a_crashed_copy_is_what_a_cut_now_could_leave_and_the_medium_runs_on() {
    let mut seen = BTreeSet::new();
    explore(ExploreSettings::exhaustive(), |choices| {
        let medium = SimMedium::new(settings(DurableWriteScope::OwnSectors), &Choices::quiet());
        let mut device = medium.device();
        write_durable(&mut device, 0, 1);
        write(&mut device, 1, 2);
        device.submit(&mut vec![IoRequest::write(0, 2 * BLOCK, filled(3))]);
        let copy = medium.crashed_copy(choices);
        seen.insert([0, 1, 2].map(|block| first_byte(&mut copy.device(), block * BLOCK)));
        write_durable(&mut copy.device(), 0, 9);
        let mut completions = Vec::new();
        device.complete(Wait::All, &mut completions);
        assert!(completions.iter().all(|done| done.result.is_ok()));
        assert_eq!([0, 1, 2].map(|block| first_byte(&mut device, block * BLOCK)), [1, 2, 3]);
        Ok(())
    })
    .assert_exhausted();
    assert_eq!(seen, BTreeSet::from([[1, 0, 0], [1, 2, 0], [1, 0, 3], [1, 2, 3]]));
}
