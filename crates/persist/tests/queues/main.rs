//! The persistent queues under trace: what failures may leave of them, and what their order costs.

#![expect(clippy::unwrap_used, reason = "what fails in a test, and in its helpers, fails the test")]

mod order;
mod support;
mod swap_locks;
mod timing;
