//! Searching a stretch of a pattern in a text.
//!
//! Place after place, as long as that ends soon. A stretch and a text that nearly fit at every place take the product of
//! their lengths; then a bit for each element says whether the elements up to it fit the bytes up to the one at hand, and
//! each byte of the text moves 64 of them at once. Source: Baeza-Yates and Gonnet, "A new approach to text searching",
//! 1992 (Shift-And), over any number of words.

use super::Pattern;
use std::ops::Range;

/// Steps for each byte of stretch and text, after which the bits are used.
const STEPS_EACH: usize = 8;

/// Words of bits that are moved for one unit of work.
const WORDS_A_UNIT: usize = 2;

/// The first place in `text` where `stretch`, which is not empty, fits.
pub(super) fn find(pattern: &Pattern, stretch: &Range<usize>, text: &[u8], work: &mut u64) -> Option<usize> {
    let last = text.len().checked_sub(stretch.len())?;
    let steps_max = STEPS_EACH * (stretch.len() + text.len());
    let mut steps = 0;
    for start in 0..=last {
        if steps > steps_max {
            *work += steps as u64;
            return find_wide(pattern, stretch, &text[start..], work).map(|place| start + place);
        }
        let elements = &pattern.elements[stretch.clone()];
        let mut pairs = elements.iter().zip(&text[start..]);
        match pairs.position(|(element, byte)| !pattern.takes(*element, *byte)) {
            None => {
                *work += (steps + elements.len()) as u64;
                return Some(start);
            }
            Some(fitting) => steps += fitting + 1,
        }
    }
    *work += steps as u64;
    None
}

/// The elements that take `byte`, a bit each.
fn takers(pattern: &Pattern, stretch: &Range<usize>, byte: u8) -> Box<[u64]> {
    let words = pattern.elements[stretch.clone()].chunks(64);
    let word = |elements: &[super::Element]| {
        let bit =
            |(place, element): (usize, &super::Element)| u64::from(pattern.takes(*element, byte)) << place;
        elements.iter().enumerate().map(bit).sum()
    };
    words.map(word).collect()
}

/// As [`find`], by bits.
pub(super) fn find_wide(
    pattern: &Pattern,
    stretch: &Range<usize>,
    text: &[u8],
    work: &mut u64,
) -> Option<usize> {
    let words = stretch.len().div_ceil(64);
    let end = 1u64 << ((stretch.len() - 1) % 64);
    let mut of_byte: [Option<Box<[u64]>>; 256] = [const { None }; 256];
    // Word 0 stays full: what lies before the first element always fits.
    let (mut old, mut new) = (vec![0u64; words + 1], vec![0u64; words + 1]);
    (old[0], new[0]) = (u64::MAX, u64::MAX);
    for (place, byte) in text.iter().enumerate() {
        let takers = of_byte[usize::from(*byte)].get_or_insert_with(|| {
            *work += stretch.len() as u64;
            takers(pattern, stretch, *byte)
        });
        for ((word, pair), takers) in new[1..].iter_mut().zip(old.windows(2)).zip(takers.iter()) {
            *word = (pair[1] << 1 | pair[0] >> 63) & takers;
        }
        *work += 1 + (words / WORDS_A_UNIT) as u64;
        if new[words] & end != 0 {
            return Some(place + 1 - stretch.len());
        }
        std::mem::swap(&mut old, &mut new);
    }
    None
}
