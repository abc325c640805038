//! A process that fills a queue in a file is killed (SIGKILL) in mid-insert, again and again: whatever it said was
//! durable is there, in order, and the next process goes on.
//!
//! The file is an ordinary one, so it outlives the process and not the machine; loss of power is explored in
//! `queues`.

#![expect(clippy::unwrap_used, reason = "what fails in a test, and in its helpers, fails the test")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use tierstone_base::SeededRandom;
use tierstone_media::region::{MappedRegion, RegionSettings};
use tierstone_persist::memory::{Direct, VolatileWords};
use tierstone_persist::queue::{Design, Queue, QueueSettings};

const CAPACITY: u64 = 4 << 10;
/// The file and the design, for the process that is killed.
const FILE: &str = "TIERSTONE_KILLED_QUEUE";
const DESIGN: &str = "TIERSTONE_KILLED_DESIGN";

/// The payload of insert `number`: its length differs, so that entries lie everywhere.
fn payload(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(1 + number as usize % 13)
}

fn settings(design: Design) -> QueueSettings {
    QueueSettings::new(design, CAPACITY, 1)
}

/// Inserts, and says each number once it is durable, until it is killed; takes the oldest out when there is no room.
fn fill(file: &Path, design: Design) {
    let region = MappedRegion::open(file, &RegionSettings::default()).unwrap();
    let words = VolatileWords::new(settings(design).volatile_bytes());
    let memory = Direct::new(&region, &words, 0);
    let (queue, found) = Queue::open(settings(design), &memory).unwrap();
    let mut next = found.entries.last().map_or(0, |entry| number(&entry.payload) + 1);
    let mut told = std::io::stdout();
    loop {
        let bytes = payload(next);
        let Ok(position) = queue.insert(&memory, &bytes) else {
            queue.remove(&memory).unwrap().unwrap();
            continue;
        };
        queue.settle(&memory, position, bytes.len()).unwrap();
        writeln!(told, "durable {next}").unwrap();
        next += 1;
    }
}

fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload[..8].try_into().unwrap())
}

/// The process that is killed; a test that does nothing when it is not that process.
#[test]
fn a_process_that_is_not_to_be_killed_does_nothing_here() {
    let (Some(file), Ok(design)) = (std::env::var_os(FILE), std::env::var(DESIGN)) else { return };
    let design = Design::ALL.into_iter().find(|known| known.name() == design).unwrap();
    fill(Path::new(&file), design);
}

/// Runs that process until it has said `count` numbers, kills it, and gives the last number that it said.
fn kill_after(file: &Path, design: Design, count: u64) -> Option<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_that_is_not_to_be_killed_does_nothing_here", "--nocapture"])
        .envs([(FILE, file.as_os_str()), (DESIGN, design.name().as_ref())])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut last, mut said) = (None, 0);
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        // The last line may be cut by the kill: half a number would be another one.
        let line = line.unwrap();
        if let Some(number) = line.strip_prefix("durable ").and_then(|number| number.parse::<u64>().ok()) {
            assert!(last.is_none_or(|last| number == last + 1 || said > count), "{last:?}, then {number}");
            last = last.max(Some(number));
            said += 1;
        }
        if said == count {
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
    last
}

#[test]
fn what_a_killed_process_said_was_durable_is_there_and_the_next_goes_on() {
    let folder = std::env::temp_dir().join(format!("tierstone-persist-kill-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (seed, design) in (0..).zip(Design::ALL) {
        let file = folder.join(format!("queue-{seed}"));
        let bytes = settings(design).persistent_bytes();
        let region = MappedRegion::create(&file, bytes, &RegionSettings::default()).unwrap();
        let words = VolatileWords::new(settings(design).volatile_bytes());
        Queue::create(settings(design), &Direct::new(&region, &words, 0)).unwrap();
        drop(region);
        let mut random = SeededRandom::new(seed);
        let mut before = None;
        for round in 0..6 {
            let last = kill_after(&file, design, 1 + random.below(400)).unwrap();
            assert!(
                before.is_none_or(|before| last > before),
                "{design:?}, round {round}: {before:?}, {last}"
            );
            let region = MappedRegion::open(&file, &RegionSettings::default()).unwrap();
            let words = VolatileWords::new(settings(design).volatile_bytes());
            let (_, found) = Queue::open(settings(design), &Direct::new(&region, &words, 0)).unwrap();
            let numbers: Vec<u64> = found.entries.iter().map(|entry| number(&entry.payload)).collect();
            let newest = *numbers.last().unwrap();
            // The insert after the last one told may be there too.
            assert!((last..=last + 1).contains(&newest), "{design:?}: told {last}, found {numbers:?}");
            let consecutive = numbers.array_windows().all(|[one, next]| one + 1 == *next);
            let whole = found.entries.iter().all(|entry| entry.payload == payload(number(&entry.payload)));
            assert!(consecutive && whole, "{design:?}, round {round}: {numbers:?}");
            before = Some(newest);
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
