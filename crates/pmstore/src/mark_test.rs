use super::*;

#[test]
fn words_of_a_shards_line_come_back_and_damage_is_seen() {
    for (logical, end) in [(1, 64), (7, 16 << 20), (u32::MAX - 1, 2 << 20)] {
        let mark = LogMark { logical, end };
        let word = mark.encode(3);
        assert_eq!(LogMark::decode(word, 3), Ok(Some(mark)));
        assert_eq!(LogMark::decode(word, 4), Err(()), "another shard's");
        assert!((0..64).all(|bit| LogMark::decode(word ^ 1 << bit, 3) != Ok(Some(mark))));
        let word = guarded(logical.into());
        assert_eq!(unguarded(word), Some(logical.into()));
        assert!((0..64).all(|bit| unguarded(word ^ 1 << bit).is_none()));
    }
    assert_eq!((LogMark::decode(0, 3), unguarded(0)), (Ok(None), Some(0)));
}
