//! Runs stores through their lives in one persistent memory: work, loss of power before any store, write-back or
//! fence, recovery (which may be cut too), check, work again.

use super::{
    Place, Store, always_checkpoint, keyspaces, machine_of, make_with_logs_from, open_all, small_settings,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::Unbounded;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tierstone_base::{Error, ErrorKind, KeyspaceId, Now, SeededRandom, Seq};
use tierstone_crash::{
    Choices, DurableOrder, ExploreSettings, Mutations, Oracle, Report, Violation, assert_caught, explore,
    sampled_runs, sampled_seed,
};
use tierstone_engine::backup::PieceKind;
use tierstone_engine::{
    BackupCut, BackupPiece, BackupRecords, BackupStep, BatchTicket, Direction, Durability, Engine, Health,
    SnapshotId, Write, WriteKind,
};
use tierstone_media::Wait;
use tierstone_media::sim::{CutPoints, PowerCut, SimMachine, set_processor};
use tierstone_pmstore::check::{CheckSettings, check};
use tierstone_pmstore::{Geometry, OpenSettings, ShardSettings};

/// What a scenario needs besides its work. Plain data.
#[derive(Clone, Debug)]
pub struct Plan {
    pub open: OpenSettings,
    /// Bytes of persistent memory.
    pub bytes: u64,
    /// Lives; after the last one the store is opened and checked once more.
    pub lives: u32,
    /// Power is lost within so many steps of a life, if it is.
    pub steps: u64,
    /// Of lives, the part in percent after which the process dies and the machine does not.
    pub kill_percent: u64,
    /// The region is checked before each opening: what a crash leaves is no damage.
    pub checks: bool,
    /// The number at which logs begin, where it is not the first one.
    pub logs_from: Option<u32>,
}

impl Plan {
    /// Blocks of 2 KiB, a log of three short segments.
    pub fn new(bytes: u64) -> Plan {
        let geometry = Geometry { segment_bytes: 8 << 10, block_bytes: 2 << 10, log_segments: 3 };
        let shard =
            ShardSettings { clean_below_blocks: 4, write_back_step_bytes: 1 << 10, ..Default::default() };
        let open = OpenSettings { geometry, shard, keyspaces: keyspaces(), ..small_settings() };
        Plan { open, bytes, lives: 3, steps: 500, kill_percent: 10, checks: true, logs_from: None }
    }

    /// The same with checkpoints of the index, one after the other.
    pub fn checkpointed(mut self) -> Plan {
        always_checkpoint(&mut self.open.shard);
        self
    }

    /// The same with rules broken.
    pub fn mutated(mut self, mutations: &Mutations) -> Plan {
        (self.open.mutations, self.checks) = (mutations.clone(), false);
        self
    }

    pub fn explore<const UNIT: usize>(&self, settings: ExploreSettings, mix: &Mix) -> Report {
        explore(settings, |choices| self.run::<UNIT>(choices, mix))
    }

    fn run<const UNIT: usize>(&self, choices: &Choices, mix: &Mix) -> Result<(), Violation> {
        let machine = machine_of::<UNIT>(self.bytes, choices);
        if let Some(first) = self.logs_from {
            make_with_logs_from(&machine, &self.open, first);
        }
        let order = if self.open.shard_count == 1 { DurableOrder::Prefix } else { DurableOrder::Any };
        let mut history = History::new(order);
        for life in 0..=self.lives {
            let is_last = life == self.lives;
            let is_cut = !is_last && choices.choose(4, "power is lost in this life") != 0;
            let within = PowerCut::Within { points: CutPoints::Every, last: self.steps };
            machine.set_power_cut(if is_cut { within } else { PowerCut::Never });
            let mix = (!is_last).then_some(mix);
            let lived = catch_unwind(AssertUnwindSafe(|| self.live(&machine, &mut history, choices, mix)));
            // Whatever went wrong without power, nobody was told, and no processor came so far: stores are lost and what
            // is read is old.
            match lived {
                Ok(Ok(())) => {}
                _ if machine.power_is_off() => {}
                Ok(Err(violation)) => return Err(violation),
                Err(panic) => resume_unwind(panic),
            }
            machine.set_power_cut(PowerCut::Never);
            let is_kill =
                !machine.power_is_off() && choices.choose(100, "the process dies") < self.kill_percent;
            if is_kill {
                machine.kill_process()
            } else {
                machine.power_on_after_loss()
            };
        }
        Ok(())
    }

    /// No check calls what is there damaged; where nothing is there yet, it says so.
    fn check<const UNIT: usize>(&self, machine: &SimMachine<UNIT>) -> Result<(), Violation> {
        let settings = CheckSettings { base: self.open.base, ..CheckSettings::default() };
        match check(Place::region(machine), &settings, &mut |_| {}) {
            Ok(report) => Violation::unless(!report.is_damaged(), || format!("{:?}", report.findings)),
            Err(error) => Violation::unless(error.kind() == ErrorKind::InvalidInput, || error.to_string()),
        }
    }

    fn live<const UNIT: usize>(
        &self,
        machine: &SimMachine<UNIT>,
        history: &mut History,
        choices: &Choices,
        mix: Option<&Mix>,
    ) -> Result<(), Violation> {
        if self.checks && !machine.power_is_off() {
            self.check(machine)?;
        }
        let (stores, ..) = open_all(machine, &self.open)?;
        let mut world = World::new(stores, history);
        world.check(machine)?;
        match mix {
            Some(mix) => world.work(mix, &mut SeededRandom::new(choices.choose_seed("work"))),
            None => Ok(()),
        }
    }
}

/// What is done in a life. Parts are in percent.
#[derive(Clone, Debug)]
pub struct Mix {
    pub operations: u32,
    /// How many different keys there are; odd ones lie in the ordered keyspace 1, the others in 2.
    pub keys: u32,
    pub value_bytes: u64,
    pub batches: u64,
    pub deletes: u64,
    /// A step after an operation.
    pub steps: u64,
    /// A snapshot is taken, or one is released.
    pub snapshots: u64,
    /// Changes of the mode.
    pub switches: u64,
    /// A backup of a shard is begun, or goes on.
    pub backups: u64,
    /// Backups that came to their end.
    pub whole_backups: Arc<AtomicU64>,
}

impl Default for Mix {
    fn default() -> Self {
        Mix {
            operations: 24,
            keys: 10,
            value_bytes: 300,
            batches: 25,
            deletes: 25,
            steps: 60,
            snapshots: 0,
            switches: 0,
            backups: 0,
            whole_backups: Arc::default(),
        }
    }
}

/// What made a value, and its length; the bytes follow.
type Stamp = (u32, u32);

fn bytes_of((write, len): Stamp) -> Vec<u8> {
    let bytes = write.to_le_bytes();
    (0..len as usize).map(|at| bytes[at % 4] ^ (at >> 2) as u8).collect()
}

fn keyspace(key: u32) -> KeyspaceId {
    KeyspaceId(if key % 2 == 1 { 1 } else { 2 })
}

/// Some keys are longer than records hold. Their values lie in overflow blocks with them.
fn name(key: u32) -> Vec<u8> {
    let mut name = format!("k{key}").into_bytes();
    if key % 5 == 3 {
        name.resize(300, b'x');
    }
    name
}

/// What is known over all lives.
pub struct History {
    oracle: Oracle<u32, Stamp>,
    writes: u32,
    batches: u64,
    now: Now,
}

impl History {
    pub fn new(order: DurableOrder) -> Self {
        let now = Now { monotonic_us: 1_000, wall_ms: 1_700_000_000_000 };
        History { oracle: Oracle::new(order), writes: 0, batches: 0, now }
    }
}

/// A write that is not acknowledged.
struct Pending {
    engine: usize,
    seq: Seq,
    batch: u64,
}

/// One life.
pub struct World<'h> {
    pub stores: Vec<Store>,
    history: &'h mut History,
    pending: Vec<Pending>,
    locked: BTreeMap<u64, BTreeSet<u32>>,
    backup: Option<Backup>,
}

/// Values by keyspace and key.
type Shown = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

/// A backup of a shard under way: what it has to show, and what came of it.
struct Backup {
    shard: usize,
    cut: BackupCut,
    expected: Shown,
    found: Shown,
}

impl Backup {
    fn take(&mut self, piece: &BackupPiece) -> Result<(), Violation> {
        if piece.kind == PieceKind::Parts {
            return Ok(());
        }
        let mut records = BackupRecords::new(&piece.bytes);
        for record in records.by_ref() {
            let twin = self.found.insert((record.keyspace.0, record.key.to_vec()), record.value.to_vec());
            Violation::unless(twin.is_none(), || format!("{:?} came twice", record.key))?;
        }
        Violation::unless(!records.is_damaged(), || "a piece of a backup is damaged".to_owned())
    }

    /// A whole one shows its cut, and nothing that a loss of power could take back.
    fn check(&self, decided: Seq) -> Result<(), Violation> {
        Violation::unless(decided >= self.cut.seq, || {
            format!("a whole backup shows up to {}, and only {decided} is decided", self.cut.seq)
        })?;
        let all: BTreeSet<_> = self.found.keys().chain(self.expected.keys()).collect();
        let wrong = all.into_iter().find(|place| self.found.get(place) != self.expected.get(place));
        Violation::unless(wrong.is_none(), || {
            let told = |shown: &Shown| wrong.and_then(|place| shown.get(place)).map(|value| value.len());
            let (found, expected) = (told(&self.found), told(&self.expected));
            format!("a backup shows {wrong:?} with {found:?} bytes, at its cut it had {expected:?}")
        })
    }
}

impl<'h> World<'h> {
    pub fn new(mut stores: Vec<Store>, history: &'h mut History) -> Self {
        stores.iter_mut().for_each(|store| store.now = history.now);
        World { stores, history, pending: Vec::new(), locked: BTreeMap::new(), backup: None }
    }

    /// A shard, to do something on its processor.
    fn at(&mut self, shard: usize) -> &mut Store {
        set_processor(shard as u32 + 1);
        &mut self.stores[shard]
    }

    fn engine_of(&self, key: u32) -> usize {
        let position = self.stores[0].key(keyspace(key), &name(key)).position;
        usize::from(position.shard(self.stores.len() as u16))
    }

    /// What the store holds is what the history allows; afterwards it is the history.
    pub fn check<const UNIT: usize>(&mut self, machine: &SimMachine<UNIT>) -> Result<(), Violation> {
        let mut contents = BTreeMap::new();
        let keys: BTreeSet<u32> = self.history.oracle.keys().into_iter().copied().collect();
        for key in keys {
            let engine = self.engine_of(key);
            let Some((_, value)) = self.at(engine).get(keyspace(key), &name(key))? else { continue };
            let first: [u8; 4] = std::array::from_fn(|at| value.get(at).copied().unwrap_or(0));
            let stamp = (u32::from_le_bytes(first), value.len() as u32);
            Violation::unless(bytes_of(stamp) == value, || format!("the value of key {key} is not whole"))?;
            contents.insert(key, stamp);
        }
        self.check_walks(&contents)?;
        self.history.oracle.check_contents(&contents)?;
        if !machine.power_is_off() {
            self.history.oracle.settle(contents);
        }
        Ok(())
    }

    /// Walks and ranges give the keys that gets give.
    fn check_walks(&mut self, contents: &BTreeMap<u32, Stamp>) -> Result<(), Violation> {
        for id in [1, 2] {
            let own = contents.keys().filter(|&&key| keyspace(key).0 == id);
            let expected: BTreeSet<Vec<u8>> = own.map(|&key| name(key)).collect();
            let (mut walked, mut ranged) = (BTreeSet::new(), BTreeSet::new());
            for shard in 0..self.stores.len() {
                let store = self.at(shard);
                walked.extend(store.scan_all(KeyspaceId(id), 3)?.into_iter().map(|entry| entry.key));
                if id == 1 {
                    let all = store.range_all(KeyspaceId(1), Unbounded, Unbounded, 4, Direction::Forward)?;
                    ranged.extend(all.into_iter().map(|entry| entry.key));
                }
            }
            Violation::unless(walked == expected && (id != 1 || ranged == expected), || {
                format!("{expected:?} are in keyspace {id}, a walk gives {walked:?}, a range {ranged:?}")
            })?;
        }
        Ok(())
    }

    pub fn work(&mut self, mix: &Mix, random: &mut SeededRandom) -> Result<(), Violation> {
        for _ in 0..mix.operations {
            let count = if random.below(100) < mix.batches { 2 + random.below(5) } else { 1 };
            let change = |random: &mut SeededRandom| {
                let is_put = random.below(100) >= mix.deletes;
                let len = is_put.then(|| 4 + random.below(mix.value_bytes) as u32);
                (random.below(u64::from(mix.keys)) as u32, len)
            };
            let changes: Vec<_> = (0..count).map(|_| change(random)).collect();
            self.write(&changes)?;
            // Mixes without them draw no numbers for them.
            if mix.snapshots > 0 && random.below(100) < mix.snapshots {
                self.snapshot(random);
            }
            if mix.switches > 0 && random.below(100) < mix.switches {
                self.switch(random)?;
            }
            if mix.backups > 0 && random.below(100) < mix.backups {
                self.back_up(mix, random)?;
            }
            if random.below(20) == 0 {
                self.sync()?;
            } else if random.below(100) < mix.steps {
                match self.stores.len() {
                    1 => self.turn(),
                    // One shard is ahead of the other.
                    stores => {
                        self.at(random.below(stores as u64) as usize).turn(Wait::Poll);
                        self.acknowledge();
                    }
                }
            }
        }
        self.end_backup(mix)?;
        if random.chance(0.5) { self.sync() } else { Ok(()) }
    }

    /// What a shard holds.
    fn shown(&mut self, shard: usize) -> Result<Shown, Violation> {
        let store = self.at(shard);
        let mut shown = Shown::new();
        for keyspace in [KeyspaceId(1), KeyspaceId(2)] {
            for entry in store.scan_all(keyspace, 9)? {
                if let Some((_, value)) = store.get(keyspace, &entry.key)? {
                    shown.insert((keyspace.0, entry.key), value);
                }
            }
        }
        Ok(shown)
    }

    /// Begins a backup of a shard, or takes what has been read of the one under way.
    fn back_up(&mut self, mix: &Mix, random: &mut SeededRandom) -> Result<(), Violation> {
        if let Some(backup) = self.backup.take() {
            return self.take_backup(backup, mix);
        }
        let shard = random.below(self.stores.len() as u64) as usize;
        let expected = self.shown(shard)?;
        let store = self.at(shard);
        let cut = store.engine.begin_backup(store.now, None)?;
        self.backup = Some(Backup { shard, cut, expected, found: Shown::new() });
        Ok(())
    }

    fn take_backup(&mut self, mut backup: Backup, mix: &Mix) -> Result<(), Violation> {
        let engine = &mut self.at(backup.shard).engine;
        loop {
            match engine.take_backup() {
                Ok(BackupStep::Piece(piece)) => backup.take(&piece)?,
                Ok(BackupStep::Later) => break self.backup = Some(backup),
                Ok(BackupStep::End) => {
                    engine.end_backup();
                    backup.check(engine.decided_seq())?;
                    mix.whole_backups.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                // A full store has given it up.
                Err(error) if error.kind() == ErrorKind::SnapshotLost => break engine.end_backup(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The backup under way comes to its end, beside nothing.
    fn end_backup(&mut self, mix: &Mix) -> Result<(), Violation> {
        for _ in 0..400 {
            let Some(backup) = self.backup.take() else { return Ok(()) };
            self.turn();
            self.check_health()?;
            self.take_backup(backup, mix)?;
        }
        Violation::unless(self.backup.is_none(), || "a backup never comes to its end".to_owned())
    }

    /// Takes a snapshot of a shard, or releases one.
    fn snapshot(&mut self, random: &mut SeededRandom) {
        let chosen = random.below(self.stores.len() as u64) as usize;
        let store = self.at(chosen);
        match random.below(3) {
            0 => store.engine.release_snapshot(SnapshotId(1 + random.below(6))),
            _ => drop(store.engine.snapshot(store.now)),
        }
    }

    /// Changes the mode of all shards; from the relaxed one, waits for what the switch promises.
    fn switch(&mut self, random: &mut SeededRandom) -> Result<(), Violation> {
        let modes = [Durability::Sync, Durability::Group { interval_ms: 60_000 }, Durability::Relaxed];
        let mode = modes[random.below(3) as usize];
        let mut named = Vec::new();
        for shard in 0..self.stores.len() {
            let store = self.at(shard);
            named.push(store.engine.set_durability(store.now, Durability::Relaxed));
            store.engine.set_durability(store.now, mode);
        }
        if mode == Durability::Relaxed || !random.chance(0.5) {
            return Ok(());
        }
        for _ in 0..500 {
            let mut all = self.stores.iter().zip(&named);
            if all.all(|(store, &seq)| store.engine.decided_seq() >= seq) {
                return Ok(());
            }
            self.turn();
            self.check_health()?;
        }
        Err(Violation::new(format!("nothing is durable of what a switch to {mode:?} promised: {named:?}")))
    }

    /// One batch, on one engine or over several; refused when there is no space.
    fn write(&mut self, changes: &[(u32, Option<u32>)]) -> Result<(), Violation> {
        if self.locked.values().any(|keys| changes.iter().any(|(key, _)| keys.contains(key))) {
            self.sync()?;
        }
        let mut parts: BTreeMap<usize, Vec<(u32, Option<Stamp>)>> = BTreeMap::new();
        let mut all = Vec::new();
        for &(key, len) in changes {
            self.history.writes += 1;
            let stamp = len.map(|len| (self.history.writes, len));
            parts.entry(self.engine_of(key)).or_default().push((key, stamp));
            all.push((key, stamp));
        }
        if !self.admit(&parts)? {
            return Ok(());
        }
        let batch = self.history.oracle.submit(all);
        self.history.batches += 1;
        let ticket = BatchTicket::new(self.history.batches, parts.len() as u16);
        let is_across = parts.len() > 1;
        for (&engine, part) in &parts {
            let decided = self.stores[engine].engine.decided_seq();
            let receipt = with_writes(self.at(engine), part, |store, writes| match is_across {
                false => store.engine.write(store.now, writes),
                true => store.engine.write_part(store.now, writes, &ticket),
            })?;
            if receipt.seq <= decided && !is_across {
                // It deleted nothing, which says nothing of what came before it.
                self.history.oracle.refuse(batch);
                return Ok(());
            }
            self.pending.push(Pending { engine, seq: receipt.seq, batch });
        }
        if is_across {
            self.locked.insert(batch, changes.iter().map(|(key, _)| *key).collect());
        }
        self.acknowledge();
        Ok(())
    }

    /// Turns until every engine would take its part; whether there is space.
    fn admit(&mut self, parts: &BTreeMap<usize, Vec<(u32, Option<Stamp>)>>) -> Result<bool, Violation> {
        for _ in 0..2_000 {
            let mut is_ready = true;
            for (&engine, part) in parts {
                let store = self.at(engine);
                match with_writes(store, part, |store, writes| store.engine.admit(store.now, writes)) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::Retry => is_ready = false,
                    Err(error) if error.kind() == ErrorKind::NoSpace => return Ok(false),
                    Err(error) => return Err(error.into()),
                }
            }
            if is_ready {
                return Ok(true);
            }
            self.turn();
            self.check_health()?;
        }
        Err(Violation::new("an engine stayed throttled".to_owned()))
    }

    fn check_health(&self) -> Result<(), Violation> {
        for store in &self.stores {
            if let Health::Failed(error) = store.engine.health() {
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn turn(&mut self) {
        (0..self.stores.len()).for_each(|shard| self.at(shard).turn(Wait::Poll));
        self.acknowledge();
    }

    fn sync(&mut self) -> Result<(), Violation> {
        for shard in 0..self.stores.len() {
            self.at(shard).sync()?;
        }
        self.turn();
        self.check_health()?;
        Violation::unless(self.pending.is_empty(), || "a write is not decided after a sync".to_owned())
    }

    /// Tells the oracle what is decided; of a batch over several engines one engine's word is enough.
    fn acknowledge(&mut self) {
        let decided: Vec<Seq> = self.stores.iter().map(|store| store.engine.decided_seq()).collect();
        let is_decided = |pending: &&Pending| pending.seq <= decided[pending.engine];
        let batches: BTreeSet<u64> =
            self.pending.iter().filter(is_decided).map(|pending| pending.batch).collect();
        self.pending.retain(|pending| !batches.contains(&pending.batch));
        self.locked.retain(|batch, _| !batches.contains(batch));
        batches.iter().for_each(|batch| self.history.oracle.acknowledge(*batch));
        let latest = self.stores.iter().map(|store| store.now.monotonic_us).max();
        self.history.now.monotonic_us = self.history.now.monotonic_us.max(latest.unwrap_or(0));
    }
}

/// Calls `call` with the writes that make `changes`.
fn with_writes<T>(
    store: &mut Store,
    changes: &[(u32, Option<Stamp>)],
    call: impl FnOnce(&mut Store, &[Write<'_>]) -> Result<T, Error>,
) -> Result<T, Error> {
    let owned: Vec<_> =
        changes.iter().map(|(key, stamp)| (keyspace(*key), name(*key), stamp.map(bytes_of))).collect();
    let writes: Vec<Write<'_>> = owned
        .iter()
        .map(|(keyspace, key, value)| Write {
            key: store.key(*keyspace, key),
            kind: match value {
                Some(value) => WriteKind::Put { value, expiry_ms: 0, kind: Default::default() },
                None => WriteKind::Delete,
            },
        })
        .collect();
    call(store, &writes)
}

/// Explores `mix` sampled, on words and on lines.
#[track_caller]
#[expect(clippy::print_stdout, reason = "the counts belong in the output of the test")]
pub fn sampled(name: &str, own_seed: u64, default_runs: u64, plan: &Plan, mix: &Mix) {
    let runs = sampled_runs(default_runs).div_ceil(2);
    let words = plan.explore::<8>(ExploreSettings::random(sampled_seed(own_seed), runs), mix).assert_clean();
    let lines =
        plan.explore::<64>(ExploreSettings::random(sampled_seed(own_seed + 1), runs), mix).assert_clean();
    println!("{name}: words: {words}; lines: {lines}");
}

/// Explores `mix` with the rule `name` switched off; it must be caught within `runs`.
#[track_caller]
#[expect(clippy::print_stdout, reason = "the counts belong in the output of the test")]
pub fn caught(name: &'static str, plan: &Plan, runs: u64, mix: &Mix) {
    let explored = |plan: &Plan, runs| {
        let settings = ExploreSettings { max_minimise_runs: 20, ..ExploreSettings::random(4711, runs) };
        plan.explore::<8>(settings, mix)
    };
    let mutated = plan.clone().mutated(&Mutations::one(name));
    let report = assert_caught(name, || explored(&mutated, runs));
    let tried = report.found.map_or(runs, |found| found.run + 1);
    println!("{name} is caught in run {tried}");
    explored(plan, tried).assert_clean();
}
