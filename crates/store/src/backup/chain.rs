//! A chain of backups: a whole one, and such as were made each since the one before. What the last one shows lies in all
//! of them.
//!
//! Invariants:
//! 1. A part that a backup does not give is one that its base shows, in the same life and with the same checksum.
//! 2. What comes of each part is what its backup says it shows, by the digest of its records' places: none is missing, and none too much.

use super::corrupt;
use super::since::PartTables;
use std::collections::BTreeMap;
use tierstone_base::{Result, ShardId};
use tierstone_engine::backup::place_digest;
use tierstone_engine::{BackupRecord, HeldPart, PartState};

/// A part that the last backup shows.
#[derive(Clone, Debug)]
struct Shown {
    held: HeldPart,
    /// Which backup of the chain gives it.
    giver: usize,
    gone: Vec<u32>,
    expiries: Vec<(u32, u64)>,
    /// Of what has come.
    digest: u64,
}

/// What the last backup of a chain shows, and where it is.
#[derive(Clone, Debug, Default)]
pub struct BackupChain {
    shards: Vec<BTreeMap<u32, Shown>>,
    /// How many backups there are.
    len: usize,
    /// What had expired by the last one's cut, in milliseconds since 1970.
    taken_at_ms: u64,
}

impl BackupChain {
    /// Adds the next backup of the chain, the whole one first.
    ///
    /// # Errors
    /// `Corrupt`: it names what its base does not show.
    pub fn add(&mut self, tables: PartTables, taken_at_ms: u64) -> Result<()> {
        let base = std::mem::take(&mut self.shards);
        for (shard, table) in tables.shards.into_iter().enumerate() {
            let mut shown = BTreeMap::new();
            for (part, entry) in table {
                let (giver, gone) = match entry.state {
                    PartState::Given => (self.len, Vec::new()),
                    state => {
                        let known = base.get(shard).and_then(|parts| parts.get(&part));
                        let Some(known) = known.filter(|known| known.held.name == entry.held.name) else {
                            let message = format!(
                                "backup {} of the chain names segment {part} of shard {shard}, which its base does not hold",
                                self.len
                            );
                            return Err(corrupt(&message));
                        };
                        let gone = match state {
                            PartState::Changed(gone) => gone,
                            _ => known.gone.clone(),
                        };
                        (known.giver, gone)
                    }
                };
                shown.insert(
                    part,
                    Shown { held: entry.held, giver, gone, expiries: entry.expiries, digest: 0 },
                );
            }
            self.shards.push(shown);
        }
        self.len += 1;
        self.taken_at_ms = taken_at_ms;
        Ok(())
    }

    /// Whether the last backup shows a record of `part` that backup `giver` of the chain gave; if so, when it
    /// expires. What has expired by then counts, and is not shown.
    pub fn shows(
        &mut self,
        giver: usize,
        (shard, (part, life)): (ShardId, (u32, u64)),
        record: &BackupRecord<'_>,
    ) -> Option<u64> {
        let shown = self.shards.get_mut(usize::from(shard))?.get_mut(&part)?;
        if shown.giver != giver
            || shown.held.name.life != life
            || shown.gone.binary_search(&record.place).is_ok()
        {
            return None;
        }
        shown.digest = shown.digest.wrapping_add(place_digest(record.place));
        let told = shown.expiries.binary_search_by_key(&record.place, |(place, _)| *place);
        let expiry_ms =
            told.ok().and_then(|at| shown.expiries.get(at)).map_or(record.expiry_ms, |told| told.1);
        let has_expired = giver + 1 < self.len && expiry_ms != 0 && expiry_ms <= self.taken_at_ms;
        (!has_expired).then_some(expiry_ms)
    }

    /// Everything has come.
    ///
    /// # Errors
    /// `Corrupt`: of some part, something else than its backup tells.
    pub fn check_end(&self) -> Result<()> {
        for (shard, parts) in self.shards.iter().enumerate() {
            if let Some((part, _)) = parts.iter().find(|(_, shown)| shown.digest != shown.held.digest) {
                let message = format!(
                    "the backups of the chain do not agree: of segment {part} of shard {shard} other records have come than \
                     the last one shows; restore an earlier one, and make a whole backup"
                );
                return Err(corrupt(&message));
            }
        }
        Ok(())
    }
}
