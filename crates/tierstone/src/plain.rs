//! What the library makes of records: plain values are its own, others the server's. And of clocks.

use crate::engine::DatabaseShard;
use tierstone_base::clock::{Clock, SystemClock};
use tierstone_base::{Error, ErrorKind, KeyspaceId, Now, Position, Result};
use tierstone_engine::{
    Engine, Key, Lookup, OwnedRecord, PREFETCHED_KEYS, RecordMeta, RecordView, ValueKind, Write, WriteReceipt,
};

/// Bytes of a key that an error tells.
const KEY_BYTES_TOLD: usize = 32;

/// As [`Engine::write`], but for keys that hold large values: what is to be done with their chunks only
/// the server knows. Cost where there is none: a look through the list of keyspaces for each write.
pub(crate) fn write_plain(
    engine: &mut DatabaseShard,
    now: Now,
    writes: &[Write<'_>],
) -> Result<WriteReceipt> {
    check_plain(engine, now, writes)?;
    engine.write(now, writes)
}

/// Refuses writes to keys that hold large values.
pub(crate) fn check_plain(engine: &mut DatabaseShard, now: Now, writes: &[Write<'_>]) -> Result<()> {
    for write in writes {
        if engine.len(write.key.keyspace.chunks()) == 0 {
            continue;
        }
        // What must be fetched first the engine itself refuses, and fetches.
        if let Lookup::Found(record) = engine.lookup(now, write.key)
            && record.meta.kind == ValueKind::CHUNKED
        {
            let key = &write.key.bytes[..write.key.bytes.len().min(KEY_BYTES_TOLD)];
            let message = format!(
                "the key \"{}\" holds a large value in chunks, which only the server changes",
                key.escape_ascii()
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    }
    Ok(())
}

/// The bytes of a record that holds a plain value.
pub(crate) fn value_of(record: RecordView<'_>) -> Result<&[u8]> {
    if record.meta.kind == ValueKind::STRING {
        return Ok(record.value);
    }
    Err(unreadable_kind(record.meta.kind))
}

/// What a value that is no plain string gives.
pub(crate) fn unreadable_kind(kind: ValueKind) -> Error {
    let message = format!("the value is of kind {}, which this handle does not read", kind.0);
    Error::new(ErrorKind::Unsupported, message)
}

/// The value of a record that a snapshot showed.
pub(crate) fn owned_value(record: Option<OwnedRecord>) -> Result<Option<Vec<u8>>> {
    let Some(record) = record else { return Ok(None) };
    value_of(RecordView { meta: record.meta, value: &record.value })?;
    Ok(Some(record.value))
}

/// Whether an error of a walk says that its snapshot is not there.
pub(crate) fn is_of_snapshot(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::SnapshotLost | ErrorKind::InvalidInput)
}

/// Whether a walk shows this record.
pub(crate) fn is_visible(meta: &RecordMeta, now: Now) -> bool {
    is_user_value(meta) && (meta.expiry_ms == 0 || meta.expiry_ms > now.wall_ms)
}

/// Whether a walk of a snapshot, which knows what has expired, shows this record.
pub(crate) fn is_user_value(meta: &RecordMeta) -> bool {
    meta.kind != ValueKind::INTERNAL
}

/// Notes which of these records are left out because they have expired.
pub(crate) fn note_expired<'m>(
    engine: &mut DatabaseShard,
    metas: impl Iterator<Item = &'m RecordMeta>,
    now: Now,
) {
    let expiries = metas.map(|meta| meta.expiry_ms).filter(|&at_ms| at_ms != 0 && at_ms <= now.wall_ms);
    expiries.for_each(|at_ms| engine.note_past(at_ms));
}

/// A lookup; the clocks are read only for a record that expires. `expired_ms` becomes the expiry of one that
/// the engine, by an older time, has not found to have expired.
pub(crate) fn look<'e>(
    engine: &'e mut DatabaseShard,
    clock: &SystemClock,
    (now, expired_ms): (&mut Now, &mut u64),
    key: Key<'_>,
) -> Lookup<'e> {
    let found = engine.lookup(*now, key);
    if let Lookup::Found(record) = &found
        && record.meta.expiry_ms != 0
    {
        *now = later(*now, clock.now());
        if record.meta.expiry_ms <= now.wall_ms {
            *expired_ms = record.meta.expiry_ms.max(*expired_ms);
            return Lookup::Missing;
        }
    }
    found
}

/// Has the processor fetch what lookups of the first [`PREFETCHED_KEYS`] of `keys` will touch.
pub(crate) fn prefetch<'k>(engine: &mut DatabaseShard, keys: impl Iterator<Item = Key<'k>>) {
    let mut wanted = [(KeyspaceId(0), Position(0)); PREFETCHED_KEYS];
    let mut count = 0;
    for (slot, key) in wanted.iter_mut().zip(keys) {
        *slot = (key.keyspace, key.position);
        count += 1;
    }
    engine.prefetch(&wanted[..count]);
}

/// The newer of two readings, each clock by itself.
pub(crate) fn later(old: Now, new: Now) -> Now {
    Now { monotonic_us: old.monotonic_us.max(new.monotonic_us), wall_ms: old.wall_ms.max(new.wall_ms) }
}

/// Waits without anything to wait for.
pub(crate) fn pause_us(time_us: u64) {
    let timeout = rustix::event::Timespec {
        tv_sec: (time_us / 1_000_000) as i64,
        tv_nsec: (time_us % 1_000_000 * 1_000) as _,
    };
    // An interruption only ends the pause early.
    let _ = rustix::event::poll(&mut [], Some(&timeout));
}
