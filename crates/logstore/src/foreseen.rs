//! Searches that were announced: the requests of a pipeline are known together
//! ([`Engine::prefetch`](tierstone_engine::Engine::prefetch)) and then carried out one after the other. What they will touch is
//! asked for at once, level by level for all of them, so that neither lines nor translations of addresses are waited for one
//! by one; and what that has found in the index is not searched for again.
//!
//! Invariants:
//! 1. A place is only a hint: the index is asked whether the entry still lies there, whatever was written since.
//! 2. There are at most [`PREFETCHED_KEYS`] of them; the next announcement begins anew. What is searched for without having
//!    been announced, or in another order, is found as ever.

use crate::index::Spot;
use crate::location::{Location, Target};
use crate::read_path::{Found, PREFETCHED_LINES};
use crate::shard::LogShard;
use tierstone_base::{KeyspaceId, Position};
use tierstone_cache::FrameId;
use tierstone_engine::PREFETCHED_KEYS;

/// Places in the order of their announcement.
#[derive(Debug, Default)]
pub(crate) struct Foreseen {
    spots: Vec<Spot>,
    /// Those before it were asked for, or passed over.
    next: usize,
}

impl Foreseen {
    /// Where the key at `position`, which is searched for now, was found.
    #[inline]
    pub fn take(&mut self, position: Position) -> Option<&Spot> {
        let ahead = self.spots[self.next..].iter().position(|spot| spot.position() == position)?;
        self.next += ahead + 1;
        self.spots.get(self.next - 1)
    }
}

impl LogShard {
    /// Keys with these positions will be searched for.
    pub(crate) fn foresee(&mut self, places: &[(KeyspaceId, Position)]) {
        let spots = &mut self.foreseen.spots;
        spots.clear();
        self.foreseen.next = 0;
        for run in places.chunk_by(|one, next| one.0 == next.0) {
            let Some(keyspace) = self.keyspaces.get(run[0].0) else { continue };
            let index = &keyspace.index;
            let mut regions = [0; PREFETCHED_KEYS];
            for ((_, position), region) in run.iter().zip(&mut regions) {
                *region = index.prefetch_head(*position);
            }
            for ((_, position), region) in run.iter().zip(regions) {
                index.prefetch_in(region, *position);
            }
            for ((_, position), region) in run.iter().zip(regions) {
                let Some(spot) = index.locate_in(region, *position) else { continue };
                if spots.len() < PREFETCHED_KEYS {
                    spots.push(spot);
                }
            }
        }
        // The first line of each before the others: it brings the translation of its page.
        for lines in [1, PREFETCHED_LINES] {
            for spot in spots.iter() {
                if let Target::Frame(bits) = Target::unpack(spot.value()) {
                    self.cache.prefetch(FrameId::from_bits(bits), lines);
                }
            }
        }
    }

    /// Asks for what a write of the key that comes next will change besides index and cache: the mark of its old record.
    #[inline]
    pub(crate) fn prefetch_coming_mark(&self) {
        let Some(spot) = self.foreseen.spots.get(self.foreseen.next) else { return };
        self.prefetch_mark_of(match Target::unpack(spot.value()) {
            Target::Frame(bits) => Found::Frame(FrameId::from_bits(bits)),
            Target::Device(location) => Found::Unsubmitted(location),
        });
    }

    /// The same for what a search has found, or may have.
    #[inline]
    pub(crate) fn prefetch_mark_of(&self, found: Found) {
        let location = match found {
            Found::Frame(frame) => self.cache.location_hint(frame).map(Location::from_raw),
            Found::Held(location) | Found::Unsubmitted(location) => Some(location),
            Found::Absent | Found::Unknown => None,
        };
        location.inspect(|location| self.segments.prefetch_mark(*location));
    }
}
