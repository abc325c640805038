//! `LATENCY` and the percentiles of `INFO`: of all shards together.

use crate::support::Server;
use crate::support::both::Both;
use crate::support::random_requests::words;
use std::collections::BTreeMap;
use tierstone_base::CountingClock;
use tierstone_engine::map_engine::MapEngine;
use tierstone_redis::ConnectionId;
use tierstone_wire::resp::Value;

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_default()).into_owned()
}

/// Calls and rows of each command of an answer to `LATENCY HISTOGRAM` in protocol 2.
fn histograms(answer: &Value) -> BTreeMap<String, (i64, Vec<i64>)> {
    let of = |pair: &[Value]| {
        let fields = pair[1].items().unwrap();
        assert_eq!((text(&fields[0]), text(&fields[2])), ("calls".into(), "histogram_usec".into()));
        let rows = fields[3].items().unwrap().iter().map(|number| number.integer().unwrap()).collect();
        (text(&pair[0]), (fields[1].integer().unwrap(), rows))
    };
    answer.items().unwrap().chunks_exact(2).map(of).collect()
}

/// A server of which every reading of the clock takes a millisecond.
fn server(shards: usize) -> (Server<MapEngine>, Vec<ConnectionId>) {
    let mut server = Server::new((0..shards).map(|_| MapEngine::new(0)));
    for executor in &mut server.executors {
        executor.set_clock(Box::new(CountingClock::new(1_000_000)));
    }
    let clients = (0..shards).map(|_| server.connect()).collect();
    (server, clients)
}

#[test]
fn histograms_are_those_of_all_shards_together() {
    for shards in [1, 3] {
        let (mut server, clients) = server(shards);
        for number in 0..30 {
            for id in &clients {
                server.line(*id, &format!("SET key{number} 1"));
                server.line(*id, &format!("STRLEN key{number}"));
            }
        }
        server.line(clients[0], "CONFIG GET port");
        let count = 30 * shards as i64;
        for id in &clients {
            let answer = server.call(*id, &[b"LATENCY", b"HISTOGRAM", b"set", b"STRLEN", b"nothing"]);
            let found = histograms(&answer);
            assert_eq!(found.keys().collect::<Vec<_>>(), ["set", "strlen"]);
            for (calls, rows) in found.values() {
                // A millisecond is within this bound.
                assert_eq!((*calls, rows.as_slice()), (count, &[1_056, count][..]), "{shards} shards");
            }
        }
        let all = histograms(&server.call(clients[0], &[b"LATENCY", b"HISTOGRAM"]));
        assert!(all.contains_key("config|get") && all.contains_key("latency|histogram"), "{all:?}");
        let some = histograms(&server.call(clients[0], &[b"LATENCY", b"HISTOGRAM", b"config"]));
        assert_eq!(some.keys().collect::<Vec<_>>(), ["config|get"]);
        let info = text(&server.call(clients[0], &[b"INFO", b"latencystats"]));
        let line = info.lines().find(|line| line.starts_with("latency_percentiles_usec_strlen:")).unwrap();
        let percentiles: Vec<&str> = line.split_once(':').unwrap().1.split(',').collect();
        assert_eq!(percentiles.len(), 3, "{line}");
        for (percentile, name) in percentiles.iter().zip(["p50", "p99", "p99.9"]) {
            let (told, us) = percentile.split_once('=').unwrap();
            let us: f64 = us.parse().unwrap();
            assert!(told == name && (1_000.0..1_040.0).contains(&us), "{line}");
        }
        assert!(info.starts_with("# Latencystats\r\n") && info.ends_with("\r\n"), "{info:?}");
        let everything = text(&server.call(clients[0], &[b"INFO", b"everything"]));
        assert!(
            everything.contains(line)
                && everything.contains("\r\n\r\n# Keyspace\r\ndb0:keys=30,expires=0,avg_ttl=0\r\n"),
            "{everything}"
        );
        server.line(clients[0], "CONFIG RESETSTAT");
        let left = histograms(&server.call(clients[0], &[b"LATENCY", b"HISTOGRAM", b"set", b"strlen"]));
        assert!(left.is_empty(), "{left:?}");
        server.set("latency-tracking", "no");
        server.line(clients[0], "SET a 1");
        assert!(histograms(&server.call(clients[0], &[b"LATENCY", b"HISTOGRAM", b"set"])).is_empty());
        assert_eq!(text(&server.call(clients[0], &[b"INFO", b"latencystats"])), "# Latencystats\r\n");
    }
}

#[test]
fn spikes_of_all_shards_are_in_one_list() {
    let (mut server, clients) = server(3);
    server.set("slowlog-log-slower-than", "-1");
    server.set("latency-tracking", "no");
    for id in &clients {
        server.line(*id, "GET before");
    }
    server.check(clients[0], &[("LATENCY LATEST", "*0")]);
    server.set("latency-monitor-threshold", "1");
    for id in &clients {
        for line in ["GET a", "INCR a", "MULTI", "STRLEN a", "EXEC"] {
            server.line(*id, line);
        }
        server.now.wall_ms += 1_000;
    }
    for id in &clients {
        let history = server.call(*id, &[b"LATENCY", b"HISTORY", b"fast-command"]);
        assert_eq!(history.items().unwrap().len(), 3, "a sample a second");
        let latest = server.line(*id, "LATENCY LATEST");
        assert!(latest.starts_with("*2 *4 $7 command") && latest.contains("*4 $12 fast-command"), "{latest}");
    }
    assert!(text(&server.call(clients[1], &[b"LATENCY", b"DOCTOR"])).contains("fast-command: 3 seconds"));
    let picture = text(&server.call(clients[1], &[b"LATENCY", b"GRAPH", b"fast-command"]));
    assert!(picture.starts_with("fast-command - high "), "{picture}");
    server.check(clients[1], &[("LATENCY GRAPH nothing", "-ERR No samples available for event 'nothing'")]);
    server.set("latency-monitor-threshold", "1000");
    server.check(
        clients[2],
        &[("LATENCY RESET fast-command", ":1"), ("LATENCY RESET", ":1"), ("LATENCY LATEST", "*0")],
    );
}

#[test]
fn requests_are_answered_and_refused_as_by_redis() {
    let Some(mut both) = Both::start() else { return };
    for shards in [1, 2] {
        both.renew(shards);
        for line in [
            "LATENCY",
            "LATENCY X",
            "LATENCY LATEST",
            "LATENCY LATEST x",
            "LATENCY HISTORY",
            "LATENCY HISTORY nothing",
            "LATENCY GRAPH",
            "LATENCY GRAPH nothing",
            "LATENCY RESET",
            "LATENCY RESET x y",
            "LATENCY HISTOGRAM nothing",
            "CONFIG GET latency-tracking",
            "CONFIG GET latency-monitor-threshold",
            "CONFIG GET latency-tracking-info-percentiles",
            "CONFIG SET latency-monitor-threshold -1",
            "CONFIG SET latency-tracking maybe",
            "CONFIG SET latency-tracking-info-percentiles x",
            "CONFIG SET latency-tracking-info-percentiles 101",
            "CONFIG SET latency-tracking-info-percentiles -1",
            "CONFIG SET latency-tracking-info-percentiles \"\"",
            "CONFIG GET latency-tracking-info-percentiles",
            "CONFIG SET latency-tracking-info-percentiles 99.9",
            "CONFIG GET latency-tracking-info-percentiles",
        ] {
            let (expected, got) = both.call(&words(line));
            assert_eq!(got, expected, "{line}, {shards} shards");
        }
        both.peer.call(
            &[b"CONFIG", &b"SET"[..], b"latency-tracking-info-percentiles", b"50 99 99.9"]
                .map(<[u8]>::to_vec),
        );
    }
}
