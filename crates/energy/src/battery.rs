//! Batteries as meters: what leaves them while they carry the load (the method by which phones were profiled,
//! `docs/design/energy.md`). Charged, or full on the mains, a battery measures nothing, and says so.
//!
//! By the best that the driver offers: power, current and voltage, energy left, charge left and voltage, or the
//! level in whole per cent of a known capacity. The step of the last is large and stated.

use crate::discover::Absent;
use crate::meter::{Covers, Fault, FaultKind, Meter, MeterInfo, MeterKind, Reading};
use crate::sysfs;
use std::path::{Path, PathBuf};

/// Where supplies lie, below the root.
const SUPPLIES: &str = "sys/class/power_supply";
/// Fuel gauges change about once a second.
const REFRESH_US: u64 = 1_000_000;
/// No battery of a machine gives more, in microwatts.
const POWER_MAX_UW: u64 = 10_000_000_000;
/// Microjoules in a microwatt-hour.
const UJ_IN_UWH: u64 = 3_600;

/// By which files a battery is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Power,
    Current,
    Energy,
    Charge,
    /// The level, in parts of so many microjoules.
    Level {
        percent_uj: u64,
    },
}

/// One battery.
#[derive(Debug)]
pub struct BatteryMeter {
    info: MeterInfo,
    supply: PathBuf,
    way: Way,
}

impl BatteryMeter {
    fn number(&self, file: &str) -> Result<u64, Fault> {
        magnitude(&self.supply.join(file))
    }
}

/// A whole number without its sign: some drivers give the current out of the battery as negative.
fn magnitude(path: &Path) -> Result<u64, Fault> {
    let text = sysfs::text(path)?;
    let number: i64 = text.parse().map_err(|_| {
        Fault::new(FaultKind::Rubbish, format!("{}: '{text:.40}' is no whole number", path.display()))
    })?;
    Ok(number.unsigned_abs())
}

impl Meter for BatteryMeter {
    fn info(&self) -> &MeterInfo {
        &self.info
    }

    fn read(&mut self, _: u64) -> Result<Option<Reading>, Fault> {
        let status = sysfs::text(&self.supply.join("status"))?;
        if status != "Discharging" {
            let why = format!("{}: '{status:.40}', so it does not carry the load", self.supply.display());
            return Err(Fault::new(FaultKind::NotNow, why));
        }
        Ok(Some(match self.way {
            Way::Power => Reading::Power { uw: self.number("power_now")? },
            Way::Current => {
                let (ua, uv) = (self.number("current_now")?, self.number("voltage_now")?);
                Reading::Power { uw: (u128::from(ua) * u128::from(uv) / 1_000_000) as u64 }
            }
            Way::Energy => Reading::Stored { uj: self.number("energy_now")?.saturating_mul(UJ_IN_UWH) },
            Way::Charge => {
                Reading::Charge { uah: self.number("charge_now")?, uv: self.number("voltage_now")? }
            }
            Way::Level { percent_uj } => {
                Reading::Stored { uj: self.number("capacity")?.saturating_mul(percent_uj) }
            }
        }))
    }
}

/// The batteries below `root`, and what is missing.
pub fn find(root: &Path, absent: &mut Vec<Absent>) -> Vec<BatteryMeter> {
    let supplies = sysfs::entries(&root.join(SUPPLIES));
    let is_battery = |path: &&PathBuf| sysfs::text(&path.join("type")).is_ok_and(|kind| kind == "Battery");
    let batteries: Vec<&PathBuf> = supplies.iter().filter(is_battery).collect();
    if batteries.is_empty() {
        absent.push(Absent::new(MeterKind::Battery, SUPPLIES, "no battery"));
    }
    let mut meters = Vec::new();
    for supply in batteries {
        let mut refuse =
            |why: String| absent.push(Absent::new(MeterKind::Battery, &sysfs::name(supply), why));
        // A mouse's battery does not carry the machine.
        if sysfs::text(&supply.join("scope")).is_ok_and(|scope| scope == "Device") {
            refuse("the battery of a device beside the machine".into());
            continue;
        }
        match way_of(supply) {
            Some((way, step, step_source)) => meters.push(open(supply, way, step, step_source)),
            None => refuse(
                "gives neither power, current, energy nor charge, and no level of a known capacity".into(),
            ),
        }
    }
    meters
}

/// The best way to read `supply`, its step and who says so.
fn way_of(supply: &Path) -> Option<(Way, u64, &'static str)> {
    let number = |file: &str| magnitude(&supply.join(file)).ok();
    let unit = "the unit of the kernel's file; the gauge's own is coarser and not told";
    if number("power_now").is_some_and(|uw| uw > 0) {
        return Some((Way::Power, 1, unit));
    }
    if number("current_now").is_some_and(|ua| ua > 0) && number("voltage_now").is_some() {
        return Some((Way::Current, 1, unit));
    }
    if number("energy_now").is_some() {
        return Some((Way::Energy, UJ_IN_UWH, unit));
    }
    if let (Some(_), Some(uv)) = (number("charge_now"), number("voltage_now")) {
        return Some((Way::Charge, (uv * UJ_IN_UWH / 1_000_000).max(1), unit));
    }
    number("capacity")?;
    let full_uwh = number("energy_full").or_else(|| number("energy_full_design")).or_else(|| {
        let uah = number("charge_full").or_else(|| number("charge_full_design"))?;
        let uv = number("voltage_now").or_else(|| number("voltage_min_design"))?;
        Some((u128::from(uah) * u128::from(uv) / 1_000_000) as u64)
    })?;
    let percent_uj = full_uwh.saturating_mul(UJ_IN_UWH) / 100;
    Some((Way::Level { percent_uj }, percent_uj, "one per cent of the battery's capacity"))
}

fn open(supply: &Path, way: Way, step: u64, step_source: &'static str) -> BatteryMeter {
    let info = MeterInfo {
        name: format!("battery:{}", sysfs::name(supply)),
        kind: MeterKind::Battery,
        covers: Covers::System,
        step,
        step_source,
        refresh_us: REFRESH_US,
        wraps_at_uj: None,
        power_max_uw: POWER_MAX_UW,
    };
    BatteryMeter { info, supply: supply.to_owned(), way }
}
