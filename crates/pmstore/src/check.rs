//! Verifies a closed store in a region without changing a byte of it.
//!
//! Header, lone words, allocation table, logs, the first line of every block, every record and the long values of those
//! that count are read, and their checksums compared; then the newest record of each key is known, so that damage can
//! be told in keys. A checkpoint of the index is held against them. Where a record lies is told by shard, segment and block, its key by its position (the hash).
//!
//! Invariants:
//! 1. Nothing but loads is asked of the region.
//! 2. What a loss of power may leave is no damage ([`crate::found`], [`crate::seal`]).
//! 3. Whatever the bytes are, every place is inside the store and every walk ends.
//! 4. Memory: 56 bytes a key up to [`CheckSettings::memory_bytes`], beyond it the records are read several times; a bit
//!    for each unit of overflow segments; [`FINDINGS_MAX`] findings.
//!
//! The caller sees to it that nobody has the store open.

mod checkpoint;
mod findings;
mod keys;
mod walk;

pub use findings::{CheckReport, DamageKind, FINDINGS_MAX, Finding};

use crate::blocks::Maker;
use crate::checkpoint as index_checkpoint;
use crate::format::{Header, Layout, MAGIC, OPENING_AT, VERSION};
use crate::found::{self, FoundLog};
use crate::mark::unguarded;
use crate::memory::PmMemory;
use crate::open::{Owned, judge, sort_table};
use crate::serial;
use crate::shard::PAST_AT;
use crate::space::{FreeSegments, Space};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use tierstone_base::{Error, ErrorKind, KeyHasher, Result};
use tierstone_media::region::Region;
use walk::Walk;

/// How a store is checked.
#[derive(Clone, Debug)]
pub struct CheckSettings {
    /// Where in the region the store begins, in bytes.
    pub base: u64,
    /// Ids of the keyspaces that are served; `None`: all count.
    pub keyspaces: Option<Vec<u32>>,
    /// Memory for the newest records of keys, in bytes. Default 1 GiB: 19 million keys in one pass.
    pub memory_bytes: u64,
    /// See [`crate::OpenSettings::weak_hash_bits`].
    pub weak_hash_bits: Option<u32>,
}

impl Default for CheckSettings {
    fn default() -> Self {
        CheckSettings { base: 0, keyspaces: None, memory_bytes: 1 << 30, weak_hash_bits: None }
    }
}

/// How far a check is, in bytes of segments over all passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    /// Done so far.
    pub bytes: u64,
    /// All there is to do.
    pub bytes_total: u64,
}

/// Bytes of a key's newest record in memory.
const KEY_BYTES: u64 = 56;
/// Few records are shorter.
const RECORD_BYTES_GUESS: u64 = 128;
/// Passes at most: with less memory than they need, more is taken.
const PASSES_MAX: u64 = 64;

/// Overflow units that records name.
#[derive(Debug, Default)]
pub(crate) struct Units {
    taken: BTreeMap<u32, Vec<u64>>,
}

impl Units {
    /// Takes a range of the `count` units of a segment; whether one of them was taken.
    fn take(&mut self, segment: u32, count: u64, range: Range<u64>) -> bool {
        let words = vec![0; count.div_ceil(64) as usize];
        let bits = self.taken.entry(segment).or_insert(words);
        let mut was_taken = false;
        for at in range {
            if let Some(word) = bits.get_mut((at / 64) as usize) {
                was_taken |= *word & 1 << (at % 64) != 0;
                *word |= 1 << (at % 64);
            }
        }
        was_taken
    }
}

/// What is checked.
pub(crate) struct Checked {
    pub memory: PmMemory,
    pub layout: Layout,
    pub header: Header,
    pub hasher: KeyHasher,
    pub keyspaces: Option<BTreeSet<u32>>,
    space: Arc<Space>,
}

impl Checked {
    pub fn maker(&self, shard: u16) -> Maker {
        Maker {
            memory: self.memory.clone(),
            layout: self.layout,
            space: Arc::clone(&self.space),
            store: self.header.store,
            shard,
            opening: 0,
        }
    }

    /// The number of the last opening; `None`: damaged.
    pub fn opening(&self) -> Option<u64> {
        unguarded(self.memory.load_word(OPENING_AT))
    }

    /// The shard's log, as an opening would find it; nothing of it where its beginning is damaged.
    fn log(&self, shard: u16, owned: &Owned, report: &mut CheckReport) -> Option<FoundLog> {
        let first_seq = self.header.first_seq + 1;
        let log = match found::find(&self.maker(shard), owned, first_seq) {
            Ok(log) => log,
            Err(error) => {
                let place = self.memory.base() + self.layout.shard_line(shard);
                let finding = Finding::new(DamageKind::Log, place, error.message().to_owned());
                report.note(Finding { shard: Some(shard), ..finding });
                return None;
            }
        };
        for damage in &log.damage {
            let finding = Finding::new(DamageKind::Log, damage.offset, damage.text());
            report.note(Finding { shard: Some(shard), segment: damage.segment, ..finding });
            report.lost_bytes += damage.bytes;
        }
        if log.is_mark_damaged {
            let place = self.memory.base() + self.layout.shard_line(shard) + crate::mark::MARK_AT;
            let text = "the word that notes the end of the log is damaged".to_owned();
            report.note(Finding { shard: Some(shard), ..Finding::new(DamageKind::Header, place, text) });
        }
        report.frames += log.frames.len() as u64;
        Some(log)
    }
}

/// Checks the store in `region`, which stays as it is.
///
/// Cost: everything that is in use is read once, records once a pass.
///
/// # Errors
/// `InvalidInput`: there is no store, or the region is too small for it. `Incompatible`: something else is there, or
/// another version. `Corrupt`: the header is damaged, so that nothing can be told. Other damage is in the report.
pub fn check(
    region: Arc<dyn Region + Send + Sync>,
    settings: &CheckSettings,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    let memory = PmMemory::new(region, settings.base)?;
    let (header, layout) = crate::open::existing(&memory)?;
    if header.version != VERSION {
        let message = format!(
            "the store has format version {}, and {VERSION} is what is checked: it becomes that when it is opened once",
            header.version
        );
        return Err(Error::new(ErrorKind::Incompatible, message));
    }
    let hasher = match settings.weak_hash_bits {
        Some(bits) => KeyHasher::weakened(header.hash_secret, bits),
        None => KeyHasher::new(header.hash_secret),
    };
    let space = Arc::new(Space::new(memory.clone(), layout, FreeSegments::default(), std::iter::empty()));
    let keyspaces = settings.keyspaces.clone().map(BTreeSet::from_iter);
    let checked = Checked { memory, layout, header, hasher, keyspaces, space };
    let mut report = CheckReport { shards: header.shards, ..CheckReport::default() };
    look_at_words(&checked, &mut report);
    let owned = look_at_table(&checked, &mut report);
    let mut logs = Vec::new();
    let mut is_known = Vec::new();
    for (shard, owned) in owned.iter().enumerate() {
        let log = checked.log(shard as u16, owned, &mut report);
        is_known.push(log.is_some());
        logs.push(log.unwrap_or_default());
    }
    report.void_parts = judge(&mut logs, false).0;
    let blocks: u64 = owned.iter().map(|owned| owned.storage.len() as u64).sum();
    let records = blocks * layout.geometry.segment_bytes / RECORD_BYTES_GUESS;
    let passes = (records * KEY_BYTES).div_ceil(settings.memory_bytes.max(1)).clamp(1, PASSES_MAX);
    let bytes_total = blocks * layout.geometry.segment_bytes * passes;
    let mut done = CheckProgress { bytes: 0, bytes_total };
    progress(done);
    let mut units = Units::default();
    for pass in 0..passes {
        for (shard, owned) in owned.iter().enumerate() {
            let log = is_known[shard].then_some(&logs[shard]);
            let found = (&mut report, &mut units);
            let walk = Walk::new(&checked, shard as u16, log, (pass, passes), found);
            walk.run(owned, &mut |bytes| {
                done.bytes += bytes;
                progress(done);
            });
        }
    }
    report.passes = passes as u32;
    Ok(report)
}

/// The words that stand alone, with a check of their own.
fn look_at_words(checked: &Checked, report: &mut CheckReport) {
    let Checked { memory, layout, .. } = checked;
    let mut look = |place: u64, shard: Option<u16>, what: &str| {
        if unguarded(memory.load_word(place)).is_none() {
            let finding =
                Finding::new(DamageKind::Header, memory.base() + place, format!("{what} is damaged"));
            report.note(Finding { shard, ..finding });
        }
    };
    look(OPENING_AT, None, "the number of the opening");
    for shard in 0..layout.shards {
        let line = layout.shard_line(shard);
        look(line + PAST_AT, Some(shard), "the time up to which keys have expired");
        look(
            line + index_checkpoint::OPENING_AT,
            Some(shard),
            "the word that says whose the checkpoint of the index is",
        );
        look(
            line + index_checkpoint::PAGE_AT,
            Some(shard),
            "the word that names the checkpoint of the index",
        );
    }
}

/// What each shard has; damaged words and numbers that two segments have are findings.
fn look_at_table(checked: &Checked, report: &mut CheckReport) -> Vec<Owned> {
    let Checked { memory, layout, .. } = checked;
    let (owned, table) = sort_table(memory, layout);
    let mut note = |segment: u32, shard: Option<u16>, detail: String| {
        let place = memory.base() + layout.table_word(segment);
        let finding = Finding::new(DamageKind::Table, place, detail);
        report.note(Finding { shard, segment: Some(segment), ..finding });
    };
    for segment in table.damaged {
        note(segment, None, format!("the word of segment {segment} is damaged: what it holds is not served"));
    }
    for (segment, other, shard, logical) in table.twice {
        let start = unguarded(memory.load_word(layout.shard_line(shard))).unwrap_or(0);
        if start != 0 && serial::is_at_or_after(start as u32, logical) {
            let detail = format!(
                "segments {other} and {segment} are both number {logical} of the log of shard {shard}"
            );
            note(segment, Some(shard), detail);
        }
    }
    report.segments = table.used;
    report.claimed_segments = table.claimed.len() as u32;
    owned
}

/// Whether a store is there, by the first word at `base`.
///
/// # Errors
/// `InvalidInput`: the region has no place for one.
pub fn is_there(region: Arc<dyn Region + Send + Sync>, base: u64) -> Result<bool> {
    Ok(PmMemory::new(region, base)?.load_word(0) == MAGIC)
}

#[cfg(test)]
#[path = "check_test.rs"]
mod check_test;
