use super::*;
use proptest::prelude::*;

/// The lengths for all pairs of prefixes as numbers, by rows of `left`, and the walk through them, as Redis makes both.
fn by_numbers(left: &[u8], right: &[u8]) -> (usize, Vec<Match>) {
    let width = right.len() + 1;
    let mut table = vec![0; (left.len() + 1) * width];
    for (row, byte) in left.iter().enumerate() {
        for (column, other) in right.iter().enumerate() {
            let at = (row + 1) * width + column + 1;
            table[at] =
                if byte == other { table[at - width - 1] + 1 } else { table[at - width].max(table[at - 1]) };
        }
    }
    let (mut row, mut column) = (left.len(), right.len());
    let mut matches = Vec::new();
    while row > 0 && column > 0 {
        if left[row - 1] == right[column - 1] {
            (row, column) = (row - 1, column - 1);
            note(&mut matches, row, column);
        } else if table[(row - 1) * width + column] > table[row * width + column - 1] {
            row -= 1;
        } else {
            column -= 1;
        }
    }
    (table[table.len() - 1], matches)
}

fn by_bits(left: &[u8], right: &[u8]) -> (usize, Vec<Match>) {
    let table = Table::new(left, right);
    (table.length(), table.walk(left, right))
}

#[test]
fn strings_at_the_edges_of_words_are_compared_whole() {
    for len in [0, 1, 63, 64, 65, 127, 128, 129] {
        let ones = b"a".repeat(len);
        for other in [0, 1, 63, 64, 65] {
            let others = b"a".repeat(other);
            assert_eq!(by_bits(&ones, &others), by_numbers(&ones, &others), "{len} {other}");
            let mixed: Vec<u8> = b"ab".repeat(other);
            assert_eq!(by_bits(&ones, &mixed), by_numbers(&ones, &mixed), "{len} {other}");
            assert_eq!(by_bits(&mixed, &ones), by_numbers(&mixed, &ones), "{len} {other}");
        }
    }
}

#[test]
fn the_largest_table_is_small() {
    for (left, right) in [(4_095, 4_095), (1 << 20, 15), (15, 1 << 20)] {
        let table = Table::new(&vec![b'a'; left], &vec![b'a'; right]);
        assert!(table.rows.len() * 8 <= 3 << 20, "{} words", table.rows.len());
        assert_eq!(table.length(), left.min(right));
    }
}

proptest! {
    #[test]
    fn bits_find_what_numbers_find(left in "[abc]{0,200}", right in "[abcd]{0,200}") {
        let (left, right) = (left.as_bytes(), right.as_bytes());
        prop_assert_eq!(by_bits(left, right), by_numbers(left, right));
    }
}
