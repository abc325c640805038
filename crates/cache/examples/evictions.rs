//! Prints how often a store that evicts keys finds what it is asked for, by what it evicts: this store's `allkeys-lru`
//! (oldest written first, sparing what the record cache was asked for) and `allkeys-lfu` (a third of what the hand comes to)
//! beside least recently and least frequently used and random, as Markdown. `cargo run -p tierstone-cache --example evictions -- [PART]`: with a part of 100, a
//! hundredth of the requests and of the keys. The figures are in `docs/decisions/039-no-lfu.md` and
//! `docs/decisions/043-lfu-by-a-sketch.md`.

#![expect(clippy::expect_used, reason = "a measurement ends at the first surprise")]

use std::collections::{BTreeSet, VecDeque};
use tierstone_base::SeededRandom;
use tierstone_base::collections::Map;
use tierstone_cache::policy::{Lru, Policy, RecordCachePolicy, S3Fifo, S3FifoSettings, replay};
use tierstone_cache::trace::{Request, TraceSettings, ZIPF_THETA, shifting_hot_set, zipf, zipf_with_scans};
use tierstone_cache::{FrequencySketch, LeastUsed, RecordCache, RecordCacheSettings};

/// The record cache's part of what the store holds.
const CACHE_PART: u64 = 8;
/// Keys that Redis looks at for one that goes, and the constants of its counters (`lfu-log-factor`, its first value).
const SAMPLES: usize = 5;
const LOG_FACTOR: f64 = 10.0;
const COUNTER_INIT: u8 = 5;

/// This store's `allkeys-lru`: a hand goes round the keys in the order in which they were written; what the record
/// cache holds and was asked for since the hand was there is spared, once.
struct OldestWritten {
    capacity_bytes: u64,
    used_bytes: u64,
    /// Bytes, and whether it was asked for.
    keys: Map<u64, (u64, bool)>,
    written: VecDeque<u64>,
    cache: RecordCachePolicy,
}

impl OldestWritten {
    fn new(capacity_bytes: u64) -> tierstone_base::Result<Self> {
        let settings =
            RecordCacheSettings { capacity_bytes: capacity_bytes / CACHE_PART, ..Default::default() };
        Ok(OldestWritten {
            capacity_bytes,
            used_bytes: 0,
            keys: Map::default(),
            written: VecDeque::new(),
            cache: RecordCachePolicy::new(RecordCache::new(settings)?),
        })
    }
}

impl Policy for OldestWritten {
    fn access(&mut self, key: u64, bytes: u64, evicted: &mut Vec<u64>) -> bool {
        self.cache.access(key, bytes, &mut Vec::new());
        if let Some((_, is_asked)) = self.keys.get_mut(&key) {
            *is_asked = true;
            return true;
        }
        while self.used_bytes + bytes > self.capacity_bytes
            && let Some(oldest) = self.written.pop_front()
        {
            match self.keys.get_mut(&oldest) {
                Some((_, is_asked)) if *is_asked && self.cache.contains(oldest) => {
                    *is_asked = false;
                    self.written.push_back(oldest);
                }
                _ => {
                    self.remove(oldest);
                    evicted.push(oldest);
                }
            }
        }
        self.used_bytes += bytes;
        self.keys.insert(key, (bytes, false));
        self.written.push_back(key);
        false
    }

    fn remove(&mut self, key: u64) -> bool {
        self.cache.remove(key);
        let Some((bytes, _)) = self.keys.remove(&key) else { return false };
        self.used_bytes -= bytes;
        true
    }

    fn contains(&self, key: u64) -> bool {
        self.keys.contains_key(&key)
    }

    fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }
}

/// This store's `allkeys-lfu`: of the keys that the hand comes to the third goes that was asked for least.
struct LeastUsedThird {
    capacity_bytes: u64,
    used_bytes: u64,
    keys: Map<u64, u64>,
    written: VecDeque<u64>,
    sketch: FrequencySketch,
    least: LeastUsed,
}

impl LeastUsedThird {
    /// For as many keys of `key_bytes` as there is room for.
    fn new(capacity_bytes: u64, key_bytes: u64) -> Self {
        let (mut sketch, mut least) = (FrequencySketch::new(u64::MAX), LeastUsed::default());
        sketch.fit(capacity_bytes / key_bytes);
        least.fit(capacity_bytes / key_bytes);
        LeastUsedThird {
            capacity_bytes,
            used_bytes: 0,
            keys: Map::default(),
            written: VecDeque::new(),
            sketch,
            least,
        }
    }
}

impl Policy for LeastUsedThird {
    fn access(&mut self, key: u64, bytes: u64, evicted: &mut Vec<u64>) -> bool {
        self.sketch.add(key);
        if self.keys.contains_key(&key) {
            return true;
        }
        while self.used_bytes + bytes > self.capacity_bytes
            && let Some(oldest) = self.written.pop_front()
        {
            if self.least.look(self.sketch.estimate(oldest)) {
                self.remove(oldest);
                evicted.push(oldest);
            } else {
                self.written.push_back(oldest);
            }
        }
        self.used_bytes += bytes;
        self.keys.insert(key, bytes);
        self.written.push_back(key);
        false
    }

    fn remove(&mut self, key: u64) -> bool {
        let Some(bytes) = self.keys.remove(&key) else { return false };
        self.used_bytes -= bytes;
        true
    }

    fn contains(&self, key: u64) -> bool {
        self.keys.contains_key(&key)
    }

    fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }
}

/// Least frequently used, exactly, of the keys that are there; with dynamic ageing (LFU-DA: Arlitt and others, ACM
/// SIGMETRICS Performance Evaluation Review 27(4), 2000, section 4) what was popular once goes at last.
struct Lfu {
    capacity_bytes: u64,
    used_bytes: u64,
    ages: bool,
    age: u64,
    clock: u64,
    /// Bytes, priority and time of the last use.
    keys: Map<u64, (u64, u64, u64)>,
    order: BTreeSet<(u64, u64, u64)>,
}

impl Lfu {
    fn new(capacity_bytes: u64, ages: bool) -> Self {
        let (keys, order) = (Map::default(), BTreeSet::new());
        Lfu { capacity_bytes, used_bytes: 0, ages, age: 0, clock: 0, keys, order }
    }
}

impl Policy for Lfu {
    fn access(&mut self, key: u64, bytes: u64, evicted: &mut Vec<u64>) -> bool {
        self.clock += 1;
        if let Some((_, priority, used)) = self.keys.get_mut(&key) {
            self.order.remove(&(*priority, *used, key));
            (*priority, *used) = (*priority + 1, self.clock);
            self.order.insert((*priority, *used, key));
            return true;
        }
        while self.used_bytes + bytes > self.capacity_bytes
            && let Some(&(priority, _, least)) = self.order.first()
        {
            self.age = if self.ages { priority } else { 0 };
            self.remove(least);
            evicted.push(least);
        }
        self.used_bytes += bytes;
        self.keys.insert(key, (bytes, self.age + 1, self.clock));
        self.order.insert((self.age + 1, self.clock, key));
        false
    }

    fn remove(&mut self, key: u64) -> bool {
        let Some((bytes, priority, used)) = self.keys.remove(&key) else { return false };
        self.order.remove(&(priority, used, key));
        self.used_bytes -= bytes;
        true
    }

    fn contains(&self, key: u64) -> bool {
        self.keys.contains_key(&key)
    }

    fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }
}

/// What Redis does without its pool of candidates: of some keys drawn at random the one with the lowest counter goes,
/// or any one. A counter grows with a probability that falls as it grows, and loses one in every `decay` requests.
struct Sampled {
    capacity_bytes: u64,
    used_bytes: u64,
    counts: bool,
    decay: u64,
    clock: u64,
    random: SeededRandom,
    /// Place in `all`, bytes, counter, and when that was looked at.
    keys: Map<u64, (usize, u64, u8, u64)>,
    all: Vec<u64>,
}

impl Sampled {
    fn new(capacity_bytes: u64, counts: bool, decay: u64) -> Self {
        let (random, keys, all) = (SeededRandom::new(1), Map::default(), Vec::new());
        Sampled { capacity_bytes, used_bytes: 0, counts, decay, clock: 0, random, keys, all }
    }

    fn counter(&self, key: u64) -> u8 {
        let (_, _, counter, seen) = self.keys[&key];
        counter.saturating_sub(((self.clock - seen) / self.decay).min(255) as u8)
    }

    fn victim(&mut self) -> Option<u64> {
        let samples = if self.counts { SAMPLES } else { 1 };
        let count = self.all.len() as u64;
        let drawn: Vec<u64> =
            (0..samples.min(self.all.len())).map(|_| self.all[self.random.below(count) as usize]).collect();
        drawn.into_iter().min_by_key(|key| self.counter(*key))
    }
}

impl Policy for Sampled {
    fn access(&mut self, key: u64, bytes: u64, evicted: &mut Vec<u64>) -> bool {
        self.clock += 1;
        if self.keys.contains_key(&key) {
            let counter = self.counter(key);
            let base = f64::from(counter.saturating_sub(COUNTER_INIT));
            let grows = self.random.chance(1.0 / (base * LOG_FACTOR + 1.0));
            let (_, _, held, seen) = self.keys.get_mut(&key).expect("it is there");
            (*held, *seen) = (counter.saturating_add(u8::from(grows)), self.clock);
            return true;
        }
        while self.used_bytes + bytes > self.capacity_bytes
            && let Some(victim) = self.victim()
        {
            self.remove(victim);
            evicted.push(victim);
        }
        self.used_bytes += bytes;
        self.keys.insert(key, (self.all.len(), bytes, COUNTER_INIT, self.clock));
        self.all.push(key);
        false
    }

    fn remove(&mut self, key: u64) -> bool {
        let Some((place, bytes, ..)) = self.keys.remove(&key) else { return false };
        self.all.swap_remove(place);
        if let Some(moved) = self.all.get(place) {
            self.keys.get_mut(moved).expect("it is there").0 = place;
        }
        self.used_bytes -= bytes;
        true
    }

    fn contains(&self, key: u64) -> bool {
        self.keys.contains_key(&key)
    }

    fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }
}

fn main() -> tierstone_base::Result<()> {
    let part: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    let settings = TraceSettings {
        requests: 2_000_000 / part as usize,
        keys: 100_000 / part,
        bytes_min: 144,
        bytes_max: 144,
        seed: 42,
    };
    println!("Hit rates in percent; {} requests, {} keys of 144 B.\n", settings.requests, settings.keys);
    println!(
        "| trace | room | allkeys-lru here | allkeys-lfu here | LRU | LFU, exact | LFU with ageing | LFU, sampled as Redis | random | S3-FIFO over all |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    print_rows("Zipf 0.99", settings, &zipf(settings, ZIPF_THETA))?;
    print_rows("Zipf 0.8", settings, &zipf(settings, 0.8))?;
    print_rows("Zipf 0.99, 30 % scans", settings, &zipf_with_scans(settings, ZIPF_THETA, 0.3, 5000))?;
    let shifting = shifting_hot_set(settings, settings.keys / 20, 0.9, settings.requests / 10);
    print_rows("shifting hot set", settings, &shifting)
}

fn print_rows(name: &str, settings: TraceSettings, trace: &[Request]) -> tierstone_base::Result<()> {
    for percent in [10, 25, 50] {
        let capacity = settings.keys_bytes() * percent / 100;
        // Redis takes one from a counter a minute: here as often as the whole room is asked for twice.
        let decay = 2 * capacity / u64::from(settings.bytes_min);
        let counts = [
            replay(&mut OldestWritten::new(capacity)?, trace),
            replay(&mut LeastUsedThird::new(capacity, u64::from(settings.bytes_min)), trace),
            replay(&mut Lru::new(capacity), trace),
            replay(&mut Lfu::new(capacity, false), trace),
            replay(&mut Lfu::new(capacity, true), trace),
            replay(&mut Sampled::new(capacity, true, decay), trace),
            replay(&mut Sampled::new(capacity, false, decay), trace),
            replay(&mut S3Fifo::new(capacity, S3FifoSettings::default()), trace),
        ];
        let cells: Vec<String> =
            counts.iter().map(|count| format!("{:.2}", count.hit_rate() * 100.0)).collect();
        println!("| {name} | {percent} % | {} |", cells.join(" | "));
    }
    Ok(())
}
