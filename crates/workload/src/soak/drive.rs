//! The loop of a soak: make operations, send, wait, judge replies.

use std::collections::VecDeque;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tierstone_base::{Clock, Error, ErrorKind, Result};
use tierstone_wire::resp::Skimmed;

use super::object::{Expected, Kind, LeaseTimes, Objects, is_missing, kind};
use super::seconds::{Second, Seconds, Whole};
use super::{End, Pace, SILENCE_MAX_US, Soak};
use crate::pacing::{Pacing, Schedule};
use crate::redis_load::link::{Broken, Link};
use crate::run::wake_exactly;
use tierstone_client::Stream;

/// Of operations chosen by chance, so many in a hundred are reads.
const READS: u64 = 45;
/// Of reads, so many in a hundred are of objects of other connections.
const FOREIGN: u64 = 40;
/// So many operations in a hundred go to the first fifth of the objects.
const HOT: u64 = 80;
/// So many deleted objects of a connection wait to be put again.
const DELETED: usize = 64;
/// At the pace of the walk a page is asked for so long after the last one came.
const PAGE_PAUSE_US: u64 = 20_000;

/// An operation under way.
#[derive(Clone, Copy, Debug)]
struct Pending {
    number: u64,
    /// Of a write, its own; of a read, the oldest that it may show.
    version: u32,
    is_write: bool,
    /// Whether a read must show `version` itself, as its connection is the writer's.
    is_own: bool,
    replies: u8,
    began_us: u64,
    asked_us: u64,
}

/// One run.
pub(super) struct Drive<'a> {
    soak: &'a mut Soak,
    links: Vec<Link<Pending>>,
    /// What a link fills or verifies next.
    next: Vec<u64>,
    /// What a link has deleted: it is put again soon, so that the store stays as full as it is.
    deleted: Vec<VecDeque<u64>>,
    walker: Link<u64>,
    page_at_us: u64,
    end: End,
    is_verifying: bool,
    seconds: Seconds,
    start_us: u64,
    outstanding: usize,
    unanswered: u64,
    is_draining: bool,
    turn: usize,
    /// Objects that a verification has found there.
    pub(super) present: u64,
}

impl<'a> Drive<'a> {
    /// The last of `sockets` is for the walk.
    pub(super) fn new(
        soak: &'a mut Soak,
        mut sockets: Vec<Stream>,
        end: End,
        is_verifying: bool,
    ) -> Result<Drive<'a>> {
        let Some(walker) = sockets.pop() else {
            return Err(Error::new(ErrorKind::InvalidInput, "soak: no connection"));
        };
        let pipeline = soak.settings.pipeline;
        let start_us = soak.clock.now().monotonic_us;
        let seconds = if let End::After(seconds) = end { Some(seconds) } else { None };
        Ok(Drive {
            next: (0..sockets.len() as u64).collect(),
            deleted: sockets.iter().map(|_| VecDeque::new()).collect(),
            links: sockets.into_iter().map(|socket| Link::new(socket, pipeline, true)).collect(),
            walker: Link::new(walker, 1, true),
            page_at_us: start_us,
            end,
            is_verifying,
            seconds: Seconds::new(start_us, seconds),
            start_us,
            outstanding: 0,
            unanswered: 0,
            is_draining: false,
            turn: 0,
            present: 0,
            soak,
        })
    }

    /// Every object once, as fast as it goes.
    pub(super) fn run_all(&mut self) -> Result<Whole> {
        self.drive(Pace::Closed(usize::MAX), &mut |_| {})
    }

    pub(super) fn run(mut self, pace: Pace, each: &mut dyn FnMut(&Second)) -> Result<Whole> {
        self.drive(pace, each)
    }

    fn drive(&mut self, pace: Pace, each: &mut dyn FnMut(&Second)) -> Result<Whole> {
        let (rate, depth) = match pace {
            Pace::Open(rate) => (Some(rate), 0),
            Pace::Closed(depth) => (None, depth.clamp(1, self.soak.settings.pipeline)),
        };
        let pacing = Pacing { rate, seed: self.soak.random.next_u64(), ..Pacing::default() };
        let mut schedule = pacing.schedule(0, self.start_us);
        wake_exactly();
        loop {
            let now_us = self.now_us();
            self.tick(now_us, each);
            match &mut schedule {
                Some(schedule) => self.send_due(schedule, now_us)?,
                None => (0..self.links.len()).try_for_each(|index| self.refill(index, depth, now_us))?,
            }
            self.ask_page(now_us)?;
            if self.is_over(now_us)? {
                break;
            }
            let wake_us = schedule.as_ref().map_or(u64::MAX, |schedule| schedule.intended_us());
            self.wait(wake_us.min(self.seconds.next_us()).min(now_us + 10_000).saturating_sub(now_us))?;
        }
        let mut whole = self.seconds.whole();
        whole.walks = self.soak.walk.walks;
        whole.unanswered = self.unanswered;
        Ok(whole)
    }

    fn now_us(&self) -> u64 {
        self.soak.clock.now().monotonic_us
    }

    fn tick(&mut self, now_us: u64, each: &mut dyn FnMut(&Second)) {
        let Some(mut second) = self.seconds.ended(now_us) else { return };
        second.under_way = self.outstanding as u64;
        second.pages = self.soak.walk.pages;
        second.walks = self.soak.walk.walks;
        second.faults = self.soak.findings.faults;
        each(&second);
    }

    /// Whether the run is over; draining begins at its end.
    fn is_over(&mut self, now_us: u64) -> Result<bool> {
        let passed_s = (now_us - self.start_us) as f64 / 1e6;
        let alive = self.links.iter().filter(|link| link.is_alive).count();
        match self.end {
            End::After(seconds) => self.is_draining |= passed_s >= seconds,
            End::Killed(_) if alive == 0 => return Ok(true),
            End::Killed(seconds) if passed_s > seconds => {
                return Err(Error::new(ErrorKind::Retry, "soak: the server was to be killed, and lives"));
            }
            End::Killed(_) => {}
            End::Filled => {
                self.is_draining |= self.next.iter().all(|next| *next >= self.soak.settings.objects);
            }
        }
        let silent_us = self.seconds.silent_us(now_us);
        if silent_us > SILENCE_MAX_US {
            let message = format!("soak: no reply for {:.1} s", silent_us as f64 / 1e6);
            return Err(Error::new(ErrorKind::Retry, message));
        }
        Ok(self.is_draining && self.outstanding == 0)
    }

    /// Waits for replies, and for room where something is left to send.
    fn wait(&mut self, wait_us: u64) -> Result<()> {
        let time =
            Timespec { tv_sec: (wait_us / 1_000_000) as i64, tv_nsec: (wait_us % 1_000_000 * 1_000) as i64 };
        let flags = |has_output| if has_output { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let alive = |index: &usize| self.links[*index].is_alive;
        let order: Vec<usize> = (0..self.links.len()).filter(alive).collect();
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(order.len() + 1);
        fds.extend(order.iter().map(|&index| {
            let link = &self.links[index];
            PollFd::new(link.stream.socket(), flags(link.has_output()))
        }));
        if self.walker.is_alive {
            fds.push(PollFd::new(self.walker.stream.socket(), flags(self.walker.has_output())));
        }
        match poll(&mut fds, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::from(std::io::Error::from(error)).context("wait for replies")),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (&index, _) in order.iter().zip(&ready).filter(|(_, is_ready)| **is_ready) {
            let served = self.serve(index);
            self.survive(index, served)?;
        }
        if self.walker.is_alive && ready.last() == Some(&true) {
            let served = self.serve_walker();
            self.survive_walker(served)?;
        }
        Ok(())
    }

    /// A connection may be lost when the server was to be killed; its operations are then in doubt.
    fn survive(&mut self, index: usize, served: std::result::Result<(), Broken>) -> Result<()> {
        let Err(broken) = served else { return Ok(()) };
        let link = &mut self.links[index];
        link.is_alive = false;
        self.outstanding -= link.pending.len();
        self.unanswered += link.pending.len() as u64;
        link.pending.clear();
        self.lost(broken)
    }

    fn survive_walker(&mut self, served: std::result::Result<(), Broken>) -> Result<()> {
        let Err(broken) = served else { return Ok(()) };
        self.walker.is_alive = false;
        self.lost(broken)
    }

    fn lost(&self, broken: Broken) -> Result<()> {
        match self.end {
            End::Killed(_) => Ok(()),
            _ => Err(Error::new(ErrorKind::Retry, format!("soak: a connection was lost: {}", broken.0))),
        }
    }

    fn serve(&mut self, index: usize) -> std::result::Result<(), Broken> {
        loop {
            let (_, is_more) = self.links[index].fill()?;
            self.take_replies(index)?;
            if !is_more {
                break;
            }
        }
        self.links[index].flush().map(|_| ())
    }

    fn take_replies(&mut self, index: usize) -> std::result::Result<(), Broken> {
        let now_us = self.now_us();
        let mut answered = 0;
        while let Some((skimmed, place)) = self.links[index].next_reply()? {
            let link = &mut self.links[index];
            let Some(pending) = link.pending.front_mut() else {
                return Err(Broken("the server sent a reply to nothing".into()));
            };
            pending.replies -= 1;
            if skimmed == Skimmed::Error {
                let text = link.reply(place.clone()).escape_ascii().to_string();
                self.soak.findings.add(format!("refused: {text}"));
            }
            let link = &mut self.links[index];
            let is_whole = link.pending.front().is_some_and(|pending| pending.replies == 0);
            let Some(pending) = is_whole.then(|| link.pending.pop_front()).flatten() else { continue };
            answered += 1;
            self.outstanding -= 1;
            self.seconds.answered(pending.began_us, now_us);
            if skimmed != Skimmed::Error {
                let reply = self.links[index].reply(place);
                self.present += u64::from(pending.note(self.soak, reply, now_us, self.is_verifying));
            }
        }
        if answered > 0 {
            self.seconds.heard(now_us, self.outstanding > 0);
        }
        Ok(())
    }

    fn serve_walker(&mut self) -> std::result::Result<(), Broken> {
        let (_, _) = self.walker.fill()?;
        while let Some((_, place)) = self.walker.next_reply()? {
            let now_us = self.now_us();
            let Some(asked_us) = self.walker.pending.pop_front() else {
                return Err(Broken("the server sent a page that nobody asked for".into()));
            };
            self.seconds.pages.record_us(now_us - asked_us);
            self.page_at_us = now_us + PAGE_PAUSE_US;
            if let Some(text) = self.soak.walk.take(self.walker.reply(place)) {
                self.soak.findings.add(text);
            }
        }
        self.walker.flush().map(|_| ())
    }

    fn ask_page(&mut self, now_us: u64) -> Result<()> {
        let is_due = self.walker.is_alive && self.walker.pending.is_empty() && now_us >= self.page_at_us;
        if !is_due || self.is_draining || self.end == End::Filled || !self.soak.walk.is_wanted() {
            return Ok(());
        }
        let is_filled = self.soak.states.iter().take(1).all(|state| state.acknowledged > 0);
        self.soak.walk.ask(is_filled, &mut self.walker.output);
        self.walker.pending.push_back(now_us);
        let flushed = self.walker.flush().map(|_| ());
        self.survive_walker(flushed)
    }

    /// Closed loop: `depth` operations under way.
    fn refill(&mut self, index: usize, depth: usize, now_us: u64) -> Result<()> {
        while !self.is_draining
            && self.links[index].is_alive
            && self.links[index].pending.len() < depth
            && self.make(index, now_us)
        {}
        let flushed = self.links[index].flush().map(|_| ());
        self.survive(index, flushed)
    }

    /// Open loop: what is due, as far as there are places.
    fn send_due(&mut self, schedule: &mut Schedule, now_us: u64) -> Result<()> {
        while !self.is_draining && schedule.intended_us() <= now_us {
            let links = self.links.len();
            let free = (0..links).map(|offset| (self.turn + offset) % links).find(|&index| {
                let link = &self.links[index];
                link.is_alive && link.pending.len() < self.soak.settings.pipeline
            });
            let Some(index) = free else { break };
            self.turn = index + 1;
            self.make(index, schedule.intended_us());
            schedule.advance();
        }
        for index in 0..self.links.len() {
            if self.links[index].is_alive && self.links[index].has_output() {
                let flushed = self.links[index].flush().map(|_| ());
                self.survive(index, flushed)?;
            }
        }
        Ok(())
    }

    /// Makes one operation, unless there is none left; it was meant for `began_us`.
    fn make(&mut self, index: usize, began_us: u64) -> bool {
        let now_us = self.now_us();
        let Some((number, is_write)) = self.choose(index) else { return false };
        let is_own = number % self.links.len() as u64 == index as u64 && !self.is_verifying;
        let output = &mut self.links[index].output;
        let (version, replies) = if is_write {
            let state = &mut self.soak.states[number as usize];
            state.sent += 1;
            let version = state.sent;
            if Objects::is_deletion(number, version) {
                self.deleted[index].push_back(number);
            }
            if kind(number) == Kind::Lease {
                self.soak.leases[super::lease_place(number)] =
                    LeaseTimes { asked_us: now_us, acknowledged_us: None };
            }
            (version, self.soak.objects.write(number, version, output))
        } else {
            Objects::read(number, output);
            (self.soak.oldest(number, is_own), 1)
        };
        let pending = Pending { number, version, is_write, is_own, replies, began_us, asked_us: now_us };
        self.links[index].pending.push_back(pending);
        self.outstanding += 1;
        self.seconds.left(began_us, now_us);
        true
    }

    /// An object for a connection, and whether it is written.
    fn choose(&mut self, index: usize) -> Option<(u64, bool)> {
        let (objects, links) = (self.soak.settings.objects, self.links.len() as u64);
        if self.end == End::Filled {
            let number = self.next[index];
            self.next[index] += links;
            return (number < objects).then_some((number, !self.is_verifying));
        }
        let random = &mut self.soak.random;
        let reach = if random.below(100) < HOT { (objects / 5).max(links) } else { objects };
        let is_read = random.below(100) < READS;
        if is_read && random.below(100) < FOREIGN {
            return Some((random.below(reach), false));
        }
        // The connection's own numbers below the reach.
        let own = (reach - index as u64).div_ceil(links);
        let number = random.below(own) * links + index as u64;
        if !is_read && self.deleted[index].len() > DELETED {
            return self.deleted[index].pop_front().map(|number| (number, true));
        }
        let state = self.soak.states[number as usize];
        // A lease has one write under way, so that its times are known.
        let is_busy = kind(number) == Kind::Lease && state.sent > state.acknowledged;
        Some((number, !is_read && !is_busy))
    }
}

impl Pending {
    /// Judges the reply and notes what it tells; whether the keys are there.
    fn note(&self, soak: &mut Soak, reply: &[u8], now_us: u64, is_verifying: bool) -> bool {
        let number = self.number;
        let state = soak.states[number as usize];
        if self.is_write {
            if !Objects::is_answer(number, self.version, reply) {
                let shown = reply[..reply.len().min(60)].escape_ascii();
                soak.findings.add(format!("object {number}: write {} was answered {shown}", self.version));
                return false;
            }
            soak.states[number as usize].acknowledged = state.acknowledged.max(self.version);
            if kind(number) == Kind::Lease {
                soak.leases[super::lease_place(number)].acknowledged_us = Some(now_us);
            }
            return true;
        }
        let newest = if self.is_own { self.version } else { state.sent };
        let expected = Expected {
            oldest: self.version,
            newest,
            asked_us: self.asked_us,
            answered_us: now_us,
            times: soak.times(number).filter(|_| newest == state.sent),
        };
        match Objects::judge(number, reply, &expected) {
            Err(text) => {
                soak.findings.add(format!("object {number} ({:?}): {text}", kind(number)));
                false
            }
            Ok(version) => {
                let state = &mut soak.states[number as usize];
                if is_verifying {
                    (state.acknowledged, state.sent) = (version, version);
                    // The times are those of the last that was sent, which may be lost.
                    if kind(number) == Kind::Lease {
                        soak.leases[super::lease_place(number)] = LeaseTimes::default();
                    }
                } else if !is_missing(reply) {
                    state.acknowledged = state.acknowledged.max(version);
                }
                !is_missing(reply)
            }
        }
    }
}
