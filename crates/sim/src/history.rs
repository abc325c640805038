//! What clients asked and what they saw, object by object.
//!
//! Invariants:
//! 1. Events are numbered in the order in which they were asked; moments are counted by one counter
//!    over the whole run, so of two moments one is always the earlier.
//! 2. An event without a reply may have had its effect once, before its end, or not at all. Where reads
//!    may have failed, its commands on keys that could not be read have done nothing, and the others all.

use crate::model::{ObjectId, Step, Verb, WallSpan};
use tierstone_wire::resp::Value;

/// What became of an event.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// No reply has come.
    Nothing,
    /// The replies of its steps.
    Replies(Vec<Value>),
    /// A reply that says that nothing was done.
    Refused,
}

/// One thing that a client wants done in one piece.
#[derive(Clone, Debug)]
pub struct Event {
    /// To what.
    pub object: ObjectId,
    /// The connection, unique in the run. Its events take effect in order.
    pub connection: u64,
    /// What is done.
    pub steps: Vec<Step>,
    /// The moment before its first byte could arrive.
    pub asked: u64,
    /// The moment at which the reply was there, or the connection was gone.
    pub ended: u64,
    /// The same two by the wall clock.
    pub span: WallSpan,
    /// What came.
    pub seen: Seen,
    /// No reply has come, and reads of the device may have failed.
    pub reads_may_fail: bool,
    /// It was acknowledged so long before the crash that follows that it cannot be lost in it.
    pub survives: bool,
}

/// Names an event.
pub type EventId = usize;

/// All events of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// By id.
    pub events: Vec<Event>,
    moments: u64,
    /// The moment at which the newest process began.
    life: u64,
    /// Crashes that may take back what was acknowledged, as events of every object.
    crashes: Vec<Event>,
}

impl History {
    /// A moment later than all before.
    pub fn moment(&mut self) -> u64 {
        self.moments += 1;
        self.moments
    }

    /// A client is about to ask.
    pub fn ask(&mut self, connection: u64, object: ObjectId, steps: Vec<Step>, wall_ms: u64) -> EventId {
        let asked = self.moment();
        self.events.push(Event {
            object,
            connection,
            steps,
            asked,
            ended: u64::MAX,
            span: WallSpan { from_ms: wall_ms, to_ms: u64::MAX },
            seen: Seen::Nothing,
            reads_may_fail: false,
            survives: false,
        });
        self.events.len() - 1
    }

    /// The wall clock was set to show `wall_ms`: what is under way may go by that.
    pub fn note_wall(&mut self, wall_ms: u64) {
        for event in self.events.iter_mut().filter(|event| event.ended == u64::MAX) {
            event.span.from_ms = event.span.from_ms.min(wall_ms);
        }
    }

    /// The end of an event. `wall_ms`: the latest that the wall clock has shown.
    pub fn end(&mut self, id: EventId, seen: Seen, wall_ms: u64) {
        let ended = self.moment();
        let event = &mut self.events[id];
        event.ended = ended;
        event.span.to_ms = wall_ms;
        event.seen = seen;
    }

    /// An event goes on although its connection has been told an error: what it asks next has an order of
    /// its own.
    pub fn detach(&mut self, id: EventId) {
        self.events[id].connection = u64::MAX - id as u64;
    }

    /// The end of an event without a reply; `is_faulty`: reads of the device may have failed.
    pub fn end_in_doubt(&mut self, id: EventId, is_faulty: bool, wall_ms: u64) {
        self.end(id, Seen::Nothing, wall_ms);
        self.events[id].reads_may_fail = is_faulty;
    }

    /// The process has ended in good order: nothing of what was answered can be lost any more.
    pub fn close(&mut self) {
        let life = self.life;
        let of_life = self.events.iter_mut().filter(|event| event.asked > life);
        of_life.for_each(|event| event.survives = true);
        self.life = self.moment();
    }

    /// A crash at `wall_ms` that takes back nothing that was acknowledged more than `age_ms` before, if that
    /// can be said: a device that falls behind makes what was acknowledged wait without a bound, and nothing
    /// more is acknowledged. All events have ended.
    pub fn crash(&mut self, wall_ms: u64, age_ms: Option<u64>) {
        let life = self.life;
        for event in self.events.iter_mut().filter(|event| event.asked > life) {
            // Both times may have been cut by almost a millisecond.
            let is_old = age_ms.is_some_and(|age_ms| event.span.to_ms + age_ms + 1 < wall_ms);
            event.survives = is_old && matches!(event.seen, Seen::Replies(_));
        }
        let (asked, ended) = (self.moment(), self.moment());
        self.crashes.push(Event {
            object: ObjectId { database: 0, number: 0 },
            connection: u64::MAX,
            steps: vec![Step { key: 0, verb: Verb::Crash }],
            asked,
            ended,
            span: WallSpan { from_ms: wall_ms, to_ms: wall_ms },
            seen: Seen::Replies(Vec::new()),
            reads_may_fail: false,
            survives: true,
        });
        self.life = ended;
    }

    /// The objects that anything was asked of, in order.
    pub fn objects(&self) -> Vec<ObjectId> {
        let mut objects: Vec<ObjectId> = self.events.iter().map(|event| event.object).collect();
        objects.sort_unstable();
        objects.dedup();
        objects
    }

    /// The events of one object that say something, crashes that may take acknowledged writes back among
    /// them, in the order in which they were asked.
    pub fn of(&self, object: ObjectId) -> Vec<&Event> {
        let says = |event: &&Event| match &event.seen {
            Seen::Refused => false,
            Seen::Nothing => event.steps.iter().any(|step| step.verb.is_write()),
            Seen::Replies(_) => true,
        };
        let mut events: Vec<&Event> =
            self.events.iter().filter(|event| event.object == object).filter(says).collect();
        events.extend(&self.crashes);
        events.sort_by_key(|event| event.asked);
        events
    }
}
