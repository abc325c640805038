//! What kind of work a node is good at: small kernels, one for each class of data-intensive work.
//!
//! The classes follow the workload study of Vasudevan's thesis (2011): a cache-bound kernel, cryptography, search for
//! many patterns (memory-hungry), a sort in one pass and one in two passes over a device. Each gives its amount of work and whether its result was right; the
//! caller takes time and joules, and puts them beside it.
//!
//! Invariants:
//! 1. A result that was not verified is not returned: it is an error.
//! 2. Inputs follow from a seed, or are the sort benchmark's; nothing is read or written, but by the sort in two passes,
//!    which removes its files.
//! 3. Every thread has its own instance, so that no class measures locks.

pub mod crypto;
pub mod gensort;
pub mod kernel;
pub mod rsa;
pub mod search;
pub mod sort;
pub mod two_pass;
pub mod valsort;

use serde::Serialize;
use tierstone_base::{Clock, Error, ErrorKind, Result, SystemClock};

/// What one class did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Work {
    /// The class and its size.
    pub name: String,
    /// What is counted: `FLOP`, `byte`, `record`.
    pub unit: &'static str,
    /// How many of them.
    pub amount: f64,
    /// In how many seconds, verification left out.
    pub seconds: f64,
    /// What was verified, and numbers that belong to it.
    pub note: String,
    /// What a device did for it, if one was used.
    pub device: Option<DeviceWork>,
}

/// What a device did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeviceWork {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
    /// Where the device's bandwidth was measured beside it.
    pub bound: Option<Bound>,
}

/// What a device's bandwidth allows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Bound {
    /// Bytes a second that it reads in order, measured in the same run.
    pub read_bytes_per_second: f64,
    /// Bytes a second that it writes in order, measured in the same run.
    pub write_bytes_per_second: f64,
    /// Seconds for these bytes at these rates, reading and writing one after the other.
    pub seconds: f64,
    /// Those seconds over the time that was taken; above 1 where the device does both at once.
    pub part: f64,
}

/// Who is told when the part that counts begins and ends: inputs are made before it, results verified behind it.
pub trait Watch {
    /// It begins.
    ///
    /// # Errors
    /// What keeps the watcher from watching; nothing is run then.
    fn begin(&mut self) -> Result<()>;

    /// It has ended.
    ///
    /// # Errors
    /// What the watcher could not find out.
    fn end(&mut self) -> Result<()>;
}

/// Nobody.
impl Watch for () {
    fn begin(&mut self) -> Result<()> {
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Runs the part that counts, and gives its result and its seconds.
fn timed<T>(watch: &mut dyn Watch, part: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    watch.begin()?;
    let clock = SystemClock::new();
    let begun_us = clock.now().monotonic_us;
    let result = part();
    let passed_us = clock.now().monotonic_us.saturating_sub(begun_us);
    watch.end()?;
    Ok((result?, passed_us as f64 / 1e6))
}

/// An error of a kernel whose result is wrong: the machine, or the kernel, is broken.
fn wrong(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, what)
}

/// Runs `one` in `threads` threads, each with its number, once and until `seconds` have passed; the sum of what the calls gave,
/// and the time. A call in progress at the end is finished and counted, and so is its time.
///
/// # Errors
/// What a thread's state could not be made of, or a thread that died.
fn for_seconds<S: Send>(
    (threads, seconds): (usize, f64),
    watch: &mut dyn Watch,
    make: impl Fn(usize) -> S,
    one: impl Fn(&mut S) -> u64 + Sync,
) -> Result<(u64, f64)> {
    let mut states: Vec<S> = (0..threads).map(make).collect();
    let clock = SystemClock::new();
    let (amounts, seconds) = timed(watch, || {
        let end_us = clock.now().monotonic_us + (seconds * 1e6) as u64;
        in_threads(&mut states, |state| {
            let mut amount = one(state);
            while clock.now().monotonic_us < end_us {
                amount += one(state);
            }
            amount
        })
    })?;
    Ok((amounts.iter().sum(), seconds))
}

/// Runs `one` on each state in a thread of its own; what they gave, in order.
///
/// # Errors
/// A thread died.
fn in_threads<S: Send, T: Send>(states: &mut [S], one: impl Fn(&mut S) -> T + Sync) -> Result<Vec<T>> {
    let one = &one;
    std::thread::scope(|scope| {
        let threads: Vec<_> = states.iter_mut().map(|state| scope.spawn(move || one(state))).collect();
        let died = |_| Error::new(ErrorKind::Retry, "a thread of the kernel died");
        threads.into_iter().map(|thread| thread.join().map_err(died)).collect()
    })
}
