//! Batches of messages from many threads to one driver thread.
//!
//! Invariants:
//! 1. Messages of one sender arrive in order, each once.
//! 2. A batch costs one lock and at most one wake-up; an empty mailbox costs the receiver one load.
//! 3. A bounded mailbox never holds more than its bound; what does not fit stays with the sender.

use crate::wake::Waker;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug)]
struct Shared<M> {
    messages: Mutex<Vec<M>>,
    /// Length of `messages`, written under its lock.
    len: AtomicUsize,
    limit: usize,
    waker: Waker,
}

/// The sending end; clones send to the same receiver.
#[derive(Debug)]
pub struct MailSender<M> {
    shared: Arc<Shared<M>>,
}

impl<M> Clone for MailSender<M> {
    fn clone(&self) -> Self {
        MailSender { shared: Arc::clone(&self.shared) }
    }
}

/// The receiving end: belongs to the service of the driver that the waker wakes, which empties it in
/// each step.
#[derive(Debug)]
pub struct MailReceiver<M> {
    shared: Arc<Shared<M>>,
}

/// A mailbox of at most `limit` messages (`usize::MAX` for no bound) that wakes `waker`'s driver.
pub fn mailbox<M>(waker: &Waker, limit: usize) -> (MailSender<M>, MailReceiver<M>) {
    let shared = Arc::new(Shared {
        messages: Mutex::new(Vec::new()),
        len: AtomicUsize::new(0),
        limit,
        waker: waker.clone(),
    });
    (MailSender { shared: Arc::clone(&shared) }, MailReceiver { shared })
}

impl<M> MailSender<M> {
    /// Sends as many of `batch` as fit, from its front, and returns how many; the others stay.
    pub fn send(&self, batch: &mut Vec<M>) -> usize {
        if batch.is_empty() {
            return 0;
        }
        let shared = &*self.shared;
        let sent = {
            let mut messages = shared.messages.lock().unwrap_or_else(PoisonError::into_inner);
            let sent = batch.len().min(shared.limit.saturating_sub(messages.len()));
            if sent == batch.len() {
                messages.append(batch);
            } else {
                messages.extend(batch.drain(..sent));
            }
            shared.len.store(messages.len(), Ordering::Release);
            sent
        };
        if sent > 0 {
            shared.waker.wake();
        }
        sent
    }
}

impl<M> MailReceiver<M> {
    /// Appends everything that has come to `messages`; returns how many.
    pub fn receive(&mut self, messages: &mut Vec<M>) -> usize {
        let shared = &*self.shared;
        if shared.len.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut waiting = shared.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let count = waiting.len();
        if messages.is_empty() {
            std::mem::swap(&mut *waiting, messages);
        } else {
            messages.append(&mut waiting);
        }
        shared.len.store(0, Ordering::Release);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_each_sender_arrive_in_order_and_once() {
        let waker = Waker::new().unwrap();
        let (sender, mut receiver) = mailbox::<(u32, u32)>(&waker, usize::MAX);
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                let sender = sender.clone();
                std::thread::Builder::new()
                    .spawn(move || {
                        for start in (0..900).step_by(3) {
                            sender.send(&mut (start..start + 3).map(|number| (thread, number)).collect());
                        }
                    })
                    .unwrap()
            })
            .collect();
        let mut next = [0; 3];
        let mut messages = Vec::new();
        while next != [900; 3] {
            receiver.receive(&mut messages);
            for (thread, number) in messages.drain(..) {
                assert_eq!(number, next[thread as usize]);
                next[thread as usize] += 1;
            }
            std::thread::yield_now();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn a_full_mailbox_leaves_the_rest_with_the_sender() {
        let waker = Waker::new().unwrap();
        let (sender, mut receiver) = mailbox::<u32>(&waker, 5);
        let mut batch: Vec<u32> = (0..8).collect();
        assert_eq!(sender.send(&mut batch), 5);
        assert_eq!(batch, [5, 6, 7]);
        assert_eq!(sender.send(&mut batch), 0);
        let mut got = Vec::new();
        assert_eq!(receiver.receive(&mut got), 5);
        assert_eq!(sender.send(&mut batch), 3);
        receiver.receive(&mut got);
        assert_eq!(got, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
