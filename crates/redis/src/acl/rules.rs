//! Which commands a user may run, and the rules that say so.
//!
//! Invariant: the text of the rules, applied to a user without rules, gives the same commands. Rules that a later one
//! makes meaningless are left out of it, as Redis does.

use crate::acl::elsewhere::is_elsewhere;
use crate::acl::has_spaces;
use crate::acl::user::RuleError;
use crate::table::{self, Command, category};
use std::collections::BTreeMap;

/// A command or subcommand among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommandPlace {
    /// The index of the command, or of its container.
    pub index: usize,
    /// 0 for the command itself, else its number among the subcommands, from 1 on.
    bit: u32,
}

impl CommandPlace {
    /// Of a command whose index, or whose container's, is known.
    pub fn of(index: usize, command: &'static Command) -> Self {
        let subcommands = table::command(index).subcommands.iter();
        let found = (1..).zip(subcommands).find(|(_, subcommand)| std::ptr::eq(*subcommand, command));
        CommandPlace { index, bit: found.map_or(0, |(bit, _)| bit) }
    }

    fn mask(self) -> u64 {
        1 << self.bit
    }
}

/// The commands that one set of rules allows.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct CommandRules {
    /// For each command of the table a bit for itself and one for each subcommand.
    allowed: Vec<u64>,
    /// Whether the rules begin with all commands rather than with none.
    begins_with_all: bool,
    /// The rules behind that, in lower case, with spaces between them.
    text: Vec<u8>,
    /// First arguments with which a command may be run that is not allowed as such.
    first_arguments: BTreeMap<usize, Vec<Vec<u8>>>,
}

impl Default for CommandRules {
    /// No command.
    fn default() -> Self {
        let allowed = vec![0; table::count()];
        CommandRules { allowed, begins_with_all: false, text: Vec::new(), first_arguments: BTreeMap::new() }
    }
}

impl CommandRules {
    /// All commands, or none.
    pub fn reset(&mut self, all: bool) {
        self.allowed.fill(if all { u64::MAX } else { 0 });
        self.begins_with_all = all;
        self.text.clear();
        self.first_arguments.clear();
    }

    /// Whether every command is allowed.
    pub fn is_everything(&self) -> bool {
        self.allowed.iter().all(|bits| *bits == u64::MAX)
    }

    /// Whether a request may be made, as far as its command is concerned.
    pub fn allows(&self, place: CommandPlace, first_argument: Option<&[u8]>) -> bool {
        self.allowed[place.index] & place.mask() != 0
            || first_argument.is_some_and(|given| {
                let allowed = self.first_arguments.get(&place.index);
                allowed.is_some_and(|all| all.iter().any(|one| one.eq_ignore_ascii_case(given)))
            })
    }

    /// The rules as one text.
    pub fn describe(&self) -> Vec<u8> {
        let mut text = if self.begins_with_all { b"+@all".to_vec() } else { b"-@all".to_vec() };
        if !self.text.is_empty() {
            text.push(b' ');
            text.extend_from_slice(&self.text);
        }
        text
    }

    /// Bytes that the rules take beside the table of commands.
    pub fn size_bytes(&self) -> usize {
        let arguments = self.first_arguments.values().flatten();
        self.text.len() + arguments.map(|argument| argument.len() + size_of::<Vec<u8>>()).sum::<usize>()
    }

    /// `+@NAME` or `-@NAME` other than that of all commands; `name` has no `@`.
    pub fn change_category(&mut self, name: &[u8], allow: bool) -> Result<(), RuleError> {
        let bit = category::bit_of(name).ok_or(RuleError::Unknown)?;
        for (index, command) in table::commands().enumerate() {
            if command.all_categories() & bit != 0 {
                self.change(CommandPlace { index, bit: 0 }, allow);
            }
            for (number, subcommand) in (1..).zip(command.subcommands) {
                if subcommand.all_categories() & bit != 0 {
                    self.change(CommandPlace { index, bit: number }, allow);
                }
            }
        }
        self.note_rule(&[b"@", name].concat(), allow);
        Ok(())
    }

    /// `-NAME`, where the name may be that of a subcommand.
    pub fn deny(&mut self, name: &[u8]) -> Result<(), RuleError> {
        if is_elsewhere(name) {
            self.note_rule(name, false);
            return Ok(());
        }
        let found = table::find(name).ok_or(RuleError::Unknown)?;
        self.change(CommandPlace::of(found.index, found.command), false);
        self.note_rule(found.command.name.as_bytes(), false);
        Ok(())
    }

    /// `+NAME`, `+CONTAINER|SUBCOMMAND` or `+NAME|FIRST-ARGUMENT`.
    pub fn allow(&mut self, name: &[u8]) -> Result<(), RuleError> {
        if is_elsewhere(name) {
            self.note_rule(name, true);
            return Ok(());
        }
        let Some(bar) = name.iter().rposition(|byte| *byte == b'|') else {
            let found = table::lookup(name).ok_or(RuleError::Unknown)?;
            self.change(CommandPlace { index: found.index, bit: 0 }, true);
            self.note_rule(found.command.name.as_bytes(), true);
            return Ok(());
        };
        let (container, argument) = (&name[..bar], &name[bar + 1..]);
        let found = table::find(container).ok_or(RuleError::Unknown)?;
        if container.contains(&b'|') {
            return Err(RuleError::FirstArgumentOfSubcommand);
        }
        // What is a rule of its own once it is shown could not be read again.
        if argument.is_empty() || has_spaces(argument) {
            return Err(RuleError::Syntax);
        }
        if found.command.subcommands.is_empty() {
            let known = self.first_arguments.entry(found.index).or_default();
            if !known.iter().any(|other| other.eq_ignore_ascii_case(argument)) {
                known.push(argument.to_vec());
            }
        } else {
            let command = table::subcommand(found.command, argument).ok_or(RuleError::Unknown)?;
            self.change(CommandPlace::of(found.index, command), true);
        }
        self.note_rule(name, true);
        Ok(())
    }

    fn change(&mut self, place: CommandPlace, allow: bool) {
        if place.bit == 0 {
            self.allowed[place.index] = if allow { u64::MAX } else { 0 };
            self.first_arguments.remove(&place.index);
        } else if allow {
            self.allowed[place.index] |= place.mask();
        } else {
            self.allowed[place.index] &= !place.mask();
        }
    }

    /// Writes a rule behind the others, which it replaces if they are about the same or a part of it.
    fn note_rule(&mut self, name: &[u8], allow: bool) {
        let name = name.to_ascii_lowercase();
        let is_covered = |rule: &[u8]| {
            let about = rule.get(1..).unwrap_or_default();
            about.strip_prefix(name.as_slice()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"|"))
        };
        let words = self.text.split(|byte| *byte == b' ');
        let mut kept: Vec<&[u8]> = words.filter(|rule| !rule.is_empty() && !is_covered(rule)).collect();
        let added = [if allow { b"+" } else { b"-" }, name.as_slice()].concat();
        kept.push(&added);
        self.text = kept.join(&b' ');
    }
}

const _: () = {
    let mut index = 0;
    while index < table::count() {
        assert!(table::command(index).subcommands.len() < 63, "a bit for each subcommand");
        index += 1;
    }
};
