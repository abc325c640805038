//! A small pool of threads that do a device's requests.
//!
//! Invariants:
//! 1. A request is moved to one thread, done there from beginning to end, and moved back.
//! 2. The pool grows with the requests in flight up to its limit (64 threads at most) and ends with the device,
//!    after the last request is done.

use super::completions::Completions;
use super::housekeeper::no_thread;
use crate::{IoCompletion, IoRequest, Wait};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::thread::JoinHandle;
use tierstone_base::{Error, ErrorKind, Result};

const MOST_THREADS: usize = 64;

/// What a thread of a pool does.
pub(super) trait Worker: Clone + Send + 'static {
    /// Does `request` from beginning to end.
    fn perform(&self, request: IoRequest) -> IoCompletion;
}

/// The threads, their queue, and what they owe.
pub(super) struct Pool<W> {
    work: Option<Sender<IoRequest>>,
    queue: Receiver<IoRequest>,
    threads: Vec<JoinHandle<()>>,
    most_threads: usize,
    pub completions: Completions,
    pub worker: W,
}

impl<W> std::fmt::Debug for Pool<W> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let in_flight = self.completions.in_flight();
        write!(formatter, "{in_flight} in flight, {} threads", self.threads.len())
    }
}

impl<W: Worker> Pool<W> {
    /// A pool of up to `most_threads` threads (64 at most).
    ///
    /// # Errors
    /// `Retry` when the system gives no thread.
    pub fn new(worker: W, most_threads: usize) -> Result<Self> {
        let (work, queue) = unbounded();
        let mut pool = Pool {
            work: Some(work),
            queue,
            threads: Vec::new(),
            most_threads: most_threads.clamp(1, MOST_THREADS),
            completions: Completions::default(),
            worker,
        };
        // The first thread now, so that a refusal shows early; later refusals leave fewer threads.
        pool.grow().map_err(|error| Error::new(ErrorKind::Retry, no_thread(&error).detail))?;
        Ok(pool)
    }

    /// Hands a request on that is owed already.
    pub fn hand_on(&self, request: IoRequest) {
        if let Some(work) = &self.work
            && let Err(refused) = work.send(request)
        {
            unreachable!("the queue lives as long as the device: {refused}");
        }
    }

    /// As many threads as there are requests in flight, up to the limit.
    pub fn keep_up(&mut self) {
        while self.threads.len() < self.completions.in_flight().min(self.most_threads) {
            if self.grow().is_err() {
                // The threads that are there do all the work.
                self.most_threads = self.threads.len();
            }
        }
    }

    fn grow(&mut self) -> std::io::Result<()> {
        let (queue, finished, worker) =
            (self.queue.clone(), self.completions.finished().clone(), self.worker.clone());
        let builder = std::thread::Builder::new().name("tierstone-io".to_string());
        let thread = builder.spawn(move || {
            while let Ok(request) = queue.recv() {
                finished.put(worker.perform(request));
            }
        })?;
        self.threads.push(thread);
        Ok(())
    }
}

impl<W> Drop for Pool<W> {
    fn drop(&mut self) {
        // Wait for all: the housekeeper's answers too, so that what is below can be opened again.
        if self.completions.in_flight() > 0 {
            self.completions.complete(Wait::All, &mut Vec::new());
        }
        self.work = None;
        for thread in self.threads.drain(..) {
            // A panic of the thread has been printed already; here there is nobody to tell.
            let _ = thread.join();
        }
    }
}
