//! What one thread counts during a run, and how the threads' counts become an outcome.

use std::collections::BTreeMap;

use tierstone_base::histogram::LatencyHistogram;

use crate::mix::OperationKind;
use crate::outcome::{KindOutcome, LatencySummary, Outcome};

/// Bytes of the first error's text that are kept.
const ERROR_TEXT_MAX_BYTES: usize = 256;

/// The counts of one thread.
#[derive(Debug)]
pub(crate) struct Recorder {
    histograms: [Option<Box<LatencyHistogram>>; OperationKind::ALL.len()],
    send_delay: LatencyHistogram,
    calls: LatencyHistogram,
    /// What begins before is warm-up.
    measured_from_us: u64,
    last_reply_us: u64,
    cpu_started_us: f64,
    cpu_us: f64,
    /// Since when replies are awaited without one; `None` when none is awaited.
    waiting_since_us: Option<u64>,
    longest_gap_us: u64,
    pub(crate) operations: u64,
    errors: u64,
    first_error: Option<String>,
    pub(crate) unanswered: u64,
    pub(crate) misses: u64,
    pub(crate) verification_failures: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) ended_early: Option<String>,
}

impl Recorder {
    /// Counts operations that begin at `measured_from_us` or later.
    pub(crate) fn new(measured_from_us: u64) -> Recorder {
        Recorder {
            histograms: [const { None }; OperationKind::ALL.len()],
            send_delay: LatencyHistogram::new(),
            calls: LatencyHistogram::new(),
            measured_from_us,
            last_reply_us: measured_from_us,
            cpu_started_us: 0.0,
            cpu_us: 0.0,
            waiting_since_us: None,
            longest_gap_us: 0,
            operations: 0,
            errors: 0,
            first_error: None,
            unanswered: 0,
            misses: 0,
            verification_failures: 0,
            bytes_sent: 0,
            bytes_received: 0,
            ended_early: None,
        }
    }

    /// Whether what begins at `time_us` counts.
    #[inline]
    pub(crate) fn is_measured(&self, time_us: u64) -> bool {
        time_us >= self.measured_from_us
    }

    /// The thread's processor time at the end of the warm-up.
    pub(crate) fn cpu_starts_at(&mut self, cpu_us: f64) {
        self.cpu_started_us = cpu_us;
    }

    /// The thread's processor time at the end.
    pub(crate) fn cpu_ends_at(&mut self, cpu_us: f64) {
        self.cpu_us = cpu_us - self.cpu_started_us;
    }

    /// An operation meant for `intended_us` went out at `now_us`.
    #[inline]
    pub(crate) fn sent_late(&mut self, intended_us: u64, now_us: u64) {
        if self.is_measured(intended_us) {
            self.send_delay.record_us(now_us.saturating_sub(intended_us));
        }
    }

    /// A call that was due at `began_us` lasted from `called_us` to `now_us`.
    #[inline]
    pub(crate) fn returned(&mut self, began_us: u64, called_us: u64, now_us: u64) {
        if self.is_measured(began_us) {
            self.calls.record_us(now_us.saturating_sub(called_us));
        }
    }

    /// From `now_us` on a reply is awaited, if none was before.
    #[inline]
    pub(crate) fn awaits(&mut self, now_us: u64) {
        if self.waiting_since_us.is_none() {
            self.waiting_since_us = Some(now_us.max(self.measured_from_us));
        }
    }

    /// Replies came at `now_us`; `awaits_more` tells whether others are still to come.
    #[inline]
    pub(crate) fn heard(&mut self, now_us: u64, awaits_more: bool) {
        if let Some(since) = self.waiting_since_us {
            self.longest_gap_us = self.longest_gap_us.max(now_us.saturating_sub(since));
        }
        self.waiting_since_us = awaits_more.then(|| now_us.max(self.measured_from_us));
    }

    /// Since when replies are awaited and none has come.
    pub(crate) fn silent_since_us(&self) -> Option<u64> {
        self.waiting_since_us
    }

    /// An operation of `kind` that began at `began_us` was answered at `now_us`.
    #[inline]
    pub(crate) fn answered(&mut self, kind: OperationKind, began_us: u64, now_us: u64) {
        self.answered_ns(kind, began_us * 1_000, now_us * 1_000);
    }

    /// The same by times in nanoseconds: for calls that take less than a microsecond.
    #[inline]
    pub(crate) fn answered_ns(&mut self, kind: OperationKind, began_ns: u64, now_ns: u64) {
        if !self.is_measured(began_ns / 1_000) {
            return;
        }
        self.operations += 1;
        self.last_reply_us = self.last_reply_us.max(now_ns / 1_000);
        self.histograms[kind as usize].get_or_insert_default().record_ns(now_ns.saturating_sub(began_ns));
    }

    /// A record that was asked for at `began_us` is not there.
    #[inline]
    pub(crate) fn missed(&mut self, began_us: u64) {
        if self.is_measured(began_us) {
            self.misses += 1;
        }
    }

    /// The answer was an error.
    #[cold]
    pub(crate) fn failed(&mut self, began_us: u64, text: &[u8]) {
        if self.is_measured(began_us) {
            self.errors += 1;
        }
        if self.first_error.is_none() {
            let text = &text[..text.len().min(ERROR_TEXT_MAX_BYTES)];
            self.first_error = Some(String::from_utf8_lossy(text).trim().to_string());
        }
    }

    /// The run of this thread ends before its time; the first reason stays.
    #[cold]
    pub(crate) fn ends_early(&mut self, reason: String) {
        self.ended_early.get_or_insert(reason);
    }
}

/// Puts the threads' counts together.
pub(crate) fn combine(recorders: Vec<Recorder>, rate_intended: Option<f64>) -> Outcome {
    let mut outcome = Outcome { rate_intended, ..Outcome::default() };
    let mut kinds: BTreeMap<OperationKind, LatencyHistogram> = BTreeMap::new();
    let (mut send_delay, mut calls) = (LatencyHistogram::new(), LatencyHistogram::new());
    let (mut cpu_us, mut last_reply_us, mut measured_from_us) = (0.0, 0, u64::MAX);
    for recorder in recorders {
        outcome.operations += recorder.operations;
        outcome.errors += recorder.errors;
        outcome.unanswered += recorder.unanswered;
        outcome.misses += recorder.misses;
        outcome.verification_failures += recorder.verification_failures;
        outcome.bytes_sent += recorder.bytes_sent;
        outcome.bytes_received += recorder.bytes_received;
        outcome.longest_gap_us = outcome.longest_gap_us.max(recorder.longest_gap_us);
        outcome.first_error = outcome.first_error.or(recorder.first_error);
        outcome.ended_early = outcome.ended_early.or(recorder.ended_early);
        cpu_us += recorder.cpu_us;
        last_reply_us = last_reply_us.max(recorder.last_reply_us);
        measured_from_us = measured_from_us.min(recorder.measured_from_us);
        send_delay.merge(&recorder.send_delay);
        calls.merge(&recorder.calls);
        for (kind, histogram) in OperationKind::ALL.into_iter().zip(&recorder.histograms) {
            if let Some(histogram) = histogram {
                kinds.entry(kind).or_default().merge(histogram);
            }
        }
    }
    outcome.seconds = last_reply_us.saturating_sub(measured_from_us) as f64 / 1e6;
    if outcome.operations > 0 {
        outcome.rate = outcome.operations as f64 / outcome.seconds.max(1e-6);
        outcome.client_cpu_us_per_operation = cpu_us / outcome.operations as f64;
    }
    if let Some(intended) = rate_intended {
        outcome.rate_error = Some((outcome.rate - intended) / intended);
        outcome.send_delay = Some(LatencySummary::from(&send_delay));
        outcome.call_latency = (calls.count() > 0).then(|| LatencySummary::from(&calls));
    }
    let mut all = LatencyHistogram::new();
    for (kind, histogram) in kinds {
        all.merge(&histogram);
        let latency = LatencySummary::from(&histogram);
        outcome.kinds.insert(kind, KindOutcome { operations: latency.count, latency, histogram });
    }
    outcome.latency = LatencySummary::from(&all);
    outcome
}

#[cfg(test)]
#[path = "recorder_test.rs"]
mod recorder_test;
