//! `tierstone completions SHELL`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use tierstone_base::Result;

#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// The shell: `source <(tierstone completions bash)` puts the script to use
    shell: Shell,
}

pub fn run(args: &CompletionArgs) -> Result<()> {
    let mut command = crate::Program::command();
    clap_complete::generate(args.shell, &mut command, "tierstone", &mut std::io::stdout());
    Ok(())
}
