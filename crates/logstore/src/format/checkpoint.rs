//! A checkpoint of a shard's index: pieces in segments of their own, and one block that commits them.
//!
//! ```text
//! segment 0 of the checkpoint        segments 1 … n - 1
//!  block 0       header               header        (state "checkpoint", first group: its number)
//!  block 1 …     pieces               pieces        (all of one length but the last)
//!  last block    commit               void
//!
//! piece:   checksum u64 | magic u32 zero u32 | number u64 | length u32 zero u32 | items, length bytes
//! item:    kind u32 length u32 | length bytes
//!   1 chunk:     keyspace u32 zero u32 | from position u64 | applied seq u64 | regions of the index
//!   2 segments:  40 bytes each: segment u32 tombstones u32 | generation u64 | live records u32 zero u32
//!                | live bytes u64 | tombstone bytes u64
//!   3 keyspaces: id u32 each: those whose chunks are here
//!   4 dropped:   id u32 each: dropped when the checkpoint began
//!   5 touches:   56 bytes each: keyspace u32 units u32 | position u64 | sequence and place of the value u64 u64
//!                | expiry u64 | sequence and place of the touch u64 u64
//! commit:  checksum u64 | magic u32 version u32 | store u64 | generation u64 | opening u64 | number u64
//!          | seq u64 | newest seq u64 | pieces u64 | shard u16 shards u16 segments u32
//!          | first position u64 | last position u64 | segment numbers u32 each
//! ```
//! All checksums are salted with segment and generation. The commit is void unless all of its block is
//! there, so that a torn one commits nothing.

use crate::index::EntryLayout;
use crate::shard::segment_salt;
use tierstone_base::checksum::checksum;
use tierstone_base::codec::Reader;
use tierstone_base::{KeyspaceId, Position, Seq, ShardId};
use tierstone_media::BLOCK_BYTES;

const PIECE_MAGIC: u32 = 0x5043_5354;
const COMMIT_MAGIC: u32 = 0x4343_5354;
/// Of checkpoints whose entries are narrow, and of those whose entries are wide.
const NARROW_VERSION: u32 = 1;
const WIDE_VERSION: u32 = 2;
/// Bytes of a piece before its items.
pub const PIECE_HEADER_BYTES: usize = 32;
/// Bytes of an item before its content.
pub const ITEM_HEADER_BYTES: usize = 8;
/// Bytes of a chunk before the regions.
pub const CHUNK_HEADER_BYTES: usize = 24;
/// Bytes of a segment's facts.
pub const SEGMENT_FACT_BYTES: usize = 40;
/// Segments of a checkpoint at most: so many numbers fit the block that commits.
pub const SEGMENTS_MAX: usize = 960;
/// Bytes of a touch.
pub const TOUCH_FACT_BYTES: usize = 56;
const COMMIT_FIXED_BYTES: usize = 96;
const _: () = assert!(COMMIT_FIXED_BYTES + 4 * SEGMENTS_MAX <= BLOCK_BYTES);
/// A piece is as long as its segment allows, up to this.
const PIECE_BYTES_MAX: usize = 256 << 10;

/// Bytes of a piece, header included, in segments of `segment_bytes`.
pub fn piece_bytes(segment_bytes: u64) -> usize {
    (segment_bytes as usize - 2 * BLOCK_BYTES).min(PIECE_BYTES_MAX)
}

/// Pieces of a segment.
pub fn pieces_a_segment(segment_bytes: u64) -> u64 {
    (segment_bytes - 2 * BLOCK_BYTES as u64) / piece_bytes(segment_bytes) as u64
}

/// Where piece `number` begins: which of the checkpoint's segments, and the offset in it.
pub fn piece_place(number: u64, segment_bytes: u64) -> (usize, usize) {
    let each = pieces_a_segment(segment_bytes);
    let slot = (number % each) as usize;
    ((number / each) as usize, BLOCK_BYTES + slot * piece_bytes(segment_bytes))
}

/// Writes the header of the piece in `piece`, whose items end at `used`.
pub fn seal_piece(piece: &mut [u8], number: u64, used: usize, salt: u64) {
    piece[8..12].copy_from_slice(&PIECE_MAGIC.to_le_bytes());
    piece[12..16].fill(0);
    piece[16..24].copy_from_slice(&number.to_le_bytes());
    piece[24..28].copy_from_slice(&((used - PIECE_HEADER_BYTES) as u32).to_le_bytes());
    piece[28..32].fill(0);
    let sum = checksum(salt, &piece[8..used]);
    piece[..8].copy_from_slice(&sum.to_le_bytes());
}

/// The items of piece `number`, if it is whole.
pub fn open_piece(piece: &[u8], number: u64, salt: u64) -> Option<&[u8]> {
    let mut reader = Reader::new(piece);
    let sum = reader.u64()?;
    let (magic, _, found) = (reader.u32()?, reader.u32()?, reader.u64()?);
    let (length, _) = (reader.u32()? as usize, reader.u32()?);
    let summed = piece.get(8..PIECE_HEADER_BYTES.checked_add(length)?)?;
    let whole = magic == PIECE_MAGIC && found == number && checksum(salt, summed) == sum;
    whole.then(|| &summed[PIECE_HEADER_BYTES - 8..])
}

/// What a segment held when the checkpoint began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SegmentFact {
    /// The segment.
    pub segment: u32,
    /// Needed tombstones.
    pub tombstones: u32,
    /// Its life.
    pub generation: u64,
    /// Records that the index pointed to, and needed tombstones.
    pub live_records: u32,
    /// Their bytes.
    pub live_bytes: u64,
    /// Of these, bytes of tombstones.
    pub tombstone_bytes: u64,
}

impl SegmentFact {
    fn read(reader: &mut Reader<'_>) -> Option<SegmentFact> {
        let (segment, tombstones, generation) = (reader.u32()?, reader.u32()?, reader.u64()?);
        let (live_records, _) = (reader.u32()?, reader.u32()?);
        let (live_bytes, tombstone_bytes) = (reader.u64()?, reader.u64()?);
        Some(SegmentFact { segment, tombstones, generation, live_records, live_bytes, tombstone_bytes })
    }

    /// Appends it to an item of segments.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.segment.to_le_bytes());
        out.extend(self.tombstones.to_le_bytes());
        out.extend(self.generation.to_le_bytes());
        out.extend(u64::from(self.live_records).to_le_bytes());
        out.extend(self.live_bytes.to_le_bytes());
        out.extend(self.tombstone_bytes.to_le_bytes());
    }
}

/// What a touch said of a value when it was put into the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TouchFact {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// Units of the touch.
    pub units: u32,
    /// The key's position.
    pub position: Position,
    /// The sequence of the value.
    pub value_seq: Seq,
    /// Where the value lay, as [`crate::location::Location::raw`] says.
    pub value_place: u64,
    /// When the value expires, in milliseconds since 1970; zero: never.
    pub expiry_ms: u64,
    /// The sequence of the touch.
    pub seq: Seq,
    /// Where the touch lay.
    pub place: u64,
}

impl TouchFact {
    fn read(reader: &mut Reader<'_>) -> Option<TouchFact> {
        Some(TouchFact {
            keyspace: KeyspaceId(reader.u32()?),
            units: reader.u32()?,
            position: Position(reader.u64()?),
            value_seq: reader.u64()?,
            value_place: reader.u64()?,
            expiry_ms: reader.u64()?,
            seq: reader.u64()?,
            place: reader.u64()?,
        })
    }

    /// Appends it to an item of touches.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.keyspace.0.to_le_bytes());
        out.extend(self.units.to_le_bytes());
        let words = [self.position.0, self.value_seq, self.value_place, self.expiry_ms, self.seq, self.place];
        words.iter().for_each(|word| out.extend(word.to_le_bytes()));
    }
}

/// The kinds of items, as they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// Part of an index.
    Chunk = 1,
    /// Facts of segments.
    Segments = 2,
    /// Keyspaces whose chunks the checkpoint holds.
    Keyspaces = 3,
    /// Keyspaces that had been dropped.
    Dropped = 4,
    /// What touches say of values.
    Touches = 5,
}

/// The header of an item of `length` bytes.
pub fn item_header(kind: ItemKind, length: usize) -> [u8; ITEM_HEADER_BYTES] {
    let mut header = [0; ITEM_HEADER_BYTES];
    header[..4].copy_from_slice(&(kind as u32).to_le_bytes());
    header[4..].copy_from_slice(&(length as u32).to_le_bytes());
    header
}

/// The header of a chunk: what `keyspace` held from position `from` on when `applied` was the newest
/// sequence.
pub fn chunk_header(keyspace: KeyspaceId, from: Position, applied: Seq) -> [u8; CHUNK_HEADER_BYTES] {
    let mut header = [0; CHUNK_HEADER_BYTES];
    header[..4].copy_from_slice(&keyspace.0.to_le_bytes());
    header[8..16].copy_from_slice(&from.0.to_le_bytes());
    header[16..].copy_from_slice(&applied.to_le_bytes());
    header
}

/// An item as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// Part of an index.
    Chunk {
        /// Whose.
        keyspace: KeyspaceId,
        /// It holds the entries from here up to where the next chunk of the keyspace begins.
        from: Position,
        /// As of this sequence.
        applied: Seq,
        /// Regions, for [`HashIndex::load`](crate::index::HashIndex::load).
        regions: &'a [u8],
    },
    /// Facts of segments.
    Segments(Vec<SegmentFact>),
    /// Keyspaces whose chunks the checkpoint holds.
    Keyspaces(Vec<KeyspaceId>),
    /// Keyspaces that had been dropped.
    Dropped(Vec<KeyspaceId>),
    /// What touches say of values.
    Touches(Vec<TouchFact>),
}

/// Takes the next item off `items`; `None` when there is none, or none that a writer made.
pub fn next_item<'a>(items: &mut &'a [u8]) -> Option<Item<'a>> {
    let mut reader = Reader::new(items);
    let (kind, length) = (reader.u32()?, reader.u32()? as usize);
    let content = reader.bytes(length)?;
    *items = reader.rest();
    let mut reader = Reader::new(content);
    let ids = || {
        let (ids, rest) = content.as_chunks::<4>();
        rest.is_empty().then(|| ids.iter().map(|id| KeyspaceId(u32::from_le_bytes(*id))).collect())
    };
    Some(match kind {
        1 => {
            let (keyspace, _) = (KeyspaceId(reader.u32()?), reader.u32()?);
            let (from, applied) = (Position(reader.u64()?), reader.u64()?);
            Item::Chunk { keyspace, from, applied, regions: reader.rest() }
        }
        2 => {
            let mut facts = Vec::new();
            while !reader.rest().is_empty() {
                facts.push(SegmentFact::read(&mut reader)?);
            }
            Item::Segments(facts)
        }
        3 => Item::Keyspaces(ids()?),
        4 => Item::Dropped(ids()?),
        5 => {
            let mut touches = Vec::new();
            while !reader.rest().is_empty() {
                touches.push(TouchFact::read(&mut reader)?);
            }
            Item::Touches(touches)
        }
        _ => return None,
    })
}

/// What commits a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Commit {
    /// The store's id.
    pub store: u64,
    /// The life of the checkpoint's segments.
    pub generation: u64,
    /// The opening that wrote it.
    pub open_count: u64,
    /// Its number in that opening.
    pub number: u64,
    /// The newest sequence when it began: what came later is in the log.
    pub seq: Seq,
    /// The newest sequence when its last chunk was made. Later writes have higher ones, even if all
    /// records that tell so are gone.
    pub newest: Seq,
    /// How many pieces there are.
    pub pieces: u64,
    /// How the entries in them are cut.
    pub layout: EntryLayout,
    /// Whose index it is.
    pub shard: ShardId,
    /// Of how many.
    pub shard_count: u16,
    /// The first position of the shard.
    pub first_position: u64,
    /// The last position of the shard.
    pub last_position: u64,
    /// Its segments, in order.
    pub segments: Vec<u32>,
}

impl Commit {
    /// Writes the block that commits, for the checkpoint's first segment.
    pub fn encode(&self, block: &mut [u8]) {
        block[8..12].copy_from_slice(&COMMIT_MAGIC.to_le_bytes());
        let version = if self.layout == EntryLayout::NARROW { NARROW_VERSION } else { WIDE_VERSION };
        block[12..16].copy_from_slice(&version.to_le_bytes());
        let (opening, seqs) = ([self.open_count, self.number], [self.seq, self.newest]);
        let words = [&[self.store, self.generation][..], &opening, &seqs, &[self.pieces]].concat();
        for (place, word) in block[16..72].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        block[72..74].copy_from_slice(&self.shard.to_le_bytes());
        block[74..76].copy_from_slice(&self.shard_count.to_le_bytes());
        block[76..80].copy_from_slice(&(self.segments.len() as u32).to_le_bytes());
        block[80..88].copy_from_slice(&self.first_position.to_le_bytes());
        block[88..96].copy_from_slice(&self.last_position.to_le_bytes());
        for (place, number) in block[COMMIT_FIXED_BYTES..].chunks_exact_mut(4).zip(&self.segments) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let first = self.segments.first().copied().unwrap_or(0);
        let sum = checksum(segment_salt(self.store, first, self.generation), &block[8..BLOCK_BYTES]);
        block[..8].copy_from_slice(&sum.to_le_bytes());
    }

    /// Reads and verifies the last block of `segment` in its life `generation`; `None`: the checkpoint
    /// that begins there is not committed.
    pub fn decode(block: &[u8], store: u64, segment: u32, generation: u64) -> Option<Commit> {
        let block = block.get(..BLOCK_BYTES)?;
        let mut reader = Reader::new(block);
        if reader.u64()? != checksum(segment_salt(store, segment, generation), &block[8..]) {
            return None;
        }
        if reader.u32()? != COMMIT_MAGIC {
            return None;
        }
        let layout = match reader.u32()? {
            NARROW_VERSION => EntryLayout::NARROW,
            WIDE_VERSION => EntryLayout::WIDE,
            _ => return None,
        };
        let mut commit = Commit {
            store: reader.u64()?,
            generation: reader.u64()?,
            open_count: reader.u64()?,
            number: reader.u64()?,
            seq: reader.u64()?,
            newest: reader.u64()?,
            pieces: reader.u64()?,
            shard: reader.u16()?,
            shard_count: reader.u16()?,
            layout,
            ..Commit::default()
        };
        let count = reader.u32()? as usize;
        (commit.first_position, commit.last_position) = (reader.u64()?, reader.u64()?);
        let numbers = reader.bytes(count.checked_mul(4)?)?;
        commit.segments = numbers.as_chunks::<4>().0.iter().map(|raw| u32::from_le_bytes(*raw)).collect();
        let own = commit.store == store && commit.segments.first() == Some(&segment);
        (own && commit.generation == generation).then_some(commit)
    }
}
