//! Segments that are missing or damaged at the start: the server is refused in words, or serves the rest when told to.

use crate::common::{Folder, Server, ask, program, spawn};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tierstone_client::Value;

const SMALL: [&str; 8] =
    ["--segment-size", "128KiB", "--capacity", "16MiB", "--memory", "32MiB", "--shards", "2"];
const KEYS: u32 = 2_000;

fn value(number: u32) -> Vec<u8> {
    format!("{number:08}").repeat(60).into_bytes()
}

/// A store of all keys, closed in good order, or killed after it had served once.
fn store(folder: &Folder, is_closed: bool) {
    let server = Server::start(folder, &SMALL);
    let mut connection = server.connect();
    for number in 0..KEYS {
        let answer = ask(&mut connection, &[b"SET", format!("key:{number}").as_bytes(), &value(number)]);
        assert_eq!(answer, Value::Simple("OK".into()));
    }
    server.stop();
    if !is_closed {
        let mut server = Server::start(folder, &SMALL);
        server.kill();
        server.wait();
    }
}

/// The file and the number of the segment in which the value of key 700 lies.
fn segment_of_a_value(folder: &Folder) -> (PathBuf, String) {
    let is_holder = |path: &PathBuf| {
        let bytes = std::fs::read(path).expect("a file is read");
        bytes.windows(480).any(|window| window == value(700))
    };
    let files = std::fs::read_dir(folder.data()).expect("a directory is read").flatten();
    let path = files.map(|entry| entry.path()).filter(|path| path.is_file()).find(is_holder);
    let path = path.expect("the value lies in a segment");
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    (path, format!("segment {} ", digits.trim_start_matches('0').parse::<u32>().unwrap_or(0)))
}

fn check(folder: &Folder) -> (Option<i32>, String) {
    let data = folder.data();
    let output = program().arg("check").arg(&data).output().expect("the program runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

fn all_are_served(folder: &Folder) {
    let server = Server::start(folder, &SMALL);
    let mut connection = server.connect();
    for number in 0..KEYS {
        let answer = ask(&mut connection, &[b"GET", format!("key:{number}").as_bytes()]);
        assert_eq!(answer, Value::Bulk(value(number)), "key {number}");
    }
    assert_eq!(server.info("lost_segments"), 0);
    server.stop();
}

fn is_refused(folder: &Folder, words: &str) {
    for _ in 0..2 {
        // The second time as the first: a start that was refused hides nothing.
        assert_eq!(spawn(folder, &SMALL).refused(), 3);
        let said = folder.complaints();
        assert!(said.contains(words) && said.contains("--disk-loss accept"), "{said}");
    }
    let (code, said) = check(folder);
    assert_eq!(code, Some(3), "{said}");
}

fn overwritten(path: &Path, bytes: &[u8], place: u64) {
    let file = std::fs::File::options().write(true).open(path).expect("a file is opened");
    file.write_all_at(bytes, place).expect("a file is written");
}

/// Starts with the loss accepted: some keys are lost, all others are served, and INFO tells.
fn serves_the_rest(folder: &Folder) {
    let server = Server::start(folder, &[&SMALL[..], &["--disk-loss", "accept"]].concat());
    let mut connection = server.connect();
    let mut lost = 0;
    for number in 0..KEYS {
        match ask(&mut connection, &[b"GET", format!("key:{number}").as_bytes()]) {
            Value::Null => lost += 1,
            answer => assert_eq!(answer, Value::Bulk(value(number)), "key {number}"),
        }
    }
    assert!((1..KEYS).contains(&lost), "{lost} keys are lost");
    assert_eq!(server.info("lost_segments"), 1);
    server.stop();
}

#[test]
fn a_segment_file_that_is_gone_refuses_the_start_and_serves_when_it_is_back() {
    for is_closed in [true, false] {
        let folder = Folder::new();
        store(&folder, is_closed);
        let (path, segment) = segment_of_a_value(&folder);
        let aside = folder.path("aside");
        std::fs::rename(&path, &aside).expect("a file is moved");
        is_refused(&folder, &format!("{segment}is missing, or empty"));
        assert!(check(&folder).1.contains("it is not there"));
        std::fs::rename(&aside, &path).expect("a file is moved back");
        all_are_served(&folder);
    }
}

#[test]
fn a_segment_file_that_begins_with_zeros_refuses_the_start() {
    for is_closed in [true, false] {
        let folder = Folder::new();
        store(&folder, is_closed);
        let (path, segment) = segment_of_a_value(&folder);
        let first = std::fs::read(&path).expect("a file is read")[..4096].to_vec();
        overwritten(&path, &[0; 4096], 0);
        is_refused(&folder, &format!("{segment}is missing, or empty"));
        overwritten(&path, &first, 0);
        all_are_served(&folder);
    }
}

#[test]
fn an_accepted_loss_serves_the_rest_and_a_missing_segment_is_missed_once() {
    let folder = Folder::new();
    store(&folder, true);
    let (path, segment) = segment_of_a_value(&folder);
    std::fs::remove_file(&path).expect("a file is removed");
    is_refused(&folder, &format!("{segment}is missing, or empty"));
    serves_the_rest(&folder);
    let server = Server::start(&folder, &SMALL);
    assert_eq!(server.info("lost_segments"), 0);
    server.stop();
}

#[test]
fn a_damaged_header_refuses_the_start_until_the_loss_is_accepted() {
    let folder = Folder::new();
    store(&folder, true);
    let (path, segment) = segment_of_a_value(&folder);
    let byte = std::fs::read(&path).expect("a file is read")[30];
    overwritten(&path, &[byte ^ 8], 30);
    is_refused(&folder, &format!("{segment}is damaged"));
    serves_the_rest(&folder);
    // It stays as it is, for it can be repaired.
    is_refused(&folder, &format!("{segment}is damaged"));
    overwritten(&path, &[byte], 30);
    all_are_served(&folder);
}
