//! The figures of the presets are the printed ones.

use super::*;

/// A preset's figures: read at random and in order, persist (ns); read, write, both at random (GB/s); granule (bytes);
/// endurance (writes).
type Figures = [Option<f64>; 9];

fn figures(name: &str) -> Figures {
    let profile = MemoryProfile::find(name).unwrap();
    let value = |figure: Option<Figure>| figure.map(|figure| figure.value);
    let rate = |figure: Option<Figure>| figure.map(|figure| figure.value / 1e9);
    [
        value(profile.random_read_ns),
        value(profile.sequential_read_ns),
        value(profile.persist_ns),
        rate(profile.read_bytes_per_second),
        rate(profile.write_bytes_per_second),
        rate(profile.random_read_bytes_per_second),
        rate(profile.random_write_bytes_per_second),
        value(profile.granule_bytes),
        value(profile.endurance_writes),
    ]
}

/// Lersch 2020, Table 2.1: read ns, write ns, endurance, its lower end.
const TECHNOLOGIES: [(&str, f64, f64, f64); 4] = [
    ("dram", 50.0, 50.0, 1e15),
    ("pcm", 50.0, 500.0, 1e8),
    ("stt-mram", 10.0, 50.0, 1e15),
    ("reram", 10.0, 50.0, 1e11),
];

#[test]
fn presets_of_technologies_have_the_figures_of_the_published_table() {
    for (name, read, write, endurance) in TECHNOLOGIES {
        // DRAM was measured by the same work: its reads are those of Table 2.3.
        let (read, in_order) = if name == "dram" { (85.0, Some(75.0)) } else { (read, None) };
        let wanted = [Some(read), in_order, Some(write), None, None, None, None, None, Some(endurance)];
        assert_eq!(figures(name), wanted, "{name}");
    }
}

#[test]
fn the_preset_of_dcpmm_has_the_measured_figures_of_the_published_tables() {
    // Lersch 2020, Table 2.3 and section 2.1.4; the endurance is that of PCM in Table 2.1.
    let wanted = [300.0, 175.0, f64::NAN, 40.0, 10.0, 7.4, 5.3, 256.0, 1e8];
    let wanted = wanted.map(|value: f64| Some(value).filter(|value| !value.is_nan()));
    assert_eq!(figures("dcpmm"), wanted);
}

#[test]
fn what_is_no_figure_of_its_memory_says_so() {
    let place = |figure: Option<Figure>| figure.unwrap().place;
    let mlc = MemoryProfile::find("mlc-pcm").unwrap();
    assert_eq!(figures("mlc-pcm"), [None, None, Some(3_000.0), None, Some(1.5), None, None, None, Some(1e6)]);
    assert!(place(mlc.persist_ns).contains("a parameter") && mlc.what.contains("no figures of such cells"));
    assert!(place(mlc.write_bytes_per_second).contains("a parameter"));
    assert!(place(mlc.endurance_writes).contains("was chosen"));
    // 70 to 90 ns above local DRAM, the middle, and 85 ns of DRAM.
    assert_eq!(figures("cxl")[0], Some(80.0 + 85.0));
    assert!(place(MemoryProfile::find("cxl").unwrap().random_read_ns).contains("the middle"));
    assert_eq!(figures("nvdimm-n")[8], figures("dram")[8]);
}
