//! `tierstone workload record`.

use super::{OutputArgs, Written, bar, told};
use crate::connect::ConnectArgs;
use crate::interrupt::Interrupted;
use crate::output::{print_json, print_line};
use clap::Args;
use std::ops::ControlFlow;
use tierstone_base::{Clock, Error, ErrorKind, Result, SystemClock};
use tierstone_workload::redis_load::Server;
use tierstone_workload::trace::record::{RecordSettings, record};
use tierstone_workload::trace::{TraceHead, TraceSource};

/// A recording lasts at most a day: longer ones are several.
const SECONDS_MAX: f64 = 86_400.0;

#[derive(Debug, Args)]
pub struct RecordArgs {
    /// The server: a host and the port of Redis clients, or unix:PATH
    #[arg(long, value_name = "HOST:PORT")]
    address: String,
    #[command(flatten)]
    connect: ConnectArgs,
    /// How long to listen, in seconds, at most a day; an interrupt ends it before, and what was heard is kept
    #[arg(long, value_name = "N")]
    seconds: f64,
    #[command(flatten)]
    output: OutputArgs,
    /// Ask at the end, by STRLEN, how long the values are of up to a million keys that were read and not written:
    /// MONITOR does not tell it
    #[arg(long)]
    ask_sizes: bool,
    /// Print what was recorded as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &RecordArgs) -> Result<()> {
    if !(args.seconds > 0.0 && args.seconds <= SECONDS_MAX) {
        let message = format!("--seconds must be above 0 and at most {SECONDS_MAX}");
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let server = Server {
        address: args.address.clone(),
        username: args.connect.user(),
        password: args.connect.password()?,
        database: 0,
        tls: args.connect.files(),
    };
    let settings = RecordSettings { server, seconds: args.seconds, ask_sizes: args.ask_sizes };
    let anonymizer = args.output.anonymizer()?;
    let stop = Interrupted::watch()?;
    let began_ms = SystemClock::new().now().wall_ms;
    let head = TraceHead { source: TraceSource::Server, is_anonymous: args.output.anonymous, began_ms };
    let mut writer = args.output.create(&head)?;
    let bar = bar("recording");
    bar.set_length((args.seconds * 1e3) as u64);
    let recorded = record(&settings, &mut writer, anonymizer.as_ref(), &mut |seconds, records| {
        bar.set_position((seconds * 1e3) as u64);
        bar.set_message(format!("{records} records"));
        if stop.has_come() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    let recorded = match recorded {
        Ok(recorded) => recorded,
        Err(error) => {
            if writer.records() == 0 {
                // Nothing was heard: no file is left that looks like a trace.
                let _ = std::fs::remove_file(&args.output.output);
            }
            return Err(error);
        }
    };
    args.output.finish(writer)?;
    match args.json {
        true => print_json(&Written { trace: head, what: &recorded })?,
        false => {
            let mut text = format!("{:.1} s: {}", recorded.seconds, told(&recorded.counts));
            if args.ask_sizes {
                text.push_str(&format!("; {} sizes were asked for", recorded.sizes));
            }
            print_line(&text)?;
        }
    }
    match recorded.ended_early {
        None => Ok(()),
        Some(why) => {
            let message = format!(
                "the recording ended before its time: {why}; what was heard until then is in the file"
            );
            Err(Error::new(ErrorKind::Retry, message))
        }
    }
}
