//! Large values over the log store on a device that loses power at any point: after each loss the
//! value is one of those that were written, whole, and no chunk is left that nobody names. With a redo log in persistent
//! memory, too, which loses power with the device.

#![expect(clippy::expect_used, reason = "test code")]

use std::cell::Cell;
use std::sync::Arc;
use tierstone_base::{ErrorKind, KeyspaceId, Now};
use tierstone_crash::{Choices, ExploreSettings, Mutations, Report, Violation, assert_caught, explore};
use tierstone_engine::{Durability, Engine, Health, ValueKind};
use tierstone_logstore::format::superblock::{IndexKind, KeyspaceEntry, META_BYTES};
use tierstone_logstore::{LogShard, OpenSettings, RedoMemory, open};
use tierstone_media::sim::{
    CutPoints, PowerCut, SimDevice, SimMachineSettings, SimMedium, SimSettings, WordMachine,
};
use tierstone_media::{BlockDevice, Geometry, Wait};
use tierstone_store::{
    DatabaseMap, FetchFailure, LargeMap, Place, RunOutcome, Shard, ShardEvent, ShardSettings, Stop, View,
    Workspace,
};

/// Records of the test take so much: the chunk size.
const CHUNK: usize = 1024;
const OWNER: &[u8] = b"big";
const TURNS_MAX: u32 = 50_000;
/// A redo log with a slot for every group under way, and one with too few.
const REDO_BYTES: u64 = 96 << 10;
const FEW_SLOTS_BYTES: u64 = 42 << 10;

/// A value of which every byte tells the write that made it.
fn value(write: u8, chunks: usize) -> Vec<u8> {
    vec![write; chunks * CHUNK - 5]
}

struct World {
    shard: Shard<LogShard>,
    device: SimDevice,
    workspace: Workspace,
    now: Now,
}

fn settings() -> OpenSettings {
    let mut settings = OpenSettings {
        keyspaces: vec![KeyspaceEntry { id: KeyspaceId(1), name: "0".into(), index: IndexKind::Hash }],
        seed: 7,
        ..OpenSettings::default()
    };
    settings.shard.memory_bytes = 64 << 10;
    settings.shard.index_fraction = 0.5;
    settings.shard.group_bytes_max = 4 << 10;
    settings.shard.overlap_bytes = 8 << 10;
    settings.shard.reserved_segments = 2;
    settings
}

impl World {
    fn open(
        mut device: SimDevice,
        redo: Option<RedoMemory>,
        is_order_broken: bool,
    ) -> Result<World, Violation> {
        let mut opened = open(&mut device, &OpenSettings { redo, ..settings() })?;
        let hasher = opened.hasher;
        let (engine, _) = opened.plans.pop().expect("one shard").build(&mut device)?;
        let settings = ShardSettings {
            index_kind: tierstone_engine::IndexKind::Hash,
            index: 0,
            count: 1,
            map: DatabaseMap::new(1),
            hasher,
            durability: Durability::Sync,
            record_bytes_max: CHUNK as u64,
        };
        let mut shard = Shard::new(engine, settings);
        if is_order_broken {
            shard.break_order_of_chunks();
        }
        let now = Now { monotonic_us: 1_000, wall_ms: 1_700_000_000_000 };
        Ok(World { shard, device, workspace: Workspace::default(), now })
    }

    fn turn(&mut self) -> Result<Vec<ShardEvent>, Violation> {
        let (mut completions, mut requests, mut events) = (Vec::new(), Vec::new(), Vec::new());
        self.shard.engine_mut().take_requests(&mut requests);
        self.device.submit(&mut requests);
        self.device.complete(Wait::One, &mut completions);
        self.now.monotonic_us += 100;
        self.shard.step(self.now, &mut completions, &mut events);
        self.shard.engine_mut().take_requests(&mut requests);
        self.device.submit(&mut requests);
        match self.shard.engine().health() {
            Health::Good => Ok(events),
            Health::Failed(error) => Err(error.into()),
        }
    }

    /// Turns until `done`.
    fn until<T>(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut World) -> Result<Option<T>, Violation>,
    ) -> Result<T, Violation> {
        for _ in 0..TURNS_MAX {
            if let Some(answer) = done(self)? {
                return Ok(answer);
            }
            self.turn()?;
        }
        Err(Violation::new(format!("{what} never came to its end")))
    }

    /// Runs a command to its end; gives the sequence that must be durable.
    fn run<R>(
        &mut self,
        mut command: impl FnMut(&mut View<'_>) -> Result<R, Stop>,
    ) -> Result<(R, u64), Violation> {
        let mut tokens = Vec::new();
        let mut failures: Vec<FetchFailure> = Vec::new();
        for _ in 0..TURNS_MAX {
            match self.shard.run(self.now, &mut self.workspace, &failures, &mut command) {
                RunOutcome::Done { value, gate } => {
                    self.shard.release(&mut tokens);
                    return Ok((value, gate));
                }
                RunOutcome::Failed(error) if error.kind() == ErrorKind::Retry => {
                    self.turn()?;
                }
                RunOutcome::Failed(error) => return Err(error.into()),
                RunOutcome::Suspended => {
                    let wanted = std::mem::take(&mut self.workspace.wanted);
                    self.shard.fetch(self.now, 1, &wanted, &mut tokens);
                    let mut outstanding = wanted.len();
                    while outstanding > 0 {
                        for event in self.turn()? {
                            if let ShardEvent::Fetched { failure, .. } = event {
                                outstanding -= 1;
                                failures.extend(failure);
                            }
                        }
                    }
                }
            }
        }
        Err(Violation::new("a command never came to its end"))
    }

    fn make_durable(&mut self, gate: u64) -> Result<(), Violation> {
        self.until("a write", |world| Ok((world.shard.engine().durable_seq() >= gate).then_some(())))
    }

    fn read(&mut self) -> Result<Option<Vec<u8>>, Violation> {
        let read = self.run(|view| {
            let Some(record) = view.get(0, OWNER)? else { return Ok(None) };
            if record.meta.kind == ValueKind::STRING {
                return Ok(Some(record.value.to_vec()));
            }
            let map = LargeMap::decode(record.value).map_err(Stop::Failed)?;
            let (place, mut out) = (view.place(0, OWNER)?, Vec::new());
            view.read_large(place, &map, 0..map.len(), &mut out)?;
            Ok(Some(out))
        });
        match read {
            // A promise: what the map names is there.
            Err(violation) if violation.error_kind() == Some(ErrorKind::Corrupt) => {
                self.check_power()?;
                Err(Violation::new(format!("the value cannot be read: {violation}")))
            }
            other => Ok(other?.0),
        }
    }

    fn upload(&mut self, bytes: &[u8]) -> Result<u64, Violation> {
        let keyspace = KeyspaceId(1);
        let place = Place { keyspace, slot: self.shard.position(OWNER).slot() };
        let id = self.until("the beginning of an upload", |world| {
            retried(world.shard.begin_upload(world.now, place, bytes.len() as u64))
        })?;
        let mut taken = 0;
        while taken < bytes.len() {
            taken += self.shard.upload(self.now, id, &bytes[taken..])?;
            if taken < bytes.len() {
                self.turn()?;
            }
        }
        let map = self.until("an upload", |world| retried(world.shard.end_upload(world.now, id)))?;
        Ok(self.run(|view| view.put_map(0, OWNER, &map, 0))?.1)
    }

    /// Overwrites six bytes around the end of the first chunk.
    fn patch(&mut self, write: u8) -> Result<u64, Violation> {
        let (_, gate) = self.run(|view| {
            let record = view.get(0, OWNER)?.expect("there is a value");
            let mut map = LargeMap::decode(record.value).map_err(Stop::Failed)?;
            let place = view.place(0, OWNER)?;
            view.write_large(place, &mut map, CHUNK as u64 - 3, &[write; 6])?;
            view.put_map(0, OWNER, &map, 0)
        })?;
        Ok(gate)
    }

    /// Without power nothing can be read, and nothing that is seen is a broken promise.
    fn check_power(&self) -> Result<(), Violation> {
        match self.device.medium().power_is_off() {
            true => Err(Violation::from_error(ErrorKind::DeviceFailed, "power is off")),
            false => Ok(()),
        }
    }

    /// Nothing is left to be reclaimed, and the chunks are those of `value`.
    fn check_space(&mut self, value: Option<&[u8]>) -> Result<(), Violation> {
        self.until("the ledger", |world| Ok(world.shard.ledger().is_idle().then_some(())))?;
        self.check_power()?;
        let chunks = value.filter(|value| value.len() > CHUNK).map_or(0, |value| value.len().div_ceil(CHUNK));
        let engine = self.shard.engine();
        let (there, listed) = (engine.len(KeyspaceId(1).chunks()), engine.len(KeyspaceId(1).ledger()));
        Violation::unless(there == chunks as u64 && listed == 0, || {
            format!("{there} chunks are there of {chunks}, and {listed} entries of the ledger")
        })
    }
}

fn retried<T>(result: tierstone_base::Result<T>) -> Result<Option<T>, Violation> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::Retry => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What the value may be after a loss of power: the last one that was acknowledged, or a later one.
#[derive(Default)]
struct History {
    allowed: Vec<Option<Vec<u8>>>,
    writes: u8,
}

fn life(world: &mut World, history: &mut History, choices: &Choices) -> Result<(), Violation> {
    let found = world.read()?;
    if history.allowed.is_empty() {
        history.allowed.push(None);
    }
    Violation::unless(history.allowed.contains(&found), || {
        let shown =
            |value: &Option<Vec<u8>>| value.as_ref().map(|value| (value.len(), value.first().copied()));
        let allowed: Vec<_> = history.allowed.iter().map(shown).collect();
        format!("the value is {:?}, and may be one of {allowed:?}", shown(&found))
    })?;
    history.allowed = vec![found.clone()];
    world.check_space(found.as_deref())?;
    for _ in 0..3 {
        history.writes = history.writes % 200 + 1;
        let write = history.writes;
        let old = history.allowed.last().cloned().flatten();
        let is_patch = old.as_ref().is_some_and(|old| old.len() > 2 * CHUNK);
        let what = choices.choose(5, "what is done");
        let new = match what {
            0 | 1 => Some(value(write, 7)),
            2 => Some(value(write, 3)),
            3 if is_patch => old.map(|mut old| {
                old[CHUNK - 3..CHUNK + 3].fill(write);
                old
            }),
            3 => Some(vec![write; 10]),
            _ => None,
        };
        history.allowed.push(new.clone());
        let gate = match (what, &new) {
            (0 | 1, Some(bytes)) => world.upload(bytes)?,
            (3, Some(_)) if is_patch => world.patch(write)?,
            (_, Some(bytes)) => world.run(|view| view.put_string(0, OWNER, bytes, 0))?.1,
            (_, None) => world.run(|view| view.delete(0, OWNER))?.1,
        };
        world.make_durable(gate)?;
        history.allowed = vec![new.clone()];
        if choices.choose(2, "whether to wait for the ledger") == 1 {
            world.check_space(new.as_deref())?;
        }
    }
    Ok(())
}

fn exploring(is_order_broken: bool, runs: u64) -> (SimSettings, ExploreSettings) {
    let geometry = Geometry { meta_bytes: META_BYTES, segment_bytes: 32 << 10, segment_limit: 24 };
    let sim = SimSettings {
        cut_limit: 3,
        end_cuts: 1,
        power_cut: PowerCut::Anywhere { points: CutPoints::Every, one_in: 40 },
        ..SimSettings::exploring(geometry)
    };
    let sampled = match is_order_broken {
        true => ExploreSettings::random(4711, runs),
        false => ExploreSettings::sampled(4711, runs, &Mutations::none()),
    };
    (sim, ExploreSettings { max_minimise_runs: 10, ..sampled })
}

fn explored(is_order_broken: bool, runs: u64) -> Report {
    let (sim, settings) = exploring(is_order_broken, runs);
    explore(settings, |choices| {
        let mut history = History::default();
        let medium = SimMedium::new(sim.clone(), choices);
        medium.run_lives(|device, _| {
            let mut world = World::open(device, None, is_order_broken)?;
            life(&mut world, &mut history, choices)
        })
    })
}

/// The same with a redo log in `bytes` of persistent memory, whose words survive each by itself.
fn explored_with_redo(is_order_broken: bool, runs: u64, bytes: u64) -> Report {
    let (sim, settings) = exploring(is_order_broken, runs);
    let machine = SimMachineSettings {
        devices: vec![sim.clone()],
        power_cut: PowerCut::Anywhere { points: CutPoints::Every, one_in: 250 },
        cut_limit: sim.cut_limit + 1,
        end_cuts: sim.end_cuts,
        ..SimMachineSettings::exploring(bytes, sim.geometry)
    };
    explore(settings, |choices| {
        let mut history = History::default();
        let machine = WordMachine::new(&machine, choices);
        machine.run_lives(|mut started| {
            let redo = RedoMemory::new(Arc::new(started.region));
            let mut world = World::open(started.devices.remove(0), Some(redo), is_order_broken)?;
            life(&mut world, &mut history, choices)
        })
    })
}

#[test]
fn a_loss_of_power_leaves_a_whole_value_and_no_chunk_without_one() {
    explored(false, 400).assert_clean();
}

#[test]
fn a_value_is_whole_after_device_and_redo_log_lost_power() {
    explored_with_redo(false, 300, REDO_BYTES).assert_clean();
}

#[test]
fn a_value_whose_groups_find_no_slot_is_whole() {
    explored_with_redo(false, 300, FEW_SLOTS_BYTES).assert_clean();
}

#[test]
fn a_map_that_is_appended_before_its_chunks_is_caught_with_a_redo_log_too() {
    assert_caught("map_before_chunks", || explored_with_redo(true, 400, REDO_BYTES));
}

/// One value takes the place of another: power is lost before every durable completion of that, every subset of
/// the blocks under way survives each time.
fn replaced(
    world: &mut World,
    life: u32,
    medium: &SimMedium,
    is_acknowledged: &Cell<bool>,
) -> Result<(), Violation> {
    let (old, new) = (value(1, 7), value(2, 7));
    if life == 0 {
        let gate = world.upload(&old)?;
        world.make_durable(gate)?;
        world.check_space(Some(&old))?;
        medium.set_power_cut(PowerCut::Anywhere { points: CutPoints::BeforeDurable, one_in: 1 });
        let gate = world.upload(&new)?;
        world.make_durable(gate)?;
        is_acknowledged.set(true);
        return world.check_space(Some(&new));
    }
    medium.set_power_cut(PowerCut::Never);
    let found = world.read()?;
    let is_old = found.as_ref() == Some(&old) && !is_acknowledged.get();
    Violation::unless(is_old || found.as_ref() == Some(&new), || {
        format!(
            "a value of {:?} bytes, not the new one, and the old one only while that is not acknowledged",
            found.as_ref().map(Vec::len)
        )
    })?;
    world.check_space(found.as_deref())
}

fn all_crashes_of_a_replacement(is_order_broken: bool) -> Report {
    let geometry = Geometry { meta_bytes: META_BYTES, segment_bytes: 32 << 10, segment_limit: 24 };
    let sim = SimSettings { sector_bytes: 2 << 10, cut_limit: 1, end_cuts: 1, ..SimSettings::new(geometry) };
    explore(ExploreSettings::exhaustive(), |choices| {
        let medium = SimMedium::new(sim.clone(), choices);
        let is_acknowledged = Cell::new(false);
        medium.run_lives(|device, life| {
            let mut world = World::open(device, None, is_order_broken)?;
            replaced(&mut world, life, &medium, &is_acknowledged)
        })
    })
}

#[test]
fn all_crashes_of_a_replaced_map_are_survived() {
    let report = all_crashes_of_a_replacement(false).assert_exhausted();
    assert!(report.distinct_states > 8, "too little happens: {report}");
}

#[test]
fn a_replacement_whose_map_comes_before_its_chunks_is_caught() {
    assert_caught("map_before_chunks", || all_crashes_of_a_replacement(true));
}

#[test]
fn a_map_that_is_appended_before_its_chunks_is_caught() {
    assert_caught("map_before_chunks", || explored(true, 400));
}
