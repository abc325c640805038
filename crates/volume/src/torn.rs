//! Rows of parity groups that are half written: a member that its group cannot spare has refused its part.
//!
//! Data and parity of such a row do not fit each other, so what is computed from them for a lost member would be wrong.
//! The record of the row is in the journal still, whole; here it is kept in memory too.
//!
//! Invariants:
//! 1. While a row is torn no round begins: nothing is computed from the row, and no record is written that says it were
//!    in place. What a member without its own bytes is asked for there is an error, not a guess.
//! 2. Before both, the record is written in place again. All torn rows are of the round that was journalled last.
//!
//! A crash leaves the record as the newest in the journal, and opening writes it in place again.

use crate::core::Core;
use crate::journal::Record;
use tierstone_media::{BlockDevice, DeviceError, DeviceErrorKind};

impl<D: BlockDevice> Core<D> {
    /// Keeps the record of a row that may be half written.
    pub(crate) fn keep_torn(&mut self, record: Record) {
        self.torn.push(record);
    }

    /// Whether a row is half written.
    pub(crate) fn is_torn(&self, group: u32, row: u64) -> bool {
        let covers = |record: &Record| (record.row..record.row + record.rows.max(1)).contains(&row);
        self.torn.iter().any(|record| record.group == group && covers(record))
    }

    /// Writes all torn rows in place again. Cost when there are none: nothing.
    ///
    /// # Errors
    /// What a member said that its group cannot do without; the rows that are left stay torn.
    pub(crate) fn mend_torn(&mut self) -> Result<(), DeviceError> {
        if self.mutations.is_on("torn rows are mended before anything relies on them") {
            self.torn.clear();
        }
        while let Some(record) = self.torn.last().cloned() {
            self.place_again(&record)?;
            self.torn.pop();
        }
        Ok(())
    }

    /// Writes a journalled row in place again; members that fail are named so, if their groups can do without.
    ///
    /// # Errors
    /// What a member said that its group cannot do without.
    pub(crate) fn place_again(&mut self, record: &Record) -> Result<(), DeviceError> {
        if record.rows > 0 {
            self.zero_rows(record)?;
        } else {
            let writes = self.in_place(record);
            self.all_or_failed(writes)?;
        }
        let last = record.row + record.rows.max(1) - 1;
        match self.alive(record.group, last).len() + 1 < self.layout.width as usize {
            true => {
                let detail = format!("volume: two members of group {} failed", record.group);
                Err(DeviceError::new(DeviceErrorKind::Failed, detail))
            }
            false => Ok(()),
        }
    }
}
