//! Published values beside ours.
//!
//! Published tables round some numbers and cut others off. A value agrees when ours is less than one
//! unit of its last printed digit away; which of both it is, is said.

use super::case::{Case, Measure, Node};
use super::model::cost_of_node;
use super::regions::Region;
use crate::parts::{Row, Verdict};
use tierstone_base::{Error, ErrorKind, Result};

/// A number as it is printed: `3.5K` is 3,500 in units of 100.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Printed {
    pub value: f64,
    /// One unit of the last digit.
    pub unit: f64,
}

/// Reads a printed number: digits, a point, and `K`, `M` or `G`.
///
/// # Errors
/// `InvalidInput` for anything else.
pub fn printed(text: &str) -> Result<Printed> {
    let (digits, factor) = match text.trim().split_at_checked(text.trim().len().saturating_sub(1)) {
        Some((digits, "K")) => (digits, 1e3),
        Some((digits, "M")) => (digits, 1e6),
        Some((digits, "G")) => (digits, 1e9),
        _ => (text.trim(), 1.0),
    };
    let plain =
        !digits.is_empty() && digits.len() <= 15 && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let value = digits.parse::<f64>().ok().filter(|_| plain);
    let Some(value) = value else {
        let message = format!("the published value '{text}' is no number such as \"0.26\" or \"3.5K\"");
        return Err(Error::new(ErrorKind::InvalidInput, message));
    };
    let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    Ok(Printed { value: value * factor, unit: factor / 10f64.powi(decimals as i32) })
}

/// The published values of the case beside ours.
pub fn rows(case: &Case, regions: &[Region]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for of in &case.published {
        let node = &case.nodes[of.node];
        let cost = cost_of_node(&case.terms, node, node.total_price());
        let (what, unit, here) = match of.measure {
            Measure::Price => ("price", "$", node.total_price()),
            Measure::Power => ("power", "W", node.total_power()),
            Measure::Rate => ("rate", "queries/s", node.total_rate()),
            Measure::QueriesPerJoule => {
                ("queries a joule", "queries/J", node.total_rate() / node.total_power())
            }
            Measure::GbPerWatt => ("gigabytes a watt", "GB/W", node.total_gb() / node.total_power()),
            Measure::CostPerGb => ("cost a gigabyte", "$/GB", cost / node.total_gb()),
            Measure::CostPerRate => ("cost a query a second", "$ s/query", cost / node.total_rate()),
        };
        let name = format!("{}: {what}", node.name);
        let mut row = row(&name, &of.value, unit, here, &of.place)?;
        if let Some(why) = &of.misprint {
            row.because = match row.verdict {
                Verdict::Differs => format!("known misprint, not reproduced: {why}"),
                Verdict::Agrees => format!("{}, although called a misprint: {why}", row.because),
            };
        }
        rows.push(row);
    }
    for of in &case.boundaries {
        let (below, above) = (&case.nodes[of.below], &case.nodes[of.above]);
        let name = format!("boundary from {} to {}", below.name, above.name);
        let cost = |node| cost_of_node(&case.terms, node, Node::total_price(node));
        let here = cost(above) / above.total_gb() / (cost(below) / below.total_rate());
        let mut row = row(&name, &of.value, "queries/s a GB", here, &of.place)?;
        if !regions.windows(2).any(|pair| pair[0].node == of.below && pair[1].node == of.above) {
            row.because.push_str("; a third design is cheaper there");
        }
        rows.push(row);
    }
    Ok(rows)
}

fn row(name: &str, text: &str, unit: &str, here: f64, place: &str) -> Result<Row> {
    let printed = printed(text)?;
    let agrees = (here - printed.value).abs() < printed.unit * (1.0 - 1e-9);
    let steps = here / printed.unit;
    let is = |steps: f64| (steps * printed.unit - printed.value).abs() < printed.unit * 1e-6;
    let how = if !agrees {
        "differs by one unit of the last printed digit or more"
    } else if (here - printed.value).abs() < printed.unit * 1e-9 {
        "exact"
    } else if is(steps.round()) {
        "rounded"
    } else if is((steps + 1e-9).floor()) {
        "cut off, not rounded"
    } else {
        "rounded up"
    };
    Ok(Row {
        name: name.to_owned(),
        published: printed.value,
        here,
        unit: unit.to_owned(),
        place: place.to_owned(),
        verdict: if agrees { Verdict::Agrees } else { Verdict::Differs },
        because: format!("printed as {text}: {how}"),
    })
}
