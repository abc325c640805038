//! Requests in one keyspace of the shared handle.

use super::answer::Answer;
use super::message::{Message, OwnedKey, OwnedPut};
use super::waiter::Caller;
use super::{Inner, SharedBulkLoad, SharedRange, SharedScan, SharedStore};
use crate::batch::{PutOptions, Until};
use crate::bulk::BulkOptions;
use crate::range::KeyRange;
use crate::scan::{Cursor, Page};
use std::future::Future;
use tierstone_base::clock::Clock;
use tierstone_base::{KeyspaceId, Result};

/// A shard's part of a get of many: places in the caller's list, and the answer.
pub(super) type Part = (Vec<usize>, Answer<Vec<Option<Vec<u8>>>>);

impl Inner {
    fn owned(&self, keyspace: KeyspaceId, key: &[u8]) -> (u16, OwnedKey) {
        let position = self.hasher.position(key);
        (position.shard(self.shards()), OwnedKey { keyspace, position, bytes: key.to_vec() })
    }

    pub(super) fn get(&self, caller: Caller, keyspace: KeyspaceId, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        let (shard, key) = self.owned(keyspace, key);
        self.ask_for(caller, shard, |reply| Message::Get { key, reply })
    }

    /// The keys of each shard that has some, with their places in the caller's list.
    pub(super) fn of_shards(
        &self,
        keyspace: KeyspaceId,
        keys: &[&[u8]],
    ) -> impl Iterator<Item = (u16, Vec<usize>, Vec<OwnedKey>)> + use<> {
        let mut of_shard: Vec<(Vec<usize>, Vec<OwnedKey>)> = Vec::new();
        of_shard.resize_with(self.mailboxes.len(), Default::default);
        for (place, key) in keys.iter().enumerate() {
            let (shard, key) = self.owned(keyspace, key);
            let (places, keys) = &mut of_shard[usize::from(shard)];
            places.push(place);
            keys.push(key);
        }
        let some = of_shard.into_iter().zip(0..).filter(|((places, _), _)| !places.is_empty());
        some.map(|((places, keys), shard)| (shard, places, keys))
    }

    pub(super) fn get_many(&self, keyspace: KeyspaceId, keys: &[&[u8]]) -> Vec<Part> {
        self.of_shards(keyspace, keys)
            .map(|(shard, places, keys)| (places, self.ask(shard, |reply| Message::GetMany { keys, reply })))
            .collect()
    }

    pub(super) fn put(
        &self,
        caller: Caller,
        keyspace: KeyspaceId,
        (key, value): (&[u8], &[u8]),
        options: PutOptions,
    ) -> Answer<()> {
        let position = self.hasher.position(key);
        let mut bytes = Vec::with_capacity(key.len() + value.len());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        let until = Until::of(options.expiry, || self.clock.now());
        let put = OwnedPut { keyspace, position, bytes, key_len: key.len(), until };
        self.ask_for(caller, position.shard(self.shards()), |reply| Message::Put { put, reply })
    }

    pub(super) fn delete(&self, caller: Caller, keyspace: KeyspaceId, key: &[u8]) -> Answer<bool> {
        let (shard, key) = self.owned(keyspace, key);
        self.ask_for(caller, shard, |reply| Message::Delete { key, reply })
    }

    pub(super) fn scan_page(&self, keyspace: KeyspaceId, cursor: Cursor, count: u32) -> Answer<Page> {
        let shard = cursor.0.shard(self.shards());
        self.ask(shard, |reply| Message::Scan { keyspace, cursor, count, reply })
    }

    pub(super) fn len(&self, keyspace: KeyspaceId) -> Result<u64> {
        let answers = self.ask_all(|reply| Message::Len { keyspace, reply });
        answers.into_iter().map(Answer::wait).sum()
    }
}

/// Puts the shards' values where the caller asked for them.
pub(super) fn gather(
    parts: Vec<Part>,
    count: usize,
    wait: impl Fn(Answer<Vec<Option<Vec<u8>>>>) -> Result<Vec<Option<Vec<u8>>>>,
) -> Result<Vec<Option<Vec<u8>>>> {
    let mut values = vec![None; count];
    for (places, answer) in parts {
        for (place, value) in places.into_iter().zip(wait(answer)?) {
            values[place] = value;
        }
    }
    Ok(values)
}

/// The same for tasks.
pub(super) async fn gather_async(parts: Vec<Part>, count: usize) -> Result<Vec<Option<Vec<u8>>>> {
    let mut values = vec![None; count];
    for (places, answer) in parts {
        for (place, value) in places.into_iter().zip(answer.await?) {
            values[place] = value;
        }
    }
    Ok(values)
}

/// A keyspace of a shared handle, with a number or a name. Its calls are those of [`SharedStore`].
#[derive(Clone, Debug)]
pub struct SharedKeyspace {
    store: SharedStore,
    id: KeyspaceId,
}

impl SharedKeyspace {
    pub(super) fn new(store: SharedStore, id: KeyspaceId) -> Self {
        SharedKeyspace { store, id }
    }

    /// See [`SharedStore::get`].
    ///
    /// # Errors
    /// As there.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.store.inner.get(Caller::Waits, self.id, key).wait()
    }

    /// See [`SharedStore::get_async`].
    pub fn get_async(&self, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        self.store.inner.get(Caller::GoesOn, self.id, key)
    }

    /// See [`SharedStore::get_many`].
    ///
    /// # Errors
    /// As there.
    pub fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        gather(self.store.inner.get_many(self.id, keys), keys.len(), Answer::wait)
    }

    /// See [`SharedStore::get_many_async`].
    pub fn get_many_async(
        &self,
        keys: &[&[u8]],
    ) -> impl Future<Output = Result<Vec<Option<Vec<u8>>>>> + Send + use<> {
        gather_async(self.store.inner.get_many(self.id, keys), keys.len())
    }

    /// See [`SharedStore::put`].
    ///
    /// # Errors
    /// As there.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_with(key, value, PutOptions::default())
    }

    /// See [`SharedStore::put_with`].
    ///
    /// # Errors
    /// As there.
    pub fn put_with(&self, key: &[u8], value: &[u8], options: PutOptions) -> Result<()> {
        self.store.inner.put(Caller::writes(), self.id, (key, value), options).wait()
    }

    /// See [`SharedStore::put_with_async`].
    pub fn put_with_async(&self, key: &[u8], value: &[u8], options: PutOptions) -> Answer<()> {
        self.store.inner.put(Caller::GoesOn, self.id, (key, value), options)
    }

    /// See [`SharedStore::delete`].
    ///
    /// # Errors
    /// As there.
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        self.store.inner.delete(Caller::writes(), self.id, key).wait()
    }

    /// See [`SharedStore::delete_async`].
    pub fn delete_async(&self, key: &[u8]) -> Answer<bool> {
        self.store.inner.delete(Caller::GoesOn, self.id, key)
    }

    /// See [`SharedStore::bulk_load`].
    ///
    /// # Errors
    /// As there.
    pub fn bulk_load(&self, options: BulkOptions) -> Result<SharedBulkLoad> {
        SharedBulkLoad::new(self.store.clone(), self.id, options)
    }

    /// See [`SharedStore::scan_page`].
    ///
    /// # Errors
    /// As there.
    pub fn scan_page(&self, cursor: Cursor, count: u32) -> Result<Page> {
        self.store.inner.scan_page(self.id, cursor, count).wait()
    }

    /// See [`SharedStore::scan`].
    pub fn scan(&self) -> SharedScan {
        SharedScan::new(self.store.clone(), self.id)
    }

    /// See [`SharedStore::range`].
    pub fn range(&self, range: impl KeyRange) -> SharedRange {
        SharedRange::new(self.store.clone(), self.id, range)
    }

    /// See [`SharedStore::len`].
    ///
    /// # Errors
    /// As there.
    pub fn len(&self) -> Result<u64> {
        self.store.inner.len(self.id)
    }

    /// Whether there is no key.
    ///
    /// # Errors
    /// As [`SharedStore::len`].
    pub fn is_empty(&self) -> Result<bool> {
        self.len().map(|count| count == 0)
    }
}

#[cfg(test)]
#[path = "keyspace_test.rs"]
mod keyspace_test;
