//! `tierstone completions SHELL`.

use crate::output::print_line;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use tierstone_base::Result;

#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// The shell. To put the script to use: `source <(tierstone completions bash)`; of zsh, after `autoload -U compinit &&
    /// compinit`, `source <(tierstone completions zsh)`; of fish, `tierstone completions fish | source`
    shell: Shell,
}

pub fn run(args: &CompletionArgs) -> Result<()> {
    let mut command = crate::Program::command();
    // Not to standard output at once: what generates it panics where that is closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "tierstone", &mut script);
    print_line(String::from_utf8_lossy(&script).trim_end())
}
