//! Synthetic traces: one with a busy time each day, one with spikes and no daily pattern. Both are
//! Poisson processes of a rate that changes, thinned from its peak; the seed decides everything.

use super::describe::{Diurnal, Shape, Spiky};
use super::trace::Request;
use crate::quantity::{DAY, Size};
use tierstone_base::SeededRandom;

/// A trace with one busy time a day and short bursts at random times.
pub fn diurnal(settings: &Diurnal) -> Vec<Request> {
    let mut random = SeededRandom::new(settings.seed);
    let end_s = settings.length.get();
    let mut bursts = Vec::new();
    let mut at_s = 0.0;
    if settings.bursts.get() > 0.0 {
        loop {
            at_s += exponential(&mut random) / settings.bursts.get();
            if at_s >= end_s {
                break;
            }
            bursts.push(at_s..at_s + settings.burst_lasts.get());
        }
    }
    let peak = settings.busy.get().max(settings.burst.get()) + settings.base.get();
    let mut next = 0;
    let rate = |at_s: f64| {
        while bursts.get(next).is_some_and(|burst| burst.end <= at_s) {
            next += 1;
        }
        let burst = bursts.get(next).is_some_and(|burst| burst.contains(&at_s));
        let into = (at_s.rem_euclid(DAY) - settings.busy_from.get()) / settings.busy_lasts.get();
        let busy = if (0.0..1.0).contains(&into) {
            settings.busy.get() * (std::f64::consts::PI * into).sin().powi(2)
        } else {
            0.0
        };
        settings.base.get() + busy.max(if burst { settings.burst.get() } else { 0.0 })
    };
    arrivals(&mut random, &settings.shape, end_s, peak, rate)
}

/// A trace of spikes: phases with a spike every few seconds and phases without, of random lengths.
pub fn spiky(settings: &Spiky) -> Vec<Request> {
    let mut random = SeededRandom::new(settings.seed);
    let end_s = settings.length.get();
    let mut spikes = Vec::new();
    let mut at_s = 0.0;
    while at_s < end_s {
        let quiet_from = at_s + exponential(&mut random) * settings.busy_phase.get();
        while at_s < quiet_from {
            spikes.push(at_s..at_s + settings.spike_lasts.get());
            at_s += settings.spike_every.get() * (0.5 + random.unit());
        }
        at_s += exponential(&mut random) * settings.quiet_phase.get();
    }
    let peak = settings.spike.get() + settings.base.get();
    let mut next = 0;
    let rate = |at_s: f64| {
        while spikes.get(next).is_some_and(|spike| spike.end <= at_s) {
            next += 1;
        }
        let in_spike = spikes.get(next).is_some_and(|spike| spike.contains(&at_s));
        settings.base.get() + if in_spike { settings.spike.get() } else { 0.0 }
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
    let bytes = shape.request.get() as u32 / 4096 * 4096;
    let blocks_of = |size: Size| (size.get() as u64 / 4096).max(1);
    let blocks = blocks_of(shape.footprint);
    let hot = shape.hot_share.zip(shape.hot.map(blocks_of));
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
