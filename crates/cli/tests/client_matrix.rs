//! Clients of other languages, each in a program of its own that tries everything that such clients are used for:
//! ioredis and node-redis, go-redis, Jedis, Lettuce. Their lines are the report; a case that a client cannot do says so.
//!
//! A client that is not here is one `SKIP: …` line; `scripts/prepare.sh` installs them.

use crate::common::authority::Authority;
use crate::common::{Folder, PATIENCE, Server};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

/// What every server of a matrix is started with.
const SMALL: [&str; 8] =
    ["--shards", "2", "--memory", "64MiB", "--capacity", "256MiB", "--segment-size", "1MiB"];

/// Files of certificates: `ca` signs the server's and `friend`, `stranger` signs `foe`.
fn certificates(folder: &Folder) {
    let authority = Authority::new(folder, "ca");
    authority.sign("server");
    authority.sign("friend");
    Authority::new(folder, "stranger").sign("foe");
}

/// Starts a server that speaks TLS too, on the ports `plain` and `tls` (0: any); gives it with its port for TLS.
fn start(folder: &Folder, files: &Folder, clients: &str, (plain, tls): (&str, &str)) -> (Server, String) {
    let path = |name: &str| files.path(name).display().to_string();
    let mut arguments = SMALL.map(str::to_owned).to_vec();
    arguments.extend(["--listen".into(), format!("127.0.0.1:{plain}")]);
    arguments.extend(["--tls-listen".into(), format!("127.0.0.1:{tls}")]);
    arguments.extend(["--tls-auth-clients".into(), clients.into()]);
    for (flag, name) in [
        ("--tls-cert-file", "server.pem"),
        ("--tls-key-file", "server.key"),
        ("--tls-ca-cert-file", "ca.pem"),
    ] {
        arguments.extend([flag.into(), path(name)]);
    }
    let mut server = Server::start(folder, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let line = server.next_line();
    let port = line.strip_prefix("listening with TLS on 127.0.0.1:");
    let port = port.unwrap_or_else(|| panic!("no address: {line}")).to_owned();
    (server, port)
}

/// Runs a client's program against servers of its own; prints its report, which must be without a failure. Gives how many cases there were.
fn run(name: &str, protocol: u8, mut command: Command) -> usize {
    let (files, folder, mutual_folder) = (Folder::new(), Folder::new(), Folder::new());
    certificates(&files);
    let (mut server, tls) = start(&folder, &files, "no", ("0", "0"));
    let plain = server.port();
    let (_mutual, mutual_tls) = start(&mutual_folder, &files, "yes", ("0", "0"));
    command.args([&plain, &tls, &mutual_tls]).arg(files.path("")).arg(protocol.to_string());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{name} does not start: {error}"));
    let mut input = child.stdin.take().expect("standard input was piped");
    let output = BufReader::new(child.stdout.take().expect("standard output was piped"));
    let (sender, lines) = channel();
    let reader = std::thread::Builder::new()
        .name("report".into())
        .spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)))
        .expect("a thread starts");
    let (mut report, mut ended) = (Vec::new(), false);
    while let Ok(line) = lines.recv_timeout(2 * PATIENCE) {
        match line.as_str() {
            "done" => ended = true,
            "restart" => {
                server.kill();
                (server, _) = start(&folder, &files, "no", (&plain, &tls));
                input.write_all(b"ready\n").expect("the program listens");
            }
            _ => {
                println!("{name}, protocol {protocol}: {line}");
                report.push(line);
            }
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    let _ = reader.join();
    let failed = report.iter().filter(|line| !line.starts_with("ok ") && !line.starts_with("skip ")).count();
    assert!(ended, "{name} did not come to its end");
    assert_eq!(failed, 0, "{name} says so above");
    let done = report.iter().filter(|line| line.starts_with("ok ")).count();
    assert!(done > 10, "{name} has tried {done} cases only");
    report.len()
}

/// The node program `file` of this folder, where its packages are installed.
fn node(file: &str) -> Option<Command> {
    let Some(packages) = std::env::var_os("TIERSTONE_NODE_CLIENTS") else {
        println!("SKIP: tests with {file} (TIERSTONE_NODE_CLIENTS names no folder with its packages)");
        return None;
    };
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/node").join(file);
    let mut command = Command::new("node");
    command.env("NODE_PATH", packages).arg(program);
    Some(command)
}

#[test]
fn ioredis_does_what_programs_use_it_for() {
    for protocol in [2, 3] {
        let Some(command) = node("ioredis.js") else { return };
        run("ioredis", protocol, command);
    }
}

#[test]
fn node_redis_does_what_programs_use_it_for() {
    for protocol in [2, 3] {
        let Some(command) = node("node_redis.js") else { return };
        run("node-redis", protocol, command);
    }
}

#[test]
fn go_redis_does_what_programs_use_it_for() {
    let Some(program) = std::env::var_os("TIERSTONE_GO_CLIENT") else {
        println!("SKIP: tests with go-redis (TIERSTONE_GO_CLIENT names no program)");
        return;
    };
    for protocol in [2, 3] {
        run("go-redis", protocol, Command::new(&program));
    }
}

/// Runs the Java program `class`, where a class path is named.
fn java(name: &str, class: &str) {
    let Some(classes) = std::env::var_os("TIERSTONE_JAVA_CLIENT") else {
        println!("SKIP: tests with {name} (TIERSTONE_JAVA_CLIENT names no class path)");
        return;
    };
    for protocol in [2, 3] {
        let mut command = Command::new("java");
        command.arg("-cp").arg(&classes).arg(class);
        run(name, protocol, command);
    }
}

#[test]
fn jedis_does_what_programs_use_it_for() {
    java("Jedis", "Matrix");
}

#[test]
fn lettuce_does_what_programs_use_it_for() {
    java("Lettuce", "LettuceMatrix");
}
