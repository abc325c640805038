//! The commands of the server as a whole that never wait.

use crate::context::Halt;
use crate::control::{Control, Flow};

pub(crate) fn time(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let ms = control.now.wall_ms;
    control.reply.array(2);
    let mut buffer = itoa::Buffer::new();
    control.reply.bulk(buffer.format(ms / 1_000).as_bytes());
    // Below the millisecond only the monotonic clock is known.
    let us = ms % 1_000 * 1_000 + control.now.monotonic_us % 1_000;
    control.reply.bulk(buffer.format(us).as_bytes());
    Ok(Flow::Done)
}

pub(crate) fn lastsave(control: &mut Control<'_>) -> Result<Flow, Halt> {
    control.reply.integer(control.host.last_save_s as i64);
    Ok(Flow::Done)
}

/// A master at offset 0 that has no replicas.
pub(crate) fn role(control: &mut Control<'_>) -> Result<Flow, Halt> {
    control.reply.array(3);
    control.reply.bulk(b"master");
    control.reply.integer(0);
    control.reply.array(0);
    Ok(Flow::Done)
}

pub(crate) fn memory_malloc_stats(control: &mut Control<'_>) -> Result<Flow, Halt> {
    // Redis's own words where its allocator is not jemalloc.
    control.reply.bulk(b"Stats not supported for the current allocator");
    Ok(Flow::Done)
}

pub(crate) fn memory_purge(control: &mut Control<'_>) -> Result<Flow, Halt> {
    control.reply.ok();
    Ok(Flow::Done)
}
