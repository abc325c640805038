//! Settings of a real server by file, environment and flag, each over the one before; and the pages of
//! its HTTP door.

use crate::common::{Folder, PATIENCE, Server, ask, program, spawn, spawn_command};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use tierstone_base::{Clock, SystemClock};
use tierstone_client::Connection;

/// A setting: its value in the file, in the environment, as a flag; and what is seen of each from outside.
type Case = (&'static str, [&'static str; 3], [&'static str; 3]);

const CASES: &[Case] = &[
    ("data", ["by-file", "by-environment", "by-flag"], ["by-file", "by-environment", "by-flag"]),
    ("listen", ["127.0.0.2:0", "127.0.0.3:0", "127.0.0.4:0"], ["127.0.0.2", "127.0.0.3", "127.0.0.4"]),
    ("http", ["127.0.0.2:0", "127.0.0.3:0", "127.0.0.4:0"], ["127.0.0.2", "127.0.0.3", "127.0.0.4"]),
    ("shards", ["2", "1", "3"], ["2", "1", "3"]),
    ("memory", ["32MiB", "33MiB", "34MiB"], ["32 MiB", "33 MiB", "34 MiB"]),
    ("capacity", ["8MiB", "16MiB", "32MiB"], ["8388608", "16777216", "33554432"]),
    ("segment-size", ["128KiB", "256KiB", "512KiB"], ["131072", "262144", "524288"]),
    ("durability", ["relaxed", "group:7", "sync"], ["relaxed", "group:7", "sync"]),
    ("index", ["ordered", "hash", "ordered"], ["ordered", "hash", "ordered"]),
    ("password", ["one", "two", "three"], ["one", "two", "three"]),
    ("aclfile", USER_FILES, USER_FILES),
    ("acllog-max-len", ["7", "8", "9"], ["7", "8", "9"]),
    ("protected-mode", ["false", "true", "no"], ["no", "yes", "no"]),
    ("databases", ["3", "4", "5"], ["3", "4", "5"]),
    ("pin", ["false", "true", "false"], ["false", "true", "false"]),
    ("measure-cpu", ["true", "false", "true"], ["true", "false", "true"]),
    ("driver", ["epoll", "auto", "epoll"], ["Epoll", "", "Epoll"]),
    (
        "durable-method",
        ["write-then-flush", "durable-write", "write-then-flush"],
        ["write-then-flush", "durable-write", "write-then-flush"],
    ),
    ("direct-io", ["off", "auto", "off"], ["0", "", "0"]),
    ("backend", ["threads", "auto", "threads"], ["threads", "", "threads"]),
    ("value-limit", ["2MiB", "3MiB", "4MiB"], ["2097152", "3145728", "4194304"]),
    // Of two, one and three shards together.
    ("maxclients", ["10", "20", "30"], ["20", "20", "90"]),
    ("idle-timeout", ["100", "200", "5m"], ["100", "200", "300"]),
    ("tcp-keepalive", ["100", "200s", "5m"], ["100", "200", "300"]),
    ("backlog", ["100", "200", "300"], ["100", "200", "300"]),
    ("input-limit", ["2MiB", "3MiB", "4MiB"], ["2097152", "3145728", "4194304"]),
    ("output-pause", ["128KiB", "256KiB", "512KiB"], ["131072", "262144", "524288"]),
    ("output-limit", ["8MiB", "9MiB", "10MiB"], ["8388608", "9437184", "10485760"]),
    ("output-soft-limit", ["1MiB", "2MiB", "0"], ["1048576", "2097152", "0"]),
    ("output-soft-time", ["10", "20s", "1m"], ["10", "20", "60"]),
    ("log", ["json", "json", "text"], ["json", "", "text"]),
    (
        "maxmemory-policy",
        ["allkeys-lru", "noeviction", "allkeys-lru"],
        ["allkeys-lru", "noeviction", "allkeys-lru"],
    ),
    ("log-level", ["info", "off", "info"], ["notice", "nothing", "notice"]),
    ("slowlog-log-slower-than", ["20000", "0", "-1"], ["20000", "0", "-1"]),
    ("slowlog-max-len", ["10", "20", "30"], ["10", "20", "30"]),
    ("tracking-table-max-keys", ["10", "20", "0"], ["10", "20", "0"]),
    ("maxmemory-clients", ["10MiB", "5%", "0"], ["10485760", "5%", "0"]),
    ("scrub-rate", ["1MiB", "0", "5000"], ["1048576", "0", "5000"]),
    ("latency-monitor-threshold", ["10", "20", "0"], ["10", "20", "0"]),
    ("latency-tracking", ["yes", "no", "yes"], ["yes", "no", "yes"]),
    ("latency-tracking-info-percentiles", ["50 99", "99.9", "1 100"], ["50 99", "99.9", "1 100"]),
    ("notify-keyspace-events", ["KEx", "AKE", "Eg$"], ["xKE", "AKE", "g$E"]),
    ("energy-meters", ["none", "machine", "none"], ["modelled", "measured", "modelled"]),
    ("energy-model", ["atom-2009", "cloud", "desktop-2009"], ["atom-2009", "cloud", "desktop-2009"]),
];

/// Settings that INFO shows, and the fields.
const OF_INFO: [(&str, &str); 6] = [
    ("shards", "shards"),
    ("index", "index"),
    ("capacity", "space_capacity_bytes"),
    ("durable-method", "durable_method"),
    ("energy-meters", "energy_label"),
    ("energy-model", "energy_model"),
];

/// Settings that clients see under the same name.
const OF_REDIS: [&str; 11] = [
    "maxmemory-clients",
    "scrub-rate",
    "slowlog-log-slower-than",
    "slowlog-max-len",
    "tracking-table-max-keys",
    "notify-keyspace-events",
    "latency-monitor-threshold",
    "latency-tracking",
    "latency-tracking-info-percentiles",
    "acllog-max-len",
    "protected-mode",
];

/// Files of users, which must be there.
const USER_FILES: [&str; 3] = ["file.acl", "environment.acl", "flag.acl"];

/// Settings that this test does not give in every way: the file itself, and a limit of which nothing is seen
/// while all goes well. Those of TLS need files of certificates: `tls.rs` gives them.
const ELSEWHERE: &[&str] = &[
    "config",
    "stop-timeout",
    // What they do is seen at a crash: `redo.rs`.
    "nvm",
    "nvm-size",
    "nvm-guarantee",
    "nvm-flush",
    "nvm-keys",
    "nvm-loss",
    // What it does is seen at damage: `damage.rs`.
    "disk-loss",
    // `unix_tools.rs` gives it.
    "unix-socket-permissions",
    // `energy.rs` gives these two.
    "energy-tools",
    "energy-command",
    "tls-listen",
    "tls-cert-file",
    "tls-key-file",
    "tls-ca-cert-file",
    "tls-auth-clients",
];

/// The server's `--help`.
fn help() -> String {
    let output = program().args(["server", "--help"]).output().expect("the program runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn variable(name: &str) -> String {
    format!("TIERSTONE_{}", name.to_ascii_uppercase().replace('-', "_"))
}

/// A line of a settings file.
fn line(name: &str, value: &str) -> String {
    match value.parse::<u64>().is_ok() || value.parse::<bool>().is_ok() {
        true => format!("{name} = {value}\n"),
        false => format!("{name} = \"{value}\"\n"),
    }
}

/// A server with all settings from the first `sources` of file, environment and flags.
fn start(folder: &Folder, sources: usize) -> Server {
    let text: String = CASES.iter().map(|(name, values, _)| line(name, values[0])).collect();
    std::fs::write(folder.path("settings.toml"), text).expect("a file is written");
    for name in USER_FILES {
        std::fs::write(folder.path(name), "").expect("a file is written");
    }
    // A machine with a meter of energy.
    let zone = folder.path("machine/sys/class/powercap/intel-rapl:0");
    std::fs::create_dir_all(&zone).expect("a folder is made");
    for (name, text) in [("name", "package-0"), ("energy_uj", "7")] {
        std::fs::write(zone.join(name), text).expect("a file is written");
    }
    let mut command = program();
    command.arg("server").current_dir(folder.path("")).env("TIERSTONE_CONFIG", "settings.toml");
    for (name, values, _) in CASES {
        if sources > 1 {
            command.env(variable(name), values[1]);
        }
        if sources > 2 {
            command.arg(format!("--{name}={}", values[2]));
        }
    }
    match spawn_command(folder, command).listening() {
        Ok(server) => server,
        Err(status) => panic!("it ended before it listened: {status}\n{}", folder.complaints()),
    }
}

/// The CPUs that the thread of the first shard may run on.
fn cpus_of_first_shard(server: &Server) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.process_id())).expect("it runs");
    for task in tasks.flatten() {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        if read("comm").trim() == "shard-0" {
            let status = read("status");
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            return list.expect("Linux tells").trim().to_owned();
        }
    }
    panic!("no thread of a shard")
}

/// The names of the server's threads.
fn thread_names(server: &Server) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.process_id())).expect("it runs");
    tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok()).collect()
}

fn text_of(connection: &mut Connection, request: &[&[u8]]) -> String {
    let reply = ask(connection, request);
    String::from_utf8_lossy(reply.bytes().expect("a text")).into_owned()
}

/// The value of a setting under Redis's name.
fn config(connection: &mut Connection, name: &str) -> String {
    let reply = ask(connection, &[b"CONFIG", b"GET", name.as_bytes()]);
    let value = reply.items().and_then(|pair| pair.get(1)?.bytes().map(<[u8]>::to_vec));
    String::from_utf8(value.unwrap_or_else(|| panic!("no setting {name}"))).expect("a text")
}

/// The length of a file of a segment.
fn segment_bytes(folder: &Folder, data: &str, connection: &mut Connection) -> u64 {
    // Its record lies in a segment, as soon as it is durable: a relaxed server answers before.
    assert!(ask(connection, &[b"SET", b"key", b"value"]).is_ok());
    assert!(ask(connection, &[b"WAITAOF", b"1", b"0", b"0"]).items().is_some());
    let segment = std::fs::read_dir(folder.path(data)).expect("it lists").flatten().find_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with("segment").then(|| entry.metadata().map(|found| found.len()).ok()).flatten()
    });
    segment.expect("segments were made")
}

/// What the log shows of settings.
fn observe_log(folder: &Folder, seen: &mut BTreeMap<&'static str, String>) {
    let log = folder.complaints();
    let serving = log.lines().find(|line| line.contains("serving")).unwrap_or_default();
    let format = if serving.starts_with('{') { "json" } else { "text" };
    let driver = ["Epoll", "Uring"].into_iter().find(|driver| serving.contains(driver)).unwrap_or_default();
    seen.insert("log", if serving.is_empty() { "" } else { format }.to_owned());
    seen.insert("driver", driver.to_owned());
}

/// Gives the password that is right.
fn log_in(connection: &mut Connection) -> &'static str {
    let password = ["one", "two", "three"]
        .into_iter()
        .find(|guess| connection.command(&[b"AUTH", guess.as_bytes()]).expect("an answer").is_ok());
    password.expect("one of the passwords is right")
}

/// What is seen of each setting from outside.
fn observe(folder: &Folder, server: &mut Server) -> BTreeMap<&'static str, String> {
    let mut connection = server.connect();
    let mut seen = BTreeMap::new();
    seen.insert("password", log_in(&mut connection).to_owned());
    let info = text_of(&mut connection, &[b"INFO", b"everything"]);
    let number = |name: &str| {
        let found = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.unwrap_or_else(|| panic!("no {name} in {info}")).to_owned()
    };
    seen.extend(OF_INFO.map(|(name, field)| (name, number(field))));
    seen.insert("measure-cpu", (number("engine_background_cpu_ns") != "0").to_string());
    let directory = number("directory0");
    let direct = directory.split(',').find_map(|part| part.strip_prefix("direct_io="));
    seen.insert("direct-io", direct.expect("it is told").to_owned());
    for (name, key) in [
        ("durability", "durability"),
        ("databases", "databases"),
        ("value-limit", "proto-max-bulk-len"),
        ("maxclients", "maxclients"),
        ("idle-timeout", "timeout"),
        ("tcp-keepalive", "tcp-keepalive"),
        ("backlog", "tcp-backlog"),
        ("input-limit", "client-query-buffer-limit"),
        ("aclfile", "aclfile"),
        ("maxmemory-policy", "maxmemory-policy"),
        ("log-level", "loglevel"),
    ] {
        // Of a path the file.
        seen.insert(name, config(&mut connection, key).rsplit('/').next().unwrap_or_default().to_owned());
    }
    seen.extend(OF_REDIS.map(|name| (name, config(&mut connection, name))));
    let limits = config(&mut connection, "client-output-buffer-limit");
    let words: Vec<&str> = limits.split(' ').collect();
    for (index, name) in [(1, "output-limit"), (2, "output-soft-limit"), (3, "output-soft-time")] {
        seen.insert(name, words[index].to_owned());
    }
    let too_low = [&b"CONFIG"[..], b"SET", b"client-output-buffer-limit", b"normal 1 0 0 pubsub 1 0 0"];
    let refused = connection.command(&too_low).expect("an answer");
    let error = refused.error().expect("it is too low");
    seen.insert("output-pause", error.rsplit(' ').next().unwrap_or_default().to_owned());
    seen.insert("listen", server.address.ip().to_string());
    seen.insert("http", http_address(server).ip().to_string());
    let memory = server
        .greeting
        .split(", ")
        .find_map(|part| part.split(" of memory").next().filter(|_| part.contains(" of memory")));
    seen.insert("memory", memory.expect("the greeting tells it").to_owned());
    seen.insert("pin", (!cpus_of_first_shard(server).contains(['-', ','])).to_string());
    let data: Vec<&str> = ["by-file", "by-environment", "by-flag"]
        .into_iter()
        .filter(|name| folder.path(name).join("lock").exists())
        .collect();
    seen.insert("data", data.join(","));
    seen.insert("segment-size", segment_bytes(folder, data[0], &mut connection).to_string());
    let has_threads = thread_names(server).iter().any(|thread| thread.starts_with("tierstone-io"));
    seen.insert("backend", if has_threads { "threads" } else { "io-uring" }.to_owned());
    observe_log(folder, &mut seen);
    seen
}

/// The address of the HTTP door, which the server tells after that of Redis clients.
fn http_address(server: &mut Server) -> SocketAddr {
    let line = server.next_line();
    let address = line.strip_prefix("metrics on http://").and_then(|rest| rest.strip_suffix("/metrics"));
    address.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no address: {line}"))
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let has_one_processor = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) == 1;
    for sources in 1..=3 {
        let folder = Folder::new();
        let mut server = start(&folder, sources);
        let seen = observe(&folder, &mut server);
        for (name, values, expected) in CASES {
            let (value, expected) = (values[sources - 1], expected[sources - 1]);
            if *name == "pin" && has_one_processor {
                println!("SKIP: pinning of threads (there is one processor)");
                continue;
            }
            let found = &seen[name];
            assert!(expected.is_empty() || found == expected, "{name} = {value} shows as {found}");
        }
        server.stop();
    }
}

#[test]
fn a_wrong_value_is_told_with_the_place_where_it_was_given() {
    let folder = Folder::new();
    let file = folder.path("settings.toml");
    std::fs::write(&file, "memory = \"lots\"\n").expect("a file is written");
    let path = file.to_str().expect("a readable path");
    let all: [(&[&str], Option<&str>, &str); 4] = [
        (&["--memory", "lots"], None, "--memory 'lots': "),
        (&[], Some("lots"), "the variable TIERSTONE_MEMORY='lots': "),
        (&["--config", path], None, &format!("{path}: memory = 'lots': ")),
        (&["--config", path, "--memory", "much"], Some("lots"), "--memory 'much': "),
    ];
    for (arguments, variable, expected) in all {
        let mut command = program();
        command.arg("server").arg("--data").arg(folder.path("data")).args(arguments);
        command.envs(variable.map(|value| ("TIERSTONE_MEMORY", value)));
        let output = command.output().expect("the program runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains(expected) && output.status.code() == Some(2), "{expected}: {told}");
        assert!(expected.starts_with("--") || !told.contains("--memory"), "{told}");
    }
}

#[test]
fn a_file_that_is_no_toml_is_told_by_its_line_and_not_with_its_password() {
    let folder = Folder::new();
    let file = folder.path("settings.toml");
    for (text, line) in [
        ("shards = 2\npassword = \"hunter2\nmemory = \"1GiB\"\n", 2),
        ("password = hunter2\n", 1),
        ("\n\npassword = \"hunter2\" and more\n", 3),
        ("password = \"hunter2\"\n\npassword = \"hunter22\"\n", 3),
        ("[password]\nhunter2", 2),
    ] {
        std::fs::write(&file, text).expect("a file is written");
        let mut command = program();
        command.args(["server", "--data"]).arg(folder.data()).arg("--config").arg(&file);
        let output = command.output().expect("the program runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        let expected = format!("{}: line {line} is no TOML: ", file.display());
        assert!(told.contains(&expected) && !told.contains("hunter"), "{expected}: {told}");
    }
}

#[test]
fn every_setting_is_a_flag_a_variable_and_a_line_of_the_file() {
    let help = help();
    let flags: Vec<&str> = help
        .lines()
        .filter_map(|line| line.trim().strip_prefix("--")?.split([' ', '[']).next())
        .filter(|name| *name != "help" && *name != "version")
        .collect();
    assert!(flags.len() >= CASES.len(), "{flags:?}");
    for flag in flags {
        let shown = format!("[env: {}", variable(flag));
        let has = |end: &str| help.contains(&format!("{shown}{end}"));
        // The value of a password is not shown.
        assert!(has("=") || has("]"), "--{flag} has no variable");
        let is_covered = CASES.iter().any(|(name, ..)| *name == flag) || ELSEWHERE.contains(&flag);
        assert!(is_covered, "--{flag} is not among the cases of this test");
    }
}

/// One page of the HTTP door: status and body.
fn page(address: SocketAddr, path: &str) -> (String, String) {
    let mut socket = TcpStream::connect(address).expect("the door is open");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).expect("it is sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("it is answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
}

#[test]
fn metrics_life_and_readiness_are_told_over_http() {
    let folder = Folder::new();
    let arguments =
        ["--shards", "2", "--memory", "32MiB", "--segment-size", "128KiB", "--http", "127.0.0.1:0"];
    let mut server = Server::start(&folder, &arguments);
    let door = http_address(&mut server);
    assert_eq!(page(door, "/live"), ("HTTP/1.1 200 OK".into(), "live\n".into()));
    assert_eq!(page(door, "/ready"), ("HTTP/1.1 200 OK".into(), "ready\n".into()));
    assert_eq!(page(door, "/nothing").0, "HTTP/1.1 404 Not Found");
    let mut connection = server.connect();
    for number in 0..100 {
        ask(&mut connection, &[b"SET", format!("key:{number}").as_bytes(), b"value"]);
    }
    // Shards tell their numbers a few times a second.
    let text = loop {
        let (status, text) = page(door, "/metrics");
        assert_eq!(status, "HTTP/1.1 200 OK");
        let keys = |line: &str| line.strip_prefix("tierstone_keys{")?.split_once(' ')?.1.parse::<u64>().ok();
        let keys: u64 = text.lines().filter_map(keys).sum();
        assert!(keys <= 100, "{text}");
        if keys == 100 {
            break text;
        }
    };
    for name in ["tierstone_commands_total", "tierstone_index_bytes", "tierstone_device_written_bytes_total"]
    {
        for shard in 0..2 {
            let prefix = format!("{name}{{shard=\"{shard}\"}} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
            assert!(line.is_some_and(|value| value.parse::<f64>().is_ok()), "{prefix} in {text}");
        }
        assert!(text.contains(&format!("# TYPE {name} ")), "{name} has no type");
    }
    assert!(text.lines().any(|line| line == "tierstone_healthy{shard=\"0\"} 1"), "{text}");
    // Nobody asks for anything any more: the threads turn all the same, which is how one that hangs is seen.
    drop(connection);
    let clock = SystemClock::new();
    let turns = || {
        let (_, text) = page(door, "/metrics");
        let of_line =
            |line: &str| line.strip_prefix("tierstone_turns_total{")?.split_once(' ')?.1.parse().ok();
        text.lines().filter_map(of_line).collect::<Vec<u64>>()
    };
    // What is still under way comes to rest first.
    let (_, before) = (turns(), turns());
    while turns().iter().zip(&before).any(|(now, before)| *now < before + 4) {
        assert!(clock.now().monotonic_us < PATIENCE.as_micros() as u64, "a thread does not turn");
    }
    server.stop();
}

/// Whatever can be set can be kept.
fn every_setting_is_kept(connection: &mut Connection) {
    let all = connection.command(&[b"CONFIG", b"GET", b"*"]).expect("all settings");
    let all: Vec<Vec<u8>> =
        all.items().expect("an array").iter().map(|item| item.bytes().expect("a text").to_vec()).collect();
    let mut kept = 0;
    for pair in all.chunks_exact(2) {
        let name = String::from_utf8_lossy(&pair[0]);
        let set = connection.command(&[b"CONFIG", b"SET", &pair[0], &pair[1]]).expect("an answer");
        if set.error().is_none() {
            assert!(ask(connection, &[b"CONFIG", b"REWRITE"]).is_ok(), "{name}");
            kept += 1;
        }
    }
    assert!(kept > 10, "{kept}");
}

#[test]
fn settings_that_clients_change_have_an_effect_and_are_kept_in_the_file() {
    let folder = Folder::new();
    let file = folder.path("settings.toml");
    let text = "# kept\nshards = 2\nmemory = \"32MiB\"\nsegment-size = \"128KiB\"\ndurable-method = \"durable-write\"\n";
    std::fs::write(&file, text).expect("a file is written");
    let arguments = ["--config", file.to_str().expect("a readable path")];
    let server = Server::start(&folder, &arguments);
    let mut connection = server.connect();
    assert_eq!(config(&mut connection, "maxmemory"), (32 << 20).to_string());
    assert_eq!(config(&mut connection, "port"), server.port());
    for (name, value) in [
        ("timeout", "3000"),
        ("maxmemory-policy", "allkeys-lru"),
        ("durability", "group:3ms"),
        ("slowlog-log-slower-than", "-1"),
        ("maxclients", "4"),
    ] {
        assert!(ask(&mut connection, &[b"CONFIG", b"SET", name.as_bytes(), value.as_bytes()]).is_ok());
    }
    let refused = connection.command(&[b"CONFIG", b"SET", b"maxmemory", b"1gb"]).expect("an answer");
    assert!(refused.error().is_some_and(|error| error.contains("immutable")), "{refused:?}");
    // Two for each shard: of so many connections at least one finds no room.
    let mut held = Vec::new();
    let refused = loop {
        let mut other = server.connect();
        match other.command(&[b"PING"]) {
            Ok(reply) if reply.error().is_none() => held.push(other),
            Ok(reply) => break reply.error().map(std::borrow::Cow::into_owned),
            Err(_) => break None,
        }
        // A shard may learn of the limit a moment after the answer.
        assert!(held.len() < 100, "four connections are allowed");
    };
    assert!(refused.is_none_or(|error| error.contains("max number of clients")), "another refusal");
    drop(held);
    assert!(ask(&mut connection, &[b"CONFIG", b"REWRITE"]).is_ok());
    let rewritten = std::fs::read_to_string(&file).expect("it is there");
    for line in [
        "# kept",
        "shards = 2",
        "idle-timeout = 3000",
        "durability = \"group:3\"",
        "maxclients = 2",
        "maxmemory-policy = \"allkeys-lru\"",
        "slowlog-log-slower-than = -1",
    ] {
        assert!(rewritten.lines().any(|other| other == line), "{line} is not in\n{rewritten}");
    }
    every_setting_is_kept(&mut connection);
    server.stop();
    let server = Server::start(&folder, &arguments);
    let mut connection = server.connect();
    assert_eq!(config(&mut connection, "timeout"), "3000");
    assert_eq!(config(&mut connection, "durability"), "group:3");
    assert_eq!(config(&mut connection, "maxmemory-policy"), "allkeys-lru");
    server.stop();
    let server = Server::start(&folder, &["--shards", "1", "--memory", "32MiB"]);
    let refused = server.connect().command(&[b"CONFIG", b"REWRITE"]).expect("an answer");
    assert_eq!(refused.error().as_deref(), Some("ERR The server is running without a config file"));
}

#[test]
fn a_store_keeps_its_durable_method_and_tells_what_its_directories_guarantee() {
    let folder = Folder::new();
    let small = ["--shards", "1", "--memory", "32MiB", "--segment-size", "128KiB"];
    let with = |method: &'static str| -> Vec<&str> {
        small.iter().copied().chain(["--durable-method", method]).collect()
    };
    let server = Server::start(&folder, &with("write-then-flush"));
    let info = text_of(&mut server.connect(), &[b"INFO", b"persistence"]);
    assert!(info.contains("durable_method:write-then-flush\r\ndurable_method_by:setting\r\n"), "{info}");
    let directory = info.lines().find(|line| line.starts_with("directory0:")).expect("a directory");
    let guarantee =
        tierstone_media::probe::FileSystem::of(&folder.data()).expect("it is somewhere").guarantee();
    assert!(directory.contains(&format!("guarantee={}", guarantee.name())), "{directory}");
    server.stop();
    assert_eq!(spawn(&folder, &with("durable-write")).refused(), 2);
    let said = folder.complaints();
    assert!(said.contains("durable-write") && said.contains("write-then-flush"), "{said}");
    Server::start(&folder, &small).stop();
    // A new store that nobody gives a method is probed.
    let folder = Folder::new();
    let server = Server::start(&folder, &small);
    let info = text_of(&mut server.connect(), &[b"INFO", b"persistence"]);
    assert!(info.contains("durable_method_by:probe\r\ndurable_probe:"), "{info}");
    server.stop();
}
