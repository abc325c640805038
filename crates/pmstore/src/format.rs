//! Bytes in persistent memory: header, allocation table, log segments, frames, storage blocks, records.
//!
//! All numbers are little-endian. What each checksum is salted with says whose it is: a record's with the life of
//! its block and its place, a frame's with the life of its segment and its place. Page: `docs/formats/pm-store.md`.

mod layout;

pub use layout::Layout;

use crate::settings::Geometry;
use tierstone_base::checksum::{checksum, salt};
use tierstone_base::{Error, ErrorKind, Result, Seq};
use tierstone_media::region::LINE_BYTES;

/// First word of a store: `TSpmstor`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"TSpmstor");
/// The version that this code writes.
pub const VERSION: u32 = 3;
/// The first version; it becomes [`VERSION`] when the store is opened ([`crate::upgrade`]), and so does the second, in whose
/// allocation table zeros are free.
pub const VERSION_UNGUARDED: u32 = 1;
/// The first version in which the word of a free segment is not zero.
pub const VERSION_FREE_WORDS: u32 = 3;
/// Bytes of the header that its checksum covers, the checksum behind them.
pub const HEADER_WORDS: usize = 11;
/// Where the number of the opening is.
pub const OPENING_AT: u64 = 128;
/// Where the shards' lines begin.
const SHARD_LINES_AT: u64 = 4096;
/// Most shards.
pub const SHARDS_MAX: u16 = 1024;

/// Storage blocks that a shard needs: to append to, to clean into, and in reserve.
pub const BLOCKS_MIN: u64 = 4;

/// Most segments of a store.
const SEGMENTS_MAX: u64 = 1 << 24;
/// Most storage blocks that its segments may have: a number above says something else, or that there is none.
const BLOCKS_MAX: u64 = u32::MAX as u64 - 16;

/// Bytes before the first frame of a log segment, and before the first record of a storage block.
pub const LEAD_BYTES: u64 = LINE_BYTES;

/// What the header says of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub version: u32,
    pub store: u64,
    pub hash_secret: [u64; 2],
    pub geometry: Geometry,
    pub shards: u16,
    pub segments: u32,
    pub first_seq: Seq,
}

impl Header {
    pub fn encode(&self) -> [u8; 96] {
        let words = [
            MAGIC,
            u64::from(self.version)
                | u64::from(self.shards) << 32
                | u64::from(self.geometry.log_segments) << 48,
            self.store,
            self.hash_secret[0],
            self.hash_secret[1],
            self.geometry.segment_bytes,
            self.geometry.block_bytes,
            u64::from(self.segments),
            self.first_seq,
            0,
            0,
        ];
        let mut bytes = [0; 96];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let sum = checksum(MAGIC, &bytes[..HEADER_WORDS * 8]);
        bytes[HEADER_WORDS * 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a header whose first word is the magic.
    pub fn decode(bytes: &[u8; 96]) -> Result<Header> {
        let word = |at: usize| word_at(bytes, at * 8);
        let version = word(1) as u32;
        if !(VERSION_UNGUARDED..=VERSION).contains(&version) {
            let message = format!(
                "the store in this region has format version {version}, this program knows versions up to {VERSION}: \
                 use the program that made it"
            );
            return Err(Error::new(ErrorKind::Incompatible, message));
        }
        // When a store becomes one of a later version, the checksum changes before the version does: of this program's, or of
        // a version between.
        let sum_of = |version: u32| {
            let mut named = *bytes;
            named[8..12].copy_from_slice(&version.to_le_bytes());
            checksum(MAGIC, &named[..HEADER_WORDS * 8])
        };
        if !(version..=VERSION).any(|version| sum_of(version) == word(HEADER_WORDS)) {
            let message = "the header of the store in this region is damaged: restore the region from a copy";
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        let header = Header {
            version,
            store: word(2),
            hash_secret: [word(3), word(4)],
            geometry: Geometry {
                segment_bytes: word(5),
                block_bytes: word(6),
                log_segments: (word(1) >> 48) as u16,
            },
            shards: (word(1) >> 32) as u16,
            segments: word(7) as u32,
            first_seq: word(8),
        };
        let is_possible = header.geometry.is_possible()
            && (1..=SHARDS_MAX).contains(&header.shards)
            && u64::from(header.segments) <= SEGMENTS_MAX
            && header.first_seq < 1 << 62;
        let message =
            "the header of the store in this region says what cannot be: restore the region from a copy";
        is_possible.then_some(header).ok_or_else(|| Error::new(ErrorKind::Corrupt, message))
    }
}

/// The word at byte `at`; zero behind the end.
#[inline]
pub fn word_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

/// What a segment is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// Taken, and not in use yet: free after a crash.
    Claimed,
    /// Frames of a log, or spare for them.
    Log,
    /// Storage blocks.
    Storage,
    /// Parts of long values, in units of this class.
    Overflow(u8),
}

/// Logical number of a log's segment that holds nothing.
pub const SPARE: u32 = u32::MAX;

/// What a word of the allocation table says in its lowest byte if the segment is free.
const FREE_KIND: u64 = 8;

/// A word of the allocation table that is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub kind: SegmentKind,
    /// The logical device: a shard.
    pub device: u16,
    /// The number in it.
    pub logical: u32,
}

impl Entry {
    pub fn encode(self) -> u64 {
        let kind = match self.kind {
            SegmentKind::Claimed => 1,
            SegmentKind::Log => 2,
            SegmentKind::Storage => 3,
            SegmentKind::Overflow(class) => 4 + u64::from(class),
        };
        Self::checked(kind | u64::from(self.device) << 8 | u64::from(self.logical) << 24)
    }

    /// The word of a free segment. It is not zero, so that zeros are seen to be damage.
    pub fn free() -> u64 {
        Self::checked(FREE_KIND)
    }

    fn checked(word: u64) -> u64 {
        word | Self::check(word) << 56
    }

    fn check(word: u64) -> u64 {
        salt(word, MAGIC) >> 56
    }

    /// `Ok(None)`: the segment is free. `Err`: the word is damaged.
    pub fn decode(word: u64) -> std::result::Result<Option<Entry>, ()> {
        let body = word & ((1 << 56) - 1);
        if Self::check(body) != word >> 56 {
            return Err(());
        }
        let kind = match body & 0xff {
            FREE_KIND if body == FREE_KIND => return Ok(None),
            1 => SegmentKind::Claimed,
            2 => SegmentKind::Log,
            3 => SegmentKind::Storage,
            class @ 4..8 => SegmentKind::Overflow((class - 4) as u8),
            _ => return Err(()),
        };
        Ok(Some(Entry { kind, device: (body >> 8) as u16, logical: (body >> 24) as u32 }))
    }
}

/// A life, unlike any other of the store.
pub fn life(opening: u64, shard: u16, count: u64) -> u64 {
    salt(opening << 16 | u64::from(shard), count) | 1
}

/// The line before a log segment's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLead {
    pub life: u64,
    pub logical: u32,
    /// Every sequence in it is at least this one.
    pub first_seq: Seq,
    /// Where the frames of the segment before it end, in bytes; they are durable. Zero: it does not say.
    pub previous_end: u32,
}

impl LogLead {
    pub fn encode(&self, store: u64, segment: u32) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.life.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.logical.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.previous_end.to_le_bytes());
        bytes[24..].copy_from_slice(&self.first_seq.to_le_bytes());
        let sum = checksum(salt(store ^ u64::from(segment), self.life), &bytes[16..]);
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; 32], store: u64, segment: u32) -> Option<LogLead> {
        let life = word_at(bytes, 0);
        let sum = checksum(salt(store ^ u64::from(segment), life), &bytes[16..]);
        let (word, first_seq) = (word_at(bytes, 16), word_at(bytes, 24));
        let lead = LogLead { life, logical: word as u32, first_seq, previous_end: (word >> 32) as u32 };
        (life != 0 && first_seq != 0 && sum == word_at(bytes, 8)).then_some(lead)
    }
}

/// Bytes of a frame before its records.
pub const FRAME_BYTES: usize = 64;
/// The batch goes on in the next frame.
pub const FRAME_MORE: u16 = 1;

/// What a frame says of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Its length, this head included: a multiple of a line.
    pub len: u32,
    pub flags: u16,
    pub records: u16,
    pub first_seq: Seq,
    pub last_seq: Seq,
    /// The batch over several shards of which it is a part.
    pub batch: u64,
    /// How many shards have a part; zero: it is none.
    pub parts: u16,
    /// The number of the opening, which makes the batch's number unique.
    pub opening: u64,
}

/// Where in a frame the verdict on a part is.
pub const VERDICT_AT: u64 = 16;

/// What a shard's medium says of its part of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All parts are durable.
    Decided,
    /// One is missing.
    Void,
}

impl Verdict {
    /// The word that says so in the frame with this checksum, and nowhere else.
    pub fn word(self, frame_checksum: u64) -> u64 {
        salt(frame_checksum, self as u64 + 1)
    }

    pub fn of_word(word: u64, frame_checksum: u64) -> Option<Verdict> {
        [Verdict::Decided, Verdict::Void].into_iter().find(|verdict| verdict.word(frame_checksum) == word)
    }
}

fn frame_checksum(life: u64, offset: u64, bytes: &[u8]) -> u64 {
    checksum(salt(life ^ offset.rotate_left(24), word_at(bytes, 0)), &bytes[24..])
}

impl FrameHead {
    /// Writes the head to the start of `bytes`, a whole frame at `offset` of a segment in life `life`, of which what
    /// lies before `fenced` is durable. Returns the checksum.
    pub fn encode(&self, bytes: &mut [u8], life: u64, offset: u64, fenced: u32) -> u64 {
        let first = u64::from(self.len) | u64::from(self.flags) << 32 | u64::from(self.records) << 48;
        let parts = u64::from(self.parts) | u64::from(fenced) << 32;
        let words = [first, 0, 0, self.first_seq, self.last_seq, self.batch, parts, self.opening];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let sum = frame_checksum(life, offset, bytes);
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        sum
    }

    /// The head in `bytes`, if what it says can be; whether the frame is whole says [`FrameHead::is_whole`].
    pub fn decode(bytes: &[u8; FRAME_BYTES]) -> Option<FrameHead> {
        let first = word_at(bytes, 0);
        let head = FrameHead {
            len: first as u32,
            flags: (first >> 32) as u16,
            records: (first >> 48) as u16,
            first_seq: word_at(bytes, 24),
            last_seq: word_at(bytes, 32),
            batch: word_at(bytes, 40),
            parts: word_at(bytes, 48) as u16,
            opening: word_at(bytes, 56),
        };
        let fits = head.len as usize >= FRAME_BYTES && u64::from(head.len).is_multiple_of(LINE_BYTES);
        (fits && head.first_seq <= head.last_seq).then_some(head)
    }

    /// Up to which byte of its segment everything was durable when a whole frame was made. Zero: it does not say.
    pub fn fenced(bytes: &[u8]) -> u32 {
        (word_at(bytes, 48) >> 32) as u32
    }

    /// The checksum of a whole frame, if it is right.
    pub fn is_whole(bytes: &[u8], life: u64, offset: u64) -> Option<u64> {
        let sum = frame_checksum(life, offset, bytes);
        (sum == word_at(bytes, 8)).then_some(sum)
    }
}

/// Bytes of a record before its key.
pub const RECORD_BYTES: usize = 48;
/// The key was deleted.
pub const FLAG_TOMBSTONE: u8 = 1;
/// The value lies in overflow blocks.
pub const FLAG_OVERFLOW: u8 = 2;
/// The key lies there too, before the value.
pub const FLAG_KEY_OUT: u8 = 4;
/// Recovery has found that the record never counted: both bits. Not covered by the checksum.
pub const FLAG_VOID: u8 = FLAG_VOID_FIRST | 64;
/// The one that said so in the first version.
pub const FLAG_VOID_FIRST: u8 = 128;
/// Where the flags are in the first word.
const FLAGS_SHIFT: u32 = 48;
/// Most extents of a value.
pub const EXTENTS_MAX: usize = 64;

/// What a record says before its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// Its length, this head included: a multiple of 8.
    pub len: u32,
    pub key_len: u16,
    pub flags: u8,
    pub kind: u8,
    pub seq: Seq,
    pub expiry_ms: u64,
    pub position: u64,
    pub keyspace: u32,
    pub value_len: u32,
}

/// Part of a long value in overflow blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins, a multiple of 64.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u32,
}

/// Lower bits of an extent's offset in lines; its length above them, and then the upper bits.
const EXTENT_LOW_BITS: u32 = 36;
const EXTENT_LEN_BITS: u32 = 25;
const EXTENT_HIGH_BITS: u32 = 3;

const _: () = assert!(EXTENT_LOW_BITS + EXTENT_LEN_BITS + EXTENT_HIGH_BITS == u64::BITS);
const _: () = assert!(
    crate::keys::STORE_BYTES_MAX / LINE_BYTES <= 1 << (EXTENT_LOW_BITS + EXTENT_HIGH_BITS),
    "an extent names every line of the largest store"
);
const _: () = assert!(
    crate::settings::SEGMENT_BYTES_MAX < 1 << EXTENT_LEN_BITS,
    "an extent is at most the longest segment"
);

impl Extent {
    /// Lower bits of the offset in lines, the length, upper bits of the offset: zeros in stores below 4 TiB.
    pub fn encode(self) -> u64 {
        let lines = self.offset / LINE_BYTES;
        let (low, high) = (lines & ((1 << EXTENT_LOW_BITS) - 1), lines >> EXTENT_LOW_BITS);
        low | u64::from(self.len) << EXTENT_LOW_BITS | high << (EXTENT_LOW_BITS + EXTENT_LEN_BITS)
    }

    pub fn decode(word: u64) -> Extent {
        let (low, high) = (word & ((1 << EXTENT_LOW_BITS) - 1), word >> (EXTENT_LOW_BITS + EXTENT_LEN_BITS));
        let len = (word >> EXTENT_LOW_BITS) & ((1 << EXTENT_LEN_BITS) - 1);
        Extent { offset: (low | high << EXTENT_LOW_BITS) * LINE_BYTES, len: len as u32 }
    }
}

/// The long part of a value: its checksum, and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overflow {
    pub checksum: u64,
    pub extents: Vec<Extent>,
}

/// What of a key and value a record holds itself.
#[derive(Clone, Copy, Debug)]
pub struct RecordBody<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub overflow: Option<&'a Overflow>,
}

impl RecordHead {
    pub fn is_tombstone(&self) -> bool {
        self.flags & FLAG_TOMBSTONE != 0
    }

    pub fn is_overflow(&self) -> bool {
        self.flags & FLAG_OVERFLOW != 0
    }

    pub fn is_void(&self) -> bool {
        self.flags & FLAG_VOID == FLAG_VOID
    }

    /// Appends the record to `out`, its checksum left zero.
    pub fn encode(&self, out: &mut Vec<u8>, body: RecordBody<'_>) {
        let start = out.len();
        let first = u64::from(self.len)
            | u64::from(self.key_len) << 32
            | u64::from(self.flags) << FLAGS_SHIFT
            | u64::from(self.kind) << 56;
        let last = u64::from(self.keyspace) | u64::from(self.value_len) << 32;
        for word in [first, 0, self.seq, self.expiry_ms, self.position, last] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        if let Some(overflow) = body.overflow {
            out.extend_from_slice(&overflow.checksum.to_le_bytes());
            out.extend_from_slice(&(overflow.extents.len() as u64).to_le_bytes());
            overflow.extents.iter().for_each(|extent| out.extend_from_slice(&extent.encode().to_le_bytes()));
        }
        out.extend_from_slice(body.key);
        out.extend_from_slice(body.value);
        out.resize(start + self.len as usize, 0);
    }

    /// The head in `bytes`, if what it says can be in `room` bytes; whether the record is whole says
    /// [`record_is_whole`].
    pub fn decode(bytes: &[u8], room: u64) -> Option<RecordHead> {
        let (first, last) = (word_at(bytes, 0), word_at(bytes, 40));
        let head = RecordHead {
            len: first as u32,
            key_len: (first >> 32) as u16,
            flags: (first >> FLAGS_SHIFT) as u8,
            kind: (first >> 56) as u8,
            seq: word_at(bytes, 16),
            expiry_ms: word_at(bytes, 24),
            position: word_at(bytes, 32),
            keyspace: last as u32,
            value_len: (last >> 32) as u32,
        };
        let key_len = if head.flags & FLAG_KEY_OUT == 0 { u64::from(head.key_len) } else { 0 };
        let value_len = if head.is_overflow() { 16 } else { u64::from(head.value_len) };
        let least = RECORD_BYTES as u64 + key_len + value_len;
        let len = u64::from(head.len);
        (len.is_multiple_of(8) && len >= least && len <= room).then_some(head)
    }

    /// The overflow of a whole record.
    pub fn overflow(&self, record: &[u8]) -> Option<Overflow> {
        if !self.is_overflow() {
            return None;
        }
        let count = (word_at(record, RECORD_BYTES + 8) as usize).min(EXTENTS_MAX);
        let extents =
            (0..count).map(|at| Extent::decode(word_at(record, RECORD_BYTES + 16 + at * 8))).collect();
        Some(Overflow { checksum: word_at(record, RECORD_BYTES), extents })
    }

    /// Bytes of a whole record before its key.
    pub fn len_before_key(&self, record: &[u8]) -> usize {
        match self.is_overflow() {
            true => RECORD_BYTES + 16 + (word_at(record, RECORD_BYTES + 8) as usize).min(EXTENTS_MAX) * 8,
            false => RECORD_BYTES,
        }
    }

    /// Key and value as a whole record holds them: both empty where they lie in overflow blocks.
    pub fn body<'a>(&self, record: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let at = self.len_before_key(record);
        let key_len = if self.flags & FLAG_KEY_OUT == 0 { usize::from(self.key_len) } else { 0 };
        let value_len = if self.is_overflow() { 0 } else { self.value_len as usize };
        let key = record.get(at..at + key_len).unwrap_or_default();
        (key, record.get(at + key_len..at + key_len + value_len).unwrap_or_default())
    }

    /// Bytes that lie in overflow blocks: the value, after the key where that is out too.
    pub fn payload_len(&self) -> usize {
        let key_len = if self.flags & FLAG_KEY_OUT == 0 { 0 } else { usize::from(self.key_len) };
        key_len + self.value_len as usize
    }

    /// Bytes of the record, with those in overflow blocks.
    pub fn bytes(&self) -> u64 {
        let payload = if self.is_overflow() { self.payload_len() } else { 0 };
        u64::from(self.len) + payload as u64
    }
}

fn record_checksum(life: u64, offset: u64, record: &[u8]) -> u64 {
    let first = word_at(record, 0) & !(u64::from(FLAG_VOID) << FLAGS_SHIFT);
    checksum(salt(life ^ offset.rotate_left(24), first), &record[16..])
}

/// Puts the checksum of a record that will lie at `offset` of a block in life `life`.
#[inline]
pub fn seal_record(record: &mut [u8], life: u64, offset: u64) {
    let sum = record_checksum(life, offset, record);
    record[8..16].copy_from_slice(&sum.to_le_bytes());
}

/// Whether the record at `offset` is as it was written there in this life.
#[inline]
pub fn record_is_whole(record: &[u8], life: u64, offset: u64) -> bool {
    record_checksum(life, offset, record) == word_at(record, 8)
}

/// Whether a record, or the start of one, is a tombstone.
pub fn is_tombstone(record: &[u8]) -> bool {
    record.get(6).is_some_and(|flags| flags & FLAG_TOMBSTONE != 0)
}

/// The first word of a record that never counted.
pub fn void_word(first: u64) -> u64 {
    first | u64::from(FLAG_VOID) << FLAGS_SHIFT
}

/// The checksum of what lies in overflow blocks.
pub fn payload_checksum(seq: Seq, payload: &[u8]) -> u64 {
    checksum(salt(seq, payload.len() as u64), payload)
}

#[cfg(test)]
#[path = "format_test.rs"]
mod format_test;
