//! For tests: random traces.

use crate::trace::{Kind, Space, Trace};
use tierstone_base::SeededRandom;

/// A trace of `events` steps of two to four threads over a few words of both memories, so that conflicts are
/// frequent.
pub(crate) fn random_trace(seed: u64, events: u64) -> Trace {
    let mut random = SeededRandom::new(seed ^ 0x7465_7374);
    let threads = random.below(3) + 2;
    let words = random.below(6) + 2;
    let mut trace = Trace::new();
    while (trace.events().len() as u64) < events {
        let thread = random.below(threads) as u16;
        let space = if random.chance(0.7) { Space::Persistent } else { Space::Volatile };
        let address = random.below(words) * 8 * (1 + random.below(2) * 7);
        match random.below(20) {
            0..3 => trace.mark(thread, Kind::Barrier),
            3 => trace.mark(thread, Kind::Strand),
            4 if random.chance(0.2) => trace.mark(thread, Kind::Sync),
            5..10 => trace.access(thread, Kind::Load, space, address, &[0; 8]),
            _ => trace.access(thread, Kind::Store, space, address, &random.next_u64().to_le_bytes()),
        }
    }
    trace
}
