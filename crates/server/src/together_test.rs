use super::*;
use crate::connections::Connections;
use crate::gate::{ReplyQueue, SlotId};
use crate::manual::ManualDriver;
use crate::service::{ConnectionId, Peer, Received, Want};
use crate::settings::TransportSettings;
use tierstone_base::{Now, Seq};
use tierstone_media::sim::SimDevice;
use tierstone_media::{BLOCK_BYTES, Geometry, IoCompletion, IoRequest};

/// Each byte is a request: `.` is answered at once, `s` and `l` when the test says so, `s` soon.
#[derive(Default)]
struct Bytes {
    places: Vec<(ConnectionId, SlotId)>,
    /// How many places the next step fills, and how many it says will take longer.
    fills: usize,
    delays: usize,
}

impl Service for Bytes {
    type Connection = ();

    fn connect(&mut self, _: Now, _: ConnectionId, _: &Peer) -> Result<(), Vec<u8>> {
        Ok(())
    }

    fn receive(
        &mut self,
        _: Now,
        id: ConnectionId,
        (): &mut (),
        input: &[u8],
        output: &mut ReplyQueue,
    ) -> Received {
        for byte in input {
            match byte {
                b'.' => output.push(0, b"."),
                b's' => self.places.push((id, output.reserve_soon())),
                _ => self.places.push((id, output.reserve())),
            }
        }
        Received { consumed: input.len(), want: Want::More { missing: 1 } }
    }

    fn disconnect(&mut self, _: ConnectionId, (): ()) {}

    fn step(
        &mut self,
        _: Now,
        _: &mut Vec<IoCompletion>,
        _: &mut Vec<IoRequest>,
        connections: &mut Connections<()>,
    ) {
        for (id, slot) in self.places.iter().take(std::mem::take(&mut self.delays)) {
            connections.get(*id).unwrap().output.not_soon(*slot);
        }
        for (id, slot) in self.places.drain(..std::mem::take(&mut self.fills)) {
            assert!(connections.get(id).unwrap().output.fill(slot, 0, b"!"));
        }
    }

    fn durable_seq(&self) -> Seq {
        0
    }

    fn next_step_at_us(&self) -> Option<u64> {
        None
    }
}

struct Client {
    driver: ManualDriver<Bytes, SimDevice>,
    index: u32,
    now: Now,
}

impl Client {
    fn new() -> Client {
        let now = Now { monotonic_us: 1_000, wall_ms: 0 };
        let bytes = BLOCK_BYTES as u64;
        let device = SimDevice::plain(Geometry { meta_bytes: bytes, segment_bytes: bytes, segment_limit: 1 });
        let mut driver =
            ManualDriver::new(Bytes::default(), device, TransportSettings::default(), now).unwrap();
        let index = driver.connect(now, &Peer::Unix).unwrap();
        driver.turn(now);
        Client { driver, index, now }
    }

    fn send(&mut self, requests: &str) {
        self.driver.receive(self.now, self.index, requests.as_bytes());
    }

    /// One turn after so many microseconds: what has come.
    fn turn(&mut self, after_us: u64) -> String {
        self.now.monotonic_us += after_us;
        self.driver.turn(self.now);
        let mut output = Vec::new();
        assert!(self.driver.take_output(self.index, &mut output));
        String::from_utf8(output).unwrap()
    }

    fn fill(&mut self, count: usize) {
        self.driver.service_mut().fills = count;
    }
}

#[test]
fn what_comes_soon_is_waited_for_and_sent_together() {
    let mut client = Client::new();
    client.send("..s.s.");
    assert_eq!(client.turn(0), "");
    client.fill(1);
    assert_eq!(client.turn(50), "", "another one is to come");
    client.fill(1);
    assert!(client.driver.next_turn_at_us().unwrap() < client.now.monotonic_us + 1_000);
    assert_eq!(client.turn(50), "..!.!.");
    let next_us = client.driver.next_turn_at_us().unwrap();
    assert!(next_us > client.now.monotonic_us + 1_000, "nobody wakes for those who have their replies");
    client.send("..");
    assert_eq!(client.turn(0), "..", "nothing is to come");
}

#[test]
fn nobody_waits_for_what_comes_late() {
    let mut client = Client::new();
    client.send("..l.");
    assert_eq!(client.turn(0), "..", "it was not said to come soon");
    client.fill(1);
    assert_eq!(client.turn(0), "!.");

    client.send(".s.s");
    client.driver.service_mut().delays = 1;
    assert_eq!(client.turn(0), "", "the second is to come soon still");
    client.driver.service_mut().delays = 2;
    assert_eq!(client.turn(0), ".");
    client.fill(2);
    assert_eq!(client.turn(0), "!.!");
}

#[test]
fn a_wait_ends_after_a_while_and_its_end_is_a_turn_of_its_own() {
    let mut client = Client::new();
    client.send("..s.s");
    assert_eq!(client.turn(0), "");
    let due_us = client.driver.next_turn_at_us().unwrap();
    assert_eq!(due_us, client.now.monotonic_us + TOGETHER_US);
    assert_eq!(client.turn(TOGETHER_US - 1), "");
    assert_eq!(client.turn(1), "..");
    client.fill(1);
    assert_eq!(client.turn(1), "!.", "who has waited for so long waits no more");
    client.fill(1);
    assert_eq!(client.turn(1), "!");
    client.send(".s");
    assert_eq!(client.turn(0), "", "the next ones wait again");
    client.fill(1);
    assert_eq!(client.turn(1), ".!");
}

#[test]
fn many_bytes_wait_for_nothing() {
    let mut client = Client::new();
    client.send(&".".repeat(TOGETHER_BYTES));
    client.send("s");
    assert_eq!(client.turn(0).len(), TOGETHER_BYTES);
}
