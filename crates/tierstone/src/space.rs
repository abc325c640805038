//! Watching for a device that has no space left for what the store has to write.

use tierstone_base::{Error, ErrorKind};
use tierstone_media::{DeviceErrorKind, IoCompletion, IoKind};

/// How long writes may wait for space before their callers are told, in microseconds. The engine
/// tries again meanwhile, and goes on doing so.
const PATIENCE_US: u64 = 1_000_000;

/// Since when the device refuses writes for want of space.
#[derive(Debug, Default)]
pub(crate) struct SpaceWatch {
    full_since_us: Option<u64>,
}

impl SpaceWatch {
    /// Looks at completions before the engine takes them.
    pub fn note(&mut self, completions: &[IoCompletion], now_us: u64) {
        for completion in completions.iter().filter(|completion| completion.kind != IoKind::Read) {
            match &completion.result {
                Err(error) if error.kind == DeviceErrorKind::Full => {
                    self.full_since_us.get_or_insert(now_us);
                }
                _ => self.full_since_us = None,
            }
        }
    }

    /// What to tell those who wait for a write since `began_us`, when they have waited long enough.
    pub fn verdict(&self, began_us: u64, now_us: u64) -> Option<Error> {
        let since_us = self.full_since_us?.max(began_us);
        (now_us.saturating_sub(since_us) > PATIENCE_US).then(|| {
            let message = "the device has no space left for the log; what was written is kept in memory and \
                           becomes durable when there is space";
            Error::new(ErrorKind::NoSpace, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierstone_media::DeviceError;

    fn write(result: Result<(), DeviceError>) -> IoCompletion {
        IoCompletion { token: 1, kind: IoKind::WriteDurable, offset: 0, buffer: None, result }
    }

    #[test]
    fn callers_are_told_after_a_second_without_space_and_not_after_space_came() {
        let full = || write(Err(DeviceError::new(DeviceErrorKind::Full, "full")));
        let mut watch = SpaceWatch::default();
        watch.note(&[full()], 5);
        watch.note(&[full()], 900_000);
        assert!(watch.verdict(0, 1_000_005).is_none());
        assert!(watch.verdict(6, 1_000_006).is_none());
        assert_eq!(watch.verdict(0, 1_000_006).unwrap().kind(), ErrorKind::NoSpace);
        watch.note(&[write(Ok(()))], 1_000_007);
        assert!(watch.verdict(0, 9_000_000).is_none());
    }
}
