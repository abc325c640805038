//! Which way of making a write durable is the better one here: measured, in less than a second on
//! a device that answers within 10 ms.

use super::load::{Load, Rate, run};
use super::scratch::{Scratch, one, prepare};
use super::system::DeviceFacts;
use crate::file::DurableMethod;
use crate::{BlockDevice, IoBuffer, IoKind, IoRequest};
use serde::{Deserialize, Serialize};
use std::path::Path;
use tierstone_base::{Clock, Result, SeededRandom, SystemClock};

const SEGMENT_BYTES: u64 = 2 << 20;
/// Time for one loop, in microseconds; there are two depths for each of two methods.
const LOOP_US: u64 = 120_000;
/// Time for each half of the question whether a flush is device-wide, in microseconds.
const FLUSH_US: u64 = 120_000;
/// Written beside, to see whether a flush of one file pays for the other, in bytes.
const BESIDE_BYTES: usize = 512 << 10;
/// A flush that takes this much longer after a write to another file pays for that file too.
const DEVICE_WIDE_RATIO: f64 = 1.3;

/// What [`durable_method`] found; kept in the superblock of a store and shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// The method to use.
    pub method: DurableMethod,
    /// Why, in words.
    pub reason: String,
    /// Times of the durable write; `None` where the file system refuses it.
    pub durable_write: Option<MethodTimes>,
    /// Times of write and flush.
    pub write_then_flush: MethodTimes,
    /// Whether one flush seems to make the writes of all files durable, so that one flush can
    /// serve all shards. Only a hint for batching: correctness never relies on it.
    pub flush_looks_device_wide: bool,
    /// How many times longer a flush takes when another file was written to before.
    pub flush_slowdown: f64,
    /// The kernel's word on the device's cache: `write back` (volatile), `write through`, or unknown.
    pub write_cache: Option<String>,
}

/// 4 KiB durable writes over a prepared file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MethodTimes {
    /// One at a time.
    pub depth_1: Rate,
    /// Four at a time.
    pub depth_4: Rate,
}

/// Measures both methods in `directory`. Cost: at most about a second and 16 MiB, given back.
///
/// # Errors
/// When no file can be made or written there.
pub fn durable_method(directory: &Path) -> Result<ProbeReport> {
    let clock = SystemClock::new();
    let durable_write = times(directory, DurableMethod::DurableWrite, &clock);
    let write_then_flush = times(directory, DurableMethod::WriteThenFlush, &clock)?;
    let flush_slowdown = flush_slowdown(directory, &clock)?;
    let write_cache = DeviceFacts::of(directory).ok().and_then(|facts| facts.write_cache);
    let (method, reason) = match &durable_write {
        Ok(times) => choose(times, &write_then_flush),
        Err(error) => (DurableMethod::WriteThenFlush, format!("durable writes are refused: {error}")),
    };
    Ok(ProbeReport {
        method,
        reason,
        durable_write: durable_write.ok(),
        write_then_flush,
        flush_looks_device_wide: flush_slowdown >= DEVICE_WIDE_RATIO
            || write_cache.as_deref() == Some("write back"),
        flush_slowdown,
        write_cache,
    })
}

/// The durable write wins unless the flush is clearly better at depth and no worse alone: it
/// names one write, so that it leaves a device with forced unit access the choice.
fn choose(write: &MethodTimes, flush: &MethodTimes) -> (DurableMethod, String) {
    let flush_wins = flush.depth_4.per_second > write.depth_4.per_second * 1.1
        && flush.depth_1.p50_us as f64 <= write.depth_1.p50_us as f64 * 1.05;
    let numbers = format!(
        "durable write {} us alone and {:.0}/s at depth 4, write and flush {} us and {:.0}/s",
        write.depth_1.p50_us, write.depth_4.per_second, flush.depth_1.p50_us, flush.depth_4.per_second
    );
    if flush_wins { (DurableMethod::WriteThenFlush, numbers) } else { (DurableMethod::DurableWrite, numbers) }
}

fn times(directory: &Path, method: DurableMethod, clock: &SystemClock) -> Result<MethodTimes> {
    // A store for each method: a method that fails makes its store refuse everything after.
    let scratch = Scratch::new(directory, SEGMENT_BYTES, 2)?;
    let mut device = scratch.device(method)?;
    prepare(&mut device, 0)?;
    let geometry = device.geometry();
    let mut random = SeededRandom::new(1);
    let mut at_depth = |depth| {
        let load = Load {
            kind: IoKind::WriteDurable,
            start: geometry.segment_offset(0),
            len: SEGMENT_BYTES,
            request_bytes: 4096,
            random: false,
            depth,
            budget_us: LOOP_US,
            most_requests: 4000,
        };
        run(&mut device, clock, &mut random, &load)
    };
    Ok(MethodTimes { depth_1: at_depth(1)?, depth_4: at_depth(4)? })
}

/// The median time of a small durable write after a large plain write to another file, over its
/// median time without.
fn flush_slowdown(directory: &Path, clock: &SystemClock) -> Result<f64> {
    let scratch = Scratch::new(directory, SEGMENT_BYTES, 2)?;
    let mut device = scratch.device(DurableMethod::WriteThenFlush)?;
    prepare(&mut device, 0)?;
    prepare(&mut device, 1)?;
    let geometry = device.geometry();
    let (small, large) = (geometry.segment_offset(0), geometry.segment_offset(1));
    let mut random = SeededRandom::new(2);
    let mut medians = [0.0; 2];
    for (beside, median) in [false, true].into_iter().zip(&mut medians) {
        let begun = clock.now().monotonic_us;
        let mut samples = Vec::new();
        while samples.len() < 5 || (clock.now().monotonic_us - begun < FLUSH_US && samples.len() < 200) {
            if beside {
                let mut buffer = IoBuffer::zeroed(BESIDE_BYTES);
                random.fill(&mut buffer);
                one(&mut device, IoRequest::write(0, large, buffer))?;
            }
            let mut buffer = IoBuffer::zeroed(4096);
            random.fill(&mut buffer);
            let before = clock.now().monotonic_us;
            one(&mut device, IoRequest::write_durable(0, small, buffer))?;
            samples.push(clock.now().monotonic_us - before);
        }
        samples.sort_unstable();
        *median = samples[samples.len() / 2] as f64;
    }
    Ok(medians[1] / medians[0].max(1.0))
}

#[cfg(test)]
#[path = "durable_test.rs"]
mod durable_test;
