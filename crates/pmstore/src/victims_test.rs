use super::*;
use crate::blocks::{Block, Role};
use std::collections::BTreeMap;
use tierstone_base::SeededRandom;

const BLOCK_BYTES: u32 = 4096;

fn table(blocks: u32) -> BlockTable {
    let mut table = BlockTable::new(4);
    for number in 0..blocks {
        table.insert(number, Block::new(1, 64, Role::Full, BLOCK_BYTES));
    }
    table
}

#[test]
fn the_block_with_most_free_space_is_found_whatever_changes() {
    for seed in 1..4 {
        let mut random = SeededRandom::new(seed);
        let (mut table, mut victims) = (table(32), Victims::new(BLOCK_BYTES));
        let mut classes = BTreeMap::<u32, u32>::new();
        for step in 0..20_000 {
            let number = random.below(32) as u32;
            if random.below(4) == 0 {
                victims.take_out(&mut table, number);
                classes.remove(&number);
            } else {
                let free = random.below(u64::from(BLOCK_BYTES) + 1) as u32;
                victims.put(&mut table, number, free);
                classes.insert(number, victims.class_of(free));
            }
            let skipped = random.below(32) as u32;
            let least = random.below(u64::from(BLOCK_BYTES)) as u32;
            let found = victims.find(&table, least, |number| number != skipped);
            let others = classes.iter().filter(|(number, _)| **number != skipped).map(|(_, class)| *class);
            let best = others.max().filter(|class| *class >= victims.class_of(least));
            assert_eq!(found.map(|number| classes[&number]), best, "seed {seed}, step {step}");
        }
    }
}

#[test]
fn of_one_class_the_block_that_came_first_is_first() {
    let (mut table, mut victims) = (table(3), Victims::new(BLOCK_BYTES));
    for number in [2, 0, 1] {
        victims.put(&mut table, number, 1_000);
    }
    // No other class: it keeps its place.
    victims.put(&mut table, 2, 1_001);
    assert_eq!(victims.find(&table, 0, |_| true), Some(2));
    victims.take_out(&mut table, 2);
    assert_eq!(victims.find(&table, 0, |_| true), Some(0));
    victims.put(&mut table, 1, 4_000);
    assert_eq!(victims.find(&table, 0, |_| true), Some(1));
    assert_eq!(victims.find(&table, 4_090, |_| true), None);
}
