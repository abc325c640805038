use super::*;
use tierstone_base::KeyspaceId;
use tierstone_engine::{BackupRecord, ValueKind};

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
    }
}

fn piece(keys: &[&[u8]]) -> BackupPiece {
    let mut piece = BackupPiece::default();
    for key in keys {
        let (keyspace, kind, expiry_ms) = (KeyspaceId(1), ValueKind::STRING, 1_900_000_000_000);
        piece.push(&BackupRecord { keyspace, kind, expiry_ms, key, value: b"Earth" });
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
        if let Taken::Records(records) = reader.take_whole(frame).unwrap() {
            keys.extend(records.map(|record| record.key.to_vec()));
        }
    }
    assert_eq!(keys, [&b"planet:3"[..], b"a", b"b"]);
    assert!(reader.is_complete());
    assert_eq!(reader.start(), Some(&start()));
    assert_eq!((reader.totals().records, reader.totals().frames), (3, 2));
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
    assert!(!read(&frames[..3]).unwrap().is_complete());
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
        let head =
            FrameHeader { kind: FrameKind::Start, shard: 0, number: 0, records: 0, len: changed.len() };
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
    let dumps = [&frames[0], &frames[1], &frames[3]].map(|bytes| {
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
