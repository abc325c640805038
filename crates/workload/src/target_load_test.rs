use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use tierstone_base::{Error, ErrorKind, Result};

use super::{Target, load, load_here, run, run_here, verify};
use crate::distribution::Distribution;
use crate::mix::{Mix, OperationKind};
use crate::pacing::{Arrivals, Extent, Pacing};
use crate::run::Progress;
use crate::workload::{Workload, Ycsb};

/// An ordered map behind a lock, whose handles count their calls.
#[derive(Clone, Default)]
struct Memory {
    records: Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>>,
    batches: Arc<Mutex<Vec<usize>>>,
    refuses_writes: bool,
}

impl Target for Memory {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let records = self.records.lock().unwrap();
        let Some(found) = records.get(key) else { return Ok(false) };
        value.extend_from_slice(found);
        Ok(true)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.refuses_writes {
            return Err(Error::new(ErrorKind::NoSpace, "the device is full"));
        }
        self.records.lock().unwrap().insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn put_many(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        self.batches.lock().unwrap().push(records.len());
        records.iter().try_for_each(|(key, value)| self.put(key, value))
    }

    fn scan(&mut self, key: &[u8], count: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Option<Result<()>> {
        let records = self.records.lock().unwrap();
        records.range(key.to_vec()..).take(count).for_each(|(key, value)| each(key, value));
        Some(Ok(()))
    }
}

fn keep_going(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn pacing(threads: usize, pipeline: usize, operations: u64) -> Pacing {
    Pacing { threads, pipeline, extent: Extent::Operations(operations), ..Pacing::default() }
}

#[test]
fn every_ycsb_workload_runs_clean_on_an_ordered_map() {
    for name in Ycsb::ALL {
        let workload = Workload::ycsb(name, 500);
        let memory = Memory::default();
        let pacing = pacing(2, 4, 3001);
        let loaded = load(&workload, &pacing, &mut || Ok(memory.clone()), &mut keep_going).unwrap();
        assert_eq!((loaded.operations, memory.records.lock().unwrap().len()), (500, 500));
        let outcome = run(&workload, &pacing, &mut || Ok(memory.clone()), &mut keep_going).unwrap();
        assert_eq!(outcome.operations, 3001, "{name}");
        assert!(outcome.is_clean() && outcome.misses == 0, "{name}: {outcome:?}");
        let by_kind: u64 = outcome.kinds.values().map(|kind| kind.operations).sum();
        assert_eq!(by_kind, 3001);
        let verified = verify(&workload, &pacing, &mut || Ok(memory.clone()), &mut keep_going).unwrap();
        assert_eq!((verified.operations, verified.misses, verified.verification_failures), (500, 0, 0));
    }
}

#[test]
fn damage_and_loss_are_found() {
    let workload = Workload { records: 100, ..Workload::default() };
    let memory = Memory::default();
    load(&workload, &pacing(1, 8, 0), &mut || Ok(memory.clone()), &mut keep_going).unwrap();
    {
        let mut records = memory.records.lock().unwrap();
        records.remove(&workload.key.key(7));
        let swapped = records[&workload.key.key(8)].clone();
        records.insert(workload.key.key(9), swapped);
        records.get_mut(&workload.key.key(10)).unwrap()[50] ^= 1;
    }
    let outcome = verify(&workload, &pacing(2, 8, 0), &mut || Ok(memory.clone()), &mut keep_going).unwrap();
    assert_eq!((outcome.misses, outcome.verification_failures), (1, 2));
    assert!(!outcome.is_clean());
}

#[test]
fn a_read_through_writes_what_was_not_there() {
    let workload = Workload { records: 50, mix: Mix::READ_THROUGH, ..Workload::default() };
    let memory = Memory::default();
    let outcome = run(&workload, &pacing(1, 4, 2_000), &mut || Ok(memory.clone()), &mut keep_going).unwrap();
    assert!(outcome.is_clean(), "{outcome:?}");
    // One of a pipeline of four may be asked for twice before it is there.
    let records = memory.records.lock().unwrap().len() as u64;
    assert!(
        records == 50 && (50..60).contains(&outcome.misses),
        "{records} records, {} misses",
        outcome.misses
    );
    assert_eq!(outcome.kinds[&OperationKind::ReadThrough].operations, 2_000);
}

#[test]
fn a_pipeline_becomes_batches() {
    let workload = Workload { records: 100, ..Workload::default() };
    let memory = Memory::default();
    load(&workload, &pacing(1, 32, 0), &mut || Ok(memory.clone()), &mut keep_going).unwrap();
    assert_eq!(*memory.batches.lock().unwrap(), [32, 32, 32, 4]);
}

#[test]
fn errors_of_the_target_are_counted_and_named() {
    let workload = Workload { records: 10, mix: Mix::puts(0.5), ..Workload::default() };
    let memory = Memory { refuses_writes: true, ..Memory::default() };
    let outcome = run(&workload, &pacing(1, 1, 200), &mut || Ok(memory.clone()), &mut keep_going).unwrap();
    assert_eq!(outcome.errors, outcome.kinds[&OperationKind::Set].operations);
    assert_eq!(outcome.misses, outcome.kinds[&OperationKind::Get].operations);
    assert_eq!(outcome.first_error.as_deref(), Some("the device is full"));
}

#[test]
fn an_open_loop_sends_every_operation_of_its_schedule() {
    let workload = Workload { records: 10, distribution: Distribution::ZIPF, ..Workload::default() };
    for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
        let pacing = Pacing { rate: Some(1e5), arrivals, warmup_seconds: 0.01, ..pacing(2, 4, 5000) };
        let memory = Memory::default();
        let outcome = run(&workload, &pacing, &mut || Ok(memory.clone()), &mut keep_going).unwrap();
        assert_eq!(outcome.operations, 5000);
        assert_eq!(outcome.rate_intended, Some(1e5));
        assert_eq!(outcome.send_delay.unwrap().count, 5000);
        let calls = outcome.call_latency.unwrap();
        assert_eq!(calls.count, 5000);
        assert!(calls.max_us <= outcome.latency.max_us, "a call is no longer than from when it was due");
    }
}

#[test]
fn the_caller_can_end_a_run() {
    let workload = Workload { records: 10, ..Workload::default() };
    let pacing = Pacing { extent: Extent::Seconds(86_400.0), ..Pacing::default() };
    let memory = Memory::default();
    let mut calls = 0;
    let outcome = run(&workload, &pacing, &mut || Ok(memory.clone()), &mut |now| {
        calls += 1;
        assert_eq!(now.seconds_total, Some(86_400.0));
        if calls == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(outcome.unwrap().operations > 0);
}

#[test]
fn the_callers_own_thread_grows_a_store_and_runs_it_without_sending_it_elsewhere() {
    /// A handle that cannot leave its thread.
    struct Stays(Memory, std::rc::Rc<()>);
    impl Target for Stays {
        fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
            self.0.get(key, value)
        }
        fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
            self.0.put(key, value)
        }
    }
    let mut store = Stays(Memory::default(), std::rc::Rc::new(()));
    let workload = Workload { records: 70, mix: Mix::puts(0.5), ..Workload::default() };
    let first = load_here(&workload, 0..40, &pacing(1, 8, 1), &mut store, &mut keep_going).unwrap();
    let second = load_here(&workload, 40..70, &pacing(1, 8, 1), &mut store, &mut keep_going).unwrap();
    assert_eq!((first.operations, second.operations), (40, 30));
    let mut told = 0;
    let outcome = run_here(&workload, &pacing(1, 4, 500), &mut store, &mut |progress| {
        told = progress.operations;
        ControlFlow::Continue(())
    });
    let outcome = outcome.unwrap();
    assert!(outcome.is_clean() && outcome.misses == 0, "{outcome:?}");
    assert_eq!((outcome.operations, told), (500, 500));
    assert_eq!(store.0.records.lock().unwrap().len(), 70);
    assert_eq!(std::rc::Rc::strong_count(&store.1), 1);
    assert!(run_here(&workload, &pacing(2, 4, 500), &mut store, &mut keep_going).is_err());
}

#[test]
fn a_run_on_the_callers_thread_ends_when_its_progress_says_so() {
    let mut store = Memory::default();
    let workload = Workload { records: 10, mix: Mix::SET, ..Workload::default() };
    let endless = Pacing { extent: Extent::Seconds(1e6), ..Pacing::default() };
    let outcome = run_here(&workload, &endless, &mut store, &mut |_| ControlFlow::Break(()));
    assert!(outcome.is_ok());
}
