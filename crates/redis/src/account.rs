//! How much memory the requests of a shard hold that have not come to their end: queued commands of
//! transactions, arguments of commands that wait.
//!
//! Invariants:
//! 1. What is held is counted from the moment at which it outlives its connection's input until it is
//!    dropped, wherever that is.
//! 2. Above the bound nothing large is added: the asker waits or is refused, others go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is added up to this many bytes at a time is not refused.
const SMALL_BYTES: usize = 16 << 10;

/// The account of one shard.
#[derive(Clone, Debug)]
pub struct Account {
    bytes: Arc<AtomicU64>,
    bytes_max: u64,
}

/// A part of an account, given back when it is dropped.
#[derive(Debug, Default)]
pub struct Held {
    account: Option<Arc<AtomicU64>>,
    bytes: u64,
}

impl Account {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Account { bytes: Arc::default(), bytes_max }
    }

    /// Bytes that are held.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Its bound.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Whether `bytes` more may be held by somebody who holds `held` already.
    pub(crate) fn has_room(&self, held: usize, bytes: usize) -> bool {
        held + bytes <= SMALL_BYTES || self.bytes() + bytes as u64 <= self.bytes_max
    }

    /// Whether requests that can wait should.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes() >= self.bytes_max
    }

    /// Counts `bytes`.
    pub(crate) fn hold(&self, bytes: usize) -> Held {
        let mut held = Held { account: Some(Arc::clone(&self.bytes)), bytes: 0 };
        held.grow(bytes);
        held
    }
}

impl Held {
    /// Bytes that it counts.
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Counts `bytes` from now on, not more than before.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.give_back(self.bytes().saturating_sub(bytes));
    }

    fn grow(&mut self, bytes: usize) {
        if let Some(account) = &self.account {
            account.fetch_add(bytes as u64, Ordering::Relaxed);
            self.bytes += bytes as u64;
        }
    }

    /// Counts `bytes` more, in `account` if it has none yet.
    pub(crate) fn add(&mut self, account: &Account, bytes: usize) {
        if self.account.is_none() {
            self.account = Some(Arc::clone(&account.bytes));
        }
        self.grow(bytes);
    }

    /// So many bytes of it are held no more.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        let bytes = self.bytes.min(bytes as u64);
        if let Some(account) = &self.account {
            account.fetch_sub(bytes, Ordering::Relaxed);
            self.bytes -= bytes;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}
