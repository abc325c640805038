//! Which record an operation is for.
//!
//! Invariants:
//! 1. An index lies in `0..records`, whatever the settings and the random numbers.
//! 2. The same settings and random numbers give the same indexes (floating-point functions of another
//!    platform may differ in a last digit, and so, rarely, an index).
//!
//! Records are numbered from 0 in the order of their insertion.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tierstone_base::{Error, ErrorKind, Result, SeededRandom};
use tierstone_cache::trace::{ZIPF_THETA, Zipf};

use crate::zipf::ExactZipf;

/// The largest skew of Zipf's law that is accepted; at 20 all but one access in a million is for one key.
const THETA_MAX: f64 = 20.0;
/// Above this skew the generator of Gray et al. loses its precision, and the exact one is used.
const GRAY_THETA_MAX: f64 = 0.999;
/// The ranks over which YCSB draws before it scatters them over the records.
const YCSB_RANKS: u64 = 10_000_000_000;

/// How accesses spread over the records. As text: `uniform`, `zipf:0.99`, `scrambled-zipf:0.99`,
/// `latest:0.99`, `self-similar:0.2`, `hotspot:0.2:0.8`, `sequential`; numbers may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Distribution {
    /// Every record equally often.
    Uniform,
    /// Zipf's law with the first record the most frequent. Below 1 by Gray et al., "Quickly generating
    /// billion-record synthetic databases" (SIGMOD 1994), which takes a pass over all record numbers at
    /// the start (20 ns each); from 1 on exactly, by rejection-inversion.
    Zipf {
        /// The skew, above 0 and at most 20. Published benchmarks mostly use 0.99.
        theta: f64,
    },
    /// YCSB's "zipfian" (Cooper et al., SoCC 2010): Zipf over ten billion ranks, scattered over the
    /// records by a hash, so that the frequent records are not neighbours. Ranks are drawn exactly,
    /// where YCSB uses the approximation of Gray et al.
    ScrambledZipf {
        /// The skew, above 0 and at most 20. YCSB: 0.99.
        theta: f64,
    },
    /// YCSB's "latest": Zipf's law with the newest record the most frequent; follows the inserts.
    Latest {
        /// The skew, above 0 and at most 20. YCSB: 0.99.
        theta: f64,
    },
    /// Gray et al.: the first `skew` of the records get `1 - skew` of the accesses, and so on within
    /// each part. 0.2 is the 80-20 rule.
    SelfSimilar {
        /// Above 0, at most 0.5 (uniform).
        skew: f64,
    },
    /// YCSB's "hotspot": the first records, `key_share` of all, get `access_share` of the accesses,
    /// both parts uniformly.
    Hotspot {
        /// The hot part of the records, above 0 and below 1.
        key_share: f64,
        /// Its part of the accesses, from 0 to 1.
        access_share: f64,
    },
    /// One after the other, from the first again after the last. Several threads walk apart.
    Sequential,
}

impl Distribution {
    /// Zipf with the skew that YCSB and most papers use, 0.99.
    pub const ZIPF: Distribution = Distribution::Zipf { theta: ZIPF_THETA };
    /// YCSB's "zipfian", 0.99.
    pub const SCRAMBLED_ZIPF: Distribution = Distribution::ScrambledZipf { theta: ZIPF_THETA };
    /// YCSB's "latest", 0.99.
    pub const LATEST: Distribution = Distribution::Latest { theta: ZIPF_THETA };

    /// Whether all numbers lie in their ranges. Errors: `InvalidInput`, naming the number.
    pub fn validate(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::new(ErrorKind::InvalidInput, format!("{self}: {what}")));
        match *self {
            Distribution::Zipf { theta }
            | Distribution::ScrambledZipf { theta }
            | Distribution::Latest { theta }
                if !(theta > 0.0 && theta <= THETA_MAX) =>
            {
                refuse("the skew must lie above 0 and be at most 20")
            }
            Distribution::SelfSimilar { skew } if !(skew > 0.0 && skew <= 0.5) => {
                refuse("the skew must lie above 0 and be at most 0.5")
            }
            Distribution::Hotspot { key_share, access_share }
                if !(key_share > 0.0 && key_share < 1.0 && (0.0..=1.0).contains(&access_share)) =>
            {
                refuse("the share of keys must lie between 0 and 1, that of accesses from 0 to 1")
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Uniform => formatter.write_str("uniform"),
            Distribution::Zipf { theta } => write!(formatter, "zipf:{theta}"),
            Distribution::ScrambledZipf { theta } => write!(formatter, "scrambled-zipf:{theta}"),
            Distribution::Latest { theta } => write!(formatter, "latest:{theta}"),
            Distribution::SelfSimilar { skew } => write!(formatter, "self-similar:{skew}"),
            Distribution::Hotspot { key_share, access_share } => {
                write!(formatter, "hotspot:{key_share}:{access_share}")
            }
            Distribution::Sequential => formatter.write_str("sequential"),
        }
    }
}

impl FromStr for Distribution {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let refuse =
            |what: &str| Error::new(ErrorKind::InvalidInput, format!("distribution '{text}': {what}"));
        let mut number = |default: f64| match parts.next() {
            None => Ok(default),
            Some(digits) => digits.parse::<f64>().map_err(|_| refuse("not a number")),
        };
        let distribution = match name {
            "uniform" => Distribution::Uniform,
            "sequential" => Distribution::Sequential,
            "zipf" => Distribution::Zipf { theta: number(ZIPF_THETA)? },
            "scrambled-zipf" => Distribution::ScrambledZipf { theta: number(ZIPF_THETA)? },
            "latest" => Distribution::Latest { theta: number(ZIPF_THETA)? },
            "self-similar" => Distribution::SelfSimilar { skew: number(0.2)? },
            "hotspot" => Distribution::Hotspot { key_share: number(0.2)?, access_share: number(0.8)? },
            _ => return Err(refuse("unknown")),
        };
        if parts.next().is_some() {
            return Err(refuse("too many numbers"));
        }
        distribution.validate()?;
        Ok(distribution)
    }
}

/// Draws records; one for each thread ([`Clone`] saves the work of [`KeyChooser::new`]).
#[derive(Clone, Debug)]
pub struct KeyChooser {
    method: Method,
    /// Records at the start.
    records: u64,
}

#[derive(Clone, Debug)]
enum Method {
    Uniform,
    Gray(Zipf),
    Exact(ExactZipf),
    Scrambled(ExactZipf),
    Latest { theta: f64, ranks: ExactZipf },
    SelfSimilar { exponent: f64 },
    Hotspot { hot: u64, access_share: f64 },
    Sequential { next: u64 },
}

impl KeyChooser {
    /// A chooser over `records` records (one at least).
    ///
    /// Cost: O(1), but for [`Distribution::Zipf`] with a skew below 1: O(`records`).
    /// Errors: `InvalidInput` as of [`Distribution::validate`].
    pub fn new(distribution: Distribution, records: u64) -> Result<KeyChooser> {
        distribution.validate()?;
        let records = records.max(1);
        let method = match distribution {
            Distribution::Uniform => Method::Uniform,
            Distribution::Zipf { theta } if theta <= GRAY_THETA_MAX => {
                Method::Gray(Zipf::new(records, theta))
            }
            Distribution::Zipf { theta } => Method::Exact(ExactZipf::new(records, theta)),
            Distribution::ScrambledZipf { theta } => Method::Scrambled(ExactZipf::new(YCSB_RANKS, theta)),
            Distribution::Latest { theta } => Method::Latest { theta, ranks: ExactZipf::new(records, theta) },
            Distribution::SelfSimilar { skew } => {
                Method::SelfSimilar { exponent: skew.ln() / (1.0 - skew).ln() }
            }
            Distribution::Hotspot { key_share, access_share } => {
                let hot = ((records as f64 * key_share).round() as u64).clamp(1, records);
                Method::Hotspot { hot, access_share }
            }
            Distribution::Sequential => Method::Sequential { next: 0 },
        };
        Ok(KeyChooser { method, records })
    }

    /// Moves a sequential walk to where thread `thread` of `threads` begins; nothing for the others.
    pub fn start_apart(&mut self, thread: u64, threads: u64) {
        if let Method::Sequential { next } = &mut self.method {
            *next = (u128::from(self.records) * u128::from(thread) / u128::from(threads.max(1))) as u64;
        }
    }

    /// An index below `visible`, the records that exist by now (at least those of the start). Uniform,
    /// latest and sequential follow the growth; the others keep to the records of the start.
    pub fn choose(&mut self, random: &mut SeededRandom, visible: u64) -> u64 {
        let (records, visible) = (self.records, visible.max(self.records));
        match &mut self.method {
            Method::Uniform => random.below(visible),
            Method::Gray(ranks) => ranks.rank(random),
            Method::Exact(ranks) => ranks.rank(random),
            Method::Scrambled(ranks) => fnv1a(ranks.rank(random)) % records,
            Method::Latest { theta, ranks } => {
                if ranks.ranks() != visible {
                    *ranks = ExactZipf::new(visible, *theta);
                }
                visible - 1 - ranks.rank(random)
            }
            Method::SelfSimilar { exponent } => {
                ((records as f64 * random.unit().powf(*exponent)) as u64).min(records - 1)
            }
            Method::Hotspot { hot, access_share } => {
                if *hot == records || random.chance(*access_share) {
                    random.below(*hot)
                } else {
                    *hot + random.below(records - *hot)
                }
            }
            Method::Sequential { next } => {
                let index = *next % visible;
                *next = index + 1;
                index
            }
        }
    }
}

/// FNV-1a over the eight bytes of a number: the hash with which YCSB scatters.
pub(crate) fn fnv1a(number: u64) -> u64 {
    number
        .to_le_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
#[path = "distribution_test.rs"]
mod distribution_test;
