//! Parity groups: reading what a lost member held, and writing so that no crash opens the write hole.
//!
//! The write hole: data and parity of a row lie on different members, so a crash between the two writes
//! leaves parity that does not fit; if a member is then lost, what is computed for it is wrong, also of
//! blocks that nobody was writing. The answer here: the new data and the new parity of a row are
//! written to a journal on two members of the group, durably, before any of them is written in place.
//! Opening writes the newest journalled round in place again, whatever of it had arrived.
//!
//! A *round* is at most as many distinct rows as half the journal has slots. Rounds follow each other and
//! take the halves in turn: a record says that all before its round is in place, and while one round is
//! being written, torn or not, that of the round before it can still be read.
//!
//! Invariants:
//! 1. A row's record is durable on every member that is to hold it before its in-place writes begin.
//! 2. A record is written over only when the next round's in-place writes are durable.
//! 3. Parity is computed before the record is written and never again from half-written rows: a row that a member has
//!    refused a part of is mended before anything else is journalled (see [`crate::torn`]).
//! 4. The halves of the journal are turned only by rounds that left a record: of the other half, the one before must
//!    not be the only one that is whole.

use crate::core::{Core, JOURNAL_START};
use crate::journal::{Piece, Record};
use crate::layout::Place;
use crate::superblock::Health;
use std::collections::BTreeMap;
use tierstone_base::Result as BaseResult;
use tierstone_media::{
    BLOCK_BYTES, BlockDevice, DeviceError, DeviceErrorKind, IoBuffer, IoCompletion, IoKind, IoRequest,
};

/// Most pieces of new data of a row in a round; their places fit the head of a record.
const PIECES_MAX: usize = 300;

/// What a round does to one row.
struct RowWrite {
    group: u32,
    row: u64,
    /// The new bytes: data position, first byte within the chunk, bytes; the last of equal places wins.
    new: Vec<(u32, usize, Vec<u8>)>,
    /// Requests with a part in it.
    requests: Vec<u64>,
}

fn failed(detail: impl Into<String>) -> DeviceError {
    DeviceError::new(DeviceErrorKind::Failed, detail)
}

fn xor(into: &mut [u8], from: &[u8]) {
    for (into, from) in into.iter_mut().zip(from) {
        *into ^= from;
    }
}

impl<D: BlockDevice> Core<D> {
    /// The members of a group that count in `row`.
    pub(crate) fn alive(&self, group: u32, row: u64) -> Vec<usize> {
        self.layout.members(group).filter(|&index| self.is_usable(index, row)).collect()
    }

    fn data_index(&self, group: u32, row: u64, position: u32) -> usize {
        self.layout.members(group).start + self.layout.data_member(row, position) as usize
    }

    fn parity_index(&self, group: u32, row: u64) -> usize {
        self.layout.members(group).start + self.layout.parity_member(row) as usize
    }

    fn row_offset(&self, row: u64, within: usize) -> u64 {
        self.data_start + row * self.layout.chunk_bytes + within as u64
    }

    /// The bytes of `place`, whose own member cannot read them, from all others of its row.
    pub(crate) fn reconstruct(&mut self, place: &Place, tried: &[usize]) -> Result<IoBuffer, DeviceError> {
        let missing = self.data_index(place.group, place.row, place.position);
        self.reconstruct_member(
            place.group,
            place.row,
            missing,
            place.within as usize,
            place.len as usize,
            tried,
        )
    }

    /// What member `missing` holds in a row, from all others.
    pub(crate) fn reconstruct_member(
        &mut self,
        group: u32,
        row: u64,
        missing: usize,
        within: usize,
        len: usize,
        tried: &[usize],
    ) -> Result<IoBuffer, DeviceError> {
        if self.is_torn(group, row) {
            self.mend_torn()?;
        }
        let mut others = self.alive(group, row);
        others.retain(|&index| index != missing && !tried.contains(&index));
        if others.len() + 1 < self.layout.width as usize {
            return Err(failed(format!("volume: two members of group {group} cannot be read")));
        }
        let offset = self.row_offset(row, within);
        let read = |&index: &usize| (index, IoRequest::read(0, offset, IoBuffer::zeroed(len)));
        let requests = others.iter().map(read).collect();
        let mut sum = IoBuffer::zeroed(len);
        for (index, done) in others.into_iter().zip(self.members.perform(requests)) {
            if let Err(error) = done.result {
                self.note_read_error(index);
                return Err(error);
            }
            if let Some(bytes) = done.buffer {
                xor(&mut sum, &bytes);
            }
        }
        Ok(sum)
    }

    /// Does all queued writes, in rounds.
    pub(crate) fn write_parity(&mut self) {
        let mut waiting: Vec<(u64, Place)> = Vec::new();
        let mut parts: BTreeMap<u64, (usize, Option<DeviceError>)> = BTreeMap::new();
        let queue = std::mem::take(&mut self.parity_queue);
        let is_discard = |id: &u64| matches!(self.span(*id).0, IoKind::Discard { .. });
        let (discards, writes): (Vec<u64>, Vec<u64>) = queue.into_iter().partition(is_discard);
        for id in writes {
            let Some(open) = self.requests.get(&id) else { continue };
            let len = open.buffer.as_ref().map_or(0, |buffer| buffer.len() as u64);
            let places = self.layout.places(open.offset, len);
            parts.insert(id, (places.len(), None));
            waiting.extend(places.into_iter().map(|place| (id, place)));
        }
        while !waiting.is_empty() {
            let round = self.take_round(&mut waiting);
            for (write, result) in self.write_round(round) {
                for id in write.requests {
                    if let (Some((_, error)), Err(happened)) = (parts.get_mut(&id), &result) {
                        error.get_or_insert_with(|| happened.clone());
                    }
                }
            }
        }
        for (id, (_, error)) in parts {
            self.finish(id, error);
        }
        for id in discards {
            let (_, offset, len) = self.span(id);
            let error = self.discard_rows(&(offset..offset + len)).err();
            self.finish(id, error);
        }
    }

    /// Takes places of as many rows as there are journal slots; a block that is written twice waits for
    /// the next round.
    fn take_round(&mut self, waiting: &mut Vec<(u64, Place)>) -> Vec<RowWrite> {
        let mut rows: BTreeMap<(u32, u64), RowWrite> = BTreeMap::new();
        let mut rest = Vec::new();
        for (id, place) in waiting.drain(..) {
            let key = (place.group, place.row);
            let is_full = match rows.get(&key) {
                Some(write) => write.new.len() >= PIECES_MAX,
                None => rows.len() >= self.journal_slots as usize / 2,
            };
            let (from, to) = (place.within as usize, (place.within + place.len) as usize);
            let overlaps = |write: &RowWrite| {
                let clash = |(position, start, bytes): &(u32, usize, Vec<u8>)| {
                    *position == place.position && *start < to && from < start + bytes.len()
                };
                write.new.iter().any(clash)
            };
            if is_full || rows.get(&key).is_some_and(overlaps) {
                rest.push((id, place));
                continue;
            }
            let Some(bytes) = self.requests.get(&id).and_then(|open| open.buffer.as_ref()) else { continue };
            let bytes = bytes[place.at as usize..(place.at + place.len) as usize].to_vec();
            let (group, row) = key;
            let write =
                rows.entry(key).or_insert(RowWrite { group, row, new: Vec::new(), requests: Vec::new() });
            write.new.push((place.position, from, bytes));
            write.requests.push(id);
        }
        *waiting = rest;
        rows.into_values().collect()
    }

    fn write_round(&mut self, rows: Vec<RowWrite>) -> Vec<(RowWrite, Result<(), DeviceError>)> {
        if let Err(error) = self.mend_torn() {
            return rows.into_iter().map(|write| (write, Err(error.clone()))).collect();
        }
        let records = self.with_parity(&rows);
        let journalled = self.journal(&records);
        let (mut results, mut placed) = (Vec::new(), Vec::new());
        let (mut requests, mut owners) = (Vec::new(), Vec::new());
        for (at, (record, journalled)) in records.into_iter().zip(journalled).enumerate() {
            let record = record.and_then(|record| journalled.map(|()| record));
            results.push(record.as_ref().map(|_| ()).map_err(DeviceError::clone));
            if let Ok(record) = &record {
                let writes = self.in_place(record);
                owners.extend(writes.iter().map(|(index, _)| (at, *index)));
                requests.extend(writes);
            }
            placed.push(record.ok());
        }
        let done = self.members.perform(requests);
        self.settle_in_place(&rows, &owners, &done, &mut results);
        for (record, result) in placed.into_iter().zip(&results) {
            // crash here [row_half_written]: its record is the newest of the journal, and opening writes it again.
            if let (Some(record), Err(_)) = (record, result) {
                self.keep_torn(record);
            }
        }
        rows.into_iter().zip(results).collect()
    }

    fn settle_in_place(
        &mut self,
        rows: &[RowWrite],
        owners: &[(usize, usize)],
        done: &[IoCompletion],
        results: &mut [Result<(), DeviceError>],
    ) {
        for ((at, index), done) in owners.iter().zip(done) {
            let Err(error) = &done.result else { continue };
            if self.health[*index] == Health::Failed {
                continue;
            }
            if self.has_other(*index) {
                self.fail_member(*index);
            } else {
                results[*at] = Err(error.clone());
            }
        }
        // A group that has lost a second member holds nothing that can be relied on.
        for (write, result) in rows.iter().zip(results) {
            if result.is_ok() && self.alive(write.group, write.row).len() + 1 < self.layout.width as usize {
                *result = Err(failed(format!("volume: two members of group {} failed", write.group)));
            }
        }
    }

    pub(crate) fn in_place(&self, record: &Record) -> Vec<(usize, IoRequest)> {
        let first = self.layout.members(record.group).start;
        let usable = |piece: &&Piece| self.is_usable(first + piece.member as usize, record.row);
        let write = |piece: &Piece| {
            let offset = self.row_offset(record.row, piece.within as usize);
            (
                first + piece.member as usize,
                IoRequest::write_durable(0, offset, IoBuffer::from_slice(&piece.bytes)),
            )
        };
        record.pieces.iter().filter(usable).map(write).collect()
    }

    // ---- parity --------------------------------------------------------------------------------

    /// The record of each row: its new data and the parity that fits it. The reads of all rows are one
    /// vector.
    fn with_parity(&mut self, rows: &[RowWrite]) -> Vec<Result<Record, DeviceError>> {
        loop {
            let plans: Vec<Vec<(usize, usize, usize)>> =
                rows.iter().map(|write| self.reads_of(write)).collect();
            let read = |write: &RowWrite, &(index, within, len): &(usize, usize, usize)| {
                (index, IoRequest::read(0, self.row_offset(write.row, within), IoBuffer::zeroed(len)))
            };
            let requests = rows
                .iter()
                .zip(&plans)
                .flat_map(|(write, plan)| plan.iter().map(move |one| read(write, one)))
                .collect();
            let mut done = self.members.perform(requests);
            let asked =
                rows.iter().zip(&plans).flat_map(|(write, plan)| plan.iter().map(move |one| (write, *one)));
            let asked: Vec<_> = asked.collect();
            let unread = asked.into_iter().zip(&mut done).filter(|(_, done)| done.result.is_err());
            if !unread.fold(true, |all, ((write, one), done)| self.read_elsewhere(write, one, done) && all) {
                // Without what a member holds that is given up, the rows are computed from the others.
                continue;
            }
            let mut done = done.into_iter();
            let mut records = Vec::new();
            for (write, plan) in rows.iter().zip(plans) {
                let read: Vec<IoCompletion> = done.by_ref().take(plan.len()).collect();
                let error = read.iter().find_map(|done| done.result.clone().err());
                records.push(match error {
                    Some(error) => Err(error),
                    None => self.record_of(write, plan, read),
                });
            }
            return records;
        }
    }

    /// Takes what a member cannot read from the others of the row, if they can; its new bytes are written there all the
    /// same. False when the member is given up, for it has failed to read too often.
    fn read_elsewhere(
        &mut self,
        write: &RowWrite,
        (index, within, len): (usize, usize, usize),
        done: &mut IoCompletion,
    ) -> bool {
        self.note_read_error(index);
        if self.health[index] == Health::Failed {
            return false;
        }
        if self.has_other(index)
            && let Ok(bytes) = self.reconstruct_member(write.group, write.row, index, within, len, &[])
        {
            (done.result, done.buffer) = (Ok(()), Some(bytes));
        }
        true
    }

    /// The bytes of the chunks that any new data covers.
    fn hull(write: &RowWrite) -> (usize, usize) {
        let from = write.new.iter().map(|(_, within, _)| *within).min().unwrap_or(0);
        let to = write.new.iter().map(|(_, within, bytes)| within + bytes.len()).max().unwrap_or(0);
        (from, to)
    }

    /// Whether the new data covers the hull in every data chunk: then nothing has to be read.
    fn is_full(&self, write: &RowWrite) -> bool {
        let (from, to) = Self::hull(write);
        let covered: usize = write.new.iter().map(|(_, _, bytes)| bytes.len()).sum();
        covered == (to - from) * self.layout.positions() as usize
    }

    /// What must be read to compute parity: member, first byte in the chunk, length.
    fn reads_of(&self, write: &RowWrite) -> Vec<(usize, usize, usize)> {
        let (from, to) = Self::hull(write);
        let parity = self.parity_index(write.group, write.row);
        if !self.is_usable(parity, write.row) || self.is_full(write) {
            return Vec::new();
        }
        let touched = |(position, within, bytes): &(u32, usize, Vec<u8>)| {
            (self.data_index(write.group, write.row, *position), *within, bytes.len())
        };
        let touched: Vec<(usize, usize, usize)> = write.new.iter().map(touched).collect();
        if touched.iter().all(|(index, ..)| self.is_usable(*index, write.row)) {
            return touched.into_iter().chain([(parity, from, to - from)]).collect();
        }
        self.alive(write.group, write.row).into_iter().map(|index| (index, from, to - from)).collect()
    }

    fn record_of(
        &self,
        write: &RowWrite,
        plan: Vec<(usize, usize, usize)>,
        read: Vec<IoCompletion>,
    ) -> Result<Record, DeviceError> {
        let (group, row) = (write.group, write.row);
        if self.alive(group, row).len() + 1 < self.layout.width as usize {
            return Err(failed(format!("volume: two members of group {group} failed")));
        }
        let first = self.layout.members(group).start;
        let member = |position: u32| self.layout.data_member(row, position);
        let piece = |(position, within, bytes): &(u32, usize, Vec<u8>)| Piece {
            member: member(*position),
            within: *within as u32,
            bytes: bytes.clone(),
        };
        let mut pieces: Vec<Piece> = write.new.iter().map(piece).collect();
        let parity_index = self.parity_index(group, row);
        if self.is_usable(parity_index, row) {
            let (from, to) = Self::hull(write);
            let mut parity = vec![0u8; to - from];
            // New data of every chunk that is written, over what was there; XOR of all is the parity.
            for ((_, within, _), done) in plan.iter().zip(&read) {
                if let Some(bytes) = &done.buffer {
                    xor(&mut parity[within - from..], bytes);
                }
            }
            let lost = write.new.iter().map(|(position, ..)| self.data_index(group, row, *position));
            let lost: Vec<usize> = lost.filter(|index| !self.is_usable(*index, row)).collect();
            if let Some(&lost) = lost.first() {
                // All survivors were read: their XOR is what the lost chunk held. Parity is the XOR of
                // all data with the new bytes in place, so start from the old parity itself.
                let at = plan.iter().position(|(index, ..)| *index == parity_index);
                let old_lost = parity.clone();
                parity = match at.and_then(|at| read[at].buffer.as_ref()) {
                    Some(old_parity) => old_parity[..to - from].to_vec(),
                    None => return self.full_record(write, pieces),
                };
                for (position, within, bytes) in &write.new {
                    let index = self.data_index(group, row, *position);
                    let span = within - from..within - from + bytes.len();
                    let at = plan.iter().position(|(other, ..)| *other == index);
                    match at.and_then(|at| read[at].buffer.as_ref()) {
                        _ if index == lost => xor(&mut parity[span.clone()], &old_lost[span]),
                        Some(old) => xor(&mut parity[span.clone()], &old[span]),
                        None => {}
                    }
                }
            }
            for (_, within, bytes) in &write.new {
                xor(&mut parity[within - from..], bytes);
            }
            let member = (parity_index - first) as u32;
            pieces.push(Piece { member, within: from as u32, bytes: parity });
        }
        Ok(Record { group, row, rows: 0, sequence: 0, done_through: 0, pieces })
    }

    /// A row whose every data chunk is new: parity needs nothing that was there.
    fn full_record(&self, write: &RowWrite, mut pieces: Vec<Piece>) -> Result<Record, DeviceError> {
        let (from, to) = Self::hull(write);
        let mut parity = vec![0u8; to - from];
        for (_, within, bytes) in &write.new {
            xor(&mut parity[within - from..], bytes);
        }
        let member = self.layout.parity_member(write.row);
        pieces.push(Piece { member, within: from as u32, bytes: parity });
        Ok(Record { group: write.group, row: write.row, rows: 0, sequence: 0, done_through: 0, pieces })
    }

    // ---- the journal ---------------------------------------------------------------------------

    pub(crate) fn slot_bytes(&self) -> u64 {
        BLOCK_BYTES as u64 + u64::from(self.layout.width) * self.layout.chunk_bytes
    }

    /// Writes the records of a round, each to two members of its group, durably.
    pub(crate) fn journal(
        &mut self,
        records: &[Result<Record, DeviceError>],
    ) -> Vec<Result<(), DeviceError>> {
        let done_through = self.journal_sequence;
        let half_slots = u64::from(self.journal_slots) / 2;
        let mut slot = self.journal_half * half_slots;
        let mut results = Vec::new();
        let mut requests = Vec::new();
        let mut owners = Vec::new();
        for (at, record) in records.iter().enumerate() {
            results.push(Ok(()));
            let Ok(record) = record else { continue };
            self.journal_sequence += 1;
            let stamped = Record { sequence: self.journal_sequence, done_through, ..record.clone() };
            let bytes = stamped.encode(self.volume);
            let offset = JOURNAL_START + slot * self.slot_bytes();
            let alive = self.in_sync(record.group);
            let turn = (slot as usize) % alive.len().max(1);
            slot += 1;
            for &index in alive.iter().cycle().skip(turn).take(2.min(alive.len())) {
                owners.push((at, index));
                requests.push((index, IoRequest::write_durable(0, offset, bytes.clone())));
            }
        }
        if self.mutations.is_on("rows are journalled before they are written") {
            return results;
        }
        let done = self.members.perform(requests);
        let mut copies = vec![0; records.len()];
        for ((at, index), done) in owners.into_iter().zip(done) {
            match done.result {
                Ok(()) => copies[at] += 1,
                Err(_) if self.health[index] == Health::Failed => {}
                Err(_) if self.has_other(index) => self.fail_member(index),
                Err(error) => results[at] = Err(error),
            }
        }
        for (at, record) in records.iter().enumerate() {
            if record.is_ok() && copies[at] == 0 && results[at].is_ok() {
                results[at] = Err(failed("volume: no member took the journal"));
            }
        }
        if records.iter().zip(&results).any(|(record, result)| record.is_ok() && result.is_ok()) {
            // Otherwise the next round takes this half again: the other has the last round that is whole.
            self.journal_half = 1 - self.journal_half;
        }
        results
    }

    /// Writes the last round's rows in place again: what a crash in the middle of them needs.
    ///
    /// # Errors
    /// When a member fails that its group cannot do without.
    pub(crate) fn replay_journal(&mut self) -> BaseResult<u64> {
        let slot_bytes = self.slot_bytes();
        let mut found: BTreeMap<u64, (u64, Record)> = BTreeMap::new();
        for group in 0..self.layout.groups {
            for index in self.in_sync(group) {
                for slot in 0..u64::from(self.journal_slots) {
                    let buffer = IoBuffer::zeroed(slot_bytes as usize);
                    let read = IoRequest::read(0, JOURNAL_START + slot * slot_bytes, buffer);
                    let done = self.members.perform(vec![(index, read)]).pop();
                    let Some(IoCompletion { result: Ok(()), buffer: Some(bytes), .. }) = done else {
                        continue;
                    };
                    if let Some(record) = Record::decode(self.volume, &self.layout, &bytes)
                        && record.group == group
                    {
                        let half = slot / (u64::from(self.journal_slots) / 2).max(1);
                        found.insert(record.sequence, (half, record));
                    }
                }
            }
        }
        let in_place = found.values().map(|(_, record)| record.done_through).max().unwrap_or(0);
        if let Some((&sequence, (half, _))) = found.last_key_value() {
            self.journal_sequence = sequence;
            self.journal_half = 1 - half.min(&1);
        }
        found.retain(|sequence, _| *sequence > in_place);
        let count = found.len() as u64;
        for (_, record) in found.into_values() {
            self.place_again(&record).map_err(|error| {
                tierstone_base::Error::from(error).context("replaying the parity journal")
            })?;
        }
        Ok(count)
    }
}
