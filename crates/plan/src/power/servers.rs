//! Servers: how work is spread over them (A.1, A.2) and what one draws (A.3).

use crate::field::{positive, refused, within};
use crate::quantity::Power;
use tierstone_base::Result;

/// Power of one server over its utilisation.
#[derive(Clone, Debug, PartialEq)]
pub enum Curve {
    /// From idle to peak in a straight line (A.3), W.
    Linear {
        /// At no load.
        idle_w: f64,
        /// At full load.
        peak_w: f64,
    },
    /// As SPECpower publishes it: W at 0, 10, ... 100 %, straight lines between.
    Table([f64; 11]),
}

impl Curve {
    /// The curve of a description: a peak and the idle part of it, or a table in their place; `place` is named
    /// in refusals.
    ///
    /// # Errors
    /// `InvalidInput`: neither is there, or both; and as [`Curve::linear`] and [`Curve::table`].
    pub fn of(
        place: &str,
        peak: Option<Power>,
        idle_fraction: Option<f64>,
        curve: Option<&[Power]>,
    ) -> Result<Curve> {
        match (curve, peak, idle_fraction) {
            (Some(curve), None, None) => Curve::table(&format!("{place}.curve"), curve),
            (None, Some(peak), Some(idle)) => Curve::linear(place, peak.get(), idle),
            (None, None, _) => {
                Err(refused(format!("`{place}.peak` is missing (or `{place}.curve` in its place)")))
            }
            (None, _, None) => Err(refused(format!("`{place}.idle-fraction` is missing"))),
            (Some(_), _, _) => Err(refused(format!(
                "`{place}.curve` stands beside `{place}.peak` or `{place}.idle-fraction`: give one or the other"
            ))),
        }
    }

    /// A line from a part of the peak, W, to the peak; `place` is named in refusals.
    ///
    /// # Errors
    /// `InvalidInput`: the peak is not above zero, or the part is not in 0 to 1.
    pub fn linear(place: &str, peak_w: f64, idle_fraction: f64) -> Result<Curve> {
        positive(&format!("{place}.peak"), peak_w, 100_000.0, "W")?;
        within(&format!("{place}.idle-fraction"), idle_fraction, 0.0, 1.0, "")?;
        Ok(Curve::Linear { idle_w: peak_w * idle_fraction, peak_w })
    }

    /// A table of eleven values that do not fall; `field` is named in refusals.
    ///
    /// # Errors
    /// `InvalidInput`: another number of values, a value that is none, or one below its predecessor.
    pub fn table(field: &str, watts: &[Power]) -> Result<Curve> {
        let watts: Vec<f64> = watts.iter().map(|watts| watts.get()).collect();
        let Ok(table) = <[f64; 11]>::try_from(watts.as_slice()) else {
            let count = watts.len();
            return Err(refused(format!(
                "`{field}` has {count} values, but needs 11: at 0, 10, ... 100 % load"
            )));
        };
        for value in table {
            within(field, value, 0.0, 100_000.0, "W")?;
        }
        if let Some(pair) = table.windows(2).find(|pair| pair[1] < pair[0]) {
            return Err(refused(format!("`{field}` falls from {} to {} W as load rises", pair[0], pair[1])));
        }
        positive(field, table[10], 100_000.0, "W")?;
        Ok(Curve::Table(table))
    }

    /// W at a utilisation from 0 to 1.
    pub fn watts(&self, utilisation: f64) -> f64 {
        match self {
            Curve::Linear { idle_w, peak_w } => idle_w + (peak_w - idle_w) * utilisation,
            Curve::Table(table) => {
                let place = (utilisation * 10.0).clamp(0.0, 10.0);
                let below = (place.floor() as usize).min(9);
                table[below] + (table[below + 1] - table[below]) * (place - below as f64)
            }
        }
    }

    /// The utilisation at which a server draws `watts`; 0 below the idle power, 1 above the peak.
    pub fn utilisation(&self, watts: f64) -> f64 {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..50 {
            let middle = 0.5 * (low + high);
            if self.watts(middle) < watts { low = middle } else { high = middle }
        }
        0.5 * (low + high)
    }

    /// W at full load.
    pub fn peak_w(&self) -> f64 {
        self.watts(1.0)
    }

    /// The same with every value times `factor`.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Curve {
        match self {
            Curve::Linear { idle_w, peak_w } => {
                Curve::Linear { idle_w: idle_w * factor, peak_w: peak_w * factor }
            }
            Curve::Table(table) => Curve::Table(table.map(|watts| watts * factor)),
        }
    }

    /// The same peak with another idle power; between them the values keep their place in the range.
    #[must_use]
    pub fn with_idle_fraction(&self, fraction: f64) -> Curve {
        let peak_w = self.peak_w();
        match self {
            Curve::Linear { .. } => Curve::Linear { idle_w: peak_w * fraction, peak_w },
            Curve::Table(table) => {
                let range = (peak_w - table[0]).max(f64::MIN_POSITIVE);
                let idle = peak_w * fraction;
                Curve::Table(table.map(|watts| idle + (peak_w - idle) * (watts - table[0]) / range))
            }
        }
    }
}

/// How work lies on the servers (A.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Part of the servers that are on.
    pub live: f64,
    /// Utilisation of one that is on.
    pub utilisation: f64,
}

/// Work of utilisation `utilisation` (of all servers) at load balance `l`: 0 packs it on as few servers as
/// carry it, 1 spreads it over all.
pub fn spread(utilisation: f64, l: f64) -> Spread {
    let live = utilisation + (1.0 - utilisation) * l;
    // No work and everything packed: no server is on.
    let each = if live > 0.0 { utilisation / live } else { 0.0 };
    Spread { live, utilisation: each }
}
