//! `BITFIELD`: integers of any width inside a string.

use crate::commands::bits::{BAD_OFFSET, bit_at};
use crate::context::{Context, Extent, Halt, NOT_AN_INTEGER, Run, SYNTAX, fail};
use crate::number;
use std::collections::BTreeMap;

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

/// The offset of a field that is read, of which the first bit must lie within the longest value as in Redis, or written,
/// of which the last must.
fn field_offset(context: &Context<'_, '_>, text: &[u8], field: FieldType, reads: bool) -> Result<u64, Halt> {
    let limit = context.value_size_max_bytes.saturating_mul(8);
    let (digits, scale) = match text {
        [b'#', digits @ ..] => (digits, u64::from(field.bits)),
        _ => (text, 1),
    };
    let offset = number::integer(digits)
        .and_then(|value| u64::try_from(value).ok())
        .and_then(|value| value.checked_mul(scale));
    match offset {
        Some(offset) if offset.saturating_add(if reads { 1 } else { field.bits.into() }) <= limit => {
            Ok(offset)
        }
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
        let reads = name == b"GET";
        let offset = field_offset(context, args.at(index + 2), field, reads)?;
        let action = if reads {
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

/// The longest field with its bits anywhere in their bytes, in bytes.
const FIELD_BYTES_MAX: usize = 9;

/// The pieces of a string that the steps of a `BITFIELD` touch, each as long as a chunk: a string that
/// is one record is one piece.
struct Pieces {
    extent: Option<Extent>,
    piece_bytes: u64,
    /// By number; whether it was changed.
    loaded: BTreeMap<u64, (Vec<u8>, bool)>,
}

impl Pieces {
    /// Loads all pieces that `steps` touch, so that one suspension fetches them together.
    fn load(context: &mut Context<'_, '_>, key: &[u8], steps: &[Step]) -> Result<Pieces, Halt> {
        let extent = context.extent(key)?;
        let piece_bytes = context.view.record_bytes_max();
        let mut pieces = Pieces { extent, piece_bytes, loaded: BTreeMap::new() };
        let mut suspends = false;
        for step in steps {
            let (first, last) = step.bytes();
            for number in first / piece_bytes..=(last - 1) / piece_bytes {
                match pieces.load_one(context, key, number) {
                    Ok(()) => {}
                    Err(Halt::Suspend) => suspends = true,
                    Err(error) => return Err(error),
                }
            }
        }
        if suspends { Err(Halt::Suspend) } else { Ok(pieces) }
    }

    fn load_one(&mut self, context: &mut Context<'_, '_>, key: &[u8], number: u64) -> Run {
        let len = self.extent.as_ref().map_or(0, |extent| extent.len);
        let (start, end) = (number * self.piece_bytes, len.min((number + 1) * self.piece_bytes));
        if self.loaded.contains_key(&number) {
            return Ok(());
        }
        context.scratch.clear();
        match self.extent.as_ref().and_then(|extent| extent.map.as_ref()) {
            _ if start >= end => {}
            Some(map) => context.read_scratch(key, map, start..end)?,
            None => {
                context.load_scratch(key)?;
                context.scratch.truncate(end as usize);
                context.scratch.drain(..start as usize);
            }
        }
        self.loaded.insert(number, (std::mem::take(context.scratch), false));
        Ok(())
    }

    fn byte(&self, index: u64) -> u8 {
        let piece = self.loaded.get(&(index / self.piece_bytes));
        let place = (index % self.piece_bytes) as usize;
        piece.and_then(|(bytes, _)| bytes.get(place)).copied().unwrap_or(0)
    }

    fn set_byte(&mut self, index: u64, byte: u8) {
        let (bytes, is_changed) = self.loaded.entry(index / self.piece_bytes).or_default();
        let place = (index % self.piece_bytes) as usize;
        // What stays as it was is not written, and trips no watch.
        *is_changed |= bytes.get(place) != Some(&byte);
        bytes.resize(bytes.len().max(place + 1), 0);
        bytes[place] = byte;
    }

    /// Writes the pieces that were changed.
    fn store(self, context: &mut Context<'_, '_>, key: &[u8]) -> Run {
        for (number, (bytes, _)) in self.loaded.into_iter().filter(|(_, (_, is_changed))| *is_changed) {
            let extent = context.extent(key)?;
            context.patch(key, extent, number * self.piece_bytes, &bytes)?;
        }
        Ok(())
    }
}

impl Step {
    /// The bytes that it touches: the first, and the one behind the last.
    fn bytes(&self) -> (u64, u64) {
        (self.offset / 8, (self.offset + u64::from(self.field.bits)).div_ceil(8))
    }
}

fn run_bitfield(context: &mut Context<'_, '_>, is_read_only: bool) -> Run {
    let steps = parse_steps(context, is_read_only)?;
    let key = context.args.at(1);
    let mut pieces = Pieces::load(context, key, &steps)?;
    let writes = |step: &&Step| !matches!(step.action, Action::Get);
    let end = steps.iter().filter(writes).map(|step| step.bytes().1).max();
    let len = pieces.extent.as_ref().map_or(0, |extent| extent.len);
    // As in Redis, the string grows even if the write then fails for its overflow.
    let grows = end.is_some_and(|end| len < end);
    if let Some(end) = end.filter(|_| grows) {
        pieces.set_byte(end - 1, 0);
    }
    let existed = pieces.extent.is_some();
    if end.is_none() && !existed {
        context.note_miss(key);
    }
    let mut is_changed = false;
    context.reply.array(steps.len());
    for step in &steps {
        let (first, last) = step.bytes();
        let mut bytes = [0; FIELD_BYTES_MAX];
        for (byte, index) in bytes.iter_mut().zip(first..last) {
            *byte = pieces.byte(index);
        }
        let old = step.field.read(&bytes, step.offset % 8);
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
            is_changed |= grows || new != old;
            step.field.write(&mut bytes, step.offset % 8, new);
            for (byte, index) in bytes.iter().zip(first..last) {
                pieces.set_byte(index, *byte);
            }
        }
        match answer {
            Some(value) => context.reply.integer(value),
            None => context.reply.null(),
        }
    }
    pieces.store(context, key)?;
    if is_changed {
        context.note_change("setbit", key, existed);
    }
    Ok(())
}

pub(crate) fn bitfield(context: &mut Context<'_, '_>) -> Run {
    run_bitfield(context, false)
}

pub(crate) fn bitfield_ro(context: &mut Context<'_, '_>) -> Run {
    run_bitfield(context, true)
}
