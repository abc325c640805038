//! Segments that are not there any more: what the superblock lists is missed, and nothing else is.

use crate::common::opened::Opened;
use crate::common::{medium, small_settings};
use std::collections::BTreeSet;
use tierstone_base::{ErrorKind, KeyspaceId, SeededRandom};
use tierstone_crash::{Choices, Mutations};
use tierstone_engine::Durability;
use tierstone_logstore::check::{CheckReport, CheckSettings, DamageKind, Loss, check, salvage};
use tierstone_logstore::format::segment::{HeaderFound, SegmentHeader, SegmentState};
use tierstone_logstore::format::superblock::{SLOT_BYTES, SlotFound, Superblock};
use tierstone_logstore::{OpenReport, OpenSettings};
use tierstone_media::BLOCK_BYTES;
use tierstone_media::sim::SimMedium;

const SPACE: KeyspaceId = KeyspaceId(1);
const SEGMENT: u64 = 64 << 10;
const SEGMENTS: u32 = 64;

impl Opened {
    fn put(&mut self, keys: std::ops::Range<u32>, len: usize) {
        for key in keys {
            self.store.put(SPACE, &key.to_le_bytes(), &vec![key as u8; len]).unwrap();
        }
    }

    fn note(&mut self) {
        self.superblock.note_segments(&mut self.medium.device(), &self.inventory).unwrap();
    }
}

fn settings() -> OpenSettings {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 64 << 10;
    settings
}

fn header(medium: &SimMedium, segment: u32) -> HeaderFound {
    let offset = medium.settings().geometry.segment_offset(segment);
    SegmentHeader::decode(&medium.peek(offset, BLOCK_BYTES))
}

/// Segments of logs, by their headers.
fn logs(medium: &SimMedium) -> BTreeSet<u32> {
    let is_log = |segment: &u32| matches!(header(medium, *segment), HeaderFound::Whole(header) if header.state == SegmentState::Log);
    (0..SEGMENTS).filter(is_log).collect()
}

fn filled(is_closed: bool) -> SimMedium {
    let medium = medium(SEGMENT, SEGMENTS);
    let mut opened = Opened::on(&medium, medium.device(), &settings()).unwrap();
    opened.put(0..400, 900);
    opened.store.sync().unwrap();
    match is_closed {
        true => opened.close(),
        false => opened.note(),
    }
    medium
}

fn refusal(medium: &SimMedium, settings: &OpenSettings) -> String {
    let error = Opened::on(medium, medium.device(), settings).err();
    let error = error.unwrap_or_else(|| panic!("the store opens"));
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    error.message().to_owned()
}

fn blanked(medium: &SimMedium, segment: u32) -> SimMedium {
    let copy = medium.crashed_copy(&Choices::quiet());
    let offset = copy.settings().geometry.segment_offset(segment);
    copy.overwrite(offset, &vec![0; SEGMENT as usize]);
    copy
}

#[test]
fn a_segment_that_reads_as_zeros_is_missed_after_a_close_and_after_a_crash() {
    for is_closed in [true, false] {
        let medium = filled(is_closed);
        let logs = logs(&medium);
        assert!(logs.len() > 4);
        for &segment in &logs {
            let copy = blanked(&medium, segment);
            for _ in 0..2 {
                // The second time as the first: nothing was written that hides it.
                let said = refusal(&copy, &settings());
                assert!(said.starts_with(&format!("segment {segment} is missing, or empty")), "{said}");
            }
            let mut seen = check(&mut copy.device(), &CheckSettings::default(), &mut |_| {}).unwrap();
            let finding = seen.findings.pop().unwrap();
            assert_eq!((finding.kind, finding.segment), (DamageKind::Header, Some(segment)));
        }
    }
}

#[test]
fn a_segment_whose_file_is_gone_is_missed() {
    for is_closed in [true, false] {
        let medium = filled(is_closed);
        let logs = logs(&medium);
        for &segment in &logs {
            let existing: Vec<u32> = logs.iter().copied().filter(|&other| other != segment).collect();
            let checked = CheckSettings { existing_segments: Some(existing.clone()), ..Default::default() };
            let settings = OpenSettings { existing_segments: Some(existing), ..settings() };
            let copy = blanked(&medium, segment);
            let said = refusal(&copy, &settings);
            assert!(said.starts_with(&format!("segment {segment} is missing, or empty")), "{said}");
            let seen = check(&mut copy.device(), &checked, &mut |_| {}).unwrap();
            let kinds: Vec<_> = seen.findings.iter().map(|found| (found.kind, found.segment)).collect();
            assert_eq!(kinds, [(DamageKind::Segment, Some(segment))]);
        }
    }
}

#[test]
fn an_accepted_loss_is_told_once_and_over() {
    let medium = blanked(&filled(true), 2);
    let accepts = OpenSettings { loss_accepted: true, ..settings() };
    let mut opened = Opened::on(&medium, medium.device(), &accepts).unwrap();
    assert_eq!(opened.report.missing_segments, [2]);
    opened.put(0..50, 900);
    opened.store.sync().unwrap();
    drop(opened);
    let opened = Opened::on(&medium, medium.power_on_after_loss(), &settings()).unwrap();
    assert_eq!(opened.report.missing_segments, [0; 0]);
}

#[test]
fn a_header_that_says_free_is_missed_only_where_the_store_was_closed() {
    for is_closed in [true, false] {
        let medium = filled(is_closed);
        let segment = *logs(&medium).first().unwrap();
        let HeaderFound::Whole(found) = header(&medium, segment) else { panic!("a header") };
        let mut block = vec![0; BLOCK_BYTES];
        SegmentHeader::free(found.store, segment, found.opened_seq).encode(&mut block);
        medium.overwrite(medium.settings().geometry.segment_offset(segment), &block);
        let seen = check(&mut medium.device(), &CheckSettings::default(), &mut |_| {}).unwrap();
        if is_closed {
            assert!(refusal(&medium, &settings()).contains(&format!("segment {segment} is missing")));
            assert_eq!(seen.findings[0].kind, DamageKind::Segment);
        } else {
            // It may have been freed since the list was written.
            Opened::on(&medium, medium.device(), &settings()).unwrap();
            assert!(!seen.is_damaged());
        }
    }
}

#[test]
fn a_file_that_begins_with_zeros_and_was_sealed_is_missed_without_a_list() {
    let medium = medium(SEGMENT, SEGMENTS);
    let mut opened = Opened::on(&medium, medium.device(), &settings()).unwrap();
    opened.put(0..400, 900);
    opened.store.sync().unwrap();
    opened.store.settle(500);
    drop(opened);
    let geometry = medium.settings().geometry;
    let is_sealed = |segment: &u32| {
        let last = geometry.segment_offset(segment + 1) - BLOCK_BYTES as u64;
        medium.peek(last, BLOCK_BYTES).iter().any(|&byte| byte != 0)
    };
    let segment = logs(&medium).into_iter().find(is_sealed).unwrap();
    medium.overwrite(geometry.segment_offset(segment), &[0; BLOCK_BYTES]);
    let existing = Some((0..SEGMENTS).collect::<Vec<u32>>());
    let checked = CheckSettings { existing_segments: existing.clone(), ..Default::default() };
    let seen = check(&mut medium.device(), &checked, &mut |_| {}).unwrap();
    assert!(seen.damage.contains_key(&DamageKind::Header) && seen.lost_records > 0, "{:?}", seen.damage);
    let settings = OpenSettings { existing_segments: existing, ..settings() };
    let said = refusal(&medium, &settings);
    assert!(said.starts_with(&format!("segment {segment} is missing, or empty")), "{said}");
    // Accepted, it is missed once.
    let accepts = OpenSettings { loss_accepted: true, ..settings.clone() };
    let opened = Opened::on(&medium, medium.device(), &accepts).unwrap();
    assert_eq!(opened.report.missing_segments, [segment]);
    opened.close();
    let opened = Opened::on(&medium, medium.device(), &settings).unwrap();
    assert_eq!(opened.report.missing_segments, [0; 0]);
}

#[test]
fn a_last_block_that_is_no_footer_misses_nothing() {
    let medium = filled(true);
    // As what commits a checkpoint does where zeros are laid over the space of a segment that is free again.
    let last = medium.settings().geometry.segment_offset(SEGMENTS) - BLOCK_BYTES as u64;
    medium.overwrite(last, &[0x55; BLOCK_BYTES]);
    let existing = Some((0..SEGMENTS).collect::<Vec<u32>>());
    let checked = CheckSettings { existing_segments: existing.clone(), ..Default::default() };
    assert!(!check(&mut medium.device(), &checked, &mut |_| {}).unwrap().is_damaged());
    let settings = OpenSettings { existing_segments: existing, ..settings() };
    assert_eq!(Opened::on(&medium, medium.device(), &settings).unwrap().report.missing_segments, [0; 0]);
}

/// A store that was closed, then opened; of what it had segments became free, and it died. One slot of its superblock
/// rots.
#[test]
fn a_slot_that_rots_makes_nothing_missing() {
    let medium = filled(true);
    let mut opened = Opened::on(&medium, medium.device(), &settings()).unwrap();
    for key in 0..380u32 {
        opened.store.delete(SPACE, &key.to_le_bytes()).unwrap();
    }
    opened.store.sync().unwrap();
    let before = logs(&medium);
    opened.store.now.monotonic_us += 1_500_000;
    opened.store.settle(3_000);
    drop(opened);
    assert!(logs(&medium).len() < before.len(), "some are free");
    for slot in 0..2 {
        let copy = medium.crashed_copy(&Choices::quiet());
        let at = slot * SLOT_BYTES as u64 + 40;
        let byte = copy.peek(at, 1)[0] ^ 1;
        copy.overwrite(at, &[byte]);
        let seen = check(&mut copy.device(), &CheckSettings::default(), &mut |_| {}).unwrap();
        assert_eq!(seen.findings.len(), 1, "slot {slot}: {:?}", seen.findings);
        let opened = Opened::on(&copy, copy.device(), &settings()).unwrap();
        assert!(opened.report.damaged_superblock_slot && opened.report.missing_segments.is_empty());
    }
}

/// Whether the store opens after power was lost while the first group of a segment was on its way, and the superblock was
/// written meanwhile.
fn survives_a_list_beside_a_first_group(mutations: Mutations) -> bool {
    let mut settings = OpenSettings { mutations, ..settings() };
    // Groups are on their way only when they are full.
    settings.shard.durability = Durability::Relaxed;
    let medium = medium(SEGMENT, SEGMENTS);
    let mut opened = Opened::on(&medium, medium.device(), &settings).unwrap();
    let mut survives = true;
    for key in 0..600 {
        opened.put(key..key + 1, 900);
        opened.store.settle(2);
        if opened.inventory.is_due() {
            opened.note();
            let copy = medium.crashed_copy(&Choices::random(u64::from(key)));
            survives &= Opened::on(&copy, copy.device(), &settings).is_ok();
        }
    }
    survives
}

#[test]
fn what_is_not_durable_is_not_listed() {
    assert!(survives_a_list_beside_a_first_group(Mutations::none()));
    assert!(!survives_a_list_beside_a_first_group(Mutations::one("listed_early")));
}

/// Whether a store opens whose segments became free and were given back, at power losses in between; and how many
/// segments took space at the end.
fn survives_discards(mutations: Mutations, seed: u64) -> (bool, usize) {
    let settings = OpenSettings { mutations, ..settings() };
    let medium = medium(SEGMENT, SEGMENTS);
    let mut opened = Opened::on(&medium, medium.device(), &settings).unwrap();
    let mut random = SeededRandom::new(seed);
    opened.put(0..1500, 900);
    opened.store.sync().unwrap();
    opened.note();
    let mut survives = true;
    for round in 0..30u32 {
        for key in round * 50..round * 50 + 50 {
            opened.store.delete(SPACE, &key.to_le_bytes()).unwrap();
        }
        opened.store.sync().unwrap();
        opened.store.now.monotonic_us += 1_500_000;
        opened.store.settle(2_000);
        if random.below(3) == 0 {
            opened.note();
        }
        let copy = medium.crashed_copy(&Choices::random(random.next_u64()));
        survives &= Opened::on(&copy, copy.device(), &settings).is_ok();
    }
    for _ in 0..60 {
        opened.note();
        opened.store.now.monotonic_us += 1_500_000;
        opened.store.settle(2_000);
    }
    (survives, medium.taken_segments())
}

#[test]
fn space_that_is_given_back_is_never_missed() {
    for seed in 0..4 {
        let (survives, taken) = survives_discards(Mutations::none(), seed);
        assert!(survives, "seed {seed}");
        assert!(taken < 30, "seed {seed}: {taken} segments take space, of which few are used");
    }
    assert!((0..4).any(|seed| !survives_discards(Mutations::one("listed_discarded"), seed).0));
}

#[test]
fn without_its_rule_what_is_missing_is_passed_over() {
    let medium = blanked(&filled(true), 2);
    let settings = OpenSettings { mutations: Mutations::one("missing_not_missed"), ..settings() };
    let mut opened = Opened::on(&medium, medium.device(), &settings).unwrap();
    let lost = (0..400u32).filter(|key| opened.store.get(SPACE, &key.to_le_bytes()).unwrap().is_none());
    assert!(lost.count() > 0);
}

/// Keys that were deleted, and whose deletions nobody needs any more.
const GONE: std::ops::Range<u32> = 0..1_500;
/// Keys that are there.
const THERE: std::ops::Range<u32> = 10_000..10_060;

/// A store with segments that are free again, of whose former lives records and footers are still there; closed or not. With
/// such segments.
fn with_free_segments(is_closed: bool) -> (SimMedium, Vec<u32>) {
    let medium = medium(SEGMENT, SEGMENTS);
    let mut opened = Opened::on(&medium, medium.device(), &settings()).unwrap();
    opened.put(GONE, 900);
    opened.store.sync().unwrap();
    // What is listed is not given back when it becomes free.
    opened.note();
    for key in GONE {
        opened.store.delete(SPACE, &key.to_le_bytes()).unwrap();
    }
    for _ in 0..12 {
        opened.put(THERE, 900);
        opened.store.sync().unwrap();
        opened.store.now.monotonic_us += 1_500_000;
        opened.store.settle(3_000);
    }
    match is_closed {
        true => opened.close(),
        false => opened.note(),
    }
    let geometry = medium.settings().geometry;
    let is_free = |segment: &u32| {
        let last = geometry.segment_offset(segment + 1) - BLOCK_BYTES as u64;
        matches!(header(&medium, *segment), HeaderFound::Whole(header) if header.state == SegmentState::Free)
            && medium.peek(last, BLOCK_BYTES).iter().any(|&byte| byte != 0)
    };
    let free = (0..SEGMENTS).filter(is_free).collect();
    (medium, free)
}

/// What is saved of the store: the keys, and what is said of it.
fn saved(medium: &SimMedium) -> (BTreeSet<u32>, CheckReport) {
    let mut keys = BTreeSet::new();
    let report = salvage(&mut medium.device(), &CheckSettings::default(), &mut |_| {}, &mut |record| {
        keys.insert(u32::from_le_bytes(record.key.try_into().unwrap()));
        Ok(())
    });
    (keys, report.unwrap())
}

fn with_a_flipped_bit_in_the_header(medium: &SimMedium, segment: u32) -> SimMedium {
    let copy = medium.crashed_copy(&Choices::quiet());
    copy.flip_bit(copy.settings().geometry.segment_offset(segment) + 40, 3);
    copy
}

#[test]
fn of_a_free_segment_with_a_damaged_header_nothing_comes_back_after_a_close() {
    let (medium, free) = with_free_segments(true);
    assert!(free.len() > 3, "{free:?}");
    for &segment in &free {
        let copy = with_a_flipped_bit_in_the_header(&medium, segment);
        let (keys, report) = saved(&copy);
        assert_eq!(keys, THERE.collect(), "segment {segment}");
        let found: Vec<_> = report.findings.iter().map(|found| (found.kind, found.segment)).collect();
        assert_eq!(found, [(DamageKind::Header, Some(segment))]);
        assert_eq!(report.findings[0].loss, Loss::Counted, "{:?}", report.findings);
        let lost = (report.lost_records, report.lost_keys, report.unsaved_keys, report.reverted_keys);
        assert_eq!((lost, report.live_keys), ((0, 0, 0, 0), 60), "segment {segment}");
    }
}

/// The header of `segment` is zeros; what lies behind it stays.
fn without_header(medium: &SimMedium, segment: u32) -> SimMedium {
    let copy = medium.crashed_copy(&Choices::quiet());
    copy.overwrite(copy.settings().geometry.segment_offset(segment), &[0; BLOCK_BYTES]);
    copy
}

#[test]
fn a_closed_store_opens_although_headers_of_free_segments_have_rotted() {
    let (medium, free) = with_free_segments(true);
    let settings = OpenSettings { existing_segments: Some((0..SEGMENTS).collect()), ..settings() };
    for &segment in &free {
        let rotten = [with_a_flipped_bit_in_the_header(&medium, segment), without_header(&medium, segment)];
        for medium in rotten {
            let mut opened = Opened::on(&medium, medium.device(), &settings).unwrap();
            let OpenReport { rotten_free_segments, damaged_segments, missing_segments, .. } = &opened.report;
            assert_eq!(*rotten_free_segments, [segment]);
            assert_eq!((damaged_segments.len(), missing_segments.len()), (0, 0), "segment {segment}");
            for key in GONE.chain(THERE) {
                let is_there = opened.store.get(SPACE, &key.to_le_bytes()).unwrap().is_some();
                assert_eq!(is_there, THERE.contains(&key), "segment {segment}, key {key}");
            }
            // It has a header again, so that a crash of this opening makes nothing of it.
            drop(opened);
            let mut opened = Opened::on(&medium, medium.power_on_after_loss(), &settings).unwrap();
            assert_eq!(opened.report.rotten_free_segments, [0; 0]);
            let is_used = (0..200u32).any(|round| {
                opened.put(20_000 + round % 20 * 20..20_020 + round % 20 * 20, 4_000);
                opened.store.sync().unwrap();
                logs(&medium).contains(&segment)
            });
            opened.close();
            let opened = Opened::on(&medium, medium.device(), &settings).unwrap();
            assert!(is_used && opened.report.clean, "segment {segment} is used again");
        }
    }
}

#[test]
fn a_damaged_segment_whose_loss_was_accepted_is_no_free_one() {
    let medium = filled(true);
    let segment = *logs(&medium).first().unwrap();
    let rotten = with_a_flipped_bit_in_the_header(&medium, segment);
    let accepts = OpenSettings { loss_accepted: true, ..settings() };
    for _ in 0..2 {
        let opened = Opened::on(&rotten, rotten.device(), &accepts).unwrap();
        assert_eq!((&opened.report.damaged_segments[..], opened.report.clean), (&[segment][..], true));
        opened.close();
        let said = refusal(&rotten, &settings());
        assert!(said.starts_with(&format!("segment {segment} is damaged")), "{said}");
    }
    let (keys, report) = saved(&rotten);
    assert!(report.lost_records > 0 && keys == (0..400).collect(), "{:?}", report.findings);
}

#[test]
fn a_rotten_header_refuses_where_the_segment_may_have_held_something() {
    let (medium, free) = with_free_segments(true);
    for segment in logs(&medium) {
        let said = refusal(&with_a_flipped_bit_in_the_header(&medium, segment), &settings());
        assert!(said.starts_with(&format!("segment {segment} is damaged")), "{said}");
    }
    // A slot that may have listed more, and a store that was not closed.
    let copy = with_a_flipped_bit_in_the_header(&medium, free[0]);
    copy.flip_bit(40, 1);
    assert!(refusal(&copy, &settings()).contains("is damaged"));
    let (medium, free) = with_free_segments(false);
    for &segment in &free {
        let said = refusal(&with_a_flipped_bit_in_the_header(&medium, segment), &settings());
        assert!(said.starts_with(&format!("segment {segment} is damaged")), "{said}");
    }
}

#[test]
fn what_is_saved_of_a_segment_that_may_have_been_free_is_counted_as_too_old() {
    let (medium, free) = with_free_segments(false);
    let mut back = 0;
    for &segment in &free {
        let (keys, report) = saved(&with_a_flipped_bit_in_the_header(&medium, segment));
        assert!(!report.clean && keys.is_superset(&THERE.collect()));
        let too_many = (keys.len() - THERE.len()) as u64;
        assert!(
            report.reverted_keys >= too_many,
            "segment {segment}: {too_many} of {}",
            report.reverted_keys
        );
        assert!(too_many == 0 || report.findings[0].detail.contains("may have been free"));
        back += too_many;
    }
    assert!(back > 0, "a former life says nothing of deletions");
}

#[test]
fn a_list_that_was_cut_short_calls_no_segment_free() {
    let (medium, _) = with_free_segments(true);
    let used = logs(&medium);
    let mut opened = Opened::on(&medium, medium.device(), &settings()).unwrap();
    // The longest facts beside which some segments in use are listed, but not all.
    let listed = |superblock: &Superblock| match Superblock::decode(&superblock.encode(1).unwrap()) {
        SlotFound::Whole { superblock, .. } => superblock.in_use,
        other => panic!("{other:?}"),
    };
    let longest = opened.superblock.superblock.clone();
    let mut all: Vec<(u32, u32)> = Vec::new();
    for &segment in &used {
        match all.last_mut() {
            Some((first, count)) if *first + *count == segment => *count += 1,
            _ => all.push((segment, 1)),
        }
    }
    assert!(all.len() > 1, "{all:?}");
    let short = |facts: usize| {
        let facts = vec![7; facts];
        Superblock { facts, clean: true, in_use: all.clone(), ..longest.clone() }
    };
    let facts = (65_000..SLOT_BYTES).filter(|&facts| short(facts).encode(1).is_ok());
    let cut = facts.map(short).find(|superblock| (1..all.len()).contains(&listed(superblock).len())).unwrap();
    opened.superblock.write(&mut medium.device(), cut).unwrap();
    drop(opened.store);
    let last = *used.last().unwrap();
    let copy = with_a_flipped_bit_in_the_header(&medium, last);
    assert!(refusal(&copy, &settings()).starts_with(&format!("segment {last} is damaged")));
    let (_, report) = saved(&copy);
    assert!(report.clean && report.lost_records > 0 && report.reverted_keys > 0, "{report:?}");
}
