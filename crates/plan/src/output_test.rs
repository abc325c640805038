use super::*;
use crate::parts::{Axis, Plot, Row, Series, Verdict};
use crate::report::{Fact, Label};
use std::sync::atomic::{AtomicU32, Ordering};

const HOSTILE: &str = "<script>alert('x')</script> & \"y\"";

fn report() -> Report {
    let mut table = Table::new("designs", HOSTILE, &["design", "cost <$>"]);
    table.push([HOSTILE.into(), 12_345.678.into()]);
    Report {
        format: FORMAT,
        name: "nodes".into(),
        title: HOSTILE.into(),
        source: HOSTILE.into(),
        asked: vec![HOSTILE.into()],
        answer: vec![HOSTILE.into()],
        facts: vec![Fact {
            name: HOSTILE.into(),
            value: 2_657.0,
            unit: HOSTILE.into(),
            label: Label::Modelled,
        }],
        rows: vec![Row {
            name: HOSTILE.into(),
            published: 0.26,
            here: 0.2657,
            unit: "$/GB".into(),
            place: HOSTILE.into(),
            verdict: Verdict::Differs,
            because: HOSTILE.into(),
        }],
        tables: vec![table],
        plots: vec![Plot {
            name: "costs".into(),
            title: HOSTILE.into(),
            x: Axis::linear(HOSTILE),
            y: Axis::linear("$"),
            series: vec![Series::new(HOSTILE, [(0.0, 1.0), (1.0, 2.0)]), Series::new("b", [(0.0, 2.0)])],
        }],
        explanation: vec![HOSTILE.into()],
        notes: vec![HOSTILE.into()],
    }
}

fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("tierstone-plan-{}-{number}", std::process::id()))
}

#[test]
fn a_report_becomes_files_and_is_read_back() {
    let out = folder();
    let written = write(&report(), &out).unwrap();
    assert_eq!(written, out.join("nodes"));
    let mut names: Vec<String> = std::fs::read_dir(&written)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["costs.png", "costs.svg", "designs.csv", "report.html", "report.json"]);
    assert_eq!(read(&written.join("report.json")).unwrap(), report());
    let csv = std::fs::read_to_string(written.join("designs.csv")).unwrap();
    assert!(csv.contains("12345.678"), "{csv}");
    write(&report(), &out).expect("a second plan replaces the first");
    std::fs::remove_dir_all(out).unwrap();
}

#[test]
fn no_text_of_a_report_becomes_markup() {
    let page = html::page(&report()).unwrap();
    assert!(!page.contains("<script"), "{page}");
    assert!(!page.contains("alert('x')"), "{page}");
    assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)"), "{page}");
    assert_eq!(page.matches("<svg").count(), 1);
    for word in ["http://", "https://", "src=", "@import", "url("] {
        let found = page.replace("http://www.w3.org/2000/svg", "").contains(word);
        assert!(!found, "the page loads something: {word}");
    }
}

#[test]
fn every_number_of_a_page_has_its_unit_and_label() {
    let page = html::page(&report()).unwrap();
    assert!(page.contains("<td class=\"number\">2,657</td>") && page.contains("<td>modelled</td>"), "{page}");
    assert!(
        page.contains("<td class=\"number\">0.260</td><td class=\"number\">0.266</td><td>$/GB</td>"),
        "{page}"
    );
    assert!(page.contains("class=\"differs\">differs"), "{page}");
    assert!(page.contains(html::LABELS));
}

#[test]
fn names_that_leave_the_folder_and_foreign_formats_are_refused() {
    let mut wrong = report();
    wrong.name = "../x".into();
    assert!(write(&wrong, &folder()).unwrap_err().message().contains("is no name of a file"));
    let out = folder();
    let mut other = report();
    other.format = FORMAT + 1;
    let written = write(&other, &out).unwrap();
    assert_eq!(read(&written.join("report.json")).unwrap_err().kind(), ErrorKind::Incompatible);
    std::fs::remove_dir_all(out).unwrap();
}
