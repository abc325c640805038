//! What a check found.

use serde::Serialize;
use std::collections::BTreeMap;

/// Findings that are kept one by one; more are only counted.
pub const FINDINGS_MAX: usize = 10_000;

/// What is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DamageKind {
    /// A word in front of the allocation table.
    Header,
    /// A word of the allocation table.
    Table,
    /// Frames of a log that were durable, or its segments.
    Log,
    /// The first line of a storage block.
    Block,
    /// A record that was durable.
    Record,
    /// A record that is whole and that no opening reaches, for it lies behind a damaged one.
    Unreachable,
    /// A long value, or the place of one.
    Overflow,
    /// An overflow unit that two records name.
    Twice,
    /// A checkpoint of the index that is not whole, or names a record of another key.
    Checkpoint,
    /// A key that a checkpoint of the index should name: the next opening would miss it.
    CheckpointLacks,
}

impl DamageKind {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            DamageKind::Header => "header",
            DamageKind::Table => "table",
            DamageKind::Log => "log",
            DamageKind::Block => "block",
            DamageKind::Record => "record",
            DamageKind::Unreachable => "unreachable",
            DamageKind::Overflow => "overflow",
            DamageKind::Twice => "twice",
            DamageKind::Checkpoint => "checkpoint",
            DamageKind::CheckpointLacks => "checkpoint_lacks",
        }
    }
}

/// One damaged thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is.
    pub kind: DamageKind,
    /// Whose it is, where that is known.
    pub shard: Option<u16>,
    /// Its physical segment.
    pub segment: Option<u32>,
    /// Its block in the segment.
    pub block: Option<u32>,
    /// Where in the region it begins, in bytes.
    pub offset: u64,
    /// The position of the key, as 16 hexadecimal digits; of what is damaged, as it says itself.
    pub key_hash: Option<String>,
    /// What was found, in words.
    pub detail: String,
}

impl Finding {
    /// One of nobody's.
    pub fn new(kind: DamageKind, offset: u64, detail: String) -> Finding {
        Finding { kind, shard: None, segment: None, block: None, offset, key_hash: None, detail }
    }
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// The store had been closed in good order, as its superblock says.
    pub clean: bool,
    /// Shards.
    pub shards: u16,
    /// Segments in use.
    pub segments: u32,
    /// Segments that were being taken; the next opening gives them back.
    pub claimed_segments: u32,
    /// Blocks in use.
    pub blocks: u64,
    /// Frames of logs that are replayed at the next opening.
    pub frames: u64,
    /// Records in blocks that are whole, old ones and tombstones included.
    pub records: u64,
    /// Of these, that nobody was told of: a crash left them.
    pub void_records: u64,
    /// Parts of batches over several shards that do not count.
    pub void_parts: u64,
    /// Keys whose newest record is there and is no tombstone; those that have expired are counted until they are removed.
    pub live_keys: u64,
    /// Of these, pieces of large values, and notes about what is left of some.
    pub live_pieces: u64,
    /// Bytes of their long values.
    pub overflow_bytes: u64,
    /// Shards with a whole checkpoint of the index, which the next opening takes in.
    pub checkpoints: u16,
    /// Keys that these name.
    pub checkpoint_keys: u64,
    /// How often the records were read.
    pub passes: u32,
    /// Bytes that were durable and of which nothing is whole.
    pub lost_bytes: u64,
    /// Keys whose newest record that can be read has lost its value, or is not reached. Of what cannot be read nobody
    /// knows whose it was.
    pub lost_keys: u64,
    /// How many findings there are of each kind.
    pub damage: BTreeMap<DamageKind, u64>,
    /// The findings, the first ten thousand.
    pub findings: Vec<Finding>,
}

impl CheckReport {
    /// Whether anything is damaged.
    pub fn is_damaged(&self) -> bool {
        !self.damage.is_empty()
    }

    /// Notes damage.
    pub fn note(&mut self, finding: Finding) {
        *self.damage.entry(finding.kind).or_insert(0) += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}
