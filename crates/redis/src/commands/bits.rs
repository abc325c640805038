//! The commands of bits inside strings. Bit 0 is the highest bit of the first byte.

use crate::commands::strings::range;
use crate::context::{Context, Extent, Halt, Run, SYNTAX, Text, fail};
use crate::number;

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
        context.patch(key, extent, index, &[new])?;
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

fn ones(value: &[u8]) -> u64 {
    let (words, rest) = value.as_chunks::<8>();
    let whole: u64 = words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    whole + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

/// The ones among the bits `start..end`.
fn ones_between(value: &[u8], start: usize, end: usize) -> u64 {
    let (first, last) = (start / 8, end.div_ceil(8));
    let mut total = ones(&value[first..last]);
    for bit in (first * 8..start).chain(end..last * 8) {
        total -= u64::from(bit_at(value, bit as u64));
    }
    total
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
    let bits = |len: usize| match bounds {
        None => (0, len * 8),
        Some(((start, end), is_bits)) => {
            let scale = if is_bits { 1 } else { 8 };
            let found = range(start, end, len * 8 / scale).unwrap_or_default();
            (found.0 * scale, found.1 * scale)
        }
    };
    let map = match context.read(key)? {
        None => {
            context.reply.integer(0);
            return Ok(());
        }
        Some(Text::Whole(record)) => {
            let (start, end) = bits(record.value.len());
            let count = ones_between(record.value, start, end);
            context.reply.integer(count as i64);
            return Ok(());
        }
        Some(Text::Large(map, _)) => map,
    };
    let (start, end) = bits(map.len() as usize);
    let first = start / 8;
    context.read_scratch(key, &map, first as u64..end.div_ceil(8) as u64)?;
    let count = ones_between(context.scratch, start - first * 8, end - first * 8);
    context.reply.integer(count as i64);
    Ok(())
}

/// The first bit equal to `wanted` among the bits `start..end`.
fn first_bit(value: &[u8], wanted: bool, start: usize, end: usize) -> Option<usize> {
    let skip = if wanted { 0 } else { 0xff };
    let mut bit = start;
    while bit < end {
        if bit.is_multiple_of(8) && end - bit >= 8 && value[bit / 8] == skip {
            bit += 8;
        } else if bit_at(value, bit as u64) == wanted {
            return Some(bit);
        } else {
            bit += 1;
        }
    }
    None
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
    // The bits that are looked at of a string of `len` bytes.
    let bits = |len: usize| {
        let found = range_of_search(start, end.unwrap_or(-1), len * 8 / scale);
        found.map(|(start, stop)| (start * scale, stop * scale))
    };
    let (found, len) = match context.read(key)? {
        None => {
            context.reply.integer(if wanted { -1 } else { 0 });
            return Ok(());
        }
        Some(Text::Whole(record)) => {
            let bits = bits(record.value.len());
            let found = bits.map(|(start, stop)| first_bit(record.value, wanted, start, stop));
            (found, record.value.len())
        }
        Some(Text::Large(map, _)) => {
            let len = map.len() as usize;
            let found = match bits(len) {
                None => None,
                Some((start, stop)) => {
                    let first = start / 8;
                    context.read_scratch(key, &map, first as u64..stop.div_ceil(8) as u64)?;
                    let found = first_bit(context.scratch, wanted, start - first * 8, stop - first * 8);
                    Some(found.map(|bit| bit + first * 8))
                }
            };
            (found, len)
        }
    };
    context.reply.integer(match found {
        Some(Some(bit)) => bit as i64,
        // Behind a string without an explicit end lie zeros.
        Some(None) if !wanted && end.is_none() => (len * 8) as i64,
        _ => -1,
    });
    Ok(())
}

/// As [`range`], but an end before the start on the negative side is clamped like all others.
fn range_of_search(start: i64, end: i64, len: usize) -> Option<(usize, usize)> {
    let len = len as i64;
    let from_end = |index: i64| if index < 0 { index.saturating_add(len).max(0) } else { index };
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    (start <= end && len > 0).then(|| (start as usize, end as usize + 1))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
    /// In the first, in none of the others.
    Diff,
    /// Not in the first, in one of the others.
    Diff1,
    /// In the first, in one of the others.
    AndOr,
    /// In exactly one.
    One,
}

impl Operation {
    fn parse(name: &[u8]) -> Option<Operation> {
        Some(match name.to_ascii_uppercase().as_slice() {
            b"AND" => Operation::And,
            b"OR" => Operation::Or,
            b"XOR" => Operation::Xor,
            b"NOT" => Operation::Not,
            b"DIFF" => Operation::Diff,
            b"DIFF1" => Operation::Diff1,
            b"ANDOR" => Operation::AndOr,
            b"ONE" => Operation::One,
            _ => return None,
        })
    }

    /// Combines byte `index` of all sources; shorter ones end in zeros.
    fn combine(self, sources: &[Vec<u8>], index: usize) -> u8 {
        let byte = |source: &Vec<u8>| source.get(index).copied().unwrap_or(0);
        let first = sources.first().map_or(0, byte);
        let others = sources.iter().skip(1).map(byte);
        match self {
            Operation::And => others.fold(first, |all, byte| all & byte),
            Operation::Or => others.fold(first, |any, byte| any | byte),
            Operation::Xor => others.fold(first, |odd, byte| odd ^ byte),
            Operation::Not => !first,
            Operation::Diff => first & !others.fold(0, |any, byte| any | byte),
            Operation::Diff1 => !first & others.fold(0, |any, byte| any | byte),
            Operation::AndOr => first & others.fold(0, |any, byte| any | byte),
            Operation::One => {
                let (one, many) = others
                    .fold((first, 0), |(one, many), byte| (one ^ byte, many | one & byte | many & byte));
                one & !many
            }
        }
    }
}

pub(crate) fn bitop(context: &mut Context<'_, '_>) -> Run {
    let args = context.args;
    let Some(operation) = Operation::parse(args.at(1)) else { return fail(SYNTAX) };
    let sources = args.len() - 3;
    if operation == Operation::Not && sources != 1 {
        return fail("ERR BITOP NOT must be called with a single source key.");
    }
    let needs_two = matches!(operation, Operation::Diff | Operation::Diff1 | Operation::AndOr);
    if needs_two && sources < 2 {
        return fail(match operation {
            Operation::Diff => "ERR BITOP DIFF must be called with at least two source keys.",
            Operation::Diff1 => "ERR BITOP DIFF1 must be called with at least two source keys.",
            _ => "ERR BITOP ANDOR must be called with at least two source keys.",
        });
    }
    context.view.prefetch(context.db, args.from(3))?;
    let mut values = Vec::with_capacity(sources);
    for key in args.from(3) {
        context.load_scratch(key)?;
        values.push(std::mem::take(context.scratch));
    }
    let len = values.iter().map(Vec::len).max().unwrap_or(0);
    context.scratch.clear();
    context.scratch.extend((0..len).map(|index| operation.combine(&values, index)));
    let target = args.at(2);
    if len > 0 {
        context.store_scratch(target, 0)?;
    } else if context.view.get(context.db, target)?.is_some() {
        context.delete(target)?;
    }
    context.reply.integer(len as i64);
    Ok(())
}
