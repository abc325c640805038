//! Meters that are commands: started when due, read without waiting, killed after their time.
//!
//! The command runs in a process group of its own, so that what it started dies with it. Its output is read up to
//! [`OUTPUT_BYTES_MAX`]; its errors go nowhere.

use crate::meter::{Fault, FaultKind, Meter, MeterInfo, Reading};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// More output than this is rubbish.
pub const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// What a command said, as a reading.
pub type Parse = fn(&str) -> Result<Reading, Fault>;

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// It is killed after so many microseconds.
    pub timeout_us: u64,
}

#[derive(Debug)]
enum State {
    Idle,
    Running {
        child: Child,
        since_us: u64,
        output: Vec<u8>,
    },
    /// It was killed, and its end has not been seen yet.
    Dying(Child),
}

/// A meter that runs a command for each reading.
#[derive(Debug)]
pub struct CommandMeter {
    info: MeterInfo,
    line: CommandLine,
    parse: Parse,
    state: State,
}

impl CommandMeter {
    /// A meter that runs `line` and reads its output with `parse`. Nothing is run yet.
    pub fn new(info: MeterInfo, line: CommandLine, parse: Parse) -> CommandMeter {
        CommandMeter { info, line, parse, state: State::Idle }
    }

    fn fault(&self, kind: FaultKind, what: &str) -> Fault {
        Fault::new(kind, format!("{}: {what}", self.line.program.to_string_lossy()))
    }

    fn start(&mut self, now_us: u64) -> Result<(), Fault> {
        let mut command = Command::new(&self.line.program);
        command.args(&self.line.arguments).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| self.fault(FaultKind::Gone, &error.to_string()))?;
        let without_waiting = child.stdout.as_ref().map_or(Ok(()), |pipe| {
            fcntl_getfl(pipe).and_then(|flags| fcntl_setfl(pipe, flags | OFlags::NONBLOCK))
        });
        if let Err(error) = without_waiting {
            self.end(child);
            return Err(
                self.fault(FaultKind::Gone, &format!("its output cannot be read without waiting: {error}"))
            );
        }
        self.state = State::Running { child, since_us: now_us, output: Vec::new() };
        Ok(())
    }

    /// Kills the command and all that it started.
    fn end(&mut self, mut child: Child) {
        if let Some(group) = Pid::from_raw(child.id() as i32) {
            // It may have ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
        // Nothing waits here: a process in the kernel's hands may take its time to die.
        self.state = if matches!(child.try_wait(), Ok(Some(_))) { State::Idle } else { State::Dying(child) };
    }

    fn go_on(
        &mut self,
        now_us: u64,
        mut child: Child,
        since_us: u64,
        mut output: Vec<u8>,
    ) -> Result<Option<Reading>, Fault> {
        // Before the last look at the output, so that nothing is missed.
        let ended = child.try_wait().ok().flatten();
        let is_closed = take(&mut child, &mut output);
        if output.len() > OUTPUT_BYTES_MAX {
            self.end(child);
            return Err(self.fault(FaultKind::Rubbish, "its output does not end"));
        }
        match ended {
            Some(status) if status.success() => {
                self.state = State::Idle;
                (self.parse)(&String::from_utf8_lossy(&output))
                    .map(Some)
                    .map_err(|fault| self.fault(fault.kind, &fault.why))
            }
            Some(status) => {
                self.state = State::Idle;
                Err(self.fault(FaultKind::Rubbish, &format!("it failed: {status}")))
            }
            None if now_us.saturating_sub(since_us) >= self.line.timeout_us => {
                self.end(child);
                let seconds = self.line.timeout_us as f64 / 1e6;
                let what = if is_closed { "did not end" } else { "did not answer" };
                Err(self.fault(FaultKind::TimedOut, &format!("it {what} within {seconds} s and was killed")))
            }
            None => {
                self.state = State::Running { child, since_us, output };
                Ok(None)
            }
        }
    }
}

/// Takes what has come; whether the output has come to its end.
fn take(child: &mut Child, output: &mut Vec<u8>) -> bool {
    let Some(pipe) = child.stdout.as_mut() else { return true };
    let mut bytes = [0; 4096];
    while output.len() <= OUTPUT_BYTES_MAX {
        match pipe.read(&mut bytes) {
            Ok(0) => return true,
            Ok(count) => output.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
    false
}

impl Meter for CommandMeter {
    fn info(&self) -> &MeterInfo {
        &self.info
    }

    fn read(&mut self, now_us: u64) -> Result<Option<Reading>, Fault> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => self.start(now_us).map(|()| None),
            State::Running { child, since_us, output } => self.go_on(now_us, child, since_us, output),
            State::Dying(mut child) => match child.try_wait() {
                Ok(None) => {
                    self.state = State::Dying(child);
                    Err(self.fault(FaultKind::TimedOut, "it was killed and is not dead yet"))
                }
                _ => self.start(now_us).map(|()| None),
            },
        }
    }
}

impl Drop for CommandMeter {
    fn drop(&mut self) {
        if let State::Running { child, .. } = std::mem::replace(&mut self.state, State::Idle) {
            self.end(child);
        }
    }
}

#[cfg(test)]
#[path = "command_test.rs"]
mod command_test;
