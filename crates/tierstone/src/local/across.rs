//! Batches over several shards of the local handle, and what follows from them: a shard may wait for what
//! another one has to say, so that none may be driven alone.
//!
//! Invariant: all shards are asked whether they take their part before any gets it, and nothing else is
//! written in between: no part is ever taken back.

use super::Store;
use crate::lane::among::{turn_others, write_among};
use crate::lane::{Lane, RoomWait, ShutWait};
use crate::plain::write_plain;
use crate::storage::StorageDevice;
use tierstone_base::{Error, Result};
use tierstone_engine::{BatchTicket, Commit, Write, WriteReceipt};

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
    store.batches += 1;
    let receipts = write_when_all_take(store, &parts)?;
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

/// What became of a batch.
enum Outcome {
    /// Each part's shard and receipt.
    Written(Vec<(usize, WriteReceipt)>),
    /// No part was written: the shard of the part at this place does not take it.
    Refused(usize, Error),
}

/// Writes the parts as soon as all shards take theirs.
fn write_when_all_take(
    store: &mut Store,
    parts: &[(usize, Vec<Write<'_>>)],
) -> Result<Vec<(usize, WriteReceipt)>> {
    let mut rooms: Vec<RoomWait> =
        parts.iter().map(|(shard, _)| RoomWait::new(store.lanes[*shard].tick())).collect();
    loop {
        let (place, mut error) = match write_if_all_take(&mut store.lanes, parts, store.batches)? {
            Outcome::Written(receipts) => return Ok(receipts),
            Outcome::Refused(place, error) => (place, error),
        };
        // Those before it would have to look their keys up each time that it is asked.
        let (shard, writes) = &parts[place];
        loop {
            store.lanes[*shard].wait_for_room(&mut rooms[place], error)?;
            turn_others(&mut store.lanes, *shard);
            match store.lanes[*shard].admit(writes) {
                Ok(()) => break,
                Err(next) => error = next,
            }
        }
    }
}

/// Writes the parts if all shards take theirs now.
fn write_if_all_take(
    lanes: &mut [Lane<StorageDevice>],
    parts: &[(usize, Vec<Write<'_>>)],
    number: u64,
) -> Result<Outcome> {
    let mut prepared = Vec::with_capacity(parts.len());
    // The parts are in the order of their shards.
    let mut lanes = lanes.iter_mut().enumerate();
    for (place, (shard, writes)) in parts.iter().enumerate() {
        let Some((_, lane)) = lanes.find(|(lane, _)| lane == shard) else {
            unreachable!("a part of shard {shard}, which there is not or which comes twice")
        };
        match lane.prepare_part(writes) {
            Ok(part) => prepared.push((*shard, part)),
            Err(error) => return Ok(Outcome::Refused(place, error)),
        }
    }
    let batch = BatchTicket::new(number, parts.len() as u16);
    let written = prepared.into_iter().map(|(shard, write)| Ok((shard, write(&batch)?)));
    written.collect::<Result<_>>().map(Outcome::Written)
}

/// Applies `writes` of one shard as one; waits while there is no room yet.
pub(super) fn write_on(store: &mut Store, shard: u16, writes: &[Write<'_>]) -> Result<WriteReceipt> {
    let shard = usize::from(shard);
    if store.lanes.len() == 1 {
        return store.lanes[shard].write(writes);
    }
    attend(store);
    write_among(&mut store.lanes, shard, writes, write_plain)
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
