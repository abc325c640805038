//! The machine on which stores live.

use super::lives::Plan;
use tierstone_crash::Choices;
use tierstone_media::sim::{SimMachineSettings, SimSettings, WordMachine};

impl Plan {
    /// A device, and persistent memory whose words survive each by itself: no machine keeps less.
    pub fn machine(&self, choices: &Choices) -> WordMachine {
        let SimSettings { geometry, power_cut, cut_limit, end_cuts, trace_limit_lines, .. } = self.sim;
        let settings = SimMachineSettings {
            devices: vec![self.sim.clone()],
            power_cut,
            // Steps of the region are points too: the device's own get as many as without it.
            cut_limit: cut_limit + u32::from(self.redo_bytes.is_some()),
            end_cuts,
            trace_limit_lines,
            ..SimMachineSettings::exploring(self.redo_bytes.unwrap_or(0), geometry)
        };
        WordMachine::new(&settings, choices)
    }
}
