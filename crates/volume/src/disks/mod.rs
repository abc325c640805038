//! Real disks that stop: the [`Spindle`] of Linux disks.
//!
//! The disk under a block special file, or under the file system that holds a file, is looked up in `/sys`;
//! then it is asked for its power mode by an ATA command, which starts nothing. What is no turning ATA disk,
//! is used by others too, or may not be commanded is refused in words: nothing here pretends. A stop is STANDBY
//! IMMEDIATE, which empties the disk's cache first, and is checked by asking for the mode again. A start
//! needs no command: a disk in standby turns again for the next request, which waits for it.
//!
//! Invariants:
//! 1. No command is sent to a device that was not judged fit just before by [`probe`]'s rules, nor to a node
//!    that is not the device that was judged.
//! 2. A stop that did not leave the disk in standby is counted as failed, with the reason.

mod ata;
mod find;
mod pass;

pub use ata::PowerMode;
pub use find::{Refusal, RefusalKind};

use crate::sleep::Spindle;
use ata::Command;
use find::{Found, Machine};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tierstone_base::{Error, ErrorKind, Result};

/// What would be possible with the disk under a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskReport {
    /// What was asked about.
    pub path: PathBuf,
    /// The whole disk's name, like `sda`, where one was found.
    pub disk: Option<String>,
    /// What it calls itself.
    pub model: Option<String>,
    /// Its power mode now, or why it cannot be stopped.
    pub power: std::result::Result<PowerMode, Refusal>,
}

impl fmt::Display for DiskReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.power {
            Ok(mode) => {
                let disk = self.disk.as_deref().unwrap_or("a disk");
                write!(formatter, "{path}: {disk} can be stopped; it is {mode} now")
            }
            Err(refusal) => write!(formatter, "{path}: cannot be stopped: {refusal}"),
        }
    }
}

/// Looks at the disk under `path`, a block special file or a file on a file system, and asks it for its power
/// mode. Changes nothing and starts no disk.
pub fn probe(path: &Path) -> DiskReport {
    probe_on(&Machine::this(), path)
}

fn probe_on(machine: &Machine, path: &Path) -> DiskReport {
    match machine.find(path) {
        Ok(found) => DiskReport {
            path: path.to_owned(),
            disk: Some(found.name.clone()),
            model: found.model.clone(),
            power: power_of(machine, &found),
        },
        Err((disk, refusal)) => DiskReport { path: path.to_owned(), disk, model: None, power: Err(refusal) },
    }
}

fn power_of(machine: &Machine, found: &Found) -> std::result::Result<PowerMode, Refusal> {
    let answer = machine.command(found, Command::CheckPowerMode)?;
    Ok(PowerMode::of(answer.count))
}

/// How the disks of a volume have stopped; a handle that outlives the volume's.
#[derive(Clone, Debug, Default)]
pub struct DiskLog {
    shared: Arc<Mutex<Vec<DiskStops>>>,
}

/// Stops and starts of one disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskStops {
    /// The disk's name.
    pub disk: String,
    /// Stops after which it said that it stands.
    pub stopped: u64,
    /// Stops that failed: it keeps turning.
    pub failed: u64,
    /// Why the last one failed.
    pub last_failure: Option<String>,
    /// Whether it stood after the last stop and was not asked to start since.
    pub stands: bool,
}

impl DiskLog {
    fn lock(&self) -> MutexGuard<'_, Vec<DiskStops>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of each member.
    pub fn disks(&self) -> Vec<DiskStops> {
        self.lock().clone()
    }
}

/// Stops and starts the disks of a volume's members. A stop waits for the disk, a second or two, and the
/// volume's requests with it.
pub struct DiskSpindle {
    machine: Machine,
    disks: Vec<Found>,
    log: DiskLog,
}

impl fmt::Debug for DiskSpindle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("DiskSpindle").field("log", &self.log).finish_non_exhaustive()
    }
}

impl DiskSpindle {
    /// For the members of a volume in their order, each given by its block special file or a file on its
    /// disk.
    ///
    /// # Errors
    /// Invalid input that names every path that cannot be stopped and why, or two on one disk.
    pub fn open(paths: &[PathBuf]) -> Result<DiskSpindle> {
        Self::open_on(Machine::this(), paths)
    }

    fn open_on(machine: Machine, paths: &[PathBuf]) -> Result<DiskSpindle> {
        let mut disks: Vec<Found> = Vec::new();
        let mut faults = Vec::new();
        for path in paths {
            let found = machine.find(path).map_err(|(_, refusal)| refusal);
            match found.and_then(|found| power_of(&machine, &found).map(|_| found)) {
                Ok(found) => match disks.iter().position(|other| other.name == found.name) {
                    Some(at) => faults.push(format!(
                        "{} lies on {}, as {} does: they would stop together",
                        path.display(),
                        found.name,
                        paths[at].display()
                    )),
                    None => disks.push(found),
                },
                Err(refusal) => faults.push(format!("{}: {refusal}", path.display())),
            }
        }
        if !faults.is_empty() {
            return Err(Error::new(ErrorKind::InvalidInput, faults.join("; ")));
        }
        let stops = disks.iter().map(|disk| DiskStops { disk: disk.name.clone(), ..DiskStops::default() });
        let log = DiskLog { shared: Arc::new(Mutex::new(stops.collect())) };
        Ok(DiskSpindle { machine, disks, log })
    }

    /// What happens to the disks from now on.
    pub fn log(&self) -> DiskLog {
        self.log.clone()
    }

    fn try_stop(&self, found: &Found) -> std::result::Result<(), Refusal> {
        self.machine.command(found, Command::StandbyImmediate)?;
        match power_of(&self.machine, found)? {
            PowerMode::Standby => Ok(()),
            other => Err(Refusal::new(
                RefusalKind::Failed,
                format!("{} is {other} after it was told to stand", found.name),
            )),
        }
    }
}

impl Spindle for DiskSpindle {
    fn stop(&mut self, index: usize) {
        let Some(found) = self.disks.get(index) else { return };
        let result = self.try_stop(found);
        if let Some(stops) = self.log.lock().get_mut(index) {
            match result {
                Ok(()) => (stops.stopped, stops.stands) = (stops.stopped + 1, true),
                Err(refusal) => {
                    (stops.failed, stops.last_failure) = (stops.failed + 1, Some(refusal.to_string()));
                }
            }
        }
    }

    fn start(&mut self, index: usize) {
        if let Some(stops) = self.log.lock().get_mut(index) {
            stops.stands = false;
        }
    }
}

#[cfg(test)]
#[path = "disks_test.rs"]
mod disks_test;
