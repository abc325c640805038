//! The keys of numbered records.
//!
//! Invariant: two numbers below 10^`digits` never share a key, whatever the sizes: the number is
//! written with a fixed width, before the padding.

use serde::{Deserialize, Serialize};
use tierstone_base::{Error, ErrorKind, Result};

/// The largest key or value, in bytes: Redis's default bound of one argument.
pub const SIZE_MAX_BYTES: u32 = 512 << 20;
/// Digits of the largest 64-bit number.
const DIGITS_MAX: usize = 20;
/// The most sizes in a list.
const LIST_LEN_MAX: usize = 65_536;

/// Sizes in bytes; a record's size depends on its number (and version) only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SizeDistribution {
    /// Always this size.
    Fixed(u32),
    /// Every size from `min` to `max` equally often.
    Uniform {
        /// The smallest.
        min: u32,
        /// The largest.
        max: u32,
    },
    /// Every entry equally often; name one twice to double its share. At most 65,536 entries.
    List(Vec<u32>),
}

impl SizeDistribution {
    /// The size that 64 random bits choose.
    #[inline]
    pub fn pick(&self, bits: u64) -> u32 {
        let below = |bound: u64| ((u128::from(bits) * u128::from(bound)) >> 64) as u64;
        match self {
            SizeDistribution::Fixed(size) => *size,
            SizeDistribution::Uniform { min, max } => {
                min + below(u64::from(max.saturating_sub(*min)) + 1) as u32
            }
            SizeDistribution::List(sizes) => {
                sizes.get(below(sizes.len() as u64) as usize).copied().unwrap_or(0)
            }
        }
    }

    /// The largest size that can come.
    pub fn max(&self) -> u32 {
        match self {
            SizeDistribution::Fixed(size) => *size,
            SizeDistribution::Uniform { max, .. } => *max,
            SizeDistribution::List(sizes) => sizes.iter().copied().max().unwrap_or(0),
        }
    }

    /// The mean size in bytes.
    pub fn mean(&self) -> f64 {
        match self {
            SizeDistribution::Fixed(size) => f64::from(*size),
            SizeDistribution::Uniform { min, max } => (f64::from(*min) + f64::from(*max)) / 2.0,
            SizeDistribution::List(sizes) => {
                sizes.iter().map(|size| f64::from(*size)).sum::<f64>() / sizes.len().max(1) as f64
            }
        }
    }

    /// Errors: `InvalidInput` for an empty range or list, or a size above [`SIZE_MAX_BYTES`].
    pub fn validate(&self) -> Result<()> {
        let is_empty = match self {
            SizeDistribution::Fixed(_) => false,
            SizeDistribution::Uniform { min, max } => min > max,
            SizeDistribution::List(sizes) => sizes.is_empty() || sizes.len() > LIST_LEN_MAX,
        };
        if is_empty || self.max() > SIZE_MAX_BYTES {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("sizes {self:?}: needs one size at least (65,536 at most), none above 512 MiB"),
            ));
        }
        Ok(())
    }
}

/// Whether neighbours in number are neighbours in key order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyOrder {
    /// The number itself: insertion is in key order.
    #[default]
    Ordered,
    /// A one-to-one hash of the number, as YCSB does by default: needs 20 digits.
    Hashed,
}

/// How a record's number becomes its key: prefix, number in decimal with a fixed width, padding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeyFormat {
    /// What all keys begin with. Default `key:`.
    pub prefix: String,
    /// The width of the number, 1 to 20. Default 12.
    pub digits: usize,
    /// Whether the number is hashed.
    pub order: KeyOrder,
    /// Whole sizes of keys in bytes; shorter keys are padded with `x`. Default none: prefix and number.
    pub size: Option<SizeDistribution>,
}

impl Default for KeyFormat {
    fn default() -> Self {
        KeyFormat { prefix: "key:".into(), digits: 12, order: KeyOrder::Ordered, size: None }
    }
}

impl KeyFormat {
    /// Errors: `InvalidInput` when numbers below `records` do not fit, or a key would be too long.
    pub fn validate(&self, records: u64) -> Result<()> {
        let refuse =
            |what: &str| Err(Error::new(ErrorKind::InvalidInput, format!("the format of keys: {what}")));
        if !(1..=DIGITS_MAX).contains(&self.digits) {
            return refuse("digits must be 1 to 20");
        }
        if self.order == KeyOrder::Hashed && self.digits < DIGITS_MAX {
            return refuse("hashed numbers need 20 digits");
        }
        if self.digits < DIGITS_MAX && records > 10u64.pow(self.digits as u32) {
            return refuse("too few digits for so many records");
        }
        if self.prefix.len() > SIZE_MAX_BYTES as usize / 2 {
            return refuse("the prefix is too long");
        }
        self.size.as_ref().map_or(Ok(()), SizeDistribution::validate)
    }

    /// The size of the key of record `id`, in bytes.
    #[inline]
    pub fn size_of(&self, id: u64) -> usize {
        let least = self.prefix.len() + self.digits;
        self.size.as_ref().map_or(least, |size| least.max(size.pick(mix(id)) as usize))
    }

    /// Appends the key of record `id` to `out`. Allocates nothing but room in `out`.
    #[inline]
    pub fn append(&self, id: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(self.prefix.as_bytes());
        let mut number = if self.order == KeyOrder::Hashed { mix(id) } else { id };
        let mut text = [b'0'; DIGITS_MAX];
        for digit in text[DIGITS_MAX - self.digits..].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        out.extend_from_slice(&text[DIGITS_MAX - self.digits..]);
        if self.size.is_some() {
            out.resize(start + self.size_of(id), b'x');
        }
    }

    /// The key of record `id`.
    pub fn key(&self, id: u64) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.size_of(id));
        self.append(id, &mut key);
        key
    }
}

/// A one-to-one scattering of 64-bit numbers (the finaliser of SplitMix64: Steele, Lea, Flood,
/// "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[inline]
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
#[path = "key_test.rs"]
mod key_test;
