//! Batches of the shared handle over several shards: whole in every snapshot, whole after a kill.

use crate::support::{TemporaryDirectory, backends};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use tierstone::{Batch, DatabaseOptions, SharedStore};

const WRITERS: u32 = 4;
/// Keys of a batch: with three shards they lie in all of them.
const KEYS: u32 = 12;

fn options(directory: &TemporaryDirectory) -> DatabaseOptions {
    DatabaseOptions { shards: 3, ..directory.options(backends()[0]) }
}

/// The batch number `number` of a writer: all its keys get the number.
fn batch(writer: u32, number: u32) -> Batch {
    let mut batch = Batch::new();
    for key in 0..KEYS {
        batch.put(&name(writer, key), &number.to_le_bytes());
    }
    batch
}

fn name(writer: u32, key: u32) -> Vec<u8> {
    format!("writer:{writer}:key:{key}").into_bytes()
}

fn number(value: Option<Vec<u8>>) -> u32 {
    value.map_or(0, |value| u32::from_le_bytes(value.try_into().unwrap()))
}

#[test]
fn no_snapshot_shows_half_a_batch() {
    let directory = TemporaryDirectory::new();
    let store = SharedStore::open(&options(&directory)).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (store, is_over) = (store.clone(), &is_over);
                scope.spawn(move || {
                    let mut done = 0;
                    while !is_over.load(Ordering::Relaxed) || done < 50 {
                        done += 1;
                        if done % 2 == 0 {
                            store.write(&batch(writer, done)).unwrap();
                        } else {
                            // A thread that polls an answer before it waits takes the way of tasks.
                            store.write_async(&batch(writer, done)).wait().unwrap();
                        }
                        // Single writes go on between the batches.
                        store.put(format!("other:{writer}").as_bytes(), b"value").unwrap();
                    }
                    done
                })
            })
            .collect();
        let mut highest = 0;
        while highest < 60 {
            let snapshot = store.snapshot().unwrap();
            for writer in 0..WRITERS {
                let names: Vec<_> = (0..KEYS).map(|key| name(writer, key)).collect();
                let views: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
                let seen: Vec<u32> = snapshot.get_many(&views).unwrap().into_iter().map(number).collect();
                assert!(seen.iter().all(|number| *number == seen[0]), "writer {writer}: {seen:?}");
                highest = highest.max(seen[0]);
            }
        }
        is_over.store(true, Ordering::Relaxed);
        for (writer, done) in (0..).zip(writers) {
            let done = done.join().unwrap();
            assert_eq!(number(store.get(&name(writer, 3)).unwrap()), done, "what was acknowledged is read");
        }
    });
    store.close().unwrap();
}

#[test]
fn a_batch_that_one_shard_refuses_is_written_by_none() {
    let directory = TemporaryDirectory::new();
    let store = SharedStore::open(&options(&directory)).unwrap();
    store.write(&batch(0, 1)).unwrap();
    let mut refused = batch(0, 2);
    refused.put(&name(0, 5), &vec![0; 9 << 20]);
    assert_eq!(store.write(&refused).unwrap_err().kind(), tierstone::ErrorKind::InvalidInput);
    for key in 0..KEYS {
        assert_eq!(number(store.get(&name(0, key)).unwrap()), 1);
    }
    store.write(&batch(0, 3)).unwrap();
    store.close().unwrap();
    assert_eq!(store.write(&batch(0, 4)).unwrap_err().kind(), tierstone::ErrorKind::Busy);
}

const DIRECTORY: &str = "TIERSTONE_TEST_ACROSS";

/// The process that is killed: it writes batches and tells which were acknowledged.
#[test]
fn a_child_that_writes_batches() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let options = DatabaseOptions {
        shards: 3,
        segment_bytes: Some(256 << 10),
        memory_bytes: 4 << 20,
        durable_method: Some(tierstone::DurableMethod::DurableWrite),
        ..DatabaseOptions::new(directory)
    };
    let store = SharedStore::open(&options).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = store.clone();
            scope.spawn(move || {
                let first = number(store.get(&name(writer, 0)).unwrap()) + 1;
                for number in first.. {
                    store.write(&batch(writer, number)).unwrap();
                    println!("acknowledged {writer} {number}");
                }
            });
        }
    });
}

#[test]
fn batches_are_whole_after_kills() {
    let directory = TemporaryDirectory::new();
    let options = options(&directory);
    let path = &options.directories[0];
    for round in 0..4u32 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "across::a_child_that_writes_batches", "--nocapture"])
            .env(DIRECTORY, path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut acknowledged = [0; WRITERS as usize];
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = 0;
        let mut note = |line: &str| {
            let mut words = line.split_whitespace().skip_while(|word| *word != "acknowledged").skip(1);
            if let (Some(writer), Some(number)) = (words.next(), words.next()) {
                acknowledged[writer.parse::<usize>().unwrap()] = number.parse::<u32>().unwrap();
                seen += 1;
            }
            seen
        };
        while note(&lines.next().expect("the child goes on").unwrap()) < 40 + 17 * round {}
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had said before it died. The last line may be cut off.
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        for line in rest.iter().filter(|line| line.split_whitespace().count() == 3) {
            note(line);
        }
        let store = SharedStore::open(&DatabaseOptions { durable_method: None, ..options.clone() }).unwrap();
        for writer in 0..WRITERS {
            let values = (0..KEYS).map(|key| number(store.get(&name(writer, key)).unwrap()));
            let values: Vec<u32> = values.collect();
            assert!(
                values.iter().all(|value| *value == values[0]),
                "round {round}, writer {writer}: {values:?}"
            );
            assert!(
                values[0] >= acknowledged[writer as usize],
                "round {round}, writer {writer} has lost a batch"
            );
        }
        store.close().unwrap();
    }
}
