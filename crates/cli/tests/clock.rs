//! A wall clock that is set forth and back under a real server: what expires by it, and what does not go by it.

use crate::common::{Folder, Server, ask, program, spawn_command};
use std::path::{Path, PathBuf};
use std::process::Command;
use tierstone_client::Connection;

const SMALL: [&str; 8] =
    ["--segment-size", "128KiB", "--capacity", "16MiB", "--memory", "16MiB", "--shards", "1"];
const HOUR_S: i64 = 3_600;

/// The clock of the servers that are started with it.
struct Wall {
    offset: PathBuf,
    shim: PathBuf,
}

impl Wall {
    /// `None`, after a line that says so, where no C compiler is.
    fn new(folder: &Folder) -> Option<Wall> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wall/shim.c");
        let (shim, offset) = (folder.path("shim.so"), folder.path("offset"));
        let built =
            Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&shim).arg(source).output();
        match built {
            Ok(output) if output.status.success() => {}
            Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => {
                println!("SKIP: a wall clock that is set under a server (cc: {error})");
                return None;
            }
        }
        std::fs::write(&offset, 0i64.to_ne_bytes()).expect("the offset is written");
        Some(Wall { offset, shim })
    }

    /// Sets the clock so many seconds ahead of the machine's.
    fn set(&self, offset_s: i64) {
        use std::io::{Seek, Write};
        // In place: servers have the file mapped.
        let mut file = std::fs::File::options().write(true).open(&self.offset).expect("the offset is there");
        file.rewind().and_then(|()| file.write_all(&offset_s.to_ne_bytes())).expect("the clock is set");
    }

    fn start(&self, folder: &Folder) -> Server {
        let mut command = program();
        command.env("LD_PRELOAD", &self.shim).env("WALL_OFFSET_FILE", &self.offset);
        command.args(["server", "--listen", "127.0.0.1:0", "--data"]).arg(folder.data()).args(SMALL);
        let started = spawn_command(folder, command).listening();
        started.unwrap_or_else(|status| panic!("{status}: {}", folder.complaints()))
    }
}

fn ttl(connection: &mut Connection, key: &str) -> i64 {
    ask(connection, &[b"TTL", key.as_bytes()]).integer().expect("a number")
}

fn set_for(connection: &mut Connection, key: &str, seconds: i64) {
    let reply = ask(connection, &[b"SET", key.as_bytes(), b"v", b"EX", seconds.to_string().as_bytes()]);
    assert!(reply.is_ok());
}

#[test]
fn a_clock_set_forth_expires_at_once_and_set_back_brings_nothing_back() {
    let folder = Folder::new();
    let Some(wall) = Wall::new(&folder) else { return };
    let mut server = wall.start(&folder);
    let mut connection = server.connect();
    ask(&mut connection, &[b"SET", b"stays", b"v"]);
    set_for(&mut connection, "short", HOUR_S / 2);
    set_for(&mut connection, "long", 2 * HOUR_S);
    // Forth by an hour: what was to expire within it is gone, and the rest has an hour less.
    wall.set(HOUR_S);
    assert_eq!(ttl(&mut connection, "short"), -2);
    assert!((HOUR_S - 120..=HOUR_S).contains(&ttl(&mut connection, "long")));
    // Back by two: time stands still for expiries, nothing comes back, and writes go on.
    wall.set(-HOUR_S);
    assert_eq!(ttl(&mut connection, "short"), -2);
    let left = ttl(&mut connection, "long");
    assert!((HOUR_S - 120..=HOUR_S).contains(&left), "{left}");
    set_for(&mut connection, "late", 100);
    assert_eq!(ttl(&mut connection, "late"), 100);
    for number in 0..200u32 {
        let number = number.to_string();
        assert!(ask(&mut connection, &[b"SET", b"counted", number.as_bytes()]).is_ok());
        assert_eq!(ask(&mut connection, &[b"GET", b"counted"]).bytes(), Some(number.as_bytes()));
    }
    assert_eq!(ttl(&mut connection, "late"), 100, "time goes on although the clock is behind");
    // A restart goes by the clock as it is, but not to before an expiry that was told: nothing comes back,
    // nothing is lost, and what is left lasts longer.
    server.kill();
    let server = wall.start(&folder);
    let mut connection = server.connect();
    assert_eq!(ask(&mut connection, &[b"GET", b"stays"]).bytes(), Some(&b"v"[..]));
    assert_eq!(ask(&mut connection, &[b"GET", b"counted"]).bytes(), Some(&b"199"[..]));
    assert_eq!(ttl(&mut connection, "short"), -2, "what had expired is back");
    let left = ttl(&mut connection, "long");
    assert!((HOUR_S * 3 / 2 - 120..=HOUR_S * 3 / 2).contains(&left), "{left}");
    let left = ttl(&mut connection, "late");
    assert!((HOUR_S / 2..=HOUR_S / 2 + 100).contains(&left), "{left}");
    // Once the clock has come to where it was, all is as if it had never been set back.
    wall.set(HOUR_S);
    let left = ttl(&mut connection, "long");
    assert!((HOUR_S - 120..=HOUR_S).contains(&left), "{left}");
    server.stop();
}
