use super::*;
use tierstone_base::SeededRandom;

const OPERATIONS: [BitOperation; 8] = [
    BitOperation::And,
    BitOperation::Or,
    BitOperation::Xor,
    BitOperation::Not,
    BitOperation::Diff,
    BitOperation::Diff1,
    BitOperation::AndOr,
    BitOperation::One,
];

/// What Redis documents of one bit, `ones` of whose `bits` sources are set.
fn bit(operation: BitOperation, bits: &[bool]) -> bool {
    let ones = bits.iter().filter(|bit| **bit).count();
    let (first, others) = (bits[0], bits[1..].contains(&true));
    match operation {
        BitOperation::And => ones == bits.len(),
        BitOperation::Or => ones > 0,
        BitOperation::Xor => ones % 2 == 1,
        BitOperation::Not => !first,
        BitOperation::Diff => first && !others,
        BitOperation::Diff1 => !first && others,
        BitOperation::AndOr => first && others,
        BitOperation::One => ones == 1,
    }
}

/// The result by windows of `step` bytes.
fn make(recipe: &Recipe, step: u64) -> Vec<u8> {
    let mut result = Vec::new();
    while (result.len() as u64) < recipe.len {
        let start = result.len() as u64;
        let window = start..(start + step).min(recipe.len);
        let mut mixed = Mixed::new(recipe.mix, (window.end - window.start) as usize);
        for (index, source) in recipe.sources.iter().enumerate() {
            let part = source.part(&window);
            let Bytes::Short(bytes) = &source.bytes else { unreachable!("all of them are short") };
            let at = source.offset(&window, &part);
            mixed.add(index, at, &bytes[part.start as usize..part.end as usize]);
        }
        result.extend(mixed.finish());
    }
    result
}

fn sources(random: &mut SeededRandom, count: u64) -> Vec<Vec<u8>> {
    (0..count)
        .map(|_| (0..random.below(40)).map(|_| random.next_u64() as u8 & random.next_u64() as u8).collect())
        .collect()
}

fn recipe(mix: Mix, len: u64, sources: Vec<Source>) -> Recipe {
    let target = Place { keyspace: tierstone_base::KeyspaceId(1), slot: 0 };
    Recipe { target, len, mix, sources }
}

#[test]
fn windows_of_any_size_are_combined_as_bit_after_bit() {
    let mut random = SeededRandom::new(7);
    for case in 0..200 {
        for operation in OPERATIONS {
            let count = if operation == BitOperation::Not { 1 } else { 2 + random.below(4) };
            let values = sources(&mut random, count);
            let len = values.iter().map(Vec::len).max().unwrap_or(0);
            let at = |value: &Vec<u8>, bit: usize| {
                value.get(bit / 8).is_some_and(|byte| byte >> (7 - bit % 8) & 1 == 1)
            };
            let expected: Vec<bool> = (0..len * 8)
                .map(|place| bit(operation, &values.iter().map(|value| at(value, place)).collect::<Vec<_>>()))
                .collect();
            let shorts = values.into_iter().map(|value| Source::new(Bytes::Short(value))).collect();
            let recipe = recipe(Mix::Bits(operation), len as u64, shorts);
            for step in [1, 5, 16, 64] {
                let made = make(&recipe, step);
                let got: Vec<bool> = (0..len * 8).map(|place| at(&made, place)).collect();
                assert_eq!(got, expected, "case {case}: {operation:?} by {step}");
            }
        }
    }
}

#[test]
fn what_lies_over_another_hides_it_and_gaps_are_zeros() {
    let mut random = SeededRandom::new(8);
    for case in 0..200 {
        let values = sources(&mut random, 3);
        let places: Vec<u64> = (0..3).map(|_| random.below(50)).collect();
        let end = |(value, at): (&Vec<u8>, &u64)| at + value.len() as u64;
        let len = values.iter().zip(&places).map(end).max().unwrap_or(0);
        let mut expected = vec![0; len as usize];
        for (value, at) in values.iter().zip(&places) {
            expected[*at as usize..*at as usize + value.len()].copy_from_slice(value);
        }
        let laid =
            values.into_iter().zip(places).map(|(value, at)| Source { at, bytes: Bytes::Short(value) });
        let recipe = recipe(Mix::Overlay, len, laid.collect());
        for step in [1, 5, 16, 200] {
            assert_eq!(make(&recipe, step), expected, "case {case} by {step}");
        }
    }
}
