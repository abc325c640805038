//! What a region holds of a shard, and what of it is damaged.
//!
//! A loss of power may tear what no fence followed: slots count if their header is whole, and their records up to the
//! first that is not. What was fenced must be there. What says how far that goes ([`super::slots`]):
//! - a record that is whole and a claim: of its slot, up to the record;
//! - the header of a slot behind: of the newest slot before it, all;
//! - the mark in the shard's line: of one group, its slot's header, and its records up to an end.
//!
//! Invariants:
//! 1. A hole in what was fenced is damage, and told with its place. What lies behind the last that is known to have been
//!    fenced is a tear, and told to nobody.
//! 2. What an earlier use of a slot left says nothing: records, claims among them, are salted with the life and the
//!    place in the segment, the words of a line with the log, a slot's header names its log, and a group below the
//!    watermark is passed over with all that is said of it.
//! 3. Where the loss is accepted, what is whole in a damaged group stays in its place, with void records in the holes.
//!    The log ends before a group that has no place any more: its header, or that of its segment, is damaged.
//! 4. The search behind a hole is bounded. Where it ends before all was looked at, what was not looked at is told as
//!    damage: a claim may lie there.

use super::RedoMemory;
use super::format::{RegionHeader, SLOT_HEADER_BYTES, SLOT_PAST, SLOT_WRITTEN_BYTES, SlotHeader};
use super::line::{Line, past_salt, unguarded};
use super::slots::turn_claim;
use crate::format::group;
use crate::format::record::{self, FLAG_VOID, RecordHeader};
use crate::format::segment::{HeaderFound, SegmentHeader};
use crate::location::UNIT_BYTES;
use crate::shard::log_id;
use std::collections::BTreeMap;
use tierstone_base::{Seq, ShardId};
use tierstone_media::{BLOCK_BYTES, Geometry};

/// Bytes that may be summed of a shard in the search for records behind holes: some two seconds. Of a slot of 1 MiB, the
/// longest by default, no values can use up more than half. Where nothing is damaged one slot is searched, the newest.
const SEARCH_BYTES: u64 = 32 << 30;

/// Something that was durable in the region, or a word of it, and is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The shard.
    pub shard: ShardId,
    /// Where in the region, in bytes.
    pub at: u64,
    /// What it is.
    pub what: &'static str,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Damage { shard, at, what } = self;
        write!(formatter, "{what} of shard {shard}, at byte {at} of the region")
    }
}

/// A group as it is to be written.
pub(super) struct FoundGroup {
    pub slot: SlotHeader,
    /// The group's buffer up to `end`, without the group's header.
    pub image: Vec<u8>,
    pub end: usize,
    pub records: u32,
    pub salt: u64,
    /// Bytes that were durable in it and are damaged.
    pub lost: u64,
}

/// What a shard has in the region.
pub(super) struct FoundShard {
    /// Groups that may not be on the device, in order.
    pub groups: Vec<FoundGroup>,
    pub damage: Vec<Damage>,
    /// Bytes of what was durable and cannot be written; where the search ended early, of all that may have been.
    pub lost_bytes: u64,
    /// Bytes that may still be summed in the search.
    search_left: u64,
}

/// Up to where a group was fenced, as something outside of its slot says.
#[derive(Clone, Copy, Default)]
struct Known {
    end: usize,
    /// Nothing of the group lies behind it.
    is_all: bool,
}

/// A slot whose header is whole.
struct Slot {
    header: SlotHeader,
    place: u64,
    image: Vec<u8>,
    /// The word of expiry; `None`: it is none of this group.
    past_ms: Option<u64>,
    salt: u64,
    /// Where its group belongs is in the store.
    fits: bool,
}

/// The whole records of a slot.
struct FoundRecords {
    /// In order.
    all: Vec<FoundRecord>,
    /// Behind it there is none.
    limit: usize,
    /// From here on nothing was looked at any more.
    given_up: Option<usize>,
}

impl FoundRecords {
    /// Up to where there are records, or may be.
    fn end(&self) -> usize {
        let last = self.all.last().map_or(0, |last| last.end);
        self.given_up.map_or(last, |_| self.limit)
    }
}

/// A record in a slot.
#[derive(Clone, Copy)]
struct FoundRecord {
    start: usize,
    end: usize,
    header: RecordHeader,
    is_claim: bool,
}

/// Reads the part of `shard`. `salt` gives that of a slot's segment; `is_named`: the superblock names the opening that
/// uses the region.
pub(super) fn find(
    memory: &RedoMemory,
    (header, is_named): (&RegionHeader, bool),
    shard: ShardId,
    geometry: Geometry,
    salt: &dyn Fn(&SlotHeader) -> u64,
) -> FoundShard {
    let mut found = FoundShard::new(SEARCH_BYTES);
    let line = Line::read(memory, header, shard);
    let at = header.layout.area(shard);
    let slots = (0..header.layout.slots)
        .filter_map(|slot| read_slot(memory, header, (shard, slot), geometry, salt))
        .map(|slot| (slot.header.group, slot));
    let mut slots: BTreeMap<u64, Slot> = slots.collect();
    if !is_named && slots.is_empty() {
        // A crash may have torn the lines while the region was divided: the superblock names the opening after that.
        return found;
    }
    if line.is_mark_damaged {
        found.damage.push(Damage { shard, at, what: "the mark of the redo log" });
    }
    let Some(watermark) = line.watermark else {
        // Which of them are on the device already, and their places another's, nobody knows.
        found.damage.push(Damage { shard, at, what: "the line of the redo log" });
        let left = &mut found.search_left;
        let ends = slots.into_values().map(|mut slot| records_of(&mut slot, None, true, left).end());
        found.lost_bytes = ends.map(|end| end as u64).sum();
        return found;
    };
    slots.retain(|&group, _| group >= watermark);
    // A group that has another behind it was closed; what the mark names may have grown since.
    let before = slots.values().filter_map(|slot| slot.header.before).map(|fenced| (fenced, true));
    let mark = line.mark.map(|fenced| (fenced, false));
    let mut known: BTreeMap<u64, Known> = BTreeMap::new();
    for (fenced, is_all) in before.chain(mark).filter(|(fenced, _)| fenced.group >= watermark) {
        let Known { end, is_all: was_all } = known.get(&fenced.group).copied().unwrap_or_default();
        known.insert(fenced.group, Known { end: fenced.end.max(end), is_all: is_all || was_all });
    }
    let mut numbers: Vec<u64> = slots.keys().chain(known.keys()).copied().collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut has_ended = false;
    for number in numbers {
        let known = known.get(&number).copied();
        let slot = slots.remove(&number);
        let beyond = slot.as_ref().filter(|slot| !slot.fits).map(|slot| slot.place);
        let Some(slot) = slot.filter(|slot| slot.fits) else {
            let (at, what) = match beyond {
                Some(at) => (at, "the place of a group, which is beyond the store's capacity"),
                None => (at, "the header of a slot in the part"),
            };
            found.damage.push(Damage { shard, at, what });
            found.lost_bytes += known.map_or(0, |known| known.end) as u64;
            has_ended = true;
            continue;
        };
        has_ended |= found.take((shard, header), slot, known, has_ended);
    }
    found
}

fn read_slot(
    memory: &RedoMemory,
    header: &RegionHeader,
    (shard, slot): (ShardId, u32),
    geometry: Geometry,
    salt: &dyn Fn(&SlotHeader) -> u64,
) -> Option<Slot> {
    let place = header.layout.slot(shard, slot);
    let mut bytes = [0; SLOT_WRITTEN_BYTES];
    memory.region.load(place, &mut bytes);
    let found = SlotHeader::decode(&bytes, header.store, header.has_evidence)?;
    let fits = found.segment < geometry.segment_limit
        && u64::from(found.start) < geometry.segment_bytes
        && (found.start as usize).is_multiple_of(BLOCK_BYTES)
        && found.header as usize == if found.start == 0 { BLOCK_BYTES } else { 0 };
    if found.log_id != log_id(header.opening, shard, false) {
        return None;
    }
    // A slot may be longer than what is left of the segment; the group is not.
    let left = geometry.segment_bytes.saturating_sub(u64::from(found.start));
    let mut image = vec![0; header.layout.image_bytes().min(left as usize)];
    memory.region.load(place + SLOT_HEADER_BYTES as u64, &mut image);
    let word = memory.region.load_word(place + SLOT_PAST);
    let past_ms = match header.has_evidence {
        true => unguarded(word, past_salt(found.log_id, found.group)),
        false => Some(word),
    };
    Some(Slot { salt: salt(&found), header: found, place, image, past_ms, fits })
}

impl FoundShard {
    fn new(search_left: u64) -> FoundShard {
        FoundShard { groups: Vec::new(), damage: Vec::new(), lost_bytes: 0, search_left }
    }

    /// Takes a slot's group. `known`: up to where it was fenced, if something outside of it says so. `has_ended`: the log
    /// ends before it. Gives whether it ends here.
    fn take(
        &mut self,
        (shard, region): (ShardId, &RegionHeader),
        mut slot: Slot,
        known: Option<Known>,
        has_ended: bool,
    ) -> bool {
        let &RegionHeader { store, has_evidence, .. } = region;
        let place = slot.place;
        let start = slot.header.header as usize + group::HEADER_BYTES;
        let records = records_of(&mut slot, known, has_evidence, &mut self.search_left);
        let claims = records.all.iter().filter(|record| record.is_claim).map(|claim| claim.start);
        // Where not all was looked at, all may have been fenced.
        let unseen = records.given_up.map(|_| records.limit);
        let fenced = claims.max().max(known.map(|known| known.end)).max(unseen).map(|end| end.max(start));
        let needed = fenced.unwrap_or(0);
        let is_headed = put_segment_header(&mut slot, store);
        let mut tell = |at: u64, what| self.damage.push(Damage { shard, at: place + at, what });
        if slot.past_ms.is_none() && fenced.is_some() {
            tell(SLOT_PAST, "the word of expiry of a slot");
        }
        if !is_headed && fenced.is_some() {
            tell(SLOT_HEADER_BYTES as u64, "the header of a segment in a slot");
        }
        let (mut end, mut count, mut lost) = (start, 0, 0);
        let mut seq = slot.header.first_seq;
        for record in &records.all {
            if record.start > end {
                if record.start > needed {
                    break;
                }
                tell((SLOT_HEADER_BYTES + end) as u64, "records");
                lost += record.start - end;
                put_void(&mut slot, (end, record.start), seq);
                count += 1;
            }
            (end, seq) = (record.end, record.header.seq);
            count += 1;
        }
        if end < needed {
            let what = match records.given_up {
                Some(_) => "a hole, behind which there is too much to search for records,",
                None => "records",
            };
            tell((SLOT_HEADER_BYTES + end) as u64, what);
            lost += needed - end;
        }
        if !is_headed && fenced.is_none() {
            // Torn: nothing was fenced of it, and so nothing is behind it.
            return has_ended;
        }
        if has_ended || !is_headed {
            self.lost_bytes += end.max(needed) as u64;
            return true;
        }
        self.lost_bytes += lost as u64;
        let past_ms = slot.header.past_ms.max(slot.past_ms.unwrap_or(0));
        let header = SlotHeader { past_ms, ..slot.header };
        self.groups.push(FoundGroup {
            slot: header,
            image: slot.image,
            end,
            records: count,
            salt: slot.salt,
            lost: lost as u64,
        });
        false
    }
}

/// The whole records of a slot; those behind the first hole only where something may be made of them (`searches`), and
/// until no bytes are `left` to be summed for it. Claims are made records again.
fn records_of(slot: &mut Slot, known: Option<Known>, searches: bool, left: &mut u64) -> FoundRecords {
    let image = slot.image.len();
    let all_of_it = known.filter(|known| known.is_all && searches).map(|known| known.end);
    let limit = all_of_it.map_or(image, |end| end.min(image));
    let mut found = FoundRecords { all: Vec::new(), limit, given_up: None };
    let mut at = slot.header.header as usize + group::HEADER_BYTES;
    let (mut in_hole, mut lowest) = (false, slot.header.first_seq);
    while at < limit {
        if let Some(header) = header_at(slot, at, limit).filter(|header| !in_hole || header.seq >= lowest) {
            if in_hole {
                let Some(rest) = left.checked_sub(header.record_len() as u64) else {
                    found.given_up = Some(at);
                    break;
                };
                *left = rest;
            }
            if let Some(record) = decode(slot, at, header, searches) {
                found.all.push(record);
                (at, in_hole, lowest) = (record.end, false, lowest_behind(&record.header));
                continue;
            }
        }
        if !searches {
            break;
        }
        in_hole = true;
        at += UNIT_BYTES;
    }
    found
}

/// A hot log gives its records sequences that rise: what an earlier use left is passed over without its being summed.
fn lowest_behind(header: &RecordHeader) -> Seq {
    header.seq + 1
}

/// The header of the record at `at`, if one of its length may lie there. Cost: nothing is summed.
fn header_at(slot: &Slot, at: usize, limit: usize) -> Option<RecordHeader> {
    let header = record::decode_header(slot.image.get(at..limit)?)?;
    (at + header.units() * UNIT_BYTES <= limit).then_some(header)
}

/// The record at `at`, where `header` was found, if it is whole; a claim, if it may be one, is made a record. Cost: its bytes
/// are summed once.
fn decode(slot: &mut Slot, at: usize, header: RecordHeader, may_claim: bool) -> Option<FoundRecord> {
    let unit = ((slot.header.start as usize + at) / UNIT_BYTES) as u32;
    let bytes = slot.image.get_mut(at..at + header.record_len())?;
    let stored: [u8; 8] = *bytes.first_chunk()?;
    record::seal(bytes, slot.salt, unit);
    let sum: [u8; 8] = *bytes.first_chunk()?;
    let mut claimed = stored;
    turn_claim(&mut claimed);
    let is_claim = may_claim && claimed == sum;
    if stored != sum && !is_claim {
        *bytes.first_chunk_mut()? = stored;
        return None;
    }
    let end = at + header.units() * UNIT_BYTES;
    Some(FoundRecord { start: at, end, header, is_claim })
}

/// Whether the header of the segment that stands before the group is whole, if one does; it is written again, so that
/// there are zeros behind it.
fn put_segment_header(slot: &mut Slot, store: u64) -> bool {
    let header = &slot.header;
    let Some(bytes) = slot.image.get_mut(..header.header as usize).filter(|bytes| !bytes.is_empty()) else {
        return header.header == 0;
    };
    let HeaderFound::Whole(found) = SegmentHeader::decode(bytes) else { return false };
    let own = (store, header.segment, header.log_id, header.generation);
    if (found.store, found.segment, found.log_id, found.generation) != own {
        return false;
    }
    bytes.fill(0);
    found.encode(bytes);
    true
}

/// Lays a void record where something is lost.
fn put_void(slot: &mut Slot, (start, end): (usize, usize), seq: u64) {
    let unit = ((slot.header.start as usize + start) / UNIT_BYTES) as u32;
    let value = vec![0; (end - start).saturating_sub(record::HEADER_BYTES)];
    let void = RecordHeader { seq, flags: FLAG_VOID, value_len: value.len(), ..RecordHeader::EMPTY };
    record::encode(&mut slot.image[start..end], &void, &[], &value, slot.salt, unit);
}

#[cfg(test)]
#[path = "found_test.rs"]
mod found_test;
