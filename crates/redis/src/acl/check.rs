//! Whether a user may make a request.

use crate::acl::known::{KnownPatterns, TRY};
use crate::acl::rules::CommandPlace;
use crate::acl::user::{KeyPattern, User};
use crate::args::Args;
use crate::glob;
use crate::key_specs;
use crate::session::ChannelKind;
use crate::table::{Command, Keys};
use crate::work;
use std::collections::BTreeMap;

/// Why a user may not make a request: the later the reason, the more of the request was allowed. Of keys and channels
/// the index of the argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Refused {
    Command,
    Key(usize),
    Channel(usize),
    /// To try all patterns on all keys would keep others waiting for too long.
    TooLong,
}

impl Refused {
    /// What a client is told; with `shows_all` also which key or channel it was.
    pub fn text(self, user: &User, command: &Command, args: Args<'_>, shows_all: bool) -> String {
        let name = String::from_utf8_lossy(&user.name);
        let shown = |index| String::from_utf8_lossy(args.at(index));
        match self {
            Refused::Command => {
                format!("User {name} has no permissions to run the '{}' command", command.name)
            }
            Refused::Key(_) if !shows_all => "No permissions to access a key".into(),
            Refused::Key(index) => {
                format!("User {name} has no permissions to access the '{}' key", shown(index))
            }
            Refused::Channel(_) if !shows_all => "No permissions to access a channel".into(),
            Refused::Channel(index) => {
                format!("User {name} has no permissions to access the '{}' channel", shown(index))
            }
            Refused::TooLong => {
                format!(
                    "User {name} has too many patterns for so many keys or channels: send fewer of them together"
                )
            }
        }
    }

    /// What a client is told of a command of a transaction that it might queue, but may not carry out any more.
    pub fn text_in_exec(self) -> String {
        let reason = match self {
            Refused::Command => "no permission to execute the command or subcommand",
            Refused::Key(_) => "no permission to touch the specified keys",
            Refused::Channel(_) => {
                "no permission to access one of the channels used as arguments to the command"
            }
            Refused::TooLong => "the user has too many patterns for so many keys or channels",
        };
        format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: {reason}"
        )
    }
}

/// Patterns that are tried one after the other before it is worth its while to put them in order.
const TRIED_MAX: u64 = 4_096;

/// Looks at requests of one user, one after the other: what is looked at together.
#[derive(Debug)]
pub(crate) struct Checker<'a> {
    user: &'a User,
    /// The patterns of a selector, by its index, that allow reading, or writing.
    known: BTreeMap<(usize, bool, bool), KnownPatterns<'a>>,
    /// Patterns that were tried.
    tried: u64,
    /// What it has cost, in units of about a nanosecond.
    work: u64,
}

impl<'a> Checker<'a> {
    /// What it has cost so far, in units of about a nanosecond.
    pub fn work(&self) -> u64 {
        self.work
    }

    /// Whether the user may make this request. `index` is that of the command, or of its container, in the table.
    pub fn check(&mut self, index: usize, command: &'static Command, args: Args<'_>) -> Result<(), Refused> {
        let place = CommandPlace::of(index, command);
        let mut nearest = Refused::Command;
        for number in 0..self.user.selectors.len() {
            match self.check_selector(number, place, command, args) {
                Ok(()) => return Ok(()),
                Err(refused) => nearest = nearest.max(refused),
            }
        }
        Err(nearest)
    }

    fn check_selector(
        &mut self,
        number: usize,
        place: CommandPlace,
        command: &'static Command,
        args: Args<'_>,
    ) -> Result<(), Refused> {
        let selector = &self.user.selectors[number];
        let is_for_all = command.has(crate::table::flag::NO_AUTH);
        if !is_for_all && !selector.commands.allows(place, args.get(1)) {
            return Err(Refused::Command);
        }
        if !selector.has_all_keys && command.keys != Keys::None {
            for (index, flags) in key_specs::of_request(command, args) {
                if flags.contains(&"not_key") {
                    continue;
                }
                if work::check(self.work).is_err() {
                    return Err(Refused::TooLong);
                }
                if !self.allows_key(number, args.at(index), flags) {
                    return Err(Refused::Key(index));
                }
            }
        }
        if !selector.has_all_channels {
            let (channels, is_pattern) = channels_of(command, args);
            for index in channels {
                if work::check(self.work).is_err() {
                    return Err(Refused::TooLong);
                }
                if !fits(&selector.channels, args.at(index), is_pattern, &mut self.work) {
                    return Err(Refused::Channel(index));
                }
            }
        }
        Ok(())
    }

    /// Whether a key may be used in the way that `flags` of its key specification tell.
    fn allows_key(&mut self, number: usize, key: &[u8], flags: &[&str]) -> bool {
        let reads = flags.contains(&"access");
        let writes = ["insert", "delete", "update"].iter().any(|change| flags.contains(change));
        let is_enough = |known: &&KeyPattern| (known.reads || !reads) && (known.writes || !writes);
        let mut patterns =
            self.user.selectors[number].keys.iter().filter(is_enough).map(|known| known.pattern.as_slice());
        if self.tried > TRIED_MAX {
            let known = self.known.entry((number, reads, writes));
            return known.or_insert_with(|| KnownPatterns::new(patterns)).fit(key, &mut self.work);
        }
        patterns.any(|pattern| {
            self.tried += 1;
            self.work += TRY;
            glob::matches_counted(pattern, key, &mut self.work)
        })
    }
}

impl User {
    /// Looks at his requests.
    pub(crate) fn checker(&self) -> Checker<'_> {
        Checker { user: self, known: BTreeMap::new(), tried: 0, work: 0 }
    }

    /// Whether somebody who listens to this may not go on, now that his user has become this one.
    pub(crate) fn forbids_listening(&self, kind: ChannelKind, channel: &[u8]) -> bool {
        !self.selectors.iter().any(|selector| {
            selector.has_all_channels
                || fits(&selector.channels, channel, kind == ChannelKind::Pattern, &mut 0)
        })
    }
}

/// The arguments that are channels to be listened or published to, and whether they are patterns.
fn channels_of(command: &Command, args: Args<'_>) -> (std::ops::Range<usize>, bool) {
    match command.name {
        "publish" | "spublish" => (1..2.min(args.len()), false),
        "subscribe" | "ssubscribe" => (1..args.len(), false),
        "psubscribe" => (1..args.len(), true),
        _ => (0..0, false),
    }
}

/// Whether a channel is among those that the patterns allow. A pattern itself must be one of them. Adds to `work` what it has
/// cost.
fn fits(allowed: &[Vec<u8>], channel: &[u8], is_pattern: bool, work: &mut u64) -> bool {
    allowed.iter().any(|pattern| {
        *work += TRY;
        if is_pattern { pattern == channel } else { glob::matches_counted(pattern, channel, work) }
    })
}
