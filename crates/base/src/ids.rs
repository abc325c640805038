//! Small identifiers that travel between layers.

use serde::{Deserialize, Serialize};

/// The order of a record in its store: higher is newer. Zero means "nothing yet".
///
/// A store never gives the same sequence twice, over restarts and changes of the number of shards.
pub type Seq = u64;

/// Chosen by the caller of an asynchronous operation and handed back with its completion.
pub type Token = u64;

/// A core's part of a node: the index of the thread that owns it, from zero.
pub type ShardId = u16;

/// Which keyspace a key belongs to. Never reused, so that FLUSHDB is one change of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct KeyspaceId(pub u32);

/// The bits of an id that say which companion of a user's keyspace it is.
const COMPANION_BITS: u32 = 0xC000_0000;
const CHUNKS_BIT: u32 = 0x8000_0000;
const LEDGER_BIT: u32 = 0x4000_0000;

impl KeyspaceId {
    /// The first number that no keyspace of a user may have: companions take the two upper bits.
    pub const USER_END: u32 = LEDGER_BIT;

    /// The keyspace of the chunks of this keyspace's large values.
    pub fn chunks(self) -> KeyspaceId {
        KeyspaceId(self.user().0 | CHUNKS_BIT)
    }

    /// The keyspace of the ledger of this keyspace's large values: what is to be reclaimed, and when.
    pub fn ledger(self) -> KeyspaceId {
        KeyspaceId(self.user().0 | LEDGER_BIT)
    }

    /// The keyspace of a user that this one belongs to.
    pub fn user(self) -> KeyspaceId {
        KeyspaceId(self.0 & !COMPANION_BITS)
    }

    /// Whether it is a user's keyspace and no companion of one.
    #[inline]
    pub fn is_user(self) -> bool {
        self.0 & COMPANION_BITS == 0
    }

    /// Whether it holds chunks of large values.
    pub fn is_chunks(self) -> bool {
        self.0 & COMPANION_BITS == CHUNKS_BIT
    }

    /// Whether it holds the ledger of large values.
    pub fn is_ledger(self) -> bool {
        self.0 & LEDGER_BIT != 0
    }

    /// It and its companions: what lives and dies together.
    pub fn family(self) -> [KeyspaceId; 3] {
        [self.user(), self.chunks(), self.ledger()]
    }
}
