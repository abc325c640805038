//! The demo's load: several connections, each with a window of requests in flight.
//!
//! Each record is owned by one connection's thread, so that what was sent and acknowledged last is
//! known exactly.

use super::files::Collected;
use indicatif::ProgressBar;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tierstone_base::checksum::checksum;
use tierstone_base::histogram::LatencyHistogram;
use tierstone_base::{Clock, Error, ErrorKind, Result, SystemClock};
use tierstone_client::Connection;

/// Requests in flight on one connection.
const WINDOW: usize = 16;
/// Bytes of values in flight on one connection.
const WINDOW_BYTES: usize = 1 << 20;
/// The server is killed when this part of the overwrites has been acknowledged.
const KILL_AT: f64 = 0.5;
/// Values that overwrite have at most this many bytes.
const OVERWRITE_BYTES_MAX: usize = 16 << 10;
const TIMEOUT: Duration = Duration::from_secs(60);

/// One file and what is known about its record.
#[derive(Debug)]
struct Record {
    key: Vec<u8>,
    content: Vec<u8>,
    sum: u64,
    /// The newest version that was acknowledged: 0 is the file itself.
    acknowledged: AtomicU32,
    /// The newest version that was sent.
    sent: AtomicU32,
}

impl Record {
    /// Version 0 is the file; others say who they are and have the file's bytes behind.
    fn version(&self, version: u32) -> Vec<u8> {
        if version == 0 {
            return self.content.clone();
        }
        let mut value = format!("version {version} of {:016x}\n", self.sum).into_bytes();
        value.extend_from_slice(&self.content[..self.content.len().min(OVERWRITE_BYTES_MAX)]);
        value
    }
}

/// All records.
#[derive(Debug)]
pub struct Records {
    all: Vec<Record>,
}

/// What the load does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// SET of every file.
    Import,
    /// GET of every file, compared with it.
    ReadBack,
    /// SET of new versions of every fifth file, again and again, until the server dies.
    Overwrite,
    /// GET of everything after the kill.
    Verify,
}

/// What a phase did.
#[derive(Debug, Default)]
pub struct Done {
    /// Requests answered.
    pub operations: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Latencies.
    pub latencies: LatencyHistogram,
    /// Answers that no history explains.
    pub wrong: u64,
    /// Records older than what was acknowledged.
    pub lost: u64,
    /// Requests without an answer when the server died.
    pub in_flight: u64,
}

impl Records {
    /// The records of the collected files.
    pub fn new(collected: &Collected) -> Self {
        let all = collected
            .files
            .iter()
            .map(|(key, content)| Record {
                key: key.clone(),
                content: content.clone(),
                sum: checksum(0, content),
                acknowledged: AtomicU32::new(0),
                sent: AtomicU32::new(0),
            })
            .collect();
        Records { all }
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.all.len() as u64
    }

    /// How many overwrites are acknowledged before the server is killed.
    pub fn overwrite_target(&self) -> u64 {
        ((self.len() as f64 * KILL_AT) as u64).max(1)
    }
}

/// Runs a phase over `connections` connections; any lost connection is an error.
pub fn run(
    records: &Records,
    address: SocketAddr,
    connections: usize,
    phase: Phase,
    bar: &ProgressBar,
) -> Result<Done> {
    let never = AtomicBool::new(false);
    all_connections(records, address, connections, phase, bar, &never, &|_| {})
}

/// Overwrites until half of the target is acknowledged, then kills the server in mid-write.
pub fn run_and_kill(
    records: &Records,
    address: SocketAddr,
    connections: usize,
    bar: &ProgressBar,
    kill: impl Fn() + Send + Sync,
) -> Result<Done> {
    let target = records.overwrite_target();
    let acknowledged = AtomicU64::new(0);
    let killed = AtomicBool::new(false);
    let count = |more: u64| {
        if acknowledged.fetch_add(more, Ordering::AcqRel) + more >= target
            && !killed.swap(true, Ordering::AcqRel)
        {
            kill();
        }
    };
    let done = all_connections(records, address, connections, Phase::Overwrite, bar, &killed, &count)?;
    // With few records every overwrite may be acknowledged before the count is reached.
    if !killed.swap(true, Ordering::AcqRel) {
        kill();
    }
    Ok(done)
}

fn all_connections(
    records: &Records,
    address: SocketAddr,
    connections: usize,
    phase: Phase,
    bar: &ProgressBar,
    may_die: &AtomicBool,
    count: &(impl Fn(u64) + Sync),
) -> Result<Done> {
    let clock = SystemClock::new();
    let started = clock.now().monotonic_us;
    let results: Vec<Result<Done>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections)
            .map(|number| {
                scope.spawn(move || {
                    let own: Vec<&Record> = records.all.iter().skip(number).step_by(connections).collect();
                    one_connection(&own, address, phase, bar, may_die, count)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    });
    let mut all = Done::default();
    for result in results {
        let done = result?;
        all.operations += done.operations;
        all.bytes += done.bytes;
        all.wrong += done.wrong;
        all.lost += done.lost;
        all.in_flight += done.in_flight;
        all.latencies.merge(&done.latencies);
    }
    all.seconds = (clock.now().monotonic_us - started) as f64 / 1e6;
    Ok(all)
}

/// A request that has no answer yet.
struct Sent<'a> {
    record: &'a Record,
    version: u32,
    bytes: usize,
    at_us: u64,
}

fn one_connection(
    own: &[&Record],
    address: SocketAddr,
    phase: Phase,
    bar: &ProgressBar,
    may_die: &AtomicBool,
    count: &impl Fn(u64),
) -> Result<Done> {
    let clock = SystemClock::new();
    let mut connection = Connection::connect(address, TIMEOUT)?;
    let mut done = Done::default();
    let mut flying: VecDeque<Sent<'_>> = VecDeque::new();
    let mut flying_bytes = 0;
    let mut work = plan(own, phase);
    loop {
        let next = if flying.len() < WINDOW && flying_bytes < WINDOW_BYTES { work.next() } else { None };
        let result = match next {
            Some((record, version)) => {
                let value = if phase.writes() { record.version(version) } else { Vec::new() };
                record.sent.fetch_max(version, Ordering::AcqRel);
                flying_bytes += value.len();
                let at_us = clock.now().monotonic_us;
                flying.push_back(Sent { record, version, bytes: value.len(), at_us });
                if phase.writes() {
                    connection.send_only(&[b"SET", &record.key, &value])
                } else {
                    connection.send_only(&[b"GET", &record.key])
                }
            }
            None => {
                if flying.is_empty() {
                    return Ok(done);
                }
                connection.receive_one().and_then(|reply| {
                    let Some(sent) = flying.pop_front() else { return Ok(()) };
                    done.latencies.record_us(clock.now().monotonic_us - sent.at_us);
                    flying_bytes -= sent.bytes;
                    answered(phase, &sent, &reply, &mut done)?;
                    bar.inc(1);
                    if phase == Phase::Overwrite {
                        count(1);
                    }
                    Ok(())
                })
            }
        };
        match result {
            Ok(()) => {}
            Err(_) if may_die.load(Ordering::Acquire) => {
                done.in_flight = flying.len() as u64;
                return Ok(done);
            }
            Err(error) => return Err(error),
        }
    }
}

impl Phase {
    fn writes(self) -> bool {
        matches!(self, Phase::Import | Phase::Overwrite)
    }
}

/// What one connection sends, in order.
fn plan<'a>(own: &'a [&'a Record], phase: Phase) -> Box<dyn Iterator<Item = (&'a Record, u32)> + 'a> {
    match phase {
        Phase::Overwrite => {
            // Every fifth record, again and again, until the server is killed.
            let part: Vec<&Record> = own.iter().copied().step_by(5).collect();
            Box::new(
                (1u32..1_000_000)
                    .flat_map(move |version| part.clone().into_iter().map(move |record| (record, version))),
            )
        }
        _ => Box::new(own.iter().map(|record| (*record, 0))),
    }
}

fn answered(phase: Phase, sent: &Sent<'_>, reply: &tierstone_client::Value, done: &mut Done) -> Result<()> {
    if let Some(error) = reply.error() {
        return Err(Error::new(ErrorKind::Retry, format!("the server refused a request: {error}")));
    }
    done.operations += 1;
    if phase.writes() {
        done.bytes += sent.bytes as u64;
        sent.record.acknowledged.fetch_max(sent.version, Ordering::AcqRel);
        return Ok(());
    }
    let acknowledged = sent.record.acknowledged.load(Ordering::Acquire);
    let newest = sent.record.sent.load(Ordering::Acquire);
    let value = reply.bytes();
    done.bytes += value.map_or(0, <[u8]>::len) as u64;
    let is_version = |version: u32| value.is_some_and(|value| value == sent.record.version(version));
    if (acknowledged..=newest).any(is_version) {
        return Ok(());
    }
    if value.is_none() || (0..acknowledged).any(is_version) {
        done.lost += 1;
    } else {
        done.wrong += 1;
    }
    Ok(())
}
