//! A server of one's own, for `demo` and `bench`: this program again, as a process that can be killed.

use crate::interrupt::{Tidied, tidy_by};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tierstone_base::{Clock, Error, ErrorKind, Result, SystemClock};
use tierstone_client::Connection;

const TIMEOUT: Duration = Duration::from_secs(60);
/// Shards tell their numbers four times a second; longer than this nobody waits for them.
const METRICS_PATIENCE_US: u64 = 2_000_000;
/// In this time each shard has told its numbers once at least.
const METRICS_SETTLE_US: u64 = 600_000;

/// A server process.
#[derive(Debug)]
pub struct ServerProcess {
    child: Option<Child>,
    address: SocketAddr,
    http: SocketAddr,
    greeting: String,
    /// It does not outlive this program.
    _tidied: Tidied,
}

impl ServerProcess {
    /// Starts a server on a free port and waits until it says where it listens.
    pub fn start(
        directory: &Path,
        memory: &str,
        shards: Option<u16>,
        durability: Option<&str>,
        index: Option<&str>,
    ) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("server").arg("--data").arg(directory);
        command.args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--memory", memory]);
        if let Some(shards) = shards {
            command.args(["--shards", &shards.to_string()]);
        }
        if let Some(durability) = durability {
            command.args(["--durability", durability]);
        }
        if let Some(index) = index {
            command.args(["--index", index]);
        }
        // Settings of the caller's environment are for the caller's servers.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TIERSTONE_")) {
            command.env_remove(name);
        }
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let tidied = tidy_by(killer(child.id()))?;
        let Some(output) = child.stdout.take() else { unreachable!("standard output was piped just above") };
        let mut lines = BufReader::new(output).lines();
        let mut greeting = None;
        let mut address = None;
        for line in lines.by_ref() {
            let line = line?;
            let told = |text: &str| {
                text.parse()
                    .map_err(|_| Error::new(ErrorKind::Incompatible, format!("the server said '{line}'")))
            };
            if let Some(text) = line.strip_prefix("listening on ") {
                address = Some(told(text)?);
            } else if let Some(text) = line.strip_prefix("metrics on http://") {
                let http = told(text.trim_end_matches("/metrics"))?;
                let (Some(address), Some(greeting)) = (address, greeting) else { break };
                // What it says later must not fill the pipe.
                std::thread::Builder::new()
                    .name("server output".into())
                    .spawn(move || lines.for_each(drop))?;
                let child = Some(child);
                return Ok(ServerProcess { child, address, http, greeting, _tidied: tidied });
            } else {
                greeting = Some(line);
            }
        }
        let status = child.wait()?;
        // It has said why, and ends with the code of its reason.
        let kind = match status.code() {
            Some(2) => ErrorKind::InvalidInput,
            Some(3) => ErrorKind::Corrupt,
            Some(4) => ErrorKind::NoSpace,
            _ => ErrorKind::Retry,
        };
        Err(Error::new(kind, format!("it ended before it listened: {status}")))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it said about its store.
    pub fn greeting(&self) -> &str {
        &self.greeting
    }

    /// The number of its process.
    pub fn process_id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Processor time that it has used, user and system together, in microseconds; `None` where the
    /// system does not tell.
    pub fn cpu_us(&self) -> Option<u64> {
        cpu_us_of(&self.process_id().to_string())
    }

    /// Kills the process with SIGKILL when called.
    pub fn killer(&self) -> impl Fn() + Send + Sync + 'static {
        killer(self.process_id())
    }

    /// Waits until the killed process is gone.
    pub fn wait_for_death(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.wait()?;
        }
        Ok(())
    }

    /// Ends the server in good order.
    pub fn stop(&mut self) -> Result<()> {
        let mut connection = Connection::connect(self.address, TIMEOUT)?;
        // The answer to SHUTDOWN is the end of the connection.
        let _ = connection.command(&[b"SHUTDOWN"]);
        self.wait_for_death()
    }

    /// Lets the server live on when this program ends.
    pub fn leave(mut self) {
        self.child = None;
    }

    /// The metrics, added up over the shards, once they count at least `commands` requests.
    pub fn metrics(&self, commands: u64) -> Result<BTreeMap<String, u64>> {
        let clock = SystemClock::new();
        loop {
            let numbers = self.metrics_now()?;
            let seen = numbers.get("tierstone_commands_total").copied().unwrap_or(0);
            if seen >= commands || clock.now().monotonic_us > METRICS_PATIENCE_US {
                return Ok(numbers);
            }
        }
    }

    /// The metrics when every shard has told its numbers again, for differences between two looks.
    pub fn metrics_settled(&self) -> Result<BTreeMap<String, u64>> {
        let clock = SystemClock::new();
        while clock.now().monotonic_us < METRICS_SETTLE_US {
            // Waking early only means another look at the clock.
            std::thread::park_timeout(Duration::from_millis(50));
        }
        self.metrics_now()
    }

    fn metrics_now(&self) -> Result<BTreeMap<String, u64>> {
        let mut socket = TcpStream::connect_timeout(&self.http, TIMEOUT)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        socket.read_to_string(&mut text)?;
        let mut numbers = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("tierstone_")) {
            let Some((name, value)) = line.split_once(' ') else { continue };
            let name = name.split('{').next().unwrap_or(name);
            if let Ok(value) = value.trim().parse::<u64>() {
                *numbers.entry(name.to_owned()).or_insert(0) += value;
            }
        }
        Ok(numbers)
    }
}

/// Kills a process when called.
fn killer(process: u32) -> impl Fn() + Send + Sync + 'static {
    move || {
        if let Some(process) = rustix::process::Pid::from_raw(process as i32) {
            // It may have died by itself; the verification will tell.
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
    }
}

/// Processor time of a process, by its number or `self`, user and system together, in microseconds; `None` where the
/// system does not tell.
pub fn cpu_us_of(process: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat_ticks(&text).map(|ticks| ticks * 1_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

/// User and system time in a line of `/proc/PID/stat`. The second field is a name in brackets, in which
/// anything may stand.
fn stat_ticks(text: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    Some(user + fields.next()?.parse::<u64>().ok()?)
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Its user failed half-way: the server must not outlive it.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_any_name() {
        let line = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 31 11 0 0 20 0";
        assert_eq!(stat_ticks(line), Some(42));
        assert_eq!(stat_ticks("7 (short) S 1"), None);
    }
}
