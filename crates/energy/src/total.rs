//! Which meters make the machine's total, so that nothing is counted twice.

use crate::meter::{Covers, MeterInfo, MeterKind};
use tierstone_base::{Error, ErrorKind, Result};

/// The meters of a total.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Their numbers in the list; none: there is no measured total.
    pub lanes: Vec<usize>,
    /// What the total covers, in words.
    pub covers: String,
}

/// Chooses among `meters`. Names in `asked` are taken as they are, in this order of trust where there are none: the
/// user's command, the board's controller, a battery, the platform's counter (`psys`), each for the whole machine;
/// else packages, memory and accelerators together.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] when `asked` names a meter that is not there.
pub fn choose(meters: &[MeterInfo], asked: &[String]) -> Result<Chosen> {
    if !asked.is_empty() {
        return by_name(meters, asked);
    }
    let of = |wanted: &dyn Fn(&MeterInfo) -> bool| -> Vec<usize> {
        meters.iter().enumerate().filter(|(_, info)| wanted(info)).map(|(lane, _)| lane).collect()
    };
    let systems = [MeterKind::Command, MeterKind::Ipmi, MeterKind::Battery, MeterKind::Rapl];
    for kind in systems {
        let mut lanes = of(&|info| info.covers == Covers::System && info.kind == kind);
        // Several batteries share the load; of anything else one tells the whole.
        if kind != MeterKind::Battery {
            lanes.truncate(1);
        }
        if !lanes.is_empty() {
            return Ok(Chosen { lanes, covers: "the whole machine, as this meter sees it".into() });
        }
    }
    let lanes = of(&|info| matches!(info.covers, Covers::Package | Covers::Memory | Covers::Accelerator));
    let covers = if lanes.is_empty() {
        "nothing: no meter of which it is known what it covers".into()
    } else {
        "processors, memory and accelerators that have meters; not disks, fans, board and power supply".into()
    };
    Ok(Chosen { lanes, covers })
}

fn by_name(meters: &[MeterInfo], asked: &[String]) -> Result<Chosen> {
    let mut lanes = Vec::new();
    for name in asked {
        let Some(lane) = meters.iter().position(|info| info.name == *name) else {
            let known: Vec<&str> = meters.iter().map(|info| info.name.as_str()).collect();
            let known = if known.is_empty() { "there is none".to_owned() } else { known.join(", ") };
            let message = format!("no meter is named '{name}'; there are: {known}");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        };
        if !lanes.contains(&lane) {
            lanes.push(lane);
        }
    }
    Ok(Chosen { lanes, covers: "the meters that were asked for".into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: &str, kind: MeterKind, covers: Covers) -> MeterInfo {
        MeterInfo {
            name: name.into(),
            kind,
            covers,
            step: 1,
            step_source: "test",
            refresh_us: 1,
            wraps_at_uj: None,
            power_max_uw: u64::MAX,
        }
    }

    #[test]
    fn parts_and_unknown_sensors_are_never_added_unasked() {
        let meters = [
            info("package", MeterKind::Rapl, Covers::Package),
            info("core", MeterKind::Rapl, Covers::Part),
            info("dram", MeterKind::Rapl, Covers::Memory),
            info("rail", MeterKind::Hwmon, Covers::Unknown),
            info("gpu", MeterKind::Nvidia, Covers::Accelerator),
        ];
        assert_eq!(choose(&meters, &[]).unwrap().lanes, [0, 2, 4]);
        assert_eq!(choose(&meters, &["rail".into()]).unwrap().lanes, [3]);
        assert_eq!(choose(&meters[3..4], &[]).unwrap().lanes, [0; 0]);
        let error = choose(&meters, &["wall".into()]).unwrap_err();
        assert!(error.message().contains("there are: package, core"), "{error}");
    }

    #[test]
    fn a_meter_of_the_whole_machine_stands_alone() {
        let meters = [
            info("package", MeterKind::Rapl, Covers::Package),
            info("psys", MeterKind::Rapl, Covers::System),
            info("BAT0", MeterKind::Battery, Covers::System),
            info("BAT1", MeterKind::Battery, Covers::System),
            info("ipmitool", MeterKind::Ipmi, Covers::System),
        ];
        assert_eq!(choose(&meters, &[]).unwrap().lanes, [4]);
        assert_eq!(choose(&meters[..4], &[]).unwrap().lanes, [2, 3]);
        assert_eq!(choose(&meters[..2], &[]).unwrap().lanes, [1]);
    }
}
