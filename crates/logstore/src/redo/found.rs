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

use super::RedoMemory;
use super::format::{RegionHeader, SLOT_HEADER_BYTES, SLOT_PAST, SLOT_WRITTEN_BYTES, SlotHeader};
use super::line::{Line, past_salt, unguarded};
use super::slots::turn_claim;
use crate::format::group;
use crate::format::record::{self, Decoded, FLAG_VOID, RecordHeader};
use crate::format::segment::{HeaderFound, SegmentHeader};
use crate::location::UNIT_BYTES;
use crate::shard::log_id;
use std::collections::BTreeMap;
use tierstone_base::ShardId;
use tierstone_media::{BLOCK_BYTES, Geometry};

/// Bytes that may be summed in the search for records, in images.
const SEARCH_IMAGES: usize = 16;

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
#[derive(Default)]
pub(super) struct FoundShard {
    /// Groups that may not be on the device, in order.
    pub groups: Vec<FoundGroup>,
    pub damage: Vec<Damage>,
    /// Bytes of what was durable and cannot be written.
    pub lost_bytes: u64,
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
    let mut found = FoundShard::default();
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
        let ends =
            slots.into_values().map(|mut slot| records_of(&mut slot, true).last().map_or(0, |last| last.end));
        found.lost_bytes = ends.map(|end| end as u64).sum();
        return found;
    };
    slots.retain(|&group, _| group >= watermark);
    let before = slots.values().filter_map(|slot| slot.header.before);
    let mut known: BTreeMap<u64, usize> = BTreeMap::new();
    for fenced in before.chain(line.mark).filter(|fenced| fenced.group >= watermark) {
        let end = known.entry(fenced.group).or_insert(0);
        *end = fenced.end.max(*end);
    }
    let mut numbers: Vec<u64> = slots.keys().chain(known.keys()).copied().collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut has_ended = false;
    for number in numbers {
        let end = known.get(&number).copied();
        let slot = slots.remove(&number);
        let beyond = slot.as_ref().filter(|slot| !slot.fits).map(|slot| slot.place);
        let Some(slot) = slot.filter(|slot| slot.fits) else {
            let (at, what) = match beyond {
                Some(at) => (at, "the place of a group, which is beyond the store's capacity"),
                None => (at, "the header of a slot in the part"),
            };
            found.damage.push(Damage { shard, at, what });
            found.lost_bytes += end.unwrap_or(0) as u64;
            has_ended = true;
            continue;
        };
        has_ended |= found.take((shard, header), slot, end, has_ended);
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
    /// Takes a slot's group. `known`: up to where it was fenced, if something outside of it says so. `has_ended`: the log
    /// ends before it. Gives whether it ends here.
    fn take(
        &mut self,
        (shard, region): (ShardId, &RegionHeader),
        mut slot: Slot,
        known: Option<usize>,
        has_ended: bool,
    ) -> bool {
        let &RegionHeader { store, has_evidence, .. } = region;
        let place = slot.place;
        let start = slot.header.header as usize + group::HEADER_BYTES;
        let records = records_of(&mut slot, has_evidence);
        let claims = records.iter().filter(|record| record.is_claim);
        let fenced = claims.map(|claim| claim.start).max().max(known).map(|end| end.max(start));
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
        for record in &records {
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
            tell((SLOT_HEADER_BYTES + end) as u64, "records");
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

/// The whole records of a slot, in order; those behind the first hole only where something may be made of them. Claims
/// are made records again.
fn records_of(slot: &mut Slot, searches: bool) -> Vec<FoundRecord> {
    let mut records = Vec::new();
    let mut at = slot.header.header as usize + group::HEADER_BYTES;
    let mut budget = slot.image.len() * SEARCH_IMAGES;
    while at < slot.image.len() {
        let found = decode(slot, at, searches, &mut budget);
        if found.is_none() && !searches {
            break;
        }
        at = found.map_or(at + UNIT_BYTES, |found| found.end);
        records.extend(found);
    }
    records
}

/// The record at `at`, if it is whole; a claim among `claims` is made a record.
fn decode(slot: &mut Slot, at: usize, claims: bool, budget: &mut usize) -> Option<FoundRecord> {
    let limit = slot.image.len();
    let unit = ((slot.header.start as usize + at) / UNIT_BYTES) as u32;
    let bytes = slot.image.get_mut(at..)?;
    let len = record::decode_header(bytes)?.record_len();
    *budget = budget.checked_sub(2 * len.min(bytes.len()))?;
    let longest = bytes.len();
    let mut is_claim = false;
    let mut decoded = record::decode(bytes, slot.salt, unit, longest);
    if claims && !matches!(decoded, Decoded::Whole(_)) {
        turn_claim(bytes);
        decoded = record::decode(bytes, slot.salt, unit, longest);
        is_claim = matches!(decoded, Decoded::Whole(_));
        if !is_claim {
            turn_claim(bytes);
        }
    }
    let Decoded::Whole(header) = decoded else { return None };
    let end = at + header.units() * UNIT_BYTES;
    (end <= limit).then_some(FoundRecord { start: at, end, header, is_claim })
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
