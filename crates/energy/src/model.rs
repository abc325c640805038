//! Joules where no meter is: from time, processor time and device operations, by constants with a source each.
//!
//! `E = idle · processors · seconds + cpu · cpu_seconds + reads · J + bytes read · J + ...`. The result is
//! [`crate::Label::Modelled`] and no more than the constants are. What it leaves out: memory, network, fans, losses of
//! the power supply, the clock at which processors ran.

use serde::{Deserialize, Serialize};
use tierstone_base::{Error, ErrorKind, Result};

/// One constant of a model, in watts or joules, and who says so.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Constant {
    /// Watts, or joules.
    pub value: f64,
    /// Where it comes from, and how it was derived.
    pub source: String,
}

/// What was done, as counters tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Work {
    /// Seconds that passed.
    pub seconds: f64,
    /// Processors of the machine.
    pub processors: f64,
    /// Seconds of processor time.
    pub cpu_seconds: f64,
    /// Reads of devices.
    pub reads: u64,
    /// Writes to devices.
    pub writes: u64,
    /// Flushes of devices.
    pub flushes: u64,
    /// Bytes read from devices.
    pub bytes_read: u64,
    /// Bytes written to devices.
    pub bytes_written: u64,
}

/// A machine and its devices, as constants.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EnergyModel {
    /// Its name.
    pub name: String,
    /// Power of an idle machine for each of its processors, in watts.
    pub idle_per_processor: Constant,
    /// Energy of a second of processor time above idle, in joules.
    pub cpu_second: Constant,
    /// Energy of a device read besides its bytes, in joules.
    pub read: Constant,
    /// Energy of a device write besides its bytes, in joules.
    pub write: Constant,
    /// Energy of a device flush, in joules.
    pub flush: Constant,
    /// Energy of a byte read, in joules.
    pub byte_read: Constant,
    /// Energy of a byte written, in joules.
    pub byte_written: Constant,
}

/// Joules by cause; each is modelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Modelled {
    /// Of the idle machine, for the time that passed.
    pub idle: f64,
    /// Of processor time, above idle.
    pub cpu: f64,
    /// Of device reads, bytes included.
    pub reads: f64,
    /// Of device writes, bytes included.
    pub writes: f64,
    /// Of device flushes.
    pub flushes: f64,
}

impl Modelled {
    /// What the work took: everything but idle.
    pub fn active(&self) -> f64 {
        self.cpu + self.device()
    }

    /// What devices took.
    pub fn device(&self) -> f64 {
        self.reads + self.writes + self.flushes
    }

    /// Everything.
    pub fn total(&self) -> f64 {
        self.idle + self.active()
    }
}

impl EnergyModel {
    /// The joules of `work`. Cost: a dozen multiplications.
    pub fn joules(&self, work: &Work) -> Modelled {
        Modelled {
            idle: self.idle_per_processor.value * work.processors * work.seconds,
            cpu: self.cpu_second.value * work.cpu_seconds,
            reads: self.read.value * work.reads as f64 + self.byte_read.value * work.bytes_read as f64,
            writes: self.write.value * work.writes as f64
                + self.byte_written.value * work.bytes_written as f64,
            flushes: self.flush.value * work.flushes as f64,
        }
    }

    /// The constants with their names and units, for output.
    pub fn constants(&self) -> [(&'static str, &'static str, &Constant); 7] {
        [
            ("idle_per_processor", "W", &self.idle_per_processor),
            ("cpu_second", "J", &self.cpu_second),
            ("read", "J", &self.read),
            ("write", "J", &self.write),
            ("flush", "J", &self.flush),
            ("byte_read", "J", &self.byte_read),
            ("byte_written", "J", &self.byte_written),
        ]
    }
}

/// A model as a file describes it: each constant with its unit and its source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// In units of power.
    pub idle_per_processor: Quantity,
    /// In units of energy, as all that follow.
    pub cpu_second: Quantity,
    /// A device read besides its bytes.
    pub read: Quantity,
    /// A device write besides its bytes.
    pub write: Quantity,
    /// A device flush.
    pub flush: Quantity,
    /// A byte read.
    pub byte_read: Quantity,
    /// A byte written.
    pub byte_written: Quantity,
}

/// A number with a unit and a source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantity {
    /// The number.
    pub value: f64,
    /// `W` or `mW` of power; `J`, `mJ`, `uJ`, `nJ` or `pJ` of energy.
    pub unit: String,
    /// Who says so.
    pub source: String,
}

const POWER_UNITS: [(&str, f64); 2] = [("W", 1.0), ("mW", 1e-3)];
const ENERGY_UNITS: [(&str, f64); 5] = [("J", 1.0), ("mJ", 1e-3), ("uJ", 1e-6), ("nJ", 1e-9), ("pJ", 1e-12)];

impl Description {
    /// The model.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a unit that does not fit, a number that is negative or not finite, and a
    /// constant without a source.
    pub fn model(self) -> Result<EnergyModel> {
        Ok(EnergyModel {
            idle_per_processor: constant("idle_per_processor", self.idle_per_processor, &POWER_UNITS)?,
            cpu_second: constant("cpu_second", self.cpu_second, &ENERGY_UNITS)?,
            read: constant("read", self.read, &ENERGY_UNITS)?,
            write: constant("write", self.write, &ENERGY_UNITS)?,
            flush: constant("flush", self.flush, &ENERGY_UNITS)?,
            byte_read: constant("byte_read", self.byte_read, &ENERGY_UNITS)?,
            byte_written: constant("byte_written", self.byte_written, &ENERGY_UNITS)?,
            name: self.name,
        })
    }
}

fn constant(name: &str, quantity: Quantity, units: &[(&str, f64)]) -> Result<Constant> {
    let refuse = |what: String| Err(Error::new(ErrorKind::InvalidInput, format!("{name}: {what}")));
    let Some((_, factor)) = units.iter().find(|(unit, _)| *unit == quantity.unit) else {
        let known: Vec<&str> = units.iter().map(|(unit, _)| *unit).collect();
        return refuse(format!("unit '{}'; write {}", quantity.unit, known.join(", ")));
    };
    if !quantity.value.is_finite() || quantity.value < 0.0 {
        return refuse(format!("{} is no power or energy", quantity.value));
    }
    if quantity.source.trim().is_empty() {
        return refuse("has no source; say where the number comes from".into());
    }
    Ok(Constant { value: quantity.value * factor, source: quantity.source })
}

#[cfg(test)]
#[path = "model_test.rs"]
mod model_test;
