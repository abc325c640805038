use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::RangeBounds;
use tierstone_engine::RecordMeta;

#[test]
fn a_prefix_ends_behind_its_last_key() {
    let bounds = |prefix: &[u8]| Prefix(prefix).into_bounds();
    assert_eq!(bounds(b"ab"), (Bound::Included(b"ab".to_vec()), Bound::Excluded(b"ac".to_vec())));
    assert_eq!(
        bounds(b"a\xff\xff"),
        (Bound::Included(b"a\xff\xff".to_vec()), Bound::Excluded(b"b".to_vec()))
    );
    assert_eq!(bounds(b"\xff"), (Bound::Included(b"\xff".to_vec()), Bound::Unbounded));
    assert_eq!(bounds(b""), (Bound::Included(Vec::new()), Bound::Unbounded));
}

#[test]
fn bounds_are_taken_from_all_forms() {
    let (a, m) = (|| b"a".to_vec(), || b"m".to_vec());
    assert_eq!(("a".."m").into_bounds(), (Bound::Included(a()), Bound::Excluded(m())));
    assert_eq!(("a"..="m").into_bounds(), (Bound::Included(a()), Bound::Included(m())));
    assert_eq!((.."m").into_bounds(), (Bound::Unbounded, Bound::Excluded(m())));
    assert_eq!((..=m()).into_bounds(), (Bound::Unbounded, Bound::Included(m())));
    assert_eq!((b"a"..).into_bounds(), (Bound::Included(a()), Bound::Unbounded));
    assert_eq!((..).into_bounds(), (Bound::Unbounded, Bound::Unbounded));
    let pair = (Bound::Excluded("a"), Bound::Unbounded);
    assert_eq!(pair.into_bounds(), (Bound::Excluded(a()), Bound::Unbounded));
}

/// Answers as a shard with `keys` would, at times with fewer entries than it could.
fn answer(keys: &BTreeSet<Vec<u8>>, request: &RangeRequest, short: bool) -> RangePage {
    let bounds = (request.from.clone(), request.to.clone());
    let mut found: Vec<_> = keys.iter().filter(|key| bounds.contains(*key)).cloned().collect();
    if request.direction == Direction::Backward {
        found.reverse();
    }
    let limit = if short { 1 } else { request.limit as usize };
    let next = (found.len() > limit).then(|| found[limit - 1].clone());
    found.truncate(limit);
    // A page may be all expired.
    let entries = found.into_iter().filter(|_| !short || next.is_none());
    let entry = |key: Vec<u8>| RangeEntry { value: key.clone(), key, meta: RecordMeta::default() };
    RangePage { entries: entries.map(entry).collect(), next, damaged: None }
}

proptest! {
    #[test]
    fn shards_are_merged_in_order(
        keys in proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 0..4), 0..200),
        shards in 1u16..6,
        backward: bool,
        to in proptest::collection::vec(any::<u8>(), 0..3),
        limit in proptest::option::of(0u64..60),
    ) {
        let shard = |key: &Vec<u8>| key.iter().map(|&byte| u16::from(byte)).sum::<u16>() % shards;
        let of_shard: Vec<BTreeSet<Vec<u8>>> =
            (0..shards).map(|number| keys.iter().filter(|key| shard(key) == number).cloned().collect()).collect();
        let mut merge = Merge::new(KeyspaceId(1), ..to.clone(), shards);
        if backward {
            merge.turn_back();
        }
        if let Some(limit) = limit {
            merge.stop_after(limit);
        }
        let mut found = Vec::new();
        loop {
            while !merge.is_known() {
                for (shard, request) in merge.wanted() {
                    let most = limit.map_or(ENTRIES_AT_ONCE, |limit| (limit as usize - found.len()) as u32);
                    prop_assert!((1..=most).contains(&request.limit), "{}", request.limit);
                    merge.take(shard, answer(&of_shard[usize::from(shard)], &request, false));
                }
            }
            match merge.next() {
                Some(entry) => found.push(entry.unwrap().key),
                None => break,
            }
        }
        let mut expected: Vec<_> = keys.range(..to).cloned().collect();
        if backward {
            expected.reverse();
        }
        expected.truncate(limit.unwrap_or(u64::MAX) as usize);
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn a_walk_with_a_limit_asks_for_little_more_than_it_gives() {
    let of_shard: Vec<BTreeSet<Vec<u8>>> =
        (0..2u8).map(|shard| (0..100).map(|number| vec![number, shard]).collect()).collect();
    let mut merge = Merge::new(KeyspaceId(1), .., 2);
    merge.stop_after(50);
    let (mut asked, mut given) = (0, 0);
    loop {
        while !merge.is_known() {
            for (shard, request) in merge.wanted() {
                asked += request.limit;
                merge.take(shard, answer(&of_shard[usize::from(shard)], &request, false));
            }
        }
        let Some(entry) = merge.next() else { break };
        entry.unwrap();
        given += 1;
    }
    assert_eq!(given, 50);
    assert!((50..=70).contains(&asked), "{asked}");
}

#[test]
fn a_page_without_entries_is_not_the_end() {
    let keys: BTreeSet<Vec<u8>> = (0..9u8).map(|byte| vec![byte]).collect();
    let mut merge = Merge::new(KeyspaceId(1), .., 1);
    let mut asked = 0;
    while !merge.is_known() {
        for (shard, request) in merge.wanted() {
            asked += 1;
            merge.take(shard, answer(&keys, &request, true));
        }
    }
    assert_eq!((asked, merge.next().unwrap().unwrap().key), (9, vec![8]));
    assert!(merge.next().is_none());
}

#[test]
fn what_cannot_be_read_is_told_and_the_walk_goes_on() {
    let mut merge = Merge::new(KeyspaceId(1), .., 1);
    let entry = |key: u8, kind| RangeEntry {
        key: vec![key],
        meta: RecordMeta { kind, ..RecordMeta::default() },
        value: vec![key],
    };
    let entries =
        vec![entry(1, ValueKind::STRING), entry(2, ValueKind::CHUNKED), entry(3, ValueKind::INTERNAL)];
    let damaged = Some(Error::new(ErrorKind::Corrupt, "rotten"));
    merge.take(0, RangePage::of(entries, None, damaged, Some(Now::default())).unwrap());
    assert_eq!(merge.next().unwrap().unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(merge.next().unwrap().unwrap().key, [1]);
    assert_eq!(merge.next().unwrap().unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(merge.next().is_none());
    let no_order = Some(Error::new(ErrorKind::Unsupported, "no order"));
    assert!(RangePage::of(Vec::new(), None, no_order, Some(Now::default())).is_err());
}
