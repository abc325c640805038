//! Random requests of all families, right and wrong ones.

use tierstone_base::SeededRandom;

/// The words of a line; `""` is the empty one.
pub fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| if word == "\"\"" { Vec::new() } else { word.as_bytes().to_vec() }).collect()
}

/// Whether a request is only made outside transactions: it is not available inside (see
/// `docs/redis-compatibility.md`), or Redis itself answers it in another shape there.
pub fn is_outside_transactions(upper: &str) -> bool {
    let prefixes = [
        "SWAPDB",
        "FLUSH",
        "KEYS",
        "SCAN",
        "DEBUG SLEEP",
        "RESET",
        "HELLO",
        "CLIENT",
        "SAVE",
        "CONFIG SET",
        "UNSUB",
        "PUNSUB",
        "AUTH",
        "OBJECT REFCOUNT",
    ];
    prefixes.iter().any(|prefix| upper.starts_with(prefix))
}

pub fn pick<'a>(random: &mut SeededRandom, choices: &[&'a str]) -> &'a str {
    choices[random.below(choices.len() as u64) as usize]
}

const NUMBERS: [&str; 24] = [
    "0",
    "1",
    "-1",
    "2",
    "5",
    "-5",
    "7",
    "8",
    "10",
    "100",
    "-100",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "01",
    "+1",
    "1.5",
    "abc",
    "\"\"",
    "1e3",
    "nan",
    "63",
    "64",
];
const OFFSETS: [&str; 14] =
    ["0", "1", "2", "3", "7", "8", "9", "17", "100", "-1", "-2", "-100", "x", "4294967295000"];
const VALUES: [&str; 16] = [
    "hello",
    "world",
    "10",
    "-3",
    "3.5",
    "\"\"",
    "0",
    "9223372036854775807",
    "ohmytext",
    "mynewtext",
    "ff",
    "1.1e2",
    "inf",
    "0x10",
    "10.50",
    "foobar",
];
const TIMES: [&str; 10] = [
    "1000000",
    "0",
    "-1",
    "10000000",
    "9223372036854775807",
    "-9223372036854775808",
    "abc",
    "1.5",
    "9999999",
    "777777",
];
const FLOATS: [&str; 14] = [
    "0.1",
    "-0.1",
    "1e2",
    "5.0e3",
    "1.000000001",
    "3",
    "1e-9",
    "nan",
    "inf",
    "abc",
    "0.3",
    "1000.1",
    "-2.25",
    "1e17",
];
const DATABASES: [&str; 6] = ["0", "1", "2", "15", "16", "-1"];

/// One random request, as a line. Times are far away or past, so that both servers see the same.
pub fn request(random: &mut SeededRandom) -> String {
    let keys = ["a", "b", "c", "d", "e", "{t}x", "{t}y"];
    let (k, k2, k3) = (pick(random, &keys), pick(random, &keys), pick(random, &keys));
    let (v, v2) = (pick(random, &VALUES), pick(random, &VALUES));
    let n = pick(random, &NUMBERS);
    let (o, o2) = (pick(random, &OFFSETS), pick(random, &OFFSETS));
    let (t, f) = (pick(random, &TIMES), pick(random, &FLOATS));
    let db = pick(random, &DATABASES);
    match random.below(96) {
        0..8 => format!("SET {k} {v}"),
        8..12 => format!("GET {k}"),
        12 => format!(
            "SET {k} {v} {}",
            pick(
                random,
                &[
                    "NX",
                    "XX",
                    "GET",
                    "KEEPTTL",
                    "NX GET",
                    "XX GET",
                    "nx xx",
                    "KEEPTTL EX 100",
                    "FOO",
                    "GET GET",
                    "EX",
                    "NX XX GET"
                ]
            )
        ),
        13 => format!("SET {k} {v} {} {t}", pick(random, &["EX", "PX", "ex", "EX 10 PX"])),
        // A time in the past leaves a key that Redis counts until somebody looks at it.
        14 => format!(
            "SET {k} {v} {}",
            pick(random, &["EXAT 9999999999", "PXAT 9999999999999", "EXAT 0", "PXAT -1", "EXAT abc"])
        ),
        15 => format!("SETNX {k} {v}"),
        16 => format!("SETEX {k} {t} {v}"),
        17 => format!("PSETEX {k} {t} {v}"),
        18 => format!("GETSET {k} {v}"),
        19 => format!("GETDEL {k}"),
        20 => format!(
            "GETEX {k}{}",
            pick(
                random,
                &[
                    "",
                    " PERSIST",
                    " EX 10000000",
                    " EX 0",
                    " EX abc",
                    " PERSIST EX 10",
                    " EXAT 9999999999",
                    " FOO",
                    " EX"
                ]
            )
        ),
        21 => format!("MGET {k} {k2} {k3}"),
        22 => format!("MSET {k} {v} {k2} {v2}"),
        23 => format!("MSETNX {k} {v} {k2} {v2}"),
        24 => format!("MSET {k} {v} {k2}"),
        25..27 => format!("INCR {k}"),
        27 => format!("DECR {k}"),
        28..30 => format!("INCRBY {k} {n}"),
        30 => format!("DECRBY {k} {n}"),
        31..34 => format!("INCRBYFLOAT {k} {f}"),
        34..36 => format!("APPEND {k} {v}"),
        36 => format!("STRLEN {k}"),
        37..40 => format!("{} {k} {o} {o2}", pick(random, &["GETRANGE", "SUBSTR"])),
        40..42 => format!(
            "SETRANGE {k} {} {v}",
            pick(random, &["0", "1", "5", "20", "-1", "x", "536870912", "9223372036854775807"])
        ),
        42 => format!(
            "LCS {k} {k2}{}",
            pick(
                random,
                &[
                    "",
                    " LEN",
                    " IDX",
                    " IDX MINMATCHLEN 2",
                    " IDX WITHMATCHLEN",
                    " IDX LEN",
                    " IDX MINMATCHLEN x",
                    " IDX MINMATCHLEN -4 WITHMATCHLEN",
                    " FOO",
                    " MINMATCHLEN"
                ]
            )
        ),
        43..46 => format!("SETBIT {k} {o} {}", pick(random, &["0", "1", "2", "x"])),
        46..48 => format!("GETBIT {k} {o}"),
        48 => format!("BITCOUNT {k}"),
        49..51 => format!("BITCOUNT {k} {o} {o2}{}", pick(random, &["", " BYTE", " BIT", " bit", " FOO"])),
        51 => format!("BITPOS {k} {}", pick(random, &["0", "1", "2", "x"])),
        52..54 => format!("BITPOS {k} {} {o}", pick(random, &["0", "1"])),
        54..56 => format!(
            "BITPOS {k} {} {o} {o2}{}",
            pick(random, &["0", "1"]),
            pick(random, &["", " BYTE", " BIT", " FOO"])
        ),
        56..58 => format!("BITOP {} {k} {k2} {k3}", pick(random, &["AND", "OR", "XOR", "NOT", "and", "FOO"])),
        58 => format!("BITOP NOT {k} {k2}"),
        59..63 => {
            let kind =
                pick(random, &["u8", "i8", "u1", "i64", "u63", "i5", "u64", "i65", "x8", "u0", "i1", "u4"]);
            let offset = pick(random, &["0", "#1", "#2", "5", "100", "-1", "x", "#-1", "17"]);
            match random.below(6) {
                0 => format!("BITFIELD {k} GET {kind} {offset}"),
                1 => format!("BITFIELD {k} SET {kind} {offset} {n}"),
                2 => format!("BITFIELD {k} INCRBY {kind} {offset} {n} GET u8 0"),
                // Saturating a value near the lowest one goes to the other end in Redis.
                4 if n.starts_with("-922") => format!("BITFIELD_RO {k} GET {kind} {offset}"),
                3 => format!(
                    "BITFIELD {k} OVERFLOW {} INCRBY {kind} {offset} {n}",
                    pick(random, &["SAT", "FAIL", "WRAP", "foo"])
                ),
                4 => format!(
                    "BITFIELD {k} OVERFLOW {} SET {kind} {offset} {n}",
                    pick(random, &["SAT", "FAIL"])
                ),
                _ => format!("BITFIELD_RO {k} {} {kind} {offset}", pick(random, &["GET", "INCRBY"])),
            }
        }
        63 => format!(
            "COPY {k} {k2}{}",
            pick(
                random,
                &["", " REPLACE", " DB 1", " DB 1 REPLACE", " FOO", " DB", " DB x", " DB 16", " DB 0"]
            )
        ),
        64..66 => format!("DEL {k} {k2}"),
        66 => format!("UNLINK {k}"),
        67 => format!("EXISTS {k} {k2} {k}"),
        68 => format!("TOUCH {k} {k2}"),
        69..72 => format!(
            "{} {k} {t}{}",
            pick(random, &["EXPIRE", "PEXPIRE"]),
            pick(random, &["", "", " NX", " XX", " GT", " LT", " XX GT", " NX GT", " GT LT", " FOO"])
        ),
        72 => format!(
            "{} {k} {}{}",
            pick(random, &["EXPIREAT", "PEXPIREAT"]),
            pick(random, &["9999999999", "9999999999999", "1", "-1", "abc", "9223372036854775807"]),
            pick(random, &["", " NX", " GT"])
        ),
        73 => format!("{} {k}", pick(random, &["EXPIRETIME", "PEXPIRETIME"])),
        74 => format!("PERSIST {k}"),
        75..77 => format!("TYPE {k}"),
        77 => format!("RENAME {k} {k2}"),
        78 => format!("RENAMENX {k} {k2}"),
        79 => format!("MOVE {k} {db}"),
        80 => "DBSIZE".into(),
        81 => format!("SELECT {}", pick(random, &["0", "0", "0", "1", "16", "x", "-1"])),
        82 => format!("OBJECT {} {k}", pick(random, &["REFCOUNT", "FREQ", "FOO"])),
        83 => format!("KEYS {}", pick(random, &["nothing*", k, "x"])),
        84 => pick(
            random,
            &[
                "PING",
                "PING hello",
                "PING a b",
                "ECHO x",
                "ECHO",
                "FOO",
                "foo bar baz",
                "GET",
                "SET a",
                "OBJECT",
                "OBJECT ENCODING",
                "CLIENT FOO",
                "CONFIG",
                "get a b",
            ],
        )
        .into(),
        85 => pick(
            random,
            &[
                "SCAN x",
                "SCAN -1",
                "SCAN 0 COUNT 0",
                "SCAN 0 COUNT x",
                "SCAN 0 FOO",
                "SCAN 0 MATCH",
                "SWAPDB 0 16",
                "SWAPDB x 0",
                "SWAPDB 0 x",
                "SWAPDB 0 1",
            ],
        )
        .into(),
        86 => pick(random, &["MULTI", "EXEC", "DISCARD", "EXEC", "DISCARD"]).into(),
        87 => format!("WATCH {k}"),
        88 => "UNWATCH".into(),
        89 => pick(random, &["EXEC", "EXEC", "MULTI"]).into(),
        90 => pick(random, &["FLUSHDB", "FLUSHALL FOO", "FLUSHALL", "FLUSHDB ASYNC", "FLUSHALL SYNC"]).into(),
        91 => format!("PUBLISH {k} {v}"),
        92 => pick(
            random,
            &[
                "PUBSUB NUMPAT",
                "PUBSUB NUMSUB a b",
                "PUBSUB CHANNELS",
                "PUBSUB CHANNELS x",
                "PUBSUB FOO",
                "PUBSUB SHARDNUMSUB",
                "UNSUBSCRIBE",
                "PUNSUBSCRIBE x",
                "PUBSUB NUMSUB",
            ],
        )
        .into(),
        93 => pick(
            random,
            &[
                "CLIENT GETNAME",
                "CLIENT SETNAME x",
                "CLIENT SETNAME a\u{1}b",
                "CLIENT REPLY FOO",
                "CLIENT NO-EVICT on",
                "CLIENT NO-EVICT x",
                "CLIENT KILL ID 0",
                "CLIENT KILL 1.2.3.4:5",
                "CLIENT LIST ID x",
                "CLIENT LIST TYPE x",
                "CLIENT PAUSE x",
                "CLIENT PAUSE -1",
                "CLIENT UNPAUSE",
                "CLIENT TRACKINGINFO",
                "CLIENT GETREDIR",
                "CLIENT SETINFO LIB-NAME x",
                "CLIENT NO-TOUCH on",
            ],
        )
        .into(),
        94 => pick(
            random,
            &[
                "HELLO 2",
                "HELLO 3",
                "HELLO 4",
                "HELLO x",
                "HELLO 2 FOO",
                "HELLO 3 AUTH default x",
                "HELLO 3 AUTH foo x",
                "HELLO 2 SETNAME a",
                "AUTH x",
                "AUTH default x",
                "AUTH foo x",
                "AUTH a b c",
                "RESET",
            ],
        )
        .into(),
        _ => pick(
            random,
            &[
                "CONFIG GET nothing",
                "CONFIG SET nothing 1",
                "CONFIG SET databases 3",
                "CONFIG SET",
                "CONFIG SET save",
                "CONFIG RESETSTAT",
                "WAIT 0 0",
                "WAIT x 0",
                "WAIT 0 -1",
                "DEBUG SLEEP 0",
                "FUNCTION FLUSH",
                "FUNCTION FLUSH FOO",
                "COMMAND GETKEYS SET a b",
                "COMMAND GETKEYS PING",
                "COMMAND GETKEYS FOO",
                "COMMAND GETKEYS MSET a 1 b 2",
                "COMMAND GETKEYS SET a",
                "COMMAND INFO foo",
                "COMMAND DOCS foo",
                "COMMAND LIST FILTERBY PATTERN get",
                "MEMORY USAGE nothing",
                "MEMORY USAGE",
                "MEMORY FOO",
                "LASTSAVE x",
                "SAVE x",
                "TIME x",
            ],
        )
        .into(),
    }
}
