//! A backup as bytes: frames with checksums, a manifest that comes last and makes it complete.
//!
//! `docs/formats/backup.md` draws them, with examples that a test compares. Whoever makes a backup frames the pieces
//! of each shard where they arise ([`ShardFramer`]); whoever writes one down or reads it takes every frame through a
//! [`BackupReader`], which knows what has come.
//!
//! Invariants:
//! 1. Every byte of a backup is under a checksum that is salted with the backup's id, but for the first frame, which
//!    says the id and is under one without.
//! 2. The frames of a shard are numbered without gaps; the manifest says how many there are, of how many records and
//!    bytes, and what all their checksums come to. A backup without it is not complete, and nothing follows it.
//! 3. A backup that was made since another one names it, by its id and the checksum of its manifest ([`since`], [`chain`]).
//! 4. Lengths and counts are checked before anything is allocated or used by them.

pub mod chain;
pub mod since;

use crate::database_map::DatabaseMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use since::PartTables;
use tierstone_base::checksum::{checksum, checksum_parts};
use tierstone_base::codec::Reader;
use tierstone_base::{Error, ErrorKind, Result, Seq, ShardId};
use tierstone_engine::backup::{PieceKind, read_parts};
use tierstone_engine::{BackupPiece, BackupRecords, IndexKind, PartState};

/// Bytes of a frame before its payload.
pub const HEADER_BYTES: usize = 40;
/// The longest payload, in bytes: the longest record, and a piece before it.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;
/// Shards of a store at most.
pub(crate) const SHARDS_MAX: u16 = 1024;
const MAGIC: [u8; 4] = *b"TSBK";
/// The version of the format that this program writes; it reads no newer one.
pub const VERSION: u8 = 2;
/// The first version, without parts; still read.
const OLDEST_VERSION: u8 = 1;
/// Bytes of the header that its checksum covers.
const SUMMED_BYTES: usize = 32;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// What the backup is of: the first frame.
    Start,
    /// Records of one shard.
    Records,
    /// What has come: the last frame.
    Manifest,
    /// A piece of the table of parts of one shard.
    Parts,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The version of the format.
    pub version: u8,
    /// What it is.
    pub kind: FrameKind,
    /// The shard whose records it has.
    pub shard: ShardId,
    /// Its number among those of its shard.
    pub number: u64,
    /// How many records it has.
    pub records: u64,
    /// Bytes of its payload.
    pub len: usize,
}

/// What a backup is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupStart {
    /// Its id, chosen by chance: the salt of all checksums behind.
    pub id: u64,
    /// The time of the cut in milliseconds since 1970: what had expired by then is left out.
    pub taken_at_ms: u64,
    /// Shards of the store.
    pub shards: u16,
    /// Bytes of a segment of the store: one with such segments takes every record; 0: one with any.
    pub segment_bytes: u64,
    /// No sequence of the store was higher.
    pub seq: Seq,
    /// No key expires by an earlier time, in milliseconds since 1970.
    pub past_ms: u64,
    /// About how many bytes of records there are.
    pub bytes: u64,
    /// Databases and keyspaces with names.
    pub map: DatabaseMap,
    /// How the numbered databases find their keys.
    pub index: IndexKind,
    /// The id of the store; 0 in the first version.
    #[serde(default)]
    pub store: u64,
    /// How often it was opened; 0 in the first version.
    #[serde(default)]
    pub opening: u64,
    /// The backup since which this one is made; none for a whole one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<BaseName>,
}

/// A backup that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BaseName {
    /// Its id.
    pub id: u64,
    /// The checksum of its manifest's frame.
    pub manifest: u64,
}

/// What has come of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardTotals {
    /// Frames.
    pub frames: u64,
    /// Records.
    pub records: u64,
    /// Parts in its table; 0 in the first version.
    #[serde(default)]
    pub parts: u64,
    /// Bytes of payloads.
    pub bytes: u64,
    /// Each frame's checksum, under that of all before it.
    pub checksum: u64,
}

/// The end of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupManifest {
    /// What has come of each shard, in their order.
    pub shards: Vec<ShardTotals>,
}

impl FrameKind {
    fn byte(self) -> u8 {
        match self {
            FrameKind::Start => 1,
            FrameKind::Records => 2,
            FrameKind::Manifest => 3,
            FrameKind::Parts => 4,
        }
    }

    fn of(byte: u8) -> Option<Self> {
        [FrameKind::Start, FrameKind::Records, FrameKind::Manifest, FrameKind::Parts]
            .into_iter()
            .find(|kind| kind.byte() == byte)
    }
}

impl FrameHeader {
    /// The head of the frame that begins with `bytes`. Nothing but its form has been checked.
    ///
    /// # Errors
    /// `Incompatible`: a newer version. `Corrupt`: no frame begins here.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<FrameHeader> {
        Self::read(bytes)?.ok_or_else(|| corrupt("no frame of a backup begins where one should"))
    }

    fn read(bytes: &[u8; HEADER_BYTES]) -> Result<Option<FrameHeader>> {
        let mut reader = Reader::new(bytes);
        if reader.bytes(4) != Some(&MAGIC) {
            return Ok(None);
        }
        let version = match reader.u8() {
            Some(version @ OLDEST_VERSION..=VERSION) => version,
            Some(version) if version > VERSION => {
                let message =
                    format!("the backup has format {version}, and this program reads up to {VERSION}");
                return Err(Error::new(ErrorKind::Incompatible, message));
            }
            _ => return Ok(None),
        };
        Ok(Self::fields(version, reader))
    }

    fn fields(version: u8, mut reader: Reader<'_>) -> Option<FrameHeader> {
        let kind = FrameKind::of(reader.u8()?)?;
        let (shard, number, records) = (reader.u16()?, reader.u64()?, reader.u64()?);
        let len = usize::try_from(reader.u32()?).ok().filter(|len| *len <= PAYLOAD_BYTES_MAX)?;
        Some(FrameHeader { version, kind, shard, number, records, len })
    }

    /// Of a frame that is no shard's.
    fn alone(kind: FrameKind, len: usize) -> FrameHeader {
        FrameHeader { version: VERSION, kind, shard: 0, number: 0, records: 0, len }
    }

    /// The frame as bytes, its payload behind its head.
    fn encode(&self, salt: u64, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::with_capacity(HEADER_BYTES + payload.len());
        frame.extend_from_slice(&MAGIC);
        frame.extend_from_slice(&[self.version, self.kind.byte()]);
        frame.extend_from_slice(&self.shard.to_le_bytes());
        frame.extend_from_slice(&self.number.to_le_bytes());
        frame.extend_from_slice(&self.records.to_le_bytes());
        frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        frame.extend_from_slice(&[0; 4]);
        let sum = checksum_parts(salt, &[&frame, payload]);
        frame.extend_from_slice(&sum.to_le_bytes());
        frame.extend_from_slice(payload);
        frame
    }
}

impl BackupStart {
    /// The frame that a backup begins with.
    ///
    /// # Errors
    /// When the databases cannot be written down.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let payload = to_json(self)?;
        let head = FrameHeader::alone(FrameKind::Start, payload.len());
        Ok(head.encode(0, &payload))
    }

    fn check(&self) -> Result<()> {
        if self.shards == 0 || self.shards > SHARDS_MAX {
            return Err(corrupt("the backup's first frame makes no sense: its number of shards"));
        }
        self.map.check().map_err(|error| error.context("the backup's first frame makes no sense"))
    }
}

/// Makes the frames of one shard's records.
#[derive(Clone, Debug)]
pub struct ShardFramer {
    id: u64,
    shard: ShardId,
    number: u64,
}

impl ShardFramer {
    /// Of the backup `id`.
    pub fn new(id: u64, shard: ShardId) -> Self {
        ShardFramer { id, shard, number: 0 }
    }

    /// The frame of the next piece.
    pub fn frame(&mut self, piece: &BackupPiece) -> Vec<u8> {
        let (shard, number, records) = (self.shard, self.number, piece.records);
        self.number += 1;
        let kind = match piece.kind {
            PieceKind::Records => FrameKind::Records,
            PieceKind::Parts => FrameKind::Parts,
        };
        let head = FrameHeader { version: VERSION, kind, shard, number, records, len: piece.bytes.len() };
        head.encode(self.id, &piece.bytes)
    }
}

/// A frame that has come and is whole.
#[derive(Debug)]
pub enum Taken<'a> {
    /// The first one.
    Start,
    /// Records of a shard, all of them whole.
    Records {
        /// The shard.
        shard: ShardId,
        /// The records.
        records: BackupRecords<'a>,
    },
    /// Parts, which are in [`BackupReader::tables`] now.
    Parts,
    /// The last one, and it agrees with what has come.
    Complete,
}

/// Takes a backup frame by frame, and checks all that can be checked.
#[derive(Clone, Debug, Default)]
pub struct BackupReader {
    start: Option<BackupStart>,
    version: u8,
    shards: Vec<ShardTotals>,
    tables: PartTables,
    manifest_sum: Option<u64>,
}

impl BackupReader {
    /// What the backup is of, once the first frame has come.
    pub fn start(&self) -> Option<&BackupStart> {
        self.start.as_ref()
    }

    /// What has come of each shard.
    pub fn shards(&self) -> &[ShardTotals] {
        &self.shards
    }

    /// What has come of all shards.
    pub fn totals(&self) -> ShardTotals {
        let mut sum = ShardTotals::default();
        for shard in &self.shards {
            sum.frames += shard.frames;
            sum.records += shard.records;
            sum.parts += shard.parts;
            sum.bytes += shard.bytes;
        }
        sum
    }

    /// Whether the manifest has come.
    pub fn is_complete(&self) -> bool {
        self.manifest_sum.is_some()
    }

    /// The name of the backup, once it is complete.
    pub fn name(&self) -> Option<BaseName> {
        Some(BaseName { id: self.start.as_ref()?.id, manifest: self.manifest_sum? })
    }

    /// The parts that have come.
    pub fn tables(&self) -> &PartTables {
        &self.tables
    }

    /// The same, without the reader.
    pub fn into_tables(self) -> PartTables {
        self.tables
    }

    /// Takes the next frame: its head, and the payload that this says it has.
    ///
    /// # Errors
    /// `Corrupt`: it is not whole, or not the one that follows. `Incompatible`: see [`FrameHeader::decode`].
    pub fn take<'a>(&mut self, head: &[u8; HEADER_BYTES], payload: &'a [u8]) -> Result<Taken<'a>> {
        let header = FrameHeader::decode(head)?;
        let salt = self.start.as_ref().map_or(0, |start| start.id);
        let (summed, sum) = head.split_at(SUMMED_BYTES);
        let found = checksum_parts(salt, &[summed, payload]);
        if header.len != payload.len() || sum != found.to_le_bytes() {
            return Err(corrupt("a frame of the backup is damaged: its checksum is wrong"));
        }
        if self.start.is_some() && header.version != self.version {
            return Err(corrupt("the frames of the backup are of different formats"));
        }
        match (header.kind, &self.start) {
            _ if self.is_complete() => Err(corrupt("something follows the end of the backup")),
            (FrameKind::Start, None) => {
                let start: BackupStart = from_json(payload)?;
                start.check()?;
                self.shards = vec![ShardTotals::default(); usize::from(start.shards)];
                self.tables = PartTables::new(start.shards);
                (self.start, self.version) = (Some(start), header.version);
                Ok(Taken::Start)
            }
            (FrameKind::Records, Some(_)) => self.take_records(&header, found, payload),
            (FrameKind::Parts, Some(start)) if header.version > OLDEST_VERSION => {
                let has_base = start.base.is_some();
                self.take_parts(&header, (found, has_base), payload)
            }
            (FrameKind::Manifest, Some(_)) => {
                let manifest: BackupManifest = from_json(payload)?;
                if manifest.shards != self.shards {
                    return Err(corrupt("frames of the backup are missing: the manifest tells of others"));
                }
                self.manifest_sum = Some(found);
                Ok(Taken::Complete)
            }
            _ => Err(corrupt("the frames of the backup are in a wrong order")),
        }
    }

    /// The same of a frame in one piece.
    ///
    /// # Errors
    /// As [`BackupReader::take`].
    pub fn take_whole<'a>(&mut self, frame: &'a [u8]) -> Result<Taken<'a>> {
        match frame.split_first_chunk() {
            Some((head, payload)) => self.take(head, payload),
            None => Err(corrupt("a frame of the backup is too short")),
        }
    }

    /// Takes a frame of records without them: its head says what they are.
    ///
    /// # Errors
    /// `Corrupt`: it is not the one that follows, or no frame of records. `Incompatible`: see [`FrameHeader::decode`].
    pub fn skip(&mut self, head: &[u8; HEADER_BYTES]) -> Result<()> {
        let header = FrameHeader::decode(head)?;
        let is_in_place = self.start.is_some() && !self.is_complete() && header.version == self.version;
        if header.kind != FrameKind::Records || !is_in_place {
            return Err(corrupt("the frames of the backup are in a wrong order"));
        }
        let sum = Reader::new(&head[SUMMED_BYTES..]).u64().unwrap_or(0);
        self.count(&header, sum)?.records += header.records;
        Ok(())
    }

    /// The frame of a shard with this head, and checksum, is the one that follows: counts it.
    fn count(&mut self, header: &FrameHeader, sum: u64) -> Result<&mut ShardTotals> {
        let Some(totals) = self.shards.get_mut(usize::from(header.shard)) else {
            return Err(corrupt("a frame of the backup is of a shard that the store did not have"));
        };
        if header.number != totals.frames {
            let message = format!(
                "frame {} of shard {} is missing from the backup: {} follows",
                totals.frames, header.shard, header.number
            );
            return Err(corrupt(&message));
        }
        totals.frames += 1;
        totals.bytes += header.len as u64;
        totals.checksum = checksum(totals.checksum, &sum.to_le_bytes());
        Ok(totals)
    }

    fn take_records<'a>(&mut self, header: &FrameHeader, sum: u64, payload: &'a [u8]) -> Result<Taken<'a>> {
        let records = match header.version {
            OLDEST_VERSION => BackupRecords::without_places(payload),
            _ => BackupRecords::new(payload),
        };
        let mut all = records.clone();
        if all.by_ref().count() as u64 != header.records || all.is_damaged() {
            return Err(corrupt("the records in a frame of the backup make no sense"));
        }
        self.count(header, sum)?.records += header.records;
        Ok(Taken::Records { shard: header.shard, records })
    }

    fn take_parts<'a>(
        &mut self,
        header: &FrameHeader,
        (sum, has_base): (u64, bool),
        payload: &[u8],
    ) -> Result<Taken<'a>> {
        let entries = read_parts(payload).filter(|entries| entries.len() as u64 == header.records);
        let Some(entries) = entries else {
            return Err(corrupt("the parts in a frame of the backup make no sense"));
        };
        if !has_base && entries.iter().any(|entry| entry.state != PartState::Given) {
            return Err(corrupt("a whole backup names parts that it does not give"));
        }
        self.count(header, sum)?.parts += header.records;
        self.tables.add(header.shard, entries)?;
        Ok(Taken::Parts)
    }

    /// The frame that completes what has come.
    ///
    /// # Errors
    /// `InvalidInput`: nothing has come, or it is complete.
    pub fn manifest(&self) -> Result<Vec<u8>> {
        let Some(start) = self.start.as_ref().filter(|_| !self.is_complete()) else {
            return Err(Error::new(ErrorKind::InvalidInput, "there is no backup to be completed"));
        };
        let payload = to_json(&BackupManifest { shards: self.shards.clone() })?;
        let head = FrameHeader::alone(FrameKind::Manifest, payload.len());
        Ok(head.encode(start.id, &payload))
    }
}

fn to_json(value: &impl Serialize) -> Result<Vec<u8>> {
    let wrong =
        |error| Error::new(ErrorKind::InvalidInput, format!("the backup cannot be described: {error}"));
    serde_json::to_vec(value).map_err(wrong)
}

fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|error| corrupt(&format!("a frame of the backup makes no sense: {error}")))
}

fn corrupt(message: &str) -> Error {
    Error::new(ErrorKind::Corrupt, message)
}

#[cfg(test)]
#[path = "backup_test.rs"]
mod backup_test;
