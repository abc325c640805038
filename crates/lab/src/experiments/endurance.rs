//! Endurance: how much of the greatest lifetime a memory keeps, with Start-Gap and without.

use crate::experiment::{Experiment, Kind, Published, Rule};
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use tierstone_base::{Error, ErrorKind, Result, SeededRandom};
use tierstone_media::region::MEMORY_PROFILES;
use tierstone_media::region::wear::lifetime::{LifetimeSettings, lifetime};
use tierstone_media::region::wear::start_gap::{PSI, Scatter, writes_until_worn};
use tierstone_workload::distribution::{Distribution, KeyChooser};

/// Writes that are drawn once and repeated until a place is worn.
const DRAWN: usize = 1 << 18;
/// The memory of the table of years, in bytes, as in Figure 5.7 of Pelley 2014, and how fast it is written.
const YEARS_BYTES: f64 = 32.0 * (1u64 << 30) as f64;
const YEARS_BYTES_PER_SECOND: f64 = 1e9;
const LINE_BYTES: f64 = 64.0;

const NONE: &str = "Zipf, no levelling: of the greatest lifetime";
const SCATTERED: &str = "Zipf, scattered Start-Gap: of the greatest lifetime";

/// The abstract of Start-Gap.
pub const EXPERIMENT: Experiment = Experiment {
    name: "endurance",
    title: "Endurance: Start-Gap against no levelling",
    source: "Qureshi et al. 2009 (MICRO), abstract; Pelley 2014 (University of Michigan), Figure 5.7 for its memory",
    measures: "A memory of few lines is written until one place was written as often as it bears: uniformly, by Zipf's law, \
               and always the same line; without levelling, with Start-Gap, and with Start-Gap behind a fixed random \
               permutation, the gap moving every 100 writes. The lines are few and the endurance is scaled: as many visits \
               of lines to a place fit into it whatever the size, so shares of the greatest lifetime compare, years do not. \
               Published: traces of programs on 16 GB, the mean. The table of years is worked out from shares of \
               writes for each preset.",
    kind: Kind::Modelled,
    published: &[
        Published {
            name: NONE,
            value: 0.05,
            unit: "ratio",
            place: "abstract: 5 % of the theoretical maximum",
            because: "whether uneven writes cost most of the lifetime; Zipf's law is more uneven than programs",
            rule: Rule::AtMost(0.1),
        },
        Published {
            name: SCATTERED,
            value: 0.97,
            unit: "ratio",
            place: "abstract: 97 % of the theoretical maximum",
            because: "whether two registers and a permutation bring it back; the gap itself costs 1 %",
            rule: Rule::AtLeast(0.9),
        },
    ],
    series: &[],
    space_bytes: |_| 0,
    run: measure,
};

/// How a memory is levelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Levelling {
    None,
    StartGap,
    Scattered,
}

const LEVELLINGS: [(Levelling, &str); 3] = [
    (Levelling::None, "none"),
    (Levelling::StartGap, "Start-Gap"),
    (Levelling::Scattered, "scattered Start-Gap"),
];

/// One memory, worn out.
#[derive(Clone, Copy, Debug)]
struct Worn {
    writes: &'static str,
    levelling: (Levelling, &'static str),
    /// The endurance, in stays of a line at a place.
    visits: u64,
    share: f64,
}

fn measure(run: &mut Run<'_>) -> Result<()> {
    let lines = run.pick(32, 128, 256);
    let visits = run.pick(&[8][..], &[1, 40], &[1, 4, 16, 64, 256]);
    run.set("lines", lines);
    run.set("writes between moves of the gap", PSI);
    run.expect_steps(3);
    let mut worn = Vec::new();
    for name in ["uniform", "Zipf", "one hot line"] {
        run.step(format!("{name} writes"))?;
        let drawn = draw(name, lines, run.next_seed())?;
        let scatter = Scatter::new(lines, run.next_seed());
        let runs = visits.len() * LEVELLINGS.len();
        for (number, &visits) in visits.iter().enumerate() {
            for (index, levelling) in LEVELLINGS.into_iter().enumerate() {
                let share = wear_out(&drawn, lines, visits * lines * PSI, levelling.0, &scatter);
                worn.push(Worn { writes: name, levelling, visits, share });
                run.go_on((number * LEVELLINGS.len() + index + 1) as f64 / runs as f64)?;
            }
        }
    }
    let most = visits.last().copied().unwrap_or(1);
    let of = |levelling: Levelling| {
        let mut found = worn.iter().filter(|worn| worn.writes == "Zipf" && worn.visits == most);
        found.find(|worn| worn.levelling.0 == levelling).map_or(f64::NAN, |worn| worn.share)
    };
    let detail = format!("{lines} lines, an endurance of {} writes", most * lines * PSI);
    run.compare(NONE, of(Levelling::None), &detail)?;
    run.compare(SCATTERED, of(Levelling::Scattered), &detail)?;
    report(run, &worn);
    years(run)
}

/// Lines that are written, in order.
fn draw(name: &str, lines: u64, seed: u64) -> Result<Vec<u64>> {
    let distribution = match name {
        "uniform" => Distribution::Uniform,
        "Zipf" => Distribution::ZIPF,
        _ => return Ok(vec![lines / 2]),
    };
    let (mut chooser, mut random) = (KeyChooser::new(distribution, lines)?, SeededRandom::new(seed));
    Ok((0..DRAWN).map(|_| chooser.choose(&mut random, lines)).collect())
}

/// The writes that a memory serves, of those that it would if all cells were written alike.
fn wear_out(drawn: &[u64], lines: u64, endurance: u64, levelling: Levelling, scatter: &Scatter) -> f64 {
    let mut next = drawn.iter().copied().cycle();
    let psi = (levelling != Levelling::None).then_some(PSI);
    let served = writes_until_worn(lines, psi, endurance, || {
        let line = next.next().unwrap_or_default();
        if levelling == Levelling::Scattered { scatter.place(line) } else { line }
    });
    served as f64 / (endurance * lines) as f64
}

fn report(run: &mut Run<'_>, worn: &[Worn]) {
    let mut table = Table::new(
        "shares",
        "Writes served, of what the memory would serve if all cells were written alike (modelled)",
        &["writes", "levelling", "endurance, in stays of a line", "share of the greatest lifetime"],
    );
    for found in worn {
        table.push([found.writes.into(), found.levelling.1.into(), found.visits.into(), found.share.into()]);
    }
    run.table(table);
    let line = |(levelling, name): (Levelling, &str)| {
        let found = worn.iter().filter(move |worn| worn.writes == "Zipf" && worn.levelling.0 == levelling);
        Series::new(name, found.map(|worn| (worn.visits as f64, worn.share)))
    };
    run.plot(Plot {
        name: "zipf".to_owned(),
        title: "Zipf's law: share of the greatest lifetime (modelled)".to_owned(),
        x: Axis::logarithmic("endurance, in stays of a line at a place"),
        y: Axis::linear("share of the greatest lifetime"),
        series: LEVELLINGS.into_iter().map(line).collect(),
    });
    run.note(
        "An endurance of one stay is that of a line that is never moved in time: Start-Gap alone helps only where cells \
         outlast the stay of their hottest line, as the publication's own extension against attackers says.",
    );
}

/// Years of each preset, written by Zipf's law.
fn years(run: &mut Run<'_>) -> Result<()> {
    let lines = run.pick(1_000, 10_000, 100_000);
    run.set("lines of a region in the table of years", lines);
    let mut counts = vec![0u64; lines];
    let (mut chooser, mut random) =
        (KeyChooser::new(Distribution::ZIPF, lines as u64)?, SeededRandom::new(run.next_seed()));
    for _ in 0..lines * 20 {
        if let Some(count) = counts.get_mut(chooser.choose(&mut random, lines as u64) as usize) {
            *count += 1;
        }
    }
    let mut table = Table::new(
        "years",
        "Years until the first cell is worn out: 32 GiB at 1 GB/s in equal regions, each written by Zipf's law and levelled by itself (modelled; endurance published)",
        &[
            "preset",
            "writes a cell (published)",
            "no levelling",
            "scattered Start-Gap",
            "perfect levelling",
            "endurance from",
        ],
    );
    for profile in &MEMORY_PROFILES {
        let Some(endurance) = profile.endurance_writes else { continue };
        // One of the regions: its part of the writes.
        let scale = lines as f64 * LINE_BYTES / YEARS_BYTES;
        let settings = LifetimeSettings {
            endurance_writes: endurance.value,
            line_writes_per_second: YEARS_BYTES_PER_SECOND / LINE_BYTES * scale,
            psi: PSI,
            scatter_seed: run.seed(),
        };
        let found = lifetime(&counts, &settings)?;
        let finite = [found.years_unlevelled, found.years_scattered, found.years_perfect];
        if finite.iter().any(|years| !years.is_finite()) {
            return Err(Error::new(ErrorKind::Unsupported, "a lifetime is no number"));
        }
        table.push([
            profile.name.into(),
            endurance.value.into(),
            found.years_unlevelled.into(),
            found.years_scattered.into(),
            found.years_perfect.into(),
            endurance.place.into(),
        ]);
    }
    run.table(table);
    Ok(())
}
