//! Models that ship: published figures, and how constants follow from them. None was measured here.

use crate::model::{Constant, EnergyModel};
use tierstone_base::{Error, ErrorKind, Result};

/// The names of all of them; the first is the default.
pub const NAMES: [&str; 3] = ["cloud", "desktop-2009", "atom-2009"];

/// The model of that name.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for another name.
pub fn named(name: &str) -> Result<EnergyModel> {
    match name {
        "cloud" => Ok(cloud()),
        "desktop-2009" => Ok(of_fawn(name, "i7-860 desktop, 4 cores", (40.0, 130.0, 4.0))),
        "atom-2009" => Ok(of_fawn(name, "dual-core Atom, 2 cores", (18.0, 29.0, 2.0))),
        _ => {
            let message = format!("no model is named '{name}'; there are: {}", NAMES.join(", "));
            Err(Error::new(ErrorKind::InvalidInput, message))
        }
    }
}

fn constant(value: f64, source: impl Into<String>) -> Constant {
    Constant { value, source: source.into() }
}

/// A virtual processor of a large provider, as an average over its machines, and a flash device of 2020.
fn cloud() -> EnergyModel {
    let vcpu = "Cloud Carbon Footprint, Methodology, AWS averages from SPECpower: 0.74 W idle, 3.5 W busy a virtual processor";
    // The form factor's limit over the rates that the maker states: above what the device takes, and its bytes
    // count besides its operations.
    let device = |what: &str, rate: &str| {
        format!(
            "Samsung PM9A3 E1.S as announced in 2020: 12 W limit of the form factor over {rate} {what}; an upper bound"
        )
    };
    EnergyModel {
        name: "cloud".into(),
        idle_per_processor: constant(0.74, vcpu),
        cpu_second: constant(3.5 - 0.74, format!("{vcpu}; the difference")),
        read: constant(12.0 / 900e3, device("random reads a second", "900,000")),
        write: constant(12.0 / 150e3, device("random writes a second", "150,000")),
        flush: constant(0.0, "no published figure; counted as nothing"),
        byte_read: constant(12.0 / 6.5e9, device("bytes a second read", "6.5e9")),
        byte_written: constant(12.0 / 3.2e9, device("bytes a second written", "3.2e9")),
    }
}

/// Machines and flash of the FAWN study; figures as in Vasudevan's thesis (2011), chapters on cost and workloads.
fn of_fawn(name: &str, machine: &str, (idle, full, cores): (f64, f64, f64)) -> EnergyModel {
    let source = format!("Vasudevan 2011, workload study: {machine}, {idle} W idle, {full} W full");
    let flash = "Vasudevan 2011, cost model: SATA flash of 2 W";
    EnergyModel {
        name: name.to_owned(),
        idle_per_processor: constant(idle / cores, format!("{source}; idle over cores")),
        cpu_second: constant((full - idle) / cores, format!("{source}; the difference over cores")),
        read: constant(2.0 / 35e3, format!("{flash} at 35,000 reads a second")),
        write: constant(0.0, "no published figure of small writes; their bytes are counted"),
        flush: constant(0.0, "no published figure; counted as nothing"),
        byte_read: constant(2.0 / 250e6, format!("{flash}; X25-E at 250 MB/s (sort study)")),
        byte_written: constant(
            2.0 / 250e6,
            format!("{flash}; X25-E at 250 MB/s (sort study), taken for writes too"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_constant_has_a_source_and_is_a_number() {
        for name in NAMES {
            let model = named(name).unwrap();
            assert_eq!(model.name, name);
            for (constant, _, of) in model.constants() {
                assert!(of.value.is_finite() && of.value >= 0.0, "{name} {constant}");
                assert!(!of.source.is_empty(), "{name} {constant}");
                assert!(of.value > 0.0 || of.source.contains("no published"), "{name} {constant}");
            }
        }
        assert!(named("abacus").unwrap_err().message().contains("cloud"));
    }
}
