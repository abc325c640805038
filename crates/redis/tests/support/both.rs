//! A Redis server of this machine beside one of this crate: the same requests to both.
//!
//! The server listens on a Unix socket of its own, so that no two tests meet. `TIERSTONE_REDIS_SERVER` names its
//! program (default: `redis-server`). Where there is none [`Both::start`] says so.

use super::Server;
use super::random_requests::words;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tierstone_engine::map_engine::MapEngine;
use tierstone_redis::ConnectionId;
use tierstone_wire::resp::{ReplyLimits, ReplyParser, ReplyProgress, Value, encode_command};

/// A Redis server of this machine.
pub struct Redis {
    process: Child,
    socket: PathBuf,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Redis {
    /// A server, or a line that says that there is none.
    pub fn start() -> Option<Redis> {
        let program = std::env::var("TIERSTONE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
        static SERVERS: AtomicU32 = AtomicU32::new(0);
        let number = SERVERS.fetch_add(1, Ordering::Relaxed);
        let socket = std::env::temp_dir().join(format!("tierstone-redis-{}-{number}", std::process::id()));
        let process = Command::new(&program)
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .args(["--enable-debug-command", "yes"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(process) = process else {
            println!("SKIP: comparison with a Redis server (none here; TIERSTONE_REDIS_SERVER names one)");
            return None;
        };
        Some(Redis { process, socket })
    }

    /// Connects, waiting for the server to listen; the kernel does the waiting.
    pub fn connect(&self) -> Peer {
        for _ in 0..400 {
            if let Ok(stream) = UnixStream::connect(&self.socket) {
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                return Peer { stream };
            }
            let _ = Command::new("sleep").arg("0.05").status();
        }
        panic!("the Redis server did not begin to listen");
    }
}

/// A connection to it.
pub struct Peer {
    stream: UnixStream,
}

impl Peer {
    /// The next value that comes without having been asked for.
    pub fn next(&mut self) -> Value {
        let mut parser = ReplyParser::new(ReplyLimits::default());
        let (mut all, mut at) = (Vec::new(), 0);
        loop {
            // One byte after the other: what follows is for the next call.
            let mut byte = [0];
            self.stream.read_exact(&mut byte).unwrap();
            all.push(byte[0]);
            match parser.parse(&all[at..]).unwrap() {
                ReplyProgress::Complete { value, .. } => return value,
                ReplyProgress::Incomplete { consumed, .. } => at += consumed,
            }
        }
    }

    /// One request and its raw answer.
    pub fn call(&mut self, words: &[Vec<u8>]) -> Vec<u8> {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let mut request = Vec::new();
        encode_command(&words, &mut request);
        self.stream.write_all(&request).unwrap();
        let mut parser = ReplyParser::new(ReplyLimits::default());
        let (mut all, mut at) = (Vec::new(), 0);
        let mut buffer = [0u8; 65_536];
        loop {
            let count = self.stream.read(&mut buffer).unwrap_or_else(|error| {
                panic!("no reply to {words:?}: {error}; so far {:?}", String::from_utf8_lossy(&all))
            });
            assert!(count > 0, "the Redis server closed the connection");
            all.extend_from_slice(&buffer[..count]);
            while at < all.len() {
                match parser.parse(&all[at..]).unwrap() {
                    ReplyProgress::Complete { consumed, .. } => {
                        assert_eq!(at + consumed, all.len(), "more than one reply");
                        return all;
                    }
                    ReplyProgress::Incomplete { consumed: 0, .. } => break,
                    ReplyProgress::Incomplete { consumed, .. } => at += consumed,
                }
            }
        }
    }
}

/// A Redis server, one of this crate, and a connection to each.
pub struct Both {
    pub peer: Peer,
    pub own: Server<MapEngine>,
    pub id: ConnectionId,
    pub redis: Redis,
}

impl Both {
    /// Both without keys, or a line that says that there is no Redis server.
    pub fn start() -> Option<Both> {
        let redis = Redis::start()?;
        let mut own = Server::new([MapEngine::new(0)]);
        Some(Both { peer: redis.connect(), id: own.connect(), own, redis })
    }

    /// Begins anew, without keys; here with so many shards.
    pub fn renew(&mut self, shards: usize) {
        self.peer = self.redis.connect();
        self.peer.call(&words("FLUSHALL"));
        self.own = Server::new((0..shards).map(|_| MapEngine::new(0)));
        self.id = self.own.connect();
    }

    /// The reply of Redis to a request, and that of this crate, at the same time.
    pub fn call(&mut self, request: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>) {
        let expected = self.peer.call(request);
        self.own.now.wall_ms = wall_ms();
        let slices: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        (expected, self.own.raw(self.id, &slices))
    }

    /// The same of a line of words, taken apart.
    pub fn ask(&mut self, line: &str) -> (Value, Value) {
        let (expected, got) = self.call(&words(line));
        (super::parse_all(&expected).remove(0), super::parse_all(&got).remove(0))
    }

    pub fn is_before_8(&mut self) -> bool {
        let information = String::from_utf8_lossy(&self.peer.call(&words("INFO server"))).into_owned();
        ["5", "6", "7"].iter().any(|major| information.contains(&format!("redis_version:{major}.")))
    }
}

/// The time of the machine, in milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "both servers must see the same time")]
pub fn wall_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
