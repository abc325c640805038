//! Looks for an order of one object's events that explains what clients saw.
//!
//! The search is Wing and Gong's ("Testing and verifying concurrent objects", 1993) with Lowe's memory of
//! visited configurations (2017), in which what ended without a reply and cannot come any more is alike, whether
//! it took effect or not. Departures: events without a reply may be left out, and must come before
//! their connection's end; events of one connection keep their order; a read that agrees with the state
//! is taken at once, because taking it closes no way, unless an event without a reply ended before it was
//! asked; few events in doubt are let take effect before many are.
//!
//! Invariants:
//! 1. An event comes before all that were asked after its reply had come.
//! 2. The answer is exact unless the budget is used up, which is said.
//! 3. Where writes are acknowledged before they are durable, a crash leads back to a state that the object has
//!    had since the last write that must have survived it ([`Event::survives`]): what is lost is the end of a
//!    history, never something in its middle, never a part of an event. What was acknowledged of it was
//!    written within [`Durability::RELAXED_BOUND_MS`].

use crate::history::{Event, Seen};
use crate::model::{Evicts, ObjectState, Verb};
use crate::script::{Kind, kind};
use std::collections::BTreeMap;
use tierstone_engine::Durability;

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order.
    Explained,
    /// There is none; as far as it went, and what could not be explained next.
    Impossible(String),
    /// The budget is used up.
    TooHard,
}

struct Search<'a> {
    events: &'a [&'a Event],
    /// Configurations that were looked at, and with how few events in doubt taken.
    visited: BTreeMap<(Vec<u64>, ObjectState, Vec<Earlier>), usize>,
    /// Whether a crash may take back what was acknowledged.
    takes_back: bool,
    evicts: Evicts,
    budget: u64,
    best: (usize, String),
    doubts_max: usize,
}

#[derive(Clone)]
struct Place {
    done: Vec<u64>,
    count: usize,
    /// Events below are done, or without a reply and left behind.
    first: usize,
    /// Events without a reply that have taken effect.
    doubts: usize,
    state: ObjectState,
    /// Earlier states that a crash may bring back.
    earlier: Vec<Earlier>,
}

/// A state that a crash may bring back, and when that would have been written which it would take: the
/// acknowledged of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Earlier {
    state: ObjectState,
    /// One was acknowledged at this time at the latest, in milliseconds by the wall clock.
    first_ms: u64,
    /// One was not asked for before this time.
    last_ms: u64,
}

impl Earlier {
    /// Whether so much may be taken. Both times may have been cut by almost a millisecond.
    fn is_within_bound(&self) -> bool {
        self.last_ms <= self.first_ms.saturating_add(Durability::RELAXED_BOUND_MS + 1)
    }
}

impl Place {
    fn is_done(&self, at: usize) -> bool {
        self.done[at / 64] >> (at % 64) & 1 == 1
    }

    fn mark(&mut self, at: usize) {
        self.done[at / 64] |= 1 << (at % 64);
        self.count += 1;
    }

    /// When event `at` comes next and leads to `state`.
    fn after(&self, at: usize, state: ObjectState) -> Place {
        let mut next = Place { state, ..self.clone() };
        next.mark(at);
        next
    }
}

/// What an event without a reply may have made of `before`. A key that cannot be read stays so for the whole
/// event, until the event itself gives it a value.
fn outcomes_in_doubt(before: &ObjectState, event: &Event) -> Vec<ObjectState> {
    let keys = event.steps.iter().map(|step| step.key).max().map_or(0, |key| key + 1);
    let ways = if event.reads_may_fail { 1u32 << keys.min(8) } else { 1 };
    let mut outcomes = Vec::new();
    for mut unreadable in 0..ways {
        let mut state = before.clone();
        for step in &event.steps {
            if step.verb.is_blind() {
                unreadable &= !(1 << step.key);
            }
            if unreadable >> step.key & 1 == 0 {
                state.apply(step, event.span);
            }
        }
        if !outcomes.contains(&state) {
            outcomes.push(state);
        }
    }
    outcomes
}

fn is_certain(event: &Event) -> bool {
    matches!(event.seen, Seen::Replies(_))
}

/// Whether two events take effect in the order in which they were asked: those of one connection do, but for
/// single commands with different keys, of which one may wait for the device.
fn keep_order(one: &Event, other: &Event) -> bool {
    let touches = |event: &Event, key: usize| {
        event.steps.iter().any(|step| match step.verb {
            Verb::CopyTo(to, _) | Verb::RenameTo(to) => key == to || key == step.key,
            _ => key == step.key,
        })
    };
    let share_a_key = || (0..2).any(|key| touches(one, key) && touches(other, key));
    one.connection == other.connection && (kind(one.object) != Kind::Large || share_a_key())
}

fn is_crash(event: &Event) -> bool {
    event.steps.iter().any(|step| step.verb == Verb::Crash)
}

/// Whether the events of one object (in the order in which they were asked) have an explanation. Takes at
/// most `budget` configurations; exponential only in how many events overlap. A key that may be evicted may go at any
/// time, but not come back.
pub fn check(events: &[&Event], budget: u64, evicts: Evicts) -> Verdict {
    // An explanation is one however it was found: with few of the events in doubt it is found soonest. That
    // there is none only a search without a limit can say.
    for doubts_max in [0, 1, 2, 4, 8] {
        if search(events, budget, doubts_max, evicts) == Verdict::Explained {
            return Verdict::Explained;
        }
    }
    search(events, budget, usize::MAX, evicts)
}

/// `doubts_max`: of events without a reply, at most so many take effect.
fn search(events: &[&Event], budget: u64, doubts_max: usize, evicts: Evicts) -> Verdict {
    let takes_back = events.iter().any(|event| is_crash(event));
    let mut search = Search {
        events,
        visited: BTreeMap::new(),
        takes_back,
        evicts,
        budget,
        best: (0, String::new()),
        doubts_max,
    };
    let start = Place {
        done: vec![0; events.len().div_ceil(64)],
        count: 0,
        first: 0,
        doubts: 0,
        state: ObjectState::default(),
        earlier: Vec::new(),
    };
    let mut stack = vec![start];
    while let Some(place) = stack.pop() {
        if search.budget == 0 {
            return Verdict::TooHard;
        }
        search.budget -= 1;
        if search.expand(place, &mut stack) {
            return Verdict::Explained;
        }
    }
    Verdict::Impossible(search.best.1)
}

impl Search<'_> {
    /// Goes one event further; true when nothing certain is left.
    fn expand(&mut self, mut place: Place, stack: &mut Vec<Place>) -> bool {
        loop {
            self.skip(&mut place);
            let candidates = self.candidates(&place);
            if candidates.is_empty() {
                return !(place.first..self.events.len())
                    .any(|at| !place.is_done(at) && is_certain(self.events[at]));
            }
            if candidates.iter().all(|at| !is_certain(self.events[*at]))
                && !(place.first..self.events.len())
                    .any(|at| !place.is_done(at) && is_certain(self.events[at]))
            {
                return true;
            }
            let free = candidates.iter().copied().find(|&at| self.is_free_read(&place, at));
            // What is in doubt and ended before a read was asked cannot come after it any more.
            let closes_a_way = |read: usize| {
                candidates.iter().any(|&at| {
                    !is_certain(self.events[at]) && self.events[at].ended < self.events[read].asked
                })
            };
            if let Some(read) = free
                && (place.doubts >= self.doubts_max || !closes_a_way(read))
            {
                place.mark(read);
                continue;
            }
            if !self.is_new(&place) {
                return false;
            }
            let mut any = false;
            // What is pushed last is tried first: a read that agrees, then the oldest.
            for at in candidates.iter().copied().rev().filter(|at| Some(*at) != free).chain(free) {
                any |= self.take(&place, at, stack);
            }
            if !any && place.count >= self.best.0 {
                self.best = (place.count, self.describe(&place, &candidates));
            }
            return false;
        }
    }

    /// Whether nothing was looked at that leads to all that this place leads to. Events in doubt that cannot come
    /// any more make no difference, whether they took effect or not: two of them may have led to one state in many
    /// ways.
    fn is_new(&mut self, place: &Place) -> bool {
        let newest_asked = self.newest_asked(place);
        let mut settled = place.done.clone();
        for at in (place.first..self.events.len()).filter(|&at| !is_certain(self.events[at])) {
            if !place.is_done(at) && self.is_too_late(place, at, newest_asked) {
                settled[at / 64] |= 1 << (at % 64);
            }
        }
        // Without a bound it does not matter how many were taken.
        let doubts = if self.doubts_max == usize::MAX { 0 } else { place.doubts };
        let place = (settled, place.state.clone(), place.earlier.clone());
        let fewest = self.visited.entry(place).or_insert(usize::MAX);
        let is_new = doubts < *fewest;
        *fewest = (*fewest).min(doubts);
        is_new
    }

    /// Whether an event without a reply cannot come any more in all that follows, and whether it came bars no other.
    /// Where the events of a connection keep their order only for some keys, one that came too late may still bar an
    /// earlier one.
    fn is_too_late(&self, place: &Place, at: usize, newest_asked: u64) -> bool {
        let event = self.events[at];
        event.ended < newest_asked || kind(event.object) != Kind::Large && self.is_overtaken(place, at)
    }

    /// Whether an event that was asked later and keeps its order with this one is explained already.
    fn is_overtaken(&self, place: &Place, at: usize) -> bool {
        (at + 1..self.events.len())
            .any(|later| keep_order(self.events[later], self.events[at]) && place.is_done(later))
    }

    fn skip(&self, place: &mut Place) {
        while place.first < self.events.len() && place.is_done(place.first) {
            place.first += 1;
        }
    }

    /// Events that may come next.
    fn candidates(&self, place: &Place) -> Vec<usize> {
        let open = || (place.first..self.events.len()).filter(|&at| !place.is_done(at));
        let limit = open()
            .filter(|&at| is_certain(self.events[at]))
            .map(|at| self.events[at].ended)
            .min()
            .unwrap_or(u64::MAX);
        let newest_asked = self.newest_asked(place);
        open()
            .take_while(|&at| self.events[at].asked < limit)
            .filter(|&at| self.may_come(place, at, newest_asked))
            .collect()
    }

    /// When the newest of the explained events was asked.
    fn newest_asked(&self, place: &Place) -> u64 {
        let newest_done = (0..self.events.len()).rev().find(|&at| place.is_done(at));
        newest_done.map_or(0, |at| self.events[at].asked)
    }

    /// The order of the connection, and the end of what has no reply.
    fn may_come(&self, place: &Place, at: usize, newest_asked: u64) -> bool {
        let event = self.events[at];
        if !is_certain(event) && event.ended < newest_asked {
            return false;
        }
        let earlier_is_owed = (place.first..at).any(|earlier| {
            let other = self.events[earlier];
            keep_order(other, event) && is_certain(other) && !place.is_done(earlier)
        });
        if earlier_is_owed {
            return false;
        }
        is_certain(event) || !self.is_overtaken(place, at)
    }

    fn is_free_read(&self, place: &Place, at: usize) -> bool {
        let event = self.events[at];
        let Seen::Replies(replies) = &event.seen else { return false };
        if event.steps.iter().any(|step| step.verb.is_write()) {
            return false;
        }
        let mut seen = place.state.seen_during(event.span, &event.steps);
        if seen.len() != 1 || seen[0] != place.state {
            return false;
        }
        let state = &mut seen[0];
        event.steps.iter().zip(replies).all(|(step, reply)| state.apply(step, event.span) == *reply)
    }

    /// Pushes what follows when event `at` comes next; false when its replies forbid it.
    fn take(&self, place: &Place, at: usize, stack: &mut Vec<Place>) -> bool {
        let event = self.events[at];
        let before = stack.len();
        if is_crash(event) {
            for state in place.earlier.iter().map(|earlier| &earlier.state).chain([&place.state]) {
                let mut next = place.after(at, state.clone());
                next.earlier.clear();
                stack.push(next);
            }
            return true;
        }
        let mut seen = place.state.seen_during(event.span, &event.steps);
        if self.evicts != Evicts::None {
            seen = seen.iter().flat_map(|state| state.with_evictions(&event.steps, self.evicts)).collect();
        }
        for found in seen {
            let mut state = found.clone();
            let Seen::Replies(replies) = &event.seen else {
                if place.doubts >= self.doubts_max {
                    return false;
                }
                for state in outcomes_in_doubt(&state, event) {
                    stack.push(self.remembering(place, at, (&found, state)));
                }
                continue;
            };
            let mut each = event.steps.iter().zip(replies);
            if each.all(|(step, reply)| state.apply(step, event.span) == *reply) {
                stack.push(self.remembering(place, at, (&found, state)));
            }
        }
        stack.len() > before
    }

    /// What follows when event `at` finds one state and leaves another, with what a crash may bring back.
    fn remembering(&self, place: &Place, at: usize, (found, left): (&ObjectState, ObjectState)) -> Place {
        let event = self.events[at];
        let is_change = self.takes_back && left != *found;
        let mut next = place.after(at, left);
        if is_change && event.survives {
            next.earlier.clear();
        } else if is_change {
            next.earlier.push(Earlier { state: place.state.clone(), first_ms: u64::MAX, last_ms: 0 });
            for earlier in next.earlier.iter_mut().filter(|_| is_certain(event)) {
                earlier.first_ms = earlier.first_ms.min(event.span.to_ms);
                earlier.last_ms = earlier.last_ms.max(event.span.from_ms);
            }
            next.earlier.retain(Earlier::is_within_bound);
        }
        next
    }

    fn describe(&self, place: &Place, candidates: &[usize]) -> String {
        let mut text = format!(
            "{} of {} events explained, state {}; explained are those with a +, the next could be those with an arrow:",
            place.count,
            self.events.len(),
            short(&format!("{:?}", place.state))
        );
        for (at, event) in self.events.iter().enumerate() {
            let mark = match candidates.contains(&at) {
                _ if place.is_done(at) => "+",
                true => "->",
                false => "",
            };
            let steps: Vec<String> =
                event.steps.iter().map(|step| short(&format!("{}: {:?}", step.key, step.verb))).collect();
            text.push_str(&format!(
                "\n {mark:2} c{} {}..{} {} gives {}",
                event.connection,
                event.asked,
                event.ended,
                steps.join("; "),
                short(&format!("{:?}", event.seen))
            ));
        }
        text.chars().take(20_000).collect()
    }
}

/// A debug text in which each row of numbers is given as the text it stands for, cut short.
fn short(debug: &str) -> String {
    let mut text = String::new();
    for (number, part) in debug.split('[').enumerate() {
        let (row, rest) = part.split_once(']').unwrap_or(("", part));
        let bytes: Option<Vec<u8>> = row.split(", ").map(|byte| byte.parse().ok()).collect();
        match bytes {
            Some(bytes) => {
                text.push_str(&format!("'{}'({})", bytes[..bytes.len().min(8)].escape_ascii(), bytes.len()));
                text.push_str(rest);
            }
            None if number == 0 => text.push_str(part),
            None => text.push_str(&format!("[{part}")),
        }
    }
    text
}

#[cfg(test)]
#[path = "linearize_test.rs"]
mod linearize_test;
