//! At the opening: segments that are not there any more, and what is done about lost records.
//!
//! What is gone leaves nothing to see, so that an older version of a key would be served, or a deleted key, without a
//! word. The superblock's list of segments in use tells ([`crate::inventory`]), and a footer without a header. What
//! is lost refuses the opening unless it is accepted, before anything is written that hides it: the number of this
//! opening, with the list of what was found.
//!
//! Where the list is known to be whole, for the store was closed in good order, what it does not name is free: a header that has
//! rotted there takes nothing with it. It is written anew before this opening counts, for after a crash of it nobody knows that.

use crate::checkpoint::find;
use crate::format::segment::{HeaderFound, SegmentFooter, SegmentHeader, SegmentState};
use crate::format::superblock::Superblock;
use crate::inventory::{are_all_listed, life_mark, segments_of};
use crate::open::{FoundSegment, OpenReport, OpenSettings, read_ranges};
use crate::shard::opening_of;
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::codec::Reader;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::{BLOCK_BYTES, BlockDevice};

/// So many segments are named in a message.
const NAMED_MAX: usize = 8;

/// Whether a segment that was listed as in use lacks what must be there, by its header. A damaged header is damage of
/// another kind.
fn lacks_header(header: &HeaderFound, is_clean: bool) -> bool {
    match header {
        HeaderFound::Blank => true,
        // It may have been freed since; but not before the store was closed.
        HeaderFound::Whole(header) => is_clean && header.state != SegmentState::Log,
        HeaderFound::OtherVersion(_) | HeaderFound::Damaged => false,
    }
}

/// The footer of `segment` in its last block, whatever life it is of.
pub(crate) fn footer_of(store: u64, segment: u32, block: &[u8]) -> Option<SegmentFooter> {
    let generation = block.get(24..).and_then(|rest| Reader::new(rest).u64())?;
    SegmentFooter::decode(block, generation)
        .filter(|footer| footer.store == store && footer.segment == segment)
}

/// Looks for what must be there, as segments are read in turn: what a superblock lists, and headers before footers.
pub(crate) struct Search {
    store: u64,
    listed: BTreeSet<u32>,
    is_clean: bool,
    /// Segments are zeros when they are made: files are, other devices may hold what was there before.
    is_made_blank: bool,
    /// What is not listed is known to be free.
    all_listed: bool,
    /// The last header that was zeros.
    blank: Option<u32>,
    missing: BTreeSet<u32>,
    /// Free segments that have lost their headers.
    rotten: BTreeSet<u32>,
}

impl Search {
    /// For what `superblock` lists; `numbers`: what can be looked at. `is_clean`: the store is known to have been closed in
    /// good order.
    pub fn new(settings: &OpenSettings, superblock: &Superblock, is_clean: bool, numbers: &[u32]) -> Search {
        let is_on = !settings.mutations.is_on("missing_not_missed");
        let listed: BTreeSet<u32> = segments_of(&superblock.in_use).filter(|_| is_on).collect();
        let missing = listed.difference(&numbers.iter().copied().collect()).copied().collect();
        Search {
            store: superblock.store_id,
            listed,
            is_clean,
            is_made_blank: settings.existing_segments.is_some(),
            all_listed: is_on && is_clean && are_all_listed(superblock),
            blank: None,
            missing,
            rotten: BTreeSet::new(),
        }
    }

    /// The header of `number` is damaged; whether that is no loss, for the segment is known to be free.
    pub fn is_no_loss(&mut self, number: u32) -> bool {
        let is_free = self.all_listed && !self.listed.contains(&number);
        if is_free {
            self.rotten.insert(number);
        }
        is_free
    }

    /// The header of `number`.
    pub fn saw_header(&mut self, number: u32, header: &HeaderFound) {
        if self.listed.contains(&number) && lacks_header(header, self.is_clean) {
            self.missing.insert(number);
        }
        self.blank = (*header == HeaderFound::Blank).then_some(number);
    }

    /// Its last block: a header is durable before a footer is written.
    pub fn saw_last_block(&mut self, number: u32, block: &[u8]) {
        let has_lost_header = self.is_made_blank
            && self.blank == Some(number)
            && footer_of(self.store, number, block).is_some();
        if has_lost_header && !self.is_no_loss(number) {
            self.missing.insert(number);
        }
    }

    /// Says what was found.
    pub fn tell(self, report: &mut OpenReport) {
        report.missing_segments = self.missing.into_iter().collect();
        report.rotten_free_segments = self.rotten.into_iter().collect();
    }
}

/// Where the redo log's groups are about to be written: looks for the segments that `superblock` lists first, for they might
/// go into one that is put back later.
///
/// # Errors
/// `Corrupt`: some are missing, and that is not accepted. When the device fails.
pub(crate) fn look_before_replay(
    device: &mut dyn BlockDevice,
    settings: &OpenSettings,
    superblock: &Superblock,
    is_clean: bool,
) -> Result<()> {
    if settings.loss_accepted || settings.redo.is_none() || is_clean {
        return Ok(());
    }
    let geometry = device.geometry();
    let all: Vec<u32> = (0..geometry.segment_limit).collect();
    let existing = settings.existing_segments.as_ref().unwrap_or(&all);
    let mut search = Search::new(settings, superblock, is_clean, existing);
    let there: Vec<u32> = existing.iter().copied().filter(|number| search.listed.contains(number)).collect();
    let ranges: Vec<(u64, usize)> =
        there.iter().map(|&number| (geometry.segment_offset(number), BLOCK_BYTES)).collect();
    read_ranges(device, &ranges, |place, block| {
        search.saw_header(there[place], &SegmentHeader::decode(block));
        Ok(())
    })?;
    refuse(&search.missing.into_iter().collect::<Vec<u32>>(), &[])
}

/// Refuses what was found, unless it is accepted.
///
/// # Errors
/// `Corrupt`: segments are missing or damaged.
pub(crate) fn refuse_loss(settings: &OpenSettings, report: &OpenReport) -> Result<()> {
    if settings.loss_accepted {
        return Ok(());
    }
    refuse(&report.missing_segments, &report.damaged_segments)
}

/// What to do about files of two times.
const OF_ONE_TIME: &str = "put back all files of one copy, into an empty directory, or restore a backup, or save what is whole \
into a new store (check --repair), or open the store as it is by accepting the loss (--disk-loss accept)";

/// Refuses a store of which some was put back from an older copy, as far as that can be seen:
/// - its superblock is older than a segment: nothing of an opening is written before the superblock says its number. Of keys of
///   the younger segments some are newer than what it knows, and those of keyspaces that it does not know would go;
/// - it was closed in good order, and a segment has another life than it had then.
///
/// # Errors
/// `Corrupt`, unless that is accepted.
pub(crate) fn refuse_older_copy(
    settings: &OpenSettings,
    superblock: &Superblock,
    report: &OpenReport,
    found: &BTreeMap<u32, FoundSegment>,
) -> Result<()> {
    let is_off = |rule| settings.mutations.is_on(rule);
    if settings.loss_accepted {
        return Ok(());
    }
    // A slot that is damaged may have known of them.
    let is_younger = |segment: &FoundSegment| opening_of(segment.header.log_id) > superblock.open_count;
    let younger: Vec<u32> =
        found.iter().filter(|(_, segment)| is_younger(segment)).map(|(number, _)| *number).collect();
    if !younger.is_empty() && !report.damaged_superblock_slot && !is_off("older_superblock_taken") {
        let what =
            "written after this superblock, which was put back from an older copy, or all that is as old was";
        return Err(Error::new(ErrorKind::Corrupt, format!("{}: {what}: {OF_ONE_TIME}", named(&younger))));
    }
    let is_whole = report.missing_segments.is_empty() && report.damaged_segments.is_empty();
    let lives = found.iter().map(|(&number, segment)| (number, segment.header.generation));
    if report.clean
        && is_whole
        && !is_off("lives_not_compared")
        && !is_off("missing_not_missed")
        && !are_lives_as_listed(superblock, lives)
    {
        let what = "a segment, nobody knows which, is not the one that was there when the store was closed: it was put back \
                    from an older copy, and what was written since is missing";
        return Err(Error::new(ErrorKind::Corrupt, format!("{what}: {OF_ONE_TIME}")));
    }
    Ok(())
}

/// Whether the segments that `superblock`, of a store closed in good order, lists have the lives that they had then; true where
/// it does not say.
pub(crate) fn are_lives_as_listed(superblock: &Superblock, lives: impl Iterator<Item = (u32, u64)>) -> bool {
    if superblock.lives == 0 || !are_all_listed(superblock) {
        return true;
    }
    let listed: BTreeSet<u32> = segments_of(&superblock.in_use).collect();
    let marks = lives.filter(|(number, _)| listed.contains(number));
    marks.fold(0, |all, (number, generation)| all ^ life_mark(number, generation)) == superblock.lives
}

/// Segments that have lost their headers, which was accepted or is no loss, get free ones, durably: they are missed once, or
/// not at all. `numbers`: what is there, in order.
///
/// # Errors
/// When the device fails.
pub(crate) fn free_headerless(
    device: &mut dyn BlockDevice,
    store: u64,
    numbers: &[u32],
    report: &OpenReport,
) -> Result<()> {
    let is_there = |segment: &u32| numbers.binary_search(segment).is_ok();
    let lost = report.missing_segments.iter().copied().filter(is_there);
    let headerless: Vec<u32> = lost.chain(report.rotten_free_segments.iter().copied()).collect();
    find::free(device, store, &headerless)
}

/// Says that segments are `missing` or `damaged`, if any are.
///
/// # Errors
/// `Corrupt`, if so.
pub fn refuse(missing: &[u32], damaged: &[u32]) -> Result<()> {
    let is = |count: usize| if count == 1 { "is" } else { "are" };
    let what = match (missing.len(), damaged.len()) {
        (0, 0) => return Ok(()),
        (count, 0) => format!("{} {} missing, or empty", named(missing), is(count)),
        (0, count) => format!("{} {} damaged", named(damaged), is(count)),
        (lost, count) => format!(
            "{} {} missing, or empty, and {} {} damaged",
            named(missing),
            is(lost),
            named(damaged),
            is(count)
        ),
    };
    Err(Error::new(
        ErrorKind::Corrupt,
        format!(
            "{what}: of keys whose newest version lay there older ones would come back, or none. Bring back what is \
             missing, or restore a backup, or save what is whole into a new store (check --repair), or open the store \
             as it is by accepting the loss (--disk-loss accept)"
        ),
    ))
}

fn named(segments: &[u32]) -> String {
    let mut segments: Vec<u32> = segments.to_vec();
    segments.sort_unstable();
    segments.dedup();
    let names: Vec<String> = segments.iter().take(NAMED_MAX).map(u32::to_string).collect();
    let more = segments.len().saturating_sub(NAMED_MAX);
    match (segments.len(), more) {
        (1, _) => format!("segment {}", names[0]),
        (_, 0) => format!("segments {}", names.join(", ")),
        _ => format!("segments {} and {more} more", names.join(", ")),
    }
}
