//! Amounts of energy as integers, so that parts sum exactly to their whole.
//!
//! The unit is half a picojoule: one microwatt for half a microsecond. A trapezoid of integer microwatts over integer
//! microseconds is an integer of it, and so is a microjoule, and a microampere-hour at an integer microvolt.

use serde::{Serialize, Serializer};
use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// Half picojoules in a microjoule.
const IN_MICROJOULE: u128 = 2_000_000;
/// Half picojoules in a joule.
const IN_JOULE: f64 = 2e12;

/// An amount of energy, exact. Written by serde as joules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Energy(u128);

impl Energy {
    /// None.
    pub const ZERO: Energy = Energy(0);

    /// So many microjoules.
    pub fn from_microjoules(uj: u64) -> Energy {
        Energy(u128::from(uj) * IN_MICROJOULE)
    }

    /// Power that changes evenly from `from_uw` to `to_uw` microwatts within `us` microseconds.
    pub fn trapezoid(from_uw: u64, to_uw: u64, us: u64) -> Energy {
        Energy((u128::from(from_uw) + u128::from(to_uw)) * u128::from(us))
    }

    /// A charge of `uah` microampere-hours given at a voltage that changes evenly from `from_uv` to `to_uv` microvolts.
    pub fn charge(uah: u64, from_uv: u64, to_uv: u64) -> Energy {
        Energy(u128::from(uah) * 3_600 * (u128::from(from_uv) + u128::from(to_uv)))
    }

    /// What of a trapezoid lies in its first `part_us` microseconds, rounded down; `part_us` is at most `us`.
    pub(crate) fn trapezoid_part(from_uw: u64, to_uw: u64, us: u64, part_us: u64) -> Energy {
        if part_us >= us {
            return Energy::trapezoid(from_uw, to_uw, us);
        }
        let (from, to, part) = (i128::from(from_uw), i128::from(to_uw), i128::from(part_us));
        let bend = ((to - from) * part * part).div_euclid(i128::from(us.max(1)));
        Energy((2 * from * part + bend).max(0) as u128)
    }

    /// `part / whole` of it, rounded down; `part` is at most `whole`.
    pub(crate) fn share(self, part: u64, whole: u64) -> Energy {
        if part >= whole {
            return self;
        }
        let (part, whole) = (u128::from(part), u128::from(whole));
        // In two steps, so that the product has room.
        Energy(self.0 / whole * part + self.0 % whole * part / whole)
    }

    /// The rest after `part`; none if `part` is more.
    #[must_use]
    pub fn less(self, part: Energy) -> Energy {
        Energy(self.0.saturating_sub(part.0))
    }

    /// In joules, rounded to what 64-bit floating point has.
    pub fn joules(self) -> f64 {
        self.0 as f64 / IN_JOULE
    }

    /// In whole microjoules, rounded down.
    pub fn microjoules(self) -> u64 {
        u64::try_from(self.0 / IN_MICROJOULE).unwrap_or(u64::MAX)
    }

    /// Its average over `us` microseconds, in watts; zero for no time.
    pub fn watts_over(self, us: u64) -> f64 {
        if us == 0 { 0.0 } else { self.joules() / (us as f64 / 1e6) }
    }
}

impl Add for Energy {
    type Output = Energy;

    fn add(self, other: Energy) -> Energy {
        Energy(self.0 + other.0)
    }
}

impl AddAssign for Energy {
    fn add_assign(&mut self, other: Energy) {
        self.0 += other.0;
    }
}

impl Sum for Energy {
    fn sum<I: Iterator<Item = Energy>>(all: I) -> Energy {
        all.fold(Energy::ZERO, Add::add)
    }
}

impl Serialize for Energy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.joules())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit_each_other() {
        let watt_second = Energy::trapezoid(1_000_000, 1_000_000, 1_000_000);
        assert_eq!(watt_second, Energy::from_microjoules(1_000_000));
        // 15 mAh at 4 V: the 60 mWh that one per cent of a phone's battery is.
        assert_eq!(Energy::charge(15_000, 4_000_000, 4_000_000).joules(), 0.06 * 3600.0);
    }

    #[test]
    fn the_parts_of_a_trapezoid_follow_its_slope() {
        // From 0 to 4 W in 2 s: a quarter of the energy in the first half of the time.
        let whole = Energy::trapezoid(0, 4_000_000, 2_000_000);
        let half = Energy::trapezoid_part(0, 4_000_000, 2_000_000, 1_000_000);
        assert_eq!((whole.joules(), half.joules()), (4.0, 1.0));
        let falling = Energy::trapezoid_part(4_000_000, 0, 2_000_000, 1_000_000);
        assert_eq!(falling.joules(), 3.0);
    }
}
