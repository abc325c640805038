//! The program's own clients speak TLS: bench, load, check and backup of a server that lets nobody else in.

use crate::common::authority::Authority;
use crate::common::{Folder, PATIENCE, Server, ask, drivers, program};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Output;
use tierstone_client::{Connection, ConnectionSettings, TlsFiles};

/// Starts a server that wants certificates of its clients; where those that speak TLS come in.
fn start(folder: &Folder, more: &[&str]) -> (Server, SocketAddr) {
    let path = |name: &str| folder.path(name).display().to_string();
    let (certificate, key, roots) = (path("server.pem"), path("server.key"), path("ca.pem"));
    let mut all = vec!["--segment-size", "128KiB", "--capacity", "64MiB", "--memory", "64MiB"];
    all.extend(["--tls-listen", "127.0.0.1:0", "--tls-auth-clients", "yes", "--tls-cert-file", &certificate]);
    all.extend(["--tls-key-file", &key, "--tls-ca-cert-file", &roots]);
    all.extend(more);
    let mut server = Server::start(folder, &all);
    let line = server.next_line();
    let address = line.strip_prefix("listening with TLS on ").and_then(|text| text.parse().ok());
    let address = address.unwrap_or_else(|| panic!("no address: {line}"));
    (server, address)
}

/// Runs the program in `folder` with the flags of a client that has a certificate.
fn run(folder: &Folder, arguments: &[&str]) -> Output {
    let tls = ["--tls", "--cacert", "ca.pem", "--cert", "client.pem", "--key", "client.key"];
    program().current_dir(folder.path("")).args(arguments).args(tls).output().expect("the program runs")
}

fn told(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

fn files(folder: &Folder) -> TlsFiles {
    TlsFiles {
        ca_cert_file: folder.path("ca.pem"),
        cert_file: Some(folder.path("client.pem")),
        key_file: Some(folder.path("client.key")),
    }
}

#[test]
fn bench_load_check_and_backup_work_over_tls() {
    for driver in drivers() {
        let folder = Folder::new();
        let authority = Authority::new(&folder, "ca");
        authority.sign("server");
        authority.sign("client");
        let (server, address) = start(&folder, &["--driver", driver, "--shards", "2"]);
        let address = address.to_string();
        let words = ["bench", "--address", &address, "--workload", "a", "--records", "2000", "--operations"];
        let more = ["6000", "--pipeline", "16", "--connections", "6", "--value-size", "3000", "--verify"];
        let bench = run(&folder, &[&words[..], &more].concat());
        assert!(bench.status.success(), "{driver}: {}", told(&bench));
        std::fs::write(folder.path("some.ndjson"), "{\"key\":\"loaded\",\"value\":\"one\"}\n")
            .expect("written");
        let load = run(&folder, &["load", "some.ndjson", "--address", &address]);
        assert!(load.status.success(), "{driver}: {}", told(&load));
        assert_eq!(ask(&mut server.connect(), &[b"GET", b"loaded"]).bytes(), Some(&b"one"[..]));
        let check = run(&folder, &["check", "--server", &address]);
        assert!(check.status.success(), "{driver}: {}", told(&check));
        let backup = run(&folder, &["backup", "--server", &address, "--out", "copy"]);
        assert!(backup.status.success(), "{driver}: {}", told(&backup));
        assert!(Path::new(&folder.path("copy")).read_dir().expect("it is there").next().is_some());
        server.stop();
    }
}

#[test]
fn who_is_not_believed_is_told_and_flags_belong_together() {
    let folder = Folder::new();
    let authority = Authority::new(&folder, "ca");
    authority.sign("server");
    authority.sign("client");
    Authority::new(&folder, "others").sign("stranger");
    let (server, address) = start(&folder, &["--shards", "1"]);
    let sealed = address.to_string();
    let check = |address: &str, flags: &[&str]| {
        let words = ["check", "--server", address];
        let mut command = program();
        let output = command.current_dir(folder.path("")).args(words).args(flags).output().expect("it runs");
        (output.status.code(), told(&output))
    };
    // A certificate of an authority that is not believed.
    let flags = ["--tls", "--cacert", "others.pem", "--cert", "client.pem", "--key", "client.key"];
    let (code, text) = check(&sealed, &flags);
    assert!(code == Some(2) && text.contains("agree on TLS with") && text.contains("certificate"), "{text}");
    // One that the server does not believe, and none.
    let stranger = ["--tls", "--cacert", "ca.pem", "--cert", "stranger.pem", "--key", "stranger.key"];
    for flags in [&stranger[..], &["--tls", "--cacert", "ca.pem"]] {
        let (code, text) = check(&sealed, flags);
        assert!(code.is_some_and(|code| code != 0), "{text}");
    }
    for flags in
        [&["--tls"][..], &["--cacert", "ca.pem"], &["--tls", "--cacert", "ca.pem", "--cert", "client.pem"]]
    {
        assert_eq!(check(&sealed, flags).0, Some(2), "{flags:?}");
    }
    // There is nobody to speak to.
    let bench = run(&folder, &["bench", "--records", "10"]);
    assert!(
        bench.status.code() == Some(2) && told(&bench).contains("--tls needs --address"),
        "{}",
        told(&bench)
    );
    let (code, text) = check(&sealed, &["--tls", "--cacert", "nothing.pem"]);
    assert!(code == Some(2) && text.contains("nothing.pem"), "{text}");
    server.stop();
}

#[test]
fn pipelines_large_values_and_both_halves_go_through_tls() {
    let folder = Folder::new();
    let authority = Authority::new(&folder, "ca");
    authority.sign("server");
    authority.sign("client");
    let (server, address) = start(&folder, &["--shards", "2"]);
    let tls = files(&folder).load().expect("the files are good");
    let settings = ConnectionSettings::with_timeout(PATIENCE);
    let address = format!("localhost:{}", address.port());
    let mut connection = Connection::connect_over(&address, &settings, Some(&tls)).expect("it is let in");
    let value: Vec<u8> = (0..3_000_000u32).map(|number| (number * 7 % 251) as u8).collect();
    assert!(ask(&mut connection, &[b"SET", b"large", &value]).is_ok());
    assert_eq!(ask(&mut connection, &[b"GET", b"large"]).bytes(), Some(&value[..]));
    // Both sides have much to say at the same time.
    let mut pipeline = connection.pipeline();
    for number in 0..40u32 {
        pipeline.command(&[b"ECHO", &vec![number as u8; 200_000]]);
    }
    let replies = pipeline.execute().expect("the server answers");
    assert!((0..40u8).zip(&replies).all(|(number, reply)| reply.bytes() == Some(&vec![number; 200_000][..])));
    // A thread for each direction.
    let (mut sender, mut receiver) = connection.split().expect("nothing is outstanding");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..2_000u32 {
                sender.send(&[b"ECHO", &vec![number as u8; 5_000]]).expect("it is sent");
            }
            sender
        });
        for number in 0..2_000u32 {
            let reply = receiver.receive().expect("it is answered");
            assert_eq!(reply.bytes(), Some(&vec![number as u8; 5_000][..]), "{number}");
        }
    });
    server.stop();
}
