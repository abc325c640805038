//! What the prefixes take that clients want to be told of: counted and bounded together with the names of channels.

use crate::account::{Account, Held};
use std::sync::Arc;

/// What one prefix takes beside its bytes, in each place: where it lies in an ordered map, and a set of one client.
const PREFIX_BYTES: usize = 320;

/// What prefixes take of the account of the shard's subscriptions: once here, and once at each shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrefixesHeld {
    own_bytes: usize,
    _all: Arc<Held>,
}

impl PrefixesHeld {
    /// What those before and `added` ones take, if there is room for these. Cost: one step for each of them.
    pub fn with<'p>(
        added: impl Iterator<Item = &'p [u8]>,
        before: usize,
        account: &Account,
        shards: u16,
    ) -> Option<Self> {
        let added: usize = added.map(|prefix| PREFIX_BYTES + prefix.len()).sum();
        let (copies, own_bytes) = (usize::from(shards) + 1, before + added);
        let more = copies * added;
        let has_room = more == 0 || account.has_room(before, more);
        has_room.then(|| PrefixesHeld { own_bytes, _all: Arc::new(account.hold(copies * own_bytes)) })
    }

    /// Bytes of what lies here.
    pub fn own_bytes(&self) -> usize {
        self.own_bytes
    }
}
