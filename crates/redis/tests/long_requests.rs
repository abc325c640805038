//! Requests whose own work is long: others are served between, and what is one piece has a bound.

use crate::support;
use crate::support::Server;
use tierstone_base::Now;
use tierstone_engine::Engine;
use tierstone_engine::map_engine::MapEngine;
use tierstone_redis::{Args, Executor, Outcome};

const NOW: Now = Now { monotonic_us: 1_000_000, wall_ms: 1_700_000_000_000 };

/// Keys of which some have a `b` far behind their beginning.
fn long_keys() -> Vec<(Vec<u8>, bool)> {
    let key = |number: usize| {
        let mut key = format!("{number}:").into_bytes();
        key.extend(b"a".repeat(30_000));
        let fits = number.is_multiple_of(7);
        if fits {
            key[25_000] = b'b';
        }
        (key, fits)
    };
    (0..30).map(key).collect()
}

#[test]
fn others_are_served_while_long_keys_are_compared_with_a_long_pattern() {
    let pattern = [b"*", b"?".repeat(15_000).as_slice(), b"b*"].concat();
    for shards in [1, 3] {
        let mut server = Server::new((0..shards).map(|_| MapEngine::new(0)));
        let [walker, other] = [(); 2].map(|()| server.connect());
        let keys = long_keys();
        for (key, _) in &keys {
            assert_eq!(server.raw(walker, &[b"SET", key, b"v"]), b"+OK\r\n");
        }
        for is_keys in [true, false] {
            let scan: [&[u8]; 6] = [b"SCAN", b"0", b"COUNT", b"100", b"MATCH", &pattern];
            match is_keys {
                true => server.send(walker, &[b"KEYS", &pattern]),
                false => server.send(walker, &scan),
            }
            server.offer_one(walker);
            let mut steps = 0;
            while !server.is_idle(walker) {
                steps += 1;
                assert_eq!(server.take_received(other), b"");
                server.send(other, &[b"PING"]);
                server.offer_one(other);
                server.step();
                assert_eq!(server.take_received(other), b"+PONG\r\n", "step {steps}");
            }
            assert!(steps > 4, "all keys were compared in {steps} steps");
            let received = server.take_received(walker);
            let holds = |key: &[u8]| received.windows(key.len()).any(|window| window == key);
            if is_keys || shards == 1 {
                assert!(keys.iter().all(|(key, fits)| holds(key) == *fits));
            }
        }
    }
}

#[test]
fn one_long_request_of_a_client_is_under_way_at_other_shards_at_a_time() {
    let executor = |index| Executor::new(MapEngine::new(u64::from(index)), support::settings(index, 2));
    let mut executors: Vec<Executor<MapEngine>> = (0..2).map(executor).collect();
    let there = |key: &String| executors[0].shard().position(key.as_bytes()).shard(2) == 1;
    let keys: Vec<String> = (0..100).map(|number| format!("key:{number}")).filter(there).take(7).collect();
    executors[0].connect(NOW, 1, Default::default());
    let mut request = |words: &[&str]| {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        executors[0].request(NOW, 1, Args::Slices(&words), &mut Vec::new())
    };
    assert!(matches!(request(&["GET", &keys[0]]), Outcome::Forwarded(_)));
    assert_eq!(request(&["LCS", &keys[1], &keys[2]]), Outcome::Blocked, "it waits for what is under way");
    let mut request = {
        executors[0].connect(NOW, 2, Default::default());
        |words: &[&str]| {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            executors[0].request(NOW, 2, Args::Slices(&words), &mut Vec::new())
        }
    };
    assert!(matches!(request(&["LCS", &keys[1], &keys[2]]), Outcome::Suspended(_)));
    assert!(matches!(request(&["GET", &keys[3]]), Outcome::Forwarded(_)), "what is short follows");
    assert_eq!(request(&["LCS", &keys[4], &keys[5]]), Outcome::Blocked);
    assert_eq!(request(&["DUMP", &keys[6]]), Outcome::Blocked);
}

#[test]
fn a_transaction_of_too_much_work_leaves_nothing() {
    for shards in [1, 3] {
        let mut server = Server::new((0..shards).map(|_| MapEngine::new(0)));
        let id = server.connect();
        let value = b"a".repeat(4_000);
        for key in [b"a", b"b"] {
            assert_eq!(server.raw(id, &[b"SET", key, &value]), b"+OK\r\n");
        }
        let mut lcs = |count: usize| {
            assert_eq!(server.raw(id, &[b"MULTI"]), b"+OK\r\n");
            server.send(id, &[b"SET", b"c", b"v"]);
            (0..count).for_each(|_| server.send(id, &[b"LCS", b"a", b"b", b"LEN"]));
            server.settle();
            server.take_received(id);
            let reply = String::from_utf8(server.raw(id, &[b"EXEC"])).unwrap();
            (reply, server.raw(id, &[b"GETDEL", b"c"]))
        };
        let (reply, left) = lcs(3);
        assert_eq!(
            (reply.as_str(), left.as_slice()),
            ("*4\r\n+OK\r\n:4000\r\n:4000\r\n:4000\r\n", &b"$1\r\nv\r\n"[..])
        );
        let (reply, left) = lcs(1_200);
        assert!(
            reply.starts_with("-EXECABORT Transaction discarded: ERR a batch of commands may not"),
            "{reply}"
        );
        assert_eq!(left, b"$-1\r\n");
    }
}

/// What others hear of cannot be taken back: it is done after all has been looked at, or the whole comes to its end.
#[test]
fn a_transaction_of_too_much_work_has_no_effects_outside() {
    for shards in [1, 3] {
        let mut server = Server::new((0..shards).map(|_| MapEngine::new(0)));
        let (id, other) = (server.connect(), server.connect());
        let value = b"a".repeat(4_000);
        for key in [b"a", b"b"] {
            assert_eq!(server.raw(other, &[b"SET", key, &value]), b"+OK\r\n");
        }
        assert_eq!(server.raw(id, &[b"MULTI"]), b"+OK\r\n");
        server.send(id, &[b"SUBSCRIBE", b"news"]);
        (0..1_200).for_each(|_| server.send(id, &[b"LCS", b"a", b"b", b"LEN"]));
        server.settle();
        server.take_received(id);
        let reply = String::from_utf8(server.raw(id, &[b"EXEC"])).unwrap();
        let is_aborted = reply.starts_with("-EXECABORT Transaction discarded");
        assert!(is_aborted || reply.starts_with("*1201\r\n"), "{shards}: {}", &reply[..40]);
        assert!(is_aborted || shards > 1, "{}", &reply[..40]);
        let heard = if is_aborted { "*2 $4 news :0" } else { "*2 $4 news :1" };
        server.check(other, &[("PUBSUB NUMSUB news", heard)]);
    }
}

#[test]
fn work_is_counted_by_what_is_compared_and_copied() {
    let mut executor = Executor::new(MapEngine::new(0), support::settings(0, 1));
    executor.connect(NOW, 1, Default::default());
    let mut work = |words: &[&[u8]]| {
        executor.take_work();
        let outcome = executor.request(NOW, 1, Args::Slices(words), &mut Vec::new());
        assert!(matches!(outcome, Outcome::Ready { .. }));
        executor.take_work()
    };
    let long = b"a".repeat(1_000_000);
    let name = b"a".repeat(60_000);
    let pattern = [b"*", b"?".repeat(30_000).as_slice(), b"b*"].concat();
    assert!(work(&[b"SET", b"k", b"v"]) < 1_000);
    assert!(work(&[b"SET", b"long", &long]) < 1_000);
    assert!(work(&[b"DUMP", b"k"]) < 1_000);
    assert!(work(&[b"DUMP", b"long"]) > 1_000_000);
    assert!(work(&[b"PUBLISH", &name, b"m"]) < 1_000);
    work(&[b"HELLO", b"3"]);
    work(&[b"PSUBSCRIBE", &pattern]);
    let product = 30_000 * 60_000;
    let published = work(&[b"PUBLISH", &name, b"m"]);
    assert!((1_000_000..product / 10).contains(&published), "{published}");
}

#[test]
fn names_of_channels_are_no_longer_than_those_of_events_of_keys() {
    let mut server = Server::new([MapEngine::new(0)]);
    let id = server.connect();
    let too_long = b"-ERR channel is longer than 65600 bytes\r\n";
    let (fitting, longer) = (b"c".repeat(65_600), b"c".repeat(65_601));
    assert_eq!(server.raw(id, &[b"PUBLISH", &fitting, b"m"]), b":0\r\n");
    for words in [&[b"PUBLISH", &longer[..], b"m"][..], &[b"SUBSCRIBE", &longer], &[b"PSUBSCRIBE", &longer]] {
        assert_eq!(server.raw(id, words), too_long);
    }
    assert!(server.raw(id, &[b"PSUBSCRIBE", &fitting]).ends_with(b":1\r\n"));
}

/// Each write of a record takes a sequence of its own.
#[test]
fn keys_that_a_request_names_several_times_are_written_once() {
    let mut server = Server::new([MapEngine::new(0)]);
    let id = server.connect();
    let numbers: Vec<String> = (0..600).map(|number| number.to_string()).collect();
    for (command, count, distinct) in [
        ("MSET", 3, 1),
        ("MSET", 300, 1),
        ("MSET", 300, 7),
        ("MSETNX", 300, 7),
        ("MSETEX", 300, 7),
        ("MSET", 300, 300),
    ] {
        server.line(id, "FLUSHDB");
        let mut words: Vec<&[u8]> = vec![command.as_bytes()];
        let pairs = count.to_string();
        if command == "MSETEX" {
            words.push(pairs.as_bytes());
        }
        for number in 0..count {
            words.extend([numbers[number % distinct].as_bytes(), numbers[number].as_bytes()]);
        }
        let before = server.executors[0].shard().engine().applied_seq();
        let reply = server.raw(id, &words);
        assert_eq!(reply, if command == "MSET" { &b"+OK\r\n"[..] } else { b":1\r\n" });
        let writes = server.executors[0].shard().engine().applied_seq() - before;
        assert_eq!(writes, distinct as u64, "{command} {count} {distinct}");
        for key in 0..distinct {
            let last = (0..count).rev().find(|number| number % distinct == key).unwrap().to_string();
            let expected = format!("${} {last}", last.len());
            assert_eq!(server.line(id, &format!("GET {key}")), expected, "{command} {count} {distinct}");
        }
    }
}

#[test]
fn requests_that_go_through_what_clients_listen_to_are_counted_by_how_much_that_is() {
    const COUNT: usize = 300;
    let mut executor = Executor::new(MapEngine::new(0), support::settings(0, 1));
    for connection in [1, 2] {
        executor.connect(NOW, connection, Default::default());
    }
    let mut work_of = |connection: u64, words: &[String]| {
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        executor.take_work();
        assert!(matches!(
            executor.request(NOW, connection, Args::Slices(&words), &mut Vec::new()),
            Outcome::Ready { .. }
        ));
        executor.take_work()
    };
    let line = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<String>>();
    let many = |word: &str| {
        let names = (0..COUNT).map(|number| format!("name {number}"));
        [word.to_owned()].into_iter().chain(names).collect::<Vec<String>>()
    };
    let without = ["PUBSUB CHANNELS zz", "CLIENT INFO", "PUBLISH  x"].map(|text| work_of(2, &line(text)));
    for word in ["SUBSCRIBE", "PSUBSCRIBE"] {
        work_of(2, &line("HELLO 3"));
        work_of(2, &many(word));
    }
    let with = ["PUBSUB CHANNELS zz", "CLIENT INFO", "PUBLISH  x"].map(|text| work_of(2, &line(text)));
    let added = |place: usize| (with[place] - without[place]) / COUNT as u64;
    assert!(added(0) >= 50 && added(2) >= 10, "{without:?}, {with:?}");
    assert_eq!(with[1], without[1], "what a client listens to is counted already");
    assert!(work_of(2, &line("PUNSUBSCRIBE")) >= 400 * COUNT as u64);

    let prefixes = (0..COUNT).flat_map(|number| ["PREFIX".to_owned(), format!("prefix {number:03}")]);
    let all: Vec<String> = line("CLIENT TRACKING ON BCAST").into_iter().chain(prefixes).collect();
    work_of(1, &line("HELLO 3"));
    let first = work_of(1, &all);
    let next = work_of(1, &line("CLIENT TRACKING ON BCAST PREFIX new"));
    assert!(next >= 200 * COUNT as u64, "{first} at first, then {next}");
}
