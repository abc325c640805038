//! What each second of a soak was like, and the whole of it.

use serde::Serialize;
use tierstone_base::histogram::LatencyHistogram;

use crate::outcome::LatencySummary;

/// One second. Latencies are those of the operations that were answered in it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Second {
    /// Its end, in seconds from the start of the run.
    pub at_s: f64,
    /// Latencies from the intended time (open loop) or the sending (closed loop).
    pub latency: LatencySummary,
    /// The longest time in which replies were awaited and none came, in microseconds.
    pub gap_us: u64,
    /// How late the latest operation left, in microseconds.
    pub late_us: u64,
    /// Operations under way at its end.
    pub under_way: u64,
    /// Pages of the walk so far.
    pub pages: u64,
    /// Whole walks so far.
    pub walks: u64,
    /// Wrong answers so far.
    pub faults: u64,
}

/// A whole run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Whole {
    /// From the start to the last reply.
    pub seconds: f64,
    /// Operations answered in a second.
    pub rate: f64,
    /// Latencies of the whole run.
    pub latency: LatencySummary,
    /// Those of its first, second and last third; empty where no time was set.
    pub thirds: [LatencySummary; 3],
    /// Of the walk's pages.
    pub pages: LatencySummary,
    /// The longest time in which replies were awaited and none came, in microseconds.
    pub gap_us: u64,
    /// Whole walks.
    pub walks: u64,
    /// Operations that were never answered.
    pub unanswered: u64,
}

/// Counts as replies come.
#[derive(Debug)]
pub(super) struct Seconds {
    start_us: u64,
    third_us: Option<u64>,
    next_us: u64,
    now: LatencyHistogram,
    whole: LatencyHistogram,
    thirds: [LatencyHistogram; 3],
    pub(super) pages: LatencyHistogram,
    waiting_since_us: Option<u64>,
    last_reply_us: u64,
    gap_us: u64,
    longest_gap_us: u64,
    late_us: u64,
}

impl Seconds {
    /// `seconds`: how long the run is to be, where that is known.
    pub(super) fn new(start_us: u64, seconds: Option<f64>) -> Seconds {
        Seconds {
            start_us,
            third_us: seconds.map(|seconds| ((seconds * 1e6 / 3.0) as u64).max(1)),
            next_us: start_us + 1_000_000,
            now: LatencyHistogram::new(),
            whole: LatencyHistogram::new(),
            thirds: [(); 3].map(|()| LatencyHistogram::new()),
            pages: LatencyHistogram::new(),
            waiting_since_us: None,
            last_reply_us: start_us,
            gap_us: 0,
            longest_gap_us: 0,
            late_us: 0,
        }
    }

    /// An operation meant for `intended_us` left at `now_us`.
    pub(super) fn left(&mut self, intended_us: u64, now_us: u64) {
        self.late_us = self.late_us.max(now_us.saturating_sub(intended_us));
        self.waiting_since_us.get_or_insert(now_us);
    }

    /// An operation that began at `began_us` was answered.
    pub(super) fn answered(&mut self, began_us: u64, now_us: u64) {
        let us = now_us.saturating_sub(began_us);
        self.now.record_us(us);
        self.whole.record_us(us);
        if let Some(third_us) = self.third_us {
            let third = (now_us - self.start_us) / third_us;
            self.thirds[third.min(2) as usize].record_us(us);
        }
        self.last_reply_us = now_us;
    }

    /// Replies have come; `awaits_more`: others are still to come.
    pub(super) fn heard(&mut self, now_us: u64, awaits_more: bool) {
        self.note_gap(now_us);
        self.waiting_since_us = awaits_more.then_some(now_us);
    }

    fn note_gap(&mut self, now_us: u64) {
        let gap_us = self.waiting_since_us.map_or(0, |since_us| now_us.saturating_sub(since_us));
        self.gap_us = self.gap_us.max(gap_us);
        self.longest_gap_us = self.longest_gap_us.max(gap_us);
    }

    /// For how long no reply has come although one is awaited.
    pub(super) fn silent_us(&self, now_us: u64) -> u64 {
        self.waiting_since_us.map_or(0, |since_us| now_us.saturating_sub(since_us))
    }

    /// When the second ends that is under way.
    pub(super) fn next_us(&self) -> u64 {
        self.next_us
    }

    /// The second that has ended, if one has; what counts elsewhere is left to the caller.
    pub(super) fn ended(&mut self, now_us: u64) -> Option<Second> {
        if now_us < self.next_us {
            return None;
        }
        // A gap that is still open counts in each second that it lasts.
        self.note_gap(now_us);
        let second = Second {
            at_s: (now_us - self.start_us) as f64 / 1e6,
            latency: LatencySummary::from(&self.now),
            gap_us: self.gap_us,
            late_us: self.late_us,
            ..Second::default()
        };
        self.now.clear();
        (self.gap_us, self.late_us) = (0, 0);
        while self.next_us <= now_us {
            self.next_us += 1_000_000;
        }
        Some(second)
    }

    pub(super) fn whole(&self) -> Whole {
        let seconds = (self.last_reply_us - self.start_us) as f64 / 1e6;
        Whole {
            seconds,
            rate: self.whole.count() as f64 / seconds.max(1e-6),
            latency: LatencySummary::from(&self.whole),
            thirds: [0, 1, 2].map(|third| LatencySummary::from(&self.thirds[third])),
            pages: LatencySummary::from(&self.pages),
            gap_us: self.longest_gap_us,
            ..Whole::default()
        }
    }
}
