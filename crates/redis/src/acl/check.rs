//! Whether a user may make a request.

use crate::acl::rules::CommandPlace;
use crate::acl::user::{KeyPattern, Selector, User};
use crate::args::Args;
use crate::glob;
use crate::key_specs;
use crate::session::ChannelKind;
use crate::table::{Command, Keys};

/// Why a user may not make a request: the later the reason, the more of the request was allowed. Of keys and channels
/// the index of the argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Refused {
    Command,
    Key(usize),
    Channel(usize),
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
        };
        format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: {reason}"
        )
    }
}

impl User {
    /// Whether he may make this request. `index` is that of the command, or of its container, in the table.
    pub(crate) fn check(
        &self,
        index: usize,
        command: &'static Command,
        args: Args<'_>,
    ) -> Result<(), Refused> {
        let place = CommandPlace::of(index, command);
        let mut nearest = Refused::Command;
        for selector in &self.selectors {
            match selector.check(place, command, args) {
                Ok(()) => return Ok(()),
                Err(refused) => nearest = nearest.max(refused),
            }
        }
        Err(nearest)
    }

    /// Whether somebody who listens to this may not go on, now that his user has become this one.
    pub(crate) fn forbids_listening(&self, kind: ChannelKind, channel: &[u8]) -> bool {
        !self.selectors.iter().any(|selector| {
            selector.has_all_channels || fits(&selector.channels, channel, kind == ChannelKind::Pattern)
        })
    }
}

impl Selector {
    fn check(&self, place: CommandPlace, command: &'static Command, args: Args<'_>) -> Result<(), Refused> {
        let is_for_all = command.has(crate::table::flag::NO_AUTH);
        if !is_for_all && !self.commands.allows(place, args.get(1)) {
            return Err(Refused::Command);
        }
        if !self.has_all_keys && command.keys != Keys::None {
            for (index, flags) in key_specs::of_request(command, args) {
                if !flags.contains(&"not_key") && !self.allows_key(args.at(index), flags) {
                    return Err(Refused::Key(index));
                }
            }
        }
        if !self.has_all_channels {
            let (channels, is_pattern) = channels_of(command, args);
            for index in channels {
                if !fits(&self.channels, args.at(index), is_pattern) {
                    return Err(Refused::Channel(index));
                }
            }
        }
        Ok(())
    }

    /// Whether a key may be used in the way that `flags` of its key specification tell.
    fn allows_key(&self, key: &[u8], flags: &[&str]) -> bool {
        let reads = flags.contains(&"access");
        let writes = ["insert", "delete", "update"].iter().any(|change| flags.contains(change));
        let is_enough = |known: &KeyPattern| (known.reads || !reads) && (known.writes || !writes);
        self.keys.iter().any(|known| is_enough(known) && glob::matches(&known.pattern, key))
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

/// Whether a channel is among those that the patterns allow. A pattern itself must be one of them.
fn fits(allowed: &[Vec<u8>], channel: &[u8], is_pattern: bool) -> bool {
    allowed.iter().any(
        |pattern| {
            if is_pattern { pattern == channel } else { glob::matches(pattern, channel) }
        },
    )
}
