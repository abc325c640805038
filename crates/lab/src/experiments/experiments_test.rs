use super::{ALL, find};
use crate::result::{Cell, ExperimentResult, Verdict};
use crate::{RunSettings, Size, run};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use tierstone_base::ErrorKind;

fn tiny() -> RunSettings {
    RunSettings { size: Size::Tiny, data: std::env::temp_dir(), seed: 1 }
}

/// Runs the experiment at its smallest and looks at the form of what it gives.
fn run_tiny(name: &str) -> ExperimentResult {
    let experiment = find(name).unwrap();
    let mut done = 0.0;
    let result = run(experiment, &tiny(), &mut |progress| {
        assert!((0.0..=1.0).contains(&progress.done) && !progress.doing.is_empty(), "{progress:?}");
        done = progress.done;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(done > 0.5, "the steps are fewer than was said: {done}");
    assert_eq!(result.rows.len(), experiment.published.len());
    for table in &result.tables {
        assert!(!table.rows.is_empty(), "{}", table.name);
        for row in &table.rows {
            assert_eq!(row.len(), table.columns.len(), "{}", table.name);
            assert!(row.iter().all(|cell| !matches!(cell, Cell::Number(number) if !number.is_finite())));
        }
    }
    assert!(!result.plots.is_empty());
    for plot in &result.plots {
        assert!(
            plot.series.iter().all(|series| !series.points.is_empty()),
            "{}: {:?}",
            plot.name,
            plot.series
        );
    }
    let names: BTreeSet<&str> = result
        .tables
        .iter()
        .map(|table| table.name.as_str())
        .chain(result.plots.iter().map(|plot| plot.name.as_str()))
        .collect();
    assert!(names.iter().all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '-')), "{names:?}");
    result
}

#[test]
fn names_and_published_values_are_whole_and_unique() {
    let names: BTreeSet<&str> = ALL.iter().map(|experiment| experiment.name).collect();
    assert_eq!(names.len(), ALL.len());
    for experiment in ALL {
        assert!(!experiment.published.is_empty(), "{}", experiment.name);
        let values: BTreeSet<&str> = experiment.published.iter().map(|value| value.name).collect();
        assert_eq!(values.len(), experiment.published.len(), "{}", experiment.name);
        for value in experiment.published {
            assert!(
                value.value.is_finite() && !value.place.is_empty() && !value.because.is_empty(),
                "{value:?}"
            );
        }
    }
}

#[test]
fn a_run_that_is_stopped_ends_and_leaves_no_folder() {
    let parent = std::env::temp_dir().join(format!("tierstone-lab-stop-{}", std::process::id()));
    std::fs::create_dir_all(&parent).unwrap();
    for experiment in ALL {
        let mut calls = 0;
        let settings = RunSettings { data: parent.clone(), ..tiny() };
        let error = run(experiment, &settings, &mut |_| {
            calls += 1;
            if calls > 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
        assert_eq!(std::fs::read_dir(&parent).unwrap().count(), 0);
    }
    std::fs::remove_dir_all(&parent).unwrap();
}

#[test]
fn the_single_store_runs() {
    let result = run_tiny("fawn-ds-single-store");
    assert_eq!(result.tables[0].rows.len(), 14);
}

#[test]
fn the_put_ratio_sweep_runs_and_its_tight_store_cleans() {
    let result = run_tiny("fawn-ds-put-ratio");
    assert_eq!(result.tables[0].rows.len(), 9);
    let cleaning = &result.rows[3].because;
    assert!(!cleaning.contains("; 0 B moved"), "{cleaning}");
}

#[test]
fn the_spread_over_logs_runs() {
    let result = run_tiny("fawn-ds-files");
    assert_eq!(result.tables[0].rows.len(), 2);
}

#[test]
fn latency_beside_maintenance_runs() {
    let result = run_tiny("fawn-ds-maintenance");
    assert_eq!(result.tables[0].rows.len(), 6);
}

#[test]
fn latency_in_split_merge_and_compact_runs() {
    let result = run_tiny("fawn-ds-split");
    assert_eq!(result.tables[0].rows.len(), 7);
    let moved = |row: usize| match result.tables[0].rows[row][9] {
        Cell::Number(megabytes) => megabytes,
        ref other => panic!("{other:?}"),
    };
    // Half of 4 MB, back again, and once more.
    assert!([3, 4, 6].iter().all(|&row| (1.5..3.0).contains(&moved(row))), "{:?}", result.tables[0].rows);
}

#[test]
fn the_structures_run_side_by_side() {
    let result = run_tiny("fawn-ds-vs-structures");
    assert_eq!(result.tables[0].rows.len(), 3);
}

#[test]
fn the_persistency_table_runs_and_its_paths_are_those_of_the_models() {
    let result = run_tiny("persistency");
    let table = |name: &str| &result.tables.iter().find(|table| table.name == name).unwrap().rows;
    let (cells, rates, long) = (table("cells"), table("instruction-rates"), table("persist-bound"));
    assert_eq!((cells.len(), rates.len(), long.len()), (6, 6, 18));
    // One thread: strict 15, 15, 17; epoch 1, 1, 2.
    for (row, wanted) in [(0, 15.0), (1, 1.0), (6, 15.0), (7, 1.0), (12, 17.0), (13, 2.0)] {
        let path = number(&long[row][3]);
        assert!((path - wanted).abs() < 0.05, "row {row}: {path}");
    }
    let shown: Vec<&str> = result.shown_tables().map(|table| table.name.as_str()).collect();
    assert_eq!(shown, ["cells", "instruction-rates"]);
    for (place, row) in cells.iter().enumerate() {
        for model in 0..3 {
            let cell = &long[3 * place + model];
            assert_eq!((&row[2 + 2 * model], &row[3 + 2 * model]), (&cell[6], &cell[7]), "row {place}");
        }
    }
    assert_eq!(cells[5][5], Cell::Number(1.9));
    let processors = std::thread::available_parallelism().unwrap().get() as u64;
    for row in rates {
        let threads = (number(&row[1]) as u64).min(processors);
        let how = if threads == 1 { "1 thread,".to_owned() } else { format!("{threads} threads,") };
        assert!(matches!(&row[5], Cell::Text(text) if text.starts_with(&how)), "{row:?}");
        assert!(number(&row[3]) <= number(&row[2]) && number(&row[2]) <= number(&row[4]), "{row:?}");
    }
}

fn number(cell: &Cell) -> f64 {
    match cell {
        Cell::Number(number) => *number,
        other => panic!("{other:?}"),
    }
}

#[test]
fn break_even_latencies_stand_beside_the_published_ones_of_every_queue() {
    let result = run_tiny("persist-latency");
    let rows = &result.tables[0].rows;
    assert_eq!((rows.len(), result.plots.len()), (18, 3));
    for three in rows.chunks(3) {
        let even: Vec<f64> = three.iter().map(|row| number(&row[5])).collect();
        assert!(even[0] < even[1] && even[1] < even[2], "{three:?}");
        // A break-even is the latency at which the path of an insert takes as long as its instructions.
        let wanted = 1e3 / (number(&three[0][3]) * number(&three[0][4]));
        assert!((even[0] / wanted - 1.0).abs() < 1e-6, "{three:?}");
    }
    // What is printed for epochs and what follows from the table contradict each other: both are shown.
    assert_eq!(rows[1][6], Cell::Number(119.0));
    assert!((number(&rows[1][7]) - 85.0).abs() < 1e-9, "500 ns by 0.17: {:?}", rows[1]);
    assert_eq!(rows[6][6], Cell::Text("-".to_owned()));
    assert!((number(&rows[6][7]) - 40.0).abs() < 1e-9, "500 ns by 0.080: {:?}", rows[6]);
    let drawn = |plot: usize| {
        let names = result.plots[plot].series.iter().map(|series| series.name.as_str());
        names.filter(|name| name.contains("published")).collect::<Vec<_>>()
    };
    assert_eq!((drawn(0).len(), drawn(1).len(), drawn(2).len()), (4, 3, 3), "{:?}", drawn(0));
    assert!(drawn(0).contains(&"epoch, 1 thread, published in Table 8.1"), "{:?}", drawn(0));
}

#[test]
fn sweeps_of_atomic_and_tracked_sizes_have_the_reference_paths() {
    let near = |cell: &Cell, wanted: f64| (number(cell) - wanted).abs() < 0.03 * wanted;
    let atomic = run_tiny("persist-atomic-size").tables.remove(0).rows;
    let tracking = run_tiny("persist-tracking-size").tables.remove(0).rows;
    assert_eq!((atomic.len(), tracking.len()), (21, 21));
    // Copy While Locked in rows 0 to 6, Queue Holes in 14 to 20: 8 to 512 bytes.
    for (row, strict, epoch) in
        [(0, 15.0, 1.0), (3, 3.0, 1.0), (6, 2.0, 1.0), (14, 17.0, 2.0), (20, 2.25, 2.0)]
    {
        assert!(near(&atomic[row][2], strict) && near(&atomic[row][3], epoch), "{:?}", atomic[row]);
    }
    for (row, strict, epoch) in
        [(0, 15.0, 1.0), (3, 15.0, 8.0), (6, 15.0, 14.0), (14, 17.0, 2.0), (20, 17.0, 15.75)]
    {
        assert!(near(&tracking[row][2], strict) && near(&tracking[row][3], epoch), "{:?}", tracking[row]);
    }
}

#[test]
fn distances_of_inserts_are_counted_natively_and_under_the_tracer() {
    let result = run_tiny("persist-distance");
    assert_eq!(
        (result.tables[0].rows.len(), result.tables[1].rows.len(), result.plots.len()),
        (6, 6 * 16, 3)
    );
    for row in &result.tables[0].rows {
        assert!((6..9).all(|column| (0.0..=1.0 + 1e-9).contains(&number(&row[column]))), "{row:?}");
    }
    for histogram in result.tables[1].rows.chunks(16) {
        let whole =
            (3..7).all(|way| (histogram.iter().map(|row| number(&row[way])).sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(whole, "{histogram:?}");
    }
}

#[test]
fn a_counter_is_incremented_by_a_mutex_and_by_messages() {
    let result = run_tiny("mutex-messages");
    assert_eq!((result.tables[0].rows.len(), result.plots.len()), (10, 3));
    assert!(result.tables[0].rows.iter().all(|row| number(&row[2]) > 0.0), "{:?}", result.tables[0].rows);
}

#[test]
fn costs_of_memory_are_worked_out_for_the_published_systems_and_for_ours() {
    let result = run_tiny("storage-cost");
    assert_eq!((result.tables[0].rows.len(), result.tables[1].rows.len()), (10, 4));
    for row in &result.tables[0].rows {
        assert!((number(&row[5]) + number(&row[6]) - number(&row[2])).abs() < 1e-9, "{row:?}");
    }
    for row in &result.tables[1].rows {
        let value = number(&row[0]);
        assert!(number(&row[4]) >= value + 24.0 && number(&row[3]) > 1.0, "{row:?}");
        assert!(number(&row[5]) >= number(&row[4]), "what lives is in use: {row:?}");
        // The logs of a store in memory, or the region of a redo log: no more than either.
        assert!((10.0..30.0).contains(&number(&row[8])), "{row:?}");
    }
    let places: Vec<&Cell> = result.tables[1].rows.iter().map(|row| &row[1]).collect();
    assert!(places[0] == places[2] && places[1] == places[3] && places[0] != places[1], "{places:?}");
    assert!(
        result.rows[0].because.ends_with(&format!("{:.1} GB of NVM", number(&result.tables[1].rows[0][10]))),
        "what is wholly in memory is compared: {:?}",
        result.rows[0]
    );
    let shown: Vec<&str> = result.shown_tables().map(|table| table.name.as_str()).collect();
    assert_eq!(shown, ["cost"]);
}

#[test]
fn near_full_takes_both_stores_through_all_parts() {
    let result = run_tiny("near-full");
    let [rates, tails] = &result.tables[..] else { panic!("{:?}", result.tables) };
    assert_eq!((rates.rows.len(), tails.rows.len()), (2, 4));
    for row in &rates.rows {
        for rate in [1, 2, 3, 7] {
            assert!(matches!(row[rate], Cell::Number(number) if number > 0.0), "{row:?}");
        }
    }
    assert_eq!(result.plots[0].series[0].points.len(), 48);
}

#[test]
fn the_redo_log_and_all_of_the_store_are_measured_in_every_memory() {
    let result = run_tiny("redo-log");
    let published = tierstone_media::region::MEMORY_PROFILES.iter();
    let slowed = published.filter(|profile| profile.slowness().is_some()).count();
    // The device; a redo log, and all of the store, in this machine's memory and in each slower one.
    let media = 1 + 2 * (1 + slowed);
    assert_eq!((result.tables[0].rows.len(), result.tables[1].rows.len()), (media, 3 * media));
    let shown: Vec<&str> = result.shown_tables().map(|table| table.name.as_str()).collect();
    assert_eq!(shown, ["latency"]);
    for row in &result.tables[0].rows {
        // Gets and puts apart, median and p99.
        assert!((1..5).all(|column| number(&row[column]) > 0.0), "{row:?}");
        assert!(number(&row[1]) <= number(&row[2]) && number(&row[3]) <= number(&row[4]), "{row:?}");
    }
    let is_part = |row: &Vec<Cell>| (1..5).any(|column| number(&row[column]).fract() != 0.0);
    assert!(result.tables[0].rows.iter().all(is_part), "whole microseconds tell no memories apart");
    for row in &result.tables[1].rows {
        let is_whole = matches!(&row[0], Cell::Text(name) if name.starts_with("all of it"));
        assert!(!is_whole || number(&row[9]) == 0.0, "no device is written: {row:?}");
    }
}

#[test]
fn the_delays_of_the_emulator_are_measured() {
    let result = run_tiny("emulator-delay");
    assert_eq!((result.tables[0].rows.len(), result.tables[1].rows.len()), (9, 3));
    let [ours, published, line] = &result.tables[1].rows[..] else { panic!("{:?}", result.tables[1]) };
    let dash = Cell::Text("-".to_owned());
    assert_eq!(published[1..5], [12.5, 0.434, 10.1, 0.997].map(Cell::from));
    // The published steps, their offset: 10.1 + 12.5 (0.434 - 0.5).
    assert!((number(&published[5]) - 9.275).abs() < 1e-9, "{published:?}");
    assert!((number(&ours[5]) - result.rows[1].here).abs() < 1e-9, "{ours:?}, {:?}", result.rows[1]);
    // The line has no published value.
    assert_eq!((&line[1], &line[2], &line[3]), (&dash, &dash, &dash));
    assert!(result.rows.iter().all(|row| !row.name.contains("line") || row.published != 0.997));
}

#[test]
fn the_shared_bandwidth_of_the_emulator_is_measured_beside_the_published_table() {
    let result = run_tiny("emulator-bandwidth");
    let published = result.tables[1].rows.iter().filter(|row| row[2] == Cell::Text("published".to_owned()));
    assert_eq!(published.count(), 8);
}

#[test]
fn endurance_is_greater_with_levelling_where_writes_are_uneven_and_cells_outlast_a_stay() {
    let result = run_tiny("endurance");
    let share = |row: usize| match result.tables[0].rows[row][3] {
        Cell::Number(share) => share,
        ref other => panic!("{other:?}"),
    };
    // Three ways of levelling of each kind of writes: uniform, Zipf, one hot line.
    assert!(share(0) > 0.9 && share(1) > 0.9 && share(2) > 0.9, "{:?}", result.tables[0].rows);
    assert!(share(4) > 3.0 * share(3) && share(5) > 3.0 * share(3), "{:?}", result.tables[0].rows);
    assert!((share(6) - 1.0 / 32.0).abs() < 1e-9, "one line of 32: {}", share(6));
    assert!(share(7) > 0.2, "{:?}", result.tables[0].rows);
    assert_eq!(result.tables[1].rows.len(), 8, "years of each preset");
}

#[test]
fn scans_are_measured_from_an_array_and_from_index_and_log_by_distance() {
    let result = run_tiny("scan-variants");
    assert_eq!(result.tables[0].rows.len(), 2 + 9);
    assert!(
        result.plots[0].series.iter().all(|series| series.points.is_sorted_by(|one, other| one.0 < other.0))
    );
}

#[test]
fn ways_of_recovery_are_modelled_and_wear_memory_as_published() {
    let result = run_tiny("recovery-endurance");
    assert_eq!(result.tables[0].rows.len(), 15);
    // No measurement is in it: also the smallest run has the published order.
    assert!(result.rows.iter().all(|row| row.verdict == Verdict::Agrees), "{:?}", result.rows);
    let hottest: Vec<f64> = result.rows.iter().map(|row| row.here).collect();
    assert!(
        hottest[0] > hottest[2]
            && hottest[2] > hottest[3]
            && hottest[3] > hottest[4]
            && hottest[4] > hottest[1]
    );
}
