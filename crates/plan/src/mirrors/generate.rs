//! Synthetic traces: one with a busy time each day, one with spikes and no daily pattern. Both are
//! Poisson processes of a rate that changes, thinned from its peak; the seed decides everything.

use super::describe::{Diurnal, Shape, Spiky};
use super::trace::Request;
use tierstone_base::SeededRandom;

const SECONDS_A_DAY: f64 = 86_400.0;

/// A trace with one busy time a day and short bursts at random times.
pub fn diurnal(settings: &Diurnal) -> Vec<Request> {
    let mut random = SeededRandom::new(settings.seed);
    let end_s = settings.days * SECONDS_A_DAY;
    let mut bursts = Vec::new();
    let mut at_s = 0.0;
    if settings.bursts_a_day > 0.0 {
        loop {
            at_s += exponential(&mut random) * SECONDS_A_DAY / settings.bursts_a_day;
            if at_s >= end_s {
                break;
            }
            bursts.push(at_s..at_s + settings.burst_s);
        }
    }
    let peak = settings.busy_per_s.max(settings.burst_per_s) + settings.base_per_s;
    let mut next = 0;
    let rate = |at_s: f64| {
        while bursts.get(next).is_some_and(|burst| burst.end <= at_s) {
            next += 1;
        }
        let burst = bursts.get(next).is_some_and(|burst| burst.contains(&at_s));
        let hour = (at_s / 3600.0).rem_euclid(24.0);
        let into = (hour - settings.busy_from_h) / settings.busy_hours;
        let busy = if (0.0..1.0).contains(&into) {
            settings.busy_per_s * (std::f64::consts::PI * into).sin().powi(2)
        } else {
            0.0
        };
        settings.base_per_s + busy.max(if burst { settings.burst_per_s } else { 0.0 })
    };
    arrivals(&mut random, &settings.shape, end_s, peak, rate)
}

/// A trace of spikes: phases with a spike every few seconds and phases without, of random lengths.
pub fn spiky(settings: &Spiky) -> Vec<Request> {
    let mut random = SeededRandom::new(settings.seed);
    let end_s = settings.hours * 3600.0;
    let mut spikes = Vec::new();
    let mut at_s = 0.0;
    while at_s < end_s {
        let quiet_from = at_s + exponential(&mut random) * settings.busy_phase_s;
        while at_s < quiet_from {
            spikes.push(at_s..at_s + settings.spike_s);
            at_s += settings.spike_every_s * (0.5 + random.unit());
        }
        at_s += exponential(&mut random) * settings.quiet_phase_s;
    }
    let peak = settings.spike_per_s + settings.base_per_s;
    let mut next = 0;
    let rate = |at_s: f64| {
        while spikes.get(next).is_some_and(|spike| spike.end <= at_s) {
            next += 1;
        }
        let in_spike = spikes.get(next).is_some_and(|spike| spike.contains(&at_s));
        settings.base_per_s + if in_spike { settings.spike_per_s } else { 0.0 }
    };
    arrivals(&mut random, &settings.shape, end_s, peak, rate)
}

fn exponential(random: &mut SeededRandom) -> f64 {
    -(1.0 - random.unit()).ln()
}

fn arrivals(
    random: &mut SeededRandom,
    shape: &Shape,
    end_s: f64,
    peak_per_s: f64,
    mut rate: impl FnMut(f64) -> f64,
) -> Vec<Request> {
    let bytes = (shape.request_kib * 1024.0) as u32 / 4096 * 4096;
    let blocks_of = |gib: f64| ((gib * (1u64 << 30) as f64) as u64 / 4096).max(1);
    let blocks = blocks_of(shape.footprint_gib);
    let hot = shape.hot_share.zip(shape.hot_gib.map(blocks_of));
    let mut requests = Vec::new();
    let mut at_s = 0.0;
    loop {
        at_s += exponential(random) / peak_per_s;
        if at_s >= end_s {
            return requests;
        }
        if random.unit() * peak_per_s >= rate(at_s) {
            continue;
        }
        let block = match hot {
            Some((share, hot)) if random.chance(share) => random.below(hot),
            Some((_, hot)) => hot + random.below(blocks.saturating_sub(hot).max(1)),
            None => random.below(blocks),
        };
        requests.push(Request {
            arrival_ns: (at_s * 1e9) as u64,
            offset: block * 4096,
            bytes: bytes.max(4096),
            is_write: random.chance(shape.write_share),
        });
    }
}
