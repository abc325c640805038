//! How fast live records grow: what a forecast of full space stands on.
//!
//! Live bytes are noted at growing distances, 15 seconds at first and 15 minutes at last, so that the trend of
//! the last half hour is told soon and that of about a day and a half once there is one. Invariant: at most
//! [`NOTES_MAX`] notes are kept, in order of time; cost: one comparison a step.

/// Notes at most.
const NOTES_MAX: usize = 128;
/// Fewer tell nothing.
const NOTES_MIN: usize = 4;
/// The first distance between two notes, in microseconds.
const DISTANCE_MIN_US: u64 = 15_000_000;
/// The last.
const DISTANCE_MAX_US: u64 = 960_000_000;
const DAY_US: f64 = 86_400e6;

/// Live bytes over time.
#[derive(Debug)]
pub(crate) struct Growth {
    /// Time in microseconds and live bytes then.
    notes: Vec<(u64, u64)>,
    distance_us: u64,
}

impl Default for Growth {
    fn default() -> Self {
        Growth { notes: Vec::new(), distance_us: DISTANCE_MIN_US }
    }
}

impl Growth {
    /// Whether it is time for a note.
    pub fn is_due(&self, now_us: u64) -> bool {
        self.notes.last().is_none_or(|(noted_us, _)| now_us.saturating_sub(*noted_us) >= self.distance_us)
    }

    /// Notes what is live now.
    pub fn note(&mut self, now_us: u64, live_bytes: u64) {
        if self.notes.len() == NOTES_MAX {
            if self.distance_us < DISTANCE_MAX_US {
                self.distance_us *= 2;
                let mut place = 0;
                self.notes.retain(|_| {
                    place += 1;
                    place % 2 == 0
                });
            } else {
                self.notes.remove(0);
            }
        }
        self.notes.push((now_us, live_bytes));
    }

    /// The trend in bytes a day, by least squares; 0 until there are enough notes.
    pub fn bytes_per_day(&self) -> i64 {
        let (Some(&(first_us, first_bytes)), true) = (self.notes.first(), self.notes.len() >= NOTES_MIN)
        else {
            return 0;
        };
        let count = self.notes.len() as f64;
        // From the first note on, so that no precision is lost to large numbers.
        let at = |&(us, bytes): &(u64, u64)| ((us - first_us) as f64, bytes as f64 - first_bytes as f64);
        let (sum_us, sum_bytes) = self.notes.iter().map(at).fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
        let (mean_us, mean_bytes) = (sum_us / count, sum_bytes / count);
        let (both, spread) = self.notes.iter().map(at).fold((0.0, 0.0), |(both, spread), (us, bytes)| {
            (both + (us - mean_us) * (bytes - mean_bytes), spread + (us - mean_us).powi(2))
        });
        (both / spread * DAY_US) as i64
    }
}

#[cfg(test)]
#[path = "growth_test.rs"]
mod growth_test;
