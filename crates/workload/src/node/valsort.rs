//! Whether records are in order and which they are, as the sort benchmark's valsort tells: their number, the sum of
//! their CRC-32s (that of zlib, of all 100 bytes), and how many have the key of the one before.

use super::gensort::{KEY_BYTES, RECORD_BYTES};
use super::{Result, wrong};
use serde::Serialize;
use std::fmt;

type Key = [u8; KEY_BYTES];

/// What is known of records that came in some order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// How many.
    pub records: u64,
    /// The sum of their checksums, which does not depend on their order.
    #[serde(serialize_with = "hexadecimal")]
    pub checksum: u128,
    /// How many have the same key as the one before.
    pub duplicate_keys: u64,
    /// How many have a smaller key than the one before.
    pub unordered: u64,
    /// The place of the first of these, from 0.
    pub first_unordered: Option<u64>,
    /// Keys of the first record and of the last.
    #[serde(skip)]
    ends: Option<(Key, Key)>,
}

fn hexadecimal<S: serde::Serializer>(sum: &u128, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("{sum:x}"))
}

impl Summary {
    /// Of `records`, whole ones. Cost: reading them once.
    pub fn of(records: &[u8]) -> Summary {
        let mut summary = Summary::default();
        summary.take(records);
        summary
    }

    /// Goes on with `records`, whole ones.
    pub fn take(&mut self, records: &[u8]) {
        for record in records.as_chunks::<RECORD_BYTES>().0 {
            let mut key = [0; KEY_BYTES];
            key.copy_from_slice(&record[..KEY_BYTES]);
            self.follow(&key);
            self.records += 1;
            self.checksum = self.checksum.wrapping_add(u128::from(crc32fast::hash(record)));
            self.ends = Some((self.ends.map_or(key, |(first, _)| first), key));
        }
    }

    /// Goes on with records of which another has taken care.
    pub fn append(&mut self, other: &Summary) {
        let Some((other_first, other_last)) = other.ends else { return };
        self.follow(&other_first);
        if let (None, Some(place)) = (self.first_unordered, other.first_unordered) {
            self.first_unordered = Some(self.records + place);
        }
        self.records += other.records;
        self.checksum = self.checksum.wrapping_add(other.checksum);
        self.duplicate_keys += other.duplicate_keys;
        self.unordered += other.unordered;
        self.ends = Some((self.ends.map_or(other_first, |(first, _)| first), other_last));
    }

    /// Compares the key of the record to come with that of the last.
    fn follow(&mut self, key: &Key) {
        let Some((_, last)) = &self.ends else { return };
        if key < last {
            self.unordered += 1;
            self.first_unordered.get_or_insert(self.records);
        } else if key == last {
            self.duplicate_keys += 1;
        }
    }

    /// Whether keys rise, equal ones allowed.
    pub fn is_sorted(&self) -> bool {
        self.unordered == 0
    }

    /// That these records are in order, and those of `input`.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](tierstone_base::ErrorKind::Corrupt) if they are not.
    pub fn judge(&self, input: &Summary) -> Result<()> {
        if let Some(place) = self.first_unordered {
            return Err(wrong(format!(
                "{} records are not in order, the first is record {place}",
                self.unordered
            )));
        }
        if (self.records, self.checksum) != (input.records, input.checksum) {
            let told = |summary: &Summary| format!("{} with the sum {:x}", summary.records, summary.checksum);
            return Err(wrong(format!(
                "the records are not those of the input: {}, not {}",
                told(self),
                told(input)
            )));
        }
        Ok(())
    }
}

/// The lines of valsort.
impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = self.first_unordered {
            writeln!(formatter, "First unordered record is record {place}")?;
        }
        writeln!(formatter, "Records: {}", self.records)?;
        writeln!(formatter, "Checksum: {:x}", self.checksum)?;
        match self.unordered {
            0 => write!(
                formatter,
                "Duplicate keys: {}\nSUCCESS - all records are in order",
                self.duplicate_keys
            ),
            unordered => write!(formatter, "ERROR - there are {unordered} unordered records"),
        }
    }
}

#[cfg(test)]
#[path = "valsort_test.rs"]
mod valsort_test;
