//! Keyspaces that come and go under power cuts: one that was made and written to is there with its keys,
//! one that was dropped never comes back, and what a cut leaves open is one or the other.

use crate::common::lives::Plan;
use crate::common::ordered_keyspaces;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::Unbounded;
use tierstone_base::{KeyspaceId, SeededRandom};
use tierstone_crash::{
    Choices, ExploreSettings, Violation, assert_caught, explore, sampled_runs, sampled_seed,
};
use tierstone_engine::harness::Harness;
use tierstone_engine::{Direction, Engine, IndexKind};
use tierstone_logstore::format::superblock::KeyspaceEntry;
use tierstone_logstore::{LogShard, OpenSettings, SuperblockWriter, open};
use tierstone_media::sim::{SimDevice, SimMedium};

/// Which order of steps a test breaks on purpose.
#[derive(Clone, Copy, PartialEq)]
enum Broken {
    Nothing,
    /// Keys are written to a keyspace before the superblock knows it.
    UsedBeforeDurable,
    /// The id of a dropped keyspace is given again.
    IdsComeAgain,
}

/// What a keyspace must hold: keys that were acknowledged with their values, and keys that may be there.
#[derive(Clone, Debug, Default)]
struct Expected {
    surely: BTreeMap<Vec<u8>, Vec<u8>>,
    maybe: BTreeSet<Vec<u8>>,
}

#[derive(Default)]
struct History {
    spaces: BTreeMap<u32, Expected>,
    /// A keyspace whose making or dropping was under way.
    open_question: Option<u32>,
    writes: u32,
}

struct Life<'a> {
    harness: Harness<LogShard, SimDevice>,
    writer: SuperblockWriter,
    medium: &'a SimMedium,
    history: &'a mut History,
    broken: Broken,
}

impl Life<'_> {
    /// The table is what was acknowledged, and so are the keys.
    fn check(&mut self) -> Result<(), Violation> {
        let table: BTreeMap<u32, IndexKind> =
            self.writer.superblock.keyspaces.iter().map(|entry| (entry.id.0, entry.index)).collect();
        if let Some(id) = self.history.open_question.take() {
            match table.contains_key(&id) {
                true => drop(self.history.spaces.entry(id).or_default()),
                false => drop(self.history.spaces.remove(&id)),
            }
        }
        let known: Vec<u32> = self.history.spaces.keys().copied().collect();
        let found: Vec<u32> = table.keys().copied().collect();
        Violation::unless(known == found, || format!("keyspaces {found:?}, not {known:?}"))?;
        for (id, expected) in &mut self.history.spaces {
            let space = KeyspaceId(*id);
            let mut keys = BTreeMap::new();
            for entry in self.harness.scan_all(space, 7)? {
                let value = self.harness.get(space, &entry.key)?.map(|(_, value)| value);
                keys.insert(entry.key, value.unwrap_or_default());
            }
            for (key, value) in &expected.surely {
                let given = keys.get(key);
                Violation::unless(given == Some(value) || expected.maybe.contains(key), || {
                    format!("keyspace {id}, key {key:?}: {given:?}, not {value:?}")
                })?;
            }
            let strange =
                keys.keys().find(|key| !expected.surely.contains_key(*key) && !expected.maybe.contains(*key));
            Violation::unless(strange.is_none(), || format!("keyspace {id} holds {strange:?}"))?;
            if table.get(id) == Some(&IndexKind::Ordered) {
                let ranged = self.harness.range_all(space, Unbounded, Unbounded, 5, Direction::Forward)?;
                let ranged: BTreeMap<_, _> =
                    ranged.into_iter().map(|entry| (entry.key, entry.value)).collect();
                Violation::unless(ranged == keys, || {
                    format!("ranges of {id} give {ranged:?}, not {keys:?}")
                })?;
            }
            *expected = Expected { surely: keys, maybe: BTreeSet::new() };
        }
        Ok(())
    }

    fn commit(&mut self, id: u32, keyspaces: Vec<KeyspaceEntry>) -> Result<(), Violation> {
        let mut changed = self.writer.superblock.clone();
        changed.next_keyspace = changed.next_keyspace.max(id + 1);
        if self.broken == Broken::IdsComeAgain {
            changed.next_keyspace = keyspaces.iter().map(|entry| entry.id.0 + 1).max().unwrap_or(1);
        }
        changed.keyspaces = keyspaces;
        self.history.open_question = Some(id);
        self.writer.write(&mut self.medium.device(), changed)?;
        self.history.open_question = None;
        Ok(())
    }

    fn create(&mut self, random: &mut SeededRandom) -> Result<(), Violation> {
        let id = self.writer.superblock.next_keyspace;
        let index = if random.chance(0.6) { IndexKind::Ordered } else { IndexKind::Hash };
        let mut keyspaces = self.writer.superblock.keyspaces.clone();
        keyspaces.push(KeyspaceEntry { id: KeyspaceId(id), name: format!("n{id}"), index });
        self.history.spaces.insert(id, Expected::default());
        if self.broken == Broken::UsedBeforeDurable {
            self.harness.engine.create_keyspace(KeyspaceId(id), index);
            self.write(id, random)?;
            self.sync()?;
            // The caller was told; nothing is open about it.
            let mut changed = self.writer.superblock.clone();
            (changed.next_keyspace, changed.keyspaces) = (id + 1, keyspaces);
            self.writer.write(&mut self.medium.device(), changed)?;
            return Ok(());
        }
        self.commit(id, keyspaces)?;
        self.harness.engine.create_keyspace(KeyspaceId(id), index);
        Ok(())
    }

    fn drop_one(&mut self, random: &mut SeededRandom) -> Result<(), Violation> {
        let ids: Vec<u32> = self.history.spaces.keys().copied().collect();
        let Some(&id) = ids.get(random.below(ids.len().max(1) as u64) as usize) else { return Ok(()) };
        let mut keyspaces = self.writer.superblock.keyspaces.clone();
        keyspaces.retain(|entry| entry.id.0 != id);
        self.commit(id, keyspaces)?;
        self.harness.engine.drop_keyspace(KeyspaceId(id));
        self.history.spaces.remove(&id);
        Ok(())
    }

    /// A put or a delete, not acknowledged yet.
    fn write(&mut self, id: u32, random: &mut SeededRandom) -> Result<(), Violation> {
        let key = format!("key {}", random.below(12)).into_bytes();
        let Some(expected) = self.history.spaces.get_mut(&id) else { return Ok(()) };
        expected.maybe.insert(key.clone());
        self.history.writes += 1;
        if random.chance(0.25) {
            self.harness.delete(KeyspaceId(id), &key)?;
            expected.surely.remove(&key);
        } else {
            let mut value = self.history.writes.to_le_bytes().to_vec();
            value.resize(4 + random.below(1_500) as usize, id as u8);
            self.harness.put(KeyspaceId(id), &key, &value)?;
            expected.surely.insert(key, value);
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Violation> {
        self.harness.sync()?;
        self.history.spaces.values_mut().for_each(|expected| expected.maybe.clear());
        Ok(())
    }

    fn work(&mut self, random: &mut SeededRandom) -> Result<(), Violation> {
        for _ in 0..40 {
            let ids: Vec<u32> = self.history.spaces.keys().copied().collect();
            match random.below(20) {
                0..2 => self.create(random)?,
                2 => self.drop_one(random)?,
                3..6 => self.sync()?,
                6 => self.harness.settle(60),
                _ => {
                    if let Some(&id) = ids.get(random.below(ids.len().max(1) as u64) as usize) {
                        self.write(id, random)?;
                    }
                }
            }
        }
        self.sync()?;
        self.check()
    }
}

fn run(plan: &Plan, choices: &Choices, broken: Broken) -> Result<(), Violation> {
    let medium = SimMedium::new(plan.sim.clone(), choices);
    let settings = OpenSettings { keyspaces: ordered_keyspaces(), ..plan.open.clone() };
    let mut history = History::default();
    history.spaces.extend((1..=3).map(|id| (id, Expected::default())));
    let mut is_new = true;
    medium.run_lives(|mut device, _| {
        let mut opened = open(&mut device, &settings)?;
        if !is_new && opened.report.created {
            // Nothing was durable before the cut.
            history = History::default();
            history.spaces.extend((1..=3).map(|id| (id, Expected::default())));
        }
        is_new = false;
        let Some(plan) = opened.plans.pop() else { return Err("no shard".into()) };
        let (shard, _) = plan.build(&mut device)?;
        let harness = Harness::new(shard, device, opened.hasher);
        let writer = opened.superblock;
        let mut life = Life { harness, writer, medium: &medium, history: &mut history, broken };
        life.check()?;
        let mut random = SeededRandom::new(choices.choose_seed("work"));
        life.work(&mut random)
    })
}

fn plan() -> Plan {
    let mut plan = Plan::new(32 << 10, 16).cut_one_in(120);
    // The index of each keyspace takes some space at once.
    plan.open.shard.memory_bytes = 16 << 20;
    plan.open.shard.index_fraction = 0.99;
    plan.sim.cut_limit = 3;
    plan.sim.end_cuts = 2;
    plan
}

fn explored(seed: u64, runs: u64, broken: Broken) -> tierstone_crash::Report {
    let settings = ExploreSettings { max_minimise_runs: 20, ..ExploreSettings::random(seed, runs) };
    explore(settings, |choices| run(&plan(), choices, broken))
}

#[test]
fn keyspaces_come_and_go_whole_in_every_sampled_crash() {
    explored(sampled_seed(1), sampled_runs(400), Broken::Nothing).assert_clean();
}

#[test]
fn a_keyspace_is_durable_before_it_is_used() {
    assert_caught("keyspace used before durable", || explored(2, 400, Broken::UsedBeforeDurable));
}

#[test]
fn an_id_is_never_given_twice() {
    assert_caught("keyspace ids come again", || explored(3, 400, Broken::IdsComeAgain));
}
