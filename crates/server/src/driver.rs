//! One thread and its loop: wait, hear everybody, step once, send.
//!
//! A driver is built with what it listens on and its waker, and started with a closure that makes the
//! service on the new thread (so that neither service nor device need to be `Send`).

use crate::listen::Listener;
use crate::reactor::epoll::EpollReactor;
use crate::reactor::uring::UringReactor;
use crate::reactor::{Device, Reactor};
use crate::service::Service;
use crate::settings::{DriverKind, TransportSettings};
use crate::turn::Turn;
use crate::wake::Waker;
use rustls::ServerConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tierstone_base::{Clock, Error, ErrorKind, Result, SystemClock};

/// What a driver thread did in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverReport {
    /// Turns of the loop.
    pub turns: u64,
    /// Clients let in.
    pub connections_accepted: u64,
    /// Clients turned away: too many, stopping, or by the service.
    pub connections_refused: u64,
    /// Connections that ended, for whatever reason.
    pub connections_closed: u64,
    /// Connections that ended while replies were still to be sent.
    pub connections_unanswered: u64,
    /// Connections closed for silence.
    pub connections_idle_closed: u64,
    /// Connections closed because they held too much unsent output.
    pub connections_over_output_limit: u64,
    /// Connections closed because they sent too much that could not be consumed.
    pub connections_over_input_limit: u64,
    /// Connections closed since all of them took too much memory ([`crate::Service::evict`]).
    pub connections_evicted: u64,
    /// Sends made (each with all replies of a connection in a turn).
    pub sends: u64,
    /// Encrypted connections whose handshake failed or took too long, or whose peer broke the protocol.
    pub connections_tls_failed: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes handed to the kernel for sending.
    pub bytes_sent: u64,
    /// Whether the stop ran into its time limit.
    pub is_stop_timed_out: bool,
    /// Whether the service had something left to do when the stop ran into its time limit
    /// ([`Service::is_quiet`](crate::Service::is_quiet)).
    pub is_service_unfinished: bool,
    /// Connections that the stop ended before they were answered.
    pub connections_cut_off: u64,
}

/// What the start of a driver makes on its thread.
#[derive(Debug)]
pub struct Parts<S> {
    /// What answers.
    pub service: S,
    /// What its device requests go to.
    pub device: Device,
}

/// Builds one driver thread.
#[derive(Debug)]
pub struct DriverBuilder {
    name: String,
    settings: TransportSettings,
    listeners: Vec<Listener>,
    waker: Waker,
    cpu: Option<usize>,
    tls: Option<Arc<ServerConfig>>,
    end_teller: EndTeller,
    #[cfg(any(test, feature = "mutations"))]
    is_ungated: bool,
    #[cfg(test)]
    is_uring_refused: bool,
}

/// Tells, when it is dropped, that a thread has ended.
#[derive(Default)]
struct EndTeller(Option<Box<dyn FnOnce() + Send>>);

impl std::fmt::Debug for EndTeller {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(if self.0.is_some() { "EndTeller::Somebody" } else { "EndTeller::Nobody" })
    }
}

impl Drop for EndTeller {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            tell();
        }
    }
}

/// Stops a driver; clones stop the same one.
#[derive(Clone, Debug)]
pub struct StopHandle {
    is_stopping: Arc<AtomicBool>,
    waker: Waker,
}

impl StopHandle {
    /// Asks the driver to stop: it takes no client and no input any more, sends what is owed, and ends
    /// within `stop_timeout_ms`.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// A running driver thread. Dropping it does not stop the thread.
#[derive(Debug)]
pub struct DriverHandle {
    thread: JoinHandle<Result<DriverReport>>,
    stop: StopHandle,
    kind: DriverKind,
}

impl DriverHandle {
    /// What stops it.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// The mechanism in use; never [`DriverKind::Auto`].
    pub fn kind(&self) -> DriverKind {
        self.kind
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end of the thread.
    ///
    /// # Errors
    /// What ended it before it was asked to stop, or had failed in its service by then. A panic goes on in the caller.
    pub fn join(self) -> Result<DriverReport> {
        match self.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// As [`DriverHandle::join`], but a panic of the thread is an error too.
    ///
    /// # Errors
    /// As [`DriverHandle::join`]; `Retry` for a panic, with its message.
    pub fn outcome(self) -> Result<DriverReport> {
        self.thread.join().unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            Err(Error::new(ErrorKind::Retry, format!("it panicked: {}", text.unwrap_or("without a message"))))
        })
    }
}

impl DriverBuilder {
    /// A driver whose thread is called `name`, and which `waker` wakes.
    pub fn new(name: impl Into<String>, settings: TransportSettings, waker: Waker) -> Self {
        DriverBuilder {
            name: name.into(),
            settings,
            listeners: Vec::new(),
            waker,
            cpu: None,
            tls: None,
            end_teller: EndTeller::default(),
            #[cfg(any(test, feature = "mutations"))]
            is_ungated: false,
            #[cfg(test)]
            is_uring_refused: false,
        }
    }

    /// Listens on `listeners`, made by [`Listener::bind`].
    #[must_use]
    pub fn listeners(mut self, listeners: Vec<Listener>) -> Self {
        self.listeners = listeners;
        self
    }

    /// Pins the thread to a CPU: steadier latency where threads have CPUs of their own, worse where they
    /// share them.
    #[must_use]
    pub fn cpu(mut self, cpu: Option<usize>) -> Self {
        self.cpu = cpu;
        self
    }

    /// What encrypted connections are set up from, at the listeners that take them.
    #[must_use]
    pub fn tls(mut self, config: Option<Arc<ServerConfig>>) -> Self {
        self.tls = config;
        self
    }

    /// Calls `tell` when the thread has ended, for whatever reason (a panic too) and whoever waits for it, as the last that it
    /// does; also when it could not be started.
    #[must_use]
    pub fn on_end(mut self, tell: impl FnOnce() + Send + 'static) -> Self {
        self.end_teller = EndTeller(Some(Box::new(tell)));
        self
    }

    /// The mutation `UngatedReplies`: replies leave before what they tell is durable.
    #[cfg(any(test, feature = "mutations"))]
    #[must_use]
    pub fn ungated_replies(mut self) -> Self {
        self.is_ungated = true;
        self
    }

    /// Behaves as on a machine whose kernel forbids io_uring.
    #[cfg(test)]
    fn refuse_uring(mut self) -> Self {
        self.is_uring_refused = true;
        self
    }

    /// Starts the thread, which makes its parts with `start` and serves until it is stopped.
    ///
    /// # Errors
    /// What `start` said; `Unsupported` when the mechanism that the settings name is refused;
    /// `InvalidInput` for wrong settings.
    pub fn spawn<S, F>(mut self, start: F) -> Result<DriverHandle>
    where
        S: Service + 'static,
        F: FnOnce() -> Result<Parts<S>> + Send + 'static,
    {
        self.settings.check()?;
        let stop = StopHandle { is_stopping: Arc::new(AtomicBool::new(false)), waker: self.waker.clone() };
        let is_stopping = Arc::clone(&stop.is_stopping);
        let (started_sender, started) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name(self.name.clone()).spawn(move || {
            // The first to be made, and so the last to be dropped, when a panic unwinds too.
            let _end_teller = std::mem::take(&mut self.end_teller);
            self.run(start, &is_stopping, |kind| {
                // Nobody listens only if the spawner is gone; serve all the same.
                let _ = started_sender.send(kind);
            })
        })?;
        match started.recv() {
            Ok(kind) => Ok(DriverHandle { thread, stop, kind }),
            // The thread ended without having started: it says why.
            Err(_) => match thread.join() {
                Ok(Err(error)) => Err(error),
                Ok(Ok(_)) => unreachable!("a driver ended well before it started: {}", stop_text()),
                Err(panic) => std::panic::resume_unwind(panic),
            },
        }
    }

    fn run<S: Service>(
        self,
        start: impl FnOnce() -> Result<Parts<S>>,
        is_stopping: &AtomicBool,
        started: impl FnOnce(DriverKind),
    ) -> Result<DriverReport> {
        if let Some(cpu) = self.cpu {
            pin(cpu)?;
        }
        let Parts { service, device } = start()?;
        let clock = SystemClock::new();
        let mut turn = Turn::new(service, self.settings.clone(), clock.now());
        #[cfg(any(test, feature = "mutations"))]
        {
            turn.is_ungated = self.is_ungated;
        }
        turn.connections.tls = self.tls;
        let settings = &self.settings;
        let (listeners, device) = match settings.driver {
            DriverKind::Epoll => (self.listeners, device),
            DriverKind::Auto | DriverKind::Uring => {
                #[cfg(test)]
                let made = if self.is_uring_refused {
                    Err((Error::new(ErrorKind::Unsupported, "refused by a test"), self.listeners, device))
                } else {
                    UringReactor::new(settings, self.listeners, self.waker.clone(), device)
                };
                #[cfg(not(test))]
                let made = UringReactor::new(settings, self.listeners, self.waker.clone(), device);
                match made {
                    Ok(reactor) => {
                        started(DriverKind::Uring);
                        return serve(reactor, turn, &clock, &self.waker, is_stopping);
                    }
                    Err((error, ..)) if settings.driver == DriverKind::Uring => return Err(error),
                    Err((_, listeners, device)) => (listeners, device),
                }
            }
        };
        let reactor = EpollReactor::new(settings, listeners, self.waker.clone(), device)?;
        started(DriverKind::Epoll);
        serve(reactor, turn, &clock, &self.waker, is_stopping)
    }
}

fn stop_text() -> &'static str {
    "it reports its start before it serves"
}

fn pin(cpu: usize) -> Result<()> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let refuse = |why: String| Error::new(ErrorKind::InvalidInput, format!("cannot pin to CPU {cpu}: {why}"));
    if cpu >= CpuSet::MAX_CPU {
        return Err(refuse(format!("the kernel counts up to {}", CpuSet::MAX_CPU - 1)));
    }
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).map_err(|error| refuse(error.to_string()))
}

/// Whether one thread each can be pinned to the first `threads` processors: looked at before anything is made.
///
/// # Errors
/// `InvalidInput` naming the first that is not there, or not for this process.
pub fn check_pins(threads: usize) -> Result<()> {
    let before =
        rustix::thread::sched_getaffinity(None).map_err(|error| Error::from(std::io::Error::from(error)))?;
    let refused = (0..threads).find_map(|cpu| pin(cpu).err());
    rustix::thread::sched_setaffinity(None, &before)
        .map_err(|error| Error::from(std::io::Error::from(error)))?;
    refused.map_or(Ok(()), |error| {
        Err(error.context(&format!("pin: each of the {threads} shards has a processor of its own")))
    })
}

/// The loop of one thread.
fn serve<S: Service, R: Reactor>(
    mut reactor: R,
    mut turn: Turn<S>,
    clock: &impl Clock,
    waker: &Waker,
    is_stopping: &AtomicBool,
) -> Result<DriverReport> {
    let mut stop_at_us = None;
    loop {
        let timeout_us = time_to_wait(&turn, stop_at_us);
        let may_sleep = waker.prepare_sleep();
        let waited = reactor.wait(if may_sleep { timeout_us } else { Some(0) });
        waker.awake();
        turn.now = clock.now();
        if let Err(error) = waited {
            turn.abort_all(&mut reactor);
            return Err(error);
        }
        turn.connections.report.turns += 1;
        reactor.dispatch(&mut turn);
        if stop_at_us.is_none() && is_stopping.load(Ordering::Acquire) {
            stop_at_us = Some(turn.now.monotonic_us + turn.settings.stop_timeout_ms * 1000);
            reactor.stop_listening();
            turn.finish(&mut reactor);
            turn.stop();
        }
        turn.finish(&mut reactor);
        if let Some(stop_at_us) = stop_at_us {
            let is_done = turn.connections.is_empty() && turn.service.is_quiet();
            let is_late = turn.now.monotonic_us >= stop_at_us;
            if is_done || is_late {
                turn.connections.report.is_stop_timed_out = !is_done;
                turn.connections.report.is_service_unfinished = !turn.service.is_quiet();
                let unanswered_before = turn.connections.report.connections_unanswered;
                turn.abort_all(&mut reactor);
                turn.connections.report.connections_cut_off =
                    turn.connections.report.connections_unanswered - unanswered_before;
                return turn.service.failure().map_or(Ok(turn.connections.report), Err);
            }
        }
    }
}

/// How long the loop may wait, in microseconds.
fn time_to_wait<S: Service>(turn: &Turn<S>, stop_at_us: Option<u64>) -> Option<u64> {
    if turn.has_work() {
        return Some(0);
    }
    let next = match (turn.next_turn_at_us(), stop_at_us) {
        (Some(next), Some(stop)) => Some(next.min(stop)),
        (next, stop) => next.or(stop),
    };
    next.map(|at| at.saturating_sub(turn.now.monotonic_us))
}

#[cfg(test)]
#[path = "driver_test.rs"]
mod driver_test;
