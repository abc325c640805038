use super::*;
use crate::amount::Energy;
use crate::meter::{Covers, Fault, Meter, MeterKind, Reading};
use crate::sampler::SamplerSettings;
use tierstone_base::SystemClock;

/// A counter that stands still.
struct Still(MeterInfo);

impl Meter for Still {
    fn info(&self) -> &MeterInfo {
        &self.0
    }

    fn read(&mut self, _: u64) -> std::result::Result<Option<Reading>, Fault> {
        Ok(Some(Reading::Counter { uj: 9 }))
    }
}

fn recorder(clock: SystemClock) -> Recorder {
    let info = MeterInfo {
        name: "still".into(),
        kind: MeterKind::Rapl,
        covers: Covers::Package,
        step: 1,
        step_source: "test",
        refresh_us: 1_000,
        wraps_at_uj: None,
        power_max_uw: u64::MAX,
    };
    let sampler =
        Sampler::new(vec![Box::new(Still(info))], SamplerSettings::default(), clock.now().monotonic_us);
    Recorder::start(sampler, Box::new(clock), true).unwrap()
}

#[test]
fn a_recording_covers_all_its_time_in_its_states() {
    let recorder = recorder(SystemClock::new());
    assert_eq!(recorder.meters()[0].name, "still");
    recorder.enter(1);
    assert_eq!(recorder.standings()[0].energy, Energy::ZERO);
    let recording = recorder.finish().unwrap();
    let lane = &recording.lanes[0];
    assert_eq!(lane.total.covered_us + lane.total.gap_us, recording.end_us - recording.start_us);
    assert_eq!(lane.states.len(), 2);
    // At the start, at the border and at the end.
    assert!(recording.samples.len() >= 2 && lane.samples == recording.samples.len() as u64);
}

#[test]
fn a_recorder_that_is_dropped_ends_its_thread() {
    drop(recorder(SystemClock::new()));
}
