use super::case::{self, Case, Source};
use super::fleet::fleet;
use super::model::scanned;
use super::profile::{line, profile};
use super::*;
use crate::parts::{Cell, Verdict};
use tierstone_base::ErrorKind;

/// Two machines that are reckoned by hand.
const SMALL: &str = r#"
title = "By hand"
source = "the test"
[demand]
data = "10 GB"
scan = "row"
within = "10 s"
scans = "36 scans/h"
scale-out = 1.0
[[machine]]
name = "phone"
kind = "phone"
idle = "1 W"
peak = "4 W"
storage-power = "1 W"
clock = "1 GHz"
cores = 1
storage = "4 GB"
memory = "1 GB"
storage-bandwidth = "100 MB/s"
memory-bandwidth = "1 GB/s"
link = "10 MB/s"
battery = "10 Wh"
row-tuple-cycles = 100
row-byte-cycles = 2
column-value-cycles = 50
column-byte-cycles = 1
storage-byte-cycles = 2
flop-cycles = 10
[[machine]]
name = "server"
kind = "server"
idle = "50 W"
peak = "110 W"
storage-power = "10 W"
clock = "2.5 GHz"
cores = 4
storage = "1 TB"
memory = "64 GB"
storage-bandwidth = "500 MB/s"
row-tuple-cycles = 100
row-byte-cycles = 2
column-value-cycles = 50
column-byte-cycles = 1
storage-byte-cycles = 2
flop-cycles = 1
[[scan]]
name = "row"
format = "row"
width = "100 B"
flops = 0
[[scan]]
name = "column"
format = "column"
width = "1 B"
flops = 0
[[projection]]
bandwidth = "1 GB/s"
"#;

fn read(text: &str) -> Case {
    case::read(&Description::toml("small", text)).unwrap()
}

fn refusal(text: &str) -> String {
    let error = plan(&Description::toml("small", text)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.message().starts_with("small: "), "{error}");
    error.message().to_owned()
}

fn close(value: f64, expected: f64) {
    assert!((value - expected).abs() <= expected.abs() * 1e-9, "{value}, not {expected}");
}

#[test]
fn a_scan_takes_the_longer_of_reading_and_processing() {
    let case = read(SMALL);
    let (phone, row) = (&case.machines[0], &case.scans[0]);
    // From storage: 100 B at 100 MB/s are 1,000 ns; 100 + 100 x (2 + 2) = 500 cycles are 500 ns.
    let stored = scanned(phone, row, Source::Storage, None);
    close(stored.seconds, 1_000e-9);
    close(stored.cpu_busy, 0.5);
    close(stored.watts, 1.0 + 1.0 + 2.0 * 0.5);
    close(stored.joules_a_gb(), 3.0 * 10.0);
    // From memory: 100 ns to read, 300 cycles.
    let held = scanned(phone, row, Source::Memory, None);
    close(held.seconds, 300e-9);
    close(held.watts, 1.0 + 2.0);
    close(held.joules_a_gb(), 9.0);
    // Storage of 1 GB/s: 100 ns to read, bound by the processor's 500 ns, storage busy a fifth of them.
    let faster = scanned(phone, row, Source::Storage, Some(1e9));
    close(faster.seconds, 500e-9);
    close(faster.watts, 1.0 + 0.2 + 2.0);
    // A column of 1 B: 50 + 1 + 2 cycles against 10 ns of reading.
    close(scanned(phone, &case.scans[1], Source::Storage, None).seconds, 53e-9);
}

#[test]
fn energy_stays_between_idle_and_peak_and_faster_storage_never_hurts() {
    for scenario in SCENARIOS {
        let case = case::read(&scenario.description()).unwrap();
        for machine in &case.machines {
            for scan in &case.scans {
                for source in [Source::Storage, Source::Memory] {
                    let watts = scanned(machine, scan, source, None).watts;
                    assert!(watts >= machine.idle - 1e-12 && watts <= machine.peak + 1e-12, "{watts}");
                }
                let mut last = f64::INFINITY;
                for step in 0..60 {
                    let bandwidth = 1e6 * 1.2f64.powi(step);
                    let joules = scanned(machine, scan, Source::Storage, Some(bandwidth)).joules();
                    assert!(joules <= last * (1.0 + 1e-12), "{} at {bandwidth}", machine.name);
                    last = joules;
                }
            }
        }
    }
}

#[test]
fn fleets_are_those_reckoned_by_hand() {
    let case = read(SMALL);
    let (phone, server) = (&case.machines[0], &case.machines[1]);
    // Phones from storage: 10 GB at 100 MB/s are 100 s, ten phones take 10 s; three would hold the data.
    let found = fleet(&case, phone, Source::Storage).unwrap();
    assert_eq!((found.machines, found.bound_by_time), (10.0, true));
    close(found.seconds, 10.0);
    close(found.watts, 30.0);
    close(found.joules_a_scan, 300.0);
    // 36 scans an hour of 10 s: busy 0.1 of the day.
    close(found.joules_a_day, 86_400.0 * (0.1 * 30.0 + 0.9 * 10.0));
    close(found.load_seconds.unwrap(), 100.0);
    close(found.battery_seconds.unwrap(), 36_000.0 / 3.0);
    // From memory: ten hold the data, which then takes 10 GB / (10 x 333 MB/s) = 3 s.
    let held = fleet(&case, phone, Source::Memory).unwrap();
    assert_eq!((held.machines, held.bound_by_time), (10.0, false));
    close(held.seconds, 3.0);
    // The server: 500 MB/s from storage, two of them.
    assert_eq!(fleet(&case, server, Source::Storage).unwrap().machines, 2.0);
    let report = plan(&Description::toml("small", SMALL)).unwrap();
    assert!(
        report.answer[0].starts_with("Least energy: 10 of phone that read from memory"),
        "{:?}",
        report.answer
    );
}

#[test]
fn fleets_that_scale_less_than_linearly_are_larger() {
    // 10 times as fast with n^0.5: 100 phones.
    let found = fleet(
        &read(&SMALL.replace("scale-out = 1.0", "scale-out = 0.5")),
        &read(SMALL).machines[0],
        Source::Storage,
    );
    let found = found.unwrap();
    assert_eq!(found.machines, 100.0);
    close(found.seconds, 10.0);
    close(found.joules_a_scan, 100.0 * 3.0 * 10.0);
}

#[test]
fn hubs_and_prices_are_counted_where_they_are_given() {
    let text = SMALL
        .replace("[[machine]]\nname = \"phone\"", "[cost]\nelectricity = \"0.5 $/kWh\"\nlifetime = \"1000 h\"\n[[machine]]\nname = \"phone\"")
        .replace("battery = \"10 Wh\"", "battery = \"10 Wh\"\nprice = \"20 $\"\nhub-machines = 4\nhub-power = \"5 W\"\nhub-price = \"30 $\"")
        .replace("memory = \"64 GB\"", "memory = \"64 GB\"\nprice = \"1000 $\"");
    let case = read(&text);
    let found = fleet(&case, &case.machines[0], Source::Storage).unwrap();
    assert_eq!((found.machines, found.hubs), (10.0, 3.0));
    close(found.watts, 30.0 + 15.0);
    close(found.idle_watts, 10.0 + 15.0);
    // 27 W on average for 1000 h at 0.5 $/kWh.
    close(found.dollars.unwrap(), 200.0 + 90.0 + (0.1 * 45.0 + 0.9 * 25.0) * 0.5);
    let report = plan(&Description::toml("t", &text)).unwrap();
    assert!(report.answer[0].starts_with("Cheapest: 10 of phone"), "{:?}", report.answer);
    assert!(
        refusal(&text.replace("price = \"1000 $\"\n", ""))
            .contains("'server': has no price, which [cost] asks for")
    );
    assert!(refusal(&text.replace("\nhub-price = \"30 $\"", "")).contains("no hub-price"));
    assert!(
        refusal(&text.replace("\nhub-power = \"5 W\"", ""))
            .contains("hub-machines and hub-power go together")
    );
}

#[test]
fn demands_that_no_fleet_meets_say_why() {
    let slow = SMALL.replace("\"36 scans/h\"", "\"1 scans/s\"");
    let message = refusal(&slow);
    assert!(message.contains("no machine meets the demand for the scan 'row'"), "{message}");
    assert!(
        message.contains("phone from storage: a scan takes 10.0 s, and one is asked for every 1.0 s"),
        "{message}"
    );
    let unknown = SMALL.replace("storage = \"1 TB\"\n", "");
    let report = plan(&Description::toml("t", &unknown)).unwrap();
    let fleets = report.tables.iter().find(|table| table.name == "fleets").unwrap();
    let remark = Cell::Text("the size of its storage is not given".to_owned());
    assert!(fleets.rows.iter().any(|row| row.contains(&remark)));
    assert!(fleets.rows.iter().all(|row| row.len() == fleets.columns.len()));
}

#[test]
fn the_published_statements_hold_together_but_for_one() {
    let report = plan(&SCENARIOS[0].description()).unwrap();
    let differing: Vec<_> = report.rows.iter().filter(|row| row.verdict == Verdict::Differs).collect();
    assert_eq!(report.rows.len(), 20);
    assert_eq!(differing.len(), 1, "{differing:?}");
    assert!(differing[0].name.contains("column of 1 B, from memory"), "{}", differing[0].name);
    // Projected storage brings the desktop and the laptop closer, step by step.
    let storage = report.tables.iter().find(|table| table.name == "storage").unwrap();
    for row in &storage.rows {
        let number = |cell: &Cell| if let Cell::Number(number) = cell { Some(*number) } else { None };
        let joules: Vec<f64> = row[1..4].iter().filter_map(number).collect();
        assert!(joules.windows(2).all(|pair| pair[0] >= pair[1]), "{row:?}");
        assert!(joules.len() < 2 || joules[0] > joules[1], "{row:?}");
    }
}

#[test]
fn storage_that_is_no_faster_than_a_machines_own_is_not_told_as_faster() {
    let storage = |text: &str| {
        let report = plan(&Description::toml("small", text)).unwrap();
        report.tables.into_iter().find(|table| table.name == "storage").unwrap().rows
    };
    // The phone reads 100 MB/s, the server 500 MB/s.
    let rows = storage(&SMALL.replacen(
        "[[projection]]\nbandwidth = \"1 GB/s\"",
        "[[projection]]\nbandwidth = \"500 MB/s\"",
        1,
    ));
    assert!(matches!(rows[0][2], Cell::Number(_)), "{rows:?}");
    assert_eq!(rows[1][2], Cell::from("-"), "{rows:?}");
    // The phone needs least; the server never needs as little.
    assert_eq!((&rows[0][4], &rows[1][4]), (&Cell::from("-"), &Cell::from("never as good")), "{rows:?}");
    // A second phone is as good as the first; one with storage a tenth as fast becomes so at 100 MB/s.
    let (from, to) =
        (SMALL.find("[[machine]]").unwrap(), SMALL.find("[[machine]]\nname = \"server\"").unwrap());
    let phone = |name: &str, rate: &str| {
        SMALL[from..to].replace("\"phone\"\nkind", &format!("\"{name}\"\nkind")).replace("\"100 MB/s\"", rate)
    };
    let text = format!("{SMALL}{}{}", phone("twin", "\"100 MB/s\""), phone("slow", "\"10 MB/s\""));
    let rows = storage(&text);
    assert_eq!(rows[2][4], Cell::from("already as good"), "{rows:?}");
    let Cell::Number(rate) = rows[3][4] else { panic!("{rows:?}") };
    close(rate, 100.0);
}

#[test]
fn arithmetic_makes_storage_and_memory_alike() {
    let case = case::read(&SCENARIOS[0].description()).unwrap();
    let gap = |flops: f64| {
        let scan = case::Scan { flops, ..case.scans[0].clone() };
        let at = |source| scanned(&case.machines[0], &scan, source, None).joules();
        at(Source::Storage) / at(Source::Memory)
    };
    let gaps: Vec<f64> = [0.0, 10.0, 30.0, 100.0, 500.0].map(gap).to_vec();
    assert!(gaps.windows(2).all(|pair| pair[1] < pair[0]), "{gaps:?}");
    assert!(gaps[4] < 1.2, "{gaps:?}");
}

#[test]
fn a_battery_gauge_gives_energy_with_the_error_of_its_steps() {
    // 1 % is 15 mAh, at 4 V 60 mWh; an hour at 0.7 W or more is off by 10 % at most.
    let case = case::read(&SCENARIOS[0].description()).unwrap();
    let low = profile(&case.measurements[0]);
    close(low.joules, 12.0 * 0.060 * 3_600.0);
    close(low.watts, 0.72);
    assert!(low.error <= 0.10, "{}", low.error);
    close(profile(&case.measurements[1]).error, 0.05);
    let residency = |name: &str, clock: &str, time: &str| {
        format!("[[residency]]\nmeasurement = \"{name}\"\nclock = \"{clock}\"\ntime = \"{time}\"\n")
    };
    let measurement = |name: &str, steps: u32| {
        format!(
            "[[measurement]]\nname = \"{name}\"\nstep = \"15 mAh\"\nsteps = {steps}\nvoltage = \"4 V\"\ntime = \"1 h\"\n"
        )
    };
    let text = format!(
        "{SMALL}{}{}{}{}{}",
        measurement("a", 10),
        measurement("b", 20),
        residency("a", "200 MHz", "30 min"),
        residency("a", "400 MHz", "30 min"),
        residency("b", "1 GHz", "1 h")
    );
    let case = read(&text);
    let profiles: Vec<_> = case.measurements.iter().map(profile).collect();
    close(profiles[0].hertz.unwrap(), 300e6);
    // 0.6 W at 0.3 GHz, 1.2 W at 1 GHz: a line that does not pass through 0, so that W/GHz falls.
    let (at_zero, slope) = line(&profiles).unwrap();
    close(slope, 0.6 / 0.7);
    close(at_zero, 0.6 - 0.3 * 0.6 / 0.7);
    assert!(line(&profiles[..1]).is_none());
    let short = text.replace("\"30 min\"", "\"20 min\"");
    assert!(refusal(&short).contains("its residencies sum to 2400 s of 3600 s"));
    assert!(
        refusal(&format!("{SMALL}{}", residency("z", "1 GHz", "1 h")))
            .contains("measurement 'z', which is not there")
    );
}

#[test]
fn descriptions_that_would_mislead_are_refused() {
    let published = "[[published]]\nmeasure = \"gain\"\nmachine = \"phone\"\nscan = \"row\"\nfrom = \"storage\"\n\
        at-least = 1\nsays = \"x\"\nplace = \"y\"\n";
    for (from, to, words) in [
        ("idle = \"1 W\"", "idle = 1", "1 has no unit; write for example \"150 W\""),
        (
            "idle = \"1 W\"",
            "idle = \"3.5 W\"",
            "the machine 'phone': 3.5 W idle and 1 W of storage are more than the peak",
        ),
        ("idle = \"1 W\"", "idle = \"1 W\"\nidel = \"1 W\"", "unknown field `idel`"),
        ("cores = 1\n", "cores = 0\n", "`cores` is 0"),
        ("cores = 1\n", "cores = inf\n", "out of range"),
        ("row-tuple-cycles = 100", "row-tuple-cycles = -1", "out of range"),
        ("\"100 MB/s\"", "\"0 MB/s\"", "`storage-bandwidth` is 0 B/s, but must be above 0"),
        ("\"100 MB/s\"", "\"100 MB\"", "a unit that is none of a bandwidth"),
        ("width = \"100 B\"", "width = \"0 B\"", "0 bytes wide"),
        ("format = \"row\"", "format = \"heap\"", "unknown variant `heap`"),
        ("scan = \"row\"", "scan = \"rows\"", "there is no [[scan]] called 'rows'"),
        ("name = \"server\"", "name = \"phone\"", "two [[machine]] are called 'phone'"),
        ("scale-out = 1.0", "scale-out = 1.5", "`demand.scale-out` is 1.5"),
        ("scale-out = 1.0\n", "", "missing field `scale-out`"),
        ("[[projection]]", &format!("{published}[[projection]]"), "needs over-machine or over-from"),
        (
            "[[projection]]",
            &format!("{}over-machine = \"desk\"\n[[projection]]", published),
            "there is no [[machine]] called 'desk'",
        ),
        (
            "[[projection]]",
            &format!("{}over-from = \"memory\"\n[[projection]]", published.replace("at-least = 1\n", "")),
            "needs at-least, at-most, or both",
        ),
        (
            "[[projection]]",
            &format!("{}over-from = \"memory\"\n[[projection]]", published.replace("gain", "power")),
            "are for the measure gain only",
        ),
    ] {
        let text = SMALL.replacen(from, to, 1);
        assert_ne!(text, SMALL, "{from} is not there");
        let message = refusal(&text);
        assert!(message.contains(words), "{from} -> {to}: {message}");
    }
    let first = SMALL.find("[[machine]]").unwrap();
    let scans = SMALL.find("[[scan]]").unwrap();
    assert!(refusal(&format!("{}{}", &SMALL[..first], &SMALL[scans..])).contains("there is no [[machine]]"));
    assert!(refusal(&SMALL[..scans]).contains("there is no [[scan]]"));
}
