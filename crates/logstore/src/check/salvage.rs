//! Saves what is whole: the newest whole version of every key, out of a damaged store that stays as it
//! is.
//!
//! More is saved than the store would serve: records of segments whose header or summary is damaged, too.
//! Where the newest version of a key is damaged, an older one that is still there has to do; the report
//! counts these keys, and those of which nothing is left. A key whose deletion is damaged may come back, and one of a
//! segment whose header is damaged, if the segment may have been free: such keys are counted with those of older versions.

use super::{CheckProgress, CheckReport, CheckSettings, Checker, Ends};
use crate::format::record::{self, Decoded};
use crate::location::UNIT_BYTES;
use crate::shard::segment_salt;
use crate::stream::Stream;
use std::collections::BTreeMap;
use tierstone_base::{KeyspaceId, Result};
use tierstone_media::{BLOCK_BYTES, BlockDevice};

/// One saved record, borrowed from the segment at hand.
#[derive(Clone, Copy, Debug)]
pub struct Salvaged<'a> {
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// When it expires, in milliseconds since 1970; zero: never.
    pub expiry_ms: u64,
    /// The kind of its value.
    pub kind: u8,
}

/// Checks the store on `device` as [`super::check`] does, and gives the newest whole version of every key
/// to `save`, in the order of segments. A key comes once; tombstones do not come.
///
/// Cost: every log segment is read once a pass for the check, and once more where something is saved.
///
/// # Errors
/// As [`super::check`], and what `save` says.
pub fn salvage(
    device: &mut dyn BlockDevice,
    settings: &CheckSettings,
    progress: &mut dyn FnMut(CheckProgress),
    save: &mut dyn FnMut(Salvaged<'_>) -> Result<()>,
) -> Result<CheckReport> {
    let mut checker = Checker::new(device)?;
    checker.versions.save();
    checker.run(settings, progress, &mut |checker, found| checker.save_pass(found, save))?;
    Ok(checker.report)
}

impl Checker<'_> {
    fn save_pass(
        &mut self,
        found: &BTreeMap<u32, Ends>,
        save: &mut dyn FnMut(Salvaged<'_>) -> Result<()>,
    ) -> Result<()> {
        let saved = self.versions.take_saved();
        for records in saved.chunk_by(|a, b| a.0 == b.0) {
            let Some(&(segment, _)) = records.first() else { continue };
            let Some(generation) = found.get(&segment).and_then(Ends::generation) else { continue };
            let end = self.bytes.len() - BLOCK_BYTES;
            self.load(segment, 0..end)?;
            let salt = segment_salt(self.superblock.store_id, segment, generation);
            let longest = Stream::record_bytes_max(self.geometry);
            for &(_, unit) in records {
                let bytes = self.bytes.get(unit as usize * UNIT_BYTES..).unwrap_or_default();
                // It was whole a moment ago.
                let Decoded::Whole(header) = record::decode(bytes, salt, unit, longest) else {
                    self.report.unsaved_keys += 1;
                    self.report.saved_keys -= 1;
                    continue;
                };
                let key = &bytes[header.key_range()];
                let expiry_ms = self.versions.expiry_of(&header, self.hasher.position(key));
                save(Salvaged {
                    keyspace: header.keyspace,
                    key,
                    value: &bytes[header.value_range()],
                    expiry_ms,
                    kind: header.kind,
                })?;
            }
        }
        Ok(())
    }
}

impl Ends {
    /// The life of the segment, where something tells it.
    fn generation(&self) -> Option<u64> {
        match self {
            Ends::Sealed { header, .. } | Ends::Open { header, .. } => Some(header.generation),
            Ends::HeaderLost { footer, .. } => footer.map(|footer| footer.generation),
        }
    }
}
