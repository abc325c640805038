//! A process that is killed before a write-back or a fence: what it stored stays, durable or not.

use super::SimRegion;
use crate::Guarantee;
use crate::region::Region;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory whose process is killed before a write-back or a fence, when so many have come: see [`until_killed`].
#[derive(Debug)]
pub struct Killed<const UNIT: usize> {
    region: Arc<SimRegion<UNIT>>,
    left: AtomicU64,
}

impl<const UNIT: usize> Killed<UNIT> {
    /// Over `region`; nothing is killed yet.
    pub fn over(region: Arc<SimRegion<UNIT>>) -> Arc<Self> {
        Arc::new(Killed { region, left: AtomicU64::new(u64::MAX) })
    }

    /// The process is killed before the next write-back or fence but `point`.
    pub fn kill_before(&self, point: u64) {
        self.left.store(1 + point, Ordering::Relaxed);
    }

    fn pass(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            resume_unwind(Box::new(Death));
        }
    }
}

/// What the death of the process unwinds with.
struct Death;

impl<const UNIT: usize> Region for Killed<UNIT> {
    fn bytes(&self) -> u64 {
        self.region.bytes()
    }
    fn guarantee(&self) -> Guarantee {
        self.region.guarantee()
    }
    fn load_word(&self, at: u64) -> u64 {
        self.region.load_word(at)
    }
    fn store_word(&self, at: u64, value: u64) {
        self.region.store_word(at, value);
    }
    fn compare_exchange_word(&self, at: u64, expected: u64, new: u64) -> Result<u64, u64> {
        self.region.compare_exchange_word(at, expected, new)
    }
    fn load(&self, at: u64, into: &mut [u8]) {
        self.region.load(at, into);
    }
    fn store(&self, at: u64, new: &[u8]) {
        self.region.store(at, new);
    }
    fn store_streaming(&self, at: u64, new: &[u8]) {
        self.region.store_streaming(at, new);
    }
    fn write_back(&self, at: u64, bytes: u64) {
        self.pass();
        self.region.write_back(at, bytes);
    }
    fn fence(&self) -> tierstone_base::Result<()> {
        self.pass();
        self.region.fence()
    }
}

/// Does `work` until the process is killed, if it is. Whether it was.
pub fn until_killed(work: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(()) => false,
        Err(payload) if payload.is::<Death>() => true,
        Err(payload) => resume_unwind(payload),
    }
}
