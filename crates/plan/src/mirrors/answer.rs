//! The report on sleeping mirrors.

use super::describe::{Description, Measure, Published};
use super::more;
use super::simulate::{Machine, Outcome, simulate};
use super::size::{TAILS, by_disks, knee};
use super::trace::Request;
use super::wear::{Rating, Wear};
use crate::number::number;
use crate::parts::{Axis, Cell, Plot, Row, Series, Table};
use crate::quantity::MIB;
use crate::report::FORMAT;
use crate::{Fact, Label, Report};
use tierstone_base::Result;

pub(super) struct Runs {
    pub plain: Outcome,
    pub sleeping: Outcome,
    /// With pairs that sleep whole, where the description has hot data.
    pub whole: Option<Outcome>,
    pub by_buffer: Vec<(f64, Outcome)>,
    by_disks: Vec<(u32, Outcome)>,
    by_threshold: Vec<(f64, Outcome)>,
}

/// Runs everything that a description asks for and writes the report.
pub(super) fn answer(description: &Description, trace: &[Request]) -> Result<Report> {
    let described = Machine::of(description);
    let machine = described.without_whole();
    let sweep = &description.sweep;
    let with_buffer = |&mib: &f64| (mib, simulate(&machine.with_buffer_mib(mib), trace, true));
    let with_threshold = |&share: &f64| (share, simulate(&machine.with_spin_up(share), trace, true));
    let runs = Runs {
        plain: simulate(&machine, trace, false),
        sleeping: simulate(&machine, trace, true),
        whole: description.partial.map(|_| simulate(&described, trace, true)),
        by_buffer: sweep.buffer.iter().map(|size| with_buffer(&(size.get() / MIB))).collect(),
        by_disks: by_disks(&machine, trace, &sweep.disks),
        by_threshold: sweep.spin_up_utilisation.iter().map(with_threshold).collect(),
    };
    let saving = saving(&runs.plain, &runs.sleeping);
    let rating = Rating::of(description);
    let ratio = cycle_ratio(&runs);
    let chosen = knee(&tails_of(&runs.by_disks), sweep.knee_gain);
    let mut tables = tables(&runs, rating);
    tables.extend(more::tables(description, &machine, &runs, rating));
    let mut answers = answers(description, &machine, &runs, saving, rating, chosen);
    answers.extend(more::answers(&machine, &runs, rating));
    let mut facts = facts(&machine, &runs, saving, rating, ratio, chosen);
    facts.extend(more::facts(description, &machine, &runs, rating));
    Ok(Report {
        format: FORMAT,
        name: "mirrors".into(),
        title: description.title.clone(),
        source:
            "Snyder, Chen, Chrysanthis, Labrinidis, QMD: Exploiting Flash for Energy Efficient Disk Arrays, \
                 DaMoN 2011, sections 3 and 4"
                .into(),
        asked: asked(description, &runs),
        answer: answers,
        facts,
        rows: rows(description, saving, ratio),
        tables,
        plots: plots(&runs, rating),
        explanation: explanation(&machine, &runs, saving),
        notes: notes(),
    })
}

/// The share of energy saved.
pub(super) fn saving(plain: &Outcome, sleeping: &Outcome) -> f64 {
    1.0 - sleeping.joules() / plain.joules()
}

/// Starts of second disks.
pub(super) fn wear(rating: Rating, outcome: &Outcome) -> Wear {
    rating.wear(outcome.cycles, outcome.length_s)
}

/// How often more a disk starts with the smallest buffer tried than with the largest.
fn cycle_ratio(runs: &Runs) -> Option<f64> {
    let by_size = |(mib, _): &&(f64, Outcome)| (*mib * 1024.0) as u64;
    let smallest = runs.by_buffer.iter().min_by_key(by_size)?;
    let largest = runs.by_buffer.iter().max_by_key(by_size)?;
    (smallest.0 < largest.0 && largest.1.cycles.0 > 0.0).then(|| smallest.1.cycles.0 / largest.1.cycles.0)
}

fn tails_of(by_disks: &[(u32, Outcome)]) -> Vec<(u32, Vec<u64>)> {
    let tails = |outcome: &Outcome| TAILS.iter().map(|&tail| outcome.response.quantile_us(tail)).collect();
    by_disks.iter().map(|(disks, outcome)| (*disks, tails(outcome))).collect()
}

fn asked(description: &Description, runs: &Runs) -> Vec<String> {
    vec![
        format!(
            "{} disks as mirrored pairs, stripes of {} KiB, a flash buffer of {} MiB",
            description.array.disks,
            description.array.stripe.get() / 1024.0,
            number(description.flash.buffer.get() / MIB)
        ),
        format!(
            "{} requests over {} hours",
            number(runs.plain.requests as f64),
            number(runs.plain.length_s / 3600.0)
        ),
    ]
}

fn answers(
    description: &Description,
    machine: &Machine,
    runs: &Runs,
    saving: f64,
    rating: Rating,
    chosen: Option<u32>,
) -> Vec<String> {
    let mut answers = vec![format!(
        "Sleeping saves {} % of the energy of disks and flash (modelled); an array that did nothing could save {} % of \
         its disks' energy.",
        number(saving * 100.0),
        number(machine.idle_bound() * 100.0)
    )];
    let advice = "give a larger buffer, or set keep-to-rated-cycles";
    answers.push(rating.sentence("A second disk", &wear(rating, &runs.sleeping), advice));
    if let Some((mib, _)) = runs.by_buffer.iter().find(|(_, outcome)| wear(rating, outcome).is_within) {
        answers.push(format!(
            "Of the buffers tried, in their order, {} MiB is the first with which every disk keeps to its rating.",
            number(*mib)
        ));
    }
    if let Some(disks) = chosen {
        answers.push(format!(
            "Without sleep, tails stop falling by {} % a step at {disks} disks; the description has {}.",
            number(description.sweep.knee_gain * 100.0),
            description.array.disks
        ));
    }
    if runs.sleeping.stalled > 0 {
        answers.push(format!(
            "{} writes found the buffer full and waited for a disk to start.",
            number(runs.sleeping.stalled as f64)
        ));
    }
    answers
}

fn facts(
    machine: &Machine,
    runs: &Runs,
    saving: f64,
    rating: Rating,
    ratio: Option<f64>,
    chosen: Option<u32>,
) -> Vec<Fact> {
    let fact = |name: &str, value: f64, unit: &str| Fact {
        name: name.into(),
        value,
        unit: unit.into(),
        label: Label::Modelled,
    };
    let tail = |outcome: &Outcome| outcome.response.quantile_us(0.999) as f64 / 1000.0;
    let mut facts = vec![
        fact("energy saved", saving * 100.0, "%"),
        fact("bound on it, of idle pairs", machine.idle_bound() * 100.0, "%"),
        fact("energy without sleep", runs.plain.joules() / 1000.0, "kJ"),
        fact("energy with sleep", runs.sleeping.joules() / 1000.0, "kJ"),
        fact("of which flash", runs.sleeping.flash_j / 1000.0, "kJ"),
        fact("mean power without sleep", runs.plain.joules() / runs.plain.length_s, "W"),
        fact("mean power with sleep", runs.sleeping.joules() / runs.sleeping.length_s, "W"),
        fact("starts a week that a disk is rated for", rating.weekly(), "1"),
        fact("99.9th percentile without sleep", tail(&runs.plain), "ms"),
        fact("99.9th percentile with sleep", tail(&runs.sleeping), "ms"),
        fact("writes that found the buffer full", runs.sleeping.stalled as f64, "1"),
    ];
    facts.extend(rating.facts(&wear(rating, &runs.sleeping), ""));
    facts.extend(ratio.map(|ratio| fact("starts, smallest buffer against largest", ratio, "times")));
    facts.extend(chosen.map(|disks| fact("disks at the knee", f64::from(disks), "1")));
    facts
}

fn rows(description: &Description, saving: f64, ratio: Option<f64>) -> Vec<Row> {
    let row = |published: &Published| {
        let (name, here, unit) = match published.of {
            Measure::CycleRatio => ("starts, smallest buffer against largest", ratio?, "times"),
            Measure::Saving => ("energy saved", saving * 100.0, "%"),
        };
        let [value, from, to] = published.numbers().ok()?;
        let why = "the published traces are not at hand, the load here is synthetic and has their pattern";
        Some(Row::ranged(name, value, here, unit, &published.place, (from, to), why))
    };
    description.published.iter().filter_map(row).collect()
}

fn tables(runs: &Runs, rating: Rating) -> Vec<Table> {
    let columns = [
        "",
        "energy kJ",
        "serving disk hours",
        "idling disk hours",
        "standing disk hours",
        "50 % ms",
        "99.5 % ms",
        "99.9 % ms",
        "99.95 % ms",
    ];
    let mut energy = Table::new("energy", "With sleep and without (modelled)", &columns);
    for (name, outcome) in [("without sleep", &runs.plain), ("with sleep", &runs.sleeping)] {
        energy.push([
            name.into(),
            (outcome.joules() / 1000.0).into(),
            (outcome.state_s[0] / 3600.0).into(),
            (outcome.state_s[1] / 3600.0).into(),
            (outcome.state_s[2] / 3600.0).into(),
            ms(outcome, 0.5),
            ms(outcome, TAILS[0]),
            ms(outcome, TAILS[1]),
            ms(outcome, TAILS[2]),
        ]);
    }
    let mut tables = vec![energy];
    tables.extend(sweeps(runs, rating));
    tables
}

/// What was tried besides the description itself.
fn sweeps(runs: &Runs, rating: Rating) -> Vec<Table> {
    let mut tables = Vec::new();
    if !runs.by_buffer.is_empty() {
        tables.push(buffers_table(runs, rating));
    }
    if !runs.by_disks.is_empty() {
        let columns = ["disks", "99.5 % ms", "99.9 % ms", "99.95 % ms"];
        let mut table = Table::new("disks", "Numbers of disks, without sleep (modelled)", &columns);
        for (disks, outcome) in &runs.by_disks {
            table.push([
                f64::from(*disks).into(),
                ms(outcome, TAILS[0]),
                ms(outcome, TAILS[1]),
                ms(outcome, TAILS[2]),
            ]);
        }
        tables.push(table);
    }
    if !runs.by_threshold.is_empty() {
        let columns = ["waking above", "saved %", "99.5 % ms", "99.9 % ms", "99.95 % ms"];
        let mut table = Table::new("thresholds", "Thresholds of waking (modelled)", &columns);
        for (share, outcome) in &runs.by_threshold {
            let saved = saving(&runs.plain, outcome) * 100.0;
            table.push([
                (*share).into(),
                saved.into(),
                ms(outcome, TAILS[0]),
                ms(outcome, TAILS[1]),
                ms(outcome, TAILS[2]),
            ]);
        }
        tables.push(table);
    }
    tables
}

fn buffers_table(runs: &Runs, rating: Rating) -> Table {
    let columns = [
        "buffer MiB",
        "starts a disk and week",
        "of the disk with most",
        "rated",
        "its years",
        "saved %",
        "writes that waited",
        "99.5 % ms",
        "99.9 % ms",
        "99.95 % ms",
    ];
    let mut table = Table::new("buffers", "Buffers (modelled)", &columns);
    for (mib, outcome) in &runs.by_buffer {
        let wear = wear(rating, outcome);
        table.push([
            (*mib).into(),
            wear.mean.into(),
            wear.most.into(),
            rating.weekly().into(),
            wear.years.map_or_else(|| "-".into(), Cell::from),
            (saving(&runs.plain, outcome) * 100.0).into(),
            outcome.stalled.into(),
            ms(outcome, TAILS[0]),
            ms(outcome, TAILS[1]),
            ms(outcome, TAILS[2]),
        ]);
    }
    table
}

/// A quantile of response times, in milliseconds.
fn ms(outcome: &Outcome, quantile: f64) -> Cell {
    (outcome.response.quantile_us(quantile) as f64 / 1000.0).into()
}

fn plots(runs: &Runs, rating: Rating) -> Vec<Plot> {
    let mut plots = vec![
        Plot {
            name: "spinning".into(),
            title: "Disks that turn (modelled)".into(),
            x: Axis::linear("hours"),
            y: Axis::linear("disks"),
            series: vec![
                Series::new("with sleep", runs.sleeping.spinning.iter().copied()),
                Series::new("without", runs.plain.spinning.iter().copied()),
            ],
        },
        Plot {
            name: "load".into(),
            title: "Load".into(),
            x: Axis::linear("hours"),
            y: Axis::linear("requests/s"),
            series: vec![Series::new("requests", runs.plain.load.iter().copied())],
        },
    ];
    if runs.by_buffer.len() > 1 {
        let starts = |of: fn(&Wear) -> f64| -> Vec<(f64, f64)> {
            runs.by_buffer.iter().map(|(mib, outcome)| (*mib, of(&wear(rating, outcome)))).collect()
        };
        plots.push(Plot {
            name: "cycles".into(),
            title: "Starts of a disk a week (modelled)".into(),
            x: Axis::logarithmic("buffer MiB"),
            y: Axis::linear("starts"),
            series: vec![
                Series::new("mean disk", starts(|wear| wear.mean)),
                Series::new("disk with most", starts(|wear| wear.most)),
            ],
        });
    }
    plots
}

fn explanation(machine: &Machine, runs: &Runs, saving: f64) -> Vec<String> {
    let state = |name: &str, outcome: &Outcome| {
        format!(
            "{name}: disks serve {} h, idle {} h, stand {} h together; with their powers {} kJ, flash {} kJ",
            number(outcome.state_s[0] / 3600.0),
            number(outcome.state_s[1] / 3600.0),
            number(outcome.state_s[2] / 3600.0),
            number(outcome.disk_j / 1000.0),
            number(outcome.flash_j / 1000.0)
        )
    };
    vec![
        state("without sleep", &runs.plain),
        state("with sleep", &runs.sleeping),
        format!(
            "saving = 1 - {} / {} = {} %",
            number(runs.sleeping.joules()),
            number(runs.plain.joules()),
            number(saving * 100.0)
        ),
        format!(
            "bound = (idle - down) / (2 idle) = {} % of the energy of a pair that does nothing",
            number(machine.idle_bound() * 100.0)
        ),
    ]
}

fn notes() -> Vec<String> {
    [
        "Starting and stopping a disk draws the power of idling here, as in the source; the table of starts counts what \
         they draw beyond it.",
        "Hot data is copied in the idle time of disks, so that requests do not wait for it; the host is pair 0.",
        "In the study of flushes the rate of write-backs alone is an input, taken from the published pairs of shares.",
        "Cooling is not counted.",
        "The source does not print the flash's power: its watts are inputs of the description.",
        "The source does not print at which fill the buffer is flushed: it is an input.",
        "Write-backs are faster than random writes by a factor of the description; 4.3 to 5.2 follow from the \
         source's Figure 14.",
    ]
    .map(str::to_owned)
    .to_vec()
}
