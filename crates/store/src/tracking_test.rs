use super::*;

const AWAY: Holder = Holder { client: 7, shard: 1 };
const HERE: Holder = Holder { client: 8, shard: 0 };

fn table() -> TrackTable {
    let mut table = TrackTable::default();
    table.set_limits(0, 1 << 20);
    table
}

/// A position of its own for each short key.
fn place(key: &[u8]) -> Position {
    Position(key.iter().fold(1, |place, byte| place << 8 | u64::from(*byte)))
}

fn remember(table: &mut TrackTable, key: &[u8], holder: Holder, expiry_ms: u64) {
    let key = Key { keyspace: KeyspaceId(0), position: place(key), bytes: key };
    table.remember(key, holder, expiry_ms);
}

/// What is stale, as `CLIENT KEYS`, with a `*` where a prefix is the reason.
fn stale(table: &mut TrackTable) -> Vec<String> {
    let shown = |stale: Stale| {
        let keys: Vec<String> =
            stale.keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
        let star = if stale.is_broadcast { "*" } else { "" };
        format!("{star}{} {}", stale.holder.client, keys.join(","))
    };
    table.take_stale().into_iter().map(shown).collect()
}

#[test]
fn a_change_makes_the_copies_of_all_clients_stale_once() {
    let mut table = table();
    for holder in [HERE, AWAY, HERE] {
        remember(&mut table, b"a", holder, 0);
    }
    remember(&mut table, b"b", AWAY, 0);
    assert_eq!((table.keys(), table.items()), (2, 3));
    table.touch(place(b"a"), b"a");
    table.touch(place(b"a"), b"a");
    assert_eq!(stale(&mut table), ["7 a", "8 a"]);
    assert_eq!((table.keys(), table.items()), (1, 1));
    table.touch(place(b"b"), b"b");
    assert_eq!(stale(&mut table), ["7 b"]);
    assert!(!table.is_on() && table.bytes() == 0);
}

#[test]
fn a_client_that_does_not_listen_to_itself_hears_others() {
    let mut table = table();
    table.follow(HERE, vec![b"a".to_vec()]);
    remember(&mut table, b"b", HERE, 0);
    remember(&mut table, b"b", AWAY, 0);
    table.set_writer(Some(8));
    table.touch(place(b"b"), b"b");
    table.touch(place(b"a1"), b"a1");
    table.touch(place(b"a2"), b"a2");
    table.set_writer(None);
    table.touch(place(b"a2"), b"a2");
    table.touch(place(b"a3"), b"a3");
    assert_eq!(stale(&mut table), ["7 b", "*8 a2,a3"]);
}

#[test]
fn copies_become_stale_when_what_was_read_expires() {
    let mut table = table();
    remember(&mut table, b"a", HERE, 500);
    remember(&mut table, b"b", HERE, 400);
    remember(&mut table, b"c", HERE, 0);
    // An earlier time wins: it is what one of the clients has seen.
    remember(&mut table, b"a", AWAY, 300);
    assert_eq!(table.next_expiry_ms(), Some(300));
    assert_eq!(table.expire(299), None);
    assert_eq!(table.expire(400), Some(400));
    assert_eq!(stale(&mut table), ["7 a", "8 a", "8 b"]);
    assert_eq!(table.next_expiry_ms(), None);
    assert_eq!(table.keys(), 1);
}

#[test]
fn the_oldest_notes_make_room_and_their_copies_become_stale() {
    let mut table = table();
    for key in [b"a", b"b", b"c"] {
        remember(&mut table, key, HERE, 0);
    }
    table.set_limits(2, 1 << 20);
    assert_eq!(stale(&mut table), ["8 a"]);
    remember(&mut table, b"b", AWAY, 0);
    remember(&mut table, b"d", HERE, 900);
    assert_eq!(stale(&mut table), ["7 b", "8 b"]);
    let bytes = table.bytes() as usize;
    table.set_limits(0, bytes - 1);
    assert_eq!(stale(&mut table), ["8 c"]);
    table.set_limits(0, 0);
    assert_eq!(stale(&mut table), ["8 d"]);
    assert_eq!((table.bytes(), table.items(), table.next_expiry_ms()), (0, 0, None));
}

#[test]
fn two_keys_of_one_position_are_never_left_alone() {
    let mut table = table();
    let at = |bytes| Key { keyspace: KeyspaceId(0), position: Position(1), bytes };
    table.remember(at(b"one"), HERE, 0);
    table.remember(at(b"two"), AWAY, 0);
    assert_eq!(stale(&mut table), ["8 one"]);
    table.touch(Position(1), b"one");
    assert_eq!(stale(&mut table), ["7 two"]);
}

#[test]
fn prefixes_are_found_as_by_looking_at_all_of_them() {
    let mut random = tierstone_base::SeededRandom::new(11);
    for round in 0..400 {
        let mut table = table();
        let mut word = |len_max: u64| -> Vec<u8> {
            let len = random.below(len_max + 1);
            (0..len).map(|_| b'a' + random.below(3) as u8).collect()
        };
        let prefixes: BTreeSet<Vec<u8>> = (0..6).map(|_| word(4)).collect();
        for (number, prefix) in prefixes.iter().enumerate() {
            table.follow(Holder { client: number as u64, shard: 0 }, vec![prefix.clone()]);
        }
        let key = word(6);
        table.touch_prefixes(&key);
        let told: Vec<u64> = table.take_stale().iter().map(|stale| stale.holder.client).collect();
        let fits = |(number, prefix): (usize, &Vec<u8>)| key.starts_with(prefix).then_some(number as u64);
        let expected: Vec<u64> = prefixes.iter().enumerate().filter_map(fits).collect();
        assert_eq!(told, expected, "round {round}: {key:?} of {prefixes:?}");
    }
}

#[test]
fn a_client_follows_what_it_wanted_last_and_a_flush_forgets_copies_only() {
    let mut table = table();
    table.follow(HERE, vec![b"a".to_vec(), b"b".to_vec()]);
    table.follow(AWAY, vec![b"b".to_vec()]);
    assert_eq!(table.prefixes(), 2);
    table.follow(HERE, vec![b"c".to_vec()]);
    remember(&mut table, b"b", HERE, 10);
    table.clear();
    table.touch(place(b"b"), b"b");
    table.touch(place(b"c"), b"c");
    assert_eq!(stale(&mut table), ["*7 b", "*8 c"]);
    table.follow(HERE, Vec::new());
    table.follow(AWAY, Vec::new());
    assert!(!table.is_on() && !table.has_stale());
}
