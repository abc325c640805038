//! The load of `bench/soak`: `soak_load OBJECTS CONNECTIONS PIPELINE SMALLEST LARGEST PAGE SEED`, then one phase
//! from each line of its input:
//!
//! - `fill ADDRESS`: every object once
//! - `closed ADDRESS SECONDS DEPTH`: as fast as it goes with DEPTH operations under way on each connection
//! - `open ADDRESS SECONDS RATE`: so many operations a second
//! - `killed ADDRESS RATE`: until the server is gone
//! - `verify ADDRESS`: every object, on a server that was started anew
//!
//! Prints a line of JSON for each second and one at the end of each phase. Ends with 1 when an answer was wrong.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use serde_json::{Value, json};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_workload::SizeDistribution;
use tierstone_workload::soak::{End, Pace, Second, Soak, SoakSettings};

/// How long a server may live that is to be killed, in seconds.
const KILL_SECONDS_MAX: f64 = 600.0;

fn main() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [objects, connections, pipeline, smallest, largest, page, seed] = words.as_slice() else {
        return Err(refuse("soak_load: seven numbers are needed; see the head of its source"));
    };
    let mut soak = Soak::new(SoakSettings {
        objects: number(objects)?,
        connections: number(connections)?,
        pipeline: number(pipeline)?,
        sizes: SizeDistribution::Uniform { min: number(smallest)?, max: number(largest)? },
        page: number(page)?,
        seed: number(seed)?,
    })?;
    say(&json!({ "ready": true }))?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let outcome = phase(&mut soak, &words)?;
        say(&json!({ "done": line, "outcome": outcome, "findings": soak.findings() }))?;
    }
    Ok(if soak.findings().faults == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn phase(soak: &mut Soak, words: &[&str]) -> Result<Value> {
    let (address, pace, end) = match words {
        ["verify", address] => return told(&soak.verify(address)?),
        ["fill", address] => (address, Pace::Closed(usize::MAX), End::Filled),
        ["closed", address, seconds, depth] => {
            (address, Pace::Closed(number(depth)?), End::After(number(seconds)?))
        }
        ["open", address, seconds, rate] => {
            (address, Pace::Open(number(rate)?), End::After(number(seconds)?))
        }
        ["killed", address, rate] => (address, Pace::Open(number(rate)?), End::Killed(KILL_SECONDS_MAX)),
        _ => return Err(refuse(&format!("soak_load: no phase: {words:?}"))),
    };
    let mut failed = None;
    let whole = soak.run(address, pace, end, &mut |second: &Second| {
        let said = told(second).and_then(|second| say(&json!({ "second": second })));
        failed = failed.take().or(said.err());
    })?;
    failed.map_or_else(|| told(&whole), Err)
}

fn told(what: &impl serde::Serialize) -> Result<Value> {
    serde_json::to_value(what).map_err(|error| refuse(&error.to_string()))
}

fn say(line: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T> {
    text.parse().map_err(|_| refuse(&format!("soak_load: '{text}' is no such number")))
}

fn refuse(message: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}
