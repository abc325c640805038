//! The commands of strings.

use crate::commands::expiry::{Unit, positive_expiry};
use crate::context::{
    Context, Halt, NOT_A_FLOAT, NOT_AN_INTEGER, Run, SYNTAX, TOO_LONG, Text, fail, wrong_arity,
};
use crate::events::{Existed, class};
use crate::long_double::LongDouble;
use crate::number;
use std::iter::StepBy;
use std::ops::Range;
use tierstone_base::Position;
use tierstone_base::collections::Map;
use tierstone_engine::ValueKind;

pub(crate) fn get(context: &mut Context<'_, '_>) -> Run {
    let key = context.args.at(1);
    let found = context.reply_string(key)?.is_some();
    context.reads.count(found);
    if !found {
        context.note_miss(key);
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, Default)]
struct SetOptions<'a> {
    only_new: bool,
    only_old: bool,
    only_if_equal: Option<&'a [u8]>,
    wants_old: bool,
    keeps_expiry: bool,
    expiry: Option<(Unit, &'a [u8])>,
}

impl<'a> SetOptions<'a> {
    /// The options from argument `index` on.
    fn parse(args: crate::args::Args<'a>, mut index: usize) -> Result<Self, Halt> {
        let mut options = SetOptions::default();
        while let Some(option) = args.get(index) {
            let next = args.get(index + 1);
            let has_condition = options.only_new || options.only_old || options.only_if_equal.is_some();
            // The last of several of the same unit counts.
            let unit = Unit::option(option).filter(|unit| {
                !options.keeps_expiry && options.expiry.is_none_or(|(other, _)| other == *unit)
            });
            if option.eq_ignore_ascii_case(b"GET") {
                options.wants_old = true;
            } else if option.eq_ignore_ascii_case(b"NX")
                && !options.only_old
                && options.only_if_equal.is_none()
            {
                options.only_new = true;
            } else if option.eq_ignore_ascii_case(b"XX")
                && !options.only_new
                && options.only_if_equal.is_none()
            {
                options.only_old = true;
            } else if let (true, Some(value), false) =
                (option.eq_ignore_ascii_case(b"IFEQ"), next, has_condition)
            {
                options.only_if_equal = Some(value);
                index += 1;
            } else if option.eq_ignore_ascii_case(b"KEEPTTL") && options.expiry.is_none() {
                options.keeps_expiry = true;
            } else if let (Some(unit), Some(value)) = (unit, next) {
                options.expiry = Some((unit, value));
                index += 1;
            } else {
                return fail(SYNTAX);
            }
            index += 1;
        }
        Ok(options)
    }

    /// Whether the present value must be known.
    fn needs_old(&self) -> bool {
        self.only_new || self.only_old || self.wants_old || self.keeps_expiry || self.only_if_equal.is_some()
    }
}

pub(crate) fn set(context: &mut Context<'_, '_>) -> Run {
    let options = SetOptions::parse(context.args, 3)?;
    let key = context.args.at(1);
    let mut expiry_ms = match options.expiry {
        Some((unit, text)) => positive_expiry(text, unit, context.now_ms(), "set")?,
        None => 0,
    };
    if !options.needs_old() {
        let existed = context.existed(key)?;
        context.store_arg(key, 2, expiry_ms)?;
        note_stored(context, key, existed, options.expiry.map(|_| expiry_ms));
        context.reply.ok();
        return Ok(());
    }
    let old_expiry_ms = if options.wants_old || options.only_if_equal.is_some() {
        context.load(key)?.map(|text| text.expiry_ms())
    } else {
        context.view.get(context.db, key)?.map(|record| record.meta.expiry_ms)
    };
    let exists = old_expiry_ms.is_some();
    if options.keeps_expiry {
        expiry_ms = old_expiry_ms.unwrap_or(expiry_ms);
    }
    let is_equal = match options.only_if_equal {
        Some(wanted) => context.is_equal(key, wanted)?,
        None => true,
    };
    if options.wants_old {
        context.reply_string(key)?;
        if !exists {
            context.note_miss(key);
        }
    }
    if options.only_new && exists || options.only_old && !exists || !is_equal {
        if !options.wants_old {
            context.reply.null();
        }
        return Ok(());
    }
    context.store_arg(key, 2, expiry_ms)?;
    note_stored(context, key, Existed(exists), options.expiry.map(|_| expiry_ms));
    if !options.wants_old {
        context.reply.ok();
    }
    Ok(())
}

/// A string was written, with this expiry if one was asked for.
fn note_stored(context: &mut Context<'_, '_>, key: &[u8], existed: Existed, expiry_ms: Option<u64>) {
    context.note_set(key, existed);
    if let Some(expiry_ms) = expiry_ms {
        context.note_expiry(key, expiry_ms);
    }
}

pub(crate) fn setnx(context: &mut Context<'_, '_>) -> Run {
    let key = context.args.at(1);
    let exists = context.view.get(context.db, key)?.is_some();
    if !exists {
        context.store_arg(key, 2, 0)?;
        context.note_set(key, Existed(false));
    }
    context.reply.integer(i64::from(!exists));
    Ok(())
}

fn set_with_expiry(context: &mut Context<'_, '_>, unit: Unit, command: &str) -> Run {
    let expiry_ms = positive_expiry(context.args.at(2), unit, context.now_ms(), command)?;
    let key = context.args.at(1);
    let existed = context.existed(key)?;
    context.store_arg(key, 3, expiry_ms)?;
    note_stored(context, key, existed, Some(expiry_ms));
    context.reply.ok();
    Ok(())
}

pub(crate) fn setex(context: &mut Context<'_, '_>) -> Run {
    set_with_expiry(context, Unit::Seconds, "setex")
}

pub(crate) fn psetex(context: &mut Context<'_, '_>) -> Run {
    set_with_expiry(context, Unit::Milliseconds, "psetex")
}

pub(crate) fn getset(context: &mut Context<'_, '_>) -> Run {
    let key = context.args.at(1);
    let existed = context.reply_string(key)?.is_some();
    if !existed {
        context.note_miss(key);
    }
    context.store_arg(key, 2, 0)?;
    context.note_set(key, Existed(existed));
    Ok(())
}

pub(crate) fn getdel(context: &mut Context<'_, '_>) -> Run {
    let key = context.args.at(1);
    if context.reply_string(key)?.is_some() {
        context.delete(key)?;
        context.note(class::GENERIC, "del", key);
    } else {
        context.note_miss(key);
    }
    Ok(())
}

pub(crate) fn mget(context: &mut Context<'_, '_>) -> Run {
    let args = context.args;
    context.view.prefetch(context.db, args.from(1))?;
    let start = context.reply.len();
    context.reply.array(args.len() - 1);
    for key in args.from(1) {
        // A short request may name a long value very often.
        context.check_reply(start)?;
        let kind = context.view.get(context.db, key)?.map(|record| record.meta.kind);
        let is_string = matches!(kind, Some(ValueKind::STRING | ValueKind::CHUNKED));
        if is_string {
            context.reply_string(key)?;
        } else {
            context.reply.null();
        }
        context.reads.count(is_string);
        if kind.is_none() {
            context.note_miss(key);
        }
    }
    Ok(())
}

/// Which values the pairs of a request leave: each key's last one. They are written where the key stands first, once, so
/// that a request needs no more room than it leaves keys.
struct Pairs {
    /// Of each position of a key, the last pair with it, and whether that value is written; none where no key stands twice.
    last: Option<Map<Position, (usize, bool)>>,
}

/// So many pairs are compared with each other.
const PAIRS_COMPARED: usize = 16;

impl Pairs {
    /// Of the keys at `indexes`.
    fn new(context: &Context<'_, '_>, indexes: StepBy<Range<usize>>) -> Result<Pairs, Halt> {
        let args = context.args;
        let mut rest = indexes.clone();
        let is_twice = |index: usize, mut others: StepBy<Range<usize>>| {
            others.any(|other| args.at(index) == args.at(other))
        };
        if indexes.len() <= PAIRS_COMPARED
            && !std::iter::from_fn(|| Some((rest.next()?, rest.clone())))
                .any(|(index, others)| is_twice(index, others))
        {
            return Ok(Pairs { last: None });
        }
        let mut last = Map::default();
        for index in indexes.rev() {
            let position = context.view.key(context.db, args.at(index))?.position;
            last.entry(position).or_insert((index, false));
        }
        Ok(Pairs { last: Some(last) })
    }

    /// Writes the last value of the key at `index`, unless that is done already.
    fn store(&mut self, context: &mut Context<'_, '_>, index: usize, expiry_ms: u64) -> Run {
        let args = context.args;
        let key = args.at(index);
        if context.arg_len(index + 1) > context.value_size_max_bytes {
            return fail(TOO_LONG);
        }
        let Some(last) = &mut self.last else { return context.store_arg(key, index + 1, expiry_ms) };
        let position = context.view.key(context.db, key)?.position;
        match last.get_mut(&position) {
            Some((last, is_written)) if args.at(*last) == key => match std::mem::replace(is_written, true) {
                true => Ok(()),
                false => context.store_arg(key, *last + 1, expiry_ms),
            },
            // Another key shares the position.
            _ => context.store_arg(key, index + 1, expiry_ms),
        }
    }
}

fn put_pairs(context: &mut Context<'_, '_>) -> Run {
    let mut pairs = Pairs::new(context, (1..context.args.len()).step_by(2))?;
    for index in (1..context.args.len()).step_by(2) {
        let key = context.args.at(index);
        let existed = context.existed(key)?;
        pairs.store(context, index, 0)?;
        context.note_set(key, existed);
    }
    Ok(())
}

pub(crate) fn mset(context: &mut Context<'_, '_>) -> Run {
    if context.args.len().is_multiple_of(2) {
        return Err(wrong_arity("mset"));
    }
    put_pairs(context)?;
    context.reply.ok();
    Ok(())
}

pub(crate) fn msetnx(context: &mut Context<'_, '_>) -> Run {
    let args = context.args;
    if args.len().is_multiple_of(2) {
        return Err(wrong_arity("msetnx"));
    }
    context.view.prefetch(context.db, args.from(1).step_by(2))?;
    for key in args.from(1).step_by(2) {
        if context.view.get(context.db, key)?.is_some() {
            context.reply.integer(0);
            return Ok(());
        }
    }
    put_pairs(context)?;
    context.reply.integer(1);
    Ok(())
}

/// `MSETEX numkeys key value [key value ...] [NX | XX] [EX | PX | EXAT | PXAT time | KEEPTTL]`
pub(crate) fn msetex(context: &mut Context<'_, '_>) -> Run {
    let args = context.args;
    let count = number::integer(args.at(1)).filter(|count| (1..=i64::from(i32::MAX)).contains(count));
    let Some(count) = count else { return fail("ERR invalid numkeys value or out of range") };
    let end = 2 + 2 * count as usize;
    if end > args.len() {
        return fail(SYNTAX);
    }
    let options = SetOptions::parse(args, end)?;
    if options.wants_old || options.only_if_equal.is_some() {
        return fail(SYNTAX);
    }
    let expiry_ms = match options.expiry {
        Some((unit, text)) => positive_expiry(text, unit, context.now_ms(), "msetex")?,
        None => 0,
    };
    if options.needs_old() {
        context.view.prefetch(context.db, args.from(2).take(end - 2).step_by(2))?;
        for index in (2..end).step_by(2) {
            let exists = context.view.get(context.db, args.at(index))?.is_some();
            if options.only_new && exists || options.only_old && !exists {
                context.reply.integer(0);
                return Ok(());
            }
        }
    }
    let mut pairs = Pairs::new(context, (2..end).step_by(2))?;
    for index in (2..end).step_by(2) {
        let key = args.at(index);
        let expiry_ms = if options.keeps_expiry {
            context.view.get(context.db, key)?.map_or(0, |record| record.meta.expiry_ms)
        } else {
            expiry_ms
        };
        let existed = context.existed(key)?;
        pairs.store(context, index, expiry_ms)?;
        note_stored(context, key, existed, options.expiry.map(|_| expiry_ms));
    }
    context.reply.integer(1);
    Ok(())
}

fn increment(context: &mut Context<'_, '_>, by: i64) -> Run {
    let key = context.args.at(1);
    let (old, expiry_ms, existed) = match context.load(key)? {
        Some(Text::Whole(record)) => (number::integer(record.value), record.meta.expiry_ms, true),
        // No number is so long.
        Some(Text::Large(..)) => (None, 0, true),
        None => (Some(0), 0, false),
    };
    let Some(old) = old else { return fail(NOT_AN_INTEGER) };
    let Some(new) = old.checked_add(by) else {
        return fail("ERR increment or decrement would overflow");
    };
    let mut buffer = itoa::Buffer::new();
    context.store(key, buffer.format(new).as_bytes(), expiry_ms)?;
    context.note_change("incrby", key, existed);
    context.reply.integer(new);
    Ok(())
}

pub(crate) fn incr(context: &mut Context<'_, '_>) -> Run {
    increment(context, 1)
}

pub(crate) fn decr(context: &mut Context<'_, '_>) -> Run {
    increment(context, -1)
}

pub(crate) fn incrby(context: &mut Context<'_, '_>) -> Run {
    let by = context.integer(2)?;
    increment(context, by)
}

pub(crate) fn decrby(context: &mut Context<'_, '_>) -> Run {
    match context.integer(2)?.checked_neg() {
        Some(by) => increment(context, by),
        None => fail("ERR decrement would overflow"),
    }
}

pub(crate) fn incrbyfloat(context: &mut Context<'_, '_>) -> Run {
    let (key, by) = (context.args.at(1), context.args.at(2));
    let (old, expiry_ms, existed) = match context.load(key)? {
        Some(Text::Whole(record)) => (LongDouble::parse(record.value), record.meta.expiry_ms, true),
        Some(Text::Large(..)) => (None, 0, true),
        None => (Some(LongDouble::ZERO), 0, false),
    };
    let (Some(old), Some(by)) = (old, LongDouble::parse(by)) else { return fail(NOT_A_FLOAT) };
    let Some(sum) = old.plus(by).filter(|sum| sum.is_finite()) else {
        return fail("ERR increment would produce NaN or Infinity");
    };
    context.scratch.clear();
    sum.print(context.scratch);
    context.store_scratch(key, expiry_ms)?;
    context.note_change("incrbyfloat", key, existed);
    context.reply.bulk(context.scratch);
    Ok(())
}

pub(crate) fn append(context: &mut Context<'_, '_>) -> Run {
    let key = context.args.at(1);
    let extent = context.extent(key)?;
    let (end, existed) = (extent.as_ref().map_or(0, |extent| extent.len), extent.is_some());
    let len = context.patch_arg(key, extent, end, 2)?;
    context.note_change("append", key, existed);
    context.reply.integer(len as i64);
    Ok(())
}

pub(crate) fn strlen(context: &mut Context<'_, '_>) -> Run {
    let length = context.read(context.args.at(1))?.map_or(0, |text| text.len());
    context.reply.integer(length as i64);
    Ok(())
}

/// The half-open range of `0..len` that Redis's inclusive `start..end` means, where negative numbers
/// count from the end.
pub(crate) fn range(start: i64, end: i64, len: usize) -> Option<(usize, usize)> {
    let len = len as i64;
    if start < 0 && end < 0 && start > end {
        return None;
    }
    let from_end = |index: i64| if index < 0 { index.saturating_add(len).max(0) } else { index };
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    (start <= end && len > 0).then(|| (start as usize, end as usize + 1))
}

pub(crate) fn getrange(context: &mut Context<'_, '_>) -> Run {
    let (start, end) = (context.integer(2)?, context.integer(3)?);
    let key = context.args.at(1);
    let map = match context.read(key)? {
        None => {
            context.reply.bulk(b"");
            return Ok(());
        }
        Some(Text::Large(map, _)) => map,
        Some(Text::Whole(_)) => {
            let Some(record) = context.view.get(context.db, key)? else { return Ok(()) };
            let value = record.value;
            let part = range(start, end, value.len()).map_or(&b""[..], |(start, end)| &value[start..end]);
            context.reply.bulk(part);
            return Ok(());
        }
    };
    let (start, end) = range(start, end, map.len() as usize).unwrap_or_default();
    context.reply_large(key, &map, start as u64..end as u64)
}

pub(crate) fn setrange(context: &mut Context<'_, '_>) -> Run {
    let key = context.args.at(1);
    let offset = context.integer(2)?;
    let Ok(offset) = u64::try_from(offset) else { return fail("ERR offset is out of range") };
    let extent = context.extent(key)?;
    let len = match (context.arg_len(3), extent) {
        (0, extent) => extent.map_or(0, |extent| extent.len),
        (_, extent) => {
            let existed = extent.is_some();
            let len = context.patch_arg(key, extent, offset, 3)?;
            context.note_change("setrange", key, existed);
            len
        }
    };
    context.reply.integer(len as i64);
    Ok(())
}

pub(crate) fn delifeq(context: &mut Context<'_, '_>) -> Run {
    let (key, wanted) = (context.args.at(1), context.args.at(2));
    let is_equal = context.is_equal(key, wanted)?;
    if is_equal {
        context.delete(key)?;
        context.note(class::GENERIC, "del", key);
    }
    context.reply.integer(i64::from(is_equal));
    Ok(())
}
