//! Bulk loads of the local handle.

use super::{Store, across};
use crate::batch::PutOptions;
use crate::bulk::{BulkOptions, Loaded, Stage, check_lengths};
use tierstone_base::{KeyspaceId, Result};
use tierstone_logstore::value_bytes_max;
use tierstone_media::Wait;

/// Very many records on their way into a store: see [`Store::bulk_load`].
///
/// What was put and not [synced](BulkLoad::sync) when this is dropped may be there or not.
#[derive(Debug)]
pub struct BulkLoad<'s> {
    store: &'s mut Store,
    stages: Vec<Stage>,
    options: BulkOptions,
    value_bytes_max: u64,
    loaded: Loaded,
}

impl Store {
    /// Begins to load very many records into database 0. They are staged, sorted and written in large
    /// pieces, and the device writes one while the next is made; batches wait for the device one by one. For values of 1,000
    /// bytes a record costs the processor about as much as in a batch (`docs/benchmarks/device.md`); most of them do not go
    /// into the cache.
    ///
    /// Cost: memory for the stages ([`BulkOptions::stage_bytes`]); a record is written once, a key that is
    /// there already costs what overwriting it costs.
    ///
    /// ```
    /// # let directory = std::env::temp_dir().join(format!("tierstone-doc-bulk-{}", std::process::id()));
    /// # let _ = std::fs::remove_dir_all(&directory);
    /// # let mut store = tierstone::Store::open(&tierstone::DatabaseOptions::new(&directory))?;
    /// let mut load = store.bulk_load(Default::default())?;
    /// for number in 0..10_000u32 {
    ///     load.put(&number.to_be_bytes(), b"value")?;
    /// }
    /// assert_eq!(load.finish()?.records, 10_000); // all durable from here on
    /// assert_eq!(store.len(), 10_000);
    /// # drop(store);
    /// # std::fs::remove_dir_all(&directory).unwrap();
    /// # Ok::<(), tierstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput`: the options are out of their range.
    pub fn bulk_load(&mut self, options: BulkOptions) -> Result<BulkLoad<'_>> {
        let id = self.first;
        BulkLoad::new(self, id, options)
    }
}

impl<'s> BulkLoad<'s> {
    pub(super) fn new(store: &'s mut Store, id: KeyspaceId, options: BulkOptions) -> Result<Self> {
        let options = options.check()?;
        let stages = store.lanes.iter().map(|_| Stage::new(id)).collect();
        let value_bytes_max = value_bytes_max(store.database.files().geometry());
        Ok(BulkLoad { store, stages, options, value_bytes_max, loaded: Loaded::default() })
    }

    /// Puts a value; the last one of a key counts. Returns when it is staged; a full stage is written first.
    ///
    /// # Errors
    /// `InvalidInput`: key or value is too long; others are not touched. As [`Store::put`] otherwise: some of the records
    /// that were staged were written, the others are lost.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_with(key, value, PutOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`BulkLoad::put`].
    pub fn put_with(&mut self, key: &[u8], value: &[u8], options: PutOptions) -> Result<()> {
        check_lengths(key, value, self.value_bytes_max)?;
        let position = self.store.hasher.position(key);
        let shard = position.shard(self.stages.len() as u16);
        let expiry_ms = super::expiry_ms(&mut self.store.lanes[usize::from(shard)], options);
        if !self.stages[usize::from(shard)].has_room(key.len() + value.len(), self.options.stage_bytes) {
            self.write_stage(shard)?;
        }
        self.stages[usize::from(shard)].push(position, key, value, expiry_ms);
        Ok(())
    }

    /// Writes what is staged and waits until everything that was put is durable, in `relaxed` too; gives
    /// what was written since the load began.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn sync(&mut self) -> Result<Loaded> {
        for shard in 0..self.stages.len() {
            self.write_stage(shard as u16)?;
        }
        self.store.sync()?;
        Ok(self.loaded)
    }

    /// [`BulkLoad::sync`], and ends the load.
    ///
    /// # Errors
    /// As there.
    pub fn finish(mut self) -> Result<Loaded> {
        self.sync()
    }

    fn write_stage(&mut self, shard: u16) -> Result<()> {
        let mut stage = std::mem::replace(&mut self.stages[usize::from(shard)], Stage::new(KeyspaceId(0)));
        stage.sort();
        let written = stage.pieces().try_for_each(|piece| {
            across::write_on(self.store, shard, &stage.writes(piece))?;
            // The device writes it while the next piece is made.
            self.store.lanes[usize::from(shard)].turn(Wait::Poll);
            Ok(())
        });
        if written.is_ok() {
            self.loaded += stage.loaded();
        }
        stage.clear();
        self.stages[usize::from(shard)] = stage;
        written
    }
}
