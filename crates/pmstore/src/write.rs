//! Writes: room is found for all of a batch, then it is applied; nothing of it is when there is none.
//!
//! A record goes into the frame that is being made and, with ordinary stores, into the active storage block, from
//! where it is read. The frame is stored past the caches when it is whole. What a crash leaves before the fence: the
//! frame counts or not; a record in a block that no frame has is made void by recovery.

use crate::blocks::{Maker, Role};
use crate::evict::long_bytes;
use crate::format::{
    EXTENTS_MAX, FLAG_KEY_OUT, FLAG_OVERFLOW, FLAG_TOMBSTONE, FRAME_BYTES, FRAME_MORE, FrameHead, Layout,
    Overflow, RECORD_BYTES, RecordBody, RecordHead, payload_checksum,
};
use crate::graves::grave_of;
use crate::log::FramePlace;
use crate::long_emptying::CHEAP_PERCENT;
use crate::settings::{KEY_BYTES_BESIDE, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::shard::{Death, Found, PmShard};
use std::sync::Arc;
use tierstone_base::{Error, ErrorKind, Now, Result, Seq};
use tierstone_engine::{BatchTicket, Commit, Cost, Durability, Key, Write, WriteKind, WriteReceipt};
use tierstone_media::region::LINE_BYTES;

/// Free blocks that only the cleaner takes.
const CLEANER_BLOCKS: u64 = 1;
/// Free blocks that only deletes take besides.
const DELETE_BLOCKS: u64 = 1;

/// The longest value, in bytes.
pub(crate) fn value_bytes_max(layout: &Layout) -> u64 {
    let segments = layout.geometry.segment_bytes * (EXTENTS_MAX as u64 - 1);
    segments.saturating_sub(KEY_BYTES_MAX as u64).min(VALUE_BYTES_MAX)
}

/// What a write needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Bytes of its record.
    len: u32,
    /// Bytes in overflow blocks.
    payload: usize,
    is_key_out: bool,
}

fn shape(layout: &Layout, write: &Write<'_>) -> Shape {
    let value_len = match write.kind {
        WriteKind::Put { value, .. } => value.len(),
        WriteKind::Delete => 0,
    };
    let key_len = write.key.bytes.len();
    let is_key_out = key_len > layout.inline_key_max();
    let payload = match is_key_out {
        true => key_len + value_len,
        false if value_len > layout.inline_value_max() => value_len,
        false => 0,
    };
    let extents = (payload as u64).div_ceil(layout.geometry.segment_bytes) as usize;
    let outside = if payload > 0 { 16 + extents * 8 } else { value_len };
    let inside = if is_key_out { 0 } else { key_len };
    let len = (RECORD_BYTES + outside + inside).next_multiple_of(8) as u32;
    Shape { len, payload, is_key_out }
}

/// What a batch needs of the log, in bytes.
fn frame_bytes(layout: &Layout, shapes: &[Shape]) -> u64 {
    let (mut total, mut open) = (0, FRAME_BYTES);
    for shape in shapes {
        if open + shape.len as usize > layout.frame_max() {
            total += (open as u64).next_multiple_of(LINE_BYTES);
            open = FRAME_BYTES;
        }
        open += shape.len as usize;
    }
    total + (open as u64).next_multiple_of(LINE_BYTES)
}

/// The records of a batch that are being put into frames.
#[derive(Debug)]
struct Group<'p> {
    first: Seq,
    part: Option<&'p Arc<BatchTicket>>,
    /// Of the frame that is being made.
    frame_first: Seq,
    records: u16,
    /// The logical log segment in which it begins.
    begins: Option<u32>,
}

impl PmShard {
    /// See [`tierstone_engine::Engine::write`] and `write_part`; `is_undo`: deletes' room is the write's too.
    pub(crate) fn write_inner(
        &mut self,
        now: Now,
        writes: &[Write<'_>],
        part: Option<&Arc<BatchTicket>>,
        is_undo: bool,
    ) -> Result<WriteReceipt> {
        self.see(now);
        if part.is_none() {
            self.release_admitted();
        }
        let mut shapes = std::mem::take(&mut self.shapes);
        let receipt = self
            .check(writes, is_undo, &mut shapes)
            .and_then(|()| self.write_shaped(writes, &shapes, part, is_undo));
        self.shapes = shapes;
        receipt
    }

    fn write_shaped(
        &mut self,
        writes: &[Write<'_>],
        shapes: &[Shape],
        part: Option<&Arc<BatchTicket>>,
        is_undo: bool,
    ) -> Result<WriteReceipt> {
        if !is_undo {
            self.wait_for_backup()?;
            self.wait_for_eviction(writes, part.is_some())?;
        }
        let mut found = None;
        let may_always = is_undo || Write::only_free(writes);
        for write in writes {
            found = self.find_replaced(&write.key)?;
            self.refuse_new_key(write, found, may_always)?;
        }
        let before = self.counts.record_bytes_written;
        if part.is_some() || self.changes_something(writes, found)? {
            self.make_room(writes, shapes, is_undo)?;
            let payloads = self.put_payloads(writes, shapes)?;
            let applied = self.apply(writes, shapes, &payloads, found, part);
            self.fatal(applied)?;
            self.note_open();
        }
        let commit = match self.settings.durability {
            Durability::Sync => Commit::Durable,
            Durability::Group { .. } => Commit::Grouped,
            Durability::Relaxed => Commit::Relaxed,
        };
        let bytes_written = self.counts.record_bytes_written - before;
        Ok(WriteReceipt { seq: self.applied, commit, cost: Cost { bytes_written, ..Cost::default() } })
    }

    /// See [`tierstone_engine::Engine::admit`].
    pub(crate) fn admit_inner(&mut self, writes: &[Write<'_>]) -> Result<()> {
        self.release_admitted();
        let mut shapes = Vec::new();
        self.check(writes, false, &mut shapes)?;
        self.wait_for_backup()?;
        let may_always = Write::only_free(writes);
        for write in writes {
            let found = self.find_replaced(&write.key)?;
            self.refuse_new_key(write, found, may_always)?;
        }
        self.wait_for_eviction(writes, false)?;
        self.make_room(writes, &shapes, false)?;
        // All shards have their overflow blocks of one region: another might take them before the part is written.
        self.admitted = self.take_payloads(writes, &shapes)?;
        Ok(())
    }

    /// Gives back what was kept for a part that was not written.
    pub(crate) fn release_admitted(&mut self) {
        for overflow in std::mem::take(&mut self.admitted).into_iter().flatten() {
            let freed = self.overflow.free(&overflow.extents);
            if self.fatal(freed).is_err() {
                return;
            }
        }
    }

    /// What was kept for writes of these shapes, if they are the ones that were admitted.
    fn take_admitted(&mut self, shapes: &[Shape]) -> Option<Vec<Option<Overflow>>> {
        let bytes = |overflow: &Overflow| overflow.extents.iter().map(|extent| extent.len as usize).sum();
        let is_for =
            |(kept, shape): (&Option<Overflow>, &Shape)| kept.as_ref().map_or(0, bytes) == shape.payload;
        let fits = self.admitted.len() == shapes.len() && self.admitted.iter().zip(shapes).all(is_for);
        if !fits {
            self.release_admitted();
            return None;
        }
        Some(std::mem::take(&mut self.admitted))
    }

    /// Refuses a key that is not there while indexes may not grow; what takes a batch back, or only frees, always may.
    fn refuse_new_key(&mut self, write: &Write<'_>, found: Option<Found>, may_always: bool) -> Result<()> {
        let is_new = found.is_none() && !may_always && !matches!(write.kind, WriteKind::Delete);
        if !is_new || !self.is_memory_full() {
            return Ok(());
        }
        if self.lose_for_room() {
            return Err(Error::new(ErrorKind::Retry, "memory is being given back: step the engine"));
        }
        if self.can_evict_for_memory() {
            return Err(Error::new(ErrorKind::Retry, "keys are being evicted to make room: step the engine"));
        }
        let message = format!(
            "the memory for indexes, {} bytes a shard, is used up: new keys are refused until keys are deleted or the store \
             is opened with more; overwrites and deletes go on",
            self.settings.memory_bytes
        );
        Err(Error::new(ErrorKind::NoMemory, message))
    }

    /// Whether there is more than deletes of keys that are not there.
    fn changes_something(&self, writes: &[Write<'_>], last: Option<Found>) -> Result<bool> {
        if last.is_some() || writes.iter().any(|write| !matches!(write.kind, WriteKind::Delete)) {
            return Ok(true);
        }
        for write in writes {
            if self.find_replaced(&write.key)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether `writes` may be, and their shapes. What was there may come back, whatever its length.
    fn check(&self, writes: &[Write<'_>], is_undo: bool, shapes: &mut Vec<Shape>) -> Result<()> {
        let longest = value_bytes_max(&self.maker.layout);
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.is_shutting {
            return Err(Error::new(ErrorKind::Busy, "the store is being closed"));
        }
        for write in writes {
            if write.key.bytes.len() > KEY_BYTES_MAX {
                let message = format!("a key of {} bytes: 65,535 at most", write.key.bytes.len());
                return Err(Error::new(ErrorKind::InvalidInput, message));
            }
            if let WriteKind::Put { value, .. } = write.kind
                && (value.len() + write.key.bytes.len().saturating_sub(KEY_BYTES_BESIDE as usize)) as u64
                    > longest
                && !is_undo
            {
                let message = format!("a value of {} bytes: {longest} at most", value.len());
                return Err(Error::new(ErrorKind::InvalidInput, message));
            }
        }
        shapes.clear();
        shapes.extend(writes.iter().map(|write| shape(&self.maker.layout, write)));
        Ok(())
    }

    /// Finds room in log and blocks.
    fn make_room(&mut self, writes: &[Write<'_>], shapes: &[Shape], is_undo: bool) -> Result<()> {
        let bytes = frame_bytes(&self.maker.layout, shapes);
        if bytes > self.log.batch_max() {
            let message = format!(
                "a batch of {bytes} bytes, long values not counted: {} at most; divide it, or make the store with more \
                 log segments",
                self.log.batch_max()
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        if !self.log.has_room(bytes) {
            // The log need not be long for a long batch to find no room.
            self.wants_log = !self.mutations.is_on("long_batch_waits_for_a_long_log");
            return Err(Error::new(ErrorKind::Retry, "the log is full: step the engine, which truncates it"));
        }
        let wanted = self.blocks.wanted(shapes.iter().map(|shape| shape.len));
        if wanted == 0 {
            return Ok(());
        }
        let may_reserve = is_undo || Write::only_free(writes);
        let kept = CLEANER_BLOCKS + if may_reserve { 0 } else { DELETE_BLOCKS };
        let secured = self.blocks.secure((wanted + kept) as usize);
        match self.fatal(secured)? {
            true => Ok(()),
            false => Err(self.no_space(wanted)),
        }
    }

    /// Why there is no room, and whether there may be some.
    fn no_space(&mut self, blocks: u64) -> Error {
        self.wants_truncation = !self.freeing.is_empty();
        let may_come = self.empties_long_values(CHEAP_PERCENT)
            || self.blocks.has_victim(self.least_gain())
            || !self.deaths.is_empty()
            || !self.freeing.is_empty()
            || self.blocks.emptying.is_some()
            || self.can_empty_much()
            || self.can_evict_for_space()
            || self.lose_for_room();
        let may_come = match may_come {
            true => true,
            false => {
                let given_up = self.give_checkpoint_up();
                match self.fatal(given_up) {
                    Ok(gave) => gave,
                    Err(error) => return error,
                }
            }
        };
        if may_come {
            self.wants_space = true;
            // What was replaced, or waits for the log, gives its space when all is durable: nobody waits for company.
            self.wants_flush |= !self.deaths.is_empty() || !self.freeing.is_empty();
            return Error::new(ErrorKind::Retry, "space is being cleaned: step the engine");
        }
        let message = format!(
            "the persistent memory is full: {} of {} free blocks of {} bytes are kept for deletes and cleaning; delete \
             keys, or restore a backup into a larger region",
            self.blocks.free.len(),
            self.blocks.free.len() as u64 + blocks,
            self.maker.layout.geometry.block_bytes
        );
        Error::new(ErrorKind::NoSpace, message)
    }

    /// Takes overflow blocks for the long values of a batch; all or none.
    fn take_payloads(&mut self, writes: &[Write<'_>], shapes: &[Shape]) -> Result<Vec<Option<Overflow>>> {
        let mut payloads: Vec<Option<Overflow>> = Vec::new();
        if shapes.iter().all(|shape| shape.payload == 0) {
            return Ok(payloads);
        }
        for shape in shapes.iter().take(writes.len()) {
            if shape.payload == 0 {
                payloads.push(None);
                continue;
            }
            match self.overflow.take(shape.payload as u64, self.segments_kept_from_long_values()) {
                Ok(extents) => payloads.push(Some(Overflow { checksum: 0, extents })),
                Err(error) => {
                    for overflow in payloads.into_iter().flatten() {
                        self.overflow.free(&overflow.extents)?;
                    }
                    let is_full = error.kind() == ErrorKind::NoSpace;
                    let may_come = is_full
                        && (!self.deaths.is_empty()
                            || !self.freeing.is_empty()
                            || self.can_empty_a_segment()
                            || self.can_evict_for_space()
                            || self.lose_for_room());
                    return Err(if may_come { self.no_space(0) } else { error });
                }
            }
        }
        self.emptied = Default::default();
        Ok(payloads)
    }

    /// Takes overflow blocks and puts the long values there, durably. One barrier if there are any.
    fn put_payloads(&mut self, writes: &[Write<'_>], shapes: &[Shape]) -> Result<Vec<Option<Overflow>>> {
        let mut payloads = match self.take_admitted(shapes) {
            Some(payloads) => payloads,
            None => self.take_payloads(writes, shapes)?,
        };
        let is_unfenced = self.mutations.is_on("overflow_after_record");
        let mut seq = self.applied;
        let mut joined = Vec::new();
        for ((write, shape), overflow) in writes.iter().zip(shapes).zip(&mut payloads) {
            seq += 1;
            let (Some(overflow), WriteKind::Put { value, .. }) = (overflow, write.kind_with_value()) else {
                continue;
            };
            let payload = if shape.is_key_out {
                joined.clear();
                joined.extend_from_slice(write.key.bytes);
                joined.extend_from_slice(value);
                &joined
            } else {
                value
            };
            overflow.checksum = payload_checksum(seq, payload);
            let mut rest = payload;
            for extent in &overflow.extents {
                let (part, behind) = rest.split_at(extent.len as usize);
                self.maker.memory.stream(extent.offset, part);
                rest = behind;
            }
        }
        if !payloads.is_empty() && !is_unfenced {
            // crash here [overflow-without-record]: no record names the blocks, and recovery finds them free
            let fenced = self.maker.memory.fence();
            self.fatal(fenced)?;
        }
        Ok(payloads)
    }

    /// The record that a write of `key` replaces. Its value is not read, nor its checksum: of what is given only place,
    /// length and whether it has overflow blocks are for use. A record that does not say what the key lets expect is
    /// verified, and so is one with overflow blocks.
    ///
    /// # Errors
    /// `Corrupt`: a record of its position is damaged, so that whose it is cannot be told.
    fn find_replaced(&self, key: &Key<'_>) -> Result<Option<Found>> {
        let Some(keys) = self.keyspaces.get(&key.keyspace) else { return Ok(None) };
        let mut found = None;
        keys.get(key.position, |place| {
            let replaced = match self.plainly_of(key, place) {
                Some(head) => Some(head),
                None => {
                    let (head, record) = self.record(place)?;
                    (*self.key_of(&head, &record)? == *key.bytes).then_some(head)
                }
            };
            found = replaced.map(|head| Found { place, head });
            Ok(replaced.is_some())
        })?;
        Ok(found)
    }

    /// The head of the record at `place`, not verified, if it holds `key` and its value itself and everything that
    /// follows from that is so.
    fn plainly_of(&self, key: &Key<'_>, place: u64) -> Option<RecordHead> {
        let Maker { memory, layout, .. } = &self.maker;
        let room = layout.block(layout.block_of(place) + 1) - place;
        let bytes = memory.bytes(place, room.min((RECORD_BYTES + key.bytes.len()) as u64) as usize);
        let head = RecordHead::decode(&bytes, room).filter(|head| head.flags == 0)?;
        let plain_len = (RECORD_BYTES + key.bytes.len() + head.value_len as usize).next_multiple_of(8);
        let is_it = head.position == key.position.0
            && head.keyspace == key.keyspace.0
            && usize::from(head.key_len) == key.bytes.len()
            && head.len as usize == plain_len
            && bytes.get(RECORD_BYTES..) == Some(key.bytes);
        is_it.then_some(head)
    }

    fn apply(
        &mut self,
        writes: &[Write<'_>],
        shapes: &[Shape],
        payloads: &[Option<Overflow>],
        first_found: Option<Found>,
        part: Option<&Arc<BatchTicket>>,
    ) -> Result<()> {
        let first = self.applied + 1;
        let mut group = Group { first, part, frame_first: first, records: 0, begins: None };
        self.frame.clear();
        self.frame.resize(FRAME_BYTES, 0);
        for (at, write) in writes.iter().enumerate() {
            let found = if writes.len() == 1 { first_found } else { self.find_replaced(&write.key)? };
            // Its sequence is taken all the same: payloads are salted with it.
            self.applied += 1;
            if found.is_none() && matches!(write.kind, WriteKind::Delete) {
                if let Some(unused) = payloads.get(at).and_then(Option::as_ref) {
                    self.overflow.free(&unused.extents)?;
                }
                continue;
            }
            if self.frame.len() + shapes[at].len as usize > self.maker.layout.frame_max() {
                self.end_frame(&mut group, FRAME_MORE, self.applied - 1)?;
            }
            let overflow = payloads.get(at).and_then(Option::as_ref);
            self.apply_one(write, shapes[at], overflow, found)?;
            group.records += 1;
        }
        let place = self.end_frame(&mut group, 0, self.applied)?;
        if let (Some(part), Some(begins)) = (part, group.begins) {
            self.parts.add((group.first, self.applied), begins, place, part);
        }
        Ok(())
    }

    /// Puts the frame that was being made into the log.
    fn end_frame(&mut self, group: &mut Group<'_>, flags: u16, last_seq: Seq) -> Result<FramePlace> {
        let len = self.frame.len().next_multiple_of(LINE_BYTES as usize);
        self.frame.resize(len, 0);
        if self.log.needs_segment(len) {
            let life = self.blocks.new_life();
            self.log.begin_segment(life, group.frame_first, self.blocks.appended())?;
            self.counts.redo_fences += 2;
        }
        let head = FrameHead {
            len: len as u32,
            flags,
            records: group.records,
            first_seq: group.frame_first,
            last_seq,
            batch: group.part.map_or(0, |ticket| ticket.id()),
            parts: group.part.map_or(0, |ticket| ticket.parts()),
            opening: self.maker.opening,
        };
        let place = self.log.append(head, &mut self.frame)?;
        self.log.note_appended(self.blocks.appended());
        self.counts.redo_bytes_written += len as u64;
        self.frame.clear();
        self.frame.resize(FRAME_BYTES, 0);
        group.begins.get_or_insert(place.logical);
        (group.frame_first, group.records) = (last_seq + 1, 0);
        Ok(place)
    }

    /// One write whose sequence is the newest.
    fn apply_one(
        &mut self,
        write: &Write<'_>,
        shape: Shape,
        overflow: Option<&Overflow>,
        found: Option<Found>,
    ) -> Result<()> {
        let Key { keyspace, position, bytes } = write.key;
        let (value, expiry_ms, kind, tombstone) = match write.kind {
            WriteKind::Put { value, expiry_ms, kind } => (value, expiry_ms, kind.0, 0),
            WriteKind::Delete => (&[][..], 0, 0, FLAG_TOMBSTONE),
        };
        let overflow_flag = if overflow.is_some() { FLAG_OVERFLOW } else { 0 };
        let head = RecordHead {
            len: shape.len,
            key_len: bytes.len() as u16,
            flags: tombstone | overflow_flag | if shape.is_key_out { FLAG_KEY_OUT } else { 0 },
            kind,
            seq: self.applied,
            expiry_ms,
            position: position.0,
            keyspace: keyspace.0,
            value_len: value.len() as u32,
        };
        let body = RecordBody {
            key: if shape.is_key_out { &[] } else { bytes },
            value: if overflow.is_some() { &[] } else { value },
            overflow,
        };
        if expiry_ms != 0 {
            self.sweeper.note_written();
        }
        self.longest_bytes = self.longest_bytes.max(head.bytes());
        let start = self.frame.len();
        head.encode(&mut self.frame, body);
        let place = self.blocks.append(Role::Active, &mut self.frame[start..])?;
        self.name_long(overflow, place);
        self.counts.record_bytes_written += u64::from(shape.len);
        self.counts.user_bytes_written += (bytes.len() + value.len()) as u64;
        self.replace_in_index(&write.key, &head, place, found);
        Ok(())
    }

    fn replace_in_index(&mut self, key: &Key<'_>, head: &RecordHead, place: u64, found: Option<Found>) {
        let grave = grave_of(key.keyspace, key.position);
        self.make_keyspace(key.keyspace);
        let Some(keys) = self.keyspaces.get_mut(&key.keyspace) else { return };
        match (found, head.is_tombstone()) {
            (Some(old), true) => keys.remove(key.position, key.bytes, old.place),
            (Some(old), false) => keys.replace(key.position, key.bytes, old.place, place),
            (None, _) => keys.insert(key.position, key.bytes, place),
        }
        if found.is_none() {
            self.note_new_key();
        }
        if !head.is_tombstone() {
            self.evictor.uses.written(key.keyspace, key.position, found.is_some());
        }
        match found {
            Some(old) => {
                self.note_old(grave, old.place);
                self.give_replaced(key, old.place, old.head.seq);
                let is_kept = self.keep_for_snapshots(key, &old, head);
                self.will_die(old, head.seq, is_kept);
            }
            None => self.replace_tombstones(key, head.seq, grave),
        }
        if head.is_tombstone() {
            self.graves.add_tombstone(grave, place);
        }
    }

    fn will_die(&mut self, old: Found, seq: Seq, is_kept: bool) {
        self.blocks.hold(old.place);
        let is_overflow = old.head.is_overflow();
        let Found { place, head } = old;
        let (len, long_bytes) = (head.len, long_bytes(&head));
        self.evictor.dying_bytes += u64::from(len);
        self.evictor.dying_long_bytes += long_bytes;
        self.deaths.push_back(Death { seq, place, len, long_bytes, is_overflow, is_kept });
    }

    /// A key that was deleted is there again: its record stands for what the tombstone stood for. A tombstone that is damaged
    /// stays: whosever it is, the record is newer.
    fn replace_tombstones(&mut self, key: &Key<'_>, seq: Seq, grave: u64) {
        for place in self.graves.tombstones_of(grave) {
            let verified = self.record(place).and_then(|(head, record)| {
                let is_it = *self.key_of(&head, &record)? == *key.bytes;
                Ok((head, is_it && head.keyspace == key.keyspace.0))
            });
            if let Ok((head, true)) = verified {
                self.graves.move_tombstone(grave, place, None);
                self.will_die(Found { place, head }, seq, false);
            }
        }
    }
}

/// Gives deletes an empty value, so that a long key of one is put out like any other.
trait WithValue<'a> {
    fn kind_with_value(&self) -> WriteKind<'a>;
}

impl<'a> WithValue<'a> for Write<'a> {
    fn kind_with_value(&self) -> WriteKind<'a> {
        match self.kind {
            WriteKind::Delete => WriteKind::Put { value: &[], expiry_ms: 0, kind: Default::default() },
            put => put,
        }
    }
}
