//! Sensors of the hwmon tree: `energyN_input` in microjoules, `powerN_input` or `powerN_average` in microwatts.
//!
//! What a sensor covers (a rail, a power supply, a package) only its maker knows, so they are shown by name and
//! label, and added up only where the user says so.

use crate::discover::Absent;
use crate::meter::{Covers, Fault, Meter, MeterInfo, MeterKind, Reading};
use crate::sysfs;
use std::path::{Path, PathBuf};

/// Where devices lie, below the root.
const DEVICES: &str = "sys/class/hwmon";
/// Sensors are not asked more often than ten times a second: many are on a slow bus.
const REFRESH_US: u64 = 100_000;
/// What a sensor is trusted with at most, in microwatts.
const POWER_MAX_UW: u64 = 100_000_000_000;

/// One sensor.
#[derive(Debug)]
pub struct HwmonMeter {
    info: MeterInfo,
    file: PathBuf,
    is_energy: bool,
}

impl Meter for HwmonMeter {
    fn info(&self) -> &MeterInfo {
        &self.info
    }

    fn read(&mut self, _: u64) -> Result<Option<Reading>, Fault> {
        let value = sysfs::number(&self.file)?;
        Ok(Some(if self.is_energy { Reading::Counter { uj: value } } else { Reading::Power { uw: value } }))
    }
}

/// The sensors below `root`, and what is missing.
pub fn find(root: &Path, absent: &mut Vec<Absent>) -> Vec<HwmonMeter> {
    let devices = sysfs::entries(&root.join(DEVICES));
    let mut meters = Vec::new();
    let mut seen = 0;
    for device in &devices {
        for file in sysfs::entries(device) {
            let Some((sensor, is_energy)) = sensor_of(&file) else { continue };
            seen += 1;
            match open(device, &file, &sensor, is_energy) {
                Ok(meter) => meters.push(meter),
                Err(fault) => absent.push(Absent::new(MeterKind::Hwmon, &sensor, fault.why)),
            }
        }
    }
    if seen == 0 {
        let why = match devices.len() {
            0 => "no hwmon devices: a virtual machine, or no driver for the board's sensors".to_owned(),
            count => format!("{count} hwmon devices, none of which measures power or energy"),
        };
        absent.push(Absent::new(MeterKind::Hwmon, DEVICES, why));
    }
    meters
}

/// The sensor (`power1`) that a file gives, and whether it is energy. An average is taken only where there is no
/// input.
fn sensor_of(file: &Path) -> Option<(String, bool)> {
    let name = sysfs::name(file);
    let (sensor, what) = name.split_once('_')?;
    let numbered = |prefix: &str| {
        sensor
            .strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    let is_input =
        what == "input" || what == "average" && !file.with_file_name(format!("{sensor}_input")).exists();
    match is_input {
        true if numbered("energy") => Some((sensor.to_owned(), true)),
        true if numbered("power") => Some((sensor.to_owned(), false)),
        _ => None,
    }
}

fn open(device: &Path, file: &Path, sensor: &str, is_energy: bool) -> Result<HwmonMeter, Fault> {
    sysfs::number(file)?;
    let chip = sysfs::text(&device.join("name")).unwrap_or_default();
    let label = sysfs::text(&device.join(format!("{sensor}_label"))).unwrap_or_else(|_| sensor.to_owned());
    let info = MeterInfo {
        name: format!("hwmon:{}:{chip}:{label}", sysfs::name(device)),
        kind: MeterKind::Hwmon,
        covers: Covers::Unknown,
        step: 1,
        step_source: "the unit of the kernel's file; the sensor's own is coarser and not told",
        refresh_us: REFRESH_US,
        wraps_at_uj: None,
        power_max_uw: POWER_MAX_UW,
    };
    Ok(HwmonMeter { info, file: file.to_owned(), is_energy })
}
