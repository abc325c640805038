//! `CLIENT TRACKING`: who is told what, when, and that no copy outlives the value that it is of.

use crate::support;
use crate::support::Server;
use crate::support::both::Both;
use crate::support::fetching_engine::{FetchingEngine, Trouble};
use crate::support::random_requests::words;
use std::collections::BTreeMap;
use tierstone_base::SeededRandom;
use tierstone_engine::Engine;
use tierstone_engine::map_engine::MapEngine;
use tierstone_redis::ConnectionId;
use tierstone_wire::resp::Value;

fn server(shards: usize) -> Server<MapEngine> {
    Server::new((0..shards).map(|_| MapEngine::new(0)))
}

/// A connection that speaks protocol 3 and has sent these requests.
fn client<E: Engine>(server: &mut Server<E>, requests: &[&str]) -> ConnectionId {
    let id = server.connect();
    server.line(id, "HELLO 3");
    for request in requests {
        let answer = server.line(id, request);
        assert!(answer.starts_with("+OK"), "{request}: {answer}");
    }
    id
}

/// What a connection has got without asking, with spaces for line ends.
fn heard<E: Engine>(server: &mut Server<E>, id: ConnectionId) -> String {
    for _ in 0..30 {
        server.step();
    }
    String::from_utf8_lossy(&server.take_received(id)).replace("\r\n", " ").trim_end().to_owned()
}

/// The message that these keys are stale.
fn stale(keys: &[&str]) -> String {
    let keys: String = keys.iter().map(|key| format!(" ${} {key}", key.len())).collect();
    format!(">2 $10 invalidate *{}{keys}", keys.matches('$').count())
}

#[test]
fn a_client_is_told_once_that_a_key_which_it_has_read_was_changed() {
    for shards in [1, 3] {
        let mut server = server(shards);
        let (reader, writer) = (client(&mut server, &["CLIENT TRACKING ON"]), server.connect());
        server.check(writer, &[("SET a 1", "+OK"), ("SET b 1", "+OK")]);
        assert_eq!(heard(&mut server, reader), "", "nothing was read");
        server.check(reader, &[("GET a", "$1 1"), ("GET none", "_"), ("STRLEN b", ":1")]);
        server.check(writer, &[("SET a 2", "+OK"), ("SET a 3", "+OK"), ("SET none x", "+OK")]);
        assert_eq!(heard(&mut server, reader), format!("{} {}", stale(&["a"]), stale(&["none"])));
        server.check(writer, &[("APPEND b x", ":2"), ("DEL a", ":1")]);
        assert_eq!(heard(&mut server, reader), stale(&["b"]), "a was not read again");
    }
}

#[test]
fn every_kind_of_change_is_told() {
    for shards in [1, 3] {
        let mut server = server(shards);
        let (reader, writer) = (client(&mut server, &["CLIENT TRACKING ON"]), server.connect());
        for (before, change, keys) in [
            ("SET a 1", "DEL a", "a"),
            ("SET a 1", "UNLINK a", "a"),
            ("SET a 1", "INCR a", "a"),
            ("SET a 1", "SETBIT a 1 1", "a"),
            ("SET a 1", "GETDEL a", "a"),
            ("SET a 1", "GETSET a 2", "a"),
            ("SET a 1", "EXPIRE a 100", "a"),
            ("SET a 1 EX 100", "PERSIST a", "a"),
            ("SET a 1 EX 100", "GETEX a PERSIST", "a"),
            ("SET a 1", "RENAME a b", "a b"),
            ("SET a 1", "COPY a b REPLACE", "b"),
            ("SET a 1", "MOVE a 3", "a"),
            ("SET a 1", "MSET a 2 b 3 c 4", "a b c"),
            ("MSET a 1 b 2", "DEL a b c", "a b"),
            ("SET b 1", "BITOP NOT a b", "a"),
            ("DEL a b c", "MSETNX a 1 b 1 c 1", "a b c"),
        ] {
            server.line(writer, "FLUSHALL");
            server.line(writer, before);
            server.line(reader, "MGET a b c");
            heard(&mut server, reader);
            let answer = server.line(writer, change);
            assert!(!answer.starts_with('-'), "{change}: {answer}");
            let told = heard(&mut server, reader);
            let mut told: Vec<&str> = told.split(">2 $10 invalidate *1 $1 ").map(str::trim).collect();
            told.sort_unstable();
            assert_eq!(told.join(" ").trim(), keys, "{change} over {shards} shards");
        }
    }
}

#[test]
fn what_expires_is_told_without_anybody_looking() {
    for shards in [1, 2] {
        let mut server = server(shards);
        let reader = client(&mut server, &["CLIENT TRACKING ON"]);
        let broad = client(&mut server, &["CLIENT TRACKING ON BCAST PREFIX a"]);
        let writer = server.connect();
        server.check(writer, &[("SET a 1 PX 50", "+OK"), ("SET b 1 PX 50", "+OK"), ("SET c 1", "+OK")]);
        assert_eq!(heard(&mut server, broad), stale(&["a"]));
        server.check(reader, &[("GET a", "$1 1"), ("GET b", "$1 1"), ("GET c", "$1 1")]);
        server.now.wall_ms += 49;
        assert_eq!(heard(&mut server, reader), "");
        server.now.wall_ms += 1;
        let told = heard(&mut server, reader);
        assert!(told.contains(&stale(&["a"])) && told.contains(&stale(&["b"])), "{told}");
        assert_eq!(heard(&mut server, broad), stale(&["a"]));
        server.check(reader, &[("GET a", "_"), ("GET c", "$1 1")]);
        let wanted = server.executors.iter().filter_map(|executor| executor.next_step_at_us()).min();
        assert!(wanted.is_none_or(|at_us| at_us > server.now.monotonic_us), "nothing is left to look for");
    }
}

#[test]
fn emptying_and_swapping_databases_makes_everything_stale() {
    for shards in [1, 3] {
        let mut server = server(shards);
        let reader = client(&mut server, &["CLIENT TRACKING ON NOLOOP"]);
        let broad = client(&mut server, &["CLIENT TRACKING ON BCAST PREFIX zzz"]);
        let quiet = client(&mut server, &[]);
        for change in ["FLUSHDB", "FLUSHALL", "SWAPDB 0 1"] {
            server.line(reader, "GET a");
            server.check(quiet, &[(change, "+OK")]);
            assert_eq!(heard(&mut server, reader), ">2 $10 invalidate _", "{change}");
            assert_eq!(heard(&mut server, broad), ">2 $10 invalidate _", "{change}");
            assert_eq!(heard(&mut server, quiet), "");
            // The notes of before are forgotten.
            server.check(quiet, &[("SET a 1", "+OK")]);
            assert_eq!(heard(&mut server, reader), "");
        }
        let answer = server.line(reader, "FLUSHALL");
        let rest = heard(&mut server, reader);
        assert_eq!(format!("{answer} {rest}").trim_end(), "+OK >2 $10 invalidate _", "behind the reply");
    }
}

#[test]
fn prefixes_are_told_of_all_changes_at_once_and_must_not_overlap() {
    for shards in [1, 3] {
        let mut server = server(shards);
        let broad = client(&mut server, &["CLIENT TRACKING ON BCAST PREFIX user: PREFIX item:"]);
        let writer = server.connect();
        server.check(writer, &[("MSET user:1 a other b", "+OK")]);
        assert_eq!(heard(&mut server, broad), stale(&["user:1"]));
        server.check(
            broad,
            &[
                (
                    "CLIENT TRACKING ON BCAST PREFIX us",
                    "-ERR Prefix 'us' overlaps with an existing prefix 'user:'. Prefixes for a single client must not overlap.",
                ),
                (
                    "CLIENT TRACKING ON BCAST PREFIX x PREFIX xy",
                    "-ERR Prefix 'x' overlaps with another provided prefix 'xy'. Prefixes for a single client must not overlap.",
                ),
                (
                    "CLIENT TRACKING ON",
                    "-ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.",
                ),
                ("CLIENT TRACKING ON BCAST PREFIX more:", "+OK"),
                (
                    "CLIENT TRACKINGINFO",
                    "%3 $5 flags ~2 $2 on $5 bcast $8 redirect :0 $8 prefixes *3 $5 item: $5 more: $5 user:",
                ),
            ],
        );
        server.check(writer, &[("SET more:1 x", "+OK"), ("GET more:1", "$1 x")]);
        assert_eq!(heard(&mut server, broad), stale(&["more:1"]));
        server.check(broad, &[("CLIENT TRACKING OFF", "+OK")]);
        server.check(writer, &[("SET more:1 x", "+OK")]);
        assert_eq!(heard(&mut server, broad), "");
        let info = server.line(writer, "INFO stats");
        assert!(info.contains("tracking_total_prefixes:0"), "{info}");
    }
}

#[test]
fn who_does_not_listen_to_itself_is_told_of_others_only() {
    for shards in [1, 3] {
        let mut server = server(shards);
        let reader = client(&mut server, &["CLIENT TRACKING ON NOLOOP"]);
        let loud = client(&mut server, &["CLIENT TRACKING ON"]);
        let broad = client(&mut server, &["CLIENT TRACKING ON BCAST NOLOOP"]);
        for id in [reader, loud] {
            server.line(id, "MGET a b c d");
        }
        server.check(reader, &[("SET a 1", "+OK"), ("MSET b 1 c 1", "+OK")]);
        assert_eq!(heard(&mut server, reader), "");
        assert_eq!(heard(&mut server, loud).matches("invalidate").count(), 3);
        let told = heard(&mut server, broad);
        assert!(["a", "b", "c"].iter().all(|key| told.contains(&format!("$1 {key}"))), "{told}");
        server.check(broad, &[("SET d 1", "+OK")]);
        assert_eq!(heard(&mut server, broad), "");
        assert_eq!(heard(&mut server, reader), stale(&["d"]));
        assert_eq!(heard(&mut server, loud), stale(&["d"]));
        server.check(loud, &[("GET e", "_")]);
        let (answer, rest) = (server.line(loud, "SET e 1"), heard(&mut server, loud));
        assert_eq!(format!("{answer} {rest}").trim_end(), format!("+OK {}", stale(&["e"])));
    }
}

#[test]
fn reads_are_noted_when_the_client_asks_for_it() {
    for shards in [1, 3] {
        let mut server = server(shards);
        let wary = client(&mut server, &["CLIENT TRACKING ON OPTIN"]);
        let eager = client(&mut server, &["CLIENT TRACKING ON OPTOUT"]);
        let writer = server.connect();
        server.check(
            wary,
            &[
                ("GET a", "_"),
                ("CLIENT CACHING YES", "+OK"),
                ("CLIENT GETNAME", "_"),
                ("GET b", "_"),
                ("GET c", "_"),
                ("CLIENT CACHING YES", "+OK"),
                ("MULTI", "+OK"),
                ("GET d", "+QUEUED"),
                ("GET e", "+QUEUED"),
                ("EXEC", "*2 _ _"),
                ("MULTI", "+OK"),
                ("GET f", "+QUEUED"),
                ("EXEC", "*1 _"),
                (
                    "CLIENT CACHING NO",
                    "-ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
                ),
                ("CLIENT CACHING MAYBE", "-ERR syntax error"),
            ],
        );
        server.check(eager, &[("GET a", "_"), ("CLIENT CACHING NO", "+OK"), ("GET b", "_"), ("GET c", "_")]);
        for key in ["a", "b", "c", "d", "e", "f"] {
            server.check(writer, &[(&format!("SET {key} 1"), "+OK")]);
        }
        assert_eq!(heard(&mut server, wary), [stale(&["b"]), stale(&["d"]), stale(&["e"])].join(" "));
        assert_eq!(heard(&mut server, eager), [stale(&["a"]), stale(&["c"])].join(" "));
    }
}

#[test]
fn a_redirected_client_is_told_on_the_other_connection() {
    for shards in [1, 3] {
        let mut server = server(shards);
        let (data, writer) = (server.connect(), server.connect());
        let listener = server.connect();
        let modern = client(&mut server, &[]);
        server.check(
            data,
            &[
                ("CLIENT TRACKING ON REDIRECT 999", "-ERR The client ID you want redirect to does not exist"),
                ("CLIENT GETREDIR", ":-1"),
                (&format!("CLIENT TRACKING ON REDIRECT {listener}"), "+OK"),
                ("CLIENT GETREDIR", &format!(":{listener}")),
                ("GET a", "$-1"),
                ("GET b", "$-1"),
            ],
        );
        server.line(listener, "SUBSCRIBE __redis__:invalidate");
        server.check(writer, &[("SET a 1", "+OK")]);
        assert_eq!(heard(&mut server, listener), "*3 $7 message $20 __redis__:invalidate *1 $1 a");
        assert_eq!(heard(&mut server, data), "");
        server.check(writer, &[("FLUSHALL", "+OK")]);
        assert_eq!(heard(&mut server, listener), "*3 $7 message $20 __redis__:invalidate $-1");
        server.check(data, &[(&format!("CLIENT TRACKING ON REDIRECT {modern}"), "+OK"), ("GET b", "$-1")]);
        server.check(writer, &[("SET b 1", "+OK")]);
        assert_eq!(heard(&mut server, modern), stale(&["b"]));
        let list = server.line(writer, "CLIENT LIST");
        let line = list.lines().find(|line| line.starts_with(&format!("id={data} "))).unwrap_or(&list);
        assert!(line.contains(&format!("redir={modern}")) && line.contains("flags=t"), "{list}");
    }
}

#[test]
fn a_broken_redirection_is_told_and_shown() {
    for shards in [1, 3] {
        let mut server = server(shards);
        let (data, writer, other) = (client(&mut server, &[]), server.connect(), server.connect());
        server.check(data, &[(&format!("CLIENT TRACKING ON REDIRECT {other}"), "+OK"), ("GET a", "_")]);
        server.disconnect(other);
        server.check(writer, &[("SET a 1", "+OK")]);
        assert_eq!(heard(&mut server, data), format!(">2 $21 tracking-redir-broken :{other}"));
        server.check(
            data,
            &[
                (
                    "CLIENT TRACKINGINFO",
                    &format!("%3 $5 flags ~2 $2 on $15 broken_redirect $8 redirect :{other} $8 prefixes *0"),
                ),
                ("CLIENT TRACKING ON", "+OK"),
                ("CLIENT TRACKINGINFO", "%3 $5 flags ~1 $2 on $8 redirect :0 $8 prefixes *0"),
                ("GET a", "$1 1"),
            ],
        );
        server.check(writer, &[("SET a 2", "+OK")]);
        assert_eq!(heard(&mut server, data), stale(&["a"]));
    }
}

#[test]
fn options_that_do_not_go_together_are_refused_in_the_words_of_redis() {
    let mut server = server(1);
    let id = client(&mut server, &[]);
    server.check(
        id,
        &[
            ("CLIENT TRACKING MAYBE", "-ERR syntax error"),
            ("CLIENT TRACKING ON NONSENSE", "-ERR syntax error"),
            ("CLIENT TRACKING ON PREFIX", "-ERR syntax error"),
            ("CLIENT TRACKING ON PREFIX a", "-ERR PREFIX option requires BCAST mode to be enabled"),
            ("CLIENT TRACKING ON REDIRECT x", "-ERR value is not an integer or out of range"),
            ("CLIENT TRACKING ON BCAST OPTIN", "-ERR OPTIN and OPTOUT are not compatible with BCAST"),
            ("CLIENT TRACKING ON OPTIN OPTOUT", "-ERR You can't specify both OPTIN mode and OPTOUT mode"),
            (
                "CLIENT CACHING YES",
                "-ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
            ),
            ("CLIENT TRACKING OFF", "+OK"),
            ("CLIENT TRACKING ON OPTIN", "+OK"),
            ("CLIENT CACHING YES", "+OK"),
            (
                "CLIENT TRACKINGINFO",
                "%3 $5 flags ~3 $2 on $5 optin $11 caching-yes $8 redirect :0 $8 prefixes *0",
            ),
            (
                "CLIENT TRACKING ON OPTOUT",
                "-ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.",
            ),
            ("RESET", "+RESET"),
            ("CLIENT TRACKINGINFO", "*6 $5 flags *1 $3 off $8 redirect :-1 $8 prefixes *0"),
        ],
    );
}

#[test]
fn requests_are_answered_and_refused_as_by_redis() {
    let Some(mut both) = Both::start() else { return };
    for shards in [1, 2] {
        both.renew(shards);
        for line in [
            "CLIENT TRACKING",
            "CLIENT TRACKING MAYBE",
            "CLIENT TRACKING ON NONSENSE",
            "CLIENT TRACKING ON PREFIX a",
            "CLIENT TRACKING ON REDIRECT x",
            "CLIENT TRACKING ON REDIRECT 0",
            "CLIENT TRACKING ON REDIRECT 99999",
            "CLIENT TRACKING ON BCAST OPTIN",
            "CLIENT TRACKING ON OPTIN OPTOUT",
            "CLIENT CACHING YES",
            "CLIENT GETREDIR",
            "CLIENT TRACKING ON OPTIN NOLOOP",
            "CLIENT CACHING NO",
            "CLIENT CACHING YES",
            "CLIENT TRACKINGINFO",
            "GET a",
            "CLIENT TRACKINGINFO",
            "CLIENT GETREDIR",
            "CLIENT TRACKING ON OPTOUT",
            "CLIENT TRACKING OFF",
            "CLIENT TRACKING ON BCAST PREFIX a PREFIX ab",
            "CLIENT TRACKING ON BCAST PREFIX ab PREFIX b",
            "CLIENT TRACKING ON BCAST PREFIX abc",
            "CLIENT TRACKING ON",
            "CLIENT TRACKINGINFO",
            "RESET",
            "CLIENT TRACKINGINFO",
        ] {
            let (expected, got) = both.call(&words(line));
            let text = String::from_utf8_lossy;
            assert_eq!(text(&got), text(&expected), "{line}, {shards} shards");
        }
    }
}

#[test]
fn the_table_is_bounded_and_what_leaves_it_is_told() {
    for shards in [1, 2] {
        let mut server = server(shards);
        let reader = client(&mut server, &["CLIENT TRACKING ON"]);
        for key in 0..20 {
            server.line(reader, &format!("GET {key}"));
        }
        let info = server.line(reader, "INFO");
        assert!(
            info.contains("tracking_total_keys:20") && info.contains("tracking_total_items:20"),
            "{info}"
        );
        assert!(info.contains("tracking_clients:1"), "{info}");
        server.set("tracking-table-max-keys", "4");
        let told = heard(&mut server, reader);
        assert!((16..=18).contains(&told.matches("invalidate").count()), "{told}");
        for key in 20..40 {
            server.line(reader, &format!("GET {key}"));
        }
        let info = server.line(reader, "INFO stats");
        assert!(info.contains("tracking_total_keys:4"), "{info}");
    }
}

#[test]
fn what_a_transaction_reads_and_then_writes_is_told_behind_its_reply() {
    for shards in [1, 3] {
        let mut server = server(shards);
        let (id, writer) = (client(&mut server, &["CLIENT TRACKING ON"]), server.connect());
        for request in ["MULTI", "GET a", "SET a 1", "GET b", "SET c 1", "GET c"] {
            server.line(id, request);
        }
        let answer = server.line(id, "EXEC");
        let rest = heard(&mut server, id);
        let all = format!("{answer} {rest}");
        assert_eq!(all.trim_end(), format!("*5 _ +OK _ +OK $1 1 {}", stale(&["a"])), "{shards} shards");
        for key in ["a", "b", "c"] {
            server.check(writer, &[(&format!("SET {key} 2"), "+OK")]);
        }
        let told = heard(&mut server, id);
        assert!(told.contains("$1 b") && told.contains("$1 c"), "{told}");
    }
}

#[test]
fn tracking_can_begin_and_end_within_a_transaction() {
    for shards in [1, 3] {
        let mut server = server(shards);
        let (reader, writer) = (client(&mut server, &[]), server.connect());
        server.check(writer, &[("MSET a 1 b 1 c 1", "+OK")]);
        let requests = ["MULTI", "CLIENT TRACKING ON NOLOOP", "GET a", "CLIENT GETREDIR", "EXEC"];
        let answers = requests.map(|request| server.line(reader, request));
        assert_eq!(answers[4], "*3 +OK $1 1 :0", "{answers:?}");
        server.check(writer, &[("SET a 2", "+OK"), ("SET b 2", "+OK")]);
        assert_eq!(heard(&mut server, reader), stale(&["a"]), "{shards}: what was read behind it is noted");
        // Redis's words for what does not go together, and everything else is carried out.
        for request in
            ["MULTI", "CLIENT TRACKING ON BCAST", "CLIENT TRACKING MAYBE", "CLIENT TRACKING OFF", "GET b"]
        {
            server.line(reader, request);
        }
        let answer = server.line(reader, "EXEC");
        assert!(
            answer.contains("You can't switch BCAST mode") && answer.contains("syntax error"),
            "{answer}"
        );
        assert!(server.line(reader, "CLIENT TRACKINGINFO").contains("off"));
        server.check(writer, &[("SET b 3", "+OK")]);
        assert_eq!(heard(&mut server, reader), "", "{shards}: it has ended");
        assert!(server.line(writer, "INFO clients").contains("tracking_clients:0"), "{shards}");
        for request in ["MULTI", "CLIENT TRACKING ON OPTIN", "CLIENT CACHING YES", "GET c", "EXEC"] {
            server.line(reader, request);
        }
        server.check(reader, &[("GET b", "$1 3")]);
        server.check(writer, &[("SET b 4", "+OK"), ("SET c 4", "+OK")]);
        assert_eq!(heard(&mut server, reader), stale(&["c"]), "{shards}: only what was asked for");
    }
}

#[test]
fn prefixes_and_redirections_of_a_transaction_need_one_shard() {
    let mut server = self::server(1);
    let (reader, writer, ear) = (client(&mut server, &[]), server.connect(), client(&mut server, &[]));
    let redirect = format!("CLIENT TRACKING ON BCAST PREFIX a REDIRECT {ear}");
    for request in ["MULTI", &redirect, "SET x 1"] {
        server.line(reader, request);
    }
    let answer = server.line(reader, "EXEC");
    assert_eq!(answer, "*2 +OK +OK");
    server.check(writer, &[("SET abc 1", "+OK"), ("SET b 1", "+OK")]);
    assert_eq!(heard(&mut server, ear), stale(&["abc"]));
    for request in ["MULTI", "CLIENT TRACKING OFF", "EXEC"] {
        server.line(reader, request);
    }
    server.check(writer, &[("SET abc 2", "+OK")]);
    assert_eq!(heard(&mut server, ear), "", "nobody follows it any more");
    assert!(server.line(writer, "INFO stats").contains("tracking_total_prefixes:0"));
    let mut server = self::server(3);
    let reader = client(&mut server, &[]);
    for request in ["MULTI", "CLIENT TRACKING ON BCAST", "SET x 1"] {
        server.line(reader, request);
    }
    let answer = server.line(reader, "EXEC");
    let refused = answer.starts_with("*2 -ERR CLIENT TRACKING with BCAST");
    assert!(refused && answer.ends_with("+OK"), "{answer}");
    assert!(server.line(reader, "CLIENT TRACKINGINFO").contains("off"));
}

#[test]
fn nobody_is_told_of_a_write_that_a_crash_can_take_back() {
    for shards in [1, 2] {
        let trouble = Trouble { fetch: 0.0, retry: 0.0, durable: 1.0, ..Trouble::default() };
        let engines = (0..shards).map(|shard| FetchingEngine::new(shard, trouble));
        let mut server = Server::new(engines);
        let (reader, writer) = (client(&mut server, &["CLIENT TRACKING ON"]), server.connect());
        server.check(reader, &[("GET a", "_")]);
        for executor in &mut server.executors {
            executor.shard_mut().engine_mut().set_durable_chance(0.0);
        }
        server.send(writer, &[b"SET", b"a", b"1"]);
        server.offer();
        assert_eq!(heard(&mut server, reader), "");
        for executor in &mut server.executors {
            executor.shard_mut().engine_mut().set_durable_chance(1.0);
        }
        assert_eq!(heard(&mut server, writer), "+OK");
        assert_eq!(heard(&mut server, reader), stale(&["a"]));
    }
}

/// A client that keeps what it reads, as it is told to.
struct Cache {
    id: ConnectionId,
    kept: BTreeMap<Vec<u8>, Value>,
    /// Keys of requests whose answers have not come, in order; none: an answer that is not kept.
    asked: Vec<Vec<Vec<u8>>>,
}

impl Cache {
    fn hear(&mut self, bytes: &[u8]) {
        for value in support::parse_all(bytes) {
            match &value {
                Value::Push(items) => match items[1].items() {
                    None => self.kept.clear(),
                    Some(keys) => keys.iter().for_each(|key| {
                        self.kept.remove(key.bytes().unwrap());
                    }),
                },
                answer => {
                    let keys = self.asked.remove(0);
                    match (keys.as_slice(), answer.items()) {
                        ([], _) => {}
                        ([key], None) => {
                            self.kept.insert(key.clone(), answer.clone());
                        }
                        (keys, Some(values)) => {
                            self.kept.extend(keys.iter().cloned().zip(values.iter().cloned()));
                        }
                        (keys, None) => panic!("{answer:?} to {keys:?}"),
                    }
                }
            }
        }
    }
}

/// One request of random clients: what it reads is to be kept.
fn random_request(random: &mut SeededRandom) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let key = |random: &mut SeededRandom| format!("k{}", random.below(8)).into_bytes();
    let value = random.below(1_000_000).to_string().into_bytes();
    let (first, second) = (key(random), key(random));
    let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
    match random.below(16) {
        0..=5 => (words(&[b"GET", &first]), vec![first]),
        6 if first != second => (words(&[b"MGET", &first, &second]), vec![first, second]),
        6..=8 => (words(&[b"SET", &first, &value]), Vec::new()),
        9 => (words(&[b"SET", &first, &value, b"PX", b"3"]), Vec::new()),
        10 => (words(&[b"MSET", &first, &value, &second, &value]), Vec::new()),
        11 => (words(&[b"RENAME", &first, &second]), Vec::new()),
        12 => (words(&[b"DEL", &first, &second]), Vec::new()),
        13 => (words(&[b"PEXPIRE", &first, b"2"]), Vec::new()),
        14 => (words(&[b"COPY", &first, &second, b"REPLACE"]), Vec::new()),
        _ if random.chance(0.1) => (words(&[b"FLUSHALL"]), Vec::new()),
        _ => (words(&[b"APPEND", &first, b"x"]), Vec::new()),
    }
}

/// Clients that read, write and keep copies, over shards whose messages are late; then all is quiet.
fn no_copy_is_older_than_its_value(seed: u64) {
    let mut random = SeededRandom::new(seed);
    let shards = 1 + random.below(3) as usize;
    let trouble = Trouble { fetch: 0.1, ..Trouble::default() };
    let engines = (0..shards as u64).map(|shard| FetchingEngine::new(seed * 8 + shard, trouble));
    let mut server = Server::new(engines);
    server.delays = Some(SeededRandom::new(seed ^ 0x77));
    if random.chance(0.3) {
        server.set("tracking-table-max-keys", "3");
    }
    let mut caches: Vec<Cache> = Vec::new();
    for _ in 0..3 {
        let id = client(&mut server, &["CLIENT TRACKING ON"]);
        caches.push(Cache { id, kept: BTreeMap::new(), asked: Vec::new() });
    }
    let broad = client(&mut server, &["CLIENT TRACKING ON BCAST"]);
    caches.push(Cache { id: broad, kept: BTreeMap::new(), asked: Vec::new() });
    let others: Vec<ConnectionId> = (0..2).map(|_| server.connect()).collect();
    for _ in 0..300 {
        let (words, keys) = random_request(&mut random);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let which = random.below((caches.len() + others.len()) as u64) as usize;
        match caches.get_mut(which) {
            Some(cache) => {
                server.send(cache.id, &words);
                cache.asked.push(keys);
            }
            None => server.send(others[which - caches.len()], &words),
        }
        if random.chance(0.5) {
            server.offer();
            server.step();
        }
        server.now.wall_ms += random.below(2);
        for cache in &mut caches {
            let bytes = server.take_received(cache.id);
            cache.hear(&bytes);
        }
    }
    server.settle();
    server.now.wall_ms += 10;
    for _ in 0..300 {
        server.step();
    }
    server.settle();
    for cache in &mut caches {
        let bytes = server.take_received(cache.id);
        cache.hear(&bytes);
        assert!(cache.asked.is_empty(), "seed {seed}");
    }
    let judge = server.connect();
    server.line(judge, "HELLO 3");
    for cache in &caches {
        for (key, kept) in &cache.kept {
            let value = server.call(judge, &[b"GET", key]);
            let key = String::from_utf8_lossy(key);
            assert_eq!(*kept, value, "seed {seed}: client {} keeps an old value of {key}", cache.id);
        }
    }
}

#[test]
fn after_everything_is_quiet_no_client_keeps_what_is_older_than_the_store() {
    for seed in 0..200 {
        no_copy_is_older_than_its_value(seed);
    }
}

/// The support's servers have room for 32 MiB of them on each shard.
#[test]
fn prefixes_are_counted_and_bounded_and_what_is_given_up_makes_room() {
    for shards in [1, 3] {
        let mut server = server(shards);
        let (long, refused) =
            ("x".repeat(1 << 20), "-ERR the prefixes that clients track take too much memory");
        let track = |number: usize| format!("CLIENT TRACKING ON BCAST PREFIX {number}{long}");
        let room = (32 << 20) / ((1 << 20) * (shards + 1)) - 1;
        let greedy = client(&mut server, &[]);
        for number in 0..room {
            assert_eq!(server.line(greedy, &track(number + 100)), "+OK");
        }
        // Another one of the same shard has as little room, but for a short one.
        let others: Vec<ConnectionId> = (0..shards).map(|_| client(&mut server, &[])).collect();
        let other = others[shards - 1];
        for asker in [greedy, other] {
            let answers: Vec<String> = (0..3).map(|number| server.line(asker, &track(number))).collect();
            assert_eq!(answers.last().map(String::as_str), Some(refused), "{shards} shards");
        }
        server.check(
            other,
            &[("CLIENT TRACKING OFF", "+OK"), ("CLIENT TRACKING ON BCAST PREFIX short", "+OK")],
        );
        if shards == 1 {
            server.check(other, &[("MULTI", "+OK"), (&track(0), "+QUEUED")]);
            assert_eq!(server.line(other, "EXEC"), format!("*1 {refused}"));
        }
        let total = server.line(greedy, "CLIENT LIST");
        let total = total.split(&format!("id={greedy} ")).nth(1).unwrap().split("tot-mem=").nth(1).unwrap();
        let total: usize = total.split(' ').next().unwrap().parse().unwrap();
        assert!(total > room << 20, "its own copy is told: {total}");
        server.check(greedy, &[("CLIENT TRACKING OFF", "+OK")]);
        assert_eq!(server.line(other, &track(7)), "+OK", "there is room again");
        server.disconnect(other);
        assert_eq!(server.line(greedy, &track(8)), "+OK");
    }
}

#[test]
fn a_transaction_may_read_and_write_any_number_of_keys() {
    let mut server = server(1);
    let id = client(&mut server, &["CLIENT TRACKING ON", "MULTI"]);
    let keys = |name: &str| (0..40_000).map(|number| format!("{name}{number} ")).collect::<String>();
    assert_eq!(server.line(id, &format!("MGET {}", keys("read"))), "+QUEUED");
    assert_eq!(server.line(id, &format!("MSET {}read9 v", keys("written").replace(' ', " v "))), "+QUEUED");
    let answer = server.line(id, "EXEC");
    assert!(answer.starts_with("*2 *40000 _") && answer.contains("_ +OK"), "{}", &answer[..40]);
    let rest = heard(&mut server, id);
    assert!(format!("{answer} {rest}").trim_end().ends_with(&stale(&["read9"])), "it was told of no other");
}

#[test]
fn any_number_of_prefixes_is_followed_or_refused_for_its_room() {
    let mut server = server(1);
    let id = client(&mut server, &[]);
    let prefixes = |count: u32| (0..count).map(|number| format!(" PREFIX {number:06}")).collect::<String>();
    let track = |count: u32| format!("CLIENT TRACKING ON BCAST{}", prefixes(count));
    // What has no room is refused before anything else is looked at.
    let refused = "-ERR the prefixes that clients track take too much memory";
    assert_eq!(server.line(id, &format!("{} PREFIX 0", track(200_000))), refused);
    assert_eq!(server.line(id, &track(40_000)), "+OK");
    let again = server.line(id, &track(1));
    assert!(again.starts_with("-ERR Prefix '000000' overlaps with an existing prefix '000000'"), "{again}");
}
