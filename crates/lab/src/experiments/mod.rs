//! The experiments, one a file. To add one: its file here, its `mod`, its place in [`ALL`].

mod emulator_bandwidth;
mod emulator_delay;
mod endurance;
mod fawn_ds_files;
mod fawn_ds_maintenance;
mod fawn_ds_put_ratio;
mod fawn_ds_single_store;
mod fawn_ds_split;
mod fawn_ds_vs_structures;
mod mutex_messages;
mod near_full;
mod persist_atomic_size;
mod persist_distance;
mod persist_latency;
mod persist_tracking_size;
mod persistency;
mod recovery_endurance;
mod redo_log;
mod scan_variants;
mod storage_cost;

use crate::experiment::Experiment;

/// Every experiment, in the order in which `all` runs them.
pub const ALL: &[&Experiment] = &[
    &fawn_ds_single_store::EXPERIMENT,
    &fawn_ds_put_ratio::EXPERIMENT,
    &fawn_ds_files::EXPERIMENT,
    &fawn_ds_maintenance::EXPERIMENT,
    &fawn_ds_split::EXPERIMENT,
    &fawn_ds_vs_structures::EXPERIMENT,
    &persistency::EXPERIMENT,
    &persist_latency::EXPERIMENT,
    &persist_atomic_size::EXPERIMENT,
    &persist_tracking_size::EXPERIMENT,
    &persist_distance::EXPERIMENT,
    &redo_log::EXPERIMENT,
    &storage_cost::EXPERIMENT,
    &near_full::EXPERIMENT,
    &mutex_messages::EXPERIMENT,
    &emulator_delay::EXPERIMENT,
    &emulator_bandwidth::EXPERIMENT,
    &endurance::EXPERIMENT,
    &recovery_endurance::EXPERIMENT,
    &scan_variants::EXPERIMENT,
];

/// The experiment of this name.
pub fn find(name: &str) -> Option<&'static Experiment> {
    ALL.iter().copied().find(|experiment| experiment.name == name)
}

#[cfg(test)]
#[path = "experiments_test.rs"]
mod experiments_test;
