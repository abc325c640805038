//! The description of an array of sleeping mirrors, its load, and what is asked of it.
//!
//! Nothing has a default: what is missing is an error of the parser that names it.

use serde::Deserialize;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_volume::{CycleBudget, SleepPolicy};

/// Most tries of a synthetic trace, at its highest rate throughout.
const REQUESTS_MAX: f64 = 1e9;

/// A whole description.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Heading of the report.
    pub title: String,
    /// The mirrors.
    pub array: Array,
    /// Each disk.
    pub disk: Disk,
    /// The buffer.
    pub flash: Flash,
    /// When disks sleep.
    pub policy: Policy,
    /// The load.
    pub trace: Trace,
    /// What is tried besides.
    pub sweep: Sweep,
    /// Pairs that sleep whole, where they may.
    pub partial: Option<PartialOnline>,
    /// The study of flushes beside reads, where it is asked for.
    pub flush_study: Option<FlushStudy>,
    /// Published values to stand beside ours, where the description is a published one.
    #[serde(default)]
    pub published: Vec<Published>,
}

/// The array.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Array {
    /// Disks, an even number.
    pub disks: u32,
    /// KiB of a stripe on each pair.
    pub stripe_kib: u64,
}

/// A disk.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Watts while it serves.
    pub load_w: f64,
    /// Watts while it spins and serves nothing.
    pub idle_w: f64,
    /// Watts while it stands still.
    pub down_w: f64,
    /// Average seek in ms.
    pub seek_ms: f64,
    /// Average rotational latency in ms.
    pub rotation_ms: f64,
    /// Transfer in MB/s.
    pub transfer_mb_per_s: f64,
    /// Seconds from standing to serving.
    pub spin_up_s: f64,
    /// Seconds from spinning to standing.
    pub spin_down_s: f64,
    /// How many times faster sorted write-backs are than random ones, without their transfer.
    pub write_back_speedup: f64,
    /// Starts and stops it is rated for.
    pub rated_cycles: f64,
    /// Over so many years.
    pub rated_years: f64,
}

/// The flash buffer.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flash {
    /// MiB of it.
    pub buffer_mib: f64,
    /// Latency of a read in microseconds.
    pub read_us: f64,
    /// Latency of a write in microseconds.
    pub write_us: f64,
    /// Reading in MB/s.
    pub read_mb_per_s: f64,
    /// Writing in MB/s.
    pub write_mb_per_s: f64,
    /// Watts while it works.
    pub active_w: f64,
    /// Watts while it does not.
    pub idle_w: f64,
}

/// When disks sleep.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Seconds of an epoch.
    pub epoch_s: f64,
    /// See [`SleepPolicy::spin_down_utilisation`].
    pub spin_down_utilisation: f64,
    /// See [`SleepPolicy::spin_down_epochs`].
    pub spin_down_epochs: u32,
    /// See [`SleepPolicy::spin_up_utilisation`].
    pub spin_up_utilisation: f64,
    /// See [`SleepPolicy::spin_up_epochs`].
    pub spin_up_epochs: u32,
    /// See [`SleepPolicy::buffer_fill`].
    pub buffer_fill: f64,
    /// Whether sleep is refused where the rated cycles would not last.
    pub keep_to_rated_cycles: bool,
}

/// Hot data that stays on disks that turn, so that pairs may sleep whole.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartialOnline {
    /// GiB at the start of the addresses that are hot; the rest is cold.
    pub hot_gib: f64,
    /// GiB on the host for hot data of the other pairs.
    pub spare_gib: f64,
    /// See [`tierstone_volume::WholePolicy::cold_epochs`].
    pub cold_epochs: u32,
    /// See [`tierstone_volume::WholePolicy::host_utilisation`].
    pub host_utilisation: f64,
}

/// A disk of its own on which each random read lets so many blocks be written back.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlushStudy {
    /// Blocks to write back, at random places of the whole disk.
    pub targets: u32,
    /// Decides the places.
    pub seed: u64,
    /// KiB of each read and write.
    pub io_kib: f64,
    /// Average seek in ms.
    pub seek_ms: f64,
    /// Average rotational latency in ms.
    pub rotation_ms: f64,
    /// Transfer in MB/s.
    pub transfer_mb_per_s: f64,
    /// How many times faster write-backs alone are than random reads alone.
    pub write_back_speedup: f64,
    /// What is tried.
    pub point: Vec<FlushPoint>,
}

/// Blocks written back a read, and what was published for it: shares of the rates of reads and of
/// write-backs alone, in percent.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlushPoint {
    /// Blocks a read: the K of the source.
    pub write_backs: u32,
    /// Published, if it was.
    pub read_percent: Option<f64>,
    /// Published, if it was.
    pub write_back_percent: Option<f64>,
}

/// What requests look like.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// KiB of a request.
    pub request_kib: f64,
    /// The share of writes, 0 to 1.
    pub write_share: f64,
    /// GiB that requests are spread over, evenly, or as the next two say.
    pub footprint_gib: f64,
    /// The share of requests that goes to the first of them, 0 to 1; with `hot_gib`.
    pub hot_share: Option<f64>,
    /// GiB at the start that this share goes to.
    pub hot_gib: Option<f64>,
}

/// A load with a busy time each day.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Diurnal {
    /// Decides every request.
    pub seed: u64,
    /// Its length.
    pub days: f64,
    /// Requests a second at all times.
    pub base_per_s: f64,
    /// When the busy time begins, in hours.
    pub busy_from_h: f64,
    /// How long it lasts, in hours.
    pub busy_hours: f64,
    /// Requests a second at its height; it rises and falls as a squared sine.
    pub busy_per_s: f64,
    /// Bursts at random times.
    pub bursts_a_day: f64,
    /// Seconds of each.
    pub burst_s: f64,
    /// Requests a second in them.
    pub burst_per_s: f64,
    /// What requests look like.
    pub shape: Shape,
}

/// A load of spikes without a daily pattern.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spiky {
    /// Decides every request.
    pub seed: u64,
    /// Its length.
    pub hours: f64,
    /// Requests a second at all times.
    pub base_per_s: f64,
    /// Mean seconds of a phase with spikes.
    pub busy_phase_s: f64,
    /// Mean seconds of a phase without.
    pub quiet_phase_s: f64,
    /// Mean seconds from spike to spike.
    pub spike_every_s: f64,
    /// Seconds of a spike.
    pub spike_s: f64,
    /// Requests a second in it.
    pub spike_per_s: f64,
    /// What requests look like.
    pub shape: Shape,
}

/// Where the load comes from.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Trace {
    /// Made: a busy time each day.
    Diurnal(Diurnal),
    /// Made: spikes.
    Spiky(Spiky),
    /// Lines of an MSR Cambridge trace, here or given beside the description.
    Msr {
        /// The lines; empty when they are given beside it.
        lines: String,
    },
    /// Lines of blkparse, here or given beside the description.
    Blkparse {
        /// The lines; empty when they are given beside it.
        lines: String,
    },
}

/// What is tried besides the description itself. Empty lists try nothing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Buffers, in MiB: cycles and energy with each.
    pub buffer_mib: Vec<f64>,
    /// Numbers of disks without sleep, rising: the tail with each, and the knee.
    pub disks: Vec<u32>,
    /// The share by which a tail must still fall from one number of disks to the next to be worth it.
    pub knee_gain: f64,
    /// Thresholds of waking: the tail with each.
    pub spin_up_utilisation: Vec<f64>,
    /// Watts while a disk starts: energy with each. The source counts a start as idling.
    #[serde(default)]
    pub start_w: Vec<f64>,
}

/// A published value.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Which of ours: `saving_percent`, `cycle_ratio`.
    pub of: String,
    /// The value.
    pub value: f64,
    /// Ours agrees when it lies from here
    pub from: f64,
    /// to here.
    pub to: f64,
    /// Where it was published.
    pub place: String,
}

impl Description {
    /// Reads a description and checks that it is possible.
    ///
    /// # Errors
    /// Invalid input: the parser's words, or the value that cannot be.
    pub fn read(text: &crate::Description) -> Result<Description> {
        let description: Description = text.parse()?;
        description.check().map_err(|error| text.wrong(error))?;
        Ok(description)
    }

    fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
        check_disks(self.array.disks)?;
        for &disks in &self.sweep.disks {
            check_disks(disks)?;
        }
        if self.sweep.disks.windows(2).any(|pair| pair[0] >= pair[1]) {
            return refuse("sweep.disks must rise".into());
        }
        if self.array.stripe_kib == 0 || !self.array.stripe_kib.is_multiple_of(4) {
            return refuse(format!("array.stripe_kib = {} must be a multiple of 4", self.array.stripe_kib));
        }
        for (name, value) in self.positives() {
            if !value.is_finite() || value <= 0.0 {
                return refuse(format!("{name} = {value} must be above zero"));
            }
        }
        for (name, value) in self.shares() {
            if !(0.0..=1.0).contains(&value) {
                return refuse(format!("{name} = {value} must lie from 0 to 1"));
            }
        }
        let most = match &self.trace {
            Trace::Diurnal(load) => {
                load.days * 86_400.0 * (load.base_per_s + load.busy_per_s.max(load.burst_per_s))
            }
            Trace::Spiky(load) => load.hours * 3600.0 * (load.base_per_s + load.spike_per_s),
            Trace::Msr { .. } | Trace::Blkparse { .. } => 0.0,
        };
        if most > REQUESTS_MAX {
            return refuse(format!(
                "the trace may need {most:.2e} tries to make, {REQUESTS_MAX:.0e} at most: shorten it"
            ));
        }
        let disk = &self.disk;
        if !(disk.down_w >= 0.0 && disk.down_w <= disk.idle_w && disk.idle_w <= disk.load_w) {
            return refuse(format!(
                "a disk that stands still ({} W) cannot draw more than one that idles ({} W), nor that more than \
                 one that serves ({} W)",
                disk.down_w, disk.idle_w, disk.load_w
            ));
        }
        if self.policy.spin_down_epochs == 0 || self.policy.spin_up_epochs == 0 {
            return refuse("policy: numbers of epochs must be above zero".into());
        }
        if self.policy.spin_down_utilisation > self.policy.spin_up_utilisation {
            return refuse("policy: a pair would sleep and wake at once: spin_down_utilisation is above spin_up_utilisation".into());
        }
        self.check_whole()?;
        let names = ["saving_percent", "cycle_ratio"];
        match self.published.iter().find(|published| !names.contains(&published.of.as_str())) {
            Some(other) => refuse(format!("published.of = '{}' is none of {names:?}", other.of)),
            None => Ok(()),
        }
    }

    /// What concerns hot data and the study of flushes.
    fn check_whole(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::new(ErrorKind::InvalidInput, what.to_owned()));
        if self.partial.is_some_and(|partial| partial.cold_epochs == 0) {
            return refuse("partial.cold_epochs must be above zero");
        }
        if self.partial.is_some() && self.array.disks < 6 {
            return refuse("partial: with fewer than 6 disks a host costs as much as whole sleep saves");
        }
        if let Some(shape) = self.shape() {
            match (shape.hot_share, shape.hot_gib) {
                (Some(_), Some(gib)) if gib < shape.footprint_gib => {}
                (None, None) => {}
                _ => {
                    return refuse(
                        "trace.shape: give hot_share and hot_gib both, hot_gib below footprint_gib",
                    );
                }
            }
        }
        if self.sweep.start_w.iter().any(|watts| *watts < self.disk.idle_w) {
            return refuse("sweep.start_w: a disk that starts draws no less than one that idles");
        }
        if self.flush_study.as_ref().is_some_and(|study| {
            study.targets > 10_000_000 || study.point.iter().any(|point| point.write_backs == 0)
        }) {
            return refuse("flush_study: 10,000,000 targets at most, and write_backs above zero");
        }
        Ok(())
    }

    fn shape(&self) -> Option<&Shape> {
        match &self.trace {
            Trace::Diurnal(load) => Some(&load.shape),
            Trace::Spiky(load) => Some(&load.shape),
            Trace::Msr { .. } | Trace::Blkparse { .. } => None,
        }
    }

    fn positives(&self) -> Vec<(&'static str, f64)> {
        let (disk, flash) = (&self.disk, &self.flash);
        let mut values = vec![
            ("disk.transfer_mb_per_s", disk.transfer_mb_per_s),
            ("disk.seek_ms", disk.seek_ms),
            ("disk.rotation_ms", disk.rotation_ms),
            ("disk.spin_up_s", disk.spin_up_s),
            ("disk.spin_down_s", disk.spin_down_s),
            ("disk.write_back_speedup", disk.write_back_speedup),
            ("disk.rated_cycles", disk.rated_cycles),
            ("disk.rated_years", disk.rated_years),
            ("flash.buffer_mib", flash.buffer_mib),
            ("flash.read_us", flash.read_us),
            ("flash.write_us", flash.write_us),
            ("flash.read_mb_per_s", flash.read_mb_per_s),
            ("flash.write_mb_per_s", flash.write_mb_per_s),
            ("flash.active_w", flash.active_w),
            ("flash.idle_w", flash.idle_w),
            ("policy.epoch_s", self.policy.epoch_s),
        ];
        values.extend(self.sweep.buffer_mib.iter().map(|mib| ("sweep.buffer_mib", *mib)));
        values.extend(self.sweep.start_w.iter().map(|watts| ("sweep.start_w", *watts)));
        if let Some(partial) = &self.partial {
            values.extend([("partial.hot_gib", partial.hot_gib), ("partial.spare_gib", partial.spare_gib)]);
        }
        if let Some(study) = &self.flush_study {
            values.extend([
                ("flush_study.targets", f64::from(study.targets)),
                ("flush_study.io_kib", study.io_kib),
                ("flush_study.seek_ms", study.seek_ms),
                ("flush_study.rotation_ms", study.rotation_ms),
                ("flush_study.transfer_mb_per_s", study.transfer_mb_per_s),
                ("flush_study.write_back_speedup", study.write_back_speedup),
            ]);
        }
        values.extend(self.shape().and_then(|shape| shape.hot_gib).map(|gib| ("trace.shape.hot_gib", gib)));
        match &self.trace {
            Trace::Diurnal(load) => values.extend([
                ("trace.days", load.days),
                ("trace.busy_hours", load.busy_hours),
                ("trace.busy_per_s", load.busy_per_s),
                ("trace.burst_per_s", load.burst_per_s),
                ("trace.burst_s", load.burst_s),
                ("trace.base_per_s", load.base_per_s),
                ("trace.shape.request_kib", load.shape.request_kib),
                ("trace.shape.footprint_gib", load.shape.footprint_gib),
            ]),
            Trace::Spiky(load) => values.extend([
                ("trace.hours", load.hours),
                ("trace.base_per_s", load.base_per_s),
                ("trace.busy_phase_s", load.busy_phase_s),
                ("trace.quiet_phase_s", load.quiet_phase_s),
                ("trace.spike_every_s", load.spike_every_s),
                ("trace.spike_s", load.spike_s),
                ("trace.spike_per_s", load.spike_per_s),
                ("trace.shape.request_kib", load.shape.request_kib),
                ("trace.shape.footprint_gib", load.shape.footprint_gib),
            ]),
            Trace::Msr { .. } | Trace::Blkparse { .. } => {}
        }
        values
    }

    fn shares(&self) -> Vec<(&'static str, f64)> {
        let policy = &self.policy;
        let mut shares = vec![
            ("policy.spin_down_utilisation", policy.spin_down_utilisation),
            ("policy.spin_up_utilisation", policy.spin_up_utilisation),
            ("policy.buffer_fill", policy.buffer_fill),
            ("sweep.knee_gain", self.sweep.knee_gain),
        ];
        shares
            .extend(self.sweep.spin_up_utilisation.iter().map(|value| ("sweep.spin_up_utilisation", *value)));
        shares.extend(self.partial.map(|partial| ("partial.host_utilisation", partial.host_utilisation)));
        if let Some(shape) = self.shape() {
            shares.push(("trace.shape.write_share", shape.write_share));
            shares.extend(shape.hot_share.map(|share| ("trace.shape.hot_share", share)));
        }
        shares
    }

    /// The policy in the form that the volume has it.
    pub fn sleep_policy(&self) -> SleepPolicy {
        let policy = &self.policy;
        let budget = CycleBudget::rated(self.disk.rated_cycles, self.disk.rated_years);
        SleepPolicy {
            spin_down_utilisation: policy.spin_down_utilisation,
            spin_down_epochs: policy.spin_down_epochs,
            spin_up_utilisation: policy.spin_up_utilisation,
            spin_up_epochs: policy.spin_up_epochs,
            buffer_fill: policy.buffer_fill,
            cycles: policy.keep_to_rated_cycles.then_some(budget),
        }
    }
}

fn check_disks(disks: u32) -> Result<()> {
    if disks < 2 || !disks.is_multiple_of(2) || disks > 10_000 {
        let message = format!("{disks} disks: mirrors need an even number, from 2 to 10,000");
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(())
}
