//! What capacity costs: dollars a critical watt, paid off month by month.

/// Terms of a loan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Price of a watt of capacity, dollars.
    pub dollars_per_w: f64,
    /// Years of payment.
    pub years: f64,
    /// Interest a year, as a part.
    pub interest: f64,
}

impl Terms {
    /// The part of the price that is paid each month: r / (1 - (1 + r)^-n) with a twelfth of the interest
    /// and twelve payments a year; the source's terms give 0.0079079.
    pub fn monthly_part(&self) -> f64 {
        let (months, rate) = (self.years * 12.0, self.interest / 12.0);
        if rate == 0.0 { 1.0 / months } else { rate / (1.0 - (1.0 + rate).powf(-months)) }
    }

    /// Dollars a month for a capacity in W.
    pub fn monthly(&self, capacity_w: f64) -> f64 {
        capacity_w * self.dollars_per_w * self.monthly_part()
    }
}
