//! Runs log stores through their lives on one simulated machine: work, loss of power at any point,
//! recovery, check, work again. Scenarios are functions over a [`World`].

use super::geometry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::Unbounded;
use std::sync::Arc;
use tierstone_base::{ErrorKind, KeyHasher, KeyspaceId, Now, SeededRandom, Seq};
use tierstone_crash::{
    Choices, DurableOrder, ExploreSettings, Mutations, Oracle, Report, Violation, explore,
};
use tierstone_engine::harness::Harness;
use tierstone_engine::{BatchTicket, Direction, Engine, IndexKind, SnapshotId, Write, WriteKind};
use tierstone_logstore::{LogShard, OpenSettings, PutOff, RedoMemory, ShardSettings, open};
use tierstone_media::region::WORD_BYTES;
use tierstone_media::sim::{
    CutPoints, Fault, MachineLife, PowerCut, SimDevice, SimMedium, SimSettings, WordMachine, set_processor,
};
use tierstone_media::{DurableWriteScope, Wait};

/// The keyspace of every key here.
pub const KEYSPACE: KeyspaceId = KeyspaceId(1);
/// Keys from here on expire; the oracle does not know them.
const EXPIRING: u32 = 1_000_000;

/// What a value is: which write made it, and how long it is. The bytes follow from both.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub write: u32,
    pub len: u32,
    /// When it expires, in milliseconds after [`FAR_MS`], long after the end of the run; zero: never.
    pub expiry: u32,
}

/// Far in the future, in milliseconds since 1970.
const FAR_MS: u64 = 1 << 42;
/// In the place of a length: the key's value stays, with another expiry.
pub const TOUCH: u32 = u32::MAX;

impl std::fmt::Debug for Stamp {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "w{}({}, {})", self.write, self.len, self.expiry)
    }
}

impl Stamp {
    fn bytes(self) -> Vec<u8> {
        let mut bytes = self.write.to_le_bytes().to_vec();
        bytes.extend(
            (0..self.len).map(|at| (self.write as u8).wrapping_mul(37) ^ (at as u8) ^ (at >> 8) as u8),
        );
        bytes.truncate((self.len as usize).max(4));
        bytes
    }

    fn read(bytes: &[u8], expiry_ms: u64) -> Result<Stamp, Violation> {
        let write = bytes.first_chunk().map(|first| u32::from_le_bytes(*first));
        let expiry = expiry_ms.saturating_sub(FAR_MS) as u32;
        let stamp = Stamp { write: write.unwrap_or(0), len: bytes.len() as u32, expiry };
        Violation::unless(stamp.bytes() == bytes, || {
            format!("a value of {} bytes is not whole", bytes.len())
        })?;
        Ok(stamp)
    }
}

/// What a scenario needs besides its work. Plain data.
#[derive(Clone, Debug)]
pub struct Plan {
    pub open: OpenSettings,
    pub sim: SimSettings,
    /// Shards of each life, in turn.
    pub shards: Vec<u16>,
    /// The wall clock is set back so far before each life but the first, in milliseconds.
    pub set_back_ms: u64,
    /// Of lives, the part in percent after which the process is killed instead of the power cut.
    pub kill_percent: u64,
    /// Bytes of persistent memory for a redo log; none: without one.
    pub redo_bytes: Option<u64>,
}

impl Plan {
    /// Small segments, one shard, everything open that exploring asks about.
    pub fn new(segment_bytes: u64, segments: u32) -> Plan {
        let open = OpenSettings {
            shard: ShardSettings {
                memory_bytes: 64 << 10,
                index_fraction: 0.5,
                group_bytes_max: 8 << 10,
                overlap_bytes: 16 << 10,
                clean_step_bytes: 8 << 10,
                reserved_segments: 2,
                clean_below_free_fraction: 0.3,
                touch_value_bytes_min: 0,
                ..ShardSettings::default()
            },
            keyspaces: super::keyspaces(),
            seed: 7,
            ..OpenSettings::default()
        };
        let sim = SimSettings {
            cut_limit: 2,
            end_cuts: 1,
            trace_limit_lines: 24,
            power_cut: PowerCut::Anywhere { points: CutPoints::Every, one_in: 80 },
            ..SimSettings::exploring(geometry(segment_bytes, segments))
        };
        Plan { open, sim, shards: vec![1], set_back_ms: 0, kill_percent: 0, redo_bytes: None }
    }

    /// The same with power lost once in `one_in` events.
    pub fn cut_one_in(mut self, one_in: u64) -> Plan {
        self.sim.power_cut = PowerCut::Anywhere { points: CutPoints::Every, one_in };
        self
    }

    /// The same with a checkpoint of the index whenever one can be had.
    pub fn checkpoints(mut self) -> Plan {
        self.open.shard.checkpoint_idle_ms = 0;
        self.open.shard.checkpoint_tail_records_min = 1;
        self.open.shard.checkpoint_step_bytes = 1;
        self
    }

    /// The same with a redo log in `bytes` of persistent memory.
    pub fn redo(mut self, bytes: u64) -> Plan {
        self.redo_bytes = Some(bytes);
        self
    }

    pub fn groups_in_flight(mut self, count: usize) -> Plan {
        self.open.shard.groups_in_flight_min = count;
        self.open.shard.groups_in_flight_max = count;
        self
    }

    /// The same with an ordered keyspace.
    pub fn ordered(mut self) -> Plan {
        self.open.keyspaces = super::ordered_keyspaces();
        self
    }

    pub fn scope(mut self, scope: DurableWriteScope) -> Plan {
        self.sim.durable_write_scope = scope;
        self
    }

    pub fn mutated(mut self, mutations: &Mutations) -> Plan {
        self.open.mutations = mutations.clone();
        self
    }

    /// Explores `work` under this plan.
    pub fn explore(&self, settings: ExploreSettings, work: Work<'_>) -> Report {
        explore(settings, |choices| self.run(choices, &[], work))
    }

    /// One run of `work`.
    pub fn run(&self, choices: &Choices, faults: &[Fault], work: Work<'_>) -> Result<(), Violation> {
        let machine = self.machine(choices);
        faults.iter().for_each(|fault| machine.media()[0].inject(fault.clone()));
        self.run_on(&machine, choices, work)
    }

    /// One run of `work` on `machine`.
    pub fn run_on(&self, machine: &WordMachine, choices: &Choices, work: Work<'_>) -> Result<(), Violation> {
        let one_shard = self.shards.iter().all(|&shards| shards == 1);
        let order = if one_shard { DurableOrder::Prefix } else { DurableOrder::Any };
        let mut history = History {
            oracle: Oracle::new(order),
            expiring: BTreeMap::new(),
            gone: BTreeSet::new(),
            writes: 0,
            refused: 0,
            now: Now { monotonic_us: 1_000, wall_ms: 1_700_000_000_000 },
            opened: 0,
        };
        let mut number = 0;
        let medium = &machine.media()[0];
        machine.run_lives(|mut life| {
            number += 1;
            loop {
                let mut world = World::open(self, medium, life, &mut history)?;
                world.check()?;
                work(&mut world, number - 1, choices)?;
                drop(world);
                let killed =
                    self.kill_percent > 0 && choices.rarely(100 / self.kill_percent, "process killed");
                if !killed || machine.power_is_off() {
                    return Ok(());
                }
                life = machine.kill_process();
            }
        })
    }
}

/// The number in a key's bytes.
fn key_number(bytes: &[u8]) -> Result<u32, Violation> {
    let text = String::from_utf8_lossy(bytes);
    let digits = text.trim_start_matches("{t}").strip_prefix('k');
    let number = digits.and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| Violation::new(format!("the store gives a key that nobody wrote: {text}")))
}

/// What a scenario does in each life, after recovery has been checked.
pub type Work<'a> = &'a dyn Fn(&mut World<'_>, u32, &Choices) -> Result<(), Violation>;

/// What is known about the store over all lives.
struct History {
    oracle: Oracle<u32, Stamp>,
    /// Keys that expire: when, and whether the write that says so is acknowledged.
    expiring: BTreeMap<u32, (u64, bool)>,
    /// Keys of which an answer said that they have expired.
    gone: BTreeSet<u32>,
    writes: u32,
    refused: u64,
    now: Now,
    /// Openings so far.
    opened: usize,
}

/// A write that has not been acknowledged.
struct Pending {
    shard: usize,
    seq: Seq,
    what: PendingWhat,
}

enum PendingWhat {
    Batch(u64),
    /// A part of a batch over several shards.
    Part(u64),
    Expiring(u32, u64),
    /// An answer that the key has expired.
    Gone(u32),
}

/// Keys and values that a snapshot must show.
type Shown = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

/// One life of a store, with all its shards.
pub struct World<'a> {
    pub shards: Vec<Harness<LogShard, SimDevice>>,
    pub medium: &'a SimMedium,
    history: &'a mut History,
    hasher: KeyHasher,
    pending: Vec<Pending>,
    /// Batches over several shards so far.
    batches: u64,
    /// Keys of those that are not decided.
    locked: BTreeMap<u64, BTreeSet<u32>>,
    /// Keys have one hash tag, so that weak hashes make their positions equal.
    tagged: bool,
    /// Of the first shard, with what they must show.
    snapshots: Vec<(SnapshotId, Shown)>,
    /// The keyspace is ordered: ranges are checked as well.
    ordered: bool,
}

/// A shard, to do something on its processor.
fn on<E>(shards: &mut [E], shard: usize) -> &mut E {
    set_processor(shard as u32 + 1);
    &mut shards[shard]
}

impl<'a> World<'a> {
    fn open(
        plan: &Plan,
        medium: &'a SimMedium,
        mut life: MachineLife<{ WORD_BYTES as usize }>,
        history: &'a mut History,
    ) -> Result<World<'a>, Violation> {
        let mut settings = plan.open.clone();
        settings.shard_count = plan.shards[history.opened % plan.shards.len()];
        if history.opened > 0 {
            history.now.wall_ms -= plan.set_back_ms;
        }
        history.opened += 1;
        settings.redo = plan.redo_bytes.map(|_| RedoMemory::new(Arc::new(life.region)));
        let mut device = life.devices.remove(0);
        // Each shard has a processor of its own; what comes before them is done by the first, 0.
        set_processor(0);
        let opened = open(&mut device, &settings)?;
        let mut damaged = opened.report.damaged_segments.clone();
        let hasher = opened.hasher;
        let mut shards = Vec::new();
        for (number, plan) in (1..).zip(opened.plans) {
            set_processor(number);
            let mut device = medium.device();
            let (shard, report) = plan.build(&mut device)?;
            damaged.extend(report.damaged_segments);
            let mut harness = Harness::new(shard, device, hasher);
            harness.now = history.now;
            shards.push(harness);
        }
        Violation::unless(damaged.is_empty(), || format!("recovery calls segments {damaged:?} damaged"))?;
        let tagged = settings.weak_hash_bits.is_some();
        let ordered = settings.keyspaces[0].index == IndexKind::Ordered;
        Ok(World {
            shards,
            medium,
            history,
            hasher,
            pending: Vec::new(),
            batches: 0,
            locked: BTreeMap::new(),
            tagged,
            ordered,
            snapshots: Vec::new(),
        })
    }

    fn key_bytes(&self, key: u32) -> Vec<u8> {
        format!("{}{key}", if self.tagged { "{t}k" } else { "k" }).into_bytes()
    }

    pub fn shard_of(&self, key: u32) -> usize {
        usize::from(self.hasher.position(&self.key_bytes(key)).shard(self.shards.len() as u16))
    }

    /// Everything that the store holds is what the history allows; afterwards it is the history.
    pub fn check(&mut self) -> Result<(), Violation> {
        let observed = self.contents()?;
        self.history.oracle.check_contents(&observed)?;
        self.history.oracle.settle(observed);
        Ok(())
    }

    /// What the store holds by scan and by get, without what expires.
    pub fn contents(&mut self) -> Result<BTreeMap<u32, Stamp>, Violation> {
        let (mut keys, mut scanned) = (BTreeSet::new(), BTreeMap::new());
        let shard_count = self.shards.len() as u16;
        for number in 0..self.shards.len() {
            let harness = on(&mut self.shards, number);
            let entries = harness.scan_all(KEYSPACE, 5)?;
            for entry in entries {
                let key = key_number(&entry.key)?;
                let shard = usize::from(self.hasher.position(&entry.key).shard(shard_count));
                Violation::unless(shard == number, || {
                    format!("key {key} of shard {shard} is in shard {number}")
                })?;
                keys.insert(key);
                scanned.insert(key, entry.meta.expiry_ms.saturating_sub(FAR_MS) as u32);
            }
        }
        let mut contents = BTreeMap::new();
        let known: Vec<u32> = self.history.oracle.keys().into_iter().copied().collect();
        let all: BTreeSet<u32> = keys.iter().copied().chain(known).filter(|&key| key < EXPIRING).collect();
        for key in all {
            let value = self.get(key)?;
            Violation::unless(value.is_some() == keys.contains(&key), || {
                format!("get of key {key} gives {value:?}, the scan says {}", keys.contains(&key))
            })?;
            if let Some(value) = value {
                Violation::unless(scanned.get(&key) == Some(&value.expiry), || {
                    format!("key {key} has {value:?}, the scan says expiry {:?}", scanned.get(&key))
                })?;
                contents.insert(key, value);
            }
        }
        if self.ordered {
            self.check_order(&contents)?;
        }
        let wall_ms = self.history.now.wall_ms;
        for (key, (expiry_ms, acknowledged)) in self.history.expiring.clone() {
            if acknowledged && expiry_ms <= wall_ms {
                let value = self.get(key)?;
                Violation::unless(value.is_none(), || format!("key {key} expired and holds {value:?}"))?;
            }
        }
        self.check_gone()?;
        Ok(contents)
    }

    /// What was seen expired stays so, and what no shard has shown as past is there, whatever the clock shows.
    fn check_gone(&mut self) -> Result<(), Violation> {
        for key in self.history.gone.clone() {
            let value = self.get(key)?;
            Violation::unless(value.is_none(), || format!("key {key} was seen expired and holds {value:?}"))?;
        }
        let wall_ms = self.history.now.wall_ms;
        for (key, (expiry_ms, acknowledged)) in self.history.expiring.clone() {
            let shard = self.shard_of(key);
            if acknowledged && expiry_ms > wall_ms.max(self.shards[shard].engine.past_ms()) {
                let value = self.get(key)?;
                Violation::unless(value.is_some(), || format!("key {key} is gone before its time"))?;
            }
        }
        Ok(())
    }

    /// Asks for a key that expires; an answer that it has waits for what it has observed.
    pub fn look_at_expiring(&mut self, number: u32) -> Result<(), Violation> {
        let key = EXPIRING + number;
        let has_expired =
            |(expiry_ms, acknowledged): &(u64, bool)| *acknowledged && *expiry_ms <= self.history.now.wall_ms;
        let expects_none = self.history.expiring.get(&key).is_some_and(has_expired);
        let value = self.get(key)?;
        if expects_none {
            Violation::unless(value.is_none(), || format!("key {key} expired and holds {value:?}"))?;
            let shard = self.shard_of(key);
            let seq = self.shards[shard].engine.applied_seq();
            self.pending.push(Pending { shard, seq, what: PendingWhat::Gone(key) });
            self.acknowledge();
        }
        Ok(())
    }

    /// Ranges give `contents`, each shard's in order, and orders hold no keys that are gone.
    fn check_order(&mut self, contents: &BTreeMap<u32, Stamp>) -> Result<(), Violation> {
        let mut ranged = BTreeMap::new();
        for shard in 0..self.shards.len() {
            let harness = on(&mut self.shards, shard);
            let forward = harness.range_all(KEYSPACE, Unbounded, Unbounded, 3, Direction::Forward)?;
            let mut backward = harness.range_all(KEYSPACE, Unbounded, Unbounded, 50, Direction::Backward)?;
            backward.reverse();
            Violation::unless(forward == backward, || format!("{forward:?} forward, {backward:?} backward"))?;
            let ascends = forward.windows(2).all(|pair| pair[0].key < pair[1].key);
            Violation::unless(ascends, || format!("a range without order: {forward:?}"))?;
            for entry in forward {
                let key = key_number(&entry.key)?;
                if key < EXPIRING {
                    ranged.insert(key, Stamp::read(&entry.value, entry.meta.expiry_ms)?);
                }
            }
            let (keys, ordered) = (harness.engine.len(KEYSPACE), harness.engine.ordered_len(KEYSPACE));
            Violation::unless(ordered.unwrap_or(0) == keys, || {
                format!("{keys} keys have records, {ordered:?} are in order")
            })?;
        }
        Violation::unless(ranged == *contents, || format!("ranges give {ranged:?}, not {contents:?}"))
    }

    pub fn get(&mut self, key: u32) -> Result<Option<Stamp>, Violation> {
        let shard = self.shard_of(key);
        let bytes = self.key_bytes(key);
        let found = on(&mut self.shards, shard).get(KEYSPACE, &bytes)?;
        found.map(|(meta, value)| Stamp::read(&value, meta.expiry_ms)).transpose()
    }

    /// One batch; `None` deletes. All keys must be of one shard. False when the store refused it for
    /// want of space.
    pub fn write(&mut self, changes: &[(u32, Option<u32>)]) -> Result<bool, Violation> {
        let shard = self.shard_of(changes[0].0);
        let here: Vec<_> = changes.iter().filter(|(key, _)| self.shard_of(*key) == shard).collect();
        let changes = self.stamps_of(here.into_iter().copied());
        let batch = self.history.oracle.submit(changes.iter().copied());
        let written = self.write_stamps(shard, &changes, 0)?;
        match written {
            Some(seq) => self.pending.push(Pending { shard, seq, what: PendingWhat::Batch(batch) }),
            None => self.history.oracle.refuse(batch),
        }
        self.acknowledge();
        Ok(written.is_some())
    }

    /// A load of puts, each by itself; those of other shards than the first one's are left out. What the store has
    /// no space for is left out, too.
    pub fn load(&mut self, puts: &[(u32, u32)]) -> Result<(), Violation> {
        let shard = self.shard_of(puts[0].0);
        let here: Vec<_> = puts.iter().filter(|(key, _)| self.shard_of(*key) == shard).collect();
        let stamps = self.stamps_of(here.into_iter().map(|&(key, len)| (key, Some(len))));
        let bytes: Vec<(Vec<u8>, Vec<u8>)> = stamps
            .iter()
            .filter_map(|&(key, stamp)| stamp.map(|stamp| (self.key_bytes(key), stamp.bytes())))
            .collect();
        let key = |bytes| self.shards[shard].key(KEYSPACE, bytes);
        let put = |(bytes, value)| Write {
            key: key(bytes),
            kind: WriteKind::Put { value, expiry_ms: 0, kind: Default::default() },
        };
        let writes: Vec<Write<'_>> = bytes.iter().map(|(bytes, value)| put((bytes, value))).collect();
        let (mut next, mut waiting) = (0, Vec::new());
        for _ in 0..10_000 {
            let mut put_off = PutOff::default();
            for number in std::mem::take(&mut waiting) {
                let write: Write<'_> = writes[number];
                let is_behind = put_off.positions.contains(&write.key.position);
                let harness = on(&mut self.shards, shard);
                match if is_behind { None } else { Some(harness.engine.load_put_off(harness.now, &write)) } {
                    Some(Ok(())) => {
                        let seq = harness.engine.applied_seq();
                        self.loaded(shard, stamps[number], seq);
                    }
                    Some(Err(error)) if is_refusal(error.kind()) => {}
                    Some(Err(error)) if error.kind() != ErrorKind::Retry => return Err(error.into()),
                    None | Some(Err(_)) => {
                        put_off.positions.insert(write.key.position);
                        waiting.push(number);
                    }
                }
            }
            let harness = on(&mut self.shards, shard);
            let before = harness.engine.applied_seq();
            match harness.engine.load(harness.now, &writes[next..], &mut put_off) {
                Ok(count) => {
                    waiting.extend(put_off.numbers.iter().map(|number| next + number));
                    let applied = (next..next + count).filter(|number| !waiting.contains(number));
                    let seqs = before + 1..=harness.engine.applied_seq();
                    let applied: Vec<usize> = applied.collect();
                    Violation::unless(seqs.clone().count() == applied.len(), || {
                        format!("{} of {count} puts have got sequences {seqs:?}", applied.len())
                    })?;
                    applied
                        .into_iter()
                        .zip(seqs)
                        .for_each(|(number, seq)| self.loaded(shard, stamps[number], seq));
                    next += count;
                }
                Err(error) if is_refusal(error.kind()) => next = writes.len(),
                Err(error) if error.kind() != ErrorKind::Retry => return Err(error.into()),
                Err(_) => {}
            }
            self.acknowledge();
            if next == writes.len() && waiting.is_empty() {
                return Ok(());
            }
            on(&mut self.shards, shard).turn(Wait::One);
            let others = (0..self.shards.len()).filter(|&other| other != shard);
            others.for_each(|other| on(&mut self.shards, other).turn(Wait::Poll));
        }
        Err(Violation::new(format!("a load into shard {shard} stayed throttled")))
    }

    /// A put of a load was applied.
    fn loaded(&mut self, shard: usize, stamp: (u32, Option<Stamp>), seq: Seq) {
        let batch = self.history.oracle.submit([stamp]);
        self.pending.push(Pending { shard, seq, what: PendingWhat::Batch(batch) });
    }

    /// What each change makes of its key, one after the other.
    fn stamps_of(&mut self, changes: impl Iterator<Item = (u32, Option<u32>)>) -> Vec<(u32, Option<Stamp>)> {
        let mut latest = self.history.oracle.latest();
        let mut stamps = Vec::new();
        for (key, len) in changes {
            self.history.writes += 1;
            let write = self.history.writes;
            let stamp = len.map(|len| match latest.get(&key) {
                Some(old) if len == TOUCH => Stamp { expiry: write, ..*old },
                _ if len == TOUCH => Stamp { write, len: 150, expiry: 0 },
                _ => Stamp { write, len: len.max(4), expiry: 0 },
            });
            match stamp {
                Some(stamp) => latest.insert(key, stamp),
                None => latest.remove(&key),
            };
            stamps.push((key, stamp));
        }
        stamps
    }

    /// The key keeps its value and gets another expiry.
    pub fn touch(&mut self, key: u32) -> Result<bool, Violation> {
        self.write(&[(key, Some(TOUCH))])
    }

    /// One batch over all shards that its keys have. False when it was refused and taken back.
    pub fn write_across(&mut self, changes: &[(u32, Option<u32>)]) -> Result<bool, Violation> {
        let mut parts: BTreeMap<usize, Vec<(u32, Option<Stamp>)>> = BTreeMap::new();
        let mut all = Vec::new();
        for (key, stamp) in self.stamps_of(changes.iter().copied()) {
            parts.entry(self.shard_of(key)).or_default().push((key, stamp));
            all.push((key, stamp));
        }
        if parts.len() == 1 && !all.iter().any(|(_, stamp)| stamp.is_some_and(|stamp| stamp.len >= 5_000)) {
            return self.write(changes);
        }
        // The layer above holds locks from a batch's writes to its decision: what takes a batch back does
        // not bring back what another undecided one has written.
        let is_locked = |keys: &BTreeSet<u32>| changes.iter().any(|(key, _)| keys.contains(key));
        if self.locked.values().any(is_locked) {
            self.sync()?;
        }
        let before = self.history.oracle.latest();
        let batch = self.history.oracle.submit(all);
        self.batches += 1;
        let ticket = BatchTicket::new(self.batches, parts.len() as u16);
        let mut written = Vec::new();
        let mut refused = false;
        for (&shard, changes) in &parts {
            match self.retry(shard, changes, 0, Some((&ticket, false)))? {
                Some(seq) => written.push((shard, seq)),
                None => {
                    refused = true;
                    break;
                }
            }
        }
        if !refused {
            let part = |(shard, seq)| Pending { shard, seq, what: PendingWhat::Part(batch) };
            self.pending.extend(written.into_iter().map(part));
            self.locked.insert(batch, changes.iter().map(|(key, _)| *key).collect());
            self.acknowledge();
            return Ok(true);
        }
        for (shard, _) in written {
            let restored: Vec<_> =
                parts[&shard].iter().map(|(key, _)| (*key, before.get(key).copied())).collect();
            let undone = self.retry(shard, &restored, 0, Some((&ticket, true)))?;
            Violation::unless(undone.is_some(), || "a part could not be taken back".into())?;
        }
        self.history.oracle.refuse(batch);
        self.history.refused += 1;
        self.acknowledge();
        Ok(false)
    }

    /// Batches over several shards that were refused and taken back, in all lives.
    pub fn refused(&self) -> u64 {
        self.history.refused
    }

    pub fn put(&mut self, key: u32, len: u32) -> Result<bool, Violation> {
        self.write(&[(key, Some(len))])
    }

    pub fn delete(&mut self, key: u32) -> Result<bool, Violation> {
        self.write(&[(key, None)])
    }

    /// A key gets a value without expiry, then, in a later write, one that expires soon.
    pub fn put_expiring(&mut self, number: u32, len: u32, in_ms: u64) -> Result<(), Violation> {
        self.put_versions(number, len, &[None, Some(in_ms)])
    }

    /// A key gets one value after the other: without expiry, or one that expires soon. Once it has one of
    /// the latter, nothing more is written.
    pub fn put_versions(&mut self, number: u32, len: u32, versions: &[Option<u64>]) -> Result<(), Violation> {
        self.put_all(number, len, versions, false)
    }

    /// The same with one value, so that only its expiry changes.
    pub fn retime(&mut self, number: u32, len: u32, versions: &[Option<u64>]) -> Result<(), Violation> {
        self.put_all(number, len, versions, true)
    }

    fn put_all(
        &mut self,
        number: u32,
        len: u32,
        versions: &[Option<u64>],
        is_one_value: bool,
    ) -> Result<(), Violation> {
        let key = EXPIRING + number;
        if self.history.expiring.contains_key(&key) {
            return Ok(());
        }
        let shard = self.shard_of(key);
        for in_ms in versions {
            let expiry_ms = in_ms.map_or(0, |in_ms| self.history.now.wall_ms + in_ms);
            self.history.writes += 1;
            let write = if is_one_value { number } else { self.history.writes };
            let stamp = Stamp { write, len, expiry: 0 };
            let Some(seq) = self.write_stamps(shard, &[(key, Some(stamp))], expiry_ms)? else {
                return Ok(());
            };
            if expiry_ms > 0 {
                self.history.expiring.insert(key, (expiry_ms, false));
                self.pending.push(Pending { shard, seq, what: PendingWhat::Expiring(key, expiry_ms) });
            }
        }
        Ok(())
    }

    fn write_stamps(
        &mut self,
        shard: usize,
        changes: &[(u32, Option<Stamp>)],
        expiry_ms: u64,
    ) -> Result<Option<Seq>, Violation> {
        self.retry(shard, changes, expiry_ms, None)
    }

    /// Writes, turning all shards while this one is throttled: it may wait for the others. `part`: the
    /// batch, and whether its part is taken back.
    fn retry(
        &mut self,
        shard: usize,
        changes: &[(u32, Option<Stamp>)],
        expiry_ms: u64,
        part: Option<(&Arc<BatchTicket>, bool)>,
    ) -> Result<Option<Seq>, Violation> {
        let keys: Vec<Vec<u8>> = changes.iter().map(|(key, _)| self.key_bytes(*key)).collect();
        let expiry_of = |stamp: Stamp| match stamp.expiry {
            0 => expiry_ms,
            expiry => FAR_MS + u64::from(expiry),
        };
        let values: Vec<Option<(Vec<u8>, u64)>> =
            changes.iter().map(|(_, stamp)| stamp.map(|stamp| (stamp.bytes(), expiry_of(stamp)))).collect();
        let mut throttled = String::new();
        for _ in 0..10_000 {
            let harness = on(&mut self.shards, shard);
            let writes: Vec<Write<'_>> = keys
                .iter()
                .zip(&values)
                .map(|(key, value)| Write {
                    key: harness.key(KEYSPACE, key),
                    kind: match value {
                        Some((value, expiry_ms)) => {
                            WriteKind::Put { value, expiry_ms: *expiry_ms, kind: Default::default() }
                        }
                        None => WriteKind::Delete,
                    },
                })
                .collect();
            let now = harness.now;
            let engine = &mut harness.engine;
            let written = match part {
                None => engine.write(now, &writes),
                Some((ticket, false)) if ticket.id() % 2 == 0 => {
                    engine.prepare_part(now, &writes).and_then(|write| write(ticket))
                }
                Some((ticket, false)) => engine.write_part(now, &writes, ticket),
                Some((ticket, true)) => engine.undo_part(now, &writes, ticket),
            };
            match written {
                Ok(receipt) => return Ok(Some(receipt.seq)),
                Err(error) if error.kind() == ErrorKind::Retry => {
                    throttled = error.to_string();
                    on(&mut self.shards, shard).turn(Wait::One);
                    let others = (0..self.shards.len()).filter(|&other| other != shard);
                    others.for_each(|other| on(&mut self.shards, other).turn(Wait::Poll));
                }
                Err(error) if is_refusal(error.kind()) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Err(Violation::new(format!("shard {shard} stayed throttled: {throttled}")))
    }

    /// One turn of each shard's driver, without waiting.
    pub fn poll(&mut self) {
        for shard in 0..self.shards.len() {
            on(&mut self.shards, shard).turn(Wait::Poll);
        }
        self.acknowledge();
    }

    /// Turns until nothing is left to do, or `turns` are used up.
    pub fn settle(&mut self, turns: u32) {
        for shard in 0..self.shards.len() {
            on(&mut self.shards, shard).settle(turns);
        }
        self.acknowledge();
    }

    pub fn sync(&mut self) -> Result<(), Violation> {
        for shard in 0..self.shards.len() {
            on(&mut self.shards, shard).sync()?;
        }
        self.acknowledge();
        Violation::unless(self.pending.is_empty(), || "a write is not acknowledged after a sync".into())
    }

    /// Moves the wall clock.
    pub fn advance(&mut self, milliseconds: u64) {
        self.history.now.wall_ms += milliseconds;
        for harness in &mut self.shards {
            harness.now.wall_ms = self.history.now.wall_ms;
        }
    }

    fn acknowledge(&mut self) {
        let decided: Vec<Seq> = self.shards.iter().map(|harness| harness.engine.decided_seq()).collect();
        // Whoever reads a part is answered when its shard calls it decided: one shard's word is enough.
        let parts = self.pending.iter().filter(|pending| pending.seq <= decided[pending.shard]);
        let batches: BTreeSet<u64> = parts
            .filter_map(|pending| match pending.what {
                PendingWhat::Part(batch) => Some(batch),
                PendingWhat::Batch(_) | PendingWhat::Expiring(..) | PendingWhat::Gone(_) => None,
            })
            .collect();
        self.locked.retain(|batch, _| !batches.contains(batch));
        let history = &mut *self.history;
        batches.iter().for_each(|batch| history.oracle.acknowledge(*batch));
        self.pending.retain(|pending| {
            if let PendingWhat::Part(batch) = pending.what {
                return !batches.contains(&batch);
            }
            if pending.seq > decided[pending.shard] {
                return true;
            }
            match pending.what {
                PendingWhat::Batch(batch) => history.oracle.acknowledge(batch),
                PendingWhat::Part(_) => {}
                PendingWhat::Expiring(key, expiry_ms) => {
                    // An earlier version's answer says nothing of the later one's.
                    if let Some(newest) =
                        history.expiring.get_mut(&key).filter(|newest| newest.0 == expiry_ms)
                    {
                        newest.1 = true;
                    }
                }
                PendingWhat::Gone(key) => drop(history.gone.insert(key)),
            }
            false
        });
        history.now.monotonic_us = self
            .shards
            .iter()
            .map(|harness| harness.now.monotonic_us)
            .fold(history.now.monotonic_us, u64::max);
    }

    /// Takes a snapshot of the first shard, or checks the oldest of three and ends it.
    pub fn snapshot_or_check(&mut self) -> Result<(), Violation> {
        let harness = on(&mut self.shards, 0);
        if self.snapshots.len() < 3 {
            let id = harness.engine.snapshot(harness.now)?;
            let mut shown = Shown::new();
            for entry in harness.scan_all(KEYSPACE, 5)? {
                if let Some((meta, value)) = harness.get(KEYSPACE, &entry.key)? {
                    shown.insert(entry.key, (value, meta.expiry_ms));
                }
            }
            self.snapshots.push((id, shown));
            return Ok(());
        }
        let (id, mut shown) = self.snapshots.remove(0);
        let mut walk = || -> tierstone_base::Result<Result<(), Violation>> {
            for entry in harness.scan_all_at(Some(id), KEYSPACE, 5, |_| {})? {
                let found = harness.get_at(id, KEYSPACE, &entry.key)?;
                let value = found.map(|record| (record.value, record.meta.expiry_ms));
                let expected = shown.remove(&entry.key);
                if value != expected {
                    let key = String::from_utf8_lossy(&entry.key).into_owned();
                    return Ok(Err(Violation::new(format!("key {key} at {id:?} is not as it was"))));
                }
            }
            Ok(Violation::unless(shown.is_empty(), || {
                format!("{} keys are not shown at {id:?}", shown.len())
            }))
        };
        let answer = match walk() {
            Err(error) if error.kind() == ErrorKind::SnapshotLost => Ok(()),
            other => other?,
        };
        harness.engine.release_snapshot(id);
        answer
    }

    /// The store still works: it takes a write, makes it durable and gives it back.
    pub fn prove_alive(&mut self) -> Result<(), Violation> {
        if self.put(77, 100)? {
            self.sync()?;
            let expected = self.history.oracle.latest().get(&77).copied();
            let found = self.get(77)?;
            Violation::unless(found == expected, || {
                format!("read {found:?} where {expected:?} was written")
            })?;
        }
        Ok(())
    }
}

fn is_refusal(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NoSpace | ErrorKind::NoMemory | ErrorKind::InvalidInput)
}

/// Random work. Plain data; parts are in percent.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    pub operations: u64,
    pub keys: u64,
    pub value_bytes_max: u64,
    pub batches: u64,
    pub batch_len_max: u64,
    pub deletes: u64,
    pub syncs: u64,
    pub expiring: u64,
    /// Batches over all shards.
    pub across: u64,
    /// Of these, those with a value that is too long for a segment.
    pub refused: u64,
    /// One of so many operations is a settling of everything, so that cleaning gets on.
    pub settle_one_in: u64,
    /// Taking or checking a snapshot.
    pub snapshots: u64,
    /// Beginning a compaction.
    pub compactions: u64,
    /// Of changes, those that leave the value and change its expiry.
    pub touches: u64,
    /// Loads of up to three times as many puts as a batch has changes.
    pub loads: u64,
    /// Walks through everything in the order of the keys, where the keyspace has one.
    pub walks: u64,
}

impl Default for Mix {
    fn default() -> Self {
        Mix {
            operations: 40,
            keys: 12,
            value_bytes_max: 1500,
            batches: 0,
            batch_len_max: 6,
            deletes: 20,
            syncs: 10,
            expiring: 0,
            across: 0,
            refused: 0,
            settle_one_in: 0,
            snapshots: 0,
            compactions: 0,
            touches: 0,
            loads: 0,
            walks: 0,
        }
    }
}

impl Mix {
    /// Does the work, then shows that the store is alive.
    pub fn work(self, world: &mut World<'_>, life: u32, choices: &Choices) -> Result<(), Violation> {
        let mut random = SeededRandom::new(choices.choose_seed("work"));
        let operations = if life == 0 { self.operations } else { self.operations / 3 };
        for _ in 0..operations {
            self.operation(world, &mut random)?;
        }
        if life > 0 || random.chance(0.5) { world.prove_alive() } else { Ok(()) }
    }

    fn operation(self, world: &mut World<'_>, random: &mut SeededRandom) -> Result<(), Violation> {
        let key = |random: &mut SeededRandom| random.below(self.keys) as u32;
        let len = |random: &mut SeededRandom| 4 + random.below(self.value_bytes_max) as u32;
        let change = |random: &mut SeededRandom| {
            if self.touches > 0 && random.below(100) < self.touches {
                return (key(random), Some(TOUCH));
            }
            let value = (random.below(100) >= self.deletes).then(|| len(random));
            (key(random), value)
        };
        if self.snapshots > 0 && random.below(100) < self.snapshots {
            world.snapshot_or_check()?;
        }
        if self.compactions > 0 && random.below(100) < self.compactions {
            // Busy or not: a compaction is under way then.
            let _ = world.shards[0].engine.begin_compact();
        }
        if self.walks > 0 && random.below(100) < self.walks {
            world.walk()?;
        }
        if self.across > 0 && random.below(100) < self.across {
            let count = 2 + random.below(self.batch_len_max);
            let mut changes: Vec<_> = (0..count).map(|_| change(random)).collect();
            if self.refused > 0 && random.below(100) < self.refused {
                changes[0].1 = Some(5_000);
            }
            world.write_across(&changes)?;
        } else if random.below(100) < self.expiring {
            let number = random.below(400) as u32;
            if self.touches == 0 {
                world.put_expiring(number, len(random), 1 + random.below(50))?;
            } else {
                let first = (random.below(2) == 0).then(|| 1 + random.below(50));
                world.retime(number, 120 + len(random), &[first, Some(1 + random.below(50))])?;
            }
            world.advance(random.below(20));
        } else if self.loads > 0 && random.below(100) < self.loads {
            let count = 1 + random.below(3 * self.batch_len_max);
            let puts: Vec<_> = (0..count).map(|_| (key(random), len(random))).collect();
            world.load(&puts)?;
        } else if random.below(100) < self.batches {
            let count = 2 + random.below(self.batch_len_max);
            let changes: Vec<_> = (0..count).map(|_| change(random)).collect();
            world.write(&changes)?;
        } else {
            world.write(&[change(random)])?;
        }
        if random.below(100) < self.syncs {
            world.sync()?;
        } else if random.chance(0.6) {
            world.poll();
        }
        if self.settle_one_in > 0 && random.below(self.settle_one_in) == 0 {
            world.settle(60);
        }
        Ok(())
    }
}
