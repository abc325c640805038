//! The worked examples of `docs/formats`, byte for byte: page and encoders cannot part.
//!
//! One small store, as the pages tell it: opening 1, one shard, segments of 1 MiB; segment 3 is the first
//! that its hot log opened, and holds one group of two records; segment 4 holds a checkpoint.

use super::checkpoint::{
    Commit, ITEM_HEADER_BYTES, ItemKind, PIECE_HEADER_BYTES, SegmentFact, chunk_header, item_header,
    seal_piece,
};
use super::group::{self, GroupHeader};
use super::record::{
    self, FLAG_EXPIRY, FLAG_PART, FLAG_REPLACES, FLAG_TOMBSTONE, PartMark, RecordHeader, Touched,
};
use super::segment::{SegmentFooter, SegmentHeader, SegmentState, Temperature};
use super::summary::{SummaryBuilder, SummaryEntry};
use super::superblock::{IndexKind, KeyspaceEntry, Superblock};
use crate::index::{EntryLayout, HashIndex, HashIndexSettings};
use crate::location::{Location, Target, UNIT_BYTES};
use crate::shard::{generation, log_id, segment_salt};
use tierstone_base::checksum::checksum;
use tierstone_base::{KeyHasher, KeyspaceId, Position};
use tierstone_media::BLOCK_BYTES;

const STORE: u64 = 0x1122_3344_5566_7788;
const SECRET: [u64; 2] = [1, 2];
const SEGMENT: u32 = 3;
const SEGMENT_BYTES: u64 = 1 << 20;
const SEGMENTS_PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/flash-segment.md");
const CHECKPOINT_PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/checkpoint.md");

/// Lines of an offset and sixteen bytes.
fn dump(bytes: &[u8]) -> String {
    let lines = bytes.chunks(16).enumerate().map(|(line, bytes)| {
        let bytes: String = bytes.iter().map(|byte| format!(" {byte:02x}")).collect();
        format!("{:4} {bytes}\n", line * 16)
    });
    lines.collect()
}

#[track_caller]
fn assert_printed(page: &str, examples: &[&[u8]]) {
    let page = std::fs::read_to_string(page).unwrap();
    let dumps = examples.iter().map(|bytes| dump(bytes));
    let missing: Vec<String> = dumps.filter(|dump| !page.contains(&format!("```text\n{dump}```"))).collect();
    assert!(missing.is_empty(), "the page does not print\n{}", missing.join("\n"));
}

fn life() -> u64 {
    generation(log_id(1, 0, false), 1)
}

fn records() -> [(RecordHeader, &'static [u8], &'static [u8]); 2] {
    let keyspace = KeyspaceId(1);
    let (key, value): (&[u8], &[u8]) = (b"greeting", b"hello");
    let plain =
        RecordHeader { seq: 1, keyspace, key_len: key.len(), value_len: value.len(), ..Default::default() };
    let full = RecordHeader {
        seq: 2,
        flags: FLAG_EXPIRY | FLAG_REPLACES | FLAG_PART,
        expiry_ms: 1_800_000_000_000,
        part: PartMark { batch: 7, number: 0, parts: 2 },
        ..plain
    };
    [(plain, key, value), (full, key, value)]
}

/// The group, and the summary of its segment.
fn group() -> (Vec<u8>, SummaryBuilder) {
    let salt = segment_salt(STORE, SEGMENT, life());
    let mut bytes = vec![0; group::HEADER_BYTES];
    let mut summary = SummaryBuilder::default();
    for (header, key, value) in records() {
        let at = bytes.len();
        let unit = ((BLOCK_BYTES + at) / UNIT_BYTES) as u32;
        bytes.resize(at + header.units() * UNIT_BYTES, 0);
        record::encode(&mut bytes[at..], &header, key, value, salt, unit);
        summary.push(SummaryEntry::new(&header, KeyHasher::new(SECRET).position(key), unit), key);
    }
    let header = GroupHeader {
        log_id: log_id(1, 0, false),
        number: 0,
        durable_groups: 0,
        first_seq: 1,
        len: bytes.len(),
        records: 2,
        batches_resolved: 0,
        past_ms: 1_700_000_000_000,
    };
    group::encode_header(&mut bytes, &header, salt, BLOCK_BYTES);
    (bytes, summary)
}

#[test]
fn the_page_prints_a_slot_of_the_superblock() {
    let superblock = Superblock {
        store_id: STORE,
        hash_secret: SECRET,
        segment_bytes: SEGMENT_BYTES,
        open_count: 1,
        clean: false,
        past_ms: 0,
        next_keyspace: 3,
        keyspaces: vec![
            KeyspaceEntry { id: KeyspaceId(1), name: "0".into(), index: IndexKind::Hash },
            KeyspaceEntry { id: KeyspaceId(2), name: "logs".into(), index: IndexKind::Ordered },
        ],
        facts: b"{}".to_vec(),
        batches_decided: 0,
        redo_opening: 0,
        in_use: Vec::new(),
        lives: 0,
    };
    let slot = superblock.encode(1).unwrap();
    let used = slot.iter().rposition(|&byte| byte != 0).unwrap() + 4;
    assert_printed(SEGMENTS_PAGE, &[&slot[..used]]);
}

#[test]
fn the_page_prints_header_group_summary_and_footer_of_a_segment() {
    let header = SegmentHeader {
        store: STORE,
        segment: SEGMENT,
        state: SegmentState::Log,
        temperature: Temperature::Hot,
        generation: life(),
        log_id: log_id(1, 0, false),
        opened_seq: 1,
        first_group: 0,
        durable_groups: 0,
        first_position: 0,
        last_position: u64::MAX,
    };
    let (group, summary) = group();
    let (min_seq, max_seq) = summary.seq_range();
    let footer = SegmentFooter {
        store: STORE,
        segment: SEGMENT,
        generation: life(),
        log_id: log_id(1, 0, false),
        first_group: 0,
        end_group: 1,
        data_end: 2 * BLOCK_BYTES as u32,
        summary_start: SEGMENT_BYTES as u32 - 2 * BLOCK_BYTES as u32,
        summary_len: summary.bytes().len() as u32,
        records: summary.records(),
        min_seq,
        max_seq,
        longest_units: summary.longest_units(),
        summary_checksum: checksum(life(), summary.bytes()),
        past_ms: 1_700_000_000_000,
    };
    let (mut first, mut last) = ([0; 88], [0; 120]);
    header.encode(&mut first);
    footer.encode(&mut last);
    assert_printed(SEGMENTS_PAGE, &[&first, &group, summary.bytes(), &last]);
}

#[test]
fn the_page_prints_a_touch_and_its_entry() {
    let [_, (value, key, _)] = records();
    let unit = |bytes: usize| ((BLOCK_BYTES + bytes) / UNIT_BYTES) as u32;
    let place = Location::new(SEGMENT, unit(group::HEADER_BYTES + 64)).raw();
    let touch = RecordHeader {
        seq: 3,
        flags: FLAG_TOMBSTONE | FLAG_EXPIRY,
        expiry_ms: 1_900_000_000_000,
        value_len: 0,
        part: PartMark::default(),
        touched: Touched { seq: value.seq, place },
        ..value
    };
    let at = unit(BLOCK_BYTES + group::HEADER_BYTES);
    let mut bytes = vec![0; touch.units() * UNIT_BYTES];
    record::encode(&mut bytes, &touch, key, b"", segment_salt(STORE, SEGMENT, life()), at);
    let mut summary = SummaryBuilder::default();
    summary.push(SummaryEntry::new(&touch, KeyHasher::new(SECRET).position(key), at), key);
    assert_printed(SEGMENTS_PAGE, &[&bytes, summary.bytes()]);
}

#[test]
fn the_page_prints_a_checkpoint() {
    let generation = generation(log_id(1, 0, false), 1 << 63 | 1);
    let mut index = HashIndex::new(HashIndexSettings::default());
    let place = Target::Device(Location::new(SEGMENT, (BLOCK_BYTES / UNIT_BYTES) as u32 + 4));
    index.insert(KeyHasher::new(SECRET).position(b"greeting"), place.pack()).unwrap();
    let mut chunk = chunk_header(KeyspaceId(1), Position(0), 2).to_vec();
    index.dump_from(Position(0), usize::MAX, &mut chunk);
    let fact = SegmentFact {
        segment: SEGMENT,
        generation: life(),
        live_records: 1,
        live_bytes: 96,
        ..SegmentFact::default()
    };
    let mut facts = Vec::new();
    fact.write(&mut facts);
    let mut piece = vec![0; PIECE_HEADER_BYTES];
    for (kind, content) in
        [(ItemKind::Chunk, &chunk[..]), (ItemKind::Segments, &facts), (ItemKind::Keyspaces, &[1, 0, 0, 0])]
    {
        assert_eq!(ITEM_HEADER_BYTES, item_header(kind, content.len()).len());
        piece.extend(item_header(kind, content.len()));
        piece.extend(content);
    }
    let used = piece.len();
    seal_piece(&mut piece, 0, used, segment_salt(STORE, 4, generation));
    let commit = Commit {
        layout: EntryLayout::NARROW,
        store: STORE,
        generation,
        open_count: 1,
        number: 1,
        seq: 2,
        newest: 2,
        pieces: 1,
        shard: 0,
        shard_count: 1,
        first_position: 0,
        last_position: u64::MAX,
        segments: vec![4],
    };
    let mut block = vec![0; BLOCK_BYTES];
    commit.encode(&mut block);
    assert_printed(CHECKPOINT_PAGE, &[&piece, &block[..100]]);
}
