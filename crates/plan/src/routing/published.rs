//! What the source prints, beside what comes out here.

use super::cost::Terms;
use super::study::{MixNeeds, Needs};
use super::topology::{Kind, Topology};
use crate::number::number;
use crate::parts::{Row, Verdict};
use tierstone_base::Result;

fn row(
    name: &str,
    published: f64,
    here: f64,
    unit: &str,
    place: &str,
    range: (f64, f64),
    because: &str,
) -> Row {
    let (low, high) = range;
    Row {
        name: name.to_owned(),
        published,
        here,
        unit: unit.to_owned(),
        place: place.to_owned(),
        verdict: if (low..=high).contains(&here) { Verdict::Agrees } else { Verdict::Differs },
        because: format!("rule: {} to {}; {because}", number(low), number(high)),
    }
}

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
            rows.push(row(
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

/// How feeds are fixed where nothing is routed: words, and what a room then needs.
type Fixed = (&'static str, fn(&Needs) -> f64);

/// The source prints that the means of PDUs are balanced, not how; reserves may be levelled too, or not.
const FIXED: [Fixed; 2] =
    [("by means", |needs| needs.by_means_w), ("with reserves", |needs| needs.unrouted_w)];

fn full_rows(full: &Needs, rows: &mut Vec<Row>) {
    let close = "1 to 5 % above what fractions of servers could do";
    rows.push(row(
        "full, routed: over its bound",
        1.02,
        full.routed_w / full.bound_w,
        "",
        "Figure B.7",
        (1.0, 1.05),
        close,
    ));
    rows.push(row(
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
    rows.push(row(
        "wrapped, routed: over the balanced bound",
        1.2,
        wrapped.routed_w / wrapped.balanced_w,
        "",
        "Figure B.7",
        (1.1, 1.3),
        "neighbours alone cannot level the clusters",
    ));
    for (fixed, need) in FIXED {
        mixed_fixed_rows(fixed, need, [wrapped, crossed, serpentine, full], rows);
    }
    Some(())
}

fn mixed_fixed_rows(fixed: &str, need: fn(&Needs) -> f64, rooms: [&Needs; 4], rows: &mut Vec<Row>) {
    let [wrapped, crossed, serpentine, full] = rooms;
    rows.push(row(
        &format!("full, unrouted, fixed {fixed}"),
        294.0,
        need(full) / 1e3,
        "kW",
        "Figure B.5",
        (279.0, 309.0),
        "within 5 %",
    ));
    let saved = |needs: &Needs| needs.routed_w / need(wrapped) - 1.0;
    rows.push(row(
        &format!("serpentine routed beside wrapped fixed {fixed}"),
        -0.32,
        saved(serpentine),
        "",
        "Figure B.7",
        (-0.36, -0.28),
        "about 30 % less",
    ));
    rows.push(row(
        &format!("full routed beside wrapped fixed {fixed}"),
        -0.35,
        saved(full),
        "",
        "Figure B.7",
        (-0.40, -0.33),
        "\"more than 35 %\" less",
    ));
    let saving = |needs: &Needs| 1.0 - needs.routed_w / need(needs);
    rows.push(row(
        &format!("routing saves over the shuffled topologies, mean, beside fixed {fixed}"),
        0.12,
        [crossed, serpentine, full].map(saving).iter().sum::<f64>() / 3.0,
        "",
        "Figure B.7",
        (0.08, 0.16),
        "about 12 %",
    ));
}

fn homogeneous_rows(mixes: &[MixNeeds], rows: &mut Vec<Row>) {
    for (mix, published) in [("HPC only", 1.075), ("medical only", 1.05)] {
        let Some(needs) = of(mixes, mix, Kind::Wrapped) else { continue };
        for (fixed, need) in FIXED {
            rows.push(row(
                &format!("{mix}, wrapped, fixed {fixed}: over the bound"),
                published,
                need(needs) / needs.balanced_w,
                "",
                "Figure B.9",
                (1.0, 1.1),
                "little to gain",
            ));
        }
    }
}

fn proportional_rows(mixes: &[MixNeeds], rows: &mut Vec<Row>) -> Option<()> {
    let get = |kind| of(mixes, "mixed, idle 10 %", kind);
    let (wrapped, serpentine) = (get(Kind::Wrapped)?, get(Kind::Serpentine)?);
    for (fixed, need) in FIXED {
        rows.push(row(
            &format!("idle 10 %: serpentine routed beside wrapped fixed {fixed}"),
            -0.47,
            serpentine.routed_w / need(wrapped) - 1.0,
            "",
            "Figure B.10",
            (-0.51, -0.41),
            "about 45 % less",
        ));
        for (kind, published) in [(Kind::CrossRoads, 0.22), (Kind::Serpentine, 0.29), (Kind::Full, 0.28)] {
            let needs = get(kind)?;
            rows.push(row(
                &format!("idle 10 %: routing saves in {} beside fixed {fixed}", kind.name()),
                published,
                1.0 - needs.routed_w / need(needs),
                "",
                "Figure B.10",
                (published - 0.08, published + 0.08),
                "within 8 points",
            ));
        }
    }
    Some(())
}

fn count_rows(counts: &[Needs], rows: &mut Vec<Row>) -> Option<()> {
    let get = |pdus: usize| counts.iter().find(|needs| needs.pdus == pdus);
    let (six, eight) = (get(6)?, get(8)?);
    rows.push(row(
        "full, routed: 8 PDUs over 6 (published: falls)",
        1.0,
        eight.routed_w / six.routed_w,
        "",
        "Figure B.8",
        (0.5, 0.9999),
        "below 1",
    ));
    for (fixed, need) in FIXED {
        rows.push(row(
            &format!("full, fixed {fixed}: 8 PDUs over 6 (published: rises)"),
            1.0,
            need(eight) / need(six),
            "",
            "Figure B.8",
            (1.0001, 2.0),
            "above 1; the table over counts of PDUs shows where it rises here",
        ));
    }
    Some(())
}

/// All rows for which the description has the rooms.
pub(super) fn rows(mixes: &[MixNeeds], counts: &[Needs]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (kind, published) in Kind::ALL.into_iter().zip([2.0, 3.0, 4.0, 5.0]) {
        let here = Topology::new(kind, 6, 1)?.connectivity() as f64;
        let name = format!("connectivity of {} with 6 PDUs", kind.name());
        rows.push(row(&name, published, here, "", "B.2", (published, published), "exact"));
    }
    trace_rows(mixes, &mut rows);
    // A description without one of these rooms has no such row.
    let _ = mixed_rows(mixes, &mut rows);
    homogeneous_rows(mixes, &mut rows);
    let _ = proportional_rows(mixes, &mut rows);
    let _ = count_rows(counts, &mut rows);
    let terms = Terms { dollars_per_w: 15.0, years: 15.0, interest: 0.05 };
    let monthly = terms.monthly(208_700.0);
    rows.push(row(
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
