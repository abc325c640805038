//! Files, or the region of a redo log, that were put back from an older copy of a store: numbers of openings are used
//! again by it, and nothing of the one history is taken for the other's.

use crate::common::opened::Opened;
use crate::common::{self, small_settings};
use std::sync::Arc;
use tierstone_base::{ErrorKind, KeyspaceId, Result};
use tierstone_crash::{Choices, Mutations};
use tierstone_engine::Engine;
use tierstone_logstore::check::{CheckSettings, DamageKind, Loss, check};
use tierstone_logstore::format::segment::{HeaderFound, SegmentHeader, SegmentState};
use tierstone_logstore::format::superblock::META_BYTES;
use tierstone_logstore::{OpenSettings, RedoMemory};
use tierstone_media::BLOCK_BYTES;
use tierstone_media::region::{Region, WordRegion};
use tierstone_media::sim::SimMedium;

const SPACE: KeyspaceId = KeyspaceId(1);

impl Opened {
    fn put_all(&mut self, numbers: std::ops::Range<u32>, value: &str) {
        for number in numbers {
            self.store.put(SPACE, &number.to_le_bytes(), value.as_bytes()).unwrap();
        }
        self.store.sync().unwrap();
    }

    fn get(&mut self, number: u32) -> Option<String> {
        let found = self.store.get(SPACE, &number.to_le_bytes()).unwrap();
        found.map(|(_, value)| String::from_utf8(value).unwrap())
    }
}

fn open(medium: &SimMedium, settings: &OpenSettings) -> Result<Opened> {
    Opened::on(medium, medium.device(), settings)
}

fn settings(region: Option<&Arc<WordRegion>>, seed: u64, mutation: Option<&'static str>) -> OpenSettings {
    let redo = region.map(|region| RedoMemory::new(Arc::clone(region) as Arc<dyn Region + Send + Sync>));
    let mutations = mutation.map_or_else(Mutations::none, Mutations::one);
    OpenSettings { redo, seed, mutations, ..small_settings() }
}

fn copy_of(medium: &SimMedium) -> SimMedium {
    medium.crashed_copy(&Choices::quiet())
}

fn refusal(opened: Result<Opened>) -> String {
    let error = opened.err().unwrap_or_else(|| panic!("the store opens"));
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    error.message().to_owned()
}

/// A store whose segments know an opening that the superblock does not.
fn with_older_superblock() -> SimMedium {
    let medium = common::medium(64 << 10, 16);
    let mut first = open(&medium, &settings(None, 1, None)).unwrap();
    first.put_all(0..20, "first");
    first.close();
    let superblock = medium.peek(0, META_BYTES as usize);
    let mut second = open(&medium, &settings(None, 2, None)).unwrap();
    second.put_all(10..30, "second");
    second.close();
    medium.overwrite(0, &superblock);
    medium
}

#[test]
fn a_superblock_that_is_older_than_its_segments_is_refused() {
    let medium = with_older_superblock();
    for _ in 0..2 {
        // The second time as the first: nothing was written that hides it.
        let said = refusal(open(&medium, &settings(None, 3, None)));
        assert!(said.contains("put back from an older copy"), "{said}");
    }
    let checked = check(&mut medium.device(), &CheckSettings::default(), &mut |_| {}).unwrap();
    let told = checked.findings.iter().find(|found| found.detail.contains("older copy"));
    let told = told.unwrap_or_else(|| panic!("{:?}", checked.findings));
    assert_eq!((told.kind, told.loss), (DamageKind::Segment, Loss::Unknown));
    let accepted = OpenSettings { loss_accepted: true, ..settings(None, 3, None) };
    let mut opened = open(&medium, &accepted).unwrap();
    assert_eq!(opened.get(25).as_deref(), Some("second"));
    assert!(opened.store.engine.identity().open_count > 2, "no number is used twice");
    opened.close();
    open(&medium, &settings(None, 4, None)).unwrap();
}

#[test]
fn an_older_superblock_that_is_taken_is_noticed() {
    let medium = with_older_superblock();
    open(&medium, &settings(None, 3, Some("older_superblock_taken"))).unwrap();
}

/// A slot of the superblock that is damaged may have known of them.
#[test]
fn segments_that_only_a_damaged_slot_knew_are_served() {
    let medium = common::medium(64 << 10, 16);
    let mut first = open(&medium, &settings(None, 1, None)).unwrap();
    first.put_all(0..20, "first");
    first.kill();
    let before = medium.peek(0, META_BYTES as usize);
    let mut second = open(&medium, &settings(None, 2, None)).unwrap();
    second.put_all(10..30, "second");
    second.kill();
    let after = medium.peek(0, META_BYTES as usize);
    let changed = before.iter().zip(&after).position(|(one, other)| one != other).unwrap();
    medium.overwrite(changed as u64, &[!after[changed]]);
    let mut third = open(&medium, &settings(None, 3, None)).unwrap();
    assert!(third.report.damaged_superblock_slot);
    assert_eq!(third.get(25).as_deref(), Some("second"));
}

/// A closed store, and each of its segments that has another life than in a copy of before, which is put in its place.
fn with_one_older_segment() -> Vec<SimMedium> {
    let medium = common::medium(64 << 10, 16);
    let mut first = open(&medium, &settings(None, 1, None)).unwrap();
    first.put_all(0..400, &format!("first {}", "x".repeat(900)));
    first.close();
    let before = copy_of(&medium);
    let mut second = open(&medium, &settings(None, 2, None)).unwrap();
    for round in 0..5 {
        second.put_all(0..400, &format!("second {round} {}", "x".repeat(900)));
    }
    second.close();
    let geometry = medium.settings().geometry;
    let life = |medium: &SimMedium, segment| match SegmentHeader::decode(
        &medium.peek(geometry.segment_offset(segment), BLOCK_BYTES),
    ) {
        HeaderFound::Whole(header) if header.state == SegmentState::Log => Some(header.generation),
        _ => None,
    };
    let lives = (0..16).map(|segment| (segment, life(&before, segment), life(&medium, segment)));
    let other = lives.filter(|(_, before, now)| before.is_some() && now.is_some() && before != now);
    let put_back = |segment| {
        let (copy, offset) = (copy_of(&medium), geometry.segment_offset(segment));
        copy.overwrite(offset, &before.peek(offset, geometry.segment_bytes as usize));
        copy
    };
    other.map(|(segment, ..)| put_back(segment)).collect()
}

#[test]
fn a_segment_that_is_put_back_from_an_older_copy_is_refused() {
    let all = with_one_older_segment();
    println!("{} segments have other lives", all.len());
    assert!(all.len() > 1);
    for medium in all {
        let checked = check(&mut medium.device(), &CheckSettings::default(), &mut |_| {}).unwrap();
        let told = checked.findings.iter().any(|found| found.detail.contains("older copy"));
        assert!(told, "{:?}", checked.findings);
        for _ in 0..2 {
            let said = refusal(open(&medium, &settings(None, 3, None)));
            assert!(said.contains("put back from an older copy"), "{said}");
        }
        let accepted = OpenSettings { loss_accepted: true, ..settings(None, 3, None) };
        open(&medium, &accepted).unwrap().close();
        open(&medium, &settings(None, 4, None)).unwrap();
    }
}

#[test]
fn an_older_segment_that_is_taken_is_noticed() {
    for medium in with_one_older_segment() {
        let mut opened = open(&medium, &settings(None, 3, Some("lives_not_compared"))).unwrap();
        let is_lost = |value: Option<String>| value.is_none_or(|value| !value.starts_with("second 4 "));
        let lost = (0..400).filter(|&number| is_lost(opened.get(number))).count();
        assert!(lost > 0, "nothing is lost with an older segment");
    }
}

/// A store killed in its second opening, of whose writes the newest lie in the region; and a copy of its files of the
/// first opening.
fn beside_a_newer_region(region: &Arc<WordRegion>) -> SimMedium {
    let medium = common::medium(64 << 10, 16);
    let mut first = open(&medium, &settings(Some(region), 1, None)).unwrap();
    first.put_all(0..10, "first");
    first.store.now.monotonic_us += 2_000_000;
    first.store.settle(200);
    first.kill();
    let copy = copy_of(&medium);
    let mut second = open(&medium, &settings(Some(region), 2, None)).unwrap();
    second.put_all(0..10, "second");
    second.kill();
    copy
}

#[test]
fn a_region_is_not_written_over_files_of_an_earlier_opening() {
    let region = Arc::new(WordRegion::new(1 << 20));
    let copy = beside_a_newer_region(&region);
    let said = refusal(open(&copy, &settings(Some(&region), 3, None)));
    assert!(said.contains("later opening (2) than the store's files (1)"), "{said}");
    let accepted = OpenSettings { redo_loss_accepted: true, ..settings(Some(&region), 3, None) };
    let mut opened = open(&copy, &accepted).unwrap();
    assert_eq!((opened.report.redo_lost, opened.get(5).as_deref()), (true, Some("first")));
    assert_eq!(opened.store.engine.identity().open_count, 3, "the region's number is not used again");
    opened.put_all(0..5, "third");
    opened.kill();
    let mut opened = open(&copy, &settings(Some(&region), 4, None)).unwrap();
    assert_eq!((opened.get(4).as_deref(), opened.get(5).as_deref()), (Some("third"), Some("first")));
}

#[test]
fn a_region_that_is_written_over_older_files_is_noticed() {
    let region = Arc::new(WordRegion::new(1 << 20));
    let copy = beside_a_newer_region(&region);
    let broken = settings(Some(&region), 3, Some("redo_over_older_files"));
    let said = refusal(open(&copy, &broken));
    assert!(said.contains("put back from an older copy"), "{said}");
    let mut opened = open(&copy, &OpenSettings { loss_accepted: true, ..broken }).unwrap();
    assert_eq!(opened.get(5).as_deref(), Some("second"), "of a history that these files know nothing of");
}

/// The files of a store that was closed are put back beside the region that was used since; gives the number of the next
/// opening, and what it serves after it was killed.
fn put_back_beside_a_region(mutation: Option<&'static str>) -> (u64, Result<Option<String>>) {
    let region = Arc::new(WordRegion::new(1 << 20));
    let medium = common::medium(64 << 10, 16);
    let mut first = open(&medium, &settings(Some(&region), 1, None)).unwrap();
    first.put_all(0..10, "first");
    first.close();
    let copy = copy_of(&medium);
    let mut second = open(&medium, &settings(Some(&region), 2, None)).unwrap();
    for round in 0..10 {
        second.put_all(0..10, &format!("second {round}"));
    }
    second.kill();
    let mut third = open(&copy, &settings(Some(&region), 3, mutation)).unwrap();
    let number = third.store.engine.identity().open_count;
    assert_eq!(third.get(7).as_deref(), Some("first"));
    third.put_all(0..2, "third");
    third.kill();
    let fourth = open(&copy, &settings(Some(&region), 4, mutation));
    (number, fourth.map(|mut fourth| fourth.get(7)))
}

#[test]
fn numbers_of_openings_that_a_region_knows_are_not_used_again() {
    let (number, value) = put_back_beside_a_region(None);
    assert_eq!((number, value.unwrap().as_deref()), (3, Some("first")));
}

#[test]
fn a_number_that_is_used_again_beside_a_region_is_noticed() {
    let (number, value) = put_back_beside_a_region(Some("redo_opening_repeats"));
    assert_eq!(number, 2);
    assert!(
        value.map_or(true, |value| value.as_deref() != Some("first")),
        "slots of two histories are mixed"
    );
}

/// Two histories go on from one copy; each calls its opening the second. A backup since one that the other made is no
/// backup since one of this process.
#[test]
fn openings_of_two_copies_of_a_store_are_told_apart_by_backups() {
    let medium = common::medium(64 << 10, 16);
    let mut first = open(&medium, &settings(None, 1, None)).unwrap();
    first.put_all(0..10, "first");
    first.close();
    let copy = copy_of(&medium);
    let cuts = [(&medium, 2), (&copy, 3)].map(|(medium, seed)| {
        let mut opened = open(medium, &settings(None, seed, None)).unwrap();
        let identity = opened.store.engine.identity().clone();
        let cut = opened.store.engine.begin_backup(opened.store.now, None).unwrap();
        assert_eq!(cut.opening, identity.opening_mark);
        assert!(cut.opening < 1 << 53, "a number that every reader of JSON keeps");
        (identity.open_count, cut.opening)
    });
    assert_eq!(cuts[0].0, cuts[1].0);
    assert_ne!(cuts[0].1, cuts[1].1);
}
