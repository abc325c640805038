use super::*;
use crate::null::NullService;
use crate::reactor::Sending;
use crate::service::Peer;
use crate::settings::TransportSettings;
use crate::turn::Flow;
use tierstone_base::{Now, Result};
use tierstone_media::{IoCompletion, IoRequest};

/// Bytes that arrive at a time.
const RECEIVED_BYTES: usize = 16 << 10;
const MAX_BYTES: usize = 1 << 20;
const VALUE_BYTES: usize = 200_000;

/// Clients that send requests, and what they got.
#[derive(Default)]
struct Clients {
    unsent: Vec<Vec<u8>>,
    is_receiving: Vec<bool>,
    is_closed: Vec<bool>,
    got: Vec<Vec<u8>>,
}

impl Reactor for Clients {
    fn wait(&mut self, _timeout_us: Option<u64>) -> Result<()> {
        Ok(())
    }

    fn dispatch<S: Service>(&mut self, _turn: &mut Turn<S>) {}

    fn send(&mut self, index: u32, buffer: Vec<u8>) -> Sending {
        self.got[index as usize].extend_from_slice(&buffer);
        Sending::Done(buffer)
    }

    fn resume_receive(&mut self, index: u32) {
        self.is_receiving[index as usize] = true;
    }

    fn close(&mut self, index: u32) {
        self.is_closed[index as usize] = true;
    }

    fn stop_listening(&mut self) {}

    fn submit(&mut self, _requests: &mut Vec<IoRequest>, _completions: &mut Vec<IoCompletion>) {}
}

struct World {
    turn: Turn<NullService>,
    clients: Clients,
    excess_max: usize,
}

impl World {
    fn new() -> World {
        let settings = TransportSettings { buffer_bytes_max: MAX_BYTES, ..TransportSettings::default() };
        let turn = Turn::new(NullService::new(10), settings, Now::default());
        World { turn, clients: Clients::default(), excess_max: 0 }
    }

    fn connect(&mut self, unsent: Vec<u8>) -> usize {
        let index = self.clients.unsent.len();
        assert!(matches!(self.turn.accepted(index as u32, &Peer::Unix, false), crate::turn::Admission::Open));
        self.clients.unsent.push(unsent);
        self.clients.is_receiving.push(true);
        self.clients.is_closed.push(false);
        self.clients.got.push(Vec::new());
        index
    }

    /// Everybody who may sends something, then a turn is taken; `us` pass.
    fn step(&mut self, us: u64) {
        self.turn.now.monotonic_us += us;
        for index in 0..self.clients.unsent.len() {
            let unsent = &mut self.clients.unsent[index];
            if unsent.is_empty() || !self.clients.is_receiving[index] || self.clients.is_closed[index] {
                continue;
            }
            let come: Vec<u8> = unsent.drain(..unsent.len().min(RECEIVED_BYTES)).collect();
            self.clients.is_receiving[index] = self.turn.received(index as u32, &come) == Flow::Go;
        }
        self.turn.finish(&mut self.clients);
        self.excess_max = self.excess_max.max(self.turn.connections.excess_bytes());
    }

    fn answered(&self) -> usize {
        self.clients.got.iter().filter(|got| **got == b"+OK\r\n").count()
    }
}

fn request() -> Vec<u8> {
    let header = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${VALUE_BYTES}\r\n");
    [header.as_bytes(), &vec![b'v'; VALUE_BYTES], b"\r\n"].concat()
}

fn half() -> Vec<u8> {
    let mut bytes = request();
    bytes.truncate(VALUE_BYTES - 5_000);
    bytes
}

#[test]
fn large_requests_wait_for_each_other_and_all_are_answered() {
    let mut world = World::new();
    for _ in 0..60 {
        world.connect(request());
    }
    for _ in 0..2_000 {
        world.step(10);
    }
    assert_eq!(world.answered(), 60);
    // The bound, the same for those that go on above it, and what came in one turn before anybody waited.
    let most = 2 * MAX_BYTES + 60 * 2 * RECEIVED_BYTES;
    assert!(world.excess_max > MAX_BYTES, "nobody had to wait: {}", world.excess_max);
    assert!(world.excess_max <= most, "{} bytes were held", world.excess_max);
    assert_eq!(world.turn.connections.excess_bytes(), 0, "something is counted for ever");
    assert!(world.turn.line.waiting.is_empty());
}

#[test]
fn small_requests_pass_those_that_wait() {
    let mut world = World::new();
    assert_eq!(world.turn.output_full_bytes(), 1 << 20);
    for _ in 0..60 {
        world.connect(half());
    }
    (0..200).for_each(|_| world.step(10));
    assert!(world.turn.is_memory_short() && world.turn.line.waiting.len() > 20);
    assert!(world.turn.output_full_bytes() <= SMALL_BYTES, "replies are held as ever");
    let small = world.connect(b"*1\r\n$4\r\nPING\r\n".repeat(20));
    world.step(10);
    assert_eq!(world.clients.got[small], b"+PONG\r\n".repeat(20));
}

#[test]
fn who_sends_nothing_while_others_wait_is_closed_and_they_are_served() {
    let mut world = World::new();
    for _ in 0..30 {
        world.connect(half());
    }
    (0..50).for_each(|_| world.step(10));
    let whole: Vec<usize> = (0..5).map(|_| world.connect(request())).collect();
    for _ in 0..80 {
        world.step(PATIENCE_US / 4);
        (0..20).for_each(|_| world.step(10));
    }
    assert_eq!(world.answered(), 5, "those that send all are served");
    assert!(whole.iter().all(|index| !world.clients.is_closed[*index]));
    assert!(!world.turn.is_memory_short());
    // Now nobody waits, and who has sent a half may take his time.
    let left = world.clients.is_closed.iter().filter(|closed| !**closed).count();
    assert!((6..35).contains(&left), "{left} are left");
    (0..100).for_each(|_| world.step(PATIENCE_US));
    assert_eq!(world.clients.is_closed.iter().filter(|closed| !**closed).count(), left);
}

#[test]
fn a_request_above_the_limit_ends_its_connection_only() {
    let mut world = World::new();
    world.turn.settings.input_limit_bytes = 100_000;
    let (large, small) = (world.connect(request()), world.connect(b"PING\r\n".to_vec()));
    (0..20).for_each(|_| world.step(10));
    assert!(world.clients.is_closed[large] && !world.clients.is_closed[small]);
    assert_eq!(world.clients.got[small], b"+PONG\r\n");
    assert_eq!(world.turn.connections.report().connections_over_input_limit, 1);
}
