//! Access control: users, what each may do, and what was refused.
//!
//! Reading order: [`rules`] are the commands that a user may run, [`user`] is a user, `check` decides about one
//! request (`known` looks at many patterns together), which `admission` answers, [`users`] are all users together and how they
//! change, `text` is a user as clients and the file of users see him, `log` keeps what was refused, `shards` takes changes over all shards.
//!
//! Invariants:
//! 1. Of a password nothing is kept but its SHA-256, and nothing of it is ever written to a log.
//! 2. All users together are one immutable table ([`users::Users`]); a change makes another. The first shard makes
//!    changes, one after the other, so that all shards have the same; whoever asked is answered when all have it.
//! 3. What a connection may do without a look at its request is one flag of its session.

mod admission;
mod check;
mod elsewhere;
#[cfg(any(test, feature = "fuzzing"))]
pub mod invariants;
mod known;
pub(crate) mod log;
pub(crate) mod rules;
mod shards;
mod text;
mod user;
mod users;

pub(crate) use admission::Denied;
pub(crate) use check::Refused;
pub use shards::UsersMessage;
pub(crate) use shards::change_of_settings;
pub use user::User;
pub use users::{USERS_FILE_BYTES_MAX, Users, UsersChange};

/// The user of connections that have not said who they are.
pub(crate) const DEFAULT_USER: &[u8] = b"default";

/// Whether a name or a pattern has bytes that would end it in a file of users.
pub(crate) fn has_spaces(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| matches!(byte, b' ' | b'\t'..=b'\r' | 0))
}

/// SHA-256 of what a client has sent as a password.
pub(crate) fn password_hash(password: &[u8]) -> [u8; 32] {
    use sha2::Digest;
    sha2::Sha256::digest(password).into()
}

/// Lower hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
