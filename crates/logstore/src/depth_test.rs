use super::*;

/// Groups that each wait as long as `wait_us` says for the depth in use; how many were written at each depth
/// from 0 to 16 in the last tenth.
fn run(depth: &mut GroupDepth, groups: u64, wait_us: impl Fn(usize, u64) -> u64) -> Vec<u64> {
    let mut used = vec![0; 17];
    for group in 0..groups {
        let now = depth.now();
        if group >= groups - groups / 10 {
            used[now] += 1;
        }
        depth.durable(5, wait_us(now, group));
    }
    used
}

fn most(used: &[u64]) -> usize {
    (0..used.len()).max_by_key(|&depth| used[depth]).unwrap_or(0)
}

#[test]
fn where_writes_overlap_the_queue_gets_as_deep_as_pays() {
    let mut depth = GroupDepth::new(1, 16);
    // Each doubling up to four groups takes a third away; more take as much as they give.
    let used = run(&mut depth, 200_000, |now, _| [0, 900, 750, 680, 600, 600, 600, 600, 610][now.min(8)]);
    assert_eq!(most(&used), 4, "{used:?}");
}

#[test]
fn where_a_flush_is_device_wide_one_is_in_flight_and_trials_get_rare() {
    let mut depth = GroupDepth::new(1, 8);
    let used = run(&mut depth, 400_000, |now, _| 300 * now as u64);
    assert!(used[1] > 39_000 && used[2] <= 800, "{used:?}");
    assert_eq!(depth.kept, 1);
}

#[test]
fn a_small_gain_is_not_worth_smaller_groups_and_a_queue_that_gains_no_more_gets_shallow_again() {
    let mut depth = GroupDepth::new(1, 8);
    run(&mut depth, 100_000, |now, _| if now == 1 { 100 } else { 90 });
    assert_eq!(depth.kept, 1);
    run(&mut depth, 100_000, |now, _| 800 / now as u64);
    assert_eq!(depth.kept, 8);
    run(&mut depth, 200_000, |_, _| 100);
    assert_eq!(depth.kept, 1);
}

#[test]
fn a_load_that_drifts_does_not_look_like_a_gain() {
    let mut depth = GroupDepth::new(1, 8);
    // A tenth less to wait every window, until little is left, then from the beginning.
    run(&mut depth, 300_000, |_, group| {
        10_000 * 9u64.pow((group / 128 % 8) as u32) / 10u64.pow((group / 128 % 8) as u32)
    });
    assert_eq!(depth.kept, 1);
}

#[test]
fn equal_limits_are_kept_and_nothing_counts_without_records() {
    let mut depth = GroupDepth::new(3, 3);
    run(&mut depth, 10_000, |now, _| 100 / now as u64);
    assert_eq!((depth.now(), depth.groups), (3, 0));
    let mut depth = GroupDepth::new(0, 0);
    depth.durable(1, 1);
    assert_eq!(depth.now(), 1);
    let mut depth = GroupDepth::new(1, 8);
    depth.durable(0, 1);
    assert_eq!(depth.groups, 0);
    run(&mut depth, 10_000, |_, _| u64::MAX);
    assert_eq!(depth.kept, 1);
}
