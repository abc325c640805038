//! A store of format version 1 or 2 becomes one of this version when it is opened.
//!
//! | before | version 3 |
//! |---|---|
//! | zeros in the allocation table are free segments | they are damage: a free segment has a word of its own |
//!
//! | version 1 | version 2 and later |
//! |---|---|
//! | the opening's number, where a log begins and the highest expiry shown as past are plain numbers | they are guarded |
//! | one bit makes a record void | two do |
//! | no marks, seals, ends in leads and frames: nothing tells damage from a tear | zeros there say nothing, and are true |
//!
//! The header's checksum becomes that of this version first, durably: older programs, which take guarded numbers for plain ones
//! and the words of free segments for damage, find a damaged header from then on, and refuse. The version comes last.
//!
//! Crash at any point: either nothing but the checksum was stored, or only this program opens the store. The header says the old
//! version until all of it is durable, and everything is done again: a guarded number, a record with both bits and the word of a
//! free segment stay as they are, and are written back once more, for a process that was killed may have stored them only.

use crate::format::{
    Entry, FLAG_VOID_FIRST, Header, Layout, OPENING_AT, VERSION, VERSION_UNGUARDED, void_word,
};
use crate::mark::guarded;
use crate::memory::PmMemory;
use crate::open::sort_table;
use crate::recovery::whole_records;
use crate::seal::{self, Lead};
use crate::shard::PAST_AT;
use crate::{
    blocks::Maker,
    space::{FreeSegments, Space},
};
use std::sync::Arc;
use tierstone_base::Result;

/// Where in the header the word with the version is.
const VERSION_AT: u64 = 8;
/// Where its checksum is.
const SUM_AT: u64 = 88;

/// Makes the store one of this version. Cost: every word of the allocation table is read; of a store of the first version
/// every record of all storage blocks. Two barriers.
pub(crate) fn upgrade(memory: &PmMemory, header: &Header, layout: &Layout) -> Result<Header> {
    let upgraded = Header { version: VERSION, ..*header };
    let bytes = upgraded.encode();
    let word = |at| crate::format::word_at(&bytes, at as usize);
    memory.put_word(SUM_AT, word(SUM_AT));
    memory.barrier("upgrade_sum_unfenced")?;
    // crash here [upgrade-begun]: the checksum is that of this version, and nothing else is: all is done again.
    make_words(memory, header, layout);
    memory.barrier("upgrade_unfenced")?;
    // crash here [upgrade-half-named]: the checksum is that of this version, the version the old one: all is done again. No
    // barrier: the one of the opening's number comes before anything else is stored.
    memory.put_word(VERSION_AT, word(VERSION_AT));
    Ok(upgraded)
}

/// Gives free words of the table their kind; in a store of the first version guards the plain numbers, and makes records void by
/// both bits.
fn make_words(memory: &PmMemory, header: &Header, layout: &Layout) {
    for place in (0..layout.segments).map(|segment| layout.table_word(segment)) {
        let word = memory.load_word(place);
        if word == 0 || word == Entry::free() {
            memory.put_word(place, Entry::free());
        }
    }
    if header.version == VERSION_UNGUARDED {
        guard(memory, OPENING_AT);
        for shard in 0..layout.shards {
            let line = layout.shard_line(shard);
            guard(memory, line);
            guard(memory, line + PAST_AT);
        }
        make_void(memory, header, layout);
    }
}

/// Guards a plain number. One that is guarded has its check in the upper bits, or is the same either way.
fn guard(memory: &PmMemory, place: u64) {
    let word = memory.load_word(place);
    memory.put_word(place, if word >> 48 == 0 { guarded(word) } else { word });
}

/// Sets the second bit of every record that has the first.
fn make_void(memory: &PmMemory, header: &Header, layout: &Layout) {
    let (owned, _) = sort_table(memory, layout);
    let space = Arc::new(Space::new(memory.clone(), *layout, FreeSegments::default(), std::iter::empty()));
    for (shard, owned) in (0..).zip(owned) {
        let maker = Maker {
            memory: memory.clone(),
            layout: *layout,
            space: Arc::clone(&space),
            store: header.store,
            shard,
            opening: 0,
        };
        let per_segment = layout.blocks_per_segment();
        for block in owned.storage.iter().flat_map(|first| first * per_segment..(first + 1) * per_segment) {
            let Lead::Life(life) = seal::lead(&maker, block) else { continue };
            for (place, head) in whole_records(&maker, block, life).0 {
                if head.flags & FLAG_VOID_FIRST != 0 {
                    memory.put_word(place, void_word(memory.load_word(place)));
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "upgrade_test.rs"]
mod upgrade_test;
