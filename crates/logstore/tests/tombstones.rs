//! Keys that come and go beside data that stay: their deletions do not fill a store.

use crate::common;
use crate::common::lives::KEYSPACE;
use crate::common::{Store, open_on, small_settings};
use tierstone_base::{ErrorKind, SeededRandom};
use tierstone_crash::Mutations;
use tierstone_engine::{Engine, Write, WriteKind};
use tierstone_logstore::OpenSettings;
use tierstone_media::Wait;

/// What is written. Plain data.
#[derive(Clone, Copy, Debug)]
struct Churn {
    /// Keys that stay, and one of them is written anew once in so many pairs of a write and a deletion; never for zero.
    lasting: u64,
    overwritten_one_in: u64,
    /// Keys that come and go, and how many of these are there at a time, in any order or the oldest first.
    pairs: u64,
    there: usize,
    any_order: bool,
    value_bytes: u64,
}

/// Keys that stay have numbers below this.
const COMING: u64 = 1 << 32;

struct Run {
    store: Store,
    random: SeededRandom,
    churn: Churn,
    there: Vec<u64>,
    writes: u64,
}

impl Run {
    fn write(&mut self, number: u64, is_there: bool) -> Result<(), String> {
        let value = vec![number as u8; self.churn.value_bytes as usize];
        let kind = match is_there {
            true => WriteKind::Put { value: &value, expiry_ms: 0, kind: Default::default() },
            false => WriteKind::Delete,
        };
        let key = number.to_le_bytes();
        let write = [Write { key: self.store.key(KEYSPACE, &key), kind }];
        for _ in 0..100_000 {
            match self.store.engine.write(self.store.now, &write) {
                Ok(_) => {
                    self.writes += 1;
                    // Some share a group.
                    if self.writes.is_multiple_of(16) {
                        self.store.turn(Wait::Poll);
                    }
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Retry => {
                    self.store.turn(Wait::One);
                    if let Some(at_us) = self.store.engine.next_step_at_us() {
                        let now = &mut self.store.now;
                        now.monotonic_us = now.monotonic_us.max(at_us);
                    }
                }
                Err(error) => return Err(format!("write {}: {error}", self.writes)),
            }
        }
        Err(format!("write {} waits for ever", self.writes))
    }

    fn go(&mut self) -> Result<(), String> {
        let churn = self.churn;
        for number in 0..churn.lasting {
            self.write(number, true)?;
        }
        for pair in 0..churn.pairs {
            self.write(COMING + pair, true)?;
            self.there.push(COMING + pair);
            if self.there.len() > churn.there {
                let last = self.there.len() as u64 - 1;
                let at = if churn.any_order { self.random.below(last) as usize } else { 0 };
                let number = self.there.remove(at);
                self.write(number, false)?;
            }
            if churn.overwritten_one_in > 0 && self.random.below(churn.overwritten_one_in) == 0 {
                let number = self.random.below(churn.lasting);
                self.write(number, true)?;
            }
        }
        Ok(())
    }

    /// Whether all that is to be there is, and nothing else.
    fn verify(&mut self) {
        let keys = self.churn.lasting + self.there.len() as u64;
        assert_eq!(self.store.engine.len(KEYSPACE), keys, "{:?}", self.churn);
        let lasting: Vec<u64> = (0..self.churn.lasting).step_by(7).collect();
        for number in lasting.iter().chain(&self.there) {
            let found = self.store.get(KEYSPACE, &number.to_le_bytes()).unwrap();
            assert!(found.is_some_and(|(_, value)| value.first() == Some(&(*number as u8))), "key {number}");
        }
    }
}

/// Bytes that were written in all for each that users wrote, or what was refused.
fn follow(churn: Churn, settings: &OpenSettings, seed: u64) -> Result<f64, String> {
    let medium = common::medium(64 << 10, 100);
    let (store, _) = open_on(medium.device(), settings).unwrap();
    let mut run = Run { store, random: SeededRandom::new(seed), churn, there: Vec::new(), writes: 0 };
    run.go()?;
    run.store.sync().unwrap();
    run.verify();
    let statistics = run.store.engine.statistics();
    let written = statistics.record_bytes_written + statistics.cleaned_bytes_written;
    let amplification = written as f64 / statistics.user_bytes_written as f64;
    // What a crash leaves says the same.
    drop(run.store);
    (run.store, _) = open_on(medium.device(), settings).unwrap();
    run.verify();
    Ok(amplification)
}

/// Of 6.4 MB that the store has, those that stay take two thirds.
const QUEUE: Churn = Churn {
    lasting: 3_300,
    overwritten_one_in: 0,
    pairs: 40_000,
    there: 50,
    any_order: false,
    value_bytes: 1_000,
};

fn all() -> Vec<Churn> {
    let small = Churn { lasting: 20_000, pairs: 80_000, value_bytes: 100, ..QUEUE };
    let written_anew = |churn: Churn| Churn { overwritten_one_in: 30, ..churn };
    let in_any_order = |churn: Churn| Churn { any_order: true, there: 500, ..churn };
    let half = Churn { lasting: 10_000, ..small };
    let full = Churn { lasting: 22_500, pairs: 40_000, ..small };
    vec![
        QUEUE,
        written_anew(QUEUE),
        small,
        in_any_order(small),
        written_anew(small),
        in_any_order(written_anew(small)),
        written_anew(half),
        full,
        in_any_order(written_anew(Churn { lasting: 21_500, ..full })),
    ]
}

fn settings() -> OpenSettings {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 4 << 20;
    settings
}

#[test]
fn keys_that_come_and_go_do_not_fill_a_store_with_their_deletions() {
    for (seed, churn) in (1..).zip(all()) {
        let found = follow(churn, &settings(), seed).unwrap_or_else(|text| panic!("{churn:?}: {text}"));
        println!("{churn:?}: {found:.2} bytes written for each");
    }
}

#[test]
fn without_the_rule_they_do() {
    let mut mutated = settings();
    mutated.mutations = Mutations::one("tombstones_fill_the_store");
    let refused = all().into_iter().filter(|churn| follow(*churn, &mutated, 1).is_err()).count();
    println!("{refused} of {} are refused", all().len());
    assert!(refused >= all().len() / 2, "{refused} were refused without the rule");
}
