use super::*;

const SPACE: KeyspaceId = KeyspaceId(2);

fn gone(at: Seq) -> Gone {
    Gone { position: Position(at), at, is_unsure: false }
}

fn filled() -> GoneKeys {
    let mut keys = GoneKeys::default();
    for (number, key) in [b"b", b"d", b"f", b"h"].into_iter().enumerate() {
        keys.insert(SPACE, key, gone(number as Seq));
    }
    keys.insert(KeyspaceId(3), b"e", gone(9));
    keys.insert(KeyspaceId(1), b"c", gone(9));
    keys
}

fn shown(keys: &GoneKeys, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize, back: bool) -> String {
    let direction = if back { Direction::Backward } else { Direction::Forward };
    let mut shown = String::new();
    keys.range(SPACE, (from, to), limit, direction, |key| shown.push(char::from(key[0])));
    shown
}

#[test]
fn a_range_shows_its_own_keyspace_from_the_end_it_begins_at() {
    let keys = filled();
    assert_eq!(shown(&keys, Unbounded, Unbounded, 3, false), "bdf");
    assert_eq!(shown(&keys, Unbounded, Unbounded, 3, true), "hfd");
    assert_eq!(shown(&keys, Included(b"d"), Excluded(b"h"), 9, false), "df");
    assert_eq!(shown(&keys, Excluded(b"d"), Included(b"h"), 9, true), "hf");
    assert_eq!(shown(&keys, Included(b"d"), Included(b"d"), 9, false), "d");
}

#[test]
fn ends_that_have_changed_places_show_nothing() {
    let keys = filled();
    assert_eq!(shown(&keys, Included(b"h"), Included(b"b"), 9, false), "");
    assert_eq!(shown(&keys, Excluded(b"d"), Excluded(b"d"), 9, true), "");
    assert_eq!(shown(&keys, Included(b"d"), Excluded(b"d"), 9, false), "");
}

#[test]
fn a_purge_in_pieces_asks_of_each_key_once_and_gives_its_bytes_back() {
    for count in [1, 2, 3, usize::MAX] {
        let mut keys = filled();
        let (mut asked, mut place) = (Vec::new(), None);
        for _ in 0..30 {
            place = keys.purge(place, count, |keyspace, position, at, is_unsure| {
                assert!(!is_unsure && position.0 == at);
                asked.push((keyspace.0, at));
                keyspace == SPACE && at % 2 == 1
            });
            if place.is_none() {
                break;
            }
        }
        assert!(place.is_none());
        assert_eq!(asked, [(1, 9), (2, 0), (2, 1), (2, 2), (2, 3), (3, 9)], "{count} at a time");
        assert_eq!(shown(&keys, Unbounded, Unbounded, 9, false), "dh");
        assert_eq!(keys.bytes(), 2 * (GONE_KEY_BYTES + 1));
        assert!(keys.purge(None, 9, |_, _, _, _| false).is_some());
        assert!(keys.is_empty() && keys.bytes() == 0);
    }
}

#[test]
fn a_key_that_goes_again_counts_once_with_its_newest_end() {
    let mut keys = GoneKeys::default();
    keys.insert(SPACE, b"key", Gone { is_unsure: true, ..gone(4) });
    keys.insert(SPACE, b"key", Gone { position: Position(4), ..gone(7) });
    assert_eq!(keys.bytes(), GONE_KEY_BYTES + 3);
    keys.purge(None, 9, |_, position, at, is_unsure| {
        assert_eq!((position, at, is_unsure), (Position(4), 7, true));
        true
    });
}
