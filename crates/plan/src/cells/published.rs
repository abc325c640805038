//! Published statements beside what follows from the description.

use super::case::{Case, Measure, Published, Source};
use super::model::{Scanned, scanned};
use crate::number::number;
use crate::parts::{Row, Verdict};

/// The statements of the case.
pub fn rows(case: &Case) -> Vec<Row> {
    case.published.iter().map(|of| row(case, of)).collect()
}

/// A source as a word.
pub fn word(source: Source) -> &'static str {
    match source {
        Source::Storage => "storage",
        Source::Memory => "memory",
    }
}

fn row(case: &Case, of: &Published) -> Row {
    let mut scan = case.scans[of.scan].clone();
    scan.flops = of.flops.unwrap_or(scan.flops);
    let run = |machine: usize, source: Source, bandwidth: Option<f64>| -> Scanned {
        scanned(&case.machines[machine], &scan, source, bandwidth)
    };
    let one = run(of.machine, of.from, of.bandwidth);
    let machine = &case.machines[of.machine].name;
    let (what, here, unit) = match (of.measure, of.over) {
        (Measure::Energy, _) => ("energy".to_owned(), one.joules_a_gb(), "J/GB"),
        (Measure::Power, _) => ("power".to_owned(), one.watts, "W"),
        (Measure::CpuBusy, _) => ("processor busy".to_owned(), one.cpu_busy, "of 1"),
        (Measure::Gain, None) => ("gain over itself".to_owned(), 1.0, "times"),
        (Measure::Gain, Some((other, source))) => {
            let gain = run(other, source, None).joules() / one.joules();
            (format!("gain over {} from {}", case.machines[other].name, word(source)), gain, "times")
        }
    };
    let low = of.at_least.unwrap_or(f64::NEG_INFINITY);
    let high = of.at_most.unwrap_or(f64::INFINITY);
    let rule = match (of.at_least, of.at_most) {
        (Some(low), Some(high)) => format!("agrees from {} to {}", number(low), number(high)),
        (Some(low), None) => format!("agrees at {} or more", number(low)),
        (None, high) => format!("agrees at {} or less", number(high.unwrap_or(f64::NAN))),
    };
    let flops = of.flops.map_or(String::new(), |flops| format!(", {} flops a tuple", number(flops)));
    let storage = of.bandwidth.map_or(String::new(), |rate| format!(" of {} MB/s", number(rate / 1e6)));
    Row {
        name: format!("{machine}, {}{flops}, from {}{storage}: {what}", scan.name, word(of.from)),
        published: match (of.at_least, of.at_most) {
            (Some(low), Some(high)) => (low + high) / 2.0,
            (low, high) => low.or(high).unwrap_or(0.0),
        },
        here,
        unit: unit.to_owned(),
        place: of.place.clone(),
        // The last bits of a quotient decide nothing.
        verdict: if here >= low - 1e-9 && here <= high + 1e-9 { Verdict::Agrees } else { Verdict::Differs },
        because: format!("{}; {rule}", of.says),
    }
}
