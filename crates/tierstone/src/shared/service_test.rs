use super::super::across::Across;
use super::super::answer::Answer;
use super::super::message::OwnedBatch;
use super::super::sleep::Sleeper;
use super::*;
use crate::simulated::{KEYSPACE, medium, shard};
use std::sync::Weak;
use tierstone_engine::Durability;
use tierstone_media::sim::{Fault, FaultEffect, FaultTarget, FaultWhen};
use tierstone_media::{BlockDevice, SimDevice, SimMedium, Wait};

/// A service with its device; time moves 10 µs a turn.
struct World {
    service: Service,
    device: SimDevice,
    now: Now,
}

impl World {
    fn new(medium: &SimMedium, durability: Durability) -> World {
        let (engine, device) = shard(medium, 1 << 20, durability);
        let now = Now { monotonic_us: 1, wall_ms: 1_000 };
        World { service: Service::new(engine, durability == Durability::Relaxed, now), device, now }
    }

    /// A step that hands requests out and, if `wait`, takes one completion in.
    fn turn(&mut self, wait: bool) -> bool {
        let (mut requests, mut completions, mut events) = (Vec::new(), Vec::new(), Vec::new());
        self.service.engine.take_requests(&mut requests);
        self.device.submit(&mut requests);
        if wait {
            self.device.complete(Wait::One, &mut completions);
        }
        self.now.monotonic_us += 10;
        self.now = self.service.set_now(self.now);
        self.service.engine.step(self.now, &mut completions, &mut events);
        events.drain(..).for_each(|event| self.service.on_event(event));
        self.service.engine.take_requests(&mut requests);
        self.device.submit(&mut requests);
        self.service.retry_stalled();
        let is_shut = self.service.settle();
        self.tell();
        is_shut
    }

    /// Gives the answers that may go out.
    fn tell(&mut self) {
        self.service.take_leaving().into_iter().for_each(Ready::send);
    }

    fn take(&mut self, message: Message) {
        self.service.take(message);
        self.tell();
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Answer<()> {
        let (reply, answer) = Answer::new();
        let OwnedKey { keyspace, position, mut bytes } = self.key(key);
        let key_len = bytes.len();
        bytes.extend_from_slice(value);
        let put =
            super::super::message::OwnedPut { keyspace, position, bytes, key_len, until: Default::default() };
        self.take(Message::Put { put, reply });
        answer
    }

    fn get(&mut self, key: &str) -> Answer<Option<Vec<u8>>> {
        let (reply, answer) = Answer::new();
        let key = self.key(key);
        self.take(Message::Get { key, reply });
        answer
    }

    fn delete(&mut self, key: &str) -> Answer<bool> {
        let (reply, answer) = Answer::new();
        let key = self.key(key);
        self.take(Message::Delete { key, reply });
        answer
    }

    fn key(&self, key: &str) -> OwnedKey {
        let position = self.service.engine.hasher().position(key.as_bytes());
        OwnedKey { keyspace: KEYSPACE, position, bytes: key.as_bytes().to_vec() }
    }
}

/// Whether the answer is there; takes it then.
fn poll<T>(answer: &mut Answer<T>) -> Option<Result<T>> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match Future::poll(std::pin::Pin::new(answer), &mut context) {
        std::task::Poll::Ready(answer) => Some(answer),
        std::task::Poll::Pending => None,
    }
}

#[test]
fn writes_and_the_reads_that_saw_them_are_answered_when_durable_and_share_a_group() {
    let medium = medium(32);
    let mut world = World::new(&medium, Durability::Sync);
    let mut puts: Vec<_> = (0..20).map(|number| world.put(&format!("key:{number}"), b"value")).collect();
    let (mut seen, mut absent) = (world.get("key:7"), world.get("nothing"));
    let mut deleted = world.delete("key:8");
    world.turn(false);
    assert!(puts.iter_mut().all(|answer| poll(answer).is_none()));
    assert!(poll(&mut seen).is_none() && poll(&mut absent).is_none() && poll(&mut deleted).is_none());
    while poll(&mut deleted).is_none_or(|answer| !answer.unwrap()) {
        world.turn(true);
    }
    assert!(puts.iter_mut().all(|answer| poll(answer).unwrap().is_ok()));
    assert_eq!(poll(&mut seen).unwrap().unwrap().unwrap(), b"value");
    assert_eq!(poll(&mut absent).unwrap().unwrap(), None);
    assert_eq!(world.service.engine.statistics().groups, 1);
    // Everything is durable: a read does not wait.
    assert_eq!(poll(&mut world.get("key:9")).unwrap().unwrap().unwrap(), b"value");
}

#[test]
fn in_relaxed_the_gate_is_open_and_a_sync_still_waits() {
    let medium = medium(32);
    let mut world = World::new(&medium, Durability::Relaxed);
    assert!(poll(&mut world.put("key", b"value")).unwrap().is_ok());
    assert_eq!(poll(&mut world.get("key")).unwrap().unwrap().unwrap(), b"value");
    let (reply, mut synced) = Answer::new();
    world.take(Message::Sync { reply });
    world.turn(false);
    assert!(poll(&mut synced).is_none());
    while poll(&mut synced).is_none() {
        world.turn(true);
    }
    assert_eq!(world.service.engine.durable_seq(), world.service.engine.applied_seq());
}

#[test]
fn a_failed_write_is_told_to_everybody_who_waits_and_to_everybody_who_comes() {
    let medium = medium(32);
    let mut world = World::new(&medium, Durability::Sync);
    let mut kept = world.put("kept", b"1");
    while poll(&mut kept).is_none() {
        world.turn(true);
    }
    medium
        .inject(Fault { when: FaultWhen::Nth(0), ..Fault::new(FaultTarget::Durability, FaultEffect::Fail) });
    let (mut put, mut read) = (world.put("lost", b"2"), world.get("lost"));
    while poll(&mut put).is_none_or(|answer| answer.unwrap_err().kind() != ErrorKind::DeviceFailed) {
        world.turn(true);
    }
    assert_eq!(poll(&mut read).unwrap().unwrap_err().kind(), ErrorKind::DeviceFailed);
    assert_eq!(poll(&mut world.get("kept")).unwrap().unwrap_err().kind(), ErrorKind::DeviceFailed);
    assert_eq!(poll(&mut world.put("kept", b"3")).unwrap().unwrap_err().kind(), ErrorKind::DeviceFailed);
    let (reply, mut closed) = Answer::new();
    world.take(Message::Close { reply });
    assert_eq!(poll(&mut closed).unwrap().unwrap_err().kind(), ErrorKind::DeviceFailed);
}

#[test]
fn overwriting_records_on_the_device_reads_them_at_the_same_time() {
    let medium = medium(32);
    let mut world = World::new(&medium, Durability::Sync);
    for number in 0..50 {
        drop(world.put(&format!("key:{number}"), &[1; 200]));
    }
    let (reply, closed) = Answer::new();
    world.take(Message::Close { reply });
    while !world.turn(true) {}
    closed.wait().unwrap();
    let mut world = World::new(&medium, Durability::Sync);
    let mut puts: Vec<_> = (0..50).map(|number| world.put(&format!("key:{number}"), b"new")).collect();
    world.turn(false);
    assert!(world.device.in_flight() >= 50, "{} reads are under way", world.device.in_flight());
    let mut turns = 0;
    while !puts.is_empty() {
        world.turn(true);
        puts.retain_mut(|answer| poll(answer).map(Result::unwrap).is_none());
        turns += 1;
        assert!(turns < 1_000);
    }
    assert_eq!(poll(&mut world.get("key:49")).unwrap().unwrap().unwrap(), b"new");
}

/// The medium of a shard that was closed with 50 keys on it, so that none is in memory afterwards.
fn filled() -> SimMedium {
    let medium = medium(32);
    let mut world = World::new(&medium, Durability::Sync);
    for number in 0..50 {
        drop(world.put(&format!("key:{number}"), b"old"));
    }
    let (reply, closed) = Answer::new();
    world.take(Message::Close { reply });
    while !world.turn(true) {}
    closed.wait().unwrap();
    medium
}

/// Writes that wait for their old records, and parts that wait for other shards, were sent before a sync as well.
#[test]
fn a_sync_waits_for_writes_that_are_not_applied_yet() {
    for durability in [Durability::Sync, Durability::Relaxed] {
        let medium = filled();
        let mut world = World::new(&medium, durability);
        let mut puts: Vec<_> = (0..50).map(|number| world.put(&format!("key:{number}"), b"new")).collect();
        let (_sleeper, waker) = Sleeper::new().unwrap();
        let (reply, _written) = Answer::new();
        let mut seats = Across::seats(1, vec![Arc::clone(&waker), waker], reply);
        let (batch, seat) = (OwnedBatch::default(), seats.remove(0));
        world.take(Message::Part { batch, seat });
        let (reply, mut synced) = Answer::new();
        world.take(Message::Sync { reply });
        let later = world.put("key:3", b"later");
        while puts.iter_mut().any(|answer| poll(answer).is_none_or(|answer| answer.is_err())) {
            puts.retain_mut(|answer| poll(answer).is_none());
            assert!(poll(&mut synced).is_none(), "a write is not applied");
            world.turn(true);
        }
        for _ in 0..20 {
            world.service.advance_parts();
            world.turn(false);
        }
        assert!(poll(&mut synced).is_none(), "a part is not written");
        // The other shard cannot take its part: the batch is over.
        drop(seats);
        while poll(&mut synced).is_none_or(|answer| answer.is_err()) {
            world.service.advance_parts();
            world.turn(true);
        }
        drop(later);
    }
}

#[test]
fn a_closing_waits_for_writes_that_are_not_applied_yet() {
    let medium = filled();
    let mut world = World::new(&medium, Durability::Sync);
    let mut puts: Vec<_> = (0..50).map(|number| world.put(&format!("key:{number}"), b"new")).collect();
    let (reply, closed) = Answer::new();
    world.take(Message::Close { reply });
    while !world.turn(true) {}
    closed.wait().unwrap();
    assert!(puts.iter_mut().all(|answer| poll(answer).unwrap().is_ok()), "a write was refused");
    let mut world = World::new(&medium, Durability::Sync);
    let mut read = world.get("key:49");
    let value = loop {
        world.turn(true);
        if let Some(value) = poll(&mut read) {
            break value.unwrap();
        }
    };
    assert_eq!(value.unwrap(), b"new");
}

#[test]
fn a_closing_that_is_refused_leaves_a_store_that_takes_no_writes() {
    let medium = filled();
    let mut world = World::new(&medium, Durability::Sync);
    let mut parked = world.put("key:7", b"new");
    let (reply, closed) = Answer::new();
    world.take(Message::Close { reply });
    world.service.refuse_writers(&Error::new(ErrorKind::NoSpace, "no room"));
    assert_eq!(closed.wait().unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(poll(&mut world.put("another", b"1")).unwrap().unwrap_err().kind(), ErrorKind::Busy);
    while poll(&mut parked).is_none() {
        world.turn(true);
    }
    let (reply, closed) = Answer::new();
    world.take(Message::Close { reply });
    while !world.turn(true) {}
    closed.wait().unwrap();
}

/// From its part of a cut until the other shard has taken its own, a shard applies nothing: neither
/// messages nor writes that waited for a record or for room.
#[test]
fn a_shard_applies_nothing_between_its_part_of_a_cut_and_the_whole() {
    let (one_medium, other_medium) = (filled(), filled());
    let mut one = World::new(&one_medium, Durability::Sync);
    let mut other = World::new(&other_medium, Durability::Sync);
    let (_sleeper, waker) = Sleeper::new().unwrap();
    let mut shares = Cut::shares(2, vec![Arc::clone(&waker), waker]);
    // A write that must read an old record first, and one behind it that waits for its turn.
    let mut parked = one.put("key:7", b"new");
    let (reply, mut taken) = Answer::new();
    one.take(Message::Snapshot { share: shares.pop().unwrap(), store: Weak::new(), reply });
    let at_cut = one.service.engine.applied_seq();
    for _ in 0..20 {
        one.turn(true);
        assert!(!one.service.end_hold());
        assert!(!one.service.is_open_for_more(), "messages are taken before the cut is whole");
    }
    assert_eq!(one.service.engine.applied_seq(), at_cut, "a write was applied before the cut was whole");
    assert!(poll(&mut parked).is_none());
    let (reply, _other_taken) = Answer::new();
    other.take(Message::Snapshot { share: shares.pop().unwrap(), store: Weak::new(), reply });
    assert!(one.service.end_hold() && one.service.is_open_for_more());
    while poll(&mut parked).is_none_or(|answer| answer.is_err()) {
        one.turn(true);
    }
    assert!(one.service.engine.applied_seq() > at_cut);
    let snapshot = poll(&mut taken).unwrap().unwrap().keep().unwrap();
    let (reply, mut read) = Answer::new();
    let keys = vec![one.key("key:7"), one.key("nothing")];
    one.take(Message::GetAt { snapshot, keys, reply });
    let values = loop {
        one.turn(true);
        if let Some(values) = poll(&mut read) {
            break values.unwrap();
        }
    };
    assert_eq!(values, [Some(b"old".to_vec()), None]);
}

#[test]
fn a_snapshot_is_given_out_when_all_that_it_shows_is_durable() {
    let medium = medium(32);
    let mut world = World::new(&medium, Durability::Sync);
    let mut put = world.put("key", b"value");
    let (reply, mut taken) = Answer::new();
    let share = Cut::shares(1, vec![Sleeper::new().unwrap().1]).pop().unwrap();
    world.take(Message::Snapshot { share, store: Weak::new(), reply });
    assert!(poll(&mut taken).is_none(), "nothing is durable yet");
    while poll(&mut put).is_none() {
        world.turn(true);
    }
    poll(&mut taken).unwrap().unwrap();
}

#[test]
fn a_record_that_is_refused_ends_the_load_that_it_is_of_and_no_other() {
    let medium = medium(32);
    let mut world = World::new(&medium, Durability::Sync);
    let mut load = |number: u64, value: &[u8]| {
        let mut stage = Stage::new(KEYSPACE, number);
        for name in 0..10u64 {
            let key = world.key(&format!("load:{number}:{name}"));
            stage.push(key.position, &key.bytes, value, Default::default());
        }
        let (reply, answer) = Answer::new();
        world.take(Message::Load { stage, reply });
        answer
    };
    // More than a segment of 128 KiB takes.
    let (mut one, mut bad, mut more) = (load(1, b"one"), load(2, &[0; 40_000]), load(2, b"more"));
    let mut other = load(3, b"other");
    while world.service.advance_loads() {}
    assert_eq!(poll(&mut one).unwrap().unwrap().loaded().records, 10);
    assert_eq!(poll(&mut bad).unwrap().unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(poll(&mut more).unwrap().unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(poll(&mut other).unwrap().unwrap().loaded().records, 10);
}
