//! `MEMORY STATS` and `MEMORY DOCTOR`: where the memory of all shards goes, and whether that is as it should be.
//!
//! Each shard tells its numbers; the one that was asked adds or judges them. Bounds are those of a shard: one of them
//! may be full while all together are not.

use crate::args::Args;
use crate::context::Halt;
use crate::control::{Control, Flow};
use tierstone_base::units::format_size;
use tierstone_engine::Health;
use tierstone_wire::resp::ReplyWriter;

/// What the process may take beside the budget and its connections: the program itself and what `docs/design/memory.md`
/// names.
const BESIDE_BYTES: u64 = 64 << 20;
/// What each connection may keep beside, in bytes.
const CONNECTION_BYTES: u64 = 48 << 10;

/// What one shard knows of its memory, and of what the process takes. In bytes, unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryNumbers {
    shard: u64,
    /// Keys of all databases.
    keys: u64,
    /// Records in the index, pieces of large values among them.
    records: u64,
    index: u64,
    cache: u64,
    buffer: u64,
    /// What the engine may take; 0: not known.
    part: u64,
    /// Connections now.
    connected: u64,
    connections: u64,
    connections_max: u64,
    requests: u64,
    requests_max: u64,
    peak: u64,
    /// What the server was given; 0: not known.
    budget: u64,
    /// What the process takes; 0: not known.
    resident: u64,
    /// Why the device has failed.
    failure: Option<String>,
}

type Number = (&'static str, fn(&mut MemoryNumbers) -> &mut u64);

/// The numbers by their names, for messages between shards.
const NUMBERS: [Number; 15] = [
    ("shard", |of| &mut of.shard),
    ("keys", |of| &mut of.keys),
    ("records", |of| &mut of.records),
    ("index", |of| &mut of.index),
    ("cache", |of| &mut of.cache),
    ("buffer", |of| &mut of.buffer),
    ("part", |of| &mut of.part),
    ("connected", |of| &mut of.connected),
    ("connections", |of| &mut of.connections),
    ("connections_max", |of| &mut of.connections_max),
    ("requests", |of| &mut of.requests),
    ("requests_max", |of| &mut of.requests_max),
    ("peak", |of| &mut of.peak),
    ("budget", |of| &mut of.budget),
    ("resident", |of| &mut of.resident),
];
/// The name of what is no number.
const FAILURE: &str = "failure";

impl MemoryNumbers {
    /// Of the shard that is asked.
    fn of(control: &Control<'_>) -> Self {
        let (host, engine) = (&control.host, &control.engine);
        let statistics = &engine.statistics;
        MemoryNumbers {
            shard: u64::from(engine.shard.0),
            keys: engine.keys.iter().sum(),
            records: statistics.keys,
            index: statistics.index_bytes,
            cache: statistics.cache_bytes,
            buffer: statistics.buffer_bytes,
            part: statistics.memory_part_bytes,
            connected: host.sessions.len() as u64,
            connections: host.connection_bytes.0,
            connections_max: host.connection_bytes.1,
            requests: host.account.bytes(),
            requests_max: host.account.bytes_max(),
            peak: host.memory_peak_bytes,
            budget: host.facts.memory_bytes,
            resident: host.facts.process.map_or(0, |ask| ask().resident_bytes),
            failure: match &engine.health {
                Health::Good => None,
                Health::Failed(error) => Some(error.message().replace(char::is_control, " ")),
            },
        }
    }

    /// As a text for the shard that was asked.
    fn write(mut self) -> String {
        let mut text = String::new();
        for (name, number) in NUMBERS {
            text.push_str(&format!("{name}:{}\n", number(&mut self)));
        }
        if let Some(failure) = self.failure {
            text.push_str(&format!("{FAILURE}:{failure}\n"));
        }
        text
    }

    /// What [`MemoryNumbers::write`] has written.
    pub(crate) fn read(text: &str) -> Self {
        let mut read = MemoryNumbers::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            if name == FAILURE {
                read.failure = Some(value.to_owned());
            } else if let Some((_, number)) = NUMBERS.iter().find(|(other, _)| *other == name) {
                *number(&mut read) = value.parse().unwrap_or(0);
            }
        }
        read
    }

    fn total(&self) -> u64 {
        self.index + self.cache + self.buffer + self.connections + self.requests
    }

    /// What the index may take: beyond it new keys are refused.
    fn index_max(&self) -> u64 {
        self.part / 4 * 3
    }
}

/// Either command.
pub(crate) fn told(control: &mut Control<'_>) -> Result<Flow, Halt> {
    control.host.note_memory(&control.engine.statistics);
    let own = MemoryNumbers::of(control);
    if control.host.is_partial {
        control.reply.bulk(own.write().as_bytes());
    } else {
        answer(control.args, &[own], &mut control.reply);
    }
    Ok(Flow::Done)
}

/// The answer out of what all shards have told.
pub(crate) fn answer(args: Args<'_>, all: &[MemoryNumbers], reply: &mut ReplyWriter<'_>) {
    if args.at(1).eq_ignore_ascii_case(b"doctor") {
        reply.verbatim(*b"txt", doctor(all).as_bytes());
    } else {
        stats(all, reply);
    }
}

/// Redis's names where they mean something here, and the store's own.
fn stats(all: &[MemoryNumbers], reply: &mut ReplyWriter<'_>) {
    let sum = |of: fn(&MemoryNumbers) -> u64| all.iter().map(of).sum::<u64>();
    let (total, peak, cache) = (sum(MemoryNumbers::total), sum(|of| of.peak), sum(|of| of.cache));
    let (keys, records, index) = (sum(|of| of.keys), sum(|of| of.records), sum(|of| of.index));
    let resident = all.iter().map(|of| of.resident).max().unwrap_or(0);
    let rows = [
        ("peak.allocated", peak),
        ("total.allocated", total),
        ("clients.normal", sum(|of| of.connections)),
        ("requests.bytes", sum(|of| of.requests)),
        ("index.bytes", index),
        ("cache.bytes", cache),
        ("buffer.bytes", sum(|of| of.buffer)),
        ("resident.bytes", resident),
        ("overhead.total", total - cache),
        ("keys.count", keys),
        ("keys.bytes-per-key", total / keys.max(1)),
        ("keys.index-bytes-per-key", index / records.max(1)),
        ("dataset.bytes", cache),
    ];
    let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    let percentages =
        [("dataset.percentage", percent(cache, total)), ("peak.percentage", percent(total, peak))];
    reply.map(rows.len() + percentages.len());
    for (name, value) in rows {
        reply.bulk(name.as_bytes());
        reply.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }
    for (name, value) in percentages {
        reply.bulk(name.as_bytes());
        reply.double(value);
    }
}

/// What a person should know, one line each; that all is as it should be where there is nothing.
fn doctor(all: &[MemoryNumbers]) -> String {
    let mut found: Vec<String> = all.iter().flat_map(findings).collect();
    found.extend(resident(all));
    if !found.is_empty() {
        return found.join("\n") + "\n";
    }
    let sum = |of: fn(&MemoryNumbers) -> u64| all.iter().map(of).sum::<u64>();
    let size = |of: fn(&MemoryNumbers) -> u64| format_size(sum(of));
    format!(
        "Memory is as it should be: {} keys; the index takes {}, cached records {}, buffers {}, connections {}, \
         requests {}.\n",
        sum(|of| of.keys),
        size(|of| of.index),
        size(|of| of.cache),
        size(|of| of.buffer),
        size(|of| of.connections),
        size(|of| of.requests),
    )
}

/// Whether so much of a bound is used that it will soon be felt; a bound of 0 is not known.
fn is_near(bytes: u64, bytes_max: u64) -> bool {
    bytes_max > 0 && bytes >= bytes_max / 10 * 9
}

/// What is wrong with one shard.
fn findings(of: &MemoryNumbers) -> Vec<String> {
    let shard = of.shard;
    let mut found = Vec::new();
    if let Some(failure) = &of.failure {
        found.push(format!(
            "The device of shard {shard} has failed: {failure}. It acknowledges nothing any more. Look at the disk and \
             the log, then restart: nothing that was acknowledged is lost."
        ));
    }
    let mut note = |what: &str, bytes: u64, bytes_max: u64, then: &str| {
        if is_near(bytes, bytes_max) {
            let (bytes, bytes_max) = (format_size(bytes), format_size(bytes_max));
            found.push(format!("{what} of shard {shard} take {bytes} of at most {bytes_max}: {then}"));
        }
    };
    note(
        "Indexes",
        of.index,
        of.index_max(),
        "new keys are refused with OOM, or old ones evicted. Start with more --memory, delete keys, or set \
         maxmemory-policy.",
    );
    note(
        "Buffers of connections",
        of.connections,
        of.connections_max,
        "large requests wait in line. CLIENT LIST shows who has them (tot-mem); maxmemory-clients closes the largest; \
         more --memory gives them more.",
    );
    note(
        "Requests that have not come to their end",
        of.requests,
        of.requests_max,
        "connections wait, and additions to transactions are refused. Send shorter transactions and fewer large \
         values at a time, or start with more --memory.",
    );
    found
}

/// Whether the process takes more than it should.
fn resident(all: &[MemoryNumbers]) -> Option<String> {
    let most = |of: fn(&MemoryNumbers) -> u64| all.iter().map(of).max().unwrap_or(0);
    let (resident, budget) = (most(|of| of.resident), most(|of| of.budget));
    let connected: u64 = all.iter().map(|of| of.connected).sum();
    let expected = budget + BESIDE_BYTES + connected * CONNECTION_BYTES;
    let is_above = budget > 0 && resident > expected;
    is_above.then(|| {
        format!(
            "The process takes {}, more than the {} of --memory, 64 MiB and 48 KiB for each of {connected} connections. \
             Each shard beyond the first takes some more, as do large values under way; if it grows on, start with less \
             --memory or fewer --shards.",
            format_size(resident),
            format_size(budget),
        )
    })
}

#[cfg(test)]
#[path = "memory_test.rs"]
mod memory_test;
