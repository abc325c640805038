//! Queues over plain memory: order, wrap, full, threads, and what is refused.

use super::*;
use crate::memory::{Direct, VolatileWords};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use tierstone_base::SeededRandom;
use tierstone_crash::{
    Choices, ExploreSettings, Mutations, Report, SurvivorSettings, Violation, assert_all_caught, explore,
};
use tierstone_media::Guarantee;
use tierstone_media::region::{
    FlushMethod, LineRegion, MappedRegion, Region, RegionSettings, SimRegion, WordRegion,
};
use tierstone_media::sim::set_processor;

fn region(settings: &QueueSettings) -> MappedRegion {
    MappedRegion::anonymous(settings.persistent_bytes(), &RegionSettings::default()).unwrap()
}

/// The payload of entry `number`: a length of its own, and bytes that name it.
fn payload(number: u64) -> Vec<u8> {
    let mut random = SeededRandom::new(number);
    let mut bytes = vec![0; random.below(90) as usize];
    random.fill(&mut bytes);
    bytes
}

#[test]
fn entries_come_out_in_the_order_of_their_inserts_through_many_wraps() {
    for design in Design::ALL {
        let settings = QueueSettings::new(design, 1024, 1);
        let (region, words) = (region(&settings), VolatileWords::new(settings.volatile_bytes()));
        let memory = Direct::new(&region, &words, 0);
        let queue = Queue::create(settings, &memory).unwrap();
        let mut random = SeededRandom::new(3);
        let (mut inserted, mut removed) = (0, 0);
        for _ in 0..3_000 {
            if random.chance(0.5) {
                match queue.insert(&memory, &payload(inserted)) {
                    Ok(_) => inserted += 1,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NoSpace);
                        assert!(
                            inserted - removed >= 6,
                            "{design:?}: full with {} entries",
                            inserted - removed
                        );
                    }
                }
            } else {
                let found = queue.remove(&memory).unwrap().map(|entry| entry.payload);
                let wanted = (removed < inserted).then(|| payload(removed));
                assert_eq!(found, wanted, "{design:?}");
                removed += u64::from(wanted.is_some());
            }
        }
        assert!(inserted > 1_000);
    }
}

#[test]
fn a_full_queue_takes_entries_again_once_some_are_removed() {
    for design in Design::ALL {
        let settings = QueueSettings::new(design, 256, 1);
        let (region, words) = (region(&settings), VolatileWords::new(settings.volatile_bytes()));
        let memory = Direct::new(&region, &words, 0);
        let queue = Queue::create(settings, &memory).unwrap();
        (0..4).for_each(|number: u8| assert!(queue.insert(&memory, &[number; 40]).is_ok()));
        assert_eq!(queue.insert(&memory, &[9; 1]).unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(queue.remove(&memory).unwrap().unwrap().payload, [0; 40]);
        queue.insert(&memory, &[9; 1]).unwrap();
        assert!(queue.insert(&memory, &[9; 1]).is_err());
        assert_eq!(queue.insert(&memory, &[0; 300]).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn eight_threads_insert_and_two_remove_everything_once_and_in_order() {
    for design in Design::ALL {
        let settings = QueueSettings { in_flight: 8, ..QueueSettings::new(design, 4096, 10) };
        let (region, words) = (region(&settings), VolatileWords::new(settings.volatile_bytes()));
        let view = |thread| Direct::new(&region, &words, thread).relaxing(std::thread::yield_now);
        let queue = Queue::create(settings, &view(0)).unwrap();
        let removed = Mutex::new(Vec::new());
        let each = 300u64;
        std::thread::scope(|scope| {
            for thread in 0..10 {
                let (queue, removed) = (&queue, &removed);
                scope.spawn(move || {
                    let memory = view(thread);
                    if thread < 8 {
                        for number in 0..each {
                            let id = (thread as u64) << 32 | number;
                            while queue.insert(&memory, &id.to_le_bytes().repeat(1 + thread)).is_err() {
                                std::thread::yield_now();
                            }
                        }
                        return;
                    }
                    while removed.lock().unwrap().len() < 8 * each as usize {
                        match queue.remove(&memory).unwrap() {
                            Some(entry) => removed.lock().unwrap().push(entry),
                            None => std::thread::yield_now(),
                        }
                    }
                });
            }
        });
        let mut entries = removed.into_inner().unwrap();
        entries.sort_by_key(|entry: &Entry| entry.position);
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for entry in entries {
            let id = u64::from_le_bytes(entry.payload[..8].try_into().unwrap());
            assert!(seen.insert(id), "{design:?}: an entry came twice");
            assert_eq!(entry.payload, id.to_le_bytes().repeat(1 + (id >> 32) as usize), "{design:?}");
            if let Some(before) = last.insert(id >> 32, id) {
                assert!(before < id, "{design:?}: a thread's entries are out of order");
            }
        }
        assert_eq!(seen.len() as u64, 8 * each);
    }
}

#[test]
fn a_queue_in_a_plain_file_comes_back() {
    let path = std::env::temp_dir().join(format!("tierstone-queue-{}", std::process::id()));
    for design in Design::ALL {
        let settings = QueueSettings::new(design, 1024, 1);
        // Durable through msync, as far as the file system is.
        let how = RegionSettings { flush: Some(FlushMethod::Msync), ..RegionSettings::default() };
        let region = MappedRegion::create(&path, settings.persistent_bytes(), &how).unwrap();
        let words = VolatileWords::new(settings.volatile_bytes());
        let memory = Direct::new(&region, &words, 0);
        let queue = Queue::create(settings.clone(), &memory).unwrap();
        for number in 0..5 {
            let position = queue.insert(&memory, &payload(number)).unwrap();
            queue.settle(&memory, position, payload(number).len()).unwrap();
        }
        queue.remove(&memory).unwrap();
        drop(region);
        let region = MappedRegion::open(&path, &how).unwrap();
        let words = VolatileWords::new(settings.volatile_bytes());
        let memory = Direct::new(&region, &words, 0);
        let (queue, found) = Queue::open(settings.clone(), &memory).unwrap();
        let payloads: Vec<_> = found.entries.iter().map(|entry| entry.payload.clone()).collect();
        assert_eq!(payloads, (1..5).map(payload).collect::<Vec<_>>());
        queue.insert(&memory, b"more").unwrap();
        let mut taken = Vec::new();
        while let Some(entry) = queue.remove(&memory).unwrap() {
            taken.push(entry.payload);
        }
        assert_eq!((taken.len(), taken[4].as_slice()), (5, b"more".as_slice()));
        let other = QueueSettings { design: Design::ALL[(design as usize + 1) % 3], ..settings };
        assert_eq!(Queue::open(other, &memory).unwrap_err().kind(), ErrorKind::InvalidInput);
        drop(region);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn bytes_that_are_no_queue_are_refused() {
    assert_eq!(recover(&[0; 100]).unwrap_err().kind(), ErrorKind::Incompatible);
    assert!(recover(&[]).is_err());
    let settings = QueueSettings::new(Design::QueueHoles, 256, 1);
    let (region, words) = (region(&settings), VolatileWords::new(settings.volatile_bytes()));
    let memory = Direct::new(&region, &words, 0);
    let queue = Queue::create(settings.clone(), &memory).unwrap();
    queue.insert(&memory, b"entry").unwrap();
    let mut image = vec![0; settings.persistent_bytes() as usize];
    region.load(0, &mut image);
    assert_eq!(recover(&image).unwrap().entries.len(), 1);
    assert_eq!(recover(&image[..700]).unwrap_err().kind(), ErrorKind::Corrupt);
    // Any byte may be anything: an answer or an error, never a panic.
    let mut random = SeededRandom::new(1);
    for _ in 0..20_000 {
        let mut damaged = image.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(damaged.len() as u64) as usize;
            damaged[at] = random.next_u64() as u8;
        }
        let _ = recover(&damaged);
    }
    let refused = QueueSettings::new(Design::TwoLock, 100, 1);
    assert!(Queue::create(refused, &memory).is_err());
}

/// Two inserts, a remove, an insert into the room that it freed, each acknowledged; power is lost at any step.
/// Among them the crash marks entry-without-head, a-hole and room-still-needed.
/// Then recovery, which is read twice, and another insert.
fn survives<const UNIT: usize>(
    design: Design,
    choices: &Choices,
    region: SimRegion<UNIT>,
) -> std::result::Result<(), Violation> {
    let settings = QueueSettings::new(design, 128, 1);
    let words = VolatileWords::new(settings.volatile_bytes());
    let region = region.with_cuts(choices, 12);
    let memory = Direct::new(&region, &words, 0);
    let bodies: [&[u8]; 3] = [b"the first entry, of more than one word", b"second", b"third entry"];
    let (mut created, mut inserted, mut removed) = (false, 0, 0);
    let mut work = || -> Result<()> {
        let queue = Queue::create(settings.clone(), &memory)?;
        created = true;
        for (number, body) in bodies.into_iter().enumerate() {
            if number == 2 {
                queue.remove(&memory)?;
                removed = 1;
            }
            let position = queue.insert(&memory, body)?;
            queue.settle(&memory, position, body.len())?;
            inserted = number + 1;
        }
        Ok(())
    };
    let _ = work();
    region.lose_power(choices, &SurvivorSettings::default());
    let image = region.image();
    let found = match recover(&image) {
        Ok(found) => found,
        Err(error) => return Violation::unless(!created, || error.to_string()),
    };
    let payloads: Vec<&[u8]> = found.entries.iter().map(|entry| entry.payload.as_slice()).collect();
    let first = usize::from(found.tail > 0);
    let legal = bodies[first..].starts_with(&payloads);
    Violation::unless(legal && first >= removed && first + payloads.len() >= inserted, || {
        format!(
            "{design:?}: {inserted} inserted and {removed} removed for sure, found {first}..: {payloads:?}"
        )
    })?;
    let words = VolatileWords::new(settings.volatile_bytes());
    let memory = Direct::new(&region, &words, 0);
    let Ok((queue, _)) = Queue::open(settings.clone(), &memory) else {
        return Ok(()); // Power was lost again.
    };
    let more = queue.insert(&memory, b"more");
    let settled = more.and_then(|position| queue.settle(&memory, position, 4)).is_ok();
    region.lose_power(choices, &SurvivorSettings::default());
    let again = recover(&region.image()).map_err(|error| Violation::new(error.to_string()))?;
    let kept = again.entries.iter().zip(&found.entries).all(|(after, before)| after == before);
    Violation::unless(kept && again.entries.len() >= found.entries.len() + usize::from(settled), || {
        format!("{design:?}: before {found:?}, after {again:?}")
    })
}

#[test]
fn a_queue_survives_the_loss_of_power_at_every_step_twice() {
    for design in Design::ALL {
        let lines = |choices: &Choices| survives(design, choices, LineRegion::new(640));
        let words = |choices: &Choices| survives(design, choices, WordRegion::new(640));
        explore(ExploreSettings::bounded(3).with_max_runs(10_000), lines).assert_clean();
        explore(ExploreSettings::bounded(3).with_max_runs(10_000), words).assert_clean();
        explore(ExploreSettings::random(7, 10_000), words).assert_clean();
    }
}

/// A queue of `capacity` bytes is full of holes. One thread takes out what there is and another fills it; power is lost
/// at any step, also at the crash mark a-hole. Then twice more, with what that left.
fn holes_go<const UNIT: usize>(
    capacity: u64,
    rules: &Mutations,
    choices: &Choices,
) -> std::result::Result<(), Violation> {
    let settings =
        QueueSettings { rules: rules.clone(), ..QueueSettings::new(Design::QueueHoles, capacity, 2) };
    let violation = |error: Error| Violation::new(error.to_string());
    let new = SimRegion::<UNIT>::new(settings.persistent_bytes());
    set_processor(0);
    let words = VolatileWords::new(settings.volatile_bytes());
    let memory = Direct::new(&new, &words, 0);
    let queue = Queue::create(settings.clone(), &memory).map_err(violation)?;
    for start in (0..capacity).step_by(LINE as usize) {
        queue.insert(&memory, &[9; 40]).map_err(violation)?;
        memory.store(queue.place(end_bit(start, 40)), 0);
    }
    memory.sync().map_err(violation)?;
    let region = new.with_cuts(choices, 12);
    for life in 0..3u8 {
        let words = VolatileWords::new(settings.volatile_bytes());
        let (inserter, remover) = (Direct::new(&region, &words, 0), Direct::new(&region, &words, 1));
        let (queue, found) = Queue::open(settings.clone(), &inserter).map_err(violation)?;
        set_processor(1);
        let mut removed = 0;
        while let Ok(Some(_)) = queue.remove(&remover) {
            removed += 1;
        }
        let all_gone = region.power_is_on();
        set_processor(0);
        let mut settled = 0;
        for number in 0..capacity / LINE {
            let inserted = queue.insert(&inserter, &[life; 40]);
            let is_done = inserted.and_then(|position| queue.settle(&inserter, position, 40)).is_ok();
            settled += u64::from(is_done);
            Violation::unless(is_done || !region.power_is_on(), || {
                format!("life {life}: insert {number} is refused; {found:?}")
            })?;
        }
        let complete = !all_gone || removed == found.entries.len();
        Violation::unless(complete, || format!("life {life}: {removed} of {found:?}"))?;
        region.lose_power(choices, &SurvivorSettings::default());
        let after = recover(&region.image()).map_err(violation)?;
        let is_here = |entry: &&Entry| entry.payload == [life; 40];
        let kept = after.entries.iter().filter(is_here).count() as u64;
        let known = after.entries.iter().all(|entry| is_here(&entry) || found.entries.contains(entry));
        Violation::unless(kept >= settled && known, || {
            format!("life {life}: {settled} settled, before {found:?}, after {after:?}")
        })?;
    }
    Ok(())
}

#[test]
fn room_of_the_holes_of_a_crash_is_used_again_once_the_tail_is_durable() {
    let explored = |capacity, rules: &Mutations| {
        let bounded = ExploreSettings::bounded(2).with_max_runs(6_000);
        let lines = explore(bounded.clone(), |choices| holes_go::<64>(capacity, rules, choices));
        if lines.found.is_some() {
            return lines;
        }
        explore(bounded, |choices| holes_go::<8>(capacity, rules, choices))
    };
    for capacity in [64, 128] {
        assert_all_caught(&["the tail before its room is used again"], |rules| explored(capacity, rules));
    }
}

#[test]
fn a_queue_larger_than_its_region_is_refused_and_leaves_it_as_it_was() {
    for design in Design::ALL {
        let fits = QueueSettings::new(design, 256, 1);
        let (region, words) = (region(&fits), VolatileWords::new(fits.volatile_bytes()));
        let memory = Direct::new(&region, &words, 0);
        let queue = Queue::create(fits.clone(), &memory).unwrap();
        queue.insert(&memory, b"entry").unwrap();
        for capacity_bytes in [320, 1 << 20, u64::MAX / LINE * LINE] {
            let settings = QueueSettings { capacity_bytes, ..fits.clone() };
            let refused = [
                Queue::create(settings.clone(), &memory).map(drop),
                Queue::open(settings, &memory).map(drop),
            ];
            for error in refused.map(Result::unwrap_err) {
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
                assert!(error.message().contains("the region is too small"), "{error}");
            }
        }
        let (_, found) = Queue::open(fits, &memory).unwrap();
        assert_eq!(found.entries.len(), 1);
    }
}

/// A region whose fences fail where `fails` says so of their number, from one.
struct Failing<'a> {
    region: &'a MappedRegion,
    fences: Cell<u32>,
    fails: fn(u32) -> bool,
}

impl Region for Failing<'_> {
    fn bytes(&self) -> u64 {
        self.region.bytes()
    }
    fn guarantee(&self) -> Guarantee {
        self.region.guarantee()
    }
    fn load_word(&self, offset: u64) -> u64 {
        self.region.load_word(offset)
    }
    fn store_word(&self, offset: u64, value: u64) {
        self.region.store_word(offset, value);
    }
    fn compare_exchange_word(&self, offset: u64, old: u64, new: u64) -> std::result::Result<u64, u64> {
        self.region.compare_exchange_word(offset, old, new)
    }
    fn load(&self, offset: u64, into: &mut [u8]) {
        self.region.load(offset, into);
    }
    fn store(&self, offset: u64, bytes: &[u8]) {
        self.region.store(offset, bytes);
    }
    fn store_streaming(&self, offset: u64, bytes: &[u8]) {
        self.region.store_streaming(offset, bytes);
    }
    fn write_back(&self, offset: u64, len: u64) {
        self.region.write_back(offset, len);
    }
    fn fence(&self) -> Result<()> {
        self.fences.set(self.fences.get() + 1);
        match (self.fails)(self.fences.get()) {
            true => Err(Error::new(ErrorKind::DeviceFailed, "the fence failed")),
            false => self.region.fence(),
        }
    }
}

/// Does `work` with an empty queue of `design` over memory that fails; waiting for ever is a panic.
fn over_failing_memory(design: Design, fails: fn(u32) -> bool, work: impl FnOnce(&Queue, &Direct<Failing>)) {
    thread_local! {
        static WAITED: Cell<u32> = const { Cell::new(0) };
    }
    let settings = QueueSettings::new(design, 64 << 10, 1);
    let (region, words) = (region(&settings), VolatileWords::new(settings.volatile_bytes()));
    let queue = Queue::create(settings, &Direct::new(&region, &words, 0)).unwrap();
    let failing = Failing { region: &region, fences: Cell::new(0), fails };
    let memory = Direct::new(&failing, &words, 0).relaxing(|| {
        WAITED.set(WAITED.get() + 1);
        assert!(WAITED.get() < 1_000_000, "waits for what never comes");
    });
    work(&queue, &memory);
}

#[test]
fn inserts_into_memory_that_has_failed_return_its_error_and_do_not_wait_for_each_other() {
    let fails: [fn(u32) -> bool; 3] = [|_| true, |fence| fence >= 8, |fence| fence >= 9];
    for (design, fails) in Design::ALL.into_iter().flat_map(|design| fails.map(|fails| (design, fails))) {
        over_failing_memory(design, fails, |queue, memory| {
            let failed = (0..100).map(|_| queue.insert(memory, b"entry").err().map(|error| error.kind()));
            let failed: Vec<_> = failed.skip_while(Option::is_none).collect();
            assert!(failed.len() > 90 && failed.iter().all(|&kind| kind == Some(ErrorKind::DeviceFailed)));
        });
    }
}

#[test]
fn memory_that_fails_while_an_insert_waits_for_its_head_is_noticed() {
    // The first insert fails for its thread alone at first, so that the second begins to wait for it.
    over_failing_memory(
        Design::TwoLock,
        |fence| fence == 1 || fence > 3,
        |queue, memory| {
            assert!(queue.insert(memory, b"entry").is_err());
            let position = queue.insert(memory, b"entry").unwrap();
            assert_eq!(queue.settle(memory, position, 5).unwrap_err().kind(), ErrorKind::DeviceFailed);
        },
    );
}

/// A queue is made where another one was; power is lost at any step. The old one is whole, or the new one, or none.
fn made_anew<const UNIT: usize>(design: Design, rules: &Mutations) -> Report {
    explore(ExploreSettings::exhaustive().with_max_runs(60_000), |choices: &Choices| {
        let violation = |error: Error| Violation::new(error.to_string());
        let mut settings = QueueSettings::new(design, 256, 1);
        let old = SimRegion::<UNIT>::new(768);
        let words = VolatileWords::new(settings.volatile_bytes());
        let memory = Direct::new(&old, &words, 0);
        let queue = Queue::create(settings.clone(), &memory).map_err(violation)?;
        for _ in 0..3 {
            queue.insert(&memory, b"old").map_err(violation)?;
        }
        queue.remove(&memory).map_err(violation)?;
        old.write_back(0, 768);
        old.fence().map_err(violation)?;
        let before = recover(&old.image()).map_err(violation)?;
        let region = old.with_cuts(choices, 8);
        settings.capacity_bytes = 128;
        settings.rules = rules.clone();
        let words = VolatileWords::new(settings.volatile_bytes());
        let is_made = Queue::create(settings, &Direct::new(&region, &words, 0)).is_ok();
        region.lose_power(choices, &SurvivorSettings::default());
        match recover(&region.image()) {
            Ok(found) if found == before => Violation::unless(!is_made, || "the old queue".to_owned()),
            Ok(found) => Violation::unless(
                found.capacity_bytes == 128 && found.entries.is_empty() && (found.head, found.tail) == (0, 0),
                || format!("{found:?} after {before:?}"),
            ),
            Err(error) => Violation::unless(!is_made && error.kind() == ErrorKind::Incompatible, || {
                format!("{is_made}: {error}")
            }),
        }
    })
}

#[test]
fn a_queue_is_made_whole_or_not_at_all() {
    let rules = ["no queue before a new one", "the queue before its magic", "the magic before the answer"];
    for design in Design::ALL {
        assert_all_caught(&rules, |rules| made_anew::<8>(design, rules));
        assert_all_caught(&rules, |rules| made_anew::<64>(design, rules));
    }
}
