//! A region that loses power: what a crash may leave is asked of the explorer's choices.
//!
//! Two things decide what may be left. The unit of order is a type: [`LineRegion`] keeps the stores to one line in
//! order (x86-64), a [`WordRegion`] only those to one word. [`SimPersistency`] says what makes a store durable; by
//! default what hardware does. Power is cut where the choices say, before any store, write-back or fence; from
//! then on nothing changes the region, and fences fail.
//!
//! A region alone has a power switch of its own; one of a [`super::SimMachine`] shares it with devices.
//!
//! Handles may go to any thread, as the shards that hold them may. One thread at a time does something, so that runs can
//! be repeated: of two threads that store at once only orders of whole calls are tried. A fence covers its own processor
//! under every persistency; which one that is, [`set_processor`] says.

use super::power::PowerSwitch;
use super::settings::{CutPoints, PowerCut};
use super::shared::Shared;
use super::trace::Trace;
use crate::Guarantee;
use crate::region::Region;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, MutexGuard};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_crash::words::WORD_BYTES;
use tierstone_crash::{ByteMemory, Choices, FenceScope, SurvivorSettings, lines};

/// A simulated region with the order of x86-64: a prefix of the stores to each line survives.
pub type LineRegion = SimRegion<{ lines::LINE_BYTES }>;
/// A simulated region that keeps the order of the stores to one word only.
pub type WordRegion = SimRegion<WORD_BYTES>;

/// What makes a store durable, and what a loss of power may leave of those that are not. Stores to one unit of the
/// region keep their order under all of them.
///
/// These are persistency models of Pelley 2014, chapters VI and VII, where a fence is a persist sync of its processor:
/// it waits for what that processor stored or loaded since its last one, and for what the model puts before that. Of
/// another processor's stores it says nothing else. A write-back counts as a load of its lines, so that each of these
/// leaves only what [`SimPersistency::Hardware`] leaves. What processors tell each other outside of the region, by a
/// lock in volatile memory, is not seen: two of them are ordered only by what they do to the region.
///
/// Strand persistency and BPFS are not among them. What sets them apart from epochs is a barrier that orders without
/// waiting, and strands, and a region has verbs for neither: where every barrier waits, strands leave what epochs leave,
/// and BPFS differs only in that a load covers the stores to its whole cache line. They are told apart over traces, by the
/// observer of `tierstone-persist`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SimPersistency {
    /// What hardware gives: what a processor wrote back is durable after its fence, any subset of the units else.
    #[default]
    Hardware,
    /// Strict persistency, and what durable caches (eADR) give: each word is durable as it is stored.
    Strict,
    /// Buffered strict persistency: a prefix of the stores of each processor since its last fence, with all that came
    /// before them on others.
    BufferedStrict,
    /// Epoch persistency: any subset of the units stored to since the fence of who stored, written back or not. Finds
    /// a missing order, forgives a forgotten write-back.
    Epoch,
}

impl SimPersistency {
    fn scope(self) -> FenceScope {
        match self {
            SimPersistency::Hardware | SimPersistency::Strict => FenceScope::WrittenBack,
            SimPersistency::BufferedStrict => FenceScope::InOrder,
            SimPersistency::Epoch => FenceScope::Touched,
        }
    }
}

thread_local! {
    static PROCESSOR: Cell<u32> = const { Cell::new(0) };
}

/// What this thread does to simulated regions from now on is done by processor `number`; 0 until it is called. So one
/// thread, which can be repeated, stands for several.
pub fn set_processor(number: u32) {
    PROCESSOR.set(number);
}

/// A handle on a simulated region. A clone is a handle on the same region. Handles from before a
/// machine's next life do not change it any more.
#[derive(Clone, Debug)]
pub struct SimRegion<const UNIT: usize> {
    shared: Arc<Parts<UNIT>>,
    epoch: u32,
}

#[derive(Debug)]
struct Parts<const UNIT: usize> {
    bytes: u64,
    memory: Shared<ByteMemory<UNIT>>,
    power: PowerSwitch,
    trace: Trace,
    persistency: SimPersistency,
    epoch: AtomicU32,
}

impl<const UNIT: usize> SimRegion<UNIT> {
    /// `bytes` bytes of zeros, rounded up to whole lines; the power stays on.
    pub fn new(bytes: u64) -> Self {
        let power = PowerSwitch::new(PowerCut::Never, 0, &Choices::quiet());
        let memory = ByteMemory::new(bytes as usize);
        Self::of(memory, SimPersistency::Hardware, power, Trace::new(0))
    }

    /// The region of a machine.
    pub(crate) fn of(
        mut memory: ByteMemory<UNIT>,
        persistency: SimPersistency,
        power: PowerSwitch,
        trace: Trace,
    ) -> Self {
        let bytes = memory.bytes().len() as u64;
        memory.set_scope(persistency.scope());
        let memory = Shared::new(memory);
        let shared = Parts { bytes, memory, power, trace, persistency, epoch: AtomicU32::new(0) };
        SimRegion { shared: Arc::new(shared), epoch: 0 }
    }

    fn rebuilt(self, power: PowerSwitch, persistency: SimPersistency) -> Self {
        let memory = self.shared.memory.lock().clone();
        Self::of(memory, persistency, power, self.shared.trace.clone())
    }

    /// The same region, in which `choices` may cut the power before each step: both are tried in an
    /// exhaustive exploration, sampling cuts once in `one_in` steps.
    #[must_use]
    pub fn with_cuts(self, choices: &Choices, one_in: u64) -> Self {
        let cut = PowerCut::Anywhere { points: CutPoints::Every, one_in };
        let persistency = self.shared.persistency;
        self.rebuilt(PowerSwitch::new(cut, u32::MAX, choices), persistency)
    }

    /// The same region under another persistency.
    ///
    /// # Panics
    /// When stores to it are not durable yet.
    #[must_use]
    pub fn with_persistency(self, persistency: SimPersistency) -> Self {
        let power = self.shared.power.clone();
        self.rebuilt(power, persistency)
    }

    /// Whether the power has not been cut.
    pub fn power_is_on(&self) -> bool {
        !self.shared.power.is_off()
    }

    /// Takes the power away if it is still on, keeps what `choices` picks of what was not durable, and turns
    /// the power on again.
    ///
    /// # Panics
    /// When the region stands in a [`super::SimMachine`], which has the switch.
    pub fn lose_power(&self, choices: &Choices, settings: &SurvivorSettings) {
        assert!(!self.shared.power.is_shared(), "the region stands in a machine: ask that for its next life");
        self.survive(choices, settings);
        self.shared.power.switch_on();
    }

    /// What `choices` let survive is what the region holds now; the switch is for others to turn.
    pub(crate) fn survive(&self, choices: &Choices, settings: &SurvivorSettings) {
        let memory = &mut *self.shared.memory.lock();
        if memory.bytes().is_empty() {
            // A machine without such memory: nothing to decide, and no state of its own.
            return;
        }
        memory.lose_power(choices, settings);
        self.shared.trace.line(format_args!("region ON"));
    }

    /// Zeros, durably: another region stands in the place of this one.
    pub(crate) fn replace(&self) {
        let memory = &mut *self.shared.memory.lock();
        *memory = ByteMemory::new(memory.bytes().len());
        memory.set_scope(self.shared.persistency.scope());
        self.shared.trace.line(format_args!("region REPLACED"));
    }

    /// The process ends, the machine does not.
    pub(crate) fn end_threads(&self) {
        self.shared.memory.lock().end_threads();
    }

    /// The next life begins: handles from before are dead.
    pub(crate) fn next_life(&self) {
        self.shared.epoch.fetch_add(1, SeqCst);
    }

    /// How many lives came before that of this handle.
    pub(crate) fn life(&self) -> u32 {
        self.epoch
    }

    /// Another handle of this life.
    pub(crate) fn handle(&self) -> Self {
        SimRegion { shared: Arc::clone(&self.shared), epoch: self.shared.epoch.load(SeqCst) }
    }

    /// What the region holds, durable and not.
    pub(crate) fn memory(&self) -> ByteMemory<UNIT> {
        self.shared.memory.lock().clone()
    }

    pub(crate) fn persistency(&self) -> SimPersistency {
        self.shared.persistency
    }

    /// What the CPU reads now.
    pub fn image(&self) -> Vec<u8> {
        self.shared.memory.lock().bytes().to_vec()
    }

    /// Damages the region: puts `bytes` at `offset`, in the caches and below them, past all order.
    ///
    /// # Panics
    /// When they do not fit the region.
    pub fn overwrite(&self, offset: u64, bytes: &[u8]) {
        let at = self.place(offset, bytes.len());
        self.shared.memory.lock().overwrite(at, bytes);
    }

    fn is_dead(&self) -> bool {
        self.epoch != self.shared.epoch.load(SeqCst)
    }

    /// Lets `step` happen unless the power is off or is cut now; whether it happened. `shrinks` says whether it
    /// takes states away from what may survive.
    fn step(&self, shrinks: bool, step: impl FnOnce(&mut ByteMemory<UNIT>)) -> bool {
        let happens = !self.is_dead() && !self.shared.power.before_event(shrinks);
        if happens {
            step(&mut self.of_processor());
        }
        happens
    }

    /// The memory, as this thread's processor uses it.
    fn of_processor(&self) -> MutexGuard<'_, ByteMemory<UNIT>> {
        let mut memory = self.shared.memory.lock();
        memory.set_processor(PROCESSOR.get());
        memory
    }

    /// The memory, of which this thread's processor has seen these bytes; handles of earlier lives see nothing.
    fn loaded(&self, at: usize, len: usize) -> MutexGuard<'_, ByteMemory<UNIT>> {
        let mut memory = self.of_processor();
        if !self.is_dead() {
            memory.observe(at, len);
        }
        memory
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

    fn put(&self, at: usize, bytes: &[u8], streaming: bool) {
        let happened = match self.shared.persistency {
            SimPersistency::Strict => self.put_durable_words(at, bytes),
            _ if streaming => self.step(false, |memory| memory.store_streaming(at, bytes)),
            _ => self.step(false, |memory| memory.store(at, bytes)),
        };
        if happened {
            let what = if streaming { "stream" } else { "store" };
            self.shared.trace.line(format_args!("region {what} {at} {}", bytes.len()));
        }
    }

    /// Each word is durable by itself, so a crash may come between any two.
    fn put_durable_words(&self, at: usize, bytes: &[u8]) -> bool {
        let mut done = 0;
        while done < bytes.len() {
            let len = (WORD_BYTES - (at + done) % WORD_BYTES).min(bytes.len() - done);
            let happened = self.step(true, |memory| {
                memory.store(at + done, &bytes[done..done + len]);
                memory.persist(at + done, len);
            });
            if !happened {
                return false;
            }
            done += len;
        }
        true
    }
}

impl<const UNIT: usize> Region for SimRegion<UNIT> {
    fn bytes(&self) -> u64 {
        self.shared.bytes
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::Emulated
    }

    fn load_word(&self, offset: u64) -> u64 {
        let at = self.word_place(offset);
        self.loaded(at, WORD_BYTES).load_u64(at)
    }

    fn store_word(&self, offset: u64, value: u64) {
        self.put(self.word_place(offset), &value.to_le_bytes(), false);
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
        into.copy_from_slice(&self.loaded(at, into.len()).bytes()[at..at + into.len()]);
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        self.put(self.place(offset, bytes.len()), bytes, false);
    }

    fn store_streaming(&self, offset: u64, bytes: &[u8]) {
        self.put(self.place(offset, bytes.len()), bytes, true);
    }

    fn write_back(&self, offset: u64, len: u64) {
        let at = self.place(offset, len as usize);
        if self.step(false, |memory| memory.write_back(at, len as usize)) {
            self.shared.trace.line(format_args!("region write-back {offset} {len}"));
        }
    }

    fn fence(&self) -> Result<()> {
        let shrinks = self.of_processor().is_being_written_back();
        let happened = self.step(shrinks, ByteMemory::fence);
        if !happened {
            return Err(Error::new(ErrorKind::DeviceFailed, "the simulated power is off"));
        }
        self.shared.trace.line(format_args!("region fence"));
        Ok(())
    }
}
