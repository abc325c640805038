use super::*;

#[test]
fn words_of_the_allocation_table_come_back_and_damage_is_seen() {
    for kind in [SegmentKind::Claimed, SegmentKind::Log, SegmentKind::Storage, SegmentKind::Overflow(3)] {
        let entry = Entry { kind, device: 1023, logical: SPARE };
        let word = entry.encode();
        assert_eq!(Entry::decode(word), Ok(Some(entry)));
        let seen = (0..64).filter(|bit| Entry::decode(word ^ 1 << bit) != Ok(Some(entry))).count();
        assert_eq!(seen, 64);
    }
    assert_eq!(Entry::decode(0), Ok(None));
}
