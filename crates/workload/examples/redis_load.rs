//! Drives a Redis server from the command line: `redis_load PHASE [NAME=VALUE]…`.
//!
//! PHASE is `load`, `run` or `verify`. Names: `address`, `connections`, `pipeline`, `threads`, `records`,
//! `size` (bytes of a value), `distribution`, `ycsb` (A to F; set it first), `put` (put ratio), `rate`,
//! `arrivals` (`constant` or `poisson`), `seconds`, `operations`, `warmup`, `seed`, `verify` (`true` or
//! `false`), `refill` (`when_empty` or `at_once`). Prints the outcome as JSON.

use std::ops::ControlFlow;

use tierstone_base::{Error, ErrorKind, Result};
use tierstone_workload::redis_load::{self, Plan, Refill};
use tierstone_workload::{Arrivals, Extent, Mix, SizeDistribution, Workload, Ycsb};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let phase = arguments.next().unwrap_or_default();
    let mut plan = Plan::default();
    for argument in arguments {
        let (name, value) = argument.split_once('=').ok_or_else(|| refuse(&argument))?;
        set(&mut plan, name, value)?;
    }
    let mut progress = |now: tierstone_workload::Progress| {
        eprint!("\r{} operations, {:.1} s", now.operations, now.seconds);
        ControlFlow::Continue(())
    };
    let outcome = match phase.as_str() {
        "load" => redis_load::load(&plan, &mut progress)?,
        "run" => redis_load::run(&plan, &mut progress)?,
        "verify" => redis_load::verify(&plan, &mut progress)?,
        other => return Err(refuse(other)),
    };
    eprintln!();
    let text = serde_json::to_string_pretty(&outcome).map_err(|error| refuse(&error.to_string()))?;
    println!("{text}");
    Ok(())
}

fn set(plan: &mut Plan, name: &str, value: &str) -> Result<()> {
    match name {
        "address" => plan.server.address = value.into(),
        "connections" => plan.connections = number(value)?,
        "pipeline" => plan.pacing.pipeline = number(value)?,
        "threads" => plan.pacing.threads = number(value)?,
        "records" => plan.workload.records = number(value)?,
        "size" => plan.workload.value.size = SizeDistribution::Fixed(number(value)?),
        "distribution" => plan.workload.distribution = value.parse()?,
        "ycsb" => plan.workload = Workload::ycsb(value.parse::<Ycsb>()?, plan.workload.records),
        "put" => plan.workload.mix = Mix::puts(number(value)?),
        "rate" => plan.pacing.rate = Some(number(value)?),
        "arrivals" if value == "constant" => plan.pacing.arrivals = Arrivals::Constant,
        "arrivals" if value == "poisson" => plan.pacing.arrivals = Arrivals::Poisson,
        "seconds" => plan.pacing.extent = Extent::Seconds(number(value)?),
        "operations" => plan.pacing.extent = Extent::Operations(number(value)?),
        "warmup" => plan.pacing.warmup_seconds = number(value)?,
        "seed" => plan.pacing.seed = number(value)?,
        "verify" => plan.workload.verify = number(value)?,
        "refill" if value == "when_empty" => plan.refill = Refill::WhenEmpty,
        "refill" if value == "at_once" => plan.refill = Refill::AtOnce,
        _ => return Err(refuse(name)),
    }
    Ok(())
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T> {
    text.parse().map_err(|_| refuse(text))
}

fn refuse(what: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("cannot use '{what}'; see the head of the example's source"))
}
