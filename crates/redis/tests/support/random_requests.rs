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

/// Requests with places to fill in: `%k` a key, `%v` a value, `%n` an integer, `%o` an offset, `%t` a time,
/// `%f` a float, `%d` a database, and `<a|b>` one of the texts between the bars. Times are far away or
/// past, so that servers that are asked one after the other see the same. Before each the weight.
const TEMPLATES: &[(u64, &str)] = &[
    (8, "SET %k %v"),
    (4, "GET %k"),
    (1, "SET %k %v <NX|XX|GET|KEEPTTL|NX GET|XX GET|nx xx|KEEPTTL EX 100|FOO|GET GET|EX|NX XX GET>"),
    (1, "SET %k %v <EX|PX|ex|EX 10 PX|EX 7 EX|KEEPTTL PX> %t"),
    (1, "SET %k %v <EXAT 9999999999|PXAT 9999999999999|EXAT 0|PXAT -1|EXAT abc>"),
    (1, "SETNX %k %v"),
    (1, "SETEX %k %t %v"),
    (1, "PSETEX %k %t %v"),
    (1, "GETSET %k %v"),
    (1, "GETDEL %k"),
    (
        1,
        "GETEX %k<| PERSIST| EX 10000000| EX 0| EX abc| PERSIST EX 10| PERSIST PERSIST| EX 10000000 EX 20000000| EXAT 9999999999| FOO| EX>",
    ),
    (1, "MGET %k %k %k"),
    (1, "MSET %k %v %k %v"),
    (1, "MSETNX %k %v %k %v"),
    (1, "MSET %k %v %k"),
    (2, "INCR %k"),
    (1, "DECR %k"),
    (2, "INCRBY %k %n"),
    (1, "DECRBY %k %n"),
    (3, "INCRBYFLOAT %k %f"),
    (2, "APPEND %k %v"),
    (1, "STRLEN %k"),
    (3, "<GETRANGE|SUBSTR> %k %o %o"),
    (2, "SETRANGE %k <0|1|5|20|-1|x|536870912|9223372036854775807> %v"),
    (1, "LCS %k %k<| LEN| IDX| IDX MINMATCHLEN 2| IDX WITHMATCHLEN| IDX LEN| FOO| MINMATCHLEN>"),
    (1, "LCS %k %k<| IDX MINMATCHLEN x| IDX MINMATCHLEN -4 WITHMATCHLEN>"),
    (3, "SETBIT %k %o <0|1|2|x>"),
    (2, "GETBIT %k %o"),
    (1, "BITCOUNT %k"),
    (2, "BITCOUNT %k %o %o<| BYTE| BIT| bit| FOO>"),
    (1, "BITPOS %k <0|1|2|x>"),
    (2, "BITPOS %k <0|1> %o"),
    (2, "BITPOS %k <0|1> %o %o<| BYTE| BIT| FOO>"),
    (2, "BITOP <AND|OR|XOR|NOT|and|FOO> %k %k %k"),
    (1, "BITOP NOT %k %k"),
    (1, "BITFIELD %k GET %b"),
    (1, "BITFIELD %k SET %b %n"),
    (1, "BITFIELD %k INCRBY %b %n GET u8 0"),
    (1, "BITFIELD %k OVERFLOW <SAT|FAIL|WRAP|foo> INCRBY %b %n"),
    // Saturating a value near the lowest one goes to the other end in Redis: not with every integer.
    (1, "BITFIELD %k OVERFLOW <SAT|FAIL> SET %b <0|1|-1|-5|63|100|9223372036854775807|abc>"),
    (1, "BITFIELD_RO %k <GET|INCRBY> %b"),
    (1, "COPY %k %k<| REPLACE| DB 1| DB 1 REPLACE| FOO| DB| DB x| DB 16| DB 0>"),
    (2, "DEL %k %k"),
    (1, "UNLINK %k"),
    (1, "EXISTS %k %k %k"),
    (1, "TOUCH %k %k"),
    // No GT nor LT with a duration: the key may have got the same one a millisecond ago, or in the same one.
    (2, "<EXPIRE|PEXPIRE> %k %t<|| NX| XX| NX GT| GT LT| FOO>"),
    (2, "EXPIREAT %k <9999999999|8888888888|7777777777><|| NX| XX| GT| LT| XX GT| XX LT>"),
    (1, "<EXPIREAT|PEXPIREAT> %k <9999999999|1|-1|abc|9223372036854775807><| NX| GT>"),
    (1, "PEXPIREAT %k 9999999999999"),
    (1, "<EXPIRETIME|PEXPIRETIME> %k"),
    (1, "PERSIST %k"),
    (2, "TYPE %k"),
    (1, "RENAME %k %k"),
    (1, "RENAMENX %k %k"),
    (1, "MOVE %k %d"),
    (1, "DBSIZE"),
    (1, "SELECT <0|0|0|1|16|x|-1>"),
    (1, "OBJECT <REFCOUNT|FREQ|FOO> %k"),
    (1, "KEYS <nothing*|%k|x>"),
    (1, "<PING|PING hello|PING a b|ECHO x|ECHO|FOO|foo bar baz|GET|SET a|OBJECT|OBJECT ENCODING|get a b>"),
    (1, "<CLIENT FOO|CONFIG|SCAN x|SCAN -1|SCAN 0 COUNT 0|SCAN 0 COUNT x|SCAN 0 FOO|SCAN 0 MATCH>"),
    (1, "<SWAPDB 0 16|SWAPDB x 0|SWAPDB 0 x|SWAPDB 0 1>"),
    (3, "<MULTI|EXEC|DISCARD|EXEC|EXEC|MULTI>"),
    (1, "WATCH %k"),
    (1, "UNWATCH"),
    (1, "<FLUSHDB|FLUSHALL FOO|FLUSHALL|FLUSHDB ASYNC|FLUSHALL SYNC>"),
    (1, "PUBLISH %k %v"),
    (1, "<PUBSUB NUMPAT|PUBSUB NUMSUB a b|PUBSUB CHANNELS|PUBSUB CHANNELS x|PUBSUB FOO|PUBSUB NUMSUB>"),
    (1, "<PUBSUB SHARDNUMSUB|UNSUBSCRIBE|PUNSUBSCRIBE x>"),
    (1, "<CLIENT GETNAME|CLIENT SETNAME x|CLIENT SETNAME a\u{1}b|CLIENT REPLY FOO|CLIENT NO-EVICT on>"),
    (1, "<CLIENT NO-EVICT x|CLIENT KILL ID 0|CLIENT KILL 1.2.3.4:5|CLIENT LIST ID x|CLIENT LIST TYPE x>"),
    (1, "<CLIENT PAUSE x|CLIENT PAUSE -1|CLIENT UNPAUSE|CLIENT TRACKINGINFO|CLIENT GETREDIR>"),
    (1, "<CLIENT SETINFO LIB-NAME x|CLIENT NO-TOUCH on>"),
    (1, "<HELLO 2|HELLO 3|HELLO 4|HELLO x|HELLO 2 FOO|HELLO 3 AUTH default x|HELLO 3 AUTH foo x>"),
    (1, "<HELLO 2 SETNAME a|AUTH x|AUTH default x|AUTH foo x|AUTH a b c|RESET>"),
    (1, "<CONFIG GET nothing|CONFIG SET nothing 1|CONFIG SET databases 3|CONFIG SET|CONFIG SET save>"),
    (1, "<CONFIG RESETSTAT|WAIT 0 0|WAIT x 0|WAIT 0 -1|DEBUG SLEEP 0|FUNCTION FLUSH|FUNCTION FLUSH FOO>"),
    (1, "<COMMAND GETKEYS SET a b|COMMAND GETKEYS PING|COMMAND GETKEYS FOO|COMMAND GETKEYS SET a>"),
    (1, "<COMMAND GETKEYS MSET a 1 b 2|COMMAND INFO foo|COMMAND DOCS foo>"),
    (1, "<COMMAND LIST FILTERBY PATTERN get|MEMORY USAGE nothing|MEMORY USAGE|MEMORY FOO>"),
    (1, "<LASTSAVE x|SAVE x|TIME x>"),
];

const KEYS: [&str; 7] = ["a", "b", "c", "d", "e", "{t}x", "{t}y"];
const FIELDS: [&str; 12] = ["u8", "i8", "u1", "i64", "u63", "i5", "u64", "i65", "x8", "u0", "i1", "u4"];
const FIELD_OFFSETS: [&str; 9] = ["0", "#1", "#2", "5", "100", "-1", "x", "#-1", "17"];

/// One random request, as a line.
pub fn request(random: &mut SeededRandom) -> String {
    let total: u64 = TEMPLATES.iter().map(|(weight, _)| weight).sum();
    let mut at = random.below(total);
    for (weight, template) in TEMPLATES {
        match at.checked_sub(*weight) {
            Some(rest) => at = rest,
            None => return fill(template, random),
        }
    }
    unreachable!("{at} is below the sum of the weights")
}

/// Fills the places of a template in.
fn fill(template: &str, random: &mut SeededRandom) -> String {
    let mut line = String::new();
    let mut rest = template;
    while let Some(at) = rest.find(['%', '<']) {
        line.push_str(&rest[..at]);
        if rest[at..].starts_with('<') {
            let (inside, behind) = rest[at + 1..].split_once('>').unwrap_or_default();
            let choices: Vec<&str> = inside.split('|').collect();
            line.push_str(&fill(pick(random, &choices), random));
            rest = behind;
            continue;
        }
        match rest.as_bytes().get(at + 1) {
            Some(b'k') => line.push_str(pick(random, &KEYS)),
            Some(b'v') => line.push_str(pick(random, &VALUES)),
            Some(b'n') => line.push_str(pick(random, &NUMBERS)),
            Some(b'o') => line.push_str(pick(random, &OFFSETS)),
            Some(b't') => line.push_str(pick(random, &TIMES)),
            Some(b'f') => line.push_str(pick(random, &FLOATS)),
            Some(b'd') => line.push_str(pick(random, &DATABASES)),
            Some(b'b') => {
                line.push_str(pick(random, &FIELDS));
                line.push(' ');
                line.push_str(pick(random, &FIELD_OFFSETS));
            }
            other => panic!("{other:?} in {template}"),
        }
        rest = &rest[at + 2..];
    }
    line.push_str(rest);
    line
}
