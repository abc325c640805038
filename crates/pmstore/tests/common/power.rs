//! Persistent memory that loses power at a step that the explorer chooses, for shards of any thread.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_crash::{ByteMemory, Choices, SurvivorSettings};
use tierstone_media::Guarantee;
use tierstone_media::region::Region;

/// A region whose units of order have `UNIT` bytes.
#[derive(Debug)]
pub struct PowerRegion<const UNIT: usize> {
    memory: Mutex<ByteMemory<UNIT>>,
    is_off: AtomicBool,
    /// Steps until power is lost; it stays on when this is negative.
    steps_left: AtomicI64,
    steps: AtomicU64,
    fences: AtomicU64,
}

impl<const UNIT: usize> PowerRegion<UNIT> {
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(PowerRegion {
            memory: Mutex::new(ByteMemory::new(bytes as usize)),
            is_off: AtomicBool::new(false),
            steps_left: AtomicI64::new(-1),
            steps: AtomicU64::new(0),
            fences: AtomicU64::new(0),
        })
    }

    pub fn is_off(&self) -> bool {
        self.is_off.load(SeqCst)
    }

    pub fn turn_off(&self) {
        self.is_off.store(true, SeqCst);
    }

    /// Power will be lost before step `left` from now.
    pub fn cut_after(&self, left: u64) {
        self.steps_left.store(left as i64, SeqCst);
    }

    /// Power is back; what survives say the choices.
    pub fn power_on(&self, choices: &Choices) {
        self.memory.lock().unwrap().lose_power(choices, &SurvivorSettings::default());
        self.steps_left.store(-1, SeqCst);
        self.is_off.store(false, SeqCst);
    }

    /// Steps so far: stores, write-backs, fences.
    pub fn steps(&self) -> u64 {
        self.steps.load(SeqCst)
    }

    /// Fences so far.
    pub fn fences(&self) -> u64 {
        self.fences.load(SeqCst)
    }

    /// What the CPU reads now.
    pub fn image(&self) -> Vec<u8> {
        self.memory.lock().unwrap().bytes().to_vec()
    }

    /// Puts bytes there, durably.
    pub fn overwrite(&self, offset: usize, bytes: &[u8]) {
        self.memory.lock().unwrap().overwrite(offset, bytes);
    }

    /// Damages the region.
    pub fn flip_bit(&self, offset: usize, bit: u32) {
        let mut memory = self.memory.lock().unwrap();
        let byte = memory.bytes()[offset] ^ 1 << bit;
        memory.overwrite(offset, &[byte]);
    }

    fn step(&self, step: impl FnOnce(&mut ByteMemory<UNIT>)) {
        self.steps.fetch_add(1, SeqCst);
        match self.steps_left.load(SeqCst) {
            0 => self.turn_off(),
            left if left > 0 => self.steps_left.store(left - 1, SeqCst),
            _ => {}
        }
        if !self.is_off() {
            step(&mut self.memory.lock().unwrap());
        }
    }
}

impl<const UNIT: usize> Region for PowerRegion<UNIT> {
    fn bytes(&self) -> u64 {
        self.memory.lock().unwrap().bytes().len() as u64
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::Emulated
    }

    fn load_word(&self, offset: u64) -> u64 {
        self.memory.lock().unwrap().load_u64(offset as usize)
    }

    fn store_word(&self, offset: u64, value: u64) {
        self.step(|memory| memory.store_u64(offset as usize, value));
    }

    fn compare_exchange_word(&self, offset: u64, expected: u64, new: u64) -> std::result::Result<u64, u64> {
        let found = self.load_word(offset);
        if found == expected {
            self.store_word(offset, new);
        }
        if found == expected { Ok(found) } else { Err(found) }
    }

    fn load(&self, offset: u64, into: &mut [u8]) {
        let memory = self.memory.lock().unwrap();
        into.copy_from_slice(&memory.bytes()[offset as usize..offset as usize + into.len()]);
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        self.step(|memory| memory.store(offset as usize, bytes));
    }

    fn store_streaming(&self, offset: u64, bytes: &[u8]) {
        self.step(|memory| memory.store_streaming(offset as usize, bytes));
    }

    fn write_back(&self, offset: u64, len: u64) {
        self.step(|memory| memory.write_back(offset as usize, len as usize));
    }

    fn fence(&self) -> Result<()> {
        self.fences.fetch_add(1, SeqCst);
        self.step(ByteMemory::fence);
        if self.is_off() {
            return Err(Error::new(ErrorKind::DeviceFailed, "power was lost"));
        }
        Ok(())
    }
}
