//! The thread that makes a loop of a [`Sampler`]: it steps, and sleeps until the next step or a message.

use crate::meter::MeterInfo;
use crate::sampler::{LaneReport, Sample, Sampler, Standing};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tierstone_base::{Clock, Error, ErrorKind, Result};

enum Message {
    /// From now on it is this state; answered when that holds.
    Enter(usize, Sender<()>),
    Finish,
}

/// What came of a recording.
#[derive(Clone, Debug)]
pub struct Recording {
    /// By meter.
    pub lanes: Vec<LaneReport>,
    /// When it began, in microseconds of the clock.
    pub start_us: u64,
    /// When it ended.
    pub end_us: u64,
    /// Every answer in order, if they were to be kept.
    pub samples: Vec<Sample>,
}

/// A thread that samples.
#[derive(Debug)]
pub struct Recorder {
    messages: Sender<Message>,
    thread: Option<JoinHandle<Recording>>,
    meters: Vec<MeterInfo>,
    standings: Arc<Mutex<Vec<Standing>>>,
}

impl Recorder {
    /// Starts the thread. With `keep_samples`, every answer is kept until the end (32 bytes each).
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start(sampler: Sampler, clock: Box<dyn Clock + Send>, keep_samples: bool) -> Result<Recorder> {
        let (messages, inbox) = channel();
        let meters: Vec<MeterInfo> = sampler.meters().cloned().collect();
        let standings = Arc::new(Mutex::new(vec![Standing::default(); meters.len()]));
        let told = Arc::clone(&standings);
        let thread = std::thread::Builder::new()
            .name("energy".into())
            .spawn(move || drive(sampler, clock.as_ref(), &inbox, &told, keep_samples))?;
        Ok(Recorder { messages, thread: Some(thread), meters, standings })
    }

    /// The meters, by lane.
    pub fn meters(&self) -> &[MeterInfo] {
        &self.meters
    }

    /// How each meter stands, by lane, as of the latest step. Cost: a lock that is held for a copy.
    pub fn standings(&self) -> Vec<Standing> {
        self.standings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on it is state `state`; returns when it is.
    pub fn enter(&self, state: usize) {
        let (answer, answered) = channel();
        if self.messages.send(Message::Enter(state, answer)).is_ok() {
            // A thread that has died is told of by `finish`.
            let _ = answered.recv();
        }
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// The thread died.
    pub fn finish(mut self) -> Result<Recording> {
        let _ = self.messages.send(Message::Finish);
        let thread = self.thread.take();
        let died = || Error::new(ErrorKind::Retry, "the thread that reads the meters died");
        thread.ok_or_else(died)?.join().map_err(|_| died())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.messages.send(Message::Finish);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn drive(
    mut sampler: Sampler,
    clock: &dyn Clock,
    inbox: &Receiver<Message>,
    told: &Mutex<Vec<Standing>>,
    keep_samples: bool,
) -> Recording {
    let mut samples = Vec::new();
    let mut keep = |sample: Sample| {
        if keep_samples {
            samples.push(sample);
        }
    };
    let start_us = sampler.start_us();
    let end_us = loop {
        let next_us = sampler.step(clock, &mut keep);
        *told.lock().unwrap_or_else(PoisonError::into_inner) = sampler.standings();
        let wait_us = next_us.saturating_sub(clock.now().monotonic_us);
        let message = match next_us {
            u64::MAX => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            _ => inbox.recv_timeout(Duration::from_micros(wait_us)),
        };
        match message {
            Ok(Message::Enter(state, answer)) => {
                sampler.enter(clock, state, &mut keep);
                // Who asked may have gone.
                let _ = answer.send(());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Message::Finish) | Err(RecvTimeoutError::Disconnected) => {
                break sampler.finish(clock, &mut keep);
            }
        }
    };
    *told.lock().unwrap_or_else(PoisonError::into_inner) = sampler.standings();
    Recording { lanes: sampler.reports(), start_us, end_us, samples }
}

#[cfg(test)]
#[path = "driver_test.rs"]
mod driver_test;
