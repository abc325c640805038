//! Who may come in, and what he may do, at the running program.

use crate::common::{Folder, PATIENCE, Server, ask, drivers, program, spawn};
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use tierstone_client::{Connection, Value};

/// What `command` is answered, as text.
fn text(connection: &mut Connection, line: &str) -> String {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    match connection.command(&words).expect("the server answers") {
        value if value.is_error() => value.error().unwrap_or_default().into_owned(),
        value => String::from_utf8_lossy(value.bytes().unwrap_or(b"")).into_owned(),
    }
}

fn lines(value: &Value) -> Vec<String> {
    let items = value.items().expect("a list");
    items.iter().map(|item| String::from_utf8_lossy(item.bytes().expect("a text")).into_owned()).collect()
}

#[test]
fn users_of_a_file_are_kept_over_a_restart_and_their_passwords_are_told_nowhere() {
    for driver in drivers() {
        let folder = Folder::new();
        let file = folder.path("users.acl");
        std::fs::write(&file, "user reader on >quite-secret ~public:* +@read\n").expect("a file is written");
        let path = file.to_str().expect("a path");
        let arguments =
            ["--shards", "3", "--driver", driver, "--aclfile", path, "--log-level", "info", "--log", "json"];
        let server = Server::start(&folder, &arguments);
        let mut admin = server.connect();
        assert_eq!(lines(&ask(&mut admin, &[b"CONFIG", b"GET", b"aclfile"]))[0], "aclfile");
        ask(&mut admin, &[b"SET", b"public:a", b"1"]);
        // Connections come to shards by chance.
        for _ in 0..9 {
            let mut client = server.connect();
            ask(&mut client, &[b"AUTH", b"reader", b"quite-secret"]);
            assert_eq!(text(&mut client, "GET public:a"), "1");
            assert_eq!(text(&mut client, "GET private:a"), "NOPERM No permissions to access a key");
            assert!(text(&mut client, "SET public:a 2").starts_with("NOPERM User reader has no permissions"));
        }
        ask(&mut admin, &[b"ACL", b"SETUSER", b"writer", b"on", b">also-secret", b"~*", b"+set"]);
        ask(&mut admin, &[b"CONFIG", b"SET", b"requirepass", b"server-secret"]);
        ask(&mut admin, &[b"ACL", b"SAVE"]);
        let shown = lines(&ask(&mut admin, &[b"ACL", b"LIST"]));
        let saved = std::fs::read_to_string(&file).expect("it was written");
        assert_eq!(saved.lines().map(str::to_owned).collect::<Vec<_>>(), shown);
        assert!(!saved.contains("secret"), "{saved}");
        server.stop();

        let server = Server::start(&folder, &arguments);
        let mut admin = server.connect();
        assert_eq!(text(&mut admin, "PING"), "NOAUTH Authentication required.");
        ask(&mut admin, &[b"AUTH", b"server-secret"]);
        assert_eq!(lines(&ask(&mut admin, &[b"ACL", b"LIST"])), shown);
        // Who is not in the file that is read again is disconnected.
        let mut writer = server.connect();
        ask(&mut writer, &[b"AUTH", b"writer", b"also-secret"]);
        ask(&mut writer, &[b"SET", b"k", b"v"]);
        let kept: Vec<&String> = shown.iter().filter(|line| !line.contains(" writer ")).collect();
        let kept: String = kept.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&file, &kept).expect("the file is written");
        ask(&mut admin, &[b"ACL", b"LOAD"]);
        assert!(writer.command(&[b"SET", b"k", b"v"]).is_err(), "a connection of nobody goes on");
        std::fs::write(&file, "user x +nosuch\n").expect("the file is written");
        let refused = text(&mut admin, "ACL LOAD");
        assert!(refused.contains("users.acl:1: Error in applying operation '+nosuch'"), "{refused}");
        std::fs::remove_file(&file).expect("the file goes");
        assert!(text(&mut admin, "ACL LOAD").starts_with("ERR Error loading ACLs, opening file"));
        assert!(text(&mut admin, "ACL SAVE").starts_with("ERR There was an error trying to save the ACLs."));
        server.stop();
        let log = folder.complaints();
        assert!(log.contains("a client changed a setting") && !log.contains("secret"), "{log}");
    }
}

#[test]
fn a_file_of_users_that_is_wrong_or_missing_keeps_the_server_from_starting() {
    let folder = Folder::new();
    let file = folder.path("users.acl");
    let path = file.to_str().expect("a path");
    assert_eq!(spawn(&folder, &["--aclfile", path]).refused(), 2);
    assert!(folder.complaints().contains("opening file"), "{}", folder.complaints());
    std::fs::write(&file, "user a on >tell-nobody +get\nuser b +nosuch\n").expect("a file is written");
    assert_eq!(spawn(&folder, &["--aclfile", path]).refused(), 2);
    let told = folder.complaints();
    assert!(told.contains("users.acl:2: Error in applying operation '+nosuch'"), "{told}");
    assert!(!told.contains("tell-nobody") && !folder.data().exists(), "{told}");
}

#[test]
fn a_password_that_users_have_is_asked_for_on_every_shard_and_made_by_the_server() {
    let folder = Folder::new();
    let server = Server::start(&folder, &["--shards", "4", "--password", "first"]);
    let mut admin = Connection::connect(server.address, PATIENCE).expect("a connection");
    ask(&mut admin, &[b"AUTH", b"default", b"first"]);
    let made = text(&mut admin, "ACL GENPASS");
    assert!(made.len() == 64 && made != text(&mut admin, "ACL GENPASS"), "{made}");
    ask(&mut admin, &[b"ACL", b"SETUSER", b"app", b"on", format!(">{made}").as_bytes(), b"~*", b"+@all"]);
    let mut clients: Vec<Connection> = (0..12).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(text(client, "GET a"), "NOAUTH Authentication required.");
        ask(client, &[b"AUTH", b"app", made.as_bytes()]);
        ask(client, &[b"INCR", b"a"]);
    }
    ask(&mut admin, &[b"ACL", b"SETUSER", b"app", b"-incr"]);
    for client in &mut clients {
        assert!(text(client, "INCR a").starts_with("NOPERM User app has no permissions to run the 'incr'"));
    }
    assert_eq!(ask(&mut admin, &[b"GET", b"a"]).bytes(), Some(b"12".as_slice()));
    ask(&mut admin, &[b"ACL", b"DELUSER", b"app"]);
    for client in &mut clients {
        assert!(client.command(&[b"PING"]).is_err(), "a connection of nobody goes on");
    }
    server.stop();
}

#[test]
fn a_result_of_a_benchmark_does_not_hold_the_password_that_it_used() {
    let folder = Folder::new();
    let server = Server::start(&folder, &["--password", "s3cret"]);
    let mut command = program();
    command.args(["bench", "--address", &server.address.to_string(), "--password", "s3cret"]);
    command.args(["--records", "10", "--operations", "10", "--json"]);
    let output = command.output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("\"plan\""), "{said}");
    assert!(!said.contains("s3cret"), "{said}");
    server.stop();
}

/// An address of this machine that others could reach; none where it has only itself.
fn outer_address() -> Option<IpAddr> {
    // Nothing is sent: the kernel only chooses the address that it would send from.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

/// What a client that comes from outside is told first when it asks `PING`.
fn ping_from(address: IpAddr, port: u16) -> String {
    let mut socket = TcpStream::connect((address, port)).expect("the door is open");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
    // Whoever is turned away may be so before he has said anything.
    let _ = socket.write_all(b"PING\r\n");
    let mut told = String::new();
    // The end of a connection that was turned away may come as a reset.
    let _ = BufReader::new(socket).read_line(&mut told);
    told.trim_end().to_owned()
}

#[test]
fn without_a_password_only_clients_of_this_machine_come_in_unless_that_is_meant() {
    let Some(outer) = outer_address() else {
        println!("SKIP: protected mode (this machine has no address but its own)");
        return;
    };
    for driver in drivers() {
        let folder = Folder::new();
        let arguments = ["--shards", "1", "--driver", driver, "--listen", "0.0.0.0:0"];
        let server = Server::start(&folder, &arguments);
        let port = server.address.port();
        let inner = IpAddr::from([127, 0, 0, 1]);
        let mut admin = Connection::connect(SocketAddr::from((inner, port)), PATIENCE).expect("it is let in");
        let refused = ping_from(outer, port);
        assert!(refused.starts_with("-DENIED ") && refused.contains("--protected-mode no"), "{refused}");
        ask(&mut admin, &[b"CONFIG", b"SET", b"protected-mode", b"no"]);
        assert_eq!(ping_from(outer, port), "+PONG");
        let wrong = text(&mut admin, "CONFIG SET protected-mode maybe");
        assert!(wrong.ends_with("argument must be 'yes' or 'no'"), "{wrong}");
        ask(&mut admin, &[b"CONFIG", b"SET", b"protected-mode", b"yes"]);
        assert!(ping_from(outer, port).starts_with("-DENIED "));
        ask(&mut admin, &[b"ACL", b"SETUSER", b"default", b">pw"]);
        assert_eq!(ping_from(outer, port), "-NOAUTH Authentication required.");
        ask(&mut admin, &[b"ACL", b"SETUSER", b"default", b"nopass"]);
        assert!(ping_from(outer, port).starts_with("-DENIED "));
        assert_eq!(ping_from(inner, port), "+PONG");
        server.stop();
    }
}
