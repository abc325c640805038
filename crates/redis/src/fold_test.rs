use super::*;
use tierstone_base::SeededRandom;

/// The fold's answer over `value` in pieces of `piece` bytes.
fn run(mut fold: Fold, value: &[u8], piece: usize) -> i64 {
    let range = fold.bytes();
    let mut at = range.start as usize;
    while at < range.end as usize {
        let end = (at + piece).min(range.end as usize);
        if let Some(found) = fold.take(at as u64, &value[at..end]) {
            return found;
        }
        at = end;
    }
    fold.end()
}

#[test]
fn pieces_of_any_size_give_what_bit_after_bit_gives() {
    let mut random = SeededRandom::new(11);
    for case in 0..400 {
        let fill = if random.chance(0.5) { 0 } else { 0xff };
        let mut value = vec![fill; 1 + random.below(300) as usize];
        for _ in 0..random.below(4) {
            let at = random.below(value.len() as u64) as usize;
            value[at] = random.next_u64() as u8;
        }
        let len = value.len() as u64 * 8;
        let (one, two) = (random.below(len + 1), random.below(len + 1));
        let bits = one.min(two)..one.max(two);
        let is_set = |bit: &u64| bit_at(&value, *bit as usize);
        let count = bits.clone().filter(is_set).count() as i64;
        for piece in [1, 7, 64, 1_000] {
            assert_eq!(
                run(Fold::ones(bits.clone()), &value, piece),
                count,
                "case {case}: {bits:?} by {piece}"
            );
            for wanted in [false, true] {
                let first = bits.clone().find(|bit| is_set(bit) == wanted).map_or(-7, |bit| bit as i64);
                let found = run(Fold::first(bits.clone(), wanted, -7), &value, piece);
                assert_eq!(found, first, "case {case}: {wanted} in {bits:?} by {piece}");
            }
        }
    }
}
