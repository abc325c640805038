//! Verifies a closed store without changing a byte of it.
//!
//! Both slots of the superblock, header, footer and summary of every segment, every group and every
//! record are read and their checksums compared; summaries are compared with the records, both ways;
//! then the newest version of each key is found, so that damage can be told in keys and not only in
//! places.
//!
//! Invariants:
//! 1. Nothing but reads is submitted.
//! 2. What a crash may leave is no damage: torn groups after the end of a log, groups that were fenced
//!    off, batches that were not whole, in one log or over several, and (in a store that was not closed) a summary that
//!    its records give again.
//! 3. A segment that the superblock of a closed store does not list is free: what an earlier life left in it is neither
//!    lost nor saved. Where it is not known whether a segment whose header is damaged was free, what is saved of it is
//!    counted among what may be too old.
//! 4. Memory: one segment and its records, the groups of segments that are open, and 32 bytes a record
//!    up to [`CheckSettings::memory_bytes`]; beyond it the store is read several times.
//!
//! The caller holds the store's lock; a running store changes below the reader.

mod read;
mod salvage;
mod segment;
mod versions;

use crate::format::checkpoint::Commit;
use crate::format::segment::{HeaderFound, SegmentFooter, SegmentHeader, SegmentState};
use crate::format::superblock::{self, SlotFound, Superblock};
use crate::inventory::{are_all_listed, segments_of};
use crate::missing::{are_lives_as_listed, footer_of};
use crate::shard::opening_of;
use crate::superblocks::{is_lost, read_slots};
pub use salvage::{Salvaged, salvage};
use segment::OpenSegment;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::codec::Reader;
use tierstone_base::{Error, ErrorKind, KeyHasher, Result, Seq};
use tierstone_media::{BLOCK_BYTES, BlockDevice, Geometry};
use versions::Versions;

/// Findings that are kept one by one; more are only counted.
const FINDINGS_MAX: usize = 10_000;
/// For segments without a footer nobody says how many records they have; few are smaller than this.
const RECORD_BYTES_GUESS: u64 = 128;

/// How a store is checked.
#[derive(Clone, Debug)]
pub struct CheckSettings {
    /// Segments whose files exist; `None`: look at all up to the device's limit.
    pub existing_segments: Option<Vec<u32>>,
    /// Memory for the versions of keys, in bytes. Default 1 GiB: 32 million records in one pass.
    pub memory_bytes: u64,
}

impl Default for CheckSettings {
    fn default() -> Self {
        CheckSettings { existing_segments: None, memory_bytes: 1 << 30 }
    }
}

/// How far a check is, in bytes of segments over all passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    /// Done so far.
    pub bytes: u64,
    /// All there is to do.
    pub bytes_total: u64,
}

/// What is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DamageKind {
    /// A slot of the superblock.
    Superblock,
    /// A segment's header.
    Header,
    /// A segment as a whole: it held records, and is not there.
    Segment,
    /// A segment's footer.
    Footer,
    /// A segment's summary.
    Summary,
    /// A group's header, or a group as a whole.
    Group,
    /// A record.
    Record,
    /// Summary and records are whole and do not say the same.
    Mismatch,
    /// The device gave an error for a block.
    Unreadable,
    /// Something in the region of the redo log.
    Redo,
}

impl DamageKind {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            DamageKind::Superblock => "superblock",
            DamageKind::Header => "header",
            DamageKind::Segment => "segment",
            DamageKind::Footer => "footer",
            DamageKind::Summary => "summary",
            DamageKind::Group => "group",
            DamageKind::Record => "record",
            DamageKind::Mismatch => "mismatch",
            DamageKind::Unreadable => "unreadable",
            DamageKind::Redo => "redo log",
        }
    }
}

/// What is known of the keys that are lost with something damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// All of them are counted.
    Counted,
    /// Nobody can count them: there may be more than the finding says.
    Unknown,
}

/// One damaged thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is.
    pub kind: DamageKind,
    /// Its segment; `None` for the superblock and for the redo log.
    pub segment: Option<u32>,
    /// Where in the segment it begins, in units of 32 bytes, where that is known.
    pub unit: Option<u32>,
    /// Records that the store does not serve because of it, old versions included.
    pub lost_records: u64,
    /// Of these, newest versions of keys: the key is lost, or an older version of it comes back.
    pub lost_keys: u64,
    /// Whether these are all.
    pub loss: Loss,
    /// What was found, in words.
    pub detail: String,
}

impl Finding {
    /// Of the store as a whole; nothing is counted as lost.
    fn new(kind: DamageKind, loss: Loss, detail: String) -> Finding {
        Finding { kind, segment: None, unit: None, lost_records: 0, lost_keys: 0, loss, detail }
    }
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// The store had been closed in good order.
    pub clean: bool,
    /// The newest writes lie in a redo log in persistent memory, which was not looked at.
    pub redo_unread: bool,
    /// Records of groups in the redo log, which was looked at; the device may have them too.
    pub redo_records: u64,
    /// Bytes that were durable in the redo log and are lost to damage.
    pub redo_lost_bytes: u64,
    /// Segments that hold logs, those with a damaged header included.
    pub segments: u32,
    /// Of these, with a valid footer.
    pub sealed_segments: u32,
    /// Groups that are whole and part of a log.
    pub groups: u64,
    /// Records that are whole and part of a log, old versions and tombstones included.
    pub records: u64,
    /// Bytes of these, padding to units included.
    pub record_bytes: u64,
    /// Keys whose newest version is there and is no tombstone; those that have expired are counted
    /// until they are removed.
    pub live_keys: u64,
    /// Of these, pieces of large values, and notes about what is left of some.
    pub live_pieces: u64,
    /// Bytes of their records.
    pub live_bytes: u64,
    /// Groups after the end of their log, as a crash leaves them.
    pub void_groups: u64,
    /// Records of batches that did not become whole before a crash.
    pub void_records: u64,
    /// Summaries that a crash has torn; opening the store makes them again.
    pub torn_summaries: u64,
    /// How often the store was read.
    pub passes: u32,
    /// Records that are not served because of damage.
    pub lost_records: u64,
    /// Keys whose newest version is among them.
    pub lost_keys: u64,
    /// When records were saved: keys whose newest whole version was.
    pub saved_keys: u64,
    /// Of these, or of keys found deleted, those of which an older version had to do, or one of a segment with a damaged
    /// header that may have been free: the key may have been overwritten since, or deleted.
    pub reverted_keys: u64,
    /// Keys of which no version is whole.
    pub unsaved_keys: u64,
    /// How many findings there are of each kind.
    pub damage: BTreeMap<DamageKind, u64>,
    /// The findings, the first ten thousand.
    pub findings: Vec<Finding>,
}

impl CheckReport {
    /// Whether anything is damaged.
    pub fn is_damaged(&self) -> bool {
        !self.damage.is_empty()
    }

    /// Notes damage of the superblock, or what it tells of the store as a whole.
    pub fn note_superblock(&mut self, detail: String) {
        self.note(Finding::new(DamageKind::Superblock, Loss::Counted, detail));
    }

    /// Notes what a look into the redo log has found.
    pub fn note_redo(&mut self, survey: &crate::redo::Survey) {
        self.redo_unread = false;
        (self.redo_records, self.redo_lost_bytes) = (survey.records, survey.lost_bytes);
        for damage in &survey.damage {
            self.note(Finding::new(DamageKind::Redo, Loss::Counted, format!("damaged: {damage}")));
        }
    }

    /// Notes damage; gives its place in the list, where it is kept.
    fn note(&mut self, finding: Finding) -> Option<usize> {
        *self.damage.entry(finding.kind).or_insert(0) += 1;
        self.lost_records += finding.lost_records;
        let place = self.findings.len();
        (place < FINDINGS_MAX).then(|| {
            self.findings.push(finding);
            place
        })
    }
}

/// Checks the store on `device`, which has nothing in flight and stays as it is.
///
/// Cost: every log segment is read once a pass.
///
/// # Errors
/// `InvalidInput`: there is no store, or not of this shape. `Incompatible`: a newer format. `Corrupt`: no
/// superblock is readable, so that nothing can be told. `DeviceFailed`: the superblock cannot be read;
/// other blocks that cannot be read are findings.
pub fn check(
    device: &mut dyn BlockDevice,
    settings: &CheckSettings,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    let mut checker = Checker::new(device)?;
    checker.run(settings, progress, &mut |_, _| Ok(()))?;
    Ok(checker.report)
}

/// What a damaged store says of itself.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Its superblock.
    pub superblock: Superblock,
    /// No record has a higher sequence.
    pub newest_seq: Seq,
    /// The highest expiry that superblock and footers tell was shown as past, in milliseconds since 1970.
    pub past_ms: u64,
}

/// More records than a segment without a footer holds.
const RECORDS_A_SEGMENT_MAX: Seq = 1 << 24;

/// Reads the superblock and the ends of all segments.
///
/// # Errors
/// As [`check`].
pub fn survey(device: &mut dyn BlockDevice, settings: &CheckSettings) -> Result<Survey> {
    let mut checker = Checker::new(device)?;
    checker.look_at_all_ends(settings)?;
    let newest = |ends: &Ends| match ends {
        Ends::Sealed { header, footer } => header.opened_seq.max(footer.max_seq),
        Ends::Open { header, .. } => header.opened_seq,
        Ends::HeaderLost { footer, .. } => footer.map_or(0, |footer| footer.max_seq),
    };
    let known = checker.found.values().map(newest).max().unwrap_or(0);
    // What has neither header nor footer was opened after all others at worst.
    let unknown = (checker.found.len() as Seq + 1) * RECORDS_A_SEGMENT_MAX;
    let past = |ends: &Ends| match ends {
        Ends::Sealed { footer, .. } | Ends::HeaderLost { footer: Some(footer), .. } => footer.past_ms,
        Ends::Open { .. } | Ends::HeaderLost { footer: None, .. } => 0,
    };
    let past_ms = checker.found.values().map(past).fold(checker.superblock.past_ms, u64::max);
    Ok(Survey { superblock: checker.superblock, newest_seq: known + unknown, past_ms })
}

fn read_superblock(device: &mut dyn BlockDevice, report: &mut CheckReport) -> Result<Superblock> {
    let slots = read_slots(device)?;
    let are = |state: SlotFound| [slots[0] == state, slots[1] == state];
    let (damaged, blank) = (are(SlotFound::Damaged), are(SlotFound::Blank));
    match superblock::choose(slots)? {
        Some((superblock, counter, _)) => {
            let not_whole = (0..2).filter(|&slot| damaged[slot] || is_lost(blank[slot], counter));
            not_whole.for_each(|slot| {
                report.note_superblock(format!(
                    "slot {slot} of the superblock is not whole; the other one serves"
                ));
            });
            // It may hide a later opening.
            report.clean = superblock.clean && report.findings.is_empty();
            report.redo_unread = superblock.redo_opening > 0 && !report.clean;
            Ok(superblock)
        }
        None => Err(Error::new(ErrorKind::InvalidInput, "there is no store here")),
    }
}

/// The superblock of a store whose records another engine keeps, and what of it is damaged. Nothing is changed.
///
/// # Errors
/// As [`check`].
pub fn check_bare(device: &mut dyn BlockDevice) -> Result<(Superblock, Vec<Finding>)> {
    let mut report = CheckReport::default();
    let superblock = read_superblock(device, &mut report)?;
    Ok((superblock, report.findings))
}

/// What the ends of a segment say.
#[derive(Clone, Copy, Debug)]
enum Ends {
    Sealed {
        header: SegmentHeader,
        footer: SegmentFooter,
    },
    Open {
        header: SegmentHeader,
        is_footer_damaged: bool,
    },
    /// `may_be_free`: nothing says that the segment was in use; the footer may be that of an earlier life.
    HeaderLost {
        footer: Option<SegmentFooter>,
        may_be_free: bool,
    },
}

/// What the ends of each segment say.
type FoundEnds = BTreeMap<u32, Ends>;

struct Checker<'a> {
    device: &'a mut dyn BlockDevice,
    geometry: Geometry,
    hasher: KeyHasher,
    superblock: Superblock,
    report: CheckReport,
    /// Later passes only look for versions of other keys.
    is_first_pass: bool,
    /// The segment at hand.
    bytes: Vec<u8>,
    found: BTreeMap<u32, Ends>,
    /// A slot of the superblock is, and may have known of later openings.
    is_slot_damaged: bool,
    /// The superblock lists every segment that holds records.
    all_listed: bool,
    /// For each log, of the groups that footers name: the highest first one, and the end.
    sealed_groups: BTreeMap<u64, (u64, u64)>,
    versions: Versions,
}

impl<'d> Checker<'d> {
    /// Reads the superblock.
    fn new(device: &'d mut dyn BlockDevice) -> Result<Checker<'d>> {
        let mut report = CheckReport::default();
        let superblock = read_superblock(device, &mut report)?;
        let geometry = device.geometry();
        if superblock.segment_bytes != geometry.segment_bytes {
            let message = format!(
                "the store has segments of {} bytes, the device is set up for {}",
                superblock.segment_bytes, geometry.segment_bytes
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let hasher = KeyHasher::new(superblock.hash_secret);
        Ok(Checker {
            device,
            geometry,
            hasher,
            versions: Versions::new(&crate::format::superblock::served_keyspaces(&superblock.keyspaces)),
            superblock,
            is_slot_damaged: report.is_damaged(),
            report,
            is_first_pass: true,
            bytes: vec![0; geometry.segment_bytes as usize],
            found: BTreeMap::new(),
            all_listed: false,
            sealed_groups: BTreeMap::new(),
        })
    }
}

impl Checker<'_> {
    /// `each`: what is done after each pass.
    fn run(
        &mut self,
        settings: &CheckSettings,
        progress: &mut dyn FnMut(CheckProgress),
        each: &mut dyn FnMut(&mut Self, &FoundEnds) -> Result<()>,
    ) -> Result<()> {
        self.look_at_all_ends(settings)?;
        let found = std::mem::take(&mut self.found);
        let records = found.values().map(|ends| match ends {
            Ends::Sealed { footer, .. } | Ends::HeaderLost { footer: Some(footer), .. } => {
                u64::from(footer.records)
            }
            Ends::Open { .. } => self.geometry.segment_bytes / RECORD_BYTES_GUESS,
            Ends::HeaderLost { footer: None, .. } => 0,
        });
        let planned = self.versions.plan(records.sum(), settings.memory_bytes);
        let a_pass = found.len() as u64 * self.geometry.segment_bytes;
        let mut done = CheckProgress { bytes: 0, bytes_total: a_pass * u64::from(planned) };
        let (mut next, mut passes) = (Some(0), 0);
        while let Some(first) = next {
            self.is_first_pass = passes == 0;
            passes += 1;
            // How many there are is known at their end.
            done.bytes_total = done.bytes_total.max(a_pass * u64::from(passes));
            self.versions.begin(first, settings.memory_bytes);
            let mut logs: BTreeMap<u64, Vec<OpenSegment>> = BTreeMap::new();
            for (&number, ends) in &found {
                match ends {
                    Ends::Sealed { header, footer } => self.check_sealed(number, header, footer)?,
                    Ends::Open { header, is_footer_damaged } => {
                        let open = self.walk_open(number, header, *is_footer_damaged)?;
                        logs.entry(header.log_id).or_default().push(open);
                    }
                    Ends::HeaderLost { footer, may_be_free } => {
                        self.check_without_header(number, footer.as_ref(), *may_be_free)?
                    }
                }
                done.bytes += self.geometry.segment_bytes;
                progress(done);
            }
            self.end_logs(logs);
            next = self.versions.finish(&mut self.report);
            self.is_first_pass = false;
            each(self, &found)?;
        }
        self.report.passes = passes;
        Ok(())
    }

    fn look_at_all_ends(&mut self, settings: &CheckSettings) -> Result<()> {
        let numbers = match &settings.existing_segments {
            Some(numbers) => numbers.clone(),
            None => (0..self.geometry.segment_limit).collect(),
        };
        let listed: BTreeSet<u32> = segments_of(&self.superblock.in_use).collect();
        for &number in listed.difference(&numbers.iter().copied().collect()) {
            self.note_lost_segment(number, "the superblock lists it, and it is not there");
        }
        let is_made_blank = settings.existing_segments.is_some();
        self.all_listed = self.report.clean && are_all_listed(&self.superblock);
        numbers
            .into_iter()
            .try_for_each(|number| self.look_at_ends(number, listed.contains(&number), is_made_blank))?;
        self.look_at_lives();
        Ok(())
    }

    /// Notes that a segment is not the one that was there when the store was closed.
    fn look_at_lives(&mut self) {
        let mut lives = Vec::new();
        for (&number, ends) in &self.found {
            match ends {
                Ends::Sealed { header, .. } | Ends::Open { header, .. } => {
                    lives.push((number, header.generation))
                }
                Ends::HeaderLost { .. } => return,
            }
        }
        let is_whole = self.report.clean && !self.report.is_damaged();
        if is_whole && !are_lives_as_listed(&self.superblock, lives.into_iter()) {
            let detail = "a segment, nobody knows which, is not the one that was there when the store was closed: it was put \
                          back from an older copy, and what was written since is missing";
            self.report.note(Finding::new(DamageKind::Superblock, Loss::Unknown, detail.to_owned()));
        }
    }

    /// Notes a segment of an opening that the superblock does not know, though no slot of it is damaged.
    fn note_younger(&mut self, number: u32, ends: &Ends) {
        let (Ends::Sealed { header, .. } | Ends::Open { header, .. }) = ends else { return };
        if self.is_slot_damaged || opening_of(header.log_id) <= self.superblock.open_count {
            return;
        }
        let detail = "it was written after this superblock, which was put back from an older copy: what else is older, \
                      or missing, is not known";
        self.note_uncounted(DamageKind::Segment, number, None, 0, detail.to_owned());
    }

    fn note_lost_segment(&mut self, number: u32, what: &str) {
        let detail = format!("{what}: how many records are lost with it is not known");
        self.note_uncounted(DamageKind::Segment, number, None, 0, detail);
    }

    /// A segment that held nothing when the store was closed has a damaged header.
    fn note_free_segment(&mut self, number: u32) {
        let detail = "the header is damaged; the segment is free: nothing is lost".to_owned();
        self.note(DamageKind::Header, number, Some(0), 0, detail);
    }

    /// Reads the first and the last block of a segment. `is_listed`: the superblock says that records are in it.
    /// `is_made_blank`: it was zeros before it was used.
    fn look_at_ends(&mut self, number: u32, is_listed: bool, is_made_blank: bool) -> Result<()> {
        let last = self.geometry.segment_bytes as usize - BLOCK_BYTES;
        self.load(number, 0..BLOCK_BYTES)?;
        self.load(number, last..last + BLOCK_BYTES)?;
        let block = &self.bytes[last..];
        let own_generation = block.get(24..).and_then(|rest| Reader::new(rest).u64()).unwrap_or(0);
        let footer = footer_of(self.superblock.store_id, number, block);
        // Only footers are ever written to this block, and what commits a checkpoint; those of an
        // earlier life are whole, and void.
        let store = self.superblock.store_id;
        let is_commit = Commit::decode(block, store, number, own_generation).is_some();
        let has_last_block = block.iter().any(|&byte| byte != 0);
        let is_footer_damaged = footer.is_none() && !is_commit && has_last_block;
        let may_be_free = !(is_listed && self.report.clean);
        let ends = match SegmentHeader::decode(&self.bytes[..BLOCK_BYTES]) {
            HeaderFound::OtherVersion(version) => {
                let message = format!(
                    "segment {number} has format version {version}, which this program does not know"
                );
                return Err(Error::new(ErrorKind::Incompatible, message));
            }
            HeaderFound::Blank if is_listed || (is_made_blank && footer.is_some()) => {
                Ends::HeaderLost { footer, may_be_free }
            }
            HeaderFound::Blank => return Ok(()),
            HeaderFound::Whole(header)
                if header.store == self.superblock.store_id && header.segment == number =>
            {
                match (header.state, footer) {
                    (SegmentState::Free | SegmentState::Checkpoint, _) if is_listed && self.report.clean => {
                        self.note_lost_segment(
                            number,
                            "the superblock lists it, and its header says that it is free",
                        );
                        return Ok(());
                    }
                    (SegmentState::Free | SegmentState::Checkpoint, _) => return Ok(()),
                    (SegmentState::Log, Some(footer)) if footer.generation == header.generation => {
                        let (first, end) = self.sealed_groups.entry(header.log_id).or_default();
                        *first = footer.first_group.max(*first);
                        *end = footer.end_group.max(*end);
                        self.report.sealed_segments += 1;
                        Ends::Sealed { header, footer }
                    }
                    (SegmentState::Log, _) => Ends::Open { header, is_footer_damaged },
                }
            }
            HeaderFound::Whole(_) | HeaderFound::Damaged => Ends::HeaderLost { footer, may_be_free },
        };
        if may_be_free && self.all_listed && matches!(ends, Ends::HeaderLost { .. }) {
            self.note_free_segment(number);
            return Ok(());
        }
        self.report.segments += 1;
        self.note_younger(number, &ends);
        self.found.insert(number, ends);
        Ok(())
    }

    /// Notes damage with which no key is lost that is not counted, in the first pass; gives its place in the report's list.
    fn note(
        &mut self,
        kind: DamageKind,
        segment: u32,
        unit: Option<u32>,
        lost_records: u64,
        detail: String,
    ) -> Option<usize> {
        self.note_in(segment, Finding { unit, lost_records, ..Finding::new(kind, Loss::Counted, detail) })
    }

    /// The same of damage with which keys may be lost that nobody can count.
    fn note_uncounted(
        &mut self,
        kind: DamageKind,
        segment: u32,
        unit: Option<u32>,
        lost_records: u64,
        detail: String,
    ) -> Option<usize> {
        self.note_in(segment, Finding { unit, lost_records, ..Finding::new(kind, Loss::Unknown, detail) })
    }

    fn note_in(&mut self, segment: u32, finding: Finding) -> Option<usize> {
        if !self.is_first_pass {
            return None;
        }
        self.report.note(Finding { segment: Some(segment), ..finding })
    }
}

#[cfg(test)]
#[path = "check_test.rs"]
mod check_test;
