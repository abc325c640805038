//! `DUMP` and `RESTORE`: strings in the payloads of Redis's snapshot format.

use crate::context::{Context, Halt, NOT_AN_INTEGER, Run, SYNTAX, TOO_LONG, fail};
use crate::events::class;
use crate::number;
use crate::work;
use tierstone_wire::rdb::{self, Payload, PayloadError};

/// The longest string that is dumped, in bytes: the longest that `RESTORE` can be sent. It is held in memory
/// twice for the time of the command, so it may also not be longer than what the run may hold.
const DUMP_BYTES_MAX: u64 = 63 << 20;

/// Work for a byte that is dumped, in units of about a nanosecond: to copy it three times, and for the checksum.
const WORK_A_BYTE: u64 = 2;

pub(crate) fn dump(context: &mut Context<'_, '_>) -> Run {
    let key = context.args.at(1);
    let Some(len) = context.read(key)?.map(|text| text.len()) else {
        context.reply.null();
        return Ok(());
    };
    if len > DUMP_BYTES_MAX {
        return fail("ERR the value is too long to be dumped");
    }
    context.view.check_held(len)?;
    context.load_scratch(key)?;
    let mut payload = Vec::with_capacity(context.scratch.len() + 32);
    rdb::write_string(context.scratch, &mut payload);
    context.reads.work += payload.len() as u64 * WORK_A_BYTE;
    *context.scratch = Vec::new();
    context.reply.bulk(&payload);
    Ok(())
}

/// The words behind the payload of `RESTORE`.
#[derive(Default)]
struct Options {
    replaces: bool,
    is_absolute: bool,
}

fn options(context: &Context<'_, '_>) -> Result<Options, Halt> {
    let args = context.args;
    let mut options = Options::default();
    let (mut has_idle, mut has_frequency) = (false, false);
    let mut index = 4;
    while let Some(word) = args.get(index) {
        let value = args.get(index + 1);
        match (word.to_ascii_uppercase().as_slice(), value) {
            (b"REPLACE", _) => options.replaces = true,
            (b"ABSTTL", _) => options.is_absolute = true,
            // Neither is kept; both are checked.
            (b"IDLETIME", Some(value)) if !has_frequency => {
                match number::integer(value) {
                    None => return fail(NOT_AN_INTEGER),
                    Some(..0) => return fail("ERR Invalid IDLETIME value, must be >= 0"),
                    Some(_) => has_idle = true,
                }
                index += 1;
            }
            (b"FREQ", Some(value)) if !has_idle => {
                match number::integer(value) {
                    None => return fail(NOT_AN_INTEGER),
                    Some(0..=255) => has_frequency = true,
                    Some(_) => return fail("ERR Invalid FREQ value, must be >= 0 and <= 255"),
                }
                index += 1;
            }
            _ => return fail(SYNTAX),
        }
        index += 1;
    }
    Ok(options)
}

fn refuse<T>(error: PayloadError) -> Result<T, Halt> {
    fail(match error {
        PayloadError::VersionOrChecksum => "ERR DUMP payload version or checksum are wrong",
        PayloadError::Format => "ERR Bad data format",
        PayloadError::TooLong => TOO_LONG,
    })
}

pub(crate) fn restore(context: &mut Context<'_, '_>) -> Run {
    let args = context.args;
    let key = args.at(1);
    let options = options(context)?;
    let is_taken = context.view.get(context.db, key)?.is_some();
    if is_taken && !options.replaces {
        return fail("BUSYKEY Target key name already exists.");
    }
    let ttl_ms = context.integer(2)?;
    let base_ms = if options.is_absolute || ttl_ms == 0 { 0 } else { context.now_ms() as i64 };
    // One that lies beyond all times is refused as one before them is.
    let expiry_ms = match ttl_ms.checked_add(base_ms) {
        Some(expiry_ms) if ttl_ms >= 0 => expiry_ms as u64,
        _ => return fail("ERR Invalid TTL value, must be >= 0"),
    };
    let payload = Payload::open(args.at(3)).or_else(refuse)?;
    let len = payload.len() as u64;
    if len > context.value_size_max_bytes {
        return fail(TOO_LONG);
    }
    // A compressed one may be far longer than what was sent.
    context.view.check_held(len)?;
    context.reads.work += work::of_bytes(payload.len());
    let value = payload.read().or_else(refuse)?;
    // One that has expired already is not made, and takes what was there with it.
    context.store(key, &value, expiry_ms)?;
    if expiry_ms == 0 || expiry_ms > context.now_ms() {
        context.note(class::NEW, "new", key);
        context.note(class::GENERIC, "restore", key);
        if is_taken {
            context.note(class::OVERWRITTEN, "overwritten", key);
        }
    } else if is_taken {
        context.note(class::GENERIC, "del", key);
    }
    context.reply.ok();
    Ok(())
}
