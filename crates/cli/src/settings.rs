//! The settings of `tierstone server`, in one table: flags, variables of the environment, lines of the
//! settings file, `--help` and `docs/settings.md` all come from it.
//!
//! Invariants:
//! 1. A setting `a-name` is the flag `--a-name`, the variable `TIERSTONE_A_NAME` and the line `a-name = …`
//!    of the file; a flag wins over the variable, that over the file, that over the default.
//! 2. A value reads the same wherever it is given: what is read is its text.

mod access;
mod args;
mod effects;
mod environment;
mod given;
mod memory;
mod operators;
mod redo;
mod store;

use crate::doctor::parse_durable_method;
use crate::log::{LogFormat, LogLevel};
use crate::values::{
    addresses, bytes, choice, milliseconds, number, parse_durability, parse_index, seconds, wrong,
};
pub use args::{ServerArgs, told_of_toml};
use clap::ValueEnum;
pub use environment::unknown_variables;
use std::path::PathBuf;
pub use store::store_options;
use tierstone_base::Result;
use tierstone_base::units::parse_size;
use tierstone_media::file::{DirectIo, FileBackend};
use tierstone_server::DriverKind;
use tierstone_server::redis::node::NodeSettings;
use tierstone_server::redis::{EVICTION_NAMES, parse_eviction};

/// Everything that the settings say: what is put together while they are read.
#[derive(Debug)]
pub struct ServerSettings {
    /// Of the node.
    pub node: NodeSettings,
    /// How events are written.
    pub log: LogFormat,
    /// Which events are written; `None`: by the format.
    pub log_level: Option<LogLevel>,
    /// The settings file, if one was given.
    pub config: Option<PathBuf>,
    /// What is to be told at the start: what was given and has no effect, and more memory than there is.
    pub warnings: Vec<String>,
    /// Who may connect to the sockets of `unix:PATH`, as the bits of a file; `None`: as the kernel makes them.
    pub socket_mode: Option<u32>,
    /// Numbered databases, if they were asked for: an existing store may have another number.
    pub databases: Option<u32>,
}

/// One setting.
#[derive(Clone, Copy)]
pub struct Setting {
    /// Its name as a flag, without the dashes, and in the file.
    pub name: &'static str,
    /// Its name in the environment.
    pub variable: &'static str,
    /// What stands for its value in `--help`: tells the unit.
    pub value: &'static str,
    /// What it says.
    pub help: &'static str,
    /// What holds when nobody says anything.
    pub default: &'static str,
    /// What more and less, or one and the other, cost.
    pub trade_off: &'static str,
    /// Its name in `CONFIG`, where clients can see it.
    pub redis: &'static str,
    apply: fn(&mut ServerSettings, &str) -> Result<()>,
}

impl Setting {
    fn long_help(&self) -> String {
        let mut text = format!("{} [default: {}]\n{}", self.help, self.default, self.trade_off);
        if !self.redis.is_empty() {
            text.push_str(&format!(". In CONFIG: {}", self.redis));
        }
        text
    }
}

/// All settings but the file's own path, in the order of `--help`.
pub const SETTINGS: &[Setting] = &all();

const fn all() -> [Setting; LISTED] {
    let mut all = [GENERAL[0]; LISTED];
    let lists = [GENERAL, redo::SETTINGS, operators::SETTINGS];
    let (mut list, mut at) = (0, 0);
    while list < lists.len() {
        let mut index = 0;
        while index < lists[list].len() {
            all[at] = lists[list][index];
            (at, index) = (at + 1, index + 1);
        }
        list += 1;
    }
    all
}

const LISTED: usize = GENERAL.len() + redo::SETTINGS.len() + operators::SETTINGS.len();

const GENERAL: &[Setting] = &[
    Setting {
        name: "data",
        variable: "TIERSTONE_DATA",
        value: "DIR,…",
        help: "Directories for the data, separated by commas, of which those that a store has not yet are added to it for good; or the description of a volume, a file that ends in .toml (docs/volume.md); or nvm:PATH or nvm:emulated:SIZE[:PRESET] for a store that lies wholly in persistent memory (docs/nvm.md)",
        default: "tierstone-data",
        trade_off: "At best one a disk: several on one disk gain nothing",
        redis: "dir (the first)",
        apply: |all, text| {
            all.node.database.directories = text.split(',').map(PathBuf::from).collect();
            Ok(())
        },
    },
    Setting {
        name: "listen",
        variable: "TIERSTONE_LISTEN",
        value: "ADDR:PORT",
        help: "Where Redis clients come in: ADDR:PORT, a bare port, or unix:PATH; several separated by commas",
        default: "127.0.0.1:6379",
        trade_off: "Port 0 takes a free port and prints it. Who comes from another machine needs a password, unless protected-mode is off",
        redis: "bind, port, unixsocket",
        apply: |all, text| {
            all.node.listen = addresses(text)?;
            Ok(())
        },
    },
    access::UNIX_SOCKET_PERMISSIONS,
    Setting {
        name: "shards",
        variable: "TIERSTONE_SHARDS",
        value: "N",
        help: "Threads that own a part of the keys each, 1 to 1024; any number opens any store, but one at nvm:…, which keeps its own",
        default: "the number of cores, at most 8; a store's own at nvm:…",
        trade_off: "At best one a core: more share cores, fewer leave them idle; memory moves between them in steps",
        redis: "",
        apply: |all, text| number(text).map(|shards| all.node.database.shards = shards),
    },
    Setting {
        name: "memory",
        variable: "TIERSTONE_MEMORY",
        value: "SIZE",
        help: "Memory for indexes, cached records and write buffers of all shards, such as 512MiB",
        default: "a quarter of the machine's, or of what the control group of the process may take where that is less; 64MiB at least",
        trade_off: "The index takes 8 to 10 bytes a key; what it leaves caches records and saves device reads",
        redis: "maxmemory",
        apply: |all, text| parse_size(text).map(|bytes| all.node.database.memory_bytes = bytes),
    },
    Setting {
        name: "capacity",
        variable: "TIERSTONE_CAPACITY",
        value: "SIZE",
        help: "The most space that the data may take; less than seven segments a shard are refused, and more than 122,880 segments (3.75TiB of the largest)",
        default: "what the disks have free, less 5 %",
        trade_off: "The fuller a store is, the more live data the cleaner moves for each byte written",
        redis: "",
        apply: |all, text| parse_size(text).map(|bytes| all.node.database.capacity_bytes = Some(bytes)),
    },
    Setting {
        name: "maxmemory-policy",
        variable: "TIERSTONE_MAXMEMORY_POLICY",
        value: "POLICY",
        help: "What is done when the index has used up its memory or the data their space: noeviction (new keys are refused), allkeys-lru (old keys are evicted), allkeys-lfu (those are that were asked for least often lately), allkeys-random (any keys are), volatile-lru, volatile-lfu, volatile-random (the same, of keys that expire) or volatile-ttl (those first that expire next)",
        default: "noeviction",
        trade_off: "allkeys-lru is a cache: keys go without notice, those written longest ago first, but for what was read lately and is cached; allkeys-lfu finds more, for some two bytes a key beside the index and more work for the cleaner; the random ones let those go together that were written together; with the volatile ones keys without an expiry stay, and new ones are refused when only these are left; each that goes costs a deletion in the log",
        redis: "maxmemory-policy",
        apply: |all, text| {
            let policy = parse_eviction(text)
                .ok_or_else(|| wrong(format!("write one of {}", EVICTION_NAMES.join(", "))))?;
            all.node.eviction = policy;
            Ok(())
        },
    },
    Setting {
        name: "durability",
        variable: "TIERSTONE_DURABILITY",
        value: "MODE",
        help: "When writes are acknowledged: sync (when durable), group:MS or group:5ms (when durable, gathered for up to that time, 60 s at most), relaxed (at once)",
        default: "sync",
        trade_off: "group makes fewer, larger device writes for some latency; relaxed loses up to a second of acknowledged writes in a crash",
        redis: "durability",
        apply: |all, text| parse_durability(text).map(|durability| all.node.durability = durability),
    },
    Setting {
        name: "durable-method",
        variable: "TIERSTONE_DURABLE_METHOD",
        value: "METHOD",
        help: "How writes are made durable: auto, durable-write (RWF_DSYNC) or write-then-flush (fdatasync). A store keeps its method; another one is refused",
        default: "auto: the store's; for a new one, what probing finds quicker",
        trade_off: "Which is quicker is the device's; probing takes about a second when a store is made",
        redis: "",
        apply: |all, text| parse_durable_method(text).map(|method| all.node.database.durable_method = method),
    },
    Setting {
        name: "index",
        variable: "TIERSTONE_INDEX",
        value: "KIND",
        help: "How keys are found: hash or ordered. A store keeps its kind; another one is refused",
        default: "the store's, hash for a new one",
        trade_off: "hash takes 8 to 10 bytes of memory a key; ordered keeps the keys in memory besides, for ranges",
        redis: "",
        apply: |all, text| parse_index(text).map(|kind| all.node.database.index = Some(kind)),
    },
    Setting {
        name: "http",
        variable: "TIERSTONE_HTTP",
        value: "ADDR:PORT",
        help: "Where /metrics, /live and /ready are served",
        default: "nowhere",
        trade_off: "One more thread, and a turn a second of every shard that would sleep",
        redis: "",
        apply: |all, text| {
            all.node.http = addresses(text)?;
            Ok(())
        },
    },
    Setting {
        name: "password",
        variable: "TIERSTONE_PASSWORD",
        value: "TEXT",
        help: "What clients must send with AUTH first",
        default: "nothing",
        trade_off: "It travels in clear text, and flags can be seen by other users: better in the environment or the file",
        redis: "requirepass",
        apply: |all, text| {
            text.clone_into(&mut all.node.password);
            Ok(())
        },
    },
    access::TLS_LISTEN,
    access::TLS_CERT_FILE,
    access::TLS_KEY_FILE,
    access::TLS_CA_CERT_FILE,
    access::TLS_AUTH_CLIENTS,
    access::PROTECTED_MODE,
    access::ACLFILE,
    access::ACLLOG_MAX_LEN,
    Setting {
        name: "segment-size",
        variable: "TIERSTONE_SEGMENT_SIZE",
        value: "SIZE",
        help: "Size of a segment of a new store, 128KiB to 32MiB",
        default: "by the capacity, 1MiB to 32MiB",
        trade_off: "Larger: fewer files and summaries; smaller: shorter steps of cleaning, and small stores have segments enough to clean",
        redis: "",
        apply: |all, text| parse_size(text).map(|bytes| all.node.database.segment_bytes = Some(bytes)),
    },
    Setting {
        name: "databases",
        variable: "TIERSTONE_DATABASES",
        value: "N",
        help: "Numbered databases of a new store, 1 to 1024",
        default: "16",
        trade_off: "Each that is used has an index of its own in every shard",
        redis: "databases",
        apply: |all, text| {
            let databases = number(text)?;
            (all.node.database.databases, all.databases) = (databases, Some(databases));
            Ok(())
        },
    },
    Setting {
        name: "value-limit",
        variable: "TIERSTONE_VALUE_LIMIT",
        value: "SIZE",
        help: "The longest value that a client may store, 1MiB to 512MiB",
        default: "512MiB",
        trade_off: "Values above 64 KiB are streamed, so a high limit costs little memory",
        redis: "proto-max-bulk-len",
        apply: |all, text| {
            let bytes = parse_size(text)?;
            if !(1 << 20..=512 << 20).contains(&bytes) {
                return Err(wrong("1MiB to 512MiB".into()));
            }
            all.node.value_size_max_bytes = bytes;
            Ok(())
        },
    },
    Setting {
        name: "maxclients",
        variable: "TIERSTONE_MAXCLIENTS",
        value: "N",
        help: "The most connections of each shard's thread, 1 to 1000000",
        default: "10000",
        trade_off: "Each takes about 400 bytes while idle, and one descriptor",
        redis: "maxclients (of all shards together)",
        apply: |all, text| number(text).map(|most| all.node.transport.connections_max = most),
    },
    Setting {
        name: "idle-timeout",
        variable: "TIERSTONE_IDLE_TIMEOUT",
        value: "SECONDS",
        help: "Silence after which a connection that waits for nothing is closed, in seconds or as 90s or 5m; 0 for never",
        default: "0",
        trade_off: "Frees what forgotten clients hold; those that listen to channels or monitor stay, as with Redis",
        redis: "timeout",
        apply: |all, text| seconds(text).map(|limit_s| all.node.transport.idle_timeout_s = limit_s),
    },
    Setting {
        name: "tcp-keepalive",
        variable: "TIERSTONE_TCP_KEEPALIVE",
        value: "SECONDS",
        help: "Silence after which the kernel asks a client whether it is still there, in seconds or as 5m; 0 for never",
        default: "300",
        trade_off: "Finds vanished clients within about twice that time; a packet now and then",
        redis: "tcp-keepalive",
        apply: |all, text| seconds(text).map(|idle_s| all.node.transport.keepalive_s = idle_s),
    },
    Setting {
        name: "backlog",
        variable: "TIERSTONE_BACKLOG",
        value: "N",
        help: "Connections that may wait to be accepted, for each address and shard",
        default: "511",
        trade_off: "Longer bridges bursts of connections; the kernel cuts it to net.core.somaxconn",
        redis: "tcp-backlog",
        apply: |all, text| number(text).map(|length| all.node.transport.backlog = length),
    },
    Setting {
        name: "input-limit",
        variable: "TIERSTONE_INPUT_LIMIT",
        value: "SIZE",
        help: "Bytes that one connection may have sent without their being consumed; it is closed above that",
        default: "1GiB",
        trade_off: "Bounds what one client may make the server hold",
        redis: "client-query-buffer-limit",
        apply: |all, text| bytes(text).map(|limit| all.node.transport.input_limit_bytes = limit),
    },
    Setting {
        name: "output-pause",
        variable: "TIERSTONE_OUTPUT_PAUSE",
        value: "SIZE",
        help: "Unsent bytes of a connection from which on no further request of it is carried out",
        default: "1MiB",
        trade_off: "More lets slow readers pipeline deeper, and costs that much memory for each of them",
        redis: "",
        apply: |all, text| bytes(text).map(|limit| all.node.transport.output.full_bytes = limit),
    },
    Setting {
        name: "output-limit",
        variable: "TIERSTONE_OUTPUT_LIMIT",
        value: "SIZE",
        help: "Unsent bytes above which a connection is closed at once; 0 for never",
        default: "1GiB",
        trade_off: "Bounds what a subscriber that does not read may make the server hold",
        redis: "client-output-buffer-limit (hard)",
        apply: |all, text| bytes(text).map(|limit| all.node.transport.output.hard_bytes = limit),
    },
    Setting {
        name: "output-soft-limit",
        variable: "TIERSTONE_OUTPUT_SOFT_LIMIT",
        value: "SIZE",
        help: "Unsent bytes that a connection may hold for output-soft-time only; 0 for no such limit",
        default: "0",
        trade_off: "Closes slow readers early, and quick ones never",
        redis: "client-output-buffer-limit (soft)",
        apply: |all, text| bytes(text).map(|limit| all.node.transport.output.soft_bytes = limit),
    },
    Setting {
        name: "output-soft-time",
        variable: "TIERSTONE_OUTPUT_SOFT_TIME",
        value: "SECONDS",
        help: "How long output-soft-limit may be exceeded, in seconds or as 90s",
        default: "60",
        trade_off: "Longer forgives pauses of a reader, and holds its output in memory meanwhile",
        redis: "client-output-buffer-limit (soft seconds)",
        apply: |all, text| {
            seconds(text).map(|limit_s| all.node.transport.output.soft_ms = u64::from(limit_s) * 1_000)
        },
    },
    Setting {
        name: "stop-timeout",
        variable: "TIERSTONE_STOP_TIMEOUT",
        value: "SECONDS",
        help: "How long a stop waits for replies to leave, in seconds or as 500ms",
        default: "5",
        trade_off: "Longer loses fewer replies of slow readers; a store whose shards are not done by then is left as by a kill, exit code 1",
        redis: "",
        apply: |all, text| milliseconds(text).map(|limit_ms| all.node.transport.stop_timeout_ms = limit_ms),
    },
    Setting {
        name: "driver",
        variable: "TIERSTONE_DRIVER",
        value: "KIND",
        help: "What the shards' threads wait for sockets and devices with: auto, uring or epoll",
        default: "auto: io_uring where the kernel allows it",
        trade_off: "epoll works everywhere and makes more system calls",
        redis: "",
        apply: |all, text| {
            all.node.transport.driver = choice(
                text,
                &[("auto", DriverKind::Auto), ("uring", DriverKind::Uring), ("epoll", DriverKind::Epoll)],
            )?;
            Ok(())
        },
    },
    Setting {
        name: "backend",
        variable: "TIERSTONE_BACKEND",
        value: "KIND",
        help: "What reads and writes the files: auto, io-uring or threads",
        default: "auto: io_uring where the kernel allows it",
        trade_off: "threads cost more processor time a request and work everywhere",
        redis: "",
        apply: |all, text| {
            all.node.database.backend = choice(
                text,
                &[
                    ("auto", FileBackend::Auto),
                    ("io-uring", FileBackend::IoUring),
                    ("threads", FileBackend::Threads),
                ],
            )?;
            Ok(())
        },
    },
    Setting {
        name: "direct-io",
        variable: "TIERSTONE_DIRECT_IO",
        value: "WHEN",
        help: "Whether files bypass the page cache: auto, on (or the server does not start), off",
        default: "auto: where the file system allows it",
        trade_off: "Without it the page cache keeps a second copy of what the store caches itself",
        redis: "",
        apply: |all, text| {
            all.node.database.direct_io =
                choice(text, &[("auto", DirectIo::Auto), ("on", DirectIo::On), ("off", DirectIo::Off)])?;
            Ok(())
        },
    },
    Setting {
        name: "pin",
        variable: "TIERSTONE_PIN",
        value: "BOOL",
        help: "Pin each shard's thread to the CPU of its number",
        default: "false",
        trade_off: "Steadier latency where threads have CPUs of their own, worse where they share them",
        redis: "",
        apply: |all, text| {
            all.node.pin = choice(text, &[("true", true), ("false", false)])?;
            Ok(())
        },
    },
    Setting {
        name: "measure-cpu",
        variable: "TIERSTONE_MEASURE_CPU",
        value: "BOOL",
        help: "Count the processor time of the engine: engine_cpu_ns in INFO, tierstone_engine_cpu_ns_total in the metrics",
        default: "false",
        trade_off: "Some 25 ns a reading of the clock: two for a write and for requests that read from the device together, four for a turn",
        redis: "",
        apply: |all, text| {
            all.node.database.measure_cpu = choice(text, &[("true", true), ("false", false)])?;
            Ok(())
        },
    },
    Setting {
        name: "log",
        variable: "TIERSTONE_LOG",
        value: "FORMAT",
        help: "How events are written to the standard error output: text or json",
        default: "text",
        trade_off: "json is for programs: one object a line",
        redis: "",
        apply: |all, text| {
            all.log = LogFormat::from_str(text, true).map_err(|_| wrong("write text or json".into()))?;
            Ok(())
        },
    },
    Setting {
        name: "log-level",
        variable: "TIERSTONE_LOG_LEVEL",
        value: "LEVEL",
        help: "Which events are written: off, error, warn or info",
        default: "warn; with json: info",
        trade_off: "info tells the life of the server: opening, serving, settings, the end",
        redis: "loglevel (nothing, warning, notice)",
        apply: |all, text| {
            let level =
                LogLevel::from_str(text, true).map_err(|_| wrong("write off, error, warn or info".into()))?;
            all.log_level = Some(level);
            Ok(())
        },
    },
];

#[cfg(test)]
#[path = "settings_test.rs"]
mod settings_test;
