//! A store's lives on one medium: work, lose power, recover, perhaps lose power again.

use super::device::SimDevice;
use super::medium::SimMedium;
use super::trace::Trace;
use crate::device::{DeviceError, DeviceErrorKind};
use tierstone_base::ErrorKind;
use tierstone_crash::Violation;

/// Lines of the trace that a violation shows.
const LINES_TOLD: usize = 24;

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
        let (end_cuts, trace) = {
            let state = self.state.lock();
            (state.settings.end_cuts, state.trace.clone())
        };
        run(end_cuts, self.device(), || self.power_is_off(), || self.power_on_after_loss(), &trace, &mut life)
    }
}

/// Runs `life` on `first`, and on what `power_on` gives, as [`SimMedium::run_lives`] says.
pub(super) fn run<T>(
    end_cuts: u32,
    first: T,
    power_is_off: impl Fn() -> bool,
    power_on: impl Fn() -> T,
    trace: &Trace,
    life: &mut impl FnMut(T, u32) -> Result<(), Violation>,
) -> Result<(), Violation> {
    let (mut parts, mut number, mut ended_well) = (first, 0, 0);
    loop {
        let result = life(parts, number);
        let power_was_lost = power_is_off();
        match result {
            Err(violation) if !power_was_lost || violation.error_kind().is_none() => {
                let newest = trace.newest(LINES_TOLD);
                return Err(Violation::new(format!("life {number}: {violation}\n    {newest}")));
            }
            _ => {}
        }
        if !power_was_lost {
            if ended_well == end_cuts {
                return Ok(());
            }
            ended_well += 1;
        }
        parts = power_on();
        number += 1;
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
