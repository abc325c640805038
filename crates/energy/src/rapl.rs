//! RAPL: the energy counters of processors, as the powercap tree shows them (`energy_uj` of each zone).
//!
//! A zone `intel-rapl:0` is a package (or `psys`, the platform), `intel-rapl:0:1` a part of it: `core` and `uncore`
//! lie within the package's counter, `dram` beside it. AMD's processors appear under the same names.

use crate::discover::Absent;
use crate::meter::{Covers, Fault, FaultKind, Meter, MeterInfo, MeterKind, Reading};
use crate::sysfs;
use std::path::{Path, PathBuf};

/// Where zones lie, below the root.
const ZONES: &str = "sys/class/powercap";
/// The default energy unit of the counters, 2^-14 J, in microjoules.
const STEP_UJ: u64 = 61;
/// The counters move about every millisecond.
const REFRESH_US: u64 = 1_000;
/// What a zone is trusted with at most where it does not say, in microwatts: no processor package draws more.
const POWER_MAX_UW: u64 = 1_000_000_000;

/// One zone.
#[derive(Debug)]
pub struct RaplMeter {
    info: MeterInfo,
    counter: PathBuf,
}

impl Meter for RaplMeter {
    fn info(&self) -> &MeterInfo {
        &self.info
    }

    fn read(&mut self, _: u64) -> Result<Option<Reading>, Fault> {
        sysfs::number(&self.counter).map(|uj| Some(Reading::Counter { uj }))
    }
}

/// The zones below `root`, and what is missing.
pub fn find(root: &Path, absent: &mut Vec<Absent>) -> Vec<RaplMeter> {
    let folder = root.join(ZONES);
    let is_zone = |path: &PathBuf| path.join("energy_uj").exists();
    let zones: Vec<PathBuf> = sysfs::entries(&folder).into_iter().filter(is_zone).collect();
    if zones.is_empty() {
        let why = if folder.exists() {
            "no zone with a counter: load the module intel_rapl_common or intel_rapl_msr"
        } else {
            "no powercap tree: a virtual machine, a kernel without CONFIG_POWERCAP, or a processor without counters"
        };
        absent.push(Absent::new(MeterKind::Rapl, ZONES, why));
    }
    let mut meters = Vec::new();
    for zone in zones {
        match open(&zone) {
            Ok(meter) => meters.push(meter),
            Err(fault) => {
                let advice = match fault.kind {
                    FaultKind::Denied => "; run as root, or let an administrator allow reading energy_uj",
                    _ => "",
                };
                absent.push(Absent::new(
                    MeterKind::Rapl,
                    &sysfs::name(&zone),
                    format!("{}{advice}", fault.why),
                ));
            }
        }
    }
    meters
}

/// A meter for `zone`, if it can be read now.
fn open(zone: &Path) -> Result<RaplMeter, Fault> {
    let counter = zone.join("energy_uj");
    sysfs::number(&counter)?;
    let (id, name) = (sysfs::name(zone), sysfs::text(&zone.join("name")).unwrap_or_default());
    let covers = match name.split('-').next().unwrap_or_default() {
        // The same package once more, by another way of the processor's.
        _ if id.starts_with("intel-rapl-mmio") => Covers::Part,
        "package" => Covers::Package,
        "psys" => Covers::System,
        "dram" => Covers::Memory,
        "core" | "uncore" => Covers::Part,
        _ => Covers::Unknown,
    };
    let limits = sysfs::entries(zone).into_iter().filter(|path| {
        let name = sysfs::name(path);
        name.starts_with("constraint_") && name.ends_with("_max_power_uw")
    });
    // Peaks may pass the sustained limit; four times it tells a wrap from a counter that began anew all the same.
    let limit = limits.filter_map(|path| sysfs::number(&path).ok()).max().filter(|&limit| limit > 0);
    let info = MeterInfo {
        name: format!("rapl:{id}:{name}"),
        kind: MeterKind::Rapl,
        covers,
        step: STEP_UJ,
        step_source: "the counters' default unit, 2^-14 J (published by the maker)",
        refresh_us: REFRESH_US,
        wraps_at_uj: sysfs::number(&zone.join("max_energy_range_uj")).ok().filter(|&range| range > 0),
        power_max_uw: limit.map_or(POWER_MAX_UW, |limit| limit.saturating_mul(4)),
    };
    Ok(RaplMeter { info, counter })
}
