//! Delay precision: what a wait in the emulator of slower memories really takes.

use crate::experiment::{Experiment, Kind, Published, PublishedSeries, Rule};
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use tierstone_base::Result;
use tierstone_media::region::emulated::delay::{DelayFit, DelayLoop};

/// The published steps: `a floor(x / a + b) + c`, in nanoseconds.
const STEP_NS: f64 = 12.5;
const STEP_SHIFT: f64 = 0.434;
const STEP_OFFSET_NS: f64 = 10.1;
/// The published line through them, and half a step.
const FIT: &str = "line through the waits: R^2";
const RESIDUAL: &str = "greatest distance from the line, in turns of the loop";
const CORRECTED: &str = "a wait of 30 ns, offset subtracted: error in turns of the loop";

/// Figure 5.1 of the dissertation.
pub const EXPERIMENT: Experiment = Experiment {
    name: "emulator-delay",
    title: "Delay precision of the emulator of slower memories",
    source: "Pelley 2014 (University of Michigan), Figure 5.1 and section 5.1",
    measures: "Waits of 5 to 230 ns by a loop over the processor's counter of time, each the median of many batches of \
               eight, without and with the offset of the calibration subtracted. Published: medians of ten thousand \
               waits of a 2.4 GHz Xeon of 2010, by RDTSCP; here LFENCE and RDTSC, or the counter of the processor.",
    kind: Kind::Measured,
    published: &[
        Published {
            name: FIT,
            value: 0.997,
            unit: "ratio",
            place: "Figure 5.1, section 5.1",
            because: "whether waits follow what is asked for",
            rule: Rule::AtLeast(0.99),
        },
        Published {
            name: RESIDUAL,
            value: 0.5,
            unit: "turns",
            place: "section 5.1: 12.5 ns a turn, so 6.25 ns",
            because: "whether a wait is as exact as its loop; a turn for what the median leaves",
            rule: Rule::AtMost(1.0),
        },
        Published {
            name: CORRECTED,
            value: 0.4,
            unit: "turns",
            place: "section 5.1: 35 ns for 30, a turn of 12.5 ns",
            because: "whether the offset is known",
            rule: Rule::AtMost(1.5),
        },
    ],
    series: &[PublishedSeries {
        name: "published steps",
        place: "section 5.1: 12.5 floor(x / 12.5 + 0.434) + 10.1",
        x: "asked, ns",
        y: "measured, ns",
        points: &[(20.0, 35.1), (30.0, 35.1), (50.0, 60.1), (100.0, 110.1), (150.0, 160.1), (200.0, 210.1)],
    }],
    space_bytes: |_| 0,
    run: measure,
};

fn measure(run: &mut Run<'_>) -> Result<()> {
    let repeats = run.pick(1, 3, 9);
    let step = run.pick(25, 5, 1);
    let asked: Vec<f64> = (1..=230 / step).map(|number| f64::from(number * step)).collect();
    run.set("repeats of a wait", repeats);
    run.expect_steps(2);
    let calibrated = *DelayLoop::of_machine();
    run.step("waits as they are")?;
    let raw = medians(run, &calibrated.uncorrected(), &asked, repeats)?;
    run.step("waits with the offset subtracted")?;
    let corrected = medians(run, &calibrated, &asked, repeats)?;
    let fit = DelayFit::through(&raw);
    let turn = calibrated.step_ns();
    let detail = format!(
        "{:.1} ns subtracted, a turn of {turn:.1} ns, slope {:.4}",
        calibrated.fit().offset_ns,
        fit.slope
    );
    run.compare(FIT, fit.r_squared, &detail)?;
    run.compare(RESIDUAL, fit.worst_residual_ns / turn, &format!("{:.1} ns", fit.worst_residual_ns))?;
    let at_30 = calibrated.measure(&[30.0]).first().map_or(f64::INFINITY, |point| (point.1 - 30.0).abs());
    run.compare(CORRECTED, at_30 / turn, &format!("{at_30:.1} ns"))?;
    report(run, &raw, &corrected);
    Ok(())
}

/// The median of repeated measurements of each wait.
fn medians(run: &mut Run<'_>, delay: &DelayLoop, asked: &[f64], repeats: usize) -> Result<Vec<(f64, f64)>> {
    let mut points = Vec::new();
    for (number, &ns) in asked.iter().enumerate() {
        let mut found: Vec<f64> =
            delay.measure(&vec![ns; repeats]).into_iter().map(|point| point.1).collect();
        found.sort_by(f64::total_cmp);
        points.push((ns, found.get(found.len() / 2).copied().unwrap_or_default()));
        run.go_on((number + 1) as f64 / asked.len() as f64)?;
    }
    Ok(points)
}

fn report(run: &mut Run<'_>, raw: &[(f64, f64)], corrected: &[(f64, f64)]) {
    let published = |ns: f64| STEP_NS * (ns / STEP_NS + STEP_SHIFT).floor() + STEP_OFFSET_NS;
    let mut table = Table::new(
        "waits",
        "Waits: asked and measured",
        &[
            "asked, ns",
            "as it is, ns (measured)",
            "offset subtracted, ns (measured)",
            "as it is, ns (published steps)",
        ],
    );
    for (&(asked, as_it_is), &(_, subtracted)) in raw.iter().zip(corrected) {
        table.push([asked.into(), as_it_is.into(), subtracted.into(), published(asked).into()]);
    }
    run.table(table);
    let series = |name: &str, points: &[(f64, f64)]| Series::new(name, points.iter().copied());
    run.plot(Plot {
        name: "waits".to_owned(),
        title: "Waits: asked and measured".to_owned(),
        x: Axis::linear("asked, ns"),
        y: Axis::linear("taken, ns"),
        series: vec![
            series("here, as it is", raw),
            series("here, offset subtracted", corrected),
            Series::new("published steps", raw.iter().map(|&(asked, _)| (asked, published(asked)))),
        ],
    });
}
