//! How fast the persistent queues are on ordinary memory while every thread has a processor.
//!
//! Their locks hand over in the order of arrival: one thread that the scheduler has stopped stops all behind it. A rate
//! over any length of time is then the scheduler's, where threads outnumber processors or others use them, and yielding
//! while waiting does not help. So there are no more threads than processors, they insert in bursts shorter than the
//! scheduler's slices, and a burst counts when no thread was switched out in it.

use crate::queues::{Parts, insert_one, queue};
use crate::run::Run;
use std::sync::atomic::{AtomicUsize, Ordering};
use tierstone_base::{Clock, Error, ErrorKind, Result, SystemClock};
use tierstone_persist::memory::Direct;
use tierstone_persist::queue::Design;

/// Inserts of one burst, by all threads together: a tenth of a millisecond by one, about one by several.
const BURST: u64 = 1_000;
/// Bursts that are tried for each that shall count.
const TRIES: usize = 12;

/// Inserts a second of a queue, measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InstructionRate {
    /// The median of the bursts that count.
    pub per_second: f64,
    /// The lowest of them.
    pub lowest: f64,
    /// The highest.
    pub highest: f64,
    /// Threads that inserted: as many as asked for, at most as many as there are processors.
    pub threads: usize,
    /// Bursts that were run.
    pub bursts: usize,
    /// Those in which no thread was switched out. If there is none, all count.
    pub undisturbed: usize,
}

impl InstructionRate {
    /// How it was measured, for a reader: `2 threads, 40 bursts undisturbed`.
    pub fn how(&self) -> String {
        let threads =
            if self.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", self.threads) };
        match self.undisturbed {
            0 => format!("{threads}, {} bursts, all disturbed", self.bursts),
            undisturbed => format!("{threads}, {undisturbed} bursts undisturbed"),
        }
    }
}

/// Measures `wanted` undisturbed bursts of inserts into a queue of `design` by `threads` threads, or by as many as there
/// are processors.
///
/// # Errors
/// `Retry` when the run was stopped, or a thread broke off.
pub fn instruction_rate(
    run: &mut Run<'_>,
    design: Design,
    threads: usize,
    wanted: usize,
) -> Result<InstructionRate> {
    let threads = threads.min(std::thread::available_parallelism().map_or(1, usize::from));
    let each = BURST / threads as u64;
    let mut bursts = Vec::new();
    let undisturbed = |bursts: &[Burst]| bursts.iter().filter(|burst| !burst.is_disturbed).count();
    while undisturbed(&bursts) < wanted && bursts.len() < wanted * TRIES {
        bursts.push(burst(run.clock(), &queue(design, threads, each * threads as u64)?, threads, each)?);
        run.go_on(0.5 * undisturbed(&bursts) as f64 / wanted as f64)?;
    }
    Ok(rate(&bursts, threads))
}

/// One burst.
#[derive(Clone, Copy, Debug)]
struct Burst {
    per_second: f64,
    is_disturbed: bool,
}

fn rate(bursts: &[Burst], threads: usize) -> InstructionRate {
    let undisturbed = bursts.iter().filter(|burst| !burst.is_disturbed).count();
    let counting = bursts.iter().filter(|burst| undisturbed == 0 || !burst.is_disturbed);
    let mut rates: Vec<f64> = counting.map(|burst| burst.per_second).collect();
    rates.sort_by(f64::total_cmp);
    let at = |place: usize| rates.get(place).copied().unwrap_or(f64::NAN);
    InstructionRate {
        per_second: at(rates.len() / 2),
        lowest: at(0),
        highest: at(rates.len().saturating_sub(1)),
        threads,
        bursts: bursts.len(),
        undisturbed,
    }
}

/// What one thread saw of a burst.
struct Seen {
    began_us: u64,
    ended_us: u64,
    is_disturbed: bool,
}

fn burst(clock: SystemClock, parts: &Parts, threads: usize, each: u64) -> Result<Burst> {
    let (queue, region, words) = parts;
    let (here, ready) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let insert = |thread| -> Result<Seen> {
        let memory = Direct::new(region, words, thread);
        meet(&here, threads, std::thread::yield_now);
        let before = switches();
        // All have a processor when the last one comes: none may give it back now.
        meet(&ready, threads, std::hint::spin_loop);
        let began_us = clock.now().monotonic_us;
        (0..each).try_for_each(|_| insert_one(queue, &memory))?;
        let ended_us = clock.now().monotonic_us;
        let is_disturbed = before.is_none() || switches() != before;
        Ok(Seen { began_us, ended_us, is_disturbed })
    };
    let seen: Vec<Seen> = std::thread::scope(|scope| {
        let insert = &insert;
        let started: Vec<_> = (0..threads).map(|thread| scope.spawn(move || insert(thread))).collect();
        let broken = || Error::new(ErrorKind::Retry, "a thread of the measurement broke off; run again");
        started
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(broken())))
            .collect::<Result<_>>()
    })?;
    let began_us = seen.iter().map(|seen| seen.began_us).min().unwrap_or(0);
    let ended_us = seen.iter().map(|seen| seen.ended_us).max().unwrap_or(0);
    let took_us = ended_us.saturating_sub(began_us).max(1);
    Ok(Burst {
        per_second: (each * threads as u64) as f64 * 1e6 / took_us as f64,
        is_disturbed: seen.iter().any(|seen| seen.is_disturbed),
    })
}

/// Waits until `threads` threads have come.
fn meet(count: &AtomicUsize, threads: usize, relax: fn()) {
    count.fetch_add(1, Ordering::SeqCst);
    while count.load(Ordering::SeqCst) < threads {
        relax();
    }
}

/// How often the calling thread was switched out since it began; nothing where the kernel does not say.
fn switches() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let counts = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
    let counts: Vec<u64> = counts.filter_map(|(_, count)| count.trim().parse().ok()).collect();
    (counts.len() == 2).then(|| counts.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_undisturbed_bursts_count_while_there_are_any() {
        let burst = |per_second, is_disturbed| Burst { per_second, is_disturbed };
        let mixed =
            [burst(9.0, true), burst(2.0, false), burst(4.0, false), burst(3.0, false), burst(0.1, true)];
        let found = rate(&mixed, 2);
        assert_eq!((found.per_second, found.lowest, found.highest), (3.0, 2.0, 4.0));
        assert_eq!((found.bursts, found.undisturbed), (5, 3));
        assert_eq!(found.how(), "2 threads, 3 bursts undisturbed");
        let found = rate(&[burst(1.0, true), burst(5.0, true), burst(2.0, true)], 1);
        assert_eq!((found.per_second, found.lowest, found.highest, found.undisturbed), (2.0, 1.0, 5.0, 0));
        assert_eq!(found.how(), "1 thread, 3 bursts, all disturbed");
    }

    #[test]
    fn a_burst_inserts_all_that_it_counts() {
        for design in Design::ALL {
            let parts = queue(design, 2, 40).unwrap();
            assert!(burst(SystemClock::new(), &parts, 2, 20).unwrap().per_second > 0.0);
            let more = insert_one(&parts.0, &Direct::new(&parts.1, &parts.2, 0));
            assert_eq!(more.unwrap_err().kind(), ErrorKind::NoSpace, "{design:?}");
        }
    }

    #[test]
    fn linux_says_how_often_a_thread_was_switched_out() {
        assert_eq!(switches().is_some(), cfg!(target_os = "linux"));
    }
}
