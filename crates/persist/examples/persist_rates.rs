//! How fast the tools are: timing of traces, states of a queue checked by the observer and by the crash explorer, appends
//! beside a copy with the same flushes.
//!
//! `cargo run --release -p tierstone-persist --example persist_rates -- [PART]`: one in so many of everything.

use std::error::Error;
use std::hint::black_box;
use tierstone_base::{Clock, SystemClock};
use tierstone_crash::{Choices, ExploreSettings, SurvivorSettings, Violation, explore};
use tierstone_media::region::{
    FlushMethod, LineRegion, MappedRegion, Region, RegionSettings, SimRegion, WordRegion,
};
use tierstone_persist::memory::{Direct, VolatileWords};
use tierstone_persist::observer::{Failure, Observer};
use tierstone_persist::order::Model;
use tierstone_persist::queue::{Design, Queue, QueueSettings, recover};
use tierstone_persist::timing::{Rates, Timing, TimingSettings};
use tierstone_persist::trace::Trace;
use tierstone_persist::tracer::{TraceSettings, record};

fn main() -> Result<(), Box<dyn Error>> {
    let part: u64 = std::env::args().nth(1).map_or(Ok(1), |part| part.parse())?;
    let part = part.clamp(1, 1_000);
    let clock = SystemClock::new();
    let seconds = |work: &mut dyn FnMut() -> Result<(), Box<dyn Error>>| -> Result<f64, Box<dyn Error>> {
        let start = clock.now().monotonic_us;
        work()?;
        Ok((clock.now().monotonic_us - start) as f64 / 1e6)
    };
    for design in Design::ALL {
        let trace = trace(design, 8, (2_500 / part).max(10), 100)?.1;
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
                .enumerate(500_000 / part, |state| {
                    black_box(recover(state.image)?.entries.len());
                    Ok(())
                })?
                .states;
            Ok(())
        })?;
        println!("observer, {}: {states} states recovered, {:.0}/s", design.name(), states as f64 / took);
    }
    explored_rates(&seconds, 200_000 / part)?;
    instruction_rates(&seconds, 400_000 / part)?;
    appends(&seconds, 200_000 / part)
}

/// Lives of a queue of four lines in a region that loses power anywhere, recovered, used and lost again: states after a
/// loss of power a second, each recovered and checked, on one thread.
fn explored_rates(seconds: &Timer<'_>, runs: u64) -> Result<(), Box<dyn Error>> {
    for design in Design::ALL {
        let lines = |choices: &Choices| lives(design, choices, LineRegion::new(768));
        let words = |choices: &Choices| lives(design, choices, WordRegion::new(768));
        type Scenario<'a> = &'a dyn Fn(&Choices) -> Result<(), Violation>;
        let ways: [(&str, ExploreSettings, Scenario<'_>); 3] = [
            ("lines, at most 3 deviations", ExploreSettings::bounded(3).with_max_runs(runs), &lines),
            ("words, at most 3 deviations", ExploreSettings::bounded(3).with_max_runs(runs), &words),
            ("words, sampled", ExploreSettings::random(7, runs), &words),
        ];
        for (name, settings, scenario) in ways {
            let mut states = 0;
            let took = seconds(&mut || {
                let report = explore(settings.clone(), scenario);
                states = report.states;
                if report.found.is_some() { Err(report.to_string().into()) } else { Ok(()) }
            })?;
            println!("explorer, {}, {name}: {states} states, {:.0}/s", design.name(), states as f64 / took);
        }
    }
    Ok(())
}

fn lives<const UNIT: usize>(
    design: Design,
    choices: &Choices,
    region: SimRegion<UNIT>,
) -> Result<(), Violation> {
    let settings = QueueSettings::new(design, 256, 1);
    let failed = |error: tierstone_base::Error| Violation::new(error.to_string());
    let words = VolatileWords::new(settings.volatile_bytes());
    let queue = Queue::create(settings.clone(), &Direct::new(&region, &words, 0)).map_err(failed)?;
    let region = region.with_cuts(choices, 30);
    let memory = Direct::new(&region, &words, 0);
    let bodies: [&[u8]; 3] = [b"the first entry, of more than one word", b"second", b"third entry"];
    let insert = |body: &[u8]| queue.settle(&memory, queue.insert(&memory, body)?, body.len());
    let inserted = bodies.into_iter().take_while(|body| insert(body).is_ok()).count();
    region.lose_power(choices, &SurvivorSettings::default());
    let found = recover(&region.image()).map_err(failed)?;
    let whole = found.entries.iter().zip(bodies).all(|(entry, body)| entry.payload == body);
    Violation::unless(whole && found.entries.len() >= inserted, || {
        format!("{inserted} inserted, {found:?}")
    })?;
    let words = VolatileWords::new(settings.volatile_bytes());
    let memory = Direct::new(&region, &words, 0);
    if let Ok((queue, _)) = Queue::open(settings, &memory) {
        let _ = queue.remove(&memory);
    }
    region.lose_power(choices, &SurvivorSettings::default());
    let again = recover(&region.image()).map_err(failed)?;
    Violation::unless(again.head == found.head, || format!("{found:?}, then {again:?}"))
}

/// Inserts of 100 bytes by one thread and by eight on ordinary memory, a barrier a store fence; and what the models
/// would leave of them at 500 ns a persist.
fn instruction_rates(seconds: &Timer<'_>, count: u64) -> Result<(), Box<dyn Error>> {
    for design in Design::ALL {
        for threads in [1, 8] {
            let each = count / threads as u64;
            let settings = QueueSettings::new(design, 128 * count, threads);
            let ordinary =
                RegionSettings { flush: Some(FlushMethod::FenceOnly), ..RegionSettings::default() };
            let mut rates = Vec::new();
            for _ in 0..3 {
                let region = MappedRegion::anonymous(settings.persistent_bytes(), &ordinary)?;
                // The kernel's first touch of each page is no part of an insert.
                region.store(0, &vec![0; settings.persistent_bytes() as usize]);
                let words = VolatileWords::new(settings.volatile_bytes());
                let queue = Queue::create(settings.clone(), &Direct::new(&region, &words, 0))?;
                let took = seconds(&mut || {
                    std::thread::scope(|scope| {
                        for thread in 0..threads {
                            let (queue, region, words) = (&queue, &region, &words);
                            scope.spawn(move || {
                                let memory =
                                    Direct::new(region, words, thread).relaxing(std::thread::yield_now);
                                (0..each).for_each(|_| drop(queue.insert(&memory, &[7; 100])));
                            });
                        }
                    });
                    Ok(())
                })?;
                rates.push(count as f64 / took);
            }
            rates.sort_by(f64::total_cmp);
            let traced = trace(design, threads, 2_000 / threads as u64, 100)?.1;
            for model in [Model::Strict, Model::Epoch, Model::Strand] {
                let report = Timing::of(&traced, TimingSettings::of(model))?;
                let bound = Rates::new(&report, 2_000, 500.0, rates[1]);
                println!(
                    "| {}, {threads} threads | {} | {:.3} | {:.2} ({:.2} to {:.2}) M/s | {:.4} | {:.1} ns |",
                    design.name(),
                    model.name(),
                    bound.path_per_operation,
                    rates[1] / 1e6,
                    rates[0] / 1e6,
                    rates[2] / 1e6,
                    bound.normalised(),
                    500.0 * bound.normalised()
                );
            }
        }
    }
    Ok(())
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
fn appends(seconds: &Timer<'_>, count: u64) -> Result<(), Box<dyn Error>> {
    let settings = QueueSettings::new(Design::CopyWhileLocked, 128 * count, 1);
    let region = MappedRegion::anonymous(settings.persistent_bytes(), &RegionSettings::default())?;
    println!("region: {}", region.report().text());
    let body = [7u8; 120];
    for round in 0..3 {
        let words = VolatileWords::new(settings.volatile_bytes());
        let memory = Direct::new(&region, &words, 0);
        let queue = Queue::create(settings.clone(), &memory)?;
        let appended = seconds(&mut || {
            for _ in 0..count {
                let position = queue.insert(&memory, &body)?;
                queue.settle(&memory, position, body.len())?;
            }
            Ok(())
        })?;
        let whole = [7u8; 128];
        let copied = seconds(&mut || {
            for number in 0..count {
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
        let rate = |took: f64| count as f64 / took / 1e6;
        println!(
            "append, round {round}: {:.2} M/s, copy with the same flushes {:.2} M/s: {:.0} %",
            rate(appended),
            rate(copied),
            100.0 * copied / appended
        );
    }
    Ok(())
}
