//! `tierstone lab what-if`: a recorded workload on the device alone, and with emulated persistent memories.

use super::{BAR_STEPS, settings, style};
use crate::interrupt::Interrupted;
use crate::output::{print_json, print_line, table};
use crate::persist::refuse_directory;
use crate::workload::options::PlanArgs;
use clap::Args;
use indicatif::ProgressBar;
use std::ops::ControlFlow;
use std::path::PathBuf;
use tierstone_base::Result;
use tierstone_base::units::parse_size;
use tierstone_lab::result::{Cell, Table};
use tierstone_lab::{Size, WhatIf, output, what_if};
use tierstone_media::region::MEMORY_PROFILES;
use tierstone_plan::number::number;

#[derive(Debug, Args)]
pub struct WhatIfArgs {
    /// The trace, as `tierstone workload record` or `import` makes it
    #[arg(value_name = "TRACE")]
    file: PathBuf,
    /// Memories to emulate, separated by commas: dram, nvdimm-n, dcpmm, pcm, stt-mram, reram, cxl, mlc-pcm; the device alone
    /// is always measured beside them [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    presets: Vec<String>,
    /// How often each is measured; medians are told
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,
    /// Memory of the redo log
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    nvm_size: String,
    /// Measure stores that lie wholly in each memory too, of so many bytes
    #[arg(long, value_name = "SIZE")]
    wholly: Option<String>,
    #[command(flatten)]
    plan: PlanArgs,
    /// Where the result goes: a folder `what-if` in it
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    out: PathBuf,
    /// On which disk to measure: a temporary folder in this directory, which is there, is used and removed [default: the
    /// result's own]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &WhatIfArgs) -> Result<()> {
    let memories = match args.presets.is_empty() {
        true => MEMORY_PROFILES.iter().map(|profile| profile.name.to_owned()).collect(),
        false => args.presets.clone(),
    };
    let what = WhatIf {
        memories,
        region_bytes: parse_size(&args.nvm_size)?,
        whole_bytes: args.wholly.as_deref().map_or(Ok(0), parse_size)?,
        rounds: args.rounds,
        options: args
            .plan
            .store(&[], &["data", "nvm", "nvm-size", "nvm-guarantee", "nvm-loss", "disk-loss"])?,
        replay: args.plan.replay()?,
    };
    // Before the trace is read, so that a wrong setting costs nothing.
    what.validate()?;
    refuse_directory(&args.file)?;
    let plan = args.plan.plan(&args.file)?;
    let settings = settings(Size::Full, &args.out, args.data.as_deref(), args.plan.seed())?;
    let stop = Interrupted::watch()?;
    let bar = ProgressBar::new(BAR_STEPS);
    bar.set_style(style());
    bar.set_prefix("what-if");
    let result = what_if(&plan, &what, &settings, &mut |progress| {
        bar.set_position((progress.done * BAR_STEPS as f64) as u64);
        bar.set_message(progress.doing.to_owned());
        if stop.has_come() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    let result = result?;
    output::write(&result, &args.out)?;
    if args.json {
        return print_json(&result);
    }
    if let Some(medians) = result.tables.first() {
        print_line(&table(&across(medians)))?;
    }
    for note in &result.notes {
        print_line(&format!("{note}."))?;
    }
    let page = args.out.join(&result.name).join("README.md");
    print_line(&format!("every round, plots and settings: {}", page.display()))
}

/// The table with a column a medium: it is wider than it is high.
fn across(medians: &Table) -> Vec<Vec<String>> {
    let text = |cell: &Cell| match cell {
        Cell::Number(value) => number(*value),
        Cell::Text(text) => text.clone(),
    };
    let column = |place: usize, head: &String| {
        let cells = medians.rows.iter().filter_map(|row| row.get(place)).map(text);
        std::iter::once(head.clone()).chain(cells).collect()
    };
    medians.columns.iter().enumerate().map(|(place, head)| column(place, head)).collect()
}
