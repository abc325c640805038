//! A hash table on the device, updated in place: a block a bucket, overflow into the next block.
//!
//! Format: the device's space from its first segment on is `blocks` blocks of 4,096 bytes; block `b`
//! holds slots of one size, each a state byte (0 free, 1 used), the key and the value. A key lies in the
//! first block from its hash on that has it; the search ends at a block with a free slot.
//!
//! Invariants:
//! 1. A block in memory is what the device has, except within a call.
//! 2. A call that has returned `Ok` for puts has made them durable: all changed blocks are written in
//!    one submission, then flushed once.
//!
//! There is no log: a crash inside a call may leave a part of its puts, and a torn block. The stores it
//! stands beside promise more, and pay for it.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use tierstone_base::checksum::checksum;
use tierstone_base::collections::Map;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::file::{DurableMethod, FileDevice, FileStore, FileStoreSettings};
use tierstone_media::{BLOCK_BYTES, BlockDevice, IoBuffer, IoKind, IoRequest, Wait};
use tierstone_workload::Target;

/// How full the table is when it holds what it was made for.
const LOAD: f64 = 0.7;
const HASH_SALT: u64 = 0x6c61_625f_6861_7368;
const USED: u8 = 1;

/// How a table is made.
#[derive(Clone, Copy, Debug)]
pub struct HashFileSettings {
    /// Records that it is made for.
    pub records: u64,
    /// Bytes of every key.
    pub key_bytes: usize,
    /// Bytes of every value.
    pub value_bytes: usize,
    /// Memory for blocks.
    pub memory_bytes: u64,
    /// How writes are made durable.
    pub method: DurableMethod,
}

/// The table.
#[derive(Debug)]
pub struct HashFile {
    // Before the files: a device is done with them before they close.
    device: FileDevice,
    _files: FileStore,
    settings: HashFileSettings,
    blocks: u64,
    /// Blocks in memory.
    frames: Map<u64, IoBuffer>,
    /// The same in the order in which they came; the first goes first.
    order: VecDeque<u64>,
    spare: Vec<IoBuffer>,
}

impl HashFile {
    /// A new, empty table in `folder`; its whole space is written before the first put.
    ///
    /// # Errors
    /// When the files cannot be made, or a record does not fit a block.
    pub fn create(folder: &Path, settings: HashFileSettings) -> Result<HashFile> {
        let slots = BLOCK_BYTES / (1 + settings.key_bytes + settings.value_bytes);
        if slots == 0 {
            return Err(Error::new(ErrorKind::InvalidInput, "a record of the hash table must fit a block"));
        }
        let blocks = ((settings.records as f64 / LOAD / slots as f64).ceil() as u64).max(2);
        let segment_bytes: u64 = 8 << 20;
        let segments = (blocks * BLOCK_BYTES as u64).div_ceil(segment_bytes);
        let files = FileStore::open(&FileStoreSettings {
            segment_bytes,
            segment_limit: u32::try_from(segments)
                .map_err(|_| Error::new(ErrorKind::InvalidInput, "the hash table is too large"))?,
            ..FileStoreSettings::new(vec![folder.to_owned()])
        })?;
        let device = files.device(settings.method)?;
        let mut table = HashFile {
            device,
            _files: files,
            settings,
            blocks,
            frames: Map::default(),
            order: VecDeque::new(),
            spare: Vec::new(),
        };
        let geometry = table.device.geometry();
        for segment in 0..segments as u32 {
            let kind = IoKind::Prepare { len: segment_bytes };
            let offset = geometry.segment_offset(segment);
            table.submit(vec![IoRequest { token: 0, kind, offset, buffer: None }])?;
        }
        Ok(table)
    }

    /// Does `requests`; gives the buffers back with their blocks' numbers.
    fn submit(&mut self, mut requests: Vec<IoRequest>) -> Result<Vec<(u64, IoBuffer)>> {
        let mut completions = Vec::new();
        self.device.submit(&mut requests);
        self.device.complete(Wait::All, &mut completions);
        let mut buffers = Vec::new();
        for done in completions {
            done.result?;
            buffers.extend(done.buffer.map(|buffer| (done.token, buffer)));
        }
        Ok(buffers)
    }

    fn offset(&self, block: u64) -> u64 {
        self.device.geometry().segment_offset(0) + block * BLOCK_BYTES as u64
    }

    fn home(&self, key: &[u8]) -> u64 {
        ((u128::from(checksum(HASH_SALT, key)) * u128::from(self.blocks)) >> 64) as u64
    }

    /// Brings `blocks` into memory, in one submission.
    fn fetch(&mut self, blocks: &BTreeSet<u64>) -> Result<()> {
        let mut requests = Vec::new();
        for &block in blocks {
            if !self.frames.contains_key(&block) {
                let buffer = self.spare.pop().unwrap_or_else(|| IoBuffer::zeroed(BLOCK_BYTES));
                requests.push(IoRequest::read(block, self.offset(block), buffer));
            }
        }
        if requests.is_empty() {
            return Ok(());
        }
        for (block, buffer) in self.submit(requests)? {
            self.frames.insert(block, buffer);
            self.order.push_back(block);
        }
        Ok(())
    }

    /// Lets blocks go that the memory has no place for.
    fn shrink(&mut self) {
        let frames_max = (self.settings.memory_bytes / BLOCK_BYTES as u64).max(1) as usize;
        while self.frames.len() > frames_max {
            let oldest = self.order.pop_front();
            self.spare.extend(oldest.and_then(|block| self.frames.remove(&block)));
        }
        self.spare.truncate(64);
    }

    /// The slot of `key`, or the first free one if it has none; reads further blocks as needed.
    fn find(&mut self, key: &[u8]) -> Result<Slot> {
        let slot_bytes = 1 + self.settings.key_bytes + self.settings.value_bytes;
        let slots = BLOCK_BYTES / slot_bytes;
        let home = self.home(key);
        for step in 0..self.blocks {
            let block = (home + step) % self.blocks;
            self.fetch(&BTreeSet::from([block]))?;
            let Some(frame) = self.frames.get(&block) else { break };
            for at in (0..slots).map(|slot| slot * slot_bytes) {
                if frame[at] != USED {
                    return Ok(Slot { block, at, is_used: false });
                }
                if frame[at + 1..].starts_with(key) {
                    return Ok(Slot { block, at, is_used: true });
                }
            }
        }
        Err(Error::new(ErrorKind::NoSpace, "the hash table is full"))
    }

    fn check(&self, key: &[u8]) -> Result<()> {
        if key.len() == self.settings.key_bytes {
            return Ok(());
        }
        let message = format!("a key of the hash table has {} bytes", self.settings.key_bytes);
        Err(Error::new(ErrorKind::InvalidInput, message))
    }
}

/// Where a record lies, or could.
#[derive(Clone, Copy, Debug)]
struct Slot {
    block: u64,
    at: usize,
    is_used: bool,
}

impl Target for HashFile {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let mut is_found = false;
        self.get_many(&[key], &mut |_, found| {
            is_found = found.is_some();
            value.extend_from_slice(found.unwrap_or_default());
        })?;
        Ok(is_found)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_many(&[(key, value)])
    }

    fn get_many(&mut self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let homes = keys.iter().map(|key| self.home(key)).collect();
        self.fetch(&homes)?;
        for (place, key) in keys.iter().enumerate() {
            self.check(key)?;
            let slot = self.find(key)?;
            let start = slot.at + 1 + self.settings.key_bytes;
            let frame = self.frames.get(&slot.block).filter(|_| slot.is_used);
            each(place, frame.map(|frame| &frame[start..start + self.settings.value_bytes]));
        }
        self.shrink();
        Ok(())
    }

    fn put_many(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let homes = records.iter().map(|(key, _)| self.home(key)).collect();
        self.fetch(&homes)?;
        let mut changed = BTreeSet::new();
        for (key, value) in records {
            self.check(key)?;
            if value.len() != self.settings.value_bytes {
                let message = format!("a value of the hash table has {} bytes", self.settings.value_bytes);
                return Err(Error::new(ErrorKind::InvalidInput, message));
            }
            let slot = self.find(key)?;
            if let Some(frame) = self.frames.get_mut(&slot.block) {
                let (key_at, value_at) = (slot.at + 1, slot.at + 1 + key.len());
                frame[slot.at] = USED;
                frame[key_at..value_at].copy_from_slice(key);
                frame[value_at..value_at + value.len()].copy_from_slice(value);
                changed.insert(slot.block);
            }
        }
        // A lone block is a durable write of its own; many share one flush.
        let kind = if changed.len() == 1 { IoKind::WriteDurable } else { IoKind::Write };
        let mut requests = Vec::with_capacity(changed.len());
        for &block in &changed {
            let buffer = self.frames.remove(&block);
            requests.push(IoRequest { token: block, kind, offset: self.offset(block), buffer });
        }
        let written = self.submit(requests)?;
        self.frames.extend(written);
        if kind == IoKind::Write {
            self.submit(vec![IoRequest::flush(0)])?;
        }
        self.shrink();
        Ok(())
    }
}

#[cfg(test)]
#[path = "hash_file_test.rs"]
mod hash_file_test;
