//! The cut of a backup lies between batches, whatever is under way on several shards and however late
//! their messages are.

use crate::support::fetching_engine::{FetchingEngine, Trouble};
use crate::support::{Server, parse_all};
use std::collections::BTreeMap;
use tierstone_base::SeededRandom;
use tierstone_redis::ConnectionId;
use tierstone_store::backup::{BackupReader, Taken};
use tierstone_wire::resp::Value;

const SHARDS: u64 = 3;
/// Keys of one batch: on every shard with all but certainty.
const KEYS: usize = 8;
/// Turns in which a backup must come to its end.
const TURNS: usize = 20_000;

type TestServer = Server<FetchingEngine>;

/// One that writes the same number to all its keys, again and again, the next when the last is acknowledged.
struct Writer {
    id: ConnectionId,
    sent: u64,
    acknowledged: u64,
    /// Answers of the batch under way that have not come.
    missing: usize,
    /// The last batch was refused by a shard and taken back.
    is_refused: bool,
}

impl Writer {
    fn new(server: &mut TestServer) -> Writer {
        Writer { id: server.connect(), sent: 0, acknowledged: 0, missing: 0, is_refused: false }
    }

    /// Sends the next batch, as one command or as a transaction.
    fn send(&mut self, server: &mut TestServer, random: &mut SeededRandom) {
        self.sent += 1;
        let number = self.sent.to_string();
        let keys: Vec<String> = (0..KEYS).map(|key| format!("{}:{key}", self.id)).collect();
        if random.chance(0.5) {
            let pairs = keys.iter().flat_map(|key| [key.as_bytes(), number.as_bytes()]);
            let words: Vec<&[u8]> = std::iter::once(&b"MSET"[..]).chain(pairs).collect();
            server.send(self.id, &words);
            self.missing = 1;
        } else {
            server.send(self.id, &[b"MULTI"]);
            for key in &keys {
                server.send(self.id, &[b"SET", key.as_bytes(), number.as_bytes()]);
            }
            server.send(self.id, &[b"EXEC"]);
            self.missing = KEYS + 2;
        }
    }

    fn turn(&mut self, server: &mut TestServer, random: &mut SeededRandom) {
        for answer in parse_all(&server.take_received(self.id)) {
            self.is_refused = matches!(answer, Value::Error(_));
            self.missing -= 1;
        }
        if self.missing == 0 {
            if !self.is_refused {
                self.acknowledged = self.sent;
            }
            if random.chance(0.3) {
                self.send(server, random);
            }
        }
    }
}

/// What a backup says of a writer: the number of each of its keys.
type Cut = BTreeMap<ConnectionId, Vec<u64>>;

fn cut(frames: &[Vec<u8>]) -> Cut {
    let (mut reader, mut cut) = (BackupReader::default(), Cut::new());
    for frame in frames {
        if let Taken::Records { records, .. } = reader.take_whole(frame).unwrap() {
            for record in records {
                let key = std::str::from_utf8(record.key).unwrap();
                let writer = key.split_once(':').unwrap().0.parse().unwrap();
                let number = std::str::from_utf8(record.value).unwrap().parse().unwrap();
                cut.entry(writer).or_default().push(number);
            }
        }
    }
    cut
}

/// Takes one backup beside the writers; what was acknowledged before it, what it holds, and what was sent when its cut
/// was answered.
fn back_up(server: &mut TestServer, writers: &mut [Writer], random: &mut SeededRandom) -> [Cut; 3] {
    let id = server.connect();
    let told = |writers: &[Writer], of: fn(&Writer) -> u64| {
        writers.iter().map(|writer| (writer.id, vec![of(writer)])).collect::<Cut>()
    };
    let before = told(writers, |writer| writer.acknowledged);
    let (mut frames, mut after) = (Vec::new(), Cut::new());
    server.send(id, &[b"DEBUG", b"BACKUP", b"START"]);
    for _ in 0..TURNS {
        server.offer();
        server.step();
        writers.iter_mut().for_each(|writer| writer.turn(server, random));
        match parse_all(&server.take_received(id)).pop() {
            None => continue,
            Some(Value::Bulk(frame)) => {
                if frames.is_empty() {
                    after = told(writers, |writer| writer.sent);
                }
                frames.push(frame);
                server.send(id, &[b"DEBUG", b"BACKUP", b"NEXT"]);
            }
            Some(Value::Simple(_)) => {
                server.disconnect(id);
                return [before, cut(&frames), after];
            }
            // Another shard has not heard of the end of the last one yet.
            Some(Value::Error(text)) if frames.is_empty() && text.ends_with(b"a backup is under way") => {
                server.send(id, &[b"DEBUG", b"BACKUP", b"START"]);
            }
            Some(other) => panic!("{other:?}"),
        }
    }
    panic!("the backup does not end");
}

#[test]
fn a_cut_has_every_batch_whole_or_not_at_all() {
    let mut unlike = 0;
    for seed in 0..400 {
        let mut random = SeededRandom::new(seed);
        let trouble = Trouble { refuse: 0.2, ..Trouble::default() };
        let engines = (0..SHARDS).map(|shard| FetchingEngine::new(seed * 64 + shard, trouble));
        let mut server = Server::new(engines);
        server.delays = Some(SeededRandom::new(random.next_u64()));
        let mut writers: Vec<Writer> = (0..SHARDS).map(|_| Writer::new(&mut server)).collect();
        for _ in 0..3 {
            for _ in 0..random.below(60) {
                server.offer();
                server.step();
                writers.iter_mut().for_each(|writer| writer.turn(&mut server, &mut random));
            }
            let [before, cut, after] = back_up(&mut server, &mut writers, &mut random);
            for writer in &writers {
                let (least, most) = (before[&writer.id][0], after[&writer.id][0]);
                let Some(numbers) = cut.get(&writer.id) else {
                    assert_eq!(least, 0, "seed {seed}: what was acknowledged is not in the backup");
                    continue;
                };
                let number = numbers[0];
                let is_whole = numbers.len() == KEYS && numbers.iter().all(|other| *other == number);
                assert!(is_whole, "seed {seed}: a batch of writer {} was cut: {numbers:?}", writer.id);
                assert!(
                    (least..=most).contains(&number),
                    "seed {seed}: {number} is not within {least} and {most}"
                );
                unlike += usize::from(least != most);
            }
        }
    }
    assert!(unlike > 100, "hardly any batch was under way: {unlike}");
}

/// A server without delays; none of its engines gives a frame of a backup.
fn losing() -> TestServer {
    let engines = (0..SHARDS).map(|shard| FetchingEngine::new(shard, Trouble::default()));
    let mut server = Server::new(engines);
    for executor in &mut server.executors {
        executor.shard_mut().engine_mut().loses_backups = true;
    }
    server
}

fn error(answer: &Value) -> String {
    match answer {
        Value::Error(text) => String::from_utf8_lossy(text).into_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_backup_that_is_given_up_while_nothing_is_asked_tells_why_when_it_is_asked() {
    let mut server = losing();
    let ids: Vec<ConnectionId> = (0..=SHARDS).map(|_| server.connect()).collect();
    // The first and the last have one shard.
    let (one, other) = (ids[0], ids[SHARDS as usize]);
    assert_eq!(server.shard_of(one), server.shard_of(other));
    let ask = |server: &mut TestServer, id, word: &[u8]| server.call(id, &[b"DEBUG", b"BACKUP", word]);
    for word in [&b"NEXT"[..], b"END"] {
        assert!(matches!(ask(&mut server, one, b"START"), Value::Bulk(_)));
        (0..10).for_each(|_| server.step());
        // It holds nobody up, and whoever comes is told of its own backup only.
        assert!(error(&ask(&mut server, other, b"NEXT")).contains("no backup under way"));
        assert!(matches!(ask(&mut server, other, b"START"), Value::Bulk(_)));
        (0..10).for_each(|_| server.step());
        for id in [one, other] {
            assert!(error(&ask(&mut server, id, word)).contains("given up: the store is full"));
            assert!(error(&ask(&mut server, id, word)).contains("no backup under way"));
        }
    }
    // A new one begins anew.
    assert!(matches!(ask(&mut server, one, b"START"), Value::Bulk(_)));
    (0..10).for_each(|_| server.step());
    for executor in &mut server.executors {
        executor.shard_mut().engine_mut().loses_backups = false;
    }
    assert!(matches!(ask(&mut server, one, b"START"), Value::Bulk(_)));
    assert!(matches!(ask(&mut server, one, b"NEXT"), Value::Simple(_)));
}

#[test]
fn a_backup_of_which_nothing_is_asked_for_a_minute_is_given_up_and_says_so() {
    let engines = (0..SHARDS).map(|shard| FetchingEngine::new(shard, Trouble::default()));
    let mut server: TestServer = Server::new(engines);
    let (one, other) = (server.connect(), server.connect());
    assert!(matches!(server.call(one, &[b"DEBUG", b"BACKUP", b"START"]), Value::Bulk(_)));
    server.now.monotonic_us += 61_000_000;
    (0..10).for_each(|_| server.step());
    assert!(matches!(server.call(other, &[b"DEBUG", b"BACKUP", b"START"]), Value::Bulk(_)));
    let told = error(&server.call(one, &[b"DEBUG", b"BACKUP", b"NEXT"]));
    assert!(told.contains("given up: nothing was asked"), "{told}");
    assert!(matches!(server.call(other, &[b"DEBUG", b"BACKUP", b"NEXT"]), Value::Simple(_)));
}

/// Each shard counts its tasks by itself: backups that different ones coordinate are two all the same.
#[test]
fn no_two_backups_have_one_id() {
    let mut server = Server::new((0..SHARDS).map(|number| FetchingEngine::new(number, Trouble::default())));
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..4 * SHARDS {
        let id = server.connect();
        let Value::Bulk(frame) = server.call(id, &[b"DEBUG", b"BACKUP", b"START"]) else {
            panic!("no backup")
        };
        server.call(id, &[b"DEBUG", b"BACKUP", b"END"]);
        let text = String::from_utf8_lossy(&frame);
        let number = text.split("\"id\":").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
        assert!(seen.insert(number.to_owned()), "{number} again");
    }
}
