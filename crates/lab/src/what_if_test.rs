use super::*;
use crate::experiment::Size;
use tierstone_workload::replay::PlanSettings;
use tierstone_workload::trace::{
    TraceHead, TraceKey, TraceOperation, TraceReader, TraceRecord, TraceSource, TraceWriter,
};

/// A trace of 120 operations on 20 keys, a fourth of them writes.
fn tiny_plan() -> ReplayPlan {
    plan_of(120, |number| match number % 4 {
        0 => TraceOperation::Write,
        3 if number > 100 => TraceOperation::Other("hset".into()),
        _ => TraceOperation::Read,
    })
}

fn plan_of(operations: u64, operation: impl Fn(u64) -> TraceOperation) -> ReplayPlan {
    let head = TraceHead { source: TraceSource::Server, is_anonymous: false, began_ms: 0 };
    let mut writer = TraceWriter::new(Vec::new(), &head).unwrap();
    for number in 0..operations {
        let operation = operation(number);
        let is_write = operation == TraceOperation::Write;
        let key = TraceKey::of(format!("key{}", number % 20).as_bytes());
        let record = TraceRecord::new(number * 200, operation, key);
        writer.push(&TraceRecord { value_bytes: is_write.then_some(200), ..record }).unwrap();
    }
    let bytes = writer.finish().unwrap();
    let mut reader = TraceReader::new(bytes.as_slice()).unwrap();
    ReplayPlan::read(&mut reader, &PlanSettings::default()).unwrap()
}

fn tiny(memories: &[&str]) -> WhatIf {
    WhatIf {
        memories: memories.iter().map(|name| (*name).to_owned()).collect(),
        region_bytes: 20 << 20,
        whole_bytes: 0,
        rounds: 2,
        options: DatabaseOptions {
            memory_bytes: 16 << 20,
            capacity_bytes: Some(64 << 20),
            ..DatabaseOptions::default()
        },
        replay: ReplaySettings { pace: Pace::AsFastAsPossible, callers: 2, seed: 1 },
    }
}

fn settings() -> RunSettings {
    RunSettings { size: Size::Tiny, data: std::env::temp_dir(), seed: 1 }
}

#[test]
fn every_medium_is_measured_in_every_round_and_what_was_left_out_is_said() {
    let plan = tiny_plan();
    let what = WhatIf { whole_bytes: 64 << 20, ..tiny(&["dram", "mlc-pcm"]) };
    let result = what_if(&plan, &what, &settings(), &mut |_| ControlFlow::Continue(())).unwrap();
    let names: Vec<&Cell> = result.tables[0].rows.iter().map(|row| &row[0]).collect();
    let all = ["flash alone", "dram", "mlc-pcm", "dram, all of it", "mlc-pcm, all of it"];
    assert_eq!(names, all.map(Cell::from).each_ref());
    assert_eq!(result.tables[1].rows.len(), 10);
    let row = |name: &str| {
        &result.tables[0].rows[names.iter().position(|cell| **cell == Cell::from(name)).unwrap()]
    };
    for name in all {
        assert!(row(name)[1..].iter().all(|cell| matches!(cell, Cell::Number(_))), "{:?}", row(name));
    }
    let columns = &result.tables[0].columns;
    let latencies: Vec<usize> =
        (1..columns.len()).filter(|&place| columns[place].contains("p50 µs")).collect();
    assert_eq!(latencies.len(), 2, "{columns:?}");
    for place in latencies {
        let seen = result.tables[0].rows.iter().map(|row| match row[place] {
            Cell::Number(us) => us,
            ref other => panic!("{other:?}"),
        });
        // Whole microseconds in all of them would be a clock that cannot tell memories apart.
        assert!(seen.clone().all(|us| us > 0.0) && seen.clone().any(|us| us.fract() != 0.0), "{columns:?}");
    }
    assert!(result.notes.iter().any(|note| note.starts_with("Measured on emulated memory")));
    let left_out = result.notes.iter().find(|note| note.contains("could not be replayed")).unwrap();
    assert!(left_out.contains("(hset 5)"), "{left_out}");
    assert_eq!(result.plots.len(), 2);
    assert!(result.rows.is_empty() && !crate::page::page(&result).contains("published values"));
}

#[test]
fn a_memory_is_slower_by_what_it_was_slowed_down() {
    // A fence of multi-level cells takes 3 µs: two hundred writes in a row cannot take less than that.
    let plan = tiny_plan();
    let seen = |name: &str| {
        let scratch = crate::scratch::Scratch::new(&std::env::temp_dir(), 0).unwrap();
        let what = tiny(&[name]);
        let options = DatabaseOptions {
            directories: vec![scratch.path().join("store")],
            durable_method: Some(tierstone::DurableMethod::WriteThenFlush),
            redo: Some(RedoOptions::new(format!("emulated:20MiB:{name}"))),
            ..what.options
        };
        let settings = ReplaySettings { callers: 1, ..what.replay };
        replay(&plan, &settings, &options, &mut |_, _| ControlFlow::Continue(())).unwrap()
    };
    let slow = seen("mlc-pcm");
    slow.judge().unwrap();
    assert!(slow.cost.redo_fences >= slow.run.writes.count, "{:?}", slow.cost);
    assert!(slow.run.writes.mean_us >= 3.0, "{:?}", slow.run.writes);
    assert_eq!(slow.run.outcome.misses, 0);
}

#[test]
fn unknown_memories_and_stops_are_refused_and_seen() {
    let plan = tiny_plan();
    let refused = |what: WhatIf| {
        let error = what_if(&plan, &what, &settings(), &mut |_| ControlFlow::Continue(())).unwrap_err();
        (error.kind(), error.message().to_owned())
    };
    let (kind, message) = refused(tiny(&["optane"]));
    assert!(kind == ErrorKind::InvalidInput && message.contains("dcpmm"), "{message}");
    assert_eq!(refused(tiny(&["pcm", "pcm"])).0, ErrorKind::InvalidInput);
    assert_eq!(refused(WhatIf { rounds: 0, ..tiny(&[]) }).0, ErrorKind::InvalidInput);
    let stopped = what_if(&plan, &tiny(&["pcm"]), &settings(), &mut |_| ControlFlow::Break(()));
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Retry);
}

#[test]
fn a_region_that_is_too_small_is_told() {
    let plan = tiny_plan();
    let what = WhatIf { region_bytes: 16 << 10, ..tiny(&["dram"]) };
    let error = what_if(&plan, &what, &settings(), &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.message().contains("too small"), "{error}");
}

#[test]
fn a_single_read_or_write_is_measured_and_has_no_curve() {
    let folder = std::env::temp_dir().join(format!("tierstone-lab-single-{}", std::process::id()));
    for (single, plotted) in [(TraceOperation::Read, "writes"), (TraceOperation::Write, "reads")] {
        let other = if single == TraceOperation::Read { TraceOperation::Write } else { TraceOperation::Read };
        let plan = plan_of(40, |number| if number == 39 { single.clone() } else { other.clone() });
        let what = WhatIf { rounds: 1, ..tiny(&["dram"]) };
        let result = what_if(&plan, &what, &settings(), &mut |_| ControlFlow::Continue(())).unwrap();
        let names: Vec<&str> = result.plots.iter().map(|plot| plot.name.as_str()).collect();
        assert_eq!(names, [plotted]);
        crate::output::write(&result, &folder).unwrap();
        assert_eq!(crate::output::read(&folder.join("what-if/result.json")).unwrap(), result);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
