//! Quantities in descriptions: a number with its unit, `"2 TB"`, `"150 W"`, `"0.10 $/kWh"`.
//!
//! Invariants:
//! 1. A quantity is finite, not negative (temperatures may be) and at most [`HIGHEST`] in its base unit.
//! 2. A number without a unit is refused: nobody has to guess whether a price was a node's or a rack's.

use crate::field::refused;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use std::fmt;
use std::marker::PhantomData;
use tierstone_base::Result;

/// The largest number accepted, in base units; far above any plant, far below where sums lose dollars.
pub const HIGHEST: f64 = 1e21;

/// The least number of base units that counts as above 0, so that quotients stay finite.
pub const LEAST: f64 = 1e-9;

/// A kind of quantity: its units, and an example for error messages.
pub trait Dimension {
    /// What it is: `a power`.
    const WHAT: &'static str;
    /// How to write one.
    const EXAMPLE: &'static str;
    /// Units and what one of them is in the base unit, which is the one with factor 1.
    const UNITS: &'static [(&'static str, f64)];
    /// The lowest value, in the base unit.
    const LOWEST: f64 = 0.0;
    /// Units whose zero is not that of the base unit, and what their zero is there.
    const OFFSETS: &'static [(&'static str, f64)] = &[];
}

/// A number of base units of `D`.
pub struct Quantity<D> {
    value: f64,
    dimension: PhantomData<D>,
}

impl<D> Clone for Quantity<D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Quantity<D> {}

impl<D> PartialEq for Quantity<D> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<D: Dimension> fmt::Debug for Quantity<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.value, base_unit::<D>())
    }
}

fn base_unit<D: Dimension>() -> &'static str {
    D::UNITS.iter().find(|(_, factor)| *factor == 1.0).map_or("", |(name, _)| name)
}

impl<D: Dimension> Quantity<D> {
    /// So many base units.
    pub fn new(value: f64) -> Self {
        Quantity { value, dimension: PhantomData }
    }

    /// The number of base units.
    pub fn get(self) -> f64 {
        self.value
    }

    /// The number of base units, from `low` to `high`; `field` is named if it is not, and by how much.
    ///
    /// # Errors
    /// `InvalidInput` outside of them.
    pub fn within(self, field: &str, low: f64, high: f64) -> Result<f64> {
        crate::field::within(field, self.value, low, high, base_unit::<D>())
    }

    /// The number of base units, which must be above 0, by [`LEAST`] at least; `field` is named if it is not.
    ///
    /// # Errors
    /// `InvalidInput` below that.
    pub fn positive(self, field: &str) -> Result<f64> {
        if self.value >= LEAST {
            return Ok(self.value);
        }
        Err(refused(format!("`{field}` is {} {}, but must be above 0", self.value, base_unit::<D>())))
    }

    /// Reads `"2 TB"`; in amounts of money the sign may stand first, `"$2000"`.
    ///
    /// # Errors
    /// `InvalidInput`: no number, no unit, another kind of unit, or a number out of range.
    pub fn parse(text: &str) -> Result<Self> {
        let (number, unit) = split(text.trim());
        let wrong = |why: String| refused(format!("'{text}' {why}"));
        let Ok(value) = number.replace('_', "").parse::<f64>() else {
            return Err(wrong(format!("is no {}; write for example \"{}\"", name::<D>(), D::EXAMPLE)));
        };
        if unit.is_empty() {
            return Err(wrong(format!("has no unit; write for example \"{}\"", D::EXAMPLE)));
        }
        let Some((_, factor)) = D::UNITS.iter().find(|(name, _)| *name == unit) else {
            let known: Vec<&str> = D::UNITS.iter().map(|(name, _)| *name).collect();
            return Err(wrong(format!("has a unit that is none of {}: {}", D::WHAT, known.join(", "))));
        };
        let offset = D::OFFSETS.iter().find(|(name, _)| *name == unit).map_or(0.0, |(_, offset)| *offset);
        let value = value * factor + offset;
        if !(value >= D::LOWEST && value <= HIGHEST) {
            let (low, base) = (D::LOWEST, base_unit::<D>());
            return Err(wrong(format!("is out of range: from {low} to {HIGHEST:e} {base}")));
        }
        Ok(Quantity::new(value))
    }
}

/// The kind without its article.
fn name<D: Dimension>() -> &'static str {
    D::WHAT.split_once(' ').map_or(D::WHAT, |(_, name)| name)
}

/// The number and the unit; `$2000` is `2000` and `$`.
fn split(text: &str) -> (&str, &str) {
    if let Some(number) = text.strip_prefix('$') {
        return (number.trim(), "$");
    }
    let bytes = text.as_bytes();
    let is_number = |place: usize| match bytes[place] {
        b'0'..=b'9' | b'.' | b'_' => true,
        b'-' | b'+' => place == 0 || matches!(bytes[place - 1], b'e' | b'E'),
        // An exponent, not the beginning of a unit.
        b'e' | b'E' => {
            place > 0
                && bytes[place - 1].is_ascii_digit()
                && bytes.get(place + 1).is_some_and(|next| next.is_ascii_digit() || b"+-".contains(next))
        }
        _ => false,
    };
    let end = (0..bytes.len()).find(|&place| !is_number(place)).unwrap_or(bytes.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim())
}

impl<'de, D: Dimension> Deserialize<'de> for Quantity<D> {
    fn deserialize<R: Deserializer<'de>>(reader: R) -> std::result::Result<Self, R::Error> {
        struct Reader<D>(PhantomData<D>);
        impl<D: Dimension> Visitor<'_> for Reader<D> {
            type Value = Quantity<D>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{} with its unit, such as \"{}\"", D::WHAT, D::EXAMPLE)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<Quantity<D>, E> {
                Quantity::parse(text).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> std::result::Result<Quantity<D>, E> {
                self.visit_f64(number as f64)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> std::result::Result<Quantity<D>, E> {
                self.visit_f64(number as f64)
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> std::result::Result<Quantity<D>, E> {
                let message = format!("{number} has no unit; write for example \"{}\"", D::EXAMPLE);
                Err(E::custom(message))
            }
        }
        reader.deserialize_any(Reader(PhantomData))
    }
}

mod given;

pub use given::Given;

/// A number without a unit (a count, a ratio): finite, not negative, at most [`HIGHEST`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number(f64);

impl Number {
    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }

    /// The number, from `low` to `high`; `field` is named if it is not.
    ///
    /// # Errors
    /// `InvalidInput` outside of them.
    pub fn within(self, field: &str, low: f64, high: f64) -> Result<f64> {
        crate::field::within(field, self.0, low, high, "")
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<R: Deserializer<'de>>(reader: R) -> std::result::Result<Self, R::Error> {
        let value = f64::deserialize(reader)?;
        if (0.0..=HIGHEST).contains(&value) {
            return Ok(Number(value));
        }
        Err(de::Error::custom(format!("{value} is out of range: from 0 to {HIGHEST:e}")))
    }
}

/// Declares kinds of quantities.
macro_rules! dimensions {
    ($($(#[$doc:meta])* $name:ident, $marker:ident, $what:literal, $example:literal, [$(($unit:literal, $factor:expr)),* $(,)?] $(, from $lowest:expr)? $(, offset $offsets:expr)?;)*) => {
        $(
            $(#[$doc])*
            pub type $name = Quantity<$marker>;

            #[doc = concat!("The units of [`", stringify!($name), "`].")]
            #[derive(Clone, Copy, Debug, PartialEq)]
            pub struct $marker;

            impl Dimension for $marker {
                const WHAT: &'static str = $what;
                const EXAMPLE: &'static str = $example;
                const UNITS: &'static [(&'static str, f64)] = &[$(($unit, $factor)),*];
                $(const LOWEST: f64 = $lowest;)?
                $(const OFFSETS: &'static [(&'static str, f64)] = &$offsets;)?
            }
        )*
    };
}

/// Seconds of an hour.
pub const HOUR: f64 = 3_600.0;
/// Seconds of a day.
pub const DAY: f64 = 86_400.0;
/// Bytes of a MiB.
pub const MIB: f64 = 1_048_576.0;
/// Bytes of a GiB.
pub const GIB: f64 = 1_073_741_824.0;

dimensions! {
    /// In watts.
    Power, PowerUnits, "a power", "150 W", [("mW", 1e-3), ("W", 1.0), ("kW", 1e3), ("MW", 1e6)];
    /// In joules.
    Energy, EnergyUnits, "an energy", "60 mWh",
        [("J", 1.0), ("kJ", 1e3), ("MJ", 1e6), ("mWh", 3.6), ("Wh", 3.6e3), ("kWh", 3.6e6), ("MWh", 3.6e9)];
    /// In bytes.
    Size, SizeUnits, "a size", "2 TB",
        [("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12), ("PB", 1e15), ("EB", 1e18),
         ("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0), ("TiB", 1_099_511_627_776.0),
         ("PiB", 1_125_899_906_842_624.0)];
    /// In bytes a second.
    Bandwidth, BandwidthUnits, "a bandwidth", "250 MB/s",
        [("B/s", 1.0), ("kB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9),
         ("KiB/s", 1024.0), ("MiB/s", 1_048_576.0), ("GiB/s", 1_073_741_824.0),
         ("Mb/s", 1.25e5), ("Gb/s", 1.25e8)];
    /// In operations a second.
    Rate, RateUnits, "a rate", "35000 queries/s",
        [("/s", 1.0), ("queries/s", 1.0), ("requests/s", 1.0), ("operations/s", 1.0), ("scans/s", 1.0),
         ("k queries/s", 1e3), ("M queries/s", 1e6), ("G queries/s", 1e9),
         ("/day", 1.0 / DAY), ("/h", 1.0 / HOUR), ("scans/h", 1.0 / HOUR), ("requests/h", 1.0 / HOUR)];
    /// In dollars.
    Money, MoneyUnits, "an amount of money", "2000 $", [("$", 1.0), ("USD", 1.0), ("k$", 1e3), ("M$", 1e6)];
    /// In dollars a kilowatt-hour.
    EnergyPrice, EnergyPriceUnits, "a price of energy", "0.10 $/kWh", [("$/kWh", 1.0), ("$/MWh", 1e-3)];
    /// In dollars a watt.
    PowerPrice, PowerPriceUnits, "a price of power", "10 $/W", [("$/W", 1.0), ("$/kW", 1e-3), ("$/MW", 1e-6)];
    /// In seconds; a year has 365 days.
    Duration, DurationUnits, "a duration", "3 years",
        [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", HOUR), ("hours", HOUR), ("day", DAY), ("days", DAY),
         ("year", 365.0 * DAY), ("years", 365.0 * DAY)];
    /// In hertz.
    Frequency, FrequencyUnits, "a frequency", "1 GHz", [("Hz", 1.0), ("kHz", 1e3), ("MHz", 1e6), ("GHz", 1e9)];
    /// In volts.
    Voltage, VoltageUnits, "a voltage", "4 V", [("mV", 1e-3), ("V", 1.0)];
    /// In ampere-hours.
    Charge, ChargeUnits, "a charge", "15 mAh", [("mAh", 1e-3), ("Ah", 1.0)];
    /// In degrees Fahrenheit, as the models of cooling are published; degrees Celsius are converted.
    Temperature, TemperatureUnits, "a temperature", "65 F", [("F", 1.0), ("C", 1.8)], from -459.67, offset [("C", 32.0)];
    /// In cubic feet a minute.
    AirFlow, AirFlowUnits, "a flow of air", "45 CFM", [("CFM", 1.0), ("m3/h", 1.0 / 1.699_010_795_52)];
    /// In per cent; may be below 0 (fewer than needed) where the field says so.
    Percent, PercentUnits, "a percentage", "20 %", [("%", 1.0)], from -100.0;
}

#[cfg(test)]
#[path = "quantity_test.rs"]
mod quantity_test;
