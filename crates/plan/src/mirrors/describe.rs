//! The description of an array of sleeping mirrors, its load, and what is asked of it.
//!
//! Nothing has a default: what is missing is an error of the parser that names it.

use crate::field::{at_most, refused, within};
use crate::quantity::{Bandwidth, DAY, Duration, GIB, Given, Percent, PercentUnits, Power, Rate, Size};
use serde::Deserialize;
use tierstone_base::Result;
use tierstone_volume::{CycleBudget, SleepPolicy};

/// Most tries of a synthetic trace, at its highest rate throughout.
const REQUESTS_MAX: f64 = 1e9;

/// A whole description.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
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
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Array {
    /// Disks, an even number.
    pub disks: u32,
    /// A stripe on each pair.
    pub stripe: Size,
}

/// A disk.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Disk {
    /// Power while it serves.
    pub load: Power,
    /// Power while it spins and serves nothing.
    pub idle: Power,
    /// Power while it stands still.
    pub down: Power,
    /// Average seek.
    pub seek: Duration,
    /// Average rotational latency.
    pub rotation: Duration,
    /// Transfer.
    pub transfer: Bandwidth,
    /// From standing to serving.
    pub spin_up: Duration,
    /// From spinning to standing.
    pub spin_down: Duration,
    /// How many times faster sorted write-backs are than random ones, without their transfer.
    pub write_back_speedup: f64,
    /// Starts and stops it is rated for.
    pub rated_cycles: f64,
    /// Over so long a life.
    pub rated_life: Duration,
}

/// The flash buffer.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Flash {
    /// Its size.
    pub buffer: Size,
    /// Latency of a read.
    pub read_latency: Duration,
    /// Latency of a write.
    pub write_latency: Duration,
    /// Reading.
    pub read_bandwidth: Bandwidth,
    /// Writing.
    pub write_bandwidth: Bandwidth,
    /// Power while it works.
    pub active: Power,
    /// Power while it does not.
    pub idle: Power,
}

/// When disks sleep.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Policy {
    /// How long an epoch is.
    pub epoch: Duration,
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
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PartialOnline {
    /// What is hot, at the start of the addresses; the rest is cold.
    pub hot: Size,
    /// Space on the host for hot data of the other pairs.
    pub spare: Size,
    /// See [`tierstone_volume::WholePolicy::cold_epochs`].
    pub cold_epochs: u32,
    /// See [`tierstone_volume::WholePolicy::host_utilisation`].
    pub host_utilisation: f64,
}

/// A disk of its own on which each random read lets so many blocks be written back.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FlushStudy {
    /// Blocks to write back, at random places of the whole disk.
    pub targets: u32,
    /// Decides the places.
    pub seed: u64,
    /// Of each read and write.
    pub io: Size,
    /// Average seek.
    pub seek: Duration,
    /// Average rotational latency.
    pub rotation: Duration,
    /// Transfer.
    pub transfer: Bandwidth,
    /// How many times faster write-backs alone are than random reads alone.
    pub write_back_speedup: f64,
    /// What is tried.
    pub point: Vec<FlushPoint>,
}

/// Blocks written back a read, and what was published for it: shares of the rates of reads and of
/// write-backs alone.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FlushPoint {
    /// Blocks a read: the K of the source.
    pub write_backs: u32,
    /// Published, if it was.
    pub read: Option<Percent>,
    /// Published, if it was.
    pub write_back: Option<Percent>,
}

/// What requests look like.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Shape {
    /// A request.
    pub request: Size,
    /// The share of writes, 0 to 1.
    pub write_share: f64,
    /// What requests are spread over, evenly, or as the next two say.
    pub footprint: Size,
    /// The share of requests that goes to the first of them, 0 to 1; with `hot`.
    pub hot_share: Option<f64>,
    /// At the start, what this share goes to.
    pub hot: Option<Size>,
}

/// A load with a busy time each day.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Diurnal {
    /// Decides every request.
    pub seed: u64,
    /// Its length.
    pub length: Duration,
    /// Requests at all times.
    pub base: Rate,
    /// When the busy time begins, after midnight.
    pub busy_from: Duration,
    /// How long it lasts.
    pub busy_lasts: Duration,
    /// Requests at its height; it rises and falls as a squared sine.
    pub busy: Rate,
    /// Bursts at random times.
    pub bursts: Rate,
    /// How long each lasts.
    pub burst_lasts: Duration,
    /// Requests in them.
    pub burst: Rate,
    /// What requests look like.
    pub shape: Shape,
}

/// A load of spikes without a daily pattern.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Spiky {
    /// Decides every request.
    pub seed: u64,
    /// Its length.
    pub length: Duration,
    /// Requests at all times.
    pub base: Rate,
    /// Mean length of a phase with spikes.
    pub busy_phase: Duration,
    /// Mean length of a phase without.
    pub quiet_phase: Duration,
    /// Mean time from spike to spike.
    pub spike_every: Duration,
    /// How long a spike lasts.
    pub spike_lasts: Duration,
    /// Requests in it.
    pub spike: Rate,
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
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Sweep {
    /// Buffers: cycles and energy with each.
    pub buffer: Vec<Size>,
    /// Numbers of disks without sleep, rising: the tail with each, and the knee.
    pub disks: Vec<u32>,
    /// The share by which a tail must still fall from one number of disks to the next to be worth it.
    pub knee_gain: f64,
    /// Thresholds of waking: the tail with each.
    pub spin_up_utilisation: Vec<f64>,
    /// Power while a disk starts: energy with each. The source counts a start as idling.
    #[serde(default)]
    pub start: Vec<Power>,
}

/// What a published value is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// The energy saved, a percentage.
    Saving,
    /// Cycles with the smallest buffer over those with the largest.
    CycleRatio,
}

/// A published value.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Published {
    /// Which of ours.
    pub of: Measure,
    /// The value.
    pub value: Given,
    /// Ours agrees when it lies from here
    pub from: Given,
    /// to here.
    pub to: Given,
    /// Where it was published.
    pub place: String,
}

impl Published {
    /// The value and the range in which ours agrees: percentages, or numbers without a unit.
    ///
    /// # Errors
    /// Invalid input: a unit is missing, wrong, or one too many.
    pub fn numbers(&self) -> Result<[f64; 3]> {
        let number = |field: &str, given: &Given| match self.of {
            Measure::Saving => given.quantity::<PercentUnits>(field),
            Measure::CycleRatio => given.number(field),
        };
        Ok([
            number("published.value", &self.value)?,
            number("published.from", &self.from)?,
            number("published.to", &self.to)?,
        ])
    }
}

impl Description {
    /// Reads a description and checks that it is possible.
    ///
    /// # Errors
    /// Invalid input: the parser's words, or the value that cannot be.
    pub fn read(text: &crate::Description) -> Result<Description> {
        text.checked(|description: Description| description.check().map(|()| description))
    }

    fn check(&self) -> Result<()> {
        check_disks(self.array.disks)?;
        for &disks in &self.sweep.disks {
            check_disks(disks)?;
        }
        if self.sweep.disks.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(refused("sweep.disks must rise"));
        }
        let stripe = self.array.stripe.within("array.stripe", 4096.0, GIB)?;
        if stripe % 4096.0 != 0.0 {
            return Err(refused(format!("`array.stripe` is {stripe} B, but must be a multiple of 4 KiB")));
        }
        self.check_disk()?;
        self.check_flash()?;
        self.check_policy()?;
        self.check_load()?;
        self.check_sweep()?;
        self.check_whole()?;
        self.check_flush_study()?;
        self.published.iter().try_for_each(|published| published.numbers().map(|_| ()))
    }

    fn check_disk(&self) -> Result<()> {
        let disk = &self.disk;
        lasts("disk.seek", disk.seek)?;
        lasts("disk.rotation", disk.rotation)?;
        lasts("disk.spin-up", disk.spin_up)?;
        lasts("disk.spin-down", disk.spin_down)?;
        lasts("disk.rated-life", disk.rated_life)?;
        moves("disk.transfer", disk.transfer)?;
        above_zero("disk.write-back-speedup", disk.write_back_speedup)?;
        above_zero("disk.rated-cycles", disk.rated_cycles)?;
        let (down, idle, load) = (disk.down.get(), disk.idle.get(), disk.load.get());
        within("disk.load", load, 0.0, 1e6, "W")?;
        if down > idle || idle > load {
            return Err(refused(format!(
                "a disk that stands still ({down} W) cannot draw more than one that idles ({idle} W), nor that more than \
                 one that serves ({load} W)"
            )));
        }
        disk.idle.positive("disk.idle").map(|_| ())
    }

    fn check_flash(&self) -> Result<()> {
        let flash = &self.flash;
        holds("flash.buffer", flash.buffer)?;
        lasts("flash.read-latency", flash.read_latency)?;
        lasts("flash.write-latency", flash.write_latency)?;
        moves("flash.read-bandwidth", flash.read_bandwidth)?;
        moves("flash.write-bandwidth", flash.write_bandwidth)?;
        for (field, power) in [("flash.active", flash.active), ("flash.idle", flash.idle)] {
            power.positive(field)?;
            power.within(field, 0.0, 1e6)?;
        }
        Ok(())
    }

    fn check_policy(&self) -> Result<()> {
        let policy = &self.policy;
        lasts("policy.epoch", policy.epoch)?;
        share("policy.spin-down-utilisation", policy.spin_down_utilisation)?;
        share("policy.spin-up-utilisation", policy.spin_up_utilisation)?;
        share("policy.buffer-fill", policy.buffer_fill)?;
        if policy.spin_down_epochs == 0 || policy.spin_up_epochs == 0 {
            return Err(refused("policy: numbers of epochs must be above zero"));
        }
        if policy.spin_down_utilisation > policy.spin_up_utilisation {
            return Err(refused(
                "policy: a pair would sleep and wake at once: spin-down-utilisation is above spin-up-utilisation",
            ));
        }
        Ok(())
    }

    fn check_load(&self) -> Result<()> {
        let (seconds, most) = match &self.trace {
            Trace::Diurnal(load) => {
                lasts("trace.length", load.length)?;
                lasts("trace.busy-lasts", load.busy_lasts)?;
                lasts("trace.burst-lasts", load.burst_lasts)?;
                load.busy_from.within("trace.busy-from", 0.0, DAY)?;
                load.bursts.within("trace.bursts", 0.0, 1.0)?;
                asks("trace.busy", load.busy)?;
                asks("trace.burst", load.burst)?;
                asks("trace.base", load.base)?;
                (load.length, load.base.get() + load.busy.get().max(load.burst.get()))
            }
            Trace::Spiky(load) => {
                lasts("trace.length", load.length)?;
                lasts("trace.busy-phase", load.busy_phase)?;
                lasts("trace.quiet-phase", load.quiet_phase)?;
                lasts("trace.spike-every", load.spike_every)?;
                lasts("trace.spike-lasts", load.spike_lasts)?;
                asks("trace.base", load.base)?;
                asks("trace.spike", load.spike)?;
                let spikes = load.length.get() / load.spike_every.get().min(load.busy_phase.get());
                most_made("spikes", spikes)?;
                (load.length, load.base.get() + load.spike.get())
            }
            Trace::Msr { .. } | Trace::Blkparse { .. } => return Ok(()),
        };
        most_made("requests", seconds.get() * most)?;
        let Some(shape) = self.shape() else { return Ok(()) };
        shape.request.positive("trace.shape.request")?;
        shape.request.within("trace.shape.request", 0.0, GIB)?;
        holds("trace.shape.footprint", shape.footprint)?;
        share("trace.shape.write-share", shape.write_share)?;
        match (shape.hot_share, shape.hot) {
            (Some(part), Some(hot)) if hot.get() < shape.footprint.get() => {
                share("trace.shape.hot-share", part)?;
                holds("trace.shape.hot", hot)
            }
            (None, None) => Ok(()),
            _ => Err(refused("trace.shape: give hot-share and hot both, hot below footprint")),
        }
    }

    fn check_sweep(&self) -> Result<()> {
        let sweep = &self.sweep;
        at_most("sweep.buffer", sweep.buffer.len())?;
        at_most("sweep.disks", sweep.disks.len())?;
        at_most("sweep.spin-up-utilisation", sweep.spin_up_utilisation.len())?;
        at_most("sweep.start", sweep.start.len())?;
        share("sweep.knee-gain", sweep.knee_gain)?;
        sweep.spin_up_utilisation.iter().try_for_each(|part| share("sweep.spin-up-utilisation", *part))?;
        sweep.buffer.iter().try_for_each(|size| holds("sweep.buffer", *size))?;
        for start in &sweep.start {
            start.within("sweep.start", 0.0, 1e6)?;
            if start.get() < self.disk.idle.get() {
                return Err(refused("sweep.start: a disk that starts draws no less than one that idles"));
            }
        }
        Ok(())
    }

    /// What concerns hot data.
    fn check_whole(&self) -> Result<()> {
        let Some(partial) = &self.partial else { return Ok(()) };
        if partial.cold_epochs == 0 {
            return Err(refused("partial.cold-epochs must be above zero"));
        }
        if self.array.disks < 6 {
            return Err(refused(
                "partial: with fewer than 6 disks a host costs as much as whole sleep saves",
            ));
        }
        share("partial.host-utilisation", partial.host_utilisation)?;
        holds("partial.hot", partial.hot)?;
        holds("partial.spare", partial.spare)
    }

    fn check_flush_study(&self) -> Result<()> {
        let Some(study) = &self.flush_study else { return Ok(()) };
        at_most("flush-study.point", study.point.len())?;
        within("flush-study.targets", f64::from(study.targets), 1.0, 1e7, "")?;
        if study.point.iter().any(|point| point.write_backs == 0) {
            return Err(refused("flush-study: write-backs must be above zero"));
        }
        study.io.positive("flush-study.io")?;
        study.io.within("flush-study.io", 0.0, GIB)?;
        lasts("flush-study.seek", study.seek)?;
        lasts("flush-study.rotation", study.rotation)?;
        moves("flush-study.transfer", study.transfer)?;
        above_zero("flush-study.write-back-speedup", study.write_back_speedup)
    }

    fn shape(&self) -> Option<&Shape> {
        match &self.trace {
            Trace::Diurnal(load) => Some(&load.shape),
            Trace::Spiky(load) => Some(&load.shape),
            Trace::Msr { .. } | Trace::Blkparse { .. } => None,
        }
    }

    /// The policy in the form that the volume has it.
    pub fn sleep_policy(&self) -> SleepPolicy {
        let policy = &self.policy;
        SleepPolicy {
            spin_down_utilisation: policy.spin_down_utilisation,
            spin_down_epochs: policy.spin_down_epochs,
            spin_up_utilisation: policy.spin_up_utilisation,
            spin_up_epochs: policy.spin_up_epochs,
            buffer_fill: policy.buffer_fill,
            cycles: policy.keep_to_rated_cycles.then_some(self.cycle_budget()),
        }
    }

    /// What the disks are rated for.
    pub fn cycle_budget(&self) -> CycleBudget {
        CycleBudget::rated(self.disk.rated_cycles, self.disk.rated_life.get() / (365.0 * DAY))
    }
}

/// The longest time of a description, in seconds: a century.
const LONGEST: f64 = 100.0 * 365.0 * DAY;

/// Whether `time` is above zero, a nanosecond at least, and no longer than anybody plans.
fn lasts(field: &str, time: Duration) -> Result<()> {
    time.positive(field)?;
    time.within(field, 0.0, LONGEST).map(|_| ())
}

/// Whether `size` is at least a block and what an array may have.
fn holds(field: &str, size: Size) -> Result<()> {
    size.within(field, 4096.0, 1e18).map(|_| ())
}

/// Whether `bandwidth` is what a device may have.
fn moves(field: &str, bandwidth: Bandwidth) -> Result<()> {
    bandwidth.within(field, 1e3, 1e15).map(|_| ())
}

/// Whether `rate` is above zero and what an array may be asked.
fn asks(field: &str, rate: Rate) -> Result<()> {
    rate.positive(field)?;
    rate.within(field, 0.0, REQUESTS_MAX).map(|_| ())
}

fn above_zero(field: &str, number: f64) -> Result<()> {
    within(field, number, 1e-9, 1e12, "").map(|_| ())
}

fn share(field: &str, number: f64) -> Result<()> {
    within(field, number, 0.0, 1.0, "").map(|_| ())
}

fn most_made(what: &str, count: f64) -> Result<()> {
    if count > REQUESTS_MAX {
        let message = format!(
            "the trace may need {count:.2e} tries of {what} to make, {REQUESTS_MAX:.0e} at most: shorten it"
        );
        return Err(refused(message));
    }
    Ok(())
}

fn check_disks(disks: u32) -> Result<()> {
    if disks < 2 || !disks.is_multiple_of(2) || disks > 10_000 {
        return Err(refused(format!("{disks} disks: mirrors need an even number, from 2 to 10,000")));
    }
    Ok(())
}
