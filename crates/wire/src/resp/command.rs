//! Commands as a client sends them.

use super::reply::{push_bulk, push_header};

/// Appends one command, as an array of bulks, the command's name first. No allocation beyond `out`'s
/// own growth.
pub fn encode_command(arguments: &[&[u8]], out: &mut Vec<u8>) {
    push_header(out, b'*', arguments.len());
    for argument in arguments {
        push_bulk(out, argument);
    }
}
