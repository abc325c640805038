//! How fast the simulator of sleeping mirrors is: trace requests a second of the shipped scenarios, with
//! sleep and without; then what they give (modelled). `cargo run --release --example mirror_rates -p tierstone-plan`
#![expect(clippy::print_stdout, reason = "the figures are the program's output")]

use tierstone_base::{Clock, SystemClock};
use tierstone_plan::mirrors::describe::Trace;
use tierstone_plan::mirrors::{Description, Machine, SCENARIOS, generate, plan, simulate};
use tierstone_plan::number::number;

fn main() -> tierstone_base::Result<()> {
    let clock = SystemClock::new();
    for scenario in SCENARIOS {
        let name = scenario.name;
        let description = Description::read(&scenario.description())?;
        let trace = match &description.trace {
            Trace::Diurnal(load) => generate::diurnal(load),
            Trace::Spiky(load) => generate::spiky(load),
            Trace::Msr { .. } | Trace::Blkparse { .. } => continue,
        };
        let machine = Machine::of(&description);
        for sleeps in [false, true] {
            for _ in 0..3 {
                let start = clock.now();
                let outcome = simulate(&machine, &trace, sleeps);
                let seconds = (clock.now().monotonic_us - start.monotonic_us) as f64 / 1e6;
                let rate = outcome.requests as f64 / seconds;
                println!(
                    "{name}, sleep {sleeps}: {} requests in {seconds:.3} s, {rate:.0} a second",
                    outcome.requests
                );
            }
        }
        let report = plan(&scenario.description())?;
        for fact in &report.facts {
            println!("  {}: {} {}", fact.name, number(fact.value), fact.unit);
        }
        for table in &report.tables {
            println!("  {}: {}", table.title, table.columns.join(" | "));
            table.rows.iter().for_each(|row| println!("    {row:?}"));
        }
    }
    Ok(())
}
