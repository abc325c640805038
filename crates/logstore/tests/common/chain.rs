//! A chain of backups as it comes, and what it shows.

use super::run::Contents;
use std::collections::BTreeMap;
use tierstone_engine::backup::{PieceKind, read_parts};
use tierstone_engine::{BackupPiece, BackupRecords, BackupSince, PartEntry, PartState};

/// A record as a backup gave it.
#[derive(Clone, Debug)]
pub struct Given {
    pub place: (u32, Vec<u8>),
    pub value: Vec<u8>,
    pub expiry_ms: u64,
}

/// Records of a part by their places.
pub type PartRecords = BTreeMap<u32, Given>;

/// What a chain of backups shows.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    pub since: Option<BackupSince>,
    pub parts: BTreeMap<u32, PartRecords>,
    pub taken_at_ms: u64,
}

/// One backup as it comes.
#[derive(Debug, Default)]
pub struct Coming {
    pub bytes: usize,
    pub records: BTreeMap<u32, PartRecords>,
    pub entries: Vec<PartEntry>,
}

impl Coming {
    pub fn take(&mut self, piece: &BackupPiece) {
        self.bytes += piece.bytes.len();
        if piece.kind == PieceKind::Parts {
            return self.entries.extend(read_parts(&piece.bytes).unwrap());
        }
        let records = BackupRecords::new(&piece.bytes);
        let part = self.records.entry(records.part().unwrap().0).or_default();
        for record in records {
            let place = (record.keyspace.0, record.key.to_vec());
            let given = Given { place, value: record.value.to_vec(), expiry_ms: record.expiry_ms };
            assert!(part.insert(record.place, given).is_none(), "a place comes twice");
        }
    }
}

impl Chain {
    /// Adds a backup that has come whole.
    pub fn add(&mut self, mut coming: Coming, opening: u64, taken_at_ms: u64) {
        let mut parts = BTreeMap::new();
        let mut held = Vec::new();
        coming.entries.sort_by_key(|entry| entry.held.name);
        for entry in coming.entries {
            let part = entry.held.name.part;
            let mut records = match &entry.state {
                PartState::Given => coming.records.remove(&part).unwrap_or_default(),
                PartState::Kept => self.parts.remove(&part).unwrap(),
                PartState::Changed(gone) => {
                    let mut records = self.parts.remove(&part).unwrap();
                    records.retain(|place, _| !gone.contains(place));
                    records
                }
            };
            for (place, expiry_ms) in &entry.expiries {
                if let Some(given) = records.get_mut(place) {
                    given.expiry_ms = *expiry_ms;
                }
            }
            held.push(entry.held);
            assert!(parts.insert(part, records).is_none(), "a part is named twice");
        }
        assert!(
            coming.records.is_empty(),
            "records of parts that are not named: {:?}",
            coming.records.keys()
        );
        self.since = Some(BackupSince { opening, taken_at_ms, parts: held });
        (self.parts, self.taken_at_ms) = (parts, taken_at_ms);
    }

    /// What it shows of the keyspaces that there are.
    pub fn contents(&self, keyspaces: &[u32]) -> Contents {
        let mut found = Contents::new();
        let is_live = |given: &&Given| given.expiry_ms == 0 || given.expiry_ms > self.taken_at_ms;
        let all = self.parts.values().flat_map(|part| part.values()).filter(is_live);
        for given in all.filter(|given| keyspaces.contains(&given.place.0)) {
            let twin = found.insert(given.place.clone(), (given.value.clone(), given.expiry_ms));
            assert!(twin.is_none(), "{:?} came twice", given.place);
        }
        found
    }
}
