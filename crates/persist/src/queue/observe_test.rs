//! The head that another thread has stored and not made durable: who answers for it must observe it. Under a trace a
//! load orders as much, so these rules are tested on regions that lose power alone: the thread that stored the head is
//! on one processor, the one that answers on another, whose fence makes durable what it has written back itself.

use super::*;
use crate::memory::{Direct, VolatileWords};
use tierstone_crash::{
    Choices, ExploreSettings, Report, SurvivorSettings, Violation, assert_all_caught, explore,
};
use tierstone_media::region::SimRegion;
use tierstone_media::sim::set_processor;

type Lost = std::result::Result<(), Violation>;

/// What one thread does where another stands still.
type Turn<'a> = Cell<Option<Box<dyn FnOnce() + 'a>>>;

/// The memory of a thread that stands still once, in one of three places, while another has its turn.
struct Interrupted<'a, M> {
    memory: &'a M,
    before_barrier: Turn<'a>,
    before_head: Turn<'a>,
    while_waiting: Turn<'a>,
}

impl<'a, M: Memory> Interrupted<'a, M> {
    fn new(memory: &'a M) -> Self {
        let never = || Cell::new(None);
        Interrupted { memory, before_barrier: never(), before_head: never(), while_waiting: never() }
    }

    /// Gives the turn away, once.
    fn stand_still(turn: &Turn<'a>) {
        if let Some(others) = turn.take() {
            others();
        }
    }
}

impl<M: Memory> Memory for Interrupted<'_, M> {
    fn thread(&self) -> usize {
        self.memory.thread()
    }
    fn persistent_bytes(&self) -> u64 {
        self.memory.persistent_bytes()
    }
    fn load(&self, place: Place) -> u64 {
        self.memory.load(place)
    }
    fn store(&self, place: Place, value: u64) {
        if place == Place::Persistent(HEAD) {
            Self::stand_still(&self.before_head);
        }
        self.memory.store(place, value);
    }
    fn swap(&self, place: Place, value: u64) -> u64 {
        self.memory.swap(place, value)
    }
    fn fetch_add(&self, place: Place, addend: u64) -> u64 {
        self.memory.fetch_add(place, addend)
    }
    fn compare_exchange(&self, place: Place, expected: u64, new: u64) -> std::result::Result<u64, u64> {
        self.memory.compare_exchange(place, expected, new)
    }
    fn load_bytes(&self, offset: u64, into: &mut [u8]) {
        self.memory.load_bytes(offset, into);
    }
    fn store_bytes(&self, offset: u64, bytes: &[u8]) {
        self.memory.store_bytes(offset, bytes);
    }
    fn wait_until(&self, place: Place, holds: impl Fn(u64) -> bool) -> Result<u64> {
        if !holds(self.load(place)) {
            Self::stand_still(&self.while_waiting);
        }
        self.memory.wait_until(place, holds)
    }
    fn observe(&self, offset: u64) -> u64 {
        self.memory.observe(offset)
    }
    fn barrier(&self) -> Result<()> {
        Self::stand_still(&self.before_barrier);
        self.memory.barrier()
    }
    fn strand(&self) {
        self.memory.strand();
    }
    fn sync(&self) -> Result<()> {
        self.memory.sync()
    }
}

/// On processor `number` from now on.
fn on<T>(number: u32, work: impl FnOnce() -> T) -> T {
    set_processor(number);
    let done = work();
    set_processor(0);
    done
}

/// A queue with two threads, each on a processor of its own, `work`, and the loss of power at any step of it; `check` gets
/// what `work` gave and what recovery found.
fn two_threads<const UNIT: usize, T>(
    design: Design,
    rules: &Mutations,
    work: impl Fn(&Queue, &Direct<'_, SimRegion<UNIT>>, &Direct<'_, SimRegion<UNIT>>) -> T,
    check: impl Fn(T, Recovered) -> Lost,
) -> Report {
    explore(ExploreSettings::exhaustive().with_max_runs(200_000), |choices: &Choices| {
        let violation = |error: Error| Violation::new(error.to_string());
        let settings = QueueSettings { rules: rules.clone(), ..QueueSettings::new(design, 256, 2) };
        let new = SimRegion::<UNIT>::new(settings.persistent_bytes());
        let words = VolatileWords::new(settings.volatile_bytes());
        let queue = on(0, || Queue::create(settings, &Direct::new(&new, &words, 0))).map_err(violation)?;
        let region = new.with_cuts(choices, 8);
        let (one, other) = (Direct::new(&region, &words, 0), Direct::new(&region, &words, 1));
        let done = work(&queue, &one, &other);
        region.lose_power(choices, &SurvivorSettings::default());
        check(done, recover(&region.image()).map_err(violation)?)
    })
}

/// What the other thread inserts.
const OTHERS: &[u8] = b"other";

/// What a second thread settles is there.
fn is_there(settled: bool, found: Recovered) -> Lost {
    let is_there = found.entries.iter().any(|entry| entry.payload == OTHERS);
    Violation::unless(is_there || !settled, || format!("settled, and found {found:?}"))
}

/// One thread stands still in mid-insert; the other inserts behind it; the first moves the head over both and makes
/// nothing durable. Then the other settles.
fn settles_behind<const UNIT: usize>(rules: &Mutations) -> Report {
    two_threads::<UNIT, bool>(
        Design::TwoLock,
        rules,
        |queue, one, other| {
            let position = Cell::new(None);
            let first = Interrupted::new(one);
            first.before_barrier.set(Some(Box::new(|| {
                on(1, || position.set(queue.insert(other, OTHERS).ok()));
            })));
            let _ = queue.insert(&first, b"first");
            let settle = |position| on(1, || queue.settle(other, position, OTHERS.len()).is_ok());
            position.get().is_some_and(settle)
        },
        is_there,
    )
}

/// The same, but that the other settles while the first has not moved the head yet: it waits for it.
fn settles_before<const UNIT: usize>(rules: &Mutations) -> Report {
    two_threads::<UNIT, bool>(
        Design::TwoLock,
        rules,
        |queue, one, other| {
            let (position, settled) = (Cell::new(None), Cell::new(false));
            let first = Interrupted::new(one);
            first.before_barrier.set(Some(Box::new(|| {
                on(1, || position.set(queue.insert(other, OTHERS).ok()));
            })));
            first.before_head.set(Some(Box::new(|| {
                let Some(position) = position.get() else { return };
                let waiting = Interrupted::new(other);
                // The first thread's store of the head, which it was about to do.
                waiting.while_waiting.set(Some(Box::new(|| {
                    set_processor(0);
                    one.store(Place::Persistent(HEAD), 2 * LINE);
                    set_processor(1);
                })));
                settled.set(on(1, || queue.settle(&waiting, position, OTHERS.len()).is_ok()));
            })));
            let _ = queue.insert(&first, b"first");
            settled.get()
        },
        is_there,
    )
}

/// One thread inserts and makes nothing durable; the other takes the entry out.
fn takes_out<const UNIT: usize>(design: Design, rules: &Mutations) -> Report {
    two_threads::<UNIT, bool>(
        design,
        rules,
        |queue, one, other| {
            let _ = on(0, || queue.insert(one, b"entry"));
            on(1, || matches!(queue.remove(other), Ok(Some(_))))
        },
        |removed, found| {
            // Recovery has refused a tail before its head already.
            let is_gone = found.entries.is_empty() && found.tail == LINE;
            Violation::unless(is_gone || !removed, || format!("taken out, and found {found:?}"))
        },
    )
}

#[test]
fn a_head_that_another_thread_moved_is_durable_when_an_insert_has_settled() {
    let rules = ["the head is observed when an insert settles"];
    assert_all_caught(&rules, settles_behind::<8>).assert_exhausted();
    assert_all_caught(&rules, settles_behind::<64>).assert_exhausted();
}

#[test]
fn a_head_that_was_waited_for_is_durable_when_an_insert_has_settled() {
    let rules = ["the head that was waited for is observed"];
    assert_all_caught(&rules, settles_before::<8>).assert_exhausted();
    assert_all_caught(&rules, settles_before::<64>).assert_exhausted();
}

#[test]
fn a_head_that_another_thread_moved_is_durable_before_the_tail_that_follows_it() {
    let rules = ["the head is observed when an entry is taken out"];
    for design in [Design::CopyWhileLocked, Design::TwoLock] {
        assert_all_caught(&rules, |rules| takes_out::<8>(design, rules)).assert_exhausted();
        assert_all_caught(&rules, |rules| takes_out::<64>(design, rules)).assert_exhausted();
    }
}

#[test]
fn queue_holes_needs_no_observing_as_a_whole_entry_has_a_durable_head() {
    let rules = Mutations::one("the head is observed when an entry is taken out");
    takes_out::<8>(Design::QueueHoles, &rules).assert_exhausted();
    takes_out::<64>(Design::QueueHoles, &rules).assert_exhausted();
}
