//! When the records of a segment expire: some numbers a segment, kept where records are appended and where
//! the index stops pointing to them.
//!
//! Invariant: what a profile calls due at a time is never more than what has expired by then. Times are
//! rounded up, buckets are merged into the later one, and a record that goes is taken out of the earliest
//! bucket that it may be in: each record that is left can be matched with a bucket that ends after it.

/// Buckets a profile has at most: 24 bytes each.
const BUCKETS_MAX: usize = 16;
/// Times are rounded up to multiples of this, in milliseconds.
const GRAIN_MS: u64 = 1 << 10;

/// Records and their units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Weight {
    pub records: u32,
    pub units: u32,
}

impl Weight {
    fn add(&mut self, other: Weight) {
        self.records = self.records.saturating_add(other.records);
        self.units = self.units.saturating_add(other.units);
    }

    /// Takes as much of `other` out as there is of it.
    fn take(&mut self, other: &mut Weight) {
        let taken = Weight { records: self.records.min(other.records), units: self.units.min(other.units) };
        for weight in [self, other] {
            weight.records -= taken.records;
            weight.units -= taken.units;
        }
    }
}

/// What becomes of a record that has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trace {
    /// Nothing: no older version of its key can come back.
    None,
    /// It counts as a tombstone, for as long as one would be needed.
    Tombstone,
}

/// What has expired, by what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Due {
    /// Without a trace.
    pub loose: Weight,
    /// As tombstones.
    pub tied: Weight,
}

impl Due {
    fn of(&mut self, trace: Trace) -> &mut Weight {
        match trace {
            Trace::None => &mut self.loose,
            Trace::Tombstone => &mut self.tied,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// All in it have expired at this time.
    until_ms: u64,
    due: Due,
}

/// When a segment's records expire, those that the index points to.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExpiryProfile {
    /// By time.
    buckets: Vec<Bucket>,
}

impl ExpiryProfile {
    /// Adds a record. Cost: a look at the last bucket where times grow, at most at all of them.
    pub fn add(&mut self, expiry_ms: u64, trace: Trace, units: u32) {
        let until_ms = expiry_ms.saturating_add(GRAIN_MS - 1) / GRAIN_MS * GRAIN_MS;
        let place = self.first_until(until_ms);
        if self.buckets.get(place).is_none_or(|bucket| bucket.until_ms != until_ms) {
            self.buckets.insert(place, Bucket { until_ms, due: Due::default() });
        }
        self.buckets[place].due.of(trace).add(Weight { records: 1, units });
        if self.buckets.len() > BUCKETS_MAX {
            self.merge_closest();
        }
    }

    /// The index does not point to a record any more that was [added](Self::add).
    pub fn remove(&mut self, expiry_ms: u64, trace: Trace, units: u32) {
        let mut left = Weight { records: 1, units };
        let place = self.first_until(expiry_ms);
        for bucket in &mut self.buckets[place..] {
            bucket.due.of(trace).take(&mut left);
        }
        self.buckets.retain(|bucket| bucket.due != Due::default());
    }

    /// What has expired at `wall_ms`, at least.
    pub fn due(&self, wall_ms: u64) -> Due {
        let mut sum = Due::default();
        for bucket in self.buckets.iter().take_while(|bucket| bucket.until_ms <= wall_ms) {
            sum.loose.add(bucket.due.loose);
            sum.tied.add(bucket.due.tied);
        }
        sum
    }

    /// When more than now will have expired; `None`: never.
    pub fn next_ms(&self, wall_ms: u64) -> Option<u64> {
        self.buckets.iter().map(|bucket| bucket.until_ms).find(|&until_ms| until_ms > wall_ms)
    }

    /// When at least one record will have expired, the earliest such time; `None` when none expires.
    pub fn first_ms(&self) -> Option<u64> {
        self.buckets.first().map(|bucket| bucket.until_ms)
    }

    /// How many units expire until when, in the order of time.
    pub fn by_time(&self) -> impl Iterator<Item = (u64, u64)> {
        let units = |due: &Due| u64::from(due.loose.units) + u64::from(due.tied.units);
        self.buckets.iter().map(move |bucket| (bucket.until_ms, units(&bucket.due)))
    }

    fn first_until(&self, until_ms: u64) -> usize {
        self.buckets.partition_point(|bucket| bucket.until_ms < until_ms)
    }

    /// Merges a bucket into the next: the one whose records this makes wait least, together.
    fn merge_closest(&mut self) {
        let wait = |pair: &[Bucket]| {
            let records = u64::from(pair[0].due.loose.records) + u64::from(pair[0].due.tied.records);
            records.saturating_mul(pair[1].until_ms - pair[0].until_ms)
        };
        let closest = self.buckets.windows(2).enumerate().min_by_key(|(_, pair)| wait(pair));
        if let Some((place, _)) = closest {
            let earlier = self.buckets.remove(place);
            self.buckets[place].due.loose.add(earlier.due.loose);
            self.buckets[place].due.tied.add(earlier.due.tied);
        }
    }
}

#[cfg(test)]
#[path = "profile_test.rs"]
mod profile_test;
