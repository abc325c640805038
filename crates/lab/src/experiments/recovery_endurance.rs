//! Endurance by the way of recovery: how often a cell is written in ten years, hottest and levelled.

use super::persistency::value;
use crate::experiment::{Experiment, Kind, Rule};
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use tierstone_base::{Error, ErrorKind, Result, SeededRandom};

/// Ten years.
const SECONDS: f64 = 10.0 * 365.25 * 86_400.0;
/// The published memory.
const MEMORY_BYTES: f64 = 32.0 * (1u64 << 30) as f64;
/// Phase-change memory, as the source takes it.
const PCM_WRITES: f64 = 1e8;

/// TPC-B at the published scale: branches, tellers of each, and rows of 100 bytes in pages of 8 KiB.
const BRANCHES: u64 = 1_000;
const TELLERS: u64 = 10;
const ROWS_PER_PAGE: u64 = 81;
/// Pages that a transaction changes: account, teller, branch, history.
const PAGES: f64 = 4.0;
/// Page writes a second that kept recovery of TPC-B near instant (chapter IV, Figure 4.1). By [`PAGES`] a transaction rate.
const PAGE_WRITES: f64 = 127_000.0;
/// A balance; a log sequence number; a word of a page's header.
const WORD: f64 = 8.0;
const HISTORY_ROW: f64 = 50.0;
/// A log record beside the bytes before and after: its header and its tail.
const RECORD: f64 = 48.0;

/// A way to recover, as far as it decides what is persisted when.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    /// How long changes of a byte gather until they are persisted as one.
    gathers_us: Option<u64>,
    /// Pages carry the number of the log record that changed them last, and a log of changes is kept.
    has_log: bool,
    /// Each change has an undo record in persistent memory; of a batch, only what changed has.
    undo_each: bool,
}

const WAYS: [Way; 5] = [
    Way { name: "Disk-Replacement, 0 s", gathers_us: None, has_log: true, undo_each: false },
    Way { name: "Disk-Replacement, 3 s", gathers_us: Some(3_000_000), has_log: true, undo_each: false },
    Way { name: "In-Place Updates", gathers_us: None, has_log: false, undo_each: true },
    Way { name: "Group Commit, 20 ms", gathers_us: Some(20_000), has_log: false, undo_each: false },
    Way { name: "Group Commit, 200 ms", gathers_us: Some(200_000), has_log: false, undo_each: false },
];

const HOTTEST: [&str; 5] = [
    "Disk-Replacement, 0 s: hottest byte, no levelling",
    "Disk-Replacement, 3 s: hottest byte, no levelling",
    "In-Place Updates: hottest byte, no levelling",
    "Group Commit, 20 ms: hottest byte, no levelling",
    "Group Commit, 200 ms: hottest byte, no levelling",
];
const LEVELLED: &str = "the greatest of all: levelled perfectly";

/// Figure 5.7 of the dissertation, for TPC-B.
pub const EXPERIMENT: Experiment = Experiment {
    name: "recovery-endurance",
    title: "Endurance: writes of a cell in ten years by the way of recovery",
    source: "Pelley 2014 (University of Michigan), Figure 5.7",
    measures: "TPC-B at scale 1,000 as a model: which bytes each transaction changes, and when each of three ways of recovery \
               persists them. In place at once, page by page with at most 3 s of log behind, or batch by batch, each byte \
               once a batch. Counted by the byte; logs are circular and left out of the hottest byte, but not of what \
               levelling spreads over 32 GiB. Published for three workloads run by Shore-MT as curves; printed are the bounds \
               alone. The transaction rate is not printed: 127,000 page writes a second (Figure 4.1) by four pages each, \
               and a tenth and ten times that.",
    kind: Kind::Modelled,
    published: &[
        value(
            HOTTEST[0],
            PCM_WRITES,
            "writes",
            "Figure 5.7: far above 1e8",
            "whether a log number written with each change wears memory out; far is taken as ten times",
            Rule::AtLeast(10.0 * PCM_WRITES),
        ),
        value(
            HOTTEST[1],
            PCM_WRITES,
            "writes",
            "Figure 5.7: much lower, possibly acceptable",
            "a page that is written once in 3 s: 1.05e8 whatever the rate",
            Rule::AtMost(2.0 * PCM_WRITES),
        ),
        value(
            HOTTEST[2],
            PCM_WRITES,
            "writes",
            "Figure 5.7: far above 1e8",
            "whether each change in place wears memory out; far is taken as ten times",
            Rule::AtLeast(10.0 * PCM_WRITES),
        ),
        value(
            HOTTEST[3],
            PCM_WRITES,
            "writes",
            "Figure 5.7: not sufficient",
            "whether one write a batch is still too many",
            Rule::AtLeast(PCM_WRITES),
        ),
        value(
            HOTTEST[4],
            PCM_WRITES,
            "writes",
            "Figure 5.7: not sufficient",
            "whether one write a batch is still too many",
            Rule::AtLeast(PCM_WRITES),
        ),
        value(
            LEVELLED,
            1e6,
            "writes",
            "Figure 5.7, caption; the text has 1e8",
            "whether levelling makes every way last",
            Rule::AtMost(1e6),
        ),
    ],
    series: &[],
    space_bytes: |_| 0,
    run,
};

/// A kind of field that many transactions change: how often each of its instances was persisted.
#[derive(Clone, Debug)]
struct Fields {
    what: &'static str,
    /// Whether it is there with a log alone.
    of_log: bool,
    /// When an instance was last persisted, in periods from one.
    last: Vec<u64>,
    persisted: u64,
}

impl Fields {
    fn new(what: &'static str, of_log: bool, instances: u64) -> Fields {
        Fields { what, of_log, last: vec![0; instances as usize], persisted: 0 }
    }

    /// An instance changes at `now_us`.
    fn change(&mut self, instance: u64, now_us: u64, gathers_us: Option<u64>) {
        let Some(last) = self.last.get_mut(instance as usize) else { return };
        let period = gathers_us.map_or(*last, |us| now_us / us) + 1;
        self.persisted += u64::from(*last != period);
        *last = period;
    }
}

/// What one way wrote in `seconds`.
#[derive(Clone, Debug)]
struct Written {
    way: Way,
    transactions: f64,
    seconds: f64,
    fields: Vec<Fields>,
}

impl Written {
    fn new(way: Way) -> Written {
        let pages = |rows: u64| rows.div_ceil(ROWS_PER_PAGE);
        let fields = vec![
            Fields::new("balance of a branch", false, BRANCHES),
            Fields::new("balance of a teller", false, BRANCHES * TELLERS),
            Fields::new("log number of a page of branches", true, pages(BRANCHES)),
            Fields::new("log number of a page of tellers", true, pages(BRANCHES * TELLERS)),
        ];
        Written { way, transactions: 0.0, seconds: 0.0, fields }
    }

    fn transact(&mut self, teller: u64, now_us: u64) {
        let branch = teller / TELLERS;
        let instances = [branch, teller, branch / ROWS_PER_PAGE, teller / ROWS_PER_PAGE];
        for (field, instance) in self.fields.iter_mut().zip(instances) {
            if self.way.has_log || !field.of_log {
                field.change(instance, now_us, self.way.gathers_us);
            }
        }
        self.transactions += 1.0;
    }

    /// Writes of the hottest byte in ten years, and which it is. All instances of a kind are chosen alike.
    fn hottest(&self) -> (f64, &'static str) {
        let each = self.fields.iter().map(|field| {
            let writes = field.persisted as f64 / field.last.len() as f64;
            (writes / self.seconds * SECONDS, field.what)
        });
        each.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::NAN, "none"))
    }

    /// Bytes a second in place, and in logs. An account and a row of the history are hardly ever the same twice before
    /// they are persisted.
    fn bytes_per_second(&self) -> (f64, f64) {
        let shared: f64 = self.fields.iter().map(|field| field.persisted as f64 * WORD).sum();
        let own = WORD + HISTORY_ROW + WORD;
        let numbers = if self.way.has_log { 2.0 * WORD } else { 0.0 };
        let in_place = shared + self.transactions * (own + numbers);
        // Before a byte is overwritten it is in a page log or in the undo log of the batch.
        let mut logs = in_place;
        let changed = 3.0 * WORD + HISTORY_ROW + WORD;
        if self.way.has_log {
            logs += self.transactions * (PAGES * RECORD + 2.0 * changed);
        }
        if self.way.undo_each {
            logs += self.transactions * (PAGES * RECORD + changed);
        }
        (in_place / self.seconds, logs / self.seconds)
    }

    /// Writes of every cell in ten years if all were written alike.
    fn levelled(&self) -> f64 {
        let (in_place, logs) = self.bytes_per_second();
        (in_place + logs) * SECONDS / MEMORY_BYTES
    }
}

fn run(run: &mut Run<'_>) -> Result<()> {
    let seconds = run.pick(3, 12, 60);
    run.set("seconds modelled", seconds);
    run.expect_steps(3);
    let mut all = Vec::new();
    for times in [0.1, 1.0, 10.0] {
        let rate = times * PAGE_WRITES / PAGES;
        run.step(format!("{rate:.0} transactions a second"))?;
        all.push((rate, model(run, rate, seconds)?));
    }
    let of_rate = all.get(1).map(|(_, written)| written);
    let written = of_rate.ok_or_else(|| Error::new(ErrorKind::Unsupported, "a rate was not modelled"))?;
    for (written, name) in written.iter().zip(HOTTEST) {
        let (writes, what) = written.hottest();
        run.compare(name, writes, &format!("the {what}"))?;
    }
    run.compare(LEVELLED, written.iter().map(Written::levelled).fold(0.0, f64::max), "logs among them")?;
    report(run, &all);
    Ok(())
}

/// Transactions at `rate` for some seconds, by every way.
fn model(run: &mut Run<'_>, rate: f64, seconds: u64) -> Result<Vec<Written>> {
    let mut written: Vec<Written> = WAYS.into_iter().map(Written::new).collect();
    let mut random = SeededRandom::new(run.next_seed());
    let transactions = (rate * seconds as f64) as u64;
    for number in 0..transactions {
        let (teller, now_us) = (random.below(BRANCHES * TELLERS), (number as f64 * 1e6 / rate) as u64);
        written.iter_mut().for_each(|way| way.transact(teller, now_us));
        if number % 16_384 == 0 {
            run.go_on(number as f64 / transactions as f64)?;
        }
    }
    written.iter_mut().for_each(|way| way.seconds = seconds as f64);
    Ok(written)
}

fn report(run: &mut Run<'_>, all: &[(f64, Vec<Written>)]) {
    let mut table = Table::new(
        "writes",
        "Writes of a cell in ten years: 32 GiB, TPC-B (modelled); phase-change memory bears 1e8 (published, Figure 5.7)",
        &[
            "recovery",
            "transactions/s",
            "hottest byte",
            "levelled",
            "MB/s in place",
            "MB/s of logs",
            "the hottest byte",
        ],
    );
    for (rate, written) in all {
        for way in written {
            let ((hottest, what), (in_place, logs)) = (way.hottest(), way.bytes_per_second());
            table.push([
                way.way.name.into(),
                rate.round().into(),
                hottest.into(),
                way.levelled().into(),
                (in_place / 1e6).into(),
                (logs / 1e6).into(),
                what.into(),
            ]);
        }
    }
    run.show(table);
    let places = || (1..).map(f64::from).zip(0..WAYS.len());
    let mut series = Vec::new();
    for (rate, written) in all {
        let hottest = written.iter().zip(1..).map(|(way, place)| (f64::from(place), way.hottest().0));
        series.push(Series::new(&format!("hottest byte, {rate:.0}/s"), hottest));
        let levelled = written.iter().zip(1..).map(|(way, place)| (f64::from(place), way.levelled()));
        series.push(Series::new(&format!("levelled, {rate:.0}/s"), levelled));
    }
    series
        .push(Series::new("phase-change memory (published)", places().map(|(place, _)| (place, PCM_WRITES))));
    series.push(Series::new("levelled, at most (published)", places().map(|(place, _)| (place, 1e6))));
    run.plot(Plot {
        name: "writes".to_owned(),
        title: "Writes of a cell in ten years (modelled)".to_owned(),
        x: Axis::linear(
            "1 Disk-Replacement 0 s, 2 its 3 s, 3 In-Place Updates, 4 Group Commit 20 ms, 5 its 200 ms",
        ),
        y: Axis::logarithmic("writes"),
        series,
    });
    run.note("Where changes gather, the hottest byte is written once a period at most, however fast transactions come: in ten years 1.6e10 times at 20 ms, 1.6e9 at 200 ms, 1.05e8 at 3 s.");
    run.note("Left out: the history's page in use, whose header is hot for some hundred rows and then never again, the other two workloads, and indexes, which TPC-B does not change.");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_persisted_at_each_change_or_once_a_period() {
        let mut each = Fields::new("a field", false, 2);
        let mut gathered = each.clone();
        for now_us in [0, 5, 19, 20, 21, 45] {
            each.change(1, now_us, None);
            gathered.change(1, now_us, Some(20));
        }
        gathered.change(0, 45, Some(20));
        assert_eq!((each.persisted, gathered.persisted), (6, 4));
    }

    #[test]
    fn writes_of_the_hottest_byte_follow_from_the_period_or_the_rate() {
        let mut written: Vec<Written> = WAYS.into_iter().map(Written::new).collect();
        // One teller, a thousand times in six seconds.
        for number in 0..1_000 {
            written.iter_mut().for_each(|way| way.transact(0, number * 6_000));
        }
        written.iter_mut().for_each(|way| way.seconds = 6.0);
        let persisted = |way: usize, field: usize| written[way].fields[field].persisted;
        assert_eq!(
            (persisted(0, 0), persisted(0, 2), persisted(2, 0), persisted(2, 2)),
            (1_000, 1_000, 1_000, 0)
        );
        assert_eq!((persisted(1, 0), persisted(1, 2), persisted(3, 0), persisted(4, 0)), (2, 2, 300, 30));
        let (writes, what) = written[0].hottest();
        assert_eq!(what, "log number of a page of branches");
        assert!((writes - 1_000.0 / 13.0 / 6.0 * SECONDS).abs() < 1.0, "{writes}");
        assert_eq!(written[2].hottest().1, "balance of a branch");
        // In-Place Updates: 24 + 50 + 8 bytes in place, the same in page logs, and four undo records.
        let (in_place, logs) = written[2].bytes_per_second();
        assert!((in_place - 82.0 * 1_000.0 / 6.0).abs() < 1e-6, "{in_place}");
        assert!((logs - (82.0 + 4.0 * 48.0 + 82.0) * 1_000.0 / 6.0).abs() < 1e-6, "{logs}");
    }
}
