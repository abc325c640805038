//! A device and a region of persistent memory that lose power together.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_crash::{ByteMemory, Choices, SurvivorSettings};
use tierstone_media::region::Region;
use tierstone_media::sim::{SimDevice, SimMedium};
use tierstone_media::{BlockDevice, DurableWriteScope, Geometry, Guarantee, IoCompletion, IoRequest, Wait};

/// Words of a region survive each by itself: no machine keeps less.
const UNIT: usize = 8;

/// A region that shards of any thread may hold: power is lost at a step that was chosen when it came back.
#[derive(Debug)]
pub struct JointRegion {
    memory: Mutex<ByteMemory<UNIT>>,
    is_off: AtomicBool,
    /// Steps until power is lost; it stays on when this is negative.
    steps_left: AtomicI64,
}

impl JointRegion {
    pub fn new(bytes: u64) -> Arc<JointRegion> {
        Arc::new(JointRegion {
            memory: Mutex::new(ByteMemory::new(bytes as usize)),
            is_off: AtomicBool::new(false),
            steps_left: AtomicI64::new(-1),
        })
    }

    pub fn is_off(&self) -> bool {
        self.is_off.load(SeqCst)
    }

    pub fn turn_off(&self) {
        self.is_off.store(true, SeqCst);
    }

    /// Power was lost and is back; it may be lost again within `steps` steps here.
    pub fn power_on(&self, choices: &Choices, steps: u64) {
        self.memory.lock().unwrap().lose_power(choices, &SurvivorSettings::default());
        self.is_off.store(false, SeqCst);
        let cuts = choices.choose(2, "power lost at a step of the region") == 1;
        let left = if cuts { choices.choose_position(steps, "which step of the region") as i64 } else { -1 };
        self.steps_left.store(left, SeqCst);
    }

    /// Makes the region forget everything, as a new one would.
    pub fn wipe(&self) {
        let mut memory = self.memory.lock().unwrap();
        *memory = ByteMemory::new(memory.bytes().len());
    }

    /// What is there, as a copy of its file.
    pub fn copy(&self) -> Vec<u8> {
        self.memory.lock().unwrap().bytes().to_vec()
    }

    pub fn put_back(&self, copy: &[u8]) {
        let mut memory = self.memory.lock().unwrap();
        memory.store(0, copy);
        memory.persist(0, copy.len());
    }

    fn step(&self, step: impl FnOnce(&mut ByteMemory<UNIT>)) {
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

impl Region for JointRegion {
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
        self.step(ByteMemory::fence);
        if self.is_off() {
            return Err(Error::new(ErrorKind::DeviceFailed, "power was lost"));
        }
        Ok(())
    }
}

/// A handle on a device; when power is lost there, it is in the region, and the other way round.
#[derive(Debug)]
pub struct JointDevice {
    pub device: SimDevice,
    medium: SimMedium,
    region: Option<Arc<JointRegion>>,
}

impl JointDevice {
    pub fn new(device: SimDevice, medium: &SimMedium, region: Option<&Arc<JointRegion>>) -> JointDevice {
        JointDevice { device, medium: medium.clone(), region: region.cloned() }
    }

    pub fn share_fate(&self) {
        let Some(region) = &self.region else { return };
        if region.is_off() {
            self.medium.cut_power();
        }
        if self.medium.power_is_off() {
            region.turn_off();
        }
    }
}

impl BlockDevice for JointDevice {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn guarantee(&self) -> Guarantee {
        self.device.guarantee()
    }

    fn durable_write_scope(&self) -> DurableWriteScope {
        self.device.durable_write_scope()
    }

    fn submit(&mut self, requests: &mut Vec<IoRequest>) {
        self.share_fate();
        self.device.submit(requests);
        self.share_fate();
    }

    fn complete(&mut self, wait: Wait, completions: &mut Vec<IoCompletion>) -> usize {
        self.share_fate();
        let count = self.device.complete(wait, completions);
        self.share_fate();
        count
    }

    fn in_flight(&self) -> usize {
        self.device.in_flight()
    }
}
