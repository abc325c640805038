//! Load for any Redis server over TCP: [`load`] inserts all records, [`run`] drives a mix, [`verify`]
//! reads all records and checks their content.
//!
//! Every thread has its share of the connections and waits for all of them at once (epoll). An
//! operation costs it a part of a wait, one read and one write at pipeline 1, and a part of each
//! behind it; replies are skimmed in place, commands and values are built in the send buffer.
//!
//! Operations on this protocol: `GET`; `SET` for overwrite and insert; a scan is one `MGET` of as many
//! successive record numbers, as strings have no ranges; read-modify-write is a `GET` and, after its
//! answer, a `SET` on the same connection; read-through the same, but that the `SET` comes only where nothing was found.
//!
//! Invariants:
//! 1. Replies are matched with operations by their order on a connection.
//! 2. A connection that fails is dropped and its operations count as unanswered; the others go on.
//! 3. What a connection buffers is bounded by `pipeline` commands and one reply (of at most the
//!    workload's own size when values are checked).

pub(crate) mod commands;
pub(crate) mod link;
mod worker;

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_client::{Connection, ConnectionSettings, Stream, Tls, TlsFiles, Value};

use crate::mix::OperationKind;
use crate::outcome::Outcome;
use crate::pacing::Pacing;
use crate::recorder;
use crate::run::{Progress, run_threads};
use crate::value::ValueMaker;
use crate::workload::{OperationSource, Workload};
use worker::Worker;

/// The most connections of a run.
const CONNECTION_COUNT_MAX: usize = 65_536;

/// Which server, and how to get in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Host and port. Default `127.0.0.1:6379`.
    pub address: String,
    /// The user of `AUTH`; without one the default user.
    pub username: Option<String>,
    /// The password of `AUTH`; without one nothing is sent. Results, which hold the plan, do not show it.
    #[serde(skip_serializing)]
    pub password: Option<String>,
    /// The numbered database, by `SELECT`. Default 0.
    pub database: u32,
    /// What encrypted connections are set up from; without it they are in the clear.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
}

impl Default for Server {
    fn default() -> Self {
        Server { address: "127.0.0.1:6379".into(), username: None, password: None, database: 0, tls: None }
    }
}

/// When a connection of a closed loop sends again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refill {
    /// When all of its pipeline is answered: whole pipelines, as `redis-benchmark` does.
    #[default]
    WhenEmpty,
    /// At every answer, so that always `pipeline` operations are under way.
    AtOnce,
}

/// A run against a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plan {
    /// Which server.
    pub server: Server,
    /// Connections, shared out among the threads; 1 to 65,536. Default 50.
    pub connections: usize,
    /// When a connection of a closed loop sends again.
    pub refill: Refill,
    /// What is asked.
    pub workload: Workload,
    /// How fast and how long.
    pub pacing: Pacing,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            server: Server::default(),
            connections: 50,
            refill: Refill::WhenEmpty,
            workload: Workload::default(),
            pacing: Pacing::default(),
        }
    }
}

impl Plan {
    /// Errors: `InvalidInput`, naming the setting that is out of its range.
    pub fn validate(&self) -> Result<()> {
        if !(1..=CONNECTION_COUNT_MAX).contains(&self.connections) {
            return Err(Error::new(ErrorKind::InvalidInput, "connections must be 1 to 65,536"));
        }
        self.workload.validate()?;
        self.pacing.validate()
    }
}

/// Drives the plan's mix. `progress` is called on this thread about ten times a second and ends the run
/// with `Break`.
///
/// Errors: `InvalidInput` for a plan out of range or a refused login, `Retry` when no connection can be
/// made. What fails later is in the outcome.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<Outcome> {
    plan.validate()?;
    let sources = OperationSource::mixed(&plan.workload, plan.pacing.seed, thread_count(plan) as u64)?;
    drive(plan, sources, None, progress)
}

/// Inserts every record of the workload once, version 0, as fast as the connections allow (mix,
/// distribution, rate, extent and warm-up of the plan are not used). Progress and errors as of [`run`].
pub fn load(plan: &Plan, progress: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<Outcome> {
    walk(plan, OperationKind::Insert, progress)
}

/// Reads every record of the workload once and checks its content; a record that is not there counts as
/// a miss. Otherwise as [`load`].
pub fn verify(plan: &Plan, progress: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<Outcome> {
    let mut plan = plan.clone();
    plan.workload.verify = true;
    walk(&plan, OperationKind::Get, progress)
}

fn walk(
    plan: &Plan,
    kind: OperationKind,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Outcome> {
    let mut plan = plan.clone();
    plan.pacing.rate = None;
    plan.pacing.warmup_seconds = 0.0;
    plan.validate()?;
    let records = plan.workload.records;
    let sources = OperationSource::walk(kind, records, thread_count(&plan) as u64);
    drive(&plan, sources, Some(records), progress)
}

/// A thread has one connection at least.
fn thread_count(plan: &Plan) -> usize {
    plan.pacing.threads.min(plan.connections)
}

fn drive(
    plan: &Plan,
    sources: Vec<OperationSource>,
    operations_total: Option<u64>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Outcome> {
    let threads = sources.len();
    let values = ValueMaker::new(plan.workload.value.clone(), plan.pacing.seed);
    let tls = plan.server.tls.as_ref().map(TlsFiles::load).transpose()?;
    let mut workers = Vec::with_capacity(threads);
    for (thread, source) in sources.into_iter().enumerate() {
        let count = plan.connections / threads + usize::from(thread < plan.connections % threads);
        let open = || connect(&plan.server, tls.as_ref(), &plan.pacing);
        let streams = (0..count).map(|_| open()).collect::<Result<Vec<_>>>()?;
        workers.push(Worker::new(plan, source, values.clone(), streams)?);
    }
    // The schedule of an open loop is divided among the threads that there are.
    let pacing = Pacing { threads, ..plan.pacing };
    let recorders = run_threads(&pacing, operations_total, workers, progress, |worker, context| {
        worker.run(&pacing, context)
    })?;
    Ok(recorder::combine(recorders, plan.pacing.rate))
}

/// A connection that is logged in, in its database, and without anything under way.
pub(crate) fn connect(server: &Server, tls: Option<&Tls>, pacing: &Pacing) -> Result<Stream> {
    let connection = login(server, tls, std::time::Duration::from_secs_f64(pacing.timeout_seconds))?;
    let stream = connection.into_stream()?;
    stream.socket().set_nonblocking(true).map_err(Error::from)?;
    Ok(stream)
}

/// The same, as a connection of the client.
pub(crate) fn login(server: &Server, tls: Option<&Tls>, timeout: std::time::Duration) -> Result<Connection> {
    let settings = ConnectionSettings::with_timeout(timeout);
    let mut connection = Connection::connect_over(&server.address, &settings, tls)?;
    if let Some(password) = &server.password {
        let reply = match &server.username {
            Some(username) => connection.command(&[b"AUTH", username.as_bytes(), password.as_bytes()])?,
            None => connection.command(&[b"AUTH", password.as_bytes()])?,
        };
        accepted("AUTH", &reply)?;
    }
    if server.database != 0 {
        let reply = connection.command(&[b"SELECT", server.database.to_string().as_bytes()])?;
        accepted("SELECT", &reply)?;
    }
    Ok(connection)
}

/// An error that says which command the server refuses, if it does.
pub(crate) fn accepted(command: &str, reply: &Value) -> Result<()> {
    match reply.error() {
        None => Ok(()),
        Some(text) => {
            Err(Error::new(ErrorKind::InvalidInput, format!("the server refuses {command}: {text}")))
        }
    }
}

#[cfg(test)]
#[path = "redis_load_test.rs"]
mod redis_load_test;
