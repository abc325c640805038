//! One counter, incremented by many threads: by a mutex, and by messages to the thread that owns it.

use super::persistency::value;
use crate::experiment::{Experiment, Kind, Rule};
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;
use tierstone_base::{Error, ErrorKind, Result};

const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
/// Messages that the owner's queue holds: who finds it full waits.
const QUEUE: usize = 1024;
/// Increments between two looks at the flag that ends a measurement.
const STRIDE: u64 = 64;
/// How often the run is told how far it is.
const TOLD_EVERY: Duration = Duration::from_millis(50);

const FEW: &str = "2 threads: increments a second by messages, of those by a mutex";
const DROP: &str = "messages: increments a second of 16 threads, of the highest";
const FLAT: &str = "mutex: increments a second of 16 threads, of 2";
const CPU_MUTEX: &str = "mutex: processors in use by 16 threads, of 1";
const CPU_MESSAGES: &str = "messages: processors in use by 16 threads, of 2";

/// Figure 5.1 of the dissertation.
pub const EXPERIMENT: Experiment = Experiment {
    name: "mutex-messages",
    title: "A mutex against messages to an owner",
    source: "Lersch 2020 (TU Dresden), Figure 5.1, section 5.3.2",
    measures: "1 to 16 threads increment one counter for a stated time: each takes a mutex for every increment, or one thread \
               owns the counter and the others send it a message for each (a bounded queue; nobody waits for an answer; \
               alone, the owner sends to itself). Counted are increments done, and processor time of all threads by the \
               kernel's clock. The counter must be what was counted. Published is a drawing for a machine with a \
               processor for each thread, described in two sentences; where threads outnumber processors, more of them \
               show the scheduler and how waiting is done, not coherence.",
    kind: Kind::Measured,
    published: &[
        value(
            FEW,
            1.0,
            "ratio",
            "section 5.3.2: message passing is higher for a small number of cores",
            "published is only that it is above 1",
            Rule::AtLeast(1.0),
        ),
        value(
            DROP,
            1.0,
            "ratio",
            "section 5.3.2: its throughput drops significantly with more cores",
            "published is only that it is below 1",
            Rule::AtMost(0.8),
        ),
        value(
            FLAT,
            1.0,
            "ratio",
            "section 5.3.2: shared memory remains constant",
            "whether more waiting threads change nothing",
            Rule::Between(0.5, 2.0),
        ),
        value(
            CPU_MUTEX,
            1.0,
            "ratio",
            "section 5.3.2: shared memory consumes an increasing amount of cycles",
            "published is only that it is above 1; bounded by the processors that there are",
            Rule::AtLeast(1.5),
        ),
        value(
            CPU_MESSAGES,
            1.0,
            "ratio",
            "section 5.3.2: message passing maintains a constant consumption",
            "whether more senders take no more processors",
            Rule::Between(0.67, 1.5),
        ),
    ],
    series: &[],
    space_bytes: |_| 0,
    run,
};

/// What one number of threads did in one way.
#[derive(Clone, Copy, Debug)]
struct Point {
    threads: usize,
    per_second: f64,
    /// Processor time a second.
    processors: f64,
    /// Processor time an increment.
    cpu_ns: f64,
}

fn run(run: &mut Run<'_>) -> Result<()> {
    run.expect_steps(2 * THREADS.len() as u32 + 1);
    let seconds = run.pick(0.02, 0.5, 3.0);
    run.set("seconds of a point", seconds);
    run.set("messages in the queue at most", QUEUE);
    run.set("processors", std::thread::available_parallelism().map_or(1, usize::from));
    let (mut mutex, mut messages) = (Vec::new(), Vec::new());
    for threads in THREADS {
        run.step(format!("mutex, {threads} threads"))?;
        mutex.push(by_mutex(run, threads, seconds)?);
        run.step(format!("messages, {threads} threads"))?;
        messages.push(by_messages(run, threads, seconds)?);
    }
    run.step("comparing")?;
    let of = |points: &[Point], threads: usize, what: fn(&Point) -> f64| {
        points.iter().find(|point| point.threads == threads).map_or(f64::NAN, what)
    };
    let rate: fn(&Point) -> f64 = |point| point.per_second;
    let used: fn(&Point) -> f64 = |point| point.processors;
    run.compare(FEW, of(&messages, 2, rate) / of(&mutex, 2, rate), "")?;
    let highest = messages.iter().map(rate).fold(0.0, f64::max);
    run.compare(DROP, of(&messages, 16, rate) / highest, "")?;
    run.compare(FLAT, of(&mutex, 16, rate) / of(&mutex, 2, rate), "")?;
    run.compare(CPU_MUTEX, of(&mutex, 16, used) / of(&mutex, 1, used), "")?;
    run.compare(CPU_MESSAGES, of(&messages, 16, used) / of(&messages, 2, used), "")?;
    report(run, &mutex, &messages);
    Ok(())
}

/// A counter that is not what was counted makes the measurement worthless.
fn agree(counter: u64, counted: u64) -> Result<()> {
    if counter == counted {
        return Ok(());
    }
    let message = format!("the counter is {counter}, {counted} increments were counted; run again");
    Err(Error::new(ErrorKind::Corrupt, message))
}

fn by_mutex(run: &mut Run<'_>, threads: usize, seconds: f64) -> Result<Point> {
    let counter = Mutex::new(0u64);
    let parts = vec![(); threads];
    let (point, counted) = measure(run, seconds, parts, |(), stop| {
        let mut done = 0;
        // At least once: a thread may get its first turn when the time is over.
        loop {
            for _ in 0..STRIDE {
                *counter.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            }
            done += STRIDE;
            if stop.load(Ordering::Relaxed) {
                return done;
            }
        }
    })?;
    agree(counter.into_inner().unwrap_or_else(PoisonError::into_inner), counted)?;
    Ok(point)
}

/// What a thread is where messages are sent.
enum Role {
    Alone(SyncSender<u64>, Receiver<u64>),
    Owner(Receiver<u64>),
    Sender(SyncSender<u64>),
}

fn by_messages(run: &mut Run<'_>, threads: usize, seconds: f64) -> Result<Point> {
    let (sender, receiver) = sync_channel(QUEUE);
    let parts = match threads {
        1 => vec![Role::Alone(sender, receiver)],
        _ => {
            // The owner ends when the last sender is gone: none may be left here.
            let mut parts = vec![Role::Owner(receiver)];
            parts.extend((2..threads).map(|_| Role::Sender(sender.clone())));
            parts.push(Role::Sender(sender));
            parts
        }
    };
    let sent = std::sync::atomic::AtomicU64::new(0);
    let (point, counter) = measure(run, seconds, parts, |role, stop| {
        let send_all = |sender: &SyncSender<u64>, then: &mut dyn FnMut()| {
            let mut done = 0;
            loop {
                // Nobody receives any more only where the owner broke off.
                for _ in 0..STRIDE {
                    done += u64::from(sender.send(1).is_ok());
                    then();
                }
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            sent.fetch_add(done, Ordering::Relaxed);
        };
        let mut counter = 0;
        match role {
            Role::Alone(sender, receiver) => {
                send_all(&sender, &mut || counter += receiver.try_recv().unwrap_or(0));
            }
            Role::Owner(receiver) => receiver.into_iter().for_each(|by| counter += by),
            Role::Sender(sender) => send_all(&sender, &mut || ()),
        }
        counter
    })?;
    agree(counter, sent.into_inner())?;
    Ok(point)
}

/// Runs `work` on a thread for each of `parts` until `seconds` have passed; what it returns are increments.
fn measure<T: Send>(
    run: &mut Run<'_>,
    seconds: f64,
    parts: Vec<T>,
    work: impl Fn(T, &AtomicBool) -> u64 + Sync,
) -> Result<(Point, u64)> {
    let threads = parts.len();
    let (stop, start) = (AtomicBool::new(false), Barrier::new(threads + 1));
    let (done, is_done) = channel();
    let broken = || Error::new(ErrorKind::Retry, "a thread of the measurement broke off; run again");
    std::thread::scope(|scope| {
        let (stop, start, work) = (&stop, &start, &work);
        let mut started = Vec::new();
        for part in parts {
            let done = done.clone();
            started.push(scope.spawn(move || {
                start.wait();
                let before = cpu_seconds();
                let increments = work(part, stop);
                let used = cpu_seconds() - before;
                drop(done);
                (increments, used)
            }));
        }
        drop(done);
        start.wait();
        let begun_us = run.now_us();
        let mut told = Ok(());
        // Nothing is ever sent: the channel ends when the last thread has.
        while let Err(RecvTimeoutError::Timeout) = wait(&is_done, seconds) {
            let passed = (run.now_us() - begun_us) as f64 / 1e6;
            told = told.and(run.go_on(passed / seconds));
            if told.is_err() || passed >= seconds {
                stop.store(true, Ordering::Relaxed);
            }
        }
        let took = (run.now_us() - begun_us) as f64 / 1e6;
        let (mut increments, mut used) = (0, 0.0);
        for thread in started {
            let (own, cpu) = thread.join().map_err(|_| broken())?;
            increments += own;
            used += cpu;
        }
        told?;
        let point = Point {
            threads,
            per_second: increments as f64 / took,
            processors: used / took,
            cpu_ns: used * 1e9 / increments.max(1) as f64,
        };
        Ok((point, increments))
    })
}

fn wait(is_done: &Receiver<()>, seconds: f64) -> std::result::Result<(), RecvTimeoutError> {
    is_done.recv_timeout(TOLD_EVERY.min(Duration::from_secs_f64(seconds)))
}

/// Processor time of the calling thread.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn report(run: &mut Run<'_>, mutex: &[Point], messages: &[Point]) {
    let ways = [("mutex", mutex), ("messages", messages)];
    let mut table = Table::new(
        "counter",
        "One counter (measured)",
        &["by", "threads", "M increments/s", "processors in use", "processor time an increment, ns"],
    );
    for (way, points) in ways {
        for point in points {
            table.push([
                way.into(),
                (point.threads as u64).into(),
                (point.per_second / 1e6).into(),
                point.processors.into(),
                point.cpu_ns.into(),
            ]);
        }
    }
    run.table(table);
    let mut plot = |name: &str, title: &str, y: &str, of: fn(&Point) -> f64| {
        let line = |(way, points): (&str, &[Point])| {
            Series::new(way, points.iter().map(|point| (point.threads as f64, of(point))))
        };
        run.plot(Plot {
            name: name.to_owned(),
            title: title.to_owned(),
            x: Axis::linear("threads"),
            y: Axis::linear(y),
            series: ways.into_iter().map(line).collect(),
        });
    };
    plot("throughput", "One counter: increments by threads", "M increments/s", |point| {
        point.per_second / 1e6
    });
    plot("processors", "One counter: processors in use by threads", "processors", |point| point.processors);
    plot("cpu-time", "One counter: processor time an increment", "ns", |point| point.cpu_ns);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_lost_an_increment_is_refused() {
        assert!(agree(3, 3).is_ok());
        assert_eq!(agree(2, 3).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
