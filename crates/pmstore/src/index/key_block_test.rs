use super::*;

#[test]
fn separators_lie_between_and_are_short() {
    for (low, high, expected) in
        [("a", "b", "b"), ("abc", "abd", "abd"), ("ab", "abcd", "abc"), ("abc", "ac", "ac"), ("", "xyz", "x")]
    {
        assert_eq!(separator(low.as_bytes(), high.as_bytes()), expected.as_bytes());
    }
}

#[test]
fn a_block_keeps_what_its_keys_share_once() {
    let mut block = KeyBlock::default();
    let keys = ["user:0010", "user:0011", "user:0012", "user:002"];
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(block.search(key.as_bytes()), Err(at));
        block.insert(at, key.as_bytes());
    }
    assert_eq!((&*block.prefix, &*block.suffixes), (&b"user:00"[..], &b"1011122"[..]));
    for (outside, place) in [("us", 0), ("a", 0), ("user:01", 4), ("v", 4), ("user:00", 0), ("user:0011x", 2)]
    {
        assert_eq!(block.search(outside.as_bytes()), Err(place), "{outside}");
    }
    let upper = block.split_off(2);
    assert_eq!((&*block.prefix, &*upper.prefix), (&b"user:001"[..], &b"user:00"[..]));
    block.insert(0, b"");
    assert_eq!((block.prefix.len(), &*block.key(2)), (0, &b"user:0011"[..]));
    (0..3).for_each(|_| block.remove(0));
    assert_eq!(block.len(), 0);
    block.insert(0, b"else");
    assert_eq!(block.search(b"else"), Ok(0));
}
