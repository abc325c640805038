//! The report of a room.

use super::control::{Simulated, simulate};
use super::describe::Description;
use super::schedule::{Limits, Loads, least_capacity, pair_power, round, split};
use super::study::{MixNeeds, Needs, Room, run};
use super::synthetic::Class;
use super::trace::Trace;
use super::wiring::Wiring;
use super::{published, safety};
use crate::field::refused;
use crate::number::number;
use crate::parts::{Axis, Cell, Plot, Series, Table};
use crate::quantity::Power;
use crate::report::{FORMAT, Fact, Label, Report};
use tierstone_base::Result;

/// A room at the capacity that it gets.
struct Planned {
    room: Room,
    trace: Trace,
    needs: Needs,
    /// Of all PDUs, what cannot be controlled included, W.
    total_w: f64,
    limits: Limits,
    seen: Simulated,
}

pub(super) fn make(description: &Description, csv: Option<&str>) -> Result<Report> {
    let classes = description.class_list()?;
    let (trace, source) = match csv {
        Some(text) => {
            let of: Vec<&Class> =
                classes.iter().flat_map(|class| std::iter::repeat_n(class, class.servers)).collect();
            let power = |server: usize, utilisation| of[server].curve.watts(utilisation);
            (Trace::read_csv(text, of.len(), power)?, "a given trace".to_owned())
        }
        None => {
            let (trace, seed) = description.synthetic(&classes)?;
            (trace, format!("a synthetic trace of seed {seed}"))
        }
    };
    let planned = planned(description, &classes, trace)?;
    let (mixes, counts) = run(description)?;
    let mut report = Report {
        format: FORMAT,
        name: "routing".to_owned(),
        title: description.title.clone(),
        source: "S. Pelley, Database and System Design for Emerging Storage Technologies, 2014, Appendix B"
            .to_owned(),
        asked: asked(description, &planned, &source),
        answer: answer(description, &planned),
        facts: facts(description, &planned),
        rows: if description.compare.is_some() { published::rows(&mixes, &counts)? } else { Vec::new() },
        tables: vec![needs_table(
            "needs",
            "What the room needs without throttling (modelled)",
            [&planned.needs],
        )],
        plots: vec![demand_plot(&planned)],
        explanation: explanation(description, &planned)?,
        notes: notes(description, csv.is_some()),
    };
    report.tables.push(feeds_table(&planned)?);
    report.tables.push(cost_table(description, &classes, &planned));
    for mix in &mixes {
        let title = format!("{}: what each topology needs (modelled)", mix.name);
        report.tables.push(needs_table(&format!("mix-{}", file_name(&mix.name)), &title, &mix.needs));
    }
    if !counts.is_empty() {
        let title = "Fully connected, over counts of PDUs (modelled)";
        report.tables.push(needs_table("pdus", title, &counts));
        report.plots.push(counts_plot(&counts));
    }
    report.plots.extend(mixes.iter().map(mix_plot));
    if let Some(study) = description.study.as_ref().filter(|study| !study.short_fractions.is_empty()) {
        report.tables.push(short_table(description, &planned, &study.short_fractions)?);
    }
    Ok(report)
}

fn file_name(name: &str) -> String {
    let letters = name
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' });
    letters.collect::<String>().trim_matches('-').replace("--", "-")
}

fn planned(description: &Description, classes: &[Class], trace: Trace) -> Result<Planned> {
    if trace.summary().1 <= 0.0 {
        return Err(refused("the trace draws nothing at any time: there is nothing to plan"));
    }
    let room = Room::new(description.wires()?, classes, description)?;
    let (control, skew) = (description.controller(), description.phase_skew());
    let feeds = room.wiring.feeds();
    let uncontrolled_w = description.limits.uncontrolled_per_feed.get();
    let needs = room.needs(&trace, control, skew)?.beside(uncontrolled_w * feeds as f64);
    let total_w = description.capacity.total.map_or(needs.routed_w, Power::get);
    let limits = limits(total_w, feeds, skew, uncontrolled_w)?;
    let seen = simulate(&room.wiring, &limits, &room.idle_w, &trace, control, false).map_err(|error| {
        error.context(&format!(
            "{:.1} kW are too little for {:.1} kW at peak",
            total_w / 1e3,
            trace.summary().1 / 1e3
        ))
    })?;
    Ok(Planned { room, trace, needs, total_w, limits, seen })
}

/// What feeds leave to servers that can be controlled.
fn limits(total_w: f64, feeds: usize, phase_skew: f64, uncontrolled_w: f64) -> Result<Limits> {
    let mut limits = Limits::even(total_w, feeds, phase_skew);
    for feed in &mut limits.feed_w {
        *feed -= uncontrolled_w;
        if *feed <= 0.0 {
            return Err(refused(format!(
                "{:.1} kW give each of {feeds} feeds {:.0} W, but {uncontrolled_w:.0} W of it cannot be controlled: {:.0} W are missing a feed",
                total_w / 1e3,
                *feed + uncontrolled_w,
                -*feed
            )));
        }
    }
    Ok(limits)
}

fn asked(description: &Description, planned: &Planned, source: &str) -> Vec<String> {
    let topology = &planned.room.topology;
    let (mean, most, deviation) = planned.trace.summary();
    let mut asked = vec![
        format!(
            "{} servers under {} PDUs, {} (each PDU is taken over by {} others)",
            planned.trace.servers(),
            topology.pdus,
            topology.name,
            planned.needs.connectivity
        ),
        format!(
            "{source}, {} samples: mean {:.1} kW, greatest {:.1} kW, deviation {:.1} kW",
            planned.trace.samples(),
            mean / 1e3,
            most / 1e3,
            deviation / 1e3
        ),
        "any one PDU may fail at any time without a server losing power".to_owned(),
    ];
    let uncontrolled_w = uncontrolled_w(description, planned);
    if uncontrolled_w > 0.0 {
        asked.push(format!(
            "{} kW of other load that cannot be controlled, on all feeds alike; every capacity below holds it too",
            number(uncontrolled_w / 1e3)
        ));
    }
    if let Some(total) = description.capacity.total {
        asked.push(format!("a capacity of {} kW", number(total.get() / 1e3)));
    }
    asked
}

/// What cannot be controlled on all feeds together, W.
fn uncontrolled_w(description: &Description, planned: &Planned) -> f64 {
    description.limits.uncontrolled_per_feed.get() * planned.room.wiring.feeds() as f64
}

fn answer(description: &Description, planned: &Planned) -> Vec<String> {
    let (least, fixed) = (planned.needs.routed_w, planned.needs.unrouted_w);
    let mut answer = vec![format!(
        "{:.1} kW carry this room with power routing, {:.1} kW with feeds chosen once: {:.1} % less (modelled)",
        least / 1e3,
        fixed / 1e3,
        100.0 * (1.0 - least / fixed)
    )];
    if description.capacity.total.is_some() {
        let missing = least - planned.total_w;
        answer.insert(0, if planned.seen.throttled_samples == 0 {
            format!("{:.1} kW are enough: no server is throttled in {} samples", planned.total_w / 1e3, planned.trace.samples())
        } else {
            format!(
                "{:.1} kW are too little by {:.1} kW: {:.3} % of the energy asked for is refused, in {} of {} samples",
                planned.total_w / 1e3,
                missing.max(0.0) / 1e3,
                100.0 * planned.seen.unmet,
                planned.seen.throttled_samples,
                planned.trace.samples()
            )
        });
    }
    let terms = description.terms();
    answer.push(format!(
        "${} a month for {:.1} kW, at ${} a watt over {} years at {} %",
        number(terms.monthly(planned.total_w).round()),
        planned.total_w / 1e3,
        terms.dollars_per_w,
        terms.years,
        100.0 * terms.interest
    ));
    answer.push(if planned.seen.safe {
        "After every schedule each single failing PDU was gone through: no feed was overloaded".to_owned()
    } else {
        "A schedule overloads a feed when some PDU fails".to_owned()
    });
    answer
}

fn facts(description: &Description, planned: &Planned) -> Vec<Fact> {
    let (needs, seen) = (&planned.needs, &planned.seen);
    let fact = |name: &str, value: f64, unit: &str| Fact {
        name: name.to_owned(),
        value,
        unit: unit.to_owned(),
        label: Label::Modelled,
    };
    vec![
        fact("capacity", planned.total_w / 1e3, "kW"),
        fact("of it for loads that cannot be controlled", uncontrolled_w(description, planned) / 1e3, "kW"),
        fact("least capacity, routed", needs.routed_w / 1e3, "kW"),
        fact("least capacity, unrouted", needs.unrouted_w / 1e3, "kW"),
        fact("bound of the linear program", needs.bound_w / 1e3, "kW"),
        fact("energy refused", 100.0 * seen.unmet, "%"),
        fact("schedules", seen.schedules as f64, ""),
        fact("schedules with caps below requests", seen.cappings as f64, ""),
        fact("schedules that could not keep phases even", seen.unsolved as f64, ""),
        fact("price", description.terms().monthly(planned.total_w), "$/month"),
    ]
}

fn needs_table<'a>(name: &str, title: &str, needs: impl IntoIterator<Item = &'a Needs>) -> Table {
    let heads = [
        "topology",
        "PDUs",
        "connectivity",
        "balanced bound kW",
        "bound kW",
        "fixed by PDUs' means kW",
        "the same, kinds apart kW",
        "fixed with reserves kW",
        "routed kW",
        "routing saves %",
        "routed over bound %",
    ];
    let mut table = Table::new(name, title, &heads);
    for need in needs {
        table.push([
            need.topology.as_str().into(),
            (need.pdus as u64).into(),
            (need.connectivity as u64).into(),
            (need.balanced_w / 1e3).into(),
            (need.bound_w / 1e3).into(),
            (need.by_means_w / 1e3).into(),
            (need.in_order_w / 1e3).into(),
            (need.unrouted_w / 1e3).into(),
            (need.routed_w / 1e3).into(),
            (100.0 * need.saved()).into(),
            (100.0 * (need.routed_w / need.bound_w - 1.0)).into(),
        ]);
    }
    table
}

/// The sample with the greatest total.
fn peak_sample(trace: &Trace) -> usize {
    let totals = trace.totals();
    (0..totals.len()).max_by(|&a, &b| totals[a].total_cmp(&totals[b])).unwrap_or(0)
}

fn feeds_table(planned: &Planned) -> Result<Table> {
    let (wiring, limits) = (&planned.room.wiring, &planned.limits);
    let demand = planned.trace.sample(peak_sample(&planned.trace));
    let division = split(wiring, &pair_power(wiring, &demand), limits)?;
    let sides = round(wiring, &demand, &division, limits).sides;
    let loads = Loads::of(wiring, &sides, &demand);
    let heads = ["feed", "load kW", "with its worst takeover kW", "capacity for servers kW", "spare kW"];
    let mut table = Table::new("feeds", "Feeds at the greatest demand, scheduled (modelled)", &heads);
    for (feed, (need, capacity)) in loads.needs(wiring).into_iter().zip(&limits.feed_w).enumerate() {
        table.push([
            Wiring::feed_name(feed).into(),
            (loads.feed_w[feed] / 1e3).into(),
            (need / 1e3).into(),
            (capacity / 1e3).into(),
            ((capacity - need) / 1e3).into(),
        ]);
    }
    Ok(table)
}

fn cost_table(description: &Description, classes: &[Class], planned: &Planned) -> Table {
    let peaks = planned.trace.peaks();
    let (mean, most, _) = planned.trace.summary();
    let mut first = 0;
    let (mut nameplate, mut class_peak) = (0.0, 0.0);
    for (class, described) in classes.iter().zip(&description.classes) {
        let own = &peaks[first..first + class.servers];
        nameplate += described.nameplate.get() * class.servers as f64;
        class_peak += own.iter().copied().fold(0.0, f64::max) * class.servers as f64;
        first += class.servers;
    }
    let heads = ["provisioned for", "kW", "$ a month"];
    let mut table = Table::new(
        "cost",
        "What capacity costs (modelled; only the last two hold the reserve for a failing PDU and what cannot be controlled)",
        &heads,
    );
    for (name, watts) in [
        ("nameplates", nameplate),
        ("the greatest power of each class, all at once", class_peak),
        ("the greatest total", most),
        ("the mean", mean),
        ("any PDU failing, unrouted", planned.needs.unrouted_w),
        ("any PDU failing, routed", planned.needs.routed_w),
    ] {
        table.push([name.into(), (watts / 1e3).into(), description.terms().monthly(watts).into()]);
    }
    table
}

fn short_table(description: &Description, planned: &Planned, parts: &[f64]) -> Result<Table> {
    let heads = ["part of the least capacity", "kW", "energy refused %", "throttled samples", "schedules"];
    let mut table = Table::new("short", "The room with too little (modelled)", &heads);
    for &part in parts {
        let total = planned.needs.routed_w * part;
        let (room, control) = (&planned.room, description.controller());
        let (skew, other) = (planned.limits.phase_skew, description.limits.uncontrolled_per_feed.get());
        let seen = limits(total, room.wiring.feeds(), skew, other)
            .and_then(|limits| simulate(&room.wiring, &limits, &room.idle_w, &planned.trace, control, false));
        match seen {
            Ok(seen) => table.push([
                part.into(),
                (total / 1e3).into(),
                (100.0 * seen.unmet).into(),
                seen.throttled_samples.into(),
                seen.schedules.into(),
            ]),
            Err(error) => {
                let none = || Cell::from("-");
                table.push([part.into(), (total / 1e3).into(), error.message().into(), none(), none()]);
            }
        }
    }
    Ok(table)
}

fn demand_plot(planned: &Planned) -> Plot {
    let series = &planned.seen.series;
    // A picture shows no more than this many points.
    let step = series.len().div_ceil(1_440).max(1);
    let line = |of: fn(&(f64, f64)) -> f64| -> Vec<(f64, f64)> {
        series
            .iter()
            .enumerate()
            .step_by(step)
            .map(|(sample, both)| (sample as f64, of(both) / 1e3))
            .collect()
    };
    let capacity = planned.total_w / 1e3;
    Plot {
        name: "demand".to_owned(),
        title: "Power asked for and granted (modelled)".to_owned(),
        x: Axis::linear("sample"),
        y: Axis::linear("kW"),
        series: vec![
            Series::new("asked for", line(|both| both.0)),
            Series::new("granted", line(|both| both.1)),
            Series::new(
                "capacity, with the reserve for a failing PDU",
                [(0.0, capacity), (series.len() as f64, capacity)],
            ),
        ],
    }
}

fn lines(name: &str, title: &str, label: &str, points: &[(f64, &Needs)]) -> Plot {
    let line = |of: fn(&Needs) -> f64| -> Vec<(f64, f64)> {
        points.iter().map(|(x, needs)| (*x, of(needs) / 1e3)).collect()
    };
    Plot {
        name: name.to_owned(),
        title: title.to_owned(),
        x: Axis::linear(label),
        y: Axis::linear("kW"),
        series: vec![
            Series::new("fixed by PDUs' means", line(|needs| needs.by_means_w)),
            Series::new("the same, kinds apart", line(|needs| needs.in_order_w)),
            Series::new("fixed with reserves", line(|needs| needs.unrouted_w)),
            Series::new("routed", line(|needs| needs.routed_w)),
            Series::new("bound", line(|needs| needs.bound_w)),
        ],
    }
}

fn counts_plot(counts: &[Needs]) -> Plot {
    let points: Vec<(f64, &Needs)> = counts.iter().map(|needs| (needs.pdus as f64, needs)).collect();
    lines("pdus", "Least capacity, fully connected (modelled)", "PDUs", &points)
}

fn mix_plot(mix: &MixNeeds) -> Plot {
    let points: Vec<(f64, &Needs)> =
        mix.needs.iter().map(|needs| (needs.connectivity as f64, needs)).collect();
    let title = format!("{}: least capacity (modelled)", mix.name);
    lines(&format!("mix-{}", file_name(&mix.name)), &title, "connectivity", &points)
}

fn explanation(description: &Description, planned: &Planned) -> Result<Vec<String>> {
    let (wiring, limits) = (&planned.room.wiring, &planned.limits);
    let sample = peak_sample(&planned.trace);
    let demand = planned.trace.sample(sample);
    let power = pair_power(wiring, &demand);
    let (_, least) = least_capacity(wiring, &power, limits.phase_skew)?;
    let division = split(wiring, &power, limits)?;
    let rounded = round(wiring, &demand, &division, limits);
    let pending: u32 = rounded.pending.iter().sum();
    let overloads = safety::overloads(wiring, &rounded.sides, &demand, &limits.feed_w);
    let c = planned.needs.connectivity as f64;
    let mut lines = vec![
        format!(
            "{} feeds (3 phases a PDU), {} pairs of feeds with servers",
            wiring.feeds(),
            wiring.pairs.len()
        ),
        format!(
            "Balanced bound: greatest total x (c + 1) / c = {:.1} kW x {:.4}",
            planned.trace.summary().1 / 1e3,
            (c + 1.0) / c
        ),
        format!(
            "Sample {sample}, the greatest: the linear program (B.1 to B.5) needs {:.2} kW of equal feeds for the servers",
            least / 1e3
        ),
        format!(
            "At {:.2} kW its slack is {:.0} W a feed; below zero even fractions of servers would be capped",
            planned.total_w / 1e3,
            division.slack_w
        ),
        format!(
            "Rounding: {pending} servers fitted on no side of their pair (at most one a pair) and went where more remained"
        ),
    ];
    lines.push(match overloads.first() {
        None => "Every single failing PDU gone through: no feed overloaded, caps are the requests".to_owned(),
        Some(worst) => {
            format!("Whole servers overload a feed, so the capping program lowers caps: {}", worst.told())
        }
    });
    lines.push(format!(
        "Control loop: {} schedules in {} samples, {} with caps below requests; every other request was granted where the server ran",
        planned.seen.schedules,
        planned.trace.samples(),
        planned.seen.cappings
    ));
    lines.push("Least routed capacity: bisection to 0.1 % over the control loop; unrouted: feeds by known means, the worst need of any feed at any sample for every feed".to_owned());
    lines.push(format!(
        "Monthly part of the price: r / (1 - (1 + r)^-n) = {:.7}",
        description.terms().monthly_part()
    ));
    Ok(lines)
}

fn notes(description: &Description, from_csv: bool) -> Vec<String> {
    let mut notes = vec![
        "The printed constraint B.2 has x_ij inside its sum over l (it must be x_il), and Slack is called the \"maximum unallocated\" power; it is the least spare of any feed, made as large as possible. Built in the repaired form.".to_owned(),
        "B.3.3 takes desired budgets from the last minute's peak, B.4 from its average: `control.budget` decides; the present sample counts.".to_owned(),
        "All PDUs are equally large. Breakers of single circuits, priorities and the price of cables are left out. Correlated peaks beyond the trace can still throttle.".to_owned(),
        "The balanced bound holds for perfect balance; the bound is the linear program's for this very wiring.".to_owned(),
    ];
    if from_csv && description.study.is_none() && (description.seed.is_some() || description.length.is_some())
    {
        notes.push(
            "A trace was given: `seed`, `length` and `activity` of the description are not used.".to_owned(),
        );
    }
    if !from_csv || description.study.is_some() {
        notes.push("The trace is synthetic: the published ones are not public.".to_owned());
    }
    notes
}
