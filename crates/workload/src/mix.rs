//! Which kinds of operations, in what shares.

use std::fmt;

use serde::{Deserialize, Serialize};
use tierstone_base::{Error, ErrorKind, Result, SeededRandom};

/// What an operation does with its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// Reads one record.
    Get,
    /// Overwrites one record.
    Set,
    /// Writes a record that is new.
    Insert,
    /// Reads records with successive keys.
    Scan,
    /// Reads one record, then overwrites it; its latency covers both.
    ReadModifyWrite,
    /// Reads one record, and writes it if it is not there, as callers of a cache do; its latency covers both.
    ReadThrough,
}

impl OperationKind {
    /// All kinds, in the order of their declaration.
    pub const ALL: [OperationKind; 6] = [
        OperationKind::Get,
        OperationKind::Set,
        OperationKind::Insert,
        OperationKind::Scan,
        OperationKind::ReadModifyWrite,
        OperationKind::ReadThrough,
    ];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            OperationKind::Get => "get",
            OperationKind::Set => "set",
            OperationKind::Insert => "insert",
            OperationKind::Scan => "scan",
            OperationKind::ReadModifyWrite => "read_modify_write",
            OperationKind::ReadThrough => "read_through",
        }
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The share of each kind; all together 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mix {
    /// Share of [`OperationKind::Get`].
    pub get: f64,
    /// Share of [`OperationKind::Set`].
    pub set: f64,
    /// Share of [`OperationKind::Insert`].
    pub insert: f64,
    /// Share of [`OperationKind::Scan`].
    pub scan: f64,
    /// Share of [`OperationKind::ReadModifyWrite`].
    pub read_modify_write: f64,
    /// Share of [`OperationKind::ReadThrough`].
    pub read_through: f64,
}

impl Mix {
    /// Reads only.
    pub const GET: Mix = Mix { get: 1.0, ..Mix::NONE };
    /// Overwrites only.
    pub const SET: Mix = Mix { set: 1.0, ..Mix::NONE };
    /// Reads of a cache only: what is not there is written.
    pub const READ_THROUGH: Mix = Mix { read_through: 1.0, ..Mix::NONE };
    const NONE: Mix =
        Mix { get: 0.0, set: 0.0, insert: 0.0, scan: 0.0, read_modify_write: 0.0, read_through: 0.0 };

    /// Overwrites with share `put_ratio` (0 to 1), reads otherwise.
    pub fn puts(put_ratio: f64) -> Mix {
        Mix { get: 1.0 - put_ratio, set: put_ratio, ..Mix::default() }
    }

    /// The put-ratio sweep of FAWN (Andersen et al., SOSP 2009): put ratios 0 to 1 in `steps` equal
    /// steps, both ends included; with 0 steps only the reads.
    pub fn put_ratio_sweep(steps: u32) -> Vec<(f64, Mix)> {
        let ratio = |step: u32| f64::from(step) / f64::from(steps.max(1));
        (0..=steps).map(|step| (ratio(step), Mix::puts(ratio(step)))).collect()
    }

    /// Errors: `InvalidInput` when a share is negative or not a number, or the sum is not 1 (to a
    /// millionth).
    pub fn validate(&self) -> Result<()> {
        let shares = self.shares();
        let sum: f64 = shares.iter().sum();
        if shares.iter().all(|share| *share >= 0.0) && (sum - 1.0).abs() <= 1e-6 {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidInput, format!("the shares of a mix must sum to 1, not {sum}")))
    }

    /// The kind of the next operation.
    #[inline]
    pub fn choose(&self, random: &mut SeededRandom) -> OperationKind {
        let mut left = random.unit();
        let mut chosen = OperationKind::Get;
        for (kind, share) in OperationKind::ALL.into_iter().zip(self.shares()) {
            if share > 0.0 {
                // The last kind with a share takes what rounding leaves.
                chosen = kind;
                if left < share {
                    break;
                }
                left -= share;
            }
        }
        chosen
    }

    fn shares(&self) -> [f64; OperationKind::ALL.len()] {
        [self.get, self.set, self.insert, self.scan, self.read_modify_write, self.read_through]
    }
}

#[cfg(test)]
#[path = "mix_test.rs"]
mod mix_test;
