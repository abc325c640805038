//! `tierstone check --repair`: what the new store lacks is said where nobody can count it, too; and stores whose newest writes
//! lie in a redo log are told apart by tools that read none.

use crate::common::{Folder, Server, ask, program};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const SMALL: [&str; 6] = ["--segment-size", "128KiB", "--capacity", "16MiB", "--memory", "32MiB"];
const KEYS: u32 = 1_000;

fn value(number: u32) -> Vec<u8> {
    format!("{number:08}").repeat(60).into_bytes()
}

fn fill(server: &Server) {
    let mut connection = server.connect();
    for number in 0..KEYS {
        ask(&mut connection, &[b"SET", format!("key:{number}").as_bytes(), &value(number)]);
    }
}

/// Runs the program; its exit code, what it has printed and what it has said besides.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = program().args(arguments).output().expect("the program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn repair(folder: &Folder, target: &str) -> (Option<i32>, String, String) {
    let (data, target) = (folder.data().display().to_string(), folder.path(target).display().to_string());
    run(&["check", &data, "--repair", &target])
}

/// The file of the segment in which the value of key 700 lies, its bytes, and where the value lies in them.
fn segment_of_a_value(folder: &Folder) -> (PathBuf, Vec<u8>, usize) {
    let wanted = value(700);
    let files = std::fs::read_dir(folder.data()).expect("a directory is read").flatten();
    let mut found = files.map(|entry| entry.path()).filter(|path| path.is_file()).filter_map(|path| {
        let bytes = std::fs::read(&path).expect("a file is read");
        let at = bytes.windows(480).position(|window| window == wanted)?;
        Some((path, bytes, at))
    });
    found.next().expect("the value lies in a segment")
}

fn overwrite(path: &Path, bytes: &[u8], place: usize) {
    let file = std::fs::File::options().write(true).open(path).expect("a file is opened");
    file.write_all_at(bytes, place as u64).expect("a file is written");
}

#[test]
fn what_a_repaired_store_lacks_is_said_whether_it_can_be_counted_or_not() {
    let folder = Folder::new();
    let server = Server::start(&folder, &[&SMALL[..], &["--shards", "1"]].concat());
    fill(&server);
    server.stop();
    let (path, whole, at) = segment_of_a_value(&folder);
    // Nothing is lost with a header whose footer is whole.
    overwrite(&path, &[whole[30] ^ 8], 30);
    let (code, told, said) = repair(&folder, "header");
    assert!(code == Some(0) && said.is_empty() && told.contains("damaged: header"), "{told} {said}");
    // A record is counted.
    overwrite(&path, &whole[30..31], 30);
    overwrite(&path, &[whole[at + 9] ^ 4], at + 9);
    let (code, told, said) = repair(&folder, "record");
    assert!(code == Some(0) && said.contains("lacks 1 keys"), "{told} {said}");
    assert!(!said.contains("nobody can count"), "{said}");
    // What a segment without its ends held nobody knows, nor what one held that is gone.
    overwrite(&path, &[0; 4096], 0);
    overwrite(&path, &[0; 4096], whole.len() - 4096);
    let (code, told, said) = repair(&folder, "ends");
    let is_told = said.contains("may lack keys that nobody can count") && said.contains("no footer tells");
    assert!(code == Some(0) && is_told, "{told} {said}");
    std::fs::remove_file(&path).expect("a file is removed");
    let (code, told, said) = repair(&folder, "gone");
    let is_told = said.contains("may lack keys that nobody can count") && said.contains("it is not there");
    assert!(code == Some(0) && is_told, "{told} {said}");
    let (code, _, said) = run(&["check", &folder.path("gone").display().to_string()]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_repair_into_its_own_store_or_into_persistent_memory_is_refused() {
    let folder = Folder::new();
    let server = Server::start(&folder, &[&SMALL[..], &["--shards", "1"]].concat());
    fill(&server);
    server.stop();
    let data = folder.data().display().to_string();
    let (inside, region) = (format!("{data}/new"), format!("nvm:{}", folder.path("region").display()));
    for (target, word) in
        [(&data, "lies apart"), (&inside, "lies apart"), (&region, "into which no store is repaired")]
    {
        let (code, _, said) = run(&["check", &data, "--repair", target]);
        assert!(code == Some(2) && said.contains(word), "{target}: {said}");
    }
    assert!(!folder.data().join("new").exists() && !folder.path("region").exists(), "nothing is made");
}

#[test]
fn what_an_error_quotes_is_not_taken_for_advice() {
    let folder = Folder::new();
    let strange = folder.path("no store: give the region").display().to_string();
    let out = folder.path("backup").display().to_string();
    let (code, _, said) = run(&["backup", "--data", &strange, "--out", &out]);
    assert!(code == Some(2) && !said.contains("start its server once"), "{said}");
}

#[test]
fn tools_that_read_no_region_say_so_of_a_store_whose_newest_writes_lie_in_one() {
    let folder = Folder::new();
    let region = folder.path("redo.region").display().to_string();
    let nvm = ["--shards", "1", "--nvm-guarantee", "any", "--nvm", &region, "--nvm-size", "4MiB"];
    let arguments = [&SMALL[..], &nvm].concat();
    let mut server = Server::start(&folder, &arguments);
    fill(&server);
    server.kill();
    let (code, told, said) = repair(&folder, "early");
    assert!(code == Some(0) && said.contains("redo log in persistent memory"), "{told} {said}");
    assert!(told.contains("newest writes, in the redo log") && !told.contains("--nvm"), "{told}");
    let records = folder.path("records.ndjson");
    std::fs::write(&records, "{\"key\":\"loaded\",\"value\":\"1\"}\n").expect("a source is written");
    let (data, records) = (folder.data().display().to_string(), records.display().to_string());
    let out = folder.path("backup").display().to_string();
    let tools = [
        &["backup", "--data", &data, "--out", &out][..],
        &["load", &records, "--data", &data, "--shards", "1"],
    ];
    for tool in tools {
        let (code, _, said) = run(tool);
        let is_told = said.contains("start its server once with the region") && !said.contains("--nvm-loss");
        assert!(code == Some(2) && is_told, "{tool:?}: {said}");
    }
    // As they say.
    Server::start(&folder, &arguments).stop();
    for tool in tools {
        let (code, _, said) = run(tool);
        assert_eq!(code, Some(0), "{tool:?}: {said}");
    }
    let (code, told, said) = repair(&folder, "late");
    assert!(code == Some(0) && said.is_empty() && !told.contains("redo log"), "{told} {said}");
}
