//! Gets that are measured phase by phase, alone and beside something: the frame of the studies after Figure 4.6
//! of FAWN-DS.
//!
//! The first phases are alike in all of them: gets alone, as fast as they are answered, which gives the
//! highest rate; then at [`LOW`] and [`HIGH`] parts of it. The published ratios are of their latencies.

use crate::experiment::{Published, Rule};
use crate::result::{Axis, Cell, Plot, Series, Table};
use crate::run::Run;
use tierstone_base::Result;
use tierstone_base::histogram::LatencyHistogram;

/// One line of the figure.
#[derive(Clone, Copy, Debug)]
pub struct Phase<B> {
    /// What it is called.
    pub name: &'static str,
    /// Gets a second, as a part of the highest rate; `None`: as fast as they are answered.
    pub rate_share: Option<f64>,
    /// What goes on beside them.
    pub beside: B,
}

/// The lower load, as a part of the highest rate.
pub const LOW: Option<f64> = Some(0.35);
/// The higher load.
pub const HIGH: Option<f64> = Some(0.7);
/// The place of the phase that gives the highest rate.
pub const ALONE_HIGHEST: usize = 0;
/// The place of gets alone under low load.
pub const ALONE_LOW: usize = 1;

/// What was seen in one phase.
#[derive(Debug)]
pub struct Seen<S> {
    /// Gets a second that were meant to be sent, unless as many as are answered.
    pub meant: Option<f64>,
    /// Gets a second.
    pub rate: f64,
    /// Their latencies.
    pub latency: LatencyHistogram,
    /// What was seen of what went on beside them.
    pub beside: S,
}

/// The published ratios of the figure under `names`: the median, the 90th percentile and the tail under low load
/// of the same alone; the tail under high load of gets at the highest rate. `because`: what each compares here.
pub const fn published(names: [&'static str; 4], because: [&'static str; 4]) -> [Published; 4] {
    const fn ratio(
        name: &'static str,
        because: &'static str,
        value: f64,
        at_most: f64,
        place: &'static str,
    ) -> Published {
        Published { name, value, unit: "ratio", place, because, rule: Rule::AtMost(at_most) }
    }
    let places = [
        "Figure 4.6, section 4.2.1: under 1 ms in a Split, 800 µs from flash without",
        "Figure 4.6, section 4.2.1: 10 ms in a Split at low load, 2 ms without",
        "Figure 4.6, section 4.2.1: 491 ms in a Split at low load, 26.3 ms without",
        "Figure 4.6, section 4.2.1: 611 ms in a Split at high load, 26.3 ms without",
    ];
    [
        ratio(names[0], because[0], 1.25, 1.3, places[0]),
        ratio(names[1], because[1], 5.0, 5.0, places[1]),
        ratio(names[2], because[2], 18.7, 18.7, places[2]),
        ratio(names[3], because[3], 23.2, 23.2, places[3]),
    ]
}

/// Measures all phases; `measure` gets what goes on beside the gets, and their rate.
///
/// # Errors
/// The first that a phase gives.
pub fn measure_all<B: Copy, S>(
    run: &mut Run<'_>,
    phases: &[Phase<B>],
    mut measure: impl FnMut(&mut Run<'_>, B, Option<f64>) -> Result<Seen<S>>,
) -> Result<Vec<Seen<S>>> {
    let mut seen: Vec<Seen<S>> = Vec::new();
    for phase in phases {
        run.step(phase.name)?;
        let highest = seen.first().map_or(0.0, |first| first.rate);
        let rate = phase.rate_share.map(|share| (highest * share).max(1.0));
        seen.push(measure(run, phase.beside, rate)?);
    }
    Ok(seen)
}

/// Compares the phases at places `low` and `high` with gets alone, under the `names` of [`published`].
///
/// # Errors
/// When nothing was published under a name.
pub fn compare<S>(
    run: &mut Run<'_>,
    names: [&'static str; 4],
    seen: &[Seen<S>],
    (low, high): (usize, usize),
    detail: impl Fn(&Seen<S>) -> String,
) -> Result<()> {
    let places = [(low, ALONE_LOW), (low, ALONE_LOW), (low, ALONE_LOW), (high, ALONE_HIGHEST)];
    for ((name, quantile), (with, without)) in names.into_iter().zip([0.5, 0.9, 0.999, 0.999]).zip(places) {
        let quantile_us = |place: usize| seen[place].latency.quantile_us(quantile);
        let (with_us, without_us) = (quantile_us(with), quantile_us(without));
        let detail = format!("here {with_us} of {without_us} µs; {}", detail(&seen[with]));
        run.compare(name, with_us as f64 / without_us.max(1) as f64, &detail)?;
    }
    Ok(())
}

/// The table of all phases, with further columns, and the plot of their latencies.
pub fn report<B, S, const MORE: usize>(
    run: &mut Run<'_>,
    phases: &[Phase<B>],
    seen: &[Seen<S>],
    more: [&str; MORE],
    cells: impl Fn(&Seen<S>) -> [Cell; MORE],
) {
    let gets = ["phase", "gets/s meant", "gets/s", "p50 µs", "p90 µs", "p99 µs", "p99.9 µs", "max µs"];
    let columns: Vec<&str> = gets.into_iter().chain(more).collect();
    let mut table = Table::new("latency", "Latency of gets", &columns);
    for (phase, seen) in phases.iter().zip(seen) {
        let own: [Cell; 8] = [
            phase.name.into(),
            seen.meant.unwrap_or(f64::NAN).into(),
            seen.rate.into(),
            seen.latency.quantile_us(0.5).into(),
            seen.latency.quantile_us(0.9).into(),
            seen.latency.quantile_us(0.99).into(),
            seen.latency.quantile_us(0.999).into(),
            seen.latency.max_us().into(),
        ];
        table.rows.push(own.into_iter().chain(cells(seen)).collect());
    }
    run.table(table);
    run.plot(Plot {
        name: "latency".to_owned(),
        title: "Latency of gets: how many are answered in time".to_owned(),
        x: Axis::logarithmic("µs"),
        y: Axis::linear("share of gets"),
        series: curves(phases, seen, distribution),
    });
}

/// A curve of each phase.
pub fn curves<B, S>(
    phases: &[Phase<B>],
    seen: &[Seen<S>],
    points: impl Fn(&LatencyHistogram) -> Vec<(f64, f64)>,
) -> Vec<Series> {
    phases.iter().zip(seen).map(|(phase, seen)| Series::new(phase.name, points(&seen.latency))).collect()
}

/// The cumulative distribution.
fn distribution(latency: &LatencyHistogram) -> Vec<(f64, f64)> {
    let shares = (1..200).map(|part| f64::from(part) / 200.0).chain([0.999, 1.0]);
    shares.map(|share| (latency.quantile_us(share) as f64, share)).collect()
}
