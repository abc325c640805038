//! What a request costs above the engine: nanoseconds of some requests, parsing included, over an
//! engine that answers everything from one record. With `--pipelined COMMAND COUNT` it makes so many requests of one
//! command in pipelines of 16 and measures nothing: for tools that count instructions.

use std::sync::Arc;
use tierstone_base::{
    Clock, CpuClock, Error, ErrorKind, KeyHasher, KeyspaceId, Now, Result, Seq, SystemClock, Token,
};
use tierstone_engine::{
    Admission, BatchTicket, Commit, Durability, Engine, EngineStatistics, Event, Health, IndexKind, Key,
    Lookup, RangeRequest, RecordMeta, RecordView, ScanRequest, SnapshotId, ValueKind, Write, WriteReceipt,
};
use tierstone_media::{IoCompletion, IoRequest};
use tierstone_redis::{Args, ConnectionInfo, Executor, ExecutorSettings, Outcome, ServerFacts};
use tierstone_store::{DatabaseMap, ShardSettings};
use tierstone_wire::resp::{Arguments, Progress, RequestLimits, RequestParser, encode_command};

#[derive(Debug)]
struct OneRecord {
    value: Vec<u8>,
    applied: Seq,
}

impl Engine for OneRecord {
    fn lookup(&mut self, _now: Now, _key: Key<'_>) -> Lookup<'_> {
        let meta = RecordMeta { seq: 1, expiry_ms: 0, kind: ValueKind::STRING };
        Lookup::Found(RecordView { meta, value: &self.value })
    }

    fn fetch(&mut self, _now: Now, _keys: &[(Token, Key<'_>)]) {}

    fn release(&mut self, _token: Token) {}

    fn write(&mut self, _now: Now, writes: &[Write<'_>]) -> Result<WriteReceipt> {
        self.applied += writes.len() as u64;
        Ok(WriteReceipt { seq: self.applied, commit: Commit::Durable, cost: Default::default() })
    }

    fn admit(&mut self, _now: Now, _writes: &[Write<'_>]) -> Result<()> {
        Ok(())
    }

    fn write_part(
        &mut self,
        now: Now,
        writes: &[Write<'_>],
        _batch: &Arc<BatchTicket>,
    ) -> Result<WriteReceipt> {
        self.write(now, writes)
    }

    fn undo_part(
        &mut self,
        now: Now,
        writes: &[Write<'_>],
        _batch: &Arc<BatchTicket>,
    ) -> Result<WriteReceipt> {
        self.write(now, writes)
    }

    fn scan(&mut self, _now: Now, _request: ScanRequest) {}

    fn snapshot(&mut self, _now: Now) -> Result<SnapshotId> {
        Err(Error::new(ErrorKind::Unsupported, "the one record has no snapshots"))
    }

    fn release_snapshot(&mut self, _snapshot: SnapshotId) {}

    fn read_at(&mut self, _now: Now, _snapshot: SnapshotId, _keys: &[(Token, Key<'_>)]) {}

    fn range(&mut self, _now: Now, _request: RangeRequest) {}

    fn create_keyspace(&mut self, _keyspace: KeyspaceId, _index: IndexKind) {}

    fn drop_keyspace(&mut self, _keyspace: KeyspaceId) {}

    fn len(&self, _keyspace: KeyspaceId) -> u64 {
        1
    }

    fn step(&mut self, _now: Now, _completions: &mut Vec<IoCompletion>, _events: &mut Vec<Event>) {}

    fn take_requests(&mut self, _requests: &mut Vec<IoRequest>) {}

    fn next_step_at_us(&self) -> Option<u64> {
        None
    }

    fn durable_seq(&self) -> Seq {
        self.applied
    }

    fn decided_seq(&self) -> Seq {
        self.applied
    }

    fn applied_seq(&self) -> Seq {
        self.applied
    }

    fn flush(&mut self, _now: Now) {}

    fn set_durability(&mut self, _now: Now, _durability: Durability) -> Seq {
        self.applied_seq()
    }

    fn health(&self) -> Health {
        Health::Good
    }

    fn admission(&self) -> Admission {
        Admission::Open
    }

    fn set_cpu_clock(&mut self, _clock: Box<dyn CpuClock>) {}

    fn statistics(&self) -> EngineStatistics {
        EngineStatistics::default()
    }
}

/// What `--pipelined` asks for.
fn pipelined() -> Option<(String, u64)> {
    let mut words = std::env::args().skip_while(|argument| argument != "--pipelined").skip(1);
    Some((words.next()?, words.next()?.parse().ok()?))
}

/// Makes `count` requests, each time 16 in one pipeline.
fn run_pipelined(executor: &mut Executor<OneRecord>, words: &[&[u8]], count: u64) {
    let clock = SystemClock::new();
    let mut input = Vec::new();
    encode_command(words, &mut input);
    let mut parser = RequestParser::new(RequestLimits::default());
    let mut arguments = Arguments::new();
    let mut reply = Vec::with_capacity(1 << 16);
    for _ in 0..count / 16 {
        let now = clock.now();
        reply.clear();
        for place in 0..16 {
            let Ok(Progress::Complete { .. }) = parser.parse(&input, &mut arguments) else {
                panic!("the request is whole")
            };
            executor.note_pipelined(place > 0);
            let outcome = executor.request(now, 1, Args::Request(arguments.request(&input)), &mut reply);
            assert!(matches!(outcome, Outcome::Ready { .. }));
        }
        executor.end_pipeline(now);
    }
}

fn executor() -> Executor<OneRecord> {
    let settings = ExecutorSettings {
        shard: ShardSettings {
            index: 0,
            count: 1,
            map: DatabaseMap::new(16),
            index_kind: Default::default(),
            hasher: KeyHasher::new([1, 2]),
            durability: Durability::Sync,
            record_bytes_max: 1 << 20,
        },
        value_size_max_bytes: 1 << 20,
        password: String::new(),
        users: None,
        transaction_size_max_bytes: 1 << 20,
        held_bytes_max: 64 << 20,
        eviction: Default::default(),
        facts: ServerFacts::default(),
        values: Vec::new(),
    };
    let engine = OneRecord { value: b"12345678901234567".to_vec(), applied: 1 };
    Executor::new(engine, settings)
}

fn main() {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let count = if is_test { 100 } else { 3_000_000 };
    let mut executor = executor();
    let clock = SystemClock::new();
    executor.set_clock(Box::new(SystemClock::new()));
    executor.connect(clock.now(), 1, ConnectionInfo::default());
    let value = [b'x'; 100];
    let requests: [&[&[u8]]; 5] = [
        &[b"GET", b"key:000000012345"],
        &[b"SET", b"key:000000012345", &value],
        &[b"INCR", b"key:000000012345"],
        &[b"STRLEN", b"key:000000012345"],
        &[b"MGET", b"key:000000012345", b"key:000000012346", b"key:000000012347"],
    ];
    if let Some((name, count)) = pipelined() {
        let words = requests.into_iter().find(|words| words[0].eq_ignore_ascii_case(name.as_bytes()));
        return run_pipelined(&mut executor, words.unwrap_or(requests[0]), count);
    }
    for words in requests {
        let mut input = Vec::new();
        encode_command(words, &mut input);
        let mut parser = RequestParser::new(RequestLimits::default());
        let mut arguments = Arguments::new();
        let mut reply = Vec::with_capacity(1 << 16);
        let now = clock.now();
        let mut run = |executor: &mut Executor<OneRecord>, count: u64| {
            for _ in 0..count {
                let Ok(Progress::Complete { .. }) = parser.parse(&input, &mut arguments) else {
                    panic!("the request is whole")
                };
                reply.clear();
                let args = Args::Request(arguments.request(&input));
                let outcome = executor.request(now, 1, args, &mut reply);
                assert!(matches!(outcome, Outcome::Ready { .. }));
            }
        };
        let mut line = format!("{:7}", String::from_utf8_lossy(words[0]));
        // Not timed at all; timed, each by itself; timed, each behind another.
        for (tracking, slower_than_us, is_pipelined) in
            [("no", "-1", false), ("yes", "10000", false), ("yes", "10000", true)]
        {
            executor.apply_setting("latency-tracking", tracking);
            executor.apply_setting("slowlog-log-slower-than", slower_than_us);
            executor.note_pipelined(is_pipelined);
            run(&mut executor, count / 10);
            let start = clock.now();
            run(&mut executor, count);
            let us = clock.now().monotonic_us - start.monotonic_us;
            line.push_str(&format!(" {:6.1} ns", us as f64 * 1_000.0 / count as f64));
        }
        println!("{line}");
    }
}
