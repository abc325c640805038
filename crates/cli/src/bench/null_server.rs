//! `tierstone bench null-server`: the server that stores nothing, until it is stopped.

use crate::output::print_line;
use crate::values::addresses;
use clap::Args;
use std::time::Duration;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_server::TransportSettings;
use tierstone_server::null;

/// The largest value that it answers with.
const VALUE_BYTES_MAX: usize = 64 << 20;

#[derive(Debug, Args)]
pub struct NullServerArgs {
    /// Where clients come in, as for the server; port 0 takes a free port and prints it
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    listen: String,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Bytes with which GET is answered
    #[arg(long, value_name = "N", default_value_t = 128)]
    value_size: usize,
    /// Nanoseconds for which each request keeps a processor; to compare with a server that takes as long
    #[arg(long, value_name = "NS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    busy_ns: u64,
}

pub fn run(args: &NullServerArgs) -> Result<()> {
    if !(1..=1024).contains(&args.threads) || args.value_size > VALUE_BYTES_MAX {
        let message = "between 1 and 1024 threads and values of at most 64 MiB are possible";
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let mut signals =
        signal_hook::iterator::Signals::new([signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM])?;
    let listen = addresses(&args.listen)?;
    let service = null::NullService::new(args.value_size).busy_for(Duration::from_nanos(args.busy_ns));
    let server = null::run(&listen, &TransportSettings::default(), args.threads, &service)?;
    for address in &server.addresses {
        print_line(&format!("listening on {address}"))?;
    }
    signals.forever().next();
    for driver in &server.drivers {
        driver.stop_handle().stop();
    }
    for driver in server.drivers {
        driver.join()?;
    }
    print_line("stopped in good order")
}
