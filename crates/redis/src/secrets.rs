//! Which arguments of a request nobody else may see: passwords, wherever requests are shown.

use crate::args::Args;
use crate::table::Command;

/// What stands for an argument that is not shown.
pub(crate) const REDACTED: &[u8] = b"(redacted)";

/// Settings whose values are secrets.
const SECRET_SETTINGS: [&[u8]; 5] =
    [b"requirepass", b"masterauth", b"masteruser", b"tls-key-file-pass", b"tls-client-key-file-pass"];

/// Whether argument `index` of a request must not be shown.
pub(crate) fn is_secret(command: &Command, args: Args<'_>, index: usize) -> bool {
    let follows = |distance: usize, word: &[u8]| {
        index >= distance && args.at(index - distance).eq_ignore_ascii_case(word)
    };
    match command.name {
        "auth" => index > 0,
        // Whatever describes a user may be a password; names of users are not shown either, as in Redis.
        "acl|setuser" | "acl|deluser" | "acl|getuser" => index > 1,
        "hello" => index > 1 && (follows(1, b"AUTH") || follows(2, b"AUTH")),
        "config|set" => {
            index > 2 && index % 2 == 1 && SECRET_SETTINGS.iter().any(|setting| follows(1, setting))
        }
        _ => false,
    }
}

/// Argument `index` as it may be shown.
pub(crate) fn shown<'a>(command: &Command, args: Args<'a>, index: usize) -> &'a [u8] {
    if is_secret(command, args, index) { REDACTED } else { args.at(index) }
}
