//! Old records that refused writes wait for: fetched once and held until the write has come again.
//!
//! A write that cannot tell whether an old record is its key's is refused with `Retry` and comes again.
//! Would its records be held for a while only, or be left to the cache, then many such writes at once
//! could push each other's records out for ever.
//!
//! Invariants:
//! 1. A reservation belongs to the keys of one write call: the same keys come again to the same one. What
//!    it holds it gives back only when the write was applied, was refused for want of space, or has not
//!    come again for [`PATIENCE_US`] after its last record came.
//! 2. A write gets all the records that it needs, or none: nobody holds some and waits for a place.
//! 3. There is a place while the reservations have fewer than `reads_in_flight_max` keys together. Reads
//!    end, and invariant 1 then ends every reservation, so a place comes; a batch of any size takes one.
//!
//! So of those who come again one always goes on: its records are all held at the same time, and only a
//! newer write of the same keys, which has gone on itself, or the cleaner, which moves a record once in
//! the life of its segment, makes it fetch anything again.
//!
//! Who owns the data: [`Reads`](crate::reads::Reads); a crash leaves nothing.

use crate::shard::LogShard;
use tierstone_base::checksum::checksum;
use tierstone_base::collections::{Map, Set};
use tierstone_base::{KeyspaceId, Position, Token};
use tierstone_engine::Key;

/// How long records are held for a write that does not come again, in microseconds.
const PATIENCE_US: u64 = 1_000_000;
/// How often it is looked for those, in microseconds.
const LOOK_US: u64 = 100_000;

/// The write call that a reservation is for: a digest of its keys in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Writer(u64);

#[derive(Debug)]
struct Reservation {
    token: Token,
    keys: usize,
    /// Since when its records are there and nobody has come, as far as is known.
    idle_since_us: Option<u64>,
}

/// All reservations of a shard.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    by_writer: Map<Writer, Reservation>,
    /// Keys of all together.
    keys: usize,
    next_look_us: u64,
}

impl Reservations {
    /// When it is looked for those that nobody came for; `None` when there are none.
    pub fn next_look_us(&self) -> Option<u64> {
        (!self.by_writer.is_empty()).then_some(self.next_look_us)
    }
}

impl Writer {
    /// The one who writes `keys`. Cost: one checksum a key.
    pub fn of<'k>(keys: impl Iterator<Item = &'k Key<'k>>) -> Writer {
        Writer(keys.fold(0, |digest, key| {
            let salt = digest ^ key.position.0.rotate_left(32) ^ u64::from(key.keyspace.0);
            checksum(salt, key.bytes).rotate_left(1)
        }))
    }
}

impl LogShard {
    /// Fetches what is needed to know the old records of `unknown`, keys of a write by `writer`, and holds
    /// it until the write has come again. Does nothing while reads for it are under way, or when there is
    /// no place.
    pub(crate) fn reserve<'k>(&mut self, writer: Writer, unknown: impl Iterator<Item = &'k Key<'k>>) {
        let reservations = &mut self.reads.reservations;
        let token = match reservations.by_writer.get_mut(&writer) {
            Some(known) => {
                let is_coming =
                    self.reads.fetches.get(&known.token).is_some_and(|fetch| fetch.outstanding > 0);
                if is_coming {
                    return;
                }
                known.idle_since_us = None;
                known.token
            }
            None if reservations.keys >= self.settings.reads_in_flight_max => return,
            None => {
                if reservations.by_writer.is_empty() {
                    reservations.next_look_us = self.now.monotonic_us + LOOK_US;
                }
                self.reads.own_token()
            }
        };
        // All keys of one position have the same candidates.
        let mut places: Set<(KeyspaceId, Position)> = Set::default();
        for key in unknown {
            if places.insert((key.keyspace, key.position)) {
                self.start_fetch(token, key);
            }
        }
        let reservations = &mut self.reads.reservations;
        let keys = places.len();
        let entry = reservations.by_writer.entry(writer);
        let reservation = entry.or_insert(Reservation { token, keys: 0, idle_since_us: None });
        reservation.keys += keys;
        reservations.keys += keys;
    }

    /// Whether anything is reserved for anybody.
    pub(crate) fn has_reservations(&self) -> bool {
        !self.reads.reservations.by_writer.is_empty()
    }

    /// Whether reads for `writer` are under way.
    pub(crate) fn is_reservation_coming(&self, writer: Writer) -> bool {
        let known = self.reads.reservations.by_writer.get(&writer);
        let fetch = known.and_then(|reservation| self.reads.fetches.get(&reservation.token));
        fetch.is_some_and(|fetch| fetch.outstanding > 0)
    }

    /// Gives back what is reserved for `writer`: it was applied, or has to wait for something that what it
    /// holds might keep from happening.
    pub(crate) fn release_reservation(&mut self, writer: Writer) {
        if let Some(reservation) = self.reads.reservations.by_writer.remove(&writer) {
            self.reads.reservations.keys -= reservation.keys;
            self.release_token(reservation.token);
        }
    }

    /// Gives back what nobody has come for. To be called in every step.
    pub(crate) fn trim_reservations(&mut self) {
        self.reads.steps += 1;
        let now_us = self.now.monotonic_us;
        if !self.has_reservations() || now_us < self.reads.reservations.next_look_us {
            return;
        }
        self.reads.reservations.next_look_us = now_us + LOOK_US;
        let mut left = Vec::new();
        for (writer, reservation) in &mut self.reads.reservations.by_writer {
            if self.reads.fetches.get(&reservation.token).is_some_and(|fetch| fetch.outstanding > 0) {
                continue;
            }
            let since_us = *reservation.idle_since_us.get_or_insert(now_us);
            if now_us - since_us >= PATIENCE_US {
                left.push(*writer);
            }
        }
        // The order in which they go is seen by nobody: only pins and memory are given back.
        left.into_iter().for_each(|writer| self.release_reservation(writer));
    }
}
