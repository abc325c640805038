//! Batches over several shards of the local handle, and what follows from them: a shard may wait for what
//! another one has to say, so that none may be driven alone.
//!
//! Invariant: all shards are asked whether they take their part before any gets it, and nothing else is
//! written in between: no part is ever taken back.

use super::Store;
use crate::lane::{Lane, RoomWait, ShutWait};
use crate::storage::StorageDevice;
use tierstone_base::Result;
use tierstone_engine::{BatchTicket, Commit, Engine, Write, WriteReceipt};
use tierstone_media::Wait;

/// Turns of a shard in a row for another one that waits: each moves a little memory.
const TURNS_FOR_OTHERS: usize = 16;

/// Applies `writes`, whose keys lie in several shards, and waits as the durability says.
pub(super) fn write(store: &mut Store, writes: &[Write<'_>]) -> Result<()> {
    let shards = store.lanes.len() as u16;
    let mut parts: Vec<Vec<Write<'_>>> = vec![Vec::new(); store.lanes.len()];
    for write in writes {
        parts[usize::from(write.key.position.shard(shards))].push(*write);
    }
    let parts: Vec<(usize, Vec<Write<'_>>)> =
        (0..).zip(parts).filter(|(_, writes)| !writes.is_empty()).collect();
    store.has_parts = true;
    for lane in &mut store.lanes {
        lane.check_health()?;
        lane.tick();
    }
    admit(store, &parts)?;
    store.batches += 1;
    let batch = BatchTicket::new(store.batches, parts.len() as u16);
    let mut receipts = Vec::with_capacity(parts.len());
    for (shard, writes) in &parts {
        receipts.push((*shard, store.lanes[*shard].write_part(writes, &batch)?));
    }
    let is_relaxed = receipts.iter().all(|(_, receipt)| receipt.commit == Commit::Relaxed);
    let given = if is_relaxed { Commit::Relaxed } else { Commit::Durable };
    receipts.iter().for_each(|(shard, _)| store.lanes[*shard].note_given(given));
    if is_relaxed {
        receipts.iter().for_each(|(shard, _)| store.lanes[*shard].attend());
        return Ok(());
    }
    for (shard, _) in &receipts {
        store.lanes[*shard].start_sync()?;
    }
    receipts.into_iter().try_for_each(|(shard, receipt)| store.lanes[shard].make_durable(receipt.seq))
}

/// Waits until all shards would take their parts.
fn admit(store: &mut Store, parts: &[(usize, Vec<Write<'_>>)]) -> Result<()> {
    let mut rooms: Vec<RoomWait> =
        parts.iter().map(|(shard, _)| RoomWait::new(store.lanes[*shard].tick())).collect();
    loop {
        let mut has_waited = false;
        for ((shard, writes), room) in parts.iter().zip(&mut rooms) {
            while let Err(error) = store.lanes[*shard].admit(writes) {
                has_waited = true;
                store.lanes[*shard].wait_for_room(room, error)?;
                turn_others(&mut store.lanes, *shard);
            }
        }
        if !has_waited {
            return Ok(());
        }
    }
}

/// Applies `writes` of one shard as one; waits while there is no room yet.
pub(super) fn write_on(store: &mut Store, shard: u16, writes: &[Write<'_>]) -> Result<WriteReceipt> {
    let shard = usize::from(shard);
    if store.lanes.len() == 1 {
        return store.lanes[shard].write(writes);
    }
    attend(store);
    store.lanes[shard].check_health()?;
    let mut room = RoomWait::new(store.lanes[shard].tick());
    loop {
        let lane = &mut store.lanes[shard];
        let now = lane.tick();
        match lane.engine.write(now, writes) {
            Err(error) => lane.wait_for_room(&mut room, error)?,
            answer => return answer,
        }
        turn_others(&mut store.lanes, shard);
    }
}

/// Lets shards that have something to do about batches do it.
pub(super) fn attend(store: &mut Store) {
    if !store.has_parts {
        return;
    }
    for lane in &mut store.lanes {
        lane.attend();
    }
    store.has_parts = store.lanes.iter().any(|lane| lane.engine.has_parts());
}

/// What a shard waits for may have to come from another: news of a batch, or memory.
pub(super) fn turn_others(lanes: &mut [Lane<StorageDevice>], but: usize) {
    for (shard, lane) in lanes.iter_mut().enumerate() {
        if shard != but {
            for _ in 0..TURNS_FOR_OTHERS {
                lane.turn(Wait::Poll);
                if !lane.has_work() {
                    break;
                }
            }
        }
    }
}

/// Writes what is left on all shards and seals what is open.
pub(super) fn shut(lanes: &mut [Lane<StorageDevice>]) -> Result<()> {
    let mut waits = lanes.iter_mut().map(Lane::start_shut).collect::<Result<Vec<ShutWait>>>()?;
    loop {
        let mut is_done = true;
        for (lane, wait) in lanes.iter_mut().zip(&mut waits) {
            is_done &= lane.go_on_shutting(wait)?;
        }
        if is_done {
            return Ok(());
        }
    }
}
