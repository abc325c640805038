//! Which shard closes a client when those of all shards take too much memory (`maxmemory-clients`).
//!
//! Every shard's thread writes down what its clients take and how large the largest is, at the end of each turn; it
//! reads what the others have written.
//!
//! Invariants:
//! 1. A shard writes both numbers at once, so nobody sees the memory of a client that is counted as gone.
//! 2. One shard is chosen: that with the largest client, by the number of bits of its size, as Redis chooses; of
//!    equals the first. So two shards that see the same do not close two clients where one is enough.
//! 3. A shard that is chosen and sleeps is woken once; what it wrote last is true as long as it sleeps.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tierstone_base::ShardId;

/// Bits of a number of bytes; the class of the largest client is above them.
const BYTES_BITS: u32 = 56;

/// What one shard says.
#[derive(Debug, Default)]
struct Told {
    /// Bytes of its clients that may be closed, and above them the class of the largest.
    numbers: AtomicU64,
    /// Whether it was asked to close its largest client and has not looked yet.
    is_asked: AtomicBool,
}

/// What the clients of all shards take.
#[derive(Debug)]
pub struct ClientLedger {
    shards: Vec<Told>,
}

/// What is to be done about the memory of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing: they take no more than they may.
    Fine,
    /// The asking shard closes its largest client.
    Own {
        /// What the clients of all shards take, in bytes.
        total_bytes: u64,
    },
    /// Another shard does, and it is to be woken.
    Wake(ShardId),
    /// Another shard does, and it was woken already.
    Wait,
}

impl ClientLedger {
    /// A ledger of so many shards.
    pub fn new(shards: usize) -> Self {
        ClientLedger { shards: (0..shards).map(|_| Told::default()).collect() }
    }

    /// What `shard` has: `bytes` of all its clients that may be closed, and the class of the largest; 0: there is none.
    pub(super) fn tell(&self, shard: ShardId, bytes: u64, class: u8) {
        let Some(told) = self.shards.get(usize::from(shard)) else { return };
        let bytes = bytes.min((1 << BYTES_BITS) - 1);
        told.numbers.store(u64::from(class) << BYTES_BITS | bytes, Ordering::SeqCst);
    }

    /// `shard` has been woken, and looks.
    pub(super) fn has_looked(&self, shard: ShardId) {
        if let Some(told) = self.shards.get(usize::from(shard)) {
            told.is_asked.store(false, Ordering::SeqCst);
        }
    }

    /// What `shard` is to do when all clients may take `bytes_max`.
    pub(super) fn judge(&self, shard: ShardId, bytes_max: u64) -> Verdict {
        let (mut total_bytes, mut chosen) = (0, (0, 0));
        for (number, told) in (0..).zip(&self.shards) {
            let numbers = told.numbers.load(Ordering::SeqCst);
            total_bytes += numbers & ((1 << BYTES_BITS) - 1);
            let class = numbers >> BYTES_BITS;
            if class > chosen.0 {
                chosen = (class, number);
            }
        }
        if total_bytes <= bytes_max || chosen.0 == 0 {
            Verdict::Fine
        } else if chosen.1 == shard {
            Verdict::Own { total_bytes }
        } else if self.shards[usize::from(chosen.1)].is_asked.swap(true, Ordering::SeqCst) {
            Verdict::Wait
        } else {
            Verdict::Wake(chosen.1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shard_with_the_largest_client_closes_it_and_one_that_sleeps_is_woken_once() {
        let ledger = ClientLedger::new(3);
        ledger.tell(0, 500, 8);
        ledger.tell(1, 300, 9);
        ledger.tell(2, 300, 9);
        assert_eq!(ledger.judge(1, 1_100), Verdict::Fine);
        assert_eq!(ledger.judge(0, 1_099), Verdict::Wake(1));
        assert_eq!(ledger.judge(2, 1_099), Verdict::Wait, "of equals the first, and it was woken");
        assert_eq!(ledger.judge(1, 1_099), Verdict::Own { total_bytes: 1_100 });
        ledger.has_looked(1);
        ledger.tell(1, 0, 0);
        assert_eq!(ledger.judge(0, 799), Verdict::Wake(2));
        ledger.tell(2, 299, 7);
        assert_eq!(ledger.judge(0, 798), Verdict::Own { total_bytes: 799 });
        ledger.tell(0, 0, 0);
        assert_eq!(ledger.judge(0, 299), Verdict::Fine);
    }

    #[test]
    fn a_sum_that_does_not_fit_spoils_no_class() {
        let ledger = ClientLedger::new(1);
        ledger.tell(0, u64::MAX, 3);
        assert_eq!(ledger.judge(0, 5), Verdict::Own { total_bytes: (1 << BYTES_BITS) - 1 });
    }
}
