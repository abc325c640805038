//! How fast the tools are: timing of traces, states of a queue checked, appends beside a copy with the same flushes.
//!
//! `cargo run --release -p tierstone-persist --example persist_rates`

use std::error::Error;
use std::hint::black_box;
use tierstone_base::{Clock, SystemClock};
use tierstone_media::region::{MappedRegion, Region, RegionSettings};
use tierstone_persist::memory::{Direct, VolatileWords};
use tierstone_persist::observer::{Failure, Observer};
use tierstone_persist::order::Model;
use tierstone_persist::queue::{Design, Queue, QueueSettings, recover};
use tierstone_persist::timing::{Timing, TimingSettings};
use tierstone_persist::trace::Trace;
use tierstone_persist::tracer::{TraceSettings, record};

fn main() -> Result<(), Box<dyn Error>> {
    let clock = SystemClock::new();
    let seconds = |work: &mut dyn FnMut() -> Result<(), Box<dyn Error>>| -> Result<f64, Box<dyn Error>> {
        let start = clock.now().monotonic_us;
        work()?;
        Ok((clock.now().monotonic_us - start) as f64 / 1e6)
    };
    for design in Design::ALL {
        let trace = trace(design, 8, 2_500, 100)?.1;
        for model in Model::ALL {
            let mut events = 0;
            let took = seconds(&mut || {
                for _ in 0..10 {
                    events += black_box(Timing::of(&trace, TimingSettings::of(model))?).events;
                }
                Ok(())
            })?;
            println!(
                "timing, {}, {}: {:.1} M events/s",
                design.name(),
                model.name(),
                events as f64 / took / 1e6
            );
        }
    }
    for design in Design::ALL {
        let (initial, trace) = trace(design, 3, 4, 24)?;
        let observer = Observer::new(&trace, Model::Strand, Failure::Anywhere, initial)?;
        let mut states = 0;
        let took = seconds(&mut || {
            states = observer
                .enumerate(500_000, |state| {
                    black_box(recover(state.image)?.entries.len());
                    Ok(())
                })?
                .states;
            Ok(())
        })?;
        println!("observer, {}: {states} states recovered, {:.0}/s", design.name(), states as f64 / took);
    }
    appends(&seconds)
}

/// Inserts of `bytes` bytes by `threads` threads, with the persistent memory before them.
fn trace(
    design: Design,
    threads: usize,
    inserts: u64,
    bytes: usize,
) -> Result<(Vec<u8>, Trace), Box<dyn Error>> {
    let settings = QueueSettings::new(design, 128 * threads as u64 * inserts, threads);
    let region = MappedRegion::anonymous(settings.persistent_bytes(), &RegionSettings::default())?;
    let words = VolatileWords::new(settings.volatile_bytes());
    let queue = Queue::create(settings, &Direct::new(&region, &words, 0))?;
    let mut initial = vec![0; region.bytes() as usize];
    region.load(0, &mut initial);
    let trace = record(
        &TraceSettings::seeded(threads, 1),
        |thread| Direct::new(&region, &words, thread),
        |memory| {
            (0..inserts).try_for_each(|number| queue.insert(memory, &vec![number as u8; bytes]).map(|_| ()))
        },
    )?;
    Ok((initial, trace))
}

type Timer<'a> = dyn Fn(&mut dyn FnMut() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> + 'a;

/// Durable inserts of 112 bytes (128 with their length) by one thread, beside copies of 128 bytes with the same
/// write-backs and fences.
fn appends(seconds: &Timer<'_>) -> Result<(), Box<dyn Error>> {
    const COUNT: u64 = 200_000;
    let settings = QueueSettings::new(Design::CopyWhileLocked, 128 * COUNT, 1);
    let region = MappedRegion::anonymous(settings.persistent_bytes(), &RegionSettings::default())?;
    println!("region: {}", region.report().text());
    let body = [7u8; 120];
    for round in 0..3 {
        let words = VolatileWords::new(settings.volatile_bytes());
        let memory = Direct::new(&region, &words, 0);
        let queue = Queue::create(settings.clone(), &memory)?;
        let appended = seconds(&mut || {
            for _ in 0..COUNT {
                let position = queue.insert(&memory, &body)?;
                queue.settle(&memory, position, body.len())?;
            }
            Ok(())
        })?;
        let whole = [7u8; 128];
        let copied = seconds(&mut || {
            for number in 0..COUNT {
                let at = 512 + number * 128;
                region.store(at, &whole);
                region.write_back(at, 128);
                region.fence()?;
                region.store_word(64, number);
                region.write_back(64, 8);
                region.fence()?;
            }
            Ok(())
        })?;
        let rate = |took: f64| COUNT as f64 / took / 1e6;
        println!(
            "append, round {round}: {:.2} M/s, copy with the same flushes {:.2} M/s: {:.0} %",
            rate(appended),
            rate(copied),
            100.0 * copied / appended
        );
    }
    Ok(())
}
