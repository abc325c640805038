//! The loop of one thread: make operations, send, wait, take replies.

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use tierstone_base::{Error, Result};
use tierstone_wire::resp::Skimmed;

use super::commands::{CommandWriter, bodies};
use super::link::{Broken, Link};
use super::{Plan, Refill};
use crate::mix::OperationKind;
use crate::pacing::{Pacing, Schedule};
use crate::recorder::Recorder;
use crate::run::{Context, wake_exactly};
use crate::value::check_value;
use crate::workload::{Operation, OperationSource};

/// The longest wait: how soon a stop or a timeout is seen.
const WAIT_MAX_US: u64 = 100_000;
const EVENT_COUNT_MAX: usize = 256;

/// An operation under way.
#[derive(Clone, Copy, Debug)]
struct Pending {
    operation: Operation,
    /// Its intended time, or when it was made in a closed loop.
    began_us: u64,
    /// Whether this is the write of a read-modify-write.
    is_second_half: bool,
}

/// One thread's connections and operations.
#[derive(Debug)]
pub(super) struct Worker {
    epoll: OwnedFd,
    links: Vec<Link<Pending>>,
    source: OperationSource,
    commands: CommandWriter,
    recorder: Recorder,
    verify: bool,
    refill: Refill,
    pipeline: usize,
    timeout_us: u64,
    /// Operations that may still be made: those that count.
    left: Option<u64>,
    /// No more operations are made.
    is_draining: bool,
    outstanding: usize,
    alive: usize,
    /// Where an open loop looks for a free place first.
    turn: usize,
}

impl Worker {
    pub(super) fn new(
        plan: &Plan,
        source: OperationSource,
        values: crate::value::ValueMaker,
        streams: Vec<tierstone_client::Stream>,
    ) -> Result<Worker> {
        let failed = |error: rustix::io::Errno| {
            Error::from(std::io::Error::from(error)).context("watch the connections")
        };
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        for (index, stream) in streams.iter().enumerate() {
            epoll::add(&epoll, stream.socket(), EventData::new_u64(index as u64), EventFlags::IN)
                .map_err(failed)?;
        }
        let pipeline = plan.pacing.pipeline;
        let links: Vec<Link<Pending>> =
            streams.into_iter().map(|stream| Link::new(stream, pipeline, plan.workload.verify)).collect();
        Ok(Worker {
            epoll,
            alive: links.len(),
            links,
            source,
            commands: CommandWriter { key: plan.workload.key.clone(), values },
            recorder: Recorder::new(0),
            verify: plan.workload.verify,
            refill: plan.refill,
            pipeline,
            timeout_us: (plan.pacing.timeout_seconds * 1e6) as u64,
            left: None,
            is_draining: false,
            outstanding: 0,
            turn: 0,
        })
    }

    /// Runs to the end of the context's extent and of all replies.
    pub(super) fn run(mut self, pacing: &Pacing, context: &mut Context<'_>) -> Recorder {
        self.recorder = Recorder::new(context.measured_from_us);
        self.left = context.operations;
        let mut schedule = pacing.schedule(context.thread, context.start_us);
        if schedule.is_some() {
            wake_exactly();
        } else {
            (0..self.links.len()).for_each(|index| self.refill(index, context));
        }
        let mut events = Vec::with_capacity(EVENT_COUNT_MAX);
        loop {
            let now_us = context.now_us();
            context.tick(now_us, &mut self.recorder);
            if context.is_stopped() {
                self.is_draining = true;
            }
            let mut next_us = now_us + WAIT_MAX_US;
            if let Some(schedule) = &mut schedule
                && let Some(due_us) = self.send_due(schedule, now_us, context)
            {
                next_us = next_us.min(due_us);
            }
            if self.is_over(now_us) {
                break;
            }
            let is_exact = schedule.is_some();
            if let Err(error) = self.wait(&mut events, next_us.saturating_sub(now_us), is_exact) {
                self.recorder.ends_early(format!("wait for replies: {error}"));
                break;
            }
            for event in events.drain(..) {
                let index = event.data.u64() as usize;
                self.serve(index, event.flags, context);
                if schedule.is_none() {
                    self.refill(index, context);
                }
            }
        }
        if self.outstanding > 0 {
            self.recorder.heard(context.now_us(), false);
            self.recorder.unanswered += self.outstanding as u64;
        }
        context.finish(&mut self.recorder);
        self.recorder
    }

    /// Whether nothing more is to come, or to be hoped for.
    fn is_over(&mut self, now_us: u64) -> bool {
        if self.alive == 0 {
            self.recorder.ends_early("all connections are lost".into());
            return true;
        }
        let silent_us = self.recorder.silent_since_us().map_or(0, |since| now_us.saturating_sub(since));
        if self.outstanding > 0 && silent_us > self.timeout_us {
            self.recorder.ends_early(format!("no reply for {:.1} s", silent_us as f64 / 1e6));
            return true;
        }
        self.is_draining && self.outstanding == 0
    }

    /// Waits for events, `wait_us` at most.
    fn wait(&self, events: &mut Vec<Event>, wait_us: u64, is_exact: bool) -> rustix::io::Result<()> {
        let time =
            Timespec { tv_sec: (wait_us / 1_000_000) as i64, tv_nsec: (wait_us % 1_000_000 * 1000) as i64 };
        let mut epoll_time = time;
        if is_exact {
            // The wait of epoll counts in whole milliseconds; that of poll does not.
            let mut fds = [PollFd::new(&self.epoll, PollFlags::IN)];
            match poll(&mut fds, Some(&time)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(()),
                Ok(_) => epoll_time = Timespec { tv_sec: 0, tv_nsec: 0 },
                Err(error) => return Err(error),
            }
        }
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&epoll_time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Takes what a connection has to give and sends what it could not before.
    fn serve(&mut self, index: usize, flags: EventFlags, context: &Context<'_>) {
        if !self.links[index].is_alive {
            return;
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            loop {
                let result = self.links[index].fill();
                let taken = result.and_then(|(count, is_more)| {
                    self.recorder.bytes_received += count as u64;
                    self.take_replies(index, context.now_us()).map(|()| is_more)
                });
                match taken {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(broken) => return self.drop_link(index, broken),
                }
            }
        }
        if self.links[index].has_output() {
            self.flush(index);
        }
    }

    fn take_replies(&mut self, index: usize, now_us: u64) -> std::result::Result<(), Broken> {
        let link = &mut self.links[index];
        let mut answered = 0;
        while let Some((kind, place)) = link.next_reply()? {
            if kind == Skimmed::Push {
                continue;
            }
            answered += 1;
            let Some(pending) = link.pending.pop_front() else {
                return Err(Broken("the server sent a reply to nothing".into()));
            };
            let operation = pending.operation;
            match kind {
                Skimmed::Error => self.recorder.failed(pending.began_us, link.reply(place)),
                Skimmed::Null => self.recorder.missed(pending.began_us),
                _ if self.verify && is_read(&pending) => {
                    look_into(&pending, link.reply(place), &mut self.recorder);
                }
                _ => {}
            }
            let writes_now = match operation.kind {
                OperationKind::ReadModifyWrite => kind != Skimmed::Error,
                OperationKind::ReadThrough => kind == Skimmed::Null,
                _ => false,
            };
            if writes_now && !pending.is_second_half {
                self.commands.set(operation.id, operation.version, &mut link.output);
                link.pending.push_back(Pending { is_second_half: true, ..pending });
                continue;
            }
            if operation.kind == OperationKind::Insert {
                self.source.insert_answered(operation.id);
            }
            self.outstanding -= 1;
            self.recorder.answered(operation.kind, pending.began_us, now_us);
        }
        if answered > 0 {
            self.recorder.heard(now_us, self.outstanding > 0);
        }
        Ok(())
    }

    /// Closed loop: makes as many operations as the connection has free places.
    fn refill(&mut self, index: usize, context: &Context<'_>) {
        let pending = self.links[index].pending.len();
        let is_due = match self.refill {
            Refill::WhenEmpty => pending == 0,
            Refill::AtOnce => pending < self.pipeline,
        };
        if !is_due || self.is_draining || !self.links[index].is_alive {
            return;
        }
        let now_us = context.now_us();
        if context.end_us.is_some_and(|end_us| now_us >= end_us) {
            self.is_draining = true;
            return;
        }
        for _ in pending..self.pipeline {
            if !self.make(index, now_us) {
                break;
            }
        }
        if self.links[index].has_output() {
            self.recorder.awaits(now_us);
            self.flush(index);
        }
    }

    /// Open loop: sends what is due, as far as there are free places; when the next is due, if waiting
    /// for that time is of use.
    fn send_due(&mut self, schedule: &mut Schedule, now_us: u64, context: &Context<'_>) -> Option<u64> {
        let mut due_us = None;
        let mut is_any = false;
        while !self.is_draining {
            let intended_us = schedule.intended_us();
            if context.end_us.is_some_and(|end_us| intended_us >= end_us) {
                self.is_draining = true;
                break;
            }
            if intended_us > now_us {
                due_us = Some(intended_us);
                break;
            }
            let Some(index) = self.free_link() else { break };
            if !self.make(index, intended_us) {
                break;
            }
            self.recorder.sent_late(intended_us, now_us);
            schedule.advance();
            is_any = true;
        }
        if is_any {
            self.recorder.awaits(now_us);
            for index in 0..self.links.len() {
                if self.links[index].is_alive
                    && self.links[index].has_output()
                    && !self.links[index].is_watching_writes
                {
                    self.flush(index);
                }
            }
        }
        due_us
    }

    /// A connection with a free place, in turn.
    fn free_link(&mut self) -> Option<usize> {
        let count = self.links.len();
        let index = (0..count).map(|step| (self.turn + step) % count).find(|index| {
            let link = &self.links[*index];
            link.is_alive && link.pending.len() < self.pipeline
        })?;
        self.turn = (index + 1) % count;
        Some(index)
    }

    /// Makes one operation for a connection; false when there is none left.
    #[inline]
    fn make(&mut self, index: usize, began_us: u64) -> bool {
        if self.left == Some(0) {
            self.is_draining = true;
            return false;
        }
        let Some(operation) = self.source.next_operation() else {
            self.is_draining = true;
            return false;
        };
        if let Some(left) = &mut self.left
            && self.recorder.is_measured(began_us)
        {
            *left -= 1;
        }
        let link = &mut self.links[index];
        match operation.kind {
            OperationKind::Get | OperationKind::ReadModifyWrite | OperationKind::ReadThrough => {
                self.commands.get(operation.id, &mut link.output);
            }
            OperationKind::Set | OperationKind::Insert => {
                self.commands.set(operation.id, operation.version, &mut link.output);
            }
            OperationKind::Scan => self.commands.scan(operation.id, operation.scan_len, &mut link.output),
        }
        link.pending.push_back(Pending { operation, began_us, is_second_half: false });
        self.outstanding += 1;
        true
    }

    fn flush(&mut self, index: usize) {
        let link = &mut self.links[index];
        match link.flush() {
            Ok(count) => self.recorder.bytes_sent += count as u64,
            Err(broken) => return self.drop_link(index, broken),
        }
        let wants = link.has_output();
        if wants != link.is_watching_writes {
            link.is_watching_writes = wants;
            let flags = if wants { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            if let Err(error) =
                epoll::modify(&self.epoll, link.stream.socket(), EventData::new_u64(index as u64), flags)
            {
                self.drop_link(index, Broken(format!("watch a connection: {error}")));
            }
        }
    }

    #[cold]
    fn drop_link(&mut self, index: usize, broken: Broken) {
        let link = &mut self.links[index];
        // A failure here means that the socket is watched no more, which is the aim.
        let _ = epoll::delete(&self.epoll, link.stream.socket());
        link.is_alive = false;
        self.alive -= 1;
        self.outstanding -= link.pending.len();
        self.recorder.unanswered += link.pending.len() as u64;
        for pending in link.pending.drain(..) {
            if pending.operation.kind == OperationKind::Insert {
                self.source.insert_answered(pending.operation.id);
            }
        }
        if self.outstanding == 0 {
            self.recorder.heard(0, false);
        }
        self.recorder.ends_early(format!("a connection was lost: {}", broken.0));
    }
}

fn is_read(pending: &Pending) -> bool {
    match pending.operation.kind {
        OperationKind::Get | OperationKind::Scan => true,
        OperationKind::ReadModifyWrite | OperationKind::ReadThrough => !pending.is_second_half,
        OperationKind::Set | OperationKind::Insert => false,
    }
}

/// Checks the values of a reply to a read.
fn look_into(pending: &Pending, reply: &[u8], recorder: &mut Recorder) {
    let expected = u64::from(pending.operation.scan_len.max(1));
    let mut found = 0;
    for body in bodies(reply) {
        match body {
            None => recorder.missed(pending.began_us),
            Some(value) => {
                if check_value(pending.operation.id + found, value).is_err() {
                    recorder.verification_failures += 1;
                }
            }
        }
        found += 1;
    }
    if found != expected {
        recorder.verification_failures += 1;
    }
}
