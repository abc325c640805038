use super::*;
use crate::experiment::{Kind, Size};
use crate::machine::Machine;
use crate::result::{Axis, FORMAT, Plot, Row, Series, StepTime, Table, Verdict};
use std::collections::BTreeMap;

fn result() -> ExperimentResult {
    let mut table = Table::new("gets", "Gets", &["size", "gets/s"]);
    table.push(["small, or \"tiny\"".into(), 1_234.5.into()]);
    table.push(["large".into(), f64::NAN.into()]);
    ExperimentResult {
        format: FORMAT,
        name: "an-experiment".into(),
        title: "An experiment".into(),
        source: "a paper, Table 1".into(),
        measures: "gets".into(),
        kind: Kind::Measured,
        size: Size::Quick,
        program: "tierstone".into(),
        started: "2026-01-01T00:00:00Z".into(),
        seconds: 1.5,
        machine: Machine { cpu: "a processor".into(), cores: 2, ..Machine::default() },
        settings: BTreeMap::from([("seed".into(), "1".into())]),
        rows: vec![Row {
            name: "gets | puts".into(),
            published: 0.808,
            here: 0.5,
            unit: "ratio".into(),
            place: "Table 1".into(),
            verdict: Verdict::Differs,
            because: "another device".into(),
        }],
        tables: vec![table],
        shown: vec!["gets".into()],
        plots: vec![Plot {
            name: "curve".into(),
            title: "Curve".into(),
            x: Axis::linear("x"),
            y: Axis::logarithmic("y"),
            series: vec![Series::new("line", [(0.0, 1.0), (f64::NAN, 2.0), (3.0, 4.0)])],
        }],
        notes: vec!["others used the machine".into()],
        steps: vec![StepTime { doing: "gets".into(), seconds: 1.25 }],
    }
}

struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tierstone-lab-out-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_result_is_written_whole_and_read_back_equal() {
    let folder = Folder::new("whole");
    let result = result();
    write(&result, &folder.0).unwrap();
    write_index(std::slice::from_ref(&result), &folder.0).unwrap();
    let below = folder.0.join("an-experiment");
    assert_eq!(read(&below.join("result.json")).unwrap(), result);
    let csv = std::fs::read_to_string(below.join("gets.csv")).unwrap();
    assert_eq!(csv, "size,gets/s\n\"small, or \"\"tiny\"\"\",1234.5\nlarge,-\n");
    assert!(std::fs::read(below.join("curve.png")).unwrap().starts_with(b"\x89PNG"));
    assert!(std::fs::read_to_string(below.join("curve.svg")).unwrap().contains("</svg>"));
    let page = std::fs::read_to_string(below.join("README.md")).unwrap();
    for words in [
        "| gets \\| puts | 0.808 (Table 1) | 0.500 | ratio | **differs** |",
        "![Curve](curve.svg)",
        "| large | - |",
    ] {
        assert!(page.contains(words), "{words} is not in\n{page}");
    }
    let index = std::fs::read_to_string(folder.0.join("README.md")).unwrap();
    assert!(index.contains("[An experiment](an-experiment/README.md)"), "{index}");
    assert!(
        !std::fs::read_dir(&below).unwrap().any(|file| file
            .unwrap()
            .path()
            .extension()
            .is_some_and(|e| e == "new"))
    );
}

#[test]
fn the_index_lists_what_earlier_runs_left() {
    let folder = Folder::new("index");
    let named = |name: &str, title: &str| ExperimentResult {
        name: name.into(),
        title: title.into(),
        machine: Machine { cpu: format!("the machine of {name}"), ..Machine::default() },
        ..result()
    };
    let index = |results: &[ExperimentResult]| {
        results.iter().for_each(|result| write(result, &folder.0).unwrap());
        write_index(results, &folder.0).unwrap();
        std::fs::read_to_string(folder.0.join("README.md")).unwrap()
    };
    index(&[named("near-full", "Near full"), named("own", "Own")]);
    // Other files and folders are none of its own; a result of another version is named.
    std::fs::create_dir(folder.0.join("data")).unwrap();
    std::fs::create_dir(folder.0.join("newer")).unwrap();
    let newer = ExperimentResult { format: FORMAT + 1, ..named("newer", "Newer") };
    std::fs::write(folder.0.join("newer/result.json"), serde_json::to_vec(&newer).unwrap()).unwrap();
    let text = index(&[named("endurance", "Endurance"), named("near-full", "Near full, again")]);
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| [")).collect();
    assert_eq!(rows.len(), 3, "{text}");
    for row in
        ["| [Endurance](endurance/", "| [Near full, again](near-full/README.md)", "| [Own](own/README.md)"]
    {
        assert!(rows.iter().any(|found| found.starts_with(row)), "{row} is not in\n{text}");
    }
    assert!(rows[2].starts_with("| [Own]"), "what is no experiment of ours comes last: {text}");
    assert!(text.contains("cannot be read: newer\n") && !text.contains("data"), "{text}");
    assert_eq!(text.matches("* the machine of").count(), 3, "{text}");
}

#[test]
fn numbers_are_said_to_be_what_they_are() {
    let says = |result: &ExperimentResult| {
        let page = page::page(result);
        page.lines().find_map(|line| line.strip_prefix("* numbers here: ").map(str::to_owned)).unwrap()
    };
    let modelled = ExperimentResult { kind: Kind::Modelled, ..result() };
    assert_eq!(says(&modelled), "modelled, size `quick`");
    let mut mixed = modelled.clone();
    mixed.tables[0].columns[1] = "gets/s (measured)".into();
    assert_eq!(says(&mixed), "modelled, but for those said to be measured, size `quick`");
    mixed.plots[0].series[0].name = "published steps".into();
    assert_eq!(says(&mixed), "modelled, but for those said to be measured or published, size `quick`");
    let mut rated = result();
    rated.tables[0].rows[0][0] = "Modelled".into();
    assert_eq!(says(&rated), "measured, but for those said to be modelled, size `quick`");
}

#[test]
fn the_format_has_its_fields_under_their_names() {
    let json: serde_json::Value = serde_json::to_value(result()).unwrap();
    for field in [
        "format", "name", "source", "machine", "kind", "size", "rows", "tables", "plots", "settings",
        "started", "shown",
    ] {
        assert!(!json[field].is_null(), "{field}");
    }
    assert_eq!(json["kind"], "measured");
    let row = &json["rows"][0];
    for field in ["name", "published", "here", "unit", "verdict", "because"] {
        assert!(!row[field].is_null(), "{field}");
    }
    assert_eq!(row["verdict"], "differs");
}

#[test]
fn other_formats_and_other_files_are_refused() {
    let folder = Folder::new("refused");
    let file = folder.0.join("result.json");
    let newer = ExperimentResult { format: FORMAT + 1, ..result() };
    std::fs::write(&file, serde_json::to_vec(&newer).unwrap()).unwrap();
    assert_eq!(read(&file).unwrap_err().kind(), ErrorKind::Incompatible);
    std::fs::write(&file, b"{}").unwrap();
    assert_eq!(read(&file).unwrap_err().kind(), ErrorKind::InvalidInput);
}
