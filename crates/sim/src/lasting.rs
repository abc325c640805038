//! Keys that a scan must give: written, acknowledged, and gone only when their database is emptied.
//!
//! Invariant: a key is here only if its last write was asked for after every emptying of its database had
//! ended that was ever asked for; one in doubt ends with the node's process.

use crate::history::{EventId, History};
use crate::script::{Kind, key_bytes, kind};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default)]
struct Database {
    keys: BTreeSet<Vec<u8>>,
    /// One event of each emptying that has not been answered.
    emptying: BTreeSet<EventId>,
    /// Writes asked for earlier do not count.
    since: u64,
}

/// All of them, by database.
#[derive(Clone, Debug, Default)]
pub struct Lasting {
    databases: BTreeMap<u32, Database>,
    none: BTreeSet<Vec<u8>>,
}

impl Lasting {
    /// Those of one database.
    pub fn keys(&self, database: u32) -> &BTreeSet<Vec<u8>> {
        self.databases.get(&database).map_or(&self.none, |database| &database.keys)
    }

    /// The database is about to be emptied, which `events` stand for.
    pub fn emptying(&mut self, database: u32, events: &[EventId]) {
        let database = self.databases.entry(database).or_default();
        database.keys.clear();
        database.emptying.extend(events.first());
    }

    /// An event was answered, and well.
    pub fn acknowledged(&mut self, id: EventId, history: &History) {
        let event = &history.events[id];
        let database = self.databases.entry(event.object.database).or_default();
        if database.emptying.remove(&id) {
            database.since = event.ended;
            return;
        }
        let counts = database.emptying.is_empty() && event.asked > database.since;
        if counts
            && kind(event.object) == Kind::Lasting
            && event.steps.iter().any(|step| step.verb.is_write())
        {
            database.keys.insert(key_bytes(event.object, 0));
        }
    }

    /// Keys were added that stay.
    pub fn grown(&mut self, database: u32, keys: Vec<Vec<u8>>) {
        self.databases.entry(database).or_default().keys.extend(keys);
    }

    /// A process has ended, and with it whatever it had begun.
    pub fn begin_life(&mut self, history: &History) {
        let newest = history.events.iter().map(|event| event.asked).max().unwrap_or(0);
        for database in self.databases.values_mut().filter(|database| !database.emptying.is_empty()) {
            database.emptying.clear();
            database.since = newest;
        }
    }
}
