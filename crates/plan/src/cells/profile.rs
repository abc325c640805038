//! Power from a battery's gauge, with the error of its steps; and power over clock rate.
//!
//! A gauge shows whole steps (1 % of the charge), so the energy is off by one step at most: the share
//! of one step in all.

use super::case::Measurement;

/// What a measurement says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Energy drawn.
    pub joules: f64,
    /// Mean power.
    pub watts: f64,
    /// The share by which both may be off.
    pub error: f64,
    /// The mean clock rate, by time; `None` without residencies.
    pub hertz: Option<f64>,
}

/// Energy is charge by mean voltage.
pub fn profile(of: &Measurement) -> Profile {
    let joules = of.step * of.steps * of.volts;
    let time: f64 = of.residency.iter().map(|(_, seconds)| seconds).sum();
    let cycles: f64 = of.residency.iter().map(|(hertz, seconds)| hertz * seconds).sum();
    Profile {
        joules,
        watts: joules / of.seconds,
        error: 1.0 / of.steps,
        hertz: (time > 0.0).then(|| cycles / time),
    }
}

/// The line of watts over gigahertz that has the least squares: watts at 0, and watts a gigahertz. `None`
/// unless there are two clock rates.
pub fn line(profiles: &[Profile]) -> Option<(f64, f64)> {
    let points: Vec<(f64, f64)> =
        profiles.iter().filter_map(|profile| Some((profile.hertz? / 1e9, profile.watts))).collect();
    let count = points.len() as f64;
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
    let spread = mean(&|point| (point.0 - x).powi(2));
    let slope = mean(&|point| (point.0 - x) * (point.1 - y)) / spread;
    (points.len() > 1 && spread > 1e-12).then_some((y - slope * x, slope))
}
