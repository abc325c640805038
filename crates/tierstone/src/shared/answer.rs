//! What a shard will answer: to be waited for by a thread, or awaited by a task of any executor.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use tierstone_base::{Error, ErrorKind, Result};

/// The sending end of an answer.
pub(super) type Reply<T> = oneshot::Sender<Result<T>>;

/// The answer to a request that is on its way already. A dropped answer does not take the request
/// back. Cost: one allocation.
#[derive(Debug)]
#[must_use = "the request may fail, and it is not done before its answer is there"]
pub struct Answer<T> {
    state: State<T>,
}

#[derive(Debug)]
enum State<T> {
    /// Not asked for yet.
    Sent(oneshot::Receiver<Result<T>>),
    /// Polled as a future.
    Awaited(oneshot::AsyncReceiver<Result<T>>),
    /// It is there, or the request never went out.
    Known(Result<T>),
    Given,
}

impl<T> Answer<T> {
    /// An answer to come, and where to give it.
    pub(super) fn new() -> (Reply<T>, Answer<T>) {
        let (reply, receiver) = oneshot::channel();
        (reply, Answer { state: State::Sent(receiver) })
    }

    /// An answer that is an error already.
    pub(super) fn refused(error: Error) -> Self {
        Answer { state: State::Known(Err(error)) }
    }

    /// Whether the answer is there, or will never be.
    pub(super) fn is_there(&self) -> bool {
        match &self.state {
            State::Sent(receiver) => receiver.has_message() || receiver.is_closed(),
            State::Awaited(_) => false,
            State::Known(_) | State::Given => true,
        }
    }

    /// Blocks this thread until the answer is there.
    ///
    /// # Errors
    /// Those of the request; `Busy` when the store was closed before it answered.
    pub fn wait(self) -> Result<T> {
        match self.state {
            State::Sent(receiver) => receiver.recv().unwrap_or_else(|_| Err(closed())),
            State::Awaited(receiver) => block_on(receiver).unwrap_or_else(|_| Err(closed())),
            State::Known(answer) => answer,
            State::Given => Err(given()),
        }
    }

    /// Waits until the answer is there; each time that this thread is woken, it does first what `work` finds to do,
    /// until there is nothing.
    pub(super) fn wait_beside(mut self, mut work: impl FnMut() -> bool) -> Self {
        if self.is_there() {
            return self;
        }
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(answer) = Pin::new(&mut self).poll(&mut context) {
                return Answer { state: State::Known(answer) };
            }
            if !work() {
                std::thread::park();
            }
        }
    }
}

/// Ends the parking of a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks for what a future gives.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

// The answer lies in it as a plain value, which nothing points to.
impl<T> Unpin for Answer<T> {}

impl<T> Future for Answer<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        loop {
            match std::mem::replace(&mut self.state, State::Given) {
                State::Sent(receiver) => self.state = State::Awaited(receiver.into_future()),
                State::Awaited(mut receiver) => {
                    return match Pin::new(&mut receiver).poll(context) {
                        Poll::Ready(answer) => Poll::Ready(answer.unwrap_or_else(|_| Err(closed()))),
                        Poll::Pending => {
                            self.state = State::Awaited(receiver);
                            Poll::Pending
                        }
                    };
                }
                State::Known(answer) => return Poll::Ready(answer),
                State::Given => return Poll::Ready(Err(given())),
            }
        }
    }
}

/// What a request gets whose shard is gone.
pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Busy, "the store was closed, or the thread of its shard has ended; open it again")
}

fn given() -> Error {
    Error::new(ErrorKind::InvalidInput, "the answer was taken before")
}
