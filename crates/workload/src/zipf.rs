//! Zipf's law for any skew and any number of ranks, in constant time and exactly.
//!
//! Hörmann and Derflinger: "Rejection-inversion to generate variates from monotone discrete
//! distributions" (ACM TOMACS 6(3), 1996). The generator of Gray et al., which most published
//! benchmarks use, lives in `tierstone_cache::trace`: it needs a skew below 1 and a pass over all ranks.

use tierstone_base::SeededRandom;

/// Draws ranks of which rank `r` (from 0) has a probability in proportion to `(r + 1)^-theta`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExactZipf {
    ranks: u64,
    theta: f64,
    /// The integral of the hat function at its left and right end.
    area_first: f64,
    area_last: f64,
    /// Points nearer than this to their rank are accepted without a further look.
    squeeze: f64,
}

impl ExactZipf {
    /// Ranks 0 to `ranks - 1` (one at least), skew `theta` above 0. Cost: O(1).
    pub(crate) fn new(ranks: u64, theta: f64) -> ExactZipf {
        let ranks = ranks.max(1);
        let mut zipf = ExactZipf { ranks, theta, area_first: 0.0, area_last: 0.0, squeeze: 0.0 };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_last = zipf.area(ranks as f64 + 0.5);
        zipf.squeeze = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.height(2.0));
        zipf
    }

    /// The number of ranks.
    pub(crate) fn ranks(&self) -> u64 {
        self.ranks
    }

    /// A rank; 0 is the most frequent. Cost: one to two logarithms and exponentials, seldom more.
    pub(crate) fn rank(&self, random: &mut SeededRandom) -> u64 {
        loop {
            let area = self.area_last + random.unit() * (self.area_first - self.area_last);
            let point = self.area_inverse(area);
            let nearest = (point + 0.5).floor().clamp(1.0, self.ranks as f64);
            if nearest - point <= self.squeeze || area >= self.area(nearest + 0.5) - self.height(nearest) {
                // Above 2^53 ranks the conversion could step over the last.
                return (nearest as u64 - 1).min(self.ranks - 1);
            }
        }
    }

    fn height(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    /// The integral of `x^-theta` from 1: `(x^(1-theta) - 1) / (1 - theta)`, or `ln x` for 1.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        let exponent = (1.0 - self.theta) * log;
        if exponent.abs() > 1e-8 { exponent.exp_m1() / exponent * log } else { log * (1.0 + exponent / 2.0) }
    }

    fn area_inverse(&self, area: f64) -> f64 {
        // Rounding could leave the range of the logarithm.
        let inner = (area * (1.0 - self.theta)).max(-1.0);
        let log = if inner.abs() > 1e-8 { inner.ln_1p() / inner * area } else { area * (1.0 - inner / 2.0) };
        log.exp()
    }
}
