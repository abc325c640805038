//! Bulk loads of the shared handle.
//!
//! Invariant: a shard has at most one stage that gathers and one that is being written.

use super::message::{Message, OwnedWrites, Piece};
use super::{Answer, SharedStore};
use crate::batch::{Expiry, PutOptions};
use crate::bulk::{BulkOptions, Loaded, Stage, check_lengths};
use std::sync::Arc;
use tierstone_base::{KeyspaceId, Result};

/// Very many records on their way into a store: see [`SharedStore::bulk_load`].
///
/// What was put and not [synced](SharedBulkLoad::sync) when this is dropped may be there or not.
#[derive(Debug)]
pub struct SharedBulkLoad {
    store: SharedStore,
    lanes: Vec<Lane>,
    options: BulkOptions,
    loaded: Loaded,
}

/// The way of one shard's records.
#[derive(Debug)]
struct Lane {
    gathers: Stage,
    /// What is being written, and the answers of its pieces.
    written: Option<(Arc<Stage>, Vec<Answer<()>>)>,
}

impl SharedStore {
    /// Begins to load very many records into database 0, as [`Store::bulk_load`](crate::Store::bulk_load). Each shard's thread
    /// writes one stage while the next gathers; several loads, of several threads, may go on at the same
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
        let lanes =
            (0..store.inner.shards()).map(|_| Lane { gathers: Stage::new(id), written: None }).collect();
        Ok(SharedBulkLoad { store, lanes, options, loaded: Loaded::default() })
    }

    /// Puts a value; the last one of a key counts. Returns when it is staged; a full stage is handed to its
    /// shard first, which waits until the one before is written.
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
        let expiry_ms = match options.expiry {
            Expiry::Never => 0,
            expiry => expiry.at_ms(self.store.inner.now()),
        };
        if !self.lanes[usize::from(shard)].gathers.has_room(key.len() + value.len(), self.options.stage_bytes)
        {
            self.send_stage(shard)?;
        }
        self.lanes[usize::from(shard)].gathers.push(position, key, value, expiry_ms);
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
            self.settle(shard as u16)?;
        }
        self.store.sync()?;
        Ok(self.loaded)
    }

    /// [`SharedBulkLoad::sync`], and ends the load.
    ///
    /// # Errors
    /// As there.
    pub fn finish(mut self) -> Result<Loaded> {
        self.sync()
    }

    /// Hands what has gathered to the shard, when what it had before is written.
    fn send_stage(&mut self, shard: u16) -> Result<()> {
        let empty = self.settle(shard)?;
        let lane = &mut self.lanes[usize::from(shard)];
        if lane.gathers.is_empty() {
            return Ok(());
        }
        let mut stage = std::mem::replace(&mut lane.gathers, empty);
        stage.sort();
        let stage = Arc::new(stage);
        let ask = |records| {
            let piece = Piece { stage: Arc::clone(&stage), records };
            let writes = OwnedWrites::Piece(piece);
            self.store.inner.ask(shard, |reply| Message::Write { writes, reply })
        };
        lane.written = Some((Arc::clone(&stage), stage.pieces().map(ask).collect()));
        Ok(())
    }

    /// Waits until what the shard was given is written; gives an empty stage.
    fn settle(&mut self, shard: u16) -> Result<Stage> {
        let lane = &mut self.lanes[usize::from(shard)];
        let empty = Stage::new(lane.gathers.keyspace());
        let Some((stage, answers)) = lane.written.take() else { return Ok(empty) };
        // All are waited for: what comes later must not pass them.
        answers.into_iter().map(Answer::wait).fold(Ok(()), Result::and)?;
        self.loaded += stage.loaded();
        // Its memory is used again, unless the shard has not let go of it yet.
        Ok(Arc::try_unwrap(stage).map_or(empty, |mut stage| {
            stage.clear();
            stage
        }))
    }
}
