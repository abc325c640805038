//! What a backup that is made since another one is told of that: which parts it holds.
//!
//! As bytes, little-endian, for a server: `TSBS`, version (u8), store (u64), the base's id and the checksum of its manifest (u64 each),
//! opening (u64), time of its cut (u64), shards (u16); of each shard how many parts (u32), and for each number (u32), life,
//! checksum, live records, digest (u64 each); then the XXH3-64 of all that.

use super::{BaseName, SHARDS_MAX, corrupt};
use std::collections::BTreeMap;
use tierstone_base::checksum::checksum;
use tierstone_base::codec::Reader;
use tierstone_base::{Error, ErrorKind, Result, ShardId};
use tierstone_engine::{BackupCut, BackupSince, HeldPart, PartEntry, PartName};

const MAGIC: [u8; 4] = *b"TSBS";
const VERSION: u8 = 1;

/// A backup as the base of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupBase {
    /// The id of its store.
    pub store: u64,
    /// Which backup it is.
    pub name: BaseName,
    /// How often the store had been opened.
    pub opening: u64,
    /// The time of its cut, in milliseconds since 1970.
    pub taken_at_ms: u64,
    /// The parts that it shows, of each shard.
    pub shards: Vec<Vec<HeldPart>>,
}

impl BackupBase {
    /// What the engine of a shard is told.
    pub fn of_shard(&self, shard: ShardId) -> BackupSince {
        let parts = self.shards.get(usize::from(shard)).cloned().unwrap_or_default();
        BackupSince { opening: self.opening, taken_at_ms: self.taken_at_ms, parts }
    }

    /// Whether it can be the base for a store of so many shards.
    ///
    /// # Errors
    /// `InvalidInput`: it has another number.
    pub fn check_shards(&self, shards: usize) -> Result<()> {
        if self.shards.len() == shards {
            return Ok(());
        }
        let message = format!(
            "the base is of {} shards, and the store has {shards} now, so that its parts are others: make a whole backup",
            self.shards.len()
        );
        Err(Error::new(ErrorKind::InvalidInput, message))
    }

    /// Whether it is of the store that made this cut.
    ///
    /// # Errors
    /// `InvalidInput`: it is of another one.
    pub fn check_cut(&self, cut: &BackupCut) -> Result<()> {
        if self.store == cut.store {
            return Ok(());
        }
        let message = "the base is a backup of another store: make a whole backup, or name one of this store";
        Err(Error::new(ErrorKind::InvalidInput, message))
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.push(VERSION);
        for word in [self.store, self.name.id, self.name.manifest, self.opening, self.taken_at_ms] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&(self.shards.len() as u16).to_le_bytes());
        for parts in &self.shards {
            bytes.extend_from_slice(&(parts.len() as u32).to_le_bytes());
            for HeldPart { name, live, digest } in parts {
                bytes.extend_from_slice(&name.part.to_le_bytes());
                for word in [name.life, name.checksum, *live, *digest] {
                    bytes.extend_from_slice(&word.to_le_bytes());
                }
            }
        }
        let sum = checksum(0, &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads what [`BackupBase::encode`] wrote.
    ///
    /// # Errors
    /// `Corrupt`: it makes no sense. `Incompatible`: a newer program wrote it.
    pub fn decode(bytes: &[u8]) -> Result<BackupBase> {
        match bytes.strip_prefix(&MAGIC).and_then(<[u8]>::first) {
            Some(&VERSION) => {}
            Some(version) if *version > VERSION => {
                let message =
                    format!("the base is told in format {version}, and this program reads up to {VERSION}");
                return Err(Error::new(ErrorKind::Incompatible, message));
            }
            _ => return Err(corrupt("what was told of the base makes no sense")),
        }
        Self::read(bytes).ok_or_else(|| corrupt("what was told of the base makes no sense"))
    }

    fn read(bytes: &[u8]) -> Option<BackupBase> {
        let (body, sum) = bytes.split_last_chunk::<8>()?;
        if checksum(0, body) != u64::from_le_bytes(*sum) {
            return None;
        }
        let mut reader = Reader::new(body.get(MAGIC.len() + 1..)?);
        let store = reader.u64()?;
        let name = BaseName { id: reader.u64()?, manifest: reader.u64()? };
        let (opening, taken_at_ms) = (reader.u64()?, reader.u64()?);
        let count = reader.u16()?;
        if count == 0 || count > SHARDS_MAX {
            return None;
        }
        let mut shards = Vec::new();
        for _ in 0..count {
            let mut parts = Vec::new();
            for _ in 0..reader.u32()? {
                let part = reader.u32()?;
                let name = PartName { part, life: reader.u64()?, checksum: reader.u64()? };
                parts.push(HeldPart { name, live: reader.u64()?, digest: reader.u64()? });
            }
            shards.push(parts);
        }
        reader.rest().is_empty().then_some(BackupBase { store, name, opening, taken_at_ms, shards })
    }
}

/// The tables of parts of a backup, of each shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartTables {
    /// By their numbers.
    pub shards: Vec<BTreeMap<u32, PartEntry>>,
}

impl PartTables {
    /// Of a backup of so many shards, without entries so far.
    pub fn new(shards: u16) -> PartTables {
        PartTables { shards: vec![BTreeMap::new(); usize::from(shards)] }
    }

    /// Takes entries of a shard in.
    ///
    /// # Errors
    /// `Corrupt`: a part is named twice, or the shard was not there.
    pub fn add(&mut self, shard: ShardId, entries: Vec<PartEntry>) -> Result<()> {
        let Some(table) = self.shards.get_mut(usize::from(shard)) else {
            return Err(corrupt("a frame of the backup is of a shard that the store did not have"));
        };
        for entry in entries {
            if table.insert(entry.held.name.part, entry).is_some() {
                return Err(corrupt("the backup names a part of the store twice"));
            }
        }
        Ok(())
    }

    /// What another backup is told of these.
    pub fn held(&self) -> Vec<Vec<HeldPart>> {
        self.shards.iter().map(|table| table.values().map(|entry| entry.held).collect()).collect()
    }
}
