//! Costs of nodes and clusters.

use super::case::{Case, Demand, Node, Terms};

/// What a cluster of one kind of node costs over its life, in dollars.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Whole nodes.
    pub nodes: f64,
    /// Whole switches.
    pub switches: f64,
    /// Of the nodes.
    pub price: f64,
    /// Of the switches.
    pub network: f64,
    /// Of power and cooling infrastructure.
    pub infrastructure: f64,
    /// Of everything that draws power.
    pub electricity: f64,
    /// Power of nodes and switches, in watts, without cooling.
    pub watts: f64,
    /// Whether the rate asks for more nodes than the data.
    pub bound_by_rate: bool,
}

impl Cost {
    /// All together.
    pub fn total(&self) -> f64 {
        self.price + self.network + self.infrastructure + self.electricity
    }
}

/// Dollars that a watt costs over a life: 2.628 for three years at 0.10 $/kWh, and the infrastructure.
pub fn dollars_a_watt(terms: &Terms) -> f64 {
    electricity_a_watt(terms) + terms.infrastructure
}

fn electricity_a_watt(terms: &Terms) -> f64 {
    terms.hours / 1_000.0 * terms.electricity * terms.pue
}

/// What one node costs over its life, with its share of a switch.
pub fn cost_of_node(terms: &Terms, node: &Node, price: f64) -> f64 {
    let share = terms
        .network
        .map_or(0.0, |network| (network.price + network.power * dollars_a_watt(terms)) / network.ports);
    price + node.total_power() * dollars_a_watt(terms) + share
}

/// So many things, whole; a quotient that is whole but for its last bits is not raised.
fn whole(quotient: f64) -> f64 {
    (quotient * (1.0 - 1e-12)).ceil().max(1.0)
}

/// What a cluster of `node`s at `price` each costs.
pub fn cost(terms: &Terms, node: &Node, price: f64, gb: f64, rate: f64) -> Cost {
    let (for_data, for_rate) = (gb / node.total_gb(), rate / node.total_rate());
    let nodes = whole(for_data.max(for_rate));
    let (switches, switch_price, switch_power) = terms
        .network
        .map_or((0.0, 0.0, 0.0), |network| (whole(nodes / network.ports), network.price, network.power));
    let watts = nodes * node.total_power() + switches * switch_power;
    Cost {
        nodes,
        switches,
        price: nodes * price,
        network: switches * switch_price,
        infrastructure: watts * terms.infrastructure,
        electricity: watts * electricity_a_watt(terms),
        watts,
        bound_by_rate: for_rate > for_data,
    }
}

/// The nodes that are not out of question, with their places in the catalogue.
pub fn allowed(case: &Case) -> impl Iterator<Item = (usize, &Node)> {
    case.nodes.iter().enumerate().filter(|(_, node)| node.refused.is_none())
}

/// The cheapest node's place in the catalogue, and the cost; of equal ones the first.
pub fn cheapest(case: &Case, gb: f64, rate: f64) -> (usize, Cost) {
    let demand = Demand { gb, rate, ..case.demand };
    cheapest_by(case, &case.terms, &demand, Node::total_price)
}

/// As [`cheapest`], on other terms and prices.
pub fn cheapest_by(
    case: &Case,
    terms: &Terms,
    demand: &Demand,
    price: impl Fn(&Node) -> f64,
) -> (usize, Cost) {
    let mut best: Option<(usize, Cost)> = None;
    for (place, node) in allowed(case) {
        let cost = cost(terms, node, price(node), demand.gb, demand.rate);
        if best.is_none_or(|(_, best)| cost.total() < best.total()) {
            best = Some((place, cost));
        }
    }
    // A checked case has a node that is allowed; the first one's cost stands in for the type's sake.
    best.unwrap_or_else(|| (0, cost(terms, &case.nodes[0], price(&case.nodes[0]), demand.gb, demand.rate)))
}
