//! What several handles share, on whatever threads they are.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A value behind a lock; a clone is the same one.
#[derive(Debug, Default)]
pub(crate) struct Shared<T>(Arc<Mutex<T>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(Arc::clone(&self.0))
    }
}

impl<T> Shared<T> {
    pub(crate) fn new(value: T) -> Self {
        Shared(Arc::new(Mutex::new(value)))
    }

    /// The value, for as long as the guard lives. What a panic left is taken as it is: the exploration that caught
    /// it throws the run away.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, unless somebody holds it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}
