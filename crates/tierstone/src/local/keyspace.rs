//! One keyspace of a local handle.

use super::{BulkLoad, Store, Ticket, across, expiry_ms, put_of};
use crate::batch::PutOptions;
use crate::bulk::BulkOptions;
use crate::range::{KeyRange, Range};
use crate::scan::{Cursor, Page};
use crate::snapshot::Scan;
use tierstone_base::{KeyspaceId, Result};
use tierstone_engine::Key;

/// A keyspace of a local handle, with a number or a name. Its calls are those of [`Store`].
#[derive(Debug)]
pub struct Keyspace<'s> {
    store: &'s mut Store,
    id: KeyspaceId,
}

impl<'s> Keyspace<'s> {
    pub(crate) fn new(store: &'s mut Store, id: KeyspaceId) -> Self {
        Keyspace { store, id }
    }

    fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        Key { keyspace: self.id, position: self.store.hasher.position(bytes), bytes }
    }

    /// See [`Store::get`].
    ///
    /// # Errors
    /// As there.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_with(key, <[u8]>::to_vec)
    }

    /// See [`Store::get_into`].
    ///
    /// # Errors
    /// As there.
    pub fn get_into(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Ok(self.get_with(key, |bytes| value.extend_from_slice(bytes))?.is_some())
    }

    /// See [`Store::get_with`].
    ///
    /// # Errors
    /// As there.
    pub fn get_with<R>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let key = self.key(key);
        self.store.lane(key.position).1.get_with(key, read)
    }

    /// See [`Store::get_many`].
    ///
    /// # Errors
    /// As there.
    pub fn get_many(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = vec![None; keys.len()];
        let mut failure = None;
        self.store.get_many_with(self.id, keys, |place, value| match value {
            Ok(value) => values[place] = Some(value.to_vec()),
            Err(error) => failure = failure.take().or(Some(error)),
        })?;
        failure.map_or(Ok(values), Err)
    }

    /// See [`Store::put`].
    ///
    /// # Errors
    /// As there.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_with(key, value, PutOptions::default())
    }

    /// See [`Store::put_with`].
    ///
    /// # Errors
    /// As there.
    pub fn put_with(&mut self, key: &[u8], value: &[u8], options: PutOptions) -> Result<()> {
        self.store.release_dropped();
        let key = self.key(key);
        let (shard, lane) = self.store.lane(key.position);
        let expiry_ms = expiry_ms(lane, options);
        let receipt = across::write_on(self.store, shard, &[put_of(key, value, expiry_ms)])?;
        self.store.lanes[usize::from(shard)].commit(receipt)
    }

    /// See [`Store::put_nowait`].
    ///
    /// # Errors
    /// As there.
    pub fn put_nowait(&mut self, key: &[u8], value: &[u8]) -> Result<Ticket> {
        self.store.release_dropped();
        let key = self.key(key);
        let shard = self.store.lane(key.position).0;
        let receipt = across::write_on(self.store, shard, &[put_of(key, value, 0)])?;
        self.store.lanes[usize::from(shard)].attend();
        Ok(Ticket { store: self.store.number, shard, seq: receipt.seq })
    }

    /// See [`Store::delete`].
    ///
    /// # Errors
    /// As there.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool> {
        self.store.release_dropped();
        let key = self.key(key);
        across::attend(self.store);
        let lane = self.store.lane(key.position).1;
        match lane.delete(key)? {
            Some(receipt) => lane.commit(receipt).map(|()| true),
            None => Ok(false),
        }
    }

    /// See [`Store::bulk_load`].
    ///
    /// # Errors
    /// As there.
    pub fn bulk_load(&mut self, options: BulkOptions) -> Result<BulkLoad<'_>> {
        BulkLoad::new(self.store, self.id, options)
    }

    /// See [`Store::scan_page`].
    ///
    /// # Errors
    /// As there.
    pub fn scan_page(&mut self, cursor: Cursor, count: u32) -> Result<Page> {
        self.store.scan_page_in(self.id, cursor, count)
    }

    /// See [`Store::scan`].
    pub fn scan(&mut self) -> Scan<'_> {
        Scan::new(self.store, self.id)
    }

    /// See [`Store::range`].
    pub fn range(&mut self, range: impl KeyRange) -> Range<'_> {
        Range::new(self.store, self.id, range)
    }

    /// See [`Store::len`].
    pub fn len(&self) -> u64 {
        self.store.len_of(self.id)
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
