//! Power over load: steps of rising load, and the line through them.
//!
//! The phone method (Micro-Cellstores, power profiling) generalised: read memory or storage repeatedly at several
//! loads, hold each for a while, and put bandwidth beside power. Power is near linear in load, with an intercept
//! above zero.

use serde::Serialize;

/// One step of load, as it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The load that was asked for, 0 to 1 of the time.
    pub load: f64,
    /// Bytes a second that came of it.
    pub bytes_per_second: f64,
    /// Mean power, in watts; `None` without a meter.
    pub watts: Option<f64>,
    /// Most that steps of the meter can make of an error, in watts.
    pub watts_quantisation: Option<f64>,
}

/// A line through points.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Line {
    /// At zero.
    pub intercept: f64,
    /// A unit further.
    pub slope: f64,
    /// The largest distance of a point from it, in the unit of the intercept.
    pub residual_max: f64,
}

/// The line of least squares through `points`; `None` for fewer than two different places, or what is not finite.
pub fn line(points: &[(f64, f64)]) -> Option<Line> {
    let count = points.len() as f64;
    if points.len() < 2 || points.iter().any(|(x, y)| !x.is_finite() || !y.is_finite()) {
        return None;
    }
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    if spread == 0.0 {
        return None;
    }
    let slope = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>() / spread;
    let intercept = mean_y - slope * mean_x;
    let residual_max = points.iter().map(|(x, y)| (y - intercept - slope * x).abs()).fold(0.0, f64::max);
    Some(Line { intercept, slope, residual_max })
}

/// Joules for a gigabyte at `bytes_per_second` and `watts`; `None` where nothing moved.
pub fn joules_per_gigabyte(watts: f64, bytes_per_second: f64) -> Option<f64> {
    (bytes_per_second > 0.0).then(|| watts / bytes_per_second * 1e9)
}

/// How large the error by a step of `step_joules` may be, in per cent of what `watts` take in `seconds`: the part of
/// a battery's drop that one step is.
pub fn quantisation_percent(step_joules: f64, watts: f64, seconds: f64) -> Option<f64> {
    let drop = watts * seconds;
    (drop > 0.0).then(|| step_joules / drop * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_again() {
        let points: Vec<(f64, f64)> = (0..5).map(|x| (f64::from(x), 3.0 + 0.5 * f64::from(x))).collect();
        let found = line(&points).unwrap();
        assert!((found.intercept - 3.0).abs() < 1e-12 && (found.slope - 0.5).abs() < 1e-12);
        assert!(found.residual_max < 1e-12);
        assert_eq!(line(&points[..1]), None);
        assert_eq!(line(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(line(&[(1.0, 2.0), (2.0, f64::NAN)]), None);
    }

    /// Micro-Cellstores, power profiling: one per cent of the phone's battery is about 60 mWh; at its typical 0.7 to
    /// 1.2 W for an hour the error stays below 10 %.
    #[test]
    fn the_phones_quantisation_error_is_the_published_one() {
        let step = 0.06 * 3600.0;
        for (watts, percent) in [(0.7, 8.57), (1.2, 5.0)] {
            let error = quantisation_percent(step, watts, 3600.0).unwrap();
            assert!((error - percent).abs() < 0.01 && error <= 10.0, "{error}");
        }
        assert_eq!(quantisation_percent(step, 0.0, 3600.0), None);
    }

    /// Micro-Cellstores, scans: 0.7 to 1.17 W at 24.8 to 25 MB/s are 28 to 47 J/GB.
    #[test]
    fn joules_a_gigabyte_are_power_over_bandwidth() {
        assert_eq!(joules_per_gigabyte(0.7, 25e6).unwrap().round(), 28.0);
        assert_eq!(joules_per_gigabyte(1.17, 25e6).unwrap().round(), 47.0);
        assert_eq!(joules_per_gigabyte(1.0, 0.0), None);
    }
}
