//! A segment's first and last block: the header that says whose life this is, the footer that seals it.
//!
//! ```text
//! header, block 0:   magic u32 version u32 | store u64 | segment u32 state u8 temperature u8 zero u16
//!                    | generation u64 | log id u64 | opened at seq u64 | first group u64
//!                    | durable groups u64 | first position u64 | last position u64 | checksum u64
//! footer, last block: magic u32 version u32 | store u64 | segment u32 zero u32 | generation u64
//!                    | log id u64 | first group u64 | end group u64 | data end u32 summary start u32
//!                    | summary bytes u32 records u32 | min seq u64 | max seq u64
//!                    | longest record u32 zero u32 | summary checksum u64 | past ms u64 | checksum u64
//! ```
//! Both fit one 512-byte sector, so that a torn write leaves the old or the new one.

use tierstone_base::Seq;
use tierstone_base::checksum::checksum;
use tierstone_base::codec::Reader;

const HEADER_MAGIC: u32 = 0x4853_5354;
const FOOTER_MAGIC: u32 = 0x4653_5354;
/// The version of headers.
pub const VERSION: u32 = 1;
/// The version of footers.
const FOOTER_VERSION: u32 = 2;
/// Without a high-water of expiry; still read.
const FOOTER_OLDEST_VERSION: u32 = 1;
const HEADER_SUMMED: usize = 80;
const FOOTER_SUMMED: usize = 112;

/// What a segment is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// Nothing: every record that may lie in it is void.
    Free,
    /// Part of a log.
    Log,
    /// A checkpoint of the index.
    Checkpoint,
}

/// How often the records of a log change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temperature {
    /// Written by users.
    Hot,
    /// Moved by the cleaner: survivors.
    Cold,
}

/// What the first block of a segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The store's id.
    pub store: u64,
    /// The segment's own number.
    pub segment: u32,
    /// What it is used for.
    pub state: SegmentState,
    /// How often its records change.
    pub temperature: Temperature,
    /// This life of the segment; never repeats in a store.
    pub generation: u64,
    /// The log that it belongs to.
    pub log_id: u64,
    /// The newest sequence when it was opened.
    pub opened_seq: Seq,
    /// The number of its first group.
    pub first_group: u64,
    /// Groups below this number were durable when it was opened.
    pub durable_groups: u64,
    /// The first position that its log takes.
    pub first_position: u64,
    /// The last position that its log takes.
    pub last_position: u64,
}

impl SegmentHeader {
    /// The header of a free segment that was opened last when `opened_seq` was the newest sequence.
    pub fn free(store: u64, segment: u32, opened_seq: Seq) -> SegmentHeader {
        SegmentHeader {
            store,
            segment,
            state: SegmentState::Free,
            temperature: Temperature::Hot,
            generation: 0,
            log_id: 0,
            opened_seq,
            first_group: 0,
            durable_groups: 0,
            first_position: 0,
            last_position: 0,
        }
    }

    /// Writes the header at the start of `out`.
    pub fn encode(&self, out: &mut [u8]) {
        let state = match self.state {
            SegmentState::Free => 0u8,
            SegmentState::Log => 1,
            SegmentState::Checkpoint => 2,
        };
        out[0..4].copy_from_slice(&HEADER_MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&VERSION.to_le_bytes());
        out[8..16].copy_from_slice(&self.store.to_le_bytes());
        out[16..20].copy_from_slice(&self.segment.to_le_bytes());
        out[20..24].copy_from_slice(&[state, u8::from(self.temperature == Temperature::Cold), 0, 0]);
        let words = [
            self.generation,
            self.log_id,
            self.opened_seq,
            self.first_group,
            self.durable_groups,
            self.first_position,
            self.last_position,
        ];
        put_words(&mut out[24..HEADER_SUMMED], &words);
        let sum = checksum(u64::from(HEADER_MAGIC), &out[..HEADER_SUMMED]);
        out[HEADER_SUMMED..HEADER_SUMMED + 8].copy_from_slice(&sum.to_le_bytes());
    }

    /// Reads and verifies a header.
    pub fn decode(bytes: &[u8]) -> HeaderFound {
        match Self::decode_checked(bytes) {
            Some(found) => found,
            None if bytes.iter().all(|&byte| byte == 0) => HeaderFound::Blank,
            None => HeaderFound::Damaged,
        }
    }

    fn decode_checked(bytes: &[u8]) -> Option<HeaderFound> {
        let head = bytes.get(..HEADER_SUMMED + 8)?;
        let mut reader = Reader::new(head);
        if reader.u32()? != HEADER_MAGIC {
            return None;
        }
        let sum = checksum(u64::from(HEADER_MAGIC), &head[..HEADER_SUMMED]);
        if Reader::new(&head[HEADER_SUMMED..]).u64()? != sum {
            return None;
        }
        let version = reader.u32()?;
        if version != VERSION {
            return Some(HeaderFound::OtherVersion(version));
        }
        let store = reader.u64()?;
        let segment = reader.u32()?;
        let state = match reader.u8()? {
            0 => SegmentState::Free,
            1 => SegmentState::Log,
            2 => SegmentState::Checkpoint,
            _ => return None,
        };
        let temperature = if reader.u8()? == 0 { Temperature::Hot } else { Temperature::Cold };
        let _ = reader.u16()?;
        Some(HeaderFound::Whole(SegmentHeader {
            store,
            segment,
            state,
            temperature,
            generation: reader.u64()?,
            log_id: reader.u64()?,
            opened_seq: reader.u64()?,
            first_group: reader.u64()?,
            durable_groups: reader.u64()?,
            first_position: reader.u64()?,
            last_position: reader.u64()?,
        }))
    }
}

/// What the first block of a segment turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFound {
    /// A header.
    Whole(SegmentHeader),
    /// A header of a format that this program does not know.
    OtherVersion(u32),
    /// Zeros: never used.
    Blank,
    /// Something else.
    Damaged,
}

/// What the last block of a sealed segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFooter {
    /// The store's id.
    pub store: u64,
    /// The segment's own number.
    pub segment: u32,
    /// The life of the segment that was sealed.
    pub generation: u64,
    /// Its log.
    pub log_id: u64,
    /// The number of its first group.
    pub first_group: u64,
    /// The number after its last group.
    pub end_group: u64,
    /// Where its last group ends, in bytes from the start of the segment. What lies between here
    /// and the summary is void.
    pub data_end: u32,
    /// Where the summary begins.
    pub summary_start: u32,
    /// Bytes of the summary.
    pub summary_len: u32,
    /// Records in the summary.
    pub records: u32,
    /// The lowest sequence of its records.
    pub min_seq: Seq,
    /// The highest sequence of its records.
    pub max_seq: Seq,
    /// Units of the longest record.
    pub longest_units: u32,
    /// The checksum of the summary.
    pub summary_checksum: u64,
    /// The highest expiry that its shard had shown as past when its groups were closed, in milliseconds
    /// since 1970.
    pub past_ms: u64,
}

impl SegmentFooter {
    /// Writes the footer at the start of `out`.
    pub fn encode(&self, out: &mut [u8]) {
        out[0..4].copy_from_slice(&FOOTER_MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&FOOTER_VERSION.to_le_bytes());
        out[8..16].copy_from_slice(&self.store.to_le_bytes());
        out[16..20].copy_from_slice(&self.segment.to_le_bytes());
        out[20..24].fill(0);
        put_words(&mut out[24..56], &[self.generation, self.log_id, self.first_group, self.end_group]);
        for (place, word) in
            [(56, self.data_end), (60, self.summary_start), (64, self.summary_len), (68, self.records)]
        {
            out[place..place + 4].copy_from_slice(&word.to_le_bytes());
        }
        put_words(
            &mut out[72..FOOTER_SUMMED],
            &[self.min_seq, self.max_seq, u64::from(self.longest_units), self.summary_checksum, self.past_ms],
        );
        let sum = checksum(self.generation, &out[..FOOTER_SUMMED]);
        out[FOOTER_SUMMED..FOOTER_SUMMED + 8].copy_from_slice(&sum.to_le_bytes());
    }

    /// Reads and verifies a footer of this `generation`; `None`: the segment is not sealed.
    pub fn decode(bytes: &[u8], generation: u64) -> Option<SegmentFooter> {
        let head = bytes.get(..FOOTER_SUMMED + 8)?;
        let mut reader = Reader::new(head);
        if reader.u32()? != FOOTER_MAGIC {
            return None;
        }
        let summed = match reader.u32()? {
            FOOTER_OLDEST_VERSION => FOOTER_SUMMED - 8,
            FOOTER_VERSION => FOOTER_SUMMED,
            _ => return None,
        };
        let store = reader.u64()?;
        let segment = reader.u32()?;
        let _ = reader.u32()?;
        let footer = SegmentFooter {
            store,
            segment,
            generation: reader.u64()?,
            log_id: reader.u64()?,
            first_group: reader.u64()?,
            end_group: reader.u64()?,
            data_end: reader.u32()?,
            summary_start: reader.u32()?,
            summary_len: reader.u32()?,
            records: reader.u32()?,
            min_seq: reader.u64()?,
            max_seq: reader.u64()?,
            longest_units: reader.u64()?.try_into().ok()?,
            summary_checksum: reader.u64()?,
            past_ms: if summed == FOOTER_SUMMED { reader.u64()? } else { 0 },
        };
        let sum = checksum(generation, &head[..summed]);
        (reader.u64()? == sum && footer.generation == generation).then_some(footer)
    }
}

fn put_words(out: &mut [u8], words: &[u64]) {
    for (place, word) in out.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            store: 1,
            segment: 2,
            state: SegmentState::Log,
            temperature: Temperature::Cold,
            generation: 3,
            log_id: 4,
            opened_seq: 5,
            first_group: 6,
            durable_groups: 7,
            first_position: 8,
            last_position: 9,
        }
    }

    fn footer() -> SegmentFooter {
        SegmentFooter {
            store: 1,
            segment: 2,
            generation: 3,
            log_id: 4,
            first_group: 5,
            end_group: 6,
            data_end: 7,
            summary_start: 8,
            summary_len: 9,
            records: 10,
            min_seq: 11,
            max_seq: 12,
            longest_units: 13,
            summary_checksum: 14,
            past_ms: 15,
        }
    }

    proptest! {
        #[test]
        fn a_flipped_bit_in_header_or_footer_is_seen(place in 0..4096usize, bit in 0..8u32) {
            let mut block = vec![0; 4096];
            header().encode(&mut block);
            prop_assert_eq!(SegmentHeader::decode(&block), HeaderFound::Whole(header()));
            block[place % (HEADER_SUMMED + 8)] ^= 1 << bit;
            prop_assert_ne!(SegmentHeader::decode(&block), HeaderFound::Whole(header()));
            footer().encode(&mut block);
            prop_assert_eq!(SegmentFooter::decode(&block, 3), Some(footer()));
            prop_assert_eq!(SegmentFooter::decode(&block, 4), None);
            block[place % (FOOTER_SUMMED + 8)] ^= 1 << bit;
            prop_assert_eq!(SegmentFooter::decode(&block, 3), None);
        }

        #[test]
        fn hostile_blocks_never_panic(bytes: Vec<u8>) {
            let _ = (SegmentHeader::decode(&bytes), SegmentFooter::decode(&bytes, 0));
        }
    }

    #[test]
    fn a_footer_of_the_first_version_says_nothing_of_expiry() {
        let mut block = vec![0; 4096];
        footer().encode(&mut block);
        block[4..8].copy_from_slice(&FOOTER_OLDEST_VERSION.to_le_bytes());
        let sum = checksum(3, &block[..104]);
        block[104..112].copy_from_slice(&sum.to_le_bytes());
        block[112..120].fill(0);
        let wanted = SegmentFooter { past_ms: 0, ..footer() };
        assert_eq!(SegmentFooter::decode(&block, 3), Some(wanted));
    }

    #[test]
    fn a_block_of_zeros_is_blank() {
        assert_eq!(SegmentHeader::decode(&[0; 4096]), HeaderFound::Blank);
        assert_eq!(SegmentHeader::decode(&[1; 4096]), HeaderFound::Damaged);
    }
}
