use super::*;
use crate::meter::{FaultKind, Reading};
use std::os::unix::fs::PermissionsExt;

/// A machine of one's own, removed at the end.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Machine {
        let root = std::env::temp_dir().join(format!("tierstone-energy-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        Machine(root)
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }

    fn program(&self, name: &str, script: &str) {
        self.put(&format!("bin/{name}"), &format!("#!/bin/sh\n{script}"));
        let path = self.0.join("bin").join(name);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn find(&self) -> Found {
        let programs = Some(self.0.join("bin").into_os_string());
        discover(&Places { root: self.0.clone(), ..Places::machine(programs) })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn zone(machine: &Machine, id: &str, name: &str, uj: u64) {
    machine.put(&format!("sys/class/powercap/{id}/name"), name);
    machine.put(&format!("sys/class/powercap/{id}/energy_uj"), &uj.to_string());
    machine.put(&format!("sys/class/powercap/{id}/max_energy_range_uj"), "262143328850");
}

fn names(found: &Found) -> Vec<(&str, Covers)> {
    found.meters.iter().map(|meter| (meter.info().name.as_str(), meter.info().covers)).collect()
}

fn why(found: &Found, kind: MeterKind) -> &str {
    &found.absent.iter().find(|absent| absent.kind == kind).unwrap().why
}

#[test]
fn a_machine_without_meters_says_so_of_each_way() {
    let machine = Machine::new("bare");
    let found = machine.find();
    assert!(found.meters.is_empty());
    let kinds: Vec<MeterKind> = found.absent.iter().map(|absent| absent.kind).collect();
    use MeterKind::*;
    assert_eq!(kinds, [Rapl, Hwmon, Battery, Nvidia, Ipmi, Command]);
}

#[test]
fn zones_are_told_apart_by_what_they_cover() {
    let machine = Machine::new("zones");
    zone(&machine, "intel-rapl:0", "package-0", 10);
    zone(&machine, "intel-rapl:0:0", "core", 5);
    zone(&machine, "intel-rapl:0:1", "dram", 3);
    zone(&machine, "intel-rapl:1", "psys", 30);
    zone(&machine, "intel-rapl-mmio:0", "package-0", 10);
    machine.put("sys/class/powercap/intel-rapl:0/constraint_0_max_power_uw", "125000000");
    machine.put("sys/class/powercap/intel-rapl/enabled", "1");
    let mut found = machine.find();
    assert_eq!(
        names(&found),
        [
            ("rapl:intel-rapl-mmio:0:package-0", Covers::Part),
            ("rapl:intel-rapl:0:package-0", Covers::Package),
            ("rapl:intel-rapl:0:0:core", Covers::Part),
            ("rapl:intel-rapl:0:1:dram", Covers::Memory),
            ("rapl:intel-rapl:1:psys", Covers::System),
        ]
    );
    assert_eq!(found.meters[1].info().wraps_at_uj, Some(262_143_328_850));
    assert_eq!(found.meters[1].info().power_max_uw, 500_000_000);
    assert_eq!(found.meters[1].read(0), Ok(Some(Reading::Counter { uj: 10 })));
    std::fs::remove_dir_all(machine.0.join("sys/class/powercap/intel-rapl:0")).unwrap();
    assert_eq!(found.meters[1].read(0).unwrap_err().kind, FaultKind::Gone);
    zone(&machine, "intel-rapl:0", "package-0", 11);
    assert_eq!(found.meters[1].read(0), Ok(Some(Reading::Counter { uj: 11 })));
    machine.put("sys/class/powercap/intel-rapl:0/energy_uj", "a lot");
    assert_eq!(found.meters[1].read(0).unwrap_err().kind, FaultKind::Rubbish);
}

#[test]
fn a_counter_that_only_root_may_read_comes_with_advice() {
    let machine = Machine::new("denied");
    zone(&machine, "intel-rapl:0", "package-0", 10);
    let counter = machine.0.join("sys/class/powercap/intel-rapl:0/energy_uj");
    std::fs::set_permissions(&counter, std::fs::Permissions::from_mode(0o000)).unwrap();
    // Root reads it all the same.
    if std::fs::read(&counter).is_ok() {
        return;
    }
    let found = machine.find();
    assert!(found.meters.is_empty());
    assert!(why(&found, MeterKind::Rapl).contains("run as root"), "{found:?}");
}

#[test]
fn sensors_have_the_names_of_their_chips_and_labels() {
    let machine = Machine::new("sensors");
    machine.put("sys/class/hwmon/hwmon0/name", "coretemp");
    machine.put("sys/class/hwmon/hwmon0/temp1_input", "40000");
    assert!(why(&machine.find(), MeterKind::Hwmon).contains("none of which measures"));
    machine.put("sys/class/hwmon/hwmon1/name", "amd_energy");
    machine.put("sys/class/hwmon/hwmon1/energy1_input", "12345");
    machine.put("sys/class/hwmon/hwmon1/energy1_label", "Esocket0");
    machine.put("sys/class/hwmon/hwmon2/name", "power_meter");
    machine.put("sys/class/hwmon/hwmon2/power1_average", "98000000");
    machine.put("sys/class/hwmon/hwmon2/power1_average_interval", "1000");
    machine.put("sys/class/hwmon/hwmon2/power2_input", "5000000");
    machine.put("sys/class/hwmon/hwmon2/power2_average", "4000000");
    machine.put("sys/class/hwmon/hwmon2/powered_input", "4000000");
    let mut found = machine.find();
    assert_eq!(
        names(&found),
        [
            ("hwmon:hwmon1:amd_energy:Esocket0", Covers::Unknown),
            ("hwmon:hwmon2:power_meter:power1", Covers::Unknown),
            ("hwmon:hwmon2:power_meter:power2", Covers::Unknown),
        ]
    );
    let readings: Vec<_> = found.meters.iter_mut().map(|meter| meter.read(0).unwrap().unwrap()).collect();
    let expected = [
        Reading::Counter { uj: 12_345 },
        Reading::Power { uw: 98_000_000 },
        Reading::Power { uw: 5_000_000 },
    ];
    assert_eq!(readings, expected);
}

#[test]
fn batteries_are_read_by_the_best_way_they_offer() {
    let machine = Machine::new("batteries");
    let put = |name: &str, file: &str, text: &str| {
        machine.put(&format!("sys/class/power_supply/{name}/{file}"), text)
    };
    for name in ["BAT0", "BAT1", "BAT2", "BAT3", "BAT4", "BAT5", "mouse"] {
        put(name, "type", "Battery");
        put(name, "status", "Discharging");
    }
    put("AC", "type", "Mains");
    put("mouse", "scope", "Device");
    put("mouse", "power_now", "1");
    put("BAT0", "power_now", "9000000");
    put("BAT1", "current_now", "-2000000");
    put("BAT1", "voltage_now", "4000000");
    put("BAT2", "energy_now", "50000000");
    put("BAT3", "charge_now", "1500000");
    put("BAT3", "voltage_now", "4000000");
    // The phone of the method: 1500 mAh at 4 V, so one per cent is 60 mWh.
    put("BAT4", "capacity", "80");
    put("BAT4", "charge_full", "1500000");
    put("BAT4", "voltage_min_design", "4000000");
    let mut found = machine.find();
    assert_eq!(found.meters.len(), 5);
    let readings: Vec<_> = found.meters.iter_mut().map(|meter| meter.read(0).unwrap().unwrap()).collect();
    let expected = [
        Reading::Power { uw: 9_000_000 },
        Reading::Power { uw: 8_000_000 },
        Reading::Stored { uj: 180_000_000_000 },
        Reading::Charge { uah: 1_500_000, uv: 4_000_000 },
        Reading::Stored { uj: 80 * 216_000_000 },
    ];
    assert_eq!(readings, expected);
    assert_eq!(found.meters[4].info().step, 216_000_000);
    assert_eq!(found.absent.iter().filter(|absent| absent.kind == MeterKind::Battery).count(), 2);
    put("BAT0", "status", "Charging");
    assert_eq!(found.meters[0].read(0).unwrap_err().kind, FaultKind::NotNow);
}

#[test]
fn tools_are_run_where_device_and_program_are() {
    let machine = Machine::new("tools");
    machine.put("dev/ipmi0", "");
    machine.put("dev/nvidiactl", "");
    assert!(why(&machine.find(), MeterKind::Nvidia).contains("install it"));
    machine.program("nvidia-smi", "[ \"$1\" = --query-gpu=index,power.draw ] && echo 0, 68.21");
    machine.program("ipmitool", "echo 'Instantaneous power reading: 220 Watts'");
    let found = machine.find();
    assert_eq!(names(&found), [("nvidia-smi", Covers::Accelerator), ("ipmitool", Covers::System)]);
    let none = discover(&Places { root: machine.0.clone(), ..Places::machine(None) });
    assert!(none.meters.is_empty());
    assert!(why(&none, MeterKind::Nvidia).contains("not run here"));
}
