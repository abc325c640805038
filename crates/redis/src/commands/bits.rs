//! The commands of bits inside strings. Bit 0 is the highest bit of the first byte.

use crate::args::Args;
use crate::commands::strings::range;
use crate::context::{Context, Extent, Halt, Run, SYNTAX, TOO_LONG, Text, fail};
use crate::events::class;
use crate::fold::Fold;
use crate::number;
use crate::recipe::{BitOperation, Bytes, Mix, Mixed, Recipe, Source};
use crate::stream::STREAM_ABOVE_BYTES;
use crate::work;
use std::collections::BTreeMap;

pub(crate) const BAD_OFFSET: &str = "ERR bit offset is not an integer or out of range";
const BAD_BIT: &str = "ERR bit is not an integer or out of range";

/// A bit's offset: below eight times the longest value.
pub(crate) fn bit_offset(context: &Context<'_, '_>, text: &[u8]) -> Result<u64, Halt> {
    let limit = context.value_size_max_bytes.saturating_mul(8);
    match number::integer(text).and_then(|value| u64::try_from(value).ok()) {
        Some(offset) if offset < limit => Ok(offset),
        _ => fail(BAD_OFFSET),
    }
}

pub(crate) fn bit_at(value: &[u8], offset: u64) -> bool {
    value.get((offset / 8) as usize).is_some_and(|byte| byte >> (7 - offset % 8) & 1 == 1)
}

/// Byte `index` of the string at `key`; 0 beyond its end.
fn byte_at(context: &mut Context<'_, '_>, key: &[u8], extent: &Extent, index: u64) -> Result<u8, Halt> {
    if index >= extent.len {
        return Ok(0);
    }
    match &extent.map {
        Some(map) => {
            context.read_scratch(key, map, index..index + 1)?;
            Ok(context.scratch.first().copied().unwrap_or(0))
        }
        None => match context.load(key)? {
            Some(Text::Whole(record)) => Ok(record.value.get(index as usize).copied().unwrap_or(0)),
            _ => Ok(0),
        },
    }
}

pub(crate) fn getbit(context: &mut Context<'_, '_>) -> Run {
    let offset = bit_offset(context, context.args.at(2))?;
    let key = context.args.at(1);
    let map = match context.read(key)? {
        None => None,
        Some(Text::Whole(record)) => {
            let bit = bit_at(record.value, offset);
            context.reply.integer(i64::from(bit));
            return Ok(());
        }
        Some(Text::Large(map, expiry_ms)) => Some(Extent { len: map.len(), expiry_ms, map: Some(map) }),
    };
    let byte = match map {
        Some(extent) => byte_at(context, key, &extent, offset / 8)?,
        None => 0,
    };
    context.reply.integer(i64::from(bit_at(&[byte], offset % 8)));
    Ok(())
}

pub(crate) fn setbit(context: &mut Context<'_, '_>) -> Run {
    let key = context.args.at(1);
    let offset = bit_offset(context, context.args.at(2))?;
    let bit = match context.args.at(3) {
        b"0" => 0,
        b"1" => 1,
        _ => return fail(BAD_BIT),
    };
    let extent = context.extent(key)?;
    let (index, shift) = (offset / 8, 7 - offset % 8);
    let byte = match &extent {
        Some(extent) => byte_at(context, key, extent, index)?,
        None => 0,
    };
    let grows = extent.as_ref().is_none_or(|extent| extent.len <= index);
    let new = byte & !(1 << shift) | bit << shift;
    if grows || new != byte {
        let existed = extent.is_some();
        context.patch(key, extent, index, &[new])?;
        context.note_change("setbit", key, existed);
    }
    context.reply.integer(i64::from(byte >> shift & 1));
    Ok(())
}

/// Whether a range counts bits: the option behind it.
fn counts_bits(option: Option<&[u8]>) -> Result<bool, Halt> {
    match option {
        None => Ok(false),
        Some(text) if text.eq_ignore_ascii_case(b"BYTE") => Ok(false),
        Some(text) if text.eq_ignore_ascii_case(b"BIT") => Ok(true),
        Some(_) => fail(SYNTAX),
    }
}

pub(crate) fn bitcount(context: &mut Context<'_, '_>) -> Run {
    let args = context.args;
    let bounds = match args.len() {
        2 => None,
        4 | 5 => {
            let bounds = (context.integer(2)?, context.integer(3)?);
            Some((bounds, counts_bits(args.get(4))?))
        }
        _ => return fail(SYNTAX),
    };
    let key = args.at(1);
    // The bits to be counted of a string of `len` bytes.
    let bits = |len: u64| match bounds {
        None => 0..len * 8,
        Some(((start, end), is_bits)) => {
            let scale = if is_bits { 1 } else { 8 };
            let found = range(start, end, (len * 8 / scale) as usize).unwrap_or_default();
            found.0 as u64 * scale..found.1 as u64 * scale
        }
    };
    let map = match context.read(key)? {
        None => {
            context.reply.integer(0);
            return Ok(());
        }
        Some(Text::Whole(record)) => {
            let count = of_record(Fold::ones(bits(record.value.len() as u64)), record.value);
            context.reads.work += work::of_bytes(record.value.len());
            context.reply.integer(count);
            return Ok(());
        }
        Some(Text::Large(map, _)) => map,
    };
    let fold = Fold::ones(bits(map.len()));
    context.reply_fold(key, &map, fold)
}

/// What `fold` finds in a value that is one record.
fn of_record(mut fold: Fold, value: &[u8]) -> i64 {
    fold.take(0, value).unwrap_or_else(|| fold.end())
}

pub(crate) fn bitpos(context: &mut Context<'_, '_>) -> Run {
    let args = context.args;
    let wanted = match context.integer(2)? {
        0 => false,
        1 => true,
        _ => return fail("ERR The bit argument must be 1 or 0."),
    };
    if args.len() > 6 {
        return fail(SYNTAX);
    }
    let start = if args.len() > 3 { context.integer(3)? } else { 0 };
    let is_bits = counts_bits(args.get(5))?;
    let end = if args.len() > 4 { Some(context.integer(4)?) } else { None };
    let scale = if is_bits { 1 } else { 8 };
    let key = args.at(1);
    // What is searched in a string of `len` bytes; none: there is nothing to be looked at.
    let search = |len: u64| {
        let (start, stop) = range_of_search(start, end.unwrap_or(-1), (len * 8 / scale) as usize)?;
        // Behind a string without an explicit end lie zeros.
        let missing = if !wanted && end.is_none() { (len * 8) as i64 } else { -1 };
        Some(Fold::first(start as u64 * scale..stop as u64 * scale, wanted, missing))
    };
    let map = match context.read(key)? {
        None => {
            context.reply.integer(if wanted { -1 } else { 0 });
            return Ok(());
        }
        Some(Text::Whole(record)) => {
            let found = search(record.value.len() as u64).map(|fold| of_record(fold, record.value));
            // Byte by byte.
            context.reads.work += record.value.len() as u64;
            context.reply.integer(found.unwrap_or(-1));
            return Ok(());
        }
        Some(Text::Large(map, _)) => map,
    };
    match search(map.len()) {
        Some(fold) => context.reply_fold(key, &map, fold),
        None => {
            context.reply.integer(-1);
            Ok(())
        }
    }
}

/// As [`range`], but an end before the start on the negative side is clamped like all others.
fn range_of_search(start: i64, end: i64, len: usize) -> Option<(usize, usize)> {
    let len = len as i64;
    let from_end = |index: i64| if index < 0 { index.saturating_add(len).max(0) } else { index };
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    (start <= end && len > 0).then(|| (start as usize, end as usize + 1))
}

fn operation(name: &[u8]) -> Option<BitOperation> {
    Some(match name.to_ascii_uppercase().as_slice() {
        b"AND" => BitOperation::And,
        b"OR" => BitOperation::Or,
        b"XOR" => BitOperation::Xor,
        b"NOT" => BitOperation::Not,
        b"DIFF" => BitOperation::Diff,
        b"DIFF1" => BitOperation::Diff1,
        b"ANDOR" => BitOperation::AndOr,
        b"ONE" => BitOperation::One,
        _ => return None,
    })
}

pub(crate) fn bitop(context: &mut Context<'_, '_>) -> Run {
    let args = context.args;
    let Some(operation) = operation(args.at(1)) else { return fail(SYNTAX) };
    let sources = args.len() - 3;
    if operation == BitOperation::Not && sources != 1 {
        return fail("ERR BITOP NOT must be called with a single source key.");
    }
    let needs_two = matches!(operation, BitOperation::Diff | BitOperation::Diff1 | BitOperation::AndOr);
    if needs_two && sources < 2 {
        return fail(match operation {
            BitOperation::Diff => "ERR BITOP DIFF must be called with at least two source keys.",
            BitOperation::Diff1 => "ERR BITOP DIFF1 must be called with at least two source keys.",
            _ => "ERR BITOP ANDOR must be called with at least two source keys.",
        });
    }
    let sources = Sources::of(args);
    context.view.prefetch(context.db, sources.0.iter().map(|(index, _)| args.at(*index)))?;
    let mut len = 0;
    for (index, times) in &sources.0 {
        let key = args.at(*index);
        match context.extent(key)? {
            Some(extent) => len = len.max(extent.len),
            None => (0..*times).for_each(|_| context.note_miss(key)),
        }
    }
    let target = args.at(2);
    if len > context.value_size_max_bytes {
        return fail(TOO_LONG);
    }
    if len == 0 {
        if context.view.get(context.db, target)?.is_some() {
            context.delete(target)?;
            context.note(class::GENERIC, "del", target);
        }
    } else {
        let existed = context.existed(target)?;
        combine(context, operation, &sources.needed(operation), len)?;
        context.note_set(target, existed);
    }
    context.reply.integer(len as i64);
    Ok(())
}

/// The sources of a `BITOP`: the argument at which each key stands first, and how often it stands there. A request may name one
/// key a million times.
struct Sources(Vec<(usize, usize)>);

impl Sources {
    fn of(args: Args<'_>) -> Sources {
        let mut places = BTreeMap::new();
        let mut all: Vec<(usize, usize)> = Vec::new();
        for (index, key) in (3..).zip(args.from(3)) {
            let place = *places.entry(key).or_insert(all.len());
            match all.get_mut(place) {
                Some((_, times)) => *times += 1,
                None => all.push((index, 1)),
            }
        }
        Sources(all)
    }

    /// The arguments that make a difference, the first source first: each key as often as `operation` can tell.
    fn needed(&self, operation: BitOperation) -> Vec<usize> {
        let mut needed = Vec::with_capacity(self.0.len());
        for (place, (index, times)) in self.0.iter().enumerate() {
            let count = match operation {
                BitOperation::And | BitOperation::Or | BitOperation::Not => 1,
                BitOperation::Xor => times % 2,
                BitOperation::One => 2.min(*times),
                // The first source may be one of the others, too.
                BitOperation::Diff | BitOperation::Diff1 | BitOperation::AndOr if place == 0 => 2.min(*times),
                BitOperation::Diff | BitOperation::Diff1 | BitOperation::AndOr => 1,
            };
            needed.extend(std::iter::repeat_n(*index, count));
        }
        needed
    }
}

/// Puts the combination of the arguments `sources`, `len` bytes long, at the target.
fn combine(context: &mut Context<'_, '_>, operation: BitOperation, sources: &[usize], len: u64) -> Run {
    let args = context.args;
    if len <= STREAM_ABOVE_BYTES || !combine_making(context, operation, sources, len)? {
        let mut mixed = Mixed::new(Mix::Bits(operation), len as usize);
        for (place, index) in sources.iter().enumerate() {
            context.load_scratch(args.at(*index))?;
            mixed.add(place, 0, context.scratch);
        }
        *context.scratch = mixed.finish();
        context.store_scratch(args.at(2), 0)?;
    }
    Ok(())
}

/// Puts the combination of large values, `len` bytes long; false where it must be put together at once.
fn combine_making(
    context: &mut Context<'_, '_>,
    operation: BitOperation,
    indexes: &[usize],
    len: u64,
) -> Result<bool, Halt> {
    let args = context.args;
    if context.plan.is_none() {
        return Ok(false);
    }
    let mut sources = Vec::with_capacity(indexes.len());
    for index in indexes {
        let key = args.at(*index);
        let place = context.view.place(context.db, key)?;
        let bytes = match context.load(key)? {
            None => Bytes::Short(Vec::new()),
            Some(Text::Whole(record)) => Bytes::Short(record.value.to_vec()),
            Some(Text::Large(map, _)) => Bytes::Large(place, map),
        };
        // Short ones are held from here to the end of the making.
        if let Bytes::Short(bytes) = &bytes {
            context.view.hold(bytes.len() as u64)?;
        }
        sources.push(Source::new(bytes));
    }
    let target = context.view.place(context.db, args.at(2))?;
    let Some(map) = context.make(Recipe { target, len, mix: Mix::Bits(operation), sources })? else {
        return Ok(false);
    };
    context.view.put_map(context.db, args.at(2), &map, 0)?;
    Ok(true)
}
