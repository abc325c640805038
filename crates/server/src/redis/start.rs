//! The shards' threads of a node: what they are started with, and their start, all at the same time.

use super::clients::ClientLedger;
use super::lobby::{Lobby, LobbyFacts, PATIENCE};
use super::mail::{ToNode, ToShard};
use super::metrics::NewestNumbers;
use super::node::NodeSettings;
use super::service::{Heartbeat, RedisService, ServiceParts, Serving};
use crate::driver::{DriverBuilder, DriverHandle, Parts};
use crate::listen::Listener;
use crate::mailbox::{MailReceiver, MailSender};
use crate::reactor::Device;
use crate::settings::TransportSettings;
use crate::wake::Waker;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use rustls::ServerConfig;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tierstone::engine::DatabasePlan;
use tierstone::storage::Storage;
use tierstone_base::{Clock, Error, ErrorKind, KeyHasher, Result, ShardId, SystemClock};
use tierstone_engine::{Engine, IndexKind, OpeningSeen};
use tierstone_logstore::{BuildReport, OpenReport};
use tierstone_media::file::{DurableMethod, FileBackend};
use tierstone_redis::{Executor, ExecutorSettings, ServerFacts, Users};
use tierstone_store::{DatabaseMap, ShardSettings};
use tierstone_wire::resp::RequestLimits;

/// What connections' buffers, and requests that have not come to their end, may take of a shard's memory each: a
/// part in so many, but at least the following bytes.
const CONNECTIONS_PART: u64 = 8;
const CONNECTIONS_BYTES_MIN: u64 = 2 << 20;

/// What one shard's thread is started with.
pub(super) struct ShardStart {
    pub plan: DatabasePlan,
    pub listeners: Vec<Listener>,
    pub waker: Waker,
    pub mail: MailReceiver<ToShard>,
    pub heartbeat: Option<Heartbeat>,
}

/// What all shards' threads are started with.
pub(super) struct Common<'a> {
    pub settings: &'a NodeSettings,
    pub storage: Storage,
    pub method: DurableMethod,
    pub hasher: KeyHasher,
    pub map: DatabaseMap,
    pub index_kind: IndexKind,
    pub facts: ServerFacts,
    pub users: Option<Arc<Users>>,
    pub tls: Option<Arc<ServerConfig>>,
    pub shards: &'a [MailSender<ToShard>],
    pub node: &'a Sender<ToNode>,
    /// Where it is told that a shard's thread has ended.
    pub ends: &'a Sender<ShardId>,
    pub snapshots: &'a NewestNumbers,
    pub serving: Arc<AtomicUsize>,
    pub clients: Arc<ClientLedger>,
}

/// How often who waits is told how far the opening has come, and after how long the log is.
const TOLD_EVERY: Duration = Duration::from_millis(100);
const LOGGED_EVERY_US: u64 = 5_000_000;

/// Starts all shards at the same time, so that their indexes are rebuilt in parallel; each serves when it is ready. `show` is
/// told how far they have come.
pub(super) fn start_shards(
    common: &Common<'_>,
    starts: Vec<ShardStart>,
    show: &mut dyn FnMut(OpeningSeen),
) -> Result<(Vec<DriverHandle>, Vec<BuildReport>)> {
    let lobbies = starts.iter().map(|start| Lobby::new(start.plan.shard(), &start.listeners));
    let lobbies = lobbies.map(|lobby| lobby.map(Arc::new)).collect::<Result<Vec<_>>>()?;
    let results: Vec<Result<(DriverHandle, BuildReport)>> = std::thread::scope(|scope| {
        let (at_work, all_done) = bounded::<()>(0);
        let mut threads = Vec::new();
        for (start, lobby) in starts.into_iter().zip(&lobbies) {
            let at_work = at_work.clone();
            threads.push(scope.spawn(move || {
                let started = start_shard(common, start, lobby);
                // One that failed listens to nobody.
                lobby.close();
                drop(at_work);
                started
            }));
        }
        drop(at_work);
        wait_for_shards(common, &all_done, &lobbies, show);
        threads
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    });
    let mut drivers = Vec::new();
    let mut reports = Vec::new();
    let mut first_error = None;
    for result in results {
        match result {
            Ok((driver, report)) => {
                drivers.push(driver);
                reports.push(report);
            }
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    match first_error {
        None => Ok((drivers, reports)),
        Some(error) => {
            // All of them first: each waits for the others' connections.
            for driver in &drivers {
                driver.stop_handle().stop();
            }
            for driver in drivers {
                let _ = driver.outcome();
            }
            Err(error)
        }
    }
}

/// Until all shards have started, or failed: tells how far they have come, and opens the lobbies when it takes long.
fn wait_for_shards(
    common: &Common<'_>,
    all_done: &Receiver<()>,
    lobbies: &[Arc<Lobby>],
    show: &mut dyn FnMut(OpeningSeen),
) {
    let (clock, progress) = (SystemClock::new(), &common.settings.database.progress);
    let began_us = clock.now().monotonic_us;
    let (mut is_told, mut logged_at_us) = (false, began_us);
    while let Err(RecvTimeoutError::Timeout) = all_done.recv_timeout(TOLD_EVERY) {
        let (seen, now_us) = (progress.seen(), clock.now().monotonic_us);
        show(seen);
        if !is_told && now_us - began_us >= PATIENCE.as_micros() as u64 {
            is_told = true;
            open_lobbies(common, lobbies);
        }
        if now_us - logged_at_us >= LOGGED_EVERY_US {
            logged_at_us = now_us;
            let percent = format!("{:.1}", seen.percent());
            let left_s = seen.left_us(now_us - began_us).map_or(0, |us| us.div_ceil(1_000_000));
            tracing::info!(percent, left_s, shards_ready = seen.parts, "opening");
        }
    }
    show(progress.seen());
}

fn open_lobbies(common: &Common<'_>, lobbies: &[Arc<Lobby>]) {
    let settings = common.settings;
    let facts = LobbyFacts {
        facts: common.facts.clone(),
        users: common.users.clone().unwrap_or_else(|| Arc::new(Users::with_password(&settings.password))),
        databases: common.map.databases(),
        shards: common.shards.len() as u16,
    };
    for lobby in lobbies {
        if let Err(error) = lobby.open(&facts, &settings.transport, common.tls.clone()) {
            tracing::warn!(%error, "clients wait without an answer until the store is open");
        }
    }
}

/// Says what is damaged and not served.
pub(super) fn tell_damage(open: &OpenReport, shards: &[BuildReport]) {
    if open.damaged_superblock_slot {
        tracing::warn!("a slot of the superblock is torn or damaged; the other one serves");
    }
    for segment in shards.iter().flat_map(|shard| &shard.damaged_segments).chain(&open.damaged_segments) {
        tracing::error!(segment, "a segment is damaged and not served; run `tierstone check`");
    }
    for segment in &open.missing_segments {
        tracing::error!(segment, "a segment is missing, or empty, and its loss was accepted");
    }
    let records: u64 = shards.iter().map(|shard| shard.damaged_records).sum();
    if records > 0 {
        tracing::error!(records, "records in persistent memory are damaged and not served");
    }
    let bytes: u64 = shards.iter().map(|shard| shard.lost_bytes).sum();
    if bytes > 0 {
        tracing::error!(bytes, "what was durable in persistent memory is damaged, and its loss was accepted");
    }
}

fn start_shard(
    common: &Common<'_>,
    start: ShardStart,
    lobby: &Arc<Lobby>,
) -> Result<(DriverHandle, BuildReport)> {
    let ShardStart { plan, listeners, waker, mail, heartbeat } = start;
    let shard = plan.shard();
    let (storage, method) = (common.storage.clone(), common.method);
    let shard_bytes = common.settings.database.memory_bytes / common.shards.len().max(1) as u64;
    let part_bytes = (shard_bytes / CONNECTIONS_PART).max(CONNECTIONS_BYTES_MIN) as usize;
    let settings = executor_settings(common, shard, part_bytes);
    let transport = transport_of(&common.settings.transport, part_bytes);
    let buffer_bytes_max = transport.buffer_bytes_max;
    let (shards, node) = (common.shards.to_vec(), common.node.clone());
    let (snapshots, serving) = (common.snapshots.clone(), Serving::new(Arc::clone(&common.serving)));
    let clients = Arc::clone(&common.clients);
    let stop_patience_us = common.settings.transport.stop_timeout_ms * 500;
    let cpu = common.settings.pin.then_some(usize::from(shard));
    let (backend, measure_cpu) = (common.settings.database.backend, common.settings.database.measure_cpu);
    let lobby = Arc::clone(lobby);
    let (report_sender, report) = bounded(1);
    let ends = common.ends.clone();
    let driver = DriverBuilder::new(format!("shard-{shard}"), transport, waker)
        .listeners(listeners)
        .cpu(cpu)
        .tls(common.tls.clone())
        .on_end(move || {
            // Nobody listens only when the node has not come about.
            let _ = ends.send(shard);
        })
        .spawn(move || {
            // Made here: a ring belongs to the thread that uses it.
            let mut device = storage.device(method)?;
            let (mut engine, built) = plan.build(&mut device)?;
            if measure_cpu {
                engine.set_cpu_clock(Box::new(SystemClock::new()));
            }
            drop(device);
            let _ = report_sender.send(built);
            let mut executor = Executor::new(engine, settings);
            executor.set_clock(Box::new(SystemClock::new()));
            let parts = ServiceParts {
                executor,
                shard,
                mail,
                shards,
                node,
                snapshots,
                limits: RequestLimits::default(),
                buffer_bytes_max,
                clients,
                serving: serving.pass_on(),
                stop_patience_us,
                heartbeat,
            };
            let service = RedisService::new(parts);
            let device = device_of(storage, backend, method)?;
            // The doors are the shard's from here on.
            lobby.close();
            Ok(Parts { service, device })
        })?;
    let report = report
        .recv()
        .map_err(|_| Error::new(ErrorKind::Retry, "a shard's thread ended before it reported"))?;
    Ok((driver, report))
}

/// What a shard's thread gives its file requests to.
fn device_of(storage: Storage, backend: FileBackend, method: DurableMethod) -> Result<Device> {
    Ok(match (storage, backend) {
        // The driver's own ring does the work of the files, unless somebody wants threads for it.
        (Storage::Files(store), FileBackend::Auto | FileBackend::IoUring) => Device::Files { store, method },
        // The engine asks nothing of a device.
        (Storage::Nvm(_), _) => Device::None,
        (storage, _) => Device::Own(Box::new(storage.device(method)?)),
    })
}

/// The settings of a shard's sockets: their buffers have bounds, by default `part_bytes`.
fn transport_of(settings: &TransportSettings, part_bytes: usize) -> TransportSettings {
    let mut transport = settings.clone();
    if transport.buffer_bytes_max == 0 {
        transport.buffer_bytes_max = part_bytes;
    }
    transport.bound_input();
    transport
}

/// What a shard's executor is made with; `part_bytes` bound what connections, and requests that go on, may take each.
fn executor_settings(common: &Common<'_>, shard: ShardId, part_bytes: usize) -> ExecutorSettings {
    ExecutorSettings {
        shard: ShardSettings {
            index: shard,
            count: common.shards.len() as u16,
            map: common.map.clone(),
            index_kind: common.index_kind,
            hasher: common.hasher,
            durability: common.settings.durability,
            record_bytes_max: common.storage.value_bytes_max(),
        },
        value_size_max_bytes: common.settings.value_size_max_bytes,
        password: common.settings.password.clone(),
        users: common.users.clone(),
        transaction_size_max_bytes: (64 << 20).min(part_bytes),
        held_bytes_max: part_bytes as u64,
        eviction: common.settings.eviction,
        facts: common.facts.clone(),
        values: common.settings.values.clone(),
    }
}
