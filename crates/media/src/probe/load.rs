//! Closed loops of requests against a device, with their times.

use crate::{BLOCK_BYTES, BlockDevice, DeviceError, IoBuffer, IoKind, IoRequest, Wait};
use serde::{Deserialize, Serialize};
use tierstone_base::histogram::LatencyHistogram;
use tierstone_base::{Clock, SeededRandom};

/// What one closed loop measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Requests in flight at the same time.
    pub depth: u32,
    /// Requests that were done.
    pub requests: u64,
    /// Requests a second.
    pub per_second: f64,
    /// Median latency in microseconds.
    pub p50_us: u64,
    /// Latency in microseconds that one request in a hundred exceeds.
    pub p99_us: u64,
}

/// A closed loop: each completion starts the next request.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Read, Write or WriteDurable.
    pub kind: IoKind,
    /// The first byte of where the loop works.
    pub start: u64,
    /// How many bytes it works on; whole requests.
    pub len: u64,
    /// Size of a request in bytes, whole blocks.
    pub request_bytes: usize,
    /// At random places, or one after the other from the start on and round again.
    pub random: bool,
    /// Requests in flight at the same time, at least one.
    pub depth: u32,
    /// The loop ends after this time in microseconds,
    pub budget_us: u64,
    /// or after this many requests.
    pub most_requests: u64,
}

/// Runs `load`. All requests are done when it returns.
///
/// # Errors
/// The first error of a request; the loop then ends when those in flight are done.
pub fn run(
    device: &mut impl BlockDevice,
    clock: &impl Clock,
    random: &mut SeededRandom,
    load: &Load,
) -> Result<Rate, DeviceError> {
    let places = (load.len / load.request_bytes as u64).max(1);
    let mut histogram = LatencyHistogram::new();
    let mut started = vec![0u64; load.depth as usize];
    let mut next_place = 0;
    let mut request = |slot: u64, buffer: IoBuffer, random: &mut SeededRandom| {
        let place = if load.random { random.below(places) } else { next_place % places };
        next_place += 1;
        let offset = load.start + place * load.request_bytes as u64;
        IoRequest { token: slot, kind: load.kind, offset, buffer: Some(buffer) }
    };
    let begun = clock.now().monotonic_us;
    let mut requests = Vec::new();
    let most = load.most_requests.max(1);
    let mut issued = most.min(u64::from(load.depth));
    for slot in 0..issued {
        let mut buffer = IoBuffer::zeroed(load.request_bytes.max(BLOCK_BYTES));
        // Not compressible, so that no layer below saves itself the work.
        random.fill(&mut buffer);
        requests.push(request(slot, buffer, random));
        started[slot as usize] = begun;
    }
    device.submit(&mut requests);
    let mut completions = Vec::new();
    let mut failure = None;
    let mut now = begun;
    while device.in_flight() > 0 {
        device.complete(Wait::One, &mut completions);
        now = clock.now().monotonic_us;
        for done in completions.drain(..) {
            if let Err(error) = done.result {
                failure.get_or_insert(error);
                continue;
            }
            histogram.record_us(now - started[done.token as usize]);
            let again = failure.is_none() && issued < most && now - begun < load.budget_us;
            if let Some(buffer) = done.buffer.filter(|_| again) {
                issued += 1;
                started[done.token as usize] = now;
                requests.push(request(done.token, buffer, random));
            }
        }
        device.submit(&mut requests);
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(Rate {
            depth: load.depth,
            requests: histogram.count(),
            per_second: histogram.count() as f64 * 1e6 / (now - begun).max(1) as f64,
            p50_us: histogram.quantile_us(0.5),
            p99_us: histogram.quantile_us(0.99),
        }),
    }
}
