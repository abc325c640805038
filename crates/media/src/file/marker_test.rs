use super::*;
use proptest::prelude::*;

fn marker() -> Marker {
    Marker { store: 0xfeed, index: 1, members: 3, ready: 2, segment_bytes: 1 << 20, meta_bytes: 8192 }
}

#[test]
fn a_marker_comes_back() {
    assert_eq!(Marker::decode(marker().encode().as_bytes()), Ok(marker()));
}

/// The example of `docs/formats/file-store.md`: page and encoder cannot part.
#[test]
fn the_page_prints_a_marker() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/file-store.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = Marker {
        store: 0x1122_3344_5566_7788,
        index: 0,
        members: 2,
        ready: 2,
        segment_bytes: 32 << 20,
        meta_bytes: 128 << 10,
    };
    let text = example.encode();
    assert!(page.contains(&format!("```text\n{text}```")), "the page does not print\n{text}");
}

#[test]
fn numbers_that_contradict_each_other_are_refused() {
    let wrong = Marker { index: 3, ..marker() };
    assert!(Marker::decode(wrong.encode().as_bytes()).is_err());
    let wrong = Marker { ready: 4, ..marker() };
    assert!(Marker::decode(wrong.encode().as_bytes()).is_err());
}

proptest! {
    #[test]
    fn any_changed_byte_is_refused(place in 0usize..150, value: u8) {
        let mut bytes = marker().encode().into_bytes();
        let place = place % (bytes.len() - 1);
        prop_assume!(bytes[place] != value);
        // The letters of the hexadecimal checksum may be written large or small.
        prop_assume!(!bytes[place].eq_ignore_ascii_case(&value));
        bytes[place] = value;
        prop_assert!(Marker::decode(&bytes).is_err());
    }

    #[test]
    fn what_is_behind_a_right_checksum_is_read_with_care(numbers in proptest::collection::vec(0..5u64, 6), cut in 0..120usize) {
        let names = ["store", "index", "members", "ready", "segment_bytes", "meta_bytes"];
        let lines = names.iter().zip(&numbers).map(|(name, number)| format!("{name} {number}\n"));
        let body = lines.collect::<String>();
        Marker::check(body.as_bytes());
        Marker::check(&body.as_bytes()[..cut.min(body.len())]);
    }

    #[test]
    fn hostile_bytes_never_panic(bytes: Vec<u8>, text: String) {
        Marker::check(&bytes);
        Marker::check(text.as_bytes());
        let _ = Marker::decode(format!("{TITLE}\n{text}checksum {text}").as_bytes());
    }
}
