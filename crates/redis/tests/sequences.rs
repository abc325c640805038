//! Sequences of commands beside a model, as the fuzz target `commands` makes them, from random bytes.

use crate::support;
use tierstone_base::SeededRandom;

#[test]
fn sequences_of_any_bytes_answer_as_the_model_does() {
    let from = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = from.map_or(0..1_500, |seed: u64| seed..seed + 1);
    for seed in seeds {
        let mut random = SeededRandom::new(seed);
        let mut bytes = vec![0; 50 + random.below(1_500) as usize];
        random.fill(&mut bytes);
        let run = std::panic::catch_unwind(|| support::sequences::check(&bytes));
        assert!(run.is_ok(), "seed {seed}: run again with SEED={seed}");
    }
}

#[test]
fn lines_of_any_words_are_answered() {
    let from = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = from.map_or(0..400, |seed: u64| seed..seed + 1);
    for seed in seeds {
        let mut random = SeededRandom::new(seed);
        let mut bytes = Vec::new();
        for _ in 0..random.below(40) {
            bytes.extend_from_slice(support::random_requests::request(&mut random).as_bytes());
            // Sometimes a byte becomes another, so that words are nearly right.
            if random.chance(0.3) {
                let at = bytes.len() - 1 - random.below(bytes.len().min(12) as u64) as usize;
                bytes[at] = random.next_u64() as u8;
            }
            bytes.push(b'\n');
        }
        let run = std::panic::catch_unwind(|| support::sequences::check_any(&bytes));
        assert!(run.is_ok(), "seed {seed}: run again with SEED={seed}");
    }
}
