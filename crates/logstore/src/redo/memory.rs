//! A region as the redo logs of a store use it: its header, and making it void.

use super::format::{HEADER_BYTES, HEADER_PLACES, Layout, RegionHeader};
use super::line;
use crate::shard::log_id;
use std::sync::Arc;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_crash::Mutations;
use tierstone_media::Guarantee;
use tierstone_media::region::Region;

/// A region that holds the redo logs of a store; a clone is the same region.
#[derive(Clone)]
pub struct RedoMemory {
    pub(super) region: Arc<dyn Region + Send + Sync>,
}

// What a panic leaves in a region is what a crash of the process leaves: replay takes it.
impl std::panic::UnwindSafe for RedoMemory {}
impl std::panic::RefUnwindSafe for RedoMemory {}

impl std::fmt::Debug for RedoMemory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} bytes, {}", self.region.bytes(), self.region.guarantee().name())
    }
}

impl RedoMemory {
    /// Redo logs in `region`, which nothing else uses.
    pub fn new(region: Arc<dyn Region + Send + Sync>) -> Self {
        RedoMemory { region }
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.region.bytes()
    }

    /// What a write in it survives.
    pub fn guarantee(&self) -> Guarantee {
        self.region.guarantee()
    }

    /// The header that counts; `None` in a region of zeros.
    ///
    /// # Errors
    /// `Incompatible` when it holds something else, or another version.
    pub fn header(&self) -> Result<Option<RegionHeader>> {
        let bytes = self.region.bytes();
        let mut newest: Option<RegionHeader> = None;
        let mut is_blank = true;
        for place in HEADER_PLACES {
            let mut header = [0; HEADER_BYTES];
            if place + HEADER_BYTES as u64 > bytes {
                break;
            }
            self.region.load(place, &mut header);
            is_blank &= header.iter().all(|&byte| byte == 0);
            let found = RegionHeader::decode(&header, bytes)?;
            if found.is_some_and(|found| newest.is_none_or(|newest| newest.counter < found.counter)) {
                newest = found;
            }
        }
        if newest.is_none() && !is_blank && !self.is_first_header() {
            let message = "the region holds something that is no redo log: use another one, or remove it";
            return Err(Error::new(ErrorKind::Incompatible, message));
        }
        Ok(newest)
    }

    /// Whether what is there may be the first header of a region, which a crash has torn: the other one was never
    /// written.
    fn is_first_header(&self) -> bool {
        let mut other = [0; HEADER_BYTES];
        self.region.load(HEADER_PLACES[0], &mut other);
        other.iter().all(|&byte| byte == 0)
    }

    /// Writes a header over the older one; durable after the next fence.
    fn put_header(&self, header: &RegionHeader) {
        let place = HEADER_PLACES[(header.counter % 2) as usize];
        self.region.store(place, &header.encode());
        self.region.write_back(place, HEADER_BYTES as u64);
    }

    /// Makes a header durable that was found. One barrier.
    ///
    /// # Errors
    /// When the region fails.
    pub(super) fn keep(&self, header: &RegionHeader, mutations: &Mutations) -> Result<()> {
        if mutations.is_on("redo_found_void_not_kept") {
            return Ok(());
        }
        self.region.write_back(HEADER_PLACES[(header.counter % 2) as usize], HEADER_BYTES as u64);
        self.region.fence()
    }

    /// The fence that keeps `rule`.
    pub(super) fn barrier(&self, mutations: &Mutations, rule: &str) -> Result<()> {
        if mutations.is_on(rule) { Ok(()) } else { self.region.fence() }
    }

    /// What it holds is not needed any more. One barrier.
    ///
    /// # Errors
    /// When the region fails.
    pub(crate) fn make_void(&self, header: &RegionHeader, mutations: &Mutations) -> Result<()> {
        self.put_header(&RegionHeader { is_void: true, counter: header.counter + 1, ..*header });
        self.barrier(mutations, "redo_void_unfenced")
    }

    /// Divides the region for opening `opening` of `store`; what it held is void, but for snapshots of the index
    /// that are committed at one of `kept`. One barrier.
    ///
    /// # Errors
    /// When the region fails, or holds something else.
    pub(crate) fn format(
        &self,
        store: u64,
        opening: u64,
        layout: Layout,
        kept: &[u64],
        mutations: &Mutations,
    ) -> Result<()> {
        let counter = self.header()?.map_or(0, |header| header.counter) + 1;
        for shard in 0..layout.shards {
            if !mutations.is_on("redo_watermark_stays") {
                let log = log_id(opening, shard, false);
                line::put_watermark(&*self.region, layout.area(shard), log, 0);
                line::put_mark(&*self.region, layout.area(shard), log, None);
            }
            for area in 0..layout.snapshot_areas() {
                let commit = layout.snapshot_commit(shard, area);
                if !kept.contains(&commit) && !mutations.is_on("redo_snapshot_not_voided") {
                    self.region.store_word(commit, 0);
                    self.region.write_back(commit, 8);
                }
            }
        }
        // No barrier in between: until the superblock names this opening, which comes later, no header of it counts.
        let header = RegionHeader { store, opening, layout, is_void: false, counter, has_evidence: true };
        self.put_header(&header);
        self.barrier(mutations, "redo_header_unfenced")
    }
}
