//! Words that stand alone, each with a check: a shard's line, and a slot's word of expiry.
//!
//! ```text
//! a shard's line, guarded words: 0 watermark  8 group of the mark, plus one; one: none  24 watermark again
//! 16 end of the mark in its group's image u32, check of it and of the group u32
//! ```
//! A guarded word has a number in its lower 48 bits and a check above, salted with the log; it is never zero.
//!
//! The **mark** names an end up to which a group was fenced in its slot before the mark was stored. It is for what no
//! record and no slot behind it can say: that the header of the newest slot was durable, and its newest records.
//!
//! Crash: a word is an old one or the new one. Either watermark is true, so the higher one counts. Of the mark's two
//! words one may be older: then the end does not fit the group, and the mark says of the group that its header was
//! durable.

use super::RedoMemory;
use super::format::{Fenced, RegionHeader};
use crate::shard::log_id;
use tierstone_base::ShardId;
use tierstone_base::checksum::salt;
use tierstone_media::region::Region;

const MARK_GROUP_AT: u64 = 8;
const MARK_END_AT: u64 = 16;
const WATERMARK_AGAIN_AT: u64 = 24;
/// Bits of a guarded number.
const GUARDED_BITS: u32 = 48;

/// A number below 2^48 with a check, in one word that is never zero.
pub(super) fn guarded(number: u64, salted: u64) -> u64 {
    let number = number.min((1 << GUARDED_BITS) - 1);
    number | (salt(number, !salted) >> GUARDED_BITS | 1) << GUARDED_BITS
}

/// The number; `None` where the word is not one of this salt.
pub(super) fn unguarded(word: u64, salted: u64) -> Option<u64> {
    let number = word & ((1 << GUARDED_BITS) - 1);
    (guarded(number, salted) == word).then_some(number)
}

/// The salt of a slot's word of expiry.
pub(super) fn past_salt(log_id: u64, group: u64) -> u64 {
    salt(log_id, group)
}

fn mark_end(mark: Fenced, log_id: u64) -> u64 {
    let end = mark.end as u64 & u64::from(u32::MAX);
    end | salt(end, salt(log_id, !mark.group)) >> 32 << 32
}

/// What a shard's line says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// Groups below this number are on the device; `None`: nobody knows.
    pub watermark: Option<u64>,
    /// The group whose slot's header was durable, and the end of its records that were; zero where that is unknown.
    pub mark: Option<Fenced>,
    /// The word of the mark's group is none that was ever stored.
    pub is_mark_damaged: bool,
}

impl Line {
    /// Reads the line of `shard`.
    pub fn read(memory: &RedoMemory, header: &RegionHeader, shard: ShardId) -> Line {
        let at = header.layout.area(shard);
        let word = |offset: u64| memory.region.load_word(at + offset);
        if !header.has_evidence {
            return Line { watermark: Some(word(0)), ..Line::default() };
        }
        let log = log_id(header.opening, shard, false);
        let watermark = unguarded(word(0), log).max(unguarded(word(WATERMARK_AGAIN_AT), log));
        let Some(next) = unguarded(word(MARK_GROUP_AT), log) else {
            return Line { watermark, mark: None, is_mark_damaged: true };
        };
        let mark = next.checked_sub(1).map(|group| {
            let found = word(MARK_END_AT);
            let mark = Fenced { group, end: found as u32 as usize };
            if mark_end(mark, log) == found { mark } else { Fenced { group, end: 0 } }
        });
        Line { watermark, mark, is_mark_damaged: false }
    }
}

/// Stores a watermark; durable after the next fence.
pub(super) fn put_watermark(region: &dyn Region, at: u64, log_id: u64, watermark: u64) {
    let word = guarded(watermark, log_id);
    region.store_word(at, word);
    region.store_word(at + WATERMARK_AGAIN_AT, word);
    region.write_back(at, WATERMARK_AGAIN_AT + 8);
}

/// Stores the mark; durable after the next fence.
pub(super) fn put_mark(region: &dyn Region, at: u64, log_id: u64, mark: Option<Fenced>) {
    region.store_word(at + MARK_GROUP_AT, guarded(mark.map_or(0, |mark| mark.group + 1), log_id));
    if let Some(mark) = mark {
        region.store_word(at + MARK_END_AT, mark_end(mark, log_id));
    }
    region.write_back(at + MARK_GROUP_AT, 16);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guarded_number_comes_back_and_a_flipped_bit_or_a_zero_does_not() {
        for number in [0, 1, 77, (1 << 48) - 1] {
            let word = guarded(number, 9);
            assert_eq!(unguarded(word, 9), Some(number));
            assert_ne!(unguarded(word, 10), Some(number), "another log's");
            assert!((0..64).all(|bit| unguarded(word ^ 1 << bit, 9).is_none()), "{number}");
            assert_eq!(unguarded(0, 9), None);
        }
    }
}
