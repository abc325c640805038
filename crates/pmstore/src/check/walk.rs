//! The records of one shard: blocks, frames, then the long values of what counts.

use super::findings::{CheckReport, DamageKind, Finding};
use super::keys::{Keys, Newest};
use super::{Checked, Units};
use crate::blocks::Maker;
use crate::format::{
    FLAG_KEY_OUT, LEAD_BYTES, RECORD_BYTES, RecordHead, Verdict, payload_checksum, record_is_whole,
};
use crate::found::{FoundLog, VoidSeqs};
use crate::open::Owned;
use crate::overflow::unit_bytes;
use crate::recovery::records_of;
use crate::seal::{self, Lead};
use tierstone_base::{KeyspaceId, Position, Seq};

/// Records begin at multiples of this.
const STEP: u64 = 8;

/// A walk over one shard.
pub(super) struct Walk<'c> {
    pub(super) checked: &'c Checked,
    pub(super) maker: Maker,
    log: Option<&'c FoundLog>,
    void: VoidSeqs,
    pub(super) is_first_pass: bool,
    pub(super) keys: Keys,
    pub(super) report: &'c mut CheckReport,
    units: &'c mut Units,
}

impl<'c> Walk<'c> {
    /// `log`: `None` where its beginning is damaged; then all records count.
    pub fn new(
        checked: &'c Checked,
        shard: u16,
        log: Option<&'c FoundLog>,
        (pass, passes): (u64, u64),
        (report, units): (&'c mut CheckReport, &'c mut Units),
    ) -> Walk<'c> {
        let (maker, keys) = (checked.maker(shard), Keys::new((pass, passes)));
        let void = log.map_or_else(VoidSeqs::default, |log| VoidSeqs::of(&log.groups));
        Walk { checked, maker, log, void, is_first_pass: pass == 0, keys, report, units }
    }

    pub fn run(mut self, owned: &Owned, progress: &mut dyn FnMut(u64)) {
        self.frames();
        let layout = self.checked.layout;
        for &segment in &owned.storage {
            let first = segment * layout.blocks_per_segment();
            for number in first..first + layout.blocks_per_segment() {
                self.block(number);
            }
            progress(layout.geometry.segment_bytes);
        }
        let named = self.named(owned);
        for ((keyspace, position), newest) in self.keys.take() {
            self.key(keyspace, position, newest, owned);
            if let Some(named) = &named
                && !newest.is_tombstone
                && !newest.has_twin
            {
                self.look_for(named, keyspace, position, newest.place);
            }
        }
    }

    /// A finding at `place` of a block.
    pub(super) fn note(&mut self, kind: DamageKind, place: u64, key_hash: Option<u64>, detail: String) {
        use DamageKind::{Checkpoint, CheckpointLacks, Overflow, Twice};
        let is_of_keys = matches!(kind, Overflow | Twice | Checkpoint | CheckpointLacks);
        if !self.is_first_pass && !is_of_keys {
            return;
        }
        let layout = &self.checked.layout;
        let finding = Finding {
            shard: Some(self.maker.shard),
            segment: Some(layout.segment_of(place)),
            block: Some(layout.block_of(place) % layout.blocks_per_segment()),
            key_hash: key_hash.map(|position| format!("{position:016x}")),
            ..Finding::new(kind, self.checked.memory.base() + place, detail)
        };
        self.report.note(finding);
    }

    fn is_served(&self, keyspace: u32) -> bool {
        self.checked.keyspaces.as_ref().is_none_or(|served| served.contains(&keyspace))
    }

    fn note_key(&mut self, place: u64, head: &RecordHead, is_reached: bool) {
        if self.is_served(head.keyspace) {
            let (is_tombstone, is_overflow) = (head.is_tombstone(), head.is_overflow());
            let newest = Newest {
                seq: head.seq,
                place,
                len: head.len,
                is_tombstone,
                is_overflow,
                is_reached,
                has_twin: false,
            };
            self.keys.note(head.keyspace, head.position, newest);
        }
    }

    /// What the log holds counts, as far as its batches do.
    fn frames(&mut self) {
        let Some(log) = self.log else { return };
        for group in log.groups.iter().filter(|group| group.verdict != Some(Verdict::Void)) {
            for frame in &log.frames[group.frames.clone()] {
                let bytes = self.checked.memory.bytes(frame.offset, frame.head.len as usize).into_owned();
                for (at, head) in records_of(&bytes, &frame.head) {
                    self.note_key(frame.offset + at as u64, &head, true);
                }
            }
        }
    }

    /// Whether a record of this sequence counts.
    fn counts(&self, seq: Seq) -> bool {
        self.log.is_none_or(|log| seq <= log.end_seq && !self.void.has(seq))
    }

    fn block(&mut self, number: u32) {
        let layout = self.checked.layout;
        let (start, bytes) = (layout.block(number), layout.geometry.block_bytes);
        let (life, is_led) = match seal::lead(&self.maker, number) {
            Lead::Free => return,
            Lead::Life(life) => (life, true),
            Lead::Damaged(life) => (life, false),
        };
        if !is_led {
            let detail = "a word of the block's first line is damaged; its records can be saved".to_owned();
            self.note(DamageKind::Block, start, None, detail);
        }
        let sealed = u64::from(seal::sealed(&self.maker, number, life));
        self.report.blocks += u64::from(self.is_first_pass);
        let (mut at, mut hole) = (LEAD_BYTES, None);
        let mut is_reached = is_led;
        while at + RECORD_BYTES as u64 <= bytes {
            let place = start + at;
            let decoded = RecordHead::decode(&self.checked.memory.load::<RECORD_BYTES>(place), bytes - at);
            let head = decoded.filter(|head| {
                record_is_whole(&self.checked.memory.bytes(place, head.len as usize), life, place)
            });
            match head {
                Some(head) => {
                    self.end_hole(start, hole.take(), at.min(sealed));
                    self.record(place, &head, is_reached);
                    at += u64::from(head.len);
                }
                // A tear, or the end.
                None if at >= sealed => break,
                None => {
                    is_reached = false;
                    hole.get_or_insert((at, decoded.map(|head| head.position)));
                    at += STEP;
                }
            }
        }
        self.end_hole(start, hole, sealed);
    }

    /// Bytes from `hole` on to `end` were durable and are not whole.
    fn end_hole(&mut self, start: u64, hole: Option<(u64, Option<u64>)>, end: u64) {
        let Some((from, position)) = hole else { return };
        let bytes = end.saturating_sub(from);
        self.report.lost_bytes += if self.is_first_pass { bytes } else { 0 };
        let detail = format!("{bytes} bytes of records that were durable are not whole");
        self.note(DamageKind::Record, start + from, position, detail);
    }

    fn record(&mut self, place: u64, head: &RecordHead, is_reached: bool) {
        self.report.records += u64::from(self.is_first_pass);
        if head.is_void() || !self.counts(head.seq) {
            self.report.void_records += u64::from(self.is_first_pass);
            return;
        }
        if !is_reached {
            let detail =
                "a whole record behind damage: an opening that accepts the loss serves it".to_owned();
            self.note(DamageKind::Unreachable, place, Some(head.position), detail);
        }
        if head.flags & FLAG_KEY_OUT == 0 && self.is_first_pass {
            let record = self.checked.memory.bytes(place, head.len as usize);
            let is_own = self.checked.hasher.position(head.body(&record).0) == Position(head.position);
            drop(record);
            if !is_own {
                let detail = "a record's position is not that of its key: no lookup finds it".to_owned();
                self.note(DamageKind::Unreachable, place, Some(head.position), detail);
            }
        }
        self.note_key(place, head, is_reached);
    }

    /// The newest record of a key.
    fn key(&mut self, keyspace: u32, position: u64, newest: Newest, owned: &Owned) {
        // A long key of a tombstone that hides nothing any more may be overwritten.
        if newest.is_tombstone {
            return;
        }
        self.report.live_keys += u64::from(newest.is_reached);
        self.report.live_pieces += u64::from(newest.is_reached && !KeyspaceId(keyspace).is_user());
        let is_whole = !newest.is_overflow || self.long_value(position, &newest, owned);
        // What lies behind damage is whole, and served by an opening that accepts the loss.
        self.report.lost_keys += u64::from(!is_whole);
    }

    /// Whether what lies in overflow units is whole.
    fn long_value(&mut self, position: u64, newest: &Newest, owned: &Owned) -> bool {
        let layout = self.checked.layout;
        let record = self.checked.memory.bytes(newest.place, newest.len as usize).into_owned();
        let overflow = RecordHead::decode(&record, record.len() as u64)
            .and_then(|head| head.overflow(&record).map(|overflow| (head, overflow)));
        let Some((head, overflow)) = overflow else { return false };
        let mut payload = Vec::new();
        for extent in &overflow.extents {
            let (from, len) = (extent.offset, u64::from(extent.len));
            let is_inside = from >= layout.data_start() && from + len <= layout.end() && len > 0;
            let segment = if is_inside { layout.segment_of(from) } else { 0 };
            // In the order of the table.
            let own = owned.overflow.binary_search_by_key(&segment, |(own, _)| *own);
            let class = own.ok().and_then(|at| owned.overflow.get(at)).map(|(_, class)| *class);
            let start = layout.segment(segment);
            let unit = unit_bytes(layout.geometry.segment_bytes, class.unwrap_or(0).into());
            let fits = is_inside
                && class.is_some()
                && from + len <= start + layout.geometry.segment_bytes
                && (from - start).is_multiple_of(unit);
            if !fits {
                let detail = format!("a record names {len} bytes at {from}, which is no unit of its shard");
                self.note(DamageKind::Overflow, newest.place, Some(position), detail);
                return false;
            }
            let range = (from - start) / unit..(from - start + len).div_ceil(unit);
            if self.units.take(segment, layout.geometry.segment_bytes / unit, range) {
                let detail = format!("overflow units at {from} are another record's too");
                self.note(DamageKind::Twice, newest.place, Some(position), detail);
            }
            payload.extend_from_slice(&self.checked.memory.bytes(from, extent.len as usize));
        }
        self.report.overflow_bytes += payload.len() as u64;
        let is_whole =
            payload.len() == head.payload_len() && payload_checksum(head.seq, &payload) == overflow.checksum;
        if !is_whole {
            let detail = format!("a long value of {} bytes is damaged", payload.len());
            self.note(DamageKind::Overflow, newest.place, Some(position), detail);
        }
        is_whole
    }
}
