//! Connections that write records, each in a thread of its own.
//!
//! Invariants:
//! 1. Records of one key take one connection, in the order of the source.
//! 2. Keys and values that were read and not acknowledged take at most [`BYTES_MAX`], or one record.

use super::Errors;
use super::source::Place;
use crate::connect::ConnectArgs;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;
use tierstone_base::checksum::checksum;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_client::Connection;

const BYTES_MAX: usize = 64 << 20;
/// Records that wait for one connection.
const WAITING_MAX: usize = 1_024;
/// Records and bytes sent together.
const PIPELINE_MAX: usize = 128;
const PIPELINE_BYTES_MAX: usize = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(60);

/// One record to write.
#[derive(Debug)]
pub struct Item {
    /// Where it comes from.
    pub place: Place,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

impl Item {
    fn len(&self) -> usize {
        self.key.len() + self.value.len()
    }
}

/// What was acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loaded {
    pub records: u64,
    pub bytes: u64,
}

/// Bytes that are read and not acknowledged.
#[derive(Debug, Default)]
struct Budget {
    state: Mutex<BudgetState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct BudgetState {
    used: usize,
    /// A connection is lost: nothing more is taken.
    is_over: bool,
}

impl Budget {
    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room; false when nothing more is taken.
    fn take(&self, bytes: usize) -> bool {
        let mut state = self.lock();
        while !state.is_over && state.used > 0 && state.used + bytes > BYTES_MAX {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.used += bytes;
        !state.is_over
    }

    fn give_back(&self, bytes: usize) {
        let mut state = self.lock();
        state.used = state.used.saturating_sub(bytes);
        self.changed.notify_all();
    }

    fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }
}

/// The connections.
#[derive(Debug)]
pub struct Feed<'scope> {
    senders: Vec<SyncSender<Item>>,
    threads: Vec<ScopedJoinHandle<'scope, Result<Loaded>>>,
    budget: std::sync::Arc<Budget>,
}

/// A connection to one database of a server.
fn connect((address, connect, database): (&str, &ConnectArgs, u32)) -> Result<Connection> {
    let mut connection = connect.connect(address, TIMEOUT)?;
    if database > 0 {
        let answer = connection.command(&[b"SELECT", database.to_string().as_bytes()])?;
        if let Some(text) = answer.error() {
            let message = format!("--database {database}: the server refuses: {text}");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
    }
    Ok(connection)
}

impl<'scope> Feed<'scope> {
    /// Connects all before the first record is read.
    pub fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        server: (&str, &ConnectArgs, u32),
        connections: usize,
        errors: &'env Errors,
    ) -> Result<Self> {
        let connections = (0..connections).map(|_| connect(server)).collect::<Result<Vec<Connection>>>()?;
        let budget = std::sync::Arc::new(Budget::default());
        let mut feed = Feed { senders: Vec::new(), threads: Vec::new(), budget };
        for mut connection in connections {
            let (sender, receiver) = sync_channel(WAITING_MAX);
            let budget = std::sync::Arc::clone(&feed.budget);
            feed.senders.push(sender);
            feed.threads.push(scope.spawn(move || {
                let result = write_all(&mut connection, &receiver, &budget, errors);
                if result.is_err() {
                    budget.end();
                }
                result
            }));
        }
        Ok(feed)
    }

    /// Hands a record to its connection, waiting for room; false when a connection is lost.
    pub fn give(&mut self, item: Item) -> bool {
        let turn = checksum(0, &item.key) % self.senders.len() as u64;
        self.budget.take(item.len()) && self.senders[turn as usize].send(item).is_ok()
    }

    /// Waits until everything is acknowledged; the first error of a connection otherwise.
    pub fn finish(self) -> Result<Loaded> {
        drop(self.senders);
        let mut all = Ok(Loaded::default());
        for thread in self.threads {
            let result = match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            all = all.and_then(|all: Loaded| {
                result.map(|own| Loaded { records: all.records + own.records, bytes: all.bytes + own.bytes })
            });
        }
        all
    }
}

fn write_all(
    connection: &mut Connection,
    items: &Receiver<Item>,
    budget: &Budget,
    errors: &Errors,
) -> Result<Loaded> {
    let mut loaded = Loaded::default();
    let mut together: Vec<Item> = Vec::with_capacity(PIPELINE_MAX);
    while let Ok(first) = items.recv() {
        let mut bytes = first.len();
        together.push(first);
        while together.len() < PIPELINE_MAX && bytes < PIPELINE_BYTES_MAX {
            let Ok(next) = items.try_recv() else { break };
            bytes += next.len();
            together.push(next);
        }
        let mut pipeline = connection.pipeline();
        for item in &together {
            pipeline.command(&[b"SET", &item.key, &item.value]);
        }
        let replies = pipeline.execute()?;
        if replies.len() != together.len() {
            return Err(Error::new(ErrorKind::Incompatible, "the server did not answer every command"));
        }
        for (item, reply) in together.drain(..).zip(replies) {
            match reply.error() {
                Some(message) => errors.tell(&item.place, format!("the server refuses it: {message}")),
                None => {
                    loaded.records += 1;
                    loaded.bytes += item.len() as u64;
                }
            }
        }
        budget.give_back(bytes);
    }
    Ok(loaded)
}
