use super::*;
use crate::manual::ManualDriver;
use crate::settings::TransportSettings;
use crate::wake::Waker;
use tierstone_base::KeyHasher;
use tierstone_engine::Durability;
use tierstone_engine::map_engine::MapEngine;
use tierstone_media::sim::SimDevice;
use tierstone_media::{BLOCK_BYTES, Geometry};
use tierstone_redis::{ExecutorSettings, ServerFacts};
use tierstone_store::{DatabaseMap, ShardSettings};

type Driver = ManualDriver<RedisService<MapEngine>, SimDevice>;

const NOW: Now = Now { monotonic_us: 1_000_000, wall_ms: 1_700_000_000_000 };

fn executor() -> Executor<MapEngine> {
    let shard = ShardSettings {
        index: 0,
        count: 1,
        map: DatabaseMap::new(16),
        index_kind: Default::default(),
        hasher: KeyHasher::new([7, 11]),
        durability: Durability::Sync,
        record_bytes_max: 1 << 20,
    };
    let settings = ExecutorSettings {
        shard,
        value_size_max_bytes: 1 << 20,
        password: String::new(),
        users: None,
        transaction_size_max_bytes: 1 << 20,
        held_bytes_max: 4 << 20,
        eviction: Default::default(),
        facts: ServerFacts::default(),
        values: Vec::new(),
    };
    Executor::new(MapEngine::new(0), settings)
}

/// A driver of one shard, and what it tells the node.
fn driver(settings: TransportSettings) -> (Driver, crossbeam_channel::Receiver<ToNode>) {
    let (sender, mail) = crate::mailbox::mailbox(&Waker::new().unwrap(), 1_024);
    let (node, told) = crossbeam_channel::unbounded();
    let parts = ServiceParts {
        executor: executor(),
        shard: 0,
        mail,
        shards: vec![sender],
        node,
        snapshots: NewestNumbers::new(1),
        limits: RequestLimits::default(),
        buffer_bytes_max: settings.buffer_bytes_max,
        clients: Arc::new(ClientLedger::new(1)),
        serving: Arc::new(AtomicUsize::new(1)),
        stop_patience_us: 1_000,
        heartbeat: None,
    };
    let bytes = BLOCK_BYTES as u64;
    let device = SimDevice::plain(Geometry { meta_bytes: bytes, segment_bytes: bytes, segment_limit: 1 });
    (ManualDriver::new(RedisService::new(parts), device, settings, NOW).unwrap(), told)
}

fn ask(driver: &mut Driver, index: u32, request: &str) -> String {
    driver.receive(NOW, index, format!("{request}\r\n").as_bytes());
    (0..3).for_each(|_| driver.turn(NOW));
    let mut output = Vec::new();
    driver.take_output(index, &mut output);
    String::from_utf8(output).unwrap()
}

#[test]
fn who_is_turned_away_or_closed_is_counted() {
    let mut settings =
        TransportSettings { connections_max: 2, input_limit_bytes: 2_000, ..TransportSettings::default() };
    settings.input_pause_bytes = settings.input_pause_bytes.min(settings.input_limit_bytes);
    let (mut driver, _told) = driver(settings);
    let (first, second) =
        (driver.connect(NOW, &Peer::Unix).unwrap(), driver.connect(NOW, &Peer::Unix).unwrap());
    assert!(driver.connect(NOW, &Peer::Unix).is_err());
    driver.receive(NOW, second, format!("*2\r\n$3\r\nGET\r\n$5000\r\n{}", "x".repeat(3_000)).as_bytes());
    driver.turn(NOW);
    let stats = ask(&mut driver, first, "INFO stats");
    assert!(stats.contains("\r\nrejected_connections:1\r\n"), "{stats}");
    assert!(stats.contains("\r\nclient_query_buffer_limit_disconnections:1\r\n"), "{stats}");
    ask(&mut driver, first, "CONFIG RESETSTAT");
    let stats = ask(&mut driver, first, "INFO stats");
    assert!(stats.contains("\r\nrejected_connections:0\r\n"), "{stats}");
}

#[test]
fn clients_are_listed_with_the_sizes_of_their_buffers() {
    let (mut driver, _told) = driver(TransportSettings::default());
    let asker = driver.connect(NOW, &Peer::Unix).unwrap();
    let other = driver.connect(NOW, &Peer::Unix).unwrap();
    // A request that has not come whole, and a reply that is not taken.
    ask(&mut driver, other, &format!("SET k {}", "v".repeat(30_000)));
    driver.set_stalled(other, true);
    for request in ["GET k\r\n", "GET k\r\n", "*2\r\n$3\r\nGET\r\n$5000\r\nxxx"] {
        driver.receive(NOW, other, request.as_bytes());
        driver.turn(NOW);
    }
    let lines = ask(&mut driver, asker, "CLIENT LIST");
    let line = lines.lines().find(|line| line.contains("cmd=get")).unwrap();
    let field = |name: &str| -> usize {
        let value = line.split(' ').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        value.unwrap().parse().unwrap()
    };
    assert_eq!(field("qbuf"), "*2\r\n$3\r\nGET\r\n$5000\r\nxxx".len());
    assert_eq!(field("obl") + field("omem"), 2 * (30_000 + "$30000\r\n\r\n".len()), "{line}");
    assert_eq!((field("obl"), field("oll")), (16_384, 3));
    assert!(field("tot-mem") > field("omem") + field("obl") + field("qbuf"), "{line}");
    let own = lines.lines().find(|line| line.contains("cmd=client|list")).unwrap();
    assert!(own.contains(" qbuf=13 ") && own.contains(" argv-mem=10 "), "{own}");
}

#[test]
fn all_clients_that_were_closed_are_told_of_together() {
    let (mut driver, told) = driver(TransportSettings::default());
    let asker = driver.connect(NOW, &Peer::Unix).unwrap();
    let large: Vec<u32> = (0..12).map(|_| driver.connect(NOW, &Peer::Unix).unwrap()).collect();
    for index in &large {
        ask(&mut driver, *index, "MULTI");
        for _ in 0..4 {
            ask(&mut driver, *index, &format!("SET k {}", "v".repeat(60_000)));
        }
    }
    ask(&mut driver, asker, "CONFIG SET maxmemory-clients 300000");
    (0..20).for_each(|_| driver.turn(NOW));
    let told: Vec<ToNode> = told.try_iter().filter(|told| matches!(told, ToNode::Evicted { .. })).collect();
    let [ToNode::Evicted { count, lines, bytes, .. }] = told.as_slice() else { panic!("{told:?}") };
    assert!(*count > 8 && lines.len() == 8, "{count} {lines:?}");
    assert!(*bytes >= count * 240_000 && lines[0].contains("cmd=set"), "{bytes} {lines:?}");
}
