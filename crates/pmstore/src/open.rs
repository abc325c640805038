//! Opening a store in a region: header, allocation table, the ends of the logs; then each shard by itself.
//!
//! 1. The header says what the store is; a region of zeros there becomes a new store, a store of an older version one of this
//!    ([`crate::upgrade`]).
//! 2. The number of the opening rises, durably: lives of segments and blocks are new. So does all of header, lines and table
//!    become durable that was found: a process that was killed may have stored it only, and from now on it is relied on.
//! 3. The allocation table says which segments each shard has. What was claimed and not used is free.
//! 4. The logs are walked to their ends. Parts of batches over several shards are counted over all logs; those whose
//!    shard does not say yet whether the batch is decided get the verdict, and those that do get it once more, durably, before
//!    any log is truncated.
//! 5. Each shard rebuilds its index ([`crate::recovery`]), in its own thread if the caller likes.
//!
//! Crash at any point: making a store ends with its magic; everything else is done again, with the same result.

use crate::blocks::Maker;
use crate::checkpoint;
use crate::format::{
    Entry, Header, Layout, MAGIC, OPENING_AT, SPARE, SegmentKind, VERSION, VERSION_FREE_WORDS, Verdict,
};
use crate::found::{self, FoundGroup, FoundLog, LogDamage};
use crate::mark::{guarded, unguarded};
use crate::memory::PmMemory;
use crate::recovery::ShardPlan;
use crate::settings::{Geometry, ShardSettings};
use crate::shard::PAST_AT;
use crate::space::{FreeSegments, Space};
use crate::upgrade::upgrade;
use std::collections::BTreeMap;
use std::sync::Arc;
use tierstone_base::{Error, ErrorKind, KeyHasher, KeyspaceId, Result, SeededRandom, Seq};
use tierstone_crash::Mutations;
use tierstone_engine::{IndexKind, OpeningProgress};
use tierstone_media::region::Region;

/// A keyspace that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keyspace {
    /// Its id; the companions of a user's keyspace are keyspaces of their own.
    pub id: KeyspaceId,
    /// How it finds its keys.
    pub index: IndexKind,
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct OpenSettings {
    /// Where in the region the store begins, in bytes: a multiple of 64. What lies before is the caller's.
    pub base: u64,
    /// How many shards; a store is opened with the number that it was made with.
    pub shard_count: u16,
    /// Settings of each shard.
    pub shard: ShardSettings,
    /// Make a store if there is none.
    pub create: bool,
    /// How a new store divides its region.
    pub geometry: Geometry,
    /// The keyspaces that are served. Records of others are of dropped ones: they are not shown, and cleaned away.
    pub keyspaces: Vec<Keyspace>,
    /// Sequences of a new store begin above this one.
    pub first_seq: Seq,
    /// Expiry goes by no earlier time than this, in milliseconds since 1970.
    pub past_ms: u64,
    /// For the store's id and secret, when it is made.
    pub seed: u64,
    /// Keeps only this many bits of hash in positions; tests force collisions with it.
    pub weak_hash_bits: Option<u32>,
    /// Open a store whose log is damaged, without what the damaged places held. Default: no, it is refused.
    pub loss_accepted: bool,
    /// Where it is told how far the opening has come.
    pub progress: OpeningProgress,
    /// Rules that a test breaks on purpose.
    pub mutations: Mutations,
}

impl Default for OpenSettings {
    fn default() -> Self {
        OpenSettings {
            base: 0,
            shard_count: 1,
            shard: ShardSettings::default(),
            create: true,
            geometry: Geometry::default(),
            keyspaces: Vec::new(),
            first_seq: 0,
            past_ms: 0,
            seed: 0,
            weak_hash_bits: None,
            loss_accepted: false,
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
    /// The format version that it had, if that was an older one. It is one of this version now.
    pub upgraded_from: Option<u32>,
    /// How often it was opened, this time included.
    pub opening: u64,
    /// Segments in use.
    pub segments: u32,
    /// Segments of the region.
    pub segments_max: u32,
    /// Segments whose word in the allocation table was damaged, the loss of which was accepted: they are free.
    pub damaged_segments: Vec<u32>,
    /// Bytes of frames that are replayed.
    pub log_bytes: u64,
    /// What of logs is damaged, the loss of which was accepted.
    pub damaged_log: Vec<LogDamage>,
    /// Parts of batches over several shards that did not count, for another was missing.
    pub dropped_parts: u64,
}

/// An opened store whose shards have not been built.
#[derive(Debug)]
pub struct OpenedStore {
    /// One for each shard.
    pub plans: Vec<ShardPlan>,
    /// What was found.
    pub report: OpenReport,
    /// Gives keys their positions.
    pub hasher: KeyHasher,
    /// The store's id.
    pub store: u64,
    /// The longest value, in bytes.
    pub value_bytes_max: u64,
}

/// What the allocation table says of one shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owned {
    pub log: BTreeMap<u32, u32>,
    pub spares: Vec<u32>,
    pub storage: Vec<u32>,
    pub overflow: Vec<(u32, u8)>,
}

impl Owned {
    /// Segments besides the log's.
    pub fn segments(&self) -> u32 {
        (self.storage.len() + self.overflow.len()) as u32
    }

    /// Segments of the log, spare ones too: each has a number of its own, or is among these.
    fn log_segments(&self) -> usize {
        self.log.len() + self.spares.len()
    }

    /// Whether the shard never had anything but the segments that it was made with.
    fn is_untouched(&self) -> bool {
        self.log.is_empty() && self.storage.is_empty() && self.overflow.is_empty()
    }
}

/// Whether `region` holds, from `base` on, a whole store to which nothing was ever written: no shard has begun a log. Nothing
/// is changed; it costs a read of the allocation table.
pub fn is_untouched(region: Arc<dyn Region + Send + Sync>, base: u64) -> bool {
    let Ok(memory) = PmMemory::new(region, base) else { return false };
    let Ok((header, layout)) = existing(&memory) else { return false };
    let (owned, table) = sort_table(&memory, &layout);
    let is_free = |segment: &u32| {
        header.version < VERSION_FREE_WORDS && memory.load_word(layout.table_word(*segment)) == 0
    };
    table.damaged.iter().all(is_free) && owned.iter().all(Owned::is_untouched)
}

/// Whether `region` holds, from `base` on, a store that was begun to be used.
pub fn is_in_use(region: Arc<dyn Region + Send + Sync>, base: u64) -> bool {
    let is_there = PmMemory::new(Arc::clone(&region), base).is_ok_and(|memory| existing(&memory).is_ok());
    is_there && !is_untouched(region, base)
}

/// Whether there are zeros where the store in `region` would begin, at `base`.
pub fn is_blank(region: Arc<dyn Region + Send + Sync>, base: u64) -> bool {
    PmMemory::new(region, base).is_ok_and(|memory| memory.len() < 4096 || memory.load_word(0) == 0)
}

/// How many shards the store in `region` has, from `base` on. Nothing is changed.
///
/// # Errors
/// `InvalidInput`: none is there, or the region is smaller than it. `Incompatible`: something else, or another version.
/// `Corrupt`: its header is damaged.
pub fn shard_count(region: Arc<dyn Region + Send + Sync>, base: u64) -> Result<u16> {
    Ok(existing(&PmMemory::new(region, base)?)?.0.shards)
}

/// Refuses to open a store with another number of shards than it was made with.
///
/// # Errors
/// `InvalidInput`.
pub fn refuse_other_shards(made_with: u16, asked_for: u16) -> Result<()> {
    if made_with == asked_for {
        return Ok(());
    }
    let message = format!(
        "the store in persistent memory was made with {made_with} shards and {asked_for} are asked for: open it with {made_with}"
    );
    Err(Error::new(ErrorKind::InvalidInput, message))
}

/// Bytes of the smallest region in which so many shards can be made, behind its first `base`.
pub fn least_region_bytes(geometry: Geometry, shards: u16, base: u64) -> u64 {
    let shards = shards.clamp(1, crate::format::SHARDS_MAX);
    base + Layout::of(geometry, shards, Layout::least_segments(geometry, shards) as u32).end()
}

/// Bytes of the largest region of which a store uses all, behind its first `base`: of a larger one the rest stays unused.
pub fn largest_region_bytes(base: u64) -> u64 {
    base + crate::keys::STORE_BYTES_MAX
}

/// Opens or makes the store in `region`, up to the point where shards can be built. Nothing else may use the region
/// from [`OpenSettings::base`] on.
///
/// # Errors
/// `InvalidInput`: there is no store and `create` is off; the region is too small; another number of shards.
/// `Incompatible`: something else is there, or another version. `Corrupt`: header, table or log are damaged, also where the loss
/// is not accepted. `DeviceFailed`:
/// the region failed.
pub fn open(region: Arc<dyn Region + Send + Sync>, settings: &OpenSettings) -> Result<OpenedStore> {
    let memory = PmMemory::new(region, settings.base)?.with_rules(&settings.mutations);
    let mut report = OpenReport::default();
    let (header, layout) = read_header(&memory, settings, &mut report)?;
    refuse_other_shards(header.shards, settings.shard_count)?;
    let header = match header.version {
        VERSION => header,
        version => {
            report.upgraded_from = Some(version);
            upgrade(&memory, &header, &layout)?
        }
    };
    report.opening = opening(&memory, &layout)? + 1;
    let checkpoints = checkpoints(&memory, &layout, settings, report.opening - 1);
    if !settings.mutations.is_on("found_words_not_kept") {
        memory.write_back(0, layout.data_start());
    }
    memory.put_word(OPENING_AT, guarded(report.opening));
    memory.barrier("opening_unfenced")?;
    for (shard, _) in (0..).zip(&checkpoints).filter(|(_, checkpoint)| checkpoint.is_some()) {
        // crash here [checkpoint-not-taken-over]: it is in force no more, and all records are read. No barrier: the word
        // may be lost at any time, until the shard's log begins.
        memory.put_word(layout.shard_line(shard) + checkpoint::OPENING_AT, guarded(report.opening));
    }
    let (owned, free) = read_table(&memory, &layout, settings.loss_accepted, &mut report)?;
    let space = Arc::new(Space::new(memory.clone(), layout, free, owned.iter().map(Owned::segments)));
    let maker = |shard| Maker {
        memory: memory.clone(),
        layout,
        space: Arc::clone(&space),
        store: header.store,
        shard,
        opening: report.opening,
    };
    let mut logs = Vec::new();
    for (shard, owned) in owned.iter().enumerate() {
        logs.push(found::find(&maker(shard as u16), owned, header.first_seq + 1)?);
    }
    report.damaged_log = logs.iter().flat_map(|log| log.damage.clone()).collect();
    refuse_loss(&report.damaged_log, settings.loss_accepted)?;
    for (shard, (owned, log)) in owned.iter().zip(&mut logs).enumerate() {
        complete_ring(&space, shard as u16, owned, log);
    }
    report.log_bytes = logs.iter().flat_map(|log| &log.frames).map(|frame| u64::from(frame.head.len)).sum();
    report.dropped_parts = decide(&memory, &mut logs, &settings.mutations)?;
    let lost_bytes = report.damaged_segments.len() as u64 * layout.geometry.segment_bytes;
    let plans = owned.into_iter().zip(logs).enumerate().map(|(shard, (owned, log))| ShardPlan {
        maker: maker(shard as u16),
        settings: settings.shard.clone(),
        mutations: settings.mutations.clone(),
        keyspaces: settings.keyspaces.clone(),
        log,
        opening: settings.progress.part(owned.storage.len() as u64 * layout.geometry.segment_bytes),
        storage: owned.storage,
        overflow: owned.overflow,
        applied: header.first_seq,
        past_ms: settings.past_ms,
        loss_accepted: settings.loss_accepted,
        // Whose they were is not known.
        lost_bytes: if shard == 0 { lost_bytes } else { 0 },
        checkpoint: checkpoints[shard],
    });
    let hasher = match settings.weak_hash_bits {
        Some(bits) => KeyHasher::weakened(header.hash_secret, bits),
        None => KeyHasher::new(header.hash_secret),
    };
    let value_bytes_max = crate::write::value_bytes_max(&layout);
    Ok(OpenedStore { plans: plans.collect(), report, hasher, store: header.store, value_bytes_max })
}

/// Gives a log whose ring lost segments with their words others, as far as there are free ones. No barrier: the one of a log
/// segment's word comes before anything is read there.
fn complete_ring(space: &Space, shard: u16, owned: &Owned, log: &mut FoundLog) {
    let missing = usize::from(space.log_segments()).saturating_sub(owned.log_segments());
    log.spares.extend((0..missing).map_while(|_| space.claim_for_log(shard)));
}

/// The blocks with the first pages of the checkpoints that are in force: those that the opening before took in or made.
/// None where damage is to be looked for.
fn checkpoints(memory: &PmMemory, layout: &Layout, settings: &OpenSettings, before: u64) -> Vec<Option<u32>> {
    let of_shard = |shard| {
        let (opening, page) = checkpoint_named(memory, layout, shard)?;
        let is_in_force = opening == before || settings.mutations.is_on("checkpoint_of_any_opening");
        (is_in_force && !settings.loss_accepted).then_some(page)
    };
    (0..layout.shards).map(of_shard).collect()
}

/// The checkpoint that the line of `shard` names: which opening took it in or made it, and its first block.
fn checkpoint_named(memory: &PmMemory, layout: &Layout, shard: u16) -> Option<(u64, u32)> {
    let line = layout.shard_line(shard);
    let opening =
        unguarded(memory.load_word(line + checkpoint::OPENING_AT)).filter(|&opening| opening > 0)?;
    let page = unguarded(memory.load_word(line + checkpoint::PAGE_AT))?.checked_sub(1)?;
    Some((opening, u32::try_from(page).ok()?))
}

/// The first block of the checkpoint that the next opening of a closed store takes in; `before`: the last opening.
pub(crate) fn checkpoint_in_force(maker: &Maker, before: u64) -> Option<u32> {
    let (opening, page) = checkpoint_named(&maker.memory, &maker.layout, maker.shard)?;
    (opening == before).then_some(page)
}

/// Reads the header, or makes a store.
fn read_header(
    memory: &PmMemory,
    settings: &OpenSettings,
    report: &mut OpenReport,
) -> Result<(Header, Layout)> {
    match memory.len() {
        4096.. if memory.load_word(0) == 0 && settings.create => {
            report.created = true;
            create(memory, settings)
        }
        _ => existing(memory),
    }
}

/// The header of a store that is there.
///
/// # Errors
/// `InvalidInput`: none is there, or the region is smaller than it. `Incompatible`: something else, or another version.
/// `Corrupt`: it is damaged.
pub(crate) fn existing(memory: &PmMemory) -> Result<(Header, Layout)> {
    if memory.len() < 4096 {
        let message = format!("{} bytes of persistent memory are too few for a store", memory.len());
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    match memory.load_word(0) {
        MAGIC => {
            let header = Header::decode(&memory.load(0))?;
            let layout = Layout::of(header.geometry, header.shards, header.segments);
            if layout.end() > memory.len() {
                let message = format!(
                    "the store takes {} bytes and the region has {}: give it the whole region that it was made in",
                    layout.end(),
                    memory.len()
                );
                return Err(Error::new(ErrorKind::InvalidInput, message));
            }
            Ok((header, layout))
        }
        0 => Err(Error::new(ErrorKind::InvalidInput, "there is no store in this region: create one")),
        _ => {
            let message = "the region holds something that is no store: use another one, or make it anew";
            Err(Error::new(ErrorKind::Incompatible, message))
        }
    }
}

/// Makes a store: everything but the first word, durably, then that.
fn create(memory: &PmMemory, settings: &OpenSettings) -> Result<(Header, Layout)> {
    let layout = Layout::new(settings.geometry, settings.shard_count, memory.len(), settings.base)?;
    let mut random = SeededRandom::new(settings.seed);
    let header = Header {
        version: VERSION,
        store: random.next_u64(),
        hash_secret: [random.next_u64(), random.next_u64()],
        geometry: settings.geometry,
        shards: settings.shard_count,
        segments: layout.segments,
        first_seq: settings.first_seq,
    };
    let zeros = [0; 4096];
    let mut at = 64;
    while at < layout.data_start() {
        let len = (layout.data_start() - at).min(4096);
        memory.stream(at, &zeros[..len as usize]);
        at += len;
    }
    let log_segments = u32::from(settings.geometry.log_segments);
    for shard in 0..settings.shard_count {
        for number in 0..log_segments {
            let word = Entry { kind: SegmentKind::Log, device: shard, logical: SPARE }.encode();
            let place = layout.table_word(u32::from(shard) * log_segments + number);
            memory.store_word(place, word);
            memory.write_back(place, 8);
        }
    }
    let given = u32::from(settings.shard_count) * log_segments;
    for segment in given..layout.segments {
        memory.store_word(layout.table_word(segment), Entry::free());
    }
    memory.write_back(layout.table_word(given), u64::from(layout.segments - given) * 8);
    let bytes = header.encode();
    memory.store(8, &bytes[8..]);
    memory.write_back(0, bytes.len() as u64);
    if !settings.mutations.is_on("magic_first") {
        memory.fence()?;
    }
    // crash here [store-without-magic]: the region is taken for a new one. No barrier: the one of the opening's number
    // comes before anything else is stored.
    memory.put_word(0, MAGIC);
    Ok((header, layout))
}

/// What the allocation table says besides.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Segments that belong to shards.
    pub used: u32,
    pub free: FreeSegments,
    /// Segments whose word is damaged.
    pub damaged: Vec<u32>,
    /// Segments that were taken and are not in use.
    pub claimed: Vec<u32>,
    /// Segments with the logical number of another: both, whose they are, and the number.
    pub twice: Vec<(u32, u32, u16, u32)>,
}

/// What each shard has, and claimed segments given back; segments whose word is damaged too, where their loss is accepted.
/// No barrier: free or claimed, the next opening takes them for free, and refuses the damaged ones again.
fn read_table(
    memory: &PmMemory,
    layout: &Layout,
    is_loss_accepted: bool,
    report: &mut OpenReport,
) -> Result<(Vec<Owned>, FreeSegments)> {
    let (owned, mut table) = sort_table(memory, layout);
    if let Some(first) = table.damaged.first().filter(|_| !is_loss_accepted) {
        let (count, place) = (table.damaged.len(), memory.base() + layout.table_word(*first));
        let message = format!(
            "of {count} segments the word in the allocation table is damaged (the first is segment {first}, its word at byte \
             {place} of the region); what they held, if anything, was acknowledged: restore the region from a copy, or open the store \
             without it by accepting the loss"
        );
        return Err(Error::new(ErrorKind::Corrupt, message));
    }
    for &segment in table.claimed.iter().chain(&table.damaged) {
        memory.put_word(layout.table_word(segment), Entry::free());
        table.free.add(segment);
    }
    (report.segments, report.segments_max) = (table.used, layout.segments);
    report.damaged_segments = table.damaged;
    Ok((owned, table.free))
}

/// What each shard has.
pub(crate) fn sort_table(memory: &PmMemory, layout: &Layout) -> (Vec<Owned>, Table) {
    let mut owned = vec![Owned::default(); usize::from(layout.shards)];
    let mut table = Table::default();
    for segment in 0..layout.segments {
        let entry = match Entry::decode(memory.load_word(layout.table_word(segment))) {
            Ok(None) => {
                table.free.add(segment);
                continue;
            }
            Ok(Some(Entry { kind: SegmentKind::Claimed, .. })) => {
                table.claimed.push(segment);
                continue;
            }
            Ok(Some(entry)) if entry.device < layout.shards => entry,
            _ => {
                table.damaged.push(segment);
                continue;
            }
        };
        table.used += 1;
        let own = &mut owned[usize::from(entry.device)];
        match entry.kind {
            SegmentKind::Log if entry.logical == SPARE => own.spares.push(segment),
            // Two with one number: only one has a lead that says so; the walk passes by the other.
            SegmentKind::Log => {
                if let Some(other) = own.log.insert(entry.logical, segment) {
                    own.spares.push(other);
                    table.twice.push((segment, other, entry.device, entry.logical));
                }
            }
            SegmentKind::Storage => own.storage.push(segment),
            SegmentKind::Overflow(class) => own.overflow.push((segment, class)),
            SegmentKind::Claimed => {}
        }
    }
    (owned, table)
}

/// How often the store was opened.
fn opening(memory: &PmMemory, layout: &Layout) -> Result<u64> {
    let past = |shard| memory.load_word(layout.shard_line(shard) + PAST_AT);
    let words = (0..layout.shards).map(past).chain([memory.load_word(OPENING_AT)]);
    let opening = words.map(unguarded).collect::<Option<Vec<u64>>>().and_then(|words| words.last().copied());
    let message = "the number of the opening, or a time up to which keys have expired, is damaged: restore the region from a copy";
    opening.ok_or_else(|| Error::new(ErrorKind::Corrupt, message))
}

/// Refuses a store whose log has lost something, unless that is accepted.
fn refuse_loss(damage: &[LogDamage], is_accepted: bool) -> Result<()> {
    let Some(first) = damage.first().filter(|_| !is_accepted) else { return Ok(()) };
    let more = match damage.len() - 1 {
        0 => String::new(),
        more => format!(" ({more} more places)"),
    };
    let message = format!(
        "{}{more}; what it held was acknowledged: restore the region from a copy, or open the store without it by \
         accepting the loss",
        first.text()
    );
    Err(Error::new(ErrorKind::Corrupt, message))
}

/// Decides batches over several shards, and says so in their frames, durably. Gives how many parts do not count.
fn decide(memory: &PmMemory, logs: &mut [FoundLog], rules: &Mutations) -> Result<u64> {
    let is_left = |group: &&FoundGroup| group.verdict.is_some() && rules.is_on("found_verdicts_not_kept");
    let left: Vec<u64> =
        logs.iter().flat_map(|log| &log.groups).filter(is_left).map(|group| group.verdict_at).collect();
    let (dropped, mut verdicts) = judge(logs, rules.is_on("parts_not_counted"));
    verdicts.retain(|(place, _)| !left.contains(place));
    if verdicts.is_empty() || rules.is_on("verdicts_not_kept") {
        return Ok(dropped);
    }
    for (place, word) in verdicts {
        memory.store_word(place, word);
        memory.write_back(place, 8);
    }
    // Other threads build the shards: their fences are not this one's.
    memory.barrier("verdicts_unfenced")?;
    Ok(dropped)
}

/// Gives every part of a batch over several shards its verdict. How many do not count, and the words that say it, of all of
/// them: a process that was killed may have stored one only, and another shard's log goes that would say the same.
pub(crate) fn judge(logs: &mut [FoundLog], all_count: bool) -> (u64, Vec<(u64, u64)>) {
    let mut counts: BTreeMap<(u64, u64), (u16, bool)> = BTreeMap::new();
    for group in logs.iter().flat_map(|log| &log.groups).filter(|group| group.parts > 0) {
        let count = counts.entry((group.opening, group.batch)).or_default();
        count.0 += 1;
        count.1 |= group.verdict == Some(Verdict::Decided) || count.0 >= group.parts;
    }
    let (mut dropped, mut words) = (0, Vec::new());
    for group in logs.iter_mut().flat_map(|log| &mut log.groups).filter(|group| group.parts > 0) {
        let is_decided = counts.get(&(group.opening, group.batch)).is_some_and(|count| count.1);
        let found = if is_decided || all_count { Verdict::Decided } else { Verdict::Void };
        let verdict = group.verdict.unwrap_or(found);
        dropped += u64::from(verdict == Verdict::Void);
        words.push((group.verdict_at, verdict.word(group.checksum)));
        group.verdict = Some(verdict);
    }
    (dropped, words)
}
