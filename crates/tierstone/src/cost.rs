//! What calls of the local handle cost.

use crate::local::Store;
use rustix::time::{ClockId, clock_gettime};
use tierstone_engine::{Commit, Cost, Engine};

/// What calls of a [`Store`] took, and what they promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallCost {
    /// The weakest promise among the writes that were acknowledged; `None` when none was: nothing was written,
    /// or what was written is still to be waited for ([`Store::put_nowait`]).
    pub durability: Option<Commit>,
    /// Everything that the devices of all shards were asked to do meanwhile, what the calls' turns did in the
    /// background included, and the processor time of this thread, the kernel's part included.
    pub cost: Cost,
}

impl Store {
    /// Makes the calls in `call`, and says what they cost together. What went on in the background belongs to
    /// it, since nothing runs between calls. Cost: the counters of all shards and the thread's clock, twice: a
    /// few microseconds.
    ///
    /// ```
    /// use tierstone::{Commit, DatabaseOptions, Store};
    ///
    /// # let directory = std::env::temp_dir().join(format!("tierstone-doc-cost-{}", std::process::id()));
    /// let mut store = Store::open(&DatabaseOptions::new(&directory))?;
    /// let (answer, cost) = store.with_cost(|store| store.put(b"key", b"value"));
    /// answer?;
    /// assert_eq!(cost.durability, Some(Commit::Durable));
    /// assert!(cost.cost.bytes_written > 0 && cost.cost.cpu_ns > 0);
    /// # drop(store);
    /// # std::fs::remove_dir_all(&directory).unwrap();
    /// # Ok::<(), tierstone::Error>(())
    /// ```
    pub fn with_cost<R>(&mut self, call: impl FnOnce(&mut Store) -> R) -> (R, CallCost) {
        self.lanes.iter_mut().for_each(|lane| lane.given = None);
        let before = self.spent();
        let answer = call(self);
        let cost = self.spent() - before;
        let durability = self.lanes.iter().filter_map(|lane| lane.given).max();
        (answer, CallCost { durability, cost })
    }

    /// What the devices of all shards were asked so far, and this thread's time.
    fn spent(&self) -> Cost {
        let mut spent = Cost::default();
        self.lanes.iter().for_each(|lane| spent += lane.engine.statistics().device);
        let thread = clock_gettime(ClockId::ThreadCPUTime);
        Cost { cpu_ns: thread.tv_sec as u64 * 1_000_000_000 + thread.tv_nsec as u64, ..spent }
    }
}

#[cfg(test)]
#[path = "cost_test.rs"]
mod cost_test;
