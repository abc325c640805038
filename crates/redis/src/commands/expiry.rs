//! Expiry times in arguments, and the commands that set, clear and show them.

use crate::args::Args;
use crate::context::{Context, Halt, Run, SYNTAX, fail, fail_with};
use crate::events::class;
use crate::number;
use tierstone_store::Record;

/// The unit and base of an expiry argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// `EX`
    Seconds,
    /// `PX`
    Milliseconds,
    /// `EXAT`
    UnixSeconds,
    /// `PXAT`
    UnixMilliseconds,
}

impl Unit {
    fn is_seconds(self) -> bool {
        matches!(self, Unit::Seconds | Unit::UnixSeconds)
    }

    fn base_ms(self, now_ms: u64) -> i64 {
        match self {
            Unit::Seconds | Unit::Milliseconds => now_ms as i64,
            Unit::UnixSeconds | Unit::UnixMilliseconds => 0,
        }
    }

    /// The unit that an option names.
    pub(crate) fn option(name: &[u8]) -> Option<Unit> {
        let units = [
            ("EX", Unit::Seconds),
            ("PX", Unit::Milliseconds),
            ("EXAT", Unit::UnixSeconds),
            ("PXAT", Unit::UnixMilliseconds),
        ];
        units.iter().find(|(option, _)| name.eq_ignore_ascii_case(option.as_bytes())).map(|(_, unit)| *unit)
    }
}

/// The point in time that `text` means to `SET` and `GETEX`: positive, in milliseconds since 1970.
pub(crate) fn positive_expiry(text: &[u8], unit: Unit, now_ms: u64, command: &str) -> Result<u64, Halt> {
    let Some(value) = number::integer(text) else { return fail(crate::context::NOT_AN_INTEGER) };
    let scale = if unit.is_seconds() { 1_000 } else { 1 };
    let expiry = value.checked_mul(scale).and_then(|value| value.checked_add(unit.base_ms(now_ms)));
    match expiry {
        Some(expiry) if value > 0 => Ok(expiry as u64),
        _ => fail_with(format!("ERR invalid expire time in '{command}' command")),
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Conditions {
    is_new: bool,
    is_old: bool,
    is_greater: bool,
    is_less: bool,
}

impl Conditions {
    fn parse(context: &Context<'_, '_>) -> Result<Conditions, Halt> {
        let mut conditions = Conditions::default();
        for option in context.args.from(3) {
            let flag = match option.to_ascii_uppercase().as_slice() {
                b"NX" => &mut conditions.is_new,
                b"XX" => &mut conditions.is_old,
                b"GT" => &mut conditions.is_greater,
                b"LT" => &mut conditions.is_less,
                _ => {
                    let option = String::from_utf8_lossy(option);
                    return fail_with(format!("ERR Unsupported option {option}"));
                }
            };
            *flag = true;
        }
        if conditions.is_new && (conditions.is_old || conditions.is_greater || conditions.is_less) {
            return fail("ERR NX and XX, GT or LT options at the same time are not compatible");
        }
        if conditions.is_greater && conditions.is_less {
            return fail("ERR GT and LT options at the same time are not compatible");
        }
        Ok(conditions)
    }

    /// Whether an expiry of `new` may replace `old` (0: none, which counts as infinite).
    fn allow(self, old: u64, new: i64) -> bool {
        if self.is_new && old != 0 || self.is_old && old == 0 {
            return false;
        }
        // The library allows times that no client can name.
        let old = if old == 0 { i64::MAX } else { i64::try_from(old).unwrap_or(i64::MAX) };
        let is_without = old == i64::MAX;
        !(self.is_greater && (is_without || new <= old) || self.is_less && !is_without && new >= old)
    }
}

fn expire(context: &mut Context<'_, '_>, unit: Unit, command: &str) -> Run {
    let key = context.args.at(1);
    let conditions = Conditions::parse(context)?;
    let value = context.integer(2)?;
    let scale = if unit.is_seconds() { 1_000 } else { 1 };
    let expiry = value.checked_mul(scale).and_then(|value| value.checked_add(unit.base_ms(context.now_ms())));
    let Some(expiry) = expiry else {
        return fail_with(format!("ERR invalid expire time in '{command}' command"));
    };
    let old = context.view.get(context.db, key)?.map(|record| record.meta.expiry_ms);
    let Some(old) = old else {
        context.reply.integer(0);
        return Ok(());
    };
    if !conditions.allow(old, expiry) {
        context.reply.integer(0);
        return Ok(());
    }
    if expiry <= context.now_ms() as i64 {
        context.delete(key)?;
        context.note(class::GENERIC, "del", key);
    } else {
        context.set_expiry(key, expiry as u64)?;
        context.note(class::GENERIC, "expire", key);
    }
    context.reply.integer(1);
    Ok(())
}

pub(crate) fn expire_seconds(context: &mut Context<'_, '_>) -> Run {
    expire(context, Unit::Seconds, "expire")
}

pub(crate) fn expire_milliseconds(context: &mut Context<'_, '_>) -> Run {
    expire(context, Unit::Milliseconds, "pexpire")
}

pub(crate) fn expire_at_seconds(context: &mut Context<'_, '_>) -> Run {
    expire(context, Unit::UnixSeconds, "expireat")
}

pub(crate) fn expire_at_milliseconds(context: &mut Context<'_, '_>) -> Run {
    expire(context, Unit::UnixMilliseconds, "pexpireat")
}

/// Answers with what `show` makes of the expiry, −2 without a key, −1 without an expiry.
fn show(context: &mut Context<'_, '_>, show: impl FnOnce(u64, u64) -> u64) -> Run {
    let now_ms = context.now_ms();
    let key = context.args.at(1);
    let expiry = context.view.get(context.db, key)?.map(|record: Record<'_>| record.meta.expiry_ms);
    if expiry.is_none() {
        context.note_miss(key);
    }
    context.reply.integer(match expiry {
        None => -2,
        Some(0) => -1,
        Some(expiry) => i64::try_from(show(expiry, now_ms)).unwrap_or(i64::MAX),
    });
    Ok(())
}

pub(crate) fn ttl(context: &mut Context<'_, '_>) -> Run {
    show(context, |expiry, now| (expiry.saturating_sub(now) + 500) / 1_000)
}

pub(crate) fn pttl(context: &mut Context<'_, '_>) -> Run {
    show(context, |expiry, now| expiry.saturating_sub(now))
}

pub(crate) fn expiretime(context: &mut Context<'_, '_>) -> Run {
    show(context, |expiry, _| expiry.saturating_add(500) / 1_000)
}

pub(crate) fn pexpiretime(context: &mut Context<'_, '_>) -> Run {
    show(context, |expiry, _| expiry)
}

pub(crate) fn persist(context: &mut Context<'_, '_>) -> Run {
    let key = context.args.at(1);
    let has_expiry = context.view.get(context.db, key)?.is_some_and(|record| record.meta.expiry_ms != 0);
    if has_expiry {
        context.set_expiry(key, 0)?;
        context.note(class::GENERIC, "persist", key);
    }
    context.reply.integer(i64::from(has_expiry));
    Ok(())
}

/// What GETEX is to do: whether the expiry is to be taken away, and which one set.
type ExpiryChange<'a> = (bool, Option<(Unit, &'a [u8])>);

/// Whether the expiry is to be taken away, or which one set: the last of several of the same unit.
fn getex_options(args: Args<'_>) -> Result<ExpiryChange<'_>, Halt> {
    let (mut persists, mut expiry, mut index) = (false, None, 2);
    while let Some(option) = args.get(index) {
        match (Unit::option(option), args.get(index + 1)) {
            (None, _) if option.eq_ignore_ascii_case(b"PERSIST") && expiry.is_none() => persists = true,
            (Some(unit), Some(text)) if !persists && expiry.is_none_or(|(other, _)| other == unit) => {
                expiry = Some((unit, text));
                index += 1;
            }
            _ => return fail(SYNTAX),
        }
        index += 1;
    }
    Ok((persists, expiry))
}

pub(crate) fn getex(context: &mut Context<'_, '_>) -> Run {
    let args = context.args;
    let key = args.at(1);
    let (persists, expiry) = getex_options(args)?;
    let old = context.reply_string(key)?;
    context.reads.count(old.is_some());
    let Some(old) = old else {
        context.note_miss(key);
        return Ok(());
    };
    let new = match expiry {
        Some((unit, text)) => Some(positive_expiry(text, unit, context.now_ms(), "getex")?),
        None => None,
    };
    let event = match new {
        Some(at) if at <= context.now_ms() => {
            context.delete(key)?;
            "del"
        }
        Some(at) => {
            context.set_expiry(key, at)?;
            "expire"
        }
        None if persists && old != 0 => {
            context.set_expiry(key, 0)?;
            "persist"
        }
        None => return Ok(()),
    };
    context.note(class::GENERIC, event, key);
    Ok(())
}
