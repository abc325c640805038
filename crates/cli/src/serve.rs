//! `tierstone server`: settings from flags, environment and file, then a node until it is stopped.

use crate::log::{LogFormat, LogLevel};
use crate::output::print_line;
use clap::Args;
use serde::Deserialize;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use tierstone::DatabaseOptions;
use tierstone::IndexKind;
use tierstone_base::units::{format_duration_us, format_size, parse_size};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_engine::Durability;
use tierstone_media::file::{DirectIo, FileBackend};
use tierstone_server::redis::Node;
use tierstone_server::redis::node::{NodeSettings, guarantee_text};
use tierstone_server::{DriverKind, ListenAddress};

/// Settings of the server. A flag wins over the environment, that over the file, that over the default.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServerArgs {
    /// Directories for the data, separated by commas, at best one a disk [default: tierstone-data]
    #[arg(long, value_name = "DIR,…", env = "TIERSTONE_DATA")]
    data: Option<String>,
    /// Where Redis clients come in: ADDR:PORT, a bare port, or unix:PATH; several separated by commas.
    /// Port 0 takes a free port and prints it [default: 127.0.0.1:6379]
    #[arg(long, value_name = "ADDR:PORT", env = "TIERSTONE_LISTEN")]
    listen: Option<String>,
    /// Threads that own a part of the keys each, at best one a core; any number opens any store
    /// [default: the number of cores, at most 8]
    #[arg(long, value_name = "N", env = "TIERSTONE_SHARDS")]
    shards: Option<u16>,
    /// Memory for indexes and cached records, such as 512MiB [default: a quarter of the machine's]
    #[arg(long, value_name = "SIZE", env = "TIERSTONE_MEMORY")]
    memory: Option<String>,
    /// The most space that the data may take [default: what the disks have free]
    #[arg(long, value_name = "SIZE", env = "TIERSTONE_CAPACITY")]
    capacity: Option<String>,
    /// When writes are acknowledged: sync (durable), group:MS (durable, gathered for up to MS
    /// milliseconds), relaxed (at once; a crash loses up to a second) [default: sync]
    #[arg(long, value_name = "MODE", env = "TIERSTONE_DURABILITY")]
    durability: Option<String>,
    /// How a new store finds keys: hash (8 to 9 bytes of memory a key) or ordered (the keys in memory
    /// besides, for ranges). A store keeps its kind; another one is refused [default: the store's, hash
    /// for a new one]
    #[arg(long, value_name = "KIND", env = "TIERSTONE_INDEX")]
    index: Option<String>,
    /// Where /metrics, /live and /ready are served [default: nowhere]
    #[arg(long, value_name = "ADDR:PORT", env = "TIERSTONE_HTTP")]
    http: Option<String>,
    /// A TOML file with any of these settings, such as memory = "2GiB"
    #[arg(long, value_name = "FILE", env = "TIERSTONE_CONFIG")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// What clients must send with AUTH first [default: nothing]
    #[arg(long, value_name = "TEXT", env = "TIERSTONE_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// Size of a segment of a new store, 128KiB to 32MiB [default: by the capacity, 1MiB to 32MiB]
    #[arg(long, value_name = "SIZE", env = "TIERSTONE_SEGMENT_SIZE")]
    segment_size: Option<String>,
    /// Numbered databases of a new store [default: 16]
    #[arg(long, value_name = "N", env = "TIERSTONE_DATABASES")]
    databases: Option<u32>,
    /// The most connections of each shard's thread [default: 10000]
    #[arg(long, value_name = "N", env = "TIERSTONE_MAXCLIENTS")]
    maxclients: Option<u32>,
    /// Wait in io_uring or epoll: auto, uring, epoll [default: auto]
    #[arg(long, value_name = "KIND", env = "TIERSTONE_DRIVER")]
    driver: Option<String>,
    /// Pin each shard's thread to the CPU of its number
    #[arg(long, env = "TIERSTONE_PIN", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pin: Option<bool>,
    /// How events are written to the standard error output [default: text]
    #[arg(long, value_name = "FORMAT", env = "TIERSTONE_LOG")]
    log: Option<LogFormat>,
    /// Which events are written [default: warn; with --log json: info]
    #[arg(long, value_name = "LEVEL", env = "TIERSTONE_LOG_LEVEL")]
    log_level: Option<LogLevel>,
}

impl ServerArgs {
    /// These settings where they are given, `other` elsewhere.
    fn or(self, other: ServerArgs) -> ServerArgs {
        ServerArgs {
            data: self.data.or(other.data),
            listen: self.listen.or(other.listen),
            shards: self.shards.or(other.shards),
            memory: self.memory.or(other.memory),
            capacity: self.capacity.or(other.capacity),
            durability: self.durability.or(other.durability),
            index: self.index.or(other.index),
            http: self.http.or(other.http),
            config: self.config,
            password: self.password.or(other.password),
            segment_size: self.segment_size.or(other.segment_size),
            databases: self.databases.or(other.databases),
            maxclients: self.maxclients.or(other.maxclients),
            driver: self.driver.or(other.driver),
            pin: self.pin.or(other.pin),
            log: self.log.or(other.log),
            log_level: self.log_level.or(other.log_level),
        }
    }

    fn with_file(self) -> Result<ServerArgs> {
        let Some(path) = self.config.clone() else { return Ok(self) };
        let text =
            std::fs::read_to_string(&path).map_err(|error| wrong(format!("{}: {error}", path.display())))?;
        let file: ServerArgs =
            toml::from_str(&text).map_err(|error| wrong(format!("{}: {error}", path.display())))?;
        Ok(self.or(file))
    }

    /// The settings of a node.
    pub fn node_settings(self) -> Result<NodeSettings> {
        let args = self;
        let mut settings = NodeSettings::default();
        let mut database = DatabaseOptions::default();
        if let Some(data) = &args.data {
            database.directories = data.split(',').map(PathBuf::from).collect();
        }
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        database.shards = args.shards.unwrap_or(cores.min(8) as u16);
        database.memory_bytes = match &args.memory {
            Some(memory) => parse_size(memory)?,
            None => (machine_memory_bytes() / 4).max(64 << 20),
        };
        database.capacity_bytes = args.capacity.as_deref().map(parse_size).transpose()?;
        if let Some(size) = &args.segment_size {
            database.segment_bytes = Some(parse_size(size)?);
        }
        database.databases = args.databases.unwrap_or(database.databases);
        database.index = match args.index.as_deref() {
            None => None,
            Some(kind) => Some(parse_index(kind)?),
        };
        database.backend = FileBackend::Auto;
        database.direct_io = DirectIo::Auto;
        settings.database = database;
        if let Some(listen) = &args.listen {
            settings.listen = addresses(listen)?;
        }
        if let Some(http) = &args.http {
            settings.http = addresses(http)?;
        }
        settings.durability = match &args.durability {
            Some(text) => parse_durability(text)?,
            None => Durability::Sync,
        };
        settings.password = args.password.unwrap_or_default();
        settings.transport.connections_max = args.maxclients.unwrap_or(settings.transport.connections_max);
        settings.transport.driver = match args.driver.as_deref() {
            None | Some("auto") => DriverKind::Auto,
            Some("uring") => DriverKind::Uring,
            Some("epoll") => DriverKind::Epoll,
            Some(other) => return Err(wrong(format!("driver '{other}': write auto, uring or epoll"))),
        };
        settings.pin = args.pin.unwrap_or(false);
        Ok(settings)
    }
}

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

/// Bytes of memory of the machine; 1 GiB where that is not told.
fn machine_memory_bytes() -> u64 {
    std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .map_or(1 << 30, |kib| kib << 10)
}

/// `ADDR:PORT`, `PORT` or `unix:PATH`, several separated by commas.
pub fn addresses(text: &str) -> Result<Vec<ListenAddress>> {
    text.split(',').map(|part| address(part.trim())).collect()
}

fn address(text: &str) -> Result<ListenAddress> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(ListenAddress::Unix(Path::new(path).to_path_buf()));
    }
    if let Ok(port) = text.parse::<u16>() {
        return Ok(ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], port))));
    }
    match text.to_socket_addrs().map(|mut found| found.next()) {
        Ok(Some(address)) => Ok(ListenAddress::Tcp(address)),
        _ => Err(wrong(format!(
            "'{text}' is no address; write for example 127.0.0.1:6379 or unix:/run/tierstone.sock"
        ))),
    }
}

/// `hash` or `ordered`.
pub fn parse_index(text: &str) -> Result<IndexKind> {
    [IndexKind::Hash, IndexKind::Ordered]
        .into_iter()
        .find(|kind| kind.name() == text)
        .ok_or_else(|| wrong(format!("index '{text}': write hash or ordered")))
}

/// `sync`, `group:MS` or `relaxed`.
pub fn parse_durability(text: &str) -> Result<Durability> {
    match (text, text.strip_prefix("group:").map(str::parse)) {
        ("sync", _) => Ok(Durability::Sync),
        ("relaxed", _) => Ok(Durability::Relaxed),
        (_, Some(Ok(interval_ms))) if interval_ms <= 10_000 => Ok(Durability::Group { interval_ms }),
        _ => {
            Err(wrong(format!("durability '{text}': write sync, group:MS with at most 10000 ms, or relaxed")))
        }
    }
}

/// Serves until SIGINT, SIGTERM or SHUTDOWN.
pub fn run(args: ServerArgs) -> Result<()> {
    let args = args.with_file()?;
    let format = args.log.unwrap_or_default();
    let level = if format == LogFormat::Json { LogLevel::Info } else { LogLevel::default() };
    crate::log::start(format, args.log_level.unwrap_or(level))?;
    let settings = args.node_settings()?;
    let node = Node::start(&settings)?;
    let stop = node.stopper();
    let mut signals =
        signal_hook::iterator::Signals::new([signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            stop();
        }
    })?;
    // After the signals are caught: whoever reads that it listens may stop it in good order.
    announce(&settings, &node)?;
    node.run()?;
    tracing::info!("stopped in good order");
    print_line("stopped in good order")
}

fn announce(settings: &NodeSettings, node: &Node) -> Result<()> {
    let report = node.report();
    let records: u64 = report.shards.iter().map(|shard| shard.live).sum();
    let how = match (report.open.created, report.open.clean) {
        (true, _) => "new store".to_owned(),
        (false, true) => format!("{records} records"),
        (false, false) => format!("{records} records, recovered after a crash"),
    };
    print_line(&format!(
        "tierstone {}: {how}, ready in {}; {} shards, {} of memory, {:?}; {} ({})",
        env!("CARGO_PKG_VERSION"),
        format_duration_us(report.duration_us as f64),
        settings.database.shards,
        format_size(settings.database.memory_bytes),
        settings.durability,
        guarantee_text(report.guarantee),
        report.durable_method,
    ))?;
    for address in node.addresses() {
        print_line(&format!("listening on {address}"))?;
        tracing::info!(%address, "listening");
    }
    for address in &settings.listen {
        if let ListenAddress::Unix(path) = address {
            print_line(&format!("listening on unix:{}", path.display()))?;
        }
    }
    for address in node.http_addresses() {
        print_line(&format!("metrics on http://{address}/metrics"))?;
    }
    Ok(())
}
