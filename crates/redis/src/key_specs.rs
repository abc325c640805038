//! What commands do with their keys: the flags of Redis's key specifications.
//!
//! Source: Redis's documentation of key specifications; the flags are Redis's own of each command, which
//! `tests/redis_comparison.rs` compares with a server's.

use crate::args::Args;
use crate::table::{Command, Keys, flag};

/// Keys of a command with the same flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeySpec {
    /// Names of flags in Redis's order.
    pub flags: &'static [&'static str],
    /// Which arguments.
    pub keys: Keys,
}

const READ: &[&str] = &["RO", "access"];
const LOOK: &[&str] = &["RO"];
const CHANGE: &[&str] = &["RW", "access", "update"];
const OVERWRITE: &[&str] = &["OW", "update"];
const CREATE: &[&str] = &["OW", "insert"];
const REMOVE: &[&str] = &["RM", "delete"];
/// As Valkey says of it: whether a guess was right is told.
const COMPARE_AND_REMOVE: &[&str] = &["RM", "access", "delete"];
const TAKE: &[&str] = &["RW", "access", "delete"];
const ALTER: &[&str] = &["RW", "update"];
const EXTEND: &[&str] = &["RW", "insert"];
const VARIABLE: &[&str] = &["RW", "access", "update", "variable_flags"];
const CHANNEL: &[&str] = &["not_key"];

const fn one(index: usize) -> Keys {
    Keys::Range { first: index, last: index as i32, step: 1 }
}

/// Flags of commands whose keys are all used in the same way, where it is not that of [`usual`].
const SAME: [(&str, &[&str]); 30] = [
    ("append", EXTEND),
    ("bitfield", VARIABLE),
    ("del", REMOVE),
    ("exists", LOOK),
    ("expire", ALTER),
    ("expireat", ALTER),
    ("getdel", TAKE),
    ("memory|usage", LOOK),
    ("mset", OVERWRITE),
    ("msetex", OVERWRITE),
    ("msetnx", CREATE),
    ("object|encoding", LOOK),
    ("object|freq", LOOK),
    ("object|idletime", LOOK),
    ("object|refcount", LOOK),
    ("persist", ALTER),
    ("pexpire", ALTER),
    ("pexpireat", ALTER),
    ("psetex", OVERWRITE),
    ("restore", OVERWRITE),
    ("set", VARIABLE),
    ("setex", OVERWRITE),
    ("setnx", CREATE),
    ("setrange", ALTER),
    ("strlen", LOOK),
    ("touch", LOOK),
    ("type", LOOK),
    ("unlink", REMOVE),
    ("watch", LOOK),
    ("delifeq", COMPARE_AND_REMOVE),
];

/// What a command does that is not named above.
fn usual(command: &Command) -> &'static [&'static str] {
    if command.has(flag::PUBSUB) {
        CHANNEL
    } else if command.has(flag::WRITE) {
        CHANGE
    } else {
        READ
    }
}

/// The key specifications of `command`, in order.
pub(crate) fn of(command: &Command) -> Vec<KeySpec> {
    let spec = |flags, keys| KeySpec { flags, keys };
    match (command.name, command.keys) {
        (_, Keys::None) => Vec::new(),
        ("bitop", _) => {
            let sources = Keys::Range { first: 3, last: -1, step: 1 };
            vec![spec(OVERWRITE, one(2)), spec(READ, sources)]
        }
        ("copy", _) => vec![spec(READ, one(1)), spec(OVERWRITE, one(2))],
        ("rename", _) => vec![spec(TAKE, one(1)), spec(OVERWRITE, one(2))],
        ("renamenx", _) => vec![spec(TAKE, one(1)), spec(CREATE, one(2))],
        (name, keys) => {
            let found = SAME.iter().find(|(other, _)| *other == name);
            vec![spec(found.map_or_else(|| usual(command), |(_, flags)| *flags), keys)]
        }
    }
}

/// The indexes of the keys of one request, each with what this request does with it.
pub(crate) fn of_request(command: &Command, request: Args<'_>) -> Vec<(usize, &'static [&'static str])> {
    let mut found = Vec::new();
    for KeySpec { flags, keys } in of(command) {
        let flags = match command.name {
            "set" => flags_of_set(request),
            "bitfield" => flags_of_bitfield(request),
            _ => flags,
        };
        found.extend(keys.indexes(request).map(|index| (index, flags)));
    }
    found
}

/// `SET` looks at the old value only where it gives it back, or says whether a guess at it was right.
fn flags_of_set(request: Args<'_>) -> &'static [&'static str] {
    let mut options = (3..request.len()).map(|index| request.at(index));
    let looks = options.any(|word| word.eq_ignore_ascii_case(b"GET") || word.eq_ignore_ascii_case(b"IFEQ"));
    if looks { CHANGE } else { OVERWRITE }
}

/// `BITFIELD` with nothing but `GET` only reads.
fn flags_of_bitfield(request: Args<'_>) -> &'static [&'static str] {
    let mut index = 2;
    while index < request.len() {
        let word = request.at(index).to_ascii_uppercase();
        let behind = request.len() - index - 1;
        index += match word.as_slice() {
            b"GET" if behind >= 2 => 3,
            b"OVERFLOW" if behind >= 1 => 2,
            _ => return CHANGE,
        };
    }
    READ
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn every_exception_is_a_command_and_no_usual_one() {
        for (name, flags) in SAME {
            let mut commands =
                table::commands().flat_map(|command| std::iter::once(command).chain(command.subcommands));
            let command =
                commands.find(|command| command.name == name).unwrap_or_else(|| panic!("no {name}"));
            assert_ne!(flags, usual(command), "{name} is no exception");
        }
    }

    #[test]
    fn what_a_request_does_hangs_on_its_words() {
        let of = |words: &str| {
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            let command = table::lookup(words[0]).expect("a command").command;
            of_request(command, Args::Slices(&words))
        };
        assert_eq!(of("SET k v"), [(1, OVERWRITE)]);
        assert_eq!(of("SET k v NX GET"), [(1, CHANGE)]);
        assert_eq!(of("SET k v IFEQ w"), [(1, CHANGE)]);
        assert_eq!(of("DELIFEQ k w"), [(1, COMPARE_AND_REMOVE)]);
        assert_eq!(of("BITFIELD k GET u8 0 OVERFLOW SAT GET u4 1"), [(1, READ)]);
        assert_eq!(of("BITFIELD k GET u8 0 INCRBY u4 1 1"), [(1, CHANGE)]);
        assert_eq!(of("BITOP AND d a b"), [(2, OVERWRITE), (3, READ), (4, READ)]);
        assert_eq!(of("MSET a 1 b 2"), [(1, OVERWRITE), (3, OVERWRITE)]);
        assert_eq!(of("MSETEX 2 a 1 b 2 EX 3"), [(2, OVERWRITE), (4, OVERWRITE)]);
        for refused in ["MSETEX 3 a 1 b 2", "MSETEX 0 a 1", "MSETEX -1 a 1", "MSETEX many a 1"] {
            assert_eq!(of(refused), [], "{refused}");
        }
        let most = format!("MSETEX {} a 1", i64::MAX);
        assert_eq!(of(&most), []);
        assert_eq!(of("RENAMENX a b"), [(1, TAKE), (2, CREATE)]);
    }
}
