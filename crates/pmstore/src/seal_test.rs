use super::*;

#[test]
fn a_life_is_found_by_its_check() {
    for life in [1, 0xdead_beef, u64::MAX, 0x0123_4567_89ab_cdef] {
        let check = life_check(77, 12_345, life);
        assert_eq!(life_of_check(77, 12_345, check), life);
    }
}

#[test]
fn a_seal_is_of_one_life_and_damage_of_it_is_seen() {
    let word = seal_word(9, 4_096);
    assert_eq!((sealed_end(word, 9), sealed_end(word, 8), sealed_end(0, 9)), (4_096, 0, 0));
    assert!((0..64).all(|bit| sealed_end(word ^ 1 << bit, 9) == 0));
}
