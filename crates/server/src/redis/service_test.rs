use super::*;
use crate::manual::ManualDriver;
use crate::settings::TransportSettings;
use crate::wake::Waker;
use tierstone_base::{KeyHasher, SeededRandom};
use tierstone_engine::Durability;
use tierstone_engine::map_engine::MapEngine;
use tierstone_media::sim::SimDevice;
use tierstone_media::{BLOCK_BYTES, Geometry};
use tierstone_redis::{ExecutorSettings, ServerFacts};
use tierstone_store::{DatabaseMap, ShardSettings};

type Driver = ManualDriver<RedisService<MapEngine>, SimDevice>;

const NOW: Now = Now { monotonic_us: 1_000_000, wall_ms: 1_700_000_000_000 };

fn executor() -> Executor<MapEngine> {
    let shard = ShardSettings {
        index: 0,
        count: 1,
        map: DatabaseMap::new(16),
        index_kind: Default::default(),
        hasher: KeyHasher::new([7, 11]),
        durability: Durability::Sync,
        record_bytes_max: 1 << 20,
    };
    let settings = ExecutorSettings {
        shard,
        value_size_max_bytes: 1 << 20,
        password: String::new(),
        users: None,
        transaction_size_max_bytes: 1 << 20,
        held_bytes_max: 4 << 20,
        eviction: Default::default(),
        facts: ServerFacts::default(),
        values: Vec::new(),
    };
    Executor::new(MapEngine::new(0), settings)
}

/// A driver of one shard, and what it tells the node.
fn driver(settings: TransportSettings) -> (Driver, crossbeam_channel::Receiver<ToNode>) {
    let (sender, mail) = crate::mailbox::mailbox(&Waker::new().unwrap(), 1_024);
    let (node, told) = crossbeam_channel::unbounded();
    let parts = ServiceParts {
        executor: executor(),
        shard: 0,
        mail,
        shards: vec![sender],
        node,
        snapshots: NewestNumbers::new(1),
        limits: RequestLimits::default(),
        buffer_bytes_max: settings.buffer_bytes_max,
        clients: Arc::new(ClientLedger::new(1)),
        serving: Arc::new(AtomicUsize::new(1)),
        stop_patience_us: 1_000,
        heartbeat: None,
    };
    let bytes = BLOCK_BYTES as u64;
    let device = SimDevice::plain(Geometry { meta_bytes: bytes, segment_bytes: bytes, segment_limit: 1 });
    (ManualDriver::new(RedisService::new(parts), device, settings, NOW).unwrap(), told)
}

fn ask(driver: &mut Driver, index: u32, request: &str) -> String {
    driver.receive(NOW, index, format!("{request}\r\n").as_bytes());
    (0..3).for_each(|_| driver.turn(NOW));
    let mut output = Vec::new();
    driver.take_output(index, &mut output);
    String::from_utf8(output).unwrap()
}

#[test]
fn who_is_turned_away_or_closed_is_counted() {
    let mut settings =
        TransportSettings { connections_max: 2, input_limit_bytes: 2_000, ..TransportSettings::default() };
    settings.input_pause_bytes = settings.input_pause_bytes.min(settings.input_limit_bytes);
    let (mut driver, _told) = driver(settings);
    let (first, second) =
        (driver.connect(NOW, &Peer::Unix).unwrap(), driver.connect(NOW, &Peer::Unix).unwrap());
    assert!(driver.connect(NOW, &Peer::Unix).is_err());
    driver.receive(NOW, second, format!("*2\r\n$3\r\nGET\r\n$5000\r\n{}", "x".repeat(3_000)).as_bytes());
    driver.turn(NOW);
    let stats = ask(&mut driver, first, "INFO stats");
    assert!(stats.contains("\r\nrejected_connections:1\r\n"), "{stats}");
    assert!(stats.contains("\r\nclient_query_buffer_limit_disconnections:1\r\n"), "{stats}");
    ask(&mut driver, first, "CONFIG RESETSTAT");
    let stats = ask(&mut driver, first, "INFO stats");
    assert!(stats.contains("\r\nrejected_connections:0\r\n"), "{stats}");
}

#[test]
fn clients_are_listed_with_the_sizes_of_their_buffers() {
    let (mut driver, _told) = driver(TransportSettings::default());
    let asker = driver.connect(NOW, &Peer::Unix).unwrap();
    let other = driver.connect(NOW, &Peer::Unix).unwrap();
    // A request that has not come whole, and a reply that is not taken.
    ask(&mut driver, other, &format!("SET k {}", "v".repeat(30_000)));
    driver.set_stalled(other, true);
    for request in ["GET k\r\n", "GET k\r\n", "*2\r\n$3\r\nGET\r\n$5000\r\nxxx"] {
        driver.receive(NOW, other, request.as_bytes());
        driver.turn(NOW);
    }
    let lines = ask(&mut driver, asker, "CLIENT LIST");
    let line = lines.lines().find(|line| line.contains("cmd=get")).unwrap();
    let field = |name: &str| -> usize {
        let value = line.split(' ').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        value.unwrap().parse().unwrap()
    };
    assert_eq!(field("qbuf"), "*2\r\n$3\r\nGET\r\n$5000\r\nxxx".len());
    assert_eq!(field("obl") + field("omem"), 2 * (30_000 + "$30000\r\n\r\n".len()), "{line}");
    assert_eq!((field("obl"), field("oll")), (16_384, 3));
    assert!(field("tot-mem") > field("omem") + field("obl") + field("qbuf"), "{line}");
    let own = lines.lines().find(|line| line.contains("cmd=client|list")).unwrap();
    assert!(own.contains(" qbuf=13 ") && own.contains(" argv-mem=10 "), "{own}");
}

#[test]
fn all_clients_that_were_closed_are_told_of_together() {
    let (mut driver, told) = driver(TransportSettings::default());
    let asker = driver.connect(NOW, &Peer::Unix).unwrap();
    let large: Vec<u32> = (0..12).map(|_| driver.connect(NOW, &Peer::Unix).unwrap()).collect();
    for index in &large {
        ask(&mut driver, *index, "MULTI");
        for _ in 0..4 {
            ask(&mut driver, *index, &format!("SET k {}", "v".repeat(60_000)));
        }
    }
    ask(&mut driver, asker, "CONFIG SET maxmemory-clients 300000");
    (0..20).for_each(|_| driver.turn(NOW));
    let told: Vec<ToNode> = told.try_iter().filter(|told| matches!(told, ToNode::Evicted { .. })).collect();
    let [ToNode::Evicted { count, lines, bytes, .. }] = told.as_slice() else { panic!("{told:?}") };
    assert!(*count > 8 && lines.len() == 8, "{count} {lines:?}");
    assert!(*bytes >= count * 240_000 && lines[0].contains("cmd=set"), "{bytes} {lines:?}");
}

/// Requests of one client on keys of its own, and what it is answered.
fn stream(client: usize, random: &mut SeededRandom) -> (Vec<u8>, Vec<u8>) {
    let (mut requests, mut answers) = (Vec::new(), Vec::new());
    let mut values: [Option<String>; 3] = [const { None }; 3];
    for number in 0..random.below(60) {
        let place = random.below(3) as usize;
        let key = format!("client {client} key {place}");
        let bulk = |value: &String| format!("${}\r\n{value}\r\n", value.len());
        match random.below(8) {
            0..3 => {
                let value = "v".repeat(random.below(90) as usize) + &number.to_string();
                tierstone_wire::resp::encode_command(
                    &[b"SET", key.as_bytes(), value.as_bytes()],
                    &mut requests,
                );
                values[place] = Some(value);
                answers.extend_from_slice(b"+OK\r\n");
            }
            3..6 => {
                tierstone_wire::resp::encode_command(&[b"GET", key.as_bytes()], &mut requests);
                let answer = values[place].as_ref().map_or("$-1\r\n".into(), bulk);
                answers.extend_from_slice(answer.as_bytes());
            }
            6 => {
                requests.extend_from_slice(format!("ECHO {number}\r\n\r\n*0\r\n").as_bytes());
                answers.extend_from_slice(bulk(&number.to_string()).as_bytes());
            }
            _ => {
                tierstone_wire::resp::encode_command(&[b"PING"], &mut requests);
                answers.extend_from_slice(b"+PONG\r\n");
            }
        }
    }
    if random.chance(0.3) {
        // What breaks the protocol ends the connection.
        requests.extend_from_slice(b"*1\r\n+PING\r\n");
        answers.extend_from_slice(b"-ERR Protocol error: expected '$', got '+'\r\n");
    }
    (requests, answers)
}

/// Shows `inputs` in one turn; the service is told of some of them before.
fn show(driver: &mut Driver, names: &[u32], inputs: &[(usize, Vec<u8>)], random: &mut SeededRandom) {
    let mut inputs = inputs;
    while !inputs.is_empty() {
        let (together, rest) = inputs.split_at(1 + random.below(inputs.len() as u64) as usize);
        for (client, bytes) in together {
            let goes_on = random.chance(0.1) || driver.foresee(names[*client], bytes);
            if !goes_on {
                break;
            }
        }
        for (client, bytes) in together {
            driver.receive(NOW, names[*client], bytes);
        }
        inputs = rest;
    }
}

#[test]
fn what_is_told_of_before_is_answered_as_everything_else() {
    const CLIENTS: usize = 5;
    for seed in 0..300 {
        let mut random = SeededRandom::new(seed);
        let (mut driver, _told) = driver(TransportSettings::default());
        let names = [(); CLIENTS].map(|()| driver.connect(NOW, &Peer::Unix).unwrap());
        let streams: Vec<_> = (0..CLIENTS).map(|client| stream(client, &mut random)).collect();
        let mut left: Vec<&[u8]> = streams.iter().map(|(requests, _)| requests.as_slice()).collect();
        let mut given = [const { Vec::new() }; CLIENTS];
        while left.iter().any(|left| !left.is_empty()) {
            let mut inputs = Vec::new();
            for _ in 0..random.below(9) {
                let client = random.below(CLIENTS as u64) as usize;
                let (bytes, rest) =
                    left[client].split_at((1 + random.below(200) as usize).min(left[client].len()));
                left[client] = rest;
                if !bytes.is_empty() {
                    inputs.push((client, bytes.to_vec()));
                }
            }
            show(&mut driver, &names, &inputs, &mut random);
            driver.turn(NOW);
        }
        (0..3).for_each(|_| driver.turn(NOW));
        for (client, (name, output)) in names.iter().zip(&mut given).enumerate() {
            driver.take_output(*name, output);
            let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(told(output), told(&streams[client].1), "seed {seed}, client {client}");
        }
    }
}

/// The kernel uses a buffer again: what was told of it in a turn, and not shown, is no request of the next.
#[test]
fn what_is_told_of_and_not_shown_is_forgotten() {
    let (mut driver, _told) = driver(TransportSettings::default());
    let client = driver.connect(NOW, &Peer::Unix).unwrap();
    let requests: [&[u8]; 2] = [b"*2\r\n$3\r\nGET\r\n$2\r\nab\r\n", b"*2\r\n$4\r\nECHO\r\n$1\r\nb\r\n"];
    let mut buffer = requests[0].to_vec();
    for _ in 0..4 {
        buffer.copy_from_slice(requests[0]);
        driver.foresee(client, &buffer);
        driver.turn(NOW);
        buffer.copy_from_slice(requests[1]);
        driver.receive(NOW, client, &buffer);
        driver.turn(NOW);
        let mut output = Vec::new();
        driver.take_output(client, &mut output);
        assert_eq!(output, b"$1\r\nb\r\n", "{}", String::from_utf8_lossy(&output));
    }
}

/// The arguments behind one that was uploaded, or the rest of a request, are no requests of their own.
#[test]
fn nothing_is_gathered_in_the_middle_of_a_request() {
    let mut connection = RedisConnection {
        name: 1,
        parser: RequestParser::new(RequestLimits::default()),
        arguments: Arguments::new(),
        authenticated: true,
        slots: Vec::new(),
        incoming: None,
        buffers: Arc::default(),
        argument_bytes_max: 512 << 20,
        turn: (0, 0),
    };
    let input = b"*1\r\n$4\r\nPING\r\n";
    let mut ahead = Ahead::default();
    assert_eq!(ahead.foresee(&mut connection, input), 0..1);
    assert_eq!(ahead.take(&connection, input), Some(0..1));
    assert_eq!((ahead.take(&connection, input), ahead.foresee(&mut connection, input)), (None, 0..1));
    // What has begun since then goes on with this input.
    connection.parser.resume_with(2, &mut connection.arguments);
    assert_eq!((ahead.take(&connection, input), ahead.foresee(&mut connection, input)), (None, 0..0));
    connection.parser.begin_anew();
    // Half of a request leaves the parser as it was.
    assert_eq!(ahead.foresee(&mut connection, &input[..9]), 0..0);
    assert!(connection.is_between_requests());
    connection.authenticated = false;
    assert_eq!(ahead.foresee(&mut connection, input), 0..0);
}

#[test]
fn a_pipeline_of_messages_waits_until_the_earlier_ones_are_with_their_receivers() {
    const RECEIVERS: usize = 64;
    const MESSAGES: usize = 9;
    let (mut driver, _told) = driver(TransportSettings::default());
    let receivers: Vec<u32> = (0..RECEIVERS).map(|_| driver.connect(NOW, &Peer::Unix).unwrap()).collect();
    for index in &receivers {
        ask(&mut driver, *index, "SUBSCRIBE news");
    }
    let payload = "m".repeat(32 << 10);
    let request = format!("*3\r\n$7\r\nPUBLISH\r\n$4\r\nnews\r\n${}\r\n{payload}\r\n", payload.len());
    let sender = driver.connect(NOW, &Peer::Unix).unwrap();
    driver.receive(NOW, sender, request.repeat(MESSAGES).as_bytes());
    let (mut replies, mut heard) = (Vec::new(), vec![Vec::new(); RECEIVERS]);
    let answer = format!(":{RECEIVERS}\r\n");
    // Two messages to all of them are 4 MiB.
    for turn in 1..=MESSAGES.div_ceil(2) {
        driver.turn(NOW);
        driver.take_output(sender, &mut replies);
        assert_eq!(replies, answer.repeat(MESSAGES.min(2 * turn)).as_bytes(), "turn {turn}");
    }
    let message = format!("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n${}\r\n{payload}\r\n", payload.len());
    for (index, heard) in receivers.iter().zip(&mut heard) {
        driver.take_output(*index, heard);
        assert_eq!(heard, message.repeat(MESSAGES).as_bytes());
    }
}

/// What a client has been answered, and how many whole replies of one line that is.
fn answers(driver: &mut Driver, index: u32, output: &mut Vec<u8>) -> usize {
    driver.take_output(index, output);
    output.iter().filter(|byte| **byte == b'\n').count()
}

#[test]
fn others_are_served_between_the_long_requests_of_one_client() {
    const REQUESTS: usize = 24;
    // Four of them are a turn's work; what comes in pieces makes no more of it.
    const A_TURN: usize = 6;
    let (mut driver, _told) = driver(TransportSettings::default());
    let [long, short] = [(); 2].map(|()| driver.connect(NOW, &Peer::Unix).unwrap());
    for key in ["a", "b"] {
        assert_eq!(ask(&mut driver, long, &format!("SET {key} {}", key.repeat(4_000))), "+OK\r\n");
    }
    for is_whole in [true, false] {
        let request = "LCS a b LEN\r\n";
        match is_whole {
            true => driver.receive(NOW, long, request.repeat(REQUESTS).as_bytes()),
            false => (0..REQUESTS).for_each(|_| driver.receive(NOW, long, request.as_bytes())),
        }
        let (mut output, mut answered) = (Vec::new(), 0);
        for turn in 0..REQUESTS {
            assert!(turn == 0 || answered < REQUESTS || turn > REQUESTS / A_TURN, "all at once");
            driver.receive(NOW, short, b"PING\r\n");
            driver.turn(NOW);
            let now_answered = answers(&mut driver, long, &mut output);
            assert!(now_answered - answered <= A_TURN, "turn {turn}: {answered} and {now_answered}");
            assert!(now_answered > answered || answered == REQUESTS, "turn {turn}: nothing was done");
            answered = now_answered;
            let mut pong = Vec::new();
            driver.take_output(short, &mut pong);
            assert_eq!(pong, b"+PONG\r\n", "turn {turn}");
        }
        assert_eq!(output, b":0\r\n".repeat(REQUESTS));
    }
}

#[test]
fn a_lowered_limit_of_arguments_binds_all_of_them() {
    let echo = |len: usize| {
        [format!("*2\r\n$4\r\nECHO\r\n${len}\r\n").into_bytes(), vec![b'x'; len], b"\r\n".to_vec()].concat()
    };
    let (mut driver, _told) = driver(TransportSettings::default());
    let [client, other] = [(); 2].map(|()| driver.connect(NOW, &Peer::Unix).unwrap());
    assert_eq!(ask(&mut driver, client, "CONFIG SET proto-max-bulk-len 2mb"), "+OK\r\n");
    for index in [client, other] {
        driver.receive(NOW, index, &echo(3 << 19));
        driver.turn(NOW);
        let mut output = Vec::new();
        driver.take_output(index, &mut output);
        assert_eq!(output.len(), "$1572864\r\n\r\n".len() + (3 << 19));
    }
    // In one input with what lowers it, and at a connection that was there before.
    let refused = "-ERR Protocol error: invalid bulk length\r\n";
    let lowered = b"CONFIG SET proto-max-bulk-len 1mb\r\nPING\r\n".to_vec();
    driver.receive(NOW, client, &[lowered, echo(3 << 19)].concat());
    driver.receive(NOW, other, &echo(3 << 19));
    driver.turn(NOW);
    for (index, expected) in [(client, format!("+OK\r\n+PONG\r\n{refused}")), (other, refused.into())] {
        let mut output = Vec::new();
        driver.take_output(index, &mut output);
        assert_eq!(String::from_utf8_lossy(&output), expected);
    }
}

#[test]
fn who_is_ended_by_another_is_gone_at_once_whatever_waits_for_him() {
    let (mut driver, _told) = driver(TransportSettings::default());
    let admin = driver.connect(NOW, &Peer::Unix).unwrap();
    let long = "v".repeat(30_000);
    ask(&mut driver, admin, &format!("SET k {long}"));
    ask(&mut driver, admin, "ACL SETUSER bob on >pw ~* &* +@all");
    for order in ["CLIENT KILL USER bob", "ACL DELUSER bob"] {
        let [reader, sleeper, listener] = [(); 3].map(|()| driver.connect(NOW, &Peer::Unix).unwrap());
        for (index, requests) in [
            (reader, "GET k\r\n".repeat(80)),
            (sleeper, "DEBUG SLEEP 3000\r\nGET k\r\n".to_owned()),
            (listener, "SUBSCRIBE news\r\n".to_owned()),
        ] {
            assert_eq!(ask(&mut driver, index, "AUTH bob pw"), "+OK\r\n");
            driver.set_stalled(index, index != sleeper);
            driver.receive(NOW, index, requests.as_bytes());
            driver.turn(NOW);
        }
        assert_eq!(ask(&mut driver, admin, "CLIENT LIST").matches("user=bob").count(), 3);
        driver.receive(NOW, admin, format!("{order}\r\n").as_bytes());
        (0..6).for_each(|_| driver.turn(NOW));
        let mut answers = Vec::new();
        driver.take_output(admin, &mut answers);
        let count = if order.starts_with("ACL") { 1 } else { 3 };
        assert_eq!(String::from_utf8_lossy(&answers), format!(":{count}\r\n"), "{order}");
        assert_eq!(ask(&mut driver, admin, "PUBLISH news x"), ":0\r\n", "who listened hears nothing");
        for index in [reader, sleeper, listener] {
            assert!(!driver.take_output(index, &mut Vec::new()), "{order}: {index} is still there");
        }
        let listed = ask(&mut driver, admin, "CLIENT LIST");
        assert!(listed.lines().filter(|line| line.starts_with("id=")).count() == 1, "{order}: {listed}");
    }
}

#[test]
fn who_ends_himself_is_answered_before() {
    let (mut driver, _told) = driver(TransportSettings::default());
    let admin = driver.connect(NOW, &Peer::Unix).unwrap();
    for (order, answer) in [("ACL DELUSER bob", ":1\r\n"), ("CLIENT KILL SKIPME no USER bob", ":1\r\n")] {
        ask(&mut driver, admin, "ACL SETUSER bob on >pw ~* &* +@all");
        let own = driver.connect(NOW, &Peer::Unix).unwrap();
        assert_eq!(ask(&mut driver, own, "AUTH bob pw"), "+OK\r\n");
        driver.receive(NOW, own, format!("{order}\r\nPING\r\n").as_bytes());
        (0..3).for_each(|_| driver.turn(NOW));
        let mut output = Vec::new();
        assert!(!driver.take_output(own, &mut output), "{order}: he is still there");
        assert_eq!(String::from_utf8_lossy(&output), answer, "{order}");
    }
}

#[test]
fn who_takes_back_who_he_is_has_the_limits_of_a_stranger_again() {
    let (mut driver, _told) = driver(TransportSettings::default());
    let admin = driver.connect(NOW, &Peer::Unix).unwrap();
    let client = driver.connect(NOW, &Peer::Unix).unwrap();
    assert_eq!(ask(&mut driver, admin, "CONFIG SET requirepass pw"), "+OK\r\n");
    let long = format!("*2\r\n$4\r\nECHO\r\n$20000\r\n{}", "x".repeat(20_000));
    assert_eq!(ask(&mut driver, client, "AUTH pw"), "+OK\r\n");
    assert!(ask(&mut driver, client, &long).starts_with("$20000\r\n"));
    assert_eq!(ask(&mut driver, client, "RESET"), "+RESET\r\n");
    assert_eq!(ask(&mut driver, client, &long), "-ERR Protocol error: unauthenticated bulk length\r\n");
}

/// Who does not say who he is, asks on and takes no answer is closed as soon as his output is full; who has said it waits.
#[test]
fn a_stranger_who_takes_no_answers_is_closed() {
    let output = crate::OutputLimits { full_bytes: 64 << 10, ..Default::default() };
    let (mut driver, _told) = driver(TransportSettings { output, ..Default::default() });
    let admin = driver.connect(NOW, &Peer::Unix).unwrap();
    assert_eq!(ask(&mut driver, admin, "CONFIG SET requirepass pw"), "+OK\r\n");
    for (is_known, order) in [(false, "GET key\r\n"), (true, "ECHO 0123456789\r\n")] {
        let client = driver.connect(NOW, &Peer::Unix).unwrap();
        if is_known {
            assert_eq!(ask(&mut driver, client, "AUTH pw"), "+OK\r\n");
        }
        driver.set_stalled(client, true);
        for _ in 0..40 {
            driver.receive(NOW, client, order.repeat(200).as_bytes());
            driver.turn(NOW);
        }
        let clients = ask(&mut driver, admin, "INFO");
        let is_there = |line: &str| clients.contains(&format!("\r\n{line}\r\n"));
        assert!(is_there("client_output_buffer_limit_disconnections:1"), "{clients}");
        let connected = if is_known { 2 } else { 1 };
        assert!(is_there(&format!("connected_clients:{connected}")), "{clients}");
    }
}

#[test]
fn a_shard_that_ends_in_whatever_way_gives_its_place_up_once() {
    let all = Arc::new(AtomicUsize::new(3));
    let count = || all.load(std::sync::atomic::Ordering::Acquire);
    let mut left = Serving::new(Arc::clone(&all));
    left.leave();
    left.leave();
    drop(left);
    assert_eq!(count(), 2);
    let passed = Serving::new(Arc::clone(&all)).pass_on();
    assert_eq!(count(), 2);
    let lost = Serving::new(passed);
    assert!(lost.is_anybody_there());
    drop(lost);
    assert_eq!(count(), 1);
}
