use super::*;
use crate::soak::object::ROUND;

fn page(cursor: &str, keys: &[String]) -> Vec<u8> {
    let mut out = format!("*2\r\n${}\r\n{cursor}\r\n*{}\r\n", cursor.len(), keys.len());
    for key in keys {
        out.push_str(&format!("${}\r\n{key}\r\n", key.len()));
    }
    out.into_bytes()
}

/// Keys of all objects that stay.
fn lasting(objects: u64) -> Vec<String> {
    let numbers = (0..objects).filter(|&number| Objects::is_lasting(number));
    let parts = |number| (0..Objects::parts(number)).map(move |part| format!("any:{number}:{part}"));
    numbers.flat_map(parts).collect()
}

#[test]
fn a_walk_over_some_pages_must_give_every_lasting_key() {
    let keys = lasting(ROUND);
    for (left_out, is_filled, is_fault) in [(0, true, false), (1, true, true), (1, false, false)] {
        let mut walk = Walk::new(ROUND, 10);
        let mut request = Vec::new();
        walk.ask(is_filled, &mut request);
        assert_eq!(request, b"*4\r\n$4\r\nSCAN\r\n$1\r\n0\r\n$5\r\nCOUNT\r\n$2\r\n10\r\n");
        assert_eq!(walk.take(&page("77", &keys[..5])), None);
        request.clear();
        walk.ask(is_filled, &mut request);
        assert!(request.starts_with(b"*4\r\n$4\r\nSCAN\r\n$2\r\n77\r\n"));
        let last = walk.take(&page("0", &keys[5..keys.len() - left_out]));
        assert_eq!(last.is_some(), is_fault, "{last:?}");
        assert_eq!((walk.pages, walk.walks), (2, 1));
    }
}

#[test]
fn keys_that_nobody_wrote_and_errors_are_faults() {
    let mut walk = Walk::new(ROUND, 10);
    assert!(walk.take(&page("0", &["stranger".into()])).is_some());
    assert!(walk.take(&page("0", &[format!("value:{ROUND}:0")])).is_some());
    assert!(walk.take(b"-ERR no\r\n").is_some());
}
