//! Random operations on both handles against a plain map, with openings in between.

use crate::support::{TemporaryDirectory, backends};
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use tierstone::{Batch, Cursor, DatabaseOptions, Expiry, IndexKind, Prefix, PutOptions, SharedStore, Store};
use tierstone_base::{ErrorKind, Result, SeededRandom};

type Map = BTreeMap<(u32, Vec<u8>), Vec<u8>>;
type Entries = Result<Vec<(Vec<u8>, Vec<u8>)>>;

/// What both handles can do.
trait Handle: Sized {
    fn open(options: &DatabaseOptions) -> Self;
    fn get(&mut self, database: u32, key: &[u8]) -> Option<Vec<u8>>;
    fn get_many(&mut self, database: u32, keys: &[&[u8]]) -> Vec<Option<Vec<u8>>>;
    fn put(&mut self, database: u32, key: &[u8], value: &[u8], options: PutOptions);
    fn put_later(&mut self, key: &[u8], value: &[u8]);
    fn delete(&mut self, database: u32, key: &[u8]) -> bool;
    fn write(&mut self, batch: &Batch) -> Result<()>;
    fn walk(&mut self, database: u32, page: u32) -> BTreeMap<Vec<u8>, Vec<u8>>;
    fn range(&mut self, database: u32, range: (Bound<&[u8]>, Bound<&[u8]>), backward: bool) -> Entries;
    fn len(&mut self, database: u32) -> u64;
    fn sync(&mut self);
    fn close(self);
}

impl Handle for Store {
    fn open(options: &DatabaseOptions) -> Self {
        Store::open(options).unwrap()
    }

    fn get(&mut self, database: u32, key: &[u8]) -> Option<Vec<u8>> {
        self.keyspace(database).unwrap().get(key).unwrap()
    }

    fn get_many(&mut self, database: u32, keys: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
        self.keyspace(database).unwrap().get_many(keys).unwrap()
    }

    fn put(&mut self, database: u32, key: &[u8], value: &[u8], options: PutOptions) {
        self.keyspace(database).unwrap().put_with(key, value, options).unwrap();
    }

    fn put_later(&mut self, key: &[u8], value: &[u8]) {
        let _ticket = self.put_nowait(key, value).unwrap();
    }

    fn delete(&mut self, database: u32, key: &[u8]) -> bool {
        self.keyspace(database).unwrap().delete(key).unwrap()
    }

    fn write(&mut self, batch: &Batch) -> Result<()> {
        Store::write(self, batch)
    }

    fn walk(&mut self, database: u32, page: u32) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut keyspace = self.keyspace(database).unwrap();
        let whole: BTreeMap<_, _> =
            keyspace.scan().map(|entry| entry.map(|entry| (entry.key, entry.value)).unwrap()).collect();
        let (mut paged, mut cursor) = (BTreeMap::new(), Some(Cursor::START));
        while let Some(from) = cursor {
            let page = keyspace.scan_page(from, page).unwrap();
            assert!(page.damaged.is_none());
            paged.extend(page.entries.into_iter().map(|entry| (entry.key, entry.value)));
            cursor = page.next;
        }
        same(&paged, &whole);
        whole
    }

    fn range(&mut self, database: u32, range: (Bound<&[u8]>, Bound<&[u8]>), backward: bool) -> Entries {
        let mut keyspace = self.keyspace(database).unwrap();
        let walk = keyspace.range(range);
        let walk = if backward { walk.backward() } else { walk };
        walk.map(|entry| entry.map(|entry| (entry.key, entry.value))).collect()
    }

    fn len(&mut self, database: u32) -> u64 {
        self.keyspace(database).unwrap().len()
    }

    fn sync(&mut self) {
        Store::sync(self).unwrap();
    }

    fn close(self) {
        Store::close(self).unwrap();
    }
}

impl Handle for SharedStore {
    fn open(options: &DatabaseOptions) -> Self {
        SharedStore::open(options).unwrap()
    }

    fn get(&mut self, database: u32, key: &[u8]) -> Option<Vec<u8>> {
        self.keyspace(database).unwrap().get(key).unwrap()
    }

    fn get_many(&mut self, database: u32, keys: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
        self.keyspace(database).unwrap().get_many(keys).unwrap()
    }

    fn put(&mut self, database: u32, key: &[u8], value: &[u8], options: PutOptions) {
        self.keyspace(database).unwrap().put_with(key, value, options).unwrap();
    }

    fn put_later(&mut self, key: &[u8], value: &[u8]) {
        let answer = self.put_async(key, value);
        // Another request for the same key would have no order with it.
        pollster(self.sync_async()).unwrap();
        pollster(answer).unwrap();
    }

    fn delete(&mut self, database: u32, key: &[u8]) -> bool {
        self.keyspace(database).unwrap().delete(key).unwrap()
    }

    fn write(&mut self, batch: &Batch) -> Result<()> {
        SharedStore::write(self, batch)
    }

    fn walk(&mut self, database: u32, _page: u32) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let walk = self.keyspace(database).unwrap().scan();
        walk.map(|entry| entry.map(|entry| (entry.key, entry.value)).unwrap()).collect()
    }

    fn range(&mut self, database: u32, range: (Bound<&[u8]>, Bound<&[u8]>), backward: bool) -> Entries {
        let keyspace = self.keyspace(database).unwrap();
        let walk = || {
            let walk = keyspace.range(range);
            if backward { walk.backward() } else { walk }
        };
        let all: Result<Vec<_>> = walk().map(|entry| entry.map(|entry| (entry.key, entry.value))).collect();
        let mut walk = walk();
        let first = pollster(walk.next_async()).transpose().map(|entry| entry.map(|entry| entry.key));
        match (&all, first) {
            (Ok(all), Ok(first)) => assert_eq!(first.as_ref(), all.first().map(|(key, _)| key)),
            (Err(_), Err(_)) => {}
            (all, first) => panic!("{all:?}, to tasks {first:?}"),
        }
        all
    }

    fn len(&mut self, database: u32) -> u64 {
        self.keyspace(database).unwrap().len().unwrap()
    }

    fn sync(&mut self) {
        SharedStore::sync(self).unwrap();
    }

    fn close(self) {
        SharedStore::close(&self).unwrap();
    }
}

/// The smallest executor: polls, and parks the thread in between.
fn pollster<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

fn key(random: &mut SeededRandom) -> Vec<u8> {
    let number = random.below(400);
    let mut key = format!("key:{number}").into_bytes();
    key.extend(std::iter::repeat_n(b'k', (number % 7 * 30) as usize));
    key
}

fn value(random: &mut SeededRandom) -> Vec<u8> {
    let most = if random.chance(0.05) { 30_000 } else { 600 };
    let mut value = vec![0; random.below(most) as usize];
    random.fill(&mut value);
    value
}

/// One random operation.
fn operate<H: Handle>(handle: &mut H, map: &mut Map, random: &mut SeededRandom) {
    let database = random.below(3) as u32;
    match random.below(100) {
        0..35 => {
            let (key, value) = (key(random), value(random));
            handle.put(database, &key, &value, PutOptions::default());
            map.insert((database, key), value);
        }
        35..45 => {
            let (key, value) = (key(random), value(random));
            handle.put_later(&key, &value);
            map.insert((0, key), value);
        }
        45..60 => {
            let key = key(random);
            let existed = handle.delete(database, &key);
            assert_eq!(existed, map.remove(&(database, key)).is_some());
        }
        60..64 => {
            let key = key(random);
            handle.put(database, &key, b"gone", PutOptions { expiry: Expiry::At(1) });
            map.remove(&(database, key));
        }
        64..72 => {
            let mut batch = Batch::new();
            for _ in 0..random.below(40) {
                let (database, key) = (random.below(3) as u32, key(random));
                batch.in_database(database);
                if random.chance(0.3) {
                    batch.delete(&key);
                    map.remove(&(database, key));
                } else {
                    let value = value(random);
                    batch.put(&key, &value);
                    map.insert((database, key), value);
                }
            }
            handle.write(&batch).unwrap();
        }
        72..80 => {
            let keys: Vec<Vec<u8>> = (0..random.below(60)).map(|_| key(random)).collect();
            let views: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let expected: Vec<_> =
                keys.iter().map(|key| map.get(&(database, key.clone())).cloned()).collect();
            assert!(handle.get_many(database, &views) == expected, "get_many differs");
        }
        _ => {
            let key = key(random);
            let found = handle.get(database, &key);
            assert!(found.as_ref() == map.get(&(database, key.clone())), "{} differs", key.escape_ascii());
        }
    }
}

/// Says which keys differ, and not all that there are.
fn same(found: &BTreeMap<Vec<u8>, Vec<u8>>, expected: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let differ = |key: &&Vec<u8>| found.get(*key) != expected.get(*key);
    let keys: Vec<_> =
        found.keys().chain(expected.keys()).filter(differ).map(|key| key.escape_ascii()).collect();
    let first: Vec<String> = keys.iter().take(5).map(ToString::to_string).collect();
    assert!(
        keys.is_empty(),
        "{} keys differ (found {}, expected {}): {first:?}",
        keys.len(),
        found.len(),
        expected.len()
    );
}

/// A random range of an ordered database, or the refusal of one without order.
fn compare_range<H: Handle>(handle: &mut H, map: &Map, random: &mut SeededRandom, ordered: bool) {
    let (database, low, high) = (random.below(3) as u32, key(random), key(random));
    let low = if random.chance(0.3) { Bound::Unbounded } else { Bound::Included(low.as_slice()) };
    let high = if random.chance(0.3) { Bound::Unbounded } else { Bound::Excluded(high.as_slice()) };
    let backward = random.chance(0.5);
    let found = match handle.range(database, (low, high), backward) {
        Err(error) if !ordered => return assert_eq!(error.kind(), ErrorKind::Unsupported),
        found => found.unwrap(),
    };
    let of_database = map.iter().filter(|((number, key), _)| {
        *number == database && RangeBounds::<[u8]>::contains(&(low, high), key.as_slice())
    });
    let mut expected: Vec<_> = of_database.map(|((_, key), value)| (key.clone(), value.clone())).collect();
    if backward {
        expected.reverse();
    }
    assert!(ordered && found == expected, "{low:?} to {high:?}: {} of {}", found.len(), expected.len());
}

fn compare<H: Handle>(handle: &mut H, map: &Map, random: &mut SeededRandom) {
    for database in 0..3 {
        let of_database = map.iter().filter(|((number, _), _)| *number == database);
        let expected: BTreeMap<_, _> =
            of_database.map(|((_, key), value)| (key.clone(), value.clone())).collect();
        same(&handle.walk(database, 1 + random.below(50) as u32), &expected);
        assert!(handle.len(database) >= expected.len() as u64);
    }
}

/// Ordered for odd seeds.
fn ordered_at_times(options: DatabaseOptions, seed: u64) -> DatabaseOptions {
    let index = (seed % 2 == 1).then_some(IndexKind::Ordered);
    DatabaseOptions { index, ..options }
}

/// Lives of a store, each ended by closing it or by dropping it after a sync.
fn model<H: Handle>(options: &DatabaseOptions, seed: u64) {
    println!("seed {seed}, {:?}, {} shards", options.backend, options.shards);
    let mut random = SeededRandom::new(seed);
    let mut map = Map::new();
    for _ in 0..4 {
        let mut handle = H::open(options);
        let ordered = options.index == Some(IndexKind::Ordered);
        compare(&mut handle, &map, &mut random);
        compare_range(&mut handle, &map, &mut random, ordered);
        for number in 0..250 {
            operate(&mut handle, &mut map, &mut random);
            if number % 20 == 0 {
                compare_range(&mut handle, &map, &mut random, ordered);
            }
        }
        compare(&mut handle, &map, &mut random);
        if random.chance(0.5) {
            handle.close();
        } else {
            handle.sync();
            drop(handle);
        }
    }
}

#[test]
fn the_local_handle_behaves_like_a_map() {
    for backend in backends() {
        for seed in 1..=3 {
            let directory = TemporaryDirectory::new();
            model::<Store>(&ordered_at_times(directory.options(backend), seed), seed);
        }
    }
}

#[test]
fn the_shared_handle_behaves_like_a_map() {
    for backend in backends() {
        for seed in 11..=13 {
            let directory = TemporaryDirectory::new();
            model::<SharedStore>(&ordered_at_times(directory.options(backend), seed), seed);
        }
    }
}

#[test]
fn any_number_of_shards_and_either_handle_opens_the_same_store() {
    let directory = TemporaryDirectory::new();
    let options =
        |shards| DatabaseOptions { shards, memory_bytes: 8 << 20, ..directory.options(Default::default()) };
    let mut expected = BTreeMap::new();
    let mut store = Store::open(&options(3)).unwrap();
    for number in 0..500u32 {
        let (key, value) = (format!("key:{number}").into_bytes(), vec![number as u8; 200]);
        store.put(&key, &value).unwrap();
        expected.insert(key, value);
    }
    assert_eq!(store.len(), 500);
    same(&store.walk(0, 7), &expected);
    let mut apart = Batch::new();
    for number in 0..50u32 {
        apart.put(format!("key:{number}").as_bytes(), b"");
    }
    store.write(&apart).unwrap();
    expected.extend((0..50u32).map(|number| (format!("key:{number}").into_bytes(), Vec::new())));
    let mut together = Batch::new();
    together.put(b"{tag}one", b"1").put(b"{tag}two", b"2").delete(b"{tag}three");
    store.write(&together).unwrap();
    expected.extend([(b"{tag}one".to_vec(), b"1".to_vec()), (b"{tag}two".to_vec(), b"2".to_vec())]);
    drop(store);
    for shards in [2, 1] {
        let mut store: SharedStore = Handle::open(&options(shards));
        same(&Handle::walk(&mut store, 0, 9), &expected);
        let keys: Vec<&[u8]> = expected.keys().map(Vec::as_slice).collect();
        let values = SharedStore::get_many(&store, &keys).unwrap();
        assert!(values.iter().zip(expected.values()).all(|(found, value)| found.as_ref() == Some(value)));
        if shards == 2 {
            SharedStore::write(&store, &apart).unwrap();
            SharedStore::write(&store, &together).unwrap();
        }
        SharedStore::close(&store).unwrap();
    }
    let mut store = Store::open(&options(5)).unwrap();
    assert!(store.database().report().clean);
    same(&store.walk(0, 3), &expected);
}

#[test]
fn ranges_are_merged_over_any_number_of_shards() {
    let directory = TemporaryDirectory::new();
    let options = |shards| DatabaseOptions {
        shards,
        memory_bytes: 8 << 20,
        index: Some(IndexKind::Ordered),
        ..directory.options(Default::default())
    };
    let keys: Vec<Vec<u8>> = (0..2_000u32).map(|number| format!("key:{number:04}").into_bytes()).collect();
    let mut store = Store::open(&options(3)).unwrap();
    for key in &keys {
        let _ticket = store.put_nowait(key, &key.repeat(20)).unwrap();
    }
    store.sync().unwrap();
    drop(store);
    for shards in [1, 2, 5] {
        let mut store = Store::open(&options(shards)).unwrap();
        let found: Result<Vec<_>> = store.range(..).map(|entry| entry.map(|entry| entry.key)).collect();
        assert!(found.unwrap() == keys, "{shards} shards");
        let mut back = store.range("key:0100".."key:1900").backward();
        for key in keys[100..1900].iter().rev().take(700) {
            let entry = back.next().unwrap().unwrap();
            assert!(entry.key == *key && entry.value == key.repeat(20));
        }
    }
    let store = SharedStore::open(&options(4)).unwrap();
    let found: Result<Vec<_>> =
        store.range(Prefix("key:12")).map(|entry| entry.map(|entry| entry.key)).collect();
    assert!(found.unwrap() == keys[1200..1300]);
    SharedStore::close(&store).unwrap();
    assert!(store.range(..).next().unwrap().is_err());
}
