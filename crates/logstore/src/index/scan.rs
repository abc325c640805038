//! Scans in the order of positions, in steps, while the index changes between the steps.
//!
//! The promise of Redis's SCAN: an entry that exists from the first step to the last is returned
//! at least once. It holds because
//! 1. an entry in a bucket knows the bits that choose its bucket, so that it is in the bucket of
//!    its true position, whatever growing, splitting, shrinking and merging happened;
//! 2. a step returns whole buckets, from the one that holds the cursor, and answers with the start
//!    of the first bucket that it did not return: every entry with a true position from the old
//!    cursor up to the new one has been returned;
//! 3. of the stash a step returns what starts in the range that it covers, and what starts before
//!    the cursor and may end after it: an entry that was moved there, or whose last bits were
//!    forgotten in a merge, is not missed.

use super::bucket::bucket_offset;
use super::hash::HashIndex;
use super::value::{IndexValue, ScanProgress};
use tierstone_base::Position;

/// Buckets and empty regions that one step visits at most, so that it stays short in an index that
/// was emptied.
const STEP_VISITS: usize = 1024;

impl HashIndex {
    /// Appends entries from `cursor` on, in the order of their buckets, to `out`: whole buckets
    /// until at least `max_entries` are there (at least one bucket; all entries of one position
    /// come in one step). Answers where to go on; start with position 0. May append nothing and
    /// still ask to go on.
    ///
    /// Cost: two cache lines for about eight entries.
    pub fn scan(&self, cursor: Position, max_entries: usize, out: &mut Vec<IndexValue>) -> ScanProgress {
        let enough = out.len() + max_entries.max(1);
        let mut visits = 0;
        let mut at = cursor;
        if !self.stash.is_empty() {
            out.extend(self.stash.straddling(cursor.0).map(|entry| entry.value));
        }
        loop {
            let region = self.regions.get(self.directory.find(at));
            let prefix_bits = region.prefix_bits();
            let start = region.start(at);
            let length = 1u128 << (64 - prefix_bits);
            let bucket_count = region.bucket_count();
            let mut bucket = if bucket_count == 0 { 0 } else { region.home(at) };
            loop {
                let end = if bucket_count == 0 {
                    length
                } else {
                    region.for_each_at_home(&self.arena, bucket, |entry| out.push(entry.value()));
                    bucket_offset(bucket + 1, prefix_bits, bucket_count)
                };
                let next = u128::from(start) + end;
                let last = (next - 1) as u64;
                if region.stashed != 0 {
                    out.extend(self.stash.starting_in(at.0, last).map(|entry| entry.value));
                }
                let Some(after) = last.checked_add(1) else { return ScanProgress::End };
                at = Position(after);
                visits += 1;
                if out.len() >= enough || visits >= STEP_VISITS {
                    return ScanProgress::Next(at);
                }
                bucket += 1;
                if bucket >= bucket_count {
                    break;
                }
            }
        }
    }
}
