//! Seals of storage blocks: up to where the records of a block are surely durable.
//!
//! A loss of power may tear records that were not written back, and the log has these. What is under the block's seal
//! was fenced before the seal was stored, so a record there that is not whole is damage, not a tear. Everything that
//! the log does not have any more is under a seal: truncation and the end of a victim come after the seals.
//!
//! A block's life stands in two words, of which each gives the other; where they do not fit and the seal is that of one
//! of them, the block was durable with it, and the other word is damaged.
//!
//! Invariants: a block that is free or begun has no seal, durably. A seal is stored after the fence that made what it covers durable (`sealed_before_fence`). It costs no
//! fence of its own.
//!
//! Crash: the word is an old seal of this life, the new one, or none that fits this life; each is true. The end of a life
//! may leave its seal: the opening ends such a block anew before it is used (`seals_left_on_free_blocks`).

use crate::blocks::{Blocks, Maker};
use crate::format::LEAD_BYTES;
use tierstone_base::Result;
use tierstone_base::checksum::salt;

/// Where in a block's lead its seal is.
const SEAL_AT: u64 = 16;

/// The seal of a block in life `life` whose bytes before `end` are durable.
pub(crate) fn seal_word(life: u64, end: u32) -> u64 {
    let check = salt(!life, u64::from(end)) >> 32;
    u64::from(end) | check << 32
}

/// What a word in a block of this life seals; zero: nothing.
pub(crate) fn sealed_end(word: u64, life: u64) -> u32 {
    if word == seal_word(life, word as u32) { word as u32 } else { 0 }
}

/// The seal of a block in this life.
pub(crate) fn sealed(maker: &Maker, number: u32, life: u64) -> u32 {
    let word = maker.memory.load_word(maker.layout.block(number) + SEAL_AT);
    sealed_end(word, life).min(maker.layout.geometry.block_bytes as u32)
}

/// Whether a block has a word where its seal is.
pub(crate) fn has_seal(maker: &Maker, number: u32) -> bool {
    maker.memory.load_word(maker.layout.block(number) + SEAL_AT) != 0
}

/// What the first line of a block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lead {
    /// No records, or none that can be durable.
    Free,
    /// Records of this life.
    Life(u64),
    /// Records of this life, and a word of the line is damaged.
    Damaged(u64),
}

/// Reads the first line of a block.
pub(crate) fn lead(maker: &Maker, number: u32) -> Lead {
    let Maker { memory, layout, store, .. } = maker;
    let place = layout.block(number);
    let (life, check) = (memory.load_word(place), memory.load_word(place + 8));
    if life == 0 {
        return Lead::Free;
    }
    if check == life_check(*store, number, life) {
        return Lead::Life(life);
    }
    let seal = memory.load_word(place + SEAL_AT);
    let lives = [life, life_of_check(*store, number, check)];
    lives.into_iter().find(|&life| sealed_end(seal, life) > 0).map_or(Lead::Free, Lead::Damaged)
}

/// The word behind a block's life.
pub(crate) fn life_check(store: u64, block: u32, life: u64) -> u64 {
    salt(store ^ u64::from(block).rotate_left(40), life)
}

/// The number that makes 1 of `odd` times itself.
const fn inverse(odd: u64) -> u64 {
    let (mut found, mut round) = (odd, 0);
    while round < 6 {
        found = found.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(found)));
        round += 1;
    }
    found
}

/// Whose check the word is: [`life_check`] backwards, which is [`salt`] backwards.
fn life_of_check(store: u64, number: u32, check: u64) -> u64 {
    let mixed = check.wrapping_mul(inverse(0xd6e8_feb8_6659_fd93));
    let mixed = mixed ^ (mixed >> 32);
    (mixed ^ store ^ u64::from(number).rotate_left(40)).wrapping_mul(inverse(0x9e37_79b9_7f4a_7c15))
}

impl Blocks {
    /// Ends the life of a block, durably. One barrier.
    pub fn end_life(&self, number: u32) -> Result<()> {
        let Maker { memory, layout, .. } = &self.maker;
        let place = layout.block(number);
        memory.put_word(place + SEAL_AT, 0);
        memory.put_word(place, 0);
        memory.barrier("life_end_unfenced")
    }

    /// What of `number` is before `end` is durable, if it is in that life yet.
    pub fn seal(&self, number: u32, life: u64, end: u32) {
        if self.table.get(number).is_some_and(|block| block.life == life) {
            let place = self.maker.layout.block(number) + SEAL_AT;
            self.maker.memory.store_word(place, seal_word(life, end));
            self.maker.memory.write_back(place, 8);
        }
    }

    /// The seal of a block.
    pub fn sealed(&self, number: u32, life: u64) -> u32 {
        sealed(&self.maker, number, life)
    }

    /// Everything in blocks is durable.
    pub fn seal_all(&self) {
        for (number, block) in self.table.iter().filter(|(_, block)| block.end > LEAD_BYTES as u32) {
            if self.sealed(number, block.life) < block.end {
                self.seal(number, block.life, block.end);
            }
        }
    }
}

#[cfg(test)]
#[path = "seal_test.rs"]
mod seal_test;
