use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use tierstone_base::{Clock, SystemClock};
use tierstone_wire::resp::{Arguments, Progress, ReplyWriter, RequestLimits, RequestParser, Version};

use super::{Plan, Refill, Server, load, run, verify};
use crate::key::SizeDistribution;
use crate::mix::{Mix, OperationKind};
use crate::outcome::Outcome;
use crate::pacing::{Arrivals, Extent, Pacing};
use crate::workload::{Workload, Ycsb};

/// What a server of the tests does beside serving.
#[derive(Clone, Debug, Default)]
struct Habits {
    /// Answers every write with this error.
    refuses_writes: Option<&'static str>,
    /// Answers in writes of this many bytes.
    piece_bytes: Option<usize>,
    /// Closes the connection at this request, counted over all connections.
    closes_at: Option<u64>,
    /// Holds this and all later replies back until [`Shared::release`].
    holds_at: Option<u64>,
    /// Never answers.
    is_silent: bool,
    /// Sends this instead of replies.
    garbage: Option<&'static [u8]>,
    /// Accepts nothing before `AUTH` with this password.
    password: Option<&'static str>,
}

/// A map served over the protocol, one thread a connection.
#[derive(Debug)]
struct Shared {
    habits: Habits,
    clock: SystemClock,
    records: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    transcript: Mutex<Vec<Vec<u8>>>,
    requests: AtomicU64,
    /// When replies began to be held and when they were released.
    hold: Mutex<(Option<u64>, Option<u64>)>,
    released: Condvar,
}

impl Shared {
    fn start(habits: Habits) -> (Arc<Shared>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            habits,
            clock: SystemClock::new(),
            records: Mutex::default(),
            transcript: Mutex::default(),
            requests: AtomicU64::new(0),
            hold: Mutex::default(),
            released: Condvar::new(),
        });
        let server = Arc::clone(&shared);
        // The thread ends with the process of the tests.
        spawn(move || {
            for socket in listener.incoming() {
                let (socket, server) = (socket.unwrap(), Arc::clone(&server));
                spawn(move || server.serve(socket));
            }
        });
        (shared, address)
    }

    fn serve(&self, mut socket: TcpStream) {
        socket.set_nodelay(true).unwrap();
        let mut parser = RequestParser::new(RequestLimits::default());
        let mut arguments = Arguments::new();
        let (mut input, mut output) = (Vec::new(), Vec::new());
        let mut buffer = vec![0; 64 << 10];
        let mut is_in = self.habits.password.is_none();
        loop {
            match socket.read(&mut buffer) {
                Ok(count) if count > 0 => input.extend_from_slice(&buffer[..count]),
                _ => return,
            }
            let mut front = 0;
            while let Progress::Complete { consumed } = parser.parse(&input[front..], &mut arguments).unwrap()
            {
                let request: Vec<Vec<u8>> = arguments.iter(&input[front..]).map(<[u8]>::to_vec).collect();
                front += consumed;
                let number = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
                if self.habits.closes_at == Some(number) {
                    return;
                }
                self.hold_back(number);
                self.answer(&request, &mut is_in, &mut output);
            }
            input.drain(..front);
            if self.habits.is_silent {
                output.clear();
            }
            let piece = self.habits.piece_bytes.unwrap_or(usize::MAX);
            for bytes in output.chunks(piece) {
                if socket.write_all(bytes).is_err() {
                    return;
                }
            }
            output.clear();
        }
    }

    fn hold_back(&self, number: u64) {
        if self.habits.holds_at.is_none_or(|first| number < first) {
            return;
        }
        let mut hold = self.hold.lock().unwrap();
        hold.0.get_or_insert(self.clock.now().monotonic_us);
        drop(self.released.wait_while(hold, |hold| hold.1.is_none()).unwrap());
    }

    fn release(&self) {
        let mut hold = self.hold.lock().unwrap();
        hold.1.get_or_insert(self.clock.now().monotonic_us);
        self.released.notify_all();
    }

    fn answer(&self, request: &[Vec<u8>], is_in: &mut bool, output: &mut Vec<u8>) {
        if let Some(garbage) = self.habits.garbage {
            output.extend_from_slice(garbage);
            return;
        }
        self.transcript.lock().unwrap().push(request.concat());
        let mut reply = ReplyWriter::new(output, Version::Resp2);
        let mut records = self.records.lock().unwrap();
        let bulk = |reply: &mut ReplyWriter<'_>, value: Option<&Vec<u8>>| match value {
            Some(value) => reply.bulk(value),
            None => reply.null(),
        };
        match (request[0].as_slice(), &request[1..]) {
            (b"AUTH", [password]) => {
                *is_in = self.habits.password.is_some_and(|right| right.as_bytes() == password);
                if *is_in { reply.ok() } else { reply.error("WRONGPASS invalid password") }
            }
            _ if !*is_in => reply.error("NOAUTH Authentication required."),
            (b"SELECT", [_]) => reply.ok(),
            (b"GET", [key]) => bulk(&mut reply, records.get(key)),
            (b"MGET", keys) => {
                reply.array(keys.len());
                keys.iter().for_each(|key| bulk(&mut reply, records.get(key)));
            }
            (b"SET", [key, value]) => match self.habits.refuses_writes {
                Some(text) => reply.error(text),
                None => {
                    records.insert(key.clone(), value.clone());
                    reply.ok();
                }
            },
            _ => reply.error("ERR unknown command"),
        }
    }
}

fn spawn(body: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().spawn(body).unwrap();
}

fn keep_going(_: crate::run::Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Three connections on two threads.
fn plan(address: String, workload: Workload, pipeline: usize, operations: u64) -> Plan {
    Plan {
        server: Server { address, ..Server::default() },
        connections: 3,
        workload,
        pacing: Pacing { threads: 2, pipeline, extent: Extent::Operations(operations), ..Pacing::default() },
        ..Plan::default()
    }
}

fn small(records: u64, mix: Mix) -> Workload {
    Workload { records, mix, ..Workload::default() }
}

/// Loads the plan's records and runs its mix.
fn load_and_run(plan: &Plan) -> Outcome {
    let loaded = load(plan, &mut keep_going).unwrap();
    assert!(loaded.is_clean() && loaded.operations == plan.workload.records, "{loaded:?}");
    run(plan, &mut keep_going).unwrap()
}

#[test]
fn every_ycsb_workload_runs_clean_and_is_verified() {
    for (name, refill) in Ycsb::ALL.into_iter().zip([Refill::WhenEmpty, Refill::AtOnce].into_iter().cycle()) {
        let (server, address) = Shared::start(Habits::default());
        let plan = Plan { refill, ..plan(address, Workload::ycsb(name, 300), 8, 2001) };
        let outcome = load_and_run(&plan);
        assert!(outcome.is_clean() && outcome.misses == 0, "{name}: {outcome:?}");
        assert_eq!(outcome.operations, 2001, "{name}");
        assert!(outcome.bytes_received > 0 && outcome.client_cpu_us_per_operation > 0.0);
        let inserts = outcome.kinds.get(&OperationKind::Insert).map_or(0, |kind| kind.operations);
        assert_eq!(server.records.lock().unwrap().len() as u64, 300 + inserts, "{name}");
        let verified = verify(&plan, &mut keep_going).unwrap();
        assert_eq!((verified.operations, verified.misses), (300, 0));
        assert!(verified.is_clean());
    }
}

#[test]
fn a_read_through_writes_what_was_not_there() {
    for refill in [Refill::WhenEmpty, Refill::AtOnce] {
        let (server, address) = Shared::start(Habits::default());
        let plan = Plan { refill, ..plan(address, small(50, Mix::READ_THROUGH), 4, 2_000) };
        let outcome = run(&plan, &mut keep_going).unwrap();
        assert!(outcome.is_clean(), "{outcome:?}");
        assert_eq!((outcome.operations, server.records.lock().unwrap().len()), (2_000, 50));
        // Several may ask for one before it is there.
        assert!((50..500).contains(&outcome.misses), "{} misses", outcome.misses);
    }
}

#[test]
fn damaged_swapped_and_lost_records_are_found() {
    let (server, address) = Shared::start(Habits::default());
    let mut plan = plan(address, small(200, Mix::GET), 16, 1);
    assert!(load(&plan, &mut keep_going).unwrap().is_clean());
    {
        let mut records = server.records.lock().unwrap();
        let key = |id| plan.workload.key.key(id);
        records.remove(&key(7));
        let swapped = records[&key(8)].clone();
        records.insert(key(9), swapped);
        records.get_mut(&key(10)).unwrap()[50] ^= 1;
    }
    let outcome = verify(&plan, &mut keep_going).unwrap();
    assert_eq!((outcome.operations, outcome.misses, outcome.verification_failures), (200, 1, 2));
    // The same faults are seen through scans.
    plan.workload.mix = Mix { scan: 1.0, ..Mix::default() };
    plan.workload.scan_len = SizeDistribution::Fixed(200);
    plan.workload.distribution = crate::Distribution::Zipf { theta: 20.0 };
    let outcome = run(&plan, &mut keep_going).unwrap();
    assert_eq!((outcome.operations, outcome.misses, outcome.verification_failures), (1, 1, 2));
}

#[test]
fn replies_may_come_in_any_pieces() {
    for piece_bytes in [1, 7] {
        let (_server, address) =
            Shared::start(Habits { piece_bytes: Some(piece_bytes), ..Habits::default() });
        let mut plan = plan(address, small(20, Mix::puts(0.3)), 4, 100);
        for verify in [true, false] {
            plan.workload.verify = verify;
            let outcome = load_and_run(&plan);
            assert!(outcome.is_clean() && outcome.misses == 0 && outcome.operations == 100, "{outcome:?}");
        }
    }
}

#[test]
fn values_larger_than_every_buffer_pass_both_ways() {
    let (_server, address) = Shared::start(Habits::default());
    let mut workload = small(12, Mix { get: 0.5, set: 0.2, read_modify_write: 0.3, ..Mix::default() });
    workload.value.size = SizeDistribution::List(vec![10, 3 << 20]);
    let outcome = load_and_run(&plan(address, workload, 8, 60));
    assert!(outcome.is_clean() && outcome.misses == 0, "{outcome:?}");
}

#[test]
fn one_seed_sends_one_sequence_of_commands() {
    let transcript = |seed| {
        let (server, address) = Shared::start(Habits::default());
        let mut plan = plan(address, Workload::ycsb(Ycsb::A, 50), 4, 300);
        (plan.connections, plan.pacing.threads, plan.pacing.seed) = (1, 1, seed);
        assert!(run(&plan, &mut keep_going).unwrap().operations == 300);
        std::mem::take(&mut *server.transcript.lock().unwrap())
    };
    assert_eq!(transcript(1), transcript(1));
    assert_ne!(transcript(1), transcript(2));
}

#[test]
fn a_stall_is_seen_by_every_operation_that_was_meant_to_be_sent_in_it() {
    let (server, address) = Shared::start(Habits { holds_at: Some(200), ..Habits::default() });
    let rate = 2000.0;
    let mut plan = plan(address, small(10, Mix::SET), 1, 3000);
    (plan.connections, plan.pacing.threads) = (1, 1);
    plan.pacing.rate = Some(rate);
    plan.pacing.arrivals = Arrivals::Constant;
    let mut reports = 0;
    let outcome = run(&plan, &mut |_| {
        let is_held = server.hold.lock().unwrap().0.is_some();
        reports += u32::from(is_held);
        if reports == 4 {
            server.release();
        }
        ControlFlow::Continue(())
    });
    let outcome = outcome.unwrap();
    let (Some(held_us), Some(released_us)) = *server.hold.lock().unwrap() else { unreachable!("held") };
    let period_us = released_us - held_us;
    assert_eq!(outcome.operations, 3000);
    assert!(outcome.latency.max_us >= period_us, "{} of {period_us}", outcome.latency.max_us);
    assert!(outcome.longest_gap_us >= period_us);
    // One connection without a pipeline: a closed loop would have one slow operation. All that were meant
    // for the first half of the stall waited for the second half at least.
    let histogram = &outcome.kinds[&OperationKind::Set].histogram;
    let slow = histogram.count() - histogram.count_at_or_below(period_us * 49 / 100);
    let expected = ((period_us as f64 / 2e6 * rate) as u64).min(2800) - 1;
    assert!(slow >= expected, "{slow} slow operations, {expected} expected, stall of {period_us} us");
    // The generator was not what was late: it says how late it sent.
    assert!(outcome.send_delay.unwrap().max_us > 0);
}

#[test]
fn an_open_loop_counts_every_operation_of_its_schedule() {
    for (arrivals, verify) in [(Arrivals::Constant, true), (Arrivals::Poisson, false)] {
        let (_server, address) = Shared::start(Habits::default());
        let mut workload = small(100, Mix { get: 0.6, read_modify_write: 0.4, ..Mix::default() });
        workload.verify = verify;
        let mut plan = plan(address, workload, 16, 2000);
        plan.pacing.rate = Some(20_000.0);
        plan.pacing.arrivals = arrivals;
        plan.pacing.warmup_seconds = 0.02;
        let outcome = load_and_run(&plan);
        assert!(outcome.is_clean() && outcome.misses == 0, "{outcome:?}");
        assert_eq!((outcome.operations, outcome.send_delay.unwrap().count), (2000, 2000));
    }
}

#[test]
fn a_servers_errors_are_counted_and_the_first_is_kept() {
    let habits = Habits { refuses_writes: Some("OOM the budget is used up"), ..Habits::default() };
    let (_server, address) = Shared::start(habits);
    let outcome = run(&plan(address, small(10, Mix::puts(0.5)), 4, 500), &mut keep_going).unwrap();
    assert_eq!(outcome.operations, 500);
    assert_eq!(outcome.errors, outcome.kinds[&OperationKind::Set].operations);
    assert_eq!(outcome.first_error.as_deref(), Some("-OOM the budget is used up"));
}

#[test]
fn a_lost_connection_does_not_end_the_others() {
    let (_server, address) = Shared::start(Habits { closes_at: Some(100), ..Habits::default() });
    let outcome = run(&plan(address, small(10, Mix::SET), 4, 1000), &mut keep_going).unwrap();
    assert!((1..=4).contains(&outcome.unanswered), "{outcome:?}");
    // A thread whose only connection was lost has no way to make its share.
    assert!((500 - 4..1000).contains(&outcome.operations), "{outcome:?}");
    assert!(!outcome.is_clean());
    let reason = outcome.ended_early.unwrap();
    assert!(reason.contains("lost"), "{reason}");
}

#[test]
fn a_silent_server_ends_the_run_with_its_operations_unanswered() {
    let (_server, address) = Shared::start(Habits { is_silent: true, ..Habits::default() });
    let mut plan = plan(address, small(10, Mix::SET), 4, 1000);
    plan.pacing.timeout_seconds = 0.05;
    let outcome = run(&plan, &mut keep_going).unwrap();
    assert_eq!((outcome.operations, outcome.unanswered), (0, 12));
    assert!(outcome.ended_early.unwrap().starts_with("no reply for"));
    assert!(outcome.longest_gap_us >= 50_000);
}

#[test]
fn bytes_of_another_protocol_end_the_connection() {
    for garbage in
        [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"$99999999999999\r\n", b"+OK\r\n+OK\r\n+OK\r\n"]
    {
        let (_server, address) = Shared::start(Habits { garbage: Some(garbage), ..Habits::default() });
        let outcome = run(&plan(address, small(10, Mix::SET), 1, 1000), &mut keep_going).unwrap();
        assert!(outcome.ended_early.is_some(), "{outcome:?}");
    }
}

#[test]
fn a_login_is_made_and_a_refused_one_reported() {
    let (_server, address) = Shared::start(Habits { password: Some("secret"), ..Habits::default() });
    let mut plan = plan(address, small(10, Mix::SET), 1, 10);
    plan.server.password = Some("wrong".into());
    let error = run(&plan, &mut keep_going).unwrap_err();
    assert!(error.message().contains("WRONGPASS"), "{error}");
    plan.server.password = Some("secret".into());
    plan.server.database = 3;
    assert!(run(&plan, &mut keep_going).unwrap().is_clean());
}

#[test]
fn the_caller_can_end_a_run_and_is_told_its_progress() {
    let (_server, address) = Shared::start(Habits::default());
    let mut plan = plan(address, small(10, Mix::GET), 4, 1);
    plan.pacing.extent = Extent::Seconds(86_400.0);
    let mut calls = 0;
    let outcome = run(&plan, &mut |_| {
        calls += 1;
        if calls > 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let outcome = outcome.unwrap();
    assert!(outcome.operations > 0 && outcome.unanswered == 0, "{outcome:?}");
}

#[test]
fn a_plan_is_read_back_from_its_text_and_a_bad_one_refused() {
    let plan = plan("localhost:1".into(), Workload::ycsb(Ycsb::D, 10), 4, 10);
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    assert!(Plan { connections: 0, ..plan.clone() }.validate().is_err());
    assert!(run(&Plan { connections: 0, ..plan }, &mut keep_going).is_err());
}
