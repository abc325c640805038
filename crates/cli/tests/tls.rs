//! Clients that speak TLS, and those that should and do not, at the running program.

use crate::common::authority::Authority;
use crate::common::{Folder, PATIENCE, Server, ask, drivers, seed, spawn};
use rustix::process::Signal;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use tierstone_base::{Clock, SeededRandom, SystemClock};

/// What a client believes that trusts the authority; with the certificate called `own`, if any.
fn config_of(
    authority: &Authority<'_>,
    own: Option<&str>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let certificates = |name: &str| -> Vec<CertificateDer<'static>> {
        let path = authority.folder.path(&format!("{name}.pem"));
        CertificateDer::pem_file_iter(path).expect("a file").map(|one| one.expect("a certificate")).collect()
    };
    let mut roots = RootCertStore::empty();
    for root in certificates(authority.name) {
        roots.add(root).expect("a root");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(roots);
    Arc::new(match own {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let key = PrivateKeyDer::from_pem_file(authority.folder.path(&format!("{name}.key")));
            builder.with_client_auth_cert(certificates(name), key.expect("a key")).expect("they fit")
        }
    })
}

const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

/// The arguments that name the server's files, and further ones.
fn arguments(folder: &Folder, clients: &str, more: &[&str]) -> Vec<String> {
    let path = |name: &str| folder.path(name).display().to_string();
    let mut all: Vec<String> =
        ["--tls-listen", "127.0.0.1:0", "--tls-auth-clients", clients, "--tls-cert-file"]
            .map(str::to_owned)
            .to_vec();
    all.extend([path("server.pem"), "--tls-key-file".into(), path("server.key")]);
    all.extend(["--tls-ca-cert-file".into(), path("ca.pem")]);
    all.extend(more.iter().map(|word| (*word).to_owned()));
    all
}

/// Starts a server; where clients that speak TLS come in.
fn start(folder: &Folder, clients: &str, more: &[&str]) -> (Server, SocketAddr) {
    let arguments = arguments(folder, clients, more);
    let mut server = Server::start(folder, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let line = server.next_line();
    let address = line.strip_prefix("listening with TLS on ").and_then(|text| text.parse().ok());
    let address = address.unwrap_or_else(|| panic!("no address: {line}"));
    (server, address)
}

struct Client {
    stream: BufReader<StreamOwned<ClientConnection, TcpStream>>,
}

impl Client {
    fn new(config: &Arc<ClientConfig>, address: SocketAddr) -> Client {
        let name = ServerName::try_from("localhost").expect("a name");
        let session = ClientConnection::new(Arc::clone(config), name).expect("a session");
        let socket = TcpStream::connect(address).expect("the door is open");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
        Client { stream: BufReader::new(StreamOwned::new(session, socket)) }
    }

    fn send(&mut self, text: &[u8]) -> std::io::Result<()> {
        let stream = self.stream.get_mut();
        stream.write_all(text).and_then(|()| stream.flush())
    }

    /// The next line that the server sends.
    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// One line for one line.
    fn ask(&mut self, text: &str) -> std::io::Result<String> {
        self.send(format!("{text}\r\n").as_bytes())?;
        self.line()
    }

    /// The certificate that the server has shown.
    fn shown(&self) -> Vec<u8> {
        let certificates = self.stream.get_ref().conn.peer_certificates();
        certificates.and_then(<[_]>::first).expect("the server shows one").to_vec()
    }
}

#[test]
fn clients_are_served_in_both_versions_through_both_drivers() {
    let folder = Folder::new();
    let authority = Authority::new(&folder, "ca");
    authority.sign("server");
    for driver in drivers() {
        let (server, address) = start(&folder, "no", &["--driver", driver, "--shards", "2"]);
        for version in VERSIONS {
            let config = config_of(&authority, None, &[version]);
            let mut client = Client::new(&config, address);
            assert_eq!(client.ask("PING").expect("an answer"), "+PONG");
            // Many requests at once, and values longer than a record, both ways.
            let many: String = (0..3_000).map(|number| format!("SET key:{number} {number}\r\n")).collect();
            client.send(many.as_bytes()).expect("they are taken");
            for _ in 0..3_000 {
                assert_eq!(client.line().expect("an answer"), "+OK");
            }
            let value: Vec<u8> =
                (0..3_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            client
                .send(format!("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n${}\r\n", value.len()).as_bytes())
                .expect("sent");
            client.send(&value).expect("it is taken");
            assert_eq!(client.ask("").expect("an answer"), "+OK");
            assert_eq!(client.ask("GET large").expect("an answer"), format!("${}", value.len()));
            let mut back = vec![0; value.len() + 2];
            client.stream.read_exact(&mut back).expect("all of it comes");
            assert!(back[..value.len()] == value, "the value has changed");
            // A message comes unasked, and a goodbye is said properly.
            assert_eq!(client.ask("SUBSCRIBE news").expect("an answer"), "*3");
            (0..5).for_each(|_| drop(client.line().expect("an answer")));
            ask(&mut server.connect(), &[b"PUBLISH", b"news", b"hello"]);
            assert_eq!(client.line().expect("a message"), "*3");
            (0..6).for_each(|_| drop(client.line().expect("a message")));
            assert_eq!(client.ask("QUIT").expect("an answer"), "+OK");
            let end = client.stream.read(&mut [0; 1]);
            assert!(matches!(end, Ok(0)), "the end was not announced: {end:?}");
        }
        server.stop();
    }
}

#[test]
fn clients_need_a_certificate_where_one_is_asked_for() {
    let folder = Folder::new();
    let (authority, stranger) = (Authority::new(&folder, "ca"), Authority::new(&folder, "stranger"));
    authority.sign("server");
    authority.sign("friend");
    stranger.sign("foe");
    for driver in drivers() {
        for (clients, without, wrong) in
            [("no", true, true), ("optional", true, false), ("yes", false, false)]
        {
            let (server, address) = start(&folder, clients, &["--driver", driver, "--shards", "1"]);
            for version in VERSIONS {
                let pings = |own: Option<&str>| {
                    let config = config_of(&authority, own, &[version]);
                    Client::new(&config, address).ask("PING").is_ok_and(|answer| answer == "+PONG")
                };
                assert_eq!(pings(None), without, "{clients} {version:?}");
                assert_eq!(pings(Some("foe")), wrong, "{clients} {version:?}");
                assert!(pings(Some("friend")), "{clients} {version:?}");
            }
            // Who trusts others does not believe the server.
            let config = config_of(&stranger, None, &VERSIONS);
            assert!(Client::new(&config, address).ask("PING").is_err());
            server.stop();
        }
    }
}

#[test]
fn files_are_read_again_on_sighup_and_wrong_ones_change_nothing() {
    let folder = Folder::new();
    let authority = Authority::new(&folder, "ca");
    authority.sign("server");
    let (server, address) = start(&folder, "no", &["--shards", "2"]);
    let config = config_of(&authority, None, &VERSIONS);
    let connect = || {
        let mut client = Client::new(&config, address);
        assert_eq!(client.ask("PING").expect("an answer"), "+PONG");
        client
    };
    let clock = SystemClock::new();
    let until = |is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(clock.now().monotonic_us < PATIENCE.as_micros() as u64, "it does not come about");
        }
    };
    let mut first = connect();
    let old = first.shown();
    std::fs::write(folder.path("server.pem"), "no certificate\n").expect("it is written");
    server.signal(Signal::HUP);
    until(&|| folder.complaints().contains("could not be read again"));
    assert_eq!(connect().shown(), old);
    authority.sign("server");
    server.signal(Signal::HUP);
    until(&|| connect().shown() != old);
    assert_eq!(first.ask("PING").expect("an answer"), "+PONG", "who is there stays");
    server.stop();
}

#[test]
fn files_that_are_wrong_keep_the_server_from_starting() {
    let folder = Folder::new();
    let (authority, other) = (Authority::new(&folder, "ca"), Authority::new(&folder, "other"));
    authority.sign("server");
    other.sign("another");
    let refused = |arguments: Vec<String>, why: &str| {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        assert_eq!(spawn(&folder, &words).refused(), 2, "{why}");
        assert!(folder.complaints().contains(why), "{why} is not in {}", folder.complaints());
        assert!(!folder.data().exists(), "something was made");
    };
    let path = |name: &str| folder.path(name).display().to_string();
    let with = |more: &[&str]| -> Vec<String> {
        ["--tls-listen", "0"].iter().chain(more).map(|text| (*text).to_owned()).collect()
    };
    refused(with(&["--tls-auth-clients", "no"]), "tls-listen needs tls-cert-file");
    let (certificate, key) = (path("server.pem"), path("server.key"));
    let own = ["--tls-cert-file", certificate.as_str(), "--tls-key-file", &key];
    refused(with(&own), "there is no tls-ca-cert-file");
    refused(
        arguments(&folder, "no", &["--tls-key-file", &path("another.key")]),
        "cannot be used multiple times",
    );
    std::fs::copy(folder.path("another.key"), folder.path("server.key")).expect("it is copied");
    refused(arguments(&folder, "no", &[]), "server.pem: ");
    std::fs::write(folder.path("ca.pem"), "").expect("it is written");
    refused(arguments(&folder, "yes", &[]), "ca.pem: ");
}

#[test]
fn hostile_bytes_instead_of_a_handshake_harm_nobody_else() {
    let folder = Folder::new();
    let authority = Authority::new(&folder, "ca");
    authority.sign("server");
    let mut random = SeededRandom::new(seed());
    let config = config_of(&authority, None, &VERSIONS);
    // The beginning of a true conversation, to be damaged.
    let name = ServerName::try_from("localhost").expect("a name");
    let mut hello = Vec::new();
    let mut session = ClientConnection::new(Arc::clone(&config), name).expect("a session");
    session.write_tls(&mut hello).expect("it is written");
    for driver in drivers() {
        let (server, address) = start(&folder, "no", &["--driver", driver, "--shards", "1"]);
        let mut witness = Client::new(&config, address);
        for round in 0..150 {
            let mut bytes = match random.below(5) {
                0 => b"*1\r\n$4\r\nPING\r\n".to_vec(),
                1 => b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
                2 => (0..random.below(70_000)).map(|_| random.next_u64() as u8).collect(),
                3 => hello[..random.below(hello.len() as u64) as usize].to_vec(),
                _ => hello.repeat(1 + random.below(300) as usize),
            };
            for _ in 0..random.below(4) {
                let at = random.below(bytes.len().max(1) as u64) as usize;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.next_u64() as u8;
                }
            }
            let mut socket = TcpStream::connect(address).expect("the door is open");
            socket.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
            // The server may end the connection before it has taken everything.
            let _ = socket.write_all(&bytes);
            let _ = socket.shutdown(Shutdown::Write);
            let mut told = Vec::new();
            let end = socket.read_to_end(&mut told);
            let is_ended = end.as_ref().map_or_else(|error| error.kind() != ErrorKind::WouldBlock, |_| true);
            assert!(is_ended, "round {round}: the connection goes on");
            assert!(!told.windows(4).any(|part| part == b"PONG"), "it was answered in the clear");
            assert_eq!(witness.ask("PING").expect("an answer"), "+PONG", "round {round}");
        }
        server.stop();
    }
}

#[test]
fn handshakes_that_never_end_are_given_up() {
    let folder = Folder::new();
    let authority = Authority::new(&folder, "ca");
    authority.sign("server");
    let (server, address) = start(&folder, "no", &["--shards", "1"]);
    let mut silent = TcpStream::connect(address).expect("the door is open");
    let mut slow = TcpStream::connect(address).expect("the door is open");
    slow.write_all(&[22, 3, 1, 1]).expect("it is taken");
    for socket in [&mut silent, &mut slow] {
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
        let end = socket.read(&mut [0; 1]);
        let is_ended =
            end.as_ref().map_or_else(|error| error.kind() != ErrorKind::WouldBlock, |read| *read == 0);
        assert!(is_ended, "{end:?}");
    }
    let mut client = Client::new(&config_of(&authority, None, &VERSIONS), address);
    assert_eq!(client.ask("PING").expect("an answer"), "+PONG");
    server.stop();
}

#[test]
fn redis_cli_speaks_tls() {
    let folder = Folder::new();
    let authority = Authority::new(&folder, "ca");
    authority.sign("server");
    authority.sign("friend");
    let (server, address) = start(&folder, "yes", &["--shards", "2"]);
    let path = |name: &str| folder.path(name).display().to_string();
    let port = address.port().to_string();
    let run = |words: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.args(["--tls", "-h", "localhost", "-p", &port, "--cacert", &path("ca.pem")]);
        command.args(["--cert", &path("friend.pem"), "--key", &path("friend.key")]).args(words);
        command.output()
    };
    let Ok(output) = run(&["SET", "key", "value"]) else {
        println!("SKIP: redis-cli over TLS (no redis-cli here)");
        return;
    };
    let (told, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if told.contains("Unrecognized option") || failed.contains("Unrecognized option") {
        println!("SKIP: redis-cli over TLS (it was built without)");
        return;
    }
    assert_eq!(told.trim(), "OK", "{failed}");
    let output = run(&["-3", "GET", "key"]).expect("it runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "value");
    server.stop();
}

#[test]
fn redis_py_speaks_tls() {
    let Some(python) = std::env::var_os("TIERSTONE_PYTHON") else {
        println!("SKIP: tests with redis-py over TLS (TIERSTONE_PYTHON names no Python that has it)");
        return;
    };
    let folder = Folder::new();
    let authority = Authority::new(&folder, "ca");
    authority.sign("server");
    let (server, address) = start(&folder, "no", &[]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/redis_py.py");
    let mut command = Command::new(python);
    command.args([script, &address.port().to_string()]).arg(folder.path("ca.pem"));
    let output = command.output().expect("the Python starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("all checks passed"), "{said}\n{complaints}");
    server.stop();
}
