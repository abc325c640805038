//! A machine with persistent memory and devices that lose power together.
//!
//! A redo log in a region and the blocks that it protects on a device are right only together: this is where their
//! order is explored. One switch cuts the power of all; what survives is decided for the region's lines and words
//! and for each device's sectors, independently.
//!
//! Invariants:
//! 1. Between two lives every part loses power, or none does.
//! 2. With [`CutPoints::BeforeDurable`] the points are fences that make something durable, and completions of
//!    flushes and durable writes. Nothing else takes states away from what may survive, of any part; so the argument
//!    given there holds for all parts together, if code acknowledges only after fences and on completions.

use super::device::SimDevice;
use super::lives;
use super::medium::SimMedium;
use super::power::PowerSwitch;
use super::region::{SimPersistency, SimRegion};
use super::settings::{CutPoints, PowerCut, SimSettings};
use super::state::State;
use super::trace::Trace;
use crate::device::Geometry;
use tierstone_crash::{ByteMemory, Choices, SurvivorSettings, Violation, lines, words};

/// A machine whose region keeps the order of stores to one line (x86-64).
pub type LineMachine = SimMachine<{ lines::LINE_BYTES }>;
/// A machine whose region keeps the order of stores to one word only.
pub type WordMachine = SimMachine<{ words::WORD_BYTES }>;

/// The settings of a [`SimMachine`]. Plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimMachineSettings {
    /// Bytes of the region.
    pub region_bytes: u64,
    /// What makes a store to the region durable. Default: what hardware gives.
    pub persistency: SimPersistency,
    /// Which units of the region survive.
    pub region_survivors: SurvivorSettings,
    /// The devices. Where power is lost stands below: their own `power_cut`, `cut_limit`, `end_cuts` and
    /// `trace_limit_lines` are not used.
    pub devices: Vec<SimSettings>,
    /// Where power is lost.
    pub power_cut: PowerCut,
    /// Most cuts that `power_cut` causes in a run, of the whole machine; 2 tries crashes inside recovery. Default 2.
    pub cut_limit: u32,
    /// Cuts after a life that ended with power on, in [`SimMachine::run_lives`]. Default 1.
    pub end_cuts: u32,
    /// Lines of trace that are kept, the newest. Default 4,096.
    pub trace_limit_lines: usize,
}

impl SimMachineSettings {
    /// A region and one device, with everything open that exploring asks about: power lost before each step that
    /// makes something durable, inside recovery too, any order of completion, any survivors.
    pub fn exploring(region_bytes: u64, geometry: Geometry) -> Self {
        SimMachineSettings {
            region_bytes,
            persistency: SimPersistency::Hardware,
            region_survivors: SurvivorSettings::default(),
            devices: vec![SimSettings::exploring(geometry)],
            power_cut: PowerCut::Anywhere { points: CutPoints::BeforeDurable, one_in: 32 },
            cut_limit: 2,
            end_cuts: 1,
            trace_limit_lines: 4096,
        }
    }
}

/// What one life of a machine works on.
#[derive(Debug)]
pub struct MachineLife<const UNIT: usize> {
    /// The region.
    pub region: SimRegion<UNIT>,
    /// A handle on each device, in the order of the settings.
    pub devices: Vec<SimDevice>,
    /// Which life it is, ends of processes counted too; 0 is the first, on zeros.
    pub number: u32,
}

/// A simulated machine. Clones are handles on the same one, on any thread; one at a time does something.
#[derive(Clone, Debug)]
pub struct SimMachine<const UNIT: usize> {
    region: SimRegion<UNIT>,
    media: Vec<SimMedium>,
    power: PowerSwitch,
    trace: Trace,
    choices: Choices,
    region_survivors: SurvivorSettings,
    end_cuts: u32,
}

impl<const UNIT: usize> SimMachine<UNIT> {
    /// A machine with power on whose region and devices are all zeros.
    pub fn new(settings: &SimMachineSettings, choices: &Choices) -> Self {
        let power = PowerSwitch::new(settings.power_cut, settings.cut_limit, choices).shared();
        let trace = Trace::new(settings.trace_limit_lines);
        let medium = |device: &SimSettings| {
            SimMedium::of(State::within(device.clone(), choices.clone(), power.clone(), trace.clone()))
        };
        let memory = ByteMemory::new(settings.region_bytes as usize);
        SimMachine {
            region: SimRegion::of(memory, settings.persistency, power.clone(), trace.clone()),
            media: settings.devices.iter().map(medium).collect(),
            choices: choices.clone(),
            region_survivors: settings.region_survivors,
            end_cuts: settings.end_cuts,
            power,
            trace,
        }
    }

    /// A handle on the region, of this life.
    pub fn region(&self) -> SimRegion<UNIT> {
        self.region.handle()
    }

    /// The media, in the order of the settings: for faults, damage, what is there. Power and lives are the
    /// machine's.
    pub fn media(&self) -> &[SimMedium] {
        &self.media
    }

    /// The newest steps of all parts, in one order, as text; see [`SimMedium::trace`].
    pub fn trace(&self) -> String {
        self.trace.text()
    }

    /// A digest of all steps so far; zero when no trace is kept.
    pub fn trace_digest(&self) -> u64 {
        self.trace.digest()
    }

    /// Changes where power is lost, from now on.
    pub fn set_power_cut(&self, power_cut: PowerCut) {
        self.power.set_cut(power_cut);
    }

    /// The region is gone, and another one in its place, all zeros; the devices are as they were.
    pub fn replace_region(&self) {
        self.region.replace();
    }

    /// Switches the power off.
    pub fn cut_power(&self) {
        self.power.cut();
    }

    /// Whether power is off.
    pub fn power_is_off(&self) -> bool {
        self.power.is_off()
    }

    /// Switches the power on after a loss (cutting it first if it is on), with what the choices let survive.
    /// Handles from before are dead.
    pub fn power_on_after_loss(&self) -> MachineLife<UNIT> {
        self.power.cut();
        self.region.survive(&self.choices, &self.region_survivors);
        self.media.iter().for_each(|medium| medium.state.lock().survive());
        self.power.switch_on();
        self.next_life()
    }

    /// The process ends, the machine does not: the region keeps what was stored, durable or not, and what was written back is
    /// durable after the next fence of processor 0 ([`super::set_processor`]); of each device see
    /// [`SimMedium::kill_process`]. Handles from before are dead.
    ///
    /// # Panics
    /// When power is off.
    pub fn kill_process(&self) -> MachineLife<UNIT> {
        assert!(!self.power_is_off(), "a process cannot run without power");
        self.media.iter().for_each(|medium| medium.state.lock().kill_process());
        self.region.end_threads();
        self.power.plan_life();
        self.next_life()
    }

    /// Another machine, with power on, that holds what a loss of power at this moment could leave, as `choices` say;
    /// this one runs on. The copy never loses power by itself and has no faults. Cost: a copy of everything.
    pub fn crashed_copy(&self, choices: &Choices) -> Self {
        let power = PowerSwitch::new(PowerCut::Never, 0, choices).shared();
        let trace = Trace::new(0);
        let region =
            SimRegion::of(self.region.memory(), self.region.persistency(), power.clone(), trace.clone());
        region.survive(choices, &self.region_survivors);
        let copied = |medium: &SimMedium| {
            SimMedium::of(medium.state.lock().crashed_copy(choices, power.clone(), trace.clone()))
        };
        let media = self.media.iter().map(copied).collect();
        power.switch_on();
        SimMachine { region, media, power, trace, choices: choices.clone(), ..self.clone() }
    }

    /// Runs `life` again and again: life 0 does the work on zeros; each life after it starts on what a loss of
    /// power left, recovers and checks. What counts as a violation and how many lives there are says
    /// [`SimMedium::run_lives`].
    ///
    /// # Errors
    /// The first violation, with the newest steps of all parts.
    pub fn run_lives(
        &self,
        mut life: impl FnMut(MachineLife<UNIT>) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        lives::run(
            self.end_cuts,
            self.this_life(),
            || self.power_is_off(),
            || self.power_on_after_loss(),
            &self.trace,
            &mut |parts, _| life(parts),
        )
    }

    /// Handles on all parts, of this life.
    fn this_life(&self) -> MachineLife<UNIT> {
        let region = self.region.handle();
        let devices = self.media.iter().map(SimMedium::device).collect();
        MachineLife { number: region.life(), region, devices }
    }

    fn next_life(&self) -> MachineLife<UNIT> {
        self.region.next_life();
        self.this_life()
    }
}

#[cfg(test)]
#[path = "machine_test.rs"]
mod machine_test;
