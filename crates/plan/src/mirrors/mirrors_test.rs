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
    // The study of flushes: the published pairs of shares, on a modelled disk.
    let (reads, write_backs) = (column(&report, "flush", 1), column(&report, "flush", 3));
    for (at, read, write_back) in [(1, 54.0, 25.0), (3, 25.0, 48.0)] {
        assert!((reads[at] - read).abs() <= 6.0, "{reads:?}");
        assert!((write_backs[at] - write_back).abs() <= 3.0, "{write_backs:?}");
    }
    let buffer = fact(&report, "buffer at the knee of tails");
    assert!(
        starts[[128.0, 256.0, 512.0, 1024.0, 2048.0].iter().position(|mib| *mib == buffer).expect("tried")]
            < 192.0
    );
    // A start that draws the power of load costs little of what its sleep saves.
    let with_starts = column(&report, "starts", 3);
    assert!(with_starts[0] < saved && with_starts[0] > saved - 0.5, "{with_starts:?}");
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
fn pairs_that_sleep_whole_save_more_than_one_disk_a_pair_ever_could() {
    let report = plan(scenario("mirrors-partial")).expect("plans");
    let (one, whole) = (fact(&report, "energy saved"), fact(&report, "energy saved, pairs sleeping whole"));
    let bound = fact(&report, "bound on it, of an idle array");
    assert!((bound - 56.28).abs() < 0.01, "{bound}");
    assert!(whole > 50.0 && whole <= bound && one <= 33.8, "{one} {whole}");
    let table = report.tables.iter().find(|table| table.name == "whole").expect("a table");
    // What first disks start is judged as well as what second disks do.
    let Cell::Number(most) = table.rows[2][11] else { panic!("no number") };
    let name = "starts of the disk with most a week, first of its pair, pairs sleeping whole";
    assert_eq!((most, table.rows[2].len()), (fact(&report, name), table.columns.len()));
    let said = report.answer.iter().find(|line| line.starts_with("A first disk of these")).expect("said");
    assert!(said.contains("within the 192"), "{said}");
    let wearing = scenario("mirrors-partial").replace("rated-cycles = 50000", "rated-cycles = 10000");
    let report = plan(&wearing).expect("plans");
    let said = report.answer.iter().find(|line| line.starts_with("A first disk of these")).expect("said");
    assert!(said.contains("MORE than the 38.4"), "{said}");
    let Cell::Number(longest_hot_ms) = table.rows[2][7] else { panic!("no number") };
    assert!(longest_hot_ms < 1000.0, "hot requests never wait for a start: {longest_hot_ms}");
}

/// A trace that wakes the second disk of the first of four pairs once a minute for two hours.
fn one_busy_pair() -> (String, String) {
    let start = scenario("mirrors-diurnal");
    let head = &start[..start.find("[trace]").expect("has one")];
    let head = head
        .replace("disks = 28", "disks = 8")
        .replace("stripe = \"128 KiB\"", "stripe = \"64 MiB\"")
        .replace("rated-cycles = 50000", "rated-cycles = 1314000");
    let tail =
        "[sweep]\nbuffer = [\"1 GiB\", \"2 GiB\"]\ndisks = []\nknee-gain = 0.1\nspin-up-utilisation = []\n";
    let line =
        |second: u64| format!("{},usr,0,Read,4096,50000000,1\n", (12_816_637_200 + second) * 10_000_000);
    let seconds = (0..120).flat_map(|minute| (0..3).map(move |second| minute * 60 + second));
    (format!("{head}[trace]\nkind = \"msr\"\nlines = \"\"\n{tail}"), seconds.map(line).collect())
}

#[test]
fn starts_are_judged_by_the_disk_that_starts_most() {
    let (text, lines) = one_busy_pair();
    // Rated for 30 an hour: the mean of four keeps to that, the one that starts 60 times an hour does not.
    let report = plan_traced(&text, lines.as_bytes()).expect("plans");
    let (mean, most) = (
        fact(&report, "starts of the mean disk a week"),
        fact(&report, "starts of the disk with most a week"),
    );
    let rated = fact(&report, "starts a week that a disk is rated for");
    assert!((rated - 30.0 * 168.0).abs() < 1e-6, "{rated}");
    assert!(mean < rated * 0.6 && most > rated * 1.9, "{mean} {most}");
    let years = fact(&report, "years until the disk with most has had its rated starts");
    assert!((years - 5.0 * rated / most).abs() < 1e-6, "{years}");
    let said = &report.answer[1];
    assert!(said.contains("MORE than the 5,040") && said.contains("rated starts last 2.5"), "{said}");
    assert!(!report.answer.iter().any(|line| line.contains("MiB is the first")), "{:?}", report.answer);
    assert!(column(&report, "buffers", 2).iter().all(|starts| *starts > rated));
    let plot = report.plots.iter().find(|plot| plot.name == "cycles").expect("drawn");
    assert_eq!(plot.series.len(), 2);
    // With the rule of the policy the same trace keeps to the rating.
    let kept = text.replace("keep-to-rated-cycles = false", "keep-to-rated-cycles = true");
    let report = plan_traced(&kept, lines.as_bytes()).expect("plans");
    let said = &report.answer[1];
    assert!(said.contains("within the 5,040 that it is rated for and an hour's ahead"), "{said}");
    assert!(report.answer.iter().any(|line| line.contains("1,024 MiB is the first")), "{:?}", report.answer);
}

#[test]
fn a_trace_may_be_given_in_the_description_or_beside_it() {
    let start = scenario("mirrors-diurnal");
    let head = &start[..start.find("[trace]").expect("has one")];
    let tail = "[sweep]\nbuffer = []\ndisks = []\nknee-gain = 0.1\nspin-up-utilisation = []\n";
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
        ("load = \"13.2 W\"", "", "load"),
        ("load = \"13.2 W\"", "load = \"1 W\"", "cannot draw more"),
        ("load = \"13.2 W\"", "load = 13.2", "13.2 has no unit"),
        ("load = \"13.2 W\"", "load_w = 13.2", "load = \"200 W\""),
        ("load = \"13.2 W\"", "load = \"13.2 W\"\ncolour = 3", "colour"),
        ("transfer = \"120 MB/s\"", "transfer = \"0 MB/s\"", "disk.transfer"),
        ("transfer = \"120 MB/s\"", "transfer_mb_per_s = 120", "transfer = \"120 MB/s\""),
        ("stripe = \"128 KiB\"", "stripe = \"5 KiB\"", "multiple of 4 KiB"),
        ("stripe = \"128 KiB\"", "stripe = \"3 KiB\"", "array.stripe"),
        ("buffer-fill = 0.9", "buffer-fill = 9", "buffer-fill"),
        ("spin-up-utilisation = 0.25", "spin-up-utilisation = 0.05", "sleep and wake at once"),
        ("spin-down-epochs = 30", "spin-down-epochs = 0", "epochs"),
        ("spike = \"235 requests/s\"", "spike = \"inf requests/s\"", "is no rate"),
        ("spike = \"235 requests/s\"", "spike = \"1e9 requests/s\"", "shorten"),
        ("spike = \"235 requests/s\"", "spike_per_s = 235", "`spike_per_s` has become `spike`"),
        ("spike-every = \"18 s\"", "spike-every = \"1 us\"", "shorten"),
        ("kind = \"spiky\"", "kind = \"noisy\"", "noisy"),
        ("of = \"saving\"", "of = \"price\"", "price"),
        ("of = \"saving\"", "of = \"saving_percent\"", "`saving_percent` has become `saving`"),
        ("value = \"11 %\"", "value = 11", "`published.value`: '11' has no unit"),
    ] {
        assert!(whole.contains(from), "{from}");
        let error = plan(&whole.replacen(from, to, 1)).expect_err("refused");
        assert!(error.message().contains(word), "{to}: {error}");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
    for (from, to, word) in [
        ("disks = 12", "disks = 4", "fewer than 6"),
        ("cold-epochs = 300", "cold-epochs = 0", "cold-epochs"),
        ("host-utilisation = 0.20", "host-utilisation = 2", "host-utilisation"),
        ("spare = \"20 GiB\"", "spare = \"0 GiB\"", "partial.spare"),
        ("hot-share = 0.9998", "", "hot-share"),
        ("hot = \"20 GiB\"\n\n# The", "hot = \"900 GiB\"\n\n# The", "below footprint"),
        ("start = [\"13.2 W\"", "start = [\"3 W\"", "sweep.start"),
        ("write-backs = 20", "write-backs = 0", "write-backs"),
        ("io = \"8 KiB\"", "io = \"-8 KiB\"", "out of range"),
    ] {
        let names = ["mirrors-partial", "mirrors-diurnal"];
        let whole = names.into_iter().map(scenario).find(|text| text.contains(from)).expect(from);
        let error = plan(&whole.replacen(from, to, 1)).expect_err("refused");
        assert!(error.message().contains(word), "{to}: {error}");
    }
}
