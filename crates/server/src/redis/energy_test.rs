use super::*;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// A machine with the tools' devices, and a folder of tools that are scripts.
struct Machine(PathBuf);

impl Machine {
    fn new() -> Machine {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name =
            format!("tierstone-meters-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let machine = Machine(std::env::temp_dir().join(name));
        for folder in ["dev", "bin"] {
            std::fs::create_dir_all(machine.0.join(folder)).unwrap();
        }
        for device in ["dev/ipmi0", "dev/nvidiactl"] {
            std::fs::write(machine.0.join(device), "").unwrap();
        }
        machine
    }

    /// A tool that runs `script`.
    fn tool(&self, name: &str, script: &str) {
        let path = self.0.join("bin").join(name);
        let new = path.with_extension("new");
        std::fs::write(&new, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(new, path).unwrap();
    }

    fn watch(&self) -> Arc<Watch> {
        let programs = Some(self.0.join("bin").into_os_string());
        watch(&EnergySettings { meters: Some(self.0.clone()), programs, ..EnergySettings::default() })
            .unwrap()
    }

    fn remove(&self, path: impl AsRef<Path>) {
        std::fs::remove_file(self.0.join(path)).unwrap();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What metrics say, once `is_so` of the meter of that name.
fn told_when(watch: &Watch, name: &str, is_so: impl Fn(&Standing) -> bool) -> String {
    while !watch.measured().iter().any(|(meter, standing)| *meter == name && is_so(standing)) {
        std::thread::yield_now();
    }
    let mut text = String::new();
    metrics(&mut text, watch, ProcessNumbers::default(), 1.0, std::iter::empty());
    text
}

#[test]
fn tools_are_read_when_they_are_asked_for_and_told_when_they_fail() {
    let machine = Machine::new();
    machine.tool("ipmitool", "echo '    Instantaneous power reading:                   200 Watts'");
    let ipmi = machine.watch();
    let text = told_when(&ipmi, "ipmitool", |standing| standing.covered_us > 0);
    assert!(text.contains("tierstone_energy_joules_total{label=\"measured\",meter=\"ipmitool\"} "), "{text}");
    assert!(text.contains("tierstone_energy_meter_faults_total{meter=\"ipmitool\"} 0\n"), "{text}");
    // It vanishes: what it measured stays, and the failure is told.
    machine.remove("bin/ipmitool");
    let text = told_when(&ipmi, "ipmitool", |standing| standing.faults > 0);
    assert!(!text.contains("tierstone_energy_meter_faults_total{meter=\"ipmitool\"} 0\n"), "{text}");
    drop(ipmi);

    machine.tool("nvidia-smi", "echo '0, bananas'");
    let text = told_when(&machine.watch(), "nvidia-smi", |standing| standing.faults > 0);
    assert!(text.contains("tierstone_energy_meter_covered_seconds{meter=\"nvidia-smi\"} 0\n"), "{text}");
}

#[test]
fn measured_joules_a_request_are_mean_power_for_all_the_time_and_left_out_where_little_is_covered() {
    let machine = Machine::new();
    machine.tool("ipmitool", "echo '    Instantaneous power reading:                   200 Watts'");
    let watch = machine.watch();
    told_when(&watch, "ipmitool", |standing| standing.covered_us > 0);
    let covered = watch.measured()[0].1.covered_us as f64 / 1e6;
    let told = |seconds: f64| {
        let shards = [3, 7].map(|requests| ShardSnapshot { requests, ..ShardSnapshot::default() });
        let mut text = String::new();
        metrics(&mut text, &watch, ProcessNumbers::default(), seconds, shards.iter());
        let start = "tierstone_energy_joules_per_request{label=\"measured\",part=\"all\"} ";
        let line = text.lines().find_map(|line| line.strip_prefix(start));
        line.map(|joules| joules.parse::<f64>().unwrap())
    };
    // Two thirds of the time are covered: 200 W for all of it, over ten requests.
    let seconds = covered * 1.5;
    let joules = told(seconds).unwrap();
    assert!((joules - 200.0 * seconds / 10.0).abs() < joules * 1e-6, "{joules} in {seconds} s");
    assert_eq!(told(covered * 1e6), None, "what is covered says little of all the time");
}

#[test]
fn without_a_setting_no_tool_is_run_and_one_without_meters_is_refused() {
    let machine = Machine::new();
    machine.tool("ipmitool", "echo '    Instantaneous power reading:                   200 Watts'");
    let settings = EnergySettings { meters: Some(machine.0.clone()), ..EnergySettings::default() };
    assert!(watch(&settings).unwrap().measured().is_empty());
    let refused = watch(&EnergySettings { meters: None, command: Some("echo 1 W".into()), ..settings });
    assert!(refused.unwrap_err().message().contains("energy-meters"));
}
