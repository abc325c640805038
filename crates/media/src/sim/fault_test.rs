//! Each fault does what it says, and only that.

use super::device_test::{filled, first_byte, geometry, run_one};
use super::*;
use crate::{BLOCK_BYTES, DeviceErrorKind, IoBuffer, IoRequest};
use std::collections::BTreeSet;
use tierstone_crash::{Choices, ExploreSettings, explore};

const BLOCK: u64 = BLOCK_BYTES as u64;

fn settings() -> SimSettings {
    SimSettings { sector_bytes: BLOCK_BYTES, ..SimSettings::new(geometry()) }
}

fn with_fault(fault: Fault) -> SimDevice {
    let medium = SimMedium::new(settings(), &Choices::quiet());
    medium.inject(fault);
    medium.device()
}

fn outcome(device: &mut SimDevice, request: IoRequest) -> Option<DeviceErrorKind> {
    run_one(device, request).result.err().map(|error| error.kind)
}

fn read(block: u64) -> IoRequest {
    IoRequest::read(0, block * BLOCK, IoBuffer::zeroed(BLOCK_BYTES))
}

fn write(block: u64, fill: u8) -> IoRequest {
    IoRequest::write(0, block * BLOCK, filled(fill))
}

fn write_durable(block: u64, fill: u8) -> IoRequest {
    IoRequest::write_durable(0, block * BLOCK, filled(fill))
}

#[test]
fn a_persistent_range_fails_and_the_rest_does_not() {
    let fault = Fault::new(FaultTarget::Read, FaultEffect::Fail).within(BLOCK..2 * BLOCK);
    let mut device = with_fault(fault);
    let failed = Some(DeviceErrorKind::Failed);
    assert_eq!([0, 1, 1, 2].map(|block| outcome(&mut device, read(block))), [None, failed, failed, None]);
    assert_eq!(outcome(&mut device, write(1, 1)), None);
    assert_eq!(device.medium().counters().faults, 2);
    device.medium().clear_faults();
    assert_eq!(first_byte(&mut device, BLOCK), 1);
}

#[test]
fn a_one_shot_fault_strikes_once() {
    let mut device = with_fault(Fault::new(FaultTarget::Write, FaultEffect::Full).when(FaultWhen::Nth(1)));
    let outcomes = [1, 2, 3].map(|fill| outcome(&mut device, write(0, fill)));
    assert_eq!(outcomes, [None, Some(DeviceErrorKind::Full), None]);
}

#[test]
fn choices_decide_which_requests_a_fault_strikes() {
    let mut seen = BTreeSet::new();
    explore(ExploreSettings::exhaustive(), |choices| {
        let medium = SimMedium::new(settings(), choices);
        let when = FaultWhen::Chosen { one_in: 3, limit: 1 };
        medium.inject(Fault::new(FaultTarget::Read, FaultEffect::Fail).when(when));
        let mut device = medium.device();
        seen.insert([0, 1, 2].map(|block| outcome(&mut device, read(block)).is_some()));
        Ok(())
    })
    .assert_exhausted();
    let (no, yes) = (false, true);
    assert_eq!(seen, BTreeSet::from([[no, no, no], [yes, no, no], [no, yes, no], [no, no, yes]]));
}

#[test]
fn a_failed_write_may_have_landed_and_no_flush_makes_that_certain() {
    let mut seen = BTreeSet::new();
    explore(ExploreSettings::exhaustive(), |choices| {
        let medium = SimMedium::new(settings(), choices);
        medium.inject(Fault::new(FaultTarget::Write, FaultEffect::Fail));
        let mut device = medium.device();
        assert_eq!(outcome(&mut device, write_durable(0, 1)), Some(DeviceErrorKind::Failed));
        let before = first_byte(&mut device, 0);
        assert_eq!(outcome(&mut device, IoRequest::flush(0)), None);
        seen.insert((before, first_byte(&mut medium.power_on_after_loss(), 0)));
        Ok(())
    })
    .assert_exhausted();
    assert_eq!(seen, BTreeSet::from([(0, 0), (1, 0), (1, 1)]));
}

#[test]
fn after_a_failed_flush_a_second_one_that_succeeds_has_saved_nothing() {
    let mut seen = BTreeSet::new();
    explore(ExploreSettings::exhaustive(), |choices| {
        let medium = SimMedium::new(settings(), choices);
        medium.inject(Fault::new(FaultTarget::Flush, FaultEffect::Fail).when(FaultWhen::Nth(0)));
        let mut device = medium.device();
        outcome(&mut device, write(0, 1));
        assert_eq!(outcome(&mut device, IoRequest::flush(0)), Some(DeviceErrorKind::Failed));
        assert_eq!(outcome(&mut device, IoRequest::flush(0)), None);
        assert_eq!(first_byte(&mut device, 0), 1, "as if all were well");
        seen.insert(first_byte(&mut medium.power_on_after_loss(), 0));
        Ok(())
    })
    .assert_exhausted();
    assert_eq!(seen, BTreeSet::from([0, 1]));
}

#[test]
fn a_lying_flush_and_a_lying_durable_write_complete_and_save_nothing() {
    for durable in [false, true] {
        let mut seen = BTreeSet::new();
        explore(ExploreSettings::exhaustive(), |choices| {
            let medium = SimMedium::new(settings(), choices);
            medium.inject(Fault::lying_flush());
            let mut device = medium.device();
            let request = if durable { write_durable(0, 1) } else { write(0, 1) };
            assert_eq!(outcome(&mut device, request), None);
            assert_eq!(outcome(&mut device, IoRequest::flush(0)), None);
            seen.insert(first_byte(&mut medium.power_on_after_loss(), 0));
            Ok(())
        })
        .assert_exhausted();
        assert_eq!(seen, BTreeSet::from([0, 1]), "durable: {durable}");
    }
}

#[test]
fn a_misdirected_write_lands_elsewhere_and_completes_well() {
    let effect = FaultEffect::Misdirect { to: 3 * BLOCK + 100 };
    let mut device = with_fault(Fault::new(FaultTarget::Write, effect).when(FaultWhen::Nth(0)));
    assert_eq!(outcome(&mut device, write_durable(0, 7)), None);
    assert_eq!((first_byte(&mut device, 0), first_byte(&mut device, 3 * BLOCK)), (0, 7));
    let mut device = device.medium().power_on_after_loss();
    assert_eq!((first_byte(&mut device, 0), first_byte(&mut device, 3 * BLOCK)), (0, 7));
    device.medium().clear_faults();
    device.medium().inject(Fault::new(FaultTarget::Write, FaultEffect::Misdirect { to: u64::MAX }));
    assert_eq!(outcome(&mut device, write(0, 9)), None, "beyond the end it is lost");
    assert_eq!(first_byte(&mut device, 0), 0);
}

#[test]
fn a_lost_write_completes_well_and_leaves_what_was_there() {
    let mut device = with_fault(Fault::new(FaultTarget::Write, FaultEffect::Lose).when(FaultWhen::Nth(1)));
    assert_eq!([1, 2].map(|fill| outcome(&mut device, write_durable(0, fill))), [None, None]);
    assert_eq!(first_byte(&mut device, 0), 1);
}

#[test]
fn a_flipped_bit_is_read_and_survives() {
    let mut device = SimDevice::plain(geometry());
    run_one(&mut device, write_durable(1, 1));
    device.medium().flip_bit(BLOCK, 7);
    assert_eq!(first_byte(&mut device, BLOCK), 0x81);
    assert_eq!(first_byte(&mut device.medium().power_on_after_loss(), BLOCK), 0x81);
}

#[test]
fn overwritten_bytes_are_read_and_survive_whatever_is_in_the_cache() {
    let mut device = SimDevice::plain(geometry());
    run_one(&mut device, write(1, 1));
    device.medium().overwrite(2 * BLOCK - 2, &[8, 9, 10]);
    let read = |medium: &SimMedium| medium.peek(2 * BLOCK - 3, 4);
    assert_eq!(read(device.medium()), [1, 8, 9, 10]);
    device.medium().power_on_after_loss();
    assert_eq!(read(device.medium())[1..], [8, 9, 10]);
}

#[test]
fn prepares_and_discards_fail_where_told() {
    let mut device = with_fault(Fault::new(FaultTarget::Space, FaultEffect::Fail));
    let offset = geometry().segment_offset(0);
    run_one(&mut device, IoRequest::write(0, offset, filled(1)));
    for kind in [crate::IoKind::Prepare { len: BLOCK }, crate::IoKind::Discard { len: BLOCK }] {
        let request = IoRequest { token: 0, kind, offset, buffer: None };
        assert_eq!(outcome(&mut device, request), Some(DeviceErrorKind::Failed));
    }
    assert_eq!(first_byte(&mut device, offset), 1);
}
