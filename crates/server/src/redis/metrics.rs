//! What a node says about itself: numbers of each shard, as Prometheus text.

mod about;

use super::energy;
use super::service::{Heartbeat, RedisConnection};
use super::volume;
use crate::connections::{Connections, StageLatencies};
use crate::http::{Answer, Page};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tierstone::volume::VolumeTeller;
use tierstone_base::histogram::LatencyBuckets;
use tierstone_base::units::format_size;
use tierstone_base::{Clock, ShardId};
use tierstone_energy::Watch;
use tierstone_engine::{Engine, EngineStatistics, Health, OpeningProgress};
use tierstone_redis::control::Transport;
use tierstone_redis::{Executor, ProcessNumbers};

/// One shard's numbers at one time.
#[derive(Clone, Debug, Default)]
pub struct ShardSnapshot {
    /// Which shard.
    pub shard: ShardId,
    /// Its engine's.
    pub engine: EngineStatistics,
    /// Requests carried out.
    pub commands: u64,
    /// Requests carried out since the start, whatever was reset.
    pub requests: u64,
    /// Keys found by reads.
    pub hits: u64,
    /// Keys not found by reads.
    pub misses: u64,
    /// Requests that had to wait.
    pub suspended: u64,
    /// Connections since the start.
    pub connections_total: u64,
    /// Connections now.
    pub connections: u64,
    /// Connections closed since all of them took too much memory.
    pub evicted_clients: u64,
    /// What became of connections, and their bytes.
    pub transport: Transport,
    /// Requests that were answered with an error.
    pub errors: u64,
    /// What was refused to users: logins, commands, keys, channels.
    pub denied: [u64; 4],
    /// Bytes in the buffers of connections.
    pub connection_bytes: u64,
    /// Clients that track what they read, keys and copies that are noted of them, prefixes that are followed
    /// ([`Executor::tracked`]).
    pub tracked: [u64; 4],
    /// Writes that are not durable yet.
    pub undurable: u64,
    /// How long requests and replies waited in the shard's thread.
    pub stages: StageLatencies,
    /// Whether the device still takes writes.
    pub is_healthy: bool,
    /// Whether the store was opened without all of the redo log that it had.
    pub is_redo_lost: bool,
    /// When the server started, in milliseconds since 1970.
    pub started_ms: u64,
}

impl ShardSnapshot {
    /// The numbers of a shard.
    pub fn of<E: Engine>(
        shard: ShardId,
        executor: &Executor<E>,
        connections: &Connections<RedisConnection>,
    ) -> Self {
        let engine = executor.shard().engine();
        let counters = executor.counters();
        ShardSnapshot {
            shard,
            engine: engine.statistics(),
            commands: counters.commands,
            requests: counters.since_start(),
            hits: counters.hits,
            misses: counters.misses,
            suspended: counters.suspended,
            connections_total: counters.connections,
            connections: connections.len() as u64,
            evicted_clients: counters.evicted_clients,
            transport: executor.transport(),
            errors: counters.errors.values().sum(),
            denied: counters.denied,
            connection_bytes: connections.buffer_bytes(),
            tracked: executor.tracked(),
            undurable: engine.applied_seq().saturating_sub(engine.durable_seq()),
            stages: *connections.stages(),
            is_healthy: matches!(engine.health(), Health::Good),
            is_redo_lost: executor.facts().redo.lost,
            started_ms: executor.facts().started.wall_ms,
        }
    }
}

/// The newest numbers of each shard, however seldom they are looked at: its thread tells them, the HTTP thread takes them, and
/// a shard's thread waits for nobody.
#[derive(Clone, Debug)]
pub struct NewestNumbers(Arc<[Mutex<Option<Box<ShardSnapshot>>>]>);

impl NewestNumbers {
    /// Of so many shards, numbered from zero.
    pub fn new(shards: usize) -> Self {
        NewestNumbers((0..shards).map(|_| Mutex::default()).collect())
    }

    /// Puts a shard's numbers in the place of those before. They stay as they are if just now somebody takes them.
    pub fn tell(&self, snapshot: ShardSnapshot) {
        if let Some(slot) = self.0.get(usize::from(snapshot.shard))
            && let Ok(mut slot) = slot.try_lock()
        {
            *slot = Some(Box::new(snapshot));
        }
    }

    /// What was told since the last time.
    fn take(&self) -> impl Iterator<Item = ShardSnapshot> {
        let take = |slot: &Mutex<Option<Box<ShardSnapshot>>>| {
            slot.lock().unwrap_or_else(PoisonError::into_inner).take()
        };
        self.0.iter().filter_map(take).map(|snapshot| *snapshot)
    }
}

/// A shard's thread that has not turned for so long is taken for hung, in microseconds: it turns once a
/// second even when there is nothing to do.
pub const HUNG_AFTER_US: u64 = 30_000_000;

/// A shard's thread as it was seen last.
#[derive(Debug)]
struct Watched {
    heartbeat: Heartbeat,
    turns: u64,
    /// When it had turned since the look before.
    turned_us: u64,
}

/// Keeps the newest numbers of each shard, on the HTTP thread.
pub struct MetricsBoard {
    incoming: NewestNumbers,
    newest: BTreeMap<ShardId, ShardSnapshot>,
    ready: Arc<AtomicBool>,
    watched: Vec<Watched>,
    clock: Option<Box<dyn Clock + Send>>,
    process: Option<fn() -> ProcessNumbers>,
    energy: Option<(Arc<Watch>, Box<dyn Clock + Send>)>,
    volume: Option<VolumeTeller>,
    opening: OpeningProgress,
}

impl std::fmt::Debug for MetricsBoard {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("MetricsBoard").field("newest", &self.newest).finish_non_exhaustive()
    }
}

type Column = (&'static str, &'static str, &'static str, fn(&ShardSnapshot) -> u64);

const COLUMNS: &[Column] = &[
    ("keys", "gauge", "Live keys.", |s| s.engine.keys),
    ("memory_part_bytes", "gauge", "Memory that the shard may take: its part of the budget.", |s| {
        s.engine.memory_part_bytes
    }),
    ("index_bytes", "gauge", "Memory of the index.", |s| s.engine.index_bytes),
    ("cache_bytes", "gauge", "Memory of cached records.", |s| s.engine.cache_bytes),
    ("buffer_bytes", "gauge", "Memory of device buffers.", |s| s.engine.buffer_bytes),
    ("connection_bytes", "gauge", "Memory of connection buffers.", |s| s.connection_bytes),
    ("connections", "gauge", "Connections now.", |s| s.connections),
    ("connections_total", "counter", "Connections accepted.", |s| s.connections_total),
    (
        "evicted_clients_total",
        "counter",
        "Connections closed since all took more than maxmemory-clients.",
        |s| s.evicted_clients,
    ),
    ("rejected_connections_total", "counter", "Connections that were turned away.", |s| s.transport.refused),
    ("input_limit_disconnections_total", "counter", "Connections closed for what they sent.", |s| {
        s.transport.over_input_limit
    }),
    ("output_limit_disconnections_total", "counter", "Connections closed for what they did not take.", |s| {
        s.transport.over_output_limit
    }),
    ("received_bytes_total", "counter", "Bytes received from clients.", |s| s.transport.bytes_received),
    ("sent_bytes_total", "counter", "Bytes sent to clients.", |s| s.transport.bytes_sent),
    ("error_replies_total", "counter", "Requests answered with an error.", |s| s.errors),
    ("tracking_clients", "gauge", "Clients with CLIENT TRACKING on.", |s| s.tracked[0]),
    ("tracking_keys", "gauge", "Keys of which clients hold copies.", |s| s.tracked[1]),
    ("tracking_items", "gauge", "Copies that clients hold: keys, each as often as it is held.", |s| {
        s.tracked[2]
    }),
    ("tracking_prefixes", "gauge", "Prefixes that clients follow.", |s| s.tracked[3]),
    ("commands_total", "counter", "Requests carried out.", |s| s.commands),
    ("commands_suspended_total", "counter", "Requests that had to wait for device, lock or shard.", |s| {
        s.suspended
    }),
    ("key_hits_total", "counter", "Keys found by reads.", |s| s.hits),
    ("key_misses_total", "counter", "Keys not found by reads.", |s| s.misses),
    ("undurable_writes", "gauge", "Writes applied and not durable yet.", |s| s.undurable),
    ("memory_lookups_total", "counter", "Lookups answered from memory.", |s| s.engine.memory_hits),
    ("device_lookups_total", "counter", "Lookups that needed the device.", |s| s.engine.device_hits),
    ("corrupt_reads_total", "counter", "Reads with a wrong checksum.", |s| s.engine.corrupt_reads),
    ("nvm_lost_bytes", "gauge", "Bytes of damaged persistent memory whose loss was accepted.", |s| {
        s.engine.lost_bytes
    }),
    ("lost_segments", "gauge", "Segments missing or damaged at the start whose loss was accepted.", |s| {
        s.engine.lost_segments
    }),
    ("failed_reads_total", "counter", "Reads of records that the device refused.", |s| s.engine.failed_reads),
    ("expired_keys_total", "counter", "Keys dropped since they had expired.", |s| s.engine.expired_keys),
    ("evicted_keys_total", "counter", "Keys evicted for want of memory or space.", |s| s.engine.evicted_keys),
    ("groups_total", "counter", "Groups committed.", |s| s.engine.groups),
    ("redo_written_bytes_total", "counter", "Bytes stored in the redo log in persistent memory.", |s| {
        s.engine.redo_bytes_written
    }),
    ("redo_fences_total", "counter", "Fences of the redo log.", |s| s.engine.redo_fences),
    ("redo_groups_without_slot_total", "counter", "Groups for which the redo log had no room.", |s| {
        s.engine.redo_groups_without_slot
    }),
    ("group_depth", "gauge", "Groups that may be in flight at a time.", |s| s.engine.group_depth),
    ("device_reads_total", "counter", "Device reads.", |s| s.engine.device.reads),
    ("device_writes_total", "counter", "Device writes.", |s| s.engine.device.writes),
    ("device_read_bytes_total", "counter", "Bytes read from the device.", |s| s.engine.device.bytes_read),
    ("device_written_bytes_total", "counter", "Bytes written to the device.", |s| {
        s.engine.device.bytes_written
    }),
    ("user_written_bytes_total", "counter", "Bytes of keys and values accepted.", |s| {
        s.engine.user_bytes_written
    }),
    ("cleaned_bytes_total", "counter", "Bytes that cleaning moved.", |s| s.engine.cleaned_bytes_written),
    ("clustered_bytes_total", "counter", "Bytes of records that were brought together for ranges.", |s| {
        s.engine.clustered_bytes_written
    }),
    ("padding_bytes_total", "counter", "Bytes of padding and group headers.", |s| {
        s.engine.padding_bytes_written
    }),
    ("summary_bytes_total", "counter", "Bytes of headers and summaries.", |s| s.engine.summary_bytes_written),
    ("record_bytes_total", "counter", "Bytes of user records, headers and alignment included.", |s| {
        s.engine.record_bytes_written
    }),
    ("absorbed_bytes_total", "counter", "Bytes of records in whose place newer ones were written.", |s| {
        s.engine.absorbed_bytes
    }),
    ("checkpoint_bytes_total", "counter", "Bytes of checkpoints of the index on the device.", |s| {
        s.engine.checkpoint_bytes_written
    }),
    (
        "checkpoint_region_bytes_total",
        "counter",
        "Bytes of checkpoints of the index in persistent memory.",
        |s| s.engine.checkpoint_region_bytes_written,
    ),
    ("device_flushes_total", "counter", "Device flushes.", |s| s.engine.device.flushes),
    (
        "engine_cpu_ns_total",
        "counter",
        "Processor time of the engine, with --measure-cpu, in nanoseconds.",
        |s| s.engine.device.cpu_ns,
    ),
    ("engine_background_cpu_ns_total", "counter", "What of it is no request's.", |s| {
        s.engine.background_cpu_ns
    }),
    ("snapshots", "gauge", "Snapshots alive.", |s| s.engine.snapshots),
    ("snapshots_lost_total", "counter", "Snapshots given up for want of space or memory.", |s| {
        s.engine.snapshots_lost
    }),
    ("snapshot_table_bytes", "gauge", "Memory of snapshots.", |s| s.engine.snapshot_table_bytes),
    ("snapshot_pinned_bytes", "gauge", "Bytes of records that only snapshots show.", |s| {
        s.engine.snapshot_pinned_bytes
    }),
    ("space_used_bytes", "gauge", "Bytes of segments in use.", |s| s.engine.space_used_bytes),
    ("space_live_bytes", "gauge", "Bytes of live records.", |s| s.engine.space_live_bytes),
    (
        "space_capacity_bytes",
        "gauge",
        "Bytes that segments may take; in persistent memory without the logs.",
        |s| s.engine.space_capacity_bytes,
    ),
    ("scrub_rate_bytes", "gauge", "Bytes a second that scrubbing may read; 0: off.", |s| s.engine.scrub.rate),
    ("scrub_read_bytes_total", "counter", "Bytes that scrubbing has read.", |s| s.engine.scrub.bytes),
    ("scrub_passes_total", "counter", "Full passes of scrubbing.", |s| s.engine.scrub.passes),
    ("scrub_progress_percent", "gauge", "How much of the pass under way is done.", |s| {
        s.engine.scrub.progress_ppm / 10_000
    }),
    (
        "scrub_last_pass_timestamp_seconds",
        "gauge",
        "When the last full pass ended; 0: there was none.",
        |s| s.engine.scrub.last_pass_at_ms / 1_000,
    ),
    ("scrub_last_pass_seconds", "gauge", "How long the last full pass took.", |s| {
        s.engine.scrub.last_pass_ms / 1_000
    }),
    ("scrub_last_pass_bytes", "gauge", "Bytes that the last full pass read.", |s| {
        s.engine.scrub.last_pass_bytes
    }),
    ("scrub_damaged_records", "gauge", "Newest records of keys that scrubbing found damaged.", |s| {
        s.engine.scrub.damage.records
    }),
    ("scrub_damaged_old_records", "gauge", "Records without use that scrubbing found damaged.", |s| {
        s.engine.scrub.damage.old_records
    }),
    (
        "scrub_damaged_structures",
        "gauge",
        "Headers, footers, summaries and superblocks that scrubbing found damaged.",
        |s| s.engine.scrub.damage.structures,
    ),
    ("healthy", "gauge", "1 while the device takes writes.", |s| u64::from(s.is_healthy)),
];

type Stage = (&'static str, fn(&ShardSnapshot) -> &LatencyBuckets);

/// The stages of a request, in their order. Their latencies do not add up to that of a request: reads of
/// the device and waits for other shards overlap, and what is pipelined waits together.
const STAGES: &[Stage] = &[
    ("queue", |s| &s.stages.queue),
    ("device_read", |s| &s.engine.read_latency),
    ("device_commit", |s| &s.engine.commit_latency),
    ("gate", |s| &s.stages.gate),
    ("socket", |s| &s.stages.socket),
];

impl MetricsBoard {
    /// A board that is told by `incoming`; `ready` says whether clients are served.
    pub fn new(incoming: NewestNumbers, ready: Arc<AtomicBool>) -> Self {
        MetricsBoard {
            incoming,
            newest: BTreeMap::new(),
            ready,
            watched: Vec::new(),
            clock: None,
            process: None,
            energy: None,
            volume: None,
            opening: OpeningProgress::default(),
        }
    }

    /// Watches the threads of the shards: `/live` fails when one has not turned for [`HUNG_AFTER_US`].
    #[must_use]
    pub fn with_liveness(mut self, heartbeats: Vec<Heartbeat>, clock: Box<dyn Clock + Send>) -> Self {
        let turned_us = clock.now().monotonic_us;
        let watch = |heartbeat: Heartbeat| Watched { turns: heartbeat.turns(), heartbeat, turned_us };
        self.watched = heartbeats.into_iter().map(watch).collect();
        self.clock = Some(clock);
        self
    }

    /// Tells how far the opening of the store has come.
    #[must_use]
    pub fn with_opening(mut self, opening: OpeningProgress) -> Self {
        self.opening = opening;
        self
    }

    /// Tells what the process takes besides.
    #[must_use]
    pub fn with_process(mut self, process: fn() -> ProcessNumbers) -> Self {
        self.process = Some(process);
        self
    }

    /// Tells joules, too; `clock` counts from the start.
    #[must_use]
    pub fn with_energy(mut self, watch: Arc<Watch>, clock: Box<dyn Clock + Send>) -> Self {
        self.energy = Some((watch, clock));
        self
    }

    /// Tells the state of the volume below the store, if there is one.
    #[must_use]
    pub fn with_volume(mut self, volume: Option<VolumeTeller>) -> Self {
        self.volume = volume;
        self
    }

    /// The first shard whose thread hangs, and for how many seconds it has not turned at least.
    fn hung(&mut self) -> Option<(usize, u64)> {
        let now_us = self.clock.as_ref()?.now().monotonic_us;
        for (shard, watched) in self.watched.iter_mut().enumerate() {
            let turns = watched.heartbeat.turns();
            // A shard that is still being opened has not begun to turn.
            if turns != watched.turns || turns == 0 {
                (watched.turns, watched.turned_us) = (turns, now_us);
            }
            let still_us = now_us.saturating_sub(watched.turned_us);
            if still_us >= HUNG_AFTER_US {
                return Some((shard, still_us / 1_000_000));
            }
        }
        None
    }

    /// A page for the HTTP door.
    pub fn answer(&mut self, page: Page) -> Answer {
        for snapshot in self.incoming.take() {
            self.newest.insert(snapshot.shard, snapshot);
        }
        let failed = self.newest.values().find(|snapshot| !snapshot.is_healthy);
        match page {
            Page::Metrics => Answer::Fine(self.text()),
            Page::Live => match self.hung() {
                None => Answer::Fine("live\n".into()),
                Some((shard, seconds)) => Answer::Unavailable(format!(
                    "shard {shard}: its thread has not turned for {seconds} seconds\n"
                )),
            },
            Page::Ready => match failed {
                Some(snapshot) => {
                    Answer::Unavailable(format!("shard {}: the device failed a write\n", snapshot.shard))
                }
                None if self.ready.load(Ordering::Acquire) => Answer::Fine("ready\n".into()),
                None => Answer::Unavailable(self.opening_text()),
            },
        }
    }

    /// What is said while the node does not serve.
    fn opening_text(&self) -> String {
        let seen = self.opening.seen();
        match seen.is_under_way() {
            true => format!(
                "opening: {:.1} % of {} read, {} of {} shards ready\n",
                seen.percent(),
                format_size(seen.bytes_total),
                seen.parts,
                seen.parts_total
            ),
            false => "opening\n".into(),
        }
    }

    /// How far the opening has come.
    fn opened(&self, text: &mut String) {
        let seen = self.opening.seen();
        let columns = [
            (
                "opening_bytes",
                "Bytes of the store that its shards had to read, and have read, since the start.",
                seen.bytes,
            ),
            (
                "opening_total_bytes",
                "Bytes of the store that its shards have to read before they serve.",
                seen.bytes_total,
            ),
            ("opening_shards_ready", "Shards whose index is made.", seen.parts),
        ];
        for (name, help, value) in columns {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "# HELP tierstone_{name} {help}\n# TYPE tierstone_{name} gauge\ntierstone_{name} {value}"
            );
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, kind, help, value) in COLUMNS {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP tierstone_{name} {help}\n# TYPE tierstone_{name} {kind}");
            for snapshot in self.newest.values() {
                let _ =
                    writeln!(text, "tierstone_{name}{{shard=\"{}\"}} {}", snapshot.shard, value(snapshot));
            }
        }
        self.opened(&mut text);
        self.space(&mut text);
        self.turns(&mut text);
        self.denied(&mut text);
        self.about(&mut text);
        self.process(&mut text);
        if let Some((watch, clock)) = &self.energy {
            let process = self.process.map(|ask| ask()).unwrap_or_default();
            let seconds = clock.now().monotonic_us as f64 / 1e6;
            energy::metrics(&mut text, watch, process, seconds, self.newest.values());
        }
        if let Some(volume) = &self.volume {
            volume::metrics(&mut text, &volume.report());
        }
        self.stages(&mut text);
        text
    }

    /// When space is full, if records grow on.
    fn space(&self, text: &mut String) {
        let (growth, full_in) = ("tierstone_space_growth_bytes_per_day", "tierstone_space_full_in_seconds");
        let mut total = EngineStatistics::default();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {growth} Growth of live records, as of late.\n# TYPE {growth} gauge");
        for snapshot in self.newest.values() {
            let engine = &snapshot.engine;
            let _ = writeln!(
                text,
                "{growth}{{shard=\"{}\"}} {}",
                snapshot.shard, engine.space_growth_bytes_per_day
            );
            total.space_live_bytes += engine.space_live_bytes;
            total.space_capacity_bytes += engine.space_capacity_bytes;
            total.space_growth_bytes_per_day += engine.space_growth_bytes_per_day;
        }
        let seconds = total.space_full_in_seconds().map_or("+Inf".to_owned(), |seconds| seconds.to_string());
        let _ = writeln!(
            text,
            "# HELP {full_in} Seconds until space is full if records grow on as they did.\n\
             # TYPE {full_in} gauge\n{full_in} {seconds}"
        );
    }

    /// How often the threads that are watched have turned.
    fn turns(&self, text: &mut String) {
        if self.watched.is_empty() {
            return;
        }
        let name = "tierstone_turns_total";
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} Turns of the shard's thread.\n# TYPE {name} counter");
        for (shard, watched) in self.watched.iter().enumerate() {
            let _ = writeln!(text, "{name}{{shard=\"{shard}\"}} {}", watched.heartbeat.turns());
        }
    }

    fn stages(&self, text: &mut String) {
        let name = "tierstone_stage_latency_seconds";
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "# HELP {name} Time spent in one stage of a request.\n# TYPE {name} histogram");
        for snapshot in self.newest.values() {
            for (stage, latencies) in STAGES {
                let (latencies, labels) =
                    (latencies(snapshot), format!("shard=\"{}\",stage=\"{stage}\"", snapshot.shard));
                for (bound_us, count) in latencies.cumulative() {
                    let _ =
                        writeln!(text, "{name}_bucket{{{labels},le=\"{}\"}} {count}", bound_us as f64 / 1e6);
                }
                let count = latencies.count();
                let sum = latencies.sum_us() as f64 / 1e6;
                let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
                let _ = writeln!(text, "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {count}");
            }
        }
    }
}

#[cfg(test)]
#[path = "metrics_test.rs"]
mod metrics_test;
