//! The joules of a process that runs for long: the machine's meters since the start, and the model beside them.
//!
//! Without a meter there is no thread and nothing is read; the model works on counters that are kept anyway, when
//! somebody asks.

use crate::discover::{Places, discover};
use crate::driver::Recorder;
use crate::meter::MeterInfo;
use crate::model::{EnergyModel, Modelled, Work};
use crate::sampler::{Sampler, SamplerSettings, Standing};
use crate::total::choose;
use tierstone_base::{Clock, Result};

/// Counters of the kernel's wrap within minutes at the soonest.
const INTERVAL_US: u64 = 1_000_000;
/// The part of time in which a meter's command may run beside the process, in millionths.
const COMMAND_OVERHEAD_PPM: u64 = 20_000;

/// The mean power of all of `meters` together, in watts: each over the time that it covers of the `whole_us`
/// microseconds, so that gaps count for nothing. `None` without a meter, and where one covers less than half of the
/// time: what it says would stand for what it never saw.
pub fn mean_watts<'a>(meters: impl IntoIterator<Item = &'a Standing>, whole_us: u64) -> Option<f64> {
    let of = |standing: &Standing| {
        let covers = standing.covered_us > 0 && standing.covered_us >= whole_us / 2;
        covers.then(|| standing.energy.watts_over(standing.covered_us))
    };
    meters.into_iter().map(of).reduce(|sum, watts| Some(sum? + watts?)).flatten()
}

/// Meters and model of a running process.
#[derive(Debug)]
pub struct Watch {
    /// Only of meters that make the total; `None` without any.
    recorder: Option<Recorder>,
    covers: String,
    model: EnergyModel,
    processors: usize,
}

impl Watch {
    /// Looks for meters and starts to read those that make the machine's total. Tools that need a process for each
    /// answer are left to `places`; they run a fiftieth of the time at most, polled by the thread that reads the meters.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start(
        places: &Places,
        model: EnergyModel,
        processors: usize,
        clock: Box<dyn Clock + Send>,
    ) -> Result<Watch> {
        let meters = discover(places).meters;
        let infos: Vec<MeterInfo> = meters.iter().map(|meter| meter.info().clone()).collect();
        let chosen = choose(&infos, &[])?;
        let of_total = meters.into_iter().enumerate().filter(|(lane, _)| chosen.lanes.contains(lane));
        let meters: Vec<_> = of_total.map(|(_, meter)| meter).collect();
        let recorder = match meters.is_empty() {
            true => None,
            false => {
                let settings = SamplerSettings {
                    interval_us: INTERVAL_US,
                    command_overhead_ppm: COMMAND_OVERHEAD_PPM,
                    ..SamplerSettings::default()
                };
                let sampler = Sampler::new(meters, settings, clock.now().monotonic_us);
                Some(Recorder::start(sampler, clock, false)?)
            }
        };
        Ok(Watch { recorder, covers: chosen.covers, model, processors })
    }

    /// A model alone.
    pub fn without_meters(model: EnergyModel, processors: usize) -> Watch {
        Watch { recorder: None, covers: "nothing".into(), model, processors }
    }

    /// How each meter stands since the start, to the last second; none without meters. Cost: a lock and a copy.
    pub fn measured(&self) -> Vec<(&str, Standing)> {
        let Some(recorder) = &self.recorder else { return Vec::new() };
        let names = recorder.meters().iter().map(|info| info.name.as_str());
        names.zip(recorder.standings()).collect()
    }

    /// What the meters cover, in words.
    pub fn covers(&self) -> &str {
        &self.covers
    }

    /// The model's name.
    pub fn model_name(&self) -> &str {
        &self.model.name
    }

    /// The model's joules of `work`; its processors are the machine's.
    pub fn modelled(&self, work: &Work) -> Modelled {
        self.model.joules(&Work { processors: self.processors as f64, ..*work })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount::Energy;
    use crate::presets::named;
    use tierstone_base::SystemClock;

    #[test]
    fn without_meters_there_is_a_model_and_no_thread() {
        let places = Places { root: "/no/such/folder".into(), ..Places::machine(None) };
        let watch = Watch::start(&places, named("cloud").unwrap(), 2, Box::new(SystemClock::new())).unwrap();
        assert!(watch.recorder.is_none());
        assert_eq!(watch.measured(), Vec::new());
        let joules = watch.modelled(&Work { seconds: 10.0, cpu_seconds: 1.0, ..Work::default() });
        assert!((joules.idle - 14.8).abs() < 1e-9 && (joules.cpu - 2.76).abs() < 1e-9, "{joules:?}");
    }

    #[test]
    fn mean_power_is_over_covered_time_and_of_meters_that_cover_half_at_least() {
        let standing = |joules: u64, covered_us: u64| Standing {
            energy: Energy::from_microjoules(joules * 1_000_000),
            covered_us,
            ..Standing::default()
        };
        // 100 W over 8 of 10 s, and 20 W over 5 of them.
        let both = [standing(800, 8_000_000), standing(100, 5_000_000)];
        assert_eq!(mean_watts(&both, 10_000_000), Some(120.0));
        assert_eq!(mean_watts(&both[..1], 10_000_000), Some(100.0));
        // Of 12 s the second covers less than half: a sum without it would be too little.
        assert_eq!(mean_watts(&both, 12_000_000), None);
        assert_eq!(mean_watts(&[standing(0, 0)], 0), None);
        assert_eq!(mean_watts(&[], 10_000_000), None);
    }

    /// Waits until `is_so` of the only meter.
    fn wait_for(watch: &Watch, is_so: impl Fn(&Standing) -> bool) -> Standing {
        loop {
            let standing = watch.measured()[0].1;
            if is_so(&standing) {
                return standing;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_command_that_hangs_or_talks_rubbish_leaves_faults_and_no_energy() {
        for command in ["sleep 1000", "echo bananas", "exit 3"] {
            let places = Places {
                root: "/no/such/folder".into(),
                command: Some(command.into()),
                command_timeout_us: 20_000,
                ..Places::machine(None)
            };
            let watch =
                Watch::start(&places, named("cloud").unwrap(), 2, Box::new(SystemClock::new())).unwrap();
            let standing = wait_for(&watch, |standing| standing.faults > 0);
            assert_eq!((standing.energy.microjoules(), standing.samples), (0, 0), "{command}");
        }
    }
}
