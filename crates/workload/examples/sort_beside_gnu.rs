//! The sort of `bench node` beside GNU sort: the same records of 100 bytes, in lines, from file to file.
//!
//! `cargo run --release -p tierstone-workload --example sort_beside_gnu -- RECORDS FOLDER [THREADS [ROUNDS]]`; with a FOLDER in
//! memory (`/dev/shm`) no device is measured. It takes 300 bytes a record there, and as much of memory.

#![expect(clippy::expect_used, reason = "a measurement ends at the first surprise")]

use std::fs::File;
use std::path::Path;
use std::process::Command;
use tierstone_base::{Clock, SystemClock};
use tierstone_workload::node::gensort::{Format, Generator, RECORD_BYTES};
use tierstone_workload::node::sort::sort_file;

/// Seconds that passed.
fn timed(what: impl FnOnce()) -> f64 {
    let clock = SystemClock::new();
    what();
    clock.now().monotonic_us as f64 / 1e6
}

/// Processor time of this process and of the children that it has waited for, in seconds: on a machine that others
/// use too it tells more than the time that passed.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").expect("the kernel tells");
    let (_, rest) = text.rsplit_once(')').expect("the name's end");
    let ticks: u64 =
        rest.split_whitespace().skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Seconds and processor seconds of one way, a value a round.
#[derive(Default)]
struct Taken(Vec<(f64, f64)>);

impl Taken {
    fn add(&mut self, what: impl FnOnce()) {
        let before = cpu_seconds();
        let seconds = timed(what);
        self.0.push((seconds, cpu_seconds() - before));
    }

    /// The medians.
    fn medians(&self) -> (f64, f64) {
        let of = |one: fn(&(f64, f64)) -> f64| {
            let mut values: Vec<f64> = self.0.iter().map(one).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        (of(|taken| taken.0), of(|taken| taken.1))
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments.next().and_then(|text| text.parse().ok()).expect("RECORDS");
    let folder = arguments.next().expect("FOLDER");
    let threads: usize = arguments.next().map_or(2, |text| text.parse().expect("THREADS"));
    let rounds: usize = arguments.next().map_or(5, |text| text.parse().expect("ROUNDS"));
    assert!(rounds > 0, "ROUNDS must be at least 1");
    let path = |name: &str| Path::new(&folder).join(format!("tierstone-sort-{}-{name}", std::process::id()));
    let (input, ours, theirs) = (path("input"), path("ours"), path("theirs"));
    let mut lines = vec![0; count * RECORD_BYTES];
    Generator::new(Format::Ascii, 0).fill(&mut lines);
    std::fs::write(&input, lines).expect("the input is written");
    let (mut here, mut gnu) = (Taken::default(), Taken::default());
    for round in 0..rounds {
        // Who goes first changes: the memory that the first took from the host is there for the second.
        for which in [round % 2, (round + 1) % 2] {
            if which == 0 {
                here.add(|| sort_here(&input, &ours, threads))
            } else {
                gnu.add(|| sort_gnu(&input, &theirs, threads))
            }
        }
        let is_same = std::fs::read(&ours).expect("ours") == std::fs::read(&theirs).expect("theirs");
        for file in [&ours, &theirs] {
            std::fs::remove_file(file).expect("it is removed");
        }
        assert!(is_same, "the two outputs differ");
        let ((ours, _), (theirs, _)) = (here.0[round], gnu.0[round]);
        println!("round {round}: {ours:.2} s here, {theirs:.2} s GNU sort, ratio {:.2}", theirs / ours);
    }
    std::fs::remove_file(&input).expect("it is removed");
    let ((seconds, processor), (gnu_seconds, gnu_processor)) = (here.medians(), gnu.medians());
    println!(
        "{count} records, {threads} threads, from file to file, the outputs are the same; medians of {rounds}:"
    );
    let line = |name: &str, seconds: f64, processor: f64| {
        let rate = count as f64 / seconds / 1e6;
        println!("{name}: {seconds:.2} s, {rate:.2} M records/s, processor time {processor:.2} s");
    };
    line("here    ", seconds, processor);
    line("GNU sort", gnu_seconds, gnu_processor);
    println!("ratio   : {:.2}, of processor time {:.2}", gnu_seconds / seconds, gnu_processor / processor);
}

fn sort_here(input: &Path, output: &Path, threads: usize) {
    let records = File::open(input).expect("the input is opened");
    let sorted = File::create(output).expect("the output is made");
    sort_file(&records, &sorted, threads).expect("it sorts");
}

fn sort_gnu(input: &Path, output: &Path, threads: usize) {
    let mut command = Command::new("sort");
    command.env("LC_ALL", "C").arg(format!("--parallel={threads}"));
    command.args(["-s", "-k1.1,1.10", "-S", "50%", "-o"]).arg(output);
    let beside = output.parent().expect("a file lies in a folder");
    let status = command.arg("-T").arg(beside).arg(input).status();
    assert!(status.expect("sort runs").success(), "sort failed");
}
