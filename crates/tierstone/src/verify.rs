//! Verifying a store that serves, through either handle.

use crate::lane::Patience;
use crate::local::Store;
use crate::plain::pause_us;
use crate::shared::SharedStore;
use tierstone_base::Result;
use tierstone_engine::{Engine, Verification};

/// How long the shared handle waits before it asks again, in microseconds.
const ASK_AGAIN_US: u64 = 20_000;

impl Store {
    /// Verifies everything that is stored: checksums of all records, and whether records and index lead to
    /// each other, both ways. `progress` is called now and then with what was found so far; damage is told
    /// in what this gives, not as an error. Cost: every segment is read once.
    ///
    /// # Errors
    /// `Busy`: the store is being closed. `DeviceFailed`: it has failed.
    ///
    /// ```
    /// use tierstone::{DatabaseOptions, Store};
    ///
    /// # let directory = std::env::temp_dir().join(format!("tierstone-doc-verify-{}", std::process::id()));
    /// # let _ = std::fs::remove_dir_all(&directory);
    /// let mut store = Store::open(&DatabaseOptions::new(&directory))?;
    /// store.put(b"key", b"value")?;
    /// let found = store.verify(&mut |_| {})?;
    /// assert!(!found.is_damaged());
    /// assert_eq!(found.live_records, 1);
    /// # store.close()?;
    /// # std::fs::remove_dir_all(&directory).unwrap();
    /// # Ok::<(), tierstone::Error>(())
    /// ```
    pub fn verify(&mut self, progress: &mut dyn FnMut(&Verification)) -> Result<Verification> {
        for lane in &mut self.lanes {
            lane.check_health()?;
            lane.engine.begin_verification()?;
        }
        let mut patience = Patience::default();
        loop {
            for lane in &mut self.lanes {
                lane.check_health()?;
                if is_running(lane.engine.verification()) {
                    lane.wait(&mut patience)?;
                }
            }
            let reports = self.lanes.iter().map(|lane| lane.engine.verification());
            let found = sum(reports.map(|report| report.cloned()));
            progress(&found);
            if !found.is_running {
                return Ok(found);
            }
        }
    }
}

impl SharedStore {
    /// Begins to verify the store beside its traffic; [`SharedStore::verification`] tells how far it is.
    ///
    /// # Errors
    /// `Busy`: a verification is under way, or the store was closed. `DeviceFailed`: it has failed.
    pub fn begin_verification(&self) -> Result<()> {
        self.ask_verification(true).map(drop)
    }

    /// What the last verification has found so far; `None` before the first.
    ///
    /// # Errors
    /// `Busy`: the store was closed. `DeviceFailed`: it has failed.
    pub fn verification(&self) -> Result<Option<Verification>> {
        let reports = self.ask_verification(false)?;
        Ok(reports.iter().any(Option::is_some).then(|| sum(reports.into_iter())))
    }

    /// [`Store::verify`], while others use the store.
    ///
    /// # Errors
    /// As [`SharedStore::begin_verification`].
    pub fn verify(&self, progress: &mut dyn FnMut(&Verification)) -> Result<Verification> {
        self.begin_verification()?;
        loop {
            let found = self.verification()?.unwrap_or_default();
            progress(&found);
            if !found.is_running {
                return Ok(found);
            }
            pause_us(ASK_AGAIN_US);
        }
    }
}

fn is_running(report: Option<&Verification>) -> bool {
    report.is_some_and(|report| report.is_running)
}

fn sum(reports: impl Iterator<Item = Option<Verification>>) -> Verification {
    let mut sum = Verification::default();
    reports.flatten().for_each(|report| sum.add(&report));
    sum
}
