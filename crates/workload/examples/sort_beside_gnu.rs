//! The sort of `bench node` beside GNU sort: the same records of 100 bytes, in lines, from file to file.
//!
//! `cargo run --release -p tierstone-workload --example sort_beside_gnu -- RECORDS FOLDER [THREADS]`; with a FOLDER in
//! memory (`/dev/shm`) no device is measured. It takes 300 bytes a record there, and as much of memory.

#![expect(clippy::expect_used, reason = "a measurement ends at the first surprise")]

use std::path::Path;
use std::process::Command;
use tierstone_base::{Clock, SystemClock};
use tierstone_workload::node::gensort::{Format, Generator, RECORD_BYTES};
use tierstone_workload::node::sort::sort;

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

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments.next().and_then(|text| text.parse().ok()).expect("RECORDS");
    let folder = arguments.next().expect("FOLDER");
    let threads: usize = arguments.next().map_or(2, |text| text.parse().expect("THREADS"));
    let path = |name: &str| Path::new(&folder).join(format!("tierstone-sort-{}-{name}", std::process::id()));
    let (input, ours, theirs) = (path("input"), path("ours"), path("theirs"));
    let mut lines = vec![0; count * RECORD_BYTES];
    Generator::new(Format::Ascii, 0).fill(&mut lines);
    std::fs::write(&input, lines).expect("the input is written");
    let mut in_memory = 0.0;
    let cpu_before = cpu_seconds();
    let from_file_to_file = timed(|| {
        let records = std::fs::read(&input).expect("the input is read");
        let mut sorted = Vec::new();
        in_memory = timed(|| sorted = sort(&records, threads).expect("it sorts"));
        std::fs::write(&ours, sorted).expect("the output is written");
    });
    let cpu_ours = cpu_seconds() - cpu_before;
    let gnu = timed(|| {
        let mut command = Command::new("sort");
        command.env("LC_ALL", "C").arg(format!("--parallel={threads}")).args([
            "-s",
            "-k1.1,1.10",
            "-S",
            "50%",
        ]);
        let status = command.arg("-o").arg(&theirs).arg("-T").arg(&folder).arg(&input).status();
        assert!(status.expect("sort runs").success(), "sort failed");
    });
    let cpu_gnu = cpu_seconds() - cpu_before - cpu_ours;
    let is_same = std::fs::read(&ours).expect("ours") == std::fs::read(&theirs).expect("theirs");
    for file in [input, ours, theirs] {
        std::fs::remove_file(file).expect("it is removed");
    }
    assert!(is_same, "the two outputs differ");
    let rate = |seconds: f64| count as f64 / seconds / 1e6;
    println!("{count} records, {threads} threads, the outputs are the same");
    println!("here, sorting alone:      {in_memory:.2} s, {:.2} M records/s", rate(in_memory));
    println!(
        "here, from file to file:  {from_file_to_file:.2} s, {:.2} M records/s",
        rate(from_file_to_file)
    );
    println!("GNU sort, file to file:   {gnu:.2} s, {:.2} M records/s", rate(gnu));
    println!("ratio, file to file:      {:.2}", gnu / from_file_to_file);
    println!(
        "processor time:           {cpu_ours:.2} s here, {cpu_gnu:.2} s GNU, ratio {:.2}",
        cpu_gnu / cpu_ours
    );
}
