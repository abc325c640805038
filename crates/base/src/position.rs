//! Where a key lives: one 64-bit position a key.
//!
//! The upper 14 bits are the Redis Cluster slot (CRC16 of the hash tag), the lower 50 bits are a
//! keyed hash of the whole key. Shards, index order, SCAN cursors and Split ranges are all ranges
//! of positions; what clients of Redis are given as a cursor are the upper 53 bits of one. The hash is SipHash-1-3 with a secret of the store, so that a client that does
//! not know the secret cannot aim many keys at one place (hash flooding).

use siphasher::sip::SipHasher13;

/// Number of bits of a position that hold the slot.
pub const SLOT_BITS: u32 = 14;
/// Number of Redis Cluster slots.
pub const SLOT_COUNT: u16 = 1 << SLOT_BITS;
const HASH_BITS: u32 = 64 - SLOT_BITS;
/// Number of bits of a position that a cursor has which is given to clients: some keep it as a signed number, some as a
/// double.
pub const CURSOR_BITS: u32 = 53;
const CURSOR_SHIFT: u32 = 64 - CURSOR_BITS;

/// A place in the ordered space of all keys. Two keys may share one; see the engines for how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

impl Position {
    /// The Redis Cluster slot, 0 to 16383.
    pub fn slot(self) -> u16 {
        (self.0 >> HASH_BITS) as u16
    }

    /// The first position of a slot.
    pub fn first_of_slot(slot: u16) -> Position {
        Position(u64::from(slot & (SLOT_COUNT - 1)) << HASH_BITS)
    }

    /// The last position of a slot.
    pub fn last_of_slot(slot: u16) -> Position {
        Position(Self::first_of_slot(slot).0 | ((1 << HASH_BITS) - 1))
    }

    /// The cursor for clients that names this position, and those up to the next cursor's.
    pub fn cursor(self) -> u64 {
        self.0 >> CURSOR_SHIFT
    }

    /// The first position that a cursor names. A number that is none is taken for the position itself, as which cursors
    /// were given once.
    pub fn of_cursor(cursor: u64) -> Position {
        if cursor >> CURSOR_BITS == 0 { Position(cursor << CURSOR_SHIFT) } else { Position(cursor) }
    }

    /// The first position with the same cursor as this one.
    pub fn first_of_cursor(self) -> Position {
        Position::of_cursor(self.cursor())
    }

    /// The shard, of `count` ranges of slots as equal as can be, that owns this position. All keys of a
    /// slot lie on one shard: so do keys with one hash tag, and the chunks of a large value.
    pub fn shard(self, count: u16) -> u16 {
        ((u32::from(self.slot()) * u32::from(count)) >> SLOT_BITS) as u16
    }

    /// The first position owned by shard `shard` of `count`.
    pub fn first_of_shard(shard: u16, count: u16) -> Position {
        let slot = (u64::from(shard) << SLOT_BITS).div_ceil(u64::from(count.max(1)));
        Position(u64::try_from(u128::from(slot) << HASH_BITS).unwrap_or(u64::MAX))
    }
}

/// Turns keys into positions with the store's secret.
#[derive(Clone, Copy, Debug)]
pub struct KeyHasher {
    secret: [u64; 2],
    /// How many low bits of the hash are forced to zero. Only tests set it, to force keys to share
    /// positions.
    weakened_bits: u32,
}

impl KeyHasher {
    /// A hasher for a store whose superblock holds `secret`.
    pub fn new(secret: [u64; 2]) -> Self {
        KeyHasher { secret, weakened_bits: 0 }
    }

    /// A hasher that keeps only `kept` bits of hash, so that positions collide. For tests.
    pub fn weakened(secret: [u64; 2], kept: u32) -> Self {
        KeyHasher { secret, weakened_bits: HASH_BITS.saturating_sub(kept) }
    }

    /// The position of `key`. Cost: one CRC16 over the tag and one SipHash-1-3 over the key.
    pub fn position(&self, key: &[u8]) -> Position {
        let hash = SipHasher13::new_with_keys(self.secret[0], self.secret[1]).hash(key);
        let hash = (hash >> SLOT_BITS) >> self.weakened_bits << self.weakened_bits;
        Position((u64::from(slot_of(key)) << HASH_BITS) | hash)
    }
}

/// The Redis Cluster slot of `key`: CRC16 (XMODEM) of its hash tag, or of the whole key when it
/// has none, modulo 16384.
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) & (SLOT_COUNT - 1)
}

/// The part between the first `{` and the first `}` after it, if that part is not empty.
pub fn hash_tag(key: &[u8]) -> &[u8] {
    if !has_brace(key) {
        return key;
    }
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|&byte| byte == b'}') {
        Some(0) | None => key,
        Some(close) => &rest[..close],
    }
}

/// Whether there is a `{` in `key`: most keys have none. Eight bytes a step.
fn has_brace(key: &[u8]) -> bool {
    const BRACES: u64 = u64::from_ne_bytes([b'{'; 8]);
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let is_in = |word: &[u8; 8]| {
        // A brace is a zero byte now; the lowest byte that borrows a high bit which it has not is one.
        let other = u64::from_ne_bytes(*word) ^ BRACES;
        other.wrapping_sub(ONES) & !other & (ONES << 7) != 0
    };
    match key.last_chunk::<8>() {
        // The last one may show bytes again.
        Some(last) => is_in(last) || key.as_chunks::<8>().0.iter().any(is_in),
        None => key.contains(&b'{'),
    }
}

const CRC16_TABLES: [[u16; 256]; 8] = crc16_tables();

const fn crc16_tables() -> [[u16; 256]; 8] {
    let mut tables = [[0u16; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut level = 1;
    while level < 8 {
        let mut byte = 0;
        while byte < 256 {
            let previous = tables[level - 1][byte];
            tables[level][byte] = (previous << 8) ^ tables[0][(previous >> 8) as usize];
            byte += 1;
        }
        level += 1;
    }
    tables
}

/// CRC16 XMODEM, eight bytes a step: only the first two wait for the step before.
fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0u16;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        crc = CRC16_TABLES[7][usize::from(word[0] ^ (crc >> 8) as u8)]
            ^ CRC16_TABLES[6][usize::from(word[1] ^ crc as u8)]
            ^ CRC16_TABLES[5][usize::from(word[2])]
            ^ CRC16_TABLES[4][usize::from(word[3])]
            ^ CRC16_TABLES[3][usize::from(word[4])]
            ^ CRC16_TABLES[2][usize::from(word[5])]
            ^ CRC16_TABLES[1][usize::from(word[6])]
            ^ CRC16_TABLES[0][usize::from(word[7])];
    }
    for &byte in rest {
        crc = (crc << 8) ^ CRC16_TABLES[0][usize::from((crc >> 8) as u8 ^ byte)];
    }
    crc
}

#[cfg(test)]
#[path = "position_test.rs"]
mod position_test;
