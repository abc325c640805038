//! `INFO`: how the server is doing, by sections.

use crate::context::Halt;
use crate::control::{Control, Flow, RedoFacts};
use crate::merged_info::{COMMANDSTATS, LATENCYSTATS, MEMORY_OF_SHARD};
use crate::opening::loading_fields;
use crate::settings::format_eviction;
use std::collections::BTreeMap;
use std::fmt::Write;
use tierstone_base::units::format_size;
use tierstone_engine::{Durability, EngineStatistics, Health};

type Section = fn(&Control<'_>, &mut String) -> std::fmt::Result;

/// All sections in order; those after `false` are only given when asked for.
const SECTIONS: [(&str, bool, Section); 15] = [
    ("Server", true, server),
    ("Clients", true, clients),
    ("Memory", true, memory),
    ("Persistence", true, persistence),
    ("Stats", true, stats),
    ("Replication", true, replication),
    ("CPU", true, cpu),
    ("Storage", true, storage),
    ("Volume", true, volume),
    ("Energy", true, crate::energy::section),
    ("Errorstats", true, errorstats),
    ("Cluster", true, cluster),
    (COMMANDSTATS, false, crate::commandstats::commandstats),
    (LATENCYSTATS, false, crate::latency::latencystats),
    (KEYSPACE, true, keyspace),
];

pub(crate) fn info(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let wanted: Vec<&[u8]> = control.args.from(1).collect();
    let asks = |name: &str| wanted.iter().any(|word| word.eq_ignore_ascii_case(name.as_bytes()));
    let is_default = wanted.is_empty() || asks("default");
    let is_all = asks("all") || asks("everything");
    control.host.note_memory(&control.engine.statistics);
    let mut text = String::new();
    for (name, is_usual, section) in SECTIONS {
        if !(is_all || is_default && is_usual || asks(name)) {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        if write!(text, "# {name}\r\n").and_then(|()| section(control, &mut text)).is_err() {
            unreachable!("writing to a string does not fail");
        }
    }
    control.reply.verbatim(*b"txt", text.as_bytes());
    Ok(Flow::Done)
}

fn server(control: &Control<'_>, out: &mut String) -> std::fmt::Result {
    let facts = &control.host.facts;
    let uptime_s = control.now.monotonic_us.saturating_sub(facts.started.monotonic_us) / 1_000_000;
    write!(
        out,
        "redis_version:{}\r\nredis_mode:standalone\r\nserver_name:tierstone\r\ntierstone_version:{}\r\n\
         arch_bits:{}\r\nprocess_id:{}\r\nrun_id:{}\r\ntcp_port:{}\r\nuptime_in_seconds:{uptime_s}\r\n\
         uptime_in_days:{}\r\nshard:{}\r\nshards:{}\r\nconfig_file:{}\r\n",
        facts.redis_version,
        facts.server_version,
        usize::BITS,
        std::process::id(),
        facts.run_id,
        facts.port,
        uptime_s / 86_400,
        control.engine.shard.0,
        control.engine.shard.1,
        line_of(&facts.settings_file),
    )?;
    if facts.io_uring.is_empty() {
        return Ok(());
    }
    write!(out, "io_uring:{}\r\n", line_of(&facts.io_uring))
}

fn clients(control: &Control<'_>, out: &mut String) -> std::fmt::Result {
    let sessions = control.host.sessions.values();
    let blocked = sessions.clone().filter(|session| session.has_suspended()).count();
    let listening = sessions.clone().filter(|session| !session.channels().is_empty()).count();
    let watching = sessions.clone().filter(|session| !session.watched.is_empty()).count();
    let watched: usize = sessions.map(|session| session.watched.len()).sum();
    let tracking = control.host.trackers;
    write!(
        out,
        "connected_clients:{}\r\nblocked_clients:{blocked}\r\npubsub_clients:{listening}\r\n\
         tracking_clients:{tracking}\r\nwatching_clients:{watching}\r\ntotal_watched_keys:{watched}\r\n",
        control.host.sessions.len()
    )?;
    match control.host.settings.get("maxclients") {
        Some(most) => write!(out, "maxclients:{}\r\n", most.value),
        None => Ok(()),
    }
}

fn memory(control: &Control<'_>, out: &mut String) -> std::fmt::Result {
    let statistics = &control.engine.statistics;
    let (connections, connections_max) = control.host.connection_bytes;
    let requests = control.host.account.bytes();
    let (total, peak) = (control.host.memory_bytes(statistics), control.host.memory_peak_bytes);
    write!(
        out,
        "used_memory:{total}\r\nused_memory_human:{}\r\nused_memory_peak:{peak}\r\n\
         used_memory_peak_human:{}\r\nindex:{}\r\nindex_bytes:{}\r\nindex_records:{}\r\n\
         index_bytes_per_key:{:.1}\r\ncache_bytes:{}\r\nbuffer_bytes:{}\r\nconnection_bytes:{connections}\r\n\
         connection_bytes_max:{connections_max}\r\nrequest_bytes:{requests}\r\nrequest_bytes_max:{}\r\n\
         maxmemory_policy:{}\r\n",
        format_size(total),
        format_size(peak),
        control.host.facts.index,
        statistics.index_bytes,
        statistics.keys,
        statistics.index_bytes as f64 / statistics.keys.max(1) as f64,
        statistics.cache_bytes,
        statistics.buffer_bytes,
        control.host.account.bytes_max(),
        format_eviction(control.host.settings.eviction())
    )?;
    let part = statistics.memory_part_bytes;
    write!(out, "memory_part_bytes:{part}\r\n")?;
    if control.engine.shard.1 > 1 {
        write!(out, "{MEMORY_OF_SHARD}{}:{part}\r\n", control.engine.shard.0)?;
    }
    let budget = control.host.facts.memory_bytes;
    if budget > 0 {
        write!(out, "maxmemory:{budget}\r\nmaxmemory_human:{}\r\n", format_size(budget))?;
    }
    match control.host.facts.process.map(|ask| ask()) {
        Some(process) => write!(
            out,
            "used_memory_rss:{}\r\nused_memory_rss_human:{}\r\n",
            process.resident_bytes,
            format_size(process.resident_bytes)
        ),
        None => Ok(()),
    }
}

fn cpu(control: &Control<'_>, out: &mut String) -> std::fmt::Result {
    match control.host.facts.process.map(|ask| ask()) {
        Some(process) => write!(
            out,
            "used_cpu_sys:{:.6}\r\nused_cpu_user:{:.6}\r\n",
            process.system_us as f64 / 1e6,
            process.user_us as f64 / 1e6
        ),
        None => Ok(()),
    }
}

fn persistence(control: &Control<'_>, out: &mut String) -> std::fmt::Result {
    let health = match &control.engine.health {
        Health::Good => "ok".to_owned(),
        Health::Failed(error) => format!("failed: {}", line_of(error.message())),
    };
    let failed = u8::from(!matches!(control.engine.health, Health::Good));
    let facts = &control.host.facts;
    let durability = control.host.settings.get("durability").map_or("", |setting| setting.value.as_str());
    let is_bounded = durability == "relaxed";
    loading_fields(out, facts.opening.seen(), (facts.started, control.now))?;
    saved_fields(control, out)?;
    write!(
        out,
        "{LAST_SAVE}{}\r\ndurability:{durability}\r\n\
         durability_guarantee:{}\r\ndurability_loss_bound_ms:{}\r\napplied_sequence:{}\r\n\
         durable_sequence:{}\r\n{DEVICE_HEALTH}{health}\r\ndevice_failed_shards:{failed}\r\n\
         durable_method:{}\r\n",
        control.host.last_save_s,
        facts.durability_guarantee,
        if is_bounded { Durability::RELAXED_BOUND_MS } else { 0 },
        control.engine.applied,
        control.engine.durable,
        facts.durable_method,
    )?;
    match &facts.durable_probe {
        None if facts.durable_method == "fence" => write!(out, "durable_method_by:region\r\n")?,
        None => write!(out, "durable_method_by:setting\r\n")?,
        Some(probe) => write!(
            out,
            "durable_method_by:probe\r\ndurable_probe:{}\r\ndurable_probe_flush_looks_device_wide:{}\r\n",
            line_of(&probe.reason),
            u8::from(probe.flush_looks_device_wide)
        )?,
    }
    write!(out, "redo_log:{}\r\nredo_log_lost:{}\r\n", facts.redo.state, u8::from(facts.redo.lost))?;
    if facts.redo.state != "off" {
        let RedoFacts { region, guarantee, groups_replayed, .. } = &facts.redo;
        write!(
            out,
            "redo_log_region:{}\r\nredo_log_guarantee:{guarantee}\r\nredo_log_groups_replayed:{groups_replayed}\r\n",
            line_of(region)
        )?;
    }
    if let Some(region) = &facts.nvm_region {
        write!(out, "nvm_region:{}\r\n", line_of(region))?;
    }
    for (number, directory) in facts.directories.iter().enumerate() {
        write!(
            out,
            "directory{number}:guarantee={},file_system={},direct_io={},path={}\r\n",
            directory.guarantee,
            directory.file_system,
            u8::from(directory.direct_io),
            line_of(&directory.path)
        )?;
    }
    Ok(())
}

/// `text` without what would end its line.
fn line_of(text: &str) -> String {
    text.replace(|letter: char| letter.is_control(), " ")
}

fn stats(control: &Control<'_>, out: &mut String) -> std::fmt::Result {
    let counters = &control.host.counters;
    let errors: u64 = counters.errors.values().sum();
    let [keys, items, prefixes] = control.engine.tracked;
    write!(
        out,
        "total_connections_received:{}\r\ntotal_commands_processed:{}\r\nexpired_keys:{}\r\nevicted_keys:{}\r\nevicted_clients:{}\r\nkeyspace_hits:{}\r\n\
         keyspace_misses:{}\r\nsuspended_commands:{}\r\npubsub_channels:{}\r\npubsub_patterns:{}\r\n\
         total_error_replies:{errors}\r\ninstantaneous_ops_per_sec:{}\r\nuntold_expirations:{}\r\n\
         tracking_total_keys:{keys}\r\ntracking_total_items:{items}\r\ntracking_total_prefixes:{prefixes}\r\n",
        counters.connections,
        counters.commands,
        control.engine.statistics.expired_keys,
        control.engine.statistics.evicted_keys,
        counters.evicted_clients,
        counters.hits,
        counters.misses,
        counters.suspended,
        control.host.channels.count_names(crate::session::ChannelKind::Channel),
        control.host.channels.count_names(crate::session::ChannelKind::Pattern),
        control.host.throughput.per_second(control.now.monotonic_us, counters.commands),
        control.engine.untold_expirations,
    )?;
    turned_away(control, out)
}

/// Who was turned away or closed, what was refused, and the bytes of all connections.
fn turned_away(control: &Control<'_>, out: &mut String) -> std::fmt::Result {
    let counters = &control.host.counters;
    let transport = counters.lately(control.host.transport);
    let [logins, commands, keys, channels] = counters.denied;
    for (name, value) in [
        ("rejected_connections", transport.refused),
        ("client_query_buffer_limit_disconnections", transport.over_input_limit),
        ("client_output_buffer_limit_disconnections", transport.over_output_limit),
        ("total_net_input_bytes", transport.bytes_received),
        ("total_net_output_bytes", transport.bytes_sent),
        ("acl_access_denied_auth", logins),
        ("acl_access_denied_cmd", commands),
        ("acl_access_denied_key", keys),
        ("acl_access_denied_channel", channels),
    ] {
        write!(out, "{name}:{value}\r\n")?;
    }
    Ok(())
}

/// What programs that watch a Redis look for, as of one without replicas.
fn replication(control: &Control<'_>, out: &mut String) -> std::fmt::Result {
    write!(
        out,
        "role:master\r\nconnected_slaves:0\r\nmaster_failover_state:no-failover\r\nmaster_replid:{}\r\n\
         master_replid2:{:040}\r\nmaster_repl_offset:0\r\nsecond_repl_offset:-1\r\nrepl_backlog_active:0\r\n",
        control.host.facts.run_id, 0
    )
}

/// The fields of Redis's snapshots and of its log that programs watch, as they are here: everything acknowledged is
/// saved, but for what `relaxed` leaves open.
fn saved_fields(control: &Control<'_>, out: &mut String) -> std::fmt::Result {
    let status = if matches!(control.engine.health, Health::Good) { "ok" } else { "err" };
    let behind = control.engine.applied.saturating_sub(control.engine.durable);
    write!(
        out,
        "rdb_changes_since_last_save:{behind}\r\nrdb_bgsave_in_progress:0\r\n{SAVE_STATUS}{status}\r\naof_enabled:1\r\n\
         aof_rewrite_in_progress:0\r\n{WRITE_STATUS}{status}\r\n"
    )
}

/// The volume below the store, if it lies on one.
fn volume(control: &Control<'_>, out: &mut String) -> std::fmt::Result {
    let Some(facts) = &control.host.facts.volume else { return write!(out, "volume:none\r\n") };
    facts.fields().into_iter().try_for_each(|(name, value)| write!(out, "{name}:{value}\r\n"))
}

fn storage(control: &Control<'_>, out: &mut String) -> std::fmt::Result {
    let statistics = &control.engine.statistics;
    for (name, value) in [
        ("memory_hits", statistics.memory_hits),
        ("device_hits", statistics.device_hits),
        ("false_reads", statistics.false_reads),
        ("corrupt_reads", statistics.corrupt_reads),
        ("nvm_lost_bytes", statistics.lost_bytes),
        ("lost_segments", statistics.lost_segments),
        ("failed_reads", statistics.failed_reads),
        ("user_bytes_written", statistics.user_bytes_written),
        ("record_bytes_written", statistics.record_bytes_written),
        ("absorbed_bytes", statistics.absorbed_bytes),
        ("padding_bytes_written", statistics.padding_bytes_written),
        ("summary_bytes_written", statistics.summary_bytes_written),
        ("checkpoint_bytes_written", statistics.checkpoint_bytes_written),
        ("checkpoint_region_bytes_written", statistics.checkpoint_region_bytes_written),
        ("cleaned_bytes_written", statistics.cleaned_bytes_written),
        ("clustered_bytes_written", statistics.clustered_bytes_written),
        ("groups", statistics.groups),
        ("redo_bytes_written", statistics.redo_bytes_written),
        ("redo_fences", statistics.redo_fences),
        ("redo_groups_without_slot", statistics.redo_groups_without_slot),
        ("group_depth", statistics.group_depth),
        ("device_reads", statistics.device.reads),
        ("device_writes", statistics.device.writes),
        ("device_flushes", statistics.device.flushes),
        ("device_bytes_read", statistics.device.bytes_read),
        ("device_bytes_written", statistics.device.bytes_written),
        ("engine_cpu_ns", statistics.device.cpu_ns),
        ("engine_background_cpu_ns", statistics.background_cpu_ns),
        ("space_used_bytes", statistics.space_used_bytes),
        ("space_live_bytes", statistics.space_live_bytes),
        ("space_capacity_bytes", statistics.space_capacity_bytes),
        ("snapshots", statistics.snapshots),
        ("snapshots_lost", statistics.snapshots_lost),
        ("snapshot_table_bytes", statistics.snapshot_table_bytes),
        ("snapshot_pinned_bytes", statistics.snapshot_pinned_bytes),
        ("scrub_rate", statistics.scrub.rate),
        ("scrub_bytes_read", statistics.scrub.bytes),
        ("scrub_damaged_records", statistics.scrub.damage.records),
        ("scrub_damaged_old_records", statistics.scrub.damage.old_records),
        ("scrub_damaged_structures", statistics.scrub.damage.structures),
        ("scrub_last_pass_bytes", statistics.scrub.last_pass_bytes),
    ] {
        write!(out, "{name}:{value}\r\n")?;
    }
    let shard = control.engine.shard.0;
    for (name, value) in [
        ("passes", statistics.scrub.passes),
        ("progress_percent", statistics.scrub.progress_ppm / 10_000),
        ("last_pass_at", statistics.scrub.last_pass_at_ms / 1_000),
        ("last_pass_seconds", statistics.scrub.last_pass_ms / 1_000),
    ] {
        write!(out, "scrub_{name}_shard_{shard}:{value}\r\n")?;
    }
    write!(out, "space_growth_bytes_per_day:{}\r\n", statistics.space_growth_bytes_per_day)?;
    writeln!(out, "{}\r", space_full_line(statistics))
}

/// The line with the seconds until space is full, −1 when records do not grow.
pub(crate) fn space_full_line(statistics: &EngineStatistics) -> String {
    let seconds = statistics.space_full_in_seconds();
    format!("{SPACE_FULL}{}", seconds.map_or(-1, |seconds| i64::try_from(seconds).unwrap_or(i64::MAX)))
}

/// Begins the line that tells when everything was last known to be durable.
pub(crate) const LAST_SAVE: &str = "rdb_last_save_time:";
/// Begins the line that tells whether the device takes writes.
pub(crate) const DEVICE_HEALTH: &str = "device_health:";

/// The same in Redis's words.
pub(crate) const SAVE_STATUS: &str = "rdb_last_bgsave_status:";
pub(crate) const WRITE_STATUS: &str = "aof_last_write_status:";
/// The section of the databases.
pub(crate) const KEYSPACE: &str = "Keyspace";

/// Begins the line that tells when space is full.
pub(crate) const SPACE_FULL: &str = "space_full_in_seconds:";

fn errorstats(control: &Control<'_>, out: &mut String) -> std::fmt::Result {
    control
        .host
        .counters
        .errors
        .iter()
        .try_for_each(|(code, count)| write!(out, "errorstat_{code}:count={count}\r\n"))
}

fn cluster(_: &Control<'_>, out: &mut String) -> std::fmt::Result {
    write!(out, "cluster_enabled:0\r\n")
}

fn keyspace(control: &Control<'_>, out: &mut String) -> std::fmt::Result {
    let databases = control.engine.keys.iter().enumerate().filter(|(_, keys)| **keys > 0);
    databases.into_iter().try_for_each(|(database, keys)| write_database(out, database, *keys))
}

/// The line of a database. How many keys expire no engine counts; programs that read the line want all its fields.
fn write_database(out: &mut String, database: usize, keys: u64) -> std::fmt::Result {
    write!(out, "db{database}:keys={keys},expires=0,avg_ttl=0\r\n")
}

/// The lines of the section out of those of all shards.
pub(crate) fn merge_keyspace(sections: &[&str]) -> String {
    let mut all: BTreeMap<usize, u64> = BTreeMap::new();
    let lines = sections.iter().flat_map(|section| section.split("\r\n"));
    for (database, keys) in lines.filter_map(read_database) {
        *all.entry(database).or_default() += keys;
    }
    let mut out = String::new();
    for (database, keys) in all {
        // Writing to a string cannot fail.
        let _ = write_database(&mut out, database, keys);
    }
    out
}

/// What [`write_database`] has written.
fn read_database(line: &str) -> Option<(usize, u64)> {
    let (database, fields) = line.strip_prefix("db")?.split_once(":keys=")?;
    let keys = fields.split(',').next()?;
    Some((database.parse().ok()?, keys.parse().ok()?))
}
