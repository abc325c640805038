//! The table of commands: names, arity, flags, keys, documentation and what carries them out.
//!
//! Invariants:
//! 1. The table is constant; a lookup hashes the name once, in either case, and allocates nothing.
//! 2. A container's subcommands carry its name before a `|`; the container itself does nothing.

mod acl;
mod channels;
mod connection;
mod debug;
mod keys;
mod operators;
mod server;
mod strings;

use crate::args::Args;
use crate::context::{Context, Run};
use crate::control::ControlHandler;
use crate::number;

/// What carries a command out.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// A restartable function over a view.
    Data(fn(&mut Context<'_, '_>) -> Run),
    /// A function over sessions and settings that never waits.
    Control(ControlHandler),
    /// Something that the executor itself does.
    Task(TaskKind),
    /// Its subcommands.
    Container,
}

/// The commands that the executor itself carries out. `AskHome` is whatever the shard answers that keeps something
/// for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the command of its name")]
pub enum TaskKind {
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
    Scan,
    Keys,
    RandomKey,
    FlushDb,
    FlushAll,
    SwapDb,
    Save,
    BackgroundSave,
    Wait,
    WaitAof,
    ConfigRewrite,
    DebugSleep,
    DebugBackup,
    DebugVerify,
    AskHome,
    Monitor,
    Tracking,
    Shutdown,
    Quit,
    Reset,
    AclSetUser,
    AclDelUser,
    AclLoad,
    AclSave,
}

/// Which arguments are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// None.
    None,
    /// Every `step`-th from `first` to `last`; a negative `last` counts from the end.
    Range {
        /// The first key's index.
        first: usize,
        /// The last key's index.
        last: i32,
        /// From one key to the next.
        step: usize,
    },
    /// As many as an argument says, every `step`-th from `first` on.
    Counted {
        /// The index of the argument with the number of keys.
        count_at: usize,
        /// The first key's index.
        first: usize,
        /// From one key to the next.
        step: usize,
    },
}

impl Keys {
    /// The indexes of the keys of a request, in order. A number of keys that is none, or that the request has no
    /// room for, stands for no keys: the command will refuse it.
    pub fn indexes(self, args: Args<'_>) -> std::iter::StepBy<std::ops::Range<usize>> {
        let (first, end, step) = match self {
            Keys::None => (0, 0, 1),
            Keys::Range { first, last, step } => {
                let end =
                    if last < 0 { args.len() as i64 + i64::from(last) + 1 } else { i64::from(last) + 1 };
                (first, (end.max(0) as usize).min(args.len()), step)
            }
            Keys::Counted { count_at, first, step } => {
                let count = args.get(count_at).and_then(number::integer);
                let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
                let end = count.saturating_mul(step).saturating_add(first);
                (first, if end <= args.len() { end } else { first }, step)
            }
        };
        (first..end.max(first)).step_by(step)
    }
}

/// A bit for each flag of `COMMAND INFO`.
pub mod flag {
    #![expect(missing_docs, reason = "each is Redis's flag of its name")]
    pub const WRITE: u32 = 1 << 0;
    pub const READONLY: u32 = 1 << 1;
    pub const DENYOOM: u32 = 1 << 2;
    pub const ADMIN: u32 = 1 << 3;
    pub const PUBSUB: u32 = 1 << 4;
    pub const NOSCRIPT: u32 = 1 << 5;
    pub const BLOCKING: u32 = 1 << 6;
    pub const LOADING: u32 = 1 << 7;
    pub const STALE: u32 = 1 << 8;
    pub const SKIP_MONITOR: u32 = 1 << 9;
    pub const SKIP_SLOWLOG: u32 = 1 << 10;
    pub const FAST: u32 = 1 << 11;
    pub const NO_AUTH: u32 = 1 << 12;
    pub const SENTINEL: u32 = 1 << 14;
    pub const NO_ASYNC_LOADING: u32 = 1 << 15;
    pub const NO_MULTI: u32 = 1 << 16;
    pub const ALLOW_BUSY: u32 = 1 << 17;
    pub const NO_MANDATORY_KEYS: u32 = 1 << 18;
    pub const MOVABLE_KEYS: u32 = 1 << 19;
    /// Without a name: what it reads does not count as used, as in Redis.
    pub const NO_USE: u32 = 1 << 20;
    /// Names in the order in which Redis lists them.
    pub const NAMES: [(u32, &str); 17] = [
        (WRITE, "write"),
        (READONLY, "readonly"),
        (DENYOOM, "denyoom"),
        (ADMIN, "admin"),
        (PUBSUB, "pubsub"),
        (NOSCRIPT, "noscript"),
        (BLOCKING, "blocking"),
        (LOADING, "loading"),
        (STALE, "stale"),
        (SKIP_MONITOR, "skip_monitor"),
        (SKIP_SLOWLOG, "skip_slowlog"),
        (FAST, "fast"),
        (NO_AUTH, "no_auth"),
        (NO_ASYNC_LOADING, "no_async_loading"),
        (NO_MULTI, "no_multi"),
        (MOVABLE_KEYS, "movablekeys"),
        (ALLOW_BUSY, "allow_busy"),
    ];
}

/// A bit for each category of access control.
pub mod category {
    #![expect(missing_docs, reason = "each is Redis's category of its name")]
    pub const KEYSPACE: u32 = 1 << 0;
    pub const READ: u32 = 1 << 1;
    pub const WRITE: u32 = 1 << 2;
    pub const STRING: u32 = 1 << 3;
    pub const BITMAP: u32 = 1 << 4;
    pub const PUBSUB: u32 = 1 << 5;
    pub const ADMIN: u32 = 1 << 6;
    pub const FAST: u32 = 1 << 7;
    pub const SLOW: u32 = 1 << 8;
    pub const BLOCKING: u32 = 1 << 9;
    pub const DANGEROUS: u32 = 1 << 10;
    pub const CONNECTION: u32 = 1 << 11;
    pub const TRANSACTION: u32 = 1 << 12;
    pub const SCRIPTING: u32 = 1 << 13;
    pub const SET: u32 = 1 << 14;
    pub const SORTED_SET: u32 = 1 << 15;
    pub const LIST: u32 = 1 << 16;
    pub const HASH: u32 = 1 << 17;
    pub const HYPERLOGLOG: u32 = 1 << 18;
    pub const GEO: u32 = 1 << 19;
    pub const STREAM: u32 = 1 << 20;
    /// Names in the order in which Redis lists them; rules may name those as well that have no command here.
    pub const NAMES: [(u32, &str); 21] = [
        (KEYSPACE, "keyspace"),
        (READ, "read"),
        (WRITE, "write"),
        (SET, "set"),
        (SORTED_SET, "sortedset"),
        (LIST, "list"),
        (HASH, "hash"),
        (STRING, "string"),
        (BITMAP, "bitmap"),
        (HYPERLOGLOG, "hyperloglog"),
        (GEO, "geo"),
        (STREAM, "stream"),
        (PUBSUB, "pubsub"),
        (ADMIN, "admin"),
        (FAST, "fast"),
        (SLOW, "slow"),
        (BLOCKING, "blocking"),
        (DANGEROUS, "dangerous"),
        (CONNECTION, "connection"),
        (TRANSACTION, "transaction"),
        (SCRIPTING, "scripting"),
    ];

    /// The bit of the category called `name`, in either case.
    pub fn bit_of(name: &[u8]) -> Option<u32> {
        let found = NAMES.iter().find(|(_, known)| known.as_bytes().eq_ignore_ascii_case(name));
        found.map(|(bit, _)| *bit)
    }
}

/// One command or subcommand.
#[derive(Debug)]
pub struct Command {
    /// Its name in lower case; `container|name` for a subcommand.
    pub name: &'static str,
    /// How many arguments it takes, its name included; negative: at least so many.
    pub arity: i32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Bits of [`category`] beside those that the flags imply.
    pub categories: u32,
    /// Its keys.
    pub keys: Keys,
    /// Redis's group of it.
    pub group: &'static str,
    /// The version of Redis (or Valkey) that brought it.
    pub since: &'static str,
    /// What it costs.
    pub complexity: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// What carries it out.
    pub action: Action,
    /// The subcommands of a container.
    pub subcommands: &'static [Command],
}

impl Command {
    /// Whether it has `flag`.
    #[inline]
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether a request of `count` arguments is of the right length.
    #[inline]
    pub fn takes(&self, count: usize) -> bool {
        let count = count as i64;
        let arity = i64::from(self.arity);
        if arity >= 0 { count == arity } else { count >= -arity }
    }

    /// Whether the chunks of large values that it holds for its run are limited outside of transactions, too: it may hold
    /// far more of them than its request and its reply take, or a whole value twice.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        matches!(self.name, "bitfield" | "bitfield_ro" | "dump")
    }

    /// Whether one request of it may be a turn's work by itself, however short it is: of one connection one is carried
    /// out at a time, by whichever shards, since those that wait for records or for another shard come back together.
    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        matches!(self.name, "lcs" | "dump")
    }

    /// Its name without its container's.
    pub fn own_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, own)| own)
    }

    /// All its categories, those included that its flags imply.
    pub fn all_categories(&self) -> u32 {
        let implied = [
            (flag::WRITE, category::WRITE),
            (flag::READONLY, category::READ),
            (flag::ADMIN, category::ADMIN | category::DANGEROUS),
            (flag::PUBSUB, category::PUBSUB),
            (flag::BLOCKING, category::BLOCKING),
        ];
        let speed = if self.has(flag::FAST) { category::FAST } else { category::SLOW };
        implied
            .iter()
            .filter(|(flag, _)| self.has(*flag))
            .fold(self.categories | speed, |all, (_, bits)| all | bits)
    }
}

/// A command that was looked up.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The index of the command (of the container, for a subcommand) in [`commands`].
    pub index: usize,
    /// The command.
    pub command: &'static Command,
}

/// The families in the order of the indexes of their commands.
static FAMILIES: [&[Command]; 6] = [
    &strings::COMMANDS,
    &keys::COMMANDS,
    &connection::COMMANDS,
    &channels::COMMANDS,
    &server::COMMANDS,
    &operators::COMMANDS,
];
const COMMANDS: usize = strings::COMMANDS.len()
    + keys::COMMANDS.len()
    + connection::COMMANDS.len()
    + channels::COMMANDS.len()
    + server::COMMANDS.len()
    + operators::COMMANDS.len();
const SLOTS: usize = 512;
const LONGEST_NAME: usize = 24;

const fn hash(mut hash: u32, byte: u8) -> u32 {
    hash ^= byte.to_ascii_lowercase() as u32;
    hash.wrapping_mul(0x0100_0193)
}

const HASH_START: u32 = 0x811c_9dc5;

const fn fold(hash: u32) -> usize {
    ((hash ^ hash >> 15) as usize) % SLOTS
}

/// The command with this index, below [`count`].
pub(crate) const fn command(mut index: usize) -> &'static Command {
    let mut family = 0;
    while index >= FAMILIES[family].len() {
        index -= FAMILIES[family].len();
        family += 1;
    }
    &FAMILIES[family][index]
}

/// For each slot the index of a command plus one, or zero.
static INDEX: [u16; SLOTS] = {
    let mut slots = [0u16; SLOTS];
    let mut index = 0;
    while index < COMMANDS {
        let name = command(index).name.as_bytes();
        let mut value = HASH_START;
        let mut at = 0;
        while at < name.len() {
            value = hash(value, name[at]);
            at += 1;
        }
        let mut slot = fold(value);
        while slots[slot] != 0 {
            slot = (slot + 1) % SLOTS;
        }
        slots[slot] = index as u16 + 1;
        index += 1;
    }
    slots
};

const _: () = assert!(COMMANDS * 2 < SLOTS, "a table half empty keeps searches short");

/// Every command, containers without their subcommands.
pub fn commands() -> impl ExactSizeIterator<Item = &'static Command> {
    (0..COMMANDS).map(command)
}

/// The families of [`commands`], one behind the other.
pub(crate) fn families() -> &'static [&'static [Command]] {
    &FAMILIES
}

/// How many commands there are.
pub const fn count() -> usize {
    COMMANDS
}

/// The command (or container) called `name`, in either case. Cost: about 10 ns.
#[inline]
pub fn lookup(name: &[u8]) -> Option<Found> {
    if name.len() > LONGEST_NAME {
        return None;
    }
    let mut slot = fold(name.iter().fold(HASH_START, |value, byte| hash(value, *byte)));
    loop {
        let index = usize::from(INDEX[slot]).checked_sub(1)?;
        let command = command(index);
        if command.name.as_bytes().eq_ignore_ascii_case(name) {
            return Some(Found { index, command });
        }
        slot = (slot + 1) % SLOTS;
    }
}

/// The subcommand of `container` called `name`.
pub fn subcommand(container: &'static Command, name: &[u8]) -> Option<&'static Command> {
    container.subcommands.iter().find(|command| command.own_name().as_bytes().eq_ignore_ascii_case(name))
}

/// The index of `get` or `set` in the table.
pub fn quick_index(is_get: bool) -> usize {
    const fn find(name: &[u8]) -> usize {
        let mut index = 0;
        while index < count() {
            let other = command(index).name.as_bytes();
            if other.len() == name.len() && other[0] == name[0] && other[1] == name[1] && other[2] == name[2]
            {
                return index;
            }
            index += 1;
        }
        0
    }
    const GET: usize = find(b"get");
    const SET: usize = find(b"set");
    if is_get { GET } else { SET }
}

/// The command called `name`, `container|subcommand` included; the index is the container's then.
pub fn find(name: &[u8]) -> Option<Found> {
    match name.iter().position(|byte| *byte == b'|') {
        None => lookup(name),
        Some(bar) => {
            let Found { index, command } = lookup(&name[..bar])?;
            subcommand(command, &name[bar + 1..]).map(|command| Found { index, command })
        }
    }
}

#[cfg(test)]
#[path = "table_test.rs"]
mod table_test;
