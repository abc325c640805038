//! The suite over losses of power: random work on engines of one store, power lost at any point of it and
//! of recovery, and after each loss the contract's second invariant.

use crate::batch::BatchTicket;
use crate::contract::{Direction, Durability, Engine, Write, WriteKind};
use crate::harness::Harness;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::Unbounded;
use std::sync::Arc;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Now, SeededRandom, Seq};
use tierstone_crash::{Choices, DurableOrder, ExploreSettings, Oracle, Report, Violation, explore};
use tierstone_media::Wait;
use tierstone_media::sim::{SimDevice, SimMedium, SimSettings};

/// What a run does. Parts are in percent.
#[derive(Clone, Debug)]
pub struct CrashSettings {
    /// The medium, and where power is lost.
    pub sim: SimSettings,
    /// Operations of the first life; the later ones do a third.
    pub operations: u32,
    /// How many different keys there are; odd ones lie in the ordered keyspace 1, the others in 2.
    pub keys: u32,
    /// The longest value in bytes.
    pub value_bytes: u64,
    /// Batches of several changes; over several engines, if the store has them.
    pub batches: u64,
    /// Changes of the mode.
    pub switches: u64,
}

impl CrashSettings {
    /// A mix of everything on such a medium.
    pub fn new(sim: SimSettings) -> Self {
        CrashSettings { sim, operations: 30, keys: 14, value_bytes: 900, batches: 40, switches: 10 }
    }
}

/// Opens the engines of a store on what a medium holds; keyspace 1 is ordered. Handles of more devices come
/// from the medium.
pub type OpenStore<'a, E> = &'a dyn Fn(SimDevice, &SimMedium) -> Result<Vec<Harness<E, SimDevice>>, Error>;

/// Explores random work with losses of power: what was acknowledged is there afterwards, the rest is there
/// in order, batches whole, and nothing else; also when the mode changed meanwhile.
pub fn acknowledged_writes_survive_crashes<E: Engine>(
    settings: &CrashSettings,
    exploring: ExploreSettings,
    open: OpenStore<'_, E>,
) -> Report {
    explore(exploring, |choices| {
        let medium = SimMedium::new(settings.sim.clone(), choices);
        let mut history = None;
        medium.run_lives(|device, life| {
            let engines = open(device, &medium)?;
            let order = if engines.len() == 1 { DurableOrder::Prefix } else { DurableOrder::Any };
            let history = history.get_or_insert_with(|| History::new(order));
            let mut life_now = Life::new(settings, engines, history);
            life_now.check()?;
            life_now.work(life, choices)
        })
    })
}

/// What made a value, and its length; the bytes follow.
type Stamp = (u32, u32);

fn bytes_of((write, len): Stamp) -> Vec<u8> {
    let bytes = write.to_le_bytes();
    (0..len as usize).map(|at| bytes[at % 4] ^ (at >> 2) as u8).collect()
}

/// What is known over all lives.
struct History {
    oracle: Oracle<u32, Stamp>,
    writes: u32,
    batches: u64,
    now: Now,
}

impl History {
    fn new(order: DurableOrder) -> Self {
        let now = Now { monotonic_us: 1_000, wall_ms: 1_700_000_000_000 };
        History { oracle: Oracle::new(order), writes: 0, batches: 0, now }
    }
}

/// Writes that are not acknowledged: the engine, the sequence there, the oracle's batch.
struct Pending {
    engine: usize,
    seq: Seq,
    batch: u64,
}

/// One life of the store.
struct Life<'a, E> {
    settings: &'a CrashSettings,
    engines: Vec<Harness<E, SimDevice>>,
    history: &'a mut History,
    pending: Vec<Pending>,
    /// Keys of batches over several engines that are not decided: nobody may follow from them.
    locked: BTreeMap<u64, BTreeSet<u32>>,
}

fn keyspace(key: u32) -> KeyspaceId {
    KeyspaceId(if key % 2 == 1 { 1 } else { 2 })
}

fn name(key: u32) -> Vec<u8> {
    format!("k{key}").into_bytes()
}

impl<'a, E: Engine> Life<'a, E> {
    fn new(
        settings: &'a CrashSettings,
        mut engines: Vec<Harness<E, SimDevice>>,
        history: &'a mut History,
    ) -> Self {
        engines.iter_mut().for_each(|harness| harness.now = history.now);
        Life { settings, engines, history, pending: Vec::new(), locked: BTreeMap::new() }
    }

    fn engine_of(&self, key: u32) -> usize {
        let position = self.engines[0].key(keyspace(key), &name(key)).position;
        usize::from(position.shard(self.engines.len() as u16))
    }

    /// What the store holds is what the history allows; afterwards it is the history.
    fn check(&mut self) -> Result<(), Violation> {
        let mut contents = BTreeMap::new();
        for key in 0..self.settings.keys {
            let engine = self.engine_of(key);
            let Some((_, value)) = self.engines[engine].get(keyspace(key), &name(key))? else { continue };
            let first: [u8; 4] = std::array::from_fn(|at| value.get(at).copied().unwrap_or(0));
            let stamp = (u32::from_le_bytes(first), value.len() as u32);
            Violation::unless(bytes_of(stamp) == value, || format!("the value of key {key} is not whole"))?;
            contents.insert(key, stamp);
        }
        self.check_walks(&contents)?;
        self.history.oracle.check_contents(&contents)?;
        self.history.oracle.settle(contents);
        Ok(())
    }

    /// Walks and ranges give the keys that gets give.
    fn check_walks(&mut self, contents: &BTreeMap<u32, Stamp>) -> Result<(), Violation> {
        for id in [1, 2] {
            let expected: BTreeSet<Vec<u8>> =
                contents.keys().filter(|&&key| keyspace(key).0 == id).map(|&key| name(key)).collect();
            let (mut walked, mut ranged) = (BTreeSet::new(), BTreeSet::new());
            for harness in &mut self.engines {
                walked.extend(harness.scan_all(KeyspaceId(id), 3)?.into_iter().map(|entry| entry.key));
                if id == 1 {
                    let all =
                        harness.range_all(KeyspaceId(1), Unbounded, Unbounded, 4, Direction::Forward)?;
                    ranged.extend(all.into_iter().map(|entry| entry.key));
                }
            }
            Violation::unless(walked == expected && (id != 1 || ranged == expected), || {
                format!("{expected:?} are in keyspace {id}, a walk gives {walked:?}, a range {ranged:?}")
            })?;
        }
        Ok(())
    }

    fn work(&mut self, life: u32, choices: &Choices) -> Result<(), Violation> {
        let mut random = SeededRandom::new(choices.choose_seed("work"));
        let operations = self.settings.operations / if life == 0 { 1 } else { 3 };
        for _ in 0..operations {
            let count = if random.below(100) < self.settings.batches { 2 + random.below(5) } else { 1 };
            let change = |random: &mut SeededRandom| {
                let len = (!random.chance(0.2)).then(|| 4 + random.below(self.settings.value_bytes) as u32);
                (random.below(u64::from(self.settings.keys)) as u32, len)
            };
            let changes: Vec<_> = (0..count).map(|_| change(&mut random)).collect();
            self.write(&changes)?;
            if random.below(100) < self.settings.switches {
                self.switch(&mut random)?;
            }
            match random.below(10) {
                0 => self.sync()?,
                1..7 => self.turn(Wait::Poll),
                _ => {}
            }
        }
        if random.chance(0.5) { self.sync() } else { Ok(()) }
    }

    /// Changes the mode of all engines; from the relaxed one, waits for what the switch promises.
    fn switch(&mut self, random: &mut SeededRandom) -> Result<(), Violation> {
        let modes = [Durability::Sync, Durability::Group { interval_ms: 60_000 }, Durability::Relaxed];
        let mode = modes[random.below(3) as usize];
        let mut named = Vec::new();
        for harness in &mut self.engines {
            named.push(harness.engine.set_durability(harness.now, Durability::Relaxed));
            harness.engine.set_durability(harness.now, mode);
        }
        if mode == Durability::Relaxed || !random.chance(0.5) {
            return Ok(());
        }
        for _ in 0..500 {
            let mut all = self.engines.iter().zip(&named);
            if all.all(|(harness, &seq)| harness.engine.decided_seq() >= seq) {
                return Ok(());
            }
            self.turn(Wait::One);
            self.check_health()?;
        }
        Err(Violation::new(format!("nothing is durable of what a switch to {mode:?} promised: {named:?}")))
    }

    fn check_health(&self) -> Result<(), Violation> {
        for harness in &self.engines {
            if let crate::contract::Health::Failed(error) = harness.engine.health() {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// One batch, on one engine or over several.
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
        self.admit(&parts)?;
        let batch = self.history.oracle.submit(all);
        self.history.batches += 1;
        let ticket = BatchTicket::new(self.history.batches, parts.len() as u16);
        let is_across = parts.len() > 1;
        for (&engine, part) in &parts {
            let seq = self.apply(engine, part, is_across.then_some(&ticket))?;
            self.pending.push(Pending { engine, seq, batch });
        }
        if is_across {
            self.locked.insert(batch, changes.iter().map(|(key, _)| *key).collect());
        }
        self.acknowledge();
        Ok(())
    }

    /// Turns until every engine would take its part.
    fn admit(&mut self, parts: &BTreeMap<usize, Vec<(u32, Option<Stamp>)>>) -> Result<(), Violation> {
        for _ in 0..10_000 {
            let mut is_ready = true;
            for (&engine, part) in parts {
                let harness = &mut self.engines[engine];
                match with_writes(harness, part, |harness, writes| harness.engine.admit(harness.now, writes))
                {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::Retry => is_ready = false,
                    Err(error) => return Err(error.into()),
                }
            }
            if is_ready {
                return Ok(());
            }
            self.turn(Wait::One);
            // What waits for company elsewhere may be what this one waits for.
            for harness in &mut self.engines {
                let due_us = harness.engine.next_step_at_us().unwrap_or(0);
                harness.now.monotonic_us = harness.now.monotonic_us.max(due_us);
            }
            self.check_health()?;
        }
        Err(Violation::new("an engine stayed throttled".to_owned()))
    }

    fn apply(
        &mut self,
        engine: usize,
        part: &[(u32, Option<Stamp>)],
        ticket: Option<&Arc<BatchTicket>>,
    ) -> Result<Seq, Violation> {
        let receipt = with_writes(&mut self.engines[engine], part, |harness, writes| match ticket {
            None => harness.engine.write(harness.now, writes),
            Some(ticket) if ticket.id() % 2 == 0 => harness.engine.prepare_part(harness.now, writes)?(ticket),
            Some(ticket) => harness.engine.write_part(harness.now, writes, ticket),
        })?;
        Ok(receipt.seq)
    }

    fn turn(&mut self, wait: Wait) {
        self.engines.iter_mut().for_each(|harness| harness.turn(wait));
        self.acknowledge();
    }

    fn sync(&mut self) -> Result<(), Violation> {
        for harness in &mut self.engines {
            harness.sync()?;
        }
        // What engines tell each other of batches takes a step more.
        self.turn(Wait::Poll);
        Violation::unless(self.pending.is_empty(), || "a write is not decided after a sync".to_owned())
    }

    /// Tells the oracle what is decided; of a batch over several engines one engine's word is enough.
    fn acknowledge(&mut self) {
        let decided: Vec<Seq> = self.engines.iter().map(|harness| harness.engine.decided_seq()).collect();
        let is_decided = |pending: &&Pending| pending.seq <= decided[pending.engine];
        let batches: BTreeSet<u64> =
            self.pending.iter().filter(is_decided).map(|pending| pending.batch).collect();
        self.pending.retain(|pending| !batches.contains(&pending.batch));
        self.locked.retain(|batch, _| !batches.contains(batch));
        batches.iter().for_each(|batch| self.history.oracle.acknowledge(*batch));
        let latest = self.engines.iter().map(|harness| harness.now.monotonic_us).max();
        self.history.now.monotonic_us = self.history.now.monotonic_us.max(latest.unwrap_or(0));
    }
}

/// Calls `call` with the writes that make `changes`.
fn with_writes<E: Engine, T>(
    harness: &mut Harness<E, SimDevice>,
    changes: &[(u32, Option<Stamp>)],
    call: impl FnOnce(&mut Harness<E, SimDevice>, &[Write<'_>]) -> Result<T, Error>,
) -> Result<T, Error> {
    let owned: Vec<_> =
        changes.iter().map(|(key, stamp)| (keyspace(*key), name(*key), stamp.map(bytes_of))).collect();
    let writes: Vec<Write<'_>> = owned
        .iter()
        .map(|(keyspace, key, value)| Write {
            key: harness.key(*keyspace, key),
            kind: match value {
                Some(value) => WriteKind::Put { value, expiry_ms: 0, kind: Default::default() },
                None => WriteKind::Delete,
            },
        })
        .collect();
    call(harness, &writes)
}
