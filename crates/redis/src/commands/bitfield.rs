//! `BITFIELD`: integers of any width inside a string.

use crate::commands::bits::{BAD_OFFSET, bit_at};
use crate::context::{Context, Extent, Halt, NOT_AN_INTEGER, Run, SYNTAX, fail};
use crate::number;
use std::collections::BTreeMap;
use std::ops::Range;
use tierstone_store::LargeMap;

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

/// Bytes side by side within one chunk.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    start: u64,
    end: u64,
    /// Where its bytes begin in [`Fields::bytes`].
    at: usize,
}

/// The bytes of a string that the steps of a `BITFIELD` touch, and no others; they are read and written chunk by
/// chunk. A string that is one record is one chunk.
///
/// Cost: ten bytes or so a step, and one chunk at a time beside those that the view holds.
struct Fields {
    extent: Option<Extent>,
    chunk_bytes: u64,
    /// In order, none beside another of its chunk.
    stretches: Vec<Stretch>,
    bytes: Vec<u8>,
    /// By number of the chunk: from the first byte that was changed to the last.
    changed: BTreeMap<u64, Range<u64>>,
}

impl Fields {
    /// Loads all that `steps` touch, so that one suspension fetches it together.
    fn load(context: &mut Context<'_, '_>, key: &[u8], steps: &[Step]) -> Result<Fields, Halt> {
        let extent = context.extent(key)?;
        let map = extent.as_ref().and_then(|extent| extent.map.as_ref());
        let chunk_bytes = map.map_or(context.view.record_bytes_max(), LargeMap::chunk_bytes);
        let stretches = stretches(steps, chunk_bytes);
        let len = stretches.last().map_or(0, |last| last.at + (last.end - last.start) as usize);
        let (bytes, changed) = (vec![0; len], BTreeMap::new());
        let mut fields = Fields { extent, chunk_bytes, stretches, bytes, changed };
        fields.read(context, key)?;
        Ok(fields)
    }

    fn read(&mut self, context: &mut Context<'_, '_>, key: &[u8]) -> Run {
        let Fields { extent: Some(extent), chunk_bytes, stretches, bytes, .. } = self else { return Ok(()) };
        let mut suspends = false;
        let is_same =
            |left: &Stretch, right: &Stretch| left.start / *chunk_bytes == right.start / *chunk_bytes;
        for stretches in stretches.chunk_by(is_same) {
            let (Some(first), Some(last)) = (stretches.first(), stretches.last()) else { continue };
            let (start, end) = (first.start, last.end.min(extent.len));
            if start >= end {
                break;
            }
            match read_part(context, key, extent, start..end) {
                Ok(()) => {}
                Err(Halt::Suspend) => {
                    suspends = true;
                    continue;
                }
                Err(error) => return Err(error),
            }
            for stretch in stretches {
                let part = &context.scratch[(stretch.start.min(end) - start) as usize..];
                let len = part.len().min((stretch.end - stretch.start) as usize);
                bytes[stretch.at..stretch.at + len].copy_from_slice(&part[..len]);
            }
        }
        if suspends { Err(Halt::Suspend) } else { Ok(()) }
    }

    /// Where byte `index` lies among those that are here.
    fn place(&self, index: u64) -> Option<usize> {
        let next = self.stretches.partition_point(|stretch| stretch.start <= index);
        let stretch = self.stretches.get(next.checked_sub(1)?)?;
        (index < stretch.end).then(|| stretch.at + (index - stretch.start) as usize)
    }

    fn byte(&self, index: u64) -> u8 {
        self.place(index).map_or(0, |place| self.bytes[place])
    }

    fn set_byte(&mut self, index: u64, byte: u8) {
        // What stays as it was is not written, and trips no watch.
        if let Some(place) = self.place(index)
            && self.bytes[place] != byte
        {
            self.bytes[place] = byte;
            self.mark_changed(index);
        }
    }

    fn mark_changed(&mut self, index: u64) {
        let range = self.changed.entry(index / self.chunk_bytes).or_insert(index..index + 1);
        *range = range.start.min(index)..range.end.max(index + 1);
    }

    /// Writes what was changed.
    fn store(mut self, context: &mut Context<'_, '_>, key: &[u8]) -> Run {
        for (number, range) in std::mem::take(&mut self.changed) {
            let extent = context.extent(key)?;
            let part = self.part(context, key, extent.as_ref(), range.clone())?;
            let map = extent.as_ref().and_then(|extent| extent.map.as_ref());
            // A chunk that is there counts itself.
            if map.is_none_or(|map| !map.has(number)) {
                context.view.hold(range.end - number * self.chunk_bytes)?;
            }
            context.patch(key, extent, range.start, &part)?;
        }
        Ok(())
    }

    /// The bytes `range` of one chunk of the string, of which some are here.
    fn part(
        &self,
        context: &mut Context<'_, '_>,
        key: &[u8],
        extent: Option<&Extent>,
        range: Range<u64>,
    ) -> Result<Vec<u8>, Halt> {
        let next = self.stretches.partition_point(|stretch| stretch.end <= range.start);
        let within = self.stretches[next..].iter().take_while(|stretch| stretch.start < range.end);
        context.scratch.clear();
        if within.clone().count() > 1
            && let Some(extent) = extent.filter(|extent| range.start < extent.len)
        {
            read_part(context, key, extent, range.start..range.end.min(extent.len))?;
        }
        let mut part = std::mem::take(context.scratch);
        part.resize((range.end - range.start) as usize, 0);
        for stretch in within {
            let (start, end) = (stretch.start.max(range.start), stretch.end.min(range.end));
            let at = stretch.at + (start - stretch.start) as usize;
            let bytes = &self.bytes[at..at + (end - start) as usize];
            part[(start - range.start) as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        Ok(part)
    }
}

/// The stretches that `steps` touch in chunks of `chunk_bytes`.
fn stretches(steps: &[Step], chunk_bytes: u64) -> Vec<Stretch> {
    let mut ranges: Vec<(u64, u64)> = steps.iter().map(Step::bytes).collect();
    ranges.sort_unstable();
    let mut stretches: Vec<Stretch> = Vec::new();
    let (mut covered, mut at) = (0, 0);
    for (first, last) in ranges {
        let mut start = first.max(covered);
        while start < last {
            let end = last.min((start / chunk_bytes + 1) * chunk_bytes);
            match stretches.last_mut() {
                Some(stretch) if stretch.end == start && start % chunk_bytes != 0 => stretch.end = end,
                _ => stretches.push(Stretch { start, end, at }),
            }
            at += (end - start) as usize;
            start = end;
        }
        covered = covered.max(last);
    }
    stretches
}

/// Replaces the scratch buffer by the bytes `range` of a string.
fn read_part(context: &mut Context<'_, '_>, key: &[u8], extent: &Extent, range: Range<u64>) -> Run {
    if let Some(map) = &extent.map {
        return context.read_scratch(key, map, range);
    }
    context.load_scratch(key)?;
    context.scratch.truncate(range.end as usize);
    context.scratch.drain(..range.start as usize);
    Ok(())
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
    let mut fields = Fields::load(context, key, &steps)?;
    let writes = |step: &&Step| !matches!(step.action, Action::Get);
    let end = steps.iter().filter(writes).map(|step| step.bytes().1).max();
    let len = fields.extent.as_ref().map_or(0, |extent| extent.len);
    // As in Redis, the string grows even if the write then fails for its overflow.
    let grows = end.is_some_and(|end| len < end);
    if let Some(end) = end.filter(|_| grows) {
        fields.mark_changed(end - 1);
    }
    let existed = fields.extent.is_some();
    if end.is_none() && !existed {
        context.note_miss(key);
    }
    let mut is_changed = false;
    context.reply.array(steps.len());
    for step in &steps {
        let (first, last) = step.bytes();
        let mut bytes = [0; FIELD_BYTES_MAX];
        for (byte, index) in bytes.iter_mut().zip(first..last) {
            *byte = fields.byte(index);
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
                fields.set_byte(index, *byte);
            }
        }
        match answer {
            Some(value) => context.reply.integer(value),
            None => context.reply.null(),
        }
    }
    fields.store(context, key)?;
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
