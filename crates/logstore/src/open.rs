//! Opening a store: superblock, segment headers, the ends of the logs; then each shard by itself.
//!
//! 1. The superblock says what the store is.
//! 2. Headers and footers of all segments are read. Segments without a valid footer are walked
//!    group by group.
//! 3. For each log of earlier openings: it ends before its first group that is missing, and before a
//!    batch that is not whole. Batches over several shards are decided over all logs together, and those
//!    that are not whole are dropped wherever they lie ([`crate::batches`]). Every walked segment is sealed at that end, durably, which fences off
//!    what lies after it. Nothing is served before.
//! 4. The superblock is written with the number of this opening, which makes log ids and lives new.
//! 5. Segments are dealt to the shards. Each shard rebuilds its index from summaries
//!    ([`crate::recovery`]), in its own thread if the caller likes.
//!
//! Crash at any point in here: a sealed segment stays sealed, another is walked again with the same
//! result; the same opening number is never used twice, because it is durable before its first use.

use crate::checkpoint::find::{self, FoundCheckpoint, FoundCheckpoints};
use crate::format::segment::{HeaderFound, SegmentFooter, SegmentHeader, SegmentState};
use crate::format::superblock::{KeyspaceEntry, Superblock};
use crate::gain::RESERVED_MIN;
use crate::inventory::{self, Inventory};
use crate::location::SEGMENT_COUNT_MAX;
use crate::memory_ledger::MemoryLedger;
use crate::missing::{self, Search};
use crate::pool::SegmentPool;
use crate::recovery::ShardPlan;
use crate::redo::format::Layout;
use crate::redo::snapshots::{self, Area};
use crate::redo::{RedoLog, RedoMemory, replay};
use crate::rules::BrokenRules;
use crate::segments::{Role, Segment, SummaryPlace};
use crate::settings::ShardSettings;
use crate::shard::{ShardIdentity, opening_of, segment_salt};
use crate::superblocks::{SuperblockWriter, read_superblock};
use crate::walk;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use tierstone_base::codec::Reader;
use tierstone_base::{Error, ErrorKind, KeyHasher, Position, Result, SeededRandom, Seq};
use tierstone_crash::Mutations;
use tierstone_engine::{OpeningPart, OpeningProgress};
use tierstone_media::{BLOCK_BYTES, BlockDevice, Geometry, IoBuffer, IoCompletion, IoKind, IoRequest, Wait};

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct OpenSettings {
    /// How many shards; any number opens any store.
    pub shard_count: u16,
    /// Settings of each shard; memory is the part that each begins with.
    pub shard: ShardSettings,
    /// Make a store if there is none.
    pub create: bool,
    /// Keyspaces of a new store.
    pub keyspaces: Vec<KeyspaceEntry>,
    /// Facts of a new store, for the layer above.
    pub facts: Vec<u8>,
    /// Segments whose files exist; `None`: look at all up to the device's limit.
    pub existing_segments: Option<Vec<u32>>,
    /// Sequences of a new store begin above this one.
    pub first_seq: Seq,
    /// Expiry goes by no earlier time than this, in milliseconds since 1970.
    pub past_ms: u64,
    /// A random number: for the store's id and secret, when it is made, and to tell this opening from others with its
    /// number, of copies of the store.
    pub seed: u64,
    /// The region of the redo logs; none: every write waits for the device.
    pub redo: Option<RedoMemory>,
    /// The store is opened although the region that holds its newest writes is not given: they are lost, a batch
    /// over several shards never in part.
    pub redo_loss_accepted: bool,
    /// The store is opened although segments are damaged or missing: of keys whose newest version lay there older ones
    /// are served, or none. Else it is refused before anything is written, but for what it keeps in the redo log, and, where
    /// a summary cannot be made again, the number of the opening.
    pub loss_accepted: bool,
    /// Keeps only this many bits of hash in positions; tests force collisions with it.
    pub weak_hash_bits: Option<u32>,
    /// Where it is told how far the opening has come.
    pub progress: OpeningProgress,
    /// Rules that a test breaks on purpose.
    pub mutations: Mutations,
}

impl Default for OpenSettings {
    fn default() -> Self {
        OpenSettings {
            shard_count: 1,
            shard: ShardSettings::default(),
            create: true,
            keyspaces: Vec::new(),
            facts: Vec::new(),
            existing_segments: None,
            first_seq: 0,
            past_ms: 0,
            seed: 0,
            redo: None,
            redo_loss_accepted: false,
            loss_accepted: false,
            weak_hash_bits: None,
            progress: OpeningProgress::default(),
            mutations: Mutations::none(),
        }
    }
}

/// What opening found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// The store was made just now.
    pub created: bool,
    /// It had been closed in good order; false when a damaged slot of the superblock may hide a later opening.
    pub clean: bool,
    /// Segments that held records.
    pub segments: u32,
    /// Segments that had to be walked.
    pub walked_segments: u32,
    /// Groups found after the end of their log and fenced off.
    pub fenced_groups: u64,
    /// Records of batches that were not whole, in one log or over several.
    pub dropped_records: u64,
    /// One slot of the superblock was not whole: torn by a crash, damaged, or empty though both were written before. The
    /// other one served.
    pub damaged_superblock_slot: bool,
    /// Segments whose header is damaged, of which nothing is served and nothing overwritten, and those
    /// in which a group is missing that was durable.
    pub damaged_segments: Vec<u32>,
    /// Segments that held records and are not there, or have lost their header.
    pub missing_segments: Vec<u32>,
    /// Segments that held nothing when the store was closed and whose header is damaged: nothing is lost, and they are free.
    pub rotten_free_segments: Vec<u32>,
    /// Groups of the redo log that were written to the device.
    pub redo_groups: u64,
    /// The redo log was not there, and its loss was accepted.
    pub redo_lost: bool,
    /// What was durable in the redo log and is damaged, and whose loss was accepted: where, and what.
    pub redo_damage: Vec<String>,
    /// Bytes of the redo log that went with it; those of groups that nobody can tell of are not counted.
    pub redo_lost_bytes: u64,
    /// The region is too small for a redo log, which is not used: it needs so many bytes; zero otherwise.
    pub redo_bytes_wanted: u64,
}

/// An opened store whose shards have not been built.
#[derive(Debug)]
pub struct OpenedStore {
    /// The superblock.
    pub superblock: SuperblockWriter,
    /// One for each shard.
    pub plans: Vec<ShardPlan>,
    /// What was found.
    pub report: OpenReport,
    /// Gives keys their positions.
    pub hasher: KeyHasher,
    /// Which segments hold records, for [`SuperblockWriter::note_segments`].
    pub inventory: Arc<Inventory>,
}

/// Submits `requests` and waits for all; gives the completions ordered by token.
pub(crate) fn run_all(
    device: &mut dyn BlockDevice,
    mut requests: Vec<IoRequest>,
) -> Result<Vec<IoCompletion>> {
    let mut completions = Vec::with_capacity(requests.len());
    device.submit(&mut requests);
    device.complete(Wait::All, &mut completions);
    completions.sort_by_key(|completion| completion.token);
    for completion in &completions {
        if let Err(error) = &completion.result {
            return Err(Error::from(error.clone()).context("opening the store"));
        }
    }
    Ok(completions)
}

/// Reads ranges, some at a time, and hands each to `take` in order.
pub(crate) fn read_ranges(
    device: &mut dyn BlockDevice,
    ranges: &[(u64, usize)],
    mut take: impl FnMut(usize, &[u8]) -> Result<()>,
) -> Result<()> {
    const BYTES_AT_ONCE: usize = 16 << 20;
    const READS_AT_ONCE: usize = 128;
    let mut start = 0;
    while start < ranges.len() {
        let mut bytes = 0;
        let mut end = start;
        while end < ranges.len()
            && end - start < READS_AT_ONCE
            && (end == start || bytes + ranges[end].1 <= BYTES_AT_ONCE)
        {
            bytes += ranges[end].1;
            end += 1;
        }
        let requests = (start..end)
            .map(|number| {
                IoRequest::read(number as u64, ranges[number].0, IoBuffer::zeroed(ranges[number].1))
            })
            .collect();
        for completion in run_all(device, requests)? {
            if let Some(buffer) = &completion.buffer {
                take(completion.token as usize, buffer)?;
            }
        }
        start = end;
    }
    Ok(())
}

/// A segment that holds a log, as found.
#[derive(Clone, Debug)]
pub(crate) struct FoundSegment {
    pub header: SegmentHeader,
    pub footer: Option<SegmentFooter>,
}

/// Refuses a device that is not shaped as a store, and as this one, can be.
fn check_geometry(superblock: &Superblock, geometry: Geometry) -> Result<()> {
    if geometry.segment_limit > SEGMENT_COUNT_MAX {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "the device has {} segments of {} bytes, a store has at most {SEGMENT_COUNT_MAX}: show it fewer, or larger ones",
                geometry.segment_limit, geometry.segment_bytes
            ),
        ));
    }
    if superblock.segment_bytes != geometry.segment_bytes {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "the store has segments of {} bytes, the device is set up for {}",
                superblock.segment_bytes, geometry.segment_bytes
            ),
        ));
    }
    Ok(())
}

/// Opens or makes the store on `device`, up to the point where shards can be built.
///
/// # Errors
/// `InvalidInput`: there is no store and `create` is off. `Incompatible`: a newer format. `Corrupt`:
/// no superblock is readable. `DeviceFailed`: the device gave an error.
pub fn open(device: &mut dyn BlockDevice, settings: &OpenSettings) -> Result<OpenedStore> {
    let mut report = OpenReport::default();
    let mut writer = read_superblock(device, settings, &mut report)?;
    let superblock = writer.superblock.clone();
    let geometry = device.geometry();
    check_geometry(&superblock, geometry)?;
    missing::look_before_replay(device, settings, &superblock, report.clean)?;
    let redone = replay::replay(device, settings, &superblock, &mut report)?;
    let numbers: Vec<u32> = match (&settings.existing_segments, report.created) {
        (_, true) => Vec::new(),
        (Some(numbers), _) => {
            numbers.iter().copied().chain(redone).collect::<BTreeSet<u32>>().into_iter().collect()
        }
        (None, _) => (0..geometry.segment_limit).collect(),
    };
    let mut checkpoints = FoundCheckpoints::default();
    let mut found = read_segments(device, settings, &superblock, &numbers, &mut checkpoints, &mut report)?;
    missing::refuse_loss(settings, &report)?;
    missing::refuse_older_copy(settings, &superblock, &report, &found)?;
    missing::free_headerless(device, superblock.store_id, &numbers, &report)?;
    let is_damaged = report.damaged_superblock_slot;
    checkpoints.add_region(snapshots::find(settings, &superblock, geometry, is_damaged)?);
    report.segments = found.len() as u32;
    // After the death of a process what it wrote last may lie in the device's cache only; nothing may be
    // built on that.
    if !report.created && !settings.mutations.is_on("no_flush_at_open") {
        run_all(device, vec![IoRequest::flush(0)])?;
    }
    let hasher = match settings.weak_hash_bits {
        Some(bits) => KeyHasher::weakened(superblock.hash_secret, bits),
        None => KeyHasher::new(superblock.hash_secret),
    };
    let walked_max_seq = walk::seal_open_segments(
        device,
        settings,
        &mut writer,
        &hasher,
        &mut found,
        &mut checkpoints,
        &mut report,
    )?;

    // What is damaged may be what a checkpoint needs.
    let shards_with_checkpoints =
        if report.damaged_segments.is_empty() { settings.shard_count.max(1) } else { 0 };
    let (chosen, void) = checkpoints.choose(shards_with_checkpoints, geometry.segment_bytes);
    find::free(device, superblock.store_id, &void)?;

    let kept = find::kept_in_region(&chosen);
    let (next, layout) = note_opening(device, settings, &mut writer, &found, &kept, &mut report)?;
    let begins_at = if report.created { settings.first_seq } else { 0 };
    let applied = newest_of(&found, &chosen).max(walked_max_seq).max(begins_at);
    let pool = Arc::new(SegmentPool::new(geometry.segment_limit, settings.shard_count.max(1)));
    let lives = in_use(&found, &report).into_iter();
    let lives = lives.map(|number| (number, found.get(&number).map(|segment| segment.header.generation)));
    pool.inventory().opened(&superblock.in_use, lives);
    let mut plans = deal(settings, &next, (hasher, geometry), &pool, &found, applied);
    plans.iter_mut().zip(chosen).for_each(|(plan, checkpoint)| plan.checkpoint = checkpoint);
    plans[0].lost_segments = (report.missing_segments.len() + report.damaged_segments.len()) as u64;
    deal_region(settings, layout, &report, &mut plans);
    deal_free(settings, geometry, &found, &report, &mut plans);
    plans.iter_mut().for_each(|plan| plan.opening = settings.progress.part(plan.bytes_to_read()));
    Ok(OpenedStore { superblock: writer, plans, report, hasher, inventory: Arc::clone(pool.inventory()) })
}

/// No record of what was found has a higher sequence, those of walked segments apart.
fn newest_of(found: &BTreeMap<u32, FoundSegment>, chosen: &[Option<FoundCheckpoint>]) -> Seq {
    let of_footer = |segment: &FoundSegment| {
        segment.footer.map(|footer| footer.max_seq.max(segment.header.opened_seq)).unwrap_or(0)
    };
    let of_checkpoint = chosen.iter().flatten().map(|found| found.commit.newest);
    found.values().map(of_footer).chain(of_checkpoint).max().unwrap_or(0)
}

/// Segments that hold records, those with a damaged header included: what they held is lost until they are repaired, but they
/// are not free.
fn in_use(found: &BTreeMap<u32, FoundSegment>, report: &OpenReport) -> BTreeSet<u32> {
    found.keys().chain(&report.damaged_segments).copied().collect()
}

/// Writes the number of this opening, before anything is written under it; gives the superblock written, and how
/// the region of the redo log is divided; checkpoints that are committed there at one of `kept` stay.
fn note_opening(
    device: &mut dyn BlockDevice,
    settings: &OpenSettings,
    writer: &mut SuperblockWriter,
    found: &BTreeMap<u32, FoundSegment>,
    kept: &[u64],
    report: &mut OpenReport,
) -> Result<(Superblock, Option<Layout>)> {
    let mut next = writer.superblock.clone();
    // A damaged slot may hide openings: their logs tell, and one more may have left none. Numbers are
    // never used twice.
    let logged = found.values().map(|segment| opening_of(segment.header.log_id)).max().unwrap_or(0);
    // So may those of the redo log's region, where an older copy of the files was put back beside it.
    let in_region = replay::opening_in_region(settings, &next)?;
    let hidden = u64::from(report.damaged_superblock_slot);
    next.open_count = next.open_count.max(logged).max(in_region) + 1 + hidden;
    next.clean = false;
    // What the segments say may go with them: from now on the superblock says it.
    let said = found.values().filter_map(|segment| segment.footer).map(|footer| footer.past_ms);
    if !settings.mutations.is_on("past_not_noted_at_open") {
        next.past_ms = said.fold(next.past_ms.max(settings.past_ms), u64::max);
    }
    if settings.mutations.is_on("reuse_open_count") {
        next.open_count = writer.superblock.open_count.max(1);
    }
    let layout = replay::divide(settings, &next, device.geometry(), kept, report)?;
    next.redo_opening = if layout.is_some() { next.open_count } else { 0 };
    next.in_use = inventory::runs_of(in_use(found, report).into_iter());
    // crash here [region-divided]: the region is void, and the superblock names an earlier opening
    if settings.mutations.is_on("superblock_not_durable") && !report.created {
        let IoRequest { token, offset, buffer, .. } = writer.request(0, next.clone())?;
        run_all(device, vec![IoRequest { token, kind: IoKind::Write, offset, buffer }])?;
    } else if (next.redo_opening > 0 && writer.superblock.redo_opening == 0) || report.redo_lost {
        // What the other slot says would be wrong where this one rots: that no region is needed, or that a lost one is.
        writer.write_both(device, next.clone())?;
    } else {
        writer.write(device, next.clone())?;
    }
    Ok((next, layout))
}

/// Reads the first and last block of each segment.
fn read_segments(
    device: &mut dyn BlockDevice,
    settings: &OpenSettings,
    superblock: &Superblock,
    numbers: &[u32],
    checkpoints: &mut FoundCheckpoints,
    report: &mut OpenReport,
) -> Result<BTreeMap<u32, FoundSegment>> {
    let geometry = device.geometry();
    let ranges: Vec<(u64, usize)> = numbers
        .iter()
        .flat_map(|&number| {
            let start = geometry.segment_offset(number);
            [(start, BLOCK_BYTES), (start + geometry.segment_bytes - BLOCK_BYTES as u64, BLOCK_BYTES)]
        })
        .collect();
    let any_generation = settings.mutations.is_on("footer_of_any_generation");
    let any_commit = settings.mutations.is_on("checkpoint_of_any_generation");
    let mut found = BTreeMap::new();
    let mut search = Search::new(settings, superblock, report.clean, numbers);
    let mut damaged = Vec::new();
    read_ranges(device, &ranges, |place, block| {
        let number = numbers[place / 2];
        if place % 2 == 1 {
            search.saw_last_block(number, block);
            checkpoints.add_last_block(number, block, any_commit);
            if let Some(segment) = found.get_mut(&number) {
                let segment: &mut FoundSegment = segment;
                let mut generation = segment.header.generation;
                if any_generation {
                    generation = Reader::new(&block[24..]).u64().unwrap_or(0);
                }
                segment.footer = SegmentFooter::decode(block, generation)
                    .filter(|footer| footer.store == superblock.store_id && footer.segment == number);
            }
            return Ok(());
        }
        let header = SegmentHeader::decode(block);
        search.saw_header(number, &header);
        match header {
            HeaderFound::OtherVersion(version) => {
                let message = format!(
                    "segment {number} has format version {version}, which this program does not know"
                );
                return Err(Error::new(ErrorKind::Incompatible, message));
            }
            HeaderFound::Damaged if search.is_no_loss(number) => {}
            HeaderFound::Damaged => damaged.push(number),
            HeaderFound::Whole(header) if header.store != superblock.store_id || header.segment != number => {
                if !search.is_no_loss(number) {
                    damaged.push(number);
                }
            }
            HeaderFound::Whole(header) if header.state == SegmentState::Log => {
                found.insert(number, FoundSegment { header, footer: None });
            }
            HeaderFound::Whole(header) if header.state == SegmentState::Checkpoint => {
                checkpoints.add_header(header);
            }
            HeaderFound::Whole(_) | HeaderFound::Blank => {}
        }
        Ok(())
    })?;
    report.damaged_segments.append(&mut damaged);
    search.tell(report);
    Ok(found)
}

/// An opening's mark, of the random number that it was given.
fn opening_mark(seed: u64, open_count: u64) -> u64 {
    SeededRandom::new(seed ^ open_count.rotate_left(32)).below(1 << 52) | 1 << 52
}

/// Deals segments with records to the shards whose positions they may hold.
fn deal(
    settings: &OpenSettings,
    superblock: &Superblock,
    (hasher, geometry): (KeyHasher, tierstone_media::Geometry),
    pool: &Arc<SegmentPool>,
    found: &BTreeMap<u32, FoundSegment>,
    applied: Seq,
) -> Vec<ShardPlan> {
    let count = settings.shard_count.max(1);
    let is_given_twice = settings.mutations.is_on("memory_is_given_twice");
    let memory = Arc::new(MemoryLedger::new(count, settings.shard.memory_bytes, is_given_twice));
    let mut plans: Vec<ShardPlan> = (0..count)
        .map(|shard| ShardPlan {
            settings: settings.shard.clone(),
            identity: ShardIdentity {
                store: superblock.store_id,
                open_count: superblock.open_count,
                opening_mark: opening_mark(settings.seed, superblock.open_count),
                shard,
                shard_count: count,
                hasher,
                geometry,
                mutations: settings.mutations.clone(),
            },
            keyspaces: crate::format::superblock::served_keyspaces(&superblock.keyspaces),
            applied,
            past_ms: superblock.past_ms,
            segments: Vec::new(),
            footers: BTreeMap::new(),
            durable_writes_flush: false,
            free: Vec::new(),
            pool: Arc::clone(pool),
            memory: Arc::clone(&memory),
            checkpoint: None,
            redo: None,
            areas: Vec::new(),
            loss_accepted: settings.loss_accepted,
            lost_segments: 0,
            opening: OpeningPart::default(),
        })
        .collect();
    for (&number, segment) in found {
        let Some(footer) = &segment.footer else { continue };
        let header = &segment.header;
        let first = Position(header.first_position).shard(count);
        let last = Position(header.last_position).shard(count);
        let shared = (first != last).then(|| Arc::new(AtomicU32::new(u32::from(last - first) + 1)));
        for shard in first..=last {
            plans[usize::from(shard)].footers.insert(number, *footer);
            plans[usize::from(shard)].segments.push((
                number,
                segment_of(superblock, header, footer, shared.clone(), BrokenRules::of(&settings.mutations)),
            ));
        }
    }
    plans
}

/// Gives each shard its part of the region, if it is divided.
fn deal_region(
    settings: &OpenSettings,
    layout: Option<Layout>,
    report: &OpenReport,
    plans: &mut [ShardPlan],
) {
    let (Some(layout), Some(memory)) = (layout, &settings.redo) else { return };
    for plan in plans.iter_mut() {
        let ShardIdentity { shard, store, .. } = plan.identity;
        plan.redo = Some(RedoLog::new(memory.clone(), layout, &plan.identity));
        plan.areas = Area::all(memory, layout, shard, store, &settings.mutations);
    }
    if let Some(log) = plans[0].redo.as_mut() {
        log.lost_bytes = report.redo_lost_bytes;
    }
}

/// Gives each shard its reserve, in turn as far as they go, and the pool the rest.
fn deal_free(
    settings: &OpenSettings,
    geometry: tierstone_media::Geometry,
    found: &BTreeMap<u32, FoundSegment>,
    report: &OpenReport,
    plans: &mut [ShardPlan],
) {
    let taken: BTreeSet<u32> = plans
        .iter()
        .flat_map(|plan| plan.checkpoint.iter().flat_map(|found| found.place.segments()))
        .chain(&report.damaged_segments)
        .chain(found.keys())
        .copied()
        .collect();
    let free = (0..geometry.segment_limit).filter(|number| !taken.contains(number));
    let existing: Option<BTreeSet<u32>> =
        settings.existing_segments.as_ref().map(|existing| existing.iter().copied().collect());
    let reserved = settings.shard.reserved_segments.max(RESERVED_MIN) as usize * plans.len();
    let shards = plans.len();
    for (place, number) in free.enumerate() {
        let ready = existing.as_ref().is_none_or(|existing| existing.contains(&number));
        let plan = &mut plans[place % shards];
        match place < reserved {
            true => plan.free.push((number, ready)),
            false => plan.pool.put(number, ready),
        }
    }
    // A shard's own are a stack: low numbers, which exist already, are used first.
    for plan in plans {
        plan.free.reverse();
    }
}

fn segment_of(
    superblock: &Superblock,
    header: &SegmentHeader,
    footer: &SegmentFooter,
    shared: Option<Arc<AtomicU32>>,
    broken: BrokenRules,
) -> Segment {
    let salt_generation = broken.salt_generation(header.generation);
    Segment {
        role: Role::Sealed,
        generation: header.generation,
        salt: segment_salt(superblock.store_id, header.segment, salt_generation),
        opened_seq: header.opened_seq,
        data_end: footer.data_end,
        summary: SummaryPlace {
            start: footer.summary_start,
            len: footer.summary_len,
            records: footer.records,
            checksum: footer.summary_checksum,
        },
        longest_units: footer.longest_units,
        shared,
        cold: header.temperature == crate::format::segment::Temperature::Cold,
        ..Segment::default()
    }
}
