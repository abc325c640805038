//! What is written: one value with its options, or several changes that happen together.
//!
//! Invariant: a [`Batch`] owns copies of its keys and values in one piece of memory; it may be cleared
//! and filled again without allocating.

use std::time::Duration;
use tierstone_base::Now;

/// When a value stops being there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiry {
    /// Never.
    #[default]
    Never,
    /// So long after the call that writes it, by the wall clock; counted in whole milliseconds.
    In(Duration),
    /// At this time, in milliseconds since 1970. A time in the past makes the value absent at once.
    At(u64),
}

impl Expiry {
    /// The time in milliseconds since 1970 that a record carries; zero: never.
    pub(crate) fn at_ms(self, now: Now) -> u64 {
        match self {
            Expiry::Never => 0,
            Expiry::In(duration) => {
                let milliseconds = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
                now.wall_ms.saturating_add(milliseconds).max(1)
            }
            // Zero means "never" in a record; the first millisecond of 1970 has passed all the same.
            Expiry::At(time_ms) => time_ms.max(1),
        }
    }
}

/// When a value that is on its way to a shard stops being there. The wall clock of a shard never goes back, so that it may be
/// ahead of the caller's; the monotonic one is the same for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Until {
    #[default]
    Never,
    /// By the wall clock, in milliseconds since 1970.
    Time(u64),
    /// By the monotonic clock, in microseconds.
    Moment(u64),
}

impl Until {
    /// What `expiry` means in a call that is made now; `now` is asked only where that matters.
    pub(crate) fn of(expiry: Expiry, now: impl FnOnce() -> Now) -> Until {
        match expiry {
            Expiry::Never => Until::Never,
            Expiry::At(time_ms) => Until::Time(time_ms),
            Expiry::In(duration) => {
                let lasts_us = u64::try_from(duration.as_millis()).ok().and_then(|ms| ms.checked_mul(1_000));
                let moment_us = lasts_us.and_then(|us| now().monotonic_us.checked_add(us));
                moment_us.map_or(Until::Time(u64::MAX), Until::Moment)
            }
        }
    }

    /// The time in milliseconds since 1970 that a record carries, by a shard's clocks; zero: never.
    pub(crate) fn at_ms(self, now: Now) -> u64 {
        match self {
            Until::Never => 0,
            Until::Time(time_ms) => Expiry::At(time_ms).at_ms(now),
            Until::Moment(at_us) => {
                let left_ms = at_us.saturating_sub(now.monotonic_us).div_ceil(1_000);
                now.wall_ms.saturating_add(left_ms).max(1)
            }
        }
    }
}

/// How a value is put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// When it stops being there. Default: never.
    pub expiry: Expiry,
}

impl PutOptions {
    /// A value that is gone after `duration`.
    pub fn expires_in(duration: Duration) -> Self {
        PutOptions { expiry: Expiry::In(duration) }
    }
}

/// Puts and deletes that happen together: after a crash all of them are there or none.
///
/// They are applied in order, so that the last change of a key wins. Keys may lie in any shards; those with
/// a common hash tag (`{user:7}name`, `{user:7}mail`) lie in one, which costs less.
///
/// ```
/// let mut batch = tierstone::Batch::new();
/// batch.put(b"from", b"90").put(b"to", b"110").delete(b"pending");
/// assert_eq!(batch.len(), 3);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    changes: Vec<Change>,
    /// Names of keyspaces, each once.
    names: Vec<String>,
    place: Place,
}

/// Where a change is.
#[derive(Clone, Copy, Debug)]
enum Place {
    Number(u32),
    /// By its place in the batch's names.
    Name(usize),
}

impl Default for Place {
    fn default() -> Self {
        Place::Number(0)
    }
}

#[derive(Clone, Copy, Debug)]
struct Change {
    place: Place,
    start: usize,
    key_len: usize,
    value_len: usize,
    /// `None`: a delete.
    put: Option<Expiry>,
}

/// What a caller calls a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyspaceName<'a> {
    Number(u32),
    Name(&'a str),
}

/// One change of a batch, borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchChange<'a> {
    pub keyspace: KeyspaceName<'a>,
    pub key: &'a [u8],
    /// The value and its expiry; `None`: a delete.
    pub put: Option<(&'a [u8], Expiry)>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// The changes that follow are in the numbered database `database`; 0 to begin with.
    pub fn in_database(&mut self, database: u32) -> &mut Self {
        self.place = Place::Number(database);
        self
    }

    /// The changes that follow are in the keyspace `name`, which must exist when the batch is written.
    pub fn in_keyspace(&mut self, name: &str) -> &mut Self {
        let known = self.names.iter().position(|known| known == name);
        self.place = Place::Name(known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        }));
        self
    }

    /// Adds a put.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> &mut Self {
        self.put_with(key, value, PutOptions::default())
    }

    /// Adds a put with options.
    pub fn put_with(&mut self, key: &[u8], value: &[u8], options: PutOptions) -> &mut Self {
        self.push(key, value, Some(options.expiry))
    }

    /// Adds a delete. Deleting what is not there is no error.
    pub fn delete(&mut self, key: &[u8]) -> &mut Self {
        self.push(key, &[], None)
    }

    /// How many changes there are.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Forgets all changes and keeps the memory, for the next batch; back to database 0.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.changes.clear();
        self.names.clear();
        self.place = Place::default();
    }

    fn push(&mut self, key: &[u8], value: &[u8], put: Option<Expiry>) -> &mut Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let place = self.place;
        self.changes.push(Change { place, start, key_len: key.len(), value_len: value.len(), put });
        self
    }

    pub(crate) fn changes(&self) -> impl Iterator<Item = BatchChange<'_>> {
        self.changes.iter().map(|change| {
            let (key, rest) = self.bytes[change.start..].split_at(change.key_len);
            let put = change.put.map(|expiry| (&rest[..change.value_len], expiry));
            let keyspace = match change.place {
                Place::Number(number) => KeyspaceName::Number(number),
                Place::Name(place) => KeyspaceName::Name(&self.names[place]),
            };
            BatchChange { keyspace, key, put }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_keeps_order_databases_and_bytes_and_is_reusable() {
        let mut batch = Batch::new();
        batch
            .put(b"a", b"1")
            .in_database(3)
            .put_with(b"", b"", PutOptions { expiry: Expiry::At(0) })
            .delete(b"bb")
            .in_keyspace("users")
            .delete(b"c")
            .in_keyspace("logs")
            .in_keyspace("users")
            .put(b"d", b"4");
        let seen: Vec<_> =
            batch.changes().map(|c| (c.keyspace, c.key.to_vec(), c.put.map(|p| p.0.to_vec()))).collect();
        let (number, name) = (KeyspaceName::Number, KeyspaceName::Name);
        assert_eq!(
            seen,
            [
                (number(0), b"a".to_vec(), Some(b"1".to_vec())),
                (number(3), vec![], Some(vec![])),
                (number(3), b"bb".to_vec(), None),
                (name("users"), b"c".to_vec(), None),
                (name("users"), b"d".to_vec(), Some(b"4".to_vec())),
            ]
        );
        batch.clear();
        assert!(batch.is_empty() && batch.changes().next().is_none());
        assert_eq!(batch.put(b"x", b"").changes().next().unwrap().keyspace, number(0));
    }

    #[test]
    fn an_expiry_never_becomes_the_number_that_means_never() {
        let now = Now { monotonic_us: 0, wall_ms: 1_000 };
        assert_eq!(Expiry::Never.at_ms(now), 0);
        assert_eq!(Expiry::At(0).at_ms(now), 1);
        assert_eq!(Expiry::In(Duration::from_secs(2)).at_ms(now), 3_000);
        assert_eq!(Expiry::In(Duration::MAX).at_ms(now), u64::MAX);
    }

    #[test]
    fn a_value_on_its_way_lasts_as_long_by_a_clock_that_is_ahead_and_its_way_counts() {
        let caller = Now { monotonic_us: 7_000, wall_ms: 1_000 };
        let until = |expiry| Until::of(expiry, || caller);
        let ahead = Now { monotonic_us: 7_300, wall_ms: 90_000 };
        assert_eq!(until(Expiry::Never).at_ms(ahead), 0);
        assert_eq!(until(Expiry::At(0)).at_ms(ahead), 1);
        assert_eq!(until(Expiry::At(5_000)).at_ms(ahead), 5_000);
        assert_eq!(until(Expiry::In(Duration::from_secs(2))).at_ms(ahead), 92_000);
        let later = Now { monotonic_us: 1_507_000, wall_ms: 91_500 };
        assert_eq!(until(Expiry::In(Duration::from_secs(2))).at_ms(later), 92_000);
        assert_eq!(
            until(Expiry::In(Duration::from_secs(1))).at_ms(later),
            91_500,
            "it has passed on the way"
        );
        assert_eq!(until(Expiry::In(Duration::MAX)).at_ms(ahead), u64::MAX);
    }
}
