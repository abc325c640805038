//! How long power routing takes: one schedule with its check, and a day of the control loop.
//!
//! `cargo run --release --example routing_rates -p tierstone-plan`

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
    let description = Description::read(&SCENARIOS[0].description())?;
    let classes = description.class_list()?;
    let trace = synthetic::generate(&classes, 1_440, 1)?;
    let topology = Topology::new(Kind::Serpentine, 6, 1)?;
    let wiring = place(&topology, &kinds(&classes), description.floor())?;
    let (idle, control) = (idle_w(&classes), Control { budget: Budget::Peak, window: 1 });
    let start = clock.now().monotonic_us;
    let bound = capacity::bound(&wiring, &trace, SKEW)?;
    let least = capacity::routed(&wiring, &idle, &trace, control, SKEW, bound)?;
    println!("1000 servers, a day: least capacity {:.1} kW in {:.2} s", least / 1e3, seconds_since(start));
    let start = clock.now().monotonic_us;
    let limits = Limits::even(least, wiring.feeds(), SKEW);
    let seen = simulate(&wiring, &limits, &idle, &trace, control, false)?;
    println!(
        "1000 servers, a day at that capacity: {} schedules in {:.2} s",
        seen.schedules,
        seconds_since(start)
    );
    Ok(())
}
