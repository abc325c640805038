//! A shard that waits while one thread drives all of them: what it waits for may have to come from another, news of a batch or
//! memory, so that none is driven alone.

use super::{Lane, RoomWait};
use crate::engine::DatabaseShard;
use crate::storage::StorageDevice;
use tierstone_base::{Now, Result};
use tierstone_engine::{Write, WriteReceipt};
use tierstone_media::Wait;

/// Turns of a shard in a row for another one that waits: each moves a little memory.
const TURNS_FOR_OTHERS: usize = 16;

/// Has `apply` apply `writes` of one of the shards as one; waits while there is no room yet.
pub(crate) fn write_among(
    lanes: &mut [Lane<StorageDevice>],
    shard: usize,
    writes: &[Write<'_>],
    apply: fn(&mut DatabaseShard, Now, &[Write<'_>]) -> Result<WriteReceipt>,
) -> Result<WriteReceipt> {
    lanes[shard].check_health()?;
    let mut room = RoomWait::new(lanes[shard].tick());
    loop {
        let lane = &mut lanes[shard];
        let now = lane.tick();
        match apply(&mut lane.engine, now, writes) {
            Err(error) => lane.wait_for_room(&mut room, error)?,
            answer => return answer,
        }
        turn_others(lanes, shard);
    }
}

/// Lets the others work.
pub(crate) fn turn_others(lanes: &mut [Lane<StorageDevice>], but: usize) {
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
