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
