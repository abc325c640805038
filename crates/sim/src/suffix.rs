//! What a crash takes of writes that were acknowledged before they were durable is the end of each shard's
//! log.
//!
//! [`crate::linearize`] sees one object at a time. Here objects are compared: where a write is known to have
//! been lost, no write of the same shard that was asked for after its acknowledgement may have outlived the
//! crash. Known are only writes that give a key a value of its own: the value is read after the crash, or an
//! older one is. Nor may what was lost of a shard have been written in more time than
//! [`Durability::RELAXED_BOUND_MS`].
//!
//! Invariant: what is called lost or surviving here is so in every explanation of the history.

use crate::history::{Event, EventId, History, Seen};
use crate::model::{ObjectId, Step, Verb};
use crate::script::{Kind, key_bytes, kind};
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::Position;
use tierstone_base::position::slot_of;
use tierstone_engine::Durability;
use tierstone_wire::resp::Value;

/// A process on the medium.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// The moment at which it began to serve.
    pub began: u64,
    /// Its shards.
    pub shards: u16,
}

/// What is known of one life's writes.
#[derive(Clone, Debug, Default)]
struct Known {
    lost: BTreeSet<EventId>,
    outlived: BTreeSet<EventId>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Acknowledged writes that are known to have been lost.
    pub lost: usize,
    /// Writes that are known to have outlived a crash which took others.
    pub outlived: usize,
    /// What may not be.
    pub violation: Option<String>,
}

fn written(step: &Step) -> Option<Value> {
    match &step.verb {
        Verb::Set(value) | Verb::SetNew(value) | Verb::SetFor(value, _) => Some(value.reply()),
        _ => None,
    }
}

/// Whether a step that was answered so has given the key another value, or none.
fn has_changed(step: &Step, reply: &Value) -> bool {
    match step.verb {
        Verb::Set(_) | Verb::SetFor(..) | Verb::Append(_) => true,
        Verb::SetNew(_) | Verb::Take => !reply.is_null(),
        Verb::Delete => *reply == Value::Integer(1),
        _ => false,
    }
}

fn answered(event: &Event) -> impl Iterator<Item = (&Step, &Value)> {
    let replies: &[Value] = match &event.seen {
        Seen::Replies(replies) => replies,
        _ => &[],
    };
    event.steps.iter().zip(replies)
}

/// Compares what is known of all writes. Values of counters are not their own, so nothing is known of them.
pub fn check(history: &History, lives: &[Life]) -> Findings {
    let life_of = |event: &Event| lives.partition_point(|life| life.began <= event.asked);
    let mut writers: BTreeMap<(ObjectId, usize, String), EventId> = BTreeMap::new();
    let mut changes: BTreeMap<(ObjectId, usize), Vec<EventId>> = BTreeMap::new();
    let of_own = |event: &&Event| kind(event.object) != Kind::Counter;
    for (id, event) in history.events.iter().enumerate().filter(|(_, event)| of_own(event)) {
        for step in &event.steps {
            if let Some(value) = written(step) {
                writers.insert((event.object, step.key, format!("{value:?}")), id);
            }
        }
        for (step, _) in answered(event).filter(|(step, reply)| has_changed(step, reply)) {
            changes.entry((event.object, step.key)).or_default().push(id);
        }
    }
    let mut known: BTreeMap<usize, Known> = BTreeMap::new();
    for read in history.events.iter().filter(of_own) {
        // What the event itself has changed before says nothing.
        for (step, reply) in answered(read).take_while(|(step, _)| !step.verb.is_write()) {
            let Some(&writer) = writers.get(&(read.object, step.key, format!("{reply:?}"))) else { continue };
            let write = &history.events[writer];
            if life_of(write) == life_of(read) {
                continue;
            }
            known.entry(life_of(write)).or_default().outlived.insert(writer);
            let later = changes.get(&(read.object, step.key)).into_iter().flatten().copied();
            for lost in later {
                let event = &history.events[lost];
                if event.asked > write.ended && life_of(event) < life_of(read) {
                    known.entry(life_of(event)).or_default().lost.insert(lost);
                }
            }
        }
    }
    judge(history, lives, &known)
}

fn judge(history: &History, lives: &[Life], known: &BTreeMap<usize, Known>) -> Findings {
    let mut findings = Findings::default();
    for (life, known) in known {
        let shards = lives.get(life.wrapping_sub(1)).map_or(1, |life| life.shards);
        let shard = |id: EventId| {
            let object = history.events[id].object;
            Position::first_of_slot(slot_of(&key_bytes(object, 0))).shard(shards)
        };
        findings.lost += known.lost.len();
        findings.outlived += if known.lost.is_empty() { 0 } else { known.outlived.len() };
        for &lost in &known.lost {
            let acknowledged = history.events[lost].ended;
            // What is written so much later is acknowledged only when it is durable.
            let bound_ms = Durability::RELAXED_BOUND_MS + 1;
            let until_ms = history.events[lost].span.to_ms + bound_ms;
            let too_late =
                |id: &&EventId| history.events[**id].span.from_ms > until_ms && shard(**id) == shard(lost);
            if let Some(&late) = known.lost.iter().find(too_late) {
                findings.violation.get_or_insert(format!(
                    "a crash has taken {:?}, acknowledged at {acknowledged}, and {:?}, asked for more than the bound later",
                    history.events[lost].steps, history.events[late].steps
                ));
            }
            let after =
                |id: &&EventId| history.events[**id].asked > acknowledged && shard(**id) == shard(lost);
            if let Some(&survivor) = known.outlived.iter().find(after) {
                let (lost, survivor) = (&history.events[lost], &history.events[survivor]);
                findings.violation.get_or_insert(format!(
                    "a crash has taken {:?} of {:?}, acknowledged at {acknowledged}, and left {:?} of {:?}, asked for at {}",
                    lost.steps, lost.object, survivor.steps, survivor.object, survivor.asked
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
#[path = "suffix_test.rs"]
mod suffix_test;
