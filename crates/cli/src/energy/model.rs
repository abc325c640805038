//! `tierstone energy model`.

use super::load_model;
use crate::output::{print_json, print_line, table};
use clap::Args;
use tierstone_base::Result;
use tierstone_energy::presets;

#[derive(Debug, Args)]
pub struct ModelArgs {
    /// A model that ships (cloud, desktop-2009, atom-2009) or a TOML file
    #[arg(value_name = "NAME|FILE", default_value = presets::NAMES[0])]
    model: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &ModelArgs) -> Result<()> {
    let model = load_model(&args.model)?;
    if args.json {
        return print_json(&model);
    }
    let head = ["constant", "value", "unit", "source"].map(str::to_owned).to_vec();
    let rows = model.constants().map(|(name, unit, constant)| {
        vec![name.to_owned(), format!("{:.3e}", constant.value), unit.to_owned(), constant.source.clone()]
    });
    print_line(&format!("model {}: what follows from it is modelled, not measured", model.name))?;
    print_line(table(&std::iter::once(head).chain(rows).collect::<Vec<_>>()).trim_end())
}
