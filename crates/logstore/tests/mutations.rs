//! Every rule of order of the log store, switched off: the explorer must see each.

use crate::common::lives::{Mix, Plan, Work, World};
use crate::common::sampling;
use tierstone_crash::{Choices, ExploreSettings, Mutations, Report, Violation, assert_caught};
use tierstone_media::sim::{CutPoints, Fault, PowerCut};

/// Explores `mix` with the rule `name` switched off; it must be caught within `runs`.
#[track_caller]
fn caught(name: &'static str, plan: Plan, mix: Mix, runs: u64) {
    caught_by(name, plan, runs, &|world, life, choices| mix.work(world, life, choices));
}

#[track_caller]
fn caught_by(
    name: &'static str,
    plan: Plan,
    runs: u64,
    work: &dyn Fn(&mut World<'_>, u32, &Choices) -> Result<(), Violation>,
) {
    let mutated = plan.clone().mutated(&Mutations::one(name));
    let report = assert_caught(name, || explored(&mutated, runs, work));
    // The very same runs must be clean when the rule holds.
    let tried = report.found.map_or(runs, |found| found.run + 1);
    explored(&plan, tried, work).assert_clean();
}

fn explored(
    plan: &Plan,
    runs: u64,
    work: &dyn Fn(&mut World<'_>, u32, &Choices) -> Result<(), Violation>,
) -> Report {
    // Minimising takes longer than finding, and the path is not looked at.
    let settings = ExploreSettings { max_minimise_runs: 20, ..ExploreSettings::random(4711, runs) };
    plan.explore(settings, work)
}

fn small() -> Plan {
    Plan::new(32 << 10, 12)
}

fn batches() -> Mix {
    Mix { batches: 60, value_bytes_max: 3_000, batch_len_max: 9, operations: 24, keys: 9, ..Mix::default() }
}

#[test]
fn groups_are_written_durably() {
    caught("write_without_flush", small(), Mix::default(), 300);
}

/// Loads of which several groups are on their way at a time.
fn loads() -> Mix {
    Mix { loads: 60, operations: 30, keys: 40, value_bytes_max: 3_000, settle_one_in: 30, ..Mix::default() }
}

#[test]
fn groups_of_loads_count_when_they_are_flushed() {
    caught("lazy_written_is_durable", Plan::new(32 << 10, 24), loads(), 600);
}

#[test]
fn a_flush_covers_what_had_been_written_before_it() {
    // Each group wants a flush of its own, and the next ones are on their way by then.
    let mut plan = Plan::new(64 << 10, 24).groups_in_flight(3);
    plan.open.shard.lazy_bytes_max = 1;
    plan.open.shard.group_bytes_max = 4 << 10;
    plan.open.shard.overlap_bytes = 1;
    caught("flush_covers_flying", plan, loads(), 2_000);
}

#[test]
fn replies_wait_for_the_durable_sequence() {
    caught("ungated_replies", small(), Mix::default(), 300);
}

#[test]
fn a_segment_is_sealed_when_its_groups_are_durable() {
    caught("seal_before_durable", small().groups_in_flight(3), batches(), 2_000);
}

#[test]
fn a_log_ends_at_its_first_gap() {
    caught("serve_past_gap", small().groups_in_flight(3), batches(), 1_000);
}

#[test]
fn a_batch_without_its_end_is_dropped() {
    caught("keep_partial_batches", small().groups_in_flight(3), batches(), 1_000);
}

#[test]
fn a_batch_that_ends_in_a_sealed_segment_is_kept() {
    // Batches longer than a segment, so that two seals are on their way at once.
    let mix = Mix { batch_len_max: 30, operations: 12, value_bytes_max: 2_500, ..batches() };
    caught("drop_batches_in_the_middle", Plan::new(32 << 10, 20).groups_in_flight(2), mix, 1_000);
}

#[test]
fn a_segment_waits_for_the_end_of_its_batch() {
    caught("batch_sealed_early", small().groups_in_flight(3), batches(), 2_000);
}

#[test]
fn a_torn_seal_is_repaired() {
    caught("torn_seal_not_repaired", small(), batches(), 1_000);
}

#[test]
fn tombstones_outlive_what_they_hide() {
    caught("drop_tombstones_early", Plan::new(32 << 10, 9).cut_one_in(400), Mix::cleaning(), 1_000);
}

#[test]
fn a_segment_with_a_few_dead_records_keeps_tombstones_too() {
    caught("few_dead_overlooked", Plan::new(32 << 10, 9).cut_one_in(400), Mix::cleaning(), 2_000);
}

/// Keys get a value in a segment that stays, then one that expires in a segment that is emptied.
#[test]
fn an_expired_record_hides_older_ones_until_they_are_gone() {
    let plan = Plan::new(32 << 10, 24).cut_one_in(400);
    caught_by("expired_without_trace", plan, 300, &|world, life, _| {
        let keys = life * 20..life * 20 + 4;
        for number in 0..12 {
            world.put(1_000 + life * 50 + number, 2_500)?;
        }
        for number in keys.clone() {
            world.put_versions(number, 100, &[None])?;
        }
        for number in 0..24 {
            world.put(number % 12, 2_500)?;
        }
        for number in keys {
            world.put_versions(number, 100, &[Some(10)])?;
            world.put_versions(number + 10, 500, &[Some(10)])?;
        }
        world.sync()?;
        world.advance(4_000);
        world.shards[0].now.monotonic_us += 2_000_000;
        world.settle(100);
        for number in 0..24 {
            world.put(number % 12, 2_500)?;
        }
        world.sync()?;
        world.settle(100);
        Ok(())
    });
}

#[test]
fn copies_are_durable_before_their_originals_go() {
    caught("free_before_copies_durable", Plan::new(32 << 10, 9).cut_one_in(300), Mix::cleaning(), 1_000);
}

#[test]
fn overwrites_are_durable_before_what_they_replace_goes() {
    // One key, overwritten after each recovery: the sealed segment that holds it is dead at once.
    let mut plan = Plan::new(32 << 10, 8);
    plan.open.shard.clean_below_free_fraction = 1.0;
    plan.sim.power_cut = PowerCut::Anywhere { points: CutPoints::BeforeDurable, one_in: 8 };
    caught_by("free_before_overwrites_durable", plan, 2_000, &|world, _, _| {
        for _ in 0..3 {
            world.put(1, 100)?;
            world.poll();
            world.poll();
        }
        world.sync()
    });
}

#[test]
fn a_segment_is_opened_again_when_its_free_header_is_durable() {
    caught("reuse_before_freed", Plan::new(32 << 10, 9).cut_one_in(200), Mix::cleaning(), 2_000);
}

#[test]
fn copies_are_what_the_index_points_to() {
    caught("copies_not_repointed", Plan::new(32 << 10, 9).cut_one_in(400), Mix::cleaning(), 300);
}

#[test]
fn a_mark_of_a_dead_record_is_not_taken_for_another_ones() {
    caught("marks_of_any_length", Plan::new(32 << 10, 9).cut_one_in(400), Mix::cleaning(), 300);
}

#[test]
fn no_opening_number_is_used_twice() {
    caught("reuse_open_count", small(), batches(), 1_000);
}

#[test]
fn the_opening_number_is_durable_before_its_first_use() {
    // The first group of an opening lands without the header before it; the next opening has the same
    // number, opens the same segment, and only its header lands.
    let mut plan = Plan::new(32 << 10, 6);
    plan.sim.power_cut = PowerCut::Anywhere { points: CutPoints::BeforeDurable, one_in: 3 };
    (plan.sim.cut_limit, plan.sim.end_cuts) = (4, 1);
    caught_by("superblock_not_durable", plan, 20_000, &|world, life, _| {
        world.put(life, 20)?;
        world.poll();
        world.sync()
    });
}

#[test]
fn old_footers_do_not_seal_new_segments() {
    caught("footer_of_any_generation", Plan::new(32 << 10, 9).cut_one_in(300), Mix::cleaning(), 500);
}

#[test]
fn checksums_depend_on_the_life_of_the_segment() {
    // Batches of records that end at the ends of sectors, in segments that are used again and again:
    // a torn group then finds old records where its own should be.
    let plan = Plan::new(32 << 10, 7).cut_one_in(60);
    caught_by("salt_without_generation", plan, 3_000, &|world, life, _| {
        let lives_operations = if life == 0 { 40 } else { 12 };
        for number in 0..lives_operations {
            let key = |at: u32| (number * 5 + at) % 9;
            // A group's header and the first record fill a sector, each further record one more.
            let head = 512 - 64 - 32 - 2;
            let rest = 512 - 32 - 2;
            let change = |at| (key(at), Some(if at == 0 { head } else { rest }));
            world.write(&[change(0), change(1), change(2), change(3), change(4)])?;
            if number % 3 == 0 {
                world.poll()
            } else {
                world.sync()?
            }
            world.settle(20);
        }
        Ok(())
    });
}

#[test]
fn records_of_equal_positions_say_so() {
    let mut plan = small();
    plan.open.weak_hash_bits = Some(0);
    caught("no_collides_flag", plan, Mix::default(), 300);
}

#[test]
fn what_a_dead_process_left_in_the_cache_is_flushed_first() {
    let mut plan = small();
    plan.kill_percent = 50;
    caught("no_flush_at_open", plan, Mix { operations: 20, batches: 20, ..Mix::default() }, 2_000);
}

#[test]
fn tombstones_outlive_segments_that_another_shard_still_needs() {
    let mix = Mix { operations: 120, keys: 30, deletes: 40, settle_one_in: 5, ..Mix::default() };
    let mut plan = Plan::new(32 << 10, 26).cut_one_in(2_000);
    plan.shards = vec![1, 3, 2, 1, 2];
    plan.sim.end_cuts = 4;
    caught("forget_shared_segments", plan, mix, 2_000);
}

#[test]
fn what_proves_the_end_of_a_log_is_kept() {
    // One key is overwritten until the open segment holds a single group; the segments before it are
    // empty then, and freed. Of two lengths, so that each is a record of its own.
    let mut plan = Plan::new(32 << 10, 12).cut_one_in(5_000).groups_in_flight(3);
    plan.open.shard.clean_below_free_fraction = 1.0;
    caught_by("free_what_proves_the_log", plan, 1_000, &|world, _, choices| {
        for number in 0..choices.choose(10, "puts") + 1 {
            world.put(1, 3_900 - 64 * (number as u32 % 2))?;
            if choices.choose(2, "poll") == 1 {
                world.poll();
            }
        }
        world.settle(300);
        world.sync()
    });
}

#[test]
fn seals_of_recovery_are_durable_before_anything_is_served() {
    let mut plan = Plan::new(32 << 10, 10).groups_in_flight(2).cut_one_in(60);
    (plan.sim.cut_limit, plan.sim.end_cuts) = (4, 2);
    caught(
        "seals_not_durable_at_open",
        plan,
        Mix { operations: 40, batches: 30, settle_one_in: 8, ..batches() },
        4_000,
    );
}

#[test]
fn summaries_of_ordered_keyspaces_carry_the_keys() {
    caught("summaries_without_keys", small().ordered(), Mix::default(), 100);
}

#[test]
fn a_deleted_key_leaves_the_order() {
    // Without crashes too: what is recovered is in order again.
    caught_by("deletes_stay_in_order", small().ordered(), 100, &|world, _, _| {
        world.put(1, 100)?;
        world.delete(1)?;
        world.sync()?;
        world.check()
    });
}

#[test]
fn a_new_key_comes_into_the_order() {
    caught_by("order_misses_new_keys", small().ordered(), 100, &|world, _, _| {
        world.put(1, 100)?;
        world.sync()?;
        world.check()
    });
}

#[test]
fn an_expired_key_leaves_the_order() {
    let mix = Mix { expiring: 20, ..Mix::cleaning() };
    let plan = Plan::new(32 << 10, 9).cut_one_in(400).ordered();
    let work: Work<'_> = &|world, life, choices| {
        mix.work(world, life, choices)?;
        world.advance(1_000);
        world.settle(200);
        world.check()
    };
    caught_by("expiry_leaves_order", plan, 500, work);
}

#[test]
fn a_delete_goes_past_a_record_that_cannot_be_read() {
    caught("deletes_ignore_unreadable", small(), Mix::default(), 500);
}

/// Work with pauses, in which checkpoints are written.
fn with_checkpoints() -> (Plan, Mix) {
    let mut plan = Plan::new(32 << 10, 24).checkpoints().cut_one_in(120);
    (plan.sim.cut_limit, plan.sim.end_cuts) = (4, 2);
    (plan, Mix { operations: 60, settle_one_in: 9, ..Mix::default() })
}

#[test]
fn a_checkpoint_is_committed_when_what_it_points_to_is_durable() {
    let (plan, mix) = with_checkpoints();
    caught("checkpoint_before_flush", plan, mix, 2_000);
}

#[test]
fn what_came_after_a_checkpoint_is_replayed() {
    let (plan, mix) = with_checkpoints();
    caught("tail_not_replayed", plan, mix, 300);
}

#[test]
fn a_checkpoint_from_before_cleaning_does_not_count() {
    let plan = Plan::new(32 << 10, 16).checkpoints().cut_one_in(400);
    caught("stale_checkpoint", plan, Mix::cleaning(), 1_000);
}

/// Two shards with batches over both.
fn two_shards() -> Plan {
    let mut plan = Plan::new(32 << 10, 24).cut_one_in(60);
    plan.shards = vec![2];
    plan
}

fn across() -> Mix {
    Mix { operations: 40, keys: 14, across: 60, batch_len_max: 5, ..Mix::default() }
}

/// The same with values that fill segments.
fn across_segments() -> Mix {
    Mix { operations: 60, value_bytes_max: 3_000, batch_len_max: 7, settle_one_in: 8, ..across() }
}

#[test]
fn a_batch_that_misses_a_part_is_dropped_everywhere() {
    caught("keep_undecided_batches", two_shards(), across(), 500);
}

#[test]
fn a_part_is_decided_when_all_parts_are_durable() {
    caught("durable_is_decided", two_shards(), across(), 500);
}

#[test]
fn a_log_calls_a_batch_decided_when_all_parts_are_durable() {
    caught("marked_early", two_shards(), across(), 1_000);
}

#[test]
fn a_segment_with_a_part_is_sealed_when_all_logs_call_the_batch_decided() {
    caught("part_sealed_early", two_shards(), across_segments(), 2_000);
}

#[test]
fn what_an_undecided_part_replaces_is_kept() {
    let mut plan = two_shards().cut_one_in(300);
    plan.open.shard.clean_below_free_fraction = 1.0;
    caught(
        "free_before_overwrites_decided",
        plan,
        Mix { keys: 6, operations: 80, ..across_segments() },
        4_000,
    );
}

#[test]
fn decisions_are_durable_before_a_segment_is_sealed() {
    let mut plan = two_shards().cut_one_in(25);
    (plan.sim.cut_limit, plan.sim.end_cuts) = (5, 2);
    caught("seal_before_decided", plan, Mix { operations: 16, ..across() }, 2_000);
}

#[test]
fn void_records_are_void_before_their_batches_are_called_decided() {
    let mut plan = two_shards().cut_one_in(25);
    (plan.sim.cut_limit, plan.sim.end_cuts) = (5, 2);
    caught("voids_not_durable", plan, Mix { operations: 16, ..across() }, 4_000);
}

#[test]
fn a_sealed_segment_tells_that_older_ones_hold_nothing_to_be_decided() {
    // A batch that reaches from one segment into the next, then writes that fill that one: seals of both
    // are on their way at once, and what calls the batch decided lies in the second.
    let mut plan = Plan::new(32 << 10, 60).groups_in_flight(3).cut_one_in(25);
    plan.shards = vec![2];
    caught_by("count_parts_before_seals", plan, 4_000, &|world, _, choices| {
        let changes: Vec<_> = (0..40).map(|at| (at, Some(1_500))).collect();
        world.write_across(&changes)?;
        world.sync()?;
        for at in 40..80 {
            world.put(at, 1_500)?;
        }
        for _ in 0..choices.choose(20, "polls") {
            world.poll();
        }
        world.sync()
    });
}

#[test]
fn a_lying_flush_is_found() {
    let plan = small();
    assert_caught("lying flush", || {
        let settings = ExploreSettings { max_minimise_runs: 20, ..ExploreSettings::random(4711, 300) };
        tierstone_crash::explore(settings, |choices| {
            plan.run(choices, &[Fault::lying_flush()], &|world, life, choices| {
                Mix::default().work(world, life, choices)
            })
        })
    });
}

#[test]
fn copies_for_ranges_are_durable_before_their_originals_go() {
    caught("clustered_copies_forgotten", sampling::scattered(30), sampling::walking(), 2_000);
}

#[test]
fn nothing_is_brought_together_while_a_checkpoint_counts() {
    let mut plan = sampling::scattered(40).checkpoints();
    (plan.sim.cut_limit, plan.sim.end_cuts) = (4, 2);
    caught("clustered_under_checkpoint", plan, Mix { touches: 40, ..sampling::walking() }, 2_000);
}

#[test]
fn a_torn_summary_costs_no_key_its_place_in_the_order() {
    let mut plan = sampling::scattered(40).checkpoints();
    (plan.sim.cut_limit, plan.sim.end_cuts) = (4, 2);
    plan.shards = vec![1, 2, 1];
    let mix = Mix { touches: 30, batches: 20, across: 10, ..sampling::walking() };
    caught("torn_summary_leaves_order", plan, mix, 4_000);
}
