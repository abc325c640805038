//! A node: the database, a driver thread for each shard, the HTTP door; `running` is its life after the start, and the
//! end in good order.
//!
//! The node's own thread (whoever calls [`Node::run`]) owns the superblock: it makes changes of the
//! numbered databases durable, tells every shard, and answers the client when all use the new map.

mod running;

use super::clients::ClientLedger;
use super::energy::{self, EnergySettings};
use super::facts::server_facts;
use super::mail::{ToNode, ToShard};
use super::metrics::{MetricsBoard, NewestNumbers};
use super::service::Heartbeat;
use super::start::{Common, ShardStart, start_shards, tell_damage};
use super::users_file;
use super::volume;
use crate::driver::DriverHandle;
use crate::http::{self, HttpServer};
use crate::listen::{
    DESCRIPTORS_SPARE, ListenAddress, Listener, descriptors_for_clients, raise_descriptor_limit,
};
use crate::mailbox::{MailSender, mailbox};
use crate::settings::TransportSettings;
use crate::tls::TlsSettings;
use crate::wake::Waker;
use crossbeam_channel::{Receiver, Sender, unbounded};
use running::PendingChange;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tierstone::volume::VolumeHost;
use tierstone::{Database, DatabaseOptions, RedoReport};
use tierstone_base::{Clock, Result, ShardId, SystemClock};
use tierstone_energy::Watch;
use tierstone_engine::{Durability, Eviction, OpeningSeen};
use tierstone_logstore::{BuildReport, OpenReport};
use tierstone_media::Guarantee;

/// The longest value, in bytes: the default of `proto-max-bulk-len`.
const VALUE_BYTES_MAX: u64 = 512 << 20;

/// Descriptors for listeners, rings and the like, and for segments while it is not known how many there may be.
const DESCRIPTORS_BESIDE_CLIENTS: u64 = 20_000;

/// Everything that a node is started with.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// The database.
    pub database: DatabaseOptions,
    /// Where clients come in.
    pub listen: Vec<ListenAddress>,
    /// Where metrics are asked for; empty: nowhere.
    pub http: Vec<ListenAddress>,
    /// Sockets.
    pub transport: TransportSettings,
    /// When writes may be acknowledged.
    pub durability: Durability,
    /// What is done when memory or space is used up.
    pub eviction: Eviction,
    /// Where clients come in that speak TLS; needs `tls`.
    pub tls_listen: Vec<ListenAddress>,
    /// What TLS is set up from.
    pub tls: TlsSettings,
    /// What clients must say first; empty: nothing.
    pub password: String,
    /// Pin each shard's thread to the CPU of its number.
    pub pin: bool,
    /// The longest value of a client, in bytes: the first `proto-max-bulk-len`.
    pub value_size_max_bytes: u64,
    /// First values of settings of the executors' own, by Redis's names, checked
    /// ([`tierstone_redis::settings::check_own`]).
    pub values: Vec<(String, String)>,
    /// Which events are logged, under Redis's name: shown to clients.
    pub log_level: String,
    /// What `CONFIG REWRITE` writes; `None`: nothing.
    pub settings_file: Option<Arc<dyn SettingsFile>>,
    /// The file that says who may do what; `None`: there is only the user `default`, with the password.
    pub users_file: Option<PathBuf>,
    /// How many refusals are kept for `ACL LOG`: the first `acllog-max-len`.
    pub acl_log_max: u32,
    /// Whether clients of other machines are kept out as long as nobody needs a password: the first `protected-mode`.
    pub is_protected: bool,
    /// What joules are made of.
    pub energy: EnergySettings,
}

/// A file of settings that the node may change.
pub trait SettingsFile: std::fmt::Debug + Send + Sync {
    /// Where it is.
    fn path(&self) -> String;

    /// Puts changed settings, under Redis's names, into the file; durable when this returns.
    ///
    /// # Errors
    /// What kept the file from being read or written; it is whole then, old or new.
    fn rewrite(&self, changed: &[(String, String)]) -> Result<()>;
}

impl Default for NodeSettings {
    fn default() -> Self {
        NodeSettings {
            database: DatabaseOptions::default(),
            listen: vec![ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 6379)))],
            http: Vec::new(),
            transport: TransportSettings::default(),
            durability: Durability::Sync,
            eviction: Eviction::None,
            tls_listen: Vec::new(),
            tls: TlsSettings::default(),
            password: String::new(),
            pin: false,
            value_size_max_bytes: VALUE_BYTES_MAX,
            values: Vec::new(),
            log_level: String::new(),
            settings_file: None,
            users_file: None,
            acl_log_max: 128,
            is_protected: true,
            energy: EnergySettings::default(),
        }
    }
}

/// What starting a node found.
#[derive(Clone, Debug)]
pub struct StartReport {
    /// Of the store as a whole.
    pub open: OpenReport,
    /// Of each shard.
    pub shards: Vec<BuildReport>,
    /// Numbered databases of the store, which an existing one keeps.
    pub databases: u32,
    /// From the start to serving, in microseconds.
    pub duration_us: u64,
    /// What durable writes survive.
    pub guarantee: Guarantee,
    /// The redo log in persistent memory, if one was asked for.
    pub redo: Option<RedoReport>,
    /// How writes are made durable.
    pub durable_method: String,
    /// The mechanism of the driver threads.
    pub driver: String,
}

impl StartReport {
    /// Tells the log what starting found.
    fn log(&self) {
        let OpenReport { created, clean, walked_segments, fenced_groups, dropped_records, .. } = self.open;
        let (durable_method, driver) = (self.durable_method.as_str(), self.driver.as_str());
        for (shard, built) in self.shards.iter().enumerate() {
            tracing::info!(shard, records = built.live, passes = built.passes, "a shard is ready");
            if built.rebuilt_summaries > 0 {
                tracing::warn!(shard, summaries = built.rebuilt_summaries, "torn summaries were made again");
            }
        }
        tell_damage(&self.open, &self.shards);
        if !created && !clean {
            tracing::warn!(
                walked_segments,
                fenced_groups,
                dropped_records,
                "the store was not closed in good order and has been recovered"
            );
        }
        for place in &self.open.redo_damage {
            tracing::error!(place, "the redo log is damaged, and the loss was accepted");
        }
        if !self.open.redo_damage.is_empty() {
            tracing::error!(bytes = self.open.redo_lost_bytes, "lost with what is damaged in the redo log");
        }
        if self.open.redo_lost {
            tracing::error!(
                "the redo log of the last opening was not there: writes that only it had are lost"
            );
        }
        if let Some(redo) = &self.redo {
            match redo.bytes_wanted {
                0 => tracing::info!(groups = redo.groups_replayed, region = redo.text(), "redo log"),
                _ => tracing::warn!(region = redo.text(), "redo log"),
            }
            if let Some(asked) = redo.other_bytes_asked {
                tracing::warn!(
                    bytes = redo.region.bytes,
                    asked,
                    "the redo log's region keeps the size it was made with: stop the server in good order and remove the \
                     file, and the next start makes it in the size that is asked for"
                );
            }
        }
        tracing::info!(
            created,
            clean,
            duration_us = self.duration_us,
            durable_method,
            driver,
            guarantee = self.guarantee.text(),
            "serving"
        );
    }
}

/// A running node.
#[derive(Debug)]
pub struct Node {
    database: Database,
    drivers: Vec<DriverHandle>,
    http: Option<HttpServer>,
    shards: Vec<MailSender<ToShard>>,
    messages: Receiver<ToNode>,
    /// Which shards' threads have ended: each is told once.
    ends: Receiver<ShardId>,
    stop_sender: Sender<ToNode>,
    addresses: Vec<SocketAddr>,
    tls_addresses: Vec<SocketAddr>,
    tls: TlsSettings,
    report: StartReport,
    ready: Arc<AtomicBool>,
    pending: Vec<PendingChange>,
    settings_file: Option<Arc<dyn SettingsFile>>,
    users_file: Option<PathBuf>,
}

impl Node {
    /// Opens the database and starts to serve. Every shard is rebuilt on its own thread; this returns
    /// when all serve.
    ///
    /// # Errors
    /// What the database, a listening address or a thread says.
    pub fn start(settings: &NodeSettings) -> Result<Node> {
        Self::start_with(settings, &mut |_| {})
    }

    /// As [`Node::start`]; `show` is told ten times a second how far the shards have come.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn start_with(settings: &NodeSettings, show: &mut dyn FnMut(OpeningSeen)) -> Result<Node> {
        // Before anything is made.
        settings.transport.check()?;
        let users = users_file::read_users(settings)?;
        let tls = if settings.tls_listen.is_empty() { None } else { Some(settings.tls.load()?) };
        let clock = SystemClock::new();
        let started = clock.now();
        raise_descriptor_limit(clients_of(settings) + DESCRIPTORS_BESIDE_CLIENTS);
        // An address that is taken leaves the store as it is: none is made, one that was closed in good order stays so.
        let (listeners, [addresses, tls_addresses]) = listen(settings)?;
        let door = http::listen(&settings.http)?;
        let watch = energy::watch(&settings.energy)?;
        let mut database = volume::open_watched(&settings.database)?;
        let settings = &with_descriptors(settings.clone(), database.storage().files_max());
        let plans = database.take_plans();
        let count = plans.len();
        let ((node_sender, messages), (end_sender, ends)) = (unbounded(), unbounded());
        let (snapshots, ready) = (NewestNumbers::new(count), Arc::new(AtomicBool::new(false)));
        let heartbeats: Vec<Heartbeat> = plans.iter().map(|_| Heartbeat::default()).collect();
        let http = start_http(settings, door, (snapshots.clone(), &ready, &heartbeats), (&watch, &database))?;
        let (mut starts, mut shards) = (Vec::new(), Vec::new());
        for ((plan, listeners), heartbeat) in plans.into_iter().zip(listeners).zip(heartbeats) {
            let waker = Waker::new()?;
            let woken = waker.clone();
            plan.wake_for_others(Arc::new(move || woken.wake()));
            let (sender, mail) = mailbox(&waker, usize::MAX);
            shards.push(sender);
            let heartbeat = http.is_some().then_some(heartbeat);
            starts.push(ShardStart { plan, listeners, waker, mail, heartbeat });
        }
        let facts = server_facts(settings, &database, (&addresses, &tls_addresses), (started, watch))?;
        let common = Common {
            settings,
            storage: database.storage().clone(),
            method: database.facts().durable_method,
            hasher: database.hasher(),
            map: database.facts().map.clone(),
            index_kind: database.facts().index,
            facts,
            users,
            tls,
            shards: &shards,
            node: &node_sender,
            ends: &end_sender,
            snapshots: &snapshots,
            serving: Arc::new(AtomicUsize::new(count)),
            clients: Arc::new(ClientLedger::new(count)),
        };
        let (drivers, reports) = start_shards(&common, starts, show)?;
        ready.store(true, Ordering::Release);
        let duration_us = clock.now().monotonic_us - started.monotonic_us;
        let report = start_report(&database, &drivers, reports, duration_us);
        Ok(Node {
            database,
            drivers,
            http,
            shards,
            messages,
            ends,
            stop_sender: node_sender,
            addresses,
            tls_addresses,
            tls: settings.tls.clone(),
            report,
            ready,
            pending: Vec::new(),
            settings_file: settings.settings_file.clone(),
            users_file: settings.users_file.clone(),
        })
    }

    /// The addresses that clients reach, with the ports that were free where 0 was asked for.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The addresses that clients reach who speak TLS.
    pub fn tls_addresses(&self) -> &[SocketAddr] {
        &self.tls_addresses
    }

    /// What has the files of TLS read again, from any thread: connections that come afterwards are set up from them.
    /// Files that are wrong are told to the log, and change nothing.
    pub fn tls_reloader(&self) -> impl Fn() + Send + 'static {
        let sender = self.stop_sender.clone();
        move || {
            // Nobody listens only when the node has stopped already.
            let _ = sender.send(ToNode::ReloadTls);
        }
    }

    /// The addresses of the HTTP door.
    pub fn http_addresses(&self) -> &[SocketAddr] {
        self.http.as_ref().map_or(&[], |http| &http.addresses)
    }

    /// What starting found.
    pub fn report(&self) -> &StartReport {
        &self.report
    }

    /// What stops the node, from any thread or signal handler's thread.
    pub fn stopper(&self) -> impl Fn() + Send + 'static {
        let sender = self.stop_sender.clone();
        move || {
            // Nobody listens only when the node has stopped already.
            let _ = sender.send(ToNode::Stop { at_once: false });
        }
    }
}

/// The most clients of all shards together.
fn clients_of(settings: &NodeSettings) -> u64 {
    u64::from(settings.transport.connections_max) * u64::from(settings.database.shards.max(1))
}

/// The settings with as many clients as there are descriptors for beside a store that opens up to `files`; tells what is
/// too little.
fn with_descriptors(mut settings: NodeSettings, files: u64) -> NodeSettings {
    let clients = clients_of(&settings);
    let limit = raise_descriptor_limit(clients + files + DESCRIPTORS_BESIDE_CLIENTS);
    let possible = descriptors_for_clients(limit, files);
    if possible < clients {
        let part = possible / u64::from(settings.database.shards.max(1));
        settings.transport.connections_max = u32::try_from(part.max(1)).unwrap_or(u32::MAX);
        tracing::warn!(
            "the limit on open files is {limit}: maxclients is {} instead of {clients}, so that the store has what it needs; \
             raise the limit (LimitNOFILE, ulimit -n), or lower --maxclients",
            clients_of(&settings)
        );
    }
    if limit < files + DESCRIPTORS_SPARE {
        tracing::warn!(
            "the limit on open files is {limit}, and the store opens up to {files} when it is full, one a segment: writes \
             will be refused then; raise the limit (LimitNOFILE, ulimit -n), or make the store with longer segments \
             (--segment-size)"
        );
    }
    settings
}

/// The listeners of each shard's thread, and where clients come in: those that speak TLS second.
type Doors = (Vec<Vec<Listener>>, [Vec<SocketAddr>; 2]);

/// Listens for clients of both kinds.
fn listen(settings: &NodeSettings) -> Result<Doors> {
    let threads = usize::from(settings.database.shards.max(1));
    let mut listeners = Listener::bind(&settings.listen, threads, &settings.transport)?;
    let addresses = addresses_of(&listeners);
    let sealed = Listener::bind(&settings.tls_listen, threads, &settings.transport)?;
    let tls_addresses = addresses_of(&sealed);
    for (all, sealed) in listeners.iter_mut().zip(sealed) {
        all.extend(sealed.into_iter().map(Listener::sealed));
    }
    Ok((listeners, [addresses, tls_addresses]))
}

fn addresses_of(listeners: &[Vec<Listener>]) -> Vec<SocketAddr> {
    let first = listeners.first().map(Vec::as_slice).unwrap_or_default();
    first.iter().filter_map(Listener::local_address).collect()
}

fn start_http(
    settings: &NodeSettings,
    door: Vec<Listener>,
    (snapshots, ready, heartbeats): (NewestNumbers, &Arc<AtomicBool>, &[Heartbeat]),
    (watch, database): (&Arc<Watch>, &Database),
) -> Result<Option<HttpServer>> {
    if door.is_empty() {
        return Ok(None);
    }
    let board = MetricsBoard::new(snapshots, Arc::clone(ready))
        .with_liveness(heartbeats.to_vec(), Box::new(SystemClock::new()))
        .with_process(crate::process::process_numbers)
        .with_energy(Arc::clone(watch), Box::new(SystemClock::new()))
        .with_opening(settings.database.progress.clone())
        .with_volume(database.storage().volume().map(VolumeHost::teller));
    let board = Mutex::new(board);
    let provider = move |page| match board.lock() {
        Ok(mut board) => board.answer(page),
        Err(_) => http::Answer::Unavailable("the metrics thread has failed\n".into()),
    };
    http::serve_on(door, Box::new(provider)).map(Some)
}

/// What starting found, told to the log.
fn start_report(
    database: &Database,
    drivers: &[DriverHandle],
    shards: Vec<BuildReport>,
    duration_us: u64,
) -> StartReport {
    let report = StartReport {
        open: database.report().clone(),
        shards,
        databases: database.facts().map.databases(),
        duration_us,
        guarantee: database.guarantee(),
        redo: database.redo().cloned(),
        durable_method: database.durable_method().to_owned(),
        driver: drivers.first().map(|driver| format!("{:?}", driver.kind())).unwrap_or_default(),
    };
    report.log();
    report
}
