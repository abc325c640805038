//! `tierstone volume check`, `fail`, `replace` and `fill`: on closed volumes.

use super::create::take;
use super::running::{Running, RunningArgs};
use super::{ClosedArgs, Outcome, open, progress};
use clap::Args;
use std::path::PathBuf;
use tierstone::replace_file;
use tierstone::volume::{Description, OpenedVolume, newest, open_volume_without, probe_members};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::file::DirectIo;
use tierstone_volume::Health;
use tierstone_volume::inspect::Holds;

/// Rows between two looks at the progress.
const ROWS_A_STEP: u64 = 16;
/// Differing rows that are printed one by one; JSON has all.
const DIFFERING_SHOWN: usize = 20;

#[derive(Debug, Args)]
pub struct FailArgs {
    /// The volume's description
    #[arg(value_name = "FILE.toml")]
    description: PathBuf,
    /// The member's number, from 0
    #[arg(value_name = "NUMBER")]
    member: usize,
    #[command(flatten)]
    running: RunningArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct ReplaceArgs {
    /// The volume's description; it is written anew, without its comments
    #[arg(value_name = "FILE.toml")]
    description: PathBuf,
    /// The number of the failed member, from 0
    #[arg(value_name = "NUMBER")]
    member: usize,
    /// The new file or block device [default: the path that the member has]. A file that does not exist is made
    #[arg(value_name = "MEMBER")]
    path: Option<PathBuf>,
    /// Take a file or device that holds something; it is lost
    #[arg(long, conflicts_with = "server")]
    force: bool,
    #[command(flatten)]
    running: RunningArgs,
    /// Leave filling to the server or to `fill`
    #[arg(long)]
    no_fill: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn check(args: &ClosedArgs) -> Result<()> {
    let opened = open(&args.description)?;
    let rows = opened.volume.rows();
    let bar = progress("comparing", rows);
    let mut differing = Vec::new();
    for row in (0..rows).step_by(ROWS_A_STEP as usize) {
        differing.extend(opened.volume.compare(row..(row + ROWS_A_STEP).min(rows))?);
        bar.set_position(row);
    }
    bar.finish_and_clear();
    let mut outcome = Outcome::of(&opened);
    let mut done = format!("{rows} rows compared, {} differ", differing.len());
    for (group, row) in differing.iter().take(DIFFERING_SHOWN) {
        done.push_str(&format!("\n* row {row} of group {group} differs"));
    }
    (outcome.compared_rows, outcome.differing) = (Some(rows), Some(differing.clone()));
    opened.volume.close()?;
    let told = outcome.tell(args.json, &done);
    if differing.is_empty() {
        return told;
    }
    let message = format!(
        "{} rows differ: run `tierstone check` on the store to learn which member is right, take the other out with \
         `fail`, then `replace` it",
        differing.len()
    );
    Err(Error::new(ErrorKind::Corrupt, message))
}

pub fn fail(args: &FailArgs) -> Result<()> {
    if let Some(mut server) = Running::of(&args.running, &args.description)? {
        server.order(&[b"FAIL", args.member.to_string().as_bytes()])?;
        return server.tell(args.json);
    }
    let opened = open(&args.description)?;
    opened.volume.fail(args.member)?;
    let outcome = Outcome::of(&opened);
    opened.volume.close()?;
    let done = format!("member {} is taken out; put another in its place with `replace`", args.member);
    // That the volume is degraded now is what was asked for.
    outcome.show(args.json, &done)
}

pub fn replace(args: &ReplaceArgs) -> Result<()> {
    if let Some(server) = Running::of(&args.running, &args.description)? {
        return replace_running(server, args);
    }
    let mut description = Description::read(&args.description)?;
    let Some(old) = description.members.get(args.member) else {
        let message = format!("the volume has {} members, from number 0", description.members.len());
        return Err(Error::new(ErrorKind::InvalidInput, message));
    };
    let old = Description::resolve(&args.description, old);
    let path = args.path.as_ref().map(std::path::absolute).transpose()?.unwrap_or(old.clone());
    let (needed, volume) = check_replaced(args, &description)?;
    // Under its own name only what says that it is this member is taken without `--force`: zeros at the start alone may
    // be somebody's file system.
    let own = (path == old).then_some((volume, args.member as u32));
    let take = |made: &mut Vec<PathBuf>| take(&path, Some(needed), ("--size", args.force), own, made);
    if path != old {
        let mut made = Vec::new();
        take(&mut made)?;
        description.members[args.member] = path.clone();
        let text = description.text()?;
        Description::parse(&text)?;
        // Named before it holds anything: were it filled first, a crash would leave the old member named, whose
        // old bytes would count as filled.
        replace_file(&args.description, text.as_bytes())?;
    }
    // crash here [replaced_by_name_only]: the new member holds no superblock, and does not count.
    let opened = open_volume_without(&args.description, args.member)?;
    let (device, _) = take(&mut Vec::new())?;
    opened.volume.replace(args.member, device.into())?;
    if !args.no_fill {
        fill_up(&opened)?;
    }
    let mut outcome = Outcome { faults: Vec::new(), ..Outcome::of(&opened) };
    outcome.members[args.member].path = path;
    opened.volume.close()?;
    match args.no_fill {
        true => outcome.show(args.json, "the new member counts when it is filled"),
        false => outcome.tell(args.json, "the new member is filled and counts"),
    }
}

/// The same by a server, which goes on serving.
fn replace_running(mut server: Running, args: &ReplaceArgs) -> Result<()> {
    let path = args.path.as_ref().map(std::path::absolute).transpose()?;
    let path = path.map(|path| path.into_os_string().into_encoded_bytes());
    let number = args.member.to_string();
    let words: Vec<&[u8]> = [&b"REPLACE"[..], number.as_bytes()].into_iter().chain(path.as_deref()).collect();
    server.order(&words)?;
    if !args.no_fill {
        server.wait_until_filled(args.member)?;
    }
    server.tell(args.json)
}

/// How many bytes a new member needs, and the volume's identity. Refuses to replace a member that counts.
fn check_replaced(args: &ReplaceArgs, description: &Description) -> Result<(u64, u128)> {
    let probed = probe_members(&args.description, description, DirectIo::Auto)?;
    let truth = newest(&probed)?;
    let is_member = matches!(probed[args.member].holds, Holds::Member(_));
    let own = matches!(&probed[args.member].holds, Holds::Member(own)
        if own.volume == truth.volume && own.index as usize == args.member);
    let counts = probed[args.member].file.is_ok() && is_member;
    let refuse =
        |what: &str| Err(Error::new(ErrorKind::InvalidInput, format!("member {} {what}", args.member)));
    match truth.members.get(args.member) {
        Some(Health::InSync | Health::Behind) if counts && own => {
            refuse("has not failed: take it out with `fail` first")
        }
        Some(Health::Rebuilding { .. }) if counts && args.path.is_none() => {
            refuse("is being filled: go on with `fill`, or name another path")
        }
        _ => Ok((truth.bytes_needed, truth.volume)),
    }
}

pub fn fill(args: &ClosedArgs) -> Result<()> {
    let opened = open(&args.description)?;
    fill_up(&opened)?;
    let outcome = Outcome::of(&opened);
    opened.volume.close()?;
    outcome.tell(args.json, "nothing is left to fill")
}

/// Fills what members do not have yet, and shows how far it is.
pub fn fill_up(opened: &OpenedVolume) -> Result<()> {
    let rows = opened.volume.rows();
    let bar = progress("filling", rows);
    while opened.volume.maintain(ROWS_A_STEP)? {
        let filled = opened.volume.status().members.into_iter().filter_map(|health| match health {
            Health::Rebuilding { row } => Some(row),
            _ => None,
        });
        bar.set_position(filled.min().unwrap_or(rows));
    }
    bar.finish_and_clear();
    Ok(())
}
