//! Clients that others wrote: redis-cli, redis-benchmark, redis-py and the `redis` crate.
//!
//! A client that is not here is one `SKIP: …` line; `scripts/prepare.sh` installs them.

use crate::common;
use crate::common::{Folder, Server, drivers};
use redis::{Commands, TypedCommands};
use std::io::Write;
use std::process::{Command, Stdio};

fn start(folder: &Folder, more: &[&str]) -> Server {
    let small = ["--shards", "2", "--memory", "16MiB", "--capacity", "64MiB", "--segment-size", "1MiB"];
    Server::start(folder, &small.iter().copied().chain(more.iter().copied()).collect::<Vec<_>>())
}

/// Whether `tool` can be run; says so where it cannot.
fn have(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        println!("SKIP: tests with {tool} (it is not installed)");
    }
    found.is_ok()
}

/// Runs a tool with `input`; it must succeed. Returns what it printed.
fn tool(name: &str, arguments: &[&str], input: &[u8]) -> String {
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the tool starts");
    let mut stdin = child.stdin.take().expect("standard input was piped");
    let input = input.to_vec();
    // From a thread of its own: the tool may print while it reads.
    let writer = std::thread::Builder::new()
        .name("tool input".into())
        .spawn(move || stdin.write_all(&input))
        .expect("a thread starts");
    let output = child.wait_with_output().expect("the tool ends");
    // A tool that does not read its input to the end may close it early.
    let _ = writer.join();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {arguments:?}: {}\n{text}\n{complaints}", output.status);
    text
}

fn redis_cli(server: &Server, arguments: &[&str], input: &[u8]) -> String {
    let port = server.port();
    let all: Vec<&str> = ["-p", &port].into_iter().chain(arguments.iter().copied()).collect();
    tool("redis-cli", &all, input)
}

#[test]
fn redis_cli_reads_writes_scans_and_pipes() {
    if !have("redis-cli") {
        return;
    }
    let folder = Folder::new();
    let server = start(&folder, &[]);
    assert_eq!(redis_cli(&server, &["SET", "word", "a b"], b""), "OK\n");
    assert_eq!(redis_cli(&server, &["GET", "word"], b""), "a b\n");
    assert_eq!(redis_cli(&server, &["INCRBY", "number", "41"], b""), "41\n");
    assert_eq!(redis_cli(&server, &["--no-raw", "GET", "absent"], b""), "(nil)\n");
    assert_eq!(redis_cli(&server, &["--no-raw", "-3", "GET", "absent"], b""), "(nil)\n");
    assert!(redis_cli(&server, &["-3", "HELLO"], b"").contains("proto 3"));
    assert_eq!(redis_cli(&server, &[], b"MULTI\nSET a 1\nINCR a\nEXEC\n"), "OK\nQUEUED\nQUEUED\nOK\n2\n");
    assert_eq!(redis_cli(&server, &["-n", "3", "SET", "elsewhere", "x"], b""), "OK\n");
    assert_eq!(redis_cli(&server, &["EXISTS", "elsewhere"], b""), "0\n");
    assert_eq!(redis_cli(&server, &["FLUSHALL"], b""), "OK\n");

    let mut commands = Vec::new();
    for number in 0..5_000 {
        let (key, value) = (format!("piped:{number}"), "v".repeat(number % 300));
        let header = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n{value}\r\n", key.len(), value.len());
        commands.extend_from_slice(header.as_bytes());
    }
    let said = redis_cli(&server, &["--pipe"], &commands);
    assert!(said.contains("errors: 0, replies: 5000"), "{said}");
    let mut keys: Vec<String> =
        redis_cli(&server, &["--scan", "--pattern", "piped:*"], b"").lines().map(Into::into).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 5_000, "every key is scanned");
    let said = redis_cli(&server, &["--bigkeys"], b"");
    assert!(said.contains("Sampled 5000 keys") && said.contains("has 299 bytes"), "{said}");
    let said = redis_cli(&server, &["--memkeys"], b"");
    assert!(said.contains("Sampled 5000 keys"), "{said}");
    server.stop();
}

#[test]
fn redis_benchmark_runs_its_tests_on_both_drivers() {
    if !have("redis-benchmark") {
        return;
    }
    for driver in drivers() {
        let folder = Folder::new();
        let server = start(&folder, &["--driver", driver]);
        let port = server.port();
        let said = tool(
            "redis-benchmark",
            &[
                "-p",
                &port,
                "-t",
                "ping,set,get,incr,mset",
                "-P",
                "16",
                "-c",
                "50",
                "-n",
                "4000",
                "-r",
                "500",
                "--csv",
            ],
            b"",
        );
        for name in
            ["\"PING_INLINE\"", "\"PING_MBULK\"", "\"SET\"", "\"GET\"", "\"INCR\"", "\"MSET (10 keys)\""]
        {
            assert!(said.lines().any(|line| line.starts_with(name)), "{driver}: no row {name}:\n{said}");
        }
        let keys = common::ask(&mut server.connect(), &[b"DBSIZE"]).integer();
        assert!(keys.is_some_and(|keys| (500..=1_000).contains(&keys)), "{driver}: {keys:?} keys");
        assert_eq!(server.info("total_error_replies"), 0, "{driver}");
        server.stop();
    }
}

#[test]
fn redis_py_is_served_unchanged() {
    let Some(python) = std::env::var_os("TIERSTONE_PYTHON") else {
        println!("SKIP: tests with redis-py (TIERSTONE_PYTHON names no Python that has it)");
        return;
    };
    let folder = Folder::new();
    let server = start(&folder, &[]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/redis_py.py");
    let output = Command::new(python)
        .args([script, &server.port()])
        .stdin(Stdio::null())
        .output()
        .expect("the Python starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    print!("{said}");
    assert!(output.status.success(), "{}\n{said}\n{complaints}", output.status);
    assert!(said.contains("all checks passed"), "{said}");
    server.stop();
}

fn rust_client(server: &Server, protocol: &str) -> redis::Connection {
    let url = format!("redis://{}/?protocol={protocol}", server.address);
    redis::Client::open(url).expect("a client").get_connection().expect("a connection")
}

#[test]
fn the_redis_crate_is_served_unchanged() {
    let folder = Folder::new();
    let server = start(&folder, &[]);
    for protocol in ["resp2", "resp3"] {
        let mut connection = rust_client(&server, protocol);
        let () = redis::cmd("FLUSHALL").query(&mut connection).expect("FLUSHALL");
        TypedCommands::set(&mut connection, "name", "stone").expect("SET");
        assert_eq!(TypedCommands::get(&mut connection, "name").expect("GET").as_deref(), Some("stone"));
        assert_eq!(TypedCommands::get(&mut connection, "absent").expect("GET"), None);
        let sum: f64 = Commands::incr(&mut connection, "sum", 1.5).expect("INCRBYFLOAT");
        assert!((sum - 1.5).abs() < 1e-9);
        let old: Vec<Option<String>> = Commands::mget(&mut connection, &["name", "absent"]).expect("MGET");
        assert_eq!(old, [Some("stone".to_owned()), None]);

        let (first, second): (i64, String) = redis::pipe()
            .atomic()
            .cmd("INCR")
            .arg("{t}count")
            .cmd("SET")
            .arg("{t}name")
            .arg("x")
            .ignore()
            .cmd("GET")
            .arg("{t}name")
            .query(&mut connection)
            .expect("a transaction");
        assert_eq!((first, second.as_str()), (1, "x"));

        let mut pipeline = redis::pipe();
        for number in 0..1_000 {
            pipeline.cmd("SET").arg(format!("many:{number}")).arg(number).ignore();
        }
        let () = pipeline.query(&mut connection).expect("a pipeline");
        let scanned =
            Commands::scan_match(&mut connection, "many:*").expect("SCAN").map(|key| key.expect("a key"));
        let mut keys: Vec<String> = scanned.collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 1_000, "{protocol}");

        let error = redis::cmd("GET").query::<()>(&mut connection).expect_err("an arity error");
        assert!(error.to_string().contains("wrong number of arguments"), "{error}");
        assert!(!error.is_connection_dropped());
        assert_eq!(TypedCommands::get(&mut connection, "name").expect("GET").as_deref(), Some("stone"));
    }
    watched_by_the_redis_crate(&server);
    subscribed_by_the_redis_crate(&server);
    tracked_by_the_redis_crate(&server);
    server.stop();
}

#[test]
fn a_lock_is_released_and_kept_by_whoever_holds_it_and_by_nobody_else() {
    let folder = Folder::new();
    let server = start(&folder, &[]);
    let (mut mine, mut other) = (rust_client(&server, "resp2"), rust_client(&server, "resp3"));
    let take = |client: &mut redis::Connection, token: &str, ms: u64| -> Option<String> {
        let mut set = redis::cmd("SET");
        set.arg("lock").arg(token).arg("NX").arg("PX").arg(ms);
        set.query(client).expect("SET")
    };
    let keep = |client: &mut redis::Connection, token: &str| -> Option<String> {
        let mut set = redis::cmd("SET");
        set.arg("lock").arg(token).arg("IFEQ").arg(token).arg("PX").arg(60_000);
        set.query(client).expect("SET with IFEQ")
    };
    let release = |client: &mut redis::Connection, token: &str| -> i64 {
        redis::cmd("DELIFEQ").arg("lock").arg(token).query(client).expect("DELIFEQ")
    };
    assert_eq!(take(&mut mine, "a", 30_000).as_deref(), Some("OK"));
    assert_eq!(take(&mut other, "b", 30_000), None);
    assert_eq!((release(&mut other, "b"), keep(&mut other, "b")), (0, None));
    assert_eq!(keep(&mut mine, "a").as_deref(), Some("OK"));
    let left: i64 = redis::cmd("PTTL").arg("lock").query(&mut mine).expect("PTTL");
    assert!((30_001..=60_000).contains(&left), "{left}");
    assert_eq!((release(&mut mine, "a"), release(&mut mine, "a")), (1, 0));
    // One that has expired is somebody else's, and stays his.
    assert_eq!(take(&mut mine, "a", 1).as_deref(), Some("OK"));
    while take(&mut other, "b", 30_000).is_none() {}
    assert_eq!((release(&mut mine, "a"), keep(&mut mine, "a")), (0, None));
    // Without DELIFEQ: whoever has seen the token deletes only what nobody has changed since.
    let () = redis::cmd("WATCH").arg("lock").query(&mut other).expect("WATCH");
    let held: Option<String> = Commands::get(&mut other, "lock").expect("GET");
    assert_eq!(held.as_deref(), Some("b"));
    let mut delete = redis::pipe();
    delete.atomic().cmd("DEL").arg("lock");
    assert_eq!(delete.query::<Option<(i64,)>>(&mut other).expect("EXEC"), Some((1,)));
    let refused = redis::cmd("EVAL").arg("return 1").arg(0).query::<()>(&mut mine).expect_err("no scripts");
    assert!(refused.to_string().to_lowercase().contains("unknown command"), "{refused}");
    server.stop();
}

fn watched_by_the_redis_crate(server: &Server) {
    let (mut watching, mut other) = (rust_client(server, "resp2"), rust_client(server, "resp2"));
    let mut attempts = 0;
    let (total,): (i64,) = redis::transaction(&mut watching, &["watched"], |connection, pipeline| {
        attempts += 1;
        let now: Option<i64> = Commands::get(connection, "watched")?;
        if attempts == 1 {
            // Somebody else is quicker: the first attempt must be refused.
            let () = Commands::set(&mut other, "watched", 10)?;
        }
        pipeline
            .cmd("SET")
            .arg("watched")
            .arg(now.unwrap_or(0) + 1)
            .ignore()
            .cmd("INCRBY")
            .arg("watched")
            .arg(0)
            .query(connection)
    })
    .expect("a transaction");
    assert_eq!((total, attempts), (11, 2));
}

fn subscribed_by_the_redis_crate(server: &Server) {
    let (mut subscriber, mut publisher) = (rust_client(server, "resp2"), rust_client(server, "resp2"));
    let mut messages = subscriber.as_pubsub();
    messages.subscribe("news").expect("SUBSCRIBE");
    messages.psubscribe("old*").expect("PSUBSCRIBE");
    messages.set_read_timeout(Some(common::PATIENCE)).expect("a timeout");
    let heard: i64 = Commands::publish(&mut publisher, "news", "one").expect("PUBLISH");
    assert_eq!(heard, 1);
    let heard: i64 = Commands::publish(&mut publisher, "older", "two").expect("PUBLISH");
    assert_eq!(heard, 1);
    let message = messages.get_message().expect("a message");
    assert_eq!((message.get_channel_name(), message.get_payload_bytes()), ("news", &b"one"[..]));
    let message = messages.get_message().expect("a message");
    assert_eq!((message.get_channel_name(), message.get_payload_bytes()), ("older", &b"two"[..]));
}

/// Copies of keys of all shards, told on the connection itself and, with protocol 2, on another one.
fn tracked_by_the_redis_crate(server: &Server) {
    const KEYS: usize = 20;
    let (mut reader, mut writer) = (rust_client(server, "resp3"), rust_client(server, "resp2"));
    let (sender, pushes) = std::sync::mpsc::channel();
    reader.set_push_sender(sender);
    let () = redis::cmd("CLIENT").arg(&["TRACKING", "ON"]).query(&mut reader).expect("CLIENT TRACKING");
    let (mut listener, mut redirected) = (rust_client(server, "resp2"), rust_client(server, "resp2"));
    let id: i64 = redis::cmd("CLIENT").arg("ID").query(&mut listener).expect("CLIENT ID");
    let mut redirect = redis::cmd("CLIENT");
    redirect.arg(&["TRACKING", "ON", "REDIRECT", &id.to_string()]);
    let () = redirect.query(&mut redirected).expect("CLIENT TRACKING");
    let mut messages = listener.as_pubsub();
    messages.subscribe("__redis__:invalidate").expect("SUBSCRIBE");
    messages.set_read_timeout(Some(common::PATIENCE)).expect("a timeout");
    for number in 0..KEYS {
        let key = format!("copied:{number}");
        for connection in [&mut reader, &mut redirected] {
            assert_eq!(TypedCommands::get(connection, &key).expect("GET"), None);
        }
        TypedCommands::set(&mut writer, &key, number).expect("SET");
    }
    let mut heard = Vec::new();
    // It reads what has come when it reads an answer.
    for _ in 0..1_000_000 {
        let () = redis::cmd("PING").query(&mut reader).expect("PING");
        heard.extend(pushes.try_iter().filter(|push| push.kind == redis::PushKind::Invalidate));
        if heard.len() >= KEYS {
            break;
        }
    }
    assert_eq!(heard.len(), KEYS, "{heard:?}");
    for number in 0..KEYS {
        let told: Vec<Vec<String>> = heard.iter().map(|push| keys_of(&push.data)).collect();
        assert!(told.contains(&vec![format!("copied:{number}")]), "{told:?}");
        let message = messages.get_message().expect("a message");
        assert_eq!(message.get_channel_name(), "__redis__:invalidate");
    }
}

/// The keys that an invalidation names.
fn keys_of(data: &[redis::Value]) -> Vec<String> {
    data.iter().flat_map(|value| redis::from_redis_value_ref::<Vec<String>>(value).expect("keys")).collect()
}
