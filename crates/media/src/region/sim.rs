//! A region that loses power: what a crash may leave is asked of the explorer's choices.
//!
//! The unit of order is a type: [`LineRegion`] keeps the stores to one line in order (x86-64), in a
//! [`WordRegion`] only those to one word. Power is cut where the choices say, before any store, write-back
//! or fence; from then on nothing changes the region, and fences fail.

use super::Region;
use crate::Guarantee;
use std::cell::{Cell, RefCell};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_crash::words::WORD_BYTES;
use tierstone_crash::{ByteMemory, Choices, SurvivorSettings, lines};

/// A simulated region with the order of x86-64: a prefix of the stores to each line survives.
pub type LineRegion = SimRegion<{ lines::LINE_BYTES }>;
/// A simulated region that keeps the order of the stores to one word only.
pub type WordRegion = SimRegion<WORD_BYTES>;

/// A simulated region; one thread.
#[derive(Debug)]
pub struct SimRegion<const UNIT: usize> {
    memory: RefCell<ByteMemory<UNIT>>,
    cuts: Option<(Choices, u64)>,
    power_is_on: Cell<bool>,
    caches_are_durable: bool,
}

impl<const UNIT: usize> SimRegion<UNIT> {
    /// `bytes` bytes of zeros, rounded up to whole lines; the power stays on.
    pub fn new(bytes: u64) -> Self {
        SimRegion {
            memory: RefCell::new(ByteMemory::new(bytes as usize)),
            cuts: None,
            power_is_on: Cell::new(true),
            caches_are_durable: false,
        }
    }

    /// The same region, in which `choices` may cut the power before each step: both are tried in an
    /// exhaustive exploration, sampling cuts once in `one_in` steps.
    #[must_use]
    pub fn with_cuts(mut self, choices: &Choices, one_in: u64) -> Self {
        self.cuts = Some((choices.clone(), one_in));
        self
    }

    /// The same region whose caches survive (eADR): every store is durable at once.
    #[must_use]
    pub fn with_durable_caches(mut self) -> Self {
        self.caches_are_durable = true;
        self
    }

    /// Whether the power has not been cut.
    pub fn power_is_on(&self) -> bool {
        self.power_is_on.get()
    }

    /// Takes the power away if it is still on, keeps what `choices` picks of what was not durable, and turns
    /// the power on again.
    pub fn lose_power(&self, choices: &Choices, settings: &SurvivorSettings) {
        self.memory.borrow_mut().lose_power(choices, settings);
        self.power_is_on.set(true);
    }

    /// What the CPU reads now.
    pub fn image(&self) -> Vec<u8> {
        self.memory.borrow().bytes().to_vec()
    }

    /// Lets `step` happen unless the power is off or is cut now.
    fn step(&self, step: impl FnOnce(&mut ByteMemory<UNIT>)) {
        if let Some((choices, one_in)) = &self.cuts
            && self.power_is_on.get()
            && choices.rarely(*one_in, "power cut")
        {
            self.power_is_on.set(false);
        }
        if self.power_is_on.get() {
            step(&mut self.memory.borrow_mut());
        }
    }

    /// Where `len` bytes from `offset` begin.
    fn place(&self, offset: u64, len: usize) -> usize {
        let end = offset.checked_add(len as u64);
        assert!(end.is_some_and(|end| end <= self.bytes()), "{len} bytes at {offset} are not in the region");
        offset as usize
    }

    fn word_place(&self, offset: u64) -> usize {
        assert!(offset.is_multiple_of(WORD_BYTES as u64), "the word at {offset} is not aligned");
        self.place(offset, WORD_BYTES)
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        self.step(|memory| {
            memory.store(at, bytes);
            if self.caches_are_durable {
                memory.persist(at, bytes.len());
            }
        });
    }
}

impl<const UNIT: usize> Region for SimRegion<UNIT> {
    fn bytes(&self) -> u64 {
        self.memory.borrow().bytes().len() as u64
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::Emulated
    }

    fn load_word(&self, offset: u64) -> u64 {
        self.memory.borrow().load_u64(self.word_place(offset))
    }

    fn store_word(&self, offset: u64, value: u64) {
        self.put(self.word_place(offset), &value.to_le_bytes());
    }

    fn compare_exchange_word(&self, offset: u64, expected: u64, new: u64) -> std::result::Result<u64, u64> {
        let found = self.load_word(offset);
        if found != expected {
            return Err(found);
        }
        self.store_word(offset, new);
        Ok(found)
    }

    fn load(&self, offset: u64, into: &mut [u8]) {
        let at = self.place(offset, into.len());
        into.copy_from_slice(&self.memory.borrow().bytes()[at..at + into.len()]);
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        self.put(self.place(offset, bytes.len()), bytes);
    }

    fn store_streaming(&self, offset: u64, bytes: &[u8]) {
        let at = self.place(offset, bytes.len());
        self.step(|memory| memory.store_streaming(at, bytes));
    }

    fn write_back(&self, offset: u64, len: u64) {
        let at = self.place(offset, len as usize);
        self.step(|memory| memory.write_back(at, len as usize));
    }

    fn fence(&self) -> Result<()> {
        self.step(ByteMemory::fence);
        match self.power_is_on.get() {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::DeviceFailed, "the simulated power is off")),
        }
    }
}
