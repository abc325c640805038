//! What the small ring dropped lately: fingerprints without records.
//!
//! Invariants:
//! 1. Memory is fixed at creation, two bytes a slot; about as many slots are in use as the main
//!    ring has frames, so that a record is remembered for about one turn of the main ring.
//! 2. A bucket is one cache line of 32 fingerprints, newest first; a new one pushes the oldest
//!    out, so that the set as a whole forgets in about the order in which it learnt.
//! 3. A false memory (at most 32 in 65,535 look-ups) only sends a record to the main ring.

use super::arena::Arena;
use tierstone_base::{KeyspaceId, Position, Result};

const BUCKET_BYTES: usize = 64;
const SLOTS_A_BUCKET: usize = BUCKET_BYTES / 2;

/// A set of fingerprints in order of age.
#[derive(Debug)]
pub(super) struct Ghost {
    slots: Arena,
    buckets_in_use: usize,
}

/// A record as the ghost sees it: the hash of its keyspace and position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shade(u64);

impl Shade {
    #[inline]
    pub(super) fn of(keyspace: KeyspaceId, position: Position) -> Shade {
        let mixed = (position.0 ^ u64::from(keyspace.0).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Shade((mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    fn fingerprint(self) -> [u8; 2] {
        // Zero means an empty slot.
        (self.0 as u16).max(1).to_le_bytes()
    }
}

impl Ghost {
    /// Room for `slots` fingerprints, rounded up to buckets; none are in use yet beyond one bucket.
    pub(super) fn new(slots: usize, huge_pages: bool) -> Result<Ghost> {
        let bytes = slots.div_ceil(SLOTS_A_BUCKET) * BUCKET_BYTES;
        Ok(Ghost { slots: Arena::zeroed(bytes, huge_pages)?, buckets_in_use: usize::from(bytes > 0) })
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.len()
    }

    /// Makes the number of slots in use follow `main_frames`, in steps of two. A step forgets what
    /// was remembered: entries of the old size lie in buckets where nobody looks for them, and age
    /// out. Steps happen while a cache warms up, and when the sizes of records change a lot.
    #[inline]
    pub(super) fn follow(&mut self, main_frames: usize) {
        let in_use = self.buckets_in_use * SLOTS_A_BUCKET;
        if main_frames > in_use || main_frames * 4 < in_use {
            let wanted = main_frames.next_power_of_two().div_ceil(SLOTS_A_BUCKET).max(1);
            self.buckets_in_use = wanted.min(self.slots.len() / BUCKET_BYTES);
        }
    }

    /// Remembers `shade` as the newest.
    pub(super) fn remember(&mut self, shade: Shade) {
        let Some(bucket) = self.bucket(shade) else { return };
        bucket.copy_within(..BUCKET_BYTES - 2, 2);
        bucket[..2].copy_from_slice(&shade.fingerprint());
    }

    /// Whether `shade` was remembered; it is forgotten now.
    pub(super) fn recall(&mut self, shade: Shade) -> bool {
        let Some(bucket) = self.bucket(shade) else { return false };
        let wanted = shade.fingerprint();
        let Some(slot) = bucket.as_chunks::<2>().0.iter().position(|&found| found == wanted) else {
            return false;
        };
        bucket.copy_within(slot * 2 + 2.., slot * 2);
        bucket[BUCKET_BYTES - 2..].fill(0);
        true
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.slots[..self.buckets_in_use * BUCKET_BYTES].fill(0);
    }

    fn bucket(&mut self, shade: Shade) -> Option<&mut [u8]> {
        let bucket = ((u128::from(shade.0) * self.buckets_in_use as u128) >> 64) as usize;
        self.slots.get_mut(bucket * BUCKET_BYTES..(bucket + 1) * BUCKET_BYTES)
    }
}
