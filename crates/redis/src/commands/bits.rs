//! The commands of bits inside strings. Bit 0 is the highest bit of the first byte.

use crate::commands::strings::range;
use crate::context::{Context, Halt, NOT_AN_INTEGER, Run, SYNTAX, fail};
use crate::number;

const BAD_OFFSET: &str = "ERR bit offset is not an integer or out of range";
const BAD_BIT: &str = "ERR bit is not an integer or out of range";

/// A bit's offset: below eight times the longest value.
pub(crate) fn bit_offset(context: &Context<'_, '_>, text: &[u8]) -> Result<u64, Halt> {
    let limit = context.value_size_max_bytes.saturating_mul(8);
    match number::integer(text).and_then(|value| u64::try_from(value).ok()) {
        Some(offset) if offset < limit => Ok(offset),
        _ => fail(BAD_OFFSET),
    }
}

fn bit_at(value: &[u8], offset: u64) -> bool {
    value.get((offset / 8) as usize).is_some_and(|byte| byte >> (7 - offset % 8) & 1 == 1)
}

pub(crate) fn getbit(context: &mut Context<'_, '_>) -> Run {
    let offset = bit_offset(context, context.args.at(2))?;
    let bit = context.read(context.args.at(1))?.is_some_and(|record| bit_at(record.value, offset));
    context.reply.integer(i64::from(bit));
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
    let expiry_ms = context.load_scratch(key)?;
    let old = bit_at(context.scratch, offset);
    let (byte, shift) = ((offset / 8) as usize, 7 - offset % 8);
    let grows = context.scratch.len() <= byte;
    if grows {
        context.scratch.resize(byte + 1, 0);
    }
    context.scratch[byte] = context.scratch[byte] & !(1 << shift) | bit << shift;
    if grows || old != (bit == 1) {
        context.store_scratch(key, expiry_ms.unwrap_or(0))?;
    }
    context.reply.integer(i64::from(old));
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
    let count = match (context.read(args.at(1))?, bounds) {
        (None, _) => 0,
        (Some(record), None) => ones(record.value),
        (Some(record), Some(((start, end), is_bits))) => {
            let value = record.value;
            let scale = if is_bits { 1 } else { 8 };
            match range(start, end, value.len() * 8 / scale) {
                Some((start, end)) => ones_between(value, start * scale, end * scale),
                None => 0,
            }
        }
    };
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
    let found = match context.read(args.at(1))? {
        None => {
            if wanted {
                -1
            } else {
                0
            }
        }
        Some(record) => {
            let value = record.value;
            let units = value.len() * 8 / scale;
            match range_of_search(start, end.unwrap_or(-1), units) {
                None => -1,
                Some((start, stop)) => match first_bit(value, wanted, start * scale, stop * scale) {
                    Some(bit) => bit as i64,
                    // Behind a string without an explicit end lie zeros.
                    None if !wanted && end.is_none() => (value.len() * 8) as i64,
                    None => -1,
                },
            }
        }
    };
    context.reply.integer(found);
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
        values.push(context.load(key)?.map_or_else(Vec::new, |record| record.value.to_vec()));
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

/// A type of `BITFIELD`: `u1` to `u63`, `i1` to `i64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FieldType {
    is_signed: bool,
    bits: u32,
}

impl FieldType {
    fn parse(text: &[u8]) -> Result<FieldType, Halt> {
        let parsed = match text {
            [sign @ (b'i' | b'u'), digits @ ..] => number::integer(digits).map(|bits| (*sign == b'i', bits)),
            _ => None,
        };
        match parsed {
            Some((is_signed, bits @ 1..=64)) if is_signed || bits < 64 => {
                Ok(FieldType { is_signed, bits: bits as u32 })
            }
            _ => fail(
                "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
            ),
        }
    }

    fn min(self) -> i128 {
        if self.is_signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    fn max(self) -> i128 {
        if self.is_signed { (1 << (self.bits - 1)) - 1 } else { (1 << self.bits) - 1 }
    }

    fn wrap(self, value: i128) -> i64 {
        let span = 1i128 << self.bits;
        let low = value.rem_euclid(span);
        (if low > self.max() { low - span } else { low }) as i64
    }

    fn read(self, value: &[u8], offset: u64) -> i64 {
        let raw = (0..u64::from(self.bits))
            .fold(0i128, |raw, bit| raw << 1 | i128::from(bit_at(value, offset + bit)));
        self.wrap(raw)
    }

    fn write(self, value: &mut [u8], offset: u64, new: i64) {
        for bit in 0..u64::from(self.bits) {
            let at = offset + bit;
            let (byte, shift) = ((at / 8) as usize, 7 - at % 8);
            let one = (new >> (u64::from(self.bits) - 1 - bit) & 1) as u8;
            value[byte] = value[byte] & !(1 << shift) | one << shift;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

impl Overflow {
    fn apply(self, field: FieldType, value: i128) -> Option<i64> {
        let fits = (field.min()..=field.max()).contains(&value);
        match self {
            _ if fits => Some(value as i64),
            Overflow::Wrap => Some(field.wrap(value)),
            Overflow::Saturate => Some(value.clamp(field.min(), field.max()) as i64),
            Overflow::Fail => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Get,
    Set(i64),
    Increment(i64),
}

#[derive(Clone, Copy, Debug)]
struct Step {
    action: Action,
    field: FieldType,
    offset: u64,
    overflow: Overflow,
}

fn field_offset(context: &Context<'_, '_>, text: &[u8], field: FieldType) -> Result<u64, Halt> {
    let limit = context.value_size_max_bytes.saturating_mul(8);
    let (digits, scale) = match text {
        [b'#', digits @ ..] => (digits, u64::from(field.bits)),
        _ => (text, 1),
    };
    let offset = number::integer(digits)
        .and_then(|value| u64::try_from(value).ok())
        .and_then(|value| value.checked_mul(scale));
    match offset {
        Some(offset) if offset.saturating_add(u64::from(field.bits)) <= limit => Ok(offset),
        _ => fail(BAD_OFFSET),
    }
}

fn parse_steps(context: &Context<'_, '_>, is_read_only: bool) -> Result<Vec<Step>, Halt> {
    let args = context.args;
    let mut steps = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut index = 2;
    while let Some(name) = args.get(index) {
        let left = args.len() - index - 1;
        let name = name.to_ascii_uppercase();
        match name.as_slice() {
            b"OVERFLOW" if left >= 1 => {
                overflow = match args.at(index + 1).to_ascii_uppercase().as_slice() {
                    b"WRAP" => Overflow::Wrap,
                    b"SAT" => Overflow::Saturate,
                    b"FAIL" => Overflow::Fail,
                    _ => return fail("ERR Invalid OVERFLOW type specified"),
                };
                index += 2;
                continue;
            }
            b"GET" if left >= 2 => {}
            b"SET" | b"INCRBY" if left >= 3 => {}
            _ => return fail(SYNTAX),
        }
        let field = FieldType::parse(args.at(index + 1))?;
        let offset = field_offset(context, args.at(index + 2), field)?;
        let action = if name == b"GET" {
            Action::Get
        } else {
            if is_read_only {
                return fail("ERR BITFIELD_RO only supports the GET subcommand");
            }
            let Some(value) = number::integer(args.at(index + 3)) else { return fail(NOT_AN_INTEGER) };
            index += 1;
            if name == b"SET" { Action::Set(value) } else { Action::Increment(value) }
        };
        index += 3;
        steps.push(Step { action, field, offset, overflow });
    }
    Ok(steps)
}

fn run_bitfield(context: &mut Context<'_, '_>, is_read_only: bool) -> Run {
    let steps = parse_steps(context, is_read_only)?;
    let key = context.args.at(1);
    let expiry_ms = context.load_scratch(key)?.unwrap_or(0);
    let writes = |step: &&Step| !matches!(step.action, Action::Get);
    let end = steps.iter().filter(writes).map(|step| step.offset + u64::from(step.field.bits)).max();
    let bytes = end.unwrap_or(0).div_ceil(8) as usize;
    // As in Redis, the string grows even if the write then fails for its overflow.
    let mut has_changed = context.scratch.len() < bytes;
    context.scratch.resize(context.scratch.len().max(bytes), 0);
    context.reply.array(steps.len());
    for step in &steps {
        let old = step.field.read(context.scratch, step.offset);
        let (new, answer) = match step.action {
            Action::Get => (None, Some(old)),
            Action::Set(value) => {
                // An unsigned field takes the 64 bits as they are.
                let wanted = if step.field.is_signed { i128::from(value) } else { i128::from(value as u64) };
                let new = step.overflow.apply(step.field, wanted);
                (new, new.map(|_| old))
            }
            Action::Increment(by) => {
                let new = step.overflow.apply(step.field, i128::from(old) + i128::from(by));
                (new, new)
            }
        };
        if let Some(new) = new {
            step.field.write(context.scratch, step.offset, new);
            has_changed = true;
        }
        match answer {
            Some(value) => context.reply.integer(value),
            None => context.reply.null(),
        }
    }
    if has_changed { context.store_scratch(key, expiry_ms) } else { Ok(()) }
}

pub(crate) fn bitfield(context: &mut Context<'_, '_>) -> Run {
    run_bitfield(context, false)
}

pub(crate) fn bitfield_ro(context: &mut Context<'_, '_>) -> Run {
    run_bitfield(context, true)
}
