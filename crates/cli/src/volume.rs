//! `tierstone volume`: makes volumes of files or disks, tells their state, compares and repairs them.

mod create;
mod ranges;
mod repair;
mod running;
mod status;

use crate::output::{print_json, print_line};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::path::{Path, PathBuf};
use tierstone::volume::{MemberPlace, MemberReport, OpenedVolume, open_volume, state_name};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::file::DirectIo;
use tierstone_volume::Health;

const EXIT_CODES: &str = "A volume is named by its description, a file that ends in .toml; it stands where \
directories would: `tierstone server --data volume.toml`.\n\nExamples:\n  tierstone volume create volume.toml --level 1 \
--size 10GiB /disk1/tier /disk2/tier\n  tierstone volume create volume.toml --level 5 /dev/sdb /dev/sdc /dev/sdd\n  \
tierstone server --data volume.toml\n  tierstone volume status volume.toml\n  tierstone volume replace volume.toml 1 \
/dev/sde\n  tierstone volume replace volume.toml 1 \
/dev/sde --server 127.0.0.1:6379\n\nExit codes: 0 done (status, check and fill: and the volume is whole); 2 wrong usage, or the volume is in use; 3 mirrors or \
parity differ; 4 a member has failed, or (status, check) the volume is degraded.";

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct VolumeArgs {
    #[command(subcommand)]
    command: VolumeCommand,
}

#[derive(Debug, Subcommand)]
enum VolumeCommand {
    /// Make a volume of files or block devices, and write its description
    Create(create::CreateArgs),
    /// Tell the state of a volume and its members, without opening it
    Status(status::StatusArgs),
    /// Compare all mirrors, or all parity with its data
    Check(ClosedArgs),
    /// Take a member out, as if it had failed: before its disk is pulled
    Fail(repair::FailArgs),
    /// Put a file or block device in the place of a failed member, and fill it
    Replace(repair::ReplaceArgs),
    /// Declare bytes cold, so that pairs of mirrors may sleep whole, or hot again
    Declare(ranges::DeclareArgs),
    /// Tell which bytes are hot and cold, and whether a request would start a disk
    Ranges(ClosedArgs),
    /// Fill what members do not have yet: after a `replace` or `create` that was broken off
    Fill(ClosedArgs),
}

/// A closed volume.
#[derive(Debug, Args)]
pub struct ClosedArgs {
    /// The volume's description
    #[arg(value_name = "FILE.toml")]
    description: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &VolumeArgs) -> Result<()> {
    match &args.command {
        VolumeCommand::Create(args) => create::run(args),
        VolumeCommand::Status(args) => status::run(args),
        VolumeCommand::Check(args) => repair::check(args),
        VolumeCommand::Fail(args) => repair::fail(args),
        VolumeCommand::Replace(args) => repair::replace(args),
        VolumeCommand::Declare(args) => ranges::declare(args),
        VolumeCommand::Ranges(args) => ranges::ranges(args),
        VolumeCommand::Fill(args) => repair::fill(args),
    }
}

/// What a command says of a volume in the end.
#[derive(Debug, Serialize)]
struct Outcome {
    level: &'static str,
    bytes: u64,
    is_degraded: bool,
    members: Vec<MemberReport>,
    faults: Vec<String>,
    /// Rows that were compared, and which differ, as group and row; only of `check`.
    #[serde(skip_serializing_if = "Option::is_none")]
    compared_rows: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    differing: Option<Vec<(u32, u64)>>,
}

impl Outcome {
    fn of(opened: &OpenedVolume) -> Outcome {
        let status = opened.volume.status();
        let states = opened.places.iter().zip(&status.members).zip(&status.read_errors);
        let member = |((place, health), &read_errors): ((&MemberPlace, &Health), &u32)| MemberReport {
            path: place.path.clone(),
            state: state_name(*health),
            filled_percent: None,
            read_errors,
        };
        Outcome {
            level: opened.facts.layout.level_name(),
            bytes: opened.facts.geometry.end(),
            is_degraded: status.is_degraded,
            members: states.map(member).collect(),
            faults: opened.faults.clone(),
            compared_rows: None,
            differing: None,
        }
    }

    fn show(&self, json: bool, done: &str) -> Result<()> {
        if json {
            return print_json(self);
        }
        self.faults.iter().try_for_each(|fault| print_line(&format!("* {fault}")))?;
        print_line(done)
    }

    /// Prints it; an error when the volume is not whole.
    fn tell(&self, json: bool, done: &str) -> Result<()> {
        self.show(json, done)?;
        if self.is_degraded {
            let message =
                "the volume is degraded: replace what has failed (`tierstone volume status` names it)";
            return Err(Error::new(ErrorKind::DeviceFailed, message));
        }
        Ok(())
    }
}

fn open(description: &Path) -> Result<OpenedVolume> {
    open_volume(description, DirectIo::Auto)
}

fn progress(what: &str, rows: u64) -> ProgressBar {
    let bar = ProgressBar::new(rows);
    let template = format!("{what} [{{bar:40}}] {{percent}} % {{eta}}");
    let style = ProgressStyle::with_template(&template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar
}
