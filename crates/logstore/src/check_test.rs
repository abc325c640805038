use super::*;
use crate::format::superblock::{IndexKind, KeyspaceEntry, META_BYTES};
use crate::location::UNIT_BYTES;
use crate::{OpenSettings, ShardSettings};
use tierstone_base::KeyspaceId;
use tierstone_crash::Choices;
use tierstone_engine::Engine;
use tierstone_engine::harness::Harness;
use tierstone_media::Wait;
use tierstone_media::sim::{Fault, FaultEffect, FaultTarget, SimMedium, SimSettings};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
const SEGMENT_BYTES: u64 = 128 << 10;
const KEYS: u32 = 400;

fn settings(index: IndexKind) -> OpenSettings {
    OpenSettings {
        shard: ShardSettings {
            memory_bytes: 256 << 10,
            group_bytes_max: 16 << 10,
            ..ShardSettings::default()
        },
        keyspaces: vec![KeyspaceEntry { id: KEYSPACE, name: "0".into(), index }],
        seed: 3,
        ..OpenSettings::default()
    }
}

/// A store of [`KEYS`] keys, of which ten were overwritten and ten deleted; closed or not.
fn store(is_closed: bool) -> SimMedium {
    store_with(is_closed, &settings(IndexKind::Hash))
}

fn store_with(is_closed: bool, settings: &OpenSettings) -> SimMedium {
    let geometry = Geometry { meta_bytes: META_BYTES, segment_bytes: SEGMENT_BYTES, segment_limit: 32 };
    let medium = SimMedium::new(SimSettings::new(geometry), &Choices::quiet());
    let mut device = medium.device();
    let mut opened = crate::open(&mut device, settings).unwrap();
    let (shard, _) = opened.plans.remove(0).build(&mut device).unwrap();
    let mut store = Harness::new(shard, device, opened.hasher);
    let value = |key: u32, version: u8| vec![version ^ key as u8; 500 + key as usize];
    for key in 0..KEYS {
        store.put(KEYSPACE, &key.to_le_bytes(), &value(key, 0)).unwrap();
    }
    for key in 0..10u32 {
        store.put(KEYSPACE, &key.to_le_bytes(), &value(key, 1)).unwrap();
        store.delete(KEYSPACE, &(100 + key).to_le_bytes()).unwrap();
    }
    store.sync().unwrap();
    if is_closed {
        store.engine.shut();
        while !store.engine.is_shut() {
            store.turn(Wait::One);
        }
        drop(store);
        let mut superblock = opened.superblock.superblock.clone();
        superblock.clean = true;
        opened.superblock.write(&mut medium.device(), superblock).unwrap();
    }
    medium
}

fn run(medium: &SimMedium) -> CheckReport {
    check(&mut medium.device(), &CheckSettings::default(), &mut |_| {}).unwrap()
}

fn kinds(report: &CheckReport) -> Vec<(DamageKind, Option<u32>)> {
    report.findings.iter().map(|finding| (finding.kind, finding.segment)).collect()
}

fn offset(medium: &SimMedium, segment: u32) -> u64 {
    medium.settings().geometry.segment_offset(segment)
}

fn footer(medium: &SimMedium, segment: u32) -> SegmentFooter {
    let last = offset(medium, segment + 1) - BLOCK_BYTES as u64;
    let block = medium.peek(last, BLOCK_BYTES);
    SegmentFooter::decode(&block, Reader::new(&block[24..]).u64().unwrap()).unwrap()
}

/// The first segment that is sealed.
fn sealed(medium: &SimMedium) -> u32 {
    let is_sealed = |segment: &u32| {
        let header = medium.peek(offset(medium, *segment), BLOCK_BYTES);
        matches!(SegmentHeader::decode(&header), HeaderFound::Whole(header) if header.state == SegmentState::Log)
    };
    (0..32).find(is_sealed).unwrap()
}

#[test]
fn a_store_that_was_closed_has_no_findings() {
    let report = run(&store(true));
    assert_eq!(report.findings, []);
    assert!(!report.is_damaged() && report.clean);
    assert_eq!(report.live_keys, u64::from(KEYS) - 10);
    assert_eq!(report.records, u64::from(KEYS) + 20);
    assert!(report.sealed_segments >= 2 && report.sealed_segments == report.segments);
    assert!(report.live_bytes < report.record_bytes);
}

#[test]
fn a_store_whose_process_died_has_no_findings() {
    let report = run(&store(false));
    assert_eq!(report.findings, []);
    assert!(report.segments > report.sealed_segments && !report.clean);
    assert_eq!(report.live_keys, u64::from(KEYS) - 10);
}

#[test]
fn an_ordered_store_is_compared_with_the_keys_of_its_summaries() {
    let ordered = settings(IndexKind::Ordered);
    let report = run(&store_with(false, &ordered));
    assert_eq!((report.findings, report.live_keys), (vec![], u64::from(KEYS) - 10));
    let medium = store_with(true, &ordered);
    let report = run(&medium);
    assert_eq!((report.findings, report.live_keys), (vec![], u64::from(KEYS) - 10));
    // A damaged summary: the records give it again, keys and all.
    let segment = sealed(&medium);
    let start = u64::from(footer(&medium, segment).summary_start);
    medium.flip_bit(offset(&medium, segment) + start + 7, 7);
    let report = run(&medium);
    assert_eq!(kinds(&report), [(DamageKind::Summary, Some(segment))]);
    assert_eq!((report.lost_records, report.live_keys), (0, u64::from(KEYS) - 10));
}

#[test]
fn values_of_an_ordered_keyspace_without_keys_in_the_summary_are_found() {
    let mutations = tierstone_crash::Mutations::one("summaries_without_keys");
    let report = run(&store_with(true, &OpenSettings { mutations, ..settings(IndexKind::Ordered) }));
    assert_eq!(report.damage.get(&DamageKind::Mismatch), Some(&u64::from(KEYS + 10)));
    assert_eq!(report.lost_records, 0);
}

#[test]
fn several_passes_find_the_same() {
    let medium = store(true);
    medium.flip_bit(offset(&medium, sealed(&medium)) + 5_000, 3);
    let settings = CheckSettings { memory_bytes: 4_000, ..CheckSettings::default() };
    let several = check(&mut medium.device(), &settings, &mut |_| {}).unwrap();
    assert!(several.passes > 2, "{} passes", several.passes);
    assert_eq!(CheckReport { passes: 1, ..several }, run(&medium));
}

#[test]
fn a_flipped_bit_in_a_record_is_found_and_costs_its_key() {
    let medium = store(true);
    let segment = sealed(&medium);
    let footer = footer(&medium, segment);
    let start = offset(&medium, segment);
    let summary = medium.peek(start + u64::from(footer.summary_start), footer.summary_len as usize);
    // The first keys were overwritten later; this one was not.
    let entry = crate::format::summary::SummaryReader::new(&summary, footer.records).nth(20).unwrap();
    medium.flip_bit(start + u64::from(entry.unit) * UNIT_BYTES as u64 + 100, 3);
    let report = run(&medium);
    assert_eq!(kinds(&report), [(DamageKind::Record, Some(segment))]);
    assert_eq!(report.findings[0].unit, Some(entry.unit));
    assert_eq!((report.lost_records, report.lost_keys, report.findings[0].lost_keys), (1, 1, 1));
    assert_eq!(report.live_keys, u64::from(KEYS) - 11);
}

#[test]
fn a_damaged_old_version_costs_no_key() {
    let medium = store(true);
    // The first record of the first segment is an old version of key 0.
    let segment = sealed(&medium);
    medium.flip_bit(offset(&medium, segment) + (BLOCK_BYTES + 64 + 100) as u64, 0);
    let report = run(&medium);
    assert_eq!(kinds(&report), [(DamageKind::Record, Some(segment))]);
    assert_eq!((report.lost_records, report.lost_keys), (1, 0));
    assert_eq!(report.live_keys, u64::from(KEYS) - 10);
}

#[test]
fn a_flipped_bit_in_a_summary_is_found_and_costs_nothing() {
    let medium = store(true);
    let segment = sealed(&medium);
    let start = u64::from(footer(&medium, segment).summary_start);
    medium.flip_bit(offset(&medium, segment) + start + 7, 7);
    let report = run(&medium);
    assert_eq!(kinds(&report), [(DamageKind::Summary, Some(segment))]);
    assert_eq!((report.lost_records, report.live_keys), (0, u64::from(KEYS) - 10));
}

#[test]
fn damaged_summary_and_record_cost_the_segment() {
    let medium = store(true);
    let segment = sealed(&medium);
    let footer = footer(&medium, segment);
    medium.flip_bit(offset(&medium, segment) + u64::from(footer.summary_start) + 7, 7);
    medium.flip_bit(offset(&medium, segment) + (BLOCK_BYTES + 64 + 100) as u64, 0);
    let report = run(&medium);
    assert_eq!(kinds(&report), [(DamageKind::Summary, Some(segment))]);
    assert_eq!(report.lost_records, u64::from(footer.records));
    assert!(report.lost_keys > 0 && report.findings[0].lost_keys == report.lost_keys);
}

#[test]
fn a_flipped_bit_in_a_header_costs_the_segment() {
    let medium = store(true);
    let segment = sealed(&medium);
    medium.flip_bit(offset(&medium, segment) + 33, 2);
    let report = run(&medium);
    assert_eq!(kinds(&report), [(DamageKind::Header, Some(segment))]);
    assert_eq!(report.lost_records, u64::from(footer(&medium, segment).records));
    // Old versions of ten keys lie there; the other keys have no other record.
    assert_eq!(report.lost_keys + report.live_keys, u64::from(KEYS) - 10);
    assert!(report.lost_keys > 0);
}

#[test]
fn a_flipped_bit_in_a_group_header_or_footer_is_found_and_costs_nothing() {
    for (place, kind) in [
        (BLOCK_BYTES as u64 + 20, DamageKind::Group),
        (SEGMENT_BYTES - BLOCK_BYTES as u64 + 60, DamageKind::Footer),
    ] {
        let medium = store(true);
        let segment = sealed(&medium);
        medium.flip_bit(offset(&medium, segment) + place, 1);
        let report = run(&medium);
        assert_eq!(kinds(&report), [(kind, Some(segment))]);
        assert_eq!((report.lost_records, report.live_keys), (0, u64::from(KEYS) - 10), "{kind:?}");
    }
}

#[test]
fn a_finding_says_whether_the_keys_that_are_lost_are_counted() {
    let medium = store(true);
    let segment = sealed(&medium);
    let (start, footer) = (offset(&medium, segment), footer(&medium, segment));
    let group = start + BLOCK_BYTES as u64 + 20;
    let footer_at = offset(&medium, segment + 1) - BLOCK_BYTES as u64 + 60;
    let summary = start + u64::from(footer.summary_start) + 7;
    let record = start + (BLOCK_BYTES + 64 + 100) as u64;
    for (places, kind, loss) in [
        (vec![start + 33], DamageKind::Header, Loss::Counted),
        // Nothing tells what there was.
        (vec![start + 33, footer_at], DamageKind::Header, Loss::Unknown),
        (vec![group], DamageKind::Group, Loss::Counted),
        // No summary names its records.
        (vec![group, footer_at], DamageKind::Group, Loss::Unknown),
        (vec![footer_at], DamageKind::Footer, Loss::Counted),
        (vec![summary], DamageKind::Summary, Loss::Counted),
        (vec![summary, record], DamageKind::Summary, Loss::Unknown),
        (vec![record], DamageKind::Record, Loss::Counted),
        (vec![70], DamageKind::Superblock, Loss::Counted),
    ] {
        let copy = medium.crashed_copy(&Choices::quiet());
        places.iter().for_each(|place| copy.flip_bit(*place, 1));
        let report = run(&copy);
        let found = report.findings.iter().find(|finding| finding.kind == kind);
        assert_eq!(found.map(|finding| finding.loss), Some(loss), "{kind:?}: {:?}", report.findings);
    }
}

#[test]
fn a_damaged_slot_of_the_superblock_is_found() {
    let medium = store(true);
    medium.flip_bit(70, 1);
    let report = run(&medium);
    assert_eq!(kinds(&report), [(DamageKind::Superblock, None)]);
    assert_eq!(report.lost_records, 0);
}

#[test]
fn a_block_that_cannot_be_read_is_found_with_what_it_held() {
    let medium = store(true);
    let segment = sealed(&medium);
    let start = offset(&medium, segment) + 3 * BLOCK_BYTES as u64;
    let fault = Fault::new(FaultTarget::Read, FaultEffect::Fail).within(start..start + BLOCK_BYTES as u64);
    medium.inject(fault);
    let report = run(&medium);
    assert_eq!(report.damage.get(&DamageKind::Unreadable), Some(&1), "{report:?}");
    assert!(report.lost_records > 0);
}

#[test]
fn checking_changes_nothing() {
    let medium = store(false);
    let bytes = medium.settings().geometry.end() as usize;
    let before = medium.peek(0, bytes);
    run(&medium);
    assert!(medium.peek(0, bytes) == before);
}

#[test]
fn an_empty_device_holds_no_store() {
    let geometry = Geometry { meta_bytes: META_BYTES, segment_bytes: SEGMENT_BYTES, segment_limit: 4 };
    let medium = SimMedium::new(SimSettings::new(geometry), &Choices::quiet());
    let refused = check(&mut medium.device(), &CheckSettings::default(), &mut |_| {}).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
}
