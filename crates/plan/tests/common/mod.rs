//! What the tests of shipped scenarios share.

use tierstone_base::Result;
use tierstone_plan::{Description, Report, cells, mirrors, nodes, power, routing, scenario};

pub type Plan = fn(&Description) -> Result<Report>;

/// The plan of this name.
pub fn plan(name: &str) -> Plan {
    match name {
        "nodes" => nodes::plan,
        "cells" => cells::plan,
        "power" => power::plan,
        "routing" => routing::plan,
        "mirrors" => mirrors::plan,
        other => panic!("there is no plan {other}"),
    }
}

/// The text of a scenario, with loads so short that a plan of it takes well under a second.
pub fn short(scenario: &scenario::Scenario) -> String {
    let mut text = scenario.text.to_owned();
    for (from, to) in [
        ("length = \"24 h\"", "length = \"20 min\""),
        ("length = \"12 h\"", "length = \"20 min\""),
        ("length = \"7 days\"", "length = \"12 h\""),
        ("length = \"2 days\"", "length = \"12 h\""),
        ("targets = 100000", "targets = 1000"),
    ] {
        text = text.replace(from, to);
    }
    text
}
