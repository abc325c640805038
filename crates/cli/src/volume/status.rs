//! `tierstone volume status`: what the members say, without opening the volume.

use crate::output::{print_json, print_line, table};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use tierstone::volume::{Description, DiskStopping, Probed, newest, probe_members, state_name};
use tierstone_base::units::format_size;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::file::DirectIo;
use tierstone_volume::Health;
use tierstone_volume::inspect::{Holds, MemberFacts};

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The volume's description. The volume must be closed: a running server tells by INFO volume
    #[arg(value_name = "FILE.toml")]
    description: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Status {
    level: &'static str,
    bytes: u64,
    segment_bytes: u64,
    chunk_bytes: u64,
    generation: u64,
    was_closed: bool,
    is_degraded: bool,
    members: Vec<Member>,
    #[serde(skip_serializing_if = "Option::is_none")]
    buffer: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spindle: Option<String>,
}

#[derive(Debug, Serialize)]
struct Member {
    path: PathBuf,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    filled_percent: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    fault: String,
}

pub fn run(args: &StatusArgs) -> Result<()> {
    let description = Description::read(&args.description)?;
    let probed = probe_members(&args.description, &description, DirectIo::Auto).map_err(told_by_server)?;
    let truth = newest(&probed)?;
    let members: Vec<Member> =
        probed.iter().enumerate().map(|(index, member)| member_of(index, member, &truth)).collect();
    let status = Status {
        level: truth.layout.level_name(),
        bytes: truth.geometry.end(),
        segment_bytes: truth.geometry.segment_bytes,
        chunk_bytes: truth.layout.chunk_bytes,
        generation: truth.generation,
        was_closed: truth.is_clean,
        is_degraded: members.iter().any(|member| !matches!(member.state, "in-sync" | "behind")),
        members,
        spindle: description.buffer.is_some().then(|| stopping(&description, &probed)),
        buffer: description.buffer,
    };
    if args.json {
        print_json(&status)?
    } else {
        print(&status)?
    }
    match status.is_degraded {
        true => Err(Error::new(ErrorKind::DeviceFailed, "the volume is degraded")),
        false => Ok(()),
    }
}

/// Who has the volume open knows more of it than its members say.
fn told_by_server(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Busy => {
            let message =
                format!("{}; a server tells its own state of the volume: INFO volume", error.message());
            Error::new(ErrorKind::Busy, message)
        }
        _ => error,
    }
}

/// Whether the disks of members that sleep would be stopped.
fn stopping(description: &Description, probed: &[Probed]) -> String {
    let paths: Vec<PathBuf> = probed.iter().map(|member| member.path.clone()).collect();
    let is_wanted = description.sleep.unwrap_or_default().stop_disks;
    DiskStopping::of(&paths, is_wanted).1.text()
}

fn member_of(index: usize, member: &Probed, truth: &MemberFacts) -> Member {
    let health = truth.members.get(index).copied().unwrap_or(Health::Failed);
    let fault = match (&member.file, &member.holds) {
        (Err(error), _) => error.to_string(),
        (Ok(_), Holds::Member(own)) if own.volume != truth.volume => "belongs to another volume".to_owned(),
        (Ok(_), Holds::Member(own)) if own.index as usize != index => {
            format!("is member {}: the description has another order", own.index)
        }
        (Ok(_), Holds::Member(_)) if health == Health::Failed => "missed writes".to_owned(),
        (Ok(_), Holds::Member(_)) => String::new(),
        (Ok(_), Holds::Unusable(why)) => why.clone(),
        (Ok(_), _) => "holds no part of the volume".to_owned(),
    };
    Member {
        path: member.path.clone(),
        state: state_name(if fault.is_empty() { health } else { Health::Failed }),
        filled_percent: match health {
            Health::Rebuilding { row } if fault.is_empty() => Some(row * 100 / truth.layout.rows.max(1)),
            _ => None,
        },
        fault,
    }
}

fn print(status: &Status) -> Result<()> {
    let state = if status.is_degraded { "degraded" } else { "whole" };
    print_line(&format!(
        "{}, {state}: {} in segments of {}, chunks of {}; {}",
        status.level,
        format_size(status.bytes),
        format_size(status.segment_bytes),
        format_size(status.chunk_bytes),
        if status.was_closed { "closed in good order" } else { "not closed: the next opening repairs it" },
    ))?;
    let head = ["member", "state", "path", "fault"].map(str::to_owned).to_vec();
    let row = |(index, member): (usize, &Member)| {
        let state = match member.filled_percent {
            Some(percent) => format!("{} ({percent} %)", member.state),
            None => member.state.to_owned(),
        };
        vec![index.to_string(), state, member.path.display().to_string(), member.fault.clone()]
    };
    let rows: Vec<Vec<String>> =
        std::iter::once(head).chain(status.members.iter().enumerate().map(row)).collect();
    print_line(&table(&rows))?;
    match (&status.buffer, &status.spindle) {
        (Some(buffer), Some(spindle)) => print_line(&format!("flash buffer {}; {spindle}", buffer.display())),
        _ => Ok(()),
    }
}
