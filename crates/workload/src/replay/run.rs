//! Doing it: callers on threads of their own, each with a handle of the store and the operations of its keys.

use std::ops::ControlFlow;
use std::time::Duration;

use serde::Serialize;
use tierstone_base::histogram::LatencyHistogram;
use tierstone_base::{ErrorKind, Result};

use super::plan::{Action, Step, UNKNOWN, VALUE_BYTES_MAX};
use super::{Pace, ReplayPlan, ReplaySettings};
use crate::mix::OperationKind;
use crate::outcome::{CallSummary, Outcome};
use crate::pacing::Pacing;
use crate::recorder::{self, Recorder};
use crate::run::{Context, Progress, pause, run_threads, wake_exactly};
use crate::value::{ValueMaker, ValueSettings, check_value};

/// The longest pause: how soon a stop is seen.
const PAUSE_MAX_US: u64 = 100_000;
/// Records that are loaded together.
const LOADED_TOGETHER: usize = 256;
/// Bytes of these.
const LOADED_TOGETHER_BYTES: usize = 1 << 20;
/// How often an operation is tried again that the store asks to try again.
const RETRIES_MAX: u32 = 8;

/// What a store offers to a replay. One handle is used by one thread.
pub trait ReplayTarget {
    /// Reads a value into `value` (which is empty), or answers false.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Writes a value that expires after `expiry`, if given, with the durability that the store is set to.
    fn put(&mut self, key: &[u8], value: &[u8], expiry: Option<Duration>) -> Result<()>;

    /// Deletes a key; whether it was there.
    fn delete(&mut self, key: &[u8]) -> Result<bool>;

    /// Writes records together, without an order among them.
    fn put_many(&mut self, records: &[(&[u8], &[u8])]) -> Result<()>;
}

/// What came of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayOutcome {
    /// Everything that the generators count; kinds `get` (reads), `set` (writes and deletes) and `read_modify_write` (what reads,
    /// then writes). Its latencies are in whole microseconds, rounded down; those below have parts.
    pub outcome: Outcome,
    /// Reads.
    pub reads: CallSummary,
    /// Everything that changes something.
    pub writes: CallSummary,
    /// The same in full, for plots and for merging.
    #[serde(skip)]
    pub read_latency: LatencyHistogram,
    /// Likewise.
    #[serde(skip)]
    pub write_latency: LatencyHistogram,
}

/// Writes the keys that must be there before, from as many threads as there are callers. `open` gives each its handle.
///
/// # Errors
/// `InvalidInput` for settings out of range; those of `open`. A target's errors are counted in the outcome.
pub fn load<T: ReplayTarget + Send>(
    plan: &ReplayPlan,
    settings: &ReplaySettings,
    open: &mut dyn FnMut() -> Result<T>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Outcome> {
    settings.validate()?;
    let pacing = pacing_of(settings);
    let values = ValueMaker::new(ValueSettings::default(), settings.seed);
    let part = plan.loads.len().div_ceil(settings.callers).max(1);
    let mut parts = Vec::new();
    for loads in plan.loads.chunks(part) {
        parts.push((open()?, loads));
    }
    let total = plan.loads.len() as u64;
    let recorders = run_threads(&pacing, Some(total), parts, progress, |(mut target, loads), context| {
        let mut recorder = Recorder::new(context.measured_from_us);
        load_part(plan, &values, &mut target, loads, (&mut recorder, context));
        context.finish(&mut recorder);
        recorder
    })?;
    Ok(recorder::combine(recorders, None))
}

fn load_part<T: ReplayTarget>(
    plan: &ReplayPlan,
    values: &ValueMaker,
    target: &mut T,
    mut loads: &[(u32, u32)],
    (recorder, context): (&mut Recorder, &mut Context<'_>),
) {
    let mut bytes = Vec::new();
    while !loads.is_empty() && !context.is_stopped() {
        let began_us = context.now_us();
        context.tick(began_us, recorder);
        bytes.clear();
        let mut ends = Vec::new();
        for (key, size) in loads.iter().take(LOADED_TOGETHER) {
            values.append_sized(u64::from(*key), 0, *size as usize, &mut bytes);
            ends.push(bytes.len());
            if bytes.len() >= LOADED_TOGETHER_BYTES {
                break;
            }
        }
        let (now, later) = loads.split_at(ends.len());
        let mut start = 0;
        let mut records = Vec::with_capacity(now.len());
        for ((key, _), end) in now.iter().zip(&ends) {
            records.push((plan.keys.get(*key), &bytes[start..*end]));
            start = *end;
        }
        let result = again(|| target.put_many(&records));
        let done_us = context.now_us();
        for _ in now {
            if let Err(error) = &result {
                recorder.failed(began_us, error.message().as_bytes());
            }
            recorder.answered(OperationKind::Insert, began_us, done_us);
        }
        loads = later;
    }
}

/// Does everything that the plan says. Progress is told on this thread about ten times a second, and ends it with
/// `Break`: what was not done then counts as not answered.
///
/// # Errors
/// As [`load`].
pub fn run<T: ReplayTarget + Send>(
    plan: &ReplayPlan,
    settings: &ReplaySettings,
    open: &mut dyn FnMut() -> Result<T>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<ReplayOutcome> {
    settings.validate()?;
    let values = ValueMaker::new(ValueSettings::default(), settings.seed);
    let mut parts: Vec<Vec<u32>> = vec![Vec::new(); settings.callers];
    for (place, step) in plan.steps.iter().enumerate() {
        parts[spread(step.key) % settings.callers].push(place as u32);
    }
    let mut callers = Vec::new();
    for steps in parts.into_iter().filter(|steps| !steps.is_empty()) {
        let began_us = plan.steps.first().map_or(0, |step| step.time_us);
        let values = values.clone();
        callers.push(Caller { target: open()?, plan, steps, values, pace: settings.pace, began_us });
    }
    let total = plan.operations();
    let recorders = run_threads(&pacing_of(settings), Some(total), callers, progress, Caller::run)?;
    let rate = match settings.pace {
        Pace::Recorded { speed } if plan.report().seconds > 0.0 => {
            Some(total as f64 / plan.report().seconds * speed)
        }
        _ => None,
    };
    let outcome = recorder::combine(recorders, rate);
    let merged = |kinds: &[OperationKind]| {
        let mut all = LatencyHistogram::new();
        let found = kinds.iter().filter_map(|kind| outcome.kinds.get(kind));
        found.for_each(|kind| all.merge(&kind.histogram));
        all
    };
    let read_latency = merged(&[OperationKind::Get]);
    let write_latency = merged(&[OperationKind::Set, OperationKind::ReadModifyWrite]);
    let (reads, writes) = (CallSummary::from(&read_latency), CallSummary::from(&write_latency));
    Ok(ReplayOutcome { outcome, reads, writes, read_latency, write_latency })
}

fn pacing_of(settings: &ReplaySettings) -> Pacing {
    Pacing { threads: settings.callers, warmup_seconds: 0.0, seed: settings.seed, ..Pacing::default() }
}

/// Numbers of keys come in the order of first use: neighbours go to different callers, by no pattern.
fn spread(key: u32) -> usize {
    (u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize
}

/// Tries again what the store asks to try again.
fn again<R>(mut call: impl FnMut() -> Result<R>) -> Result<R> {
    let mut result = call();
    for _ in 0..RETRIES_MAX {
        match &result {
            Err(error) if error.kind() == ErrorKind::Retry => result = call(),
            _ => break,
        }
    }
    result
}

struct Caller<'p, T> {
    target: T,
    plan: &'p ReplayPlan,
    steps: Vec<u32>,
    values: ValueMaker,
    pace: Pace,
    /// When the trace's first operation was.
    began_us: u64,
}

impl<T: ReplayTarget> Caller<'_, T> {
    fn run(mut self, context: &mut Context<'_>) -> Recorder {
        let mut recorder = Recorder::new(context.measured_from_us);
        if matches!(self.pace, Pace::Recorded { .. }) {
            wake_exactly();
        }
        let (mut old, mut new) = (Vec::new(), Vec::new());
        let steps = std::mem::take(&mut self.steps);
        for (done, place) in steps.iter().enumerate() {
            let step = self.plan.steps[*place as usize];
            let Some(began_ns) = self.wait(&step, context, &mut recorder) else {
                recorder.unanswered += (steps.len() - done) as u64;
                recorder.ends_early("interrupted".to_owned());
                break;
            };
            let result = self.step(&step, u64::from(*place) + 1, (&mut old, &mut new), &mut recorder);
            let done_ns = context.now_ns();
            recorder.heard(done_ns / 1_000, false);
            if let Err(error) = result {
                recorder.failed(began_ns / 1_000, error.message().as_bytes());
            }
            recorder.answered_ns(kind_of(step.action), began_ns, done_ns);
        }
        context.finish(&mut recorder);
        recorder
    }

    /// Waits until the operation is due. When it begins, by its latency, in nanoseconds; `None` once the run is stopped.
    fn wait(&self, step: &Step, context: &mut Context<'_>, recorder: &mut Recorder) -> Option<u64> {
        loop {
            let now_ns = context.now_ns();
            let now_us = now_ns / 1_000;
            context.tick(now_us, recorder);
            if context.is_stopped() {
                return None;
            }
            let intended_us = match self.pace {
                Pace::Recorded { speed } => {
                    context.start_us + ((step.time_us - self.began_us) as f64 / speed) as u64
                }
                Pace::AsFastAsPossible => {
                    recorder.awaits(now_us);
                    return Some(now_ns);
                }
            };
            if intended_us <= now_us {
                recorder.sent_late(intended_us, now_us);
                recorder.awaits(now_us);
                return Some(intended_us * 1_000);
            }
            pause((intended_us - now_us).min(PAUSE_MAX_US));
        }
    }

    fn step(
        &mut self,
        step: &Step,
        version: u64,
        (old, new): (&mut Vec<u8>, &mut Vec<u8>),
        recorder: &mut Recorder,
    ) -> Result<()> {
        let key = self.plan.keys.get(step.key);
        let target = &mut self.target;
        let mut is_found = false;
        if !matches!(step.action, Action::Write | Action::Delete) {
            is_found = again(|| {
                old.clear();
                target.get(key, old)
            })?;
            if is_found && check_value(u64::from(step.key), old).is_err() {
                recorder.verification_failures += 1;
            }
            recorder.bytes_received += old.len() as u64;
        }
        let assumed = self.plan.report().assumed_bytes;
        let told = if step.bytes == UNKNOWN { None } else { Some(step.bytes) };
        let size = match step.action {
            Action::Read => {
                recorder.misses += u64::from(!is_found);
                return Ok(());
            }
            Action::Delete => {
                recorder.bytes_sent += key.len() as u64;
                return again(|| target.delete(key)).map(drop);
            }
            Action::Replace | Action::Expire if !is_found => return Ok(()),
            Action::Add if is_found => return Ok(()),
            Action::Write | Action::Add | Action::Replace => told.unwrap_or(assumed),
            Action::Update if is_found => told.unwrap_or(old.len() as u32),
            Action::Update => told.unwrap_or(assumed),
            Action::Expire => old.len() as u32,
            Action::Append => {
                (old.len() as u32 * u32::from(is_found) + told.unwrap_or(0)).min(VALUE_BYTES_MAX)
            }
        };
        new.clear();
        self.values.append_sized(u64::from(step.key), version, size as usize, new);
        recorder.bytes_sent += (key.len() + new.len()) as u64;
        let expiry = (step.expiry_ms > 0).then(|| self.pace.shortened(step.expiry_ms));
        again(|| target.put(key, new, expiry))
    }
}

impl Pace {
    /// What an expiry becomes: at most a century, which a clock can be moved by.
    fn shortened(self, ms: u64) -> Duration {
        let speed = match self {
            Pace::Recorded { speed } => speed,
            Pace::AsFastAsPossible => 1.0,
        };
        Duration::from_secs_f64((ms as f64 / 1e3 / speed).clamp(1e-3, 3.2e9))
    }
}

fn kind_of(action: Action) -> OperationKind {
    match action {
        Action::Read => OperationKind::Get,
        Action::Write | Action::Delete => OperationKind::Set,
        Action::Add | Action::Replace | Action::Update | Action::Append | Action::Expire => {
            OperationKind::ReadModifyWrite
        }
    }
}
