//! The redo log in persistent memory: a write is durable after a fence, and flash follows in large blocks.
//!
//! What the hot log's open group holds is kept in a slot of a byte-addressable region as well, record by record.
//! After the next fence the records may be answered for, though their group is written to flash much later. At
//! opening the groups of the slots are written to where they belong, durably; then the log is walked as always:
//! to the rest of recovery it looks as if the device had written them before the crash.
//!
//! Invariants, each with a mutation that breaks it (`tests/redo.rs`):
//! 1. Nothing is answered for before a fence that came after its bytes, its slot's header and its group's word of
//!    expiry (`redo_answered_before_fence`, `redo_past_not_kept`).
//! 2. A group is whole in its slot, durably, before the next one begins (`redo_closed_unfenced`): the records of a
//!    group are counted by what is whole, and the next one may lie where a shorter one would end.
//! 3. A group that found no slot is answered for by flash, and so is everything behind it (`redo_gap_answered`).
//! 4. The slots of a log below its watermark are void. The watermark rises, durably, when a group is durable on
//!    flash (`redo_truncated_early`), and before anybody relies on that: before a victim of the cleaner is freed
//!    and its place written by another life (`redo_not_truncated`).
//! 5. At opening the region is made void, durably, when what it held is durable on flash
//!    (`redo_voided_early`), and before recovery changes anything (`redo_not_voided`): a second replay would undo
//!    what recovery wrote over records of batches that are not whole.
//! 6. A log's id has the number of the opening, which never repeats: slots of earlier openings are void without
//!    being touched. Watermarks begin at zero, durably, before the superblock names the opening
//!    (`redo_watermark_stays`).
//! 7. The superblock names the opening that uses a region. Without that region, or with one of an older opening, the
//!    store is not opened unless the caller accepts the loss; and what an older opening left in a region is never
//!    replayed (`redo_old_replayed`).
//!
//! 8. A part of a batch over several shards counts as kept when its shard's region has been fenced
//!    (`redo_part_counted_early`): when all are, the batch is answered for. A log says that a batch is decided, and
//!    anybody relies on that, only when flash has all its parts (`redo_parts_decided_by_region`): without the region
//!    a batch then misses a part, and recovery leaves all of it out. What takes another batch back may write its
//!    values again, and waits for that too (`redo_undo_not_delayed`).
//!
//! 9. What says of something in the region that it was durable is stored after its fence (`redo_claimed_early`,
//!    `redo_marked_early`); what is damaged of that is told, and refused ([`found`]). The mark that has a fence of its own
//!    is durable when nothing comes any more (`redo_mark_unfenced`).
//!
//! Cleaning, checkpoints and seals wait for flash, not for the region: without it the store is what flash says, a
//! prefix of each shard's log, less the batches over several shards of which a part is not there.
//!
//! Crash at any point: a slot's header or record is whole, or its checksum does not fit; records count up to the
//! first that is not whole, unless something says that it was durable. Layout: `docs/formats/redo-region.md`.

pub mod format;
mod found;
#[cfg(any(test, feature = "fuzzing"))]
pub mod invariants;
mod line;
mod memory;
mod on_flash;
pub(crate) mod replay;
mod slots;
pub(crate) mod snapshots;

use crate::shard::LogShard;
pub use found::Damage;
pub use memory::RedoMemory;
pub use replay::{NewestWrites, Survey, survey};
pub(crate) use slots::{BrokenRedo, RedoLog};

impl LogShard {
    /// Makes what was appended durable in the redo log, if there is one.
    pub(crate) fn commit_redo(&mut self) {
        if self.failed.is_none()
            && let Err(error) = self.hot.commit(&self.segments)
        {
            self.failed = Some(error);
        }
        // What it has just got of batches over several shards, the other shards wait for.
        self.hot.advance_parts(self.now.monotonic_us);
    }
}
