use super::invariants::{check_cache_csv, check_file, check_monitor, framed};
use super::monitor::{MonitorImport, first_ms};
use super::writer::HEAD_BYTES;
use super::*;
use proptest::prelude::*;
use std::io::Cursor;

const HEAD: TraceHead =
    TraceHead { source: TraceSource::Server, is_anonymous: false, began_ms: 1_700_000_000_123 };

fn written(head: TraceHead, records: &[TraceRecord]) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), &head).unwrap();
    records.iter().for_each(|record| writer.push(record).unwrap());
    writer.finish().unwrap()
}

/// All records before the end or the damage, whether it was cut, and the damage.
fn read(bytes: &[u8]) -> (Vec<TraceRecord>, bool, Option<Error>) {
    let mut records = Vec::new();
    let mut reader = match TraceReader::new(Cursor::new(bytes)) {
        Ok(reader) => reader,
        Err(error) => return (records, false, Some(error)),
    };
    loop {
        match reader.next_record() {
            Ok(Some(record)) => records.push(record),
            Ok(None) => return (records, reader.is_cut(), None),
            Err(error) => return (records, reader.is_cut(), Some(error)),
        }
    }
}

fn operations() -> impl Strategy<Value = TraceOperation> {
    prop_oneof![
        (0..TraceOperation::CODED.len()).prop_map(|place| TraceOperation::CODED[place].clone()),
        "[a-z0-9._|-]{1,32}".prop_map(TraceOperation::Other),
    ]
}

fn records() -> impl Strategy<Value = Vec<TraceRecord>> {
    let key = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40).prop_map(TraceKey::Named),
        any::<(u64, u32)>().prop_map(|(hash, bytes)| TraceKey::Hashed { hash, bytes }),
    ];
    let value = prop::option::of(0..=VALUE_BYTES_MAX);
    let record =
        (0..u64::MAX >> 8, operations(), 0..=DATABASE_MAX, key, any::<bool>(), value, any::<Option<u64>>());
    prop::collection::vec(record, 0..20).prop_map(|parts| {
        let mut time_us = 0;
        let make = |(gap, operation, database, key, is_miss, value_bytes, expiry_ms)| {
            time_us += gap;
            TraceRecord { time_us, operation, database, key, is_miss, value_bytes, expiry_ms }
        };
        parts.into_iter().map(make).collect()
    })
}

proptest! {
    #[test]
    fn what_is_written_comes_back(records in records(), is_anonymous: bool, began_ms: u64, source in 0usize..3) {
        let head = TraceHead { source: TraceSource::ALL[source], is_anonymous, began_ms };
        let bytes = written(head, &records);
        prop_assert_eq!(TraceReader::new(Cursor::new(&bytes)).unwrap().head(), head);
        let (found, is_cut, damage) = read(&bytes);
        prop_assert!(!is_cut && damage.is_none());
        prop_assert_eq!(found, records);
    }

    #[test]
    fn a_cut_file_is_told_and_read_up_to_its_last_whole_record(records in records(), at in any::<prop::sample::Index>()) {
        let bytes = written(HEAD, &records);
        let cut = &bytes[..HEAD_BYTES + at.index(bytes.len() - HEAD_BYTES)];
        let (found, is_cut, damage) = read(cut);
        prop_assert!(is_cut && damage.is_none());
        prop_assert_eq!(&found[..], &records[..found.len()]);
        // Everything whole is there: one record more would not fit into what is left.
        let whole = written(HEAD, &records[..found.len()]);
        let end_frame = written(HEAD, &[]).len() - HEAD_BYTES;
        prop_assert!(cut.len() + 1 >= whole.len() - end_frame, "{} of {}", cut.len(), whole.len());
        if let Some(next) = records.get(found.len()) {
            let next: Vec<TraceRecord> = records[..found.len()].iter().chain([next]).cloned().collect();
            prop_assert!(cut.len() < written(HEAD, &next).len() - end_frame + 2);
        }
    }

    #[test]
    fn a_flipped_bit_is_seen(records in records(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut bytes = written(HEAD, &records);
        let place = at.index(bytes.len());
        bytes[place] ^= 1 << bit;
        let (found, is_cut, damage) = read(&bytes);
        prop_assert!(is_cut || damage.is_some());
        prop_assert!(found.len() <= records.len());
        prop_assert_eq!(&found[..], &records[..found.len()], "what comes before the damage is right");
    }

    #[test]
    fn frames_that_change_places_or_files_are_seen(key in "[a-z]{4}", other in "[A-Z]{4}") {
        let record = |key: &str| TraceRecord::new(0, TraceOperation::Read, TraceKey::of(key.as_bytes()));
        let bytes = written(HEAD, &[record(&key), record(&other)]);
        let frame = 1 + 2 + 1 + 1 + 4 + 4;
        let mut swapped = bytes.clone();
        swapped[HEAD_BYTES..HEAD_BYTES + 2 * frame].rotate_left(frame);
        prop_assert_eq!(read(&swapped).2.map(|error| error.kind()), Some(ErrorKind::Corrupt));
        let mut foreign = written(TraceHead { began_ms: 7, ..HEAD }, &[]);
        foreign.truncate(HEAD_BYTES);
        foreign.extend_from_slice(&bytes[HEAD_BYTES..]);
        prop_assert_eq!(read(&foreign).2.map(|error| error.kind()), Some(ErrorKind::Corrupt));
    }

    #[test]
    fn bodies_that_the_fuzzer_frames_are_read(records in records()) {
        let bytes = written(HEAD, &records);
        let (mut bodies, mut rest) = (Vec::new(), &bytes[HEAD_BYTES..]);
        while let Some((&length, behind)) = rest.split_first() {
            prop_assume!(length < 0x80, "a longer body has a length of two bytes");
            let (body, behind) = behind.split_at(usize::from(length));
            if body[0] != 0 {
                bodies.push(length);
                bodies.extend_from_slice(body);
            }
            rest = &behind[4..];
        }
        let (found, is_cut, damage) = read(&framed(&bodies));
        prop_assert!(!is_cut && damage.is_none(), "{damage:?}");
        prop_assert_eq!(found, records);
    }

    #[test]
    fn any_bytes_are_read_without_harm(data: Vec<u8>) {
        check_monitor(&data);
        check_cache_csv(&data);
        check_file(&data);
        let mut headed = written(HEAD, &[]);
        headed.truncate(HEAD_BYTES);
        headed.extend_from_slice(&data);
        check_file(&headed);
    }

    #[test]
    fn text_that_is_nearly_of_the_format_is_read_without_harm(
        lines in prop::collection::vec(
            r#"(\+?[0-9]{1,3}\.[0-9]{6} \[[0-9] (lua|a:1)\]( "(set|get|del|mset|expire|hset|ping|[a-z]{2})")?( "([a-z0-9]|\\[nrtabx"\\]|\\x[0-9a-g]{2}){0,4}"){0,5}|OK|.{0,20})\r?"#,
            0..8,
        ),
    ) {
        check_monitor(lines.join("\n").as_bytes());
        check_monitor((lines.join("\n") + "\n").as_bytes());
    }

    #[test]
    fn csv_that_is_nearly_of_the_format_is_read_without_harm(
        lines in prop::collection::vec(
            "([0-9]{1,3},[a-z,]{0,4},[0-9]{0,2},[0-9]{0,3},[0-9],(get|gets|set|add|cas|append|incr|delete|x),[0-9]{0,3}|.{0,20})\r?",
            0..8,
        ),
    ) {
        check_cache_csv((lines.join("\n") + "\n").as_bytes());
    }

    #[test]
    fn any_argument_comes_back_from_its_escapes(value: Vec<u8>) {
        let mut text = b"+1.000000 [0 [::1]:7] \"set\" \"".to_vec();
        for byte in &value {
            match byte {
                b'"' | b'\\' => text.extend_from_slice(&[b'\\', *byte]),
                b'\n' => text.extend_from_slice(b"\\n"),
                0x07 => text.extend_from_slice(b"\\a"),
                b' '..=b'~' => text.push(*byte),
                _ => text.extend_from_slice(format!("\\x{byte:02X}").as_bytes()),
            }
        }
        text.extend_from_slice(b"\" \"12345\"\r\n");
        let (records, _) = import(&text);
        let expected = TraceRecord::new(0, TraceOperation::Write, TraceKey::Named(value));
        prop_assert_eq!(records, vec![TraceRecord { value_bytes: Some(5), ..expected }]);
    }
}

fn import(text: &[u8]) -> (Vec<TraceRecord>, ImportCounts) {
    let (mut import, mut records) = (MonitorImport::new(), Vec::new());
    import
        .feed(text, &mut |record| {
            records.push(record.clone());
            Ok(())
        })
        .unwrap();
    import.finish();
    (records, import.counts().clone())
}

/// One command at second 1,000 (and a first one at 999), as a record.
fn one(command: &str) -> Vec<TraceRecord> {
    let text = format!("999.000000 [0 a:1] \"ping\"\n1000.500000 [3 a:1] {command}\n");
    import(text.as_bytes()).0
}

#[test]
fn commands_become_operations_with_sizes_and_expiries() {
    use TraceOperation::{Add, Append, Delete, Expire, Read, Replace, Update, Write};
    let cases = [
        (r#""GET" "k""#, Read, None, None),
        (r#""set" "k" "abc""#, Write, Some(3), None),
        (r#""set" "k" "abc" "EX" "10""#, Write, Some(3), Some(10_000)),
        (r#""set" "k" "abc" "px" "10" "nx""#, Add, Some(3), Some(10)),
        (r#""set" "k" "" "xx" "keepttl""#, Replace, Some(0), None),
        (r#""set" "k" "abc" "exat" "1002""#, Write, Some(3), Some(1_500)),
        (r#""set" "k" "abc" "pxat" "1""#, Write, Some(3), Some(1)),
        (r#""setex" "k" "5" "abcd""#, Write, Some(4), Some(5_000)),
        (r#""psetex" "k" "5" "abcd""#, Write, Some(4), Some(5)),
        (r#""setnx" "k" "abcd""#, Add, Some(4), None),
        (r#""getset" "k" "abcd""#, Update, Some(4), None),
        (r#""incr" "k""#, Update, None, None),
        (r#""append" "k" "xy""#, Append, Some(2), None),
        (r#""getdel" "k""#, Delete, None, None),
        (r#""getex" "k""#, Read, None, None),
        (r#""getex" "k" "ex" "7""#, Expire, None, Some(7_000)),
        (r#""getex" "k" "persist""#, Expire, None, None),
        (r#""expire" "k" "7""#, Expire, None, Some(7_000)),
        (r#""pexpireat" "k" "1000501""#, Expire, None, Some(1)),
        (r#""persist" "k""#, Expire, None, None),
    ];
    for (command, operation, value_bytes, expiry_ms) in cases {
        let record = TraceRecord::new(1_500_000, operation, TraceKey::of(b"k"));
        let expected = TraceRecord { database: 3, value_bytes, expiry_ms, ..record };
        assert_eq!(one(command), [expected], "{command}");
    }
}

#[test]
fn several_keys_are_several_records_and_the_rest_is_counted_by_name() {
    let names = |records: Vec<TraceRecord>| -> Vec<(String, TraceKey)> {
        records.into_iter().map(|record| (record.operation.name().to_owned(), record.key)).collect()
    };
    let key = |key: &str| TraceKey::of(key.as_bytes());
    assert_eq!(names(one(r#""mget" "a" "b""#)), [("read".into(), key("a")), ("read".into(), key("b"))]);
    assert_eq!(
        names(one(r#""mset" "a" "1" "b" "22""#)),
        [("write".into(), key("a")), ("write".into(), key("b"))]
    );
    assert_eq!(one(r#""mset" "a" "1" "b" "22""#)[1].value_bytes, Some(2));
    assert_eq!(names(one(r#""unlink" "a" "b""#)), [("delete".into(), key("a")), ("delete".into(), key("b"))]);
    assert_eq!(names(one(r#""hset" "h" "f" "v""#)), [("hset".into(), key("h"))]);
    assert_eq!(names(one(r#""set" "k" "v" "bogus""#)), [("set".into(), key("k"))]);
    assert_eq!(names(one(r#""weird command!" "k""#)), [("unknown".into(), key("k"))]);
    assert!(one(r#""eval" "return 1" "0""#).is_empty());
}

#[test]
fn lines_of_servers_and_of_their_clients_are_read_and_others_counted() {
    let text = "OK\n\
        1700000000.000001 [0 127.0.0.1:50000] \"SET\" \"a\" \"1\"\n\
        +1700000000.000101 [0 lua] \"get\" \"a\"\r\n\
        1699999999.999999 [0 unix:/tmp/s] \"get\" \"a\"\n\
        no such line\n\
        1700000000.5 [0 a:1] \"get\" \"a\"\n\
        1700000001.000001 [0 a:1] \"client\" \"list\"\n\
        1700000001.000001 [0 a:1] \"get\" \"a";
    let (records, counts) = import(text.as_bytes());
    let times: Vec<u64> = records.iter().map(|record| record.time_us).collect();
    assert_eq!(times, [0, 100, 100]);
    assert_eq!((counts.lines, counts.refused, counts.first_refused_line), (8, 3, Some(5)));
    assert_eq!((counts.passed_over, counts.out_of_order), (1, 1));
    assert_eq!(first_ms(text.as_bytes()), 1_700_000_000_000);
}

#[test]
fn long_arguments_keep_their_sizes_and_long_lines_little_memory() {
    let value = "v".repeat(9 << 20);
    let (records, _) = import(format!("1.000000 [0 a:1] \"set\" \"k\" \"{value}\"\n").as_bytes());
    assert_eq!(records[0].value_bytes, Some(9 << 20));
    let (records, _) = import(b"1.000000 [0 a:1] \"set\" \"k\" \"abc... (1000 more bytes)\"\n");
    assert_eq!(records[0].value_bytes, Some(1003), "as servers of this project shorten it");
    let staged = "x".repeat(5_000);
    let line = format!("1.000000 [0 a:1] \"set\" \"k\" \"{staged}... (70000 more bytes)\"\n");
    assert_eq!(import(line.as_bytes()).0[0].value_bytes, Some(75_000));
    let (records, counts) = import(format!("1.000000 [0 a:1] \"get\" \"{value}\"\n").as_bytes());
    assert!(records.is_empty());
    assert_eq!(counts.keys_too_long, 1);
    let (records, counts) = import(format!("{value}\n1.000000 [0 a:1] \"get\" \"k\"\n").as_bytes());
    assert_eq!((records.len(), counts.refused), (1, 1), "a line that is none does not spoil the next");
    let many = " \"k\"".repeat(super::monitor_line::KEPT_ARGUMENTS + 1);
    let (records, _) = import(format!("1.000000 [0 a:1] \"mget\"{many}\n").as_bytes());
    assert_eq!(records[0].operation, TraceOperation::Other("mget".into()), "with more keys than are kept");
    assert_eq!(records.len(), 1);
}

#[test]
fn an_anonymous_record_tells_sizes_and_equality_and_no_key() {
    let (one, other) = (Anonymizer::new().unwrap(), Anonymizer::new().unwrap());
    let hidden = |by: &Anonymizer, key: &[u8]| {
        let mut record = TraceRecord::new(0, TraceOperation::Read, TraceKey::of(key));
        by.hide(&mut record);
        record.key
    };
    assert_eq!(hidden(&one, b"user:7"), hidden(&one, b"user:7"));
    assert_ne!(hidden(&one, b"user:7"), hidden(&one, b"user:8"));
    assert_ne!(hidden(&one, b"user:7"), hidden(&other, b"user:7"), "each has its own secret");
    assert_eq!(hidden(&one, b"user:7").size_bytes(), 6);
    let mut record = TraceRecord::new(0, TraceOperation::Read, TraceKey::of(b"user:7"));
    one.hide(&mut record);
    let bytes = written(TraceHead { is_anonymous: true, ..HEAD }, &[record]);
    assert!(!bytes.windows(4).any(|window| window == b"user"));
}

#[test]
fn the_example_of_the_format_page_is_what_is_written() {
    let record = |time_us, operation, key: &[u8]| TraceRecord::new(time_us, operation, TraceKey::of(key));
    let write = TraceRecord {
        value_bytes: Some(300),
        expiry_ms: Some(1_000),
        ..record(0, TraceOperation::Write, b"a")
    };
    let bytes = written(HEAD, &[write, record(1_000, TraceOperation::Read, b"a")]);
    let page = include_str!("../../../../docs/formats/workload-trace.md");
    let hex = page.split("```hex\n").nth(1).unwrap().split("```").next().unwrap();
    let told: Vec<u8> = hex
        .lines()
        .flat_map(|line| line.split('#').next().unwrap().split_whitespace())
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    assert_eq!(
        told,
        bytes,
        "{}",
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
    );
}

#[test]
fn files_of_others_and_of_other_versions_are_refused() {
    assert_eq!(read(b"").2.unwrap().kind(), ErrorKind::InvalidInput);
    assert_eq!(read(b"*1\r\n$7\r\nMONITOR\r\n").2.unwrap().kind(), ErrorKind::InvalidInput);
    let bytes = written(HEAD, &[]);
    assert_eq!(read(&bytes[..20]).2.unwrap().kind(), ErrorKind::Corrupt);
    let mut newer = bytes[..HEAD_BYTES].to_vec();
    newer[8] = 2;
    let sum = super::writer::head_sum(newer.as_slice().try_into().unwrap());
    newer[40..].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(read(&newer).2.unwrap().kind(), ErrorKind::Incompatible);
    let mut longer = bytes.clone();
    longer.push(0);
    assert_eq!(read(&longer).2.unwrap().kind(), ErrorKind::Corrupt);
    let mut writer = TraceWriter::new(Vec::new(), &HEAD).unwrap();
    writer.push(&TraceRecord::new(9, TraceOperation::Read, TraceKey::of(b"k"))).unwrap();
    let back = TraceRecord::new(8, TraceOperation::Read, TraceKey::of(b"k"));
    assert_eq!(writer.push(&back).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(writer.records(), 1);
}

#[test]
fn names_that_are_passed_over_are_in_the_order_in_which_they_are_searched() {
    assert!(super::commands::PASSED_OVER.is_sorted());
}

#[test]
fn a_cache_trace_is_read_with_sizes_times_and_misses() {
    use super::cache_csv::CacheCsvImport;
    let text = "100,abcd,4,20,1,get,0\n100,ab,cd,5,0,1,get,0\n100,abcd,30,7,1,set,60\n99,k,1,3,1,cas,0\n\
        102,k,1,9,2,incr,0\n102,k,1,0,2,delete,0\nbad\n102,k,1,0,2,frobnicate,0\n102,k,1,2,2,append,0\n103,k,1,2,2,get,0";
    let (mut import, mut records) = (CacheCsvImport::new(), Vec::new());
    let mut keep = |record: &TraceRecord| {
        records.push(record.clone());
        Ok(())
    };
    import.feed(text.as_bytes(), &mut keep).unwrap();
    import.finish(&mut keep).unwrap();
    let counts = import.counts();
    assert_eq!((counts.lines, counts.records, counts.refused, counts.out_of_order), (10, 7, 3, 1));
    assert_eq!(counts.first_refused_line, Some(7));
    let times: Vec<u64> = records.iter().map(|record| record.time_us).collect();
    assert_eq!(times, [0, 250_000, 500_000, 750_000, 2_000_000, 2_333_333, 2_666_666]);
    assert_eq!((records[0].value_bytes, records[0].is_miss), (Some(20), false));
    assert_eq!((&records[1].key, records[1].is_miss), (&TraceKey::of(b"ab,cd"), true));
    assert_eq!((records[2].key.size_bytes(), records[2].expiry_ms), (30, Some(60_000)));
    assert_eq!(records[3].operation, TraceOperation::Replace);
    assert_eq!(records[4].operation, TraceOperation::Update);
    assert_eq!(records[5].operation, TraceOperation::Delete);
    assert_eq!((&records[6].operation, records[6].value_bytes), (&TraceOperation::Append, Some(2)));
}

#[test]
fn a_description_finds_the_skew_that_was_drawn() {
    use super::describe::{Describer, zipf_theta};
    use tierstone_base::SeededRandom;
    for theta in [0.6, 0.99, 1.4] {
        let zipf = crate::zipf::ExactZipf::new(5_000, theta);
        let mut random = SeededRandom::new(7);
        let mut describer = Describer::default();
        for number in 0..400_000u64 {
            let key = TraceKey::of(&zipf.rank(&mut random).to_le_bytes());
            let record = TraceRecord::new(number * 1_000, TraceOperation::Read, key);
            describer.push(&TraceRecord { value_bytes: Some(100), ..record });
        }
        let facts = describer.facts();
        let found = facts.zipf_theta.unwrap();
        assert!((found - theta).abs() < 0.05, "{found} for {theta}");
        assert_eq!((facts.operations, facts.value_sizes), (400_000, vec![(128, 400_000)]));
        assert_eq!(facts.working_set_bytes, facts.keys * 108);
        let (last, others) = facts.rates.split_last().unwrap();
        assert!(others.len() < 120 && others.iter().all(|rate| *rate == 1_000.0), "{others:?}");
        assert!((last - 1_000.0).abs() < 5.0, "a part of a span counts as a part: {last}");
    }
    assert_eq!(zipf_theta(&[1, 1, 1]), None);
    assert!(zipf_theta(&[5; 4_000]).unwrap() < 0.01, "all alike is no skew");
}
