//! The report of a plant.

use super::calibrate::{Factor, calibrate, operation};
use super::describe::{Case, Description, Over, Sweep};
use super::plant::{Draw, Plant};
use super::{published, steps};
use crate::field::{refused, within};
use crate::number::number;
use crate::parts::{Axis, Cell, Plot, Series, Table};
use crate::report::{FORMAT, Fact, Label, Report};
use tierstone_base::Result;

pub(super) fn make(description: &Description) -> Result<Report> {
    let mut cases = description.cases()?;
    let mut calibrated = None;
    if !description.measured.is_empty() {
        let (plant, factors) = calibrate(&cases[0].plant, &cases[0].at, &description.measured)?;
        let table = calibration(&plant, &cases[0], description, &factors)?;
        for (case, scenario) in
            cases.iter_mut().zip(std::iter::once(None).chain(description.scenarios.iter().map(Some)))
        {
            let curve = case.plant.curve.clone();
            case.plant = plant.clone();
            if scenario.is_some() {
                // A scenario's own idle power is kept, under the factor of the servers.
                let factor = plant.curve.peak_w() / curve.peak_w();
                case.plant.curve = curve.scaled(factor);
            }
        }
        calibrated = Some(table);
    }
    let mut draws = Vec::new();
    for case in &cases {
        draws.push(
            case.plant.draw(&case.at).map_err(|error| error.context(&format!("scenario {}", case.name)))?,
        );
    }
    let design = description.plant()?.draw(&description.design_operation())?;
    let mut report = Report {
        format: FORMAT,
        name: "power".to_owned(),
        title: description.title.clone(),
        source: "S. Pelley, Database and System Design for Emerging Storage Technologies, 2014, Appendix A; \
                 chiller: DOE2 with the curves of the California Energy Commission"
            .to_owned(),
        asked: asked(&cases),
        answer: answer(&cases, &draws),
        facts: facts(&cases, &draws),
        rows: Vec::new(),
        tables: vec![breakdown(&cases, &draws), temperatures(&cases, &draws)],
        plots: Vec::new(),
        explanation: explanation(&cases[0], &draws[0]),
        notes: notes(description, &draws),
    };
    report.tables.extend(calibrated);
    report.tables.push(sensitivity(&cases[0], &mut report.notes)?);
    for sweep in &description.sweeps {
        let (table, plot) = swept(&cases[0], sweep, &mut report.notes)?;
        report.tables.push(table);
        report.plots.push(plot);
    }
    if description.compare.is_some() {
        report.rows = published::rows(&design, &draws, steps::ups_outside(description)?);
        report.tables.push(steps::table(description)?);
        report.plots.push(chiller_plot());
    }
    Ok(report)
}

fn asked(cases: &[Case]) -> Vec<String> {
    let first = &cases[0];
    let mut asked = vec![format!(
        "{} servers of {} W at peak, {} W without load; {} PDUs, {} air handlers, a chiller for {} kW of heat",
        number(first.plant.servers.round()),
        number(first.plant.curve.peak_w()),
        number(first.plant.curve.watts(0.0)),
        number(first.plant.conditioning.pdus.round()),
        number(first.plant.air_handlers.count.round()),
        number(first.plant.chiller.heat_kw.round()),
    )];
    for case in cases {
        let cooling = if case.at.optimal_cooling { "water as warm as possible" } else { "set points" };
        asked.push(format!(
            "{}: utilisation {}, outside {} F, l {}, containment {}, idle power {} of peak, {cooling}",
            case.name,
            number(case.at.utilisation),
            number(case.at.outside_f),
            number(case.at.load_balance),
            number(case.at.containment),
            number(case.plant.curve.watts(0.0) / case.plant.curve.peak_w()),
        ));
    }
    asked
}

fn answer(cases: &[Case], draws: &[Draw]) -> Vec<String> {
    let line = |case: &Case, draw: &Draw| {
        let pue =
            draw.pue().map_or_else(|| "no PUE: servers draw nothing".into(), |pue| format!("PUE {pue:.2}"));
        format!("{}: {} kW in all, {pue} (modelled)", case.name, number(draw.total_kw().round()))
    };
    let mut answer: Vec<String> = cases.iter().zip(draws).map(|(case, draw)| line(case, draw)).collect();
    if let ([first, .., last], [one, .., other]) = (cases, draws) {
        let saved = one.total_kw() - other.total_kw();
        answer.insert(
            0,
            format!(
                "From {} to {}: {} kW less, {:.0} % (modelled)",
                first.name,
                last.name,
                number(saved.round()),
                100.0 * saved / one.total_kw()
            ),
        );
    }
    answer
}

fn facts(cases: &[Case], draws: &[Draw]) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut add = |name: String, value: f64, unit: &str| {
        facts.push(Fact { name, value, unit: unit.to_owned(), label: Label::Modelled });
    };
    for (case, draw) in cases.iter().zip(draws) {
        add(format!("{}: total", case.name), draw.total_kw(), "kW");
        if let Some(pue) = draw.pue() {
            add(format!("{}: PUE", case.name), pue, "");
        }
    }
    facts
}

/// A dash where there is no number.
fn or_dash(value: Option<f64>) -> Cell {
    value.map_or_else(|| "-".into(), Cell::from)
}

fn breakdown(cases: &[Case], draws: &[Draw]) -> Table {
    let heads = [
        "scenario",
        "servers kW",
        "PDU loss kW",
        "UPS loss kW",
        "air handlers kW",
        "chiller kW",
        "fixed kW",
        "total kW",
        "change %",
        "PUE",
    ];
    let mut table = Table::new("power", "Power by component (modelled)", &heads);
    let mut before = None;
    for (case, draw) in cases.iter().zip(draws) {
        let total = draw.total_kw();
        let change = before.map_or(f64::NAN, |before: f64| 100.0 * (total / before - 1.0));
        table.push([
            case.name.as_str().into(),
            draw.servers_kw.into(),
            draw.pdu_kw.into(),
            draw.ups_kw.into(),
            draw.air_kw.into(),
            draw.chiller_kw.into(),
            draw.fixed_kw.into(),
            total.into(),
            change.into(),
            or_dash(draw.pue()),
        ]);
        before = Some(total);
    }
    table
}

fn temperatures(cases: &[Case], draws: &[Draw]) -> Table {
    let heads = [
        "scenario",
        "live servers",
        "their utilisation",
        "air flow CFM",
        "part of flow",
        "supply F",
        "inlet F",
        "exhaust F",
        "return F",
        "water F",
        "heat kW",
        "chiller's part load",
    ];
    let mut table = Table::new("loop", "Air and water (modelled)", &heads);
    for (case, draw) in cases.iter().zip(draws) {
        table.push([
            case.name.as_str().into(),
            draw.spread.live.into(),
            draw.spread.utilisation.into(),
            draw.flow_cfm.into(),
            draw.flow_part.into(),
            draw.air.supply_f.into(),
            draw.air.inlet_f.into(),
            draw.air.exhaust_f.into(),
            draw.air.return_f.into(),
            draw.water_f.into(),
            draw.heat_kw.into(),
            draw.part_load.into(),
        ]);
    }
    table
}

fn calibration(plant: &Plant, case: &Case, description: &Description, factors: &[Factor]) -> Result<Table> {
    let heads = ["component", "points", "factor", "error before kW", "error after kW"];
    let mut table = Table::new("calibration", "The model fitted to what was measured", &heads);
    for factor in factors {
        table.push([
            factor.component.into(),
            (factor.points as u64).into(),
            factor.factor.into(),
            factor.error_before_kw.into(),
            factor.error_after_kw.into(),
        ]);
    }
    let totals = |plant: &Plant| -> Result<(usize, f64)> {
        let (mut count, mut squares) = (0, 0.0);
        for point in &description.measured {
            if let Some(total) = point.total {
                let total = total.within("measured: total", 0.0, 1e10)? / 1_000.0;
                squares += (total - plant.draw(&operation(&case.at, point))?.total_kw()).powi(2);
                count += 1;
            }
        }
        Ok((count, (squares / count.max(1) as f64).sqrt()))
    };
    let ((count, before), (_, after)) = (totals(&case.plant)?, totals(plant)?);
    if count > 0 {
        table.push([
            "total (not fitted)".into(),
            (count as u64).into(),
            "-".into(),
            before.into(),
            after.into(),
        ]);
    }
    Ok(table)
}

/// The case with one part set to `value`.
fn with(case: &Case, over: Over, value: f64) -> Case {
    let mut case = case.clone();
    match over {
        Over::Utilisation => case.at.utilisation = value,
        Over::Outside => case.at.outside_f = value,
        Over::LoadBalance => case.at.load_balance = value,
        Over::Containment => case.at.containment = value,
        Over::IdleFraction => case.plant.curve = case.plant.curve.with_idle_fraction(value),
        Over::Water => case.plant.water_f = value,
    }
    case
}

fn swept(case: &Case, sweep: &Sweep, notes: &mut Vec<String>) -> Result<(Table, Plot)> {
    let (name, head, (from, to)) = (sweep.over.name(), sweep.over.head(), sweep.range()?);
    let heads = [head.as_str(), "total kW", "servers kW", "conditioning kW", "cooling kW", "PUE"];
    let title = format!("{} over {name} (modelled)", case.name);
    let mut table = Table::new(&format!("sweep-{name}"), &title, &heads);
    let mut lines: [Vec<(f64, f64)>; 3] = Default::default();
    let mut first_refusal = None;
    for step in 0..=sweep.steps {
        let value = from + (to - from) * f64::from(step) / f64::from(sweep.steps);
        let case = with(case, sweep.over, value);
        if sweep.over == Over::IdleFraction {
            within("sweep over idle-fraction", value, 0.0, 1.0, "")?;
        }
        match case.plant.draw(&case.at) {
            Ok(draw) => {
                let (total, cooling) = (draw.total_kw(), draw.cooling_kw());
                let cells = [value, total, draw.servers_kw, draw.conditioning_kw(), cooling];
                table.rows.push(cells.map(Cell::from).into_iter().chain([or_dash(draw.pue())]).collect());
                for (line, y) in lines.iter_mut().zip([total, draw.servers_kw, cooling]) {
                    line.push((value, y));
                }
            }
            Err(error) => {
                table.push([value.into(), "-".into(), "-".into(), "-".into(), "-".into(), "-".into()]);
                first_refusal.get_or_insert((value, error));
            }
        }
    }
    if let Some((value, error)) = first_refusal {
        if lines[0].is_empty() {
            return Err(refused(format!(
                "sweep over {name}: no value can be held; at {value}: {}",
                error.message()
            )));
        }
        notes.push(format!(
            "Sweep over {name}: \"-\" stands for a state that cannot be held; at {}: {}",
            number(value),
            error.message()
        ));
    }
    let [total, servers, cooling] = lines;
    let plot = Plot {
        name: format!("sweep-{name}"),
        title,
        x: Axis::linear(&head),
        y: Axis::linear("kW"),
        series: vec![
            Series::new("total", total),
            Series::new("servers", servers),
            Series::new("air handlers and chiller", cooling),
        ],
    };
    Ok((table, plot))
}

/// Each part of the first state a tenth lower and higher.
fn sensitivity(case: &Case, notes: &mut Vec<String>) -> Result<Table> {
    let base = case.plant.draw(&case.at)?.total_kw();
    let idle = case.plant.curve.watts(0.0) / case.plant.curve.peak_w();
    let parts = [
        (Over::Utilisation, case.at.utilisation, 1.0),
        (Over::Outside, case.at.outside_f, 130.0),
        (Over::LoadBalance, case.at.load_balance, 1.0),
        (Over::Containment, case.at.containment, 1.0),
        (Over::IdleFraction, idle, 1.0),
        (Over::Water, case.plant.water_f, 80.0),
    ];
    let mut rows = Vec::new();
    for (over, value, most) in parts {
        let total = |value: f64| {
            let changed = with(case, over, value);
            changed.plant.draw(&changed.at).map_or(f64::NAN, |draw| 100.0 * (draw.total_kw() / base - 1.0))
        };
        let (lower, higher) = (value * 0.9, (value * 1.1).min(most));
        rows.push((over, value, lower, total(lower), higher, total(higher)));
    }
    let span = |row: &(Over, f64, f64, f64, f64, f64)| {
        let known = |change: f64| if change.is_finite() { change.abs() } else { 0.0 };
        known(row.3).max(known(row.5))
    };
    rows.sort_by(|a, b| span(b).total_cmp(&span(a)));
    let heads = ["part", "value", "lower", "total at lower changes %", "higher", "total at higher changes %"];
    let title = format!("Sensitivity of {}: one part a tenth lower or higher (modelled)", case.name);
    let mut table = Table::new("sensitivity", &title, &heads);
    for (over, value, lower, down, higher, up) in rows {
        if !(down.is_finite() && up.is_finite()) {
            notes.push(format!(
                "Sensitivity to {}: \"-\" stands for a state that cannot be held.",
                over.name()
            ));
        }
        table.push([
            over.head().as_str().into(),
            value.into(),
            lower.into(),
            down.into(),
            higher.into(),
            up.into(),
        ]);
    }
    Ok(table)
}

fn chiller_plot() -> Plot {
    let points = |power: &dyn Fn(f64) -> f64| -> Vec<(f64, f64)> {
        (0..=20).map(|step| f64::from(step) / 20.0).map(|load| (load, power(load))).collect()
    };
    let chiller = published::example();
    Plot {
        name: "chiller".to_owned(),
        title: "The chiller of the source's example, condenser at 85 F".to_owned(),
        x: Axis::linear("utilisation (heat over 8 MW)"),
        y: Axis::linear("kW"),
        series: vec![
            Series::new("printed polynomial, 45 F (published)", points(&super::chiller::printed_kw)),
            Series::new("DOE2, water 45 F", points(&|load| chiller.power(8_000.0 * load, 45.0, 85.0))),
            Series::new("DOE2, water 55 F", points(&|load| chiller.power(8_000.0 * load, 55.0, 85.0))),
        ],
    }
}

fn explanation(case: &Case, draw: &Draw) -> Vec<String> {
    let (plant, at) = (&case.plant, &case.at);
    let conditioning = &plant.conditioning;
    vec![
        format!(
            "A.2: live = U + (1 - U) l = {:.4}, u = U / live = {:.4}, for U = {} and l = {}",
            draw.spread.live, draw.spread.utilisation, at.utilisation, at.load_balance
        ),
        format!(
            "A.3: {:.1} W a server at u; {:.0} live servers draw {:.1} kW",
            plant.curve.watts(draw.spread.utilisation),
            plant.servers * draw.spread.live,
            draw.servers_kw
        ),
        format!(
            "A.4: {:.1} PDUs, each {:.3} kW + {:.3e} /kW x load squared: {:.1} kW lost",
            conditioning.pdus, conditioning.pdu_idle_kw, conditioning.pdu_square, draw.pdu_kw
        ),
        format!(
            "A.5: {:.1} kW + {:.4} x what PDUs take in: {:.1} kW lost",
            conditioning.ups_idle_kw, conditioning.ups_linear, draw.ups_kw
        ),
        format!(
            "A.6, A.7: {:.0} CFM through servers and, with one containment for both sides, through air handlers: {:.3} of their most",
            draw.flow_cfm, draw.flow_part
        ),
        format!("A.9: idle power + fan x flow cubed: {:.1} kW", draw.air_kw),
        format!(
            "Air: supply {:.1} F, servers take in {:.1} F (limit {:.1} F), give {:.1} F; air handlers take in {:.1} F",
            draw.air.supply_f, draw.air.inlet_f, plant.inlet_max_f, draw.air.exhaust_f, draw.air.return_f
        ),
        format!(
            "A.8: {:.1} kW of heat pass to water of {:.1} F at {:.1} kW a F",
            draw.heat_kw,
            draw.water_f,
            plant.air_handlers.exchange(draw.flow_part, at.containment)
        ),
        format!(
            "Chiller (DOE2): condensers at {:.1} F (outside {:.1} F, run at {:.1} F or above), part load {:.3}; rated power {:.0} kW x capacity x input ratio x part-load curve = {:.1} kW",
            at.outside_f.max(plant.condenser_min_f),
            at.outside_f,
            plant.condenser_min_f,
            draw.part_load,
            plant.chiller.power_kw,
            draw.chiller_kw
        ),
        format!(
            "Total = servers + PDU + UPS + air handlers + chiller + fixed = {:.1} kW; PUE = total / servers{}",
            draw.total_kw(),
            draw.pue().map_or_else(|| ": none, servers draw nothing".into(), |pue| format!(" = {pue:.3}"))
        ),
    ]
}

fn notes(description: &Description, draws: &[Draw]) -> Vec<String> {
    let mut notes = vec![
        "All servers are alike, power is a function of processor utilisation, humidity and the tower's fans are left out."
            .to_owned(),
        "A.8 does not say whether its flow is the moment's or the greatest; `air.exchange-flow` decides.".to_owned(),
        "The curves of the chiller are made for water of about 40 to 55 F and condensers from about 60 F; beyond, they are continued."
            .to_owned(),
        "Counts of PDUs and air handlers follow from the sizes and need not be whole.".to_owned(),
    ];
    if description.compare.is_some() {
        notes.extend([
            "Known slips of the source: live servers 81 % (its own A.2 gives 96 %); 3,200 kW beside a polynomial that gives 3,126; \
             538.7 probably for 537.8; 12 % beside 3 % and 9 % of input, which compound to 13.3 %."
                .to_owned(),
            "Losses without load, air flow of servers and limits of the water are not printed in the source; the scenario file marks what is assumed."
                .to_owned(),
            "\"Around 6 % of peak\" for network, pumps and lights does not say which peak; the servers' gives the printed -22 % of \
             PowerNap, the total's -20 % (table readings)."
                .to_owned(),
        ]);
    }
    if let (Some(_), [.., before, after]) = (&description.compare, draws) {
        notes.push(format!(
            "The source says that containers \"slash\" cooling and prints no value; here they change it by {:.1} %: with one \
             containment for both sides the flow of air stays the servers', so that only the water gets warmer.",
            100.0 * (after.cooling_kw() / before.cooling_kw() - 1.0)
        ));
    }
    notes
}
