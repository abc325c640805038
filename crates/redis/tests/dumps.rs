//! `DUMP` and `RESTORE` at their bounds.

use crate::support::Server;
use crate::support::large::limited;
use tierstone_engine::map_engine::MapEngine;
use tierstone_wire::resp::Value;

#[test]
fn times_beyond_all_times_are_refused() {
    let mut server = Server::new([MapEngine::new(0)]);
    let id = server.connect();
    server.line(id, "SET a v");
    let payload = server.call(id, &[b"DUMP", b"a"]).bytes().unwrap().to_vec();
    let restore = |server: &mut Server<_>, ttl: i64, word: &[u8]| {
        server.call(id, &[b"RESTORE", b"new", ttl.to_string().as_bytes(), &payload, b"REPLACE", word])
    };
    let longest = i64::MAX - server.now.wall_ms as i64;
    for (ttl, word) in
        [(i64::MAX, &b"REPLACE"[..]), (longest + 1_000, b"REPLACE"), (-1, b"REPLACE"), (-1, b"ABSTTL")]
    {
        let answer = restore(&mut server, ttl, word);
        assert_eq!(answer.error().as_deref(), Some("ERR Invalid TTL value, must be >= 0"), "{ttl}");
        assert_eq!(server.call(id, &[b"EXISTS", b"new"]), Value::Integer(0), "{ttl}");
    }
    for (ttl, word) in [(longest - 1_000, &b"REPLACE"[..]), (i64::MAX, b"ABSTTL")] {
        assert!(restore(&mut server, ttl, word).is_ok(), "{ttl}");
        let at = server.call(id, &[b"PEXPIRETIME", b"new"]).integer().unwrap();
        assert!(at > i64::MAX - 2_000, "{ttl}: {at}");
    }
    assert!(restore(&mut server, 0, b"REPLACE").is_ok());
    assert_eq!(server.call(id, &[b"PTTL", b"new"]), Value::Integer(-1));
}

#[test]
fn what_is_longer_than_may_be_held_is_not_dumped() {
    for shards in [1, 3] {
        let mut server = limited(shards, 1 << 20);
        let id = server.connect();
        server.raw(id, &[b"SETBIT", b"sparse", (2_000_000 * 8).to_string().as_bytes(), b"1"]);
        server.raw(id, &[b"SET", b"dense", &vec![b'x'; 2_000_000]]);
        server.raw(id, &[b"SET", b"fits", &vec![b'x'; 900_000]]);
        for key in [&b"sparse"[..], b"dense"] {
            let answer = server.raw(id, &[b"DUMP", key]);
            assert!(answer.starts_with(b"-OOM command not allowed"), "{shards} shards");
        }
        let payload = server.call(id, &[b"DUMP", b"fits"]).bytes().unwrap().to_vec();
        assert!(server.call(id, &[b"RESTORE", b"new", b"0", &payload]).is_ok());
        assert_eq!(server.call(id, &[b"STRLEN", b"new"]), Value::Integer(900_000));
    }
}

/// A payload of version 12 without a checksum: so many times 264 zeros, compressed, that claims to have `len` bytes.
fn compressed_zeros(runs: u32, len: u32) -> Vec<u8> {
    let mut body = b"\x00\xc3\x80".to_vec();
    body.extend((2 + 3 * runs).to_be_bytes());
    body.push(0x80);
    body.extend(len.to_be_bytes());
    body.extend(b"\x00\x00");
    (0..runs).for_each(|_| body.extend(b"\xe0\xff\x00"));
    body.extend(b"\x0c\x00");
    body.extend([0; 8]);
    body
}

#[test]
fn what_would_be_expanded_beyond_what_may_be_held_is_refused_by_the_length_that_it_claims() {
    for shards in [1, 3] {
        let mut server = limited(shards, 1 << 20);
        let id = server.connect();
        for (runs, len) in [(10_000, 2_640_001), (10_000, 1 << 29), (0, 1 << 29)] {
            let answer = server.raw(id, &[b"RESTORE", b"new", b"0", &compressed_zeros(runs, len)]);
            assert!(answer.starts_with(b"-OOM command not allowed"), "{shards} shards: {len}");
        }
        assert_eq!(server.call(id, &[b"EXISTS", b"new"]), Value::Integer(0));
        let wrong = server.raw(id, &[b"RESTORE", b"new", b"0", &compressed_zeros(0, 1_000_000)]);
        assert_eq!(wrong, b"-ERR Bad data format\r\n");
        let fits = compressed_zeros(3_000, 3_000 * 264 + 1);
        assert!(server.call(id, &[b"RESTORE", b"new", b"0", &fits]).is_ok());
        assert!(server.call(id, &[b"GET", b"new"]).bytes() == Some(&vec![0; 792_001]));
    }
}
