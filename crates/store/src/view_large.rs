//! Large values through a view: ranges read and written chunk by chunk.
//!
//! Invariants:
//! 1. Only the chunks that a range touches are looked up or written. A chunk that is overwritten
//!    whole is not looked up.
//! 2. All chunks that a range needs are wanted together: one suspension fetches them.
//! 3. Whoever changes a value puts its map in the same run: both are one batch.

use crate::large::{LargeMap, ValueId, chunk_key};
use crate::view::{Stop, View};
use std::ops::Range;
use tierstone_base::position::SLOT_BITS;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Position, ShardId};
use tierstone_engine::{Key, ValueKind};

/// Where a large value lies: its keyspace and slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The user's keyspace.
    pub keyspace: KeyspaceId,
    /// The slot of its owner.
    pub slot: u16,
}

impl Place {
    /// The shard that has it, of `count`.
    pub fn shard(&self, count: u16) -> ShardId {
        Position(u64::from(self.slot) << (64 - SLOT_BITS)).shard(count)
    }
}

/// One chunk's part of a range.
#[derive(Clone, Copy, Debug)]
struct Part {
    number: u64,
    /// Where in the chunk.
    start: usize,
    end: usize,
}

/// The parts of a range of a value with chunks of `chunk_bytes`.
fn parts(range: Range<u64>, chunk_bytes: u64) -> impl Iterator<Item = Part> {
    let last = range.end.div_ceil(chunk_bytes);
    let first = (range.start / chunk_bytes).min(last);
    (first..last).map(move |number| {
        let base = number * chunk_bytes;
        let start = range.start.max(base) - base;
        let end = range.end.min(base + chunk_bytes) - base;
        Part { number, start: start as usize, end: end as usize }
    })
}

impl View<'_> {
    /// The longest string that is one record, in bytes: longer ones are put as large values.
    pub fn record_bytes_max(&self) -> u64 {
        u64::from(self.ids.chunk_bytes())
    }

    /// Where a large value of `bytes` in `database` lies.
    ///
    /// # Errors
    /// When there is no such database.
    pub fn place(&self, database: u32, bytes: &[u8]) -> Result<Place, Stop> {
        let key = self.key(database, bytes)?;
        Ok(Place { keyspace: key.keyspace, slot: key.position.slot() })
    }

    /// Whether what lies at `place` may be there still: its database was not emptied.
    pub fn holds(&self, place: Place) -> bool {
        self.map.keyspaces().contains(&place.keyspace)
    }

    /// A new large value of `len` zeros. It exists when its map is put.
    pub fn new_large(&self, len: u64) -> LargeMap {
        self.ids.new_map(len)
    }

    /// Appends the bytes `range` (inside its length) of a large value to `out`.
    ///
    /// Cost: one lookup a chunk, twice where a chunk must be fetched.
    ///
    /// # Errors
    /// As [`View::get`]; `Corrupt` when a chunk is missing.
    pub fn read_large(
        &mut self,
        place: Place,
        map: &LargeMap,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        self.read_large_of(place, map, range, out, |_| map.id)
    }

    /// The same, where chunks may belong to other values: `id_of` says to which.
    pub(crate) fn read_large_of(
        &mut self,
        place: Place,
        map: &LargeMap,
        range: Range<u64>,
        out: &mut Vec<u8>,
        id_of: impl Fn(u64) -> ValueId,
    ) -> Result<(), Stop> {
        let mut suspends = false;
        for part in parts(range, map.chunk_bytes()) {
            if !map.has(part.number) {
                out.resize(out.len() + part.end - part.start, 0);
                continue;
            }
            let result = self.with_chunk(place, id_of(part.number), part.number, |chunk| {
                let end = part.end.min(chunk.len());
                let come = chunk.get(part.start..end).unwrap_or_default();
                out.extend_from_slice(come);
                out.resize(out.len() + (part.end - part.start) - come.len(), 0);
            });
            match result {
                Ok(()) => {}
                Err(Stop::Suspend) => suspends = true,
                Err(failed) => return Err(failed),
            }
        }
        if suspends { Err(Stop::Suspend) } else { Ok(()) }
    }

    /// Overwrites the bytes from `offset` on, which may lie beyond the end: then it grows, and what
    /// lies between is zeros. The caller puts the map.
    ///
    /// # Errors
    /// As [`View::get`], for the chunks at both ends that are overwritten in part. `InvalidInput` when
    /// it would grow too long.
    pub fn write_large(
        &mut self,
        place: Place,
        map: &mut LargeMap,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Stop> {
        let end = offset.saturating_add(bytes.len() as u64);
        if !map.can_hold(end) {
            return Err(Stop::Failed(Error::new(ErrorKind::InvalidInput, "the value is too long")));
        }
        let ends: Vec<u64> = partial_ends(offset..end, map).map(|part| part.number).collect();
        let mut edges = [Vec::new(), Vec::new()];
        let mut suspends = false;
        for (edge, number) in edges.iter_mut().zip(&ends) {
            if !map.has(*number) {
                continue;
            }
            match self.with_chunk(place, map.id, *number, |chunk| edge.extend_from_slice(chunk)) {
                Ok(()) => {}
                Err(Stop::Suspend) => suspends = true,
                Err(failed) => return Err(failed),
            }
        }
        if suspends {
            return Err(Stop::Suspend);
        }
        map.grow(end);
        let mut rest = bytes;
        for part in parts(offset..end, map.chunk_bytes()) {
            let (come, more) = rest.split_at(part.end - part.start);
            rest = more;
            match ends.iter().position(|number| *number == part.number) {
                Some(place_of_edge) => {
                    let chunk = &mut edges[place_of_edge];
                    chunk.resize(chunk.len().max(part.end), 0);
                    chunk[part.start..part.end].copy_from_slice(come);
                    let chunk = std::mem::take(chunk);
                    self.put_chunk(place, map, part.number, &chunk);
                }
                None => self.put_chunk(place, map, part.number, come),
            }
        }
        Ok(())
    }

    /// Puts the map of a large value under its owner.
    ///
    /// # Errors
    /// When there is no such database.
    pub fn put_map(
        &mut self,
        database: u32,
        owner: &[u8],
        map: &LargeMap,
        expiry_ms: u64,
    ) -> Result<(), Stop> {
        let mut bytes = Vec::new();
        map.encode(&mut bytes);
        self.put(database, owner, &bytes, expiry_ms, ValueKind::CHUNKED)
    }

    /// Collects a string, as one record or as a large value.
    ///
    /// # Errors
    /// When there is no such database, or the value is too long.
    pub fn put_string(
        &mut self,
        database: u32,
        owner: &[u8],
        value: &[u8],
        expiry_ms: u64,
    ) -> Result<(), Stop> {
        if value.len() as u64 <= self.record_bytes_max() {
            return self.put(database, owner, value, expiry_ms, ValueKind::STRING);
        }
        let place = self.place(database, owner)?;
        let mut map = self.new_large(0);
        self.write_large(place, &mut map, 0, value)?;
        self.put_map(database, owner, &map, expiry_ms)
    }

    fn put_chunk(&mut self, place: Place, map: &mut LargeMap, number: u64, bytes: &[u8]) {
        let key = chunk_key(place.slot, map.id, number);
        let position = self.hasher.position(&key);
        let key = Key { keyspace: place.keyspace.chunks(), position, bytes: &key };
        self.overlay.put(key, bytes, 0, ValueKind::STRING);
        map.add(number);
    }

    fn with_chunk(
        &mut self,
        place: Place,
        id: ValueId,
        number: u64,
        read: impl FnOnce(&[u8]),
    ) -> Result<(), Stop> {
        if self.counts_chunks {
            self.hold(u64::from(self.ids.chunk_bytes()))?;
        }
        let key = chunk_key(place.slot, id, number);
        let position = self.hasher.position(&key);
        match self.get_key(Key { keyspace: place.keyspace.chunks(), position, bytes: &key })? {
            Some(record) => {
                read(record.value);
                Ok(())
            }
            None => {
                let message = format!("chunk {number} of a large value is missing");
                Err(Stop::Failed(Error::new(ErrorKind::Corrupt, message)))
            }
        }
    }
}

/// The chunks at the ends of a range that are overwritten in part, as far as the value reaches.
fn partial_ends(range: Range<u64>, map: &LargeMap) -> impl Iterator<Item = Part> {
    let (chunk_bytes, len) = (map.chunk_bytes(), map.len());
    let covers = move |part: &Part| {
        let reach = len.saturating_sub(part.number * chunk_bytes).min(chunk_bytes) as usize;
        part.start == 0 && part.end >= reach
    };
    let last = range.end.div_ceil(chunk_bytes).saturating_sub(1);
    let first = range.start / chunk_bytes;
    parts(range, chunk_bytes)
        .filter(move |part| (part.number == first || part.number == last) && !covers(part))
}

#[cfg(test)]
#[path = "view_large_test.rs"]
mod view_large_test;
