//! Delay precision: what a wait in the emulator of slower memories really takes.

use crate::experiment::{Experiment, Kind, Published, PublishedSeries, Rule};
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use tierstone_base::Result;
use tierstone_media::region::emulated::delay::{DelayFit, DelayLoop};

/// The published steps.
const PUBLISHED_STEPS: StepFit = StepFit { step_ns: 12.5, shift: 0.434, offset_ns: 10.1, r_squared: 0.997 };

const FIT: &str = "steps through the waits: R^2";
const OFFSET: &str = "steps through the waits: offset of a wait";
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
            place: "section 5.1: 12.5 floor(x / 12.5 + 0.434) + 10.1",
            because: "whether waits follow what is asked for in steps; at the smallest size there are few waits to fit",
            rule: Rule::AtLeast(0.99),
        },
        Published {
            name: OFFSET,
            value: 9.3,
            unit: "ns",
            place: "section 5.1: 10.1 + 12.5 (0.434 - 1/2), subtracted from every wait",
            because: "what has to be subtracted is a look at the counter, on each processor its own; agrees within three \
                      times",
            rule: Rule::Between(3.1, 27.9),
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
    let (fit, steps) = (DelayFit::through(&raw), StepFit::through(&raw));
    let turn = calibrated.step_ns();
    let detail = format!(
        "{:.1} ns subtracted, a turn of {turn:.1} ns, slope {:.4}",
        calibrated.fit().offset_ns,
        fit.slope
    );
    let found =
        format!("{:.1} floor(x / {0:.1} + {:.3}) + {:.1}", steps.step_ns, steps.shift, steps.offset_ns);
    run.compare(FIT, steps.r_squared, &found)?;
    run.compare(OFFSET, steps.wait_ns(), &detail)?;
    run.compare(RESIDUAL, fit.worst_residual_ns / turn, &format!("{:.1} ns", fit.worst_residual_ns))?;
    let at_30 = calibrated.measure(&[30.0]).first().map_or(f64::INFINITY, |point| (point.1 - 30.0).abs());
    run.compare(CORRECTED, at_30 / turn, &format!("{at_30:.1} ns"))?;
    report(run, &raw, &corrected, &steps);
    fits(run, &steps, &fit);
    Ok(())
}

/// Waits that rise in steps: `step floor(x / step + shift) + offset`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct StepFit {
    step_ns: f64,
    /// Parts of a step, 0 to 1.
    shift: f64,
    offset_ns: f64,
    r_squared: f64,
}

impl StepFit {
    /// The steps of least squares through `(asked, measured)`: step and shift on a grid, finer around the best; the offset
    /// of each is the mean of what is left.
    fn through(points: &[(f64, f64)]) -> StepFit {
        let grid = |from: f64, by: f64, count: u32| (0..count).map(move |place| from + by * f64::from(place));
        let best = |steps: &[f64], shifts: &[f64]| {
            let all = steps.iter().flat_map(|&step| shifts.iter().map(move |&shift| (step, shift)));
            let fits = all.map(|(step, shift)| StepFit::of(points, step, shift));
            fits.max_by(|one, other| one.r_squared.total_cmp(&other.r_squared))
        };
        let list = |from, by, count| grid(from, by, count).collect::<Vec<f64>>();
        let coarse = best(&list(1.0, 0.1, 600), &list(0.0, 0.025, 40));
        let Some(coarse) = coarse else { return StepFit::of(points, 1.0, 0.0) };
        let fine_shifts: Vec<f64> =
            grid(coarse.shift - 0.025, 0.0025, 21).filter(|shift| *shift >= 0.0).collect();
        best(&list(coarse.step_ns - 0.1, 0.005, 41), &fine_shifts).unwrap_or(coarse)
    }

    fn of(points: &[(f64, f64)], step_ns: f64, shift: f64) -> StepFit {
        let count = points.len().max(1) as f64;
        let bare = StepFit { step_ns, shift, offset_ns: 0.0, r_squared: 0.0 };
        let left = |&(asked, measured): &(f64, f64)| measured - bare.at(asked);
        let offset_ns = points.iter().map(left).sum::<f64>() / count;
        let mean = points.iter().map(|point| point.1).sum::<f64>() / count;
        let unexplained: f64 = points.iter().map(|point| (left(point) - offset_ns).powi(2)).sum();
        let total: f64 = points.iter().map(|point| (point.1 - mean).powi(2)).sum();
        let r_squared = if total > 0.0 { 1.0 - unexplained / total } else { 0.0 };
        StepFit { offset_ns, r_squared, ..bare }
    }

    /// What a wait of `asked` ns takes.
    fn at(&self, asked: f64) -> f64 {
        self.step_ns * (asked / self.step_ns + self.shift).floor() + self.offset_ns
    }

    /// How much longer than asked for a wait takes in the mean: from the middle of its step.
    fn wait_ns(&self) -> f64 {
        self.offset_ns + self.step_ns * (self.shift - 0.5)
    }
}

/// Both fits, with the published one.
fn fits(run: &mut Run<'_>, steps: &StepFit, line: &DelayFit) {
    let mut table = Table::new(
        "fits",
        "Fits of the waits as they are: a floor(x / a + b) + c (here: of the measured waits)",
        &["fit", "a, ns", "b", "c, ns", "R^2", "offset c + a (b - 1/2), ns"],
    );
    for (name, fit) in [("steps, here", steps), ("steps, published", &PUBLISHED_STEPS)] {
        let StepFit { step_ns, shift, offset_ns, r_squared } = *fit;
        let numbers = [step_ns, shift, offset_ns, r_squared, fit.wait_ns()].map(Into::into);
        let [a, b, c, r_squared, offset] = numbers;
        table.push([name.into(), a, b, c, r_squared, offset]);
    }
    let none = || "-".into();
    let name = format!("line, here, slope {:.4} (none published)", line.slope);
    table.push([name.as_str().into(), none(), none(), none(), line.r_squared.into(), line.offset_ns.into()]);
    run.table(table);
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

fn report(run: &mut Run<'_>, raw: &[(f64, f64)], corrected: &[(f64, f64)], steps: &StepFit) {
    let published = |ns: f64| PUBLISHED_STEPS.at(ns);
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
            Series::new("steps fitted here", raw.iter().map(|&(asked, _)| (asked, steps.at(asked)))),
            Series::new("published steps", raw.iter().map(|&(asked, _)| (asked, published(asked)))),
        ],
    });
}

#[cfg(test)]
#[path = "emulator_delay_test.rs"]
mod emulator_delay_test;
