//! One node: shards behind drivers that are moved by hand, and the owner of the superblock.
//!
//! The part of the node's own thread is played here: a change of the numbered databases is made durable
//! with a write of its own handle, then told to every shard, then answered.
//!
//! Invariants:
//! 1. One change of the databases is under way at a time, as in production.
//! 2. Dropping a node is the death of its process.

use crate::ground::{Ground, NodeDevice, memory_geometry};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use tierstone::DatabaseFacts;
use tierstone::engine::{DatabasePlan, DatabaseShard, OpenedEngines};
use tierstone::nvm::{EngineChoices, open_in_region};
use tierstone_base::{Error, ErrorKind, KeyspaceId, Now, Result, ShardId};
use tierstone_crash::Mutations;
use tierstone_engine::{Durability, Engine, Eviction};
use tierstone_logstore::format::superblock::{IndexKind, KeyspaceEntry};
use tierstone_logstore::{Inventory, OpenReport, OpenSettings, RedoMemory, ShardSettings, SuperblockWriter};
use tierstone_media::file::DurableMethod;
use tierstone_media::sim::WordMachine;
use tierstone_media::{BlockDevice, IoCompletion, Wait};
use tierstone_redis::{Executor, ExecutorSettings, ServerFacts};
use tierstone_server::redis::clients::ClientLedger;
use tierstone_server::redis::mail::{ToNode, ToShard};
use tierstone_server::redis::metrics::NewestNumbers;
use tierstone_server::redis::service::{RedisService, ServiceParts};
use tierstone_server::{MailReceiver, MailSender, ManualDriver, TransportSettings, Waker, mailbox};
use tierstone_store::{DatabaseMap, MapChange, TaskId};
use tierstone_wire::resp::RequestLimits;

/// The driver of one shard.
pub type ShardDriver = ManualDriver<RedisService<DatabaseShard>, NodeDevice>;

/// How a node is started. Plain data.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// What the store lies on.
    pub ground: Ground,
    /// Open the store although the memory of its redo log is lost.
    pub accepts_loss: bool,
    /// Shards; any number opens any store.
    pub shards: u16,
    /// Of each shard of the store.
    pub shard: ShardSettings,
    /// Connections.
    pub transport: TransportSettings,
    /// The longest value, in bytes.
    pub value_bytes_max: u64,
    /// When writes may be acknowledged.
    pub durability: Durability,
    /// What is done when space is short.
    pub eviction: Eviction,
    /// For the store's secret, when it is made.
    pub seed: u64,
    /// Rules broken on purpose.
    pub mutations: Mutations,
}

/// Numbered databases of the simulated store.
const DATABASES: u32 = 4;

#[derive(Debug)]
struct Change {
    shard: ShardId,
    task: TaskId,
    map: DatabaseMap,
}

#[derive(Debug)]
struct Spreading {
    change: Change,
    missing: usize,
}

/// A running node.
#[derive(Debug)]
pub struct Node {
    /// One for each shard.
    pub drivers: Vec<ShardDriver>,
    senders: Vec<MailSender<ToShard>>,
    messages: Receiver<ToNode>,
    superblock: SuperblockWriter,
    inventory: Option<Arc<Inventory>>,
    device: NodeDevice,
    facts: DatabaseFacts,
    /// What opening found.
    pub report: OpenReport,
    waiting: VecDeque<(ShardId, TaskId, MapChange)>,
    writing: Option<Change>,
    spreading: Vec<Spreading>,
    /// The shards whose device has failed.
    pub failed: Vec<ShardId>,
}

fn facts_of_a_new_store() -> DatabaseFacts {
    DatabaseFacts {
        map: DatabaseMap::new(DATABASES),
        index: IndexKind::Hash,
        durable_method: DurableMethod::default(),
        probe: None,
        is_being_restored: false,
    }
}

fn encode(facts: &DatabaseFacts) -> Result<Vec<u8>> {
    serde_json::to_vec(facts).map_err(|error| Error::new(ErrorKind::InvalidInput, error.to_string()))
}

fn keyspace_entries(facts: &DatabaseFacts) -> Vec<KeyspaceEntry> {
    let entry = |(number, id): (usize, &KeyspaceId)| KeyspaceEntry {
        id: *id,
        name: number.to_string(),
        index: facts.index,
    };
    let named = facts.map.names().map(|(name, named)| KeyspaceEntry {
        id: named.id,
        name: name.to_owned(),
        index: named.index,
    });
    facts.map.keyspaces().iter().enumerate().map(entry).chain(named).collect()
}

/// What all shards share.
struct Common<'a> {
    settings: &'a NodeSettings,
    facts: &'a DatabaseFacts,
    hasher: tierstone_base::KeyHasher,
    value_bytes_max: Option<u64>,
    machine: &'a WordMachine,
    senders: &'a [MailSender<ToShard>],
    node: Sender<ToNode>,
    snapshots: NewestNumbers,
    serving: Arc<AtomicUsize>,
    clients: Arc<ClientLedger>,
}

impl Node {
    /// Opens the store on `machine`, or makes it, and starts the shards. The machine's time moves on.
    ///
    /// # Errors
    /// What opening says; a device without power among it. `Corrupt` when recovery calls segments
    /// damaged.
    pub fn open(machine: &WordMachine, settings: &NodeSettings, now: impl Fn() -> Now) -> Result<Node> {
        let mut device = settings.ground.device(machine)?;
        let opened = open_engines(machine, &mut device, settings)?;
        let facts: DatabaseFacts = serde_json::from_slice(&opened.superblock.superblock.facts)
            .map_err(|error| Error::new(ErrorKind::Corrupt, error.to_string()))?;
        let mut damaged = opened.report.damaged_segments.clone();
        let (node_sender, messages) = unbounded();
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for _ in &opened.plans {
            // Never asleep, so a wake-up is one store to memory.
            let (sender, receiver) = mailbox(&Waker::new()?, usize::MAX);
            senders.push(sender);
            receivers.push(receiver);
        }
        let common = Common {
            settings,
            facts: &facts,
            hasher: opened.hasher,
            value_bytes_max: opened.value_bytes_max,
            machine,
            senders: &senders,
            node: node_sender,
            snapshots: NewestNumbers::new(0),
            serving: Arc::new(AtomicUsize::new(senders.len())),
            clients: Arc::new(ClientLedger::new(senders.len())),
        };
        let mut drivers = Vec::new();
        for (plan, mail) in opened.plans.into_iter().zip(receivers) {
            drivers.push(start_shard(&common, (plan, mail), &mut damaged, &now)?);
        }
        if !damaged.is_empty() {
            let text = format!("recovery calls segments {damaged:?} damaged");
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        Ok(Node {
            drivers,
            senders,
            messages,
            superblock: opened.superblock,
            inventory: opened.inventory,
            device,
            facts,
            report: opened.report,
            waiting: VecDeque::new(),
            writing: None,
            spreading: Vec::new(),
            failed: Vec::new(),
        })
    }

    /// Keys that were evicted since the node was opened.
    pub fn evicted_keys(&self) -> u64 {
        let engine = |driver: &ShardDriver| driver.service().executor().shard().engine().statistics();
        self.drivers.iter().map(|driver| engine(driver).evicted_keys).sum()
    }

    /// What the node's own thread does: takes what shards tell it, goes on with changes.
    ///
    /// # Errors
    /// When a change cannot be encoded.
    pub fn step(&mut self) -> Result<()> {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                ToNode::ChangeMap { shard, task, change } => self.waiting.push_back((shard, task, change)),
                ToNode::MapApplied { version } => self.map_applied(version),
                ToNode::Failed { shard, .. } => self.failed.push(shard),
                ToNode::Rot { shard, findings } => {
                    // No device rots here.
                    let text = format!("scrubbing blames shard {shard}: {}", findings.join("; "));
                    return Err(Error::new(ErrorKind::Corrupt, text));
                }
                ToNode::RewriteSettings { .. } | ToNode::ReadUsers { .. } | ToNode::WriteUsers { .. } => {
                    unreachable!("no files of settings or users are simulated")
                }
                // Shards tell each other of changed settings.
                ToNode::Setting { .. } | ToNode::Stop { .. } | ToNode::ReloadTls | ToNode::Evicted { .. } => {
                }
            }
        }
        self.finish_write();
        if self.writing.is_none()
            && let Some((shard, task, change)) = self.waiting.pop_front()
        {
            self.begin_write(shard, task, change)?;
        }
        Ok(())
    }

    /// Whether a change waits for something other than the device.
    pub fn has_work(&self) -> bool {
        !self.messages.is_empty() || (self.writing.is_none() && !self.waiting.is_empty())
    }

    fn begin_write(&mut self, shard: ShardId, task: TaskId, change: MapChange) -> Result<()> {
        let mut map = self.facts.map.clone();
        if let Err(error) = map.change(change) {
            self.tell(shard, ToShard::MapChanged { task, result: Err(error) });
            return Ok(());
        }
        let facts = DatabaseFacts { map: map.clone(), ..self.facts.clone() };
        let mut superblock = self.superblock.superblock.clone();
        superblock.keyspaces = keyspace_entries(&facts);
        let next = map.keyspaces().iter().map(|id| id.0 + 1).max().unwrap_or(0);
        superblock.next_keyspace = superblock.next_keyspace.max(next);
        superblock.facts = encode(&facts)?;
        let request = self.superblock.request(0, superblock)?;
        self.device.submit(&mut vec![request]);
        self.writing = Some(Change { shard, task, map });
        Ok(())
    }

    fn finish_write(&mut self) {
        let mut completions: Vec<IoCompletion> = Vec::new();
        self.device.complete(Wait::Poll, &mut completions);
        for completion in completions {
            let Some(change) = self.writing.take() else { continue };
            match completion.result {
                Err(error) => {
                    let result = Err(Error::from(error));
                    self.tell(change.shard, ToShard::MapChanged { task: change.task, result });
                }
                Ok(_) => {
                    self.facts.map = change.map.clone();
                    for sender in &self.senders {
                        sender.send(&mut vec![ToShard::Map(change.map.clone())]);
                    }
                    self.spreading.push(Spreading { change, missing: self.senders.len() });
                }
            }
        }
    }

    fn map_applied(&mut self, version: u64) {
        let of_version = |spreading: &Spreading| spreading.change.map.version == version;
        let Some(place) = self.spreading.iter().position(of_version) else { return };
        self.spreading[place].missing -= 1;
        if self.spreading[place].missing == 0 {
            let Change { shard, task, .. } = self.spreading.remove(place).change;
            self.tell(shard, ToShard::MapChanged { task, result: Ok(()) });
        }
    }

    fn tell(&self, shard: ShardId, message: ToShard) {
        if let Some(sender) = self.senders.get(usize::from(shard)) {
            sender.send(&mut vec![message]);
        }
    }

    /// Every shard has been shut: notes it durably.
    ///
    /// # Errors
    /// When the device fails.
    pub fn close(mut self) -> Result<()> {
        self.superblock.close(&mut self.device, self.inventory.as_deref())
    }
}

/// Superblock and engines, made if there are none.
fn open_engines(
    machine: &WordMachine,
    device: &mut NodeDevice,
    settings: &NodeSettings,
) -> Result<OpenedEngines> {
    let new = facts_of_a_new_store();
    let mut open = OpenSettings {
        shard_count: settings.shards,
        shard: settings.shard.clone(),
        keyspaces: keyspace_entries(&new),
        facts: encode(&new)?,
        seed: settings.seed,
        mutations: settings.mutations.clone(),
        redo_loss_accepted: settings.accepts_loss,
        ..OpenSettings::default()
    };
    let region = Arc::new(machine.region());
    match settings.ground {
        Ground::Memory => {
            let geometry = memory_geometry(settings.eviction != Eviction::None);
            open_in_region(region, device, &open, EngineChoices { geometry, ..EngineChoices::default() })
        }
        Ground::Device => tierstone_logstore::open(device, &open).map(OpenedEngines::from),
        Ground::DeviceWithRedo => {
            open.redo = Some(RedoMemory::new(region));
            tierstone_logstore::open(device, &open).map(OpenedEngines::from)
        }
    }
}

fn start_shard(
    common: &Common<'_>,
    (plan, mail): (DatabasePlan, MailReceiver<ToShard>),
    damaged: &mut Vec<u32>,
    now: &impl Fn() -> Now,
) -> Result<ShardDriver> {
    let shard = plan.shard();
    let mut device = common.settings.ground.device(common.machine)?;
    let (engine, built) = plan.build(&mut device)?;
    damaged.extend(built.damaged_segments);
    let executor = Executor::new(
        engine,
        ExecutorSettings {
            shard: tierstone_store::ShardSettings {
                index: shard,
                count: common.senders.len() as u16,
                map: common.facts.map.clone(),
                index_kind: common.facts.index,
                hasher: common.hasher,
                durability: common.settings.durability,
                record_bytes_max: common
                    .value_bytes_max
                    .unwrap_or_else(|| tierstone_logstore::value_bytes_max(device.geometry())),
            },
            value_size_max_bytes: common.settings.value_bytes_max,
            password: String::new(),
            users: None,
            transaction_size_max_bytes: 1 << 20,
            held_bytes_max: 4 * common.settings.value_bytes_max,
            eviction: common.settings.eviction,
            facts: ServerFacts { started: now(), ..ServerFacts::default() },
            values: Vec::new(),
        },
    );
    let parts = ServiceParts {
        executor,
        shard,
        mail,
        shards: common.senders.to_vec(),
        node: common.node.clone(),
        snapshots: common.snapshots.clone(),
        limits: RequestLimits::default(),
        buffer_bytes_max: common.settings.transport.buffer_bytes_max,
        clients: Arc::clone(&common.clients),
        serving: Arc::clone(&common.serving),
        stop_patience_us: common.settings.transport.stop_timeout_ms * 1_000 / 2,
        heartbeat: None,
    };
    let service = RedisService::new(parts);
    let mut driver = ManualDriver::new(service, device, common.settings.transport.clone(), now())?;
    let machine = common.machine.clone();
    driver.cut_off_when(move || machine.power_is_off());
    Ok(driver)
}
