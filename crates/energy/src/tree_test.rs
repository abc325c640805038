//! Meters of synthetic trees, from their files to joules: wraps, files that vanish and come back, batteries that are
//! charged, clocks of processors that are taken out.

use crate::cpufreq::Residency;
use crate::discover::{Places, discover};
use crate::meter::FaultKind;
use crate::sampler::{LaneReport, Sampler, SamplerSettings};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use tierstone_base::{Clock, Now};

const SECOND: u64 = 1_000_000;

/// A tree of one's own, removed at the end.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Tree {
        let root = std::env::temp_dir().join(format!("tierstone-tree-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        Tree(root)
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }

    fn remove(&self, path: &str) {
        std::fs::remove_file(self.0.join(path)).unwrap();
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[derive(Default)]
struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn now(&self) -> Now {
        Now { monotonic_us: self.0.load(Ordering::Relaxed), wall_ms: 0 }
    }
}

/// The only meter of `root`, asked once a second from second 0; before each answer `happens` changes the tree.
fn recorded(root: &Path, seconds: u64, mut happens: impl FnMut(u64)) -> LaneReport {
    happens(0);
    let found = discover(&Places { root: root.to_owned(), ..Places::machine(None) });
    assert_eq!(found.meters.len(), 1, "{found:?}");
    let clock = TestClock::default();
    let settings = SamplerSettings { interval_us: SECOND, ..SamplerSettings::default() };
    let mut sampler = Sampler::new(found.meters, settings, 0);
    sampler.step(&clock, &mut |_| {});
    for second in 1..=seconds {
        happens(second);
        clock.0.store(second * SECOND, Ordering::Relaxed);
        sampler.step(&clock, &mut |_| {});
    }
    sampler.finish(&clock, &mut |_| {});
    let report = sampler.reports().remove(0);
    assert_eq!(report.total.covered_us + report.total.gap_us, seconds * SECOND, "{report:?}");
    report
}

#[test]
fn a_powercap_zone_is_counted_over_its_wrap_and_not_over_its_absence() {
    let tree = Tree::new("powercap");
    let zone = "sys/class/powercap/intel-rapl:0";
    let range = 262_143_328_850u64;
    let counter = |uj: u64| tree.put(&format!("{zone}/energy_uj"), &uj.to_string());
    let report = recorded(&tree.0, 8, |second| match second {
        0 => {
            tree.put(&format!("{zone}/name"), "package-0");
            tree.put(&format!("{zone}/max_energy_range_uj"), &range.to_string());
            counter(range - 20_000_000);
        }
        1 => counter(range - 10_000_000),
        // Over the wrap: 10 J to the end of the range, 5 J behind it.
        2 => counter(5_000_000),
        3 => counter(15_000_000),
        // The module is unloaded for two seconds.
        4 => tree.remove(&format!("{zone}/energy_uj")),
        6 => counter(90_000_000),
        7 => counter(97_000_000),
        // Began anew far from its end: no wrap.
        8 => counter(1_000_000),
        _ => {}
    });
    assert_eq!(report.total.energy.joules(), 10.0 + 15.0 + 10.0 + 7.0);
    assert_eq!((report.wraps, report.faults), (1, 2));
    assert_eq!(report.total.covered_us, 4 * SECOND);
    let whys: Vec<&str> = report.gaps.iter().map(|gap| gap.why.as_str()).collect();
    assert!(whys.len() == 2 && whys[0].contains("energy_uj") && whys[1].contains("jumped"), "{whys:?}");
}

#[test]
fn a_counter_without_a_range_that_goes_back_is_a_gap() {
    let tree = Tree::new("counter");
    let counter = |uj: u64| tree.put("sys/class/hwmon/hwmon1/energy1_input", &uj.to_string());
    let report =
        recorded(&tree.0, 3, |second| counter([4_000_000, 9_000_000, 1_000_000, 3_000_000][second as usize]));
    assert_eq!(report.total.energy.joules(), 5.0 + 2.0);
    assert_eq!((report.wraps, report.gaps.len(), report.total.gap_us), (0, 1, SECOND));
    assert!(report.gaps[0].why.contains("went back"), "{:?}", report.gaps);
}

#[test]
fn a_sensor_that_vanishes_or_talks_rubbish_is_asked_again_and_not_bridged() {
    let tree = Tree::new("sensor");
    let file = "sys/class/hwmon/hwmon0/power1_input";
    let report = recorded(&tree.0, 6, |second| match second {
        0 => tree.put(file, "4000000"),
        2 => tree.remove(file),
        3 => tree.put(file, "4000000"),
        5 => tree.put(file, "warm"),
        6 => tree.put(file, "8000000"),
        _ => {}
    });
    assert_eq!((report.total.energy.joules(), report.faults), (8.0, 2));
    assert_eq!((report.total.covered_us, report.total.gap_us), (2 * SECOND, 4 * SECOND));
    assert_eq!((report.watts_min, report.watts_max), (Some(4.0), Some(8.0)));
}

#[test]
fn a_battery_measures_while_it_carries_the_load_and_its_step_is_told() {
    let tree = Tree::new("battery");
    let put = |file: &str, text: &str| tree.put(&format!("sys/class/power_supply/BAT0/{file}"), text);
    let report = recorded(&tree.0, 5, |second| match second {
        0 => {
            put("type", "Battery");
            put("status", "Discharging");
            put("energy_now", "50000000");
        }
        // A milliwatt-hour a second: 3.6 J.
        1 => put("energy_now", "49999000"),
        2 => put("status", "Charging"),
        3 => {
            put("status", "Discharging");
            put("energy_now", "49999500");
        }
        4 => put("energy_now", "49998500"),
        _ => {}
    });
    assert_eq!(report.total.energy.joules(), 3.6 + 3.6);
    assert_eq!(report.total.covered_us, 3 * SECOND);
    assert!(
        report.first_fault.as_ref().is_some_and(|why| why.contains("does not carry the load")),
        "{report:?}"
    );
    // One microwatt-hour at each end of what was covered.
    assert!(report.quantisation_joules >= 0.0036 && report.quantisation_joules < 0.1, "{report:?}");
}

#[test]
fn times_at_clocks_are_read_from_the_tree_and_a_processor_taken_out_is_left_out() {
    let tree = Tree::new("clocks");
    let put = |policy: &str, text: &str| {
        tree.put(&format!("sys/devices/system/cpu/cpufreq/{policy}/stats/time_in_state"), text);
    };
    assert_eq!(Residency::read(&tree.0), Ok(None));
    put("policy0", "1000000 100\n200000 300");
    put("policy4", "2000000 10");
    put("policy8", "2000000 500");
    let before = Residency::read(&tree.0).unwrap().unwrap();
    put("policy0", "1000000 150\n200000 350");
    tree.remove("sys/devices/system/cpu/cpufreq/policy4/stats/time_in_state");
    // Put back: its times began anew.
    put("policy8", "2000000 3");
    let passed = Residency::read(&tree.0).unwrap().unwrap().since(&before);
    assert_eq!(passed.len(), 1);
    assert_eq!((passed[0].policy.as_str(), passed[0].total_us), ("policy0", SECOND));
    assert_eq!(passed[0].effective_khz, 600_000.0);
    put("policy0", "fast 3");
    assert_eq!(Residency::read(&tree.0).unwrap_err().kind, FaultKind::Rubbish);
}
