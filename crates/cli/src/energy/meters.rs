//! `tierstone energy meters`.

use super::MeterArgs;
use crate::output::{print_json, print_line, table};
use clap::Args;
use serde::Serialize;
use tierstone_base::Result;
use tierstone_energy::total::choose;
use tierstone_energy::{Absent, MeterInfo};

#[derive(Debug, Args)]
pub struct MetersArgs {
    #[command(flatten)]
    meters: MeterArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    meters: &'a [MeterInfo],
    /// Names of those that make the machine's total.
    total: Vec<&'a str>,
    covers: &'a str,
    absent: &'a [Absent],
}

pub fn run(args: &MetersArgs) -> Result<()> {
    let found = args.meters.find()?;
    let meters: Vec<MeterInfo> = found.meters.iter().map(|meter| meter.info().clone()).collect();
    let chosen = choose(&meters, &[])?;
    if args.json {
        let total = chosen.lanes.iter().map(|&lane| meters[lane].name.as_str()).collect();
        return print_json(&Report { meters: &meters, total, covers: &chosen.covers, absent: &found.absent });
    }
    if meters.is_empty() {
        print_line("no meter: joules of this machine are modelled (tierstone energy model)")?;
    } else {
        let head =
            ["meter", "covers", "in the total", "step", "asked at most every"].map(str::to_owned).to_vec();
        let rows = meters.iter().enumerate().map(|(lane, info)| {
            vec![
                info.name.clone(),
                format!("{:?}", info.covers).to_lowercase(),
                if chosen.lanes.contains(&lane) { "yes" } else { "no" }.to_owned(),
                format!("{} millionths ({})", info.step, info.step_source),
                format!("{} ms", info.refresh_us as f64 / 1e3),
            ]
        });
        print_line(table(&std::iter::once(head).chain(rows).collect::<Vec<_>>()).trim_end())?;
        print_line(&format!("the total covers {}", chosen.covers))?;
    }
    print_line("")?;
    let head = ["not there", "looked at", "why"].map(str::to_owned).to_vec();
    let rows = found.absent.iter().map(|absent| {
        vec![format!("{:?}", absent.kind).to_lowercase(), absent.what.clone(), absent.why.clone()]
    });
    print_line(table(&std::iter::once(head).chain(rows).collect::<Vec<_>>()).trim_end())
}
