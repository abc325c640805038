//! Whether the disks of members that sleep really stop, and what is said of it.

use std::path::PathBuf;
use tierstone_volume::disks::{DiskLog, DiskSpindle};
use tierstone_volume::{KeepTurning, Spindle};

/// What stops the disks of members that sleep. Where one of them cannot be stopped, or may not be, all keep turning:
/// the policy would count starts that never are.
#[derive(Clone, Debug)]
pub struct DiskStopping {
    how: Result<DiskLog, String>,
}

impl DiskStopping {
    /// Looks at the disks of the members, in their order, if they shall be stopped at all. Changes nothing and starts
    /// no disk.
    pub fn of(members: &[PathBuf], is_wanted: bool) -> (Box<dyn Spindle>, DiskStopping) {
        if !is_wanted {
            return (Box::new(KeepTurning), DiskStopping { how: Err("stop_disks is off".to_owned()) });
        }
        match DiskSpindle::open(members) {
            Ok(spindle) => {
                let how = Ok(spindle.log());
                (Box::new(spindle), DiskStopping { how })
            }
            Err(refused) => (Box::new(KeepTurning), DiskStopping { how: Err(refused.message().to_owned()) }),
        }
    }

    /// What happens to the disks, in words, or why none stops.
    pub fn text(&self) -> String {
        let log = match &self.how {
            Ok(log) => log.disks(),
            Err(refused) => return format!("no disk is stopped, members that sleep keep turning: {refused}"),
        };
        let (stops, failed): (u64, u64) =
            log.iter().fold((0, 0), |(stops, failed), disk| (stops + disk.stopped, failed + disk.failed));
        let stand = log.iter().filter(|disk| disk.stands).count();
        let failure = log.iter().rev().find_map(|disk| disk.last_failure.as_deref());
        let failure = failure.map_or_else(String::new, |text| format!(", the last: {text}"));
        format!(
            "disks of members that sleep are stopped: {stand} of {} stand, {stops} stops, {failed} failed{failure}",
            log.len()
        )
    }
}
