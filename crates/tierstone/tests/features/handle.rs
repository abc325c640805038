//! Both handles under one name.

use super::model::Map;
use super::{Shown, to_map};
use std::ops::{Bound, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use tierstone::{
    Answer, Batch, BulkOptions, Cursor, DatabaseOptions, Entry, IndexKind, Keyspace, KeyspaceOptions,
    PutOptions, RedoOptions, SharedKeyspace, SharedSnapshot, SharedSnapshotKeyspace, SharedStore, Snapshot,
    SnapshotKeyspace, Store,
};
use tierstone_base::{Result, SeededRandom};

/// Where a store lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Device,
    /// On the device, with a redo log in a region.
    Redo,
    /// Wholly in a region.
    Memory,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Device, Kind::Redo, Kind::Memory];

    /// A number of shards for the next opening. A store in memory keeps the one that it was made with.
    pub fn shards(self, random: &mut SeededRandom) -> u16 {
        if self == Kind::Memory { 2 } else { 1 + random.below(3) as u16 }
    }

    pub fn options(self, path: &Path, shards: u16, ordered: Option<bool>) -> DatabaseOptions {
        let is_in_memory = self == Kind::Memory;
        let region = PathBuf::from(format!("nvm:{}", path.display()));
        let redo = RedoOptions {
            new_bytes: Some(16 << 20),
            ..RedoOptions::new(path.with_extension("redo").display().to_string())
        };
        DatabaseOptions {
            shards,
            databases: u32::from(super::DATABASES),
            memory_bytes: 4 << 20,
            capacity_bytes: Some(96 << 20),
            segment_bytes: (!is_in_memory).then_some(256 << 10),
            index: ordered.map(|ordered| if ordered { IndexKind::Ordered } else { IndexKind::Hash }),
            redo: (self == Kind::Redo).then_some(redo),
            any_guarantee: true,
            ..DatabaseOptions::new(if is_in_memory { region } else { path.to_path_buf() })
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Space {
    Database(u8),
    Named(u8),
}

impl Space {
    pub fn name(self) -> String {
        format!("{self:?}")
    }
}

/// What a range asks for.
#[derive(Debug)]
pub struct Wanted {
    pub bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    pub backward: bool,
    pub limit: u64,
    /// Of the shared handle: without a snapshot.
    pub live: bool,
}

#[expect(clippy::large_enum_variant, reason = "there are two at most")]
pub enum Handle {
    Shared(SharedStore),
    Local(Store),
}

pub enum Shot {
    Shared(SharedSnapshot),
    Local(Snapshot),
}

/// Does the same with the keyspace of either handle.
macro_rules! within {
    ($handle:expr, $space:expr, |$keyspace:ident| $body:expr) => {
        match $handle {
            Handle::Shared(store) => {
                let $keyspace = shared_keyspace(store, $space)?;
                $body
            }
            Handle::Local(store) => {
                #[allow(unused_mut, reason = "not all calls change it")]
                let mut $keyspace = local_keyspace(store, $space)?;
                $body
            }
        }
    };
}

/// Does the same with either handle.
macro_rules! either {
    ($handle:expr, |$store:ident| $body:expr) => {
        match $handle {
            Handle::Shared($store) => $body,
            Handle::Local($store) => $body,
        }
    };
}

const THERE: KeyspaceOptions = KeyspaceOptions { index: None, create: false };

fn shared_keyspace(store: &SharedStore, space: Space) -> Result<SharedKeyspace> {
    match space {
        Space::Database(number) => store.keyspace(u32::from(number)),
        Space::Named(_) => store.open_keyspace(&space.name(), THERE),
    }
}

fn local_keyspace(store: &mut Store, space: Space) -> Result<Keyspace<'_>> {
    match space {
        Space::Database(number) => store.keyspace(u32::from(number)),
        Space::Named(_) => store.open_keyspace(&space.name(), THERE),
    }
}

fn shown(entries: impl Iterator<Item = Result<Entry>>) -> Result<Shown> {
    entries.map(|entry| entry.map(|entry| (entry.key, entry.value))).collect()
}

fn views(keys: &[Vec<u8>]) -> Vec<&[u8]> {
    keys.iter().map(Vec::as_slice).collect()
}

/// The smallest executor: polls, and parks the thread in between.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// The answer, if nobody has to wait for it.
fn there(answer: Answer<()>) -> Option<Result<()>> {
    match std::pin::pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

impl Handle {
    pub fn open(options: &DatabaseOptions, is_shared: bool) -> Handle {
        match is_shared {
            true => Handle::Shared(SharedStore::open(options).expect("it opens")),
            false => Handle::Local(Store::open(options).expect("it opens")),
        }
    }

    pub fn close(self, in_good_order: bool) {
        if in_good_order {
            either!(self, |store| store.close()).expect("the device works");
        }
    }

    pub fn put(&mut self, space: Space, key: &[u8], value: &[u8], options: PutOptions) -> Result<()> {
        within!(self, space, |keyspace| keyspace.put_with(key, value, options))
    }

    /// Puts without waiting, and waits for everything then.
    pub fn put_later(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Handle::Shared(store) => {
                let answer = shared_keyspace(store, space)?.put_with_async(key, value, PutOptions::default());
                block_on(store.sync_async())?;
                there(answer).expect("a sync is answered after what was sent before")
            }
            Handle::Local(store) => {
                let ticket = local_keyspace(store, space)?.put_nowait(key, value)?;
                store.wait(ticket)
            }
        }
    }

    pub fn delete(&mut self, space: Space, key: &[u8]) -> Result<bool> {
        within!(self, space, |keyspace| keyspace.delete(key))
    }

    pub fn get_many(&mut self, space: Space, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        within!(self, space, |keyspace| keyspace.get_many(&views(keys)))
    }

    pub fn write(&mut self, batch: &Batch) -> Result<()> {
        either!(self, |store| store.write(batch))
    }

    pub fn scan(&mut self, space: Space) -> Result<Map> {
        within!(self, space, |keyspace| shown(keyspace.scan()).map(to_map))
    }

    /// The same as [`Handle::scan`], page by page of about `count`.
    pub fn pages(&mut self, space: Space, count: u32) -> Result<Map> {
        within!(self, space, |keyspace| {
            let (mut map, mut cursor) = (Map::new(), Some(Cursor::START));
            while let Some(from) = cursor {
                let page = keyspace.scan_page(from, count)?;
                assert!(page.damaged.is_none(), "{:?}", page.damaged);
                map.extend(page.entries.into_iter().map(|entry| (entry.key, entry.value)));
                cursor = page.next;
            }
            Ok(map)
        })
    }

    /// How many keys there are, those that have expired among them.
    pub fn len(&mut self, space: Space) -> Result<u64> {
        match self {
            Handle::Shared(store) => shared_keyspace(store, space)?.len(),
            Handle::Local(store) => Ok(local_keyspace(store, space)?.len()),
        }
    }

    pub fn range(&mut self, space: Space, wanted: &Wanted) -> Result<Shown> {
        let bounds = wanted.bounds.clone();
        match self {
            Handle::Shared(store) => {
                let keyspace = shared_keyspace(store, space)?;
                let range = keyspace.range(bounds);
                let range = if wanted.live { range.live() } else { range };
                let range = if wanted.backward { range.backward() } else { range };
                let mut range = range.limit(wanted.limit);
                // As tasks get it; the rest as threads do.
                let first = block_on(range.next_async());
                shown(first.into_iter().chain(range))
            }
            Handle::Local(store) => {
                let mut keyspace = local_keyspace(store, space)?;
                let range = keyspace.range(bounds);
                let range = if wanted.backward { range.backward() } else { range };
                shown(range.limit(wanted.limit))
            }
        }
    }

    pub fn load(&mut self, space: Space, records: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        within!(self, space, |keyspace| {
            let mut load = keyspace.bulk_load(BulkOptions::default())?;
            records.iter().try_for_each(|(key, value)| load.put(key, value))?;
            load.finish().map(|_| ())
        })
    }

    pub fn make_keyspace(&mut self, space: Space, ordered: bool) -> Result<()> {
        let index = Some(if ordered { IndexKind::Ordered } else { IndexKind::Hash });
        let options = KeyspaceOptions { index, create: true };
        either!(self, |store| store.open_keyspace(&space.name(), options).map(|_| ()))
    }

    pub fn drop_keyspace(&mut self, space: Space) -> Result<bool> {
        either!(self, |store| store.drop_keyspace(&space.name()))
    }

    pub fn names(&mut self) -> Vec<String> {
        let all = either!(self, |store| store.keyspaces());
        let mut names: Vec<String> = all.into_iter().map(|keyspace| keyspace.name).collect();
        names.sort();
        names
    }

    pub fn snapshot(&mut self) -> Result<Shot> {
        match self {
            Handle::Shared(store) => store.snapshot().map(Shot::Shared),
            Handle::Local(store) => store.snapshot().map(Shot::Local),
        }
    }

    pub fn sync(&mut self) {
        either!(self, |store| store.sync()).expect("the device works");
    }

    pub fn compact(&mut self) -> Result<()> {
        match self {
            Handle::Shared(store) => store.compact(|_| ()),
            Handle::Local(store) => store.compact(|_, _| ()),
        }
    }

    /// What is damaged.
    pub fn verify(&mut self) -> Vec<String> {
        let found = either!(self, |store| store.verify(&mut |_| ())).expect("the device works");
        found.damage.iter().map(|damage| format!("{damage:?}")).collect()
    }

    pub fn back_up(&mut self, to: &Path, base: Option<&Path>) -> Result<()> {
        let made = either!(self, |store| match base {
            None => store.backup(to, &mut |_| ()),
            Some(base) => store.backup_since(base, to, &mut |_| ()),
        });
        made.map(|_| ())
    }

    pub fn split_to(&mut self, target: &mut Handle, slots: RangeInclusive<u16>) -> Result<()> {
        let moved = match (self, target) {
            (Handle::Shared(source), Handle::Shared(target)) => source.split_to(target, slots, |_| ()),
            (Handle::Local(source), Handle::Local(target)) => source.split_to(target, slots, |_, _, _| ()),
            _ => unreachable!("both are of one kind"),
        };
        moved.map(|_| ())
    }
}

impl Shot {
    pub fn get_many(
        &self,
        handle: &mut Handle,
        space: Space,
        keys: &[Vec<u8>],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        match (self, handle) {
            (Shot::Local(shot), Handle::Local(store)) => {
                local_shot(shot, store, space)?.get_many(&views(keys))
            }
            (Shot::Shared(shot), _) => shared_shot(shot, space)?.get_many(&views(keys)),
            _ => unreachable!("both are of one kind"),
        }
    }

    pub fn scan(&self, handle: &mut Handle, space: Space) -> Result<Map> {
        let entries = match (self, handle) {
            (Shot::Local(shot), Handle::Local(store)) => shown(local_shot(shot, store, space)?.into_scan()),
            (Shot::Shared(shot), _) => shown(shared_shot(shot, space)?.scan()),
            _ => unreachable!("both are of one kind"),
        };
        entries.map(to_map)
    }

    pub fn range(&self, handle: &mut Handle, space: Space, wanted: &Wanted) -> Result<Shown> {
        let bounds = wanted.bounds.clone();
        match (self, handle) {
            (Shot::Local(shot), Handle::Local(store)) => {
                let range = local_shot(shot, store, space)?.into_range(bounds);
                if wanted.backward { shown(range.backward()) } else { shown(range) }
            }
            (Shot::Shared(shot), _) => {
                let range = shared_shot(shot, space)?.range(bounds);
                if wanted.backward { shown(range.backward()) } else { shown(range) }
            }
            _ => unreachable!("both are of one kind"),
        }
    }
}

fn local_shot<'s>(shot: &'s Snapshot, store: &'s mut Store, space: Space) -> Result<SnapshotKeyspace<'s>> {
    match space {
        Space::Database(number) => shot.keyspace(store, u32::from(number)),
        Space::Named(_) => shot.named(store, &space.name()),
    }
}

fn shared_shot(shot: &SharedSnapshot, space: Space) -> Result<SharedSnapshotKeyspace<'_>> {
    match space {
        Space::Database(number) => shot.keyspace(u32::from(number)),
        Space::Named(_) => shot.named(&space.name()),
    }
}
