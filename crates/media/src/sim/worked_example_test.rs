//! A complete exploration of a small structure: a log of two-sector records, each committed by a
//! durable write of its number. `docs/design/crash-explorer.md` points here.
//!
//! Rules of order, each with a mutation that removes it:
//! 1. The record is durable before its commit block names it.
//! 2. A put is acknowledged only when its commit block is durable.

use super::device_test::{geometry, run_one};
use super::*;
use crate::{BLOCK_BYTES, DurableWriteScope, IoBuffer, IoRequest};
use std::collections::BTreeMap;
use tierstone_base::{Error, ErrorKind, checksum::checksum, codec::Reader};
use tierstone_crash::{
    Choices, DurableOrder, ExploreSettings, Mutations, Oracle, Report, SECTOR_BYTES, Violation,
    assert_all_caught, assert_caught, explore,
};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The toy: block 0 is the commit block, block `n` the record of put `n`.
struct CommitLog {
    device: SimDevice,
    committed: u64,
    mutations: Mutations,
}

impl CommitLog {
    /// Opens the log and reads what it holds.
    fn open(
        mut device: SimDevice,
        mutations: &Mutations,
    ) -> Result<(CommitLog, BTreeMap<u64, u64>), Violation> {
        let commit = read(&mut device, 0)?;
        let committed = Reader::new(&commit).u64().unwrap_or(0);
        let mut contents = BTreeMap::new();
        for number in 1..=committed {
            let record = read(&mut device, number)?;
            let (key, value) = decode(number, &record)?;
            contents.insert(key, value);
        }
        Ok((CommitLog { device, committed, mutations: mutations.clone() }, contents))
    }

    fn put(&mut self, key: u64, value: u64) -> Result<(), Violation> {
        let number = self.committed + 1;
        let record = IoRequest::write(1, number * BLOCK, encode(number, key, value));
        let early = self.mutations.is_on("record durable before commit");
        run_one(&mut self.device, record).result?;
        if !early {
            run_one(&mut self.device, IoRequest::flush(2)).result?;
        }
        let commit = IoBuffer::from_slice(&number.to_le_bytes());
        let commit = if self.mutations.is_on("acknowledged when durable") {
            IoRequest::write(3, 0, commit)
        } else {
            IoRequest::write_durable(3, 0, commit)
        };
        run_one(&mut self.device, commit).result?;
        self.committed = number;
        Ok(())
    }
}

fn read(device: &mut SimDevice, block: u64) -> Result<IoBuffer, Violation> {
    let done = run_one(device, IoRequest::read(0, block * BLOCK, IoBuffer::zeroed(BLOCK_BYTES)));
    done.result?;
    done.buffer.ok_or_else(|| "a read lost its buffer".into())
}

/// The key in the first sector, the value in the second, so that a record can be torn.
fn encode(number: u64, key: u64, value: u64) -> IoBuffer {
    let mut record = IoBuffer::zeroed(BLOCK_BYTES);
    record[..8].copy_from_slice(&key.to_le_bytes());
    record[SECTOR_BYTES..SECTOR_BYTES + 8].copy_from_slice(&value.to_le_bytes());
    let sum = checksum(number, &record[..2 * SECTOR_BYTES]);
    record[2 * SECTOR_BYTES..2 * SECTOR_BYTES + 8].copy_from_slice(&sum.to_le_bytes());
    record
}

fn decode(number: u64, record: &[u8]) -> Result<(u64, u64), Violation> {
    let word = |at: usize| Reader::new(&record[at..]).u64().unwrap_or(0);
    if word(2 * SECTOR_BYTES) != checksum(number, &record[..2 * SECTOR_BYTES]) {
        let error = Error::new(ErrorKind::Corrupt, format!("record {number} is committed and not whole"));
        // Not passed on as an error: no loss of power excuses it.
        return Err(Violation::new(error.message()));
    }
    Ok((word(0), word(SECTOR_BYTES)))
}

/// Two puts of one key, a third after recovery; power lost anywhere, in recovery too.
fn scenario(medium: &SimMedium, mutations: &Mutations) -> Result<(), Violation> {
    let mut oracle = Oracle::new(DurableOrder::Prefix);
    medium.run_lives(|device, life| {
        let (mut log, contents) = CommitLog::open(device, mutations)?;
        oracle.check_contents(&contents)?;
        oracle.settle(contents);
        let puts = if life == 0 { 2 } else { 1 };
        for n in 0..puts {
            let value = u64::from(life) * 10 + n + 1;
            let batch = oracle.submit_one(7, Some(value));
            log.put(7, value)?;
            oracle.acknowledge(batch);
        }
        Ok(())
    })
}

fn explored(
    settings: &SimSettings,
    explore_as: ExploreSettings,
    fault: Option<Fault>,
    mutations: &Mutations,
) -> Report {
    explore(explore_as, |choices: &Choices| {
        let medium = SimMedium::new(settings.clone(), choices);
        fault.iter().for_each(|fault| medium.inject(fault.clone()));
        scenario(&medium, mutations)
    })
}

const MUTATIONS: [&str; 2] = ["record durable before commit", "acknowledged when durable"];

#[test]
fn the_commit_log_survives_every_crash_and_each_broken_rule_is_found() {
    let settings = SimSettings { cut_limit: 2, ..SimSettings::exploring(geometry()) };
    let clean = assert_all_caught(&MUTATIONS, |mutations| {
        explored(&settings, ExploreSettings::exhaustive(), None, mutations)
    });
    assert!(clean.exhausted && clean.distinct_states > 20, "{clean}");
}

#[test]
fn the_same_holds_when_cuts_come_at_every_event_and_runs_are_sampled() {
    let power_cut = PowerCut::Anywhere { points: CutPoints::Every, one_in: 12 };
    let settings = SimSettings { cut_limit: 3, end_cuts: 2, power_cut, ..SimSettings::exploring(geometry()) };
    assert_all_caught(&MUTATIONS, |mutations| {
        explored(&settings, ExploreSettings::random(2024, 3000), None, mutations)
    });
}

/// A durable write that covers the whole device does so when it completes. While it is in flight it
/// may reach the medium before what it covers, so the flush before it is needed all the same.
#[test]
fn durable_writes_that_cover_the_whole_device_do_not_replace_the_flush_before_the_commit() {
    let durable_write_scope = DurableWriteScope::WholeDevice;
    let settings = SimSettings { durable_write_scope, ..SimSettings::exploring(geometry()) };
    assert_all_caught(&MUTATIONS, |mutations| {
        explored(&settings, ExploreSettings::exhaustive(), None, mutations)
    });
}

#[test]
fn a_lying_flush_is_found() {
    let settings = SimSettings::exploring(geometry());
    let report = assert_caught("lying flush", || {
        explored(&settings, ExploreSettings::exhaustive(), Some(Fault::lying_flush()), &Mutations::none())
    });
    let found = report.found.expect("just caught");
    let again = tierstone_crash::replay(&found.minimal_path, |choices| {
        let medium = SimMedium::new(settings.clone(), choices);
        medium.inject(Fault::lying_flush());
        scenario(&medium, &Mutations::none())
    });
    assert_eq!(again.map_err(|violation| violation.message().to_owned()), Err(found.minimal_message));
}

#[test]
fn damage_of_a_committed_record_is_found() {
    let medium = SimMedium::new(SimSettings::new(geometry()), &Choices::quiet());
    let result = medium.run_lives(|device, life| {
        let (mut log, _) = CommitLog::open(device, &Mutations::none())?;
        if life == 0 {
            log.put(1, 2)?;
            medium.flip_bit(BLOCK + 3, 0);
        }
        Ok(())
    });
    assert!(result.is_err_and(|violation| violation.message().contains("not whole")));
}
