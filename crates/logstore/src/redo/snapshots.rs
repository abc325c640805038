//! Snapshots of the index in a region: for each shard two areas, written in turn, and for each a place for what
//! commits the snapshot in it ([`crate::checkpoint`] makes, finds and loads them).
//!
//! Invariants, each with a mutation that breaks it (`tests/redo_snapshots.rs`):
//! 1. What commits is stored when everything that the pieces may point to is durable on flash
//!    (`redo_snapshot_committed_early`).
//! 2. A snapshot is void, durably, before anything is done that makes it wrong (`redo_snapshot_stale`): a word of
//!    zero, one fence.
//! 3. It counts only for the opening that comes next after one that used the region: an opening without the region
//!    guards nothing that it names (`redo_snapshot_of_any_opening`). All that do not count when the region is divided
//!    are void before the superblock names the new opening (`redo_snapshot_not_voided`).
//! 4. Without the region an older one on flash counts. So that one is void, durably, before a snapshot here allows
//!    anything that makes it wrong (`redo_snapshot_beside_flash`).
//!
//! No rule of order holds between pieces and what commits them: a piece that is not whole makes the snapshot void,
//! and the summaries give the same index. They are fenced when they are stored, by the thread that stored them.
//!
//! Crash: what commits is whole, or its checksum does not fit. Between a commit and the end of the snapshot before,
//! both are there; the younger counts.

use super::RedoMemory;
use super::format::{Layout, SNAPSHOT_AREAS, SNAPSHOT_COMMIT_WRITTEN, decode_snapshot, encode_snapshot};
use super::replay::layout_for;
use crate::format::checkpoint::Commit;
use crate::format::superblock::Superblock;
use crate::open::OpenSettings;
use crate::shard::segment_salt;
use tierstone_base::{Error, Result};
use tierstone_crash::Mutations;
use tierstone_media::Geometry;
use tierstone_persist::primitives::{persist, publish};

/// Pieces have so many bytes at most: each is stored in one step.
const PIECE_BYTES_MAX: u64 = 64 << 10;
/// And so many at least, where the area has them.
const PIECE_BYTES_MIN: u64 = 8 << 10;
/// No segment has this number; pieces in a region are salted with it.
const NO_SEGMENT: u32 = u32::MAX;

/// Which rules a test breaks on purpose.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BrokenSnapshots {
    pub committed_early: bool,
    pub stale: bool,
    pub beside_flash: bool,
}

impl BrokenSnapshots {
    fn of(mutations: &Mutations) -> BrokenSnapshots {
        BrokenSnapshots {
            committed_early: mutations.is_on("redo_snapshot_committed_early"),
            stale: mutations.is_on("redo_snapshot_stale"),
            beside_flash: mutations.is_on("redo_snapshot_beside_flash"),
        }
    }
}

/// Whether a test has switched off what keeps a snapshot from going stale; then the check that stands behind it is
/// off as well.
pub(crate) fn may_be_stale(mutations: &Mutations) -> bool {
    let rules = [
        "redo_snapshot_stale",
        "redo_snapshot_of_any_opening",
        "redo_snapshot_not_voided",
        "redo_snapshot_beside_flash",
    ];
    rules.iter().any(|rule| mutations.is_on(rule))
}

/// One area of a shard, and the place of what commits the snapshot in it. A clone is the same area.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    memory: RedoMemory,
    store: u64,
    number: u32,
    commit_at: u64,
    pieces_at: u64,
    bytes: u64,
    pub broken: BrokenSnapshots,
}

impl PartialEq for Area {
    fn eq(&self, other: &Area) -> bool {
        self.commit_at == other.commit_at
    }
}

impl Area {
    /// The areas of `shard`; none where the region has no room for them.
    pub fn all(
        memory: &RedoMemory,
        layout: Layout,
        shard: u16,
        store: u64,
        mutations: &Mutations,
    ) -> Vec<Area> {
        let area = |number| Area {
            memory: memory.clone(),
            store,
            number,
            commit_at: layout.snapshot_commit(shard, number),
            pieces_at: layout.snapshot_pieces(shard, number),
            bytes: layout.snapshot_bytes,
            broken: BrokenSnapshots::of(mutations),
        };
        (0..layout.snapshot_areas()).map(area).collect()
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where what commits its snapshot lies in the region.
    pub fn commit_at(&self) -> u64 {
        self.commit_at
    }

    /// Bytes of a piece, but for the last one that finds room.
    pub fn piece_bytes(&self) -> usize {
        (self.bytes / 4).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX).min(self.bytes) as usize
    }

    /// Bytes that piece `number` may have; zero when there is no room for it.
    pub fn piece_room(&self, number: u64) -> usize {
        let before = number.saturating_mul(self.piece_bytes() as u64);
        self.bytes.saturating_sub(before).min(self.piece_bytes() as u64) as usize
    }

    /// The salt of a snapshot's pieces.
    pub fn salt(&self, generation: u64) -> u64 {
        segment_salt(self.store, NO_SEGMENT, generation)
    }

    /// Stores piece `number`. One barrier.
    ///
    /// # Errors
    /// When the region fails.
    pub fn store_piece(&self, number: u64, piece: &[u8]) -> Result<()> {
        debug_assert!(piece.len() <= self.piece_room(number), "a piece lies in its area");
        let place = self.pieces_at + number * self.piece_bytes() as u64;
        self.memory.region.store_streaming(place, piece);
        self.memory.region.fence().map_err(failed)
    }

    /// The bytes at the place of piece `number`.
    pub fn load_piece(&self, number: u64) -> Vec<u8> {
        let mut piece = vec![0; self.piece_room(number)];
        self.memory.region.load(self.pieces_at + number * self.piece_bytes() as u64, &mut piece);
        piece
    }

    /// Commits the snapshot whose pieces lie here. One barrier.
    ///
    /// # Errors
    /// When the region fails: then it is unknown whether it is committed.
    pub fn commit(&self, commit: &Commit) -> Result<()> {
        self.memory.region.store(self.commit_at, &encode_snapshot(commit, self.store, self.number));
        // crash here [snapshot-committing]: what commits is whole or not; the one before still counts
        persist(&*self.memory.region, self.commit_at, SNAPSHOT_COMMIT_WRITTEN as u64).map_err(failed)
    }

    /// What commits the snapshot here, if there is one that fits the area.
    fn committed(&self) -> Option<Commit> {
        let mut bytes = [0; SNAPSHOT_COMMIT_WRITTEN];
        self.memory.region.load(self.commit_at, &mut bytes);
        let commit = decode_snapshot(&bytes, self.store, self.number)?;
        (commit.pieces <= self.bytes.div_ceil(self.piece_bytes() as u64)).then_some(commit)
    }

    /// Makes the snapshot here void, durably. One barrier.
    ///
    /// # Errors
    /// When the region fails: then it may count still.
    pub fn make_void(&self) -> Result<()> {
        if self.broken.stale {
            return Ok(());
        }
        publish(&*self.memory.region, self.commit_at, 0).map_err(failed)
    }
}

fn failed(error: Error) -> Error {
    error.context("the region of the index's snapshots failed")
}

/// The snapshots that the region holds, if it was used by the store's last opening and is going to be divided as it
/// is. After a damaged slot of the superblock nobody knows which opening was the last.
pub(crate) fn find(
    settings: &OpenSettings,
    superblock: &Superblock,
    geometry: Geometry,
    is_superblock_damaged: bool,
) -> Result<Vec<(Commit, Area)>> {
    let Some(memory) = &settings.redo else { return Ok(Vec::new()) };
    let Some(header) = memory.header()?.filter(|header| header.store == superblock.store_id) else {
        return Ok(Vec::new());
    };
    let is_last = header.opening == superblock.redo_opening && header.opening == superblock.open_count;
    let is_guarded = is_last && !is_superblock_damaged;
    if !is_guarded && !settings.mutations.is_on("redo_snapshot_of_any_opening") {
        return Ok(Vec::new());
    }
    if layout_for(memory, settings, geometry) != Ok(header.layout) {
        return Ok(Vec::new());
    }
    let areas = (0..header.layout.shards)
        .flat_map(|shard| Area::all(memory, header.layout, shard, superblock.store_id, &settings.mutations));
    Ok(areas.filter_map(|area| Some((area.committed()?, area))).collect())
}

const _: () = assert!(SNAPSHOT_AREAS == 2, "one counts while the other is written");
