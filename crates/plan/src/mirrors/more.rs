//! Further parts of the report: pairs that sleep whole, what starts cost, flushes beside reads.

use super::answer::{Runs, saving, wear};
use super::describe::Description;
use super::flush::flush_rate;
use super::simulate::{Machine, Outcome};
use super::size::{TAILS, knee};
use super::wear::{Rating, Wear};
use super::whole::WholeOutcome;
use crate::number::number;
use crate::parts::{Cell, Table};
use crate::quantity::Percent;
use crate::{Fact, Label};

/// The buffer above which no tail of response times falls by the share `gain` any more, in MiB.
pub(super) fn buffer_knee(runs: &Runs, gain: f64) -> Option<f64> {
    let mut rising: Vec<&(f64, Outcome)> = runs.by_buffer.iter().collect();
    rising.sort_by(|one, two| one.0.total_cmp(&two.0));
    let tails = |outcome: &Outcome| TAILS.iter().map(|&tail| outcome.response.quantile_us(tail)).collect();
    let rows: Vec<(u32, Vec<u64>)> =
        rising.iter().enumerate().map(|(at, (_, outcome))| (at as u32, tails(outcome))).collect();
    knee(&rows, gain).and_then(|at| rising.get(at as usize)).map(|(mib, _)| *mib)
}

/// Numbers on whole sleep and on the buffer's size.
pub(super) fn facts(description: &Description, machine: &Machine, runs: &Runs, rating: Rating) -> Vec<Fact> {
    let fact = |name: &str, value: f64, unit: &str| Fact {
        name: name.into(),
        value,
        unit: unit.into(),
        label: Label::Modelled,
    };
    let mut facts = Vec::new();
    let buffer = buffer_knee(runs, description.sweep.knee_gain);
    facts.extend(buffer.map(|mib| fact("buffer at the knee of tails", mib, "MiB")));
    if let Some(outcome) = &runs.whole {
        facts.push(fact("energy saved, pairs sleeping whole", saving(&runs.plain, outcome) * 100.0, "%"));
        facts.push(fact("bound on it, of an idle array", machine.whole_bound() * 100.0, "%"));
    }
    if let Some((outcome, whole)) = slept_whole(runs) {
        facts.extend(rating.facts(&wear(rating, outcome), ", second of its pair, pairs sleeping whole"));
        facts.extend(
            rating.facts(&first_wear(rating, outcome, whole), ", first of its pair, pairs sleeping whole"),
        );
    }
    facts
}

/// The run with pairs that sleep whole.
fn slept_whole(runs: &Runs) -> Option<(&Outcome, &WholeOutcome)> {
    let outcome = runs.whole.as_ref()?;
    Some((outcome, outcome.whole.as_ref()?))
}

/// Starts of first disks.
fn first_wear(rating: Rating, outcome: &Outcome, whole: &WholeOutcome) -> Wear {
    rating.wear(whole.starts, outcome.length_s)
}

/// Sentences about whole sleep.
pub(super) fn answers(machine: &Machine, runs: &Runs, rating: Rating) -> Vec<String> {
    let Some((outcome, whole)) = slept_whole(runs) else { return Vec::new() };
    let (longer, larger) = (
        "raise cold-epochs, or set keep-to-rated-cycles",
        "give a larger buffer, or set keep-to-rated-cycles",
    );
    vec![
        format!(
            "With pairs that sleep whole {} % are saved (modelled), where one disk a pair saves {} %; an array that did \
             nothing could save {} % of its disks' energy.",
            number(saving(&runs.plain, outcome) * 100.0),
            number(saving(&runs.plain, &runs.sleeping) * 100.0),
            number(machine.whole_bound() * 100.0)
        ),
        format!(
            "{} requests for cold data waited for a disk to start; of hot data 99.9 % were answered in {} ms.",
            number(whole.cold_waits as f64),
            number(whole.hot_response.quantile_us(0.999) as f64 / 1000.0)
        ),
        rating.sentence("A first disk of these", &first_wear(rating, outcome, whole), longer),
        rating.sentence("A second disk of these", &wear(rating, outcome), larger),
    ]
}

pub(super) fn tables(
    description: &Description,
    machine: &Machine,
    runs: &Runs,
    rating: Rating,
) -> Vec<Table> {
    let mut tables = Vec::new();
    tables.extend(whole_table(runs, rating));
    if !description.sweep.start.is_empty() {
        tables.push(starts_table(description, machine, runs));
    }
    if let Some(study) = &description.flush_study {
        let columns = ["K", "reads %", "published", "write-backs %", "published"];
        let title = "Reads and write-backs beside each other, of the rates of either alone (modelled; published: Figure 14)";
        let mut table = Table::new("flush", title, &columns);
        let published =
            |value: Option<Percent>| value.map_or_else(|| Cell::from(""), |share| share.get().into());
        for point in &study.point {
            let rate = flush_rate(study, point.write_backs);
            table.push([
                f64::from(point.write_backs).into(),
                (rate.read_share * 100.0).into(),
                published(point.read),
                (rate.write_back_share * 100.0).into(),
                published(point.write_back),
            ]);
        }
        tables.push(table);
    }
    tables
}

fn whole_table(runs: &Runs, rating: Rating) -> Option<Table> {
    let (outcome, whole) = slept_whole(runs)?;
    let columns = [
        "",
        "energy kJ",
        "saved %",
        "standing disk hours",
        "99.9 % ms",
        "99.95 % ms",
        "hot 99.9 % ms",
        "hot longest ms",
        "cold requests that waited",
        "copied GiB",
        "starts of a first disk and week",
        "of the first disk with most",
        "starts of a second disk and week",
        "of the second disk with most",
        "rated",
    ];
    let mut table = Table::new("whole", "Pairs that sleep whole (modelled)", &columns);
    let ms = |us: u64| Cell::from(us as f64 / 1000.0);
    let mut push = |name: &str, outcome: &Outcome, rest: [Cell; 6], second: [Cell; 2]| {
        let mut row: Vec<Cell> = vec![
            name.into(),
            (outcome.joules() / 1000.0).into(),
            (saving(&runs.plain, outcome) * 100.0).into(),
            (outcome.state_s[2] / 3600.0).into(),
            ms(outcome.response.quantile_us(0.999)),
            ms(outcome.response.quantile_us(0.9995)),
        ];
        row.extend(rest.into_iter().chain(second).chain([rating.weekly().into()]));
        table.rows.push(row);
    };
    let none = || ["", "", "", "", "", ""].map(Cell::from);
    let starts = |wear: Wear| [wear.mean, wear.most].map(Cell::from);
    push("no disk sleeps", &runs.plain, none(), ["", ""].map(Cell::from));
    push("one disk a pair sleeps", &runs.sleeping, none(), starts(wear(rating, &runs.sleeping)));
    let [mean, most] = starts(first_wear(rating, outcome, whole));
    let rest = [
        ms(whole.hot_response.quantile_us(0.999)),
        ms(whole.hot_response.max_us()),
        (whole.cold_waits as f64).into(),
        whole.copied_gib.into(),
        mean,
        most,
    ];
    push("pairs sleep whole", outcome, rest, starts(wear(rating, outcome)));
    Some(table)
}

/// What starts cost where they draw more than idling.
fn starts_table(description: &Description, machine: &Machine, runs: &Runs) -> Table {
    let columns =
        ["W while starting", "starts", "their energy kJ", "saved %", "saved %, pairs sleeping whole"];
    let title = "Energy of starts, beyond the idling that the source counts (modelled)";
    let mut table = Table::new("starts", title, &columns);
    let pairs = description.array.disks / 2;
    let saved = |outcome: &Outcome, watts: f64| {
        let starts_j = outcome.starts(pairs) * machine.start_j(watts);
        (starts_j, (1.0 - (outcome.joules() + starts_j) / runs.plain.joules()) * 100.0)
    };
    for watts in description.sweep.start.iter().map(|start| start.get()) {
        let (starts_j, share) = saved(&runs.sleeping, watts);
        table.push([
            watts.into(),
            runs.sleeping.starts(pairs).into(),
            (starts_j / 1000.0).into(),
            share.into(),
            runs.whole.as_ref().map_or_else(|| Cell::from(""), |whole| saved(whole, watts).1.into()),
        ]);
    }
    table
}
