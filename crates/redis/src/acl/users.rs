//! All users together: one immutable table, and how another is made of it.
//!
//! Invariant: there is always a user `default`, and no user is half changed: a rule that is wrong leaves all as it was.

use crate::acl::user::{RuleError, USER_BYTES_MAX, User};
use crate::acl::{DEFAULT_USER, has_spaces};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most users.
const USERS_MAX: usize = 4_096;
/// Bytes that the rules of all users together may take, and their file.
pub const USERS_FILE_BYTES_MAX: usize = 8 << 20;

/// Every user by name.
#[derive(Clone, Debug)]
pub struct Users {
    by_name: BTreeMap<Vec<u8>, Arc<User>>,
    default: Arc<User>,
}

/// What a client wants changed about users. What it says may hold passwords: `Debug` does not show it.
#[derive(Clone)]
pub enum UsersChange {
    /// `ACL SETUSER`
    Set {
        /// Who.
        name: Vec<u8>,
        /// The rules, in order.
        rules: Vec<Vec<u8>>,
    },
    /// `ACL DELUSER`
    Delete {
        /// Who; names that nobody has do not count.
        names: Vec<Vec<u8>>,
    },
    /// `requirepass` was changed: it is the only password of the user `default`; empty: none is needed. Which it is, the
    /// shard that makes the change knows from the setting, as the newest of all that were given.
    Password,
    /// `ACL LOAD`
    Load,
}

impl std::fmt::Debug for UsersChange {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            UsersChange::Set { .. } => "Set",
            UsersChange::Delete { .. } => "Delete",
            UsersChange::Password => "Password",
            UsersChange::Load => "Load",
        })
    }
}

impl Users {
    /// The user `default` alone, who may do everything; his password, or an empty text.
    pub fn with_password(password: &str) -> Self {
        let mut user = User::unrestricted(DEFAULT_USER);
        user.set_password(password.as_bytes());
        let default = Arc::new(user);
        Users { by_name: BTreeMap::from([(DEFAULT_USER.to_vec(), Arc::clone(&default))]), default }
    }

    /// The users of a file: each line `user NAME RULE…`. A file that does not say who `default` is leaves him as he is
    /// here.
    ///
    /// # Errors
    /// What is wrong with each line, in Redis's words; nothing of the file holds then. `path` is shown.
    pub fn of_file(&self, path: &str, bytes: &[u8]) -> Result<Users, String> {
        let mut errors = String::new();
        let mut by_name: BTreeMap<Vec<u8>, Arc<User>> = BTreeMap::new();
        if bytes.len() > USERS_FILE_BYTES_MAX {
            return Err(format!("{path} is longer than {USERS_FILE_BYTES_MAX} bytes"));
        }
        for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
            let words: Vec<&[u8]> = line.trim_ascii().split(|byte| *byte == b' ').collect();
            if words == [b"" as &[u8]] {
                continue;
            }
            let (Some(name), b"user") = (words.get(1), words[0]) else {
                errors.push_str(&format!(
                    "{path}:{number} should start with user keyword followed by the username. "
                ));
                continue;
            };
            if has_spaces(name) {
                let name = String::from_utf8_lossy(name);
                errors.push_str(&format!("{path}:{number}: username '{name}' contains invalid characters. "));
                continue;
            }
            if by_name.contains_key(*name) {
                let name = String::from_utf8_lossy(name);
                errors.push_str(&format!("WARNING: Duplicate user '{name}' found on line {number}. "));
                continue;
            }
            let user = user_of_line(name, &words[2..], &format!("{path}:{number}"), &mut errors);
            by_name.insert(name.to_vec(), Arc::new(user));
        }
        if !errors.is_empty() {
            errors.push_str(
                "WARNING: ACL errors detected, no change to the previously active ACL rules was performed",
            );
            return Err(errors);
        }
        let default = by_name.entry(DEFAULT_USER.to_vec()).or_insert_with(|| Arc::clone(&self.default));
        let users = Users { default: Arc::clone(default), by_name };
        users.check_bounds().map(|()| users)
    }

    /// The file of users that [`Users::of_file`] reads.
    pub fn file(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for user in self.iter() {
            bytes.extend_from_slice(&user.line());
            bytes.push(b'\n');
        }
        bytes
    }

    /// The user of this name.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// The user of connections that have not said who they are.
    pub(crate) fn default_user(&self) -> &Arc<User> {
        &self.default
    }

    /// Whether connections must say who they are before they may do anything.
    pub fn asks(&self) -> bool {
        !self.default.is_open || !self.default.is_on
    }

    /// Whether the user `default` needs no password.
    pub fn is_open(&self) -> bool {
        self.default.is_open
    }

    /// All users in the order of their names.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.by_name.values()
    }

    /// The users after a change that needs no file, and the number that the client is answered, if one; `password` is what
    /// `requirepass` says.
    ///
    /// # Errors
    /// The text that the client gets.
    pub(crate) fn changed(
        &self,
        change: &UsersChange,
        password: &str,
    ) -> Result<(Users, Option<u64>), String> {
        let mut users = self.clone();
        let mut count = None;
        match change {
            UsersChange::Set { name, rules } => users.set(name, rules)?,
            UsersChange::Delete { names } => {
                let before = users.by_name.len();
                for name in names {
                    if name == DEFAULT_USER {
                        return Err("ERR The 'default' user cannot be removed".into());
                    }
                    users.by_name.remove(name);
                }
                count = Some((before - users.by_name.len()) as u64);
            }
            UsersChange::Password => {
                let mut user = User::clone(&users.default);
                user.set_password(password.as_bytes());
                users.insert(user);
            }
            UsersChange::Load => unreachable!("a file is read first"),
        }
        Ok((users, count))
    }

    fn set(&mut self, name: &[u8], rules: &[Vec<u8>]) -> Result<(), String> {
        if has_spaces(name) {
            return Err("ERR Usernames can't contain spaces or null characters".into());
        }
        let given: usize = rules.iter().map(Vec::len).sum();
        if given > 2 * USER_BYTES_MAX {
            return Err(too_much());
        }
        let mut user = self.by_name.get(name).map_or_else(|| User::new(name), |user| User::clone(user));
        let words: Vec<&[u8]> = rules.iter().map(Vec::as_slice).collect();
        let merged = merge_selectors(&words).map_err(|at| {
            let start = String::from_utf8_lossy(words[at]);
            format!("ERR Unmatched parenthesis in acl selector starting at '{start}'.")
        })?;
        for rule in merged {
            user.apply(&rule).map_err(|error| {
                let rule = String::from_utf8_lossy(&rule);
                format!("ERR Error in ACL SETUSER modifier '{rule}': {}", error.text())
            })?;
            if !user.is_bounded() {
                return Err(too_much());
            }
        }
        self.insert(user);
        self.check_bounds().and_then(|()| self.check_file()).map_err(|text| format!("ERR {text}"))
    }

    fn insert(&mut self, user: User) {
        let user = Arc::new(user);
        if user.name == DEFAULT_USER {
            self.default = Arc::clone(&user);
        }
        self.by_name.insert(user.name.clone(), user);
    }

    /// Whether the file that `ACL SAVE` would write may be read again.
    fn check_file(&self) -> Result<(), String> {
        let bytes: usize = self.iter().map(|user| user.line_bytes_max()).sum();
        if bytes > USERS_FILE_BYTES_MAX {
            return Err(format!("the file of all users may take at most {USERS_FILE_BYTES_MAX} bytes"));
        }
        Ok(())
    }

    fn check_bounds(&self) -> Result<(), String> {
        if self.by_name.len() > USERS_MAX {
            return Err(format!("there may be at most {USERS_MAX} users"));
        }
        let size_bytes: usize = self.iter().map(|user| user.size_bytes()).sum();
        if size_bytes > USERS_FILE_BYTES_MAX {
            return Err(format!("the rules of all users may take at most {USERS_FILE_BYTES_MAX} bytes"));
        }
        Ok(())
    }
}

fn too_much() -> String {
    format!("ERR the rules of a user may take at most {USER_BYTES_MAX} bytes, and be at most 1024")
}

/// The user of one line of a file; what is wrong goes to `errors`.
fn user_of_line(name: &[u8], rules: &[&[u8]], place: &str, errors: &mut String) -> User {
    let mut user = User::new(name);
    let Ok(merged) = merge_selectors(rules) else {
        errors.push_str(&format!("{place}: Unmatched parenthesis in selector definition."));
        return user;
    };
    let mut was_wrong = false;
    for rule in merged {
        match user.apply(rule.trim_ascii()) {
            Ok(()) => {}
            Err(RuleError::Unknown) => {
                let (rule, why) = (String::from_utf8_lossy(&rule), RuleError::Unknown.text());
                errors.push_str(&format!("{place}: Error in applying operation '{rule}': {why}. "));
            }
            // Others may show a part of a password: nothing is said about the rule, and once only.
            Err(error) if !was_wrong => {
                was_wrong = true;
                errors.push_str(&format!("{place}: {}. ", error.text()));
            }
            Err(_) => {}
        }
        if !user.is_bounded() {
            errors.push_str(&format!("{place}: {}. ", too_much().trim_start_matches("ERR ")));
            return user;
        }
    }
    user
}

/// Puts the rules together that stand between parentheses.
///
/// # Errors
/// Where a parenthesis begins that does not end.
fn merge_selectors(words: &[&[u8]]) -> Result<Vec<Vec<u8>>, usize> {
    let mut merged = Vec::new();
    let mut open: Option<(usize, Vec<u8>)> = None;
    for (index, word) in words.iter().enumerate() {
        let ends = word.last() == Some(&b')');
        match &mut open {
            None if word.first() == Some(&b'(') && !ends => open = Some((index, word.to_vec())),
            None => merged.push(word.to_vec()),
            Some((_, inside)) => {
                inside.push(b' ');
                inside.extend_from_slice(word);
                if ends {
                    merged.push(std::mem::take(inside));
                    open = None;
                }
            }
        }
    }
    match open {
        Some((start, _)) => Err(start),
        None => Ok(merged),
    }
}
