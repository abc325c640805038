//! The same random requests to a Redis server of this machine and to this crate; the replies must be
//! the same, byte by byte.
//!
//! The server listens on a Unix socket of its own, so that no two tests meet. `TIERSTONE_REDIS_SERVER` names its
//! program (default: `redis-server`). Where there is none the test says so and passes.

use crate::support;
use crate::support::both::{Both, wall_ms};
use crate::support::random_requests::{is_outside_transactions, request, words};
use std::collections::BTreeSet;
use tierstone_base::SeededRandom;
use tierstone_wire::resp::Value;

/// Replies that differ on purpose; `docs/redis-compatibility.md` says why.
fn is_expected_difference(line: &str, redis: &[u8], own: &[u8]) -> bool {
    let upper = line.to_ascii_uppercase();
    let starts = |prefix: &str| upper.starts_with(prefix);
    // Another id, version and set of modules.
    if starts("HELLO") && redis.first() == own.first() && !redis.starts_with(b"-") {
        return true;
    }
    // Redis shares the objects of small integers.
    if starts("OBJECT REFCOUNT") && redis == b":2147483647\r\n" {
        return true;
    }
    // The two servers have looked at their clocks one after the other.
    let number =
        |reply: &[u8]| String::from_utf8_lossy(reply).trim_start_matches(':').trim().parse::<i64>().ok();
    let is_time = starts("PEXPIRETIME") || starts("EXPIRETIME");
    is_time
        && number(redis).zip(number(own)).is_some_and(|(redis, own)| redis > 0 && (redis - own).abs() < 500)
}

/// Whether Redis answers a request otherwise before version 8.
fn is_since_redis_8(upper: &str) -> bool {
    let starts = |prefix: &str| upper.starts_with(prefix);
    let is_wrong =
        upper.split(' ').any(|word| matches!(word, "X" | "FOO" | "2")) || upper.contains("4294967295000");
    starts("CLIENT SETINFO")
        || starts("CLIENT NO-TOUCH")
        || starts("COMMAND GETKEYS")
        || starts("SCAN")
        || is_wrong && (starts("BITCOUNT") || starts("BITPOS"))
}

/// Sends random requests to both; what differed. After a difference both begin anew.
fn compare(seed: u64, requests: u32, both: &mut Both) -> Vec<String> {
    let mut differences = Vec::new();
    let mut random = SeededRandom::new(seed);
    both.renew(1);
    let mut transcript: Vec<String> = Vec::new();
    let mut in_transaction = false;
    let is_old = both.is_before_8();
    for _ in 0..requests {
        let line = request(&mut random);
        let upper = line.to_ascii_uppercase();
        if in_transaction && is_outside_transactions(&upper) || is_old && is_since_redis_8(&upper) {
            continue;
        }
        let (expected, got) = both.call(&words(&line));
        transcript.push(line.clone());
        if expected != got && !is_expected_difference(&line, &expected, &got) {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace("\r\n", " ");
            differences.push(format!(
                "seed {seed}: {line}\n    redis: {}\n    here:  {}\n    after: {}",
                text(&expected),
                text(&got),
                transcript
                    .iter()
                    .rev()
                    .skip(1)
                    .take(shown_before())
                    .rev()
                    .cloned()
                    .collect::<Vec<_>>()
                    .join(" | ")
            ));
            let keys = both.call(&words("KEYS *"));
            differences.push(format!(
                "    keys of redis: {}\n    keys here:  {}",
                text(&keys.0),
                text(&keys.1)
            ));
            both.renew(1);
            in_transaction = false;
            transcript.clear();
            continue;
        }
        match upper.as_str() {
            "MULTI" => in_transaction = true,
            "EXEC" | "DISCARD" => in_transaction = false,
            _ => {}
        }
    }
    differences
}

/// How many requests before a difference are shown.
fn shown_before() -> usize {
    std::env::var("TIERSTONE_COMPARISON_SHOWN").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

#[test]
fn random_requests_are_answered_as_redis_answers_them() {
    let Some(mut both) = Both::start() else { return };
    let seeds = std::env::var("TIERSTONE_COMPARISON_SEEDS").ok().and_then(|text| text.parse().ok());
    let mut differences = Vec::new();
    let first = std::env::var("TIERSTONE_COMPARISON_SEED").ok().and_then(|text| text.parse().ok());
    for seed in first.unwrap_or(0)..first.unwrap_or(0) + seeds.unwrap_or(20) {
        differences.extend(compare(seed, 1_500, &mut both));
    }
    let shown = differences.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{} differences:\n{shown}", differences.len());
}

/// A request over values of some megabytes.
fn large_request(random: &mut SeededRandom) -> Vec<Vec<u8>> {
    let pick = |random: &mut SeededRandom, words: &[&str]| {
        words[random.below(words.len() as u64) as usize].as_bytes().to_vec()
    };
    let keys = ["a", "b", "{a}c", "d"];
    let (one, two, three) = (pick(random, &keys), pick(random, &keys), pick(random, &keys));
    let len = [30, 70_000, 1_100_000, 2_500_000, 4_300_000][random.below(5) as usize];
    let mut value = vec![[0, 0xff, 0x5a][random.below(3) as usize]; len];
    for _ in 0..random.below(9) {
        let at = random.below(len as u64) as usize;
        let end = len.min(at + random.below(200_000) as usize);
        value[at..end].fill(random.next_u64() as u8);
    }
    let place = |random: &mut SeededRandom| {
        let place = random.below(5_000_000) as i64;
        (if random.chance(0.3) { -place } else { place }).to_string().into_bytes()
    };
    let (from, to) = (place(random), place(random));
    let name = |name: &str| name.as_bytes().to_vec();
    match random.below(16) {
        0..=2 => vec![name("SET"), one, value],
        3 => vec![name("APPEND"), one, value],
        4 => vec![name("SETRANGE"), one, random.below(3_000_000).to_string().into_bytes(), value],
        5 => vec![name("GET"), one],
        6 => vec![name("GETRANGE"), one, from, to],
        7 => vec![name("BITCOUNT"), one],
        8 => vec![name("BITCOUNT"), one, from, to, pick(random, &["BIT", "BYTE"])],
        9 => vec![name("BITPOS"), one, pick(random, &["0", "1"]), from],
        10 => vec![name("BITPOS"), one, pick(random, &["0", "1"]), from, to, pick(random, &["BIT", "BYTE"])],
        11 => vec![name("BITOP"), pick(random, &["AND", "OR", "XOR"]), one, two, three],
        12 => vec![name("BITOP"), name("NOT"), one, two],
        13 => vec![name("RENAME"), one, two],
        14 => vec![pick(random, &["RENAMENX", "COPY"]), one, two],
        _ => vec![pick(random, &["STRLEN", "EXISTS", "DEL"]), one],
    }
}

#[test]
fn requests_over_large_values_are_answered_as_redis_answers_them() {
    let Some(mut both) = Both::start() else { return };
    for (seed, shards) in (40..44).zip([1, 3].into_iter().cycle()) {
        let mut random = SeededRandom::new(seed);
        both.renew(shards);
        for number in 0..60 {
            let request = large_request(&mut random);
            let (expected, got) = both.call(&request);
            let shown: Vec<String> = request
                .iter()
                .map(|word| String::from_utf8_lossy(&word[..word.len().min(30)]).into_owned())
                .collect();
            let same = expected == got;
            let start = |reply: &[u8]| String::from_utf8_lossy(&reply[..reply.len().min(60)]).into_owned();
            assert!(
                same,
                "seed {seed}, request {number}: {shown:?}\n    redis: {} ({} bytes)\n    here:  {} ({} bytes)",
                start(&expected),
                expected.len(),
                start(&got),
                got.len()
            );
        }
    }
}

/// Arity, flags, key positions and categories of a command.
type Essence = (i64, BTreeSet<String>, [i64; 3], BTreeSet<String>);

fn essence(info: &Value) -> Option<Essence> {
    let items = info.items()?;
    let number = |index: usize| items.get(index).and_then(Value::integer);
    let names = |index: usize| {
        let words = items.get(index).and_then(Value::items).unwrap_or_default().iter();
        words.filter_map(|word| Some(String::from_utf8_lossy(word.bytes()?).into_owned())).collect()
    };
    Some((number(1)?, names(2), [number(3)?, number(4)?, number(5)?], names(6)))
}

/// The key specifications of a command: flags, index of the first key, last key, step.
type Specs = Vec<(BTreeSet<String>, Vec<i64>)>;

/// The numbers in a value, in their order.
fn numbers(value: &Value) -> Vec<i64> {
    match (value.integer(), value.items()) {
        (Some(number), _) => vec![number],
        (_, Some(items)) => items.iter().flat_map(numbers).collect(),
        _ => Vec::new(),
    }
}

fn specs(info: &Value) -> Option<Specs> {
    let specs = info.items()?.get(8)?.items()?;
    let text = |value: &Value| String::from_utf8_lossy(value.bytes().unwrap_or_default()).into_owned();
    let one = |spec: &Value| {
        let fields = spec.items()?;
        let value = |name: &str| {
            let place = fields.iter().step_by(2).position(|field| text(field) == name)?;
            fields.get(2 * place + 1)
        };
        let flags = value("flags")?.items()?.iter().map(text).collect();
        Some((flags, [numbers(value("begin_search")?), numbers(value("find_keys")?)].concat()))
    };
    specs.iter().map(one).collect()
}

#[test]
fn what_commands_do_with_their_keys_is_told_as_redis_tells_it() {
    let Some(mut both) = Both::start() else { return };
    let mut compared = 0;
    for command in tierstone_redis::table::commands() {
        for command in std::iter::once(command).chain(command.subcommands) {
            let (expected, got) = both.ask(&format!("COMMAND INFO {}", command.name));
            let of = |value: &Value| value.items().and_then(|items| specs(items.first()?));
            // What an older Redis does not know, and what has a meaning of its own here.
            if command.name.starts_with("debug|") || of(&expected).is_none() {
                continue;
            }
            assert_eq!(of(&got), of(&expected), "{}", command.name);
            compared += 1;
        }
    }
    assert!(compared > 60, "only {compared} commands were compared");
    for request in [
        "SET a b",
        "SET a b GET",
        "SET a b NX EX 10 GET",
        "BITFIELD k GET u8 0",
        "BITFIELD k SET u8 0 1",
        "BITFIELD k GET u8 0 OVERFLOW SAT",
        "BITOP AND d a b c",
        "MSET a 1 b 2",
        "COPY a b",
        "RENAME a b",
        "DEL a b c",
        "GETEX a",
        "GETDEL a",
        "OBJECT ENCODING a",
        "STRLEN a",
        "LCS a b",
    ] {
        let (expected, got) = both.ask(&format!("COMMAND GETKEYSANDFLAGS {request}"));
        assert_eq!(got, expected, "{request}");
    }
}

#[test]
fn the_table_of_commands_is_that_of_redis() {
    let Some(mut both) = Both::start() else { return };
    if both.is_before_8() {
        println!("SKIP: comparison of the command table (the Redis server is older than 8)");
        return;
    }
    // Not in Redis (Valkey's), or with a meaning of its own here.
    let differing = ["delifeq", "msetex", "debug", "wait", "bgsave", "save", "function"];
    for command in tierstone_redis::table::commands() {
        for command in std::iter::once(command).chain(command.subcommands) {
            let family = command.name.split('|').next().unwrap_or_default();
            if differing.contains(&family) {
                continue;
            }
            let (expected, got) = both.ask(&format!("COMMAND INFO {}", command.name));
            let first = |value: &Value| value.items().and_then(|items| essence(&items[0]));
            assert_eq!(first(&got), first(&expected), "{}", command.name);
        }
    }
}

#[test]
fn dumps_are_restored_by_redis_and_those_of_redis_here() {
    let Some(Both { mut peer, mut own, id, redis: _redis }) = Both::start() else { return };
    own.now.wall_ms = wall_ms();
    let mut random = SeededRandom::new(5);
    let mut values: Vec<Vec<u8>> =
        ["", "a", "0", "-1", "127", "-32768", "65536", "2147483647", "2147483648", "007"]
            .map(|text| text.as_bytes().to_vec())
            .to_vec();
    for len in [20, 63, 64, 65, 300, 16_383, 16_384, 60_000] {
        let mut noise = vec![0; len];
        random.fill(&mut noise);
        // Redis compresses the other two: short and long copies, near and far ones.
        let text: Vec<u8> = (0..len).map(|place| b"some words come again "[place * place / 7 % 22]).collect();
        values.extend([noise, vec![b'z'; len], text]);
    }
    for value in values {
        let words = |list: &[&[u8]]| list.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
        let bulk = |reply: &[u8]| support::parse_all(reply)[0].bytes().map(<[u8]>::to_vec).unwrap();
        peer.call(&words(&[b"SET", b"k", &value]));
        own.call(id, &[b"SET", b"k", &value]);
        let of_redis = bulk(&peer.call(&words(&[b"DUMP", b"k"])));
        let of_own = own.call(id, &[b"DUMP", b"k"]).bytes().unwrap().to_vec();
        let shown = String::from_utf8_lossy(&value[..value.len().min(40)]).into_owned();
        let restore = |payload: &[u8]| words(&[b"RESTORE", b"copy", b"0", payload, b"REPLACE"]);
        assert_eq!(peer.call(&restore(&of_own)), b"+OK\r\n", "{shown}");
        assert_eq!(bulk(&peer.call(&words(&[b"GET", b"copy"]))), value, "{shown}");
        assert!(own.call(id, &[b"RESTORE", b"copy", b"0", &of_redis, b"REPLACE"]).is_ok(), "{shown}");
        assert_eq!(own.call(id, &[b"GET", b"copy"]).bytes(), Some(value.as_slice()), "{shown}");
    }
    // What is wrong is refused in the same words.
    let of_list = {
        peer.call(&words("RPUSH list a b"));
        support::parse_all(&peer.call(&words("DUMP list")))[0].bytes().unwrap().to_vec()
    };
    let own_error = own.call(id, &[b"RESTORE", b"new", b"0", &of_list]);
    assert_eq!(own_error.error().as_deref(), Some("ERR Bad data format"), "there are no lists here");
    for line in [
        "RESTORE k 0 x",
        "RESTORE new -1 x",
        "RESTORE new y x",
        "RESTORE new 0 x",
        "RESTORE new 0 x FOO",
        "RESTORE new 0 x IDLETIME -1",
        "RESTORE new 0 x IDLETIME",
        "RESTORE new 0 x FREQ 256",
        "DUMP none",
        "RESTORE new 0 x IDLETIME 1 FREQ 1",
    ] {
        let request = words(line);
        let slices: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        assert_eq!(own.raw(id, &slices), peer.call(&request), "{line}");
    }
}

/// Rules of users, right and wrong ones; those in parentheses are several words of a request.
const RULES: &[&str] = &[
    "on",
    "ON",
    "off",
    "nopass",
    "resetpass",
    ">one",
    ">one",
    ">two",
    "<one",
    "<two",
    "!abc",
    "#00",
    "#7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed",
    "~a*",
    "~b",
    "%R~c*",
    "%W~c*",
    "%RW~d?",
    "%r~e",
    "%X~f",
    "%R",
    "%~f",
    "~*",
    "allkeys",
    "resetkeys",
    "resetkeys",
    "&x*",
    "&y",
    "&*",
    "allchannels",
    "resetchannels",
    "resetchannels",
    "+get",
    "-get",
    "+GET",
    "+set",
    "+@read",
    "-@write",
    "+@all",
    "-@all",
    "allcommands",
    "nocommands",
    "+@string",
    "-@fast",
    "+@hash",
    "-@dangerous",
    "-@nosuch",
    "+config",
    "-config|set",
    "+config|get",
    "+Config|Get",
    "+config|foo",
    "+config|get|x",
    "+get|",
    "+|",
    "+select|0",
    "-select",
    "+select",
    "+select|1",
    "+SELECT|0",
    "-select|0",
    "+client",
    "-client|kill",
    "+client|id",
    "+object|encoding",
    "-object",
    "-@keyspace",
    "+@connection",
    "+@pubsub",
    "+subscribe",
    "+nosuch",
    "-nosuch",
    "reset",
    "sanitize-payload",
    "skip-sanitize-payload",
    "(+get ~s*)",
    "(+set",
    "~t* &z)",
    "(~u",
    "+mget -get)",
    "clearselectors",
    "(%W~u +set +@nosuch)",
    "+acl|whoami",
    "FOO",
    "-@admin",
    "+bitop",
    "+bitfield",
    "\"\"",
    "(",
    ")",
    "()",
    "+ping|hello",
    "-ping",
    "+@transaction",
];

/// Requests that a user may or may not make.
const DRY: &[&str] = &[
    "GET %k",
    "get %k",
    "SET %k v",
    "SET %k v GET",
    "MGET %k %k",
    "MSET %k 1 %k 2",
    "DEL %k %k",
    "EXISTS %k",
    "STRLEN %k",
    "COPY %k %k",
    "RENAME %k %k",
    "BITOP AND %k %k %k",
    "BITFIELD %k GET u8 0",
    "BITFIELD %k SET u8 0 1",
    "APPEND %k x",
    "GETDEL %k",
    "PING",
    "PING hello",
    "PING other",
    "SELECT 0",
    "SELECT 1",
    "CONFIG GET x",
    "CONFIG SET x y",
    "CONFIG",
    "CONFIG FOO",
    "CLIENT ID",
    "CLIENT KILL x",
    "OBJECT ENCODING %k",
    "SUBSCRIBE %c %c",
    "PSUBSCRIBE %c",
    "SSUBSCRIBE %c",
    "PUBLISH %c x",
    "SPUBLISH %c x",
    "UNSUBSCRIBE %c",
    "AUTH x",
    "HELLO 3",
    "RESET",
    "MULTI",
    "EXEC",
    "WATCH %k",
    "DBSIZE",
    "KEYS x",
    "SCAN 0",
    "FLUSHALL",
    "ACL WHOAMI",
    "ACL LIST",
    "EXPIRE %k 1",
    "TTL %k",
    "TYPE %k",
    "TOUCH %k",
    "GET",
    "NOSUCH x",
    "SETRANGE %k 0 x",
    "INCR %k",
    "LCS %k %k",
    "DUMP %k",
    "MEMORY USAGE %k",
    "COMMAND GETKEYS GET %k",
];

/// One of `choices` with keys and channels filled in.
fn filled(random: &mut SeededRandom, choices: &[&str]) -> String {
    const KEYS: [&str; 10] = ["a1", "b", "c", "d1", "e", "s", "t", "u", "ab", "zz"];
    const CHANNELS: [&str; 6] = ["x1", "y", "z", "x*", "other", "&"];
    let mut line = choices[random.below(choices.len() as u64) as usize].to_owned();
    while let Some(at) = line.find("%k") {
        line.replace_range(at..at + 2, KEYS[random.below(10) as usize]);
    }
    while let Some(at) = line.find("%c") {
        line.replace_range(at..at + 2, CHANNELS[random.below(6) as usize]);
    }
    line
}

/// Random rules and requests of users; ends at the first difference.
fn compare_users(seed: u64, both: &mut Both) {
    let mut random = SeededRandom::new(seed);
    both.peer.call(&words("ACL DELUSER ann bob"));
    both.peer.call(&words("ACL LOG RESET"));
    let mut peer = both.redis.connect();
    let mut id = both.own.connect();
    let mut transcript = Vec::new();
    for _ in 0..400 {
        let user = ["ann", "bob"][random.below(2) as usize];
        let mut lines = Vec::new();
        let rules: Vec<String> = (0..1 + random.below(6)).map(|_| filled(&mut random, RULES)).collect();
        match random.below(40) {
            0 => lines.push(format!("ACL DELUSER {user} x")),
            _ => lines.push(format!("ACL SETUSER {user} {}", rules.join(" "))),
        }
        lines.extend(["ACL LIST", "ACL USERS"].map(str::to_owned));
        lines.extend([format!("ACL GETUSER {user}"), "ACL GETUSER nobody".into()]);
        lines.extend((0..8).map(|_| format!("ACL DRYRUN {user} {}", filled(&mut random, DRY))));
        for line in lines {
            let (expected, got) = both.call(&words(&line));
            transcript.push(line);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let so_far = transcript.iter().rev().filter(|line| !line.contains("DRYRUN")).take(8);
            assert_eq!(
                text(&got),
                text(&expected),
                "seed {seed}: here, in Redis; {:?}",
                so_far.collect::<Vec<_>>()
            );
        }
        // A connection of a user who is gone has ended.
        if both.own.is_closed(id) {
            (peer, id) = (both.redis.connect(), both.own.connect());
        }
        let mut lines = vec!["DISCARD".into(), format!("AUTH {user} one"), format!("AUTH {user} two")];
        lines.extend((0..6).map(|_| filled(&mut random, SAFE)));
        let mut in_transaction = false;
        for line in lines {
            if in_transaction && is_outside_transactions(&line) {
                continue;
            }
            in_transaction = line == "MULTI" || in_transaction && line != "EXEC" && line != "DISCARD";
            let request = words(&line);
            let expected = peer.call(&request);
            let slices: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
            let got = both.own.raw(id, &slices);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(
                text(&got),
                text(&expected),
                "seed {seed}: here, in Redis; {line} of {user}, {:?}",
                transcript.last()
            );
        }
    }
}

/// Requests whose replies are the same on both servers whoever makes them.
const SAFE: &[&str] = &[
    "GET %k",
    "SET %k v",
    "SET %k v GET",
    "MGET %k %k",
    "DEL %k",
    "EXISTS %k %k",
    "STRLEN %k",
    "APPEND %k x",
    "COPY %k %k",
    "PING",
    "PING hello",
    "SELECT 0",
    "CONFIG GET databases",
    "PUBLISH %c x",
    "MULTI",
    "EXEC",
    "EXEC",
    "DISCARD",
    "WATCH %k",
    "ACL WHOAMI",
    "RESET",
    "AUTH nobody x",
    "CLIENT GETNAME",
    "OBJECT FOO",
    "BITOP NOT %k %k",
    "BITFIELD %k GET u8 0",
    "HELLO 2 AUTH nobody x",
    "GET",
];

#[test]
fn users_may_do_what_they_may_do_in_redis() {
    let Some(mut both) = Both::start() else { return };
    let seeds = std::env::var("TIERSTONE_COMPARISON_SEEDS").ok().and_then(|text| text.parse().ok());
    for (seed, shards) in (0..seeds.unwrap_or(6)).zip([1, 3].into_iter().cycle()) {
        both.renew(shards);
        compare_users(seed, &mut both);
    }
}
