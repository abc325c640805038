//! What the source prints, beside what comes out here.

use super::cost::Terms;
use super::study::{MixNeeds, Needs};
use super::topology::{Kind, Topology};
use crate::number::number;
use crate::parts::Row;
use tierstone_base::Result;

/// Mean, greatest and deviation in kW of the mixes, as printed.
const MIXES: [(&str, [f64; 3]); 4] = [
    ("mixed", [180.5, 208.7, 9.0]),
    ("HPC only", [114.9, 116.4, 0.8]),
    ("medical only", [254.6, 263.6, 2.4]),
    ("mixed, idle 10 %", [99.8, 153.9, 18.9]),
];

fn trace_rows(mixes: &[MixNeeds], rows: &mut Vec<Row>) {
    for (name, [mean, most, deviation]) in MIXES {
        let Some(mix) = mixes.iter().find(|mix| mix.name == name) else { continue };
        let here = mix.summary;
        let why = "the trace is synthetic, made to come near";
        for (what, published, here, part) in [
            ("mean", mean, here.0, 0.05),
            ("greatest", most, here.1, 0.05),
            ("deviation", deviation, here.2, 0.25),
        ] {
            let range = (published * (1.0 - part), published * (1.0 + part));
            rows.push(Row::ranged(
                &format!("{name}: {what}"),
                published,
                here / 1e3,
                "kW",
                "Table of traces",
                range,
                why,
            ));
        }
    }
}

fn of<'a>(mixes: &'a [MixNeeds], mix: &str, kind: Kind) -> Option<&'a Needs> {
    let mix = mixes.iter().find(|found| found.name == mix)?;
    mix.needs.iter().find(|needs| needs.topology == kind.name())
}

/// What a room needs under a way to fix its feeds.
type Fixed = fn(&Needs) -> f64;

/// The ways to fix feeds where nothing is routed. The source prints that the means of PDUs are level, not how: kinds
/// spread evenly (the values here), kinds apart, or with reserves level as well.
const FIXED: [Fixed; 3] = [|needs| needs.by_means_w, |needs| needs.in_order_w, |needs| needs.unrouted_w];

/// A value that hangs on how feeds are fixed; `range` is in which it agrees.
fn fixed_row(
    (name, unit, place): (&str, &str, &str),
    published: f64,
    range: (f64, f64),
    why: &str,
    of: impl Fn(Fixed) -> f64,
) -> Row {
    let ways = FIXED.map(of);
    let (least, most) =
        (ways.iter().copied().fold(f64::INFINITY, f64::min), ways.iter().copied().fold(f64::MIN, f64::max));
    let why = format!(
        "{why}; how feeds are fixed is not printed, three ways of it give {} to {}",
        number(least),
        number(most)
    );
    Row::ranged(name, published, ways[0], unit, place, range, &why)
}

fn full_rows(full: &Needs, rows: &mut Vec<Row>) {
    let close = "1 to 5 % above what fractions of servers could do";
    rows.push(Row::ranged(
        "full, routed: over its bound",
        1.02,
        full.routed_w / full.bound_w,
        "",
        "Figure B.7",
        (1.0, 1.05),
        close,
    ));
    rows.push(Row::ranged(
        "full, routed",
        255.0,
        full.routed_w / 1e3,
        "kW",
        "Figure B.5",
        (242.0, 268.0),
        "within 5 %",
    ));
}

fn mixed_rows(mixes: &[MixNeeds], rows: &mut Vec<Row>) -> Option<()> {
    let get = |kind| of(mixes, "mixed", kind);
    let (wrapped, crossed) = (get(Kind::Wrapped)?, get(Kind::CrossRoads)?);
    let (serpentine, full) = (get(Kind::Serpentine)?, get(Kind::Full)?);
    full_rows(full, rows);
    rows.push(Row::ranged(
        "wrapped, routed: over the balanced bound",
        1.2,
        wrapped.routed_w / wrapped.balanced_w,
        "",
        "Figure B.7",
        (1.1, 1.3),
        "neighbours alone cannot level the clusters",
    ));
    rows.push(fixed_row(
        ("full, unrouted", "kW", "Figure B.5"),
        294.0,
        (279.0, 309.0),
        "within 5 %",
        |need| need(full) / 1e3,
    ));
    for (name, routed, published, range, why) in [
        ("serpentine routed beside wrapped unrouted", serpentine, -0.32, (-0.36, -0.28), "about 30 % less"),
        ("full routed beside wrapped unrouted", full, -0.35, (-0.40, -0.33), "\"more than 35 %\" less"),
    ] {
        rows.push(fixed_row((name, "", "Figure B.7"), published, range, why, |need| {
            routed.routed_w / need(wrapped) - 1.0
        }));
    }
    let shuffled = ("routing saves over the shuffled topologies, mean", "", "Figure B.7");
    rows.push(fixed_row(shuffled, 0.12, (0.08, 0.16), "about 12 %", |need| {
        let saved = |needs: &Needs| 1.0 - needs.routed_w / need(needs);
        [crossed, serpentine, full].map(saved).iter().sum::<f64>() / 3.0
    }));
    Some(())
}

fn homogeneous_rows(mixes: &[MixNeeds], rows: &mut Vec<Row>) {
    for (mix, published) in [("HPC only", 1.075), ("medical only", 1.05)] {
        let Some(needs) = of(mixes, mix, Kind::Wrapped) else { continue };
        let name = format!("{mix}, wrapped, unrouted: over the bound");
        rows.push(fixed_row((&name, "", "Figure B.9"), published, (1.0, 1.1), "little to gain", |need| {
            need(needs) / needs.balanced_w
        }));
    }
}

fn proportional_rows(mixes: &[MixNeeds], rows: &mut Vec<Row>) -> Option<()> {
    let get = |kind| of(mixes, "mixed, idle 10 %", kind);
    let (wrapped, serpentine) = (get(Kind::Wrapped)?, get(Kind::Serpentine)?);
    let name = ("idle 10 %: serpentine routed beside wrapped unrouted", "", "Figure B.10");
    rows.push(fixed_row(name, -0.47, (-0.51, -0.41), "about 45 % less", |need| {
        serpentine.routed_w / need(wrapped) - 1.0
    }));
    for (kind, published) in [(Kind::CrossRoads, 0.22), (Kind::Serpentine, 0.29), (Kind::Full, 0.28)] {
        let needs = get(kind)?;
        let name = format!("idle 10 %: routing saves in {}", kind.name());
        let range = (published - 0.08, published + 0.08);
        rows.push(fixed_row((&name, "", "Figure B.10"), published, range, "within 8 points", |need| {
            1.0 - needs.routed_w / need(needs)
        }));
    }
    Some(())
}

fn count_rows(counts: &[Needs], rows: &mut Vec<Row>) -> Option<()> {
    let get = |pdus: usize| counts.iter().find(|needs| needs.pdus == pdus);
    let (six, eight) = (get(6)?, get(8)?);
    rows.push(Row::ranged(
        "full, routed: 8 PDUs over 6 (published: falls)",
        1.0,
        eight.routed_w / six.routed_w,
        "",
        "Figure B.8",
        (0.5, 0.9999),
        "below 1",
    ));
    let rises = ("full, unrouted: 8 PDUs over 6 (published: rises)", "", "Figure B.8");
    let why = "above 1; the table over counts of PDUs shows where it rises here";
    rows.push(fixed_row(rises, 1.0, (1.0001, 2.0), why, |need| need(eight) / need(six)));
    Some(())
}

/// All rows for which the description has the rooms.
pub(super) fn rows(mixes: &[MixNeeds], counts: &[Needs]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (kind, published) in Kind::ALL.into_iter().zip([2.0, 3.0, 4.0, 5.0]) {
        let here = Topology::new(kind, 6, 1)?.connectivity() as f64;
        let name = format!("connectivity of {} with 6 PDUs", kind.name());
        rows.push(Row::ranged(&name, published, here, "", "B.2", (published, published), "exact"));
    }
    trace_rows(mixes, &mut rows);
    // A description without one of these rooms has no such row.
    let _ = mixed_rows(mixes, &mut rows);
    homogeneous_rows(mixes, &mut rows);
    let _ = proportional_rows(mixes, &mut rows);
    let _ = count_rows(counts, &mut rows);
    let terms = Terms { dollars_per_w: 15.0, years: 15.0, interest: 0.05 };
    let monthly = terms.monthly(208_700.0);
    rows.push(Row::ranged(
        "dollars a month for 208.7 kW",
        24_756.0,
        monthly,
        "$",
        "B.1",
        (24_755.0, 24_757.0),
        "exact",
    ));
    Ok(rows)
}
