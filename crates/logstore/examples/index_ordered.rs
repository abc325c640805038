//! Measures the ordered index: bytes a key and nanoseconds an operation. Run in release: `cargo run
//! --release --example index_ordered -p tierstone-logstore [KEYS]`.

use std::hint::black_box;
use std::ops::Bound;
use std::time::Instant;
use tierstone_base::SeededRandom;
use tierstone_logstore::index::{Direction, OrderedIndex};

/// Nanoseconds that this thread has been running, where the system tells (Linux), else since
/// `started`; so that other programs on the machine disturb the numbers less.
fn running_ns(started: Instant) -> u128 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let running = text.and_then(|text| text.split(' ').next()?.parse().ok());
    running.unwrap_or_else(|| started.elapsed().as_nanos())
}

fn measure(name: &str, keys: &[Vec<u8>]) -> Result<(), String> {
    let count = keys.len() as u128;
    #[expect(clippy::disallowed_methods, reason = "a measuring program")]
    let started = Instant::now();
    let now = || running_ns(started);
    let mut index = OrderedIndex::new(u64::MAX);
    let before = now();
    for key in keys {
        index.insert(key).map_err(|error| error.to_string())?;
    }
    let insert_ns = (now() - before) / count;
    let before = now();
    keys.iter().for_each(|key| {
        black_box(index.contains(key));
    });
    let get_ns = (now() - before) / count;
    let mut walk_ns = [0; 2];
    for (spent, direction) in walk_ns.iter_mut().zip([Direction::Forward, Direction::Backward]) {
        let before = now();
        let all = (Bound::Unbounded, Bound::Unbounded);
        index.range(all.0, all.1, usize::MAX, direction, |key| {
            black_box(key);
            true
        });
        *spent = (now() - before) / count;
    }
    println!(
        "{name}: {:.1} bytes a key, insert {insert_ns} ns, get {get_ns} ns, forward {} ns and \
         backward {} ns a key",
        index.memory_bytes() as f64 / count as f64,
        walk_ns[0],
        walk_ns[1]
    );
    Ok(())
}

fn main() -> Result<(), String> {
    let argument = std::env::args().nth(1);
    let count = argument.and_then(|text| text.parse().ok()).unwrap_or(1_000_000u64);
    let mut random = SeededRandom::new(42);
    fn drawn(random: &mut SeededRandom, count: u64, form: impl Fn(u64) -> Vec<u8>) -> Vec<Vec<u8>> {
        (0..count).map(|_| form(random.next_u64())).collect()
    }
    let random_keys = drawn(&mut random, count, |any| format!("{any:016x}").into_bytes());
    measure("16 random hexadecimal digits", &random_keys)?;
    let user_keys =
        drawn(&mut random, count, |any| format!("user:{:012}:profile", any % 1_000_000_000_000).into_bytes());
    measure("user:<12 random digits>:profile", &user_keys)?;
    let rising: Vec<Vec<u8>> = (0..count).map(|n| format!("event:{n:012}").into_bytes()).collect();
    measure("event:<12 rising digits>", &rising)?;
    for len in [8, 16, 32, 64] {
        let keys: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                let mut key = vec![0; len];
                random.fill(&mut key);
                key
            })
            .collect();
        measure(&format!("{len} random bytes"), &keys)?;
    }
    Ok(())
}
