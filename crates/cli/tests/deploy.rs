//! The files of `deploy` fit the program that they deploy.

use crate::common;
use crate::common::{Folder, PATIENCE, program};
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

/// The value of a line of the unit.
fn value_of<'a>(unit: &'a str, name: &str) -> Option<&'a str> {
    unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

#[test]
fn the_unit_runs_as_a_user_that_can_be_given_files_and_is_not_restarted_in_vain() {
    let unit = text("tierstone.service");
    let value = |name: &str| value_of(&unit, name).unwrap_or_else(|| panic!("no {name}"));
    // A user of systemd's own choice could not read the key of TLS that the example of settings names.
    assert_eq!(value_of(&unit, "DynamicUser"), None);
    let user = value("User");
    let users = text("tierstone.sysusers");
    assert!(users.lines().any(|line| line.starts_with(&format!("u {user} "))), "{users}");
    assert!(unit.contains("deploy/tierstone.sysusers"), "nobody says how the user is made");
    // Wrong settings; a damaged store, or one of another version: as `tierstone --help` says.
    let help = program().arg("--help").output().expect("the program runs").stdout;
    let help = String::from_utf8(help).expect("help is a text");
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("2 wrong usage or settings") && help.contains("3 the store is damaged"), "{help}");
    assert_eq!(value("RestartPreventExitStatus"), "2 3");
    assert_eq!((value("StartLimitIntervalSec"), value("StartLimitBurst")), ("1h", "5"));
    // What the example of settings says of the environment and of a socket holds for the unit.
    let example = text("tierstone.toml");
    let environment = value("EnvironmentFile").strip_prefix('-').expect("it need not be there");
    assert!(example.contains(environment), "{environment}");
    let socket =
        example.split("unix:").nth(1).and_then(|rest| rest.split(['"', ',']).next()).expect("a socket");
    assert!(socket.starts_with(&format!("/run/{}/", value("RuntimeDirectory"))), "{socket}");
    assert!(unit.contains(socket) && unit.contains("#ReadWritePaths="), "{unit}");
}

#[test]
fn systemd_makes_the_user_of_the_unit() {
    let file = file("tierstone.sysusers").canonicalize().expect("the file is there");
    match Command::new("systemd-sysusers").arg("--dry-run").arg(&file).output() {
        Ok(output) => {
            let said = format!("{output:?}");
            assert!(output.status.success() && said.contains("tierstone"), "{said}");
        }
        Err(error) => println!("SKIP: the making of the unit's user (systemd-sysusers: {error})"),
    }
}

#[test]
fn every_setting_that_the_example_suggests_can_be_given() {
    let folder = Folder::new();
    // What is a comment there, as lines of a file.
    let suggested: String = text("tierstone.toml")
        .lines()
        .filter_map(|line| line.strip_prefix("# ").filter(|rest| rest.split(' ').nth(1) == Some("=")))
        .map(|line| format!("{line}\n"))
        .collect();
    let table: toml::Table = toml::from_str(&suggested).expect("they are TOML");
    assert!(table.len() >= 8 && table.contains_key("unix-socket-permissions"), "{suggested}");
    let path = folder.path("suggested.toml");
    std::fs::write(&path, &suggested).expect("a file is written");
    let mut command = program();
    command
        .args(["server", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.data())
        .arg("--config")
        .arg(&path);
    let output = command.output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    // Its files are not there; before that every value was read.
    assert!(output.status.code() == Some(2) && !said.contains("there is no setting"), "{said}");
    assert!(said.contains("No such file"), "{said}");
}

/// The instructions of the container file: name and arguments.
fn instructions(text: &str) -> Vec<(&str, &str)> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').expect("an instruction has arguments")).collect()
}

/// The words of `["a", "b"]`.
fn words(list: &str) -> Vec<String> {
    serde_json::from_str(list).expect("a list of texts")
}

fn project() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// With a profile as it stands, plainly where somebody asks for it, and in the same place.
fn assert_built_both_ways(built: &str, argument: &str, program: &str) {
    let (name, preset) = argument.split_once('=').expect("it has a default");
    assert_eq!(preset, "yes");
    let condition = format!("if [ \"${name}\" = yes ]; then ");
    let (profiled, plain) =
        built.strip_prefix(&condition).and_then(|rest| rest.split_once("else ")).expect("two ways");
    let script = profiled.split("&& ").nth(1).and_then(|words| words.split(';').next()).expect("a script");
    let text =
        std::fs::read_to_string(project().join(script)).unwrap_or_else(|error| panic!("{script}: {error}"));
    assert!(
        text.contains("rustup component add llvm-tools")
            && profiled.starts_with("rustup component add llvm-tools ")
    );
    assert!(text.contains(&format!("the program is {program} at the end")), "{script}");
    assert!(plain.contains("--release") && plain.contains("-p tierstone-cli"), "{plain}");
    assert!(plain.contains(&format!("install -D target/release/tierstone {program};")), "{plain}");
}

#[test]
fn the_container_file_copies_what_is_there_and_is_built_by_the_toolchain_of_the_project() {
    let text = text("Containerfile");
    let all = instructions(&text);
    let of = |name: &str| {
        all.iter().filter(|(found, _)| *found == name).map(|(_, rest)| *rest).collect::<Vec<_>>()
    };
    let known = [
        "FROM",
        "ARG",
        "RUN",
        "WORKDIR",
        "COPY",
        "USER",
        "VOLUME",
        "EXPOSE",
        "STOPSIGNAL",
        "ENTRYPOINT",
        "CMD",
    ];
    let unknown: Vec<_> = all.iter().filter(|(name, _)| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "this test does not know {unknown:?}");
    // What the image is built with can build it.
    let manifest = std::fs::read_to_string(project().join("Cargo.toml")).expect("the manifest is there");
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).expect("a version");
    let stages = of("FROM");
    assert!(stages[0].contains(&format!("rust:{}-", version.trim_matches('"'))), "{stages:?}");
    assert!(stages[0].ends_with(" AS build") && stages.len() == 2, "{stages:?}");
    // Both stages have the same C library.
    let distribution = |stage: &str| stage.split([' ', ':']).find(|word| word.contains("bookworm")).is_some();
    assert!(stages.iter().all(|stage| distribution(stage)), "{stages:?}");
    let ignored = std::fs::read_to_string(project().join(".dockerignore")).expect("it is there");
    assert!(ignored.lines().any(|line| line == "/target"), "the context would hold what was built here");
    for copy in of("COPY") {
        match copy.strip_prefix("--from=build /source/") {
            Some(rest) => {
                let program = rest.split(' ').next().expect("a source");
                assert_eq!(program, "target/pgo/tierstone", "what `scripts/pgo-build` leaves");
                let built =
                    of("RUN").into_iter().find(|line| line.contains("cargo build")).expect("it is built");
                assert_built_both_ways(built, of("ARG")[0], program);
            }
            None => {
                let paths: Vec<&str> = copy.split(' ').collect();
                let (_, sources) = paths.split_last().expect("a target");
                for source in sources {
                    assert!(project().join(source).exists(), "there is no {source} to be copied");
                }
            }
        }
    }
    let user = of("USER")[0];
    assert!(
        of("RUN").iter().any(|line| line.contains("useradd") && line.contains(user)),
        "nobody makes {user}"
    );
}

#[test]
fn the_command_of_the_container_serves_where_the_file_says() {
    let text = text("Containerfile");
    let all = instructions(&text);
    let of = |name: &str| {
        all.iter().find(|(found, _)| *found == name).map(|(_, rest)| *rest).expect("it is there")
    };
    assert_eq!(words(of("ENTRYPOINT")), ["tierstone"]);
    let mut command = words(of("CMD"));
    let value = |command: &[String], flag: &str| {
        let place = command.iter().position(|word| word == flag).unwrap_or_else(|| panic!("no {flag}"));
        command[place + 1].clone()
    };
    let volume = of("VOLUME");
    assert_eq!(value(&command, "--data"), volume);
    let ports: Vec<&str> = of("EXPOSE").split(' ').collect();
    for (flag, port) in ["--listen", "--http"].into_iter().zip(ports) {
        assert_eq!(value(&command, flag), format!("0.0.0.0:{port}"), "{flag}");
    }
    // The page that tells how to watch it, and the file's own example, name the same.
    let operations =
        std::fs::read_to_string(project().join("docs/operations.md")).expect("the page is there");
    assert!(operations.contains("`deploy/Containerfile`"));
    assert!(text.contains(&format!("-v tierstone-data:{volume} ")) && text.contains(":6379:6379 "), "{text}");
    assert_eq!(of("STOPSIGNAL"), "SIGTERM");
    // As it stands, but for the places.
    let folder = Folder::new();
    for word in &mut command {
        match word.as_str() {
            word_of if word_of == volume => *word = folder.data().display().to_string(),
            word_of if word_of.starts_with("0.0.0.0:") => *word = "0.0.0.0:0".to_owned(),
            _ => {}
        }
    }
    let mut server = program();
    server.args(&command);
    let Ok(server) = common::spawn_command(&folder, server).listening() else {
        panic!("it does not start: {}", folder.complaints())
    };
    assert!(folder.complaints().lines().all(|line| line.starts_with('{')), "{}", folder.complaints());
    server.stop();
}

/// Where the images are that it begins with, and somebody who builds; else it is said why not.
fn builder() -> Option<&'static str> {
    let text = text("Containerfile");
    let images: Vec<&str> = instructions(&text)
        .into_iter()
        .filter(|(name, _)| *name == "FROM")
        .filter_map(|(_, rest)| rest.split(' ').next())
        .collect();
    let works = |tool: &str, arguments: &[&str]| {
        let mut command = Command::new(tool);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let found = ["podman", "docker"].into_iter().find(|tool| works(tool, &["info"]));
    let Some(tool) = found else {
        println!("SKIP: the building of the image (neither podman nor docker has an engine here)");
        return None;
    };
    match images.iter().find(|image| !works(tool, &["image", "inspect", image])) {
        Some(image) => {
            println!("SKIP: the building of the image ({tool} has no {image} here)");
            None
        }
        None => Some(tool),
    }
}

#[test]
fn the_image_is_built_where_somebody_can() {
    let Some(tool) = builder() else { return };
    let output = Command::new(tool)
        .current_dir(project())
        .args(["build", "-f", "deploy/Containerfile", "-t", "tierstone-test", "."])
        .output()
        .expect("it was there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run =
        Command::new(tool).args(["run", "--rm", "tierstone-test", "--version"]).output().expect("it runs");
    assert!(run.status.success() && run.stdout.starts_with(b"tierstone "), "{run:?}");
}
