//! Interruptions of long work that has something to put away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tierstone_base::{Error, ErrorKind, Result};

/// The exit code of a program that an interrupt ended, as a shell gives it.
const INTERRUPTED: i32 = 130;

/// Set by SIGINT and SIGTERM; the second of them ends the program at once.
#[derive(Clone, Debug)]
pub struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    /// From now on the first of these signals only sets it.
    pub fn watch() -> Result<Interrupted> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&stop))?;
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        Ok(Interrupted(stop))
    }

    /// Whether such a signal has come.
    pub fn has_come(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once it has.
    pub fn check(&self) -> Result<()> {
        if self.has_come() { Err(Error::new(ErrorKind::Retry, "interrupted")) } else { Ok(()) }
    }
}
