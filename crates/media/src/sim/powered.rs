//! Several simulated devices behind one power switch.

use super::{SimDevice, SimMedium};
use crate::device::{BlockDevice, Wait};
use crate::{DurableWriteScope, Geometry, Guarantee, IoCompletion, IoRequest};

/// A handle on one of several devices; when power is lost on any of them, it is on all.
#[derive(Debug)]
pub struct Powered {
    /// The device.
    pub device: SimDevice,
    all: Vec<SimMedium>,
}

impl Powered {
    /// A handle on device `index` of `all`.
    ///
    /// # Panics
    /// When there is no such device.
    pub fn new(all: &[SimMedium], index: usize) -> Powered {
        Powered { device: all[index].device(), all: all.to_vec() }
    }

    fn share_fate(&self) {
        if self.all.iter().any(SimMedium::power_is_off) {
            self.all.iter().for_each(SimMedium::cut_power);
        }
    }
}

impl BlockDevice for Powered {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn guarantee(&self) -> Guarantee {
        self.device.guarantee()
    }

    fn durable_write_scope(&self) -> DurableWriteScope {
        self.device.durable_write_scope()
    }

    fn discards_to_zeros(&self) -> bool {
        self.device.discards_to_zeros()
    }

    fn submit(&mut self, requests: &mut Vec<IoRequest>) {
        self.share_fate();
        self.device.submit(requests);
        self.share_fate();
    }

    fn complete(&mut self, wait: Wait, completions: &mut Vec<IoCompletion>) -> usize {
        self.share_fate();
        let count = self.device.complete(wait, completions);
        self.share_fate();
        count
    }

    fn in_flight(&self) -> usize {
        self.device.in_flight()
    }
}
