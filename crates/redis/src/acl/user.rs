//! One user: who he is, and what he may do.

use crate::acl::rules::CommandRules;
use crate::acl::{has_spaces, password_hash};
use subtle::ConstantTimeEq;

/// Patterns, passwords and sets of rules that one user may have.
const PARTS_MAX: usize = 1_024;
/// Bytes that the rules of one user may take.
pub(crate) const USER_BYTES_MAX: usize = 64 << 10;

/// Keys that a user may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyPattern {
    pub reads: bool,
    pub writes: bool,
    pub pattern: Vec<u8>,
}

/// What a user may do; he may do whatever one of his selectors allows as a whole.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    pub commands: CommandRules,
    pub has_all_keys: bool,
    pub keys: Vec<KeyPattern>,
    pub has_all_channels: bool,
    pub channels: Vec<Vec<u8>>,
}

/// A user. What identifies him is kept as hashes, and is not part of what `Debug` shows.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    pub(crate) name: Vec<u8>,
    /// Whether connections may become this user.
    pub(crate) is_on: bool,
    /// Whether any password is right.
    pub(crate) is_open: bool,
    pub(crate) sanitizes_payloads: bool,
    pub(crate) passwords: Vec<[u8; 32]>,
    /// The rules of the user himself, then further ones in parentheses; never empty.
    pub(crate) selectors: Vec<Selector>,
}

impl std::fmt::Debug for User {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("User")
            .field("name", &String::from_utf8_lossy(&self.name))
            .finish_non_exhaustive()
    }
}

/// What is wrong with a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleError {
    Unknown,
    Syntax,
    NoSuchPassword,
    NoHash,
    FirstArgumentOfSubcommand,
    AfterAllKeys,
    AfterAllChannels,
}

impl RuleError {
    /// Redis's words for it.
    pub fn text(self) -> &'static str {
        match self {
            RuleError::Unknown => "Unknown command or category name in ACL",
            RuleError::Syntax => "Syntax error",
            RuleError::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            RuleError::NoHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            RuleError::FirstArgumentOfSubcommand => "Allowing first-arg of a subcommand is not supported",
            RuleError::AfterAllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            RuleError::AfterAllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels"
            }
        }
    }
}

impl User {
    /// A user who may do nothing.
    pub(crate) fn new(name: &[u8]) -> Self {
        User {
            name: name.to_vec(),
            is_on: false,
            is_open: false,
            sanitizes_payloads: true,
            passwords: Vec::new(),
            selectors: vec![Selector::default()],
        }
    }

    /// A user who may do everything without a password.
    pub(crate) fn unrestricted(name: &[u8]) -> Self {
        let mut user = User { is_on: true, is_open: true, ..User::new(name) };
        let root = &mut user.selectors[0];
        root.commands.reset(true);
        (root.has_all_keys, root.has_all_channels) = (true, true);
        user
    }

    /// His only password from now on; an empty one lets everybody in.
    pub(crate) fn set_password(&mut self, password: &[u8]) {
        self.passwords.clear();
        self.is_open = password.is_empty();
        if !self.is_open {
            self.passwords.push(password_hash(password));
        }
    }

    /// Whether somebody may become this user who sends `password`. The time it takes does not tell how much of it
    /// was right, nor which of several passwords.
    pub(crate) fn lets_in(&self, password: &[u8]) -> bool {
        let given = password_hash(password);
        let fits =
            self.passwords.iter().fold(subtle::Choice::from(0), |fits, hash| fits | hash.ct_eq(&given));
        self.is_on && (self.is_open || bool::from(fits))
    }

    /// Whether nothing that he asks for needs to be looked at.
    pub(crate) fn is_unrestricted(&self) -> bool {
        let is_free = |selector: &Selector| {
            selector.has_all_keys && selector.has_all_channels && selector.commands.is_everything()
        };
        self.selectors.iter().any(is_free)
    }

    /// Whether the rules stay within their bounds.
    pub(crate) fn is_bounded(&self) -> bool {
        let parts = |selector: &Selector| 1 + selector.keys.len() + selector.channels.len();
        let count = self.passwords.len() + self.selectors.iter().map(parts).sum::<usize>();
        count <= PARTS_MAX && self.size_bytes() <= USER_BYTES_MAX
    }

    /// Bytes of names, patterns and rules.
    pub(crate) fn size_bytes(&self) -> usize {
        let of_selector = |selector: &Selector| {
            let keys: usize = selector.keys.iter().map(|key| key.pattern.len()).sum();
            let channels: usize = selector.channels.iter().map(Vec::len).sum();
            keys + channels + selector.commands.size_bytes()
        };
        self.name.len() + self.selectors.iter().map(of_selector).sum::<usize>()
    }

    /// Bytes of his line in a file of users, or some more.
    pub(crate) fn line_bytes_max(&self) -> usize {
        let of_selector = |selector: &Selector| {
            let prefixes = " %RW~".len() * selector.keys.len() + " &".len() * selector.channels.len();
            prefixes + " (resetchannels -@all )".len()
        };
        let flags = "user  off nopass skip-sanitize-payload\n".len();
        let hashes = (" #".len() + 64) * self.passwords.len();
        self.size_bytes() + flags + hashes + self.selectors.iter().map(of_selector).sum::<usize>()
    }

    /// Changes him by one rule of `ACL SETUSER`.
    pub(crate) fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        match rule.to_ascii_lowercase().as_slice() {
            b"" => {}
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            b"nopass" => {
                self.is_open = true;
                self.passwords.clear();
            }
            b"resetpass" => {
                self.is_open = false;
                self.passwords.clear();
            }
            b"sanitize-payload" => self.sanitizes_payloads = true,
            b"skip-sanitize-payload" => self.sanitizes_payloads = false,
            b"clearselectors" => self.selectors.truncate(1),
            b"reset" => *self = User::new(&self.name),
            _ => return self.apply_further(rule),
        }
        Ok(())
    }

    fn apply_further(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        match rule {
            [b'>', password @ ..] => self.add_password(password_hash(password)),
            [b'#', digits @ ..] => self.add_password(hash_of(digits)?),
            [b'<', password @ ..] => return self.remove_password(password_hash(password)),
            [b'!', digits @ ..] => return self.remove_password(hash_of(digits)?),
            [b'(', inside @ .., b')'] => {
                let mut selector = Selector::default();
                for rule in inside.split(u8::is_ascii_whitespace) {
                    if rule.ends_with(b")") {
                        // Read again from a file, where rules stand for themselves, it would end the selector.
                        return Err(RuleError::Syntax);
                    }
                    if !rule.is_empty() {
                        selector.apply(rule)?;
                    }
                }
                self.selectors.push(selector);
            }
            _ => return self.selectors[0].apply(rule),
        }
        Ok(())
    }

    fn add_password(&mut self, hash: [u8; 32]) {
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
        self.is_open = false;
    }

    fn remove_password(&mut self, hash: [u8; 32]) -> Result<(), RuleError> {
        let place =
            self.passwords.iter().position(|other| *other == hash).ok_or(RuleError::NoSuchPassword)?;
        self.passwords.remove(place);
        Ok(())
    }
}

impl Selector {
    fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        match rule.to_ascii_lowercase().as_slice() {
            b"allkeys" | b"~*" => {
                self.has_all_keys = true;
                self.keys.clear();
            }
            b"resetkeys" => {
                self.has_all_keys = false;
                self.keys.clear();
            }
            b"allchannels" | b"&*" => {
                self.has_all_channels = true;
                self.channels.clear();
            }
            b"resetchannels" => {
                self.has_all_channels = false;
                self.channels.clear();
            }
            b"allcommands" | b"+@all" => self.commands.reset(true),
            b"nocommands" | b"-@all" => self.commands.reset(false),
            _ => match rule {
                [b'~', pattern @ ..] => return self.add_keys(pattern, true, true),
                [b'%', rest @ ..] => return self.add_keys_for(rest),
                [b'&', pattern @ ..] => return self.add_channels(pattern),
                [b'+', b'@', name @ ..] => return self.commands.change_category(name, true),
                [b'-', b'@', name @ ..] => return self.commands.change_category(name, false),
                [b'+', name @ ..] => return self.commands.allow(name),
                [b'-', name @ ..] => return self.commands.deny(name),
                _ => return Err(RuleError::Syntax),
            },
        }
        Ok(())
    }

    /// `%R~…`, `%W~…` or `%RW~…`, of which `rest` has what follows the `%`.
    fn add_keys_for(&mut self, rest: &[u8]) -> Result<(), RuleError> {
        if self.has_all_keys {
            return Err(RuleError::AfterAllKeys);
        }
        let end = rest.iter().position(|byte| *byte == b'~').unwrap_or(rest.len());
        let (mut reads, mut writes) = (false, false);
        for letter in &rest[..end] {
            match letter.to_ascii_uppercase() {
                b'R' if !reads => reads = true,
                b'W' if !writes => writes = true,
                _ => return Err(RuleError::Syntax),
            }
        }
        if !reads && !writes {
            return Err(RuleError::Syntax);
        }
        self.add_keys(rest.get(end + 1..).unwrap_or_default(), reads, writes)
    }

    fn add_keys(&mut self, pattern: &[u8], reads: bool, writes: bool) -> Result<(), RuleError> {
        if self.has_all_keys {
            return Err(RuleError::AfterAllKeys);
        }
        if has_spaces(pattern) {
            return Err(RuleError::Syntax);
        }
        match self.keys.iter_mut().find(|key| key.pattern == pattern) {
            Some(known) => {
                known.reads |= reads;
                known.writes |= writes;
            }
            None => self.keys.push(KeyPattern { reads, writes, pattern: pattern.to_vec() }),
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.has_all_channels {
            return Err(RuleError::AfterAllChannels);
        }
        if has_spaces(pattern) {
            return Err(RuleError::Syntax);
        }
        if !self.channels.iter().any(|known| known == pattern) {
            self.channels.push(pattern.to_vec());
        }
        Ok(())
    }
}

/// The hash that 64 lower hexadecimal digits are.
fn hash_of(digits: &[u8]) -> Result<[u8; 32], RuleError> {
    let mut hash = [0; 32];
    if digits.len() != 64 {
        return Err(RuleError::NoHash);
    }
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return Err(RuleError::NoHash),
            };
            *byte = *byte << 4 | value;
        }
    }
    Ok(hash)
}
