//! Bulk loads of the local handle.

use super::{Store, across};
use crate::batch::{PutOptions, Until};
use crate::bulk::{BulkOptions, Loaded, Loads, Stage, check_lengths};
use crate::lane::RoomWait;
use crate::lane::among::turn_others;
use tierstone_base::clock::Clock;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Result};
use tierstone_media::Wait;

/// Very many records on their way into a store: see [`Store::bulk_load`].
///
/// What was put and not [synced](BulkLoad::sync) when this is dropped may be there or not.
#[derive(Debug)]
pub struct BulkLoad<'s> {
    store: &'s mut Store,
    lanes: Vec<Loader>,
    id: KeyspaceId,
    options: BulkOptions,
    value_bytes_max: u64,
    loaded: Loaded,
}

/// The way of one shard's records.
#[derive(Debug)]
struct Loader {
    gathers: Stage,
    loads: Loads<()>,
    /// Stages that were applied: their memory is used again.
    spare: Vec<Stage>,
}

impl Store {
    /// Begins to load very many records into database 0. They are staged and then written one by one, and the device
    /// writes while the next ones are made; batches wait for the device one by one. What a record costs is measured in
    /// `docs/benchmarks/device.md`. They do not go into the cache, and while a load goes on no checkpoint of the index
    /// begins: after a crash then the opening reads the summaries of what was written since the last one.
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
        let loader = || Loader { gathers: Stage::new(id, 0), loads: Loads::default(), spare: Vec::new() };
        let lanes = store.lanes.iter().map(|_| loader()).collect();
        let value_bytes_max = store.value_bytes_max();
        Ok(BulkLoad { store, lanes, id, options, value_bytes_max, loaded: Loaded::default() })
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
        let shard = position.shard(self.lanes.len() as u16);
        let until = Until::of(options.expiry, || self.store.clock.now());
        let shard = usize::from(shard);
        if !self.lanes[shard].gathers.has_room(key.len() + value.len(), self.options.stage_bytes) {
            self.write_stage(shard)?;
        }
        self.lanes[shard].gathers.push(position, key, value, until);
        Ok(())
    }

    /// Writes what is staged and waits until everything that was put is durable, in `relaxed` too; gives
    /// what was written since the load began.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn sync(&mut self) -> Result<Loaded> {
        for shard in 0..self.lanes.len() {
            self.write_stage(shard)?;
        }
        for shard in 0..self.lanes.len() {
            self.drive(shard, Loads::is_empty)?;
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

    /// Applies what has gathered, but for what old records must be read for.
    fn write_stage(&mut self, shard: usize) -> Result<()> {
        let lane = &mut self.lanes[shard];
        if lane.gathers.is_empty() {
            return Ok(());
        }
        let empty = lane.spare.pop().unwrap_or_else(|| Stage::new(self.id, 0));
        lane.loads.push(std::mem::replace(&mut lane.gathers, empty), ());
        self.drive(shard, |loads| loads.is_through() && loads.len() < BulkOptions::STAGES_MAX)
    }

    /// Drives a shard until `is_enough` holds of what is on its way.
    fn drive(&mut self, shard: usize, is_enough: impl Fn(&Loads<()>) -> bool) -> Result<()> {
        across::attend(self.store);
        self.store.lanes[shard].check_health()?;
        let mut room = RoomWait::new(self.store.lanes[shard].tick());
        while !is_enough(&self.lanes[shard].loads) {
            let (loader, lane) = (&mut self.lanes[shard], &mut self.store.lanes[shard]);
            let now = lane.tick();
            let waits = match loader.loads.advance(&mut lane.engine, now) {
                Ok(true) => {
                    // The device writes it while the next is made.
                    lane.turn(Wait::Poll);
                    room = RoomWait::new(now);
                    None
                }
                Ok(false) => Some(Error::new(ErrorKind::Retry, "old records are being read")),
                Err((error, _)) => Some(error),
            };
            while let Some((mut stage, ())) = loader.loads.take_done() {
                self.loaded += stage.loaded();
                stage.clear();
                loader.spare.push(stage);
            }
            if let Some(error) = waits {
                let waited = lane.wait_for_room(&mut room, error);
                if let Err(error) = waited.and_then(|()| lane.check_health()) {
                    loader.loads = Loads::default();
                    return Err(error);
                }
                turn_others(&mut self.store.lanes, shard);
            }
        }
        Ok(())
    }
}
