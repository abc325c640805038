//! `tierstone server`: settings from flags, environment and file, then a node until it is stopped.

use crate::log::{LogFormat, LogLevel};
use crate::output::print_line;
use crate::settings::{ServerArgs, ServerSettings, unknown_variables};
use crate::settings_file::TomlFile;
use indicatif::{ProgressBar, ProgressStyle};
use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;
use tierstone::FoundStore;
use tierstone_base::units::{format_duration_us, format_size};
use tierstone_base::{Error, Result};
use tierstone_engine::OpeningSeen;
use tierstone_server::ListenAddress;
use tierstone_server::redis::format_durability;
use tierstone_server::redis::node::{Node, NodeSettings};

/// Openings that take no longer show no bar.
const SHOWN_AFTER: Duration = Duration::from_millis(300);

/// Serves until SIGINT, SIGTERM or SHUTDOWN.
pub fn run(args: ServerArgs) -> Result<()> {
    let ServerSettings { node: mut settings, log, log_level, config, warnings, socket_mode, databases } =
        args.settings()?;
    let usual = if log == LogFormat::Json { LogLevel::Info } else { LogLevel::default() };
    let level = log_level.unwrap_or(usual);
    crate::log::start(log, level)?;
    for told in warnings.iter().chain(&unknown_variables(environment())) {
        tracing::warn!("{told}");
    }
    settings.log_level = level.redis_name().to_owned();
    if let Some(path) = config {
        settings.settings_file = Some(Arc::new(TomlFile::new(path, settings.database.shards)));
    }
    // Caught, so that a file over a limit of the process is a full device and not its end.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
    let store = tierstone::find_files(&settings.database.directories)?;
    tell_of_segments(store.as_ref(), &settings);
    if settings.pin {
        tierstone_server::check_pins(usize::from(settings.database.shards))?;
    }
    // Before the start, which may take long: a reload asked for meanwhile is carried out after it, and never the end.
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGHUP])?;
    let bar = Opening::new();
    let node = Node::start_with(&settings, &mut |seen| bar.show(seen))?;
    drop(bar);
    tell_of_additions(store.as_ref())?;
    tell_of_databases(&node, databases);
    if let Some(mode) = socket_mode {
        open_sockets(&settings, mode)?;
    }
    let stop = node.stopper();
    signals.add_signal(signal_hook::consts::SIGINT)?;
    signals.add_signal(signal_hook::consts::SIGTERM)?;
    let (reload_tls, has_tls) = (node.tls_reloader(), !node.tls_addresses().is_empty());
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            match signal {
                signal_hook::consts::SIGHUP if has_tls => reload_tls(),
                signal_hook::consts::SIGHUP => {
                    tracing::warn!("SIGHUP has no effect: without tls-listen there is nothing to read again");
                }
                _ => stop(),
            }
        }
    })?;
    // After the signals are caught: whoever reads that it listens may stop it in good order.
    announce(&settings, &node)?;
    let told = match node.run()? {
        true => "stopped in good order",
        false => "stopped at once: the next start recovers the store",
    };
    tracing::info!("{told}");
    print_line(told)
}

/// The variables that are texts: a setting is.
fn environment() -> impl Iterator<Item = (String, String)> {
    let texts =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    std::env::vars_os().filter_map(texts)
}

/// Lets others of the machine connect to the sockets, or fewer of them.
fn open_sockets(settings: &NodeSettings, mode: u32) -> Result<()> {
    for address in &settings.listen {
        if let ListenAddress::Unix(path) = address {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|error| {
                Error::from(error).context(&format!("unix-socket-permissions of {}", path.display()))
            })?;
        }
    }
    Ok(())
}

/// A store keeps its size of segments, whatever is asked for.
fn tell_of_segments(store: Option<&FoundStore>, settings: &NodeSettings) {
    if let (Some(store), Some(wanted)) = (store, settings.database.segment_bytes)
        && store.segment_bytes != wanted
    {
        let has = format_size(store.segment_bytes);
        tracing::warn!(
            "segment-size has no effect: the store was made with segments of {has}, and keeps them"
        );
    }
}

/// A store keeps its number of databases, whatever is asked for.
fn tell_of_databases(node: &Node, wanted: Option<u32>) {
    let has = node.report().databases;
    if wanted.is_some_and(|wanted| wanted != has) {
        tracing::warn!("databases has no effect: the store was made with {has}, and keeps them");
    }
}

/// Directories that a store had not are its own from now on, which nobody can take back.
fn tell_of_additions(store: Option<&FoundStore>) -> Result<()> {
    for directory in store.map(|store| store.others.as_slice()).unwrap_or_default() {
        tracing::warn!(directory = %directory.display(), "added to the store, which opens only with it from now on");
        print_line(&format!(
            "added {} to the store: from now on name it at every start; it may be moved, but not taken away again",
            directory.display()
        ))?;
    }
    Ok(())
}

/// The bar of an opening: on a terminal, when it takes longer than a moment.
struct Opening(ProgressBar);

impl Opening {
    fn new() -> Opening {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("opening [{bar:40}] {bytes}/{total_bytes}, {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        Opening(bar)
    }

    fn show(&self, seen: OpeningSeen) {
        if seen.is_under_way() && self.0.elapsed() >= SHOWN_AFTER {
            self.0.set_length(seen.bytes_total);
            self.0.set_message(format!("{} of {} shards ready", seen.parts, seen.parts_total));
            self.0.set_position(seen.bytes);
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
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
        "tierstone {}: {how}, ready in {}; {} shards, {} of memory, {}; {} ({})",
        env!("CARGO_PKG_VERSION"),
        format_duration_us(report.duration_us as f64),
        settings.database.shards,
        format_size(settings.database.memory_bytes),
        format_durability(settings.durability),
        report.guarantee.text(),
        report.durable_method,
    ))?;
    for address in node.addresses() {
        print_line(&format!("listening on {address}"))?;
        tracing::info!(%address, "listening");
    }
    for address in node.tls_addresses() {
        print_line(&format!("listening with TLS on {address}"))?;
        tracing::info!(%address, "listening with TLS");
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
