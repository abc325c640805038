//! Uploads: a large value written piece by piece under an id that no map names yet.
//!
//! Invariants:
//! 1. At most one chunk of an upload is in memory here; what the engine has not written yet it
//!    bounds itself, by refusing more.
//! 2. The upload is listed in the ledger before its first chunk; the batch that puts its map takes
//!    it off.

use crate::dead::Dead;
use crate::large::{LargeMap, LedgerEntry, ValueId, chunk_key};
use crate::ledger::{Upload, list};
use crate::overlay::Overlay;
use crate::shard::Shard;
use crate::view_large::Place;
use tierstone_base::{Error, ErrorKind, Now, Result};
use tierstone_engine::{Engine, Key, ValueKind, Write, WriteKind};

impl<E: Engine> Shard<E> {
    /// Begins the upload of a value of `len` bytes whose owner will lie at `place`.
    ///
    /// # Errors
    /// As [`Engine::write`]; `Unsupported` when the keyspace is not there.
    pub fn begin_upload(&mut self, now: Now, place: Place, len: u64) -> Result<ValueId> {
        if !self.map().keyspaces().contains(&place.keyspace) {
            return Err(Error::new(ErrorKind::Unsupported, "the database was emptied"));
        }
        let map = self.ids.new_map(len);
        if !map.can_hold(len) {
            return Err(Error::new(ErrorKind::InvalidInput, "the value is too long"));
        }
        let id = map.id;
        let mut batch = Overlay::default();
        list(&mut batch, self.hasher(), place, id, &LedgerEntry::Upload { map: map.clone() });
        let writes: Vec<Write<'_>> = batch.iter().collect();
        self.engine.write(now, &writes)?;
        self.ledger.is_active = true;
        self.ledger.listed.insert(id);
        self.ledger.uploads.insert(id, Upload { place, map, taken: 0, buffer: Vec::new() });
        Ok(id)
    }

    /// Takes the next bytes of an upload, in order; gives how many were taken. Fewer than there were:
    /// the engine must step first.
    ///
    /// # Errors
    /// As [`Engine::write`], but for `Retry`. `Unsupported`: the upload was given up, or the bytes are
    /// more than were announced.
    pub fn upload(&mut self, now: Now, id: ValueId, bytes: &[u8]) -> Result<usize> {
        let mut taken = 0;
        while taken < bytes.len() {
            let Some(upload) = self.ledger.uploads.get_mut(&id) else { return Err(gone()) };
            let chunk_bytes = upload.map.chunk_bytes() as usize;
            if upload.buffer.len() == chunk_bytes {
                match self.write_upload_chunk(now, id) {
                    Ok(()) => continue,
                    Err(error) if error.kind() == ErrorKind::Retry => break,
                    Err(error) => return Err(error),
                }
            }
            let room = chunk_bytes - upload.buffer.len();
            let come = &bytes[taken..bytes.len().min(taken + room)];
            if upload.taken + come.len() as u64 > upload.map.len() {
                return Err(Error::new(ErrorKind::Unsupported, "the upload is longer than announced"));
            }
            upload.buffer.extend_from_slice(come);
            upload.taken += come.len() as u64;
            taken += come.len();
        }
        Ok(taken)
    }

    /// Takes `len` zeros as the next bytes of an upload: whole chunks, or all that is left. Nothing is
    /// written for them. Gives how many were taken: 0 when the engine must step first.
    ///
    /// # Errors
    /// As [`Shard::upload`]. `Unsupported`: they begin or end inside of a chunk.
    pub fn upload_zeros(&mut self, now: Now, id: ValueId, len: u64) -> Result<u64> {
        let Some(upload) = self.ledger.uploads.get(&id) else { return Err(gone()) };
        let (chunk_bytes, end) = (upload.map.chunk_bytes(), upload.taken + len);
        let is_whole = end.is_multiple_of(chunk_bytes) || end == upload.map.len();
        if end > upload.map.len() || !upload.taken.is_multiple_of(chunk_bytes) || !is_whole {
            return Err(Error::new(ErrorKind::Unsupported, "zeros of an upload are not whole chunks"));
        }
        if !upload.buffer.is_empty() {
            match self.write_upload_chunk(now, id) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Retry => return Ok(0),
                Err(error) => return Err(error),
            }
        }
        if let Some(upload) = self.ledger.uploads.get_mut(&id) {
            upload.taken = end;
        }
        Ok(len)
    }

    /// Ends an upload: the map to be put. All its chunks are appended.
    ///
    /// # Errors
    /// As [`Engine::write`], `Retry` included. `Unsupported`: bytes are missing, or it was given up.
    pub fn end_upload(&mut self, now: Now, id: ValueId) -> Result<LargeMap> {
        let Some(upload) = self.ledger.uploads.get(&id) else { return Err(gone()) };
        if upload.taken < upload.map.len() {
            return Err(Error::new(ErrorKind::Unsupported, "the upload has not ended"));
        }
        if self.ledger.is_order_broken {
            let mut map = upload.map.clone();
            map.add(map.chunks() - 1);
            return Ok(map);
        }
        if !upload.buffer.is_empty() {
            self.write_upload_chunk(now, id)?;
        }
        self.ledger.uploads.get(&id).map(|upload| upload.map.clone()).ok_or_else(gone)
    }

    /// Gives an upload up, if it has not been named by a map.
    pub fn drop_upload(&mut self, id: ValueId) {
        if let Some(Upload { place, map, .. }) = self.ledger.uploads.remove(&id) {
            self.ledger.bury(Dead::whole(place, map));
        }
    }

    /// Appends the chunks that an upload has kept back although its map was put: what the mutation
    /// `map_before_chunks` does.
    pub(crate) fn write_late_chunks(&mut self, now: Now) -> Result<()> {
        let is_late = |upload: &Upload| upload.taken == upload.map.len() && !upload.buffer.is_empty();
        let late: Vec<ValueId> =
            self.ledger.uploads.iter().filter(|(_, upload)| is_late(upload)).map(|(id, _)| *id).collect();
        late.into_iter().try_for_each(|id| self.write_upload_chunk(now, id))
    }

    /// Appends the chunk of an upload that is full, or the last.
    pub(crate) fn write_upload_chunk(&mut self, now: Now, id: ValueId) -> Result<()> {
        let Some(upload) = self.ledger.uploads.get(&id) else { return Err(gone()) };
        let (place, chunk_bytes) = (upload.place, upload.map.chunk_bytes());
        let number = (upload.taken - 1) / chunk_bytes;
        let bytes = chunk_key(place.slot, id, number);
        let position = self.hasher().position(&bytes);
        let key = Key { keyspace: place.keyspace.chunks(), position, bytes: &bytes };
        let kind = WriteKind::Put { value: &upload.buffer, expiry_ms: 0, kind: ValueKind::STRING };
        self.engine.write(now, &[Write { key, kind }])?;
        if let Some(upload) = self.ledger.uploads.get_mut(&id) {
            upload.map.add(number);
            upload.buffer.clear();
        }
        Ok(())
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Unsupported, "the uploaded value has been given up")
}
