//! How far the opening of a store has come: what its shards have still to read before they serve.
//!
//! [`OpeningProgress`] is held by who waits, and looked at from any thread; each shard counts into it by its
//! [`OpeningPart`], which its plan owns. Cost: an addition a piece that was read, of tens of kilobytes or more.
//!
//! Invariant: what is done never exceeds what is expected, and equals it when no part is left, however that ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How far an opening has come; clones show the same one.
#[derive(Clone, Debug, Default)]
pub struct OpeningProgress(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    bytes: AtomicU64,
    bytes_total: AtomicU64,
    parts: AtomicU64,
    parts_total: AtomicU64,
}

/// What was seen of an opening. Nothing is known while `parts_total` is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpeningSeen {
    /// Bytes that were read, or need not be.
    pub bytes: u64,
    /// Bytes that have to be read, by what was known at the beginning.
    pub bytes_total: u64,
    /// Shards that are built.
    pub parts: u64,
    /// Shards in all.
    pub parts_total: u64,
}

impl OpeningProgress {
    /// Begins anew: for an opening whose settings were used for one before.
    pub fn begin(&self) {
        let Counts { bytes, bytes_total, parts, parts_total } = &*self.0;
        [bytes, bytes_total, parts, parts_total].iter().for_each(|count| count.store(0, Ordering::Release));
    }

    /// A shard that has about so many bytes to read.
    #[must_use]
    pub fn part(&self, bytes: u64) -> OpeningPart {
        self.0.bytes_total.fetch_add(bytes, Ordering::AcqRel);
        self.0.parts_total.fetch_add(1, Ordering::AcqRel);
        OpeningPart { progress: self.clone(), left: AtomicU64::new(bytes) }
    }

    /// How far it has come.
    pub fn seen(&self) -> OpeningSeen {
        let Counts { bytes, bytes_total, parts, parts_total } = &*self.0;
        // What is done first: it may grow in between, but not beyond what is expected.
        let (parts, bytes) = (parts.load(Ordering::Acquire), bytes.load(Ordering::Acquire));
        OpeningSeen {
            bytes,
            bytes_total: bytes_total.load(Ordering::Acquire),
            parts,
            parts_total: parts_total.load(Ordering::Acquire),
        }
    }
}

impl OpeningSeen {
    /// Whether shards are still being built.
    pub fn is_under_way(&self) -> bool {
        self.parts < self.parts_total
    }

    /// What is done, in percent: 100 only when all shards are built.
    pub fn percent(&self) -> f64 {
        match (self.is_under_way(), self.bytes_total) {
            (false, _) => 100.0,
            (true, 0) => 0.0,
            (true, total) => (100.0 * self.bytes as f64 / total as f64).min(99.9),
        }
    }

    /// How long it takes still, if it goes on as in the `elapsed_us` microseconds since it began; `None`: not known.
    pub fn left_us(&self, elapsed_us: u64) -> Option<u64> {
        match (self.is_under_way(), self.bytes) {
            (false, _) => Some(0),
            (true, 0) => None,
            (true, bytes) => {
                let left = self.bytes_total.saturating_sub(bytes);
                Some((u128::from(elapsed_us) * u128::from(left) / u128::from(bytes)) as u64)
            }
        }
    }
}

/// One shard's part of an opening. It is over when this is dropped.
#[derive(Debug)]
pub struct OpeningPart {
    progress: OpeningProgress,
    left: AtomicU64,
}

impl OpeningPart {
    /// So many bytes more are done. Beyond what was expected they do not count.
    pub fn advance(&self, bytes: u64) {
        let left = self.left.load(Ordering::Relaxed);
        let counted = bytes.min(left);
        self.left.store(left - counted, Ordering::Relaxed);
        self.progress.0.bytes.fetch_add(counted, Ordering::AcqRel);
    }

    /// At most so many bytes are still to be read.
    pub fn at_most_left(&self, bytes: u64) {
        self.advance(self.left.load(Ordering::Relaxed).saturating_sub(bytes));
    }

    /// At least so many bytes are still to be read: more than was known at the beginning.
    pub fn at_least_left(&self, bytes: u64) {
        let more = bytes.saturating_sub(self.left.load(Ordering::Relaxed));
        self.progress.0.bytes_total.fetch_add(more, Ordering::AcqRel);
        self.left.fetch_add(more, Ordering::Relaxed);
    }
}

impl Default for OpeningPart {
    /// One that nobody looks at.
    fn default() -> Self {
        OpeningProgress::default().part(0)
    }
}

impl Drop for OpeningPart {
    fn drop(&mut self) {
        self.at_most_left(0);
        self.progress.0.parts.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_never_exceeds_what_is_expected() {
        let progress = OpeningProgress::default();
        assert_eq!(progress.seen().percent(), 100.0, "nothing is waited for");
        let (first, second) = (progress.part(100), progress.part(300));
        assert!(progress.seen().is_under_way() && progress.seen().percent() == 0.0);
        assert_eq!(progress.seen().left_us(7), None);
        first.advance(50);
        second.advance(50);
        assert_eq!((progress.seen().percent(), progress.seen().left_us(1_000)), (25.0, Some(3_000)));
        first.advance(1_000);
        assert_eq!(progress.seen().bytes, 150);
        second.at_most_left(10);
        assert_eq!(progress.seen().bytes, 390);
        second.at_most_left(20);
        assert_eq!(progress.seen().bytes, 390, "never backwards");
        second.at_least_left(30);
        assert_eq!(progress.seen().bytes_total, 420, "more than was expected");
        drop(first);
        second.advance(30);
        let seen = progress.seen();
        assert_eq!((seen.bytes, seen.bytes_total, seen.parts, seen.parts_total), (420, 420, 1, 2));
        assert!(seen.percent() < 100.0, "the second shard is not built");
        drop(second);
        assert_eq!((progress.seen().percent(), progress.seen().left_us(1)), (100.0, Some(0)));
        progress.begin();
        assert_eq!(progress.seen(), OpeningSeen::default());
    }
}
