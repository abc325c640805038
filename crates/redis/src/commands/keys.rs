//! The commands of keys of any type.

use crate::context::{Context, Halt, NO_SUCH_KEY, Run, SYNTAX, fail};
use crate::events::class;
use crate::number;
use crate::recipe::{Bytes, Mix, Recipe, Source};
use crate::stream::STREAM_ABOVE_BYTES;
use tierstone_engine::ValueKind;
use tierstone_store::{LargeMap, Record};

pub(crate) fn del(context: &mut Context<'_, '_>) -> Run {
    let args = context.args;
    context.view.prefetch(context.db, args.from(1))?;
    let mut count = 0;
    for key in args.from(1) {
        if context.view.get(context.db, key)?.is_some() {
            context.delete(key)?;
            context.note(class::GENERIC, "del", key);
            count += 1;
        }
    }
    context.reply.integer(count);
    Ok(())
}

/// Answers with the number of the keys that exist, repetitions counted.
fn count_existing(context: &mut Context<'_, '_>) -> Run {
    let args = context.args;
    context.view.prefetch(context.db, args.from(1))?;
    let mut count = 0;
    for key in args.from(1) {
        if context.view.get(context.db, key)?.is_some() {
            context.reads.hits += 1;
            count += 1;
        } else {
            context.reads.misses += 1;
            context.note_miss(key);
        }
    }
    context.reply.integer(count);
    Ok(())
}

pub(crate) fn exists(context: &mut Context<'_, '_>) -> Run {
    count_existing(context)
}

pub(crate) fn touch(context: &mut Context<'_, '_>) -> Run {
    count_existing(context)
}

/// The name of a type, as `TYPE` and `SCAN TYPE` have it.
pub(crate) fn type_name(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::STRING | ValueKind::CHUNKED => "string",
        _ => "unknown",
    }
}

pub(crate) fn type_of(context: &mut Context<'_, '_>) -> Run {
    let key = context.args.at(1);
    let kind = context.view.get(context.db, key)?.map(|record| record.meta.kind);
    if kind.is_none() {
        context.note_miss(key);
    }
    context.reply.simple(kind.map_or("none", type_name));
    Ok(())
}

/// Copies the record at `source` over `target`, its expiry and kind included; false when there is none. When
/// the source `leaves`, its caller deletes it.
fn copy_record(
    context: &mut Context<'_, '_>,
    source: &[u8],
    (db, target): (u32, &[u8]),
    leaves: bool,
) -> Result<bool, Halt> {
    let Some(record) = context.view.get(context.db, source)? else { return Ok(false) };
    let meta = record.meta;
    if meta.kind == ValueKind::CHUNKED
        && let Ok(map) = LargeMap::decode(record.value)
        && let Some(map) = copy_large(context, (source, map), (db, target), leaves)?
    {
        context.view.put_map(db, target, &map, meta.expiry_ms)?;
        return Ok(true);
    }
    if let ValueKind::STRING | ValueKind::CHUNKED = meta.kind {
        context.load_scratch(source)?;
        context.view.put_string(db, target, context.scratch, meta.expiry_ms)?;
        return Ok(true);
    }
    context.scratch.clear();
    if let Some(record) = context.view.get(context.db, source)? {
        context.scratch.extend_from_slice(record.value);
    }
    context.view.put(db, target, context.scratch, meta.expiry_ms, meta.kind)?;
    Ok(true)
}

/// The map that `target` gets for the large value at `source`, where its bytes need not be held: the same
/// one if its chunks lie right for it, else that of a copy.
fn copy_large(
    context: &mut Context<'_, '_>,
    (source, map): (&[u8], LargeMap),
    (db, target): (u32, &[u8]),
    leaves: bool,
) -> Result<Option<LargeMap>, Halt> {
    let from = context.view.place(context.db, source)?;
    let to = context.view.place(db, target)?;
    if leaves && from == to {
        return Ok(Some(map));
    }
    if map.len() <= STREAM_ABOVE_BYTES {
        return Ok(None);
    }
    let len = map.len();
    let sources = vec![Source::new(Bytes::Large(from, map))];
    context.make(Recipe { target: to, len, mix: Mix::Overlay, sources })
}

/// Touches a source and a target, so that one suspension fetches both.
fn touch_both(context: &mut Context<'_, '_>, target_db: u32) -> Result<(bool, bool), Halt> {
    let (source, target) = (context.args.at(1), context.args.at(2));
    let first = context.view.get(context.db, source).map(|record| record.is_some());
    let second = context.view.get(target_db, target).map(|record| record.is_some());
    Ok((first?, second?))
}

/// Gives the record at `source` another name.
fn move_record(context: &mut Context<'_, '_>, source: &[u8], target: &[u8], is_taken: bool) -> Run {
    copy_record(context, source, (context.db, target), true)?;
    context.delete(source)?;
    context.note(class::NEW, "new", target);
    context.note(class::GENERIC, "rename_from", source);
    context.note(class::GENERIC, "rename_to", target);
    if is_taken {
        context.note(class::OVERWRITTEN, "overwritten", target);
    }
    Ok(())
}

pub(crate) fn rename(context: &mut Context<'_, '_>) -> Run {
    let (source, target) = (context.args.at(1), context.args.at(2));
    let (exists, is_taken) = touch_both(context, context.db)?;
    if !exists {
        return fail(NO_SUCH_KEY);
    }
    if source != target {
        move_record(context, source, target, is_taken)?;
    }
    context.reply.ok();
    Ok(())
}

pub(crate) fn renamenx(context: &mut Context<'_, '_>) -> Run {
    let (source, target) = (context.args.at(1), context.args.at(2));
    let (exists, is_taken) = touch_both(context, context.db)?;
    if !exists {
        return fail(NO_SUCH_KEY);
    }
    if !is_taken {
        move_record(context, source, target, false)?;
    }
    context.reply.integer(i64::from(!is_taken));
    Ok(())
}

/// Argument `index` as the number of a database.
fn database(context: &Context<'_, '_>, index: usize) -> Result<u32, Halt> {
    crate::context::database(context.args.at(index), context.view.databases())
}

pub(crate) fn copy(context: &mut Context<'_, '_>) -> Run {
    let args = context.args;
    let (source, target) = (args.at(1), args.at(2));
    let mut db = context.db;
    let mut replaces = false;
    let mut index = 3;
    while let Some(option) = args.get(index) {
        if option.eq_ignore_ascii_case(b"REPLACE") {
            replaces = true;
        } else if option.eq_ignore_ascii_case(b"DB") && index + 1 < args.len() {
            index += 1;
            db = database(context, index)?;
        } else {
            return fail(SYNTAX);
        }
        index += 1;
    }
    if db == context.db && source == target {
        return fail("ERR source and destination objects are the same");
    }
    let (exists, is_taken) = touch_both(context, db)?;
    let copies = exists && (replaces || !is_taken);
    if copies {
        copy_record(context, source, (db, target), false)?;
        context.note_in(db, class::NEW, "new", target);
        context.note_in(db, class::GENERIC, "copy_to", target);
        if is_taken {
            context.note_in(db, class::OVERWRITTEN, "overwritten", target);
        }
    } else if !exists {
        context.note_miss(source);
    }
    context.reply.integer(i64::from(copies));
    Ok(())
}

pub(crate) fn move_to(context: &mut Context<'_, '_>) -> Run {
    let key = context.args.at(1);
    let db = database(context, 2)?;
    if db == context.db {
        return fail("ERR source and destination objects are the same");
    }
    let here = context.view.get(context.db, key).map(|record| record.is_some());
    let there = context.view.get(db, key).map(|record| record.is_some());
    let moves = here? && !there?;
    if moves {
        copy_record(context, key, (db, key), true)?;
        context.delete(key)?;
        context.note_in(db, class::NEW, "new", key);
        context.note(class::GENERIC, "move_from", key);
        context.note_in(db, class::GENERIC, "move_to", key);
    }
    context.reply.integer(i64::from(moves));
    Ok(())
}

pub(crate) fn dbsize(context: &mut Context<'_, '_>) -> Run {
    let count = context.view.len(context.db)?;
    context.reply.integer(count as i64);
    Ok(())
}

/// The longest string that Redis keeps inside its object.
const EMBEDDED_MAX_BYTES: usize = 44;

fn encoding(record: &Record<'_>) -> &'static str {
    let value = record.value;
    if record.meta.kind == ValueKind::CHUNKED {
        "raw"
    } else if value.len() <= 20 && number::integer(value).is_some() {
        "int"
    } else if value.len() <= EMBEDDED_MAX_BYTES {
        "embstr"
    } else {
        "raw"
    }
}

pub(crate) fn object_encoding(context: &mut Context<'_, '_>) -> Run {
    let name = context.view.get(context.db, context.args.at(2))?.map(|record| encoding(&record));
    context.reads.count(name.is_some());
    match name {
        Some(name) => context.reply.bulk(name.as_bytes()),
        None => context.reply.null(),
    }
    Ok(())
}

/// Answers for an existing key with what `answer` writes, else with null.
fn for_existing(context: &mut Context<'_, '_>, answer: impl FnOnce(&mut Context<'_, '_>) -> Run) -> Run {
    let is_there = context.view.get(context.db, context.args.at(2))?.is_some();
    context.reads.count(is_there);
    if !is_there {
        context.reply.null();
        return Ok(());
    }
    answer(context)
}

pub(crate) fn object_refcount(context: &mut Context<'_, '_>) -> Run {
    for_existing(context, |context| {
        context.reply.integer(1);
        Ok(())
    })
}

pub(crate) fn object_idletime(context: &mut Context<'_, '_>) -> Run {
    for_existing(context, |_| fail("ERR idle time is not tracked: the record cache has no clock of uses"))
}

pub(crate) fn object_freq(context: &mut Context<'_, '_>) -> Run {
    for_existing(context, |context| match context.view.uses(context.db, context.args.at(2))? {
        Some(uses) => {
            context.reply.integer(i64::from(uses));
            Ok(())
        }
        None => fail(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ),
    })
}

/// Bytes that a record takes beside its key and value: its header on the device and its share of the
/// index.
const RECORD_OVERHEAD_BYTES: usize = 48 + 10;

pub(crate) fn memory_usage(context: &mut Context<'_, '_>) -> Run {
    let args = context.args;
    let mut index = 3;
    while let Some(option) = args.get(index) {
        if !option.eq_ignore_ascii_case(b"SAMPLES") || index + 1 >= args.len() {
            return fail(SYNTAX);
        }
        if context.integer(index + 1)? < 0 {
            return fail(SYNTAX);
        }
        index += 2;
    }
    let key = args.at(2);
    let size = context.view.get(context.db, key)?.map(|record| {
        let chunks = match LargeMap::decode(record.value) {
            Ok(map) if record.meta.kind == ValueKind::CHUNKED => {
                map.stored_bytes() + map.present().count() as u64 * RECORD_OVERHEAD_BYTES as u64
            }
            _ => 0,
        };
        (record.value.len() + key.len() + RECORD_OVERHEAD_BYTES) as u64 + chunks
    });
    match size {
        Some(size) => context.reply.integer(size as i64),
        None => context.reply.null(),
    }
    Ok(())
}

pub(crate) fn debug_object(context: &mut Context<'_, '_>) -> Run {
    let key = context.args.at(2);
    let text = context.view.get(context.db, key)?.map(|record| {
        let len = match LargeMap::decode(record.value) {
            Ok(map) if record.meta.kind == ValueKind::CHUNKED => map.len(),
            _ => record.value.len() as u64,
        };
        format!(
            "Value at:0x0 refcount:1 encoding:{} serializedlength:{len} lru:0 lru_seconds_idle:0 seq:{}",
            encoding(&record),
            record.meta.seq
        )
    });
    match text {
        Some(text) => context.reply.simple(text),
        None => return fail(NO_SUCH_KEY),
    }
    Ok(())
}
