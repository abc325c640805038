//! What lies in a region: two headers that are written in turn, then for each shard a watermark and slots.
//!
//! ```text
//! header, at 0 and at 4096, little-endian words:
//!  0 magic  8 version u32, shards u16, void u16  16 store  24 opening
//! 32 slots a shard u32, blocks of an area for snapshots of the index u32  40 bytes a slot
//! 48 counter  56 checksum of the 56 bytes before
//! from 8192, for each shard: a line ([`super::line`]), then its slots; where there is room, two
//! places of 128 bytes for what commits a snapshot of the shard's index, and two areas for their pieces
//! slot, a header of 128 bytes and the image of a group's buffer:
//!  0 log id  8 group  16 segment u32, place in the segment u32  24 life of the segment  32 first sequence
//! 40 durable groups  48 batches resolved  56 expiry shown as past  64 bytes before the group's header
//! 72 the group before that has a slot: where its image ended u32, how many numbers before this one u32
//! 80 checksum of the 80 bytes before  120 expiry shown as past, as it rises, guarded
//! what commits a snapshot, 88 bytes; void when its first word is zero:
//!  0 checksum of the 80 bytes behind it  8 magic u32, area u32  16 life  24 opening  32 number
//! 40 sequence at the beginning  48 newest sequence  56 pieces  64 shard u16, shards u16, zero u32
//! 72 first position  80 last position
//! ```

use crate::format::checkpoint::Commit;
use crate::index::EntryLayout;
use tierstone_base::Seq;
use tierstone_base::checksum::checksum;
use tierstone_base::codec::Reader;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::BLOCK_BYTES;
use tierstone_media::region::LINE_BYTES;

const MAGIC: u64 = 0x7473_6f64_6572_5354;
/// The version of this layout. Version 2 is the same, but nothing in it says what was durable; version 1 has no areas
/// for snapshots either.
pub const VERSION: u32 = 3;
const VERSION_WITHOUT_SNAPSHOTS: u32 = 1;
const VERSION_WITHOUT_EVIDENCE: u32 = 2;
/// Bytes of a region's header.
pub const HEADER_BYTES: usize = 64;
/// Where the two headers lie, in bytes.
pub const HEADER_PLACES: [u64; 2] = [0, 4096];
/// Where the first shard's part begins, in bytes.
const AREAS_START: u64 = 8192;
/// Bytes of a slot before the image of its group.
pub const SLOT_HEADER_BYTES: usize = 128;
/// Where a slot's word of expiry lies in it.
pub const SLOT_PAST: u64 = 120;
const SLOT_SUMMED_BYTES: usize = 80;
/// The same in versions 1 and 2.
const SLOT_SUMMED_BYTES_BEFORE: usize = 72;
/// Bytes of a slot's header that are written when a group begins.
pub const SLOT_WRITTEN_BYTES: usize = SLOT_SUMMED_BYTES + 8;

/// Slots of a shard: wanted at least, and used at most.
const SLOTS_WANTED: u64 = 4;
const SLOTS_MAX: u64 = 64;
/// Bytes of the place of what commits a snapshot of the index.
pub const SNAPSHOT_COMMIT_BYTES: u64 = 128;
/// Of these, bytes that are written.
pub const SNAPSHOT_COMMIT_WRITTEN: usize = 88;
/// Of snapshots whose entries are narrow, and of those whose entries are wide.
const NARROW_SNAPSHOT_MAGIC: u32 = 0x4e53_5354;
const WIDE_SNAPSHOT_MAGIC: u32 = 0x5753_5354;
/// Areas for snapshots of each shard: one may count while the other is written.
pub const SNAPSHOT_AREAS: u32 = 2;
/// An area is so long at least, in bytes, and a multiple of a block.
const SNAPSHOT_BYTES_MIN: u64 = 2 * BLOCK_BYTES as u64;

/// An image is so long at least, in bytes: a segment's header, and a block of group.
pub const IMAGE_BYTES_MIN: u64 = 2 * BLOCK_BYTES as u64;

/// How a region is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Shards that have a part.
    pub shards: u16,
    /// Slots of each.
    pub slots: u32,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Bytes of each of a shard's two areas for snapshots of its index; zero: there are none.
    pub snapshot_bytes: u64,
}

impl Layout {
    /// Divides `region_bytes` among `shards`, for groups of up to `group_bytes`; with less room, for shorter groups.
    /// Of a shard's part its slots have half, but four slots at least and 64 at most; snapshots of its index have the
    /// rest. What is too little for these is for slots.
    ///
    /// # Errors
    /// The bytes that a region needs at least.
    pub fn of(region_bytes: u64, shards: u16, group_bytes: u64) -> std::result::Result<Layout, u64> {
        let shards = shards.max(1);
        let head = SLOT_HEADER_BYTES as u64;
        let area = region_bytes.saturating_sub(AREAS_START) / u64::from(shards) / LINE_BYTES * LINE_BYTES;
        let room = area.saturating_sub(LINE_BYTES);
        let wanted = head + group_bytes.max(IMAGE_BYTES_MIN).next_multiple_of(LINE_BYTES);
        let slot_bytes = wanted.min(room / SLOTS_WANTED / LINE_BYTES * LINE_BYTES);
        if slot_bytes < head + IMAGE_BYTES_MIN {
            let least = LINE_BYTES + SLOTS_WANTED * (head + IMAGE_BYTES_MIN);
            return Err(AREAS_START + u64::from(shards) * least);
        }
        let most = (room / slot_bytes).min(SLOTS_MAX);
        let slots = (room / 2 / slot_bytes).clamp(SLOTS_WANTED.min(most), most);
        let left = (room - slots * slot_bytes) / u64::from(SNAPSHOT_AREAS);
        let blocks = left.saturating_sub(SNAPSHOT_COMMIT_BYTES) / BLOCK_BYTES as u64;
        let snapshot_bytes = blocks.min(u64::from(u32::MAX)) * BLOCK_BYTES as u64;
        let (slots, snapshot_bytes) =
            if snapshot_bytes < SNAPSHOT_BYTES_MIN { (most, 0) } else { (slots, snapshot_bytes) };
        Ok(Layout { shards, slots: slots as u32, slot_bytes, snapshot_bytes })
    }

    /// Bytes of the image in a slot.
    pub fn image_bytes(&self) -> usize {
        self.slot_bytes as usize - SLOT_HEADER_BYTES
    }

    /// Where the part of `shard` begins: at its watermark.
    pub fn area(&self, shard: u16) -> u64 {
        AREAS_START + u64::from(shard) * self.area_bytes()
    }

    fn area_bytes(&self) -> u64 {
        let snapshots = match self.snapshot_bytes {
            0 => 0,
            bytes => u64::from(SNAPSHOT_AREAS) * (SNAPSHOT_COMMIT_BYTES + bytes),
        };
        LINE_BYTES + u64::from(self.slots) * self.slot_bytes + snapshots
    }

    /// Where a slot of `shard` begins.
    pub fn slot(&self, shard: u16, slot: u32) -> u64 {
        self.area(shard) + LINE_BYTES + u64::from(slot) * self.slot_bytes
    }

    /// Areas for snapshots of each shard.
    pub fn snapshot_areas(&self) -> u32 {
        if self.snapshot_bytes > 0 { SNAPSHOT_AREAS } else { 0 }
    }

    /// Where what commits the snapshot in an area of `shard` lies.
    pub fn snapshot_commit(&self, shard: u16, area: u32) -> u64 {
        self.slot(shard, self.slots) + u64::from(area) * SNAPSHOT_COMMIT_BYTES
    }

    /// Where the pieces of the snapshot in an area of `shard` begin.
    pub fn snapshot_pieces(&self, shard: u16, area: u32) -> u64 {
        self.snapshot_commit(shard, SNAPSHOT_AREAS) + u64::from(area) * self.snapshot_bytes
    }

    /// Whether it is one that fits `region_bytes`.
    fn fits(&self, region_bytes: u64) -> bool {
        let is_sane = self.shards > 0
            && (1..=SLOTS_MAX).contains(&u64::from(self.slots))
            && self.slot_bytes.is_multiple_of(LINE_BYTES)
            && self.slot_bytes >= SLOT_HEADER_BYTES as u64 + IMAGE_BYTES_MIN
            && self.slot_bytes <= region_bytes;
        is_sane && self.area(self.shards) <= region_bytes
    }
}

/// What a region's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionHeader {
    /// The store whose writes it holds.
    pub store: u64,
    /// The number of the store's opening that uses it.
    pub opening: u64,
    /// How it is divided.
    pub layout: Layout,
    /// It holds nothing that is needed.
    pub is_void: bool,
    /// Of the two headers the one with the higher number counts.
    pub counter: u64,
    /// It was written by a version in which slots and lines say what was durable.
    pub has_evidence: bool,
}

/// Whether a region is that of a redo log, as far as a word of it tells that is loaded by `load_word` from a place in bytes.
pub fn is_redo_region(load_word: impl Fn(u64) -> u64) -> bool {
    HEADER_PLACES.iter().any(|&place| load_word(place) == MAGIC)
}

impl RegionHeader {
    /// The header's bytes; of the version before where it says that nothing in the region is evidence.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let version = if self.has_evidence { VERSION } else { VERSION_WITHOUT_EVIDENCE };
        let kind = u64::from(version) | u64::from(self.layout.shards) << 32 | u64::from(self.is_void) << 48;
        let Layout { slots, slot_bytes, snapshot_bytes, .. } = self.layout;
        let rooms = u64::from(slots) | (snapshot_bytes / BLOCK_BYTES as u64) << 32;
        let words = [MAGIC, kind, self.store, self.opening, rooms, slot_bytes, self.counter];
        let mut bytes = [0; HEADER_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let sum = checksum(MAGIC, &bytes[..HEADER_BYTES - 8]);
        bytes[HEADER_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a header of a region of `region_bytes`; `None` when there is no whole one.
    ///
    /// # Errors
    /// `Incompatible` when it is whole and of another version.
    pub fn decode(bytes: &[u8; HEADER_BYTES], region_bytes: u64) -> Result<Option<RegionHeader>> {
        let sum = checksum(MAGIC, &bytes[..HEADER_BYTES - 8]);
        let mut reader = Reader::new(bytes);
        let mut words = [0; 8];
        for word in &mut words {
            *word = reader.u64().unwrap_or(0);
        }
        let [magic, kind, store, opening, rooms, slot_bytes, counter, found] = words;
        if magic != MAGIC || found != sum {
            return Ok(None);
        }
        if !(VERSION_WITHOUT_SNAPSHOTS..=VERSION).contains(&(kind as u32)) {
            let message = format!(
                "the redo region has format version {}, this program knows {VERSION_WITHOUT_SNAPSHOTS} to {VERSION}: \
                 use the program that wrote it",
                kind as u32
            );
            return Err(Error::new(ErrorKind::Incompatible, message));
        }
        let snapshot_bytes = (rooms >> 32) * BLOCK_BYTES as u64;
        let layout = Layout { shards: (kind >> 32) as u16, slots: rooms as u32, slot_bytes, snapshot_bytes };
        let has_evidence = kind as u32 > VERSION_WITHOUT_EVIDENCE;
        let header =
            RegionHeader { store, opening, layout, is_void: kind >> 48 & 1 != 0, counter, has_evidence };
        let is_sane = kind as u32 != VERSION_WITHOUT_SNAPSHOTS || snapshot_bytes == 0;
        Ok((is_sane && layout.fits(region_bytes)).then_some(header))
    }
}

/// What a slot's header says of the group in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SlotHeader {
    /// The log of the group.
    pub log_id: u64,
    /// Its number in the log.
    pub group: u64,
    /// The segment that it belongs to.
    pub segment: u32,
    /// Where its buffer begins in the segment, in bytes.
    pub start: u32,
    /// The life of the segment.
    pub generation: u64,
    /// The sequence of its first record.
    pub first_seq: Seq,
    /// Groups of the log that were durable when it began.
    pub durable_groups: u64,
    /// Parts of batches over several shards that were decided then.
    pub batches_resolved: u64,
    /// The highest expiry that was shown as past then, in milliseconds since 1970.
    pub past_ms: u64,
    /// Bytes of the buffer before the group's header: those of the segment's header, or none.
    pub header: u32,
    /// The newest group before it that has a slot, as it was fenced when this one began.
    pub before: Option<Fenced>,
}

/// How much of a group was fenced in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// The group's number.
    pub group: u64,
    /// The end of what was fenced of its image, in bytes.
    pub end: usize,
}

impl SlotHeader {
    fn before_word(&self) -> u64 {
        let Some(Fenced { group, end }) = self.before else { return 0 };
        let distance = u32::try_from(self.group.saturating_sub(group)).unwrap_or(0);
        if distance == 0 { 0 } else { end as u64 & u64::from(u32::MAX) | u64::from(distance) << 32 }
    }

    /// The bytes that are written when the group begins.
    pub fn encode(&self, store: u64) -> [u8; SLOT_WRITTEN_BYTES] {
        let place = u64::from(self.segment) | u64::from(self.start) << 32;
        let words = [
            self.log_id,
            self.group,
            place,
            self.generation,
            self.first_seq,
            self.durable_groups,
            self.batches_resolved,
            self.past_ms,
            u64::from(self.header),
            self.before_word(),
        ];
        let mut bytes = [0; SLOT_WRITTEN_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let sum = checksum(store, &bytes[..SLOT_SUMMED_BYTES]);
        bytes[SLOT_SUMMED_BYTES..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads it, as it lies in a region with or without evidence; `None` when it is not whole, or not of this store.
    pub fn decode(bytes: &[u8], store: u64, has_evidence: bool) -> Option<SlotHeader> {
        let summed = if has_evidence { SLOT_SUMMED_BYTES } else { SLOT_SUMMED_BYTES_BEFORE };
        let sum = checksum(store, bytes.get(..summed)?);
        let mut reader = Reader::new(bytes);
        let (log_id, group, place) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let mut header = SlotHeader {
            log_id,
            group,
            segment: place as u32,
            start: (place >> 32) as u32,
            generation: reader.u64()?,
            first_seq: reader.u64()?,
            durable_groups: reader.u64()?,
            batches_resolved: reader.u64()?,
            past_ms: reader.u64()?,
            header: u32::try_from(reader.u64()?).ok()?,
            before: None,
        };
        if has_evidence {
            let word = reader.u64()?;
            let before = group.checked_sub(word >> 32).filter(|&before| before < group);
            header.before = before.map(|group| Fenced { group, end: word as u32 as usize });
        }
        (reader.u64()? == sum).then_some(header)
    }
}

/// What commits the snapshot in `area` of a region of `store`. The snapshot lies there: it has no segments.
pub(crate) fn encode_snapshot(commit: &Commit, store: u64, area: u32) -> [u8; SNAPSHOT_COMMIT_WRITTEN] {
    let is_narrow = commit.layout == EntryLayout::NARROW;
    let words = [
        u64::from(if is_narrow { NARROW_SNAPSHOT_MAGIC } else { WIDE_SNAPSHOT_MAGIC })
            | u64::from(area) << 32,
        commit.generation,
        commit.open_count,
        commit.number,
        commit.seq,
        commit.newest,
        commit.pieces,
        u64::from(commit.shard) | u64::from(commit.shard_count) << 16,
        commit.first_position,
        commit.last_position,
    ];
    let mut bytes = [0; SNAPSHOT_COMMIT_WRITTEN];
    for (place, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let sum = checksum(store, &bytes[8..]);
    bytes[..8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Reads it; `None` when it is void, not whole, or not of this store and area.
pub(crate) fn decode_snapshot(bytes: &[u8], store: u64, area: u32) -> Option<Commit> {
    let mut reader = Reader::new(bytes);
    let sum = reader.u64()?;
    if sum == 0 || sum != checksum(store, bytes.get(8..SNAPSHOT_COMMIT_WRITTEN)?) {
        return None;
    }
    let layout = match reader.u32()? {
        NARROW_SNAPSHOT_MAGIC => EntryLayout::NARROW,
        WIDE_SNAPSHOT_MAGIC => EntryLayout::WIDE,
        _ => return None,
    };
    if reader.u32()? != area {
        return None;
    }
    let mut commit = Commit {
        store,
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
    reader.u32()?;
    (commit.first_position, commit.last_position) = (reader.u64()?, reader.u64()?);
    Some(commit)
}

#[cfg(test)]
#[path = "format_test.rs"]
mod format_test;
