//! The part of `DEBUG` that public test suites use.

use crate::context::{Halt, NOT_AN_INTEGER, fail};
use crate::control::{Control, Flow};
use crate::{glob, number};

/// The longest text that `DEBUG STRINGMATCH-LEN` makes, in bytes.
const TEXT_MAX_BYTES: i64 = 16 << 20;

pub(crate) fn set_active_expire(control: &mut Control<'_>) -> Result<Flow, Halt> {
    // Expiry is decided by the clock at each read; nothing runs that could be switched off.
    match control.args.at(2) {
        b"0" | b"1" => control.reply.ok(),
        _ => return fail(NOT_AN_INTEGER),
    }
    Ok(Flow::Done)
}

pub(crate) fn stringmatch_len(control: &mut Control<'_>) -> Result<Flow, Halt> {
    match number::integer(control.args.at(2)) {
        Some(len @ 0..=TEXT_MAX_BYTES) => {
            let text = vec![b'A'; len as usize];
            control.reply.integer(i64::from(glob::matches(control.args.at(3), &text)));
            Ok(Flow::Done)
        }
        _ => fail(NOT_AN_INTEGER),
    }
}
