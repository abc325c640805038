//! SCAN: every key once, by cursors that every client can keep, whatever the pages of the engine are.

use crate::support::fetching_engine::{FetchingEngine, Trouble};
use crate::support::{HASHER, Server};
use std::collections::BTreeSet;
use tierstone_base::{Position, SeededRandom};
use tierstone_redis::ConnectionId;

/// What JavaScript, Lua and others keep exactly; it has room in a signed number, too.
const CURSOR_MAX: u64 = (1 << 53) - 1;

type Scanned = (u64, Vec<Vec<u8>>);

fn page(server: &mut Server<FetchingEngine>, id: ConnectionId, cursor: u64, count: u64) -> Scanned {
    let (cursor, count) = (cursor.to_string(), count.to_string());
    let page = server.call(id, &[b"SCAN", cursor.as_bytes(), b"COUNT", count.as_bytes()]);
    let items = page.items().unwrap();
    let next = std::str::from_utf8(items[0].bytes().unwrap()).unwrap().parse().unwrap();
    (next, items[1].items().unwrap().iter().map(|key| key.bytes().unwrap().to_vec()).collect())
}

/// All pages from `cursor` on.
fn walk(
    server: &mut Server<FetchingEngine>,
    id: ConnectionId,
    mut cursor: u64,
    mut count: impl FnMut() -> u64,
) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for _ in 0..10_000 {
        let (next, keys) = page(server, id, cursor, count());
        found.extend(keys);
        assert!(next == 0 || next > cursor || cursor > CURSOR_MAX, "{next} behind {cursor}");
        assert!(next <= CURSOR_MAX, "{next}");
        if next == 0 {
            return found;
        }
        cursor = next;
    }
    panic!("the walk does not end");
}

fn server(random: &mut SeededRandom, shards: u64) -> (Server<FetchingEngine>, ConnectionId) {
    let trouble = Trouble { fetch: 0.0, retry: 0.0, ..Trouble::default() };
    let has_buckets = random.chance(0.7);
    let mut server = Server::new((0..shards).map(|_| {
        let mut engine = FetchingEngine::new(random.next_u64(), trouble);
        engine.has_buckets = has_buckets;
        engine
    }));
    let id = server.connect();
    (server, id)
}

#[test]
fn every_key_is_given_once_by_cursors_that_fit_in_a_double() {
    for seed in 0..60 {
        let mut random = SeededRandom::new(seed);
        let shards = 1 + random.below(4);
        let (mut server, id) = server(&mut random, shards);
        let has_tag = random.chance(0.3);
        let mut expected = BTreeSet::new();
        for number in 0..random.below(300) {
            let key = match has_tag || random.chance(0.2) {
                true => format!("{{tag}}{number}"),
                false => format!("key:{}", random.next_u64()),
            };
            server.send(id, &[b"SET", key.as_bytes(), b"value"]);
            expected.insert(key.into_bytes());
        }
        server.settle();
        server.take_received(id);
        let most = 1 + random.below(100);
        let found = walk(&mut server, id, 0, || 1 + random.below(most));
        let unique: BTreeSet<Vec<u8>> = found.iter().cloned().collect();
        assert_eq!(unique, expected, "seed {seed}");
        assert_eq!(found.len(), unique.len(), "seed {seed}: keys were given twice");
    }
}

#[test]
fn a_key_that_stays_is_given_while_others_come_and_go() {
    for seed in 0..10 {
        let mut random = SeededRandom::new(seed);
        let (mut server, id) = server(&mut random, 1 + seed % 3);
        for number in 0..100 {
            server.line(id, &format!("SET stays{number} 1"));
        }
        let (mut found, mut cursor) = (BTreeSet::new(), 0);
        for turn in 0.. {
            for word in ["SET", "DEL"] {
                server.line(id, &format!("{word} goes{} 1", random.below(100)));
            }
            let (next, keys) = page(&mut server, id, cursor, 1 + random.below(9));
            found.extend(keys.into_iter().filter(|key| key.starts_with(b"stays")));
            if next == 0 {
                break;
            }
            cursor = next;
            assert!(turn < 1_000, "seed {seed}: the walk does not end");
        }
        assert_eq!(found.len(), 100, "seed {seed}");
    }
}

/// An earlier version gave positions.
#[test]
fn a_walk_that_an_earlier_version_began_goes_on() {
    let mut random = SeededRandom::new(1);
    let (mut server, id) = server(&mut random, 2);
    let keys: Vec<String> = (0..100).map(|number| format!("key:{number}")).collect();
    keys.iter().for_each(|key| assert_eq!(server.line(id, &format!("SET {key} 1")), "+OK"));
    let from = Position(3 << 61 | 12_345);
    let found: BTreeSet<Vec<u8>> = walk(&mut server, id, from.0, || 7).into_iter().collect();
    let behind = keys.iter().filter(|key| HASHER.position(key.as_bytes()) >= from);
    assert_eq!(found, behind.map(|key| key.clone().into_bytes()).collect());
}
