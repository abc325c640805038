//! How far each price may move before another design becomes the cheapest.

use super::case::{Case, Node};
use super::model::{Cost, cheapest_by};

/// How far is looked: a tenth to ten times.
const FARTHEST: f64 = 10.0;
/// Steps a decade of the search; a design that wins only between two steps, by whole nodes, is not seen.
const STEPS: u32 = 200;

/// One thing that may be otherwise than described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    Electricity,
    Lifetime,
    Pue,
    Infrastructure,
    SwitchPrice,
    /// The price of the parts of this kind.
    Part(usize),
    /// The price of this node without its parts.
    Node(usize),
    Data,
    Rate,
}

/// What one knob does.
#[derive(Clone, Debug, PartialEq)]
pub struct Sensitivity {
    pub name: String,
    /// The winner and its cost at half and at twice the value; `None` where that is impossible.
    pub half: Option<(usize, f64)>,
    pub twice: Option<(usize, f64)>,
    /// The factor nearest to 1 below and above it at which another design wins, and which.
    pub below: Option<(f64, usize)>,
    pub above: Option<(f64, usize)>,
}

/// Every knob of the case that changes the cost or the winner anywhere.
pub fn sensitivities(case: &Case) -> Vec<Sensitivity> {
    let mut knobs = vec![Knob::Data, Knob::Rate, Knob::Lifetime];
    if case.terms.electricity > 0.0 {
        knobs.push(Knob::Electricity);
    }
    if case.terms.pue > 1.0 {
        knobs.push(Knob::Pue);
    }
    if case.terms.infrastructure > 0.0 {
        knobs.push(Knob::Infrastructure);
    }
    if case.terms.network.is_some() {
        knobs.push(Knob::SwitchPrice);
    }
    knobs.extend((0..case.kinds.len()).map(Knob::Part));
    knobs.extend((0..case.nodes.len()).filter(|&node| case.nodes[node].price > 0.0).map(Knob::Node));
    let base = cheapest_by(case, &case.terms, &case.demand, Node::total_price).1.total();
    let moves = |of: &Sensitivity| {
        let costs = [of.half, of.twice].into_iter().flatten();
        of.below.or(of.above).is_some() || costs.into_iter().any(|(_, cost)| cost != base)
    };
    knobs.into_iter().map(|knob| sensitivity(case, knob)).filter(moves).collect()
}

fn sensitivity(case: &Case, knob: Knob) -> Sensitivity {
    let base = at(case, knob, 1.0).map_or(0, |(node, _)| node);
    let cost = |factor: f64| at(case, knob, factor).map(|(node, cost)| (node, cost.total()));
    Sensitivity {
        name: name(case, knob),
        half: cost(0.5),
        twice: cost(2.0),
        below: turn(case, knob, base, -1.0),
        above: turn(case, knob, base, 1.0),
    }
}

fn name(case: &Case, knob: Knob) -> String {
    match knob {
        Knob::Electricity => "electricity price".to_owned(),
        Knob::Lifetime => "lifetime".to_owned(),
        Knob::Pue => "PUE".to_owned(),
        Knob::Infrastructure => "price of power and cooling infrastructure".to_owned(),
        Knob::SwitchPrice => "price of a switch".to_owned(),
        Knob::Part(kind) => format!("price of {}", case.kinds[kind]),
        Knob::Node(node) if case.nodes[node].parts.is_empty() => {
            format!("price of {}", case.nodes[node].name)
        }
        Knob::Node(node) => format!("price of {} without its parts", case.nodes[node].name),
        Knob::Data => "data".to_owned(),
        Knob::Rate => "rate".to_owned(),
    }
}

/// The cheapest design when `knob` is `factor` times what is described; `None` where that cannot be.
pub fn at(case: &Case, knob: Knob, factor: f64) -> Option<(usize, Cost)> {
    let (mut terms, mut demand) = (case.terms, case.demand);
    match knob {
        Knob::Electricity => terms.electricity *= factor,
        Knob::Lifetime => terms.hours *= factor,
        Knob::Pue => terms.pue *= factor,
        Knob::Infrastructure => terms.infrastructure *= factor,
        Knob::SwitchPrice => {
            terms.network.iter_mut().for_each(|network| network.price *= factor);
        }
        Knob::Data => demand.gb *= factor,
        Knob::Rate => demand.rate *= factor,
        Knob::Part(_) | Knob::Node(_) => {}
    }
    if terms.pue < 1.0 {
        return None;
    }
    let price = |node: &Node| {
        let base = match knob {
            Knob::Node(place) if case.nodes[place].name == node.name => node.price * factor,
            _ => node.price,
        };
        let parts = node.parts.iter().map(|part| {
            let scale = if knob == Knob::Part(part.kind) { factor } else { 1.0 };
            part.count * part.price * scale
        });
        base + parts.sum::<f64>()
    };
    Some(cheapest_by(case, &terms, &demand, price))
}

/// The factor nearest to 1, in one direction, at which the winner is another one.
fn turn(case: &Case, knob: Knob, base: usize, direction: f64) -> Option<(f64, usize)> {
    let other =
        |power: f64| at(case, knob, FARTHEST.powf(power)).map(|(node, _)| node).filter(|&node| node != base);
    let power = |step: u32| direction * f64::from(step) / f64::from(STEPS);
    let step = (1..=STEPS).find(|&step| other(power(step)).is_some())?;
    let (mut same, mut different) = (power(step - 1), power(step));
    for _ in 0..50 {
        let middle = (same + different) / 2.0;
        if other(middle).is_some() { different = middle } else { same = middle }
    }
    Some((FARTHEST.powf(different), other(different)?))
}
