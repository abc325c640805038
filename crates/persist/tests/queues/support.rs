//! Traces of queues, and what recovery must find in every state that a failure may leave of them.

use crate::swap_locks::{Locks, SwapLocks};
use std::sync::Mutex;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_crash::Mutations;
use tierstone_media::region::{MappedRegion, Region, RegionSettings};
use tierstone_persist::memory::{Direct, Memory, Place, VolatileWords};
use tierstone_persist::observer::State;
use tierstone_persist::queue::{Design, Queue, QueueSettings, recover};
use tierstone_persist::trace::{Kind, Space, Trace};
use tierstone_persist::tracer::{Schedule, TraceSettings, record};

/// What one trace is of.
#[derive(Clone, Debug)]
pub struct Work {
    pub design: Design,
    /// Threads that insert.
    pub inserters: usize,
    /// Inserts of each.
    pub inserts: u64,
    /// Entries that one thread more takes out; zero: there is none.
    pub removes: u64,
    pub payload_bytes: usize,
    pub capacity_bytes: u64,
    /// Whether each insert waits until it is durable.
    pub settles: bool,
    /// Another thread gets its turn once in so many accesses.
    pub one_in: u64,
    pub locks: Locks,
    pub rules: Mutations,
}

/// One insert or remove that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub position: u64,
    pub id: u64,
    pub thread: usize,
    pub is_remove: bool,
    /// The step of the trace at which it was acknowledged.
    pub acknowledged: usize,
}

/// A trace with what was done in it.
#[derive(Debug)]
pub struct Traced {
    pub initial: Vec<u8>,
    pub trace: Trace,
    pub done: Vec<Done>,
}

/// What an entry of `id` holds.
pub fn payload(id: u64, bytes: usize) -> Vec<u8> {
    (id + 1).to_le_bytes().iter().copied().cycle().take(bytes).collect()
}

/// Does `work` under a tracer whose turns `seed` decides.
pub fn traced(work: &Work, seed: u64) -> Result<Traced> {
    let threads = work.inserters + usize::from(work.removes > 0);
    let mut settings = QueueSettings::new(work.design, work.capacity_bytes, threads);
    settings.rules = work.rules.clone();
    settings.in_flight = 8;
    let acknowledgements = settings.volatile_bytes();
    // Behind the words of the queue and its list of inserts.
    let first_node = 512 + settings.in_flight * 64;
    let region = MappedRegion::anonymous(settings.persistent_bytes(), &RegionSettings::default())?;
    let words = VolatileWords::new(acknowledgements + 64 * threads as u64);
    let queue = Queue::create(settings, &Direct::new(&region, &words, 0))?;
    let mut initial = vec![0; region.bytes() as usize];
    region.load(0, &mut initial);
    let done = Mutex::new(Vec::new());
    let schedule = Schedule::Seeded { seed, one_in: work.one_in };
    let trace = record(
        &TraceSettings { schedule, ..TraceSettings::seeded(threads, seed) },
        |thread| Direct::new(&region, &words, thread),
        |traced| {
            let memory =
                &SwapLocks { memory: traced, locks: work.locks, nodes: first_node..acknowledgements };
            let thread = memory.thread();
            let mine = Place::Volatile(acknowledgements + 64 * thread as u64);
            let mut count = 0;
            let mut note = |position, id, is_remove| {
                count += 1;
                memory.store(mine, count);
                let record = Done { position, id, thread, is_remove, acknowledged: usize::MAX };
                done.lock().map(|mut done| done.push((count, record))).unwrap_or_default();
            };
            if thread == work.inserters {
                return remove_all(work, &queue, memory, note);
            }
            for number in 0..work.inserts {
                let id = number * work.inserters as u64 + thread as u64;
                let bytes = payload(id, work.payload_bytes);
                for _ in 0..100 {
                    let position = match queue.insert(memory, &bytes) {
                        Err(error) if error.kind() == ErrorKind::NoSpace => continue,
                        inserted => inserted?,
                    };
                    if work.settles {
                        queue.settle(memory, position, bytes.len())?;
                    }
                    note(position, id, false);
                    break;
                }
            }
            Ok(())
        },
    )?;
    let done = done.into_inner().unwrap_or_default().into_iter().map(|(count, record): (u64, Done)| {
        let is_it = |event: &tierstone_persist::trace::Event| {
            event.space == Space::Volatile
                && event.kind == Kind::Store
                && event.address == acknowledgements + 64 * record.thread as u64
                && event.value == count
        };
        Done { acknowledged: trace.events().iter().position(is_it).unwrap_or(usize::MAX), ..record }
    });
    Ok(Traced { initial, done: done.collect(), trace })
}

fn remove_all<M: Memory>(
    work: &Work,
    queue: &Queue,
    memory: &M,
    mut note: impl FnMut(u64, u64, bool),
) -> Result<()> {
    let mut removed = 0;
    for _ in 0..1_000 {
        if removed == work.removes {
            break;
        }
        if let Some(entry) = queue.remove(memory)? {
            let mut word = [0; 8];
            word.copy_from_slice(entry.payload.get(..8).unwrap_or(&[0; 8]));
            note(entry.position, u64::from_le_bytes(word).wrapping_sub(1), true);
            removed += 1;
        }
    }
    Ok(())
}

/// Whether recovery finds in `state` what it must and nothing else.
pub fn check(work: &Work, traced: &Traced, state: &State<'_>) -> Result<()> {
    let refuse = |what: String| Err(Error::new(ErrorKind::Corrupt, what));
    let found = recover(state.image)?;
    let inserts = || traced.done.iter().filter(|done| !done.is_remove);
    if work.design != Design::QueueHoles && found.holes > 0 {
        return refuse("a hole".into());
    }
    for entry in &found.entries {
        let Some(insert) = inserts().find(|done| done.position == entry.position) else {
            return refuse(format!("an entry at {}, where none was inserted", entry.position));
        };
        if entry.payload != payload(insert.id, work.payload_bytes) {
            return refuse(format!("the entry at {} is torn: {:?}", entry.position, entry.payload));
        }
    }
    for done in traced.done.iter().filter(|done| done.acknowledged < state.done) {
        let there = found.entries.iter().any(|entry| entry.position == done.position);
        if done.is_remove && found.tail <= done.position {
            return refuse(format!("the entry at {} is there again after its remove", done.position));
        }
        if work.settles && !done.is_remove && !there && found.tail <= done.position {
            return refuse(format!("the entry at {} was acknowledged and is gone", done.position));
        }
    }
    Ok(())
}
