use super::case::{self, Case};
use super::model::{cheapest, cost, cost_of_node};
use super::published::{Printed, printed};
use super::regions::regions;
use super::sensitivity::{Knob, at, sensitivities};
use super::*;
use crate::parts::{Cell, Verdict};
use crate::report::Label;
use tierstone_base::{ErrorKind, SeededRandom};

/// Two designs that are reckoned by hand: a watt costs 10 $ over the life (10,000 h at 1 $/kWh).
const SMALL: &str = r#"
title = "By hand"
source = "the test"
lifetime = "10000 h"
electricity = "1 $/kWh"
[demand]
data = "100 GB"
rate = "1000 queries/s"
[map]
data-from = "10 GB"
data-to = "1 TB"
rate-from = "10 queries/s"
rate-to = "1 M queries/s"
[[node]]
name = "disk"
price = "100 $"
power = "10 W"
capacity = "50 GB"
rate = "100 queries/s"
[[node]]
name = "flash"
price = "300 $"
power = "5 W"
[[part]]
node = "flash"
name = "flash drive"
count = 2
price = "100 $"
power = "2.5 W"
capacity = "5 GB"
rate = "1000 queries/s"
"#;

fn small() -> Case {
    read(SMALL)
}

fn read(text: &str) -> Case {
    case::read(&Description::toml("small", text)).unwrap()
}

fn refusal(text: &str) -> String {
    let error = plan(&Description::toml("small", text)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.message().starts_with("small: "), "{error}");
    error.message().to_owned()
}

fn shipped() -> Report {
    plan(&SCENARIOS[0].description()).unwrap()
}

#[test]
fn every_published_cell_is_reproduced_but_the_known_misprint() {
    let report = shipped();
    assert_eq!(report.rows.len(), 6 * 7 + 3);
    let differing: Vec<_> = report.rows.iter().filter(|row| row.verdict == Verdict::Differs).collect();
    assert_eq!(differing.len(), 1);
    assert_eq!(differing[0].name, "FAWN+DRAM: cost a gigabyte");
    assert!((differing[0].here - 144.71).abs() < 0.005, "{}", differing[0].here);
    assert!(differing[0].because.starts_with("known misprint, not reproduced"));
    assert!(report.facts.iter().all(|fact| fact.label == Label::Modelled && !fact.unit.is_empty()));
}

#[test]
fn the_prices_that_the_text_gives_for_flash_do_not_give_the_table() {
    // 1000 + 2 x 3000 and 150 + 400 are printed in the text; the table's other cells deny both.
    let text = SCENARIOS[0].text.replace("\"3500 $\"", "\"3000 $\"").replace("\"350 $\"", "\"400 $\"");
    let report = plan(&Description::toml("text", &text)).unwrap();
    let differs =
        |name: &str| report.rows.iter().any(|row| row.name == name && row.verdict == Verdict::Differs);
    for name in [
        "Traditional+SSD: price",
        "Traditional+SSD: cost a gigabyte",
        "FAWN+SSD: price",
        "FAWN+SSD: cost a gigabyte",
    ] {
        assert!(differs(name), "{name} agrees");
    }
    assert!(differs("boundary from FAWN+Disk to FAWN+SSD"));
}

#[test]
fn traditional_nodes_with_disks_win_from_nine_disks_on_not_from_fifty() {
    let with_disks = |count: u32| {
        let text = SCENARIOS[0].text.replacen("count = 5", &format!("count = {count}"), 1);
        let end = text.find("# Table 2.2, cell by cell").unwrap();
        let case = read(&text[..end]);
        case.nodes[regions(&case)[0].node].name.clone()
    };
    assert_eq!(with_disks(8), "FAWN+Disk");
    assert_eq!(with_disks(9), "Traditional+Disk");
}

#[test]
fn costs_are_those_reckoned_by_hand() {
    let case = small();
    let (disk, flash) = (&case.nodes[0], &case.nodes[1]);
    assert_eq!(cost_of_node(&case.terms, disk, disk.total_price()), 200.0);
    assert_eq!((flash.total_price(), flash.total_power()), (500.0, 10.0));
    assert_eq!((flash.total_gb(), flash.total_rate()), (10.0, 2_000.0));
    assert_eq!(cost_of_node(&case.terms, flash, flash.total_price()), 600.0);
    // Disk: 2 for the data, 10 for the rate. Flash: 10 for the data, 1 for the rate.
    let by_disk = cost(&case.terms, disk, disk.total_price(), 100.0, 1_000.0);
    assert_eq!((by_disk.nodes, by_disk.total(), by_disk.bound_by_rate), (10.0, 2_000.0, true));
    let by_flash = cost(&case.terms, flash, flash.total_price(), 100.0, 1_000.0);
    assert_eq!((by_flash.nodes, by_flash.total(), by_flash.bound_by_rate), (10.0, 6_000.0, false));
    assert_eq!(cheapest(&case, 100.0, 1_000.0).0, 0);
    assert_eq!(cheapest(&case, 10.0, 2_000.0).0, 1);
    // One query more than ten nodes answer needs the eleventh.
    assert_eq!(cost(&case.terms, disk, 100.0, 100.0, 1_000.1).nodes, 11.0);
    assert_eq!(cost(&case.terms, disk, 100.0, 0.3 / 3.0 * 500.0, 1.0).nodes, 1.0);
}

#[test]
fn the_boundary_is_where_rising_cost_meets_flat_cost() {
    // Flash: 60 $/GB. Disk: 2 $ a query/s. They meet at 30 queries/s a GB.
    let case = small();
    let found: Vec<(usize, f64)> = regions(&case).iter().map(|region| (region.node, region.from)).collect();
    assert_eq!(found, [(0, 0.0), (1, 30.0)]);
}

#[test]
fn boundaries_agree_with_searching_every_ratio() {
    for seed in 0..40 {
        let mut random = SeededRandom::new(seed);
        let mut number = |low: f64, high: f64| low * (high / low).powf(random.below(1_000_001) as f64 / 1e6);
        let mut text = SMALL[..SMALL.find("[[node]]").unwrap()].to_owned();
        for node in 0..6 {
            text.push_str(&format!(
                "[[node]]\nname = \"{node}\"\nprice = \"{} $\"\npower = \"{} W\"\ncapacity = \"{} GB\"\nrate = \"{} /s\"\n",
                number(10.0, 1e4), number(1.0, 1e3), number(1.0, 1e4), number(1e2, 1e6)
            ));
        }
        let case = read(&text);
        let regions = regions(&case);
        for step in -300..900 {
            let ratio = 10f64.powf(f64::from(step) / 100.0);
            let costs: Vec<f64> = case
                .nodes
                .iter()
                .map(|node| {
                    let cost = cost_of_node(&case.terms, node, node.total_price());
                    cost * (1.0 / node.total_gb()).max(ratio / node.total_rate())
                })
                .collect();
            let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
            let region = regions.iter().rev().find(|region| region.from <= ratio).unwrap();
            assert!(costs[region.node] <= least * (1.0 + 1e-9), "seed {seed}, ratio {ratio}");
        }
    }
}

#[test]
fn cooling_infrastructure_and_switches_are_added_on_request() {
    let more = SMALL.replace(
        "[demand]",
        "[cooling]\npue = 2\n[infrastructure]\nprice = \"10 $/W\"\ngenerations = 4\n\
        [network]\nports = 4\nprice = \"80 $\"\npower = \"20 W\"\n[demand]",
    );
    let case = read(&more);
    let disk = &case.nodes[0];
    // A watt: 10 h·$/kWh... 10 x PUE 2 + 10 / 4 = 22.5 $.
    assert_eq!(cost_of_node(&case.terms, disk, 100.0), 100.0 + 10.0 * 22.5 + (80.0 + 20.0 * 22.5) / 4.0);
    let cost = cost(&case.terms, disk, 100.0, 100.0, 1_000.0);
    assert_eq!((cost.nodes, cost.switches, cost.watts), (10.0, 3.0, 160.0));
    assert_eq!(cost.total(), 1_000.0 + 240.0 + 160.0 * 2.5 + 160.0 * 20.0);
    // The published example: a server of 200 W pays for 2,000 $ of infrastructure in one generation.
    let alone = read(&more.replace("generations = 4", "generations = 1"));
    assert_eq!(alone.terms.infrastructure * 200.0, 2_000.0);
    let cooled = plan(&SCENARIOS[1].description()).unwrap();
    assert!(cooled.asked.iter().any(|line| line.contains("PUE 1.91")), "{:?}", cooled.asked);
    assert!(cooled.facts.iter().any(|fact| fact.name == "power and cooling infrastructure"));
}

#[test]
fn nodes_that_cannot_do_what_each_must_are_out_of_question() {
    // Encrypting 64 MB in a second: 100 MB/s does it, 20 MB/s only in four parts.
    let demand = "[demand]\nunit = \"64 MB\"\nunit-within = \"1 s\"\nunit-ways = WAYS";
    let text = |ways: u32| {
        let text = SMALL.replace("[demand]", &demand.replace("WAYS", &ways.to_string()));
        let text = text.replace("rate = \"100 queries/s\"", "rate = \"100 queries/s\"\nspeed = \"20 MB/s\"");
        text.replace("power = \"5 W\"", "power = \"5 W\"\nspeed = \"100 MB/s\"")
    };
    assert_eq!(cheapest(&read(&text(1)), 100.0, 1_000.0).0, 1);
    assert_eq!(cheapest(&read(&text(3)), 100.0, 1_000.0).0, 1);
    assert_eq!(cheapest(&read(&text(4)), 100.0, 1_000.0).0, 0);
    let report = plan(&Description::toml("t", &text(1))).unwrap();
    assert!(
        report.notes.iter().any(|note| note.contains("Out of question: disk: 3.200 s")),
        "{:?}",
        report.notes
    );
    assert!(refusal(&text(1).replace("100 MB/s", "10 MB/s")).contains("no node meets the demand"));
    let missing = SMALL.replace("[demand]", "[demand]\nworking-set = \"2 GB\"");
    assert!(refusal(&missing).contains("the node 'disk' has no memory, which demand.working-set asks for"));
    let memory = missing.replace("capacity = \"50 GB\"", "capacity = \"50 GB\"\nmemory = \"1 GB\"");
    let memory = memory.replace("power = \"5 W\"", "power = \"5 W\"\nmemory = \"4 GB\"");
    assert_eq!(cheapest(&read(&memory), 100.0, 1_000.0).0, 1);
    assert!(refusal(&SMALL.replace("[demand]", "[demand]\nunit = \"1 MB\"")).contains("go together"));
}

#[test]
fn sensitivities_say_where_the_decision_turns() {
    let case = small();
    let found = sensitivities(&case);
    // 10 disks cost 2,000 $, flash 5,000 $ and 1,000 $ of electricity for 100 GB: with a tenth of the data one
    // flash node does for 600 $.
    let data = found.iter().find(|of| of.name == "data").unwrap();
    let (factor, node) = data.below.unwrap();
    assert_eq!(node, 1);
    assert!((factor - 0.3).abs() < 1e-6, "three flash nodes for 1,800 $, at {factor}");
    assert!(data.above.is_none());
    // 10 x price + 1,000 < 6,000 for all prices up to 500: turns at five times 100.
    let price = found.iter().find(|of| of.name == "price of disk").unwrap();
    assert!((price.above.unwrap().0 - 5.0).abs() < 1e-6, "{price:?}");
    assert_eq!(price.twice, Some((0, 3_000.0)));
    // Flash: 10 x (300 + 200 f) + 1,000 stays above 2,000.
    assert!(!found.iter().any(|of| of.name == "price of flash drive"), "it changes nothing");
    assert_eq!(at(&case, Knob::Electricity, 3.0).unwrap().1.total(), 1_000.0 + 3_000.0);
    assert_eq!(at(&case, Knob::Lifetime, 0.5).unwrap().1.total(), 1_000.0 + 500.0);
}

#[test]
fn descriptions_that_would_mislead_are_refused() {
    for (from, to, words) in [
        ("\"1 $/kWh\"", "1.0", "1 has no unit; write for example \"0.10 $/kWh\""),
        ("electricity = \"1 $/kWh\"\n", "", "missing field `electricity`"),
        ("lifetime = \"10000 h\"\n", "", "missing field `lifetime`"),
        ("\"10000 h\"", "\"0 h\"", "`lifetime` is 0 s, but must be above 0"),
        ("\"10000 h\"", "\"10000 W\"", "a unit that is none of a duration"),
        ("\"100 GB\"", "\"0 GB\"", "`demand.data` is 0 B, but must be above 0"),
        ("\"1000 queries/s\"\n[map]", "\"-1 queries/s\"\n[map]", "out of range"),
        ("\"100 $\"\npower = \"10 W\"", "\"nan $\"\npower = \"10 W\"", "is no amount of money"),
        ("\"100 $\"\npower = \"10 W\"", "\"1e30 $\"\npower = \"10 W\"", "out of range"),
        (
            "\"100 $\"\npower = \"10 W\"",
            "\"0 $\"\npower = \"10 W\"",
            "its price, with that of its parts, must be more",
        ),
        (
            "rate = \"100 queries/s\"",
            "rate = \"0 queries/s\"",
            "'disk': its rate, with that of its parts, must be more",
        ),
        ("rate = \"100 queries/s\"", "", "the node 'disk' has no rate, neither itself nor by its parts"),
        ("capacity = \"50 GB\"", "", "the node 'disk' has no capacity"),
        ("capacity = \"50 GB\"", "capcity = \"50 GB\"", "unknown field `capcity`"),
        ("count = 2", "count = nan", "out of range"),
        ("count = 2", "count = 0", "`count of the part 'flash drive'` is 0, but must be from 1"),
        ("node = \"flash\"", "node = \"flush\"", "is of the node 'flush', which is not there"),
        ("name = \"flash\"\n", "name = \"disk\"\n", "two nodes are called 'disk'"),
        ("\"1 TB\"", "\"10 GB\"", "map.data-to must be from 1.1"),
        ("[demand]", "[cooling]\npue = 0.9\n[demand]", "`cooling.pue` is 0.9, but must be from 1 to 10"),
        ("[demand]", "[network]\nports = 1.5\nprice = \"1 $\"\npower = \"1 W\"\n[demand]", "a whole number"),
        (
            "[demand]",
            "[infrastructure]\nprice = \"1 $/W\"\ngenerations = 0\n[demand]",
            "infrastructure.generations",
        ),
    ] {
        let text = SMALL.replacen(from, to, 1);
        assert_ne!(text, SMALL, "{from} is not there");
        let message = refusal(&text);
        assert!(message.contains(words), "{from} -> {to}: {message}");
    }
    let empty = SMALL[..SMALL.find("[[node]]").unwrap()].to_owned();
    assert!(refusal(&empty).contains("the catalogue is empty"));
    let many: String = (0..65).fold(empty, |text, node| {
        format!("{text}[[node]]\nname = \"{node}\"\nprice = \"1 $\"\npower = \"1 W\"\ncapacity = \"1 GB\"\nrate = \"1 /s\"\n")
    });
    assert!(refusal(&many).contains("at most 64 nodes"));
    let published =
        "[[published]]\nnode = \"disk\"\nmeasure = \"price\"\nvalue = \"VALUE\"\nplace = \"here\"\n";
    for value in ["", "x", "1..2", "-1", "nan", "1e3", "K"] {
        let text = format!("{SMALL}{}", published.replace("VALUE", value));
        assert!(refusal(&text).contains("is no number such as"), "{value}");
    }
}

#[test]
fn printed_numbers_carry_their_precision() {
    assert_eq!(printed("0.26").unwrap(), Printed { value: 0.26, unit: 0.01 });
    assert_eq!(printed("3.5K").unwrap(), Printed { value: 3_500.0, unit: 100.0 });
    assert_eq!(printed("1M").unwrap(), Printed { value: 1e6, unit: 1e6 });
    assert_eq!(printed("134").unwrap(), Printed { value: 134.0, unit: 1.0 });
}

#[test]
fn the_map_covers_its_frame_with_the_cheapest_designs() {
    let report = shipped();
    let map = report.plots.iter().find(|plot| plot.name == "regions").unwrap();
    let areas = map.series.iter().filter(|series| !series.area.is_empty());
    let names: Vec<&str> = areas.clone().map(|series| series.name.as_str()).collect();
    assert_eq!(names, ["Traditional+DRAM", "FAWN+Disk", "FAWN+SSD", "FAWN+DRAM"]);
    let square = |[(x0, y0), (x1, y1)]: &[(f64, f64); 2]| (x1 / x0).log10() * (y1 / y0).log10();
    let covered: f64 = areas.flat_map(|series| &series.area).map(square).sum();
    assert!((covered - 5.0 * 4.0).abs() < 1e-6, "five decades of data, four of rate: {covered}");
    let winner = report.tables.iter().find(|table| table.name == "designs").unwrap();
    assert_eq!(winner.rows[0][0], Cell::Text("FAWN+SSD".to_owned()));
}

#[test]
fn nodes_of_the_catalogue_have_their_published_figures_and_their_sources() {
    let case = case::read(&SCENARIOS[2].description()).unwrap();
    assert_eq!((case.nodes[0].total_price(), case.nodes[0].total_power()), (80.0 + 169.0, 12.0 + 5.4));
    assert_eq!((case.nodes[0].total_gb(), case.nodes[0].total_rate()), (1_000.0, 122_000.0));
    let report = plan(&SCENARIOS[2].description()).unwrap();
    assert!(report.tables.iter().any(|table| table.name == "published-catalogue"));
    assert!(!shipped().tables.iter().any(|table| table.name == "published-catalogue"));
    // One's own figure goes before the published one.
    let own = SCENARIOS[2].text.replacen(
        "rate = \"122 k queries/s\"",
        "rate = \"122 k queries/s\"\nprice = \"95 $\"",
        1,
    );
    assert_eq!(read(&own).nodes[0].price, 95.0);
}

#[test]
fn a_part_without_a_sourced_price_is_refused_until_one_is_given() {
    let text = SCENARIOS[2].text.replace("Samsung 990 PRO 1 TB", "Samsung PM9A3 7.68 TB");
    let said = refusal(&text);
    assert!(
        said.contains("990 PRO 1 TB") && said.contains("no price") && said.contains("price = "),
        "{said}"
    );
    let given = text.replacen("count = 1\n", "count = 1\nprice = \"900 $\"\npower = \"13 W\"\n", 1);
    assert_eq!(read(&given).nodes[0].total_gb(), 7_680.0);
    let said = refusal(&SCENARIOS[2].text.replace("Raspberry Pi 5, 8 GB", "Raspberry Pi 9"));
    assert!(said.contains("'Raspberry Pi 9'") && said.contains("Samsung 870 EVO 4 TB"), "{said}");
    let said = refusal(&SMALL.replacen("price = \"100 $\"", "", 1));
    assert!(said.contains("'disk'") && said.contains("`price` is missing"), "{said}");
}
