//! A simulated device that plays persistent memory, for checks of the engine contract that lose power and make faults
//! at the requests of a device.
//!
//! A fence writes the blocks of what was written back, durably and in any order. What was stored and not written back
//! is lost with the power, unless its block went with other lines: no machine keeps less. The device stays on the
//! thread that made the region.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::region::Region;
use tierstone_media::sim::SimDevice;
use tierstone_media::{
    BLOCK_BYTES, BlockDevice, Geometry, Guarantee, IoBuffer, IoCompletion, IoRequest, Wait,
};

thread_local! {
    static DEVICES: RefCell<BTreeMap<u64, SimDevice>> = const { RefCell::new(BTreeMap::new()) };
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// The shape of a device of so many bytes.
pub fn geometry(bytes: u64) -> Geometry {
    Geometry { meta_bytes: bytes, segment_bytes: BLOCK_BYTES as u64, segment_limit: 1 }
}

#[derive(Debug)]
struct Content {
    bytes: Vec<u8>,
    /// Blocks with lines that the next fence makes durable.
    due: BTreeSet<usize>,
    /// A fence has failed, and what it was to make durable is not: none succeeds any more.
    has_failed: bool,
}

/// The region.
#[derive(Debug)]
pub struct MediumRegion {
    number: u64,
    content: Mutex<Content>,
}

impl MediumRegion {
    /// What `device` holds.
    pub fn new(mut device: SimDevice) -> Result<Arc<MediumRegion>> {
        let len = device.geometry().meta_bytes as usize;
        let mut bytes = Vec::new();
        for completion in carry_out(&mut device, vec![IoRequest::read(0, 0, IoBuffer::zeroed(len))])? {
            bytes.extend_from_slice(&completion.buffer.unwrap());
        }
        let number = NUMBERS.fetch_add(1, Ordering::SeqCst);
        DEVICES.with_borrow_mut(|devices| devices.insert(number, device));
        Ok(Arc::new(MediumRegion {
            number,
            content: Mutex::new(Content { bytes, due: BTreeSet::new(), has_failed: false }),
        }))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Content) -> T) -> T {
        work(&mut self.content.lock().unwrap())
    }
}

impl Drop for MediumRegion {
    fn drop(&mut self) {
        DEVICES.with_borrow_mut(|devices| devices.remove(&self.number));
    }
}

impl Content {
    fn word(&self, offset: u64) -> u64 {
        u64::from_le_bytes(*self.bytes[offset as usize..].first_chunk().unwrap())
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        self.bytes[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn write_back(&mut self, offset: u64, len: u64) {
        let (first, last) = (offset as usize / BLOCK_BYTES, (offset + len.max(1) - 1) as usize / BLOCK_BYTES);
        self.due.extend(first..=last);
    }
}

impl Region for MediumRegion {
    fn bytes(&self) -> u64 {
        self.with(|content| content.bytes.len() as u64)
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::Emulated
    }

    fn load_word(&self, offset: u64) -> u64 {
        self.with(|content| content.word(offset))
    }

    fn store_word(&self, offset: u64, value: u64) {
        self.with(|content| content.store(offset, &value.to_le_bytes()));
    }

    fn compare_exchange_word(&self, offset: u64, expected: u64, new: u64) -> std::result::Result<u64, u64> {
        self.with(|content| {
            let found = content.word(offset);
            if found != expected {
                return Err(found);
            }
            content.store(offset, &new.to_le_bytes());
            Ok(found)
        })
    }

    fn load(&self, offset: u64, into: &mut [u8]) {
        self.with(|content| into.copy_from_slice(&content.bytes[offset as usize..][..into.len()]));
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        self.with(|content| content.store(offset, bytes));
    }

    fn store_streaming(&self, offset: u64, bytes: &[u8]) {
        self.with(|content| {
            content.store(offset, bytes);
            content.write_back(offset, bytes.len() as u64);
        });
    }

    fn write_back(&self, offset: u64, len: u64) {
        self.with(|content| content.write_back(offset, len));
    }

    fn fence(&self) -> Result<()> {
        if self.with(|content| content.has_failed) {
            return Err(Error::new(ErrorKind::DeviceFailed, "an earlier fence has failed"));
        }
        let requests = self.with(|content| -> Vec<IoRequest> {
            let due = std::mem::take(&mut content.due);
            let write = |block: usize| {
                let offset = block * BLOCK_BYTES;
                let buffer = IoBuffer::from_slice(&content.bytes[offset..][..BLOCK_BYTES]);
                IoRequest::write_durable(block as u64, offset as u64, buffer)
            };
            due.into_iter().map(write).collect()
        });
        let done = DEVICES.with_borrow_mut(|devices| {
            let device = devices.get_mut(&self.number).expect("the region's own thread");
            carry_out(device, requests).map(drop)
        });
        self.with(|content| content.has_failed = done.is_err());
        done
    }
}

/// Does all `requests`, or fails.
fn carry_out(device: &mut SimDevice, mut requests: Vec<IoRequest>) -> Result<Vec<IoCompletion>> {
    let (asked, mut completions) = (requests.len(), Vec::new());
    device.submit(&mut requests);
    while completions.len() < asked {
        if device.complete(Wait::All, &mut completions) == 0 {
            return Err(Error::new(ErrorKind::DeviceFailed, "the device gave no answer"));
        }
    }
    completions
        .into_iter()
        .map(|completion| completion.result.clone().map(|()| completion).map_err(Error::from))
        .collect()
}
