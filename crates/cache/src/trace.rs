//! Seeded access patterns for comparing caches.
//!
//! Invariants:
//! 1. The same settings and seed give the same trace on every machine.
//! 2. A key has one size in a trace.

use tierstone_base::SeededRandom;

/// One access of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The key.
    pub key: u64,
    /// The size of the key's entry, in bytes.
    pub bytes: u32,
}

/// What all traces have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSettings {
    /// Length of the trace.
    pub requests: usize,
    /// Keys that are asked for again and again (a scan's keys come on top).
    pub keys: u64,
    /// The smallest entry, in bytes.
    pub bytes_min: u32,
    /// The largest entry, in bytes; sizes between the two are equally frequent.
    pub bytes_max: u32,
    /// The seed.
    pub seed: u64,
}

impl TraceSettings {
    /// Bytes of all `keys` keys on average: what "10 % cache size" is a part of.
    pub fn keys_bytes(&self) -> u64 {
        self.keys * (u64::from(self.bytes_min) + u64::from(self.bytes_max)) / 2
    }

    fn request(&self, key: u64) -> Request {
        let spread = u64::from(self.bytes_max.saturating_sub(self.bytes_min)) + 1;
        let share = ((u128::from(mix(key)) * u128::from(spread)) >> 64) as u32;
        Request { key, bytes: self.bytes_min + share }
    }
}

/// The skew that the YCSB and most papers use.
pub const ZIPF_THETA: f64 = 0.99;

/// Draws ranks from a Zipf distribution in constant time.
///
/// Gray, Sundaresan, Englert, Baclawski, Weinberger: "Quickly generating billion-record synthetic
/// databases" (SIGMOD 1994). Exact for ranks 0 and 1, a close approximation for the rest.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    items: u64,
    alpha: f64,
    zeta_items: f64,
    zeta_two: f64,
    eta: f64,
}

impl Zipf {
    /// Ranks 0 to `items - 1` (one rank at least) with skew `theta`, between 0 and 1 exclusive.
    /// Cost: O(`items`) once.
    pub fn new(items: u64, theta: f64) -> Zipf {
        let items = items.max(1);
        let theta = theta.clamp(0.0, 0.9999);
        let zeta = |count: u64| (1..=count).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        let (zeta_items, zeta_two) = (zeta(items), zeta(2.min(items)));
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - zeta_two / zeta_items);
        Zipf { items, alpha: 1.0 / (1.0 - theta), zeta_items, zeta_two, eta }
    }

    /// A rank; 0 is the most frequent.
    pub fn rank(&self, random: &mut SeededRandom) -> u64 {
        let unit = random.unit();
        let scaled = unit * self.zeta_items;
        if scaled < 1.0 || self.items == 1 {
            return 0;
        }
        if scaled < self.zeta_two {
            return 1;
        }
        let rank = (self.items as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha)) as u64;
        rank.min(self.items - 1)
    }
}

/// Spreads ranks over all 64-bit keys; no two ranks share a key.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Independent requests by Zipf's law.
pub fn zipf(settings: TraceSettings, theta: f64) -> Vec<Request> {
    let mut random = SeededRandom::new(settings.seed);
    let ranks = Zipf::new(settings.keys, theta);
    (0..settings.requests).map(|_| settings.request(mix(ranks.rank(&mut random)))).collect()
}

/// Zipf's law, broken into by scans: runs of `scan_length` keys that are asked for once, in order,
/// and make up `scan_share` (0 to 1) of all requests.
pub fn zipf_with_scans(
    settings: TraceSettings,
    theta: f64,
    scan_share: f64,
    scan_length: usize,
) -> Vec<Request> {
    let mut random = SeededRandom::new(settings.seed);
    let ranks = Zipf::new(settings.keys, theta);
    // Scans start so often that they and the requests between them have their shares.
    let start_probability = scan_share / ((1.0 - scan_share).max(1e-9) * scan_length.max(1) as f64);
    let mut next_scanned = settings.keys;
    let mut trace = Vec::with_capacity(settings.requests);
    while trace.len() < settings.requests {
        if random.chance(start_probability) {
            let length = scan_length.min(settings.requests - trace.len()) as u64;
            trace.extend((next_scanned..next_scanned + length).map(|rank| settings.request(mix(rank))));
            next_scanned += length;
        } else {
            trace.push(settings.request(mix(ranks.rank(&mut random))));
        }
    }
    trace
}

/// A hot set of `hot_keys` keys that gets `hot_share` (0 to 1) of the requests, each of its keys
/// equally often; the rest goes to all keys. Every `period` requests half of the hot set is
/// replaced by keys that were cold.
pub fn shifting_hot_set(
    settings: TraceSettings,
    hot_keys: u64,
    hot_share: f64,
    period: usize,
) -> Vec<Request> {
    let mut random = SeededRandom::new(settings.seed);
    let keys = settings.keys.max(1);
    let hot_keys = hot_keys.clamp(1, keys);
    let mut hot_start = 0;
    (0..settings.requests)
        .map(|index| {
            if index > 0 && index % period.max(1) == 0 {
                hot_start += hot_keys.div_ceil(2);
            }
            let rank = if random.chance(hot_share) {
                (hot_start + random.below(hot_keys)) % keys
            } else {
                random.below(keys)
            };
            settings.request(mix(rank))
        })
        .collect()
}

#[cfg(test)]
#[path = "trace_test.rs"]
mod trace_test;
