use super::*;
use crate::format::{HEADER_WORDS, MAGIC, word_at};
use crate::mark::{MARK_AT, unguarded};
use crate::open::existing;
use crate::{Geometry, Keyspace, OpenSettings, ShardSettings};
use std::collections::BTreeMap;
use tierstone_base::checksum::checksum;
use tierstone_base::{ErrorKind, KeyspaceId};
use tierstone_crash::{
    Choices, ExploreSettings, Mutations, Report, Violation, assert_caught, explore, sampled_runs,
    sampled_seed,
};
use tierstone_engine::harness::Harness;
use tierstone_engine::{Durability, Engine, IndexKind, Write, WriteKind};
use tierstone_media::region::Region;
use tierstone_media::sim::{
    CutPoints, Killed, PowerCut, SimDevice, SimMachineSettings, SimMedium, SimSettings, WordMachine,
    until_killed,
};
use tierstone_media::{Geometry as DeviceGeometry, Wait};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
const KEYS: u64 = 12;
const BYTES: u64 = 96 << 10;
/// The key whose newest record never counted.
const UNDONE: u64 = 5;
/// Where a seal is in a block.
const SEAL_AT: u64 = 16;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;
type Store = Harness<crate::PmShard, SimDevice>;

fn settings(mutations: &Mutations) -> OpenSettings {
    OpenSettings {
        geometry: Geometry { segment_bytes: 8 << 10, block_bytes: 2 << 10, log_segments: 3 },
        shard: ShardSettings {
            durability: Durability::Sync,
            memory_bytes: u64::MAX,
            ..ShardSettings::default()
        },
        keyspaces: vec![Keyspace { id: KEYSPACE, index: IndexKind::Hash }],
        seed: 7,
        mutations: mutations.clone(),
        ..OpenSettings::default()
    }
}

fn machine(choices: &Choices) -> WordMachine {
    let nothing = DeviceGeometry { meta_bytes: 0, segment_bytes: 0, segment_limit: 0 };
    let settings = SimMachineSettings {
        devices: Vec::new(),
        power_cut: PowerCut::Never,
        cut_limit: u32::MAX,
        trace_limit_lines: 0,
        ..SimMachineSettings::exploring(BYTES, nothing)
    };
    WordMachine::new(&settings, choices)
}

fn region(machine: &WordMachine) -> Arc<dyn Region + Send + Sync> {
    Arc::new(machine.region())
}

/// Opens the store; says which version it had.
fn open(machine: &WordMachine, mutations: &Mutations) -> Result<(Store, Option<u32>)> {
    let opened = crate::open(region(machine), &settings(mutations))?;
    let (shard, _) = opened.plans.into_iter().next().unwrap().build()?;
    let geometry = DeviceGeometry { meta_bytes: 4096, segment_bytes: 4096, segment_limit: 1 };
    let device = SimMedium::new(SimSettings::new(geometry), &Choices::quiet()).device();
    Ok((Harness::new(shard, device, opened.hasher), opened.report.upgraded_from))
}

fn name(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn put(store: &mut Store, number: u64, value: &[u8]) {
    let kind = WriteKind::Put { value, expiry_ms: 0, kind: Default::default() };
    store.write(&[Write { key: store.key(KEYSPACE, &name(number)), kind }]).unwrap();
    store.sync().unwrap();
}

fn contents(store: &mut Store) -> Result<Contents> {
    let mut found = Contents::new();
    for number in 0..KEYS {
        if let Some((_, value)) = store.get(KEYSPACE, &name(number))? {
            found.insert(name(number), value);
        }
    }
    Ok(found)
}

/// A store of an older version that was closed in good order; gives what it holds. In one of the first version a record is void.
fn older_version(machine: &WordMachine, version: u32) -> Contents {
    let (mut store, _) = open(machine, &Mutations::none()).unwrap();
    for round in 0..2u8 {
        for number in 0..KEYS {
            put(&mut store, number, &[round; 70]);
        }
    }
    let mut wanted = contents(&mut store).unwrap();
    let place = store.engine.find(&store.key(KEYSPACE, &name(UNDONE))).unwrap().unwrap().place;
    store.engine.shut();
    while !store.engine.is_shut() {
        store.turn(Wait::One);
    }
    drop(store);
    let memory = PmMemory::new(region(machine), 0).unwrap();
    if version == VERSION_UNGUARDED {
        wanted.insert(name(UNDONE), vec![0; 70]);
        make_first(&memory, place);
    }
    name_version(&memory, version);
    wanted
}

/// Writes down what an older version would have: free words that are zeros, and its number.
fn name_version(memory: &PmMemory, version: u32) {
    let (header, layout) = existing(memory).unwrap();
    for place in (0..layout.segments).map(|segment| layout.table_word(segment)) {
        if memory.load_word(place) == Entry::free() {
            memory.put_word(place, 0);
        }
    }
    let mut bytes = Header { version, ..header }.encode();
    let sum = checksum(MAGIC, &bytes[..HEADER_WORDS * 8]);
    bytes[HEADER_WORDS * 8..].copy_from_slice(&sum.to_le_bytes());
    for place in [VERSION_AT, SUM_AT] {
        memory.put_word(place, word_at(&bytes, place as usize));
    }
    memory.fence().unwrap();
}

/// Writes down what the first version would have.
fn make_first(memory: &PmMemory, void: u64) {
    let (_, layout) = existing(memory).unwrap();
    let plain = |place| memory.put_word(place, unguarded(memory.load_word(place)).unwrap());
    plain(OPENING_AT);
    for shard in 0..layout.shards {
        let line = layout.shard_line(shard);
        plain(line);
        plain(line + PAST_AT);
        for place in [MARK_AT, crate::checkpoint::OPENING_AT, crate::checkpoint::PAGE_AT] {
            memory.put_word(line + place, 0);
        }
    }
    for owned in sort_table(memory, &layout).0 {
        for segment in owned.storage {
            let first = segment * layout.blocks_per_segment();
            (first..first + layout.blocks_per_segment())
                .for_each(|block| memory.put_word(layout.block(block) + SEAL_AT, 0));
        }
    }
    memory.put_word(void, memory.load_word(void) | u64::from(FLAG_VOID_FIRST) << 48);
}

/// Whether the program of version `program` takes a header for whole.
fn is_taken_by(program: u32, image: &[u8]) -> bool {
    let sum_of = |version: u32| {
        let mut named = image[..HEADER_WORDS * 8].to_vec();
        named[VERSION_AT as usize..][..4].copy_from_slice(&version.to_le_bytes());
        checksum(MAGIC, &named)
    };
    let version = word_at(image, VERSION_AT as usize) as u32;
    version <= program
        && (version..=program).any(|version| sum_of(version) == word_at(image, SUM_AT as usize))
}

/// Where an older program would open the store, nothing was changed.
fn older_programs_refuse(machine: &WordMachine, before: &[u8]) -> std::result::Result<(), Violation> {
    let image = machine.region().image();
    let is_taken = (VERSION_UNGUARDED..VERSION).any(|program| is_taken_by(program, &image));
    Violation::unless(!is_taken || image == before, || {
        let place = image.chunks(8).zip(before.chunks(8)).position(|(now, then)| now != then);
        format!("an older program opens a store whose word {place:?} is of this version")
    })
}

/// Opens the store until power stays on, twice more, and looks at what it holds.
fn upgraded(choices: &Choices, version: u32, mutations: &Mutations) -> std::result::Result<(), Violation> {
    let machine = machine(choices);
    let wanted = older_version(&machine, version);
    let refused = crate::check::check(region(&machine), &Default::default(), &mut |_| {}).unwrap_err();
    assert!(refused.kind() == ErrorKind::Incompatible && refused.message().contains("opened once"));
    let before = machine.region().image();
    assert!(is_taken_by(version, &before));
    for life in 0..4 {
        let is_cut = life < 3 && choices.choose(4, "power is lost in this life") != 0;
        let within = PowerCut::Within { points: CutPoints::Every, last: 40 };
        machine.set_power_cut(if is_cut { within } else { PowerCut::Never });
        let found = open(&machine, mutations).and_then(|(mut store, _)| contents(&mut store));
        if !machine.power_is_off() {
            let found = found?;
            let wrong = || wanted.keys().find(|key| found.get(*key) != wanted.get(*key));
            Violation::unless(found == wanted, || format!("{:?} is wrong in life {life}", wrong()))?;
        }
        machine.set_power_cut(PowerCut::Never);
        machine.power_on_after_loss();
        older_programs_refuse(&machine, &before)?;
    }
    is_of_this_version(&machine)
}

fn is_of_this_version(machine: &WordMachine) -> std::result::Result<(), Violation> {
    let memory = PmMemory::new(region(machine), 0)?;
    let (header, _) = existing(&memory)?;
    Violation::unless(header.version == VERSION, || format!("it has version {} yet", header.version))?;
    let report = crate::check::check(region(machine), &Default::default(), &mut |_| {})?;
    Violation::unless(!report.is_damaged(), || format!("{:?}", report.findings))
}

fn explored(seed: u64, runs: u64, version: u32, mutations: &Mutations) -> Report {
    let settings = ExploreSettings { max_minimise_runs: 20, ..ExploreSettings::random(seed, runs) };
    explore(settings, |choices| upgraded(choices, version, mutations))
}

/// The crash mark `upgrade-half-named` lies on its way.
#[test]
fn a_store_of_an_older_version_becomes_one_of_this_wherever_power_is_lost() {
    for version in VERSION_UNGUARDED..VERSION {
        explored(sampled_seed(51), sampled_runs(300), version, &Mutations::none()).assert_clean();
    }
}

#[test]
fn the_version_is_named_when_all_of_it_is_durable() {
    let name = "upgrade_unfenced";
    assert_caught(name, || explored(4711, 2_000, VERSION_UNGUARDED, &Mutations::one(name)));
}

#[test]
fn the_checksum_that_keeps_older_programs_out_is_durable_before_anything_else() {
    let name = "upgrade_sum_unfenced";
    for version in VERSION_UNGUARDED..VERSION {
        assert_caught(name, || explored(4711, 2_000, version, &Mutations::one(name)));
    }
}

/// The process is killed in the upgrade, and the next one in doing it again; then the store is opened, with a loss of power before
/// and after, or without one.
fn killed_twice(choices: &Choices, version: u32) -> std::result::Result<(), Violation> {
    let machine = machine(choices);
    let wanted = older_version(&machine, version);
    let before = machine.region().image();
    let is_cut = |when| choices.choose(2, when) != 0;
    for _ in 0..2 {
        let region = Killed::over(Arc::new(machine.region()));
        region.kill_before(choices.choose(KILLED_WITHIN, "the process is killed"));
        let memory: Arc<dyn Region + Send + Sync> = region;
        until_killed(|| drop(crate::open(memory, &settings(&Mutations::none())).unwrap()));
        older_programs_refuse(&machine, &before)?;
        machine.kill_process();
    }
    for when in ["power is lost before an opening", "power is lost after it"] {
        if is_cut(when) {
            machine.cut_power();
            machine.power_on_after_loss();
            older_programs_refuse(&machine, &before)?;
        }
        let found = open(&machine, &Mutations::none()).and_then(|(mut store, _)| contents(&mut store))?;
        Violation::unless(found == wanted, || format!("{when}: {found:?}"))?;
        machine.kill_process();
    }
    machine.cut_power();
    machine.power_on_after_loss();
    is_of_this_version(&machine)
}

/// So many write-backs and fences an upgrade has here, and some of the opening behind it.
const KILLED_WITHIN: u64 = 30;

/// The crash mark `upgrade-begun` lies on its way.
#[test]
fn a_process_that_is_killed_at_any_step_of_an_upgrade_leaves_a_store_for_this_program_or_as_it_was() {
    for version in VERSION_UNGUARDED..VERSION {
        let settings = ExploreSettings::random(sampled_seed(52), sampled_runs(3_000));
        explore(settings, |choices| killed_twice(choices, version)).assert_clean();
    }
}

/// Names `version`, with the checksum that a header of version `summed` has.
fn name_half(memory: &PmMemory, version: u32, summed: u32) {
    let (header, _) = existing(memory).unwrap();
    let word = |version, at| word_at(&Header { version, ..header }.encode(), at as usize);
    memory.put_word(SUM_AT, word(summed, SUM_AT));
    memory.put_word(VERSION_AT, word(version, VERSION_AT));
    memory.fence().unwrap();
}

/// The program of version 2 made stores of version 1 ones of its own: killed there, it left version 1 and the checksum of 2.
#[test]
fn a_store_whose_upgrade_to_any_later_version_was_cut_off_is_opened() {
    for version in VERSION_UNGUARDED..VERSION {
        for summed in VERSION_UNGUARDED..=VERSION {
            let machine = machine(&Choices::quiet());
            let wanted = older_version(&machine, version);
            name_half(&PmMemory::new(region(&machine), 0).unwrap(), version, summed);
            let opened = open(&machine, &Mutations::none());
            if summed < version {
                assert_eq!(opened.unwrap_err().kind(), ErrorKind::Corrupt, "{version} {summed}");
                continue;
            }
            assert_eq!(contents(&mut opened.unwrap().0).unwrap(), wanted, "{version} {summed}");
        }
    }
}

#[test]
fn a_store_of_an_older_version_is_untouched_or_in_use_as_one_of_this_is() {
    for version in VERSION_UNGUARDED..VERSION {
        let machine = machine(&Choices::quiet());
        crate::open(region(&machine), &settings(&Mutations::none())).unwrap();
        name_version(&PmMemory::new(region(&machine), 0).unwrap(), version);
        assert!(crate::is_untouched(region(&machine), 0) && !crate::is_in_use(region(&machine), 0));
        older_version(&machine, version);
        assert!(!crate::is_untouched(region(&machine), 0) && crate::is_in_use(region(&machine), 0));
    }
    let machine = machine(&Choices::quiet());
    crate::open(region(&machine), &settings(&Mutations::none())).unwrap();
    let memory = PmMemory::new(region(&machine), 0).unwrap();
    let (_, layout) = existing(&memory).unwrap();
    memory.put_word(layout.table_word(layout.segments - 1), 0);
    assert!(!crate::is_untouched(region(&machine), 0), "zeros are damage in this version");
}
