//! Numbers of which another field says whether they have a unit: ends of sweeps, published values.

use super::{Dimension, Quantity};
use crate::field::refused;
use serde::Deserialize;
use tierstone_base::Result;

/// A number as a sweep or a published value gives it, with a unit or without; what it is of decides which of
/// both it must be.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Given {
    /// A number alone.
    Number(f64),
    /// A number with its unit.
    Text(String),
}

impl Given {
    /// The number of base units; `field` is named if it is none.
    ///
    /// # Errors
    /// `InvalidInput`: no unit, or a wrong one.
    pub fn quantity<D: Dimension>(&self, field: &str) -> Result<f64> {
        let read = match self {
            Given::Number(number) => Quantity::<D>::parse(&number.to_string()),
            Given::Text(text) => Quantity::<D>::parse(text),
        };
        read.map(Quantity::get).map_err(|error| error.context(&format!("`{field}`")))
    }

    /// The number, which must have no unit; `field` is named if it does.
    ///
    /// # Errors
    /// `InvalidInput`: text, or a number that is not finite.
    pub fn number(&self, field: &str) -> Result<f64> {
        match self {
            Given::Number(number) if number.is_finite() => Ok(*number),
            Given::Number(number) => Err(refused(format!("`{field}` is {number}"))),
            Given::Text(text) => {
                Err(refused(format!("`{field}` is \"{text}\", but must be a number without a unit")))
            }
        }
    }
}
