use super::*;
use tierstone_base::KeyspaceId;
use tierstone_engine::backup::place_digest;
use tierstone_engine::{BackupRecord, HeldPart, PartEntry, PartName, ValueKind};

fn start() -> BackupStart {
    let mut map = DatabaseMap::new(2);
    map.create("events", IndexKind::Ordered).unwrap();
    BackupStart {
        id: 0x0123_4567_89ab_cdef,
        taken_at_ms: 1_800_000_000_000,
        shards: 1,
        segment_bytes: 1 << 20,
        seq: 77,
        past_ms: 0,
        bytes: 64,
        map,
        index: IndexKind::Hash,
        store: 5,
        opening: 2,
        base: None,
    }
}

fn part() -> PartEntry {
    let name = PartName { part: 3, life: 0x0102_0304_0506_0708, checksum: 0x1112_1314_1516_1718 };
    let digest = place_digest(128).wrapping_add(place_digest(129));
    PartEntry { held: HeldPart { name, live: 3, digest }, state: PartState::Given, expiries: Vec::new() }
}

fn parts(entries: &[PartEntry]) -> BackupPiece {
    let mut piece = BackupPiece::of_parts();
    entries.iter().for_each(|entry| piece.push_part(entry));
    piece
}

fn piece(keys: &[&[u8]]) -> BackupPiece {
    let name = part().held.name;
    let mut piece = BackupPiece::of_part(name.part, name.life);
    for (key, place) in keys.iter().zip(128..) {
        let (keyspace, kind, expiry_ms) = (KeyspaceId(1), ValueKind::STRING, 1_900_000_000_000);
        piece.push(&BackupRecord { place, keyspace, kind, expiry_ms, key, value: b"Earth" });
    }
    piece
}

/// The frames of a small backup.
fn frames() -> Vec<Vec<u8>> {
    let mut reader = BackupReader::default();
    let mut framer = ShardFramer::new(start().id, 0);
    let mut frames = vec![
        start().encode().unwrap(),
        framer.frame(&piece(&[b"planet:3"])),
        framer.frame(&piece(&[b"a", b"b"])),
        framer.frame(&parts(&[part()])),
    ];
    for frame in &frames {
        reader.take_whole(frame).unwrap();
    }
    frames.push(reader.manifest().unwrap());
    frames
}

fn read(frames: &[Vec<u8>]) -> Result<BackupReader> {
    let mut reader = BackupReader::default();
    frames.iter().try_for_each(|frame| reader.take_whole(frame).map(drop))?;
    Ok(reader)
}

#[test]
fn what_was_framed_comes_back_whole() {
    let frames = frames();
    let mut reader = BackupReader::default();
    let mut keys = Vec::new();
    for frame in &frames {
        if let Taken::Records { records, .. } = reader.take_whole(frame).unwrap() {
            keys.extend(records.map(|record| record.key.to_vec()));
        }
    }
    assert_eq!(keys, [&b"planet:3"[..], b"a", b"b"]);
    assert!(reader.is_complete());
    assert_eq!(reader.start(), Some(&start()));
    assert_eq!((reader.totals().records, reader.totals().frames, reader.totals().parts), (3, 3, 1));
}

#[test]
fn every_flipped_byte_is_noticed() {
    let frames = frames();
    for number in 0..frames.len() {
        for at in 0..frames[number].len() {
            for flip in [1, 0x80] {
                let mut damaged = frames.clone();
                damaged[number][at] ^= flip;
                assert!(read(&damaged).is_err(), "frame {number}, byte {at}");
            }
        }
    }
}

#[test]
fn a_frame_that_is_missing_repeated_moved_or_foreign_is_noticed() {
    let frames = frames();
    for number in 0..frames.len() - 1 {
        let mut missing = frames.clone();
        missing.remove(number);
        assert!(read(&missing).is_err(), "without frame {number}");
    }
    for number in 0..frames.len() {
        let mut repeated = frames.clone();
        repeated.insert(number, frames[number].clone());
        assert!(read(&repeated).is_err(), "frame {number} twice");
    }
    let mut moved = frames.clone();
    moved.swap(1, 2);
    assert!(read(&moved).is_err());
    let mut foreign = frames.clone();
    foreign[2] = {
        let mut framer = ShardFramer::new(start().id + 1, 0);
        framer.frame(&piece(&[b"planet:3"]));
        framer.frame(&piece(&[b"a", b"b"]))
    };
    assert!(read(&foreign).is_err());
    let mut other_shard = frames.clone();
    other_shard[1] = ShardFramer::new(start().id, 1).frame(&piece(&[b"planet:3"]));
    assert!(read(&other_shard).is_err());
    // Without the manifest it is only not complete.
    assert!(!read(&frames[..4]).unwrap().is_complete());
}

#[test]
fn a_number_of_records_that_is_not_theirs_is_noticed() {
    let mut frames = frames();
    let mut wrong = piece(&[b"planet:3"]);
    wrong.records = 2;
    frames[1] = ShardFramer::new(start().id, 0).frame(&wrong);
    assert!(read(&frames[..2]).is_err());
}

#[test]
fn a_newer_format_is_told_and_a_hostile_length_is_refused_before_it_is_used() {
    let frames = frames();
    let mut newer = frames[0].clone();
    newer[4] = VERSION + 1;
    assert_eq!(read(&[newer]).unwrap_err().kind(), ErrorKind::Incompatible);
    let mut head: [u8; HEADER_BYTES] = *frames[0].first_chunk().unwrap();
    head[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(FrameHeader::decode(&head).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_map_of_databases_that_makes_no_sense_is_refused() {
    let text = serde_json::to_string(&start()).unwrap();
    for (from, to) in [
        ("\"keyspaces\":[1,2]", "\"keyspaces\":[]"),
        ("\"keyspaces\":[1,2]", "\"keyspaces\":[1,1]"),
        ("\"keyspaces\":[1,2]", "\"keyspaces\":[1,4000000000]"),
        ("\"events\"", "\"7\""),
        ("\"shards\":1", "\"shards\":0"),
        ("\"shards\":1", "\"shards\":2000"),
    ] {
        let changed = text.replace(from, to);
        assert_ne!(changed, text, "{from}");
        let head = FrameHeader::alone(FrameKind::Start, changed.len());
        let frame = head.encode(0, changed.as_bytes());
        assert_eq!(read(&[frame]).unwrap_err().kind(), ErrorKind::Corrupt, "{to}");
    }
}

/// The examples of `docs/formats/backup.md`: page and encoders cannot part.
#[test]
fn the_page_prints_a_small_backup() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/backup.md");
    let page = std::fs::read_to_string(page).unwrap();
    let frames = frames();
    let dumps = [&frames[0], &frames[1], &frames[3], &frames[4]].map(|bytes| {
        let lines = bytes.chunks(16).enumerate().map(|(line, bytes)| {
            let bytes: String = bytes.iter().map(|byte| format!(" {byte:02x}")).collect();
            format!("{:4} {bytes}\n", line * 16)
        });
        lines.collect::<String>()
    });
    for dump in &dumps {
        let is_printed = page.contains(&format!("```text\n{dump}```"));
        assert!(is_printed, "the page does not print all of\n{}", dumps.join("\n"));
    }
}

/// A backup of the first version of the format, byte by byte as its page printed it, but for its third frame, which the
/// checksum of the manifest knows.
fn oldest() -> Vec<Vec<u8>> {
    let text = include_str!("backup/version_1.txt");
    let frames = text.split("\n\n").map(|frame| {
        let words = frame.lines().flat_map(|line| line.split_whitespace().skip(1));
        words.map(|word| u8::from_str_radix(word, 16).unwrap()).collect::<Vec<u8>>()
    });
    frames.collect()
}

#[test]
fn the_first_version_is_still_read() {
    let frames = oldest();
    let mut reader = BackupReader::default();
    reader.take_whole(&frames[0]).unwrap();
    let first = reader.start().unwrap().clone();
    assert_eq!((first.id, first.store, first.base), (start().id, 0, None));
    let Taken::Records { mut records, .. } = reader.take_whole(&frames[1]).unwrap() else { panic!() };
    let record = records.next().unwrap();
    assert_eq!((record.key, record.value, records.part()), (&b"planet:3"[..], &b"Earth"[..], None));
    let Taken::Records { records, .. } = reader.take_whole(&frames[2]).unwrap() else { panic!() };
    assert!(records.map(|record| record.key.to_vec()).eq([b"a", b"b"]));
    reader.take_whole(&frames[3]).unwrap();
    assert_eq!((reader.totals().records, reader.totals().parts), (3, 0));
    assert!(reader.is_complete());
    // Frames of different versions are no backup.
    let mut mixed = BackupReader::default();
    mixed.take_whole(&frames[0]).unwrap();
    let new = ShardFramer::new(start().id, 0).frame(&piece(&[b"planet:3"]));
    assert!(mixed.take_whole(&new).unwrap_err().message().contains("different formats"));
}

#[test]
fn records_can_be_left_out_of_reading_but_not_of_counting() {
    let frames = frames();
    let mut reader = BackupReader::default();
    for frame in &frames {
        let (head, _) = frame.split_first_chunk().unwrap();
        match FrameHeader::decode(head).unwrap().kind {
            FrameKind::Records => reader.skip(head).unwrap(),
            _ => drop(reader.take_whole(frame).unwrap()),
        }
    }
    assert_eq!(reader.name(), read(&frames).unwrap().name());
    assert_eq!(reader.tables(), read(&frames).unwrap().tables());
    let mut other = BackupReader::default();
    other.take_whole(&frames[0]).unwrap();
    other.skip(frames[2].first_chunk().unwrap()).unwrap_err();
    other.skip(frames[4].first_chunk().unwrap()).unwrap_err();
}

#[test]
fn a_base_comes_back_and_no_damage_is_taken_for_one() {
    let name = BaseName { id: 1, manifest: 2 };
    let shards = vec![vec![part().held; 2], Vec::new()];
    let base = since::BackupBase { store: 3, name, opening: 4, taken_at_ms: 5, shards };
    let bytes = base.encode();
    assert_eq!(since::BackupBase::decode(&bytes).unwrap(), base);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(since::BackupBase::decode(&damaged).is_err(), "byte {at}");
        assert!(since::BackupBase::decode(&bytes[..at]).is_err(), "{at} bytes");
    }
    assert!(base.check_shards(2).is_ok() && base.check_shards(3).is_err());
}

/// A table of one shard with this entry.
fn table(state: PartState, digest: u64, expiries: Vec<(u32, u64)>) -> since::PartTables {
    let mut entry = PartEntry { state, expiries, ..part() };
    entry.held.digest = digest;
    let mut tables = since::PartTables::new(1);
    tables.add(0, vec![entry]).unwrap();
    tables
}

#[test]
fn a_chain_shows_what_counts_from_where_it_was_given() {
    let (one, two) = (place_digest(128), place_digest(129));
    let record = |place| BackupRecord {
        place,
        keyspace: KeyspaceId(1),
        kind: ValueKind::STRING,
        expiry_ms: 0,
        key: b"k",
        value: b"v",
    };
    let key = (0, (3, part().held.name.life));
    let given = table(PartState::Given, one.wrapping_add(two), Vec::new());
    let mut chain = chain::BackupChain::default();
    chain.add(given.clone(), 10).unwrap();
    chain.add(table(PartState::Changed(vec![128]), two, Vec::new()), 20).unwrap();
    chain.add(table(PartState::Kept, two, vec![(129, 99)]), 30).unwrap();
    assert!(chain.check_end().is_err(), "nothing has come");
    assert_eq!(chain.shows(0, key, &record(128)), None);
    assert_eq!(chain.shows(1, key, &record(129)), None);
    assert_eq!(chain.shows(0, (0, (3, 1)), &record(129)), None);
    assert_eq!(chain.shows(0, key, &record(129)), Some(99));
    chain.check_end().unwrap();
    // What has expired by the last cut counts, and is not shown.
    let mut chain = chain::BackupChain::default();
    chain.add(given.clone(), 10).unwrap();
    chain.add(table(PartState::Kept, one.wrapping_add(two), vec![(128, 20), (129, 21)]), 20).unwrap();
    assert_eq!([128, 129].map(|place| chain.shows(0, key, &record(place))), [None, Some(21)]);
    chain.check_end().unwrap();
    // Without a base there is nothing to be named.
    let error = chain::BackupChain::default().add(table(PartState::Kept, 0, Vec::new()), 1).unwrap_err();
    assert!(error.message().contains("does not hold"), "{error}");
    let mut twice = given;
    assert!(twice.add(0, vec![part()]).is_err());
}

/// What comes from a client is bounded by what is there, whatever it says of its lengths.
#[test]
fn a_hostile_base_with_a_right_checksum_is_refused_or_read() {
    let shards = vec![vec![part().held; 3], vec![part().held]];
    let name = BaseName { id: 1, manifest: 2 };
    let whole = since::BackupBase { store: 3, name, opening: 4, taken_at_ms: 5, shards }.encode();
    let body = &whole[..whole.len() - 8];
    for at in 0..body.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut hostile = body.to_vec();
            hostile[at] = value;
            for len in [body.len(), at + 1] {
                let mut bytes = hostile[..len].to_vec();
                bytes.extend_from_slice(&checksum(0, &hostile[..len]).to_le_bytes());
                if let Ok(base) = since::BackupBase::decode(&bytes) {
                    assert_eq!(base.encode(), bytes, "byte {at} is {value}");
                }
            }
        }
    }
}
