use std::collections::BTreeSet;

use super::{Operation, OperationSource, Workload, Ycsb};
use crate::distribution::Distribution;
use crate::mix::{Mix, OperationKind};

fn small(mix: Mix) -> Workload {
    Workload { records: 100, mix, ..Workload::default() }
}

fn take(source: &mut OperationSource, count: usize) -> Vec<Operation> {
    (0..count).map(|_| source.next_operation().unwrap()).collect()
}

#[test]
fn one_seed_gives_the_same_operations_and_threads_differ() {
    let workload = small(Mix { get: 0.4, set: 0.4, scan: 0.2, ..Mix::default() });
    let run = |seed| {
        let mut sources = OperationSource::mixed(&workload, seed, 2).unwrap();
        sources.iter_mut().map(|source| take(source, 200)).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    assert_ne!(run(1)[0], run(1)[1]);
    let versions: BTreeSet<u64> = run(1).iter().flatten().map(|operation| operation.version).collect();
    assert_eq!(versions.len(), 400, "a version is written once");
}

#[test]
fn what_is_read_was_inserted_and_answered_before() {
    let mut workload = small(Mix { get: 0.5, insert: 0.5, ..Mix::default() });
    workload.distribution = Distribution::LATEST;
    let mut sources = OperationSource::mixed(&workload, 3, 2).unwrap();
    let mut all_inserted = BTreeSet::new();
    for source in &mut sources {
        let mut readable: BTreeSet<u64> = (0..100).collect();
        let mut waiting: Vec<u64> = Vec::new();
        let mut own_reads = 0;
        for step in 0..2000 {
            let operation = source.next_operation().unwrap();
            if operation.kind == OperationKind::Insert {
                assert!(all_inserted.insert(operation.id), "{} inserted twice", operation.id);
                waiting.push(operation.id);
            } else {
                assert!(readable.contains(&operation.id), "step {step}: {}", operation.id);
                own_reads += u32::from(operation.id >= 100);
            }
            // Answers come late and in another order than the requests.
            if waiting.len() == 5 {
                for id in waiting.drain(..).rev() {
                    source.insert_answered(id);
                    readable.insert(id);
                }
            }
        }
        assert!(own_reads > 500, "the newest are read most: {own_reads}");
    }
}

#[test]
fn an_insert_that_is_not_answered_hides_the_later_ones() {
    let workload = small(Mix { get: 0.5, insert: 0.5, ..Mix::default() });
    let mut source = OperationSource::mixed(&workload, 1, 1).unwrap().remove(0);
    for _ in 0..2000 {
        let operation = source.next_operation().unwrap();
        if operation.kind == OperationKind::Insert && operation.id != 100 {
            source.insert_answered(operation.id);
        }
        assert!(operation.kind == OperationKind::Insert || operation.id < 100);
    }
    source.insert_answered(100);
    let reads = take(&mut source, 100);
    assert!(reads.iter().any(|operation| operation.kind == OperationKind::Get && operation.id > 100));
}

#[test]
fn a_walk_covers_every_record_once() {
    let sources = OperationSource::walk(OperationKind::Insert, 103, 4);
    let mut ids = Vec::new();
    for mut source in sources {
        while let Some(operation) = source.next_operation() {
            assert_eq!((operation.kind, operation.version), (OperationKind::Insert, 0));
            ids.push(operation.id);
        }
    }
    assert_eq!(ids, (0..103).collect::<Vec<_>>());
}

#[test]
fn inserts_end_before_the_keys_run_out_of_digits() {
    let mut workload = small(Mix { insert: 1.0, ..Mix::default() });
    workload.key.digits = 3;
    let mut sources = OperationSource::mixed(&workload, 1, 2).unwrap();
    let mut ids = BTreeSet::new();
    for source in &mut sources {
        while let Some(operation) = source.next_operation() {
            assert!(ids.insert(operation.id) && operation.id < 1000);
        }
    }
    assert_eq!(ids.len(), 900);
}

#[test]
fn the_core_workloads_of_ycsb_are_as_published() {
    for name in Ycsb::ALL {
        let workload = Workload::ycsb(name, Ycsb::RECORDS);
        workload.validate().unwrap();
        assert_eq!(name.to_string().to_lowercase().parse::<Ycsb>().unwrap(), name);
        assert_eq!(workload.value.size.max(), 1000);
        let mut source = OperationSource::mixed(&workload, 1, 1).unwrap().remove(0);
        let share = |kind: OperationKind, operations: &[Operation]| {
            operations.iter().filter(|operation| operation.kind == kind).count() as f64 / 1e4
        };
        let operations = take(&mut source, 10_000);
        let (first, expected) = match name {
            Ycsb::A | Ycsb::F => (OperationKind::Get, 0.5),
            Ycsb::B | Ycsb::D => (OperationKind::Get, 0.95),
            Ycsb::C => (OperationKind::Get, 1.0),
            Ycsb::E => (OperationKind::Scan, 0.95),
        };
        assert!((share(first, &operations) - expected).abs() < 0.02, "{name}");
        let scans = operations.iter().filter(|operation| operation.kind == OperationKind::Scan);
        assert!(scans.clone().all(|scan| (1..=100).contains(&scan.scan_len)));
    }
    assert!("G".parse::<Ycsb>().is_err());
}

#[test]
fn settings_out_of_their_range_are_refused() {
    for records in [0, u64::MAX] {
        assert!(Workload { records, ..small(Mix::GET) }.validate().is_err());
    }
    assert!(small(Mix::default()).validate().is_err());
    let mut workload = small(Mix::GET);
    workload.scan_len = crate::key::SizeDistribution::Fixed(70_000);
    assert!(workload.validate().is_err());
}

#[test]
fn a_workload_is_read_back_from_its_text() {
    let workload = Workload::ycsb(Ycsb::E, 12_345);
    let text = serde_json::to_string(&workload).unwrap();
    assert_eq!(serde_json::from_str::<Workload>(&text).unwrap(), workload);
    assert!(serde_json::from_str::<Workload>(r#"{"recods": 1}"#).is_err());
}
