//! An open store of one shard with what writes its superblock: to be closed as a server closes it.

use crate::common::Store;
use std::sync::Arc;
use tierstone_base::Result;
use tierstone_engine::Engine;
use tierstone_engine::harness::Harness;
use tierstone_logstore::{Inventory, OpenReport, OpenSettings, SuperblockWriter, open};
use tierstone_media::Wait;
use tierstone_media::sim::{SimDevice, SimMedium};

pub struct Opened {
    pub store: Store,
    pub superblock: SuperblockWriter,
    pub inventory: Arc<Inventory>,
    pub report: OpenReport,
    pub medium: SimMedium,
}

impl Opened {
    /// The store on `medium`, by `device`, which is one of its.
    pub fn on(medium: &SimMedium, mut device: SimDevice, settings: &OpenSettings) -> Result<Opened> {
        let mut opened = open(&mut device, settings)?;
        let (shard, _) = opened.plans.pop().unwrap().build(&mut device)?;
        Ok(Opened {
            store: Harness::new(shard, device, opened.hasher),
            superblock: opened.superblock,
            inventory: opened.inventory,
            report: opened.report,
            medium: medium.clone(),
        })
    }

    pub fn kill(self) {
        drop(self.store);
        self.medium.kill_process();
    }

    pub fn close(mut self) {
        self.store.engine.shut();
        while !self.store.engine.is_shut() {
            self.store.turn(Wait::One);
        }
        drop(self.store);
        self.superblock.close(&mut self.medium.device(), Some(&self.inventory)).unwrap();
    }
}
