//! The server on kept images of every earlier format: it serves every key with its expiry, large values too, and goes on
//! with the store after another start. How the images were made is written beside them.

use crate::common::{Folder, Server, ask, program, spawn_command};
use crate::images::{Contents, LARGE, all, expected, unpack};
use std::path::Path;
use tierstone_client::{Connection, Value};

/// A server on the store of an image.
fn start(folder: &Folder, name: &str) -> Server {
    let path = |file: &str| folder.path(file).display().to_string();
    let mut command = program();
    command.args(["server", "--listen", "127.0.0.1:0", "--shards", "2", "--memory", "64MiB"]);
    match name {
        _ if name.starts_with("pmstore") => {
            command.args(["--data", &format!("nvm:{}", path("region")), "--nvm-guarantee", "any"]);
        }
        _ if name.starts_with("redo") => {
            command.args(["--data", &path("store"), "--nvm", &path("redo"), "--nvm-guarantee", "any"]);
        }
        _ => drop(command.args(["--data", &path("store")])),
    }
    match spawn_command(folder, command).listening() {
        Ok(server) => server,
        Err(status) => {
            panic!("{name}: the server ended before it listened: {status}\n{}", folder.complaints())
        }
    }
}

fn check(connection: &mut Connection, wanted: &Contents, name: &str) {
    for number in [0u32, 3, 15] {
        ask(connection, &[b"SELECT", number.to_string().as_bytes()]);
        let mut count = 0;
        for ((_, key), (value, expiry)) in wanted.iter().filter(|((database, _), _)| *database == number) {
            let found = ask(connection, &[b"GET", key.as_bytes()]);
            assert!(found.bytes() == Some(value.as_slice()), "{name}: {number}, {key}");
            let found = ask(connection, &[b"EXPIRETIME", key.as_bytes()]);
            let seconds = expiry.map_or(-1, |seconds| seconds as i64);
            assert_eq!(found, Value::Integer(seconds), "{name}: {number}, {key}");
            count += 1;
        }
        assert_eq!(ask(connection, &[b"DBSIZE"]), Value::Integer(count), "{name}: {number}");
    }
    ask(connection, &[b"SELECT", b"0"]);
}

#[test]
fn the_server_serves_stores_of_every_earlier_format() {
    for name in all().iter().filter(|name| !name.starts_with("backup")) {
        println!("{name}");
        let folder = Folder::new();
        unpack(name, folder.path("x").parent().unwrap());
        let mut wanted = expected(name);
        let mut server = start(&folder, name);
        check(&mut server.connect(), &wanted, name);
        let mut connection = server.connect();
        ask(&mut connection, &[b"SET", b"new", b"value"]);
        wanted.insert((0, "new".into()), ("value".into(), None));
        ask(&mut connection, &[b"APPEND", LARGE.as_bytes(), b"!"]);
        wanted.entry((0, LARGE.into())).or_default().0.push(b'!');
        server.kill();
        let server = start(&folder, name);
        check(&mut server.connect(), &wanted, name);
        server.stop();
    }
}

#[test]
fn a_backup_of_the_first_format_is_verified_restored_and_served() {
    let folder = Folder::new();
    unpack("backup-1", &folder.path("backup"));
    let run = |words: &[&str], paths: &[&Path]| {
        let mut command = program();
        for (word, path) in words.iter().zip(paths) {
            command.args(word.split(' ')).arg(path);
        }
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let (backup, store) = (folder.path("backup"), folder.path("store"));
    run(&["backup --verify"], &[&backup]);
    run(&["restore --from", "--data"], &[&backup, &store]);
    let server = start(&folder, "restored");
    check(&mut server.connect(), &expected("backup-1"), "backup-1");
    server.stop();
}
