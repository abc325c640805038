use super::*;
use crate::parts::Verdict;
use crate::report::Label;

fn shipped() -> Report {
    plan(&SCENARIOS[0].description()).unwrap()
}

#[test]
fn every_published_cell_is_reproduced_but_the_known_misprint() {
    let report = shipped();
    assert_eq!(report.rows.len(), 6 * 7 + 3);
    let differing: Vec<&str> = report
        .rows
        .iter()
        .filter(|row| row.verdict == Verdict::Differs)
        .map(|row| row.name.as_str())
        .collect();
    assert_eq!(differing, ["FAWN+DRAM: cost a gigabyte"]);
    assert!(report.facts.iter().all(|fact| fact.label == Label::Modelled && !fact.unit.is_empty()));
}
