//! What is done again: the operations of a trace, its keys, and the records that have to be there before.
//!
//! Memory: 32 bytes for each operation, some 60 and its length for each key.

use std::collections::BTreeMap;
use std::io::Read;

use serde::{Deserialize, Serialize};
use tierstone_base::{Error, ErrorKind, Result};

use crate::trace::{TraceKey, TraceOperation, TraceReader, TraceRecord};

/// The longest value that is written: fits into a segment of a small store. Longer ones are left out.
pub const VALUE_BYTES_MAX: u32 = 512 << 10;
/// The size of a value where neither the trace nor its other values tell one.
const VALUE_BYTES_DEFAULT: u32 = 100;
/// The shortest key that a hash becomes: shorter ones would fall together.
const HASHED_KEY_BYTES_MIN: usize = 8;
/// The longest key of a store.
const KEY_BYTES_MAX: usize = 65_535;
/// Operations of a plan: 6.4 GB of memory.
const OPERATIONS_MAX: u64 = 200_000_000;

/// Which keys are there before the first operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadRule {
    /// Those that are read (or changed, or given an expiry) and that no operation of the trace writes. A key that is written
    /// later was not there before: a cache that is filled.
    #[default]
    NeverWritten,
    /// All whose first operation is not a write.
    FirstUse,
}

/// What becomes of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PlanSettings {
    /// Which keys are loaded.
    pub load: LoadRule,
    /// The size of values of which none is known. Default: the median of those written in the trace, or 100 bytes.
    pub value_bytes: Option<u32>,
    /// Only so many operations, from the beginning.
    pub operations_max: Option<u64>,
    /// Only the operations of so many recorded seconds.
    pub seconds_max: Option<f64>,
}

/// What a plan does, leaves out and assumes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PlanReport {
    /// Records of the trace that were read.
    pub records: u64,
    /// The file ended before its end: only what was whole is in the plan.
    pub is_cut: bool,
    /// Operations that are done again.
    pub operations: u64,
    /// Reads among them.
    pub reads: u64,
    /// Recorded seconds from the first to the last.
    pub seconds: f64,
    /// Keys of these operations.
    pub keys: u64,
    /// Commands that cannot be done again, by name.
    pub not_replayed: BTreeMap<String, u64>,
    /// Values of more than 512 KiB, which are left out.
    pub values_too_long: u64,
    /// Keys that are longer than a store takes.
    pub keys_too_long: u64,
    /// Keys that are loaded before.
    pub loaded_keys: u64,
    /// Bytes of their values.
    pub loaded_bytes: u64,
    /// Of these, keys whose size the trace does not tell.
    pub loaded_of_assumed_size: u64,
    /// What it is taken to be.
    pub assumed_bytes: u32,
    /// Keys that are read before they are written, and not loaded: these reads find nothing.
    pub keys_read_before_written: u64,
    /// Bytes of the values that are written.
    pub written_bytes: u64,
}

impl PlanReport {
    /// Operations and keys that are left out, together.
    pub fn left_out(&self) -> u64 {
        self.not_replayed.values().sum::<u64>() + self.values_too_long + self.keys_too_long
    }
}

/// What is done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Read,
    Write,
    Add,
    Replace,
    Update,
    Append,
    Delete,
    Expire,
}

/// No size is known.
pub(crate) const UNKNOWN: u32 = u32::MAX;

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub time_us: u64,
    /// 0: none.
    pub expiry_ms: u64,
    pub key: u32,
    /// Or [`UNKNOWN`].
    pub bytes: u32,
    pub action: Action,
}

/// The keys, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    bytes: Vec<u8>,
    ends: Vec<u64>,
}

impl Keys {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn get(&self, key: u32) -> &[u8] {
        let place = key as usize;
        let start = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.bytes[start as usize..self.ends[place] as usize]
    }

    fn push(&mut self, database: u32, key: &TraceKey) {
        if database != 0 {
            self.bytes.extend_from_slice(format!("{database}:").as_bytes());
        }
        match key {
            TraceKey::Named(key) => self.bytes.extend_from_slice(key),
            TraceKey::Hashed { hash, bytes } => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(&hash.to_le_bytes());
                let length = (*bytes as usize).clamp(HASHED_KEY_BYTES_MIN, KEY_BYTES_MAX);
                self.bytes.resize(start + length, b'.');
            }
        }
        self.ends.push(self.bytes.len() as u64);
    }
}

/// What is known of a key while the trace is read.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// What is done first; `None`: only its size was told.
    first: Option<Action>,
    is_first_miss: bool,
    is_written: bool,
    /// The first size that was told of what is there.
    bytes: Option<u32>,
    /// A size that was asked for.
    told: Option<u32>,
}

/// Everything that a replay needs.
#[derive(Debug)]
pub struct ReplayPlan {
    pub(crate) keys: Keys,
    pub(crate) steps: Vec<Step>,
    /// Key and size of what is loaded.
    pub(crate) loads: Vec<(u32, u32)>,
    report: PlanReport,
}

impl ReplayPlan {
    /// Reads a trace to its end, or as far as the settings say.
    ///
    /// # Errors
    /// `InvalidInput`: settings out of range, no operation, or more than 200 million. `Corrupt`: the trace is damaged.
    pub fn read<R: Read>(reader: &mut TraceReader<R>, settings: &PlanSettings) -> Result<ReplayPlan> {
        if settings.value_bytes.is_some_and(|bytes| bytes > VALUE_BYTES_MAX) {
            return Err(wrong(format!("values are at most {VALUE_BYTES_MAX} bytes")));
        }
        let mut building = Building::default();
        let until_us = settings.seconds_max.map_or(u64::MAX, |seconds| (seconds.max(0.0) * 1e6) as u64);
        let most = settings.operations_max.unwrap_or(u64::MAX);
        while let Some(record) = reader.next_record()? {
            let is_hint = record.operation == TraceOperation::Size;
            // Sizes stand at the end: they are wanted however short the part is.
            if !is_hint && (record.time_us > until_us || building.steps.len() as u64 >= most) {
                continue;
            }
            building.report.records += 1;
            building.take(&record)?;
        }
        building.report.is_cut = reader.is_cut();
        building.finish(settings)
    }

    /// What the plan does, leaves out and assumes.
    pub fn report(&self) -> &PlanReport {
        &self.report
    }

    /// How many operations there are.
    pub fn operations(&self) -> u64 {
        self.steps.len() as u64
    }
}

#[derive(Debug, Default)]
struct Building {
    keys: Keys,
    numbers: BTreeMap<u64, u32>,
    known: Vec<Known>,
    steps: Vec<Step>,
    sizes: BTreeMap<u32, u64>,
    report: PlanReport,
}

impl Building {
    fn take(&mut self, record: &TraceRecord) -> Result<()> {
        let action = match &record.operation {
            TraceOperation::Read => Action::Read,
            TraceOperation::Write => Action::Write,
            TraceOperation::Add => Action::Add,
            TraceOperation::Replace => Action::Replace,
            TraceOperation::Update => Action::Update,
            TraceOperation::Append => Action::Append,
            TraceOperation::Delete => Action::Delete,
            TraceOperation::Expire => Action::Expire,
            TraceOperation::Size => {
                let number = record.key.number(record.database);
                if let Some(key) = self.numbers.get(&number) {
                    self.known[*key as usize].told =
                        record.value_bytes.filter(|bytes| *bytes <= VALUE_BYTES_MAX);
                }
                return Ok(());
            }
            TraceOperation::Other(name) => {
                *self.report.not_replayed.entry(name.clone()).or_insert(0) += 1;
                return Ok(());
            }
        };
        if record.value_bytes.is_some_and(|bytes| bytes > VALUE_BYTES_MAX) {
            self.report.values_too_long += 1;
            return Ok(());
        }
        // A number and a colon may stand before it.
        if record.key.size_bytes() as usize > KEY_BYTES_MAX - 8 {
            self.report.keys_too_long += 1;
            return Ok(());
        }
        if self.steps.len() as u64 >= OPERATIONS_MAX {
            return Err(wrong(format!(
                "more than {OPERATIONS_MAX} operations: take a part of the trace (--operations)"
            )));
        }
        let key = self.number(record);
        self.note(key, action, record);
        self.steps.push(Step {
            time_us: record.time_us,
            expiry_ms: record.expiry_ms.unwrap_or(0),
            key,
            bytes: record.value_bytes.unwrap_or(UNKNOWN),
            action,
        });
        Ok(())
    }

    fn number(&mut self, record: &TraceRecord) -> u32 {
        let next = self.keys.len() as u32;
        let key = *self.numbers.entry(record.key.number(record.database)).or_insert(next);
        if key == next {
            self.keys.push(record.database, &record.key);
            self.known.push(Known {
                first: None,
                is_first_miss: false,
                is_written: false,
                bytes: None,
                told: None,
            });
        }
        key
    }

    fn note(&mut self, key: u32, action: Action, record: &TraceRecord) {
        let known = &mut self.known[key as usize];
        if known.first.is_none() {
            known.first = Some(action);
            known.is_first_miss = record.is_miss;
        }
        let is_write = matches!(action, Action::Write | Action::Add);
        known.is_written |= is_write;
        // What is appended is a part of the value only.
        if action != Action::Append {
            known.bytes = known.bytes.or(record.value_bytes.filter(|_| !record.is_miss));
        }
        if let (true, Some(bytes)) = (is_write, record.value_bytes) {
            *self.sizes.entry(bytes).or_insert(0) += 1;
            self.report.written_bytes += u64::from(bytes);
        }
    }

    fn finish(mut self, settings: &PlanSettings) -> Result<ReplayPlan> {
        if self.steps.is_empty() {
            return Err(wrong("the trace has no operation that can be done again".to_owned()));
        }
        let assumed = settings.value_bytes.or_else(|| median(&self.sizes)).unwrap_or(VALUE_BYTES_DEFAULT);
        let report = &mut self.report;
        let mut loads = Vec::new();
        for (key, known) in self.known.iter().enumerate() {
            let is_there = match (settings.load, known.first) {
                (_, None | Some(Action::Write | Action::Add)) => false,
                _ if known.is_first_miss => false,
                (LoadRule::NeverWritten, Some(Action::Delete)) => false,
                (LoadRule::NeverWritten, _) => !known.is_written,
                (LoadRule::FirstUse, _) => true,
            };
            if is_there {
                let bytes = known.bytes.or(known.told);
                report.loaded_of_assumed_size += u64::from(bytes.is_none());
                report.loaded_bytes += u64::from(bytes.unwrap_or(assumed));
                loads.push((key as u32, bytes.unwrap_or(assumed)));
            } else if known.first == Some(Action::Read) && known.is_written {
                report.keys_read_before_written += 1;
            }
        }
        report.assumed_bytes = assumed;
        report.loaded_keys = loads.len() as u64;
        report.operations = self.steps.len() as u64;
        report.reads = self.steps.iter().filter(|step| step.action == Action::Read).count() as u64;
        report.keys = self.keys.len() as u64;
        let (first, last) = (self.steps.first(), self.steps.last());
        let span = first.zip(last).map_or(0, |(first, last)| last.time_us - first.time_us);
        report.seconds = span as f64 / 1e6;
        Ok(ReplayPlan { keys: self.keys, steps: self.steps, loads, report: self.report })
    }
}

/// The middle of sizes and how often each came.
fn median(sizes: &BTreeMap<u32, u64>) -> Option<u32> {
    let half = sizes.values().sum::<u64>().div_ceil(2);
    let mut seen = 0;
    sizes.iter().find_map(|(bytes, count)| {
        seen += count;
        (seen >= half).then_some(*bytes)
    })
}

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}
