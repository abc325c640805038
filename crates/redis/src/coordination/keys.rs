//! Which keys a batch needs, as far as the words of its commands tell. What they do not tell is found out by attempts, of which
//! there are few.

use super::{Coordination, OwnedKey};
use crate::args::Args;
use crate::executor::Executor;
use crate::number::integer;
use crate::table::Action;
use std::collections::BTreeMap;
use tierstone_base::{KeyspaceId, ShardId};
use tierstone_engine::Engine;

/// The key that a command has in another database than the selected one, and the number of that.
fn elsewhere<'a>(name: &str, args: Args<'a>) -> Option<(u32, &'a [u8])> {
    let (number, key) = match name {
        "move" => (2, 1),
        // Of several the last one counts.
        "copy" => ((3..args.len()).rfind(|&at| args.at(at).eq_ignore_ascii_case(b"db"))? + 1, 2),
        _ => return None,
    };
    Some((database(args, number)?, args.at(key)))
}

/// The number of a database, if the argument is one.
fn database(args: Args<'_>, place: usize) -> Option<u32> {
    u32::try_from(integer(args.get(place)?)?).ok()
}

impl<E: Engine> Executor<E> {
    fn owned_key(&self, keyspace: KeyspaceId, key: &[u8]) -> OwnedKey {
        OwnedKey { keyspace, position: self.shard.position(key), bytes: key.to_vec() }
    }

    /// The shards of all keys, in order, each with its keys.
    pub(super) fn participants(
        &self,
        coordination: &Coordination,
        mut db: u32,
    ) -> Vec<(ShardId, Vec<OwnedKey>)> {
        let mut keys = coordination.extra.clone();
        for queued in &coordination.commands {
            let args = queued.args.args();
            if queued.command.name == "select" {
                let number = database(args, 1);
                db = number.filter(|number| *number < self.shard.map().databases()).unwrap_or(db);
            }
            if !matches!(queued.command.action, Action::Data(_)) {
                continue;
            }
            let Some(keyspace) = self.shard.map().keyspace(db) else { continue };
            let named = queued.command.keys.indexes(args);
            keys.extend(named.into_iter().map(|index| self.owned_key(keyspace, args.at(index))));
            if let Some((db, key)) = elsewhere(queued.command.name, args)
                && let Some(keyspace) = self.shard.map().keyspace(db)
            {
                keys.insert(self.owned_key(keyspace, key));
            }
        }
        let mut shards: BTreeMap<ShardId, Vec<OwnedKey>> = BTreeMap::new();
        for shard in coordination.watcher.iter().flat_map(|(_, shards)| shards) {
            shards.entry(*shard).or_default();
        }
        for key in keys {
            shards.entry(key.position.shard(self.shard.count())).or_default().push(key);
        }
        shards.into_iter().collect()
    }
}
