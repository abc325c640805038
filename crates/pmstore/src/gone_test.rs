use super::*;

fn names(range: GoneRange<'_>) -> Vec<Vec<u8>> {
    range.map(|(key, _)| key.to_vec()).collect()
}

#[test]
fn ranges_hold_the_keys_of_one_keyspace_between_their_ends_both_ways() {
    let mut gone = GoneKeys::default();
    for keyspace in [0, 1, u32::MAX] {
        for key in [&b""[..], b"a", b"b", b"c"] {
            gone.insert(KeyspaceId(keyspace), key, Position(7), 9);
        }
    }
    for keyspace in [0, 1, u32::MAX].map(KeyspaceId) {
        let of = |low, high, direction| names(gone.range(keyspace, (low, high), direction));
        let all: [&[u8]; 4] = [b"", b"a", b"b", b"c"];
        assert_eq!(of(Unbounded, Unbounded, Direction::Forward), all);
        assert_eq!(of(Excluded(b"a"), Included(b"c"), Direction::Backward), [b"c", b"b"]);
        assert_eq!(of(Included(b"b"), Included(b"b"), Direction::Forward), [b"b"]);
        let empty = Vec::<Vec<u8>>::new();
        assert_eq!(of(Excluded(b"b"), Excluded(b"b"), Direction::Forward), empty);
        assert_eq!(of(Included(b"c"), Included(b"a"), Direction::Forward), empty);
        assert_eq!(of(Excluded(b"c"), Unbounded, Direction::Forward), empty);
        assert_eq!(of(Unbounded, Excluded(b""), Direction::Backward), empty);
    }
}

#[test]
fn the_purge_goes_through_all_keys_and_their_bytes_come_back() {
    let mut gone = GoneKeys::default();
    for number in 0..100u8 {
        gone.insert(KeyspaceId(u32::from(number % 3)), &[number], Position(u64::from(number)), 1);
        gone.insert(KeyspaceId(u32::from(number % 3)), &[number], Position(u64::from(number)), 2);
    }
    assert_eq!(gone.bytes(), 100 * (GONE_KEY_BYTES + 1));
    for keep in [true, false] {
        let (mut after, mut rounds) = (None, 0);
        loop {
            after = gone.purge(after, 7, |_, position, at| at == 2 && keep && position.0 % 2 == 0);
            rounds += 1;
            if after.is_none() {
                break;
            }
        }
        assert!(rounds > 7, "{rounds} rounds");
        assert_eq!(gone.bytes(), if keep { 50 * (GONE_KEY_BYTES + 1) } else { 0 });
    }
    assert!(gone.is_empty());
}
