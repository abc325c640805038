//! The part of `DEBUG` that public test suites use, and orders for the volume below the store.

use crate::context::{Halt, NOT_AN_INTEGER, SYNTAX, fail, fail_with};
use crate::control::{Control, Flow, VolumeOrder};
use crate::{glob, number};
use tierstone_wire::resp::Version;

/// The longest text that `DEBUG STRINGMATCH-LEN` makes, in bytes.
const TEXT_MAX_BYTES: i64 = 16 << 20;

/// The longest pattern that it compares the text with, in bytes.
const PATTERN_MAX_BYTES: usize = 1 << 10;

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
        Some(len @ 0..=TEXT_MAX_BYTES) if control.args.at(3).len() <= PATTERN_MAX_BYTES => {
            let text = vec![b'A'; len as usize];
            control.reply.integer(i64::from(glob::matches(control.args.at(3), &text)));
            Ok(Flow::Done)
        }
        Some(0..=TEXT_MAX_BYTES) => fail("ERR the pattern is too long for this"),
        _ => fail(NOT_AN_INTEGER),
    }
}

/// Orders of an operator for the volume below the store. Whoever may name files of this machine has to be on it.
pub(crate) fn volume(control: &mut Control<'_>) -> Result<Flow, Halt> {
    if control.session().info.is_remote {
        return fail("ERR DEBUG VOLUME is for clients on the server's own machine");
    }
    let args = control.args;
    let member = number::integer(args.at(3)).and_then(|member| usize::try_from(member).ok());
    let Some(member) = member else { return fail(NOT_AN_INTEGER) };
    let word = args.at(2).to_ascii_uppercase();
    let order = match (word.as_slice(), args.len()) {
        (b"FAIL", 4) => VolumeOrder::Fail { member },
        (b"REPLACE", 4) => VolumeOrder::Replace { member, path: None },
        (b"REPLACE", 5) => match std::str::from_utf8(args.at(4)) {
            Ok(path) => VolumeOrder::Replace { member, path: Some(path.to_owned()) },
            Err(_) => return fail("ERR the path is no text"),
        },
        _ => return fail(SYNTAX),
    };
    let Some(volume) = &control.host.facts.volume else { return fail("ERR the store lies on no volume") };
    match volume.order(order) {
        Ok(number) => control.reply.integer(number as i64),
        Err(error) => return fail_with(format!("ERR {}", error.message())),
    }
    Ok(Flow::Done)
}

/// What changes nothing here and is no mistake.
pub(crate) fn nothing(control: &mut Control<'_>) -> Result<Flow, Halt> {
    control.reply.ok();
    Ok(Flow::Done)
}

pub(crate) fn error(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let text = String::from_utf8_lossy(control.args.at(2)).replace(|letter: char| letter.is_control(), " ");
    fail_with(text)
}

/// Answers with a value of the type that is named, as Redis does for tests of clients.
pub(crate) fn protocol(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let name = control.args.at(2).to_ascii_lowercase();
    let is_new = control.reply.version() == Version::Resp3;
    let reply = &mut control.reply;
    match name.as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.integer(12_345),
        b"double" => reply.double(3_141.0 / 1_000.0),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|number| reply.integer(number));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|number| reply.integer(number));
        }
        b"map" => {
            reply.map(3);
            for number in 0..3 {
                reply.integer(number);
                reply.boolean(number == 1);
            }
        }
        b"attrib" => {
            if reply.attribute(1) {
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.integer(90);
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" if is_new => {
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.integer(42);
        }
        b"push" => return fail("ERR RESP2 is not supported by this command"),
        b"verbatim" => reply.verbatim(*b"txt", b"This is a verbatim\nstring"),
        b"true" => reply.boolean(true),
        b"false" => reply.boolean(false),
        b"bignum" => reply.big_number("1234567999999999999999999999999999999"),
        _ => {
            return fail(
                "ERR Wrong protocol type name. Please use one of the following: \
                 string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            );
        }
    }
    Ok(Flow::Done)
}
