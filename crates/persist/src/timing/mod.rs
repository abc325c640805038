//! What an order of persists costs: the longest chain of persists that must follow each other.
//!
//! The memory is as good as can be: bandwidth and banks without end, a latency for each persist, persists in place
//! (Pelley 2014, section 8.1). What remains is the critical path of the order. Persists to one atomic block may
//! coalesce where no order forbids it; coarse tracking finds conflicts that are none.
//!
//! Departures: an access covers one word, so blocks are 8 bytes at least; a load before a store counts as a
//! conflict unless switched off; a sync counts as a barrier of its thread, its wait in real time is not modelled.
//! Atomic blocks larger than what is tracked do not always shorten the path: coalescing is greedy, and a persist
//! may join one of its block that is later than it need be itself.

mod blocks;
mod rates;

pub use rates::{Rates, break_even_ns};

use crate::order::Model;
use crate::trace::{Event, Kind, Space, Trace, WORD};
use blocks::Blocks;
use tierstone_base::{Error, ErrorKind, Result};

/// How persists are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimingSettings {
    /// The persistency model.
    pub model: Model,
    /// Bytes of a block that persists at once; a power of two from 8.
    pub atomic_bytes: u64,
    /// Bytes of a block in which conflicts are found; a power of two from 8.
    pub tracking_bytes: u64,
    /// Whether a store after a load of its block is a conflict.
    pub load_before_store: bool,
    /// Whether persists to one block may become one.
    pub coalescing: bool,
}

impl TimingSettings {
    /// The model with blocks of its own size (8 bytes; BPFS finds conflicts in lines of 64), coalescing.
    pub fn of(model: Model) -> TimingSettings {
        let conflicts = model.conflicts();
        TimingSettings {
            model,
            atomic_bytes: WORD,
            tracking_bytes: conflicts.block_bytes,
            load_before_store: conflicts.load_before_store,
            coalescing: true,
        }
    }
}

/// What a trace costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimingReport {
    /// Persists that must follow each other, at most: the critical path.
    pub critical_path: u64,
    /// Stores to persistent memory.
    pub persists: u64,
    /// Those of them that became one with an earlier one.
    pub coalesced: u64,
    /// Steps of the trace.
    pub events: u64,
}

/// The level of the latest persist that something depends on, and the block of that persist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Dependence {
    level: u64,
    source: u64,
}

/// No single block: the level comes from several.
const MIXED: u64 = u64::MAX;

impl Dependence {
    fn join(&mut self, other: Dependence) {
        if other.level > self.level {
            *self = other;
        } else if other.level == self.level && other.source != self.source {
            self.source = MIXED;
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Conflict {
    stored: Dependence,
    loaded: Dependence,
}

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    /// What every access depends on.
    before: Dependence,
    /// What the accesses since the last barrier depend on.
    open: Dependence,
    /// What the accesses of any strand since the last sync depend on: loads too, for a sync waits for what the thread
    /// saw.
    issued: Dependence,
}

/// Times a trace step by step. Cost: one or two lookups a step; memory for each 256 neighbouring blocks of which one
/// was met: 8 KiB where conflicts are found, 2 KiB where persists are placed.
#[derive(Debug)]
pub struct Timing {
    settings: TimingSettings,
    volatile_conflicts: bool,
    tracking_shift: u32,
    atomic_shift: u32,
    threads: Vec<Thread>,
    volatile: Blocks<Conflict>,
    persistent: Blocks<Conflict>,
    /// The level of the last persist to each atomic block; zero for none.
    levels: Blocks<u64>,
    report: TimingReport,
}

impl Timing {
    /// # Errors
    /// `InvalidInput` when a block size is no power of two from 8.
    pub fn new(settings: TimingSettings) -> Result<Timing> {
        for bytes in [settings.atomic_bytes, settings.tracking_bytes] {
            if bytes < WORD || !bytes.is_power_of_two() {
                let message =
                    format!("blocks of {bytes} bytes cannot be timed; choose a power of two from {WORD}");
                return Err(Error::new(ErrorKind::InvalidInput, message));
            }
        }
        Ok(Timing {
            settings,
            volatile_conflicts: settings.model.conflicts().volatile,
            tracking_shift: settings.tracking_bytes.trailing_zeros(),
            atomic_shift: settings.atomic_bytes.trailing_zeros(),
            threads: Vec::new(),
            volatile: Blocks::new(),
            persistent: Blocks::new(),
            levels: Blocks::new(),
            report: TimingReport::default(),
        })
    }

    /// Times a whole trace.
    ///
    /// # Errors
    /// As [`Timing::new`].
    pub fn of(trace: &Trace, settings: TimingSettings) -> Result<TimingReport> {
        let mut timing = Timing::new(settings)?;
        for event in trace.events() {
            timing.step(event);
        }
        Ok(timing.report())
    }

    /// What was found so far.
    pub fn report(&self) -> TimingReport {
        self.report
    }

    /// Takes the next step. Returns the level of a persist: how many persists, itself among them, follow each
    /// other up to it.
    #[inline]
    pub fn step(&mut self, event: &Event) -> Option<u64> {
        self.report.events += 1;
        let number = usize::from(event.thread);
        if number >= self.threads.len() {
            self.threads.resize(number + 1, Thread::default());
        }
        match event.kind {
            Kind::Load | Kind::Store => self.access(number, event),
            mark => {
                self.mark(number, mark);
                None
            }
        }
    }

    fn mark(&mut self, number: usize, mark: Kind) {
        let thread = &mut self.threads[number];
        if self.settings.model.follows_program_order() {
            return;
        }
        match mark {
            Kind::Strand if self.settings.model == Model::Strand => {
                thread.before = Dependence::default();
                thread.open = Dependence::default();
            }
            Kind::Barrier => thread.before.join(std::mem::take(&mut thread.open)),
            Kind::Sync => {
                thread.open = Dependence::default();
                thread.before.join(std::mem::take(&mut thread.issued));
            }
            _ => {}
        }
    }

    #[inline]
    fn access(&mut self, number: usize, event: &Event) -> Option<u64> {
        let is_store = event.kind == Kind::Store;
        let mut depends = self.threads[number].before;
        let is_persistent = event.space == Space::Persistent;
        let tracked = is_persistent || self.volatile_conflicts;
        let blocks = if is_persistent { &mut self.persistent } else { &mut self.volatile };
        let place = blocks.place(event.address >> self.tracking_shift);
        let conflict = blocks.at(place);
        if tracked {
            depends.join(conflict.stored);
            if is_store && self.settings.load_before_store {
                depends.join(conflict.loaded);
            }
        }
        let mut level = None;
        if is_store && is_persistent {
            depends = Self::persist(
                &mut self.levels,
                &self.settings,
                &mut self.report,
                event.address >> self.atomic_shift,
                depends,
            );
            level = Some(depends.level);
        }
        if is_store {
            *conflict = Conflict { stored: depends, loaded: Dependence::default() };
        } else {
            conflict.loaded.join(depends);
        }
        let thread = &mut self.threads[number];
        match self.settings.model.follows_program_order() {
            true => thread.before.join(depends),
            false => {
                thread.open.join(depends);
                thread.issued.join(depends);
            }
        }
        level
    }

    /// Places a persist to `block` that depends on `depends`: with the block's last one where nothing of the same
    /// level or later comes from elsewhere, else behind everything.
    #[inline]
    fn persist(
        levels: &mut Blocks<u64>,
        settings: &TimingSettings,
        report: &mut TimingReport,
        block: u64,
        depends: Dependence,
    ) -> Dependence {
        let place = levels.place(block);
        let last = levels.at(place);
        report.persists += 1;
        let joins = *last > 0
            && settings.coalescing
            && (depends.level < *last || depends.level == *last && depends.source == block);
        if joins {
            report.coalesced += 1;
        } else {
            *last = depends.level + 1;
        }
        report.critical_path = report.critical_path.max(*last);
        Dependence { level: *last, source: block }
    }
}

#[cfg(test)]
#[path = "timing_test.rs"]
mod timing_test;
