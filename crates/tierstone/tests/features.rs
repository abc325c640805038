//! Whatever calls come in whatever order: both handles on stores of all three kinds, keyspaces of both kinds, batches,
//! snapshots, ranges, loads, moves between stores, compactions, backups and openings, beside plain maps.

mod handle;
mod model;

use crate::support::{TemporaryDirectory, backends};
use handle::{Handle, Kind, Shot, Space, Wanted};
use model::{Map, Model, bounds, key, value};
use std::path::PathBuf;
use tierstone::{Batch, ErrorKind, Expiry, PutOptions};
use tierstone_base::{Result, SeededRandom, position::slot_of};

const SEEDS: u64 = 12;
const STEPS: u32 = 350;
/// Databases of the store, and keyspaces with names that come and go.
const DATABASES: u8 = 3;
const NAMED: u8 = 3;
const SNAPSHOTS_MAX: usize = 4;
const BACKUPS_MAX: usize = 6;

/// A store and what it must hold.
struct Run {
    random: SeededRandom,
    directory: TemporaryDirectory,
    kind: Kind,
    /// Whether the numbered databases have the ordered index.
    ordered: bool,
    handle: Option<Handle>,
    model: Model,
    snapshots: Vec<(Shot, Model)>,
    backups: Vec<(PathBuf, Model)>,
    made: u32,
    stamp: u64,
    /// What was done last, shown when the run fails.
    done: Vec<String>,
}

impl Drop for Run {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{:?}, ordered {}; done last: {:#?}", self.kind, self.ordered, self.done);
        }
    }
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = SeededRandom::new(seed);
        let kind = Kind::ALL[random.below(3) as usize];
        let ordered = random.chance(0.7);
        let mut model = Model::default();
        for number in 0..DATABASES {
            model.map(Space::Database(number));
        }
        Run {
            random,
            directory: TemporaryDirectory::new(),
            kind,
            ordered,
            handle: None,
            model,
            snapshots: Vec::new(),
            backups: Vec::new(),
            made: 0,
            stamp: 0,
            done: Vec::new(),
        }
    }

    fn note(&mut self, what: String) {
        self.done.push(what);
        if self.done.len() > 20 {
            self.done.remove(0);
        }
    }

    fn handle(&mut self) -> &mut Handle {
        self.handle.as_mut().expect("it is open")
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.random.below(count) == 0
    }

    fn space(&mut self) -> Space {
        let spaces: Vec<Space> = self.model.spaces().collect();
        spaces[self.random.below(spaces.len() as u64) as usize]
    }

    fn is_ordered(&self, space: Space, model: &Model) -> bool {
        match space {
            Space::Database(_) => self.ordered,
            Space::Named(_) => model.is_ordered(space),
        }
    }

    fn open(&mut self) {
        let shards = self.kind.shards(&mut self.random);
        let is_shared = self.one_in(2);
        self.note(format!("open, {shards} shards, shared: {is_shared}"));
        let mut options = self.kind.options(&self.directory.path().join("store"), shards, Some(self.ordered));
        let backends = backends();
        options.backend = backends[self.random.below(backends.len() as u64) as usize];
        self.handle = Some(Handle::open(&options, is_shared));
        self.compare();
    }

    fn close(&mut self) {
        self.snapshots.clear();
        let in_good_order = self.one_in(2);
        self.note(format!("close, in good order: {in_good_order}"));
        self.handle.take().expect("it is open").close(in_good_order);
    }

    fn compare(&mut self) {
        let handle = self.handle.as_mut().expect("it is open");
        self.model.compare(handle);
    }

    /// Does what may lack space while snapshots keep segments.
    fn patiently(&mut self, mut call: impl FnMut(&mut Handle) -> Result<()>) {
        for _ in 0..50 {
            match call(self.handle()) {
                Err(error) if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Retry) => {
                    self.note(format!("again: {error}"));
                    self.snapshots.clear();
                }
                result => return result.expect("it is taken"),
            }
        }
        panic!("there is no room in a store that is mostly empty");
    }

    fn step(&mut self) {
        self.stamp += 1;
        let space = self.space();
        match self.random.below(100) {
            0..=36 => self.put(space),
            37..=41 => self.put_later(space),
            42..=54 => self.delete(space),
            55..=64 => self.get_many(space),
            65..=75 => self.batch(),
            76..=82 => self.range(space),
            83..=85 => self.take_snapshot(),
            86..=89 => self.look_at_snapshot(),
            90 => self.make_or_drop(),
            91 | 92 => self.back_up(),
            93 => self.load(space),
            94 => self.split(),
            95 => self.compact(),
            96 => assert_eq!(self.handle().verify(), Vec::<String>::new()),
            97 => self.compare_pages(space),
            98 if self.one_in(3) => {
                self.close();
                self.open();
            }
            _ => self.handle().sync(),
        }
    }

    fn put(&mut self, space: Space) {
        let (key, value) = (key(&mut self.random), value(&mut self.random, self.stamp, 45_000));
        let expiry = match self.random.below(10) {
            0 => Expiry::At(self.stamp % 3),
            1 => Expiry::At(u64::MAX),
            2 => Expiry::In(std::time::Duration::MAX),
            _ => Expiry::Never,
        };
        if matches!(expiry, Expiry::At(0..=3)) {
            self.model.map(space).remove(&key);
        } else {
            self.model.map(space).insert(key.clone(), value.clone());
        }
        self.patiently(|handle| handle.put(space, &key, &value, PutOptions { expiry }));
    }

    fn put_later(&mut self, space: Space) {
        let (key, value) = (key(&mut self.random), value(&mut self.random, self.stamp, 45_000));
        self.model.map(space).insert(key.clone(), value.clone());
        self.patiently(|handle| handle.put_later(space, &key, &value));
    }

    fn delete(&mut self, space: Space) {
        let key = key(&mut self.random);
        let was_there = self.model.map(space).remove(&key).is_some();
        let mut is_deleted = false;
        self.patiently(|handle| {
            is_deleted = handle.delete(space, &key)?;
            Ok(())
        });
        assert_eq!(is_deleted, was_there, "deletion of {key:?} in {space:?}");
    }

    fn get_many(&mut self, space: Space) {
        let keys: Vec<Vec<u8>> = (0..=self.random.below(20)).map(|_| key(&mut self.random)).collect();
        let found = self.handle().get_many(space, &keys).expect("it is read");
        self.model.compare_keys(space, &keys, found);
    }

    fn batch(&mut self) {
        let mut batch = Batch::new();
        for number in 0..=self.random.below(30) {
            let space = self.space();
            match space {
                Space::Database(number) => batch.in_database(u32::from(number)),
                Space::Named(_) => batch.in_keyspace(&space.name()),
            };
            let key = key(&mut self.random);
            if self.one_in(4) {
                batch.delete(&key);
                self.model.map(space).remove(&key);
            } else {
                let value = value(&mut self.random, self.stamp * 100 + number, 20_000);
                batch.put(&key, &value);
                self.model.map(space).insert(key, value);
            }
        }
        self.patiently(|handle| handle.write(&batch));
    }

    fn compare_pages(&mut self, space: Space) {
        let count = 1 + self.random.below(50) as u32;
        let found = self.handle().pages(space, count).expect("it is read");
        self.model.compare_map(space, &found);
        let len = self.handle().len(space).expect("it is open");
        assert!(len >= self.model.map(space).len() as u64, "{len} keys in {space:?}");
    }

    fn wanted(&mut self) -> Wanted {
        let limit = if self.one_in(3) { 1 + self.random.below(40) } else { u64::MAX >> 1 };
        Wanted { bounds: bounds(&mut self.random), backward: self.one_in(2), limit, live: self.one_in(2) }
    }

    fn range(&mut self, space: Space) {
        let wanted = self.wanted();
        let found = self.handle().range(space, &wanted);
        if self.is_ordered(space, &self.model) {
            if let Some(found) = unless_lost(found) {
                assert_eq!(found, self.model.range(space, &wanted), "{wanted:?} of {space:?}");
            }
        } else {
            assert_eq!(found.expect_err("it has no order").kind(), ErrorKind::Unsupported);
        }
    }

    fn take_snapshot(&mut self) {
        if self.snapshots.len() == SNAPSHOTS_MAX {
            self.snapshots.remove(0);
        }
        let shot = self.handle().snapshot().expect("there are few");
        self.note(format!("snapshot {}", self.stamp));
        self.snapshots.push((shot, self.model.clone()));
    }

    fn look_at_snapshot(&mut self) {
        if self.snapshots.is_empty() {
            return;
        }
        let place = self.random.below(self.snapshots.len() as u64) as usize;
        let (shot, model) = self.snapshots.remove(place);
        let spaces: Vec<Space> =
            self.model.spaces().filter(|space| self.model.is_same(*space, &model)).collect();
        let space = spaces[self.random.below(spaces.len() as u64) as usize];
        let is_ordered = self.is_ordered(space, &model);
        let is_whole = match self.random.below(3) {
            0 => {
                let keys: Vec<Vec<u8>> = (0..10).map(|_| key(&mut self.random)).collect();
                let found = unless_lost(shot.get_many(self.handle(), space, &keys));
                found.map(|found| model.compare_keys(space, &keys, found)).is_some()
            }
            1 if is_ordered => {
                let wanted = Wanted { limit: u64::MAX >> 1, ..self.wanted() };
                let found = unless_lost(shot.range(self.handle(), space, &wanted));
                found.map(|found| assert_eq!(found, model.range(space, &wanted), "{wanted:?}")).is_some()
            }
            _ => {
                let found = unless_lost(shot.scan(self.handle(), space));
                found.map(|found| model.compare_map(space, &found)).is_some()
            }
        };
        if is_whole && self.one_in(2) {
            self.snapshots.push((shot, model));
        }
    }

    fn make_or_drop(&mut self) {
        let space = Space::Named(self.random.below(u64::from(NAMED)) as u8);
        if self.model.has(space) {
            self.note(format!("drop {space:?}"));
            self.model.remove(space);
            self.patiently(|handle| {
                assert!(handle.drop_keyspace(space)?, "it was there");
                Ok(())
            });
        } else {
            let ordered = self.one_in(2);
            self.note(format!("make {space:?}, ordered {ordered}"));
            self.model.add(space, ordered);
            self.patiently(|handle| handle.make_keyspace(space, ordered));
        }
    }

    fn load(&mut self, space: Space) {
        self.note(format!("load into {space:?}"));
        let mut records = Vec::new();
        for number in 0..=self.random.below(300) {
            let bulk = format!("bulk:{}", self.random.below(200)).into_bytes();
            let key = if self.one_in(4) { key(&mut self.random) } else { bulk };
            records.push((key, value(&mut self.random, self.stamp * 1_000 + number, 5_000)));
        }
        self.handle().load(space, &records).expect("there is room");
        self.model.map(space).extend(records);
    }

    fn compact(&mut self) {
        self.note("compact".into());
        match self.handle().compact() {
            Ok(()) => assert_ne!(self.kind, Kind::Memory),
            Err(error) if self.kind == Kind::Memory => assert_eq!(error.kind(), ErrorKind::Unsupported),
            // Snapshots keep the space that it needs.
            Err(error) => {
                let is_room = matches!(error.kind(), ErrorKind::Retry | ErrorKind::NoSpace);
                assert!(is_room && !self.snapshots.is_empty(), "{error}");
            }
        }
    }

    fn back_up(&mut self) {
        self.made += 1;
        if self.backups.len() == BACKUPS_MAX {
            self.backups.clear();
        }
        let to = self.directory.path().join(format!("backup-{}", self.made));
        let last = self.backups.last().map(|(path, _)| path.clone());
        // Those of stores in persistent memory are whole.
        let base = last.filter(|_| self.kind != Kind::Memory && self.one_in(2));
        self.note(format!("backup {to:?} since {base:?}"));
        match self.handle().back_up(&to, base.as_deref()) {
            Ok(()) => self.backups.push((to, self.model.clone())),
            // The store was opened with another number of shards since.
            Err(error) if base.is_some() && error.kind() == ErrorKind::InvalidInput => {
                assert!(error.message().contains("shards"), "{error}");
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::SnapshotLost, "{error}"),
        }
        if !self.backups.is_empty() && self.one_in(3) {
            self.restore();
        }
    }

    /// Makes a store of some kind of one of the backups, and looks at all that it holds.
    fn restore(&mut self) {
        let place = self.random.below(self.backups.len() as u64) as usize;
        let (kind, is_shared) = (Kind::ALL[self.random.below(3) as usize], self.one_in(2));
        let shards = kind.shards(&mut self.random);
        let (from, model) = &self.backups[place];
        let note = format!("restore {from:?} as {kind:?} of {shards} shards");
        let directory = TemporaryDirectory::new();
        let options = kind.options(&directory.path().join("store"), shards, None);
        tierstone::verify_backup(from, &mut |_| ()).expect("it is whole");
        tierstone::restore(from, &options, &mut |_| ()).expect("there is room");
        let mut handle = Handle::open(&options, is_shared);
        model.compare(&mut handle);
        self.note(note);
    }

    /// Moves a part of the keys to a new store, and mostly takes them back.
    fn split(&mut self) {
        if self.kind == Kind::Memory {
            return;
        }
        let (one, other) = (self.random.below(1 << 14) as u16, self.random.below(1 << 14) as u16);
        let slots = one.min(other)..=one.max(other);
        let kind = [Kind::Device, Kind::Redo][self.random.below(2) as usize];
        let shards = kind.shards(&mut self.random);
        self.note(format!("split {slots:?} to {kind:?} of {shards} shards"));
        // A move follows what is written meanwhile, and needs room for that.
        self.snapshots.clear();
        let directory = TemporaryDirectory::new();
        let options = kind.options(&directory.path().join("store"), shards, Some(self.ordered));
        let is_shared = matches!(self.handle(), Handle::Shared(_));
        let mut target = Handle::open(&options, is_shared);
        self.handle().split_to(&mut target, slots.clone()).expect("nothing is written meanwhile");
        let (here, there) = self.model.parted(|key: &[u8]| !slots.contains(&slot_of(key)));
        here.compare(self.handle());
        there.compare(&mut target);
        if self.one_in(4) {
            self.model = here;
            return;
        }
        target.split_to(self.handle(), 0..=(1 << 14) - 1).expect("nothing is written meanwhile");
        self.compare();
    }
}

/// What was found, unless the snapshot behind it was given up for want of space.
fn unless_lost<T>(found: Result<T>) -> Option<T> {
    match found {
        Err(error) if error.kind() == ErrorKind::SnapshotLost => None,
        found => Some(found.expect("it is read")),
    }
}

#[test]
fn whatever_calls_come_in_whatever_order_the_store_holds_what_it_should() {
    let given = std::env::var("SEED").ok().map(|seed| seed.parse().expect("SEED is a number"));
    let seeds: Vec<u64> = given.map_or_else(|| (0..SEEDS).collect(), |seed| vec![seed]);
    for seed in seeds {
        println!("SEED={seed}");
        let mut run = Run::new(seed);
        run.open();
        (0..STEPS).for_each(|_| run.step());
        run.compare();
        run.close();
        run.open();
        run.close();
    }
}

/// What a map shows of a range.
type Shown = Vec<(Vec<u8>, Vec<u8>)>;

/// What is found twice is not a map.
fn to_map(entries: Shown) -> Map {
    let count = entries.len();
    let map: Map = entries.into_iter().collect();
    assert_eq!(map.len(), count, "a key was given twice");
    map
}
