//! What the source claims of its example and its case study, beside what comes out here.

use super::chiller::{self, Chiller};
use super::plant::Draw;
use super::servers::spread;
use super::steps::Claims;
use crate::parts::Row;

/// The chiller of the source's example: "3,200 kW" for 8 MW, outside 85 °F, water 45 °F.
pub(super) fn example() -> Chiller {
    Chiller::made_for(8_000.0, 0.4, 45.0, 85.0)
}

fn chiller_rows() -> Vec<Row> {
    let place = "A, chiller's example";
    let names = ["chiller: coefficient of U squared", "chiller: coefficient of U", "chiller: constant"];
    let here = example().polynomial(45.0, 85.0);
    let mut rows = Vec::new();
    for ((name, published), here) in names.into_iter().zip(chiller::PRINTED).zip(here) {
        let agrees = (here / published - 1.0).abs() <= 0.003;
        rows.push(Row::judged(
            name,
            published,
            here,
            "kW",
            place,
            agrees,
            "rule: within 0.3 %; the printed curves are those of DOE2 with public coefficients",
        ));
    }
    let gap = example().power(8_000.0, 45.0, 85.0) - example().power(8_000.0, 55.0, 85.0);
    rows.push(Row::judged(
        "water at 45 F beside 55 F, full load",
        500.0,
        gap,
        "kW",
        place,
        (450.0..=500.0).contains(&gap),
        "rule: 450 to 500 (\"nearly 500 kW\")",
    ));
    let full = chiller::printed_kw(1.0);
    rows.push(Row::judged(
        "printed polynomial at U = 1",
        3_200.0,
        full,
        "kW",
        place,
        (full / 3_200.0 - 1.0).abs() <= 0.003,
        "known slip of the source: its text says 3,200 kW, its polynomial gives 3,126",
    ));
    rows
}

/// The rows of the case study; `draws` are its six states, `ups_outside` are the claims of the steps where
/// the UPS stands outside the cooled room.
pub(super) fn rows(design: &Draw, draws: &[Draw], ups_outside: Option<Claims>) -> Vec<Row> {
    let mut rows = chiller_rows();
    let place = "A.2 and Table A.3";
    let (before, after) = (spread(0.25, 0.95), spread(0.25, 0.25));
    let near = |here: f64, published: f64| (here - published).abs() <= 0.005;
    for (name, published, here) in [
        ("utilisation of live servers, l = .95", 0.26, before.utilisation),
        ("utilisation of live servers, l = .25", 0.57, after.utilisation),
        ("live servers, l = .25", 0.44, after.live),
    ] {
        rows.push(Row::judged(
            name,
            published,
            here,
            "",
            place,
            near(here, published),
            "rule: equal when rounded",
        ));
    }
    let live = "known slip of the source: A.2 with l = .95 gives 96 % live servers";
    rows.push(Row::judged(
        "live servers, l = .95",
        0.81,
        before.live,
        "",
        place,
        near(before.live, 0.81),
        live,
    ));
    let losses = design.conditioning_kw() / design.servers_kw;
    rows.push(Row::judged(
        "losses of distribution over servers at peak",
        0.12,
        losses,
        "",
        "A.5",
        (losses - 0.12).abs() <= 0.0015,
        "rule: 12 %, with 3 % and 9 % taken of the servers' power; taken of the input they make 13.3 %",
    ));
    case_rows(draws, ups_outside, &mut rows);
    rows
}

/// What the text says of the steps.
fn case_rows(draws: &[Draw], ups_outside: Option<Claims>, rows: &mut Vec<Row>) {
    let place = "Figure A.10, text";
    let [_, ann_arbor, consolidated, napping, _, contained] = draws else { return };
    let change = napping.total_kw() / consolidated.total_kw() - 1.0;
    rows.push(Row::judged(
        "PowerNap: change of the total",
        -0.22,
        change,
        "",
        place,
        (-0.225..=-0.215).contains(&change),
        "rule: equal when rounded; \"6 % of peak\" read as of the servers' peak; what other readings give: table readings",
    ));
    if let (Some(after), Some(before)) = (consolidated.pue(), ann_arbor.pue()) {
        let pue = after / before;
        rows.push(Row::judged(
            "consolidation: PUE after over before (published: above 1)",
            1.0,
            pue,
            "",
            place,
            pue > 1.0 && consolidated.total_kw() < ann_arbor.total_kw(),
            "rule: the total falls and PUE rises",
        ));
    }
    let falls = draws.windows(2).filter(|pair| pair[1].total_kw() < pair[0].total_kw()).count();
    rows.push(Row::judged(
        "steps of the case study that lower the total",
        5.0,
        falls as f64,
        "",
        "Table A.3",
        falls == 5,
        "rule: all five",
    ));
    let mut limiting = |name: &str, here: f64, why: &str| {
        rows.push(Row::judged(name, 1.0, here, "", place, here > 1.0, why));
    };
    limiting(
        "containers: losses of distribution over cooling (published: the limiting factor)",
        contained.conditioning_kw() / contained.cooling_kw(),
        "rule: above 1; what distribution loses without load and where the UPS stands is not printed, the table readings shows what it needs",
    );
    if let Some(claims) = ups_outside {
        limiting(
            "containers: the same with the UPS outside the cooled room",
            claims.limiting,
            "rule: above 1; as described otherwise",
        );
    }
}
