//! How long power routing takes: one schedule with its check, and a day of the control loop.
//!
//! `cargo run --release --example routing_rates -p tierstone-plan`; with ` -- large` a day of 100,000 servers too

use tierstone_base::{Clock, Result, SeededRandom, SystemClock};
use tierstone_plan::routing::control::{Budget, Control, simulate};
use tierstone_plan::routing::describe::{Description, idle_w, kinds};
use tierstone_plan::routing::schedule::{Limits, least_capacity, pair_power, round, split};
use tierstone_plan::routing::topology::{Kind, Topology};
use tierstone_plan::routing::wiring::{self, Cords, Placement, Racks, place};
use tierstone_plan::routing::{SCENARIOS, capacity, safety, synthetic};

const SKEW: f64 = 0.2;

fn main() -> Result<()> {
    let clock = SystemClock::new();
    let seconds_since = |start: u64| (clock.now().monotonic_us - start) as f64 / 1e6;
    for (kind, servers, pdus, islands) in [
        (Kind::Serpentine, 1_000, 6, 1),
        (Kind::Full, 1_000, 6, 1),
        (Kind::Serpentine, 100_000, 6, 100),
        (Kind::Serpentine, 100_000, 600, 1),
    ] {
        let topology = Topology::new(kind, pdus, islands)?;
        let floor = Placement { servers_per_rack: 20, cords: Cords::Server, racks: Racks::Grouped };
        let start = clock.now().monotonic_us;
        let wiring = place(&topology, &[wiring::Kind { servers, peak_w: 300.0 }], floor)?;
        let placed = seconds_since(start);
        let mut random = SeededRandom::new(1);
        let watts: Vec<f64> = (0..servers).map(|_| 80.0 + 220.0 * random.unit()).collect();
        let start = clock.now().monotonic_us;
        let power = pair_power(&wiring, &watts);
        let (_, least) = least_capacity(&wiring, &power, SKEW)?;
        let bound = seconds_since(start);
        let start = clock.now().monotonic_us;
        let limits = Limits::even(1.05 * least, wiring.feeds(), SKEW);
        let division = split(&wiring, &power, &limits)?;
        let rounded = round(&wiring, &watts, &division, &limits);
        let scheduled = seconds_since(start);
        let start = clock.now().monotonic_us;
        let overloads = safety::overloads(&wiring, &rounded.sides, &watts, &limits.feed_w).len();
        let checked = seconds_since(start);
        println!(
            "{servers} servers, {} PDUs, {}: placed in {placed:.3} s, bound in {bound:.3} s, scheduled in {scheduled:.3} s, \
             every failing PDU gone through in {checked:.3} s, {overloads} overloads",
            topology.pdus, topology.name
        );
    }
    day(1)?;
    // 1 GB of memory and, unless optimised, minutes: only when asked for.
    if std::env::args().any(|argument| argument == "large") {
        day(100)?;
    }
    Ok(())
}

/// The least capacity of `islands` rooms of the published mix over a day, then the control loop at it.
fn day(islands: usize) -> Result<()> {
    let clock = SystemClock::new();
    let seconds_since = |start: u64| (clock.now().monotonic_us - start) as f64 / 1e6;
    let description = Description::read(&SCENARIOS[0].description())?;
    let mut classes = description.class_list()?;
    for class in &mut classes {
        class.servers *= islands;
    }
    let start = clock.now().monotonic_us;
    let trace = synthetic::generate(&classes, 1_440, 1)?;
    let servers = trace.servers();
    println!("{servers} servers: a day made in {:.2} s", seconds_since(start));
    let topology = Topology::new(Kind::Serpentine, 6, islands)?;
    // Kinds mixed in every island, as each is in the published room.
    let racks = if islands > 1 { Racks::Spread } else { Racks::Grouped };
    let wiring = place(&topology, &kinds(&classes), Placement { racks, ..description.floor() })?;
    let (idle, control) = (idle_w(&classes), Control { budget: Budget::Peak, window: 1 });
    let start = clock.now().monotonic_us;
    let bound = capacity::bound(&wiring, &trace, SKEW)?;
    println!("{servers} servers, a day: bound {:.1} kW in {:.2} s", bound / 1e3, seconds_since(start));
    let start = clock.now().monotonic_us;
    let least = capacity::routed(&wiring, &idle, &trace, control, SKEW, bound)?;
    println!(
        "{servers} servers, a day: least capacity {:.1} kW in {:.2} s",
        least / 1e3,
        seconds_since(start)
    );
    let start = clock.now().monotonic_us;
    let limits = Limits::even(least, wiring.feeds(), SKEW);
    let seen = simulate(&wiring, &limits, &idle, &trace, control, false)?;
    println!(
        "{servers} servers, a day at that capacity: {} schedules in {:.2} s, {} samples throttled, safe: {}",
        seen.schedules,
        seconds_since(start),
        seen.throttled_samples,
        seen.safe
    );
    Ok(())
}
