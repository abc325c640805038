//! The program under test as a process: started on a free port, killed, stopped, asked.
//!
//! Nothing outlives its test: a dropped [`Server`] is killed, a dropped [`Folder`] is removed.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod authority;

use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use tierstone_base::SeededRandom;
use tierstone_client::{Connection, Value};

/// How long a client waits before a test is given up: far above anything but a hang.
pub const PATIENCE: Duration = Duration::from_secs(60);

static NEXT_FOLDER: AtomicU32 = AtomicU32::new(0);

/// A directory of one test.
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    pub fn new() -> Self {
        let number = NEXT_FOLDER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tierstone-cli-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).expect("a temporary directory is made");
        Folder { path }
    }

    /// A path below it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Where the servers of the test keep their data.
    pub fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// What the servers of the test have said on their error output so far.
    pub fn complaints(&self) -> String {
        std::fs::read_to_string(self.path("stderr")).unwrap_or_default()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("what the servers said on their error output:\n{}", self.complaints());
        }
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// `tierstone` with the settings of the tests only, not those of the environment.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierstone"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TIERSTONE_"))
    {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// A server process that may still be starting.
pub struct Starting {
    child: Child,
    lines: Receiver<String>,
}

/// A server process that listens.
pub struct Server {
    child: Child,
    lines: Receiver<String>,
    /// What it said about its store.
    pub greeting: String,
    /// Where it listens.
    pub address: SocketAddr,
}

/// Starts a server with `arguments` on the data of `folder`, and does not wait for it.
pub fn spawn(folder: &Folder, arguments: &[&str]) -> Starting {
    let mut command = program();
    command.arg("server").arg("--data").arg(folder.data());
    if !arguments.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    command.args(arguments);
    spawn_command(folder, command)
}

/// Starts the server that `command` describes, and does not wait for it.
pub fn spawn_command(folder: &Folder, mut command: Command) -> Starting {
    let stderr =
        File::options().create(true).append(true).open(folder.path("stderr")).expect("a log is opened");
    command.stdout(Stdio::piped()).stderr(stderr);
    let mut child = command.spawn().expect("the program starts");
    let output = child.stdout.take().expect("standard output was piped");
    let (sender, lines) = channel();
    std::thread::Builder::new()
        .name("server output".into())
        .spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // Nobody listens any more when the server was dropped.
                let _ = sender.send(line);
            }
        })
        .expect("a thread starts");
    Starting { child, lines }
}

impl Starting {
    /// Waits until it listens; `Err` says how it ended instead.
    pub fn listening(mut self) -> Result<Server, ExitStatus> {
        let mut greeting = String::new();
        let address = loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    if let Some(text) = line.strip_prefix("listening on ") {
                        break text.parse().expect("the server tells a socket's address");
                    }
                    greeting = line;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.child.wait().expect("it can be waited for"));
                }
                Err(RecvTimeoutError::Timeout) => {
                    let _ = self.child.kill();
                    panic!("the server neither listened nor ended");
                }
            }
        };
        Ok(Server { child: self.child, lines: self.lines, greeting, address })
    }

    /// Kills it at some moment within `within`, or as soon as it listens. Returns whether it listened.
    pub fn kill_within(mut self, within: Duration) -> bool {
        let limit = tierstone_base::SystemClock::new();
        let start_us = tierstone_base::Clock::now(&limit).monotonic_us;
        let mut listened = false;
        loop {
            let passed_us = tierstone_base::Clock::now(&limit).monotonic_us - start_us;
            let rest = within.saturating_sub(Duration::from_micros(passed_us));
            match self.lines.recv_timeout(rest) {
                Ok(line) if line.starts_with("listening on ") => listened = true,
                Ok(_) => continue,
                Err(_) => {}
            }
            break;
        }
        let _ = self.child.kill();
        self.child.wait().expect("it can be waited for");
        listened
    }

    /// Waits for its end and gives the exit code; for servers that must refuse to start.
    pub fn refused(self) -> i32 {
        match self.listening() {
            Ok(mut server) => {
                server.kill();
                panic!("the server started: {}", server.greeting);
            }
            Err(status) => status.code().expect("it ended by itself"),
        }
    }
}

impl Server {
    /// Starts a server and waits until it listens.
    pub fn start(folder: &Folder, arguments: &[&str]) -> Server {
        match spawn(folder, arguments).listening() {
            Ok(server) => server,
            Err(status) => panic!("the server ended before it listened: {status}\n{}", folder.complaints()),
        }
    }

    /// A connection of a client.
    pub fn connect(&self) -> Connection {
        Connection::connect(self.address, PATIENCE).expect("the server takes a connection")
    }

    /// The number of its process.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    pub fn port(&self) -> String {
        self.address.port().to_string()
    }

    /// What sends a signal to the process, from any thread.
    pub fn signaller(&self, signal: Signal) -> impl Fn() + Send + Sync + 'static + use<> {
        let process = Pid::from_child(&self.child);
        move || {
            // It may have ended by itself; what follows will tell.
            let _ = kill_process(process, signal);
        }
    }

    pub fn signal(&self, signal: Signal) {
        self.signaller(signal)();
    }

    /// Ends it with SIGKILL and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        self.wait();
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("it can be waited for")
    }

    /// Ends it with SIGTERM; it must do so in good order.
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.wait();
        assert!(status.success(), "a stopped server ended with {status}");
        let last = self.lines.iter().last();
        assert_eq!(last.as_deref(), Some("stopped in good order"));
    }

    /// The next line of its output.
    pub fn next_line(&mut self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("another line")
    }

    /// The largest that the shards say of a number of INFO; connections come to shards by chance.
    pub fn info_of_any(&self, name: &str) -> u64 {
        (0..16).map(|_| self.info(name)).max().unwrap_or(0)
    }

    /// A section of INFO, of the shard that answers.
    pub fn info_text(&self, section: &str) -> String {
        let reply = self.connect().command(&[b"INFO", section.as_bytes()]).expect("INFO is answered");
        String::from_utf8_lossy(reply.bytes().expect("INFO gives text")).into_owned()
    }

    /// A number of INFO, of the shard that answers.
    pub fn info(&self, name: &str) -> u64 {
        let text = self.info_text("everything");
        let line =
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("no number {name} in INFO"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The seed of a run: `TIERSTONE_SEED` to repeat one, else a new one. It is printed, and shown on failure.
pub fn seed() -> u64 {
    let given = std::env::var("TIERSTONE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| SeededRandom::system_seed().expect("a seed"));
    println!("TIERSTONE_SEED={seed}");
    seed
}

/// Sends a command; the answer must be no error.
pub fn ask(connection: &mut Connection, arguments: &[&[u8]]) -> Value {
    let value = connection.command(arguments).expect("the server answers");
    assert!(!value.is_error(), "{} was refused: {:?}", String::from_utf8_lossy(arguments[0]), value.error());
    value
}

/// The drivers that this kernel allows; says so where it allows only one.
pub fn drivers() -> Vec<&'static str> {
    match tierstone_media::file::uring_refusal() {
        None => vec!["uring", "epoll"],
        Some(reason) => {
            println!("SKIP: tests of the io_uring driver (the kernel refuses it: {reason})");
            vec!["epoll"]
        }
    }
}
