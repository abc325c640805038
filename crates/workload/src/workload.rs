//! A workload: records, keys, values, mix and distribution; and the operations that come of it.
//!
//! Invariants:
//! 1. Thread `t` of `n` inserts the numbers `records + t`, `records + t + n`, …: no two threads insert
//!    the same record, and none waits for another.
//! 2. A thread chooses among the records of the start and those of its own inserts that are
//!    answered together with all before them, so that what it reads exists.
//! 3. A version is written once: 0 by the load phase, later ones carry the thread.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tierstone_base::{Error, ErrorKind, Result, SeededRandom};

use crate::distribution::{Distribution, KeyChooser};
use crate::key::{KeyFormat, SizeDistribution, mix};
use crate::mix::{Mix, OperationKind};
use crate::value::ValueSettings;

/// The most records that one scan reads.
pub const SCAN_LEN_MAX: u32 = 65_536;
const VERSION_THREAD_SHIFT: u32 = 48;

/// What is asked of a store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workload {
    /// Records at the start, numbered from 0. Default 1,000,000.
    pub records: u64,
    /// How numbers become keys.
    pub key: KeyFormat,
    /// What the values are like.
    pub value: ValueSettings,
    /// The shares of the operations. Default reads only.
    pub mix: Mix,
    /// How accesses spread. Default uniform.
    pub distribution: Distribution,
    /// Records that a scan reads, at most 65,536. Default 1 to 100, as in YCSB.
    pub scan_len: SizeDistribution,
    /// Whether the content of every value read is checked. Default on; costs about 0.1 ns a byte.
    pub verify: bool,
}

impl Default for Workload {
    fn default() -> Self {
        Workload {
            records: 1_000_000,
            key: KeyFormat::default(),
            value: ValueSettings::default(),
            mix: Mix::GET,
            distribution: Distribution::Uniform,
            scan_len: SizeDistribution::Uniform { min: 1, max: 100 },
            verify: true,
        }
    }
}

/// The core workloads of YCSB (Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ycsb {
    /// Update heavy: 50 % read, 50 % update.
    A,
    /// Read mostly: 95 % read, 5 % update.
    B,
    /// Read only.
    C,
    /// Read latest: 95 % read, 5 % insert.
    D,
    /// Short ranges: 95 % scan, 5 % insert.
    E,
    /// Read-modify-write: 50 % read, 50 % read-modify-write.
    F,
}

impl Ycsb {
    /// All six.
    pub const ALL: [Ycsb; 6] = [Ycsb::A, Ycsb::B, Ycsb::C, Ycsb::D, Ycsb::E, Ycsb::F];
    /// The published number of records.
    pub const RECORDS: u64 = 1000;

    fn mix(self) -> Mix {
        match self {
            Ycsb::A => Mix { get: 0.5, set: 0.5, ..Mix::default() },
            Ycsb::B => Mix { get: 0.95, set: 0.05, ..Mix::default() },
            Ycsb::C => Mix::GET,
            Ycsb::D => Mix { get: 0.95, insert: 0.05, ..Mix::default() },
            Ycsb::E => Mix { scan: 0.95, insert: 0.05, ..Mix::default() },
            Ycsb::F => Mix { get: 0.5, read_modify_write: 0.5, ..Mix::default() },
        }
    }
}

impl fmt::Display for Ycsb {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self:?}")
    }
}

impl FromStr for Ycsb {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ycsb::ALL
            .into_iter()
            .find(|workload| workload.to_string().eq_ignore_ascii_case(text))
            .ok_or_else(|| Error::new(ErrorKind::InvalidInput, format!("'{text}' is none of YCSB A to F")))
    }
}

impl Workload {
    /// A core workload of YCSB with `records` records ([`Ycsb::RECORDS`] as published): keys `user` and
    /// a hashed number, ten fields of 100 bytes folded into one value of 1,000 bytes, so that an update
    /// writes all fields where YCSB writes one.
    pub fn ycsb(workload: Ycsb, records: u64) -> Workload {
        let distribution = match workload {
            Ycsb::D => Distribution::LATEST,
            _ => Distribution::SCRAMBLED_ZIPF,
        };
        Workload {
            records,
            key: KeyFormat {
                prefix: "user".into(),
                digits: 20,
                order: crate::key::KeyOrder::Hashed,
                size: None,
            },
            value: ValueSettings { size: SizeDistribution::Fixed(1000), zero_share: 0.0 },
            mix: workload.mix(),
            distribution,
            ..Workload::default()
        }
    }

    /// Errors: `InvalidInput`, naming the setting that is out of its range.
    pub fn validate(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::new(ErrorKind::InvalidInput, what.to_string()));
        if self.records == 0 {
            return refuse("a workload needs one record at least");
        }
        if self.records > 1 << 48 {
            return refuse("a workload has at most 2^48 records");
        }
        self.scan_len.validate()?;
        if self.scan_len.max() > SCAN_LEN_MAX {
            return refuse("a scan reads at most 65,536 records");
        }
        self.key.validate(self.records)?;
        self.value.validate()?;
        self.mix.validate()?;
        self.distribution.validate()
    }
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What it does.
    pub kind: OperationKind,
    /// The number of its record, or of a scan's first.
    pub id: u64,
    /// The version that it writes, if it writes.
    pub version: u64,
    /// Records that a scan reads; else 0.
    pub scan_len: u32,
}

/// The operations of one thread, in order.
#[derive(Clone, Debug)]
pub struct OperationSource {
    plan: SourcePlan,
    thread: u64,
    threads: u64,
    versions: u64,
}

#[derive(Clone, Debug)]
enum SourcePlan {
    Mixed(Box<MixedSource>),
    /// Every number of a range once.
    Walk {
        kind: OperationKind,
        ids: Range<u64>,
    },
}

#[derive(Clone, Debug)]
struct MixedSource {
    mix: Mix,
    scan_len: SizeDistribution,
    chooser: KeyChooser,
    random: SeededRandom,
    records: u64,
    inserts: InsertWindow,
    /// Inserts that keep the number within the key's digits.
    insert_count_max: u64,
}

impl OperationSource {
    /// The sources of `threads` threads for the mix of a workload that is valid.
    pub fn mixed(workload: &Workload, seed: u64, threads: u64) -> Result<Vec<OperationSource>> {
        workload.validate()?;
        let threads = threads.max(1);
        let chooser = KeyChooser::new(workload.distribution, workload.records)?;
        let id_limit = u32::try_from(workload.key.digits).ok().and_then(|digits| 10u64.checked_pow(digits));
        let source = |thread: u64| {
            let mut chooser = chooser.clone();
            chooser.start_apart(thread, threads);
            let mixed = MixedSource {
                mix: workload.mix,
                scan_len: workload.scan_len.clone(),
                chooser,
                random: SeededRandom::new(mix(seed) ^ mix(thread)),
                records: workload.records,
                inserts: InsertWindow::default(),
                insert_count_max: (id_limit.unwrap_or(u64::MAX) - workload.records) / threads,
            };
            OperationSource { plan: SourcePlan::Mixed(Box::new(mixed)), thread, threads, versions: 0 }
        };
        Ok((0..threads).map(source).collect())
    }

    /// The sources of `threads` threads that together insert (`Insert`) or read (`Get`) every record of
    /// the start once, in order within a thread.
    pub fn walk(kind: OperationKind, records: u64, threads: u64) -> Vec<OperationSource> {
        let threads = threads.max(1);
        let bound = |thread: u64| (u128::from(records) * u128::from(thread) / u128::from(threads)) as u64;
        let source = |thread: u64| OperationSource {
            plan: SourcePlan::Walk { kind, ids: bound(thread)..bound(thread + 1) },
            thread,
            threads,
            versions: 0,
        };
        (0..threads).map(source).collect()
    }

    /// The source of one thread that does `kind` to every number of `ids` once, in order.
    pub fn walk_of(kind: OperationKind, ids: Range<u64>) -> OperationSource {
        OperationSource { plan: SourcePlan::Walk { kind, ids }, thread: 0, threads: 1, versions: 0 }
    }

    /// The next operation; `None` at the end of a walk, or when the next insert's number would not fit
    /// its key.
    #[inline]
    pub fn next_operation(&mut self) -> Option<Operation> {
        let (thread, threads) = (self.thread, self.threads);
        let mixed = match &mut self.plan {
            SourcePlan::Walk { kind, ids } => {
                return ids.next().map(|id| Operation { kind: *kind, id, version: 0, scan_len: 0 });
            }
            SourcePlan::Mixed(mixed) => mixed,
        };
        let kind = mixed.mix.choose(&mut mixed.random);
        let id_of = |index: u64| match index.checked_sub(mixed.records) {
            None => index,
            Some(own) => mixed.records + own * threads + thread,
        };
        let (id, scan_len) = if kind == OperationKind::Insert {
            if mixed.inserts.issued() >= mixed.insert_count_max {
                return None;
            }
            (id_of(mixed.records + mixed.inserts.issue()), 0)
        } else {
            let visible = mixed.records + mixed.inserts.answered;
            let id = id_of(mixed.chooser.choose(&mut mixed.random, visible));
            let is_scan = kind == OperationKind::Scan;
            (id, if is_scan { mixed.scan_len_from(id, threads) } else { 0 })
        };
        self.versions += 1;
        let version = ((thread + 1) << VERSION_THREAD_SHIFT) | self.versions;
        Some(Operation { kind, id, version, scan_len })
    }

    /// Tells that the insert of record `id` was answered. A refused one counts as done too, so that the
    /// window of open inserts stays small: reading it later is a miss.
    pub fn insert_answered(&mut self, id: u64) {
        if let SourcePlan::Mixed(mixed) = &mut self.plan
            && let Some(beyond) = id.checked_sub(mixed.records)
        {
            mixed.inserts.answer(beyond / self.threads);
        }
    }
}

impl MixedSource {
    /// The length of a scan that begins at `id`: it ends with the records known to exist.
    fn scan_len_from(&mut self, id: u64, threads: u64) -> u32 {
        let end = match id < self.records {
            true => self.records,
            // The next numbers are other threads', which may not have inserted them.
            false if threads > 1 => id + 1,
            false => self.records + self.inserts.answered,
        };
        let len = self.scan_len.pick(self.random.next_u64()).max(1);
        u64::from(len).min(end - id) as u32
    }
}

/// Which inserts of a thread are answered together with all before them.
#[derive(Clone, Debug, Default)]
struct InsertWindow {
    answered: u64,
    /// Inserts from `answered` on: whether each is answered.
    window: VecDeque<bool>,
}

impl InsertWindow {
    fn issued(&self) -> u64 {
        self.answered + self.window.len() as u64
    }

    fn issue(&mut self) -> u64 {
        self.window.push_back(false);
        self.issued() - 1
    }

    fn answer(&mut self, insert: u64) {
        let place = insert.checked_sub(self.answered).and_then(|place| self.window.get_mut(place as usize));
        if let Some(place) = place {
            *place = true;
        }
        while self.window.front() == Some(&true) {
            self.window.pop_front();
            self.answered += 1;
        }
    }
}

#[cfg(test)]
#[path = "workload_test.rs"]
mod workload_test;
