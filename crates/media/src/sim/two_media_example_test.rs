//! A complete exploration of a structure on two media: a redo log in persistent memory, and the blocks that it
//! protects on a device. `docs/design/crash-explorer.md` points here.
//!
//! A transaction sets two keys, each in a block of its own, both or neither. It is acknowledged when its redo record
//! is durable in the region; the blocks are written later and the log is truncated then. The log has room for one
//! record.
//!
//! Rules of order, each with a mutation that removes it: [`RULES`].

use super::device_test::{geometry, run_one};
use super::*;
use crate::region::{Region, SimRegion, WORD_BYTES};
use crate::{BLOCK_BYTES, IoBuffer, IoRequest};
use std::collections::BTreeMap;
use tierstone_base::codec::Reader;
use tierstone_crash::{
    Choices, DurableOrder, ExploreSettings, Mutations, Oracle, Report, SECTOR_BYTES, Violation,
    assert_all_caught, explore,
};

const BLOCK: u64 = BLOCK_BYTES as u64;
const KEYS: u64 = 2;

/// Where the words of the log are, each in a line of its own: the newest record, the newest that is not needed any
/// more, and the record: its number and the value of each key.
const NEWEST: u64 = 0;
const TRUNCATED: u64 = 64;
const RECORD: u64 = 128;

const RULES: [&str; 8] = [
    "the record is written back",
    "the record before the word that publishes it",
    "the publishing word before the answer",
    "the record published before its blocks are written",
    "the blocks durable before the log is truncated",
    "the log truncated before its room is used again",
    "the blocks redone durable before the log is truncated",
    "a block of two sectors is not trusted before it is redone",
];

/// The toy. Block `key` of the device holds the value of the key twice, in its first two sectors.
struct RedoLog<'a, const UNIT: usize> {
    region: SimRegion<UNIT>,
    device: SimDevice,
    rules: &'a Mutations,
    newest: u64,
}

impl<'a, const UNIT: usize> RedoLog<'a, UNIT> {
    /// Recovers: redoes what the log still has, then truncates it.
    fn open(life: MachineLife<UNIT>, rules: &'a Mutations) -> Result<(Self, BTreeMap<u64, u64>), Violation> {
        let MachineLife { region, mut devices, .. } = life;
        let device = devices.pop().ok_or("a machine with one device")?;
        let newest = region.load_word(NEWEST);
        let mut log = RedoLog { region, device, rules, newest };
        if log.region.load_word(TRUNCATED) < newest {
            log.redo()?;
            log.truncate()?;
        }
        let mut contents = BTreeMap::new();
        for key in 0..KEYS {
            let [head, tail] = log.read(key)?;
            Violation::unless(head == tail, || format!("block {key} is torn: {head} and {tail}"))?;
            if head != 0 {
                contents.insert(key, head);
            }
        }
        Ok((log, contents))
    }

    fn redo(&mut self) -> Result<(), Violation> {
        let number = self.region.load_word(RECORD);
        Violation::unless(number == self.newest, || {
            format!("record {} is published, {number} is there", self.newest)
        })?;
        for key in 0..KEYS {
            let value = self.region.load_word(RECORD + (1 + key) * WORD_BYTES);
            let trusts = self.rules.is_on("a block of two sectors is not trusted before it is redone");
            if !(trusts && self.read(key)?[0] == value) {
                run_one(&mut self.device, IoRequest::write(1, key * BLOCK, block(value))).result?;
            }
        }
        if !self.rules.is_on("the blocks redone durable before the log is truncated") {
            run_one(&mut self.device, IoRequest::flush(2)).result?;
        }
        Ok(())
    }

    /// Sets both keys; durable when it returns.
    fn commit(&mut self, values: [u64; KEYS as usize]) -> Result<(), Violation> {
        let number = self.newest + 1;
        let record = [number, values[0], values[1]].map(u64::to_le_bytes).concat();
        self.region.store(RECORD, &record);
        if !self.rules.is_on("the record is written back") {
            self.region.write_back(RECORD, record.len() as u64);
        }
        let early = self.rules.is_on("the record published before its blocks are written");
        if early {
            self.write_blocks(values)?;
        }
        if !self.rules.is_on("the record before the word that publishes it") {
            self.region.fence()?;
        }
        self.region.store_word(NEWEST, number);
        self.region.write_back(NEWEST, WORD_BYTES);
        if !self.rules.is_on("the publishing word before the answer") {
            self.region.fence()?;
        }
        self.newest = number;
        if !early {
            // A real log does this later, and for many records at once.
            self.write_blocks(values)?;
        }
        Ok(())
    }

    fn write_blocks(&mut self, values: [u64; KEYS as usize]) -> Result<(), Violation> {
        for (key, value) in (0..).zip(values) {
            run_one(&mut self.device, IoRequest::write(1, key * BLOCK, block(value))).result?;
        }
        Ok(())
    }

    /// Makes room: the blocks are made durable, then the record is not needed any more.
    fn make_room(&mut self) -> Result<(), Violation> {
        if !self.rules.is_on("the blocks durable before the log is truncated") {
            run_one(&mut self.device, IoRequest::flush(2)).result?;
        }
        self.truncate()
    }

    fn truncate(&mut self) -> Result<(), Violation> {
        self.region.store_word(TRUNCATED, self.newest);
        self.region.write_back(TRUNCATED, WORD_BYTES);
        if !self.rules.is_on("the log truncated before its room is used again") {
            self.region.fence()?;
        }
        Ok(())
    }

    fn read(&mut self, key: u64) -> Result<[u64; 2], Violation> {
        let done = run_one(&mut self.device, IoRequest::read(0, key * BLOCK, IoBuffer::zeroed(BLOCK_BYTES)));
        done.result?;
        let buffer = done.buffer.ok_or("a read lost its buffer")?;
        Ok([0, SECTOR_BYTES].map(|at| Reader::new(&buffer[at..]).u64().unwrap_or(0)))
    }
}

fn block(value: u64) -> IoBuffer {
    let mut block = IoBuffer::zeroed(BLOCK_BYTES);
    for at in [0, SECTOR_BYTES] {
        block[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    block
}

/// Two transactions and one after each recovery; power lost anywhere, in recovery too.
fn explored<const UNIT: usize>(
    settings: &SimMachineSettings,
    how: ExploreSettings,
    rules: &Mutations,
) -> Report {
    explore(how, |choices: &Choices| {
        let machine = SimMachine::<UNIT>::new(settings, choices);
        let mut oracle = Oracle::new(DurableOrder::Prefix);
        machine.run_lives(|life| {
            let number = u64::from(life.number);
            let (mut log, contents) = RedoLog::open(life, rules)?;
            oracle.check_contents(&contents)?;
            oracle.settle(contents);
            for n in 0..if number == 0 { 2 } else { 1 } {
                let values = [10 * number + n + 1, 100 * (10 * number + n + 1)];
                let batch = oracle.submit((0..).zip(values.map(Some)));
                log.commit(values)?;
                oracle.acknowledge(batch);
                log.make_room()?;
            }
            Ok(())
        })
    })
}

/// One device that completes in order: the orders of completion are explored elsewhere.
fn settings() -> SimMachineSettings {
    let mut settings = SimMachineSettings::exploring(192, geometry());
    settings.devices[0].order = CompletionOrder::InOrder;
    settings
}

#[test]
fn a_redo_log_over_two_media_survives_every_crash_and_each_broken_rule_is_found() {
    let clean =
        assert_all_caught(&RULES, |rules| explored::<64>(&settings(), ExploreSettings::exhaustive(), rules));
    assert!(clean.exhausted && clean.distinct_states > 100, "{clean}");
}

#[test]
fn the_same_holds_word_by_word_with_cuts_before_every_step_and_twice_in_recovery() {
    let power_cut = PowerCut::Anywhere { points: CutPoints::Every, one_in: 12 };
    let settings = SimMachineSettings { power_cut, cut_limit: 3, end_cuts: 2, ..settings() };
    assert_all_caught(&RULES, |rules| explored::<8>(&settings, ExploreSettings::random(2024, 4_000), rules));
}
