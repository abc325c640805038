//! The sort in two passes, alone: `cargo run --release -p tierstone-workload --example two_pass_rates -- DIRECTORY BYTES
//! MEMORY [THREADS]`. Its files take twice the bytes and are removed.

#![expect(clippy::expect_used, reason = "a measurement ends at the first surprise")]

use std::ops::ControlFlow;
use std::sync::Mutex;
use tierstone_base::units::parse_size;
use tierstone_base::{Clock, SystemClock};
use tierstone_workload::node::gensort::{Format, RECORD_BYTES};
use tierstone_workload::node::two_pass::{Phase, Settings, run};

/// Processor time of this process, in seconds.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().expect("DIRECTORY").into();
    let mut size = |name: &str| parse_size(&arguments.next().expect(name)).expect(name);
    let (bytes, memory_bytes) = (size("BYTES"), size("MEMORY"));
    let threads = arguments.next().map_or(2, |text| text.parse().expect("THREADS"));
    let records = bytes / RECORD_BYTES as u64;
    let settings = Settings { directory, records, memory_bytes, threads, format: Format::Ascii };
    let (clock, last) = (SystemClock::new(), Mutex::new((None, 0, 0.0)));
    // When a phase begins, what the one before took is printed.
    let phases = |phase: Option<Phase>| {
        let now = (phase, clock.now().monotonic_us, cpu_seconds());
        let mut last = last.lock().expect("no thread died");
        if let (Some(before), true) = (last.0, last.0 != phase) {
            let (seconds, cpu) = ((now.1 - last.1) as f64 / 1e6, now.2 - last.2);
            println!("{before:?}: {seconds:.2} s, processor time {cpu:.2} s");
        }
        if last.0 != phase {
            *last = now;
        }
    };
    let progress = |phase, _| {
        phases(Some(phase));
        ControlFlow::Continue(())
    };
    let work = run(&settings, &progress, &mut ()).expect("it sorts");
    phases(None);
    println!("{}: {:.2} M records/s", work.name, work.amount / work.seconds / 1e6);
    println!("{}", work.note);
}
