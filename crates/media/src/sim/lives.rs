//! A store's lives on one medium: work, lose power, recover, perhaps lose power again.

use super::device::SimDevice;
use super::medium::SimMedium;
use crate::device::{DeviceError, DeviceErrorKind};
use tierstone_base::ErrorKind;
use tierstone_crash::Violation;

impl SimMedium {
    /// Runs `life(device, n)` again and again: life 0 does the work on an empty medium; each life
    /// after it starts on what a loss of power left, recovers and checks. A life during which
    /// power is lost is followed by another; one that ends with power on too, until
    /// [`super::SimSettings::end_cuts`] lives have ended so, each followed by a cut. The number of
    /// lives is therefore at most `cut_limit + end_cuts + 1`.
    ///
    /// Inside a life, pass errors on with `?`: a violation made from an error is not counted when
    /// power was lost in that life. A broken promise ([`Violation::new`]) always counts.
    ///
    /// # Errors
    /// The first violation, with the newest lines of the trace.
    pub fn run_lives(
        &self,
        mut life: impl FnMut(SimDevice, u32) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let mut device = self.device();
        let (mut number, mut ended_well) = (0, 0);
        loop {
            let result = life(device, number);
            let power_was_lost = self.power_is_off();
            match result {
                Err(violation) if !power_was_lost || violation.error_kind().is_none() => {
                    return Err(self.explained(&violation, number));
                }
                _ => {}
            }
            if !power_was_lost {
                if ended_well == self.state.borrow().settings.end_cuts {
                    return Ok(());
                }
                ended_well += 1;
            }
            device = self.power_on_after_loss();
            number += 1;
        }
    }

    fn explained(&self, violation: &Violation, life: u32) -> Violation {
        const LINES: usize = 24;
        let trace = self.trace();
        let lines: Vec<&str> = trace.lines().collect();
        let newest = lines[lines.len().saturating_sub(LINES)..].join("\n    ");
        Violation::new(format!("life {life}: {violation}\n    {newest}"))
    }
}

impl From<DeviceError> for Violation {
    fn from(error: DeviceError) -> Self {
        let kind = match error.kind {
            DeviceErrorKind::Full => ErrorKind::NoSpace,
            DeviceErrorKind::OutOfBounds => ErrorKind::InvalidInput,
            DeviceErrorKind::Failed | DeviceErrorKind::PowerLost => ErrorKind::DeviceFailed,
        };
        Violation::from_error(kind, error.detail)
    }
}
