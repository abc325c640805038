//! How commands open the region of a store that lies wholly in persistent memory: the server's settings of the same names.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use tierstone::DatabaseOptions;
use tierstone_base::{Error, ErrorKind, Result};

/// What a region must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Guarantee {
    /// The loss of power
    PowerFail,
    /// Whatever it does: a file that is not on DAX survives the process only
    Any,
}

/// How a region is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Flush {
    /// By the processor's instructions and a fence
    Auto,
    /// By a system call and a write of the device
    Msync,
}

/// What is asked of the region of a store at `nvm:…`.
#[derive(Debug, Args)]
pub struct RegionArgs {
    /// What the region of a store at nvm:… must survive: with power-fail another one is refused
    #[arg(long, value_name = "WHICH", requires = "data", default_value = "power-fail")]
    nvm_guarantee: Guarantee,
    /// How that region is made durable: msync makes a file that is not on DAX as durable as its file system is
    #[arg(long, value_name = "METHOD", requires = "data", default_value = "auto")]
    nvm_flush: Flush,
}

impl RegionArgs {
    /// Refuses to be given where there is no region.
    ///
    /// # Errors
    /// `InvalidInput`: something was asked of a region, which needs `flag`.
    pub fn needs(&self, flag: &str) -> Result<()> {
        let given = [
            ("--nvm-guarantee", self.nvm_guarantee != Guarantee::PowerFail),
            ("--nvm-flush", self.nvm_flush != Flush::Auto),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => Err(Error::new(ErrorKind::InvalidInput, format!("{name} needs {flag}"))),
            None => Ok(()),
        }
    }

    /// Puts it into the options of a store.
    pub fn apply(&self, options: &mut DatabaseOptions) {
        options.any_guarantee = self.nvm_guarantee == Guarantee::Any;
        options.msync = self.nvm_flush == Flush::Msync;
    }
}

/// How many shards a store at `nvm:…` has that is there: it opens with no other number. What is wrong with it is told by its
/// opening.
pub fn kept_shards(directories: &[PathBuf]) -> Option<u16> {
    let is_emulated = directories.iter().any(|data| data.to_string_lossy().starts_with("nvm:emulated:"));
    if is_emulated { None } else { tierstone::nvm_shards(directories).ok().flatten() }
}
