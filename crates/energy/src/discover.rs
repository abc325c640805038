//! Which meters this machine has, and why it has not the others.

use crate::command::{CommandLine, CommandMeter, Parse};
use crate::meter::{Covers, Meter, MeterInfo, MeterKind};
use crate::{battery, hwmon, rapl, tools};
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// A tool that has not answered after so long is killed, in microseconds.
const TOOL_TIMEOUT_US: u64 = 5_000_000;
/// Tools are not started more often: each start costs processor time.
const TOOL_REFRESH_US: u64 = 1_000_000;
/// What a tool is trusted with at most, in microwatts.
const TOOL_POWER_MAX_UW: u64 = 1_000_000_000_000;

/// A way to measure that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Absent {
    /// Which way.
    pub kind: MeterKind,
    /// What was looked at.
    pub what: String,
    /// What was found, and what to do.
    pub why: String,
}

impl Absent {
    /// A way that is not there.
    pub fn new(kind: MeterKind, what: &str, why: impl Into<String>) -> Absent {
        Absent { kind, what: what.to_owned(), why: why.into() }
    }
}

/// Where to look.
#[derive(Clone, Debug)]
pub struct Places {
    /// The folder that stands for `/`.
    pub root: PathBuf,
    /// Folders of programs, as in `PATH`; `None`: no tool is run.
    pub programs: Option<OsString>,
    /// A command of the user's that prints watts or joules, for `sh -c`.
    pub command: Option<String>,
    /// It is killed after so many microseconds, and not run more often than five times in that.
    pub command_timeout_us: u64,
}

impl Places {
    /// This machine's kernel and `programs` (`PATH`).
    pub fn machine(programs: Option<OsString>) -> Places {
        Places { root: "/".into(), programs, command: None, command_timeout_us: TOOL_TIMEOUT_US }
    }
}

/// What was found.
pub struct Found {
    /// Meters that answered, or tools that are there.
    pub meters: Vec<Box<dyn Meter>>,
    /// What is not there, and why.
    pub absent: Vec<Absent>,
}

impl std::fmt::Debug for Found {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.meters.iter().map(|meter| meter.info().name.as_str()).collect();
        formatter.debug_struct("Found").field("meters", &names).field("absent", &self.absent).finish()
    }
}

/// Looks for meters. Cost: some small files a meter; no tool is run.
pub fn discover(places: &Places) -> Found {
    let mut absent = Vec::new();
    let mut meters: Vec<Box<dyn Meter>> = Vec::new();
    for meter in rapl::find(&places.root, &mut absent) {
        meters.push(Box::new(meter));
    }
    for meter in hwmon::find(&places.root, &mut absent) {
        meters.push(Box::new(meter));
    }
    for meter in battery::find(&places.root, &mut absent) {
        meters.push(Box::new(meter));
    }
    for tool in TOOLS {
        match tool_meter(&tool, places) {
            Ok(meter) => meters.push(Box::new(meter)),
            Err(why) => absent.push(Absent::new(tool.kind, tool.program, why)),
        }
    }
    match &places.command {
        Some(command) => meters.push(Box::new(user_command(command, places.command_timeout_us))),
        None => absent.push(Absent::new(
            MeterKind::Command,
            "a command that prints watts or joules",
            "none was given",
        )),
    }
    Found { meters, absent }
}

/// A tool that measures a device.
struct Tool {
    kind: MeterKind,
    program: &'static str,
    arguments: &'static [&'static str],
    parse: Parse,
    covers: Covers,
    /// One of them is there where the device is.
    devices: &'static [&'static str],
    step_uw: u64,
    step_source: &'static str,
}

const TOOLS: [Tool; 2] = [
    Tool {
        kind: MeterKind::Nvidia,
        program: "nvidia-smi",
        arguments: &tools::NVIDIA_ARGUMENTS,
        parse: tools::nvidia,
        covers: Covers::Accelerator,
        devices: &["dev/nvidiactl", "proc/driver/nvidia/version"],
        step_uw: 10_000,
        step_source: "two decimals of a watt, as the tool prints them",
    },
    Tool {
        kind: MeterKind::Ipmi,
        program: "ipmitool",
        arguments: &tools::IPMI_ARGUMENTS,
        parse: tools::ipmi,
        covers: Covers::System,
        devices: &["dev/ipmi0", "dev/ipmi/0", "dev/ipmidev/0"],
        step_uw: 1_000_000,
        step_source: "whole watts, as the protocol has them",
    },
];

fn tool_meter(tool: &Tool, places: &Places) -> Result<CommandMeter, String> {
    if !tool.devices.iter().any(|device| places.root.join(device).exists()) {
        return Err(format!("no such device (/{})", tool.devices.join(", /")));
    }
    let Some(programs) = &places.programs else {
        return Err("the device is there; tools are not run here".into());
    };
    let Some(program) = find_program(programs, tool.program) else {
        return Err(format!("the device is there, the program {} is not: install it", tool.program));
    };
    let info = MeterInfo {
        name: tool.program.to_owned(),
        kind: tool.kind,
        covers: tool.covers,
        step: tool.step_uw,
        step_source: tool.step_source,
        refresh_us: TOOL_REFRESH_US,
        wraps_at_uj: None,
        power_max_uw: TOOL_POWER_MAX_UW,
    };
    let arguments = tool.arguments.iter().map(OsString::from).collect();
    let line = CommandLine { program: program.into(), arguments, timeout_us: TOOL_TIMEOUT_US };
    Ok(CommandMeter::new(info, line, tool.parse))
}

/// The first program of that name in the folders of `programs`.
fn find_program(programs: &OsStr, name: &str) -> Option<PathBuf> {
    std::env::split_paths(programs)
        .map(|folder: PathBuf| folder.join(name))
        .find(|path: &PathBuf| is_file(path))
}

fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file())
}

/// The user's command, which is taken to measure the whole machine: whoever gives it knows what it measures.
fn user_command(command: &str, timeout_us: u64) -> CommandMeter {
    let info = MeterInfo {
        name: "command".to_owned(),
        kind: MeterKind::Command,
        covers: Covers::System,
        step: 1,
        step_source: "not known: what the command prints is taken as it is",
        refresh_us: timeout_us / 5,
        wraps_at_uj: None,
        power_max_uw: TOOL_POWER_MAX_UW,
    };
    let line = CommandLine {
        program: "sh".into(),
        arguments: ["-c", command].map(OsString::from).to_vec(),
        timeout_us,
    };
    CommandMeter::new(info, line, tools::watts_or_joules)
}

#[cfg(test)]
#[path = "discover_test.rs"]
mod discover_test;
