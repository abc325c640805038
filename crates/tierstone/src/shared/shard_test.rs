use super::super::across::{Across, Seat};
use super::super::answer::{Answer, Reply};
use super::super::cut::{Cut, Taken};
use super::super::message::{OwnedBatch, OwnedKey, OwnedPut};
use super::super::sleep::Sleeper;
use super::super::thread::ShardThread;
use super::*;
use crate::database::{Database, DatabaseOptions};
use crate::plain::later;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use tierstone_base::KeyspaceId;
use tierstone_media::file::{DurableMethod, FileBackend};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A shard on files whose thread does something only when the test says so.
struct World {
    directory: PathBuf,
    _database: Database,
    keyspace: KeyspaceId,
    shard: Arc<Shard>,
    thread: ShardThread,
    mailbox: Sender<Message>,
    waker: Arc<Waker>,
}

impl World {
    fn new() -> World {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tierstone-shard-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let options = DatabaseOptions {
            segment_bytes: Some(256 << 10),
            capacity_bytes: Some(16 << 20),
            memory_bytes: 4 << 20,
            durable_method: Some(DurableMethod::DurableWrite),
            backend: FileBackend::Threads,
            ..DatabaseOptions::new(&directory)
        };
        let mut database = Database::open(&options).unwrap();
        let plan = database.take_plans().pop().unwrap();
        let mut device = database.device().unwrap();
        let (engine, _) = plan.build(&mut device).unwrap();
        let keyspace =
            crate::named::resolve(&database.facts().map, crate::batch::KeyspaceName::Number(0)).unwrap();
        let files = database.storage().caller(DurableMethod::DurableWrite).unwrap();
        let clock = SystemClock::new();
        let (mut sleeper, waker) = Sleeper::new().unwrap();
        sleeper.watch(device.wake_descriptor().unwrap()).unwrap();
        let (shard, left) = Shard::new();
        let shard = Arc::new(shard);
        shard.open(Service::new(engine, false, later(Now::default(), clock.now())), files, clock);
        let (mailbox, messages) = crossbeam_channel::unbounded();
        let thread = ShardThread {
            shard: Arc::clone(&shard),
            device,
            clock,
            mailbox: messages,
            left,
            sleeper,
            requests: Vec::new(),
            completions: Vec::new(),
            idle_since_us: None,
            given: Vec::new(),
        };
        let mut world = World { directory, _database: database, keyspace, shard, thread, mailbox, waker };
        // Segments are made ready for the first writes.
        let (put, answer) = world.put("first", b"first");
        world.mailbox.send(put).unwrap();
        while !answer.is_there() {
            world.turn();
        }
        world.rest();
        world
    }

    /// One turn of the shard's thread, without its sleep.
    fn turn(&mut self) -> bool {
        let shard = Arc::clone(&self.shard);
        let inside = shard.enter().unwrap();
        self.thread.turn_once(&shard, inside)
    }

    /// Turns until the thread has nothing more to do.
    fn rest(&mut self) {
        let mut idle = 0;
        while idle < 100 {
            idle = if self.turn() { 0 } else { idle + 1 };
            std::thread::yield_now();
        }
    }

    fn put(&self, key: &str, value: &[u8]) -> (Message, Answer<()>) {
        let (reply, answer) = Answer::new();
        let OwnedKey { keyspace, position, mut bytes } = self.key(key);
        let key_len = bytes.len();
        bytes.extend_from_slice(value);
        (
            Message::Put {
                put: OwnedPut { keyspace, position, bytes, key_len, until: Default::default() },
                reply,
            },
            answer,
        )
    }

    fn get(&self, key: &str) -> (Message, Answer<Option<Vec<u8>>>) {
        let (reply, answer): (Reply<_>, _) = Answer::new();
        (Message::Get { key: self.key(key), reply }, answer)
    }

    fn key(&self, key: &str) -> OwnedKey {
        let position = self.inside(|inside| inside.service.engine.hasher().position(key.as_bytes()));
        OwnedKey { keyspace: self.keyspace, position, bytes: key.as_bytes().to_vec() }
    }

    fn inside<T>(&self, look: impl FnOnce(&mut Inside) -> T) -> T {
        look(self.shard.enter().unwrap().as_mut().unwrap())
    }

    /// Carries a write in and comes out with the write of its group, which is not done yet.
    fn begin(&self, write: Message, caller: &Caller) -> IoRequest {
        self.inside(|inside| {
            inside.service.take(write);
            let now = inside.service.set_now(inside.clock.now());
            inside.turn(now);
            inside.leave(true, caller, &self.shard.left).own.unwrap()
        })
    }

    /// Sends a part of a batch over two shards, the other of which has not voted as long as its seat lives.
    fn send_part(&self) -> (Seat, Answer<()>) {
        let (reply, answer) = Answer::new();
        let mut seats = Across::seats(1, vec![Arc::clone(&self.waker); 2], reply);
        let OwnedKey { keyspace, position, bytes } = self.key("other");
        let mut batch = OwnedBatch::default();
        batch.batch.put(&bytes, b"value");
        batch.places.push((keyspace, position, Default::default()));
        self.mailbox.send(Message::Part { batch, seat: seats.pop().unwrap() }).unwrap();
        (seats.pop().unwrap(), answer)
    }

    fn carry_in(&self, message: Message, caller: &Caller) -> bool {
        self.shard.carry_in(message, || self.mailbox.is_empty(), &self.waker, caller).is_none()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn waiter(caller: &Caller) -> &Arc<Waiter> {
    match caller {
        Caller::WaitsForWrite(waiter) => waiter,
        Caller::GoesOn | Caller::Waits => panic!("it does not wait for a write"),
    }
}

#[test]
fn a_caller_that_waits_is_served_without_the_thread() {
    let world = World::new();
    for number in 0..20 {
        let (put, answer) = world.put("key", &[number; 100]);
        assert!(world.carry_in(put, &Caller::writes()));
        answer.wait().unwrap();
        let (get, answer) = world.get("key");
        assert!(world.carry_in(get, &Caller::GoesOn));
        assert!(answer.is_there());
        assert_eq!(answer.wait().unwrap().unwrap(), [number; 100]);
    }
    assert!(world.thread.left.is_empty(), "the thread was left a request");
}

#[test]
fn a_caller_that_goes_on_leaves_requests_to_the_thread() {
    let mut world = World::new();
    let (put, answer) = world.put("key", b"value");
    assert!(world.carry_in(put, &Caller::GoesOn));
    assert!(!answer.is_there() && !world.thread.left.is_empty());
    while !answer.is_there() {
        world.turn();
    }
    answer.wait().unwrap();
}

#[test]
fn nothing_is_carried_past_a_message_in_the_mailbox_or_into_a_shard_that_waits() {
    let mut world = World::new();
    let (first, answer) = world.put("key", b"first");
    world.mailbox.send(first).unwrap();
    let (second, _) = world.put("key", b"second");
    assert!(!world.carry_in(second, &Caller::writes()), "it overtook a message");
    while !answer.is_there() {
        world.turn();
    }
    world.rest();
    let (cut, waker) =
        (super::super::cut::Cut::shares(2, vec![Arc::clone(&world.waker); 2]), Arc::clone(&world.waker));
    let mut shares = cut.into_iter();
    let (reply, _taken) = Answer::new();
    let message = Message::Snapshot { share: shares.next().unwrap(), store: std::sync::Weak::new(), reply };
    world.mailbox.send(message).unwrap();
    waker.wake();
    world.turn();
    let (put, _) = world.put("key", b"third");
    assert!(!world.carry_in(put, &Caller::writes()), "a write was applied before the cut was whole");
    drop(shares);
    world.rest();
    let (put, answer) = world.put("key", b"fourth");
    assert!(world.carry_in(put, &Caller::writes()));
    answer.wait().unwrap();
}

#[test]
fn the_write_of_a_group_goes_to_one_who_waits_for_it() {
    let world = World::new();
    let (leader, follower) = (Caller::writes(), Caller::writes());
    let (first, first_answer) = world.put("one", b"1");
    let (second, second_answer) = world.put("two", b"2");
    // The first one's group is being written when the second one comes.
    let request = world.begin(first, &leader);
    let files = world.inside(|inside| inside.files.clone());
    assert!(world.carry_in(second, &follower));
    assert!(!first_answer.is_there() && !second_answer.is_there());
    assert!(waiter(&follower).take().is_none(), "there is nothing to write yet");
    world.shard.carry_out(request, &files, (&world.waker, &leader));
    assert!(first_answer.is_there(), "the first group is written");
    assert!(!second_answer.is_there());
    let request = waiter(&follower).take().expect("the second group was closed and given away");
    assert_eq!(request.kind, IoKind::WriteDurable);
    world.shard.lead(request, &world.waker, &follower);
    second_answer.wait().unwrap();
    assert!(world.thread.left.is_empty());
}

#[test]
fn the_group_that_the_thread_ends_is_followed_by_one_that_a_caller_writes() {
    let mut world = World::new();
    let (first, first_answer) = world.put("one", b"1");
    assert!(world.carry_in(first, &Caller::GoesOn), "its group is the thread's");
    let follower = Caller::writes();
    let (second, second_answer) = world.put("two", b"2");
    assert!(world.carry_in(second, &follower));
    while !first_answer.is_there() {
        world.turn();
    }
    let request = waiter(&follower).take().expect("the second group was given away");
    assert_eq!(request.kind, IoKind::WriteDurable);
    assert_eq!(world.inside(|inside| inside.service.guests), 1);
    world.rest();
    assert!(!second_answer.is_there(), "nobody has written it");
    world.shard.lead(request, &world.waker, &follower);
    second_answer.wait().unwrap();
    assert_eq!(world.inside(|inside| inside.service.guests), 0);
}

#[test]
fn what_a_caller_brings_to_a_shard_that_stands_still_waits_for_the_thread() {
    let mut world = World::new();
    let caller = Caller::writes();
    let (put, answer) = world.put("key", b"value");
    let request = world.begin(put, &caller);
    let (seat, _batch_answer) = world.send_part();
    while !world.inside(|inside| inside.service.stands_still()) {
        world.turn();
    }
    let files = world.inside(|inside| inside.files.clone());
    world.shard.carry_out(request, &files, (&world.waker, &caller));
    assert!(!answer.is_there());
    assert_eq!(world.inside(|inside| inside.returned.len()), 1);
    drop(seat);
    while !answer.is_there() {
        world.turn();
    }
    answer.wait().unwrap();
}

#[test]
fn a_request_that_nobody_has_time_for_comes_to_the_thread() {
    let mut world = World::new();
    let (put, answer) = world.put("key", b"value");
    let request = world.begin(put, &Caller::writes());
    world.shard.hand_on(request, &world.waker);
    while !answer.is_there() {
        world.turn();
    }
    answer.wait().unwrap();
    assert_eq!(world.inside(|inside| inside.service.guests), 0);
}

#[test]
fn a_shard_that_has_ended_gives_messages_back() {
    let world = World::new();
    let (put, _) = world.put("key", b"value");
    world.shard.end();
    let message = world.shard.carry_in(put, || true, &world.waker, &Caller::writes());
    assert!(message.is_some());
    assert!(world.shard.enter().is_none());
}

/// A cut of both worlds as one caller takes it; what was given back.
fn cut_together(worlds: [&World; 2]) -> (Vec<Answer<Taken>>, Option<Vec<Message>>) {
    let ends = worlds.map(|world| Mailbox {
        sender: world.mailbox.clone(),
        waker: Arc::clone(&world.waker),
        shard: Arc::clone(&world.shard),
    });
    let message = |share| {
        let (reply, answer) = Answer::new();
        (Message::Snapshot { share, store: std::sync::Weak::new(), reply }, answer)
    };
    let (messages, answers) = Cut::shares(2, Vec::new()).into_iter().map(message).unzip();
    let back = carry_in_together(&ends, messages);
    (answers, back)
}

#[test]
fn a_cut_of_shards_that_rest_is_taken_without_their_threads() {
    let (one, mut other) = (World::new(), World::new());
    let (answers, back) = cut_together([&one, &other]);
    assert!(back.is_none());
    assert!(answers.iter().all(Answer::is_there), "all that is shown is durable already");
    let ids = answers.into_iter().filter_map(|answer| answer.wait().unwrap().keep());
    assert_eq!(ids.count(), 2);
    assert!([&one, &other].iter().all(|world| world.thread.left.is_empty()));
    // Neither waits for anything.
    let (put, answer) = one.put("key", b"value");
    assert!(one.carry_in(put, &Caller::writes()));
    answer.wait().unwrap();
    // What is not durable yet is so before anybody hears of the cut that shows it.
    let writer = Caller::writes();
    let (put, put_answer) = other.put("key", b"value");
    let request = other.begin(put, &writer);
    let (mut answers, back) = cut_together([&one, &other]);
    assert!(back.is_none());
    let (late, early) = (answers.pop().unwrap(), answers.pop().unwrap());
    assert!(early.is_there() && !late.is_there());
    other.shard.hand_on(request, &other.waker);
    while !late.is_there() {
        other.turn();
    }
    put_answer.wait().unwrap();
    late.wait().unwrap();
}

#[test]
fn a_cut_is_left_to_the_threads_where_one_has_something_to_do_first() {
    let (one, mut other) = (World::new(), World::new());
    let gives_back = |other: &World| {
        let (answers, back) = cut_together([&one, other]);
        assert!(!answers.iter().any(Answer::is_there));
        assert_eq!(back.map_or(0, |messages| messages.len()), 2);
        assert!(!one.inside(|inside| inside.service.is_holding()), "nothing was taken");
    };
    // Somebody is inside.
    let inside = other.shard.enter().unwrap();
    gives_back(&other);
    drop(inside);
    // A message lies in the mailbox.
    let (put, answer) = other.put("key", b"value");
    other.mailbox.send(put).unwrap();
    gives_back(&other);
    while !answer.is_there() {
        other.turn();
    }
    other.rest();
    // A part of a batch waits.
    let (seat, _batch_answer) = other.send_part();
    while !other.inside(|inside| inside.service.has_part()) {
        other.turn();
    }
    gives_back(&other);
    drop(seat);
    other.rest();
    assert!(cut_together([&one, &other]).1.is_none());
}
