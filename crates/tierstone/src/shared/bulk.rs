//! Bulk loads of the shared handle.
//!
//! Invariant: a shard has at most one stage that gathers and [`BulkOptions::STAGES_MAX`] with it.

use super::message::Message;
use super::{Answer, SharedStore};
use crate::batch::{PutOptions, Until};
use crate::bulk::{BulkOptions, Loaded, Stage, check_lengths};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use tierstone_base::clock::Clock;
use tierstone_base::{KeyspaceId, Result};

/// Very many records on their way into a store: see [`SharedStore::bulk_load`].
///
/// What was put and not [synced](SharedBulkLoad::sync) when this is dropped may be there or not.
#[derive(Debug)]
pub struct SharedBulkLoad {
    store: SharedStore,
    lanes: Vec<Lane>,
    id: KeyspaceId,
    /// Which of the store's loads it is.
    number: u64,
    options: BulkOptions,
    loaded: Loaded,
}

/// The way of one shard's records.
#[derive(Debug)]
struct Lane {
    gathers: Stage,
    /// What the shard has been given, in order; each comes back when it is applied.
    given: VecDeque<Answer<Stage>>,
}

impl SharedStore {
    /// Begins to load very many records into database 0, as [`Store::bulk_load`](crate::Store::bulk_load). Each shard's thread
    /// writes while the next stage gathers; several loads, of several threads, may go on at the same
    /// time, and others may read and write meanwhile.
    ///
    /// ```
    /// # use tierstone::{DatabaseOptions, SharedStore};
    /// # let directory = std::env::temp_dir().join(format!("tierstone-doc-bulks-{}", std::process::id()));
    /// # let _ = std::fs::remove_dir_all(&directory);
    /// let store = SharedStore::open(&DatabaseOptions { shards: 2, ..DatabaseOptions::new(&directory) })?;
    /// let mut load = store.bulk_load(Default::default())?;
    /// for number in 0..10_000u32 {
    ///     load.put(&number.to_be_bytes(), b"value")?;
    /// }
    /// assert_eq!(load.finish()?.records, 10_000); // all durable from here on
    /// # store.close()?;
    /// # std::fs::remove_dir_all(&directory).unwrap();
    /// # Ok::<(), tierstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput`: the options are out of their range.
    pub fn bulk_load(&self, options: BulkOptions) -> Result<SharedBulkLoad> {
        SharedBulkLoad::new(self.clone(), self.first(), options)
    }
}

impl SharedBulkLoad {
    pub(super) fn new(store: SharedStore, id: KeyspaceId, options: BulkOptions) -> Result<Self> {
        let options = options.check()?;
        let number = store.inner.loads.fetch_add(1, Ordering::Relaxed);
        let lane = |_| Lane { gathers: Stage::new(id, number), given: VecDeque::new() };
        let lanes = (0..store.inner.shards()).map(lane).collect();
        Ok(SharedBulkLoad { store, lanes, id, number, options, loaded: Loaded::default() })
    }

    /// Puts a value; the last one of a key counts. Returns when it is staged; a full stage is handed to its
    /// shard first, which waits while that has as many as it takes.
    ///
    /// # Errors
    /// `InvalidInput`: key or value is too long; others are not touched. As [`SharedStore::put`] otherwise:
    /// some of the records that were staged were written, the others are lost.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_with(key, value, PutOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`SharedBulkLoad::put`].
    pub fn put_with(&mut self, key: &[u8], value: &[u8], options: PutOptions) -> Result<()> {
        check_lengths(key, value, self.store.inner.value_bytes_max)?;
        let position = self.store.inner.hasher.position(key);
        let shard = position.shard(self.lanes.len() as u16);
        let until = Until::of(options.expiry, || self.store.inner.clock.now());
        if !self.lanes[usize::from(shard)].gathers.has_room(key.len() + value.len(), self.options.stage_bytes)
        {
            self.send_stage(shard)?;
        }
        self.lanes[usize::from(shard)].gathers.push(position, key, value, until);
        Ok(())
    }

    /// Writes what is staged and waits until everything that was put is durable, in `relaxed` too; gives
    /// what was written since the load began.
    ///
    /// # Errors
    /// As [`SharedStore::put`].
    pub fn sync(&mut self) -> Result<Loaded> {
        for shard in 0..self.lanes.len() {
            self.send_stage(shard as u16)?;
        }
        for shard in 0..self.lanes.len() {
            while self.settle_one(shard as u16)?.is_some() {}
        }
        self.store.sync()?;
        Ok(self.loaded)
    }

    /// What is known to be written: after an error there may be more.
    pub fn loaded(&self) -> Loaded {
        self.loaded
    }

    /// [`SharedBulkLoad::sync`], and ends the load.
    ///
    /// # Errors
    /// As there.
    pub fn finish(mut self) -> Result<Loaded> {
        self.sync()
    }

    /// Hands what has gathered to the shard, when that takes another stage.
    fn send_stage(&mut self, shard: u16) -> Result<()> {
        if self.lanes[usize::from(shard)].gathers.is_empty() {
            return Ok(());
        }
        let is_full = self.lanes[usize::from(shard)].given.len() + 1 >= BulkOptions::STAGES_MAX;
        // Its memory is used again.
        let empty = if is_full { self.settle_one(shard)? } else { None };
        let empty = empty.unwrap_or_else(|| Stage::new(self.id, self.number));
        let lane = &mut self.lanes[usize::from(shard)];
        let stage = std::mem::replace(&mut lane.gathers, empty);
        lane.given.push_back(self.store.inner.ask(shard, |reply| Message::Load { stage, reply }));
        Ok(())
    }

    /// Waits until the oldest stage that the shard was given is applied, and gives it back empty; `None` when
    /// there is none.
    fn settle_one(&mut self, shard: u16) -> Result<Option<Stage>> {
        let lane = &mut self.lanes[usize::from(shard)];
        let Some(answer) = lane.given.pop_front() else { return Ok(None) };
        match answer.wait() {
            Ok(mut stage) => {
                self.loaded += stage.loaded();
                stage.clear();
                Ok(Some(stage))
            }
            Err(error) => {
                // All are waited for: what comes later must not pass them.
                for answer in std::mem::take(&mut lane.given) {
                    if let Ok(stage) = answer.wait() {
                        self.loaded += stage.loaded();
                    }
                }
                Err(error)
            }
        }
    }
}
