//! A local handle as an end of a move: what is asked of it is done when the call returns.

use super::drive::{End, Taken, Until, Work, add, take_step};
use crate::lane::Patience;
use crate::local::Store;
use crate::named::KeyspaceOptions;
use tierstone_base::{KeyHasher, Result, Seq};
use tierstone_engine::IndexKind;
use tierstone_logstore::LogShard;
use tierstone_logstore::compact::CompactProgress;
use tierstone_logstore::transfer::MovedRecord;
use tierstone_media::Wait;
use tierstone_store::DatabaseMap;

/// All shards of a local handle.
pub(super) struct LocalEnd<'s> {
    pub store: &'s mut Store,
    begun: Vec<Work>,
    /// The shard whose turn it is to give records.
    next: usize,
    /// What is being made durable, and since when.
    syncing: Option<(Vec<Seq>, u64)>,
    patience: Patience,
}

impl<'s> LocalEnd<'s> {
    pub fn new(store: &'s mut Store) -> Self {
        LocalEnd { store, begun: Vec::new(), next: 0, syncing: None, patience: Patience::default() }
    }
}

impl Drop for LocalEnd<'_> {
    fn drop(&mut self) {
        for work in self.begun.drain(..) {
            self.store.lanes.iter_mut().for_each(|lane| work.end(&mut lane.engine));
        }
    }
}

impl End for LocalEnd<'_> {
    fn shards(&self) -> u16 {
        self.store.shards()
    }

    fn hasher(&self) -> KeyHasher {
        self.store.hasher()
    }

    fn now_us(&mut self) -> u64 {
        self.store.lanes[0].tick().monotonic_us
    }

    async fn open_keyspace(&mut self, name: &str, index: IndexKind) -> Result<()> {
        let options = KeyspaceOptions { index: Some(index), ..KeyspaceOptions::default() };
        self.store.open_keyspace(name, options).map(drop)
    }

    fn with_map<R>(&self, look: impl FnOnce(&DatabaseMap) -> R) -> R {
        look(&self.store.database().facts().map)
    }

    async fn begin(&mut self, work: Work) -> Result<()> {
        let lanes = &mut self.store.lanes;
        for place in 0..lanes.len() {
            let lane = &mut lanes[place];
            let begun = lane.check_health().and_then(|()| work.begin(&mut lane.engine));
            if let Err(error) = begun {
                lanes[..place].iter_mut().for_each(|lane| work.end(&mut lane.engine));
                return Err(error);
            }
        }
        self.begun.push(work);
        Ok(())
    }

    async fn change_split(&mut self, change: fn(&mut LogShard) -> Result<()>) -> Result<()> {
        self.store.lanes.iter_mut().try_for_each(|lane| change(lane.engine.log()?))
    }

    /// One shard's step, and a turn of each that had nothing to give.
    async fn take(&mut self, until: Until) -> Result<Taken> {
        let LocalEnd { store, next, patience, .. } = self;
        let count = store.lanes.len();
        let mut taken = Taken::default();
        let mut idle = None;
        for place in (*next..count).chain(0..*next) {
            let lane = &mut store.lanes[place];
            lane.check_health()?;
            if until.is_reached(&lane.engine.log()?.split_progress()?) {
                continue;
            }
            lane.turn(Wait::Poll);
            let progress = take_step(&mut lane.engine, &mut taken.records)?;
            if !taken.records.is_empty() {
                *next = (place + 1) % count;
                break;
            }
            if !until.is_reached(&progress) {
                idle.get_or_insert(place);
            }
        }
        if let Some(place) = idle.filter(|_| taken.records.is_empty()) {
            let lane = &mut store.lanes[place];
            let progress = lane.engine.log()?.split_progress()?;
            if until == Until::Dropped && progress.segments_left == 0 && progress.changed_keys == 0 {
                lane.start_sync()?;
            }
            lane.wait(patience)?;
        }
        taken.is_reached = true;
        for lane in &mut store.lanes {
            let progress = lane.engine.log()?.split_progress()?;
            taken.is_reached &= until.is_reached(&progress);
            add(&mut taken.sum, &progress);
        }
        Ok(taken)
    }

    async fn ingest(&mut self, of_shard: Vec<Vec<MovedRecord>>) -> Result<()> {
        for (lane, records) in self.store.lanes.iter_mut().zip(of_shard) {
            if !records.is_empty() {
                lane.attempt(|engine, now| engine.log()?.ingest(now, &records))?;
                // Groups go out as they come. Gathered until the shard refuses more, they would be megabytes, and
                // everybody would wait for them.
                lane.turn(Wait::Poll);
            }
        }
        Ok(())
    }

    async fn sync_some(&mut self) -> Result<bool> {
        let LocalEnd { store, syncing, patience, .. } = self;
        let (targets, began_us) = match syncing {
            Some(known) => known,
            None => {
                let began_us = store.lanes[0].tick().monotonic_us;
                let targets = store.lanes.iter_mut().map(|lane| lane.start_sync()).collect::<Result<_>>()?;
                syncing.insert((targets, began_us))
            }
        };
        for (lane, target) in store.lanes.iter_mut().zip(targets) {
            if lane.is_durable(*target) {
                continue;
            }
            lane.start_sync()?;
            lane.wait_for_write(*began_us, patience)?;
            return Ok(false);
        }
        *syncing = None;
        Ok(true)
    }

    async fn compact_some(&mut self) -> Result<CompactProgress> {
        let mut sum = CompactProgress::default();
        for lane in &mut self.store.lanes {
            let progress = lane.engine.log()?.compact_progress();
            if progress.segments_left > 0 {
                lane.check_health()?;
                lane.wait(&mut self.patience)?;
            }
            sum.segments_total += progress.segments_total;
            sum.segments_left += progress.segments_left;
        }
        Ok(sum)
    }
}
