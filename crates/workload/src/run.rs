//! The threads of a run, their common start, their progress and their end.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

use tierstone_base::{Clock, Error, ErrorKind, Result, SystemClock};

use crate::pacing::{Extent, Pacing};
use crate::recorder::Recorder;

/// How often a thread reports, in microseconds.
const REPORT_INTERVAL_US: u64 = 100_000;

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Operations answered so far, warm-up excluded.
    pub operations: u64,
    /// How many there will be, where that is known.
    pub operations_total: Option<u64>,
    /// Seconds since the start, warm-up included.
    pub seconds: f64,
    /// How many there will be, where that is known.
    pub seconds_total: Option<f64>,
}

/// Where a thread tells how many operations it has answered since it told last.
enum Reports<'a> {
    /// To the thread that started it.
    Started(Sender<u64>),
    /// To the caller, whose own thread it is.
    Own(&'a mut dyn FnMut(u64)),
}

/// What a thread of a run gets.
pub(crate) struct Context<'a> {
    pub(crate) thread: usize,
    pub(crate) clock: SystemClock,
    pub(crate) start_us: u64,
    /// The end of the warm-up.
    pub(crate) measured_from_us: u64,
    /// When to stop, if the run has a length in time.
    pub(crate) end_us: Option<u64>,
    /// How many operations this thread counts, if the run has a length in operations.
    pub(crate) operations: Option<u64>,
    stop: &'a AtomicBool,
    reports: Reports<'a>,
    reported: u64,
    next_report_us: u64,
    is_warm: bool,
}

impl Context<'_> {
    /// Microseconds of the run's clock.
    #[inline]
    pub(crate) fn now_us(&self) -> u64 {
        self.clock.now().monotonic_us
    }

    /// The same in nanoseconds.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.monotonic_ns()
    }

    /// Whether the caller wants the run to end.
    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Reports what `recorder` has counted, if it is time to; marks the end of the warm-up.
    #[inline]
    pub(crate) fn tick(&mut self, now_us: u64, recorder: &mut Recorder) {
        if !self.is_warm && now_us >= self.measured_from_us {
            self.is_warm = true;
            recorder.cpu_starts_at(thread_cpu_us());
        }
        if now_us >= self.next_report_us {
            self.next_report_us = now_us + REPORT_INTERVAL_US;
            self.report(recorder);
        }
    }

    fn report(&mut self, recorder: &Recorder) {
        let more = recorder.operations - self.reported;
        match &mut self.reports {
            // The receiver outlives all threads of the run.
            Reports::Started(reports) => drop(reports.send(more)),
            Reports::Own(report) => report(more),
        }
        self.reported = recorder.operations;
    }

    /// The thread's work is done.
    pub(crate) fn finish(&mut self, recorder: &mut Recorder) {
        if !self.is_warm {
            recorder.cpu_starts_at(thread_cpu_us());
        }
        recorder.cpu_ends_at(thread_cpu_us());
        self.report(recorder);
    }
}

/// Processor time of the calling thread, in microseconds.
fn thread_cpu_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Waits `wait_us` microseconds: until the next intended time of an open loop.
pub(crate) fn pause(wait_us: u64) {
    let time = rustix::event::Timespec {
        tv_sec: (wait_us / 1_000_000) as i64,
        tv_nsec: ((wait_us % 1_000_000) * 1000) as i64,
    };
    // An interrupted wait is a short one: the caller looks at the clock again.
    let _ = rustix::event::poll(&mut [], Some(&time));
}

/// Lets the kernel wake this thread as exactly as it can: by default it may be 50 µs late.
pub(crate) fn wake_exactly() {
    // Where it is refused, the send delay shows the difference.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Runs `body` once for each of `parts` on a thread of its own; `progress` is called on the caller's
/// thread about ten times a second and ends the run with `Break`.
///
/// `operations_total` is the length of a walk; else the pacing's extent counts.
pub(crate) fn run_threads<T: Send>(
    pacing: &Pacing,
    operations_total: Option<u64>,
    parts: Vec<T>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    body: impl Fn(T, &mut Context<'_>) -> Recorder + Sync,
) -> Result<Vec<Recorder>> {
    let clock = SystemClock::new();
    let start_us = clock.now().monotonic_us;
    let measured_from_us = start_us + (pacing.warmup_seconds * 1e6) as u64;
    let (end_us, total) = match (operations_total, pacing.extent) {
        (Some(total), _) => (None, Some(total)),
        (None, Extent::Operations(total)) => (None, Some(total)),
        (None, Extent::Seconds(seconds)) => (Some(measured_from_us + (seconds * 1e6) as u64), None),
    };
    let stop = AtomicBool::new(false);
    let count = parts.len() as u64;
    let (reports, reported) = channel();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (thread, part) in parts.into_iter().enumerate() {
            let share = |total: u64| total / count + u64::from((thread as u64) < total % count);
            // A walk ends by itself.
            let operations = if operations_total.is_some() { None } else { total.map(share) };
            let (body, stop, reports) = (&body, &stop, reports.clone());
            let started =
                std::thread::Builder::new().name(format!("load-{thread}")).spawn_scoped(scope, move || {
                    let mut context = Context {
                        thread,
                        clock,
                        start_us,
                        measured_from_us,
                        end_us,
                        operations,
                        stop,
                        reports: Reports::Started(reports),
                        reported: 0,
                        next_report_us: start_us,
                        is_warm: false,
                    };
                    body(part, &mut context)
                });
            match started {
                Ok(handle) => threads.push(handle),
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    return Err(Error::from(error).context("start a thread of the load generator"));
                }
            }
        }
        drop(reports);
        let mut operations = 0;
        // Ends when the last thread drops its sender.
        for more in reported {
            operations += more;
            let now = Progress {
                operations,
                operations_total: total,
                seconds: (clock.now().monotonic_us - start_us) as f64 / 1e6,
                seconds_total: end_us.map(|end| (end - start_us) as f64 / 1e6),
            };
            if progress(now).is_break() {
                stop.store(true, Ordering::Relaxed);
            }
        }
        let panicked = |_| Error::new(ErrorKind::Retry, "a thread of the load generator failed");
        threads.into_iter().map(|thread| thread.join().map_err(panicked)).collect()
    })
}

/// Runs `body` once, on the caller's own thread; else as [`run_threads`].
pub(crate) fn run_here(
    pacing: &Pacing,
    operations_total: Option<u64>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    body: impl FnOnce(&mut Context<'_>) -> Recorder,
) -> Recorder {
    let clock = SystemClock::new();
    let start_us = clock.now().monotonic_us;
    let measured_from_us = start_us + (pacing.warmup_seconds * 1e6) as u64;
    let (end_us, operations) = match pacing.extent {
        _ if operations_total.is_some() => (None, None),
        Extent::Operations(total) => (None, Some(total)),
        Extent::Seconds(seconds) => (Some(measured_from_us + (seconds * 1e6) as u64), None),
    };
    let stop = AtomicBool::new(false);
    let mut done = 0;
    let mut report = |more: u64| {
        done += more;
        let now = Progress {
            operations: done,
            operations_total: operations_total.or(operations),
            seconds: (clock.now().monotonic_us - start_us) as f64 / 1e6,
            seconds_total: end_us.map(|end| (end - start_us) as f64 / 1e6),
        };
        if progress(now).is_break() {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let mut context = Context {
        thread: 0,
        clock,
        start_us,
        measured_from_us,
        end_us,
        operations,
        stop: &stop,
        reports: Reports::Own(&mut report),
        reported: 0,
        next_report_us: start_us,
        is_warm: false,
    };
    body(&mut context)
}
