//! What was refused to users, the newest first: `ACL LOG`. The first shard keeps it for all.

use crate::acl::Refused;
use crate::acl::User;
use crate::args::Args;
use crate::table::Command;
use std::collections::VecDeque;
use tierstone_wire::resp::ReplyWriter;

/// Within this time what is alike is counted as one, in milliseconds.
const ALIKE_MS: u64 = 60_000;
/// How many entries are looked through for one that is alike.
const ALIKE_ENTRIES: usize = 10;
/// Bytes of each text of an entry.
const TEXT_BYTES_MAX: usize = 1_024;
/// How many entries are shown unless more are asked for.
const SHOWN: i64 = 10;

/// Something that was refused.
#[derive(Clone, Debug)]
pub struct Denial {
    reason: &'static str,
    context: &'static str,
    object: Vec<u8>,
    user: Vec<u8>,
    /// The connection as `CLIENT LIST` shows it.
    client: String,
    at_ms: u64,
}

impl Denial {
    /// A request that a user may not make.
    pub(crate) fn of(
        refused: Refused,
        user: &User,
        command: &Command,
        args: Args<'_>,
        in_transaction: bool,
    ) -> Self {
        let (reason, object) = match refused {
            Refused::Command => ("command", command.name.as_bytes()),
            Refused::Key(index) => ("key", args.at(index)),
            Refused::TooLong => ("key", command.name.as_bytes()),
            Refused::Channel(index) => ("channel", args.at(index)),
        };
        Self::new(reason, object, &user.name, in_transaction)
    }

    /// A connection that did not become the user that it named.
    pub(crate) fn of_login(name: &[u8], args: Args<'_>, in_transaction: bool) -> Self {
        Self::new("auth", args.at(0), name, in_transaction)
    }

    fn new(reason: &'static str, object: &[u8], user: &[u8], in_transaction: bool) -> Self {
        let short = |bytes: &[u8]| bytes[..bytes.len().min(TEXT_BYTES_MAX)].to_vec();
        Denial {
            reason,
            context: if in_transaction { "multi" } else { "toplevel" },
            object: short(object),
            user: short(user),
            client: String::new(),
            at_ms: 0,
        }
    }

    /// Which of the refusals that are counted apart it is: logins, commands, keys, channels.
    pub(crate) fn kind(&self) -> usize {
        ["auth", "command", "key", "channel"].iter().position(|reason| *reason == self.reason).unwrap_or(0)
    }

    /// The same with who it was and when.
    pub(crate) fn by(mut self, client: String, at_ms: u64) -> Self {
        let end = client.floor_char_boundary(TEXT_BYTES_MAX);
        self.client = client[..end].to_owned();
        self.at_ms = at_ms;
        self
    }

    fn is_like(&self, other: &Denial) -> bool {
        let essence = |denial: &Denial| (denial.reason, denial.context);
        essence(self) == essence(other)
            && self.object == other.object
            && self.user == other.user
            && self.at_ms.abs_diff(other.at_ms) <= ALIKE_MS
    }
}

#[derive(Debug)]
struct Entry {
    denial: Denial,
    id: u64,
    count: u64,
    created_ms: u64,
}

/// The newest refusals.
#[derive(Debug, Default)]
pub(crate) struct AclLog {
    entries: VecDeque<Entry>,
    next_id: u64,
}

impl AclLog {
    /// Adds one.
    pub fn add(&mut self, denial: Denial) {
        let known = self.entries.iter().take(ALIKE_ENTRIES).position(|entry| entry.denial.is_like(&denial));
        match known.and_then(|place| self.entries.remove(place)) {
            // What is counted again is the newest again.
            Some(mut entry) => {
                entry.count += 1;
                entry.denial = denial;
                self.entries.push_front(entry);
            }
            None => {
                let created_ms = denial.at_ms;
                self.entries.push_front(Entry { denial, id: self.next_id, count: 1, created_ms });
                self.next_id += 1;
            }
        }
    }

    /// Keeps at most `max`.
    pub fn trim(&mut self, max: usize) {
        self.entries.truncate(max);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Writes the newest `count`; `None`: as many as are shown usually.
    pub fn write(&self, count: Option<i64>, now_ms: u64, reply: &mut ReplyWriter<'_>) {
        let count = usize::try_from(count.unwrap_or(SHOWN)).unwrap_or(0);
        let shown = self.entries.iter().take(count);
        reply.array(shown.len());
        for Entry { denial, id, count, created_ms } in shown {
            reply.map(10);
            reply.bulk(b"count");
            reply.integer(*count as i64);
            for (name, text) in [
                ("reason", denial.reason.as_bytes()),
                ("context", denial.context.as_bytes()),
                ("object", &denial.object),
                ("username", &denial.user),
            ] {
                reply.bulk(name.as_bytes());
                reply.bulk(text);
            }
            reply.bulk(b"age-seconds");
            reply.double(now_ms.saturating_sub(denial.at_ms) as f64 / 1e3);
            reply.bulk(b"client-info");
            reply.bulk(denial.client.as_bytes());
            for (name, value) in [
                ("entry-id", *id),
                ("timestamp-created", *created_ms),
                ("timestamp-last-updated", denial.at_ms),
            ] {
                reply.bulk(name.as_bytes());
                reply.integer(value as i64);
            }
        }
    }
}
