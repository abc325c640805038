//! The shipped scenarios give what was published; descriptions that cannot be are refused in words.

use super::*;
use crate::parts::{Cell, Verdict};

/// The plan of a TOML text.
fn plan(text: &str) -> Result<Report> {
    super::plan(&crate::Description::toml("a test", text))
}

/// The same with a trace from elsewhere.
fn plan_traced(text: &str, trace: &[u8]) -> Result<Report> {
    super::plan_traced(&crate::Description::toml("a test", text), trace)
}

fn fact(report: &Report, name: &str) -> f64 {
    report.facts.iter().find(|fact| fact.name == name).unwrap_or_else(|| panic!("no fact '{name}'")).value
}

fn scenario(name: &str) -> &'static str {
    SCENARIOS.iter().find(|known| known.name == name).expect("shipped").text
}

fn column(report: &Report, table: &str, at: usize) -> Vec<f64> {
    let table = report.tables.iter().find(|known| known.name == table).expect("a table");
    let number = |row: &Vec<Cell>| match &row[at] {
        Cell::Number(number) => *number,
        Cell::Text(text) => panic!("'{text}' is no number"),
    };
    table.rows.iter().map(number).collect()
}

fn assert_agrees(report: &Report) {
    for row in &report.rows {
        assert_eq!(row.verdict, Verdict::Agrees, "{row:?}");
    }
}

#[test]
fn the_daily_pattern_saves_what_was_published_and_cycles_fall_sixfold() {
    let report = plan(scenario("mirrors-diurnal")).expect("plans");
    assert_agrees(&report);
    let saved = fact(&report, "energy saved");
    assert!((25.0..=33.0).contains(&saved), "{saved}");
    assert!((fact(&report, "bound on it, of idle pairs") - 33.77).abs() < 0.01);
    let starts = column(&report, "buffers", 1);
    assert!(starts.windows(2).all(|pair| pair[0] > pair[1]), "{starts:?}");
    let ratio = starts[0] / starts[4];
    assert!((5.0..=7.0).contains(&ratio), "{starts:?}");
    // The small buffer would wear the disks out, the large one would not.
    assert!(starts[0] > 192.0 && starts[4] < 192.0, "{starts:?}");
    let tails = column(&report, "disks", 2);
    assert!(tails.windows(2).all(|pair| pair[0] >= pair[1]), "{tails:?}");
    let knee = fact(&report, "disks at the knee");
    assert!((16.0..=28.0).contains(&knee), "{knee}");
    let spinning = report.plots.iter().find(|plot| plot.name == "spinning").expect("drawn");
    assert!(spinning.series[0].points.iter().all(|(_, disks)| (13.99..=28.01).contains(disks)));
}

#[test]
fn spikes_save_a_third_of_that_and_waking_late_fattens_the_tail() {
    let report = plan(scenario("mirrors-spiky")).expect("plans");
    assert_agrees(&report);
    let (plain, sleeping) =
        (fact(&report, "99.9th percentile without sleep"), fact(&report, "99.9th percentile with sleep"));
    assert!(sleeping < plain * 1.12, "{plain} {sleeping}");
    let tails = column(&report, "thresholds", 4);
    assert!(tails[1] > tails[0] * 1.15, "{tails:?}");
}

#[test]
fn a_trace_may_be_given_in_the_description_or_beside_it() {
    let start = scenario("mirrors-diurnal");
    let head = &start[..start.find("[trace]").expect("has one")];
    let tail = "[sweep]\nbuffer_mib = []\ndisks = []\nknee_gain = 0.1\nspin_up_utilisation = []\n";
    let lines = "128166372003061629,usr,0,Read,4096,24576,1\n128166382003061629,usr,0,Write,8192,8192,1\n";
    let inside = format!("{head}[trace]\nkind = \"msr\"\nlines = \"\"\"\n{lines}\"\"\"\n{tail}");
    let beside = format!("{head}[trace]\nkind = \"msr\"\nlines = \"\"\n{tail}");
    let first = plan(&inside).expect("plans");
    let second = plan_traced(&beside, lines.as_bytes()).expect("plans");
    assert_eq!(first, second);
    assert!(plan(&beside).expect_err("no trace").message().contains("trace.lines"));
    assert!(plan_traced(&inside, lines.as_bytes()).is_err());
    assert!(plan_traced(start, lines.as_bytes()).is_err());
}

#[test]
fn descriptions_that_cannot_be_are_refused_in_words() {
    let whole = scenario("mirrors-spiky");
    for (from, to, word) in [
        ("disks = 28", "disks = 27", "even number"),
        ("load_w = 13.2", "", "load_w"),
        ("load_w = 13.2", "load_w = 1.0", "cannot draw more"),
        ("load_w = 13.2", "load_w = 13.2\ncolour = 3", "colour"),
        ("transfer_mb_per_s = 120", "transfer_mb_per_s = 0", "transfer_mb_per_s"),
        ("stripe_kib = 128", "stripe_kib = 3", "stripe_kib"),
        ("buffer_fill = 0.9", "buffer_fill = 9", "buffer_fill"),
        ("spin_up_utilisation = 0.25", "spin_up_utilisation = 0.05", "sleep and wake at once"),
        ("spin_down_epochs = 30", "spin_down_epochs = 0", "epochs"),
        ("spike_per_s = 235", "spike_per_s = inf", "spike_per_s"),
        ("spike_per_s = 235", "spike_per_s = 1e9", "shorten"),
        ("kind = \"spiky\"", "kind = \"noisy\"", "noisy"),
        ("of = \"saving_percent\"", "of = \"price\"", "price"),
    ] {
        assert!(whole.contains(from), "{from}");
        let error = plan(&whole.replacen(from, to, 1)).expect_err("refused");
        assert!(error.message().contains(word), "{to}: {error}");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}
