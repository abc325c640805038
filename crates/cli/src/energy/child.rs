//! A command that is watched: run with our input and output, waited for, and asked what it took before it is reaped.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use tierstone_base::{Error, Result};

/// What a command and all that it waited for took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Processor time, user and system, in seconds; steps of the kernel's clock tick (usually 10 ms).
    pub cpu_seconds: f64,
    /// Bytes read from devices; `None` where the kernel does not tell.
    pub bytes_read: Option<u64>,
    /// Bytes written to devices (into the page cache, as the kernel counts them).
    pub bytes_written: Option<u64>,
}

/// Starts `command`.
pub fn start(command: &[OsString]) -> std::io::Result<Child> {
    let (program, arguments) = command.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    Command::new(program).args(arguments).spawn()
}

/// Waits for the end of `child`. While it runs, an interrupt from the terminal is the child's alone, and requests to
/// end are handed on to it.
pub fn wait(mut child: Child) -> Result<(ExitStatus, Usage)> {
    let id = child.id();
    let process = Pid::from_raw(id as i32);
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let handle = signals.handle();
    let forwarder = std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            let on = if signal == SIGTERM { Signal::TERM } else { Signal::HUP };
            if let (Some(process), true) = (process, signal != SIGINT) {
                // It may have ended in this moment.
                let _ = kill_process(process, on);
            }
        }
    })?;
    let mut usage = Usage::default();
    if let Some(process) = process {
        loop {
            match waitid(WaitId::Pid(process), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Error::from(std::io::Error::from(error))),
                Ok(_) => break,
            }
        }
        usage = usage_of(id);
    }
    let status = child.wait()?;
    handle.close();
    // It has nothing to tell.
    let _ = forwarder.join();
    Ok((status, usage))
}

/// The exit code as a shell gives it.
pub fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(1),
        (None, Some(signal)) => u8::try_from(128 + signal).unwrap_or(1),
        (None, None) => 1,
    }
}

/// What the process of that number took, which has ended and is not reaped yet.
fn usage_of(id: u32) -> Usage {
    let ticks = std::fs::read_to_string(format!("/proc/{id}/stat")).ok().and_then(|text| ticks(&text));
    let io = std::fs::read_to_string(format!("/proc/{id}/io")).unwrap_or_default();
    let field = |name: &str| {
        io.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse::<u64>().ok())
    };
    Usage {
        cpu_seconds: ticks.unwrap_or(0) as f64 / rustix::param::clock_ticks_per_second().max(1) as f64,
        bytes_read: field("read_bytes"),
        bytes_written: field("write_bytes"),
    }
}

/// User and system time of a process and of those that it waited for, in `/proc/PID/stat`.
fn ticks(text: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().skip(11).take(4).collect();
    let numbers: Option<Vec<u64>> = fields.iter().map(|field| field.parse().ok()).collect();
    numbers.filter(|numbers| numbers.len() == 4).map(|numbers| numbers.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_children_that_were_waited_for_counts() {
        let line = "7 (a) b (c) Z 1 2 3 4 5 6 7 8 9 10 31 11 5 3 20 0 1 0 9";
        assert_eq!(ticks(line), Some(50));
        assert_eq!(ticks("7 (short) S 1 2"), None);
    }

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        for (raw, code) in [(0, 0), (7 << 8, 7), (9, 137)] {
            assert_eq!(exit_code(ExitStatus::from_raw(raw)), code);
        }
    }
}
