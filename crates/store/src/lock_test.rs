use super::*;
use tierstone_base::SeededRandom;

fn positions(numbers: &[u64]) -> Vec<Position> {
    numbers.iter().copied().map(Position).collect()
}

#[test]
fn waiters_of_a_position_are_served_in_order() {
    let mut table = LockTable::default();
    assert!(table.enter(1, positions(&[5]), LockMode::Intent));
    assert!(!table.enter(2, positions(&[5]), LockMode::Intent));
    assert!(!table.enter(3, positions(&[5, 6]), LockMode::Exclusive));
    assert!(!table.blocks_reader(Position(5)), "an intent lets readers pass");
    let mut granted = Vec::new();
    table.leave(1, &mut granted);
    assert_eq!(granted, [2]);
    table.leave(2, &mut granted);
    assert_eq!(granted, [2, 3]);
    assert!(table.blocks_reader(Position(5)));
    assert!(table.blocks_writer(Position(6)));
    table.leave(3, &mut granted);
    assert!(table.is_empty() && table.queues.is_empty());
}

#[test]
fn a_waiter_that_gives_up_frees_those_behind_it() {
    let mut table = LockTable::default();
    table.enter(1, positions(&[1]), LockMode::Intent);
    table.enter(2, positions(&[1, 2]), LockMode::Intent);
    assert!(!table.enter(3, positions(&[2]), LockMode::Intent));
    let mut granted = Vec::new();
    table.leave(2, &mut granted);
    assert_eq!(granted, [3]);
    table.leave(1, &mut granted);
    table.leave(3, &mut granted);
    assert!(table.is_empty() && table.queues.is_empty());
}

#[test]
fn random_tasks_all_come_to_hold_their_positions_and_never_together() {
    for seed in 0..50 {
        let mut random = SeededRandom::new(seed);
        let mut table = LockTable::default();
        let mut holding: Vec<(TaskId, Vec<Position>)> = Vec::new();
        let mut waiting: Vec<(TaskId, Vec<Position>)> = Vec::new();
        let mut served = 0;
        for task in 0..300 {
            let wanted: Vec<u64> = (0..1 + random.below(3)).map(|_| random.below(8)).collect();
            if table.enter(task, positions(&wanted), LockMode::Intent) {
                holding.push((task, positions(&wanted)));
            } else {
                waiting.push((task, positions(&wanted)));
            }
            while !holding.is_empty() && (random.chance(0.5) || task == 299) {
                let (done, _) = holding.swap_remove(random.below(holding.len() as u64) as usize);
                served += 1;
                let mut granted = Vec::new();
                table.leave(done, &mut granted);
                for task in granted {
                    let index = waiting.iter().position(|(other, _)| *other == task).unwrap();
                    let entry = waiting.remove(index);
                    let overlaps = holding.iter().any(|(_, held)| held.iter().any(|p| entry.1.contains(p)));
                    assert!(!overlaps, "seed {seed}: two tasks hold one position");
                    holding.push(entry);
                }
            }
        }
        assert_eq!((served, waiting.len()), (300, 0), "seed {seed}");
        assert!(table.is_empty() && table.queues.is_empty(), "seed {seed}");
    }
}
