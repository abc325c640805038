//! The tools speak to a server over its Unix socket.

use crate::common;
use crate::common::{Folder, Server, ask, program};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Output;

/// A path that is short enough for a socket, wherever the tests' folders are.
fn socket() -> PathBuf {
    std::env::temp_dir().join(format!("tierstone-tools-{}.sock", std::process::id()))
}

fn run(folder: &Folder, words: &[&str]) -> Output {
    program().current_dir(folder.path("")).args(words).output().expect("the program runs")
}

fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn who_may_connect_to_a_unix_socket_is_said_by_a_setting() {
    let folder = Folder::new();
    let path = std::env::temp_dir().join(format!("tierstone-mode-{}.sock", std::process::id()));
    let listen = format!("127.0.0.1:0,unix:{}", path.display());
    for mode in ["770", "0700", "777"] {
        let arguments = ["--memory", "16MiB", "--shards", "1", "--capacity", "16MiB", "--listen", &listen];
        let more = ["--unix-socket-permissions", mode];
        let server = Server::start(&folder, &[&arguments[..], &more].concat());
        let bits = std::fs::metadata(&path).expect("the socket is there").mode() & 0o7777;
        assert_eq!(bits, u32::from_str_radix(mode, 8).expect("octal digits"));
        server.stop();
    }
    for wrong in ["rwx", "1777", "888", "-7", "00770"] {
        let output = run(&folder, &["server", "--data", "data", "--unix-socket-permissions", wrong]);
        assert!(output.status.code() == Some(2) && told(&output).contains("octal"), "{}", told(&output));
    }
}

#[test]
fn bench_load_check_backup_volume_and_workload_take_a_unix_socket() {
    let folder = Folder::new();
    let path = socket();
    let made = ["volume", "create", "volume.toml", "disk-0", "disk-1", "--level", "1", "--size", "64MiB"];
    let made = run(&folder, &[&made[..], &["--segment-size", "128KiB"]].concat());
    assert!(made.status.success(), "{}", told(&made));
    let volume = folder.path("volume.toml").display().to_string();
    let listen = format!("127.0.0.1:0,unix:{}", path.display());
    let arguments = ["--memory", "32MiB", "--shards", "2", "--password", "secret", "--listen", &listen];
    let mut command = program();
    command.args(["server", "--data", &volume]).args(arguments);
    let Ok(server) = common::spawn_command(&folder, command).listening() else {
        panic!("it does not start: {}", folder.complaints())
    };
    std::fs::write(folder.path("some.ndjson"), "{\"key\":\"loaded\",\"value\":\"one\"}\n").expect("written");
    let (address, bare) = (format!("unix:{}", path.display()), path.display().to_string());
    for words in [
        vec![
            "bench",
            "--address",
            &address,
            "--records",
            "500",
            "--operations",
            "2000",
            "--pipeline",
            "8",
            "--verify",
        ],
        vec!["load", "some.ndjson", "--address", &bare],
        vec!["check", "--server", &address],
        vec!["backup", "--server", &bare, "--out", "copy"],
        vec!["volume", "fail", "volume.toml", "1", "--server", &address],
        vec!["workload", "record", "--address", &address, "--seconds", "0.2", "--output", "some.trace"],
    ] {
        let words: Vec<&str> = words.into_iter().chain(["--password", "secret"]).collect();
        let output = run(&folder, &words);
        assert!(output.status.success(), "{words:?}: {}", told(&output));
    }
    let mut connection = server.connect();
    ask(&mut connection, &[b"AUTH", b"secret"]);
    assert_eq!(ask(&mut connection, &[b"GET", b"loaded"]).bytes(), Some(&b"one"[..]));
    assert!(folder.path("copy/backup.manifest").exists());
    // A wrong password, and no server, as over TCP.
    let output = run(&folder, &["check", "--server", &address, "--password", "wrong"]);
    assert!(output.status.code() == Some(2) && told(&output).contains("WRONGPASS"), "{}", told(&output));
    drop(connection);
    server.stop();
    let output = run(&folder, &["check", "--server", &address]);
    assert!(output.status.code() == Some(1) && told(&output).contains(&bare), "{}", told(&output));
}

#[test]
fn tls_over_a_unix_socket_is_refused_in_words() {
    let folder = Folder::new();
    common::authority::Authority::new(&folder, "ca");
    let words = ["check", "--server", "unix:/run/no.sock", "--tls", "--cacert", "ca.pem"];
    let output = run(&folder, &words);
    assert!(
        output.status.code() == Some(2) && told(&output).contains("TLS needs HOST:PORT"),
        "{}",
        told(&output)
    );
}
