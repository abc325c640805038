//! Interruptions of long work that has something to put away: it looks whether one has come ([`Interrupted`]), or leaves word
//! of what is to be done then ([`tidy_by`]).

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
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
        for signal in [SIGINT, SIGTERM] {
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

/// The exit code of work that was put away: as of whatever else could not be done.
const PUT_AWAY: i32 = 1;
/// A folder that threads still write into is removed so many times, with such pauses.
const REMOVALS: usize = 20;
const REMOVAL_PAUSE: Duration = Duration::from_millis(5);

type Tidying = Box<dyn Fn() + Send>;

/// What is to be put away.
struct Tidyings {
    next: u64,
    by_number: BTreeMap<u64, Tidying>,
    is_watched: bool,
}

static TIDYINGS: Mutex<Tidyings> =
    Mutex::new(Tidyings { next: 0, by_number: BTreeMap::new(), is_watched: false });

fn tidyings() -> MutexGuard<'static, Tidyings> {
    TIDYINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something that is put away when a signal ends the program, until this is dropped.
#[derive(Debug)]
#[must_use = "nothing is put away once this is dropped"]
pub struct Tidied(u64);

impl Drop for Tidied {
    fn drop(&mut self) {
        tidyings().by_number.remove(&self.0);
    }
}

/// Has `tidying` called when SIGINT, SIGTERM or SIGHUP ends the program; those that came later first.
///
/// # Errors
/// The system refuses to have signals watched.
pub fn tidy_by(tidying: impl Fn() + Send + 'static) -> Result<Tidied> {
    let mut tidyings = tidyings();
    if !tidyings.is_watched {
        watch_for_tidying()?;
        tidyings.is_watched = true;
    }
    let number = tidyings.next;
    tidyings.next += 1;
    tidyings.by_number.insert(number, Box::new(tidying));
    Ok(Tidied(number))
}

/// The folder that this program makes at `path` goes with it.
///
/// # Errors
/// As [`tidy_by`].
pub fn tidy_folder(path: PathBuf) -> Result<Tidied> {
    // It may not be there yet; and nobody is left to be told.
    tidy_by(move || repeat(|| drop(std::fs::remove_dir_all(&path))))
}

/// Removes something again and again: others of this program may be making it meanwhile.
pub fn repeat(remove: impl Fn()) {
    for _ in 0..REMOVALS {
        remove();
        std::thread::park_timeout(REMOVAL_PAUSE);
    }
}

fn watch_for_tidying() -> Result<()> {
    // Who is to be left alone, by nohup for example, is.
    let signals = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&signal| !is_ignored(signal));
    let mut signals = signal_hook::iterator::Signals::new(signals)?;
    let wait = move || {
        if signals.forever().next().is_some() {
            let all = std::mem::take(&mut tidyings().by_number);
            all.into_values().rev().for_each(|tidying| tidying());
            tell!("tierstone: interrupted");
            std::process::exit(PUT_AWAY);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}

/// Whether the program was started so that `signal` does nothing.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 != 0
}
