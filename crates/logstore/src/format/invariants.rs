//! The promises of the decoders, as functions over arbitrary bytes.
//!
//! The fuzz targets and the crate's own tests run the same bodies; a broken promise panics. Random
//! bytes never carry a right checksum, so each body also decodes them with the checksums put right: as
//! if a writer with bad intentions had made them.

use super::checkpoint::{
    CHUNK_HEADER_BYTES, Commit, ITEM_HEADER_BYTES, Item, ItemKind, PIECE_HEADER_BYTES, SEGMENTS_MAX,
    chunk_header, item_header, next_item, open_piece, seal_piece,
};
use super::group::{self, GroupHeader};
use super::record::{self, Decoded, FLAG_EXPIRY};
use super::segment::{HeaderFound, SegmentFooter, SegmentHeader};
use super::summary::{SummaryBuilder, SummaryCursor, SummaryReader};
use super::superblock::{SLOT_BYTES, SlotFound, Superblock};
use crate::index::{EntryLayout, HashIndex, HashIndexSettings};
use crate::location::UNIT_BYTES;
use crate::shard::segment_salt;
use tierstone_base::checksum::checksum;
use tierstone_base::codec::Reader;

const SALT: u64 = 0x1234_5678_9abc_def0;

fn word(data: &[u8]) -> u64 {
    Reader::new(data).u64().unwrap_or(0)
}

/// A record that decodes lies within its bytes, comes back when encoded again, and its beginnings are
/// no records.
pub fn check_record(data: &[u8]) {
    const LONGEST: usize = 1 << 16;
    let unit = word(data) as u32;
    let mut bytes = data.to_vec();
    let _ = record::decode(&bytes, SALT, unit, LONGEST);
    let Some(header) = record::decode_header(&bytes) else { return };
    let len = header.record_len();
    if len > bytes.len() {
        match record::decode(&bytes, SALT, unit, LONGEST) {
            Decoded::Short { needed } => assert!(needed > bytes.len() && needed <= LONGEST),
            Decoded::Invalid => {}
            Decoded::Whole(_) => panic!("a record of {len} bytes in {}", bytes.len()),
        }
        return;
    }
    record::seal(&mut bytes[..len], SALT, unit);
    if len > LONGEST {
        assert!(!matches!(record::decode(&bytes, SALT, unit, LONGEST), Decoded::Whole(_)));
        return;
    }
    assert_eq!(record::decode(&bytes, SALT, unit, LONGEST), Decoded::Whole(header));
    for cut in [0, 1, record::HEADER_BYTES, len.saturating_sub(1)] {
        let cut = cut.min(len.saturating_sub(1));
        assert!(!matches!(record::decode(&bytes[..cut], SALT, unit, LONGEST), Decoded::Whole(_)));
    }
    assert!(header.flags & FLAG_EXPIRY != 0 || header.expiry_ms == 0);
    let (key, value) = (&bytes[header.key_range()], &bytes[header.value_range()]);
    let mut again = vec![0xff; header.units() * UNIT_BYTES];
    assert_eq!(record::encode(&mut again, &header, key, value, SALT, unit), len);
    assert_eq!(&again[..len], &bytes[..len]);
    assert!(again[len..].iter().all(|&byte| byte == 0));
}

/// The records of a group that decodes lie in it one after the other, and nothing behind the group
/// matters.
pub fn check_group(data: &[u8]) {
    let offset = (word(data) % 1024) as usize * 4096;
    let mut records = Vec::new();
    let _ = group::decode(data, SALT, offset, &mut records);
    let mut bytes = data.to_vec();
    if bytes.len() < group::HEADER_BYTES {
        return;
    }
    let mut at = group::HEADER_BYTES;
    let mut count = 0;
    while let Some(header) = bytes.get(at..).and_then(record::decode_header) {
        let Some(record) = bytes.get_mut(at..at + header.record_len()) else { break };
        record::seal(record, SALT, ((offset + at) / UNIT_BYTES) as u32);
        at += header.units() * UNIT_BYTES;
        count += 1;
        if count == 1 + word(&data[8..]) % 64 {
            break;
        }
    }
    let end = at.min(bytes.len());
    let wrong = |one_in: u64| word(&data[16..]).is_multiple_of(one_in);
    let header = GroupHeader {
        log_id: word(&data[24..]),
        number: word(&data[32..]),
        durable_groups: word(&data[32..]).saturating_sub(word(&data[40..]) >> 32),
        first_seq: word(&data[48..]) >> 16,
        len: if wrong(3) { (word(&data[16..]) >> 8) as u32 as usize } else { end },
        records: if wrong(5) { (word(&data[16..]) >> 40) as u32 } else { count as u32 },
        batches_resolved: word(&data[40..]) & 0xffff_ffff,
        past_ms: word(&data[24..]) ^ word(&data[48..]),
    };
    group::encode_header(&mut bytes, &header, SALT, offset);
    records.clear();
    let found = group::decode(&bytes, SALT, offset, &mut records);
    let Some(found) = found else {
        assert!(records.is_empty(), "a group that is none gives records");
        return;
    };
    assert_eq!((found, records.len()), (header, header.records as usize));
    let mut next = offset + group::HEADER_BYTES;
    for (place, record) in &records {
        assert_eq!(*place, next);
        assert!(place + record.record_len() <= offset + header.len);
        next += record.units() * UNIT_BYTES;
    }
    let mut alone = Vec::new();
    assert_eq!(group::decode(&bytes[..header.len], SALT, offset, &mut alone), Some(found));
    assert_eq!(alone, records);
    assert!(group::decode(&bytes[..header.len - 1], SALT, offset, &mut alone).is_none());
    assert!(group::decode(&bytes, SALT, offset + 4096, &mut alone).is_none());
}

/// Headers and footers that decode come back when encoded again.
pub fn check_segment_blocks(data: &[u8]) {
    const HEADER_SUMMED: usize = 80;
    const FOOTER_SUMMED: usize = 112;
    let _ = (SegmentHeader::decode(data), SegmentFooter::decode(data, word(data)));
    let mut block = data.to_vec();
    block.resize(block.len().max(FOOTER_SUMMED + 8), 0);
    let mut known = vec![0; FOOTER_SUMMED + 8];
    SegmentHeader::free(0, 0, 0).encode(&mut known);
    // Magic, and mostly the version.
    let taken = if word(data).is_multiple_of(4) { 4 } else { 8 };
    block[..taken].copy_from_slice(&known[..taken]);
    let magic = u64::from(Reader::new(&known).u32().unwrap_or(0));
    let sum = checksum(magic, &block[..HEADER_SUMMED]);
    put_word(&mut block, HEADER_SUMMED, sum);
    if let HeaderFound::Whole(header) = SegmentHeader::decode(&block) {
        let mut again = vec![0; block.len()];
        header.encode(&mut again);
        assert_eq!(SegmentHeader::decode(&again), HeaderFound::Whole(header));
    }
    blank_footer().encode(&mut known);
    block[..taken].copy_from_slice(&known[..taken]);
    let generation = word(&block[24..]);
    let sum = checksum(generation, &block[..FOOTER_SUMMED]);
    put_word(&mut block, FOOTER_SUMMED, sum);
    if let Some(footer) = SegmentFooter::decode(&block, generation) {
        let mut again = vec![0; block.len()];
        footer.encode(&mut again);
        assert_eq!(SegmentFooter::decode(&again, generation), Some(footer));
        assert_eq!(SegmentFooter::decode(&block, !generation), None);
    }
}

/// Items of a checkpoint follow each other and end; what a chunk brings never makes the index panic or
/// grow beyond its limit; a piece that is sealed opens as that piece and no other; a commit that decodes
/// comes back when encoded again.
pub fn check_checkpoint(data: &[u8]) {
    let mut items = data;
    while let Some(item) = next_item(&mut items) {
        if let Item::Chunk { keyspace, from, applied, regions } = item {
            let layouts = [EntryLayout::NARROW, EntryLayout::WIDE];
            for (layout, of_dump) in layouts.into_iter().flat_map(|one| layouts.map(|other| (one, other))) {
                let mut index = HashIndex::new(HashIndexSettings { memory_limit_bytes: 1 << 20, layout });
                let _ = index.load_with(regions, of_dump, &mut |_| true);
                assert!(index.memory_bytes() <= 1 << 20);
            }
            let chunk = [&chunk_header(keyspace, from, applied)[..], regions].concat();
            assert!(chunk.len() >= CHUNK_HEADER_BYTES);
            let again = [&item_header(ItemKind::Chunk, chunk.len())[..], &chunk].concat();
            let mut rest = &again[..];
            assert_eq!(next_item(&mut rest), Some(Item::Chunk { keyspace, from, applied, regions }));
            assert!(rest.is_empty() && again.len() == ITEM_HEADER_BYTES + chunk.len());
        }
    }
    let number = word(data);
    assert!(open_piece(data, number, SALT).is_none(), "random bytes carry a right checksum");
    let mut piece = [&[0; PIECE_HEADER_BYTES][..], data].concat();
    let used = piece.len();
    seal_piece(&mut piece, number, used, SALT);
    assert_eq!(open_piece(&piece, number, SALT), Some(data));
    assert_eq!(open_piece(&piece, !number, SALT), None);
    assert_eq!(open_piece(&piece, number, !SALT), None);
    check_commit(data);
}

fn check_commit(data: &[u8]) {
    let mut block = data.to_vec();
    block.resize(4096, 0);
    let (store, segment) = (word(&block[16..]), Reader::new(&block[96..]).u32().unwrap_or(0));
    let generation = word(&block[24..]);
    assert_eq!(Commit::decode(&block, store, segment, generation), None);
    let mut known = vec![0; 4096];
    let layout = if word(data) & 16 == 0 { EntryLayout::NARROW } else { EntryLayout::WIDE };
    Commit { layout, ..Commit::default() }.encode(&mut known);
    // Magic, and mostly the version.
    let taken = if word(data).is_multiple_of(4) { 12 } else { 16 };
    block[8..taken].copy_from_slice(&known[8..taken]);
    let sum = checksum(segment_salt(store, segment, generation), &block[8..]);
    put_word(&mut block, 0, sum);
    let Some(commit) = Commit::decode(&block, store, segment, generation) else { return };
    assert_eq!(Commit::decode(&block, store, segment, !generation), None);
    assert_eq!(Commit::decode(&block, store, !segment, generation), None);
    if commit.segments.len() <= SEGMENTS_MAX {
        let mut again = vec![0; 4096];
        commit.encode(&mut again);
        assert_eq!(Commit::decode(&again, store, segment, generation), Some(commit));
    }
}

fn put_word(block: &mut [u8], at: usize, word: u64) {
    block[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

fn blank_footer() -> SegmentFooter {
    SegmentFooter {
        store: 0,
        segment: 0,
        generation: 0,
        log_id: 0,
        first_group: 0,
        end_group: 0,
        data_end: 0,
        summary_start: 0,
        summary_len: 0,
        records: 0,
        min_seq: 0,
        max_seq: 0,
        longest_units: 0,
        summary_checksum: 0,
        past_ms: 0,
    }
}

/// A summary gives as many entries as were asked for or says that it is damaged; entries follow each
/// other, come back when built again, and it does not matter where reading stops and goes on.
pub fn check_summary(data: &[u8]) {
    let (head, bytes) = data.split_at(data.len().min(2));
    let count = head.iter().fold(0, |count, &byte| count << 8 | u32::from(byte));
    let mut reader = SummaryReader::new(bytes, count);
    let mut entries = Vec::new();
    while let Some(entry) = reader.next_keyed() {
        entries.push(entry);
    }
    assert!(entries.len() == count as usize || reader.damaged());
    for pair in entries.windows(2) {
        assert!(pair[1].0.unit >= pair[0].0.unit + pair[0].0.units);
    }
    let mut builder = SummaryBuilder::default();
    for (entry, key) in &entries {
        assert_eq!((usize::from(entry.key_len), entry.is_keyed() || key.is_empty()), (key.len(), true));
        builder.push(*entry, key);
    }
    assert_eq!(builder.records() as usize, entries.len());
    let mut reader = SummaryReader::new(builder.bytes(), builder.records());
    let again: Vec<_> = std::iter::from_fn(|| reader.next_keyed()).collect();
    assert_eq!(again, entries);
    let mut cursor = SummaryCursor::new(count);
    let mut pieces = Vec::new();
    while !cursor.is_at_end() {
        let mut reader = SummaryReader::resume(bytes, cursor);
        let before = pieces.len();
        pieces.extend(std::iter::from_fn(|| reader.next_keyed()).take(3));
        cursor = reader.cursor(bytes);
        assert!(pieces.len() > before || cursor.is_at_end());
    }
    assert_eq!(pieces, entries);
}

/// A superblock that decodes comes back when encoded again; its counter counts.
pub fn check_superblock(data: &[u8]) {
    let _ = Superblock::decode(data);
    let blank = Superblock {
        store_id: 0,
        hash_secret: [0; 2],
        segment_bytes: 0,
        open_count: 0,
        clean: false,
        past_ms: 0,
        next_keyspace: 0,
        keyspaces: Vec::new(),
        facts: Vec::new(),
        batches_decided: 0,
        redo_opening: 0,
        in_use: Vec::new(),
        lives: 0,
    };
    let Ok(mut slot) = blank.encode(word(data)) else { panic!("a blank superblock fits a slot") };
    const HEADER_BYTES: usize = 40;
    let body = data.len().min(SLOT_BYTES - HEADER_BYTES);
    let magic = word(&slot);
    slot[HEADER_BYTES..].fill(0);
    slot[HEADER_BYTES..HEADER_BYTES + body].copy_from_slice(&data[..body]);
    slot[12..16].copy_from_slice(&(body as u32).to_le_bytes());
    put_word(&mut slot, 32, 0);
    let sum = checksum(magic, &slot[..HEADER_BYTES + body]);
    put_word(&mut slot, 32, sum);
    let SlotFound::Whole { superblock, counter } = Superblock::decode(&slot) else { return };
    assert_eq!(counter, word(data));
    let Ok(again) = superblock.encode(counter) else { panic!("what came from a slot fits a slot") };
    assert_eq!(Superblock::decode(&again), SlotFound::Whole { superblock, counter });
}

#[cfg(test)]
#[path = "invariants_test.rs"]
mod invariants_test;
