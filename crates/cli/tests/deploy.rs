//! The files of `deploy` fit the program that they deploy.

#![expect(clippy::expect_used, reason = "test code")]

mod common;

use common::{Folder, PATIENCE, program};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(file(name)).expect("the file is there")
}

/// The page of metrics of a server that was started with the example's settings, but on free ports and on a volume.
fn metrics(folder: &Folder) -> String {
    let volume = folder.path("volume.toml");
    let mut made = program();
    made.args(["volume", "create"]).arg(&volume).args([folder.path("disk-0"), folder.path("disk-1")]);
    made.args(["--level", "1", "--size", "64MiB", "--segment-size", "128KiB"]);
    assert!(made.output().expect("the program runs").status.success());
    let mut command = program();
    command.arg("server").arg("--config").arg(file("tierstone.toml")).arg("--data").arg(volume);
    command.args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    command.args(["--memory", "16MiB", "--shards", "2"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = command.spawn().expect("the program starts");
    let mut lines = BufReader::new(server.stdout.take().expect("it was piped")).lines();
    let door = lines
        .find_map(|line| {
            Some(line.ok()?.strip_prefix("metrics on http://")?.strip_suffix("/metrics")?.to_owned())
        })
        .expect("the server tells its door");
    // The shards tell their numbers after a moment.
    let page = loop {
        let mut socket = TcpStream::connect(&door).expect("the door is open");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
        socket
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("it is sent");
        let mut page = String::new();
        socket.read_to_string(&mut page).expect("it is answered");
        if page.contains("tierstone_keys{shard=\"1\"}") {
            break page;
        }
    };
    server.kill().expect("it runs");
    server.wait().expect("it ends");
    page
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|end: char| !(end.is_ascii_alphanumeric() || end == '_'));
    words.filter(|word| word.starts_with("tierstone_") || word.starts_with("process_")).collect()
}

#[test]
fn dashboard_and_alerts_ask_for_metrics_that_exist() {
    let folder = Folder::new();
    let page = metrics(&folder);
    let served = names(&page);
    let dashboard = text("grafana-dashboard.json");
    let parsed: serde_json::Value = serde_json::from_str(&dashboard).expect("the dashboard is JSON");
    assert!(parsed["panels"].as_array().is_some_and(|panels| panels.len() > 10));
    for (file, text) in [("dashboard", dashboard), ("alerts", text("prometheus-alerts.yml"))] {
        let asked = names(&text);
        assert!(asked.len() >= 5, "{file}: {asked:?}");
        let missing: Vec<_> = asked.difference(&served).collect();
        assert!(missing.is_empty(), "{file} asks for {missing:?}");
    }
}

/// The flags after `server` in a line.
fn flags(line: &str) -> Vec<String> {
    let words = line.split([' ', '"', ',']).filter(|word| word.starts_with("--"));
    words.map(|word| word.split('=').next().unwrap_or(word).to_owned()).collect()
}

#[test]
fn unit_and_container_pass_flags_that_exist() {
    let help = program().args(["server", "--help"]).output().expect("the program runs").stdout;
    let help = String::from_utf8(help).expect("help is a text");
    for (name, start) in [("tierstone.service", "ExecStart="), ("Containerfile", "CMD ")] {
        let text = text(name);
        let line = text.lines().find(|line| line.starts_with(start)).expect("it starts the server");
        let flags = flags(line);
        assert!(flags.len() >= 2, "{name}: {line}");
        for flag in flags {
            assert!(help.contains(&format!("{flag} <")), "{name}: there is no {flag}");
        }
    }
}

#[test]
fn systemd_accepts_the_unit() {
    let folder = Folder::new();
    // The program lies elsewhere here.
    let unit = text("tierstone.service").replace("/usr/local/bin/tierstone", env!("CARGO_BIN_EXE_tierstone"));
    let path = folder.path("tierstone.service");
    std::fs::write(&path, unit).expect("a file is written");
    match Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && !said.contains("tierstone.service:"), "{said}");
        }
        Err(error) => println!("SKIP: the check of the systemd unit (systemd-analyze: {error})"),
    }
}
