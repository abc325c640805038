//! The report: the decision, and everything that it was come to with.

use super::case::{Case, Node};
use super::catalogue::Catalogue;
use super::model::{Cost, allowed, cheapest, cost, cost_of_node, dollars_a_watt};
use super::published;
use super::regions::{Region, map, regions};
use super::sensitivity::{Sensitivity, sensitivities};
use crate::number::number;
use crate::parts::{Axis, Plot, Series, Table};
use crate::report::{FORMAT, Fact, Label, Report};
use tierstone_base::Result;

/// Points of a line of a plot.
const POINTS: u32 = 120;

/// Works everything out.
pub fn report(case: &Case) -> Result<Report> {
    let regions = regions(case);
    let (winner, best) = cheapest(case, case.demand.gb, case.demand.rate);
    let sensitivities = sensitivities(case);
    let published = if case.from_catalogue { Some(Catalogue::shipped()?.table()) } else { None };
    Ok(Report {
        format: FORMAT,
        name: "nodes".to_owned(),
        title: case.title.clone(),
        source: "V. R. Vasudevan, CMU-CS-11-131, 2011, section 2.5 (cost), 2.1 (infrastructure)".to_owned(),
        asked: asked(case),
        answer: answer(case, winner, &best, &sensitivities),
        facts: facts(&case.nodes[winner], &best),
        rows: published::rows(case, &regions)?,
        tables: [
            designs_at_the_demand(case, &best),
            catalogue(case),
            boundaries(case, &regions),
            sensitivity_table(case, &sensitivities),
        ]
        .into_iter()
        .chain(published)
        .collect(),
        plots: vec![map(case, &regions), cost_by_rate(case)],
        explanation: explanation(case, winner, &best, &regions),
        notes: notes(case),
    })
}

fn asked(case: &Case) -> Vec<String> {
    let (terms, demand) = (&case.terms, &case.demand);
    let mut lines = vec![
        format!("{} GB of data, copies included, and {} queries/s", number(demand.gb), number(demand.rate)),
        format!(
            "{} nodes; a life of {} hours, electricity at {} $/kWh",
            case.nodes.len(),
            number(terms.hours),
            number(terms.electricity)
        ),
        if terms.pue > 1.0 {
            format!("cooling included: PUE {}", number(terms.pue))
        } else {
            "cooling left out".to_owned()
        },
    ];
    lines.push(match terms.infrastructure {
        0.0 => "power and cooling infrastructure left out".to_owned(),
        dollars => format!("power and cooling infrastructure: {} $/W of this generation", number(dollars)),
    });
    lines.push(match terms.network {
        None => "network left out".to_owned(),
        Some(network) => format!(
            "a switch for {} nodes: {} $, {} W; links above it left out",
            number(network.ports),
            number(network.price),
            number(network.power)
        ),
    });
    if let Some(gb) = demand.working_set_gb {
        lines.push(format!("every node needs {} GB of memory", number(gb)));
    }
    if let Some(unit) = demand.unit {
        lines.push(format!(
            "a unit of work of {} MB within {} s, in at most {} parts",
            number(unit.bytes / 1e6),
            number(unit.seconds),
            number(unit.ways)
        ));
    }
    lines.push(format!("figures of the nodes: {}", case.source));
    lines
}

fn answer(case: &Case, winner: usize, best: &Cost, sensitivities: &[Sensitivity]) -> Vec<String> {
    let node = &case.nodes[winner];
    let by = if best.bound_by_rate { "rate" } else { "data" };
    let mut lines = vec![format!(
        "Cheapest: {} nodes of {}, {} $ over their life ({} of it electricity); the {by} decides their number.",
        number(best.nodes),
        node.name,
        number(best.total()),
        percent(best.electricity / best.total())
    )];
    let mut others: Vec<(f64, &str)> = allowed(case)
        .filter(|(place, _)| *place != winner)
        .map(|(_, node)| (at_the_demand(case, node).total(), node.name.as_str()))
        .collect();
    others.sort_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((total, name)) = others.first() {
        lines.push(format!("Next: {name}, {} times the cost.", number(total / best.total())));
    }
    let mut nearest: Vec<(f64, String)> = sensitivities.iter().flat_map(|of| turns(case, of)).collect();
    nearest.sort_by(|a, b| a.0.total_cmp(&b.0));
    if nearest.is_empty() {
        lines.push(
            "No price, data size or rate between a tenth and ten times the given one changes that."
                .to_owned(),
        );
    }
    lines.extend(nearest.into_iter().take(3).map(|(_, line)| line));
    lines
}

/// Where another design wins, in words, with the distance as a ratio of at least 1.
fn turns(case: &Case, of: &Sensitivity) -> Vec<(f64, String)> {
    let turn = |found: Option<(f64, usize)>, way: &str| {
        found.map(|(factor, node)| {
            let line = format!(
                "{} wins when {} is {way} than {} times the given one.",
                case.nodes[node].name,
                of.name,
                number(factor)
            );
            (factor.max(1.0 / factor), line)
        })
    };
    [turn(of.below, "less"), turn(of.above, "more")].into_iter().flatten().collect()
}

fn at_the_demand(case: &Case, node: &Node) -> Cost {
    cost(&case.terms, node, node.total_price(), case.demand.gb, case.demand.rate)
}

/// A number of parts of nodes, of which the reader is to see how it is made whole.
fn exact(nodes: f64) -> String {
    format!("{nodes:.2}")
}

fn percent(part: f64) -> String {
    format!("{} %", number(part * 100.0))
}

fn facts(node: &Node, best: &Cost) -> Vec<Fact> {
    let fact = |name: &str, value: f64, unit: &str| Fact {
        name: name.to_owned(),
        value,
        unit: unit.to_owned(),
        label: Label::Modelled,
    };
    let mut facts = vec![
        fact("nodes", best.nodes, "nodes"),
        fact("total cost over the life", best.total(), "$"),
        fact("price of the nodes", best.price, "$"),
        fact("electricity over the life", best.electricity, "$"),
    ];
    if best.switches > 0.0 {
        facts.push(fact("switches", best.switches, "switches"));
        facts.push(fact("price of the switches", best.network, "$"));
    }
    if best.infrastructure > 0.0 {
        facts.push(fact("power and cooling infrastructure", best.infrastructure, "$"));
    }
    facts.extend([
        fact("power of nodes and switches", best.watts / 1_000.0, "kW"),
        fact("data that fit", best.nodes * node.total_gb(), "GB"),
        fact("queries that are answered", best.nodes * node.total_rate(), "queries/s"),
        fact("queries a joule of a busy node", node.total_rate() / node.total_power(), "queries/J"),
    ]);
    facts
}

fn designs_at_the_demand(case: &Case, best: &Cost) -> Table {
    let mut table = Table::new(
        "designs",
        "Every design at this data size and rate",
        &[
            "design",
            "nodes",
            "decided by",
            "nodes ($)",
            "switches ($)",
            "infrastructure ($)",
            "electricity ($)",
            "total ($)",
            "times the cheapest",
            "power (kW)",
        ],
    );
    let mut costs: Vec<(Cost, &Node)> =
        allowed(case).map(|(_, node)| (at_the_demand(case, node), node)).collect();
    costs.sort_by(|a, b| a.0.total().total_cmp(&b.0.total()));
    for (cost, node) in costs {
        table.push([
            node.name.as_str().into(),
            cost.nodes.into(),
            if cost.bound_by_rate { "rate" } else { "data" }.into(),
            cost.price.into(),
            cost.network.into(),
            cost.infrastructure.into(),
            cost.electricity.into(),
            cost.total().into(),
            (cost.total() / best.total()).into(),
            (cost.watts / 1_000.0).into(),
        ]);
    }
    table
}

fn catalogue(case: &Case) -> Table {
    let mut table = Table::new(
        "catalogue",
        "One node of each design, with its share of a switch where switches are included",
        &[
            "design",
            "price ($)",
            "power (W)",
            "stores (GB)",
            "rate (queries/s)",
            "queries/J",
            "GB/W",
            "cost over its life ($)",
            "$/GB",
            "$ a query/s",
            "electricity in it (%)",
        ],
    );
    let a_watt = case.terms.hours / 1_000.0 * case.terms.electricity * case.terms.pue;
    for node in &case.nodes {
        let (price, watts, gb, rate) =
            (node.total_price(), node.total_power(), node.total_gb(), node.total_rate());
        let cost = cost_of_node(&case.terms, node, price);
        table.push([
            node.name.as_str().into(),
            price.into(),
            watts.into(),
            gb.into(),
            rate.into(),
            (rate / watts).into(),
            (gb / watts).into(),
            cost.into(),
            (cost / gb).into(),
            (cost / rate).into(),
            (watts * a_watt / cost * 100.0).into(),
        ]);
    }
    table
}

fn boundaries(case: &Case, regions: &[Region]) -> Table {
    let mut table = Table::new(
        "boundaries",
        "Which design is cheapest at which ratio of rate to data (for parts of nodes)",
        &["design", "from (queries/s a GB)", "to (queries/s a GB)"],
    );
    for (place, region) in regions.iter().enumerate() {
        table.push([
            case.nodes[region.node].name.as_str().into(),
            region.from.into(),
            regions.get(place + 1).map_or(f64::INFINITY, |next| next.from).into(),
        ]);
    }
    table
}

fn sensitivity_table(case: &Case, sensitivities: &[Sensitivity]) -> Table {
    let mut table = Table::new(
        "sensitivities",
        "If one thing were otherwise: the cheapest design and its cost, and where the decision turns",
        &[
            "what",
            "at half",
            "cost ($)",
            "at twice",
            "cost ($)",
            "turns below (times the given)",
            "to",
            "turns above (times the given)",
            "to",
        ],
    );
    let name = |node: usize| case.nodes[node].name.as_str();
    for of in sensitivities {
        let cost = |found: Option<(usize, f64)>| found.map_or(f64::NAN, |(_, cost)| cost);
        let turn = |found: Option<(f64, usize)>| found.map_or(f64::NAN, |(factor, _)| factor);
        table.push([
            of.name.as_str().into(),
            of.half.map_or("-", |(node, _)| name(node)).into(),
            cost(of.half).into(),
            of.twice.map_or("-", |(node, _)| name(node)).into(),
            cost(of.twice).into(),
            turn(of.below).into(),
            of.below.map_or("-", |(_, node)| name(node)).into(),
            turn(of.above).into(),
            of.above.map_or("-", |(_, node)| name(node)).into(),
        ]);
    }
    table
}

fn cost_by_rate(case: &Case) -> Plot {
    let (from, to) = case.map.rate;
    let (from, to) = (from.min(case.demand.rate), to.max(case.demand.rate));
    let rates = || (0..=POINTS).map(|point| from * (to / from).powf(f64::from(point) / f64::from(POINTS)));
    let line = |(_, node): (usize, &Node)| {
        let at = |rate| (rate, cost(&case.terms, node, node.total_price(), case.demand.gb, rate).total());
        Series::new(&node.name, rates().map(at))
    };
    Plot {
        name: "cost-by-rate".to_owned(),
        title: format!("Cost of each design for {} GB", number(case.demand.gb)),
        x: Axis::logarithmic("rate (queries/s)"),
        y: Axis::logarithmic("cost over the life ($)"),
        series: allowed(case).map(line).collect(),
    }
}

fn explanation(case: &Case, winner: usize, best: &Cost, regions: &[Region]) -> Vec<String> {
    let (terms, demand, node) = (&case.terms, &case.demand, &case.nodes[winner]);
    let (gb, rate) = (node.total_gb(), node.total_rate());
    let mut lines = vec![
        format!(
            "A watt costs {} $ over the life: {} h / 1000 x {} $/kWh x PUE {}, and {} $ of infrastructure.",
            number(dollars_a_watt(terms)),
            number(terms.hours),
            number(terms.electricity),
            number(terms.pue),
            number(terms.infrastructure)
        ),
        format!(
            "A node of {} costs {} $ and draws {} W: {} $ over the life{}.",
            node.name,
            number(node.total_price()),
            number(node.total_power()),
            number(cost_of_node(terms, node, node.total_price())),
            if terms.network.is_some() { ", its share of a switch included" } else { "" }
        ),
        format!(
            "It stores {} GB and answers {} queries/s. For the data {} nodes are needed, for the rate {}; the \
             larger, whole, is {}.",
            number(gb),
            number(rate),
            exact(demand.gb / gb),
            exact(demand.rate / rate),
            number(best.nodes)
        ),
        "Every other design was reckoned in the same way; the least total was taken.".to_owned(),
    ];
    lines.extend(regions.windows(2).map(|pair| {
        let (below, above) = (&case.nodes[pair[0].node], &case.nodes[pair[1].node]);
        let cost = |node: &Node| cost_of_node(terms, node, node.total_price());
        format!(
            "{} takes over from {} at {} queries/s a GB: its {} $/GB over {} $ a query/s.",
            above.name,
            below.name,
            number(pair[1].from),
            number(cost(above) / above.total_gb()),
            number(cost(below) / below.total_rate())
        )
    }));
    lines.push(
        "Each thing of the sensitivities was varied alone from a tenth to ten times, in steps of 1.2 %; where \
         the winner changed, the place was narrowed down. Things that change nothing are not listed."
            .to_owned(),
    );
    lines
}

fn notes(case: &Case) -> Vec<String> {
    let mut notes = vec![
        "Small random queries only, spread evenly over the nodes; sequential work depends on the work a byte.".to_owned(),
        "Left out: space, people, software, spare parts, and power below the given one when a node idles.".to_owned(),
        "The map is for whole nodes; its lines are the boundaries for parts of nodes.".to_owned(),
    ];
    notes.extend(
        case.nodes.iter().filter_map(|node| Some(format!("Out of question: {}.", node.refused.as_ref()?))),
    );
    notes.extend(case.notes.iter().cloned());
    notes
}
