use super::super::KeyMode;
use super::*;
use std::cell::RefCell;

/// Keys are the numbers of their locations; what is asked for ahead is noted.
#[derive(Default)]
struct Numbers {
    asked: RefCell<Vec<Location>>,
}

impl KeySource for Numbers {
    type Key<'a> = [u8; 8];

    fn key(&self, location: Location) -> [u8; 8] {
        location.units().to_be_bytes()
    }

    fn prefetch(&self, location: Location) {
        self.asked.borrow_mut().push(location);
    }
}

fn index(count: u64, source: &Numbers) -> OrderedIndex {
    let mut index = OrderedIndex::new(KeyMode::Partial);
    for number in 0..count {
        index.insert(&number.to_be_bytes(), Location::new(number).unwrap(), source);
    }
    source.asked.borrow_mut().clear();
    index
}

#[test]
fn every_record_of_a_range_is_asked_for_once_and_ahead_and_none_beyond() {
    let source = Numbers::default();
    let index = index(1000, &source);
    let (low, high) = (90u64.to_be_bytes(), 810u64.to_be_bytes());
    for direction in [Direction::Forward, Direction::Backward] {
        for ahead in [0, 1, 8, 5000] {
            source.asked.borrow_mut().clear();
            let mut shown = 0;
            let range =
                KeyRange { low: Bound::Included(&low), high: Bound::Excluded(&high), direction, limit: 600 };
            let whole = index.range_ahead(&range, ahead, &source, |location| {
                let expected = if direction == Direction::Forward { 90 + shown } else { 809 - shown };
                assert_eq!(location.units(), expected);
                shown += 1;
                let asked = if ahead == 0 { 0 } else { (shown as usize + ahead).min(600) };
                assert_eq!(source.asked.borrow().len(), asked);
                true
            });
            assert!(whole && shown == 600);
            let asked = source.asked.borrow();
            assert!(asked.windows(2).all(|pair| (pair[0] < pair[1]) == (direction == Direction::Forward)));
        }
    }
}

#[test]
fn a_range_whose_bounds_hold_nothing_shows_nothing() {
    let source = Numbers::default();
    let index = index(100, &source);
    let (five, six) = (5u64.to_be_bytes(), 6u64.to_be_bytes());
    let (five, six) = (five.as_slice(), six.as_slice());
    let empty = [
        (Bound::Included(six), Bound::Included(five)),
        (Bound::Excluded(five), Bound::Excluded(five)),
        (Bound::Included(five), Bound::Excluded(five)),
        (Bound::Excluded(five), Bound::Excluded(six)),
    ];
    for (low, high) in empty {
        for direction in [Direction::Forward, Direction::Backward] {
            let range = KeyRange { low, high, direction, limit: usize::MAX };
            assert!(index.range(&range, &source, |_| unreachable!("{range:?}")));
        }
    }
    assert!(!index.range(&KeyRange::all(), &source, |_| false));
}
