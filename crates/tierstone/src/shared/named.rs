//! Keyspaces with names of the shared handle: one change at a time, under the lock of the database.

use super::answer::closed;
use super::message::Message;
use super::{Answer, Inner, Running, SharedKeyspace, SharedStore};
use crate::named::{KeyspaceInfo, KeyspaceOptions, dropped, list};
use std::sync::PoisonError;
use tierstone_base::{KeyspaceId, Result};

impl Inner {
    /// Refuses a keyspace that was dropped.
    pub(super) fn check_keyspace(&self, id: KeyspaceId) -> Result<()> {
        if self.map().holds(id) { Ok(()) } else { Err(dropped()) }
    }

    /// Runs `change` over the database, tells all shards what it gives, and shows the new map to callers
    /// when every shard knows it.
    fn change_keyspaces<T>(
        &self,
        change: impl FnOnce(&mut Running) -> Result<T>,
        tell: impl Fn(&T) -> Option<Vec<Answer<()>>>,
    ) -> Result<T> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let running = running.as_mut().ok_or_else(closed)?;
        let changed = change(running)?;
        let Some(answers) = tell(&changed) else { return Ok(changed) };
        let learnt = answers.into_iter().map(Answer::wait).fold(Ok(()), Result::and);
        *self.map.write().unwrap_or_else(PoisonError::into_inner) = running.database.facts().map.clone();
        learnt.map(|()| changed)
    }
}

impl SharedStore {
    /// The keyspace `name`, for calls in it; it is made, durably, if there is none. See
    /// [`Store::open_keyspace`](crate::Store::open_keyspace).
    ///
    /// # Errors
    /// As [`Database::open_keyspace`](crate::Database::open_keyspace); `Busy`: the store was closed.
    pub fn open_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<SharedKeyspace> {
        let (named, _) = self.inner.change_keyspaces(
            |running| running.database.open_keyspace(name, options),
            |&(named, is_new)| {
                let (id, index) = (named.id, named.index);
                is_new.then(|| self.inner.ask_all(|reply| Message::CreateKeyspace { id, index, reply }))
            },
        )?;
        Ok(SharedKeyspace::new(self.clone(), named.id))
    }

    /// All keyspaces with names, in the order of their names.
    pub fn keyspaces(&self) -> Vec<KeyspaceInfo> {
        list(&self.inner.map())
    }

    /// Drops the keyspace `name` with all its keys; false when there is none. It is gone, durably, when
    /// this returns; other handles on it get `InvalidInput` from then on. Cost: one durable write; space
    /// and memory come back step by step.
    ///
    /// # Errors
    /// As [`Database::drop_keyspace`](crate::Database::drop_keyspace); `Busy`: the store was closed.
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        let gone = self.inner.change_keyspaces(
            |running| running.database.drop_keyspace(name),
            |gone| {
                let id = gone.as_ref()?.id;
                Some(self.inner.ask_all(|reply| Message::DropKeyspace { id, reply }))
            },
        )?;
        Ok(gone.is_some())
    }
}
